"""Parameters of noise by likelihoods: of a Kalman filter, against a closed form, and of strides."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import bouncing_ball as ball, rimless_wheel as wheel

LINE = hj.HybridSystem({"line": hj.Mode(lambda t, x, p: -p * x, ("x",))}, ())
TIMES, ERROR, START = jnp.arange(1.0, 9.0) * 0.5, 0.01, 0.04


def law(rate, intensity):
    """Mean and covariance of the measurements of x' = -a x + white noise from x(0) = 1 +- 0.2."""
    mean, both = jnp.exp(-rate * TIMES), TIMES[:, None] + TIMES
    noise = jnp.exp(-rate * jnp.abs(TIMES[:, None] - TIMES)) - jnp.exp(-rate * both)
    return mean, intensity / (2 * rate) * noise + START * jnp.exp(-rate * both) + ERROR * jnp.eye(8)


@pytest.mark.medium
def test_rate_and_intensity_of_a_noisy_decay():
    draw = np.random.default_rng(0)
    measured = jnp.asarray(draw.multivariate_normal(*map(np.asarray, law(0.7, 0.3))))

    def filtered(u):
        noise = hj.noise.Noise(flow=lambda t, x, p: jnp.exp(u[1]) * jnp.eye(1))
        return -hj.noise.kalman_filter(
            LINE, jnp.ones(1), START * jnp.eye(1), u[0], mode="line", times=TIMES, measurements=measured[:, None],
            observe=lambda t, x, p: x, measurement_noise=ERROR * jnp.eye(1), noise=noise, throw=False,
        ).log_likelihood  # fmt: skip

    def closed(u):
        mean, covariance = law(u[0], jnp.exp(u[1]))
        off, volume = measured - mean, jnp.linalg.slogdet(2 * jnp.pi * covariance)[1]
        return (off @ jnp.linalg.solve(covariance, off) + volume) / 2

    ends = []
    for cost in (filtered, closed):
        program = jax.jit(jax.value_and_grad(cost))
        value = lambda u, program=program: tuple(map(np.asarray, program(jnp.asarray(u))))
        ends.append((value(np.array([0.5, -1.0])), scipy.optimize.minimize(value, [0.5, -1.0], jac=True)))
    ((value, slope), found), ((exact, exact_slope), best) = ends
    # The filter's flow is integrated with tolerances of 1e-9; the ends are those of one search of two equal functions.
    assert_allclose(value, exact, rtol=1e-8)
    assert_allclose(slope, exact_slope, rtol=1e-7)
    assert_allclose(found.x, best.x, rtol=1e-5)
    # The truth is within three errors by the curvature of the profile.
    assert np.all(
        np.abs(found.x - [0.7, np.log(0.3)]) < 3 * np.sqrt(np.diag(np.linalg.inv(jax.hessian(closed)(best.x))))
    )


@pytest.mark.medium
def test_variance_of_the_slope_from_strides():
    """Of a wheel on rough ground: the likelihood's maximum by the covariance of strides, against the slopes that were drawn."""
    orbit = hj.periodic_orbit(wheel.step, wheel.guess(wheel.Params()), wheel.Params())
    slopes = 1e-4 * np.random.default_rng(3).standard_normal(400)

    def stride(x, change):
        params = dataclasses.replace(orbit.params, slope=orbit.params.slope + change)
        after = wheel.step(x, params, throw=False).x
        return after, after[1] - orbit.x[1]

    off = np.append(0, jax.lax.scan(stride, orbit.x, jnp.asarray(slopes))[1])
    rate = float(orbit.return_jacobian[1, 1])
    one = float(hj.noise.stride_covariance(orbit, noise=lambda p: p.slope)[1, 1])
    variance = np.mean((off[1:] - rate * off[:-1]) ** 2) / (one * (1 - rate**2))
    # The linear theory leaves out terms of the relative size of the noise.
    assert_allclose(variance, np.mean(slopes**2), rtol=1e-2)


@pytest.mark.medium
def test_intensity_and_restitution_through_impacts():
    """A ball in gusts: heights by the exact law of its flight, and the impacts of the path that was drawn."""
    gravity, sigma, error, step = 9.81, 0.3, 0.005, 1e-3
    draw = np.random.default_rng(5)
    path, (y, v) = [], (1.0, 0.0)
    for _ in range(2400):
        # Constant acceleration over a step, and the white force as its mean: the law of the rate is exact.
        a = -gravity + sigma * draw.standard_normal() / np.sqrt(step)
        after = y + v * step + a * step**2 / 2
        if after < 0:
            s = (-v - np.sqrt(v * v - 2 * a * y)) / a
            v = -0.8 * (v + a * s)
            y, v = v * (step - s) + a * (step - s) ** 2 / 2, v + a * (step - s)
        else:
            y, v = after, v + a * step
        path.append(y)
    times = np.arange(40, 2401, 40) * step
    heights = jnp.asarray(np.array(path)[39::40] + error * draw.standard_normal(60))[:, None]

    @jax.jit
    @jax.value_and_grad
    def cost(u):
        noise = hj.noise.Noise(flow=lambda t, x, p: jnp.diag(jnp.stack([0.0, jnp.exp(2 * u[1])])))
        return -hj.noise.kalman_filter(
            ball.system, jnp.array([1.0, 0.0]), 1e-8 * jnp.eye(2), ball.Params(u[0]), mode="flight", times=jnp.asarray(times),
            measurements=heights, observe=lambda t, x, p: x[:1], measurement_noise=error**2 * jnp.eye(1), noise=noise,
            throw=False,
        ).log_likelihood  # fmt: skip

    value = lambda u: tuple(map(np.asarray, cost(jnp.asarray(u))))
    found = scipy.optimize.minimize(value, [0.75, 0.0], jac=True)
    h = 1e-4
    # By differences of the exact gradient.
    curvature = np.array([(value(found.x + d)[1] - value(found.x - d)[1]) / (2 * h) for d in np.diag([h, h])])
    errors = np.sqrt(np.diag(np.linalg.inv((curvature + curvature.T) / 2)))
    assert np.all(np.abs(found.x - [0.8, np.log(sigma)]) < 3 * errors)
    # And the record tells both: restitution to two percent, the intensity to a third.
    assert errors[0] < 0.016 and errors[1] < 0.33
