"""Parts of a reset of one's own: the velocities after an impact of listed contacts, and the exchange of a walker's legs."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._system.results import nan_unless, RESULTS
from .._system.types import Params, Time
from .contact import Contact
from .contact_set import ContactSet, STUCK
from .laws import impact as single_impact
from .mechanism import as_coordinates, check_mechanism, Mechanism, Positions, Velocities
from .projection import project


def impact(
    mechanism: Mechanism,
    q: Positions,
    v: Velocities,
    params: Params,
    contacts: Contact | Sequence[Contact] | Mapping[str, Contact],
    *,
    t: float | Time = 0.0,
) -> tuple[Velocities, Float[Array, " rows"]]:
    r"""The velocities after an impact, and its impulses. $M(v^+ - v^-) = J^\top\Lambda$ with the laws of the contacts.

    $J$ has the rows of the gaps and of the slips of the contacts that are listed, all of which are closed; whatever else
    touches the ground leaves it freely. A contact that closes strikes, $\dot g^+ = -e\,\dot g^-$ with its `restitution`, and its
    impulse stops the slip where the friction allows that (always with `static=math.inf`); one that opens has no impulse. By
    Poisson's law the impulses of restitution are $e$ times those of compression, or more where that holds a gap closed.

    **Arguments:** `mechanism`: free of the ground. `q`, `v`: positions and velocities before the impact, shape `(m,)`. `params`:
    of the mechanism and the contacts. `contacts`: one `Contact`, or several, also by name. `t`: the time, for contacts that
    depend on it.

    **Returns:** $v^+$, shape `(m,)`, and $\Lambda$, shape `(rows,)`: the normal impulses of all contacts, then the tangential
    ones of those with a slip. NaN where the mass matrix is not positive definite, or the laws have no solution, more than one, or
    one that adds energy. `ValueError` for what is no contact and for positions and velocities that differ in shape.

    **Example:**

    >>> import math  # a rod of length 2 and mass 1, at 45 degrees, whose lower end sticks
    >>> rod = hj.contact.Mechanism(lambda q, p: jnp.diag(jnp.array([1.0, 1.0, 1 / 3])))
    >>> end = lambda q: q[:2] - jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
    >>> slip = lambda t, q, v, p: jax.jvp(lambda q: end(q)[0], (q,), (v,))[1]
    >>> foot = hj.contact.Contact(lambda t, q, p: end(q)[1], slip, static=math.inf)
    >>> q = jnp.array([0.0, 0.5**0.5, jnp.pi / 4])
    >>> after, impulse = hj.contact.impact(rod, q, jnp.array([0.0, -1.0, 0.0]), None, foot)
    >>> print(after.round(4), impulse.round(4))
    [ 0.375  -0.375  -0.5303] [0.625 0.375]

    Source: Hurmuzlu, Marghitu (1994), *Rigid body collisions of planar kinematic chains with multiple contact points*, Int. J.
    Robot. Res. 13, 82-92, for a walker's foot; the laws are those of `contact_system`.
    """
    check_mechanism(mechanism)
    given = (contacts,) if isinstance(contacts, Contact) else contacts
    listed = tuple(given.values() if isinstance(given, Mapping) else given)
    if not listed or not all(isinstance(each, Contact) for each in listed):
        raise ValueError(f"impact: give one hj.contact.Contact or several, not {contacts!r}.")
    q, v = as_coordinates("impact", q, v)
    before = project(mechanism, listed, jnp.asarray(t, q.dtype), jnp.concatenate([q, v]), params)
    rounding = 8 * float(jnp.finfo(v.dtype).eps) * (jnp.abs(before.jacobian) @ jnp.abs(v))
    # What is NaN has no other impulse.
    closes = ~(before.velocity >= -rounding)[: len(listed)]
    if len(listed) == 1 and not listed[0].poisson:
        impulse, _, _ = single_impact(listed[0], before, params)
    else:
        laws = ContactSet(mechanism, listed, None)
        impulse, _, _, why = laws.impact(before, jnp.full(len(listed), STUCK), closes, params)
        impulse = nan_unless(why == RESULTS.successful, impulse, why)
    impulse = jnp.where(jnp.any(closes), impulse, 0)
    return v + before.response @ impulse, impulse


def relabelling(coordinates: Sequence[str], pairs: Mapping[str, str]) -> Int[np.ndarray, " m"]:
    """The indices that exchange pairs of coordinates: `q[legs]` after a step of a walker, whose swing leg is the new stance leg.

    **Arguments:** `coordinates`: names of the positions, such as those of a mode or a robot. `pairs`: the coordinates that change
    places, each pair once. **Returns:** integers, shape `(m,)`, for positions and rates alike: `q[legs]`, `v[legs]`. `ValueError`
    for a name that is not among the coordinates, or stands twice.

    **Example:**

    >>> legs = hj.contact.relabelling(("pitch", "hip1", "hip2"), {"hip1": "hip2"})
    >>> jnp.array([0.1, 0.2, 0.3])[legs].tolist()
    [0.1, 0.3, 0.2]
    """
    names, named = list(coordinates), [each for pair in pairs.items() for each in pair]
    for name in named:
        if names.count(name) != 1 or named.count(name) != 1:
            raise ValueError(
                f"relabelling: {name!r} must be one of the coordinates {', '.join(names)}, and in one pair only; the pairs are "
                f"{dict(pairs)}."
            )
    order = np.arange(len(names))
    for one, other in pairs.items():
        order[[names.index(one), names.index(other)]] = names.index(other), names.index(one)
    return order
