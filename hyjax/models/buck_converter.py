r"""The buck converter: a switch, a coil and a capacitor turn a high voltage into a lower one, under voltage control.

The states are the output voltage $v$, the coil current $i$, and the comparator's ramp $u$, which rises from $V_L$ to $V_U$
in a period and is reset:

$$C\dot v = i - \frac{v}{R}, \qquad L\,\dot i = \begin{cases} E - v & \text{on}\\ -v & \text{off} \end{cases}, \qquad
  \dot u = \frac{V_U - V_L}{T}$$

The control voltage is $c = a\,(v - V_\text{ref})$. The switch is off while $c > u$ and on while $c < u$. It turns on where
the ramp rises above $c$, and off where $c$ rises above the ramp, or at the end of a period, where the ramp drops below $c$;
it stays on there if $c$ lies below the foot of the ramp. The ramp is a state, as in the circuit, where it is the voltage of a
capacitor: so the system is autonomous.

The stride goes from foot to foot of the ramp, off first and then on: the stroboscopic map. It contracts areas by
$\exp(-T/RC)$, the product of two of its multipliers. The third is exactly 0: the stride ends where $u = V_U$ and its last
reset sets $u = V_L$ for every state before, so the last row of the return map's Jacobian is zero. The corresponding
eigenvalue of the monodromy matrix is 1: at fixed time a shift of the ramp is a shift along the orbit, which persists.

With the default values the orbit is stable up to an input voltage of 24.5 V, where its period doubles. The coil is assumed to
carry current at all times (continuous conduction): the domain is $i \ge 0$, $u \le V_U$, and $c \ge u$ off, $c \le u$ on.

Source: Hamill, Deane, Jefferies (1992), *Modeling of chaotic DC-DC converters by iterated nonlinear mappings*, IEEE Trans.
Power Electron. 7, 25-36; Fossas, Olivar (1996), *Study of chaos in the buck converter*, IEEE Trans. Circuits Syst. I 43,
13-25.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition, unchanged
from ._common import parameter, refuse_unless, require

title = "Buck converter"
source = "Hamill, Deane, Jefferies, IEEE Trans. Power Electron. 7 (1992); Fossas, Olivar, IEEE Trans. CAS-I 43 (1996)"


class Params(Shown):
    """Circuit and control. Time is in ms, so that mH and mF go with V, A and ohm."""

    input_voltage: Float[Array, ""] = parameter(24.0, "V", "input voltage E")
    resistance: Float[Array, ""] = parameter(22.0, "ohm", "load R")
    inductance: Float[Array, ""] = parameter(20.0, "mH", "inductance L of the coil")
    capacitance: Float[Array, ""] = parameter(0.047, "mF", "capacitance C")
    gain: Float[Array, ""] = parameter(8.4, "1", "gain a of the control")
    reference: Float[Array, ""] = parameter(11.3, "V", "reference voltage V_ref")
    ramp_low: Float[Array, ""] = parameter(3.8, "V", "foot V_L of the ramp")
    ramp_high: Float[Array, ""] = parameter(8.2, "V", "top V_U of the ramp")
    ramp_period: Float[Array, ""] = parameter(0.4, "ms", "period T of the ramp")

    def __check_init__(self):
        require(self, positive="input_voltage resistance inductance capacitance gain ramp_period")
        refuse_unless(
            self.ramp_high > self.ramp_low, f"ramp_high={self.ramp_high} must exceed ramp_low={self.ramp_low}."
        )


def circuit(x, params, supplied):
    voltage, current, _ = x
    voltage_rate = (current - voltage / params.resistance) / params.capacitance
    current_rate = (supplied - voltage) / params.inductance
    return jnp.stack([voltage_rate, current_rate, (params.ramp_high - params.ramp_low) / params.ramp_period])


def switch_off(t, x, params):
    return circuit(x, params, jnp.zeros_like(params.input_voltage))


def switch_on(t, x, params):
    return circuit(x, params, params.input_voltage)


def control(x, params):
    voltage, _, _ = x
    return params.gain * (voltage - params.reference)


def ramp_overtakes(t, x, params):
    _, _, ramp = x
    return control(x, params) - ramp


def ramp_is_overtaken(t, x, params):
    return -ramp_overtakes(t, x, params)


def ramp_ends(t, x, params):
    _, _, ramp = x
    return params.ramp_high - ramp


def conducts_off(t, x, params):
    return jnp.stack([x[1], ramp_ends(t, x, params), ramp_overtakes(t, x, params)])


def conducts_on(t, x, params):
    return jnp.stack([x[1], ramp_ends(t, x, params), ramp_is_overtaken(t, x, params)])


def above_foot(t, x, params):
    return control(x, params) > params.ramp_low


def below_foot(t, x, params):
    return ~above_foot(t, x, params)


def ramp_restarts(t, x, params):
    voltage, current, _ = x
    return jnp.stack([voltage, current, params.ramp_low])


coordinates = ("voltage", "current", "ramp")
units, time_unit = ("V", "A", "V"), "ms"
off = Mode(switch_off, coordinates, domain=conducts_off, units=units)
# "off again" is off after having been on in the same period: so a sequence describes every period.
system = HybridSystem(
    modes={"off": off, "on": Mode(switch_on, coordinates, domain=conducts_on, units=units), "off again": off},
    transitions=(
        Transition("off", "on", guard=ramp_overtakes, reset=unchanged),
        Transition("on", "off", guard=ramp_ends, reset=ramp_restarts, armed=above_foot),
        Transition("on", "on", guard=ramp_ends, reset=ramp_restarts, armed=below_foot),
        Transition("on", "off again", guard=ramp_is_overtaken, reset=unchanged),
        Transition("off again", "on", guard=ramp_overtakes, reset=unchanged),
        Transition("off", "off", guard=ramp_ends, reset=ramp_restarts),
        Transition("off again", "off", guard=ramp_ends, reset=ramp_restarts),
    ),
    time_unit=time_unit,
)
sequence = ("off", "on")
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """At the foot of the ramp: control voltage half-way up the ramp, coil current equal to the load's."""
    voltage = params.reference + (params.ramp_low + params.ramp_high) / 2 / params.gain
    return jnp.stack([voltage, voltage / params.resistance, params.ramp_low])


def region(params):
    """At the foot of the ramp: control voltage from the foot to as far above the top as the foot lies below it; coil current
    within half a period's gain of the load's."""
    low, high = (params.reference + ramp / params.gain for ramp in (params.ramp_low, params.ramp_high))
    swing = params.input_voltage * params.ramp_period / (2 * params.inductance)
    return (
        jnp.stack([low, low / params.resistance - swing, params.ramp_low]),
        jnp.stack([2 * high - low, high / params.resistance + swing, params.ramp_low]),
    )


def start(params):
    """`(mode, x)`: near the orbit, coil current equal to the load's."""
    return "off", guess(params)
