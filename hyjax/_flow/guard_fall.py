"""When a guard falls: the zero of the polynomial through its values and rates at points of the flow.

The polynomial only proposes where the next trial step ends; no event depends on its accuracy.
"""

from collections.abc import Callable

import jax.numpy as jnp

from .._system.types import Scalar
from .guard_cubic import Look
from .surfaces import Guards, Mask

# A point before `lo` adds to the polynomial from this distance on, in units of the distance from `lo` to `hi`.
APART = 0.01

Curve = Callable[[Guards], tuple[Guards, Guards]]


def quintic(before: Look, lo: Look, hi: Look) -> Curve:
    r"""The value and the slope of each guard's polynomial at the fraction `v` of the way from `lo` to `hi`; also beyond `hi`.

    The cubic $c$ has the guard's values and rates at `lo` and `hi`. With those at a point $p < 0$ `before` as well it is the
    quintic $c(v) + v^2 (1 - v)^2 (s + m (v - p))$, whose error is of sixth order in the step. Where there is no such point, the
    curve is the cubic.
    """
    span = hi.dt - lo.dt
    span = jnp.where(span == 0, 1, span)
    a, ra, b, rb = lo.g, lo.r * span, hi.g, hi.r * span
    c, d = 3 * (b - a) - 2 * ra - rb, ra + rb - 2 * (b - a)
    cubic = lambda v: (a + v * (ra + v * (c + v * d)), ra + v * (2 * c + v * 3 * d))
    p = (before.dt - lo.dt) / span
    apart = p < -APART
    p = jnp.where(apart, p, -1)
    square = (p * (1 - p)) ** 2
    value, slope = cubic(p)
    s = (before.g - value) / square
    m = (before.r * span - slope - 2 * p * (1 - p) * (1 - 2 * p) * s) / square
    sound = apart & jnp.isfinite(s) & jnp.isfinite(m)
    s, m = jnp.where(sound, s, 0), jnp.where(sound, m, 0)

    def curve(v: Guards) -> tuple[Guards, Guards]:
        value, slope = cubic(v)
        w, more = v * (1 - v), s + m * (v - p)
        return value + w * w * more, slope + w * (2 * (1 - 2 * v) * more + w * m)

    return curve


def _newton(curve: Curve, v: Guards, steps: int) -> Guards:
    for _ in range(steps):
        value, slope = curve(v)
        v = v - value / jnp.where(slope == 0, 1, slope)
    return v


def predicted_fall(candidates: Mask, before: Look, lo: Look, hi: Look) -> Scalar:
    """The earliest time, between `lo` and `hi`, at which a candidate is predicted to be zero.

    Each candidate is positive at `lo` and not at `hi`. The prediction is the middle where Newton's method leads outside.
    """
    v = _newton(quintic(before, lo, hi), lo.g / (lo.g - hi.g), 3)
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
    curve = quintic(before, start, end)
    v = _newton(curve, 1 + jnp.minimum(straight_fall(end), within) / span, 3)
    value, slope = curve(v)
    ahead = (v - 1) * span
    falls = (jnp.abs(value) <= 0.1 * end.g) & (slope < 0.5 * span * end.r)
    near = falling & falls & (ahead > 0) & (ahead <= within)
    return jnp.min(jnp.where(near, ahead, jnp.inf))


def straight_fall(end: Look) -> Guards:
    """The time to the zero of each guard along a straight line; infinite where the guard does not fall."""
    falls = end.r < 0
    return jnp.where(falls, end.g / jnp.where(falls, -end.r, 1), jnp.inf)
