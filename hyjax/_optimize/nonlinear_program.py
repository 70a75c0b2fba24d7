r"""A nonlinear program, its barrier problem, and the conditions of optimality of both.

Minimize $f(u)$ subject to $c_E(u) = 0$, $c_I(u) \ge 0$ and $l \le u \le h$. The functions are expensive, and one evaluation
gives all of them with their derivatives: a `Sample`. The barrier problem has slacks $s$ of the inequalities:

$$\min\ f(u) - \mu \sum \log(u - l) - \mu \sum \log(h - u) - \mu \sum \log s, \qquad c_E(u) = 0, \quad c_I(u) - s = 0$$

Its Lagrangian is $f - \lambda^\top c$ with $\lambda_I = v$, the dual of the slacks; the duals of the bounds are $z_l$ and $z_h$.
At a solution $(u - l) z_l = (h - u) z_h = s v = \mu$.

Source: Wächter, Biegler (2006), *On the implementation of an interior-point filter line-search algorithm for large-scale
nonlinear programming*, Math. Program. 106, 25-57.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

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
