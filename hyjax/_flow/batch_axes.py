"""A rule of differentiation must see every batch axis that its tangents have."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def tie(out: PyTree, inputs: PyTree) -> PyTree:
    """`out` unchanged, as a function of all floating `inputs`.

    A custom derivative is staged with the shapes of its values. Under `vmap`, a value that does not depend on a batched
    input is not batched, while its tangent, a product with that input's tangent, is: so let it depend on it.
    """
    floats = [leaf for leaf in jax.tree.leaves(inputs) if eqx.is_inexact_array(leaf)]
    nothing = jnp.zeros((), int)
    for leaf in floats:
        nothing = nothing + jnp.sum(jnp.where(jnp.isnan(leaf), 0, 0))
    return jax.tree.map(lambda leaf: leaf + nothing.astype(leaf.dtype) if eqx.is_inexact_array(leaf) else leaf, out)
