r"""Objectives of a gait: functions `(orbit, params) -> number` for `hyjax.optimize` and `hyjax.Constraint`.

Some are made from functions of a model, such as `speed(model.travel)`. Any differentiable function of an orbit serves: its
period is `lambda orbit, params: orbit.period`.
"""

import equinox as eqx

from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params, Scalar
from .._system.where import Where
from ..control.sensitivity_norm import contraction_factor, Indicator, sensitivity_norm, stride_time
from .along import along as along, largest as largest, smallest as smallest
from .constraint import Objective
from .integral import integral as integral
from .jumps import impact_loss as impact_loss, speed as speed, step_length as step_length
from .work import cost_of_transport as cost_of_transport, negative_work as negative_work, positive_work as positive_work


class Negative(eqx.Module):
    """Minus an objective: `hyjax.optimize` minimizes, so it maximizes with `Negative(speed)`.

    Values, gradients and multipliers of the result are those of the negative objective; its pictures show the objective itself.

    **Arguments:** `objective`: `(orbit, params) -> number`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> fastest = hj.objectives.Negative(hj.objectives.speed(wheel.travel))
    >>> print(f"{fastest(orbit, params):.6f}")
    -0.432898
    """

    objective: Objective

    def __call__(self, orbit: PeriodicOrbit, params: Params) -> Scalar:
        return -self.objective(orbit, params)


def period(orbit: PeriodicOrbit, params: Params) -> Scalar:
    """The period of the orbit, the duration of all its strides.

    **Arguments:** `orbit`, `params`: an orbit and its parameters. **Returns:** a scalar, in units of time; NaN for an orbit that
    failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
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
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
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
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
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
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> norm = hj.objectives.sensitivity(noise=lambda p: p.slope)
    >>> print(f"{norm(orbit, params):.6f}")
    5.156015
    """

    def sensitivity(orbit: PeriodicOrbit, params: Params) -> Scalar:
        return sensitivity_norm(orbit, noise=noise, indicator=indicator)

    return sensitivity
