"""Pictures of simulated trajectories: coordinates over time, coloured by mode."""

from collections.abc import Collection
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .._results.labels import units_of
from .figure import COLOURS, GREY, INK, mode_legend, pyplot, symbol, unit, with_unit
from .setting import put_title, title_of

if TYPE_CHECKING:
    import matplotlib.figure

    from .._flow.trajectory import Trajectory


def trajectory_figure(
    trajectory: "Trajectory",
    model: ModuleType | SimpleNamespace | None = None,
    n: int = 100,
    degrees: Collection[str] = (),
) -> "matplotlib.figure.Figure":
    """The coordinates of a trajectory over time, one below the other: arcs coloured by mode, jumps as thin dotted lines.

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
    arcs, modes = trajectory.sample(n), trajectory.system.modes
    visited = dict.fromkeys(arc.mode for arc in arcs) or dict.fromkeys(modes)
    names = tuple(dict.fromkeys(name for mode in visited for name in modes[mode].coordinates))
    colours = {mode: COLOURS[k % len(COLOURS)] for k, mode in enumerate(modes)}
    units = units_of(model, trajectory.params, trajectory.system)
    fig, rows = plt.subplots(
        len(names), 1, sharex=True, squeeze=False, figsize=(7.0, 1.4 + 1.2 * len(names)), layout="constrained"
    )
    for name, ax in zip(names, rows[:, 0], strict=True):
        last = None
        for arc in arcs:
            known = modes[arc.mode].coordinates
            if name not in known:
                last = None
                continue
            t, x = np.asarray(arc.t), np.asarray(arc.x[:, known.index(name)])
            if last is not None and last[1] != x[0]:
                ax.plot([last[0], t[0]], [last[1], x[0]], color=GREY, lw=0.8, ls=":")
            ax.plot(t, x, color=colours[arc.mode], lw=1.6)
            last = t[-1], x[-1]
        ax.set_ylabel(
            with_unit(f"{symbol(name)}", unit(units.coordinates.get(name, ""))).replace(" (", "\n("), color=INK
        )
        ax.spines[["top", "right"]].set_visible(False)
    fig.align_ylabels(rows[:, 0])
    rows[-1, 0].set_xlabel(with_unit("$t$", unit(units.time)))
    if len(modes) > 1:
        mode_legend(fig, {mode: colours[mode] for mode in visited})
    put_title(fig, title_of(model, trajectory.params, degrees, system=trajectory.system))
    return fig
