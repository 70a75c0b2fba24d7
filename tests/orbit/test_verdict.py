"""The verdict on orbits: states that return while the forcing does not, whoever looks for them; closed forms."""

import functools as ft

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import _is_period, judged, Problem, run_orbit

SUCCESSFUL, OUT_OF_PHASE = (int(code._value) for code in (hj.RESULTS.successful, hj.RESULTS.out_of_phase))
# Where nothing flows but clocks, the cheapest solver is exact.
CHEAP = hj.Integrator(solver=dfx.Bosh3(), unroll=False)
FLIGHT = hj.Integrator(unroll=False, rtol=1e-11, atol=1e-11)
still = lambda t, x, p: jnp.stack([0 * x[0], 1 + 0 * x[1]])
ticks = lambda reset: (hj.Transition("m", "m", lambda t, x, p: p["w"] - x[1], reset),)
keep = lambda t, x, p: jnp.stack([x[0], 0 * x[1]])


def closed_by_clock(field, reset) -> hj.HybridSystem:
    """A mode with a clock, whose transition takes place each `p["w"]`."""
    return hj.HybridSystem({"m": hj.Mode(field, ("x", "clock"))}, ticks(reset))


# x -> x / 2 + b cos 2 pi t, each w. In phase where w is a whole number: then x = 2 b.
echo = closed_by_clock(still, lambda t, x, p: jnp.stack([x[0] / 2 + p["b"] * jnp.cos(2 * jnp.pi * t), 0 * x[1]]))
# x' = cos 2 pi t: the state at the end of half a period of the forcing is that at its start.
halves = closed_by_clock(
    lambda t, x, p: jnp.stack([p["b"] * jnp.cos(2 * jnp.pi * t), 1 + 0 * x[1]]),
    lambda t, x, p: jnp.stack([x[0] / 2, 0 * x[1]]),
)
# Derivatives at the switches are not compared.
IGNORE_CHOICES = pytest.mark.filterwarnings("ignore:The vector_field of mode 'm' jumps")
# A force of 1 in the first half of each period, -1 in the second.
square = lambda t: jnp.where(jnp.mod(t, 1) < 0.5, 1.0, -1.0)
switched = closed_by_clock(
    lambda t, x, p: jnp.stack([p["b"] * square(t) - x[0], 1 + 0 * x[1]]), lambda t, x, p: jnp.stack([x[0], 0 * x[1]])
)
# A neuron that fires at 1 and starts at 0 again, whenever that is: x' = w + b square(t).
neuron = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: p["w"] + p["b"] * square(t) + 0 * x, ("x",))},
    (hj.Transition("m", "m", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x),),
)
# A ball on a table A sin(omega t + phase), in absolute time, with restitution 1/2.
A, OMEGA, E = 0.2, 2 * np.pi, 0.5
height = lambda t, p: A * jnp.sin(OMEGA * t + p["w"])
table = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: jnp.stack([x[1], -p["b"] + 0 * x[0]]), ("z", "v"))},
    (
        hj.Transition(
            "m", "m", lambda t, x, p: x[0] - height(t, p),
            lambda t, x, p: jnp.stack([height(t, p), -E * x[1] + (1 + E) * A * OMEGA * jnp.cos(OMEGA * t + p["w"])]),
        ),
    ),
)  # fmt: skip


@eqx.filter_jit
def found(system, guess, b, w, strides=1, method=hj.SingleShooting(), integrator=CHEAP):
    """The orbits of a batch of parameters."""

    def one(b, w):
        orbit = hj.periodic_orbit(
            hj.ReturnMap(system, sequence=("m",), strides=strides, integrator=integrator),
            guess,
            {"b": b, "w": w},
            method=method,
            throw=False,
        )
        return orbit.x[0], orbit.residual, orbit.result._value

    return jax.vmap(one)(b, w)


LANES = np.array([(1, 1), (1, 2), (1, 1.3), (1e-3, 1.3), (1, 1.01), (1, 1.5), (1e-6, 1.3), (3, 1)], float).T


@pytest.mark.medium
def test_a_state_that_does_not_return_is_no_orbit():
    """The residual after the closing jump is 1 - cos 2 pi w, and not taken for its own tolerance."""
    x, _, code = found(echo, jnp.array([0.1, 0.0]), *jnp.asarray(LANES))
    in_phase = LANES[1] % 1 == 0
    assert_array_equal(code, np.where(in_phase, SUCCESSFUL, OUT_OF_PHASE))
    assert_allclose(x[in_phase], 2 * LANES[0][in_phase], rtol=1e-14)
    # A lane's result does not depend on the others.
    again = found(echo, jnp.array([0.1, 0.0]), *jnp.asarray(LANES[:, ::-1]))
    assert_array_equal(np.asarray(again[0])[::-1], x)
    assert_array_equal(np.asarray(again[2])[::-1], code)


@pytest.mark.medium
def test_a_state_that_does_not_return_in_single_precision():
    """The tolerance is rounding of states of size 1, some 1e-4: an amplitude of 1e-3 is seen, and one of 1e-6 is not."""
    lanes = LANES.astype(np.float32)
    x, residual, code = found(echo, jnp.array([0.1, 0.0], jnp.float32), *jnp.asarray(lanes))
    assert x.dtype == jnp.float32
    assert_array_equal(np.asarray(code)[:6], np.where(LANES[1, :6] % 1 == 0, SUCCESSFUL, OUT_OF_PHASE))
    assert code[7] == SUCCESSFUL and residual[7] < 1e-4
    assert_allclose(x[0], 2, rtol=1e-6)


@pytest.mark.medium
def test_an_unstable_orbit_in_phase():
    """x -> cos 1 + b (x - cos(2 pi t + 1)): a lap later the phase has another rounding, which grows by b."""
    unstable = closed_by_clock(
        still, lambda t, x, p: jnp.stack([np.cos(1) + p["b"] * (x[0] - jnp.cos(2 * jnp.pi * t + 1)), 0 * x[1]])
    )
    x, _, code = found(unstable, jnp.array([0.5, 0.0]), jnp.array([0.5, 1e8, 1e8]), jnp.array([1.0, 1.0, 1.3]))
    assert_array_equal(code, [SUCCESSFUL, SUCCESSFUL, OUT_OF_PHASE])
    assert_allclose(x[:2], np.cos(1), rtol=1e-13)


@pytest.mark.medium
@pytest.mark.parametrize("method", [hj.SingleShooting(), hj.MultipleShooting()], ids=["single", "multiple"])
def test_two_strides_in_phase(method):
    """x1 = x0 / 2 + cos 2 pi w, x0 = x1 / 2 + cos 4 pi w: in phase at half a period, where x0 = 2/3, as at the whole, 2."""
    w = np.array([0.5, 1.5, 1.0, 0.65])
    x, _, code = found(echo, jnp.array([0.1, 0.0]), jnp.ones(4), jnp.asarray(w), strides=2, method=method)
    assert_array_equal(code, [SUCCESSFUL] * 3 + [OUT_OF_PHASE])
    assert_allclose(x[:3], [2 / 3, 2 / 3, 2], rtol=1e-13)
    if isinstance(method, hj.MultipleShooting):
        _, _, code = found(echo, jnp.array([0.1, 0.0]), jnp.ones(2), jnp.array([0.5, 1.0]), method=method)
        assert_array_equal(code, [OUT_OF_PHASE, SUCCESSFUL])


@pytest.mark.medium
def test_a_second_stride_that_does_not_repeat():
    """x -> x / 2 + 1 each 1/2, and a force that begins at 3/2: of the second lap of two strides it is met by the second."""
    late = closed_by_clock(
        lambda t, x, p: jnp.stack([p["b"] * jnp.maximum(t - 1.5, 0) ** 2, 1 + 0 * x[1]]),
        lambda t, x, p: jnp.stack([x[0] / 2 + 1, 0 * x[1]]),
    )
    x, _, code = found(late, jnp.array([1.9, 0.0]), jnp.array([0.0, 1.0]), jnp.array([0.5, 0.5]), strides=2)
    assert_array_equal(code, [SUCCESSFUL, OUT_OF_PHASE])
    assert_allclose(x[0], 2, rtol=1e-14)


@pytest.mark.medium
def test_forces_of_another_phase_with_the_same_effect():
    """Both laps end in the same state; on the way the vector field is another."""
    _, _, code = found(
        halves, jnp.array([0.1, 0.0]), jnp.array([1.0, 1.0, 0.0]), jnp.array([0.5, 1.0, 0.5]), integrator=FLIGHT
    )
    assert_array_equal(code, [OUT_OF_PHASE, SUCCESSFUL, SUCCESSFUL])


@pytest.mark.medium
@IGNORE_CHOICES
def test_a_reset_that_forgets():
    """The state after a spike is 0, and the time to the next depends on the phase. At w = 1 the neuron fires once in a period:
    the mean of the force is 0."""
    b, w = jnp.array([0.2, 0.2, 0.0, 0.2]), jnp.array([1.0, 1.3, 1.3, 1.005])
    _, _, code = found(neuron, jnp.array([0.0]), b, w, integrator=FLIGHT)
    assert_array_equal(code, [SUCCESSFUL, OUT_OF_PHASE, SUCCESSFUL, OUT_OF_PHASE])


@pytest.mark.medium
def test_a_later_guard():
    """Nothing moves, and x -> x / 2 + 1; a guard that falls at whole numbers of t, or of (t + 1)^(1/2): the second time later."""
    count = lambda t, p: (1 - p["b"]) * t + p["b"] * (jnp.sqrt(t + 1) - 1)
    chirp = hj.HybridSystem(
        {"m": hj.Mode(lambda t, x, p: 0 * x, ("x",))},
        (hj.Transition("m", "m", lambda t, x, p: -jnp.sin(2 * jnp.pi * count(t, p)), lambda t, x, p: x / 2 + p["w"]),),
    )
    x, _, code = found(chirp, jnp.array([0.3]), jnp.array([0.0, 1.0]), jnp.ones(2))
    assert_array_equal(code, [SUCCESSFUL, OUT_OF_PHASE])
    assert_allclose(x[0], 2, rtol=1e-14)


@pytest.mark.medium
@IGNORE_CHOICES
def test_a_force_that_is_switched():
    """At its jumps a rounding of the time decides, also where these are the ends of the laps: in phase all the same. A clock that
    is 1 % slow ends elsewhere, though the force is the same at most times. x' = u - x from the steady state at the switch."""
    x, _, code = found(switched, jnp.array([0.1, 0.0]), jnp.ones(3), jnp.array([1.0, 1.01, 2.0]), integrator=FLIGHT)
    assert_array_equal(code, [SUCCESSFUL, OUT_OF_PHASE, SUCCESSFUL])
    # The integrator's error at a jump within a step.
    assert_allclose(x[jnp.array([0, 2])], -np.tanh(1 / 4), rtol=1e-8)


@pytest.mark.medium
def test_a_ball_on_a_table_in_absolute_time():
    """It bounces once a period, v+ = g T / 2, where the table's velocity at the impact is (1 - e) / (1 + e) g T / 2."""
    g = np.array([2.0, 2.0, 1.5])
    phase = np.arccos((1 - E) / (1 + E) * g / 2 / (A * OMEGA))
    w = phase + np.array([0, 0.1, 0])

    @jax.jit
    @jax.vmap
    def one(g, w, phase):
        guess = jnp.stack([A * jnp.sin(w), g / 2 * 1.01])
        orbit = hj.periodic_orbit(
            hj.ReturnMap(table, sequence=("m",), integrator=FLIGHT), guess, {"b": g, "w": w}, throw=False
        )
        return orbit.x, orbit.period, orbit.result._value

    x, period, code = one(jnp.asarray(g), jnp.asarray(w), jnp.asarray(phase))
    assert_array_equal(code, [SUCCESSFUL, OUT_OF_PHASE, SUCCESSFUL])
    right = np.array([0, 2])
    # The solver's tolerance.
    assert_allclose(x[right], np.stack([A * np.sin(phase), g / 2], axis=1)[right], rtol=1e-9)
    assert_allclose(period[right], 1, rtol=1e-9)


@ft.cache
def echo_orbit():
    params = {"b": jnp.array(1.0), "w": jnp.array(1.0)}
    return hj.periodic_orbit(hj.ReturnMap(echo, sequence=("m",), integrator=CHEAP), jnp.array([0.1, 0.0]), params)


@pytest.mark.medium
def test_a_sweep_over_the_period_of_the_clock():
    """Between the orbits in phase lie states that lead to the next, and are no orbits."""
    w = np.array([1.0, 1.1, 1.2, 1.3, 1.5, 2.0])
    swept = hj.sweep(echo_orbit(), where=lambda p: p["w"], values=w, progress=False)
    in_phase = w % 1 == 0
    assert_array_equal(swept.result, np.where(in_phase, SUCCESSFUL, OUT_OF_PHASE))
    assert_allclose(swept.x[in_phase, 0], 2, rtol=1e-14)
    assert np.all(swept.residual[in_phase] < 1e-12) and np.all(np.isnan(swept.x[~in_phase]))


@pytest.mark.medium
def test_a_branch_ends_where_the_phase_is_lost():
    branch = hj.continuation(echo_orbit(), where=lambda p: p["w"], stop=1.3, throw=False)
    assert branch.result == hj.RESULTS.out_of_phase
    # 1 - cos 2 pi w is below rounding, eps^0.6 = 4e-10, up to w - 1 = 4.5e-6.
    assert np.max(np.abs(branch.values - 1)) < 5e-6 and branch.special_points == ()
    # Along another parameter every point is an orbit.
    other = hj.continuation(echo_orbit(), where=lambda p: p["b"], stop=2.0, throw=False)
    assert other.result == hj.RESULTS.successful
    assert_allclose(other.x[:, 0], 2 * other.values, rtol=1e-13)
    assert np.all(np.asarray(other.orbits.result._value) == SUCCESSFUL)


@pytest.mark.slow
def test_a_search_finds_no_orbits_out_of_phase():
    region = jnp.array([-5.0, 0.0]), jnp.array([5.0, 0.0])
    for w, count in ((1.3, 0), (1.0, 1)):
        params = {"b": jnp.array(1.0), "w": jnp.array(w)}
        orbits = hj.find_orbits(
            hj.ReturnMap(echo, sequence=("m",), integrator=CHEAP), params, region=region, max_starts=128, throw=False
        )
        assert len(orbits) == count


@pytest.mark.slow
def test_an_optimum_is_in_phase():
    """Towards longer periods there is no orbit, and the one from which the search starts is no optimum."""
    gait = hj.optimize(
        echo_orbit(),
        lambda orbit, p: -orbit.period,
        where=lambda p: p["w"],
        bounds=[(0.5, 2.5)],
        throw=False,
        method=hj.objectives.InteriorPoint(second_order=False, max_iterations=30),
    )
    assert gait.result != hj.RESULTS.successful
    # 1 - cos 2 pi w is below rounding, eps^0.6 = 4e-10, up to w - 1 = 4.5e-6.
    assert_allclose(gait.params["w"], 1, rtol=0, atol=5e-6)


@pytest.mark.medium
def test_the_tolerance_of_a_residual():
    """`accept` times the derivative of the closing jump and the size of the states, 1, or at the start of the search where that
    is larger; and no less than rounding."""
    steep = closed_by_clock(still, lambda t, x, p: jnp.stack([1 + p["b"] * (x[0] - 1), 0 * x[1]]))
    params = {"b": jnp.array(100.0), "w": jnp.array(1.0)}
    problem = Problem(steep, ("m",), 1)
    reached = jax.jit(lambda params: run_orbit(problem, jnp.array([1.0, 0.0]), params, hj.SingleShooting(), CHEAP)[0])(
        params
    )
    assert reached.result == hj.RESULTS.successful and reached.residual == 0

    @jax.jit
    def code(off, accept, params, size):
        from hyjax._testing import follow_chain

        chain, _ = follow_chain(problem, reached.x, params, CHEAP)
        chain = eqx.tree_at(lambda chain: chain.end, chain, chain.end + jnp.stack([off, 0 * off]))
        return judged(
            problem, chain, jnp.eye(2), params, CHEAP, chain.result, accept=accept, size=size
        )._value  # fmt: skip

    one = dict(params, b=jnp.array(0.5))
    rounded = np.finfo(float).eps ** 0.6
    cases = (
        (1e-3, params, 1.0, 0.1),
        (1e-3, one, 1.0, 1e-3),
        (0.0, one, 1.0, rounded),
        (1e-3, one, 1e-2, 1e-3),
        (1e-3, one, 3.0, 3e-3),
    )
    for accept, by, size, largest in cases:
        assert code(jnp.array(0.99 * largest), accept, by, jnp.array(size)) == SUCCESSFUL
        assert code(jnp.array(1.01 * largest), accept, by, jnp.array(size)) == int(
            hj.RESULTS.orbit_not_converged._value
        )


# Prescribed periods


@pytest.mark.medium
@pytest.mark.parametrize("strides", [1, 2])
def test_a_period_is_recognized(strides):
    orbit = echo_orbit()
    orbit = eqx.tree_at(lambda orbit: orbit.period, orbit, jnp.array(1.7))
    object.__setattr__(orbit, "strides", strides)
    periods = [hj.objectives.period, lambda o, p: o.period, lambda o, p: o.period / strides]
    assert all(_is_period(each, orbit) for each in periods)
    others = [lambda o, p: 2 * o.period, lambda o, p: 1 / o.period, lambda o, p: o.x[0], lambda o, p: o.period - p["w"]]
    assert not any(_is_period(each, orbit) for each in others)


@pytest.mark.medium
def test_a_prescribed_period_is_positive():
    with pytest.raises(ValueError, match="T=-1 is prescribed for a period, which must be positive"):
        hj.sweep(
            echo_orbit(),
            prescribed={"T": (hj.objectives.period, [1.0, 0.0, -1.0])},
            solve=lambda p: p["w"],
            progress=False,
        )


@pytest.mark.medium
def test_a_lane_of_no_duration_has_a_code():
    """A quantity that is no period, of which 0 and -1 belong to no orbit."""
    still_echo = closed_by_clock(still, lambda t, x, p: jnp.stack([x[0] / 2 + p["b"], 0 * x[1]]))
    start = hj.periodic_orbit(
        hj.ReturnMap(still_echo, sequence=("m",), integrator=CHEAP), jnp.array([1.9, 0.0]), echo_orbit().params
    )
    swept = hj.sweep(
        start,
        prescribed={"c": (lambda o, p: 3 * o.period, [3.0, 1.5, 0.0, -1.0])},
        solve=lambda p: p["w"],
        progress=False,
    )
    assert_allclose(swept.w[:2], [1, 0.5], rtol=1e-13)
    assert np.all(swept.result[:2] == SUCCESSFUL) and np.all(swept.result[2:] != SUCCESSFUL)


# A neuron whose current is 1-periodic, x' = -x + I + b cos(2 pi t), fires at x = 1 and is reset to 0, whatever it was: the state
# after the jump forgets, but the next lap begins at another phase. An orbit of period 1 has
# I (1 - 1/e) + b (1 - 1/e) / (1 + 4 pi^2) = 1, and an event later by d makes the next one later by m d, with
# m = (rate after the jump) / (rate before the jump) / e = (I + b) / (I + b - 1) / e.
def _current(b):
    return 1 / (1 - np.exp(-1)) - b / (1 + 4 * np.pi**2)


LOCKED = hj.HybridSystem(
    {"on": hj.Mode(lambda t, x, p: -x + p["I"] + p["b"] * jnp.cos(2 * jnp.pi * t), ("voltage",))},
    (hj.Transition("on", "on", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x),),
)


@pytest.mark.medium
@pytest.mark.parametrize("b, stable", [(-0.45, False), (0.6, True)])
def test_multipliers_where_the_next_lap_begins_at_another_phase(b, stable):
    expected = (_current(b) + b) / (_current(b) + b - 1) / np.e
    params = {"I": jnp.array(_current(b)), "b": jnp.array(b)}
    orbit = hj.periodic_orbit(
        hj.ReturnMap(LOCKED, sequence=("on",), integrator=hj.Integrator(unroll=False)), jnp.zeros(1), params
    )
    # Two flows and their derivatives at 1e-14.
    assert_allclose(orbit.multipliers.real, [expected], rtol=1e-11)
    assert bool(orbit.stable) == stable == (abs(expected) < 1)
    assert_allclose(orbit.period, 1, rtol=1e-13)
    table = hj.sweep(orbit, where=lambda p: p["b"], values=jnp.array([b, b / 2]), progress=False)
    assert_allclose(table.multipliers_real.values[0], [expected], rtol=1e-9)
    assert list(table.result.values)[0] == 0 and table.result.values[1] != 0
    with pytest.raises(ValueError, match="Make the phase a coordinate"):
        hj.noise.stride_covariance(orbit, noise=lambda p: p["b"])


@pytest.mark.medium
def test_multipliers_where_the_reset_knows_the_phase():
    """x -> x / 2 + b sin 2 pi t each 1: a tick that is late by d is late by d ever after, and changes x by 2 pi b d."""
    tocks = closed_by_clock(still, lambda t, x, p: jnp.stack([x[0] / 2 + p["b"] * jnp.sin(2 * jnp.pi * t), 0 * x[1]]))
    params = {"b": jnp.array(1.0), "w": jnp.array(1.0)}
    orbit = hj.periodic_orbit(hj.ReturnMap(tocks, sequence=("m",), integrator=CHEAP), jnp.array([0.1, 0.0]), params)
    assert_allclose(jnp.sort(jnp.abs(orbit.multipliers)), [0.5, 1], rtol=1e-12)


@pytest.mark.medium
def test_multipliers_of_two_strides_at_another_phase():
    """The square of those of one."""
    b = 0.6
    params = {"I": jnp.array(_current(b)), "b": jnp.array(b)}
    orbit = hj.periodic_orbit(
        hj.ReturnMap(LOCKED, sequence=("on",), strides=2, integrator=FLIGHT), jnp.zeros(1), params
    )
    # The solver's tolerance.
    assert_allclose(orbit.multipliers.real, [((_current(b) + b) / (_current(b) + b - 1) / np.e) ** 2], rtol=1e-9)


@pytest.mark.medium
def test_a_forcing_of_amplitude_zero_leaves_the_phase_free():
    """As of an autonomous system, the multiplier along the flow counts as 0."""
    params = {"I": jnp.array(_current(0.0)), "b": jnp.array(0.0)}
    orbit = hj.periodic_orbit(
        hj.ReturnMap(LOCKED, sequence=("on",), integrator=hj.Integrator(unroll=False)), jnp.zeros(1), params
    )
    assert_allclose(jnp.abs(orbit.multipliers), [0], atol=1e-13)


@pytest.mark.medium
def test_a_loop_at_rest_between_ticks():
    """A guess at rest has no scale of time, beside which the period could vanish."""
    flow = lambda t, x, p: jnp.stack([x[1] - x[0]])
    loop = hj.HybridSystem(
        {"m": hj.Mode(flow, ("x",), held=("u",))}, (hj.every(1.0, lambda t, x, p: jnp.stack([x[0], -p * x[0]])),)
    )
    step = hj.ReturnMap(loop, sequence=("m",), integrator=FLIGHT)
    orbit = hj.periodic_orbit(step, jnp.zeros(2), jnp.array(0.8))
    assert_allclose(orbit.period, 1, rtol=1e-15)
    decay = np.exp(-1)
    # The integrator's tolerance, of a few steps.
    assert_allclose(np.max(np.abs(orbit.multipliers)), abs(decay - 0.8 * (1 - decay)), rtol=0, atol=1e-9)
