"""Enclosures against exact values: Arb's, as intervals of 51 digits that hold the function's value."""

import math

import numpy as np
from flint import arb, ctx

# 51 digits; and enough to reduce the largest arguments of sine and cosine, of 1024 bits.
DIGITS, MORE = 170, 1400


EXACT = {
    "sin": arb.sin,
    "cos": arb.cos,
    "exp": arb.exp,
    "log": arb.log,
    "sqrt": arb.sqrt,
    "reciprocal": lambda a: 1 / a,
    "atan": arb.atan,
}


def misses(exact, points, value, radius) -> np.ndarray:
    """Indices of those enclosures which are not proved to hold the exact value: `|exact(point) - value| <= radius`.

    Infinite radii hold all; a value that is not finite, or a radius that is NaN, is a miss. `exact`: a function of an `arb`, or
    of several with `points` a tuple of arrays; all arrays float64 of one size.
    """
    columns = [np.ravel(each).tolist() for each in (points if isinstance(points, tuple) else (points,))]
    found, before = [], ctx.prec
    try:
        for i, (middle, r, *point) in enumerate(
            zip(np.ravel(value).tolist(), np.ravel(radius).tolist(), *columns, strict=True)
        ):
            held = r == math.inf and math.isfinite(middle)
            for digits in () if held else (DIGITS, MORE):
                ctx.prec = digits
                held = held or (math.isfinite(middle) and abs(exact(*map(arb, point)) - arb(middle)) <= arb(r))
            if not held:
                found.append(i)
    finally:
        ctx.prec = before
    return np.array(found, int)
