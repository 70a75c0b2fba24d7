r"""Real numbers with some fifty digits and proved bounds: balls of Arb, a midpoint of 192 bits and a radius. And a computational
graph evaluated with them, at a point or on a very small set, outside of any compiled program, with the power series in time of
the flow of such a function.

An `arb` stands for all real numbers within its radius of its midpoint. The result of an operation holds the results for all of
them, and is not finite where the operation is not defined. A comparison is true only where it holds for all numbers of the balls:
conditions of proofs are stated as what has to hold, never as what must not. The precision set by `with_fifty_digits` decides how
narrow the results are, not whether they are enclosures.

Source: Johansson (2017), *Arb: efficient arbitrary-precision midpoint-radius interval arithmetic*, IEEE Trans. Comput. 66.
"""

import contextlib
import functools as ft
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, ParamSpec, TypeVar

import numpy as np
from jaxtyping import ArrayLike

from .._results.registry import needed
from .linear_forms import COMPARED
from .schedule import Kind, Levels, operand, Rows, truth
from .symbolic import Graph

needed("flint", "certify", "Certificates")
from flint import acb as acb, acb_mat as acb_mat, arb, arb_mat, arb_series as arb_series, ctx  # noqa: E402

PRECISION = 192
# Largest rounding of a number below one, and a number of which nothing is known.
UNIT, UNKNOWN = arb(2) ** -PRECISION, arb(0, math.inf)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NotEnclosed(ArithmeticError):
    """A number is not enclosed: a condition of its enclosure is not certain, or an operation is not defined."""


def with_fifty_digits(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, run at the precision of this module."""

    @ft.wraps(function)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with ctx.workprec(PRECISION):
            return function(*arguments, **named)

    return run


@contextlib.contextmanager
def series_of_length(length: int) -> Iterator[None]:
    """Arb's power series are of this length, the number of their coefficients."""
    before, ctx.cap = ctx.cap, length
    try:
        yield
    finally:
        ctx.cap = before


@with_fifty_digits
def exactly(value: float | int | Fraction) -> arb:
    """A float or integer, exactly; a rational number within its rounding."""
    if isinstance(value, Fraction):
        return arb(value.numerator) / value.denominator
    return arb(value)


def widened(a: arb, distance: arb) -> arb:
    """All numbers within a distance, itself a ball, of those of `a`."""
    return a + arb(0, distance.abs_upper())


def dot(a: Sequence[arb], b: Sequence[arb]) -> arb:
    """The sum of the products of two sequences."""
    total = arb(0)
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def largest(a: Sequence[arb]) -> arb:
    """The largest of some numbers; not finite where one of them is not. (Python's `max` would pass over these.)"""
    return ft.reduce(arb.max, a)


@with_fifty_digits
def balls(midpoint: ArrayLike, radius: ArrayLike = 0.0) -> arb_mat:
    """A matrix of balls of floats; a vector is a column."""
    middle, around = np.broadcast_arrays(np.asarray(midpoint, float), np.asarray(radius, float))
    rows, columns = middle.shape if middle.ndim == 2 else (middle.size, 1)
    each = zip(middle.ravel().tolist(), around.ravel().tolist(), strict=True)
    return arb_mat(rows, columns, [arb(m, r) for m, r in each])


def identity(n: int) -> arb_mat:
    """The unit matrix."""
    return arb_mat(n, n, [int(i == j) for i in range(n) for j in range(n)])


def krawczyk_operator(inverse: arb_mat, slope: arb_mat, residual: arb_mat, reach: arb_mat) -> tuple[arb_mat, arb_mat]:
    r"""The two terms of $K - c = -C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y - c)$.

    **Arguments:** `inverse`: $C$. `slope`: $DP(Y)$. `residual`: $F(c) = P(c) - c$. `reach`: $Y - c$.
    """
    unit = identity(inverse.nrows())
    return -(inverse * residual), (unit - inverse * (slope - unit)) * reach


@with_fifty_digits
def rounded(a: arb) -> tuple[float, float]:
    """A float and a radius about it that hold the number: the nearest float, and the radius rounded up; infinite if too large."""
    if not abs(a) < 2**1000:
        return 0.0, math.inf
    value = float(a.mid())
    distance = (a - value).abs_upper()
    return value, 0.0 if distance == 0 else math.nextafter(float(distance), math.inf)


Point = list[arb]
# A row as its coefficients that are not zero and their places in memory; no coefficients where it is one number in memory.
Row = tuple[list[arb], list[int]]


def _with_numbers(rows: Rows, constants: Point) -> list[Row]:
    (places, numbers, *_), found = rows, []
    for coefficients, index in zip(numbers.tolist(), places.tolist(), strict=True):
        terms = [(constants[c], i) for c, i in zip(coefficients, index, strict=True) if not constants[c].is_zero()]
        copied = len(terms) == 1 and terms[0][0] == 1
        found.append(([] if copied else [c for c, _ in terms], [i for _, i in terms]))
    return found


def _combined(rows: list[Row], memory: list) -> list:
    return [
        dot(factors, [memory[i] for i in index]) if factors or not index else memory[index[0]]
        for factors, index in rows
    ]


class ExactFunction:
    """The function of some levels, with the numbers of their rows: of balls, or of power series in time."""

    def __init__(self, levels: Levels, constants: Point):
        self.levels = [(_with_numbers(rows, constants), kinds) for rows, kinds in levels.levels]
        self.exact = not levels.varies
        self.results = _with_numbers(levels.results, constants)

    @with_fifty_digits
    def __call__(self, x: list) -> list:
        """The results; not finite where a function is not defined. `NotEnclosed` for series where it is not smooth."""
        memory = [arb(1), *x]
        for rows, kinds in self.levels:
            operands = _combined(rows, memory)
            for kind in kinds:
                memory += values(kind, operands, self.exact)
        return _combined(self.results, memory)

    @with_fifty_digits
    def coefficients(self, x: Point, orders: int) -> list[Point]:
        r"""The Taylor coefficients of the flow of $\dot x = f(x)$, of orders up to `orders`, for each entry of the state.

        Each evaluation with series that are known to order $n$ gives the rates to this order, and the states to the next.
        """
        states = [[each] for each in x]
        for n in range(orders):
            with series_of_length(n + 1):
                rates = self([arb_series(each, n + 1) for each in states])
            for each, rate in zip(states, rates, strict=True):
                term = rate[n] if isinstance(rate, arb_series) else rate if n == 0 else arb(0)
                each.append(term / (n + 1))
        return states


def exact_function(graph: Graph, leaves: Sequence[Any]) -> ExactFunction:
    """The function of a graph, for parameters that are exact floats or balls."""
    return ExactFunction(graph.varying, constants_of(graph, leaves))


def constants_of(graph: Graph, leaves: Sequence[Any]) -> Point:
    """The fixed combinations of a graph. **Arguments:** `leaves`: arrays of exact floats; an `arb` is itself."""
    given = []
    for leaf in leaves:
        given += [leaf] if isinstance(leaf, arb) else [arb(float(each)) for each in np.ravel(np.asarray(leaf))]
    return ExactFunction(graph.fixed, [exactly(each) for each in graph.fixed.coefficients])(given)


def balls_of(graph: Graph, leaves: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The fixed combinations as floats with their radii; radii infinite where they are not defined."""
    pairs = [rounded(each) for each in constants_of(graph, leaves)]
    return np.array([center for center, _ in pairs]), np.array([radius for _, radius in pairs])


def values(kind: Kind, operands: list, exact: bool = False) -> list:
    """The values of the atoms of one kind.

    **Arguments:** `exact`: of numbers, where one that is zero is known to be zero; a state that is zero is one of a set.
    """
    a, b = operand(kind, operands), operand(kind, operands, 1)
    if kind.name == "sin_cos":
        sines, cosines = zip(*(each.sin_cos() for each in a), strict=True)
        return [*sines, *cosines]
    if kind.name in _OF_ONE:
        return [_OF_ONE[kind.name](each) for each in a]
    if kind.name not in ("select", "chosen"):
        return [_OF_TWO[kind.name](x, y) for x, y in zip(a, b, strict=True)]
    sign = lambda name, row: _compared(name, _constant(operands[row]), exact)
    known = [truth(condition, sign) for condition in kind.conditions]
    undecided = arb.union if kind.name == "select" else lambda x, y: UNKNOWN
    return [_piece(y if holds else x if fails else None, undecided, x, y)
            for (holds, fails), x, y in zip(known, a, b, strict=True)]  # fmt: skip


def _compared(name: str, a: arb, exact: bool) -> tuple[bool, bool]:
    """Whether a comparison with zero certainly holds, and whether it certainly fails."""
    sign = 1 if a > 0 else -1 if a < 0 else 0 if exact and a.is_zero() else None
    holds = sign is not None and COMPARED[name](sign)
    return holds, sign is not None and not holds


def _constant(a: Any) -> arb:
    return a[0] if isinstance(a, arb_series) else a


def _piece(piece: Any, undecided: Callable, x: Any, y: Any = None) -> Any:
    """The smooth piece of a function where it is decided which; else a ball by `undecided`, which no series has."""
    if piece is not None:
        return piece
    if isinstance(x, arb_series) or isinstance(y, arb_series):
        raise NotEnclosed("it is not decided of which smooth piece a series is")
    return undecided(x) if y is None else undecided(x, y)


def _max(x: Any, y: Any) -> Any:
    apart = _constant(x) - _constant(y)
    return _piece(x if apart > 0 else y if apart < 0 else None, arb.max, x, y)


def _abs(x: Any) -> Any:
    middle = _constant(x)
    return _piece(x if middle > 0 else -x if middle < 0 else None, lambda a: a.max(-a), x)


def _sign(x: Any) -> Any:
    middle = _constant(x)
    return _piece(arb(1) if middle > 0 else arb(-1) if middle < 0 else None, arb.sgn, x)


def _floor(x: Any) -> Any:
    middle = _constant(x)
    # Exact only if it is one integer for all numbers of a ball; at this integer itself it jumps.
    below = middle.floor()
    return _piece(below if below.is_exact() and below < middle else None, arb.floor, x)


def _quotient(x: Any, y: Any) -> Any:
    if isinstance(y, arb_series) and not (y[0] > 0 or y[0] < 0):
        raise NotEnclosed("the divisor of a series may be zero")
    return x / y


def _positive(name: str) -> Callable:
    """A root or logarithm; of a series only where its constant term is positive: the terms beyond its length are unknown."""

    def value(x: Any) -> Any:
        if isinstance(x, arb_series) and not x[0] > 0:
            raise NotEnclosed("the argument of a root or logarithm of a series may be zero")
        return getattr(x, name)()

    return value


_OF_ONE: dict[str, Callable] = {
    "exp": lambda a: a.exp(), "log": _positive("log"), "sqrt": _positive("sqrt"), "abs": _abs, "sign": _sign, "floor": _floor,
}  # fmt: skip
_OF_TWO: dict[str, Callable] = {
    "mul": lambda a, b: a * b, "div": _quotient, "max": _max, "atan": lambda a, _: a.atan(),
}  # fmt: skip
