r"""The linear complementarity problem of several contacts: a contact holds and pushes, or its gap opens.

$$f_i \ge 0, \quad a_i \ge 0, \quad f_i\,a_i = 0$$

for the forces and the accelerations of the gaps, or for the impulses and the velocities after the impact. Solved by enumeration
of all sets of contacts, which are few.
"""

import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._system.types import Flag
from .projection import holding, Rows

Set = tuple[int, ...]


class Choice(eqx.Module):
    """The solution of the complementarity problem.

    **Attributes:** `index`: of the candidate with the least violation. `fits`: whether that candidate satisfies the conditions.
    `forces`: of all candidates, shape `(candidates, rows)`.
    """

    index: Int[Array, ""]
    fits: Flag
    forces: Float[Array, "candidates rows"]


def subsets(items: Set) -> tuple[Set, ...]:
    """All subsets, the largest first."""
    sizes = range(len(items), -1, -1)
    return tuple(itertools.chain.from_iterable(itertools.combinations(items, size) for size in sizes))


@eqx.filter_jit
def choose_set(
    compliance: Float[Array, "rows rows"],
    motion: Rows,
    change: Rows,
    candidates: tuple[Set, ...],
    rough: Set,
    near: Bool[Array, " contacts"],
) -> Choice:
    r"""The first set of contacts that satisfies the conditions: the contacts in the set push, no other gap closes.

    **Arguments:** `motion`: acceleration (or velocity) of the contact points without contact forces; rows for the gaps, then for
    the slips of the contacts in `rough`. `change`: the change of `motion` required where a contact holds. `candidates`: sets of
    contacts, by position. `near`: which contacts take part; a contact that is not near cannot hold, and its gap is free.
    """
    tolerance = float(np.sqrt(np.finfo(motion.dtype).eps))
    misfits, forces = [], []
    for held in candidates:
        rows = np.array([*held, *(near.size + k for k, i in enumerate(rough) if i in held)], int)
        redundant = len(held) > 2 or sum(i in rough for i in held) > 1
        force = jnp.zeros_like(motion)
        if held:
            force = force.at[rows].set(holding(compliance[np.ix_(rows, rows)], change[rows], redundant))
        pushes = _relative(force, force)[: near.size]
        opens = _relative(motion + compliance @ force, motion)[: near.size]
        holds = np.isin(np.arange(near.size), held)
        misfit = jnp.max(jnp.where(holds, jnp.where(near, -pushes, jnp.inf), jnp.where(near, -opens, -jnp.inf)))
        misfits.append(jnp.where(misfit > tolerance, misfit, jnp.where(jnp.isnan(misfit), jnp.inf, 0)))
        forces.append(force)
    misfit = jnp.stack(misfits)
    index = jnp.argmin(misfit)
    return Choice(index, misfit[index] == 0, jnp.stack(forces))


def _relative(values: Rows, to: Rows) -> Rows:
    size = jnp.max(jnp.abs(to), initial=0)
    return values / jnp.where(size > 0, size, 1)
