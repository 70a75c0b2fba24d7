"""The recursion of the Kalman filter: a scan over measurements, each of which follows a prediction through events."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton, Index, Padded, StateAlone
from .._flow.integrator import Integrators, ModeIntegrators
from .._numerics.linearize import linearizable
from .._numerics.trees import select
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Matrix, Params, State, Time
from .covariance import covariance_unit
from .estimate_system import estimate_system, layout_of, with_eventless_modes
from .estimates import Estimates, Filtered
from .joint import JointParams, own_params
from .measurement import Innovation, innovation, Sensor, updated
from .mode_test import Estimator, log_probabilities
from .noise import PlacedNoise
from .prediction import predict, Prediction


class Settings(eqx.Module):
    """The options of `kalman_filter`, by their names there."""

    max_jumps: int = eqx.field(static=True)
    integrator: Integrators
    saltation: bool = eqx.field(static=True)
    mode_test: bool = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)


class _Now(eqx.Module):
    """The estimate after a measurement, or at the start. `result`: of the filter so far."""

    t: Time
    z: Padded
    mode: Index
    result: RESULTS


class _Row(eqx.Module):
    """What is kept of a measurement: the estimate before it and after it."""

    predicted: Padded
    updated: Padded
    found: Innovation


class _Marks(eqx.Module):
    """The integers of a measurement. `choice`: of the hypotheses."""

    mode: Index
    events: Int[Array, ""]
    choice: Int[Array, ""]
    good: Flag


@eqx.filter_jit
def run_filter(
    system: HybridSystem, noise: PlacedNoise, sensor: Sensor, x0: State, sigma0: Matrix, mode: str, t0: Time, params: Params,
    times: Float[Array, " times"], measurements: Float[Array, "times measured"], settings: Settings,
) -> Filtered:  # fmt: skip
    """`kalman_filter` without the checks of its arguments."""
    index = system.names.index(mode)
    unit = stop_gradient(covariance_unit(sigma0, noise, index, t0, x0, params))
    inputs = (system, sensor, x0, sigma0, t0, JointParams(params, noise, unit), times, measurements)
    run = lambda inputs: _scan(inputs, jnp.array(index), settings)
    # Reverse mode by one Jacobian of the whole recursion, which has few inputs; see `linearizable`.
    (rows, initial), (marks, result) = linearizable(run, inputs)
    good = marks.good
    clean = lambda rows: jax.tree.map(lambda a: nan_unless(good.reshape(-1, *(1,) * (a.ndim - 1)), a), rows)
    rows, found = clean(rows), clean(rows.found)
    layout = layout_of(system, settings.smooth)

    def estimates(z, modes):
        sigma = jax.vmap(layout.covariance)(z) * unit
        modes = jnp.where(good, modes, -1)
        return Estimates(times, jax.vmap(layout.state)(z), sigma, modes, params, system)

    after = estimates(rows.updated, marks.mode)
    return Filtered(
        times=times, means=after.means, covariances=after.covariances, modes=after.modes,
        predicted=estimates(rows.predicted, marks.mode),
        innovations=found.residual, innovation_covariances=found.covariance, nis=found.nis,
        log_likelihood=jnp.sum(found.log_likelihood), events=marks.events, mode_tests=marks.choice, result=result,
        initial=(layout.state(initial), layout.covariance(initial) * unit),
        cross=jax.vmap(layout.crossed)(rows.predicted) * unit if settings.smooth else None,
    )  # fmt: skip


def _scan(inputs: tuple, mode0: Index, settings: Settings):
    system, sensor, x0, sigma0, t0, params, times, measurements = inputs
    layout, noise = layout_of(system, settings.smooth), params.noise
    tested, integrator = settings.mode_test and bool(system.transitions), settings.integrator
    if tested:
        names = system.names
        system, noise = with_eventless_modes(system, noise)
        if isinstance(integrator, ModeIntegrators):
            integrator = integrator.renamed(system.names, names * 2)
    flow = estimate_system(system, noise, layout, saltation=settings.saltation)
    dimensions = tuple(mode.dimension for mode in system.modes.values())
    automaton = Automaton(flow, leading=dimensions, alone=StateAlone(system, own_params))
    estimator = Estimator(automaton, Automaton(system), layout, params)
    more = layout.size - x0.size
    z0 = layout.join(jnp.pad(x0, (0, more)), jnp.pad(sigma0 / params.unit, (0, more)))
    start = _Now(t0, z0, mode0, choose(times[0] < t0, RESULTS.time_reversed, RESULTS.successful))

    def one(now: _Now, each):
        t, y = each
        going = now.result == RESULTS.successful
        until = jnp.where(going, t, now.t)
        predicted = predict(estimator, now.t, now.z, now.mode, until, settings.max_jumps, integrator, tested)
        end = predicted.end
        fit = lambda z, mode: innovation(
            sensor, t, layout.state(z), layout.covariance(z) * params.unit, mode, params.params, y
        )
        if tested:
            z, mode, found, choice = _most_probable(predicted, fit)
        else:
            z, mode, found, choice = end.z, end.mode, fit(end.z, end.mode), jnp.array(0)
        x, sigma = updated(found, layout.state(z), layout.covariance(z) * params.unit, sensor.error)
        z_updated = layout.join(x, sigma / params.unit)
        sound = jnp.all(jnp.isfinite(z_updated)) & jnp.isfinite(found.log_likelihood)
        result = choose((end.result == RESULTS.successful) & ~sound, RESULTS.nonfinite, end.result)
        result = choose(going, result, now.result)
        good = result == RESULTS.successful
        after = select(good, _Now(until, z_updated, mode, result), dataclasses.replace(now, result=result))
        marks = _Marks(mode, predicted.last.events, choice, good)
        return after, (_Row(z, z_updated, found), marks)

    end, (rows, marks) = jax.lax.scan(one, start, (times, measurements))
    return (rows, z0), (marks, end.result)


def _most_probable(predicted: Prediction, fit) -> tuple[Padded, Index, Innovation, Int[Array, ""]]:
    """The estimate of the most probable hypothesis, its mode, its innovation, and which: 0 as predicted, -1 without the last
    event, 1 after the next event."""
    end, last, early, without = predicted.end, predicted.last, predicted.early, predicted.without
    z, mode = jnp.stack([end.z, without.z, early.z]), jnp.stack([end.mode, last.mode, early.mode])
    # As a batch, so that the sensor is compiled once.
    found = jax.vmap(fit)(z, mode)
    scores = log_probabilities(last.transition >= 0, without.deviation, early.there, early.deviation)
    scores = scores + stop_gradient(found.log_likelihood)
    best = jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))
    z, mode, found = jax.tree.map(lambda rows: rows[best], (z, mode, found))
    return z, mode, found, jnp.array([0, -1, 1])[best]
