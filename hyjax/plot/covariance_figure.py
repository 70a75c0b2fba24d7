"""Pictures of covariances: ellipses in the plane of two coordinates along the path of the mean."""

from types import ModuleType
from typing import Any, TYPE_CHECKING

import numpy as np

from .._results.labels import units_of
from .figure import COLOURS, GREY, INK, open_axes, pyplot, symbol, unit, with_unit
from .setting import put_title, title_of

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

    from ..noise.covariance import Covariance


def covariance_figure(
    found: "Covariance",
    coordinates: tuple[str, str] | None = None,
    deviations: float = 2.0,
    model: ModuleType | None = None,
) -> "matplotlib.figure.Figure":
    """The path of the mean in the plane of two coordinates, with the ellipse of the covariance at the start and the end of each
    arc, before and after the jumps, and at the times that were saved.

    **Arguments:** `found`: one result of `hyjax.noise.covariance`. `coordinates`: two names; by default the first two of the
    first mode. `deviations`: the size of the ellipses, in standard deviations. `model`: supplies the title, and the units of
    the axes.

    **Returns:** the figure. `TypeError` for a batch; `ValueError` for unknown coordinates; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> found = hj.noise.covariance(ball.system, x0, 1e-4 * jnp.eye(2), params, mode="flight", t1=1.0)
    >>> figure = hj.plot.covariance_figure(found)
    >>> figure.savefig("covariance.png")
    """
    trajectory = found.trajectory
    arcs, modes = trajectory.sample(100), trajectory.system.modes
    chosen = tuple(modes[arcs[0].mode].coordinates[:2] if coordinates is None else coordinates)
    for arc in arcs:
        if len(chosen) != 2 or set(chosen) - set(modes[arc.mode].coordinates):
            raise ValueError(
                f"covariance_figure: coordinates={chosen} must be two of {modes[arc.mode].coordinates}, the coordinates of "
                f"the mode {arc.mode}."
            )
    fig, ax = pyplot().subplots(figsize=(5.0, 4.2), layout="constrained")
    names = list(dict.fromkeys(arc.mode for arc in arcs))
    at = [[modes[arc.mode].coordinates.index(name) for name in chosen] for arc in arcs]
    for k, (arc, i) in enumerate(zip(arcs, at, strict=True)):
        colour = COLOURS[names.index(arc.mode) % len(COLOURS)]
        first = arc.mode not in [other.mode for other in arcs[:k]]
        ax.plot(*np.asarray(arc.x)[:, i].T, color=colour, lw=1.6, label=arc.mode if first else None)
        for x, sigma in ((arc.x[0], found.sigma_starts[k]), (arc.x[-1], found.sigma_ends[k])):
            draw_ellipse(ax, np.asarray(x)[i], np.asarray(sigma)[np.ix_(i, i)], deviations, color=colour)
    if found.sigma_samples is not None and trajectory.samples is not None:
        for x, sigma, mode in zip(trajectory.samples.x, found.sigma_samples, trajectory.samples.mode, strict=True):
            if mode >= 0:
                i = [list(modes.values())[int(mode)].coordinates.index(name) for name in chosen]
                draw_ellipse(ax, np.asarray(x)[i], np.asarray(sigma)[np.ix_(i, i)], deviations, color=GREY, lw=0.8)
    units = units_of(model, trajectory.params, trajectory.system).coordinates
    ax.set_xlabel(with_unit(symbol(chosen[0]), unit(units.get(chosen[0], ""))), color=INK)
    ax.set_ylabel(with_unit(symbol(chosen[1]), unit(units.get(chosen[1], ""))), color=INK)
    ax.plot([], [], color=GREY, lw=1.2, label=f"{deviations:g} standard deviations")
    open_axes(ax)
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=9)
    put_title(fig, title_of(model, trajectory.params, system=trajectory.system), 11)
    return fig


def draw_ellipse(ax: "matplotlib.axes.Axes", centre, sigma, deviations: float = 2.0, **style: Any) -> None:
    """The ellipse of a covariance of two coordinates, of any rank. `style`: as for `Axes.plot`."""
    sizes, axes = np.linalg.eigh(sigma)
    angle = np.linspace(0, 2 * np.pi, 101)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    points = np.asarray(centre)[:, None] + deviations * axes @ (np.sqrt(np.maximum(sizes, 0))[:, None] * circle)
    style = {"lw": 1.2} | style
    ax.plot(*points, **style)
