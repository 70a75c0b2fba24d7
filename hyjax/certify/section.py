r"""Coordinates on a section: the entries of a pre-impact state that decide all that follows."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Params, State
from .mode_field import ModeField
from .step import first
from .taylor_model import ball

# An entry of a Jacobian that is zero by the form of its function is zero but for the bound of flushed numbers.
ABSENT = 1e-200


class SectionChart(eqx.Module):
    r"""Coordinates $z$ of a section: how a state follows from them, and how they are read off.

    **Arguments:** `lift`: `(z, params) -> x`, the state at the start of the first arc, just after a jump. `chart`:
    `(y, params) -> z`, from the pre-impact state of the jump that closes the orbit. States carry the time as their last entry if
    the system depends on time. `names`: of the coordinates. The return map is $z \mapsto
    \mathrm{chart}(\varphi(\mathrm{lift}(z)))$.
    """

    lift: Callable[[Float[Array, " m"], Params], State] = eqx.field(static=True)
    chart: Callable[[State, Params], Float[Array, " m"]] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)


def entries_read(field: ModeField, reset: Callable[[State, Params], State], y: State) -> tuple[int, ...]:
    """The entries of the pre-impact state on which the reset depends: columns of its Jacobian that do not vanish by their
    form."""
    _, jacobian = field.map(reset)
    slope = first(jacobian, ball(y, jnp.full(y.shape, 1e-3)), field.leaves)
    return tuple(int(i) for i in np.flatnonzero(np.asarray(jnp.max(slope.largest, axis=0)) > ABSENT))


def section_of_reset(
    field: ModeField, reset: Callable[[State, Params], State], y: State, names: tuple[str, ...]
) -> SectionChart:
    r"""The section whose coordinates are the entries of the pre-impact state that the closing reset reads.

    **Arguments:** `field`: of the mode before the reset. `reset`: `(y, params)`. `y`: the orbit's pre-impact state, whose other
    entries stand for those that are not read.
    """
    at = np.array(entries_read(field, reset, y))
    rest = jnp.asarray(y)

    def lift(z, params):
        return reset(
            jnp.concatenate([z[list(at).index(i)][None] if i in at else rest[i : i + 1] for i in range(len(y))]), params
        )

    def chart(y, params):
        return jnp.stack([y[i] for i in at])

    return SectionChart(lift, chart, tuple(names[i] for i in at))
