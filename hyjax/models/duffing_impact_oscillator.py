r"""The Duffing impact oscillator: a driven Duffing oscillator that strikes a wall which may itself move.

$$\ddot x = -2\zeta\dot x - x - \kappa x^3 + F\cos\Omega t$$

Free in the domain $x \le w(t) = d + a\sin\Omega t$. At the wall, with restitution against its velocity:

$$x = w(t): \quad \dot x^+ = -e\,\dot x^- + (1 + e)\,\dot w(t)$$

The stride is the stroboscopic map: from $t = 0$ to $t = T = 2\pi/\Omega$, with one impact between. Its Jacobian is the
monodromy matrix, in which each impact contributes the saltation matrix of a guard and a reset that depend on time; damping and
impact alone determine its determinant, $e^2\exp(-2\zeta T)$. The wall may be at rest, $a = 0$, or the drive absent, $F = 0$.

Source: Shaw, Holmes (1983), *A periodically forced piecewise linear oscillator*, J. Sound Vib. 90, 129-155, whose oscillator
is linear and whose wall is at rest; Kong, Payne, Zhu, Johnson (2024), eq. 9, for the terms in time.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sin
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import Mode, unchanged
from ._common import clock, impacts_in_a_period, mass_before_wall, parameter, require

title = "Duffing impact oscillator"
source = "Shaw, Holmes, J. Sound Vib. 90 (1983)"


class Params(Shown):
    """Oscillator, drive and wall; lengths in a unit of choice, time in that of the linear oscillator."""

    damping: Float[Array, ""] = parameter(0.05, "1", "damping ratio zeta")
    cubic: Float[Array, ""] = parameter(0.5, "1", "cubic stiffness kappa")
    force: Float[Array, ""] = parameter(0.9, "1", "amplitude F of the drive")
    frequency: Float[Array, ""] = parameter(1.9, "omega_0", "angular frequency Omega of drive and wall")
    wall: Float[Array, ""] = parameter(0.7, "1", "mean position d of the wall")
    wall_amplitude: Float[Array, ""] = parameter(0.1, "1", "amplitude a of the wall")
    restitution: Float[Array, ""] = parameter(0.75, "1", "coefficient of restitution e")

    def __check_init__(self):
        require(self, nonnegative="damping", positive="frequency", at_most_one="restitution")


def oscillate(t, x, params):
    x, x_rate = x
    x_accel = -2 * params.damping * x_rate - x - params.cubic * x**3 + params.force * cos(params.frequency * t)
    return jnp.stack([x_rate, x_accel])


def wall(t, params):
    return params.wall + params.wall_amplitude * sin(params.frequency * t)


def gap(t, x, params):
    x, _ = x
    return wall(t, params) - x


def impact(t, x, params):
    x, x_rate = x
    wall_rate = params.wall_amplitude * params.frequency * cos(params.frequency * t)
    return jnp.stack([x, -params.restitution * x_rate + (1 + params.restitution) * wall_rate])


def period_ends(t, x, params):
    return clock(t, params.frequency)


coordinates = ("x", "x_rate")
units, time_unit = ("1", "omega_0"), "1/omega_0"
free = Mode(oscillate, coordinates, domain=gap, units=units)
system = impacts_in_a_period(free, gap, impact, period_ends, unchanged, time_unit)
sequence = ("before", "after")
step = ReturnMap(system, sequence=sequence)


def region(params):
    """The distances and speeds that drive and wall can produce with one impact a period, at `t = 0`.

    They grow as the loss of a period, by damping and impact, decreases. The factors exceed the orbits of a hundred random
    oscillators by a fifth.
    """
    lost = 1 - params.restitution + params.damping * 2 * jnp.pi / params.frequency
    gathered = 1 / (0.2 + lost)
    force, shaken = jnp.abs(params.force), jnp.abs(params.wall_amplitude) * params.frequency
    ahead, behind = jnp.maximum(params.wall, 0), jnp.maximum(-params.wall, 0)
    far = (0.2 + 0.9 * gathered) * force + (2.2 + 0.2 * gathered) * shaken + 3 * ahead + 0.5 * behind
    fast = (0.55 + 1.3 * gathered) * force + (0.8 + 0.7 * gathered) * shaken + ahead
    return jnp.stack([params.wall - far, -fast]), jnp.stack([params.wall, fast])


def guess(params):
    """On the way to the wall, with a speed of the order of those of drive and wall; at `t = 0`."""
    speed = params.force + params.wall_amplitude * params.frequency
    return jnp.stack([params.wall - speed / params.frequency, speed])


def start(params):
    """`(mode, x)`: on the way to the wall."""
    return "before", guess(params)


scenery = ("anchor",)


def outline(mode, x, params, t=0.0):
    """Anchor, spring, mass and wall at time `t`."""
    size = (jnp.abs(params.wall) + params.wall_amplitude + params.force) / 4
    return mass_before_wall(x[0], wall(t, params), params.wall - 10 * size, size)
