r"""How the nodes of a closed orbit move with its parameters: one linear system.

From node to node $z_{i+1} = S(z_i, p)$ and around, so

$$dz_{i+1} - D_zS_i\,dz_i = D_pS_i\,dp, \qquad dz_{m+1} = dz_1 :$$

a matrix of as many blocks as strides. Where the nodes' times are unknown too (`timed`), each $z$ begins with its time, and
that of the first node is fixed.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.elimination import solve

Blocks = Float[Array, "strides width width"]
Rows = Float[Array, "strides width"]


def moved_nodes(by_start: Blocks, forced: Rows, timed: int) -> Rows:
    """`dz` for every node, where parameters move the end of each stride by `forced` $= D_pS_i\\,dp$."""
    matrix, follows = _system(by_start, timed)
    right = jnp.roll(follows * forced, 1, axis=0)
    return solve(matrix, right.reshape(-1)).reshape(forced.shape)


def pulled_back(by_start: Blocks, nodes: Rows, timed: int) -> Rows:
    """The transpose of `moved_nodes` in `forced`: cotangents of the strides' ends from those of the nodes."""
    matrix, follows = _system(by_start, timed)
    return follows * jnp.roll(solve(matrix.T, nodes.reshape(-1)).reshape(nodes.shape), -1, axis=0)


def _system(by_start: Blocks, timed: int) -> tuple[Float[Array, "all all"], Rows]:
    """The matrix, and a mask of what the next node inherits from the end of a stride: all but the time of the first."""
    strides, width, _ = by_start.shape
    each, eye = jnp.arange(strides), jnp.eye(width, dtype=by_start.dtype)
    follows = jnp.ones((strides, width), by_start.dtype).at[-1, :timed].set(0)
    system = jnp.zeros((strides, width, strides, width), by_start.dtype).at[each, :, each, :].set(eye)
    system = system.at[(each + 1) % strides, :, each, :].add(-follows[:, :, None] * by_start)
    return system.reshape(strides * width, -1), follows
