"""Transitions that are taken at once where a mode begins with their guard not positive."""

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import line, ROLLED, same, still

import hyjax as hj
from hyjax._testing import fingerprint

RESULTS = hj.RESULTS


def thermostat(upper, lower, domain=False):
    heat, cool = (lambda t, x, p: 30 - x), (lambda t, x, p: 10 - x)
    warm, cold = (lambda t, x, p: upper - x[0]), (lambda t, x, p: x[0] - lower)
    modes = {
        "heating": hj.Mode(heat, ("T",), domain=warm if domain else None),
        "cooling": hj.Mode(cool, ("T",), domain=cold if domain else None),
    }
    ways = (
        hj.Transition("heating", "cooling", warm, same, at_once=True),
        hj.Transition("cooling", "heating", cold, same, at_once=True),
    )
    return hj.HybridSystem(modes, ways)


def heated(system, start, t1=0.3, jumps=4):
    return hj.simulate(
        system, start[None], None, mode="heating", t1=t1, max_jumps=jumps, integrator=ROLLED, throw=False
    )


@pytest.mark.medium
@pytest.mark.parametrize("domain", [pytest.param(False, marks=pytest.mark.medium), True])
def test_a_thermostat_that_starts_beyond_its_limit(domain):
    """Beyond the limit it cools from the start, T = 10 + (T0 - 10) e^-t. Below, it heats until t1 = ln((30 - T0) / 8). A start on
    the limit has the derivative of the starts below."""
    system, t = thermostat(22.0, 18.0, domain), 0.3

    @eqx.filter_jit
    @jax.vmap
    def run(start):
        end = lambda start: (lambda ran: (ran.x[0], ran))(heated(system, start, t))
        (x, ran), by = jax.value_and_grad(end, has_aux=True)(start)
        return x, by, ran

    start = np.array([25.0, 22.0, 21.0])
    x, by, ran = run(jnp.asarray(start))
    assert np.all(ran.result == RESULTS.successful) and np.all(ran.jumps == 1)
    first = np.log((30 - np.minimum(start, 22)) / 8)
    assert_allclose(x, 10 + (np.maximum(start, 22) - 10) * np.exp(first - t), rtol=1e-9)
    assert_allclose(ran.end_times[:, 0], first, atol=1e-9)
    assert_allclose(by, [np.exp(-t), *(-12 * np.exp(first - t) / (30 - start))[1:]], rtol=1e-8)
    assert np.array_equal(ran.at_once[:, 0], [True, False, False]) and not np.any(ran.at_once[:, 1:])
    event = ran[0].events[0]
    assert (event.t, event.source, event.target, event.guard_rate) == (0.0, "heating", "cooling", -5.0)
    assert_allclose(ran[0].fundamental_matrix(), [[np.exp(-t)]], rtol=1e-9)


@pytest.mark.medium
def test_a_guard_that_is_negative_from_the_start_is_named():
    """A thermostat that is too hot, one of two doses that are overdue, a guard that is NaN. Not where the guard is positive, not
    armed, zero at the start as after an impact, and not in a run of no duration."""
    modes = {"heating": hj.Mode(lambda t, x, p: 30 - x, ("T",)), "cooling": hj.Mode(lambda t, x, p: 10 - x, ("T",))}
    limit = lambda guard, **options: hj.HybridSystem(
        modes, (hj.Transition("heating", "cooling", lambda t, x, p: jnp.asarray(guard(t, x[0])), same, **options),)
    )
    heat = lambda system, start, t1=0.3: hj.simulate(
        system, jnp.array([start]), None, mode="heating", t1=t1, max_jumps=2, record=False
    )
    too_hot = limit(lambda t, x: 22 - x)
    for system, shown in [(too_hot, "-3"), (limit(lambda t, x: jnp.sqrt(x - 40)), "nan")]:
        told = f"simulate: transition 'heating' -> 'cooling' was not taken, .* is {shown} at the start, t = 0"
        with pytest.warns(UserWarning, match=told):
            assert heat(system, 25.0).jumps == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert heat(too_hot, 15.0).jumps == heat(too_hot, 25.0, 0.0).jumps == 0
        assert heat(limit(lambda t, x: 22 - x, armed=lambda t, x, p: x[0] < 24), 25.0).jumps == 0
        assert heat(limit(lambda t, x: -t - 1e-16), 20.0).jumps == 0
    doses = hj.Transition("on", "on", lambda t, x, p: jnp.stack([9 - t, -3 - t]), lambda t, x, p, i: x)
    with pytest.warns(UserWarning, match="'on' -> 'on', number 1, was not taken, .* is -3 at the start") as found:
        system = hj.HybridSystem({"on": hj.Mode(still, ("x",))}, (doses,))
        hj.simulate(system, jnp.zeros(1), None, mode="on", t1=2.0)
    assert len(found) == 1


@pytest.mark.medium
def test_a_chain_without_end_is_zeno():
    """Where each of two modes begins beyond the limit that leads to the other; on one limit for both it slides."""
    ran = heated(thermostat(18.0, 22.0), jnp.array(20.0))
    assert ran.result == "zeno" and float(ran.t) == 0 and int(ran.jumps) < 4
    ran = heated(thermostat(20.0, 20.0), jnp.array(19.0))
    assert ran.result == "sliding"
    assert_allclose(ran.t, np.log(11 / 10), rtol=1e-10)


def test_a_chain_that_leads_into_a_circle_is_zeno():
    """Four modes that are left at once, a, b, c, d, and back to b. A clock whose state repeats ticks on."""
    at_once = lambda t, x, p: -jnp.ones(())
    ways = [
        hj.Transition(source, target, at_once, same, at_once=True)
        for source, target in zip("abcd", "bcdb", strict=True)
    ]
    tick = hj.Transition("clock", "clock", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x, at_once=True)
    system = hj.HybridSystem({name: hj.Mode(line, ("x",)) for name in (*"abcd", "clock")}, (*ways, tick))
    run = lambda mode: hj.simulate(
        system, jnp.zeros(1), None, mode=mode, t1=3.5, max_jumps=20, integrator=ROLLED, throw=False
    )
    ran = run("a")
    # Brent's method remembers the mode after 1, 2, 4, 8, ... jumps.
    assert ran.result == "zeno" and float(ran.t) == 0 and int(ran.jumps) < 8
    ran = run("clock")
    assert ran.result == "successful" and int(ran.jumps) == 3
    assert_allclose(ran.x, [0.5], rtol=1e-13)


# A queue fills at the rate p; when 10 wait, 4 leave. `n` counts.
QUEUE = hj.HybridSystem(
    {"on": hj.Mode(lambda t, x, p: jnp.stack([p, 0 * p]), ("x", "n"))},
    (hj.Transition("on", "on", lambda t, x, p: 10 - x[0], lambda t, x, p: x + jnp.array([-4.0, 1.0]), at_once=True),),
)


@pytest.mark.medium
def test_a_queue_that_is_full_again_at_once():
    @eqx.filter_jit
    @jax.vmap
    def run(start, t1):
        x0 = jnp.stack([start, jnp.zeros(())])
        return hj.simulate(QUEUE, x0, jnp.array(1.0), mode="on", t1=t1, max_jumps=5, integrator=ROLLED, throw=False)

    starts, t1 = np.array([15.3, 5.0, 18.0, 9.5, 15.3, 60.0]), np.array([1.0, 1, 0, 1, 0, 1])
    ran = run(jnp.asarray(starts), jnp.asarray(t1))
    served = np.array([2, 0, 3, 1, 2, 5])
    assert np.array_equal(ran.jumps, served)
    assert np.all((ran.result == RESULTS.successful)[:-1]) and ran[5].result == "max_jumps_reached"
    assert_allclose(ran.x[:-1], np.stack([starts + t1 - 4 * served, served], axis=1)[:-1], rtol=1e-13)


@pytest.mark.medium
def test_what_one_event_changes_another_waits_for():
    """At t = 1 x becomes 5, so that y, which waits for x > 3, is raised at the same time, once (AMICI, issue 2926). Then a reset
    that ends on the surface of a guard that falls, for every start: the derivative is that of both rules."""
    held = lambda t, x, p: 0 * x
    ways = (
        hj.Transition("on", "on", lambda t, x, p: 1 - t, lambda t, x, p: x.at[0].set(5.0)),
        hj.Transition(
            "on", "on", lambda t, x, p: 3 - x[0], lambda t, x, p: x.at[1].add(1.0),
            armed=lambda t, x, p: x[1] < 0.5, at_once=True,
        ),
    )  # fmt: skip
    system = hj.HybridSystem({"on": hj.Mode(held, ("x", "y"))}, ways)
    ran = hj.simulate(system, jnp.zeros(2), None, mode="on", t1=2.0, max_jumps=4, integrator=ROLLED)
    assert ran.result == "successful" and int(ran.jumps) == 2
    assert np.array_equal(ran.x, [5, 1]) and np.array_equal(ran.end_times[:3], [1, 1, 2])

    down, up = (lambda t, x, p: -jnp.ones_like(x)), line
    modes = {name: hj.Mode(field, ("x",)) for name, field in {"a": down, "b": down, "c": up}.items()}
    ways = (
        hj.Transition("a", "b", lambda t, x, p: x[0] - 1, lambda t, x, p: 0 * x),
        hj.Transition("b", "c", lambda t, x, p: x[0], same, at_once=True),
    )
    landing = hj.HybridSystem(modes, ways)

    def end(x):
        ran = hj.simulate(landing, x[None], None, mode="a", t1=3.0, max_jumps=3, integrator=ROLLED)
        return ran.x[0], ran

    (x, ran), slope = eqx.filter_jit(jax.value_and_grad(end, has_aux=True))(jnp.array(2.0))
    assert ran.mode_names == ("a", "b", "c")
    assert_allclose([x, slope], [2, -1], rtol=1e-13)


# A clock runs to 1, y decays; then a mode that begins beyond its guard, with another flow, and back.
CHAIN = hj.HybridSystem(
    {
        "run": hj.Mode(lambda t, x, p: jnp.stack([jnp.ones(()), -x[1]]), ("x", "y")),
        "turn": hj.Mode(lambda t, x, p: jnp.stack([5.0 + 0 * x[0], 3.0 + x[1]]), ("x", "y")),
    },
    (
        hj.Transition("run", "turn", lambda t, x, p: 1 - x[0], lambda t, x, p: jnp.stack([0 * x[0], x[1] + 1])),
        hj.Transition(
            "turn", "run", lambda t, x, p: x[1] - 10, lambda t, x, p: x * jnp.array([1.0, 0.5]), at_once=True
        ),
    ),
)
FIXED = 0.5 / (1 - 0.5 * np.exp(-1))


@pytest.mark.medium
@pytest.mark.parametrize("method", [None, pytest.param(hj.MultipleShooting(), marks=pytest.mark.slow)])
def test_an_orbit_through_a_mode_of_no_duration(method):
    """y+ = (y / e + 1) / 2. The multiplier is 1 / 2e, as if the mode between were not there, and the flow there does not
    matter."""
    step = hj.ReturnMap(CHAIN, sequence=("run", "turn"), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([0.0, 0.7]), None, **({} if method is None else {"method": method}))
    assert_allclose(orbit.x, [0, FIXED], atol=1e-9)
    assert_allclose(orbit.period, 1, rtol=1e-9)
    assert_allclose(np.sort(np.abs(orbit.multipliers)), [0, np.exp(-1) / 2], atol=1e-9)


@pytest.mark.medium
def test_derivatives_through_a_mode_of_no_duration():
    """At fixed time: x = t - 1 + x0 after t = 1 - x0, where y = (y0 e^-(1 - x0) + 1) / 2 begins to decay."""
    x0, t1 = jnp.array([0.1, FIXED]), 1.5
    ran = hj.simulate(CHAIN, x0, None, mode="run", t1=t1, max_jumps=3, integrator=ROLLED)
    decay = np.exp(-(t1 - 0.9))
    right = np.array([[1, 0], [0.5 * FIXED * np.exp(-0.9) - (FIXED * np.exp(-0.9) + 1) / 2, 0.5 * np.exp(-0.9)]])
    right[1] *= decay
    assert ran.result == "successful" and np.array_equal(ran.at_once, [False, True, False, False])
    assert_allclose(ran.fundamental_matrix(), right, atol=1e-9)
    end = lambda x: hj.simulate(CHAIN, x, None, mode="run", t1=t1, max_jumps=3, integrator=ROLLED).x
    assert_allclose(eqx.filter_jit(jax.jacfwd(end))(x0), right, atol=1e-9)


@pytest.mark.medium
def test_monodromy_through_a_mode_of_no_duration():
    total = hj.ReturnMap(CHAIN, sequence=("run", "turn"), integrator=ROLLED).monodromy(jnp.array([0.0, FIXED]), None)
    assert_allclose(np.sort(np.linalg.eigvals(total)), [np.exp(-1) / 2, 1], atol=1e-9)


@pytest.mark.medium
def test_a_section_and_an_impact_at_once():
    met = hj.flow_to_guard(CHAIN, "turn", 0.5, jnp.array([0.2, 3.0]), None, integrator=ROLLED)
    assert met.result == "successful" and bool(met.at_once)
    assert float(met.t) == 0.5 and int(met.transition) == 1
    assert np.array_equal(met.x, [0.2, 3.0]) and float(met.guard_rate) == 6.0
    half = hj.Section("run", lambda t, x, p: 0.5 - x[0])
    crossing = hj.ReturnMap(CHAIN, section=half, max_jumps=3, integrator=ROLLED)(jnp.array([0.5, 1.0]), None)
    assert crossing.result == "successful" and int(crossing.jumps) == 2
    assert_allclose(crossing.x, [0.5, (np.exp(-0.5) + 1) / 2 * np.exp(-0.5)], rtol=1e-9)


@pytest.mark.medium
def test_a_dose_that_is_due_at_the_start():
    """Six doses of 3, one each 15, absorbed after a lag; superposition in closed form, also by the lag: at a lag of zero from the
    right, and not at all where the first dose is overdue."""
    ka, ke = 0.1, 0.08
    field = lambda t, x, p: jnp.stack([-ka * x[0], ka * x[0] - ke * x[1], 0 * x[2]])
    dose = hj.Transition(
        "on", "on", lambda t, x, p: 15 * x[2] + p - t, lambda t, x, p: x + jnp.array([3.0, 0, 1]),
        armed=lambda t, x, p: x[2] < 5.5, at_once=True,
    )  # fmt: skip
    body = hj.HybridSystem({"on": hj.Mode(field, ("depot", "A", "given"))}, (dose,))

    def amount(lag):
        ran = hj.simulate(body, jnp.zeros(3), lag, mode="on", t1=100.0, max_jumps=7, integrator=ROLLED)
        return ran.x[1], (ran.result, ran.end_times)

    lags = np.array([0.0, 2.0, -1.0])
    (a, (result, ends)), by = eqx.filter_jit(jax.vmap(jax.value_and_grad(amount, has_aux=True)))(jnp.asarray(lags))
    assert np.all(result == RESULTS.successful)
    times = np.maximum(lags[:, None] + 15 * np.arange(6), 0)
    assert_allclose(ends[:, :6], times, atol=1e-12)
    wait, factor = 100 - times, 3 * ka / (ka - ke)
    # Absorbed to 1e-10 over 100 hours.
    assert_allclose(a, factor * np.sum(np.exp(-ke * wait) - np.exp(-ka * wait), axis=1), rtol=1e-9)
    slopes = factor * (ke * np.exp(-ke * wait) - ka * np.exp(-ka * wait))
    slopes[2, 0] = 0
    assert_allclose(by, np.sum(slopes, axis=1), rtol=1e-8)


@pytest.mark.medium
def test_the_first_of_the_list_is_taken_unless_it_is_not_armed():
    ways = [
        ("a", "b", lambda t, x, p: p[0]),
        ("a", "c", lambda t, x, p: p[1]),
        ("a", "d", lambda t, x, p: -jnp.ones(())),
    ]
    armed = lambda t, x, p: p[2] > 0
    transitions = [
        hj.Transition(*way, same, at_once=k < 2, armed=armed if k == 0 else None) for k, way in enumerate(ways)
    ]
    system = hj.HybridSystem({name: hj.Mode(still, ("x",)) for name in "abcd"}, transitions)
    run = eqx.filter_jit(
        jax.vmap(lambda p: hj.simulate(system, jnp.ones(1), p, mode="a", t1=1.0, max_jumps=2, integrator=ROLLED))
    )
    # Both; the second; the first, not armed; a guard of zero is not positive; neither: the third does not act at once.
    p = np.array([[-1, -1, 1], [1, -1, 1], [-1, -1, -1], [0, 1, 1], [1, 1, 1.0]])
    ran = run(jnp.asarray(p))
    assert np.all(ran.result == RESULTS.successful)
    assert np.array_equal(ran.mode, [1, 2, 2, 1, 0])


def test_analyses_that_know_events_alone_refuse():
    with pytest.raises(ValueError, match=r"kalman_filter: the transitions \[1\] have at_once=True"):
        hj.noise.kalman_filter(
            CHAIN, jnp.zeros(2), jnp.eye(2), None, mode="run", times=jnp.ones(1), measurements=jnp.ones((1, 1)),
            observe=lambda t, x, p: x[:1], measurement_noise=jnp.eye(1),
        )  # fmt: skip


# Variations at fixed time through the mode of no duration, from x0 = (0.1, FIXED) to 1.5 (see above).
FLOWN = np.array([[1, 0], [0.5 * FIXED * np.exp(-0.9) - (FIXED * np.exp(-0.9) + 1) / 2, 0.5 * np.exp(-0.9)]])
FLOWN[1] *= np.exp(-0.6)


@pytest.mark.medium
def test_covariance_through_a_mode_of_no_duration():
    """Of the start; and of noise in both resets, in the level of the first guard, and in that of the second, which does not act.
    The trajectory is that of `simulate`."""
    x0, start = jnp.array([0.1, FIXED]), np.array([[0.02, 0.01], [0.01, 0.03]])
    resets = {0: np.diag([0.0, 0.05]), 1: np.diag([0.04, 0.07])}
    noise = hj.noise.Noise(guard={0: 0.03, 1: 11.0}, reset=resets)
    found = eqx.filter_jit(hj.noise.covariance)(
        CHAIN, x0, start, None, mode="run", t1=1.5, noise=noise, max_jumps=3, integrator=ROLLED
    )
    # A level of the clock's guard is a delay: x(1.5) is less by it, y = (y1 + 1) / 2 falls for less time.
    decay, y1 = np.exp(-0.6), FIXED * np.exp(-0.9)
    late = np.array([-1.0, (0.5 * -y1 + (y1 + 1) / 2) * decay])
    halved = np.diag([1.0, 0.5]) @ resets[0] @ np.diag([1.0, 0.5]) + resets[1]
    after = np.diag([1, decay]) @ halved @ np.diag([1, decay])
    assert found.result == "successful"
    assert_allclose(found.final, FLOWN @ start @ FLOWN.T + 0.03 * np.outer(late, late) + after, rtol=1e-9, atol=1e-12)
    ran = hj.simulate(CHAIN, x0, None, mode="run", t1=1.5, max_jumps=3, integrator=ROLLED)
    run = found.trajectory
    assert run.system.modes["run"].dimension == 2 and np.array_equal(run.at_once, ran.at_once)
    for name in ("x", "x_starts", "x_ends", "end_times", "guard_rates"):
        assert_allclose(getattr(run, name), getattr(ran, name), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.medium
def test_covariance_from_a_start_beyond_the_limit():
    """The first jump is at time 0 for every start, the next at a fixed temperature: the variance of its time alone remains."""
    system, t = thermostat(22.0, 18.0), 1.0
    found = hj.noise.covariance(
        system, jnp.array([25.0]), 0.01 * jnp.eye(1), None, mode="heating", t1=t, max_jumps=4, integrator=ROLLED
    )
    early, first = np.log(15 / 8), 0.3
    assert found.result == "successful" and np.array_equal(found.trajectory.at_once, [True, False, False, False, False])
    run = heated(system, jnp.array(25.0), t)
    assert_allclose(found.final, 0.01 * np.square(run.fundamental_matrix()), rtol=1e-8)
    cooled = hj.noise.covariance(
        system, jnp.array([25.0]), 0.01 * jnp.eye(1), None, mode="heating", t1=first, max_jumps=4, integrator=ROLLED
    )
    assert first < early
    assert_allclose(cooled.final, [[0.01 * np.exp(-2 * first)]], rtol=1e-9)


@pytest.mark.medium
def test_exponents_through_a_mode_of_no_duration():
    """log(1 / 2e) in a period of 1, as of the multiplier, and 0 along the flow."""
    found = eqx.filter_jit(hj.phase.lyapunov_spectrum)(
        CHAIN, jnp.array([0.3, 1.0]), None, mode="run", t1=60.0, transient=20.0, n_segments=120, max_jumps=4
    )
    assert found.result == "successful" and found.x.shape == (2,)
    # Over whole periods, by vectors that have turned into their directions.
    assert_allclose(found.exponents, [0, -1 - np.log(2)], atol=1e-8)


@pytest.mark.medium
@pytest.mark.parametrize("first", ["run", "turn"])
def test_responses_of_an_orbit_through_a_mode_of_no_duration(first):
    """The phase is the clock: a push of x is an advance, and one of y none. A push of y decays by 1 / 2e in a period, and one of
    x adds to the deviation of y what the clock's advance makes of it."""
    sequence = ("run", "turn") if first == "run" else ("turn", "run")
    start = [0.0, FIXED] if first == "run" else [0.0, FIXED * 2]
    orbit = hj.periodic_orbit(hj.ReturnMap(CHAIN, sequence=sequence, integrator=ROLLED), jnp.array(start), None)
    phase = hj.phase.phase_response(orbit, n_samples=6)
    run = phase.arcs[sequence.index("run")]
    assert phase.result == "successful" and float(phase.residual) < 1e-9
    # The flow turns (1, -y) along the orbit: the phase of (x, y) is x alone.
    assert run.z.shape == (6, 2)
    assert_allclose(run.z, np.tile([1.0, 0.0], (6, 1)), atol=1e-9)
    decay = hj.phase.isostable_response(orbit, n_samples=6)
    along = decay.arcs[sequence.index("run")]
    # The deviation from y = FIXED e^-x, scaled to the start.
    shape = np.stack([FIXED * np.exp(-along.x[:, 0]), np.ones(6)], axis=1)
    ratio = along.z[:, 1:].real
    assert_allclose(along.z.real / ratio, shape, atol=1e-8)
    assert_allclose(decay.multiplier, np.exp(-1) / 2, rtol=1e-9)


def test_at_once_is_a_bool():
    with pytest.raises(ValueError, match="at_once must be True or False, not 1"):
        hj.Transition("a", "b", lambda t, x, p: x[0], same, at_once=1)  # pyright: ignore


@pytest.mark.medium
def test_a_ball_that_rises_from_its_floor_does_not_bounce_at_once():
    """After a bounce the height is zero up to rounding of either sign, and the speed is upwards."""
    ball = hj.HybridSystem(
        {"fly": hj.Mode(lambda t, x, p: jnp.stack([x[1], -p]), ("y", "y_rate"))},
        (hj.Transition("fly", "fly", lambda t, x, p: x[0], lambda t, x, p: x * jnp.array([1, -0.8]), at_once=True),),
    )
    run = jax.vmap(lambda h: hj.simulate(
        ball, jnp.stack([h, 0 * h]), jnp.array(9.81), mode="fly", t1=1.2, max_jumps=3, integrator=ROLLED
    ))  # fmt: skip
    heights = np.array([0.9, 1.0, 1.1, 1.2])
    ran = eqx.filter_jit(run)(jnp.asarray(heights))
    fall = np.sqrt(2 * heights / 9.81)
    assert np.array_equal(ran.jumps, 1 + (2.6 * fall < 1.2))
    assert_allclose(ran.end_times[:, 0], fall, rtol=1e-9)


def test_a_file_knows_what_acts_at_once():
    waits = hj.HybridSystem(CHAIN.modes, tuple(dataclasses.replace(way, at_once=False) for way in CHAIN.transitions))
    assert fingerprint(CHAIN)["transitions"] == [["run", "turn"], ["turn", "run", "at once"]]
    assert fingerprint(waits)["transitions"] == [["run", "turn"], ["turn", "run"]]
