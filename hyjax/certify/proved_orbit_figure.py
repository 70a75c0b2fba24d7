"""Pictures of proved orbits: the multipliers' discs in the complex plane, and how narrow the bounds of each number are."""

from typing import TYPE_CHECKING

import numpy as np

from .._results.registry import draw
from ..plot.figure import BLUE, INK, pyplot, symbol, tidy, VERMILION
from ..plot.orbit_axes import draw_plane
from ..plot.setting import put_title, title_of
from .proved_orbit import ProvedOrbit

if TYPE_CHECKING:
    import matplotlib.figure


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
