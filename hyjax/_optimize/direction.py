r"""The Newton direction of the barrier problem, and how far it may be followed.

With $\Sigma = z_l/(u-l) + z_h/(h-u)$, $\Sigma_s = v/s$ and $H = W + \Sigma + \delta I$, where $W$ is the Hessian of the
Lagrangian:

$$\begin{pmatrix} H & J^\top \\ J & -D \end{pmatrix} \begin{pmatrix} du \\ -\lambda^+ \end{pmatrix} = -\begin{pmatrix}
  \nabla f - \mu/(u-l) + \mu/(h-u) \\ h \end{pmatrix}, \qquad D = (0, \Sigma_s^{-1}), \quad h = (c_E,\ c_I - s - \mu/v)$$

The direction descends where $H + J_I^\top \Sigma_s J_I$ is positive definite on the null space of $J_E$; else $\delta$ is raised
until it is (inertia correction).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.elimination import smallest_pivot, solver
from .barrier import distances, Point
from .program import Program

# Keeps the system of dependent equalities regular; relative to the violations, which it must not prevent from vanishing.
REGULARIZATION = 1e-8
SMALLEST_SHIFT, LARGEST_SHIFT = 1e-4, 1e12


class Direction(eqx.Module):
    """**Attributes:** `step`: of all variables. `primal`, `dual`: the largest fractions of the step that keep them positive.
    `slope`: the derivative of the barrier function along it. `shift`: $\\delta$."""

    step: Point
    primal: Float[Array, ""]
    dual: Float[Array, ""]
    slope: Float[Array, ""]
    shift: Float[Array, ""]


def newton_direction(
    program: Program,
    point: Point,
    jacobian: Float[Array, "functions n"],
    hessian: Float[Array, "n n"],
    mu: Float[Array, ""],
    shift: Float[Array, ""],
    floor: Float[Array, ""],
    gap: Float[Array, " m"],
) -> Direction:
    """The direction towards the solution of the barrier problem for `mu`. `shift`: the last one. `floor`: the least one now.
    `gap`: the violations that the step is to remove."""
    n, e = point.u.size, program.equalities
    to_low, to_high = distances(program, point.u)
    pull = point.low / to_low + point.high / to_high
    stiffness = point.slack_dual / point.slack
    objective, jacobian = jacobian[0], jacobian[1:]
    barrier = (
        jnp.where(jnp.isfinite(program.lower), mu / to_low, 0),
        jnp.where(jnp.isfinite(program.upper), mu / to_high, 0),
    )
    gradient = objective - barrier[0] + barrier[1]
    shift = _shift(hessian, pull, jacobian[:e], jacobian[e:], stiffness, shift, floor)
    top = hessian + jnp.diag(pull + shift)
    weak = jnp.minimum(1, jnp.sum(jnp.abs(gap))) * REGULARIZATION + jnp.finfo(gap.dtype).eps
    weak = jnp.concatenate([jnp.full(e, weak), 1 / stiffness])
    matrix = jnp.block([[top, jacobian.T], [jacobian, -jnp.diag(weak)]])
    right = gap.at[e:].add(-mu / point.slack_dual)
    solved = solver(matrix)(-jnp.concatenate([gradient, right]))
    du, multipliers = solved[:n], -solved[n:]
    ds = jacobian[e:] @ du + gap[e:]
    low = jnp.where(jnp.isfinite(program.lower), (mu - point.low * du) / to_low - point.low, 0)
    high = jnp.where(jnp.isfinite(program.upper), (mu + point.high * du) / to_high - point.high, 0)
    slack_dual = (mu - point.slack_dual * ds) / point.slack - point.slack_dual
    step = Point(du, ds, multipliers - point.multipliers, slack_dual, low, high)
    keep = jnp.maximum(0.99, 1 - mu)
    primal = keep_positive(
        keep, jnp.concatenate([to_low, to_high, point.slack]),
        jnp.concatenate([jnp.where(jnp.isfinite(program.lower), du, 0), jnp.where(jnp.isfinite(program.upper), -du, 0), ds]),
    )  # fmt: skip
    dual = keep_positive(
        keep,
        jnp.concatenate([point.low, point.high, point.slack_dual]),
        jnp.concatenate([low, high, slack_dual]),
    )
    slope = gradient @ du - jnp.sum(mu * ds / point.slack)
    return Direction(step, primal, dual, slope, shift)


def moved(point: Point, step: Point, primal: Array, dual: Array) -> Point:
    """The point after fractions of the step; the multipliers move with the primal variables."""
    along = lambda name, fraction: getattr(point, name) + fraction * getattr(step, name)
    return Point(
        along("u", primal), along("slack", primal), along("multipliers", primal), along("slack_dual", dual),
        along("low", dual), along("high", dual),
    )  # fmt: skip


def keep_positive(keep: Array, values: Array, steps: Array) -> Array:
    """The largest fraction, at most 1, of the steps after which positive values keep at least `1 - keep` of themselves."""
    falling = steps < 0
    return jnp.min(jnp.where(falling, -keep * values / jnp.where(falling, steps, -1), 1), initial=1)


def _shift(hessian, pull, equal, unequal, stiffness, last: Array, floor: Array) -> Array:
    """The first of an increasing sequence of shifts whose matrix is positive definite."""
    matrix = hessian + jnp.diag(pull)
    # Scaled so that the curvature of no coordinate is above 1: active bounds are stiff.
    size = jnp.sqrt(jnp.maximum(1, jnp.abs(jnp.diagonal(matrix))))
    matrix, rows = matrix / jnp.outer(size, size), jnp.concatenate([equal, unequal]) / size
    lengths = jnp.sqrt(jnp.sum(rows**2, axis=1))
    rows = rows / jnp.where(lengths > 0, lengths, 1)[:, None]
    # A large weight on the equalities leaves the matrix on their null space; its rounding is 1e-9 of the matrix. Stiffer
    # inequalities have that weight: with their own, what they leave would be lost in rounding.
    most = 1e7 * jnp.maximum(1, jnp.max(jnp.abs(matrix)))
    stiff = stiffness * lengths[len(equal) :] ** 2
    weights = jnp.concatenate([jnp.broadcast_to(most, len(equal)), jnp.minimum(most, stiff)])
    matrix = matrix + rows.T @ (weights[:, None] * rows)

    def definite(shift):
        return smallest_pivot(matrix + jnp.diag(shift / size**2)) > 1e-8

    def raised(shift):
        first = jnp.where(last > 0, jnp.maximum(last / 3, 1e-12), SMALLEST_SHIFT)
        return jnp.where(shift > 0, jnp.where(last > 0, 8, 100) * shift, jnp.maximum(first, floor))

    search = lambda carry: (raised(carry[0]), carry[1] + 1)
    again = lambda carry: (carry[1] < 40) & (carry[0] < LARGEST_SHIFT) & ~definite(carry[0])
    return jax.lax.while_loop(again, search, (floor, jnp.array(0)))[0]
