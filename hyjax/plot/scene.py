"""A walk in one pair of axes: arcs placed over the ground one after the other, the outline of the model in the vertical frame,
and its lines frame by frame, under a camera that follows."""

import inspect
import itertools
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._flow.trajectory import Arc
from .._orbit.orbit import PeriodicOrbit
from .._results.labels import units_of
from .._system.types import Params
from .figure import BLUE, GREY, INK, PALE, quantity, unit, VERMILION
from .orbit_axes import arcs_of

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.lines

# The lines of an outline: from the name of each to its points, shape `(k, 2)`.
Shapes = dict[str, np.ndarray]
# A model is a module, or a namespace with the same functions.
Model = ModuleType | SimpleNamespace


class PlacedArc(eqx.Module):
    """An arc of a trajectory with its place on the ground.

    **Attributes:** `mode`: its name. `t`: shape `(n,)`, from the start of the first arc. `x`: shape `(n, dimension)`. `foot`:
    shape `(2,)`, the origin of the outline, for a walker the stance foot; gravity points along `(0, -1)`. `landing`: shape
    `(2,)`, the origin after the jump at the arc's end. `legs`: from the names of the outline's lines to numbers; a line keeps its
    number when a jump gives the line another name.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> arc, _ = hj.plot.walk(orbit, wheel, strides=2, n_samples=10)
    >>> arc.mode, arc.x.shape, arc.landing.round(4).tolist()
    ('stance', (10, 2), [0.9801, -0.1987])
    """

    mode: str
    t: np.ndarray
    x: np.ndarray
    foot: np.ndarray
    landing: np.ndarray
    legs: dict[str, int]


def walk(orbit: PeriodicOrbit, model: Model, strides: int, n_samples: int = 200) -> tuple[PlacedArc, ...]:
    """The arcs of an orbit, repeated over the ground: each arc starts at the foothold where the jump before it ended.

    **Arguments:** `orbit`: one orbit. `model`: as for `animate_orbit`. `strides`: passes through its sequence. `n_samples`:
    sample times on each arc, both ends included.

    **Returns:** the `PlacedArc` of each pass through each mode, in order. `ValueError` for a batch, and for an orbit that failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> arcs = hj.plot.walk(orbit, wheel, strides=3, n_samples=10)
    >>> len(arcs), arcs[2].foot.round(4).tolist()
    (3, [1.9601, -0.3973])
    """
    arcs = arcs_of(orbit, n_samples)
    repeated = itertools.islice(itertools.cycle(arcs), strides * len(orbit.sequence))
    return placed_arcs(repeated, model, orbit.params)


def placed_arcs(arcs: Iterable[Arc], model: Model, params: Params) -> tuple[PlacedArc, ...]:
    """Consecutive arcs, each with its start time and its place on the ground."""
    to_vertical, travel = vertical_frame(model, params), getattr(model, "travel", lambda mode, x, params: np.zeros(2))
    t, foot, last, legs = 0.0, np.zeros(2), {}, {}
    placed = []
    for arc in arcs:
        x, times = np.asarray(arc.x), t + np.asarray(arc.t - arc.t[0])
        ends = shapes(model, arc.mode, x[[0, -1]], params, foot, times[[0, -1]])
        legs = line_numbers(last, legs, {name: points[0] for name, points in ends.items()})
        landing = foot + np.asarray(travel(arc.mode, arc.x[-1], params)) @ to_vertical
        placed.append(PlacedArc(arc.mode, times, x, foot, landing, legs))
        t, foot, last = times[-1], landing, {name: points[1] for name, points in ends.items()}
    return tuple(placed)


def shapes(
    model: Model, mode: str, x: np.ndarray | jax.Array, params: Params, foot: np.ndarray, t: np.ndarray | None = None
) -> Shapes:
    """The lines of the model's outline in the vertical frame: from `x`, shape `(frames, n)`, to points `(frames, k, 2)`.

    The model's own frame has its origin at `foot`, and its first axis falls to the right by the angle `model.ground`. The
    outline of a forced model also takes the time: `outline(mode, x, params, t)`.

    **Arguments:** `model`: as for `animate_orbit`. `mode`: the name of the mode of the states `x`. `params`: of the model.
    `foot`: the origin of the outline, shape `(2,)`. `t`: times, shape `(frames,)`, by default 0.

    **Returns:** the points by the names of the lines, in the units of the outline. `AttributeError` for a model without outline.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> arc, _ = hj.plot.walk(orbit, wheel, strides=2, n_samples=10)
    >>> lines = hj.plot.shapes(wheel, arc.mode, arc.x, params, arc.foot)
    >>> lines["stance spoke"].shape
    (10, 2, 2)
    """
    x = jnp.asarray(x)
    times = jnp.zeros(x.shape[0], x.dtype) if t is None else jnp.asarray(t, x.dtype)
    timed = "t" in inspect.signature(model.outline).parameters
    names: list[str] = []

    def outline(t, x):
        lines = model.outline(mode, x, params, t) if timed else model.outline(mode, x, params)
        # `vmap` sorts the names, but the first line of the model's own order is drawn in the accent colour.
        names[:] = lines
        return [jnp.asarray(line) for line in lines.values()]

    lines, frame = jax.vmap(outline)(times, x), vertical_frame(model, params)
    return {name: np.asarray(line) @ frame + foot for name, line in zip(names, lines, strict=True)}


def vertical_frame(model: Model, params: Params) -> np.ndarray:
    """The rotation that takes a row vector in the outline's frame to the vertical frame, shape `(2, 2)`."""
    angle = float(model.ground(params)) if hasattr(model, "ground") else 0.0
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def line_numbers(last: Shapes, legs: dict[str, int], now: Shapes) -> dict[str, int]:
    """A number for each line after a jump: that of the nearest line before the jump.

    **Arguments:** `last`: the lines just before the jump. `legs`: their numbers. `now`: the lines just after it.
    """
    lines = [name for name, points in now.items() if len(points) > 1]
    close = sorted((_distance(last[old], now[new]), old, new) for old in legs for new in lines)
    numbers, taken = {}, set()
    for _, old, new in close:
        if new not in numbers and old not in taken:
            numbers[new] = legs[old]
            taken.add(old)
    for name in lines:
        if name not in numbers:
            numbers[name] = next(number for number in itertools.count() if number not in numbers.values())
    return numbers


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """The largest distance between the ends of two lines, for the closer of the two ways to pair the ends."""
    a, b = one[[0, -1]], other[[0, -1]]
    return float(min(np.abs(a - b).max(), np.abs(a - b[::-1]).max()))


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
