r"""The linear system for the derivatives of a periodic orbit's nodes with respect to its parameters.

The nodes obey $z_{i+1} = S(z_i, p)$, cyclically, so

$$dz_{i+1} - D_zS_i\,dz_i = D_pS_i\,dp, \qquad dz_{m+1} = dz_1,$$

a matrix with one block row for each stride. Where the nodes' times are unknown too (`timed`), each $z$ begins with its time, and
the time of the first node is fixed.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.elimination import solve

Blocks = Float[Array, "strides width width"]
Rows = Float[Array, "strides width"]


def moved_nodes(by_start: Blocks, forced: Rows, timed: int) -> Rows:
    """The perturbations `dz` of all nodes, for perturbations `forced` $= D_pS_i\\,dp$ of the strides' ends."""
    matrix, follows = _system(by_start, timed)
    right = jnp.roll(follows * forced, 1, axis=0)
    return solve(matrix, right.reshape(-1)).reshape(forced.shape)


def pulled_back(by_start: Blocks, nodes: Rows, timed: int) -> Rows:
    """The transpose of `moved_nodes` in `forced`: from cotangents of the nodes to cotangents of the strides' ends."""
    matrix, follows = _system(by_start, timed)
    return follows * jnp.roll(solve(matrix.T, nodes.reshape(-1)).reshape(nodes.shape), -1, axis=0)


def _system(by_start: Blocks, timed: int) -> tuple[Float[Array, "all all"], Rows]:
    """The matrix, and the mask of entries that a node takes from the end of the stride before: all but the first node's time."""
    strides, width, _ = by_start.shape
    each, eye = jnp.arange(strides), jnp.eye(width, dtype=by_start.dtype)
    follows = jnp.ones((strides, width), by_start.dtype).at[-1, :timed].set(0)
    system = jnp.zeros((strides, width, strides, width), by_start.dtype).at[each, :, each, :].set(eye)
    system = system.at[(each + 1) % strides, :, each, :].add(-follows[:, :, None] * by_start)
    return system.reshape(strides * width, -1), follows
