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
    # No element of each input: their sum is zero, and XLA removes it.
    none = [
        jax.lax.slice(leaf.reshape(-1), (0,), (0,)) for leaf in jax.tree.leaves(inputs) if eqx.is_inexact_array(leaf)
    ]
    nothing = jnp.sum(jnp.concatenate(none)) if none else 0
    return jax.tree.map(
        lambda leaf: leaf + jnp.asarray(nothing, leaf.dtype) if eqx.is_inexact_array(leaf) else leaf, out
    )
