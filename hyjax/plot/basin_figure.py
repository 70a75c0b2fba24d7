"""Pictures of basins of attraction."""

from collections.abc import Collection
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .._results.labels import units_of
from .._system.types import Params
from .figure import COLOURS, GREY, INK, put_title, pyplot, symbol, title_of, unit, with_unit
from .orbit_axes import each_orbit

if TYPE_CHECKING:
    import matplotlib.axes
    import xarray

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
