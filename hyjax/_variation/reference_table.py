r"""A reference and its cost-to-go as functions of time, on every arc and beyond both of its events.

On each segment of an arc, state and cost matrix are the polynomials of degree 5 that have their values and first two derivatives
at both ends, which are those of the flow and of the Riccati equation. Before its first event and after its last, an arc is
continued by the flow of its mode with the guards ignored: the state of a neighbouring solution that is early or late is compared
with the continuation of the arc of its own mode. The cost matrix is held there; over times of the order of the deviation, how it
varies is of higher order.

Source: Rijnen, Saccon, Nijmeijer (2015), *On optimal trajectory tracking for mechanical systems with unilateral constraints*,
IEEE CDC, for the reference extended through its events.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton
from .._flow.automaton_flow import follow_automaton
from .._system.results import RESULTS
from .._system.system import HybridSystem, Mode, VectorField
from .._system.types import Matrix, Params, State, Time
from .quadratic_cost import across, linearized, QuadraticCost
from .reference import Reference
from .riccati_map import CostsToGo, Inputs, Passage
from .semidefinite import pack, packed_size, unpack


class ReferenceTable(eqx.Module):
    """Polynomials in time of reference and cost matrix. **Attributes:** `coefficients`: of state and packed cost matrix, on
    segments of equal duration, of powers of the time since the segment's start by its duration, shape `(arcs, segments, 6,
    entries)`. `first`: the time at which each arc's table starts, `step`: the duration of a segment, `low`, `high`: the segments
    between which the continuation exists, shape `(arcs,)`.
    """

    coefficients: Float[Array, "arcs segments 6 entries"]
    first: Float[Array, " arcs"]
    step: Float[Array, " arcs"]
    low: Float[Array, " arcs"]
    high: Float[Array, " arcs"]
    size: int = eqx.field(static=True)

    def at(self, arc: Int[Array, ""], t: Time) -> tuple[State, Matrix]:
        """State and cost matrix of an arc at a time; outside the table, at its nearer end."""
        place = jnp.clip((t - self.first[arc]) / self.step[arc], self.low[arc], self.high[arc])
        segment = jnp.clip(jnp.floor(place).astype(int), 0, self.coefficients.shape[1] - 1)
        value = jnp.zeros_like(self.coefficients[0, 0, 0])
        for power in reversed(range(6)):
            value = value * (place - segment) + self.coefficients[arc, segment, power]
        return value[: self.size], unpack(value[self.size :], self.size)


class _Valued(eqx.Module):
    """The vector field of state and cost matrix: the Riccati equation itself."""

    vector_field: VectorField
    n: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    own: int = eqx.field(static=True)
    transverse: bool = eqx.field(static=True)

    def __call__(self, t: Time, z: State, inputs: Inputs) -> State:
        n, cost = self.n, inputs.cost
        point = linearized(self.vector_field, t, z[:n], inputs.params, cost.free)
        p, q = unpack(z[self.size :], self.size)[:n, :n], cost.states[self.own]
        q = across(q, point.rate) if self.transverse else q
        back, by_control = point.by_state.T @ p, p @ point.by_control
        rate = by_control @ cost.inverse @ by_control.T - back - back.T - q
        pad = self.size - n
        return jnp.concatenate([jnp.pad(point.rate, (0, pad)), pack(jnp.pad(rate, (0, pad)))])


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
    valued = {
        name: Mode(
            _Valued(mode.vector_field, mode.dimension, size, own, transverse),
            tuple(f"z{i}" for i in range(size + packed_size(size))),
        )
        for (name, mode), own in zip(system.modes.items(), cost.of_mode, strict=True)
    }
    joint, inputs = Automaton(HybridSystem(valued, ())), Inputs(reference.params, cost)
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
            return (x, good, count + good), x

        start = x, jnp.array(True), jnp.zeros((), x.dtype)
        (_, _, count), states = jax.lax.scan(one, start, jnp.arange(margin, dtype=x.dtype))
        return states, count

    def arc(row):
        start, end, x_start, x_end, mode, nodes, ps, p_end = row
        step = (end - start) / segments
        step = jnp.where(step > 0, step, 1)
        after, later = continued(Automaton(system), end, x_end, step, mode)
        before, earlier = continued(backwards, -start, x_start, step, mode)
        states = jnp.concatenate([before[::-1], nodes, x_end[None], after])
        held = lambda p: jnp.broadcast_to(pack(p), (margin, packed_size(size)))
        inside = jnp.concatenate([jax.vmap(pack)(ps), pack(p_end)[None]])
        values = jnp.concatenate([states, jnp.concatenate([held(ps[0]), inside, held(p_end)])], axis=1)
        times = start + step * (jnp.arange(len(states)) - margin)

        def derivatives(t, z):
            field = lambda t, z: joint.field(t, z, (mode, inputs))
            rate = field(t, z)
            return rate, jax.jvp(field, (t, z), (jnp.ones_like(t), rate))[1]

        rate, turn = jax.vmap(derivatives)(times, values)
        # The cost matrix is held outside the arc: its derivatives there are zero.
        number = jnp.arange(len(states) - 1)
        varies = (number >= margin) & (number < margin + segments)
        varies = varies[:, None] | (jnp.arange(values.shape[1]) < size)
        rate, turn = step * rate, step**2 * turn
        ends = [
            jnp.stack([values[cut], jnp.where(varies, rate[cut], 0), jnp.where(varies, turn[cut], 0)], axis=1)
            for cut in (slice(None, -1), slice(1, None))
        ]
        table = jax.vmap(_quintic)(*ends)
        return table, start - margin * step, step, margin - earlier, margin + segments + later

    columns = (
        reference.starts, reference.ends, reference.x_starts, reference.x_ends, reference.modes,
        through.nodes, costs.segments, costs.ends,
    )  # fmt: skip
    return ReferenceTable(*jax.lax.map(arc, columns), size=size)


def _quintic(left: Float[Array, "3 entries"], right: Float[Array, "3 entries"]) -> Float[Array, "6 entries"]:
    """The coefficients of the polynomial on [0, 1] that has a value and two derivatives at both ends."""
    (y, rate, turn), (y_end, rate_end, turn_end) = left, right
    missing = y_end - (y + rate + turn / 2)
    slope, bend = rate_end - (rate + turn), turn_end - turn
    return jnp.stack(
        [y, rate, turn / 2, 10 * missing - 4 * slope + bend / 2, 7 * slope - 15 * missing - bend,
         6 * missing - 3 * slope + bend / 2]
    )  # fmt: skip
