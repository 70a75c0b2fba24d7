"""Result codes: diffrax's, and those of hybrid orbits."""

from typing import Any

import diffrax as dfx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .types import Flag


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Why a computation ended as it did; one code per batch lane.

    `successful`, or the reason that a lane has no number. A lane that fails is filled with NaN and carries its code;
    its neighbours are not touched. Codes of diffrax and optimistix keep their meaning; these are added. `RESULTS[code]`
    is the message.
    """

    no_crossing = (
        "No guard fell through zero within `max_time`. The guess may lie outside the gait's neighbourhood, or the "
        "sign of a guard may be wrong: a guard fires when it falls from positive to zero. Otherwise raise "
        "`Integrator(max_time=...)`."
    )
    grazing = (
        "The flow touches the guard's surface instead of crossing it: the transversality condition "
        "`D_t g + D_x g f < 0` fails, and neither event time nor saltation matrix is differentiable there."
    )
    unexpected_transition = (
        "Another guard of the mode fired before the transition that `sequence` names. Use `simulate` to discover the "
        "sequence, or correct it."
    )
    simultaneous_guards = (
        "Two guards fell within the tolerance of each other, so the order of their transitions is not determined."
    )
    max_jumps_reached = (
        "The largest number of jumps was reached before the end time: the orbit is Zeno, or `max_jumps` is too small."
    )
    zeno = (
        "Events accumulate: the guard would rise by no more than rounding before it falls again, so the next event "
        "cannot be told from the last. What follows the accumulation point is another mode, such as rest."
    )
    orbit_not_converged = (
        "Newton's method found no periodic orbit from this guess. Try another guess, `MultipleShooting`, or "
        "`find_orbits`."
    )
    not_isolated = (
        "The orbit is one of a continuous family: the return map has the multiplier 1 on the section, so Newton's "
        "equation is singular. Fix the conserved quantity, or move the parameter off the fold."
    )


def nan_unless(good: Bool[Array, "*axes"], value: Array) -> Array:
    """`value`, or NaN where it failed.

    The derivative of the NaN is zero: so a sum over a batch from which failed lanes are masked has the gradient of the
    others, where a NaN would reach the parameters that they share.
    """
    return jnp.where(good, value, jnp.nan)


def choose(pred: Flag, code: Any, otherwise: Any) -> RESULTS:
    """`code` where `pred`, else `otherwise`. (Type checkers take each code of an enumeration for a type of its own.)"""
    return RESULTS.where(pred, code, otherwise)


def code_name(result: RESULTS) -> str:
    """The name of a code that is known, such as `no_crossing`."""
    value = int(result._value)
    return next(name for name, item in RESULTS._name_to_item.items() if int(item._value) == value)


def code_of(value: int) -> Any:
    """The code of that number."""
    return next(item for item in RESULTS._name_to_item.values() if int(item._value) == value)
