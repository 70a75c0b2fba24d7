r"""Event location within one solver step: does a guard fall through zero in the step, and where should the next trial end?

The functions take the values `g` and the rates `r` of the guards at points of one step. They decide whether the step is taken,
or how long the next trial step from the same start is. A proposed length need not be exact, because the trial is a real step
of the solver.

Event location ends within a short time of the surface, so short that one step of Heun's third-order method over this time is
exact up to rounding. A straight line leads from its end to the surface, over the time left because the guard's rate changes.

Source: Hairer, Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, Sec. II.1, for the method.
"""

from collections.abc import Callable

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Int

from .._numerics.trees import select
from .._system.types import Flag, Scalar, State, Time
from .guard_polynomials import (
    GuardValues,
    hidden_turn,
    may_be_coarse,
    no_turn,
    predicted_fall,
    shortened,
    straight_fall,
)
from .surfaces import first_least, Guards, Mask


def stretches(stiff: bool, fixed: bool, linear: bool, dtype) -> tuple[float, float]:
    """The fractions of a step over which the flow is a straight line, and over which `reach_surface` is exact, up to rounding."""
    eps = float(jnp.finfo(dtype).eps)
    # The error of a fixed step may be far larger than the tolerance, so the time to the surface must itself be rounding. An
    # explicit method is of no use in a stiff flow. A guard that is not linear may bend faster than the flow.
    straight = 64 * eps if fixed else 0.25 * eps**0.5
    return straight, straight if fixed or stiff or not linear else 0.1 * eps**0.25


def straight_line(t: Time, x: State, f: State, s: Scalar) -> tuple[Time, State]:
    """The point a time `s` after `(t, x)`, where the vector field is `f`, up to `s**2`."""
    return t + s, x + s * f


def onto_surface(t: Time, x: State, f: State, s: Scalar) -> tuple[Time, State, State]:
    """`(t, x, f)` on a surface, or below it by less than rounding, a short time `s` after `(t, x)` along a straight line.

    Hazard: a ball that lands above the floor by less than rounding, and rests, falls again.
    """
    s = s + 4 * float(jnp.finfo(x.dtype).eps) * jnp.abs(s)
    return *straight_line(t, x, f, s), f


def reach_surface(
    field: Callable[[Time, State], State],
    height: Callable[[Time, State, State], tuple[Scalar, Scalar]],
    t: Time,
    x: State,
    f: State,
    s: Scalar,
) -> tuple[Time, State, State]:
    """`(t, x, vector field)` on a surface that the flow meets about a time `s` after `(t, x)`.

    **Arguments:** `height`: value and rate of the guard at `(t, x)`, where the vector field is `f`. `s`: to first order; zero
    where there is no surface. Derivatives are those of the flow over a fixed time.
    """
    s = stop_gradient(s)
    second = field(t + s / 3, x + s / 3 * f)
    third = field(t + 2 / 3 * s, x + 2 / 3 * s * second)
    t, x, f = t + s, x + s / 4 * (f + 3 * third), f + 1.5 * (third - f)
    g, rate = height(t, x, f)
    left = stop_gradient(-g / rate)
    left = jnp.where((s != 0) & (jnp.abs(left) < jnp.abs(s)), left, 0)
    return onto_surface(t, x, f, left)


# The largest numbers of trial steps from one start: until the guards are resolved, to the turn of a guard inside a step, and
# onto a guard's surface. A discontinuous guard is resolved by no step.
REFUSALS, TURNS, TRIES = 20, 40, 100
# After this number of trials, every second one halves the bracket: where a guard is flat on one side, interpolation proposes
# points near one end only.
HALVE_AFTER = 6
# A guard touches its surface if it turns within this number of roundings of its largest value from zero. A guard that is not
# linear, such as a square, may be far more accurate near zero than at its largest value.
TOUCH = {"linear": 8, "curved": 1}


class Bracket(eqx.Module):
    """Two points of a step between which the first guard falls.

    While `active`, some guard that is positive at `lo` is not positive at `hi`. `tries`: the number of trial steps since a
    step was last taken.
    """

    active: Flag
    lo: GuardValues
    hi: GuardValues
    tries: Int[Array, ""]


class Trial(eqx.Module):
    """A trial step. `before`: the guards at a time before its start, see `Progress`. `up`: the guards that were strictly
    positive at its start. `error`: of the guards' cubics (see `guard_polynomials.py`), `None` if the guards are linear. `keep`:
    whether the controller accepts the step's error; not used in a bracket, whose trials are parts of a step that was accepted.
    `seen`: the guards whose turns may hide an event, all but limits that are left only after a guard has fallen. `may_turn`:
    whether one of these may turn. `sinking`: whether a guard has fallen from the surface on which it started, without a rise,
    and the length of a trial step in which it falls less far, 0 where no shorter one shows more; `None` if such guards pass."""

    before: GuardValues
    start: GuardValues
    up: Mask
    end: GuardValues
    error: Guards | None
    keep: Flag
    seen: Mask
    may_turn: Flag
    sinking: tuple[Flag, Scalar] | None = None

    @property
    def may_be_coarse(self) -> Flag:
        """Whether the step may be too long for a guard."""
        return jnp.array(False) if self.error is None else may_be_coarse(self.start, self.end, self.error)


class Resolution(eqx.Module):
    """The time scales and tolerances of event location. `h`: the time over which the flow changes, the controller's step.
    `straight`: the time over which the flow is a straight line up to rounding. `short_step`: the time over which a short step,
    taken without an error estimate, is exact up to rounding. `close`: the time within which the order of two events is not
    determined. `time_rounding`: the rounding error of the time. `noise`: the guards' rounding errors. `touch_tolerance`: the
    distance from zero within which a guard that turns touches its surface."""

    h: Scalar
    straight: Scalar
    short_step: Scalar
    close: Scalar
    time_rounding: Scalar
    noise: Guards
    touch_tolerance: Guards


class Verdict(eqx.Module):
    """The decision on a trial step. `take`: whether it is taken. `dt`: otherwise, the length of the next trial step. `refused`:
    whether the step was too long for a guard.

    `event`: the guard that fell, or -1. `shift`: the time from the step's end to that guard's surface, to first order, at most
    the `short_step` of the resolution. `passed`: marks a guard that fell while not armed. `together`: the other guards that
    fell at the same time. `turn`: how fast the rate of that guard changes there, infinite where it touches its surface.
    `accumulates`: a guard rises from its surface and falls again in a time that no step resolves, or falls from it without a
    rise.
    """

    take: Flag
    dt: Scalar
    refused: Flag
    bracket: Bracket
    event: Int[Array, ""]
    shift: Scalar
    passed: Mask
    together: Mask
    turn: Scalar
    accumulates: Flag


def close_in_time(t: Scalar, t0: Scalar, rtol: float | Scalar, atol: float | Scalar) -> Scalar:
    """The time within which the order of two events may not be determined, at the time `t` of a flow from `t0`."""
    return 10 * (rtol * jnp.abs(t) + (atol + rtol) * (t - t0))


def may_have_event(bracket: Bracket, trial: Trial) -> Flag:
    """Whether a trial step needs `judge`: a cheap necessary condition."""
    sinks = jnp.array(False) if trial.sinking is None else trial.sinking[0]
    return bracket.active | jnp.any(_fallen(trial)) | trial.may_turn | trial.may_be_coarse | sinks


def no_event(bracket: Bracket, trial: Trial) -> Verdict:
    """The verdict on a step in which no guard falls or may turn: take the step if the controller accepts its error."""
    none = jnp.zeros_like(trial.end.g, bool)
    zero, no = jnp.zeros_like(trial.end.dt), jnp.array(False)
    return Verdict(trial.keep, trial.end.dt, no, bracket, jnp.array(-1), zero, none, none, zero, no)


def judge(
    bracket: Bracket,
    trial: Trial,
    coarse: Scalar,
    armed_at: Callable[[Scalar], Mask],
    resolution: Resolution,
    is_limit: np.ndarray,
    short_steps: np.ndarray,
) -> Verdict:
    """The verdict on any trial step.

    **Arguments:** `coarse`: above 1, the step is too long for a guard. `armed_at`: whether each guard may fire, a short time
    after the step's end. `is_limit`: see `Surfaces`. `short_steps`: the surfaces for which the `short_step` is more than a
    straight line: they bend no faster than the flow, whose rates are exact.
    """
    end, eps = trial.end, jnp.finfo(trial.end.g.dtype).eps
    crossed = jnp.any(_fallen(trial))
    allowed = ~bracket.active & trial.keep
    turns, hops, to_turn, there = jax.lax.cond(
        eqxi.unvmap_any(trial.may_turn),
        lambda: hidden_turn(trial.start, trial.up, end, trial.seen, resolution.noise, resolution.touch_tolerance),
        lambda: no_turn(end),
    )
    least = 4 * eps * jnp.maximum(resolution.h, end.dt)
    sinks, shorter = (jnp.array(False), end.dt) if trial.sinking is None else trial.sinking
    if trial.sinking is not None:
        # From its surface a guard rises for longer than the rounding of time, or not at all.
        least = jnp.maximum(least, resolution.time_rounding)
    resolved = to_turn > least
    turns = turns & (bracket.tries < TURNS) & resolved
    sinks = allowed & sinks & ~turns
    descends = sinks & (shorter > least) & (bracket.tries < TURNS)
    if trial.sinking is None:
        accumulates = allowed & hops & ~resolved
    else:
        # What a guard sinks through may be a limit of the domain too.
        accumulates = sinks & ~descends & ~jnp.any(_transitions(_fallen(trial), is_limit))
        crossed = crossed & ~accumulates

    enter = allowed & ~turns & ~descends & crossed
    narrower = _narrowed(bracket, trial, enter)
    candidates = trial.up & ~(narrower.hi.g > 0)
    soon = trial.up & (end.g <= jnp.maximum(-end.r, 0) * resolution.close)
    # A guard that is about to fall where the flow leaves the domain fires.
    near_now = candidates | soon if is_limit.any() else candidates
    ahead = _ahead(near_now, end)
    soonest = jnp.min(ahead)
    armed = armed_at(jnp.where(jnp.abs(soonest) <= resolution.short_step, soonest, 0))
    leader, to_go = _leading(near_now, ahead, armed, resolution.close, is_limit)
    bend = _bend(_turn(narrower, leader), end, leader, to_go)
    # From here a straight line reaches the surface up to rounding, and along it the guard is linear.
    near = (jnp.abs(to_go) <= resolution.straight) & (bend <= resolution.time_rounding)
    leads = jnp.arange(armed.size) == leader
    if short_steps.any():
        # Or a short step reaches the surface, and no other guard falls on the way or soon after. That step leaves a straight
        # line as long as `bend`, whose own error is `beyond`.
        crowded = jnp.any(trial.up & ~leads & (end.g <= jnp.maximum(-end.r, 0) * 4 * jnp.abs(to_go)))
        beyond = bend * (bend / jnp.where(to_go == 0, 1, to_go)) ** 2
        short = (
            (jnp.abs(to_go) <= resolution.short_step)
            & (bend <= resolution.straight)
            & (beyond <= resolution.time_rounding)
        )
        short = short if short_steps.all() else short & jnp.asarray(short_steps)[leader]
        near = near | (short & ~crowded)
    shut = ((narrower.hi.dt - narrower.lo.dt) <= 2 * eps * narrower.hi.dt) & crossed
    converged = (bracket.active & (near | shut | (bracket.tries >= TRIES))) | (enter & near & bool(short_steps.any()))
    # A step that ends beyond a surface is checked when it has been cut short there.
    checked = converged | (~crossed & (allowed | bracket.active))
    long = (bracket.tries < REFUSALS) & (end.dt > 128 * resolution.time_rounding)
    refused = (coarse > 1) & checked & long
    converged = converged & ~refused
    # Where the bracket has shut around a discontinuous guard, values give no time: take the first guard that may fire.
    leader = jnp.where(near, leader, jnp.argmax(jnp.where(candidates, 1, 0) + jnp.where(candidates & armed, 1, 0)))
    touching = _transitions(there & armed, is_limit)
    touched = allowed & ~turns & ~descends & ~crossed & ~refused & jnp.any(touching)
    leader = jnp.where(touched, jnp.argmax(touching), leader)

    event = touched | (converged & armed[leader])
    leads = jnp.arange(armed.size) == leader
    searching = narrower.active & ~converged & ~refused
    # A step whose error is too large and in which a guard falls is shortened to end just beyond the surface.
    rejected = ~bracket.active & ~trial.keep & crossed & jnp.all(jnp.isfinite(end.g) & jnp.isfinite(end.r))
    lo, hi = select(rejected, (trial.start, end), (narrower.lo, narrower.hi))
    candidates = jnp.where(rejected, _fallen(trial), candidates)
    foreseen = predicted_fall(candidates, trial.before, lo, hi)
    # Together with the event, which a straight line may still have to reach from the trial's end.
    still = jnp.where(touched | ~jnp.isfinite(to_go), 0, jnp.maximum(to_go, 0))
    falls = trial.up & (end.g <= jnp.maximum(-end.r, 0) * (resolution.close + still))
    others = _transitions(trial.up & armed, is_limit) & ~leads & falls
    return Verdict(
        take=(allowed & ~turns & ~descends & ~crossed & ~refused & ~accumulates) | converged,
        dt=jnp.select(
            [refused, rejected, allowed & turns, descends, searching],
            [
                shortened(end.dt, coarse),
                jnp.minimum(end.dt, foreseen + 0.03 * resolution.short_step),
                to_turn,
                shorter,
                _next_try(narrower, foreseen),
            ],
            end.dt,
        ),
        refused=refused,
        bracket=Bracket(searching, narrower.lo, narrower.hi, bracket.tries),
        event=jnp.where(event, leader, -1),
        shift=jnp.where(event & near & ~touched, to_go, 0),
        passed=converged & leads,
        together=event & others,
        turn=jnp.where(touched, jnp.inf, _turn(narrower, leader)),
        accumulates=accumulates,
    )


def _fallen(trial: Trial) -> Mask:
    return trial.up & ~(trial.end.g > 0)


def _narrowed(bracket: Bracket, trial: Trial, enter: Flag) -> Bracket:
    """The bracket with one end moved to the trial's end; where a search begins (`enter`), a bracket around the whole step."""
    crossed = jnp.any(_fallen(trial))
    lo = select(bracket.active & ~crossed, trial.end, select(enter, trial.start, bracket.lo))
    hi = select(enter | (bracket.active & crossed), trial.end, bracket.hi)
    return Bracket(bracket.active | enter, lo, hi, bracket.tries)


def _ahead(candidates: Mask, end: GuardValues) -> Guards:
    """The time from the trial's end to the surface of each candidate, `g / -r`; infinite where it rises, or all of the trial
    before where it has fallen and rises again."""
    ahead = jnp.where(candidates, straight_fall(end), jnp.inf)
    return jnp.where(jnp.isfinite(ahead), ahead, jnp.where(candidates & (end.g < 0), -end.dt, jnp.inf))


def _leading(
    candidates: Mask, ahead: Guards, armed: Mask, close: Scalar, is_limit: np.ndarray
) -> tuple[Int[Array, ""], Scalar]:
    """The candidate whose surface is nearest in time to the trial's end, and that time."""
    # Where several fall at the same time, one that may fire is preferred.
    may_fire = candidates & armed & (ahead <= jnp.min(ahead) + close)
    transitions = _transitions(may_fire, is_limit)
    if is_limit.any():
        may_fire = jnp.where(jnp.any(transitions), transitions, may_fire)
    leader = first_least(jnp.where(may_fire | ~jnp.any(may_fire), ahead, jnp.inf))
    return leader, jnp.where(candidates[leader], ahead[leader], jnp.inf)


def _transitions(guards: Mask, is_limit: np.ndarray) -> Mask:
    """The guards that have a transition, without the limits of a domain."""
    return guards & ~is_limit if is_limit.any() else guards


def _turn(bracket: Bracket, leader: Int[Array, ""]) -> Scalar:
    """How fast the rate of a guard changes over the bracket, in absolute value."""
    lo, hi = bracket.lo, bracket.hi
    return jnp.abs((hi.r - lo.r)[leader]) / jnp.maximum(hi.dt - lo.dt, jnp.finfo(hi.dt.dtype).tiny)


def _bend(turn: Scalar, end: GuardValues, leader: Int[Array, ""], to_go: Scalar) -> Scalar:
    """The error of `to_go`, which follows from the guard's rate at the trial's end, where that rate changes by `turn`."""
    rate = jnp.abs(end.r[leader])
    return jnp.where(rate > 0, turn * to_go**2 / jnp.where(rate > 0, rate, 1), 0)


def _next_try(bracket: Bracket, foreseen: Scalar) -> Scalar:
    """The length of the next trial step, which ends inside the bracket."""
    halve = (bracket.tries > HALVE_AFTER) & (bracket.tries % 2 == 0)
    return jnp.where(halve, (bracket.lo.dt + bracket.hi.dt) / 2, foreseen)
