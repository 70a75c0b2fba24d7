"""The stationary covariance of a stable orbit under noise: that acts once per stride, or all along it."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.integrator import pushable
from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues
from .._numerics.riccati import lyapunov_sum
from .._numerics.semidefinite import check_covariance
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import Problem, shifts_phase
from .._orbit.stride import run_stride
from .._orbit.stride_derivatives import require_one, require_phase, stride_derivatives
from .._system.results import choose, nan_unless, RESULTS
from .._system.types import Matrix
from .._system.where import free_leaves, Where
from .covariance import covariance_unit
from .covariance_system import covariance_system, JointParams, Jump, layout_of
from .noise import Noise, place_noise, PlacedNoise


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
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
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


@long_run
def _covariance(orbit: PeriodicOrbit, free: tuple[int, ...], noise: Float[Array, "m m"]) -> Matrix:
    (a, b), result = stride_derivatives(orbit, free, lambda stride: stride.x)
    stable = orbit.spectral_radius < 1
    # An unstable sum overflows: its lane of a batch is computed with zeros.
    found = lyapunov_sum(jnp.where(stable, a, 0).T, b @ noise @ b.T)
    return nan_unless(result == RESULTS.successful, jnp.where(stable, (found + found.T) / 2, jnp.inf))


def stationary_covariance(orbit: PeriodicOrbit, *, noise: Noise, fixed_time: bool = False) -> Matrix:
    r"""The stationary covariance of the state just after the jump that ends a stride, under noise of flow, guards and resets.

    $$\Sigma = M\,\Sigma M^\top + Q$$

    $Q$ is the covariance after one stride, once around the orbit, from $\Sigma = 0$; $M$ is the return Jacobian, and $\Sigma$ the
    covariance of the states *each at its own jump*. Along an orbit of an autonomous system only this one is stationary: nothing
    restores the phase, and at fixed time the variance along the flow grows with each stride. With `fixed_time`, for an orbit of a
    system that depends on time, $M$ is the monodromy matrix, and $\Sigma$ is the covariance at the times of the orbit's own
    jumps. Without `fixed_time`, the covariance just before these times leads to that of the states of such a system each at its
    own jump, $\Sigma = D\,\Sigma^-D^\top + \gamma\,\sigma_g^2\gamma^\top + W_R$, with the saltation matrix $D$ and $\gamma$ of a
    jump after which nothing flows.

    At the time $\tau$ after the jump, the covariance is that of
    `covariance(orbit.system, orbit.x, sigma, orbit.params, mode=orbit.sequence[0], t1=tau, noise=noise)`; with `t1=orbit.period`
    and `save` it is known along the whole orbit. Noise of parameters that is constant during a stride: `stride_covariance`.

    **Arguments:** `orbit`: a stride is here once around it. `noise`: a `Noise`. `fixed_time`: static.

    **Returns:** $\Sigma$, shape `(n, n)`, symmetric, in the units of the state times those of the state; differentiable in the
    orbit's parameters and in the values of the noise, also under `jit` and `vmap`. Infinite for an orbit that is not stable; with
    `fixed_time`, and for a system that depends on time, also where a multiplier of the monodromy matrix is 1 up to half of the
    digits, as for every autonomous system. NaN for an orbit that was not found. `ValueError` for a batch of orbits, and for a
    noise that does not fit the system.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> noise = hj.noise.Noise(flow=jnp.diag(jnp.array([0.0, 1e-4])))
    >>> sigma = hj.noise.stationary_covariance(orbit, noise=noise)
    >>> print(f"{jnp.sqrt(sigma[1, 1]):.6f}")
    0.007552

    Source: Anderson, Moore (1979), *Optimal Filtering*, Sec. 4.1, for the stationary equation; Kong, Payne, Zhu, Johnson (2024),
    eqs. 36-38, for $Q$, with eqs. 34-35 for the monodromy matrix: in Table I the covariance $\Sigma$ of Appendix C and the
    Poincaré map of Sec. III-C.
    """
    require_one(orbit, "stationary_covariance")
    t = jnp.zeros((), orbit.x.dtype)
    orbit.system.refuse_at_once("stationary_covariance")
    return _stationary(orbit, place_noise(noise, orbit.system, t, orbit.x.dtype, orbit.params), fixed_time)


@long_run
def _stationary(orbit: PeriodicOrbit, noise: PlacedNoise, fixed_time: bool) -> Matrix:
    system, x, params, sequence = orbit.system, orbit.x, orbit.params, orbit.sequence * orbit.strides
    t, n = jnp.zeros((), x.dtype), x.size
    none = jnp.zeros((n, n), x.dtype)
    layout = layout_of(system)
    joint = covariance_system(system, noise, layout)
    unit = covariance_unit(none, noise, system.number(sequence[0]), t, x, params)
    inputs, integrator = JointParams(params, noise, unit), pushable(orbit.integrator)
    around = lambda sigma: run_stride(joint, t, layout.join(x, sigma / unit), inputs, sequence, integrator)
    covariance_in = lambda end: layout.covariance(end)[:n, :n] * unit

    def at_own_jumps(through):
        (taken, member), last = joint.ways[joint.route(sequence)[-1]].tolist(), through.impacts[-1]
        jump = joint.transitions[taken].reset
        assert isinstance(jump, Jump)
        return jump.onto_section(last.t, last.x, inputs, *[member] * (member >= 0))

    through = around(none)
    # States that jump at other times than the orbit meet another phase of what depends on time, which the return Jacobian, whose
    # clock each jump restarts, does not see.
    timed = not fixed_time and shifts_phase(Problem(system, orbit.sequence, orbit.strides), params, x)
    if fixed_time or timed:
        matrix, end = orbit.monodromy(), through.x
        radius = jnp.max(jnp.abs(eigenvalues(matrix)))
        stable = radius < 1 - float(jnp.finfo(x.dtype).eps) ** 0.5
    elif not orbit.return_jacobian.shape[-2]:
        # Of an orbit that was found without it.
        matrix, end = orbit.step.jacobian(x, params, throw=False), at_own_jumps(through)
        stable = jnp.max(jnp.abs(eigenvalues(matrix))) < 1
    else:
        matrix, stable, end = orbit.return_jacobian, orbit.spectral_radius < 1, at_own_jumps(through)
    # An unstable sum overflows: its lane of a batch is computed with zeros.
    found = lyapunov_sum(jnp.where(stable, matrix, 0).T, covariance_in(end))
    if timed:
        found = covariance_in(at_own_jumps(around((found + found.T) / 2)))
    result = choose(orbit.result == RESULTS.successful, through.result, orbit.result)
    return nan_unless(result == RESULTS.successful, jnp.where(stable, (found + found.T) / 2, jnp.inf))
