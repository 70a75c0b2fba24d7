"""A walker on its slope, drawn from an orbit and the model's own outline."""

import itertools
import pathlib
from types import ModuleType
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._orbit import PeriodicOrbit
from ._types import Params
from .plot import _arcs, BLUE, GREY, INK, PALE, pyplot, unit, VERMILION

if TYPE_CHECKING:
    import matplotlib.animation

Shapes = dict[str, np.ndarray]

# Seconds that a unit of a model's time lasts on the screen; sqrt(l/g) is that of a leg of 1 m on the earth.
SECONDS = {"s": 1.0, "sqrt(l/g)": 9.81**-0.5, "sqrt(l/g) or s": 9.81**-0.5}


class Step(eqx.Module):
    """An arc of a walk, where it stands on the ground.

    **Attributes:** `t`: shape `(n,)`, from the start of the walk. `x`: shape `(n, dimension)`. `foot`: where the stance
    foot is, shape `(2,)`; gravity points along `(0, -1)`. `landing`: where the jump at the arc's end puts it. `legs`:
    from the names of the outline's lines to numbers that a leg keeps when the jump gives it another name.
    """

    mode: str
    t: np.ndarray
    x: np.ndarray
    foot: np.ndarray
    landing: np.ndarray
    legs: dict[str, int]


def walk(orbit: PeriodicOrbit, model: ModuleType, steps: int, n: int = 200) -> tuple[Step, ...]:
    """The orbit repeated over the ground, each arc where the jump before it put the stance foot.

    **Arguments:** `steps`: passes through the orbit's sequence. `n`: times on each arc, its two ends among them.
    """
    arcs, fall = _arcs(orbit, n), _fall(model, orbit.params)
    t, foot, last, legs = 0.0, np.zeros(2), {}, {}
    walked = []
    for arc, _ in zip(itertools.cycle(arcs), range(steps * len(orbit.sequence)), strict=False):
        x, times = np.asarray(arc.x), t + np.asarray(arc.t - arc.t[0])
        ends = shapes(model, arc.mode, x[[0, -1]], orbit.params, foot)
        legs = _renamed(last, legs, {name: points[0] for name, points in ends.items()})
        landing = foot + np.asarray(model.travel(arc.mode, arc.x[-1], orbit.params)) @ fall
        walked.append(Step(arc.mode, times, x, foot, landing, legs))
        t, foot, last = times[-1], landing, {name: points[1] for name, points in ends.items()}
    return tuple(walked)


def shapes(model: ModuleType, mode: str, x: np.ndarray | jax.Array, params: Params, foot: np.ndarray) -> Shapes:
    """The model's outline on the ground: from `x`, shape `(frames, n)`, to points of shape `(frames, k, 2)`.

    The model draws from its stance foot, in a frame whose first axis falls to the right by `model.ground`.
    """
    outlines = jax.vmap(lambda x: model.outline(mode, x, params))(jnp.asarray(x))
    # `vmap` sorts the names; the model's first line is the one to mark.
    names = model.outline(mode, jnp.asarray(x[0]), params)
    return {name: np.asarray(outlines[name]) @ _fall(model, params) + foot for name in names}


def animate_orbit(
    orbit: PeriodicOrbit, model: ModuleType, steps: int = 4, fps: int = 30, speed: float = 1.0
) -> "matplotlib.animation.FuncAnimation":
    """The model walking down its slope, the camera beside it.

    Each leg keeps its colour when the legs change roles; the leg that stands is drawn thick. The camera moves with the
    mean velocity, so that an even number of steps of a biped plays round without a seam.

    **Arguments:** `model`: a module with `outline(mode, x, params)`, `travel(mode, x, params)` and `ground(params)`.
    `steps`: passes through the orbit's sequence. `speed`: at 1, a model in seconds plays in real time, and one in
    units of `sqrt(l/g)` plays as with legs of 1 m on the earth.

    **Returns:** a `matplotlib.animation.FuncAnimation`, for `save_animation`. A batch of orbits, an orbit that was not
    found, and a model without an outline are a `ValueError`.
    """
    plt = pyplot()
    from matplotlib.animation import FuncAnimation

    missing = [name for name in ("outline", "travel", "ground") if not hasattr(model, name)]
    if missing:
        raise ValueError(f"animate_orbit: {model!r} does not define {', '.join(missing)}.")
    if steps < 1 or fps <= 0 or speed <= 0:
        raise ValueError(f"animate_orbit: steps={steps}, fps={fps} and speed={speed} must be positive.")

    # Pose: the same time passes between any two frames, whatever the arcs' lengths.
    walked = walk(orbit, model, steps)
    time_unit = getattr(model, "time_unit", "")
    duration = walked[-1].t[-1]
    count = max(2, round(duration * SECONDS.get(time_unit, 1.0) / speed * fps))
    times = np.linspace(0.0, duration, count, endpoint=False)
    arc_of = np.searchsorted([step.t[-1] for step in walked], times, side="right")
    frames: list[tuple[Step, Shapes]] = []
    for k, step in enumerate(walked):
        here = times[arc_of == k]
        if here.size:
            x = np.stack([np.interp(here, step.t, column) for column in step.x.T], axis=-1)
            posed = shapes(model, step.mode, x, orbit.params, step.foot)
            frames += [(step, {name: points[i] for name, points in posed.items()}) for i in range(here.size)]

    # Camera: it holds every frame at a constant scale.
    stride = walked[-1].landing
    path = stride * (times / duration)[:, None]
    seen = np.concatenate([point - path[i] for i, (_, shape) in enumerate(frames) for point in shape.values()])
    (left, low), (right, high) = seen.min(axis=0), seen.max(axis=0)
    height = 1.25 * max(high - low, 0.5 * (right - left))
    width = max(1.2 * (right - left), 1.5 * height)
    view = np.array([[-width / 2, width / 2], [-0.12 * height, 0.88 * height]]) + [[(left + right) / 2], [low]]

    # Draw.
    fig = plt.figure(figsize=(4.8, 4.8 * height / width), facecolor="white")
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="box")
    feet = _footholds(np.stack([step.foot for step in walked]), stride, _fall(model, orbit.params)[0], width)
    ax.fill_between(feet[:, 0], feet[:, 1], feet[:, 1].min() - 2 * height, color=PALE, lw=0)
    ax.plot(feet[:, 0], feet[:, 1], color=GREY, lw=1.5, gid="ground")
    if np.any(stride != 0):
        ax.plot(feet[:, 0], feet[:, 1], "o", color=GREY, ms=4, gid="footholds")
    legs = {}
    for number in sorted({number for step in walked for number in step.legs.values()}):
        colour, above = (VERMILION, 4) if number == 0 else (BLUE, 3)
        legs[number] = ax.plot([], [], color=colour, zorder=above, solid_capstyle="round", gid=f"leg {number}")[0]
    dots = ax.plot([], [], "o", color=INK, ms=10, zorder=5)[0]
    fig.text(0.02, 0.97, getattr(model, "title", ""), va="top", color=INK, fontsize=11)
    clock = fig.text(0.98, 0.97, "", va="top", ha="right", color=INK, fontsize=10)

    def draw(i: int):
        step, shape = frames[i]
        for line in legs.values():
            line.set_data([], [])
        for name, number in step.legs.items():
            points = shape[name]
            stands = np.min(np.linalg.norm(points - step.foot, axis=-1)) < 1e-6
            legs[number].set(data=points.T, linewidth=5 if stands else 3)
        dots.set_data(*np.concatenate([np.zeros((0, 2)), *(p for p in shape.values() if len(p) == 1)]).T)
        clock.set_text(f"$t$ = {times[i]:.1f} {unit(time_unit)}")
        ax.set(xlim=view[0] + path[i, 0], ylim=view[1] + path[i, 1])
        return (*legs.values(), dots, clock)

    return FuncAnimation(fig, draw, frames=count, interval=1000 / fps, cache_frame_data=False)


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


def _fall(model: ModuleType, params: Params) -> np.ndarray:
    """From a row vector in the outline's frame to one in the vertical frame."""
    angle = float(model.ground(params))
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
