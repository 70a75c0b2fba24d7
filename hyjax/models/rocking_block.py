r"""The rocking block: a rigid rectangle on a rough floor, which rocks from one corner to the other.

Of half width $b$ and half height $h$, it stands on a base with the horizontal acceleration $A\sin\Omega t$; in the base's
frame, with $x, y$ the centre and $\theta$ the tilt to the left, per unit of mass,

$$\ddot x = -A\sin\Omega t, \qquad \ddot y = -g, \qquad \tfrac13(b^2 + h^2)\,\ddot\theta = 0,$$

and each corner is a contact without slip. With $R = \sqrt{b^2 + h^2}$, $\tan\alpha = b/h$ and
$p^2 = 3g/4R$ the block turns about the corner on which it stands by

$$\ddot\theta = \mp p^2\left(\sin(\alpha \mp \theta) \mp \tfrac{A}{g}\sin\Omega t\,\cos(\alpha \mp \theta)\right)$$

(upper signs: left corner). From rest it begins to rock where $|A\sin\Omega t| > g b/h$. When the other corner strikes, the
first corner leaves the floor, and $\dot\theta^+ = (1 - \tfrac32\sin^2\alpha)\,\dot\theta^-$: the conditions of contact imply
both. A block that overturns leaves the domain, $|\theta| \le \pi/2$, when it lies on its side. Free rocking from $\theta_0$
has, for small $\alpha$, the period $\frac4p\,\mathrm{arcosh}\frac{1}{1 - \theta_0/\alpha}$.

Source: Housner (1963), *The behavior of inverted pendulum structures during earthquakes*, Bull. Seismol. Soc. Am. 53,
403-417.
"""

import functools as ft
import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from ..contact import Contact, contact_system, Mechanism, start as begin
from ._common import parameter, require

title = "Rocking block"
source = "Housner, Bull. Seismol. Soc. Am. 53 (1963)"


class Params(Shown):
    """Block, base and impact."""

    half_width: Float[Array, ""] = parameter(0.1, "m", "half the width, b")
    half_height: Float[Array, ""] = parameter(0.4, "m", "half the height, h")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "acceleration of gravity g")
    restitution: Float[Array, ""] = parameter(0.0, "1", "coefficient of restitution e of a corner; 0 is Housner's")
    settle: Float[Array, ""] = parameter(0.001, "m/s", "a corner that strikes or leaves more slowly stays in contact")
    amplitude: Float[Array, ""] = parameter(0.0, "m/s^2", "amplitude A of the base's acceleration")
    frequency: Float[Array, ""] = parameter(5.0, "rad/s", "angular frequency Omega of the base")

    def __check_init__(self):
        require(self, positive="half_width half_height gravity", at_most_one="restitution")


def mass(q, params):
    one = jnp.ones_like(params.half_width)
    return jnp.diag(jnp.stack([one, one, (params.half_width**2 + params.half_height**2) / 3]))


def forces(t, q, v, params):
    sine = jnp.sin(params.frequency * t)
    return jnp.stack([-params.amplitude * sine, -params.gravity, jnp.zeros_like(sine)])


def lever(side, theta, params):
    """The vector from the centre to a lower corner: `side` is -1 for the left one, 1 for the right."""
    sine, cosine = jnp.sin(theta), jnp.cos(theta)
    b, h = side * params.half_width, params.half_height
    return jnp.stack([b * cosine + h * sine, b * sine - h * cosine])


def corner_height(side, t, q, params):
    return q[1] + lever(side, q[2], params)[1]


def corner_slip(side, t, q, v, params):
    return v[0] - lever(side, q[2], params)[1] * v[2]


def stands(t, x, params):
    """The angles left until the block lies on its left side, and on its right side."""
    theta = x[2]
    return jnp.stack([jnp.pi / 2 - theta, jnp.pi / 2 + theta])


def corner(side):
    return Contact(
        ft.partial(corner_height, side),
        ft.partial(corner_slip, side),
        restitution=lambda params: params.restitution,
        static=math.inf,
        settle=lambda params: params.settle,
    )


coordinates = ("x", "y", "theta", "x_rate", "y_rate", "theta_rate", "left", "right")
units, time_unit = ("m", "m", "rad", "m/s", "m/s", "rad/s", "1", "1"), "s"
system = contact_system(
    Mechanism(mass, forces), {"left": corner(-1), "right": corner(1)}, ("x", "y", "theta"), stands, units[:6], time_unit
)
# Without forcing the block comes to rest: there is no periodic orbit.
sequence = ()


def turn(t, x, params):
    """The angular velocity, rad/s."""
    return x[5]


# From the largest tilt over the left corner to the next.
step = ReturnMap(system, section=Section("contacts", turn))


def start(params):
    """`(mode, x)`: at rest, tilted over its left corner by half the critical angle."""
    theta = 0.5 * jnp.arctan2(params.half_width, params.half_height)
    centre = -lever(-1, theta, params) - jnp.stack([params.half_width, jnp.zeros_like(theta)])
    return begin(system, jnp.concatenate([centre, theta[None], jnp.zeros(3, theta.dtype)]), params)


scenery = ("floor",)


def outline(mode, x, params):
    """Block and floor, in m, in the frame of the base."""
    centre, theta = x[:2], x[2]
    left, right = lever(-1, theta, params), lever(1, theta, params)
    reach = 3 * params.half_height
    zero = jnp.zeros_like(reach)
    return {
        "block": centre + jnp.stack([left, right, -left, -right, left]),
        "floor": jnp.stack([jnp.stack([-reach, zero]), jnp.stack([reach, zero])]),
    }
