"""The result of following an optimum: a branch of optimal gaits."""

from typing import NamedTuple, TYPE_CHECKING

import equinox as eqx
import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .._results.labels import units_of, units_of_params
from .._results.registry import draw, needed
from .._results.shown import Shown
from .._results.table import Table
from .._system.results import described_code, RESULTS
from .optimized_plan import OptimizedPlan

if TYPE_CHECKING:
    import pandas


class ActiveSetChange(NamedTuple):
    """A special point of a branch of optima: where a constraint or bound becomes active, or ceases to be.

    **Attributes:** `number`: the value of the parameter or limit. `name`: of the constraint or bound. `active`: whether it is
    active after the point.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> branch = hj.follow_optimum(gait, limit="spectral_radius", stop=0.6, n_points=6)
    >>> [f"{change.number:.6f} {change.name} {change.active}" for change in branch.changes]
    ['0.562500 lower bound of inertia_ratio True', '0.562500 spectral_radius <= 0.36 False']
    """

    number: float
    name: str
    active: bool


class OptimumBranch(Shown):
    """Optimal gaits over a number: a parameter, or the limit of a constraint.

    **Attributes:** `numbers`: shape `(points,)`, in the unit of the parameter or constraint. `values`: of the objective.
    `unknowns`: the optimized parameters, in their units, `(points, n)`. `multipliers`: of the constraints' rows, `(points, m)`,
    as those of `OptimizedOrbit`. `bound_multipliers`: `(points, n)`. `active`: which inequalities hold as equalities, after the
    point. `orbits`: a batch of `PeriodicOrbit`, or `None` without points, and for plans; `plans`: a batch of `OptimizedPlan`, or
    `None`. `changes`: of the active set, in order; each is a point of the branch too, of plans the first point with the other
    set. `result`: `successful` where the end was reached, else why the branch ends. `name`, `names`,
    `labels`: of the number, the unknowns, and the rows.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> branch = hj.follow_optimum(gait, limit="spectral_radius", stop=0.6, n_points=6)
    >>> branch.unknowns.shape[1], branch.multipliers.shape[1], bool(branch.orbits.stable.all())
    (1, 1, True)
    """

    numbers: np.ndarray
    values: np.ndarray
    unknowns: np.ndarray
    multipliers: np.ndarray
    bound_multipliers: np.ndarray
    active: np.ndarray
    orbits: PeriodicOrbit | None
    changes: tuple[ActiveSetChange, ...] = eqx.field(static=True)
    result: RESULTS
    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    labels: tuple[str, ...] = eqx.field(static=True)
    plans: OptimizedPlan | None = None

    def __len__(self) -> int:
        """The number of points."""
        return self.numbers.size

    def _columns(self) -> dict[str, np.ndarray]:
        columns = {
            self.name: self.numbers,
            "objective": self.values,
            **dict(zip(self.names, self.unknowns.T, strict=True)),
        }
        if self.orbits is not None:
            columns["period"] = np.asarray(self.orbits.period)
            columns["spectral radius"] = np.max(np.abs(np.asarray(self.orbits.multipliers)), axis=1)
        if self.plans is not None:
            columns["duration"] = np.asarray(self.plans.plan.duration)
        return columns

    def _tables(self):
        rows, heads, units = [], [], []
        if gaits := self.plans or self.orbits:
            columns = self._columns()
            known = units_of_params(gaits.params)
            known["period"] = known["duration"] = units_of(None, gaits.params, gaits.system).time
            heads, units = [*columns], [known.get(name, "") for name in columns]
            shown = range(len(self)) if len(self) <= 12 else np.unique(np.linspace(0, len(self) - 1, 12).astype(int))
            rows = [[f"{column[k]:.9g}" for column in columns.values()] for k in shown]
        notes = [
            f"{self.name} = {each.number:.12g}: {each.name} {'becomes' if each.active else 'ceases to be'} active"
            for each in self.changes
        ]
        caption = f"OptimumBranch: {len(self)} optima over {self.name}"
        return (Table(caption, rows, heads, units, [*notes, described_code(self.result)]),)

    def to_pandas(self) -> "pandas.DataFrame":
        """A row for each point: the number, the objective, the unknowns, the period and the spectral radius, or the
        duration of a plan. `ImportError` without pandas."""
        return needed("pandas", "data", "Tables").DataFrame(self._columns())

    def plot(self):
        """A figure of objective and parameters over the number; see `hyjax.plot.optimum_figure`."""
        return draw(self)
