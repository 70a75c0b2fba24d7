r"""The interior-point method for a program of stages: many unknowns in stages, cheap functions, one start.

As in `interior_point`, an iteration is one evaluation of all functions with their derivatives at a trial point, which is accepted
by the same filter, or whose step is halved; lanes of a batch run the same steps. Where no length of a step is accepted, steps
that lower the violations alone follow, and the next Newton step is taken where the filter allows.

Source: Wächter, Biegler (2006), Math. Program. 106, 25-57, sec. 2 and 3.3.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._numerics.trees import select
from .._system.results import choose, RESULTS
from .._system.types import Flag
from .interior_point import (
    allows,
    DONE,
    empty_filter,
    Filter,
    InteriorPoint,
    judged_step,
    next_barrier,
    no_history,
    SearchHistory,
    with_point,
)
from .stages import (
    barrier_value,
    evaluate,
    first_costates,
    gap_size,
    longest,
    moved,
    newton_direction,
    no_sample,
    residual,
    Staged,
    StageProgram,
    StageSample,
)

# The phases: the first evaluation, which gives slacks and costates; the barrier problems.
BEGIN, BARRIER = 0, 1
# A step is halved so often; steps that only close violations follow, at most so many in all.
HALVINGS, RESTORATIONS = 10, 40
# The first barrier parameter, of that of the method: functions are of the order of 1 and not of 32.
PART = 0.1
# The barrier parameter from which a search goes on that is near its end.
WARM = 1e-6


class StageSearch(eqx.Module):
    """The state of a search between two evaluations.

    **Attributes:** `phase`, `trial`, `point` and `sample` there, `mu`, `filter`, `most`, `slope`, `fraction`, `restoring`,
    `rejected`, `error`, `iterations` and `history`: as in `ProgramSearch`. `step`: of all variables; `dual`: its fraction for
    the duals; `shift`: the last one that was needed. `restorations`: steps that only closed violations. `violation`: the largest.
    """

    phase: Int[Array, ""]
    trial: Staged
    point: Staged
    sample: StageSample
    mu: Float[Array, ""]
    filter: Filter
    most: Float[Array, ""]
    step: Staged
    slope: Float[Array, ""]
    fraction: Float[Array, ""]
    dual: Float[Array, ""]
    shift: Float[Array, ""]
    restoring: Bool[Array, ""]
    restorations: Int[Array, ""]
    rejected: Int[Array, ""]
    error: Float[Array, ""]
    violation: Float[Array, ""]
    iterations: Int[Array, ""]
    history: SearchHistory


def begin(program: StageProgram, method: InteriorPoint, point: Staged, warm: Flag) -> StageSearch:
    """The state before the first evaluation, of `point`; `warm`: whether its slacks and multipliers are those of an optimum."""
    dtype = point.states.dtype
    zero, none, no = jnp.zeros((), dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    sample = no_sample(program.sizes, point)
    return StageSearch(
        phase=jnp.where(warm, BARRIER, BEGIN).astype(jnp.int32), trial=point, point=point, sample=sample,
        mu=jnp.where(warm, WARM, PART * method.barrier).astype(dtype), filter=empty_filter(dtype), most=zero + jnp.inf,
        step=jax.tree.map(jnp.zeros_like, point), slope=zero, fraction=zero, dual=zero, shift=zero, restoring=no,
        restorations=none, rejected=none, error=zero + jnp.inf, violation=zero + jnp.inf, iterations=none,
        history=no_history(method.max_iterations, dtype),
    )  # fmt: skip


def search(program: StageProgram, method: InteriorPoint, state: StageSearch) -> StageSearch:
    """The state of the search at its end."""
    going = lambda state: (state.phase < DONE) & (state.iterations < method.max_iterations)
    return jax.lax.while_loop(going, lambda state: _iterate(program, method, state), state)


def _iterate(program: StageProgram, method: InteriorPoint, state: StageSearch) -> StageSearch:
    sample = evaluate(program, state.trial)
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(sample)]))
    sample = select(sound, sample, state.sample)
    first = state.iterations == 0
    after = select(
        first, _after_first(program, state, sample, sound), _after_trial(program, state, sample, sound, method)
    )
    i, nan = state.iterations, jnp.where(sound, 0, jnp.nan)
    code = choose(sound, RESULTS.successful, RESULTS.nonfinite)
    length = jnp.max(jnp.abs(state.trial.states - state.point.states))
    # Before the first evaluation slacks are not known.
    violation = jnp.where(state.phase == BEGIN, after.violation, residual(program, state.trial, sample, 0.0)[1])
    row = sample.value + nan, violation + nan, length, (after.rejected == 0) & sound, state.phase, code._value
    after = replace(after, iterations=i + 1, history=state.history.with_row(i, *row))
    after = _with_next_trial(program, method, after)
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state)


def _after_first(program: StageProgram, state: StageSearch, sample: StageSample, sound: Flag) -> StageSearch:
    """The first point has slacks, duals and costates; those of an optimum near by are kept."""
    warm = state.phase == BARRIER
    least = jnp.where(warm, WARM, 1e-2)
    slack, ending = jnp.maximum(sample.rows, least), jnp.maximum(sample.ending, least)
    own = state.point._replace(
        slack=slack, ending_slack=ending, costates=first_costates(sample), dual=state.mu / slack,
        ending_dual=state.mu / ending,
    )  # fmt: skip
    kept = state.point._replace(slack=slack, ending_slack=ending)
    point = select(warm, kept, own)
    error, violation = residual(program, point, sample, 0.0)
    # Second derivatives are those of the multipliers before: the point is evaluated once more.
    return replace(
        state, phase=jnp.where(sound, jnp.where(warm, BARRIER, BEGIN), DONE), point=point, sample=sample,
        most=1e4 * jnp.maximum(1, gap_size(point, sample)), error=error, violation=violation,
    )  # fmt: skip


def _after_trial(
    program: StageProgram, state: StageSearch, sample: StageSample, sound: Flag, method: InteriorPoint
) -> StageSearch:
    of = lambda point, sample: (gap_size(point, sample), barrier_value(point, sample, state.mu))
    before, after = of(state.point, state.sample), of(state.trial, sample)
    accepted, blocks = judged_step(state.filter, state.most, state.fraction * state.slope, before, after)
    lower = after[0] <= (1 - 1e-4 * state.fraction) * before[0]
    accepted = sound & (jnp.where(state.restoring, lower, accepted) | (state.phase == BEGIN))
    blocks = blocks & sound & ~state.restoring & (state.phase != BEGIN)
    point = select(accepted, state.trial, state.point)
    sample = select(accepted, sample, state.sample)
    error, violation = residual(program, point, sample, 0.0)
    restored = state.restoring & accepted & allows(state.filter, *after)
    return replace(
        state, phase=jnp.full_like(state.phase, BARRIER), point=point, sample=sample, error=error, violation=violation,
        filter=with_point(state.filter, blocks, *before), restoring=state.restoring & ~restored,
        rejected=jnp.where(accepted, 0, state.rejected + 1),
    )  # fmt: skip


def _with_next_trial(program: StageProgram, method: InteriorPoint, state: StageSearch) -> StageSearch:
    point, sample = state.point, state.sample
    least = 1e-4 * method.accept

    def lowered(_, mu):
        solved = residual(program, point, sample, mu)[0] <= 10 * mu
        return next_barrier(mu, solved, least)

    begun = state.phase == BARRIER
    mu = jnp.where(begun, jax.lax.fori_loop(0, 8, lowered, state.mu), state.mu)
    filter = select(mu < state.mu, empty_filter(mu.dtype), state.filter)
    # No length of the step is accepted.
    stuck = state.rejected > HALVINGS
    restores = stuck & ~state.restoring
    filter = with_point(filter, restores, gap_size(point, sample), barrier_value(point, sample, mu))
    restoring = state.restoring | restores
    hopeless = (stuck & state.restoring) | (state.restorations > RESTORATIONS)
    # At rounding no step is accepted.
    near = (state.error <= method.accept) & (state.rejected > 2)
    ended = begun & ((state.error <= 1e-3 * method.accept) | near | hopeless)
    # The same step, shorter, while it is rejected.
    again = (state.rejected > 0) & ~stuck

    def new():
        step, slope, shift = newton_direction(program, point, sample, mu, state.shift, restoring)
        return step, slope, *longest(point, step, mu), shift

    def old():
        return state.step, state.slope, state.fraction / 2, state.dual, jnp.zeros_like(state.shift)

    step, slope, fraction, dual, shift = jax.lax.cond(again | ~begun | ended, old, new)
    trial = moved(point, step, fraction, dual, mu)
    # A restoration has no multipliers of its own.
    kept = trial._replace(costates=point.costates, multipliers=point.multipliers)
    trial = select(restoring, kept, trial)
    return replace(
        state, phase=jnp.where(ended, DONE, state.phase), trial=select(begun, trial, point), mu=mu, filter=filter, step=step,
        slope=slope, fraction=fraction, dual=dual, shift=jnp.where(shift > 0, shift, state.shift), restoring=restoring,
        restorations=state.restorations + restoring.astype(jnp.int32), rejected=jnp.where(stuck, 0, state.rejected),
    )  # fmt: skip


def code_of_search(state: StageSearch, method: InteriorPoint) -> RESULTS:
    """`successful`, `infeasible` where no step lessens the violations, `optimum_not_found`; or `nonfinite` at the start."""
    result = choose(state.restoring & (state.violation > 1e-4), RESULTS.infeasible, RESULTS.optimum_not_found)
    result = choose(state.error <= method.accept, RESULTS.successful, result)
    known = jnp.any(state.history.accepted)
    return choose(known, result, RESULTS.nonfinite)
