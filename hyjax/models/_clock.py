"""A clock: the event that closes a period of a forced system."""

import jax.numpy as jnp

from .._system.trig import sincos
from .._system.types import Scalar, Time


def clock(t: Time, frequency: Scalar) -> Scalar:
    r"""A guard that falls through zero at the end of every period $2\pi/\Omega$.

    $1 - \tau$ in the first period, $-\sin(2\pi\tau)/2\pi$ later, where $\tau = \Omega t/2\pi$ counts the turns. Both fall
    with the same slope at $\tau = 1$, and neither is positive just after a whole turn: so an arc that starts there does
    not end there. The straight line is seen with certainty, whatever the steps; the sine as long as they are shorter
    than half a period.

    **Arguments:** `frequency`: $\Omega$, rad per unit of time.
    """
    turns = frequency * t / (2 * jnp.pi)
    sine, _ = sincos(frequency * t)
    return jnp.where(turns < 1.25, 1 - turns, -sine / (2 * jnp.pi))
