r"""The linear complementarity problem of several contacts: a contact holds and pushes, or its gap opens.

$$f_i \ge 0, \quad a_i \ge 0, \quad f_i\,a_i = 0$$

for the forces and the accelerations of the gaps, or for the impulses and the velocities after the impact. Solved by enumeration
of all sets of contacts, which are few.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._system.types import Flag, Scalar
from .projection import holding, Rows

Set = tuple[int, ...]
Contacts = Bool[Array, " contacts"]


def subsets(items: Set) -> tuple[Set, ...]:
    """All subsets, the largest first."""
    sizes = range(len(items), -1, -1)
    return tuple(itertools.chain.from_iterable(itertools.combinations(items, size) for size in sizes))


def masks(count: int) -> Bool[np.ndarray, "sets contacts"]:
    """All sets of `count` contacts as masks, in the order of `subsets`."""
    return np.array([[i in each for i in range(count)] for each in subsets(tuple(range(count)))])


@eqx.filter_jit
def choose_set(
    compliance: Float[Array, "rows rows"],
    motion: Rows,
    change: Rows,
    rough: Set,
    near: Contacts,
    struck: Contacts | None = None,
) -> tuple[Int[Array, ""], Flag, Float[Array, "sets rows"]]:
    r"""The first set of contacts that satisfies the conditions: the contacts in the set push, no other gap closes.

    **Arguments:** `motion`: acceleration (or velocity) of the contact points without contact forces; rows for the gaps, then for
    the slips of the contacts in `rough`. `change`: the change of `motion` required where a contact holds. `near`: which contacts
    take part; a contact that is not near cannot hold, and its gap is free. `struck`: the contacts that any set must have.

    **Returns:** the number of that set among `subsets`, or where none satisfies the conditions of that with the least violation;
    whether it satisfies them; and the forces of all sets.
    """
    tolerance = float(np.sqrt(np.finfo(motion.dtype).eps))
    sets = jnp.asarray(masks(near.size))

    def force_of(held: Contacts) -> Rows:
        return holding(compliance, change, rows_of(held, rough), may_depend(near.size, rough))

    def misfit_of(held: Contacts, force: Rows) -> Scalar:
        pushes = _relative(force, force)[: near.size]
        opens = _relative(motion + compliance @ force, motion)[: near.size]
        misfit = jnp.max(jnp.where(held, jnp.where(near, -pushes, jnp.inf), jnp.where(near, -opens, -jnp.inf)))
        misfit = jnp.where(misfit > tolerance, misfit, jnp.where(jnp.isnan(misfit), jnp.inf, 0))
        return misfit if struck is None else jnp.where(jnp.all(held | ~struck), misfit, jnp.inf)

    forces = jax.vmap(force_of)(sets)
    misfit = jax.vmap(misfit_of)(sets, forces)
    index = jnp.argmin(misfit)
    return index, misfit[index] == 0, forces


def rows_of(held: Contacts, rough: Set) -> Bool[Array, " rows"]:
    """The rows of a set of contacts: their gaps, and the slips of those in `rough`."""
    return jnp.concatenate([held, held[np.array(rough, int)]])


def may_depend(count: int, rough: Set) -> bool:
    """Whether rows of `count` contacts may depend on each other."""
    return count > 2 or len(rough) > 1


def _relative(values: Rows, to: Rows) -> Rows:
    size = jnp.max(jnp.abs(to), initial=0)
    return values / jnp.where(size > 0, size, 1)
