r"""The thrusting hopper: the monopod hopper whose leg spring is lengthened at each greatest compression, and hops for ever.

As `monopod_hopper`. When the leg is compressed the most in **stance**, $\dot y_1 = \dot y_2$, its free length grows from 1 to
$1 + \delta$ for the phase of **thrust**, until stance ends; in flight it is 1 again. With the compression $c = 1 + y_1 - y_2$
this adds the energy $\tfrac12 mA\,((c + \delta)^2 - c^2)$ at the switch, and takes back $\tfrac12 mA\,((c + \delta)^2 - c^2)$ of
the compression at the end of stance, which is small or negative. What is left balances what the ground takes.

Where the ground adheres, as in the source of the hopper, a hop is the sequence ("flight", "stance", "thrust"); where it does not,
`adhesion=0`, it is ("flight", "stance", "thrust", "released").

The hop with the damping 19275 and the stiffness 22.8 has the period 7.626646 and the multiplier -0.230276 on ground that adheres,
7.599951 and -0.012799 on ground that does not. Its branches:

| ground | over | from the hop | special points, in their order |
|---|---|---|---|
| adheres | stiffness | up | fold 29.632718, grazing 24.598116 |
| adheres | stiffness | down | corner 21.592473 |
| releases | stiffness | up | fold 29.300473, fold 21.861367, grazing 24.323544 |
| releases | stiffness | down | fold 19.589043, fold 23.288811, grazing 17.394057 |
| adheres | damping | up | corner 21972.3618 |
| adheres | damping | down | fold 11583.3499, grazing 16848.4335 |
| releases | damping | up | corner 21907.9428 |
| releases | damping | down | 12758.9433: below, the ground's force vanishes no sooner than at lift-off |

At a corner the leg begins stance just as it stops shortening: before, the thrust comes after the leg's next compression; beyond,
at once. With the nominal parameters, on ground that adheres, hops with the periods 6.936492, 7.749694, 11.584829, 12.496402 and
13.430879 are stable at once, which differ in how often the leg swings during the flight. Over the damping the first, the second
and the last of them double their periods, at 3144.4152, 2241.0754 and 3759.4820.

Source: Dallas, Machairas, Papadopoulos (2017), *A comparison of ordinary differential equation solvers for dynamical systems with
impacts*, ASME J. Comput. Nonlinear Dyn. 12, 061016, for hopper and ground; Raibert (1986), *Legged Robots That Balance*, MIT
Press, for a leg that is lengthened at its greatest compression.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._system.system import HybridSystem, Mode, Transition, unchanged
from . import monopod_hopper
from ._common import parameter, require
from .monopod_hopper import accelerated, fly, ground_force, pull, push, stand, toe_depth, toe_height, yields

title = "Thrusting hopper"
source = "Dallas, Machairas, Papadopoulos, J. Comput. Nonlinear Dyn. 12 (2017), with a thrust"


class Params(monopod_hopper.Params):
    """Ground, masses, weight and thrust, without dimension."""

    thrust: Float[Array, ""] = parameter(0.01, "l", "lengthening delta of the leg's free length")

    def __check_init__(self):
        require(self, nonnegative="thrust")


def extend(t, x, params):
    return accelerated(x, params, ground_force(x, params), params.thrust)


def closing_rate(t, x, params):
    """How fast the leg shortens."""
    _, toe_rate, _, body_rate = x
    return toe_rate - body_rate


coordinates, units, time_unit = monopod_hopper.coordinates, monopod_hopper.units, monopod_hopper.time_unit
ground, outline, travel, start = (
    monopod_hopper.ground, monopod_hopper.outline, monopod_hopper.travel, monopod_hopper.start
)  # fmt: skip
system = HybridSystem(
    modes={
        "flight": Mode(fly, coordinates, domain=toe_height, units=units),
        "stance": Mode(stand, coordinates, domain=toe_depth, units=units),
        "thrust": Mode(extend, coordinates, domain=toe_depth, units=units),
        "released": Mode(fly, coordinates, domain=toe_depth, units=units),
    },
    transitions=(
        Transition("flight", "stance", guard=toe_height, reset=unchanged),
        Transition("stance", "thrust", guard=closing_rate, reset=unchanged),
        Transition("stance", "flight", guard=toe_depth, reset=unchanged),
        Transition("stance", "released", guard=push, reset=unchanged, armed=yields),
        Transition("thrust", "flight", guard=toe_depth, reset=unchanged),
        Transition("thrust", "released", guard=push, reset=unchanged, armed=yields),
        Transition("released", "flight", guard=toe_depth, reset=unchanged),
        Transition("released", "stance", guard=pull, reset=unchanged),
    ),
    time_unit=time_unit,
)
sequence = ("flight", "stance", "thrust")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Lift-off, the leg relaxed."""
    one = jnp.ones_like(params.weight)
    return jnp.stack([0 * one, 0.3 * one, one, 0.3 * one])


def region(params):
    """Lift-off with speeds up to that of a fall from a leg's length, the leg nearly relaxed."""
    zero = jnp.zeros_like(params.weight)
    most = jnp.sqrt(2 * params.weight)
    return jnp.stack([zero, zero, zero + 0.9, -most]), jnp.stack([zero, most, zero + 1.1, most])
