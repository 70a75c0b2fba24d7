r"""A jerboa, which hops on two springy legs that land one after the other.

The equations are those of the biped on springy legs (`biped_slip`), with the springs of the hips at rest at two angles: the
legs land with different angles, and the hop is not the image of itself with the legs exchanged:

$$\ddot x = -\sum F_i\sin\alpha_i, \qquad \ddot y = \sum F_i\cos\alpha_i - 1, \qquad
\ddot\alpha_i = -\ddot x\cos\alpha_i - (\ddot y + 1)\sin\alpha_i - \omega^2(\alpha_i - \bar\alpha_i)$$

with $F_i = k(1 - y/\cos\alpha_i)$ for a leg that stands. The parameters, rounded, are those of the closed hop nearest to a
record of one stride, as `examples/jerboa.py` fits them. Energy is conserved: the hop is one of a family, `conserved=energy`.

Source: Ding, Moore, Gan (2022), *A template model explains jerboa gait transitions across a broad range of speeds*, Front.
Bioeng. Biotechnol. 10, 804826, and the record 20110531-1802-j30 of its data.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._results.shown import Shown
from ._common import parameter, require
from .biped_slip import (
    conserved as conserved,
    coordinates as coordinates,
    energy as energy,
    forces as forces,
    ground as ground,
    outline as outline,
    sequence as sequence,
    step as biped_step,
    system as system,
    time_unit as time_unit,
    units as units,
)

title = "Jerboa"
source = "Ding, Moore, Gan, Front. Bioeng. Biotechnol. 10 (2022)"


class Params(Shown):
    """Two legs of one stiffness, and the angles of their hips."""

    stiffness: Float[Array, ""] = parameter(45.0, "m g/l", "stiffness k of a leg", (30.0, 70.0))
    frequency: Float[Array, ""] = parameter(6.49, "sqrt(g/l)", "omega, of a leg that swings", (5.0, 8.0))
    left_angle: Float[Array, ""] = parameter(-0.074, "rad", "angle at which the spring of the left hip is at rest")
    right_angle: Float[Array, ""] = parameter(0.003, "rad", "angle at which the spring of the right hip is at rest")

    def __check_init__(self):
        require(self, positive="stiffness frequency")


# A hop has one highest point.
step = dataclasses.replace(biped_step, strides=1)


def guess(params):
    """The hop at the energy 4.977, at its highest point in the air."""
    speed, height, left, right, left_rate, right_rate = (
        2.8181977401416645, 1.005880748730208, 0.10093948168610492, -0.26093049856417333, 2.9781484029569247, 2.7182707098781607
    )  # fmt: skip
    return jnp.array([speed, height, 0.0, left, right, left_rate, right_rate, 0.0, 0.0])


def start(params):
    """`(mode, x)`: the hop."""
    return "gait", guess(params)
