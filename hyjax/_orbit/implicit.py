r"""A periodic orbit as a function of its parameters, by the implicit function theorem.

The nodes obey $z_{i+1} = S(z_i, p)$, cyclically. So $dz$ solves one linear system, whose blocks are the strides' Jacobians, known
from Newton's method; the other quantities of a stride are differentiated as functions of $z$ and $p$. The integrator's `adjoint`
determines how the strides are differentiated with respect to $p$: by Jacobians over all moving numbers (`ForwardMode`), by one
tangent through the solver's steps (`DirectAdjoint`), or by one backward pass (`RecursiveCheckpointAdjoint`, see `backward.py`).
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .._flow.integrator import PlainForward
from .._flow.mode_integrators import Integrators, rolled, with_adjoint
from .._numerics.linearize import perturbed, with_jacobian
from .._numerics.trees import without_tangents
from .._system.types import Params
from .backward import closed_orbit_backward
from .chain import Chain, Passage, return_matrices
from .node_system import moved_nodes
from .problem import Problem
from .shooting import AbstractShooting, Found
from .shooting_result import find, jacobians, passage


def closed_orbit(
    problem: Problem, guess: Array, params: Params, method: AbstractShooting, integrator: Integrators
) -> Found:
    """The orbit that `method` finds near the guess. Its chain and its Jacobian are differentiable in `params` and in arrays
    captured by the system's functions: to any order, except with `RecursiveCheckpointAdjoint`, to first order in reverse mode."""
    system = problem.system.hoisted(params, guess.dtype)
    what = eqx.tree_at(lambda p: p.system, problem, system), params
    if integrator.loop == "checkpointed":
        guess, method = without_tangents((guess, method))
        return closed_orbit_backward(what, guess, method, integrator)
    return _closed_orbit(what, guess, method, integrator)


@eqx.filter_custom_jvp
def _closed_orbit(what, guess, method, integrator):
    return find(what, guess, method, integrator)


@_closed_orbit.def_jvp
def _closed_orbit_jvp(primals, tangents):
    what, guess, method, integrator = primals
    dwhat = tangents[0]
    moving, _ = eqx.partition(what, perturbed(dwhat))
    flags = tuple(jax.tree.leaves(jax.tree.map(lambda _, part: part is not None, what, moving)))
    if not any(flags):
        found = _closed_orbit(what, guess, method, integrator)
        return found, jax.tree.map(lambda _: None, found)

    forward = integrator.loop == "lax"
    problem, params = what
    if forward:
        integrator = with_adjoint(integrator, PlainForward())
        problem = dataclasses.replace(problem, varied=flags)
    else:
        problem = dataclasses.replace(problem, varied=(False,) * len(flags))
    found = _closed_orbit((problem, params), guess, method, integrator)
    chain, timed = found.chain, int(problem.timed)
    move = _multiplied if forward else _pushed
    dz, dpassage, by, dby = move(what, dwhat, chain, integrator)
    _, djacobian = jax.jvp(lambda by: return_matrices(problem, by)[0], (by,), (dby,))
    nested = what[0].varied
    none = jax.tree.map(lambda _: None, found)
    dchain = dataclasses.replace(
        none.chain,
        nodes=dz[:, timed:],
        starts=dz[:, 0] if timed else jnp.zeros_like(chain.starts),
        before=jnp.roll(dpassage.arc_ends[-1], 1, axis=0),
        arc_ends=dpassage.arc_ends,
        elapsed=dpassage.elapsed,
        end=dpassage.end[-1, timed:],
        period=jnp.sum(dpassage.elapsed[:, -1]),
        guard_rates=dpassage.guard_rates.reshape(-1),
        jacobians=dby if nested else None,
    )
    found = dataclasses.replace(found, chain=dataclasses.replace(chain, jacobians=by if nested else None))
    # Not `dataclasses.replace`, which would check that the other fields are arrays: they are None.
    parts = lambda found: (found.chain, found.jacobian)
    return found, eqx.tree_at(parts, none, (dchain, djacobian), is_leaf=lambda leaf: leaf is None)


def _multiplied(what, dwhat, chain: Chain, integrator: Integrators) -> tuple[Array, Passage, Passage, Passage]:
    """`(dz, dpassage, by, dby)` by products with the strides' Jacobians and second derivatives over all moving numbers."""
    timed, by = int(what[0].timed), chain.jacobians
    assert by is not None
    width = chain.nodes.shape[1] + timed
    dp = ravel_pytree(dwhat)[0]
    dz = moved_nodes(by.end[:, :, :width], by.end[:, :, width:] @ dp, timed)
    tangent = jnp.concatenate([dz, jnp.broadcast_to(dp, (len(dz), dp.size))], axis=1)
    moved = lambda by: jnp.einsum("s...m,sm->s...", by, tangent)
    dpassage = jax.tree.map(moved, by)
    # A separate loop, which XLA removes where the derivative of the Jacobians is not used. Its compile time matters more than
    # its run time.
    by, by_by = _moving_jacobians(what, perturbed(dwhat), chain.starts, chain.nodes, rolled(integrator))
    return dz, dpassage, by, jax.tree.map(moved, by_by)


def _pushed(what, dwhat, chain: Chain, integrator: Integrators) -> tuple[Array, Passage, Passage, Passage]:
    """`(dz, dpassage, by, dby)` by tangents pushed through the strides: one for the passages, one for their Jacobians."""
    timed, by = int(what[0].timed), chain.jacobians
    assert by is not None
    moving, still = eqx.partition(what, perturbed(dwhat))

    def along(fn, dz):
        """The values of `fn` on all strides, and their tangents for the perturbations `dz` and `dwhat`."""
        dt = dz[:, 0] if timed else jnp.zeros_like(chain.starts)

        def one(t, x, dt, dx):
            at = lambda moving, t, x: fn(eqx.combine(moving, still), t, x, integrator)
            return jax.jvp(at, (moving, t, x), (dwhat, dt, dx))

        return jax.vmap(one)(chain.starts, chain.nodes, dt, dz[:, timed:])

    still_nodes = jnp.zeros((len(chain.nodes), chain.nodes.shape[1] + timed), chain.nodes.dtype)
    _, forced = along(passage, still_nodes)
    dz = moved_nodes(by.end, forced.end, timed)
    dpassage = jax.tree.map(lambda forced, by: forced + jnp.einsum("s...m,sm->s...", by, dz), forced, by)
    # A separate loop, which XLA removes where the derivative of the Jacobians is not used.
    return dz, dpassage, *along(jacobians, dz)


def _moving_jacobians(what, moves, starts: Array, nodes: Array, integrator: Integrators) -> tuple[PyTree, PyTree]:
    """The strides' Jacobians, and the derivatives of these with respect to the strides' starts and the moving leaves."""
    timed = len(nodes) > 1
    moving, still = eqx.partition(what, moves)

    def evaluate(inputs):
        (state, moving), (t, still, integrator) = inputs
        t, x = (state[0], state[1:]) if timed else (t, state)
        return jacobians(eqx.combine(moving, still), t, x, integrator), None

    def one(t, x):
        state = jnp.append(t, x) if timed else x
        return with_jacobian(evaluate, (state, moving), (t, still, integrator))[:2]

    if timed:
        return jax.vmap(one)(starts, nodes)
    return jax.tree.map(lambda leaf: leaf[None], one(starts[0], nodes[0]))
