r"""One loop that takes the solver's steps, and locates events. The only file that takes solver steps.

A step in which a guard falls is taken again, shorter, from the same start, until it ends on the guard's surface: so the
event's state is that of a real solver step, and has its accuracy. Because location is more of the same loop, a system has
one copy of its vector field to compile, and in a batch a lane that locates does not make the others wait.

Step sizes carry no derivative. The state's tangents pass through the steps; the event's time gets its derivatives from
the surface on which it lies (`_instant.py`).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Int, PyTree

from .._system.results import choose, RESULTS
from .._system.types import Flag, Scalar, State, Time
from .crossing import calm, Guards, judge, Look, Mask, may_turn, Search, Verdict
from .instant import to_surface
from .integrator import Integrator, PlainForward
from .linearize import linearizable
from .pace import Pace
from .step import Step


class _Arc(eqx.Module):
    """The loop's state. `t, x, f` is the end of the last step taken, and the vector field there."""

    t: Time
    x: tuple[Scalar, ...]  # by coordinate, so that a batch, and a batch of tangents, lies contiguous in each
    f: tuple[Scalar, ...]
    memory: Any
    control: Any
    h: Scalar  # what the controller proposes for the next step
    dt: Scalar  # the step to try
    g: Guards
    r: Guards
    up: Mask  # strictly positive since it last rose
    r_max: Guards
    search: Search
    steps: Int[Array, ""]
    event: Int[Array, ""]
    shift: Scalar
    done: Flag
    broken: Flag  # the state is not finite
    stalled: Flag  # the step size vanished
    together: Flag  # another guard fell at the same time


class Surfaces(eqx.Module):
    """The guards of a mode, as functions of `(t, x, args)` with values of shape `(guards,)`."""

    count: int = eqx.field(static=True)
    values: Callable
    armed: Callable


def integrate(
    field: Callable, surfaces: Surfaces, t0: Time, x0: State, t1: Time, args: PyTree, integrator: Integrator
) -> tuple[Time, State, Int[Array, ""], Scalar, Int[Array, ""], RESULTS]:
    """Flow along `field(t, x, args)` from `(t0, x0)` until a surface is met or the time is `t1`.

    A surface met within rounding of `t1` counts as met.

    **Returns:** `(t, x, event, guard_rate, steps, result)`. `event` is the number of the surface, or -1 at `t1`. The
    result is `successful` also at `t1`.
    """
    t0, t1 = (jnp.asarray(t, x0.dtype) for t in (t0, t1))
    # What a function closes over becomes an argument, so that it may be traced or differentiated.
    field = eqx.filter_closure_convert(field, t0, x0, args)
    if surfaces.count:
        values = eqx.filter_closure_convert(surfaces.values, t0, x0, args)
        surfaces = Surfaces(surfaces.count, values, surfaces.armed)

    def run(inputs):
        field, surfaces, t0, x0, t1, args = inputs
        arc = _loop(field, surfaces, t0, x0, t1, args, integrator)
        aux = (arc.event, arc.shift, arc.r_max, arc.steps, arc.broken, arc.stalled, arc.together)
        return (arc.t, jnp.stack(arc.x), jnp.stack(arc.f)), aux

    inputs = (field, surfaces, t0, x0, t1, args)
    keeps_jacobian = integrator.loop == "lax" and not isinstance(integrator.adjoint, PlainForward)
    (t, x, f), aux = linearizable(run, inputs) if keeps_jacobian else run(inputs)
    event, shift, r_max, steps, broken, stalled, together = jax.tree.map(stop_gradient, aux)

    met = event >= 0
    # From the end of the last step to the surface; or from just beyond t1 back to it. The square of this time is far
    # below rounding, so the flow is a straight line. What gave up before stays where it was.
    gave_up = t1 - t > 128 * float(jnp.finfo(x0.dtype).eps) * jnp.maximum(jnp.abs(t1), 1)
    shift = stop_gradient(jnp.where(met, shift, jnp.where(broken | stalled | gave_up, 0, t1 - t)))
    t, x = t + shift, x + shift * f

    def guard(point, rest):
        t, x = point
        _, surfaces, args, t1, met, event = rest
        end = t1 - t
        if surfaces.count == 0:
            return end
        return jnp.where(met, surfaces.values(t, x, args)[jnp.maximum(event, 0)], end)

    def rate(point, rest):
        t, x = point
        field, _, args, *_ = rest
        return jnp.ones_like(t), field(t, x, args)

    rest = (field, surfaces, args, t1, met, event)
    point = to_surface(rate, guard, (t, x), rest)
    _, guard_rate = jax.jvp(lambda p: guard(p, rest), (point,), (rate(point, rest),))

    result = RESULTS.successful
    if surfaces.count:
        scale = r_max[jnp.maximum(event, 0)]
        grazing = met & ~(-guard_rate > jnp.sqrt(jnp.finfo(x0.dtype).eps) * scale)
        result = choose(together, RESULTS.simultaneous_guards, result)
        result = choose(grazing, RESULTS.grazing, result)
    result = choose(steps >= integrator.max_steps, RESULTS.max_steps_reached, result)
    # A fixed step can only fail: where the equations of an implicit method have no solution, or Newton's method finds none.
    result = choose(stalled, RESULTS.nonlinear_divergence if integrator.fixed else RESULTS.dt_min_reached, result)
    result = choose(broken, RESULTS.nonfinite, result)
    t, x = point
    return t, x, event, guard_rate, steps, result


def rounding(surfaces: Surfaces, t: Time, x: State, args: PyTree) -> Guards:
    """The size of each guard's rounding error: how far it moves when each input moves by some units in the last place."""
    if not surfaces.count:
        return jnp.zeros(0, x.dtype)
    t, x = stop_gradient((t, x))
    by_t, by_x = jax.jacfwd(lambda t, x: surfaces.values(t, x, args), argnums=(0, 1))(t, x)
    return 64 * float(jnp.finfo(x.dtype).eps) * (jnp.abs(by_t * t) + jnp.abs(by_x) @ jnp.abs(x))


def _loop(field, surfaces: Surfaces, t0, x0, t1, args, integrator: Integrator) -> _Arc:
    dtype, eps = x0.dtype, float(jnp.finfo(x0.dtype).eps)
    rtol, atol = integrator.tolerances(dtype)
    step = Step(integrator.solver, field, args, integrator.unroll, integrator.loop, atol / rtol)
    # A surface met within rounding of t1 counts: look a little beyond it.
    t_stop = stop_gradient(t1 + (64 * eps * jnp.maximum(jnp.abs(t1), 1) if surfaces.count else 0))
    still = jax.tree.map(lambda leaf: stop_gradient(leaf) if eqx.is_array(leaf) else leaf, args)

    def rates(t, x, f):
        """Values and rates of the guards."""
        if not surfaces.count:
            return jnp.zeros(0, dtype), jnp.zeros(0, dtype)
        t, x, f = stop_gradient((t, x, f))
        return jax.jvp(lambda t, x: surfaces.values(t, x, still), (t, x), (jnp.ones_like(t), f))

    def look(search: Search, start: Look, up, trial: Look, keep, t, x, h) -> Verdict:
        """The verdict on a trial step that ends at `(t, x)`."""
        if not surfaces.count:
            return calm(search, trial, keep)
        busy = search.active | jnp.any(up & ~(trial.g > 0)) | may_turn(start, up, trial)
        close = 10 * (atol + rtol * jnp.abs(t))
        # A short step ends on a straight line along the field, up to the square of its time. So it does of a fixed step, up to
        # the step's own error, which may be large: there the time itself is to be rounding.
        straight = (64 * eps if pace.fixed else 0.25 * eps**0.5) * h
        # In a batch, only steps in which something happens to some lane pay for the search.
        return jax.lax.cond(
            eqxi.unvmap_any(busy),
            lambda: judge(search, start, up, trial, keep, surfaces.armed(t, x, still), h, straight, close, noise),
            lambda: calm(search, trial, keep),
        )

    f0 = step.field(t0, x0)
    g0, r0 = rates(t0, x0, f0)
    noise = rounding(surfaces, t0, x0, still)
    pace = Pace(integrator, step, *stop_gradient((t0, x0, f0)), t_stop)
    h0, control = stop_gradient(pace.init(step, *stop_gradient((t0, x0)), t_stop))
    no, zero, none = jnp.array(False), jnp.zeros((), dtype), jnp.array(-1)
    unsound = ~jnp.all(jnp.isfinite(stop_gradient(f0)))
    start = _Arc(
        t=t0, x=tuple(x0), f=tuple(f0), memory=step.init(t0, x0, h0), control=control,
        h=h0, dt=jnp.minimum(h0, stop_gradient(t_stop - t0)),
        g=g0, r=r0, up=g0 > noise, r_max=jnp.abs(r0),
        search=Search(no, Look(zero, g0, r0), Look(zero, g0, r0), jnp.array(0)),
        steps=jnp.array(0), event=none, shift=zero,
        done=stop_gradient(t_stop <= t0) | unsound, broken=unsound, stalled=no, together=no,
    )  # fmt: skip

    def body(arc: _Arc) -> _Arc:
        # Try a step
        t, dt = arc.t, stop_gradient(arc.dt)
        left = stop_gradient(t_stop - t)
        final = dt >= left
        dt = jnp.where(final, left, dt)
        x, f = jnp.stack(arc.x), jnp.stack(arc.f)
        x1, f1, error, memory = step(t, x, f, dt, arc.memory)
        finite = jnp.all(jnp.isfinite(x1)) & jnp.all(jnp.isfinite(f1))
        error = stop_gradient(jnp.where(finite, error, jnp.inf))
        # What carries no derivative is traced once, by `jit`: each layer of differentiation passes it on as one equation.
        keep, h, control = jax.jit(pace.after)(dt, *stop_gradient((x, x1)), error, arc.control)

        # Look at the guards
        g1, r1 = jax.jit(rates)(*stop_gradient((t + dt, x1, f1)))
        verdict = jax.jit(look)(
            arc.search, Look(zero, arc.g, arc.r), arc.up, Look(dt, g1, r1), keep,
            *stop_gradient((t + dt, x1)), arc.h,
        )  # fmt: skip

        # Move on
        searching = arc.search.active
        rejected = ~searching & ~keep
        take, event = verdict.take, verdict.event >= 0
        # The controller learns from the steps that it proposed, not from those that end on a turn or on a surface.
        proposed = rejected | (take & ~searching & (arc.search.tries == 0))
        control = _choose(proposed, control, arc.control)
        h = stop_gradient(jnp.where(proposed, h, arc.h))
        t, x, f, memory, g, r = _choose(
            take, (t + dt, tuple(x1), tuple(f1), memory, g1, r1), (t, arc.x, arc.f, arc.memory, arc.g, arc.r)
        )
        up = jnp.where(take, ((g1 > noise) | (arc.up & (g1 > 0))) & ~verdict.passed, arc.up)
        stalled = rejected & ~(h > 4 * eps * jnp.abs(stop_gradient(t)))
        steps = arc.steps + 1
        tries = jnp.where(take | rejected, 0, verdict.search.tries + 1)
        return _Arc(
            t=t, x=x, f=f, memory=memory, control=control,
            h=h, dt=stop_gradient(jnp.where(take | rejected, jnp.minimum(h, t_stop - t), verdict.dt)),
            g=g, r=r, up=up, r_max=jnp.maximum(arc.r_max, jnp.where(take, jnp.abs(r1), 0)),
            search=eqx.tree_at(lambda s: s.tries, verdict.search, tries),
            steps=steps, event=verdict.event, shift=verdict.shift,
            done=event | (take & final & ~searching) | stalled,
            broken=stalled & ~finite, stalled=stalled, together=verdict.together,
        )  # fmt: skip

    # Of two carried numbers: one that alone decides makes XLA look for a counter, in a copy of all that it depends on.
    going = lambda arc: ~arc.done & (arc.steps < integrator.max_steps)
    if integrator.loop == "lax":
        return jax.lax.while_loop(going, body, start)
    return eqxi.while_loop(going, body, start, max_steps=integrator.max_steps, kind=integrator.loop)


def _choose(pred: Flag, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), new, old)
