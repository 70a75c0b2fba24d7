r"""The paddle juggler: a ball in free fall, and a paddle under the mirror law.

The ball's height $y$ obeys $\ddot y = -g$. By the mirror law the paddle moves against the ball, with an amplitude that increases
with the lack of energy: $\eta = gy + \dot y^2/2$ of the ball, compared with $\eta^* = gh$ of the desired apex,

$$r = -\kappa(\eta)\,y, \qquad \kappa(\eta) = \kappa_0 + K(\eta^* - \eta), \qquad \kappa_0 = \frac{1 - e}{1 + e}$$

In flight $\eta$ is constant, so the paddle's speed is $\dot r = -\kappa\,\dot y$. The domain is where the ball is above the
paddle, $y \ge r$. They meet at $y = 0$, with restitution:

$$\dot y^+ = -e\,\dot y^- + (1 + e)\,\dot r = -\big(e + (1 + e)\,\kappa(\eta)\big)\,\dot y^-$$

which returns the ball with the speed it came with where $\kappa = \kappa_0$, so $\eta = \eta^*$. The stride goes from apex
to apex. The juggle has the period $2\sqrt{2h/g}$ and the multipliers $1 - 2(1 + e)Kgh$ and 0: it is stable for
$0 < K < 1/((1 + e)gh)$, and doubles its period beyond. The law uses the ball's present state only, neither a clock nor a model
of the flight.

Source: Buehler, Koditschek, Kindlmann (1994), *Planning and control of robotic juggling and catching tasks*, Int. J. Robot.
Res. 13, 101-118, the mirror law for one degree of freedom.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import disc, parameter, require

title = "Paddle juggler"
source = "Buehler, Koditschek, Kindlmann, Int. J. Robot. Res. 13 (1994)"


class Params(Shown):
    """Ball, desired apex, and the paddle's gain."""

    restitution: Float[Array, ""] = parameter(0.7, "1", "coefficient of restitution e")
    apex: Float[Array, ""] = parameter(0.5, "m", "height h of the desired apex, above the impact")
    gain: Float[Array, ""] = parameter(0.04, "s^2/m^2", "gain K of the mirror law on the ball's energy")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "acceleration of gravity g")

    def __check_init__(self):
        require(self, at_most_one="restitution", positive="apex gravity")


def fall(t, x, params):
    _, y_rate = x
    return jnp.stack([y_rate, -params.gravity])


def mirror(x, params):
    """The ratio of the paddle's displacement to the ball's."""
    y, y_rate = x
    lacking = params.gravity * (params.apex - y) - y_rate**2 / 2
    return (1 - params.restitution) / (1 + params.restitution) + params.gain * lacking


def gap(t, x, params):
    y, _ = x
    return y + mirror(x, params) * y


def hit(t, x, params):
    y, y_rate = x
    paddle_rate = -mirror(x, params) * y_rate
    return jnp.stack([y, -params.restitution * y_rate + (1 + params.restitution) * paddle_rate])


def climb_rate(t, x, params):
    return x[1]


def turn(t, x, params):
    y, y_rate = x
    return jnp.stack([y, jnp.zeros_like(y_rate)])


coordinates = ("y", "y_rate")
units, time_unit = ("m", "m/s"), "s"
flight = Mode(fall, coordinates, domain=gap, units=units)
system = HybridSystem(
    modes={"down": flight, "up": flight},
    transitions=(
        Transition("down", "up", guard=gap, reset=hit),
        Transition("up", "down", guard=climb_rate, reset=turn),
    ),
    time_unit=time_unit,
)
sequence = ("down", "up")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """At the apex, a little too high."""
    return jnp.stack([1.2 * params.apex, jnp.zeros_like(params.apex)])


def region(params):
    """At the apex, up to four times the desired height."""
    zero = jnp.zeros_like(params.apex)
    return jnp.stack([0.01 * params.apex, zero]), jnp.stack([4 * params.apex, zero])


def start(params):
    """`(mode, x)`: the ball dropped from half the desired height."""
    return "down", jnp.stack([params.apex / 2, jnp.zeros_like(params.apex)])


scenery = ("floor",)


def outline(mode, x, params):
    """Paddle and ball above the floor, in m."""
    y, _ = x
    paddle, wide = -mirror(x, params) * y, 0.2 * params.apex
    radius = wide / 5
    return {
        "ball": disc(jnp.stack([jnp.zeros_like(y), y + radius]), radius),
        "paddle": jnp.stack([jnp.stack([-wide, paddle]), jnp.stack([wide, paddle])]),
        "floor": jnp.stack([-params.apex, -0.4 * params.apex, params.apex, -0.4 * params.apex]).reshape(2, 2),
    }
