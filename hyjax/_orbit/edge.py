"""States on the edge of a set, between states inside and states outside of it."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

# Halvings of the way: the edge is found to 1e-6 of it.
HALVINGS = 20


def edge(
    inside: Float[np.ndarray, "count n"],
    outside: Float[np.ndarray, "others n"],
    contains: Callable[[np.ndarray], Bool[np.ndarray, " count"]],
) -> Float[np.ndarray, "count n"]:
    """For each state inside, the last state inside on the way to the nearest state outside, by bisection.

    Near grazing the return map has a square root at the edge of its domain, and Newton's method converges only from a strip along
    the edge, which states that are spread evenly hardly meet.
    """
    width = np.ptp(np.concatenate([inside, outside]), axis=0)
    apart = np.abs(inside[:, None] - outside[None]) / np.where(width > 0, width, 1)
    beyond = outside[np.argmin(np.max(apart, axis=-1), axis=1)]
    for _ in range(HALVINGS):
        middle = (inside + beyond) / 2
        within = contains(middle)[:, None]
        inside, beyond = np.where(within, middle, inside), np.where(within, beyond, middle)
    return inside
