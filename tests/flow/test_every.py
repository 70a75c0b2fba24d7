"""Clocks: transitions at equidistant times, for sampled controllers and modulated pulses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import expm
from systems import ROLLED

import hyjax as hj
from hyjax.models import buck_converter as buck

GAINS, PERIOD = np.array([1.0, 1.5]), 0.4


def feedback(period=PERIOD, **options) -> hj.HybridSystem:
    """A double integrator, y'' = u with u = -K (y, y') sampled by a clock and held."""
    plant = hj.Mode(lambda t, x, p: x[1:], ("y", "v"), held=("u",))
    sample = hj.every(period, lambda t, x, p: jnp.append(x[:2], -(p["gains"] @ x[:2])), **options)
    return hj.HybridSystem({"plant": plant}, (sample,))


PARAMS = {"gains": jnp.array(GAINS), "period": jnp.array(PERIOD)}


def of_parameter(p):
    return p["period"]


def ran(system, x0, t1, params=PARAMS, max_jumps=8, mode="plant", **options):
    return hj.simulate(system, x0, params, mode=mode, t1=t1, max_jumps=max_jumps, integrator=ROLLED, **options)


def held_over(duration: float) -> np.ndarray:
    """(y, v) after a duration of constant u, from (y, v, u)."""
    return expm(np.array([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]) * duration)[:2]


def test_ticks_are_equidistant_and_states_those_of_the_discrete_system():
    """Closed form. The tick at the start has passed; that at 2.0, the end, is taken."""
    x0 = jnp.array([1.0, 0.0, 0.3])
    run = ran(feedback(), x0, 2.0)
    assert int(run.jumps) == 5 and run.result == hj.RESULTS.successful
    assert_allclose(run.end_times[:5], PERIOD * np.arange(1, 6), rtol=1e-15)
    x = np.array(x0)
    for k in range(5):
        x[:2] = held_over(PERIOD) @ x
        assert_allclose(run.x_ends[k], x, rtol=0, atol=1e-13)
        x[2] = -(GAINS @ x[:2])
    assert_allclose(run.guard_rates[:5], -1, rtol=0, atol=0)


@pytest.mark.medium
@pytest.mark.parametrize("phase, first", [(0.1, 0.1), (-0.1, 0.3), (1.3, 0.1)])
def test_phase(phase, first):
    run = ran(feedback(phase=phase), jnp.array([1.0, 0.0, 0.3]), 1.0)
    assert_allclose(run.end_times[: int(run.jumps)], np.arange(first, 1.0, PERIOD), rtol=0, atol=1e-15)


@pytest.mark.medium
def test_multipliers_are_those_of_the_discrete_system():
    """Reference: trace 2 - k1 h^2/2 - k2 h, determinant 1 - k2 h + k1 h^2/2; the held number's multiplier is 0."""
    step = hj.ReturnMap(
        feedback(), section=hj.Stroboscope("plant", PERIOD, phase=PERIOD / 2), max_jumps=2, integrator=ROLLED
    )
    found = np.sort_complex(np.linalg.eigvals(step.jacobian(jnp.array([0.3, -0.2, 0.1]), PARAMS)))
    k1, k2 = GAINS
    trace, det = 2 - k1 * PERIOD**2 / 2 - k2 * PERIOD, 1 - k2 * PERIOD + k1 * PERIOD**2 / 2
    exact = np.sort_complex(np.append(np.roots([1, -trace, det]), 0))
    assert_allclose(found, exact, rtol=0, atol=1e-13)


@pytest.mark.medium
def test_derivative_by_the_period():
    """The state at a fixed time after two ticks, by a period that is a parameter: against differences of the closed form."""
    system, x0 = feedback(of_parameter), jnp.array([1.0, 0.0, 0.3])

    def closed(h):
        x = np.array(x0)
        for _ in range(2):
            x[:2] = held_over(h) @ x
            x[2] = -(GAINS @ x[:2])
        return held_over(1.0 - 2 * h) @ x

    end = lambda h: ran(system, x0, 1.0, PARAMS | {"period": h}, max_jumps=3).x[:2]
    slope = (closed(PERIOD + 1e-5) - closed(PERIOD - 1e-5)) / 2e-5
    assert_allclose(end(jnp.array(PERIOD)), closed(PERIOD), rtol=0, atol=1e-13)
    assert_allclose(jax.jacfwd(end)(jnp.array(PERIOD)), slope, rtol=1e-8)
    assert_allclose(jax.jacrev(end)(jnp.array(PERIOD)), slope, rtol=1e-8)


def two_rates(first: float, second: float) -> hj.HybridSystem:
    """Resets that do not commute: the first clock doubles a held number, the second adds one to it."""
    still = hj.Mode(lambda t, x, p: jnp.ones(1), ("s",), held=("n",))
    double = hj.every(first, lambda t, x, p: x * jnp.array([1.0, 2.0]))
    add = hj.every(second, lambda t, x, p: x + jnp.array([0.0, 1.0]))
    return hj.HybridSystem({"plant": still}, (double, add))


@pytest.mark.medium
def test_clocks_that_tick_together_are_taken_in_their_order():
    """At 0.6 and 1.2 both tick; the order is that of the list, whichever rate is the faster."""
    run = ran(two_rates(0.3, 0.6), jnp.zeros(2), 1.3, None)
    assert run.transitions[:6].tolist() == [0, 0, 1, 0, 0, 1] and run.final[1] == (1 * 2 * 2) + 1
    run = ran(two_rates(0.6, 0.3), jnp.zeros(2), 1.3, None)
    assert run.transitions[:6].tolist() == [1, 0, 1, 1, 0, 1] and run.final[1] == ((1 * 2 + 1) + 1) * 2 + 1
    assert_allclose(run.end_times[:6], [0.3, 0.6, 0.6, 0.9, 1.2, 1.2], rtol=1e-15)


@pytest.mark.medium
def test_a_loop_of_two_rates():
    """A cascade: the outer loop sets the speed that is wanted every 2h, the inner one the force every h. Closed form: the
    product of matrix exponentials and of the resets in their order."""
    h, k, q = 0.3, 0.8, 1.5
    plant = hj.Mode(lambda t, x, p: jnp.stack([x[1], x[3]]), ("y", "v"), held=("wanted", "u"))
    outer = hj.every(2 * h, lambda t, x, p: x.at[2].set(-k * x[0]))
    inner = hj.every(h, lambda t, x, p: x.at[3].set(q * (x[2] - x[1])))
    system = hj.HybridSystem({"plant": plant}, (outer, inner))
    step = hj.ReturnMap(system, section=hj.Stroboscope("plant", 2 * h, phase=h / 2), max_jumps=4, integrator=ROLLED)
    flow = lambda t: expm(t * np.array([[0, 1.0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]))
    by_outer, by_inner = np.eye(4), np.eye(4)
    by_outer[2], by_inner[3] = [-k, 0, 0, 0], [0, -q, q, 0]
    exact = flow(h / 2) @ by_inner @ by_outer @ flow(h) @ by_inner @ flow(h / 2)
    assert_allclose(step.jacobian(jnp.array([0.3, -0.2, 0.1, 0.2]), None), exact, rtol=0, atol=1e-13)


@pytest.mark.medium
def test_a_buck_converter_with_a_sampled_pi_controller():
    """From tick to tick: on for the part d of the period, then off. Closed form, with A the circuit's matrix and b = (0, E/L):
    dx+ = exp(AT) dx + exp(A(1 - d)T) b T dd, then the controller, z+ = z + ki e, d+ = kp e + z+. The integrator holds the voltage
    at the ticks at its reference."""
    r, l, c, period, e, wanted, kp, ki = 22.0, 20.0, 0.047, 0.4, 24.0, 12.0, 0.01, 0.004
    matrix, b = np.array([[-1 / (r * c), 1 / c], [-1 / l, 0]]), np.array([0.0, e / l])
    circuit = lambda on: lambda t, x, p: jnp.append(jnp.asarray(matrix) @ x[:2] + on * jnp.asarray(b), 1 / period)
    names = dict(coordinates=("v", "i", "ramp"), held=("z", "d"))

    def sample(t, x, p):
        error = wanted - x[0]
        z = x[3] + ki * error
        return jnp.stack([x[0], x[1], jnp.zeros(()), z, kp * error + z])

    system = hj.HybridSystem(
        {"on": hj.Mode(circuit(1.0), **names), "off": hj.Mode(circuit(0.0), **names)},
        (
            hj.Transition("on", "off", lambda t, x, p: x[4] - x[2], lambda t, x, p: x),
            hj.every(period, sample, source="off", target="on"),
        ),
    )
    step = hj.ReturnMap(system, sequence=("on", "off"), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([12.0, 0.55, 0.0, 0.5, 0.5]), None)
    assert_allclose(orbit.x[0], wanted, rtol=0, atol=1e-11)
    d = float(orbit.x[4])
    on, off = (expm(matrix * part * period) for part in (d, 1 - d))
    drive = -np.linalg.solve(matrix, b)
    x = np.asarray(orbit.x[:2])
    assert_allclose(off @ (on @ (x - drive) + drive), x, rtol=0, atol=1e-11)
    exact = np.zeros((5, 5))
    exact[:2, :2], exact[:2, 4] = off @ on, off @ b * period
    # A ramp that begins higher is as a duty that is as much smaller.
    exact[:2, 2] = -exact[:2, 4]
    exact[3] = np.eye(5)[3] - ki * exact[0]
    exact[4] = exact[3] - kp * exact[0]
    assert_allclose(orbit.return_jacobian, exact, rtol=0, atol=1e-11)


@pytest.mark.medium
def test_a_clock_acts_in_every_mode_and_changes_none():
    """A ball that bounces, whose speed is measured four times a second: impacts and ticks in the order of time."""
    fly = hj.Mode(lambda t, x, p: jnp.stack([x[1], -jnp.ones(())]), ("y", "v"), held=("seen",))
    ways = (
        hj.Transition("first", "second", lambda t, x, p: x[0], lambda t, x, p: x * jnp.array([1, -1.0, 1])),
        hj.Transition("second", "first", lambda t, x, p: x[0], lambda t, x, p: x * jnp.array([1, -1.0, 1])),
        hj.every(0.25, lambda t, x, p: x.at[2].set(x[1])),
    )
    system = hj.HybridSystem({"first": fly, "second": fly}, ways)
    assert [(way.source, way.target) for way in system.transitions[2:]] == [("first", "first"), ("second", "second")]
    run = ran(system, jnp.array([0.02, 0.0, 0.0]), 0.9, None, mode="first", max_jumps=12)
    times = np.asarray(run.end_times[: int(run.jumps)])
    assert np.all(np.diff(times) >= 0) and np.sum(run.transitions[: int(run.jumps)] >= 2) == 3
    ticks = np.asarray(run.transitions[: int(run.jumps)]) >= 2
    assert_allclose(times[ticks], [0.25, 0.5, 0.75], rtol=1e-14)
    assert_allclose(times[~ticks], [0.2, 0.6], rtol=1e-12)
    # At 1.0 impact and tick fall together: the speed that is seen depends on their order.
    assert ran(system, run.x, 1.1, None, mode="first", t0=0.9, throw=False).result == hj.RESULTS.simultaneous_guards


def test_a_pass_along_a_sequence():
    """The map from tick to tick by a sequence: the same multipliers."""
    step = hj.ReturnMap(feedback(), sequence=("plant",), integrator=ROLLED)
    after = step(jnp.array([0.3, -0.2, 0.1]), PARAMS)
    assert_allclose(after.time, PERIOD, rtol=1e-15)
    found = np.linalg.eigvals(step.jacobian(jnp.array([0.3, -0.2, 0.1]), PARAMS))
    det = 1 - GAINS[1] * PERIOD + GAINS[0] * PERIOD**2 / 2
    assert_allclose(np.sort(np.abs(found)), [0, det**0.5, det**0.5], rtol=0, atol=1e-13)


def test_float32():
    x0 = jnp.array([1.0, 0.0, 0.3], jnp.float32)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), PARAMS)
    run = ran(feedback(), x0, jnp.float32(40.1), params, max_jumps=110)
    assert int(run.jumps) == 100 and run.x.dtype == jnp.float32


@pytest.mark.parametrize("period", [0.0, -1.0, float("nan")])
def test_a_period_must_be_positive(period):
    with pytest.raises(ValueError, match="must be positive and finite"):
        hj.every(period, lambda t, x, p: x)


def test_what_else_is_refused():
    with pytest.raises(ValueError, match="phase=inf must be finite"):
        hj.every(1.0, lambda t, x, p: x, phase=float("inf"))
    with pytest.raises(ValueError, match="needs a source="):
        hj.every(1.0, lambda t, x, p: x, target="plant")
    with pytest.raises(ValueError, match=r"period=-0.4 of .* must be positive"):
        ran(feedback(lambda p: -p["period"]), jnp.zeros(3), 1.0)


def test_a_period_is_a_number_of_each_call():
    """A period that is none is refused after one that was right, and where it is traced has a code, as a phase that is none."""
    system, x0 = feedback(of_parameter), jnp.array([1.0, 0.0, 0.3])
    run = lambda period: ran(system, x0, 1.0, PARAMS | {"period": jnp.asarray(period)}, throw=False)
    right = run(0.3)
    assert right.result == "successful" and int(right.jumps) == 3
    for period, message in (
        (-0.3, "period=-0.3 of .* must be positive and finite"),
        (0.0, "period=0"),
        (-3.0, "period=-3"),
    ):
        with pytest.raises(ValueError, match=message):
            run(period)
    lanes = jax.vmap(run)(jnp.array([0.3, -0.3, 0.0, jnp.inf, jnp.nan, -3.0]))
    assert np.all((lanes.result == "nonfinite") == np.array([False] + 5 * [True]))
    assert_allclose(lanes.x[0], right.x, rtol=1e-14)
    with pytest.raises(ValueError, match=r"phase=nan of .* must be finite"):
        ran(feedback(phase=lambda p: jnp.log(-p["period"])), x0, 1.0)
    # So is that of a stroboscope: after no time the state would be that of the start.
    drift = hj.HybridSystem({"drift": hj.Mode(lambda t, x, p: jnp.ones(1), ("y",))}, ())
    step = hj.ReturnMap(drift, section=hj.Stroboscope("drift", lambda p: p))
    lanes = jax.vmap(lambda period: step(jnp.ones(1), period, throw=False))(jnp.array([0.3, 0.0, -0.3, jnp.nan]))
    assert np.all((lanes.result == "nonfinite") == np.array([False, True, True, True]))
    assert_allclose(lanes.x[:, 0], [1.3, np.nan, np.nan, np.nan], rtol=1e-14)


@pytest.mark.medium
def test_the_longest_sampling_time():
    """A set point of 1 as a periodic orbit between ticks; along the branch in the period it loses its stability by a flip at
    2 / k2 = 4/3, in closed form."""
    plant = hj.Mode(lambda t, x, p: x[1:], ("y", "v"), held=("u",))
    sample = hj.every(of_parameter, lambda t, x, p: jnp.append(x[:2], -(p["gains"] @ (x[:2] - jnp.array([1.0, 0.0])))))
    system = hj.HybridSystem({"plant": plant}, (sample,))
    strobe = hj.Stroboscope("plant", of_parameter, phase=lambda p: p["period"] / 2)
    orbit = hj.periodic_orbit(hj.ReturnMap(system, section=strobe), jnp.array([1.01, 0.0, 0.0]), PARAMS)
    assert_allclose(orbit.x, [1.0, 0.0, 0.0], rtol=0, atol=1e-12)
    branch = hj.continuation(orbit, where=of_parameter, stop=1.5)
    (flip,) = [point for point in branch.special_points if "period" in str(point.kind) or "flip" in str(point.kind)]
    assert_allclose(flip.value, 4 / 3, rtol=1e-9)


@pytest.mark.slow
def test_the_flips_of_the_buck_converter():
    """A modulator of pulses that turns the switch off at the ticks: the period doubles at 24.51657282856338 V, and that of the
    doubled period at 31.11790200677098 V. Digits from a computation with closed forms in 50 digits, independent of this library;
    1e-9, because a multiplier of the double period is good to 1e-11, and moves by 0.1 in a volt."""
    values = buck.Params()
    names, switched = ("v", "i", "ramp"), lambda on: lambda t, x, e: buck.circuit(x, values, on * e)
    system = hj.HybridSystem(
        {"off": hj.Mode(switched(0.0), names), "on": hj.Mode(switched(1.0), names)},
        (
            hj.Transition("off", "on", lambda t, x, e: buck.control(x, values) - x[2], lambda t, x, e: x),
            hj.every(0.4, lambda t, x, e: x.at[2].set(values.ramp_low), source="on", target="off"),
        ),
    )
    step = hj.ReturnMap(system, sequence=("off", "on"), integrator=ROLLED)
    for count, guess, (start, stop), exact in (
        (1, [12.02, 0.606, 3.8], (24.0, 25.0), 24.51657282856338),
        (2, [12.0786, 0.5519, 3.8], (28.0, 32.0), 31.11790200677098),
    ):
        orbit = hj.periodic_orbit(step.repeated(count), jnp.array(guess), jnp.array(start))
        branch = hj.continuation(orbit, where=lambda e: e, stop=stop, throw=False)
        (flip,) = [point for point in branch.special_points if "doubling" in str(point.kind)]
        assert_allclose(flip.value, exact, rtol=1e-9)
