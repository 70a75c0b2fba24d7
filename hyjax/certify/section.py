r"""Coordinates on a section: the entries of a pre-impact state that decide all that follows."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Params, State
from .mode_field import ModeField


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


def entries_read(field: ModeField, reset: Callable[[State, Params], State]) -> tuple[int, ...]:
    """The entries of the pre-impact state on which the reset depends, by the computational graph: exactly, for all states."""
    return field.map(reset)[0].varying.read


def section_of_reset(
    field: ModeField, reset: Callable[[State, Params], State], y: State, names: tuple[str, ...]
) -> SectionChart:
    r"""The section whose coordinates are the entries of the pre-impact state that the closing reset reads.

    **Arguments:** `field`: of the mode before the reset. `reset`: `(y, params)`. `y`: the orbit's pre-impact state, whose other
    entries stand for those that are not read.
    """
    at = np.array(entries_read(field, reset))
    rest = jnp.asarray(y)

    def lift(z, params):
        return reset(
            jnp.concatenate([z[list(at).index(i)][None] if i in at else rest[i : i + 1] for i in range(len(y))]), params
        )

    def chart(y, params):
        return jnp.stack([y[i] for i in at])

    return SectionChart(lift, chart, tuple(names[i] for i in at))
