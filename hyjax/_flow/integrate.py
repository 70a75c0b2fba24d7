r"""Integration of a flow until it meets a guard's surface, with the derivatives of the event.

The tangents of the state pass through the solver's steps; the derivatives of the event's time come from the guard (see
`instant.py`).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Int, PyTree

from .._system.results import choose, RESULTS
from .._system.types import Scalar, State, Time
from .crossing import TOUCH
from .guard_resolution import linear
from .instant import to_surface
from .integrator import Integrator, PlainForward
from .last_stretch import onto_surface, reach_surface, straight_line, stretches
from .linearize import linearizable
from .loop import run
from .progress import Ending
from .retrace import retrace
from .step import takes_stiff
from .surfaces import Guards, Surfaces
from .trees import without_tangents
from .watch import Watch


class Arrival(eqx.Module):
    """The end of a flow. `event`: the number of the guard met, or -1 at the end time or a limit of the domain. `guard_rate`: the
    rate of that surface; at the end time, of the time left, -1. `steps`: the number of steps tried. `seen`: what a `Watch` has
    seen."""

    t: Time
    x: State
    event: Int[Array, ""]
    guard_rate: Scalar
    steps: Int[Array, ""]
    result: RESULTS
    seen: Any = None


def integrate(
    field: Callable,
    surfaces: Surfaces,
    t0: Time,
    x0: State,
    t1: Time,
    args: PyTree,
    integrator: Integrator,
    watch: Watch | None = None,
    ends: bool = False,
) -> Arrival:
    """Flow along `field(t, x, args)` from `(t0, x0)` until a surface is met or the time is `t1`.

    A surface met within rounding of `t1` counts as met; if the flow `ends` there, and another goes on from its end, also one that
    the end is short of by the rounding of the guard's value. The result is `successful` also where the flow ends at `t1`, and
    `outside_domain` where it leaves the domain, or begins outside. **Arguments:** `watch`: what to record of every step, not
    differentiated.
    """
    t0, t1 = (jnp.asarray(t, x0.dtype) for t in (t0, t1))
    # Arrays captured by a function become arguments, so that they may be traced or differentiated.
    field, one = eqx.filter_closure_convert(field, t0, x0, args), None
    without_limits = surfaces.unlimited
    if surfaces.count:
        one = eqx.filter_closure_convert(surfaces.value, jnp.array(0), t0, x0, args)
        values = eqx.filter_closure_convert(surfaces.values, t0, x0, args)
        surfaces = Surfaces(surfaces.count, values, surfaces.armed, surfaces.limits, surfaces.guarded)
    straightforward = exact = linear(surfaces, t0, x0, args)
    if without_limits is not None and not straightforward:
        guards = eqx.filter_closure_convert(without_limits.values, t0, x0, args)
        exact = linear(Surfaces(without_limits.count, guards, without_limits.armed), t0, x0, args)

    again, plain = integrator.loop != "lax", isinstance(integrator.adjoint, PlainForward)
    straight, reach = stretches(takes_stiff(integrator.solver), integrator.fixed, exact, x0.dtype)

    def last_stretch(inputs: PyTree, t, x, f, end: Ending):
        """From the end of the last step to the surface."""
        field, surfaces, *_, args = inputs
        shift = jnp.where(end.event >= 0, end.shift, 0)
        if not surfaces.count or reach <= straight:
            return onto_surface(t, x, f, shift)

        def height(t, x, f):
            values, rates = surfaces.rates(*stop_gradient((t, x, f)), args)
            return values[end.event], rates[end.event]

        return reach_surface(lambda t, x: field(t, x, args), height, t, x, f, shift)

    def take_steps(inputs: PyTree):
        progress = run(
            *inputs, integrator=integrator, keep=again, linear=(straightforward, exact), ends=ends, watch=watch
        )
        last, end = progress.last, without_tangents(progress.end)
        aux = end, progress.g_max, progress.steps, progress.seen, progress.taken
        point = last.t, jnp.stack(last.x), jnp.stack(last.f)
        return point if again else last_stretch(inputs, *point, end), aux

    inputs = (field, surfaces, t0, x0, t1, args)
    if again:
        _, aux = take_steps(without_tangents(inputs))
        end, *_, taken = aux
        point = retrace(field, t0, x0, args, taken, integrator)  # pyright: ignore[reportArgumentType]
        t, x, f = last_stretch(inputs, *point, end)
    else:
        (t, x, f), aux = take_steps(inputs) if plain else linearizable(take_steps, inputs)
    end, g_max, steps, seen, _ = jax.tree.map(stop_gradient, aux)

    # From just beyond t1 back to t1, along a straight line: the square of this time is far below rounding. A flow that failed
    # before t1 stays at its last step.
    gave_up = t1 - t > 128 * float(jnp.finfo(x0.dtype).eps) * jnp.maximum(jnp.abs(t0), jnp.abs(t1))
    shift = stop_gradient(jnp.where((end.event >= 0) | end.broken | end.stalled | end.lost | gave_up, 0, t1 - t))
    surface, until = end.event, t1
    if surfaces.limits:
        left = end.event >= surfaces.count - surfaces.limits
        # A flow that begins outside the domain is not on its limit.
        stays = left & (steps == 0)
        surface, until = jnp.where(stays, -1, end.event), jnp.where(stays, t0, t1)
    point = straight_line(t, x, f, shift)
    (t, x), guard_rate = _on_surface(field, one, point, until, args, surface, plain)
    few = TOUCH["linear" if straightforward else "curved"]
    result = _code(surfaces, end, guard_rate, g_max, few, steps, integrator)
    if surfaces.limits:
        result = choose(left, RESULTS.outside_domain, result)
    event = jnp.where(left, -1, end.event) if surfaces.limits else end.event
    return Arrival(t, x, event, guard_rate, steps, result, seen)


def _on_surface(
    field: Callable,
    one: Callable | None,
    point: tuple[Time, State],
    t1: Time,
    args: PyTree,
    event: Int[Array, ""],
    plain: bool,
) -> tuple[tuple[Time, State], Scalar]:
    """The point with its derivatives as a point of a surface, or of the time `t1`; and the rate of the guard there.

    `one(event, t, x, args)`: the guard with the number `event`; `None` without guards.
    """

    def guard(point, rest):
        t, x = point
        _, one, args, t1, event = rest
        left = t1 - t
        return left if one is None else jnp.where(event >= 0, one(event, t, x, args), left)

    def rate(point, rest):
        t, x = point
        field, _, args, *_ = rest
        return jnp.ones_like(t), field(t, x, args)

    rest = (field, one, args, t1, event)
    point = to_surface(rate, guard, point, rest, forward_only=plain)
    _, guard_rate = jax.jvp(lambda p: guard(p, rest), (point,), (rate(point, rest),))
    return point, guard_rate


def _code(
    surfaces: Surfaces,
    end: Ending,
    guard_rate: Scalar,
    g_max: Guards,
    few: int,
    steps: Int[Array, ""],
    integrator: Integrator,
) -> RESULTS:
    """The result code of a flow; where several codes apply, the last one assigned below. **Arguments:** `few`: see `TOUCH`."""
    result = RESULTS.successful
    if surfaces.count:
        # With this rate and its change, the guard would fall to -rate^2 / 2 turn: no further than a few roundings of its values.
        eps, height = float(jnp.finfo(guard_rate.dtype).eps), g_max[jnp.maximum(end.event, 0)]
        least = jnp.sqrt(2 * few * eps) * jnp.sqrt(end.turn) * jnp.sqrt(height)
        grazing = (end.event >= 0) & ~((guard_rate < 0) & (-guard_rate > least))
        result = choose(end.together, RESULTS.simultaneous_guards, result)
        result = choose(grazing, RESULTS.grazing, result)
    result = choose(end.lost, RESULTS.zeno, result)
    result = choose(steps >= integrator.max_steps, RESULTS.max_steps_reached, result)
    # A fixed step is not shortened. It stalls where Newton's method finds no solution of an implicit stage.
    result = choose(end.stalled, RESULTS.nonlinear_divergence if integrator.fixed else RESULTS.dt_min_reached, result)
    return choose(end.broken, RESULTS.nonfinite, result)
