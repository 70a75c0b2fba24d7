"""Bifurcation diagrams of branches, with their special points; loci in the plane of two parameters."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figure import COLOURS, GREY, INK, open_axes, symbol

if TYPE_CHECKING:
    import matplotlib.axes

    from .._continuation.branch import Branch
    from .._continuation.locus import Locus

MARKS = {
    "fold": ("o", "fold"),
    "period-doubling": ("s", "PD"),
    "neimark-sacker": ("D", "NS"),
    "branch-point": ("^", "BP"),
    "grazing": ("v", "grazing"),
    "corner": ("P", "corner"),
}


def branch_diagram(
    branches: "Branch | Sequence[Branch]",
    coordinate: str | None = None,
    ax: "matplotlib.axes.Axes | None" = None,
    parameter: str = "",
) -> "matplotlib.axes.Axes":
    """The bifurcation diagram of branches: a coordinate of every node of the orbits over the parameter.

    Stable orbits are drawn solid, unstable orbits dashed. Each branch has a colour; its special points are marked and labelled.

    **Arguments:** `branches`: one branch, or several of one system. `coordinate`: a name, or `period`, the period per stride; by
    default the first coordinate of the mode in which the orbits start. `ax`: axes to draw in; by default new ones. `parameter`:
    its name, for the axis label.

    **Returns:** the axes. `ValueError` for an unknown coordinate; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> branch = hj.continuation(wheel.system, orbit, where=lambda p: p.slope, stop=0.25)
    >>> axes = hj.plot.branch_diagram(branch, "period", parameter="slope")
    >>> axes.figure.savefig("branch.png")
    """
    branches = list(branches) if isinstance(branches, Sequence) else [branches]
    problem = branches[0].unfolding.problem
    names = problem.system.modes[problem.sequence[0]].coordinates
    coordinate = names[0] if coordinate is None else coordinate
    if coordinate not in (*names, "period"):
        raise ValueError(
            f"branch_diagram: there is no coordinate {coordinate!r}; use one of {', '.join((*names, 'period'))}."
        )
    axes = open_axes(ax, (6.4, 4.2))
    for k, branch in enumerate(branches):
        colour, values, stable = COLOURS[k % len(COLOURS)], branch.values, branch.stable
        for start, end in _runs(stable):
            # Each run includes the first point of the next one, so that the line has no gap.
            piece = slice(start, min(end + 1, len(values)))
            lines = branch.heights(coordinate)[piece]
            axes.plot(values[piece], lines, color=colour, lw=1.6, ls="-" if stable[start] else "--")
        for point in branch.special_points:
            mark, name = MARKS[point.kind]
            heights = _heights(point, coordinate, names)
            at = np.full(heights.size, float(point.value))
            axes.plot(at, heights, mark, color=colour, mfc="white", ms=6, zorder=4)
            axes.annotate(
                name, (at[0], heights.max()), (0, 6), textcoords="offset points", ha="center", color=INK, fontsize=9
            )
    axes.plot([], [], color=GREY, label="stable")
    axes.plot([], [], color=GREY, ls="--", label="unstable")
    axes.legend(frameon=False)
    axes.set_xlabel(symbol(parameter) if parameter else "parameter")
    axes.set_ylabel("$T$" if coordinate == "period" else symbol(coordinate))
    return axes


def locus_diagram(
    loci: "Locus | Sequence[Locus]",
    ax: "matplotlib.axes.Axes | None" = None,
    parameters: tuple[str, str] = ("", ""),
) -> "matplotlib.axes.Axes":
    """Loci of special points in the plane of two parameters, labelled by kind; the branch's own parameter is horizontal.

    **Arguments:** `loci`: one or several. `ax`: axes to draw in; by default new ones. `parameters`: the names of the two
    parameters, for the axis labels.

    **Returns:** the axes. `ImportError` without matplotlib.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), coordinates=("size", "clock"))
    >>> births = lambda t, x, p: jnp.stack([p["rate"] * x[0] * (1 - x[0]) - p["caught"], 0 * x[1]])
    >>> herd = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], births),))
    >>> params = {"rate": jnp.array(2.9), "caught": jnp.array(0.0)}
    >>> orbit = hj.periodic_orbit(herd, jnp.array([0.6, 0.0]), params, sequence=("year",))
    >>> branch = hj.continuation(herd, orbit, where=lambda p: p["rate"], stop=3.2)
    >>> (point,) = branch.special_points
    >>> locus = hj.locus(point, where=lambda p: p["caught"], stop=0.05)
    >>> axes = hj.plot.locus_diagram(locus, parameters=("rate", "caught"))
    >>> axes.figure.savefig("locus.png")
    """
    loci = list(loci) if isinstance(loci, Sequence) else [loci]
    axes = open_axes(ax, (5.4, 4.2))
    for k, locus in enumerate(loci):
        axes.plot(*locus.values.T, color=COLOURS[k % len(COLOURS)], lw=1.6, label=locus.kind)
    axes.legend(frameon=False)
    axes.set_xlabel(symbol(parameters[0]) if parameters[0] else "first parameter")
    axes.set_ylabel(symbol(parameters[1]) if parameters[1] else "second parameter")
    return axes


def _heights(point, coordinate: str, names: tuple[str, ...]) -> np.ndarray:
    """The ordinates at which a special point is marked: one for each node, or the period per stride."""
    if coordinate == "period":
        return np.asarray(point.orbit.period)[None] / point.orbit.strides
    return np.asarray(point.orbit.nodes)[:, names.index(coordinate)]


def _runs(stable: np.ndarray) -> list[tuple[int, int]]:
    """The index ranges `(start, end)` of consecutive points of equal stability."""
    ends = [0, *(np.flatnonzero(np.diff(stable.astype(int))) + 1).tolist(), len(stable)]
    return list(itertools.pairwise(ends))
