r"""A frame that sticks to the ground until it is struck from within: a stick-slip microactuator with impact.

A mass in a frame of $m = 5$ times its mass; $q$ is its displacement relative to the frame, which holds it by a spring and a
damper. A voltage of amplitude $V$ attracts it, more the nearer it comes. While the frame **sticks**, with the phase $\varphi$,

$$\ddot q = F, \qquad F = \frac{V^2\sin^2\varphi}{(1 - q)^2} - c\dot q - q, \qquad \dot\varphi = \omega$$

At $q = d = 1/2$ the mass strikes the frame, with restitution $e$. Momentum passes to the frame, which **slips** with speed $s$
against a friction that would slow it alone by $n$:

$$s^+ = s^- + \tfrac{1 + e}{1 + m}\,\dot q^-, \quad \dot q^+ = -e\,\dot q^-; \qquad\qquad
  \dot s = -n - \tfrac1m F, \qquad \ddot q = F - \dot s$$

until $s$ falls to zero. So the modes have three states and four. The force repeats itself after half a turn of the phase,
which starts anew at $-\pi/2$ where it comes to $\pi/2$.

The mode `stick` ends with the period of the force. In the mode `advance`, which follows, the mass strikes the frame (then
`slip`) or turns back before (then `stick`, at a section where no coordinate jumps). Without impact the sequence is
`("stick", "advance")`, with one impact `("stick", "advance", "slip")`; between the two the orbit grazes, $q = d$ and
$\dot q = 0$. `slip again` follows a second impact during slip. It is assumed that friction holds the frame until the mass strikes
it, $|F| < mn$, and that the mass leaves the stop: if the voltage held it there, the impacts would accumulate. The domains are
$q \le d$ and $\varphi \le \pi/2$; in `stick` and `advance` also $|F| \le mn$, while the frame slips also $s \ge 0$.

Source: Dankowicz, Schilder (2013), *Recipes for Continuation*, SIAM, Examples 9.3 and 9.4, the example `stickslip` of COCO's
toolbox for hybrid systems, with its values; Zhao, Dankowicz, Reddy, Nayfeh (2004), *Modeling and simulation methodology for
impact microactuators*, J. Micromech. Microeng. 14, 775-784, for the device.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import sin
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from ._common import box, parameter, refuse_unless, require, spring

title = "Impact microactuator"
source = "Dankowicz, Schilder, Recipes for Continuation, SIAM (2013)"


class Params(Shown):
    """Voltage, damper, friction and stop; lengths in the gap of the capacitor, time in that of the linear oscillator."""

    voltage: Float[Array, ""] = parameter(0.59, "1", "amplitude V of the voltage")
    damping: Float[Array, ""] = parameter(0.04, "1", "damping c")
    friction: Float[Array, ""] = parameter(3.17, "1", "deceleration n of the frame by friction")
    frequency: Float[Array, ""] = parameter(0.92, "1", "angular frequency omega of the voltage")
    restitution: Float[Array, ""] = parameter(0.8, "1", "coefficient of restitution e")
    stop: Float[Array, ""] = parameter(0.5, "1", "displacement q at which the mass strikes the frame")
    mass_ratio: Float[Array, ""] = parameter(5.0, "1", "mass m of the frame in units of the inner one")

    def __check_init__(self):
        require(self, positive="friction frequency stop mass_ratio")
        refuse_unless(self.stop < 1, f"stop={self.stop} must be less than 1, where the plates of the capacitor touch.")
        require(self, at_most_one="restitution")


def force(q, q_rate, phase, params):
    return (params.voltage * sin(phase) / (1 - q)) ** 2 - params.damping * q_rate - q


def stick(t, x, params):
    q, q_rate, phase = x
    return jnp.stack([q_rate, force(q, q_rate, phase, params), params.frequency])


def slip(t, x, params):
    _, q, q_rate, phase = x
    inner = force(q, q_rate, phase, params)
    s_rate = -params.friction - inner / params.mass_ratio
    return jnp.stack([s_rate, q_rate, inner - s_rate, params.frequency])


# The last three states are the same in both modes.


def gap(t, x, params):
    return params.stop - x[-3]


def q_rate(t, x, params):
    return x[-2]


def rest_of_period(t, x, params):
    return jnp.pi / 2 - x[-1]


def speed(t, x, params):
    return x[0]


def frame_holds(t, x, params):
    q, q_rate, phase = x
    spare = params.mass_ratio * params.friction - jnp.abs(force(q, q_rate, phase, params))
    return jnp.stack([gap(t, x, params), rest_of_period(t, x, params), spare])


def frame_slips(t, x, params):
    return jnp.stack([gap(t, x, params), rest_of_period(t, x, params), speed(t, x, params)])


def strike(t, x, params):
    q, q_rate, phase = x
    return strike_again(t, jnp.stack([jnp.zeros_like(q), q, q_rate, phase]), params)


def strike_again(t, x, params):
    s, q, q_rate, phase = x
    e = params.restitution
    return jnp.stack([s + (1 + e) / (1 + params.mass_ratio) * q_rate, q, -e * q_rate, phase])


def period_restarts(t, x, params):
    return x.at[-1].set(-jnp.pi / 2)


def comes_to_rest(t, x, params):
    return x[1:]


coordinates = ("q", "q_rate", "phase")
units, time_unit = ("1", "1", "rad"), "1"
sticking = Mode(stick, coordinates, domain=frame_holds, units=units)
slipping = Mode(slip, ("frame_rate", *coordinates), domain=frame_slips, units=("1", *units))
system = HybridSystem(
    modes={"stick": sticking, "advance": sticking, "slip": slipping, "slip again": slipping},
    transitions=(
        Transition("stick", "advance", guard=rest_of_period, reset=period_restarts),
        Transition("stick", "slip", guard=gap, reset=strike),
        Transition("advance", "stick", guard=q_rate, reset=unchanged),
        Transition("advance", "slip", guard=gap, reset=strike),
        Transition("advance", "advance", guard=rest_of_period, reset=period_restarts),
        Transition("slip", "stick", guard=speed, reset=comes_to_rest),
        Transition("slip", "slip again", guard=gap, reset=strike_again),
        Transition("slip", "slip", guard=rest_of_period, reset=period_restarts),
        Transition("slip again", "stick", guard=speed, reset=comes_to_rest),
        Transition("slip again", "slip", guard=gap, reset=strike_again),
        Transition("slip again", "slip again", guard=rest_of_period, reset=period_restarts),
    ),
    time_unit=time_unit,
)
sequence = ("stick", "advance", "slip")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Near the orbit with one impact, at the source's values, as a function of the voltage above that of grazing."""
    excess = jnp.maximum(params.voltage - 0.5875, 0)
    return jnp.stack([params.stop - 0.29 * excess**2, -1.14 * excess, -0.0095 - 0.78 * excess])


def region(params):
    """Near the stop, on the way back, as the voltage passes zero."""
    zero = jnp.zeros_like(params.voltage)
    low = jnp.stack([0.4 * params.stop, zero - 0.3, zero - 0.3])
    return low, jnp.stack([params.stop, zero, zero + 0.1])


def start(params):
    """`(mode, x)`: the spring relaxed, at rest, as the voltage rises."""
    return "stick", jnp.zeros(3, params.voltage.dtype)


scenery = ("frame", "ground")


def outline(mode, x, params):
    """Mass and spring inside the frame, relative to the frame, and the ground."""
    q = x[-3]
    one = jnp.ones_like(q)
    size = 0.3 * one
    mass = jnp.stack([q - size / 2, 0 * one])
    side = jnp.stack([-1.2 * one, 0 * one])
    ground = jnp.stack([jnp.stack([-2.0 * one, -0.4 * one]), jnp.stack([1.5 * one, -0.4 * one])])
    return {
        "mass": box(mass, size, size),
        "spring": spring(side, mass - jnp.stack([size / 2, 0 * one]), 6, 0.25 * size),
        "frame": box(jnp.stack([(params.stop - 1.2) / 2, 0 * one]), params.stop + 1.2, 0.8 * one),
        "ground": ground,
    }
