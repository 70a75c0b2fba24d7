"""Bifurcation diagrams: branches over their parameter, stable solid, unstable dashed, special points marked and named; loci
in the plane of two parameters."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figure import COLOURS, GREY, INK, pyplot, symbol

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
}


def branch_diagram(
    branches: "Branch | Sequence[Branch]",
    coordinate: str | None = None,
    ax: "matplotlib.axes.Axes | None" = None,
    parameter: str = "",
) -> "matplotlib.axes.Axes":
    """A coordinate of every node of the orbits over the parameter; a colour for each branch.

    **Arguments:** `branches`: one, or several of one system. `coordinate`: its name, or `period`; by default the first of the
    mode in which the orbits start. `parameter`: its name, for the axis. An unknown coordinate is a `ValueError`.
    """
    branches = list(branches) if isinstance(branches, Sequence) else [branches]
    problem = branches[0].unfolding.problem
    names = problem.system.modes[problem.sequence[0]].coordinates
    coordinate = names[0] if coordinate is None else coordinate
    if coordinate not in (*names, "period"):
        raise ValueError(
            f"branch_diagram: there is no coordinate {coordinate!r}; use one of {', '.join((*names, 'period'))}."
        )
    axes = pyplot().subplots(figsize=(6.4, 4.2), layout="constrained")[1] if ax is None else ax

    for k, branch in enumerate(branches):
        colour, values, stable = COLOURS[k % len(COLOURS)], branch.values, branch.stable
        for start, end in _runs(stable):
            # A run reaches to the next, so that no gap is left between them.
            piece = slice(start, min(end + 1, len(values)))
            lines = branch.heights(coordinate)[piece]
            axes.plot(values[piece], lines, color=colour, lw=1.6, ls="-" if stable[start] else "--")
        for point in branch.special_points:
            mark, name = MARKS[point.kind]
            heights = np.atleast_1d(_heights(point, coordinate, names))
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
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def locus_diagram(
    loci: "Locus | Sequence[Locus]",
    ax: "matplotlib.axes.Axes | None" = None,
    parameters: tuple[str, str] = ("", ""),
) -> "matplotlib.axes.Axes":
    """Curves in the plane of two parameters, each with its kind; the first parameter is that of the branch.

    **Arguments:** `parameters`: their names, for the axes.
    """
    loci = list(loci) if isinstance(loci, Sequence) else [loci]
    axes = pyplot().subplots(figsize=(5.4, 4.2), layout="constrained")[1] if ax is None else ax
    for k, locus in enumerate(loci):
        axes.plot(*locus.values.T, color=COLOURS[k % len(COLOURS)], lw=1.6, label=locus.kind)
    axes.legend(frameon=False)
    axes.set_xlabel(symbol(parameters[0]) if parameters[0] else "first parameter")
    axes.set_ylabel(symbol(parameters[1]) if parameters[1] else "second parameter")
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _heights(point, coordinate: str, names: tuple[str, ...]) -> np.ndarray:
    if coordinate == "period":
        return np.asarray(point.orbit.period) / point.orbit.strides
    return np.asarray(point.orbit.nodes)[:, names.index(coordinate)]


def _runs(stable: np.ndarray) -> list[tuple[int, int]]:
    """First and one past the last of each run of equal marks."""
    ends = [0, *(np.flatnonzero(np.diff(stable.astype(int))) + 1), len(stable)]
    return list(itertools.pairwise(ends))
