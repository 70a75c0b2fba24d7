"""Pictures of simulated trajectories: coordinates over time, coloured by mode."""

from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from .figure import COLOURS, GREY, INK, mode_legend, pyplot, symbol, unit

if TYPE_CHECKING:
    import matplotlib.figure

    from .._flow.trajectory import Trajectory


def trajectory_figure(
    trajectory: "Trajectory", model: ModuleType | SimpleNamespace | None = None, n: int = 100
) -> "matplotlib.figure.Figure":
    """The coordinates of a trajectory over time, one below the other: arcs coloured by mode, jumps as thin dotted lines.

    **Arguments:** `trajectory`: one result of `hyjax.simulate`. `model`: supplies `title`, `time_unit`, and `units` for its
    `coordinates`. `n`: sample times on each arc.

    **Returns:** the figure. `TypeError` for a batch of trajectories; `ImportError` without matplotlib.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> figure = hj.plot.trajectory_figure(run, model=ball)
    >>> figure.savefig("trajectory.png")
    """
    plt = pyplot()
    arcs, modes = trajectory.sample(n), trajectory.system.modes
    names = tuple(dict.fromkeys(name for mode in modes.values() for name in mode.coordinates))
    colours = {mode: COLOURS[k % len(COLOURS)] for k, mode in enumerate(modes)}
    units = _units(model)
    fig, rows = plt.subplots(
        len(names), 1, sharex=True, squeeze=False, figsize=(7.0, 1.2 + 1.2 * len(names)), layout="constrained"
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
        ax.set_ylabel(symbol(name) + (f"\n({units[name]})" if units.get(name) else ""), color=INK)
        ax.spines[["top", "right"]].set_visible(False)
    time_unit = unit(getattr(model, "time_unit", ""))
    rows[-1, 0].set_xlabel(f"$t$ ({time_unit})" if time_unit else "$t$")
    visited = dict.fromkeys(arc.mode for arc in arcs)
    if len(modes) > 1:
        mode_legend(fig, {mode: colours[mode] for mode in visited})
    fig.suptitle(getattr(model, "title", ""), x=0.02, ha="left", color=INK)
    return fig


def _units(model: ModuleType | SimpleNamespace | None) -> dict[str, str]:
    """The units of a model's coordinates, in mathematical type."""
    if model is None:
        return {}
    return {name: unit(text) for name, text in zip(model.coordinates, model.units, strict=True)}
