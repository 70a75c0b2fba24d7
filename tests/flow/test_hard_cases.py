"""Small systems that are easy to get wrong, each against its closed form."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from systems import leave, line, logistic, map_of, oscillate, ROLLED, with_time

import hyjax as hj
from hyjax._testing import code_names

RESULTS = hj.RESULTS
# A solver that is compiled quicker still, exact for the clock of a map.
exact = hj.Integrator(dfx.Bosh3(), rtol=1e-13, atol=1e-13)


def of_kind(kind, *values):
    """The value with the number `kind`: several cases in one program."""
    return jnp.select([kind == k for k in range(len(values))], values)


def unchanged(t, x, p):
    return x


def has(trajectory, code):
    return np.all(trajectory.result._value == code._value)


def names(found):
    return code_names(found.result)


# Surfaces that are met slowly, and those that are met with a rate of zero


@pytest.mark.parametrize(("field", "guard", "at"), [
    (lambda t, x, p: -x, lambda t, x, p: x[0] - 1e-12, 12 * np.log(10)),
    (lambda t, x, p: jnp.ones(1), lambda t, x, p: (1 - x[0]) ** 3, None),
    (lambda t, x, p: jnp.ones(1), lambda t, x, p: (x[0] - 1) ** 2 - 1e-16, None),
], ids=["decay", "triple root", "touch"])  # fmt: skip
def test_only_a_rate_of_zero_is_grazing(field, guard, at):
    end = hj.flow_to_guard(leave(field, 1, guard), "free", 0.0, jnp.full(1, 1.0 if at else 0.0), None, throw=False)
    assert has(end, RESULTS.grazing if at is None else RESULTS.successful)
    # The state 1e-12 is known to 1e-14 of 1: the time to a hundredth.
    assert at is None or abs(end.t - at) < 1e-2


@pytest.mark.medium
def test_gradient_beside_a_guard_that_is_not_a_number():
    """The second guard is the root of a negative number at the event, where its derivative is NaN."""
    beside = hj.Transition("free", "free", lambda t, x, p: jnp.sqrt(x[0] - p), unchanged)
    free = leave(lambda t, x, p: -p * jnp.ones(1), 1, lambda t, x, p: x[0])
    system = hj.HybridSystem(free.modes, (*free.transitions, beside))
    time = lambda p: hj.flow_to_guard(system, "free", 0.0, jnp.ones(1), p, integrator=ROLLED).t
    # The speed is p, and so the time 1/p, which is 1/2 at 2. Both guards below are NaN there: sqrt(0 - 2).
    assert_allclose(
        jax.jit(jax.vmap(jax.value_and_grad(time)))(jnp.array([2.0, 4.0])),
        [[1 / 2, 1 / 4], [-1 / 4, -1 / 16]],
        rtol=1e-14,
    )


@pytest.mark.medium
def test_states_that_are_not_finite():
    system = leave(lambda t, x, p: jnp.stack([x[1], -jnp.ones(())]), 2, lambda t, x, p: x[0])
    starts = jnp.array([[np.inf, 0], [1, np.inf], [0, -np.inf], [np.nan, 0], [1, np.nan]])
    simulated = lambda x: hj.simulate(system, x, None, mode="free", t0=1.0, t1=2.0, integrator=ROLLED, throw=False)
    met = lambda x: hj.flow_to_guard(system, "free", 1.0, x, None, integrator=ROLLED, throw=False)
    for run in (simulated, met):
        assert has(jax.vmap(run)(starts), RESULTS.nonfinite)


@pytest.mark.medium
@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_orbit_of_a_stride_that_forgets_its_start(unit):
    """x' = 2 - x falls by 1/2 when it comes to 1: the end of the first stride does not depend on the guess, and every guess is a
    state after some jump, but the orbit starts at 1/2. Its period is the logarithm of 3/2. In any unit of x."""
    spike = hj.Transition("m", "m", lambda t, x, p: p - x[0], lambda t, x, p: x - p / 2)
    system = hj.HybridSystem({"m": hj.Mode(lambda t, x, p: 2 * p - x, ("x",))}, (spike,))
    step = hj.ReturnMap(system, sequence=("m",), integrator=ROLLED)
    method = hj.SingleShooting(coarse=())
    orbit = hj.periodic_orbit(step, jnp.array([0.503 * unit]), jnp.array(unit), method=method)
    assert_allclose(orbit.x, unit / 2, rtol=1e-15)
    assert_allclose(orbit.period, np.log(1.5), rtol=1e-13)


# Guards whose gradient does not exist, or is infinite, where the flow starts


@pytest.mark.medium
def test_a_guard_without_a_gradient_at_the_start():
    """The norm has none there, and the slope of the square root is infinite."""
    guard = lambda t, x, p: 2 - jnp.linalg.norm(x) - jnp.sqrt(x[1] / 4)
    system = leave(lambda t, x, p: jnp.array([3.0, 4.0]), 2, guard)
    run = lambda x: hj.simulate(system, x, None, mode="free", t1=1.0, integrator=ROLLED)
    starts = jnp.array([[0.0, 0.0], [0.01, 0.02]])
    by_start, walk = jax.jit(jax.vmap(jax.jacfwd(lambda x: ((walk := run(x)).end_times[0], walk), has_aux=True)))(
        starts
    )
    assert has(walk, RESULTS.successful) and np.all(walk.jumps == 1)
    # 5 t + sqrt(t) = 2
    assert_allclose(walk.end_times[0, 0], ((np.sqrt(41) - 1) / 10) ** 2, rtol=1e-14)
    assert np.all(np.isfinite(by_start[1]))


# Plastic impacts, and balls that rest on the floor


def fall(t, x, p):
    return jnp.stack([x[1], -9.81 + 0 * x[1]])


FLOORS = ("as it is", "set to zero", "higher", "in other units", "curved", "sinking")


def above(t, x, p):
    z = x[0]
    return of_kind(p["floor"], z, z, z - 1, 3e6 * z, jnp.sin(z), z + 0.1 * t)


def bounce(t, x, p):
    back = -p["e"] * x[1]
    z = jnp.where(p["floor"] == 1, 0 * x[0], x[0])
    return jnp.stack([z, jnp.where(p["floor"] == 5, -0.1 - p["e"] * (x[1] + 0.1), back)])


floors = hj.HybridSystem({"m": hj.Mode(fall, ("z", "v"))}, (hj.Transition("m", "m", above, bounce),))


@jax.jit
@jax.vmap
def dropped(x, e, kind, end):
    return hj.simulate(floors, x, {"e": e, "floor": kind}, mode="m", t1=end, integrator=ROLLED, throw=False)


@pytest.mark.medium
def test_plastic_impacts_and_balls_that_rest_on_floors_or_are_thrown():
    """Plastic impacts on each floor end on it, a ball at rest stays, and one that is thrown flies."""
    h, e, kind = (each.ravel() for each in np.meshgrid(np.linspace(0.1, 3, 8), [0, 1e-16, 1e-12, 1e-8, 1e-4], range(6)))
    height = np.where(kind == 2, 1.0, 0.0)
    z = np.concatenate([height + h, [0.0, 1e-300, 1e-17], [0.0]])
    v = np.append(np.zeros(z.size - 1), 1e-3)
    rest = np.zeros(4)
    end = np.append(np.full(z.size - 1, 10.0), 1e-4)
    walk = dropped(np.stack([z, v], axis=1), np.append(e, rest), np.append(kind, rest), end)
    plastic, still, thrown = np.split(np.asarray(walk.x), [h.size, h.size + 3])
    assert set(names(walk)[:-1]) == {"zeno"} and names(walk)[-1] == "successful"
    # Where it rests: on the floor, at the time of the last event, to the digits of the fall.
    at = plastic[:, 0] + np.where(kind == 5, 0.1 * np.asarray(walk.t)[: h.size], 0)
    for number, name in enumerate(FLOORS):
        assert_allclose(at[kind == number], height[kind == number], rtol=0, atol=1e-13, err_msg=name)
    assert np.all(np.abs(still[:, 0]) <= 1e-14)
    assert_allclose(thrown[0], [1e-3 * 1e-4 - 9.81e-8 / 2, 1e-3 - 9.81e-4], rtol=1e-10)


@pytest.mark.medium
def test_plastic_impacts_on_slopes():
    """The speed at which the ball leaves the slope is rounding, of either sign."""
    normal = lambda p: jnp.stack([jnp.sin(p), jnp.cos(p)])
    way = hj.Transition(
        "m", "m", lambda t, x, p: normal(p) @ x[:2], lambda t, x, p: x.at[2:].add(-normal(p) * (normal(p) @ x[2:]))
    )
    field = lambda t, x, p: jnp.stack([x[2], x[3], 0 * x[2], -9.81 + 0 * x[3]])
    system = hj.HybridSystem({"m": hj.Mode(field, ("x", "y", "v", "w"))}, (way,))
    angles = jnp.linspace(0.1, 1.2, 32)
    one = lambda p: hj.simulate(
        system, jnp.array([0.0, 1.0, 0.3, 0.0]), p, mode="m", t1=5.0, integrator=ROLLED, throw=False
    )
    walk = jax.jit(jax.vmap(one))(angles)
    assert has(walk, RESULTS.zeno)
    assert_allclose(jax.vmap(lambda x, p: normal(p) @ x[:2])(walk.x, angles), 0, atol=1e-13)


@pytest.mark.medium
def test_a_ball_that_is_released_on_the_floor_stays():
    """From another mode, which held it there."""
    held = hj.Mode(lambda t, x, p: 0 * x, ("z", "v"))
    ways = (*floors.transitions, hj.Transition("held", "m", lambda t, x, p: 1 - t, unchanged))
    system = hj.HybridSystem({**floors.modes, "held": held}, ways)
    params = {"e": jnp.array(0.5), "floor": jnp.array(0.0)}
    walk = hj.simulate(system, jnp.zeros(2), params, mode="held", t1=10.0, integrator=ROLLED, throw=False)
    assert has(walk, RESULTS.zeno) and walk.jumps == 1 and abs(walk.x[0]) <= 1e-14


@pytest.mark.medium
def test_a_hop_that_no_step_resolves_does_not_end_below_the_floor():
    """At the time zero, where a time of any size counts; the pressure, whose changes limit the steps, is not small."""
    field = lambda t, x, p: jnp.stack([x[1], -2.5 + 0 * x[1], 5 - 1e-3 * x[2] ** 2])
    way = hj.Transition("m", "m", lambda t, x, p: x[0], lambda t, x, p: x.at[1].multiply(-0.8))
    system = hj.HybridSystem({"m": hj.Mode(field, ("z", "v", "pressure"))}, (way,))
    run = lambda speed: hj.simulate(
        system, jnp.stack([0 * speed, speed, 7.5 + 0 * speed]), None, mode="m", t1=1.0, integrator=ROLLED, throw=False
    )
    walk = jax.jit(jax.vmap(run))(jnp.array([1e-13, 1e-15, 1e-17, 1e-30]))
    assert set(names(walk)) <= {"zeno", "max_jumps_reached"}
    assert np.all(np.abs(walk.x[:, 0]) <= 1e-14)


# Time


@pytest.mark.medium
def test_time_runs_forward():
    """A traced end before the start, as one lane of a batch."""
    system = hj.HybridSystem({"m": hj.Mode(oscillate, ("a", "b"))}, ())
    run = lambda t1: hj.simulate(
        system, jnp.array([1.0, 0.0]), None, mode="m", t0=1.0, t1=t1, integrator=ROLLED, throw=False
    )
    batch = jax.jit(jax.vmap(run))
    ends = jnp.array([2.0, -4.0, 1.0])
    walks = batch(ends)
    assert names(walks) == ["successful", "time_reversed", "successful"]
    others = batch(ends.at[1].set(1.5))
    assert np.array_equal(walks.x[0], others.x[0]) and np.array_equal(walks.x[2], [1, 0])
    assert_allclose(walks.x[0], [np.cos(1), -np.sin(1)], rtol=0, atol=1e-14)
    assert np.array_equal(walks.x[1], [1, 0])


@pytest.mark.medium
def test_short_times():
    """Power electronics lives at nanoseconds: an oscillator over two radians, and the time of its zero."""
    system = leave(lambda t, x, p: p * oscillate(t, x, p), 2, lambda t, x, p: x[0])
    start, w = jnp.array([1.0, 0.0]), jnp.array([1e6, 1e9, 1e12, 1e15])
    run = lambda w: (
        hj.simulate(system, start, w, mode="free", t1=1.5 / w, integrator=ROLLED).x,
        hj.flow_to_guard(system, "free", 0.0, start, w, integrator=ROLLED).t,
    )
    x, t = jax.jit(jax.vmap(run))(w)
    assert_allclose(x, np.tile([np.cos(1.5), -np.sin(1.5)], (4, 1)), rtol=0, atol=1e-14)
    assert_allclose(t * w, np.pi / 2, rtol=1e-14)


@pytest.mark.medium
def test_a_steep_guard_on_a_straight_flow():
    """The solver is exact here, and its steps grow: the guard is the only thing that bends."""
    system = leave(line, 1, lambda t, x, p: 2 - jnp.exp(jnp.minimum(p["steep"] * (x[0] - p["at"]), 700.0)))
    steep, at = np.array([1e4, 1e6]), np.array([100.0, 1e4])
    run = lambda p: hj.flow_to_guard(system, "free", 0.0, jnp.zeros(1), p, integrator=with_time(ROLLED, 10 * p["at"])).t
    assert_allclose(jax.jit(jax.vmap(run))({"steep": steep, "at": at}), at + np.log(2) / steep, rtol=4e-15)


# Guards that vary faster than the flow


def straight_up_and_down(t, x, p):
    """Ballistic flight, which the solver integrates exactly, in steps of any length."""
    return jnp.stack([x[1], 0 * x[1], x[3], -1 + 0 * x[3]])


def above_a_table_or_waves(t, x, p):
    return x[2] - p[0] * jnp.sin(p[1] * jnp.where(p[2] > 0, x[0], t))


def first_fall(height, rate):
    """The first zero of a function of time, from samples a hundredth of its shortest time apart."""
    times = np.arange(0, 40, 0.01 / rate)
    first = np.argmax(height(times) <= 0)
    return brentq(height, times[first - 1], times[first], xtol=1e-15, rtol=1e-14)


@pytest.mark.medium
def test_guards_that_vary_faster_than_the_flow():
    """Steps in free flight grow without bound, and the guard turns many times in each."""
    system = leave(straight_up_and_down, 4, above_a_table_or_waves)
    kinds = [[0.5, 3.0], [0.1, 10.0], [0.05, 60.0], [0.5, 30.0], [1.0, 20.0], [0.3, 60.0]]
    size, rate = np.tile(kinds, (8, 1)).T
    start = np.random.default_rng(1).uniform(0.8, 1.2, (48, 1)) * np.repeat([[3.0], [300.0]], 24, axis=0)
    x = np.concatenate([0 * start, 1 + 0 * start, start, 0 * start], axis=1)
    run = jax.jit(jax.vmap(lambda x, p: hj.flow_to_guard(system, "free", 0.0, x, p, integrator=ROLLED)))
    p = np.concatenate([np.stack([size, rate, np.full(48, waves)], axis=1) for waves in (0.0, 1.0)])
    end = run(np.tile(x, (2, 1)), p)
    # With the horizontal speed 1, both surfaces are A sin(w t).
    times = [
        first_fall(lambda t, a=a, w=w, z=z: z - t**2 / 2 - a * np.sin(w * t), w)
        for a, w, z in zip(size, rate, start[:, 0], strict=True)
    ]
    # The tolerance of the height, 300 eps, over the least speed of approach.
    assert_allclose(end.t, np.tile(times, 2), rtol=1e-12)
    assert np.all(np.asarray(end.steps) < 1000)


@pytest.mark.medium
def test_a_discontinuous_guard_is_met():
    """No step resolves a guard that jumps; its fall is still located."""
    system = leave(line, 1, lambda t, x, p: jnp.where(x[0] < 3.3, 3.5 + jnp.floor(x[0] - 3.3), -1) - x[0] / 100)
    end = hj.flow_to_guard(system, "free", 0.0, jnp.array([1.0]), None)
    assert_allclose(end.x, 3.3, rtol=1e-14)


# Two flows that meet on a surface


def relay(reset=unchanged):
    up, down = (hj.Mode(lambda t, x, p, s=s: s * jnp.ones(1), ("x",)) for s in (1, -1))
    ways = (
        hj.Transition("down", "up", lambda t, x, p: x[0], reset),
        hj.Transition("up", "down", lambda t, x, p: -x[0], reset),
    )
    return hj.HybridSystem({"down": down, "up": up}, ways)


@pytest.mark.medium
def test_a_relay_slides():
    """From a distance, and from the surface."""
    system, starts = relay(), jnp.array([[1.0], [0.0]])
    walk = jax.jit(
        jax.vmap(lambda x: hj.simulate(system, x, None, mode="down", t1=5.0, integrator=ROLLED, throw=False))
    )(starts)
    assert has(walk, RESULTS.sliding)
    assert_allclose(walk.x, 0, atol=1e-14)
    assert_allclose(walk.t, np.abs(starts[:, 0]), atol=1e-14)


@pytest.mark.medium
def test_a_hysteresis_does_not_slide():
    """Switching up and down at different levels: the way back leaves from somewhere else."""
    up, down = (hj.Mode(lambda t, x, p, s=s: s * jnp.ones(1), ("x",)) for s in (1, -1))
    ways = (
        hj.Transition("down", "up", lambda t, x, p: x[0] + 0.5, unchanged),
        hj.Transition("up", "down", lambda t, x, p: 0.5 - x[0], unchanged),
    )
    system = hj.HybridSystem({"down": down, "up": up}, ways)
    walk = hj.simulate(system, jnp.zeros(1), None, mode="up", t1=5.0, integrator=ROLLED)
    assert has(walk, RESULTS.successful) and walk.jumps == 5


@pytest.mark.medium
def test_what_does_not_slide():
    """Guards of both modes are zero and fall; but the jump leads elsewhere, or the flow behind does not lead back."""
    field = lambda t, x, p: p["speed"] * jnp.ones(1)
    modes = {"a": hj.Mode(lambda t, x, p: -jnp.ones(1), ("x",)), "b": hj.Mode(field, ("x",))}
    ways = (
        hj.Transition("a", "b", lambda t, x, p: x[0], lambda t, x, p: x + p["shift"]),
        hj.Transition("b", "a", lambda t, x, p: -p["speed"] * x[0], lambda t, x, p: x - p["shift"]),
    )
    system, params = hj.HybridSystem(modes, ways), {"shift": jnp.array([0.1, 0.0]), "speed": jnp.array([1.0, -1.0])}
    run = lambda p: hj.simulate(system, jnp.zeros(1), p, mode="a", t1=1.0, integrator=ROLLED)
    walk = jax.jit(jax.vmap(run))(params)
    assert has(walk, RESULTS.successful) and np.all(walk.jumps == 0)
    assert_allclose(walk.x, -1, rtol=1e-14)


# Maps that are not injective, as orbits


def logistic_beside(t, x, p):
    return jnp.stack([logistic(x[0], p), p["big"], 0 * x[2]])


# The logistic map, and beside it a coordinate that it sets to a number of any size.
beside = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: jnp.stack([0 * x[0], 0 * x[1], 1 + 0 * x[2]]), ("x", "w", "clock"))},
    (hj.Transition("m", "m", lambda t, x, p: 1 - x[2], logistic_beside),),
)


@pytest.mark.medium
def test_orbits_with_coordinates_of_different_size():
    """The parameters are Python's numbers, which are arrays: no program is compiled again for another value."""
    for big in (1.0, 1e3, 1e-3):
        region = (jnp.array([0.0, big, 0.0]), jnp.array([1.0, big, 0.0]))
        params = {"r": 3.2, "big": big}
        found = hj.find_orbits(hj.ReturnMap(beside, sequence=("m",), integrator=exact), params, region=region)
        assert_allclose(np.sort(found.x[:, 0]), [0, 1 - 1 / 3.2], atol=1e-14)


@pytest.mark.medium
def test_a_parameter_that_is_a_whole_number_is_continued():
    system, params = map_of(logistic), {"r": jnp.array(2)}
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",), integrator=exact), jnp.array([0.45, 0.0]), params)
    branch = hj.continuation(orbit, where=lambda p: p["r"], stop=2.9)
    assert has(branch, RESULTS.successful) and branch.values[-1] == 2.9
    assert_allclose(branch.x[:, 0], 1 - 1 / branch.values, rtol=1e-13)


@pytest.mark.medium
def test_python_numbers_are_parameters():
    """As arrays: no program is compiled again for another value."""
    system = leave(oscillate, 2, lambda t, x, p: x[0] - p["q"])
    for q in (0.1, 0.2):
        fall = hj.flow_to_guard(system, "free", 0.0, jnp.array([1.0, 0.0]), {"q": q}, integrator=ROLLED)
        assert_allclose(fall.t, np.arccos(q), rtol=1e-14)


# A filter of a cosine of period 1, closed by a clock of another period.
forced = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: jnp.stack([-x[0] + jnp.cos(2 * jnp.pi * t), 1.0 + 0 * x[0]]), ("x", "clock"))},
    (hj.Transition("m", "m", lambda t, x, p: p - x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]])),),
)


@pytest.mark.medium
def test_a_forced_orbit_returns_with_its_forcing():
    for period, code in ((1.0, RESULTS.successful), (2.0, RESULTS.successful), (0.7, RESULTS.out_of_phase)):
        guess = jnp.array([0.1, 0.0])
        orbit = hj.periodic_orbit(
            hj.ReturnMap(forced, sequence=("m",), integrator=ROLLED), guess, jnp.array(period), throw=False
        )
        assert has(orbit, code)
        if code == RESULTS.successful:
            # x' = -x + cos 2 pi t: the steady state at t = 0.
            assert_allclose(orbit.x[0], 1 / (1 + 4 * np.pi**2), rtol=1e-12)


# What JAX allows elsewhere


@pytest.mark.medium
def test_gradients_under_checkpoint():
    system = leave(oscillate, 2, lambda t, x, p: x[0] - p)
    time = lambda p: hj.flow_to_guard(system, "free", 0.0, jnp.array([1.0, 0.0]), p, integrator=ROLLED).t
    assert_allclose(jax.grad(jax.checkpoint(time))(0.3), -1 / np.sqrt(1 - 0.09), rtol=1e-13)


@pytest.mark.medium
def test_networks_as_parameters():
    """A module with functions among its leaves, through `simulate`, its samples and its derivatives."""
    network = eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    system = leave(lambda t, x, p: 1 + 0.1 * p(x), 2, lambda t, x, p: 1 - x[0])

    def simulated(p):
        walk = hj.simulate(system, jnp.zeros(2), p, mode="free", t1=2.0, max_jumps=1, integrator=ROLLED)
        return walk.end_times[0], walk

    def met(p):
        fall = hj.flow_to_guard(system, "free", 0.0, jnp.zeros(2), p, integrator=ROLLED)
        return fall.t, fall

    by_weights, walk = eqx.filter_jit(eqx.filter_grad(simulated, has_aux=True))(network)
    expected, fall = eqx.filter_jit(eqx.filter_grad(met, has_aux=True))(network)
    assert_allclose(walk.end_times[0], fall.t, rtol=1e-14)
    assert_allclose(walk.sample(2)[0].x[-1], fall.x, rtol=0, atol=1e-13)
    for got, other in zip(jax.tree.leaves(by_weights), jax.tree.leaves(expected), strict=True):
        assert_allclose(got, other, rtol=1e-10, atol=1e-14)


@pytest.mark.medium
def test_a_guard_of_large_numbers_at_its_own_rounding():
    """In float32 0.1 + 0.11 is more than 0.21 by 1.5e-8, which in another unit is any number: a fall from the surface does not
    fire."""
    guard = lambda t, x, p: p[0] * (((x[0] + p[1]) + p[2]) - p[3])
    fall = hj.Mode(lambda t, x, p: jnp.stack([x[1], -jnp.ones_like(t) / 10]), ("y", "y_rate"))
    up = hj.Transition("fall", "fall", guard, lambda t, x, p: jnp.stack([x[0] + 1, -x[1] / 2]))
    system, x = hj.HybridSystem({"fall": fall}, (up,)), jnp.array([0.0, -1e-9], jnp.float32)
    run = lambda p: hj.simulate(system, x, p, mode="fall", t1=1e-3, max_jumps=2, throw=False, integrator=ROLLED)
    units = jnp.array([[unit, 0.1, 0.11, 0.21] for unit in (1.0, 1e5, 1e7, 1e9)], jnp.float32)
    assert np.all(np.asarray(jax.vmap(lambda p: guard(0.0, x, p))(units)) > 0)
    assert_allclose(jax.vmap(run)(units).jumps, 0)
