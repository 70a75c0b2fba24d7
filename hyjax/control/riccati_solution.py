r"""The Riccati equation along a trajectory or around a periodic orbit, through events."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from .._flow.trajectory import Trajectory
from .._numerics.riccati import closed_loop, stabilizing_cost
from .._numerics.semidefinite import check_covariance
from .._orbit.multipliers import eigenvalues
from .._orbit.orbit import PeriodicOrbit
from .._system.results import choose, nan_unless, RESULTS
from .._system.types import Matrix
from .._system.where import Where
from .quadratic_cost import ByMode, ByTransition, place_cost, QuadraticCost
from .reference import Reference, reference_of
from .riccati_map import around, backward, CostsToGo, Passage, passage, RiccatiMap


class RiccatiSolution(eqx.Module):
    r"""The cost-to-go $\delta x^\top P(t)\,\delta x$ of the deviation from a reference, from `riccati`.

    Matrices have a row and a column for each coordinate, padded with zeros to the largest dimension, `size`, as states of
    `Trajectory` are; NaN in unused rows. Units: those of the cost by those of the state squared.

    **Attributes:** `cost`: $P$ at the start, shape `(size, size)`. `cost_starts`, `cost_ends`: at the starts and ends of the
    arcs, after and before the jumps, shape `(arcs, size, size)`. `multipliers`: of the closed loop once around an orbit, largest
    modulus first, shape `(size,)`; `None` for a finite horizon. `result`: the code of the reference; of its integration; or
    `not_stabilized`. Unless it is `successful`, the numbers are NaN.

    **Example:**

    >>> free = hj.Mode(lambda t, x, p: jnp.stack([x[1], p["force"]]), coordinates=("y", "v"))
    >>> wall = hj.Transition("free", "free", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -0.7 * x[1]]))
    >>> cart, params = hj.HybridSystem({"free": free}, (wall,)), {"force": jnp.array(0.0)}
    >>> run = hj.simulate(cart, jnp.array([1.0, -2.0]), params, mode="free", t1=1.0, max_jumps=1)
    >>> found = hj.control.riccati(run, where=lambda p: p["force"], terminal_cost=jnp.eye(2))
    >>> print(found.cost_ends.shape, found.multipliers)
    (2, 2, 2) None
    """

    cost: Float[Array, "*batch size size"]
    cost_starts: Float[Array, "*batch arcs size size"]
    cost_ends: Float[Array, "*batch arcs size size"]
    multipliers: Complex[Array, "*batch size"] | None
    result: RESULTS


def riccati(
    reference: Trajectory | PeriodicOrbit,
    *,
    where: Where,
    state_cost: ByMode = None,
    control_cost: Float[Array, "m m"] | None = None,
    terminal_cost: Matrix | None = None,
    event_cost: ByTransition = None,
    transverse: bool = False,
) -> RiccatiSolution:
    r"""The Riccati equation along a reference, backward in time and through events.

    $$-\dot P = A^\top P + PA - PBR^{-1}B^\top P + Q, \quad A = D_xf,\ B = D_uf; \qquad P^- = Q_e + \Xi^\top P^+\,\Xi$$

    with the saltation matrix $\Xi$. $\delta x^\top P(t)\,\delta x$ is, to second order in the deviation $\delta x$ at the time
    $t$, the least cost $\int \delta x^\top Q\,\delta x + u^\top R\,u\,\mathrm dt + \sum \delta x^{-\top} Q_e\,\delta x^- +
    \delta x(T)^\top P_T\,\delta x(T)$; the feedback that attains it is `regulator`. The equation is integrated with the flow to
    the integrator's tolerance, in a form that runs forward in time (`riccati_map.py`).

    **Trajectory: finite horizon** from $P(T) = P_T$. **Orbit: infinite horizon**, the periodic solution $P(0) = P(T)$ whose
    closed loop is stable; or with `terminal_cost` once around the orbit. The deviation is that from the reference *at the same
    time*, so of an autonomous system also the phase is held: the orbit's own multiplier 1 must be within reach of the control.
    With `transverse` the deviation is that from the nearest point of the orbit, $Q_\perp = Q - Qff^\top Q/(f^\top Qf)$; then $Pf
    = 0$, the phase is free, and the multiplier 1 becomes 0, as of `return_jacobian`. Use it where the phase is a state that no
    control moves, such as that of a drive.

    **Arguments:** `reference`: from `simulate` or `periodic_orbit`. `where`: selects the $m$ parameters that act on the flow, as
    `lambda p: (p.torque, p.thrust)`; their values in the reference are $u = 0$. Where they enter guards or resets they keep these
    values. `state_cost`: $Q$, positive semidefinite, shape `(n, n)`, or a dictionary of one for each mode; by default the
    identity. `control_cost`: $R$, positive definite, `(m, m)`; by default the identity. `terminal_cost`: $P_T$, positive
    semidefinite, of the dimension of the final mode; by default zero for a trajectory. `event_cost`: $Q_e$, of the dimension
    before the event, or a dictionary by indices of transitions or by `(source, target)`; by default zero. `transverse`: static,
    for orbits.

    **Returns:** `RiccatiSolution`, also under `jit`, `vmap` and `grad` in the reference's parameters and in the costs. `result`
    is `not_stabilized` where no control stabilizes the orbit. `ValueError` for a failed reference, and for costs of a wrong
    shape or that are not symmetric and (semi)definite.

    **Example:**

    >>> free = hj.Mode(lambda t, x, p: jnp.stack([x[1], p["force"]]), coordinates=("y", "v"))
    >>> wall = hj.Transition("free", "free", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -0.7 * x[1]]))
    >>> cart, params = hj.HybridSystem({"free": free}, (wall,)), {"force": jnp.array(0.0)}
    >>> run = hj.simulate(cart, jnp.array([1.0, -2.0]), params, mode="free", t1=1.0, max_jumps=1)
    >>> found = hj.control.riccati(run, where=lambda p: p["force"], terminal_cost=jnp.eye(2))
    >>> print(found.cost.round(4), found.result)
    [[1.1364 0.5346]
     [0.5346 1.0944]] successful

    Source: Kong, Payne, Zhu, Johnson (2024), eqs. 39-40 and 156: in Table I the co-vector quadratic matrix $P$ of eq. 40 and the
    penalties of Appendix D, in Sec. II optimal control; eq. 39 is that of one time step, for which the equation of $\dot P$
    stands here. For the periodic solution Bittanti, Colaneri (2009), *Periodic Systems*, ch. 6.
    """
    given, cost, terminal = prepare(
        reference, where, state_cost, control_cost, terminal_cost, event_cost, transverse, "riccati"
    )
    return _riccati(given, cost, terminal, transverse)


def prepare(
    given: Trajectory | PeriodicOrbit,
    where,
    state_cost,
    control_cost,
    terminal_cost,
    event_cost,
    transverse,
    caller: str,
) -> tuple[Reference, QuadraticCost, Matrix | None]:
    """The arguments of `riccati` and `regulator`, checked. **Returns:** the reference, the costs, and $P_T$, padded and in the
    unit of the costs; `None` for the periodic solution."""
    reference = reference_of(given, caller)
    system, dtype, size = reference.system, reference.x_starts.dtype, reference.size
    if transverse and (reference.period is None or terminal_cost is not None):
        raise ValueError(f"{caller}: transverse=True needs a periodic orbit as the reference, and no terminal_cost.")
    if terminal_cost is not None:
        sizes = {mode.dimension for mode in system.modes.values()}
        if reference.final is not None:
            sizes = {system.mode(reference.final).dimension}
        terminal_cost = jnp.asarray(terminal_cost, dtype)
        n = len(terminal_cost) if terminal_cost.ndim and len(terminal_cost) in sizes else min(sizes)
        terminal_cost = check_covariance(terminal_cost, n, dtype, f"{caller}: terminal_cost")
    cost = place_cost(
        system, reference.params, dtype, where, state_cost, control_cost, event_cost, terminal_cost, caller
    )
    if terminal_cost is None:
        return reference, cost, None if reference.period is not None else jnp.zeros((size, size), dtype)
    return reference, cost, jnp.pad(terminal_cost / cost.unit, (0, size - len(terminal_cost)))


@eqx.filter_jit
def _riccati(reference: Reference, cost: QuadraticCost, terminal: Matrix | None, transverse: bool) -> RiccatiSolution:
    through = passage(reference, cost, 1, transverse)
    costs, multipliers, result = solve(through, reference, cost, terminal, transverse)
    good = result == RESULTS.successful
    there = good & reference.there[:, None, None]
    starts, ends = (nan_unless(there, each * cost.unit) for each in (costs.segments[:, 0], costs.ends))
    if multipliers is not None:
        multipliers = nan_unless(good, multipliers)
    return RiccatiSolution(starts[0], starts, ends, multipliers, result)


def solve(
    through: Passage, reference: Reference, cost: QuadraticCost, terminal: Matrix | None, transverse: bool
) -> tuple[CostsToGo, Complex[Array, " size"] | None, RESULTS]:
    """The cost matrices from $P_T$, or the periodic ones with the multipliers of their closed loop; and the result code."""
    if terminal is not None:
        return backward(through, reference, terminal), None, through.result
    once = _onto_section(around(through), reference, cost) if transverse else around(through)
    terminal = stabilizing_cost(once.a, once.g, once.h)
    multipliers = eigenvalues(closed_loop(once.a, once.g, terminal))
    # A multiplier of 1 is found with half of the digits.
    radius = jnp.max(jnp.abs(multipliers))
    stable = jnp.all(jnp.isfinite(terminal)) & (radius < 1 - float(jnp.finfo(terminal.dtype).eps) ** 0.5)
    result = choose((through.result == RESULTS.successful) & ~stable, RESULTS.not_stabilized, through.result)
    return backward(through, reference, terminal), multipliers, result


def _onto_section(once: RiccatiMap, reference: Reference, cost: QuadraticCost) -> RiccatiMap:
    r"""The map once around an orbit, followed by a projection along the flow: with $Pf = 0$ the same equation, without the
    multiplier 1."""
    size = reference.size
    first = reference.modes[0]
    # The dimension of the first mode is static only through the cost: all modes' projections, and that of the first mode.
    each = []
    for mode, own in zip(reference.system.modes.values(), cost.of_mode, strict=True):
        n = mode.dimension
        f = mode.vector_field(reference.starts[0], reference.x_starts[0, :n], reference.params)
        q = cost.states[own]
        weight = jnp.where(f @ q @ f > 0, q @ f, f)
        matrix = jnp.eye(n, dtype=f.dtype) - jnp.outer(f, weight) / (weight @ f)
        each.append(jnp.pad(matrix, (0, size - n)))
    onto = jnp.stack(each)[first]
    return RiccatiMap(onto @ once.a, onto @ once.g @ onto.T, once.h)
