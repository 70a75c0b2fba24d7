"""One walk in one pair of axes: the model's lines over the ground, frame by frame, under a camera that follows."""

from typing import TYPE_CHECKING

import numpy as np

from .._results.labels import units_of
from .._system.types import Params
from .figure import BLUE, GREY, INK, PALE, quantity, unit, VERMILION
from .placement import Model, PlacedArc, Shapes, shapes, vertical_frame

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.lines

# Seconds on the screen for one unit of a model's time; sqrt(l/g) is that of a leg of 1 m on the earth.
SECONDS = {"s": 1.0, "sqrt(l/g)": 9.81**-0.5}
# Seconds: a shorter motion is played more slowly, a longer one faster.
SHORTEST, LONGEST = 2.0, 12.0


def frame_times(duration: float, model: Model, params: Params, fps: int, speed: float | None) -> np.ndarray:
    """The model times of the frames, without the end, which is the start of a repetition. `speed`: as for `animate_orbit`."""
    seconds = duration * SECONDS.get(units_of(model, params).time, 1.0)
    seconds = np.clip(seconds, SHORTEST, LONGEST) if speed is None else seconds / speed
    return np.linspace(0.0, duration, max(2, round(seconds * fps)), endpoint=False)


def scene(placed: tuple[PlacedArc, ...], model: Model, params: Params, times: np.ndarray):
    """What the frames of a walk at given times show, and from where: a camera that moves with the walk's mean velocity.

    **Returns:** `(left, low), (right, high)`, the bounds of all that is drawn, relative to the camera; and `stage(ax, view)`,
    which draws the ground, and returns the function that draws frame `i` and returns what it changed.
    """
    frames = _frames(placed, model, params, times)
    path = placed[-1].landing * (times / placed[-1].t[-1])[:, None]
    outlined = np.concatenate([point - path[i] for i, (_, shape) in enumerate(frames) for point in shape.values()])

    def stage(ax: "matplotlib.axes.Axes", view: np.ndarray):
        width, height = np.diff(view, axis=1)[:, 0]
        ax.set_axis_off()
        ax.set_aspect("equal", adjustable="box")
        if hasattr(model, "ground"):
            _draw_ground(ax, placed, frames, vertical_frame(model, params)[0], width, height)
        scenery = getattr(model, "scenery", ())
        drawn = [(name, number) for arc in placed for name, number in arc.legs.items()]
        lines: dict[int, matplotlib.lines.Line2D] = {}
        for number in sorted({number for _, number in drawn}):
            still = any(name in scenery for name, each in drawn if each == number)
            colour, above = (GREY, 2) if still else (VERMILION, 4) if number == 0 else (BLUE, 3)
            lines[number] = ax.plot([], [], color=colour, zorder=above, solid_capstyle="round", gid=f"leg {number}")[0]
        dots = ax.plot([], [], "o", color=INK, ms=10, zorder=5)[0]

        def draw(i: int):
            arc, shape = frames[i]
            for line in lines.values():
                line.set_data([], [])
            for name, number in arc.legs.items():
                stands = hasattr(model, "ground") and touches(shape[name], arc.foot)
                lines[number].set(data=shape[name].T, linewidth=5 if stands else 3)
            dots.set_data(*np.concatenate([np.zeros((0, 2)), *(p for p in shape.values() if len(p) == 1)]).T)
            ax.set(xlim=view[0] + path[i, 0], ylim=view[1] + path[i, 1])
            return (*lines.values(), dots)

        return draw

    return np.stack([outlined.min(axis=0), outlined.max(axis=0)]), stage


def view_of(bounds: np.ndarray) -> np.ndarray:
    """The camera's limits around what is drawn: `(left, right), (low, high)`, with ground below and room above for text."""
    (left, low), (right, high) = bounds
    height = 1.4 * max(high - low, 0.3 * (right - left))
    width = max(1.2 * (right - left), 1.5 * height)
    return np.array([[-width / 2, width / 2], [-0.12 * height, 0.88 * height]]) + [[(left + right) / 2], [low]]


def clock(fig: "matplotlib.figure.Figure", duration: float, model: Model, params: Params):
    """A clock in the figure's corner; return the function that sets it to a time."""
    text = fig.text(0.98, 0.97, "", va="top", ha="right", color=INK, fontsize=10)
    decimals, time_unit = max(1, 2 - int(np.floor(np.log10(duration)))), unit(units_of(model, params).time)

    def tell(t: float):
        text.set_text(f"$t$ = {quantity(f'{t:.{decimals}f}', time_unit)}")
        return text

    return tell


def _frames(placed: tuple[PlacedArc, ...], model: Model, params: Params, times: np.ndarray):
    """The arc and the outline at each time: `[(arc, shapes)]`."""
    arc_of = np.minimum(np.searchsorted([arc.t[-1] for arc in placed], times, side="right"), len(placed) - 1)
    frames: list[tuple[PlacedArc, Shapes]] = []
    for k, arc in enumerate(placed):
        here = times[arc_of == k]
        if here.size:
            x = np.stack([np.interp(here, arc.t, column) for column in arc.x.T], axis=-1)
            posed = shapes(model, arc.mode, x, params, arc.foot, here)
            frames += [(arc, {name: points[i] for name, points in posed.items()}) for i in range(here.size)]
    return frames


def _draw_ground(ax, placed: tuple[PlacedArc, ...], frames, downhill, width, height) -> None:
    """The ground under the camera's path, with a mark at each foothold."""
    stride = placed[-1].landing
    standing = {id(arc) for arc, shape in frames if any(touches(shape[name], arc.foot) for name in arc.legs)}
    marked = [arc.foot for arc in placed if id(arc) in standing]
    feet = footholds(np.stack(marked or [placed[0].foot]), stride, downhill, width)
    ax.fill_between(feet[:, 0], feet[:, 1], feet[:, 1].min() - 2 * height, color=PALE, lw=0)
    ax.plot(feet[:, 0], feet[:, 1], color=GREY, lw=1.5, gid="ground")
    if np.any(stride != 0) and marked:
        ax.plot(feet[:, 0], feet[:, 1], "o", color=GREY, ms=4, gid="footholds")


def touches(line: np.ndarray, foot: np.ndarray) -> bool:
    """Whether one of the line's points is the stance foot."""
    return bool(np.min(np.linalg.norm(line - foot, axis=-1)) < 1e-6)


def footholds(feet: np.ndarray, stride: np.ndarray, downhill: np.ndarray, width: float) -> np.ndarray:
    """The ground as a polyline through the footholds, longer than the camera's view; without travel, a straight line."""
    if np.all(stride == 0):
        return feet[0] + 2 * width * np.array([[-1.0], [1.0]]) * downhill
    around = int(np.ceil(2 * width / np.linalg.norm(stride)))
    chain = np.concatenate([feet + k * stride for k in range(-around, around + 2)])
    return chain[np.concatenate([[True], np.any(np.diff(chain, axis=0) != 0, axis=1)])]
