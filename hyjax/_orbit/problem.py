"""The periodic orbit to solve for: the system, the sequence of modes, the number of strides; whether the system's functions
compute with the time: a system that does not is the same at all times; and the return map as one of the states before the jump
that closes it, with Jacobians, for many states by one program."""

import dataclasses
import functools as ft
from collections.abc import Callable, Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._flow.integrator import Integrator, pushable, rolled, without_jacobian
from .._flow.jump import reset
from .._numerics.eager import long_run, short_run
from .._numerics.linearize import with_columns
from .._numerics.programs import depends_on
from .._system.results import RESULTS
from .._system.section import Section
from .._system.system import HybridSystem, Transition
from .._system.types import Params, Scalar, State
from .return_map import ReturnMap


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


# States that are computed together.
LANES = 32
SUCCESSFUL = int(RESULTS.successful._value)
DIVERGED = int(RESULTS.nonlinear_divergence._value)


class Passage(NamedTuple):
    """A pass of a return map from states `y` before the closing jump: the states `x` after it, `end` before the next closing jump
    and `after` that one, and the guard at `y`, whose row of Jacobian is that of the surface."""

    x: Array
    end: Array
    after: Array
    guard: Array


class Lap(eqx.Module):
    """A return map as one of states before the jump that closes it; of a section, from which no jump leads, of its states.

    **Attributes:** `period`: of the orbit, the time at which the guard that closes it is taken."""

    step: ReturnMap
    params: Params
    period: Scalar

    def jump(self, y: State) -> State:
        """The state after the closing jump, $R(y)$."""
        step = self.step
        if step.sequence is None:
            return y
        return Problem(step.system, step.sequence, step.strides).closing_jump(y, self.params)

    def guard(self, y: State) -> Scalar:
        """Zero on the surface on which the states before the closing jump lie."""
        step = self.step
        if step.sequence is not None:
            way = Problem(step.system, step.sequence, step.strides).closing_way
            return way.guard(self.period, y, self.params)
        return step.section.surface(self.period, y, self.params) if isinstance(step.section, Section) else 0 * y[0]

    def passed(self, y: State) -> tuple[Passage, RESULTS]:
        """A pass of the map from the state after the jump."""
        x = self.jump(y)
        end, after, result = self.onward(x)
        return Passage(x, end, after, self.guard(y)), result

    def onward(self, x: State) -> tuple[State, State, RESULTS]:
        """From a state after the closing jump, those before and after the next one, and the code."""
        through = self.step(x, self.params, throw=False)
        end = through.x if self.step.sequence is None else through.impacts[-1].x  # pyright: ignore
        return end, through.x, through.result


def lap_of(step: ReturnMap, params: Params, period: Scalar) -> Lap:
    """The map, quick to compile, whose derivatives are pushed."""
    integrator = pushable(rolled(without_jacobian(step.integrator_or(Integrator()))))
    return Lap(dataclasses.replace(step, integrator=integrator), params, period)


@long_run
def _laps(lap: Lap, y: Float[Array, "lanes m"]) -> tuple[Passage, Passage, Int[Array, " lanes"]]:
    passage, by, result = jax.vmap(lambda y: with_columns(lap.passed, y))(y)
    return passage, by, result._value


def in_lanes(run: Callable, y: np.ndarray):
    """`run(y)` of rows, shape `(points, m)`, all by one program of `LANES` of them."""
    padded = np.concatenate([y, np.repeat(y[-1:], -len(y) % LANES, axis=0)]).reshape(-1, LANES, y.shape[1])
    runs = [jax.tree.map(np.asarray, run(jnp.asarray(part))) for part in padded]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(y)], *runs)


def passages(lap: Lap, y: np.ndarray) -> tuple[Passage, Passage, np.ndarray]:
    """`(passage, its Jacobians by y, codes)` of states, shape `(points, m)`."""
    return in_lanes(ft.partial(_laps, lap), y)


@short_run
def _jumps(lap: Lap, y: Float[Array, "lanes m"]) -> tuple[Array, Array]:
    return jax.vmap(lap.jump)(y), jax.vmap(jax.jacfwd(lap.jump))(y)


def jumps(lap: Lap, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states after the closing jump, shape `(points, n)`, and their Jacobians by `y`."""
    return in_lanes(ft.partial(_jumps, lap), y)
