"""Reverse mode from forward mode: the whole Jacobian of a function of few numbers."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .one_kernel import in_one_kernel
from .trees import batched_like

# `inputs -> (out, aux)`: `out` is differentiated, `aux` is not.
Function = Callable[[PyTree], tuple[PyTree, PyTree]]


def linearizable(fn: Function, inputs: PyTree) -> tuple[PyTree, PyTree]:
    """`fn(inputs)`, differentiable in both modes and to every order, for an `fn` that allows forward mode only.

    A `while_loop` of unknown length has tangents but no cotangents. A flow has few states and few parameters, so the Jacobian
    over all perturbed numbers is cheap: one tangent for each, all pushed through one loop. Forward mode multiplies by the
    Jacobian and reverse mode by its transpose; for the next order, the Jacobian is computed by a function of the same kind.
    """
    return _linearizable(eqx.filter_closure_convert(fn, inputs), inputs)


def with_jacobian(fn: Function, moving: PyTree, still: PyTree) -> tuple[PyTree, PyTree, PyTree]:
    """`(out, jacobian, aux)` of `fn((moving, still))`, differentiable in both modes and to every order.

    `fn` must not capture traced arrays. The Jacobian has the leaves of `out`, each with one more axis, the last, over
    `ravel_pytree(moving)`. One loop computes value and Jacobian.
    """
    flat, unravel = ravel_pytree(moving)

    def push_all(inputs):
        flat, still = inputs

        out, columns, aux = with_columns_by_lanes(lambda flat: fn((unravel(flat), still)), flat)
        return (out, columns), aux

    (out, jacobian), aux = _linearizable(push_all, (flat, still))
    return out, jacobian, aux


def with_columns(fn: Callable, v: Array) -> tuple[Any, Any, PyTree]:
    """`(out, d out / dv, aux)` of `fn(v) -> (out, aux)`, with all tangents pushed in one pass."""
    return _pushed(fn, v, jnp.eye(v.size, dtype=v.dtype))


def _pushed(fn: Callable, v: Array, directions: Array) -> tuple[Any, Any, PyTree]:
    """`(out, tangents, aux)` of `fn(v) -> (out, aux)`: tangents along all directions, which are the last axis of the tangents."""

    def push(direction):
        out, tangent, aux = jax.jvp(fn, (v,), (direction,), has_aux=True)
        return tangent, (out, aux)

    tangents, (out, aux) = in_one_kernel(jax.vmap(push, out_axes=(-1, None)))(directions)
    return out, tangents, aux


def with_columns_by_lanes(fn: Callable, v: Array) -> tuple[Any, Any, PyTree]:
    """`with_columns`, in a batch with all tangents of all lanes pushed together, so that neighbours in memory are lanes.

    With `with_columns` neighbours are the tangents of one lane, usually fewer than fill a vector register.
    """
    return _by_lanes(eqx.filter_closure_convert(fn, v), v)


@eqx.filter_custom_jvp
def _by_lanes(fn, v):
    leaves, structure = jax.tree.flatten(fn)
    places = [k for k, leaf in enumerate(leaves) if eqx.is_array(leaf)]

    def call(captured, v):
        every = dict(enumerate(leaves)) | dict(zip(places, captured, strict=True))
        return jax.tree.unflatten(structure, list(every.values()))(v)

    @jax.custom_batching.custom_vmap
    def columns(captured, v):
        return with_columns(lambda v: call(captured, v), v)

    @columns.def_vmap
    def _(size, batched, captured, v):
        of_captured, of_v = batched
        # No argument is batched where JAX differentiates this rule itself, with tangents that alone are.
        if not (any(of_captured) or of_v):
            result = with_columns(lambda v: call(captured, v), v)
            return result, jax.tree.map(lambda _: False, result)
        v = v if of_v else jnp.broadcast_to(v, (size, *v.shape))
        lanes = jax.vmap(call, in_axes=([0 if each else None for each in of_captured], 0))
        directions = jnp.eye(v.shape[-1], dtype=v.dtype)[:, None]
        result = _pushed(lambda v: lanes(captured, v), v, jnp.broadcast_to(directions, (v.shape[-1], *v.shape)))
        return result, jax.tree.map(lambda _: True, result)

    return columns([leaves[k] for k in places], v)


@_by_lanes.def_jvp
def _by_lanes_jvp(primals, tangents):
    # Derivatives of the columns are those of `with_columns`: `custom_vmap` has no transpose.
    value, tangent = eqx.filter_jvp(lambda fn, v: with_columns(fn, v), primals, tangents)
    return batched_like(value, primals), tangent


@eqx.filter_custom_jvp
def _linearizable(fn, inputs):
    out, aux = fn(inputs)
    return batched_like((out, aux), (fn, inputs))


@_linearizable.def_jvp
def _linearizable_jvp(primals, tangents):
    moving, still = eqx.partition(primals, perturbed(tangents))

    def apply(parts):
        fn, inputs = eqx.combine(*parts)
        return fn(inputs)

    out, jacobian, aux = with_jacobian(apply, moving, still)
    flat, _ = ravel_pytree(tangents)
    return (out, aux), (jax.tree.map(lambda by: by @ flat, jacobian), jax.tree.map(lambda _: None, aux))


def perturbed(tangents: PyTree) -> PyTree:
    """Which leaves have a tangent; equinox writes `None` for leaves without one."""
    return jax.tree.map(lambda d: d is not None, tangents, is_leaf=lambda d: d is None)
