"""The loop of solver steps: try one, look at the guards at its end, advance.

A step in which a guard falls is taken again, shorter, from the same start, until it ends on the guard's surface: so the
event's state is that of a real solver step, and has its accuracy. Because location is more of the same loop, a system has
one copy of its vector field to compile, and in a batch a lane that locates does not make the others wait.

Step sizes carry no derivative. The state's tangents pass through the steps.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Int, PyTree

from .._system.types import Flag, Scalar, State, Time
from .crossing import Bracket, calm, eventful, judge, Resolution, Trial, Verdict
from .guard_cubic import Look
from .integrator import Integrator
from .pace import Pace
from .retrace import Taken
from .step import Step
from .surfaces import Guards, Mask, rounding, Surfaces


class Point(eqx.Module):
    """The end of the last step taken: time, state, the vector field there, the solver's memory, the guards and their rates."""

    t: Time
    # By coordinate: so a batch, and a batch of tangents, lies contiguous in each.
    x: tuple[Scalar, ...]
    f: tuple[Scalar, ...]
    memory: Any
    g: Guards
    r: Guards


class Ending(eqx.Module):
    """Why the loop ends. `event`: the guard that fell, or -1. `shift`: the time from the last step's end to its surface.
    `together`: another guard fell at the same time. `stalled`: the step size vanished. `broken`: the state is not finite."""

    done: Flag
    event: Int[Array, ""]
    shift: Scalar
    together: Flag
    stalled: Flag
    broken: Flag


class Progress(eqx.Module):
    """What the loop carries. `dt`: the step to try. `h`: what the controller proposes. `up`: the guards that are strictly
    positive since they last rose. `r_max`: the largest rate of each so far. `steps`: how many were tried. `taken`: the lengths of
    the steps, where they are kept."""

    last: Point
    dt: Scalar
    h: Scalar
    control: Any
    up: Mask
    r_max: Guards
    bracket: Bracket
    steps: Int[Array, ""]
    end: Ending
    taken: Taken | None


class Attempt(eqx.Module):
    """A step from the last point. `final`: it ends where time does. `keep`, `h`, `control`: what the controller says to it."""

    dt: Scalar
    final: Flag
    x: State
    f: State
    memory: Any
    finite: Flag
    keep: Flag
    h: Scalar
    control: Any


@dataclasses.dataclass(frozen=True)
class Course:
    """What does not change from step to step."""

    step: Step
    pace: Pace
    surfaces: Surfaces
    args: PyTree
    t0: Time
    t_stop: Time
    tolerances: tuple[float | Scalar, float | Scalar]
    noise: Guards


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
) -> Progress:
    """Steps along `field(t, x, args)` from `(t0, x0)` until a surface is met, or the time is `t1`, or there is no next step.
    `keep`: keep the steps' lengths."""
    course, start = _begin(field, surfaces, t0, x0, t1, args, integrator, keep)

    def body(now: Progress) -> Progress:
        attempt = try_step(course, now)
        return advance(course, now, attempt, *look(course, now, attempt))

    # A condition of one carried flag makes XLA evaluate the loop in search of its trip count, and copy all that the flag depends
    # on (https://github.com/openxla/xla/pull/19194; 2.4 times slower in jaxlib 0.10.2). A second number ends the search.
    going = lambda now: ~now.end.done & (now.steps < integrator.max_steps)
    if keep:
        # A list of lengths that is carried as a buffer is written in place.
        return eqxi.while_loop(going, body, start, kind="lax", buffers=lambda now: now.taken.lengths)  # pyright: ignore
    return jax.lax.while_loop(going, body, start)


def _begin(field, surfaces: Surfaces, t0, x0, t1, args, integrator: Integrator, keep: bool) -> tuple[Course, Progress]:
    dtype, eps = x0.dtype, float(jnp.finfo(x0.dtype).eps)
    rtol, atol = integrator.tolerances(dtype)
    step = Step(integrator.solver, field, args, integrator.unroll, "lax", atol / rtol)
    # A surface met within rounding of t1 counts: look a little beyond it.
    t_stop = stop_gradient(t1 + (64 * eps * jnp.maximum(jnp.abs(t0), jnp.abs(t1)) if surfaces.count else 0))
    f0 = step.field(t0, x0)
    t, x, f, still = without_tangents((t0, x0, f0, args))
    pace = Pace(integrator, step, t, x, f, t_stop)
    course = Course(step, pace, surfaces, still, t, t_stop, (rtol, atol), rounding(surfaces, t, x, still, atol))

    g, r = surfaces.rates(t, x, f, still)
    h, control = without_tangents(pace.init(step, t, x, t_stop))
    no, zero = jnp.array(False), jnp.zeros((), dtype)
    unsound = ~jnp.all(jnp.isfinite(f))
    here = Look(zero, g, r)
    start = Progress(
        last=Point(t0, tuple(x0), tuple(f0), step.init(t0, x0, h), g, r),
        dt=jnp.minimum(h, t_stop - t), h=h, control=control,
        up=g > course.noise, r_max=jnp.abs(r),
        bracket=Bracket(no, here, here, jnp.array(0)), steps=jnp.array(0),
        end=Ending((t_stop <= t) | unsound, jnp.array(-1), zero, together=no, stalled=no, broken=unsound),
        taken=Taken(jnp.zeros(integrator.max_steps, dtype), jnp.array(0)) if keep else None,
    )  # fmt: skip
    return course, start


def try_step(course: Course, now: Progress) -> Attempt:
    """A step of the solver from the last point, as long as it is to be, but not beyond the end of time."""
    last, dt = now.last, stop_gradient(now.dt)
    left = stop_gradient(course.t_stop - last.t)
    final = dt >= left
    dt = jnp.where(final, left, dt)
    x, f = jnp.stack(last.x), jnp.stack(last.f)
    x1, f1, error, memory = course.step(last.t, x, f, dt, last.memory)
    finite = jnp.all(jnp.isfinite(x1)) & jnp.all(jnp.isfinite(f1))
    error = jnp.where(finite, error, jnp.inf)
    keep, h, control = _aside(course.pace.after, dt, x, x1, error, now.control)
    return Attempt(dt, final, x1, f1, memory, finite, keep, h, control)


def look(course: Course, now: Progress, attempt: Attempt) -> tuple[Look, Verdict]:
    """The guards at the end of a step, and the verdict on it."""
    t1 = now.last.t + attempt.dt
    g, r = _aside(course.surfaces.rates, t1, attempt.x, attempt.f, course.args)
    end = Look(attempt.dt, g, r)
    start = Look(jnp.zeros_like(attempt.dt), now.last.g, now.last.r)
    trial = Trial(start, now.up, end, attempt.keep)
    return end, _aside(_verdict(course), now.bracket, trial, t1, attempt.x, now.h)


def _verdict(course: Course) -> Callable[..., Verdict]:
    surfaces, (rtol, atol) = course.surfaces, course.tolerances
    eps = float(jnp.finfo(course.noise.dtype).eps)
    # A short step ends on a straight line along the field, up to the square of its time. So it does of a fixed step, up to the
    # step's own error, which may be large: there the time itself is to be rounding.
    straight = 64 * eps if course.pace.fixed else 0.25 * eps**0.5

    def verdict(bracket: Bracket, trial: Trial, t, x, h) -> Verdict:
        if not surfaces.count:
            return calm(bracket, trial)
        close = 10 * (rtol * jnp.abs(t) + (atol + rtol) * (t - course.t0))
        resolution = Resolution(h, straight * h, close, 4 * eps * jnp.abs(t), course.noise)
        # Under `vmap` a `cond` of a batched flag runs both branches in every step: so the flag is that of the whole batch.
        return jax.lax.cond(
            eqxi.unvmap_any(eventful(bracket, trial)),
            lambda: judge(bracket, trial, surfaces.armed(t, x, course.args), resolution),
            lambda: calm(bracket, trial),
        )

    return verdict


def advance(course: Course, now: Progress, attempt: Attempt, end: Look, verdict: Verdict) -> Progress:
    """Take the step or not, and say which to try next."""
    eps = float(jnp.finfo(end.dt.dtype).eps)
    last, take, searching = now.last, verdict.take, now.bracket.active
    rejected = ~searching & ~attempt.keep
    # The controller learns from the steps that it proposed, not from those that end on a turn or on a surface.
    proposed = rejected | (take & ~searching & (now.bracket.tries == 0))
    control = _choose(proposed, attempt.control, now.control)
    h = stop_gradient(jnp.where(proposed, attempt.h, now.h))
    reached = Point(last.t + attempt.dt, tuple(attempt.x), tuple(attempt.f), attempt.memory, end.g, end.r)
    point = _choose(take, reached, last)
    up = (end.g > course.noise) | (now.up & (end.g > 0))
    stalled = rejected & ~(h > 4 * eps * jnp.abs(stop_gradient(point.t)))
    tries = jnp.where(take | rejected, 0, verdict.bracket.tries + 1)
    return Progress(
        last=point,
        dt=stop_gradient(jnp.where(take | rejected, jnp.minimum(h, course.t_stop - point.t), verdict.dt)),
        h=h,
        control=control,
        up=jnp.where(take, up & ~verdict.passed, now.up),
        r_max=jnp.maximum(now.r_max, jnp.where(take, jnp.abs(end.r), 0)),
        bracket=Bracket(verdict.bracket.active, verdict.bracket.lo, verdict.bracket.hi, tries),
        steps=now.steps + 1,
        end=Ending(
            done=(verdict.event >= 0) | (take & attempt.final & ~searching) | stalled,
            event=verdict.event,
            shift=verdict.shift,
            together=verdict.together,
            stalled=stalled,
            broken=stalled & ~attempt.finite,
        ),
        taken=now.taken.tried(attempt.dt, take) if now.taken else None,
    )


def _aside(fn: Callable, *arguments: PyTree) -> Any:
    """`fn` of arguments without derivatives, traced once: as a `jit`, each layer of differentiation passes it on as one
    equation."""
    arrays, rest = eqx.partition(arguments, eqx.is_array)
    return jax.jit(lambda arrays: fn(*eqx.combine(arrays, rest)))(stop_gradient(arrays))


def without_tangents(tree: PyTree) -> PyTree:
    """The same without derivatives; a tree may hold functions, and arrays of whole numbers."""
    return jax.tree.map(lambda leaf: stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)


def _choose(pred: Flag, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), new, old)
