"""A return map as a map of the states before the jump that closes it, with Jacobians, for many states by one program."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.integrator import Integrator, pushable, rolled, without_jacobian
from .._numerics.eager import long_run, short_run
from .._numerics.linearize import with_columns
from .._system.results import RESULTS
from .._system.section import Section
from .._system.types import Params, Scalar, State
from .problem import Problem
from .return_map import ReturnMap

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
