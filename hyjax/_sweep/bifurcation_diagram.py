"""Bifurcation diagrams over two parameters: the loci of a branch's special points, and the periods of attractors. Cascades of
period doublings."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from .._continuation.branch import Branch
from .._continuation.curve import PseudoArclength
from .._continuation.detection import each_once
from .._continuation.locus import branches_cross, curves_through, laps_of, Locus, locus
from .._continuation.special_points import SpecialPoint
from .._continuation.switching import crossing_branches as crossing_branches, switch_branch
from .._orbit.return_map import ReturnMap
from .._results.registry import draw
from .._results.shown import Shown
from .._system.where import Where
from .attractor import attractor

if TYPE_CHECKING:
    import xarray

# A point lies on a locus if it is nearer to a chord between two points, in scaled units; curves of doubled orbits begin at an
# amplitude.
NEAR, BEGINS = 3e-3, 2e-2
# Feigenbaum's constant: by this factor the parameter's intervals shrink with each doubling.
DELTA = 4.669201609


class Diagram(Shown):
    r"""A bifurcation diagram over two parameters, from `Branch.diagram`.

    **Attributes:** `branch`. `loci`: each a `Locus`, over the same two parameters; each curve once. `special_points`: of
    codimension two, each once. `attractors`: a dataset of `hyjax.attractor` over the ranges of the branch and of the second
    parameter, iterated from the nearest stable orbits of the branch; or `None`.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]) - p["caught"], 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9), "caught": jnp.array(0.0)}
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(herd, sequence=("year",)), jnp.array([0.6, 0.0]), params)
    >>> branch = hj.continuation(orbit, where=lambda p: p["rate"], stop=3.4)
    >>> diagram = branch.diagram(where=lambda p: p["caught"], stop=(-0.1, 0.1), grid=(5, 3))
    >>> print([locus.kind for locus in diagram.loci], diagram.attractors.period.values[[0, -1], 1])
    ['period-doubling'] [1 2]

    Source: Kuznetsov (2004), ch. 9.
    """

    branch: Branch
    loci: tuple[Locus, ...]
    attractors: "xarray.Dataset | None"

    @property
    def special_points(self) -> tuple[SpecialPoint, ...]:
        """Points of codimension two on the loci, each once."""
        return tuple(each_once([point for each in self.loci for point in each.special_points]))

    def _tables(self):
        return tuple(table for each in self.loci for table in each._tables())

    def plot(self, ax=None):
        """Draw curves, points and periods; see `hyjax.plot.diagram_figure`."""
        return draw(self, ax)


def diagram_of(
    branch: Branch,
    where: Where,
    stop: tuple[float, float],
    *,
    grid: tuple[int, int] | None = (60, 45),
    n_strides: int = 400,
    method: PseudoArclength = PseudoArclength(),
) -> Diagram:
    """The diagram of `Branch.diagram`."""
    if not isinstance(stop, tuple | list) or len(stop) != 2:
        raise ValueError(f"Branch.diagram: stop={stop!r} must be the bounds (low, high) of the second parameter.")
    loci: list[Locus] = []
    points = list(branch.special_points)
    for point in points:
        for kind in curves_through(point):
            laps = laps_of(kind)[1]
            # Two curves of orbits of four laps begin at one point.
            if laps < 4 and any(_lies_on(each, point, kind) for each in loci):
                continue
            if laps > 1 and point.orbit.strides > branch.unfolding.problem.strides:
                continue
            if kind == "fold" and branches_cross(point):
                continue
            found = locus(point, where=where, stop=stop, kind=kind, method=method, throw=False)
            if np.all(found.curves.started):
                loci.append(found)
                points += found.special_points
    if not loci:
        raise ValueError(
            "Branch.diagram: the branch has no special points that could be followed over a second parameter."
        )
    attractors = None if grid is None else _attractors(branch, where, stop, grid, n_strides)
    return Diagram(branch, tuple(loci), attractors)


def _lies_on(found: Locus, point: SpecialPoint, kind: str) -> bool:
    """Whether the curve of this kind through a point is the locus."""
    unfolding, (base, times) = found.unfolding, laps_of(kind)
    if found.kind != base or unfolding.problem.strides != times * point.unfolding.problem.strides:
        return False
    y, values = point.unfolding.split(point.v)
    leaves = jax.tree.leaves(point.unfolding.params_at(values))
    own = jnp.stack([jnp.asarray(leaves[i], y.dtype) for i in unfolding.free])
    points = found._points["v"]
    steps = np.diff(points, axis=0)
    # The curve may have another stride as its first.
    for k in range(len(y)):
        v = np.asarray(unfolding.join(jnp.concatenate([jnp.roll(y, k, axis=0)] * times), own))
        share = np.clip(np.sum((v - points[:-1]) * steps, axis=1) / np.sum(steps**2, axis=1), 0, 1)
        distance = np.linalg.norm(v - points[:-1] - share[:, None] * steps, axis=1)
        if np.min(distance, initial=np.inf) < (NEAR if times == 1 else BEGINS):
            return True
    return False


def _attractors(branch: Branch, where: Where, stop: tuple[float, float], grid: tuple[int, int], n_strides: int):
    """The attractors over both parameters, from the orbits of the branch, a stable one where there is one near."""
    unfolding = branch.unfolding
    first = lambda params: jax.tree.leaves(params)[unfolding.free[0]]
    values = np.linspace(branch.values.min(), branch.values.max(), grid[0]), np.linspace(*stop, grid[1])
    step = ReturnMap(unfolding.problem.system, sequence=unfolding.problem.sequence, integrator=unfolding.integrator)
    # An unstable orbit counts as further away by the whole length of the branch.
    unstable = jnp.where(jnp.asarray(branch.stable), 0, np.ptp(branch.values))
    states, own = jnp.asarray(branch.x) * (1 + 1e-4), jnp.asarray(branch.values)
    near = lambda params: states[jnp.argmin(jnp.abs(own - first(params)) + unstable)]
    return attractor(
        step, near, unfolding.params, where=lambda params: (first(params), where(params)), values=values,
        n_strides=n_strides, keep=64, max_period=32, throw=False,
    )  # fmt: skip


def cascade_of(point: SpecialPoint, doublings: int, stop: float, method: PseudoArclength) -> tuple[Branch, ...]:
    """The branches of a cascade of period doublings, for `SpecialPoint.cascade`."""
    if point.kind != "period-doubling":
        raise ValueError(f"cascade: point must be a period-doubling point, not a {point.kind} point.")
    found: list[Branch] = []
    reach = stop
    while len(found) < doublings:
        branch = switch_branch(point, stop=reach, method=method, throw=False)
        found.append(branch)
        if not branch.curves.started.all():
            break
        own = [each for each in branch.special_points if each.kind == "period-doubling"]
        if not own:
            break
        reach = float(own[0].value + 1.5 * (own[0].value - point.value) / DELTA)
        point = own[0]
    return tuple(found)
