"""Where, in a step whose ends are known, does a guard fall through zero?

Everything here looks at the value `g` and the rate `r` of the guards at points of one step, and says whether the step may be
taken, or where inside it the next real solver step should end. A proposal need only be good, never right: the solver's own
step decides.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._system.types import Flag, Scalar

Guards = Float[Array, " guards"]
Mask = Bool[Array, " guards"]


class Look(eqx.Module):
    """The guards at one point of a step: `dt` after its start."""

    dt: Scalar
    g: Guards
    r: Guards


class Search(eqx.Module):
    """What is known of a step in which something happens.

    While `active`, some guard that was positive at `lo` is no longer so at `hi`. `tries` counts the steps tried from the
    same start since one was last taken.
    """

    active: Flag
    lo: Look
    hi: Look
    tries: Int[Array, ""]


class Verdict(eqx.Module):
    """What to do after a trial step: take it or not; where the next trial from the same start should end.

    `event` is the guard that fell, or -1; then `shift` is the time, far below the solver's error, from the step's end to
    the surface itself. `passed` marks a guard that fell unarmed. `together`: another guard fell at the same time.
    """

    take: Flag
    dt: Scalar
    search: Search
    event: Int[Array, ""]
    shift: Scalar
    passed: Mask
    together: Flag


def may_turn(start: Look, up: Mask, end: Look) -> Flag:
    """A cheap necessary condition of `_turning`: the cubic through the ends is not monotonic.

    Source: Fritsch, Carlson (1980), *Monotone piecewise cubic interpolation*: it is, if both rates have the sign of the
    rise and are at most three times as steep.
    """
    side = jnp.where(up, 1, -1).astype(start.g.dtype)
    ra, rb, rise = side * start.r * end.dt, side * end.r * end.dt, side * (end.g - start.g)
    valley = (ra < 0) & (rb > 0)
    winding = (ra * rb > 0) & (jnp.maximum(jnp.abs(ra), jnp.abs(rb)) > 3 * jnp.abs(rise))
    return jnp.any(valley | winding)


def calm(search: Search, trial: Look, keep: Flag) -> Verdict:
    """The verdict on a step in which no guard falls, and none may turn: take it if the solver's error allows."""
    none = jnp.zeros_like(trial.g, bool)
    return Verdict(keep, trial.dt, search, jnp.array(-1), jnp.zeros_like(trial.dt), none, jnp.array(False))


def judge(
    search: Search,
    start: Look,
    up: Mask,
    trial: Look,
    keep: Flag,
    armed: Mask,
    h: Scalar,
    straight: Scalar,
    close: Scalar,
    noise: Guards,
) -> Verdict:
    """The verdict on any step.

    **Arguments:** `up`: the guards that were strictly positive at the step's `start`. `keep`: whether the solver's error
    allows the step, which matters only outside a search. `armed`: whether each guard may fire, at the trial's end. `h`: the
    time over which the flow changes. `straight`: the time in which it is a straight line to rounding. `close`: the time
    within which the order of two events is not determined. `noise`: the rounding of the guards.
    """
    eps = jnp.finfo(trial.g.dtype).eps
    fallen = up & ~(trial.g > 0)
    crossed = jnp.any(fallen)
    turns, to_turn = _turning(start, up, trial, noise)
    turns = turns & (search.tries < 40) & (to_turn > 4 * eps * jnp.maximum(h, trial.dt))
    retry = ~search.active & keep & turns
    enter = ~search.active & keep & ~turns & crossed

    # Bracket
    lo = _choose_look(search.active & ~crossed, trial, _choose_look(enter, start, search.lo))
    hi = _choose_look(enter | (search.active & crossed), trial, search.hi)
    candidates = up & ~(hi.g > 0)
    proposal = _propose(candidates, lo, hi)
    # A guard that is flat on one side draws the proposals to one end: after a few, halve the bracket between them.
    halve = (search.tries > 6) & (search.tries % 2 == 0)
    proposal = jnp.where(halve, (lo.dt + hi.dt) / 2, proposal)

    # Converge
    ahead = jnp.where(candidates, trial.g / jnp.where(trial.r < 0, -trial.r, 0), jnp.inf)
    ahead = jnp.where(jnp.isfinite(ahead), ahead, jnp.inf)
    # Where several fall together, one that may fire leads.
    may_fire = candidates & armed & (ahead <= jnp.min(ahead) + close)
    leader = jnp.argmin(jnp.where(may_fire | ~jnp.any(may_fire), ahead, jnp.inf))
    to_go = jnp.where(candidates[leader], ahead[leader], jnp.inf)
    # From there the surface is reached exactly.
    near = jnp.abs(to_go) <= straight
    shut = ((hi.dt - lo.dt) <= 2 * eps * hi.dt) & crossed
    converged = search.active & (near | shut | (search.tries >= 100))
    leader = jnp.where(near, leader, jnp.argmax(jnp.where(candidates, 1, 0) + jnp.where(candidates & armed, 1, 0)))
    leads = jnp.arange(trial.g.size) == leader
    event = converged & armed[leader]
    others = up & armed & ~leads & (trial.g <= jnp.maximum(-trial.r, 0) * close)

    take = (~search.active & keep & ~turns & ~crossed) | converged
    return Verdict(
        take=take,
        dt=jnp.where(retry, to_turn, proposal),
        search=Search((search.active | enter) & ~converged, lo, hi, search.tries),
        event=jnp.where(event, leader, -1),
        shift=jnp.where(event & near, to_go, 0),
        passed=converged & leads,
        together=event & jnp.any(others),
    )


def _choose_look(pred: Flag, a: Look, b: Look) -> Look:
    return Look(jnp.where(pred, a.dt, b.dt), jnp.where(pred, a.g, b.g), jnp.where(pred, a.r, b.r))


def _turning(start: Look, up: Mask, end: Look, noise: Guards) -> tuple[Flag, Scalar]:
    """Does a guard turn towards zero inside the step, unseen from its ends?

    A positive guard may dip (fall and rise again), a guard that is not positive may bulge (rise and fall again): an
    event of which the signs at both ends say nothing. The cubic through values and rates shows the turn. Where it is
    nearer to zero than both ends, by more than a tenth, a step is to be taken to it. So it is where a guard has fallen
    by the end, but seems to have done so before, and risen again.

    **Returns:** whether there is such a turn, and the time from the start of the step to the earliest.
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
    # The end must be on the guard's side; one that is positive by less than rounding does not count as positive. A guard
    # that starts on the surface is zero up to rounding of either sign, and any turn of it is one that leaves the surface; but
    # a bulge lower than rounding makes no guard positive.
    nearest = jnp.minimum(jnp.where(up, jnp.maximum(a, 0), jnp.abs(a)), b)
    turns = inside & jnp.where(up, b > 0, b >= -noise) & (least < 0.9 * nearest - jnp.where(up, 0, noise))
    # Maximum: the other root of s', where c + 3 d v = -root.
    above = c - root
    u = -ra / jnp.where(above == 0, 1, above)
    crest = a + u * (ra + u * (c + u * d))
    turns = turns | (inside & up & (b <= 0) & (least <= 0) & (u > v) & (u < 1) & (crest > 0))
    v = jnp.where(turns, jnp.clip(v, 0.01, 0.99), 1)
    return jnp.any(turns), end.dt * jnp.min(v)


def _propose(fallen: Mask, lo: Look, hi: Look) -> Scalar:
    """The earliest time, between `lo` and `hi`, at which a guard in `fallen` is predicted to be zero.

    Each such guard is positive at `lo` and is not at `hi`. By inverse cubic interpolation where it falls at both ends,
    else by Newton's method from the end nearer to zero, and by bisection where neither stays inside.
    """
    span = hi.dt - lo.dt
    drop = jnp.where(fallen, lo.g - hi.g, 1)
    w = lo.g / drop  # how far down the guard must come, from 0 at `lo` to 1 at `hi`
    # Time as a function of w, with the slopes that the rates give at both ends.
    falling = (lo.r < 0) & (hi.r < 0)
    a = -drop / jnp.where(falling, lo.r, -1)
    b = -drop / jnp.where(falling, hi.r, -1)
    inverse = w * (a + w * ((3 * span - 2 * a - b) + w * (a + b - 2 * span)))
    near_lo = lo.g < -hi.g
    rate = jnp.where(near_lo, lo.r, hi.r)
    newton = jnp.where(near_lo, 0, span) - jnp.where(near_lo, lo.g, hi.g) / jnp.where(rate == 0, 1, rate)
    good = lambda dt: (dt > 0) & (dt < span)
    dt = jnp.where(falling & good(inverse), inverse, jnp.where(good(newton), newton, span / 2))
    return lo.dt + jnp.min(jnp.where(fallen, dt, span))
