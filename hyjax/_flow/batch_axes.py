"""A rule of differentiation must see every batch axis that its tangents have."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def batched_like(out: PyTree, inputs: PyTree) -> PyTree:
    """`out` unchanged, with every batch axis of the floating `inputs`, on which it seems to depend.

    `vmap` infers the batch axes of a custom derivative's results from the values alone: where a value does not depend on a
    batched input, its tangent, a product with that input's tangent, would not fit. (https://github.com/jax-ml/jax/issues/16374)
    """
    floats = [leaf for leaf in jax.tree.leaves(inputs) if eqx.is_inexact_array(leaf)]
    nothing = jnp.zeros((), int)
    for leaf in floats:
        nothing = nothing + jnp.sum(jnp.where(jnp.isnan(leaf), 0, 0))
    return jax.tree.map(lambda leaf: leaf + nothing.astype(leaf.dtype) if eqx.is_inexact_array(leaf) else leaf, out)
