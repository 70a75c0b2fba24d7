r"""The gradient of a periodic orbit by one backward pass, for any number of parameters.

Let $\bar z$ be the cotangents of the nodes, including those of quantities that depend on the nodes through the strides' known
Jacobians. One transposed linear solve (see `node_system.py`) gives the cotangents $\lambda_i$ of the strides' ends, and the
backward passes of the strides $S_i$ give the gradient:

$$\bar p = \sum_i (D_pS_i)^\top \lambda_i, \qquad M^\top \lambda = \bar z.$$

The return Jacobian depends on nodes and parameters through the strides' second derivatives; its cotangent, if any, takes one more
backward pass, through the strides with their tangents.
"""

import dataclasses
import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._flow.mode_integrators import Integrators, pushable
from .._system.results import RESULTS
from .chain import Chain, Passage, return_matrices
from .node_system import pulled_back
from .shooting import AbstractShooting, Found
from .shooting_result import find, jacobians, passage


@eqx.filter_custom_vjp
def closed_orbit_backward(what: PyTree, guess: Array, method: AbstractShooting, integrator: Integrators) -> Found:
    """The result of `method`, differentiable in `what = (problem, params)` in first-order reverse mode."""
    return find(what, guess, method, integrator)


@closed_orbit_backward.def_fwd
def _forward(perturbed, what, guess, method, integrator):
    problem, params = what
    # Only the Jacobians with respect to the strides' starts are kept.
    problem = dataclasses.replace(problem, varied=(False,) * len(jax.tree.leaves(what)))
    found = find((problem, params), guess, method, integrator)
    return dataclasses.replace(found, chain=dataclasses.replace(found.chain, jacobians=None)), found


@closed_orbit_backward.def_bwd
def _backward(found, cotangent, perturbed, what, guess, method, integrator):
    problem, chain, timed = what[0], found.chain, int(what[0].timed)
    of_chain, of_jacobian = cotangent.chain, cotangent.jacobian
    moving, still = eqx.partition(what, perturbed)

    def pull(fn: Callable, cotangents: PyTree) -> tuple[PyTree, Array]:
        """Gradients with respect to `moving` and the nodes. The strides are scanned, so that one at a time is in memory."""

        def one(total, each):
            t, x, out = each
            _, back = jax.vjp(lambda moving, t, x: fn(eqx.combine(moving, still), t, x), moving, t, x)
            by_moving, by_t, by_x = back(out)
            total = jax.tree.map(jnp.add, total, by_moving)
            return total, jnp.append(by_t, by_x) if timed else by_x

        zero = jax.tree.map(jnp.zeros_like, moving)
        return jax.lax.scan(one, zero, (chain.starts, chain.nodes, cotangents))

    ends, nodes = _cotangents(of_chain, chain, timed)
    through = jax.tree.map(lambda end, by: jnp.einsum("s...,s...m->sm", end, by), ends, chain.jacobians)
    nodes = nodes + sum(jax.tree.leaves(through))
    gradient = jax.tree.map(jnp.zeros_like, moving)
    if of_jacobian is not None:
        _, back = jax.vjp(lambda by: return_matrices(problem, by)[0], chain.jacobians)
        gradient, by_nodes = pull(ft.partial(jacobians, integrator=pushable(integrator)), *back(of_jacobian))
        nodes = nodes + by_nodes
    ends = dataclasses.replace(ends, end=ends.end + pulled_back(chain.jacobians.end, nodes, timed))
    more, _ = pull(ft.partial(passage, integrator=integrator), ends)

    # A lane that failed is NaN. The caller masks it, so its cotangents are zero, and it must not add NaN to the gradient with
    # respect to parameters that it shares with other lanes.
    asked = jnp.any(jnp.stack([jnp.any(leaf != 0) for leaf in jax.tree.leaves(cotangent)]))
    good = asked & (found.result == RESULTS.successful)
    return jax.tree.map(lambda a, b: jnp.where(good, a + b, 0), gradient, more)


def _cotangents(given: Chain, chain: Chain, timed: int) -> tuple[Passage, Array]:
    """Cotangents of the strides' passages and of the nodes, from those of a chain, which are `None` where they are zero."""
    strides = len(chain.nodes)

    def dense(name: str) -> PyTree:
        zero = lambda value, cotangent: jnp.zeros_like(value) if cotangent is None else cotangent
        return jax.tree.map(zero, getattr(chain, name), getattr(given, name), is_leaf=lambda leaf: leaf is None)

    nodes = dense("nodes")
    if timed:
        nodes = jnp.concatenate([dense("starts")[:, None], nodes], axis=1)
    *inner, last = dense("arc_ends")
    ends = Passage(
        end=jnp.zeros_like(nodes).at[-1, timed:].set(dense("end")),
        arc_ends=(*inner, last + jnp.roll(dense("before"), -1, axis=0)),
        elapsed=dense("elapsed").at[:, -1].add(dense("period")),
        guard_rates=dense("guard_rates").reshape(strides, -1),
    )
    return ends, nodes
