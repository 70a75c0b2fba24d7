"""A computational graph evaluated with some fifty digits, at a point or on a very small set, outside of any compiled program."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .exact_numbers import arb, dot, exactly, rounded, UNKNOWN, with_fifty_digits
from .linear_forms import COMPARED, Condition
from .schedule import Kind, Levels, Rows
from .symbolic import Graph


def numbers(leaves: Sequence[Any]) -> list[arb]:
    """The entries of arrays of floats, exactly; an `arb` is itself."""
    given = []
    for leaf in leaves:
        given += [leaf] if isinstance(leaf, arb) else [arb(float(each)) for each in np.ravel(np.asarray(leaf))]
    return given


# Rows as coefficients that are not zero, with places in memory; without coefficients where the row is one number in memory.
Lines = list[tuple[list[arb], list[int]]]


def lines_of(rows: Rows, constants: list[arb]) -> Lines:
    """Rows with their numbers."""
    found = []
    for coefficients, index in zip(rows.coefficient.tolist(), rows.index.tolist(), strict=True):
        terms = [(constants[c], i) for c, i in zip(coefficients, index, strict=True) if not constants[c].is_zero()]
        copied = len(terms) == 1 and terms[0][0] == 1
        found.append(([] if copied else [c for c, _ in terms], [i for _, i in terms]))
    return found


def combine(lines: Lines, memory: list[arb]) -> list[arb]:
    """The linear combinations of what is in memory."""
    return [
        dot(factors, [memory[i] for i in index]) if factors or not index else memory[index[0]]
        for factors, index in lines
    ]


class FineLevels:
    """Levels with the numbers of their rows: of each level, and of the results."""

    def __init__(self, levels: Levels, constants: list[arb]):
        self.levels = [(lines_of(level.rows, constants), level.kinds) for level in levels.levels]
        self.exact = not levels.varies
        self.results = lines_of(levels.results, constants)

    @with_fifty_digits
    def __call__(self, x: list[arb]) -> list[arb]:
        """The results; not finite where a function is not defined."""
        memory = [arb(1), *x]
        for lines, kinds in self.levels:
            operands = combine(lines, memory)
            for kind in kinds:
                memory += values(kind, operands, self.exact)
        return combine(self.results, memory)


def values(kind: Kind, operands: list[arb], exact: bool = False) -> list[arb]:
    """The values of the atoms of one kind.

    **Arguments:** `exact`: of numbers, where one that is zero is known to be zero; a state that is zero is one of a set.
    """
    a = operands[kind.first : kind.first + kind.count]
    if kind.name == "sin_cos":
        pairs = [each.sin_cos() for each in a]
        return [sine for sine, _ in pairs] + [cosine for _, cosine in pairs]
    if kind.name in _OF_ONE:
        return [_OF_ONE[kind.name](each) for each in a]
    b = operands[kind.first + kind.count : kind.first + 2 * kind.count]
    if kind.name in ("select", "chosen"):
        held = [truth_of(each, operands, exact) for each in kind.conditions]
        undecided = arb.union if kind.name == "select" else lambda x, y: UNKNOWN
        return [undecided(x, y) if h is None else y if h else x for h, x, y in zip(held, a, b, strict=True)]
    return [_OF_TWO[kind.name](x, y) for x, y in zip(a, b, strict=True)]


def truth_of(condition: Condition | bool, rows: list[arb], exact: bool = False) -> bool | None:
    """Whether a condition on rows holds; None where it is not certain."""
    if isinstance(condition, bool):
        return condition
    if condition.name in COMPARED:
        a = rows[condition.operands[0]]
        sign = 1 if a > 0 else -1 if a < 0 else 0 if exact and a.is_zero() else None
        return None if sign is None else COMPARED[condition.name](sign)
    each = [truth_of(part, rows, exact) for part in condition.operands]
    if condition.name == "not":
        return None if each[0] is None else not each[0]
    decides = condition.name == "or"
    return decides if decides in each else None if None in each else not decides


def _max(a: arb, b: arb) -> arb:
    return a if a >= b else b if b >= a else a.max(b)


_OF_ONE: dict[str, Callable[[arb], arb]] = {
    "exp": arb.exp, "log": arb.log, "sqrt": arb.sqrt, "abs": lambda a: _max(a, -a), "sign": arb.sgn, "floor": arb.floor,
}  # fmt: skip
_OF_TWO: dict[str, Callable[[arb, arb], arb]] = {
    "mul": lambda a, b: a * b, "div": lambda a, b: a / b, "max": _max, "atan": lambda a, _: a.atan(),
}  # fmt: skip


def constants_of(graph: Graph, leaves: Sequence[Any]) -> list[arb]:
    """The fixed combinations of a graph, for parameters that are exact floats."""
    return FineLevels(graph.fixed, [exactly(each) for each in graph.fixed.coefficients])(numbers(leaves))


def balls_of(graph: Graph, leaves: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The fixed combinations as floats with their radii; radii infinite where they are not defined."""
    pairs = [rounded(each) for each in constants_of(graph, leaves)]
    return np.array([center for center, _ in pairs]), np.array([radius for _, radius in pairs])
