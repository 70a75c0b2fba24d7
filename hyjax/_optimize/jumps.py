"""Objectives from the states before and after the jumps of an orbit: distance, speed, loss of energy."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.jump import reset
from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params, Scalar, State
from .constraint import Objective

# The vector from one foothold to the next, at the end of an arc: `(mode, x, params) -> (2,)`, as `travel` of a model.
Travel = Callable[[str, State, Params], Float[Array, " axes"]]
Energy = Callable[[str, State, Params], Scalar]


def step_length(travel: Travel) -> Objective:
    """The distance over the ground in one period.

    **Arguments:** `travel`: of a model, the vector from one foothold to the next at the end of an arc,
    `(mode, x, params) -> (2,)`.

    **Returns:** `(orbit, params) -> number`, in the unit of the vector. NaN for an orbit that failed.
    """

    def step_length(orbit: PeriodicOrbit, params: Params) -> Scalar:
        ways = [travel(mode, x, params) for mode, x, _, _ in arc_ends(orbit, params)]
        square = jnp.sum(sum(ways, jnp.zeros(())) ** 2)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)

    return step_length


def speed(travel: Travel) -> Objective:
    """The mean speed over the ground: `step_length` over the period.

    **Arguments:** `travel`: as for `step_length`. **Returns:** `(orbit, params) -> number`, in units of length by time. NaN for
    an orbit that failed.
    """
    length = step_length(travel)

    def speed(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return length(orbit, params) / orbit.period

    return speed


def impact_loss(energy: Energy) -> Objective:
    """The energy lost in the jumps of one period: the sum of $E(x^-) - E(x^+)$.

    **Arguments:** `energy`: `(mode, x, params) -> number`, in any unit, with the same origin before and after each jump.

    **Returns:** `(orbit, params) -> number`, in the unit of the energy. NaN for an orbit that failed.
    """

    def impact_loss(orbit: PeriodicOrbit, params: Params) -> Scalar:
        losses = [energy(a, x, params) - energy(b, y, params) for a, x, b, y in arc_ends(orbit, params)]
        return sum(losses, jnp.zeros((), orbit.x.dtype))

    return impact_loss


# Not `State`, whose name of the dimension would be that of all states of the list: modes differ in theirs.
ArcEnd = tuple[str, Float[Array, " _"], str, Float[Array, " _"]]


def arc_ends(orbit: PeriodicOrbit, params: Params) -> list[ArcEnd]:
    """For each jump of the orbit the mode and the state before it, and the mode and the state after it."""
    following = (*orbit.sequence[1:], orbit.sequence[0])
    ends = []
    for stride, start in enumerate(orbit.starts):
        for arc, (mode, after) in enumerate(zip(orbit.sequence, following, strict=True)):
            x = orbit.arc_ends[arc][stride]
            if arc < len(following) - 1:
                into = orbit.system.transitions[orbit.system.route(orbit.sequence)[arc]]
                jumped = reset(into, start + orbit.elapsed[stride, arc], x, params)
            else:
                jumped = orbit.nodes[(stride + 1) % orbit.strides]
            ends.append((mode, x, after, jumped))
    return ends
