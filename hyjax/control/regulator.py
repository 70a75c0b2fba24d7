r"""The linear-quadratic regulator along a trajectory or a periodic orbit, through early and late events; and the closed loop of a
system and its regulator, as a joint system.

The state of the closed loop is that of the system and three coordinates that follow it: the number of the reference's arc with
which the solution is compared, the shift of its time, and the cost so far,

$$\dot c = \delta x^\top Q\,\delta x + u^\top R\,u, \qquad c^+ = c^- + \delta x^{-\top} Q_e\,\delta x^-.$$
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Int

from .._flow.automaton import Automaton
from .._flow.check import check_state
from .._flow.integrator import for_modes, IntegratorLike, Integrators
from .._flow.joint import joint_system, own_params
from .._flow.simulate import run_simulation
from .._flow.trajectory import Trajectory
from .._numerics.eager import long_run
from .._orbit.orbit import leaf_values, PeriodicOrbit
from .._results.failure import raise_failure
from .._results.shown import Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem, Mode, Reset
from .._system.types import Matrix, require_counts, State, Time
from .._system.where import Where, with_leaves
from .reference import ByMode, ByTransition
from .riccati_equation import passage, prepare, solve
from .tracker import reference_table, ReferencePlace, Tracker

# The coordinates that follow the state.
FOLLOWING = ("reference_arc", "reference_shift", "cost")


class Tracking(Shown):
    r"""A solution of the closed loop, from `Regulator.simulate`.

    **Attributes:** `trajectory`: that of the closed loop, whose states have three more coordinates, after those of their mode:
    the number of the reference's arc, the time less that of the reference, and the cost so far. `x`: the final state without
    them, shape `(size,)`, padded with zeros. `cost`: $\int \delta x^\top Q\,\delta x + u^\top R\,u\,\mathrm dt + \sum \delta
    x^{-\top} Q_e\,\delta x^-$ from start to end, without the terminal cost; nothing is added in modes that the reference does
    not visit. `result`: the code of the regulator or of the simulation.

    **Example:**

    >>> free = hj.Mode(lambda t, x, p: jnp.stack([x[1], p["force"]]), coordinates=("y", "v"))
    >>> wall = hj.Transition("free", "free", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -0.7 * x[1]]))
    >>> cart, params = hj.HybridSystem({"free": free}, (wall,)), {"force": jnp.array(0.0)}
    >>> run = hj.simulate(cart, jnp.array([1.0, -2.0]), params, mode="free", t1=1.0, max_jumps=1)
    >>> held = hj.control.regulator(run, where=lambda p: p["force"], terminal_cost=jnp.eye(2))
    >>> tracking = held.simulate(jnp.array([1.01, -2.0]), t1=1.0)
    >>> tracking.x.shape
    (2,)
    >>> print(f"{tracking.cost:.2e}")
    7.60e-05
    """

    trajectory: Trajectory
    x: Float[Array, "*batch size"]
    cost: Float[Array, "*batch"]
    result: RESULTS


def closed_system(tracker: Tracker) -> HybridSystem:
    """The closed loop, whose parameters are the tracker."""
    system = tracker.reference.system
    number = system.number

    def jump(k: int) -> Reset:
        way = system.transitions[k]
        cost = tracker.weights.of_event[k]
        return eqx.Partial(_jump, system.mode(way.source), way.reset, number(way.source), number(way.target), cost)

    flow = lambda name: eqx.Partial(_flow, system.mode(name), number(name))
    closed = joint_system(system, flow, jump, lambda mode: (*mode.coordinates, *FOLLOWING), params_of=own_params)
    units = ("1", system.time_unit, "")
    modes = {
        name: dataclasses.replace(mode, units=(*own.units, *units) if own.units else ())
        for (name, mode), own in zip(closed.modes.items(), system.modes.values(), strict=True)
    }
    return HybridSystem(modes, closed.transitions, system.time_unit)


def _flow(mode: Mode, number: int, t: Time, z: State, tracker: Tracker) -> State:
    n, weights, params = mode.dimension, tracker.weights, tracker.params
    x = z[:n]
    control, deviation, q = tracker.control(_place(z, n), t, x, mode, number)
    values = leaf_values(params, weights.free, x.dtype) + control
    rate = mode.vector_field(t, x, with_leaves(params, weights.free, values))
    cost = deviation @ q @ deviation + control @ weights.control @ control
    return jnp.concatenate([rate, jnp.zeros(2, x.dtype), (weights.unit * cost)[None]])


def _jump(
    source: Mode,
    reset: Reset,
    before: int,
    after: int,
    event_cost: int | None,
    t: Time,
    z: State,
    tracker: Tracker,
    *member,
) -> Float[Array, " after"]:
    n = source.dimension
    x, place, cost = z[:n], _place(z, n), z[n + 2]
    if event_cost is not None:
        _, deviation, _ = tracker.control(place, t, x, source, before)
        cost = cost + tracker.weights.unit * (deviation @ tracker.weights.states[event_cost] @ deviation)
    arc, shift = tracker.entered(place, t, after)
    x = jnp.asarray(reset(t, x, tracker.params, *member), z.dtype)
    return jnp.concatenate([x, jnp.stack([arc.astype(z.dtype), shift, cost])])


def _place(z: State, n: int) -> ReferencePlace:
    return jnp.round(jax.lax.stop_gradient(z[n])).astype(int), z[n + 1]


@long_run
def tracking(
    tracker: Tracker,
    x0: State,
    mode: str,
    t0: Time,
    t1: Time,
    max_jumps: int,
    integrator: Integrators,
    save: Float[Array, " times"] | None,
) -> Tracking:
    """`Regulator.simulate` without the checks of its arguments."""
    system = tracker.reference.system
    dimensions = tuple(each.dimension for each in system.modes.values())
    arc, shift = tracker.nearest(t0, system.names.index(mode))
    z0 = jnp.concatenate([x0, jnp.stack([arc.astype(x0.dtype), shift, jnp.zeros((), x0.dtype)])])
    automaton = Automaton(closed_system(tracker), leading=dimensions)
    run = run_simulation(automaton, z0, mode, t0, t1, tracker, max_jumps, integrator, save)
    n = jnp.array(dimensions)[run.mode]
    size = tracker.reference.size
    x = jnp.where(jnp.arange(size) < n, run.x[:size], 0)
    return Tracking(run, x, run.x[n + 2], run.result)


Index = Int[Array, ""]


class Regulator(Shown):
    r"""The feedback $u = -K(t)\,(x - x_\ast(t))$, $K = R^{-1}B^\top P$, of a reference $x_\ast$, from `regulator`.

    **Attributes:** `cost`: $P$ at the start, shape `(size, size)`, padded with zeros. `multipliers`: of the closed loop once
    around an orbit, shape `(size,)`; `None` for a finite horizon. `result`: `successful`, or the code of `riccati`. `tracker`:
    the reference over time, with the costs.

    **Example:**

    >>> free = hj.Mode(lambda t, x, p: jnp.stack([x[1], p["force"]]), coordinates=("y", "v"))
    >>> wall = hj.Transition("free", "free", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -0.7 * x[1]]))
    >>> cart, params = hj.HybridSystem({"free": free}, (wall,)), {"force": jnp.array(0.0)}
    >>> run = hj.simulate(cart, jnp.array([1.0, -2.0]), params, mode="free", t1=1.0, max_jumps=1)
    >>> held = hj.control.regulator(run, where=lambda p: p["force"], terminal_cost=jnp.eye(2))
    >>> held.cost.shape
    (2, 2)
    >>> print(held.control(0.2, jnp.array([0.61, -2.0]), mode="free").round(4))
    [-0.0042]
    """

    cost: Float[Array, "*batch size size"]
    multipliers: Complex[Array, "*batch size"] | None
    result: RESULTS
    tracker: Tracker

    def gain(self, t: float | Time, *, mode: str, arc: int | Index | None = None) -> Float[Array, "m n"]:
        """The gain $K$ at a time, of the arc of the mode that is nearest in time, or of a given arc."""
        each, number, t, (arc, shift) = self._placed(t, mode, arc)
        return self.tracker.gain(arc, t - shift, each, number)[0]

    def control(self, t: float | Time, x: State, *, mode: str, arc: int | Index | None = None) -> Float[Array, " m"]:
        """The control $u$, the deviation of the parameters that act from those of the reference, at a time and state of a mode;
        zero in a mode that the reference does not visit.

        **Arguments:** `arc`: the number of the arc with which `x` is compared; by default the arc of the mode that is nearest in
        time. A mode that recurs has several: then the solution itself knows which of its events have passed, as in `simulate`.
        """
        each, number, t, place = self._placed(t, mode, arc)
        return self.tracker.control(place, t, check_state(x, each.dimension, mode), each, number)[0]

    def _placed(self, t, mode: str, arc) -> tuple[Mode, int, Time, ReferencePlace]:
        system, t = self.tracker.reference.system, jnp.asarray(t, self.tracker.reference.start_times.dtype)
        each, number = system.mode(mode), system.number(mode)
        nearest, shift = self.tracker.nearest(t, number)
        return each, number, t, (nearest if arc is None else jnp.asarray(arc), shift)

    def simulate(
        self,
        x0: State,
        *,
        t1: float | Time,
        t0: float | Time | None = None,
        mode: str | None = None,
        max_jumps: int = 100,
        integrator: IntegratorLike | None = None,
        times: Float[Array, " times"] | None = None,
        throw: bool = True,
    ) -> Tracking:
        r"""The closed loop from the state `x0`, through whatever modes come, by `simulate`.

        After a jump the solution is compared with the arc, of its mode, that starts nearest in time: so before and after an event
        that is early or late it is compared with the continuation of the arc of its own mode. In a mode that the reference does
        not visit there is no control. Guards and resets see the parameters of the reference. Around an orbit the reference goes
        on without end; after the end of a trajectory its last arc is continued.

        **Arguments:** `x0`: shape `(n,)`. `t0`: start time; by default that of the reference. `mode`: the first mode; by default
        that of the reference. The others as for `simulate`; by default the reference's integrator.

        **Returns:** `Tracking`, also under `jit` and `vmap`; its `result` is a code of `simulate`, or that of the regulator.
        """
        known = self.tracker.reference
        dtype = known.start_times.dtype
        if mode is None:
            mode = known.initial
        if mode is None:
            raise ValueError("simulate: the modes of the reference are traced. Name the first mode, mode=...")
        x0 = check_state(x0, known.system.mode(mode).dimension, mode)
        chosen = known.integrator if integrator is None else for_modes(known.system, integrator)
        chosen.tolerances(x0.dtype)
        require_counts("simulate", 0, max_jumps=max_jumps)
        start = known.start_times[0] if t0 is None else jnp.asarray(t0, dtype)
        times = None if times is None else jnp.asarray(times, dtype)
        tracked = tracking(self.tracker, x0, mode, start, jnp.asarray(t1, dtype), max_jumps, chosen, times)
        result = choose(self.result == RESULTS.successful, tracked.result, self.result)
        tracked = dataclasses.replace(tracked, result=result)
        return raise_failure("Regulator.simulate", tracked) if throw else tracked


def regulator(
    reference: Trajectory | PeriodicOrbit,
    *,
    where: Where,
    state_cost: ByMode = None,
    control_cost: Float[Array, "m m"] | None = None,
    terminal_cost: Matrix | None = None,
    event_cost: ByTransition = None,
    transverse: bool = False,
    n_segments: int = 32,
    margin: float = 0.25,
    throw: bool = True,
) -> Regulator:
    r"""The linear-quadratic regulator along a trajectory or a periodic orbit: $u = -R^{-1}B^\top P(t)\,(x - x_\ast(t))$.

    $P$ is the solution of the Riccati equation of `riccati`, with the same arguments. The reference $x_\ast$ of each arc is
    continued beyond both of its events by the flow of its mode: without this continuation the difference from the reference
    would be as large as the jump between an early or late event and the reference's own. The cost of the closed loop from
    $x_\ast(0) + \delta x$ is $\delta x^\top P(0)\,\delta x$ to second order in $\delta x$.

    With `transverse` the reference's time is set at each jump to that of the reference's own jump, so that the phase is free.

    **Arguments:** `n_segments`: the number of polynomials of degree 5 in time by which reference and $P$ are represented on each
    arc; the error falls with its sixth power. `margin`: how far each arc is continued on both sides, by its duration; a solution
    whose event is further off is compared with the end of the continuation. Both are static. The others as for `riccati`.
    `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Regulator`, also under `jit`, `vmap` and `grad`; `simulate` runs the closed loop.

    **Example:**

    >>> free = hj.Mode(lambda t, x, p: jnp.stack([x[1], p["force"]]), coordinates=("y", "v"))
    >>> wall = hj.Transition("free", "free", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -0.7 * x[1]]))
    >>> cart, params = hj.HybridSystem({"free": free}, (wall,)), {"force": jnp.array(0.0)}
    >>> run = hj.simulate(cart, jnp.array([1.0, -2.0]), params, mode="free", t1=1.0, max_jumps=1)
    >>> held = hj.control.regulator(run, where=lambda p: p["force"], terminal_cost=jnp.eye(2))
    >>> tracking = held.simulate(jnp.array([1.01, -2.0]), t1=1.0)
    >>> print(tracking.result)
    successful

    Source: Kong, Payne, Zhu, Johnson (2024), eqs. 39-40 and 156, and Sec. II for the extended reference: in Table I $P$ of eq.
    40, the penalties of Appendix D, and the perturbed impact time of Sec. III-B, beyond which the reference is continued.
    Rijnen, Saccon, Nijmeijer (2015), *On optimal trajectory tracking for mechanical systems with unilateral constraints*, IEEE
    CDC.
    """
    require_counts("regulator", 1, n_segments=n_segments)
    if not margin >= 0:
        raise ValueError(f"regulator: margin={margin!r} must not be negative: it is a part of an arc's duration.")
    reference.system.refuse_at_once("regulator")
    given, cost, terminal = prepare(
        reference, where, state_cost, control_cost, terminal_cost, event_cost, transverse, "regulator"
    )
    found = _regulator(given, cost, terminal, transverse, n_segments, int(-(-margin * n_segments // 1)))
    return raise_failure("regulator", found) if throw else found


@long_run
def _regulator(reference, weights, terminal, transverse: bool, n_segments: int, margin: int) -> Regulator:
    maps, nodes, result = passage(reference, weights, n_segments, transverse)
    costs, multipliers, result = solve(maps, result, reference, weights, terminal, transverse)
    table = reference_table(reference, weights, maps, nodes, costs, margin, transverse)
    good = result == RESULTS.successful
    cost = nan_unless(good, costs[0][0, 0] * weights.unit)
    multipliers = None if multipliers is None else nan_unless(good, multipliers)
    return Regulator(cost, multipliers, result, Tracker(reference, weights, table, transverse))
