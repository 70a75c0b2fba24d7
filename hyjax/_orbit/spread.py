"""States spread evenly over a box, in any number."""

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray


def spread(low: np.ndarray, high: np.ndarray, count: int, key: PRNGKeyArray) -> Float[np.ndarray, "count n"]:
    r"""The first `count` states of a sequence that fills the box evenly: $u_k = u_0 + k\alpha \bmod 1$, with a random $u_0$.

    $\alpha_i = \varphi^{-i}$, where $\varphi^{d+1} = \varphi + 1$ and $d$ is the number of coordinates in which the box has
    a width; for $d = 1$ the golden ratio. Each part of the box gets its share of the states with an error of order $1/k$ up to
    logarithms, where independent states have $1/\sqrt k$.

    Source: Niederreiter (1992), *Random Number Generation and Quasi-Monte Carlo Methods*, ch. 3; Krieg, Roberts (2018) for
    $\alpha$.
    """
    wide = high > low
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (wide.sum() + 1))
    first = np.asarray(jax.random.uniform(key, low.shape, low.dtype))[wide]
    alpha = ratio ** -np.arange(1.0, wide.sum() + 1)
    states = np.broadcast_to(low, (count, low.size)).copy()
    states[:, wide] += (high - low)[wide] * ((first + np.arange(count)[:, None] * alpha) % 1)
    return states
