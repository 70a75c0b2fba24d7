"""A jaxpr evaluated over Taylor models: the enclosure of a function that was written for numbers."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend import core as jex
from jaxtyping import Array, Bool

from . import functions
from .taylor_model import add, ball, embed, multiply, negative, subtract, TaylorModel, total


class Decision(eqx.Module):
    """A comparison: `value` for the centers, and whether it is the same for all values of the Taylor models."""

    value: Bool[Array, "*shape"]
    certain: Bool[Array, "*shape"]


# Entries selected, repeated or moved: linear in all floating-point operands together, without rounding.
STRUCTURAL = {
    "broadcast_in_dim", "concatenate", "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "pad", "reshape",
    "rev", "scatter", "slice", "squeeze", "transpose",
}  # fmt: skip
COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
LOGIC = {"and", "or", "not"}
FUNCTIONS = {"exp": functions.exp, "log": functions.log, "sqrt": functions.sqrt, "atan": functions.atan}


def refuse(name: str) -> NoReturn:
    """`ValueError` that names a primitive without an enclosure."""
    raise ValueError(
        f"certify: JAX's primitive {name!r} has no enclosure. Write the vector field, guard or reset with + - * /, sqrt, exp, "
        "log, sin, cos, tan, atan, tanh, powers, comparisons and products of arrays; loops and calls to linear solvers have "
        "none."
    )


def enclosed(value: Any) -> bool:
    return isinstance(value, TaylorModel)


def lifted(value: Any) -> Any:
    """Floating-point numbers as balls of radius zero; all else as it is."""
    if isinstance(value, TaylorModel | Decision) or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
        return value
    return ball(jnp.asarray(value, float))


def evaluate(closed: jex.ClosedJaxpr, arguments: Sequence[Any]) -> tuple[list[Any], dict]:
    """The values of a core jaxpr's results, and of all its variables.

    **Arguments:** `closed`: from `core_jaxpr`. `arguments`: a Taylor model or an array for each input; floating-point arrays are
    exact numbers. **Returns:** Taylor models, decisions or arrays of integers. `ValueError` for a primitive without an enclosure.
    """
    jaxpr = closed.jaxpr
    known = {var: lifted(value) for var, value in zip(jaxpr.constvars, closed.consts, strict=True)}
    known.update({var: lifted(value) for var, value in zip(jaxpr.invars, arguments, strict=True)})
    for equation in jaxpr.eqns:
        outputs = apply(equation, [read(known, atom) for atom in equation.invars])
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(known, atom) for atom in jaxpr.outvars], known


def read(known: dict, atom: Any) -> Any:
    return lifted(atom.val) if isinstance(atom, jex.Literal) else known[atom]


def apply(equation: Any, inputs: list[Any]) -> list[Any]:
    """The results of one equation of a core jaxpr."""
    name, params = equation.primitive.name, equation.params
    if not any(isinstance(each, TaylorModel | Decision) for each in inputs):
        outputs = equation.primitive.bind(*inputs, **params)
        outputs = outputs if equation.primitive.multiple_results else [outputs]
        return [lifted(each) for each in outputs]
    if name in STRUCTURAL:
        return [structural(equation, inputs)]
    if name in COMPARISONS:
        return [_compared(name, *inputs)]
    if name in LOGIC:
        return [_logic(name, *inputs)]
    if name in FUNCTIONS:
        return [FUNCTIONS[name](*inputs)]
    if name in ("sin", "cos"):
        return [functions.sin_cos(*inputs)[name == "cos"]]
    if name == "select_n":
        return [_selected(*inputs)]
    if name == "convert_element_type":
        return [_converted(inputs[0], params["new_dtype"])]
    if name == "reduce_sum":
        return [total(inputs[0], params["axes"])]
    if name in _ARITHMETIC:
        return [_ARITHMETIC[name](*inputs)]
    refuse(name)


def structural(equation: Any, inputs: list[Any]) -> Any:
    """Apply a primitive that only places entries to the coefficients and to the radius."""

    def bind(operands):
        return equation.primitive.bind(*operands, **equation.params)

    models = [each for each in inputs if enclosed(each)]
    if not models:
        value = bind([each.value if isinstance(each, Decision) else each for each in inputs])
        certain = bind([each.certain if isinstance(each, Decision) else each for each in inputs])
        return Decision(value, certain)
    basis = max((each.basis for each in models), key=lambda basis: basis.size)
    inputs = [embed(each, basis) if enclosed(each) else each for each in inputs]
    parts = [bind([each.coefficients[i] if enclosed(each) else each for each in inputs]) for i in range(basis.size)]
    return TaylorModel(jnp.stack(parts), bind([each.radius if enclosed(each) else each for each in inputs]), basis)


def _compared(name: str, a, b) -> Decision:
    apart = subtract(lifted(a), lifted(b))
    center = apart.center
    away = jnp.abs(center) > apart.spread + 1e-300
    same = (center == 0) & (apart.spread == 0)
    value = {
        "lt": center < 0, "le": center <= 0, "gt": center > 0, "ge": center >= 0, "eq": center == 0, "ne": center != 0
    }[name]  # fmt: skip
    return Decision(value, away | same)


def _decision(value: Any) -> Decision:
    return value if isinstance(value, Decision) else Decision(value, jnp.ones_like(value, bool))


def _logic(name: str, *inputs) -> Decision:
    inputs = [_decision(each) for each in inputs]
    if name == "not":
        return Decision(~inputs[0].value, inputs[0].certain)
    a, b = inputs
    value = a.value & b.value if name == "and" else a.value | b.value
    # One certain operand may decide.
    decides = name == "or"
    alone = (a.certain & (a.value == decides)) | (b.certain & (b.value == decides))
    return Decision(value, alone | (a.certain & b.certain))


def _selected(which: Any, *cases: Any) -> Any:
    which = _decision(which)
    if len(cases) != 2 or which.value.dtype != bool:
        refuse("select_n of more than two cases")
    if not any(enclosed(lifted(each)) for each in cases):
        a, b = (_decision(each) for each in cases)
        value, certain = jnp.where(which.value, b.value, a.value), jnp.where(which.value, b.certain, a.certain)
        return Decision(value, certain & which.certain)
    a, b = (lifted(each) for each in cases)
    if which.value.ndim == 0 and a.shape:
        which = Decision(jnp.broadcast_to(which.value, a.shape), jnp.broadcast_to(which.certain, a.shape))
    chosen = functions.where(which.value, b, a)
    return functions.where(which.certain, chosen, functions.hull(a, b))


def _converted(a, dtype):
    if isinstance(a, Decision):
        # As a number: 0 or 1, or between where the comparison is not certain.
        value = jnp.where(a.certain, a.value.astype(float), 0.5)
        return ball(value, jnp.where(a.certain, 0.0, 0.5)) if jnp.issubdtype(dtype, jnp.floating) else refuse("convert")
    if not jnp.issubdtype(dtype, jnp.floating):
        refuse("convert_element_type to integers")
    return a


def _larger(a, b):
    a, b = lifted(a), lifted(b)
    order = _compared("ge", a, b)
    return functions.where(order.certain, functions.where(order.value, a, b), functions.hull(a, b))


def _smaller(a, b):
    return negative(_larger(negative(lifted(a)), negative(lifted(b))))


def _sign(a):
    order = _compared("ge", a, ball(jnp.zeros(a.shape)))
    value = jnp.where(order.value, 1.0, -1.0)
    return ball(jnp.where(order.certain, value, 0.0), jnp.where(order.certain & (a.center != 0), 0.0, 1.0))


_ARITHMETIC: dict[str, Callable] = {
    "add": add,
    "add_any": add,
    "sub": subtract,
    "mul": multiply,
    "neg": negative,
    "div": functions.divide,
    "abs": functions.absolute,
    "max": _larger,
    "min": _smaller,
    "sign": _sign,
}


def enclosure(function: Callable, *arguments):
    """`function` of Taylor models, as `evaluate` gives it: for guards, resets and charts.

    **Arguments:** `arguments`: PyTrees of Taylor models and arrays. **Returns:** the function's single array as a Taylor model.
    """
    from .core import core_jaxpr

    leaves, structure = jax.tree.flatten(arguments, is_leaf=enclosed)
    shown = [jnp.zeros(each.shape) if enclosed(each) else each for each in leaves]
    closed = core_jaxpr(lambda *flat: function(*jax.tree.unflatten(structure, flat)), *shown)
    results, _ = evaluate(closed, leaves)
    return results[0]
