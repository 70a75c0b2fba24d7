"""Simulation through modes that nobody named: closed forms, three routes to sensitivities, and how it ends."""

import functools as ft
import re

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case
from systems import line, ROLLED, same
from test_multimode import LEAKY, leaky, leaky_stride

import hyjax as hj
from hyjax._testing import Automaton, number, PerMode
from hyjax.models import ball_on_slope, bouncing_ball, simplest_walker

RESULTS = hj.RESULTS
BALL = bouncing_ball.system


# The bouncing ball, in closed form


def drop(q, end):
    """`(y, v)` of a ball dropped from h0, at a fixed time: with its trajectory. `q` is (e, g, h0)."""
    params = bouncing_ball.Params(restitution=q[0], gravity=q[1])
    x0 = jnp.stack([q[2], jnp.zeros(())])
    trajectory = hj.simulate(BALL, x0, params, mode="flight", t1=end, max_jumps=20, integrator=ROLLED)
    return trajectory.x, trajectory


def backward(q, end):
    by_q, trajectory = jax.jacrev(drop, has_aux=True)(q, end)
    return by_q, (by_q, trajectory)


@pytest.fixture(scope="module")
def balls():
    """The three records; and elastic bounces from 45 at g = 10 until 15."""
    records = [case("F_bouncing_ball", f"case{k}") for k in (1, 2, 3)]
    q = jnp.array([[r["e"], r["g"], r["h0"]] for r in records] + [[1.0, 10.0, 45.0]])
    end = jnp.array([*(r["t_final"] for r in records), 15.0])
    by_qq, (by_q, trajectory) = jax.jit(jax.vmap(jax.jacfwd(backward, has_aux=True)))(q, end)
    return {"records": records, "trajectory": trajectory, "by_q": by_q, "by_qq": by_qq}


@pytest.mark.medium
def test_ball_at_a_fixed_time(balls):
    """State, gradient, and Hessian, forward over reverse: they multiply up over a dozen bounces."""
    for i, record in enumerate(balls["records"]):
        trajectory = balls["trajectory"][i]
        assert int(trajectory.jumps) == record["bounces_before_t_final"]
        assert_allclose(trajectory.x, [record["y(t_final)"], record["v(t_final)"]], rtol=0, atol=1e-12)
        times = record["impact_times"][: int(trajectory.jumps)]
        assert_allclose([event.t for event in trajectory.events][: len(times)], times, rtol=1e-13)
        gradient = np.array([record["dy_d(e,g,h0)"], record["dv_d(e,g,h0)"]])
        assert_allclose(balls["by_q"][i], gradient, rtol=1e-11)
        hessian = np.array([record["hessian_y_(e,g,h0)"], record["hessian_v_(e,g,h0)"]])
        assert_allclose(balls["by_qq"][i], hessian, rtol=1e-10)


@pytest.mark.medium
def test_impact_at_the_end_time_is_taken(balls):
    """Elastic bounces from 45 at g = 10 come at 3, 9 and 15; at 15 the ball has turned round."""
    trajectory = balls["trajectory"][3]
    assert int(trajectory.jumps) == 3
    assert_allclose(trajectory.final, [0.0, 30.0], rtol=1e-13, atol=1e-12)


# A system with everything: dimensions 2 and 1, a guard and resets that depend on time, two ways out of a mode


def table(t, p):
    return p["a"] * jnp.sin(p["w"] * t)


def table_rate(t, p):
    return p["a"] * p["w"] * jnp.cos(p["w"] * t)


def over_table(t, x, p):
    return x[0] - table(t, p)


def slow(t, x, p):
    return x[1] - table_rate(t, p) > -p["soft"]


MIXED = hj.HybridSystem(
    modes={
        "flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], -1 - 0.1 * jnp.sin(x[0]) * x[1]]), ("y", "v")),
        "rest": hj.Mode(lambda t, x, p: -p["k"] * x + 0.1 * jnp.cos(t), ("charge",)),
    },
    transitions=(
        hj.Transition(
            "flight", "flight", over_table,
            lambda t, x, p: jnp.stack([x[0], -p["e"] * x[1] + (1 + p["e"]) * table_rate(t, p)]),
            armed=lambda t, x, p: ~slow(t, x, p),
        ),
        hj.Transition("flight", "rest", over_table, lambda t, x, p: jnp.stack([1 - x[1] + jnp.sin(t)]), armed=slow),
        hj.Transition(
            "rest", "flight",
            lambda t, x, p: x[0] - p["level"] * (1 + 0.1 * jnp.sin(t)),
            lambda t, x, p: jnp.stack([table(t, p), 2 * x[0] + table_rate(t, p) + 0.3 * jnp.cos(t)]),
        ),
    ),
)  # fmt: skip
MIX = {k: jnp.array(v) for k, v in dict(a=0.1, w=2.0, e=0.7, soft=0.9, k=0.8, level=0.9).items()}


@eqx.filter_jit
def mixed_until(x0, p, t1):
    return hj.simulate(MIXED, x0, p, mode="flight", t1=t1, max_jumps=30, integrator=ROLLED, throw=False)


def mix(x0, p, t1=10.0):
    """By one program for all end times."""
    return mixed_until(x0, p, jnp.array(t1))


@pytest.fixture(scope="module")
def mixed():
    return mix(jnp.array([2.0, 0.3]), MIX)


def central(f, h=1e-3):
    """The derivative of `f` at zero by differences of the sixth order."""
    weights = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
    return sum(w * (np.asarray(f(k * h)) - np.asarray(f(-k * h))) for k, w in weights.items()) / h


@pytest.mark.medium
def test_modes_follow_each_other(mixed):
    assert mixed.result == RESULTS.successful
    assert {"flight", "rest"} == set(mixed.mode_names)
    assert len({event.transition for event in mixed.events}) == 3
    for event, following in zip(mixed.events, mixed.mode_names[1:], strict=True):
        assert event.target == following
        transition = MIXED.transitions[event.transition]
        assert event.before.size == MIXED.modes[event.source].dimension
        assert_allclose(event.after, transition.reset(event.t, event.before, MIX), rtol=1e-15)
        assert abs(transition.guard(event.t, event.before, MIX)) <= 1e-14
        assert event.guard_rate < 0
    # Padding stays zero.
    rest = np.array(mixed.modes) == 1
    assert np.all(np.asarray(mixed.x_ends)[rest, 1] == 0)


def test_each_arc_is_that_of_flow_to_guard(mixed):
    """The same, arc by arc, by the function for a known mode: to the tolerance of the flow, 1e-14 a step."""
    for k, event in enumerate(mixed.events[:4]):
        x = mixed.x_starts[k, : MIXED.modes[event.source].dimension]
        impact = hj.flow_to_guard(MIXED, event.source, float(mixed.start_times[k]), x, MIX, integrator=ROLLED)
        assert_allclose(impact.t, event.t, rtol=1e-13)
        assert_allclose(impact.x, event.before, rtol=1e-12, atol=1e-13)
        assert int(impact.transition) == event.transition


@pytest.mark.medium
def test_sensitivity_by_three_routes(mixed):
    """Saltation matrices, autodiff forward and reverse, and finite differences (good to 1e-11 / h)."""
    x0 = jnp.array([2.0, 0.3])
    product = mixed.fundamental_matrix()
    final = lambda x0: mix(x0, MIX).x
    forward = jax.jacfwd(final)(x0)[: product.shape[0]]
    reverse = jax.jacrev(final)(x0)[: product.shape[0]]
    unit = np.eye(2)
    differences = np.stack([central(lambda h, v=v: final(x0 + h * v)) for v in unit], axis=1)[: product.shape[0]]
    scale = np.max(np.abs(forward))
    assert scale > 0.01
    assert_allclose(product, forward, rtol=0, atol=1e-11 * scale)
    assert_allclose(reverse, forward, rtol=0, atol=1e-13 * scale)
    assert_allclose(differences, forward, rtol=0, atol=1e-9 * scale)


@pytest.mark.slow
def test_derivatives_by_parameters_and_end_time(mixed):
    x0 = jnp.array([2.0, 0.3])
    final = lambda p, t1: mix(x0, p, t1).x
    by_p, by_t = jax.jacrev(final, argnums=(0, 1))(MIX, jnp.array(10.0))
    for name in MIX:
        apart = central(lambda h, name=name: final(MIX | {name: MIX[name] + h}, jnp.array(10.0)), h=2e-4)
        assert_allclose(by_p[name], apart, rtol=1e-8, atol=1e-9)
    field = MIXED.modes[mixed.mode_names[-1]].vector_field(10.0, mixed.final, MIX)
    assert_allclose(by_t[: field.size], field, rtol=1e-12)


# A batch; one program


@pytest.mark.medium
def test_one_program_for_all_sequences():
    """Other starts, other sequences of modes: nothing is compiled again, and lanes do not touch each other."""
    starts = jnp.stack([jnp.linspace(0.3, 9.0, 8), jnp.linspace(-1.0, 3.0, 8)], axis=1)
    batch = jax.jit(jax.vmap(lambda x0: mix(x0, MIX)))
    together = batch(starts)
    assert len({tuple(np.asarray(row)) for row in together.modes}) > 3
    assert np.all(together.result == RESULTS.successful)
    mix(starts[3], MIX)
    programs = mixed_until._cached._cache_size()
    for i in range(3):
        alone = mix(starts[i], MIX)
        assert_allclose(together[i].x, alone.x, rtol=1e-12, atol=1e-13)
        np.testing.assert_array_equal(together[i].modes, alone.modes)
    assert mixed_until._cached._cache_size() == programs
    changed = batch(starts.at[3].set(jnp.nan))
    for i in (0, 1, 2, 4, 5, 6, 7):
        np.testing.assert_array_equal(changed[i].x, together[i].x)
    assert changed[3].result != RESULTS.successful


# Samples


@pytest.mark.medium
def test_samples(mixed):
    """States at times are those of the arcs; at an event's time, those after it."""
    event = mixed.events[2]
    times = jnp.array([0.0, 1.234, event.t, 9.99, 10.0, 11.0, -1.0])
    saved = hj.simulate(
        MIXED, jnp.array([2.0, 0.3]), MIX, mode="flight", t1=10.0, max_jumps=30, times=times, integrator=ROLLED
    ).samples
    for k in (1, 3):
        assert_allclose(saved.x[k], mix(jnp.array([2.0, 0.3]), MIX, times[k]).x, rtol=1e-12, atol=1e-13)
    assert_allclose(saved.x[0], [2.0, 0.3], rtol=0)
    assert_allclose(saved.x[2, : event.after.size], event.after, rtol=1e-13)
    assert_allclose(saved.x[4], mixed.x, rtol=1e-12)
    assert np.all(np.isnan(saved.x[5:])) and list(saved.mode[5:]) == [-1, -1]
    arcs = mixed.sample(7)
    assert [arc.mode for arc in arcs] == list(mixed.mode_names)
    for k, arc in enumerate(arcs):
        n = MIXED.modes[arc.mode].dimension
        assert arc.x.shape == (7, n)
        assert_allclose(arc.x[0], mixed.x_starts[k, :n], rtol=1e-14)
        assert_allclose(arc.x[-1], mixed.x_ends[k, :n], rtol=1e-12, atol=1e-13)


def test_dataset(mixed, tmp_path):
    pytest.importorskip("xarray")
    data = mixed.to_xarray(7)
    assert data.sizes == {"time": 7 * len(mixed.mode_names), "event": int(mixed.jumps)}
    assert_allclose(data["event_time"], [event.t for event in mixed.events])
    assert np.all(np.isnan(data["charge"].where(data["mode"] == "flight", drop=True)))
    assert np.all(np.isfinite(data["charge"].where(data["mode"] == "rest", drop=True)))
    assert_allclose(data["v_before"].values[0], mixed.events[0].before[1])
    assert data.attrs["result"] == "successful" and data.attrs["level"] == 0.9
    data.to_netcdf(tmp_path / "trajectory.nc", engine="scipy")


def test_prints(mixed):
    text = str(mixed)
    head = text.splitlines()[1].split()
    assert head == ["from", "to", "mode", "next", "y", "v", "charge"]
    assert re.search(r"\brest +flight\b", text) and text.endswith("successful")
    seen = []
    jax.eval_shape(lambda x: seen.append(str(mix(x, MIX))), jnp.ones(2))
    # The structure of what has no numbers yet.
    assert seen[0].startswith("Trajectory(") and "start_times=f64[" in seen[0]


# From a simulation to an orbit


@pytest.mark.medium
def test_sequence_and_guess_for_a_periodic_orbit():
    """A walk that settles gives the gait."""
    params = simplest_walker.Params(0.009)
    start = simplest_walker.guess(params)
    walk = hj.simulate(simplest_walker.system, start, params, mode="swing", t1=150.0, max_jumps=60, integrator=ROLLED)
    assert walk.result == RESULTS.successful
    assert walk.sequence == ("swing",)
    # 38 strides, of which each leaves 0.589 of the guess's distance of 1e-3, before the last node.
    assert_allclose(walk.guess, case("B_simplest_walker", "long_0.009")["x0"], rtol=0, atol=5e-10)


@pytest.mark.medium
def test_sequence_of_a_cycle_of_modes():
    """A ball that lands, rests and is thrown again, always alike: the cycle begins with the mode in which the end falls, and
    the guess is on the orbit of the closed form."""
    thrown = jnp.array([0.0, LEAKY["r"] * LEAKY["level"]])
    period = leaky_stride(thrown, LEAKY)[2]
    for part, sequence in ((0.1, ("flight", "rest")), (0.5, ("rest", "flight"))):
        end = (4 + part) * period
        ended = hj.simulate(leaky, thrown, LEAKY, mode="flight", t1=end, max_jumps=12, integrator=ROLLED)
        assert ended.mode_names == ("flight", "rest") * 4 + ("flight",) + ("rest",) * (sequence[0] == "rest")
        assert ended.sequence == sequence
        expected = {"flight": thrown, "rest": LEAKY["m"] * thrown[1:]}[sequence[0]]
        assert_allclose(ended.guess, expected, rtol=1e-13, atol=1e-15)


def test_sequence_where_no_cycle_is_repeated(mixed):
    """Of modes that come as f f f r f f f r f f f f r the longest that closes."""
    late = mix(jnp.array([2.0, 0.3]), MIX, 30.0)
    assert "".join(name[0] for name in late.mode_names) == "fffrfffrffffrf"
    assert "".join(name[0] for name in late.sequence) == "fffrfffrffffr"
    assert_allclose(late.guess, [2.0, 0.3], rtol=0)


@pytest.mark.medium
def test_no_sequence_where_nothing_returns():
    away = hj.HybridSystem(
        {"a": hj.Mode(line, ("x",)), "b": hj.Mode(line, ("x",))},
        (hj.Transition("a", "b", lambda t, x, p: 1 - x[0], same),),
    )
    gone = hj.simulate(away, jnp.zeros(1), None, mode="a", t1=3.0, integrator=ROLLED)
    assert gone.mode_names == ("a", "b") and int(gone.jumps) == 1
    with pytest.raises(ValueError, match="do not close a cycle"):
        _ = gone.sequence


# How it ends


def fall(t, x, p):
    return jnp.stack([x[1], jnp.asarray(-1.0)])


HALF = hj.HybridSystem(
    {"free": hj.Mode(fall, ("y", "v"))},
    (hj.Transition("free", "free", lambda t, x, p: x[0] - p, lambda t, x, p: jnp.stack([x[0], -0.5 * x[1]])),),
)


def halved(floor, y, t1, max_jumps):
    """A ball dropped from `y` onto a floor that takes half of its speed."""
    x0 = jnp.array([y, 0.0])
    return hj.simulate(
        HALF, x0, jnp.array(floor), mode="free", t1=t1, max_jumps=max_jumps, integrator=ROLLED, throw=False
    )


@pytest.mark.medium
def test_zeno_by_the_number_of_jumps():
    """From 1/2 the ball rests at 1 + 2 = 3."""
    ended = halved(0.0, 0.5, 5.0, 20)
    assert ended.result == RESULTS.max_jumps_reached
    assert int(ended.jumps) == 20
    assert_allclose(ended.t, 3 - 2 * 0.5**20, rtol=1e-13)


@pytest.mark.medium
def test_zeno_by_accumulation():
    """Where a hop is lost in rounding, of the height or of the time, the ball does not fall through the floor. A floor so low
    that it is never met."""
    for floor in (0.0, 1.0):
        ended = halved(floor, 0.5 + floor, 5.0, 200)
        assert ended.result == RESULTS.zeno
        assert 15 < int(ended.jumps) < 60
        # The hop that is lost is as high as 64 units in the last place of 1: its duration 2 sqrt(2 h), and all after it.
        assert_allclose(ended.t, 3, rtol=0, atol=1e-6 if floor else 1e-13)
        assert_allclose(ended.final[0], floor, rtol=0, atol=1e-13)
        assert np.all(np.isfinite(ended.x_ends[: int(ended.jumps)]))
    ended = halved(-100.0, 0.5, 2.0, 200)
    assert ended.result == RESULTS.successful and int(ended.jumps) == 0
    assert_allclose(ended.final, [-1.5, -2.0], rtol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize("at", [0.0, 1000.0])
def test_zeno_between_two_walls(at):
    """Walls that meet at t = 1; half the speed relative to a wall is lost, so a round trip takes 3/4 of the time that is left.
    Far from zero the position is known to 64 units in the last place, and the walls are told apart until they are as close."""
    still = lambda t, x, p: jnp.stack([x[0], -0.5 * x[1]])
    moving = lambda t, x, p: jnp.stack([x[0], -0.5 * (x[1] + 1) - 1])
    ways = (
        hj.Transition("free", "free", lambda t, x, p: x[0] - at, still),
        hj.Transition("free", "free", lambda t, x, p: 1 + at - t - x[0], moving),
    )
    glide = hj.Mode(lambda t, x, p: jnp.stack([x[1], jnp.zeros_like(x[1])]), ("x", "v"))
    ended = hj.simulate(
        hj.HybridSystem({"free": glide}, ways),
        jnp.array([at + 0.5, 1.0]),
        None,
        mode="free",
        t1=2.0,
        max_jumps=100,
        integrator=ROLLED,
        throw=False,
    )
    assert ended.result == RESULTS.zeno
    near = 1e-13 + 128 * np.finfo(float).eps * at
    assert_allclose(ended.t, 1, rtol=0, atol=near)
    assert_allclose(ended.final[0], at, rtol=0, atol=near)


@pytest.mark.medium
def test_blow_up_in_finite_time():
    """x' = x^2 from 1 is infinite at 1; the guard at 10 is met at 0.9 before, and kept."""
    system = hj.HybridSystem(
        {"low": hj.Mode(lambda t, x, p: x**2, ("x",)), "high": hj.Mode(lambda t, x, p: x**2, ("x",))},
        (hj.Transition("low", "high", lambda t, x, p: 10 - x[0], same),),
    )
    ended = hj.simulate(system, jnp.array([1.0]), None, mode="low", t1=2.0, integrator=ROLLED, throw=False)
    assert ended.result == RESULTS.dt_min_reached
    assert_allclose(ended.events[0].t, 0.9, rtol=1e-13)
    # The step vanishes within a few units in the last place of the time; there x is the inverse of what is left.
    assert_allclose(ended.t, 1, rtol=0, atol=1e-12)
    assert ended.final[0] > 1e12
    assert np.all(np.isnan(ended.fundamental_matrix()))


@pytest.mark.medium
def test_blow_up_where_the_controller_accepts_any_state():
    """At its least step a controller with `force_dtmin` accepts what it is given, also a state that is not finite."""
    controller = dfx.PIDController(rtol=1e-6, atol=1e-6, dtmin=1e-3, force_dtmin=True)
    system = hj.HybridSystem({"high": hj.Mode(lambda t, x, p: x**2, ("x",))}, ())
    ended = hj.simulate(
        system,
        jnp.array([1.0]),
        None,
        mode="high",
        t1=2.0,
        integrator=hj.Integrator(controller=controller, unroll=False),
        throw=False,
    )
    assert ended.result in (RESULTS.nonfinite, RESULTS.dt_min_reached)
    assert np.all(np.isfinite(ended.final)) and 0.9 < ended.t < 1.1


def test_grazing():
    """(1 - x)^3 falls through zero with no rate: where it does so has no derivative."""
    system = hj.HybridSystem(
        {"free": hj.Mode(line, ("x",))}, (hj.Transition("free", "free", lambda t, x, p: (1 - x[0]) ** 3, same),)
    )
    touched = hj.simulate(system, jnp.zeros(1), None, mode="free", t1=3.0, throw=False)
    assert touched.result == RESULTS.grazing
    # The cube root of rounding.
    assert_allclose(touched.t, 1, rtol=0, atol=1e-5)
    assert int(touched.jumps) == 0 and int(touched.transitions[0]) == 0


@pytest.mark.medium
def test_chattering():
    """Two modes that send the state back at once: sliding, which the jumps cannot follow."""
    up, down = (hj.Mode(lambda t, x, p, s=s: s * jnp.ones_like(x), ("x",)) for s in (1.0, -1.0))
    back = lambda s: lambda t, x, p: x + s * 1e-3
    system = hj.HybridSystem(
        {"up": up, "down": down},
        (
            hj.Transition("up", "down", lambda t, x, p: -x[0], back(1.0)),
            hj.Transition("down", "up", lambda t, x, p: x[0], back(-1.0)),
        ),
    )
    ended = hj.simulate(
        system, jnp.array([-0.5]), None, mode="up", t1=3.0, max_jumps=50, integrator=ROLLED, throw=False
    )
    assert ended.result == RESULTS.max_jumps_reached
    assert int(ended.jumps) == 50
    assert_allclose(ended.t, 0.5 + 50e-3, rtol=1e-12)


@pytest.mark.medium
def test_simultaneous_guards_are_reported():
    system = hj.HybridSystem(
        {name: hj.Mode(line, ("x",)) for name in ("a", "b", "c")},
        (
            hj.Transition("a", "b", lambda t, x, p: 1 - x[0], same),
            hj.Transition("a", "c", lambda t, x, p: (1 - x[0]) * 3, same),
        ),
    )
    ended = hj.simulate(system, jnp.zeros(1), None, mode="a", t1=3.0, integrator=ROLLED, throw=False)
    assert ended.result == RESULTS.simultaneous_guards
    assert_allclose(ended.t, 1, rtol=1e-14)


@pytest.mark.medium
def test_gradient_of_a_batch_in_which_a_lane_fails():
    """A failed lane, masked, leaves the gradient of the others alone."""

    def total(e, starts, weights):
        params = bouncing_ball.Params(restitution=e)
        one = lambda x0: hj.simulate(
            BALL, x0, params, mode="flight", t1=1.5, max_jumps=3, integrator=ROLLED, throw=False
        )
        ended = jax.vmap(one)(starts)
        good = ended.result == RESULTS.successful
        return jnp.sum(jnp.where(good, weights * ended.x[:, 0], 0)), good

    sound = jnp.array([[1.0, 0.0], [1.5, 0.0], [2.0, 0.0]])
    broken = jnp.array([[1.0, 0.0], [1e-3, 0.0], [2.0, 0.0]])
    grad = jax.jit(jax.grad(total, has_aux=True))
    alone, _ = grad(jnp.array(0.8), sound, jnp.array([1.0, 0.0, 1.0]))
    beside, good = grad(jnp.array(0.8), broken, jnp.ones(3))
    assert list(good) == [True, False, True]
    assert_allclose(beside, alone, rtol=1e-13)


# Misuse


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(mode="hop"), "'hop' is not one of the modes"),
        (dict(max_jumps=-1), "max_jumps=-1"),
        (dict(t1=-1.0), "lies before"),
        (dict(x0=jnp.zeros(3)), "does not fit mode"),
    ],
)
def test_misuse(change, message):
    arguments = dict(x0=jnp.ones(2), params=bouncing_ball.Params(), mode="flight", t1=1.0) | change
    with pytest.raises((ValueError, TypeError), match=message):
        hj.simulate(BALL, **arguments)


@pytest.mark.medium
def test_of_batches_and_of_one():
    one = ft.partial(
        hj.simulate, BALL, params=bouncing_ball.Params(), mode="flight", t1=0.1, max_jumps=2, integrator=ROLLED
    )
    batch = jax.vmap(lambda x0: one(x0))(jnp.ones((2, 2)))
    with pytest.raises(TypeError, match="batch of 2 trajectories"):
        _ = batch.final
    with pytest.raises(TypeError, match="one trajectory"):
        len(batch[0])
    assert [each.final.shape for each in batch] == [(2,), (2,)] and batch[-1].final.shape == (2,)
    with pytest.raises(IndexError):
        batch[2]
    assert "2 Trajectories" in str(batch)


# A contact with friction


def branches(function):
    jaxpr = jax.make_jaxpr(function)(jnp.zeros(()), jnp.zeros(4), jnp.array(0), ball_on_slope.Params())
    return [len(each.params["branches"]) for each in jaxpr.eqns if each.primitive.name == "cond"]


def test_what_is_made_of_the_same_functions_shares_a_branch():
    """Both flights are one flow, and both slides, of which the sign of the slip is an argument; of 14 jumps, those of an impact
    are one, and the others change nothing."""
    automaton = Automaton(ball_on_slope.system)
    assert len(automaton.names) == 5 and len(automaton.system.transitions) == 14
    assert branches(lambda t, x, k, p: automaton.field(t, x, (k, p))) == [3]
    # Of the gap, of its rate, of slides and of rest.
    assert branches(lambda t, x, k, p: automaton.surfaces.values(t, x, (k, p))) == [4]
    assert branches(lambda t, x, k, p: automaton.surfaces.values(t, x, (k, p), k)) == [4]
    assert branches(lambda t, x, k, p: automaton.jump(t, x, k, p)) == [2]


@pytest.mark.medium
def test_functions_by_number_are_those_of_their_modes():
    """A flow, guards, conditions and jumps selected at run time, against the functions of each mode and transition called by
    themselves."""
    system, params = ball_on_slope.system, ball_on_slope.Params(restitution=0.3, settle=0.0, push_1=-4.0)
    automaton = Automaton(system)
    t, x = jnp.array(0.3), jnp.array([0.1, 0.2, -0.4, -0.5])

    @jax.jit
    def selected(k, transition):
        args = k, params
        surfaces = automaton.surfaces
        count = jnp.arange(surfaces.count)
        single = jax.vmap(lambda i: surfaces.value(i, t, x, args))(count)
        values = surfaces.values(t, x, args)
        return (
            automaton.field(t, x, args),
            values,
            single,
            surfaces.armed(t, x, args),
            automaton.jump(t, x, transition, params),
        )

    for k, name in enumerate(system.names):
        leaving = system.leaving(name)
        field, values, single, armed, _ = selected(k, 0)
        assert_allclose(field, system.modes[name].vector_field(t, x, params), rtol=1e-13, atol=1e-13)
        ways = [system.transitions[i] for i in leaving]
        alone = [way.guard(t, x, params) for way in ways]
        assert_allclose(values[: len(ways)], alone, rtol=1e-13, atol=1e-13)
        assert_allclose(single[: len(ways)], alone, rtol=1e-13, atol=1e-13)
        # A guard that a mode does not have never falls.
        assert np.all(values[len(ways) :] == 1)
        expected = [way.armed is None or bool(way.armed(t, x, params)) for way in ways]
        assert list(armed[: len(ways)]) == expected
    for i in range(14):
        assert_allclose(selected(0, i)[-1], system.transitions[i].reset(t, x, params), rtol=1e-13, atol=1e-13)


def test_numbers_beside_arguments_by_name():
    """Functions with an argument by name of their own keep it, and their numbers."""

    def grow(rate, t, x, params, *, power):
        return number(rate, x.dtype) * x**power

    ways = {"a": (2.0, 3), "b": (-1.0, 2), "c": (5.0, 2)}
    modes = {k: hj.Mode(ft.partial(grow, PerMode(rate), power=power), ("x",)) for k, (rate, power) in ways.items()}
    automaton = Automaton(hj.HybridSystem(modes, ()))
    x = jnp.array([3.0])
    found = [float(automaton.field(jnp.zeros(()), x, (jnp.array(k), None))[0]) for k in range(3)]
    assert found == [2 * 27, -9, 5 * 9]


def test_copies_of_a_mode_whose_functions_capture_arrays_are_one_branch():
    """Hoisted, the arrays are leaves of each copy. The same function with other numbers is a branch of its own."""

    def rates(captured, k):
        field = lambda rate, t, x, p: number(rate, x.dtype) * captured * x
        same, other = (hj.Mode(ft.partial(field, PerMode(rate)), ("x", "y")) for rate in (1.0, 3.0))
        systems = (hj.HybridSystem(modes, ()) for modes in ({"a": same, "b": same}, {"a": same, "b": same, "c": other}))
        automata = [Automaton(system.hoisted(None, captured.dtype)) for system in systems]
        return [each.field(jnp.zeros(()), jnp.ones(2), (k, None)) for each in automata]

    captured, program = jnp.array([1.0, -2.0]), jax.jit(rates)
    switches = [each for each in jax.make_jaxpr(rates)(captured, 0).jaxpr.eqns if each.primitive.name == "cond"]
    assert [len(each.params["branches"]) for each in switches] == [2]
    for k, (first, second) in enumerate(program(captured, k) for k in range(3)):
        assert_allclose(second, [1, 1, 3][k] * captured)
        assert k == 2 or np.all(first == captured)


@pytest.mark.medium
def test_numbers_may_be_traced_anywhere():
    """A system of two guards, whose numbers are known, within `jit`; with times that are traced; and with what a function of the
    system has captured. The results are those of a run by itself."""

    def corner(k):
        field = lambda t, x, p: jnp.stack([x[2], x[3], 0 * x[0], -k * jnp.ones(())])
        ways = (
            hj.Transition("air", "air", lambda t, x, p: x[1], lambda t, x, p: x.at[3].mul(-0.9)),
            hj.Transition("air", "air", lambda t, x, p: 1 - x[0], lambda t, x, p: x.at[2].mul(-0.9)),
        )
        return hj.HybridSystem({"air": hj.Mode(field, ("x", "y", "u", "v"))}, ways)

    x, times = jnp.array([0.0, 1.0, 0.8, 0.0]), jnp.array([0.3, 1.9])
    run = lambda k, times=None: hj.simulate(
        corner(k), x, None, mode="air", t1=2.0, max_jumps=20, times=times, integrator=ROLLED, throw=False
    )
    alone = run(9.0, times)
    assert_allclose(jax.jit(lambda: run(9.0).x)(), alone.final, rtol=1e-13)
    assert_allclose(jax.jit(lambda times: run(9.0, times).samples.x)(times), alone.samples.x, rtol=1e-13)
    several = jax.vmap(lambda k: run(k).x)(jnp.array([9.0, 4.0]))
    assert_allclose(several[0], alone.final, rtol=1e-13)


@pytest.mark.medium
def test_known_times_may_be_arrays_under_jit():
    """Start and end time known before tracing are compared as numbers, and the wrong order is still refused."""
    params = bouncing_ball.Params()
    mode, x0 = bouncing_ball.start(params)

    def end(t0, t1):
        known = jnp.asarray(t0, x0.dtype), jnp.asarray(t1, x0.dtype)
        run = lambda x: hj.simulate(bouncing_ball.system, x, params, mode=mode, t0=known[0], t1=known[1], max_jumps=1).x
        return jax.eval_shape(run, x0)

    assert end(0.0, 1.0).shape == x0.shape
    with pytest.raises(ValueError, match="lies before the start time"):
        end(1.0, 0.0)
