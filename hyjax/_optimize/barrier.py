r"""The barrier problem of an interior-point method, with slacks $s$ of the inequalities.

$$\min\ f(u) - \mu \sum \log(u - l) - \mu \sum \log(h - u) - \mu \sum \log s, \qquad c_E(u) = 0, \quad c_I(u) - s = 0$$

Its Lagrangian is $f - \lambda^\top c$ with $\lambda_I = v$, the dual of the slacks; the duals of the bounds are $z_l$ and $z_h$.
At a solution $(u - l) z_l = (h - u) z_h = s v = \mu$.

Source: Wächter, Biegler (2006), *On the implementation of an interior-point filter line-search algorithm for large-scale
nonlinear programming*, Math. Program. 106, 25-57.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .program import gradient_of_lagrangian, Program, Sample

# A bound's dual may differ from mu over the distance by this factor.
SPREAD = 1e10


class Point(eqx.Module):
    """Primal and dual variables. `multipliers` are of the equalities and of `c_I - s`; duals of infinite bounds are zero."""

    u: Float[Array, " n"]
    slack: Float[Array, " inequalities"]
    multipliers: Float[Array, " m"]
    slack_dual: Float[Array, " inequalities"]
    low: Float[Array, " n"]
    high: Float[Array, " n"]


def starting_point(program: Program, u: Array, sample: Sample, mu: Array) -> Point:
    """Slacks and duals for the first point."""
    inequalities = sample.values[1 + program.equalities :]
    slack = jnp.maximum(inequalities, 0.01 * jnp.maximum(1, jnp.abs(inequalities)))
    to_low, to_high = distances(program, u)
    dual = jnp.minimum(mu / slack, 1e3)
    multipliers = jnp.concatenate([jnp.zeros(program.equalities, u.dtype), dual])
    low = jnp.where(jnp.isfinite(program.lower), jnp.minimum(mu / to_low, 1e3), 0)
    high = jnp.where(jnp.isfinite(program.upper), jnp.minimum(mu / to_high, 1e3), 0)
    return Point(u, slack, multipliers, dual, low, high)


def distances(program: Program, u: Array) -> tuple[Array, Array]:
    """The distances from the lower and the upper bounds; 1 where there is none."""
    return (
        jnp.where(jnp.isfinite(program.lower), u - program.lower, 1),
        jnp.where(jnp.isfinite(program.upper), program.upper - u, 1),
    )


def violations(program: Program, slack: Array, sample: Sample) -> Array:
    """$(c_E, c_I - s)$, shape `(m,)`."""
    return sample.values[1:].at[program.equalities :].add(-slack)


def barrier_function(program: Program, u: Array, slack: Array, sample: Sample, mu: Array) -> Array:
    """The objective of the barrier problem."""
    to_low, to_high = distances(program, u)
    logs = jnp.sum(jnp.log(to_low)) + jnp.sum(jnp.log(to_high)) + jnp.sum(jnp.log(slack))
    return sample.values[0] - mu * logs


def barrier_error(program: Program, point: Point, sample: Sample, mu: Array | float) -> Array:
    """The largest residual of the optimality conditions of the barrier problem, the dual ones relative to large multipliers."""
    to_low, to_high = distances(program, point.u)
    stationary = gradient_of_lagrangian(sample, point.multipliers) - point.low + point.high
    dual = jnp.concatenate([stationary, point.multipliers[program.equalities :] - point.slack_dual])
    products = jnp.concatenate(
        [
            jnp.where(jnp.isfinite(program.lower), to_low * point.low - mu, 0),
            jnp.where(jnp.isfinite(program.upper), to_high * point.high - mu, 0),
            point.slack * point.slack_dual - mu,
        ]
    )
    primal = violations(program, point.slack, sample)
    scale = dual_scale(point)
    return jnp.maximum(largest(primal), jnp.maximum(largest(dual) / scale, largest(products) / scale))


def optimality_error(program: Program, point: Point, sample: Sample) -> Array:
    r"""The largest residual of the Karush-Kuhn-Tucker conditions, without slacks: stationarity, feasibility, signs of the
    multipliers, and $\min(\lambda_i, c_i)$ or the product, whichever is smaller, for complementarity."""
    to_low, to_high = distances(program, point.u)
    scale = dual_scale(point)
    equal, unequal = sample.values[1 : 1 + program.equalities], sample.values[1 + program.equalities :]
    dual = point.multipliers[program.equalities :]
    stationary = gradient_of_lagrangian(sample, point.multipliers) - point.low + point.high
    pairs = jnp.concatenate(
        [
            _complementarity(unequal, dual, scale),
            jnp.where(jnp.isfinite(program.lower), _complementarity(to_low, point.low, scale), 0),
            jnp.where(jnp.isfinite(program.upper), _complementarity(to_high, point.high, scale), 0),
        ]
    )
    return jnp.maximum(largest(stationary) / scale, jnp.maximum(largest(equal), largest(pairs)))


def _complementarity(distance: Array, dual: Array, scale: Array) -> Array:
    dual = dual / scale
    negative = jnp.maximum(jnp.maximum(-distance, -dual), 0)
    return jnp.maximum(negative, jnp.minimum(jnp.abs(distance * dual), jnp.minimum(jnp.abs(distance), jnp.abs(dual))))


def dual_scale(point: Point) -> Array:
    """At least 1: the mean dual variable over 100."""
    duals = jnp.concatenate([point.multipliers, point.low, point.high])
    return jnp.maximum(1, jnp.mean(jnp.abs(duals)) / 100)


def near_central(program: Program, point: Point, mu: Array) -> Point:
    """The point with duals within a factor of `SPREAD` of those of the central path."""
    to_low, to_high = distances(program, point.u)
    keep = lambda dual, distance: jnp.clip(dual, mu / (SPREAD * distance), SPREAD * mu / distance)
    return Point(
        point.u,
        point.slack,
        point.multipliers,
        keep(point.slack_dual, point.slack),
        jnp.where(jnp.isfinite(program.lower), keep(point.low, to_low), 0),
        jnp.where(jnp.isfinite(program.upper), keep(point.high, to_high), 0),
    )


def largest(values: Array) -> Array:
    """The largest modulus; zero of an empty array."""
    return jnp.max(jnp.abs(values), initial=0)
