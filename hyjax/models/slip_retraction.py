r"""SLIP with swing-leg retraction: before it lands, the leg turns backward at a constant rate.

Springy leg and flight are those of SLIP: lengths in $l_0$, time in $\sqrt{l_0/g}$, in flight $\ddot y = -1$ and
$\dot x = \sqrt{2(E - y) - \dot y^2}$, in stance the spring's force $k(1 - r)$ along the leg. At the apex the leg begins to turn,

$$\alpha(t) = \alpha_R + \omega\,(t - t_\mathrm{apex})$$

with $\alpha$ its angle to the ground, and its foot lands where $y = \sin\alpha$. The clock is the vertical speed: after an apex
$t - t_\mathrm{apex} = -\dot y$. So a runner who falls from a higher apex lands on a steeper leg, which throws it less high. With
$\omega = 0$ it is SLIP. A lift-off of a mass that already falls has no apex in its flight; there the leg is where it would be
after the apex of the same parabola.

The motion of a gait depends on $\alpha_R$ and $\omega$ through the landing angle alone, its multiplier $P'(y)$ on both:
$\omega$ makes stable a gait of SLIP that is unstable, with $\alpha_R = \alpha - \omega\sqrt{2(y - \sin\alpha)}$ for the same
landing angle.

Falls and domains are those of SLIP. The defaults are a runner of 80 kg on a leg of 1 m and 20 kN/m, whose energy is that of 5 m/s
at the height of the relaxed leg, with a retraction of 50 degrees/s from 60 degrees.

Source: Seyfarth, Geyer, Herr (2003), *Swing-leg retraction: a simple control model for stable running*, J. Exp. Biol. 206,
2547-2555.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sin
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from . import slip
from ._common import parameter, refuse_unless, require
from .slip import (
    apexes,
    coordinates as coordinates,
    forward,
    ground as ground,
    runner,
    time_unit as time_unit,
    units as units,
)

title = "Running with swing-leg retraction"
source = "Seyfarth, Geyer, Herr, J. Exp. Biol. 206 (2003)"


class Params(Shown):
    """Leg and energy."""

    stiffness: Float[Array, ""] = parameter(25.4841997961264, "m g/l", "stiffness k of the leg")
    retraction_angle: Float[Array, ""] = parameter(
        1.0471975511965976, "rad", "angle alpha_R of the leg to the ground, at the apex"
    )
    retraction_rate: Float[Array, ""] = parameter(
        0.27862037232092324, "rad sqrt(g/l)", "rate omega at which the leg turns backward, from the apex on"
    )
    energy: Float[Array, ""] = parameter(2.27420998980632, "m g l", "energy E, from the ground")

    def __check_init__(self):
        require(self, positive="stiffness")
        refuse_unless(
            (self.retraction_angle > 0) & (self.retraction_angle < jnp.pi / 2),
            f"retraction_angle={self.retraction_angle} must lie between 0 and pi/2.",
        )
        refuse_unless(
            self.energy > jnp.sin(self.retraction_angle),
            f"energy={self.energy} must exceed sin(retraction_angle), or the leg never leaves the ground.",
        )


def leg_angle(x, params):
    """The angle of the leg after the apex, in flight."""
    _, y_rate = x
    return params.retraction_angle - params.retraction_rate * y_rate


def foot_height(t, x, params):
    y, _ = x
    return y - sin(leg_angle(x, params))


def touchdown(t, x, params):
    y, y_rate = x
    return jnp.stack([-cos(leg_angle(x, params)), y, forward(x, params), y_rate])


def falls(t, x, params):
    _, y_rate = x
    return y_rate < 0


system = runner(foot_height, touchdown, falls)
sequence = ("descent", "stance", "ascent")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """An apex somewhat above the height of the leg as it begins to turn, where the stable gaits are."""
    low, high = region(params)
    return low + 0.08 * (high - low)


def region(params):
    """Apexes, from the height of the leg as it begins to turn to the height at which the horizontal speed is zero."""
    return apexes(params.retraction_angle, params)


def start(params):
    """`(mode, x)`: an apex."""
    return "descent", guess(params)


def outline(mode, x, params):
    """Leg and body, as for SLIP. Until the apex the leg waits."""
    return slip.leg_and_body(mode, x, params, leg_angle(x[:2].at[1].min(0), params))


def travel(mode, x, params):
    """The vector from an arc's origin to that of the next: apex, foot, apex."""
    return slip.way(mode, x, params, leg_angle(x[:2], params))
