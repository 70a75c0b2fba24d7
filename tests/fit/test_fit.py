"""Fits against closed-form estimators, 20-digit least squares, and themselves by other routes."""

import dataclasses
import json
import os
import pathlib
import threading
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import misfit_words, read_columns
from hyjax.models import bouncing_ball as ball, rimless_wheel as wheel, simplest_walker as walker

# Estimates, covariances and data: least squares in 50 digits, the walker's in 30 by Taylor series.
CASES = json.loads((pathlib.Path(__file__).parents[1] / "fits_reference.json").read_text())
NUMBERS = lambda case, name: np.array(case[name], float)
DROPPED = jnp.array([1.0, 0.0])
GUESS = ball.Params(jnp.array(0.75), jnp.array(9.0))
BOTH = lambda p: (p.gravity, p.restitution)
HEIGHTS = {"time": [0.1, 0.2, 0.3], "h": [1.0, 1.0, 1.0]}


def impacts(count, g=9.81, e=0.8):
    """The times of impact of a ball dropped from 1 m."""
    return np.sqrt(2 / g) * (1 + 2 * np.cumsum(np.append(0, e ** np.arange(1, count))))


def fit_ball(data, **options):
    return hj.fit(ball.system, data, GUESS, **({"over": BOTH, "x0": DROPPED, "mode": "flight"} | options))


def dropped_from(s, params):
    return jnp.array([s[0], 0.0])


def same(found, case, rtol=1e-11):
    """Estimate and covariance, to the errors of the flow at the default tolerance."""
    assert found.result == "successful"
    assert_allclose(found.values, NUMBERS(case, "estimate")[: len(found.values)], rtol=rtol)
    # The covariance has the accuracy of first derivatives, squared by the condition of the problem.
    assert_allclose(found.covariance, NUMBERS(case, "covariance")[: len(found.values), : len(found.values)], rtol=1e-8)


@pytest.fixture(scope="module")
def times():
    return CASES["bouncing_ball_times_g9.81_e0.8"]


@pytest.fixture(scope="module")
def of_times(times):
    return fit_ball(jnp.asarray(NUMBERS(times, "times")), noise=0.002)


def of_ball(case):
    return case | {
        "estimate": [case["estimate_g"], case["estimate_e"]],
        "covariance": case["covariance_g_e"],
    }


@pytest.mark.medium
def test_times_of_impact(times, of_times):
    same(of_times, of_ball(times), rtol=1e-12)
    assert_allclose(of_times.chi_square * 0.002**2, float(times["rss"]), rtol=1e-10)
    assert of_times.degrees == 10 and of_times.names == ("gravity", "restitution")
    # Newton's method doubles the digits; the step after the last is not evaluated.
    assert of_times.iterations <= 6
    assert_allclose(of_times.correlation[0, 1], float(times["correlation"]), rtol=1e-9)
    assert_allclose(of_times.predicted[0][:, 0], impacts(12, *np.asarray(of_times.values)), rtol=1e-12)


@pytest.mark.medium
def test_deviation_from_the_residuals(times, of_times):
    found = fit_ball(jnp.asarray(NUMBERS(times, "times")))
    assert_allclose(found.values, of_times.values, rtol=1e-12)
    assert_allclose(found.deviation, float(times["sigma_hat"]), rtol=1e-9)
    assert_allclose(found.covariance, (found.deviation / 0.002) ** 2 * of_times.covariance, rtol=1e-9)
    # Student's t with ten degrees of freedom, 97.5 %: 2.228.
    half = (found.interval()[:, 1] - found.interval()[:, 0]) / 2
    assert_allclose(half / found.standard_errors, 2.228139, rtol=1e-6)


@pytest.mark.medium
def test_residuals_that_are_no_noise(times, of_times):
    """Times that alternate about those of a ball, as an orbit of twice the period does that is fitted as one of the period."""
    apart = lambda count, e, size: impacts(count, e=e) + size * (-1.0) ** np.arange(count)
    count = len(NUMBERS(times, "times"))
    # Six deviations, of which chi-square is 36 times too large; more than eight would be taken for a false event.
    with pytest.warns(
        UserWarning, match="fit: chi-square .* too large for noise, of which it is 10 with a deviation of 4.47"
    ):
        found = fit_ball(jnp.asarray(apart(count, 0.9, 0.012)), noise=0.002)
    assert found.result == "successful" and "noise= is too small" in str(found)
    assert "too large" not in str(of_times)
    # Of 36 residuals a correlation of noise has the deviation 0.17, and two parameters a mean of at most 0.06.
    with pytest.warns(UserWarning, match="fit: successive residuals of time alternate, with a correlation of -0.9"):
        fit_ball(jnp.asarray(apart(36, 0.9, 0.001)))


def test_residuals_of_many_parameters_are_no_noise_of_their_own():
    """Of 60 numbers with independent noise 30 Fourier coefficients take the slow half: what is left alternates, and the model is
    right. With six coefficients a drift is seen."""
    draw, angles = np.random.default_rng(0), 2 * np.pi * np.arange(60) / 60

    def words(count, drift):
        waves = [wave(k * angles) for k in range(count // 2 + 1) for wave in (np.cos, np.sin)]
        columns = np.linalg.qr(np.stack(waves, 1)[:, [0, *range(2, count + 1)]])[0]
        values = draw.normal(size=60) + drift * np.cos(8 * angles)
        left = (values - columns @ (columns.T @ values))[:, None]
        fit = SimpleNamespace(
            degrees=60 - count, estimated=True, quantities=("y",), residuals=[left], deviation=1.0,
            records=[SimpleNamespace(values=values[:, None])],
        )  # fmt: skip
        return misfit_words(fit)

    assert not any(words(30, 0.0) for _ in range(50))
    (drifts,) = words(6, 20.0)
    assert "go together" in drifts
    zeros = SimpleNamespace(values=np.zeros((60, 1)))
    assert not misfit_words(
        SimpleNamespace(
            degrees=58, estimated=True, quantities=("y",), residuals=[zeros.values], deviation=0.0, records=[zeros]
        )
    )


@pytest.mark.medium
def test_functions_are_traced_once():
    """A second fit of the same shapes calls no function of the user: it runs the program of the first."""
    calls, rises = [], NUMBERS(CASES["bouncing_ball_times_g9.81_e0.8"], "times")[:3]

    def rise(t, x, params):
        calls.append(t)
        return x[1] ** 2 / (2 * params.gravity)

    for shift in (0.0, 1e-4):
        count = len(calls)
        data = {"time": jnp.asarray(rises + shift), "event": "*", "rise": jnp.array([0.64, 0.41, 0.26]) - shift}
        found = fit_ball(data, observe={"rise": rise}, noise={"time": 0.01, "rise": 0.01})
        assert found.result == "successful"
    assert 0 < count == len(calls)


@pytest.mark.medium
def test_free_states_at_every_impact(times, of_times):
    found = fit_ball(jnp.asarray(NUMBERS(times, "times")), noise=0.002, shooting=hj.MultipleShooting())
    same(found, of_ball(times), rtol=1e-11)


@pytest.mark.medium
def test_heights_between_unrecorded_impacts():
    case = CASES["bouncing_ball_heights_g9.81_e0.8"]
    table = {"time": NUMBERS(case, "t"), "y": NUMBERS(case, "h")}
    same(fit_ball(table, noise=0.005), of_ball(case))


class Cell(eqx.Module):
    """x' = a c - x / tau, with the threshold 1 and the reset to 0."""

    drive: jax.Array
    tau: jax.Array
    current: jax.Array


CELL = hj.HybridSystem(
    {"cell": hj.Mode(lambda t, x, p: p.drive * p.current - x / p.tau, ("v",))},
    (hj.Transition("cell", "cell", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x),),
)


@pytest.mark.medium
def test_records_that_share_parameters():
    """Three trials of a spiking cell, each with a known current."""
    case = CASES["lif_spikes_a1.3_tau1.0"]
    trials = [Cell(jnp.array(1.2), jnp.array(1.1), jnp.array(float(c))) for c in case["c"]]
    spikes = [jnp.asarray(np.array(each, float)) for each in case["spikes"]]
    options = dict(over=lambda p: (p.drive, p.tau), x0=jnp.zeros(1), mode="cell", noise=0.01)
    found = hj.fit(CELL, spikes, trials, **options)
    same(found, case | {"covariance": case["covariance_a_tau"]})
    assert [float(p.current) for p in found.params] == [1, 1.5, 2]
    assert_allclose(found.chi_square * 0.01**2, float(case["rss"]), rtol=1e-9)


def after_strike(s, p):
    """The state just after a strike, from angle and rate of the stance leg."""
    theta, rate = s
    return jnp.stack([theta, rate, 2 * theta, (1 - jnp.cos(2 * theta)) * rate])


@pytest.mark.medium
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shooting", [hj.SingleShooting(), hj.MultipleShooting()], ids=["single", "multiple"])
def test_strides_of_a_walker(known, shooting):
    case = CASES[f"walker_slope_{'' if known else 'and_start_'}0.009"]
    rows = NUMBERS(case, "data").reshape(-1, 2)
    assert walker.coordinates == ("theta", "theta_rate", "phi", "phi_rate")
    start = jnp.asarray(NUMBERS(case, "start"))
    params = dataclasses.replace(walker.Params(), slope=jnp.array(0.0088))
    x0 = after_strike(start, params) if known else (after_strike, start)
    table = {"time": rows[:, 1], "theta": rows[:, 0]}
    found = hj.fit(walker.step, table, params, over=lambda p: p.slope, x0=x0, noise=0.002, shooting=shooting)
    # Twenty strides of a gait that is hardly stable: the error of the flow grows by a factor of a hundred.
    same(found, case, rtol=1e-9)
    if not known:
        assert_allclose(found.start_values[0], NUMBERS(case, "estimate")[1:], rtol=1e-9)
        assert_allclose(found.start_covariance, NUMBERS(case, "covariance")[1:, 1:], rtol=1e-7)
        return
    # From slopes at which the first stride from the start still is one, the last of which is far off the gait.
    for slope in (0.013,) if isinstance(shooting, hj.MultipleShooting) else (0.001, 0.013):
        far = dataclasses.replace(params, slope=jnp.array(slope))
        again = hj.fit(walker.step, table, far, over=lambda p: p.slope, x0=x0, noise=0.002, shooting=shooting)
        assert_allclose(again.values, found.values, rtol=1e-8)


@pytest.mark.medium
def test_many_data_sets_at_once():
    """A thousand sets of impact times in one batch: their spread is the covariance that each predicts."""
    sets = impacts(8) + 0.002 * np.random.default_rng(1).standard_normal((1000, 8))

    @jax.jit
    def all_of(sets):
        def one(times):
            found = fit_ball(times, noise=0.002, throw=False)
            return found.values, found.covariance, found.result._value

        return jax.vmap(one)(sets)

    values, covariances, codes = all_of(jnp.asarray(sets))
    assert np.all(codes == 0)
    # Four standard deviations of an estimated variance of a thousand: 4 sqrt(2 / 1000) = 0.18 of it, 9 % of the deviation; 2.2 %
    # are one of it.
    spread = np.std(values, axis=0)
    assert_allclose(spread, np.sqrt(np.mean(np.diagonal(covariances, axis1=1, axis2=2), axis=0)), rtol=0.05)
    usual = covariances[:, 0, 1] / np.sqrt(covariances[:, 0, 0] * covariances[:, 1, 1])
    assert_allclose(np.corrcoef(values.T)[0, 1], np.mean(usual), atol=0.02)


def recorded_flight(end=2.5):
    """Heights, speeds and impacts of a ball, without noise."""
    times = np.linspace(0.05, end, 50)
    run = hj.simulate(ball.system, DROPPED, ball.Params(), mode="flight", t1=end + 0.1, times=jnp.asarray(times))
    rows = [(t, *np.asarray(x), "") for t, x in zip(times, run.samples.x, strict=True)]
    rows += [(event.t, np.nan, np.nan, "flight->flight") for event in run.events if event.t < end]
    rows.sort(key=lambda row: row[0])
    time, y, rate, event = zip(*rows, strict=True)
    return {"time": np.array(time), "y": np.array(y), "y_rate": np.array(rate), "event": list(event)}


@pytest.mark.medium
def test_samples_between_events():
    """No sample of height or speed leaves its arc on the way from a distant guess, and the fit is exact."""
    noise = {"time": 1e-3, "y": 1e-2, "y_rate": 1e-2}
    for shooting in (hj.SingleShooting(), hj.MultipleShooting()):
        found = fit_ball(recorded_flight(), noise=noise, shooting=shooting)
        # The data are those of the integrator's error, 1e-12.
        assert_allclose(found.values, [9.81, 0.8], rtol=1e-10)
        assert found.chi_square < 1e-15
        # No stage of small weights, where free states fit exact data at once, goes on to its limit.
        assert found.iterations < 32


@pytest.mark.medium
def test_a_sample_nearer_to_an_event_than_its_time_tells():
    """Half a deviation behind the recorded impact a speed that is still that before it: left out, so that the fit is exact."""
    first, second = impacts(2)
    rebound = lambda t: 0.8 * 9.81 * first - 9.81 * (t - first)
    data = {
        "time": [0.2, first, first + 5e-4, 0.8, second],
        "event": [None, "*", None, None, "*"],
        "y_rate": [-1.962, np.nan, -9.81 * first, rebound(0.8), np.nan],
    }
    found = fit_ball(data, noise={"time": 1e-3, "y_rate": 1e-2})
    assert_allclose(found.values, [9.81, 0.8], rtol=1e-10)
    assert np.isfinite(found.residuals[0][:, 1]).tolist() == [True, False, False, True, False]
    assert found.degrees == 2 and "1 rows measure nothing, or are samples too near to an event" in str(found)


@pytest.mark.medium
def test_events_that_were_missed_and_false_ones():
    times = impacts(10) + 1e-3 * np.random.default_rng(0).standard_normal(10)
    whole = fit_ball(jnp.asarray(times))
    # Without the fifth, and with one at 1.5.
    found = fit_ball(jnp.asarray(np.sort(np.append(np.delete(times, 4), 1.5))))
    assert found.matching == ((((5, 1),), (2,)),) and found.result == "successful"
    assert np.all(np.abs(found.values - whole.values) < 3 * whole.standard_errors)
    assert "1 not recorded before row 5" in str(found) and "row 2 is no event" in str(found)
    assert np.isnan(found.predicted[0][2, 0])


@pytest.mark.medium
@pytest.mark.parametrize("missed, passed", [([0], ((0, 1),)), ([3, 6], ((3, 1), (5, 1)))])
def test_events_that_were_missed_and_a_rough_guess(missed, passed):
    """By the restitution of the guess, 0.75 for 0.8, the tenth interval is half of what it is: as far off as a missed event."""
    rough = ball.Params(0.75, 9.0)
    found = hj.fit(
        ball.system, np.delete(impacts(10), missed), rough, over=BOTH, x0=DROPPED, mode="flight", noise=1e-3
    )  # fmt: skip
    assert found.matching == ((passed, ()),)
    assert_allclose(found.values, [9.81, 0.8], rtol=1e-9)


@pytest.mark.medium
def test_events_that_follow_no_ball():
    """Intervals that are short and long by turns: no sequence of impacts of one ball follows them."""
    wrong = jnp.array([0.5, 0.7, 1.9, 2.0, 3.6, 3.7, 5.5, 5.6])
    for noise in (1e-3, None):
        assert fit_ball(wrong, noise=noise, throw=False).result == "unmatched_events", noise
    # Of a deviation of nearly a second all is noise.
    assert fit_ball(wrong, noise=0.8).result == "successful"


@pytest.mark.medium
def test_events_that_nearly_coincide():
    """Two balls, of which the first bounces come within noise of each other: an unknown deviation explains what is off."""
    two = hj.HybridSystem(
        {"flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], -p.gravity, x[3], -p.gravity]), ("a", "va", "b", "vb"))},
        tuple(
            hj.Transition(
                "flight", "flight", lambda t, x, p, k=k: x[2 * k],
                lambda t, x, p, k=k: x.at[2 * k].set(0 * x[0]).at[2 * k + 1].set(-p.restitution * x[2 * k + 1]),
            )
            for k in (0, 1)
        ),
    )  # fmt: skip
    times = np.sort(np.concatenate([np.sqrt(height) * impacts(6) for height in (1.0, 1.02)]))
    times += 2e-3 * np.random.default_rng(1).standard_normal(12)
    x0 = jnp.array([1.0, 0.0, 1.02, 0.0])
    found = hj.fit(two, jnp.asarray(np.sort(times)), GUESS, over=BOTH, x0=x0, mode="flight", throw=False)
    assert found.result == "successful" and np.all(
        np.abs(np.asarray(found.values) - [9.81, 0.8]) < 3 * found.standard_errors
    )


CLOCKS = hj.HybridSystem(
    {"run": hj.Mode(lambda t, x, p: 1 / p, ("u", "v"))},
    (
        hj.Transition("run", "run", lambda t, x, p: 1 - x[0], lambda t, x, p: x.at[0].set(0.0)),
        hj.Transition("run", "run", lambda t, x, p: 1 - x[1], lambda t, x, p: x.at[1].set(0.0)),
    ),
)


def fit_clocks(first, second, guess):
    """Two clocks of unknown periods, the times at which each strikes, in one record; each is its own kind."""
    rows = sorted([(each, 0) for each in first] + [(each, 1) for each in second])
    return fit_strikes([time for time, _ in rows], [kind for _, kind in rows], guess)


def fit_strikes(times, kinds, guess, system=CLOCKS, **options):
    return hj.fit(
        system, {"time": times, "event": kinds} | options.pop("more", {}), jnp.array(guess), over=lambda p: p, mode="run",
        x0=jnp.zeros(len(system.modes["run"].coordinates)), throw=False, integrator=hj.Integrator(max_time=20.0),
        **{"noise": 1e-3} | options,
    )  # fmt: skip


@pytest.mark.medium
def test_events_of_two_kinds_at_one_time():
    """Every second strike of a clock is one of the other too; from guesses on both sides and from that with them together; and
    with noise, by which the data have some in the other order."""
    for guess in ([0.98, 2.03], [1.02, 1.97], [1.0, 2.0]):
        found = fit_clocks([1.0, 2.0, 3.0, 4.0], [2.0, 4.0], guess)
        assert found.result == "successful" and found.matching == (((), ()),)
        assert_allclose(found.values, [1, 2], rtol=1e-10)
    first, second = (np.array([1.0, 2.0, 3.0, 4.0]) + 1e-3 * np.array([0.3, 0.8, -1, -0.4])), [1.9995, 4.0005]
    found = fit_clocks(first, second, [0.98, 2.03])
    # Linear least squares of each clock alone.
    k, n = np.arange(1, 5), np.arange(1, 3)
    assert found.matching == (((), ()),)
    assert_allclose(found.values, [k @ first / (k @ k), n @ second / (n @ n)], rtol=1e-10)
    assert_allclose(found.standard_errors, 1e-3 / np.sqrt([k @ k, n @ n]), rtol=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize("named", [True, False])
def test_events_at_one_time_with_free_states(named):
    """Strikes of both clocks at every second time, in either order of rows; and as strikes of any clock, of which the model has
    the second one later. By the linear least squares of each clock alone."""
    k, n = np.arange(1, 5), np.arange(1, 3)
    first, second = k + 1e-3 * np.array([0.3, 0.8, -1, -0.4]), np.array([1.9995, 4.0005])
    if not named:
        first[1], second[0] = second[0], first[1]
    rows = np.argsort(np.append(first, second))
    times, kinds = np.append(first, second)[rows], np.repeat([0, 1], [4, 2])[rows]
    labels = list(kinds) if named else ["*"] * 6
    found = fit_strikes(times, labels, [0.98, 2.03], shooting=hj.MultipleShooting())
    assert found.result == "successful" and found.matching == (((), ()),)
    assert_allclose(found.values, [k @ first / (k @ k), n @ second / (n @ n)], rtol=1e-10)
    assert_allclose(found.standard_errors, 1e-3 / np.sqrt([k @ k, n @ n]), rtol=1e-8)


@pytest.mark.medium
def test_one_of_two_events_at_one_time_is_recorded():
    """Both clocks have one period, and only the first is heard; an event of the other that is owed is not lost. With free states
    there is a code."""
    system = hj.HybridSystem(
        {"run": hj.Mode(lambda t, x, p: jnp.stack([1 / p, 1 / p]), ("u", "v"))}, CLOCKS.transitions
    )  # fmt: skip
    k, times = np.arange(1, 5), np.array([1.0003, 2.0008, 2.999, 3.9996])
    found = fit_strikes(times, [0] * 4, 0.98, system)
    assert found.result == "successful"
    assert_allclose(found.values, [k @ times / (k @ k)], rtol=1e-10)
    found = fit_strikes(times, [0] * 4, 0.98, system, shooting=hj.MultipleShooting())
    assert found.result == "simultaneous_guards"


@pytest.mark.medium
def test_an_event_that_is_not_recorded_beside_one_that_is():
    """Each strike of the second clock, of which none is recorded, quickens both by a tenth. Before a strike of the first, after
    it or with it: with free states the estimate is that without, or there is a code."""
    field = lambda t, x, p: jnp.stack([(1 + x[2] / 10) / p, (1 + x[2] / 10) / p, 0 * x[2]])
    heard, other = CLOCKS.transitions
    counts = hj.Transition("run", "run", other.guard, lambda t, x, p: x.at[1].set(0.0).at[2].add(1.0))
    system = hj.HybridSystem({"run": hj.Mode(field, ("u", "v", "strikes"))}, (heard, counts))
    times = np.cumsum(1 / (1 + np.arange(5) / 10)) + 1e-3 * np.array([0.3, 0.8, -1, -0.4, 0.2])

    def fit(early, shooting):
        return hj.fit(
            system, {"time": times, "event": [0] * 5}, jnp.array(0.97), over=lambda p: p, x0=jnp.array([0.0, early, 0.0]),
            mode="run", noise=1e-3, shooting=shooting, throw=False,
        )  # fmt: skip

    for early in (1e-4, 1e-11, 0.0, -1e-11, -1e-4):
        single, free = fit(early, hj.SingleShooting()), fit(early, hj.MultipleShooting())
        assert single.result == "successful"
        # In proportion to the times without noise; a strike of the other clock is early by less than a deviation.
        model = np.cumsum(1 / (1 + np.arange(5) / 10))
        assert_allclose(single.values, model @ times / (model @ model), atol=2e-5)
        if abs(early) > 1e-9 or early > 0:
            assert free.result == "successful"
            assert_allclose(free.values, single.values, rtol=1e-10)
        else:
            assert free.result in ("simultaneous_guards", "optimum_not_found")


@pytest.mark.medium
def test_a_guess_with_the_other_order_of_events():
    """1.1 and 1.02 for 1 and 1.08."""
    found = fit_clocks(np.arange(1, 4) * 1.0, np.arange(1, 4) * 1.08, [1.1, 1.02])
    assert found.result == "successful" and found.matching == (((), ()),)
    assert_allclose(found.values, [1, 1.08], rtol=1e-10)


@pytest.mark.medium
def test_events_of_the_model_that_no_row_has():
    """The period 1.25 has the strikes at 2.5 and 3.75, and one at 1.25, of which the data know nothing."""
    found = fit_clocks(np.arange(1, 5) * 1.0, [2.5, 3.75], [0.98, 1.23])
    assert found.result == "unmatched_events"
    # And where the record ends with a sample.
    noise, more = {"time": 1e-3, "u": 1e-3}, {"u": [np.nan] * 6 + [0.5]}
    rows = [1.0, 2.0, 2.5, 3.0, 3.75, 4.0, 4.5], [0, 0, 1, 0, 1, 0, None]
    assert fit_strikes(*rows, [0.98, 1.23], noise=noise, more=more).result == "unmatched_events"


@pytest.mark.medium
@pytest.mark.parametrize("max_jumps, met", [(100, 136), (400, 268)])
def test_a_kind_of_which_no_event_is_recorded(max_jumps, met):
    """The third clock strikes 260 times until 5.2, more often than a trajectory has arcs."""
    third = hj.Transition("run", "run", lambda t, x, p: 1 - x[2], lambda t, x, p: x.at[2].set(0.0))
    modes = {"run": hj.Mode(lambda t, x, p: jnp.append(1 / p, 50.0), ("u", "v", "w"))}
    system = hj.HybridSystem(modes, (*CLOCKS.transitions, third))
    times, kinds = [1.0, 1.3, 2.0, 2.6, 3.0, 3.9, 4.0, 5.0, 5.2], [0, 1, 0, 1, 0, 1, 0, 0, 1]
    found = fit_strikes(times, kinds, [0.98, 1.32], system, max_jumps=max_jumps)
    assert found.result == "successful" and found.matching == (((), ()),)
    assert_allclose(found.values, [1, 1.3], rtol=1e-10)
    # Up to three coincide with the end.
    assert abs(int(found.trajectory().jumps) - met) <= 3


@pytest.mark.medium
def test_labels_that_share_events():
    """A strike of unknown kind is no row that a strike of the first clock lacks."""
    found = fit_strikes([1.0, 1.3, 2.0, 2.6, 3.0], [0, "*", 0, "*", 0], [0.98, 1.32])
    assert found.result == "successful" and found.matching == (((), ()),)
    assert_allclose(found.values, [1, 1.3], rtol=1e-10)


@pytest.mark.slow
def test_a_false_row_beside_events_at_one_time():
    """Both clocks strike at 1, 2, ..., in either order of rows; at 2.5 none."""
    times = [1.0, 1.0, 2.0, 2.0, 2.5, 3.0, 3.0, 4.0, 4.0]
    found = fit_strikes(times, [0, 1, 1, 0, 0, 0, 1, 0, 1], [1.01, 0.99])
    assert found.result == "successful" and found.matching == (((), (4,)),)
    assert_allclose(found.values, [1, 1], rtol=1e-10)


@pytest.mark.medium
def test_a_time_that_is_recorded_twice():
    """One of the two is no event, also where a parameter is not determined."""
    found = fit_clocks([1.0, 1.0, 2.0, 3.0, 4.0, 5.0], [], [0.98, 100.0])
    assert found.result == "undetermined" and len(found.matching[0][1]) == 1
    assert_allclose(found.values[0], 1, rtol=1e-10)


@pytest.mark.medium
def test_a_mark_pays_for_itself():
    """No false rows, but noise of a quarter of the last intervals: with few data the residuals fall to a seventh without row 1,
    which says nothing."""
    rng = np.random.default_rng(3)
    rng.uniform(size=8)
    noisy = np.sort(impacts(8) + 0.08 * rng.standard_normal(8))
    found = fit_ball(jnp.asarray(noisy), throw=False)
    assert found.matching == (((), ()),)


@pytest.mark.medium
def test_what_the_data_do_not_determine():
    """From an unknown height the times of impact tell gravity over height alone."""
    start = lambda s, p: jnp.stack([s[0], 0 * s[0]])
    options = dict(x0=(start, jnp.array([1.0])), throw=False)
    found = fit_ball(jnp.asarray(impacts(6)), **options)
    assert found.result == "undetermined" and found.undetermined == ["gravity and start[0] only by their ratio"]
    # The combination that is determined is right, and so is the other parameter with its error.
    assert_allclose(found.values[0] / found.start_values[0, 0], 9.81, rtol=1e-9)
    assert_allclose(found.values[1], 0.8, rtol=1e-10)
    assert np.isnan(found.standard_errors[0]) and np.isfinite(found.standard_errors[1])
    with pytest.raises(hj.SolveError, match="undetermined"):
        fit_ball(jnp.asarray(impacts(6)), x0=options["x0"])
    # With a prior it is: the estimate of one number from two, both exact.
    known = fit_ball(jnp.asarray(impacts(6)), prior=[(9.81, 0.1), None], noise=1e-3, x0=options["x0"])
    assert_allclose([*known.values, known.start_values[0, 0]], [9.81, 0.8, 1], rtol=1e-8)
    assert_allclose(known.standard_errors[0], 0.1, rtol=1e-6)


@pytest.mark.medium
def test_bounds_and_starts():
    times = jnp.asarray(impacts(8))
    free = fit_ball(times, bounds=[(8.0, 12.0), (0.5, 0.95)], starts=3)
    assert_allclose(free.values, [9.81, 0.8], rtol=1e-8)
    assert free.costs.shape == (3,) and np.max(free.costs) < 1e-15
    held = fit_ball(times, bounds=[(8.0, 9.5), None])
    # With gravity at its bound restitution is the least squares alone.
    alone = fit_ball(times, over=lambda p: p.restitution)
    fixed = hj.fit(
        ball.system, times, dataclasses.replace(GUESS, gravity=jnp.array(9.5)), over=lambda p: p.restitution, x0=DROPPED,
        mode="flight",
    )  # fmt: skip
    assert_allclose(held.values, [9.5, fixed.values[0]], rtol=1e-11)
    assert held.standard_errors[0] == 0 and alone.values[0] != fixed.values[0]
    assert_allclose(held.standard_errors[1], fixed.standard_errors[0], rtol=1e-8)


@pytest.mark.medium
def test_bounds_that_are_read_once():
    """At the bound 9.5 of gravity the least squares by restitution alone, which SciPy finds from the closed form."""
    data, off = impacts(6) + 1e-3 * np.array([1, -2, 0.5, 1, -1, 2]), lambda e: impacts(6, 9.5, e[0])
    exact = scipy.optimize.least_squares(lambda e: off(e) - data, [0.8], xtol=1e-15, ftol=1e-15, gtol=1e-15).x[0]
    found = fit_ball(data, noise=1e-2, bounds=zip([9.0, 0.5], [9.5, 0.9], strict=True))
    assert_allclose(found.values, [9.5, exact], rtol=1e-8)


@pytest.mark.medium
def test_a_second_record_is_fitted_as_the_first():
    """What a program of a fit keeps depends on no value: arrays that are changed in place, other noise and other bounds give what
    they give without programs, and bad values their error after good ones."""
    data, start = np.array(impacts(5)), np.array([1.0, 0.0])
    bits = lambda found: [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(eqx.filter(found, eqx.is_array))]
    found = fit_ball(data, noise=1e-2, x0=start, bounds=[(9.0, 10.0), (0.5, 0.9)])
    before = bits(found)
    data[:], start[0] = impacts(5, 9.7, 0.79), 1.21
    again = lambda: fit_ball(data, noise=np.linspace(1e-2, 2e-2, 5), x0=start, bounds=[(9.0, 12.0), (0.5, 0.85)])
    other = again()
    # The times are those of a height of 1 m, which fixes the ratio of the height and gravity.
    assert_allclose(other.values, [9.7 * 1.21, 0.79], rtol=1e-9)
    assert bits(found) == before
    for value, message in ((np.nan, "not finite"), (9.0, "do not increase")):
        kept, data[1] = data[1], value
        with pytest.raises(ValueError, match=message):
            again()
        data[1] = kept
    jax.clear_caches()
    assert bits(again()) == bits(other)


@pytest.mark.medium
def test_bounds_with_free_states():
    """The same least squares as from the start alone; an estimate at its bound is constant, and the derivatives of the other are
    those of a fit with the first held there."""
    times = jnp.asarray(impacts(8))
    bounds, held = [(8.0, 9.5), (0.5, 0.95)], dataclasses.replace(GUESS, gravity=jnp.array(9.5))
    fixed = lambda times: hj.fit(
        ball.system, times, held, over=lambda p: p.restitution, x0=DROPPED, mode="flight", throw=False
    )  # fmt: skip
    expected, by = fixed(times).values[0], jax.jacfwd(lambda times: fixed(times).values[0])(times)
    one = fit_ball(times, bounds=bounds, shooting=hj.MultipleShooting())
    assert one.values[0] == 9.5 and one.result == "successful"
    # The gaps of free states are closed to 1e-11.
    assert_allclose(one.values[1], expected, rtol=1e-9)
    slopes = jax.jacfwd(lambda times: fit_ball(times, bounds=bounds, throw=False).values)(times)
    # Rounding of the conditions of optimality, which contain numbers of 1e4.
    assert_allclose(slopes, [0 * by, by], rtol=1e-7, atol=1e-10)
    assert one.standard_errors[0] == 0
    alone = hj.fit(ball.system, times, held, over=lambda p: p.restitution, x0=DROPPED, mode="flight")
    assert_allclose(one.standard_errors[1], alone.standard_errors[0], rtol=1e-6)
    # From beyond a bound, and with starts on both sides of the estimate.
    wide = fit_ball(times, bounds=[(9.6, 12.0), (0.5, 0.95)], shooting=hj.MultipleShooting(), starts=3)
    assert_allclose(wide.values, [9.81, 0.8], rtol=1e-9)


@pytest.mark.medium
def test_a_search_that_is_stopped_at_a_bound():
    """After two evaluations gravity is at a bound from which the residuals fall inward: no least square."""
    times = jnp.asarray(impacts(8))
    start = dataclasses.replace(GUESS, gravity=jnp.array(20.0))
    of = lambda times, n: hj.fit(
        ball.system, times, start, over=BOTH, x0=DROPPED, mode="flight", noise=1e-3, bounds=[(8.0, 30.0), None],
        max_iterations=n, throw=False,
    )  # fmt: skip
    stopped = eqx.filter_jit(lambda times: of(times, 2))(times)
    assert stopped.values[0] == 8 and stopped.result == "optimum_not_found"
    assert_allclose(of(times, 64).values, [9.81, 0.8], rtol=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize("high", [1.0, None])
def test_a_bound_without_derivatives(high):
    """A ball that rises under gravity and a drag sqrt(c) comes to rest at v0 / (g + sqrt(c)); the time of the data is longer
    than without drag, and c would be below zero, where the drag is not a number, and its derivative at zero infinite."""
    rise = hj.Mode(lambda t, x, p: -p["g"] - jnp.sqrt(p["c"]) + 0 * x, ("v",))
    system = hj.HybridSystem(
        {"rise": rise}, (hj.Transition("rise", "rise", lambda t, x, p: x[0], lambda t, x, p: 1 + x),)
    )
    given = {"g": jnp.array(10.0), "c": jnp.array(0.1)}
    found = hj.fit(
        system, jnp.array([0.11, 0.22]), given, over=lambda p: p["c"], x0=jnp.ones(1), mode="rise", noise=1e-3,
        bounds=[(0.0, high)],
    )  # fmt: skip
    # As near as the residuals tell: the time is 0.1 - 0.01 sqrt(c).
    assert 0 <= found.values[0] < 1e-8 and found.standard_errors[0] == 0
    # A parameter beside it that has no bound, the speed w after the first event: the second is at 0.1 + w/10.
    again = hj.Transition("rise", "rise", lambda t, x, p: x[0], lambda t, x, p: p["w"] + x)
    both = hj.fit(
        hj.HybridSystem({"rise": rise}, (again,)), jnp.array([0.11, 0.22]), given | {"w": jnp.array(1.0)},
        over=lambda p: (p["c"], p["w"]), x0=jnp.ones(1), mode="rise", noise=1e-3, bounds=[(0.0, high), None],
    )  # fmt: skip
    assert both.values[0] < 1e-8 and both.standard_errors[0] == 0
    assert_allclose([both.values[1], both.standard_errors[1]], [1.2, 0.01], rtol=1e-4)


@pytest.mark.medium
def test_density_and_hessian(times, of_times):
    """The log-density against its definition, and the exact Hessian against that of the closed form in 40 digits."""
    data, at = NUMBERS(times, "times"), jnp.array([9.79, 0.801])
    r = (data - impacts(12, *np.asarray(at))) / 0.002
    expected = -r @ r / 2 - 12 * np.log(np.sqrt(2 * np.pi) * 0.002)
    assert_allclose(of_times.log_density(at), expected, rtol=1e-10)

    def half_square(g, e):
        falls = [mpmath.sqrt(2 / g) * (1 + 2 * sum(e**k for k in range(1, n))) for n in range(1, 13)]
        return sum((mpmath.mpf(float(t)) - fall) ** 2 for t, fall in zip(data, falls, strict=True)) / 2 / 0.002**2

    with mpmath.workdps(40):
        by = lambda *orders: mpmath.diff(half_square, tuple(map(float, of_times.values)), orders)
        hessian = np.array([[by(2, 0), by(1, 1)], [by(1, 1), by(0, 2)]], float)
    exact = np.linalg.inv(hessian)
    assert_allclose(of_times.hessian_covariance(), exact, rtol=1e-8)
    # The second derivatives of the times count.
    assert np.max(np.abs(exact / of_times.covariance - 1)) > 1e-4


def test_parts_of_the_result(tmp_path, of_times):
    assert "gravity" in str(of_times) and "chi-square" in str(of_times)
    dataset = of_times.to_xarray()
    assert_allclose(dataset.value, of_times.values)
    assert_allclose(dataset.residual[:, 0], (dataset.measured[:, 0] - dataset.predicted[:, 0]) / 0.002, rtol=1e-9)
    of_times.save(tmp_path / "fit.npz")
    loaded = hj.load(tmp_path / "fit.npz")
    assert_allclose(loaded.covariance, of_times.covariance, rtol=0)
    assert str(loaded) == str(of_times)
    with pytest.raises(ValueError, match="Fit again"):
        loaded.log_density(loaded.values)


@pytest.mark.medium
def test_tables_of_all_kinds(tmp_path):
    """A CSV file with units, a pandas table and a dataset are one record."""
    import pandas as pd
    import xarray

    times = impacts(5)
    text = "\n".join(["time (s),event", *(f"{t!r},*" for t in times.tolist())])
    (tmp_path / "ball.csv").write_text(text)
    dataset = xarray.Dataset({"time": ("row", times, {"units": "s"}), "event": ("row", np.full(5, "*"))})
    for data in (tmp_path / "ball.csv", pd.DataFrame({"time": times, "event": "*"}), dataset, times):
        assert_allclose(fit_ball(data).values, [9.81, 0.8], rtol=1e-9)
    with pytest.raises(ValueError, match="in ms, the system's in s"):
        fit_ball({"time (ms)": times, "event": "*"})


@pytest.mark.medium
def test_values_over_an_index_of_times():
    """Of a labelled array the labels are the times, and not its values, which would be taken for times of events."""
    import pandas as pd
    import xarray

    times = np.linspace(0.1, 1.0, 10)
    late = times - impacts(1)
    heights = np.where(late < 0, 1 - 4.905 * times**2, 0.8 * np.sqrt(2 * 9.81) * late - 4.905 * late**2)
    series = pd.Series(heights, pd.Index(times, name="time"), name="y")
    array = xarray.DataArray(heights, {"time": times, "trial": 3}, "time", name="y", attrs={"units": "m"})
    columns = {"time": array.time, "y": array}
    for data in (series, series.to_frame(), array, array.to_dataset(), columns):
        assert_allclose(fit_ball(data, noise=1e-3).values, [9.81, 0.8], rtol=1e-9)
    wrong = array.assign_attrs(units="cm")
    for data in (wrong, wrong.to_dataset(), columns | {"y": wrong}, array.drop_attrs().assign_attrs(unit="cm")):
        with pytest.raises(ValueError, match="'y' is in cm, the system's in m"):
            fit_ball(data, noise=1e-3)
    with pytest.raises(ValueError, match="over an index of numbers"):
        fit_ball(series.rename_axis(None), noise=1e-3)


@pytest.mark.medium
def test_errors_without_freedom_and_with_lost_directions():
    """As many unknowns as times leave no deviation; and a combination that is not determined takes no degree of freedom."""
    exact = fit_ball(jnp.asarray(impacts(2)))
    assert exact.result == "successful" and exact.degrees == 0 and np.all(np.isnan(exact.standard_errors))
    times = jnp.asarray(impacts(6) + 1e-3 * np.random.default_rng(2).standard_normal(6))
    start = lambda s, p: jnp.stack([s[0], 0 * s[0]])
    lost = fit_ball(times, x0=(start, jnp.array([1.0])), throw=False)
    whole = fit_ball(times)
    # The same residuals, and the same error of restitution, with a height that no time tells.
    assert lost.degrees == whole.degrees == 4 and np.all(np.isnan(lost.start_covariance))
    assert_allclose(lost.standard_errors[1], whole.standard_errors[1], rtol=1e-6)
    assert_allclose(lost.deviation, whole.deviation, rtol=1e-9)
    assert np.isnan(lost.hessian_covariance()[0, 0])


@pytest.mark.medium
def test_a_false_event_at_the_end():
    """The last row is no event, and the times before it are fitted as without it."""
    times = np.append(impacts(8), impacts(8)[-1] + 0.02)
    found = fit_ball(jnp.asarray(times))
    assert found.matching == (((), (8,)),)
    assert_allclose(found.values, [9.81, 0.8], rtol=1e-9)


@pytest.mark.medium
def test_units_of_the_data():
    """Of a falling body of microseconds the fit is that of one of seconds: nothing is compared with one second."""
    fall = hj.HybridSystem(
        {"fall": hj.Mode(lambda t, x, p: jnp.stack([x[1], -p]), ("y", "v"))},
        (hj.Transition("fall", "fall", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -x[1]])),),
    )
    for unit in (1.0, 1e-6, 1e3):
        times = jnp.asarray(unit * np.sqrt(2) * np.array([1.001, 2.999, 5.0]))
        integrator = hj.Integrator(max_time=10 * unit)
        found = hj.fit(
            fall,
            times,
            jnp.array(0.8 / unit**2),
            over=lambda p: p,
            x0=jnp.array([1.0, 0.0]),
            mode="fall",
            integrator=integrator,
        )
        # t = A (1, 3, 5) with A^2 = 2 / g: A by linear least squares, and the residuals.
        assert_allclose(found.values * unit**2, (35 / 34.998) ** 2, rtol=1e-9)
        off = np.sqrt(2) * (np.array([1.001, 2.999, 5.0]) - 34.998 / 35 * np.array([1, 3, 5]))
        assert_allclose(found.deviation / unit, np.sqrt(off @ off / 2), rtol=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize("shooting", [hj.SingleShooting(), hj.MultipleShooting()], ids=["single", "multiple"])
def test_derivatives_of_the_estimate_by_the_data(shooting):
    """Forward mode at the optimum against differences of fits of data that are off by the deviation."""
    times = jnp.asarray(impacts(5) + 2e-3 * np.random.default_rng(3).standard_normal(5))
    values = lambda times: fit_ball(times, noise=2e-3, shooting=shooting, throw=False).values
    pushed = jax.jit(lambda times, direction: jax.jvp(values, (times,), (direction,)))
    for k in (0, 3):
        there, back = (pushed(times + step * jnp.eye(5)[k], jnp.eye(5)[k])[0] for step in (1e-4, -1e-4))
        # Central differences: an error of the square of the step over the interval, and of the fit, 1e-10, over the step.
        assert_allclose(pushed(times, jnp.eye(5)[k])[1], (there - back) / 2e-4, rtol=1e-6)


@pytest.mark.medium
def test_sets_of_unlike_length_in_a_batch():
    """Times beyond a set's end are NaN, and count for nothing."""
    padded = np.stack([impacts(6), np.append(impacts(4), [np.nan, np.nan])])
    values, degrees = jax.jit(
        jax.vmap(lambda times: (lambda found: (found.values, found.degrees))(fit_ball(times, throw=False)))
    )(jnp.asarray(padded))
    assert_allclose(values, np.tile([9.81, 0.8], (2, 1)), rtol=1e-9)
    assert degrees.tolist() == [4, 2]


@pytest.mark.medium
def test_traced_times_that_are_no_record():
    """A number between others that is none, times that do not increase, and one before the start have codes: row by row the
    events of the model would be those of other rows."""
    hole, turned, early = impacts(6), impacts(6), impacts(6) - 1
    hole[2], turned[[2, 3]] = np.nan, turned[[3, 2]]
    sets = np.stack([impacts(6), hole, turned, early, np.full(6, np.nan), np.append(impacts(5), np.inf)])
    codes = jax.jit(jax.vmap(lambda times: fit_ball(times, throw=False).result._value))(jnp.asarray(sets))
    names = ["successful", "nonfinite", "unmatched_events", "unmatched_events", "nonfinite", "nonfinite"]
    assert codes.tolist() == [int(getattr(hj.RESULTS, name)._value) for name in names]


@pytest.mark.medium
def test_traced_deviations_that_are_none():
    """Of the data, also of one row alone, and of the prior."""
    times, good = jnp.asarray(impacts(6)), np.full(6, 1e-3)
    sets = np.stack([good, *(np.append(good[:5], wrong) for wrong in (-1e-3, np.nan, 0.0))])
    code = lambda **options: fit_ball(times, throw=False, **options).result._value
    names = [int(getattr(hj.RESULTS, name)._value) for name in ("successful", "nonfinite", "nonfinite", "nonfinite")]
    assert jax.jit(jax.vmap(lambda noise: code(noise=noise)))(jnp.asarray(sets)).tolist() == names
    prior = lambda deviation: code(noise=1e-3, prior=[(9.8, deviation), None])
    assert jax.jit(jax.vmap(prior))(jnp.array([0.1, -0.1, np.nan, 0.0])).tolist() == names


def test_masked_numbers_are_not_measured():
    events = np.ma.masked_array(["flight"] * 3, [True, False, False])
    heights = np.ma.masked_array([0.95, 99.0, 99.0], [False, True, True])
    data = {"time": [0.1, *impacts(2)], "event": events, "y": heights}
    found = fit_ball(data, noise={"time": 1e-3, "y": 1e-2}, throw=False)
    assert found.result == "successful" and int(found.degrees) == 1
    assert np.isfinite(found.residuals[0]).tolist() == [[False, True], [True, False], [True, False]]


def test_a_density_where_nothing_happens(of_times):
    """Gravity that points up: no impact, and no density."""
    assert np.isnan(of_times.log_density(jnp.array([-9.81, 0.8])))


@pytest.mark.medium
def test_reverse_mode_and_single_precision():
    """The estimate by an adjoint in reverse mode, and in float32 to its digits."""
    import diffrax as dfx

    back = hj.Integrator(adjoint=dfx.RecursiveCheckpointAdjoint(), max_steps=64)
    found = fit_ball(jnp.asarray(impacts(3)), integrator=back, max_jumps=2)
    assert_allclose(found.values, [9.81, 0.8], rtol=1e-8)
    single = lambda tree: jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)
    for shooting in (hj.SingleShooting(), hj.MultipleShooting()):
        low = hj.fit(
            ball.system, jnp.asarray(impacts(5), jnp.float32), single(GUESS), over=BOTH, x0=single(DROPPED), mode="flight",
            noise=1e-3, shooting=shooting,
        )  # fmt: skip
        assert low.values.dtype == jnp.float32
        assert_allclose(low.values, [9.81, 0.8], rtol=2e-4)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"time": [0.1, 0.3, 0.2], "y": [1.0, 1.0, 1.0]}, {}, "do not increase: 0.2 follows 0.3"),
        ({"time": [0.1, np.nan], "y": [1.0, 1.0]}, {}, r"time\[1\] is not finite"),
        ({"time": [-0.1, 0.2], "y": [1.0, 1.0]}, {}, "-0.1 is before the start t0=0"),
        ({"time": [0.1], "y": [1.0]}, {}, "1 measurements do not determine 2 unknowns"),
        ({"time": [0.1, 0.2], "height": [1.0, 1.0]}, {}, "column 'height' is neither a coordinate"),
        ({"y": [1.0, 1.0]}, {}, "needs one with the name time"),
        ({"time": [0.1, 0.2], "y": [1.0]}, {}, "'y' has shape"),
        ({"time": [0.1, 0.2], "y": [1.0, 1.0], "y_rate": [1.0, 1.0]}, {}, "Give the standard deviation of each"),
        ({"time": [0.1, 0.2], "y": [1.0, 1.0]}, {"noise": -1.0}, "noise=-1.0 of 'y' must be positive"),
        ({"time": [0.1, 0.2], "y": [1.0, 1.0]}, {"noise": np.inf}, "noise=inf of 'y' must be positive and finite"),
        ([0.4, 1.1], {"noise": [0.1, np.inf]}, r"noise=\[0.1, inf\] of 'time' must be positive and finite"),
        (HEIGHTS, {"observe": {"h": lambda t, x, p: x[7]}}, r"observe of mode 'flight' has the index \(7,\) of .* \(2,\)"),
        (HEIGHTS, {"observe": {"h": lambda t, x, p: jnp.sum(x * x[-3])}}, r"has the index \(-1,\) of .* \(2,\)"),
        (HEIGHTS, {"x0": (lambda s, p: jnp.array([s[0], s[1]]), [1.0])}, r"x0= has the index \(1,\) of .* \(1,\)"),
        ({"time": [0.1, 0.2], "event": ["rest", "rest"]}, {}, "no event of the system has the name 'rest'"),
        ({"time": [0.1, 0.2], "event": [3, 3]}, {}, "no event of the system has the name 3"),
        ([0.4, 1.1], {"prior": [(1.0, 0.0), None], "noise": 1.0}, "positive deviation"),
        ([0.4, 1.1], {"bounds": [(1.0, 2.0)]}, "must hold a pair"),
        ([0.4, 1.1], {"mode": None}, "give mode="),
        (HEIGHTS, {"observe": {"h": lambda x, p: x[0]}}, "observe= of 'h' must be a function of .t, x, params."),
        ([0.4, 1.1], {"over": lambda p: 2 * p.gravity}, "nothing computed from them"),
        ([0.4, 1.1], {"prior": 9.8, "noise": 1.0}, "prior must be a pair of numbers"),
        ([0.4, 1.1], {"x0": None}, "give x0="),
        (np.zeros((2, 2)), {}, "has no names"),
        ([0.4, 1.1, 1.7], {"prior": [(9.8, 0.1), None]}, "prior= needs noise="),
        ([0.4, 1.1], {"noise": [0.1, 0.1, 0.1]}, "has the shape"),
        ({"time": [0.1, 0.2], "y": [1.0, np.inf]}, {}, "infinite number"),
        ({"time": [0.1, 0.2], "y": [1.0, 1.0], "y (m)": [1.0, 1.0]}, {}, "two columns have the name 'y'"),
        ([0.4, 1.1], {"max_iterations": 0}, "max_iterations=0"),
        ([], {}, "no rows"),
        (np.array([0.4, 1.1]) + 0j, {}, "'time' is of complex128"),
        (jnp.array([0.4, 1.1], complex), {}, "'time' is of complex128"),
        ({"time": np.array([400, 1100], "m8[ms]"), "y": [1.0, 1.0]}, {}, "'time' is of timedelta64"),
        (np.ma.masked_array([0.4, 1.1], [False, True]), {}, r"time\[1\] is not finite"),
        ([0.4, 1.1], {"prior": [(np.nan, 0.1), None], "noise": 1.0}, "with a finite mean"),
        ([0.4, 1.1], {"starts": [[9.0, 0.7], [9.0, np.nan]]}, r"starts\[1\] = .* is not finite"),
        ([0.4, 1.1], {"t0": np.nan}, "t0=nan must be a finite time"),
        ([0.4, 1.1], {"x0": (lambda s, params: s, [1.0, np.nan])}, "the guess .* is not finite"),
        ([0.4, 1.1], {"noise": "small"}, "noise='small' of 'time' must be a number"),
        ([0.4, 1.1], {"prior": [(None, 1.0), None], "noise": 1.0}, r"\(None, 1.0\) must be \(mean, deviation\)"),
        ({"time": [0.1, 0.2], "h": [1.0, 1.0]}, {"observe": {"h": "y"}}, "'h': 'y'.* must hold a function"),
        ([[0.4, 1.1], [0.4, 1.1]], {"x0": [(dropped_from, [1.0]), (dropped_from, [1.0, 0.0])]}, "have the shapes"),
    ],
)  # fmt: skip
def test_misuse(data, options, message):
    with pytest.raises(ValueError, match=message):
        fit_ball(data, **options)


def test_one_record_and_a_list_of_parameters():
    with pytest.raises(ValueError, match="a list of 2, and the data are one record"):
        hj.fit(ball.system, [0.4, 1.1], [GUESS, GUESS], over=BOTH, x0=DROPPED, mode="flight")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ball.csv: No columns"),
        ("time;event\n0,4;*\n1,1;*\n", "separated by ';'. Give the table, pandas.read_csv"),
        ("time\tevent\n0.4\t*\n", r"separated by '\\t'"),
        ("time,event\n0.4,*,7\n1.1,*,7\n", "ball.csv: rows are longer than the heading.*index_col=0"),
        ("time,event\n", "no rows"),
        ("time,event\n0.4,*\n1.1,*,7\n", "ball.csv: .*Expected 2 fields in line 3, saw 3"),
        ("time,y\n0.1,-\n0.2,0.8\n", "the column 'y' has '-', no number"),
    ],
)
def test_files_that_are_no_table(text, message, tmp_path):
    path = tmp_path / "ball.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        fit_ball(path, noise=1e-3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_file_is_read_once(tmp_path):
    """A pipe gives its rows once. A comma at the end of each row is no column."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    done = threading.Event()

    def write():
        path.write_text("time,y\n0.1,1.5,\n0.2,2.5,\n")
        # Nothing more, for which a second reader would wait for ever.
        while not done.wait(0.01):
            path.write_text("")

    threading.Thread(target=write, daemon=True).start()
    columns, _ = read_columns(path, {"y"})
    done.set()
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    assert {name: list(column) for name, column in columns.items()} == {"time": [0.1, 0.2], "y": [1.5, 2.5]}


@pytest.mark.medium
def test_a_record_without_events_in_the_model():
    """A ball that never comes back: the code of the simulation."""
    up = hj.HybridSystem(
        {"flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], p]), ("y", "v"))},
        (hj.Transition("flight", "flight", lambda t, x, p: x[0], lambda t, x, p: x),),
    )
    found = hj.fit(
        up, [0.5], jnp.array(1.0), over=lambda p: p, x0=jnp.array([1.0, 0.0]), mode="flight",
        integrator=hj.Integrator(max_time=2.0), throw=False,
    )  # fmt: skip
    assert found.result == "no_crossing"


@pytest.mark.medium
def test_a_closed_orbit():
    """The slope of a rolling wheel from the duration of a step of its periodic orbit, whose start is not known."""
    orbit = hj.periodic_orbit(wheel.step, wheel.guess(wheel.Params()), wheel.Params())
    with pytest.raises(ValueError, match="this orbit was not found, successful"):
        hj.fit(eqx.tree_at(lambda each: each.x, orbit, orbit.x * jnp.nan), [1.0], orbit.params, over=lambda p: p.slope)
    other = dataclasses.replace(wheel.Params(), slope=jnp.array(0.25))
    there = hj.periodic_orbit(wheel.step, orbit.x, other)
    data = {"time": [float(there.period)], "theta_rate_before": [float(there.arc_ends[0][0, 1])], "event": "*"}
    found = hj.fit(orbit, data, orbit.params, over=lambda p: p.slope, noise=1e-3)
    assert_allclose(found.values, 0.25, rtol=1e-9)
    assert_allclose(found.x0[0], there.x, rtol=1e-9)
    # The error by the implicit derivative of the orbit.
    quantities = lambda slope: (lambda orbit: jnp.stack([orbit.period, orbit.arc_ends[0][0, 1]]))(
        hj.periodic_orbit(wheel.step, there.x, dataclasses.replace(other, slope=slope))
    )
    slopes = jax.jacfwd(quantities)(jnp.array(0.25))
    assert_allclose(found.standard_errors[0], 1e-3 / np.linalg.norm(slopes), rtol=1e-6)
    # At a bound: the orbit there.
    held = hj.fit(orbit, data, orbit.params, over=lambda p: p.slope, noise=1e-3, bounds=[(0.1, 0.24)])
    at_bound = hj.periodic_orbit(wheel.step, orbit.x, dataclasses.replace(other, slope=jnp.array(0.24)))
    assert held.values[0] == 0.24 and held.standard_errors[0] == 0
    assert_allclose(held.x0[0], at_bound.x, rtol=1e-9)


@pytest.mark.medium
def test_free_states_do_not_shrink_where_the_data_leave_their_scale_free():
    """Times of impact know gravity only by its ratio to the height of the start, which is unknown here; with noise the gaps would
    be least if all states vanished."""
    times = [0.44868479, 1.17169822, 1.75083374, 2.204172, 2.58300044, 2.87574457]
    found = hj.fit(
        ball.system, jnp.array(times), ball.Params(), over=lambda p: p.gravity, mode="flight", noise=5e-3, throw=False,
        x0=(lambda s, p: jnp.stack([s[0], 0 * s[0]]), jnp.array([1.0])), shooting=hj.MultipleShooting(),
    )  # fmt: skip
    assert found.result == "undetermined" and found.undetermined == ["gravity and start[0] only by their ratio"]
    # That of the fit without free states, to what its search leaves.
    assert_allclose(found.values[0] / found.start_values[0, 0], 9.845008, rtol=1e-6)


@pytest.mark.medium
def test_what_is_loose_at_the_first_guess_alone_is_found_with_free_states():
    """Of $\\dot x = a (b - x)$ nothing determines b while a = 0, where x does not move either: its size is that of the data."""
    law = lambda t, x, p: jnp.stack([p["a"] * (p["b"] - x[0]), 1 + 0 * x[1]])
    tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    system = hj.HybridSystem({"m": hj.Mode(law, ("x", "clock"))}, (tick,))
    times = np.arange(1.0, 7)
    data = {"time": times, "x": 3 - 3 * np.exp(-0.4 * times), "event": ["*"] * 6}
    found = hj.fit(
        system, data, {"a": jnp.array(0.0), "b": jnp.array(1.0)}, over=lambda p: (p["a"], p["b"]), mode="m",
        x0=jnp.array([0.0, 0.0]), noise={"x": 1e-3, "time": 1e-3}, shooting=hj.MultipleShooting(), throw=False,
    )  # fmt: skip
    assert found.result == "successful" and found.undetermined == []
    # To the gaps that the search leaves, 1e-8 of the state.
    assert_allclose(found.values, [0.4, 3.0], rtol=1e-7)


class Izhikevich(eqx.Module):
    """Decay of the recovery, its jump at a spike, and the current."""

    a: jax.Array
    d: jax.Array
    current: jax.Array


NEURON = hj.HybridSystem(
    {
        "cell": hj.Mode(
            lambda t, x, p: jnp.stack([0.04 * x[0] ** 2 + 5 * x[0] + 140 - x[1] + p.current, p.a * (2 * x[0] - x[1])]),
            ("v", "u"),
        )
    },
    (
        hj.Transition(
            "cell", "cell", lambda t, x, p: 30 - x[0], lambda t, x, p: jnp.stack([-55.0 + 0 * x[1], x[1] + p.d])
        ),
    ),
)


@pytest.mark.medium
def test_spikes_of_a_chaotic_neuron():
    """A hundred spike times alone: a small error grows by 1.5 from spike to spike, 4e17 in all, so one shot ends elsewhere from a
    guess that is off by a hundredth; with free states the fit finds the parameters, within the errors that it predicts."""
    truth, count = Izhikevich(jnp.array(0.2), jnp.array(-16.0), jnp.array(-99.0)), 100
    run = jax.jit(lambda x0: hj.simulate(NEURON, x0, truth, mode="cell", t1=2000.0, max_jumps=130, throw=False))
    after = float(run(jnp.array([-55.0, -113.0])).x_ends[20, 1]) - 16.0
    exact, other = (np.asarray(run(jnp.array([-55.0, after + off])).end_times)[:count] for off in (0.0, 1e-7))
    apart = np.abs(other - exact)
    assert apart[-5:].max() > 1e4 * apart[:5].max() > 0
    # A spike is time 0; what the recovery was then is not known.
    spikes = exact + 0.1 * np.random.default_rng(1).standard_normal(count)
    guess = dataclasses.replace(truth, a=jnp.array(0.202), d=jnp.array(-16.1))
    options = dict(
        over=lambda p: (p.a, p.d), x0=(lambda s, p: jnp.stack([-55.0 + 0 * s[0], s[0]]), jnp.array([after + 0.05])),
        mode="cell", noise=0.1, integrator=hj.Integrator(max_time=100.0), throw=False,
    )  # fmt: skip

    @jax.jit
    def single(spikes):
        found = hj.fit(NEURON, spikes, guess, **options)
        return found.result._value, found.chi_square

    code, chi_square = single(jnp.asarray(spikes))
    assert code != 0 and chi_square > 1000
    found = hj.fit(NEURON, jnp.asarray(spikes), guess, shooting=hj.MultipleShooting(), **options)
    assert found.result == "successful" and found.degrees == count - 3
    off = np.asarray(found.values) - np.array([0.2, -16.0])
    # 99.9 % of chi-square with two and with 97 degrees of freedom.
    assert off @ np.linalg.solve(found.covariance, off) < 13.8 and found.chi_square < 145
    # A part in 4000 from spikes of which each is known to a hundredth of an interval: chaos tells much.
    assert np.all(found.standard_errors < 1e-3 * np.abs(found.values))
