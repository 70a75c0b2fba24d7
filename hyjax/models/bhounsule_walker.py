r"""Bhounsule's powered walker: a compass gait on level ground with a hip torque that is piecewise linear in time, and a push-off.

The mechanics are those of the powered compass gait, without spring and damper. Over a step of the nominal duration $T$ the
torque on the swing leg, whose reaction is on the stance leg, joins the values $u_0, \dots, u_4$ at the times
$0, T/4, \dots, T$ by straight lines. With $\tau$, the time since the last strike, as a state, in the quarter $j$:

$$u = u_j + (u_{j+1} - u_j)\left(\frac{4\tau}{T} - j\right), \qquad \dot\tau = 1$$

The leg swings forward until the strike, and does not retract. Its foot, as that of every walker without knees, goes below the
ground where the legs pass; it strikes where it comes up to the ground, at $\theta_s + \theta_n = 0$ with $\theta_s < \theta_n$.
So the guard is $-\theta_s - \theta_n$, the opposite of the compass gait's, whose foot strikes from above.

The torque's kinks are events, so that no step of the solver meets one: each quarter is a mode, left at $\tau = (j + 1)\,T/4$ for
the next one, and left by a heel strike for the first one, which restarts the clock. The last quarter has no other end: until a
strike later than $T$ its line goes on. One multiplier is zero because the strike resets the clock, one because both
legs are on the ground.

The default values are the gait with step length $2l\sin\tfrac12(\theta_n - \theta_s) = l/2$ at the strike and speed 1,
$T = 1/2$, that minimizes

$$P^2 + \frac T4\sum_{j=0}^4 u_j^2 = 0.642033730$$

They are given with eight digits, so that its step length and duration are 1/2 to $3\cdot10^{-9}$. At speed 0.8, $T = 5/8$, the
minimum is 0.330221223. The published digits come from a Runge-Kutta method with 40 steps between nodes, whose minima lie
$1.7\cdot10^{-10}$ and $1.0\cdot10^{-10}$ above the exact ones. The gait is unstable, with a multiplier of $-2.71$.

Source: P. A. Bhounsule, for the values and the torque's form; Goswami, Thuilot, Espiau (1998), *A study of the passive gait of a
compass-like biped robot*, IJRR 17, for the mechanics.
"""

import functools as ft

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from . import compass_gait, powered_compass_gait
from ._common import ground as ground, parameter, require
from .powered_compass_gait import require_legs

title = "Bhounsule's powered walker"
source = "Bhounsule; Goswami, Thuilot, Espiau, IJRR 17 (1998)"


class Params(Shown):
    """Push-off and torque, masses and lengths; the defaults are a gait of speed 1 with steps of half a leg's length."""

    push_off: Float[Array, ""] = parameter(0.31399306, "N s or 1", "impulse P along the trailing leg")
    torque_0: Float[Array, ""] = parameter(0.89908475, "N m or 1", "torque on the swing leg just after the strike")
    torque_1: Float[Array, ""] = parameter(1.47450424, "N m or 1", "torque after a quarter of the step")
    torque_2: Float[Array, ""] = parameter(1.01322396, "N m or 1", "torque after half the step")
    torque_3: Float[Array, ""] = parameter(0.56570464, "N m or 1", "torque after three quarters of the step")
    torque_4: Float[Array, ""] = parameter(0.1355583, "N m or 1", "torque at the end of the step")
    step_time: Float[Array, ""] = parameter(0.5, "s or 1", "nominal duration T of a step")
    hip_mass: Float[Array, ""] = parameter(1.0, "kg or 1", "mass M of the hip")
    leg_mass: Float[Array, ""] = parameter(0.5, "kg or 1", "mass m of a leg")
    inertia: Float[Array, ""] = parameter(0.02, "kg m^2 or 1", "moment of inertia I of a leg about its centre of mass")
    com: Float[Array, ""] = parameter(0.5, "m or 1", "distance c of a leg's centre of mass from the hip")
    leg_length: Float[Array, ""] = parameter(1.0, "m or 1", "leg length l")
    gravity: Float[Array, ""] = parameter(1.0, "m/s^2 or 1", "acceleration of gravity g; 1 for dimensionless time")

    def __check_init__(self):
        require_legs(self)
        require(self, positive="step_time")


def torques(params):
    """The torques at the five nodes."""
    return params.torque_0, params.torque_1, params.torque_2, params.torque_3, params.torque_4


def hip_torque(quarter, t, x, params):
    """The torque on the swing leg, in N m or 1."""
    begin, end = torques(params)[quarter : quarter + 2]
    return begin + (end - begin) * (4 * x[4] / params.step_time - quarter)


def hip_power(quarter, t, x, params):
    """The power of the torque on the legs, in W or 1."""
    return hip_torque(quarter, t, x, params) * (x[3] - x[2])


def swing(quarter, t, x, params):
    torque = hip_torque(quarter, t, x, params)
    return jnp.append(powered_compass_gait.move(x[:4], torque, params), jnp.ones_like(x[4]))


def rest_of_quarter(quarter, t, x, params):
    return (quarter + 1) * params.step_time / 4 - x[4]


def foot_depth(t, x, params):
    return -x[0] - x[1]


def foot_ahead(t, x, params):
    return x[0] < x[1]


def hip_height(t, x, params):
    return jnp.cos(x[0])


def stands(quarter, t, x, params):
    """The domain: the hip is above ground, and time of the quarter is left."""
    return jnp.stack([hip_height(t, x, params), rest_of_quarter(quarter, t, x, params)])


def heel_strike(t, x, params):
    """The heel strike of the powered compass gait; the clock restarts."""
    return jnp.append(powered_compass_gait.heel_strike(t, x[:4], params), jnp.zeros_like(x[4]))


coordinates = (*compass_gait.coordinates, "clock")
units, time_unit = (*compass_gait.units, "sqrt(l/g) or s"), compass_gait.time_unit
sequence = ("first", "second", "third", "fourth")
ends = tuple(ft.partial(rest_of_quarter, j) for j in range(3))
torque = {name: ft.partial(hip_torque, j) for j, name in enumerate(sequence)}
power = {name: ft.partial(hip_power, j) for j, name in enumerate(sequence)}
weight, impulsive_work = powered_compass_gait.weight, powered_compass_gait.impulsive_work
limits = (*(ft.partial(stands, j) for j in range(3)), hip_height)
system = HybridSystem(
    modes={
        name: Mode(ft.partial(swing, j), coordinates, domain=limits[j], units=units) for j, name in enumerate(sequence)
    },
    transitions=(
        *(Transition(sequence[j], sequence[j + 1], guard=ends[j], reset=unchanged) for j in range(3)),
        *(Transition(name, "first", guard=foot_depth, reset=heel_strike, armed=foot_ahead) for name in sequence),
    ),
    time_unit=time_unit,
)
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Near the gait of the default values."""
    rate = jnp.sqrt(params.gravity / params.leg_length)
    one = jnp.ones_like(rate)
    return jnp.stack([0.2527 * one, -0.2527 * one, -1.156 * rate, -1.038 * rate, 0 * one])


def start(params):
    """`(mode, x)`: just after a strike, near the gait of the default values."""
    return "first", guess(params)


def region(params):
    """Just after the heel strike: stance leg leaning back, swing leg behind it, both moving forward; the clock at zero."""
    rate = jnp.sqrt(params.gravity / params.leg_length)
    one = jnp.ones_like(rate)
    low = jnp.stack([0.1 * one, -0.5 * one, -2 * rate, -2 * rate, 0 * one])
    return low, jnp.stack([0.5 * one, -0.1 * one, -0.5 * rate, 0 * rate, 0 * one])


def outline(mode, x, params):
    """The legs, from the stance foot; lengths in leg lengths."""
    return compass_gait.outline(mode, x[:4], params)


def travel(mode, x, params):
    """The vector from the stance foot to the next: at a strike to the swing foot, and zero where a quarter ends."""
    step = outline(mode, x, params)["swing leg"][1]
    j = sequence.index(mode)
    if j == 3:
        return step
    strikes = jnp.abs(foot_depth(0.0, x, params)) < jnp.abs(rest_of_quarter(j, 0.0, x, params))
    return jnp.where(strikes, step, 0.0)


def effort(orbit, params):
    r"""The cost of a step that the default values minimize, $P^2 + \frac T4\sum_j u_j^2$."""
    squares = sum((torque**2 for torque in torques(params)), jnp.zeros_like(params.push_off))
    return params.push_off**2 + params.step_time / 4 * squares


objectives = {"effort": effort}
