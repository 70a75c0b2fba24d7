r"""The bouncing ball: free fall onto a floor, with restitution.

$$\ddot y = -g, \qquad y = 0: \quad \dot y^+ = -e\,\dot y^-$$

Dropped from $h_0$ it meets the floor at $t_k = \sqrt{2h_0/g}\,(1 + 2\sum_{j=1}^{k-1} e^j)$ and leaves it with
$e^k\sqrt{2gh_0}$. For $e < 1$ the impacts accumulate at $\sqrt{2h_0/g}\,(1+e)/(1-e)$ (Zeno), and there is no periodic
orbit; for $e = 1$ every bounce is periodic, and none is isolated. The domain of the flight is above the floor, $y \ge 0$.

Source: Kong, Payne, Zhu, Johnson (2024), Sec. III; the closed forms are elementary.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import ground as ground, parameter, require

title = "Bouncing ball"
source = "elementary mechanics; Kong, Payne, Zhu, Johnson, Proc. IEEE (2024), Sec. III"


class Params(Shown):
    """Floor and gravity."""

    restitution: Float[Array, ""] = parameter(0.8, "1", "coefficient of restitution e")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "acceleration of gravity g")

    def __check_init__(self):
        require(self, positive="gravity", at_most_one="restitution")


def fall(t, x, params):
    _, y_rate = x
    return jnp.stack([y_rate, -params.gravity])


def height(t, x, params):
    return x[0]


def bounce(t, x, params):
    y, y_rate = x
    return jnp.stack([y, -params.restitution * y_rate])


coordinates = ("y", "y_rate")
units, time_unit = ("m", "m/s"), "s"
system = HybridSystem(
    modes={"flight": Mode(fall, coordinates, domain=height, units=units)},
    transitions=(Transition("flight", "flight", guard=height, reset=bounce),),
    time_unit=time_unit,
)
sequence = ("flight",)
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Just after a bounce."""
    return jnp.stack([jnp.zeros_like(params.gravity), jnp.ones_like(params.gravity)])


def start(params):
    """`(mode, x)`: dropped from 1 m."""
    return "flight", jnp.stack([jnp.ones_like(params.gravity), jnp.zeros_like(params.gravity)])


def region(params):
    """On the floor, moving up."""
    return jnp.array([0.0, 0.1]), jnp.array([0.0, 10.0])


scenery = ("floor",)


def outline(mode, x, params):
    """The ball's centre above the floor, in m."""
    y, _ = x
    zero, wide = jnp.zeros_like(y), 0.5 * jnp.ones_like(y)
    return {"ball": jnp.stack([zero, y])[None], "floor": jnp.stack([jnp.stack([-wide, zero]), jnp.stack([wide, zero])])}


def travel(mode, x, params):
    """The floor does not move."""
    return jnp.zeros(2)
