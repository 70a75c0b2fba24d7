"""A function of JAX in few primitives: composite ones are rewritten before they are enclosed."""

from collections.abc import Callable

import jax
from jax import lax
from jax.extend import core as jex

# Primitives that stand for a jaxpr of their own, with the name of the parameter that holds it.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
}
# The functions of `hyjax._system.trig` that evaluate sine and cosine by polynomials, which are accurate to rounding.
_BY_POLYNOMIALS = {
    "_by_polynomials": (lax.sin, lax.cos),
    "_sin_by_polynomial": (lax.sin,),
    "_cos_by_polynomial": (lax.cos,),
}


def core_jaxpr(function: Callable, *examples) -> jex.ClosedJaxpr:
    """The jaxpr of `function` for arguments such as `examples`, flat, in the primitives that `interpret` knows.

    Calls are inlined; products of matrices become sums of products, powers products, and functions such as `tanh` quotients of
    exponential functions. A primitive that is not known is left, for `interpret` to refuse.
    """
    closed = jax.make_jaxpr(function)(*examples)

    def rewritten(*flat):
        return _run(closed.jaxpr, closed.consts, flat)

    return _alive(jax.make_jaxpr(rewritten)(*jax.tree.leaves(examples)))


def _alive(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Without the equations that no result depends on."""
    needed = {atom for atom in closed.jaxpr.outvars if not isinstance(atom, jex.Literal)}
    kept = []
    for equation in reversed(closed.jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            kept.append(equation)
            needed.update(atom for atom in equation.invars if not isinstance(atom, jex.Literal))
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=kept[::-1]))


def _run(jaxpr, consts, arguments) -> list:
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom):
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    for equation in jaxpr.eqns:
        name, inputs = equation.primitive.name, [read(atom) for atom in equation.invars]
        if name in _CALLS:
            inner = equation.params[_CALLS[name]]
            if (exact := _BY_POLYNOMIALS.get(equation.params.get("name"))) is not None:
                outputs = [function(inputs[0]) for function in exact]
            elif isinstance(inner, jex.ClosedJaxpr):
                outputs = _run(inner.jaxpr, inner.consts, inputs)
            else:
                outputs = _run(inner, (), inputs)
        elif name in _REWRITTEN:
            outputs = _REWRITTEN[name](*inputs, **equation.params)
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        else:
            outputs = equation.primitive.bind(*inputs, **equation.params)
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _constant(x, value):
    return lax.full_like(x, value)


def _integer_pow(x, *, y):
    if y == 0:
        return _constant(x, 1)
    power, base, exponent = None, x, abs(y)
    while exponent:
        if exponent % 2:
            power = base if power is None else lax.mul(power, base)
        exponent //= 2
        base = lax.mul(base, base) if exponent else base
    assert power is not None
    return power if y > 0 else lax.div(_constant(x, 1), power)


def _dot_general(a, b, *, dimension_numbers, **_):
    (contract_a, contract_b), (batch_a, batch_b) = dimension_numbers
    free_a = [i for i in range(a.ndim) if i not in (*contract_a, *batch_a)]
    free_b = [i for i in range(b.ndim) if i not in (*contract_b, *batch_b)]
    a = lax.transpose(a, (*batch_a, *free_a, *contract_a))
    b = lax.transpose(b, (*batch_b, *free_b, *contract_b))
    batch, count_a, count_b = len(batch_a), len(free_a), len(free_b)
    shape_a, shape_b = a.shape, b.shape
    a = lax.reshape(a, (*shape_a[: batch + count_a], *([1] * count_b), *shape_a[batch + count_a :]))
    b = lax.reshape(b, (*shape_b[:batch], *([1] * count_a), *shape_b[batch:]))
    whole = tuple(n if m == 1 else m for m, n in zip(a.shape, b.shape, strict=True))
    every = tuple(range(len(whole)))
    product = lax.mul(lax.broadcast_in_dim(a, whole, every), lax.broadcast_in_dim(b, whole, every))
    return lax.reduce_sum(product, tuple(range(batch + count_a + count_b, len(whole))))


def _stack(*arrays, axis):
    shape = list(arrays[0].shape)
    shape.insert(axis, 1)
    return lax.concatenate([lax.reshape(each, shape) for each in arrays], axis)


def _unstack(array, *, axis):
    return [lax.index_in_dim(array, i, axis, keepdims=False) for i in range(array.shape[axis])]


def _split(array, *, sizes, axis):
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [lax.slice_in_dim(array, end - size, end, axis=axis) for size, end in zip(sizes, ends, strict=True)]


def _tanh(x, **_):
    # 1 - 2 / (exp(2x) + 1)
    one, two = _constant(x, 1), _constant(x, 2)
    return lax.sub(one, lax.div(two, lax.add(lax.exp(lax.mul(two, x)), one)))


def _logistic(x, **_):
    one = _constant(x, 1)
    return lax.div(one, lax.add(one, lax.exp(lax.neg(x))))


def _pow(x, y):
    if y.dtype.kind in "iu":
        y = lax.convert_element_type(y, x.dtype)
    return lax.exp(lax.mul(y, lax.log(x)))


def _atan2(y, x):
    # 2 atan(y / (sqrt(x^2 + y^2) + x)): everywhere but on the negative half of the axis of x.
    r = lax.sqrt(lax.add(lax.mul(x, x), lax.mul(y, y)))
    return lax.mul(_constant(x, 2), lax.atan(lax.div(y, lax.add(r, x))))


def _asin(x, **_):
    return lax.atan(lax.div(x, lax.sqrt(lax.sub(_constant(x, 1), lax.mul(x, x)))))


def _acos(x, **_):
    one = _constant(x, 1)
    return lax.mul(_constant(x, 2), lax.atan(lax.sqrt(lax.div(lax.sub(one, x), lax.add(one, x)))))


_REWRITTEN = {
    "integer_pow": _integer_pow,
    "square": lambda x: lax.mul(x, x),
    "dot_general": _dot_general,
    "tan": lambda x, **_: lax.div(lax.sin(x), lax.cos(x)),
    "tanh": _tanh,
    "logistic": _logistic,
    "rsqrt": lambda x, **_: lax.div(_constant(x, 1), lax.sqrt(x)),
    "pow": _pow,
    "atan2": _atan2,
    "asin": _asin,
    "sinh": lambda x, **_: lax.mul(_constant(x, 0.5), lax.sub(lax.exp(x), lax.exp(lax.neg(x)))),
    "cosh": lambda x, **_: lax.mul(_constant(x, 0.5), lax.add(lax.exp(x), lax.exp(lax.neg(x)))),
    "log1p": lambda x, **_: lax.log(lax.add(_constant(x, 1), x)),
    "expm1": lambda x, **_: lax.sub(lax.exp(x), _constant(x, 1)),
    "acos": _acos,
    "exp2": lambda x, **_: lax.exp(lax.mul(lax.log(_constant(x, 2)), x)),
    "clamp": lambda low, x, high: lax.min(lax.max(x, low), high),
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "add_any": lax.add,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
}
