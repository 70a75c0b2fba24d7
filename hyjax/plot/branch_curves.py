"""The curves of branches for a diagram: cut where the stability changes, and joined to the special point they come from."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

if TYPE_CHECKING:
    from .._continuation.branch import Branch
    from .._continuation.special_points import SpecialPoint

# A doubled branch begins at most so far from its period doubling, relative to the state's size and to the branches' interval.
NEAR = 0.05


class Curve(NamedTuple):
    """A part of a branch whose orbits are all stable, or all unstable."""

    values: Float[np.ndarray, " points"]
    heights: Float[np.ndarray, "points curves"]
    stable: bool


class Line(NamedTuple):
    """A branch as a line through its points and its special points; `stable` is that of the way to the next point."""

    values: Float[np.ndarray, " points"]
    heights: Float[np.ndarray, "points curves"]
    stable: Bool[np.ndarray, " points"]


def curves_of(branches: "Sequence[Branch]", coordinate: str) -> list[list[Curve]]:
    """The curves of each branch."""
    return [list(_cut(_begun(_line(branch, coordinate), branch, branches, coordinate))) for branch in branches]


def heights_at(point: "SpecialPoint", coordinate: str) -> Float[np.ndarray, " strides"]:
    """The ordinates of a special point: one for each stride, or the period per stride."""
    orbit = point.orbit
    if coordinate == "period":
        return np.asarray(orbit.period)[None] / orbit.strides
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    return np.asarray(orbit.nodes)[:, names.index(coordinate)]


def _line(branch: "Branch", coordinate: str) -> Line:
    """The points of a branch with its special points between them, where the stability changes."""
    values, heights, stable = branch.values, branch.heights(coordinate), branch.stable
    inside: dict[int, list[SpecialPoint]] = {}
    for point in branch.special_points if len(values) > 1 else ():
        inside.setdefault(_segment(branch, point), []).append(point)
    rows = []
    for i in range(len(values)):
        rows.append((values[i], heights[i], bool(stable[i])))
        # Grazing points lie beyond the ends.
        between = [point for point in inside.get(i, ()) if point.kind not in ("grazing", "corner")]
        for point in sorted(between, key=lambda point: abs(float(point.value) - values[i])):
            rows.append((float(point.value), heights_at(point, coordinate), bool(stable[i + 1])))
    columns = zip(*rows, strict=True)
    return Line(*(np.array(column) for column in columns))


def _segment(branch: "Branch", point: "SpecialPoint") -> int:
    """The number of the point before a special point: the way to the next point that the special point prolongs least."""
    v, there = np.asarray(branch._points["v"]), np.asarray(point.v)[: branch._points["v"].shape[1]]
    to = np.linalg.norm(v - there, axis=1)
    detour = to[:-1] + to[1:] - np.linalg.norm(np.diff(v, axis=0), axis=1)
    return int(np.argmin(detour))


def _begun(line: Line, branch: "Branch", branches: "Sequence[Branch]", coordinate: str) -> Line:
    """The line with the period doubling that it comes from, where one of the other branches has it."""
    strides = branch.unfolding.problem.strides
    nodes = np.asarray(branch._points["nodes"])
    span = max(np.ptp(each.values) for each in branches)
    for point in (point for other in branches if other is not branch for point in other.special_points):
        if point.kind != "period-doubling" or 2 * point.orbit.strides != strides:
            continue
        twice = np.tile(np.asarray(point.orbit.nodes), (2, 1))
        for end in (0, -1):
            apart = np.max(np.abs(nodes[end] - twice)) / np.max(np.abs(twice))
            if apart < NEAR and abs(branch.values[end] - float(point.value)) < NEAR * span:
                height = np.resize(heights_at(point, coordinate), line.heights.shape[1])
                place = 0 if end == 0 else len(line.values)
                return Line(
                    np.insert(line.values, place, float(point.value)),
                    np.insert(line.heights, place, height, axis=0),
                    np.insert(line.stable, place, line.stable[end]),
                )
    return line


def _cut(line: Line) -> Iterator[Curve]:
    """The parts of one stability, each with the point where the next begins."""
    changes = np.flatnonzero(np.diff(line.stable.astype(int))) + 1
    for start, end in zip([0, *changes], [*changes, len(line.stable)], strict=True):
        piece = slice(start, min(end + 1, len(line.stable)))
        yield Curve(line.values[piece], line.heights[piece], bool(line.stable[start]))
