"""Forced systems with impacts: the clock whose event ends a period, and the modes that count the impacts of a period."""

import jax.numpy as jnp

from .._numerics.fast import sin
from .._system.system import Guard, HybridSystem, Mode, Reset, Transition
from .._system.types import Scalar, Time


def clock(t: Time, frequency: Scalar) -> Scalar:
    r"""A guard that falls through zero at the end of every period $2\pi/\Omega$.

    $1 - \tau$ in the first period and $-\sin(2\pi\tau)/2\pi$ later, where $\tau = \Omega t/2\pi$ counts the periods. Both
    fall with the same slope at $\tau = 1$, and neither is positive just after a whole number of periods, so an arc that starts
    there does not end there. The zero of the straight line is found with steps of any length, that of the sine with steps
    shorter than half a period.

    **Arguments:** `frequency`: $\Omega$, rad per unit of time.
    """
    turns = frequency * t / (2 * jnp.pi)
    return jnp.where(turns < 1.25, 1 - turns, -sin(frequency * t) / (2 * jnp.pi))


def impacts_in_a_period(
    flow: Mode, gap: Guard, impact: Reset, period_ends: Guard, restart: Reset, time_unit: str
) -> HybridSystem:
    """A forced system with impacts, as two modes of the same flow: `before` and `after` the first impact of a period.

    So a sequence counts the impacts: `("before",)` has none, `("before", "after")` one, `("before", "after", "after")` two.

    **Arguments:** `gap`, `impact`: guard and reset of an impact. `period_ends`, `restart`: guard and reset at the end of a
    period. `time_unit`: that of the system.
    """
    return HybridSystem(
        modes={"before": flow, "after": flow},
        transitions=(
            Transition("before", "after", guard=gap, reset=impact),
            Transition("after", "after", guard=gap, reset=impact),
            Transition("before", "before", guard=period_ends, reset=restart),
            Transition("after", "before", guard=period_ends, reset=restart),
        ),
        time_unit=time_unit,
    )
