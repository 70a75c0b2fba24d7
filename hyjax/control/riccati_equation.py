r"""The Riccati equation along a trajectory or around a periodic orbit, through events.

It is integrated forward in time with the flow. Over an interval the equation maps the cost at the end to the cost at the start,

$$P_0 = H + A^\top P_1\,(I + G P_1)^{-1} A,$$

with three matrices that do not depend on $P_1$. As the end of the interval moves on they obey

$$\dot A = (F - GQ)\,A, \qquad \dot G = FG + GF^\top + B R^{-1} B^\top - GQG, \qquad \dot H = A^\top Q A, \qquad F = D_xf,\ B =
D_uf,$$

from $A = I$, $G = H = 0$: so the flow, which may contract, is never followed backward, $G$ is the solution of a filter's Riccati
equation, which stays bounded where the flow is controlled, and $P_1$ need not be invertible. An event is the map with $A = \Xi$,
$G = 0$, $H = Q_e$. Maps of successive intervals are composed as in the doubling of `semidefinite.py`.

Source: Redheffer (1962), *On the relation of transmission-line theory to scattering and transfer*, J. Math. Phys. 41, 1-41, for
the composition; Reid (1972), *Riccati Differential Equations*, for the three equations.
"""

import functools as ft
import operator
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from .._flow.automaton import Automaton, follow_automaton
from .._flow.joint import joint_system, numbered, padded
from .._flow.trajectory import Trajectory
from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues
from .._numerics.elimination import solver
from .._numerics.semidefinite import check_covariance, closed_loop, pack, packed_size, stabilizing_cost, unpack
from .._orbit.orbit import PeriodicOrbit
from .._results.failure import raise_failure
from .._results.shown import Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem, VectorField
from .._system.types import Matrix, Params, State, Time
from .._system.where import Where
from .reference import across, ByMode, ByTransition, linearized, place_cost, QuadraticCost, Reference, reference_of

Square = Float[Array, "*rows size size"]
Joint = Float[Array, " joint"]


class RiccatiMap(eqx.Module):
    """$P_0 = H + A^\\top P_1 (I + GP_1)^{-1} A$; **Attributes:** `a`, `g`, `h`, shape `(size, size)`."""

    a: Square
    g: Square
    h: Square

    def before(self, p: Matrix) -> Matrix:
        """The cost at the start of the interval, from the cost `p` at its end."""
        found = self.h + self.a.T @ p @ closed_loop(self.a, self.g, p)
        return (found + found.T) / 2

    def then(self, later: "RiccatiMap") -> "RiccatiMap":
        """The map of this interval and the next together."""
        by_w = solver(jnp.eye(len(self.a), dtype=self.a.dtype) + self.g @ later.h)
        wa, wg = by_w(self.a), by_w(self.g)
        return RiccatiMap(
            later.a @ wa, later.g + later.a @ wg @ later.a.T, self.h + self.a.T @ later.h @ wa
        )  # fmt: skip


# The rate of a map along a flow: from $F$ and $B$, the map, and the costs with the mode's own $Q$.
Moved = Callable[[Matrix, Matrix, RiccatiMap, QuadraticCost, Matrix], RiccatiMap]


def joint_flows(system: HybridSystem, cost: QuadraticCost, transverse: bool, moved: Moved) -> Automaton:
    """The flows of state and map in the modes of a system, without events; the parameters are those of the system, and the
    costs. **Arguments:** `moved`: the rate of the map."""
    size, own = (
        max(mode.dimension for mode in system.modes.values()),
        dict(zip(system.names, cost.of_mode, strict=True)),
    )

    def flow(name: str) -> VectorField:
        mode = system.mode(name)
        return eqx.Partial(_flow, mode.vector_field, mode.dimension, size, own[name], transverse, moved)

    return Automaton(joint_system(system, flow, None, lambda mode: numbered(size + size**2 + 2 * packed_size(size))))


def _flow(
    vector_field: VectorField, n: int, size: int, own: int, transverse: bool, moved: Moved, t: Time, z: Joint,
    inputs: tuple[Params, QuadraticCost],
) -> Joint:  # fmt: skip
    """The rates of state and map, padded. **Arguments:** `own`: the index of the mode's $Q$ among those of the costs."""
    params, cost = inputs
    x, found = split_state(z, size)
    rate, f, b = linearized(vector_field, t, x[:n], params, cost.free)
    q = across(cost.states[own], rate) if transverse else cost.states[own]
    block = RiccatiMap(found.a[:n, :n], found.g[:n, :n], found.h[:n, :n])
    return join_state(rate, moved(f, b, block, cost, q), size)


def _end_moved(
    f: Float[Array, "n n"], b: Float[Array, "n m"], riccati: RiccatiMap, cost: QuadraticCost, q: Float[Array, "n n"]
) -> RiccatiMap:
    """The rate of the map as the end of its interval moves."""
    a, g = riccati.a, riccati.g
    filtered = f - _times(g, q)
    # Of F G + G F' - G Q G, half is (F - GQ/2) G.
    half = _times((filtered + f) / 2, g)
    driven = half + half.T + _times(_times(b, cost.inverse), b.T)
    return RiccatiMap(_times(filtered, a), driven, _times(a.T, _times(q, a)))


def _times(a: Float[Array, "n k"], b: Float[Array, "k m"]) -> Float[Array, "n m"]:
    """The product of small matrices, as a sum that is compiled together with its surroundings."""
    return ft.reduce(operator.add, (a[:, k, None] * b[k] for k in range(len(b))))


def join_state(x: State, riccati: RiccatiMap, size: int) -> Joint:
    """State and map in one array, padded to the largest dimension."""
    x, a, g, h = (padded(each, size) for each in (x, riccati.a, riccati.g, riccati.h))
    return jnp.concatenate([x, jnp.ravel(a), pack(g), pack(h)])


def split_state(z: Joint, size: int) -> tuple[State, RiccatiMap]:
    """The inverse of `join_state`."""
    ends = size, size + size**2, size + size**2 + packed_size(size)
    x, a, g, h = jnp.split(z, ends)
    return x, RiccatiMap(a.reshape(size, size), unpack(g, size), unpack(h, size))


# The maps along a reference in segments of equal duration on each arc: of the segments, shape `(arcs, segments, size, size)`;
# and of the events at the ends of the arcs, with $G = 0$, shape `(arcs, size, size)`.
Maps = tuple[RiccatiMap, RiccatiMap]


def passage(
    reference: Reference, cost: QuadraticCost, segments: int, transverse: bool
) -> tuple[Maps, Float[Array, "arcs segments size"], RESULTS]:
    """The maps of the Riccati equation along a reference; the states at the starts of the segments; and the code of the
    reference, or of its integration."""
    system, size = reference.system, reference.size
    automaton, inputs = joint_flows(system, cost, transverse, _end_moved), (reference.params, cost)
    none = jnp.zeros((size, size), reference.x_starts.dtype)
    dimensions = jnp.array([mode.dimension for mode in system.modes.values()])

    def arc(result, row):
        start, end, x, mode = row
        real = (jnp.arange(size) < dimensions[mode]).astype(x.dtype)

        def segment(carry, k):
            x, result = carry
            z = join_state(x, RiccatiMap(jnp.diag(real), none, none), size)
            t0, t1 = (start + (end - start) * each / segments for each in (k, k + 1))
            flown = follow_automaton(automaton, t0, z, mode, t1, inputs, reference.integrator, guarded=False)
            after, riccati = split_state(flown.x, size)
            return (after, choose(result == RESULTS.successful, flown.result, result)), (x, riccati)

        (_, result), rows = jax.lax.scan(segment, (x, result), jnp.arange(segments, dtype=x.dtype))
        return result, rows

    rows = reference.start_times, reference.end_times, reference.x_starts, reference.modes
    result, (nodes, maps) = jax.lax.scan(arc, reference.result, rows)
    return (maps, _jumps(reference, cost)), nodes, result


def _jumps(reference: Reference, cost: QuadraticCost) -> RiccatiMap:
    xi, size = reference.saltations(), reference.size
    own = lambda k: jnp.zeros((size, size), xi.dtype) if k is None else padded(cost.states[k], size)
    costs = jnp.stack([own(k) for k in cost.of_event] or [own(None)])
    return RiccatiMap(xi, jnp.zeros_like(xi), costs[jnp.maximum(reference.system.place(reference.ways)[0], 0)])


def around(maps: Maps) -> RiccatiMap:
    """The map once around an orbit, from the start of its first arc to the start of its first arc."""
    _, jumps = maps
    eye = jnp.eye(jumps.a.shape[-1], dtype=jumps.a.dtype)

    def arc(total, row):
        segments, jump = row
        total, _ = jax.lax.scan(lambda total, each: (total.then(each), None), total, segments)
        return total.then(jump), None

    start = RiccatiMap(eye, 0 * eye, 0 * eye)
    return jax.lax.scan(arc, start, maps)[0]


# The cost matrices of a reference: at the starts of the segments, shape `(arcs, segments, size, size)`; and at the ends of the
# arcs, before the jumps, shape `(arcs, size, size)`.
CostsToGo = tuple[Float[Array, "arcs segments size size"], Float[Array, "arcs size size"]]


def backward(maps: Maps, reference: Reference, terminal: Matrix) -> CostsToGo:
    """The cost matrices back from the end, where the cost is `terminal`; after the last jump, if the reference ends with one."""

    def arc(p, row):
        there, jumped, (segments, jump) = row
        end = jnp.where(jumped, jump.h + jump.a.T @ p @ jump.a, p)

        def segment(p, each):
            p = each.before(p)
            return p, p

        start, costs = jax.lax.scan(segment, end, segments, reverse=True)
        return jnp.where(there, start, p), (costs, end)

    rows = reference.there, reference.jumped, maps
    return jax.lax.scan(arc, terminal, rows, reverse=True)[1]


class RiccatiSolution(Shown):
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
    throw: bool = True,
) -> RiccatiSolution:
    r"""The Riccati equation along a reference, backward in time and through events.

    $$-\dot P = A^\top P + PA - PBR^{-1}B^\top P + Q, \quad A = D_xf,\ B = D_uf; \qquad P^- = Q_e + \Xi^\top P^+\,\Xi$$

    with the saltation matrix $\Xi$. $\delta x^\top P(t)\,\delta x$ is, to second order in the deviation $\delta x$ at the time
    $t$, the least cost $\int \delta x^\top Q\,\delta x + u^\top R\,u\,\mathrm dt + \sum \delta x^{-\top} Q_e\,\delta x^- +
    \delta x(T)^\top P_T\,\delta x(T)$; the feedback that attains it is `regulator`. The equation is integrated with the flow to
    the integrator's tolerance, in a form that runs forward in time (see the head of this file).

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
    for orbits. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

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
    found = _riccati(given, cost, terminal, transverse)
    return raise_failure("riccati", found) if throw else found


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
    return reference, cost, padded(terminal_cost / cost.unit, size)


@long_run
def _riccati(reference: Reference, cost: QuadraticCost, terminal: Matrix | None, transverse: bool) -> RiccatiSolution:
    maps, _, result = passage(reference, cost, 1, transverse)
    (segments, ends), multipliers, result = solve(maps, result, reference, cost, terminal, transverse)
    good = result == RESULTS.successful
    there = good & reference.there[:, None, None]
    starts, ends = (nan_unless(there, each * cost.unit) for each in (segments[:, 0], ends))
    if multipliers is not None:
        multipliers = nan_unless(good, multipliers)
    return RiccatiSolution(starts[0], starts, ends, multipliers, result)


def solve(
    maps: Maps, result: RESULTS, reference: Reference, cost: QuadraticCost, terminal: Matrix | None, transverse: bool
) -> tuple[CostsToGo, Complex[Array, " size"] | None, RESULTS]:
    """The cost matrices from $P_T$, or the periodic ones with the multipliers of their closed loop; and the result code.
    **Arguments:** `result`: the code of the maps."""
    if terminal is not None:
        return backward(maps, reference, terminal), None, result
    once = _onto_section(around(maps), reference, cost) if transverse else around(maps)
    terminal = stabilizing_cost(once.a, once.g, once.h)
    multipliers = eigenvalues(closed_loop(once.a, once.g, terminal))
    # A multiplier of 1 is found with half of the digits.
    radius = jnp.max(jnp.abs(multipliers))
    stable = jnp.all(jnp.isfinite(terminal)) & (radius < 1 - float(jnp.finfo(terminal.dtype).eps) ** 0.5)
    result = choose((result == RESULTS.successful) & ~stable, RESULTS.not_stabilized, result)
    return backward(maps, reference, terminal), multipliers, result


def _onto_section(once: RiccatiMap, reference: Reference, cost: QuadraticCost) -> RiccatiMap:
    r"""The map once around an orbit, followed by a projection along the flow: with $Pf = 0$ the same equation, without the
    multiplier 1."""
    size = reference.size
    first = reference.modes[0]
    # The dimension of the first mode is static only through the cost: all modes' projections, and that of the first mode.
    each = []
    for mode, own in zip(reference.system.modes.values(), cost.of_mode, strict=True):
        n = mode.dimension
        f = mode.vector_field(reference.start_times[0], reference.x_starts[0, :n], reference.params)
        q = cost.states[own]
        weight = jnp.where(f @ q @ f > 0, q @ f, f)
        matrix = jnp.eye(n, dtype=f.dtype) - jnp.outer(f, weight) / (weight @ f)
        each.append(padded(matrix, size))
    onto = jnp.stack(each)[first]
    return RiccatiMap(onto @ once.a, onto @ once.g @ onto.T, once.h)
