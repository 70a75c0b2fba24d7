r"""The laws of a single contact: the force that holds it, Coulomb friction, and the impulse of an impact.

All laws are stated at the contact point, in terms of the compliance $W$, the drift and the velocity there.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._system.types import Flag, Params, Scalar
from .contact import coefficient, Contact
from .projection import holding, Projection, sliding

# The normal force, then the tangential force if the contact has a slip.
Forces = Float[Array, " rows"]


class Impulse(eqx.Module):
    """The impulse of an impact.

    **Attributes:** `p`: the impulse. `elastic`: whether the gap opens again. `side`: the sign of the slip after the impact, 0
    where the impulse stops the slip.
    """

    p: Forces
    elastic: Flag
    side: Scalar


def stick(seen: Projection) -> Forces:
    """The force under which the gap stays closed and the slip, if there is one, constant."""
    return holding(seen.compliance, -seen.drift)


def slide(contact: Contact, seen: Projection, side: int, params: Params) -> Forces:
    """The force under which the gap stays closed, with kinetic friction against a slip of sign `side`."""
    return sliding(seen.compliance, -seen.drift[0], coefficient(contact.kinetic, params, seen.drift), side)


def cone(contact: Contact, force: Forces, side: Scalar | int, params: Params) -> Scalar:
    r"""The distance to the face of the friction cone where a slip of sign $\sigma$ begins. $\mu_s f_n + \sigma f_t$."""
    normal, tangential = force
    return coefficient(contact.static, params, force) * normal + side * tangential


def gives_way(force: Forces) -> Scalar:
    """The sign of the slip that begins where friction cannot hold: opposite to the friction required."""
    return jnp.where(force[1] > 0, -1, 1).astype(force.dtype)


def can_hold(contact: Contact, seen: Projection, params: Params) -> Flag:
    """Whether friction holds a contact without slip."""
    force = stick(seen)
    # Strict inequality: the cone's guards must be positive where sticking begins, or they cannot fall.
    return cone(contact, force, gives_way(force), params) > 0


def pressed(seen: Projection) -> Flag:
    """Whether the normal force exceeds rounding. Where it vanishes the friction cone vanishes too, and the contact opens."""
    normal = stick(seen)[0] * jnp.linalg.norm(seen.jacobian[0])
    return normal > jnp.sqrt(jnp.finfo(normal.dtype).eps) * jnp.linalg.norm(seen.load)


def rises(seen: Projection, rate: Scalar, row: int) -> Flag:
    """Whether a gap that opens at that rate rises by more than its rounding, for longer than the rounding of time.

    A lower bounce cannot be distinguished from rest, and the next crossing of the surface would be missed.
    """
    # Well above the rounding within which the start of an arc counts as on its guard's surface.
    tiny = 4096 * float(jnp.finfo(rate.dtype).eps)
    by_q = seen.jacobian[row]
    by_t = seen.velocity[row] - by_q @ seen.v
    rounding = tiny * (jnp.abs(by_t * seen.t) + jnp.abs(by_q) @ jnp.abs(seen.q))
    pull = jnp.maximum(-seen.drift[row], 0)
    return (rate > tiny * jnp.abs(seen.t) * pull) & (rate**2 > 2 * rounding * pull)


def settles(contact: Contact, seen: Projection, row: int, rate: Scalar, params: Params) -> Flag:
    """Whether a contact whose gap would open at that rate stays closed."""
    return (rate <= coefficient(contact.settle, params, rate)) | ~rises(seen, rate, row)


def rebound(contact: Contact, seen: Projection, row: int, params: Params) -> Scalar:
    """The coefficient of restitution of an impact: 0 where the impact is plastic."""
    number = lambda value: coefficient(value, params, seen.velocity)
    restitution, closing = number(contact.restitution), -seen.velocity[row]
    elastic = (closing > number(contact.settle)) & rises(seen, restitution * closing, row)
    return jnp.where(elastic, restitution, 0)


def impact(contact: Contact, seen: Projection, params: Params) -> Impulse:
    r"""The impulse of an impact. $\dot g^+ = -e\,\dot g^-$, and $|p_t| \le \mu_s p_n$ or slip.

    Source: Kong, Payne, Zhu, Johnson (2024), eqs. 67-69; friction by Coulomb's law between the impulse and the velocity after
    the impact.
    """
    restitution = rebound(contact, seen, 0, params)
    elastic, change = restitution > 0, -seen.velocity.at[0].mul(1 + restitution)
    stops = holding(seen.compliance, change)
    if not contact.slips:
        return Impulse(stops, elastic, jnp.zeros_like(restitution))
    side = gives_way(stops)
    inside = cone(contact, stops, side, params) >= 0
    slips = sliding(seen.compliance, change[0], coefficient(contact.kinetic, params, stops), side)
    return Impulse(jnp.where(inside, stops, slips), elastic, jnp.where(inside, 0, side))
