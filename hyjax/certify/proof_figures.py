"""Pictures of proofs: the set of a certificate with the bound of its image, and its tube; the multipliers of a proved orbit, in
discs, and how narrow the bounds of its numbers are; the set, or the proved cells around it, in a picture of basins of attraction.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .._results.labels import units_of
from .._results.registry import draw
from ..plot.figure import BLUE, GREY, INK, ORANGE, put_title, pyplot, symbol, tidy, title_of, unit, VERMILION, with_unit
from ..plot.orbit_axes import draw_plane
from .attracting import Certificate
from .flow_pipe import Tube
from .proved_basin import ProvedBasin
from .proved_orbit import ProvedOrbit

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# Samples of the orbit in each step of the tube.
SAMPLES = 8


@draw.register(Certificate)
def certificate_figure(
    certificate: Certificate, model: ModuleType | None = None, n_samples: int = 0
) -> "matplotlib.figure.Figure":
    """The set of a certificate with the bound of its image, and the tube of all states that start in the set.

    **Arguments:** `certificate`: of `hyjax.certify.attracting`, proved or not. `model`: supplies the title and the units.
    `n_samples`: the number of strides under random disturbances to draw as dots.

    **Returns:** the figure: `certified_set` in the section's coordinates and in the certificate's, and the tube as by
    `certified_tube`. `ImportError` without matplotlib.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> figure = hj.certify.certificate_figure(certificate)
    >>> figure.savefig("certificate.png")
    """
    names = tube_names(certificate)
    fig = pyplot().figure(figsize=(12, max(4.2, 1.0 * len(names) + 0.8)), layout="constrained")
    about = title_of(model, certificate.orbit.params, system=certificate.orbit.system)
    put_title(fig, "; ".join(text for text in (about, _claim(certificate)) if text), 12)
    left, right = fig.subfigures(1, 2, width_ratios=(1.55, 1))
    drawn = certificate.sample(n_samples) if n_samples else ()
    for ax, normalized in zip(left.subplots(1, 2), (False, True), strict=True):
        _draw_set(certificate, ax, model, drawn, normalized)
    legend = {"ncols": 5, "frameon": False, "fontsize": 9, "markerscale": 2}
    left.legend(*ax.get_legend_handles_labels(), loc="outside upper center", **legend)
    axes = right.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    draw_tube(certificate, dict(zip(names, axes, strict=True)), model)
    return fig


def certified_set(
    certificate: Certificate,
    ax: "matplotlib.axes.Axes | None" = None,
    model: ModuleType | None = None,
    n_samples: int = 0,
    normalized: bool = False,
) -> "matplotlib.axes.Axes":
    """The set on the section, just before the jump that closes the orbit, with a polygon that holds its image.

    **Arguments:** as for `certificate_figure`. `ax`: axes to draw in; by default new ones. `normalized`: in the certificate's
    coordinates $y$, in which the return map's linear part is nearly a rotation, in place of those of the section.

    **Returns:** the axes.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> axes = hj.certify.certified_set(certificate)
    >>> axes.figure.savefig("set.png")
    """
    ax = tidy(ax)
    _draw_set(certificate, ax, model, certificate.sample(n_samples) if n_samples else (), normalized)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, markerscale=2)
    return ax


def _claim(certificate: Certificate) -> str:
    """The claim that is proved, or is not, in one line."""
    found = [certificate.status if not certificate.converges else "proved, with convergence"]
    if np.isfinite(certificate.ratio):
        found.append(f"ratio {certificate.ratio:.4f}")
    disturbance = certificate.disturbance
    norm = r"\infty" if disturbance.norm == "inf" else disturbance.norm
    found.append(rf"$\|w\|_{{{norm}}} \leq {_decimal(disturbance.bound)}$" if disturbance.bound else "no disturbance")
    return ", ".join(found)


def _decimal(value: float) -> str:
    """A number in mathematical type, as a power of ten where it is small."""
    text = np.format_float_scientific(value, precision=5, trim="-") if 0 < value < 1e-3 else f"{value:g}"
    mantissa, _, exponent = text.partition("e")
    power = f"10^{{{int(exponent)}}}" if exponent else ""
    return power if mantissa == "1" and power else rf"{mantissa} \cdot {power}" if power else mantissa


def _draw_set(
    certificate: Certificate,
    ax: "matplotlib.axes.Axes",
    model: ModuleType | None,
    drawn: tuple[np.ndarray, ...],
    normalized: bool,
) -> None:
    """The set, the bound of its image, the orbit and strides that were sampled."""
    tidy(ax)
    ax.locator_params(axis="x", nbins=4)
    back = np.linalg.inv(certificate.axes)

    def placed(z):
        return (z - certificate.center) @ back.T if normalized else z

    for vertices, colour, label in (
        (certificate.vertices, BLUE, "set"),
        (certificate.image_vertices, VERMILION, "bound of its image"),
    ):
        if np.all(np.isfinite(vertices)):
            ax.fill(*placed(vertices).T, facecolor=(colour, 0.12), edgecolor=colour, lw=1.4, label=label, gid=label)
    for points, colour, label in zip(drawn, (BLUE, VERMILION), ("starts", "ends of strides"), strict=False):
        ax.plot(*placed(points).T, ".", ms=2.5, color=colour, mew=0, label=label, gid=label)
    ax.plot(*placed(certificate.center), "+", color=INK, ms=9, mew=1.6, label="orbit", gid="orbit")
    if normalized:
        ax.set(xlabel="$y_1$", ylabel="$y_2$", title="in the certificate's coordinates")
        ax.set_aspect("equal", adjustable="datalim")
        ax.ticklabel_format(scilimits=(-2, 3), useMathText=True)
    else:
        units = units_of(model, certificate.orbit.params, certificate.orbit.system).coordinates
        across, up = (with_unit(symbol(name), unit(units.get(name, ""))) for name in certificate.coordinates)
        ax.set(xlabel=across, ylabel=up, title="on the section, before the jump")
    ax.title.set_fontsize(10)


def certified_tube(certificate: Certificate, model: ModuleType | None = None) -> "matplotlib.figure.Figure":
    """The tube of all states that start in the set, one coordinate below the other, relative to the orbit.

    The dark band joins the bounds of the states at the starts of the steps into which an arc is divided, less the orbit's state
    there. The pale band has the bounds during each step, less the extremes of the orbit in the step; the last step includes the
    window of the event. States of the set reach a step at different times; the time is that of the orbit.

    **Arguments:** as for `certificate_figure`. **Returns:** the figure.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> figure = hj.certify.certified_tube(certificate)
    >>> figure.savefig("certified_tube.png")
    """
    names = tube_names(certificate)
    size = (7, 1.2 * len(names) + 0.6)
    fig, axes = pyplot().subplots(len(names), 1, figsize=size, sharex=True, layout="constrained", squeeze=False)
    draw_tube(certificate, dict(zip(names, axes[:, 0], strict=True)), model)
    put_title(fig, title_of(model, certificate.orbit.params, system=certificate.orbit.system), 11)
    return fig


def tube_names(certificate: Certificate) -> list[str]:
    """The names of all coordinates of the modes of the orbit."""
    modes = certificate.orbit.system.modes
    return list(dict.fromkeys(name for mode in certificate.orbit.mode_names for name in modes[mode].coordinates))


def draw_tube(certificate: Certificate, axes: dict[str, Any], model: ModuleType | None) -> None:
    """Draw the tube of each coordinate to its axes, one below the other."""
    orbit = certificate.orbit
    units = units_of(model, orbit.params, orbit.system)
    for name, ax in axes.items():
        tidy(ax).axhline(0, color=INK, lw=1)
        ax.locator_params(axis="y", nbins=4)
        ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
        printed = unit(units.coordinates.get(name, ""))
        ax.set_ylabel(with_unit(symbol(name), printed).replace(" (", "\n("), fontsize=9)
    arcs = orbit.sample(SAMPLES * max(len(tube.low) - 1 for tube in certificate.tubes) + 1)
    for k, (arc, tube) in enumerate(zip(arcs, certificate.tubes, strict=True)):
        found = relative_tube(tube, np.asarray(arc.t), np.asarray(arc.x))
        for i, name in enumerate(orbit.system.mode(arc.mode).coordinates):
            pale = {"baseline": found.low[:, i], "fill": True, "facecolor": (BLUE, 0.2), "gid": "during the steps"}
            axes[name].stairs(found.high[:, i], found.elapsed, lw=0, **pale)
            dark = {"facecolor": (BLUE, 0.5), "lw": 0, "gid": "at the steps"}
            axes[name].fill_between(found.elapsed, found.start_low[:, i], found.start_high[:, i], **dark)
        for ax in axes.values() if k else ():
            ax.axvline(found.elapsed[0], color=GREY, lw=0.8, ls=":", gid="jump")
    first, *_, last = [*axes.values(), *axes.values()]
    first.set_title("the tube: bounds of the states, less the orbit", fontsize=10)
    last.set_xlabel(with_unit("$t$", unit(units.time)))


def relative_tube(tube: Tube, t: Float[np.ndarray, " times"], x: Float[np.ndarray, "times n"]) -> Tube:
    """The bounds of a tube less those of an orbit that is sampled at equidistant times of the arc.

    The steps end where the window of the event begins, before the arc's end by a length that is estimated: to first order, that
    at which the orbit's states are nearest to the middles of the tube.
    """
    steps, n = len(tube.low) - 1, x.shape[1]
    # What has no bound is not drawn.
    bounds = (tube.low, tube.high, tube.start_low, tube.start_high)
    lows, highs, start_low, start_high = (np.where(np.isfinite(each), each, np.nan)[:, :n] for each in bounds)
    part = np.linspace(0, 1, steps + 1)

    def at(parts, end):
        return np.stack([np.interp(t[0] + parts * (end - t[0]), t, column) for column in x.T], axis=-1)

    middle = 0.5 * (start_low + start_high)
    drift = part[:, None] * np.gradient(at(part, t[-1]), part, axis=0) / (t[-1] - t[0])
    early = np.nan_to_num(np.sum((at(part, t[-1]) - middle) * drift) / np.sum(drift**2))
    end = t[-1] - max(early, 0.0)
    low, high = lows[:-1].copy(), highs[:-1].copy()
    low[-1], high[-1] = np.minimum(low[-1], lows[-1]), np.maximum(high[-1], highs[-1])
    samples = at((np.arange(steps)[:, None] + np.linspace(0, 1, SAMPLES + 1)) / steps, end)
    samples[-1, -1] = x[-1]
    times, on_orbit = t[0] + part * (end - t[0]), at(part, end)
    return Tube(
        low - samples.min(axis=1),
        high - samples.max(axis=1),
        times,
        tube.last,
        start_low - on_orbit,
        start_high - on_orbit,
    )


@draw.register(ProvedOrbit)
def proved_orbit_figure(proved: ProvedOrbit) -> "matplotlib.figure.Figure":
    r"""The numbers of an orbit that is proved to exist: its multipliers, and the radii of the bounds of all numbers.

    Left the discs that hold the multipliers, with the unit circle; blue where the disc is proved to lie inside of it. Right for
    each number the radius of its bounds, and the spacing of floats at its size as a tick; the line is the distance from
    the numerical orbit within which no other periodic orbit of the route passes.

    **Arguments:** `proved`: of `hyjax.certify.krawczyk`. **Returns:** the figure. `ValueError` for an orbit that is not proved.

    **Example:**

    >>> spiral = lambda t, x, p: 0.1 * (1 - x @ x) * x + jnp.stack([-x[1], x[0]])
    >>> line = hj.Transition("plane", "plane", lambda t, x, p: x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    >>> circle = hj.HybridSystem({"plane": hj.Mode(spiral, ("x", "y"))}, (line,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(circle, sequence=("plane",)), jnp.array([-1.1, 0.0]), None)
    >>> proved = hj.certify.krawczyk(orbit, steps=48)
    >>> figure = hj.certify.proved_orbit_figure(proved)
    >>> figure.savefig("proved_orbit.png")
    """
    multipliers = proved.multipliers
    if multipliers is None:
        raise ValueError(f"proved_orbit_figure: the orbit is not proved. {' '.join(proved.reasons)}")
    rows = [(symbol(name), value, radius) for name, value, radius in zip(
        proved.names, proved.center, proved.radius, strict=True
    )]  # fmt: skip
    rows += [("$T$", float(proved.period.midpoint), float(proved.period.radius))]
    for k, (center, radius) in enumerate(zip(multipliers.centres, multipliers.radii, strict=True), 1):
        rows += [(rf"$\lambda_{{{k}}}$", abs(center), radius)]
    fig, (left, right) = pyplot().subplots(1, 2, figsize=(9, 1.6 + 0.4 * len(rows)), layout="constrained")
    _draw_discs(left, multipliers.centres, multipliers.radii)
    names, values, radii = zip(*rows, strict=True)
    heights = np.arange(len(rows))[::-1]
    tidy(right).set_xscale("log")
    right.plot(radii, heights, "o", color=BLUE, ms=6, label="radius of the bounds", gid="radius")
    right.plot(np.spacing(np.abs(values)), heights, "|", color=INK, ms=11, label="spacing of floats", gid="spacing")
    right.axvline(proved.unique_within, color=VERMILION, lw=1.4, label="unique within", gid="unique within")
    right.set_yticks(heights, names)
    right.set(ylim=(-0.6, len(rows) - 0.4), xlabel="in the unit of each number")
    put_title(fig, title_of(None, proved.orbit.params, system=proved.orbit.system), 11)
    right.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=9, columnspacing=1.0)
    return fig


def _draw_discs(ax, centres, radii) -> None:
    from matplotlib.patches import Circle

    draw_plane(ax, np.max(np.abs(centres) + radii, initial=0.0))
    for center, radius in zip(centres, radii, strict=True):
        colour = BLUE if abs(center) + radius < 1 else VERMILION
        ax.add_patch(Circle((center.real, center.imag), radius, facecolor=(colour, 0.4), edgecolor=colour, gid="disc"))
        ax.plot(center.real, center.imag, "o", color=colour, ms=4, clip_on=False, gid="centre")


# Points on each edge of the polygon and of the cells, which the jump curves.
EDGE, CELL_EDGE = 24, 4


def certified_region(
    proved: Certificate | ProvedBasin,
    ax: "matplotlib.axes.Axes | None" = None,
    coordinates: tuple[str, str] | None = None,
    initial: Callable | None = None,
    strides: bool = False,
) -> "matplotlib.axes.Axes":
    """The set of a certificate, or the cells of a proved basin and the set, in a picture of basins of attraction.

    **Arguments:** `proved`: a `Certificate` or a `ProvedBasin`. `ax`: the axes of `basin_figure`, whose limits stay; by default
    new ones. `coordinates`: the names of its axes, of a basin whose initial states are those after the jump that closes the
    orbit, by two of their coordinates; by default the axes are the coordinates of the section, of a basin with
    `initial=certificate.start`. `initial`: that of `hyjax.basin`, `(params, *values) -> x`, by which it is checked that the
    initial states in the picture are those of the section. `strides`: colour the cells by how many strides at most take them
    into the set, in place of one colour.

    **Returns:** the axes. `ValueError` for names that are not coordinates of the states, where `initial` gives other states, and
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
        return points if coordinates is None else _after_jump(certificate, points, tuple(coordinates), initial)

    handles = []
    if cells is not None and len(cells.cells):
        handles += _draw_cells(cells, placed(cells.cells, CELL_EDGE), axes, strides)
    handles.append(
        _draw_region(certificate, placed(certificate.vertices[None], EDGE)[0], axes, outline=cells is not None)
    )
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


def _draw_region(certificate: Certificate, points: Float[np.ndarray, "points 2"], ax, outline: bool):
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


def _after_jump(certificate: Certificate, points, coordinates: tuple[str, ...], initial: Callable | None):
    """Two coordinates of the states after the jump, from points of the section."""
    orbit = certificate.orbit
    known = orbit.system.mode(orbit.sequence[0]).coordinates
    if len(coordinates) != 2 or set(coordinates) - set(known):
        raise ValueError(f"certified_region: coordinates={coordinates} must be two of {known}.")
    flat = jnp.asarray(points).reshape(-1, 2)
    states = np.asarray(jax.vmap(lambda z: certificate.start(orbit.params, *z))(flat))
    found = states[:, [known.index(name) for name in coordinates]]
    if initial is not None:
        given = np.asarray(jax.vmap(lambda values: jnp.asarray(initial(orbit.params, *values)))(jnp.asarray(found)))
        apart = np.max(np.abs(given - states[:, : len(known)]))
        if not apart <= 1e-9 * np.max(np.abs(states)):
            raise ValueError(
                f"certified_region: the states of `initial` are up to {apart:.3g} away from those of the section. "
                "Compute the basin with initial=certificate.start, and omit coordinates."
            )
    return found.reshape(points.shape)
