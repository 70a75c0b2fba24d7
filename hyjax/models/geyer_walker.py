r"""A point mass that walks on two massless, springy legs, with phases of double support: a conservative system.

Lengths in $l_0$, time in $\sqrt{l_0/g}$, forces in $mg$; the defaults are those of a person of 80 kg with legs of 1 m and of
14 kN/m. With the foot of the stance leg as origin,

$$\ddot x = F_x(x, y), \qquad \ddot y = F_y(x, y) - 1, \qquad F = k\Big(\frac1r - 1\Big)(x, y), \quad r = \sqrt{x^2 + y^2}.$$

The other leg is held at the angle $\alpha$ to the ground, and lands at $y = \sin\alpha$, its foot at $d = x + \cos\alpha$. Then
both legs push, with $F(x, y) + F(x - d, y)$, until the spring of the rear leg is relaxed, $r = 1$; the front foot is the next
origin. No leg has mass, so nothing is lost: the `energy` $\tfrac12(\dot x^2 + \dot y^2) + y + \tfrac12 k\sum(1 - r)^2$ is
conserved, and gaits come in families; give it to `periodic_orbit(..., conserved=energy)`.

A step goes from the vertical leg, $x = 0$, to the next, a stride is two. Which legs stand is held, and 2 is the front leg of two.
A leg that leaves the ground in single support, as in running, is outside of the domain.

Source: Geyer, Seyfarth, Blickhan (2006), *Compliant leg behaviour explains basic dynamics of walking and running*, Proc. R. Soc.
B 273, 2861-2867.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sin, sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from ._common import disc, ground as ground, parameter, refuse_unless, require, spring

title = "Walking on springy legs"
source = "Geyer, Seyfarth, Blickhan, Proc. R. Soc. B 273 (2006)"


class Params(Shown):
    """Two legs of one stiffness, and the angle at which they land."""

    stiffness: Float[Array, ""] = parameter(17.838939857288484, "m g/l", "stiffness k of a leg", (10.0, 60.0))
    attack_angle: Float[Array, ""] = parameter(
        1.2042771838760873, "rad", "angle alpha of the landing leg to the ground"
    )

    def __check_init__(self):
        require(self, positive="stiffness")
        refuse_unless(
            (self.attack_angle > 0) & (self.attack_angle < jnp.pi / 2),
            f"attack_angle={self.attack_angle} must lie between 0 and pi/2.",
        )


def force(x, y, params):
    """The force of the leg from a foot at the origin to the mass."""
    return params.stiffness * (1 / jnp.hypot(x, y) - 1) * jnp.stack([x, y])


def one_leg(t, x, params):
    return jnp.concatenate([x[2:4], force(x[0], x[1], params) - jnp.array([0, 1], x.dtype)])


def two_legs(t, x, params):
    return one_leg(t, x, params).at[2:].add(force(x[0] - x[4], x[1], params))


def energy(t, x, params):
    """The conserved energy, in m g l, from the ground; of either number of legs, by that of the coordinates."""
    feet = [0, x[4]] if x.size == 7 else [0]
    springs = sum((1 - jnp.hypot(x[0] - foot, x[1])) ** 2 for foot in feet)
    return (x[2] ** 2 + x[3] ** 2) / 2 + x[1] + params.stiffness * springs / 2


conserved = energy


def height(t, x, params):
    return x[1]


def shortening(t, x, params):
    """The shortening of the stance leg, the rear one of two."""
    return 1 - jnp.hypot(x[0], x[1])


def foot_height(t, x, params):
    return x[1] - sin(params.attack_angle)


def land(t, x, params):
    """The foot stands ahead; the leg that stood is the rear one."""
    reach = x[0] + cos(params.attack_angle)
    return jnp.concatenate([x[:4], reach[None], jnp.where(x[4:] > 0.5, 1.0, 2.0).astype(x.dtype)])


def lift_off(t, x, params):
    """The rear leg leaves the ground; the front foot is the origin."""
    return jnp.concatenate([x[:4].at[0].add(-x[4]), (x[5:] > 1.5).astype(x.dtype)])


def legs_pass(t, x, params):
    return -x[0]


coordinates, units = ("x", "y", "x_rate", "y_rate"), ("l", "l", "sqrt(g l)", "sqrt(g l)")
legs, time_unit = ("left_stands", "right_stands"), "sqrt(l/g)"
inside = lambda t, x, params: jnp.minimum(x[1], shortening(t, x, params))
single = Mode(one_leg, coordinates, domain=inside, units=(*units, "1", "1"), held=legs)
double = Mode(two_legs, coordinates, domain=height, units=(*units, "l", "1", "1"), held=("reach", *legs))
system = HybridSystem(
    {"fall": single, "double": double, "rise": single},
    (
        Transition("fall", "double", guard=foot_height, reset=land),
        Transition("double", "rise", guard=shortening, reset=lift_off),
        Transition("rise", "fall", guard=legs_pass, reset=unchanged),
    ),
    time_unit=time_unit,
)
coordinates, units = single.coordinates, single.units
step = ReturnMap(system, sequence=("fall", "double", "rise"), strides=2)
sequence = ()


def guess(params):
    """The symmetric walk at the energy 1.0449 (820 J) for the default legs, on a vertical left leg; from which others are
    continued."""
    return jnp.array([0.0, 0.9767548732668202, 0.3557465626333652, 0.0, 1.0, 0.0])


def start(params):
    """`(mode, x)`: the walk."""
    return "fall", guess(params)


def forces(mode, x, params):
    """The vertical forces of the legs, left and right."""
    rear = force(x[0], x[1], params)[1]
    if mode != "double":
        return rear * x[4:]
    return jnp.where(x[5:] > 1.5, force(x[0] - x[4], x[1], params)[1], rear)


def outline(mode, x, params):
    """Legs and body, in leg lengths, from the foot of the stance leg. A leg in the air is held at its angle of attack."""
    mass, foot = x[:2], jnp.zeros(2, x.dtype)
    sine, cosine = sincos(params.attack_angle)
    ahead = jnp.stack([x[4], 0 * x[4]]) if mode == "double" else mass + jnp.stack([cosine, -sine])
    return {
        "stance leg": spring(foot, mass, 5, 0.04),
        "other leg": spring(ahead, mass, 5, 0.04),
        "body": disc(mass, 0.08),
    }


def travel(mode, x, params):
    """The vector from the foot of the stance leg to that of the next: where the rear leg leaves the ground, otherwise zero."""
    reach = x[4] if mode == "double" else jnp.zeros((), x.dtype)
    return jnp.stack([reach, 0 * reach])
