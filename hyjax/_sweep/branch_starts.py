"""The points of a branch as initial guesses for a sweep over the branch's parameter."""

from collections.abc import Callable

import numpy as np

from .._continuation.branch import Branch


def first_point(branch: Branch) -> int:
    """The index of the point at which the branch was started."""
    count = np.asarray(branch.curves.count)
    return int(count[1]) - 1 if len(count) == 2 else 0


def guesses_on_branch(branch: Branch, free: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray] | None:
    """`values -> y`: pre-impact states interpolated between the points of a branch; `None` where the branch's parameter varies
    among others. `ValueError` unless its parameter is among the varied leaves `free`."""
    unfolding = branch.unfolding
    if set(unfolding.free) - set(free):
        raise ValueError(
            "sweep: the branch's parameter is not among the varied parameters. Start from one of the branch's orbits."
        )
    if unfolding.free != free:
        return None
    y = branch._points["v"][:, : unfolding.dimension] * float(unfolding.state_scale)
    return nearest_pass(branch.values, y, first_point(branch))


def nearest_pass(values: np.ndarray, y: np.ndarray, first: int) -> Callable[[np.ndarray], np.ndarray]:
    """`targets -> y`: linear interpolation on the curve `y(values)`; NaN beyond the ends of the curve.

    A curve with folds passes a value several times; the pass nearest the point of index `first` is taken.

    **Arguments:** `values`: shape `(points,)`. `y`: shape `(points, n)`.
    """

    def at(targets: np.ndarray) -> np.ndarray:
        guesses = np.full((len(targets), y.shape[1]), np.nan)
        for i, value in enumerate(targets[:, 0]):
            # A value beyond an end by no more than rounding is taken as the end.
            inside = np.clip(value, values.min(), values.max())
            if abs(inside - value) > 1e-9 * max(abs(value), float(np.ptp(values))):
                continue
            passes = np.flatnonzero((values[:-1] - inside) * (values[1:] - inside) <= 0)
            k = int(passes[np.argmin(np.abs(passes + 0.5 - first))])
            fraction = (inside - values[k]) / ((values[k + 1] - values[k]) or 1)
            guesses[i] = (1 - fraction) * y[k] + fraction * y[k + 1]
        return guesses

    return at
