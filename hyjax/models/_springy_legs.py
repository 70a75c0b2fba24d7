r"""Bodies on massless, springy legs that swing: the modes, guards and jumps that running models share.

The state is that of the body, the angles of the legs and their rates, followed by held flags of the legs that stand. A leg at the
angle $\beta_i$ to the vertical, positive with the foot ahead, below a hip at the height $h_i$, has the length $h_i/\cos\beta_i$;
it lands and lifts off at the length 1, $h_i = \cos\beta_i$. While it stands, its foot is at rest, so that $\dot\beta_i = -(\dot
x_i\cos\beta_i + \dot h_i\sin\beta_i)\cos\beta_i/h_i$, and it pushes with $F_i = k(1 - h_i/\cos\beta_i)$ along itself. It lands
only while it is ahead of the hip: just after lift-off the swing foot passes through the ground.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.fast import cos, sincos
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Scalar
from ._common import spring

Legs = Float[Array, " legs"]


class Hips(NamedTuple):
    """Heights of the hips, their velocities, the angle of the body and its rate."""

    height: Legs
    x_rate: Legs
    y_rate: Legs
    pitch: Scalar | float = 0.0
    pitch_rate: Scalar | float = 0.0


class SpringyLegs(NamedTuple):
    """A body of `body` coordinates on `count` legs; `hips`: the function from the state to its `Hips`."""

    count: int
    body: int
    hips: Callable[..., Hips]

    def parts(self, x) -> tuple[Legs, Legs, Legs]:
        """Angles of the legs to the body, their rates, and which of them stand."""
        angles, rates, stand = x[self.body :].reshape(3, self.count)
        return angles, rates, stand > 0.5

    def standing_rates(self, x) -> Legs:
        """The rates of the angles of legs whose feet are at rest."""
        hips = self.hips(x)
        sine, cosine = sincos(self.parts(x)[0] + hips.pitch)
        return -(hips.x_rate * cosine + hips.y_rate * sine) * cosine / hips.height - hips.pitch_rate

    def forces(self, x, stiffness) -> tuple[Legs, Legs]:
        """The forces of the legs on the body, to the right and up."""
        angles, _, stand = self.parts(x)
        hips = self.hips(x)
        sine, cosine = sincos(angles + hips.pitch)
        force = jnp.where(stand, stiffness * (1 - hips.height / cosine), 0)
        return -force * sine, force * cosine

    def spring_energy(self, x, stiffness) -> Scalar:
        """The energy of the legs that stand."""
        angles, _, stand = self.parts(x)
        hips = self.hips(x)
        shorter = 1 - hips.height / cos(angles + hips.pitch)
        return jnp.sum(jnp.where(stand, stiffness * shorter**2, 0)) / 2

    def foot_height(self, t, x, params) -> Legs:
        """The heights of the feet."""
        hips = self.hips(x)
        return hips.height - cos(self.parts(x)[0] + hips.pitch)

    def shortening(self, t, x, params) -> Legs:
        return -self.foot_height(t, x, params)

    def may_land(self, t, x, params):
        angles, _, stand = self.parts(x)
        return ~stand & (angles + self.hips(x).pitch > 0)

    def stands(self, t, x, params):
        return self.parts(x)[-1]

    def land(self, t, x, params, i):
        """The foot of leg `i` comes to rest."""
        rates = self.body + self.count
        return x.at[rates + i].set(self.standing_rates(x)[i]).at[rates + self.count + i].set(1)

    def lift_off(self, t, x, params, i):
        return x.at[self.body + 2 * self.count + i].set(0)

    def lines(self, x, places) -> list[Float[Array, "n 2"]]:
        """The legs from the hips, at the positions `places` along the ground, to the feet; those in the air at full length."""
        angles, _, stand = self.parts(x)
        hips = self.hips(x)
        sine, cosine = sincos(angles + hips.pitch)
        length = jnp.where(stand, hips.height / cosine, 1)
        tops = jnp.stack([jnp.broadcast_to(places, hips.height.shape), hips.height], axis=1)
        feet = tops + length[:, None] * jnp.stack([sine, -cosine], axis=1)
        return [spring(foot, top, 5, 0.04) for foot, top in zip(feet, tops, strict=True)]

    def system(self, move, body, names, units, time_unit, height) -> HybridSystem:
        """One mode, with a family of landings and one of lift-offs. **Arguments:** `names`: of the legs."""
        rates, flags = (tuple(f"{name}_{what}" for name in names) for what in ("rate", "stands"))
        units = (*units, *("rad",) * self.count, *(f"1/{time_unit}",) * self.count, *("1",) * self.count)
        mode = Mode(move, (*body, *names, *rates), domain=height, units=units, held=flags)
        ways = (
            Transition("gait", "gait", guard=self.foot_height, reset=self.land, armed=self.may_land),
            Transition("gait", "gait", guard=self.shortening, reset=self.lift_off, armed=self.stands),
        )
        return HybridSystem({"gait": mode}, ways, time_unit=time_unit)
