r"""The backward transport of gradients once around a periodic orbit: transposed flows and saltation matrices.

A function of the state that every orbit near the periodic orbit preserves has a gradient $w$ with

$$\dot w = -A^\top w, \quad A = D_xf; \qquad w^- = \Xi^\top w^+,$$

so $w(t) = B(t)\,w(T)$ with $B(t) = \Phi(T, t)^\top$, the transposed fundamental matrix from $t$ to the orbit's end, and
$M = B(0)^\top$ is the monodromy matrix. An arc is divided at Chebyshev points, and $B$ is the product of the transposed Jacobians
of the flow over these short times: each to the integrator's tolerance, none inverted, and nothing is integrated backward, which
would be unstable where the flow contracts.

Source: Shirasaka, Kurebayashi, Nakao (2017), *Phase reduction theory for hybrid nonlinear oscillators*, Phys. Rev. E 95, 012212.
"""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from .._flow.flow import flow_for
from .._flow.integrator import pushable
from .._flow.jump import reset, saltation_matrix
from .._numerics.eager import long_run
from .._orbit.orbit import PeriodicOrbit
from .._orbit.problem import depends_on_time, Problem
from .._orbit.stride_derivatives import require_one
from .._results.shown import Shown
from .._system.types import Matrix, State, Time
from ..noise.age import takes_age, with_age


class ResponseArc(Shown):
    r"""The response along one arc of an orbit, from the state just after a jump to the state just before the next, both included.

    **Attributes:** `mode`: its name. `t`: times since the orbit's start, shape `(n,)`, at the Chebyshev points of the arc. `x`:
    states, shape `(n, dimension)`. `z`: responses, shape `(n, dimension)`. `weights`: of the quadrature, in units of time, shape
    `(n,)`: $\int h\,dt$ over the arc is `jnp.sum(arc.weights * h)`, to the accuracy of the states where $h$ is smooth.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> response = hj.phase.phase_response(orbit, samples=20)
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


def check_orbit(orbit: PeriodicOrbit, samples: int, caller: str) -> None:
    """`ValueError` for an orbit without a response: a batch, one that was not found, or one of a system that depends on time."""
    require_one(orbit, caller)
    if not isinstance(samples, int) or samples < 2:
        raise ValueError(f"{caller}: samples={samples!r} must be an integer of at least 2, for both ends of an arc.")
    problem = Problem(orbit.system, orbit.sequence, orbit.strides)
    if depends_on_time(problem, orbit.params, orbit.x):
        raise ValueError(
            f"{caller}: the system depends on time. A forced orbit has no free phase: its shift in time is no orbit, and it has "
            "no multiplier 1. Give the orbit of the system without the forcing, whose functions do not compute with t; "
            "hj.phase.entrainment adds a weak periodic forcing to it."
        )


@long_run
def transported(orbit: PeriodicOrbit, samples: int) -> tuple[Matrix, tuple[Transport, ...]]:
    """The transposed monodromy matrix at the orbit's start, shape `(n, n)`, and the transport along each arc of the sequence.
    Where jumps are taken at once, of the states that begin with the time since the last event (see `age.py`).

    Phase and isostable responses share this compiled program: nearly all of their compile time.
    """
    arcs, maps = [], []
    for k in range(len(orbit.sequence)):
        t, x, weights, flows, jump = jax.vmap(lambda i, k=k: _arc(orbit, k, i, samples))(jnp.arange(orbit.strides))
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


def _arc(orbit: PeriodicOrbit, k: int, stride: Array, samples: int):
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
    places, shares = (jnp.asarray(each, start.dtype) for each in chebyshev(samples))
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
