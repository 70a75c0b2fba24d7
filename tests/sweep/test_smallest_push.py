"""The smallest push out of a basin whose border is a curve in closed form."""

import dataclasses
import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting import compiled
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import expm
from scipy.optimize import brentq
from systems import CLOCK, ROLLED
from test_continuation import mapping

import hyjax as hj
from hyjax._testing import mode_of_state
from hyjax.models import simplest_walker as walker

# The basin of 0 is |x - f(y)| < 1 with f = -a y^2 + c y^3, and its border towards (1, 0) the stable manifold of that saddle.
bend = lambda y, p: -p["a"] * y**2 + p["c"] * y**3
BENT = mapping(lambda x, p: jnp.stack([(x[0] - bend(x[1], p)) ** 2 + bend(x[1] / 2, p), x[1] / 2]), 2)
STEP = hj.ReturnMap(BENT, sequence=("run",), integrator=ROLLED)


def orbits(a, c):
    params = {"a": jnp.array(a), "c": jnp.array(c)}
    return [hj.periodic_orbit(STEP, jnp.array([x, 0.01, 0.0]), params) for x in (0.01, 1.01)]


@ft.cache
def of_one():
    rest, edge = orbits(1.0, 0.0)
    return hj.smallest_push(rest, directions=("x0", "x1"), edge=edge, largest=2.0)


@pytest.mark.medium
def test_the_smallest_push_in_closed_form(tmp_path):
    rest, least = orbits(1.0, 0.0)[0], of_one()
    # sqrt(4 a - 1) / (2 a) with a = 1, to rounding; the points are (1/2, +-1/sqrt(2)).
    assert_allclose(least.size, np.sqrt(3) / 2, rtol=1e-13)
    assert_allclose(np.abs(least.push), [0.5, np.sqrt(0.5)], rtol=1e-7)
    assert least.certified == 1e-12 and str(least.result) == "successful"
    # At all instants alike.
    assert 0 <= least.instant <= rest.period
    hj.save(tmp_path / "push.npz", least)
    again = hj.load(tmp_path / "push.npz", system=BENT)
    assert again.names == ("x0", "x1") and again.strides == least.strides
    assert_array_equal(again.push, least.push)


WELL = mapping(lambda x, p: x + p["rate"] * x * (1 - (x / p["g"]) ** 2) / 2 + p["force"] / p["unit"])


def beside_the_origin(rate, unit=1.0):
    """The well at 1 with the saddle at 0, beyond which, and from g sqrt(1 + 2 / rate) on, states lead away."""
    params = {"rate": rate, "g": 1.0, "force": 0.0, "unit": unit}
    step = hj.ReturnMap(WELL, sequence=("run",), integrator=ROLLED)
    return hj.periodic_orbit(step, jnp.array([1.0, 0.0]), {name: jnp.array(each) for name, each in params.items()})


@pytest.mark.medium
def test_an_edge_state_at_the_origin_over_a_parameter():
    least = hj.smallest_push(beside_the_origin(1.0), directions=("x0",), instants=(0.5,), largest=2.5)
    assert_allclose(least.edge.x, [0, 0], atol=1e-14)
    g = np.array([1.0, 1.1])
    found = least.sweep(where=lambda p: p["g"], values=g, phases=[0.5])
    assert_allclose(found["push"], g[:, None, None] * (np.sqrt(3) - 1), rtol=1e-12)
    assert np.all(found.result == 0) and np.all(found.certified <= 1e-11)


@pytest.mark.medium
def test_directions_that_depend_on_each_other():
    """Wells at -1 and 1, and y by itself: the border nearest to 1 is x = sqrt 3, of which the shares are the shortest."""
    wells = mapping(lambda x, p: jnp.stack([x[0] + x[0] * (1 - x[0] ** 2) / 2, x[1] / 2]), 2)
    step = hj.ReturnMap(wells, sequence=("run",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([1.0, 0.0, 0.0]), {})
    ways = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    least = hj.smallest_push(orbit, directions=ways, largest=3.0, instants=(0.5,))
    assert_allclose(least.push, (np.sqrt(3) - 1) / 2 * np.array([1, 0, 1]), atol=1e-12)
    assert least.certified == 1e-12
    with pytest.raises(ValueError, match="no push up to largest=3"):
        hj.smallest_push(orbit, directions=("x1",), largest=3.0, instants=(0.5,))


@pytest.mark.medium
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e-9, 1e6])
def test_pushes_and_kicks_in_any_unit(unit):
    """The saddle is 1 below the well, and the other border farther above."""
    orbit = beside_the_origin(0.4, unit)
    for given in ({"directions": jnp.array([[1 / unit, 0.0]])}, {"where": lambda p: p["force"]}):
        least = hj.smallest_push(orbit, **given, instants=(0.5,), largest=2.5 * unit, max_strides=200)
        assert_allclose(least.push / unit, [-1], rtol=1e-13)
        assert_allclose(least.edge.x, [0, 0], atol=1e-14)
        assert least.certified <= 1e-11


@pytest.mark.medium
def test_a_bent_border_in_a_small_unit():
    rest, edge = orbits(1.0, 0.0)
    least = hj.smallest_push(rest, directions=1e9 * jnp.eye(3)[:2], edge=edge, largest=2e-9)
    assert_allclose(least.size, 1e-9 * np.sqrt(3) / 2, rtol=1e-13)
    assert least.certified == 1e-12


def near_wells():
    """Wells at -g and g with the saddle 0 between them, beside a coordinate that goes to 1: the border is where x = 0 after laps,
    x = 0 and x = g sqrt 3, nearer to the orbit than a hundredth of 1."""
    wells = mapping(lambda x, p: jnp.stack([x[0] + x[0] * (1 - (x[0] / p["g"]) ** 2) / 2, x[1] / 2 + 0.5]), 2)
    step, params = hj.ReturnMap(wells, sequence=("run",), integrator=ROLLED), {"g": jnp.array(1e-4)}
    return [hj.periodic_orbit(step, jnp.array([x, 1.0, 0.0]), params) for x in (1e-4, 0.0)]


@pytest.mark.medium
def test_a_push_smaller_than_closeness_of_the_largest_coordinate():
    least = hj.smallest_push(near_wells()[0], directions=("x0",), instants=(0.5,), largest=2.5e-4)
    # Rounding beside a coordinate of 1.
    assert_allclose(least.edge.x, [0, 1, 0], atol=1e-14)
    assert_allclose(least.push, [1e-4 * (np.sqrt(3) - 1)], rtol=0, atol=1e-14)
    assert least.certified <= 1e-10 and str(least.result) == "successful"


@pytest.mark.slow
def test_pushes_between_orbits_that_come_nearer_to_each_other():
    orbit, saddle = near_wells()
    least = hj.smallest_push(orbit, directions=("x0",), instants=(0.5,), largest=2.5e-4, edge=saddle)
    assert_allclose(least.push, [1e-4 * (np.sqrt(3) - 1)], rtol=1e-11)
    found = least.sweep(where=lambda p: p["g"], values=[1e-6], phases=[0.5])
    assert_allclose(found["push"], [[[1e-6 * (np.sqrt(3) - 1)]]], rtol=1e-9)
    assert found["certified"] <= 1e-9


@pytest.mark.slow
def test_the_gradient_of_the_size_in_closed_form():
    least = of_one()
    gradient = least.gradient()
    # The derivative of the closed form by a is (1 - 2 a) / (2 a^2 sqrt(4 a - 1)).
    assert_allclose(gradient["a"], -1 / (2 * np.sqrt(3)), rtol=1e-9)
    # Along the curve the closest point moves by nothing of first order: x changes by c y^3.
    assert_allclose(gradient["c"], 0.5 * least.push[1] ** 3 / least.size, rtol=1e-7)


@pytest.mark.slow
def test_a_second_push_of_other_numbers_compiles_nothing(caplog):
    def pushed(a, c, **given):
        rest = orbits(a, c)[0]
        hj.smallest_push(rest, directions=("x0", "x1"), **given).gradient()

    jax.clear_caches()
    assert "jit(conditions_of)" in compiled(caplog, lambda: pushed(1.0, 0.0, instants=(0.3,), largest=2.0))
    assert compiled(caplog, lambda: pushed(1.1, 0.1, instants=(0.4,), largest=1.9)) == []


@pytest.mark.medium
def test_other_curves_and_bad_input():
    rest, edge = orbits(1.2, 0.3)
    least = hj.smallest_push(rest, directions=jnp.eye(3)[:2], edge=edge, largest=2.0)
    # The point of the curve nearest to 0: roots of a polynomial.
    curve = np.polynomial.Polynomial([1, 0, -1.2, 0.3])
    square = curve**2 + np.polynomial.Polynomial([0, 0, 1])
    stationary = square.deriv().roots()
    y = stationary[np.abs(stationary.imag) < 1e-9].real
    assert_allclose(least.size, np.sqrt(square(y).min()), rtol=1e-12)
    for given, text in (
        ({}, "give directions="), ({"directions": ("x7",)}, r"\['x7'\] are no coordinates"),
        ({"directions": jnp.eye(2)}, "must have the shape"),
        ({"directions": ("x0",), "instants": (1.5,)}, r"instants=\(1.5,\) must be times of the orbit, .* in its period 1\."),
        ({"directions": ("x0",), "instants": ()}, r"instants=\(\) must be"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            hj.smallest_push(rest, **given)
    # The period is an instant, just before the jump.
    least = hj.smallest_push(rest, directions=("x0",), instants=(1.0,), edge=edge, largest=2.0)
    assert_allclose(least.push, [1], rtol=1e-12)
    with pytest.raises(ValueError, match="no push up to largest="):
        hj.smallest_push(rest, directions=jnp.eye(3)[:2], edge=edge, largest=0.01)
    with pytest.raises(ValueError, match="must be a stable"):
        hj.smallest_push(edge, directions=("x0",))
    with pytest.raises(ValueError, match="edge must have one multiplier outside"):
        hj.smallest_push(rest, directions=jnp.eye(3)[:2], edge=rest, largest=2.0)


@pytest.mark.slow
def test_a_kick_of_a_parameter():
    """x -> x^2 + p: a change of p in one lap leads to x = p, and 1 is the border. The edge state is found on the way."""
    system = mapping(lambda x, p: x**2 + p["force"], 1)
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED)
    rest = hj.periodic_orbit(step, jnp.array([0.01, 0.0]), {"force": jnp.array(0.0)})
    least = hj.smallest_push(rest, where=lambda p: p["force"], instants=(0.5,), largest=2.0)
    assert_allclose(least.size, 1, rtol=1e-13)
    assert_allclose(least.edge.x, [1, 0], atol=1e-12)
    assert least.certified == 1e-12 and least.instant == 0.5
    assert_allclose(least.after, least.before)


@pytest.mark.slow
def test_the_walkers_push_agrees_with_iteration():
    """At a slope of 0.004 the short gait is the edge state, the basin has a smooth border, and the worst time is that just after
    the strike. Pushes of all smaller sizes come back, at whatever time."""
    params = walker.Params(jnp.array(0.004))
    orbit = hj.periodic_orbit(walker.step, walker.guess(params), params)
    least = hj.smallest_push(orbit, directions=("theta_rate",), largest=0.02)
    short = walker.after_strike(params, jnp.array(0.1488), jnp.array(-0.1588))
    assert_allclose(least.edge.x, hj.periodic_orbit(walker.step, short, params).x, atol=1e-10)
    assert least.certified <= 1e-11 and least.instant == 0 and least.push[0] > 0

    def comes_back(size, time):
        x = hj.simulate(walker.system, orbit.x, params, mode="swing", t1=time).x if time else orbit.x
        x = x + size * jnp.eye(4)[1]
        run = hj.simulate(walker.system, x, params, mode="swing", t1=80.0, throw=False)
        return run.result == "successful" and np.max(np.abs(run.x_starts[run.jumps] - orbit.x)) < 1e-3

    # From 20 strides of another program.
    for size in (0.2, 0.6, 0.999, -0.6, -0.999):
        assert comes_back(size * least.size, 0.0) and comes_back(size * least.size, 1.5)
    assert not comes_back(1.001 * least.size, 0.0)


@pytest.mark.slow
def test_pushes_over_phases_and_a_parameter():
    """Half a unit of time in each of two modes, in which x decays, then x -> rate (e x)^2: a push u at the time t leads to
    rate (u e^t)^2, and the border is 1 / rate."""
    decay = lambda t, x, p: jnp.stack([-x[0], jnp.ones(())])
    late, again = lambda t, x, p: 0.5 - x[1], lambda t, x, p: jnp.stack([p["rate"] * (jnp.e * x[0]) ** 2, 0 * x[1]])
    system = hj.HybridSystem(
        {name: hj.Mode(decay, ("x", "clock")) for name in ("first", "second")},
        (
            hj.Transition("first", "second", late, lambda t, x, p: x.at[1].set(0)),
            hj.Transition("second", "first", late, again),
        ),
    )
    step = hj.ReturnMap(system, sequence=("first", "second"), integrator=ROLLED)
    rest = hj.periodic_orbit(step, jnp.array([0.01, 0.0]), {"rate": jnp.array(1.0)})
    least = hj.smallest_push(rest, directions=("x",), instants=(0.2,), largest=2.0)
    phases, rates = np.array([0.7, 0.0, 0.2, 0.45, 0.99]), np.array([1.5, 0.8, 1.0])
    found = least.sweep(phases=phases, where=lambda p: p["rate"], values=rates)
    # The integrator's tolerance is 1e-10, and its error below that.
    assert_allclose(found["size"], np.exp(-phases) / rates[:, None], rtol=1e-10)
    assert_allclose(found["instant"], np.broadcast_to(phases, (3, 5)), atol=2e-6)
    assert np.all(found.certified <= 1e-9) and np.all(found.result == 0)
    assert found["push"].dims == ("rate", "phase", "direction") and found.direction.values.tolist() == ["x"]
    with pytest.raises(ValueError, match="parts of the period"):
        least.sweep(phases=(1.2,))


@pytest.mark.medium
def test_pushes_over_a_parameter_at_any_instant():
    curvatures = np.linspace(0.8, 2.0, 7)
    found = of_one().sweep(where=lambda p: p["a"], values=curvatures)
    assert_allclose(found["size"], np.sqrt(4 * curvatures - 1) / (2 * curvatures), rtol=1e-12)
    assert np.all(found.result == 0) and np.all(found.certified == 1e-12)
    a = lambda p: p["a"]
    for given, text in (
        ({"values": [1.0]}, "come together"), ({"where": a}, "come together"), ({"phases": 0.3}, "must have the shape"),
        ({"phases": []}, "must have the shape"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            of_one().sweep(**given)


@pytest.mark.slow
def test_a_push_that_is_not_the_smallest_near_it_is_not_followed():
    """Below a = 1 / 2 the point of the border nearest to 0 is (1, 0), which is the farthest near it above."""
    rest, edge = orbits(0.3, 0.0)
    least = hj.smallest_push(rest, directions=("x0", "x1"), edge=edge, instants=(0.5,), largest=2.0)
    found = least.sweep(where=lambda p: p["a"], values=[2.0, 0.4], phases=[0.3, 0.8])
    assert_allclose(found["size"], np.broadcast_to([[np.sqrt(7) / 4], [1]], (2, 2)), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("period", [1.0, 1e4])
def test_the_largest_push_of_all_instants_in_any_unit_of_time(period):
    """Between the jumps x -> x^2 a push at the time t grows by exp(-b sin(2 pi t / T)): the smallest one is exp(-|b|), at 3 T / 4
    for b > 0 and at T / 4 for b < 0, where 3 T / 4 is the instant of the largest."""
    turn = lambda t, p: 2 * jnp.pi * t / p["period"]
    grow = lambda t, x, p: jnp.stack([p["b"] * 2 * jnp.pi / p["period"] * jnp.cos(turn(x[1], p)) * x[0], jnp.ones(())])
    way = hj.Transition(
        "run", "run", lambda t, x, p: p["period"] - x[1], lambda t, x, p: jnp.stack([x[0] ** 2, 0 * x[1]])
    )
    system = hj.HybridSystem({"run": hj.Mode(grow, ("x", "clock"))}, (way,))
    step = hj.ReturnMap(system, sequence=("run",), integrator=dataclasses.replace(ROLLED, max_time=2 * period))
    params = {"b": jnp.array(0.5), "period": jnp.array(period)}
    least = hj.smallest_push(hj.periodic_orbit(step, jnp.array([0.01, 0.0]), params), directions=("x",), largest=3.0)
    # The integrator's tolerance is 1e-10, and its error below that.
    assert_allclose(least.size, np.exp(-0.5), rtol=1e-10)
    assert_allclose(least.instant / period, 0.75, atol=1e-5)
    found = least.sweep(where=lambda p: p["b"], values=[0.4, -0.4])
    assert_allclose(found["size"], np.exp([-0.4, -0.4]), rtol=1e-10)
    assert_allclose(found["instant"] / period, [0.75, 0.25], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("largest", [4.0, 2.0])
def test_an_unstable_orbit_amid_the_basin(largest):
    """The orbit of two strides from g to -g of x -> -x (3 - (x / g)^2) / 2 attracts to the unstable orbits at -+g sqrt 5, but for
    the unstable orbit at 0 and what leads to it. A push of -2 alone, a round number, leads there, and is none that leaves."""
    system = mapping(lambda x, p: -x * (3 - (x / p["g"]) ** 2) / 2, 1)
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step.repeated(2), jnp.array([2.0, 0.0]), {"g": jnp.array(2.0)})
    least = hj.smallest_push(orbit, directions=("x0",), largest=largest, throw=False)
    if largest == 2.0:
        assert str(least.result) == "optimum_not_found" and least.certified == np.inf
    else:
        assert_allclose(least.size, 2 * np.sqrt(5) - 2, rtol=1e-12)
        assert least.certified <= 1e-11 and str(least.result) == "successful"
        assert_allclose(least.gradient()["g"], np.sqrt(5) - 1, rtol=1e-11)


@pytest.mark.slow
def test_a_basin_that_is_a_disc():
    """r -> r^2 / R, while the direction turns to the first axis: pushes of the length R in all directions at all instants are the
    smallest. Those along the second axis lead to an orbit that repels in both directions, and no edge state."""
    turned = lambda x: jnp.stack([x[0], x[1] / 2]) / jnp.sqrt(x[0] ** 2 + x[1] ** 2 / 4 + 1e-300)
    system = mapping(lambda x, p: (x @ x) / p["R"] * turned(x), 2)
    rest = hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("run",), integrator=CLOCK), jnp.array([0.02, 0.01, 0.0]), {"R": jnp.array(1.5)}
    )
    least = hj.smallest_push(rest, directions=("x0", "x1"), largest=3.0)
    assert_allclose([least.size, least.gradient()["R"]], [1.5, 1], rtol=1e-12)
    assert least.certified <= 1e-11 and abs(abs(least.edge.x[0]) - 1.5) < 1e-12
    aside = hj.smallest_push(rest, directions=("x1",), largest=3.0, throw=False)
    assert_allclose(aside.size, 1.5, rtol=1e-12)
    assert str(aside.result) == "optimum_not_found"


@pytest.mark.slow
def test_pushes_of_a_ball_that_bounces():
    """A table that returns a ball with m + w + w (1 - w^2) / 2 for the speed m + w: 1 and 3 attract for m = 2, and the border is
    that of impacts at w = 0 and at w = -sqrt 3, of which 0 is the image. At a time of the flight in which the ball has the
    speed s, a push leads there that makes it (s + u)^2 = s^2 - 1 + (2 + w)^2."""
    law = lambda w, p: jnp.stack([0 * w, p["m"] + w + w * (1 - w**2) / 2])
    air = hj.Mode(lambda t, x, p: jnp.stack([x[1], -p["g"]]), ("height", "rate"))
    table = hj.Transition("air", "air", lambda t, x, p: x[0], lambda t, x, p: law(-x[1] - p["m"], p))
    step = hj.ReturnMap(hj.HybridSystem({"air": air}, (table,)), sequence=("air",), integrator=ROLLED)
    params = {"g": jnp.array(1.0), "m": jnp.array(2.0)}
    low, high = (hj.periodic_orbit(step, jnp.array([0.0, v]), params) for v in (1.05, 2.99))
    edge = hj.edge_state(step, params, between=(low, high))
    assert_allclose([edge.x[1], edge.multipliers[0].real], [2, 1.5], rtol=1e-12)
    for time, w in ((0.0, -np.sqrt(3)), (0.3, 0.0), (1.0, 0.0), (1.7, 0.0)):
        least = hj.smallest_push(low, directions=("rate",), instants=(time,), largest=3.0, edge=edge)
        s = 1 - time
        end = np.sqrt(s**2 - 1 + (2 + w) ** 2)
        # The integrator's error.
        assert_allclose(least.size, abs(end - s) if w else end - abs(s), rtol=1e-12)
        assert least.certified <= 1e-11
        if time == 1.0:
            # s = 1 - g t and s' = -t, of sqrt(s^2 + 3) - s.
            assert_allclose(least.gradient()["g"], 1, rtol=1e-10)


def half_turns(radius=2.5, height=0.1):
    """Above y = 0 half ellipses of that height relative to their length; below, half turns, in which the distance from 0 goes to
    1 or grows from `radius` on. The border is the half circle of that radius below, and the half ellipse above."""
    params = {"r": jnp.array(radius), "h": jnp.array(height)}
    above = lambda t, x, p: jnp.stack([-x[1] / p["h"], p["h"] * x[0]])
    grow = lambda x, p: 0.01 * (1 - x @ x) * (p["r"] ** 2 - x @ x)
    below = lambda t, x, p: jnp.stack([-x[1], x[0]]) + grow(x, p) * x
    system = hj.filippov({1: above, -1: below}, lambda t, x, p: x[1], ("x", "y"))
    step = hj.ReturnMap(system, sequence=("+", "-"), integrator=ROLLED)
    return [hj.periodic_orbit(step, jnp.array([x, 0.0]), params) for x in (1.001, radius + 0.001)]


@pytest.mark.slow
def test_a_push_across_a_switching_surface_in_closed_form():
    orbit, edge = half_turns()
    # At (0, -1): up to (0, h r), across the surface; down to (0, -r) it is 3 / 2. At (0, h): to (0, h r), within its mode.
    for instant, size in ((1.5 * np.pi, 1.25), (0.5 * np.pi, 0.15)):
        given = {"directions": ("y",), "instants": (instant,), "largest": 3.0}
        least = hj.smallest_push(orbit, edge=edge, **given)
        # The integrator's error.
        assert_allclose(least.push, [size], rtol=1e-12)
        assert least.certified <= 1e-11
    # (r - 1) h changes by h, and by r - 1.
    gradient = least.gradient()
    assert_allclose([gradient["r"], gradient["h"]], [0.1, 1.5], rtol=1e-9)


def stumbling():
    """A year in which y decays and is halved where it falls through p, then x -> x^2 + (e y)^2, y -> e z, z -> 0: beyond p a
    push u of y at the year's start is halved, comes back, and leaves from 2 on; so does one of z, a year later."""
    field = lambda t, x, p: jnp.stack([0 * x[0], -x[1], -x[2], jnp.ones(())])
    year = lambda t, x, p: jnp.stack([x[0] ** 2 + (jnp.e * x[1]) ** 2, jnp.e * x[2], 0 * x[2], 0 * x[3]])
    ways = (
        hj.Transition("run", "run", lambda t, x, p: 1 - x[3], year),
        hj.Transition("run", "trip", lambda t, x, p: x[1] ** 2 - p**2, lambda t, x, p: x.at[1].divide(2)),
        hj.Transition("trip", "run", lambda t, x, p: 1 - x[3], year),
    )
    modes = {name: hj.Mode(field, ("x", "y", "z", "clock")) for name in ("run", "trip")}
    step = hj.ReturnMap(hj.HybridSystem(modes, ways), sequence=("run",), integrator=ROLLED)
    return [hj.periodic_orbit(step, jnp.array([x, 0.0, 0.0, 0.0]), jnp.array(0.8)) for x in (0.01, 1.01)]


@pytest.mark.medium
@pytest.mark.parametrize("name", ["y", "z"])
def test_pushes_after_which_another_event_happens_may_come_back(name):
    orbit, edge = stumbling()
    least = hj.smallest_push(orbit, directions=(name,), instants=(0.0,), edge=edge, largest=2.1)
    # The integrator's tolerance is 1e-10, and its error below that.
    assert_allclose(np.abs(least.push), [2], rtol=1e-11)
    assert least.certified <= 1e-10


@pytest.mark.slow
def test_a_push_off_a_surface_along_which_a_block_sticks():
    """A block on a belt of the speed p, driven by it: the border is the unstable cycle without sticking, of parts of spirals."""
    p, rate = 0.2, np.array([[0, 1], [-1, 0.1]])
    spiral = lambda side, x, t: (at := np.array([-side - 0.1 * p, 0])) + expm(rate * t) @ ([x, p] - at)
    time = lambda side, x: brentq(lambda t: spiral(side, x, t)[1] - p, 0.5, 4.5, xtol=1e-15)
    turn = lambda side, x: spiral(side, x, time(side, x))[0]
    left = brentq(lambda x: turn(-1, turn(1, x)) - x, -30, -5, xtol=1e-14)
    slips = lambda side: lambda t, x, p: jnp.stack([x[1], -x[0] - side + 0.1 * (x[1] - p)])
    block = hj.filippov({1: slips(1), -1: slips(-1)}, lambda t, x, p: x[1] - p, ("x", "v"))
    orbit, edge = (
        hj.periodic_orbit(
            hj.ReturnMap(block, sequence=("-", after), integrator=ROLLED), jnp.array([x, p]), jnp.array(p)
        )
        for after, x in (("0", 1.0), ("+", turn(1, left)))
    )
    sticks = (float(orbit.jump_times[0, 0] + 0.5),)
    least = hj.smallest_push(orbit, directions=("v",), instants=sticks, largest=20.0, edge=edge)
    above = brentq(lambda t: spiral(1, left, t)[0] - float(least.before[0]), 0.1, time(1, left), xtol=1e-15)
    # The integrator's error, in as many steps as bring the state near the edge state.
    assert_allclose(least.push, [spiral(1, left, above)[1] - p], rtol=1e-12)
    assert least.certified <= 1e-11


@pytest.mark.slow
def test_a_push_off_a_wall_in_closed_form():
    """q'' = q - 1 + p cos t beside a wall at 0, on which a mass rests but for a short flight; the border is that of the orbit 1 -
    (p / 2) cos t, which does not touch the wall. Times count from the phase of the stroboscope."""
    body = hj.contact.Mechanism(lambda q, p: jnp.eye(1), lambda t, q, v, p: q - 1 + p * jnp.cos(t))
    system = hj.contact.contact_system(body, {"wall": hj.contact.Contact(lambda t, q, p: q[0])}, ("q",))
    step = hj.ReturnMap(system, section=hj.Stroboscope("contacts", 2 * np.pi, phase=np.pi), integrator=ROLLED)
    orbit, edge = (hj.periodic_orbit(step, jnp.array(x), jnp.array(1.2)) for x in ([0.0, 0.0, 1.0], [1.6, 0.0, 0.0]))
    least = hj.smallest_push(orbit, directions=("q_rate",), instants=(0.5,), largest=3.0, edge=edge)
    slope = (np.sin(np.pi + 0.5) - np.cos(np.pi + 0.5)) / 2
    assert_allclose(least.push, [1 + 1.2 * slope], rtol=1e-11)  # the integrator's error
    assert least.certified <= 1e-11 and least.before[2] == 1
    assert_allclose(least.gradient(), slope, rtol=1e-11)


@pytest.mark.medium
def test_the_set_of_contacts_of_a_pushed_state():
    """A block that sticks to a floor, in mode and state just after a push: an impact has half of the rate."""
    body = hj.contact.Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.stack([p, -1 + 0 * p]))
    floor = hj.contact.Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], restitution=0.5, static=0.4, kinetic=0.3)
    system = hj.contact.contact_system(body, {"floor": floor}, ("x", "y"))
    at = lambda *x: mode_of_state(system, "contacts", jnp.array(0.0), jnp.array(x), jnp.array(0.1), (1e-10, 1e-10))
    for pushed, after in (
        ((0, 0, 0, 0, 1), (0, 0, 0, 0, 1)), ((0, 0, 0.2, 0, 1), (0, 0, 0.2, 0, 2)), ((0, 0, -0.2, 0, 1), (0, 0, -0.2, 0, 3)),
        ((0, 0.1, 0, 0, 1), (0, 0.1, 0, 0, 0)), ((0, 0, 0, 0.3, 1), (0, 0, 0, 0.3, 0)), ((0, 0, 0, -0.2, 1), (0, 0, 0, 0.1, 0)),
        ((0, -0.1, 0, 0, 1), None), ((0, -0.1, 0, 0, 0), None), ((0, 0.1, 0, -0.1, 0), (0, 0.1, 0, -0.1, 0)),
    ):  # fmt: skip
        _, x, result = at(*map(float, pushed))
        assert (result == hj.RESULTS.successful) == (after is not None), pushed
        assert_allclose(x, pushed if after is None else after, atol=1e-15)
    # The rate after the impact has the derivative -1/2 by that before it.
    assert_allclose(jax.jacfwd(lambda v: at(0.0, 0.0, 0.0, v, 1.0)[1])(-0.2), [0, 0, 0, -0.5, 0], atol=1e-15)


def test_the_mode_in_which_a_state_is():
    """At y = 0 the fields lead towards the surface for x > 1, away from it for x < -1, and else across, up."""
    side = lambda sign: lambda t, x, p: jnp.stack([jnp.ones(()), 1 - sign * x[0]])
    relay = hj.filippov({1: side(1), -1: side(-1)}, lambda t, x, p: x[1], ("x", "y"))
    at = lambda name, *x: mode_of_state(relay, name, jnp.array(0.0), jnp.array(x), jnp.array(0.0), (1e-10, 1e-10))
    for name in relay.names:
        for x, wanted in (
            ((2.0, 0.0), "0"), ((2.0, 1e-12), "0"), ((2.0, 0.1), "+"), ((2.0, -0.1), "-"), ((0.5, 0.0), "+"),
            ((0.5, 1e-12), "+"), ((-2.0, 0.1), "+"), ((-2.0, -0.1), "-"), ((-2.0, 0.0), None), ((np.nan, 0.0), None),
        ):  # fmt: skip
            mode, _, result = at(name, *x)
            assert (result == hj.RESULTS.successful) == (wanted is not None), (name, x)
            assert wanted is None or relay.names[int(mode)] == wanted, (name, x)
            assert wanted is not None or result == hj.RESULTS.outside_domain


def test_a_state_below_the_floor_is_in_no_mode():
    """And one off the floor is in flight, of which there are two modes."""
    fly, rest = lambda t, x, p: jnp.stack([x[1], -p]), lambda t, x, p: jnp.stack([x[1], 0 * p])
    flight = hj.Mode(fly, ("y", "v"), lambda t, x, p: x[0])
    lies = hj.Mode(rest, ("y", "v"), lambda t, x, p: jnp.stack([x[0], -x[0], x[1], -x[1]]))
    system = hj.HybridSystem({"up": flight, "down": flight, "lies": lies}, ())
    at = lambda name, *x: mode_of_state(system, name, jnp.array(0.0), jnp.array(x), jnp.array(1.0), (1e-10, 1e-10))
    assert at("lies", 0.0, 0.0)[0] == 2 and at("lies", 1.0, 0.0)[0] == 0 and at("down", 1.0, 0.0)[0] == 1
    assert all(at(name, -1.0, 0.0)[2] == hj.RESULTS.outside_domain for name in system.names)
    assert at("lies", 1.0, 0.0)[2] == hj.RESULTS.successful
