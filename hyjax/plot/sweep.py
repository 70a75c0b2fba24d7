"""Pictures of sweeps, attractors and basins of attraction."""

from typing import TYPE_CHECKING

import numpy as np

from .figure import COLOURS, GREY, open_axes, pyplot, symbol, unit, with_unit

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import xarray


def sweep_figure(found: "xarray.Dataset", coordinate: str | None = None) -> "matplotlib.figure.Figure":
    """A coordinate and the spectral radius of the orbits of a sweep: curves over one parameter, or maps over two.

    **Arguments:** `found`: a result of `hyjax.sweep`. `coordinate`: a name, or `period`; by default the first coordinate.

    **Returns:** the figure. In a map a white contour marks spectral radius 1. `ValueError` for more than two parameters, and
    for an unknown coordinate.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> found = hj.sweep(wheel.system, orbit, where=lambda p: p.slope, values=jnp.array([0.2, 0.25, 0.3]), progress=False)
    >>> figure = hj.plot.sweep_figure(found, coordinate="period")
    >>> figure.savefig("sweep.png")
    """
    names = [str(each) for each in found["result"].dims]
    if len(names) > 2:
        raise ValueError(
            f"sweep_figure: {len(names)} parameters vary; at most two can be drawn. Select one value of the others, as in "
            "found.sel(...)."
        )
    coordinate = _coordinate(found, coordinate, ("period",))
    height = found["period"] if coordinate == "period" else found["x"].sel(coordinate=coordinate)
    radius = (found["multipliers_real"] ** 2 + found["multipliers_imag"] ** 2).max("multiplier") ** 0.5
    fig, axes = pyplot().subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    labels = ("$T$" if coordinate == "period" else symbol(coordinate), r"$\max|\lambda|$")
    for ax, column, label in zip(axes, (height, radius), labels, strict=True):
        if len(names) == 1:
            stable = found["stable"].values
            order = np.argsort(found[names[0]].values)
            at, y = found[names[0]].values[order], column.values[order]
            ax.plot(at, np.where(stable[order], y, np.nan), color=COLOURS[0], label="stable")
            ax.plot(at, np.where(stable[order], np.nan, y), color=COLOURS[0], ls="--", label="unstable")
            ax.set(xlabel=_label(found, names[0]), ylabel=label)
            open_axes(ax)
            ax.locator_params(axis="x", nbins=5)
        else:
            column = column.sortby(names)
            x, y = column[names[0]].values, column[names[1]].values
            mesh = ax.pcolormesh(x, y, column.values.T, shading="nearest", rasterized=True)
            fig.colorbar(mesh, ax=ax, label=label)
            if np.nanmin(radius) < 1 < np.nanmax(radius):
                ax.contour(x, y, radius.sortby(names).values.T, [1.0], colors="white", linewidths=1)
            ax.set(xlabel=_label(found, names[0]), ylabel=_label(found, names[1]))
    if len(names) == 1:
        axes[1].axhline(1, color=GREY, lw=0.8)
        axes[0].legend(frameon=False)
    return fig


def attractor_figure(found: "xarray.Dataset", coordinate: str | None = None) -> "matplotlib.figure.Figure":
    """The bifurcation diagram of attractors: the last states, and below the Lyapunov exponents, the largest in colour, over one
    parameter. Where the largest is minus infinity a triangle lies on the lower edge; others of minus infinity are not drawn.

    **Arguments:** `found`: a result of `hyjax.attractor`. `coordinate`: a name; by default the first coordinate.

    **Returns:** the figure. `ValueError` for more than one parameter, and for an unknown coordinate.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> found = hj.attractor(
    ...     wheel.system, wheel.guess(params), params, where=lambda p: p.slope, values=jnp.array([0.2, 0.25]),
    ...     sequence=wheel.sequence, strides=50, keep=4, progress=False,
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
    coordinate = _coordinate(found, coordinate)
    fig, axes = pyplot().subplots(
        2, 1, figsize=(7, 5), layout="constrained", sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    at = found[name].values
    points = found["x"].sel(coordinate=coordinate).transpose(name, ...).values.reshape(len(at), -1)
    # Points nearly as wide as the distance between parameter values.
    style = {"ms": np.clip(400 / len(at), 1, 3), "mew": 0, "color": COLOURS[0], "alpha": 0.6, "rasterized": True}
    axes[0].plot(np.repeat(at, points.shape[1]), points.ravel(), ".", **style)
    axes[0].set_ylabel(symbol(coordinate))
    exponent = found["lyapunov"].transpose(name, ...).values.reshape(len(at), -1)
    others = found["exponents"].isel(exponent=slice(1, None)).transpose(name, ...).values.reshape(len(at), -1)
    if np.isfinite(others).any():
        axes[1].plot(at, np.where(np.isfinite(others), others, np.nan), color=GREY, lw=0.6)
    axes[1].plot(at, np.where(np.isfinite(exponent), exponent, np.nan), color=COLOURS[1], lw=0.6)
    gone = at[np.isneginf(exponent).any(axis=1)]
    if gone.size:
        edge = axes[1].get_xaxis_transform()
        axes[1].plot(
            gone, np.zeros(gone.size), "v", ms=4, color=COLOURS[1], transform=edge, clip_on=False, gid="minus infinity"
        )
    axes[1].axhline(0, color=GREY, lw=0.8)
    axes[1].set(xlabel=_label(found, name), ylabel="Lyapunov\nexponent")
    for ax in axes:
        open_axes(ax)
    return fig


def basin_figure(found: "xarray.Dataset", ax: "matplotlib.axes.Axes | None" = None) -> "matplotlib.axes.Axes":
    """The basins of attraction: the outcome of each initial state in a plane, with a colour for each outcome that occurs.

    Orbits have saturated colours, all other outcomes pale ones.

    **Arguments:** `found`: a result of `hyjax.basin` over two axes. `ax`: axes to draw in; by default new ones. **Returns:** the
    axes. `ValueError` for another number of axes of the grid.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> found = hj.basin(
    ...     wheel.system, params, sequence=wheel.sequence, orbits=orbit, strides=20, progress=False,
    ...     axes={"theta": jnp.array([-0.5, -0.3]), "theta_rate": jnp.array([0.1, 0.8])},
    ... )
    >>> axes = hj.plot.basin_figure(found)
    >>> axes.figure.savefig("basin.png")
    """
    pyplot()
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    if found["fate"].ndim != 2:
        raise ValueError(
            f"basin_figure: two axes can be drawn, not {found['fate'].dims}. Select one value of the others, as in "
            "found.sel(...)."
        )
    names, fate = tuple(str(each) for each in found["fate"].dims), found["fate"].values
    meanings = found["fate"].attrs["flag_meanings"].split()
    kinds = [k for k in range(len(meanings)) if np.any(fate == k)]
    orbits = sum(meaning.startswith("orbit_") for meaning in meanings)
    pale = ("#d9d9d9", "#f2f2f2", "#c6dbef", "#fdd0a2", "#fbb4ae", "#ccebc5")
    colours = [COLOURS[k % len(COLOURS)] if k < orbits else pale[(k - orbits) % len(pale)] for k in kinds]
    axes = pyplot().subplots(figsize=(6, 4.2), layout="constrained")[1] if ax is None else ax
    place = np.searchsorted(kinds, fate)
    axes.pcolormesh(
        found[names[0]].values, found[names[1]].values, place.T, cmap=ListedColormap(colours), shading="nearest",
        vmin=-0.5, vmax=len(kinds) - 0.5, rasterized=True,
    )  # fmt: skip
    handles = [
        Patch(color=colour, label=meanings[k].replace("_", " ")) for colour, k in zip(colours, kinds, strict=True)
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.set(xlabel=symbol(names[0]), ylabel=symbol(names[1]))
    return axes


def _label(found: "xarray.Dataset", name: str) -> str:
    """A parameter's symbol with its unit."""
    return with_unit(symbol(name), unit(found[name].attrs.get("units", "")))


def _coordinate(found: "xarray.Dataset", coordinate: str | None, also: tuple[str, ...] = ()) -> str:
    """The name of a coordinate of the dataset, by default the first, or one of `also`; `ValueError` for an unknown name."""
    names = (*(str(each) for each in found["coordinate"].values), *also)
    if coordinate is not None and coordinate not in names:
        raise ValueError(f"There is no coordinate {coordinate!r}; use one of {', '.join(names)}.")
    return names[0] if coordinate is None else coordinate
