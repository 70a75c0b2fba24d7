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

from .._flow.elimination import solver
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
    n = point.u.size
    fixed = active.low | active.high
    held = jnp.concatenate([jnp.ones(program.equalities, bool), active.inequalities])
    jacobian, values = sample.jacobian[1:], sample.values[1:]
    eye = jnp.eye(n + values.size, dtype=values.dtype)
    top = jnp.concatenate([hessian, jacobian.T], axis=1)
    bottom = jnp.concatenate([jacobian, jnp.zeros((values.size, values.size), values.dtype)], axis=1)
    to_bound = jnp.where(active.low, program.lower - point.u, program.upper - point.u)
    matrix = jnp.concatenate([jnp.where(fixed[:, None], eye[:n], top), jnp.where(held[:, None], bottom, eye[n:])])
    right = jnp.concatenate([jnp.where(fixed, to_bound, -sample.jacobian[0]), jnp.where(held, -values, 0)])
    solved = solver(matrix)(right)
    du, multipliers = solved[:n], -solved[n:]
    # Of the linearized Lagrangian: what remains at a fixed unknown is the dual of its bound.
    remains = sample.jacobian[0] + hessian @ du - multipliers @ jacobian
    u = jnp.clip(point.u + du, program.lower, program.upper)
    return Point(
        u,
        jnp.maximum(point.slack, 0),
        multipliers,
        multipliers[program.equalities :],
        jnp.where(active.low, remains, 0),
        jnp.where(active.high & ~active.low, -remains, 0),
    )


def with_bound_duals(point: Point, sample: Sample, active: ActiveSet) -> Point:
    """The point with the duals of active bounds that make it stationary."""
    remains = gradient_of_lagrangian(sample, point.multipliers)
    low, high = jnp.where(active.low, remains, 0), jnp.where(active.high & ~active.low, -remains, 0)
    return eqx.tree_at(lambda point: (point.low, point.high), point, (low, high))
