"""Operations on PyTrees that several files of the flow share."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import PyTree

from .._system.types import Flag


def select(pred: Flag, chosen: PyTree, otherwise: PyTree) -> PyTree:
    """`chosen` where `pred`, else `otherwise`, leaf by leaf. Unlike `lax.cond`, both are computed."""
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), chosen, otherwise)


def without_tangents(tree: PyTree) -> PyTree:
    """The tree without derivatives; its leaves may also be functions and integer arrays."""
    return jax.tree.map(lambda leaf: stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)
