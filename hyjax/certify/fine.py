"""A computational graph evaluated with some fifty digits, at a point or on a very small set, outside of any compiled program."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .fixed_point import atan, dot, exactly, exp, log, NotEnclosed, Number, rounded, sin_cos, sqrt, UNIT
from .forms import COMPARED, Condition
from .graph import Graph
from .levels import Kind, Levels, Rows


def numbers(leaves: Sequence[Any]) -> list[Number]:
    """The entries of arrays of floats, exactly; a `Number` is itself."""
    given = []
    for leaf in leaves:
        given += [leaf] if isinstance(leaf, Number) else [exactly(float(each)) for each in np.ravel(np.asarray(leaf))]
    return given


def combine(rows: Rows, memory: list[Number], constants: list[Number]) -> list[Number]:
    """The linear combinations of what is in memory."""
    return [
        dot([constants[c] for c in coefficients], [memory[i] for i in index])
        for coefficients, index in zip(rows.coefficient.tolist(), rows.index.tolist(), strict=True)
    ]


def run(levels: Levels, inputs: list[Number], constants: list[Number]) -> tuple[list[Number], list[list[Number]]]:
    """What is in memory after all levels, and the operands of each. `NotEnclosed` where a function is not defined."""
    memory, operands = [UNIT, *inputs], []
    for level in levels.levels:
        operands.append(combine(level.rows, memory, constants))
        for kind in level.kinds:
            memory += values(kind, operands[-1])
    return memory, operands


def values(kind: Kind, operands: list[Number]) -> list[Number]:
    """The values of the atoms of one kind."""
    a = operands[kind.first : kind.first + kind.count]
    if kind.name == "sin_cos":
        pairs = [sin_cos(each) for each in a]
        return [sine for sine, _ in pairs] + [cosine for _, cosine in pairs]
    if kind.name in _OF_ONE:
        return [_OF_ONE[kind.name](each) for each in a]
    b = operands[kind.first + kind.count : kind.first + 2 * kind.count]
    if kind.name == "select":
        return [b[i] if holds(kind.conditions[i], operands) else a[i] for i in range(kind.count)]
    return [_OF_TWO[kind.name](x, y) for x, y in zip(a, b, strict=True)]


def holds(condition: Condition | bool, rows: list[Number]) -> bool:
    """Whether a condition on rows holds. `NotEnclosed` where it is not certain."""
    if isinstance(condition, bool):
        return condition
    if condition.name in COMPARED:
        a = rows[condition.operands[0]]
        outcomes = {COMPARED[condition.name](x) for x in (a.low, a.middle, a.high)}
        if len(outcomes) > 1 or (a.radius and a.low <= 0 <= a.high):
            raise NotEnclosed("a comparison is not certain")
        return outcomes.pop()
    each = [holds(part, rows) for part in condition.operands]
    return not each[0] if condition.name == "not" else any(each) if condition.name == "or" else all(each)


def _sign(a: Number) -> int:
    if a.low <= 0 <= a.high:
        raise NotEnclosed("a sign is not certain")
    return 1 if a.middle > 0 else -1


_OF_ONE = {
    "exp": exp, "log": log, "sqrt": sqrt, "abs": lambda a: a if _sign(a) > 0 else -a,
    "sign": lambda a: UNIT if _sign(a) > 0 else -UNIT,
}  # fmt: skip
_OF_TWO = {
    "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "max": lambda a, b: a if _sign(a - b) > 0 else b,
    "atan": lambda a, _: atan(a),
}  # fmt: skip


def constants_of(graph: Graph, leaves: Sequence[Any]) -> list[Number]:
    """The fixed combinations of a graph, for parameters that are exact floats."""
    rational = [exactly(each) for each in graph.fixed.coefficients]
    memory, _ = run(graph.fixed, numbers(leaves), rational)
    return combine(graph.fixed.results, memory, rational)


def evaluate_finely(graph: Graph, x: list[Number], leaves: Sequence[Any]) -> list[Number]:
    """The values of a function, flat. `NotEnclosed` where it is not defined."""
    constants = constants_of(graph, leaves)
    memory, _ = run(graph.varying, x, constants)
    return combine(graph.varying.results, memory, constants)


def balls_of(graph: Graph, leaves: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The fixed combinations as floats with their radii; radii infinite where they are not defined."""
    try:
        pairs = [rounded(each) for each in constants_of(graph, leaves)]
    except NotEnclosed:
        return np.zeros(len(graph.varying.coefficients)), np.full(len(graph.varying.coefficients), np.inf)
    return np.array([center for center, _ in pairs]), np.array([radius for _, radius in pairs])
