r"""The values of a function of the state at chosen times of an orbit's arcs, and where the function turns.

A function $h(t, x, p)$ turns where its rate along the flow, $\dot h = D_th + D_xh\,f$, changes sign. These times are located as
events are. Then the flow is followed from each time to the next, with derivatives, the turning points' times held fixed. What a
shift of the time by $\delta = -\dot h/\ddot h$ would add is

$$\dot h\,\delta + \tfrac12\ddot h\,\delta^2 = -\frac{\dot h^2}{2\ddot h},$$

which is zero at the turning point, with a derivative of zero (the envelope theorem), but has a second derivative. With this term
the value of the function at its turning point has exact first and second derivatives, although the time has none. Where the
rate only touches zero, and the time would have no derivative, the function has none the less.
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from .._flow.automaton import Automaton, Index, Padded
from .._flow.automaton_flow import follow_automaton
from .._flow.integrator import PlainForward
from .._flow.linearize import linearizable
from .._flow.mode_integrators import Integrators, rolled, with_adjoint
from .._flow.trees import without_tangents
from .._orbit.orbit import PeriodicOrbit
from .._system.results import nan_unless, RESULTS
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Flag, Params, Scalar, Time
from .integral import Rate

# The rate of a function changes sign at most so often in an arc; beyond it, values are NaN.
MOST = 16
# Behind a point where the rate touches zero, this fraction of the arc is not searched.
NEAR = 1e-5
# The times of an arc: `begin`, `end` -> shape `(times,)`.
Times = Callable[[Time, Time], Float[Array, " times"]]


class Measured(eqx.Module):
    """A system with a function of the state in some of its modes.

    **Attributes:** `system`: without domains. `functions`: by mode. `turning`: the same flows; its guards are the function's
    rate and the opposite of the rate, of which one falls where the function turns.
    """

    system: HybridSystem
    functions: dict[str, Rate]
    turning: HybridSystem


def measured(system: HybridSystem, functions: Mapping[str, Rate]) -> Measured:
    """The system with these functions by mode."""
    modes = {name: Mode(mode.vector_field, mode.coordinates) for name, mode in system.modes.items()}
    turns = []
    for name, function in functions.items():
        rate = rate_of(function, modes[name])
        turns += [Transition(name, name, guard, unchanged) for guard in (rate, lambda *at, rate=rate: -rate(*at))]
    return Measured(HybridSystem(modes, system.transitions), dict(functions), HybridSystem(modes, tuple(turns)))


def rate_of(function: Rate, mode: Mode) -> Rate:
    """The rate of a function of the state along the flow of a mode."""

    def rate(t, x, params):
        at = lambda t, x: jnp.asarray(function(t, x, params), x.dtype)
        return jax.jvp(at, (t, x), (jnp.ones_like(t), mode.vector_field(t, x, params)))[1]

    return rate


def unchanged(t, x, params):
    return x


def values_at(
    what: Measured, orbit: PeriodicOrbit, params: Params, fractions: Float[Array, " times"]
) -> Float[Array, "strides arcs times"]:
    """The function at these fractions, from 0 to 1, of each arc whose mode has a function. NaN where a flow fails."""
    return _values(what, orbit, orbit.nodes, params, fractions, 0)


def turning_values(
    what: Measured,
    nodes: Float[Array, "strides n"],
    orbit: PeriodicOrbit,
    params: Params,
    window: tuple[float, float] = (0.0, 1.0),
) -> Float[Array, "strides arcs times"]:
    """The function at the begin of the window, at the turning points in the window, and at the window's end.

    **Arguments:** `nodes`: the states at the starts of the strides. `window`: two fractions of an arc.

    **Returns:** for each arc whose mode has a function `MOST + 2` values in the order of time; in place of turning points that
    there are not stands the value at an end of the window. NaN where a flow fails or an arc has more turning points.
    """
    return _values(what, orbit, nodes, params, jnp.asarray(window, nodes.dtype), MOST)


@eqx.filter_jit
def _values(what: Measured, orbit: PeriodicOrbit, nodes, params: Params, fractions, most: int):
    integrator, sequence = orbit.integrator, orbit.sequence
    keeps_jacobian = integrator.loop == "lax"
    plain = with_adjoint(integrator, PlainForward()) if keeps_jacobian else integrator
    # The ends of the arcs of one mode are the starts of the strides, and the last one the end of the period.
    ends = orbit.impact_times if len(sequence) == 1 else None

    def run(inputs):
        t, x, end, params, fractions = inputs
        times, states, turns, sound = _pass(what, t, x, end, params, fractions, sequence, plain, most)
        return (times, states), (turns, sound)

    def stride(t, x, end):
        inputs = t, x, end, params, fractions
        (times, states), (turns, sound) = linearizable(run, inputs) if keeps_jacobian else run(inputs)
        arcs = [
            jax.vmap(lambda *at, mode=mode: _value(what, mode, params, *at))(times[k], states[k], turns[k])
            for k, mode in enumerate(sequence)
            if mode in what.functions
        ]
        return nan_unless(sound, jnp.stack(arcs))

    return jax.vmap(stride)(orbit.starts, nodes, ends)


def _pass(what: Measured, t: Time, x, end: Time | None, params: Params, fractions, sequence, integrator, most: int):
    """One stride: for each arc the chosen times, the padded states there, whether the times are turning points; and whether all
    flows succeeded. `end`: of the only arc, where it is known."""
    automaton = Automaton(what.system)
    modes = jnp.array([automaton.names.index(name) for name in sequence])
    route = jnp.array(what.system.route(sequence))
    longest = jnp.stack([jnp.asarray(integrator.of(name).max_time, x.dtype) for name in automaton.names])

    def arc(now, which):
        (t, z), (mode, taken) = now, which
        if end is None:
            arrival = follow_automaton(automaton, t, z, mode, t + longest[mode], params, integrator)
            sound = (arrival.result == RESULTS.successful) & (automaton.transition(mode, arrival.event) == taken)
            after = arrival.t, automaton.jump(arrival.t, arrival.x, taken, params)
            last = arrival.t
        else:
            sound, after, last = jnp.array(True), now, end
        times = jnp.where(fractions < 1, t + fractions * (last - t), last)
        turns = jnp.zeros(times.shape, bool)
        if most:
            located, complete = _locate(Automaton(what.turning), mode, t, z, times[1], params, integrator, most)
            begin, stop = times
            inside = (begin < located) & (located < stop)
            between = jnp.where(inside, located, jnp.where(located < stop, begin, stop))
            times = jnp.concatenate([begin[None], between, stop[None]])
            turns, sound = jnp.pad(inside, 1), sound & complete

        def piece(now, until):
            t, z = now
            reached = follow_automaton(automaton, t, z, mode, until, params, integrator, guarded=False)
            return (until, reached.x), (reached.x, reached.result == RESULTS.successful)

        _, (states, succeeded) = jax.lax.scan(piece, (t, z), times)
        return after, (times, states, turns, sound & jnp.all(succeeded))

    _, (times, states, turns, sound) = jax.lax.scan(arc, (t, automaton.pad(x)), (modes, route))
    return times, states, turns, jnp.all(sound)


def _locate(
    turning: Automaton, mode: Index, t: Time, z: Padded, stop: Time, params: Params, integrator: Integrators, most: int
) -> tuple[Float[Array, " most"], Flag]:
    """The times of the turning points of an arc until the time `stop`, without derivatives, infinite for those there are not;
    and whether these are all."""
    turning, t, z, stop, params = without_tangents((turning, t, z, stop, params))
    t0, forward = t, rolled(with_adjoint(integrator, PlainForward()))

    def body(now):
        k, t, z, times, _, sound = now
        end = follow_automaton(turning, t, z, mode, stop, params, forward)
        met = end.event >= 0
        regular = end.result == RESULTS.successful
        sound = sound & (met | regular)
        times = times.at[k].set(jnp.where(met, end.t, jnp.inf), mode="drop")
        # A rate that touches zero is a grazing event: where nothing changes sign, another point does no harm. But the search
        # for events cannot start so near to it: by a step of the midpoint rule, whose error is rounding.
        dt = jnp.where(met & ~regular, NEAR * (stop - t0), 0)
        rate = lambda t, z: turning.field(t, z, (mode, params))
        middle = rate(end.t + dt / 2, end.x + dt / 2 * rate(end.t, end.x))
        return k + 1, end.t + dt, end.x + dt * middle, times, ~met, sound

    start = (jnp.array(0), t, z, jnp.full(most, jnp.inf, z.dtype), jnp.array(False), jnp.array(True))
    _, _, _, times, done, sound = jax.lax.while_loop(lambda now: ~now[4] & (now[0] <= most), body, start)
    return stop_gradient(times), done & sound


def _value(what: Measured, mode: str, params: Params, t: Time, z: Padded, turns: Bool[Array, ""]) -> Scalar:
    """The function at a point, with the second derivatives of a turning point's value where it `turns`."""
    each = what.turning.modes[mode]
    x = z[: each.dimension]
    value = jnp.asarray(what.functions[mode](t, x, params), x.dtype)
    rate = rate_of(what.functions[mode], each)
    still = without_tangents((t, x, params))
    bend = rate_of(rate, each)(*still)
    known = turns & (bend != 0)
    gain = -(rate(t, x, params) ** 2) / (2 * jnp.where(known, stop_gradient(bend), 1))
    return value + jnp.where(known, gain, 0)
