"""The result of an optimization."""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._orbit.orbit import PeriodicOrbit
from .._results.registry import animate, draw
from .._results.shown import Shown
from .._system.results import RESULTS
from .._system.types import Params, Scalar
from .barrier import largest
from .gait_program import GaitProgram
from .interior_point import History
from .minimum import Minimum
from .program import Program


class Start(eqx.Module):
    """What the starts led to, each in one row, the best first by number `OptimizedGait.best`.

    **Attributes:** `values`: of the objective, shape `(starts,)`. `unknowns`: the parameters, in their units, `(starts, n)`.
    `violation`: the largest of a constraint, `(starts,)`. `error`: the residual of the optimality conditions. `iterations`:
    evaluations of orbit, objective and constraints. `optimum`: the number of the distinct optimum, from 0 for the best; -1 for a
    start that led to none. `history`: of every evaluation, shape `(starts, max_iterations)`. `result`: the code of each start.
    """

    values: Float[Array, " starts"]
    unknowns: Float[Array, "starts n"]
    violation: Float[Array, " starts"]
    error: Float[Array, " starts"]
    iterations: Int[Array, " starts"]
    optimum: Int[Array, " starts"]
    history: History
    result: RESULTS


class OptimizedGait(Shown):
    r"""The best of the local optima found.

    **Attributes:** `value`: of the objective. `orbit`: the optimal gait; `params`: its parameters. `before`: the gait from which
    the search started, and `value_before` its objective. `gradient`: of the objective by the unknowns, in their units, shape
    `(n,)`. `multipliers`: $\lambda$ of the
    constraints' rows $g - b$, $g - a$, $b - g$, equalities first: $\nabla f = \sum \lambda_i \nabla c_i$ + bounds. The
    derivative of the value by the limit; for `at_most` minus that. `bound_multipliers`: of the bounds, positive at a lower one,
    `(n,)`. `active`: which inequalities hold as equalities. `constraints`: $g - b$, $g - a$, $b - g$ of the rows. `error`: the
    largest residual of the optimality conditions (Karush, Kuhn, Tucker), in scaled unknowns. `gradient_error`: the largest
    relative deviation of the derivatives of objective and constraints from differences of fourth order; NaN where it was not
    computed, or an orbit beside the optimum was lost. `starts`: all starts. `best`: the number of the best. `result`: its code.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(
    ...     hj.objectives.period, wheel.system, orbit, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)]
    ... )
    >>> print(f"{gait.value_before:.6f} {gait.value:.6f} {gait.multipliers[0]:.6f}", gait.active)
    2.310015 2.598961 4.500946 [ True]
    """

    value: Scalar
    orbit: PeriodicOrbit
    before: PeriodicOrbit
    value_before: Scalar
    gradient: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    bound_multipliers: Float[Array, " n"]
    active: Bool[Array, " inequalities"]
    constraints: Float[Array, " m"]
    error: Scalar
    gradient_error: Scalar
    starts: Start
    best: Int[Array, ""]
    result: RESULTS
    gait: GaitProgram

    @property
    def params(self) -> Params:
        """The parameters of the optimal gait."""
        return self.orbit.params

    @property
    def names(self) -> list[str]:
        """The names of the parameters that vary."""
        return self.gait.unknowns.names

    @property
    def labels(self) -> list[str]:
        """The names of the constraints' rows, equalities first."""
        pairs = [each.labels(counts) for each, counts in zip(self.gait.constraints, self.gait.rows, strict=True)]
        return [label for equal, _ in pairs for label in equal] + [label for _, unequal in pairs for label in unequal]

    @property
    def history(self) -> History:
        """Every evaluation of the best start."""
        last = int(self.starts.iterations[int(self.best)])
        return jax.tree.map(lambda leaf: leaf[int(self.best), :last], self.starts.history)

    def __str__(self) -> str:
        from .optimum_report import describe

        return describe(self)

    def _tables(self):
        from .optimum_report import optimization_table

        return (optimization_table(self),)

    def plot(self, model=None):
        """A figure of both gaits and of the objective over the evaluations; see `hyjax.plot.optimization_figure`."""
        return draw(self, model)

    def animate(self, model, **options):
        """An animation of a model along both gaits, side by side; see `hyjax.plot.animate_optimization`."""
        return animate(self, model, **options)


def optimized(program: Program, found: Minimum, before: PeriodicOrbit, gradient_error: Array | None) -> OptimizedGait:
    """The result of all starts."""
    gait = program.evaluate
    assert isinstance(gait, GaitProgram)
    e, scale = program.equalities, gait.unknowns.scale
    values, rows = found.sample.values[:, 0], found.sample.values[:, 1:]
    violation = jax.vmap(lambda row: jnp.maximum(largest(row[:e]), largest(jnp.minimum(row[e:], 0))))(rows)
    good = found.result == RESULTS.successful
    # Where no start succeeded the best is the one with the least residual.
    order = jnp.where(good, values, jnp.where(jnp.isfinite(found.error), 1e100 + found.error * 1e90, jnp.inf))
    best = jnp.argmin(order)
    one = jax.tree.map(lambda leaf: leaf[best], found)
    starts = Start(
        values, found.point.u * scale, violation, found.error, found.iterations, _distinct(found, good), found.history,
        found.result,
    )  # fmt: skip
    nan = jnp.full((), jnp.nan, values.dtype)
    return OptimizedGait(
        value=one.sample.values[0],
        orbit=one.sample.carry.orbit,
        before=before,
        value_before=gait.values(before)[0],
        gradient=one.sample.jacobian[0] / scale,
        multipliers=one.point.multipliers,
        bound_multipliers=(one.point.low - one.point.high) / scale,
        active=one.active.inequalities,
        constraints=one.sample.values[1:],
        error=one.error,
        gradient_error=nan if gradient_error is None else gradient_error,
        starts=starts,
        best=best,
        result=one.result,
        gait=gait,
    )


def _distinct(found: Minimum, good: Array) -> Array:
    """The number of the distinct optimum of each start: equal to 1e-5 in the scaled unknowns, ordered by their values."""
    values, u = found.sample.values[:, 0], found.point.u
    order = jnp.argsort(jnp.where(good, values, jnp.inf))
    close = jnp.max(jnp.abs(u[:, None] - u[None]), axis=-1) <= 1e-5 * (1 + jnp.max(jnp.abs(u)))
    place = jnp.zeros(len(u), int).at[order].set(jnp.arange(len(u)))
    # The first, by value, of those that are close to it.
    first = jnp.min(jnp.where(close & good[None], place[None], len(u)), axis=1)
    ranks = jnp.searchsorted(jnp.unique(jnp.where(good, first, len(u)), size=len(u), fill_value=len(u)), first)
    return jnp.where(good, ranks, -1)
