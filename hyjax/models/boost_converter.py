r"""The boost converter in discontinuous conduction: a switch on a clock, an ideal diode, and a duty that is sampled and held.

The switch closes at each tick, $t = kT$, and charges the coil for $dT$. Then the diode carries the coil's current $i$ into the
capacitor and the load, until the current is zero, and the coil idles to the next tick:

$$\text{on:}\;\; L\,\dot i = E, \quad C\dot v = -\frac{v}{R}, \qquad \text{diode:}\;\; L\,\dot i = E - v, \quad
  C\dot v = i - \frac{v}{R}, \qquad \text{idle:}\;\; i = 0, \quad C\dot v = -\frac{v}{R}$$

At the tick the controller samples the voltage $v_n$ and holds the duty $d = D - \kappa\,(v_n - v_\text{ref})$ for the period. If
the current has not come to zero at the tick (*continuous* conduction), the switch closes while the diode carries. The diode
also carries again where an idle coil's output falls below the input voltage $E$.

The states are $v$, and $i$ where there is a current. While the switch is closed they are followed by the time $s$ since the tick
and, held, $d$. The stride goes from tick to tick. In discontinuous conduction it depends on $v$ alone, because the coil is empty
at the tick: three of the four multipliers are zero. The orbit exists between two borders, at a small and at a large duty, where
the current comes to zero just at the tick. Domains: $s \le dT$ with $d \le 1$; $i \ge 0$; $v \ge E$ while the coil idles. The
controller does not saturate: a sampled duty outside of $(0, 1)$ ends a run as `outside_domain`.

Source: Tse (1994), *Flip bifurcation and chaos in three-state boost switching regulators*, IEEE Trans. Circuits Syst. I 41,
16-23.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import every, HybridSystem, Mode, Transition
from ._common import parameter, refuse_unless, require

title = "Boost converter"
source = "Tse, IEEE Trans. CAS-I 41 (1994)"


class Params(Shown):
    """Circuit and control. Time is in ms, so that mH and mF go with V, A and ohm."""

    input_voltage: Float[Array, ""] = parameter(16.0, "V", "input voltage E")
    inductance: Float[Array, ""] = parameter(0.208, "mH", "inductance L of the coil")
    capacitance: Float[Array, ""] = parameter(0.222, "mF", "capacitance C")
    resistance: Float[Array, ""] = parameter(12.5, "ohm", "load R")
    period: Float[Array, ""] = parameter(1 / 3, "ms", "switching period T")
    duty: Float[Array, ""] = parameter(0.2874, "1", "duty D at the reference voltage")
    gain: Float[Array, ""] = parameter(0.05, "1/V", "gain kappa of the control")
    reference: Float[Array, ""] = parameter(24.5, "V", "reference voltage v_ref")

    def __check_init__(self):
        require(self, positive="input_voltage inductance capacitance resistance period", at_most_one="duty")
        refuse_unless(self.duty > 0, f"duty={self.duty} must be positive.")


def period(params):
    return params.period


def switch_on(t, x, params):
    voltage, _, _, _ = x
    voltage_rate = -voltage / (params.resistance * params.capacitance)
    return jnp.stack([voltage_rate, params.input_voltage / params.inductance, jnp.ones_like(voltage)])


def diode_carries(t, x, params):
    voltage, current = x
    voltage_rate = (current - voltage / params.resistance) / params.capacitance
    return jnp.stack([voltage_rate, (params.input_voltage - voltage) / params.inductance])


def coil_idles(t, x, params):
    return -x / (params.resistance * params.capacitance)


def time_left(t, x, params):
    """The time until the switch opens."""
    _, _, elapsed, duty = x
    return duty * params.period - elapsed


def within_period(t, x, params):
    _, _, _, duty = x
    return jnp.stack([time_left(t, x, params), 1 - duty])


def current(t, x, params):
    return x[1]


def excess(t, x, params):
    """The excess of the output over the input voltage."""
    return x[0] - params.input_voltage


def opened(t, x, params):
    voltage, current, _, _ = x
    return jnp.stack([voltage, current])


def emptied(t, x, params):
    voltage, _ = x
    return jnp.stack([voltage])


def carries_again(t, x, params):
    return jnp.stack([x[0], jnp.zeros_like(x[0])])


def closed(voltage, current, params):
    """At a tick: the duty of the next period is sampled."""
    duty = params.duty - params.gain * (voltage - params.reference)
    return jnp.stack([voltage, current, jnp.zeros_like(voltage), duty])


def closed_on_current(t, x, params):
    voltage, current = x
    return closed(voltage, current, params)


def closed_on_idle(t, x, params):
    (voltage,) = x
    return closed(voltage, jnp.zeros_like(voltage), params)


coordinates = ("voltage", "current", "elapsed", "duty")
units, time_unit = ("V", "A", "ms", "1"), "ms"
system = HybridSystem(
    modes={
        "on": Mode(switch_on, coordinates[:3], domain=within_period, units=units, held=("duty",)),
        "diode": Mode(diode_carries, coordinates[:2], domain=current, units=units[:2]),
        "idle": Mode(coil_idles, coordinates[:1], domain=excess, units=units[:1]),
    },
    transitions=(
        Transition("on", "diode", guard=time_left, reset=opened),
        Transition("diode", "idle", guard=current, reset=emptied),
        Transition("idle", "diode", guard=excess, reset=carries_again),
        every(period, closed_on_idle, source="idle", target="on"),
        every(period, closed_on_current, source="diode", target="on"),
    ),
    time_unit=time_unit,
)
sequence = ("on", "diode", "idle")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """At a tick: the voltage at which the power that the coil takes in goes into the load, if the voltage did not ripple."""
    charge = params.resistance * params.period * params.duty**2 / (2 * params.inductance)
    voltage = params.input_voltage * (1 + jnp.sqrt(1 + 4 * charge)) / 2
    return closed(voltage, jnp.zeros_like(voltage), params)


def region(params):
    """At a tick, from the input voltage to four times as much; without current."""
    zero = jnp.zeros_like(params.duty)
    low = jnp.stack([params.input_voltage, zero, zero, zero])
    return low, jnp.stack([4 * params.input_voltage, zero, zero, zero + 1])


def start(params):
    """`(mode, x)`: at a tick, a little below the reference voltage."""
    voltage = 0.98 * params.reference
    return "on", closed(voltage, jnp.zeros_like(voltage), params)
