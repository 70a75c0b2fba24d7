"""The recursion of the Kalman filter: a scan over measurements, each of which follows a prediction through events."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int

from .._flow.automaton import Automaton, Index, Padded
from .._flow.automaton_flow import follow_automaton
from .._flow.linearize import linearizable
from .._flow.mode_integrators import Integrators
from .._flow.simulate import ArcStart, first_arc, follow_arc
from .._flow.trees import select
from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Matrix, Params, State, Time
from .covariance import covariance_unit
from .estimate_system import estimate_system
from .estimates import Estimates, Filtered
from .joint import JointParams
from .measurement import Innovation, innovation, Sensor, updated
from .mode_test import Estimator, guards_at, hypotheses
from .noise import PlacedNoise


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


class _Last(eqx.Module):
    """The estimate before the last event since the previous measurement. `transition`: -1 without an event. `events`: how many
    there were."""

    t: Time
    z: Padded
    mode: Index
    transition: Index
    events: Int[Array, ""]


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
    _, layout = estimate_system(system, noise, cross=settings.smooth, saltation=True, late=False)

    def estimates(z, modes):
        sigma = jax.vmap(layout.covariance)(z) * unit
        return Estimates(jax.vmap(layout.state)(z), sigma, jnp.where(good, modes, -1))

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
    dimensions = tuple(mode.dimension for mode in system.modes.values())
    make = lambda late: estimate_system(
        system, params.noise, cross=settings.smooth, saltation=settings.saltation, late=late
    )
    (flow, layout), (late, _) = make(False), make(True)
    estimator = Estimator(Automaton(flow, leading=dimensions), Automaton(late, leading=dimensions), layout, params)
    more = layout.size - x0.size
    z0 = layout.join(jnp.pad(x0, (0, more)), jnp.pad(sigma0 / params.unit, (0, more)))
    start = _Now(t0, z0, mode0, choose(times[0] < t0, RESULTS.time_reversed, RESULTS.successful))

    def one(now: _Now, each):
        t, y = each
        going = now.result == RESULTS.successful
        until = jnp.where(going, t, now.t)
        end, last = _predict(estimator, now, until, settings)
        fit = lambda z, mode: innovation(
            sensor, t, layout.state(z), layout.covariance(z) * params.unit, mode, params.params, y
        )
        if settings.mode_test and estimator.flow.surfaces.count:
            z, mode, found, choice = _choose_mode(estimator, until, end, last, fit, settings.integrator)
        else:
            z, mode, found, choice = end.z, end.mode, fit(end.z, end.mode), jnp.array(0)
        x, sigma = updated(found, layout.state(z), layout.covariance(z) * params.unit, sensor.error)
        z_updated = layout.join(x, sigma / params.unit)
        sound = jnp.all(jnp.isfinite(z_updated)) & jnp.isfinite(found.log_likelihood)
        result = choose((end.result == RESULTS.successful) & ~sound, RESULTS.nonfinite, end.result)
        result = choose(going, result, now.result)
        good = result == RESULTS.successful
        after = select(good, _Now(until, z_updated, mode, result), dataclasses.replace(now, result=result))
        marks = _Marks(mode, last.events, choice, good)
        return after, (_Row(z, z_updated, found), marks)

    end, (rows, marks) = jax.lax.scan(one, start, (times, measurements))
    return (rows, z0), (marks, end.result)


def _predict(estimator: Estimator, now: _Now, until: Time, settings: Settings) -> tuple[ArcStart, _Last]:
    """The estimate at the next measurement, through whatever events come; first the jump of a mean beyond a guard."""
    z, mode = now.z, now.mode
    if estimator.flow.surfaces.count:
        beyond, k = guards_at(estimator, now.t, z, mode).passed()
        z, mode = select(beyond, estimator.jump(now.t, z, mode, k), (z, mode))
    start = first_arc(z, mode, now.t, until)
    none = _Last(now.t, z, mode, jnp.array(-1), jnp.array(0))

    def one(carry):
        now, last = carry
        is_last = last.events == settings.max_jumps
        after, row = follow_arc(estimator.flow, now, is_last, start, until, estimator.params, settings.integrator)
        before = _Last(row.end, row.x_end, row.mode, row.transition, last.events + 1)
        return after, select(row.jumped, before, last)

    return jax.lax.while_loop(lambda carry: ~carry[0].done, one, (start, none))


def _choose_mode(estimator: Estimator, t: Time, end: ArcStart, last: _Last, fit, integrator: Integrators):
    """The estimate of the most probable hypothesis, its mode, its innovation, and which: 0 as predicted, -1 without the last
    event, 1 after the next event."""
    # Without an event this takes no step.
    until = jnp.where(last.transition >= 0, t, last.t - 1)
    without = follow_automaton(
        estimator.flow, last.t, last.z, last.mode, until, estimator.params, integrator, guarded=False
    )
    offered = hypotheses(estimator, t, end.z, end.mode, without.x, last.mode, last.transition)
    # As a batch, so that the sensor is compiled once.
    found = jax.vmap(fit)(offered.z, offered.mode)
    scores = offered.weight + stop_gradient(found.log_likelihood)
    best = jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))
    z, mode, found = jax.tree.map(lambda rows: rows[best], (offered.z, offered.mode, found))
    return z, mode, found, jnp.array([0, -1, 1])[best]
