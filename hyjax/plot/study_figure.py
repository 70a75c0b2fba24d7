"""Pictures of solver studies: work against precision, and ranks."""

import itertools as it
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figure import COLOURS, GREY, INK, open_axes, pyplot

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray

STYLES = tuple(zip((*COLOURS, INK, GREY), "osD^vP*X", strict=True))


def work_precision_figure(
    study: "xarray.Dataset",
    sets: Sequence[int] | None = None,
    strategies: Sequence[str] | None = None,
    cost: str = "evaluations",
) -> "matplotlib.figure.Figure":
    """The error of each solver against its cost, one curve over the tolerances; a panel for each set and strategy.

    The nearer to the lower left, the better. **Arguments:** `study`: of `hyjax.study.solver_study`. `sets`, `strategies`:
    those that are drawn, by default all. `cost`: a measure, such as `evaluations`, `steps_tried` or `seconds`. **Returns:**
    the figure. A run that failed is not drawn. `ValueError` for what the study does not have.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> study = hj.study.solver_study(
    ...     ball.system, x0, params, mode="flight", t1=1.0, samples=11, timed=False, progress=False, tolerances=(1e-3, 1e-6),
    ...     solvers={"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()},
    ... )
    >>> figure = hj.plot.work_precision_figure(study)
    >>> figure.savefig("work_precision.png")
    """
    chosen = {"set": sets, "strategy": strategies}
    has = {name: study[name].values.tolist() for name in chosen}
    given = {name: has[name] if each is None else list(each) for name, each in chosen.items()}
    if cost not in study or any(not given[name] or set(given[name]) - set(has[name]) for name in has):
        raise ValueError(
            f"work_precision_figure: cost={cost!r}, sets={sets} and strategies={strategies} must be in the study, which has "
            f"{sorted(map(str, study))} and {has}."
        )
    panels = list(it.product(given["set"], given["strategy"]))
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    from matplotlib.ticker import LogLocator

    fig, axes = pyplot().subplots(
        rows, columns, figsize=(3.2 * columns, 2.6 * rows + 0.5), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax, (number, strategy) in zip(axes.flat, panels, strict=False):
        for k, solver in enumerate(study["solver"].values):
            runs = study.sel(set=number, strategy=strategy, solver=solver)
            colour, marker = STYLES[k % len(STYLES)]
            x, y = runs[cost].values, runs["integral_of_error"].values
            ax.loglog(x, y, color=colour, marker=marker, ms=4, label=str(solver))
        # Over little more than a decade matplotlib labels every minor tick, and the labels overlap.
        ax.xaxis.set_minor_locator(LogLocator(subs=(3,)))
        ax.set_title(f"set {number}, {strategy}", fontsize="medium")
        open_axes(ax)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    fig.supxlabel(cost.replace("_", " "))
    fig.supylabel("integral of the error")
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=8, frameon=False)
    return fig


def points_figure(points: "xarray.Dataset") -> "matplotlib.figure.Figure":
    """The ranks of the solvers as a heat map, from 1 for the most points, with the points written in: solvers against tolerances,
    a panel for each measure and strategy.

    **Arguments:** `points`: of `hyjax.study.solver_points`. **Returns:** the figure. `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> import diffrax
    >>> study = hj.study.solver_study(
    ...     ball.system, x0, params, mode="flight", t1=1.0, samples=11, timed=False, progress=False, tolerances=(1e-3, 1e-6),
    ...     solvers={"Tsit5": diffrax.Tsit5(), "Bosh3": diffrax.Bosh3()},
    ... )
    >>> figure = hj.plot.points_figure(hj.study.solver_points(study))
    >>> figure.savefig("points.png")
    """
    measures, names, solvers = list(points), points["strategy"].values, points["solver"].values
    size = 2.6 * len(measures) + 1, 0.35 * len(solvers) * len(names) + 1.4
    fig, axes = pyplot().subplots(
        len(names), len(measures), figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for (row, name), (column, measure) in it.product(enumerate(names), enumerate(measures)):
        ax = axes[row, column]
        values = points[measure].sel(strategy=name).transpose("solver", "rtol").values
        # The best is 1, and equal points share the better rank.
        ranks = 1 + np.sum(values[:, None] < values[None, :], axis=1)
        image = ax.imshow(ranks, vmin=1, vmax=len(solvers), aspect="auto", cmap="viridis_r")
        for (i, j), value in np.ndenumerate(values):
            late = ranks[i, j] > (1 + len(solvers)) / 2
            ax.text(j, i, f"{value:.0f}", ha="center", va="center", color="white" if late else INK)
        ax.set_title(f"{str(measure).replace('_', ' ')}, {name}", fontsize="small")
        ax.set_xticks(range(values.shape[1]), [f"{each:g}" for each in points["rtol"].values])
        ax.set_yticks(range(len(solvers)), [str(each) for each in solvers])
    fig.supxlabel("tolerance")
    fig.colorbar(image, ax=axes, label="rank", ticks=range(1, len(solvers) + 1))
    return fig
