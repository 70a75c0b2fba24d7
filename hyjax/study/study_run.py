"""One run of a solver study: a simulation with its samples and its numbers of steps, as one compiled program; and its measures
beside a reference: time of divergence, integral of the error, number of steps, duration.

The tolerances, the largest number of steps and the parameters are arguments of the program, so each solver is compiled once for
all tolerances and sets of parameters. The reference is made of accurate runs by several methods, with their disagreement.
Durations of several programs are measured in turn, so that a slow moment of the machine falls on all of them.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton, Index, Padded
from .._flow.integrator import Integrator, Integrators, Limits, with_limits, without_jacobian
from .._flow.loop_state import Watch
from .._flow.simulate import check_simulation, first_arc, flow_arc, leave_arc
from .._system.results import RESULTS
from .._system.system import HybridSystem
from .._system.types import Count, Flag, Params, State, Time
from ..solvers.evaluations import Work
from ..solvers.rodas5p import Rodas5P
from .study_checks import Method


def interleaved_durations(
    programs: Sequence[Callable[[], Any]], rounds: int, done: Callable[[int], None], long: float
) -> list[list[float]]:
    """The durations of each program, in seconds, in rounds in each of which every program runs once.

    The programs are compiled already. A program that took longer than `long` seconds in the first round is not run again.
    **Arguments:** `rounds`: how many. `done`: called with 1 after each run of the first round.
    """
    taken: list[list[float]] = [[] for _ in programs]
    for round_ in range(rounds):
        for program, durations in zip(programs, taken, strict=True):
            if round_ and durations[0] > long:
                continue
            begin = time.perf_counter()
            jax.block_until_ready(program())
            durations.append(time.perf_counter() - begin)
            if not round_:
                done(1)
    return taken


class Tally(eqx.Module):
    """The work of a run.

    **Attributes:** `tried`, `taken`: steps; the trials that locate an event are tried, and not taken. `evaluations`, `jacobians`:
    of the vector field in the steps tried, see `hyjax/solvers/evaluations.py`; NaN where a solver's work is not known. Those
    at the start of an arc, a few for the choice of the first step, are not counted.
    """

    tried: Int[Array, ""]
    taken: Int[Array, ""]
    evaluations: Float[Array, ""]
    jacobians: Float[Array, ""]


class Record(eqx.Module):
    """A record of the steps. `samples`: states at the times; the first `filled` are known. `tally`: the numbers of steps and of
    evaluations."""

    samples: Float[Array, "times size"]
    filled: Int[Array, ""]
    tally: Tally


class StudyRun(eqx.Module):
    """A run. **Attributes:** `samples`: states at the given times, padded; NaN at a time that the run did not reach. `tally`: its
    work. `jumps`: number of jumps. `result`: a code of `RESULTS`."""

    samples: Float[Array, "times size"]
    tally: Tally
    jumps: Int[Array, ""]
    result: RESULTS


@eqx.filter_jit
def study_run(
    automaton: Automaton,
    mode: Index,
    z0: Padded,
    t0: Time,
    t1: Time,
    params: Params,
    integrator: Integrators,
    limits: Limits,
    times: Float[Array, " times"],
    max_jumps: Int[Array, ""],
) -> StudyRun:
    """Simulate from `t0` to `t1` with the integrator under `limits`, with states at `times`, which increase.

    A state between two steps is the end of a real step of the solver from the last point, shortened: it has the accuracy of the
    step, for every solver, and does not change the steps of the run. A time `inf` is not reached, and costs nothing: a run of
    which only the duration is wanted is the same program with such times.
    """
    integrator = with_limits(without_jacobian(integrator), [limits] * len(integrator.parts))
    start = first_arc(automaton, z0, mode, t0, t1)
    zero = jnp.array(0)

    def one(carry):
        now, record, jumps = carry
        flown = flow_arc(automaton, now, start, t1, params, integrator, sampling(times, record))
        z_after = automaton.jump(flown.end.t, flown.end.x, jnp.maximum(flown.taken, 0), params)
        after, row = leave_arc(automaton, now, jumps >= max_jumps, flown, z_after)
        return after, flown.end.seen, jumps + row.jumped.astype(jumps.dtype)

    none = jnp.zeros((), z0.dtype)
    record = Record(jnp.full((times.size, z0.size), jnp.nan, z0.dtype), zero, Tally(zero, zero, none, none))
    last, record, jumps = jax.lax.while_loop(lambda carry: ~carry[0].done, one, (start, record, zero))
    # The last point of the loop may lie a rounding before the end time.
    rest = (jnp.arange(times.size) >= record.filled) & (times <= _beyond(t1)) & (last.result == RESULTS.successful)
    samples = jnp.where(rest[:, None], last.z, record.samples)
    return StudyRun(samples, record.tally, jumps, last.result)


def sampling(times: Float[Array, " times"], record: Record) -> Watch:
    """The watch that counts steps and evaluations and keeps the states at `times`."""
    count = times.size

    def update(course, before, attempt, after) -> Record:
        record, point = before.seen, before.last
        x, f = jnp.stack(point.x), jnp.stack(point.f)
        took = (after.last.t - point.t) + (after.last.late - point.late) > 0
        until = _beyond(after.last.t)

        def within(carry):
            k, _ = carry
            return took & (k < count) & (times[jnp.minimum(k, count - 1)] <= until)

        def sample(carry):
            k, samples = carry
            # A steep flow may be far beyond its surface within the rounding of the time.
            h = jnp.minimum(times[k] - point.t, attempt.dt)
            there = course.step(point.t, x, f, h, point.memory).x
            # At the start of an arc, or in the rounding between an event and the last step before it, there is no step to take.
            return k + 1, samples.at[k].set(jnp.where(h > 0, there, x))

        filled, samples = jax.lax.while_loop(within, sample, (record.filled, record.samples))
        return Record(samples, filled, tallied(record.tally, course.step.work, took, attempt.iterations))

    return Watch(update, record)


def tallied(tally: Tally, work: Work | None, took: Flag, iterations: Count) -> Tally:
    """The tally after one more step."""
    more = jnp.nan, jnp.nan
    if work is not None:
        more = (
            work.evaluations + work.each_evaluations * iterations,
            work.jacobians + work.each_jacobians * iterations,
        )
    evaluations, jacobians = (jnp.asarray(each, tally.evaluations.dtype) for each in more)
    taken = tally.taken + took.astype(tally.taken.dtype)
    return Tally(tally.tried + 1, taken, tally.evaluations + evaluations, tally.jacobians + jacobians)


def _beyond(t: Time) -> Time:
    """A time later by rounding."""
    return t + 64 * float(jnp.finfo(t.dtype).eps) * jnp.abs(t)


def limits_at(rtol: float, atol: float, max_steps: int, dtype) -> Limits:
    """The limits of a run, as arrays. A simulation has no use for `max_time`."""
    return Limits(
        jnp.asarray(rtol, dtype), jnp.asarray(atol, dtype), jnp.asarray(max_steps), jnp.asarray(jnp.inf, dtype)
    )


@dataclasses.dataclass(frozen=True)
class Yardstick:
    """The quantity measured. `coordinate`: its number, or `None` for the Euclidean norm of the first `size` coordinates.
    `near_zero`: the size of the reference below which a relative error is not evaluated."""

    coordinate: int | None
    size: int
    near_zero: float

    def of(self, x: np.ndarray) -> np.ndarray:
        """The size of states, or of differences of states, of shape `(times, n)`."""
        return np.linalg.norm(x[:, : self.size], axis=1) if self.coordinate is None else np.abs(x[:, self.coordinate])

    def measured(self, times: jax.Array, run: StudyRun, reference: np.ndarray, threshold: float) -> dict[str, float]:
        """The measures of a run. **Arguments:** `reference`: states at `times`. `threshold`: the relative error that counts as
        divergence."""
        t, x = np.asarray(times), np.asarray(run.samples)
        width = min(x.shape[1], reference.shape[1])
        error, size = self.of(x[:, :width] - reference[:, :width]), self.of(reference)
        return {
            "divergence_time": divergence_time(t, error, size, threshold, self.near_zero),
            "integral_of_error": integral_of_error(t, error),
            "steps_tried": float(run.tally.tried),
            "steps_taken": float(run.tally.taken),
            "jumps": float(run.jumps),
            "evaluations": float(run.tally.evaluations),
            "jacobians": float(run.tally.jacobians),
            "result": float(run.result._value),
        }


def divergence_time(t: np.ndarray, error: np.ndarray, size: np.ndarray, threshold: float, near_zero: float) -> float:
    r"""The first of the times at which $|e| / |x_{ref}| \ge \varepsilon$, where $|x_{ref}|$ is at least `near_zero` (eq. 32).

    The last time where there is none; the first time at which the run has no state, where it failed; NaN without a reference.

    **Source:** Dallas, Machairas, Papadopoulos (2017), eq. 32.
    """
    if not np.all(np.isfinite(size)):
        return np.nan
    far = (size >= near_zero) & (size > 0)
    left = ~np.isfinite(error) | (far & (error >= threshold * size))
    return float(t[np.argmax(left)] if np.any(left) else t[-1])


def integral_of_error(t: np.ndarray, error: np.ndarray) -> float:
    r"""$\int |e|\,dt$ by the trapezoidal rule over the times (eq. 33); NaN where the run or the reference failed.

    **Source:** Dallas, Machairas, Papadopoulos (2017), eq. 33.
    """
    return float(np.sum((error[1:] + error[:-1]) / 2 * np.diff(t)))


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


# Methods of different kinds, explicit and implicit: an error that both share is unlikely.
REFERENCE: dict[str, Method] = {"Dopri8": dfx.Dopri8(), "Rodas5P": Rodas5P()}
# The largest number of steps in an arc of the reference, whatever the limit of the runs.
MOST_STEPS = 100_000_000


@dataclasses.dataclass(frozen=True)
class Reference:
    """Accurate trajectories, one for each set of parameters.

    **Attributes:** `x`: states by the first method, shape `(sets, times, size)`. `error`: the largest difference of another
    method from the first, in what is measured, shape `(sets,)`. `result`: codes of `RESULTS`, shape `(sets, methods)`.
    """

    x: np.ndarray
    error: np.ndarray
    result: np.ndarray


def reference_of(
    case: Case,
    methods: Mapping[str, Integrators],
    tolerance: tuple[float, float],
    times: jax.Array,
    yardstick: Yardstick,
    advance: Callable[[int], None],
) -> Reference:
    """The runs of all sets by all methods at a tolerance `(rtol, atol)`."""
    case = dataclasses.replace(case, max_steps=MOST_STEPS)
    states, errors, codes = [], [], []
    for k in range(len(case.sets)):
        runs = []
        for integrator in methods.values():
            runs.append(case.run(integrator, tolerance, k, times))
            advance(1)
        first, *others = (np.asarray(run.samples) for run in runs)
        states.append(first)
        errors.append(max(np.max(yardstick.of(other - first)) for other in others))
        codes.append([int(run.result._value) for run in runs])
    return Reference(np.stack(states), np.array(errors), np.array(codes, np.int32))
