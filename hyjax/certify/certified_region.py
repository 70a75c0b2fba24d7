"""The set of a certificate, or the proved cells around it, in a picture of basins of attraction."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .._results.labels import units_of
from .._results.registry import draw
from ..plot.figure import INK, ORANGE, pyplot, symbol, tidy, unit, with_unit
from ..plot.setting import put_title, title_of
from .certificate import Certificate
from .proved_basin import ProvedBasin

if TYPE_CHECKING:
    import matplotlib.axes

# Points on each edge of the polygon and of the cells, which the jump curves.
EDGE, CELL_EDGE = 24, 4


def certified_region(
    proved: Certificate | ProvedBasin,
    ax: "matplotlib.axes.Axes | None" = None,
    coordinates: tuple[str, str] | None = None,
    start: Callable | None = None,
    strides: bool = False,
) -> "matplotlib.axes.Axes":
    """The set of a certificate, or the cells of a proved basin and the set, in a picture of basins of attraction.

    **Arguments:** `proved`: a `Certificate` or a `ProvedBasin`. `ax`: the axes of `basin_figure`, whose limits stay; by default
    new ones. `coordinates`: the names of its axes, of a basin whose initial states are those after the jump that closes the
    orbit, by two of their coordinates; by default the axes are the coordinates of the section, of a basin with
    `start=certificate.start`. `start`: that of `hyjax.basin`, `(params, *values) -> x`, by which it is checked that the initial
    states in the picture are those of the section. `strides`: colour the cells by how many strides at most take them into the
    set, in place of one colour.

    **Returns:** the axes. `ValueError` for names that are not coordinates of the states, where `start` gives other states, and
    for `strides` of a certificate, which has no cells.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> axes = hj.certify.certified_region(certificate)
    >>> axes.figure.savefig("region.png")
    """
    cells = proved if isinstance(proved, ProvedBasin) else None
    certificate = proved if isinstance(proved, Certificate) else proved.certificate
    if strides and cells is None:
        raise ValueError("certified_region: strides=True needs a result of proved_basin; a certificate has no cells.")
    filled = ax is not None and ax.has_data()
    axes = tidy(ax) if ax is None else ax
    limits = axes.axis()

    def placed(polygons: Float[np.ndarray, "n k 2"], count: int) -> Float[np.ndarray, "n points 2"]:
        points = _boundaries(polygons, count)
        return points if coordinates is None else _after_jump(certificate, points, tuple(coordinates), start)

    handles = []
    if cells is not None and len(cells.cells):
        handles += _draw_cells(cells, placed(cells.cells, CELL_EDGE), axes, strides)
    handles.append(_draw_set(certificate, placed(certificate.vertices[None], EDGE)[0], axes, outline=cells is not None))
    if filled:
        axes.axis(limits)
    else:
        units = units_of(None, certificate.orbit.params, certificate.orbit.system).coordinates
        names = certificate.coordinates if coordinates is None else coordinates
        across, up = (with_unit(symbol(name), unit(units.get(name, ""))) for name in names)
        axes.set(xlabel=across, ylabel=up)
        axes.autoscale_view()
    if ax is None:
        orbit = certificate.orbit
        put_title(axes.figure, title_of(None, orbit.params, system=orbit.system), 11)
    _add_to_legend(axes, handles, begin=ax is None)
    return axes


draw.register(ProvedBasin, functools.partial(certified_region, strides=True))


def _draw_set(certificate: Certificate, points: Float[np.ndarray, "points 2"], ax, outline: bool):
    """The set, or its outline where the cells of a basin are drawn."""
    found = "converges" if certificate.converges else "returns"
    label = f"proved: {found}" if certificate.proved else "not proved"
    if outline:
        label = "set of the certificate"
    style = {"facecolor": "none" if outline else (ORANGE, 0.75), "edgecolor": INK, "lw": 1}
    (patch,) = ax.fill(*points.T, ls="-" if certificate.proved else "--", label=label, **style)
    return patch


def _draw_cells(basin: ProvedBasin, outlines: Float[np.ndarray, "n points 2"], ax, strides: bool) -> list:
    """The cells in one colour, or by their strides with a bar of colours; handles for the legend."""
    pyplot()
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    # Edges of neighbours coincide: smoothed, they would be seen as lines.
    style = {"lw": 0, "antialiased": False, "rasterized": True, "gid": "cells"}
    claim = "proved: converges" if basin.certificate.converges else "proved: enters the set"
    if not strides:
        ax.add_collection(PolyCollection(list(outlines), facecolor=ORANGE, label=claim, **style))
        return [Patch(facecolor=ORANGE, label=claim)]
    colours, norm = _stride_colours(basin.strides)
    drawn = ax.add_collection(
        PolyCollection(list(outlines), array=basin.strides, cmap=colours, norm=norm, label=claim, **style)
    )
    bar = ax.figure.colorbar(drawn, ax=ax, label=f"{claim}, strides to the set")
    most = int(np.max(basin.strides))
    bar.minorticks_off()
    bar.set_ticks(list(range(0, most + 1, 1 + most // 10)))
    return []


def _stride_colours(strides: Int[np.ndarray, " n"]):
    """One colour for each number of strides, darkest in the set."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    count = int(np.max(strides)) + 1
    # Without the palest colours of the map, which are hardly seen on white.
    colours = pyplot().get_cmap("YlOrBr_r")(np.linspace(0, 0.85, count))
    return ListedColormap(colours), BoundaryNorm(np.arange(count + 1) - 0.5, count)


def _add_to_legend(ax, handles: list, begin: bool) -> None:
    """The legend with further handles; none where there was none, unless it begins here."""
    legend = ax.get_legend()
    if legend is None and not begin:
        return
    old = [] if legend is None else [each for each in legend.legend_handles if each is not None]
    labels = [] if legend is None else [text.get_text() for text in legend.get_texts()]
    labels += [handle.get_label() for handle in handles]
    place = (
        {"loc": "lower left", "bbox_to_anchor": (0, 1)} if begin else {"loc": "upper left", "bbox_to_anchor": (1, 1)}
    )
    ax.legend([*old, *handles], labels, frameon=False, **place)


def _boundaries(polygons: Float[np.ndarray, "n k 2"], count: int) -> Float[np.ndarray, "n points 2"]:
    """Points on the edges of polygons, `count` on each edge."""
    part = np.arange(count)[:, None] / count
    ahead = np.roll(polygons, -1, axis=1) - polygons
    return (polygons[:, :, None] + part * ahead[:, :, None]).reshape(len(polygons), -1, 2)


def _after_jump(certificate: Certificate, points, coordinates: tuple[str, ...], start: Callable | None):
    """Two coordinates of the states after the jump, from points of the section."""
    orbit = certificate.orbit
    known = orbit.system.mode(orbit.sequence[0]).coordinates
    if len(coordinates) != 2 or set(coordinates) - set(known):
        raise ValueError(f"certified_region: coordinates={coordinates} must be two of {known}.")
    flat = jnp.asarray(points).reshape(-1, 2)
    states = np.asarray(jax.vmap(lambda z: certificate.start(orbit.params, *z))(flat))
    found = states[:, [known.index(name) for name in coordinates]]
    if start is not None:
        given = np.asarray(jax.vmap(lambda values: jnp.asarray(start(orbit.params, *values)))(jnp.asarray(found)))
        apart = np.max(np.abs(given - states[:, : len(known)]))
        if not apart <= 1e-9 * np.max(np.abs(states)):
            raise ValueError(
                f"certified_region: the initial states of `start` are up to {apart:.3g} away from those of the section. "
                "Compute the basin with start=certificate.start, and omit coordinates."
            )
    return found.reshape(points.shape)
