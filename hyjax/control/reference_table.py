r"""A reference and its cost-to-go as functions of time, on every arc and beyond both of its events.

On each segment of an arc, the state and the map of the Riccati equation from a time $t$ to the segment's end (`riccati_map.py`)
are the polynomials of degree 5 in $t$ that have their values and first two derivatives at both ends. As the start of its
interval moves, the map obeys

$$-\dot A = A\,(F - SH), \qquad -\dot G = A S A^\top, \qquad -\dot H = F^\top H + HF - HSH + Q, \qquad S = BR^{-1}B^\top.$$

It varies as slowly as the flow does, also where the cost matrix itself varies fast, as before an event after which it is large.

Before its first event and after its last, an arc is continued by the flow of its mode with the guards ignored: the state of a
neighbouring solution that is early or late is compared with the continuation of the arc of its own mode. The cost matrix is held
there; over times of the order of the deviation, how it varies is of higher order.

Source: Rijnen, Saccon, Nijmeijer (2015), *On optimal trajectory tracking for mechanical systems with unilateral constraints*,
IEEE CDC, for the reference extended through its events.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton, follow_automaton
from .._system.results import RESULTS
from .._system.system import HybridSystem, Mode, VectorField
from .._system.types import Matrix, Params, State, Time
from .quadratic_cost import Linearized, QuadraticCost
from .reference import Reference
from .riccati_map import CostsToGo, Inputs, join_state, joint_flows, Passage, RiccatiMap, split_state


class ReferenceTable(eqx.Module):
    """Polynomials in time of the reference and of the maps to the ends of its segments. **Attributes:** `coefficients`: of
    powers of the time since the segment's start, by its duration, shape `(arcs, segments, 6, entries)`. `after`: the cost
    matrices at the ends of the segments, shape `(arcs, segments, size, size)`. `first`: the time at which each arc's table
    starts, `step`: the duration of a segment, `low`, `high`: the segments between which the continuation exists, shape
    `(arcs,)`.
    """

    coefficients: Float[Array, "arcs segments 6 entries"]
    after: Float[Array, "arcs segments size size"]
    first: Float[Array, " arcs"]
    step: Float[Array, " arcs"]
    low: Float[Array, " arcs"]
    high: Float[Array, " arcs"]

    def at(self, arc: Int[Array, ""], t: Time) -> tuple[State, Matrix]:
        """State and cost matrix of an arc at a time; outside the table, at its nearer end."""
        place = jnp.clip((t - self.first[arc]) / self.step[arc], self.low[arc], self.high[arc])
        segment = jnp.clip(jnp.floor(place), 0, self.after.shape[1] - 1)
        row = arc, segment.astype(int)
        coefficients, after = self.coefficients[row], self.after[row]
        value = coefficients[5]
        for power in reversed(range(5)):
            value = value * (place - segment) + coefficients[power]
        x, to_end = split_state(value, len(after))
        return x, to_end.before(after)


def _start_moved(point: Linearized, to_end: RiccatiMap, cost: QuadraticCost, q: Matrix) -> RiccatiMap:
    """The rate of the map as the start of its interval moves."""
    a, h = to_end.a, to_end.h
    acting = point.by_control @ cost.inverse @ point.by_control.T
    back = point.by_state.T @ h
    return RiccatiMap(a @ (acting @ h - point.by_state), -a @ acting @ a.T, h @ acting @ h - back - back.T - q)


class _Reversed(eqx.Module):
    """A vector field in the time -t."""

    vector_field: VectorField

    def __call__(self, t: Time, x: State, params: Params) -> State:
        return -self.vector_field(-t, x, params)


def reference_table(
    reference: Reference, cost: QuadraticCost, through: Passage, costs: CostsToGo, margin: int, transverse: bool
) -> ReferenceTable:
    """The table of a reference. **Arguments:** `margin`: the number of segments by which each arc is continued on both sides."""
    system, size = reference.system, reference.size
    joint, inputs = joint_flows(system, cost, transverse, _start_moved), Inputs(reference.params, cost)
    backwards = {name: Mode(_Reversed(each.vector_field), each.coordinates) for name, each in system.modes.items()}
    backwards = Automaton(HybridSystem(backwards, ()))
    segments = through.nodes.shape[1]

    def continued(automaton: Automaton, t, x, step, mode):
        """States at the next `margin` times, and how many of them exist."""

        def one(carry, k):
            x, good, count = carry
            end = follow_automaton(
                automaton,
                t + k * step,
                x,
                mode,
                t + (k + 1) * step,
                reference.params,
                reference.integrator,
                guarded=False,
            )
            good = good & (end.result == RESULTS.successful) & jnp.all(jnp.isfinite(end.x))
            x = jnp.where(good, end.x, x)
            return (x, good, count + good.astype(x.dtype)), x

        start = x, jnp.array(True), jnp.zeros((), x.dtype)
        (_, _, count), states = jax.lax.scan(one, start, jnp.arange(margin, dtype=x.dtype))
        return states, count

    def arc(row):
        start, end, x_start, x_end, mode, nodes, maps, ps, p_end = row
        step = (end - start) / segments
        step = jnp.where(step > 0, step, 1)
        after, later = continued(Automaton(system), end, x_end, step, mode)
        before, earlier = continued(backwards, -start, x_start, step, mode)
        states = jnp.concatenate([before[::-1], nodes, x_end[None], after])
        times = start + step * (jnp.arange(len(states), dtype=step.dtype) - margin)
        # Outside the arc the cost matrix is held: the map is the identity.
        none = jnp.zeros((size, size), states.dtype)
        still = RiccatiMap(jnp.eye(size, dtype=states.dtype), none, none)
        repeat = lambda each, count: jnp.broadcast_to(each, (count, *each.shape))
        outside = jax.tree.map(lambda each: repeat(each, margin), still)
        maps = jax.tree.map(lambda out, each: jnp.concatenate([out, each, out]), outside, maps)
        costs = jnp.concatenate([repeat(ps[0], margin), ps[1:], repeat(p_end, margin + 1)])
        number = jnp.arange(len(times) - 1)
        varies = (number >= margin) & (number < margin + segments)

        def end_of_segment(t, x, riccati, varies):
            """Value and two derivatives."""
            z = join_state(x, riccati, size)
            field = lambda t, z: joint.field(t, z, (mode, inputs))
            rate = field(t, z)
            turn = jax.jvp(field, (t, z), (jnp.ones_like(t), rate))[1]
            kept = varies | (jnp.arange(z.size) < size)
            return jnp.stack([z, jnp.where(kept, step * rate, 0), jnp.where(kept, step**2 * turn, 0)])

        left = jax.vmap(end_of_segment)(times[:-1], states[:-1], maps, varies)
        right = jax.vmap(end_of_segment, in_axes=(0, 0, None, 0))(times[1:], states[1:], still, varies)
        return jax.vmap(_quintic)(left, right), costs, times[0], step, margin - earlier, margin + segments + later

    columns = (
        reference.starts, reference.ends, reference.x_starts, reference.x_ends, reference.modes,
        through.nodes, through.maps, costs.segments, costs.ends,
    )  # fmt: skip
    return ReferenceTable(*jax.lax.map(arc, columns))


def _quintic(left: Float[Array, "3 entries"], right: Float[Array, "3 entries"]) -> Float[Array, "6 entries"]:
    """The coefficients of the polynomial on [0, 1] that has a value and two derivatives at both ends."""
    (y, rate, turn), (y_end, rate_end, turn_end) = left, right
    missing = y_end - (y + rate + turn / 2)
    slope, bend = rate_end - (rate + turn), turn_end - turn
    return jnp.stack(
        [y, rate, turn / 2, 10 * missing - 4 * slope + bend / 2, 7 * slope - 15 * missing - bend,
         6 * missing - 3 * slope + bend / 2]
    )  # fmt: skip
