"""The complex plane of multipliers with the unit circle."""

from typing import TYPE_CHECKING

import numpy as np

from .figure import GREY, INK, PALE, tidy

if TYPE_CHECKING:
    import matplotlib.axes

# Beyond this modulus the unit circle would be small: outside of it the axes are logarithmic.
LARGE = 6.0


def draw_plane(ax: "matplotlib.axes.Axes | None", reach: float) -> "matplotlib.axes.Axes":
    """Axes of the complex plane with the unit circle, and room for numbers up to a modulus.

    Where the modulus is large, the axes are linear up to the unit circle, which stays a circle, and logarithmic beyond it.

    **Arguments:** `ax`: axes to draw in; by default new ones. `reach`: the largest modulus.
    """
    ax = tidy(ax)
    from matplotlib.patches import Circle

    ax.grid(False)
    ax.add_patch(Circle((0, 0), 1, facecolor=PALE, edgecolor=INK, lw=1.2, alpha=0.6, gid="unit circle"))
    ax.axhline(0, color=GREY, lw=0.6)
    ax.axvline(0, color=GREY, lw=0.6)
    ax.set(aspect="equal", xlabel=r"Re $\lambda$", ylabel=r"Im $\lambda$")
    widen(ax, reach)
    return ax


def widen(ax: "matplotlib.axes.Axes", reach: float) -> None:
    """Limits of the plane for numbers up to a modulus, unless they are wide enough."""
    if reach > LARGE and ax.get_xscale() == "linear":
        powers = int(np.ceil(np.log10(1.15 * reach)))
        # The circle takes up half of each axis.
        style = {"linthresh": 1.0, "linscale": powers}
        ax.set_xscale("symlog", **style)
        ax.set_yscale("symlog", **style)
        ticks = [-(10.0**powers), -1, 0, 1, 10.0**powers]
        labels = [f"$-10^{powers}$", "$-1$", "0", "1", f"$10^{powers}$"]
        ax.set_xticks(ticks, labels)
        ax.set_yticks(ticks, labels)
        ax.minorticks_off()
        ax.text(
            0.02, 0.02, "logarithmic outside\nthe unit circle", transform=ax.transAxes, fontsize=8, color=INK, va="bottom"
        )  # fmt: skip
        limit = 1.15 * 10.0**powers
    else:
        limit = 1.15 * max(reach, 1.1)
    # Before the first call the limits are those of the circle.
    limit = max(limit, ax.get_xlim()[1])
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit))
