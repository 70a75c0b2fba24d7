r"""The powered compass gait: two equal legs with distributed mass, a hip with mass, spring, damper and motor, and a push-off.

Absolute angles $\theta_s$ (stance) and $\theta_n$ (swing) from the vertical, positive when the leg leans backward, so that
the hip is at $l(-\sin\theta_s, \cos\theta_s)$ from the stance foot. A leg has mass $m$, its centre of mass $c$ below the hip
and $a = l - c$ above the foot, and the moment of inertia $I$ about it; the hip's mass is $M$. With $D = \theta_s - \theta_n$,
$J_s = I + m a^2 + (M + m) l^2$, $J_n = I + m c^2$ and $\kappa = m l c$:

$$J_s\ddot\theta_s - \kappa\cos D\,\ddot\theta_n - \kappa\sin D\,\dot\theta_n^2 - g\,(m a + (M + m) l)\sin\theta_s = -\tau$$
$$J_n\ddot\theta_n - \kappa\cos D\,\ddot\theta_s + \kappa\sin D\,\dot\theta_s^2 + g\,m c\sin\theta_n = \tau$$

The torque at the hip acts on the swing leg, forward where positive, and its reaction on the stance leg. It is that of the
spring, of the damper and of the motor, whose torque a `controller` gives:

$$\tau = u(t, x) + k D + d\,\dot D$$

The swing foot strikes when $\theta_s + \theta_n + 2\gamma$ falls to zero with $\theta_s < \theta_n$ (the new foot ahead). Just
before it does, an impulse $P$ at the old stance foot, along its leg, pushes off; then the new foot stops, by an impulse
$\Lambda$ at that foot, and the old one leaves. With the mass matrix $\mathcal M$ of the two legs free of the ground, whose
coordinates $q$ are those of the hip and the angles, and with the Jacobians $G_s$, $G_n$ of the positions of the feet:

$$\mathcal M\,(\dot q^+ - \dot q^-) = G_s^\top P\,(-\sin\theta_s, \cos\theta_s) + G_n^\top\Lambda, \qquad G_n\dot q^+ = 0$$

The leg's line passes through the hip, so about the hip the old stance leg's angular momentum is conserved; that of the whole
about the new foot, which is conserved but for $P$, jumps by $l P\sin D$. With $\omega_s$, $\omega_n$ the rates after the
strike of the new stance leg and of the new swing leg:

$$(J_s - \kappa\cos D)\,\omega_s + (J_n - \kappa\cos D)\,\omega_n
  = ((M l^2 + 2 m a l)\cos D + I - m a c)\,\dot\theta_s^- + (I - m a c)\,\dot\theta_n^- + l P\sin D$$
$$J_n\,\omega_n - \kappa\cos D\,\omega_s = (I - m a c)\,\dot\theta_s^-$$

With $P = k = d = u = I = 0$ it is the compass gait with $\mu = M/m$ and $\beta = c/a$.

A walker has fallen, and left the domain, when its hip is on the slope: $\cos(\theta_s + \gamma) \ge 0$.

On level ground, without damping and controller, there are two gaits as for the simplest walker. The longer one is its own
mirror image in time: the push-off and the strike leave both rates as they are; with the default values it is stable. A damper
takes energy from the swing that nothing restores, and the gaits meet in a fold at $d = 4.6\cdot10^{-4}$ already; with a
constant torque of 0.02 there are gaits at $d = 0.03$.

A controller is any PyTree that is called with `(t, x)`, such as a network whose weights are array leaves. Its `t` is the time
since the start of the stride or the simulation, and is not restarted by a strike within it.

Source: Goswami, Espiau, Keramane (1996), *Limit cycles and their stability in a passive bipedal gait*, ICRA, for the compass
gait; Kuo (2002), *Energetics of actively powered locomotion using the simplest walking model*, J. Biomech. Eng. 124, 113-120,
for the spring and the push-off.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import sin, sincos
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Scalar, State, Time
from . import compass_gait
from ._common import parameter, refuse_unless, require, require_sequence, require_slope
from .compass_gait import foot_ahead, foot_height, hip_height, solve2

title = "Powered compass gait"
source = "Goswami, Espiau, Keramane, ICRA (1996); Kuo, J. Biomech. Eng. 124 (2002)"


class ConstantTorque(eqx.Module):
    """A controller without feedback, zero by default: `torque` at all times."""

    torque: Float[Array, ""] = parameter(0.0, "N m or 1", "torque on the swing leg, forward positive")

    def __call__(self, t: Time, x: State) -> Scalar:
        return self.torque


class Params(Shown):
    """Ground, masses, lengths, spring and damper, push-off, controller; the defaults are a stable gait on level ground."""

    slope: Float[Array, ""] = parameter(0.0, "rad", "slope of the ground, downhill positive", (-0.02, 0.05))
    hip_mass: Float[Array, ""] = parameter(1.0, "kg or 1", "mass M of the hip")
    leg_mass: Float[Array, ""] = parameter(0.5, "kg or 1", "mass m of a leg")
    inertia: Float[Array, ""] = parameter(0.02, "kg m^2 or 1", "moment of inertia I of a leg about its centre of mass")
    com: Float[Array, ""] = parameter(0.5, "m or 1", "distance c of a leg's centre of mass from the hip")
    leg_length: Float[Array, ""] = parameter(1.0, "m or 1", "leg length l")
    gravity: Float[Array, ""] = parameter(1.0, "m/s^2 or 1", "acceleration of gravity g; 1 for dimensionless time")
    stiffness: Float[Array, ""] = parameter(0.1, "N m/rad or 1", "stiffness k of the hip's spring")
    damping: Float[Array, ""] = parameter(0.0, "N m s/rad or 1", "constant d of the hip's damper")
    push_off: Float[Array, ""] = parameter(0.15, "N s or 1", "impulse P along the trailing leg")
    controller: Callable[[Time, State], Scalar] = eqx.field(default_factory=ConstantTorque)

    def __check_init__(self):
        require_slope(self)
        require_legs(self)
        require(self, nonnegative="stiffness damping")
        if not callable(self.controller):
            raise ValueError(f"Params: controller={self.controller!r} must be a function of (t, x).")


def require_legs(params) -> None:
    """`ValueError` unless masses, lengths, gravity and push-off are those of a walker."""
    require(params, nonnegative="hip_mass inertia", positive="leg_mass leg_length gravity")
    refuse_unless(
        (params.com > 0) & (params.com <= params.leg_length),
        f"com={params.com} must lie in (0, leg_length={params.leg_length}].",
    )
    require(params, nonnegative="push_off")


def inertias(params):
    """$J_s$ and $J_n$, of the stance leg with all that it carries about its foot, and of the swing leg about the hip; kappa."""
    M, m, c, l = params.hip_mass, params.leg_mass, params.com, params.leg_length
    stance = params.inertia + m * (l - c) ** 2 + (M + m) * l**2
    return stance, params.inertia + m * c**2, m * l * c


def move(x, torque, params):
    """The vector field for a torque between the legs, on the swing leg forward where positive."""
    stance, swing, stance_rate, swing_rate = x
    M, m, c, l, g = params.hip_mass, params.leg_mass, params.com, params.leg_length, params.gravity
    inertia_stance, inertia_swing, kappa = inertias(params)
    sin_d, cos_d = sincos(stance - swing)
    sin_stance, sin_swing = sin(stance), sin(swing)
    coupling = -kappa * cos_d
    on_stance = kappa * sin_d * swing_rate**2 + g * (m * (l - c) + (M + m) * l) * sin_stance - torque
    on_swing = -kappa * sin_d * stance_rate**2 - g * m * c * sin_swing + torque
    accelerations = solve2(inertia_stance, coupling, coupling, inertia_swing, on_stance, on_swing)
    return jnp.stack([stance_rate, swing_rate, *accelerations])


def hip_torque(t, x, params):
    """The torque of controller, spring and damper at the hip."""
    stance, swing, stance_rate, swing_rate = x
    passive = params.stiffness * (stance - swing) + params.damping * (stance_rate - swing_rate)
    return params.controller(t, x) + passive


def power(t, x, params):
    """The power of the controller's torque on the legs, in W or 1."""
    _, _, stance_rate, swing_rate = x
    return params.controller(t, x) * (swing_rate - stance_rate)


def swing(t, x, params):
    return move(x, hip_torque(t, x, params), params)


def heel_strike(t, x, params):
    """The push-off along the trailing leg and the strike of the other; the legs change roles."""
    stance, swing, stance_rate, swing_rate = x
    M, m, c, l, I = params.hip_mass, params.leg_mass, params.com, params.leg_length, params.inertia
    inertia_stance, inertia_swing, kappa = inertias(params)
    a = l - c
    sin_d, cos_d = sincos(stance - swing)
    about_foot = (
        ((M * l**2 + 2 * m * a * l) * cos_d + I - m * a * c) * stance_rate
        + (I - m * a * c) * swing_rate
        + l * params.push_off * sin_d
    )
    about_hip = (I - m * a * c) * stance_rate
    coupling = -kappa * cos_d
    whole = inertia_stance - kappa * cos_d, inertia_swing - kappa * cos_d
    return jnp.stack([swing, stance, *solve2(*whole, coupling, inertia_swing, about_foot, about_hip)])


coordinates, units, time_unit = compass_gait.coordinates, compass_gait.units, compass_gait.time_unit
region, outline, travel, ground = compass_gait.region, compass_gait.outline, compass_gait.travel, compass_gait.ground
system = HybridSystem(
    modes={"swing": Mode(swing, coordinates, domain=hip_height, units=units)},
    transitions=(Transition("swing", "swing", guard=foot_height, reset=heel_strike, armed=foot_ahead),),
    time_unit=time_unit,
)
sequence = ("swing",)
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Near the gait of the default values."""
    rate = jnp.sqrt(params.gravity / params.leg_length)
    return jnp.stack([0.22 + 0 * rate, -0.22 - 2 * params.slope, -0.34 * rate, -0.29 * rate])


def start(params):
    """`(mode, x)`: just after a strike, near the gait of the default values."""
    return "swing", guess(params)


def on_section(params, stance, stance_rate):
    """The state just after a strike with these values. The strike leaves the swing leg's rate free: it is 0.84 times that of the
    stance leg, as in the gait of the default values."""
    return jnp.stack([stance, -stance - 2 * params.slope, stance_rate, 0.84 * stance_rate])


# The plane of initial states for a basin of attraction, and the guards that end the motion: the stance leg lies on the slope.
plane = {"theta_s": (0.0, 0.45), "theta_s_rate": (-0.8, 0.0)}
outcomes = {
    "fell forward": lambda t, x, params: x[0] + params.slope + jnp.pi / 2,
    "fell backward": lambda t, x, params: jnp.pi / 2 - x[0] - params.slope,
}


def push_off_work(between, params):
    r"""The work of the push-off at the angle `between` the legs: $\tfrac12 P^2 e^\top A^{-1} e$.

    $A$ is the inertia that the hip has for an impulse there, with both legs, which turn freely about it: each adds its mass $m$
    along the leg and $m I / (I + m c^2)$ across it. $e$ is the direction of the trailing leg, whose foot was at rest.
    """
    M, m, c, I = params.hip_mass, params.leg_mass, params.com, params.inertia
    across = m * I / (I + m * c**2)
    sine, cosine = sincos(between)
    ee = M + m + m * cosine**2 + across * sine**2
    nn = M + across + m * sine**2 + across * cosine**2
    en = (m - across) * sine * cosine
    return params.push_off**2 / 2 * nn / (ee * nn - en**2)


def weight(params):
    """The weight of the whole walker, in N or 1."""
    return (params.hip_mass + 2 * params.leg_mass) * params.gravity


def impulsive_work(orbit, params):
    """The work of the push-offs of one period, in J or 1."""
    return jnp.sum(push_off_work(orbit.nodes[:, 0] - orbit.nodes[:, 1], params))


def cost_of_transport(orbit, params):
    """The work of the push-off over weight and distance, without the work of controller, damper and slope."""
    require_sequence(orbit, sequence, "cost_of_transport")
    between = orbit.nodes[:, 0] - orbit.nodes[:, 1]
    distance = jnp.sum(2 * params.leg_length * jnp.sin(between / 2))
    return impulsive_work(orbit, params) / (weight(params) * distance)


objectives = {"cost_of_transport": cost_of_transport}
