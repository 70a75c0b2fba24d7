r"""The responses of a hybrid limit cycle to a small push: of its phase, by the adjoint equation through events, and of the
amplitude of a decaying deviation, the isostable response.

A function of the state that every orbit near the periodic orbit preserves has a gradient $w$ with

$$\dot w = -A^\top w, \quad A = D_xf; \qquad w^- = \Xi^\top w^+,$$

so $w(t) = B(t)\,w(T)$ with $B(t) = \Phi(T, t)^\top$, the transposed fundamental matrix from $t$ to the orbit's end, and
$M = B(0)^\top$ is the monodromy matrix. An arc is divided at Chebyshev points, and $B$ is the product of the transposed Jacobians
of the flow over these short times: each to the integrator's tolerance, none inverted, and nothing is integrated backward, which
would be unstable where the flow contracts.

Source: Shirasaka, Kurebayashi, Nakao (2017), *Phase reduction theory for hybrid nonlinear oscillators*, Phys. Rev. E 95, 012212.
"""

import functools as ft

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Inexact

from .._flow.flow import flow_for
from .._flow.integrator import pushable
from .._flow.joint import takes_age, with_age
from .._flow.jump import reset, saltation_matrix
from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvectors
from .._numerics.elimination import solve
from .._orbit.orbit import PeriodicOrbit, require_one
from .._orbit.problem import depends_on_time, Problem
from .._results.failure import raise_failure
from .._results.registry import draw
from .._results.shown import Shown
from .._system.filippov import Side
from .._system.results import choose, nan_unless, RESULTS
from .._system.types import Matrix, Scalar, State, Time


class ResponseArc(Shown):
    r"""The response along one arc of an orbit, from the state just after a jump to the state just before the next, both included.

    **Attributes:** `mode`: its name. `t`: times since the orbit's start, shape `(n,)`, at the Chebyshev points of the arc. `x`:
    states, shape `(n, dimension)`. `z`: responses, shape `(n, dimension)`. `weights`: of the quadrature, in units of time, shape
    `(n,)`: $\int h\,dt$ over the arc is `jnp.sum(arc.weights * h)`, to the accuracy of the states where $h$ is smooth.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, n_samples=20)
    >>> arc = response.arcs[0]
    >>> arc.mode, arc.z.shape
    ('stance', (20, 2))
    >>> print(f"{jnp.sum(arc.weights):.6f}, {orbit.period:.6f}")
    2.310015, 2.310015
    """

    mode: str = eqx.field(static=True)
    t: Float[Array, "*batch n"]
    x: Float[Array, "*batch n dimension"]
    z: Inexact[Array, "*batch n dimension"]
    weights: Float[Array, "*batch n"]


# One arc of the sequence in all strides: times, shape `(strides, n)`; states, shape `(strides, n, dimension)`; weights of the
# quadrature, shape `(strides, n)`; and the matrices $B$, shape `(strides, n, dimension, first)`.
Transport = tuple[Array, Array, Array, Array]


def check_orbit(orbit: PeriodicOrbit, n_samples: int, caller: str) -> None:
    """`ValueError` for an orbit without a response: a batch, one that was not found, or one of a system that depends on time."""
    require_one(orbit, caller)
    if not isinstance(n_samples, int) or n_samples < 2:
        raise ValueError(
            f"{caller}: n_samples={n_samples!r} must be an integer of at least 2, for both ends of an arc."
        )
    problem = Problem(orbit.system, orbit.sequence, orbit.strides)
    if depends_on_time(problem, orbit.params, orbit.x):
        raise ValueError(
            f"{caller}: the system depends on time. A forced orbit has no free phase: its shift in time is no orbit, and it has "
            "no multiplier 1. Give the orbit of the system without the forcing, whose functions do not compute with t; "
            "hj.phase.entrainment adds a weak periodic forcing to it."
        )


@long_run
def transported(orbit: PeriodicOrbit, n_samples: int) -> tuple[Matrix, tuple[Transport, ...]]:
    """The transposed monodromy matrix at the orbit's start, shape `(n, n)`, and the transport along each arc of the sequence.
    Where jumps are taken at once, of the states that begin with the time since the last event (see `joint.py`).

    Phase and isostable responses share this compiled program: nearly all of their compile time.
    """
    arcs, maps = [], []
    for k in range(len(orbit.sequence)):
        t, x, weights, flows, jump = jax.vmap(lambda i, k=k: _arc(orbit, k, i, n_samples))(jnp.arange(orbit.strides))
        arcs.append((t, x, weights))
        maps.append((flows, jump))

    def stride_back(b, maps):
        found = []
        for flows, jump in reversed(maps):
            end = jump.T @ b
            b, rest = jax.lax.scan(lambda b, flow: (flow.T @ b,) * 2, end, flows, reverse=True)
            found.append(jnp.concatenate([rest, end[None]]))
        return b, tuple(reversed(found))

    start = jnp.eye(orbit.x.size + takes_age(orbit.system), dtype=orbit.x.dtype)
    total, back = jax.lax.scan(stride_back, start, tuple(maps), reverse=True)
    return total, tuple((*arc, b) for arc, b in zip(arcs, back, strict=True))


def along(orbit: PeriodicOrbit, arcs: tuple[Transport, ...], w: Inexact[Array, " n"]) -> tuple[ResponseArc, ...]:
    """The response $B(t)\\,w$ along each arc of the orbit, for its value `w` at the orbit's end."""
    return tuple(
        ResponseArc(mode, t[i], x[i], back[i].astype(w.dtype) @ w, weights[i])
        for i in range(orbit.strides)
        for mode, (t, x, weights, back) in zip(orbit.mode_names, arcs, strict=True)
    )


def rates(orbit: PeriodicOrbit, arc: ResponseArc) -> Float[Array, "n dimension"]:
    """The rates at the samples of an arc, of the coordinates that the response has."""
    return jax.vmap(lambda t, x: rate_at(orbit, arc.mode, t, x))(arc.t, arc.x)


def rate_at(orbit: PeriodicOrbit, mode: str, t: Time, x: State) -> Float[Array, " dimension"]:
    """The vector field of a mode; after the rate of the time since the last event where jumps are taken at once."""
    f = orbit.system.mode(mode).vector_field(t, x, orbit.params)
    return jnp.append(1, f) if takes_age(orbit.system) else f


def without_age(orbit: PeriodicOrbit, response: Inexact[Array, "*n dimension"]) -> Inexact[Array, "*n dimension"]:
    """The response to pushes of the state alone."""
    return response[..., 1:] if takes_age(orbit.system) else response


def _arc(orbit: PeriodicOrbit, k: int, stride: Array, n_samples: int):
    """Times, states, weights, Jacobians of the flow from each sample to the next, and saltation matrix, of arc `k` of a
    stride."""
    system, params, mode = orbit.system, orbit.params, orbit.sequence[k]
    integrator, taken = pushable(orbit.integrator), system.route(orbit.sequence)
    if k == 0:
        start, first = orbit.start_times[stride], orbit.nodes[stride]
    else:
        start = orbit.start_times[stride] + orbit.jump_times[stride, k - 1]
        first = reset(system.way(taken[k - 1]), start, orbit.arc_ends[k - 1][stride], params)
    end, last = orbit.start_times[stride] + orbit.jump_times[stride, k], orbit.arc_ends[k][stride]
    places, shares = (jnp.asarray(each, start.dtype) for each in chebyshev(n_samples))
    t = start + (end - start) * places
    inner = jax.vmap(lambda at: flow_for(system, mode, start, first, at, params, integrator))(t[1:-1])
    x = jnp.concatenate([first[None], inner, last[None]])
    onward = lambda t, x, until: jax.jacfwd(lambda x: flow_for(system, mode, t, x, until, params, integrator))(x)
    flows = jax.vmap(onward)(t[:-1], x[:-1], t[1:])
    if takes_age(system):
        flows = jax.vmap(lambda flow: jax.scipy.linalg.block_diag(jnp.ones_like(flow[:1, :1]), flow))(flows)
        system, last = with_age(system), jnp.append(end - start, last)
    return t, x, (end - start) * shares, flows, saltation_matrix(system, system.way(taken[k]), end, last, params)


def chebyshev(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The `n` Chebyshev points of [0, 1], ends included, and the weights of Clenshaw-Curtis quadrature.

    The weights integrate the Chebyshev polynomials up to degree `n - 1`, the cosines of multiples of the points' angles, exactly.
    """
    angles = np.pi * np.arange(n) / (n - 1)
    degrees = np.arange(0, n, 2)
    # The sum of cosines that interpolates a unit sample has half a term at both ends, of samples and of degrees.
    half = np.where(np.isin(np.arange(n), (0, n - 1)), 0.5, 1)
    moments = half[degrees] / (1 - degrees**2.0)
    weights = 2 / (n - 1) * half * (np.cos(np.outer(angles, degrees)) @ moments)
    return (1 - np.cos(angles)) / 2, weights


class PhaseResponse(Shown):
    r"""The phase response $Z$ along a periodic orbit, from `phase_response`.

    **Attributes:** `arcs`: for each arc of the orbit, in order, a `ResponseArc` with times `t`, states `x`, responses `z` and
    quadrature weights; its first and last samples are the states just after and just before the jumps. `residual`: the largest
    $|Z^\top f - 1|$ of all samples. `result`: a code of `RESULTS`; unless it is `successful`, the responses are NaN. `orbit`: the
    `PeriodicOrbit`, with `period` and `multipliers`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, n_samples=20)
    >>> print(f"{response.period:.6f}", len(response.arcs), response.result)
    2.310015 1 successful
    """

    arcs: tuple[ResponseArc, ...]
    residual: Float[Array, "*batch"]
    result: RESULTS
    orbit: PeriodicOrbit

    @property
    def period(self) -> Float[Array, "*batch"]:
        """The period of the orbit."""
        return self.orbit.period

    def plot(self, model=None):
        """A figure of the response to each coordinate over time; see `hyjax.plot.response_figure`."""
        return draw(self, model)


def phase_response(orbit: PeriodicOrbit, *, n_samples: int = 100, throw: bool = True) -> PhaseResponse:
    r"""The phase response of a periodic orbit: the gradient $Z = \partial\theta/\partial x$ of the phase.

    $$\dot Z = -A^\top Z, \quad A = D_xf; \qquad Z^- = \Xi^\top Z^+; \qquad Z^\top f = 1$$

    with the saltation matrix $\Xi$, and $Z$ periodic. The phase $\theta$ is in units of time: a small push $\delta x$ at a state
    of the orbit makes the later events earlier by $Z^\top\delta x$, once other deviations have decayed. Multiply $Z$ by $2\pi/T$
    for the phase in radians, by $1/T$ for cycles. $Z^\top f = 1$ on both sides of every event, since $\Xi f^- = f^+$.

    At the orbit's start $Z$ is the left eigenvector of the monodromy matrix $M$ to the multiplier 1: it solves one linear system,
    $(I - M^\top + \hat f\hat f^\top) Z = \hat f/|f|$, $\hat f = f/|f|$, that is regular where 1 is a simple multiplier. From
    there $Z$ is transported backward by products of transposed Jacobians of the flow and saltation matrices, each to the
    integrator's tolerance. On an unstable orbit $Z$ is that eigenvector too: $Z^\top\delta x$ is the part of a push along the
    flow, beside those along the other eigenvectors, but a pushed state does not return.
    Where the flow slides along a surface of `hj.filippov`, it leads a pushed state back at once, along the jump of the field: $Z$
    is the response to what is left of a push, and 0 to a push along the jump. Along two surfaces it is that of the sliding flow.

    **Arguments:** `orbit`: one orbit of a system that does not depend on time. `n_samples`: the number of samples of each arc,
    static; they are Chebyshev points, so that integrals by the `weights` of the arcs converge faster than any power of it.
    `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `PhaseResponse`, also under `jit` and `vmap`, differentiable in the orbit's parameters. `result` is the code of
    an orbit that was not found, or `no_simple_multiplier` where the multiplier 1 is not simple or not found: $|Z^\top f - 1|$
    exceeds the fourth root of rounding. `ValueError` for a batch of orbits and for a system that depends on time, whose orbits
    have no free phase.

    The phase shift of a kick and the change of the period by the rate $D_pf$ of a parameter:

        response = hj.phase.phase_response(orbit)
        arc = response.arcs[0]
        earlier = arc.z[20] @ kick
        slope = -sum(jnp.sum(arc.weights * jnp.sum(arc.z * rate(arc.x), axis=1)) for arc in response.arcs)

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, n_samples=20)
    >>> print(response.arcs[0].z[0].round(6), bool(response.residual < 1e-12))
    [ 6.826141 10.106056] True

    Source: Shirasaka, Kurebayashi, Nakao (2017), *Phase reduction theory for hybrid nonlinear oscillators*, Phys. Rev. E 95,
    012212. $Z$ is a co-vector in the sense of Kong, Payne, Zhu, Johnson (2024): the adjoint of eqs. 30-32 around the limit cycle
    of Sec. III-C, with eq. 34 for $M$; in Table I $A$ of eq. 30, $\Xi$ of eq. 9 and the limit cycle; in Sec. II models of
    neurons.
    """
    check_orbit(orbit, n_samples, "phase_response")
    response = _phase_response(orbit, *transported(orbit, n_samples))
    return raise_failure("phase_response", response) if throw else response


@long_run
def _phase_response(orbit: PeriodicOrbit, transposed: Matrix, arcs: tuple[Transport, ...]) -> PhaseResponse:
    f = rate_at(orbit, orbit.sequence[0], orbit.start_times[0], orbit.x)
    speed = jnp.sqrt(jnp.sum(f**2))
    ahead = f / speed
    z = solve(jnp.eye(f.size, dtype=f.dtype) - transposed + jnp.outer(ahead, ahead), ahead / speed)
    found = along(orbit, arcs, z)
    residual = largest([jnp.sum(arc.z * rates(orbit, arc), axis=1) - 1 for arc in found])
    sound = residual < float(jnp.finfo(f.dtype).eps) ** 0.25
    result = choose((orbit.result == RESULTS.successful) & ~sound, RESULTS.no_simple_multiplier, orbit.result)
    return PhaseResponse(
        masked(orbit, found, result), nan_unless(result == RESULTS.successful, residual), result, orbit
    )


def largest(values: list[Array]) -> Scalar:
    """The largest modulus in several arrays."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(each)) for each in values]))


def masked(orbit: PeriodicOrbit, arcs: tuple[ResponseArc, ...], result: RESULTS) -> tuple[ResponseArc, ...]:
    """The arcs, with the responses to pushes of the state; NaN unless the result is `successful`."""
    good = result == RESULTS.successful
    return tuple(eqx.tree_at(lambda arc: arc.z, arc, nan_unless(good, _to_pushes(orbit, arc))) for arc in arcs)


def _to_pushes(orbit: PeriodicOrbit, arc: ResponseArc) -> Inexact[Array, "*n dimension"]:
    """The response to pushes of the state alone; where the flow slides along a surface, from off which it is led back at once, to
    pushes projected onto it along the jump of the field."""
    z, side = without_age(orbit, arc.z), orbit.system.mode(arc.mode).domain
    if not isinstance(side, Side):
        return z
    return jax.vmap(lambda t, x, z: z @ side.led_back(t, x, orbit.params))(arc.t, arc.x, z)


class IsostableResponse(Shown):
    r"""The isostable response along a periodic orbit, from `isostable_response`.

    **Attributes:** `arcs`: for each arc of the orbit, in order, a `ResponseArc`, whose `z` is the response $I$, complex.
    `multiplier`: $\lambda$. `exponent`: $\kappa = \ln(\lambda)/T$, per unit of time. `direction`: the eigenvector of $\lambda$ at
    the orbit's start, of length 1, shape `(n,)`. `residual`: the largest $|I^\top f|$ of all samples. `result`: a code of
    `RESULTS`; unless it is `successful`, the numbers are NaN. `orbit`: the `PeriodicOrbit`.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.isostable_response(orbit, n_samples=20)
    >>> print(f"{response.multiplier.real:.6f} {response.exponent.real:.6f}", response.direction.real.round(6))
    0.444444 -0.351050 [ 0.828676 -0.559729]
    """

    arcs: tuple[ResponseArc, ...]
    multiplier: Complex[Array, "*batch"]
    exponent: Complex[Array, "*batch"]
    direction: Complex[Array, "*batch n"]
    residual: Float[Array, "*batch"]
    result: RESULTS
    orbit: PeriodicOrbit

    @property
    def period(self) -> Float[Array, "*batch"]:
        """The period of the orbit."""
        return self.orbit.period

    def plot(self, model=None):
        """A figure of the response to each coordinate over time, its real part; see `hyjax.plot.response_figure`."""
        return draw(self, model)


def isostable_response(
    orbit: PeriodicOrbit, *, which: int = 0, n_samples: int = 100, throw: bool = True
) -> IsostableResponse:
    r"""The isostable response of a periodic orbit: the gradient $I$ of an amplitude $\psi$ of the deviations from the orbit.

    $$\dot\psi = \kappa\,\psi, \quad \kappa = \frac{\ln\lambda}{T}; \qquad \dot I = (\kappa - A^\top) I; \qquad
      I^- = \Xi^\top I^+; \qquad I^\top f = 0$$

    with the saltation matrix $\Xi$, and $I$ periodic. A small push $\delta x$ at a state of the orbit changes $\psi$ by
    $I^\top\delta x$, which decays by the factor $\lambda$ in each period. Normalization: $I^\top v = 1$ at the orbit's start,
    where $v$ is the eigenvector of the monodromy matrix, of length 1 with a largest component that is positive; so there $\psi$
    is the component of the deviation along $v$, in units of the state.

    $I$ is complex: real for a positive multiplier. For a negative one $\kappa$ has the imaginary part $\pi/T$, and
    $I\,e^{-\kappa t}$ is real up to a constant factor; a complex pair has a pair of conjugate responses.

    **Arguments:** `orbit`: one orbit of a system that does not depend on time. `which`: the index of $\lambda$ in
    `orbit.multipliers`, static; 0 is the slowest of a stable orbit. `n_samples`, `throw`: as for `phase_response`.

    **Returns:** `IsostableResponse`, also under `jit` and `vmap`, differentiable in the orbit's parameters. `result` is the code
    of an orbit that was not found, or `no_simple_multiplier` where $\lambda$ is zero up to rounding, as every multiplier of a
    system of one coordinate, or not simple. `ValueError` for what `phase_response` refuses, and an index out of range.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.isostable_response(orbit, n_samples=20)
    >>> print(response.arcs[0].z[0].real.round(6))
    [-2.585274 -5.614059]

    Source: Wilson, Moehlis (2016), *Isostable reduction of periodic orbits*, Phys. Rev. E 94, 052213, for smooth systems;
    Shirasaka, Kurebayashi, Nakao (2017), Phys. Rev. E 95, 012212, for the jump of a gradient. In Kong, Payne, Zhu, Johnson
    (2024): the adjoint of eqs. 30-32, and in Table I the Floquet exponent of Sec. III-C, here $\kappa$.
    """
    check_orbit(orbit, n_samples, "isostable_response")
    n = orbit.x.size
    if not isinstance(which, int) or not 0 <= which < n:
        raise ValueError(
            f"isostable_response: which={which!r} must be the index of a multiplier of the orbit, from 0 to {n - 1}."
        )
    response = _isostable_response(orbit, which, *transported(orbit, n_samples))
    return raise_failure("isostable_response", response) if throw else response


@long_run
def _isostable_response(
    orbit: PeriodicOrbit, which: int, transposed: Matrix, arcs: tuple[Transport, ...]
) -> IsostableResponse:
    eps, value = float(jnp.finfo(orbit.x.dtype).eps), orbit.multipliers[which]
    of_value = lambda number: number.astype(value.dtype)
    there = jnp.abs(value) > 1e3 * eps * jnp.maximum(jnp.max(jnp.abs(orbit.multipliers)), 1)
    value = jnp.where(there, value, 1)
    kappa = jnp.log(value) / of_value(orbit.period)
    right, left = (vectors[0] for vectors in eigenvectors(transposed.T, value[None]))
    # The eigenvector has the length 1: turned, its largest component is positive.
    pushes = without_age(orbit, right)
    top = pushes[jnp.argmax(jnp.abs(pushes))]
    length = jnp.abs(top) if pushes.size == right.size else jnp.abs(top) * jnp.linalg.norm(pushes)
    right = right * jnp.conj(top) / of_value(length)
    product = jnp.sum(left * right)
    simple = jnp.abs(product) > eps**0.5
    found = along(orbit, arcs, left / jnp.where(simple, product, 1))
    grown = lambda arc: arc.z * jnp.exp(kappa * of_value(arc.t - orbit.period))[:, None]
    found = tuple(eqx.tree_at(lambda arc: arc.z, arc, grown(arc)) for arc in found)
    residual = largest([jnp.sum(arc.z * of_value(rates(orbit, arc)), axis=1) for arc in found])
    failed = (orbit.result == RESULTS.successful) & ~(there & simple & jnp.isfinite(residual))
    result = choose(failed, RESULTS.no_simple_multiplier, orbit.result)
    nan = ft.partial(nan_unless, result == RESULTS.successful)
    return IsostableResponse(
        masked(orbit, found, result),
        nan(value),
        nan(kappa),
        nan(without_age(orbit, right)),
        nan(residual),
        result,
        orbit,
    )
