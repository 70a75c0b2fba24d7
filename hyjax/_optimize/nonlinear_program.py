r"""A nonlinear program, its barrier problem, the conditions of optimality of both; and the two Newton steps of the interior-point
method: on the barrier problem, and on the active constraints as equalities.

Minimize $f(u)$ subject to $c_E(u) = 0$, $c_I(u) \ge 0$ and $l \le u \le h$. The functions are expensive, and one evaluation
gives all of them with their derivatives: a `Sample`. The barrier problem has slacks $s$ of the inequalities:

$$\min\ f(u) - \mu \sum \log(u - l) - \mu \sum \log(h - u) - \mu \sum \log s, \qquad c_E(u) = 0, \quad c_I(u) - s = 0$$

Its Lagrangian is $f - \lambda^\top c$ with $\lambda_I = v$, the dual of the slacks; the duals of the bounds are $z_l$ and $z_h$.
At a solution $(u - l) z_l = (h - u) z_h = s v = \mu$.

With $\Sigma = z_l/(u-l) + z_h/(h-u)$, $\Sigma_s = v/s$ and $H = W + \Sigma + \delta I$, where $W$ is the Hessian of the
Lagrangian, the direction of the barrier problem is

$$\begin{pmatrix} H & J^\top \\ J & -D \end{pmatrix} \begin{pmatrix} du \\ -\lambda^+ \end{pmatrix} = -\begin{pmatrix}
  \nabla f - \mu/(u-l) + \mu/(h-u) \\ h \end{pmatrix}, \qquad D = (0, \Sigma_s^{-1}), \quad h = (c_E,\ c_I - s - \mu/v)$$

It descends where $H + J_I^\top \Sigma_s J_I$ is positive definite on the null space of $J_E$; else $\delta$ is raised until it is
(inertia correction). The last steps to an optimum have the active constraints $A$ as equalities:

$$\begin{pmatrix} W & J_A^\top \\ J_A & 0 \end{pmatrix} \begin{pmatrix} du \\ -\lambda_A^+ \end{pmatrix} = -\begin{pmatrix}
  \nabla f \\ c_A \end{pmatrix}$$

Unknowns at an active bound are moved onto it; inactive constraints have the multiplier zero. These steps converge quadratically,
to rounding, where the constraints' gradients are independent and no active constraint has the multiplier zero.

Source: Wächter, Biegler (2006), *On the implementation of an interior-point filter line-search algorithm for large-scale
nonlinear programming*, Math. Program. 106, 25-57; Nocedal, Wright (2006), *Numerical Optimization*, ch. 18.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from .._numerics.elimination import smallest_pivot, solver
from .._numerics.linearize import with_columns
from .._system.results import choose, RESULTS
from .._system.types import Flag

# The size to which functions are scaled.
SIZE = 32.0
# The part of the range of the unknowns over which a function's curvature counts.
PART = 0.01
# A bound's dual may differ from mu over the distance by this factor.
SPREAD = 1e10
# Smaller sums of violations are zero.
EXACT = 1e-13


class Sample(eqx.Module):
    """The functions of a program at a point: the objective, then the equalities, then the inequalities.

    **Attributes:** `values`: shape `(1 + m,)`. `jacobian`: `(1 + m, n)`. `hessians`: `(1 + m, n, n)`, or `None` where second
    derivatives are not asked for. `carry`: what the next evaluation starts from, such as the orbit. `result`: its code.
    """

    values: Float[Array, " functions"]
    jacobian: Float[Array, "functions n"]
    hessians: Float[Array, "functions n n"] | None
    carry: PyTree
    result: RESULTS

    @property
    def sound(self) -> Flag:
        """Whether the evaluation succeeded and all numbers are finite."""
        finite = [
            jnp.all(jnp.isfinite(leaf)) for leaf in (self.values, self.jacobian, self.hessians) if leaf is not None
        ]
        return jnp.all(jnp.stack(finite)) & (self.result == RESULTS.successful)

    @property
    def code(self) -> RESULTS:
        """The result, and `nonfinite` for a number that is not finite."""
        return choose((self.result == RESULTS.successful) & ~self.sound, RESULTS.nonfinite, self.result)

    def scaled(self, by: Float[Array, " functions"]) -> "Sample":
        """The sample of the functions multiplied by `by`."""
        hessians = None if self.hessians is None else by[:, None, None] * self.hessians
        return Sample(by * self.values, by[:, None] * self.jacobian, hessians, self.carry, self.result)


class NonlinearProgram(eqx.Module):
    """**Attributes:** `evaluate`: `(u, carry) -> Sample`, a PyTree. `lower`, `upper`: bounds, shape `(n,)`, infinite where there
    is none; every point that is evaluated obeys them. `equalities`, `inequalities`: the numbers of both."""

    evaluate: Callable[[Array, PyTree], Sample]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    equalities: int = eqx.field(static=True)
    inequalities: int = eqx.field(static=True)

    def inside(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """The point nearest to `u` that keeps a distance from the bounds: a hundredth of 1, of the bound, or of the interval."""
        width = self.upper - self.lower
        least = lambda bound: jnp.minimum(0.01 * jnp.maximum(1, jnp.abs(bound)), 0.01 * width)
        low = self.lower + jnp.where(jnp.isfinite(self.lower), least(self.lower), 0)
        high = self.upper - jnp.where(jnp.isfinite(self.upper), least(self.upper), 0)
        return jnp.clip(u, low, high)


def sampled(
    fn: Callable[[Array], tuple[Array, tuple[PyTree, RESULTS]]],
    u: Float[Array, " n"],
    second_order: bool,
    reverse: bool = False,
) -> Sample:
    """The sample at `u` of a function `u -> (values, (carry, result))`, by forward mode, or the first derivatives by reverse."""
    if reverse:
        values, back, (carry, result) = jax.vjp(fn, u, has_aux=True)
        # One row after the other: a backward pass needs the memory of one.
        jacobian = jax.lax.map(lambda row: back(row)[0], jnp.eye(values.size, dtype=values.dtype))
        return Sample(values, jacobian, None, carry, result)
    if not second_order:
        values, jacobian, (carry, result) = with_columns(fn, u)
        return Sample(values, jacobian, None, carry, result)

    def slope(u):
        values, jacobian, aux = with_columns(fn, u)
        return jacobian, (values, aux)

    jacobian, hessians, (values, (carry, result)) = with_columns(slope, u)
    return Sample(values, jacobian, hessians, carry, result)


def gradient_of_lagrangian(sample: Sample, multipliers: Float[Array, " m"]) -> Float[Array, " n"]:
    r"""$\nabla f - \sum_i \lambda_i \nabla c_i$."""
    return sample.jacobian[0] - multipliers @ sample.jacobian[1:]


def hessian_of_lagrangian(sample: Sample, multipliers: Float[Array, " m"]) -> Float[Array, "n n"]:
    r"""$\nabla^2 f - \sum_i \lambda_i \nabla^2 c_i$."""
    assert sample.hessians is not None
    whole = sample.hessians[0] - jnp.tensordot(multipliers, sample.hessians[1:], 1)
    return (whole + whole.T) / 2


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


class PrimalDual(eqx.Module):
    """Primal and dual variables. `multipliers` are of the equalities and of `c_I - s`; duals of infinite bounds are zero."""

    u: Float[Array, " n"]
    slack: Float[Array, " inequalities"]
    multipliers: Float[Array, " m"]
    slack_dual: Float[Array, " inequalities"]
    low: Float[Array, " n"]
    high: Float[Array, " n"]


def starting_point(program: NonlinearProgram, u: Array, sample: Sample, mu: Array) -> PrimalDual:
    """Slacks and duals for the first point."""
    inequalities = sample.values[1 + program.equalities :]
    slack = jnp.maximum(inequalities, 0.01 * jnp.maximum(1, jnp.abs(inequalities)))
    to_low, to_high = distances(program, u)
    dual = jnp.minimum(mu / slack, 1e3)
    multipliers = jnp.concatenate([jnp.zeros(program.equalities, u.dtype), dual])
    low = jnp.where(jnp.isfinite(program.lower), jnp.minimum(mu / to_low, 1e3), 0)
    high = jnp.where(jnp.isfinite(program.upper), jnp.minimum(mu / to_high, 1e3), 0)
    return PrimalDual(u, slack, multipliers, dual, low, high)


def distances(program: NonlinearProgram, u: Array) -> tuple[Array, Array]:
    """The distances from the lower and the upper bounds; 1 where there is none."""
    return (
        jnp.where(jnp.isfinite(program.lower), u - program.lower, 1),
        jnp.where(jnp.isfinite(program.upper), program.upper - u, 1),
    )


def violations(program: NonlinearProgram, slack: Array, sample: Sample) -> Array:
    """$(c_E, c_I - s)$, shape `(m,)`."""
    return sample.values[1:].at[program.equalities :].add(-slack)


def barrier_function(program: NonlinearProgram, u: Array, slack: Array, sample: Sample, mu: Array) -> Array:
    """The objective of the barrier problem."""
    to_low, to_high = distances(program, u)
    logs = jnp.sum(jnp.log(to_low)) + jnp.sum(jnp.log(to_high)) + jnp.sum(jnp.log(slack))
    return sample.values[0] - mu * logs


def barrier_error(program: NonlinearProgram, point: PrimalDual, sample: Sample, mu: Array | float) -> Array:
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


def optimality_error(program: NonlinearProgram, point: PrimalDual, sample: Sample) -> Array:
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


def dual_scale(point: PrimalDual) -> Array:
    """At least 1: the mean dual variable over 100."""
    duals = jnp.concatenate([point.multipliers, point.low, point.high])
    return jnp.maximum(1, jnp.mean(jnp.abs(duals)) / 100)


def near_central(program: NonlinearProgram, point: PrimalDual, mu: Array) -> PrimalDual:
    """The point with duals within a factor of `SPREAD` of those of the central path."""
    to_low, to_high = distances(program, point.u)
    keep = lambda dual, distance: jnp.clip(dual, mu / (SPREAD * distance), SPREAD * mu / distance)
    return PrimalDual(
        point.u,
        point.slack,
        point.multipliers,
        keep(point.slack_dual, point.slack),
        jnp.where(jnp.isfinite(program.lower), keep(point.low, to_low), 0),
        jnp.where(jnp.isfinite(program.upper), keep(point.high, to_high), 0),
    )


def infeasibility(program: NonlinearProgram, sample: Sample) -> Array:
    """The largest violation of a constraint, without slacks."""
    equal, unequal = sample.values[1 : 1 + program.equalities], sample.values[1 + program.equalities :]
    return jnp.maximum(largest(equal), largest(jnp.minimum(unequal, 0)))


def violation_size(gap: Array) -> Array:
    """The sum of violations; zero where it is rounding."""
    size = jnp.sum(jnp.abs(gap))
    return jnp.where(size > EXACT, size, 0)


def largest(values: Array) -> Array:
    """The largest modulus; zero of an empty array."""
    return jnp.max(jnp.abs(values), initial=0)


# Keeps the system of dependent equalities regular; relative to the violations, which it must not prevent from vanishing.
REGULARIZATION = 1e-8
SMALLEST_SHIFT, LARGEST_SHIFT = 1e-4, 1e12


def newton_direction(
    program: NonlinearProgram,
    point: PrimalDual,
    jacobian: Float[Array, "functions n"],
    hessian: Float[Array, "n n"],
    mu: Float[Array, ""],
    shift: Float[Array, ""],
    floor: Float[Array, ""],
    gap: Float[Array, " m"],
) -> tuple[PrimalDual, tuple[Array, Array], Array, Array]:
    r"""The direction towards the solution of the barrier problem for `mu`.

    **Arguments:** `shift`: the last $\delta$. `floor`: the least one now. `gap`: the violations that the step is to remove.

    **Returns:** the step of all variables; the largest fractions of it that keep the primal and the dual variables positive; the
    derivative of the barrier function along it; $\delta$.
    """
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
    step = PrimalDual(du, ds, multipliers - point.multipliers, slack_dual, low, high)
    keep = jnp.maximum(0.99, 1 - mu)
    primal = keep_positive(
        keep, jnp.concatenate([to_low, to_high, point.slack]),
        jnp.concatenate([jnp.where(jnp.isfinite(program.lower), du, 0), jnp.where(jnp.isfinite(program.upper), -du, 0), ds]),
    )  # fmt: skip
    duals = jnp.concatenate([point.low, point.high, point.slack_dual])
    dual = keep_positive(keep, duals, jnp.concatenate([low, high, slack_dual]))
    slope = gradient @ du - jnp.sum(mu * ds / point.slack)
    return step, (primal, dual), slope, shift


def moved(point: PrimalDual, step: PrimalDual, primal: Array, dual: Array) -> PrimalDual:
    """The point after fractions of the step; the multipliers move with the primal variables."""
    along = lambda name, fraction: getattr(point, name) + fraction * getattr(step, name)
    return PrimalDual(
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


def updated_secant(secant: Array, point: PrimalDual, sample: Sample, trial: PrimalDual, trial_sample: Sample) -> Array:
    r"""The BFGS update of the Hessian of the Lagrangian, with Powell's damping: $s^\top y \ge 0.2\, s^\top B s$."""
    s = trial.u - point.u
    gradient = lambda sample: gradient_of_lagrangian(sample, trial.multipliers)
    y, bs = gradient(trial_sample) - gradient(sample), secant @ s
    curvature = s @ bs
    flat = y @ s < 0.2 * curvature
    weight = jnp.where(flat, 0.8 * curvature / jnp.where(flat, curvature - y @ s, 1), 1)
    y = weight * y + (1 - weight) * bs
    usable = (curvature > 0) & (y @ s > 0)
    update = jnp.outer(y, y) / jnp.where(usable, y @ s, 1) - jnp.outer(bs, bs) / jnp.where(usable, curvature, 1)
    return jnp.where(usable, secant + update, secant)


class ActiveSet(NamedTuple):
    """Which inequalities hold as equalities, and which unknowns are at their lower and upper bounds."""

    inequalities: Bool[Array | np.ndarray, " inequalities"]
    low: Bool[Array | np.ndarray, " n"]
    high: Bool[Array | np.ndarray, " n"]


def active_set(program: NonlinearProgram, point: PrimalDual) -> ActiveSet:
    """The constraints whose dual variable is larger than the distance to them."""
    to_low, to_high = distances(program, point.u)
    return ActiveSet(
        point.slack_dual > point.slack,
        jnp.isfinite(program.lower) & (point.low > to_low),
        jnp.isfinite(program.upper) & (point.high > to_high),
    )


def active_set_step(
    program: NonlinearProgram, point: PrimalDual, sample: Sample, hessian: Array, active: ActiveSet
) -> PrimalDual:
    """The next point, not yet evaluated: its duals of active bounds are those of the linearized conditions."""
    to_bound = jnp.where(active.low, program.lower - point.u, program.upper - point.u)
    jacobian, values = sample.jacobian[1:], sample.values[1:]
    du, multipliers = _solved(program, hessian, sample, active, to_bound, values, point.multipliers)
    # Of the linearized Lagrangian: what remains at a fixed unknown is the dual of its bound.
    remains = sample.jacobian[0] + hessian @ du - multipliers @ jacobian
    u = jnp.clip(point.u + du, program.lower, program.upper)
    # Exactly: `u + (bound - u)` may miss the bound by rounding.
    u = jnp.where(active.low, program.lower, jnp.where(active.high, program.upper, u))
    low, high = bound_duals(active, remains)
    return PrimalDual(u, jnp.maximum(point.slack, 0), multipliers, multipliers[program.equalities :], low, high)


def with_least_multipliers(
    program: NonlinearProgram, point: PrimalDual, sample: Sample, active: ActiveSet
) -> PrimalDual:
    """The point with the multipliers of active constraints that leave the shortest gradient of the Lagrangian in the unknowns
    that are not at a bound."""
    zeros = jnp.zeros_like(point.u), jnp.zeros_like(sample.values[1:])
    _, multipliers = _solved(
        program, jnp.eye(point.u.size, dtype=point.u.dtype), sample, active, *zeros, point.multipliers
    )
    parts = lambda point: (point.multipliers, point.slack_dual)
    return eqx.tree_at(parts, point, (multipliers, multipliers[program.equalities :]))


def _solved(
    program: NonlinearProgram,
    hessian: Array,
    sample: Sample,
    active: ActiveSet,
    to_bound: Array,
    values: Array,
    last: Array,
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


def bound_duals(active: ActiveSet, remains: Array) -> tuple[Array, Array]:
    """The duals of active lower and upper bounds, from what remains of the Lagrangian's gradient."""
    return jnp.where(active.low, remains, 0), jnp.where(active.high & ~active.low, -remains, 0)


def with_bound_duals(point: PrimalDual, sample: Sample, active: ActiveSet) -> PrimalDual:
    """The point with the duals of active bounds that make it stationary."""
    remains = gradient_of_lagrangian(sample, point.multipliers)
    low, high = bound_duals(active, remains)
    return eqx.tree_at(lambda point: (point.low, point.high), point, (low, high))
