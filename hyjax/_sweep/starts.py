r"""Where the orbits of a grid begin: a coarse part of the grid is solved first, and every point starts from that.

From the given orbit to the nearest coarse point, and on from neighbour to neighbour, along straight lines in steps that Newton's
method follows; each finer level starts by interpolation in the one before. So a start depends on the grid alone, and not on
what else is computed or when. A start that led far from itself has led to another orbit, and is refused.
"""

import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

# How many coarse points an axis has, by the number of axes; at the end, and at the beginning.
FINE, ROUGH = {1: 129, 2: 33, 3: 17}, {1: 9, 2: 9, 3: 5}
# `(values, y) -> (y, iterations)`, shapes `(lanes, free)` and `(lanes, n)`; NaN where no orbit was found.
Solve = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# Points in each axis of the polynomial that interpolates: tried in turn, where some of its points have no orbit.
WINDOWS = {1: (6, 4, 2), 2: (6, 4, 2), 3: (4, 2)}


class Coarse:
    """**Attributes:** `axes`: the coarse points' values along each axis, ascending. `y`: their orbits, before the closing jump,
    shape `(*points, n)`; NaN where there is none."""

    def __init__(self, values: tuple[np.ndarray, ...], n: int, dtype):
        most = FINE.get(len(values), 9)
        ascending = [np.sort(axis) for axis in values]
        self.axes = tuple(
            axis[np.unique(np.round(np.linspace(0, len(axis) - 1, most)).astype(int))] for axis in ascending
        )
        self.y = np.full((*(len(axis) for axis in self.axes), n), np.nan, dtype)

    @property
    def known(self) -> np.ndarray:
        return np.isfinite(self.y[..., 0])

    def at(self, index: np.ndarray) -> np.ndarray:
        """The values of points given by rows of indices."""
        return np.stack([axis[index[:, k]] for k, axis in enumerate(self.axes)], axis=-1)

    def seeds(self, values: Float[np.ndarray, "points free"]) -> tuple[np.ndarray, np.ndarray]:
        """Starts for points, and how far from its start an orbit may lie; by interpolation, or from the nearest."""
        y = np.full((len(values), self.y.shape[-1]), np.nan, self.y.dtype)
        reach = np.zeros(len(values))
        for width in WINDOWS.get(len(self.axes), (2,)):
            rest = np.flatnonzero(~np.isfinite(y[:, 0]))
            if not rest.size:
                return y, reach
            y[rest], reach[rest] = self._interpolated(values[rest], width)
        rest = np.flatnonzero(~np.isfinite(y[:, 0]))
        if rest.size and self.known.any():
            y[rest], reach[rest] = self._nearest(values[rest])
        return y, reach

    def _interpolated(self, values, width):
        windows, weights = [], []
        for k, axis in enumerate(self.axes):
            q = min(width, len(axis))
            first = np.clip(np.searchsorted(axis, values[:, k]) - (q + 1) // 2, 0, len(axis) - q)
            window = first[:, None] + np.arange(q)
            at = axis[window]
            # Lagrange's polynomials.
            weight = np.ones(at.shape)
            for i, j in itertools.permutations(range(q), 2):
                weight[:, i] *= (values[:, k] - at[:, j]) / (at[:, i] - at[:, j])
            windows.append(window)
            weights.append(weight)
        y = np.zeros((len(values), self.y.shape[-1]), self.y.dtype)
        low, high = np.full(y.shape, np.inf), np.full(y.shape, -np.inf)
        for corner in itertools.product(*(range(window.shape[1]) for window in windows)):
            node = self.y[tuple(window[:, i] for window, i in zip(windows, corner, strict=True))]
            y += (np.prod([weight[:, i] for weight, i in zip(weights, corner, strict=True)], axis=0))[:, None] * node
            low, high = np.minimum(low, node), np.maximum(high, node)
        return y, 0.3 * np.max(high - low, axis=1)

    def _nearest(self, values):
        """The orbit at the nearest coarse point that has one; counted in points along the axes."""
        nodes = np.argwhere(self.known)
        steps = lambda points: np.stack(
            [np.interp(points[:, k], axis, np.arange(len(axis))) for k, axis in enumerate(self.axes)], axis=-1
        )
        place = steps(values)
        chosen = np.array([np.argmin(np.sum((nodes - each) ** 2, axis=1)) for each in place])
        y = self.y[tuple(nodes[chosen].T)]
        away = np.max(np.abs(nodes[chosen] - place), axis=1)
        return y, 2 * (1 + away) * self._variation(nodes[chosen])

    def _variation(self, index: np.ndarray) -> np.ndarray:
        """The largest difference to a neighbour."""
        here, most = self.y[tuple(index.T)], np.zeros(len(index))
        for k, axis in enumerate(self.axes):
            for way in (-1, 1):
                there = index.copy()
                there[:, k] = np.clip(there[:, k] + way, 0, len(axis) - 1)
                apart = np.max(np.abs(self.y[tuple(there.T)] - here), axis=1)
                most = np.maximum(most, np.where(np.isfinite(apart), apart, 0))
        return most


def solve_coarse(
    coarse: Coarse, solve: Solve, start: tuple[np.ndarray, np.ndarray], along: Callable | None = None
) -> Coarse:
    """Fill in a coarse grid. `start`: parameters and `y` of an orbit. `along`: instead, `values -> y`, from a branch."""
    shape, dims = coarse.y.shape[:-1], len(coarse.axes)
    spacings, rough = [1], ROUGH.get(dims, 3)
    while max(shape) // spacings[-1] >= rough:
        spacings.append(2 * spacings[-1])
    for level, spacing in enumerate(spacings[::-1]):
        lines = [np.unique([*range(0, m, spacing), m - 1]) for m in shape]
        nodes = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, dims)
        todo = nodes[~coarse.known[tuple(nodes.T)]]
        if along is not None:
            seeds = along(coarse.at(todo))
            _accept(coarse, todo, *solve(coarse.at(todo), seeds), seeds, np.inf)
        elif level == 0:
            widths = np.array([np.ptp(axis) or 1 for axis in coarse.axes])
            nearest = nodes[np.argmin(np.sum(((coarse.at(nodes) - start[0]) / widths) ** 2, axis=1))][None]
            y = march(solve, start[0][None], start[1][None], coarse.at(nearest), np.full_like(start[1][None], np.nan))
            coarse.y[tuple(nearest.T)] = y
        elif len(todo):
            seeds, reach = coarse.seeds(coarse.at(todo))
            sound = np.isfinite(seeds[:, 0])
            todo, seeds, reach = todo[sound], seeds[sound], reach[sound]
            if len(todo):
                _accept(coarse, todo, *solve(coarse.at(todo), seeds), seeds, reach)
        _flood(coarse, solve, lines)
    return coarse


def _accept(coarse: Coarse, index, y, iterations, seeds, reach):
    near = np.max(np.abs(y - seeds), axis=1) <= reach + 1e-6 * np.max(np.abs(seeds), axis=1)
    coarse.y[tuple(index[near].T)] = y[near]


def _flood(coarse: Coarse, solve: Solve, lines: list[np.ndarray]) -> None:
    """From every point that has an orbit to its neighbours that have none, once along each edge, as far as it goes."""
    tried = set()
    while True:
        edges = []
        known = coarse.known
        wanted = set()
        for place in np.ndindex(*(len(line) for line in lines)):
            here = tuple(int(line[i]) for line, i in zip(lines, place, strict=True))
            if known[here] or here in wanted:
                continue
            for k, way in itertools.product(range(len(lines)), (-1, 1)):
                beside = lambda steps, k=k, way=way, place=place: tuple(
                    int(line[i + way * steps * (j == k)]) for j, (line, i) in enumerate(zip(lines, place, strict=True))
                )
                if not 0 <= place[k] + way < len(lines[k]) or not known[beside(1)] or (here, beside(1)) in tried:
                    continue
                beyond = beside(2) if 0 <= place[k] + 2 * way < len(lines[k]) else None
                edges.append((here, beside(1), beyond if beyond is not None and known[beyond] else None))
                tried.add((here, beside(1)))
                wanted.add(here)
                break
        if not edges:
            return
        to, via = (np.array([edge[i] for edge in edges]) for i in (0, 1))
        slope = np.full((len(edges), coarse.y.shape[-1]), np.nan)
        for row, (end, middle, beyond) in enumerate(edges):
            if beyond is not None:
                # How the orbit moved on the last edge, for one as long as this.
                steps = [coarse.at(np.array([each]))[0] for each in (end, middle, beyond)]
                ratio = np.sum(np.abs(steps[0] - steps[1])) / np.sum(np.abs(steps[1] - steps[2]))
                slope[row] = (coarse.y[middle] - coarse.y[beyond]) * ratio
        ends = march(solve, coarse.at(via), coarse.y[tuple(via.T)], coarse.at(to), slope)
        coarse.y[tuple(to.T)] = ends


def march(solve: Solve, first, y, last, slope, shortest: float = 2e-4, most: int = 40) -> np.ndarray:
    """Orbits along straight lines in the parameters, all lines together. NaN for lines that were not followed to their end.

    **Arguments:** `first`, `last`: shape `(lines, free)`. `y`: the orbits at `first`. `slope`: how `y` will move over the
    whole line, or NaN. `shortest`, `most`: a step below this part of its line, or so many steps, end it.
    """
    s, y, slope = np.zeros(len(y)), y.copy(), slope.copy()
    # With no idea of where the orbit moves to, a very short step tells.
    h = np.where(np.isfinite(slope[:, 0]), 1.0, 1e-3)
    same = np.all(first == last, axis=1)
    h[same] = 1.0
    alive = np.isfinite(y[:, 0])
    for _ in range(most):
        going = np.flatnonzero(alive & (s < 1))
        if not going.size:
            break
        h[going] = np.minimum(h[going], 1 - s[going])
        t = s[going] + h[going]
        t[t > 1 - 1e-12] = 1
        to = first[going] + t[:, None] * (last[going] - first[going])
        to[t == 1] = last[going][t == 1]
        known = np.isfinite(slope[going, 0])
        guess = y[going] + np.where(known[:, None], slope[going] * (t - s[going])[:, None], 0)
        found, iterations = solve(to, guess)
        size = np.max(np.abs(y[going]), axis=1)
        moved = np.max(np.abs(found - y[going]), axis=1)
        off = np.max(np.abs(found - guess), axis=1)
        # Without a slope the move itself is small; with one, most of it was foreseen.
        near = np.where(known, off <= 0.2 * moved + 1e-5 * size, moved <= 0.05 * size)
        good = np.isfinite(found[:, 0]) & near & (iterations <= 6)
        on = going[good]
        slope[on] = np.where(same[on, None], 0, (found[good] - y[on]) / (t[good] - s[on])[:, None])
        h[on] *= np.where(known[good], 3, 4)
        y[on], s[on] = found[good], t[good]
        h[going[~good]] /= 4
        alive[going[~good]] &= h[going[~good]] >= shortest
    y[s < 1] = np.nan
    return y
