r"""A Duffing oscillator under bang-bang excitation: a constant force that changes sign every half period.

$$\ddot x = \pm A - \lambda\dot x - \alpha x - \varepsilon x^3, \qquad \dot\tau = 1$$

First $-A$, mode `negative`, then $+A$, mode `positive`, each until the time $\tau$ since the last switch reaches
$\pi/\omega$, the end of the domain, and is reset to zero. No other coordinate jumps, so a stride contracts areas by
$e^{-2\pi\lambda/\omega}$, the product of two of its multipliers; the third, of the clock, is zero.

With $(x, \dot x, \pm A)$, $(-x, -\dot x, \mp A)$ is a motion too. So the map $Q$ over half a period followed by $-1$ takes one
half of a symmetric orbit to the other: the orbit is a fixed point of $Q$, its multipliers are the squares $\nu^2$ of those of
$Q$, and it cannot double its period with a real one. At $\nu = 1$ the branch folds. At $\nu = -1$ two orbits that are no longer
symmetric, each the other's mirror image, branch off; and these can double.

Source: Dankowicz, Schilder (2013), *Recipes for Continuation*, SIAM, Example 17.3, the example `bangbang` of COCO's toolbox for
hybrid systems, with its values; Swift, Wiesenfeld (1984), *Suppression of period doubling in symmetric systems*, Phys. Rev.
Lett. 52, 705-708, for the symmetry.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import box, parameter, require, spring

title = "Duffing oscillator, bang-bang"
source = "Dankowicz, Schilder, Recipes for Continuation, SIAM (2013)"


class Params(Shown):
    """Oscillator of mass 1, and its force."""

    amplitude: Float[Array, ""] = parameter(26.0, "1", "magnitude A of the force")
    damping: Float[Array, ""] = parameter(0.2, "1", "damping lambda")
    stiffness: Float[Array, ""] = parameter(1.0, "1", "linear stiffness alpha")
    cubic: Float[Array, ""] = parameter(1.0, "1", "cubic stiffness epsilon")
    frequency: Float[Array, ""] = parameter(1.1, "1", "angular frequency omega of the force")

    def __check_init__(self):
        require(self, nonnegative="damping", positive="frequency")


def oscillate(x, force, params):
    x, x_rate, _ = x
    x_accel = force - params.damping * x_rate - params.stiffness * x - params.cubic * x**3
    return jnp.stack([x_rate, x_accel, jnp.ones_like(x)])


def pull(t, x, params):
    return oscillate(x, -params.amplitude, params)


def push(t, x, params):
    return oscillate(x, params.amplitude, params)


def rest_of_half(t, x, params):
    return jnp.pi / params.frequency - x[2]


def switch(t, x, params):
    x, x_rate, _ = x
    return jnp.stack([x, x_rate, jnp.zeros_like(x)])


coordinates = ("x", "x_rate", "clock")
units, time_unit = ("1", "1", "1"), "1"
system = HybridSystem(
    modes={
        "negative": Mode(pull, coordinates, domain=rest_of_half, units=units),
        "positive": Mode(push, coordinates, domain=rest_of_half, units=units),
    },
    transitions=(
        Transition("negative", "positive", guard=rest_of_half, reset=switch),
        Transition("positive", "negative", guard=rest_of_half, reset=switch),
    ),
    time_unit=time_unit,
)
sequence = ("negative", "positive")
step = ReturnMap(system, sequence=sequence)


def equilibrium(params):
    """The displacement in static equilibrium with the force, up to a factor of order one."""
    weight = jnp.abs(params.amplitude)
    soft, hard = weight / jnp.maximum(jnp.abs(params.stiffness), 1e-3), jnp.cbrt(weight / jnp.abs(params.cubic))
    return jnp.minimum(soft, hard)


def guess(params):
    """At rest, at the static displacement of the force that has just ended."""
    size = equilibrium(params)
    return jnp.stack([size, jnp.zeros_like(size), jnp.zeros_like(size)])


def resonant(params):
    r"""The largest amplitude $a$ of a free oscillation at a multiple of the force's frequency which the force can sustain.

    At frequency $\Omega$, with $\Omega^2 = \alpha + 3\varepsilon a^2/4$, the harmonic $4A\omega/\pi\Omega$ of the force
    balances the damping: $\lambda\Omega^2 a = 4A\omega/\pi$. Below $\lambda = 0.1$ as for 0.1.
    """
    drive = 4 * jnp.abs(params.amplitude) * params.frequency / (jnp.pi * jnp.maximum(params.damping, 0.1))
    soft, hard = drive / jnp.maximum(jnp.abs(params.stiffness), 1e-3), jnp.cbrt(drive / (0.75 * jnp.abs(params.cubic)))
    return jnp.minimum(soft, hard)


def region(params):
    """Displacements up to twice the static one, and a tenth beyond resonant oscillations, with their speeds; at the switch to the
    negative force."""
    size = jnp.maximum(2 * equilibrium(params), 1.1 * resonant(params))
    stored = jnp.abs(params.stiffness) + jnp.abs(params.cubic) * size**2 / 2
    high = jnp.stack([size, jnp.sqrt(stored) * size, jnp.zeros_like(size)])
    return -high, high


def start(params):
    """`(mode, x)`: at rest, the spring relaxed."""
    return "negative", jnp.zeros(3, params.amplitude.dtype)


scenery = ("anchor",)


def outline(mode, x, params):
    """Anchor, spring, mass, and an arrow for the force."""
    size = equilibrium(params)
    zero = jnp.zeros_like(size)
    up, across = jnp.stack([zero, size / 2]), jnp.stack([size / 2, zero])
    mass = jnp.stack([x[0], zero])
    anchor = jnp.stack([-4 * size, zero])
    sign = -1 if mode == "negative" else 1
    tail, tip = mass + up * 1.4, mass + up * 1.4 + sign * 2 * across
    barb = 0.5 * sign * across
    return {
        "mass": box(mass, size, size),
        "spring": spring(anchor, mass - across, 6, 0.2 * size),
        "force": jnp.stack([tail, tip, tip - barb + up * 0.3, tip, tip - barb - up * 0.3]),
        "anchor": jnp.stack([anchor - up, anchor + up]),
    }
