"""The result of an optimization, and its table."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._orbit.orbit import PeriodicOrbit
from .._results.labels import units_of, units_of_params
from .._results.registry import animate, draw
from .._results.shown import Shown
from .._results.table import Table, without_rounding
from .._system.results import counted_codes, described_code, RESULTS
from .._system.types import Params, Scalar
from .constraint import label_of, Limit, limits_of
from .interior_point import Minimum, SearchHistory
from .nonlinear_program import largest, NonlinearProgram
from .orbit_program import OrbitProgram


class Starts(Shown):
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
    `(n,)`. `active`: which inequalities hold as equalities. `constraints`: $g - b$, $g - a$, $b - g$ of the rows;
    `constraints_before`: of the first gait. `error`: the
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
    constraints_before: Float[Array, " m"]
    error: Scalar
    gradient_error: Scalar
    starts: Starts
    best: Int[Array, ""]
    result: RESULTS
    program: OrbitProgram

    @property
    def params(self) -> Params:
        """The parameters of the optimal gait."""
        return self.orbit.params

    @property
    def names(self) -> list[str]:
        """The names of the parameters that vary."""
        return self.program.unknowns.names

    @property
    def labels(self) -> list[str]:
        """The names of the constraints' rows, equalities first."""
        return [label_of(row) for row in self.limits]

    @property
    def limits(self) -> list[Limit]:
        """For each of these rows the name, the relation and the limit, NaN where that is traced."""
        return limits_of(self.program.constraints, self.program.rows)

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
    """The `OptimizedOrbit` of the searches from all starts."""
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
    nan, values_before = jnp.full((), jnp.nan, values.dtype), gait.values(before)
    return OptimizedOrbit(
        value=one.sample.values[0],
        # A compiled program may return an equal system in the place of this one.
        orbit=replace(one.sample.carry.with_params(gait.unknowns), system=before.system),
        before=before,
        value_before=values_before[0],
        gradient=one.sample.jacobian[0] / scale,
        multipliers=one.point.multipliers,
        bound_multipliers=(one.point.low - one.point.high) / scale,
        active=one.active.inequalities,
        constraints=one.sample.values[1:],
        constraints_before=values_before[1:],
        error=one.error,
        gradient_error=nan if gradient_error is None else gradient_error,
        starts=starts,
        best=best,
        result=one.result,
        program=gait,
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


def optimization_table(
    gait: OptimizedOrbit, objective: str = "objective", sign: int = 1, units: Mapping[str, str] | None = None
) -> Table:
    """Both gaits, with the multipliers; below it the accuracy, lost trials and what the starts led to.

    **Arguments:** `objective`: its name. `sign`: -1 shows the objective whose negative was minimized. `units`: of objective and
    constraints, by name.
    """
    rows = [
        [name, unit, *map(_shown, values), remark]
        for name, unit, values, remark in _rows(gait, objective, sign, units or {})
    ]
    return Table("OptimizedOrbit", rows, ("", "unit", "before", "after", ""), notes=_notes(gait, sign))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{float(value) + 0.0:.12g}"


def _rows(gait: OptimizedOrbit, objective: str, sign: int, units: Mapping[str, str]) -> Iterator[tuple]:
    """Name, unit, values before and after, and remark of each row."""
    orbits, unknowns = (gait.before, gait.orbit), gait.program.unknowns
    known, of_system = units_of_params(gait.params), units_of(None, gait.params, gait.orbit.system)
    yield objective, units.get(objective, ""), (sign * gait.value_before, sign * gait.value), ""
    pairs = np.transpose([np.asarray(unknowns.vector(orbit.params) * unknowns.scale) for orbit in orbits])
    duals, (low, high) = sign * np.asarray(gait.bound_multipliers), unknowns.at_bounds(gait.params)
    for k in range(len(pairs)) if len(pairs) <= 20 else range(10):
        side = "lower" if low[k] else "upper" if high[k] else ""
        remark = f"at its {side} bound, multiplier {duals[k]:.6g}" if side else ""
        yield gait.names[k], known.get(gait.names[k], ""), pairs[k], remark
    if len(pairs) > 20:
        yield f"and {len(pairs) - 10} more", "", ("", ""), ""
    values = np.transpose([np.asarray(gait.constraints_before), np.asarray(gait.constraints)])
    equalities = len(values) - np.asarray(gait.active).size
    for k, (label, (name, relation, limit)) in enumerate(zip(gait.labels, gait.limits, strict=True)):
        # The derivative by the limit: of b - g it is minus the multiplier.
        side = -1 if relation == "<=" else 1
        active = k < equalities or bool(gait.active[k - equalities])
        remark = (
            f"multiplier {sign * side * float(gait.multipliers[k]):.6g}"
            if active
            else f"inactive, by {values[k, 1]:.3g}"
        )
        yield label, units.get(name, ""), limit + side * values[k], remark
    names = gait.orbit.system.mode(gait.orbit.sequence[0]).coordinates
    for name, pair in zip(names, np.transpose([orbit.x for orbit in orbits]), strict=True):
        yield name, of_system.coordinates.get(name, ""), pair, ""
    yield "period", of_system.time, [orbit.period for orbit in orbits], ""
    yield "spectral radius", "", [f"{without_rounding(np.asarray(orbit.spectral_radius)):.10g}" for orbit in orbits], ""
    yield "stable", "", ["yes" if orbit.stable else "no" for orbit in orbits], ""
    yield "residual", "", [f"{float(orbit.residual):.1e}" for orbit in orbits], ""


def _notes(gait: OptimizedOrbit, sign: int) -> list[str]:
    """Accuracy, lost trials and starts, a line for each."""
    lines = [
        f"optimality residual {float(gait.error):.1e}, gradient against differences {float(gait.gradient_error):.1e}",
        f"{int(gait.starts.iterations[int(gait.best)])} evaluations: {described_code(gait.result)}",
    ]
    if lost := lost_trials(gait):
        lines.append(f"trials that were shortened because the gait was lost: {lost}")
    starts = jax.tree.map(np.asarray, gait.starts)
    if starts.values.size == 1:
        return lines
    lines.append(f"{starts.values.size} starts:")
    for number in range(int(starts.optimum.max()) + 1):
        mine = starts.optimum == number
        first = int(np.argmax(mine))
        values = ", ".join(
            f"{name} = {value:.6g}" for name, value in zip(gait.names[:8], starts.unknowns[first], strict=False)
        )
        lines.append(f"{int(mine.sum()):>6}  optimum {number + 1}: {sign * starts.values[first]:.9g} at {values}")
    lost = [(code, n) for code, n in counted_codes(starts.result) if not code.startswith("successful")]
    return lines + [f"{n:>6}  {code}" for code, n in lost]


def lost_trials(gait: OptimizedOrbit) -> str:
    """The trials of the best start whose gait was lost, by their codes, such as `3 far_from_guess`; or nothing."""
    names = [name for name in gait.history.names if name != "successful"]
    return ", ".join(f"{names.count(code)} {code}" for code in sorted({*names}))


def failure(gait: OptimizedOrbit) -> str:
    """The message of an optimization that found no optimum."""
    start = int(gait.best)
    met = f" On the way gaits were lost: {lost}." if (lost := lost_trials(gait)) else ""
    return (
        f"optimize: {described_code(gait.result)} The best of {gait.starts.values.size} starts ended at the objective "
        f"{float(gait.value):.9g} with the residual {float(gait.error):.1e} of the optimality conditions and violations up to "
        f"{float(gait.starts.violation[start]):.1e}, after {int(gait.starts.iterations[start])} evaluations.{met} "
        f"With throw=False the result is returned. ({gait.result})"
    )
