r"""The closed loop of a system and its regulator, as a joint system.

Its state is that of the system and three coordinates that follow it: the number of the reference's arc with which the solution is
compared, the shift of its time, and the cost so far,

$$\dot c = \delta x^\top Q\,\delta x + u^\top R\,u, \qquad c^+ = c^- + \delta x^{-\top} Q_e\,\delta x^-.$$
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.automaton import Automaton
from .._flow.integrator import Integrators
from .._flow.joint import joint_system, own_params
from .._flow.simulate import run_simulation
from .._flow.trajectory import Trajectory
from .._numerics.eager import long_run
from .._orbit.stride_derivatives import leaf_values
from .._results.shown import Shown
from .._system.results import RESULTS
from .._system.system import HybridSystem, Mode, Reset
from .._system.types import State, Time
from .._system.where import with_leaves
from .tracker import ReferencePlace, Tracker

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
