"""Animations of a model along an orbit or a trajectory, drawn from the model's outline."""

import pathlib
from typing import TYPE_CHECKING

import numpy as np

from .._flow.trajectory import Trajectory
from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params
from .figure import BLUE, GREY, INK, PALE, pyplot, unit, VERMILION
from .placement import Model, placed_arcs, PlacedArc, Shapes, shapes, vertical_frame, walk

if TYPE_CHECKING:
    import matplotlib.animation

# Seconds on the screen for one unit of a model's time; sqrt(l/g) is that of a leg of 1 m on the earth.
SECONDS = {"s": 1.0, "sqrt(l/g)": 9.81**-0.5, "sqrt(l/g) or s": 9.81**-0.5}
# Seconds: a shorter motion is played more slowly, a longer one faster.
SHORTEST, LONGEST = 2.0, 12.0


def animate_orbit(
    orbit: PeriodicOrbit, model: Model, steps: int = 4, fps: int = 30, speed: float | None = None
) -> "matplotlib.animation.FuncAnimation":
    """Animation of a model along its periodic orbit: a walker walks down its slope, and the camera follows.

    A leg keeps its colour when the legs change roles; the stance leg is drawn thick. The camera moves with the mean
    velocity, so the animation of an even number of a biped's steps repeats without a jump.

    **Arguments:** `model`: a module, or a `types.SimpleNamespace`, with `outline(mode, x, params)`, or
    `outline(mode, x, params, t)` for a forced model; a model that moves over the ground also has `travel(mode, x, params)`
    and `ground(params)`. Lines named in `model.scenery` are drawn in grey. `steps`: passes through the orbit's sequence.
    `fps`: frames per second. `speed`: model time over real time; at 1 a model in seconds plays in real time, and a model in units
    of `sqrt(l/g)` plays as with legs of 1 m on the earth. By default 1, changed where necessary for a duration between 2 s and
    12 s.

    **Returns:** a `matplotlib.animation.FuncAnimation`, for `save_animation`. `ValueError` for a batch of orbits, an orbit that
    was not found, and a model without an outline; `ImportError` without matplotlib.
    """
    check_outline(model, "animate_orbit")
    if steps < 1 or fps <= 0 or (speed is not None and speed <= 0):
        raise ValueError(f"animate_orbit: steps={steps}, fps={fps} and speed={speed} must be positive.")
    return _animate(walk(orbit, model, steps), model, orbit.params, fps, speed)


def animate_trajectory(
    trajectory: Trajectory, model: Model, fps: int = 30, speed: float | None = None
) -> "matplotlib.animation.FuncAnimation":
    """Animation of a model along a simulated trajectory, from start to end.

    **Arguments:** as for `animate_orbit`. **Returns:** a `matplotlib.animation.FuncAnimation`. `TypeError` for a batch of
    trajectories; `ValueError` for a trajectory without an arc, or a model without an outline; `ImportError` without matplotlib.
    """
    check_outline(model, "animate_trajectory")
    if fps <= 0 or (speed is not None and speed <= 0):
        raise ValueError(f"animate_trajectory: fps={fps} and speed={speed} must be positive.")
    arcs = trajectory.sample()
    if not arcs or not np.all(np.isfinite(arcs[-1].t)):
        raise ValueError("animate_trajectory: there is nothing to draw: the simulation failed before its first event.")
    return _animate(placed_arcs(arcs, model, trajectory.params), model, trajectory.params, fps, speed)


def check_outline(model: Model, caller: str) -> None:
    """`ValueError` for a model without an outline."""
    if not hasattr(model, "outline"):
        name = getattr(model, "__name__", str(model)).rpartition(".")[-1]
        raise ValueError(
            f"{caller}: {name} does not define outline. Give a model with a function outline(mode, x, params)."
        )


def _animate(placed: tuple[PlacedArc, ...], model: Model, params: Params, fps: int, speed: float | None):
    plt = pyplot()
    from matplotlib.animation import FuncAnimation

    time_unit = getattr(model, "time_unit", "")
    duration = placed[-1].t[-1]
    seconds = duration * SECONDS.get(time_unit, 1.0)
    seconds = np.clip(seconds, SHORTEST, LONGEST) if speed is None else seconds / speed
    times = np.linspace(0.0, duration, max(2, round(seconds * fps)), endpoint=False)
    frames = _frames(placed, model, params, times)

    # Camera: a constant scale that fits every frame.
    stride = placed[-1].landing
    path = stride * (times / duration)[:, None]
    drawn_points = np.concatenate([point - path[i] for i, (_, shape) in enumerate(frames) for point in shape.values()])
    (left, low), (right, high) = drawn_points.min(axis=0), drawn_points.max(axis=0)
    height = 1.4 * max(high - low, 0.3 * (right - left))
    width = max(1.2 * (right - left), 1.5 * height)
    view = np.array([[-width / 2, width / 2], [-0.12 * height, 0.88 * height]]) + [[(left + right) / 2], [low]]

    # Draw.
    fig = plt.figure(figsize=(4.8, 4.8 * height / width), facecolor="white")
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="box")
    if hasattr(model, "ground"):
        _draw_ground(ax, placed, frames, vertical_frame(model, params)[0], width, height)
    scenery = getattr(model, "scenery", ())
    drawn = [(name, number) for arc in placed for name, number in arc.legs.items()]
    lines = {}
    for number in sorted({number for _, number in drawn}):
        still = any(name in scenery for name, each in drawn if each == number)
        colour, above = (GREY, 2) if still else (VERMILION, 4) if number == 0 else (BLUE, 3)
        lines[number] = ax.plot([], [], color=colour, zorder=above, solid_capstyle="round", gid=f"leg {number}")[0]
    dots = ax.plot([], [], "o", color=INK, ms=10, zorder=5)[0]
    fig.text(0.02, 0.97, getattr(model, "title", ""), va="top", color=INK, fontsize=11)
    clock = fig.text(0.98, 0.97, "", va="top", ha="right", color=INK, fontsize=10)
    decimals = max(1, 2 - int(np.floor(np.log10(duration))))

    def draw(i: int):
        arc, shape = frames[i]
        for line in lines.values():
            line.set_data([], [])
        for name, number in arc.legs.items():
            stands = hasattr(model, "ground") and _touches(shape[name], arc.foot)
            lines[number].set(data=shape[name].T, linewidth=5 if stands else 3)
        dots.set_data(*np.concatenate([np.zeros((0, 2)), *(p for p in shape.values() if len(p) == 1)]).T)
        clock.set_text(f"$t$ = {times[i]:.{decimals}f} {unit(time_unit)}")
        ax.set(xlim=view[0] + path[i, 0], ylim=view[1] + path[i, 1])
        return (*lines.values(), dots, clock)

    return FuncAnimation(fig, draw, frames=len(times), interval=1000 / fps, cache_frame_data=False)


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
    standing = {id(arc) for arc, shape in frames if any(_touches(shape[name], arc.foot) for name in arc.legs)}
    marked = [arc.foot for arc in placed if id(arc) in standing]
    feet = _footholds(np.stack(marked or [placed[0].foot]), stride, downhill, width)
    ax.fill_between(feet[:, 0], feet[:, 1], feet[:, 1].min() - 2 * height, color=PALE, lw=0)
    ax.plot(feet[:, 0], feet[:, 1], color=GREY, lw=1.5, gid="ground")
    if np.any(stride != 0) and marked:
        ax.plot(feet[:, 0], feet[:, 1], "o", color=GREY, ms=4, gid="footholds")


def _touches(line: np.ndarray, foot: np.ndarray) -> bool:
    """Whether one of the line's points is the stance foot."""
    return bool(np.min(np.linalg.norm(line - foot, axis=-1)) < 1e-6)


def _footholds(feet: np.ndarray, stride: np.ndarray, downhill: np.ndarray, width: float) -> np.ndarray:
    """The ground as a polyline through the footholds, longer than the camera's view; without travel, a straight line."""
    if np.all(stride == 0):
        return feet[0] + 2 * width * np.array([[-1.0], [1.0]]) * downhill
    around = int(np.ceil(2 * width / np.linalg.norm(stride)))
    chain = np.concatenate([feet + k * stride for k in range(-around, around + 2)])
    return chain[np.concatenate([[True], np.any(np.diff(chain, axis=0) != 0, axis=1)])]


def save_animation(animation: "matplotlib.animation.FuncAnimation", path: str | pathlib.Path) -> None:
    """Write an animation to a `.gif`, `.html` (a page with controls) or, where ffmpeg is installed, `.mp4` file.

    **Arguments:** `path`: its suffix selects the format. `ValueError` for another suffix, and for `.mp4` without ffmpeg.
    """
    path = pathlib.Path(path)
    suffix = animation_suffix(path)
    if suffix == ".html":
        path.write_text(animation.to_jshtml(), encoding="utf-8")
    else:
        # At 80 dots per inch, four steps of a walker take well under a megabyte. A GIF counts time in hundredths of a second:
        # 25 and 50 frames per second are exact.
        animation.save(path, writer="pillow" if suffix == ".gif" else "ffmpeg", dpi=80 if suffix == ".gif" else 200)


def animation_suffix(path: pathlib.Path) -> str:
    """The suffix of a path to which an animation can be written; `ValueError` that lists the formats otherwise."""
    pyplot()
    from matplotlib.animation import writers

    suffix = path.suffix.lower()
    there = ".gif, .html" + (", .mp4" if writers.is_available("ffmpeg") else "")
    if suffix not in (".gif", ".html", ".mp4"):
        raise ValueError(f"{path}: {suffix!r} is not an animation format; use one of {there}.")
    if suffix not in there:
        raise ValueError(f"{path}: .mp4 needs the program ffmpeg, which is not installed; use one of {there}.")
    return suffix
