r"""A periodic orbit as a function of its parameters, by the implicit function theorem.

The nodes obey $z_{i+1} = S(z_i, p)$, cyclically, so

$$dz_{i+1} - D_zS_i\,dz_i = D_pS_i\,dp, \qquad dz_{m+1} = dz_1,$$

one linear system with one block row for each stride, whose blocks are the strides' Jacobians, known from Newton's method. Where
the nodes' times are unknown too (`timed`), each $z$ begins with its time, and the time of the first node is fixed. The other
quantities of a stride are differentiated as functions of $z$ and $p$. The integrator's `adjoint` determines how the strides are
differentiated with respect to $p$: by Jacobians over all moving numbers (`ForwardMode`), by one tangent through the solver's
steps (`DirectAdjoint`), or by one backward pass (`RecursiveCheckpointAdjoint`), for any number of parameters: let $\bar z$ be the
cotangents of the nodes, including those of quantities that depend on the nodes through the strides' known Jacobians. One
transposed linear solve gives the cotangents $\lambda_i$ of the strides' ends, and the backward passes of the strides $S_i$ give
the gradient:

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
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._flow.integrator import Integrators, pushable, rolled, without_jacobian
from .._numerics.elimination import solve
from .._numerics.linearize import perturbed, with_jacobian
from .._numerics.newton import DampedNewton, RootFinder
from .._numerics.trees import batched_like, without_tangents
from .._system.results import RESULTS
from .._system.types import Params, Scalar, State
from .chain import Chain, packed_stride, return_matrices, stride_jacobian, StrideOutput
from .problem import Problem
from .shooting import AbstractShooting, ShootingResult

Blocks = Float[Array, "strides width width"]
Rows = Float[Array, "strides width"]


class KnownOrbit(AbstractShooting):
    """The search for an orbit that is known already: only its derivatives are computed. `bends`: whether those of the return
    Jacobian are, which are the strides' second derivatives."""

    found: ShootingResult
    bends: bool = eqx.field(static=True)
    max_iterations: int = 0
    accept: float | None = None
    root_finder: RootFinder = DampedNewton()
    coarse: tuple[float, ...] = ()

    def search(self, problem: Problem, guess: Array, params: Params, integrator: Integrators) -> ShootingResult:
        return self.found


def moved_nodes(by_start: Blocks, forced: Rows, timed: int) -> Rows:
    """The perturbations `dz` of all nodes, for perturbations `forced` $= D_pS_i\\,dp$ of the strides' ends."""
    matrix, follows = _system(by_start, timed)
    right = jnp.roll(follows * forced, 1, axis=0)
    return solve(matrix, right.reshape(-1)).reshape(forced.shape)


def pulled_back(by_start: Blocks, nodes: Rows, timed: int) -> Rows:
    """The transpose of `moved_nodes` in `forced`: from cotangents of the nodes to cotangents of the strides' ends."""
    matrix, follows = _system(by_start, timed)
    return follows * jnp.roll(solve(matrix.T, nodes.reshape(-1)).reshape(nodes.shape), -1, axis=0)


def _system(by_start: Blocks, timed: int) -> tuple[Float[Array, "all all"], Rows]:
    """The matrix, and the mask of entries that a node takes from the end of the stride before: all but the first node's time."""
    strides, width, _ = by_start.shape
    each, eye = jnp.arange(strides), jnp.eye(width, dtype=by_start.dtype)
    follows = jnp.ones((strides, width), by_start.dtype).at[-1, :timed].set(0)
    system = jnp.zeros((strides, width, strides, width), by_start.dtype).at[each, :, each, :].set(eye)
    system = system.at[(each + 1) % strides, :, each, :].add(-follows[:, :, None] * by_start)
    return system.reshape(strides * width, -1), follows


def find(what: PyTree, guess: Array, method: AbstractShooting, integrator: Integrators) -> ShootingResult:
    """The orbit near a guess; with the strides' Jacobians, if `problem.varied` is not empty. Not differentiable."""
    problem, params = what
    integrator = without_jacobian(integrator)
    found = method.search(problem, guess, params, integrator)
    chain = found.chain
    if problem.varied and chain.jacobians is None:
        by = jax.vmap(lambda t, x: jacobians(what, t, x, integrator))(chain.starts, chain.nodes)
        chain = dataclasses.replace(chain, jacobians=by)
    chain, jacobian = batched_like((chain, found.jacobian), what)
    return dataclasses.replace(found, chain=chain, jacobian=jacobian)


def passage(what: PyTree, t: Scalar, x: State, integrator: Integrators) -> StrideOutput:
    """The stride that starts at `(t, x)`."""
    problem, params = what
    flow, packed = packed_stride(dataclasses.replace(problem, varied=()), t, x, params, integrator)
    return flow(packed)[0]


def jacobians(what: PyTree, t: Scalar, x: State, integrator: Integrators) -> StrideOutput:
    """The Jacobians of `passage` with respect to the stride's start and the leaves `varied` of the problem."""
    problem, params = what
    return stride_jacobian(problem, t, x, params, integrator)[1]


@eqx.filter_custom_vjp
def closed_orbit_backward(
    what: PyTree, guess: Array, method: AbstractShooting, integrator: Integrators
) -> ShootingResult:
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


def _cotangents(given: Chain, chain: Chain, timed: int) -> tuple[StrideOutput, Array]:
    """Cotangents of the strides' passages and of the nodes, from those of a chain, which are `None` where they are zero."""
    strides = len(chain.nodes)

    def dense(name: str) -> PyTree:
        zero = lambda value, cotangent: jnp.zeros_like(value) if cotangent is None else cotangent
        return jax.tree.map(zero, getattr(chain, name), getattr(given, name), is_leaf=lambda leaf: leaf is None)

    nodes = dense("nodes")
    if timed:
        nodes = jnp.concatenate([dense("starts")[:, None], nodes], axis=1)
    *inner, last = dense("arc_ends")
    ends = StrideOutput(
        end=jnp.zeros_like(nodes).at[-1, timed:].set(dense("end")),
        arc_ends=(*inner, last + jnp.roll(dense("before"), -1, axis=0)),
        elapsed=dense("elapsed").at[:, -1].add(dense("period")),
        guard_rates=dense("guard_rates").reshape(strides, -1),
    )
    return ends, nodes


def closed_orbit(
    problem: Problem, guess: Array, params: Params, method: AbstractShooting, integrator: Integrators
) -> ShootingResult:
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
        integrator = without_jacobian(integrator)
        problem = dataclasses.replace(problem, varied=flags)
    else:
        problem = dataclasses.replace(problem, varied=(False,) * len(flags))
    found = _closed_orbit((problem, params), guess, method, integrator)
    chain, timed = found.chain, int(problem.timed)
    bends = method.bends if isinstance(method, KnownOrbit) else True
    move = _multiplied if forward else _pushed
    dz, dpassage, by, dby = move(what, dwhat, chain, integrator, bends)
    djacobian, nested = None, what[0].varied
    if bends:
        _, djacobian = jax.jvp(lambda by: return_matrices(problem, by)[0], (by,), (dby,))
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


def _multiplied(
    what, dwhat, chain: Chain, integrator: Integrators, bends: bool
) -> tuple[Array, StrideOutput, StrideOutput, StrideOutput | None]:
    """`(dz, dpassage, by, dby)` by products with the strides' Jacobians and second derivatives over all moving numbers; `dby` is
    `None` unless `bends`."""
    timed, by = int(what[0].timed), chain.jacobians
    assert by is not None
    width = chain.nodes.shape[1] + timed
    dp = ravel_pytree(dwhat)[0]
    dz = moved_nodes(by.end[:, :, :width], by.end[:, :, width:] @ dp, timed)
    tangent = jnp.concatenate([dz, jnp.broadcast_to(dp, (len(dz), dp.size))], axis=1)
    moved = lambda by: jnp.einsum("s...m,sm->s...", by, tangent)
    dpassage = jax.tree.map(moved, by)
    if not bends:
        return dz, dpassage, by, None
    # A separate loop, which XLA removes where the derivative of the Jacobians is not used. Its compile time matters more than
    # its run time.
    by, by_by = _moving_jacobians(what, perturbed(dwhat), chain.starts, chain.nodes, rolled(integrator))
    return dz, dpassage, by, jax.tree.map(moved, by_by)


def _pushed(
    what, dwhat, chain: Chain, integrator: Integrators, bends: bool
) -> tuple[Array, StrideOutput, StrideOutput, StrideOutput | None]:
    """`(dz, dpassage, by, dby)` by tangents pushed through the strides: one for the passages, and if `bends` one for their
    Jacobians."""
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
    if not bends:
        return dz, dpassage, by, None
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
