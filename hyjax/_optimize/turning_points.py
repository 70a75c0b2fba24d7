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
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from .._flow.automaton import Automaton, follow_automaton, Index, Padded
from .._flow.integrator import Integrators, rolled, without_jacobian
from .._flow.joint import extended
from .._flow.jump import reset
from .._numerics.eager import long_run
from .._numerics.linearize import linearizable
from .._numerics.trees import without_tangents
from .._orbit.orbit import PeriodicOrbit
from .._system.results import nan_unless, RESULTS
from .._system.system import HybridSystem, Mode, Transition, unchanged
from .._system.types import Flag, Params, require_function, Scalar, State, Time
from .constraint import check_number, Orbit

# A number at a point of the flow: `(t, x, params) -> number`.
Rate = Callable[[Time, State, Params], Scalar]
Made = TypeVar("Made")
# The rate of a function changes sign at most so often in an arc; beyond it, values are NaN.
MOST = 16
# Behind a point where the rate touches zero, this fraction of the arc is not searched.
NEAR = 1e-5


def by_mode(name: str, given: Rate | Mapping[str, Rate], orbit: Orbit) -> dict[str, Rate]:
    """The function of each mode of an orbit that has one. `ValueError`, for `hj.objectives.<name>`, for unknown modes."""
    if not isinstance(given, Mapping):
        given = dict.fromkeys(orbit.mode_names, given)
    if unknown := [mode for mode in given if mode not in orbit.system.modes]:
        raise ValueError(f"{name}: {unknown} are not modes of the system, which has {list(orbit.system.modes)}.")
    for mode, function in given.items():
        require_function(function, "t, x, params", f"{name}: the argument")
        if isinstance(orbit, PeriodicOrbit):
            at = jax.ShapeDtypeStruct((orbit.system.mode(mode).dimension,), orbit.x.dtype)
            out = eqx.filter_eval_shape(function, jnp.zeros((), at.dtype), at, orbit.params)
            check_number(out, f"{name}: the argument")
    return {mode: given[mode] for mode in dict.fromkeys(orbit.mode_names) if mode in given}


def remembered(make: Callable[[PeriodicOrbit], Made]) -> Callable[[PeriodicOrbit], Made]:
    """`make(orbit)`, made once for each system and sequence: each new system would be compiled again."""
    made: dict[tuple, Made] = {}

    def recall(orbit: PeriodicOrbit) -> Made:
        # An `eqx.Partial` has no hash.
        leaves, structure = jax.tree.flatten(orbit.system)
        key = (*leaves, structure, orbit.sequence)
        if key not in made:
            made[key] = make(orbit)
        return made[key]

    return recall


def with_integral(system: HybridSystem, rates: Mapping[str, Rate]) -> HybridSystem:
    """The system with one more state, the last, which the jumps do not change and whose derivative is the rate of the mode."""
    return extended(system, "integral of the rate", lambda name: rates.get(name, lambda t, x, params: jnp.zeros(())))


# A system without domains, and a function of the state in some of its modes.
MeasuredSystem = tuple[HybridSystem, dict[str, Rate]]


def measured(system: HybridSystem, functions: Mapping[str, Rate]) -> MeasuredSystem:
    """The system with these functions by mode."""
    return system.without_domains(), dict(functions)


def turning_of(what: MeasuredSystem) -> HybridSystem:
    """The system with the same flows whose guards are a function's rate and its opposite: one falls where the function turns."""
    system, functions = what
    turns = []
    for name, function in functions.items():
        rate = rate_of(function, system.mode(name))
        turns += [Transition(name, name, guard, unchanged) for guard in (rate, lambda *at, rate=rate: -rate(*at))]
    return HybridSystem(system.modes, tuple(turns))


def rate_of(function: Rate, mode: Mode) -> Rate:
    """The rate of a function of the state along the flow of a mode."""

    def rate(t, x, params):
        at = lambda t, x: jnp.asarray(function(t, x, params), x.dtype)
        return jax.jvp(at, (t, x), (jnp.ones_like(t), mode.vector_field(t, x, params)))[1]

    return rate


def values_at(
    what: MeasuredSystem, orbit: PeriodicOrbit, params: Params, fractions: Float[Array, " times"]
) -> Float[Array, "strides arcs times"]:
    """The function at these fractions, from 0 to 1, of each arc whose mode has a function. NaN where a flow fails."""
    return _values(what, orbit, params, fractions, 0)


def turning_values(
    what: MeasuredSystem, orbit: PeriodicOrbit, params: Params, window: tuple[float, float] = (0.0, 1.0)
) -> Float[Array, "strides arcs times"]:
    """The function at the begin of the window, at the turning points in the window, and at the window's end.

    **Arguments:** `what`: its modes may have further coordinates, after those of the orbit, which are zero where an arc starts.
    `window`: two fractions of an arc.

    **Returns:** for each arc whose mode has a function `MOST + 2` values in the order of time; in place of turning points that
    there are not stands the value at an end of the window. NaN where a flow fails or an arc has more turning points.
    """
    return _values(what, orbit, params, jnp.asarray(window, orbit.x.dtype), MOST)


@long_run
def _values(what: MeasuredSystem, orbit: PeriodicOrbit, params: Params, fractions, most: int):
    integrator, sequence = orbit.integrator, orbit.mode_names
    keeps_jacobian = integrator.loop == "lax"
    plain = without_jacobian(integrator) if keeps_jacobian else integrator
    system, functions = what
    pad = Automaton(system).pad
    ends = orbit.start_times[:, None] + orbit.jump_times
    begins = jnp.concatenate([orbit.start_times[:, None], ends[:, :-1]], axis=1)
    ways = [orbit.system.way(k) for k in orbit.system.route(orbit.sequence)]
    jumped = [
        jax.vmap(lambda t, x, way=way: reset(way, t, x, params))(t, x)
        for way, t, x in zip(ways[:-1], ends.T, orbit.arc_ends, strict=False)
    ]
    first = jnp.stack([jax.vmap(pad)(x) for x in (orbit.nodes, *jumped)], axis=1)

    def run(inputs):
        begins, ends, first, params, fractions = inputs
        times, states, turns, sound = _pass(what, begins, ends, first, params, fractions, sequence, plain, most)
        return (times, states), (turns, sound)

    def stride(begins, ends, first):
        inputs = begins, ends, first, params, fractions
        (times, states), (turns, sound) = linearizable(run, inputs) if keeps_jacobian else run(inputs)
        arcs = [
            jax.vmap(lambda *at, mode=mode: _value(what, mode, params, *at))(times[k], states[k], turns[k])
            for k, mode in enumerate(sequence)
            if mode in functions
        ]
        return nan_unless(sound, jnp.stack(arcs))

    return jax.vmap(stride)(begins, ends, first)


def _pass(what: MeasuredSystem, begins, ends, first, params: Params, fractions, sequence, integrator, most: int):
    """One stride: for each arc the chosen times, the padded states there, whether the times are turning points; and whether all
    flows succeeded. `begins`, `ends`: of the arcs. `first`: the padded states at their starts."""
    automaton = Automaton(what[0])
    turning = Automaton(turning_of(what)) if most else None
    modes = jnp.array([automaton.system.number(name) for name in sequence])

    def arc(_, at):
        mode, t, last, z = at
        sound = jnp.array(True)
        times = jnp.where(fractions < 1, t + fractions * (last - t), last)
        turns = jnp.zeros(times.shape, bool)
        if turning is not None:
            located, sound = _locate(turning, mode, t, z, times[1], params, integrator, most)
            begin, stop = times
            inside = (begin < located) & (located < stop)
            between = jnp.where(inside, located, jnp.where(located < stop, begin, stop))
            times = jnp.concatenate([begin[None], between, stop[None]])
            turns = jnp.pad(inside, 1)

        def piece(now, until):
            t, z = now
            reached = follow_automaton(automaton, t, z, mode, until, params, integrator, guarded=False)
            return (until, reached.x), (reached.x, reached.result == RESULTS.successful)

        _, (states, succeeded) = jax.lax.scan(piece, (t, z), times)
        return None, (times, states, turns, sound & jnp.all(succeeded))

    _, (times, states, turns, sound) = jax.lax.scan(arc, None, (modes, begins, ends, first))
    return times, states, turns, jnp.all(sound)


def _locate(
    turning: Automaton, mode: Index, t: Time, z: Padded, stop: Time, params: Params, integrator: Integrators, most: int
) -> tuple[Float[Array, " most"], Flag]:
    """The times of the turning points of an arc until the time `stop`, without derivatives, infinite for those there are not;
    and whether these are all."""
    turning, t, z, stop, params = without_tangents((turning, t, z, stop, params))
    t0, forward = t, rolled(without_jacobian(integrator))

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


def _value(what: MeasuredSystem, mode: str, params: Params, t: Time, z: Padded, turns: Bool[Array, ""]) -> Scalar:
    """The function at a point, with the second derivatives of a turning point's value where it `turns`."""
    flow, function = what[0].mode(mode), what[1][mode]
    x = z[: flow.dimension]
    value = jnp.asarray(function(t, x, params), x.dtype)
    rate = rate_of(function, flow)
    still = without_tangents((t, x, params))
    bend = rate_of(rate, flow)(*still)
    known = turns & (bend != 0)
    gain = -(rate(t, x, params) ** 2) / (2 * jnp.where(known, stop_gradient(bend), 1))
    return value + jnp.where(known, gain, 0)
