r"""That no event comes before its time: conditions on the guards over the states of a step."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .enclosed_step import first, widened
from .interpret import Decision, evaluate
from .mode_field import ModeField
from .state_set import Frame, StateSet
from .taylor_model import TaylorModel


def decided(value) -> Bool[Array, ""]:
    """Whether a comparison holds for all values with certainty."""
    return jnp.all(value.value & value.certain) if isinstance(value, Decision) else jnp.all(value)


def refuted(value) -> Bool[Array, ""]:
    """Whether a comparison fails for all values with certainty."""
    return jnp.all(~value.value & value.certain) if isinstance(value, Decision) else jnp.all(~value)


def quiet(
    field: ModeField,
    box: TaylorModel,
    end: StateSet,
    frame: Frame,
    leaving: Bool[Array, " guards"],
    breeze: Float[Array, " n"],
) -> tuple[Bool[Array, " guards"], Bool[Array, " guards"]]:
    r"""For each guard of a mode, that it does not fire while the states are in a box.

    A guard fires where it falls through zero while armed. So it does not where it is not zero, or rises, or is not armed; nor
    where it falls throughout and is positive at the end; nor after a start on its surface while it falls from there (`leaving`):
    it was never positive. **Arguments:** `end`: the states at the end of the step. `breeze`: the bound of the
    disturbance of each rate, which changes the guard's rate by up to $|D_xg|$ times it.

    **Returns:** whether each guard is quiet, and whether the arc still leaves its surface.
    """
    value, at_end = first(field.watch, box, field.leaves), first(field.heights, end.model, field.leaves)
    slopes = value[:, 2:]
    height, rate = value[:, 0], widened(value[:, 1], jnp.sum(slopes.largest * breeze, axis=1))
    falls = rate.high < 0
    reach = jnp.stack([end.support(slopes[i], frame) for i in range(len(field.guards))])
    calm = (height.low > 0) | (height.high < 0) | (rate.low > 0) | (falls & (leaving | (at_end.low - reach > 0)))
    for i, armed in enumerate(field.armed):
        if armed is not None:
            calm = calm.at[i].set(calm[i] | refuted(evaluate(armed, box, field.leaves)))
    return calm, falls & leaving
