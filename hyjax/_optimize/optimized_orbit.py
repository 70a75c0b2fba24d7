"""The result of an optimization, and its table."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._orbit.orbit import PeriodicOrbit
from .._results.labels import named_params, units_of
from .._results.registry import animate, draw
from .._results.shown import Shown
from .._results.table import Table
from .._system.results import counted_codes, described_code, RESULTS
from .._system.types import Params, Scalar
from .interior_point import codes_of, Minimum, SearchHistory
from .nonlinear_program import largest, NonlinearProgram
from .orbit_program import OrbitProgram


class Starts(eqx.Module):
    """What the starts led to, each in one row, the best first by number `OptimizedOrbit.best`.

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
    history: SearchHistory
    result: RESULTS


class OptimizedOrbit(Shown):
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
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
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
    starts: Starts
    best: Int[Array, ""]
    result: RESULTS
    gait: OrbitProgram

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
    def history(self) -> SearchHistory:
        """Every evaluation of the best start."""
        last = int(self.starts.iterations[int(self.best)])
        return jax.tree.map(lambda leaf: leaf[int(self.best), :last], self.starts.history)

    def _tables(self):
        return (optimization_table(self),)

    def plot(self, model=None):
        """A figure of both gaits and of the objective over the evaluations; see `hyjax.plot.optimization_figure`."""
        return draw(self, model)

    def animate(self, model, **options):
        """An animation of a model along both gaits, side by side; see `hyjax.plot.animate_optimization`."""
        return animate(self, model, **options)


def optimized(
    program: NonlinearProgram, found: Minimum, before: PeriodicOrbit, gradient_error: Array | None
) -> OptimizedOrbit:
    """The result of all starts."""
    gait = program.evaluate
    assert isinstance(gait, OrbitProgram)
    e, scale = program.equalities, gait.unknowns.scale
    values, rows = found.sample.values[:, 0], found.sample.values[:, 1:]
    violation = jax.vmap(lambda row: jnp.maximum(largest(row[:e]), largest(jnp.minimum(row[e:], 0))))(rows)
    good = found.result == RESULTS.successful
    # Where no start succeeded the best is the one with the least residual.
    order = jnp.where(good, values, jnp.where(jnp.isfinite(found.error), 1e100 + found.error * 1e90, jnp.inf))
    best = jnp.argmin(order)
    one = jax.tree.map(lambda leaf: leaf[best], found)
    starts = Starts(
        values, found.point.u * scale, violation, found.error, found.iterations, _distinct(found, good), found.history,
        found.result,
    )  # fmt: skip
    nan = jnp.full((), jnp.nan, values.dtype)
    return OptimizedOrbit(
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


def optimization_table(gait: OptimizedOrbit) -> Table:
    """The table that `print` shows: the parameters and the objective before and after, constraints, residuals, starts."""
    return Table("OptimizedOrbit", list(_rows(gait)), ("", "unit", "before", "after", ""), notes=_notes(gait))


def _rows(gait: OptimizedOrbit) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, unit, value before, value after and remark of each row."""
    before, after = (
        np.asarray(gait.gait.unknowns.vector(orbit.params) * gait.gait.unknowns.scale)
        for orbit in (gait.before, gait.orbit)
    )
    radius = lambda orbit: float(np.max(np.abs(np.asarray(orbit.multipliers))))
    yield "objective", "", f"{float(gait.value_before):.12g}", f"{float(gait.value):.12g}", ""
    duals, unknowns = np.asarray(gait.bound_multipliers), gait.gait.unknowns
    low, high = unknowns.at_bounds(gait.params)
    at_bound = np.where(low, "lower", np.where(high, "upper", ""))
    known = named_params(gait.params)
    for k in range(after.size) if after.size <= 20 else range(10):
        unit = known[gait.names[k]][1].get("units", "") if gait.names[k] in known else ""
        remark = f"at its {at_bound[k]} bound, multiplier {duals[k]:.4g}" if at_bound[k] else ""
        yield gait.names[k], unit, f"{before[k]:.12g}", f"{after[k]:.12g}", remark
    if after.size > 20:
        yield f"and {after.size - 10} more", "", "", "", ""
    time = units_of(None, gait.params, gait.orbit.system).time
    yield "period", time, f"{float(gait.before.period):.12g}", f"{float(gait.orbit.period):.12g}", ""
    yield "spectral radius", "", f"{radius(gait.before):.6g}", f"{radius(gait.orbit):.6g}", ""


def _notes(gait: OptimizedOrbit) -> list[str]:
    """Constraints, residuals and starts, a line for each."""
    lines = []
    labels, values, multipliers = gait.labels, np.asarray(gait.constraints), np.asarray(gait.multipliers)
    equalities = values.size - np.asarray(gait.active).size
    for k, label in enumerate(labels):
        active = k < equalities or bool(gait.active[k - equalities])
        # The derivative by the limit: of b - g it is minus the multiplier.
        slope = -multipliers[k] if " <= " in label else multipliers[k]
        state = f"multiplier {slope:.6g}" if active else f"inactive, by {values[k]:.3g}"
        lines.append(f"{label}: {state}")
    lines.append(
        f"optimality residual {float(gait.error):.1e}, gradient against differences {float(gait.gradient_error):.1e}"
    )
    iterations = int(gait.starts.iterations[int(gait.best)])
    lines.append(f"{iterations} evaluations: {described_code(gait.result)}")
    return [*lines, *_starts_notes(gait)]


def _starts_notes(gait: OptimizedOrbit) -> list[str]:
    starts = jax.tree.map(np.asarray, gait.starts)
    if starts.values.size == 1:
        return []
    lines = [f"{starts.values.size} starts:"]
    for number in range(int(starts.optimum.max()) + 1):
        mine = starts.optimum == number
        first = int(np.argmax(mine))
        values = ", ".join(
            f"{name} = {value:.6g}" for name, value in zip(gait.names[:8], starts.unknowns[first], strict=False)
        )
        lines.append(f"{int(mine.sum()):>6}  optimum {number + 1}: {starts.values[first]:.9g} at {values}")
    lost = [(code, n) for code, n in counted_codes(starts.result) if not code.startswith("successful")]
    return lines + [f"{n:>6}  {code}" for code, n in lost]


def failure(gait: OptimizedOrbit) -> str:
    """The message of an optimization that found no optimum."""
    start = int(gait.best)
    codes = [code.partition(":")[0] for code, _ in counted_codes(codes_of(gait.history.codes))]
    lost = [code for code in codes if code != "successful"]
    met = f" On the way gaits were lost: {'; '.join(lost)}." if lost else ""
    return (
        f"optimize: {described_code(gait.result)} The best of {gait.starts.values.size} starts ended at the objective "
        f"{float(gait.value):.9g} with the residual {float(gait.error):.1e} of the optimality conditions and violations up to "
        f"{float(gait.starts.violation[start]):.1e}, after {int(gait.starts.iterations[start])} evaluations.{met} "
        f"With throw=False the result is returned. ({gait.result})"
    )
