"""Values of a batch that XLA evaluates once, although several tangents use them.

XLA fuses ordinary arithmetic into each of its users. The tangents of a batch use the values of the vector field once per tangent
and coordinate, so the polynomials of sine and cosine are evaluated sixteen times a stage of the simplest walker in place of two,
and the sums of the stages likewise. XLA does not fuse a sum, here of two terms of which one is zero, into several users (jaxlib
0.10.2; no issue known upstream, `tests/numerics/test_upstream_faults.py` fails when a value is evaluated once without).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

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
