r"""The quadratic cost of a regulator, and the parameters by which it acts.

$$\int \delta x^\top Q\,\delta x + u^\top R\,u\,\mathrm dt + \sum_{\text{events}} \delta x^{-\top} Q_e\,\delta x^-
  + \delta x(T)^\top P_T\,\delta x(T)$$
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.elimination import solver
from .._numerics.linearize import with_columns
from .._numerics.semidefinite import check_covariance, check_positive, unit_of
from .._orbit.stride_derivatives import leaf_values
from .._system.system import HybridSystem, VectorField
from .._system.types import Matrix, Params, Scalar, State, Time
from .._system.where import free_leaves, Where, with_leaves

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
