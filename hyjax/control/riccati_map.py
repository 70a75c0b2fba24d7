r"""The Riccati equation along a flow and through its events, integrated forward in time with the flow.

Over an interval the equation maps the cost at the end to the cost at the start,

$$P_0 = H + A^\top P_1\,(I + G P_1)^{-1} A,$$

with three matrices that do not depend on $P_1$. As the end of the interval moves on they obey

$$\dot A = (F - GQ)\,A, \qquad \dot G = FG + GF^\top + B R^{-1} B^\top - GQG, \qquad \dot H = A^\top Q A, \qquad F = D_xf,\ B =
D_uf,$$

from $A = I$, $G = H = 0$: so the flow, which may contract, is never followed backward, $G$ is the solution of a filter's Riccati
equation, which stays bounded where the flow is controlled, and $P_1$ need not be invertible. An event is the map with $A = \Xi$,
$G = 0$, $H = Q_e$. Maps of successive intervals are composed as in the doubling of `riccati.py`.

Source: Redheffer (1962), *On the relation of transmission-line theory to scattering and transfer*, J. Math. Phys. 41, 1-41, for
the composition; Reid (1972), *Riccati Differential Equations*, for the three equations.
"""

import functools as ft
import operator
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.automaton import Automaton, follow_automaton
from .._numerics.elimination import solver
from .._numerics.riccati import closed_loop
from .._numerics.semidefinite import pack, packed_size, unpack
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem, Mode, VectorField
from .._system.types import Matrix, Params, State, Time
from .quadratic_cost import across, Linearized, linearized, QuadraticCost
from .reference import Reference

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


class Inputs(eqx.Module):
    """Parameters of the joint flow."""

    params: Params
    cost: QuadraticCost


# The rate of a map along a flow: from the vector field's derivatives, the map, and the costs with the mode's own $Q$.
Moved = Callable[[Linearized, RiccatiMap, QuadraticCost, Matrix], RiccatiMap]


class JointFlow(eqx.Module):
    """The joint vector field of the state and of a map, all padded to the largest dimension, in one mode.

    **Attributes:** `own`: the index of the mode's $Q$ among those of the costs. `moved`: the rate of the map.
    """

    vector_field: VectorField
    n: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    own: int = eqx.field(static=True)
    transverse: bool = eqx.field(static=True)
    moved: Moved = eqx.field(static=True)

    def __call__(self, t: Time, z: Joint, inputs: Inputs) -> Joint:
        n, cost = self.n, inputs.cost
        x, found = split_state(z, self.size)
        point = linearized(self.vector_field, t, x[:n], inputs.params, cost.free)
        q = across(cost.states[self.own], point.rate) if self.transverse else cost.states[self.own]
        block = RiccatiMap(found.a[:n, :n], found.g[:n, :n], found.h[:n, :n])
        return join_state(point.rate, self.moved(point, block, cost, q), self.size)


def joint_flows(system: HybridSystem, cost: QuadraticCost, transverse: bool, moved: Moved) -> Automaton:
    """The flows of state and map in the modes of a system, without events; its parameters are `Inputs`."""
    size = max(mode.dimension for mode in system.modes.values())
    modes = {
        name: Mode(JointFlow(mode.vector_field, mode.dimension, size, own, transverse, moved), joint_names(size))
        for (name, mode), own in zip(system.modes.items(), cost.of_mode, strict=True)
    }
    return Automaton(HybridSystem(modes, ()))


def _end_moved(point: Linearized, riccati: RiccatiMap, cost: QuadraticCost, q: Matrix) -> RiccatiMap:
    """The rate of the map as the end of its interval moves."""
    a, g, b = riccati.a, riccati.g, point.by_control
    filtered = point.by_state - _times(g, q)
    # Of F G + G F' - G Q G, half is (F - GQ/2) G.
    half = _times((filtered + point.by_state) / 2, g)
    driven = half + half.T + _times(_times(b, cost.inverse), b.T)
    return RiccatiMap(_times(filtered, a), driven, _times(a.T, _times(q, a)))


def _times(a: Float[Array, "n k"], b: Float[Array, "k m"]) -> Float[Array, "n m"]:
    """The product of small matrices, as a sum that is compiled together with its surroundings."""
    return ft.reduce(operator.add, (a[:, k, None] * b[k] for k in range(len(b))))


def joint_names(size: int) -> tuple[str, ...]:
    """Names of the entries of `join_state`."""
    return tuple(f"z{i}" for i in range(size + size**2 + 2 * packed_size(size)))


def join_state(x: State, riccati: RiccatiMap, size: int) -> Joint:
    """State and map in one array, padded to the largest dimension."""
    pad = lambda matrix: jnp.pad(matrix, (0, size - len(matrix)))
    x, a, g, h = (pad(each) for each in (x, riccati.a, riccati.g, riccati.h))
    return jnp.concatenate([x, jnp.ravel(a), pack(g), pack(h)])


def split_state(z: Joint, size: int) -> tuple[State, RiccatiMap]:
    """The inverse of `join_state`."""
    ends = size, size + size**2, size + size**2 + packed_size(size)
    x, a, g, h = jnp.split(z, ends)
    return x, RiccatiMap(a.reshape(size, size), unpack(g, size), unpack(h, size))


class Passage(eqx.Module):
    """A reference in segments of equal duration on each arc.

    **Attributes:** `maps`: of the segments, shape `(arcs, segments, size, size)`. `jumps`: of the events at the ends of the arcs,
    with $G = 0$, shape `(arcs, size, size)`. `nodes`: the states at the starts of the segments, shape `(arcs, segments, size)`.
    `result`: the code of the reference, or of its integration.
    """

    maps: RiccatiMap
    jumps: RiccatiMap
    nodes: Float[Array, "arcs segments size"]
    result: RESULTS


def passage(reference: Reference, cost: QuadraticCost, segments: int, transverse: bool) -> Passage:
    """The maps of the Riccati equation along a reference."""
    system, size = reference.system, reference.size
    automaton, inputs = joint_flows(system, cost, transverse, _end_moved), Inputs(reference.params, cost)
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

    rows = reference.starts, reference.ends, reference.x_starts, reference.modes
    result, (nodes, maps) = jax.lax.scan(arc, reference.result, rows)
    return Passage(maps, _jumps(reference, cost), nodes, result)


def _jumps(reference: Reference, cost: QuadraticCost) -> RiccatiMap:
    xi, size = reference.saltations(), reference.size
    padded = lambda k: jnp.zeros((size, size), xi.dtype) if k is None else _square(cost.states[k], size)
    costs = jnp.stack([padded(k) for k in cost.of_event] or [padded(None)])
    return RiccatiMap(xi, jnp.zeros_like(xi), costs[jnp.maximum(reference.transitions, 0)])


def _square(matrix: Float[Array, "n n"], size: int) -> Float[Array, "size size"]:
    return jnp.pad(matrix, (0, size - len(matrix)))


def around(through: Passage) -> RiccatiMap:
    """The map once around an orbit, from the start of its first arc to the start of its first arc."""
    size = through.nodes.shape[-1]
    eye = jnp.eye(size, dtype=through.nodes.dtype)

    def arc(total, row):
        maps, jump = row
        total, _ = jax.lax.scan(lambda total, each: (total.then(each), None), total, maps)
        return total.then(jump), None

    start = RiccatiMap(eye, 0 * eye, 0 * eye)
    return jax.lax.scan(arc, start, (through.maps, through.jumps))[0]


class CostsToGo(eqx.Module):
    """The cost matrices of a reference. **Attributes:** `segments`: at the starts of the segments, shape `(arcs, segments, size,
    size)`. `ends`: at the ends of the arcs, before the jumps, shape `(arcs, size, size)`."""

    segments: Float[Array, "*arcs segments size size"]
    ends: Float[Array, "*arcs size size"]


def backward(through: Passage, reference: Reference, terminal: Matrix) -> CostsToGo:
    """The cost matrices back from the end, where the cost is `terminal`; after the last jump, if the reference ends with one."""

    def arc(p, row):
        there, jumped, maps, jump = row
        end = jnp.where(jumped, jump.h + jump.a.T @ p @ jump.a, p)

        def segment(p, each):
            p = each.before(p)
            return p, p

        start, segments = jax.lax.scan(segment, end, maps, reverse=True)
        return jnp.where(there, start, p), CostsToGo(segments, end)

    rows = reference.there, reference.jumped, through.maps, through.jumps
    return jax.lax.scan(arc, terminal, rows, reverse=True)[1]
