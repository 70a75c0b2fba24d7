"""The searches from several starts: one compiled program for a fixed number of lanes, and chunks of starts for workers."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system.results import RESULTS
from .interior_point import DONE, InteriorPoint, Search, start_search
from .iteration import run_search
from .minimum import Minimum, minimum
from .program import Program

# The number of evaluations between two messages of progress.
SLICE = 10
# Spacings of the differences that check the gradient, relative to the fifth root of rounding.
SPACINGS = 1 / 4, 1 / 64, 1 / 1024


@dataclasses.dataclass(frozen=True)
class Searches:
    """Searches for the optima of a program, `lanes` at once.

    **Attributes:** `origin`: the unknowns where the functions are known, and what is known there.
    """

    program: Program
    method: InteriorPoint
    origin: tuple
    lanes: int

    def compile(self) -> None:
        starts = jnp.broadcast_to(self.origin[0], (self.lanes, self.origin[0].size))
        self._ended(_advance(self.program, self.method, starts, self._begun(), jnp.array(0)))

    def run(self, starts: np.ndarray, say: Callable[[str], None] = lambda what: None) -> list[np.ndarray]:
        """The ends of the searches from at most so many starts as lanes, shape `(starts, n)`: the leaves of a `Minimum`."""
        lanes = jnp.asarray(starts[np.minimum(np.arange(self.lanes), len(starts) - 1)])
        states, evaluations = self._begun(), 0
        while np.any(np.asarray(states.phase) < DONE) and evaluations < self.method.max_iterations:
            evaluations += SLICE
            states = _advance(self.program, self.method, lanes, states, jnp.array(evaluations))
            done, best = np.asarray(states.phase) == DONE, best_value(self._ended(states))
            say(f"optimizing: {evaluations} evaluations, {done.sum()} of {len(done)} starts done, best {best:.6g}")
        return [np.asarray(leaf)[: len(starts)] for leaf in jax.tree.leaves(self._ended(states))]

    def minima(self, leaves: list[np.ndarray]) -> Minimum:
        """The ends from their leaves: of all searches, or of one."""
        shapes = eqx.filter_eval_shape(lambda: self._ended(self._begun()))
        return jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(leaf) for leaf in leaves])

    def gradient_error(self, leaves: list[np.ndarray], value_before: float) -> float:
        """The largest deviation of the Jacobian of objective and constraints at an end from differences of order 4, relative to
        the row's largest component or value. Near a fold a spacing may be too long for the differences, or for the orbit.

        **Arguments:** `leaves`: of one `Minimum`. `value_before`: the objective of the first gait.
        """
        end = self.minima(leaves)
        u, jacobian = np.asarray(end.point.u), np.asarray(end.sample.jacobian)
        # At an optimum the gradient may vanish, and the value too.
        size = np.maximum(np.max(np.abs(jacobian), axis=1), np.abs(np.asarray(end.sample.values)))
        size[0] = max(size[0], abs(value_before))
        size, error = np.where(size > 0, size, 1)[:, None], np.nan
        for part in SPACINGS:
            spacing = part * float(np.finfo(u.dtype).eps) ** (1 / 5)
            differences = self._differences(u, end.sample.carry, spacing)
            error = np.fmin(error, np.max(np.abs(differences - jacobian) / size))
            if error < 1e-6:
                break
        return float(error)

    def _differences(self, u: np.ndarray, carry: Any, spacing: float) -> np.ndarray:
        """Differences of order 4 of objective and constraints; NaN where an orbit is lost. By the compiled search, one point a
        lane."""
        points = np.concatenate([u + k * spacing * np.eye(u.size) for k in (1, -1, 2, -2)]).astype(u.dtype)
        values = []
        for first in range(0, len(points), self.lanes):
            part = points[first : first + self.lanes]
            part = np.concatenate([part, np.repeat(part[-1:], self.lanes - len(part), axis=0)])
            states = _start(self.program, self.method, self.lanes, (jnp.asarray(u), carry))
            states = eqx.tree_at(lambda s: (s.point.u, s.finish.u), states, (jnp.asarray(part),) * 2)
            states = _advance(self.program, self.method, jnp.asarray(part), states, jnp.array(1))
            samples = jax.vmap(lambda state: state.sample.scaled(1 / state.scale))(states)
            lost = ~np.isfinite(np.asarray(states.history.objective[:, 0]))
            values.append(np.where(lost[:, None], np.nan, np.asarray(samples.values))[: len(points) - first])
        near, before, far, beyond = np.split(np.concatenate(values), 4)
        return (8 * (near - before) - (far - beyond)).T / (12 * spacing)

    def _begun(self) -> Search:
        return _start(self.program, self.method, self.lanes, self.origin)

    def _ended(self, states: Search) -> Minimum:
        return _ends(self.program, self.method, states)


@eqx.filter_jit
def _start(program: Program, method: InteriorPoint, lanes: int, origin) -> Search:
    state = start_search(program, method, *origin)
    # Of no weak type, as after the first iteration: else `_advance` would be compiled again for the second slice.
    strong = lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(strong(leaf), (lanes, *leaf.shape)), state)


@eqx.filter_jit
def _advance(program: Program, method: InteriorPoint, starts: Array, states: Search, until: Array) -> Search:
    return jax.vmap(lambda start, state: run_search(program, method, start, state, until))(starts, states)


@eqx.filter_jit
def _ends(program: Program, method: InteriorPoint, states: Search) -> Minimum:
    return jax.vmap(lambda state: minimum(program, method, state))(states)


def best_value(found: Minimum) -> float:
    """The least objective of a start that has reached an optimum; NaN before."""
    good = np.asarray(found.result == RESULTS.successful)
    return float(np.min(np.asarray(found.sample.values[:, 0])[good])) if good.any() else float("nan")
