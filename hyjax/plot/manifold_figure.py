"""Pictures of invariant manifolds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._orbit.manifold import Manifold
from .._results.labels import units_of
from .figure import BLUE, INK, pyplot, symbol, tidy, unit, VERMILION, with_unit

if TYPE_CHECKING:
    import matplotlib.axes


def manifold_figure(
    found: Manifold, ax: "matplotlib.axes.Axes | None" = None, coordinates: Sequence[str] | None = None
) -> "matplotlib.axes.Axes":
    """A manifold of an orbit: a curve in the plane of two coordinates, or in space, and a surface in space, as its mesh.

    Stable manifolds are blue, unstable ones vermilion, and the orbit is a point. The axes of one picture take another manifold.

    **Arguments:** `found`: a `Manifold`. `ax`: axes to draw in, those of a surface with `projection="3d"`; by default new ones.
    `coordinates`: the names of two coordinates, of three in space; by default the first that are not constant.

    **Returns:** the axes. `ValueError` for other coordinates, and for a manifold without points.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 0.0, 1.0]), coordinates=("x", "y", "z", "clock"))
    >>> jump = lambda t, x, p: jnp.stack([1.5 * x[0], 2.5 * x[1] + x[0] ** 2, 0.5 * x[2], 0 * x[3]])
    >>> system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[3], jump),))
    >>> saddle = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.zeros(4), {})
    >>> axes = hj.plot.manifold_figure(saddle.manifold("unstable", length=1.0, spacing=0.3), coordinates=("x", "y", "z"))
    >>> axes.figure.savefig("manifold.png")
    """
    if not len(found.s) > 1:
        raise ValueError(f"manifold_figure: the manifold has no points: it is {found.result}.")
    step = found.lap.step
    known = step.system.mode(step.mode).coordinates
    solid = ax.name == "3d" if ax is not None else found.triangles is not None
    if coordinates is None:
        moving = np.ptp(found.x, axis=0) > 1e-9 * np.max(np.abs(found.x))
        coordinates = [name for name, moves in zip(known, moving, strict=True) if moves][: 2 + solid]
    if len(coordinates) != 2 + solid or set(coordinates) - set(known) or (found.triangles is not None and not solid):
        raise ValueError(
            f"manifold_figure: coordinates={tuple(coordinates)} must be two of {known}, or three for a surface, in axes "
            'with projection="3d".'
        )
    columns = found.x[:, [known.index(name) for name in coordinates]].T
    at = columns[:, int(np.argmin(np.sum(found.s.reshape(len(found.s), -1) ** 2, axis=1)))]
    colour = BLUE if np.abs(np.linalg.det(np.atleast_2d(found.multiplier))) < 1 else VERMILION
    if ax is None and solid:
        ax = pyplot().figure(figsize=(6.4, 4.8), layout="constrained").add_subplot(projection="3d")
    ax = tidy(ax) if not solid else ax
    assert ax is not None
    if found.triangles is None:
        ax.plot(*columns, color=colour, lw=1.2)
    else:
        ax.plot_trisurf(  # pyright: ignore[reportAttributeAccessIssue]
            *columns, triangles=found.triangles, color=colour, edgecolor=INK, lw=0.2, alpha=0.6
        )
    ax.plot(*at[:, None], marker="o", color=INK, ls="none")
    units = units_of(None, found.lap.params, step.system).coordinates
    for axis, name in zip("xyz", coordinates, strict=False):
        ax.set(**{f"{axis}label": with_unit(symbol(name), unit(units.get(name, "")))})
    return ax
