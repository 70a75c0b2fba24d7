"""Polynomials through a guard's values and rates at points of the flow: what they show between the ends of a step.

- **Hidden turns:** the cubic through both ends of a step may dip or bulge inside, where the signs at the ends show no event.
- **The time of the fall:** the zero of the polynomial only proposes where the next trial step ends; no event depends on its
  accuracy.
- **Resolution:** a guard may vary faster than the flow, such as the height above a vibrating table in free flight, whose steps
  are limited by nothing else. So a guard is compared at two interior points of the step with the cubic. The states there are
  those of the flow's own cubic, so a guard that is linear in state and time is resolved by any step, and is not compared.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._numerics.programs import depends_on
from .._system.types import Flag, Scalar, State, Time
from .surfaces import first_least, Guards, Mask, Surfaces


class GuardValues(eqx.Module):
    """Values `g` and rates `r` of the guards at one point of a step, `dt` after its start; negative before."""

    dt: Scalar
    g: Guards
    r: Guards


def may_turn(start: GuardValues, up: Mask, end: GuardValues, seen: Mask) -> Flag:
    """A cheap necessary condition of `hidden_turn`: the cubic through the ends of a guard that is `seen` is not monotonic.

    Source: Fritsch, Carlson (1980), *Monotone piecewise cubic interpolation*: the cubic is monotonic if both rates have the
    sign of the rise and are at most three times as steep.
    """
    side = jnp.where(up, 1, -1).astype(start.g.dtype)
    ra, rb, rise = side * start.r * end.dt, side * end.r * end.dt, side * (end.g - start.g)
    valley = (ra < 0) & (rb >= 0)
    # Rates of one sign, which is another than that of the rise, or steeper.
    steep = jnp.maximum(jnp.abs(ra), jnp.abs(rb)) > 3 * jnp.abs(rise)
    winding = (ra * rb >= 0) & (steep | (ra * rise < 0) | (rb * rise < 0))
    return jnp.any((valley | winding) & seen)


def hidden_turn(
    start: GuardValues, up: Mask, end: GuardValues, seen: Mask, noise: Guards, touch_tolerance: Guards
) -> tuple[Flag, Flag, Scalar, Mask]:
    """Whether the cubic of a guard, one of those `seen`, has an extremum inside the step that may hide an event, and the time of
    the earliest one.

    A positive guard may dip (fall and rise again), and a guard that is not positive may bulge (rise and fall again): then the
    signs at both ends do not show the event. A trial step should end at the extremum if it is nearer to zero than both ends by
    more than a tenth; also where a guard has fallen by the end of the step, but its cubic falls and rises once before, or has
    risen, but its cubic rises and falls once before.

    A positive guard whose least value is within `touch_tolerance` of zero touches its surface. The step should end there: where
    it begins there and ends elsewhere, the trial step should be as short as leads from one side of the minimum to the other.

    **Returns:** whether there is such an extremum; whether one of a guard that is not positive at either end; the time from the
    start of the step to the earliest; and the guards that touch their surfaces at the end of the step.
    """
    side = jnp.where(up, 1, -1).astype(start.g.dtype)
    # On its side of zero each guard is s(v) = a + ra v + c v^2 + d v^3 for v from 0 to 1; look for its least value.
    a, b, ra, rb = side * start.g, side * end.g, side * start.r * end.dt, side * end.r * end.dt
    c = 3 * (b - a) - 2 * ra - rb
    d = ra + rb - 2 * (b - a)
    # Minimum and maximum where s' = ra + 2 c v + 3 d v^2 = 0, at v = ra / q and v = q / 3d, which of them by the sign of c.
    root = jnp.sqrt(jnp.maximum(c * c - 3 * d * ra, 0))
    q = -c - jnp.where(c > 0, root, -root)
    near, far = (jnp.where(x == 0, jnp.inf, y / jnp.where(x == 0, 1, x)) for y, x in ((ra, q), (q, 3 * d)))
    v, u = jnp.where(c > 0, near, far), jnp.where(c > 0, far, near)
    least = a + v * (ra + v * (c + v * d))
    inside = (v > 0) & (v < 1) & (root > 0)
    # The end must be on the guard's side of zero; positive by less than rounding does not count as positive. A guard that
    # starts on its surface is zero up to rounding of either sign, and every turn of it leaves the surface; but a bulge lower
    # than rounding does not make the guard positive.
    nearest = jnp.minimum(jnp.where(up, jnp.maximum(a, 0), jnp.abs(a)), b)
    turns = inside & jnp.where(up, b > 0, b >= -noise) & (least < 0.9 * nearest - jnp.where(up, 0, noise))
    crest = a + u * (ra + u * (c + u * d))
    hops = turns & ~up
    turns = turns | (inside & (b <= 0) & (least <= -jnp.where(up, 0, noise)) & (u > v) & (u < 1) & (crest > 0))
    valley = up & (b > 0) & (ra < 0) & (rb >= 0)
    touches = valley & (nearest <= touch_tolerance) & (least >= -touch_tolerance)
    there = touches & (b <= 4 * touch_tolerance)
    there = there & seen
    turns = (turns | touches) & ~there & seen
    v = jnp.where(turns, jnp.clip(jnp.where(touches, jnp.minimum(2 * v, 0.5), v), 0.01, 0.99), 1)
    return jnp.any(turns), jnp.any(hops & seen), end.dt * jnp.min(v), there


def no_turn(end: GuardValues) -> tuple[Flag, Flag, Scalar, Mask]:
    """The result of `hidden_turn` where no cubic turns."""
    no = jnp.array(False)
    return no, no, end.dt, jnp.zeros_like(end.g, bool)


# A point before `lo` adds to the polynomial from this distance on, in units of the distance from `lo` to `hi`.
APART = 0.01


def quintic(before: GuardValues, lo: GuardValues, hi: GuardValues) -> list[Guards]:
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


def predicted_fall(candidates: Mask, before: GuardValues, lo: GuardValues, hi: GuardValues) -> Scalar:
    """The earliest time, between `lo` and `hi`, at which a candidate is predicted to be zero.

    Each candidate is positive at `lo` and not at `hi`. The prediction is the middle where Newton's method leads outside.
    """
    candidates, before, lo, hi = _soonest(lo.g / (lo.g - hi.g), candidates, before, lo, hi)
    v = _newton(quintic(before, lo, hi), lo.g / (lo.g - hi.g))
    v = jnp.where((v > 0) & (v < 1), v, 0.5)
    return lo.dt + (hi.dt - lo.dt) * jnp.min(jnp.where(candidates, v, 1))


def fall_ahead(falling: Mask, before: GuardValues, start: GuardValues, end: GuardValues, within: Scalar) -> Scalar:
    """The time from the end of a step to the earliest fall of a guard that is predicted `within` a time; infinite where there is
    none.

    A guard that falls less than half as fast there may turn before, and touch its surface: it is left out, because Newton's steps
    towards a double zero are many.
    """
    falling, before, start, end = _soonest(straight_fall(end), falling, before, start, end)
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


# Of more guards than this, only the polynomial of the soonest is solved.
MANY = 16


def _soonest(order: Guards, guards: Mask, *points: GuardValues) -> tuple[Any, ...]:
    """Mask and values of the one of the `guards` that is first in `order`, where there are many; else as they are."""
    if order.size <= MANY:
        return guards, *points
    last = jnp.finfo(order.dtype).max
    first = first_least(jnp.where(guards, jnp.where(jnp.isnan(order), last, order), jnp.inf))
    one = lambda values: values[first][None]
    return one(guards), *(GuardValues(point.dt, one(point.g), one(point.r)) for point in points)


def straight_fall(end: GuardValues) -> Guards:
    """The time to the zero of each guard along a straight line; infinite where the guard does not fall."""
    falls = end.r < 0
    return jnp.where(falls, end.g / jnp.where(falls, -end.r, 1), jnp.inf)


# The interior points, as fractions of the step: not symmetric, because a variation odd about the middle vanishes there.
INNER = np.array([0.31, 0.64])
# Where the cubic is compared with its error.
GRID = np.arange(1, 16) / 16
# The error between the points is taken as this number of times the one seen at the points.
SAFETY = 4


def linear(surfaces: Surfaces, t: Time, x: State, args: PyTree) -> bool:
    """Whether all guards are linear in time and state, apart from a constant: their derivative is the same everywhere."""
    if not surfaces.count:
        return True
    arrays, rest = eqx.partition(args, eqx.is_array)

    def slope(point, direction, arrays):
        values = lambda t, x: surfaces.values(t, x, eqx.combine(arrays, rest))
        return jax.jvp(values, point, direction)[1]

    shape = lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))
    point, arrays = jax.tree.map(shape, ((t, x), arrays))
    return not depends_on(jax.make_jaxpr(slope)(point, point, arrays), 2)


def hermite(v: np.ndarray, a: Array, ra: Array, b: Array, rb: Array) -> Array:
    """Values at the fractions `v` of the cubic with the values `a`, `b` and rates `ra`, `rb` at 0 and 1; shape `(len(v), n)`."""
    u = jnp.asarray(v[:, None], a.dtype)
    w = 1 - u
    return w * w * (a + u * (2 * a + ra)) + u * u * (b + w * (2 * b - rb))


def inner_points(t: Time, x: State, f: State, dt: Time, x1: State, f1: State) -> tuple[Float[Array, " 2"], Array]:
    """Times and states at the interior points of a step from `(t, x)` to `x1`, with the vector field at both ends."""
    return t + INNER.astype(x.dtype) * dt, hermite(INNER, x, dt * f, x1, dt * f1)


def cubic_error(start: GuardValues, end: GuardValues, inner: Float[Array, "2 guards"], noise: Guards) -> Guards:
    r"""A bound on the error of each guard's cubic in the middle of the step, from its values at the interior points.

    The error of a cubic is $16\,e\,v^2 (1 - v)^2$ at the fraction $v$, with $e$ its value in the middle; a small difference, or
    one by rounding, is no error.
    """
    eps = float(jnp.finfo(noise.dtype).eps)
    ends = _ends(start, end)
    gap = jnp.abs(inner - hermite(INNER, *ends)) - noise - 64 * eps * sum(map(jnp.abs, ends))
    return SAFETY * jnp.max(jnp.where(gap > 0, gap, 0) / _shape(INNER, noise), axis=0)


def may_be_coarse(start: GuardValues, end: GuardValues, error: Guards) -> Flag:
    r"""A cheap necessary condition of `coarseness` above 1.

    In Bernstein's polynomials of degree 4 the error is $\frac83 e B_2$. Where the coefficients $d_i$ of the cubic, less that
    error, have one sign, the cubic exceeds the error all along the step. At the ends, which may lie on the surface, it is
    enough that $d_0 \ge -d_1/4$ and $d_4 \ge -d_3/4$: the points of `GRID` are a sixteenth of the step from the ends.
    """
    a, ra, b, rb = _ends(start, end)
    c1, c2 = a + ra / 3, b - rb / 3
    side = jnp.sign(c1 + c2)
    d0, d1, d2, d3, d4 = (side * d for d in (a, (a + 3 * c1) / 4, (c1 + c2) / 2, (3 * c2 + b) / 4, b))
    beyond = (d0 >= -d1 / 4) & (d1 >= 0) & (d2 > 8 / 3 * error) & (d3 >= 0) & (d4 >= -d3 / 4)
    return jnp.any((error > 0) & ~beyond)


def coarseness(start: GuardValues, end: GuardValues, error: Guards) -> Scalar:
    """How many times the error of a guard's cubic, somewhere in the step, exceeds the guard's distance from zero there.

    Above 1, the guard may have fallen or risen unseen.
    """
    error = error * _shape(GRID, error)
    distance = jnp.abs(hermite(GRID, *_ends(start, end)))
    ratio = jnp.where(error > 0, error / jnp.where(distance > 0, distance, float(jnp.finfo(error.dtype).tiny)), 0)
    return jnp.max(ratio, initial=0)


def _ends(start: GuardValues, end: GuardValues) -> tuple[Guards, Guards, Guards, Guards]:
    """The values and rates at both ends of a step, the rates in units of the step's length."""
    return start.g, end.dt * start.r, end.g, end.dt * end.r


def _shape(v: np.ndarray, like: Guards) -> np.ndarray:
    """The error of a cubic at the fractions `v`, in units of the error in the middle; shape `(len(v), 1)`."""
    return (16 * v**2 * (1 - v) ** 2)[:, None].astype(like.dtype)


def shortened(dt: Time, coarse: Scalar) -> Time:
    """The step to try in place of one that is too coarse: the error of a cubic falls with its fourth power."""
    return dt * jnp.clip(0.8 * jnp.maximum(coarse, 1) ** -0.25, 0.1, 0.7)
