"""The salted Kalman filter and the smoother: linear systems in NumPy, one bounce in closed form, bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import solve_semidefinite
from hyjax.models import bouncing_ball, simplest_walker
from hyjax.noise import Estimates

GRAVITY = 9.81
EVERYTHING = lambda t, x, p: x


def numpy_filter(mean, sigma, times, measurements, h, v, transit):
    """Kalman's filter as in a textbook. `transit(t, t_next, mean, sigma)`: the prediction and its Jacobian."""
    log_likelihood, rows = 0.0, []
    t = 0.0
    for t_next, y in zip(times, measurements, strict=True):
        before = mean, sigma
        mean, sigma, phi = transit(t, t_next, mean, sigma)
        predicted = mean, sigma
        s = h @ sigma @ h.T + v
        r = y - h @ mean
        k = sigma @ h.T @ np.linalg.inv(s)
        mean, sigma = mean + k @ r, sigma - k @ s @ k.T
        log_likelihood -= (r @ np.linalg.solve(s, r) + np.linalg.slogdet(2 * np.pi * s)[1]) / 2
        rows.append((before, predicted, (mean, sigma), phi))
        t = t_next
    return rows, log_likelihood


# A free particle with noise of its acceleration: linear, without events.
FREE = hj.HybridSystem({"free": hj.Mode(lambda t, x, p: jnp.stack([x[1], p["push"]]), ("x", "v"))}, ())
INTENSITY = np.array([[0.02, 0.01], [0.01, 0.3]])
POSITION, ERROR = np.array([[1.0, 0.2]]), np.array([[0.04]])


def free_flow(dt):
    """Fundamental matrix and driven covariance of the free particle."""
    (a, b), (_, c) = INTENSITY
    corner = b * dt + c * dt**2 / 2
    return np.array([[1, dt], [0, 1]]), np.array([[a * dt + b * dt**2 + c * dt**3 / 3, corner], [corner, c * dt]])


def free_transit(push):
    def transit(t, t_next, mean, sigma):
        phi, driven = free_flow(t_next - t)
        shift = push * np.array([(t_next - t) ** 2 / 2, t_next - t])
        return phi @ mean + shift, phi @ sigma @ phi.T + driven, phi

    return transit


@pytest.fixture(scope="module")
def free():
    """The filter of the free particle, its smoother, and the derivative of the log-likelihood by the push and the noise."""
    times = np.array([0.0, 0.3, 0.35, 1.1, 1.9, 2.0])
    measurements = np.random.default_rng(3).normal(size=(6, 1))
    # Rank one: the velocity is known.
    x0, sigma0 = np.array([0.3, -0.2]), np.array([[0.5, 0.0], [0.0, 0.0]])

    def run(push, error):
        filtered = hj.noise.kalman_filter(
            FREE, jnp.asarray(x0), jnp.asarray(sigma0), {"push": push}, mode="free", times=jnp.asarray(times),
            measurements=jnp.asarray(measurements), observe=lambda t, x, p: jnp.asarray(POSITION) @ x,
            measurement_noise=error, noise=hj.noise.Noise(flow=INTENSITY), integrator=ROLLED, smooth=True,
        )  # fmt: skip
        return filtered.log_likelihood, (filtered, hj.noise.rts_smoother(filtered))

    (_, (filtered, smoothed)), slopes = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))(
        jnp.array(0.7), jnp.asarray(ERROR)
    )
    own = lambda push, error: numpy_filter(x0, sigma0, times, measurements, POSITION, error, free_transit(push))
    return filtered, smoothed, slopes, own, (x0, sigma0, times, measurements)


@pytest.mark.medium
def test_a_linear_system_without_events(free):
    """Against NumPy, from a covariance of rank one, with a first measurement at the start."""
    filtered, _, slopes, own, _ = free
    rows, log_likelihood = own(0.7, ERROR)
    assert filtered.result == hj.RESULTS.successful
    # Rounding, and the tolerance 1e-14 of the steps.
    for k, (_, predicted, updated, _) in enumerate(rows):
        for found, (mean, sigma) in ((filtered.predicted, predicted), (filtered, updated)):
            assert_allclose(found.means[k], mean, rtol=0, atol=1e-13)
            assert_allclose(found.covariances[k], sigma, rtol=0, atol=1e-13)
    assert_allclose(filtered.log_likelihood, log_likelihood, rtol=1e-12)
    # Central differences of the other filter: the error of a step h is h^2, and rounding over h.
    h = 1e-5
    by_push = (own(0.7 + h, ERROR)[1] - own(0.7 - h, ERROR)[1]) / (2 * h)
    by_error = (own(0.7, ERROR + h)[1] - own(0.7, ERROR - h)[1]) / (2 * h)
    assert_allclose(slopes[0], by_push, rtol=1e-8)
    assert_allclose(slopes[1][0, 0], by_error, rtol=1e-5)


@pytest.mark.medium
def test_the_smoother_is_least_squares(free):
    """All states and measurements are one Gaussian vector: conditioned on the measurements at once, without any recursion."""
    _, smoothed, _, _, (x0, sigma0, times, measurements) = free
    # Mean and covariance of the states at the times: x_j = Phi_ji x_i + noise.
    count = len(times)
    means, joint = np.zeros((count, 2)), np.zeros((count, 2, count, 2))
    transit = free_transit(0.7)
    t, mean, sigma = 0.0, x0, sigma0
    for j, t_next in enumerate(times):
        mean, sigma, phi = transit(t, t_next, mean, sigma)
        means[j], joint[j, :, j] = mean, sigma
        for i in range(j):
            joint[j, :, i] = phi @ joint[j - 1, :, i]
            joint[i, :, j] = joint[j, :, i].T
        t = t_next
    joint = joint.reshape(2 * count, 2 * count)
    h = np.kron(np.eye(count), POSITION)
    gain = joint @ h.T @ np.linalg.inv(h @ joint @ h.T + ERROR[0, 0] * np.eye(count))
    expected = means.ravel() + gain @ (measurements.ravel() - h @ means.ravel())
    spread = joint - gain @ h @ joint
    # Some hundred roundings, and the inverses of predicted covariances of condition 1e3.
    assert_allclose(smoothed.means, expected.reshape(count, 2), rtol=0, atol=1e-11)
    for k in range(count):
        block = spread.reshape(count, 2, count, 2)[k, :, k]
        assert_allclose(smoothed.covariances[k], block, rtol=0, atol=1e-11)
    # The first measurement is at the start.
    assert_allclose(smoothed.initial[0], expected[:2], rtol=0, atol=1e-11)


EVENTS = [[0, 1, 0, 0], [0, 1, 0, 1]]


def ball_transit(e, level):
    """The ball with noise of its flow, from above the floor, through at most one bounce in closed form."""

    def drift(dt, mean, sigma):
        phi, driven = free_flow(dt)
        shift = -GRAVITY * np.array([dt**2 / 2, dt])
        return phi @ mean + shift, phi @ sigma @ phi.T + driven, phi

    def transit(t, t_next, mean, sigma):
        y, v = mean
        fall = (v + np.sqrt(v**2 + 2 * GRAVITY * y)) / GRAVITY
        if fall >= t_next - t:
            return drift(t_next - t, mean, sigma)
        (_, v), sigma, first = drift(fall, mean, sigma)
        xi = np.array([[-e, 0], [-(1 + e) * GRAVITY / v, -e]])
        late = -(1 + e) * np.array([1, GRAVITY / v])
        sigma = xi @ sigma @ xi.T + level * np.outer(late, late)
        mean, sigma, second = drift(t_next - t - fall, np.array([0, -e * v]), sigma)
        return mean, sigma, second @ xi @ first

    return transit


@pytest.fixture(scope="module", params=[jax.jacfwd, pytest.param(jax.grad, marks=pytest.mark.medium)])
def ball(request):
    """The arguments of three bouncing balls, and their filters in one batch; the third cannot go on: its floor grazes."""
    times = np.array([0.2, 0.6, 0.65, 1.1])
    starts = np.array([[1.0, 0.0], [0.7, 0.5], [0.0, 0.0]])
    e = np.array([0.8, 0.6, 0.7])
    measurements = np.random.default_rng(5).normal(size=(3, 4, 2)) * 0.02
    for lane in range(2):
        rows, _ = numpy_filter(starts[lane], 0.001 * np.eye(2), times, np.zeros((4, 2)), np.zeros((2, 2)), np.eye(2),
                               ball_transit(e[lane], 0.0))  # fmt: skip
        measurements[lane] += np.stack([row[1][0] for row in rows])

    def run(x, e, y):
        filtered = hj.noise.kalman_filter(
            bouncing_ball.system, x, 0.001 * jnp.eye(2), bouncing_ball.Params(restitution=e), mode="flight",
            times=jnp.asarray(times), measurements=y, observe=EVERYTHING, measurement_noise=0.01 * jnp.eye(2),
            noise=hj.noise.Noise(flow=INTENSITY, guard=1e-4), integrator=ROLLED, smooth=True, mode_test=False, throw=False
        )  # fmt: skip
        return filtered.log_likelihood, (filtered, hj.noise.rts_smoother(filtered))

    run = request.param(run, argnums=1, has_aux=True)
    inputs = [jnp.asarray(each) for each in (starts, e, measurements)]
    return inputs, jax.jit(jax.vmap(run))(*inputs), times


@pytest.mark.medium
def test_one_bounce_in_closed_form(ball):
    """Against NumPy with the saltation matrix of the ball, and an uncertain floor."""
    (starts, e, measurements), (slope, (filtered, smoothed)), times = ball
    for lane in range(2):

        def own(e, y, lane=lane):
            return numpy_filter(
                np.asarray(starts[lane]),
                0.001 * np.eye(2),
                times,
                y,
                np.eye(2),
                0.01 * np.eye(2),
                ball_transit(e, 1e-4),
            )

        rows, log_likelihood = own(float(e[lane]), np.asarray(measurements[lane]))
        assert list(np.asarray(filtered.events[lane])) == EVENTS[lane]
        for k, (_, predicted, updated, _) in enumerate(rows):
            for found, (mean, sigma) in ((filtered.predicted, predicted), (filtered, updated)):
                # Of the order of 100 roundings, and the tolerance of the steps.
                assert_allclose(found.means[lane, k], mean, rtol=0, atol=1e-12)
                assert_allclose(found.covariances[lane, k], sigma, rtol=0, atol=1e-12)
        assert_allclose(filtered.log_likelihood[lane], log_likelihood, rtol=1e-11)
        h, y = 1e-5, np.asarray(measurements[lane])
        by_e = (own(float(e[lane]) + h, y)[1] - own(float(e[lane]) - h, y)[1]) / (2 * h)
        assert_allclose(slope[lane], by_e, rtol=1e-6)
        # The smoother, backwards in NumPy, with the fundamental matrices of the bounce.
        mean, sigma = rows[-1][2]
        for k in reversed(range(len(rows))):
            assert_allclose(smoothed.means[lane, k], mean, rtol=0, atol=1e-11)
            assert_allclose(smoothed.covariances[lane, k], sigma, rtol=0, atol=1e-11)
            (x, spread), (ahead, ahead_sigma), _, phi = rows[k]
            gain = spread @ phi.T @ np.linalg.inv(ahead_sigma)
            mean, sigma = x + gain @ (mean - ahead), spread + gain @ (sigma - ahead_sigma) @ gain.T
        assert_allclose(smoothed.initial[0][lane], mean, rtol=0, atol=1e-11)


@pytest.mark.medium
def test_a_failing_lane_has_its_code(ball):
    """A ball at rest on the floor is Zeno at once; the other lanes are finite."""
    _, (slope, (filtered, smoothed)), _ = ball
    assert list(np.asarray(filtered.result == hj.RESULTS.successful)) == [True, True, False]
    assert np.asarray(filtered.result == hj.RESULTS.zeno)[2]
    assert (
        np.all(np.isnan(filtered.means[2])) and np.isnan(filtered.log_likelihood[2]) and np.all(filtered.modes[2] == -1)
    )
    assert np.all(np.isnan(smoothed.means[2]))
    assert np.all(np.isfinite(slope[:2])) and np.all(np.isfinite(filtered.covariances[:2]))


def test_misuse():
    given = dict(
        x0=jnp.array([1.0, 0.0]), sigma0=jnp.eye(2), params=bouncing_ball.Params(), mode="flight",
        times=jnp.array([0.1, 0.2]), measurements=jnp.zeros((2, 1)), observe=lambda t, x, p: x[:1],
        measurement_noise=jnp.eye(1),
    )  # fmt: skip

    def refused(message, **changes):
        with pytest.raises(ValueError, match=message):
            hj.noise.kalman_filter(bouncing_ball.system, **(given | changes))

    refused(r"times of shape \(2,\) and measurements of shape \(3, 1\)", measurements=jnp.zeros((3, 1)))
    refused(r"measurements of shape \(2,\) must have the shapes", measurements=jnp.zeros(2))
    refused(r"measurement 1, \[nan\], is not finite. Leave out that time", measurements=jnp.array([[0.0], [jnp.nan]]))
    refused(r"times must not decrease, from t0=0.0 on; times\[1\] is 0.1", times=jnp.array([0.2, 0.1]))
    refused(r"must not decrease, from t0=0.15 on", t0=0.15)
    refused(
        r"observe returns shape \(2,\) in mode 'flight', but measurements of shape \(times, 1\)", observe=EVERYTHING
    )
    refused("mode of observe 'rest' is not one of the modes", observe={"rest": EVERYTHING})
    refused("observe has no function for the modes \\['flight'\\]", observe={})
    refused(r"measurement_noise of shape \(2, 2\) must have the shape \(1, 1\)", measurement_noise=jnp.eye(2))
    refused("measurement_noise must be symmetric and positive semidefinite", measurement_noise=-jnp.eye(1))
    refused(r"sigma0 of shape \(1, 1\) must have", sigma0=jnp.eye(1))
    refused("max_jumps=-1 must be", max_jumps=-1)
    refused("lies on or beyond the guard of the transition from 'flight' to 'flight'", x0=jnp.array([-0.1, -1.0]))
    params = simplest_walker.Params()
    struck = simplest_walker.guess(params)
    with pytest.raises(ValueError, match=r"lies on or beyond the guard.* give the transition armed=\.\.\., true only"):
        hj.noise.kalman_filter(
            simplest_walker.system,
            **(given | {"x0": struck, "sigma0": jnp.eye(4), "params": params, "mode": "swing"}),
        )


@pytest.mark.medium
def test_a_smoother_needs_cross_covariances(free):
    with pytest.raises(ValueError, match="smooth=True"):
        hj.noise.rts_smoother(eqx.tree_at(lambda each: each.cross, free[0], None))


def test_inverses_in_any_units():
    """Of coordinates whose deviations differ by 1e12, of one that is known, and of a singular covariance."""
    unit = np.diag([1e-9, 1e3, 1.0])
    own = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, 0.0], [0.0, 0.0, 0.0]])
    right = np.array([[1.0, 0.3], [-0.5, 2.0], [7.0, 7.0]])
    found = solve_semidefinite(jnp.asarray(unit @ own @ unit), jnp.asarray(right))
    expected = np.zeros((3, 2))
    expected[:2] = np.linalg.inv(unit[:2, :2]) @ np.linalg.inv(own[:2, :2]) @ np.linalg.inv(unit[:2, :2]) @ right[:2]
    assert_allclose(found, expected, rtol=1e-12)
    direction = np.array([1e-9, 2e3])
    singular = np.outer(direction, direction)
    found = solve_semidefinite(jnp.asarray(singular), jnp.asarray(singular @ np.eye(2)))
    assert_allclose(singular @ found, singular, rtol=1e-12)
    # The normalized error squared is of no unit: by hand, e'S^-1 e of the first two coordinates.
    estimates = Estimates(
        jnp.zeros(1), jnp.asarray(unit @ [1.0, 2.0, 3.0])[None], jnp.asarray(unit @ own @ unit)[None], jnp.array([0]), None, FREE
    )  # fmt: skip
    error = np.array([0.4, -0.3])
    states = unit @ np.array([1.4, 1.7, 3.0])
    assert_allclose(
        estimates.nees(jnp.asarray(states)[None]), [error @ np.linalg.solve(own[:2, :2], error)], rtol=1e-11
    )


FIELDS = {
    "particle": lambda t, x, p: jnp.stack([x[1], 0 * x[1]]),
    "oscillator": lambda t, x, p: jnp.stack([x[1], -x[0]]),
    "decay": lambda t, x, p: jnp.stack([-x[0], -2 * x[1]]),
}


def positions(field, times, values, variance, sigma0):
    system = hj.HybridSystem({"m": hj.Mode(field, ("x", "v"))}, ())
    return hj.noise.kalman_filter(
        system, jnp.array([1.0, 0.0]), sigma0, None, mode="m", times=times, measurements=values[:, None],
        observe=lambda t, x, p: x[:1], measurement_noise=jnp.array([[variance]]), throw=False,
    )  # fmt: skip


@pytest.mark.parametrize("variance", [0.0, 1e-20])
@pytest.mark.parametrize("name", ["particle", "oscillator"])
def test_a_state_that_two_exact_measurements_determine_is_not_measured_again(name, variance):
    # Of a covariance that is rounding the sign is by chance: no likelihood may be made of it.
    for scale in (1.0, 0.3, 1e6):
        sigma0 = scale * jnp.array([[1.0, 0.3], [0.3, 0.7]])
        found = positions(FIELDS[name], jnp.array([0.4, 0.8, 1.2]), jnp.array([0.9, 0.7, 0.5]), variance, sigma0)
        assert found.result == hj.RESULTS.nonfinite
        assert np.isfinite(found.covariances[1]).all() and np.isnan(found.log_likelihood)


def test_measurements_at_one_time_are_as_good_as_their_mean():
    times, values, sigma0 = jnp.full(3, 0.4), jnp.array([0.9, 0.7, 0.5]), jnp.array([[1.0, 0.3], [0.3, 0.7]])
    exact = positions(FIELDS["oscillator"], times, values, 0.0, sigma0)
    assert exact.result == hj.RESULTS.nonfinite
    near = positions(FIELDS["oscillator"], times, values, 1e-20, sigma0)
    # Variances V (1 + 1/k) of the innovations, for a prior that is wide against V.
    assert_allclose(near.innovation_covariances[1:].ravel(), [2e-20, 1.5e-20], rtol=1e-9)
    assert_allclose(near.means[-1, 0], 0.7, rtol=1e-12)


def test_a_small_variance_beside_a_large_one_is_measured():
    # Coordinates in units of their own: deviations of 1e5 and 1e-6 that do not act on each other.
    found = positions(
        FIELDS["decay"], jnp.array([0.1, 0.2]), jnp.array([0.9, 0.8]), 0.0, jnp.diag(jnp.array([1e-12, 1e10]))
    )
    assert found.result == hj.RESULTS.nonfinite
    found = positions(FIELDS["decay"], jnp.array([0.1]), jnp.array([0.9]), 0.0, jnp.diag(jnp.array([1e-12, 1e10])))
    assert found.result == hj.RESULTS.successful
    assert_allclose(found.innovation_covariances.ravel(), 1e-12 * np.exp(-0.2), rtol=1e-6)
