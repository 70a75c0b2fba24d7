"""A computational graph evaluated over Taylor models: the enclosure of a function that was written for numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from . import functions
from .exact_numbers import balls_of
from .linear_forms import COMPARED
from .rounding import EPS, TINY, up
from .schedule import Kind, Levels, operand, Rows, truth
from .symbolic import Graph, graph_of
from .taylor_model import constant, multiply, subtract, TaylorModel

# The numbers by which rows multiply, as balls: centers and radii, of shape `(constants,)`.
Constants = tuple[np.ndarray, np.ndarray]
# Whether something certainly holds, and whether it certainly fails, for all values of Taylor models.
Decision = tuple[Bool[Array, "*shape"], Bool[Array, "*shape"]]
# The operands of a level's atoms, by its rows, and the values of each kind.
LevelValues = tuple[TaylorModel, list[TaylorModel]]


def combine(rows: Rows, memory: TaylorModel, constants: Constants) -> TaylorModel:
    r"""The linear combinations $\sum_t c_{kt} m_{i_{kt}}$, shape `(rows,)`."""
    index, coefficient, one_sum, many = rows
    c, r = (each[coefficient] for each in constants)
    terms = memory.coefficients[:, index] * c
    result = jnp.sum(terms, axis=2)
    # A number in memory may be flushed to zero.
    flushed = TINY * (1 + np.sum(np.abs(c), axis=1))
    if index.shape[1] == 1 and not one_sum.any() and not r.any():
        # Moved, or multiplied by powers of two that are floats, exactly; the sum with what may be flushed is rounded.
        return TaylorModel(result, up(memory.radius[index[:, 0]] * abs(c[:, 0]) + flushed), memory.basis)
    radius = jnp.sum(jnp.abs(c) * memory.radius[index], axis=1)
    if r.any():
        size = jnp.sum(jnp.abs(memory.coefficients), axis=0) + memory.radius
        radius = radius + jnp.sum(r * size[index], axis=1)
    radius = radius + EPS * one_sum * jnp.sum(jnp.abs(result), axis=0)
    if many.any():
        radius = radius + EPS * many * jnp.sum(jnp.abs(terms), axis=(0, 2))
    return TaylorModel(result, up(radius + flushed, memory.basis.size + index.shape[1]), memory.basis)


def joined(parts: Sequence[TaylorModel]) -> TaylorModel:
    """The entries of Taylor models of one basis, one after the other."""
    coefficients = jnp.concatenate([each.coefficients for each in parts], axis=1)
    return TaylorModel(coefficients, jnp.concatenate([each.radius for each in parts]), parts[0].basis)


def run(levels: Levels, inputs: TaylorModel, constants: Constants) -> tuple[TaylorModel, list[LevelValues]]:
    """The memory after all levels, and the operands and values of each level. **Arguments:** `inputs`: shape `(inputs,)`."""
    memory, done = joined([constant(jnp.ones(1), inputs.basis), inputs]), []
    for rows, kinds in levels.levels:
        operands = combine(rows, memory, constants)
        values = [_values(kind, operands) for kind in kinds]
        memory = joined([memory, *values])
        done.append((operands, values))
    return memory, done


def _values(kind: Kind, operands: TaylorModel) -> TaylorModel:
    a = operand(kind, operands)
    if kind.name == "sin_cos":
        return joined(functions.sin_cos(a))
    if kind.name in _FUNCTIONS:
        return _FUNCTIONS[kind.name](a)
    b = operand(kind, operands, 1)
    if kind.name in ("select", "chosen"):
        holds, fails = decisions(kind.conditions, operands)
        case = functions.where(holds, b, a)
        # A value is that of one case; a derivative, where it is undecided which, is none.
        if kind.name == "chosen":
            return known_where(holds | fails, case)
        return functions.where(holds | fails, case, functions.hull(a, b))
    return _OF_TWO[kind.name](a, b)


def evaluate(graph: Graph, x: TaylorModel, leaves: Sequence[Any]) -> Any:
    """The values of a function on a set.

    **Arguments:** `x`: the states, of any shape. `leaves`: the parameters, exact numbers. **Returns:** a Taylor model, or for a
    function with truth values a `Decision`.
    """
    constants = balls_of(graph, leaves)
    memory, _ = run(graph.varying, x.map(jnp.ravel), constants)
    rows = combine(graph.varying.results, memory, constants)
    if not graph.truth:
        return rows.map(lambda entries: entries.reshape(graph.shape))
    holds, fails = decisions(graph.varying.conditions, rows)
    return holds.reshape(graph.shape), fails.reshape(graph.shape)


# Kinds that are not continuous, and those that are, but not smooth, where it is undecided which case they are.
JUMPS, KINKS = ("select", "chosen", "sign", "floor"), ("abs", "max")


def cases_decided(
    graph: Graph, kinds: tuple[str, ...], x: TaylorModel, leaves: Sequence[Any]
) -> dict[str, Bool[Array, ""]]:
    """Whether a function is one of its cases throughout a set, for the atoms of some kinds, by the places where they are written.

    Nothing is computed for a function without such atoms, and nothing is said of a set of which nothing is known.
    **Arguments:** as for `evaluate`.
    """
    found = {place: jnp.asarray(True) for place in graph.places(*kinds)}
    if found:
        unknown = ~jnp.all(jnp.isfinite(x.largest))
        _, done = run(graph.varying, x.map(jnp.ravel), balls_of(graph, leaves))
        for (_, atoms), (operands, _) in zip(graph.varying.levels, done, strict=True):
            for kind in atoms:
                if kind.name in kinds:
                    for place, holds in zip(kind.places, certain(kind, operands), strict=True):
                        found[place] = found[place] & (holds | unknown)
    return found


def decisions(conditions: Sequence[Any], rows: TaylorModel) -> Decision:
    """Conditions on rows, shape `(conditions,)`."""

    def compare(name: str, row: int) -> Decision:
        apart = rows[row]
        value, certain = COMPARED[name](apart.center), jnp.abs(apart.center) > apart.spread + 1e-300
        return value & certain, ~value & certain

    holds, fails = zip(*(truth(condition, compare) for condition in conditions), strict=True)
    return jnp.stack([jnp.asarray(each) for each in holds]), jnp.stack([jnp.asarray(each) for each in fails])


def known_where(certain: Bool[Array, "*shape"], a: TaylorModel) -> TaylorModel:
    """The entries of which something is known, and of the others nothing."""
    return TaylorModel(a.coefficients, jnp.where(certain, a.radius, jnp.inf), a.basis)


def certain(kind: Kind, operands: TaylorModel) -> Bool[Array, " atoms"]:
    """Whether it is decided which case each atom of a kind is, throughout the set."""
    a = operand(kind, operands)
    if kind.name in ("select", "chosen"):
        holds, fails = decisions(kind.conditions, operands)
        return holds | fails
    if kind.name == "floor":
        return (jnp.floor(a.low) == jnp.floor(a.high)) & (a.low > jnp.floor(a.low))
    apart = subtract(a, operand(kind, operands, 1)) if kind.name == "max" else a
    return jnp.abs(apart.center) > apart.spread


def _larger(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    apart = subtract(a, b)
    certain = jnp.abs(apart.center) > apart.spread
    return functions.where(certain, functions.where(apart.center > 0, a, b), functions.hull(a, b))


def _sign(a: TaylorModel) -> TaylorModel:
    certain = jnp.abs(a.center) > a.spread
    value = jnp.where(certain, jnp.sign(a.center), 0.0)
    return constant(value, a.basis, jnp.where(certain, 0.0, 1.0))


def _floor(a: TaylorModel) -> TaylorModel:
    low, high = jnp.floor(a.low), jnp.floor(a.high)
    half = 0.5 * (high - low)
    # A sum of integers, or of an integer and a half, is exact below 2^51.
    return known_where((jnp.abs(low) < 2.0**50) & (jnp.abs(high) < 2.0**50), constant(low + half, a.basis, half))


_FUNCTIONS: dict[str, Callable] = {
    "exp": functions.exp, "log": functions.log, "sqrt": functions.sqrt, "abs": functions.absolute, "sign": _sign,
    "floor": _floor,
}  # fmt: skip
_OF_TWO: dict[str, Callable] = {
    "mul": multiply, "div": functions.divide, "max": _larger, "atan": lambda a, _: functions.atan(a),
}  # fmt: skip


def enclosure(function: Callable, *arguments: Any):
    """`function` of Taylor models, as `evaluate` gives it: for guards, resets and charts.

    **Arguments:** `arguments`: PyTrees of Taylor models and arrays. **Returns:** the function's single array as a Taylor model.
    """
    enclosed = lambda each: isinstance(each, TaylorModel)
    leaves, structure = jax.tree.flatten(arguments, is_leaf=enclosed)
    models = [i for i, each in enumerate(leaves) if enclosed(each)]
    others = [i for i in range(len(leaves)) if i not in models]

    def of_flat(*flat):
        ordered = dict(zip([*models, *others], flat, strict=True))
        return function(*jax.tree.unflatten(structure, [ordered[i] for i in range(len(leaves))]))

    shown = [jnp.zeros(leaves[i].shape) for i in models] + [leaves[i] for i in others]
    graph = graph_of(of_flat, *shown, varying=len(models))
    states = joined([leaves[i].map(jnp.ravel) for i in models])
    return evaluate(graph, states, [leaves[i] for i in others])
