r"""How the linear prediction fails near grazing: a ball thrown against a ceiling, in closed form to all orders.

The ball reaches the ceiling with the speed v, and thrown from lower by d with $w = \sqrt{v^2 - 2gd}$, later by $(v - w)/g = d/v +
g\,d^2/(2v^3) + \dots$: with the guard $s$, the second order of the event's time is $-\ddot s\,\delta s^2/(2\dot s^3)$.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj

GRAVITY, E, ABOVE, LATER = 9.81, 0.7, 1.0, 0.3
CEILING = hj.HybridSystem(
    {"flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], -GRAVITY + 0 * t]), ("y", "y_rate"))},
    (
        hj.Transition(
            "flight", "flight", lambda t, x, p: -x[0], lambda t, x, p: jnp.stack([x[0], -E * x[1]])
        ),
    ),
)  # fmt: skip
SPEEDS = np.array([0.1, 0.2, 0.4, 0.8])
# The deviation of the height: 2 g s / v^2 is 0.05 for the slowest ball.
SPREAD = 0.05 * SPEEDS[0] ** 2 / (2 * GRAVITY)
PLACES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS = WEIGHTS / np.sum(WEIGHTS)


@pytest.fixture(scope="module")
def thrown():
    """Balls at a time after the impact of their mean, shape `(speeds, lanes)`: lower by multiples of the deviation, and in the
    last lane by 1.2 times what reaches the ceiling."""
    lower = np.append(np.broadcast_to(PLACES * SPREAD, (4, 7)), 1.2 * SPEEDS[:, None] ** 2 / (2 * GRAVITY), axis=1)

    @jax.jit
    @jax.vmap
    @jax.vmap
    def run(lower, v):
        up = jnp.sqrt(v**2 + 2 * GRAVITY * ABOVE)
        x0, sigma0 = jnp.stack([-ABOVE - lower, up]), jnp.diag(jnp.array([SPREAD**2, 0.0]))
        return hj.noise.covariance(
            CEILING, x0, sigma0, None, mode="flight", t1=(up - v) / GRAVITY + LATER, max_jumps=1,
            integrator=hj.Integrator(unroll=False),
        )  # fmt: skip

    return lower, run(jnp.asarray(lower), jnp.broadcast_to(jnp.asarray(SPEEDS)[:, None], lower.shape))


def after(v, lower):
    """Height and speed at the end, of a ball that has met the ceiling."""
    w = np.sqrt(v**2 - 2 * GRAVITY * lower)
    left = LATER - (v - w) / GRAVITY
    return np.stack([-E * w * left - GRAVITY * left**2 / 2, -E * w - GRAVITY * left], axis=-1)


@pytest.mark.medium
def test_error_of_the_linear_prediction(thrown):
    """By the saltation matrix, the deviation is L d; what is left is B d^2 / 2, with B of the order of 1/v^3."""
    lower, run = thrown
    lower, v, x = lower[:, :7], SPEEDS[:, None], np.asarray(run.trajectory.x)[:, :7]
    assert np.all(run.result == hj.RESULTS.successful)
    # The state is known to 1e-14 at the event, whose time has an error 1/v times that.
    assert_allclose(x, after(v, lower), rtol=0, atol=1e-12)
    linear = np.stack([(1 + E) * GRAVITY * LATER / v + E, (1 + E) * GRAVITY / v], axis=-1)
    sigma = np.asarray(run.sigma)[:, 3]
    assert_allclose(sigma, SPREAD**2 * linear * np.swapaxes(linear, 1, 2), rtol=1e-10)
    curvature = (1 + E) * GRAVITY * np.stack([GRAVITY * LATER / v**3 - 1 / v**2, GRAVITY / v**3], axis=-1)
    error = x - x[:, 3:4] - linear * lower[..., None]
    off = np.delete(error / (curvature * lower[..., None] ** 2 / 2 + (lower == 0)[..., None]) - 1, 3, axis=1)
    small = np.delete(2 * GRAVITY * np.abs(lower) / v**2, 3, axis=1)
    # The third order is half of 2 g d / v^2 of the second, and less than all of it; rounding of 1e-15 over an error of 1e-9.
    assert np.all(np.abs(off) < small[..., None] + 1e-5)
    # Twice as fast, at the same deviation: an eighth of the error.
    assert_allclose(error[1:, [0, 6], 1] / error[:-1, [0, 6], 1], 1 / 8, rtol=0.1)


@pytest.mark.medium
def test_error_of_the_predicted_covariance(thrown):
    """The variance of the speed is larger than predicted by 7/8 of (2 g s / v^2)^2; by quadrature over Gaussian starts."""
    _, run = thrown
    speed = np.asarray(run.trajectory.x)[:, :7, 1]
    mean = speed @ WEIGHTS
    variance = (speed - mean[:, None]) ** 2 @ WEIGHTS
    small = 2 * GRAVITY * SPREAD / SPEEDS**2
    more = variance / np.asarray(run.sigma)[:, 3, 1, 1] - 1
    # The next order is about 10 times its square; roundings of 1e-14 over the deviation, 1e-4 of the speed.
    assert_allclose(more, 7 / 8 * small**2, rtol=0.05, atol=1e-8)
    assert more[0] > 2e-3 > 100 * more[2]


@pytest.mark.medium
def test_beyond_grazing_there_is_no_event(thrown):
    """Lower by more than v^2 / 2g the ball does not reach the ceiling: the whole jump of the speed, (1 + e) v, is missing, of
    which the linear prediction has 0.6."""
    lower, run = thrown
    assert np.all(np.asarray(run.trajectory.jumps) == np.append(np.ones(7), 0))
    missing = np.asarray(run.trajectory.x)[:, 7, 1] - np.asarray(run.trajectory.x)[:, 3, 1]
    assert_allclose(missing, (1 + E) * SPEEDS, rtol=1e-12)
    linear = (1 + E) * GRAVITY / SPEEDS * lower[:, 7]
    assert_allclose(linear, 0.6 * missing, rtol=1e-12)
