r"""Hard disks in a box: a gas whose disks collide with each other and with the walls, two families of guards.

Disks of unit mass and of the radius $r$ fly on straight lines, $\dot q_i = v_i$, $\dot v_i = 0$. In the unit box, where two of
them meet,

$$|q_j - q_i| = 2r: \qquad v_i^+ = v_i + (n\cdot(v_j - v_i))\,n, \quad v_j^+ = v_j - (n\cdot(v_j - v_i))\,n, \qquad
  n = \frac{q_j - q_i}{|q_j - q_i|}$$

and at a wall, $q = r$ or $q = 1 - r$, the component of the velocity that leads onto it changes its sign. There are $N(N - 1)/2$
guards of pairs and $4N$ of walls. Energy and the volume of the phase space are conserved. Small errors grow exponentially: the
Lyapunov exponents pair to zero, and two are zero, those along the flow and of the energy.

Two collisions at one time are taken in turn if they are of different disks. A disk that touches two others at
one time is `simultaneous_guards`: their order matters. The domain is that in which no disks overlap and all are in the box.

`gas(count)` makes the system of another number of disks, `gas(count, torus=True)` one on the unit torus, without walls, where a
pair is that of the nearest images; `system` has eight in a box.

Source: Alder, Wainwright (1959), *Studies in molecular dynamics. I. General method*, J. Chem. Phys. 31, 459-466, for the
collisions; Dellago, Posch, Hoover (1996), *Lyapunov instability in a system of hard disks in equilibrium and nonequilibrium
steady states*, Phys. Rev. E 53, 1485-1501, for the exponents.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.shown import Shown
from .._system.section import Section
from .._system.system import HybridSystem, Mode, Transition
from ._common import disc, parameter, refuse_unless, require

title = "Hard disks in a box"
source = "Alder, Wainwright, J. Chem. Phys. 31 (1959); Dellago, Posch, Hoover, Phys. Rev. E 53 (1996)"


class Params(Shown):
    """Lengths in units of the box."""

    radius: Float[Array, ""] = parameter(0.09, "box", "radius r of the disks")

    def __check_init__(self):
        require(self, positive="radius")
        refuse_unless(self.radius < 0.5, f"radius={self.radius} must be less than half the box, 0.5.")


def parts(x):
    """Positions and velocities, each of shape `(N, 2)`."""
    q, v = x.reshape(2, -1, 2)
    return q, v


def pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The disks of each pair, in the order of the guards."""
    first, second = np.triu_indices(count, 1)
    return first, second


def fly(t, x, params):
    _, v = parts(x)
    return jnp.concatenate([v.ravel(), jnp.zeros_like(v).ravel()])


def gaps(t, x, params):
    return squares(x, straight) - 4 * params.radius**2


def gaps_on_the_torus(t, x, params):
    return squares(x, nearest) - 4 * params.radius**2


def straight(apart):
    return apart


def nearest(apart):
    """Between the nearest images on the unit torus."""
    return apart - jnp.round(apart)


def squares(x, between):
    """The squared distance of each pair."""
    q, _ = parts(x)
    first, second = pairs(len(q))
    return jnp.sum(between(q[second] - q[first]) ** 2, axis=1)


def clearances(t, x, params):
    """The distances of all disks from the lower and left walls, then from the others."""
    q, _ = parts(x)
    return jnp.concatenate([q.ravel() - params.radius, 1 - params.radius - q.ravel()])


def free(t, x, params):
    return jnp.concatenate([gaps(t, x, params), clearances(t, x, params)])


def collide(t, x, params, k):
    return struck(x, k, straight)


def collide_on_the_torus(t, x, params, k):
    return struck(x, k, nearest)


def struck(x, k, between):
    """The state after the collision of pair `k`."""
    q, v = parts(x)
    first, second = (jnp.asarray(of)[k] for of in pairs(len(q)))
    apart = between(q[second] - q[first])
    push = apart * (apart @ (v[second] - v[first])) / (apart @ apart)
    return jnp.concatenate([q.ravel(), v.at[first].add(push).at[second].add(-push).ravel()])


def reflect(t, x, params, k):
    """The state after the reflection at wall `k` of `clearances`."""
    half = x.size // 2
    return x.at[half + k % half].multiply(-1)


def gas(count: int, torus: bool = False) -> HybridSystem:
    """The system of `count` disks, in the box or on the torus."""
    names = [f"{axis}{k}" for k in range(count) for axis in "xy"]
    names, units = (*names, *(f"{name}_rate" for name in names)), ("box",) * 2 * count + ("box/tau",) * 2 * count
    if torus:
        modes = {"gas": Mode(fly, names, domain=gaps_on_the_torus, units=units)}
        return HybridSystem(
            modes, (Transition("gas", "gas", gaps_on_the_torus, collide_on_the_torus),), time_unit="tau"
        )
    meet, bounce = Transition("gas", "gas", gaps, collide), Transition("gas", "gas", clearances, reflect)
    return HybridSystem({"gas": Mode(fly, names, domain=free, units=units)}, (meet, bounce), time_unit="tau")


COUNT = 8
system = gas(COUNT)
(of_gas,) = system.modes.values()
coordinates, units, time_unit = of_gas.coordinates, of_gas.units, system.time_unit
sequence = ()


def half_way(t, x, params):
    """The first disk passes the middle of the box from left to right."""
    return 0.5 - x[0]


step = ReturnMap(system, section=Section("gas", half_way))


def start(params):
    """`(mode, x)`: around the middle of the box, of unit speed in different directions."""
    places = np.array([(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]) / 3 + 1 / 6
    angle = 2.399963 * np.arange(1, COUNT + 1)
    x = np.concatenate([places.ravel(), np.stack([np.cos(angle), np.sin(angle)], axis=1).ravel()])
    return "gas", jnp.asarray(x, jnp.asarray(params.radius).dtype)


scenery = ("box",)


def outline(mode, x, params):
    """The disks in the box."""
    q, _ = parts(x)
    disks = {f"disk {k}": disc(centre, params.radius) for k, centre in enumerate(q)}
    return {**disks, "box": jnp.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])}
