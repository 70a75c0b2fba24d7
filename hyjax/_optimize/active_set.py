r"""The last steps to an optimum: Newton's method on the optimality conditions with the active constraints as equalities.

$$\begin{pmatrix} W & J_A^\top \\ J_A & 0 \end{pmatrix} \begin{pmatrix} du \\ -\lambda_A^+ \end{pmatrix} = -\begin{pmatrix}
  \nabla f \\ c_A \end{pmatrix}$$

Unknowns at an active bound are moved onto it; inactive constraints have the multiplier zero. The steps converge quadratically, to
rounding, where the constraints' gradients are independent and no active constraint has the multiplier zero.

Source: Nocedal, Wright (2006), *Numerical Optimization*, ch. 18.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._numerics.elimination import solver
from .barrier import distances, Point
from .program import gradient_of_lagrangian, Program, Sample


class ActiveSet(eqx.Module):
    """Which inequalities hold as equalities, and which unknowns are at their bounds."""

    inequalities: Bool[Array, " inequalities"]
    low: Bool[Array, " n"]
    high: Bool[Array, " n"]


def active_set(program: Program, point: Point) -> ActiveSet:
    """The constraints whose dual variable is larger than the distance to them."""
    to_low, to_high = distances(program, point.u)
    return ActiveSet(
        point.slack_dual > point.slack,
        jnp.isfinite(program.lower) & (point.low > to_low),
        jnp.isfinite(program.upper) & (point.high > to_high),
    )


def active_set_step(program: Program, point: Point, sample: Sample, hessian: Array, active: ActiveSet) -> Point:
    """The next point, not yet evaluated: its duals of active bounds are those of the linearized conditions."""
    to_bound = jnp.where(active.low, program.lower - point.u, program.upper - point.u)
    jacobian, values = sample.jacobian[1:], sample.values[1:]
    du, multipliers = _solved(program, hessian, sample, active, to_bound, values, point.multipliers)
    # Of the linearized Lagrangian: what remains at a fixed unknown is the dual of its bound.
    remains = sample.jacobian[0] + hessian @ du - multipliers @ jacobian
    u = jnp.clip(point.u + du, program.lower, program.upper)
    # Exactly: `u + (bound - u)` may miss the bound by rounding.
    u = jnp.where(active.low, program.lower, jnp.where(active.high, program.upper, u))
    return Point(
        u,
        jnp.maximum(point.slack, 0),
        multipliers,
        multipliers[program.equalities :],
        jnp.where(active.low, remains, 0),
        jnp.where(active.high & ~active.low, -remains, 0),
    )


def with_least_multipliers(program: Program, point: Point, sample: Sample, active: ActiveSet) -> Point:
    """The point with the multipliers of active constraints that leave the shortest gradient of the Lagrangian in the unknowns
    that are not at a bound."""
    zeros = jnp.zeros_like(point.u), jnp.zeros_like(sample.values[1:])
    _, multipliers = _solved(
        program, jnp.eye(point.u.size, dtype=point.u.dtype), sample, active, *zeros, point.multipliers
    )
    parts = lambda point: (point.multipliers, point.slack_dual)
    return eqx.tree_at(parts, point, (multipliers, multipliers[program.equalities :]))


def _solved(
    program: Program, hessian: Array, sample: Sample, active: ActiveSet, to_bound: Array, values: Array, last: Array
) -> tuple[Array, Array]:
    """`(du, multipliers)` of the linear system, with the given steps to active bounds and values of the constraints. Where the
    constraints' gradients depend on each other, the multipliers that are nearly the `last` ones."""
    fixed = active.low | active.high
    n, jacobian = fixed.size, sample.jacobian[1:]
    held = jnp.concatenate([jnp.ones(program.equalities, bool), active.inequalities])
    eye = jnp.eye(n + values.size, dtype=values.dtype)
    top = jnp.concatenate([hessian, jacobian.T], axis=1)
    # Keeps the matrix regular. The weight is on the change of the multipliers, so it does not move the solution.
    weak = jnp.finfo(values.dtype).eps ** 0.75
    bottom = jnp.concatenate([jacobian, -weak * jnp.eye(values.size, dtype=values.dtype)], axis=1)
    matrix = jnp.concatenate([jnp.where(fixed[:, None], eye[:n], top), jnp.where(held[:, None], bottom, eye[n:])])
    right = jnp.concatenate([jnp.where(fixed, to_bound, -sample.jacobian[0]), jnp.where(held, weak * last - values, 0)])
    solved = solver(matrix)(right)
    return solved[:n], -solved[n:]


def with_bound_duals(point: Point, sample: Sample, active: ActiveSet) -> Point:
    """The point with the duals of active bounds that make it stationary."""
    remains = gradient_of_lagrangian(sample, point.multipliers)
    low, high = jnp.where(active.low, remains, 0), jnp.where(active.high & ~active.low, -remains, 0)
    return eqx.tree_at(lambda point: (point.low, point.high), point, (low, high))
