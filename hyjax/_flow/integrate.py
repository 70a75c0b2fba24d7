r"""Integration of a flow until it meets a guard's surface, with the derivatives of the event.

The tangents of the state pass through the solver's steps; the derivatives of the event's time come from the guard (see
`instant.py`).
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

from .._numerics.linearize import linearizable
from .._numerics.trees import select, whole, without_tangents
from .._system.results import choose, RESULTS
from .._system.types import Flag, Scalar, State, Time
from .crossing import close_in_time, onto_surface, reach_surface, straight_line, stretches, TOUCH
from .guard_polynomials import linear
from .instant import at_common_time, to_surface
from .integrator import Integrator, PlainForward
from .loop import Entry, run
from .loop_state import Ending, Watch
from .step import retrace, takes_stiff
from .surfaces import absolute_sum, Guards, known_to, Mask, Surfaces


class Arrival(eqx.Module):
    """The end of a flow. `event`: the number of the guard met, or -1 at the end time or a limit of the domain. `guard_rate`: the
    rate of that guard; at the end time -1, the rate of the time that is left. `steps`: the number of steps tried. `together`: the
    other guards that were met at the same time, and `close`: the time within which they were met. `at_once`: the guard was met at
    the start. `beyond`: the guard was beyond its surface at the start, which is then the time of the event. `seen`: the record of
    a `Watch`."""

    t: Time
    x: State
    event: Int[Array, ""]
    guard_rate: Scalar
    steps: Int[Array, ""]
    result: RESULTS
    together: Mask
    close: Scalar
    at_once: Flag
    beyond: Flag
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
    owed: Guards | None = None,
    preferred: int | Array | None = None,
    entry: Entry | None = None,
    share: Scalar | float | None = None,
) -> Arrival:
    """Flow along `field(t, x, args)` from `(t0, x0)` until a surface is met or the time is `t1`.

    A surface met within rounding of `t1` counts as met. With `ends`, where another flow goes on from the end of this one, a
    surface counts as met also where the guard at `t1` is above zero by no more than its rounding error. The result is
    `successful` also where the flow ends at `t1`, and `outside_domain` where the flow leaves the domain, or begins outside. The
    result is `simultaneous_guards`, with all numbers, where other guards are met together with the first. **Arguments:**
    `watch`: what to record of every step, not differentiated. `owed`: for each guard the time within which it fell together
    with the last event, if it is still to be taken: it is met at the start, although it is not positive there. Negative where
    it is not to be taken; `None` for none. `preferred`: the guard that is the event where it is met together with others.
    `entry`, `share`: see `loop.run`.
    """
    t0, t1 = (jnp.asarray(t, x0.dtype) for t in (t0, t1))
    # Arrays captured by a function become arguments, so that they may be traced or differentiated.
    field, one = eqx.filter_closure_convert(field, t0, x0, args), None
    without_limits = surfaces.unlimited
    if surfaces.count:
        one = eqx.filter_closure_convert(surfaces.value, jnp.array(0), t0, x0, args)
        values = eqx.filter_closure_convert(surfaces.values, t0, x0, args)
        surfaces = dataclasses.replace(surfaces, values=values, unlimited=None)
    straightforward = exact = linear(surfaces, t0, x0, args)
    if without_limits is not None and not straightforward:
        values = eqx.filter_closure_convert(without_limits.values, t0, x0, args)
        guards = dataclasses.replace(without_limits, values=values)
        exact = linear(guards, t0, x0, args)
        if surfaces.repeated is not None:
            # The least of linear guards, which show where it turns, counts as one of them.
            surfaces, straightforward = dataclasses.replace(surfaces, unlimited=guards), exact

    again, plain = integrator.loop != "lax", isinstance(integrator.adjoint, PlainForward)
    straight, short_step = stretches(takes_stiff(integrator.solver), integrator.fixed, exact, x0.dtype)

    def last_stretch(inputs: PyTree, t, x, f, end: Ending):
        """The stretch from the end of the last step to the surface."""
        field, surfaces, *_, args = inputs
        shift = jnp.where(end.event >= 0, end.shift, 0)
        if not surfaces.count or short_step <= straight:
            return onto_surface(t, x, f, shift)

        def height(t, x, f):
            values, rates = surfaces.rates(*stop_gradient((t, x, f)), args)
            return values[end.event], rates[end.event]

        return reach_surface(lambda t, x: field(t, x, args), height, t, x, f, shift)

    def take_steps(inputs: PyTree):
        if not again:
            inputs = at_common_time(inputs, forward_only=True)
        progress = run(
            *inputs,
            integrator=integrator,
            keep=again,
            linear=(straightforward, exact),
            ends=ends,
            owed=owed,
            watch=watch,
            entry=entry,
            share=share,
        )
        last, end = progress.last, without_tangents(progress.end)
        aux = end, progress.g_max, last.r, progress.steps, progress.seen, progress.taken
        point = last.t, whole(last.x), whole(last.f)
        return point if again else last_stretch(inputs, *point, end), aux

    inputs = (field, surfaces, t0, x0, t1, args)
    if again:
        _, aux = take_steps(without_tangents(inputs))
        end, *_, taken = aux
        _, _, begin, x, *_ = at_common_time(inputs, forward_only=False)
        point = retrace(field, begin, x, args, taken, integrator)  # pyright: ignore[reportArgumentType]
        t, x, f = last_stretch(inputs, *point, end)
    else:
        (t, x, f), aux = take_steps(inputs) if plain else linearizable(take_steps, inputs)
    # Outside of `jit` a flag that the loop does not change comes back as a flag of Python.
    end, g_max, rates, steps, seen, _ = jax.tree.map(
        lambda leaf: stop_gradient(leaf) if eqx.is_array(leaf) else jnp.asarray(leaf), aux
    )
    close = stop_gradient(close_in_time(t, t0, *integrator.tolerances(x0.dtype)))
    if surfaces.count - surfaces.limits > 1:
        end = _ordered(surfaces, end, *stop_gradient((t, x, rates)), without_tangents(args), integrator, preferred)
        if surfaces.clocks is not None:
            end = _clocks_first(surfaces.clocks(args), end)

    # From just beyond t1 back to t1, along a straight line: the square of this time is far below rounding. A flow that failed
    # before t1 stays at its last step.
    gave_up = t1 - t > 128 * float(jnp.finfo(x0.dtype).eps) * jnp.maximum(jnp.abs(t0), jnp.abs(t1))
    shift = stop_gradient(jnp.where((end.event >= 0) | end.broken | end.stalled | end.accumulates | gave_up, 0, t1 - t))
    # Where a guard is beyond its surface the event's time is that of the start.
    immediate = surfaces.at_once is not None or owed is not None
    surface, until = (
        (jnp.where(end.beyond, -1, end.event), jnp.where(end.beyond, t0, t1)) if immediate else (end.event, t1)
    )
    if entry is not None:
        # A flow that cannot leave its surface ends where it begins.
        t, x = jnp.where(end.back, t0, t), jnp.where(end.back, x0, x)
        until = jnp.where(end.back, t0, until)
    if surfaces.limits:
        left = end.event >= surfaces.count - surfaces.limits
        # A flow that begins outside the domain is not on its limit.
        stays = left & (steps == 0)
        surface, until = jnp.where(stays, -1, surface), jnp.where(stays, t0, until)
    point = straight_line(t, x, f, shift)
    (t, x), guard_rate = _on_surface(field, one, point, until, args, surface, plain)
    if immediate:
        guard_rate = jnp.where(end.beyond, rates[jnp.maximum(end.event, 0)], guard_rate)
    roundings = TOUCH["linear" if straightforward else "curved"]
    clocks = None if surfaces.clocks is None else surfaces.clocks(args)
    result = _code(surfaces, end, guard_rate, g_max, roundings, steps, integrator, clocks)
    if surfaces.limits:
        result = choose(left, RESULTS.outside_domain, result)
    event = jnp.where(left, -1, end.event) if surfaces.limits else end.event
    together = end.together[: surfaces.count - surfaces.limits]
    return Arrival(t, x, event, guard_rate, steps, result, together, close, end.at_once, end.beyond, seen)


def _ordered(
    surfaces: Surfaces,
    end: Ending,
    t: Time,
    x: State,
    rates: Guards,
    args: PyTree,
    integrator: Integrator,
    preferred: int | Array | None,
) -> Ending:
    """The ending, in which `together` keeps only those guards whose order relative to the event is not determined.

    At the event the other guard is known up to its own rounding, the rounding of the event's guard, and what the solver's error
    of the state changes it *at that event*: its change less that of the event's guard times the ratio of the rates. So two
    thresholds of one variable have an order however steep the flow is.
    """
    rtol, atol = integrator.tolerances(x.dtype)

    def judged():
        k = jnp.maximum(end.event, 0)
        g, noise, change = known_to(surfaces, t, x, args, 10 * (rtol * jnp.abs(x) + atol))
        ratio = rates / jnp.where(rates[k] == 0, 1, rates[k])
        spread = absolute_sum(change - ratio * change[:, k, None])
        apart = (g > noise + jnp.abs(ratio) * noise[k] + spread) & (jnp.arange(g.size) != k)
        together = end.together & ~apart
        if preferred is None:
            return together, end.event
        chosen = jnp.arange(g.size) == preferred
        swap = together[preferred]
        others = (together | (jnp.arange(g.size) == k)) & ~chosen
        return jnp.where(swap, others, together), jnp.where(swap, preferred, end.event)

    # Rare: one flag for the whole batch.
    met = jnp.any(end.together)
    together, event = jax.lax.cond(eqxi.unvmap_any(met), judged, lambda: (end.together, end.event))
    return dataclasses.replace(end, together=together & met, event=jnp.where(met, event, end.event))


def _clocks_first(clocks: Mask, end: Ending) -> Ending:
    """The ending, in which of clocks that tick together the first of the list is the event."""
    event = jnp.arange(clocks.size) == end.event
    ticks = clocks & (event | end.together)
    several = jnp.any(event & clocks) & jnp.any(end.together & clocks)
    first = jnp.argmax(ticks)
    together = (end.together | event) & (jnp.arange(clocks.size) != first)
    return select(several, dataclasses.replace(end, event=first, together=together), end)


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
    roundings: int,
    steps: Int[Array, ""],
    integrator: Integrator,
    clocks: Mask | None,
) -> RESULTS:
    """The result code of a flow; where several codes apply, the last one assigned below. **Arguments:** `roundings`: see
    `TOUCH`. `clocks`: which guards are clocks, `None` if none is."""
    result = RESULTS.successful
    if surfaces.count:
        # With this rate and its change, the guard would fall to -rate^2 / 2 turn: no further than a few roundings of its values.
        eps, height = float(jnp.finfo(guard_rate.dtype).eps), g_max[jnp.maximum(end.event, 0)]
        least = jnp.sqrt(2 * roundings * eps) * jnp.sqrt(end.turn) * jnp.sqrt(height)
        grazing = (end.event >= 0) & ~end.beyond & ~((guard_rate < 0) & (-guard_rate > least))
        undecided = end.together
        if clocks is not None:
            # The order of clocks is that of the list.
            undecided = undecided & ~(clocks & clocks[jnp.maximum(end.event, 0)])
        result = choose(jnp.any(undecided), RESULTS.simultaneous_guards, result)
        result = choose(grazing, RESULTS.grazing, result)
    result = choose(end.accumulates, RESULTS.zeno, choose(end.slides, RESULTS.sliding, result))
    result = choose(steps >= integrator.max_steps, RESULTS.max_steps_reached, result)
    # A fixed step is not shortened. It stalls where Newton's method finds no solution of an implicit stage.
    result = choose(end.stalled, RESULTS.nonlinear_divergence if integrator.fixed else RESULTS.dt_min_reached, result)
    return choose(end.broken, RESULTS.nonfinite, result)
