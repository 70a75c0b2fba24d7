"""A trajectory or a periodic orbit as a reference: its arcs, padded to the largest dimension, and the jumps between them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton
from .._flow.integrator import Integrators
from .._flow.jump import reset
from .._flow.trajectory import Trajectory
from .._orbit.orbit import PeriodicOrbit
from .._results.shown import is_traced
from .._system.results import described_code, RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, Scalar


class Reference(eqx.Module):
    """The arcs of a trajectory, or once around an orbit.

    **Attributes:** `start_times`, `end_times`: of the arcs, shape `(arcs,)`; unused rows are arcs of length 0. `x_starts`,
    `x_ends`: states after and before the jumps, shape `(arcs, size)`, padded with zeros. `modes`, `ways`: indices,
    shape `(arcs,)`. `there`: whether the row holds an arc. `jumped`: whether it ends with a jump. `period`: of an orbit, whose
    last arc is followed by the first; `None` for a trajectory. `result`: the code of the reference. `initial`, `final`: the
    names of the modes at start and end; `None` where they are traced.
    """

    start_times: Float[Array, " arcs"]
    end_times: Float[Array, " arcs"]
    x_starts: Float[Array, "arcs size"]
    x_ends: Float[Array, "arcs size"]
    modes: Int[Array, " arcs"]
    ways: Int[Array, " arcs"]
    there: Bool[Array, " arcs"]
    jumped: Bool[Array, " arcs"]
    period: Scalar | None
    result: RESULTS
    params: Params
    initial: str | None = eqx.field(static=True)
    final: str | None = eqx.field(static=True)
    system: HybridSystem = eqx.field(static=True)
    integrator: Integrators = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The largest dimension of any mode."""
        return self.x_starts.shape[1]

    def saltations(self) -> Float[Array, "arcs size size"]:
        """The saltation matrices of the jumps that end the arcs, padded with zeros; of arcs without a jump, any matrix."""
        automaton = Automaton(self.system)
        if not self.system.transitions:
            return jnp.zeros((len(self.start_times), self.size, self.size), self.x_starts.dtype)
        # Of an arc without a jump, that of another arc: its own guard may stand still, and a number that is not finite reaches
        # the gradient of those that are.
        row = jnp.where(self.jumped, jnp.arange(len(self.jumped)), jnp.argmax(self.jumped))
        at = lambda row: automaton.saltation(row[0], row[1], row[2], self.params)
        return jax.lax.map(at, (self.end_times[row], self.x_ends[row], jnp.maximum(self.ways[row], 0)))


def reference_of(given: Trajectory | PeriodicOrbit, caller: str) -> Reference:
    """The arcs of a trajectory or orbit. `ValueError` for a batch, and for one that failed (where it is not traced); its message
    begins with `caller`."""
    if not isinstance(given, Trajectory | PeriodicOrbit):
        raise ValueError(
            f"{caller}: {type(given).__name__} is no reference. Give a hj.Trajectory, from hj.simulate, or a hj.PeriodicOrbit."
        )
    if given.start_times.ndim > 1:
        raise ValueError(f"{caller}: this is a batch of {len(given)} references. Choose one, or use jax.vmap.")
    if not is_traced(given.result) and bool(given.result != RESULTS.successful):
        raise ValueError(
            f"{caller}: the reference failed, {described_code(given.result)} Give a reference whose result is successful."
        )
    return _of_trajectory(given) if isinstance(given, Trajectory) else _of_orbit(given)


def _of_trajectory(given: Trajectory) -> Reference:
    there = given.modes >= 0
    fill = lambda column: jnp.where(there.reshape((-1,) + (1,) * (column.ndim - 1)), column, column[0])
    starts, names = fill(given.start_times), given.system.names
    traced = is_traced((given.modes, given.mode))
    initial, final = (None if traced else names[int(np.ravel(each)[0])] for each in (given.modes, given.mode))
    return Reference(
        start_times=starts, end_times=jnp.where(there, given.end_times, starts), x_starts=fill(given.x_starts),
        x_ends=fill(given.x_ends), modes=fill(given.modes), there=there,
        ways=given.system.way_number(given.transitions, given.indices),
        jumped=jnp.arange(len(starts)) < given.jumps, period=None, result=given.result,
        params=given.params, initial=initial, final=final, system=given.system, integrator=given.integrator,
    )  # fmt: skip


def _of_orbit(given: PeriodicOrbit) -> Reference:
    system, automaton, route = given.system, Automaton(given.system), given.system.route(given.sequence)
    rows = []
    for k in range(given.strides):
        start, x = given.start_times[k], given.nodes[k]
        for i, taken in enumerate(route):
            end, x_end = given.start_times[k] + given.jump_times[k, i], given.arc_ends[i][k]
            rows.append((start, end, automaton.pad(x), automaton.pad(x_end)))
            start, x = end, reset(system.way(taken), end, x_end, given.params)
    starts, ends, x_starts, x_ends = (jnp.stack(column) for column in zip(*rows, strict=True))
    modes = jnp.array([system.number(name) for name in given.sequence] * given.strides)
    every = jnp.ones(len(rows), bool)
    return Reference(
        start_times=starts, end_times=ends, x_starts=x_starts, x_ends=x_ends, modes=modes,
        ways=jnp.array(list(route) * given.strides), there=every, jumped=every, period=given.period,
        result=given.result, params=given.params, initial=given.sequence[0], final=given.sequence[0], system=system,
        integrator=given.integrator,
    )  # fmt: skip
