r"""The friction oscillator: a block on a moving belt, held by a spring, with more friction at rest than in motion.

The spring is relaxed at $x = 0$. The belt moves at $v$ and carries the block, $\dot x = v$, until the force of the spring
exceeds static friction, at $x_s = \mu_s N/k$. Then the block slips, slower than the belt, driven on by kinetic friction:

$$m\ddot x = -kx + \mu_k N \qquad\text{while}\quad \dot x < v$$

and sticks where $\dot x$ is again $v$, if static friction suffices there, $|x| \le x_s$. If not, the block would overtake the
belt, which the model does not contain: it leaves the domain of `slip`, $\dot x \le v$. That of `stick` is $|x| \le x_s$. The
mode `stick` has one coordinate, `slip` two. With $\omega = \sqrt{k/m}$, $x_k = \mu_k N/k$ and $\Delta = x_s - x_k$ the block
slips from $x_s$ to $x_s - 2\Delta$ in $(\pi + 2\arctan(v/\omega\Delta))/\omega$, and is carried back in $2\Delta/v$. Every
stride begins to slip at $x_s$, so the multiplier is zero.

Source: den Hartog (1930), *Forced vibrations with combined viscous and Coulomb damping*, Phil. Mag. 9, 801-817, for motion
in which a block stops; Galvanetto, Bishop (1999), *Dynamics of a simple damped oscillator undergoing stick-slip
vibrations*, Meccanica 34, 337-347, for the belt.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import box, parameter, refuse_unless, require, spring

title = "Friction oscillator"
source = "den Hartog, Phil. Mag. 9 (1930); Galvanetto, Bishop, Meccanica 34 (1999)"


class Params(Shown):
    """Block, spring, belt and friction."""

    mass: Float[Array, ""] = parameter(1.0, "kg", "mass m of the block")
    stiffness: Float[Array, ""] = parameter(40.0, "N/m", "stiffness k of the spring")
    load: Float[Array, ""] = parameter(9.81, "N", "normal force N between block and belt")
    static_friction: Float[Array, ""] = parameter(0.4, "1", "coefficient of static friction mu_s")
    kinetic_friction: Float[Array, ""] = parameter(0.3, "1", "coefficient of kinetic friction mu_k")
    belt_speed: Float[Array, ""] = parameter(0.1, "m/s", "speed v of the belt")

    def __check_init__(self):
        require(self, positive="mass stiffness load belt_speed")
        refuse_unless(
            (self.kinetic_friction > 0) & (self.static_friction > self.kinetic_friction),
            f"static_friction={self.static_friction} must exceed kinetic_friction={self.kinetic_friction} > 0.",
        )


def carried(t, x, params):
    return jnp.ones_like(x) * params.belt_speed


def slide(t, x, params):
    x, x_rate = x
    x_accel = (params.kinetic_friction * params.load - params.stiffness * x) / params.mass
    return jnp.stack([x_rate, x_accel])


def spare_friction(t, x, params):
    return params.static_friction * params.load - params.stiffness * x[0]


def friction_suffices(t, x, params):
    pull, most = params.stiffness * x[0], params.static_friction * params.load
    return jnp.stack([most - pull, most + pull])


def let_go(t, x, params):
    return jnp.stack([x[0], params.belt_speed])


def lag(t, x, params):
    _, x_rate = x
    return params.belt_speed - x_rate


def holds(t, x, params):
    x, _ = x
    return params.stiffness * jnp.abs(x) <= params.static_friction * params.load


def caught(t, x, params):
    x, _ = x
    return jnp.stack([x])


coordinates = ("x",)
units, time_unit = ("m",), "s"
system = HybridSystem(
    modes={
        "stick": Mode(carried, coordinates, domain=friction_suffices, units=units),
        "slip": Mode(slide, ("x", "x_rate"), domain=lag, units=("m", "m/s")),
    },
    transitions=(
        Transition("stick", "slip", guard=spare_friction, reset=let_go),
        Transition("slip", "stick", guard=lag, reset=caught, armed=holds),
    ),
    time_unit=time_unit,
)
sequence = ("stick", "slip")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Half-way to the position where the block begins to slip."""
    return region(params)[1] / 2


def region(params):
    """The positions at which static friction can hold the block."""
    reach = params.static_friction * params.load / params.stiffness
    return jnp.stack([-reach]), jnp.stack([reach])


def start(params):
    """`(mode, x)`: the block at rest on the belt, the spring at rest."""
    return "stick", jnp.stack([jnp.zeros_like(params.load)])


scenery = ("wall", "belt")


def outline(mode, x, params):
    """Wall, spring, block and belt, in m."""
    reach = params.static_friction * params.load / params.stiffness
    size = 0.6 * reach
    zero = jnp.zeros_like(reach)
    block = jnp.stack([x[0], size / 2])
    wall = jnp.stack([-3 * reach, size / 2])
    up = jnp.stack([zero, size])
    return {
        "block": box(block, size, size),
        "spring": spring(wall, block - jnp.stack([size / 2, zero]), 6, 0.25 * size),
        "wall": jnp.stack([wall - up / 2, wall + up]),
        "belt": jnp.stack([jnp.stack([-2.5 * reach, zero]), jnp.stack([2 * reach, zero])]),
    }
