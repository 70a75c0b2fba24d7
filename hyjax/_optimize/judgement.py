"""What follows from a trial of an interior-point search: in the approach, in the descent, and in the finish."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .active_set import with_bound_duals, with_least_multipliers
from .barrier import barrier_function, largest, near_central, optimality_error, Point, starting_point, violations
from .filter import verdict
from .interior_point import APPROACH, BARRIER, changed, DONE, FINISH, Search, SIZE
from .program import gradient_of_lagrangian, pick, Program, Sample

# The largest number of times that a step is shortened before the direction changes; half as many on the way to the start.
SHORTENINGS = 12
# How far from the start the curvatures of functions are measured.
BESIDE = 1e-3
# The part of the range of the unknowns over which a function's curvature counts.
PART = 0.01
# Smaller sums of violations are zero.
EXACT = 1e-13


def approached(program: Program, start: Array, state: Search, trial: Point, sample: Sample, sound) -> Search:
    """After a trial on the way to the start. Where the way ends, at the start or where functions are lost, the descent begins;
    without second derivatives after one more trial, beside that point, which shows the curvatures."""
    first, probing = state.iterations == 0, state.probing
    known = sample.hessians is not None
    moves = sound & ~probing
    u = jnp.where(moves, trial.u, state.point.u)
    rejected = jnp.where(sound, 0, state.rejected + 1)
    # Not the number of losses one after the other: near the end of the way each second step succeeds.
    stuck = ~probing & ~sound & (first | (state.fraction <= 0.25 ** (SHORTENINGS // 2)))
    inside = jnp.all((u > program.lower) & (u < program.upper))
    ends = (moves & jnp.all(u == start)) | (stuck & inside & ~first)
    begins = ends if known else probing
    if sample.hessians is not None:
        bends = jnp.max(jnp.abs(sample.hessians), axis=(1, 2))
    else:
        length = largest(trial.u - state.point.u)
        turned = jnp.max(jnp.abs(sample.jacobian - state.sample.jacobian), axis=1)
        bends = jnp.where(sound & (length > 0), turned / jnp.where(length > 0, length, 1), 0)
        sample = pick(~probing, sample, state.sample)
    scale = jnp.where(begins, scale_of(sample, bends), state.scale)
    sample = sample.scaled(scale)
    point = eqx.tree_at(lambda point: point.u, state.point, u)
    begun = starting_point(program, u, sample, state.mu)
    feasible = infeasibility(program, sample) <= EXACT
    return changed(
        state,
        first=jnp.where(begins & feasible, sample.values[0], state.first),
        most=1e4 * jnp.maximum(1, violation_size(violations(program, begun.slack, sample))),
        phase=jnp.where(begins, BARRIER, jnp.where(stuck & ~ends, DONE, APPROACH)),
        probing=ends & ~begins,
        point=pick(begins, begun, point),
        sample=sample,
        scale=scale,
        rejected=jnp.where(begins | ends, 0, rejected),
        fraction=jnp.where(sound, jnp.where(first, 1, jnp.minimum(1, 4 * state.fraction)), state.fraction / 4),
    )


def scale_of(sample: Sample, bends: Array) -> Array:
    r"""For each function the power of two that brings its size near `SIZE`: its gradient, or the part `PART` of its curvature
    `bends`, whichever is larger; of a constant, the constant.

    Unknowns are of the order of 1. Hazard: the gradient alone is no scale. It is small for a function of small numbers, and as
    small at the optimum of any function; and with the whole curvature a narrow valley would count for nothing against the
    barrier. A power of two changes no digit: the iterates do not depend on the units of the functions.
    """
    size = jnp.maximum(jnp.max(jnp.abs(sample.jacobian), axis=1), PART * bends)
    size = jnp.where(size > 0, size, jnp.abs(sample.values))
    usable = (size > 0) & jnp.isfinite(size)
    _, exponent = jnp.frexp(jnp.where(usable, size / SIZE, 1))
    return jnp.where(usable, jnp.ldexp(jnp.ones_like(size), 1 - exponent), 1)


def beside(program: Program, point: Point, sample: Sample) -> Point:
    """A point within the bounds at `BESIDE` from one, downhill, at which the gradients show the curvatures."""
    u, slope = point.u, sample.jacobian[0]
    # Of unlike lengths, so that the curvatures of a difference of unknowns do not cancel.
    lengths = jnp.asarray(BESIDE * (1 - 0.3 * ((0.618 * np.arange(u.size)) % 1)), u.dtype)
    step = jnp.clip(jnp.where(slope > 0, -lengths, lengths), (program.lower - u) / 2, (program.upper - u) / 2)
    return eqx.tree_at(lambda point: point.u, point, u + step)


def descended(program: Program, state: Search, trial: Point, sample: Sample, sound) -> Search:
    """After a trial of a barrier problem: accepted; or the next direction is a second-order correction; or shorter."""
    gap, gap1 = violations(program, state.point.slack, state.sample), violations(program, trial.slack, sample)
    of = lambda point, gap, sample: (
        violation_size(gap),
        barrier_function(program, point.u, point.slack, sample, state.mu),
    )
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
    # The first step after one that was lost is followed by another of its length: twice that was lost already.
    growth = jnp.where(state.rejected > 0, 1, 2)
    return changed(
        state,
        point=pick(accepted, trial, state.point),
        sample=pick(accepted, sample, state.sample),
        reach=jnp.where(accepted, growth * state.reach, jnp.where(sound, state.reach, length / 2)),
        secant=jnp.where(accepted & ~state.restoring, updated_secant(state, trial, sample), state.secant),
        points=state.points.with_point(accepted & ~state.restoring & judged.blocks, *before),
        restoring=state.restoring & ~restored,
        rejected=jnp.where(accepted, 0, state.rejected + 1),
        changes=jnp.where(accepted & ~state.restoring, 0, state.changes),
        gap=jnp.where(corrected, state.fraction * gap + gap1, gap),
        corrected=corrected,
    )


def infeasibility(program: Program, sample: Sample) -> Array:
    """The largest violation of a constraint, without slacks."""
    equal, unequal = sample.values[1 : 1 + program.equalities], sample.values[1 + program.equalities :]
    return jnp.maximum(largest(equal), largest(jnp.minimum(unequal, 0)))


def violation_size(gap: Array) -> Array:
    """The sum of violations; zero where it is rounding."""
    size = jnp.sum(jnp.abs(gap))
    return jnp.where(size > EXACT, size, 0)


def finished(program: Program, state: Search, trial: Point, sample: Sample, sound) -> Search:
    """After a trial of the finish, which goes on while the residual of the optimality conditions falls."""
    # The multipliers of the step are as inexact as the Hessian; of those that fit best here, the sign may be wrong.
    linear = with_bound_duals(trial, sample, state.active)
    fitted = with_bound_duals(with_least_multipliers(program, trial, sample, state.active), sample, state.active)
    errors = optimality_error(program, linear, sample), optimality_error(program, fitted, sample)
    fits = errors[1] < errors[0]
    trial, error = pick(fits, fitted, linear), jnp.where(fits, errors[1], errors[0])
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


def updated_secant(state: Search, trial: Point, sample: Sample) -> Array:
    r"""The BFGS update of the Hessian of the Lagrangian, with Powell's damping: $s^\top y \ge 0.2\, s^\top B s$."""
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
