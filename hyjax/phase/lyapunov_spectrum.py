r"""The Lyapunov exponents of a trajectory, through whatever modes come.

They are those of the tangent vectors of a joint system, $(x, V)$:

$$\dot V = A\,V, \quad A = D_xf; \qquad V^+ = \Xi\,V^-$$

with the saltation matrix $\Xi$. The states of all modes are padded with zeros to the largest dimension, `size`, and so are the
tangent vectors: where they are in the array does not depend on the mode.
"""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton
from .._flow.integrator import integrator_to, IntegratorLike, Integrators, without_jacobian
from .._flow.joint import joint_system, numbered, pushed, takes_age, with_age
from .._flow.jump import variation_of_jump
from .._flow.simulate import check_simulation, end_of_simulation, first_arc
from .._numerics.eager import long_run
from .._numerics.elimination import orthonormal
from .._numerics.trees import select
from .._results.failure import raise_failure
from .._results.shown import Shown
from .._results.table import Table
from .._system.results import nan_unless, RESULTS
from .._system.system import Guard, HybridSystem, of_member, Reset, VectorField
from .._system.types import Params, require_counts, Scalar, State, Time

# The tangent vectors are rows.
Tangents = Float[Array, "count size"]


def with_tangents(x: State, tangents: Float[Array, "count n"], size: int) -> Float[Array, " joint"]:
    """State and tangent vectors in one array, each padded with zeros to `size`."""
    rows = jnp.pad(jnp.concatenate([x[None], tangents]), ((0, 0), (0, size - x.size)))
    return rows.ravel()


def split_tangents(z: Float[Array, " joint"], size: int) -> tuple[Float[Array, " size"], Tangents]:
    """State and tangent vectors, padded."""
    rows = z.reshape(-1, size)
    return rows[0], rows[1:]


def tangent_system(system: HybridSystem, count: int) -> HybridSystem:
    """The hybrid system of the state with `count` tangent vectors."""
    size = max(mode.dimension for mode in system.modes.values())

    def flow(name: str) -> VectorField:
        mode = system.mode(name)
        return eqx.Partial(_flow, mode.vector_field, mode.dimension, size)

    def jump(k: int) -> Reset:
        way = system.transitions[k]
        source, target = system.mode(way.source), system.mode(way.target)
        return eqx.Partial(
            _jump, source.vector_field, target.vector_field, way.guard, way.reset, source.dimension, size
        )

    return joint_system(system, flow, jump, lambda mode: numbered(size * (1 + count)))


def _flow(vector_field: VectorField, n: int, size: int, t: Time, z: State, params: Params) -> State:
    x, tangents = split_tangents(z, size)
    rate, turned = pushed(vector_field, t, x[:n], params, tangents[:, :n].T)
    return with_tangents(rate, turned.T, size)


def _jump(
    before: VectorField,
    after: VectorField,
    guard: Guard,
    leap: Reset,
    n: int,
    size: int,
    t: Time,
    z: State,
    params: Params,
    *member,
) -> State:
    x, tangents = split_tangents(z, size)
    x, tangents, (guard, leap) = x[:n], tangents[:, :n], of_member(guard, leap, *member)
    jacobian, slip, delay, _ = variation_of_jump(before, after, guard, leap, t, x, params)
    xi = jacobian - jnp.outer(slip, delay)
    return with_tangents(jnp.asarray(leap(t, x, params), x.dtype), tangents @ xi.T, size)


# Standard errors are those of the mean over this number of consecutive parts of the trajectory.
PARTS = 20


class LyapunovSpectrum(Shown):
    """The Lyapunov exponents of a trajectory, from `lyapunov_spectrum`.

    **Attributes:** `exponents`: largest first, shape `(count,)`, per unit of time. `errors`: their standard errors, from the
    scatter of 20 parts of the trajectory, 0 for an exponent of `-inf`. `jumps`: the number of jumps in the time that is
    measured. `duration`: that time. `t`, `x`, `mode`: time, padded state and index of the mode at the end. `result`: a code of
    `simulate`; unless it is `successful`, exponents and errors are NaN.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> found = hj.phase.lyapunov_spectrum(wheel.system, orbit.x, params, mode="stance", t1=50.0, n_segments=100)
    >>> print(found.exponents.shape, found.jumps, found.duration, found.result)
    (2,) 21 50.0 successful
    """

    exponents: Float[Array, "*batch count"]
    errors: Float[Array, "*batch count"]
    jumps: Int[Array, "*batch"]
    duration: Float[Array, "*batch"]
    t: Float[Array, "*batch"]
    x: Float[Array, "*batch size"]
    mode: Int[Array, "*batch"]
    result: RESULTS

    def _tables(self):
        if self.duration.ndim:
            return (Table(f"{self.duration.size} spectra of Lyapunov exponents", []),)
        about = f"over {float(self.duration):.6g} with {int(self.jumps)} jumps: {self.result}"
        lines = []
        for value, error in zip(np.asarray(self.exponents), np.asarray(self.errors), strict=True):
            lost = "  (the jumps let nothing through, or it is below rounding at the end of a segment)"
            lines.append(f"{value:+.6g}" + (lost if np.isneginf(value) else f" +- {error:.2g}"))
        return (Table(f"Lyapunov exponents per unit of time, {about}", [], notes=lines),)


def lyapunov_spectrum(
    system: HybridSystem,
    x0: State,
    params: Params,
    *,
    mode: str,
    t1: float | Time,
    t0: float | Time = 0.0,
    transient: float | Scalar = 0.0,
    n_segments: int = 1000,
    n_exponents: int | None = None,
    max_jumps: int = 100,
    integrator: IntegratorLike | None = None,
    throw: bool = True,
) -> LyapunovSpectrum:
    r"""The Lyapunov exponents along a trajectory through any sequence of modes: rates at which tangent vectors grow.

    $$\dot V = D_xf\,V, \qquad V^+ = \Xi\,V^-, \qquad V = QR \ \text{at the end of each segment}, \qquad
      \lambda_i = \frac1T \sum \log |R_{ii}|$$

    with the saltation matrix $\Xi$ at events; the next segment starts with $Q$. The sum of all exponents is the mean rate of the
    logarithm of volumes. On a periodic orbit they are $\log|\mu_i| / T$ with the multipliers $\mu_i$ of the monodromy matrix.

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters, a PyTree. `x0`, `mode`, `t0`, `t1`: as for `simulate`.
    `transient`: the time at the begin that is not measured, in which the trajectory comes to its attractor and the tangent
    vectors to their directions. `n_segments`: the number of segments of the whole time, static. In one segment no vector may
    shrink by as much as the rounding error against another: then its exponent is `-inf`, as it is where a reset or a jump into a
    mode of fewer coordinates lets nothing of it through. `n_exponents`: how many, static; by default the smallest dimension of
    a mode. `max_jumps`: in one segment, static. `integrator`: an `Integrator`, or one for each mode; by default Dopri8 at
    tolerances of 1e-9. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `LyapunovSpectrum`, also under `jit` and `vmap`. `result` is a code of `simulate`. `ValueError` for arguments of
    a wrong shape or dtype, or that are not finite.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> found = hj.phase.lyapunov_spectrum(wheel.system, orbit.x, params, mode="stance", t1=50.0, n_segments=100)
    >>> print(f"{found.exponents[0]:.3f} {found.exponents[1]:.3f} {jnp.log(0.5) / orbit.period:.3f}")
    0.033 -0.374 -0.300

    Source: Benettin, Galgani, Giorgilli, Strelcyn (1980), *Lyapunov characteristic exponents for smooth dynamical systems*,
    Meccanica 15; Müller (1995), *Calculation of Lyapunov exponents for dynamic systems with discontinuities*, Chaos, Solitons
    and Fractals 5, for the events. In Kong, Payne, Zhu, Johnson (2024): eqs. 30-32 for $V$; in Table I the Floquet exponent of
    Sec. III-C, whose real part is the Lyapunov exponent; in Sec. II stability.
    """
    integrator = integrator_to(1e-9, jnp.asarray(x0).dtype) if integrator is None else integrator
    system, t0, x0, t1, params, integrator = check_simulation(system, x0, params, mode, t0, t1, max_jumps, integrator)
    smallest = min(each.dimension for each in system.modes.values())
    n_exponents = smallest if n_exponents is None else n_exponents
    if not isinstance(n_exponents, int) or not 1 <= n_exponents <= smallest:
        raise ValueError(
            f"lyapunov_spectrum: n_exponents={n_exponents!r} must be an integer from 1 to {smallest}, the smallest dimension "
            "of a mode."
        )
    require_counts("lyapunov_spectrum", PARTS, n_segments=n_segments)
    transient = jnp.asarray(transient, x0.dtype)
    known = not any(isinstance(each, jax.core.Tracer) for each in (transient, t0, t1))
    if known and not 0 <= transient <= (t1 - t0) * (1 - PARTS / n_segments):
        raise ValueError(
            f"lyapunov_spectrum: transient={transient} must not be negative, and leave at least {PARTS} of the {n_segments} "
            f"segments from t0={t0} to t1={t1}."
        )
    plain = without_jacobian(integrator)
    found = _spectrum(system, x0, mode, t0, t1, transient, params, n_segments, n_exponents, max_jumps, plain)
    return raise_failure("lyapunov_spectrum", found) if throw else found


@long_run
def _spectrum(
    system,
    x0,
    mode: str,
    t0,
    t1,
    transient,
    params,
    n_segments: int,
    n_exponents: int,
    max_jumps: int,
    integrator: Integrators,
) -> LyapunovSpectrum:
    # Of the state with the time since the last event the tangent vectors have no share of that time where they begin.
    aged = takes_age(system)
    without_age = lambda part: part[..., 1:] if aged else part
    with_zero = lambda part: jnp.pad(part, [*[(0, 0)] * (part.ndim - 1), (int(aged), 0)])
    system = with_age(system) if aged else system
    dimensions = tuple(each.dimension for each in system.modes.values())
    size = max(dimensions)
    automaton = Automaton(tangent_system(system, n_exponents), leading=dimensions)
    # Any directions serve; these are orthonormal and lie in no coordinate plane.
    spread = np.random.default_rng(0).normal(size=(x0.size, n_exponents))
    tangents = jnp.asarray(np.linalg.qr(spread)[0].T, x0.dtype)
    begin = first_arc(
        automaton, with_tangents(with_zero(x0), with_zero(tangents), size), jnp.array(system.number(mode)), t0, t1
    )

    def segment(now, k):
        # A failure ends the trajectory.
        until = jnp.maximum(t0 + (t1 - t0) * ((k + 1) / n_segments), now.t)
        going = now.result == RESULTS.successful
        start = first_arc(automaton, now.z, now.mode, now.t, jnp.where(going, until, now.t))
        reached, jumps, _ = end_of_simulation(
            automaton, start, jnp.where(going, until, now.t), params, max_jumps, integrator
        )
        x, tangents = split_tangents(reached.z, size)
        # The jumps that are taken at once at the end of a segment have been taken.
        tangents, grown = orthonormal(without_age(tangents))
        reached = eqx.tree_at(lambda end: end.z, reached, with_tangents(x, with_zero(tangents), size))
        return select(going, reached, now), (reached.t - now.t, grown, jumps)

    order = jnp.arange(n_segments, dtype=x0.dtype)
    end, (durations, grown, jumps) = jax.lax.scan(segment, begin, order)
    measured = order >= jnp.round(transient / jnp.where(t1 > t0, t1 - t0, 1) * n_segments)
    durations = jnp.where(measured, durations, 0)
    grown = jnp.where(measured[:, None], grown, 0)
    duration = jnp.sum(durations)
    exponents = jnp.sum(grown, axis=0) / duration
    # Consecutive parts, each of as many segments up to one.
    number = jnp.cumsum(measured) - 1
    part = jnp.where(measured, number * PARTS // jnp.maximum(jnp.sum(measured), 1), PARTS)
    sums = lambda rows: jax.ops.segment_sum(rows, part, PARTS + 1)[:PARTS]
    means = sums(jnp.where(jnp.isfinite(grown), grown, 0)) / sums(durations)[:, None]
    errors = jnp.std(means, axis=0, ddof=1) / np.sqrt(PARTS)
    good = end.result == RESULTS.successful
    x, _ = split_tangents(end.z, size)
    return LyapunovSpectrum(
        exponents=nan_unless(good, exponents), errors=nan_unless(good, jnp.where(jnp.isfinite(exponents), errors, 0)),
        jumps=jnp.sum(jnp.where(measured, jumps, 0)), duration=duration, t=end.t, x=without_age(x), mode=end.mode,
        result=end.result,
    )  # fmt: skip
