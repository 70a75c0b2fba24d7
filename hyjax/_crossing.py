"""Where, in a step whose ends are known, does a guard fall through zero?

Everything here looks at the value `g` and the rate `r` of the guards at the two ends of a step, and proposes where to take
the next real solver step. A proposal need only be good, never right: the solver's own step decides.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._types import Flag, Scalar

Guards = Float[Array, " guards"]


def turning(g: Guards, r: Guards, up: Bool[Array, " guards"], g1: Guards, r1: Guards, h: Scalar) -> tuple[Flag, Scalar]:
    """Does a guard turn towards zero inside the step, unseen from its ends?

    A positive guard may dip (fall and rise again), a guard that is not positive may bulge (rise and fall again): an
    event of which the signs at both ends say nothing. The cubic through values and rates shows the turn. Where it is
    nearer to zero than both ends, by more than a tenth, a step is to be taken to it.

    **Returns:** whether there is such a turn, and the time from the start of the step to the earliest.
    """
    side = jnp.where(up, 1.0, -1.0).astype(g.dtype)
    # On its side of zero each guard is s(v) = g + h r v + c v^2 + d v^3 for v from 0 to 1; look for its least value.
    a, b, ra, rb = side * g, side * g1, side * r * h, side * r1 * h
    c = 3 * (b - a) - 2 * ra - rb
    d = ra + rb - 2 * (b - a)
    # Minimum where s' = ra + 2 c v + 3 d v^2 = 0 and s'' > 0: v = (-c + root) / 3d = -ra / (c + root).
    root = jnp.sqrt(jnp.maximum(c * c - 3 * d * ra, 0))
    below = c + root
    v = -ra / jnp.where(below == 0, 1, below)
    least = a + v * (ra + v * (c + v * d))
    inside = (v > 0) & (v < 1) & (below > 0)
    # Both ends must be on the guard's side: a guard that has changed side needs no search (or has crossed already).
    turns = inside & (b > 0) & (least < 0.9 * jnp.minimum(jnp.maximum(a, 0), b))
    # A guard that starts on the surface has a = 0 up to rounding: any turn of it is one that leaves the surface.
    turns = jnp.where(up, turns, inside & (b >= 0) & (least < 0.9 * jnp.minimum(jnp.abs(a), b)))
    v = jnp.where(turns, jnp.clip(v, 0.01, 0.99), 1)
    return jnp.any(turns), h * jnp.min(v, initial=1)


def propose(fallen: Bool[Array, " guards"], lo, g_lo: Guards, r_lo: Guards, hi, g_hi: Guards, r_hi: Guards) -> Scalar:
    """The earliest time, between `lo` and `hi`, at which a guard in `fallen` is predicted to be zero.

    Each such guard is positive at `lo` and is not at `hi`. By inverse cubic interpolation where it falls at both ends,
    else by Newton's method from the end nearer to zero, and by bisection where neither stays inside.
    """
    span = hi - lo
    safe = jnp.where(fallen, g_lo - g_hi, 1)
    w = g_lo / safe  # how far down the guard must come, from 0 at `lo` to 1 at `hi`
    # Time as a function of w: slopes from the rates at both ends.
    falling = (r_lo < 0) & (r_hi < 0)
    a = -safe / jnp.where(falling, r_lo, -1)
    b = -safe / jnp.where(falling, r_hi, -1)
    inverse = w * (a + w * ((3 * span - 2 * a - b) + w * (a + b - 2 * span)))
    near_lo = g_lo < -g_hi
    r_near = jnp.where(near_lo, r_lo, r_hi)
    newton = jnp.where(near_lo, 0, span) - jnp.where(near_lo, g_lo, g_hi) / jnp.where(r_near == 0, 1, r_near)
    good = lambda dt: (dt > 0) & (dt < span)
    dt = jnp.where(falling & good(inverse), inverse, jnp.where(good(newton), newton, span / 2))
    return lo + jnp.min(jnp.where(fallen, dt, span))
