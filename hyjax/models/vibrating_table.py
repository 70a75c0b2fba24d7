r"""The ball on a vibrating table: free fall onto a surface that moves as $s(t) = A\sin\Omega t$, with restitution.

The height above the table is $h = y - s$:

$$\ddot h = -g - \ddot s(t), \qquad h = 0: \quad \dot h^+ = -e\,\dot h^-
  \quad\Leftrightarrow\quad \dot y^+ = -e\,\dot y^- + (1 + e)\,\dot s(t)$$

The stride is the stroboscopic map: from $t = 0$ to $t = T = 2\pi/\Omega$, with one impact between. With one bounce a
period the ball leaves the table at $\dot y^+ = gT/2$ and returns at $-gT/2$, at the phases $\varphi = \Omega t$ where

$$A\,\Omega\cos\varphi = \frac{1 - e}{1 + e}\,\frac{gT}{2}$$

The orbit with $\varphi > 0$ is stable near the fold where both appear, the orbit with $\varphi < 0$ never. The multipliers have
$\lambda_1\lambda_2 = e^2$ and $\lambda_1 + \lambda_2 = (1 + e)^2(1 - A\,\Omega^2\sin\varphi/g) - 2e$. The domain of the
flight is above the table, $h \ge 0$.

Source: Holmes (1982), *The dynamics of repeated impacts with a sinusoidally vibrating table*, J. Sound Vib. 84, 173-189;
Guckenheimer, Holmes (1983), *Nonlinear oscillations, dynamical systems, and bifurcations of vector fields*, Sec. 2.4. Both
neglect the table's displacement against the ball's; this model includes it.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import sin
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import Mode, unchanged
from ._common import clock, disc, impacts_in_a_period, parameter, require

title = "Vibrating table"
source = "Holmes, J. Sound Vib. 84 (1982); Guckenheimer, Holmes (1983), Sec. 2.4"


class Params(Shown):
    """Table and ball."""

    amplitude: Float[Array, ""] = parameter(0.05, "m", "amplitude A of the table")
    frequency: Float[Array, ""] = parameter(10.0, "rad/s", "angular frequency Omega of the table")
    restitution: Float[Array, ""] = parameter(0.8, "1", "coefficient of restitution e")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "acceleration of gravity g; 1 for dimensionless lengths")

    def __check_init__(self):
        require(self, nonnegative="amplitude", positive="frequency gravity", at_most_one="restitution")


def fall(t, x, params):
    # In the table's frame the table's motion enters the field, so the step size adapts to it. In the ground's frame the fall is
    # a parabola, exact for steps of any length, within which the table could move without being noticed.
    _, h_rate = x
    return jnp.stack([h_rate, params.amplitude * params.frequency**2 * sin(params.frequency * t) - params.gravity])


def height(t, x, params):
    return x[0]


def bounce(t, x, params):
    h, h_rate = x
    return jnp.stack([h, -params.restitution * h_rate])


def period_ends(t, x, params):
    return clock(t, params.frequency)


coordinates = ("h", "h_rate")
units, time_unit = ("m", "m/s"), "s"
flight = Mode(fall, coordinates, domain=height, units=units)
system = impacts_in_a_period(flight, height, bounce, period_ends, unchanged, time_unit)
sequence = ("before", "after")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """On the orbit of one bounce a period with positive phase, where it exists; at `t = 0`."""
    amplitude, omega, g = params.amplitude, params.frequency, params.gravity
    half = jnp.pi / omega
    ratio = (1 - params.restitution) / (1 + params.restitution) * g * half / (amplitude * omega)
    phase = jnp.arccos(jnp.clip(ratio, 0, 0.99))
    since = 2 * half - phase / omega
    y = amplitude * jnp.sin(phase) + g * half * since - g * since**2 / 2
    return jnp.stack([y, g * half - g * since - amplitude * omega])


def region(params):
    """The heights and speeds possible with at most two periods between bounces; at `t = 0`."""
    amplitude, omega, g = params.amplitude, params.frequency, params.gravity
    period = 2 * jnp.pi / omega
    fast = g * period + amplitude * omega
    return (
        jnp.stack([jnp.zeros_like(g), -fast - amplitude * omega]),
        jnp.stack([2 * amplitude + g * period**2 / 2, fast - amplitude * omega]),
    )


def start(params):
    """`(mode, x)`: the ball dropped from a little above the apex of one bounce a period."""
    omega, g = params.frequency, params.gravity
    high = 2 * params.amplitude + g * (jnp.pi / omega) ** 2
    return "before", jnp.stack([high, -params.amplitude * omega])


def outline(mode, x, params, t=0.0):
    """Table and ball at time `t`, in m, on the ground."""
    h, _ = x
    table = params.amplitude * sin(params.frequency * t)
    wide = 0.5 * (2 * params.amplitude + params.gravity * (jnp.pi / params.frequency) ** 2 / 2)
    radius = wide / 8
    return {
        "ball": disc(jnp.stack([jnp.zeros_like(h), table + h + radius]), radius),
        "table": jnp.stack([jnp.stack([-wide, table]), jnp.stack([wide, table])]),
    }
