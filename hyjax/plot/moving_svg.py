"""A model that moves along its orbit, as one SVG image: keyframes without scripts, which notebooks show also without a kernel."""

import numpy as np

from .._orbit.orbit import PeriodicOrbit
from .figure import BLUE, GREY, INK, PALE, VERMILION
from .scene import footholds, frame_times, Model, PlacedArc, Shapes, shapes, touches, vertical_frame, view_of, walk

# Of the image, in pixels.
WIDTH = 360


def moving_svg(orbit: PeriodicOrbit, model: Model, steps: int = 2, n: int = 20) -> str:
    """The SVG image of a model along its orbit, repeated forever; the camera follows with the mean velocity.

    The states at the samples of each arc are keyframes, at their times; between them points move on straight lines.

    **Arguments:** `model`: as for `animate_orbit`. `steps`: passes through the orbit's sequence; of a biped an even number
    repeats without a jump. `n`: samples of an arc. **Returns:** the text of the image. `ValueError` for an orbit that was not
    found.
    """
    placed = walk(orbit, model, steps, n)
    poses = [shapes(model, arc.mode, arc.x, orbit.params, arc.foot, arc.t) for arc in placed]
    times = np.concatenate([arc.t for arc in placed]) / placed[-1].t[-1]
    path = placed[-1].landing * times[:, None]
    shown = np.split(path, len(placed))
    drawn = np.concatenate(
        [(points - here[:, None]).reshape(-1, 2) for pose, here in zip(poses, shown, strict=True) for points in pose.values()]
    )  # fmt: skip
    view = view_of(np.stack([drawn.min(axis=0), drawn.max(axis=0)]))
    scale = WIDTH / (view[0, 1] - view[0, 0])
    height = scale * (view[1, 1] - view[1, 0])
    to_pixels = lambda points: (points - [view[0, 0], view[1, 1]]) * [scale, -scale]

    seconds = len(frame_times(placed[-1].t[-1], model, orbit.params, 50, None)) / 50
    clock = f'dur="{seconds:.2f}s" repeatCount="indefinite" keyTimes="{";".join(f"{t:.4g}" for t in times)}"'
    ground = _ground(model, orbit, placed, poses, to_pixels, view) if hasattr(model, "ground") else ""
    moved = to_pixels(placed[-1].landing) - to_pixels(np.zeros(2))
    camera = (
        f'<animateTransform attributeName="transform" type="translate" values="0 0;{-moved[0]:.1f} {-moved[1]:.1f}" '
        f'dur="{seconds:.2f}s" repeatCount="indefinite"/>'
    )
    bodies = _lines(model, placed, poses, to_pixels, clock) + _dots(placed, poses, to_pixels, clock)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'stroke-linecap="round" stroke-linejoin="round"><rect width="100%" height="100%" fill="white"/>'
        f"<g>{camera}{ground}{bodies}</g></svg>"
    )


def _lines(model: Model, placed: tuple[PlacedArc, ...], poses: list[Shapes], to_pixels, clock: str) -> str:
    """The outline's lines: each keeps its number and colour when a jump gives the line another name."""
    scenery, named = (
        getattr(model, "scenery", ()),
        [{number: name for name, number in arc.legs.items()} for arc in placed],
    )
    text = ""
    for number in sorted({number for names in named for number in names}, reverse=True):
        names = [each.get(number) for each in named]
        longest = max(len(pose[name][0]) for pose, name in zip(poses, names, strict=True) if name)
        points, widths = [], []
        for arc, pose, name in zip(placed, poses, names, strict=True):
            line = (
                np.broadcast_to(arc.foot, (len(arc.t), longest, 2)) if name is None else _of_length(pose[name], longest)
            )
            stands = name is not None and hasattr(model, "ground") and touches(pose[name][0], arc.foot)
            points += [_points(each) for each in to_pixels(line)]
            widths += ["0" if name is None else "5" if stands else "3"] * len(arc.t)
        colour = GREY if any(name in scenery for name in names) else VERMILION if number == 0 else BLUE
        text += (
            f'<polyline fill="none" stroke="{colour}" points="{points[0]}" stroke-width="{widths[0]}">'
            f'<animate attributeName="points" values="{";".join(points)}" {clock}/>'
            f'<animate attributeName="stroke-width" calcMode="discrete" values="{";".join(widths)}" {clock}/></polyline>'
        )
    return text


def _dots(placed: tuple[PlacedArc, ...], poses: list[Shapes], to_pixels, clock: str) -> str:
    """The outline's single points, such as a hip."""
    text = ""
    for name in dict.fromkeys(name for pose in poses for name, points in pose.items() if points.shape[1] == 1):
        at = [to_pixels(pose[name][:, 0]) if name in pose else np.full((len(arc.t), 2), np.nan)
              for arc, pose in zip(placed, poses, strict=True)]  # fmt: skip
        place = np.concatenate(at)
        radii = ["5" if np.isfinite(x) else "0" for x in place[:, 0]]
        place = np.nan_to_num(place)
        moves = "".join(
            f'<animate attributeName="{axis}" values="{";".join(f"{x:.1f}" for x in column)}" {clock}/>'
            for axis, column in zip(("cx", "cy"), place.T, strict=True)
        )
        moves += f'<animate attributeName="r" calcMode="discrete" values="{";".join(radii)}" {clock}/>'
        text += f'<circle cx="{place[0, 0]:.1f}" cy="{place[0, 1]:.1f}" r="{radii[0]}" fill="{INK}">{moves}</circle>'
    return text


def _ground(
    model: Model, orbit: PeriodicOrbit, placed: tuple[PlacedArc, ...], poses: list[Shapes], to_pixels, view
) -> str:
    """The ground under the camera's path, with a mark at each foothold."""
    standing = [
        arc for arc, pose in zip(placed, poses, strict=True) if any(touches(p[0], arc.foot) for p in pose.values())
    ]
    stride, (width, height) = placed[-1].landing, np.diff(view, axis=1)[:, 0]
    feet = np.stack([arc.foot for arc in standing or placed[:1]])
    line = footholds(feet, stride, vertical_frame(model, orbit.params)[0], width)
    deep = line[:, 1].min() - 2 * height
    under = np.concatenate([line, [[line[-1, 0], deep], [line[0, 0], deep]]])
    marks = to_pixels(line) if np.any(stride != 0) and standing else ()
    return (
        f'<polygon fill="{PALE}" points="{_points(to_pixels(under))}"/>'
        f'<polyline fill="none" stroke="{GREY}" stroke-width="1.5" points="{_points(to_pixels(line))}"/>'
        + "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{GREY}"/>' for x, y in marks)
    )


def _of_length(line: np.ndarray, longest: int) -> np.ndarray:
    """Lines, shape `(samples, k, 2)`, with the last point repeated: SVG moves lines of one number of points only."""
    return np.concatenate([line, np.repeat(line[:, -1:], longest - line.shape[1], axis=1)], axis=1)


def _points(line: np.ndarray) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
