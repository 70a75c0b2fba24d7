"""A check of orbits of systems that depend on time: the orbit, followed once more from its end, must return again.

The equation of an orbit starts its clock at 0. In a forced system the state may return after a time that is no multiple of the
forcing's period: then the second lap starts at another phase, and ends elsewhere.
"""

from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._flow.integrator import PlainForward
from .._flow.mode_integrators import Integrators, rolled, with_adjoint
from .._flow.trees import without_tangents
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem
from .._system.types import Matrix, Params
from .chain import Chain
from .problem import Problem
from .stride import run_stride

# Relative to the state: another phase of the forcing moves the end of a lap by more.
CLOSE = 1e-6


def unless_out_of_phase(
    problem: Problem, chain: Chain, jacobian: Matrix, params: Params, integrator: Integrators, result: RESULTS
) -> RESULTS:
    """`out_of_phase` for a closed chain of a system that depends on time, where the second lap does not return.

    **Arguments:** `jacobian`: of the return map, by which the error of the orbit grows in the second lap.
    """
    if not depends_on_time(problem, params, chain.nodes):
        return result
    chain, jacobian, params = without_tangents((chain, jacobian, params))
    plain = rolled(with_adjoint(integrator, PlainForward()))
    start = chain.nodes[0]
    lap = run_stride(problem.system, chain.period, start, params, problem.sequence * problem.strides, plain)
    size = jnp.max(jnp.abs(chain.nodes))
    error = jnp.max(jnp.abs(chain.end - start)) + 10 * sum(integrator.tolerances(start.dtype)) * size
    grown = 10 * (1 + jnp.max(jnp.sum(jnp.abs(jacobian), axis=1))) * error
    returns = (lap.result == RESULTS.successful) & (jnp.max(jnp.abs(lap.x - start)) <= CLOSE * size + grown)
    return choose((result == RESULTS.successful) & ~returns, RESULTS.out_of_phase, result)


def depends_on_time(problem: Problem, params: Params, like: jax.Array) -> bool:
    """Whether a function of the orbit's modes and transitions computes with the time."""
    system, sequence = problem.system, problem.sequence
    return uses_time(system, sequence, system.route(sequence), params, like.dtype)


def uses_time(system: HybridSystem, modes: Iterable[str], taken: Iterable[int], params: Params, dtype) -> bool:
    """Whether the vector field, a guard or `armed` of one of the modes, or the reset of a transition in `taken`, computes with
    the time."""
    t = jax.ShapeDtypeStruct((), dtype)
    state = lambda name: jax.ShapeDtypeStruct((system.mode(name).dimension,), dtype)
    fns = [(system.transitions[i].reset, system.transitions[i].source) for i in taken]
    for name in dict.fromkeys(modes):
        ways = [system.transitions[i] for i in system.leaving(name)]
        fns += [(system.mode(name).vector_field, name), *((fn, name) for way in ways for fn in (way.guard, way.armed))]
    return any(fn is not None and computes_with_first(fn, t, state(name), params) for fn, name in fns)


def computes_with_first(fn: Callable, first: PyTree, *others: PyTree) -> bool:
    """Whether `fn(first, *others)` computes with an array of its first argument."""
    closed, _, _ = eqx.filter_make_jaxpr(fn)(first, *others)
    own = closed.jaxpr.invars[: len(jax.tree.leaves(first))]
    used = [v for equation in closed.jaxpr.eqns for v in equation.invars]
    return any(v is each for v in (*used, *closed.jaxpr.outvars) for each in own)
