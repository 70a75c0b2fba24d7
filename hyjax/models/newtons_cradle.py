r"""Newton's cradle with gaps: hanging balls that strike their neighbours one after the other, a family of guards.

Ball $k$ of the mass $m_k = \mu^k$, in units of that of the first, hangs on strings of the length $l$. Its displacement $x_k$ is
small against $l$, and the balls are $\delta$ apart where all hang at rest:

$$\ddot x_k = -\frac{g}{l}\,x_k, \qquad x_{k+1} - x_k + \delta = 0: \quad
  \dot x_k^+ = \dot x_k - \frac{(1 + e)\,m_{k+1}}{m_k + m_{k+1}}\,w, \quad
  \dot x_{k+1}^+ = \dot x_{k+1} + \frac{(1 + e)\,m_k}{m_k + m_{k+1}}\,w, \qquad w = \dot x_k - \dot x_{k+1}$$

The gaps separate the impacts: a ball is struck, flies on, and strikes the next. Equal elastic balls hand the velocity on
whole. Without gravity, $g = 0$, the balls are a chain on a line, which drifts apart after finitely many
impacts unless $e$ is small. Impacts of two
different pairs at one time are taken in turn. One ball that is struck from both sides at one time is `simultaneous_guards`: what
follows depends on the order. The domain is that in which no ball is beyond its neighbour.

`cradle(count)` makes the system of another number of balls; `system` has five.

Source: Herrmann, Seitz (1982), *How does the ball-chain work?*, Am. J. Phys. 50, 977-981; Hutzler, Delaney, Weaire, MacLeod
(2004), *Rocking Newton's cradle*, Am. J. Phys. 72, 1508-1516.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from .._system.system import HybridSystem, Mode, Transition
from ._common import disc, parameter, require

title = "Newton's cradle"
source = "Herrmann, Seitz, Am. J. Phys. 50 (1982); Hutzler, Delaney, Weaire, MacLeod, Am. J. Phys. 72 (2004)"


class Params(Shown):
    """Strings, gaps and balls."""

    length: Float[Array, ""] = parameter(0.15, "m", "length l of the strings")
    gravity: Float[Array, ""] = parameter(9.81, "m/s^2", "gravity g; 0 for a chain on a line")
    gap: Float[Array, ""] = parameter(0.002, "m", "gap delta between two balls that hang at rest")
    restitution: Float[Array, ""] = parameter(0.97, "1", "restitution e")
    mass_ratio: Float[Array, ""] = parameter(1.0, "1", "mass mu of a ball, in units of that of the ball before")

    def __check_init__(self):
        require(self, positive="length gap mass_ratio", nonnegative="gravity restitution", at_most_one="restitution")


def swing(t, x, params):
    place, rate = x.reshape(2, -1)
    return jnp.concatenate([rate, -(params.gravity / params.length) * place])


def gaps(t, x, params):
    place, _ = x.reshape(2, -1)
    return place[1:] - place[:-1] + params.gap


def strike(t, x, params, k):
    """Ball `k` strikes the next one."""
    place, rate = x.reshape(2, -1)
    impulse = (1 + params.restitution) / (1 + params.mass_ratio) * (rate[k] - rate[k + 1])
    return jnp.concatenate([place, rate.at[k].add(-params.mass_ratio * impulse).at[k + 1].add(impulse)])


def cradle(count: int) -> HybridSystem:
    """The system of `count` balls."""
    names = tuple(f"x{k}" for k in range(count))
    names, units = (*names, *(f"{name}_rate" for name in names)), ("m",) * count + ("m/s",) * count
    balls = Mode(swing, names, domain=gaps, units=units)
    return HybridSystem({"swing": balls}, (Transition("swing", "swing", gaps, strike),), time_unit="s")


COUNT = 5
system = cradle(COUNT)
(balls,) = system.modes.values()
coordinates, units, time_unit = balls.coordinates, balls.units, system.time_unit
sequence = ()


def turns_back(t, x, params):
    """The first ball turns back where it is farthest to the right."""
    return x[x.size // 2]


step = ReturnMap(system, section=Section("swing", turns_back), max_jumps=64)


def start(params):
    """`(mode, x)`: the first ball is pulled aside by a third of the length of the strings; the others hang at rest."""
    aside = -params.length / 3
    return "swing", jnp.zeros(2 * COUNT, aside.dtype).at[0].set(aside)


scenery = ("beam",)


def outline(mode, x, params):
    """Beam, strings and balls, in m. The balls fill the distance between two strings but for the gap."""
    place, _ = x.reshape(2, -1)
    size = 0.1 * params.length
    at = (2 * size + params.gap) * jnp.arange(len(place), dtype=x.dtype)
    turn = place / params.length
    down = params.length * jnp.stack([jnp.sin(turn), -jnp.cos(turn)], axis=1)
    up = jnp.stack([at, jnp.zeros_like(at)], axis=1)
    found = {}
    for k in range(len(place)):
        found[f"ball {k}"] = disc(up[k] + down[k], size)
        found[f"string {k}"] = jnp.stack([up[k], up[k] + down[k]])
    end = jnp.stack([2 * size, jnp.zeros_like(size)])
    return {**found, "beam": jnp.stack([up[0] - end, up[-1] + end])}
