"""The covariance of the state along a trajectory through events; that of one stride under noise of parameters; and the stationary
covariance of a stable orbit, under noise that acts once per stride or all along it."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._flow.automaton import Automaton
from .._flow.integrator import Integrator, IntegratorLike, pushable
from .._flow.joint import takes_age, with_age
from .._flow.simulate import check_simulation, raise_stop, rows_of, run_simulation
from .._flow.surfaces import rounding
from .._flow.trajectory import Trajectory
from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues, inside_circle
from .._numerics.semidefinite import check_covariance, lyapunov_sum, unit_of
from .._orbit.orbit import PeriodicOrbit, require_one, require_phase, stride_derivatives
from .._orbit.problem import Problem, shifts_phase
from .._orbit.stride import run_stride
from .._results.registry import draw
from .._results.shown import Shown
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Matrix, Params, Scalar, State, Time
from .._system.where import free_leaves, Where
from .covariance_system import covariance_system, JointParams, Jump, layout_of
from .noise import aged_noise, Noise, place_noise, PlacedNoise, value_at


class Covariance(Shown):
    r"""A trajectory and the covariance $\Sigma(t)$ of the states about it, from `covariance`.

    The arrays have a row and a column for each coordinate, padded with zeros to the largest dimension, `size`, and NaN in unused
    rows, as those of `Trajectory`. Units: those of the state times those of the state.

    **Attributes:** `trajectory`: the `Trajectory` of the mean, to first order. `sigma`: the covariance at the end, shape
    `(size, size)`; `final` has the dimension of the mode. `sigma_starts`, `sigma_ends`: at the starts and ends of the arcs, after
    and before the jumps, shape `(arcs, size, size)`. `sigma_samples`: at the given `times`, shape `(times, size, size)`, or
    `None`.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> found = hj.noise.covariance(ball.system, x0, 1e-4 * jnp.eye(2), params, mode="flight", t1=1.0)
    >>> found.sigma_starts.shape, bool(jnp.all(found.sigma == found.final))
    ((101, 2, 2), True)
    """

    trajectory: Trajectory
    sigma: Float[Array, "*batch size size"]
    sigma_starts: Float[Array, "*batch arcs size size"]
    sigma_ends: Float[Array, "*batch arcs size size"]
    sigma_samples: Float[Array, "*batch times size size"] | None

    @property
    def final(self) -> Matrix:
        """The covariance at the end, of the dimension of the final mode; `TypeError` for a batch, and under `jit`."""
        n = self.trajectory.final.size
        return self.sigma[:n, :n]

    @property
    def result(self) -> RESULTS:
        """The code of the trajectory."""
        return self.trajectory.result

    def plot(self, coordinates: tuple[str, str] | None = None):
        """A figure of the path of the mean with ellipses of the covariance; see `hyjax.plot.covariance_figure`."""
        return draw(self, coordinates)


def covariance(
    system: HybridSystem,
    x0: State,
    sigma0: Matrix,
    params: Params,
    *,
    mode: str,
    t1: float | Time,
    t0: float | Time = 0.0,
    noise: Noise | None = None,
    max_jumps: int = 100,
    integrator: IntegratorLike = Integrator(),
    times: Float[Array, " times"] | None = None,
    throw: bool = True,
) -> Covariance:
    r"""The covariance of the state along a trajectory, through whatever modes come: the linear prediction.

    $$\dot\Sigma = A\Sigma + \Sigma A^\top + W, \quad A = D_xf; \qquad
      \Sigma^+ = \Xi\,\Sigma^-\,\Xi^\top + \gamma\,\sigma_g^2\,\gamma^\top + W_R, \quad
      \gamma = \frac{f^+ - D_xR\,f^- - D_tR}{D_tg + D_xg\,f^-}$$

    with the saltation matrix $\Xi$. Both are integrated together with the flow, in the same steps and to the same tolerance.
    $\Sigma$ is the covariance at fixed time. Without noise $\Sigma(t) = \Phi\,\Sigma_0\,\Phi^\top$ with the fundamental matrix.

    This is the linear theory: its error is of the order of $\Sigma^2$ times the second derivatives of the flow. At a fixed time
    near an event, part of the states have jumped and part have not: there the covariance of the states is another, and the
    prediction holds again when all have jumped. It fails where a part of the states takes other events: near grazing, near
    simultaneous events, and where the deviation $\sqrt\Sigma$ is not small against the way to another guard. Near grazing: an
    event whose guard is off by $\delta g$ is late by $-\delta g/\dot g - \ddot g\,\delta g^2/(2\dot g^3)$, of which $\Xi$ has the
    first term. With the guard's deviation $\sigma$ before the event the linear theory needs $\kappa = 2|\ddot
    g|\,\sigma/\dot g^2$ small: the variance of the speed of a ball that meets a ceiling is larger than predicted by $\tfrac78
    \kappa^2$, and at $\kappa = \tfrac12$ two deviations already graze.

    **Arguments:** `x0`: initial state, shape `(n,)`. `sigma0`: $\Sigma_0$, symmetric and positive semidefinite, of any rank,
    shape `(n, n)`, in the units of the state times those of the state. `noise`: $W$, $\sigma_g^2$ and $W_R$, a `Noise`; by
    default there is none. The others as for `simulate`. `throw`: raise a `SolveError` on failure; with `False`, `result` holds
    the code.

    **Returns:** `Covariance`, also under `jit` and `vmap`, differentiable in `x0`, `sigma0`, `params`, the values of the noise,
    `t0` and `t1` as `simulate` is. After a failure the covariance up to the failure is kept, and `result` is the reason, a code
    of `simulate`. `ValueError` for arguments of a wrong shape or dtype, that are not finite, or that are not covariances.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> found = hj.noise.covariance(ball.system, x0, 1e-4 * jnp.eye(2), params, mode="flight", t1=1.0)
    >>> print(jnp.sqrt(jnp.diag(found.final)).round(6))
    [0.013991 0.0411  ]

    Source: Kong, Payne, Zhu, Johnson (2024), eqs. 36-38 and 143: in Table I the covariance $\Sigma$ of Appendix C, in Sec. II
    state estimation; eqs. 36 and 38 are those of one time step, for which the equation of $\dot\Sigma$ stands here. Noise of
    guards and resets: see `Noise`.
    """
    system, t0, x0, t1, params, integrator = check_simulation(system, x0, params, mode, t0, t1, max_jumps, integrator)
    n = x0.size
    sigma0 = check_covariance(sigma0, n, x0.dtype, "covariance: sigma0")
    placed = place_noise(noise, system, t0, x0.dtype, params)
    times = None if times is None else jnp.asarray(times, x0.dtype)
    found = _covariance(system, placed, x0, sigma0, mode, t0, t1, params, max_jumps, integrator, times)
    return raise_stop("covariance", found, found.trajectory) if throw else found


@long_run
def _covariance(
    system: HybridSystem, noise: PlacedNoise, x0, sigma0, mode: str, t0, t1, params, max_jumps: int, integrator, times
) -> Covariance:
    whole, aged = system, takes_age(system)
    if aged:
        system, noise = with_age(system), aged_noise(noise)
        x0, sigma0 = jnp.pad(x0, (1, 0)), jnp.pad(sigma0, (1, 0))
    layout, leading = layout_of(system), tuple(each.dimension for each in system.modes.values())
    unit = covariance_unit(sigma0, noise, system.number(mode), t0, x0, params)
    z0, inputs = layout.join(x0, sigma0 / unit), JointParams(params, noise, unit)
    joint = covariance_system(system, noise, layout)
    automaton = Automaton(joint, leading=leading, alone=system)
    flown = run_simulation(automaton, z0, mode, t0, t1, inputs, max_jumps, integrator, times)

    def parts(z):
        """States and covariances of joint states."""
        x, sigma = layout.state(z), layout.covariance(z) * unit
        return (x[1:], sigma[1:, 1:]) if aged else (x, sigma)

    x, sigma = parts(flown.x)
    x_starts, sigma_starts = jax.vmap(parts)(flown.x_starts)
    x_ends, sigma_ends = jax.vmap(parts)(flown.x_ends)
    samples = sigma_samples = None
    if flown.samples is not None:
        x_samples, sigma_samples = jax.vmap(parts)(flown.samples.x)
        samples = dataclasses.replace(flown.samples, x=x_samples)
    trajectory = dataclasses.replace(
        flown, x=x, x_starts=x_starts, x_ends=x_ends, samples=samples, params=params, system=whole
    )
    if aged:
        trajectory = _known_at_once(trajectory, (flown.transitions >= 0) & (flown.x_ends[:, 0] <= 0))
    return Covariance(trajectory, sigma, sigma_starts, sigma_ends, sigma_samples)


def _known_at_once(trajectory: Trajectory, young: Bool[Array, " arcs"]) -> Trajectory:
    """The trajectory with the arcs that end beyond a guard's surface, and the rates of these guards.

    **Arguments:** `young`: the arcs that a jump ends at the time of the event before it.
    """
    automaton, params = Automaton(trajectory.system), trajectory.params
    at_once = jnp.array([way.at_once for way in trajectory.system.transitions])[trajectory.transitions]
    ways = trajectory.system.way_number(trajectory.transitions, trajectory.indices)

    def guard(t, x, mode, way):
        args, k = (mode, params), jnp.argmax(automaton.leaving(mode) == way)
        values, rates = automaton.surfaces.rates(t, x, automaton.field(t, x, args), args)
        noise, _ = rounding(automaton.surfaces, t, x, args)
        return values[k] < -noise[k], rates[k]

    columns = trajectory.end_times, trajectory.x_ends, trajectory.modes, ways
    below, rates = jax.vmap(guard)(*jax.tree.map(lambda column: jnp.where(rows_of(young, column), column, 0), columns))
    beyond = young & at_once & below
    rates = jnp.where(beyond, rates, trajectory.guard_rates)
    return dataclasses.replace(trajectory, at_once=beyond, guard_rates=rates)


def covariance_unit(sigma0: Matrix, noise: PlacedNoise, mode: int, t0: Time, x0: State, params: Params) -> Scalar:
    """The power of two next to the largest number among the initial covariance and the noise; 1 where all are zero.

    A noise that is a function of the state is looked at in the initial mode alone.
    """
    own = noise.flow[mode]
    seen = (value for index, value in enumerate(noise.values) if not callable(value) or index == own)
    return unit_of([sigma0, *(value_at(value, t0, x0, params) for value in seen)])


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
    return _stride_covariance(orbit, free, given)


@long_run
def _stride_covariance(orbit: PeriodicOrbit, free: tuple[int, ...], noise: Float[Array, "m m"]) -> Matrix:
    (a, b), result = stride_derivatives(orbit, free, lambda stride: stride.x)
    stable = orbit.stable
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
        stable = inside_circle(eigenvalues(matrix))
    else:
        matrix, stable, end = orbit.return_jacobian, orbit.stable, at_own_jumps(through)
    # An unstable sum overflows: its lane of a batch is computed with zeros.
    found = lyapunov_sum(jnp.where(stable, matrix, 0).T, covariance_in(end))
    if timed:
        found = covariance_in(at_own_jumps(around((found + found.T) / 2)))
    result = choose(orbit.result == RESULTS.successful, through.result, orbit.result)
    return nan_unless(result == RESULTS.successful, jnp.where(stable, (found + found.T) / 2, jnp.inf))
