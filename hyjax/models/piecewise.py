r"""A planar field in two halves: a spiral towards the unit circle on the left, towards another circle on the right.

In polar coordinates $x = r\cos\theta$, $y = r\sin\theta$,

$$x < 0: \quad \dot r = r(1 - r), \quad \dot\theta = 1; \qquad\qquad
  x > 0: \quad \dot r = \alpha r(\beta - r), \quad \dot\theta = \gamma + \beta - r$$

These halves are the domains of the modes. At the line $x = 0$ only the field changes, not the state. An orbit crosses the
line at $y = r_0 > 0$ into the left half-plane, and half a turn later at $y = -r_1$ into the right one. Both halves have a
closed form, with $e^\pi = E$:

$$r_1 = \frac{E r_0}{1 + (E - 1) r_0}, \qquad
  \Big[\tfrac{\gamma + \beta}{\beta}\ln r - \tfrac{\gamma}{\beta}\ln|\beta - r|\Big]_{r_1}^{r_0} = \alpha\pi$$

The period is $\pi + \ln\frac{r_0(\beta - r_1)}{r_1(\beta - r_0)}/\alpha\beta$, and the multiplier that is not zero

$$\mu = \frac{(1 - r_1)(\beta - r_0)(\gamma + \beta - r_1)}{(1 - r_0)(\beta - r_1)(\gamma + \beta - r_0)}$$

For $\beta = 1$ the orbit is the unit circle, of period $\pi + \pi/\gamma$, with $\mu = e^{-\pi - \alpha\pi/\gamma}$.

Source: Dankowicz, Schilder (2013), *Recipes for Continuation*, SIAM, Ch. 9, the example `piecewise` of COCO's toolbox for
hybrid systems.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from ._common import parameter, require

title = "Piecewise-smooth plane"
source = "Dankowicz, Schilder, Recipes for Continuation, SIAM (2013)"


class Params(Shown):
    """The field in the right half-plane; the left one has no parameter. The unit of length is the left circle's radius."""

    alpha: Float[Array, ""] = parameter(1.0, "1", "rate of attraction alpha on the right")
    beta: Float[Array, ""] = parameter(2.0, "1", "radius beta of the circle on the right")
    gamma: Float[Array, ""] = parameter(1.5, "1", "angular velocity gamma on that circle")

    def __check_init__(self):
        require(self, positive="alpha beta gamma")


def turn(x, growth, angle_rate):
    """$\\dot r = r\\,$`growth` and $\\dot\\theta$ in Cartesian coordinates."""
    x, y = x
    return jnp.stack([growth * x - angle_rate * y, growth * y + angle_rate * x])


def radius(x):
    # At the origin, an equilibrium of both fields, the radius is not differentiable: its derivative is set to zero.
    squared = x @ x
    away = squared > 0
    return jnp.where(away, jnp.sqrt(jnp.where(away, squared, 1)), 0)


def left(t, x, params):
    return turn(x, 1 - radius(x), jnp.ones_like(params.gamma))


def right(t, x, params):
    lack = params.beta - radius(x)
    return turn(x, params.alpha * lack, params.gamma + lack)


def leaves_left(t, x, params):
    return -x[0]


def leaves_right(t, x, params):
    return x[0]


coordinates = ("x", "y")
units, time_unit = ("1", "1"), "1"
system = HybridSystem(
    modes={
        "left": Mode(left, coordinates, domain=leaves_left, units=units),
        "right": Mode(right, coordinates, domain=leaves_right, units=units),
    },
    transitions=(
        Transition("left", "right", guard=leaves_left, reset=unchanged),
        Transition("right", "left", guard=leaves_right, reset=unchanged),
    ),
    time_unit=time_unit,
)
sequence = ("left", "right")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """On the line, between the two circles."""
    return jnp.stack([jnp.zeros_like(params.beta), (1 + params.beta) / 2])


def region(params):
    """Near the line, from a little inside the smaller circle to a little outside the larger."""
    low, high = jnp.minimum(params.beta, 1), jnp.maximum(params.beta, 1)
    return jnp.stack([-0.1 * low, 0.5 * low]), jnp.stack([0.1 * low, 1.2 * high])


def start(params):
    """`(mode, x)`: on the line, entering the left half-plane, inside both circles."""
    return "left", jnp.stack([jnp.zeros_like(params.beta), jnp.minimum(params.beta, 1) / 2])
