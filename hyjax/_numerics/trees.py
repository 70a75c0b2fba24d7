"""Operations on PyTrees: choice, derivatives, and the batch axes of the results of custom differentiation rules."""

from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PyTree

from .._system.types import Flag


def select(pred: Flag, chosen: PyTree, otherwise: PyTree) -> PyTree:
    """`chosen` where `pred`, else `otherwise`, leaf by leaf. Unlike `lax.cond`, both are computed."""
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), chosen, otherwise)


def library_of(*values: Any) -> Any:
    """NumPy for numbers that are known, of which each operation of JAX would be a program of its own; else `jax.numpy`."""
    return jnp if any(isinstance(each, jax.core.Tracer) for each in values) else np


def without_tangents(tree: PyTree) -> PyTree:
    """The tree without derivatives; its leaves may also be functions and integer arrays."""
    return jax.tree.map(lambda leaf: stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)


def without_derivative(tree: PyTree, reason: str) -> PyTree:
    """The tree, of which a derivative is a `ValueError` for that reason."""
    numbers, rest = eqx.partition(tree, eqx.is_inexact_array)
    same = jax.custom_jvp(lambda numbers: numbers)

    @same.defjvp
    def refuse(primals, tangents):
        raise ValueError(reason)

    return eqx.combine(same(numbers), rest)


def content_of(tree: PyTree) -> tuple:
    """The structure of a PyTree and the identities of its leaves: two trees of the same functions have one content."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple(map(id, leaves))


def batched_like(out: PyTree, inputs: PyTree) -> PyTree:
    """`out` with unchanged values, and with every batch axis of the `inputs`; keys of random numbers as they are.

    `vmap` infers the batch axes of a custom rule's results from the primal values alone. A value that does not depend on a
    batched input has no batch axis, while its tangent, a product with that input's tangent, has one: the two do not fit.
    (https://github.com/jax-ml/jax/issues/16374)
    """
    # The empty slice of each input carries its batch axes: `nothing` is false, and XLA removes the operation.
    empty = lambda leaf: jax.lax.slice(leaf.reshape(-1), (0,), (0,)) if leaf.ndim else jax.lax.broadcast(leaf, (0,))
    kinds: dict[Any, list[Array]] = {}
    for leaf in filter(_is_number, jax.tree.leaves(inputs)):
        kinds.setdefault(leaf.dtype, []).append(empty(leaf))
    none = [jnp.concatenate(each).astype(bool) for each in kinds.values()]
    nothing = jnp.any(jnp.concatenate(none)) if none else False
    return jax.tree.map(lambda leaf: _added(leaf, nothing) if _is_number(leaf) else leaf, out)


def _is_number(leaf) -> bool:
    return eqx.is_array(leaf) and (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool)


def _added(leaf, nothing):
    if leaf.dtype == bool:
        return leaf | nothing
    # A weakly typed zero, so that an integer, such as a count of steps, keeps its dtype.
    return leaf + (
        jnp.where(nothing, 0, 0) if jnp.issubdtype(leaf.dtype, jnp.integer) else jnp.asarray(nothing, leaf.dtype)
    )


# The coordinates of a state of at most `MOST_PARTS`, each an array of its own, so that a batch, or a batch of tangents, is
# contiguous in memory; of a longer state one array, so that no program grows with its length.
Parts = tuple[Array, ...]
MOST_PARTS = 16


def parts_of(x: Float[Array, " n"]) -> Parts:
    return tuple(x) if x.size <= MOST_PARTS else (x,)


def whole(parts: Parts) -> Float[Array, " n"]:
    return parts[0] if parts[0].ndim else jnp.stack(parts)
