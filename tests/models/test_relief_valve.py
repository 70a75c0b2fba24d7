"""The pressure relief valve: orbits to the last digits, the saltation matrix, and the valve that chatters, closes and reopens.

`valve_reference.json`: Taylor series with 50 digits, by `make_valve_reference.py`.
"""

import json
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from numpy.testing import assert_allclose
from reference import numbers

import hyjax as hj
from hyjax.models import relief_valve as valve

REFERENCE = json.loads((pathlib.Path(__file__).parents[1] / "valve_reference.json").read_text())
LIFTED = jnp.array([0.2, 0.0, 1.0])


@eqx.filter_jit
def closing(params, t1):
    """From the lift 0.2 over a pressure of 1, with a flow at which the bounces end before the valve opens."""
    return hj.simulate(valve.system, LIFTED, params, mode="open", t1=t1, max_jumps=60)


@eqx.filter_jit
def to_top(params, x):
    return hj.ReturnMap(valve.system, section=valve.top, max_jumps=4)(x, params)


def closes_at(trajectory):
    (k,) = np.flatnonzero(np.asarray(trajectory.transitions) == 1)
    return int(k)


def test_saltation_matrix_of_the_seat():
    """D_xR + (f+ - D_xR f-) D_xg / (D_xg f-) with the accelerations at the seat written out."""
    v, pressure, e = -3.1, 13.0, 0.8
    params = valve.Params(restitution=e)
    got = hj.saltation_matrix(valve.system, 0, 0.0, jnp.array([0.0, v, pressure]), params)
    # The damping's part of the acceleration changes its sign with the speed and has no effect.
    expected = np.array([[-e, 0, 0], [(1 + e) * (pressure - 10) / v, -e, 0], [0, 0, 1]])
    assert_allclose(got, expected, rtol=1e-14, atol=1e-15)


def test_equilibrium_and_its_hopf_bifurcation():
    params = valve.Params(flow=5.0)
    x = valve.equilibrium(params)
    # Rounding of forces of about 10, and of a pressure's rate with the factor 20.
    assert_allclose(valve.open_valve(0.0, x, params), 0, atol=1e-13)
    largest = lambda q: np.linalg.eigvals(
        jax.jacfwd(lambda x: valve.open_valve(0.0, x, q))(valve.equilibrium(q))
    ).real.max()
    below, above = (largest(valve.Params(flow=q)) for q in (8.491, 8.492))
    assert below > 0 > above


def test_the_empty_vessel_spoils_no_tangent():
    slope = jax.jacfwd(lambda x: valve.open_valve(0.0, x, valve.Params()))(jnp.array([0.2, 0.0, 0.0]))
    assert np.all(np.isfinite(slope)) and abs(slope[2, 0]) < 1e-150


@pytest.mark.medium
def test_valve_closes_and_opens_again():
    exact = numbers(REFERENCE["chattering"])
    trajectory = closing(valve.Params(flow=0.2), 4.0)
    k = closes_at(trajectory)
    assert trajectory.result == hj.RESULTS.successful
    assert_allclose(trajectory.end_times[0], exact["first"][0], rtol=1e-13)
    assert_allclose(trajectory.x_ends[0, 1:], [-exact["first"][1], exact["first"][2]], rtol=1e-13)
    # Not before the speed is below `settle`, which an impact with a restitution of 0.8 does not miss by much.
    assert np.all(np.asarray(trajectory.x_ends[:k, 1]) < -1e-4) and -1e-4 <= trajectory.x_ends[k, 1] < -0.8e-4
    # Closed: the pressure rises at the rate beta q = 4 until it is 10. Rounding of times and pressures of 2 to 10.
    t, pressure = trajectory.start_times[k + 1], trajectory.x_starts[k + 1, 0]
    assert_allclose(trajectory.end_times[k + 1], t + (10 - pressure) / 4, rtol=1e-14)
    # The bounces that are left out: some 20 times the third power of the speed, over the rate of 4.
    assert_allclose(trajectory.end_times[k + 1], exact["opens"], rtol=0, atol=1e-11)
    assert t < exact["ends"] < t + 1e-3 and pressure < exact["pressure"] < pressure + 1e-3
    # Open, from rest at the seat: the lift is beta q t^3 / 6 at first.
    opened, dt = trajectory.end_times[k + 1], 1e-3
    assert_allclose(closing(valve.Params(flow=0.2), opened + dt).x[0], 4 * dt**3 / 6, rtol=2e-3)


@pytest.mark.medium
def test_speed_at_which_the_valve_closes_hardly_matters():
    exact = numbers(REFERENCE["chattering"])["opens"]
    times = []
    for settle in (1e-2, 1e-3):
        trajectory = closing(valve.Params(flow=0.2, settle=settle), 4.0)
        times.append(float(trajectory.end_times[closes_at(trajectory) + 1]))
    # The error is of the third order: where the speed is smaller by 10, it is smaller by at least 200.
    errors = np.abs(np.array(times) - exact)
    assert 1e-9 < errors[0] < 1e-4 and errors[1] < errors[0] / 200


@pytest.mark.medium
def test_time_of_reopening_in_the_flow():
    """Through 36 impacts, the closing and the closed phase, against central differences of the reference."""
    params = valve.Params(flow=0.2)
    k = closes_at(closing(params, 4.0)) + 1
    opens = lambda q: closing(eqx.tree_at(lambda p: p.flow, params, q), 4.0).end_times[k]
    _, slope = jax.jvp(opens, (params.flow,), (jnp.ones(()),))
    # What is left out, of the third order in a speed of 1e-4, varies with the flow in the second.
    assert_allclose(slope, numbers(REFERENCE["chattering"])["slope"], rtol=1e-6)


@pytest.mark.medium
def test_bounces_do_not_end_where_the_pressure_lifts_the_disc_first():
    seat = lambda v, pressure: jnp.array([0.0, v, pressure])
    params = valve.Params(flow=1.0, settle=0.1)
    ends = lambda v, pressure: bool(valve.bounces_end(0.0, seat(v, pressure), params))
    # 2 e v beta q = 32 v against (1 - e)(delta - p)^2 = 0.2 at p = 9.
    assert ends(-0.006, 9.0) and not ends(-0.0063, 9.0)
    assert not ends(-0.11, 0.0) and ends(-0.1, 0.0) and not ends(-1e-9, 10.0) and not ends(-1e-9, 11.0)


@pytest.mark.medium
def test_returns_agree_with_scipy():
    """In the benchmark's formulation, from the empty vessel: 12 tops with the impacts between them."""
    # SciPy would take a start at rest for a top.
    q, x, tops = 3.0, np.array([0.2, -1e-300, 0.0]), []

    def flow(t, y):
        return y[1], -1.25 * y[1] - (y[0] + 10) + y[2], 20 * (q - y[0] * np.sqrt(max(y[2], 0)))

    top, seat = (lambda t, y: y[1]), (lambda t, y: y[0])
    for event in (top, seat):
        event.terminal, event.direction = True, -1
    while len(tops) < 12:
        run = scipy.integrate.solve_ivp(flow, (0, 50), x, "DOP853", events=(top, seat), rtol=2.3e-14, atol=1e-14)
        x = run.y[:, -1]
        if run.t_events[1].size:
            x = np.array([0, -0.8 * x[1], x[2]])
        else:
            tops.append(x.copy())
            x[1] = -1e-300
    x = valve.start(valve.Params())[1]
    for exact in tops:
        x = to_top(valve.Params(flow=q), x).x
        # SciPy finds events in its interpolant: errors of some 1e-10, which the stable orbit does not amplify.
        assert_allclose(x, exact, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("q", REFERENCE["impacts"])
def test_orbit_with_one_impact(q):
    exact = numbers(REFERENCE["impacts"][q])
    params = valve.Params(flow=float(q))
    orbit = hj.periodic_orbit(valve.step, valve.guess(params), params)
    # Pressures up to 25 and one arc at 1e-14, in which variations grow by less than 10.
    assert_allclose(orbit.x, [0, *exact["x"]], rtol=0, atol=1e-12)
    assert_allclose(orbit.period, exact["period"], rtol=1e-13)
    expected = sorted((complex(*m) for m in exact["multipliers"]), key=abs, reverse=True)
    assert_allclose(orbit.multipliers, [*expected, 0], rtol=0, atol=1e-12)


@pytest.mark.medium
def test_limit_cycle_above_the_seat():
    """Without any impact: a fixed point of the map of the section at the top."""
    exact = numbers(REFERENCE["tops"]["8"])
    x, params = jnp.array([exact["x"][0], 0, exact["x"][1]]), valve.Params(flow=8.0)
    crossing = to_top(params, x)
    assert crossing.jumps == 0
    # An error of the step, 1e-14, over 1 - multiplier, which is 0.07.
    assert_allclose(crossing.x, x, rtol=0, atol=2e-12)
    assert_allclose(crossing.time, exact["period"], rtol=1e-12)
    jacobian = hj.ReturnMap(valve.system, section=valve.top, max_jumps=4).jacobian(x, params)
    multipliers = np.linalg.eigvals(jacobian)
    assert_allclose(np.max(np.abs(multipliers)), abs(complex(*exact["multipliers"][0])), rtol=1e-11)
    assert np.min(np.abs(multipliers - complex(*exact["multipliers"][0]))) < 1e-11
