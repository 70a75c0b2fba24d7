"""Pictures of solver studies: work against precision, and points."""

from typing import TYPE_CHECKING

import numpy as np

from .figure import COLOURS, INK, open_axes, pyplot

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray

MARKERS = "osD^vP*X"


def work_precision_figure(
    study: "xarray.Dataset", set: int = 1, cost: str = "evaluations"
) -> "matplotlib.figure.Figure":
    """The error of each solver against its cost, one curve over the tolerances, for one set of parameters; a panel per strategy.

    The nearer to the lower left, the better. **Arguments:** `study`: of `hyjax.solver_study`. `set`: the number of the set.
    `cost`: a measure, such as `evaluations`, `steps_tried` or `seconds`. **Returns:** the figure. A run that failed is not
    drawn. `ValueError` for a measure or a set that the study does not have.
    """
    if cost not in study or set not in study["set"].values:
        raise ValueError(
            f"work_precision_figure: cost={cost!r} and set={set} must be in the study, which has {sorted(map(str, study))} and "
            f"the sets {study['set'].values.tolist()}."
        )
    here = study.sel(set=set)
    names = here["strategy"].values
    fig, axes = pyplot().subplots(
        1, len(names), figsize=(4 * len(names), 3.4), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, name in zip(axes[0], names, strict=True):
        for k, solver in enumerate(here["solver"].values):
            runs = here.sel(strategy=name, solver=solver)
            style = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)], "ms": 4}
            ax.loglog(runs[cost].values, runs["integral_of_error"].values, label=str(solver), **style)
        ax.set(title=str(name), xlabel=cost.replace("_", " "))
        open_axes(ax)
    axes[0, 0].set_ylabel("integral of the error")
    axes[0, -1].legend(frameon=False, fontsize="small")
    return fig


def points_figure(points: "xarray.Dataset", measure: str = "integral_of_error") -> "matplotlib.figure.Figure":
    """The points of the solvers by one measure as a heat map: solvers against tolerances, a panel per strategy.

    **Arguments:** `points`: of `hyjax.solver_points`. `measure`: such as `evaluations`. **Returns:** the figure. `ValueError` for
    a measure that the points do not have.
    """
    if measure not in points:
        raise ValueError(f"points_figure: measure={measure!r} must be one of {sorted(map(str, points))}.")
    column = points[measure].transpose("strategy", "solver", "rtol")
    names, solvers = column["strategy"].values, column["solver"].values
    fig, axes = pyplot().subplots(1, len(names), figsize=(3.2 * len(names), 3.4), squeeze=False, layout="constrained")
    low, high = float(column.min()), float(column.max())
    for ax, name in zip(axes[0], names, strict=True):
        values = column.sel(strategy=name).values
        image = ax.imshow(values, vmin=low, vmax=high, aspect="auto", cmap="viridis")
        for (row, place), value in np.ndenumerate(values):
            ax.text(
                place, row, f"{value:.0f}", ha="center", va="center", color=INK if value > (low + high) / 2 else "white"
            )
        ax.set(title=str(name), xlabel="rtol")
        ax.set_xticks(range(values.shape[1]), [f"{each:g}" for each in column["rtol"].values])
        ax.set_yticks(range(len(solvers)), [str(each) for each in solvers])
    fig.colorbar(image, ax=axes[0], label=f"points, {measure.replace('_', ' ')}")
    return fig
