"""Whether functions of a system compute with the time: a system that does not is the same at all times."""

from collections.abc import Callable, Iterable

import equinox as eqx
import jax
from jaxtyping import PyTree

from .._system.system import HybridSystem
from .._system.types import Params
from .problem import Problem


def depends_on_time(problem: Problem, params: Params, like: jax.Array) -> bool:
    """Whether a function of the orbit's modes and transitions computes with the time."""
    system, sequence = problem.system, problem.sequence
    return uses_time(system, sequence, system.route(sequence), params, like.dtype)


def shifts_phase(problem: Problem, params: Params, like: jax.Array) -> bool:
    """Whether states near the orbit begin their next lap at another phase of the forcing: the system depends on time, and the
    guard that closes the orbit on the state. The return map, whose clock the closing jump restarts, does not see that."""
    if not depends_on_time(problem, params, like):
        return False
    guard = problem.system.transitions[problem.system.route(problem.sequence)[-1]].guard
    t, before = jax.ShapeDtypeStruct((), like.dtype), jax.ShapeDtypeStruct((problem.before_dimension,), like.dtype)
    return computes_with_first(lambda x, t: guard(t, x, params), before, t)


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
