"""The covariance of a drop onto a slope, against 100 000 samples; and where the linear prediction must fail."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj

GRAVITY = 9.81

# The drop of Kong et al. (2024), Fig. 1: a ball falls onto a slope and slides down it. The level of the slope is uncertain.
SINE, COSINE = 0.6, 0.8
NORMAL = np.array([SINE, COSINE])


def to_slide(t, x, p):
    normal = jnp.asarray(NORMAL)
    return jnp.concatenate([x[:2], x[2:] - (normal @ x[2:]) * normal]) + p["kick"]


DROP = hj.HybridSystem(
    {
        "flight": hj.Mode(lambda t, x, p: jnp.stack([x[2], x[3], 0 * t, 0 * t - GRAVITY]), ("q1", "q2", "v1", "v2")),
        "slide": hj.Mode(
            lambda t, x, p: jnp.concatenate([x[2:], GRAVITY * SINE * jnp.array([COSINE, -SINE])]),
            ("q1", "q2", "v1", "v2"),
        ),
    },
    (hj.Transition("flight", "slide", lambda t, x, p: x[:2] @ jnp.asarray(NORMAL) + p["level"], to_slide),),
)
ABOVE = jnp.array([0.0, 1.25, 0.4, 0.0])
EXACT = {"level": jnp.zeros(()), "kick": jnp.zeros(4)}
SAMPLES = 100_000
# States are quadratic in time and covariances cubic: a method of order five, with an estimate of order four, is exact.
INTEGRATOR = hj.Integrator(dfx.Dopri5(), unroll=False)


@pytest.fixture(scope="module")
def dropped():
    """The mean and the covariance of 100 000 balls at a time, and the prediction."""
    options = {"mode": "flight", "max_jumps": 1, "integrator": INTEGRATOR}

    def one(x, level, kick, t1):
        run = hj.simulate(DROP, x, {"level": level, "kick": kick}, t1=t1, **options)
        return run.x, run.mode

    batch = jax.jit(jax.vmap(one, in_axes=(0, 0, 0, None)))

    def run(sigma0, level, kick, t1):
        rng = np.random.default_rng(7)
        draw = lambda covariance: rng.multivariate_normal(np.zeros(4), covariance, SAMPLES)
        x, mode = batch(ABOVE + draw(sigma0), np.sqrt(level) * rng.normal(size=SAMPLES), draw(kick), t1)
        noise = hj.noise.Noise(guard=level, reset=kick)
        predicted = hj.noise.covariance(DROP, ABOVE, jnp.asarray(sigma0), EXACT, t1=t1, noise=noise, **options)
        return np.asarray(x), np.asarray(mode), predicted

    return run


@pytest.mark.slow
def test_samples_of_the_drop(dropped):
    root = 1e-3 * np.array([[1.0, 0, 0, 0], [0.4, 1.2, 0, 0], [0.3, -0.5, 2.0, 0], [-0.2, 0.6, 0.3, 1.5]])
    x, mode, predicted = dropped(root @ root.T, 4e-7, np.diag([0.0, 0.0, 1e-6, 1e-6]), 0.9)
    assert np.all(mode == 1)
    sigma, mean = np.asarray(predicted.sigma), np.asarray(predicted.trajectory.x)
    # Errors of the samples' mean and covariance; the second order of the theory, deviations squared, is a tenth of them.
    scale = np.diag(sigma)
    assert np.all(np.abs(x.mean(axis=0) - mean) < 3 * np.sqrt(scale / SAMPLES))
    error = np.sqrt((np.outer(scale, scale) + sigma**2) / SAMPLES)
    assert np.all(np.abs(np.cov(x.T) - sigma) < 3 * error)


@pytest.mark.slow
def test_samples_with_noise_of_the_flow():
    """By Euler-Maruyama steps of 1.5e-3, with another noise in each mode."""
    w = {"flight": np.diag([2e-6, 1e-6, 1e-5, 2e-5]), "slide": np.diag([1e-6, 3e-6, 3e-5, 1e-5])}
    steps, t1, sigma0 = 600, 0.9, 2.5e-7 * np.eye(4)
    down, along = np.array([0.0, -GRAVITY]), GRAVITY * SINE * np.array([COSINE, -SINE])

    def flow(x, accel, h):
        h = np.reshape(h, (-1, 1))
        return np.concatenate([x[:, :2] + h * x[:, 2:] + h**2 / 2 * accel, x[:, 2:] + h * accel], axis=1)

    rng, h = np.random.default_rng(8), t1 / steps
    x, landed = np.asarray(ABOVE) + 5e-4 * rng.normal(size=(SAMPLES, 4)), np.zeros((SAMPLES, 1), bool)
    roots = {name: np.sqrt(h * np.diagonal(each)) for name, each in w.items()}
    for _ in range(steps):
        x = flow(x, np.where(landed, along, down), h)
        x += np.where(landed, roots["slide"], roots["flight"]) * rng.normal(size=x.shape)
        hit = ~landed[:, 0] & (x[:, :2] @ NORMAL < 0)
        # Back to the slope, through the impact, and forth again.
        since = (x[hit, :2] @ NORMAL) / (x[hit, 2:] @ NORMAL)
        there = flow(x[hit], down, -since)
        there[:, 2:] -= np.outer(there[:, 2:] @ NORMAL, NORMAL)
        x[hit], landed[hit] = flow(there, along, since), True
    assert np.all(landed)
    options = {"mode": "flight", "max_jumps": 1, "integrator": INTEGRATOR}
    predicted = hj.noise.covariance(
        DROP, ABOVE, jnp.asarray(sigma0), EXACT, t1=t1, noise=hj.noise.Noise(flow=w), **options
    )
    sigma, scale = np.asarray(predicted.sigma), np.diag(predicted.sigma)
    # Without the noise the covariance is less than a quarter of this.
    none = hj.noise.Noise(flow=jax.tree.map(np.zeros_like, w))
    quiet = hj.noise.covariance(DROP, ABOVE, jnp.asarray(sigma0), EXACT, t1=t1, noise=none, **options)
    assert np.all(np.diag(quiet.sigma) < 0.25 * scale)
    # The errors of the samples; those of the steps, h / t1 = 0.0017 of the covariance, are less.
    assert np.all(np.abs(x.mean(axis=0) - np.asarray(predicted.trajectory.x)) < 3 * np.sqrt(scale / SAMPLES))
    assert np.all(np.abs(np.cov(x.T) - sigma) < 3 * np.sqrt((np.outer(scale, scale) + sigma**2) / SAMPLES))


@pytest.mark.slow
def test_the_impact_of_the_drop_removes_what_is_normal_to_the_slope(dropped):
    """Fig. 1 and Sec. IV of Kong et al. (2024): the saltation matrix against the Jacobian of the reset. And where the linear
    prediction must fail: while a part of the balls has not landed, the states are of two kinds."""
    sigma0 = np.diag([0.04, 0.01, 0.0, 0.0])
    x, mode, predicted = dropped(sigma0, 0.0, np.zeros((4, 4)), 0.55)
    before, after = np.asarray(predicted.sigma_ends[0]), np.asarray(predicted.sigma_starts[1])
    normal = np.kron(np.eye(2), NORMAL)
    # Before the impact the balls differ across the slope, and after it they do not, in position and in speed.
    assert (normal @ before @ normal.T)[0, 0] > 0.01
    assert_allclose(normal @ after, 0, atol=1e-15)
    hit = predicted.trajectory.x_ends[0]
    reset = np.asarray(jax.jacfwd(lambda x: to_slide(0.0, x, EXACT))(hit))
    # The Jacobian of the reset keeps what differs across the slope in position.
    assert_allclose(normal[0] @ reset @ before @ reset.T @ normal[0], normal[0] @ before @ normal[0], rtol=1e-12)
    xi = np.asarray(hj.saltation_matrix(DROP, 0, predicted.trajectory.end_times[0], hit, EXACT))
    assert_allclose(after, xi @ before @ xi.T, rtol=0, atol=1e-15)
    # The ball of the mean has landed and a fifth to a half of the balls has not: the spread across the slope is still there.
    assert 0.2 < np.mean(mode == 0) < 0.5
    spread = np.var(x[:, :2] @ NORMAL)
    assert spread > 1e-3 > 1e6 * (normal @ np.asarray(predicted.sigma) @ normal.T)[0, 0]
