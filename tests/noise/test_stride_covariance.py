"""The stationary covariance of noisy strides: closed forms, Kronecker products in NumPy, and the strides themselves."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import solve_discrete_lyapunov
from systems import CLOCK, logistic, map_of

import hyjax as hj
from hyjax.models import simplest_walker

MAP = map_of(lambda x, p: logistic(x, p) + p["shift"])


def fixed_point(r, shift=0.0):
    params = {"r": jnp.asarray(r), "shift": jnp.asarray(shift)}
    return hj.periodic_orbit(
        hj.ReturnMap(MAP, sequence=("m",), integrator=CLOCK),
        jnp.stack([1 - 1 / params["r"], 0.0 * r]),
        params,
        throw=False,
    )


def noises(p):
    return p["r"], p["shift"]


@pytest.mark.medium
def test_covariance_of_a_map_in_closed_form():
    """x -> r x (1 - x) + s: A = 2 - r, B = ((1 - 1/r)/r, 1). The map's clock starts anew, without noise."""
    noise = np.array([[0.04, 0.03], [0.03, 0.09]])

    def covariance(r):
        orbit = fixed_point(r)
        found = hj.noise.stride_covariance(orbit, noise=noises, covariance=jnp.array(noise))
        return found, found

    def exact(r):
        b = jnp.stack([(1 - 1 / r) / r, jnp.ones(())])
        return b @ noise @ b / (1 - (2 - r) ** 2)

    r = jnp.array([1.5, 2.0, 2.8, 3.2, 3 - 1e-12])
    slope, found = jax.jit(jax.vmap(jax.jacfwd(covariance, has_aux=True)))(r)
    assert_allclose(found[:3, 0, 0], jax.vmap(exact)(r[:3]), rtol=1e-12)
    assert_allclose(slope[:3, 0, 0], jax.vmap(jax.grad(exact))(r[:3]), rtol=1e-10)
    assert_allclose(found[:3, 1], 0, atol=1e-16)
    # At r = 3.2 the fixed point is unstable, and at the last its multiplier is on the unit circle up to rounding.
    assert np.all(np.isinf(found[3:]))


# A linear map of two coordinates, whose Jacobian is not symmetric.
JACOBIAN, ACTING = np.array([[0.5, 0.4], [0.0, -0.3]]), np.array([1.0, 2.0])
LINEAR = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 1.0]), ("x", "y", "clock"))},
    (
        hj.Transition(
            "m",
            "m",
            lambda t, x, p: 1 - x[2],
            lambda t, x, p: jnp.append(jnp.asarray(JACOBIAN) @ x[:2] + p["shift"] * jnp.asarray(ACTING), 0.0),
        ),
    ),
)


@pytest.mark.medium
def test_covariance_of_a_linear_map():
    orbit = hj.periodic_orbit(
        hj.ReturnMap(LINEAR, sequence=("m",), integrator=CLOCK),
        jnp.zeros(3),
        {"shift": jnp.array(0.0)},
        throw=False,
    )
    found = hj.noise.stride_covariance(orbit, noise=lambda p: p["shift"], covariance=jnp.array([[0.25]]))
    expected = solve_discrete_lyapunov(JACOBIAN, 0.25 * np.outer(ACTING, ACTING))
    assert_allclose(found[:2, :2], expected, rtol=1e-12)
    assert_allclose(found[2], 0, atol=1e-16)


@pytest.mark.medium
def test_misuse_and_failure():
    orbit = fixed_point(2.5)
    lost = eqx.tree_at(lambda orbit: orbit.result, orbit, hj.RESULTS.orbit_not_converged)
    assert np.all(np.isnan(hj.noise.stride_covariance(lost, noise=noises)))
    with pytest.raises(ValueError, match="this is a batch of 1 orbits"):
        hj.noise.stride_covariance(jax.tree.map(lambda leaf: leaf[None], orbit), noise=noises)
    with pytest.raises(ValueError, match=r"shape \(1, 1\) must have the shape \(2, 2\)"):
        hj.noise.stride_covariance(orbit, noise=noises, covariance=jnp.eye(1))
    for wrong in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]):
        with pytest.raises(ValueError, match="symmetric and positive semidefinite"):
            hj.noise.stride_covariance(orbit, noise=noises, covariance=jnp.array(wrong))


@pytest.fixture(scope="module")
def noisy(walker):
    """The long gait at slope 0.009, and strides from states on slopes, in one batch."""
    orbit = walker["long_0.009"]

    def one(x, slope):
        params = dataclasses.replace(orbit.params, slope=slope)
        return simplest_walker.step(x, params).x

    return orbit, jax.jit(jax.vmap(one)), hj.noise.stride_covariance(orbit, noise=lambda p: p.slope)


LANES, SETTLING, KEPT = 400, 30, 60


@pytest.mark.slow
def test_covariance_of_the_walker(noisy):
    """Against 24 000 strides on slopes of small variance, and against the linear equation of all entries in NumPy."""
    orbit, strides, found = noisy
    h, slope, x = 1e-5, float(orbit.params.slope), np.asarray(orbit.x)
    ends = np.asarray(strides(np.tile(x, (LANES, 1)), slope + h * np.resize([-2.0, -1.0, 1.0, 2.0], LANES)))
    b = (8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12 * h)
    a = np.asarray(orbit.return_jacobian)
    entries = np.linalg.solve(np.eye(16) - np.kron(a, a), np.outer(b, b).ravel()).reshape(4, 4)
    # Differences of fourth order: rounding of 1e-14 over the spacing, of a derivative of order 1 to 10.
    assert_allclose(found, entries, rtol=0, atol=1e-8 * np.max(entries))
    # Two dimensions: the starts have phi = 2 theta, and phi_rate is a function of theta_rate and theta.
    assert_allclose(found[0] * 2, found[2], rtol=1e-12)
    assert np.linalg.matrix_rank(np.asarray(found), tol=1e-12 * np.max(entries)) == 2

    # The state deviates by some thirty times the noise and its curvature is of order 10 to 100, so that what the linear theory
    # leaves out is below 1e-4 of the covariance.
    deviation, rng = 2e-6, np.random.default_rng(1)
    states, squares = np.tile(x, (LANES, 1)), np.zeros((LANES, 4, 4))
    for k in range(SETTLING + KEPT):
        states = np.asarray(strides(states, slope + deviation * rng.normal(size=LANES)))
        # By then the start is forgotten: the spectral radius is 0.59.
        if k >= SETTLING:
            off = (states - x) / deviation
            squares += off[:, :, None] * off[:, None, :] / KEPT
    mean, error = squares.mean(axis=0), squares.std(axis=0, ddof=1) / np.sqrt(LANES)
    # The lanes are independent, so the error of their mean is known: a few percent, and ten entries within four of it.
    assert np.all(error <= 0.02 * np.max(mean))
    assert np.all(np.abs(mean - found) < 4 * error)
