r"""Flow for a time; flow to the first guard. The only file that takes solver steps.

One loop does both integration and event location. A step in which a guard falls is taken again, shorter, from the same
start, until it ends on the guard's surface: so the event's state is that of a real solver step, and has its accuracy.
Because location is more of the same loop, a system has one copy of its vector field to compile, and in a batch a lane that
locates does not make the others wait.

Step sizes carry no derivative. The state's tangents pass through the steps; the event's time gets its derivatives from
the surface on which it lies (`_instant.py`).
"""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Int, PyTree

from ._check import check_mode, check_params, check_state
from ._crossing import Guards, propose, turning
from ._instant import to_surface
from ._integrator import Integrator, PlainForward
from ._linearize import linearizable
from ._result import choose, RESULTS
from ._step import Step
from ._system import HybridSystem
from ._types import Flag, Params, Scalar, State, Time


class Impact(eqx.Module):
    """Where a flow met the first guard.

    **Attributes:** `t`, `x`: time and state before the jump, shape `(n,)`. `transition`: index into
    `system.transitions`. `guard_rate`: `D_t g + D_x g f < 0` there, in the guard's units per time. `result`: a code of
    `RESULTS`; unless it is `successful` the numbers are NaN.
    """

    t: Time
    x: State
    transition: Int[Array, ""]
    guard_rate: Scalar
    steps: Int[Array, ""]
    result: RESULTS


class _Arc(eqx.Module):
    """The loop's state. `t, x, f` is the end of the last accepted step and the vector field there."""

    t: Time
    x: State
    f: State
    memory: Any
    control: Any
    h: Scalar  # what the controller proposes for the next step
    dt: Scalar  # the step to try
    g: Guards
    r: Guards
    up: Bool[Array, " guards"]  # strictly positive since it last rose
    g_max: Guards
    r_max: Guards
    locating: Flag
    lo: Scalar
    hi: Scalar
    g_lo: Guards
    r_lo: Guards
    g_hi: Guards
    r_hi: Guards
    tries: Int[Array, ""]
    steps: Int[Array, ""]
    event: Int[Array, ""]
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
        return (arc.t, arc.x, arc.f), (arc.event, arc.r_max, arc.steps, arc.broken, arc.stalled, arc.together)

    inputs = (field, surfaces, t0, x0, t1, args)
    keeps_jacobian = integrator.loop == "lax" and not isinstance(integrator.adjoint, PlainForward)
    (t, x, f), aux = linearizable(run, inputs) if keeps_jacobian else run(inputs)
    event, r_max, steps, broken, stalled, together = jax.tree.map(stop_gradient, aux)

    met = event >= 0
    # Go back from just beyond t1 to t1 itself: the square of this time is far below rounding.
    back = stop_gradient(jnp.where(met | broken | stalled, 0, t1 - t))
    t, x = t + back, x + back * stop_gradient(f)

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
    result = choose(stalled, RESULTS.dt_min_reached, result)
    result = choose(broken, RESULTS.nonfinite, result)
    t, x = point
    return t, x, event, guard_rate, steps, result


def _loop(field, surfaces: Surfaces, t0, x0, t1, args, integrator: Integrator) -> _Arc:
    dtype, eps = x0.dtype, float(jnp.finfo(x0.dtype).eps)
    watched = surfaces.count > 0
    rtol, atol = integrator.tolerances(dtype)
    step = Step(integrator.solver, field, args, getattr(integrator.adjoint, "rolled", False))
    controller = dfx.PIDController(rtol=rtol, atol=atol, dtmax=integrator.max_step)
    error_order = integrator.solver.error_order(step.terms)
    # A surface met within rounding of t1 counts: look a little beyond it.
    t_stop = stop_gradient(t1 + (64 * eps * jnp.maximum(jnp.abs(t1), 1) if watched else 0))
    still = stop_gradient(args)

    def look(t, x, f):
        """Values and rates of the guards."""
        if not watched:
            none = jnp.zeros(0, dtype)
            return none, none
        t, x, f = stop_gradient((t, x, f))
        return jax.jvp(lambda t, x: surfaces.values(t, x, still), (t, x), (jnp.ones_like(t), f))

    def rounding(t, x):
        """The size of a guard's rounding error: what its value moves when each input moves by one part in 2^52."""
        if not watched:
            return jnp.zeros(0, dtype)
        t, x = stop_gradient((t, x))
        by_t, by_x = jax.jacfwd(lambda t, x: surfaces.values(t, x, still), argnums=(0, 1))(t, x)
        return 64 * eps * (jnp.abs(by_t * t) + jnp.abs(by_x) @ jnp.abs(x))

    f0 = step.field(t0, x0)
    g0, r0 = look(t0, x0, f0)
    noise = rounding(t0, x0)
    first, control = controller.init(
        step.terms,
        stop_gradient(t0),
        t_stop,
        stop_gradient(x0),
        None,
        None,
        lambda terms, t, x, args: step.field(jnp.asarray(t), x),
        error_order,
    )
    h0 = stop_gradient(first - t0)
    h0 = jnp.where(jnp.isfinite(h0) & (h0 > 0), h0, 1e-6 * jnp.maximum(jnp.abs(t_stop - t0), 1)).astype(dtype)
    no, zero = jnp.array(False), jnp.zeros((), dtype)
    start = _Arc(
        t=t0, x=x0, f=f0, memory=step.init(t0, x0, h0), control=control,
        h=h0, dt=jnp.minimum(h0, stop_gradient(t_stop - t0)),
        g=g0, r=r0, up=g0 > noise, g_max=jnp.abs(g0), r_max=jnp.abs(r0),
        locating=no, lo=zero, hi=zero, g_lo=g0, r_lo=r0, g_hi=g0, r_hi=r0,
        tries=jnp.array(0), steps=jnp.array(0), event=jnp.array(-1),
        done=stop_gradient(t_stop <= t0) | ~jnp.all(jnp.isfinite(f0)), broken=~jnp.all(jnp.isfinite(f0)), stalled=no, together=no,
    )  # fmt: skip

    def body(arc: _Arc) -> _Arc:
        t, dt = arc.t, stop_gradient(arc.dt)
        # Try
        x1, f1, error, memory = step(t, arc.x, arc.f, dt, arc.memory)
        left = stop_gradient(t_stop - t)
        final = dt >= left
        t1 = jnp.where(final, t + left, t + dt)
        finite = jnp.all(jnp.isfinite(x1)) & jnp.all(jnp.isfinite(f1))
        error = jnp.where(finite, error, jnp.inf)
        keep, _, h, _, control, _ = controller.adapt_step_size(
            zero, dt, *stop_gradient((arc.x, x1)), None, stop_gradient(error), error_order, arc.control
        )
        h = jnp.where(keep, h - dt, h)
        g1, r1 = look(t1, x1, f1)

        # Look
        locating = arc.locating
        fallen = arc.up & ~(g1 > 0)
        crossed = jnp.any(fallen)
        turns, to_turn = turning(arc.g, arc.r, arc.up, g1, r1, dt)
        turns = turns & (arc.tries < 40) & (to_turn > 4 * eps * jnp.maximum(jnp.abs(t), dt))
        enter = ~locating & keep & crossed
        retry = ~locating & keep & ~crossed & turns
        accept = ~locating & keep & ~crossed & ~turns

        # Locate
        lower = locating & ~crossed
        upper = enter | (locating & crossed)
        lo, g_lo, r_lo = _choose(
            lower, (dt, g1, r1), _choose(enter, (zero, arc.g, arc.r), (arc.lo, arc.g_lo, arc.r_lo))
        )
        hi, g_hi, r_hi = _choose(upper, (dt, g1, r1), (arc.hi, arc.g_hi, arc.r_hi))
        candidates = arc.up & ~(g_hi > 0)
        converged, leader = no, jnp.array(0)
        if watched:
            next_dt = propose(candidates, lo, g_lo, r_lo, hi, g_hi, r_hi)
            # Every third try halves the bracket, so that a guard which is flat on one side is found in bounded time.
            next_dt = jnp.where(arc.tries % 3 == 2, (lo + hi) / 2, next_dt)
            ahead = jnp.where(candidates, g1 / jnp.where(r1 == 0, -1, -r1), jnp.inf)
            leader = jnp.argmin(ahead)
            value, best = jnp.abs(g1[leader]), jnp.minimum(jnp.abs(arc.g_lo), jnp.abs(arc.g_hi))[leader]
            small = value <= eps * arc.g_max[leader]
            stagnant = (value >= best / 2) & (value <= 16 * eps * arc.g_max[leader])
            shut = (hi - lo) <= 2 * eps * hi
            converged = locating & (small | stagnant | (shut & crossed) | (arc.tries >= 100))
        else:
            next_dt = dt
        armed = surfaces.armed(*stop_gradient((t1, x1)), still) if watched else jnp.zeros(0, bool)
        event = converged & (armed[leader] if watched else False)
        taken = accept | converged

        # Move on
        rejected = ~locating & ~keep
        # The controller learns from steps that it proposed, not from those that end on a turn or on a surface.
        control = _choose(accept | rejected, control, arc.control)
        t, x, f, memory, g, r = _choose(
            taken, (t1, x1, f1, memory, g1, r1), (arc.t, arc.x, arc.f, arc.memory, arc.g, arc.r)
        )
        up = jnp.where(taken, (g1 > noise) | (arc.up & (g1 > 0)), arc.up)
        if watched:
            up = jnp.where(converged & (jnp.arange(surfaces.count) == leader), False, up)
        h = jnp.where(accept | rejected, h, arc.h)
        steps = arc.steps + 1
        inside = locating | enter
        dt = jnp.where(
            inside & ~converged, next_dt, jnp.where(retry, to_turn, jnp.minimum(h, stop_gradient(t_stop - t)))
        )
        stalled = rejected & ~(h > 4 * eps * jnp.maximum(jnp.abs(t), jnp.finfo(dtype).tiny))
        reached = accept & final
        together = no
        if surfaces.count > 1:
            close = 10 * (atol + rtol * jnp.abs(t))
            near = arc.up & armed & (g1 <= jnp.maximum(-r1, 0) * close) & (jnp.arange(surfaces.count) != leader)
            together = event & jnp.any(near)
        return _Arc(
            t=t, x=x, f=f, memory=memory, control=control, h=stop_gradient(h), dt=stop_gradient(dt),
            g=g, r=r, up=up, g_max=jnp.maximum(arc.g_max, jnp.where(taken, jnp.abs(g1), 0)),
            r_max=jnp.maximum(arc.r_max, jnp.where(taken, jnp.abs(r1), 0)),
            locating=inside & ~converged, lo=lo, hi=hi, g_lo=g_lo, r_lo=r_lo, g_hi=g_hi, r_hi=r_hi,
            tries=jnp.where(taken | rejected, 0, arc.tries + 1), steps=steps,
            event=jnp.where(event, leader, arc.event),
            done=event | reached | stalled | (steps >= integrator.max_steps),
            broken=stalled & ~finite, stalled=stalled, together=together,
        )  # fmt: skip

    return eqxi.while_loop(
        lambda arc: ~arc.done, jax.jit(body), start, max_steps=None if integrator.loop == "lax" else integrator.max_steps,
        kind=integrator.loop,
    )  # fmt: skip


def _choose(pred: Flag, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), new, old)


def surfaces_of(system: HybridSystem, mode: str) -> Surfaces:
    """The guards of the transitions that leave a mode, in the order of `system.leaving(mode)`."""
    leaving = [system.transitions[i] for i in system.leaving(mode)]

    def values(t, x, params):
        return jnp.stack([transition.guard(t, x, params) for transition in leaving])

    def armed(t, x, params):
        yes = jnp.array(True)
        return jnp.stack(
            [yes if transition.armed is None else transition.armed(t, x, params) for transition in leaving]
        )

    return Surfaces(len(leaving), values, armed)


def run_to_guard(system: HybridSystem, mode: str, t: Time, x: State, params: Params, integrator: Integrator) -> Impact:
    """`flow_to_guard` without the checks of its arguments."""
    surfaces = surfaces_of(system, mode)
    t1, x1, event, rate, steps, result = integrate(
        system.mode(mode).vector_field, surfaces, t, x, t + integrator.max_time, params, integrator
    )
    result = choose((result == RESULTS.successful) & (event < 0), RESULTS.no_crossing, result)
    good = result == RESULTS.successful
    transition = jnp.array(system.leaving(mode) or (-1,))[jnp.maximum(event, 0)]
    nan = lambda value: jnp.where(good, value, jnp.nan)
    return Impact(nan(t1), nan(x1), jnp.where(good, transition, -1), nan(rate), steps, result)


_run_to_guard = eqx.filter_jit(run_to_guard)


def flow_to_guard(
    system: HybridSystem,
    mode: str,
    t: float | Time,
    x: State,
    params: Params,
    *,
    integrator: Integrator = Integrator(),
) -> Impact:
    r"""Flow in a mode until the first of its guards falls through zero.

    $x(t_e)$ where $\dot x = f(t, x, p)$ and $t_e$ is the first time at which a guard that was strictly positive is zero.

    **Arguments:** `mode`: a name, static. `t`: start time. `x`: shape `(n,)`. `integrator`: tolerances and limits.

    **Returns:** `Impact(t, x, transition, guard_rate, result)`, before the jump. Differentiable to any order, forward and
    reverse, in `t`, `x` and `params`. A guard that falls within rounding of the time limit counts as met. `result` is
    `no_crossing` when none falls within `integrator.max_time`; or `grazing`, `simultaneous_guards`,
    `max_steps_reached`, `dt_min_reached`, `nonfinite`, as `RESULTS` says.

    Source: Bhounsule (2014), eqs. 1-3.
    """
    check_params(params)
    x = check_state(x, system.mode(mode).dimension, mode)
    integrator.tolerances(x.dtype)
    t = jnp.asarray(t, x.dtype)
    check_mode(system, mode, t, x, params)
    return _run_to_guard(system, mode, t, x, params, integrator)


def flow_for(
    system: HybridSystem, mode: str, t: Time, x: State, t1: Time, params: Params, integrator: Integrator
) -> State:
    """The state at `t1 >= t`, of the flow of a mode alone: its guards are not looked at. NaN where it fails."""
    none = Surfaces(0, lambda t, x, params: jnp.zeros(0), lambda t, x, params: jnp.zeros(0, bool))
    _, x1, _, _, _, result = integrate(system.mode(mode).vector_field, none, t, x, t1, params, integrator)
    return jnp.where(result == RESULTS.successful, x1, jnp.nan)
