"""Where, in a step whose ends are known, does a guard fall through zero?

Everything here looks at the value `g` and the rate `r` of the guards at points of one step, and says whether the step may be
taken, or where inside it the next real solver step should end. A proposal need only be good, never right: the solver's own
step decides.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._system.types import Flag, Scalar
from .guard_cubic import hidden_turn, Look, may_turn, predicted_fall
from .surfaces import Guards, Mask

# From one start: so many steps are tried to the turn of a guard inside a step, and so many onto its surface.
TURNS, TRIES = 40, 100
# After so many, every second one halves the bracket: a guard that is flat on one side draws the proposals to one end.
HALVE_AFTER = 6


class Bracket(eqx.Module):
    """Between which points of a step the first guard falls.

    While `active`, some guard that was positive at `lo` is no longer so at `hi`. `tries` counts the steps tried from the
    same start since one was last taken.
    """

    active: Flag
    lo: Look
    hi: Look
    tries: Int[Array, ""]


class Trial(eqx.Module):
    """A step that was tried. `up`: the guards that were strictly positive at its start. `keep`: whether the solver's error
    allows the step; in a bracket that plays no part, for the steps there are parts of one that it allowed."""

    start: Look
    up: Mask
    end: Look
    keep: Flag


class Resolution(eqx.Module):
    """What cannot be told apart. `h`: the time over which the flow changes. `straight`: the time in which it is a straight
    line to rounding. `close`: the time within which the order of two events is not determined. `instant`: the time's
    rounding. `noise`: the guards' rounding."""

    h: Scalar
    straight: Scalar
    close: Scalar
    instant: Scalar
    noise: Guards


class Verdict(eqx.Module):
    """What to do after a trial step: take it or not; where the next trial from the same start should end.

    `event` is the guard that fell, or -1; then `shift` is the time, far below the solver's error, from the step's end to
    the surface itself. `passed` marks a guard that fell unarmed. `together`: another guard fell at the same time.
    """

    take: Flag
    dt: Scalar
    bracket: Bracket
    event: Int[Array, ""]
    shift: Scalar
    passed: Mask
    together: Flag


def eventful(bracket: Bracket, trial: Trial) -> Flag:
    """Whether a trial step needs `judge`: a cheap necessary condition."""
    return bracket.active | jnp.any(_fallen(trial)) | may_turn(trial.start, trial.up, trial.end)


def calm(bracket: Bracket, trial: Trial) -> Verdict:
    """The verdict on a step in which no guard falls, and none may turn: take it if the solver's error allows."""
    none = jnp.zeros_like(trial.end.g, bool)
    zero = jnp.zeros_like(trial.end.dt)
    return Verdict(trial.keep, trial.end.dt, bracket, jnp.array(-1), zero, none, jnp.array(False))


def judge(bracket: Bracket, trial: Trial, armed: Mask, resolution: Resolution) -> Verdict:
    """The verdict on any step. `armed`: whether each guard may fire, at the trial's end."""
    end, eps = trial.end, jnp.finfo(trial.end.g.dtype).eps
    crossed = jnp.any(_fallen(trial))
    allowed = ~bracket.active & trial.keep
    turns, to_turn = hidden_turn(trial.start, trial.up, trial.end, resolution.noise)
    turns = turns & (bracket.tries < TURNS) & (to_turn > 4 * eps * jnp.maximum(resolution.h, end.dt))

    narrower = _narrowed(bracket, trial, enter=allowed & ~turns & crossed)
    candidates = trial.up & ~(narrower.hi.g > 0)
    leader, to_go = _leading(candidates, armed, end, resolution.close)
    # From here the surface is reached exactly, along a straight line on which the guard is linear too.
    near = (jnp.abs(to_go) <= resolution.straight) & (_bend(narrower, end, leader, to_go) <= resolution.instant)
    shut = ((narrower.hi.dt - narrower.lo.dt) <= 2 * eps * narrower.hi.dt) & crossed
    converged = bracket.active & (near | shut | (bracket.tries >= TRIES))
    # Where the bracket has shut around a guard that jumps, its value says nothing: the first that may fire.
    leader = jnp.where(near, leader, jnp.argmax(jnp.where(candidates, 1, 0) + jnp.where(candidates & armed, 1, 0)))

    event = converged & armed[leader]
    leads = jnp.arange(armed.size) == leader
    others = trial.up & armed & ~leads & (end.g <= jnp.maximum(-end.r, 0) * resolution.close)
    return Verdict(
        take=(allowed & ~turns & ~crossed) | converged,
        dt=jnp.where(allowed & turns, to_turn, _next_try(narrower, candidates)),
        bracket=Bracket(narrower.active & ~converged, narrower.lo, narrower.hi, bracket.tries),
        event=jnp.where(event, leader, -1),
        shift=jnp.where(event & near, to_go, 0),
        passed=converged & leads,
        together=event & jnp.any(others),
    )


def _fallen(trial: Trial) -> Mask:
    return trial.up & ~(trial.end.g > 0)


def _narrowed(bracket: Bracket, trial: Trial, enter: Flag) -> Bracket:
    """The bracket, moved to the trial's end on its side; where a search begins, a new one around the whole step."""
    crossed = jnp.any(_fallen(trial))
    lo = _choose_look(bracket.active & ~crossed, trial.end, _choose_look(enter, trial.start, bracket.lo))
    hi = _choose_look(enter | (bracket.active & crossed), trial.end, bracket.hi)
    return Bracket(bracket.active | enter, lo, hi, bracket.tries)


def _choose_look(pred: Flag, a: Look, b: Look) -> Look:
    return Look(jnp.where(pred, a.dt, b.dt), jnp.where(pred, a.g, b.g), jnp.where(pred, a.r, b.r))


def _leading(candidates: Mask, armed: Mask, end: Look, close: Scalar) -> tuple[Int[Array, ""], Scalar]:
    """The candidate whose surface is nearest in time to the trial's end, and that time, by its rate; infinite where it rises."""
    ahead = jnp.where(candidates, end.g / jnp.where(end.r < 0, -end.r, 0), jnp.inf)
    ahead = jnp.where(jnp.isfinite(ahead), ahead, jnp.inf)
    # Where several fall together, one that may fire leads.
    may_fire = candidates & armed & (ahead <= jnp.min(ahead) + close)
    leader = jnp.argmin(jnp.where(may_fire | ~jnp.any(may_fire), ahead, jnp.inf))
    return leader, jnp.where(candidates[leader], ahead[leader], jnp.inf)


def _bend(bracket: Bracket, end: Look, leader: Int[Array, ""], to_go: Scalar) -> Scalar:
    """The error of `to_go`, which follows from the guard's rate at the trial's end, by how that rate changes over the bracket."""
    lo, hi = bracket.lo, bracket.hi
    change = jnp.abs(hi.r - lo.r)[leader] / jnp.maximum(hi.dt - lo.dt, jnp.finfo(hi.dt.dtype).tiny)
    rate = jnp.abs(end.r[leader])
    return jnp.where(rate > 0, change * to_go**2 / jnp.where(rate > 0, rate, 1), 0)


def _next_try(bracket: Bracket, candidates: Mask) -> Scalar:
    """Where in the bracket the next step should end."""
    lo, hi = bracket.lo, bracket.hi
    halve = (bracket.tries > HALVE_AFTER) & (bracket.tries % 2 == 0)
    return jnp.where(halve, (lo.dt + hi.dt) / 2, predicted_fall(candidates, lo, hi))
