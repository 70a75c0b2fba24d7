r"""The pressure relief valve: a disc on a preloaded spring opens above a set pressure, rattles on its seat, and may stay there.

With the lift $y_1$ of the disc, its speed $y_2$, and the pressure $y_3$ of the vessel, all dimensionless, while the valve is
**open**

$$\dot y_1 = y_2, \qquad \dot y_2 = -\kappa y_2 - (y_1 + \delta) + y_3, \qquad \dot y_3 = \beta\,(q - y_1\sqrt{y_3})$$

The pump delivers the flow $q$, and the valve releases $y_1\sqrt{y_3}$. At the seat, $y_1 = 0$, the disc bounces:
$y_2^+ = -e\,y_2^-$. The pressure of the vessel may be too low to lift the disc, $y_3 < \delta$; then the bounces become lower and
lower, and accumulate if they end before the pressure reaches $\delta$. After an impact with the speed $v$ they end after about
$2ev/\big((1 - e)(\delta - y_3)\big)$, while the pressure rises at the rate $\beta q$. So an impact leads to the **closed** valve,
$y_1 = y_2 = 0$, if $v$ is at most `settle`, $v_s$, and

$$2 e v\,\beta q < (1 - e)\,(\delta - y_3)^2, \qquad\qquad
  \text{closed:} \quad \dot y_3 = \beta q \quad \text{until} \quad y_3 = \delta$$

The bounces that are left out change the pressure by an amount of the order of $v_s^3$: during them the pressure rises as in the
closed valve, apart from a lift of the order of $v_s^2$ for a time of the order of $v_s$. At $y_3 = \delta$ the valve opens
again, from rest: $\ddot y_1 = 0$ and $\dddot y_1 = \beta q$ there. The domain of `open` is $y_1 \ge 0$.

The equilibrium $y_3 = y_1 + \delta$, $y_1\sqrt{y_3} = q$ is stable, at the default values, above a Hopf bifurcation at
$q = 8.4911$. Below, the disc oscillates, and from $q = 7.5572$ downwards, where the oscillation grazes the seat, it strikes.

A vessel without pressure is a proper start, but the derivative of $\sqrt{y_3}$ is infinite there: the model takes it as zero at
$y_3 = 0$ itself. As the flow is not smooth at such a start, derivatives of what follows have about half the digits of the states.

Source: Licskó, Champneys, Hős (2009), *Nonlinear analysis of a single stage pressure relief valve*, IAENG Int. J. Appl. Math.
39(4), 286-299, for the valve; Nagy, Plavecz, Hegedűs (2022), *The art of solving a large number of non-stiff, low-dimensional
ordinary differential equation systems on GPUs and CPUs*, Commun. Nonlinear Sci. Numer. Simul. 112, 106521, for its use as a
benchmark.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from .._system.system import HybridSystem, Mode, Transition
from ._common import box, parameter, require, spring

title = "Pressure relief valve"
source = "Licskó, Champneys, Hős, IAENG Int. J. Appl. Math. 39 (2009)"


class Params(Shown):
    """Valve, vessel and pump, dimensionless: time in that of the undamped disc on its spring, pressure in that of the
    atmosphere."""

    flow: Float[Array, ""] = parameter(3.0, "1", "flow q of the pump")
    damping: Float[Array, ""] = parameter(1.25, "1", "damping kappa of the disc")
    preload: Float[Array, ""] = parameter(10.0, "1", "set pressure delta, at which the preloaded spring yields")
    compressibility: Float[Array, ""] = parameter(
        20.0, "1", "rise beta of the vessel's pressure for each unit of net flow"
    )
    restitution: Float[Array, ""] = parameter(0.8, "1", "coefficient of restitution e of the seat")
    settle: Float[Array, ""] = parameter(1e-4, "1", "the valve may close in an impact of at most this speed")

    def __check_init__(self):
        require(self, positive="flow preload compressibility", nonnegative="damping settle", at_most_one="restitution")


def released(y1, y3):
    """The flow through the valve."""
    # Below this pressure the root is a constant: its infinite derivative at zero would make every tangent NaN.
    least = float(jnp.finfo(y3.dtype).tiny)
    return y1 * jnp.sqrt(jnp.maximum(y3, least))


def open_valve(t, x, params):
    y1, y2, y3 = x
    y2_rate = -params.damping * y2 - (y1 + params.preload) + y3
    y3_rate = params.compressibility * (params.flow - released(y1, y3))
    return jnp.stack([y2, y2_rate, y3_rate])


def closed_valve(t, x, params):
    return jnp.stack([params.compressibility * params.flow])


def lift(t, x, params):
    return x[0]


def speed(t, x, params):
    return x[1]


def lacking_pressure(t, x, params):
    (y3,) = x
    return params.preload - y3


def bounces_end(t, x, params):
    """Whether the bounces after an impact end before the pressure lifts the disc."""
    _, y2, y3 = x
    e, lacking = params.restitution, jnp.maximum(params.preload - y3, 0)
    rise = 2 * e * -y2 * params.compressibility * params.flow
    return (-y2 <= params.settle) & (rise < (1 - e) * lacking**2)


def bounces_on(t, x, params):
    return ~bounces_end(t, x, params)


def impact(t, x, params):
    y1, y2, y3 = x
    return jnp.stack([y1, -params.restitution * y2, y3])


def closes(t, x, params):
    return x[2:]


def opens(t, x, params):
    (y3,) = x
    zero = jnp.zeros_like(y3)
    return jnp.stack([zero, zero, y3])


coordinates = ("y1", "y2", "y3")
units, time_unit = ("1", "1", "1"), "1"
system = HybridSystem(
    modes={
        "open": Mode(open_valve, coordinates, domain=lift, units=units),
        "closed": Mode(closed_valve, ("y3",), units=units[2:]),
    },
    transitions=(
        Transition("open", "open", guard=lift, reset=impact, armed=bounces_on),
        Transition("open", "closed", guard=lift, reset=closes, armed=bounces_end),
        Transition("closed", "open", guard=lacking_pressure, reset=opens),
    ),
    time_unit=time_unit,
)
sequence = ("open",)
step = ReturnMap(system, sequence=sequence)
# The top of the lift, whether the disc strikes the seat in between or not.
top = Section("open", speed)


def equilibrium(params):
    """The lift and pressure at which the valve releases what the pump delivers, `(y1, 0, y3)`.

    With $z = \\sqrt{y_3}$: $z^3 - \\delta z - q = 0$, whose one positive root Newton's method finds from above.
    """
    z = jnp.sqrt(params.preload) + jnp.cbrt(params.flow)
    for _ in range(8):
        z = z - (z**3 - params.preload * z - params.flow) / (3 * z**2 - params.preload)
    return jnp.stack([params.flow / z, jnp.zeros_like(z), z**2])


def guess(params):
    """Just after the impact of the orbit with one impact, as a function of the flow, at the source's other values."""
    q = params.flow
    before = jnp.maximum(0.46 + 1.69 * q - 0.24 * q**2, 0.1)
    return jnp.stack([jnp.zeros_like(q), params.restitution * before, 5.0 + 1.3 * q + 0.52 * q**2])


def region(params):
    """On the seat, moving up."""
    zero = jnp.zeros_like(params.flow)
    return jnp.stack([zero, zero + 0.01, zero]), jnp.stack([zero, 4 + params.flow, params.preload + 6 * params.flow])


def start(params):
    """`(mode, x)`: lifted by 0.2, at rest, over a vessel without pressure."""
    zero = jnp.zeros_like(params.flow)
    return "open", jnp.stack([zero + 0.2, zero, zero])


scenery = ("seat", "opposite seat", "housing")


def outline(mode, x, params):
    """Disc, spring, housing and seat."""
    zero = jnp.zeros_like(params.flow)
    one = jnp.ones_like(params.flow)
    y1 = x[0] if mode == "open" else zero
    disc = jnp.stack([zero, y1 + 0.2])
    above = jnp.stack([zero, 1.2 * params.preload])
    left, right = jnp.stack([-one, zero]), jnp.stack([one, zero])
    return {
        "disc": box(disc, 3 * one, 0.4 * one),
        "spring": spring(disc + jnp.array([0.0, 0.2]), above, 6, 0.5),
        "seat": jnp.stack([3 * left, left, left + jnp.stack([zero, -3 * one])]),
        "opposite seat": jnp.stack([3 * right, right, right + jnp.stack([zero, -3 * one])]),
        "housing": jnp.stack([above - jnp.stack([2 * one, zero]), above + jnp.stack([2 * one, zero])]),
    }
