"""Checks of the arguments of a solver study; and one of its runs, a simulation with its samples and its numbers of steps, as one
compiled program, and its measures beside a reference: time of divergence, integral of the error, number of steps, duration.

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
from .._flow.in_step import with_joined
from .._flow.integrator import for_modes, Integrator, IntegratorLike, Integrators, Limits, with_limits, without_jacobian
from .._flow.loop_state import Watch
from .._flow.simulate import check_simulation, first_arc, flow_arc, leave_arc
from .._system.results import RESULTS
from .._system.system import HybridSystem, Mode, VectorField
from .._system.types import Count, Flag, Params, require_counts, State, Time
from ..solvers.one_array import Work
from ..solvers.rosenbrock import Rodas5P

# A solver, or an integrator, or an integrator for each mode.
Method = dfx.AbstractSolver | IntegratorLike


def listed(x0: State | list[State], params: Params | list[Params]) -> tuple[list[State], list[Params]]:
    """A state and the parameters of each set. `ValueError` for lists of different lengths."""
    sets = params if isinstance(params, list) else [params]
    states = x0 if isinstance(x0, list) else [x0] * len(sets)
    if not sets or len(states) != len(sets):
        raise ValueError(
            f"solver_study: x0 has {len(states)} states and params {len(sets)} sets. Give one state, or one for each set."
        )
    return states, sets


def integrators_of(system: HybridSystem, solvers: Mapping[str, Method]) -> dict[str, Integrators]:
    """The integrator of each name. A solver alone is an `Integrator` with `variations=False`: a study has no derivatives."""
    lone = lambda each: Integrator(each, variations=False) if isinstance(each, dfx.AbstractSolver) else each
    return {name: for_modes(system, lone(each)) for name, each in solvers.items()}


def require_methods(solvers: Mapping[str, Method], reference: Mapping[str, Method]) -> None:
    """`ValueError` unless there is at least one solver, and the reference has two methods."""
    if not solvers:
        raise ValueError("study: solvers must name at least one, such as {'ode45': diffrax.Dopri5()}.")
    if len(reference) < 2:
        raise ValueError("study: reference= needs two methods, whose disagreement tells the error of the reference.")


def pairs_of(tolerances: Sequence[float | tuple[float, float]], dtype) -> list[tuple[float, float]]:
    """`(rtol, atol)` of each tolerance; `ValueError` for those that an `Integrator` refuses."""
    if not len(tolerances):
        raise ValueError("study: tolerances must have at least one number, such as (1e-3, 1e-6).")
    pairs = [each if isinstance(each, tuple) else (each, each) for each in tolerances]
    return [Integrator(rtol=float(rtol), atol=float(atol)).tolerances(dtype) for rtol, atol in pairs]  # pyright: ignore


def combined_system(system: HybridSystem, mode: str, combined: VectorField) -> HybridSystem:
    """One mode, with the coordinates of `mode`, for a vector field that holds in all modes."""
    require_same_coordinates(system, "combined=, one vector field for all modes")
    return HybridSystem({"combined": Mode(combined, system.mode(mode).coordinates)}, ())


def coordinate_of(system: HybridSystem, of: str | None) -> int | None:
    """The number of a coordinate in every mode; `ValueError` where a mode has the coordinate elsewhere, or not at all."""
    if of is None:
        require_same_coordinates(system, "the norm of the error of the state")
        return None
    places = {
        name: mode.coordinates.index(of) if of in mode.coordinates else None for name, mode in system.modes.items()
    }
    if None in places.values() or len(set(places.values())) > 1:
        raise ValueError(
            f"solver_study: of={of!r} must be a coordinate that all modes have, at the same place; the places are {places}."
        )
    return next(iter(places.values()))


def require_same_coordinates(system: HybridSystem, what: str) -> None:
    """`ValueError` unless all modes have the same coordinates."""
    names = {mode.coordinates for mode in system.modes.values()}
    if len(names) > 1:
        raise ValueError(
            f"solver_study: {what} needs modes with the same coordinates; these have {sorted(names)}. Give of=, a coordinate "
            "that all modes have."
        )


def thresholds_of(divergence: float | Sequence[float], count: int) -> list[float]:
    """One threshold for each tolerance."""
    given = [float(each) for each in (divergence if isinstance(divergence, Sequence) else [divergence] * count)]
    if len(given) != count or not all(each > 0 for each in given):
        raise ValueError(
            f"solver_study: divergence={divergence!r} must be a positive number, or one for each of {count} tolerances."
        )
    return given


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


# The numbers of a run, by name. The steps that locate an event are tried, and not taken. Evaluations and Jacobians of the vector
# field are those in the steps tried, see `hyjax/solvers/one_array.py`; NaN where a solver's work is not known. Those at the
# start of an arc, a few for the choice of the first step, are not counted.
Tally = dict[str, Float[Array, ""] | Int[Array, ""]]
NUMBERS = ("steps_tried", "steps_taken", "jumps", "evaluations", "jacobians", "result")
# A run: the states at its times, padded, NaN at a time that the run did not reach; and its numbers, with `jumps` and `result`, a
# code of `RESULTS`.
StudyRun = tuple[Float[Array, "times size"], Tally]


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
        now, seen, jumps = carry
        end, taken = flow_arc(automaton, now, start, t1, params, integrator, sampling(times, seen))
        end, z_after = with_joined(automaton, end, now.mode, taken, params)
        after, row = leave_arc(automaton, now, jumps >= max_jumps, end, taken, z_after, params)
        return after, end.seen, jumps + row.jumped.astype(jumps.dtype)

    none = jnp.zeros((), z0.dtype)
    tally = {"steps_tried": zero, "steps_taken": zero, "evaluations": none, "jacobians": none}
    seen = jnp.full((times.size, z0.size), jnp.nan, z0.dtype), zero, tally
    last, (samples, filled, tally), jumps = jax.lax.while_loop(lambda carry: ~carry[0].done, one, (start, seen, zero))
    # The last point of the loop may lie a rounding before the end time.
    rest = (jnp.arange(times.size) >= filled) & (times <= _beyond(t1)) & (last.result == RESULTS.successful)
    return jnp.where(rest[:, None], last.z, samples), tally | {"jumps": jumps, "result": last.result._value}


def sampling(times: Float[Array, " times"], seen: tuple[Array, Array, Tally]) -> Watch:
    """The watch that sees the states at `times`, the number of those that are known, the first, and the tally."""
    count = times.size

    def update(course, before, attempt, after) -> tuple[Array, Array, Tally]:
        (samples, filled, tally), point = before.seen, before.last
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
            _, there, *_ = course.step(point.t, x, f, h, point.memory)
            # At the start of an arc, or in the rounding between an event and the last step before it, there is no step to take.
            return k + 1, samples.at[k].set(jnp.where(h > 0, there, x))

        filled, samples = jax.lax.while_loop(within, sample, (filled, samples))
        return samples, filled, tallied(tally, course.step.work, took, attempt.iterations)

    return update, seen


def tallied(tally: Tally, work: Work | None, took: Flag, iterations: Count) -> Tally:
    """The tally after one more step."""
    more = {"steps_tried": 1, "steps_taken": took, "evaluations": jnp.nan, "jacobians": jnp.nan}
    if work is not None:
        more["evaluations"] = work.evaluations + work.each_evaluations * iterations
        more["jacobians"] = work.jacobians + work.each_jacobians * iterations
    return {name: number + jnp.asarray(more[name], number.dtype) for name, number in tally.items()}


def _beyond(t: Time) -> Time:
    """A time that is later by more than rounding."""
    return t + 64 * float(jnp.finfo(t.dtype).eps) * jnp.abs(t)


# The size of states, or of differences of states, shape `(times, n)`, in what is measured: shape `(times,)`.
Measurement = Callable[[np.ndarray], np.ndarray]


def measures(
    times: jax.Array, run: StudyRun, reference: np.ndarray, measured: Measurement, threshold: float, near_zero: float
) -> dict[str, float]:
    """The measures of a run. **Arguments:** `reference`: states at `times`. `threshold`: the relative error that counts as
    divergence; `near_zero`: the size of the reference below which this error is not evaluated."""
    t, x, numbers = np.asarray(times), np.asarray(run[0]), {name: float(run[1][name]) for name in NUMBERS}
    width = min(x.shape[1], reference.shape[1])
    error, size = measured(x[:, :width] - reference[:, :width]), measured(reference)
    divergence = divergence_time(t, error, size, threshold, near_zero)
    return {"divergence_time": divergence, "integral_of_error": integral_of_error(t, error)} | numbers


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
        # A simulation has no use for `max_time`.
        rtol, atol, max_time = (jnp.asarray(each, z0.dtype) for each in (*tolerance, jnp.inf))
        limits = rtol, atol, jnp.asarray(self.max_steps), max_time
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
    require_counts("solver_study", 1, max_steps=max_steps)
    checked = [
        check_simulation(system, x0, params, mode, t0, t1, max_jumps, Integrator())
        for x0, params in zip(states, sets, strict=True)
    ]
    system, start, _, end, *_ = checked[0]
    automaton = Automaton(system)
    if not end > start:
        raise ValueError(f"solver_study: t1={t1!r} must lie after t0={t0!r}.")
    lanes = tuple((automaton.pad(x0), params) for _, _, x0, _, params, _ in checked)
    return Case(automaton, jnp.array(system.number(mode)), lanes, start, end, max_jumps, max_steps)


# Methods of different kinds, explicit and implicit: an error that both share is unlikely.
REFERENCE: dict[str, Method] = {"Dopri8": dfx.Dopri8(), "Rodas5P": Rodas5P()}
# The largest number of steps in an arc of the reference, whatever the limit of the runs.
MOST_STEPS = 100_000_000


def reference_of(
    case: Case,
    methods: Mapping[str, Integrators],
    tolerance: tuple[float, float],
    times: jax.Array,
    measured: Measurement,
    advance: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Accurate trajectories at a tolerance `(rtol, atol)`: states by the first method, shape `(sets, times, size)`; the largest
    difference of another method from the first, in what is measured, shape `(sets,)`; and codes of `RESULTS`, shape
    `(sets, methods)`."""
    case = dataclasses.replace(case, max_steps=MOST_STEPS)
    states, errors, codes = [], [], []
    for k in range(len(case.sets)):
        runs = []
        for integrator in methods.values():
            runs.append(case.run(integrator, tolerance, k, times))
            advance(1)
        first, *others = (np.asarray(samples) for samples, _ in runs)
        states.append(first)
        errors.append(max(np.max(measured(other - first)) for other in others))
        codes.append([int(numbers["result"]) for _, numbers in runs])
    return np.stack(states), np.array(errors), np.array(codes, np.int32)
