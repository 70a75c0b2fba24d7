r"""The contraction factor of a matrix: an upper bound of its spectral radius that is smooth where eigenvalues meet.

It is the $r$ with $\sum_{k \ge 1} \|A^k\|_F^2\,r^{-2k} = 1/\varepsilon$. The sum is a discrete Lyapunov equation's solution,
falls from infinity at the spectral radius $\rho$ to zero, and is smooth in $A$ above $\rho$. With $P = I + A^\top P A / r^2$ the
norm $\sqrt{x^\top P x}$ shrinks by the factor $r$ at least.

Source: Vanbiervliet, Vandereycken, Michiels, Vandewalle, Diehl (2009), *The smoothed spectral abscissa for robust stability
optimization*, SIAM J. Optim. 20, 156-171, for the continuous-time counterpart.
"""

import math

import jax
import jax.numpy as jnp

from .._numerics.riccati import lyapunov_sum
from .._system.types import Matrix, Scalar


def contraction_factor(matrix: Matrix, spectral_radius: Scalar, smoothing: float) -> Scalar:
    r"""The contraction factor $r$. **Arguments:** `matrix`: $A$, `(n, n)`. `spectral_radius`: of $A$, from which the search
    starts. `smoothing`: $\varepsilon > 0$, static. Differentiable in $A$ to any order; 0 for $A = 0$."""
    norm = jnp.linalg.norm(jax.lax.stop_gradient(matrix))
    nonzero = ~(norm == 0)
    matrix = jnp.where(nonzero, matrix, jnp.eye(len(matrix), dtype=matrix.dtype))
    # A bound of the sum by one eigenvalue, and by its first term: both are lower bounds of r. For the identity, any number
    # serves.
    least = jnp.maximum(jax.lax.stop_gradient(spectral_radius) * math.sqrt(1 + smoothing), norm * math.sqrt(smoothing))
    least = jnp.where(nonzero, least, math.sqrt(1 + smoothing))
    # The eigenvalues of the scaled matrix are at most 1/sqrt(1 + smoothing), and so many terms of the sum count.
    passes = math.ceil(math.log2(80 / math.log1p(smoothing)))

    def residual(logarithm):
        scaled = matrix / (least * jnp.exp(logarithm))
        return jnp.log(jnp.trace(lyapunov_sum(scaled, scaled.T @ scaled, passes))) + math.log(smoothing)

    def newton(residual, guess):
        # The residual is convex and falls with log(r), so the iterates rise from the lower bound to the root.
        def step(state):
            k, logarithm, _ = state
            value, slope = jax.jvp(residual, (logarithm,), (jnp.ones_like(logarithm),))
            change = -value / slope
            # Where eigenvalues almost meet, the given radius may be too small by the root of rounding, and the sum overflows.
            change = jnp.where(jnp.isfinite(change), jnp.where(value > 0, change, 0), 1e-3)
            return k + 1, logarithm + change, change

        going = lambda state: (state[0] < 40) & (jnp.abs(state[2]) > 4 * jnp.finfo(guess.dtype).eps)
        return jax.lax.while_loop(going, step, (jnp.zeros((), jnp.int32), guess, jnp.ones_like(guess)))[1]

    start = jnp.zeros((), matrix.dtype)
    logarithm = jax.lax.custom_root(residual, start, newton, lambda slope, value: value / slope(jnp.ones_like(value)))
    return jnp.where(nonzero, least * jnp.exp(logarithm), 0)
