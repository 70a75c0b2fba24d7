r"""Two pulse-coupled leaky integrate-and-fire neurons: each is driven up to a threshold, fires, and kicks the other.

$$\dot v_j = I - \gamma v_j, \qquad v_j = 1: \quad v_j^+ = 0, \quad v_k^+ = v_k + \varepsilon$$

The domain is $v_j \le 1$. A kick up to the threshold or beyond makes the other fire at once: both are reset together, and
remain in synchrony. The mode names the neuron that fired last, so the sequence ("first", "second") is the alternating rhythm.

Just after one neuron fired, the voltage of the other is $u$. With $J = I/\gamma$, the voltage of the first, one firing later, is

$$h(u) = \varepsilon + J\,\frac{1 - u}{J - u}$$

and the rhythm is its fixed point, $2u = 2J + \varepsilon - \sqrt{(2J + \varepsilon)^2 - 4J(1 + \varepsilon)}$. The period is
$(2/\gamma)\ln\big((J - u)/(J - 1)\big)$, the multipliers $h'(u)^2$ and 0, where $h'(u) = -J(J - 1)/(J - u)^2$. On the orbit
$(J - u)^2 = J(J - 1) - \varepsilon(J - u)$: so kicks upwards ($\varepsilon > 0$) make the rhythm unstable, and nearly all starts
end in synchrony; kicks downwards make it stable.

Source: Mirollo, Strogatz (1990), *Synchronization of pulse-coupled biological oscillators*, SIAM J. Appl. Math. 50,
1645-1662, of which this is the case of a leaky integrator; van Vreeswijk, Abbott, Ermentrout (1994), *When inhibition not
excitation synchronizes neural firing*, J. Comput. Neurosci. 1, 313-321, for both signs.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import parameter, refuse_unless, require

title = "Integrate-and-fire pair"
source = "Mirollo, Strogatz, SIAM J. Appl. Math. 50 (1990)"


class Params(Shown):
    """Two equal neurons; voltages in units of the threshold."""

    drive: Float[Array, ""] = parameter(1.2, "1/tau", "drive I; above the leak, or the threshold is not reached")
    leak: Float[Array, ""] = parameter(1.0, "1/tau", "leak gamma")
    coupling: Float[Array, ""] = parameter(-0.1, "1", "kick epsilon to the other; excites above zero, else inhibits")

    def __check_init__(self):
        require(self, positive="leak")
        refuse_unless(self.drive > self.leak, f"drive={self.drive} must exceed leak={self.leak}.")
        refuse_unless(jnp.abs(self.coupling) < 1, f"coupling={self.coupling} must lie between -1 and 1.")


def integrate(t, x, params):
    return params.drive - params.leak * x


def first_below(t, x, params):
    v1, _ = x
    return 1 - v1


def second_below(t, x, params):
    _, v2 = x
    return 1 - v2


def alone(t, x, params):
    """Whether the kick leaves the other neuron below the threshold."""
    return jnp.min(x) + params.coupling < 1


def both(t, x, params):
    return ~alone(t, x, params)


def first_fires(t, x, params):
    _, v2 = x
    return jnp.stack([jnp.zeros_like(v2), v2 + params.coupling])


def second_fires(t, x, params):
    v1, _ = x
    return jnp.stack([v1 + params.coupling, jnp.zeros_like(v1)])


def both_fire(t, x, params):
    return jnp.zeros_like(x[:1])


def below_threshold(t, x, params):
    return 1 - x


def one_below(t, x, params):
    return 1 - x[0]


def ways_out(mode):
    """The transitions out of a mode: one neuron fires, alone or with the other."""
    return (
        Transition(mode, "first", guard=first_below, reset=first_fires, armed=alone),
        Transition(mode, "second", guard=second_below, reset=second_fires, armed=alone),
        Transition(mode, "together", guard=first_below, reset=both_fire, armed=both),
        Transition(mode, "together", guard=second_below, reset=both_fire, armed=both),
    )


coordinates = ("v1", "v2")
units, time_unit = ("1", "1"), "tau"
apart = Mode(integrate, coordinates, domain=below_threshold, units=units)
system = HybridSystem(
    modes={
        "first": apart,
        "second": apart,
        "together": Mode(integrate, ("v",), domain=below_threshold, units=units[:1]),
    },
    transitions=(
        *ways_out("first"),
        *ways_out("second"),
        Transition("together", "together", guard=one_below, reset=both_fire),
    ),
    time_unit=time_unit,
)
sequence = ("first", "second")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Just after the first neuron fired, the second about half a firing time from the threshold."""
    ratio = params.drive / params.leak
    v2 = ratio - jnp.sqrt(ratio * (ratio - 1)) + params.coupling / 2
    return jnp.stack([jnp.zeros_like(v2), v2])


def region(params):
    """Just after the first neuron fired: its voltage is zero, that of the second between a kick below zero and the threshold."""
    zero, one = jnp.zeros_like(params.drive), jnp.ones_like(params.drive)
    return jnp.stack([zero, jnp.minimum(params.coupling, 0)]), jnp.stack([zero, one])


def start(params):
    """`(mode, x)`: just after the first neuron fired, the second close to the threshold."""
    zero = jnp.zeros_like(params.drive)
    return "first", jnp.stack([zero, zero + 0.8])


scenery = ("threshold",)


def outline(mode, x, params):
    """A column for each neuron, as high as its voltage, below the threshold."""
    zero = jnp.zeros_like(params.drive)
    tops = [jnp.stack([zero + place, x[k % x.size]]) for k, place in enumerate((-0.3, 0.3))]
    feet = [top * jnp.array([1.0, 0.0]) for top in tops]
    return {
        "first": jnp.stack([feet[0], tops[0]]),
        "second": jnp.stack([feet[1], tops[1]]),
        "threshold": jnp.array([[-0.8, 1.0], [0.8, 1.0]]),
        "top of the first": tops[0][None],
        "top of the second": tops[1][None],
    }
