r"""The laws of a single contact: the force that holds it, Coulomb friction, and the impulse of an impact.

All laws are stated at the contact point, in terms of the compliance $W$, the drift and the velocity there.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.programs import rounding_scale
from .._system.results import nan_unless, RESULTS
from .._system.types import Flag, Params, Scalar
from .contact import coefficient, Contact
from .projection import holding, Projection, sliding

# The normal force, then the tangential force if the contact has a slip.
Forces = Float[Array, " rows"]
# The solver's, relative and absolute.
Tolerances = tuple[float | Array, float | Array]


def stick(projected: Projection) -> Forces:
    """The force under which the gap stays closed and the slip, if there is one, constant."""
    return holding(projected.compliance, -projected.drift)


def slide(contact: Contact, projected: Projection, side: Scalar, params: Params) -> Forces:
    """The force under which the gap stays closed, with kinetic friction against a slip of sign `side`."""
    return sliding(
        projected.compliance, -projected.drift[0], coefficient(contact, "kinetic", params, projected.drift), side
    )


def cone(contact: Contact, force: Forces, side: Scalar, params: Params) -> Scalar:
    r"""The distance to the face of the friction cone where a slip of sign $\sigma$ begins. $\mu_s f_n + \sigma f_t$."""
    normal, tangential = force
    return coefficient(contact, "static", params, force) * normal + side * tangential


def gives_way(force: Forces) -> Scalar:
    """The sign of the slip that begins where friction cannot hold: opposite to the friction required."""
    return jnp.where(force[1] > 0, -1, 1).astype(force.dtype)


def can_hold(contact: Contact, projected: Projection, params: Params) -> Flag:
    """Whether friction holds a contact without slip."""
    force = stick(projected)
    # Strict inequality: the cone's guards must be positive where sticking begins, or they cannot fall.
    return cone(contact, force, gives_way(force), params) > 0


def pressed(projected: Projection) -> Flag:
    """Whether the normal force exceeds rounding. Where it vanishes the friction cone vanishes too, and the contact opens."""
    normal = stick(projected)[0] * jnp.linalg.norm(projected.jacobian[0])
    return normal > jnp.sqrt(jnp.finfo(normal.dtype).eps) * jnp.linalg.norm(projected.load)


def force_error(projected: Projection, row: int | slice = 0) -> Array:
    """The size of a normal force that counts as rounding, as in `pressed`."""
    lever = jnp.linalg.norm(projected.jacobian[row], axis=-1)
    size = jnp.sqrt(jnp.finfo(lever.dtype).eps) * jnp.linalg.norm(projected.load)
    return size / jnp.where(lever > 0, lever, 1)


def drift_errors(projected: Projection, tolerances: Tolerances) -> tuple[Forces, Forces]:
    r"""How far the gaps, and the velocities of the contact points, may be from zero by the drift of a contact that was held.

    Each coordinate may be off by $\sqrt\varepsilon$ of the largest and a thousand of the solver's errors: so the end of a run is
    a start of the next. Of each row, the gap's gradient is $J$, and that of the velocity is $J$ and, by the positions, $\dot J$.
    """
    (rtol, atol), rows = tolerances, projected.jacobian
    speed = jnp.max(jnp.abs(projected.v))
    size = jnp.maximum(jnp.max(jnp.abs(projected.q)), speed)
    off = float(jnp.finfo(size.dtype).eps) ** 0.5 * size + 1000 * (atol + rtol * size)
    turning = jnp.abs(projected.drift - rows @ projected.free) / jnp.where(speed > 0, speed, 1)
    steep = jnp.sum(jnp.abs(rows), axis=1)
    return steep * off, (steep + turning) * off


def rises(projected: Projection, rate: Array, row: int | slice) -> Array:
    """Whether a gap that opens at that rate rises by more than its rounding, for longer than the rounding of time.

    A lower bounce cannot be distinguished from rest, and the next crossing of the surface would be missed.
    """
    # Well above the rounding within which the start of an arc counts as on its guard's surface.
    tiny = 4096 * float(jnp.finfo(rate.dtype).eps)
    by_q = projected.jacobian[row]
    by_t = projected.velocity[row] - by_q @ projected.v
    t = rounding_scale(projected.t)
    rounding = tiny * (jnp.abs(by_t) * t + jnp.abs(by_q) @ jnp.abs(projected.q))
    pull = jnp.maximum(-projected.drift[row], 0)
    return (rate > tiny * t * pull) & (rate**2 > 2 * rounding * pull)


def rebound(contact: Contact, projected: Projection, row: int, params: Params) -> Scalar:
    """The coefficient of restitution of an impact: 0 where the impact is plastic."""
    number = lambda name: coefficient(contact, name, params, projected.velocity)
    restitution, closing = number("restitution"), -projected.velocity[row]
    elastic = (closing > number("settle")) & rises(projected, restitution * closing, row)
    # A coefficient out of its range is NaN, and remains so.
    return jnp.where(elastic | jnp.isnan(restitution), restitution, 0)


def impact(contact: Contact, projected: Projection, params: Params) -> tuple[Forces, Flag, Scalar]:
    r"""The impulse of an impact. $\dot g^+ = -e\,\dot g^-$, and $s^+ = -e_t\,s^-$ with $|p_t| \le \mu_s p_n$, or slip.

    **Returns:** the impulse, NaN without a solution, and with its code where it would add energy (Kane, 1984); whether the gap
    opens again; and the sign of the slip after the impact, 0 where the impulse stops the slip.

    Source: Kong, Payne, Zhu, Johnson (2024), eqs. 67-69; friction by Coulomb's law between the impulse and the velocity after
    the impact.
    """
    restitution = rebound(contact, projected, 0, params)
    elastic = restitution > 0
    reversal = jnp.where(elastic, coefficient(contact, "tangential", params, restitution), 0)
    change = -projected.velocity * (1 + jnp.stack([restitution, reversal, reversal])[: projected.velocity.size])
    impulse, side = holding(projected.compliance, change), jnp.zeros_like(restitution)
    if contact.slips:
        way = gives_way(impulse)
        inside = cone(contact, impulse, way, params) >= 0
        slips = sliding(projected.compliance, change[0], coefficient(contact, "kinetic", params, impulse), way)
        impulse, side = jnp.where(inside, impulse, slips), jnp.where(inside, 0, way)
    # What has no solution is NaN without that code.
    good = gains_nothing(projected, impulse) | ~jnp.all(jnp.isfinite(impulse))
    return nan_unless(good, impulse, RESULTS.gains_energy), elastic, side


def gains_nothing(projected: Projection, impulse: Forces) -> Flag:
    """Whether an impulse does not add kinetic energy, up to rounding: its work is that on the mean of the velocities."""
    before, after = projected.velocity, projected.velocity + projected.compliance @ impulse
    size = jnp.abs(impulse) @ jnp.abs(before)
    return impulse @ (before + after) / 2 <= float(jnp.finfo(before.dtype).eps) ** 0.5 * size
