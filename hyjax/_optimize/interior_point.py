r"""An interior-point method for few unknowns and expensive functions, from many starts in one batch, under `vmap` and `jit`.

SciPy's methods search from one start at a time, and outside of JAX. Here an iteration is one evaluation of all functions with
their derivatives: it evaluates a trial point and either accepts it, and takes the next Newton direction, or shortens the step.
All lanes of a batch run the same steps, so no search along a line waits for that of another lane. The phases of a lane are: the
approach from the point where its functions are known to its start; the barrier problems; the finish by Newton's method on the
optimality conditions. A trial that cannot be evaluated (the gait is lost) is a step that is too long.

A step of a barrier problem must lower either the violation $\theta = \sum |h|$ of the constraints or the barrier function
$\varphi$, compared with the present point and with all points in the filter. Near the constraints, where the direction descends,
it must lower $\varphi$ enough.

Source: Wächter, Biegler (2006), Math. Program. 106, 25-57, sec. 2; Nocedal, Wright (2006), *Numerical Optimization*, ch. 18, 19.
"""

from dataclasses import replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._numerics.trees import select
from .._results.shown import Shown
from .._system.results import choose, code_of, RESULTS
from .._system.types import Flag, require_counts
from .nonlinear_program import (
    active_set,
    active_set_step,
    ActiveSet,
    barrier_error,
    barrier_function,
    EXACT,
    hessian_of_lagrangian,
    infeasibility,
    largest,
    moved,
    near_central,
    newton_direction,
    NonlinearProgram,
    optimality_error,
    PrimalDual,
    Sample,
    scale_of,
    SIZE,
    starting_point,
    updated_secant,
    violation_size,
    violations,
    with_bound_duals,
    with_least_multipliers,
)

# The phases of a lane. The probe is one trial beside the start.
PROBE, APPROACH, BARRIER, FINISH, DONE = range(-1, 4)
# The largest number of times that a step is shortened before the direction changes; half as many on the way to the start.
SHORTENINGS = 12
# The largest number of changes of the direction before the search ends.
CHANGES = 4
# A step of this relative length ends a barrier problem.
TINY = 1e-12
# How far from the start the curvatures of functions are measured.
BESIDE = 1e-3
# Multiplications by a matrix that lead to the eigenvector of its largest eigenvalue.
POWERS = 30
# A gradient that is zero, beside the curvature.
FLAT = 1e-9
# The number of points that the filter keeps; the oldest is dropped first.
FILTER_SIZE = 32


class InteriorPoint(eqx.Module):
    """The primal-dual interior-point method, finished by Newton's method on the active constraints.

    **Arguments:** `second_order`: use the exact Hessian of the Lagrangian, which takes about twice as long to compile; else BFGS
    updates with Powell's damping. `max_iterations`: evaluations of objective and constraints, static. `accept`: the largest
    residual of the optimality conditions at which a result is `successful`, of functions scaled by powers of two to gradients and
    curvatures of the order of 1 at the start, in unknowns scaled by their bounds. `barrier`: the first barrier parameter.

    **Example:**

    >>> hj.objectives.InteriorPoint(second_order=True, max_iterations=50).accept
    1e-07
    """

    second_order: bool = eqx.field(static=True, default=False)
    max_iterations: int = eqx.field(static=True, default=200)
    accept: float = 1e-7
    barrier: float = 0.1

    def __check_init__(self):
        require_counts("InteriorPoint", 1, max_iterations=self.max_iterations)
        if not self.accept > 0 or not self.barrier > 0:
            raise ValueError(f"InteriorPoint: accept={self.accept} and barrier={self.barrier} must be positive.")


class SearchHistory(Shown):
    """Every evaluation of a minimization, in order; beyond `iterations` zeros.

    **Attributes:** `objective`: of the trial, shape `(iterations,)`. `violation`: its largest violation of a constraint. `step`:
    the largest component of the step to it. `accepted`: whether it was accepted. `phase`: 0 approach to the start, 1 barrier, 2
    finish. `codes`: numbers of the result codes: why a trial failed; `names` are their names.
    """

    objective: Float[Array, "*iterations"]
    violation: Float[Array, "*iterations"]
    step: Float[Array, "*iterations"]
    accepted: Bool[Array, "*iterations"]
    phase: Int[Array, "*iterations"]
    codes: Int[Array, "*iterations"]

    @property
    def names(self) -> list[str]:
        """The names of the codes, such as `no_crossing`."""
        return [str(code_of(int(number))) for number in np.ravel(np.asarray(self.codes))]

    def with_row(self, i: Int[Array, ""], *row: Array | np.ndarray) -> "SearchHistory":
        """The history with the evaluation number `i`."""
        columns, structure = jax.tree.flatten(self)
        set_at = lambda column, new: column.at[i].set(jnp.asarray(new).astype(column.dtype))
        return jax.tree.unflatten(structure, [set_at(*each) for each in zip(columns, row, strict=True)])


def no_history(n: int, dtype) -> SearchHistory:
    """The history before the first of `n` evaluations."""
    return SearchHistory(*(jnp.zeros(n, each) for each in (dtype, dtype, dtype, bool, jnp.int32, jnp.int32)))


# The filter: pairs of violation and barrier function that no accepted point may reach in both; infinite where there is none yet.
Filter = Float[Array, "points 2"]


def allows(filter: Filter, violation: Array, barrier: Array) -> Flag:
    """Whether no point of the filter is at least as good in both."""
    return ~jnp.any((violation >= filter[:, 0]) & (barrier >= filter[:, 1]))


def with_point(filter: Filter, add: Flag, violation: Array, barrier: Array) -> Filter:
    """The filter with one more point, a little better than the given one, in place of the oldest, where `add`."""
    new = jnp.stack([(1 - 1e-5) * violation, barrier - 1e-8 * violation])
    return jnp.where(add, jnp.concatenate([new[None], filter[:-1]]), filter)


def judged_step(
    filter: Filter, most: Array, slope: Array, before: tuple[Array, Array], after: tuple[Array, Array]
) -> tuple[Flag, Flag]:
    """Whether a step is accepted, and whether the point that it leaves is to enter the filter. `most`: the largest violation of
    an accepted step. `slope`: the derivative of the barrier function, times the fraction of the step. `before`, `after`:
    violation and barrier function."""
    (theta, phi), (theta1, phi1) = before, after
    rounding = 10 * jnp.finfo(phi.dtype).eps * jnp.abs(phi)
    allowed = (theta1 <= most) & allows(filter, theta1, phi1 - rounding)
    steep = jnp.where(slope < 0, -slope, 0) ** 2.3 > theta**1.1
    descends = (slope < 0) & steep & (theta <= 1e-4 * jnp.maximum(1, most))
    enough = phi1 <= phi + 1e-4 * slope + rounding
    progress = (theta1 <= (1 - 1e-5) * theta) | (phi1 <= phi - 1e-8 * theta + rounding)
    accepted = allowed & jnp.where(descends, enough, progress)
    return accepted, accepted & ~descends


def next_barrier(mu: Array, solved: Flag, least: float) -> Array:
    """The barrier parameter, lowered superlinearly where its problem is solved."""
    return jnp.where(solved, jnp.maximum(least, jnp.minimum(0.2 * mu, mu**1.5)), mu)


def empty_filter(dtype) -> Filter:
    """The filter without points."""
    return jnp.full((FILTER_SIZE, 2), jnp.inf, dtype)


class ProgramSearch(eqx.Module):
    """The state of a minimization between two evaluations.

    **Attributes:** `phase`. `trial`: the point to evaluate next. `point`: the last accepted one; `sample`: there, scaled by
    `scale`. `first`: the scaled objective at the start; infinite where that violates a constraint. `mu`: of the barrier.
    `filter`; `most`: the largest violation of an accepted step. `secant`: the approximation of the Hessian, where no exact one
    is used. `step`, `fraction`: the direction of the trial in the unknowns, and its part that is taken. `slope`: of the barrier
    function along the first direction after a point. `shift`: of the Hessian, see `newton_direction`. `reach`: the longest step
    to try, after one that could not be evaluated. `restoring`: whether steps only lower the violation. `gap`: the violations that
    the direction removes. `corrected`: whether these include those of the last trial, a second-order correction. `rejected`,
    `changes`: trials since the last accepted one, and directions. `active`: the active set of the finish. `error`: the residual
    of the optimality conditions there, infinite before. `iterations`: evaluations so far, which `history` records.
    """

    phase: Int[Array, ""]
    trial: PrimalDual
    point: PrimalDual
    sample: Sample
    scale: Float[Array, " functions"]
    first: Float[Array, ""]
    mu: Float[Array, ""]
    filter: Filter
    most: Float[Array, ""]
    secant: Float[Array, "n n"]
    step: Float[Array, " n"]
    slope: Float[Array, ""]
    shift: Float[Array, ""]
    fraction: Float[Array, ""]
    reach: Float[Array, ""]
    restoring: Bool[Array, ""]
    gap: Float[Array, " m"]
    corrected: Bool[Array, ""]
    rejected: Int[Array, ""]
    changes: Int[Array, ""]
    active: ActiveSet
    error: Float[Array, ""]
    iterations: Int[Array, ""]
    history: SearchHistory


class Minimum(eqx.Module):
    """The end of a minimization, without scaling.

    **Attributes:** `point`, `sample`: the best found. `active`: constraints. `error`: the residual of the optimality
    conditions, relative to the scaled functions. `result`: `successful`, `infeasible`, `optimum_not_found`, or why the first
    evaluation failed, or the last on the way to the start.
    """

    point: PrimalDual
    sample: Sample
    active: ActiveSet
    error: Float[Array, ""]
    iterations: Int[Array, ""]
    history: SearchHistory
    result: RESULTS


def minimize(program: NonlinearProgram, method: InteriorPoint, origin: Array, start: Array, carry: PyTree) -> Minimum:
    """The local minimum to which the method leads from `start`, which is approached from `origin`."""
    state = run_search(program, method, start, start_search(program, method, origin, carry), method.max_iterations)
    return minimum(program, method, state)


def start_search(program: NonlinearProgram, method: InteriorPoint, origin: Array, carry: PyTree) -> ProgramSearch:
    """The state before the first iteration, which evaluates `origin`."""
    n, e, i, dtype = origin.size, program.equalities, program.inequalities, origin.dtype
    zeros, count = lambda *shape: jnp.zeros(shape, dtype), jnp.zeros((), jnp.int32)
    infinite, no = jnp.full((), jnp.inf, dtype), lambda *shape: jnp.zeros(shape, bool)
    hessians = zeros(1 + e + i, n, n) if method.second_order else None
    point = PrimalDual(origin, jnp.ones(i, dtype), zeros(e + i), jnp.ones(i, dtype), zeros(n), zeros(n))
    return ProgramSearch(
        phase=count + APPROACH, trial=point, point=point,
        sample=Sample(zeros(1 + e + i), zeros(1 + e + i, n), hessians, carry, cast(RESULTS, RESULTS.successful)),
        scale=jnp.ones(1 + e + i, dtype), first=infinite, mu=jnp.asarray(method.barrier, dtype), filter=empty_filter(dtype),
        most=zeros(), secant=SIZE * jnp.eye(n, dtype=dtype), step=zeros(n), slope=zeros(), shift=zeros(), fraction=zeros(),
        reach=infinite, restoring=no(), gap=zeros(e + i), corrected=no(), rejected=count, changes=count,
        active=ActiveSet(no(i), no(n), no(n)), error=infinite, iterations=count,
        history=no_history(method.max_iterations, dtype),
    )  # fmt: skip


def run_search(
    program: NonlinearProgram, method: InteriorPoint, start: Array, state: ProgramSearch, until: Int[Array, ""] | int
) -> ProgramSearch:
    """The state after the evaluation with the number `until`, or at the end."""
    # Hazard: the condition must depend on two carried numbers, see `run` in `hyjax/_flow/loop.py`.
    going = lambda state: (state.phase < DONE) & (state.iterations < jnp.minimum(until, method.max_iterations))
    return jax.lax.while_loop(going, lambda state: _iterate(program, method, start, state), state)


def _iterate(program: NonlinearProgram, method: InteriorPoint, start: Array, state: ProgramSearch) -> ProgramSearch:
    """Evaluate the trial point, accept or reject it, and choose the next trial point."""
    sample = program.evaluate(state.trial.u, state.sample.carry)
    sound, code = sample.sound, sample.code
    # The numbers of a trial that cannot be evaluated are replaced: 0 times NaN would be NaN.
    sample = select(sound, sample, eqx.tree_at(lambda s: s.result, state.sample, RESULTS.successful))
    unscaled, sample = sample, select(sound, sample.scaled(state.scale), state.sample)
    after = select(
        state.phase <= APPROACH,
        after_approach(program, start, state, sample, sound),
        select(
            state.phase == BARRIER,
            after_descent(program, state, sample, sound),
            after_finish(program, state, sample, sound),
        ),
    )
    accepted = (after.rejected == 0) & (after.changes == 0) & sound
    nan = jnp.where(sound, 0, jnp.nan)
    history = state.history.with_row(
        state.iterations, unscaled.values[0] + nan, infeasibility(program, unscaled) + nan,
        largest(state.trial.u - state.point.u), accepted, jnp.maximum(state.phase, APPROACH), code._value,
    )  # fmt: skip
    after = _with_next_trial(program, method, start, replace(after, iterations=state.iterations + 1, history=history))
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state)


def after_approach(
    program: NonlinearProgram, start: Array, state: ProgramSearch, sample: Sample, sound: Flag
) -> ProgramSearch:
    """The search after a trial on the way to the start. Where the way ends, at the start or where functions are lost, the
    descent begins. Without second derivatives it does so after one more trial, beside that point, which shows the curvatures;
    with them where the objective is flat at that point alone. From a flat point the search begins beside it, if it is lower
    there: at a maximum, as by symmetry, or a saddle no gradient leads on."""
    first, probing = state.iterations == 0, state.phase == PROBE
    moves = sound & ~probing
    rejected = jnp.where(sound, 0, state.rejected + 1)
    # Not the number of losses one after the other: near the end of the way each second step succeeds.
    stuck = ~probing & ~sound & (first | (state.fraction <= 0.25 ** (SHORTENINGS // 2)))
    reached = jnp.where(moves, state.trial.u, state.point.u)
    inside = jnp.all((reached > program.lower) & (reached < program.upper))
    ends = (moves & jnp.all(reached == start)) | (stuck & inside & ~first)
    here = select(probing, state.sample, sample)
    if here.hessians is not None:
        bends = jnp.max(jnp.abs(here.hessians), axis=(1, 2))
    else:
        length = largest(state.trial.u - state.point.u)
        turned = jnp.max(jnp.abs(sample.jacobian - state.sample.jacobian), axis=1)
        bends = jnp.where(sound & (length > 0), turned / jnp.where(length > 0, length, 1), 0)
    flat = largest(here.jacobian[0]) <= FLAT * bends[0]
    begins = probing if here.hessians is None else probing | (ends & ~flat)
    violation, violation_here = infeasibility(program, sample), infeasibility(program, here)
    lower = (sample.values[0] < here.values[0]) & (violation <= jnp.maximum(violation_here, EXACT))
    leaves = probing & sound & flat & lower
    sample, u = select(~probing | leaves, sample, here), jnp.where(leaves, state.trial.u, reached)
    scale = jnp.where(begins, scale_of(sample, bends), state.scale)
    sample = sample.scaled(scale)
    point = eqx.tree_at(lambda point: point.u, state.point, u)
    begun = starting_point(program, u, sample, state.mu)
    feasible = infeasibility(program, sample) <= EXACT
    most = 1e4 * jnp.maximum(1, violation_size(violations(program, begun.slack, sample)))
    return replace(
        state,
        phase=jnp.where(begins, BARRIER, jnp.where(ends, PROBE, jnp.where(stuck, DONE, APPROACH))),
        point=select(begins, begun, point),
        sample=sample,
        scale=scale,
        first=jnp.where(begins & feasible, sample.values[0], state.first),
        most=most,
        rejected=jnp.where(begins | ends, 0, rejected),
        fraction=jnp.where(sound, jnp.where(first, 1, jnp.minimum(1, 4 * state.fraction)), state.fraction / 4),
    )


def beside(program: NonlinearProgram, point: PrimalDual, sample: Sample) -> PrimalDual:
    """A point within the bounds at `BESIDE` from one, downhill, at which the gradients show the curvatures; where these are known
    already, along the least one of the objective."""
    u, slope = point.u, sample.jacobian[0]
    # Of unlike lengths, so that the curvatures of a difference of unknowns do not cancel.
    lengths = jnp.asarray(BESIDE * (1 - 0.3 * ((0.618 * np.arange(u.size)) % 1)), u.dtype)
    if sample.hessians is not None:
        hessian = sample.hessians[0]
        most = jnp.max(jnp.sum(jnp.abs(hessian), axis=1))
        nearer = lambda _, v: (w := most * v - hessian @ v) * (BESIDE / jnp.maximum(largest(w), BESIDE**9))
        lengths = jnp.where(most > 0, jax.lax.fori_loop(0, POWERS, nearer, lengths), lengths)
    step = jnp.clip(jnp.where(slope > 0, -lengths, lengths), (program.lower - u) / 2, (program.upper - u) / 2)
    return eqx.tree_at(lambda point: point.u, point, u + step)


def after_descent(program: NonlinearProgram, state: ProgramSearch, sample: Sample, sound: Flag) -> ProgramSearch:
    """The search after a trial of a barrier problem: accepted; or the next direction is a second-order correction; or shorter."""
    trial = state.trial
    gap, gap1 = violations(program, state.point.slack, state.sample), violations(program, trial.slack, sample)
    of = lambda point, gap, sample: (
        violation_size(gap),
        barrier_function(program, point.u, point.slack, sample, state.mu),
    )
    before, after = of(state.point, gap, state.sample), of(trial, gap1, sample)
    accepted, blocks = judged_step(state.filter, state.most, state.fraction * state.slope, before, after)
    lower = after[0] <= (1 - 1e-4 * state.fraction) * before[0]
    blocks = blocks & sound & ~state.restoring
    accepted = sound & jnp.where(state.restoring, lower, accepted)
    restored = state.restoring & accepted & allows(state.filter, *after)
    corrected = ~accepted & ~state.restoring & sound & (state.rejected == 0) & (after[0] >= before[0]) & (after[0] > 0)
    # The multipliers of a restoration are not those of the problem.
    duals = jnp.concatenate([jnp.zeros(program.equalities, gap.dtype), trial.slack_dual])
    duals = jnp.where(state.restoring, duals, trial.multipliers)
    trial = near_central(program, eqx.tree_at(lambda point: point.multipliers, trial, duals), state.mu)
    length = state.fraction * largest(state.step)
    # The first step after one that was lost is followed by another of its length: twice that was lost already.
    growth = jnp.where(state.rejected > 0, 1, 2)
    secant = updated_secant(state.secant, state.point, state.sample, trial, sample)
    return replace(
        state,
        point=select(accepted, trial, state.point),
        sample=select(accepted, sample, state.sample),
        filter=with_point(state.filter, blocks, *before),
        secant=jnp.where(accepted & ~state.restoring, secant, state.secant),
        reach=jnp.where(accepted, growth * state.reach, jnp.where(sound, state.reach, length / 2)),
        restoring=state.restoring & ~restored,
        gap=jnp.where(corrected, state.fraction * gap + gap1, gap),
        corrected=corrected,
        rejected=jnp.where(accepted, 0, state.rejected + 1),
        changes=jnp.where(accepted & ~state.restoring, 0, state.changes),
    )


def after_finish(program: NonlinearProgram, state: ProgramSearch, sample: Sample, sound: Flag) -> ProgramSearch:
    """The search after a trial of the finish, which goes on while the residual of the optimality conditions falls."""
    # The multipliers of the step are as inexact as the Hessian; of those that fit best here, the sign may be wrong.
    linear = with_bound_duals(state.trial, sample, state.active)
    fitted = with_least_multipliers(program, state.trial, sample, state.active)
    fitted = with_bound_duals(fitted, sample, state.active)
    errors = optimality_error(program, linear, sample), optimality_error(program, fitted, sample)
    fits = errors[1] < errors[0]
    trial, error = select(fits, fitted, linear), jnp.where(fits, errors[1], errors[0])
    better = sound & (error < state.error)
    settled = ~better | (error <= 4 * jnp.finfo(error.dtype).eps)
    secant = updated_secant(state.secant, state.point, state.sample, trial, sample)
    return replace(
        state,
        phase=jnp.where(settled, DONE, FINISH),
        point=select(better, trial, state.point),
        sample=select(better, sample, state.sample),
        secant=jnp.where(better, secant, state.secant),
        rejected=jnp.where(better, 0, 1),
        changes=jnp.zeros_like(state.changes),
        error=jnp.where(better, error, state.error),
    )


def _with_next_trial(
    program: NonlinearProgram, method: InteriorPoint, start: Array, state: ProgramSearch
) -> ProgramSearch:
    """The state with the next trial: on the way to the start, along the Newton direction, or the active-set step."""
    point, sample = state.point, state.sample
    least = 0.01 * method.accept
    length = state.fraction * jnp.abs(state.step)
    still = (state.rejected == 0) & jnp.all(length <= TINY * (1 + jnp.abs(point.u))) & (state.fraction > 0)

    # The barrier parameter falls where its problem is solved, and the filter starts anew.
    def lowered(i, mu):
        solved = (barrier_error(program, point, sample, mu) <= 10 * mu) | (still & (i == 0))
        return next_barrier(mu, solved, least)

    descending = state.phase == BARRIER
    mu = jnp.where(descending, jax.lax.fori_loop(0, 8, lowered, state.mu), state.mu)
    filter = select(mu < state.mu, empty_filter(mu.dtype), state.filter)
    error = barrier_error(program, point, sample, 0.0)
    own = violations(program, point.slack, sample)

    # Where no step length along the direction is accepted: reduce the constraint violation alone, or steepen the descent.
    stuck = state.rejected > SHORTENINGS
    restores = stuck & ~state.restoring & (violation_size(own) > 0)
    restoring = state.restoring | restores
    height = barrier_function(program, point.u, point.slack, sample, mu)
    filter = with_point(filter, restores, violation_size(own), height)
    changes = state.changes + stuck.astype(state.changes.dtype)
    hopeless = (changes > CHANGES) | (stuck & state.restoring)
    ended = descending & ((error <= 0.1 * method.accept) | hopeless | (still & (state.mu <= least)))
    rejected = jnp.where(stuck, 0, state.rejected)

    # The direction; a restoration minimizes the violation and the length of the step alone.
    hessian = hessian_of_lagrangian(sample, point.multipliers) if method.second_order else state.secant
    steeper = jnp.where(stuck & ~restoring, jnp.maximum(1e-2, 100 * state.shift), 0.0)
    floor = jnp.where(state.rejected > 0, jnp.where(stuck, steeper, state.shift), 0.0)
    gap = jnp.where(state.corrected, state.gap, own)
    feasible = jnp.sqrt(mu) * jnp.eye(point.u.size, dtype=mu.dtype)
    step, (primal, dual), slope, shift = newton_direction(
        program, point, sample.jacobian.at[0].multiply(jnp.where(restoring, 0, 1)), jnp.where(restoring, feasible, hessian),
        mu, state.shift, floor, gap,
    )  # fmt: skip
    slope = jnp.where(rejected == 0, slope, state.slope)

    # The length of the step; half of the last trial's, which was shorter than the direction if the longest step limited it.
    length = largest(step.u)
    fraction = primal * jnp.where(state.corrected, 1, 0.5 ** rejected.astype(mu.dtype))
    fraction = jnp.minimum(fraction, state.reach / jnp.where(length > 0, length, 1))
    shortens = (rejected > 0) & ~state.corrected
    fraction = jnp.where(shortens, jnp.minimum(fraction, state.fraction / 2), fraction)

    # Where the curvature is zero or negative, the shift keeps the steps of the finish short.
    active = select(ended, active_set(program, point), state.active)
    shifted = hessian + shift * jnp.eye(point.u.size, dtype=mu.dtype)
    finish = active_set_step(program, point, sample, shifted, active)
    entered = with_bound_duals(point, sample, active)

    of_descent = replace(
        state,
        phase=jnp.where(ended, FINISH, state.phase),
        trial=select(ended, finish, moved(point, step, fraction, dual)),
        point=select(ended, entered, point),
        mu=mu,
        filter=filter,
        step=step.u,
        slope=slope,
        shift=shift,
        fraction=fraction,
        restoring=restoring,
        rejected=rejected,
        changes=changes,
        active=active,
        error=jnp.where(ended, optimality_error(program, entered, sample), state.error),
    )
    way = jnp.where(state.fraction == 1, start, point.u + state.fraction * (start - point.u))
    approach = eqx.tree_at(lambda point: point.u, point, way)
    approach = select(state.phase == PROBE, beside(program, point, sample), approach)
    return select(descending, of_descent, replace(state, trial=select(state.phase <= APPROACH, approach, finish)))


def minimum(program: NonlinearProgram, method: InteriorPoint, state: ProgramSearch) -> Minimum:
    """The result of a search that has ended."""
    began, point, scale = state.phase > APPROACH, state.point, state.scale
    finished = state.error < jnp.inf
    active = select(finished, state.active, active_set(program, point))
    error = jnp.where(
        finished, state.error, optimality_error(program, with_bound_duals(point, state.sample, active), state.sample)
    )
    # Of functions with gradients of length 1, so that of two that contradict one another neither outweighs the other.
    lengths = jnp.sqrt(jnp.sum(state.sample.jacobian[1:] ** 2, axis=1))
    lengths = jnp.where(lengths > 0, lengths, SIZE)
    own, jacobian = (
        violations(program, point.slack, state.sample) / lengths,
        state.sample.jacobian[1:] / lengths[:, None],
    )
    # No step within the bounds lessens the sum of squares of the violations, or the sum of their moduli.
    falls = lambda weights: jnp.clip(point.u - weights @ jacobian, program.lower, program.upper) - point.u
    squares = largest(falls(own / jnp.maximum(largest(own), EXACT)))
    moduli = largest(falls(jnp.where(jnp.abs(own) > 1e-4, jnp.sign(own), 0)))
    blocked = (largest(own) > 1e-4) & (jnp.minimum(squares, moduli) <= 1e-2)
    known = jnp.any(state.history.accepted)
    unknown = jnp.where(known, 0, jnp.nan)
    result = choose(blocked, RESULTS.infeasible, RESULTS.optimum_not_found)
    # A barrier may lead out of the valley in which the search starts.
    worse = state.sample.values[0] > state.first + method.accept * jnp.maximum(1, jnp.abs(state.first))
    result = choose((error <= method.accept) & ~worse, RESULTS.successful, result)
    # A search that ends on the way to its start has not looked for an optimum, also where its last evaluation succeeded.
    last = codes_of(state.history.codes[state.iterations - 1])
    not_begun = choose(last == RESULTS.successful, RESULTS.optimum_not_found, last)
    result = choose(known & began, result, not_begun)
    by = scale[1:] / scale[0]
    e = program.equalities
    point = PrimalDual(
        point.u, point.slack / scale[1 + e :], point.multipliers * by, point.slack_dual * by[e:], point.low / scale[0],
        point.high / scale[0],
    )  # fmt: skip
    sample = state.sample.scaled(1 / scale)
    sample = eqx.tree_at(lambda s: (s.values, s.jacobian), sample, (sample.values + unknown, sample.jacobian + unknown))
    return Minimum(point, sample, active, error, state.iterations, state.history, result)


def codes_of(numbers: Any) -> RESULTS:
    """The result codes with these numbers, as `SearchHistory` holds them."""
    return jax.tree.map(lambda leaf: numbers, cast(RESULTS, RESULTS.successful))
