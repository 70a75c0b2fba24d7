"""Orbits without duration: the limit to which strides shrink where events accumulate."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._system.results import choose, RESULTS
from .._system.types import Params, State
from .chain import Chain
from .problem import Problem


def unless_vanishing(
    problem: Problem, chain: Chain, guess: State | Float[Array, "strides n"], params: Params, result: RESULTS
) -> RESULTS:
    r"""The code of an orbit: `zeno` where state and period have shrunk to rounding, beside those of the guess.

    A bouncing ball that loses energy returns to its floor sooner and sooner, and the fixed point of its return map, at rest,
    lasts no time. Nothing at such a point tells it from a small orbit: the map is linear there. So the scales are those of the
    guess, $|x_0|$ and $|x_0| / |f(x_0)|$.
    """
    start = guess if guess.ndim == 1 else guess[0]
    size = jnp.max(jnp.abs(start))
    rate = jnp.max(jnp.abs(problem.system.mode(problem.sequence[0]).vector_field(jnp.zeros_like(size), start, params)))
    eps = jnp.finfo(start.dtype).eps
    states = [jnp.max(jnp.abs(each)) for each in (chain.nodes, chain.before)]
    shrunk = (jnp.maximum(*states) <= eps**0.5 * size) & (chain.period * rate <= eps**0.6 * size)
    return choose((result == RESULTS.successful) & shrunk, RESULTS.zeno, result)
