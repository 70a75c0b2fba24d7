"""When a guard falls: the zero of the polynomial through its values and rates at points of the flow.

The polynomial only proposes where the next trial step ends; no event depends on its accuracy.
"""

import jax.numpy as jnp
from jaxtyping import Array

from .._system.types import Scalar
from .guard_cubic import Look
from .surfaces import Guards, Mask

# A point before `lo` adds to the polynomial from this distance on, in units of the distance from `lo` to `hi`.
APART = 0.01


def quintic(before: Look, lo: Look, hi: Look) -> list[Guards]:
    r"""The coefficients of each guard's polynomial in the fraction $v$ of the way from `lo` to `hi`.

    The cubic $c$ has the guard's values and rates at `lo` and `hi`. With those at a point $p < 0$ `before` as well it is the
    quintic $c(v) + v^2 (1 - v)^2 (s + m (v - p))$, whose error is of sixth order in the step. Where there is no such point, it is
    the cubic.
    """
    span = hi.dt - lo.dt
    span = jnp.where(span == 0, 1, span)
    a, ra, b, rb = lo.g, lo.r * span, hi.g, hi.r * span
    cubic = [a, ra, 3 * (b - a) - 2 * ra - rb, ra + rb - 2 * (b - a)]
    p = (before.dt - lo.dt) / span
    apart = p < -APART
    p = jnp.where(apart, p, -1)
    value, slope = value_and_slope(cubic, p)
    square = (p * (1 - p)) ** 2
    s = (before.g - value) / square
    m = (before.r * span - slope - 2 * p * (1 - p) * (1 - 2 * p) * s) / square
    sound = apart & jnp.isfinite(s) & jnp.isfinite(m)
    n, m = jnp.where(sound, s - m * p, 0), jnp.where(sound, m, 0)
    return [a, ra, cubic[2] + n, cubic[3] + m - 2 * n, n - 2 * m, m]


def value_and_slope(coefficients: list[Guards], v: Array) -> tuple[Guards, Guards]:
    """Value and derivative of the guards' polynomials at `v`, by Horner's scheme."""
    *others, value = coefficients
    slope = value
    for power, coefficient in reversed(list(enumerate(others))):
        value = value * v + coefficient
        slope = slope * v + value if power else slope
    return value, slope


def _newton(coefficients: list[Guards], v: Guards) -> Guards:
    """Three steps of Newton's method from `v`. Not finite, or not a zero, where they fail."""
    for _ in range(3):
        value, slope = value_and_slope(coefficients, v)
        v = v - value / slope
    return v


def predicted_fall(candidates: Mask, before: Look, lo: Look, hi: Look) -> Scalar:
    """The earliest time, between `lo` and `hi`, at which a candidate is predicted to be zero.

    Each candidate is positive at `lo` and not at `hi`. The prediction is the middle where Newton's method leads outside.
    """
    v = _newton(quintic(before, lo, hi), lo.g / (lo.g - hi.g))
    v = jnp.where((v > 0) & (v < 1), v, 0.5)
    return lo.dt + (hi.dt - lo.dt) * jnp.min(jnp.where(candidates, v, 1))


def fall_ahead(falling: Mask, before: Look, start: Look, end: Look, within: Scalar) -> Scalar:
    """The time from the end of a step to the earliest fall of a guard that is predicted `within` a time; infinite where there is
    none.

    A guard that falls less than half as fast there may turn before, and touch its surface: it is left out, because Newton's steps
    towards a double zero are many.
    """
    span = end.dt - start.dt
    span = jnp.where(span == 0, 1, span)
    coefficients = quintic(before, start, end)
    v = _newton(coefficients, 1 + jnp.minimum(straight_fall(end), within) / span)
    value, slope = value_and_slope(coefficients, v)
    ahead = (v - 1) * span
    # Newton's method has converged, and the guard is still falling at its zero.
    falls = (jnp.abs(value) <= 0.1 * end.g) & (slope < 0.5 * span * end.r)
    near = falling & falls & (ahead > 0) & (ahead <= within)
    return jnp.min(jnp.where(near, ahead, jnp.inf))


def straight_fall(end: Look) -> Guards:
    """The time to the zero of each guard along a straight line; infinite where the guard does not fall."""
    falls = end.r < 0
    return jnp.where(falls, end.g / jnp.where(falls, -end.r, 1), jnp.inf)
