"""A computational graph evaluated with some fifty digits, at a point or on a very small set, outside of any compiled program."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .fixed_point_numbers import (
    atan,
    between,
    dot,
    exactly,
    exp,
    log,
    NotEnclosed,
    Number,
    rounded,
    sin_cos,
    sqrt,
    UNIT,
    UNKNOWN,
)
from .linear_forms import COMPARED, Condition
from .schedule import Kind, Levels, Rows
from .symbolic import Graph


def numbers(leaves: Sequence[Any]) -> list[Number]:
    """The entries of arrays of floats, exactly; a `Number` is itself."""
    given = []
    for leaf in leaves:
        given += [leaf] if isinstance(leaf, Number) else [exactly(float(each)) for each in np.ravel(np.asarray(leaf))]
    return given


# Rows as coefficients with places in memory, those that are not zero.
Lines = list[tuple[list[Number], list[int]]]


def lines_of(rows: Rows, constants: list[Number]) -> Lines:
    """Rows with their numbers."""
    found = []
    for coefficients, index in zip(rows.coefficient.tolist(), rows.index.tolist(), strict=True):
        terms = [(constants[c], i) for c, i in zip(coefficients, index, strict=True) if constants[c].largest]
        found.append(([c for c, _ in terms], [i for _, i in terms]))
    return found


def combine(lines: Lines, memory: list[Number]) -> list[Number]:
    """The linear combinations of what is in memory."""
    return [
        memory[index[0]] if len(index) == 1 and _is_one(factors[0]) else dot(factors, [memory[i] for i in index])
        for factors, index in lines
    ]


def _is_one(a: Number) -> bool:
    return a.middle == UNIT.middle and a.radius == 0


class FineLevels:
    """Levels with the numbers of their rows: of each level, and of the results."""

    def __init__(self, levels: Levels, constants: list[Number]):
        self.levels = [(lines_of(level.rows, constants), level.kinds) for level in levels.levels]
        self.exact = not levels.varies
        self.results = lines_of(levels.results, constants)

    def __call__(self, x: list[Number]) -> list[Number]:
        """The results. `NotEnclosed` where a function is not defined."""
        memory = [UNIT, *x]
        for lines, kinds in self.levels:
            operands = combine(lines, memory)
            for kind in kinds:
                memory += values(kind, operands, self.exact)
        return combine(self.results, memory)


def values(kind: Kind, operands: list[Number], exact: bool = False) -> list[Number]:
    """The values of the atoms of one kind.

    **Arguments:** `exact`: of numbers, where one that is zero is known to be zero; a state that is zero is one of a set.
    """
    a = operands[kind.first : kind.first + kind.count]
    if kind.name == "sin_cos":
        pairs = [sin_cos(each) for each in a]
        return [sine for sine, _ in pairs] + [cosine for _, cosine in pairs]
    if kind.name in _OF_ONE:
        return [_defined(_OF_ONE[kind.name], each) for each in a]
    b = operands[kind.first + kind.count : kind.first + 2 * kind.count]
    if kind.name in ("select", "chosen"):
        held = [truth_of(each, operands, exact) for each in kind.conditions]
        undecided = _hull if kind.name == "select" else lambda x, y: UNKNOWN
        return [undecided(x, y) if h is None else y if h else x for h, x, y in zip(held, a, b, strict=True)]
    return [_defined(_OF_TWO[kind.name], x, y) for x, y in zip(a, b, strict=True)]


def _defined(function: Callable, *arguments: Number) -> Number:
    """The value of a function, or nothing known where it is not defined."""
    try:
        return function(*arguments)
    except NotEnclosed:
        return UNKNOWN


def _hull(a: Number, b: Number) -> Number:
    return between(min(a.low, b.low), max(a.high, b.high))


def truth_of(condition: Condition | bool, rows: list[Number], exact: bool = False) -> bool | None:
    """Whether a condition on rows holds; None where it is not certain."""
    if isinstance(condition, bool):
        return condition
    if condition.name in COMPARED:
        a = rows[condition.operands[0]]
        if a.low > 0 or a.high < 0 or (exact and a.middle == a.radius == 0):
            return COMPARED[condition.name](a.middle)
        return None
    each = [truth_of(part, rows, exact) for part in condition.operands]
    if condition.name == "not":
        return None if each[0] is None else not each[0]
    decides = condition.name == "or"
    return decides if decides in each else None if None in each else not decides


def _max(a: Number, b: Number) -> Number:
    return between(max(a.low, b.low), max(a.high, b.high))


def _sign(a: Number) -> Number:
    one = lambda x: (x > 0) - (x < 0)
    return between(one(a.low) * UNIT.middle, one(a.high) * UNIT.middle)


def _floor(a: Number) -> Number:
    return between(*(each // UNIT.middle * UNIT.middle for each in (a.low, a.high)))


_OF_ONE = {"exp": exp, "log": log, "sqrt": sqrt, "abs": lambda a: _max(a, -a), "sign": _sign, "floor": _floor}
_OF_TWO = {"mul": lambda a, b: a * b, "div": lambda a, b: a / b, "max": _max, "atan": lambda a, _: atan(a)}


def constants_of(graph: Graph, leaves: Sequence[Any]) -> list[Number]:
    """The fixed combinations of a graph, for parameters that are exact floats."""
    return FineLevels(graph.fixed, [exactly(each) for each in graph.fixed.coefficients])(numbers(leaves))


def balls_of(graph: Graph, leaves: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The fixed combinations as floats with their radii; radii infinite where they are not defined."""
    pairs = [rounded(each) for each in constants_of(graph, leaves)]
    return np.array([center for center, _ in pairs]), np.array([radius for _, radius in pairs])
