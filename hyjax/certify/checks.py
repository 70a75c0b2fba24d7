r"""That no event comes before its time: conditions on the guards over the states of a step."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .interpret import Decision, evaluate
from .mode_field import ModeField
from .state_set import Frame, StateSet
from .step import first, widened
from .taylor_model import TaylorModel


def decided(value) -> Bool[Array, ""]:
    """Whether a comparison holds for all values with certainty."""
    return jnp.all(value.value & value.certain) if isinstance(value, Decision) else jnp.all(value)


def refuted(value) -> Bool[Array, ""]:
    """Whether a comparison fails for all values with certainty."""
    return jnp.all(~value.value & value.certain) if isinstance(value, Decision) else jnp.all(~value)


def lowest_guard(field: ModeField, which: int, states: StateSet, frame: Frame, slope: TaylorModel) -> Float[Array, ""]:
    """A lower bound of a guard over a set of states; `slope`: its gradient over a ball that holds the set."""
    value = first(field.guards[which], states.model, field.leaves)[0]
    return value.low - states.support(slope, frame)


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
    silent, still = [], []
    for i, guard in enumerate(field.guards):
        value = first(guard, box, field.leaves)
        slope = first(field.gradients[i], box, field.leaves)[:-1]
        height, rate = value[0], widened(value[1], jnp.sum(slope.largest * breeze))
        falls = rate.high < 0
        calm = (
            (height.low > 0)
            | (height.high < 0)
            | (rate.low > 0)
            | (falls & (leaving[i] | (lowest_guard(field, i, end, frame, slope) > 0)))
        )
        if field.armed[i] is not None:
            calm = calm | refuted(evaluate(field.armed[i], box, field.leaves))
        silent.append(calm)
        still.append(falls & leaving[i])
    return jnp.stack(silent), jnp.stack(still)
