"""Branches of periodic orbits: points, special points, tables."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, TYPE_CHECKING, TypeVar

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues, inside_circle
from .._orbit.chain import Chain
from .._orbit.orbit import PeriodicOrbit
from .._results.registry import diagrams, draw, needed, pictures
from .._results.shown import computed, computed_once, lanes, Shown
from .._results.table import without_rounding
from .._system.results import RESULTS
from .._system.types import Params, Scalar
from .._system.where import leaf_names, Where
from .curve import Curve, interval_to, point_near, PseudoArclength, result_of
from .detection import each_once, expected, explains, located, witness
from .location import Followed, places_of, search
from .special_points import locate_grazing, locate_swap, SpecialPoint
from .unfolding import Equation, Unfolding

if TYPE_CHECKING:
    import pandas
    import xarray


# A coordinate by its name, or a function of an orbit.
Height = str | Callable[[PeriodicOrbit, Params], Scalar]
Special = TypeVar("Special")


class Points(Shown, Generic[Special]):
    """Points of the curves of an equation, and special points between them: base of branches and loci, of orbits and of
    equilibria. The points can be read outside of `jit` only."""

    unfolding: eqx.AbstractVar[Equation]
    curves: eqx.AbstractVar[Curve]  # one in each direction
    accept: eqx.AbstractVar[Scalar]

    @abc.abstractmethod
    def _search(self) -> tuple[Sequence[Special], tuple[tuple[float, float], ...]]:
        """The special points in their order, and the intervals of `unresolved`."""

    def __len__(self) -> int:
        """The number of points."""
        return len(self._points["v"])

    def __getitem__(self, i):
        """One branch or locus of a batch."""
        return lanes(
            self, self.accept, i, "one branch, not a batch of branches; its points are the orbits branch.orbit(i)"
        )

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters: of the one of a branch, or of both of a locus."""
        return [leaf_names(self.unfolding.params)[each] for each in self.unfolding.free]

    @property
    def parameter(self) -> str:
        """The name of the parameter, of a locus the first."""
        return self.parameters[0]

    @property
    def values(self) -> np.ndarray:
        """Values of the parameter, shape `(points,)`; of a locus those of both, `(points, 2)`."""
        free = len(self.unfolding.free)
        found = np.asarray(self.unfolding.origin) + self._points["v"][:, -free:] * np.asarray(self.unfolding.scale)
        return found[:, 0] if free == 1 else found

    @property
    def residuals(self) -> np.ndarray:
        """Largest residuals of the scaled equations, shape `(points,)`."""
        return self._points["residuals"]

    @property
    def result(self) -> RESULTS:
        """`successful` if every end of the interval was reached, otherwise the reason; see `continuation`."""
        return result_of(self.curves)

    @property
    def special_points(self) -> tuple[Special, ...]:
        """Special points of the kinds that the class names, each once, in the order along the curve. They are searched between
        the points when this is first read; see `unresolved`."""
        return tuple(computed_once(_searched, self)[0])

    @property
    def unresolved(self) -> tuple[tuple[float, float], ...]:
        """Intervals of the parameter, of a locus the second one, as values at consecutive points of the search, in which a test
        function changes sign, eigenvalues become critical, or along a locus a test function may be zero twice, and no special
        points were located that explain it. Empty if all are known."""
        return computed_once(_searched, self)[1]

    @property
    def located(self) -> tuple[Special, ...] | None:
        """`special_points` if they have been located; otherwise `None`, without a search."""
        return self.special_points if _searched in computed(self) else None

    def _notes(self) -> list[str]:
        """The unresolved intervals in words, if special points have been searched."""
        intervals = () if self.located is None else self.unresolved
        shown = [without_rounding(np.array(each), float(self.unfolding.scale[-1])) for each in intervals]
        return [f"not located: a special point between {a:.10g} and {b:.10g}" for a, b in shown]

    @property
    def _points(self) -> dict[str, Any]:
        return computed_once(_columns_of, self)


def _searched(found: Points) -> tuple[Sequence, tuple[tuple[float, float], ...]]:
    return found._search()


class OrbitCurve(Points[SpecialPoint]):
    """Periodic orbits at the points of a curve: base of `Branch` and `Locus`."""

    @property
    def x(self) -> np.ndarray:
        """Post-impact states at the start of the first stride, shape `(points, n)`."""
        return self._points["aux"].nodes[:, 0]

    @property
    def periods(self) -> np.ndarray:
        """Periods of all strides together, shape `(points,)`."""
        return self._points["aux"].period

    @property
    def multipliers(self) -> np.ndarray:
        """Floquet multipliers, largest modulus first, shape `(points, n)`."""
        return computed_once(_multipliers_of, self)


class Branch(OrbitCurve):
    r"""A branch of periodic orbits $F(y, \lambda) = 0$ over a parameter $\lambda$, from `continuation` or `switch_branch`.

    **Attributes:** in the order along the curve, in the units of the system: `values` of the parameter, shape `(points,)`; `x`,
    post-impact states, `(points, n)`; `periods`; `multipliers`, `(points, n)`; `residuals`; `stable`. `orbits`: the same points
    as a batch of `PeriodicOrbit`. `special_points`: folds, period doublings, Neimark-Sacker points and branch points, and where
    the branch ends at grazing or at a swap of events, that; `unresolved`: intervals in which multipliers cross the unit circle
    and no special point was located; `located`: the special points if they have been searched. `result`.

    Under `jit` and `vmap` a branch is a PyTree of fixed shapes, and reading its points is a `TypeError`: return it, then read
    them. `branch[i]` is one branch of a batch. `ValueError` where the first point was not found.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)
    >>> print(branch.values[0], branch.values[-1], bool(branch.stable.all()), branch.special_points)
    0.2 0.25 True ()

    Source: Kuznetsov (2004), ch. 10.
    """

    unfolding: Unfolding
    curves: Curve  # one in each direction
    accept: Scalar
    method: PseudoArclength = eqx.field(static=True)

    def _tables(self):
        from .branch_report import branch_tables

        return branch_tables(self)

    # Points

    def heights(self, coordinate: Height) -> np.ndarray:
        """A coordinate at the start of every stride, shape `(points, strides)`. For `"period"`: the mean time of a stride,
        shape `(points, 1)`. For a function `(orbit, params) -> number`, as those of `hyjax.objectives`: its values, shape
        `(points, 1)`. `ValueError` for an unknown coordinate."""
        problem = self.unfolding.problem
        if callable(coordinate):
            return np.asarray(_measured(coordinate, self.orbits))[:, None]
        if coordinate == "period":
            return self.periods[:, None] / problem.strides
        return self._points["aux"].nodes[:, :, problem.system.mode(problem.sequence[0]).coordinates.index(coordinate)]

    @property
    def stable(self) -> np.ndarray:
        """Whether all multipliers lie inside the unit circle, of a family those beside its own, as `PeriodicOrbit.stable`; shape
        `(points,)`."""
        return np.asarray(inside_circle(self.multipliers))

    @property
    def orbits(self) -> PeriodicOrbit:
        """All points as a batch of periodic orbits."""
        return _orbits(self.unfolding, *jax.tree.map(jnp.asarray, (self._points["v"], self._points["aux"])))

    def orbit(self, i: int) -> PeriodicOrbit:
        """The point number `i` as a periodic orbit."""
        at = lambda leaf: jnp.asarray(leaf[i])
        return orbit_at(self.unfolding, *jax.tree.map(at, (self._points["v"], self._points["aux"])))

    def _search(self) -> tuple[list[SpecialPoint], tuple[tuple[float, float], ...]]:
        curve = Followed(self.unfolding, len(self.curves.count), self.method, self.accept, witness)
        points, unresolved = search(curve, places_of(curve, self._points), expected, located, explains)
        first, last = computed_once(_grazing_at_ends, self)
        return [*first, *each_once(points), *last], unresolved

    @property
    def result(self) -> RESULTS:
        """`successful` if every end of the interval was reached, otherwise the reason; see `continuation`. Beyond a grazing at
        which strides are sound, as those from section to section, Newton's method fails: the reason is the grazing."""
        code = result_of(self.curves)
        if code != RESULTS.orbit_not_converged or not np.all(self.curves.started):
            return code
        first, last = computed_once(_grazing_at_ends, self)
        return RESULTS.grazing if any(point.kind == "grazing" for point in (*first, *last)) else code

    # Tables

    def columns(self) -> dict[str, np.ndarray]:
        """The points as a table: parameter, coordinates of the state, period, spectral radius, stability, residual."""
        coordinates = self.unfolding.problem.system.mode(self.unfolding.problem.sequence[0]).coordinates
        table = {"parameter": self.values}
        table |= {name: self.x[:, k] for k, name in enumerate(coordinates)}
        table["period"] = self.periods
        table["spectral_radius"] = np.max(np.abs(self.multipliers), axis=1)
        table["stable"] = self.stable
        table["residual"] = self.residuals
        return table

    def to_pandas(self) -> "pandas.DataFrame":
        """`columns` as a `pandas.DataFrame`. `ImportError` if pandas is missing."""
        return needed("pandas", "data", "Tables").DataFrame(self.columns())

    def to_xarray(self) -> "xarray.Dataset":
        """The points over the dimension `point`, the special points over `special`; multipliers as real and imaginary parts. The
        coordinate of the points has the parameter's name."""
        from .branch_report import branch_dataset

        return branch_dataset(self)

    def plot(self, coordinate: Height | None = None, ax=None, against: Height | None = None):
        """Draw a bifurcation diagram; see `hyjax.plot.branch_diagram`."""
        return draw(self, coordinate, ax, against=against)

    def diagram(self, *, where: Where, stop: tuple[float, float], **options):
        """The bifurcation diagram over the branch's parameter and a second one: the loci of all special points, the curves that
        leave at points of codimension two, and the periods of attractors.

        **Arguments:** `where`: selects the second parameter, between the bounds `stop`. `grid`: numbers of values of both
        parameters for the attractors, by default `(60, 45)`; `None` for no attractors. `n_strides`: their number, by default 400.
        `method`: as for `locus`. **Returns:** a `Diagram`, with `loci`, `special_points`, `attractors` and `plot`."""
        return diagrams().diagram_of(self, where, stop, **options)

    def connected(self, *, stop: tuple[float, float], method: PseudoArclength = PseudoArclength()) -> "list[Branch]":
        """The branches that cross this one at branch points, and those that go on beyond its swaps of events and beyond theirs;
        each once, and without this one. With it, they are the gait map of a family.

        **Arguments:** `stop`: the bounds `(low, high)` of the parameter, in its own unit, with all these points between them.
        `method`: as for `continuation`.
        **Returns:** those from all points of this branch, and from the swaps of the first 7 that are found. Where several
        multipliers are 1 at once the first of the point's `daughters` is followed, the others by `switch_branch`; where their
        directions are undetermined, none. Branches whose first point is not found are left out; others end as their `result`
        says. `ValueError` for other bounds."""
        if np.shape(stop) != (2,):
            raise ValueError(f"connected: stop={stop!r} must be a pair (low, high).")
        low, high = stop
        interval_to((low, high), jnp.asarray(low, self.values.dtype), "connected", behind=0.0)
        for point in self.special_points:
            if point.kind in ("branch-point", "swap"):
                interval_to((low, high), point.value, "connected", behind=0.0)
        return diagrams().crossing_branches([self], stop=(low, high), method=method)

    def explore(self, model=None, **options):
        """A page with the gait map of the branch, on which its gaits move; see `hyjax.plot.gait_map`. **Arguments:** `model`: not
        needed for a system of `hyjax.models`."""
        return pictures().gait_map(self, model, **options)


def _columns_of(found: Points) -> dict[str, Any]:
    """The points of a branch or locus as columns, in the order along the curve; all tangents point in this direction."""
    curves = found.curves
    if isinstance(curves.count, jax.core.Tracer):
        raise TypeError("The points of a branch are not known under jit: return the branch, and read them outside.")
    if curves.count.ndim > 1:
        raise TypeError("This is a batch of branches: take one of them, such as branch[0].")
    host = jax.tree.map(np.asarray, curves)
    if not np.all(host.started):
        raise ValueError(
            f"This branch has no points: its first point was not found within stop ({result_of(curves)}). Start from "
            "another orbit, or for switch_branch with another amplitude."
        )
    # A closed curve is the same in both directions.
    ways = [int(np.argmax(host.closed))] if np.any(host.closed) else range(len(host.count))
    # The start is the first point of both directions, except of the two halves of a branch that crosses another.
    same = len(ways) < 2 or np.max(np.abs(host.v[0, 0] - host.v[1, 0])) <= 16 * np.finfo(host.v.dtype).eps

    def along(column: np.ndarray) -> np.ndarray:
        first, *back = (column[way][: host.count[way]] for way in ways)
        return np.concatenate([*(each[int(same) :][::-1] for each in back), first])

    signs = np.array([1, -1], host.v.dtype)[: len(host.count), None, None]
    signs = signs if len(ways) == 2 else np.ones_like(signs)
    own = {"v": host.v, "tangent": signs * host.tangent, "jacobian": host.jacobian, "residuals": host.residual}
    return jax.tree.map(along, own | {"aux": host.aux})


def _multipliers_of(found: OrbitCurve) -> np.ndarray:
    points, n = found._points, found.x.shape[1]
    # Rows of the orbit's equation; along a locus the Jacobian has one more row.
    states = points["v"].shape[1] - len(found.unfolding.free)
    spectrum = np.asarray(_multipliers(found.unfolding, jnp.asarray(points["jacobian"][:, :states])))
    # The return maps of pre-impact and of post-impact states have the same multipliers, except for zeros.
    return np.pad(spectrum, [(0, 0), (0, max(0, n - spectrum.shape[1]))])[:, :n]


def _grazing_at_ends(branch: Branch) -> tuple[list[SpecialPoint], list[SpecialPoint]]:
    return _grazing_at_end(branch, True), _grazing_at_end(branch, False)


def _grazing_at_end(branch: Branch, first: bool) -> list[SpecialPoint]:
    """The grazing orbit, or that in which two events fall together, near the first or the last point, if the corrector failed
    there and such an orbit is found."""
    points, stuck = branch._points, np.asarray(branch.curves.stuck)
    way = 1 if first else 0
    # Where a branch ends with `out_of_phase` the strides beyond are sound, and graze no guard.
    phase = np.asarray(branch.curves.last.result._value) == RESULTS.out_of_phase._value
    if way == len(stuck) or not stuck[way] or phase[way]:
        return []
    i = 0 if first else len(branch) - 1
    v, tangent = (jnp.asarray(points[name][i]) for name in ("v", "tangent"))
    inwards = jax.tree.map(lambda each: each[:: 1 if first else -1], points)
    # Shorter steps are rounded.
    shortest = max(branch.method.min_step, 16 * float(jnp.finfo(v.dtype).eps))
    far = int(np.argmax(np.linalg.norm(inwards["v"] - inwards["v"][0], axis=1) > 10 * shortest))
    near, before = (jax.tree.map(lambda each, k=k: each[k], inwards) for k in (0, far))
    program = len(stuck), branch.method, branch.accept
    nearer = lambda v, tangent: point_near(branch.unfolding, v, tangent, tangent, *program)
    known = branch.unfolding, near, before, points
    point = locate_swap(*known, orbit_at, nearer, shortest) if far else None
    if point is None:
        point = locate_grazing(branch.unfolding, branch.orbit(i), v, tangent, 1e3 * branch.accept)
    return [] if point is None else [point]


@long_run
def _multipliers(unfolding: Unfolding, jacobian: Array) -> Array:
    return jax.vmap(lambda jacobian: eigenvalues(unfolding.around(jacobian)))(jacobian)


@long_run
def orbit_at(unfolding: Unfolding, v: Array, chain: Chain) -> PeriodicOrbit:
    return unfolding.orbit(v, chain)


@long_run
def _orbits(unfolding: Unfolding, v: Array, chain: Chain) -> PeriodicOrbit:
    return jax.vmap(unfolding.orbit)(v, chain)


@long_run
def _measured(function: Callable[[PeriodicOrbit, Params], Scalar], orbits: PeriodicOrbit) -> Array:
    return jax.vmap(lambda orbit: function(orbit, orbit.params))(orbits)
