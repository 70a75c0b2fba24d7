r"""Numbers with some fifty digits: integers in units of $2^{-P}$ with a radius, in exact arithmetic of Python.

A `Number` stands for all real numbers within `radius` units of `middle` units. What a product, quotient or function leaves out is
counted in units, rounded up. No operation of the machine on floats is trusted here, and nothing is compiled.

Elementary functions are Taylor series of a reduced argument, with `GUARD` further bits: fewer than $2^{10}$ operations, each with
an error of at most two units of these bits, leave less than one unit of $2^{-P}$.

Source: Brent, Zimmermann (2010), *Modern Computer Arithmetic*, ch. 4; Johansson (2017), *Arb*, IEEE Trans. Comput. 66, for balls.
"""

import functools as ft
import math
from collections.abc import Sequence
from fractions import Fraction

PRECISION, GUARD = 192, 32
_ONE = 1 << PRECISION


class NotEnclosed(ArithmeticError):
    """A number is not enclosed: a divisor, or the argument of a root or logarithm, may be zero or negative."""


class Number:
    """All real numbers within `radius` of `middle`, integers in units of $2^{-P}$."""

    __slots__ = ("middle", "radius")

    def __init__(self, middle: int, radius: int = 0):
        self.middle, self.radius = middle, radius

    def __repr__(self) -> str:
        return f"{self.middle / _ONE:.17g} +- {self.radius / _ONE:.3g}"

    def __add__(self, other: "Number") -> "Number":
        return Number(self.middle + other.middle, self.radius + other.radius)

    def __sub__(self, other: "Number") -> "Number":
        return Number(self.middle - other.middle, self.radius + other.radius)

    def __neg__(self) -> "Number":
        return Number(-self.middle, self.radius)

    def __mul__(self, other: "Number") -> "Number":
        return dot((self,), (other,))

    def __truediv__(self, other: "Number") -> "Number":
        smallest = abs(other.middle) - other.radius
        if smallest <= 0:
            raise NotEnclosed("a divisor may be zero")
        quotient = (self.middle << PRECISION) // other.middle
        # |a/b - q| <= (r_a + |q| r_b) / min |b|, and one unit for the quotient.
        return Number(quotient, -((-(self.radius << PRECISION) - (abs(quotient) + 1) * other.radius) // smallest) + 2)

    @property
    def largest(self) -> int:
        """The largest modulus, in units."""
        return abs(self.middle) + self.radius

    @property
    def low(self) -> int:
        return self.middle - self.radius

    @property
    def high(self) -> int:
        return self.middle + self.radius

    def widened(self, units: int) -> "Number":
        return Number(self.middle, self.radius + units)


ZERO, UNIT = Number(0), Number(_ONE)
# A number of which nothing is known: beyond all floats.
UNKNOWN = Number(0, 1 << (PRECISION + 2000))


def between(low: int, high: int) -> Number:
    """The numbers between two, in units."""
    middle = (low + high) // 2
    return Number(middle, high - middle)


def exactly(value: float | int | Fraction) -> Number:
    """A float or rational number."""
    value = Fraction(value) * _ONE
    middle = round(value)
    return Number(middle, int(value != middle))


def rounded(a: Number) -> tuple[float, float]:
    """A float and a radius about it that hold the number: the nearest float, and the radius rounded up; infinite if too large."""
    if a.largest >= 1 << (PRECISION + 1000):
        return 0.0, math.inf
    middle = Fraction(a.middle, _ONE)
    value = float(middle)
    distance = abs(Fraction(value) - middle) + Fraction(a.radius, _ONE)
    return value, math.nextafter(float(distance), math.inf) if distance else 0.0


def dot(a: Sequence[Number], b: Sequence[Number]) -> Number:
    """The sum of the products of two sequences, rounded once; exact where there is nothing to round."""
    middle, radius = 0, 0
    for x, y in zip(a, b, strict=True):
        middle += x.middle * y.middle
        if x.radius or y.radius:
            radius += abs(x.middle) * y.radius + x.radius * (abs(y.middle) + y.radius)
    return Number(middle >> PRECISION, -(-radius >> PRECISION) + bool(middle & (_ONE - 1)))


def divided(a: Number, n: int) -> Number:
    """The quotient by a positive integer."""
    return Number(a.middle // n, a.radius // n + 2)


def sqrt(a: Number) -> Number:
    if a.low <= 0:
        raise NotEnclosed("the argument of a square root may be zero or negative")
    root, least = math.isqrt(a.middle << PRECISION), math.isqrt(a.low << PRECISION)
    return Number(root, root - least + math.isqrt(a.high << PRECISION) + 1 - root + 2 if a.radius else 1)


def exp(a: Number) -> Number:
    bits = PRECISION + GUARD
    log2 = _log2(bits)
    x = a.middle << GUARD
    turns = round(Fraction(x, log2))
    # 2^-8 of the argument, less than 2^-8; the eight squarings multiply the error by 2^8.
    reduced = (x - turns * log2) >> 8
    total, term, n = 1 << bits, 1 << bits, 1
    while term:
        term = (term * reduced >> bits) // n
        total, n = total + term, n + 1
        if term == -1:
            break
    for _ in range(8):
        total = total * total >> bits
    shift = GUARD - turns
    if turns > 4 * PRECISION:
        raise NotEnclosed("the argument of an exponential function is too large")
    value = total >> shift if shift >= 0 else total << -shift
    error = 2 + (1 << max(turns, 0))
    if a.radius > _ONE:
        raise NotEnclosed("the argument of an exponential function is not known")
    # e^r - 1 <= r + r^2 for r <= 1.
    spread = (value + error) * (a.radius + (a.radius * a.radius >> PRECISION) + 1) >> PRECISION if a.radius else 0
    return Number(value, error + spread + 1)


def log(a: Number) -> Number:
    if a.low <= 0:
        raise NotEnclosed("the argument of a logarithm may be zero or negative")
    bits = PRECISION + GUARD
    power = a.middle.bit_length() - PRECISION
    # In [1/2, 1), then y = (m - 1) / (m + 1) in (-1/3, 0): log m = 2 atanh y.
    m = a.middle << (GUARD - power) if power <= GUARD else a.middle >> (power - GUARD)
    y = ((m - (1 << bits)) << bits) // (m + (1 << bits))
    value = (2 * _arc_series(y, bits, 1) + power * _log2(bits)) >> GUARD
    return Number(value, 2 + abs(power) + (-(-(a.radius << PRECISION) // a.low)))


def atan(a: Number) -> Number:
    bits = PRECISION + GUARD
    x, one = abs(a.middle) << GUARD, 1 << bits
    inverse = x > one
    if inverse:
        x = (one << bits) // x
    # atan x = 2 atan(x / (1 + sqrt(1 + x^2))), four times: the argument is less than 1/16.
    for _ in range(4):
        x = (x << bits) // (one + math.isqrt((one << bits) + x * x))
    value = 16 * _arc_series(x, bits, -1)
    value = (_pi(bits) >> 1) - value if inverse else value
    return Number((value if a.middle >= 0 else -value) >> GUARD, a.radius + 2)


def sin_cos(a: Number) -> tuple[Number, Number]:
    if a.radius > _ONE:
        return Number(0, _ONE), Number(0, _ONE)
    bits = PRECISION + GUARD
    half_pi = _pi(bits) >> 1
    x = a.middle << GUARD
    turns = round(Fraction(x, half_pi))
    reduced, square = x - turns * half_pi, 0
    square = reduced * reduced >> bits
    values = []
    for term, n in ((reduced, 1), (1 << bits, 0)):
        total = 0
        while term not in (0, -1):
            total += term
            term = -(term * square >> bits) // ((n + 1) * (n + 2))
            n += 2
        values.append(total)
    sine, cosine = values
    pairs = ((sine, cosine), (cosine, -sine), (-sine, -cosine), (-cosine, sine))[turns % 4]
    # The error of pi / 2 enters once for each quarter turn.
    error = a.radius + 2 + (abs(turns) >> (GUARD - 2))
    return Number(pairs[0] >> GUARD, error), Number(pairs[1] >> GUARD, error)


def _arc_series(y: int, bits: int, sign: int) -> int:
    """The sum of sign^k y^(2k+1) / (2k+1): atanh for `sign` 1, atan for -1."""
    square, total, power, n = y * y >> bits, 0, y, 1
    while power not in (0, -1):
        total += power // n
        power, n = sign * (power * square >> bits), n + 2
    return total


@ft.cache
def _log2(bits: int) -> int:
    """ln 2 = 2 atanh(1/3), within two units."""
    wide = bits + GUARD
    return 2 * _arc_series((1 << wide) // 3, wide, 1) >> GUARD


@ft.cache
def _pi(bits: int) -> int:
    """pi = 16 atan(1/5) - 4 atan(1/239), within two units."""
    wide = bits + GUARD
    return 16 * _arc_series((1 << wide) // 5, wide, -1) - 4 * _arc_series((1 << wide) // 239, wide, -1) >> GUARD


def pi() -> Number:
    """The number pi."""
    return Number(_pi(PRECISION), 2)
