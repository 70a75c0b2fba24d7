"""Iterations of the interior-point method: evaluate a trial point, accept or reject it, and choose the next trial point."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from .._system.results import RESULTS
from .active_set import active_set, active_set_step, with_bound_duals
from .barrier import barrier_error, barrier_function, largest, optimality_error, Point, violations
from .direction import moved, newton_direction
from .filter import empty_filter
from .interior_point import APPROACH, BARRIER, changed, DONE, FINISH, History, InteriorPoint, Search, start_search
from .judgement import approached, beside, descended, finished, infeasibility, SHORTENINGS, violation_size
from .minimum import Minimum, minimum
from .program import hessian_of_lagrangian, pick, Program, Sample

# The largest number of changes of the direction before the search ends.
CHANGES = 4
# A step of this relative length ends a barrier problem.
TINY = 1e-12


def run_search(
    program: Program, method: InteriorPoint, start: Array, state: Search, until: Int[Array, ""] | int
) -> Search:
    """The state after the evaluation with the number `until`, or at the end."""
    # Hazard: the condition must depend on two carried numbers, see `run` in `hyjax/_flow/loop.py`.
    going = lambda state: (state.phase < DONE) & (state.iterations < jnp.minimum(until, method.max_iterations))
    return jax.lax.while_loop(going, lambda state: _iterate(program, method, start, state), state)


def _iterate(program: Program, method: InteriorPoint, start: Array, state: Search) -> Search:
    trial = _trial(program, start, state)
    sample = program.evaluate(trial.u, state.sample.carry)
    sound, code = sample.sound, sample.code
    # The numbers of a trial that cannot be evaluated are replaced: 0 times NaN would be NaN.
    sample = pick(sound, sample, eqx.tree_at(lambda s: s.result, state.sample, RESULTS.successful))
    unscaled, sample = sample, pick(sound, sample.scaled(state.scale), state.sample)
    ways = (
        approached(program, start, state, trial, sample, sound),
        descended(program, state, trial, sample, sound),
        finished(program, state, trial, sample, sound),
    )
    after = pick(state.phase == APPROACH, ways[0], pick(state.phase == BARRIER, ways[1], ways[2]))
    accepted = (after.rejected == 0) & (after.changes == 0) & sound
    after = changed(after, iterations=state.iterations + 1, result=code)
    history = _recorded(program, state, trial, unscaled, code, sound, accepted)
    return _prepared(program, method, changed(after, history=history))


def _trial(program: Program, start: Array, state: Search) -> Point:
    along = moved(state.point, state.direction.step, state.fraction, state.direction.dual)
    way = jnp.where(state.fraction == 1, start, state.point.u + state.fraction * (start - state.point.u))
    approach = eqx.tree_at(lambda point: point.u, state.point, way)
    if state.sample.hessians is None:
        approach = pick(state.probing, beside(program, state.point, state.sample), approach)
    return pick(state.phase == APPROACH, approach, pick(state.phase == BARRIER, along, state.finish))


def _prepared(program: Program, method: InteriorPoint, state: Search) -> Search:
    """The state with the next trial point: barrier parameter, search direction and step length, or the active-set step."""
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
    # Where no step length along the direction is accepted: reduce the constraint violation alone, or steepen the descent.
    stuck = state.rejected > SHORTENINGS
    restores = stuck & ~state.restoring & (violation_size(own) > 0)
    restoring = state.restoring | restores
    points = points.with_point(
        restores, violation_size(own), barrier_function(program, point.u, point.slack, sample, mu)
    )
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
    # Half of the last trial, which was shorter than the direction if the longest step limited it.
    shortens = (rejected > 0) & ~state.corrected
    fraction = jnp.where(shortens, jnp.minimum(fraction, state.fraction / 2), fraction)

    active = pick(ended, active_set(program, point), state.active)
    # Where the curvature is zero or negative, the shift keeps the steps of the finish short.
    shifted = hessian + direction.shift * jnp.eye(point.u.size, dtype=mu.dtype)
    finish = active_set_step(program, point, sample, shifted, active)
    entered = with_bound_duals(point, sample, active)
    phase = jnp.where(ended, FINISH, state.phase)
    of_descent = changed(
        state, mu=mu, changes=changes, rejected=rejected, direction=direction, points=points, slope=slope,
        restoring=restoring, fraction=fraction, active=active, phase=phase, point=pick(ended, entered, point),
        error=jnp.where(ended, optimality_error(program, entered, sample), state.error),
    )  # fmt: skip
    return changed(pick(descending, of_descent, state), finish=finish)


def minimize(program: Program, method: InteriorPoint, origin: Array, start: Array, carry: PyTree) -> Minimum:
    """The local minimum to which the method leads from `start`, which is approached from `origin`."""
    state = run_search(program, method, start, start_search(program, method, origin, carry), method.max_iterations)
    return minimum(program, method, state)


def _recorded(program: Program, state: Search, trial: Point, sample: Sample, code, sound, accepted) -> History:
    i, nan = state.iterations, jnp.where(sound, 0, jnp.nan)
    row = (
        sample.values[0] + nan, infeasibility(program, sample) + nan,
        largest(trial.u - state.point.u), accepted, state.phase, code._value,
    )  # fmt: skip
    columns, structure = jax.tree.flatten(state.history)
    set_at = lambda column, new: column.at[i].set(jnp.asarray(new).astype(column.dtype))
    return jax.tree.unflatten(structure, [set_at(column, new) for column, new in zip(columns, row, strict=True)])
