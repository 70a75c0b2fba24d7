r"""A trajectory or a periodic orbit as a reference: its arcs, padded to the largest dimension, and the jumps between them. And
the quadratic cost of a regulator about it, with the parameters by which the regulator acts.

$$\int \delta x^\top Q\,\delta x + u^\top R\,u\,\mathrm dt + \sum_{\text{events}} \delta x^{-\top} Q_e\,\delta x^-
  + \delta x(T)^\top P_T\,\delta x(T)$$
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton
from .._flow.integrator import Integrators
from .._flow.jump import reset
from .._flow.trajectory import Trajectory
from .._numerics.elimination import solver
from .._numerics.linearize import with_columns
from .._numerics.semidefinite import check_covariance, check_positive, unit_of
from .._orbit.orbit import leaf_values, PeriodicOrbit
from .._results.shown import is_traced
from .._system.results import described_code, RESULTS
from .._system.system import HybridSystem, VectorField
from .._system.types import Matrix, Params, Scalar, State, Time
from .._system.where import free_leaves, Where, with_leaves


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


Square = Float[Array, "size size"]
ByMode = Matrix | np.ndarray | Mapping[str, Matrix | np.ndarray] | None
ByTransition = Matrix | np.ndarray | Mapping[int | tuple[str, str], Matrix | np.ndarray] | None


class QuadraticCost(eqx.Module):
    """The costs of every mode and transition, as a PyTree, in units of `unit`.

    Modes that share flow and cost share one compiled branch.

    **Attributes:** `states`: the distinct matrices $Q$ and $Q_e$, each of its own dimension. `control`: $R$, shape `(m, m)`.
    `inverse`: $R^{-1}$. `unit`: a power of two near the largest entry of $Q$ and $P_T$: the Riccati equation is linear in all
    costs together, so the unit only decides what the absolute tolerance of the integrator means for them. `of_mode`,
    `of_event`: for each mode the index of its $Q$, for each transition that of its $Q_e$, or `None`. `free`: the leaves of the
    parameters that act.
    """

    states: tuple[Array, ...]
    control: Float[Array, "m m"]
    inverse: Float[Array, "m m"]
    unit: Scalar
    of_mode: tuple[int, ...] = eqx.field(static=True)
    of_event: tuple[int | None, ...] = eqx.field(static=True)
    free: tuple[int, ...] = eqx.field(static=True)


def place_cost(
    system: HybridSystem,
    params: Params,
    dtype,
    where: Where,
    state_cost: ByMode,
    control_cost: Float[Array, "m m"] | np.ndarray | None,
    event_cost: ByTransition,
    terminal_cost: Matrix | None,
    caller: str,
) -> QuadraticCost:
    """The costs, checked. `ValueError` for a wrong shape, a matrix that is not symmetric and semidefinite or, $R$, definite."""
    free = free_leaves(where, params)
    sizes = {name: mode.dimension for name, mode in system.modes.items()}
    if state_cost is not None and not isinstance(state_cost, Mapping) and len(set(sizes.values())) > 1:
        raise ValueError(
            f"{caller}: state_cost is one matrix, but the modes have the dimensions {sizes}. Give one for each mode, "
            "{name: Q, ...}; a mode that is not named has the identity."
        )
    given = system.by_mode(state_cost, f"{caller}(state_cost=...)")
    distinct: list[tuple] = []

    def keep(matrix, n: int, label: str) -> int:
        for index, known in enumerate(distinct):
            if known[0] is matrix and known[1] == n:
                return index
        found = jnp.eye(n, dtype=dtype) if matrix is None else check_covariance(matrix, n, dtype, f"{caller}: {label}")
        distinct.append((matrix, n, found))
        return len(distinct) - 1

    of_mode = tuple(keep(given[name], n, f"state_cost of mode {name!r}") for name, n in sizes.items())
    at_events = system.by_transition(event_cost, f"{caller}: event_cost")
    of_event = tuple(
        None if each is None else keep(each, sizes[way.source], f"event_cost of {way.source!r} -> {way.target!r}")
        for each, way in zip(at_events, system.transitions, strict=True)
    )
    m = len(free)
    control = (
        jnp.eye(m, dtype=dtype)
        if control_cost is None
        else check_positive(control_cost, m, dtype, f"{caller}: control_cost")
    )
    states = tuple(each[2] for each in distinct)
    unit = unit_of([*states, *([] if terminal_cost is None else [terminal_cost])])
    scaled = control / unit
    inverse = solver(scaled)(jnp.eye(m, dtype=dtype))
    return QuadraticCost(tuple(each / unit for each in states), scaled, inverse, unit, of_mode, of_event, free)


def linearized(
    vector_field: VectorField, t: Time, x: State, params: Params, free: tuple[int, ...]
) -> tuple[State, Float[Array, "n n"], Float[Array, "n m"]]:
    """The vector field at `(t, x)`, differentiated by the state and by the parameters `free`: $f$, $A = D_xf$, $B = D_uf$."""
    n = x.size
    at = lambda v: (vector_field(t, v[:n], with_leaves(params, free, v[n:])), None)
    rate, by, _ = with_columns(at, jnp.concatenate([x, leaf_values(params, free, x.dtype)]))
    return rate, by[:, :n], by[:, n:]


def control_matrix(
    vector_field: VectorField, t: Time, x: State, params: Params, free: tuple[int, ...]
) -> Float[Array, "n m"]:
    """$B = D_uf$ alone."""
    at = lambda values: vector_field(t, x, with_leaves(params, free, values))
    return jax.jacfwd(at)(leaf_values(params, free, x.dtype))


def across(cost: Matrix, rate: State) -> Matrix:
    r"""The cost of the deviation from the nearest point of the orbit: $Q_\perp = Q - Qff^\top Q / (f^\top Qf)$, the least of
    $(\delta x - fs)^\top Q\,(\delta x - fs)$ over times $s$; so $Q_\perp f = 0$."""
    # Sums, which are compiled together with their surroundings.
    pushed = jnp.sum(cost * rate, axis=1)
    along = jnp.sum(rate * pushed)
    # Where the cost does not see the flow, it is already that of the deviation from the orbit.
    return cost - jnp.where(along > 0, 1 / jnp.where(along > 0, along, 1), 0) * pushed[:, None] * pushed
