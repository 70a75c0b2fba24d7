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

`network(count)` makes the system of another number of neurons; `system` has ten.

Source: Mirollo, Strogatz (1990), *Synchronization of pulse-coupled biological oscillators*, SIAM J. Appl. Math. 50, 1645-1662,
for model and absorption.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient, while_loop
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._system.section import Section
from .._system.system import HybridSystem, Mode, Transition
from ._parameter import parameter, refuse_unless, require

title = "Pulse-coupled neurons"
source = "Mirollo, Strogatz, SIAM J. Appl. Math. 50 (1990)"


class Params(eqx.Module):
    """Equal neurons; voltages in units of the threshold."""

    drive: Float[Array, ""] = parameter(1.2, "1/tau", "drive I; above the leak, or the threshold is not reached")
    leak: Float[Array, ""] = parameter(1.0, "1/tau", "leak gamma")
    coupling: Float[Array, ""] = parameter(0.1, "1", "pulses of all neurons together, epsilon; excite above zero")

    def __check_init__(self):
        require(self, positive="leak")
        refuse_unless(self.drive > self.leak, f"drive={self.drive} must exceed leak={self.leak}.")
        refuse_unless(jnp.abs(self.coupling) < 1, f"coupling={self.coupling} must lie between -1 and 1.")


def integrate(t, x, params):
    return params.drive - params.leak * x


def below_threshold(t, x, params):
    return 1 - x


def first_of_equals(t, x, params):
    """Of neurons of one voltage the first may fire."""
    return jnp.arange(x.size) == jnp.argmax(x)


def fire(t, x, params, i):
    """Neuron `i` fires, with those that its pulse lifts to the threshold."""
    n, count = x.size, lambda fires: jnp.sum(fires).astype(x.dtype)
    v, pulse = stop_gradient((x, params.coupling / n))
    # A neuron of the same voltage is at the threshold up to rounding.
    threshold = 1 - 64 * float(jnp.finfo(x.dtype).eps)

    def avalanche(now):
        fires, _ = now
        after = fires | (v + count(fires) * pulse >= threshold)
        return after, jnp.any(after & ~fires)

    fires, _ = while_loop(lambda now: now[1], avalanche, (jnp.arange(n) == i, jnp.array(True)))
    return jnp.where(fires, 0, x + count(fires) * params.coupling / n)


def network(count: int) -> HybridSystem:
    """The system of `count` neurons."""
    names = tuple(f"v{k}" for k in range(count))
    neurons = Mode(integrate, names, domain=below_threshold, units=("1",) * count)
    spike = Transition("network", "network", guard=below_threshold, reset=fire, armed=first_of_equals)
    return HybridSystem({"network": neurons}, (spike,), time_unit="tau")


def spikes(run):
    """Times and neurons of all spikes of a trajectory, those of avalanches too: two arrays of NumPy."""
    jumps = int(run.jumps)
    arc, neuron = np.nonzero(np.asarray(run.x_starts[1 : jumps + 1]) == 0)
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
