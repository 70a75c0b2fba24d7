r"""A plant of third order under relay feedback, whose cycle slides along the switching surface: a Filippov system.

The relay pushes against the output $y = x_1$ of the plant $k\,(s^2 + 2\sigma\rho s + \rho^2) / ((s^2 + 2\zeta\omega s + \omega^2)
(s + \lambda))$, in observer form:

$$\dot x = A x - b\,\operatorname{sgn} x_1, \qquad
  A = \begin{pmatrix} -(2\zeta\omega + \lambda) & 1 & 0\\ -(2\zeta\omega\lambda + \omega^2) & 0 & 1\\ -\lambda\omega^2 & 0 & 0
  \end{pmatrix}, \qquad b = k \begin{pmatrix} 1\\ 2\sigma\rho\\ \rho^2 \end{pmatrix}$$

At $x_1 = 0$ both fields lead onto the surface where $|x_2| < k$. There the relay chatters, in the limit of infinitely fast
switching, and the flow slides: $\dot x_2 = x_3 - 2\sigma\rho x_2$, $\dot x_3 = -\rho^2 x_2$, the dynamics of the plant's zeros.
Zeros in the right half-plane, $\sigma < 0$, drive it along the surface until $|x_2| = k$, where one of the fields is tangent and
the flow leaves.

The cycle is symmetric: an arc on the positive side, a segment of sliding, and both again with the opposite sign. Sliding
erases a direction and leaves from a line, so two of the three multipliers are zero.

Source: Johansson, Rantzer, Åström (1999), *Fast switches in relay feedback systems*, Automatica 35, 539-552; di Bernardo,
Johansson, Vasca (2001), *Self-oscillations and sliding in relay feedback systems: symmetry and bifurcations*, Int. J.
Bifurcation Chaos 11, 1121-1140.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.filippov import filippov
from ._common import parameter, require

title = "Relay feedback"
source = "Johansson, Rantzer, Åström, Automatica 35 (1999); di Bernardo, Johansson, Vasca, Int. J. Bifurcation Chaos 11 (2001)"


class Params(Shown):
    """The plant."""

    gain: Float[Array, ""] = parameter(1.0, "1", "gain k")
    pole: Float[Array, ""] = parameter(1.0, "1/s", "real pole lambda")
    frequency: Float[Array, ""] = parameter(1.0, "1/s", "frequency omega of the pair of poles")
    damping: Float[Array, ""] = parameter(1.0, "1", "damping zeta of the pair of poles")
    zero_frequency: Float[Array, ""] = parameter(1.0, "1/s", "frequency rho of the zeros")
    zero_damping: Float[Array, ""] = parameter(
        -0.5, "1", "damping sigma of the zeros; below zero in the right half-plane"
    )

    def __check_init__(self):
        require(self, positive="gain pole frequency zero_frequency", nonnegative="damping")


def plant(x, params, relay):
    y, second, third = x
    lam, om, ze, rho = params.pole, params.frequency, params.damping, params.zero_frequency
    push = params.gain * relay
    return jnp.stack(
        [
            -(2 * ze * om + lam) * y + second + push,
            -(2 * ze * om * lam + om**2) * y + third + 2 * params.zero_damping * rho * push,
            -lam * om**2 * y + rho**2 * push,
        ]
    )


def above(t, x, params):
    return plant(x, params, -1.0)


def below(t, x, params):
    return plant(x, params, 1.0)


def output(t, x, params):
    return x[0]


coordinates = ("y", "x2", "x3")
units, time_unit = ("1", "1/s", "1/s^2"), "s"
system = filippov({1: above, -1: below}, output, coordinates, units=units, time_unit=time_unit)
sequence = ("+", "0", "-", "0")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Where the flow has just left the surface, upwards: x2 = k."""
    return params.gain * jnp.stack(
        [jnp.zeros_like(params.gain), jnp.ones_like(params.gain), 2 * params.zero_frequency**2]
    )


def region(params):
    """On the line along which the flow leaves the surface."""
    k, zero = params.gain, jnp.zeros_like(params.gain)
    return jnp.stack([zero, k, zero]), jnp.stack([zero, k, 4 * k * params.zero_frequency**2])


def start(params):
    """`(mode, x)`: off the surface."""
    return "+", params.gain * jnp.array([1.0, 0.0, 0.0], params.gain.dtype)
