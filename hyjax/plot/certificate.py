"""Pictures of certificates: the set on the section with the bound of its image, and strides that were sampled."""

from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from .._results.labels import units_of
from ..certify.certificate import Certificate
from .certified_tube import draw_tube, tube_names
from .figure import BLUE, INK, pyplot, symbol, tidy, unit, VERMILION, with_unit
from .setting import put_title, title_of

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def certificate_figure(
    certificate: Certificate, model: ModuleType | None = None, samples: int = 0
) -> "matplotlib.figure.Figure":
    """The set of a certificate with the bound of its image, and the tube of all states that start in the set.

    **Arguments:** `certificate`: of `hyjax.certify.attracting`, proved or not. `model`: supplies the title and the units.
    `samples`: the number of strides under random disturbances to draw as dots.

    **Returns:** the figure: `certified_set` in the section's coordinates and in the certificate's, and the tube as by
    `certified_tube`. `ImportError` without matplotlib.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(system, jnp.array([0.1, 0.1, 0.0]), None, sequence=("m",))
    >>> certificate = hj.certify.attracting(
    ...     orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8
    ... )
    >>> figure = hj.plot.certificate_figure(certificate)
    >>> figure.savefig("certificate.png")
    """
    names = tube_names(certificate)
    fig = pyplot().figure(figsize=(12, max(4.2, 1.0 * len(names) + 0.8)), layout="constrained")
    about = title_of(model, certificate.orbit.params, system=certificate.orbit.system)
    put_title(fig, "; ".join(text for text in (about, _claim(certificate)) if text), 12)
    left, right = fig.subfigures(1, 2, width_ratios=(1.55, 1))
    drawn = certificate.sample(samples) if samples else ()
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
    samples: int = 0,
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
    >>> orbit = hj.periodic_orbit(system, jnp.array([0.1, 0.1, 0.0]), None, sequence=("m",))
    >>> certificate = hj.certify.attracting(
    ...     orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8
    ... )
    >>> axes = hj.plot.certified_set(certificate)
    >>> axes.figure.savefig("set.png")
    """
    ax = tidy(ax)
    _draw_set(certificate, ax, model, certificate.sample(samples) if samples else (), normalized)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, markerscale=2)
    return ax


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
