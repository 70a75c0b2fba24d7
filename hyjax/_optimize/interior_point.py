r"""An interior-point method for few unknowns and expensive functions: one evaluation, with all derivatives, per iteration.

An iteration evaluates a trial point and either accepts it, and takes the next Newton direction, or shortens the step. All lanes of
a batch run the same steps, so no search along a line waits for that of another lane. The phases of a lane are: the approach from
the point where its functions are known to its start; the barrier problems; the finish by Newton's method on the optimality
conditions. A trial that cannot be evaluated (the gait is lost) is a step that is too long.

Source: Nocedal, Wright (2006), *Numerical Optimization*, ch. 19; Wächter, Biegler (2006), Math. Program. 106, 25-57.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._system.results import choose, RESULTS
from .active_set import active_set, active_set_step, ActiveSet, with_bound_duals
from .barrier import (
    barrier_error,
    barrier_function,
    largest,
    near_central,
    optimality_error,
    Point,
    starting_point,
    violations,
)
from .direction import Direction, moved, newton_direction
from .filter import empty_filter, Filter, verdict
from .program import gradient_of_lagrangian, hessian_of_lagrangian, pick, Program, Sample

APPROACH, BARRIER, FINISH, DONE = range(4)
# A step is shortened so many times before the direction is changed, and the direction is changed so many times.
SHORTENINGS, CHANGES = 12, 4
# Smaller sums of violations are zero.
EXACT = 1e-13
# A step of this relative length ends a barrier problem.
TINY = 1e-12


class InteriorPoint(eqx.Module):
    """The primal-dual interior-point method, finished by Newton's method on the active constraints.

    **Arguments:** `second_order`: use the exact Hessian of the Lagrangian, which takes about twice as long to compile; else BFGS
    updates with Powell's damping. `max_iterations`: evaluations of objective and constraints, static. `accept`: the largest residual of
    the optimality conditions at which a result is `successful`. `barrier`: the first barrier parameter.
    """

    second_order: bool = eqx.field(static=True, default=False)
    max_iterations: int = eqx.field(static=True, default=200)
    accept: float = 1e-7
    barrier: float = 0.1

    def __check_init__(self):
        if self.max_iterations < 1:
            raise ValueError(f"InteriorPoint: max_iterations={self.max_iterations} must be at least 1.")
        if not self.accept > 0 or not self.barrier > 0:
            raise ValueError(f"InteriorPoint: accept={self.accept} and barrier={self.barrier} must be positive.")


class History(eqx.Module):
    """Every evaluation of a minimization, in order; beyond `iterations` zeros.

    **Attributes:** `objective`: of the trial, shape `(iterations,)`. `violation`: its largest violation of a constraint. `step`:
    the largest component of the step to it. `accepted`: whether it was accepted. `phase`: 0 approach to the start, 1 barrier, 2
    finish. `codes`: numbers of the result codes: why a trial failed.
    """

    objective: Float[Array, "*iterations"]
    violation: Float[Array, "*iterations"]
    step: Float[Array, "*iterations"]
    accepted: Bool[Array, "*iterations"]
    phase: Int[Array, "*iterations"]
    codes: Int[Array, "*iterations"]


class Search(eqx.Module):
    """The state of a minimization between two evaluations.

    **Attributes:** `sample`: at `point`, scaled by `scale`. `mu`: of the barrier. `points`: the filter. `most`: the largest
    violation allowed. `secant`: the approximation of the Hessian, where no exact one is used. `direction`, `fraction`: of the next
    trial. `reach`: the longest step to try, after one that could not be evaluated. `slope`: of the barrier function along the direction. `restoring`: whether steps only lower the violation. `gap`: the violations that the direction removes. `corrected`: whether these include
    those of the last trial, a second-order correction. `rejected`, `changes`: trials since the last accepted one, and directions.
    `active`, `finish`: the active set and the next trial of the finish. `error`: the residual of the optimality conditions.
    `iterations`: evaluations so far. `result`: the code of the last.
    """

    phase: Int[Array, ""]
    point: Point
    sample: Sample
    scale: Float[Array, " functions"]
    mu: Float[Array, ""]
    points: Filter
    most: Float[Array, ""]
    secant: Float[Array, "n n"]
    direction: Direction
    fraction: Float[Array, ""]
    reach: Float[Array, ""]
    slope: Float[Array, ""]
    restoring: Bool[Array, ""]
    gap: Float[Array, " m"]
    corrected: Bool[Array, ""]
    rejected: Int[Array, ""]
    changes: Int[Array, ""]
    active: ActiveSet
    finish: Point
    error: Float[Array, ""]
    iterations: Int[Array, ""]
    result: RESULTS
    history: History


def changed(state: Search, **fields) -> Search:
    """The state with other fields."""
    names = tuple(fields)
    values = tuple(
        value if isinstance(value, eqx.Module) else jnp.asarray(value, getattr(state, name).dtype)
        for name, value in fields.items()
    )
    return eqx.tree_at(lambda state: tuple(getattr(state, name) for name in names), state, values)


def start_search(program: Program, method: InteriorPoint, origin: Array, carry: PyTree) -> Search:
    """The state before the first iteration, which evaluates `origin`."""
    n, e, i, dtype = origin.size, program.equalities, program.inequalities, origin.dtype
    zeros, count = lambda *shape: jnp.zeros(shape, dtype), jnp.zeros((), jnp.int32)
    hessians = zeros(1 + e + i, n, n) if method.second_order else None
    sample = Sample(zeros(1 + e + i), zeros(1 + e + i, n), hessians, carry, RESULTS.successful)
    point = Point(origin, jnp.ones(i, dtype), zeros(e + i), jnp.ones(i, dtype), zeros(n), zeros(n))
    direction = Direction(jax.tree.map(jnp.zeros_like, point), *(zeros() for _ in range(4)))
    k = method.max_iterations
    history = History(zeros(k), zeros(k), zeros(k), jnp.zeros(k, bool), *(jnp.zeros(k, jnp.int32) for _ in range(2)))
    return Search(
        phase=count + APPROACH, point=point, sample=sample, scale=jnp.ones(1 + e + i, dtype),
        mu=jnp.asarray(method.barrier, dtype), points=empty_filter(dtype), most=zeros(), secant=jnp.eye(n, dtype=dtype),
        direction=direction, fraction=zeros(), reach=jnp.full((), jnp.inf, dtype), slope=zeros(), restoring=jnp.array(False), gap=zeros(e + i),
        corrected=jnp.array(False), rejected=count, changes=count,
        active=ActiveSet(jnp.zeros(i, bool), jnp.zeros(n, bool), jnp.zeros(n, bool)), finish=point,
        error=jnp.full((), jnp.inf, dtype), iterations=count, result=RESULTS.successful, history=history,
    )  # fmt: skip


def run_search(
    program: Program, method: InteriorPoint, start: Array, state: Search, until: Int[Array, ""] | int
) -> Search:
    """The state after the evaluation with the number `until`, or at the end."""
    # Hazard: the condition must depend on two carried numbers, see `run` in `hyjax/_flow/loop.py`.
    going = lambda state: (state.phase < DONE) & (state.iterations < jnp.minimum(until, method.max_iterations))
    return jax.lax.while_loop(going, lambda state: _iterate(program, method, start, state), state)


def _iterate(program: Program, method: InteriorPoint, start: Array, state: Search) -> Search:
    trial = _trial(start, state)
    sample = program.evaluate(trial.u, state.sample.carry)
    sound, code = sample.sound, sample.code
    # The numbers of a trial that cannot be evaluated are replaced: 0 times NaN would be NaN.
    sample = pick(sound, sample, eqx.tree_at(lambda s: s.result, state.sample, RESULTS.successful))
    unscaled, sample = sample, pick(sound, sample.scaled(state.scale), state.sample)
    ways = (
        _approached(program, start, state, trial, sample, sound),
        _descended(program, state, trial, sample, sound),
        _finished(program, state, trial, sample, sound),
    )
    after = pick(state.phase == APPROACH, ways[0], pick(state.phase == BARRIER, ways[1], ways[2]))
    accepted = (after.rejected == 0) & (after.changes == 0) & sound
    after = changed(after, iterations=state.iterations + 1, result=code)
    history = _recorded(program, state, trial, unscaled, code, sound, accepted)
    return _prepared(program, method, changed(after, history=history))


def _trial(start: Array, state: Search) -> Point:
    along = moved(state.point, state.direction.step, state.fraction, state.direction.dual)
    way = jnp.where(state.fraction == 1, start, state.point.u + state.fraction * (start - state.point.u))
    approach = eqx.tree_at(lambda point: point.u, state.point, way)
    return pick(state.phase == APPROACH, approach, pick(state.phase == BARRIER, along, state.finish))


def _approached(program: Program, start: Array, state: Search, trial: Point, sample: Sample, sound) -> Search:
    """After a trial on the way to the start. Where the way ends, at the start or where functions are lost, the descent begins."""
    first = state.iterations == 0
    u = jnp.where(sound, trial.u, state.point.u)
    rejected = jnp.where(sound, 0, state.rejected + 1)
    stuck = (rejected > SHORTENINGS // 2) | (first & ~sound)
    inside = jnp.all((u > program.lower) & (u < program.upper))
    begins = (sound & jnp.all(u == start)) | (stuck & inside & ~first)
    # Functions with gradients above 100 are scaled down to that.
    steepest = jnp.max(jnp.abs(sample.jacobian), axis=1)
    scale = jnp.where(begins, jnp.minimum(1, 100 / jnp.where(steepest > 0, steepest, 1)), state.scale)
    sample = sample.scaled(scale)
    point = eqx.tree_at(lambda point: point.u, state.point, u)
    begun = starting_point(program, u, sample, state.mu)
    return changed(
        state,
        most=1e4 * jnp.maximum(1, _size(violations(program, begun.slack, sample))),
        phase=jnp.where(begins, BARRIER, jnp.where(stuck, DONE, APPROACH)),
        point=pick(begins, begun, point),
        sample=sample,
        scale=scale,
        rejected=jnp.where(begins, 0, rejected),
        fraction=jnp.where(sound, jnp.where(first, 1, jnp.minimum(1, 4 * state.fraction)), state.fraction / 4),
    )


def _descended(program: Program, state: Search, trial: Point, sample: Sample, sound) -> Search:
    """After a trial of a barrier problem: accepted; or the next direction is a second-order correction; or shorter."""
    gap, gap1 = violations(program, state.point.slack, state.sample), violations(program, trial.slack, sample)
    of = lambda point, gap, sample: (_size(gap), barrier_function(program, point.u, point.slack, sample, state.mu))
    before, after = of(state.point, gap, state.sample), of(trial, gap1, sample)
    judged = verdict(state.points, state.most, state.fraction * state.slope, before, after)
    lower = after[0] <= (1 - 1e-4 * state.fraction) * before[0]
    accepted = sound & jnp.where(state.restoring, lower, judged.accepted)
    restored = state.restoring & accepted & state.points.allows(*after)
    corrected = ~accepted & ~state.restoring & sound & (state.rejected == 0) & (after[0] >= before[0]) & (after[0] > 0)
    # The multipliers of a restoration are not those of the problem.
    duals = jnp.concatenate([jnp.zeros(program.equalities, gap.dtype), trial.slack_dual])
    duals = jnp.where(state.restoring, duals, trial.multipliers)
    trial = near_central(program, eqx.tree_at(lambda point: point.multipliers, trial, duals), state.mu)
    length = state.fraction * largest(state.direction.step.u)
    return changed(
        state,
        point=pick(accepted, trial, state.point),
        sample=pick(accepted, sample, state.sample),
        reach=jnp.where(accepted, 4 * state.reach, jnp.where(sound, state.reach, length / 2)),
        secant=jnp.where(accepted & ~state.restoring, updated_secant(state, trial, sample), state.secant),
        points=state.points.with_point(accepted & ~state.restoring & judged.blocks, *before),
        restoring=state.restoring & ~restored,
        rejected=jnp.where(accepted, 0, state.rejected + 1),
        changes=jnp.where(accepted & ~state.restoring, 0, state.changes),
        gap=jnp.where(corrected, state.fraction * gap + gap1, gap),
        corrected=corrected,
    )


def _size(gap: Array) -> Array:
    """The sum of violations; zero where it is rounding."""
    size = jnp.sum(jnp.abs(gap))
    return jnp.where(size > EXACT, size, 0)


def _finished(program: Program, state: Search, trial: Point, sample: Sample, sound) -> Search:
    """After a trial of the finish, which goes on while the residual of the optimality conditions falls."""
    trial = with_bound_duals(trial, sample, state.active)
    error = optimality_error(program, trial, sample)
    better = sound & (error < state.error)
    settled = ~better | (error <= 4 * jnp.finfo(error.dtype).eps)
    return changed(
        state,
        phase=jnp.where(settled, DONE, FINISH),
        point=pick(better, trial, state.point),
        sample=pick(better, sample, state.sample),
        secant=jnp.where(better, updated_secant(state, trial, sample), state.secant),
        error=jnp.where(better, error, state.error),
        rejected=jnp.where(better, 0, 1),
        changes=0,
    )


def _prepared(program: Program, method: InteriorPoint, state: Search) -> Search:
    """The state with the next trial: barrier parameter, direction and its length, or the step of the finish."""
    point, sample = state.point, state.sample
    least = 0.01 * method.accept
    length = state.fraction * jnp.abs(state.direction.step.u)
    still = (state.rejected == 0) & jnp.all(length <= TINY * (1 + jnp.abs(point.u))) & (state.fraction > 0)

    def lowered(i, mu):
        solved = (barrier_error(program, point, sample, mu) <= 10 * mu) | (still & (i == 0))
        return jnp.where(solved, jnp.maximum(least, jnp.minimum(0.2 * mu, mu**1.5)), mu)

    descending = state.phase == BARRIER
    mu = jnp.where(descending, jax.lax.fori_loop(0, 8, lowered, state.mu), state.mu)
    points = pick(mu < state.mu, empty_filter(mu.dtype), state.points)
    error = barrier_error(program, point, sample, 0.0)
    own = violations(program, point.slack, sample)
    # Where no fraction of the direction is accepted: first lower the violations alone, or steepen the descent.
    stuck = state.rejected > SHORTENINGS
    restores = stuck & ~state.restoring & (_size(own) > 0)
    restoring = state.restoring | restores
    points = points.with_point(restores, _size(own), barrier_function(program, point.u, point.slack, sample, mu))
    changes = state.changes + stuck.astype(state.changes.dtype)
    hopeless = (changes > CHANGES) | (stuck & state.restoring)
    ended = descending & ((error <= 0.1 * method.accept) | hopeless | (still & (state.mu <= least)))
    rejected = jnp.where(stuck, 0, state.rejected)
    hessian = hessian_of_lagrangian(sample, point.multipliers) if method.second_order else state.secant

    shift = state.direction.shift
    steeper = jnp.where(stuck & ~restoring, jnp.maximum(1e-2, 100 * shift), 0.0)
    floor = jnp.where(state.rejected > 0, jnp.where(stuck, steeper, shift), 0.0)
    gap = jnp.where(state.corrected, state.gap, own)
    feasible = jnp.sqrt(mu) * jnp.eye(point.u.size, dtype=mu.dtype)
    direction = newton_direction(
        program, point, sample.jacobian.at[0].multiply(jnp.where(restoring, 0, 1)), jnp.where(restoring, feasible, hessian),
        mu, shift, floor, gap,
    )  # fmt: skip
    slope = jnp.where(rejected == 0, direction.slope, state.slope)
    length = largest(direction.step.u)
    fraction = direction.primal * jnp.where(state.corrected, 1, 0.5 ** rejected.astype(mu.dtype))
    fraction = jnp.minimum(fraction, state.reach / jnp.where(length > 0, length, 1))

    active = pick(ended, active_set(program, point), state.active)
    finish = active_set_step(program, point, sample, hessian, active)
    entered = with_bound_duals(point, sample, active)
    phase = jnp.where(ended, FINISH, state.phase)
    of_descent = changed(
        state, mu=mu, changes=changes, rejected=rejected, direction=direction, points=points, slope=slope,
        restoring=restoring, fraction=fraction, active=active, phase=phase, point=pick(ended, entered, point),
        error=jnp.where(ended, optimality_error(program, entered, sample), state.error),
    )  # fmt: skip
    return changed(pick(descending, of_descent, state), finish=finish)


def updated_secant(state: Search, trial: Point, sample: Sample) -> Array:
    r"""The BFGS update of the Hessian of the Lagrangian, with Powell's damping: $s^	op y \ge 0.2\, s^	op B s$."""
    b, s = state.secant, trial.u - state.point.u
    of = lambda sample: gradient_of_lagrangian(sample, trial.multipliers)
    y, bs = of(sample) - of(state.sample), b @ s
    curvature = s @ bs
    flat = y @ s < 0.2 * curvature
    weight = jnp.where(flat, 0.8 * curvature / jnp.where(flat, curvature - y @ s, 1), 1)
    y = weight * y + (1 - weight) * bs
    usable = (curvature > 0) & (y @ s > 0)
    update = jnp.outer(y, y) / jnp.where(usable, y @ s, 1) - jnp.outer(bs, bs) / jnp.where(usable, curvature, 1)
    return jnp.where(usable, b + update, b)


def _recorded(program: Program, state: Search, trial: Point, sample: Sample, code, sound, accepted) -> History:
    i, nan = state.iterations, jnp.where(sound, 0, jnp.nan)
    equal, unequal = sample.values[1 : 1 + program.equalities], sample.values[1 + program.equalities :]
    row = (
        sample.values[0] + nan, jnp.maximum(largest(equal), largest(jnp.minimum(unequal, 0))) + nan,
        largest(trial.u - state.point.u), accepted, state.phase, code._value,
    )  # fmt: skip
    return jax.tree.map(
        lambda column, new: column.at[i].set(jnp.asarray(new).astype(column.dtype)), state.history, History(*row)
    )


class Minimum(eqx.Module):
    """The end of a minimization, without scaling.

    **Attributes:** `point`, `sample`: the best found. `active`: constraints. `error`: the residual of the optimality conditions,
    relative to the scaled functions. `result`: `successful`, `infeasible`, `optimum_not_found`, or why the first evaluation failed.
    """

    point: Point
    sample: Sample
    active: ActiveSet
    error: Float[Array, ""]
    iterations: Int[Array, ""]
    history: History
    result: RESULTS


def minimum(program: Program, method: InteriorPoint, state: Search) -> Minimum:
    """The result of a search that has ended."""
    began, point, scale = state.phase != APPROACH, state.point, state.scale
    finished = state.error < jnp.inf
    active = pick(finished, state.active, active_set(program, point))
    error = jnp.where(
        finished, state.error, optimality_error(program, with_bound_duals(point, state.sample, active), state.sample)
    )
    own = violations(program, point.slack, state.sample)
    # The step of steepest descent of the violation, within the bounds.
    descent = jnp.clip(point.u - state.sample.jacobian[1:].T @ own, program.lower, program.upper) - point.u
    blocked = (largest(own) > 1e-4) & (largest(descent) <= 1e-2 * largest(own))
    known = jnp.any(state.history.accepted)
    result = choose(blocked, RESULTS.infeasible, RESULTS.optimum_not_found)
    result = choose(error <= method.accept, RESULTS.successful, result)
    result = choose(known & began, result, state.result)
    by = scale[1:] / scale[0]
    e = program.equalities
    point = Point(
        point.u, point.slack / scale[1 + e :], point.multipliers * by, point.slack_dual * by[e:], point.low / scale[0],
        point.high / scale[0],
    )  # fmt: skip
    return Minimum(point, state.sample.scaled(1 / scale), active, error, state.iterations, state.history, result)


def minimize(program: Program, method: InteriorPoint, origin: Array, start: Array, carry: PyTree) -> Minimum:
    """The local minimum to which the method leads from `start`, which is approached from `origin`."""
    state = run_search(program, method, start, start_search(program, method, origin, carry), method.max_iterations)
    return minimum(program, method, state)
