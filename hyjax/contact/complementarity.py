r"""Which of several contacts hold: those that push, while those that do not hold come apart.

$$f_i \ge 0, \quad a_i \ge 0, \quad f_i\,a_i = 0$$

for forces and the accelerations of the gaps, or for impulses and the velocities after them. With few contacts every set
can be tried.
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
    """**Attributes:** `index`: of the candidate that fits best. `fits`: whether it satisfies the conditions. `forces`: of
    every candidate, shape `(candidates, rows)`."""

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
    r"""The first set whose contacts, held, push, while none of the others closes.

    **Arguments:** `motion`: of the contact points when no force acts; the gaps, then the slips of the contacts in `rough`.
    `change`: what a force must add to it where a contact holds. `candidates`: sets of contacts, by position. `near`:
    which contacts take part; a contact that is not near cannot hold, and what it does does not matter.
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
