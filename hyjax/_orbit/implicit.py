r"""A closed orbit as a function of its parameters: the implicit function theorem.

From node to node, $z_{i+1} = S(z_i, p)$ and around. So $dz$ solves one linear system, whose blocks are the strides' own
Jacobians, which Newton's method knows; then everything else that a stride knows moves with $z$ and $p$.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .._flow.batch_axes import batched_like
from .._flow.elimination import solve
from .._flow.integrator import Integrator, PlainForward, with_adjoint
from .._flow.linearize import perturbed, with_jacobian
from .._system.types import Params
from .chain import return_matrices, stride_jacobian
from .problem import Problem
from .shooting import AbstractShooting, Found


def closed_orbit(
    problem: Problem, guess: Array, params: Params, method: AbstractShooting, integrator: Integrator
) -> Found:
    """The closed orbit that `method` finds near the guess; its closure is differentiable in `params`, to any order.

    So it is in numbers that the system's functions close over.
    """
    system = problem.system.hoisted(params, guess.dtype)
    problem = eqx.tree_at(lambda p: p.system, problem, system)
    return _closed_orbit((problem, params), guess, method, integrator)


@eqx.filter_custom_jvp
def _closed_orbit(what, guess, method, integrator):
    problem, params = what
    integrator = with_adjoint(integrator, PlainForward())
    found = method.search(problem, guess, params, integrator)
    chain = found.chain
    if problem.varied and chain.jacobians is None:
        each = lambda t, x: stride_jacobian(problem, t, x, params, integrator)[1]
        chain = dataclasses.replace(chain, jacobians=jax.vmap(each)(chain.starts, chain.nodes))
    chain, jacobian = batched_like((chain, found.jacobian), what)
    return dataclasses.replace(found, chain=chain, jacobian=jacobian)


@_closed_orbit.def_jvp
def _closed_orbit_jvp(primals, tangents):
    what, guess, method, integrator = primals
    dwhat = tangents[0]
    moving, _ = eqx.partition(what, perturbed(dwhat))
    flags = tuple(jax.tree.leaves(jax.tree.map(lambda _, part: part is not None, what, moving)))
    if not any(flags):
        found = _closed_orbit(what, guess, method, integrator)
        return found, jax.tree.map(lambda _: None, found)

    # What is differentiated is compiled for that, and mostly called a few times: what counts is the time to compile.
    problem, params = what
    problem = dataclasses.replace(problem, varied=flags)
    integrator = with_adjoint(integrator, PlainForward(), rolled=True)
    found = _closed_orbit((problem, params), guess, method, integrator)
    chain = found.chain
    timed, by = int(problem.timed), chain.jacobians
    assert by is not None
    width = chain.nodes.shape[1] + timed

    dp = ravel_pytree(dwhat)[0]
    dz = _moved_starts(by.end[:, :, :width], by.end[:, :, width:] @ dp, timed)
    tangent = jnp.concatenate([dz, jnp.broadcast_to(dp, (len(dz), dp.size))], axis=1)
    moved = lambda by: jnp.einsum("s...m,sm->s...", by, tangent)

    dpassage = jax.tree.map(moved, by)
    # A loop of its own, which a compiler drops where nobody asks how the Jacobians move.
    by, by_by = _moving_jacobians(what, perturbed(dwhat), chain.starts, chain.nodes, integrator)
    dby = jax.tree.map(moved, by_by)
    _, djacobian = jax.jvp(lambda by: return_matrices(problem, by)[0], (by,), (dby,))
    nested = what[0].varied
    none = jax.tree.map(lambda _: None, found)
    dchain = dataclasses.replace(
        none.chain,
        nodes=dz[:, timed:],
        starts=dz[:, 0] if timed else jnp.zeros_like(chain.starts),
        before=jnp.roll(dpassage.before, 1, axis=0),
        end=dpassage.end[-1, timed:],
        period=jnp.sum(dpassage.time),
        guard_rates=dpassage.guard_rates.reshape(-1),
        jacobians=dby if nested else None,
    )
    found = dataclasses.replace(found, chain=dataclasses.replace(chain, jacobians=by if nested else None))
    parts = lambda found: (found.chain, found.jacobian)
    return found, eqx.tree_at(parts, none, (dchain, djacobian), is_leaf=lambda leaf: leaf is None)


def _moved_starts(by_start: Array, forced: Array, timed: int) -> Array:
    """`dz` of the next node = (d after / d start) `dz` + (d after / dp) `dp`; the first node keeps its time."""
    strides, width = forced.shape
    each = jnp.arange(strides)
    follows = jnp.where((each == strides - 1)[:, None] & (jnp.arange(width) < timed), 0.0, 1.0).astype(forced.dtype)
    system = jnp.zeros((strides, width, strides, width), forced.dtype)
    system = system.at[each, :, each, :].set(jnp.eye(width, dtype=forced.dtype))
    system = system.at[(each + 1) % strides, :, each, :].add(-follows[:, :, None] * by_start)
    right = jnp.roll(follows * forced, 1, axis=0)
    return solve(system.reshape(strides * width, -1), right.reshape(-1)).reshape(strides, width)


def _moving_jacobians(what, moves, starts: Array, nodes: Array, integrator: Integrator) -> tuple[PyTree, PyTree]:
    """The strides' Jacobians, and their Jacobians by the strides' starts and by what moves."""
    timed = len(nodes) > 1
    moving, still = eqx.partition(what, moves)

    def evaluate(inputs):
        (state, moving), (t, still, integrator) = inputs
        problem, params = eqx.combine(moving, still)
        t, x = (state[0], state[1:]) if timed else (t, state)
        return stride_jacobian(problem, t, x, params, integrator)[1], None

    def one(t, x):
        state = jnp.append(t, x) if timed else x
        return with_jacobian(evaluate, (state, moving), (t, still, integrator))[:2]

    if timed:
        return jax.vmap(one)(starts, nodes)
    return jax.tree.map(lambda leaf: leaf[None], one(starts[0], nodes[0]))
