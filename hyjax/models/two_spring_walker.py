r"""The two-spring walker: the powered walker whose hip has one spring for each side that the swing leg can be on.

As the powered walker, with a stiffness that depends on the side:

$$\ddot\phi = \sin(\theta - \gamma) + (\dot\theta^2 - \cos(\theta - \gamma))\sin\phi - k_\pm\phi$$

where $k_+$ acts while the swing leg is behind the stance leg, $\phi > 0$, and $k_-$ while it is ahead. The vector field is
continuous where the legs pass, $\phi = 0$, and its derivative is not. The foot strikes only from ahead: the sequence
("behind", "ahead") is a step. A leg that swings back past the stance leg is in the mode "back", whose equations are those of
"behind". Equal stiffnesses make it the powered walker.

Two springs of different stiffness lead to folds, where a gait ends: at the speed 0.4 the cost of transport falls towards a fold,
and has a minimum only among gaits at a distance from it, such as those with `contraction` of at most 0.95: 0.0130850969 for
stiffnesses of at most 6.

Source: Kuo (2002), *Energetics of actively powered locomotion using the simplest walking model*, J. Biomech. Eng. 124, 113-120,
for the walker with one stiffness.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from . import powered_walker
from ._common import parameter, require, require_sequence, require_slope
from .powered_walker import after_strike, around, cost_of_steps, foot_height, heel_strike, hip_height, small_step

title = "Two-spring walker"
source = "Kuo, J. Biomech. Eng. 124 (2002), with a second spring"


class Params(Shown):
    """Ground, two springs and push-off."""

    slope: Float[Array, ""] = parameter(0.0, "rad", "slope of the ground, downhill positive", (-0.02, 0.05))
    stiffness_behind: Float[Array, ""] = parameter(2.512477760885756, "g/l", "stiffness while the swing leg is behind")
    stiffness_ahead: Float[Array, ""] = parameter(2.512477760885756, "g/l", "stiffness while the swing leg is ahead")
    push_off: Float[Array, ""] = parameter(0.1873798580048398, "m sqrt(g l)", "impulse P along the trailing leg")

    def __check_init__(self):
        require_slope(self)
        require(self, nonnegative="stiffness_behind stiffness_ahead push_off")


def one_spring(stiffness, params):
    """The parameters of the powered walker with one of the two stiffnesses."""
    return powered_walker.Params(params.slope, stiffness, params.push_off)


def swing_behind(t, x, params):
    return powered_walker.swing(t, x, one_spring(params.stiffness_behind, params))


def swing_ahead(t, x, params):
    return powered_walker.swing(t, x, one_spring(params.stiffness_ahead, params))


def legs_pass(t, x, params):
    return x[2]


def legs_pass_back(t, x, params):
    return -x[2]


coordinates, units, time_unit = powered_walker.coordinates, powered_walker.units, powered_walker.time_unit
ground, outline, outcomes = powered_walker.ground, powered_walker.outline, powered_walker.outcomes
plane, on_section = powered_walker.plane, powered_walker.on_section
behind = Mode(swing_behind, coordinates, domain=hip_height, units=units)
system = HybridSystem(
    modes={"behind": behind, "ahead": Mode(swing_ahead, coordinates, domain=hip_height, units=units), "back": behind},
    transitions=(
        Transition("behind", "ahead", guard=legs_pass, reset=unchanged),
        Transition("ahead", "behind", guard=foot_height, reset=heel_strike),
        Transition("ahead", "back", guard=legs_pass_back, reset=unchanged),
        Transition("back", "ahead", guard=legs_pass, reset=unchanged),
    ),
    time_unit=time_unit,
)
sequence = ("behind", "ahead")
step = ReturnMap(system, sequence=sequence)


def near(params):
    """`small_step` with the frequency whose period is the mean of the two, for the leg spends half a period on each side."""
    period = (1 / jnp.sqrt(1 + params.stiffness_behind) + 1 / jnp.sqrt(1 + params.stiffness_ahead)) / 2
    return small_step(params.slope, 1 / period**2 - 1, params.push_off)


def guess(params):
    """Near the long gait: that of the powered walker with a stiffness between the two."""
    return after_strike(params, *near(params))


def start(params):
    """`(mode, x)`: just after a heel strike, near the long gait."""
    return "behind", guess(params)


def region(params):
    """Just after the heel strike: stance leg leaning back and moving forward, by 0.7 to 1.3 times the guess."""
    return around(*near(params))


def travel(mode, x, params):
    """The vector from the stance foot to the next: at the heel strike to the swing foot, and zero where the legs pass."""
    step = powered_walker.travel(mode, x, params)
    return step if mode == "ahead" else jnp.zeros_like(step)


def cost_of_transport(orbit, params):
    """The work of the push-off over weight and distance, as for the powered walker."""
    require_sequence(orbit, sequence, "cost_of_transport")
    return cost_of_steps(orbit, params)


objectives = {"cost_of_transport": cost_of_transport}
