"""The inputs that all runs of a solver study with one strategy of transition share."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.automaton import Automaton, Index, Padded
from .._flow.integrator import Integrator, Integrators
from .._flow.simulate import check_simulation
from .._system.system import HybridSystem
from .._system.types import Params, State, Time
from .study_run import limits_at, study_run, StudyRun


@dataclasses.dataclass(frozen=True)
class Case:
    """A system with its starts.

    **Attributes:** `automaton`, `mode`: the system, and the index of the first mode. `sets`: padded state and parameters of each.
    `max_jumps`, `max_steps`: the most in one run, and in one arc.
    """

    automaton: Automaton
    mode: Index
    sets: tuple[tuple[Padded, Params], ...]
    t0: Time
    t1: Time
    max_jumps: int
    max_steps: int

    def run(
        self, integrator: Integrators, tolerance: tuple[float, float], k: int, times: Float[Array, " times"]
    ) -> StudyRun:
        """The run of set `k` with a tolerance `(rtol, atol)`, and its states at `times`."""
        z0, params = self.sets[k]
        limits = limits_at(*tolerance, self.max_steps, z0.dtype)
        most = jnp.asarray(self.max_jumps)
        return study_run(self.automaton, self.mode, z0, self.t0, self.t1, params, integrator, limits, times, most)


def case_of(
    system: HybridSystem,
    mode: str,
    states: Sequence[State],
    sets: Sequence[Params],
    t0,
    t1,
    max_jumps: int,
    max_steps: int,
) -> Case:
    """The case of a system. `ValueError` as `simulate`, and for times that do not increase."""
    if not isinstance(max_steps, int) or max_steps < 1:
        raise ValueError(f"solver_study: max_steps={max_steps!r} must be a positive integer.")
    automaton = Automaton(system)
    checked = [
        check_simulation(system, x0, params, mode, t0, t1, max_jumps, Integrator())
        for x0, params in zip(states, sets, strict=True)
    ]
    start, _, end, *_ = checked[0]
    if not end > start:
        raise ValueError(f"solver_study: t1={t1!r} must lie after t0={t0!r}.")
    lanes = tuple((automaton.pad(x0), params) for _, x0, _, params, _ in checked)
    return Case(automaton, jnp.array(automaton.names.index(mode)), lanes, start, end, max_jumps, max_steps)
