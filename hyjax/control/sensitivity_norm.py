r"""Measures of how strides recover: the gait sensitivity norm, how much the strides of a stable gait vary under noise that acts
once per stride; and the contraction factor of a matrix, an upper bound of its spectral radius that is smooth where eigenvalues
meet.

The contraction factor is the $r$ with $\sum_{k \ge 1} \|A^k\|_F^2\,r^{-2k} = 1/\varepsilon$. The sum is a discrete Lyapunov
equation's solution, falls from infinity at the spectral radius $\rho$ to zero, and is smooth in $A$ above $\rho$. With
$P = I + A^\top P A / r^2$ the norm $\sqrt{x^\top P x}$ shrinks by the factor $r$ at least.

Source: Vanbiervliet, Vandereycken, Michiels, Vandewalle, Diehl (2009), *The smoothed spectral abscissa for robust stability
optimization*, SIAM J. Optim. 20, 156-171, for the continuous-time counterpart.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.eager import long_run
from .._numerics.semidefinite import lyapunov_sum
from .._orbit.orbit import PeriodicOrbit, require_one, require_phase, stride_derivatives
from .._orbit.stride import Stride
from .._system.results import nan_unless, RESULTS
from .._system.types import Matrix, Scalar
from .._system.where import free_leaves, Where


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


# A gait indicator: a function of a stride, whose variation is measured; a number or several.
Indicator = Callable[[Stride], Scalar | Float[Array, " outputs"]]


def stride_time(stride: Stride) -> Scalar:
    """The duration of a stride."""
    return stride.time


def sensitivity_norm(orbit: PeriodicOrbit, *, noise: Where, indicator: Indicator = stride_time) -> Scalar:
    r"""The gait sensitivity norm: the $H_2$ norm from noise in parameters to gait indicators, by one discrete Lyapunov equation.

    $$\mathrm{GSN}^2 = \operatorname{tr}\Big(D^\top D + \sum_{k=0}^\infty B^\top (A^k)^\top C^\top C A^k B\Big), \qquad
      \delta x_{k+1} = A\,\delta x_k + B\,e_k, \quad \delta g_k = C\,\delta x_k + D\,e_k$$

    For noise $e_k$ of unit variance, independent from stride to stride and in each parameter, it is the root of the sum of the
    indicators' variances; equally the root of the sum of squares of their deviations after one unit impulse of each parameter.

    **Arguments:** `orbit`: a stride is here once around it. `noise`: selects the parameters that vary from stride to stride, as
    `lambda p: p.slope` for a ground of varying slope. `indicator`: a function of the `Stride` whose result varies, by default its
    duration; a number or shape `(outputs,)`. Scale several indicators to comparable units.

    **Returns:** a scalar, in units of the indicator per unit of the noise; differentiable in the orbit's parameters, also under
    `jit` and `vmap`. Infinite for an orbit that is not stable, NaN for one that was not found. `ValueError` for a batch.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> print(f"{hj.control.sensitivity_norm(orbit, noise=lambda p: p.slope):.6f}")
    5.156015

    Source: Hobbelen, Wisse (2007), *A disturbance rejection measure for limit cycle walkers: the gait sensitivity norm*, IEEE
    Trans. Robot. 23, 1213-1224. In Kong, Payne, Zhu, Johnson (2024): Table I, the Poincaré map of Sec. III-C, whose Jacobian is
    $A$; Sec. II, sensitivities to parameters.
    """
    require_one(orbit, "sensitivity_norm")
    require_phase(orbit, "sensitivity_norm")
    return _norm(orbit, free_leaves(noise, orbit.params), indicator)


@long_run
def _norm(orbit: PeriodicOrbit, free: tuple[int, ...], indicator: Indicator) -> Scalar:
    read = lambda stride: (stride.x, jnp.ravel(indicator(stride)))
    ((a, b), (c, d)), result = stride_derivatives(orbit, free, read)
    stable = orbit.stable
    # An unstable sum overflows: its lane of a batch is computed with zeros.
    total = lyapunov_sum(jnp.where(stable, a, 0), c.T @ c)
    square = jnp.sum(d**2) + jnp.sum(b * (total @ b))
    # The root of zero has no derivative: that of a norm that is zero is taken as zero.
    root = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    return nan_unless(result == RESULTS.successful, jnp.where(stable, root, jnp.inf))
