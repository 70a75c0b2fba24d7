r"""A quadruped that pronks, bounds, trots and gallops on four springy legs: a conservative system, whose gaits come in families.

Lengths in $l_0$, time in $\sqrt{l_0/g}$, forces in $mg$. The trunk has the moment of inertia $J$ and the pitch $\varphi$; the
hips lie at $r_i = \mp\tfrac12$ along it, back and front. A leg at the angle $\alpha_i$ to the trunk's normal is at $\beta_i =
\alpha_i + \varphi$ to the vertical, and pushes, while it stands, with $F_i = k(1 - h_i/\cos\beta_i)$, $h_i$ the height of its
hip:

$$\ddot x = -\sum F_i\sin\beta_i, \qquad \ddot y = \sum F_i\cos\beta_i - 1, \qquad J\ddot\varphi = \sum F_i r_i\cos\alpha_i$$

$$\ddot\alpha_i = -\big(\ddot\varphi + r_i(\ddot\varphi\sin\alpha_i - \dot\varphi^2\cos\alpha_i) + \ddot x\cos\beta_i +
(\ddot y + 1)\sin\beta_i + k_s\alpha_i\big)$$

for a leg in the air. Landing, lift-off, what is held and what is conserved are as of the biped (`biped_slip`). Legs that land
together, as all four of the pronk, commute, because they have no mass.

The default gait is a pronk, from one highest point to the next.

Source: Gan, Yesilevskiy, Zaytsev, Remy (2018), *All common bipedal gaits emerge from a single passive model*, J. R. Soc.
Interface 15, 20180455, for the model with two legs; Alqaham, Cheng, Gan (2022), arXiv:2209.05713, for that with four.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._numerics.fast import sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from ._common import ground as ground, parameter, require
from ._springy_legs import Hips, SpringyLegs

title = "Quadruped on springy legs"
source = "Gan, Yesilevskiy, Zaytsev, Remy, J. R. Soc. Interface 15 (2018), with four legs and a trunk"

# Of the back and the front leg of either side.
PLACES = np.array([-0.5, 0.5, -0.5, 0.5])


class Params(Shown):
    """Four legs of one stiffness, and the trunk."""

    stiffness: Float[Array, ""] = parameter(10.0, "m g/l", "stiffness k of a leg", (5.0, 40.0))
    swing_stiffness: Float[Array, ""] = parameter(20.0, "g/l", "k_s, of a leg that swings", (5.0, 60.0))
    inertia: Float[Array, ""] = parameter(2.0, "m l^2", "moment of inertia J of the trunk", (0.5, 4.0))

    def __check_init__(self):
        require(self, positive="stiffness swing_stiffness inertia")


def hips(x):
    x_rate, y, y_rate, pitch, pitch_rate = x[:5]
    sine, cosine = sincos(pitch)
    places = jnp.asarray(PLACES, x.dtype)
    turn = places * pitch_rate
    return Hips(y + places * sine, x_rate - turn * sine, y_rate + turn * cosine, pitch, pitch_rate)


legs = SpringyLegs(4, 5, hips)


def move(t, x, params):
    _, _, y_rate, pitch, pitch_rate = x[:5]
    angles, rates, stand = legs.parts(x)
    hip, places = hips(x), jnp.asarray(PLACES, x.dtype)
    pushes, lifts = legs.forces(x, params.stiffness)
    push, lift = jnp.sum(pushes), jnp.sum(lifts)
    # The force along a leg is (-sin, cos) of its angle to the vertical, and turns the trunk by its part across.
    across = lifts * jnp.cos(pitch) - pushes * jnp.sin(pitch)
    turning = jnp.sum(places * across) / params.inertia
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    up, along = sincos(angles + pitch)
    accelerated = turning + places * (turning * sine - pitch_rate**2 * cosine)
    swing = -(accelerated + push * along + lift * up + params.swing_stiffness * angles)
    turn = legs.standing_rates(x)
    # The derivative of this rate: the hip is accelerated, too.
    tilt, level = sincos(pitch)
    ahead = push - places * (turning * tilt + pitch_rate**2 * level)
    rise = lift - 1 + places * (turning * level - pitch_rate**2 * tilt)
    whole = turn + pitch_rate
    bend = (
        2 * whole * (hip.x_rate * up - hip.y_rate * along) - ahead * along - rise * up
    ) * along / hip.height - turning
    trunk = jnp.stack([push, y_rate, lift - 1, pitch_rate, turning])
    return jnp.concatenate([trunk, jnp.where(stand, turn, rates), jnp.where(stand, bend, swing)])


def height(t, x, params):
    return x[1]


def energy(t, x, params):
    """The conserved energy, in m g l, from the ground."""
    x_rate, y, y_rate, _, pitch_rate = x[:5]
    moving = (x_rate**2 + y_rate**2 + params.inertia * pitch_rate**2) / 2
    return moving + y + legs.spring_energy(x, params.stiffness)


conserved = energy


def climb_rate(t, x, params):
    return x[2]


body = ("x_rate", "y", "y_rate", "pitch", "pitch_rate")
time_unit = "sqrt(l/g)"
body_units = ("sqrt(g l)", "l", "sqrt(g l)", "rad", "sqrt(g/l)")
system = legs.system(
    move, body, ("back_left", "front_left", "back_right", "front_right"), body_units, time_unit, height
)
(gait,) = system.modes.values()
coordinates, units = gait.coordinates, gait.units
step = ReturnMap(system, section=Section("gait", climb_rate))
sequence = ()


def guess(params):
    """A pronk at the energy 23.27, at its highest point, for the default legs; from which others are continued."""
    x = jnp.zeros(17).at[jnp.array([0, 1])].set(jnp.array([6.68619962037466, 0.92087465403627]))
    return x.at[9:13].set(5.67190850322862)


def start(params):
    """`(mode, x)`: the pronk."""
    return "gait", guess(params)


def forces(mode, x, params):
    """The vertical forces of the legs."""
    return legs.forces(x, params.stiffness)[1]


def outline(mode, x, params):
    """Legs and trunk, in leg lengths, seen by an observer who moves along; the origin is on the ground."""
    sine, cosine = sincos(x[3])
    lines = legs.lines(x, PLACES * cosine)
    ends = jnp.stack([-0.6 * cosine, x[1] - 0.6 * sine]), jnp.stack([0.6 * cosine, x[1] + 0.6 * sine])
    names = ("back left leg", "front left leg", "back right leg", "front right leg")
    return {**dict(zip(names, lines, strict=True)), "trunk": jnp.stack(ends)}
