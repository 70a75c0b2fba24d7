r"""The powered walker: the simplest walker with a spring at the hip and a push-off along the trailing leg.

$\theta$ is the angle of the stance leg to the slope's normal, $\phi$ that between the legs; time is in $\sqrt{l/g}$. A spring
of stiffness $k$ between the legs moves the swing leg, whose foot's mass vanishes, and not the stance leg:

$$\ddot\theta = \sin(\theta - \gamma), \qquad
  \ddot\phi = \sin(\theta - \gamma) + (\dot\theta^2 - \cos(\theta - \gamma))\sin\phi - k\phi$$

The swing foot strikes when $2\theta - \phi$ falls to zero. Just before it does, an impulse $P$ along the trailing leg pushes
off, which speeds the hip up along the new stance leg's circle by $P\sin|2\theta|$:

$$\theta^+ = -\theta, \quad \dot\theta^+ = \cos 2\theta\,\dot\theta + P\sin 2\theta, \quad \phi^+ = -2\theta, \quad
  \dot\phi^+ = (1 - \cos 2\theta)\,\dot\theta^+$$

With $P = k = 0$ it is the simplest walker. On level ground the stance leg conserves its energy, so a gait of one step has
$\dot\theta^+ = \dot\theta^-$ and $P = -\dot\theta\tan\theta$: the work of the push-off, $P^2/2$, is what the strike loses. A
strike without push-off loses $\tfrac12\dot\theta^2\sin^2 2\theta$, which the hip would have to restore: $4\cos^4\theta$ times
as much work at the same speed.

A walker has fallen, and left the domain, when its hip is on the ground: $\cos\theta \ge 0$.

Source: Kuo (2002), *Energetics of actively powered locomotion using the simplest walking model*, J. Biomech. Eng. 124, 113-120.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import sin, sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from . import simplest_walker
from ._common import parameter, require, require_sequence, require_slope
from .simplest_walker import after_strike, foot_height, hip_height

title = "Powered walker"
source = "Kuo, J. Biomech. Eng. 124 (2002)"


class Params(Shown):
    """Ground, spring and push-off; the defaults are a gait on level ground with the step length and frequency of a person."""

    slope: Float[Array, ""] = parameter(0.0, "rad", "slope of the ground, downhill positive", (-0.02, 0.05))
    stiffness: Float[Array, ""] = parameter(
        2.512477760885756, "g/l", "stiffness k of the hip's spring over foot mass l^2"
    )
    push_off: Float[Array, ""] = parameter(0.1873798580048398, "m sqrt(g l)", "impulse P along the trailing leg")

    def __check_init__(self):
        require_slope(self)
        require(self, nonnegative="stiffness push_off")


def swing(t, x, params):
    theta, theta_rate, phi, phi_rate = x
    sin_theta, cos_theta = sincos(theta - params.slope)
    phi_accel = sin_theta + (theta_rate**2 - cos_theta) * sin(phi) - params.stiffness * phi
    return jnp.stack([theta_rate, sin_theta, phi_rate, phi_accel])


def heel_strike(t, x, params):
    theta, theta_rate, _, _ = x
    sine, cosine = sincos(2 * theta)
    after = cosine * theta_rate + params.push_off * sine
    return jnp.stack([-theta, after, -2 * theta, (1 - cosine) * after])


coordinates, units, time_unit = simplest_walker.coordinates, simplest_walker.units, simplest_walker.time_unit
ground, outline, travel = simplest_walker.ground, simplest_walker.outline, simplest_walker.travel
outcomes = simplest_walker.outcomes
system = HybridSystem(
    modes={"swing": Mode(swing, coordinates, domain=hip_height, units=units)},
    transitions=(Transition("swing", "swing", guard=foot_height, reset=heel_strike),),
    time_unit=time_unit,
)
sequence = ("swing",)
step = ReturnMap(system, sequence=sequence)


def small_step(slope, stiffness, push_off):
    r"""The longer of the two gaits of small steps, as `(theta, theta_rate)` just after the strike.

    A linear swing leg, from $\phi = 2\theta$ at rest to $-2\theta$ with $w^2 = 1 + k$, takes the time $T$ with
    $\tan(wT/2) = -(2w^2 + 1)w\tau$, $\tau = \tanh(T/2)$; the other gait has $wT = \pi$. A linear stance leg has
    $\dot\theta = -\theta/\tau + \gamma\tau$, and the strike's balance is $\theta\,(\theta\tan\theta - P\tau) = \gamma\tau^2$:
    instead of solving it, the cubes of its solutions for $\gamma = 0$ and for $P = 0$ are added.
    """
    w = jnp.sqrt(1 + stiffness)
    half = jnp.pi / (2 * w)
    for _ in range(3):  # contracts by a factor of ten or more
        half = (jnp.pi - jnp.arctan((2 * w**2 + 1) * w * jnp.tanh(half))) / w
    tau = jnp.tanh(half)
    theta = jnp.cbrt(jnp.maximum((push_off * tau) ** 1.5 + slope * tau**2, 0.0))
    theta = theta / jnp.sqrt(1 + theta**2 / 3)  # the angle whose product with its tangent is theta^2, nearly
    return theta, slope * tau - theta / tau


def guess(params):
    """Near the long gait, from the equations of small steps: on level ground within 1 %, for push-offs to 0.3 and stiffnesses
    to 16."""
    return after_strike(params, *small_step(params.slope, params.stiffness, params.push_off))


def start(params):
    """`(mode, x)`: just after a heel strike, near the long gait."""
    return "swing", guess(params)


def around(theta, theta_rate):
    """The box of states just after the strike, with 0.7 to 1.3 times this angle and rate."""
    low = jnp.stack([0.7 * theta, 1.3 * theta_rate, 1.4 * theta, 0.5 * theta_rate])
    return low, jnp.stack([1.3 * theta, 0.7 * theta_rate, 2.6 * theta, -0.1 * theta_rate])


def region(params):
    """Just after the heel strike: stance leg leaning back and moving forward, by 0.7 to 1.3 times the guess."""
    return around(*small_step(params.slope, params.stiffness, params.push_off))


# The plane of initial states for a basin of attraction: steps up to that of Kuo's gait and half as long again.
plane = {"theta": (0.0, 0.6), "theta_rate": (-0.8, 0.0)}
on_section = after_strike


def cost_of_steps(orbit, params):
    """`cost_of_transport` of an orbit whose nodes are the states just after its heel strikes."""
    lengths = 2 * jnp.sin(orbit.nodes[:, 0])
    return orbit.strides * params.push_off**2 / (2 * jnp.sum(lengths))


def cost_of_transport(orbit, params):
    r"""The work of the push-off over weight and distance, $P^2 / (2 s)$ with the step length $s = 2\sin\theta$."""
    require_sequence(orbit, sequence, "cost_of_transport")
    return cost_of_steps(orbit, params)


objectives = {"cost_of_transport": cost_of_transport}
