"""The Kalman filter, the smoother and samples of a covariance at the time of an event, to rounding, on both sides of it.

A ball falls from 1/2 with unit gravity, so that it meets the floor at t = 1 with the velocity -1, and leaves it with 0.8. All
right values are closed forms in NumPy.
"""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

import hyjax as hj

# Exact for a parabola, so that the time of the event is known to rounding.
PARABOLA = hj.Integrator(diffrax.Bosh3(), rtol=1e-9, atol=1e-9, unroll=False)
BALL = hj.HybridSystem(
    {"flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], jnp.full((), -1.0, x.dtype)]), ("z", "v"))},
    (
        hj.Transition(
            "flight", "flight", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([jnp.zeros_like(x[0]), -0.8 * x[1]])
        ),
    ),
)
SIGMA, ERROR, HEIGHT = 1e-2 * np.eye(2), np.array([[1e-4]]), np.array([[1.0, 0.0]])
XI, GAMMA = np.array([[-0.8, 0.0], [1.8, -0.8]]), np.array([-0.8, 1.8])


@ft.partial(jax.jit, static_argnums=(4, 5))
@ft.partial(jax.vmap, in_axes=(0, 0, 0, 0, None, None))
def filtered(x0, t0, times, y, tested, smooth):
    found = hj.noise.kalman_filter(
        BALL, x0, jnp.asarray(SIGMA), None, mode="flight", t0=t0, times=times, measurements=y, observe=lambda t, x, p: x[:1],
        measurement_noise=jnp.asarray(ERROR), integrator=PARABOLA, mode_test=tested, smooth=smooth,
    )  # fmt: skip
    return found, hj.noise.rts_smoother(found) if smooth else None


def lanes(times, y, tested, x0=(0.5, 0.0), t0=0.0, smooth=True):
    times = np.asarray(times, float)
    k = len(times)
    wide = lambda value: jnp.broadcast_to(jnp.asarray(value, float), (k, *np.shape(value)))
    return filtered(wide(x0), wide(t0), jnp.asarray(times), jnp.asarray(y, float)[..., None], tested, smooth)


def flown(mean, sigma, dt):
    phi = np.array([[1.0, dt], [0.0, 1.0]])
    return phi @ mean + np.array([-(dt**2) / 2, -dt]), phi @ sigma @ phi.T, phi


def jumped(mean, sigma):
    """At the event of each state, to first order, from a mean at the time of the event or near to it."""
    rate = mean[1]
    gamma = np.array([-0.8 * rate, -1.8]) / rate
    xi = np.array([[0.0, 0.0], [0.0, -0.8]]) + np.outer(gamma, [1.0, 0.0])
    return np.array([0.0, -0.8 * rate]) + gamma * mean[0], xi @ sigma @ xi.T, xi


def measured(mean, sigma, y):
    s = (HEIGHT @ sigma @ HEIGHT.T + ERROR)[0, 0]
    gain = sigma @ HEIGHT[0] / s
    return mean + gain * (y - mean[0]), sigma - np.outer(gain, gain) * s, norm.logpdf(y, mean[0], s**0.5)


# Before the event, within rounding of it, and after it, from where rounding of the flow is below the distance to where it is not.
OFF = np.concatenate(
    [-np.logspace(-15.7, -12.5, 20), [0.0, -2e-16, 3e-16], np.logspace(-15.7, -12.5, 5), [-1e-9, 1e-9]]
)


def of_height(t):
    return np.where(t < 1, 0.5 - t**2 / 2, 0.8 * (t - 1) - (t - 1) ** 2 / 2)


@pytest.mark.medium
@pytest.mark.parametrize("tested", [True, False])
def test_a_measurement_at_the_time_of_an_event(tested):
    """Within 1e-9 of the event the estimate is that of the ball in the mode in which the measurement is understood: flying, or
    just bounced. With the test of modes both have the probability 1/2, and the smaller S of a ball that has bounced decides."""
    times = 1 + OFF
    found, smoothed = lanes(
        np.stack([times, np.full_like(times, 1.5)], 1), np.stack([of_height(times), 0 * times + 0.275], 1), tested
    )
    assert np.all(np.asarray(found.result == hj.RESULTS.successful))
    before, sigma, first = flown(np.array([0.5, 0.0]), SIGMA, 1.0)
    after, sigma_after, xi = jumped(before, sigma)
    flying, bounced = measured(before, sigma, 0.0), measured(after, sigma_after, 0.0)
    assert bounced[2] > flying[2]
    for k in range(len(OFF)):
        late = tested or found.events[k, 0] == 1
        # Without the test, an event within 64 roundings after the measurement counts as met.
        assert late or OFF[k] < 0
        mean, spread, likelihood = bounced if late else flying
        assert_allclose(found.means[k, 0], mean, rtol=0, atol=3e-9)
        assert_allclose(found.covariances[k, 0], spread, rtol=0, atol=1e-10)
        # The next measurement, half a unit later: a ball that was flying has bounced at once.
        now, at_once = (mean, spread), np.eye(2)
        if not late:
            *now, at_once = jumped(mean, spread)
        now, spread_now, second = flown(*now, 0.5)
        assert_allclose(found.predicted.covariances[k, 1], spread_now, rtol=0, atol=1e-9)
        last, _, more = measured(now, spread_now, 0.275)
        assert_allclose(found.means[k, 1], last, rtol=0, atol=1e-8)
        assert_allclose(found.log_likelihood[k], likelihood + more, rtol=0, atol=1e-6)
        assert_allclose(last, [0.275, 0.3], rtol=0, atol=1e-8)
        # The smoother: the start by all measurements. One Gaussian vector, conditioned at once.
        to = [(xi if late else np.eye(2)) @ first, second @ (xi if late else at_once) @ first]
        rows = np.concatenate([HEIGHT @ each for each in to])
        inverse = np.linalg.inv(rows @ SIGMA @ rows.T + ERROR[0, 0] * np.eye(2))
        assert_allclose(smoothed.initial[0][k], [0.5, 0.0], rtol=0, atol=1e-8)
        expected = SIGMA - SIGMA @ rows.T @ inverse @ rows @ SIGMA
        assert_allclose(smoothed.initial[1][k], expected, rtol=0, atol=1e-9)
    # Each event is counted once, by the flow or as the jump with which a prediction begins.
    assert np.all(np.sum(np.asarray(found.events), axis=1) + np.asarray(found.mode_tests)[:, 0] == 1)


@pytest.mark.medium
def test_measurements_at_one_time():
    """Two at one time are one of both, also at the event, where the mean of the first may lie on either side of the floor."""
    y = np.array([[0.001, -0.002, 0.275], [0.45, 0.44, 0.3], [0.0, 0.0, 0.275]])
    found, smoothed = lanes([[1.0, 1.0, 1.5], [0.3, 0.3, 0.3], [1.0, 1 + 2e-16, 1.5]], y, True)
    assert np.all(np.asarray(found.result == hj.RESULTS.successful))
    _, sigma, _ = flown(np.array([0.5, 0.0]), SIGMA, 1.0)
    starts = {0: (np.array([0.0, 0.8]), XI @ sigma @ XI.T), 2: (np.array([0.0, 0.8]), XI @ sigma @ XI.T)}
    starts[1] = flown(np.array([0.5, 0.0]), SIGMA, 0.3)[:2]
    for k, (mean, spread) in starts.items():
        both = np.concatenate([HEIGHT, HEIGHT])
        s = both @ spread @ both.T + ERROR[0, 0] * np.eye(2)
        gain = spread @ both.T @ np.linalg.inv(s)
        # The product of the densities of the innovations is that of both measurements.
        r = y[k, :2] - both @ mean
        joint = -(r @ np.linalg.solve(s, r) + np.linalg.slogdet(2 * np.pi * s)[1]) / 2
        single = lambda j, k=k: norm.logpdf(
            found.innovations[k, j, 0], 0, found.innovation_covariances[k, j, 0, 0] ** 0.5
        )
        assert_allclose(single(0) + single(1), joint, rtol=1e-9)
        assert_allclose(found.means[k, 1], mean + gain @ r, rtol=0, atol=1e-12)
        assert_allclose(found.covariances[k, 1], spread - gain @ s @ gain.T, rtol=0, atol=1e-12)
        # Nothing happens between the two, so the smoother knows one state.
        after = smoothed.means[k]
        assert_allclose(after[0], after[1], rtol=0, atol=1e-10)
    assert_allclose(smoothed.means[1, 0], found.means[1, 2], rtol=0, atol=1e-10)


@pytest.mark.medium
def test_a_jump_before_the_mean_is_at_its_event():
    """By 0.7 to 2.8 % of the deviation of the height: the smaller S of a ball that has bounced decides, and its mean is that of
    the jump to first order in what is left of the way."""
    t = np.array([0.999, 0.9975, 0.996])
    times = np.stack([t, 0 * t + 1.1, 0 * t + 1.2], 1)
    found, _ = lanes(times, of_height(times) * [0, 1, 1], True)
    assert np.all(np.asarray(found.result == hj.RESULTS.successful)) and np.all(np.asarray(found.mode_tests)[:, 0] == 1)
    for k, time in enumerate(t):
        before, sigma, _ = flown(np.array([0.5, 0.0]), SIGMA, time)
        after, sigma, _ = jumped(before, sigma)
        mean, spread, _ = measured(after, sigma, 0.0)
        assert_allclose(found.means[k, 0], mean, rtol=0, atol=1e-12)
        assert_allclose(found.covariances[k, 0], spread, rtol=0, atol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("tested", [True, False])
def test_an_event_at_the_start(tested):
    """A mean that starts on the floor, falling, bounces at once, also where the first measurement is at the start. (For known
    numbers this is a `ValueError`.) Up to 64 roundings of the time above the floor there is no other flow either."""
    heights = np.array([0.0, -1e-17, 1e-17, 1e-16, 3e-15, 1e-12])
    x0 = jnp.stack([jnp.asarray(heights), -jnp.ones(len(heights))], 1)
    for first in (1.0, 1.5):
        times = jnp.tile(jnp.array([first, 1.7]), (len(heights), 1))
        y = jnp.tile(jnp.asarray(of_height(np.array([first, 1.7]))), (len(heights), 1))[..., None]
        found, _ = filtered(x0, jnp.ones(len(heights)), times, y, tested, True)
        assert np.all(np.asarray(found.result == hj.RESULTS.successful))
        mean, sigma, _ = jumped(np.array([0.0, -1.0]), SIGMA)
        mean, sigma, _ = flown(mean, sigma, first - 1)
        mean, sigma, _ = measured(mean, sigma, of_height(np.array(first)))
        rows = slice(None) if first > 1 or tested else slice(0, 5)
        assert_allclose(found.means[rows, 0], np.tile(mean, (len(heights), 1))[rows], rtol=0, atol=1e-11)
        assert_allclose(found.covariances[rows, 0], np.tile(sigma, (len(heights), 1, 1))[rows], rtol=0, atol=1e-11)
        ended, _, _ = flown(np.array([0.0, 0.8]), SIGMA, 0.7)
        assert_allclose(found.means[:, 1], np.tile(ended, (len(heights), 1)), rtol=0, atol=1e-10)
        # The bounce is counted once, as the jump with which the prediction begins, by the flow, or by the test of modes.
        assert np.all(np.sum(np.asarray(found.events) + np.asarray(found.mode_tests), axis=1) == 1)


@pytest.mark.medium
@pytest.mark.parametrize("t1", [1.0, 1.5])
def test_a_covariance_sampled_at_an_event_is_that_after_the_jump(t1):
    """Also where the event is the end of the simulation; before it, by more than rounding, that before the jump."""
    times = jnp.array([1 - 1e-9, 1 - 1e-12, 1.0])
    found = hj.noise.covariance(
        BALL, jnp.array([0.5, 0.0]), jnp.asarray(SIGMA), None, mode="flight", t1=t1, integrator=PARABOLA, times=times, max_jumps=3
    )  # fmt: skip
    assert found.trajectory.samples is not None and found.sigma_samples is not None
    before, sigma, _ = flown(np.array([0.5, 0.0]), SIGMA, 1.0)
    expected = [(before, sigma)] * 2 + [jumped(before, sigma)[:2]]
    for k, (mean, spread) in enumerate(expected):
        assert_allclose(found.trajectory.samples.x[k], mean, rtol=0, atol=2e-9)
        assert_allclose(found.sigma_samples[k], spread, rtol=0, atol=2e-9)
    if t1 == 1:
        assert_allclose(found.trajectory.final, found.trajectory.samples.x[-1], rtol=0, atol=1e-15)
        assert_allclose(found.final, found.sigma_samples[-1], rtol=0, atol=1e-15)
