r"""Where in its reference a solution is, and its control there."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._system.system import Mode
from .._system.types import Flag, Matrix, Params, State, Time
from .quadratic_cost import across, control_matrix, QuadraticCost
from .reference import Reference
from .reference_table import ReferenceTable

Index = Int[Array, ""]


class Place(eqx.Module):
    """Where in the reference a solution is. **Attributes:** `arc`: the arc with which it is compared. `shift`: its time less that
    of the reference: whole periods; with `transverse`, the delay of the last event."""

    arc: Index
    shift: Time


class Aim(eqx.Module):
    """The control at a point. **Attributes:** `control`: $u$, shape `(m,)`. `deviation`: $\\delta x$. `cost`: $Q$. `tracked`:
    whether the arc is of the solution's mode; elsewhere $u = 0$ and $\\delta x = 0$."""

    control: Float[Array, " m"]
    deviation: State
    cost: Matrix
    tracked: Flag


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

    def aim(self, place: Place, t: Time, x: State, mode: Mode, number: int) -> Aim:
        """The control of a solution in the mode of that number, at a place of the reference."""
        gain, wanted, q = self.gain(place.arc, t - place.shift, mode, number)
        tracked = self.reference.modes[place.arc] == number
        deviation = jnp.where(tracked, x - wanted, 0)
        return Aim(-gain @ deviation, deviation, q, tracked)

    def gain(self, arc: Index, t: Time, mode: Mode, number: int) -> tuple[Float[Array, "m n"], State, Matrix]:
        """The gain $K$, the state and the cost $Q$ of an arc at a time of the reference."""
        n, weights = mode.dimension, self.weights
        x, p = self.table.at(arc, t)
        x, p = x[:n], p[:n, :n]
        b = control_matrix(mode.vector_field, t, x, self.params, weights.free)
        q = weights.states[weights.of_mode[number]]
        q = across(q, mode.vector_field(t, x, self.params)) if self.transverse else q
        return weights.inverse @ b.T @ p, x, q

    def nearest(self, t: Time, number: int) -> Place:
        """The arc of a mode that is nearest to a time, and the start of its period."""
        known, zero = self.reference, jnp.zeros_like(t)
        lap = zero if known.period is None else jnp.floor((t - known.starts[0]) / known.period) * known.period
        away = jnp.maximum(jnp.maximum(known.starts - (t - lap), (t - lap) - known.ends), 0)
        return Place(self._first(away, number, known.there), lap)

    def entered(self, place: Place, t: Time, number: int) -> Place:
        """The place after a jump into a mode: its arc whose start is nearest in time."""
        known = self.reference
        away, there = t - place.shift - known.starts, known.there
        laps = jnp.zeros_like(away)
        if known.period is None:
            # No jump leads into the first arc.
            there = there & (jnp.arange(len(away)) > 0)
        else:
            laps = jnp.round(away / known.period) * known.period
        arc = self._first(jnp.abs(away - laps), number, there)
        return Place(arc, t - known.starts[arc] if self.transverse else place.shift + laps[arc])

    def _first(self, away: Array, number: int, there: Array) -> Index:
        away = jnp.where(there & (self.reference.modes == number), away, jnp.inf)
        return jnp.argmin(jax.lax.stop_gradient(away))
