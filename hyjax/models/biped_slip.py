r"""A biped that walks, runs, hops and skips on two springy legs: a conservative system, whose gaits come in families.

Lengths in $l_0$, time in $\sqrt{l_0/g}$, forces in $mg$. The legs have no mass; $\alpha_i$ is the angle of a leg to the vertical,
positive with the foot ahead. A leg that stands has its foot at rest, $x + y\tan\alpha_i$ constant, and pushes with $F_i =
k(1 - y/\cos\alpha_i)$; a leg in the air swings about the accelerated hip:

$$\ddot x = -\sum F_i\sin\alpha_i, \qquad \ddot y = \sum F_i\cos\alpha_i - 1, \qquad
\ddot\alpha_i = -\ddot x\cos\alpha_i - (\ddot y + 1)\sin\alpha_i - \omega^2(\alpha_i - \bar\alpha_i)$$

A leg lands, and lifts off, at its own length, $y = \cos\alpha_i$; it lands only while it is ahead of the hip: just after lift-off
the swing foot passes through the ground. Its rate at the landing is lost, and with it one multiplier is zero; as the leg has no
mass, no energy is. Which legs stand is held. The `energy` $\tfrac12(\dot x^2 + \dot y^2) + y + \tfrac12 k\sum(1 -
y/\cos\alpha_i)^2$, over the legs that stand, is conserved: give it to `periodic_orbit(..., conserved=energy)`.

A pass of the map is one step after another to the section $\dot y = 0$, where the mass is highest; the default gait is a walk,
of two passes, the second of which mirrors the first. For the default legs the family of the walk leads from the swap with runs,
at the energy 1.650, past a fold at 1.037 to 1.042, where the lift-off of the leg that stands grazes at midstance. Below 1.095
the mass is no longer highest in double support: there take a section at midstance.

Source: Gan, Yesilevskiy, Zaytsev, Remy (2018), *All common bipedal gaits emerge from a single passive model*, J. R. Soc.
Interface 15, 20180455.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from ._common import disc, ground as ground, parameter, require
from ._springy_legs import Hips, SpringyLegs

title = "Biped on springy legs"
source = "Gan, Yesilevskiy, Zaytsev, Remy, J. R. Soc. Interface 15 (2018)"


class Params(Shown):
    """Two legs of one stiffness."""

    stiffness: Float[Array, ""] = parameter(20.0, "m g/l", "stiffness k of a leg", (10.0, 60.0))
    frequency: Float[Array, ""] = parameter(6.5, "sqrt(g/l)", "omega, of a leg that swings", (4.0, 10.0))
    left_angle: Float[Array, ""] = parameter(0.0, "rad", "angle at which the spring of the left hip is at rest")
    right_angle: Float[Array, ""] = parameter(0.0, "rad", "angle at which the spring of the right hip is at rest")

    def __check_init__(self):
        require(self, positive="stiffness frequency")


def hips(x):
    x_rate, y, y_rate = (jnp.broadcast_to(x[k], 2) for k in range(3))
    return Hips(y, x_rate, y_rate)


legs = SpringyLegs(2, 3, hips)


def move(t, x, params):
    x_rate, y, y_rate = x[:3]
    angles, rates, stand = legs.parts(x)
    forces = legs.forces(x, params.stiffness)
    push, lift = (jnp.sum(each) for each in forces)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    neutral = jnp.stack([params.left_angle, params.right_angle])
    swing = -push * cosine - lift * sine - params.frequency**2 * (angles - neutral)
    turn = legs.standing_rates(x)
    # The derivative of this rate.
    bend = (2 * turn * (x_rate * sine - y_rate * cosine) - push * cosine - (lift - 1) * sine) * cosine / y
    mass = jnp.stack([push, y_rate, lift - 1])
    return jnp.concatenate([mass, jnp.where(stand, turn, rates), jnp.where(stand, bend, swing)])


def height(t, x, params):
    return x[1]


def energy(t, x, params):
    """The conserved energy, in m g l, from the ground."""
    return (x[0] ** 2 + x[2] ** 2) / 2 + x[1] + legs.spring_energy(x, params.stiffness)


conserved = energy


def climb_rate(t, x, params):
    return x[2]


body = ("x_rate", "y", "y_rate")
time_unit = "sqrt(l/g)"
system = legs.system(move, body, ("left", "right"), ("sqrt(g l)", "l", "sqrt(g l)"), time_unit, height)
(gait,) = system.modes.values()
coordinates, units = gait.coordinates, gait.units
step = ReturnMap(system, section=Section("gait", climb_rate), strides=2)
sequence = ()


def guess(params):
    """A walk at the energy 1.1614, both feet on the ground, for the default legs; from which others are continued."""
    back, rate = -0.25896512493104081, -0.63482136904766651
    return jnp.array([0.64237177144866153, 0.94553665466488451, 0.0, back, -back, rate, rate, 1.0, 1.0])


def start(params):
    """`(mode, x)`: the walk."""
    return "gait", guess(params)


def forces(mode, x, params):
    """The vertical forces of the legs."""
    return legs.forces(x, params.stiffness)[1]


def outline(mode, x, params):
    """Legs and body, in leg lengths, seen by an observer who moves along; the origin is on the ground."""
    centre = jnp.stack([jnp.zeros_like(x[1]), x[1]])
    left, right = legs.lines(x, jnp.zeros(2))
    return {"left leg": left, "right leg": right, "body": disc(centre, 0.08)}
