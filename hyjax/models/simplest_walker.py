r"""The simplest walker: two legs, a point mass at the hip, feet of vanishing mass, down a slope.

$\theta$ is the angle of the stance leg to the slope's normal, $\phi$ that between the legs; time is in $\sqrt{l/g}$:

$$\ddot\theta = \sin(\theta - \gamma), \qquad
  \ddot\phi = \sin(\theta - \gamma) + (\dot\theta^2 - \cos(\theta - \gamma))\sin\phi$$

The swing foot strikes when $2\theta - \phi$ falls to zero. At mid-stance it scuffs the ground: there $2\theta - \phi$
*rises* through zero, which is no event.

$$\theta^+ = -\theta, \quad \dot\theta^+ = \cos 2\theta\,\dot\theta, \quad \phi^+ = -2\theta, \quad
  \dot\phi^+ = (1 - \cos 2\theta)\cos 2\theta\,\dot\theta$$

A walker has fallen, and left the domain, when its hip is on the ground: $\cos\theta \ge 0$.

Source: Garcia, Chatterjee, Ruina, Coleman (1998), *The simplest walking model*, J. Biomech. Eng. 120, 281-288, eqs. 1-4;
Bhounsule (2014), eq. 22.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sin, sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import parameter, require_slope

title = "Simplest walker"
source = "Garcia, Chatterjee, Ruina, Coleman, J. Biomech. Eng. 120 (1998); Bhounsule, DCDIS-B 21 (2014)"


class Params(Shown):
    """The only parameter of the model."""

    slope: Float[Array, ""] = parameter(0.009, "rad", "slope of the ground, downhill positive", (0.001, 0.02))

    def __check_init__(self):
        require_slope(self)


def swing(t, x, params):
    theta, theta_rate, phi, phi_rate = x
    sin_theta, cos_theta = sincos(theta - params.slope)
    phi_accel = sin_theta + (theta_rate**2 - cos_theta) * sin(phi)
    return jnp.stack([theta_rate, sin_theta, phi_rate, phi_accel])


def foot_height(t, x, params):
    theta, _, phi, _ = x
    return 2 * theta - phi


def hip_height(t, x, params):
    return cos(x[0])


def heel_strike(t, x, params):
    theta, theta_rate, _, _ = x
    cosine = cos(2 * theta)
    return jnp.stack([-theta, cosine * theta_rate, -2 * theta, (1 - cosine) * cosine * theta_rate])


coordinates = ("theta", "theta_rate", "phi", "phi_rate")
units, time_unit = ("rad", "rad sqrt(g/l)", "rad", "rad sqrt(g/l)"), "sqrt(l/g)"
system = HybridSystem(
    modes={"swing": Mode(swing, coordinates, domain=hip_height, units=units)},
    transitions=(Transition("swing", "swing", guard=foot_height, reset=heel_strike),),
    time_unit=time_unit,
)
sequence = ("swing",)
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Near the long gait: the step grows with the cube root of the slope (Garcia et al., Sec. 4)."""
    theta = 0.97 * jnp.cbrt(jnp.abs(params.slope))
    return jnp.stack([theta, -theta, 2 * theta, -theta * (1 - jnp.cos(2 * theta))])


def start(params):
    """`(mode, x)`: just after a heel strike, near the long gait."""
    return "swing", guess(params)


def region(params):
    """Just after the heel strike: stance leg leaning back and moving forward, by 0.7 to 1.3 times `slope^(1/3)`. At a slope of
    0.009 the angles of the two gaits are 0.93 and 0.96 times that."""
    theta = jnp.cbrt(jnp.abs(params.slope))
    low = jnp.stack([0.7 * theta, -1.3 * theta, 1.4 * theta, -0.5 * theta])
    return low, jnp.stack([1.3 * theta, -0.7 * theta, 2.6 * theta, 0.1 * theta])


def after_strike(params, theta, theta_rate):
    """The state just after a heel strike with these values; the reset determines the other two coordinates."""
    return jnp.stack([theta, theta_rate, 2 * theta, (1 - cos(2 * theta)) * theta_rate])


# The plane of initial states for a basin of attraction, and the guards that end the motion: the stance leg lies on the slope.
plane = {"theta": (0.0, 0.45), "theta_rate": (-0.45, 0.0)}
on_section = after_strike
outcomes = {
    "fell forward": lambda t, x, params: x[0] + jnp.pi / 2,
    "fell backward": lambda t, x, params: jnp.pi / 2 - x[0],
}


def outline(mode, x, params):
    """The legs as a polyline from the stance foot over the hip to the swing foot, in leg lengths; `x` along the slope."""
    theta, _, phi, _ = x
    foot = jnp.zeros(2)
    hip = jnp.stack([-jnp.sin(theta), jnp.cos(theta)])
    swing_foot = hip + jnp.stack([-jnp.sin(phi - theta), -jnp.cos(phi - theta)])
    return {"stance leg": jnp.stack([foot, hip]), "swing leg": jnp.stack([hip, swing_foot]), "hip": hip[None]}


def travel(mode, x, params):
    """The vector from the stance foot to the next stance foot, at the heel strike."""
    return outline(mode, x, params)["swing leg"][1]


def ground(params):
    """The angle by which the ground falls to the right, rad."""
    return params.slope
