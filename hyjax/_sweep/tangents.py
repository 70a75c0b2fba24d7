r"""The coarse grid of a sweep over prescribed quantities, by continuation along tangents.

Where two families of orbits cross, both are near, and Newton's method may end at either. Their tangents, the derivatives $v'$ of
the unknowns by the values on the axes, are different. So a step is accepted where the tangents at both ends agree with it,

$$v_1 - v_0 \approx \tfrac12 (v_0' + v_1')\,\Delta,$$

whose error on one family is of third order in the step.
"""

import itertools
from collections.abc import Callable

import numpy as np

from .continued_starts import CoarseGrid

# `(values, v) -> (v, tangents, iterations)`, shapes `(lanes, axes)`, `(lanes, n)` and `(lanes, n, axes)`; NaN where no orbit was
# found.
Solve = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
# The largest disagreement of a step with the tangents, relative to the step; the shortest step along a line, as a fraction of the
# line; the largest number of steps.
DISAGREEMENT, SHORTEST, MOST = 0.03, 1e-3, 60


def follow_tangents(coarse: CoarseGrid, solve: Solve, start: tuple[np.ndarray, np.ndarray, np.ndarray]) -> CoarseGrid:
    """Solve for the orbits of a coarse grid: to the point nearest to the start, then from neighbour to neighbour.

    **Arguments:** `start`: values on the axes, unknowns and tangents of an orbit.
    """
    shape = coarse.y.shape[:-1]
    slopes = np.full((*coarse.y.shape, len(shape)), np.nan, coarse.y.dtype)
    nodes = np.array(list(np.ndindex(*shape)))
    widths = np.array([np.ptp(axis) or 1 for axis in coarse.axes])
    nearest = nodes[np.argmin(np.sum(((coarse.at(nodes) - start[0]) / widths) ** 2, axis=1))]
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


def _follow(solve: Solve, first, y, slope, last) -> tuple[np.ndarray, np.ndarray]:
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
