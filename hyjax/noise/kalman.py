r"""The salted Kalman filter: the extended Kalman filter through events.

**Prediction**, through whatever events come until the next measurement, is one loop, in which each pass is one flow and one jump,
so that both are compiled once: first the jump of a mean that lies beyond a guard; then the arcs, each with the jump at its end,
of which the last may have a jump that is early; then, if there was an event, the flow on without the last one.

**Modes.** An estimate near an event is uncertain of whether the event has happened: with the guard's value $g$ and variance
$\sigma^2 = D_xg\,\Sigma\,D_xg^\top + \sigma_g^2$ at a mean that flows on without the event, it has not with the probability
$\Phi(g/\sigma)$. Each of the hypotheses predicts another measurement $y$; the one with the largest product of its probability and
the density $N(y;\,h(x), S)$ of the measurement is kept.

A scan over measurements, each of which follows a prediction through events: the measurement of a state that is known with a
covariance has a prediction, a likelihood, and Kalman's update.
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton, ByMode, functions_by_mode, Index, Padded, switched
from .._flow.integrator import integrator_to, IntegratorLike, Integrators, ModeIntegrators, without_jacobian
from .._flow.simulate import ArcStart, check_simulation, first_arc, flow_arc, leave_arc
from .._flow.surfaces import rounding, start_threshold
from .._numerics.eager import long_run
from .._numerics.elimination import smallest_pivot
from .._numerics.linearize import linearizable
from .._numerics.semidefinite import check_covariance
from .._numerics.trees import select, without_tangents
from .._results.failure import raise_failure
from .._results.shown import is_traced
from .._system.every import Clock
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Matrix, Params, Scalar, State, Time
from .covariance import covariance_unit
from .covariance_system import covariance_system, JointParams, Layout, layout_of, with_eventless_modes
from .estimates import Estimates, Filtered
from .noise import Noise, place_noise, PlacedNoise


class Estimator(eqx.Module):
    """The systems of an estimate: `flow`, that of `covariance_system`; and `state`, of the state alone and the same modes."""

    flow: Automaton
    state: Automaton
    layout: Layout
    params: JointParams


class GuardsAt(eqx.Module):
    """The guards of the mode of an estimate: `values`; `deviations`, the values divided by their standard deviations; `rates`
    along the flow; whether they are `armed`; and `noise`, the rounding errors of the values."""

    values: Float[Array, " guards"]
    deviations: Float[Array, " guards"]
    rates: Float[Array, " guards"]
    armed: Bool[Array, " guards"]
    noise: Float[Array, " guards"]

    def passed(self, at: Time) -> tuple[Flag, Int[Array, ""]]:
        """Whether the mean is on or beyond a guard that falls there, and which it passed first: the largest g / rate.

        A flow does not see a guard that is zero within rounding at its start, so a mean that an update leaves there has passed
        it. **Arguments:** `at`: the size of the times, whose rounding counts.
        """
        beyond = self.armed & (self.rates < 0) & (self.values <= start_threshold(self.noise, at, self.rates))
        since = jnp.where(beyond, self.values / jnp.where(beyond, self.rates, 1), -jnp.inf)
        return jnp.any(beyond), jnp.argmax(since)

    def approached(self) -> tuple[Flag, Int[Array, ""]]:
        """Whether the mean flows towards a guard, and which is nearest in deviations."""
        ahead = self.armed & (self.rates < 0) & (self.values >= 0)
        return jnp.any(ahead), jnp.argmin(jnp.where(ahead, self.deviations, jnp.inf))


def guards_at(estimator: Estimator, t: Time, z: Padded, mode: Index) -> GuardsAt:
    """The guards at an estimate, without derivatives."""
    t, z, params = stop_gradient((t, z)) + (without_tangents(estimator.params),)
    x, sigma = estimator.layout.state(z), estimator.layout.covariance(z)
    surfaces, args = estimator.state.surfaces, (mode, params.params)
    values, rates = surfaces.rates(t, x, estimator.state.field(t, x, args), args)
    slopes = jax.jacfwd(lambda x: surfaces.values(t, x, args))(x)
    variances = jnp.einsum("gi,ij,gj->g", slopes, sigma, slopes) + _levels(estimator, t, x, mode)
    tiny = float(jnp.finfo(z.dtype).tiny) ** 0.5
    deviations = values / jnp.sqrt(jnp.maximum(variances * params.unit, tiny))
    noise, _ = rounding(surfaces, t, x, args)
    return stop_gradient(GuardsAt(values, deviations, rates, surfaces.armed(t, x, args), noise))


def _levels(estimator: Estimator, t: Time, x: Float[Array, " size"], mode: Index) -> Float[Array, " guards"]:
    """The variances of the levels of the guards, in the unit of the covariance."""
    system, params = estimator.state.system, estimator.params
    count = estimator.state.surfaces.count
    if not any(index is not None for index in params.noise.guard):
        return jnp.zeros(count, x.dtype)
    ways = [
        (each.dimension, tuple(params.noise.guard[i] for i in system.leaving(name) for _ in range(system.sizes[i])))
        for name, each in system.modes.items()
    ]

    def levels(way, t, x, params):
        n, own = way
        known = [params.noise_at(index, t, x[:n], ()) for index in own]
        return jnp.stack([*known, *[jnp.zeros((), x.dtype)] * (count - len(own))])

    return switched(mode, ways, levels, t, x, params)


def log_probabilities(happened: Flag, last: Scalar, ahead: Flag, following: Scalar) -> Float[Array, "3"]:
    """The logarithms of the probabilities that the estimate is as predicted, without its last event, after its next event; `-inf`
    where there is no such event.

    **Arguments:** `last`: the value of the last event's guard, had it not happened; `following`: that of the next event's guard;
    both in deviations. `happened`, `ahead`: whether there are these events.
    """
    has = jnp.where(happened, norm.logcdf(-last), 0)
    as_predicted = has + jnp.where(ahead, norm.logcdf(following), 0)
    without = jnp.where(happened, norm.logcdf(last), -jnp.inf)
    return jnp.stack([as_predicted, without, jnp.where(ahead, has + norm.logcdf(-following), -jnp.inf)])


# The stages of the loop of `predict`: the jump of a mean beyond a guard, an arc, the flow on without the last event, the end.
_LEAP, _ARC, _BACK, _DONE = range(4)


# The estimate before the last event since the previous measurement: time, estimate, mode; its way, -1 without an event; and how
# many there were, with the jump of a mean that was beyond a guard at the start.
LastEvent = tuple[Time, Padded, Index, Index, Int[Array, ""]]
# The estimate and its mode if the next event had happened, or the last one had not; the value of that event's guard, in its
# deviations, at the mean that flows on without it; and whether there is such an event.
Hypothesis = tuple[Padded, Index, Scalar, Flag]
# The estimate at the next measurement, with its result, and the last event before it. For the test of modes: the estimate after
# its next event, and flown on without its last event.
Prediction = tuple[ArcStart, LastEvent, Hypothesis, Hypothesis]


def predict(
    estimator: Estimator,
    t: Time,
    z: Padded,
    mode: Index,
    until: Time,
    max_jumps: int,
    integrator: Integrators,
    tested: bool,
) -> Prediction:
    """The estimate at the time `until`. **Arguments:** `tested`: whether the hypotheses are found; then the automaton has modes
    without events."""
    flow, params, at_once = estimator.flow, estimator.params, jnp.array(-1)
    if flow.surfaces.count:
        beyond, k = guards_at(estimator, t, z, mode).passed(jnp.maximum(jnp.abs(t), jnp.abs(until)))
        at_once = jnp.where(beyond, flow.way(mode, k), -1)
    start, half = first_arc(flow, z, mode, t, until), len(flow.names) // 2
    none: Hypothesis = z, mode, jnp.zeros((), z.dtype), jnp.array(False)
    last: LastEvent = t, z, mode, jnp.array(-1), jnp.where(at_once >= 0, jnp.array(1), jnp.array(0))

    def one(carry: tuple[Index, Prediction]) -> tuple[Index, Prediction]:
        stage, (end, last, early, without) = carry
        t_last, z_last, mode_last, way_last, events = last
        now, at = end, end.mode
        leap, back = stage == _LEAP, stage == _BACK
        if tested:
            # An event within rounding of the measurement may lie beyond it.
            now = select(back, first_arc(flow, z_last, mode_last + half, t_last, _not_before(until, t_last)), now)
            at = jnp.where(back, mode_last, now.mode)
        # The flow of a leap is not looked at, and takes no step.
        arrival, met = flow_arc(flow, now, start, jnp.where(leap, now.t - 1, until), params, integrator)
        t, z = select(leap, (now.t, now.z), (arrival.t, arrival.x))
        taken = jnp.where(leap, at_once, met)
        if tested:
            guards = guards_at(estimator, t, z, at)
            ahead, k = guards.approached()
            taken = jnp.where(taken >= 0, taken, flow.way(at, k))
        z_after = flow.jump(t, z, jnp.maximum(taken, 0), params)
        target = flow.target(jnp.maximum(taken, 0))
        after, row = leave_arc(flow, now, events >= max_jumps, arrival, met, z_after, params)
        after = select(leap, first_arc(flow, z_after, target, now.t, until), after)
        jumped, ended = (stage == _ARC) & row.jumped, (stage == _ARC) & after.done
        t_last, z_last, mode_last, way_last, events = last = select(
            jumped, (row.end, row.x_end, row.mode, row.way, events + 1), last
        )
        following = _DONE
        if tested:
            early = select(ended, (z_after, target, guards.deviations[k], ahead), early)
            number = jax.vmap(lambda k: flow.way(at, k))(jnp.arange(guards.values.size))
            deviation = guards.deviations[jnp.argmax(number == way_last)]
            without = select(back, (z, mode_last, deviation, jnp.array(True)), without)
            following = jnp.where(way_last >= 0, _BACK, _DONE)
        stage = jnp.where(back, _DONE, jnp.where(ended, following, _ARC))
        return stage, (select(back, end, after), last, early, without)

    first = jnp.where(start.done, _DONE, jnp.where(at_once >= 0, _LEAP, _ARC))
    return jax.lax.while_loop(lambda carry: carry[0] != _DONE, one, (first, (start, last, none, none)))[1]


def _not_before(until: Time, t: Time) -> Time:
    """The time `until`, but not before `t`; with the derivative of `until`."""
    return until + stop_gradient(jnp.maximum(t - until, 0))


Observe = Callable[[Time, State, Params], Array]


class Innovation(eqx.Module):
    r"""A measurement minus its prediction, $r = y - h(t, x)$, and its covariance $S = H\Sigma H^\top + V$.

    **Attributes:** `gain`: $K = \Sigma H^\top S^{-1}$. `jacobian`: $H = D_xh$. `nis`: $r^\top S^{-1} r$. `log_likelihood`:
    $-\frac12(r^\top S^{-1} r + \log\det 2\pi S)$.
    """

    residual: Float[Array, " measured"]
    covariance: Float[Array, "measured measured"]
    gain: Float[Array, "size measured"]
    jacobian: Float[Array, "measured size"]
    nis: Scalar
    log_likelihood: Scalar


def innovation(
    h: Callable[[State], Array],
    error: Float[Array, "measured measured"],
    x: State,
    sigma: Float[Array, "n n"],
    y: Array,
) -> Innovation:
    """The innovation of a measurement; NaN where its covariance is not positive definite. **Arguments:** `error`: $V$."""
    jacobian = jax.jacfwd(h)(x)
    residual = y - h(x)
    covariance = jacobian @ sigma @ jacobian.T + error
    root = jnp.linalg.cholesky(covariance)
    solve = lambda b: jax.scipy.linalg.cho_solve((root, True), b)
    nis = residual @ solve(residual)
    volume = 2 * jnp.sum(jnp.log(jnp.diagonal(root))) + residual.size * jnp.log(2 * jnp.pi)
    gain = solve(jacobian @ sigma).T
    return Innovation(residual, covariance, gain, jacobian, nis, -(nis + volume) / 2)


def updated(found: Innovation, x: State, sigma: Matrix, error: Array) -> tuple[State, Matrix]:
    r"""Mean and covariance after the measurement, in the form of Joseph: a sum of semidefinite matrices,

    $$x + K r, \qquad (I - KH)\,\Sigma\,(I - KH)^\top + K V K^\top.$$
    """
    left = jnp.eye(x.size, dtype=x.dtype) - found.gain @ found.jacobian
    after = left @ sigma @ left.T + found.gain @ error @ found.gain.T
    return x + found.gain @ found.residual, (after + after.T) / 2


def is_determined(
    found: Innovation, error: Array, largest: Float[Array, " size"], flown: Bool[Array, ""]
) -> Bool[Array, ""]:
    r"""Whether $S$ is more than the rounding of $H\Sigma H^\top$ wherever $V$ is less than that.

    Where measurements without error have determined the state, $\Sigma$ is rounding of either sign. **Arguments:** `largest`: the
    largest variances until now, of which $\Sigma$ has the rounding; that of an update alone, by its two factors $I - KH$, is of
    second order. `flown`: whether time has passed since the measurement before.
    """
    eps = 4 * jnp.finfo(error.dtype).eps
    rounding = jnp.where(flown, eps, eps**2) * (found.jacobian**2 @ largest)
    return smallest_pivot(stop_gradient(found.covariance + 63 * error - jnp.diag(rounding))) > 0


# Of each measurement: the estimate before it and after it, its innovation, and the mode in which it is understood; the number of
# events of the mean since the measurement before; the choice of the hypotheses; and whether the filter has not failed.
Estimated = Float[Array, "times joint"]
Number = Int[Array, " times"]
Rows = tuple[Estimated, Estimated, Innovation, Number, Number, Number, Bool[Array, " times"]]


@long_run
def run_filter(
    system: HybridSystem, noise: PlacedNoise, observe: ByMode, error: Float[Array, "measured measured"], x0: State,
    sigma0: Float[Array, "n n"], mode: str, t0: Time,
    params: Params, times: Float[Array, " times"], measurements: Float[Array, "times measured"], *, max_jumps: int,
    integrator: Integrators, saltation: bool, mode_test: bool, smooth: bool,
) -> Filtered:  # fmt: skip
    """`kalman_filter` without the checks of its arguments."""
    layout, index = layout_of(system, smooth), system.number(mode)
    unit = stop_gradient(covariance_unit(sigma0, noise, index, t0, x0, params))
    inputs = (system, observe, error, x0, sigma0, t0, JointParams(params, noise, unit), times, measurements)

    def run(inputs):
        scanned = _scan(inputs, jnp.array(index), layout, max_jumps, integrator, saltation, mode_test)
        return eqx.partition(scanned, eqx.is_inexact_array)

    # Reverse mode by one Jacobian of the whole recursion, which has few inputs; see `linearizable`.
    rows, initial, result = eqx.combine(*linearizable(run, inputs))
    predicted, updated, found, modes, events, choices, good = rows
    clean = lambda a: nan_unless(good.reshape(-1, *(1,) * (a.ndim - 1)), a)
    predicted, updated, found = jax.tree.map(clean, (predicted, updated, found))

    def estimates(z):
        sigma = jax.vmap(layout.covariance)(z) * unit
        return Estimates(times, jax.vmap(layout.state)(z), sigma, jnp.where(good, modes, -1), params, system)

    after = estimates(updated)
    return Filtered(
        times=times, means=after.means, covariances=after.covariances, modes=after.modes, predicted=estimates(predicted),
        innovations=found.residual, innovation_covariances=found.covariance, nis=found.nis,
        log_likelihood=jnp.sum(found.log_likelihood), events=events, mode_tests=choices, result=result,
        initial=(layout.state(initial), layout.covariance(initial) * unit),
        cross=jax.vmap(layout.crossed)(predicted) * unit if layout.cross else None,
    )  # fmt: skip


def _scan(
    inputs: tuple,
    mode: Index,
    layout: Layout,
    max_jumps: int,
    integrator: Integrators,
    saltation: bool,
    mode_test: bool,
) -> tuple[Rows, Padded, RESULTS]:
    """The rows of all measurements, the estimate at the start, and the code of the filter."""
    system, observe, error, x0, sigma0, t0, params, times, measurements = inputs
    tested, noise = mode_test and bool(system.transitions), params.noise
    if tested:
        names = system.names
        system, noise = with_eventless_modes(system, noise)
        if isinstance(integrator, ModeIntegrators):
            integrator = integrator.renamed(system.names, names * 2)
    flow = covariance_system(system, noise, layout, estimate=True, saltation=saltation)
    dimensions = tuple(mode.dimension for mode in system.modes.values())
    automaton = Automaton(flow, leading=dimensions, alone=system)
    estimator = Estimator(automaton, Automaton(system), layout, params)
    gaussian = lambda z: (layout.state(z), layout.covariance(z) * params.unit)

    def one(carry, each):
        (t0, z0, mode0, largest, code), (t, y) = carry, each
        going = code == RESULTS.successful
        until = jnp.where(going, t, t0)
        predicted = predict(estimator, t0, z0, mode0, until, max_jumps, integrator, tested)
        end, (*_, events), *_ = predicted
        fit = lambda z, mode: innovation(lambda x: observe(mode, t, x, params.params), error, *gaussian(z), y)
        if tested:
            z, mode, found, choice = _most_probable(predicted, fit)
        else:
            z, mode, found, choice = end.z, end.mode, fit(end.z, end.mode), jnp.array(0)
        x, sigma = updated(found, *gaussian(z), error)
        z_updated = layout.join(x, sigma / params.unit)
        sound = jnp.all(jnp.isfinite(z_updated)) & jnp.isfinite(found.log_likelihood)
        largest = jnp.maximum(largest, stop_gradient(jnp.diagonal(gaussian(z)[1])))
        sound = sound & is_determined(found, error, largest, t > t0)
        result = choose((end.result == RESULTS.successful) & ~sound, RESULTS.nonfinite, end.result)
        result = choose(going, result, code)
        good = result == RESULTS.successful
        # An estimate that failed stays where it was.
        after = select(good, (until, z_updated, mode), (t0, z0, mode0))
        return (*after, largest, result), (z, z_updated, found, mode, events, choice, good)

    z0 = layout.join(x0, sigma0 / params.unit)
    variances = stop_gradient(jnp.diagonal(layout.covariance(z0) * params.unit))
    start = t0, z0, mode, variances, choose(times[0] < t0, RESULTS.time_reversed, RESULTS.successful)
    end, rows = jax.lax.scan(one, start, (times, measurements))
    return rows, z0, end[-1]


def _most_probable(predicted: Prediction, fit) -> tuple[Padded, Index, Innovation, Int[Array, ""]]:
    """The estimate of the most probable hypothesis, its mode, its innovation, and which: 0 as predicted, -1 without the last
    event, 1 after the next event."""
    end, _, (z_next, next_mode, following, ahead), (z_back, last_mode, last, happened) = predicted
    z, mode = jnp.stack([end.z, z_back, z_next]), jnp.stack([end.mode, last_mode, next_mode])
    # One batch of hypotheses: `observe` is compiled once.
    found = jax.vmap(fit)(z, mode)
    scores = log_probabilities(happened, last, ahead, following)
    scores = scores + stop_gradient(found.log_likelihood)
    best = jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))
    z, mode, found = jax.tree.map(lambda rows: rows[best], (z, mode, found))
    return z, mode, found, jnp.array([0, -1, 1])[best]


def kalman_filter(
    system: HybridSystem,
    x0: State,
    sigma0: Matrix,
    params: Params,
    *,
    mode: str,
    times: Float[Array, " times"],
    measurements: Array,
    observe: Observe | Mapping[str, Observe],
    measurement_noise: Array,
    noise: Noise | None = None,
    t0: float | Time = 0.0,
    max_jumps: int = 20,
    integrator: IntegratorLike | None = None,
    saltation: bool = True,
    mode_test: bool = True,
    smooth: bool = False,
    throw: bool = True,
) -> Filtered:
    r"""The salted Kalman filter: mean and covariance of the state of a hybrid system, given measurements.

    Between measurements the mean flows and jumps as in `simulate`, and the covariance as in `covariance`, through any number of
    events, with the saltation matrix $\Xi$. A measurement $y = h(t, x, p) + v$, $\operatorname{E} v v^\top = V$, updates them:

    $$S = H\Sigma H^\top + V, \quad K = \Sigma H^\top S^{-1}, \quad x \leftarrow x + K\,(y - h), \quad
      \Sigma \leftarrow (I - KH)\,\Sigma\,(I - KH)^\top + KVK^\top, \qquad H = D_xh.$$

    **Modes.** An update may move the mean beyond a guard, to where the guard is negative, and falls. Then the next prediction
    begins with its jump, with $\Sigma^+ = \Xi\Sigma\Xi^\top$ and

    $$x^+ = R(t, x) + \gamma\,g(t, x), \qquad \gamma = \frac{f^+ - D_xR\,f^- - D_tR}{D_tg + D_xg\,f^-},$$

    the state that has jumped at its own event, to first order in $g$; the derivative of this map is $\Xi$. (Kong et al. take
    $x^+ = R(t, x)$, and count the jump to the update.) There is at most one such jump. A guard that may be negative, and fall,
    while the mode lasts needs `armed`, such as the height of a foot that scuffs the ground in the first half of a step
    (`hyjax.models.simplest_walker`): `dataclasses.replace(way, armed=lambda t, x, p: x[0] < 0)`, the stance leg leans forward. A
    known start on or beyond such a guard is a `ValueError`.

    With `mode_test`, which goes beyond the source, a measurement also decides whether an event has happened at all: against the
    predicted estimate stand that in which the last event since the previous measurement has not happened yet, the flow before it
    continued, and that in which the next event has, the jump above for a guard that is still positive. Of the hypotheses that
    with the largest probability is updated: the density of the innovation times the probability $\Phi(\pm g/\sigma_g)$ that the
    event has, or has not, happened. Without it a measurement of the other mode pulls the mean to a state between the modes.

    This is a linear theory, with one mode and one Gaussian at a time; see `covariance` for where it fails. On a bouncing ball its
    errors are consistent with its covariances while the bounces are high against the deviations, and no longer near the
    accumulation of bounces. Where a reset leads into a mode of more coordinates, or several states to one, as a touch-down or a
    plastic impact does, the covariance just after it is singular but for the noise since. There the errors are of second order
    in the deviations, and at first larger than such a covariance: the normalized errors of a runner (`hyjax.models.slip`) with
    deviations of 0.01 are 10 times too large just after a touch-down, and right with deviations of 0.001. Domains of modes are
    ignored: a mean may lie outside by as much as it is uncertain.

    Covariances are as accurate as the tolerance of the integrator is against their largest entry. So where a measurement is far
    more accurate than the estimate before it, take smaller tolerances: with a prior deviation of 1 and measurements of a harmonic
    oscillator's position to 1e-5, deviations are wrong by some percent at 1e-9, and right to 1e-5 at 1e-12.

    **Arguments:** `system`, `params`: a `HybridSystem` and its parameters, a PyTree. `x0`, `sigma0`: mean and covariance at `t0`,
    shapes `(n,)` and `(n, n)`; the covariance of any rank. `mode`: that of `x0`. `times`: each not before the last, nor before
    `t0`, shape `(times,)`. `measurements`: shape `(times, measured)`. `observe`: $h(t, x, p)$ with values of shape `(measured,)`,
    or one for each mode by name. `measurement_noise`: $V$, shape `(measured, measured)`. `noise`: of the process, a `Noise`; its
    `flow` is an intensity $W$ per unit of time. `max_jumps`: between two measurements, static. `integrator`: an `Integrator`, or
    one for each mode; by default Dopri8 at tolerances of 1e-9. `saltation`: if false, the Jacobian of the reset stands in for
    $\Xi$, and $\gamma = 0$: an extended Kalman filter that knows only the reset, for comparison. `smooth`: keep what
    `rts_smoother` needs. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Filtered`, also under `jit` and `vmap`; differentiable in all its arrays, in forward and reverse mode.
    `result` is a code of `simulate`, or `nonfinite` where $S$ is not positive definite, or of the size of rounding: a measurement
    of what exact measurements have determined needs a `measurement_noise`. After a failure the rows are NaN, and so is the
    log-likelihood. `ValueError` for arguments of a wrong shape or dtype, that are not finite, or not covariances.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> times, heights = jnp.array([0.2, 0.6]), jnp.array([[0.8], [0.3]])
    >>> filtered = hj.noise.kalman_filter(
    ...     ball.system, x0, 1e-2 * jnp.eye(2), params, mode="flight", times=times, measurements=heights,
    ...     observe=lambda t, x, p: x[:1], measurement_noise=1e-4 * jnp.eye(1), smooth=True,
    ... )
    >>> print(filtered.means.round(4), f"{filtered.log_likelihood:.4f}")
    [[ 0.8    -1.9627]
     [ 0.3309  2.2027]] -13.9889

    Source: Kong, Payne, Council, Johnson (2021), *The salted Kalman filter: Kalman filtering on hybrid dynamical systems*,
    Automatica 131; Payne, Kong, Johnson (2022), *The uncertainty aware salted Kalman filter*, IROS, for noise in guards and
    resets; Bucy, Joseph (1968), *Filtering for stochastic processes with applications to guidance*, for the covariance.
    In Kong, Payne, Zhu, Johnson (2024): eqs. 36-38, in Table I the covariance $\Sigma$ of Appendix C, in Sec. II state
    estimation.
    """
    integrator = integrator_to(1e-9, jnp.asarray(x0).dtype) if integrator is None else integrator
    system, t0, x0, _, params, integrator = check_simulation(system, x0, params, mode, t0, t0, max_jumps, integrator)
    sigma0 = check_covariance(sigma0, x0.size, x0.dtype, "kalman_filter: sigma0")
    system.refuse_at_once("kalman_filter")
    if any(isinstance(way.guard, Clock) for way in system.transitions):
        raise ValueError(
            "kalman_filter: a transition is a clock, hj.every, which a filter would take for a guard of the state. Filter up to "
            "each tick, and start again after it."
        )
    placed = place_noise(noise, system, t0, x0.dtype, params)
    times, measurements = _check_measurements(times, measurements, t0)
    _refuse_start_beyond_guard(system, t0, x0, params, mode)
    count = measurements.shape[1]
    error = check_covariance(measurement_noise, count, x0.dtype, "kalman_filter: measurement_noise")
    needs = f"but measurements of shape (times, {count}) need shape ({count},)"
    seen = functions_by_mode(system, observe, (params,), (count,), t0, x0.dtype, "kalman_filter: observe", needs)
    found = run_filter(
        system, placed, seen, error, x0, sigma0, mode, t0, params, times, measurements, max_jumps=max_jumps,
        integrator=without_jacobian(integrator), saltation=saltation, mode_test=mode_test, smooth=smooth,
    )  # fmt: skip
    return raise_failure("kalman_filter", found) if throw else found


def _refuse_start_beyond_guard(system: HybridSystem, t0: Time, x0: State, params: Params, mode: str) -> None:
    """`ValueError` for a known start on or beyond a guard that falls there: the filter would jump at once."""
    if is_traced((t0, x0, params)):
        return
    f = system.mode(mode).vector_field(t0, x0, params)
    for way in (system.way(i) for i in system.ways_out(mode)):
        slope, gradient = jax.jacfwd(lambda t, x, way=way: way.guard(t, x, params), argnums=(0, 1))(t0, x0)
        rounding = 64 * jnp.finfo(x0.dtype).eps * jnp.sum(jnp.abs(gradient * x0))
        falls = (way.guard(t0, x0, params) <= rounding) & (slope + gradient @ f < 0)
        if falls and (way.armed is None or way.armed(t0, x0, params)):
            raise ValueError(
                f"kalman_filter: x0={x0} lies on or beyond the guard of the transition from {way.source!r} to {way.target!r}, "
                "which falls there: the filter would take this jump at once. If the guard may be negative while the mode "
                "lasts, as that of a walker just after a strike, give the transition armed=..., true only where the event can "
                "happen; otherwise start before the event or after its jump."
            )


def _check_measurements(times, measurements, t0: Time) -> tuple[Array, Array]:
    times, measurements = jnp.asarray(times, t0.dtype), jnp.asarray(measurements, t0.dtype)
    if times.ndim != 1 or measurements.ndim != 2 or len(times) != len(measurements) or not times.size:
        raise ValueError(
            f"kalman_filter: times of shape {times.shape} and measurements of shape {measurements.shape} must have the shapes "
            "(times,) and (times, measured), with at least one time."
        )
    if not isinstance(measurements, jax.core.Tracer) and not np.all(np.isfinite(measurements)):
        k = int(np.argmin(np.all(np.isfinite(measurements), axis=1)))
        raise ValueError(f"kalman_filter: measurement {k}, {measurements[k]}, is not finite. Leave out that time.")
    if not isinstance(times, jax.core.Tracer) and not isinstance(t0, jax.core.Tracer):
        steps = np.diff(np.asarray(times), prepend=-np.inf)
        if not (np.all(np.isfinite(times)) and np.all(steps >= 0) and times[0] >= t0):
            k = int(np.argmin(steps >= 0))
            raise ValueError(
                f"kalman_filter: the times must not decrease, from t0={t0} on; times[{k}] is {times[k]} and times[0] {times[0]}."
            )
    return times, measurements
