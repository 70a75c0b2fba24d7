r"""Real numbers with some fifty digits and proved bounds: balls of Arb, a midpoint of 192 bits and a radius.

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
from typing import ParamSpec, TypeVar

import numpy as np
from jaxtyping import ArrayLike

from .._results.installed import needed

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
