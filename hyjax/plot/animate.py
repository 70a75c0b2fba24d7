"""A model in motion, drawn from an orbit or a trajectory and the model's own outline."""

import inspect
import itertools
import pathlib
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._flow.arc import Arc
from .._flow.trajectory import Trajectory
from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params
from .figure import BLUE, GREY, INK, PALE, pyplot, unit, VERMILION
from .orbit import arcs_of

if TYPE_CHECKING:
    import matplotlib.animation

Shapes = dict[str, np.ndarray]
# A model of your own needs no file: a namespace with an outline will do.
Model = ModuleType | SimpleNamespace

# Seconds that a unit of a model's time lasts on the screen; sqrt(l/g) is that of a leg of 1 m on the earth.
SECONDS = {"s": 1.0, "sqrt(l/g)": 9.81**-0.5, "sqrt(l/g) or s": 9.81**-0.5}
# What would be over sooner plays slower, what would last longer faster.
SHORTEST, LONGEST = 2.0, 12.0


class Step(eqx.Module):
    """An arc, where it stands on the ground.

    **Attributes:** `t`: shape `(n,)`, from the start of all arcs. `x`: shape `(n, dimension)`. `foot`: where the outline's
    origin is, for a walker the stance foot, shape `(2,)`; gravity points along `(0, -1)`. `landing`: where the jump at the
    arc's end puts it. `legs`: from the names of the outline's lines to numbers that a line keeps when the jump gives it
    another name.
    """

    mode: str
    t: np.ndarray
    x: np.ndarray
    foot: np.ndarray
    landing: np.ndarray
    legs: dict[str, int]


def walk(orbit: PeriodicOrbit, model: Model, steps: int, n: int = 200) -> tuple[Step, ...]:
    """The orbit repeated over the ground, each arc where the jump before it put the stance foot.

    **Arguments:** `steps`: passes through the orbit's sequence. `n`: times on each arc, its two ends among them.
    """
    arcs = arcs_of(orbit, n)
    repeated = itertools.islice(itertools.cycle(arcs), steps * len(orbit.sequence))
    return _placed(repeated, model, orbit.params)


def _placed(arcs: Iterable[Arc], model: Model, params: Params) -> tuple[Step, ...]:
    """Arcs one after the other, in time and over the ground."""
    fall, travel = _fall(model, params), getattr(model, "travel", lambda mode, x, params: np.zeros(2))
    t, foot, last, legs = 0.0, np.zeros(2), {}, {}
    placed = []
    for arc in arcs:
        x, times = np.asarray(arc.x), t + np.asarray(arc.t - arc.t[0])
        ends = shapes(model, arc.mode, x[[0, -1]], params, foot, times[[0, -1]])
        legs = _renamed(last, legs, {name: points[0] for name, points in ends.items()})
        landing = foot + np.asarray(travel(arc.mode, arc.x[-1], params)) @ fall
        placed.append(Step(arc.mode, times, x, foot, landing, legs))
        t, foot, last = times[-1], landing, {name: points[1] for name, points in ends.items()}
    return tuple(placed)


def shapes(
    model: Model,
    mode: str,
    x: np.ndarray | jax.Array,
    params: Params,
    foot: np.ndarray,
    t: np.ndarray | None = None,
) -> Shapes:
    """The model's outline on the ground: from `x`, shape `(frames, n)`, to points of shape `(frames, k, 2)`.

    The model draws from its stance foot, in a frame whose first axis falls to the right by `model.ground`. A model that
    is forced draws `outline(mode, x, params, t)`. **Arguments:** `t`: shape `(frames,)`.
    """
    x = jnp.asarray(x)
    times = jnp.zeros(x.shape[0], x.dtype) if t is None else jnp.asarray(t, x.dtype)
    timed = "t" in inspect.signature(model.outline).parameters
    outline = lambda t, x: model.outline(mode, x, params, t) if timed else model.outline(mode, x, params)
    outlines = jax.vmap(outline)(times, x)
    # `vmap` sorts the names; the model's first line is the one to mark.
    names = outline(times[0], x[0])
    return {name: np.asarray(outlines[name]) @ _fall(model, params) + foot for name in names}


def animate_orbit(
    orbit: PeriodicOrbit, model: Model, steps: int = 4, fps: int = 30, speed: float | None = None
) -> "matplotlib.animation.FuncAnimation":
    """The model going around its orbit: a walker walks down its slope, the camera beside it.

    Each leg keeps its colour when the legs change roles; the leg that stands is drawn thick. The camera moves with the
    mean velocity, so that an even number of steps of a biped plays round without a seam.

    **Arguments:** `model`: a module, or a `types.SimpleNamespace`, with `outline(mode, x, params)`, or `outline(mode,
    x, params, t)` if it is forced; one that moves over the ground has `travel(mode, x, params)` and `ground(params)`,
    too. Lines that `model.scenery` names are drawn in grey. `steps`: passes through the orbit's sequence. `speed`: at
    1, a model in seconds plays in real time, and one in units of `sqrt(l/g)` plays as with legs of 1 m on the earth; by
    default so, unless all would be over in less than 2 s or last more than 12 s.

    **Returns:** a `matplotlib.animation.FuncAnimation`, for `save_animation`. A batch of orbits, an orbit that was not
    found, and a model without an outline are a `ValueError`.
    """
    _refuse(model, "animate_orbit")
    if steps < 1 or fps <= 0 or (speed is not None and speed <= 0):
        raise ValueError(f"animate_orbit: steps={steps}, fps={fps} and speed={speed} must be positive.")
    return _animate(walk(orbit, model, steps), model, orbit.params, fps, speed)


def animate_trajectory(
    trajectory: Trajectory, model: Model, fps: int = 30, speed: float | None = None
) -> "matplotlib.animation.FuncAnimation":
    """The model along a simulation, from its start to its end; otherwise as `animate_orbit`.

    A batch of trajectories is a `TypeError`; a trajectory without an arc, or one whose model has no outline, a `ValueError`.
    """
    _refuse(model, "animate_trajectory")
    if fps <= 0 or (speed is not None and speed <= 0):
        raise ValueError(f"animate_trajectory: fps={fps} and speed={speed} must be positive.")
    arcs = trajectory.sample()
    if not arcs or not np.all(np.isfinite(arcs[-1].t)):
        raise ValueError("animate_trajectory: there is nothing to draw: the simulation failed before its first event.")
    return _animate(_placed(arcs, model, trajectory.params), model, trajectory.params, fps, speed)


def _refuse(model: Model, who: str) -> None:
    if not hasattr(model, "outline"):
        name = getattr(model, "__name__", str(model)).rpartition(".")[-1]
        raise ValueError(f"{who}: {name} does not define outline, so there is nothing to draw.")


def _animate(placed: tuple[Step, ...], model: Model, params: Params, fps: int, speed: float | None):
    plt = pyplot()
    from matplotlib.animation import FuncAnimation

    # Pose: the same time passes between any two frames, whatever the arcs' lengths.
    time_unit = getattr(model, "time_unit", "")
    duration = placed[-1].t[-1]
    seconds = duration * SECONDS.get(time_unit, 1.0)
    seconds = np.clip(seconds, SHORTEST, LONGEST) if speed is None else seconds / speed
    count = max(2, round(seconds * fps))
    times = np.linspace(0.0, duration, count, endpoint=False)
    arc_of = np.minimum(np.searchsorted([step.t[-1] for step in placed], times, side="right"), len(placed) - 1)
    frames: list[tuple[Step, Shapes]] = []
    for k, step in enumerate(placed):
        here = times[arc_of == k]
        if here.size:
            x = np.stack([np.interp(here, step.t, column) for column in step.x.T], axis=-1)
            posed = shapes(model, step.mode, x, params, step.foot, here)
            frames += [(step, {name: points[i] for name, points in posed.items()}) for i in range(here.size)]

    # Camera: it holds every frame at a constant scale.
    stride = placed[-1].landing
    path = stride * (times / duration)[:, None]
    seen = np.concatenate([point - path[i] for i, (_, shape) in enumerate(frames) for point in shape.values()])
    (left, low), (right, high) = seen.min(axis=0), seen.max(axis=0)
    height = 1.4 * max(high - low, 0.3 * (right - left))
    width = max(1.2 * (right - left), 1.5 * height)
    view = np.array([[-width / 2, width / 2], [-0.12 * height, 0.88 * height]]) + [[(left + right) / 2], [low]]

    # Draw.
    fig = plt.figure(figsize=(4.8, 4.8 * height / width), facecolor="white")
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="box")
    if hasattr(model, "ground"):
        _draw_ground(ax, placed, frames, _fall(model, params)[0], width, height)
    scenery = getattr(model, "scenery", ())
    drawn = [(name, number) for step in placed for name, number in step.legs.items()]
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
        step, shape = frames[i]
        for line in lines.values():
            line.set_data([], [])
        for name, number in step.legs.items():
            points = shape[name]
            stands = hasattr(model, "ground") and np.min(np.linalg.norm(points - step.foot, axis=-1)) < 1e-6
            lines[number].set(data=points.T, linewidth=5 if stands else 3)
        dots.set_data(*np.concatenate([np.zeros((0, 2)), *(p for p in shape.values() if len(p) == 1)]).T)
        clock.set_text(f"$t$ = {times[i]:.{decimals}f} {unit(time_unit)}")
        ax.set(xlim=view[0] + path[i, 0], ylim=view[1] + path[i, 1])
        return (*lines.values(), dots, clock)

    return FuncAnimation(fig, draw, frames=count, interval=1000 / fps, cache_frame_data=False)


def _draw_ground(ax, placed: tuple[Step, ...], frames: list[tuple[Step, Shapes]], downhill, width, height) -> None:
    """The ground under the camera's path, with a mark where a foot stands."""
    stride = placed[-1].landing
    standing = {id(step) for step, shape in frames if _stands(step, shape)}
    marked = [step.foot for step in placed if id(step) in standing]
    feet = _footholds(np.stack(marked or [placed[0].foot]), stride, downhill, width)
    ax.fill_between(feet[:, 0], feet[:, 1], feet[:, 1].min() - 2 * height, color=PALE, lw=0)
    ax.plot(feet[:, 0], feet[:, 1], color=GREY, lw=1.5, gid="ground")
    if np.any(stride != 0) and marked:
        ax.plot(feet[:, 0], feet[:, 1], "o", color=GREY, ms=4, gid="footholds")


def _stands(step: Step, shape: Shapes) -> bool:
    """Whether one of the lines has an end on the stance foot."""
    return any(np.min(np.linalg.norm(shape[name] - step.foot, axis=-1)) < 1e-6 for name in step.legs)


def save_animation(animation: "matplotlib.animation.FuncAnimation", path: str | pathlib.Path) -> None:
    """Write an animation as `.gif`, `.html` (a page with controls) or, where ffmpeg is installed, `.mp4`.

    **Arguments:** `path`: the suffix says which. Another suffix, and `.mp4` without ffmpeg, are a `ValueError`.
    """
    path = pathlib.Path(path)
    suffix = animation_suffix(path)
    if suffix == ".html":
        path.write_text(animation.to_jshtml(), encoding="utf-8")
    else:
        # 80 dots per inch keep four steps of a walker well under a megabyte. A GIF counts time in hundredths of a
        # second: 25 and 50 frames per second are exact.
        animation.save(path, writer="pillow" if suffix == ".gif" else "ffmpeg", dpi=80 if suffix == ".gif" else 200)


def animation_suffix(path: pathlib.Path) -> str:
    """The suffix of a path, if an animation can be written under it; a `ValueError` that says which there are."""
    pyplot()
    from matplotlib.animation import writers

    suffix = path.suffix.lower()
    there = ".gif, .html" + (", .mp4" if writers.is_available("ffmpeg") else "")
    if suffix not in (".gif", ".html", ".mp4"):
        raise ValueError(f"{path}: the suffix {suffix!r} names no kind of animation; use one of {there}.")
    if suffix not in there:
        raise ValueError(f"{path}: .mp4 needs the program ffmpeg, which is not installed; use one of {there}.")
    return suffix


def _fall(model: Model, params: Params) -> np.ndarray:
    """From a row vector in the outline's frame to one in the vertical frame."""
    angle = float(model.ground(params)) if hasattr(model, "ground") else 0.0
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _renamed(last: Shapes, legs: dict[str, int], now: Shapes) -> dict[str, int]:
    """Which leg each line is: the one that lay where it lies, among the lines just before the jump."""
    lines = [name for name, points in now.items() if len(points) > 1]
    close = sorted((_apart(last[old], now[new]), old, new) for old in legs for new in lines)
    named, taken = {}, set()
    for _, old, new in close:
        if new not in named and old not in taken:
            named[new] = legs[old]
            taken.add(old)
    for name in lines:
        if name not in named:
            named[name] = next(number for number in itertools.count() if number not in named.values())
    return named


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """The distance of two lines' ends, whichever way they are drawn."""
    a, b = one[[0, -1]], other[[0, -1]]
    return float(min(np.abs(a - b).max(), np.abs(a - b[::-1]).max()))


def _footholds(feet: np.ndarray, stride: np.ndarray, downhill: np.ndarray, width: float) -> np.ndarray:
    """The ground as a chain of footholds, further than the camera sees; without travel, a line downhill."""
    if np.all(stride == 0):
        return feet[0] + 2 * width * np.array([[-1.0], [1.0]]) * downhill
    around = int(np.ceil(2 * width / np.linalg.norm(stride)))
    chain = np.concatenate([feet + k * stride for k in range(-around, around + 2)])
    return chain[np.concatenate([[True], np.any(np.diff(chain, axis=0) != 0, axis=1)])]
