"""Where a run may go on, and where it may not: guards that start on their surfaces, accumulations, two flows that meet."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import code_names, rounding, Surfaces

ROLLED = hj.Integrator(unroll=False)
same = lambda t, x, p: x


def codes(run):
    return np.array(code_names(run.result))


# A guard on its surface


def driven(t, x, p):
    """A chain of four integrators, of which number `order` is driven: the guard's derivatives below that order are zero."""
    rates = jnp.append(x[1:], 0.0)
    return rates + jnp.where(jnp.arange(4) == p["order"] - 1, p["push"] * p["scale"], 0.0)


def height(t, x, p):
    y = x[0] / p["scale"]
    steep = 1e6 * jnp.sin(1e-3 * (y - p["at"]))
    gap = 3 + p["at"] - jnp.sqrt((3 + 2 * p["at"] - y) ** 2)
    return jnp.stack([y - p["at"], steep, gap])[p["kind"]]


names = ("a", "b", "c", "d")
chain = hj.HybridSystem(
    {"held": hj.Mode(lambda t, x, p: 0 * x, names), "free": hj.Mode(driven, names)},
    (hj.Transition("held", "free", lambda t, x, p: p["since"] - t, same), hj.Transition("free", "held", height, same)),
)


@pytest.mark.medium
def test_the_first_derivative_that_is_not_zero_decides():
    """Of order 1 to 4, of either sign; offsets, for which rounding is not relative to zero; units; late times; three forms of the
    guard, of which the last has at the offset zero the rounding of 3, which no input shows. Lower derivatives and the value are
    rounding."""
    kinds = (1, 2, 3, 4), (1, -1), (0.0, 0.7, -1.3), (1e-6, 1.0, 1e6), (0.3, 1e3), (0, 1, 2)
    order, sign, at, scale, since, kind = np.array(list(itertools.product(*kinds))).T
    rng = np.random.default_rng(0)
    push = sign * rng.uniform(0.3, 3, sign.size)
    x = np.zeros((sign.size, 4))
    x[:, 0] = at * scale * (1 + 2e-16 * rng.normal(size=sign.size))
    # A rate that is rounding above the surface at zero is a hop, which is resolved unless the guard rounds it.
    lower = np.arange(4) < order[:, None] - 1
    lower = lower & (np.arange(4) > 0) | (np.arange(4) == 1) & (order[:, None] > 1)
    rounding = 1e-16 * scale[:, None] * rng.normal(size=x.shape)
    x += np.where(lower & ((sign > 0) | (at != 0) | (kind == 2))[:, None], rounding, 0)
    params = dict(order=order.astype(int), push=push, at=at, scale=scale, since=since, kind=kind.astype(int))
    run = lambda x, p: hj.simulate(
        chain, x, p, mode="held", t1=p["since"] + 1, max_jumps=4, integrator=ROLLED, throw=False
    )
    runs = jax.jit(jax.vmap(run))(jnp.asarray(x), jax.tree.map(jnp.asarray, params))
    goes_on = (sign > 0) | (order == 1)
    assert np.array_equal(codes(runs), np.where(goes_on, "successful", "zeno"))
    assert np.all(runs.jumps == 1)
    # A fall of fourth order is rounding for (64 eps 4!)^(1/4).
    assert_allclose(runs.t, np.where(goes_on, since + 1, since), rtol=0, atol=1e-3)
    moved = np.where(goes_on, push / np.array([math.factorial(int(k)) for k in order]), 0)
    # The rounding of a time of 1000, twice.
    assert_allclose(runs.x[:, 0] / scale, at + moved, rtol=1e-12, atol=1e-12)


@pytest.mark.medium
def test_a_guard_that_is_not_armed_does_not_hold():
    """x'' = -1 from rest on the guard's surface: events accumulate there, or it is passed."""
    falls = hj.Mode(lambda t, x, p: jnp.stack([x[1], -1 + 0 * x[1]]), ("x", "v"))
    way = hj.Transition("free", "free", lambda t, x, p: x[0], lambda t, x, p: -x, armed=lambda t, x, p: p > 0)
    run = lambda p: hj.simulate(
        hj.HybridSystem({"free": falls}, (way,)),
        jnp.zeros(2),
        p,
        mode="free",
        t1=1.0,
        max_jumps=3,
        integrator=ROLLED,
        throw=False,
    )
    runs = jax.jit(jax.vmap(run))(jnp.array([1.0, -1.0]))
    assert np.array_equal(codes(runs), ["zeno", "successful"])
    assert_allclose(runs.x, [[0, 0], [-0.5, -1]], rtol=1e-13)


@pytest.mark.medium
def test_a_guard_that_rose_from_rest_passes_where_it_is_not_armed():
    """x'' = 1 - c t from rest on the surface: x = t^2 / 2 - c t^3 / 6 is zero again at 3 / c, where the guard is passed, by a
    step that ends on either side of the surface; or fires, at 3, and x = x' = 1 from there."""
    throw = hj.Mode(lambda t, x, p: jnp.stack([x[1], 1 - p["c"] * t]), ("x", "v"))
    way = hj.Transition(
        "free", "free", lambda t, x, p: x[0], lambda t, x, p: 0 * x + 1, armed=lambda t, x, p: t < p["until"]
    )  # fmt: skip
    run = lambda c, until: hj.simulate(
        hj.HybridSystem({"free": throw}, (way,)), jnp.zeros(2), {"c": c, "until": until}, mode="free", t1=4.0,
        max_jumps=1, integrator=ROLLED,
    )  # fmt: skip
    c, until = np.append(np.linspace(0.8, 2, 127), 1), np.append(np.full(127, 0.5), 5)
    runs = jax.jit(jax.vmap(run))(jnp.asarray(c), jnp.asarray(until))
    assert set(codes(runs)) == {"successful"} and np.array_equal(runs.jumps, until == 5)
    passed = np.stack([8 - 32 / 3 * c, 4 - 8 * c], axis=1)
    assert_allclose(runs.x, np.where((until == 5)[:, None], [5 / 6, -3 / 2], passed), rtol=1e-12)


@pytest.mark.medium
def test_the_rounding_of_constants_in_a_guard():
    """At states that are zero or resolved far below: the rounding of the constants, between 1 and 128 units of their last places;
    none for what bends, jumps, has a kink near or varies with a state of another size."""
    size = np.geomspace(1e-5, 1e9, 29)
    guards = {
        "gap": (lambda y, c: c - jnp.sqrt((c - y) ** 2), 1), "sum": (lambda y, c: (c + y) - c, 1),
        "exponential": (lambda y, c: c * (jnp.exp(y / c) - 1), 1),
        "linear": (lambda y, c: c * y, 0), "square": (lambda y, c: y**2 / c, 0), "root": (lambda y, c: c * jnp.sqrt(y), 0),
        "kink": (lambda y, c: y + jnp.abs(y - 1e-9 * c), 0), "wave": (lambda y, c: jnp.sin(y / (1e-15 * c)), 0),
        "step": (lambda y, c: jnp.where(y > 0, c, y), 0),
    }  # fmt: skip
    for name, (guard, share) in guards.items():
        both = Surfaces(1, lambda t, x, c, guard=guard: guard(x[0], c)[None], lambda t, x, c: jnp.array([True]))
        at = lambda y, c, both=both: rounding(both, jnp.array(0.3), jnp.stack([y, 1 + 0 * y]), c)[0][0]
        for y in (0.0,) if share == 0 else (0.0, 1e-20):
            found = jax.jit(jax.vmap(at, (None, 0)))(jnp.array(y), jnp.asarray(size)) / 2.2e-16
            low, high = {0: (-1, 1e-3), 1: (1, 128)}[share]
            assert np.all((found / size > low) & (found / size < high)), (name, found / size)


@pytest.mark.parametrize("n", [2, 40])
def test_guards_are_evaluated_in_one_batch_for_their_rounding(n):
    """And in one that is rarely needed; of a long state by their gradient, and along the line."""
    traced = []

    def values(t, x, args, only=None):
        traced.append(x)
        return x[:1]

    jax.make_jaxpr(lambda x: rounding(Surfaces(1, values, None), jnp.array(0.3), x, None))(jnp.ones(n))
    assert len(traced) == {2: 2, 40: 3}[n]


@pytest.mark.medium
def test_slack_strings():
    """A pendulum on a string that turns slowly: the string goes slack where its tension vanishes, with gap, rate and curvature
    zero, and is taut again after 4 v / g upwards (closed form). 64 speeds, two forms of the gap."""
    g = 9.81
    squared = lambda x: 1 - x[0] ** 2 - x[1] ** 2
    gap = lambda t, x, p: jnp.where(p, squared(x), 1 - jnp.sqrt(x[0] ** 2 + x[1] ** 2))

    def let_go(t, x, p):
        sin, cos = jnp.sin(x[0]), jnp.cos(x[0])
        return jnp.stack([sin, -cos, x[1] * cos, x[1] * sin])

    def catch(t, x, p):
        angle = jnp.arctan2(x[0], -x[1])
        return jnp.stack([angle, x[2] * jnp.cos(angle) + x[3] * jnp.sin(angle)])

    taut = hj.Mode(lambda t, x, p: jnp.stack([x[1], -g * jnp.sin(x[0])]), ("angle", "rate"))
    slack = hj.Mode(lambda t, x, p: jnp.stack([x[2], x[3], 0 * x[2], -g + 0 * x[3]]), ("x", "y", "v", "w"))
    tension = lambda t, x, p: x[1] ** 2 + g * jnp.cos(x[0])
    ways = (hj.Transition("taut", "slack", tension, let_go), hj.Transition("slack", "taut", gap, catch))
    system = hj.HybridSystem({"taut": taut, "slack": slack}, ways)
    k = np.tile(np.linspace(2.3, 4.7, 32), 2)
    run = lambda k, p: hj.simulate(
        system, jnp.stack([0 * k, jnp.sqrt(k * g)]), p, mode="taut", t1=1.7, max_jumps=1, integrator=ROLLED, throw=False
    )
    runs = jax.jit(jax.vmap(run))(jnp.asarray(k), jnp.arange(64) < 32)
    # `max_jumps` ends the run where the string is taut again.
    cos = (2 - k) / 3
    speed = np.sqrt(k * g - 2 * g * (1 - cos))
    flight = 4 * speed * np.sqrt(1 - cos**2) / g
    assert set(codes(runs)) == {"max_jumps_reached"}
    assert_allclose(runs.end_times[:, 1] - runs.end_times[:, 0], flight, rtol=1e-12)


@pytest.mark.medium
def test_blocks_that_begin_to_slip():
    """A block on a belt of speed 0 or 0.7, pulled by A sin t, slips where that exceeds the friction, 1: slip and acceleration are
    zero there. Closed form of its speed. The back transitions are those of a relay: it does not slide."""
    offset = lambda p: p["belt"]
    pull = lambda t, p: p["A"] * jnp.sin(t)
    halt = lambda t, x, p: jnp.stack([x[0], offset(p) + 0 * x[1]])
    slip = lambda side: hj.Mode(lambda t, x, p: jnp.stack([x[1], pull(t, p) - side]), ("x", "v"))
    still = hj.Mode(lambda t, x, p: jnp.stack([x[1], 0 * x[1]]), ("x", "v"))
    stops = lambda side: lambda t, x, p: side * (x[1] - offset(p))
    holds = lambda t, x, p: jnp.abs(pull(t, p)) <= 1
    back = lambda side: lambda t, x, p: side * pull(t, p) < -1
    ways = [
        way
        for side, mine, other in ((1, "forward", "backward"), (-1, "backward", "forward"))
        for way in (
            hj.Transition("stick", mine, lambda t, x, p, side=side: 1 - side * pull(t, p), same),
            hj.Transition(mine, "stick", stops(side), halt, armed=holds),
            hj.Transition(mine, other, stops(side), halt, armed=back(side)),
        )
    ]
    system = hj.HybridSystem({"stick": still, "forward": slip(1.0), "backward": slip(-1.0)}, ways)
    A, belt = np.tile(np.linspace(1.3, 4.0, 64), 2), np.repeat([0.0, 0.7], 64)
    run = lambda p: hj.simulate(
        system, jnp.stack([0 * p["belt"], p["belt"]]), p, mode="stick", t1=2.0, max_jumps=6, integrator=ROLLED
    )
    runs = jax.jit(jax.vmap(run))({"A": jnp.asarray(A), "belt": jnp.asarray(belt)})
    assert set(codes(runs)) == {"successful"}
    begin = np.arcsin(1 / A)
    assert_allclose(runs.x[:, 1], belt + A * (np.cos(begin) - np.cos(2)) - (2 - begin), rtol=1e-13)


@pytest.mark.medium
def test_rectifiers():
    """A peak rectifier conducts, v = sin t, until its current cos t + v / RC vanishes, at pi - atan RC; then it discharges until
    the source is as high. 64 of them, and their events of three periods."""
    conduct = hj.Mode(lambda t, x, p: jnp.stack([jnp.cos(t)]), ("v",))
    discharge = hj.Mode(lambda t, x, p: -x / p, ("v",))
    source = lambda t, x, p: jnp.stack([jnp.sin(t)])
    ways = (
        hj.Transition("on", "off", lambda t, x, p: jnp.cos(t) + x[0] / p, same),
        hj.Transition("off", "on", lambda t, x, p: x[0] - jnp.sin(t), source),
    )
    system = hj.HybridSystem({"on": conduct, "off": discharge}, ways)
    rc = np.geomspace(0.2, 20, 64)
    run = lambda rc: hj.simulate(system, jnp.zeros(1), rc, mode="on", t1=20.0, max_jumps=8, integrator=ROLLED)
    runs = jax.jit(jax.vmap(run))(jnp.asarray(rc))
    assert set(codes(runs)) == {"successful"} and np.all(runs.jumps == 6)
    off, on = runs.end_times[:, :6:2], runs.end_times[:, 1:6:2]
    periods = 2 * np.pi * np.arange(3)
    assert_allclose(off, (np.pi - np.arctan(rc))[:, None] + periods, rtol=1e-13)
    assert_allclose(np.sin(off) * np.exp(-(on - off) / rc[:, None]), np.sin(on), rtol=0, atol=1e-12)


# Accumulation


def tank(t, x, p):
    return x - p["low"]


HOSE = {"first": (1.0, 0.0), "second": (0.0, 1.0)}
filling = hj.HybridSystem(
    {
        name: hj.Mode(lambda t, x, p, hose=hose: p["size"] * (p["in"] * jnp.array(hose) - p["out"]), ("a", "b"))
        for name, hose in HOSE.items()
    },
    (
        hj.Transition("first", "second", lambda t, x, p: x[1] - p["low"][1], same),
        hj.Transition("second", "first", lambda t, x, p: x[0] - p["low"][0], same),
    ),
)


@pytest.mark.medium
def test_zeno_between_two_tanks():
    """One hose fills whichever of two leaking tanks is empty: Zeno where both are. The last lanes: tanks of any size; a hose that
    all but suffices, whose passes are each 0.96 of the one before."""
    inflow = np.array([0.75, 0.75, 1.0, 0.75, 0.75, 0.99])
    out = np.array([[0.5, 0.5], [0.5, 0.5], [0.9, 0.7], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])
    low = np.array([[0, 0], [1, 1], [0.1, 0.4], [0, 0], [0, 0], [0, 0]])
    size = np.array([1, 1, 1, 1e-12, 1e12, 1])
    x = np.array([[1.0, 1.0], [2.0, 2.0], [1.3, 1.7], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    end = np.sum(x - low, axis=1) / (np.sum(out, axis=1) - inflow)
    params = {"in": inflow, "out": out, "low": low, "size": size}
    run = lambda x, p, t1: hj.simulate(
        filling, x * p["size"], p, mode="first", t1=t1, max_jumps=3000, record=False, integrator=ROLLED, throw=False
    )
    runs = jax.jit(jax.vmap(run))(jnp.asarray(x), jax.tree.map(jnp.asarray, params), jnp.asarray(2 * end))
    assert set(codes(runs)) == {"zeno"}
    assert_allclose(runs.t, end, rtol=1e-11)
    assert_allclose(runs.x / size[:, None], low, rtol=0, atol=1e-11)


@pytest.mark.medium
def test_a_hose_that_more_than_suffices():
    """Both tanks are empty, and the hose moves to neither: what it fills rises by 2 t, the other falls by t. Passes from one to
    the other would be ever longer."""
    params = {"in": jnp.array(3.0), "out": jnp.ones(2), "low": jnp.zeros(2), "size": jnp.array(1.0)}
    run = hj.simulate(filling, jnp.zeros(2), params, mode="first", t1=1.5, max_jumps=4, integrator=ROLLED)
    assert run.result == "successful" and int(run.jumps) == 0
    assert_allclose(run.x, [3, -1.5], rtol=1e-13)


def test_pairs_of_events_are_no_accumulation():
    """Two guards fall at 1 and at 1.5, one of them later by little or not at all, another at 1.52, and one at 3."""
    once = lambda x, late: -(x - 1 - late) * (x - 1.25) * (x - 1.5 - late)
    guards = (lambda t, x, p: once(x[0], 0), lambda t, x, p: once(x[0], p), lambda t, x, p: 1e-4 * (1.52 - x[0]))
    line = hj.Mode(lambda t, x, p: jnp.ones(1), ("x",))
    ways = [hj.Transition("line", "line", guard, same) for guard in (*guards, lambda t, x, p: 3 - x[0])]
    system, late = hj.HybridSystem({"line": line}, ways), jnp.array([0, 1e-14, 1e-13, 1e-12])
    run = lambda p: hj.simulate(system, jnp.zeros(1), p, mode="line", t1=4.0, integrator=ROLLED, throw=False)
    runs = jax.jit(jax.vmap(run))(late)
    assert set(codes(runs)) == {"successful"} and np.all(runs.jumps == 6)


@pytest.mark.medium
def test_the_twisting_algorithm():
    """x'' = -2 sign x - sign x', about any point, spirals into it in finite time through four modes (closed form)."""
    mode = lambda a: hj.Mode(lambda t, x, p: jnp.stack([x[1], a * p["size"] + 0 * x[1]]), ("x", "v"))
    modes = {"right, back": mode(-1.0), "left, back": mode(3.0), "left, forth": mode(1.0), "right, forth": mode(-3.0)}
    side, speed = lambda t, x, p: x[0] - p["at"], lambda t, x, p: x[1]
    falls = [side, lambda *inputs: -speed(*inputs), lambda *inputs: -side(*inputs), speed]
    cycle = [*modes, "right, back"]
    ways = [hj.Transition(a, b, guard, same) for a, b, guard in zip(cycle, cycle[1:], falls, strict=False)]
    system = hj.HybridSystem(modes, ways)
    run = lambda p: hj.simulate(
        system,
        jnp.stack([p["at"] + p["size"], 0 * p["at"]]),
        p,
        mode=cycle[0],
        t1=10.0,
        max_jumps=300,
        integrator=ROLLED,
        throw=False,
    )
    at, size = np.array([0.0, 0.0, 0.0, 3.0]), np.array([1, 1e-15, 1e15, 1.0])
    runs = jax.jit(jax.vmap(run))({"at": jnp.asarray(at), "size": jnp.asarray(size)})
    assert set(codes(runs)) == {"zeno"}
    end = (np.sqrt(2) + np.sqrt(2) / 3) / (1 - 1 / np.sqrt(3))
    # About 3 the last amplitude is the rounding of 3, h; the time left is `end` times the root of h.
    assert_allclose(runs.t, end, rtol=0, atol=end * np.sqrt(64 * 2.3e-16 * 3))
    assert_allclose(runs.t[at == 0], end, rtol=0, atol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("atol", [None, 1e-30])
@pytest.mark.parametrize("at", [0.0, -0.5])
def test_a_small_oscillator_with_a_wall(at, atol):
    """Of size 1 or far smaller, with an absolute tolerance that is larger or as small: it strikes a wall in the middle every half
    period; one at -1/2 after 2 pi / 3, and from there after twice the angle whose tangent is the speed over 1/2."""
    fine = hj.Integrator(unroll=False) if atol is None else hj.Integrator(atol=atol, unroll=False)
    wall = hj.Transition("free", "free", lambda t, x, p: x[0] - at * p, lambda t, x, p: x * jnp.array([1, -0.9]))
    swing = hj.Mode(lambda t, x, p: jnp.stack([x[1], -x[0]]), ("x", "v"))
    system = hj.HybridSystem({"free": swing}, (wall,))
    run = lambda size: hj.simulate(
        system, jnp.stack([size, 0 * size]), size, mode="free", t1=10.0, max_jumps=6, integrator=fine
    )
    sizes = np.array([1.0, 1e-9, 1e-15, 1e-18])
    runs = jax.jit(jax.vmap(run))(jnp.asarray(sizes))
    speed = np.sqrt(1 - at**2) * 0.9 ** np.arange(1, 6)
    flights = 2 * np.arctan2(speed, at)
    # The swing about zero has half a turn from any speed.
    strikes = np.arccos(at) + np.cumsum(np.append(0, flights))
    count = int(np.sum(strikes < 10))
    assert set(codes(runs)) == {"successful"} and np.all(runs.jumps == count)
    # The steps of a flow below the absolute tolerance are as long as that allows.
    assert_allclose(runs.end_times[:, :count], np.tile(strikes[:count], (4, 1)), rtol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("at", [0.0, 0.7])
def test_a_relay_slides_at_any_time(at):
    """On one surface two flows meet, whatever guards describe it; late, where the time has few digits."""
    up, down = (hj.Mode(lambda t, x, p, s=s: s * p * jnp.ones(1), ("x",)) for s in (0.7, -1.3))
    ways = (
        hj.Transition("down", "up", lambda t, x, p: x[0] / p - at, same),
        hj.Transition("up", "down", lambda t, x, p: (3 + p) * (jnp.exp(at - x[0] / p) - 1), same),
    )
    system = hj.HybridSystem({"down": down, "up": up}, ways)
    start, size = jnp.array([0.0, 1.0, 1e3, *[0.0] * 8]), jnp.array([1e-6, 1.0, 1e6, *np.geomspace(0.3, 300, 8)])
    run = lambda t0, p: hj.simulate(
        system,
        jnp.stack([p * (at + 1.3)]),
        p,
        mode="down",
        t0=t0,
        t1=t0 + 5,
        max_jumps=20,
        integrator=ROLLED,
        throw=False,
    )
    runs = jax.jit(jax.vmap(run))(start, size)
    assert set(codes(runs)) == {"sliding"}
    assert_allclose(runs.t, start + 1, rtol=1e-12)


@pytest.mark.medium
def test_a_flow_that_comes_to_rest_on_a_surface_does_not_slide():
    """x' = 0.3 - x from 0.3 up to rounding, whose rate has the sign of that rounding; on the other side x' = -1. Also late, where
    the rounding of the time allows for the distance."""
    modes = {"down": hj.Mode(lambda t, x, p: -1 + 0 * x, ("x",)), "up": hj.Mode(lambda t, x, p: 0.3 - x, ("x",))}
    ways = (
        hj.Transition("down", "up", lambda t, x, p: x[0] - 0.3, same),
        hj.Transition("up", "down", lambda t, x, p: 0.3 - x[0], same),
    )
    system = hj.HybridSystem(modes, ways)
    run = lambda x, t0: hj.simulate(
        system, x[None], None, mode="up", t0=t0, t1=t0 + 1, max_jumps=3, integrator=ROLLED
    )  # fmt: skip
    runs = jax.jit(jax.vmap(run))(0.3 - 2.0**-54 * jnp.tile(jnp.arange(4.0), 2), jnp.repeat(jnp.array([0.0, 1.0]), 4))
    assert set(codes(runs)) == {"successful"} and np.all(runs.jumps == 0)
    assert_allclose(runs.x, 0.3, rtol=1e-15)


@pytest.mark.medium
def test_orbits_of_rectifiers_go_on():
    """With the phase as a coordinate, in laps of one duration: where the current vanishes, gap and rate are rounding of either
    sign. 32 orbits go on for ten laps."""
    conduct = hj.Mode(lambda t, x, p: jnp.stack([jnp.cos(x[1]), 1 + 0 * x[1]]), ("v", "phase"))
    discharge = hj.Mode(lambda t, x, p: jnp.stack([-x[0] / p, 1 + 0 * x[1]]), ("v", "phase"))
    back = lambda t, x, p: jnp.stack([jnp.sin(x[1]), x[1] - 2 * jnp.pi])
    ways = (
        hj.Transition("on", "off", lambda t, x, p: jnp.cos(x[1]) + x[0] / p, same),
        hj.Transition("off", "on", lambda t, x, p: x[0] - jnp.sin(x[1]), back),
    )
    system = hj.HybridSystem({"on": conduct, "off": discharge}, ways)
    rc, laps = jnp.asarray(np.geomspace(0.5, 20, 32)), 20 * jnp.pi + 1e-3
    find = lambda p: hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("on", "off"), integrator=ROLLED), jnp.array([0.2, 0.2]), p, throw=False
    )
    x = jax.jit(jax.vmap(lambda p: find(p).x))(rc)
    run = lambda x, p: hj.simulate(system, x, p, mode="on", t1=laps, max_jumps=30, integrator=ROLLED)
    runs = jax.jit(jax.vmap(run))(x, rc)
    assert set(codes(runs)) == {"successful"} and np.all(runs.jumps == 20)
    assert_allclose(runs.x_starts[:, 20], x, rtol=1e-11)
