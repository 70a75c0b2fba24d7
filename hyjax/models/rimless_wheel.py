r"""The rimless wheel: spokes without a rim, rolling down a slope, one collision per spoke.

$\theta$ is the angle of the stance spoke to the slope's normal, downhill positive; time is in $\sqrt{l/g}$:

$$\ddot\theta = \lambda^2\sin(\theta + \alpha), \qquad \lambda^2 = \frac{Ml^2}{I + Ml^2}$$

The next spoke strikes at $\theta = \pi/n$:

$$\theta^+ = -\theta, \qquad \dot\theta^+ = \mu\,\dot\theta, \qquad \mu = 1 + \lambda^2(\cos(2\pi/n) - 1)$$

The gait has a closed form: $\dot\theta_0^2 = 4\mu^2\lambda^2\sin(\pi/n)\sin\alpha/(1-\mu^2)$, with multipliers $0$ and
$\mu^2$. It exists where the wheel passes its highest point. A wheel that does not, rolls back: it leaves the domain,
$|\theta| \le \pi/n$, where the previous spoke would strike.

Source: Coleman (2009), *Numerical accuracy case studies of two systems with intermittent dynamics*, DCDIS-B 16, 59-87;
Bhounsule (2014), eqs. 17-21, where the slope is called both $\alpha$ and $\gamma$.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import sin
from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.system import HybridSystem, Mode, Transition
from ._common import parameter, refuse_unless

title = "Rimless wheel"
source = "Coleman, DCDIS-B 16 (2009); Bhounsule, DCDIS-B 21 (2014)"


class Params(Shown):
    """Geometry, inertia, ground."""

    spokes: Float[Array, ""] = parameter(6.0, "1", "number of spokes n", (4, 12, 1))
    inertia_ratio: Float[Array, ""] = parameter(2 / 3, "1", "lambda^2 = M l^2 / (I + M l^2)", (0.3, 1.0))
    slope: Float[Array, ""] = parameter(0.2, "rad", "slope of the ground alpha, downhill positive", (0.05, 0.5))

    def __check_init__(self):
        refuse_unless(self.spokes > 2, f"spokes={self.spokes} must be more than 2.")
        refuse_unless(
            (self.inertia_ratio > 0) & (self.inertia_ratio <= 1),
            f"inertia_ratio={self.inertia_ratio} must lie in (0, 1].",
        )


def roll(t, x, params):
    theta, theta_rate = x
    return jnp.stack([theta_rate, params.inertia_ratio * sin(theta + params.slope)])


def spoke_height(t, x, params):
    theta, _ = x
    return jnp.pi / params.spokes - theta


def both_feet_above(t, x, params):
    """The angles left until the next spoke strikes, and the previous one."""
    theta, _ = x
    half = jnp.pi / params.spokes
    return jnp.stack([half - theta, half + theta])


def collision(t, x, params):
    theta, theta_rate = x
    mu = 1 + params.inertia_ratio * (jnp.cos(2 * jnp.pi / params.spokes) - 1)
    return jnp.stack([-theta, mu * theta_rate])


coordinates = ("theta", "theta_rate")
units, time_unit = ("rad", "rad sqrt(g/l)"), "sqrt(l/g)"
system = HybridSystem(
    modes={"stance": Mode(roll, coordinates, domain=both_feet_above, units=units)},
    transitions=(Transition("stance", "stance", guard=spoke_height, reset=collision),),
    time_unit=time_unit,
)
sequence = ("stance",)
step = ReturnMap(system, sequence=sequence)


def guess(params):
    """Just after a collision, fast enough to pass the highest point."""
    return jnp.stack([-jnp.pi / params.spokes, jnp.sqrt(params.inertia_ratio)])


def start(params):
    """`(mode, x)`: just after a collision, fast enough to pass the highest point."""
    return "stance", guess(params)


def region(params):
    """Just after a collision: the spoke leans uphill by half the angle between spokes, and moves downhill."""
    half = jnp.pi / params.spokes
    return jnp.stack([-half, 0.01 * jnp.ones_like(half)]), jnp.stack([-half, 4 * jnp.ones_like(half)])


def outline(mode, x, params):
    """The spokes, from the stance foot; `x` along the slope, in spoke lengths."""
    theta, _ = x
    hub = jnp.stack([jnp.sin(theta), jnp.cos(theta)])
    lines = {"hub": hub[None]}
    for k in range(int(params.spokes)):
        angle = theta + 2 * jnp.pi * k / params.spokes
        tip = hub - jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        lines["stance spoke" if k == 0 else f"spoke {k}"] = jnp.stack([hub, tip])
    return lines


def travel(mode, x, params):
    """The vector from the foot of the stance spoke to that of the next."""
    return jnp.stack([2 * jnp.sin(jnp.pi / params.spokes), jnp.zeros(())])


def ground(params):
    """The angle by which the ground falls to the right, rad."""
    return params.slope
