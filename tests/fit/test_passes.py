"""Fits of passes from section to section, of orbits of a branch, and of a linear model, against least squares of closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import rimless_wheel as wheel


def agrees(found, off, guess):
    """The estimate and covariance by the residuals of the closed form."""
    exact = scipy.optimize.least_squares(off, guess, jac="3-point", x_scale=guess, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    assert found.result == "successful" and found.degrees == len(exact.fun) - len(guess)
    fitted = np.append(found.values, found.start_values[0, : found.start_covariance.shape[0]])
    assert_allclose(fitted, exact.x, rtol=1e-7)
    assert_allclose(found.chi_square, 2 * exact.cost, rtol=1e-8)
    # Of differences, with errors of 1e-10 times the condition of the problem.
    n = len(found.values)
    assert_allclose(found.covariance, np.linalg.inv(exact.jac.T @ exact.jac)[:n, :n], rtol=1e-5)


@pytest.mark.medium
def test_states_once_a_period():
    r"""Of $\dot x = b\cos\omega t - a x$ from the phase 0.5 on: its periods tell the frequency too."""
    forced = hj.HybridSystem({"m": hj.Mode(lambda t, x, p: p[1] * jnp.cos(p[2] * t) - p[0] * x, ("x",))}, ())
    step = hj.ReturnMap(forced, section=hj.Stroboscope("m", lambda p: 2 * jnp.pi / p[2], phase=0.5))

    def model(p):
        a, b, w = p
        times = 0.5 + 2 * np.pi / w * np.arange(1, 9)
        steady = lambda t: b * (a * np.cos(w * t) + w * np.sin(w * t)) / (a**2 + w**2)
        return times, steady(times) + (3 - steady(0.5)) * np.exp(-a * (times - 0.5))

    draw = np.random.default_rng(0).standard_normal((2, 8)) * [[1e-2], [2e-3]]
    times, x = np.array(model([0.1, 0.7, 1.3])) + draw
    found = hj.fit(
        step, {"time": times, "x": x}, jnp.array([0.12, 0.6, 1.25]), over=lambda p: p, x0=jnp.array([3.0]),
        noise={"time": 1e-2, "x": 2e-3},
    )  # fmt: skip
    off = lambda p: np.ravel((np.array(model(p)) - [times, x]) / [[1e-2], [2e-3]])
    agrees(found, off, np.array([0.1, 0.7, 1.3]))


@pytest.mark.medium
@pytest.mark.parametrize("strides", [1, 2])
def test_states_on_a_section(strides):
    r"""Of $\dot r = a r (1 - r^2)$, $\dot\theta = w$ on the ray $\theta = 0$, every time or every second time, from a radius that
    is not known."""

    def field(t, z, p):
        (x, y), (a, w) = z, p
        grow = a * (1 - x**2 - y**2)
        return jnp.stack([grow * x - w * y, grow * y + w * x])

    ray = hj.Section("m", lambda t, z, p: -z[1])
    step = hj.ReturnMap(hj.HybridSystem({"m": hj.Mode(field, ("x", "y"))}, ()), section=ray, strides=strides)

    def model(p):
        a, w, r = p
        times = 2 * np.pi / w * strides * np.arange(1, 7)
        return times, 1 / np.sqrt(1 + (1 / r**2 - 1) * np.exp(-2 * a * times))

    draw = np.random.default_rng(1).standard_normal((2, 6)) * [[1e-2], [1e-3]]
    times, x = np.array(model([0.03, 1.4, 0.3])) + draw
    found = hj.fit(
        step, {"time": times, "x": x}, jnp.array([0.04, 1.3]), over=lambda p: p,
        x0=(lambda s, p: jnp.stack([s[0], 0 * s[0]]), jnp.array([0.35])), noise={"time": 1e-2, "x": 1e-3},
    )  # fmt: skip
    off = lambda p: np.ravel((np.array(model(p)) - [times, x]) / [[1e-2], [1e-3]])
    agrees(found, off, np.array([0.03, 1.4, 0.3]))


@pytest.mark.medium
def test_an_orbit_of_a_branch():
    """From a point of a branch of gaits to that with the measured period."""
    orbit = hj.periodic_orbit(wheel.step, wheel.guess(wheel.Params()), wheel.Params())
    branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25)
    start, there = branch.orbit(1), branch.orbit(len(branch) - 1)
    found = hj.fit(
        start, {"time": [float(there.period)], "event": "*"}, start.params, over=lambda p: p.slope, noise=1e-3
    )  # fmt: skip
    assert found.result == "successful"
    assert_allclose(found.values, there.params.slope, rtol=1e-9)
    assert_allclose(found.x0[0], there.x, rtol=1e-9)


CLOCK = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: 1 / p + 0 * x, ("x",))},
    (hj.Transition("m", "m", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x),),
)


@pytest.mark.medium
@pytest.mark.parametrize("known", [True, False])
def test_deviations_and_a_prior_of_a_linear_model(known):
    """Strikes at k times the period: weighted linear least squares, of which Gauss and Newton's covariance, the exact Hessian and
    the density of the posterior are one normal distribution. Of a map an array is the times of its passes."""
    k, draw = np.arange(1, 7), np.random.default_rng(2).standard_normal(6)
    sigma = np.linspace(1e-2, 4e-2, 6) if known else np.ones(6)
    times, mean, width = k + 0.02 * draw, 1.02, 5e-3
    options = dict(noise=sigma, prior=(mean, width), mode="m") if known else {}
    model = CLOCK if known else hj.ReturnMap(CLOCK, sequence=("m",))
    found = hj.fit(model, times, jnp.array(0.98), over=lambda p: p, x0=jnp.zeros(1), **options)
    weight = np.sum((k / sigma) ** 2) + (1 / width**2 if known else 0)
    estimate = (np.sum(k * times / sigma**2) + (mean / width**2 if known else 0)) / weight
    square = np.sum(((times - k * estimate) / sigma) ** 2)
    scale = 1.0 if known else np.sqrt(square / 5)
    assert found.degrees == (6 if known else 5)
    assert_allclose(found.values, [estimate], rtol=1e-10)
    assert_allclose([found.covariance[0, 0], found.hessian_covariance()[0, 0]], scale**2 / weight, rtol=1e-8)
    at, of = 0.99, scipy.stats.norm.logpdf
    density = np.sum(of(times, k * at, scale * sigma)) + (of(at, mean, width) if known else 0)
    assert_allclose(found.log_density(jnp.array([at])), density, rtol=1e-9)
    half = (found.interval(0.9)[0, 1] - found.interval(0.9)[0, 0]) / 2 / found.standard_errors[0]
    # 95 % of the normal distribution, and of Student's with five degrees of freedom.
    assert_allclose(half, 1.644854 if known else 2.015048, rtol=1e-6)
    if known:
        assert_allclose(found.chi_square, square + ((mean - estimate) / width) ** 2, rtol=1e-8)


@pytest.mark.medium
def test_records_of_one_deviation_that_is_not_known():
    """A long and a short record, each number of which counts alike: the linear least squares of both."""
    k = [np.arange(1, 9), np.arange(1, 3)]
    times = [each + 0.02 * np.random.default_rng(3 + len(each)).standard_normal(len(each)) for each in k]
    found = hj.fit(CLOCK, times, jnp.array(0.98), over=lambda p: p, x0=jnp.zeros(1), mode="m")
    own, all_times = np.concatenate(k), np.concatenate(times)
    estimate = own @ all_times / (own @ own)
    square = np.sum((all_times - own * estimate) ** 2) / 9
    assert_allclose(found.values, [estimate], rtol=1e-10)
    assert_allclose([found.deviation**2, found.covariance[0, 0]], [square, square / (own @ own)], rtol=1e-8)
