r"""The ball on a slope: a point mass falls onto an inclined plane, bounces, slides or sticks.

The plane falls to the right by $\theta$. The gap $g = q_1\sin\theta + q_2\cos\theta$ is positive above the plane, and
$s = \dot q_1\cos\theta - \dot q_2\sin\theta$ is the slip:

$$m\ddot q_1 = u_1, \qquad m\ddot q_2 = u_2 - m a_g$$

In contact a normal force and friction are added, in an impact their impulses. Without friction the ball slides with the
acceleration $a_g\sin\theta$, with kinetic friction $\mu_k$ with $a_g(\sin\theta - \mu_k\cos\theta)$; it sticks if
$\tan\theta < \mu_s$ and the impact has stopped the slip. A frictionless plastic impact removes the velocity along
$(\sin\theta, \cos\theta)$; an impact into sticking removes the whole velocity.

Source: Kong, Payne, Zhu, Johnson (2024), Sec. IV, eqs. 41-58, for plastic impacts.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from ..contact import Contact, contact_system, Mechanism
from ._common import disc, parameter, refuse_unless, require, require_slope

title = "Ball on a slope"
source = "Kong, Payne, Zhu, Johnson, Proc. IEEE (2024), Sec. IV"


class Params(Shown):
    """Ball, slope and contact."""

    slope: Float[Array, ""] = parameter(0.3, "rad", "slope theta, falling to the right")
    static_friction: Float[Array, ""] = parameter(0.25, "1", "coefficient of static friction mu_s")
    kinetic_friction: Float[Array, ""] = parameter(0.2, "1", "coefficient of kinetic friction mu_k")
    restitution: Float[Array, ""] = parameter(0.0, "1", "coefficient of restitution e; 0 is plastic")
    settle: Float[Array, ""] = parameter(0.01, "m/s", "a slower impact is plastic")
    mass: Float[Array, ""] = parameter(1.0, "kg", "mass m")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "acceleration of gravity a_g")
    push_1: Float[Array, ""] = parameter(0.0, "N", "horizontal input u_1")
    push_2: Float[Array, ""] = parameter(0.0, "N", "vertical input u_2")

    def __check_init__(self):
        require_slope(self)
        refuse_unless(
            (self.kinetic_friction >= 0) & (self.static_friction >= self.kinetic_friction),
            f"static_friction={self.static_friction} must be at least kinetic_friction={self.kinetic_friction} >= 0.",
        )
        require(self, at_most_one="restitution", positive="mass")


def mass(q, params):
    return params.mass * jnp.eye(2, dtype=q.dtype)


def forces(t, q, v, params):
    return jnp.stack([params.push_1, params.push_2 - params.mass * params.gravity])


def height(t, q, params):
    sine, cosine = sincos(params.slope)
    return sine * q[0] + cosine * q[1]


def slip(t, q, v, params):
    sine, cosine = sincos(params.slope)
    return cosine * v[0] - sine * v[1]


coordinates = ("q1", "q2", "q1_rate", "q2_rate")
units, time_unit = ("m", "m", "m/s", "m/s"), "s"
system = contact_system(
    Mechanism(mass, forces),
    Contact(
        height,
        slip,
        restitution=lambda params: params.restitution,
        static=lambda params: params.static_friction,
        kinetic=lambda params: params.kinetic_friction,
        settle=lambda params: params.settle,
    ),
    coordinates=("q1", "q2"),
    units=units,
    time_unit=time_unit,
)
# There is no periodic orbit: the ball loses energy, or accelerates downhill.
sequence = ()


def rise(t, x, params):
    """The velocity away from the plane, m/s."""
    sine, cosine = sincos(params.slope)
    return sine * x[2] + cosine * x[3]


# From the highest point of a bounce above the plane to the next.
step = ReturnMap(system, section=Section("U", rise))


def start(params):
    """`(mode, x)`: thrown uphill, 1 m above the plane."""
    sine, cosine = sincos(params.slope)
    return "U", jnp.stack([sine, cosine, -2 * cosine, 2 * sine])


scenery = ("slope",)


def outline(mode, x, params):
    """Ball and plane, in m, on level ground."""
    sine, cosine = sincos(params.slope)
    along = jnp.stack([cosine, -sine])
    return {"ball": disc(x[:2] + 0.05 * jnp.stack([sine, cosine]), 0.05), "slope": jnp.stack([-3 * along, 5 * along])}
