r"""A closed orbit as a function of its parameters: the implicit function theorem.

From node to node, $z_{i+1} = S(z_i, p)$ and around. So $dz$ solves one linear system, whose blocks are the strides' own
Jacobians; then everything else that a stride knows moves with $z$ and $p$.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ._integrator import Integrator, PlainForward
from ._linearize import perturbed, with_jacobian
from ._shooting import AbstractShooting, Closure, Found, Problem, stride_jacobian
from ._tie import tie
from ._types import Params


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
    found = method.search(problem, guess, params, _adjoint(integrator, PlainForward(rolled=problem.rolled)))
    return eqx.tree_at(lambda found: found.closure, found, tie(found.closure, what))


def _adjoint(integrator: Integrator, adjoint) -> Integrator:
    return eqx.tree_at(lambda i: i.adjoint, integrator, adjoint)


@_closed_orbit.def_jvp
def _closed_orbit_jvp(primals, tangents):
    what, guess, method, integrator = primals
    dwhat = tangents[0]
    # What is differentiated is compiled for that, and mostly called a few times: what counts is the time to compile.
    found = _closed_orbit((dataclasses.replace(what[0], rolled=True), what[1]), guess, method, integrator)
    nodes, starts = found.closure.nodes, found.closure.starts
    strides, n = nodes.shape
    if not any(jax.tree.leaves(perturbed(dwhat))):
        return found, jax.tree.map(lambda _: None, found)
    timed = int(strides > 1)
    plain = _adjoint(integrator, PlainForward(rolled=True))
    moving, still = eqx.partition(what, perturbed(dwhat))

    def one(t, x):
        """What a stride gives, and how it moves with its own start and with the parameters."""

        def evaluate(inputs):
            (start, moving), (t, still) = inputs
            t, x = (start[0], start[1:]) if timed else (t, start)
            problem, params = eqx.combine(moving, still)
            end, _, stride = stride_jacobian(problem, t, x, params, plain)
            after = jnp.append(t + stride.time, stride.x) if timed else stride.x
            return (after, stride.time, end, stride.guard_rates), None

        start = jnp.append(t, x) if timed else x
        out, by, _ = with_jacobian(evaluate, (start, moving), (t, still))
        return out, by

    out, by = jax.vmap(one)(starts, nodes)
    dp = ravel_pytree(dwhat)[0]
    width = n + timed
    by_start, forced = by[:, :, :width], by[:, :, width:] @ dp

    # dz of the next node = (d after / d start) dz + (d after / dp) dp; the first node keeps its time.
    each = jnp.arange(strides)
    follows = jnp.where((each == strides - 1)[:, None] & (jnp.arange(width) < timed), 0.0, 1.0).astype(nodes.dtype)
    system = jnp.zeros((strides, width, strides, width), nodes.dtype)
    system = system.at[each, :, each, :].set(jnp.eye(width, dtype=nodes.dtype))
    system = system.at[(each + 1) % strides, :, each, :].add(-follows[:, :, None] * by_start[:, :width])
    right = jnp.roll(follows * forced[:, :width], 1, axis=0)
    operator = lx.MatrixLinearOperator(system.reshape(strides * width, -1))
    dz = lx.linear_solve(operator, right.reshape(-1), lx.LU(), throw=False).value.reshape(strides, width)

    moved = (by_start @ dz[:, :, None])[:, :, 0] + forced
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], out))
    dafter, dtime, dend, drates = jax.vmap(unravel)(moved)
    _, dtotal = jax.jvp(_product, (out[2],), (dend,))
    dclosure = Closure(
        nodes=dz[:, timed:],
        starts=dz[:, 0] if timed else jnp.zeros_like(starts),
        end=dafter[-1, timed:],
        period=jnp.sum(dtime),
        jacobian=dtotal[timed:, timed:],
        guard_rates=drates.reshape(-1),
    )
    none = jax.tree.map(lambda _: None, found)
    return found, eqx.tree_at(lambda f: f.closure, none, dclosure, is_leaf=lambda leaf: leaf is None)


def _product(factors):
    """The last factor leftmost."""
    eye = jnp.eye(factors.shape[-1], dtype=factors.dtype)
    return jax.lax.scan(lambda total, factor: (factor @ total, None), eye, factors)[0]
