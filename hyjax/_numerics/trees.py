"""Operations on PyTrees: choice, derivatives, the batch axes of the results of custom differentiation rules; and values of a
batch that XLA evaluates once, although several tangents use them.

XLA fuses ordinary arithmetic into each of its users. The tangents of a batch use the values of the vector field once per tangent
and coordinate, so the polynomials of sine and cosine are evaluated sixteen times a stage of the simplest walker in place of two,
and the sums of the stages likewise. XLA does not fuse a sum, here of two terms of which one is zero, into several users (jaxlib
0.10.2; no issue known upstream, `tests/numerics/test_upstream_faults.py` fails when a value is evaluated once without).
"""

from collections.abc import Callable
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


# Batches of fewer lanes are left alone: they are mostly the tangents of one lane.
FEW = 16


@jax.custom_batching.custom_vmap
def _stored(*values: Array) -> tuple[Array, ...]:
    """The values themselves. Outside a batch nothing is done: the sum would cost more than it saves."""
    return values


@_stored.def_vmap
def _(size, batched, *values):
    # No argument is batched where JAX differentiates this rule itself, with tangents that alone are.
    if size < FEW or not any(batched):
        return values, tuple(batched)
    # The batch is the last axis, so that neighbours in memory are lanes.
    lanes = [
        jnp.moveaxis(value, 0, -1) if of_batch else jnp.broadcast_to(value[..., None], (*value.shape, size))
        for value, of_batch in zip(values, batched, strict=True)
    ]
    lanes = jax.lax.platform_dependent(*lanes, cpu=_through_sum, default=lambda *lanes: lanes)
    return tuple(jnp.moveaxis(value, -1, 0) for value in lanes), (True,) * len(values)


def _through_sum(*values: Array) -> tuple[Array, ...]:
    # To -0.0, unlike to 0.0, every number is added without a change.
    terms = [jnp.stack([value, jnp.full_like(value, -0.0)]) for value in values]
    zeros = [jnp.full((), -0.0, value.dtype) for value in values]
    add = lambda a, b: [x + y for x, y in zip(a, b, strict=True)]
    return tuple(jax.lax.reduce(terms, zeros, add, (0,)))


@jax.custom_batching.custom_vmap
def batch_first(*values: Array) -> tuple[Array, ...]:
    """The values themselves, with the batch as their first axis: for the value of a function whose rule of differentiation has
    the batch there too.

    Hazard: where `vmap` meets a `custom_jvp` function under `jit`, it takes the batch axes of the value, and assumes them for the
    results of the rule too (jax 0.10.2; https://github.com/jax-ml/jax/issues/16374, open).
    """
    return values


@batch_first.def_vmap
def _(size, batched, *values):
    return values, tuple(batched)


def _with_rule(same: Callable, rule: Callable) -> Callable:
    """The function `same` with a rule of differentiation."""
    same = jax.custom_jvp(same)
    same.defjvp(rule)
    return same


# The rules call a function that has one too, so that also a second differentiation meets a rule, not the one of batches.
_now = _with_rule(_stored, lambda values, tangents: (_now(*values), tuple(tangents)))
_later = _with_rule(batch_first, lambda values, tangents: (_now(*values), tuple(tangents)))
_with_tangents = _with_rule(batch_first, lambda values, tangents: (_now(*values), _now(*tangents)))


def stored(*values: Array) -> tuple[Array, ...]:
    """The values themselves, of one shape and dtype; in a batch on a CPU, they are evaluated once, together. Differentiable to
    any order, in both modes."""
    return _now(*values)


def stored_for_tangents(value: Array) -> Array:
    """The value itself, `stored` where it is differentiated."""
    return _later(value)[0]


def stored_with_tangents(*values: Array) -> tuple[Array, ...]:
    """The values themselves; where they are differentiated, values and tangents are `stored`. For forward mode only."""
    return _with_tangents(*values)
