"""Domains of modes: starts outside, and flows that leave them, against closed forms."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from systems import ROLLED

import hyjax as hj
from hyjax import models
from hyjax.models import bouncing_ball

RESULTS = hj.RESULTS


def is_code(result, code):
    return np.asarray(result._value) == code._value


BALL = bouncing_ball.Params()


def drop(x, params=BALL):
    return hj.simulate(bouncing_ball.system, x, params, mode="flight", t1=1.0, integrator=ROLLED, throw=False)


@pytest.fixture(scope="module")
def drops():
    starts = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0], [0.0, 4.0], [-1e-16, 4.0], [jnp.nan, 0.0]])
    return starts, jax.vmap(drop)(starts)


def test_starts_behind_the_floor(drops):
    starts, run = drops
    assert_array_equal(is_code(run.result, RESULTS.outside_domain), [False, True, True, False, False, False])
    assert_array_equal(is_code(run.result, RESULTS.successful), [True, False, False, True, True, False])
    assert is_code(run.result, RESULTS.nonfinite)[5]
    # The state that was given is kept; the ball thrown down from the floor is noticed within the solver's tolerance.
    assert_array_equal(run.x[1], starts[1])
    assert_allclose(run.x[2], starts[2], rtol=0, atol=1e-12)
    assert_allclose(run.t[1:3], 0, atol=1e-12)
    assert_array_equal(run.jumps[1:3], 0)


def test_impacts_are_those_of_a_ball_without_a_domain(drops):
    """A guard at the limit of the domain fires: 1 m falls in sqrt(2/g), and bounces of 0.8 follow."""
    _, run = drops
    first = np.sqrt(2 / 9.81)
    # Two roundings of the time.
    assert_allclose(run.end_times[0, 0], first, rtol=1e-15)
    assert run.jumps[0] == np.sum(first * (1 + 2 * np.cumsum(np.append(0, 0.8 ** np.arange(1, 9)))) < 1)


def test_neighbours_of_a_lane_outside_are_bit_identical(drops):
    starts, run = drops
    inside = jax.vmap(drop)(starts.at[1].set(starts[0]))
    for k in (0, 3, 4):
        assert_array_equal(run.x_ends[k], inside.x_ends[k])
        assert_array_equal(run.end_times[k], inside.end_times[k])


@pytest.mark.medium
def test_derivatives_where_a_lane_is_outside():
    """They are finite, also in reverse mode, and those of the other lane are right: y = 1 - g t^2 / 2 at t = 0.3."""
    params = lambda g: bouncing_ball.Params(gravity=g)
    start = lambda y: jnp.stack([y, 0 * y])
    ended = lambda y, g: hj.simulate(
        bouncing_ball.system, start(y), params(g), mode="flight", t1=0.3, max_jumps=1, integrator=ROLLED, throw=False
    )
    run = jax.grad(lambda y, g: ended(y, g).x[0], argnums=(0, 1))
    slopes = jax.jit(jax.vmap(run, (0, None)))(jnp.array([1.0, -1.0]), BALL.gravity)
    assert_allclose(slopes[0], [1, 1], rtol=1e-13)
    assert_allclose(slopes[1], [-0.045, 0], rtol=1e-13, atol=1e-15)


# A point that moves along x with speed v leaves x <= wall + drift * t, and |y| <= 1, in a mode that no guard ends.

PARAMS = {"wall": jnp.array(2.0), "drift": jnp.array(0.5)}


def strip(t, x, p):
    return jnp.stack([p["wall"] + p["drift"] * t - x[0], 1 - x[1], 1 + x[1]])


def straight(t, x, p):
    return jnp.stack([jnp.ones(()), x[2], jnp.zeros(())])


STRIP = hj.HybridSystem({"free": hj.Mode(straight, ("x", "y", "v"), domain=strip)}, ())
# The same, with a guard that never falls.
WATCHED = hj.HybridSystem(STRIP.modes, (hj.Transition("free", "free", lambda t, x, p: 9 - x[0], lambda t, x, p: x),))


@pytest.mark.medium
@pytest.mark.parametrize("system", [STRIP, WATCHED], ids=["no guard", "a guard"])
def test_a_flow_leaves_its_domain_at_a_known_time(system):
    start = lambda v: jnp.stack([0 * v, 0 * v, v])
    go = jax.vmap(lambda p, v: hj.simulate(system, start(v), p, mode="free", t1=3.5, integrator=ROLLED, throw=False))
    params = {"wall": jnp.array([2.0, 2.0, 1.0, 2.0]), "drift": jnp.array([0.5, 0.0, 0.5, 0.5])}
    run = go(params, jnp.array([0.0, 0.0, 0.0, -0.5]))
    assert_array_equal(is_code(run.result, RESULTS.outside_domain), [False, True, True, True])
    # wall / (1 - drift) = 4 lies after the end; 2; 2; 1 / 0.5 = 2. The limit lies beyond by tolerance and rounding.
    assert_allclose(run.t, [3.5, 2, 2, 2], rtol=1e-12)
    assert_allclose(run.x[1:, 0], 2, rtol=1e-12)
    assert_array_equal(run.transitions[:, 0], -1)
    assert np.all(np.isfinite(run.x_ends[:, 0]))


@pytest.mark.medium
def test_a_guard_within_the_tolerance_beyond_a_limit_fires():
    """A limit has a leeway of 8 tolerances; a guard that falls within 30 tolerances after it fires."""
    move = hj.Mode(lambda t, x, p: jnp.ones(1), ("x",), domain=lambda t, x, p: 1 - x[0])
    system = hj.HybridSystem(
        {"m": move}, (hj.Transition("m", "m", lambda t, x, p: 1 + p - x[0], lambda t, x, p: 0 * x),)
    )
    integrator = hj.Integrator(rtol=1e-10, atol=1e-10, unroll=False)
    go = jax.vmap(lambda p: hj.flow_to_guard(system, "m", 0.0, jnp.zeros(1), p, integrator=integrator, throw=False))
    end = go(jnp.array([0.0, 2e-9, 1e-8]))
    assert_array_equal(is_code(end.result, RESULTS.outside_domain), [False, False, True])
    assert_allclose(end.t[:2], [1, 1 + 2e-9], rtol=1e-15)


def test_a_single_arc_leaves_its_domain():
    end = hj.flow_to_guard(WATCHED, "free", 0.0, jnp.zeros(3), PARAMS, integrator=ROLLED, throw=False)
    assert is_code(end.result, RESULTS.outside_domain) and end.transition == -1
    assert "outside the domain" in RESULTS[RESULTS.outside_domain]


@pytest.mark.medium
def test_a_dip_within_a_step_is_noticed():
    """An oscillation whose turns lie between the ends of long steps of an exact flow."""
    system = hj.HybridSystem(
        {"free": hj.Mode(lambda t, x, p: jnp.ones(1), ("x",), domain=lambda t, x, p: p + jnp.cos(x[0]))}, ()
    )
    run = hj.simulate(
        system,
        jnp.zeros(1),
        jnp.array(0.9),
        mode="free",
        t1=20.0,
        integrator=hj.Integrator(max_step=1.0, unroll=False),
        throw=False,
    )
    assert is_code(run.result, RESULTS.outside_domain)
    assert_allclose(run.t, np.arccos(-0.9), rtol=1e-12)


def test_a_system_shows_its_domains():
    assert re.search(r"mode +state +flow +domain\n.* strip$", repr(STRIP))
    outside = hj.simulate(STRIP, jnp.array([5.0, 0, 0]), PARAMS, mode="free", t1=1.0, integrator=ROLLED, throw=False)
    assert "outside_domain: The state is outside" in str(outside)


# Models


@pytest.mark.parametrize("name", models.names)
def test_a_model_starts_in_its_domain(name):
    model = models.load(name)
    params = model.Params()
    starts = [model.start(params)] + ([(model.sequence[0], model.guess(params))] if model.sequence else [])
    for mode, x in starts:
        domain = model.system.modes[mode].domain
        assert domain is not None
        # Zero up to rounding after a jump.
        assert np.all(np.asarray(domain(jnp.zeros(()), x, params)) > -1e-12)


@pytest.mark.medium
def test_the_command_line_reports_a_start_below_the_floor(command):
    ran = command("simulate", "bouncing_ball", "--t1", "2", "--x0", "-1,0")
    assert ran.returncode == 1 and "outside_domain" in ran.stderr


@pytest.mark.medium
def test_a_walker_falls():
    walker = models.load("simplest_walker")
    start = jnp.array([0.2, -0.05, 0.4, 0.0])
    run = hj.simulate(walker.system, start, walker.Params(), mode="swing", t1=20.0, integrator=ROLLED, throw=False)
    assert is_code(run.result, RESULTS.outside_domain)
    # The hip is on the ground, on either side.
    assert_allclose(abs(run.final[0]), np.pi / 2, rtol=1e-12)


@pytest.mark.medium
def test_a_contact_that_is_open_bounds_its_modes():
    """A gap may be negative where it opens, by the drift of a contact that was held, and nowhere else."""
    ball = models.load("ball_on_slope")
    params = ball.Params()
    sine, cosine = np.sin(params.slope), np.cos(params.slope)
    domain = ball.system.modes["U"].domain
    at = lambda gap, rate: domain(
        jnp.zeros(()), jnp.array([gap * sine, gap * cosine, rate * sine, rate * cosine]), params
    )
    assert_allclose([at(0.5, -1.0)[0], at(-1e-9, 2.0)[0], at(-0.5, -1.0)[0]], [0.5, 2.0, -0.5], rtol=1e-15)
    # A contact that is closed has no limit that could be left: it looks at the start of a run alone.
    assert ball.system.modes["C"].domain(jnp.zeros(()), jnp.zeros(4), params).shape == (0,)
    block, x = models.load("rocking_block"), jnp.array([0.0, 0.4, 0.0, 0, 0, 0])
    # One number for each corner, which is no limit where the corner stands on the floor; besides, half turns left on both sides.
    domain = block.system.modes["contacts"].domain
    for codes in itertools.product((0, 1), repeat=2):
        limits = domain(jnp.zeros(()), jnp.append(x, jnp.array(codes, float)), block.Params())
        assert limits.shape == (4,) and [limit == 1 for limit in limits[:2]] == [code == 1 for code in codes]


@pytest.mark.filterwarnings("ignore:The vector_field of mode .0. jumps")
def test_a_guard_that_sinks_through_a_limit_of_the_domain_is_zeno():
    """A plastic impact leaves a body on the floor, which is guard and limit; and passes of a double integrator with the switching
    curve x = -k v |v|, k < 1/2, shrink by r = sqrt((1/2 - k)/(1/2 + k)): they end after |v|(1 + r)/(1 - r) from the first."""
    height = lambda t, x, p: x[0]
    fall = hj.Mode(lambda t, x, p: jnp.stack([x[1], -p]), ("y", "v"), domain=height)
    land = hj.Transition("fall", "fall", height, lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    body = hj.HybridSystem({"fall": fall}, (land,))
    run = hj.simulate(body, jnp.array([1.0, 0.0]), jnp.array(2.0), mode="fall", t1=3.0, integrator=ROLLED, throw=False)
    assert run.result == "zeno" and run.jumps == 1
    assert_allclose(run.t, 1, rtol=1e-15)
    k, push = 0.3, lambda a: lambda t, x, p: jnp.stack([x[1], a + 0 * x[0]])
    curve = lambda t, x, p: jnp.where(x[1] > 0, x[0] + p * x[1] ** 2, x[0] - p * x[1] ** 2)
    servo = hj.filippov({1: push(-1.0), -1: push(1.0)}, curve, ("x", "v"))
    run = hj.simulate(servo, jnp.array([1.0, 0.0]), jnp.array(k), mode="+", t1=9.0, integrator=ROLLED, throw=False)
    assert run.result == "zeno"
    first, ratio = 1 / np.sqrt(k + 0.5), np.sqrt((0.5 - k) / (0.5 + k))
    # Passes end at the square root of the tolerance, of a curve that is quadratic there.
    assert_allclose(run.t, first * (1 + (1 + ratio) / (1 - ratio)), rtol=0, atol=1e-7)


def test_a_start_at_the_kink_of_a_limit_is_inside():
    """Within rounding of a limit that is the larger of two numbers, of which both fall as the state's coordinates rise: a bolt
    that a stop at 1 pushes back, x = 1 - t^2/2, after a plastic impact that leaves position and rate off by rounding."""
    stop = lambda t, x, p: jnp.maximum(1 - x[0], -x[1])
    bolt = hj.HybridSystem({"free": hj.Mode(lambda t, x, p: jnp.stack([x[1], -1.0]), ("x", "v"), domain=stop)}, ())
    eps = float(np.finfo(float).eps)
    starts = jnp.array([[1.0, 0.0], [1.0, 1e-19], [1 + eps, 0.0], [1 + eps, eps], [1 + 1e-9, 1e-9]])
    run = jax.vmap(lambda x: hj.simulate(bolt, x, None, mode="free", t1=1.0, integrator=ROLLED, throw=False))(starts)
    assert_array_equal(is_code(run.result, RESULTS.outside_domain), [False, False, False, False, True])
    assert_allclose(run.x[:4], np.tile([0.5, -1.0], (4, 1)), rtol=1e-14)
