"""A function of JAX in few primitives: calls are inlined, and composite primitives rewritten, before they are enclosed.

What is read is the program of the value. A rule that a user gives for a derivative (`custom_jvp`, `custom_vjp`, `stop_gradient`,
`custom_jvp` within a library) is no part of it: derivatives are those that `derivative` finds for the program.
"""

import functools as ft
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jex
from jax.extend.source_info_util import user_context

from .._numerics import fast as trig

# Primitives that stand for a jaxpr of their own, with the name of the parameter that holds it.
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_vmap_call": "call",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
# Where JAX is.
_LIBRARY = os.path.dirname(jax.__file__) + os.sep


def _exactly(*functions: Callable) -> Callable:
    return lambda *arguments: [function(*arguments) for function in functions]


# Programs that evaluate a smooth function by cases, with the function: sine and cosine by polynomials that are accurate to
# rounding, and ln(e^a + e^b) by the larger one of its arguments.
_BY_CASES = (
    (trig._by_polynomials, 1, _exactly(lax.sin, lax.cos)),
    (trig._sin_by_polynomial, 1, _exactly(lax.sin)),
    (trig._cos_by_polynomial, 1, _exactly(lax.cos)),
    (jnp.logaddexp, 2, _exactly(lambda a, b: lax.add(a, lax.log(lax.add(_constant(a, 1), lax.exp(lax.sub(b, a))))))),
)


def core_jaxpr(function: Callable, *examples) -> jex.ClosedJaxpr:
    """The jaxpr of `function` for arguments such as `examples`, flat, in the primitives that `graph` knows.

    Calls are inlined; products of matrices become sums of products, powers products, and functions such as `tanh` quotients of
    exponential functions. A primitive that is not known is left, for `graph` to refuse. Equations keep the place in the user's
    program where they were written.
    """
    closed = jax.make_jaxpr(function)(*examples)

    def rewritten(*flat):
        return _run(closed.jaxpr, closed.consts, flat, None)

    return _alive(jax.make_jaxpr(rewritten)(*jax.tree.leaves(examples)))


def place_of(equation: Any) -> str:
    """Where an equation was written: function, line and file."""
    frames = _frames(equation.source_info.traceback)
    if not frames:
        return "a function without source"
    name = frames[0].function_name.rpartition("<locals>.")[2]
    return f"{name}, line {frames[0].line_num} of {os.path.basename(frames[0].file_name)}"


def _frames(traceback: Any) -> list:
    """The frames of a traceback outside of JAX, the innermost first."""
    return [] if traceback is None else [each for each in traceback.frames if not each.file_name.startswith(_LIBRARY)]


def _alive(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Without the equations that no result depends on."""
    needed = {atom for atom in closed.jaxpr.outvars if not isinstance(atom, jex.Literal)}
    kept = []
    for equation in reversed(closed.jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            kept.append(equation)
            needed.update(atom for atom in equation.invars if not isinstance(atom, jex.Literal))
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=kept[::-1]))


def _run(jaxpr, consts, arguments, outer: Any) -> list:
    """The results of a jaxpr. **Arguments:** `outer`: the traceback of the call."""
    known = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom):
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    # A function of JAX is traced once for all its calls, and its equations may tell of another: the place is that of this one.
    library = f" at {_LIBRARY}" in (jaxpr.debug_info.func_src_info or "")
    for equation in jaxpr.eqns:
        traceback = equation.source_info.traceback
        traceback = outer if outer is not None and (library or not _frames(traceback)) else traceback
        with user_context(traceback):
            outputs = _applied(equation, [read(atom) for atom in equation.invars], traceback)
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _applied(equation: Any, inputs: list, traceback: Any) -> Sequence:
    name = equation.primitive.name
    if name in CALLS:
        inner = _inner(equation)
        smooth = _smooth().get(inner.debug_info.func_src_info)
        if smooth is not None:
            return smooth(*jnp.broadcast_arrays(*inputs))
        return _run(inner, getattr(equation.params[CALLS[name]], "consts", ()), inputs, traceback)
    if name == "cond":
        return _cond(*inputs, branches=equation.params["branches"], traceback=traceback)
    if name in REWRITTEN:
        outputs = REWRITTEN[name](*inputs, **equation.params)
    else:
        outputs = equation.primitive.bind(*inputs, **equation.params)
    return outputs if equation.primitive.multiple_results else [outputs]


@ft.cache
def _smooth() -> dict[str, Callable]:
    """The functions of `_BY_CASES` by where the programs are written that hold their cases."""
    found = {}
    for function, count, smooth in _BY_CASES:
        pending = [jax.make_jaxpr(function)(*[jnp.zeros(())] * count).jaxpr]
        while pending:
            for equation in pending.pop().eqns:
                inner = _inner(equation)
                if inner is not None and {"select_n", "floor"} & {each.primitive.name for each in inner.eqns}:
                    # Without its source a program would be taken for any other.
                    assert " at " in (inner.debug_info.func_src_info or "")
                    found[inner.debug_info.func_src_info] = smooth
                elif inner is not None:
                    pending.append(inner)
    return found


def _inner(equation: Any) -> Any:
    """The jaxpr that an equation calls, or None."""
    inner = equation.params.get(CALLS.get(equation.primitive.name))
    return inner.jaxpr if isinstance(inner, jex.ClosedJaxpr) else inner


def _cond(which, *operands, branches, traceback) -> list:
    """The results of a `cond`: each entry is chosen among those of the branches."""
    each = [_run(branch.jaxpr, branch.consts, operands, traceback) for branch in branches]
    found = []
    for results in zip(*each, strict=True):
        chosen = results[0]
        for k, result in enumerate(results[1:], 1):
            beyond = lax.broadcast(lax.ge(which, lax.full_like(which, k)), jnp.shape(result))
            chosen = lax.select_n(beyond, chosen, result)
        found.append(chosen)
    return found


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
    # 2 atan(y / (sqrt(x^2 + y^2) + x)): everywhere but on the negative half of the axis of x, where y may be no more than the
    # number zero, over which the quotient says nothing.
    reach = lax.add(lax.sqrt(lax.add(lax.mul(x, x), lax.mul(y, y))), x)
    angle = lax.mul(_constant(x, 2), lax.atan(lax.div(y, reach)))
    at_zero = lax.select(lax.lt(x, _constant(x, 0)), _constant(x, math.pi), _constant(x, 0))
    return lax.select(lax.gt(reach, _constant(reach, 0)), angle, at_zero)


def _asin(x, **_):
    return lax.atan(lax.div(x, lax.sqrt(lax.sub(_constant(x, 1), lax.mul(x, x)))))


def _acos(x, **_):
    one = _constant(x, 1)
    return lax.mul(_constant(x, 2), lax.atan(lax.sqrt(lax.div(lax.sub(one, x), lax.add(one, x)))))


def _atanh(x, **_):
    one = _constant(x, 1)
    return lax.mul(_constant(x, 0.5), lax.log(lax.div(lax.add(one, x), lax.sub(one, x))))


def _asinh(x, **_):
    return lax.log(lax.add(x, lax.sqrt(lax.add(lax.mul(x, x), _constant(x, 1)))))


def _acosh(x, **_):
    return lax.log(lax.add(x, lax.sqrt(lax.sub(lax.mul(x, x), _constant(x, 1)))))


def _cbrt(x, **_):
    # Of a number that is not zero.
    return lax.mul(lax.sign(x), lax.exp(lax.div(lax.log(lax.abs(x)), _constant(x, 3))))


def _clamp(low, x, high):
    return lax.min(lax.max(x, jnp.broadcast_to(low, x.shape)), jnp.broadcast_to(high, x.shape))


def _round(x, *, rounding_method):
    # A tie is taken up; then it goes to the even one of both integers, or away from zero.
    shifted = lax.add(x, _constant(x, 0.5))
    above = lax.floor(shifted)
    if rounding_method == lax.RoundingMethod.TO_NEAREST_EVEN:
        tie = lax.mul(_constant(x, 2), lax.floor(lax.add(lax.mul(above, _constant(x, 0.5)), _constant(x, 0.25))))
    else:
        below_zero = lax.lt(above, _constant(x, 0.5))
        tie = lax.sub(above, lax.select(below_zero, _constant(x, 1), _constant(x, 0)))
    return lax.select(lax.eq(above, shifted), tie, above)


def _toward_zero(x):
    return lax.mul(lax.sign(x), lax.floor(lax.abs(x)))


def _rem(x, y):
    if x.dtype.kind != "f":
        return lax.rem(x, y)
    return lax.sub(x, lax.mul(y, _toward_zero(lax.div(x, y))))


def _sort(x, *others, dimension, **params):
    """By exchanges of neighbours, which are their minimum and maximum."""
    if others or x.dtype.kind != "f":
        return lax.sort_p.bind(x, *others, dimension=dimension, **params)
    rows = [lax.index_in_dim(x, i, dimension) for i in range(x.shape[dimension])]
    for last in range(len(rows) - 1, 0, -1):
        for i in range(last):
            rows[i], rows[i + 1] = lax.min(rows[i], rows[i + 1]), lax.max(rows[i], rows[i + 1])
    return [lax.concatenate(rows, dimension)]


REWRITTEN = {
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
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "cbrt": _cbrt,
    "ceil": lambda x: lax.neg(lax.floor(lax.neg(x))),
    "round": _round,
    "clamp": _clamp,
    "rem": _rem,
    "sort": _sort,
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "add_any": lax.add,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
}

# What each primitive is as a function of real numbers, where it is defined; a primitive that is not named here is refused. Of the
# calls, what they call decides.
SMOOTH, CONTINUOUS, NEITHER = "smooth", "continuous", "neither"
SMOOTHNESS = {
    **dict.fromkeys(
        (*CALLS, "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "dynamic_slice", "dynamic_update_slice",
         "gather", "pad", "scatter", "broadcast_in_dim", "concatenate", "stack", "unstack", "split", "copy", "copy_p", "iota",
         "stop_gradient", "add", "add_any", "sub", "mul", "div", "neg", "integer_pow", "pow", "square", "dot_general",
         "reduce_sum", "sqrt", "rsqrt", "cbrt", "exp", "exp2", "expm1", "log", "log1p", "logistic", "sin", "cos", "tan", "asin",
         "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), SMOOTH
    ),
    **dict.fromkeys(("abs", "max", "min", "clamp", "reduce_max", "reduce_min", "sort"), CONTINUOUS),
    **dict.fromkeys(
        ("sign", "floor", "ceil", "round", "rem", "select_n", "cond", "convert_element_type", "lt", "le", "gt", "ge", "eq", "ne",
         "and", "or", "not", "reduce_and", "reduce_or"), NEITHER
    ),
}  # fmt: skip
