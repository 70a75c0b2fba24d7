r"""Where in its reference a solution is, and its control there: the reference and its cost-to-go as functions of time, on every
arc and beyond both of its events.

On each segment of an arc, the state and the map of the Riccati equation from a time $t$ to the segment's end
(`riccati_equation.py`) are the polynomials of degree 5 in $t$ that have their values and first two derivatives at both ends. As
the start of its interval moves, the map obeys

$$-\dot A = A\,(F - SH), \qquad -\dot G = A S A^\top, \qquad -\dot H = F^\top H + HF - HSH + Q, \qquad S = BR^{-1}B^\top.$$

It varies as slowly as the flow does, also where the cost matrix itself varies fast, as before an event after which it is large.

Before its first event and after its last, an arc is continued by the flow of its mode with the guards ignored: the state of a
neighbouring solution that is early or late is compared with the continuation of the arc of its own mode. The cost matrix is
held there; over times of the order of the deviation, how it varies is of higher order.

Source: Rijnen, Saccon, Nijmeijer (2015), *On optimal trajectory tracking for mechanical systems with unilateral constraints*,
IEEE CDC, for the reference extended through its events.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton, follow_automaton
from .._flow.joint import retimed
from .._system.results import RESULTS
from .._system.system import Mode
from .._system.types import Matrix, Params, State, Time
from .reference import across, control_matrix, QuadraticCost, Reference
from .riccati_equation import CostsToGo, join_state, joint_flows, Maps, RiccatiMap, split_state


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


def _start_moved(
    f: Matrix, b: Float[Array, "rows controls"], to_end: RiccatiMap, cost: QuadraticCost, q: Matrix
) -> RiccatiMap:
    """The rate of the map as the start of its interval moves."""
    a, h = to_end.a, to_end.h
    acting = b @ cost.inverse @ b.T
    back = f.T @ h
    return RiccatiMap(a @ (acting @ h - f), -a @ acting @ a.T, h @ acting @ h - back - back.T - q)


def reference_table(
    reference: Reference,
    cost: QuadraticCost,
    maps: Maps,
    nodes: Float[Array, "arcs segments size"],
    costs: CostsToGo,
    margin: int,
    transverse: bool,
) -> ReferenceTable:
    """The table of a reference. **Arguments:** `margin`: the number of segments by which each arc is continued on both sides."""
    system, size = reference.system, reference.size
    joint, inputs = joint_flows(system, cost, transverse, _start_moved), (reference.params, cost)
    reverse = reference.params, 0.0, -1.0
    segments = nodes.shape[1]

    def continued(automaton: Automaton, params, t, x, step, mode):
        """States at the next `margin` times, and how many of them exist."""

        def one(carry, k):
            x, good, count = carry
            at, until = t + k * step, t + (k + 1) * step
            end = follow_automaton(automaton, at, x, mode, until, params, reference.integrator, guarded=False)
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
        after, later = continued(Automaton(system), reference.params, end, x_end, step, mode)
        before, earlier = continued(Automaton(retimed(system)), reverse, -start, x_start, step, mode)
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
            """State and map at one end of a segment, with their first and second derivatives."""
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
        reference.start_times, reference.end_times, reference.x_starts, reference.x_ends, reference.modes,
        nodes, maps[0], *costs,
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


Index = Int[Array, ""]


# The place of a solution in the reference: the arc with which it is compared; and its time less that of the reference: whole
# periods, or with `transverse` the delay of the last event.
ReferencePlace = tuple[Index, Time]


class Tracker(eqx.Module):
    """A reference as a function of time, with the gain of its feedback. **Attributes:** `transverse`: whether the reference's
    time is set at each jump to that of the reference's own jump."""

    reference: Reference
    weights: QuadraticCost
    table: ReferenceTable
    transverse: bool = eqx.field(static=True)

    @property
    def params(self) -> Params:
        """The parameters of the reference."""
        return self.reference.params

    def control(
        self, place: ReferencePlace, t: Time, x: State, mode: Mode, number: int
    ) -> tuple[Float[Array, " m"], State, Matrix]:
        r"""The control $u$ of a solution in the mode of that number, at a place of the reference; the deviation $\delta x$,
        and its cost $Q$. $u = 0$ and $\delta x = 0$ where the arc is of another mode."""
        arc, shift = place
        gain, wanted, q = self.gain(arc, t - shift, mode, number)
        deviation = jnp.where(self.reference.modes[arc] == number, x - wanted, 0)
        return -gain @ deviation, deviation, q

    def gain(self, arc: Index, t: Time, mode: Mode, number: int) -> tuple[Float[Array, "m n"], State, Matrix]:
        """The gain $K$, the state and the cost $Q$ of an arc at a time of the reference."""
        n, weights = mode.dimension, self.weights
        x, p = self.table.at(arc, t)
        x, p = x[:n], p[:n, :n]
        b = control_matrix(mode.vector_field, t, x, self.params, weights.free)
        q = weights.states[weights.of_mode[number]]
        q = across(q, mode.vector_field(t, x, self.params)) if self.transverse else q
        return weights.inverse @ b.T @ p, x, q

    def nearest(self, t: Time, number: int) -> ReferencePlace:
        """The arc of a mode that is nearest to a time, and the start of its period."""
        known, zero = self.reference, jnp.zeros_like(t)
        lap = zero if known.period is None else jnp.floor((t - known.start_times[0]) / known.period) * known.period
        away = jnp.maximum(jnp.maximum(known.start_times - (t - lap), (t - lap) - known.end_times), 0)
        return self._first(away, number, known.there), lap

    def entered(self, place: ReferencePlace, t: Time, number: int) -> ReferencePlace:
        """The place after a jump into a mode: its arc whose start is nearest in time."""
        known, (_, shift) = self.reference, place
        away, there = t - shift - known.start_times, known.there
        laps = jnp.zeros_like(away)
        if known.period is None:
            # No jump leads into the first arc.
            there = there & (jnp.arange(len(away)) > 0)
        else:
            laps = jnp.round(away / known.period) * known.period
        arc = self._first(jnp.abs(away - laps), number, there)
        return arc, t - known.start_times[arc] if self.transverse else shift + laps[arc]

    def _first(self, away: Array, number: int, there: Array) -> Index:
        away = jnp.where(there & (self.reference.modes == number), away, jnp.inf)
        return jnp.argmin(jax.lax.stop_gradient(away))
