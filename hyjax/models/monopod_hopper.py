r"""The monopod hopper: two masses on a leg spring, which falls onto compliant ground, hops, and comes to rest.

Toe and body are at the heights $y_1, y_2$. Lengths in the leg's free length, time in the period $T$ of the leg's vibration in
flight, so that with $A = 4\pi^2 - m$, where $m/4\pi^2$ is the toe's part of the mass,

$$\ddot y_1 = -A\,(1 + y_1 - y_2) - f + F, \qquad \ddot y_2 = m\,(1 + y_1 - y_2) - f$$

In **stance**, $y_1 \le 0$, the ground pushes as Hunt and Crossley's does, with the depth $d = -y_1$,

$$F = d^{3/2}\,(A k - b\,\dot y_1)$$

and in **flight** $F = 0$. Once the toe rises faster than $A k/b$, this force pulls. In the source it does, to the height zero,
where stance ends; ground that adheres. Ground cannot pull: with `adhesion=0` stance ends where the force vanishes, and the toe
is **released** below the height zero, without a force, until it passes that height or is again slower than $A k/b$, in stance.

Without thrust the ground takes energy in every stance: the hopper comes to rest, and there is no periodic orbit (compare
`thrusting_hopper`). Rest is at

$$d_e^{3/2} = \frac{4\pi^2 f}{k\,m\,A}, \qquad y_{2e} = 1 - d_e - \frac fm$$

The source's eq. 29 lacks the factor $A$, and is no equilibrium of its eqs. 18-19; its eq. 31 and the stiffness ratios of its
Table 2 follow from eq. 29. `stiffness_ratio` has both. Per unit of length and total mass, times $4\pi^2$, the energy is

$$E = \tfrac12 m\dot y_1^2 + \tfrac12 A\dot y_2^2 + \tfrac12 m A\,(1 + y_1 - y_2)^2 + f\,(m y_1 + A y_2), \qquad
  \dot E = m F \dot y_1$$

The force has no second derivative by the depth at touch-down; the first derivatives of a trajectory exist. The domains are
$y_1 \ge 0$ in flight, $y_1 \le 0$ in stance and released.

Source: Dallas, Machairas, Papadopoulos (2017), *A comparison of ordinary differential equation solvers for dynamical systems with
impacts*, ASME J. Comput. Nonlinear Dyn. 12, 061016, eqs. 18-35 and Table 2; Hunt, Crossley (1975), *Coefficient of restitution
interpreted as damping in vibroimpact*, J. Appl. Mech. 42, 440-445, for the force.
"""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from .._system.system import HybridSystem, Mode, Transition, unchanged
from ._common import box, ground as ground, parameter, refuse_unless, require, spring

title = "Monopod hopper"
source = "Dallas, Machairas, Papadopoulos, J. Comput. Nonlinear Dyn. 12 (2017)"

FULL = 4 * math.pi**2


class Params(Shown):
    """Ground, masses and weight, without dimension; the defaults are the source's nominal set."""

    damping: Float[Array, ""] = parameter(1951.0, "1", "damping b of the ground")
    toe_mass: Float[Array, ""] = parameter(1.88, "1", "4 pi^2 times the toe's part m of the mass")
    stiffness: Float[Array, ""] = parameter(22.8, "1", "stiffness k of the ground, against that of the leg")
    weight: Float[Array, ""] = parameter(0.051, "1", "weight f")
    adhesion: Float[Array, ""] = parameter(1.0, "1", "1: the ground may pull, as in the source; 0: it may not")

    def __check_init__(self):
        require(self, nonnegative="damping", positive="toe_mass stiffness weight")
        refuse_unless(
            self.toe_mass < FULL, f"toe_mass={self.toe_mass} must be less than 4 pi^2, the mass of toe and body."
        )
        require(self, at_most_one="adhesion")


# The source's Table 2: (b, m, k, f) of its sets 1 to 13.
TABLE_2 = (
    (1951.0, 20.0, 22.8, 0.051),
    (1951.0, 10.4, 22.8, 0.051),
    (1951.0, 1.88, 22.8, 0.010),
    (550.0, 1.88, 22.8, 0.051),
    (1951.0, 1.88, 22.8, 0.051),
    (1951.0, 1.88, 22.8, 0.155),
    (1951.0, 0.80, 22.8, 0.051),
    (1951.0, 1.88, 22.8, 0.300),
    (19275.0, 1.88, 22.8, 0.051),
    (1951.0, 1.88, 240.5, 0.051),
    (38000.0, 1.88, 22.8, 0.051),
    (1951.0, 1.88, 480.0, 0.051),
    (1951.0, 1.88, 1.0, 0.051),
)


def table_2(number: int, **others) -> Params:
    """The parameters of a row of the source's Table 2, 1 to 13; `others`: further parameters. `ValueError` for another number."""
    if number not in range(1, 14):
        raise ValueError(f"table_2: number={number!r} must be one of 1 to 13, the rows of Table 2.")
    values = zip(("damping", "toe_mass", "stiffness", "weight"), TABLE_2[number - 1], strict=True)
    return Params(**dict(values), **others)


def equilibrium(params: Params, printed: bool = False) -> Float[Array, "4"]:
    """Rest, in stance. `printed`: the source's eq. 29, which is not rest."""
    factor = 1.0 if printed else FULL - params.toe_mass
    depth = (FULL * params.weight / (params.stiffness * params.toe_mass * factor)) ** (2 / 3)
    zero = jnp.zeros_like(depth)
    return jnp.stack([-depth, zero, 1 - depth - params.weight / params.toe_mass, zero])


def stiffness_ratio(params: Params, printed: bool = False) -> float:
    r"""$\max_j|\mathrm{Re}\,\lambda_j| / \min_j|\mathrm{Re}\,\lambda_j|$ of the flow in stance, linearized at rest (eq. 28).

    **Arguments:** `printed`: linearized at the source's eq. 29, as its eq. 31 and Table 2 are.
    """
    depth = float(-equilibrium(params, printed)[0])
    b, m, k = float(params.damping), float(params.toe_mass), float(params.stiffness)
    leg = FULL - m
    # d(F)/d(y_1) at rest, where the toe does not move.
    jacobian = [[0, 1, 0, 0], [-leg - 1.5 * leg * k * depth**0.5, -b * depth**1.5, leg, 0], [0, 0, 0, 1], [m, 0, -m, 0]]
    rates = np.abs(np.linalg.eigvals(np.array(jacobian)).real)
    return float(rates.max() / rates.min())


def compression(x, thrust=0.0):
    """The compression of the leg, of free length `1 + thrust`."""
    toe, _, body, _ = x
    return 1 + thrust + toe - body


def ground_force(x, params):
    """Hunt and Crossley's force per unit of toe mass, zero above the ground."""
    toe, toe_rate, _, _ = x
    # Hazard: the square root's derivative at zero is infinite, and times zero NaN.
    deep = jnp.where(toe < 0, -toe, 1)
    push = deep * jnp.sqrt(deep) * ((FULL - params.toe_mass) * params.stiffness - params.damping * toe_rate)
    return jnp.where(toe < 0, push, 0)


def accelerated(x, params, force, thrust=0.0):
    """The rate of the state under a force of the ground."""
    _, toe_rate, _, body_rate = x
    leg = compression(x, thrust)
    toe_acceleration = -(FULL - params.toe_mass) * leg - params.weight + force
    return jnp.stack([toe_rate, toe_acceleration, body_rate, params.toe_mass * leg - params.weight])


def fly(t, x, params):
    return accelerated(x, params, 0.0)


def stand(t, x, params):
    return accelerated(x, params, ground_force(x, params))


def toe_height(t, x, params):
    return x[0]


def toe_depth(t, x, params):
    return -x[0]


def push(t, x, params):
    """Positive while the ground pushes: its force over the depth's power."""
    return (FULL - params.toe_mass) * params.stiffness - params.damping * x[1]


def pull(t, x, params):
    return -push(t, x, params)


def yields(t, x, params):
    return params.adhesion < 0.5


def energy(x, params, thrust=0.0):
    r"""$E$, whose rate is the power $m F\dot y_1$ of the ground's force, while the thrust is constant."""
    toe, toe_rate, body, body_rate = x
    m, leg = params.toe_mass, FULL - params.toe_mass
    moving = (m * toe_rate**2 + leg * body_rate**2) / 2
    return moving + m * leg * compression(x, thrust) ** 2 / 2 + params.weight * (m * toe + leg * body)


coordinates = ("toe", "toe_rate", "body", "body_rate")
units, time_unit = ("l", "l/T", "l", "l/T"), "T"
system = HybridSystem(
    modes={
        "flight": Mode(fly, coordinates, domain=toe_height, units=units),
        "stance": Mode(stand, coordinates, domain=toe_depth, units=units),
        "released": Mode(fly, coordinates, domain=toe_depth, units=units),
    },
    transitions=(
        Transition("flight", "stance", guard=toe_height, reset=unchanged),
        Transition("stance", "flight", guard=toe_depth, reset=unchanged),
        Transition("stance", "released", guard=push, reset=unchanged, armed=yields),
        Transition("released", "flight", guard=toe_depth, reset=unchanged),
        Transition("released", "stance", guard=pull, reset=unchanged),
    ),
    time_unit=time_unit,
)
# It comes to rest, and has no periodic orbit.
sequence = ()


def body_speed(t, x, params):
    """The body's velocity upwards."""
    return x[3]


# From the apex of a hop to the next.
step = ReturnMap(system, section=Section("flight", body_speed))


def start(params):
    """`(mode, x)`: dropped with the toe half a leg above the ground (the source's eq. 35)."""
    return "flight", jnp.array([0.5, 0.0, 1.5, 0.0], params.weight.dtype)


def outline(mode, x, params):
    """Toe, leg spring and body, in leg lengths."""
    toe, _, body, _ = x
    zero = jnp.zeros_like(toe)
    low, high = jnp.stack([zero, toe]), jnp.stack([zero, body])
    rise = jnp.stack([zero, zero + 0.1])
    return {
        "leg": spring(low, high, 6, 0.06),
        "toe": box(low + rise / 4, 0.1 + zero, 0.05 + zero),
        "body": box(high + rise, 0.4 + zero, 0.2 + zero),
    }


def travel(mode, x, params):
    """The travel of the toe: none, it hops on the spot."""
    return jnp.zeros(2, x.dtype)
