"""Orbits that touch a guard, and loci of special points in the plane of two parameters."""

import dataclasses

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_continuation import mapping

import hyjax as hj
from hyjax.models import linear_impact_oscillator

RESULTS = hj.RESULTS


def response(p):
    """The amplitude of the linear oscillator per unit of force, which reaches the wall where it is 1 / amplitude."""
    return 1 / np.hypot(p.stiffness - p.frequency**2, p.damping * p.frequency)


@pytest.fixture(scope="module")
def free():
    """Below the wall: forced oscillations of growing amplitude."""
    params = linear_impact_oscillator.Params(amplitude=0.08)
    orbit = hj.periodic_orbit(
        hj.ReturnMap(linear_impact_oscillator.system, sequence=("before",)), jnp.array([0.0, 0.8, 0.0]), params
    )
    return hj.continuation(orbit, where=lambda p: p.amplitude, stop=0.2, throw=False)


@pytest.mark.slow
def test_grazing_of_a_wall_that_is_not_hit(free):
    """The oscillation A / |k - w^2 + i c w| reaches d; its multipliers are those of the flow."""
    assert free.result == RESULTS.unexpected_transition
    (point,) = free.special_points
    assert point.kind == "grazing" and point.touch is not None and not point.touch.taken
    # A linear equation, and a parabola at its top.
    assert_allclose(point.value, 0.1, rtol=1e-13)
    assert_allclose(point.orbit.x, [0, -1, -np.pi], rtol=0, atol=1e-12)
    assert_allclose(np.prod(point.orbit.multipliers[:2]), np.exp(-2 * np.pi * 0.1), rtol=1e-12)
    assert np.all(np.isnan(point.multiplier)) and point.residual < 1e-13
    # A branch that is to end there does not reach its stop either, and has the point once.
    there = hj.continuation(free.orbit(0), where=lambda p: p.amplitude, stop=0.1, throw=False)
    assert there.result == RESULTS.unexpected_transition and [each.kind for each in there.special_points] == ["grazing"]
    assert_allclose(there.special_points[0].value, 0.1, rtol=1e-13)
    assert ["grazing", "0.1"] in [
        line.split()[:2] for line in str(free).splitlines()
    ] and "the branch ends at the orbit that grazes at 0.1" in str(free)


@pytest.mark.slow
def test_grazing_of_a_wall_that_is_hit():
    """From the other side: impacts grow weaker, from where the branch has turned at a fold close by, and it ends at the same
    orbit."""
    params = linear_impact_oscillator.Params(amplitude=0.09999206)
    guess = jnp.array([-0.00372, -0.999808, -np.pi])
    orbit = hj.periodic_orbit(linear_impact_oscillator.step, guess, params)
    branch = hj.continuation(orbit, where=lambda p: p.amplitude, stop=0.2, throw=False)
    (point,) = branch.special_points
    assert point.kind == "grazing"
    assert_allclose(point.value, 0.1, rtol=1e-12)
    assert point.touch.taken
    # Multipliers are those of the side without impacts.
    assert_allclose(np.prod(point.orbit.multipliers[:2]), np.exp(-2 * np.pi * 0.1), rtol=1e-10)


def elastic_wall(t, z, p):
    """The oscillator pressed against a spring of stiffness 5."""
    x, rate, phase = z
    free = linear_impact_oscillator.oscillate(t, z, p)
    return free - jnp.stack([0 * rate, 5 * (x - p.wall), 0 * phase])


@pytest.mark.slow
def test_grazing_of_an_elastic_wall():
    """The contact vanishes with the depth that the mass reaches, and the branch ends where the free motion touches the wall.

    The duration of the contact has a square root at grazing: a contact of 2e-3 of the period has a depth of 1e-6.
    """
    free, names = linear_impact_oscillator.oscillate, linear_impact_oscillator.coordinates
    same = lambda t, z, p: z
    system = hj.HybridSystem(
        {"before": hj.Mode(free, names), "contact": hj.Mode(elastic_wall, names), "after": hj.Mode(free, names)},
        [
            hj.Transition("before", "contact", linear_impact_oscillator.gap, same),
            hj.Transition("contact", "after", lambda t, z, p: z[0] - p.wall, same),
            hj.Transition(
                "after", "before", lambda t, z, p: 1.5 * jnp.pi - z[2], lambda t, z, p: z.at[2].add(-2 * jnp.pi)
            ),
        ],
    )
    guess = jnp.array([-1.1, 0, -jnp.pi / 2])
    params = linear_impact_oscillator.Params(amplitude=0.12)
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("before", "contact", "after")), guess, params)
    branch = hj.continuation(orbit, where=lambda p: p.amplitude, stop=0.05, throw=False)
    (point,) = branch.special_points
    assert point.kind == "grazing" and point.touch.taken and point.touch.brief
    # At the resonance the amplitude is A / c; a parabola at its top.
    assert_allclose(point.value, 0.1, rtol=1e-13)
    assert_allclose(point.orbit.x, [-1, 0, -np.pi / 2], rtol=0, atol=1e-12)
    assert_allclose(point.orbit.period, 2 * np.pi, rtol=1e-14)
    # Multipliers are those of the side without contact.
    assert_allclose(np.prod(point.orbit.multipliers[:2]), np.exp(-2 * np.pi * 0.1), rtol=1e-10)
    # The field has a kink and no jump at the wall: the return map has a derivative.
    form = point.normal_form
    assert form.exponent == 1.5 and form.criticality.startswith("the orbit goes on for amplitude > 0.1")
    assert_allclose(form.rate, -10, rtol=1e-9)


@pytest.mark.slow
def test_grazing_over_two_parameters(free):
    curve = hj.locus(free.special_points[0], where=lambda p: p.stiffness, stop=(0.8, 1.3), throw=False)
    assert curve.result == RESULTS.successful
    amplitude, stiffness = curve.values.T
    assert_allclose(stiffness[[0, -1]], [0.8, 1.3], rtol=1e-13)
    assert_allclose(amplitude, np.hypot(stiffness - 1, 0.1), rtol=1e-11)
    ax = curve.plot()
    (line,) = ax.lines
    assert_array_equal(line.get_xydata(), curve.values)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["grazing"]
    plt.close("all")


def parabola(x, p):
    """x -> a - b x^2: with u = b x the map u -> ab - u^2, whose fold is at ab = -1/4 and whose doubling is at ab = 3/4."""
    return p["a"] - p["b"] * x**2


@pytest.fixture(scope="module")
def arch():
    system = mapping(parabola)
    params = {"a": jnp.array(0.5), "b": jnp.array(1.0)}
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("run",)), jnp.array([0.4, 0.0]), params)
    return hj.continuation(orbit, where=lambda p: p["a"], stop=(-0.5, 1.0))


@pytest.mark.slow
def test_locus_in_closed_form(arch):
    fold, point = arch.special_points
    assert (fold.kind, point.kind) == ("fold", "period-doubling")
    assert_allclose([fold.value, point.value], [-1 / 4, 3 / 4], rtol=1e-13)
    curve = hj.locus(point, where=lambda p: p["b"], stop=2.0)
    a, b = curve.values.T
    assert curve.result == RESULTS.successful and len(curve) > 5 and str(curve).startswith("Locus of period-doubling")
    # Newton's method on the point itself, to rounding, of which the two conditions together lose a digit or two.
    assert_allclose(a * b, 3 / 4, rtol=1e-12)
    assert_allclose(np.max(np.abs(curve.multipliers), axis=1), 1, rtol=1e-10)


@pytest.mark.medium
def test_misuse(arch):
    point = arch.special_points[0]
    with pytest.raises(ValueError, match="pick a second one"):
        hj.locus(point, where=lambda p: p["a"], stop=2.0)
    with pytest.raises(ValueError, match=r"locus: stop=1\.0 is the parameter's value at the start already"):
        hj.locus(point, where=lambda p: p["b"], stop=1.0)
    with pytest.raises(ValueError, match=r"locus: where must pick one parameter.* it picked 2: a, b\."):
        hj.locus(point, where=lambda p: (p["a"], p["b"]), stop=2.0)
    with pytest.raises(ValueError, match=r"where picks b more than once\. Pick each leaf of the parameters once"):
        hj.locus(point, where=lambda p: (p["b"], p["b"]), stop=2.0)
    with pytest.raises(ValueError, match="at a branch-point point no curve is followed"):
        hj.locus(dataclasses.replace(point, kind="branch-point"), where=lambda p: p["b"], stop=2.0)


def slope(t, x, b):
    """The guard falls at u = 0 with the rate 1 + 4 b."""
    return -jnp.sin(x[0]) - 2 * b * jnp.sin(2 * x[0])


wheel = hj.HybridSystem(
    {"turn": hj.Mode(lambda t, x, b: jnp.stack([jnp.ones(()), slope(t, x, b) - x[1]]), ("u", "y"))},
    (
        hj.Transition(
            "turn", "turn", slope, lambda t, x, b: x.at[0].add(-2 * jnp.pi), armed=lambda t, x, b: x[0] > jnp.pi
        ),
    ),
)


@pytest.mark.medium
def test_a_section_that_becomes_tangent_by_symmetry():
    """Beyond b = -1/4 the guard falls twice and rises between: the orbit goes on, and its section u = 0 does not."""
    orbit = hj.periodic_orbit(hj.ReturnMap(wheel, sequence=("turn",)), jnp.zeros(2), jnp.zeros(()))
    branch = hj.continuation(orbit, where=lambda b: b, stop=-0.4, throw=False)
    assert branch.result == hj.RESULTS.grazing
    # As near as the shortest step.
    assert_allclose(branch.values[-1], -0.25, atol=1e-6)
    # The forced solution of y' = -sin u - 2 b sin 2 u - y at u = 0.
    assert_allclose(branch.x[:, 1], 0.5 + 0.8 * branch.values, atol=1e-9)
    (point,) = branch.special_points
    assert point.kind == "grazing" and point.touch.of_rate and abs(point.value + 0.25) < 1e-12


@pytest.mark.medium
@pytest.mark.parametrize("start", [5.0, 0.5])
def test_a_slow_clock_is_not_tangent(start):
    """At p = 0.04 the reset jumps. The guard falls at the rate p there, once in the time 1/p, from wherever the branch came."""
    clock = hj.Mode(lambda t, x, p: jnp.stack([0 * x[0], p]), ("x", "tau"))
    reset = lambda t, x, p: jnp.stack([0.5 * x[0] + jnp.where(p > 0.04, 0.3, 50.0), 0 * x[1]])
    system = hj.HybridSystem({"run": clock}, (hj.Transition("run", "run", lambda t, x, p: 1 - x[1], reset),))
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("run",)), jnp.array([0.6, 0.0]), jnp.array(start))
    branch = hj.continuation(orbit, where=lambda p: p, stop=0.03, throw=False)
    assert branch.result == hj.RESULTS.orbit_not_converged
    assert_allclose(branch.values[-1], 0.04, atol=1e-6)


@pytest.mark.medium
def test_a_cycle_from_section_to_section_grazes_a_wall():
    """r' = r (p - r^2) and the angle turns at rate 1: the cycle of radius sqrt(p) touches the wall x = 0.6 at p = 0.36. Beyond,
    passes from section to section go on by an impact, so that no code of theirs says where the branch ends."""
    turn = lambda t, x, p: (p - x @ x) * x + jnp.stack([-x[1], x[0]])
    wall = hj.Transition("free", "free", lambda t, x, p: 0.6 - x[0], lambda t, x, p: jnp.stack([x[0], -0.5 * x[1]]))
    system = hj.HybridSystem({"free": hj.Mode(turn, ("x", "y"))}, (wall,))
    step = hj.ReturnMap(system, section=hj.Section("free", lambda t, x, p: x[0]))
    orbit = hj.periodic_orbit(step, jnp.array([0.0, 0.5]), jnp.array(0.25))
    branch = hj.continuation(orbit, where=lambda p: p, stop=0.6, throw=False)
    assert branch.result == hj.RESULTS.grazing
    (point,) = branch.special_points
    assert point.kind == "grazing"
    assert_allclose(point.value, 0.36, rtol=1e-9)
    assert_allclose(branch.x[:, 1], np.sqrt(branch.values), rtol=1e-9)


@pytest.mark.medium
def test_a_section_that_is_crossed_three_times_at_once():
    """The circle of the flow z' = (i + 1 - |z|^2) z with the section s (p + s^2) = 0 of s = sin t: one crossing at t = pi for
    p > 0, three for p < 0. The multiplier is exp(-4 pi)."""

    def turn(t, x, p):
        c, s = x
        grow = 1 - c**2 - s**2
        return jnp.stack([-s + c * grow, c + s * grow])

    system = hj.HybridSystem({"turn": hj.Mode(turn, ("c", "s"))}, ())
    step = hj.ReturnMap(system, section=hj.Section("turn", lambda t, x, p: x[1] * (p + x[1] ** 2)))
    orbit = hj.periodic_orbit(step, jnp.array([-1.0, 0.0]), jnp.array(0.5))
    branch = hj.continuation(orbit, where=lambda p: p, stop=-0.5, throw=False)
    assert branch.result == RESULTS.grazing
    (point,) = branch.special_points
    assert point.kind == "grazing" and point.touch.of_rate and abs(point.value) < 1e-13
    # Rounding; the multiplier to the tolerance of the integrator, 1e-12 of states of the size 1.
    assert_allclose(point.orbit.x, [-1, 0], rtol=0, atol=1e-14)
    assert_allclose(point.orbit.period, 2 * np.pi, rtol=1e-13)
    assert_allclose(point.orbit.multipliers, [np.exp(-4 * np.pi), 0], atol=1e-12)
    with pytest.raises(ValueError, match="three crossings of the section are one"):
        _ = point.normal_form
    with pytest.raises(ValueError, match="no curve is followed from there"):
        hj.locus(point, where=lambda p: p, stop=1.0)
