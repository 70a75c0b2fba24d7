"""The points of a branch as starts for a sweep over its parameter."""

from collections.abc import Callable

import numpy as np

from .._continuation.branch import Branch


def first_point(branch: Branch) -> int:
    """The point at which a branch was started."""
    count = np.asarray(branch.curves.count)
    return int(count[1]) - 1 if len(count) == 2 else 0


def along_branch(branch: Branch) -> Callable[[np.ndarray], np.ndarray]:
    """`values -> y` by the branch's points."""
    unfolding = branch.unfolding
    y = branch._points["v"][:, : unfolding.dimension] * float(unfolding.state_scale)
    return nearest_pass(branch.values, y, first_point(branch))


def nearest_pass(values: np.ndarray, y: np.ndarray, first: int) -> Callable[[np.ndarray], np.ndarray]:
    """`wanted -> y` between the points of a curve; where it passes a value several times, on the pass nearest its point
    `first`; NaN beyond the curve's ends."""

    def at(wanted: np.ndarray) -> np.ndarray:
        seeds = np.full((len(wanted), y.shape[1]), np.nan)
        for i, value in enumerate(wanted[:, 0]):
            # Just beyond the curve's ends, by rounding, its ends.
            inside = np.clip(value, values.min(), values.max())
            if abs(inside - value) > 1e-9 * max(abs(value), float(np.ptp(values))):
                continue
            passes = np.flatnonzero((values[:-1] - inside) * (values[1:] - inside) <= 0)
            k = int(passes[np.argmin(np.abs(passes + 0.5 - first))])
            fraction = (inside - values[k]) / ((values[k + 1] - values[k]) or 1)
            seeds[i] = (1 - fraction) * y[k] + fraction * y[k + 1]
        return seeds

    return at
