"""What an event is, and what a failure is: the ten points on which hybrid simulators differ.

Wherever it can be, the guard along the flow is a polynomial in time, so that the answer is a root known in closed form.
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case
from systems import leave, line, oscillate, ROLLED, same, with_tolerance

import hyjax as hj
from hyjax.models import simplest_walker

RESULTS = hj.RESULTS


@eqx.filter_jit
def flow(system, x, params, integrator=ROLLED):
    """`flow_to_guard` over a batch of starts and parameters."""
    run = lambda x, params: hj.flow_to_guard(system, "free", 0.0, x, params, integrator=integrator, throw=False)
    return jax.vmap(run)(jnp.asarray(x), params)


# 1. A guard fires when it falls, and never because the arc starts on it


def test_only_a_falling_guard_fires():
    """From x = -1 at rest, x rises through zero at pi/2 and falls through it at 3 pi/2."""
    met = flow(leave(oscillate, 2, lambda t, x, p: x[0]), jnp.array([[-1.0, 0.0]]), jnp.zeros(1))
    # Some fifty steps at a tolerance of 1e-14.
    assert_allclose(met.t, 1.5 * np.pi, rtol=2e-14)


@pytest.mark.medium
def test_start_within_rounding_of_the_surface():
    """The walker's guard is 0 after a strike; with phi off by some last digits of either sign it is not an event. Only what is
    within rounding is forgiven: further above, the same guard falls at once."""
    x = case("B_simplest_walker", "long_0.009")["x0"]
    ulps = np.arange(-4, 5)
    off = np.append(ulps * np.spacing(x[2]), [-1e-9, -1e-3])
    starts = np.repeat(x[None], off.size, axis=0)
    starts[:, 2] += off
    guards = 2 * starts[:9, 0] - starts[:9, 2]
    assert guards.min() < 0 < guards.max()
    params = simplest_walker.Params(jnp.full(off.size, 0.009))
    run = lambda x, params: hj.ReturnMap(simplest_walker.system, sequence=("swing",), integrator=ROLLED)(x, params)
    times = np.asarray(jax.jit(jax.vmap(run))(jnp.asarray(starts), params).time)
    # Four last digits of phi, times dT/dphi, which is below 10.
    assert_allclose(times[:9], case("B_simplest_walker", "long_0.009")["T"], rtol=0, atol=5e-14)
    assert 0 < times[9] < 1e-8 and 0 < times[10] < 0.1


@pytest.mark.medium
def test_guard_that_starts_at_zero_and_falls_is_not_an_event():
    """-y starts at zero and falls: it was never positive. (1 - y)(y - 2) rises at 1 and falls at 2."""
    either = leave(line, 1, lambda t, x, p: p * (1 - x[0]) * (x[0] - 2) - (1 - p) * x[0])
    met = flow(either, jnp.zeros((2, 1)), jnp.array([0.0, 1.0]))
    assert bool((met.result == RESULTS.no_crossing)[0])
    assert_allclose(met.t[1], 2, rtol=1e-15)


@pytest.mark.medium
def test_disarmed_crossing_is_passed_over():
    """x falls through zero at 3 pi/2, 7 pi/2, 11 pi/2, ...; armed after a time. Beside another guard with the same surface, which
    is never armed: what both have passed is over for both."""
    guards, armed = (lambda t, x, p: x[0],) * 2, (lambda t, x, p: t < 0, lambda t, x, p: t > p)
    starts = jnp.stack([-jnp.append(jnp.ones(3), jnp.linspace(0.3, 1, 15)), jnp.zeros(18)], axis=1)
    met = flow(leave(oscillate, 2, *guards, armed=armed), starts, jnp.array([0.0, 5.0, 12.0] + [5.0] * 15))
    assert_allclose(met.t, np.pi * np.array([1.5, 3.5, 5.5] + [3.5] * 15), rtol=2e-14)


def test_of_guards_that_fall_together_the_armed_one_fires():
    """The same surface twice, as for an impact which either slides or sticks: `armed` says which."""
    x_falls = lambda t, x, p: x[0]
    # x' < 0 where x falls: armed is the guard with the number p.
    armed = (lambda t, x, p: (x[1] > 0) == (p > 0), lambda t, x, p: (x[1] < 0) == (p > 0))
    starts = jnp.stack([jnp.tile(jnp.linspace(0.3, 1, 15), 2), jnp.zeros(30)], axis=1)
    impact = flow(leave(oscillate, 2, x_falls, x_falls, armed=armed), starts, jnp.repeat(jnp.array([0.0, 1.0]), 15))
    assert_allclose(impact.t, np.pi / 2, rtol=0, atol=1e-14)
    assert np.array_equal(impact.transition, np.repeat([0, 1], 15))


@pytest.mark.medium
def test_disarmed_crossing_does_not_hide_another():
    """Of two crossings within one step the first is disarmed: the second is met."""
    never, always = lambda t, x, p: x[0] < 0, lambda t, x, p: x[0] > 0
    guards = (lambda t, x, p: p[0] - x[0], lambda t, x, p: p[1] - x[0])
    system = leave(line, 1, *guards, armed=(never, always))
    met = flow(system, jnp.zeros((3, 1)), jnp.array([[0.5, 1.0], [20.0, 20.1], [3.0, 2.0]]))
    assert_allclose(met.t, [1.0, 20.1, 2.0], rtol=1e-15)
    assert np.all(met.transition == 1)


# 2. The earliest guard wins, by time


def test_earliest_of_three_guards_in_one_step():
    """One straight, one curved, one steep; all of them fall at thresholds in any order, often within one step."""
    guards = (
        lambda t, x, p: p[0] - x[0],
        lambda t, x, p: p[1] ** 2 - x[0] ** 2,
        lambda t, x, p: jnp.exp(p[2]) - jnp.exp(x[0]),
    )
    p = np.random.default_rng(0).uniform(0.1, 10, (200, 3))
    met = flow(leave(line, 1, *guards), jnp.zeros((200, 1)), jnp.asarray(p))
    assert np.all(met.result == RESULTS.successful)
    assert_allclose(met.t, p.min(axis=1), rtol=1e-14)
    assert np.all(met.transition == p.argmin(axis=1))


@pytest.mark.medium
def test_simultaneous_guards_are_told_from_successive_ones():
    """Thresholds apart by rounding have no order; apart by 1e-9 they have. A disarmed guard has no say."""
    guards = (lambda t, x, p: p[0] - x[0], lambda t, x, p: 2 * (p[1] - x[0]))
    two = leave(line, 1, *guards, armed=(None, lambda t, x, p: p[2] > 0))
    apart = np.array([0.0, 1e-15, -1e-15, 1e-9, -1e-9, 0.0])
    armed = np.array([1.0, 1.0, 1.0, 1.0, 1.0, -1.0])
    met = flow(two, jnp.zeros((6, 1)), jnp.asarray(np.stack([np.full(6, 2.0), 2 + apart, armed], axis=1)))
    simultaneous = np.asarray(met.result == RESULTS.simultaneous_guards)
    assert np.array_equal(simultaneous, [True, True, True, False, False, False])
    assert np.array_equal(met.transition[3:], [0, 1, 0])


# 3. The event's state is that of a solver step: the guard is zero there


@pytest.mark.medium
def test_guard_vanishes_at_the_event():
    """To 1e-14 of a guard of order 1, from many starts, however loose the integration."""
    model = simplest_walker
    params = model.Params()
    # Other rates at the same configuration: on the section, as after a jump.
    moving = np.array([name.endswith("_rate") for name in model.coordinates])
    starts = model.guess(params) * (1 + 0.02 * np.random.default_rng(1).uniform(-1, 1, (32, 1)) * moving)
    tolerances = np.where(np.arange(32) % 2, 1e-14, 1e-6)

    @jax.jit
    @jax.vmap
    def run(x, tolerance):
        integrator = with_tolerance(ROLLED, tolerance)
        return hj.flow_to_guard(model.system, model.sequence[0], 0.0, x, params, integrator=integrator)

    met = run(starts, tolerances)
    assert np.all(met.result == RESULTS.successful)
    guards = jax.vmap(lambda x: model.system.transitions[0].guard(0.0, x, params))(met.x)
    assert np.max(np.abs(guards)) <= 1e-14
    assert np.all(met.guard_rate < 0)


# 9. A guard that turns within one step


def polynomial(t, x, roots):
    """A cubic in time, with the sign that makes it fall at its last root."""
    return -(x[0] - roots[0]) * (x[0] - roots[1]) * (x[0] - roots[2])


def test_first_falling_root_of_a_cubic():
    """200 cubics with roots before and after the start, close together and far: some dip, some bulge, in one step."""
    rng = np.random.default_rng(2)
    roots = np.sort(np.concatenate([rng.uniform(-2, 30, (100, 3)), 10 + rng.normal(size=(100, 3)) * 0.05]), axis=1)
    # -(x - a)(x - b)(x - c) falls at a and at c. The start, 0, is no root.
    expected = np.where(roots[:, 0] > 0, roots[:, 0], np.where(roots[:, 2] > 0, roots[:, 2], np.nan))
    met = flow(leave(line, 1, polynomial), jnp.zeros((200, 1)), jnp.asarray(roots))
    none = np.isnan(expected)
    assert np.all(np.asarray(met.result == RESULTS.no_crossing)[none])
    # At the event the guard is zero to 1e-14 of what it was at its largest, here at the start.
    a, b, c = roots.T
    rate = np.where(a > 0, np.abs((a - b) * (a - c)), np.abs((c - a) * (c - b)))
    slack = 1e-14 * (np.abs(a * b * c) / rate + np.abs(expected))
    assert np.all(np.abs(met.t - expected)[~none] <= slack[~none])


def test_the_falling_root_of_a_cubic_that_has_risen():
    """The same cubics with the other sign: below zero at the start, above it at the end of the step, and falling in between."""
    rng = np.random.default_rng(2)
    roots = np.sort(np.concatenate([rng.uniform(-2, 30, (100, 3)), 10 + rng.normal(size=(100, 3)) * 0.05]), axis=1)
    roots = np.concatenate([roots, 10 + np.outer(10.0 ** -np.arange(1, 4), [-1, 0, 3])])
    met = flow(leave(line, 1, lambda *inputs: -polynomial(*inputs)), jnp.zeros((len(roots), 1)), jnp.asarray(roots))
    a, b, c = roots.T
    assert np.all(np.asarray(met.result == RESULTS.no_crossing)[b < 0])
    slack = 1e-14 * (np.abs(a * b * c / ((b - a) * (c - b))) + np.abs(b))
    assert np.all(np.abs(met.t - b)[b > 0] <= slack[b > 0])


def test_a_dip_from_a_crest():
    """k (-2, 3, 6) are the roots of a cubic that is largest at the start, positive, where its rate is zero to the last bit."""
    k = 10.0 ** np.arange(-5, 2)
    met = flow(leave(line, 1, lambda *inputs: -polynomial(*inputs)), jnp.zeros((k.size, 1)), np.outer(k, [-2.0, 3, 6]))
    assert_allclose(met.t, 3 * k, rtol=1e-13)


@pytest.mark.medium
def test_dip_of_any_depth():
    """(y - q)^2 - d is positive at both ends of the step, and negative for a time 2 sqrt(d) within it; no event for d < 0."""
    depths = [1e-1, 1e-4, 1e-8, -1e-1, -1e-6, -1e-12]
    q, d = (each.ravel() for each in np.meshgrid([0.7, 3.0, 17.0, 60.0], depths))
    met = flow(leave(line, 1, lambda t, x, p: (x[0] - p[0]) ** 2 - p[1]), jnp.zeros((q.size, 1)), (q, d))
    assert np.all(np.asarray(met.result == RESULTS.no_crossing)[d < 0])
    q, d, t = q[d > 0], d[d > 0], np.asarray(met.t)[d > 0]
    # At the event the guard is zero to 1e-14 of what it was at its largest, q^2 at the start; its rate is 2 sqrt(d).
    assert np.all(np.abs(t - (q - np.sqrt(d))) <= 1e-14 * (q + q**2 / (2 * np.sqrt(d))))


@pytest.mark.medium
def test_bulge_in_the_first_step():
    """Start on the surface, rise, fall: a ball thrown up. At a loose tolerance all of it lies in the first step."""
    ball = leave(lambda t, x, p: jnp.stack([x[1], -p]), 2, lambda t, x, p: x[0])
    sizes = [1e-2, 1.0, 3.0], [1e-1, 1.0, 1e2, 1e4], [1e-3, 1e-14]
    speed, gravity, tolerance = (each.ravel() for each in np.meshgrid(*sizes))
    start = np.stack([np.zeros_like(speed), speed], axis=1)

    @jax.jit
    @jax.vmap
    def landing(x, gravity, tolerance):
        return hj.flow_to_guard(ball, "free", 0.0, x, gravity, integrator=with_tolerance(ROLLED, tolerance)).t

    # The flow is a parabola: exact to rounding at every tolerance. Some ten steps' roundings.
    assert_allclose(landing(start, gravity, tolerance), 2 * speed / gravity, rtol=1e-14)


@pytest.mark.medium
def test_largest_step_bounds_what_can_be_missed():
    """cos(40 y) + 1/2 turns many times in a step that knows nothing of it; with a bound on the step it is found. Of the straight
    guard 1 - y, only the bound limits the steps."""
    guard = lambda t, x, p: jnp.where(p > 0, jnp.cos(40 * x[0]) + 0.5, 1 - x[0])
    short = hj.Integrator(max_step=0.02, unroll=False)
    met = flow(leave(line, 1, guard), jnp.zeros((2, 1)), jnp.array([1.0, 0.0]), short)
    assert_allclose(met.t, [2 * np.pi / 3 / 40, 1], rtol=1e-14)
    assert met.steps[1] >= 50


# 10. Newton for an orbit does not step off the section


@pytest.mark.medium
def test_guess_off_the_section(walker):
    """A start above the section would meet its guard at once; the orbit is found all the same."""
    orbit = walker["long_0.009"]
    guess = orbit.x.at[2].add(-1e-3)
    found = hj.periodic_orbit(orbit.step, guess, orbit.params)
    assert_allclose(found.x, orbit.x, rtol=0, atol=1e-14)


# 8. Failure is a code of each lane


class Troubles(eqx.Module):
    """A system that can fail in every way: y' = 1 and z' = blow z^2 + fast sin(fast t) + sqrt(root)."""

    first: jax.Array  # y at which the named guard falls
    other: jax.Array  # y at which another falls
    flat: jax.Array  # 1: the named guard falls as a cube, with rate zero
    blow: jax.Array
    fast: jax.Array
    root: jax.Array
    spoil: jax.Array  # of the reset: its square root is taken


def field(t, x, p):
    _, z = x
    return jnp.stack([jnp.ones_like(z), p.blow * z**2 + p.fast * jnp.sin(p.fast * t) + jnp.sqrt(p.root)])


def named(t, x, p):
    down = p.first - x[0]
    return down * (1 - p.flat + p.flat * down**2)


trouble = hj.HybridSystem(
    {"free": hj.Mode(field, ("y", "z")), "lost": hj.Mode(field, ("y", "z"))},
    (
        hj.Transition(
            "free", "free", named, lambda t, x, p: jnp.stack([0.1 * x[0], jnp.cos(x[1]) + jnp.sqrt(p.spoil)])
        ),
        hj.Transition("free", "lost", lambda t, x, p: p.other - x[0], same),
    ),
)

HEALTHY = dict(first=1.0, other=5.0, flat=0.0, blow=0.3, fast=1.0, root=0.0, spoil=0.0)
LANES = {
    "successful": {},
    "no_crossing": dict(first=1e3, other=1e3, blow=0.0),
    "grazing": dict(flat=1.0),
    "unexpected_transition": dict(other=0.5),
    "simultaneous_guards": dict(other=1.0),
    "max_steps_reached": dict(fast=1e4),
    "nonfinite": dict(root=-1.0),
    # z = 1/(1 - t) at blow = 1: the step size vanishes before the state is infinite.
    "dt_min_reached": dict(first=3.0, blow=1.0, fast=0.0),
    "nonfinite, in the reset": dict(spoil=-1.0),
}


def lanes(names):
    rows = [HEALTHY | LANES[name] for name in names]
    return Troubles(**{key: jnp.array([row[key] for row in rows]) for key in HEALTHY})


@eqx.filter_jit
def strides(params):
    integrator = hj.Integrator(rtol=1e-8, atol=1e-8, max_steps=400, unroll=False)
    starts = jnp.tile(jnp.array([0.0, 1.0]), (len(LANES), 1))
    run = lambda x, params: hj.ReturnMap(trouble, sequence=("free",), integrator=integrator)(x, params, throw=False)
    jacobian = lambda x, params: hj.ReturnMap(trouble, sequence=("free",), integrator=integrator).jacobian(
        x, params, throw=False
    )
    return jax.vmap(run)(starts, params), jax.vmap(jacobian)(starts, params)


def numbers_of(pytree, lane=None):
    """The floating arrays of a batch: of one lane, or of all but one."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(pytree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return leaves if lane is None else [leaf[lane] for leaf in leaves]


@pytest.mark.medium
def test_code_of_each_failure_and_its_derivative():
    through, jacobian = strides(lanes(LANES))
    for i, name in enumerate(LANES):
        assert bool((through.result == getattr(RESULTS, name.split(",")[0]))[i]), name
        expected = np.isfinite if name == "successful" else np.isnan
        for leaf in (through.x, through.time, jacobian):
            assert np.all(expected(leaf[i])), name


@pytest.mark.medium
def test_neighbours_of_a_failing_lane_are_untouched():
    """Bit for bit what they are in the same batch with a healthy lane in its place."""
    with_failure = strides(lanes(LANES))
    for i, name in list(enumerate(LANES))[1:]:
        healed = strides(lanes(["successful" if k == i else each for k, each in enumerate(LANES)]))
        others = np.arange(len(LANES)) != i
        for a, b in zip(numbers_of(with_failure, others), numbers_of(healed, others), strict=True):
            assert np.array_equal(a, b, equal_nan=True), name
        # And the lane that replaces it is the healthy one.
        for leaf in numbers_of(healed):
            assert np.array_equal(leaf[i], leaf[0]), name


# A map of one number a -> c0 + c1 a + c2 a^2, at the end of a unit of time
polynomial_map = hj.HybridSystem(
    {"wait": hj.Mode(lambda t, x, c: jnp.stack([jnp.ones(()), jnp.zeros(())]), ("clock", "a"))},
    (
        hj.Transition(
            "wait",
            "wait",
            lambda t, x, c: 1 - x[0],
            lambda t, x, c: jnp.stack([jnp.zeros(()), c[0] + c[1] * x[1] + c[2] * x[1] ** 2]),
        ),
    ),
)
MAPS = {
    "successful": (1.0, -0.5, 0.0),  # a = 2/3
    "orbit_not_converged": (1.0, 1.0, 1.0),  # a = 1 + a + a^2 has no real root
    "not_isolated": (0.0, 1.0, 0.0),  # every a returns
}


# A solver that is quick to compile, exact for the clock and for free fall.
exact = hj.Integrator(dfx.Bosh3(), rtol=1e-13, atol=1e-13, max_time=5.0)


def orbit_of_map(c, throw):
    start = jnp.array([0.0, 0.3])
    return hj.periodic_orbit(hj.ReturnMap(polynomial_map, sequence=("wait",), integrator=exact), start, c, throw=throw)


@eqx.filter_jit
def orbits(maps):
    return jax.vmap(lambda c: orbit_of_map(c, False))(maps)


@pytest.mark.medium
def test_code_of_each_failing_orbit():
    found = orbits(jnp.array(list(MAPS.values())))
    for i, name in enumerate(MAPS):
        assert bool((found.result == getattr(RESULTS, name))[i]), name
    numbers = found.x, found.period, found.multipliers, found.return_jacobian, found.residual, found.nodes
    for leaf in numbers:
        # One orbit of a family is an orbit.
        assert np.all(np.isfinite(leaf[0])) and np.all(np.isnan(leaf[1])) and np.all(np.isfinite(leaf[2]))
    assert_allclose(found.x[0], [0, 2 / 3], rtol=1e-15)


@pytest.mark.medium
def test_neighbours_of_a_failing_orbit_are_untouched():
    maps = np.array(list(MAPS.values()))
    with_failure = orbits(jnp.asarray(maps))
    for i in (1, 2):
        replaced = maps.copy()
        replaced[i] = maps[0]
        healed = orbits(jnp.asarray(replaced))
        others = np.arange(3) != i
        for a, b in zip(numbers_of(with_failure, others), numbers_of(healed, others), strict=True):
            assert np.array_equal(a, b, equal_nan=True)


def test_failure_raises_when_asked():
    with pytest.raises(Exception, match="one of a continuous family"):
        orbit_of_map(jnp.array(MAPS["not_isolated"]), True)


@pytest.mark.medium
def test_masked_failures_do_not_reach_shared_parameters():
    """The gradient of a sum over the lanes that succeeded is that of these lanes alone."""
    drop = hj.HybridSystem(
        {"fall": hj.Mode(lambda t, x, g: jnp.stack([x[1], -g]), ("y", "v"))},
        (hj.Transition("fall", "fall", lambda t, x, g: x[0], lambda t, x, g: x),),
    )

    def total(g, heights):
        starts = jnp.stack([heights, jnp.zeros_like(heights)], axis=1)
        fall = lambda x: hj.flow_to_guard(drop, "fall", 0.0, x, g, integrator=exact, throw=False)
        impacts = jax.vmap(fall)(starts)
        return jnp.sum(jnp.where(impacts.result == hj.RESULTS.successful, impacts.t, 0))

    # From 100 the floor is not reached in time; from 1 it is, at T = sqrt(2 h / g), with dT/dg = -T / 2g.
    slope = jax.jit(jax.grad(total))(2.0, jnp.array([1.0, 100.0]))
    assert_allclose(slope, -1 / 4, rtol=1e-13)  # free fall is exact at any tolerance
