r"""SLIP, the spring-loaded inverted pendulum: a point mass that runs on a massless, springy leg.

Lengths in $l_0$, time in $\sqrt{l_0/g}$, forces in $mg$. In flight $\ddot y = -1$, and the conserved energy gives the horizontal
speed, $\dot x = \sqrt{2(E - y) - \dot y^2}$. The leg is held at the angle $\alpha$ to the ground, and lands at
$y = \sin\alpha$, its foot ahead by $\cos\alpha$. In stance, with the foot as origin and $r = \sqrt{x^2 + y^2}$,

$$\ddot x = k\Big(\frac1r - 1\Big)x, \qquad \ddot y = k\Big(\frac1r - 1\Big)y - 1$$

until the spring is relaxed again, $r = 1$. The stride goes from apex to apex, $y \mapsto P(y)$ at fixed energy; its
multipliers are $P'(y)$ and an exact zero, since $\dot y = 0$ at every apex. A runner whose mass reaches the ground, or moves
backward in stance, has fallen. The domain of a flight is above the ground, $y \ge 0$; that of stance, where moreover the leg is
not longer than the relaxed spring, $r \le 1$, and the mass does not move backward.

Source: Blickhan (1989), *The spring-mass model for running and hopping*, J. Biomech. 22, 1217-1227; Seyfarth, Geyer,
Günther, Blickhan (2002), *A movement criterion for running*, J. Biomech. 35, 649-655, for the apex map.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sin, sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from ._common import ground as ground, parameter, refuse_unless, require, spring

title = "Running on a springy leg (SLIP)"
source = "Blickhan, J. Biomech. 22 (1989); Seyfarth, Geyer, Günther, Blickhan, J. Biomech. 35 (2002)"


class Params(Shown):
    """Leg and energy."""

    # With the others at their defaults, the stable gait meets an unstable one in a fold at a stiffness of 31.4, an angle of 1.191
    # and an energy of 2.17; towards the other ends of the sliders' ranges it becomes unstable, or nearly so.
    stiffness: Float[Array, ""] = parameter(30.0, "m g/l", "stiffness k of the leg", (24.0, 31.0, 0.1))
    attack_angle: Float[Array, ""] = parameter(
        1.2, "rad", "angle alpha of the landing leg to the ground", (1.194, 1.234, 0.0005)
    )
    energy: Float[Array, ""] = parameter(2.25, "m g l", "energy E, from the ground", (2.18, 2.78, 0.01))

    def __check_init__(self):
        require(self, positive="stiffness")
        refuse_unless(
            (self.attack_angle > 0) & (self.attack_angle < jnp.pi / 2),
            f"attack_angle={self.attack_angle} must lie between 0 and pi/2.",
        )
        refuse_unless(
            self.energy > jnp.sin(self.attack_angle),
            f"energy={self.energy} must exceed sin(attack_angle), or the leg never leaves the ground.",
        )


def fall(t, x, params):
    _, y_rate = x
    return jnp.stack([y_rate, -jnp.ones_like(y_rate)])


def forward(x, params):
    """The horizontal speed in flight."""
    y, y_rate = x
    return jnp.sqrt(2 * (params.energy - y) - y_rate**2)


def foot_height(t, x, params):
    y, _ = x
    return y - sin(params.attack_angle)


def touchdown(t, x, params):
    y, y_rate = x
    return jnp.stack([-cos(params.attack_angle), y, forward(x, params), y_rate])


def lean(t, x, params):
    x, y, x_rate, y_rate = x
    push = params.stiffness * (1 / jnp.sqrt(x**2 + y**2) - 1)
    return jnp.stack([x_rate, y_rate, push * x, push * y - 1])


def compression(t, x, params):
    x, y, _, _ = x
    return 1 - jnp.sqrt(x**2 + y**2)


def lift_off(t, x, params):
    _, y, _, y_rate = x
    return jnp.stack([y, y_rate])


def advance(t, x, params):
    # A compressed leg pushes forward only once it leans forward: a mass that moves backward before that does not turn again.
    _, _, x_rate, _ = x
    return x_rate


def mass_height(t, x, params):
    return x[1]


def leg_stands(t, x, params):
    return jnp.stack([compression(t, x, params), mass_height(t, x, params), advance(t, x, params)])


def height(t, x, params):
    return x[0]


def lie(t, x, params):
    return jnp.zeros_like(x)


def stumble(t, x, params):
    y, y_rate = x
    return jnp.stack([jnp.zeros_like(y), y, forward(x, params), y_rate])


def climb_rate(t, x, params):
    return x[1]


def apex(t, x, params):
    y, y_rate = x
    return jnp.stack([y, jnp.zeros_like(y_rate)])


coordinates = ("y", "y_rate")
units, time_unit = ("l", "sqrt(g l)"), "sqrt(l/g)"
plane, plane_units = ("x", "y", "x_rate", "y_rate"), ("l", "l", "sqrt(g l)", "sqrt(g l)")


def runner(foot_height, touchdown, lands_again=None):
    """The system of a runner. **Arguments:** `foot_height`, `touchdown`: guard and reset of the landing. `lands_again`: whether
    the leg is ready to land after a lift-off of a mass that already falls."""
    return HybridSystem(
        modes={
            "descent": Mode(fall, coordinates, domain=height, units=units),
            "stance": Mode(lean, plane, domain=leg_stands, units=plane_units),
            "ascent": Mode(fall, coordinates, domain=height, units=units),
            "fallen": Mode(lie, plane, units=plane_units),
        },
        transitions=(
            Transition("descent", "stance", guard=foot_height, reset=touchdown),
            Transition("stance", "ascent", guard=compression, reset=lift_off),
            Transition("ascent", "descent", guard=climb_rate, reset=apex),
            # Lift-off of a mass that already falls: the leg lands again without an apex, or not at all.
            Transition("ascent", "stance", guard=foot_height, reset=touchdown, armed=lands_again),
            Transition("ascent", "fallen", guard=height, reset=stumble),
            Transition("descent", "fallen", guard=height, reset=stumble),
            Transition("stance", "fallen", guard=advance, reset=unchanged),
            Transition("stance", "fallen", guard=mass_height, reset=unchanged),
        ),
        time_unit=time_unit,
    )


system = runner(foot_height, touchdown)
sequence = ("descent", "stance", "ascent")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """An apex just above the height of touchdown, where the stable gaits are."""
    low, high = region(params)
    return low + 0.04 * (high - low)


def region(params):
    """Apexes, from the height of touchdown to the height at which the horizontal speed is zero."""
    return apexes(params.attack_angle, params)


def apexes(angle, params):
    """Apexes, from the height of a leg at this angle to the height at which the horizontal speed is zero."""
    sine = sin(angle)
    zero = jnp.zeros_like(sine)
    return jnp.stack([sine, zero]), jnp.stack([params.energy, zero])


def start(params):
    """`(mode, x)`: an apex."""
    return "descent", guess(params)


def outline(mode, x, params):
    """Leg and body, in leg lengths; the origin is the foot in stance, and the ground below the apex in flight."""
    return leg_and_body(mode, x, params, params.attack_angle)


def leg_and_body(mode, x, params, angle):
    """The outline with the leg at this angle in flight."""
    if mode in ("stance", "fallen"):
        body = x[:2]
        foot = jnp.zeros_like(body)
    else:
        # From the apex, time is -y', and the horizontal speed constant.
        body = jnp.stack([-x[1] * forward(x, params), x[0]])
        sine, cosine = sincos(angle)
        foot = body + jnp.stack([cosine, -sine])
    return {"leg": spring(foot, body, 5, 0.05), "body": body[None]}


def travel(mode, x, params):
    """The vector from an arc's origin to that of the next: apex, foot, apex."""
    return way(mode, x, params, params.attack_angle)


def way(mode, x, params, angle):
    """`travel` with the leg at this angle at touch-down."""
    zero = jnp.zeros_like(params.energy)
    if mode == "descent":
        return jnp.stack([-x[1] * forward(x, params) + cos(angle), zero])
    return jnp.stack([x[0] + x[2] * x[3] if mode == "stance" else zero, zero])
