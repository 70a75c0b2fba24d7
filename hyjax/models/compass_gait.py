r"""The compass gait: two equal legs with mass, a mass at the hip, down a slope.

Absolute angles $\theta_s$ (stance) and $\theta_n$ (swing) from the vertical, positive when the leg leans backward, so
that the hip is at $l(-\sin\theta_s, \cos\theta_s)$ from the stance foot. The leg's mass $m$ is $a$ from its foot and $b$
from the hip, $l = a + b$; the hip's mass is $m_h$. With $\mu = m_h/m$, $\beta = b/a$, $D = \theta_s - \theta_n$, and $a$,
$b$ in units of $l$:

$$b^2\ddot\theta_n - b\cos D\,\ddot\theta_s + b\sin D\,\dot\theta_s^2 + \tfrac{g}{l} b\sin\theta_n = 0$$
$$(a^2 + \mu + 1)\ddot\theta_s - b\cos D\,\ddot\theta_n - b\sin D\,\dot\theta_n^2 - \tfrac{g}{l}(a + \mu + 1)\sin\theta_s = 0$$

The swing foot strikes when $\theta_s + \theta_n + 2\gamma$ falls to zero with $\theta_s < \theta_n$ (the new foot ahead); at
mid-stance the same quantity rises, which is the scuff. The legs change roles; the angular momentum of the whole about the
new foot, and of the old stance leg about the hip, is conserved:

$$Q^+(D)\,(\dot\theta_s, \dot\theta_n)^+ = Q^-(D)\,(\dot\theta_n, \dot\theta_s)^-$$

A walker has fallen, and left the domain, when its hip is on the slope: $\cos(\theta_s + \gamma) \ge 0$.

Angles are in rad and $g = l = 1$ by default, which makes time dimensionless; `gravity` and `leg_length` give it units.

Source: Goswami, Espiau, Keramane (1996), *Limit cycles and their stability in a passive bipedal gait*, ICRA;
Goswami, Thuilot, Espiau (1998), *A study of the passive gait of a compass-like biped robot*, IJRR 17.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sin, sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import ground as ground, parameter, require

title = "Compass gait"
source = "Goswami, Espiau, Keramane, ICRA (1996); Goswami, Thuilot, Espiau, IJRR 17 (1998)"


class Params(Shown):
    """Masses, lengths, ground."""

    slope: Float[Array, ""] = parameter(
        0.05235987755982988, "rad", "slope of the ground, downhill positive", (0.005, 0.09)
    )
    mu: Float[Array, ""] = parameter(2.0, "1", "hip mass over leg mass, m_h / m")
    beta: Float[Array, ""] = parameter(1.0, "1", "b / a: hip to leg mass over foot to leg mass")
    gravity: Float[Array, ""] = parameter(1.0, "m/s^2 or 1", "acceleration of gravity; 1 for dimensionless time")
    leg_length: Float[Array, ""] = parameter(1.0, "m or 1", "leg length a + b")

    def __check_init__(self):
        require(self, nonnegative="mu", positive="beta gravity leg_length")


def solve2(a11, a12, a21, a22, b1, b2):
    """Two linear equations, by Cramer's rule."""
    determinant = a11 * a22 - a12 * a21
    return (b1 * a22 - a12 * b2) / determinant, (a11 * b2 - a21 * b1) / determinant


def swing(t, x, params):
    stance, swing, stance_rate, swing_rate = x
    a, b = 1 / (1 + params.beta), params.beta / (1 + params.beta)
    omega2 = params.gravity / params.leg_length
    sin_d, cos_d = sincos(stance - swing)
    sin_stance, sin_swing = sin(stance), sin(swing)
    on_swing = -b * sin_d * stance_rate**2 - omega2 * b * sin_swing
    on_stance = b * sin_d * swing_rate**2 + omega2 * (a + params.mu + 1) * sin_stance
    accelerations = solve2(-b * cos_d, b**2, a**2 + params.mu + 1, -b * cos_d, on_swing, on_stance)
    return jnp.stack([stance_rate, swing_rate, *accelerations])


def foot_height(t, x, params):
    stance, swing, _, _ = x
    return stance + swing + 2 * params.slope


def hip_height(t, x, params):
    """The height of the hip above the slope, in leg lengths."""
    return cos(x[0] + params.slope)


def foot_ahead(t, x, params):
    stance, swing, _, _ = x
    return stance < swing


def heel_strike(t, x, params):
    stance, swing, stance_rate, swing_rate = x
    be, mu = params.beta, params.mu
    c = cos(stance - swing)
    # Q-, on (swing_rate, stance_rate): Goswami et al. (1998), appendix.
    about_foot = -be * swing_rate + (-be + 2 * (mu * (1 + be) ** 2 / 2 + (1 + be)) * c) * stance_rate
    about_hip = -be * stance_rate
    of_foot = be * (be - (1 + be) * c), (1 + be) * ((1 + be) - be * c) + 1 + mu * (1 + be) ** 2
    swing_plus, stance_plus = solve2(*of_foot, be**2, -be * (1 + be) * c, about_foot, about_hip)
    return jnp.stack([swing, stance, stance_plus, swing_plus])


coordinates = ("theta_s", "theta_ns", "theta_s_rate", "theta_ns_rate")
units, time_unit = ("rad", "rad", "rad sqrt(g/l) or rad/s", "rad sqrt(g/l) or rad/s"), "sqrt(l/g) or s"
system = HybridSystem(
    modes={"swing": Mode(swing, coordinates, domain=hip_height, units=units)},
    transitions=(Transition("swing", "swing", guard=foot_height, reset=heel_strike, armed=foot_ahead),),
    time_unit=time_unit,
)
sequence = ("swing",)
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Near the gait at 3 degrees."""
    rate = jnp.sqrt(params.gravity / params.leg_length)
    return jnp.stack([0.22 + 0 * rate, -0.22 - 2 * params.slope, -0.35 * rate, -0.12 * rate])


def start(params):
    """`(mode, x)`: just after a strike, near the gait at 3 degrees."""
    return "swing", guess(params)


def region(params):
    """Just after the heel strike: stance leg leaning back, swing leg behind it, both moving forward."""
    rate = jnp.sqrt(params.gravity / params.leg_length)
    one = jnp.ones_like(rate)
    low = jnp.stack([0.05 * one, -0.6 * one, -0.8 * rate, -0.8 * rate])
    return low, jnp.stack([0.5 * one, -0.05 * one, -0.1 * rate, 0.5 * rate])


def outline(mode, x, params):
    """The legs, from the stance foot, in the vertical frame; lengths in leg lengths."""
    stance, swing, _, _ = x
    foot = jnp.zeros(2)
    hip = jnp.stack([-jnp.sin(stance), jnp.cos(stance)])
    other = hip + jnp.stack([jnp.sin(swing), -jnp.cos(swing)])
    return {"stance leg": jnp.stack([foot, hip]), "swing leg": jnp.stack([hip, other]), "hip": hip[None]}


def travel(mode, x, params):
    """The vector from the stance foot to the next stance foot, at the heel strike."""
    return outline(mode, x, params)["swing leg"][1]
