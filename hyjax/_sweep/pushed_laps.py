"""Laps of an orbit after a push: through whatever modes, whether they come back, and their height on a border of the basin.

The laps end with the jump that closes the orbit's stride. A pushed state may meet other guards before, and still come back.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.automaton import Automaton
from .._flow.flow import flow_for
from .._flow.integrator import Integrator
from .._flow.jump import reset
from .._flow.simulate import mode_of_state, run_to_way
from .._numerics.eager import long_run, short_run
from .._numerics.eigenvalues import outside_circle
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import in_lanes, Lap, lap_of
from .._orbit.return_map import ReturnMap
from .._system.results import choose, RESULTS
from .._system.system import of_arc
from .._system.types import Params, Scalar, State
from .._system.where import with_leaves
from .edge_state import comes_back


class Basin(NamedTuple):
    """The states that come within `near` of a node of the orbit in at most so many passes; the largest pushes that are tried."""

    nodes: Float[Array, "nodes n"]
    near: Array
    most: Array
    largest: Array


class Pushed(eqx.Module):
    """Pushes within one arc of an orbit. **Attributes:** `arc`: its number. `start`, `begin`, `end`: its first state and times.
    `directions`: of the coordinates of its mode. `free`: indices of the parameters that change until the end of the lap.
    `basin`: that of the orbit."""

    lap: Lap
    arc: int = eqx.field(static=True)
    start: State
    begin: Scalar
    end: Scalar
    directions: Float[Array, "directions n"]
    free: tuple[int, ...] = eqx.field(static=True)
    basin: "Basin"

    def fates(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Whether the orbit comes back after each push, the states at the end of the lap, and the codes of the lap."""
        return in_lanes(lambda v: _returns(self, v), v)

    def state(self, at: Scalar) -> State:
        """The state of the orbit at a time of the arc."""
        system, integrator = self.lap.step.system, self.lap.step.integrator_or(Integrator())
        return flow_for(system, self._modes[self.arc], self.begin, self.start, at, self.lap.params, integrator)

    def after(self, v: Float[Array, " pushes_and_time"], step: ReturnMap) -> tuple[State, RESULTS]:
        """The state after the jump that closes a lap of `step`, from the sizes of the push along each direction, and its time."""
        own, count, at, modes = self.lap.step, len(self.directions), v[-1], self._modes
        x, leaves = states_of(self, v)[1], jax.tree.leaves(self.lap.params)
        kicked = [leaves[i] + kick for i, kick in zip(self.free, v[count:-1], strict=True)]
        params, system = with_leaves(self.lap.params, self.free, jnp.array(kicked)), own.system
        times = system.route(modes)[self.arc :].count(system.route(step.sequence)[-1])  # pyright: ignore
        name, tolerances = of_arc(modes[self.arc], system.names)[0], own.integrator_or(Integrator()).tolerances(x.dtype)
        mode, x, held = mode_of_state(system, name, at, x, params, tolerances)
        x, result = _onward(step, at, x, mode, params, max(times, 1), self.basin.most)
        return x, choose(held == RESULTS.successful, result, held)

    @property
    def _modes(self) -> tuple[str, ...]:
        return self.lap.step.sequence * self.lap.step.strides  # pyright: ignore


def _onward(
    step: ReturnMap, t: Scalar, x: State, mode: Array, params: Params, times: int, most: Array
) -> tuple[State, RESULTS]:
    """The state just after the jump that closes a stride of the map has been taken so many `times`, through whatever modes.
    `most`: the largest number of jumps for each arc of a lap."""
    system, sequence = step.system, step.sequence * step.strides  # pyright: ignore
    way, integrator = system.route(sequence)[-1], step.integrator_or(Integrator())
    z, result = run_to_way(Automaton(system), t, x, mode, params, integrator, way, times, most * len(sequence))
    return z[: system.mode(sequence[0]).dimension], result


def _lap(lap: Lap, x: State, most: Array) -> tuple[State, RESULTS]:
    """The state after a lap, of as many jumps that close a stride as the map's own, and the code."""
    system, modes = lap.step.system, lap.step.sequence * lap.step.strides  # pyright: ignore
    mode, route = jnp.array(system.number(of_arc(modes[0], system.names)[0])), system.route(modes)
    return _onward(lap.step, jnp.zeros((), x.dtype), x, mode, lap.params, route.count(route[-1]), most)


def pushes_of(
    orbit: PeriodicOrbit, lap: Lap, arc: int, directions: Sequence[str] | Array, free: tuple[int, ...], basin: Basin
) -> Pushed:
    """The pushes within an arc of the orbit. `ValueError` for directions that its mode does not have."""
    stride, k = divmod(arc, len(orbit.sequence))
    begin, start = orbit.start_times[stride], orbit.nodes[stride]
    if k:
        begin = begin + orbit.jump_times[stride, k - 1]
        way = orbit.system.way(orbit.system.route(orbit.sequence)[k - 1])
        start = reset(way, begin, orbit.arc_ends[k - 1][stride], orbit.params)
    names = orbit.system.mode(orbit.sequence[k]).coordinates
    if all(isinstance(each, str) for each in directions):
        if missing := [each for each in directions if each not in names]:
            raise ValueError(f"smallest_push: {missing} are no coordinates of {orbit.sequence[k]}: {names}.")
        directions = jnp.eye(len(names), dtype=start.dtype)[np.array([names.index(each) for each in directions], int)]
    directions = jnp.asarray(directions, start.dtype)
    if directions.ndim != 2 or directions.shape[1] != len(names):
        raise ValueError(
            f"smallest_push: directions of shape {directions.shape} must have the shape (k, {len(names)})."
        )
    # Not the very end, where the guard is zero already.
    last = orbit.start_times[stride] + orbit.jump_times[stride, k]
    last = last - 1e-6 * (last - begin)
    return Pushed(lap, arc, start, begin, last, directions, free, basin)


@short_run
def states_of(pushed: Pushed, v: Float[Array, " pushes_and_time"]) -> tuple[State, State]:
    """The states of the orbit before and after a push."""
    before = pushed.state(v[-1])
    return before, before + v[: len(pushed.directions)] @ pushed.directions


@long_run
def _returns(pushed: Pushed, v: Float[Array, "points _"]) -> tuple[Array, Array, Array]:
    def one(v):
        basin, (x, result) = pushed.basin, pushed.after(v, pushed.lap.step)
        x = jnp.where(result == RESULTS.successful, x, jnp.inf)
        return _is_back(pushed.lap, basin, x), x, jnp.asarray(result._value)

    return jax.vmap(one)(v)


def _is_back(lap: Lap, basin: Basin, x: State) -> Array:
    return comes_back(lambda x: _lap(lap, x, basin.most), basin.nodes, x, basin.near, basin.most)


@long_run
def returns_of(lap: Lap, basin: Basin, x: Float[Array, "points n"]) -> Array:
    """Whether states after the jump that closes a lap come back to the orbit."""
    return jax.vmap(lambda x: _is_back(lap, basin, x))(x)


class Border(eqx.Module):
    """The stable manifold of an edge state, $c = 0$."""

    lap: Lap
    x: State
    multiplier: Scalar
    left: Float[Array, " n"]

    def height(self, x: State, result: RESULTS, strides: Array | int, most: Array) -> tuple[Scalar, State]:
        """$c$ and the state after so many laps, NaN where one fails."""

        def one(_, carry):
            x, good = carry
            x, result = _lap(self.lap, x, most)
            return x, good & (result == RESULTS.successful)

        x, good = jax.lax.fori_loop(0, strides, one, (x, result == RESULTS.successful))
        return jnp.where(good, self.left @ (x - self.x), jnp.nan) / self.multiplier**strides, x


@long_run
def conditions_of(pushed: Pushed, border: Border, v: Float[Array, "points _"], strides: Array):
    """`(c, its gradient, its Hessian, the state at the end)` of pushes."""

    def height(v):
        value, x = border.height(*pushed.after(v, border.lap.step), strides, pushed.basin.most)
        return value, (value, x)

    def both(v):
        slope, (value, x) = jax.jacfwd(height, has_aux=True)(v)
        return slope, (value, slope, x)

    def one(v):
        curvature, (value, slope, x) = jax.jacfwd(both, has_aux=True)(v)
        return value, slope, curvature, x

    return jax.vmap(one)(v)


def border_of(edge: PeriodicOrbit) -> Border:
    """The border that an edge state lies on. `ValueError` unless one multiplier is outside of the unit circle."""
    values, vectors = np.linalg.eig(np.asarray(edge.return_jacobian).T)
    outside = np.flatnonzero(outside_circle(values))
    if len(outside) != 1:
        raise ValueError(
            f"smallest_push: edge must have one multiplier outside of the unit circle, not {len(outside)}."
        )
    multiplier, left = np.real(values[outside[0]]), np.real(vectors[:, outside[0]])
    lap = lap_of(edge.step, edge.params, edge.period)
    return Border(lap, edge.x, jnp.asarray(multiplier), jnp.asarray(left))
