"""Where the searches for an optimum start."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._results.shown import is_traced
from .program import Program
from .unknowns import Unknowns


def starting_points(
    program: Program, unknowns: Unknowns, own: Float[Array, " n"], starts: int | Float[Array, "..."]
) -> Float[Array, "starts n"]:
    """The starts, inside the bounds: the orbit's own parameters and others spread over the bounds; or those given, in units of
    the parameters. `ValueError` for starts of another shape, or a spread over infinite bounds."""
    if isinstance(starts, int):
        if starts < 1:
            raise ValueError(f"optimize: starts={starts} must be at least 1.")
        points = own[None]
        if starts > 1:
            bounds = program.lower, program.upper
            if is_traced(bounds) or not all(np.all(np.isfinite(each)) for each in bounds):
                raise ValueError(
                    f"optimize: starts={starts} are spread over the bounds, so every parameter needs two finite bounds; or give "
                    "the starts as an array."
                )
            points = jnp.concatenate(
                [points, _spread(np.asarray(program.lower), np.asarray(program.upper), starts - 1)]
            )
    else:
        points = jnp.asarray(starts, own.dtype)
        if points.ndim != 2 or points.shape[1] != own.size or not len(points):
            raise ValueError(
                f"optimize: starts of shape {points.shape} must be a number, or have the shape (starts, {own.size})."
            )
        points = points / unknowns.scale
    return jax.vmap(program.inside)(points)


def _spread(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """Points of Sobol's sequence in the box, the same in each call."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(low.size, scramble=True, rng=np.random.default_rng(0))
    drawn = sequence.random_base2(int(np.ceil(np.log2(count))))[:count] if count > 1 else sequence.random(1)
    return (low + drawn * (high - low)).astype(low.dtype)
