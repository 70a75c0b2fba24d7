r"""Objectives of a gait: functions `(orbit, params) -> number` for `hyjax.optimize` and `hyjax.Constraint`.

Of the orbit's map: `period`, `spectral_radius`, `contraction`, `sensitivity`. Of the states before and after its jumps:
`step_length`, `speed`, `impact_loss`. Along its arcs: `integral`, `positive_work`, `negative_work`, `cost_of_transport`,
`largest` and `smallest`; and `along`, the rows of a constraint. Some are made from functions of a model, such as
`speed(model.travel)`. Any differentiable function of an orbit serves: its period is `lambda orbit, params: orbit.period`.
"""

from collections.abc import Callable, Mapping
from typing import cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.jump import reset
from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride import run_stride
from .._system.types import Params, require_counts, Scalar, State
from .._system.where import Where
from ..control.sensitivity_norm import contraction_factor, Indicator, sensitivity_norm, stride_time
from .constraint import Objective, Orbit, Planned, Quantity
from .interior_point import InteriorPoint as InteriorPoint
from .turning_points import (
    by_mode,
    measured,
    MeasuredSystem,
    Rate,
    remembered,
    turning_values,
    values_at,
    with_integral,
)

# The vector from one foothold to the next, at the end of an arc: `(mode, x, params) -> (2,)`, as `travel` of a model.
Travel = Callable[[str, State, Params], Float[Array, " axes"]]
Energy = Callable[[str, State, Params], Scalar]
# Not `State`, whose name of the dimension would be that of all states of the list: modes differ in theirs.
ArcEnd = tuple[str, Float[Array, " _"], str, Float[Array, " _"]]
# The first and the last time, as fractions of an arc's duration.
Window = tuple[float, float]
# The two works of an orbit: `(orbit, params) -> (positive, negative)`.
Works = Callable[[PeriodicOrbit, Params], tuple[Scalar, Scalar]]


class Negative(eqx.Module):
    """Minus an objective: `hyjax.optimize` minimizes, so it maximizes with `Negative(speed)`.

    Values, gradients and multipliers of the result are those of the negative objective; its pictures show the objective itself.

    **Arguments:** `objective`: `(orbit, params) -> number`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> fastest = hj.objectives.Negative(hj.objectives.speed(wheel.travel))
    >>> print(f"{fastest(orbit, params):.6f}")
    -0.432898
    """

    objective: Objective

    def __call__(self, orbit: Orbit, params: Params) -> Scalar:
        return -self.objective(cast(PeriodicOrbit, orbit), params)


def period(orbit: Orbit, params: Params) -> Scalar:
    """The period of the orbit, the duration of all its strides.

    **Arguments:** `orbit`, `params`: an orbit and its parameters. **Returns:** a scalar, in units of time; NaN for an orbit that
    failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> print(f"{hj.objectives.period(orbit, params):.6f}")
    2.310015
    """
    return orbit.period


def spectral_radius(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The largest modulus of a multiplier, the factor by which a deviation shrinks in a stride in the long run.

    For a constraint such as `at_most=0.9` where one multiplier, or one complex pair, is the largest. Not differentiable where
    the two largest multipliers meet, at a kink or, where a real pair becomes complex, with an infinite derivative on one side;
    an optimum is often there: to minimize, use `contraction`.

    **Arguments:** `orbit`, `params`: an orbit and its parameters. **Returns:** a scalar; NaN for an orbit that failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> print(f"{hj.objectives.spectral_radius(orbit, params):.6f}")
    0.444444
    """
    return orbit.spectral_radius


def contraction(smoothing: float = 1e-3) -> Objective:
    r"""An upper bound of the spectral radius that is differentiable everywhere.

    It is the $r$ with $\sum_{k \ge 1} \|A^k\|_F^2\,r^{-2k} = 1/\varepsilon$.

    $A$ is the return Jacobian, $\varepsilon$ the smoothing. In the linear theory a deviation of size 1 is at most
    $r^k/\sqrt\varepsilon$ after $k$ strides. For one real multiplier $r = |\lambda|\sqrt{1 + \varepsilon}$; as $\varepsilon$
    falls to 0, $r$ falls to the spectral radius, and the gradient near a meeting of multipliers grows as that of the spectral
    radius does. The bound depends on the units of the coordinates. A power of $A$ alone, $\|A^k\|^{1/k}$, is such a bound too,
    but its value varies with the phase $k \arg\lambda$ of a complex pair. For the powered walker at push-offs of 0.12, 0.16 and
    0.187 the spectral radius has 0, 1 and 1 local minima over stiffnesses between 1 and 8; so has $r$ with
    $\varepsilon = 10^{-3}$, which is 0.1 % to 3.2 % above it; that of $k = 16$ has 2 each and is 3 % to 12 % above, and that of
    $k = 64$ has 8 to 10.

    **Arguments:** `smoothing`: $\varepsilon$, static, between 1e-6 and 1: 1e-2 for a smoother, less tight bound.

    **Returns:** `(orbit, params) -> number`; NaN for an orbit that failed. `ValueError` for a smoothing out of range.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> bound = hj.objectives.contraction()
    >>> print(f"{bound(orbit, params) / orbit.spectral_radius:.4f}")
    1.0006

    Source: Vanbiervliet, Vandereycken, Michiels, Vandewalle, Diehl (2009), *The smoothed spectral abscissa for robust stability
    optimization*, SIAM J. Optim. 20, 156-171, for the continuous-time counterpart.
    """
    if not 1e-6 <= smoothing <= 1:
        raise ValueError(f"contraction: smoothing={smoothing} must lie between 1e-6 and 1.")

    def contraction(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return contraction_factor(orbit.return_jacobian, orbit.spectral_radius, smoothing)

    return contraction


def sensitivity(noise: Where, indicator: Indicator = stride_time) -> Objective:
    """The gait sensitivity norm, for a gait whose strides vary little under noise, such as that of the ground's slope.

    **Arguments:** as those of `hyjax.control.sensitivity_norm`: `noise` selects the parameters that vary from stride to
    stride, as `lambda p: p.slope`; `indicator` is a function of the `Stride`, by default its duration. The norm is infinite
    for a gait that is not stable: a search starts from a stable gait, and its steps to others are cut back.

    **Returns:** `(orbit, params) -> number`, in units of the indicator per unit of the noise.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> norm = hj.objectives.sensitivity(noise=lambda p: p.slope)
    >>> print(f"{norm(orbit, params):.6f}")
    5.156015
    """

    def sensitivity(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return sensitivity_norm(orbit, noise=noise, indicator=indicator)

    return sensitivity


def step_length(travel: Travel) -> Objective:
    """The distance over the ground in one period.

    **Arguments:** `travel`: of a model, the vector from one foothold to the next at the end of an arc,
    `(mode, x, params) -> (2,)`.

    **Returns:** `(orbit, params) -> number`, in the unit of the vector. NaN for an orbit that failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> print(f"{hj.objectives.step_length(wheel.travel)(orbit, params):.6f}")
    1.000000
    """

    def step_length(orbit: Orbit, params: Params) -> Scalar:
        ways = [travel(mode, x, params) for mode, x, _, _ in _arc_ends(orbit, params)]
        square = jnp.sum(sum(ways, jnp.zeros(())) ** 2)
        return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)

    return step_length


def speed(travel: Travel | None = None) -> Objective:
    """The mean speed over the ground: `step_length` over the period, or the mean of the coordinate `x_rate`.

    **Arguments:** `travel`: as for `step_length`; without it the speed is the integral of `x_rate` over the period, in all modes
    that have this coordinate. **Returns:** `(orbit, params) -> number`, in units of length by time. NaN for an orbit that failed.
    `ValueError` for an orbit of which no mode has the coordinate.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> print(f"{hj.objectives.speed(wheel.travel)(orbit, params):.6f}")
    0.432898
    """
    length = step_length(travel) if travel else _distance()

    def speed(orbit: Orbit, params: Params) -> Scalar:
        return length(cast(PeriodicOrbit, orbit), params) / orbit.period

    return speed


def _distance() -> Objective:
    """The integral of the coordinate `x_rate`."""

    def along_x(orbit: PeriodicOrbit) -> Objective:
        modes = {name: orbit.system.mode(name).coordinates for name in orbit.mode_names}
        places = {name: names.index("x_rate") for name, names in modes.items() if "x_rate" in names}
        if not places:
            raise ValueError("speed: the orbit has no coordinate x_rate. Give the model's travel: speed(model.travel).")
        return integral({name: lambda t, x, params, k=k: x[k] for name, k in places.items()})

    made = remembered(along_x)
    return lambda orbit, params: made(orbit)(orbit, params)


def impact_loss(energy: Energy) -> Objective:
    """The energy lost in the jumps of one period: the sum of $E(x^-) - E(x^+)$.

    **Arguments:** `energy`: `(mode, x, params) -> number`, in any unit, with the same origin before and after each jump.

    **Returns:** `(orbit, params) -> number`, in the unit of the energy. NaN for an orbit that failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> loss = hj.objectives.impact_loss(lambda mode, x, p: x[1] ** 2 / 2)
    >>> print(f"{loss(orbit, params):.6f}")
    0.132446
    """

    def impact_loss(orbit: Orbit, params: Params) -> Scalar:
        losses = [energy(a, x, params) - energy(b, y, params) for a, x, b, y in _arc_ends(orbit, params)]
        return sum(losses, jnp.zeros((), orbit.x.dtype))

    return impact_loss


def _arc_ends(orbit: Orbit, params: Params) -> list[ArcEnd]:
    """For each jump of the orbit the mode and the state before it, and the mode and the state after it."""
    modes = orbit.mode_names
    following = (*modes[1:], modes[0])
    ends = []
    for stride, start in enumerate(orbit.start_times):
        for arc, (mode, after) in enumerate(zip(modes, following, strict=True)):
            x = orbit.arc_ends[arc][stride]
            if arc < len(following) - 1:
                into = orbit.system.way(orbit.system.route(orbit.sequence)[arc])
                jumped = reset(into, start + orbit.jump_times[stride, arc], x, params)
            else:
                jumped = orbit.nodes[(stride + 1) % orbit.strides]
            ends.append((mode, x, after, jumped))
    return ends


def integral(rate: Rate | Mapping[str, Rate]) -> Objective:
    r"""The integral of a rate over one period, $\int_0^T r(t, x(t), p)\,dt$, by the integrator of the orbit, to its tolerance.

    The integral is one more state of the flow. Of a smooth rate it and its derivatives are as accurate as the orbit. Where a
    rate has a kink, the integral is accurate and its derivatives are less: write the kink as an event of the system. For the
    positive part of a power there is `positive_work`, which does so.

    **Arguments:** `rate`: `(t, x, params) -> number`, for all modes of the orbit, or a mapping from modes; a mode that is
    left out adds nothing.

    **Returns:** `(orbit, params) -> number`, in the unit of the rate times that of time. NaN where the integration fails.
    `ValueError` for an unknown mode.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> angle = hj.objectives.integral(lambda t, x, p: x[1])
    >>> print(f"{angle(orbit, params):.6f}")
    1.047198
    """
    extended = remembered(lambda orbit: with_integral(orbit.system, by_mode("integral", rate, orbit)))

    def integral(orbit: Orbit, params: Params) -> Scalar:
        if isinstance(orbit, Planned):
            return orbit.integral(by_mode("integral", rate, orbit).get(orbit.mode_names[0]))
        system = extended(orbit)
        total = jnp.zeros((), orbit.x.dtype)
        for node, start in zip(orbit.nodes, orbit.start_times, strict=True):
            x = jnp.append(node, jnp.zeros((), node.dtype))
            through = run_stride(system, start, x, params, orbit.sequence, orbit.integrator)
            total = total + through.x[-1]
        return total

    return integral


def along(function: Rate | Mapping[str, Rate], *, n_samples: int = 20, window: Window = (0.0, 1.0)) -> Quantity:
    r"""A function of the state at equidistant times of each arc, as the rows of a constraint.

    `hj.Constraint(hj.objectives.along(clearance, window=(0.2, 0.8)), at_least=0.01)` bounds the function at these times; between
    them it may exceed the bound, by no more than $\tfrac18\Delta^2\max|\ddot h|$ for times $\Delta$ apart. `largest` and
    `smallest` bound it everywhere.

    **Arguments:** `function`: `(t, x, params) -> number`, for all modes of the orbit or a mapping from modes; arcs of a mode that
    is left out have no rows. `n_samples`: of each arc, at least 2, static. `window`: the first and last time, as fractions of the
    arc's duration, static.

    **Returns:** `(orbit, params) -> (rows,)`, `n_samples` for each arc, in the order of time, in the function's unit. The times
    move with the arc's ends. NaN where the integration fails. `ValueError` for arguments out of range and for an unknown mode.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> rate = hj.objectives.along(lambda t, x, p: x[1], n_samples=3)
    >>> print(rate(orbit, params).round(6))
    [0.460341 0.393818 0.690512]
    """
    _check_window("along", window)
    require_counts("along", 2, n_samples=n_samples)
    measure = _measure("along", function)

    def along(orbit: Orbit, params: Params) -> Float[Array, " rows"]:
        if isinstance(orbit, Planned):
            return orbit.along(by_mode("along", function, orbit).get(orbit.mode_names[0]), window)
        fractions = jnp.linspace(*window, n_samples, dtype=orbit.x.dtype)
        return values_at(measure(orbit), orbit, params, fractions).ravel()

    return along


def largest(function: Rate | Mapping[str, Rate], *, window: Window = (0.0, 1.0)) -> Objective:
    r"""The largest value of a function of the state on the arcs of an orbit, $\max_t h(t, x(t), p)$, between samples too.

    The times at which the function turns are located as events; the largest value is at one of them or at an end of an arc. It
    and its first and second derivatives are as accurate as the orbit, in forward and reverse mode. So
    `hj.Constraint(hj.objectives.largest(torque), at_most=0.2)` limits a torque along the whole arc.

    Where the function has several maxima and another one becomes the largest, the value has a kink: a minimization whose
    optimum has two equal maxima zigzags there or ends early. Then constrain `along`, whose rows are smooth, so that each maximum
    has its own multiplier; or constrain each arc or window apart.

    **Arguments:** `function`: `(t, x, params) -> number`, smooth in each mode, for all modes of the orbit or a mapping from
    modes; a mode that is left out does not count. `window`: the part of each arc that counts, as fractions of its duration,
    static, such as `(0.2, 0.8)` for the clearance of a foot, which is zero at both ends. For other windows in other modes, make
    one constraint for each mode.

    **Returns:** `(orbit, params) -> number`, in the function's unit. NaN where the integration fails, or the function turns more
    than 16 times in an arc. `ValueError` for arguments out of range, for an unknown mode, and where no mode is left.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> rate = hj.objectives.largest(lambda t, x, p: x[1])
    >>> print(f"{rate(orbit, params):.6f}")
    0.690512
    """
    return _extreme("largest", function, window, 1)


def smallest(function: Rate | Mapping[str, Rate], *, window: Window = (0.0, 1.0)) -> Objective:
    r"""The smallest value of a function of the state on the arcs of an orbit, $\min_t h(t, x(t), p)$, between samples too.

    **Arguments:** `function`, `window`: as for `largest`. **Returns:** `(orbit, params) -> number`, as `largest` does.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> rate = hj.objectives.smallest(lambda t, x, p: x[1])
    >>> print(f"{rate(orbit, params):.6f}")
    0.377770
    """
    return _extreme("smallest", function, window, -1)


def _extreme(name: str, function: Rate | Mapping[str, Rate], window: Window, sign: int) -> Objective:
    _check_window(name, window)
    measure = _measure(name, function)

    def extreme(orbit: Orbit, params: Params) -> Scalar | Float[Array, " rows"]:
        if isinstance(orbit, Planned):
            return orbit.along(by_mode(name, function, orbit).get(orbit.mode_names[0]), window, sign)
        values = turning_values(measure(orbit), orbit, params, window).ravel()
        return values[jnp.argmax(sign * values)]

    extreme.__name__ = name
    return extreme


def _measure(name: str, function: Rate | Mapping[str, Rate]):
    """The orbit's system with the function by mode; of the objective `name`."""

    def make(orbit: PeriodicOrbit) -> MeasuredSystem:
        functions = by_mode(name, function, orbit)
        if not functions:
            raise ValueError(
                f"{name}: none of the orbit's modes {orbit.sequence} has a function. Give one of them one."
            )
        return measured(orbit.system, functions)

    return remembered(make)


def _check_window(name: str, window: Window) -> None:
    low, high = window
    if not 0 <= low < high <= 1:
        raise ValueError(f"{name}: window={window} must be two fractions of an arc, such as (0.2, 0.8).")


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

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> power = lambda t, x, p: jnp.sin(x[0] + p.slope) * x[1]
    >>> print(f"{hj.objectives.positive_work(power)(orbit, params):.6f}")
    0.250572
    """
    return _work("positive_work", power, 0)


def negative_work(power: Rate | Mapping[str, Rate]) -> Objective:
    r"""The negative work of one period, $W^- = \int_0^T \max(-P(t, x(t), p), 0)\,dt \ge 0$.

    **Arguments:** `power`: as for `positive_work`. **Returns:** `(orbit, params) -> number`, as `positive_work` does.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> power = lambda t, x, p: jnp.sin(x[0] + p.slope) * x[1]
    >>> print(f"{hj.objectives.negative_work(power)(orbit, params):.6f}")
    0.051903
    """
    return _work("negative_work", power, 1)


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

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> power = lambda t, x, p: jnp.sin(x[0] + p.slope) * x[1]
    >>> cost = hj.objectives.cost_of_transport(power, wheel.travel, weight=1.0)
    >>> print(f"{cost(orbit, params):.6f}")
    0.250572

    Source: Collins, Ruina, Tedrake, Wisse (2005), *Efficient bipedal robots based on passive-dynamic walkers*, Science 307, with
    $\nu = 0$.
    """
    works, length = _works_of("cost_of_transport", power), step_length(travel)

    def cost_of_transport(orbit: PeriodicOrbit, params: Params) -> Scalar:
        rises, falls = works(orbit, params)
        work = rises + negative * falls
        if impulsive is not None:
            work = work + impulsive(orbit, params)
        return work / ((weight(params) if callable(weight) else weight) * length(orbit, params))

    return cost_of_transport


def _work(name: str, power: Rate | Mapping[str, Rate], kind: int) -> Objective:
    works = _works_of(name, power)

    def work(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return works(orbit, params)[kind]

    work.__name__ = name
    return work


def _works_of(name: str, power: Rate | Mapping[str, Rate]) -> Works:
    """The positive and the negative work, of the objective `name`."""

    def with_work(orbit: PeriodicOrbit) -> MeasuredSystem:
        powers = by_mode(name, power, orbit)
        return measured(with_integral(orbit.system, powers), dict.fromkeys(powers, lambda t, x, params: x[-1]))

    extended = remembered(with_work)

    def works(orbit: PeriodicOrbit, params: Params) -> tuple[Scalar, Scalar]:
        what = extended(orbit)
        if not what[1]:
            return jnp.zeros((), orbit.x.dtype), jnp.zeros((), orbit.x.dtype)
        change = jnp.diff(turning_values(what, orbit, params), axis=-1)
        return jnp.sum(jnp.where(change > 0, change, 0 * change)), jnp.sum(jnp.where(change < 0, -change, 0 * change))

    return works
