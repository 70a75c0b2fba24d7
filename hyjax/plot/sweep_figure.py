"""Pictures of datasets: of sweeps, attractors and basins of attraction; of solver studies, work against precision, and ranks."""

import itertools as it
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .._numerics.eigenvalues import inside_circle, off_circle
from .._orbit.orbit import PeriodicOrbit
from .._results.labels import units_of
from .._system.types import Params
from .figure import (
    axis_of,
    COLOURS,
    GREY,
    INK,
    open_axes,
    PALE,
    put_title,
    pyplot,
    symbol,
    telling,
    title_of,
    unit,
    with_unit,
)
from .orbit_axes import each_orbit

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import xarray


RADIUS = r"$\max|\lambda|$"


def sweep_figure(
    found: "xarray.Dataset",
    coordinate: str | None = None,
    model: ModuleType | None = None,
    params: Params = None,
    degrees: Collection[str] = (),
) -> "matplotlib.figure.Figure":
    """A coordinate and the spectral radius of the orbits of a sweep: curves over one parameter, or maps over two.

    **Arguments:** `found`: a result of `hyjax.sweep`, whose attributes have the units. `coordinate`: a name, or `period`; by
    default the first coordinate that is not constant, nor linear in the parameters, as one that a reset sets. `model`, `params`:
    supply the title, with the parameters that do not vary. `degrees`: names of the parameters that are shown in degrees.

    **Returns:** the figure. In a map a line marks spectral radius 1, and grey is where no orbit was found. `ValueError` for more
    than two parameters, and for an unknown coordinate.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> found = hj.sweep(orbit, where=lambda p: p.slope, values=jnp.array([0.2, 0.25, 0.3]), progress=False)
    >>> figure = hj.plot.sweep_figure(found, coordinate="period")
    >>> figure.savefig("sweep.png")
    """
    names = [str(each) for each in found["result"].dims]
    if len(names) > 2:
        raise ValueError(
            f"sweep_figure: {len(names)} parameters vary; at most two can be drawn. Select one value of the others, as in "
            "found.sel(...)."
        )
    coordinate = _coordinate(found, coordinate, names, ("period",))
    height = found["period"] if coordinate == "period" else found["x"].sel(coordinate=coordinate)
    radius = (found["multipliers_real"] ** 2 + found["multipliers_imag"] ** 2).max("multiplier") ** 0.5
    fig, axes = pyplot().subplots(1, 2, figsize=(8, 3.5), layout="constrained")
    for ax, column, label in zip(axes, (height, radius), (_height_label(found, coordinate), RADIUS), strict=True):
        if len(names) == 1:
            _draw_curve(ax, found, names[0], column, radius, degrees)
            ax.set_ylabel(label)
        else:
            _draw_map(ax, names, found, column, radius, label, degrees)
    if len(names) == 1:
        axes[1].axhline(1, color=GREY, lw=0.8)
    handles = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if handles:
        fig.legend(handles.values(), handles, loc="outside lower right", ncols=4, frameon=False, fontsize=9)
    put_title(fig, title_of(model, params, degrees, without=(*names, *(found.attrs.get("solved") or ()))), 11)
    return fig


def _draw_curve(ax: "matplotlib.axes.Axes", found, name: str, column, radius, degrees: Collection[str]) -> None:
    """A column over one parameter, solid where the orbits are stable, up to where the spectral radius is 1 on a straight line."""
    order = np.argsort(found[name].values)
    values, label = axis_of(name, found[name].values[order], found[name].attrs.get("units", ""), degrees)
    y, r = column.values[order], radius.values[order]
    inside = inside_circle(r[:, None])
    changes = np.flatnonzero(np.isfinite(r[:-1] + r[1:]) & (inside[:-1] != inside[1:]))
    part = (1 - r[changes]) / (r[changes + 1] - r[changes])
    between = lambda of: np.insert(of, changes + 1, of[changes] + part * (of[changes + 1] - of[changes]))
    at, height = between(values), between(y)
    for kind, own, style in (("stable", inside, "-"), ("unstable", ~inside & np.isfinite(r), "--")):
        # A change alone is no part of the curve.
        if own.any():
            shown = np.insert(own, changes + 1, True)
            ax.plot(at, np.where(shown, height, np.nan), color=COLOURS[0], ls=style, label=kind)
    ax.set_xlabel(label)
    open_axes(ax)
    ax.locator_params(axis="x", nbins=5)


def _draw_map(ax, names: list[str], found, column, radius, label: str, degrees: Collection[str]) -> None:
    """A column over two parameters, with the line of spectral radius 1."""
    column, radius = column.sortby(names), radius.sortby(names).values
    (x, across), (y, up) = (
        axis_of(name, column[name].values, found[name].attrs.get("units", ""), degrees) for name in names
    )
    ax.set_facecolor(PALE)
    mesh = ax.pcolormesh(x, y, column.values.T, shading="nearest", rasterized=True)
    ax.figure.colorbar(mesh, ax=ax, label=label)
    if not np.all(np.isfinite(column.values)):
        ax.plot([], [], "s", color=PALE, mec=GREY, mew=0.5, ms=9, label="no orbit")
    # Between orbits that are stable and those that are not, as those of a conservative system on the circle.
    limit = 1 - off_circle(radius.dtype)
    if np.nanmin(radius) < limit < np.nanmax(radius):
        # A dark rim makes the line visible on every colour, and in the legend.
        for colour, width in ((INK, 2.6), ("white", 1.2)):
            ax.contour(x, y, radius.T, [limit], colors=colour, linewidths=width)
        from matplotlib.patheffects import Normal, Stroke

        rim = [Stroke(linewidth=2.6, foreground=INK), Normal()]
        ax.plot([], [], color="white", lw=1.2, path_effects=rim, label=f"{RADIUS} = 1")
    ax.set(xlabel=across, ylabel=up)
    ax.locator_params(axis="x", nbins=5)


def attractor_figure(
    found: "xarray.Dataset",
    coordinate: str | None = None,
    model: ModuleType | None = None,
    params: Params = None,
    degrees: Collection[str] = (),
) -> "matplotlib.figure.Figure":
    """The bifurcation diagram of attractors: the last states, and below the Lyapunov exponents, the largest in colour, over one
    parameter. Where the largest is minus infinity a triangle lies on the lower edge; others of minus infinity are not drawn.

    **Arguments:** `found`: a result of `hyjax.attractor`. `coordinate`: a name; by default as for `sweep_figure`, as
    are `model`, `params` and `degrees`.

    **Returns:** the figure. `ValueError` for more than one parameter, and for an unknown coordinate.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> found = hj.attractor(
    ...     wheel.step,
    ...     wheel.guess(params),
    ...     params,
    ...     where=lambda p: p.slope,
    ...     values=jnp.array([0.2, 0.25]),
    ...     n_strides=50,
    ...     keep=4,
    ...     progress=False,
    ... )
    >>> figure = hj.plot.attractor_figure(found, coordinate="theta_rate")
    >>> figure.savefig("attractor.png")
    """
    name, *more = (str(each) for each in found["lyapunov"].dims)
    if more and more != ["start"]:
        raise ValueError(
            f"attractor_figure: {1 + len(more)} dimensions vary; one parameter can be drawn. Select one value of the others, as "
            "in found.sel(...)."
        )
    coordinate = _coordinate(found, coordinate, [name])
    fig, axes = pyplot().subplots(
        2, 1, figsize=(7, 5.2), layout="constrained", sharex=True, gridspec_kw={"height_ratios": [3, 1.2]}
    )
    at, label = axis_of(name, found[name].values, found[name].attrs.get("units", ""), degrees)
    points = found["x"].sel(coordinate=coordinate).transpose(name, ...).values.reshape(len(at), -1)
    # Dots nearly as wide as the distance between parameter values, and never less than two pixels of a screen.
    style = {"ms": np.clip(400 / len(at), 1.5, 3.5), "mew": 0, "color": COLOURS[0], "alpha": 0.6, "rasterized": True}
    axes[0].plot(np.repeat(at, points.shape[1]), points.ravel(), "o", **style)
    axes[0].set_ylabel(_height_label(found, coordinate))
    exponent = found["lyapunov"].transpose(name, ...).values.reshape(len(at), -1)
    others = found["exponents"].isel(exponent=slice(1, None)).transpose(name, ...).values.reshape(len(at), -1)
    if np.isfinite(others).any():
        axes[1].plot(at, np.where(np.isfinite(others), others, np.nan), color=GREY, lw=0.8)[0].set_label("others")
    largest = axes[1].plot(at, np.where(np.isfinite(exponent), exponent, np.nan), color=COLOURS[1], lw=1.0)
    largest[0].set_label("largest")
    gone = at[np.isneginf(exponent).any(axis=1)]
    if gone.size:
        edge = axes[1].get_xaxis_transform()
        axes[1].plot(
            gone, np.zeros(gone.size), "v", ms=4, color=COLOURS[1], transform=edge, clip_on=False, gid="minus infinity",
            label=r"largest is $-\infty$",
        )  # fmt: skip
    axes[1].axhline(0, color=GREY, lw=0.8)
    per = "return" if "section" in found.attrs else "stride"
    axes[1].set(xlabel=label, ylabel=f"Lyapunov exponent\nper {per}")
    if len(axes[1].get_legend_handles_labels()[1]) > 1:
        axes[1].legend(loc="lower right", bbox_to_anchor=(1, 0.97), ncols=3, frameon=False, fontsize=8, borderaxespad=0)
    for ax in axes:
        open_axes(ax)
    fig.align_ylabels(axes)
    put_title(fig, title_of(model, params, degrees, without=(name,)), 11)
    return fig


def _height_label(found: "xarray.Dataset", coordinate: str) -> str:
    """The symbol of a coordinate, or the period, with its unit."""
    if coordinate == "period":
        return with_unit("$T$", unit(found["period"].attrs.get("units", "")))
    units = found["x"].attrs.get("units", "").split(", ")
    names = [str(each) for each in found["coordinate"].values]
    return with_unit(symbol(coordinate), unit(units[names.index(coordinate)]) if len(units) == len(names) else "")


def _coordinate(found: "xarray.Dataset", coordinate: str | None, over: list[str], also: tuple[str, ...] = ()) -> str:
    """The name of a coordinate of the dataset, by default that of `telling`, or one of `also`; `ValueError` for an unknown name.

    **Arguments:** `over`: the names of the parameters.
    """
    names = (*(str(each) for each in found["coordinate"].values), *also)
    if coordinate is not None and coordinate not in names:
        raise ValueError(f"There is no coordinate {coordinate!r}; use one of {', '.join(names)}.")
    if coordinate is not None:
        return coordinate
    values = np.meshgrid(*(found[name].values for name in over), indexing="ij")
    columns = {
        name: found["x"].sel(coordinate=name).transpose(*over, ...).values.reshape(values[0].size, -1)
        for name in names
        if name not in also
    }
    return telling(columns, np.column_stack([each.ravel() for each in values]))


# Of the outcomes that are no orbits; the last two mean that nothing is known.
PALE_COLOURS = ("#c6dbef", "#fdd0a2", "#c7e9c0", "#dadaeb", "#fbb4ae")
NO_STEP, UNDECIDED = "#969696", "#ffffff"


def basin_figure(
    found: "xarray.Dataset",
    ax: "matplotlib.axes.Axes | None" = None,
    orbits: PeriodicOrbit | None = None,
    model: ModuleType | None = None,
    params: Params = None,
    degrees: Collection[str] = (),
) -> "matplotlib.axes.Axes":
    """The basins of attraction: the outcome of each initial state in a plane, with a colour for each outcome that occurs.

    Orbits have saturated colours, all other outcomes pale ones; a stride that failed is dark grey, an undecided state white.

    Of a result over one parameter, of `hyjax.basin`, or of `hyjax.attractor` with several initial states: the share of each
    outcome or attractor, with its error, one upon the other; of initial states without one, grey.

    **Arguments:** `found`: a result of `hyjax.basin` over two axes or one parameter, or of `hyjax.attractor`. `ax`: axes to draw
    in; by default new ones, with a title. `orbits`: one or a batch, marked where the axes are two of their coordinates; filled
    where stable. `model`, `params`, `degrees`: as for `sweep_figure`; the model also supplies units that the dataset does not
    have.
    **Returns:** the axes.
    `ValueError` for another number of axes of the grid, and for attractors of one initial state.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> found = hj.basin(
    ...     wheel.step,
    ...     params,
    ...     orbits=orbit,
    ...     max_strides=20,
    ...     progress=False,
    ...     axes={"theta": jnp.array([-0.5, -0.3]), "theta_rate": jnp.array([0.1, 0.8])},
    ... )
    >>> axes = hj.plot.basin_figure(found)
    >>> axes.figure.savefig("basin.png")
    """
    pyplot()
    if "share" in found and found["share"].dims != ("fate",):
        return _shares(found, ax)
    if "outcome" not in found:
        raise ValueError(
            "basin_figure: the dataset has no outcomes or shares. Give hyjax.attractor several initial states, "
            "shape (starts, n), or draw it by attractor_figure."
        )
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    if found["outcome"].ndim != 2:
        raise ValueError(
            f"basin_figure: two axes can be drawn, not {found['outcome'].dims}. Select one value of the others, as in "
            "found.sel(...)."
        )
    names, outcome = tuple(str(each) for each in found["outcome"].dims), found["outcome"].values
    meanings = [each.replace("_", " ") for each in found["outcome"].attrs["flag_meanings"].split()]
    kinds = [k for k in range(len(meanings)) if np.any(outcome == k)]
    colours = [_colours(meanings)[k] for k in kinds]
    axes = pyplot().subplots(figsize=(6.4, 4.4), layout="constrained")[1] if ax is None else ax
    place = np.searchsorted(kinds, outcome)
    axes.pcolormesh(
        found[names[0]].values, found[names[1]].values, place.T, cmap=ListedColormap(colours), shading="nearest",
        vmin=-0.5, vmax=len(kinds) - 0.5, rasterized=True,
    )  # fmt: skip
    handles: list = [
        Patch(facecolor=colour, edgecolor=GREY, lw=0.5, label=meanings[k])
        for colour, k in zip(colours, kinds, strict=True)
    ]
    handles += _mark(axes, names, each_orbit(orbits) if orbits is not None else [])
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    units = units_of(model, params).coordinates
    across, up = (
        with_unit(symbol(name), unit(units.get(name, "") or found[name].attrs.get("units", ""))) for name in names
    )
    axes.set(xlabel=across, ylabel=up)
    if ax is None:
        put_title(axes.figure, title_of(model, params, degrees), 11)
    return axes


def _shares(found: "xarray.Dataset", ax) -> "matplotlib.axes.Axes":
    """The shares of attractors or outcomes over a parameter, one upon the other."""
    (name, *others), share = map(str, found["share"].dims), found["share"]
    if others not in (["number"], ["fate"]):
        raise ValueError(
            f"basin_figure: shares over one parameter can be drawn, not over {share.dims[:-1]}. Select one value of the others, "
            "as in found.sel(...)."
        )
    axes = pyplot().subplots(figsize=(6.4, 4.4), layout="constrained")[1] if ax is None else ax
    ordered = found.sortby(name).roll({others[0]: -(others == ["number"])}, roll_coords=True)
    kinds = [str(kind) if others == ["fate"] else f"attractor {kind}" for kind in ordered[others[0]].values]
    kinds = ["no step" if kind == "attractor 0" else kind for kind in kinds]
    below = np.zeros(ordered.sizes[name])
    for k, (label, colour) in enumerate(zip(kinds, _colours(kinds), strict=True)):
        part, error = (ordered[each].values[:, k] for each in ("share", "share_error"))
        if np.any(part > 0):
            axes.fill_between(ordered[name], below, below + part, color=colour, alpha=0.7, lw=0, label=label)
            axes.errorbar(ordered[name], below + part, error, color=INK if label == "undecided" else colour, lw=0.8)
        below = below + part
    across = with_unit(symbol(name), found[name].attrs.get("units", ""))
    axes.set(xlabel=across, ylabel="share of the initial states", ylim=(0, 1))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return axes


def _colours(meanings: list[str]) -> list[str]:
    """The colour of each outcome, the same whichever others occur."""
    orbits = sum(meaning.startswith(("orbit ", "attractor ")) for meaning in meanings)
    known = {"no step": NO_STEP, "undecided": UNDECIDED}
    return [
        known.get(
            meaning, (COLOURS[k % len(COLOURS)] if k < orbits else PALE_COLOURS[(k - orbits) % len(PALE_COLOURS)])
        )
        for k, meaning in enumerate(meanings)
    ]


def _mark(axes, names: tuple[str, ...], orbits: list[PeriodicOrbit]) -> list:
    """Mark the nodes of orbits; handles for the legend."""
    handles = {}
    for orbit in orbits:
        known = orbit.system.mode(orbit.sequence[0]).coordinates
        if set(names) - set(known):
            continue
        stable = bool(orbit.stable)
        label = f"{'stable' if stable else 'unstable'} gait"
        style = {
            "marker": "*",
            "ms": 11,
            "mfc": INK if stable else "white",
            "mec": "white" if stable else INK,
            "mew": 0.8,
        }
        x = np.asarray(orbit.nodes)[:, [known.index(name) for name in names]]
        (drawn,) = axes.plot(*x.T, ls="none", gid="gait", label=label, **style)
        handles[label] = drawn
    return list(handles.values())


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
    ...     ball.system, x0, params, mode="flight", t1=1.0, n_samples=11, timed=False, progress=False, tolerances=(1e-3, 1e-6),
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
    ...     ball.system, x0, params, mode="flight", t1=1.0, n_samples=11, timed=False, progress=False, tolerances=(1e-3, 1e-6),
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
