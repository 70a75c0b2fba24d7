"""Figures of an optimization, with the gait before and after, and of a branch of optimal gaits."""

from types import ModuleType
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import numpy as np

from .._optimize.objectives import Negative
from .._optimize.optimized_orbit import OptimizedOrbit
from .._optimize.optimum_branch import OptimumBranch
from .._results.labels import chosen_unit, named_params, units_of
from .figure import (
    axis_of,
    BLUE,
    GREY,
    head_of,
    number,
    put_title,
    pyplot,
    quantity,
    signed,
    symbol,
    tidy,
    title_of,
    unbroken,
    unit,
    VERMILION,
    with_unit,
)
from .orbit_axes import message_of, multiplier_plane, phase_portrait, portrait_panels, series_panels, time_series, widen

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


# A violation is drawn no smaller: rounding.
LEAST = 1e-17


def optimization_figure(gait: OptimizedOrbit, model: ModuleType | None = None) -> "matplotlib.figure.Figure":
    """The figure of an optimization: phase portrait and coordinates over time before and after, in axes of the same scales; the
    objective and the largest violation of a constraint over the accepted evaluations of the best start; the multipliers.

    **Arguments:** `gait`: the result of `hyjax.optimize`. `model`: supplies the title, and the units of the axes.

    **Returns:** the figure. `ValueError` for an optimization that ended without a gait; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> figure = hj.plot.optimization_figure(gait, model=wheel)
    >>> figure.savefig("optimization.png")
    """
    if not np.isfinite(gait.orbit.period):
        raise ValueError(f"optimization_figure: there is no gait to draw: {message_of(gait.orbit)}")
    portraits, series = portrait_panels(gait.orbit, model), series_panels(gait.orbit, model)
    rows = len(portraits) + len(series)
    fig = pyplot().figure(figsize=(13, 3.8 * rows if rows == 2 else 3.0 * rows), layout="constrained")
    put_title(fig, _title(gait, model), 13)
    gaits, course = fig.subfigures(1, 2, width_ratios=(2, 1.05))
    axes = gaits.subplots(rows, 2, sharex="row", sharey="row")
    last = "optimal gait" if gait.result == "successful" else "last gait, not an optimum"
    columns = zip((gait.before, gait.orbit), end_values(gait), ("starting gait", last), axes.T, strict=True)
    time = unit(units_of(model, gait.orbit.params, gait.orbit.system).time)
    for orbit, value, name, column in columns:
        for ax, pairs in zip(column, portraits, strict=False):
            phase_portrait(orbit, ax, pairs, model)
        for ax, names in zip(column[len(portraits) :], series, strict=True):
            time_series(orbit, ax, model, names)
        period = quantity(number(float(orbit.period), 5), time)
        # Above the legend, of three entries a line.
        lines = -(-len(column[0].get_legend().get_texts()) // 3)
        column[0].set_title(f"{name}: {signed(f'{value:.6g}')}, $T$ = {period}", fontsize=11, pad=8 + 16 * lines)
    for ax in axes[:, 1]:
        ax.set_ylabel("")
    constrained = gait.constraints.size > 0
    *panels, plane = course.subplots(2 + constrained, 1, height_ratios=(1, *[0.8] * constrained, 2.2))
    _course(gait, panels)
    _multipliers(gait, plane)
    return fig


def _title(gait: OptimizedOrbit, model: ModuleType | None) -> str:
    """The model, the objective, and the parameters before and after."""
    ends = (
        np.asarray(gait.program.unknowns.vector(orbit.params) * gait.program.unknowns.scale)
        for orbit in (gait.before, gait.orbit)
    )
    # A parameter that ended at zero by rounding is zero.
    before, after = ends
    after = np.where(np.abs(after) < 1e-9 * np.abs(before), 0, after)
    about = named_params(gait.orbit.params)
    printed = [
        unit(chosen_unit(about.get(name, (0, {}))[1].get("units", ""), gait.orbit.params)) for name in gait.names
    ]
    shown = [
        unbroken(f"{symbol(name)} {quantity(signed(f'{before:.4g} → {after:.4g}'), each)}")
        for name, before, after, each in zip(gait.names, before, after, printed, strict=True)
    ]
    more = [f"and {len(shown) - 6} more"] if len(shown) > 6 else []
    head = ": ".join(text for text in (head_of(model, gait.orbit.system), objective_name(gait)) if text)
    return f"{head}; {', '.join(shown[:6] + more)}"


def sign_of(gait: OptimizedOrbit) -> int:
    """-1 where the objective is a `Negative`, which is to be shown as the objective that it maximizes."""
    return -1 if isinstance(gait.program.objective, Negative) else 1


def end_values(gait: OptimizedOrbit) -> tuple[float, float]:
    """The value before and after of the objective that is minimized or maximized."""
    return sign_of(gait) * float(gait.value_before), sign_of(gait) * float(gait.value)


def objective_name(gait: OptimizedOrbit) -> str:
    """The name of the objective, and what is done to it."""
    given = gait.program.objective
    negative = isinstance(given, Negative)
    name = getattr(given.objective if negative else given, "__name__", "")
    return (
        f"{name.replace('_', ' ') if name.isidentifier() else 'objective'}, {'maximized' if negative else 'minimized'}"
    )


def _course(gait: OptimizedOrbit, panels: "list[matplotlib.axes.Axes]") -> None:
    """The objective and, where there are constraints, the largest violation of the accepted evaluations, by their numbers."""
    history = gait.history
    taken = np.flatnonzero(np.asarray(history.accepted))
    style = {"marker": "o", "ms": 3.5, "lw": 1.4}
    tidy(panels[0]).plot(
        taken + 1, sign_of(gait) * np.asarray(history.objective)[taken], color=BLUE, gid="objective", **style
    )
    panels[0].set_ylabel(objective_name(gait).replace(", ", ",\n"))
    if panels[1:]:
        worst = np.maximum(np.asarray(history.violation)[taken], LEAST)
        tidy(panels[1]).semilogy(taken + 1, worst, color=VERMILION, gid="violation", **style)
        panels[1].set_ylabel("violation")
        panels[1].sharex(panels[0])
        panels[0].tick_params(labelbottom=False)
    panels[-1].set_xlabel("evaluation")
    panels[-1].locator_params(axis="x", integer=True)


def _multipliers(gait: OptimizedOrbit, ax: "matplotlib.axes.Axes") -> None:
    """The multipliers after, as in `multiplier_plane`, and those before as open circles."""
    multiplier_plane(gait.orbit, ax)
    across, up = np.real(gait.before.multipliers), np.imag(gait.before.multipliers)
    style = {"ms": 8, "mfc": "none", "mec": GREY, "mew": 1.3, "clip_on": False}
    ax.plot(across, up, "o", label="starting gait", gid="before", **style)
    # The limits of `multiplier_plane` leave room for the optimal gait's alone.
    widen(ax, float(gait.before.spectral_radius))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False, fontsize=9, columnspacing=1.0)


def optimum_figure(branch: OptimumBranch) -> "matplotlib.figure.Figure":
    """Objective, each optimized parameter, and the spectral radius or the duration of a plan over the number; vertical lines
    where the active set changes.

    **Arguments:** `branch`: the result of `hyjax.follow_optimum`.

    **Returns:** the figure. `ValueError` for a branch without points; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> limit = hj.Constraint(hj.objectives.spectral_radius, at_most=0.36)
    >>> gait = hj.optimize(orbit, hj.objectives.period, where=lambda p: p.inertia_ratio, constraints=limit, bounds=[(0.5, 0.9)])
    >>> branch = hj.follow_optimum(gait, limit="spectral_radius", stop=0.6, points=6)
    >>> figure = hj.plot.optimum_figure(branch)
    >>> figure.savefig("optimum.png")
    """
    gaits = branch.plans or branch.orbits
    if gaits is None:
        raise ValueError("optimum_figure: the branch has no points: see its `result`.")
    about = named_params(gaits.params)
    labelled = lambda name: axis_of(name, 0.0, about.get(name, (0, {}))[1].get("units", ""))[1]
    rows = [("objective", branch.values), *zip(map(labelled, branch.names), branch.unknowns.T, strict=True)]
    if branch.orbits is not None:
        rows.append(("max $|\\lambda|$", np.max(np.abs(np.asarray(branch.orbits.multipliers)), axis=1)))
    if branch.plans is not None:
        rows.append(
            (with_unit("$T$", unit(units_of(None, gaits.params, gaits.system).time)), branch.plans.plan.duration)
        )
    fig, axes = pyplot().subplots(len(rows), 1, figsize=(6, 1.7 * len(rows) + 0.5), sharex=True, layout="constrained")
    for axis, (label, values) in zip(axes, rows, strict=True):
        # A parameter that a constraint holds at zero is zero up to rounding, whose picture would be noise.
        tidy(axis).plot(branch.numbers, np.where(np.abs(values) < 1e-15, 0, values), ".-", color=BLUE, markersize=3)
        axis.set_ylabel(label)
        for change in branch.changes:
            axis.axvline(change.number, color="0.6", linewidth=0.8, linestyle=":")
    if branch.orbits is not None:
        axes[-1].axhline(1, color="0.6", linewidth=0.8)
    axes[-1].set_xlabel(labelled(branch.name))
    fig.align_ylabels(axes)
    varied = (branch.name, *branch.names)
    one = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, gaits.params)
    put_title(fig, title_of(None, one, without=varied, system=gaits.system), 11)
    return fig
