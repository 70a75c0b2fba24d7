"""Consistency of the salted Kalman filter: the normalized estimation error squared (NEES) of 1 000 runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import hyjax as hj
from hyjax.models import bouncing_ball

GRAVITY = 9.81
RUNS = 1000
COARSE = hj.Integrator(rtol=1e-8, atol=1e-8, unroll=False)


def within(nees, dimension):
    """The mean over runs at each time, and whether it is within the 95 % bounds of a chi-squared variable."""
    low, high = chi2.ppf([0.025, 0.975], dimension * len(nees)) / len(nees)
    mean = np.mean(nees, axis=0)
    return mean, (low < mean) & (mean < high)


def noisy_balls(intensity, steps, seed=1):
    """The bouncing balls of Kong et al. (2021): states after each 0.05 s, by 20 steps with noise each, and their measurements."""
    rng = np.random.default_rng(seed)
    y, v = (np.array([5.0, 0.0]) + np.sqrt(0.1) * rng.normal(size=(RUNS, 2))).T
    states, h = np.zeros((RUNS, steps, 2)), 0.05 / 20
    for k in range(steps):
        for _ in range(20):
            y, v = y + v * h - GRAVITY * h**2 / 2, v - GRAVITY * h
            y, v = (each + np.sqrt(intensity * h) * rng.normal(size=RUNS) for each in (y, v))
            hit = (y < 0) & (v < 0)
            y, v = np.where(hit, -0.7 * y, y), np.where(hit, -0.7 * v, v)
        states[:, k] = np.stack([y, v], axis=1)
    return states, states + np.sqrt(0.025) * rng.normal(size=states.shape)


@pytest.mark.slow
@pytest.mark.parametrize(("saltation", "mode_test"), [(True, True), (False, True), (True, False)])
def test_consistency_on_the_bouncing_ball(saltation, mode_test):
    """x0 = (5, 0), e = 0.7, dt = 0.05, V = 0.025 I, Sigma0 = 0.1 I; W = 0.01 I as an intensity, and as a covariance for each dt,
    an intensity of 0.2 I. The first 60 of 100 steps, with three bounces: later the bounces are as low as they are uncertain, and
    a linear theory fails (at W = 0.01 I the NEES of the 100th step is 4)."""
    times = 0.05 * jnp.arange(1.0, 61.0)

    def run(y, intensity):
        filtered = hj.kalman_filter(
            bouncing_ball.system, jnp.array([5.0, 0.0]), 0.1 * jnp.eye(2), bouncing_ball.Params(restitution=0.7),
            mode="flight", times=times, measurements=y, observe=lambda t, x, p: x, measurement_noise=0.025 * jnp.eye(2),
            noise=hj.Noise(flow=intensity * jnp.eye(2)), integrator=COARSE, saltation=saltation, mode_test=mode_test,
        )  # fmt: skip
        return filtered

    batch, found = jax.jit(jax.vmap(run, in_axes=(0, None))), {}
    for intensity in (0.01, 0.2):
        states, measurements = noisy_balls(intensity, 60)
        filtered = batch(jnp.asarray(measurements), jnp.array(intensity))
        assert np.mean(np.asarray(filtered.result == hj.RESULTS.successful)) > 0.998
        mean, inside = within(np.asarray(filtered.estimates.nees(jnp.asarray(states))), 2)
        found[intensity] = np.mean(mean), np.mean(inside)
    # Measured, as the mean NEES and the part of the times within the bounds, of which 95 % are expected. At 0.01: 2.02 and 97 %,
    # without saltation 2.61 and 55 %. At 0.2: 2.10 and 77 %, without saltation 2.13 and 68 %: the states are so uncertain that
    # what is of second order counts, and neither filter is consistent by the bounds.
    if saltation and mode_test:
        assert abs(found[0.01][0] - 2) < 0.05 and found[0.01][1] > 0.9
        assert abs(found[0.2][0] - 2) < 0.2
    elif mode_test:
        assert found[0.01][0] > 2.5 and found[0.01][1] < 0.6
    else:
        # Measurements of a ball that has bounced, taken for those of one that has not.
        assert all(mean > 20 for mean, _ in found.values())


def fall_and_slide():
    """A ball falls onto a frictionless slope and slides down it: Kong et al. (2024), Sec. IV."""
    normal, along = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    fly = lambda t, x, p: jnp.concatenate([x[2:], jnp.array([0.0, -GRAVITY])])
    slide = lambda t, x, p: jnp.concatenate([x[2:], GRAVITY * 0.6 * jnp.asarray(along)])
    gap = lambda t, x, p: jnp.asarray(normal) @ x[:2]
    stop = lambda t, x, p: jnp.concatenate([x[:2], x[2:] - jnp.asarray(normal) * (jnp.asarray(normal) @ x[2:])])
    names = ("q1", "q2", "v1", "v2")
    return hj.HybridSystem({"flight": hj.Mode(fly, names), "slide": hj.Mode(slide, names)},
                           (hj.Transition("flight", "slide", gap, stop),)), along  # fmt: skip


@pytest.mark.slow
def test_consistency_on_the_slope():
    """A plastic impact, after which the covariance has rank two, and stays so; no noise but of measurements."""
    system, along = fall_and_slide()
    rng = np.random.default_rng(4)
    x0, sigma0, v = np.array([0.0, 1.25, 0.4, 0.0]), np.diag([0.01, 0.01, 0.04, 0.04]), 0.01 * np.eye(2)
    times = 0.05 * np.arange(1, 25)
    starts = x0 + rng.multivariate_normal(np.zeros(4), sigma0, RUNS)
    options = {"mode": "flight", "integrator": COARSE, "max_jumps": 1}
    fly = lambda x: hj.simulate(system, x, None, t1=1.21, save=jnp.asarray(times), **options).samples
    true = jax.jit(jax.vmap(fly))(jnp.asarray(starts))
    measurements = np.asarray(true.x)[..., :2] + 0.1 * rng.normal(size=(RUNS, len(times), 2))

    found = []
    for saltation in (True, False):
        run = lambda y, saltation=saltation: hj.kalman_filter(
            system, jnp.asarray(x0), jnp.asarray(sigma0), None, times=jnp.asarray(times), measurements=y,
            observe=lambda t, x, p: x[:2], measurement_noise=jnp.asarray(v), saltation=saltation, **options,
        )  # fmt: skip
        filtered = jax.jit(jax.vmap(run))(jnp.asarray(measurements))
        assert np.all(np.asarray(filtered.result == hj.RESULTS.successful))
        # Position and speed along the slope, at the end, when all have landed.
        assert np.all(np.asarray(true.mode)[:, -8:] == 1)
        onto = np.kron(np.eye(2), along)
        error = (np.asarray(true.x - filtered.means) @ onto.T)[:, -8:]
        sigma = (onto @ np.asarray(filtered.covariances) @ onto.T)[:, -8:]
        nees = np.sum(error * np.linalg.solve(sigma, error[..., None])[..., 0], axis=-1)
        # Along the slope both are consistent: means of 1 000 with the standard error 0.06, at times that are hardly independent.
        assert np.max(np.abs(np.mean(nees, axis=0) - 2)) < 0.2
        # With the saltation matrix alone the ball is known to be on the slope, and the measurements do not move it off.
        normal = np.array([0.6, 0.8, 0.0, 0.0])
        known = np.max(np.abs(np.asarray(filtered.covariances)[:, -1] @ normal)) < 1e-12
        off = np.sqrt(np.mean((np.asarray(filtered.means)[:, -1] @ normal) ** 2))
        found.append((known, off))
    assert found[0][0] and not found[1][0]
    assert found[0][1] < 1e-3 and found[1][1] > 20 * found[0][1]
