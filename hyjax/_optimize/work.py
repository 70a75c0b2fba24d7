r"""Mechanical work along an orbit, positive and negative apart, and the cost of transport."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp

from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params, Scalar
from .constraint import Objective
from .integral import by_mode, Rate, remembered, with_integral
from .jumps import step_length, Travel
from .turning_points import measured, turning_values

# The two works of an orbit: `(orbit, params) -> (positive, negative)`.
Works = Callable[[PeriodicOrbit, Params], tuple[Scalar, Scalar]]


def positive_work(power: Rate | Mapping[str, Rate]) -> Objective:
    r"""The positive work of one period, $W^+ = \int_0^T \max(P(t, x(t), p), 0)\,dt$, of a power $P$.

    The work $\int P\,dt$ is one more state of the flow. The sign changes of the power are located as events, and $W^+$ is the
    sum of the rises between them. So it and its first and second derivatives are as accurate as the orbit, in forward and
    reverse mode. Where the power only touches zero, nothing changes. Where a sign change appears or vanishes, $W^+$ and its
    first derivative are continuous, and its second derivative is not. The parameters at which a power is zero along a whole arc
    are a kink of $W^+$; the derivative there is that of no work, zero.

    **Arguments:** `power`: `(t, x, params) -> number`, smooth in each mode, in units of work per time, for all modes of the orbit
    or a mapping from modes; a mode that is left out does no work.

    **Returns:** `(orbit, params) -> number`. NaN where the integration fails, or the power changes its sign more than 16 times in
    an arc: then divide the arc by a further mode. `ValueError` for an unknown mode.
    """
    works = works_of("positive_work", power)

    def positive_work(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return works(orbit, params)[0]

    return positive_work


def negative_work(power: Rate | Mapping[str, Rate]) -> Objective:
    r"""The negative work of one period, $W^- = \int_0^T \max(-P(t, x(t), p), 0)\,dt \ge 0$.

    **Arguments:** `power`: as for `positive_work`. **Returns:** `(orbit, params) -> number`, as `positive_work` does.
    """
    works = works_of("negative_work", power)

    def negative_work(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return works(orbit, params)[1]

    return negative_work


def cost_of_transport(
    power: Rate | Mapping[str, Rate],
    travel: Travel,
    weight: Callable[[Params], Scalar] | float,
    *,
    negative: float = 0.0,
    impulsive: Objective | None = None,
) -> Objective:
    r"""The mechanical cost of transport, dimensionless: $(W^+ + \nu W^- + W_P)/(m g\,d)$, the work over weight and distance.

    **Arguments:** `power`: as for `positive_work`. `travel`: of a model, the vector from one foothold to the next at the end of
    an arc, `(mode, x, params) -> (2,)`; $d$ is the length of the way in one period. `weight`: $m g$, a number, or a function of
    `params`. `negative`: $\nu$, the share of the negative work that counts as a cost: 0 where it is free, 1 where braking costs
    as much as driving, -1 where it is all recovered. `impulsive`: $W_P$, the work of push-offs, `(orbit, params) -> number`.

    **Returns:** `(orbit, params) -> number`. NaN where the integration fails.

    Source: Collins, Ruina, Tedrake, Wisse (2005), *Efficient bipedal robots based on passive-dynamic walkers*, Science 307, with
    $\nu = 0$.
    """
    works, length = works_of("cost_of_transport", power), step_length(travel)

    def cost_of_transport(orbit: PeriodicOrbit, params: Params) -> Scalar:
        rises, falls = works(orbit, params)
        work = rises + negative * falls
        if impulsive is not None:
            work = work + impulsive(orbit, params)
        return work / ((weight(params) if callable(weight) else weight) * length(orbit, params))

    return cost_of_transport


def works_of(name: str, power: Rate | Mapping[str, Rate]) -> Works:
    """The positive and the negative work, of the objective `name`."""
    extended = remembered(lambda orbit: _with_work(orbit, by_mode(name, power, orbit)))

    def works(orbit: PeriodicOrbit, params: Params) -> tuple[Scalar, Scalar]:
        what = extended(orbit)
        if not what.functions:
            return jnp.zeros((), orbit.x.dtype), jnp.zeros((), orbit.x.dtype)
        change = jnp.diff(turning_values(what, orbit, params), axis=-1)
        return jnp.sum(jnp.where(change > 0, change, 0 * change)), jnp.sum(jnp.where(change < 0, -change, 0 * change))

    return works


def _with_work(orbit: PeriodicOrbit, powers: dict[str, Rate]):
    return measured(with_integral(orbit.system, powers), dict.fromkeys(powers, lambda t, x, params: x[-1]))
