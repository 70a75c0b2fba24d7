"""Values of a batch that XLA evaluates once, although several tangents use them.

XLA fuses ordinary arithmetic into each of its users. The tangents of a batch use the values of the vector field once per tangent
and coordinate, so the polynomials of sine and cosine are evaluated sixteen times a stage of the simplest walker in place of two,
and the sums of the stages likewise. XLA does not fuse a sum, here of two terms of which one is zero, into several users.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array


@jax.custom_batching.custom_vmap
def stored(*values: Array) -> tuple[Array, ...]:
    """The values themselves. In a batch on a CPU, they are evaluated once, together; alone, where they are few numbers and a sum
    costs more than it saves, nothing is done. Not differentiable: for a rule of differentiation."""
    return values


@stored.def_vmap
def _(size, batched, *values):
    del size, batched  # All values are functions of the same batch.
    # The batch is the last axis, so that neighbours in memory are lanes.
    lanes = [jnp.moveaxis(value, 0, -1) for value in values]
    lanes = jax.lax.platform_dependent(*lanes, cpu=_through_sum, default=lambda *lanes: lanes)
    return tuple(jnp.moveaxis(value, -1, 0) for value in lanes), (True,) * len(values)


def _through_sum(*values: Array) -> tuple[Array, ...]:
    terms = [jnp.stack([value, jnp.zeros_like(value)]) for value in values]
    zeros = [jnp.zeros((), value.dtype) for value in values]
    add = lambda a, b: [x + y for x, y in zip(a, b, strict=True)]
    return tuple(jax.lax.reduce(terms, zeros, add, (0,)))


def _with_tangents(same):
    """The function `same`, which returns its argument, with the tangent of its argument; there, the value is stored."""
    same = jax.custom_jvp(same)

    @same.defjvp
    def _(primals, tangents):
        return _kept(*primals), tangents[0]

    return same


# Two functions, so that also a second differentiation meets a rule of its own, not the one of batches.
_kept = _with_tangents(lambda value: stored(value)[0])
_unkept = _with_tangents(lambda value: value)


def stored_for_tangents(value: Array) -> Array:
    """The value itself, stored where it is differentiated. Differentiable to any order, in both modes."""
    return _unkept(value)
