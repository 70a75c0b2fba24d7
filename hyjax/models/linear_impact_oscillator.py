r"""The linear impact oscillator: driven, before a wall, with the phase of its drive as a state.

$$\ddot x = A\cos\phi - c\dot x - kx, \qquad \dot\phi = \omega$$

Free in the domain $x \le d$, $\phi \le \pi$. At the wall the mass bounces; a period ends where $\phi$ reaches $\pi$, and is
reset to $-\pi$:

$$x = d: \quad \dot x^+ = -e\,\dot x^-; \qquad\qquad \phi = \pi: \quad \phi^+ = -\pi$$

The stride goes from end to end of the period, with one impact between. The impact multiplies areas by $e^2$, the flow by
$e^{-cT}$: so the two nonzero multipliers have the product $e^2\exp(-2\pi c/\omega)$ for every $A$.

The free motion is $A g(\phi)$ with $g = R\cos(\phi - \delta)$, $R^{-1} = \sqrt{(k - \omega^2)^2 + c^2\omega^2}$. With
$H$ the matrix of the undriven motion over a period, $\kappa = (1 - H_{11})/H_{12}$ and $\kappa' = H_{21} + H_{22}\kappa$, an
orbit of one impact at the phase $\phi_0 = \delta + \psi$ has

$$A = \frac{d}{R\,(\cos\psi + \rho\sin\psi)}, \qquad \rho = \frac{(1 + e)\,\omega}{\kappa + e\kappa'}$$

So the branch folds at $A = d/R\sqrt{1 + \rho^2}$, and ends in grazing at $\psi = 0$, $A = d/R$, where the speed of impact is
zero and the free motion touches the wall.

Source: Dankowicz, Schilder (2013), *Recipes for Continuation*, SIAM, Example 15.2, the example `impact` of COCO's toolbox for
hybrid systems; Nordmark (1991), *Non-periodic motion caused by grazing incidence in an impact oscillator*, J. Sound Vib. 145,
279-297, for grazing.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import Mode
from ._common import impacts_in_a_period, mass_before_wall, parameter, require

title = "Linear impact oscillator"
source = "Dankowicz, Schilder, Recipes for Continuation, SIAM (2013)"


class Params(Shown):
    """Oscillator of mass 1, its drive and its wall."""

    amplitude: Float[Array, ""] = parameter(1.0, "1", "amplitude A of the drive")
    damping: Float[Array, ""] = parameter(0.1, "1", "damping c")
    stiffness: Float[Array, ""] = parameter(1.0, "1", "stiffness k")
    frequency: Float[Array, ""] = parameter(1.0, "1", "angular frequency omega of the drive")
    wall: Float[Array, ""] = parameter(1.0, "1", "position d of the wall")
    restitution: Float[Array, ""] = parameter(0.8, "1", "coefficient of restitution e")

    def __check_init__(self):
        require(self, nonnegative="damping", positive="stiffness frequency", at_most_one="restitution")


def oscillate(t, x, params):
    x, x_rate, phase = x
    x_accel = params.amplitude * cos(phase) - params.damping * x_rate - params.stiffness * x
    return jnp.stack([x_rate, x_accel, params.frequency])


def gap(t, x, params):
    return params.wall - x[0]


def bounce(t, x, params):
    x, x_rate, phase = x
    return jnp.stack([x, -params.restitution * x_rate, phase])


def rest_of_period(t, x, params):
    return jnp.pi - x[2]


def free_in_period(t, x, params):
    return jnp.stack([gap(t, x, params), rest_of_period(t, x, params)])


def period_restarts(t, x, params):
    x, x_rate, phase = x
    return jnp.stack([x, x_rate, jnp.full_like(phase, -jnp.pi)])


coordinates = ("x", "x_rate", "phase")
units, time_unit = ("1", "1", "rad"), "1"
free = Mode(oscillate, coordinates, domain=free_in_period, units=units)
system = impacts_in_a_period(free, gap, bounce, rest_of_period, period_restarts, time_unit)
sequence = ("before", "after")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """The state half a period after an impact in phase with the drive; at `phase = -pi`."""
    return jnp.stack([-jnp.abs(params.amplitude), -0.3 * jnp.abs(params.amplitude), jnp.asarray(-jnp.pi)])


def region(params):
    """The distances and speeds that the drive can produce with one impact a period; at `phase = -pi`.

    They grow as the loss of a period, by damping and impact, decreases.
    """
    lost = 1 - params.restitution + params.damping * jnp.pi / params.frequency
    gathered = 1 / (0.2 + lost)
    natural = jnp.sqrt(params.stiffness)
    size = (0.5 + gathered) * jnp.abs(params.amplitude) / params.stiffness + 2 * jnp.abs(params.wall)
    phase = jnp.asarray(-jnp.pi, size.dtype)
    low = jnp.stack([params.wall - size, -natural * size, phase])
    return low, jnp.stack([params.wall, natural * size, phase])


def start(params):
    """`(mode, x)`: at rest, the spring relaxed, at least 0.5 from the wall; at `phase = -pi`."""
    zero = jnp.zeros_like(params.wall)
    return "before", jnp.stack([jnp.minimum(zero, params.wall - 0.5), zero, zero - jnp.pi])


scenery = ("anchor", "wall")


def outline(mode, x, params):
    """Anchor, spring, mass and wall."""
    size = (jnp.abs(params.wall) + jnp.abs(params.amplitude)) / 4
    return mass_before_wall(x[0], params.wall, params.wall - 14 * size, size)
