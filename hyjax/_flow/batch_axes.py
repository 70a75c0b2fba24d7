"""Batch axes for the results of custom differentiation rules."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def batched_like(out: PyTree, inputs: PyTree) -> PyTree:
    """`out` with unchanged values, and with every batch axis of the floating-point `inputs`.

    `vmap` infers the batch axes of a custom rule's results from the primal values alone. A value that does not depend on a
    batched input has no batch axis, while its tangent, a product with that input's tangent, has one: the two do not fit.
    (https://github.com/jax-ml/jax/issues/16374)
    """
    floats = [leaf for leaf in jax.tree.leaves(inputs) if eqx.is_inexact_array(leaf)]
    nothing = jnp.zeros((), int)
    for leaf in floats:
        nothing = nothing + jnp.sum(jnp.where(jnp.isnan(leaf), 0, 0))
    return jax.tree.map(lambda leaf: leaf + nothing.astype(leaf.dtype) if eqx.is_inexact_array(leaf) else leaf, out)
