"""The set of a certificate in a picture of basins of attraction."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..certify.certificate import Certificate
from .figure import INK, ORANGE

if TYPE_CHECKING:
    import matplotlib.axes

# Points on each edge of the polygon, which the jump curves.
EDGE = 24


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
        handles = [handle for handle in legend.legend_handles if handle is not None]
        ax.legend([*handles, patch], [*labels, label], loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
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
