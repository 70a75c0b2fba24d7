"""Pictures of simulated trajectories: coordinates over time, coloured by mode, and rasters of the events of families."""

from collections.abc import Collection
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .._flow.trajectory_report import arc_labels
from .._results.labels import units_of
from .figure import COLOURS, GREY, INK, mode_legend, put_title, pyplot, symbol, title_of, unit, with_unit

if TYPE_CHECKING:
    import matplotlib.figure

    from .._flow.trajectory import Trajectory


# The largest number of coordinates that are drawn where a family's raster shows what happens.
MOST_PANELS = 8


def trajectory_figure(
    trajectory: "Trajectory",
    model: ModuleType | SimpleNamespace | None = None,
    n: int = 100,
    degrees: Collection[str] = (),
) -> "matplotlib.figure.Figure":
    """The coordinates of a trajectory over time, one below the other: arcs coloured by mode, jumps as thin dotted lines.

    Below, for each family of transitions, a raster: a mark for each event, at its time and the number of its guard. Of a system
    with a family and more than 8 coordinates the rasters alone.

    **Arguments:** `trajectory`: one result of `hyjax.simulate`. `model`: supplies `title`, `time_unit`, and `units` for its
    `coordinates`. `n`: sample times on each arc. `degrees`: names of the parameters that the title gives in degrees.

    **Returns:** the figure, with the coordinates of the modes that were visited. `TypeError` for a batch of trajectories;
    `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> figure = hj.plot.trajectory_figure(run, model=ball)
    >>> figure.savefig("trajectory.png")
    """
    plt = pyplot()
    modes, ways = trajectory.system.modes, trajectory.system.transitions
    said = [name for name, mode in modes.items() if mode.shown != mode.coordinates]
    families = [k for k, way in enumerate(ways) if way.is_family and way.source not in said]
    rasters_alone = families and max(mode.dimension for mode in modes.values()) > MOST_PANELS
    arcs = () if rasters_alone else trajectory.sample(n)
    labels = arc_labels(trajectory) if arcs else []
    visited = dict.fromkeys(labels) or dict.fromkeys(modes)
    flown = dict.fromkeys(arc.mode for arc in arcs) or modes
    names = () if rasters_alone else tuple(dict.fromkeys(name for mode in flown for name in modes[mode].shown))
    # Modes in their order have the same colours in every picture; contacts by name take those that are left.
    colours = {label: COLOURS[k % len(COLOURS)] for k, label in enumerate(dict.fromkeys((*modes, *visited)))}
    units = units_of(model, trajectory.params, trajectory.system)
    heights = [1.2] * len(names) + [2.4] * len(families)
    fig, rows = plt.subplots(
        len(heights), 1, sharex=True, squeeze=False, figsize=(7.0, 1.4 + sum(heights)), layout="constrained",
        height_ratios=heights,
    )  # fmt: skip
    for k, ax in zip(families, rows[len(names) :, 0], strict=True):
        events = [event for event in trajectory.events if event.transition == k]
        times, numbers = [event.t for event in events], [event.index for event in events]
        ax.plot(times, numbers, ls="", marker="|", color=INK, ms=5 if trajectory.system.sizes[k] < 60 else 2)
        ax.set_ylabel(f"guard of\n{ways[k].source} → {ways[k].target}", color=INK)
        ax.set_ylim(-0.6, trajectory.system.sizes[k] - 0.4)
        ax.yaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
    for name, ax in zip(names, rows[: len(names), 0], strict=True):
        last = None
        for arc, label in zip(arcs, labels, strict=True):
            known = modes[arc.mode].coordinates
            if name not in known:
                last = None
                continue
            t, x = np.asarray(arc.t), np.asarray(arc.x[:, known.index(name)])
            if last is not None and last[1] != x[0]:
                ax.plot([last[0], t[0]], [last[1], x[0]], color=GREY, lw=0.8, ls=":")
            ax.plot(t, x, color=colours[label], lw=1.6)
            last = t[-1], x[-1]
        ax.set_ylabel(
            with_unit(f"{symbol(name)}", unit(units.coordinates.get(name, ""))).replace(" (", "\n("), color=INK
        )
        ax.spines[["top", "right"]].set_visible(False)
    fig.align_ylabels(rows[:, 0])
    rows[-1, 0].set_xlabel(with_unit("$t$", unit(units.time)))
    if len(modes) > 1 or len(visited) > 1:
        mode_legend(fig, {label: colours[label] for label in visited})
    put_title(fig, title_of(model, trajectory.params, degrees, system=trajectory.system))
    return fig
