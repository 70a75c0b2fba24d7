"""The stationary covariance of the state of a stable gait under noise that acts once per stride."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.riccati import lyapunov_sum
from .._numerics.semidefinite import check_covariance
from .._orbit.orbit import PeriodicOrbit
from .._orbit.stride_derivatives import require_one, require_phase, stride_derivatives
from .._system.results import nan_unless, RESULTS
from .._system.types import Matrix
from .._system.where import free_leaves, Where


def stride_covariance(orbit: PeriodicOrbit, *, noise: Where, covariance: Float[Array, "m m"] | None = None) -> Matrix:
    r"""The stationary covariance of the state just after the jump that ends a stride, under noise in parameters.

    $$\Sigma = A\,\Sigma A^\top + B\,N B^\top, \qquad \delta x_{k+1} = A\,\delta x_k + B\,e_k, \quad
      \operatorname{E} e_k e_k^\top = N$$

    $A = D_xS$ and $B = D_pS$ are the Jacobians of the stride $S$, once around the orbit. The noise $e_k$ has mean zero and is
    independent from stride to stride. This is the linear theory: of the true covariance of a smooth stride it leaves out terms
    of the square of the noise's variance.

    Every start of a stride lies in the image of the last reset, so $\Sigma$ is singular unless the noise moves that image: its
    range is spanned by $B, AB, A^2B, \dots$, and a zero eigenvalue is a direction that the noise does not reach. Of `n` states
    with a reset onto a section, such as $\phi = 2\theta$ of a walker, at most `n - 1` eigenvalues are positive, up to rounding
    of either sign.

    **Arguments:** `orbit`: a stride is here once around it. `noise`: selects the `m` parameters that vary from stride to stride
    and are constant during a stride, as `lambda p: p.slope`. The state keeps its coordinates where a parameter changes: angles
    measured from the slope's normal are measured from the new normal. `covariance`: $N$, symmetric and positive semidefinite,
    shape `(m, m)`, in the units of the parameters; by default the identity.

    **Returns:** $\Sigma$, shape `(n, n)`, symmetric, in the units of the state times those of the state; differentiable in the
    orbit's parameters and in $N$, also under `jit` and `vmap`. Infinite for an orbit that is not stable, NaN for one that was not
    found. `ValueError` for a batch of orbits, and for a covariance of another shape, or that is not symmetric and semidefinite.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.system, wheel.guess(params), params, sequence=wheel.sequence)
    >>> sigma = hj.noise.stride_covariance(orbit, noise=lambda p: p.slope)
    >>> print(f"{sigma[1, 1]:.6f}")
    0.495879

    Source: Anderson, Moore (1979), *Optimal Filtering*, Sec. 4.1. In Kong, Payne, Zhu, Johnson (2024): Table I, the covariance
    $\Sigma$ of Appendix C, eq. 37, and the Poincaré map of Sec. III-C, whose Jacobian is $A$.
    """
    require_one(orbit, "stride_covariance")
    require_phase(orbit, "stride_covariance")
    free, dtype = free_leaves(noise, orbit.params), orbit.x.dtype
    given = jnp.eye(len(free), dtype=dtype) if covariance is None else covariance
    given = check_covariance(given, len(free), dtype, "stride_covariance: covariance")
    return _covariance(orbit, free, given)


@eqx.filter_jit
def _covariance(orbit: PeriodicOrbit, free: tuple[int, ...], noise: Float[Array, "m m"]) -> Matrix:
    (a, b), result = stride_derivatives(orbit, free, lambda stride: stride.x)
    stable = orbit.spectral_radius < 1
    # An unstable sum overflows: its lane of a batch is computed with zeros.
    found = lyapunov_sum(jnp.where(stable, a, 0).T, b @ noise @ b.T)
    return nan_unless(result == RESULTS.successful, jnp.where(stable, (found + found.T) / 2, jnp.inf))
