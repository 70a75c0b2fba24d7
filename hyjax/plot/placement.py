"""Arcs placed over the ground one after the other, and the model's outline in the vertical frame."""

import inspect
import itertools
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._flow.trajectory import Arc
from .._orbit.orbit import PeriodicOrbit
from .._system.types import Params
from .orbit_axes import arcs_of

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
    >>> arc, _ = hj.plot.walk(orbit, wheel, steps=2, n=10)
    >>> arc.mode, arc.x.shape, arc.landing.round(4).tolist()
    ('stance', (10, 2), [0.9801, -0.1987])
    """

    mode: str
    t: np.ndarray
    x: np.ndarray
    foot: np.ndarray
    landing: np.ndarray
    legs: dict[str, int]


def walk(orbit: PeriodicOrbit, model: Model, steps: int, n: int = 200) -> tuple[PlacedArc, ...]:
    """The arcs of an orbit, repeated over the ground: each arc starts at the foothold where the jump before it ended.

    **Arguments:** `orbit`: one orbit. `model`: as for `animate_orbit`. `steps`: passes through the orbit's sequence. `n`: sample
    times on each arc, both ends included.

    **Returns:** the `PlacedArc` of each pass through each mode, in order. `ValueError` for a batch, and for an orbit that failed.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> arcs = hj.plot.walk(orbit, wheel, steps=3, n=10)
    >>> len(arcs), arcs[2].foot.round(4).tolist()
    (3, [1.9601, -0.3973])
    """
    arcs = arcs_of(orbit, n)
    repeated = itertools.islice(itertools.cycle(arcs), steps * len(orbit.sequence))
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
    model: Model,
    mode: str,
    x: np.ndarray | jax.Array,
    params: Params,
    foot: np.ndarray,
    t: np.ndarray | None = None,
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
    >>> arc, _ = hj.plot.walk(orbit, wheel, steps=2, n=10)
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
