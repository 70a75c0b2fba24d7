"""The end of an interior-point search: the point found, and whether it is an optimum."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._system.results import choose, RESULTS
from .active_set import active_set, ActiveSet, with_bound_duals
from .barrier import largest, optimality_error, Point, violations
from .interior_point import APPROACH, History, InteriorPoint, Search, SIZE
from .judgement import EXACT
from .program import pick, Program, Sample


class Minimum(eqx.Module):
    """The end of a minimization, without scaling.

    **Attributes:** `point`, `sample`: the best found. `active`: constraints. `error`: the residual of the optimality
    conditions, relative to the scaled functions. `result`: `successful`, `infeasible`, `optimum_not_found`, or why the first
    evaluation failed, or the last on the way to the start.
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
    result = choose(blocked, RESULTS.infeasible, RESULTS.optimum_not_found)
    # A barrier may lead out of the valley in which the search starts.
    worse = state.sample.values[0] > state.first + method.accept * jnp.maximum(1, jnp.abs(state.first))
    result = choose((error <= method.accept) & ~worse, RESULTS.successful, result)
    # A search that ends on the way to its start has not looked for an optimum, also where its last evaluation succeeded.
    not_begun = choose(state.result == RESULTS.successful, RESULTS.optimum_not_found, state.result)
    result = choose(known & began, result, not_begun)
    by = scale[1:] / scale[0]
    e = program.equalities
    point = Point(
        point.u, point.slack / scale[1 + e :], point.multipliers * by, point.slack_dual * by[e:], point.low / scale[0],
        point.high / scale[0],
    )  # fmt: skip
    return Minimum(point, state.sample.scaled(1 / scale), active, error, state.iterations, state.history, result)
