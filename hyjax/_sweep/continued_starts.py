r"""Initial guesses for the orbits of a grid: interpolation of the orbits on a coarse subgrid, which is solved first.

The coarse subgrid is solved by continuation along straight lines in the parameters, from the given orbit to the nearest coarse
point and then from neighbour to neighbour; each finer level starts by interpolation in the level before. So a guess depends on
the grid alone, not on the order of the computation. An orbit far from its guess lies on another branch, and is rejected.

Over prescribed quantities the coarse grid is solved by continuation along tangents. Where two families of orbits cross, both are
near, and Newton's method may end at either. Their tangents, the derivatives $v'$ of the unknowns by the values on the axes, are
different. So a step is accepted where the tangents at both ends agree with it,

$$v_1 - v_0 \approx \tfrac12 (v_0' + v_1')\,\Delta,$$

whose error on one family is of third order in the step.
"""

import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

# The number of coarse points along an axis on the finest and on the roughest level, by the number of axes
# with several values.
FINE, ROUGH = {1: 129, 2: 33, 3: 17}, {1: 9, 2: 9, 3: 5}
# `(values, y) -> (y, iterations)`, shapes `(lanes, free)` and `(lanes, n)`; NaN where no orbit was found.
Solve = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# An orbit may be as far from its guess as a part of the variation over this many points along each axis.
SPAN = 6
# Points along each axis for the interpolating polynomial; a smaller window is tried where one of these points has no orbit.
WINDOWS = {1: (10, 6, 4, 2), 2: (6, 4, 2), 3: (4, 2)}
# The step that measures how an orbit changes, and the shortest one, as fractions of the line along which it is continued; the
# largest number of steps.
FIRST, LEAST, STEPS = 1e-3, 2e-4, 40


class CoarseGrid:
    """A coarse subgrid with the orbits on it.

    **Arguments:** `strict`: whether families of orbits may cross, as those with prescribed quantities do. Then an orbit is
    accepted only as near to its guess as ten times the distance between two interpolations of different degree, or a
    thousandth of the orbits' variation.

    **Attributes:** `axes`: the values of the coarse points along each axis, ascending. `y`: the pre-impact states of their
    orbits, shape `(*points, n)`; NaN where no orbit was found.
    """

    def __init__(self, values: tuple[np.ndarray, ...], n: int, dtype, strict: bool = False):
        most = FINE.get(varying(values), 9)
        ascending = [np.sort(axis) for axis in values]
        self.axes = tuple(
            axis[np.unique(np.round(np.linspace(0, len(axis) - 1, most)).astype(int))] for axis in ascending
        )
        self.strict = strict
        self.y = np.full((*(len(axis) for axis in self.axes), n), np.nan, dtype)

    @property
    def known(self) -> np.ndarray:
        """Which coarse points have an orbit."""
        return np.isfinite(self.y[..., 0])

    def at(self, index: np.ndarray) -> np.ndarray:
        """The parameters at points given by rows of indices."""
        return np.stack([axis[index[:, k]] for k, axis in enumerate(self.axes)], axis=-1)

    def nearest(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The point nearest to these parameters, along axes of equal length."""
        widths = np.array([np.ptp(axis) or 1 for axis in self.axes])
        return nodes[np.argmin(np.sum(((self.at(nodes) - values) / widths) ** 2, axis=1))]

    def guesses(self, values: Float[np.ndarray, "points free"]) -> tuple[np.ndarray, np.ndarray]:
        """Initial guesses at points, interpolated or from the nearest coarse point; and the largest accepted distance of an
        orbit from its guess."""
        y = np.full((len(values), self.y.shape[-1]), np.nan, self.y.dtype)
        reach = np.zeros(len(values))
        for width in WINDOWS.get(varying(self.axes), (2,)):
            rest = np.flatnonzero(~np.isfinite(y[:, 0]))
            if not rest.size:
                return y, reach
            y[rest], reach[rest] = self._interpolated(values[rest], width)
            if width > SPAN:
                _, reach[rest] = self._interpolated(values[rest], SPAN)
            if self.strict and width > 2:
                rougher, _ = self._interpolated(values[rest], width - 2)
                apart = np.max(np.abs(y[rest] - rougher), axis=1)
                reach[rest] = np.minimum(reach[rest], 10 * apart + reach[rest] / 300)
        rest = np.flatnonzero(~np.isfinite(y[:, 0]))
        if rest.size and self.known.any():
            y[rest], reach[rest] = self._nearest(values[rest])
        return y, reach

    def _interpolated(self, values, width):
        """Guesses by polynomials through `width` points along each axis; NaN where one of these points has no orbit."""
        windows, weights = [], []
        for k, axis in enumerate(self.axes):
            q = min(width, len(axis))
            first = np.clip(np.searchsorted(axis, values[:, k]) - (q + 1) // 2, 0, len(axis) - q)
            window = first[:, None] + np.arange(q)
            at = axis[window]
            # Lagrange's basis polynomials.
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
        """Guesses from the nearest coarse point that has an orbit; distances count points along the axes."""
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
        """The largest difference of `y` between a coarse point and its neighbours."""
        here, most = self.y[tuple(index.T)], np.zeros(len(index))
        for k, axis in enumerate(self.axes):
            for way in (-1, 1):
                there = index.copy()
                there[:, k] = np.clip(there[:, k] + way, 0, len(axis) - 1)
                apart = np.max(np.abs(self.y[tuple(there.T)] - here), axis=1)
                most = np.maximum(most, np.where(np.isfinite(apart), apart, 0))
        return most


def varying(axes: tuple[np.ndarray, ...]) -> int:
    """The number of axes with several values, at least 1."""
    return max(1, sum(len(axis) > 1 for axis in axes))


def solve_coarse_grid(
    coarse: CoarseGrid,
    solve: Solve,
    start: tuple[np.ndarray, np.ndarray],
    guess: Callable | None = None,
    *,
    noise: float = 0.0,
) -> CoarseGrid:
    """Solve for the orbits of a coarse grid, level by level.

    **Arguments:** `start`: parameters and `y` of an orbit from which to continue. `guess`: `values -> y`, if given used instead
    of `start`. `noise`: the relative error of an orbit, by which alone it may differ from its guess.
    """
    shape, dims = coarse.y.shape[:-1], len(coarse.axes)
    spacings, rough = [1], ROUGH.get(dims, 3)
    while max(shape) // spacings[-1] >= rough:
        spacings.append(2 * spacings[-1])
    for level, spacing in enumerate(spacings[::-1]):
        lines = [np.unique([*range(0, m, spacing), m - 1]) for m in shape]
        nodes = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, dims)
        todo = nodes[~coarse.known[tuple(nodes.T)]]
        if guess is not None:
            guesses = guess(coarse.at(todo))
            _accept(coarse, todo, solve(coarse.at(todo), guesses)[0], guesses, np.inf, noise)
        elif level == 0:
            nearest = coarse.nearest(nodes, start[0])[None]
            y = march(
                solve, start[0][None], start[1][None], coarse.at(nearest), np.full_like(start[1][None], np.nan), noise
            )
            coarse.y[tuple(nearest.T)] = y
        elif len(todo):
            guesses, reach = coarse.guesses(coarse.at(todo))
            sound = np.isfinite(guesses[:, 0])
            todo, guesses, reach = todo[sound], guesses[sound], reach[sound]
            if len(todo):
                _accept(coarse, todo, solve(coarse.at(todo), guesses)[0], guesses, reach, noise)
        _flood(coarse, solve, lines, noise)
    return coarse


def _accept(coarse: CoarseGrid, index, y, guesses, reach, noise):
    """Keep the orbits that lie within `reach` of their guesses; the others are, or stay, NaN."""
    near = ~is_far(y, guesses, reach, noise)
    coarse.y[tuple(index[near].T)] = y[near]


def is_far(y: np.ndarray, guesses: np.ndarray, reach: np.ndarray | float, noise: float = 0.0) -> np.ndarray:
    """Which orbits lie farther than `reach` from their guesses, and so on another branch; false where `y` is NaN."""
    return np.max(np.abs(y - guesses), axis=1) > reach + max(1e-6, noise) * np.max(np.abs(guesses), axis=1)


def _flood(coarse: CoarseGrid, solve: Solve, lines: list[np.ndarray], noise: float) -> None:
    """Continue from every point with an orbit to its neighbours without one, once along each edge, until none is left."""
    tried, counts = set(), [len(line) for line in lines]
    nodes = lambda places: np.stack([line[place] for line, place in zip(lines, places.T, strict=True)], axis=-1)
    while edges := _new_edges(known := coarse.known[np.ix_(*lines)], tried):
        end, middle = np.moveaxis(np.array(edges), 1, 0)
        to, via = nodes(end), nodes(middle)
        # The change of the orbit over the last edge, scaled to the length of this one.
        beyond = 2 * middle - end
        rows = np.flatnonzero(np.all((beyond >= 0) & (beyond < counts), axis=1))
        rows = rows[known[tuple(beyond[rows].T)]]
        last = nodes(beyond[rows])
        here, there, before = coarse.at(to[rows]), coarse.at(via[rows]), coarse.at(last)
        ratio = np.sum(np.abs(here - there), axis=1) / np.sum(np.abs(there - before), axis=1)
        slope = np.full((len(edges), coarse.y.shape[-1]), np.nan)
        slope[rows] = (coarse.y[tuple(via[rows].T)] - coarse.y[tuple(last.T)]) * ratio[:, None]
        coarse.y[tuple(to.T)] = march(solve, coarse.at(via), coarse.y[tuple(via.T)], coarse.at(to), slope, noise)


def march(solve: Solve, first, y, last, slope, noise: float) -> np.ndarray:
    """Continue orbits along straight lines in the parameters, all lines together; NaN for a line not followed to its end.

    **Arguments:** `first`, `last`: the ends of the lines, shape `(lines, free)`. `y`: the orbits at `first`, shape `(lines, n)`.
    `slope`: the expected change of `y` over the whole line, or NaN. `noise`: see `solve_coarse_grid`.
    """
    s, y, slope = np.zeros(len(y)), y.copy(), slope.copy()
    # The second divided difference of the last three orbits, and the place of the last but one.
    bend, before = np.zeros_like(y), np.full(len(y), np.nan)
    # Without an expected change, a very short first step measures it.
    h = np.where(np.isfinite(slope[:, 0]), 1.0, FIRST)
    same = np.all(first == last, axis=1)
    h[same] = 1.0
    alive = np.isfinite(y[:, 0])
    for _ in range(STEPS):
        going = np.flatnonzero(alive & (s < 1))
        if not going.size:
            break
        h[going] = np.minimum(h[going], 1 - s[going])
        t = s[going] + h[going]
        t[t > 1 - 1e-12] = 1
        to = first[going] + t[:, None] * (last[going] - first[going])
        to[t == 1] = last[going][t == 1]
        step = (t - s[going])[:, None]
        known, measured = np.isfinite(slope[going, 0]), np.isfinite(before[going])[:, None]
        curved = np.where(measured, bend[going] * (t - before[going])[:, None], 0)
        ahead = np.where(known[:, None], (slope[going] + curved) * step, 0)
        found, iterations = solve(to, y[going] + ahead)
        size = np.max(np.abs(y[going]), axis=1)
        moved = np.max(np.abs(found - y[going]), axis=1)
        off = np.max(np.abs(found - y[going] - ahead), axis=1)
        # Accepted: without a slope, a small change; with one, a change that was predicted for the most part, or a prediction that
        # came true for the most part, as where a coordinate turns back.
        whole = np.maximum(moved, np.max(np.abs(ahead), axis=1))
        near = np.where(known, off <= 0.2 * whole + max(1e-5, noise) * size, moved <= 0.05 * size)
        good = np.isfinite(found[:, 0]) & near & (iterations <= 6)
        on = going[good]
        change = np.where(same[on, None], 0, (found[good] - y[on]) / step[good])
        bend[on] = np.where(measured[good], (change - slope[on]) / (t[good] - before[on])[:, None], 0)
        slope[on], before[on] = change, s[on]
        # With the slope measured, the whole rest of the line is tried.
        h[on] = np.where(known[good], 3 * h[on], 1)
        y[on], s[on] = found[good], t[good]
        h[going[~good]] /= 4
        alive[going[~good]] &= h[going[~good]] >= LEAST
        # An expected change that does not come true is measured instead.
        wrong = going[~good & known & ~measured[:, 0]]
        slope[wrong], h[wrong] = np.nan, FIRST
    y[s < 1] = np.nan
    return y


# `(values, v) -> (v, tangents, iterations)`, shapes `(lanes, axes)`, `(lanes, n)` and `(lanes, n, axes)`; NaN where no orbit was
# found.
SolveWithSlope = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
# The largest disagreement of a step with the tangents, relative to the step; the shortest step along a line, as a fraction of the
# line; the largest number of steps.
DISAGREEMENT, SHORTEST, MOST = 0.03, 1e-3, 60


def follow_tangents(
    coarse: CoarseGrid, solve: SolveWithSlope, start: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> CoarseGrid:
    """Solve for the orbits of a coarse grid: to the point nearest to the start, then from neighbour to neighbour.

    **Arguments:** `start`: values on the axes, unknowns and tangents of an orbit.
    """
    shape = coarse.y.shape[:-1]
    slopes = np.full((*coarse.y.shape, len(shape)), np.nan, coarse.y.dtype)
    nodes = np.array(list(np.ndindex(*shape)))
    nearest = coarse.nearest(nodes, start[0])
    first, y, slope = (each[None] for each in start)
    coarse.y[tuple(nearest)], slopes[tuple(nearest)] = (
        each[0] for each in _follow(solve, first, y, slope, coarse.at(nearest[None]))
    )
    tried = set()
    while edges := _new_edges(coarse.known, tried):
        to, via = (np.array([edge[i] for edge in edges]) for i in (0, 1))
        ends = _follow(solve, coarse.at(via), coarse.y[tuple(via.T)], slopes[tuple(via.T)], coarse.at(to))
        coarse.y[tuple(to.T)], slopes[tuple(to.T)] = ends
    return coarse


def _new_edges(known: np.ndarray, tried: set) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each point without an orbit a neighbour with one, over an edge that is not in `tried`; the edges are added there."""
    edges = []
    for here in map(tuple, np.argwhere(~known).tolist()):
        for k, way in itertools.product(range(known.ndim), (-1, 1)):
            there = (*here[:k], here[k] + way, *here[k + 1 :])
            if 0 <= there[k] < known.shape[k] and known[there] and (here, there) not in tried:
                tried.add((here, there))
                edges.append((here, there))
                break
    return edges


def _follow(solve: SolveWithSlope, first, y, slope, last) -> tuple[np.ndarray, np.ndarray]:
    """Continue orbits along straight lines, all lines together: unknowns and tangents at `last`; NaN for a line not
    followed to its end."""
    y, slope = y.copy(), slope.copy()
    s, h, alive = np.zeros(len(y)), np.ones(len(y)), np.isfinite(y[:, 0])
    for _ in range(MOST):
        going = np.flatnonzero(alive & (s < 1))
        if not going.size:
            break
        t = np.minimum(s[going] + h[going], 1)
        to = np.where(t[:, None] == 1, last[going], first[going] + t[:, None] * (last[going] - first[going]))
        step = (t - s[going])[:, None] * (last[going] - first[going])
        along = lambda slope, step=step: np.einsum("lna,la->ln", slope, step)
        found, tangent, iterations = solve(to, y[going] + along(slope[going]))
        moved = np.max(np.abs(found - y[going]), axis=1)
        off = np.max(np.abs(found - y[going] - along((slope[going] + tangent) / 2)), axis=1)
        near = off <= DISAGREEMENT * moved + 1e-6 * np.max(np.abs(y[going]), axis=1)
        good = np.isfinite(found[:, 0]) & near & (iterations <= 6)
        on = going[good]
        y[on], slope[on], s[on] = found[good], tangent[good], t[good]
        h[on] *= 2
        h[going[~good]] /= 4
        alive[going[~good]] &= h[going[~good]] >= SHORTEST
    y[s < 1], slope[s < 1] = np.nan, np.nan
    return y, slope
