"""The salted Kalman filter and the smoother where measurements tell the mode, and the figures of estimates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from systems import ROLLED

import hyjax as hj
from hyjax._testing import (
    Automaton,
    Estimator,
    guards_at,
    GuardsAt,
    JointParams,
    Layout,
    log_probabilities,
    place_noise,
    pyplot,
)

# A mass that flies to a wall and sticks there: then only its temperature matters, a mode of one coordinate.
STICKS = hj.HybridSystem(
    {
        "flies": hj.Mode(lambda t, x, p: jnp.stack([x[1], jnp.zeros(())]), ("x", "v")),
        "sticks": hj.Mode(lambda t, x, p: -x, ("heat",)),
    },
    (hj.Transition("flies", "sticks", lambda t, x, p: 1 - x[0], lambda t, x, p: x[1:] ** 2 / 2),),
)


@pytest.fixture(scope="module")
def sticks():
    """Three masses, with a mean that arrives at t = 1: one measured as in flight and one as arrived, at 0.98, before the mean
    arrives, and at 1.02 and 1.1, after it. The smoother of each."""
    times = jnp.array([0.5, 0.98, 1.02, 1.1])
    sensor = {
        "flies": lambda t, x, p: jnp.stack([x[0], 0 * x[0]]),
        "sticks": lambda t, x, p: jnp.stack([1.0, 1.0]) * x[0],
    }
    arrived = lambda t: np.exp(-t) * np.array([0.5, 0.5])
    rows = [
        [[0.5, 0.0], [0.98, 0.0], arrived(0.02), arrived(0.1)],
        [[0.5, 0.0], [0.98, 0.0], [0.99, 0.0], arrived(0.08)],
        [[0.5, 0.0], arrived(0.0), arrived(0.04), arrived(0.1)],
    ]

    def run(y):
        filtered = hj.noise.kalman_filter(
            STICKS, jnp.array([0.0, 1.0]), 1e-3 * jnp.eye(2), None, mode="flies", times=times, measurements=y,
            observe=sensor, measurement_noise=1e-4 * jnp.eye(2), integrator=ROLLED, smooth=True,
        )  # fmt: skip
        return filtered, hj.noise.rts_smoother(filtered)

    return jax.jit(jax.vmap(run))(jnp.asarray(np.array(rows)))


@pytest.mark.medium
def test_modes_are_told_apart(sticks):
    filtered, _ = sticks
    assert np.all(np.asarray(filtered.result == hj.RESULTS.successful))
    assert np.asarray(filtered.modes).tolist() == [[0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1]]
    assert np.asarray(filtered.mode_tests).tolist() == [[0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0]]
    # What lies beyond the dimension of a mode is zero.
    assert np.all(np.asarray(filtered.means)[:, -1, 1] == 0)
    sigma = np.asarray(filtered.covariances)
    assert np.all(sigma[:, -1, 1] == 0) and np.all(np.linalg.eigvalsh(sigma) > -1e-18)
    # The jump of a mean that has passed the wall, and of one that has not reached it: heat v^2 / 2 at the time of arrival.
    assert_allclose(filtered.means[:, -1, 0], 0.5 * np.exp(-0.1), atol=0.02)


@pytest.mark.medium
def test_the_smoother_goes_back_into_another_mode(sticks):
    """From one coordinate into two: the smoother's last estimate is the filter's, and earlier ones are known better."""
    filtered, smoothed = sticks
    assert np.array_equal(smoothed.modes, filtered.modes)
    assert_allclose(smoothed.means[:, -1], filtered.means[:, -1], rtol=0, atol=0)
    gained = np.asarray(filtered.covariances - smoothed.covariances)
    # Semidefinite up to rounding.
    assert np.min(np.linalg.eigvalsh(gained)) > -1e-15
    # A linear relation by hand: the heat that is measured at the end is v^2 / 2 at the wall, so it tells the velocity.
    first = np.asarray(smoothed.covariances)[:, 0, 1, 1]
    assert np.all(first < 0.5 * np.asarray(filtered.covariances)[:, 0, 1, 1])


@pytest.mark.medium
def test_figures(sticks):
    """Means and bands are those of each mode, interrupted at its end; measurements are crosses."""
    filtered, smoothed = (jax.tree.map(lambda leaf: leaf[0], each) for each in sticks)
    x_measured = np.array([0.5, 0.98, np.nan, np.nan])
    fig = filtered.plot({"x": x_measured})
    of = lambda ax, kind: [line for line in ax.lines if line.get_gid() == kind]
    assert [ax.get_ylabel() for ax in fig.axes] == ["$x$", "$v$", "heat"]
    for ax, rows, i in zip(fig.axes, (slice(0, 2), slice(0, 2), slice(2, 4)), (0, 1, 0), strict=True):
        (mean,), (band,) = of(ax, "mean"), ax.collections
        assert_allclose(mean.get_xdata(), filtered.times[rows])
        assert_allclose(mean.get_ydata(), filtered.means[rows, i])
        half = 2 * np.sqrt(np.asarray(filtered.covariances)[rows, i, i])
        drawn = band.get_paths()[0].vertices[:, 1]
        edges = np.concatenate([mean.get_ydata() - half, mean.get_ydata() + half])
        assert_allclose([np.min(drawn), np.max(drawn)], [np.min(edges), np.max(edges)])
        # The mass arrives before the third measurement.
        (event,) = [patch for patch in ax.patches if patch.get_gid() == "event"]
        assert_allclose([event.get_x(), event.get_x() + event.get_width()], [0.98, 1.02])
    (crosses,) = of(fig.axes[0], "measurement")
    assert_allclose(crosses.get_ydata(), x_measured)
    assert not of(fig.axes[1], "measurement")
    (mean,) = of(smoothed.plot().axes[0], "mean")
    assert_allclose(mean.get_ydata(), smoothed.means[:2, 0])
    with pytest.raises(
        ValueError, match=r"measurements of \['y'\] are of none of the coordinates \['x', 'v', 'heat'\]"
    ):
        filtered.plot({"y": x_measured})
    with pytest.raises(ValueError, match="this is a batch"):
        sticks[0].plot()
    failed = eqx.tree_at(lambda f: f.modes, filtered, jnp.full(4, -1))
    with pytest.raises(ValueError, match="failed before its first estimate"):
        failed.plot()
    pyplot().close("all")


def test_guards_in_their_deviations():
    """The distance 0.3 to the wall by the root of the position's variance and that of the wall, in any unit of the covariance."""
    t, x, sigma = jnp.array(0.0), jnp.array([0.7, 2.0]), jnp.array([[0.16, 0.1], [0.1, 0.5]])
    for level, unit in ((None, 1.0), (0.09, 1.0), (lambda t, x, p: 0.045 * x[1], 0.25)):
        noise = place_noise(hj.noise.Noise(guard=level), STICKS, t, x.dtype, None)
        layout, params = Layout(2, False), JointParams(None, noise, jnp.array(unit))
        estimator = Estimator(Automaton(STICKS), Automaton(STICKS), layout, params)
        found = guards_at(estimator, t, layout.join(x, sigma / unit), jnp.array(0))
        assert_allclose(found.values, [0.3], rtol=1e-14)
        assert_allclose(found.rates, [-2], rtol=1e-14)
        assert_allclose(found.deviations, [0.3 / np.sqrt(0.16 + (0 if level is None else 0.09))], rtol=1e-14)
        assert found.armed.tolist() == [True]
        stuck = guards_at(estimator, t, layout.join(x, sigma / unit), jnp.array(1))
        assert not stuck.passed(t)[0] and not stuck.approached()[0]


def test_which_guard_comes_first():
    """Of guards beyond their surfaces, that which was passed at the earliest time; of those ahead, the nearest in deviations."""

    def guards(values, rates, deviations, armed=(True,) * 3):
        return GuardsAt(*map(jnp.array, (values, deviations, rates, armed, [1e-16] * 3)))

    at = jnp.array(1.0)
    met, which = guards([-0.05, -0.2, 0.3], [-1.0, -0.1, -1.0], [-0.5, -2.0, 3.0]).passed(at)
    assert met and which == 1
    met, which = guards([-0.2, -0.1, 0.3], [-1.0, -0.1, -1.0], [-2.0, -1.0, 3.0], (True, False, True)).passed(at)
    assert met and which == 0
    # What rises does not count, and what is zero within rounding does.
    assert not guards([-0.2, 0.1, 0.3], [1.0, -0.1, -1.0], [-2.0, 1.0, 3.0]).passed(at)[0]
    assert guards([0.0, 0.1, 0.3], [-1.0, -0.1, -1.0], [0.0, 1.0, 3.0]).passed(at)[0]
    ahead, which = guards([0.3, 0.1, -0.2], [-1.0, -1.0, -1.0], [3.0, 5.0, -1.0]).approached()
    assert ahead and which == 0
    assert not guards([0.3, -0.1, -0.2], [1.0, -1.0, -1.0], [3.0, -5.0, -1.0]).approached()[0]


def test_probabilities_of_the_hypotheses():
    """As predicted, without the last event, after the next one: by the normal distribution, of both events independently."""
    last, following = -0.7, 1.2
    for happened in (False, True):
        for ahead in (False, True):
            found = log_probabilities(*map(jnp.array, (happened, last, ahead, following)))
            has, still = norm.cdf(0.7) if happened else 1, norm.cdf(1.2) if ahead else 1
            expected = has * still, norm.cdf(-0.7) if happened else 0, has * norm.cdf(-1.2) if ahead else 0
            assert_allclose(np.exp(found), expected, rtol=1e-12)
