"""The loop of solver steps with event location: try a step, evaluate the guards at its end, advance.

A step in which a guard falls is repeated from the same start, shorter, until it ends on the guard's surface, or so near that a
short step leads on to the surface (see `crossing.py`). So the event's state has the accuracy of a real solver step. Because
location is part of the same loop, the vector field is compiled once, and in a batch no lane waits for another lane's event.

Step sizes carry no derivative. The tangents of the state pass through the steps.

A flow that starts within rounding of a guard's surface takes the guard for zero, so that this guard does not fall. Where a flow
ends that close before a surface, the next flow, which starts at this end, would therefore miss the transition: the event is
assigned to the end of the first flow.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PyTree

from .._numerics.one_kernel import in_one_kernel
from .._numerics.trees import MOST_PARTS, Parts, parts_of, select, whole, without_tangents
from .._system.types import Flag, Scalar, State, Time
from .crossing import (
    Bracket,
    close_in_time,
    judge,
    may_have_event,
    no_event,
    Resolution,
    straight_line,
    TOUCH,
    Trial,
    Verdict,
)
from .guard_polynomials import coarseness, cubic_error, fall_ahead, GuardValues, inner_points, may_turn, straight_fall
from .integrator import Integrator
from .loop_state import Attempt, Course, Ending, Progress, StepPoint, Watch
from .pace import Pace
from .step import later, Step, StepLengths
from .surfaces import first_least, Guards, Mask, rounding, start_threshold, Surfaces


def met_at_end(course: Course, last: StepPoint, up: Mask, h: Scalar, short_step: float, end: Ending) -> Ending:
    """The ending of a flow; if it ends at the end time a rounding before the surface of a guard, that guard is its event.

    **Arguments:** `last`, `up`: see `Progress`. `h`: the time over which the flow changes. `short_step`: the fraction of `h` over
    which a short step is exact up to rounding.
    """
    arrived = end.done & (end.event < 0) & ~(end.stalled | end.broken | end.accumulates)
    return jax.lax.cond(
        eqxi.unvmap_any(arrived), lambda: select(arrived, _met(course, last, up, h, short_step, end), end), lambda: end
    )


def _met(course: Course, last: StepPoint, up: Mask, h: Scalar, short_step: float, end: Ending) -> Ending:
    """`met_at_end` for a flow that ends at the end time."""
    surfaces, t, x = course.surfaces, last.t, whole(last.x)
    g, falling = last.g, jnp.maximum(-last.r, 0)
    ahead = g / jnp.where(falling > 0, falling, 1)
    # The next flow computes rounding error and first step anew, and may find other numbers of the same size: hence the factor 2.
    near = g <= 2 * start_threshold(rounding(surfaces, t, x, course.args)[0], h, last.r)
    met = up & (g > 0) & near & (falling > 0) & (ahead <= short_step * h) & ~surfaces.is_limit
    met = met & surfaces.armed(t, x, course.args)
    event = first_least(jnp.where(met, ahead, jnp.inf))
    others = met & (jnp.arange(met.size) != event)
    here = dataclasses.replace(end, event=event, shift=ahead[event], together=others)
    return select(jnp.any(met), here, end)


# The carry at the start of an arc; where the flow cannot go on, with the ending of the arc.
Entry = Callable[[Course, Progress], Progress]
# A step aims at a surface that a straight line would reach within this many times the next step.
SLOWER = 4
# A flow is steep from where its steps are shorter than this fraction of the time since its start, and change the state by this
# fraction of its size. Steps of one length are longer; at a kink of the vector field in time the state hardly changes.
STEEP, STEEP_CHANGE = 1e-4, 1e-2
# The shortest step, as a fraction of the time: a flow that diverges ends here.
SHORTEST = 1e-30


def run(
    field: Callable,
    surfaces: Surfaces,
    t0: Time,
    x0: State,
    t1: Time,
    args: PyTree,
    integrator: Integrator,
    *,
    keep: bool,
    linear: tuple[bool, bool],
    ends: bool,
    owed: Guards | None = None,
    watch: Watch | None = None,
    entry: Entry | None = None,
    share: Scalar | float | None = None,
) -> Progress:
    """Steps along `field(t, x, args)` from `(t0, x0)` until a surface is met, the time is `t1`, or the integration fails.

    **Arguments:** `keep`: whether to keep the lengths of the steps. `linear`: `linear` and `exact` of `Course`. `ends`: whether a
    guard that is about to fall at `t1` counts as met, see `met_at_end`. `owed`: see `integrate`. `watch`: what to record of
    every step. `entry`: makes the carry at the start of the arc, with the ending where the flow cannot go on, and with the guards
    that rest on their surfaces; `None` if such guards are not checked. `share`: see `Pace`.
    """
    rests, (update, seen) = entry is not None, watch or (None, None)
    course, start = _begin(field, surfaces, t0, x0, t1, args, integrator, keep, linear, owed, seen, rests, share)
    if entry is not None and surfaces.count:
        start = entry(course, start)

    def body(now: Progress) -> Progress:
        attempt = try_step(course, now)
        after = advance(course, now, attempt, *evaluate_guards(course, now, attempt))
        return after if update is None else dataclasses.replace(after, seen=update(course, now, attempt, after))

    # Hazard: if the condition depends on one carried flag alone, XLA evaluates the loop in search of its trip count, and copies
    # everything the flag depends on (https://github.com/openxla/xla/pull/19194; 2.4 times slower in jaxlib 0.10.2). A second
    # carried number in the condition avoids the search.
    going = lambda now: ~now.end.done & (now.steps < integrator.max_steps)
    if keep:
        # Declared as a buffer, the array of lengths is updated in place.
        lengths = lambda now: now.taken.lengths
        steps = lambda start: eqxi.while_loop(going, body, start, kind="lax", buffers=lengths)  # pyright: ignore
    else:
        steps = lambda start: jax.lax.while_loop(going, body, start)
    last = in_one_kernel(steps)(start)
    if not integrator.fixed:
        # The number of steps is used up because no step is short enough.
        short = ~last.end.done & ~(last.h > _instant(last.last.t))
        last = dataclasses.replace(last, end=dataclasses.replace(last.end, stalled=last.end.stalled | short))
    if not (ends and surfaces.count):
        return last
    _, short_step = course.stretches
    at_end = lambda last, up, h, end: met_at_end(course, last, up, jnp.maximum(course.first, h), short_step, end)
    return dataclasses.replace(last, end=_aside(at_end, last.last, last.up, last.h, last.end))


def _begin(
    field,
    surfaces: Surfaces,
    t0,
    x0,
    t1,
    args,
    integrator: Integrator,
    keep: bool,
    linear: tuple[bool, bool],
    owed,
    seen,
    rests: bool,
    share,
) -> tuple[Course, Progress]:
    dtype, eps = x0.dtype, float(jnp.finfo(x0.dtype).eps)
    rtol, atol = integrator.tolerances(dtype)
    step = Step(integrator.solver, field, args, integrator.unroll, "lax", atol / rtol)
    # A surface met within rounding of t1 counts as met: integrate slightly beyond t1.
    t_stop = stop_gradient(t1 + (64 * eps * jnp.maximum(jnp.abs(t0), jnp.abs(t1)) if surfaces.count else 0))
    f0 = step.field(t0, x0)
    t, x, f, still = without_tangents((t0, x0, f0, args))
    pace = Pace(integrator, step, t, x, f, t_stop, None if share is None else stop_gradient(share))
    g, r = surfaces.rates(t, x, f, still)
    surfaces, g, noise, error = _with_leeway(surfaces, g, t, x, still, rtol, atol, rests)
    h, control = without_tangents(pace.init(step, t, x, t_stop))
    no, zero, none = jnp.array(False), jnp.zeros((), dtype), jnp.zeros(g.shape, bool)
    level = start_threshold(noise, h, r)
    unsound = ~jnp.all(jnp.isfinite(f))
    here = GuardValues(zero, g, r)
    course = Course(step, pace, surfaces, still, t, t_stop, (rtol, atol), noise, *linear, h, here, error)
    start = Progress(
        before=here,
        last=StepPoint(t0, zero, parts_of(x0), parts_of(f0), step.init(t0, x0, f0, h), g, r),
        dt=jnp.minimum(h, t_stop - t), h=h, control=control,
        up=g > level, g_max=jnp.maximum(jnp.where(jnp.isfinite(g), jnp.abs(g), 0), noise / (64 * eps)),
        bracket=Bracket(no, here, here, jnp.array(0)), steps=jnp.array(0),
        end=_at_once(
            surfaces, t, x, still, g, r, level, h, owed,
            _unless_outside(surfaces, g, x, Ending(
                (t_stop <= t) | unsound, jnp.array(-1), zero, none, zero,
                stalled=no, broken=unsound, accumulates=no, slides=no, back=no, at_once=no, beyond=no,
            )),
        ),
        taken=StepLengths(jnp.zeros(integrator.max_steps, dtype), jnp.array(0)) if keep else None, seen=seen,
    )  # fmt: skip
    return course, start


def _with_leeway(
    surfaces: Surfaces, g: Guards, t: Time, x: State, args: PyTree, rtol, atol, rests: bool
) -> tuple[Surfaces, Guards, Guards, Guards]:
    """The surfaces and their values `g`, with the limits of the domain moved outwards by rounding and the solver's error; the
    guards' rounding; and their error by rounding and the solver's, if guards may rest on their surfaces (`rests`).

    So a start on a limit is inside, and where a guard has the same zeros as a limit, the guard falls first.
    """
    if not (surfaces.limits or rests):
        return surfaces, g, *rounding(surfaces, t, x, args)
    noise, error = rounding(surfaces, t, x, args, atol + rtol * jnp.abs(x))
    if not surfaces.limits:
        return surfaces, g, noise, error
    beyond = noise + 8 * (error - noise) + 64 * float(jnp.finfo(x.dtype).eps) * jnp.abs(g)
    surfaces, g = surfaces.moved(jnp.where(jnp.isfinite(beyond), beyond, 0), g, args)
    return surfaces, g, jnp.where(surfaces.is_limit, 0, noise), error


def _unless_outside(surfaces: Surfaces, g: Guards, x: State, end: Ending) -> Ending:
    """The ending at the start; its event is a limit of the domain where the start is outside."""
    if not surfaces.limits:
        return end
    outside = surfaces.is_limit & ~(g > 0) & jnp.all(jnp.isfinite(x))
    event = jnp.where(jnp.any(outside), jnp.argmax(outside), -1)
    return dataclasses.replace(end, done=end.done | (event >= 0), event=event)


def _at_once(
    surfaces: Surfaces,
    t: Time,
    x: State,
    args: PyTree,
    g: Guards,
    r: Guards,
    level: Guards,
    h: Scalar,
    owed: Float[Array, " transitions"] | None,
    end: Ending,
) -> Ending:
    """The ending at the start; its event is the first guard that fires there. **Arguments:** `level`: the value up to which a
    guard is zero. `h`: the first step. `owed`: see `integrate`."""
    if surfaces.at_once is None and owed is None:
        return end
    falls = (g <= level) & (r < 0)
    # After an event the guard that fired is zero up to the rounding of the time.
    on_surface, fires = jnp.abs(g) <= start_threshold(level, jnp.abs(t) + h, -jnp.abs(r)), jnp.zeros(g.shape, bool)
    if owed is not None:
        owed = jnp.pad(owed, (0, surfaces.limits), constant_values=-1)
        on_surface = on_surface | ((owed >= 0) & falls & (g >= r * owed))
        fires = (owed >= 0) & falls & on_surface
    if surfaces.at_once is not None:
        # By rounding, a guard that has just risen from its surface may not be positive.
        fires = fires | (surfaces.at_once(args) & (g <= level) & ~(on_surface & (r > 0)))
    fires = fires & surfaces.armed(t, x, args) & ~surfaces.is_limit & ~end.broken
    first, met = jnp.argmax(fires), jnp.any(fires)
    beyond = ~(on_surface & falls)[first]
    here = dataclasses.replace(end, done=jnp.array(True), event=first, at_once=jnp.array(True), beyond=beyond)
    return select(met, here, end)


def try_step(course: Course, now: Progress) -> Attempt:
    """A solver step of length `now.dt` from the last point, cut short at the end time."""
    last, dt = now.last, stop_gradient(now.dt)
    left = course.left(last)
    final = dt >= left
    dt = jnp.where(final, left, dt)
    x, f = whole(last.x), whole(last.f)
    t1, late = later(last.t, last.late, dt)
    rate = _relative(course, *stop_gradient((x, f)))
    steep = stop_gradient((now.h <= STEEP * (last.t - course.t0)) & (now.h * rate >= STEEP_CHANGE))
    t1, x1, f1, error, memory, iterations = course.step(last.t, x, f, dt, last.memory, t1, steep)
    finite = jnp.all(jnp.isfinite(x1)) & jnp.all(jnp.isfinite(f1))
    error = jnp.where(finite, error, jnp.inf)
    keep, h, control = _aside(course.pace.after, dt, x, x1, error, now.control, now.steps)
    return Attempt(dt, t1, late, final, rate, x1, f1, memory, finite, keep, h, control, iterations)


def evaluate_guards(course: Course, now: Progress, attempt: Attempt) -> tuple[GuardValues, Verdict]:
    """The guards at the end of a trial step, and the verdict on the step."""
    g, r = _aside(course.surfaces.rates, attempt.t, attempt.x, attempt.f, course.args)
    end = GuardValues(attempt.dt, g, r)
    start = GuardValues(jnp.zeros_like(attempt.dt), now.last.g, now.last.r)
    error = None if course.linear else _aside(_cubic_error(course), start, end, now.last, attempt, now.resting)
    seen = course.surfaces.resolved(course.args)
    turn = may_turn(start, now.up, end, seen)
    trial = Trial(now.before, start, now.up, end, error, attempt.keep, seen, turn, _aside(_sinking(course), now, end))
    return end, _aside(_verdict(course), now.bracket, trial, now.last, attempt, now.h, now.g_max)


def _sinking(course: Course) -> Callable[..., tuple[Flag, Scalar] | None]:
    """Whether a guard has fallen from the surface on which it started and rested, and the length of a shorter trial step, which
    shows whether it rose before: 0 where the guard has just left the surface, and so did not rise.

    A guard that falls at the rate with which it started is not resting: it began to fall before.
    """

    def sinking(now: Progress, end: GuardValues) -> tuple[Flag, Scalar] | None:
        if now.resting is None:
            return None
        resting, at_rest = now.resting, lambda: (jnp.array(False), jnp.zeros_like(end.dt))

        def looked_at():
            depth, least = -end.g, _depth(course, now)
            falling = jnp.maximum(-course.start.r, 0) * (now.last.t - course.t0 + end.dt)
            sinks = resting & (depth > 2 * falling + least)
            # The depth grows with a power of the time. Of several guards, the deepest and the least power.
            deep = sinks & (depth > 64 * least)
            deepest = jnp.max(jnp.where(deep, depth / least, 0))
            power = jnp.clip(jnp.min(jnp.where(deep, end.dt * end.r / end.g, 16)), 1, 16)
            shorter = end.dt * jnp.clip((8 / deepest) ** (1 / power), 1e-3, 0.5)
            return jnp.any(sinks), jnp.where(deepest > 0, shorter, 0)

        # Of many guards few rest, if any.
        return jax.lax.cond(eqxi.unvmap_any(resting), looked_at, at_rest) if resting.size > MOST_PARTS else looked_at()

    return sinking


def _depth(course: Course, now: Progress) -> Guards:
    """How far below its surface a guard that stays on it may be found, by rounding and the errors of the steps so far."""
    return (1 + now.steps) * course.error + jnp.abs(course.start.g)


def _cubic_error(course: Course) -> Callable[..., Guards]:
    def error(start: GuardValues, end: GuardValues, last: StepPoint, attempt: Attempt, resting: Mask | None) -> Guards:
        t, x = inner_points(last.t, whole(last.x), whole(last.f), attempt.dt, attempt.x, attempt.f)
        inner = jax.vmap(lambda t, x: course.surfaces.values(t, x, course.args))(t, x)
        noise = course.noise if resting is None else jnp.where(resting, course.error, course.noise)
        error = cubic_error(start, end, inner, noise)
        return jnp.where(course.surfaces.resolved(course.args), error, 0)

    return error


def _verdict(course: Course) -> Callable[..., Verdict]:
    surfaces, (rtol, atol) = course.surfaces, course.tolerances
    eps = float(jnp.finfo(course.noise.dtype).eps)
    straight, short_step = course.stretches
    short_steps = (short_step > straight) & (course.linear | ~surfaces.is_limit)

    def verdict(bracket: Bracket, trial: Trial, last: StepPoint, attempt: Attempt, h, g_max) -> Verdict:
        if not surfaces.count:
            return no_event(bracket, trial)
        t, x, f = attempt.t, attempt.x, attempt.f
        armed_at = lambda ahead: surfaces.armed(*straight_line(t, x, f, ahead), course.args)

        def searched():
            close = close_in_time(t, course.t0, rtol, atol)
            # Where the flow is steep, its own rounding is that of a short time.
            time_rounding = 4 * eps * jnp.clip(jnp.abs(t), h, 64 * h)
            touch_tolerance = TOUCH["linear" if course.linear else "curved"] * eps * g_max
            resolution = Resolution(
                h, straight * h, short_step * h, close, time_rounding, course.noise, touch_tolerance
            )
            return judge(bracket, trial, coarse(), armed_at, resolution, surfaces.is_limit, short_steps)

        def coarse() -> Scalar:
            if trial.error is None:
                return jnp.zeros_like(attempt.dt)
            error = trial.error
            all_along = lambda: coarseness(trial.start, trial.end, error)
            return jax.lax.cond(eqxi.unvmap_any(trial.may_be_coarse), all_along, lambda: jnp.zeros_like(attempt.dt))

        # Under `vmap` a `cond` with a batched flag runs both branches in every step, so one flag is used for the whole batch.
        return jax.lax.cond(eqxi.unvmap_any(may_have_event(bracket, trial)), searched, lambda: no_event(bracket, trial))

    return verdict


def advance(course: Course, now: Progress, attempt: Attempt, end: GuardValues, verdict: Verdict) -> Progress:
    """The carry after a trial step: the step taken or not, and the next step to try."""
    last, take, searching = now.last, verdict.take, now.bracket.active
    rejected = ~searching & ~attempt.keep
    # The controller is updated by the steps that it proposed, not by those that end on a turn or on a surface, or just beyond.
    short = attempt.dt < now.h / 4
    proposed = rejected | (take & ~searching & (now.bracket.tries == 0) & ~short)
    control = select(proposed, attempt.control, now.control)
    h = jnp.where(proposed, attempt.h, now.h)
    h = stop_gradient(h if course.pace.fixed else jnp.where(verdict.refused, verdict.dt, h))
    reached = StepPoint(attempt.t, attempt.late, parts_of(attempt.x), parts_of(attempt.f), attempt.memory, end.g, end.r)
    point = select(take, reached, last)
    up = (end.g > course.noise) | (now.up & (end.g > 0))
    next_up = jnp.where(take, up & ~verdict.passed, now.up)
    resting, fallen = now.resting, jnp.array(False)
    if resting is not None:
        fallen = jnp.any(resting & (last.g < -course.noise - jnp.abs(course.start.g)))
        resting = jnp.where(take, resting & ~up & (end.g >= -_depth(course, now)), resting)
    onwards = jnp.minimum(h, _just_beyond_surface(course, now, attempt, end, next_up, h))
    stalled = _aside(_stalls(course), rejected, h, last.t, last.x, last.f, attempt.rate)
    tries = jnp.where(take | rejected, 0, verdict.bracket.tries + 1)
    # Where the flow changes sharply at a surface, a step just beyond is rejected. The controller would begin with a fifth of its
    # length and aim at the surface again: try to end just before instead, once.
    shorter = jnp.minimum(h, verdict.dt)
    shorter = jnp.where(attempt.dt < now.h, jnp.maximum(shorter, 0.9 * attempt.dt), shorter)
    return Progress(
        before=select(take, GuardValues(-attempt.dt, last.g, last.r), now.before),
        last=point,
        dt=stop_gradient(
            jnp.where(take, jnp.minimum(onwards, course.left(point)), jnp.where(rejected, shorter, verdict.dt))
        ),
        h=h,
        control=control,
        up=next_up,
        g_max=jnp.maximum(now.g_max, jnp.where(take & jnp.isfinite(end.g), jnp.abs(end.g), 0)),
        bracket=Bracket(verdict.bracket.active, verdict.bracket.lo, verdict.bracket.hi, tries),
        steps=now.steps + 1,
        end=Ending(
            done=(verdict.event >= 0) | (take & attempt.final & ~searching) | stalled | verdict.accumulates,
            event=verdict.event,
            shift=verdict.shift,
            together=verdict.together,
            turn=verdict.turn,
            stalled=stalled,
            broken=stalled & ~attempt.finite,
            accumulates=verdict.accumulates,
            slides=now.end.slides,
            back=verdict.accumulates & fallen,
            at_once=now.end.at_once,
            beyond=now.end.beyond,
        ),
        taken=now.taken.tried(attempt.dt, take) if now.taken else None,
        seen=now.seen,
        resting=resting,
    )


def _stalls(course: Course) -> Callable[..., Flag]:
    """Whether a rejected step leaves none to try: the next, `h`, is below the resolution of the time.

    A flow may be so steep at a surface, such as that of a spike, that steps below the resolution of the time lead on to it. These
    are tried: they change the state, and the vector field does not change over the resolution of the time.
    """
    step = course.step

    def stalls(rejected: Flag, h: Scalar, t: Time, x: Parts, f: Parts, rate: Scalar) -> Flag:
        short = rejected & ~(h > _instant(t))
        tried = (h * rate > float(jnp.finfo(h.dtype).eps)) & (h > SHORTEST * jnp.abs(t))
        if step.timed(t, whole(x)):

            def lasting() -> Flag:
                here, flow = whole(x), whole(f)
                return _relative(course, here, step.field(t + _instant(t), here) - flow) <= 1e-3 * rate

            tried = tried & jax.lax.cond(eqxi.unvmap_any(short), lasting, lambda: jnp.array(False))
        return short & ~tried

    return stalls


def _relative(course: Course, x: State, change: State) -> Scalar:
    """The largest change of a coordinate, relative to its size."""
    return jnp.max(jnp.abs(change) / (course.step.unit + jnp.abs(x)))


def _instant(t: Time) -> Scalar:
    """The resolution of the time."""
    return stop_gradient(4 * float(jnp.finfo(t.dtype).eps) * jnp.abs(t))


def _just_beyond_surface(
    course: Course, now: Progress, attempt: Attempt, end: GuardValues, up: Mask, h: Scalar
) -> Scalar:
    """The time from the end of a step to just beyond a surface that is predicted ahead, within the next step `h`; infinite where
    there is none. A trial of length `h` would only be cut short there.

    The trial to just beyond the surface ends so near it that the trial after ends on it: the error of the guard's polynomial is
    of second order in the distance from the polynomial's points.
    """
    straight, short_step = course.stretches
    never = jnp.full_like(h, jnp.inf)
    if not course.surfaces.count or short_step <= straight:
        return never
    # No further than twice the time between the first and the last point of the polynomial.
    within = jnp.minimum(h, 2 * (attempt.dt - now.before.dt))
    # One flag for the batch, and the guards of each lane by themselves: no lane depends on its neighbours.
    falling = up & (end.g > course.noise) & (straight_fall(end) <= SLOWER * within)
    start = GuardValues(jnp.zeros_like(attempt.dt), now.last.g, now.last.r)
    predicted = lambda: fall_ahead(falling, now.before, start, end, within) + 0.03 * short_step * h
    return jax.lax.cond(eqxi.unvmap_any(jnp.any(falling)), predicted, lambda: never)


def _aside(fn: Callable, *arguments: PyTree) -> Any:
    """`fn` of the arguments without their derivatives. Under `jit` it is traced once, and each layer of differentiation treats
    it as one equation."""
    arrays, rest = eqx.partition(arguments, eqx.is_array)
    return jax.jit(lambda arrays: fn(*eqx.combine(arrays, rest)))(stop_gradient(arrays))
