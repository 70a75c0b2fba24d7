"""The salted Kalman filter and the smoother where measurements tell the mode, and the figures of estimates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.plot.figure import pyplot

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
        filtered = hj.kalman_filter(
            STICKS, jnp.array([0.0, 1.0]), 1e-3 * jnp.eye(2), None, mode="flies", times=times, measurements=y,
            observe=sensor, measurement_noise=1e-4 * jnp.eye(2), integrator=ROLLED, smooth=True,
        )  # fmt: skip
        return filtered, hj.rts_smoother(filtered)

    return jax.jit(jax.vmap(run))(jnp.asarray(np.array(rows)))


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


def test_the_smoother_goes_back_into_another_mode(sticks):
    """From one coordinate into two: the smoother's last estimate is the filter's, and earlier ones are known better."""
    filtered, smoothed = sticks
    assert np.array_equal(smoothed.estimates.modes, filtered.modes)
    assert_allclose(smoothed.estimates.means[:, -1], filtered.means[:, -1], rtol=0, atol=0)
    gained = np.asarray(filtered.covariances - smoothed.estimates.covariances)
    # Semidefinite up to rounding.
    assert np.min(np.linalg.eigvalsh(gained)) > -1e-15
    # A linear relation by hand: the heat that is measured at the end is v^2 / 2 at the wall, so it tells the velocity.
    first = np.asarray(smoothed.estimates.covariances)[:, 0, 1, 1]
    assert np.all(first < 0.5 * np.asarray(filtered.covariances)[:, 0, 1, 1])


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
    assert_allclose(mean.get_ydata(), smoothed.estimates.means[:2, 0])
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
