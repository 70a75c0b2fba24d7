"""The cubic through a guard's values and rates at both ends of a step: hidden turns."""

import equinox as eqx
import jax.numpy as jnp

from .._system.types import Flag, Scalar
from .surfaces import Guards, Mask


class Look(eqx.Module):
    """Values `g` and rates `r` of the guards at one point of a step, `dt` after its start; negative before."""

    dt: Scalar
    g: Guards
    r: Guards


def may_turn(start: Look, up: Mask, end: Look, seen: Mask) -> Flag:
    """A cheap necessary condition of `hidden_turn`: the cubic through the ends of a guard that is `seen` is not monotonic.

    Source: Fritsch, Carlson (1980), *Monotone piecewise cubic interpolation*: the cubic is monotonic if both rates have the
    sign of the rise and are at most three times as steep.
    """
    side = jnp.where(up, 1, -1).astype(start.g.dtype)
    ra, rb, rise = side * start.r * end.dt, side * end.r * end.dt, side * (end.g - start.g)
    valley = (ra < 0) & (rb >= 0)
    winding = (ra * rb > 0) & (jnp.maximum(jnp.abs(ra), jnp.abs(rb)) > 3 * jnp.abs(rise))
    return jnp.any((valley | winding) & seen)


def hidden_turn(
    start: Look, up: Mask, end: Look, seen: Mask, noise: Guards, touch: Guards
) -> tuple[Flag, Flag, Scalar, Mask]:
    """Whether the cubic of a guard, one of those `seen`, has an extremum inside the step that may hide an event, and the time of
    the earliest one.

    A positive guard may dip (fall and rise again), and a guard that is not positive may bulge (rise and fall again): then the
    signs at both ends do not show the event. A trial step should end at the extremum if it is nearer to zero than both ends by
    more than a tenth; also where a guard has fallen by the end of the step, but its cubic falls and rises once before.

    A positive guard whose least value is within `touch` of zero touches its surface. The step should end there: where it begins
    there and ends elsewhere, the trial step should be as short as leads from one side of the minimum to the other.

    **Returns:** whether there is such an extremum; whether one of a guard that is not positive; the time from the start of the
    step to the earliest; and the guards that touch their surfaces at the end of the step.
    """
    side = jnp.where(up, 1, -1).astype(start.g.dtype)
    # On its side of zero each guard is s(v) = a + ra v + c v^2 + d v^3 for v from 0 to 1; look for its least value.
    a, b, ra, rb = side * start.g, side * end.g, side * start.r * end.dt, side * end.r * end.dt
    c = 3 * (b - a) - 2 * ra - rb
    d = ra + rb - 2 * (b - a)
    # Minimum where s' = ra + 2 c v + 3 d v^2 = 0 and s'' > 0: v = (-c + root) / 3d = -ra / (c + root).
    root = jnp.sqrt(jnp.maximum(c * c - 3 * d * ra, 0))
    below = c + root
    v = -ra / jnp.where(below == 0, 1, below)
    least = a + v * (ra + v * (c + v * d))
    inside = (v > 0) & (v < 1) & (below > 0)
    # The end must be on the guard's side of zero; positive by less than rounding does not count as positive. A guard that
    # starts on its surface is zero up to rounding of either sign, and every turn of it leaves the surface; but a bulge lower
    # than rounding does not make the guard positive.
    nearest = jnp.minimum(jnp.where(up, jnp.maximum(a, 0), jnp.abs(a)), b)
    turns = inside & jnp.where(up, b > 0, b >= -noise) & (least < 0.9 * nearest - jnp.where(up, 0, noise))
    # Maximum: the other root of s', where c + 3 d v = -root.
    above = c - root
    u = -ra / jnp.where(above == 0, 1, above)
    crest = a + u * (ra + u * (c + u * d))
    turns = turns | (inside & up & (b <= 0) & (least <= 0) & (u > v) & (u < 1) & (crest > 0))
    valley = up & (b > 0) & (ra < 0) & (rb >= 0)
    touches = valley & (nearest <= touch) & (least >= -touch)
    there = touches & (b <= 4 * touch)
    there = there & seen
    turns = (turns | touches) & ~there & seen
    v = jnp.where(turns, jnp.clip(jnp.where(touches, jnp.minimum(2 * v, 0.5), v), 0.01, 0.99), 1)
    return jnp.any(turns), jnp.any(turns & ~up), end.dt * jnp.min(v), there


def no_turn(end: Look) -> tuple[Flag, Flag, Scalar, Mask]:
    """`hidden_turn` where no cubic turns."""
    no = jnp.array(False)
    return no, no, end.dt, jnp.zeros_like(end.g, bool)
