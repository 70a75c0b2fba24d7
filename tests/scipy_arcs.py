"""Arcs of hybrid systems by SciPy's DOP853, from equations in NumPy: an independent route for gaits and simulations."""

from collections.abc import Callable, Iterable

import numpy as np
from scipy.integrate import solve_ivp

OPTIONS = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}


def state_at(rate: Callable, t: float, x: Iterable, end: float) -> np.ndarray:
    """The state at the time `end`."""
    return solve_ivp(rate, (t, end), np.asarray(x, float), **OPTIONS).y[:, -1] if end > t else np.asarray(x, float)


def arc(
    rate: Callable,
    t: float,
    x: Iterable,
    guard: Callable,
    armed: Callable = lambda t, x: True,
    until: float = 20.0,
    most: float = np.inf,
):
    """`(t, x)` where the guard first falls through zero while `armed`; `(until, x)` if it does not before `until`.

    SciPy locates events on its interpolant, to some 1e-9: Newton's method on the flow itself makes them exact. It misses a guard
    that falls and rises within a step: `most` is the largest step.
    """

    def event(t, x):
        return guard(t, x)

    event.direction = -1
    run = solve_ivp(rate, (t, until), np.asarray(x, float), events=event, max_step=most, **OPTIONS)
    falls = (
        each for each, y in zip(run.t_events[0], run.y_events[0], strict=True) if each > t + 1e-9 and armed(each, y)
    )
    end = next(falls, None)
    if end is None:
        return until, run.y[:, -1]
    for _ in range(2):
        y, small = state_at(rate, t, x, end), 1e-6
        step = small * np.asarray(rate(end, y))
        end -= guard(end, y) / ((guard(end + small, y + step) - guard(end - small, y - step)) / (2 * small))
    return end, state_at(rate, t, x, end)


def multipliers_of(stride: Callable[[np.ndarray], np.ndarray], x: np.ndarray, small: float) -> np.ndarray:
    """Eigenvalues of the central differences of a return map, the largest first."""
    columns = [(stride(x + small * e) - stride(x - small * e)) / (2 * small) for e in np.eye(len(x))]
    values = np.linalg.eigvals(np.transpose(columns))
    return values[np.argsort(-np.abs(values))]
