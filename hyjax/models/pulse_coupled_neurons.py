r"""Pulse-coupled leaky integrate-and-fire neurons, all to all: a family of guards, one for each neuron.

$$\dot v_i = I - \gamma v_i, \qquad v_i = 1: \quad v_i^+ = 0, \quad v_j^+ = v_j + \varepsilon/N$$

A pulse that lifts a neuron to the threshold makes it fire in the same event, and its own pulse may lift others: an *avalanche*.
It ends when $m$ neurons fire and $v_j + m\varepsilon/N < 1$ for each of the others. Those that fire are reset to 0, whatever
pulses they receive, and the others are lifted by $m\varepsilon/N$. Neurons that have fired together have one voltage from then
on, and fire together. Of neurons of one voltage the first counts as the one that meets the threshold. Derivatives are those of
the avalanche that takes place: at its border, where a neuron is lifted to the threshold exactly, they are one-sided.

The domain is $v_i \le 1$. For $\varepsilon > 0$ nearly all starts end in synchrony. In the *splay state* the neurons fire in
turn: just after a firing the voltages are 0 and $v \mapsto J - (J - v)z + \varepsilon/N$ of the one before, with $J = I/\gamma$
and $z = \exp(-\gamma T/N)$, and the last reaches 1 after $T/N$. The Jacobian of the map from a firing to the next is a companion
matrix.

With a *refractory* time $t_r$ a neuron that has fired stays at 0 for $t_r$ and ignores pulses. Its coordinate then is $t - t_f -
t_r$, minus the time that is left, and a held flag says so; it rests until the coordinate is 0, which is its voltage from then
on.

`network(count)` makes the system of another number of neurons, `network(count, refractory=True)` one with refractory times;
`system` has ten neurons, without.

Source: Mirollo, Strogatz (1990), *Synchronization of pulse-coupled biological oscillators*, SIAM J. Appl. Math. 50, 1645-1662,
for model and absorption.
"""

import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient, while_loop
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from .._system.system import HybridSystem, Mode, Transition
from ._common import parameter, refuse_unless, require

title = "Pulse-coupled neurons"
source = "Mirollo, Strogatz, SIAM J. Appl. Math. 50 (1990)"


class Params(Shown):
    """Equal neurons; voltages in units of the threshold."""

    drive: Float[Array, ""] = parameter(1.2, "1/tau", "drive I; above the leak, or the threshold is not reached")
    leak: Float[Array, ""] = parameter(1.0, "1/tau", "leak gamma")
    coupling: Float[Array, ""] = parameter(0.1, "1", "pulses of all neurons together, epsilon; excite above zero")
    refractory_time: Float[Array, ""] = parameter(0.25, "tau", "t_r, of a network with refractory=True")

    def __check_init__(self):
        require(self, positive="leak refractory_time")
        refuse_unless(self.drive > self.leak, f"drive={self.drive} must exceed leak={self.leak}.")
        refuse_unless(jnp.abs(self.coupling) < 1, f"coupling={self.coupling} must lie between -1 and 1.")


def integrate(t, x, params):
    return params.drive - params.leak * x


def below_threshold(t, x, params):
    return 1 - x


def first_of_equals(t, x, params):
    """Which neurons may fire: of several with one voltage the first."""
    return jnp.arange(x.size) == jnp.argmax(x)


def avalanche(v, i, pulse, rests=None):
    """Which neurons fire with neuron `i`: those that its pulse lifts to the threshold, and so on; and how many. `rests`: which
    neurons ignore pulses."""
    v, pulse = stop_gradient((v, pulse))
    # A neuron of the same voltage is at the threshold up to rounding.
    threshold = 1 - 64 * float(jnp.finfo(v.dtype).eps)
    count = lambda fires: jnp.sum(fires).astype(v.dtype)

    def lift(now):
        fires, _ = now
        lifted = v + count(fires) * pulse >= threshold
        after = fires | (lifted if rests is None else lifted & ~rests)
        return after, jnp.any(after & ~fires)

    fires, _ = while_loop(lambda now: now[1], lift, (jnp.arange(v.size) == i, jnp.array(True)))
    return fires, count(fires)


def fire(t, x, params, i):
    """Neuron `i` fires, with those that its pulse lifts to the threshold."""
    pulse = params.coupling / x.size
    fires, count = avalanche(x, i, pulse)
    return jnp.where(fires, 0, x + count * pulse)


def integrate_or_rest(t, x, params):
    v, rests = x.reshape(2, -1)
    return jnp.where(rests > 0, 1, integrate(t, v, params))


def below_threshold_or_end(t, x, params):
    """The distance from the threshold, or from the end of the rest."""
    v, rests = x.reshape(2, -1)
    return jnp.where(rests > 0, 0, 1) - v


def first_of_equals_or_resting(t, x, params):
    """Of neurons that rest for the same time the first ends its rest, and the others after it, at the same time."""
    ahead = below_threshold_or_end(t, x, params)
    return jnp.arange(ahead.size) == jnp.argmin(ahead)


def fire_or_end(t, x, params, i):
    """Neuron `i` fires, and rests, with those that it lifts to the threshold; or its rest ends, with those that end at that
    time."""
    v, rests = x.reshape(2, -1)
    resting, pulse = stop_gradient(rests) > 0, params.coupling / v.size
    fires, count = avalanche(v, i, pulse, resting)
    fired = jnp.where(fires, -params.refractory_time, jnp.where(resting, v, v + count * pulse))
    ends = resting & (jnp.abs(v) <= 64 * float(jnp.finfo(v.dtype).eps) * (1 + params.refractory_time))
    # One number for all that end: the time at which the first does.
    at_end = jnp.where(ends, v[i], v), jnp.where(ends, 0, rests)
    after = jnp.where(resting[i], at_end[0], fired), jnp.where(resting[i], at_end[1], jnp.where(fires, 1, rests))
    return jnp.concatenate(after)


def network(count: int, refractory: bool = False) -> HybridSystem:
    """The system of `count` neurons."""
    names, flags = (tuple(f"{letter}{k}" for k in range(count)) for letter in ("v", "rests"))
    if refractory:
        meet, reset, armed = below_threshold_or_end, fire_or_end, first_of_equals_or_resting
        neurons = Mode(integrate_or_rest, names, domain=meet, units=("1",) * 2 * count, held=flags)
    else:
        meet, reset, armed = below_threshold, fire, first_of_equals
        neurons = Mode(integrate, names, domain=meet, units=("1",) * count)
    spike = Transition("network", "network", guard=meet, reset=reset, armed=armed)
    return HybridSystem({"network": neurons}, (spike,), time_unit="tau")


def spikes(run):
    """Times and neurons of all spikes of a trajectory, those of avalanches too: two arrays of NumPy."""
    jumps, held = int(run.jumps), len(run.system.modes["network"].held)
    after = np.asarray(run.x_starts[1 : jumps + 1])
    # A neuron that fires is reset to 0, or begins to rest.
    fires = (after[:, held:] > 0) & (np.asarray(run.x_ends[:jumps, held:]) == 0) if held else after == 0
    arc, neuron = np.nonzero(fires)
    return np.asarray(run.end_times)[arc], neuron


COUNT = 10
system = network(COUNT)
(neurons,) = system.modes.values()
coordinates, units, time_unit = neurons.coordinates, neurons.units, system.time_unit
sequence = ()


def half_way(t, x, params):
    """The first neuron rises through half the threshold."""
    return 0.5 - x[0]


step = ReturnMap(system, section=Section("network", half_way))


def start(params):
    """`(mode, x)`: voltages between zero and nine tenths of the threshold, in no order."""
    return "network", 0.9 * (jnp.arange(COUNT, dtype=params.drive.dtype) * 0.618034 % 1)


scenery = ("threshold",)


def outline(mode, x, params):
    """A column for each neuron, as high as its voltage, below the threshold."""
    at = jnp.linspace(-0.9, 0.9, x.size)
    columns = {
        f"neuron {k}": jnp.array([[at[k], 0.0], [at[k], 1.0]]) * jnp.stack([jnp.ones_like(v), v])
        for k, v in enumerate(x)
    }
    return {**columns, "threshold": jnp.array([[-1.0, 1.0], [1.0, 1.0]])}
