"""The periodic orbit to solve for: the system, the sequence of modes, the number of strides; and whether the system's functions
compute with the time: a system that does not is the same at all times."""

import dataclasses
from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._flow.jump import reset
from .._numerics.programs import depends_on
from .._system.system import HybridSystem, Transition
from .._system.types import Params, Scalar, State


class Problem(eqx.Module):
    """A periodic orbit of `strides` passes through `sequence`: the constants of its equation.

    **Attributes:** `varied`: which leaves of `(system, params)` have columns in the strides' Jacobians, because an orbit is
    differentiated with respect to them or a branch has them as free parameters. Empty for none.
    """

    system: HybridSystem
    sequence: tuple[str, ...] = eqx.field(static=True)
    strides: int = eqx.field(static=True)
    varied: tuple[bool, ...] = eqx.field(static=True, default=())

    @property
    def timed(self) -> bool:
        """Whether the times at which strides start are unknown: a single stride starts at time 0."""
        return self.strides > 1

    @property
    def before_dimension(self) -> int:
        """The dimension of the state before the jump that closes the sequence."""
        return self.system.mode(self.sequence[-1]).dimension

    def split(self, params: Params) -> tuple[PyTree, PyTree]:
        """`(system, params)` split into the `varied` leaves and the others."""
        leaves, tree = jax.tree.flatten((self.system, params))
        flags = self.varied or (False,) * len(leaves)
        return eqx.partition((self.system, params), jax.tree.unflatten(tree, flags))

    def with_varied(self, params: Params, free: tuple[int, ...]) -> "Problem":
        """The problem whose strides are differentiated by the leaves `free` of the parameters."""
        first = len(jax.tree.leaves(self.system))
        leaves = first + len(jax.tree.leaves(params))
        return dataclasses.replace(self, varied=tuple(i - first in free for i in range(leaves)))

    @property
    def closing_way(self) -> Transition:
        """The transition that closes the sequence."""
        return self.system.way(self.system.route(self.sequence)[-1])

    def closing_jump(self, y: State, params: Params, t: Scalar | None = None) -> Array:
        """$R(t, y)$, the reset that closes the sequence. `t=None` means 0: a system that depends on time repeats itself, and
        the jump that closes the orbit restarts the clock."""
        return reset(self.closing_way, jnp.zeros((), y.dtype) if t is None else t, y, params)


def depends_on_time(problem: Problem, params: Params, like: jax.Array) -> bool:
    """Whether a function of the orbit's modes and transitions computes with the time."""
    system, sequence = problem.system, problem.sequence
    return uses_time(system, sequence, system.route(sequence), params, like.dtype)


def shifts_phase(problem: Problem, params: Params, like: jax.Array) -> bool:
    """Whether states near the orbit begin their next lap at another phase of the forcing: the system depends on time, and the
    guard that closes the orbit on the state. The return map, whose clock the closing jump restarts, does not see that."""
    if not depends_on_time(problem, params, like):
        return False
    guard = problem.closing_way.guard
    t, before = jax.ShapeDtypeStruct((), like.dtype), jax.ShapeDtypeStruct((problem.before_dimension,), like.dtype)
    return computes_with_first(lambda x, t: guard(t, x, params), before, t)


def uses_time(system: HybridSystem, modes: Iterable[str], taken: Iterable[int], params: Params, dtype) -> bool:
    """Whether the vector field, a guard or `armed` of one of the modes, or the reset of a way in `taken`, computes with the
    time."""
    t = jax.ShapeDtypeStruct((), dtype)
    state = lambda name: jax.ShapeDtypeStruct((system.mode(name).dimension,), dtype)
    fns = [(way.reset, way.source) for way in map(system.way, taken)]
    for name in dict.fromkeys(modes):
        guards = [(fn, name) for way in system.transitions_out(name) for fn in (way.guard, way.armed)]
        fns += [(system.mode(name).vector_field, name), *guards]
    return any(fn is not None and computes_with_first(fn, t, state(name), params) for fn, name in fns)


def computes_with_first(fn: Callable, first: PyTree, *others: PyTree) -> bool:
    """Whether a result of `fn(first, *others)` depends on an array of its first argument: a function that hands the time on to
    one that ignores the time does not."""
    closed, _, _ = eqx.filter_make_jaxpr(fn)(first, *others)
    return depends_on(closed, len(jax.tree.leaves(first)))
