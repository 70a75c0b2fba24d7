"""Sweeps over prescribed quantities: a quadratic stride in closed form; a table of gaits against a paper and SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
import sweep_case as case
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp
from scipy.linalg import solve_discrete_are
from scipy.optimize import fsolve

import hyjax as hj
from hyjax._testing import Store
from hyjax.models import powered_walker as walker

# Of the state, squared; the first has no solution.
SQUARES = np.array([-0.1, 0.01, 0.09, 0.2025, 0.36, 0.64])


def square(orbit, params):
    return orbit.x[0] ** 2


def other(orbit, params):
    return orbit.x[0] ** 2


def multiplier(orbit, params):
    return orbit.return_jacobian[0, 0]


def period(orbit, params):
    return orbit.period


def with_squares(**options):
    """The quadratic stride with the square of its state prescribed, for several a, solved for c."""
    options = {"prescribed": {"square": (square, SQUARES)}, "solve": lambda p: p.c} | options
    values = np.array([2.2, 2.5, 2.9])
    return hj.sweep(
        case.orbit(), where=lambda p: p.a, values=values, record=case.record, progress=False, **options, throw=False
    )


@pytest.fixture(scope="module")
def squares():
    return with_squares()


def test_a_parameter_is_solved_for_through_a_fold(squares):
    assert squares["result"].dims == ("a", "square")
    found = squares.isel(square=slice(1, None))
    a, x = np.meshgrid(found["a"], np.sqrt(found["square"]), indexing="ij")
    assert_array_equal(found["result"], 0)
    # Newton's method ends at a residual of a quarter of the tolerances, which is 5e-14; at x = 0.1 the root amplifies it by 5.
    assert_allclose(found["x"].values[..., 0], x, rtol=0, atol=3e-13)
    assert_allclose(found["c"], x - a * x * (1 - x), rtol=0, atol=5e-13)
    # The multiplier passes 1, where sweeps over c meet a fold: at x = (a - 1) / (2 a), between 0.2 and 0.4.
    by = found["multipliers_real"].values[..., 0]
    assert_allclose(by, a * (1 - 2 * x), rtol=0, atol=2e-12)
    assert np.all(by[:, 0] > 1) and np.all(by[:, -1] < 1)
    assert_allclose(found["twice"].values[..., 0], 2 * x, rtol=0, atol=6e-13)
    assert found["c"].attrs == {"long_name": "parameter solved for"}
    assert found.attrs["parameters"] == {"b": 1.0} and found.attrs["solved"] == ["c"]


def test_points_without_a_solution_have_a_code(squares):
    none = squares.isel(square=0)
    assert_array_equal(none["result"], int(hj.RESULTS.orbit_not_converged._value))
    for name in ("x", "c", "period", "multipliers_real", "slope"):
        assert np.all(np.isnan(none[name].values)), name


def test_a_store_is_resumed_to_the_same_bits(squares, tmp_path):
    out = tmp_path / "table.zarr"
    with_squares(out=out, chunk=4)
    store = Store(out)
    assert len(store.chunks) > 2
    store.discard(1)
    found = with_squares(out=out, chunk=4, resume=True).load()
    for name in squares.data_vars:
        assert_array_equal(found[name], squares[name], err_msg=name)
    with pytest.raises(hj.SolveError, match="its prescribed is"):
        with_squares(out=out, resume=True, prescribed={"square": (other, SQUARES)})
    with pytest.raises(hj.SolveError, match="its solved is"):
        with_squares(out=out, resume=True, solve=lambda p: p.b)
    with pytest.raises(hj.SolveError, match="its grid is"):
        with_squares(out=out, resume=True, prescribed={"square": (square, SQUARES[1:])})


@pytest.mark.medium
def test_a_multiplier_is_prescribed():
    """With the derivatives of the return Jacobian, which are second derivatives of the stride."""
    wanted = np.array([-0.9, -0.5, 0.0, 0.5])
    found = hj.sweep(case.orbit(), prescribed={"first multiplier": (multiplier, wanted)}, solve=lambda p: p.a)
    # The multiplier of x = 1 - 1 / a is 2 - a.
    assert_allclose(found["a"], 2 - wanted, rtol=0, atol=1e-13)
    assert_allclose(found["multipliers_real"].values[:, 0], wanted, rtol=0, atol=1e-13)
    # With wrong derivatives Newton's method would converge linearly.
    assert np.all(found["iterations"] <= 3)


def test_quantities_that_determine_nothing():
    with pytest.raises(ValueError, match="do not determine c"):
        hj.sweep(case.orbit(), prescribed={"duration": (period, [1.0])}, solve=lambda p: p.c)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"solve": None}, "belong together"),
        ({"prescribed": None}, "belong together"),
        ({"solve": lambda p: (p.b, p.c)}, "1 quantities .square. and solve picks 2 parameters .b, c."),
        ({"solve": lambda p: p.a}, "where and solve both pick a"),
        ({"prescribed": {"period": (square, SQUARES)}}, "names of the dataset's variables"),
        ({"prescribed": {"c": (square, SQUARES)}}, "names of the dataset's variables"),
        (
            {"prescribed": {"square": (lambda orbit, params: orbit.x, SQUARES)}},
            "square: .* one number, not of shape .2,.",
        ),
        ({"prescribed": {"square": (lambda orbit, params: jnp.log(-orbit.x[0]), SQUARES)}}, "start orbit"),
        ({"prescribed": {"square": (square, [0.1, 0.1])}}, "occurs twice"),
        ({"where": None}, "where= and values= belong together"),
        ({"where": None, "values": None, "prescribed": None, "solve": None}, "give where= and values=, or prescribed="),
    ],
)
def test_misuse(options, message):
    given = {
        "where": lambda p: p.a,
        "values": [2.5],
        "prescribed": {"square": (square, SQUARES)},
        "solve": lambda p: p.c,
    }
    with pytest.raises(ValueError, match=message):
        hj.sweep(case.orbit(), **given | options)


# The table of gaits of the powered walker.


def step_length(orbit, params):
    return 2 * jnp.sin(orbit.x[0])


def frequency(orbit, params):
    return 1 / orbit.period


def gains(orbit):
    return {"gain": hj.control.stride_feedback(orbit, where=lambda p: (p.push_off, p.stiffness)).gain}


def table_of_gaits():
    """Step lengths and frequencies from the middle of the table of Mehdizadeh and Donelan to its corners; but of the frequencies
    from the second lowest, as the long steps of the lowest take five times as long as all others."""
    params = walker.Params()
    start = hj.periodic_orbit(walker.step, walker.guess(params), params)
    prescribed = {
        "step_length": (step_length, [0.1, 0.5, 0.7, 1.1]),
        "frequency": (frequency, [0.35, 0.5, 0.65, 1.1]),
    }
    return hj.sweep(start, prescribed=prescribed, solve=lambda p: (p.push_off, p.stiffness), record=gains)


def published_gait(table):
    gait = table.sel(step_length=0.5, frequency=0.5)
    digits = [*gait["x"].values[:2], gait["push_off"], gait["stiffness"]]
    # Mehdizadeh, Donelan, PLOS ONE 20(12), e0338501: 8 decimals, of which the last of k is off by one.
    assert_allclose(digits, [0.25268026, -0.33132622, 0.08554806, 1.80309008], rtol=0, atol=1.5e-8)
    found = gait["multipliers_real"].values[0] + 1j * gait["multipliers_imag"].values[0]
    assert_allclose(found, 0.79482002 + 0.27063177j, rtol=0, atol=5e-8)


def closed_forms(table):
    assert_array_equal(table["result"], 0)
    length, rate = np.meshgrid(table["step_length"], table["frequency"], indexing="ij")
    theta, theta_rate, phi, phi_rate = np.moveaxis(table["x"].values, -1, 0)
    # Equations of the strike: to rounding.
    assert_allclose(theta, np.arcsin(length / 2), rtol=1e-14)
    assert_allclose(phi, 2 * theta, rtol=1e-15)
    assert_allclose(phi_rate, (1 - np.cos(2 * theta)) * theta_rate, rtol=1e-14)
    # The stance leg conserves its energy. The integrator's tolerance of 1e-14, which three strides of Newton's method may add up.
    assert_allclose(table["push_off"], -theta_rate * np.tan(theta), rtol=0, atol=3e-14)
    assert_allclose(table["period"] * rate, 1, rtol=1e-12)


def end_of_swing(theta, theta_rate, stiffness, duration):
    """By SciPy, the state at half the duration and at the end."""

    def field(t, x):
        phi_accel = np.sin(x[0]) + (x[1] ** 2 - np.cos(x[0])) * np.sin(x[2]) - stiffness * x[2]
        return [x[1], np.sin(x[0]), x[3], phi_accel]

    start = [theta, theta_rate, 2 * theta, (1 - np.cos(2 * theta)) * theta_rate]
    times = [duration / 2, duration]
    return solve_ivp(field, (0, duration), start, "DOP853", times, rtol=1e-13, atol=1e-15).y.T


def scipy_finds_the_same_gaits(table):
    for length, rate in ((0.1, 0.35), (0.1, 1.1), (1.1, 0.35), (1.1, 1.1), (0.5, 0.5)):
        gait = table.sel(step_length=length, frequency=rate)
        theta = np.arcsin(length / 2)

        def miss(z, theta=theta, rate=rate):
            _, end = end_of_swing(theta, *z, 1 / rate)
            return end[0] + theta, end[2] + 2 * theta

        ours = np.array([gait["x"].values[1], float(gait["stiffness"])])
        z = fsolve(miss, ours * (1 + 1e-5), xtol=1e-13)
        # SciPy's error of 1e-13, and the stiffness is known by a factor of up to about 30 less.
        assert_allclose(ours, z, rtol=0, atol=1e-10)
        # Of the gaits with this length and frequency, the one that runs backward as forward.
        assert abs(end_of_swing(theta, *ours, 1 / rate)[0, 2]) < 1e-10


def gains_are_those_of_scipy(table):
    gait = table.sel(step_length=0.5, frequency=0.5)
    x, controls = gait["x"].values, np.array([float(gait["push_off"]), float(gait["stiffness"])])

    def strike(t, x, stiffness):
        return 2 * x[0] - x[2] if t > 1 else 1.0

    strike.terminal, strike.direction = True, -1

    def stride(z):
        x, (push_off, stiffness) = z[:4], z[4:]
        field = lambda t, x, k: [
            x[1], np.sin(x[0]), x[3], np.sin(x[0]) + (x[1] ** 2 - np.cos(x[0])) * np.sin(x[2]) - k * x[2]
        ]  # fmt: skip
        flown = solve_ivp(field, (0, 4), x, "DOP853", events=strike, args=(stiffness,), rtol=1e-13, atol=1e-15)
        theta, rate = flown.y_events[0][0][:2]
        after = np.cos(2 * theta) * rate + push_off * np.sin(2 * theta)
        return np.array([-theta, after, -2 * theta, (1 - np.cos(2 * theta)) * after])

    z, h = np.append(x, controls), 3e-5
    slopes = [(stride(z + h * e) - stride(z - h * e)) / (2 * h) for e in np.eye(6)]
    a, b = np.stack(slopes[:4], axis=1), np.stack(slopes[4:], axis=1)
    p = solve_discrete_are(a, b, np.eye(4), np.eye(2))
    gain = np.linalg.solve(np.eye(2) + b.T @ p @ b, b.T @ p @ a)
    # Differences of second order: h^2 = 1e-9, times the third derivatives of the stride, about 100.
    assert_allclose(gait["gain"], gain, rtol=0, atol=1e-6)
    # The regulator stabilizes every gait of the table.
    assert np.all(np.isfinite(table["gain"])) and not np.all(table["stable"])


@pytest.mark.medium
def test_table_of_gaits():
    """One test for all, because each process compiles the program of the table."""
    table = table_of_gaits()
    for check in (published_gait, closed_forms, scipy_finds_the_same_gaits, gains_are_those_of_scipy):
        check(table)
