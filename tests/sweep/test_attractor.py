"""Attractors and basins of a quadratic map, in closed form; outcomes of a system that falls."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
import sweep_case as case
from numpy.testing import assert_allclose, assert_array_equal
from systems import ROLLED
from test_continuation import mapping

import hyjax as hj
from hyjax._testing import _period

matplotlib.use("Agg")

START = jnp.array([0.4, 0.0])
PARAMS = case.Params(2.8)
over_a = {"where": lambda p: p.a}
# Periods 1, 2, 4 and 3 of the logistic map, chaos, and one beyond the last at which states stay in [0, 1].
A = np.array([2.8, 3.2, 3.5, 3.83, 4.0, 4.1])


@pytest.fixture(scope="module")
def found():
    return hj.attractor(case.step, START, PARAMS, values=A, n_strides=4000, keep=32, **over_a)


def test_periods(found):
    assert_array_equal(found["period"], [1, 2, 4, 3, 0, 0])
    # Period 1 is x = 1 - 1/a; period 2 its two points x = (a + 1 -+ sqrt((a - 3)(a + 1))) / 2a, to rounding.
    assert_allclose(found["x"].values[0, :, 0], 1 - 1 / 2.8, rtol=1e-13)
    half, off = 4.2 / 6.4, np.sqrt(0.2 * 4.2) / 6.4
    assert_allclose(np.sort(found["x"].values[1, -2:, 0]), [half - off, half + off], rtol=1e-13)


def test_states_that_drift_do_not_repeat():
    """Two states in turn, beside a coordinate that grows in each stride: by less, and by more, than a hundred-thousandth of a
    hundredth of its first size."""
    k = np.arange(32)
    x = np.stack([np.stack([2.0 + (-1) ** k, drift * k], axis=-1) for drift in (0.0, 1e-8, 1e-6)])
    assert_array_equal(_period(x, 8, np.ones((3, 2))), [2, 2, 0])


def test_states_that_decay_to_the_origin_repeat():
    """By a half in each stride, from 1: to a millionth, which is a motion of its own, and to a millionth of a millionth."""
    k = np.arange(32)
    x = np.stack([begun * 0.5 ** k[:, None] for begun in (1e-6, 1e-12)])
    assert_array_equal(_period(x, 8, np.ones((2, 1))), [0, 1])
    # After 500 strides, beside a coordinate at rest.
    slow = np.stack([np.stack([1 + 0.0 * k, rate ** (500 + k)], axis=-1) for rate in (0.9, 0.97, 0.98)])
    assert_array_equal(_period(slow, 8, np.ones((3, 2))), [1, 1, 0])


def test_last_states_come_in_order(found):
    x, a = found["x"].values[:5, :, 0], A[:5, None]
    assert_allclose(x[:, 1:], a * x[:, :-1] * (1 - x[:, :-1]), rtol=0, atol=1e-13)


def test_lyapunov_exponents(found):
    exponent = found["lyapunov"].values
    # ln|2 - a| at period 1 and ln|4 + 2a - a^2| / 2 at period 2: exact but for the start's transients, which are over.
    assert_allclose(exponent[:2], [np.log(0.8), np.log(0.16) / 2], rtol=1e-10)
    assert np.all(exponent[:4] < 0)
    # ln 2 at a = 4. A mean over 2000 strides of what varies by 1 or so, with correlations that cancel most of it.
    assert_allclose(exponent[4], np.log(2), rtol=0, atol=0.02)
    assert_allclose(found["stride_time"].values[:5], 1, rtol=1e-13)


def test_a_stride_that_leaves_nothing(found):
    """The exponent of a stride onto one state is minus infinity, a mark at the edge of the picture."""
    gone = found.copy(deep=True)
    gone["lyapunov"][2:4] = -np.inf
    below = hj.plot.attractor_figure(gone).axes[1]
    (marks,) = [line for line in below.lines if line.get_gid() == "minus infinity"]
    assert_array_equal(marks.get_xdata(), A[2:4])
    assert np.all(np.isnan(below.lines[-3].get_ydata()[2:4])) and np.all(np.isfinite(below.get_ylim()))


def test_what_escapes_carries_a_code(found):
    codes = found["result"].values
    assert np.all(codes[:5] == 0) and codes[5] != 0
    assert 0 < found["strides"].values[5] < 4000
    assert np.isnan(found["lyapunov"].values[5]) and np.all(np.isnan(found["x"].values[5]))


@pytest.mark.medium
def test_starts():
    options = {"values": A[:2], "n_strides": 60, "discard": 28, "keep": 32}
    # The program of the other tests.
    both = jnp.stack([START, jnp.array([1.5, 0.0])])
    # From 1.5 it falls to minus infinity; from within [0, 1] not.
    found = hj.attractor(case.step, both, PARAMS, **options, **over_a)
    assert found["x"].dims == ("a", "start", "stride", "coordinate")
    assert_array_equal(found["result"].values == 0, [[True, False], [True, False]])
    by_function = hj.attractor(
        case.step, lambda p: jnp.stack([1 - 1 / p.a, jnp.zeros(())]), PARAMS, **options, **over_a
    )
    # On the unstable fixed point itself it stays; rounding has not grown by 1.2^60.
    assert_array_equal(by_function["period"], [1, 1])
    assert_allclose(by_function["lyapunov"], np.log(np.abs(2 - A[:2])), rtol=1e-9)


@pytest.mark.medium
def test_from_an_orbit():
    """It is followed over the grid, and left by a little: where it is stable the attractor is the orbit, whose exponent is the
    logarithm of its multiplier; beyond a = 3 it is what the orbit is left for."""
    values = np.array([2.2, 2.5, 2.8, 3.2])
    found = hj.attractor(
        case.step, case.orbit(), case.orbit().params, values=values, n_strides=400, discard=200, keep=32, **over_a
    )
    assert_array_equal(found["result"], 0)
    assert_array_equal(found["period"], [1, 1, 1, 2])
    assert found["x"].dims == ("a", "stride", "coordinate")
    assert_allclose(found["x"].values[:3, -1, 0], 1 - 1 / values[:3], rtol=1e-13)
    followed = hj.sweep(case.orbit(), where=lambda p: p.a, values=values, progress=False)
    multiplier = followed["multipliers_real"].values[:3, 0]
    assert_allclose(multiplier, 2 - values[:3], rtol=1e-12)
    # After 200 strides nothing is left of the distance, 1e-4, but at a = 2.8: 0.8^200 = 4e-20. Means of equal numbers.
    assert_allclose(found["lyapunov"].values[:3], np.log(np.abs(multiplier)), rtol=1e-12)
    # On the orbit of two: ln|4 + 2a - a^2| / 2.
    assert_allclose(found["lyapunov"].values[3], np.log(0.16) / 2, rtol=1e-10)


def test_misuse():
    for options, message in (
        ({"discard": 10}, "discard=10"),
        ({"discard": 2.5}, "discard=2.5"),
        ({"keep": 0}, "keep=0"),
        ({"max_period": 2.5}, "max_period=2.5"),
        ({"closeness": "1"}, "closeness='1'"),
        ({"x0": jnp.zeros((2, 2, 2))}, "shape"),
    ):
        start = options.pop("x0", START)
        with pytest.raises(ValueError, match=message):
            hj.attractor(case.step, start, PARAMS, values=A, n_strides=10, **options, **over_a)


@pytest.fixture(scope="module")
def plane():
    params = case.Params(2.5)
    axes = {"x": np.linspace(-0.5, 1.5, 41), "height": np.array([0.0, 1.0])}
    return hj.basin(
        hj.ReturnMap(case.system, sequence=case.sequence, integrator=case.integrator),
        params,
        axes=axes,
        initial=lambda p, x, height: jnp.stack([x, jnp.zeros(())]),
        orbits=case.orbit(),
        outcomes={"fell": lambda t, x, p: 5 + x[0] * x[1]},
        max_strides=200,
    )


@pytest.mark.medium
def test_basin(plane):
    x = np.linspace(-0.5, 1.5, 41)
    meanings = plane["outcome"].attrs["flag_meanings"].split()
    assert meanings == ["orbit_1", "fell", "no_step", "undecided"]
    assert plane["x"].attrs["long_name"] == "x" and all(each.attrs["long_name"] for each in plane.variables.values())
    inside, edge = (x > 1e-9) & (x < 1 - 1e-9), (np.abs(x) < 1e-9) | (np.abs(x - 1) < 1e-9)
    outcome = plane["outcome"].values[:, 0]
    assert np.all(outcome[inside] == 0) and np.all(outcome[~inside & ~edge] == 1)
    # 0 is a fixed point, unstable, and 1 maps onto it, up to rounding: they go either way, or nowhere.
    assert np.all(np.isin(outcome[edge], [0, 1, 3]))
    assert_array_equal(plane["outcome"].values[:, 0], plane["outcome"].values[:, 1])


@pytest.mark.medium
def test_basin_counts_strides(plane):
    x = np.linspace(-0.5, 1.5, 41)
    expected = []
    for each in x:
        n = 0
        # Until it is near 0.6 (within 1e-2 of its size), or an arc starts below -5.
        while n < 200 and abs(each - 0.6) > 0.006 and each >= -5:
            each, n = 2.5 * each * (1 - each), n + 1
        expected.append(n + (each < -5))
    decided = plane["outcome"].values[:, 0] < 2
    clear = decided & (np.abs(x) > 1e-9) & (np.abs(x - 1) > 1e-9)
    assert_array_equal(plane["strides"].values[clear, 0], np.array(expected)[clear])


def test_basin_misuse():
    with pytest.raises(ValueError, match="are not the coordinates"):
        hj.basin(case.step, PARAMS, axes={"x": np.zeros(1)})
    with pytest.raises(ValueError, match="strides=0"):
        hj.basin(case.step, PARAMS, axes={"x": np.zeros(1), "clock": np.zeros(1)}, max_strides=0)


@pytest.mark.slow
@pytest.mark.parametrize("small", [1.0, 1e-6])
def test_coordinates_of_different_sizes(small):
    """Two wells at -e and e, with a barrier at 0 between them, beside a coordinate that comes to 1; and the
    logistic map in units of e: what a small coordinate does is not hidden by a large one."""
    wells = lambda x, p: jnp.stack([x[0] * (3 - (x[0] / p["e"]) ** 2) / 2, (1 + x[1]) / 2])
    step, params = hj.ReturnMap(mapping(wells, 2), sequence=("run",), integrator=ROLLED), {"e": jnp.array(small)}
    at = {"where": lambda p: p["e"], "values": [small]}
    start = lambda p, x: jnp.stack([x, 1 + 0 * x, 0 * x])
    places = small * (np.linspace(-1.5, 1.5, 41) + 1e-3)
    share = [20 / 41, 21 / 41]
    found = hj.attractor(step, jax.vmap(lambda x: start(params, x))(places), params, n_strides=200, keep=4, **at)
    assert_allclose(found["share"][0, 1:], share)
    shares = hj.basin(step, params, axes={"x": places}, initial=start, max_strides=200)
    assert_allclose(shares["share"][:2], share)
    logistic = lambda x, p: jnp.stack([p["a"] * x[0] * (1 - x[0] / small), (1 + x[1]) / 2])
    step = hj.ReturnMap(mapping(logistic, 2), sequence=("run",), integrator=ROLLED)
    found = hj.attractor(
        step, jnp.array([small / 3, 1, 0]), {"a": jnp.array(2.8)}, values=A[:4], where=lambda p: p["a"]
    )
    assert_array_equal(found["period"], [1, 2, 4, 3])
