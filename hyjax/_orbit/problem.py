"""The periodic orbit to solve for: the system, the sequence of modes, and the number of strides."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._flow.jump import reset
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, State


class Problem(eqx.Module):
    """A periodic orbit of `strides` passes through `sequence`: the constants of its equation.

    **Attributes:** `varied`: which leaves of `(system, params)` have columns in the strides' Jacobians, because an orbit is
    differentiated with respect to them or a branch has them as free parameters. Empty for none.
    """

    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    varied: tuple[bool, ...] = eqx.field(static=True, default=())

    @property
    def timed(self) -> bool:
        """Whether the times at which strides start are unknown: a single stride starts at time 0."""
        return self.strides > 1

    @property
    def before_dimension(self) -> int:
        """The dimension of the state before the jump that closes the sequence."""
        return self.system.mode(self.sequence[-1]).dimension

    def split(self, params: Params) -> tuple[PyTree, PyTree]:
        """`(system, params)` split into the `varied` leaves and the others."""
        leaves, tree = jax.tree.flatten((self.system, params))
        flags = self.varied or (False,) * len(leaves)
        return eqx.partition((self.system, params), jax.tree.unflatten(tree, flags))

    def with_varied(self, params: Params, free: tuple[int, ...]) -> "Problem":
        """The problem whose strides are differentiated by the leaves `free` of the parameters."""
        first = len(jax.tree.leaves(self.system))
        leaves = first + len(jax.tree.leaves(params))
        return dataclasses.replace(self, varied=tuple(i - first in free for i in range(leaves)))

    def closing_jump(self, y: State, params: Params, t: Scalar | None = None) -> Array:
        """$R(t, y)$, the reset that closes the sequence. `t=None` means 0: a system that depends on time repeats itself, and
        the jump that closes the orbit restarts the clock."""
        taken = self.system.transitions[self.system.route(self.sequence)[-1]]
        return reset(taken, jnp.zeros((), y.dtype) if t is None else t, y, params)
