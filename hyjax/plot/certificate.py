"""Pictures of certificates: the set on the section with its image, the tube, and the set in a picture of basins."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._system.labels import coordinate_units
from ..certify.certificate import Certificate, TubeBounds
from .figure import BLUE, GREY, INK, ORANGE, pyplot, symbol, tidy, unit, VERMILION, with_unit

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# Points on each edge of a polygon that is drawn through a map.
EDGE = 24
# Samples of the orbit in each step of the tube.
SAMPLES = 8


def certificate_figure(
    certificate: Certificate, model: ModuleType | None = None, samples: int = 0
) -> "matplotlib.figure.Figure":
    """The set of a certificate with the bound of its image, and the tube of all states that start in the set.

    **Arguments:** `certificate`: of `hyjax.certify.attracting`, proved or not. `model`: supplies the title and the units.
    `samples`: the number of strides under random disturbances to draw as dots.

    **Returns:** the figure: `certified_set` in the section's coordinates and in the certificate's, and the tube as by
    `certified_tube`. `ImportError` without matplotlib.
    """
    names = _tube_names(certificate)
    fig = pyplot().figure(figsize=(12, max(4.2, 1.0 * len(names) + 0.8)), layout="constrained")
    fig.suptitle(": ".join(text for text in (getattr(model, "title", ""), _claim(certificate)) if text), fontsize=12)
    left, right = fig.subfigures(1, 2, width_ratios=(1.55, 1))
    drawn = certificate.sample(samples) if samples else None
    for ax, normalized in zip(left.subplots(1, 2), (False, True), strict=True):
        _draw_set(certificate, ax, model, drawn, normalized)
    legend = {"ncols": 5, "frameon": False, "fontsize": 9, "markerscale": 2}
    left.legend(*ax.get_legend_handles_labels(), loc="outside upper center", **legend)
    axes = right.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    _draw_tube(certificate, dict(zip(names, axes, strict=True)), model)
    return fig


def certified_set(
    certificate: Certificate,
    ax: "matplotlib.axes.Axes | None" = None,
    model: ModuleType | None = None,
    samples: int = 0,
    normalized: bool = False,
) -> "matplotlib.axes.Axes":
    """The set on the section, just before the jump that closes the orbit, with a polygon that holds its image.

    **Arguments:** as for `certificate_figure`. `ax`: axes to draw in; by default new ones. `normalized`: in the certificate's
    coordinates $y$, in which the return map's linear part is nearly a rotation, in place of those of the section.

    **Returns:** the axes.
    """
    ax = tidy(ax)
    _draw_set(certificate, ax, model, certificate.sample(samples) if samples else None, normalized)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, markerscale=2)
    return ax


def certified_tube(certificate: Certificate, model: ModuleType | None = None) -> "matplotlib.figure.Figure":
    """The tube of all states that start in the set, one coordinate below the other, relative to the orbit.

    The dark band joins the bounds of the states at the starts of the steps into which an arc is divided, less the orbit's state
    there. The pale band has the bounds during each step, less the extremes of the orbit in the step; the last step includes the
    window of the event. States of the set reach a step at different times; the time is that of the orbit.

    **Arguments:** as for `certificate_figure`. **Returns:** the figure.
    """
    names = _tube_names(certificate)
    size = (7, 1.2 * len(names) + 0.6)
    fig, axes = pyplot().subplots(len(names), 1, figsize=size, sharex=True, layout="constrained", squeeze=False)
    _draw_tube(certificate, dict(zip(names, axes[:, 0], strict=True)), model)
    return fig


def certified_region(
    certificate: Certificate,
    ax: "matplotlib.axes.Axes",
    coordinates: tuple[str, str] | None = None,
    start: Callable | None = None,
) -> "matplotlib.axes.Axes":
    """The set of a certificate in a picture of basins of attraction.

    **Arguments:** `ax`: the axes of `basin_figure`. `coordinates`: the names of its axes, of a basin whose initial states are
    those after the jump that closes the orbit, by two of their coordinates; by default the axes are the coordinates of the
    section, of a basin with `start=certificate.start`. `start`: that of `hyjax.basin`, `(params, *values) -> x`, by which it is
    checked that the initial states in the picture are those of the section.

    **Returns:** the axes. `ValueError` for names that are not coordinates of the states, and where `start` gives other states.
    """
    proved = "converges" if certificate.converges else "returns"
    label = f"proved: {proved}" if certificate.proved else "not proved"
    points = _boundary(certificate.vertices)
    if coordinates is not None:
        points = _after_jump(certificate, points, tuple(coordinates), start)
    (patch,) = ax.fill(
        *points.T, facecolor=(ORANGE, 0.75), edgecolor=INK, lw=1, ls="-" if certificate.proved else "--", label=label
    )
    legend = ax.get_legend()
    if legend is not None:
        labels = [text.get_text() for text in legend.get_texts()]
        ax.legend(
            [*legend.legend_handles, patch], [*labels, label], loc="upper left", bbox_to_anchor=(1, 1), frameon=False
        )
    return ax


def _boundary(vertices: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, "points 2"]:
    """Points on the edges of a polygon."""
    part = np.arange(EDGE)[:, None] / EDGE
    following = np.roll(vertices, -1, axis=0)
    return np.concatenate([a + part * (b - a) for a, b in zip(vertices, following, strict=True)])


def _after_jump(certificate: Certificate, points, coordinates: tuple[str, ...], start: Callable | None):
    """Two coordinates of the states after the jump, from points of the section."""
    orbit = certificate.orbit
    known = orbit.system.modes[orbit.sequence[0]].coordinates
    if len(coordinates) != 2 or set(coordinates) - set(known):
        raise ValueError(f"certified_region: coordinates={coordinates} must be two of {known}.")
    states = np.asarray(jax.vmap(lambda z: certificate.start(orbit.params, *z))(jnp.asarray(points)))
    found = states[:, [known.index(name) for name in coordinates]]
    if start is not None:
        given = np.asarray(jax.vmap(lambda values: jnp.asarray(start(orbit.params, *values)))(jnp.asarray(found)))
        apart = np.max(np.abs(given - states[:, : len(known)]))
        if not apart <= 1e-9 * np.max(np.abs(states)):
            raise ValueError(
                f"certified_region: the initial states of `start` are up to {apart:.3g} away from those of the section. "
                "Compute the basin with start=certificate.start, and omit coordinates."
            )
    return found


def _claim(certificate: Certificate) -> str:
    """What is proved, or not, in one line."""
    found = [certificate.status if not certificate.converges else "proved, with convergence"]
    if np.isfinite(certificate.ratio):
        found.append(f"ratio {certificate.ratio:.4f}")
    wind = certificate.disturbance
    norm = r"\infty" if wind.norm == "inf" else wind.norm
    found.append(rf"$\|w\|_{{{norm}}} \leq {_decimal(wind.bound)}$" if wind.bound else "no disturbance")
    return ", ".join(found)


def _decimal(value: float) -> str:
    """A number in mathematical type, as a power of ten where it is small."""
    mantissa, _, exponent = f"{value:g}".partition("e")
    power = f"10^{{{int(exponent)}}}" if exponent else ""
    return power if mantissa == "1" and power else rf"{mantissa} \cdot {power}" if power else mantissa


def _tube_names(certificate: Certificate) -> list[str]:
    modes = certificate.orbit.system.modes
    return list(dict.fromkeys(name for mode in certificate.orbit.sequence for name in modes[mode].coordinates))


def _draw_set(certificate: Certificate, ax, model: ModuleType | None, drawn, normalized: bool) -> None:
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
    for points, colour, label in zip(drawn or (), (BLUE, VERMILION), ("starts", "ends of strides"), strict=False):
        ax.plot(*placed(points).T, ".", ms=2.5, color=colour, mew=0, label=label, gid=label)
    ax.plot(*placed(certificate.center), "+", color=INK, ms=9, mew=1.6, label="orbit", gid="orbit")
    if normalized:
        ax.set(xlabel="$y_1$", ylabel="$y_2$", title="in the certificate's coordinates")
        ax.set_aspect("equal", adjustable="datalim")
        ax.ticklabel_format(scilimits=(-2, 3), useMathText=True)
    else:
        units = coordinate_units(model)
        across, up = (with_unit(symbol(name), unit(units.get(name, ""))) for name in certificate.coordinates)
        ax.set(xlabel=across, ylabel=up, title="on the section, before the jump")
    ax.title.set_fontsize(10)


def _draw_tube(certificate: Certificate, axes: dict[str, Any], model: ModuleType | None) -> None:
    orbit, units = certificate.orbit, coordinate_units(model)
    for name, ax in axes.items():
        tidy(ax).axhline(0, color=INK, lw=1)
        ax.locator_params(axis="y", nbins=4)
        ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
        printed = unit(units.get(name, ""))
        ax.set_ylabel(f"{symbol(name)}\n({printed})" if printed else symbol(name), fontsize=9)
    arcs = orbit.sample(SAMPLES * max(len(tube.low) - 1 for tube in certificate.tubes) + 1)
    for k, (arc, tube) in enumerate(zip(arcs, certificate.tubes, strict=True)):
        found = relative_tube(tube, np.asarray(arc.t), np.asarray(arc.x))
        for i, name in enumerate(orbit.system.modes[arc.mode].coordinates):
            pale = {"baseline": found.low[:, i], "fill": True, "facecolor": (BLUE, 0.2), "gid": "during the steps"}
            axes[name].stairs(found.high[:, i], found.times, lw=0, **pale)
            dark = {"facecolor": (BLUE, 0.5), "lw": 0, "gid": "at the steps"}
            axes[name].fill_between(found.times, found.start_low[:, i], found.start_high[:, i], **dark)
        for ax in axes.values() if k else ():
            ax.axvline(found.times[0], color=GREY, lw=0.8, ls=":", gid="jump")
    first, *_, last = [*axes.values(), *axes.values()]
    first.set_title("the tube: bounds of the states, less the orbit", fontsize=10)
    last.set_xlabel(with_unit("$t$", unit(getattr(model, "time_unit", ""))))


class RelativeTube(NamedTuple):
    """Bounds of a tube less those of the orbit: the edges of the steps in time, and the bounds during and at them."""

    times: Float[np.ndarray, " edges"]
    low: Float[np.ndarray, "steps n"]
    high: Float[np.ndarray, "steps n"]
    start_low: Float[np.ndarray, "edges n"]
    start_high: Float[np.ndarray, "edges n"]


def relative_tube(tube: TubeBounds, t: Float[np.ndarray, " times"], x: Float[np.ndarray, "times n"]) -> RelativeTube:
    """A tube about an orbit that is sampled at equidistant times of the arc.

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
    fine = at((np.arange(steps)[:, None] + np.linspace(0, 1, SAMPLES + 1)) / steps, end)
    fine[-1, -1] = x[-1]
    return RelativeTube(
        t[0] + part * (end - t[0]), low - fine.min(axis=1), high - fine.max(axis=1),
        start_low - at(part, end), start_high - at(part, end),
    )  # fmt: skip
