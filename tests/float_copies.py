r"""Programs of JAX evaluated as unfavourably as a compiler may: each use of an intermediate number sees another copy of it.

Each number is held in several copies, which are recomputed from randomly chosen copies of its operands. They are rounded up in
one and down in another, which is at most twice the error of rounding to nearest, and keeps exact results exact. A product that
meets a sum is rounded in some copies and not in others, as by a fused multiply-add, and results below $2^{-1022}$ are zero in
some.
"""

import jax
import numpy as np
from jax.extend import core as jex

COPIES = 4
_SMALLEST = np.finfo(np.float64).tiny

_EXACT = {
    "abs": np.abs, "neg": np.negative, "round": np.rint, "and": np.bitwise_and, "or": np.bitwise_or, "not": np.logical_not,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "max": np.maximum, "min": np.minimum, "shift_left": np.left_shift, "shift_right_arithmetic": np.right_shift,
}  # fmt: skip
_ROUNDED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


class _Copies:
    """Evaluates equations; `rng` chooses copies and roundings."""

    def __init__(self, size, rng):
        self.size, self.rng = size, rng

    def use(self, copies):
        """An operand: each entry from a copy of its own, shape `(COPIES, size)`."""
        chosen = self.rng.integers(COPIES, size=(COPIES, self.size))
        return np.take_along_axis(copies, chosen, axis=0)

    def constant(self, value):
        value = np.asarray(value)
        kind = np.longdouble if value.dtype.kind == "f" else value.dtype
        return np.broadcast_to(value.astype(kind), (COPIES, self.size))

    def rounded(self, exact, flush=True):
        """To float64, up or down, in some entries flushed to zero."""
        near = exact.astype(np.float64)
        other = np.nextafter(near, np.where(exact > near, np.inf, -np.inf))
        choice = self.rng.integers(4, size=exact.shape)
        x = np.where((near != exact) & np.isfinite(near) & np.isfinite(other) & (choice % 2 == 0), other, near)
        return np.where(flush & (np.abs(x) < _SMALLEST) & (choice < 2), 0 * x, x).astype(np.longdouble)

    def equation(self, name, params, inputs):
        if name in _ROUNDED and inputs[0].dtype == np.longdouble:
            # Only a sum sees a product before it is rounded.
            operands = inputs if name in ("add", "sub") else [self.rounded(each) for each in inputs]
            exact = _ROUNDED[name](*operands)
            if name == "mul":
                return np.where(self.rng.integers(2, size=exact.shape) == 0, exact, self.rounded(exact))
            return self.rounded(exact)
        flush = name not in ("select_n", "bitcast_convert_type", "abs", "neg")
        inputs = [self.rounded(each, flush) if each.dtype == np.longdouble else each for each in inputs]
        if name in _EXACT or name in _ROUNDED:
            # Of integers, which are positive where they are divided.
            return {**_ROUNDED, **_EXACT, "div": np.floor_divide}[name](*inputs)
        if name == "select_n":
            return np.where(inputs[0], inputs[2], inputs[1])
        if name == "broadcast_in_dim":
            return inputs[0]
        if name == "convert_element_type":
            return inputs[0].astype(np.longdouble if np.dtype(params["new_dtype"]).kind == "f" else params["new_dtype"])
        if name == "bitcast_convert_type":
            new = np.dtype(params["new_dtype"])
            if new.kind == "f":
                return inputs[0].view(new).astype(np.longdouble)
            return inputs[0].astype(np.float64).view(new)
        raise NotImplementedError(name)

    def run(self, jaxpr, consts, arguments):
        known = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        known.update(zip(jaxpr.invars, arguments, strict=True))
        read = lambda atom: self.constant(atom.val) if isinstance(atom, jex.Literal) else known[atom]
        for each in jaxpr.eqns:
            inputs = [self.use(read(atom)) for atom in each.invars]
            if each.primitive.name == "jit":
                inner = each.params["jaxpr"]
                known.update(zip(each.outvars, self.run(inner.jaxpr, inner.consts, inputs), strict=True))
            else:
                (result,) = each.outvars
                known[result] = self.equation(each.primitive.name, each.params, inputs)
        return [read(atom) for atom in jaxpr.outvars]


def evaluated(function, copies, rng) -> list[np.ndarray]:
    """The results of an elementwise function of one array, for copies of its argument; all of shape `(COPIES, size)`."""
    copies = np.asarray(copies, np.float64)
    closed = jax.make_jaxpr(function)(copies[0])
    with np.errstate(all="ignore"):
        results = _Copies(copies.shape[1], rng).run(closed.jaxpr, closed.consts, [copies.astype(np.longdouble)])
        return [each.astype(np.float64) for each in results]
