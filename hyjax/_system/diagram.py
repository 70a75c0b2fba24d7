"""A hybrid system as a diagram of its modes and transitions, in SVG, with tables of both; without other tools."""

import html
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TYPE_CHECKING

from .table import Table

if TYPE_CHECKING:
    from .system import HybridSystem

# Beyond that many modes and arrows a diagram is a tangle: the tables alone are shown.
MOST_MODES, MOST_ARROWS = 10, 20
_HEIGHT, _LETTER, _LINE = 36.0, 7.6, 15.0
Point = tuple[float, float]


def system_html(system: "HybridSystem") -> str:
    """The diagram, and tables of modes and transitions."""
    whole = "".join(table.html() for table in _tables(system))
    arrows = {(way.source, way.target) for way in system.transitions}
    return (diagram(system) if len(system.names) <= MOST_MODES and len(arrows) <= MOST_ARROWS else "") + whole


def diagram(system: "HybridSystem") -> str:
    """The modes as boxes on a circle and the transitions as arrows with the numbers that they have in the table.

    The lines have the colour of the page's text, so the diagram is readable on a light and on a dark page.
    """
    boxes = {name: _Box(*place, _width(name)) for name, place in _places(system.names).items()}
    numbers: dict[tuple[str, str], list[int]] = {}
    for k, way in enumerate(system.transitions):
        numbers.setdefault((way.source, way.target), []).append(k)
    parts, points, labels, numbered = [], [corner for box in boxes.values() for corner in box.corners], [], []
    for (source, target), ways in numbers.items():
        # Where no arrow leads back, there is none to keep away from.
        bend = 34.0 if (target, source) in numbers else 12.0
        path = _loop(boxes[source]) if source == target else _arrow(boxes[source], boxes[target], bend)
        label, at = ", ".join(map(str, ways)), _clear(path, [*labels, *(box[:2] for box in boxes.values())])
        labels.append(at)
        points += [*path, (at[0] - _width(label) / 2, at[1] - _LINE), (at[0] + _width(label) / 2, at[1] + _LINE)]
        parts.append(_path(path))
        numbered.append(_text(at, label, 13, halo=True))
    for name, box in boxes.items():
        parts += [_rectangle(box), _text((box.x, box.y), name, 14)]
    parts += numbered
    left, top = (min(point[i] for point in points) - 8 for i in (0, 1))
    width, height = (max(point[i] for point in points) + 8 - low for i, low in ((0, left), (1, top)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{_described(system)}" width="{width:.0f}" '
        f'viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}" style="max-width: 100%; height: auto; '
        f'font-family: sans-serif; overflow: visible;" fill="currentColor" stroke="none">{"".join(parts)}</svg>'
    )


class _Box(NamedTuple):
    """The box of a mode, by its centre and width."""

    x: float
    y: float
    width: float

    @property
    def corners(self) -> tuple[Point, Point]:
        return (
            (self.x - self.width / 2, self.y - _HEIGHT / 2),
            (self.x + self.width / 2, self.y + _HEIGHT / 2),
        )

    def border(self, towards: Point) -> Point:
        """Where the line from the centre to a point leaves the box."""
        dx, dy = towards[0] - self.x, towards[1] - self.y
        scale = min(
            self.width / 2 / abs(dx) if dx else math.inf,
            _HEIGHT / 2 / abs(dy) if dy else math.inf,
        )
        return self.x + scale * dx, self.y + scale * dy


def _places(names: Sequence[str]) -> dict[str, Point]:
    """The centres of the boxes: on a line up to two, then on an ellipse, clockwise from the left or the top."""
    widest, n = max(map(_width, names)), len(names)
    if n <= 2:
        return {name: (k * (widest + 130), 0.0) for k, name in enumerate(names)}
    across, down = max(n * (widest + 60) / (2 * math.pi), 0.75 * widest + 80), max(n * 80 / (2 * math.pi), 90.0)
    angles = [2 * math.pi * k / n - math.pi / (2 if n % 2 else n) - math.pi / 2 * (n % 2 == 0) for k in range(n)]
    return {name: (across * math.cos(a), down * math.sin(a)) for name, a in zip(names, angles, strict=True)}


def _arrow(source: _Box, target: _Box, bend: float) -> tuple[Point, Point, Point, Point]:
    """A cubic curve between two boxes, bent to its left, so that the two directions do not meet."""
    dx, dy = target.x - source.x, target.y - source.y
    length = math.hypot(dx, dy)
    aside = (dy / length * bend, -dx / length * bend)
    controls = [(source.x + f * dx + aside[0], source.y + f * dy + aside[1]) for f in (0.35, 0.65)]
    return source.border(controls[0]), controls[0], controls[1], target.border(controls[1])


def _loop(box: _Box) -> tuple[Point, Point, Point, Point]:
    """A cubic curve from a box to itself: above the box, or below it in the lower half of the diagram."""
    side = 1 if box.y > 1 else -1
    reach, edge = min(box.width / 4, 16.0), box.y + side * _HEIGHT / 2
    far = edge + side * 46
    return (box.x - reach, edge), (box.x - 2.6 * reach, far), (box.x + 2.6 * reach, far), (box.x + reach, edge)


def _curve(path: Sequence[Point], s: float) -> Point:
    """The point at `s`, from 0 to 1, of a cubic curve."""
    weights = ((1 - s) ** 3, 3 * s * (1 - s) ** 2, 3 * s**2 * (1 - s), s**3)
    x, y = (sum(w * point[i] for w, point in zip(weights, path, strict=True)) for i in (0, 1))
    return x, y


def _clear(path: Sequence[Point], taken: Sequence[Point]) -> Point:
    """The point of the middle part of a curve that is farthest from the points taken."""
    candidates = [_curve(path, s) for s in (0.5, 0.42, 0.58, 0.34, 0.66, 0.26)]
    return max(candidates, key=lambda at: min(26.0, *(math.dist(at, each) for each in taken)))


def _path(path: Sequence[Point]) -> str:
    """The curve, and its head: no marker, whose name could occur twice on a page."""
    curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in path[1:])
    (x, y), behind = path[-1], path[2]
    length = math.hypot(x - behind[0], y - behind[1]) or 1.0
    ux, uy = (x - behind[0]) / length, (y - behind[1]) / length
    head = [(x, y), *((x - 9 * ux + side * 4 * uy, y - 9 * uy - side * 4 * ux) for side in (1, -1))]
    return (
        f'<path d="M{path[0][0]:.1f},{path[0][1]:.1f} C{curve}" fill="none" stroke="currentColor" stroke-width="1.4" '
        f'stroke-opacity="0.75"/><polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in head)}"/>'
    )


def _rectangle(box: _Box) -> str:
    (left, top), _ = box.corners
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{_HEIGHT}" rx="9" fill="#0072B2" '
        'fill-opacity="0.14" stroke="#0072B2" stroke-width="1.6"/>'
    )


def _text(at: Point, text: str, size: int, halo: bool = False) -> str:
    """A text in the middle of a point; with `halo` on a disc, where a line passes."""
    disc = ""
    if halo:
        width = max(18.0, _LETTER * len(text) + 8)
        disc = (
            f'<rect x="{at[0] - width / 2:.1f}" y="{at[1] - 9:.1f}" width="{width:.1f}" height="18" rx="9" fill="#7f7f7f" '
            'stroke="none"/>'
        )
    fill = ' fill="#fff"' if halo else ""
    return (
        f'{disc}<text x="{at[0]:.1f}" y="{at[1]:.1f}" font-size="{size}" text-anchor="middle" dominant-baseline="central"'
        f"{fill}>{html.escape(text)}</text>"
    )


def _width(text: str) -> float:
    return max(64.0, _LETTER * len(text) + 26)


def _described(system: "HybridSystem") -> str:
    ways = "; ".join(f"{way.source} to {way.target}" for way in system.transitions)
    return html.escape(f"Modes: {', '.join(system.names)}. Transitions: {ways or 'none'}.", quote=True)


def _tables(system: "HybridSystem") -> Iterator[Table]:
    time = f", time in {system.time_unit.replace('sqrt(', '√(')}" if system.time_unit not in ("", "1") else ""
    rows = []
    for name, mode in system.modes.items():
        units = [*mode.units, *[""] * mode.dimension]
        state = ", ".join(
            f"{each} ({unit.replace('sqrt(', '√(')})" if unit not in ("", "1") else each
            for each, unit in zip(mode.coordinates, units, strict=False)
        )
        rows.append((name, state, _name(mode.vector_field), _name(mode.domain)))
    yield _filled(
        f"HybridSystem: {len(rows)} mode{'s' * (len(rows) != 1)}{time}", rows, ("mode", "state", "flow", "domain")
    )
    if system.transitions:
        ways = [
            (
                str(k),
                f"{way.source} -> {way.target}",
                _name(way.guard),
                _name(way.reset),
                _name(way.armed),
                "yes" if way.at_once else "",
            )
            for k, way in enumerate(system.transitions)
        ]
        yield _filled("", ways, ("number", "transition", "guard falls", "reset", "armed", "at once"))


def _filled(caption: str, rows: Sequence[Sequence[str]], heads: Sequence[str]) -> Table:
    """A table without the columns that are empty."""
    kept = [k for k in range(len(heads)) if any(row[k] for row in rows)]
    return Table(caption, [[row[k] for k in kept] for row in rows], [heads[k] for k in kept])


def _name(fn: Any) -> str:
    """The name of a function, as far as it has one."""
    if fn is None:
        return ""
    inner = getattr(fn, "func", fn)  # of a partial function
    return getattr(inner, "__name__", type(inner).__name__).replace("<lambda>", "λ")
