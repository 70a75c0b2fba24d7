"""Ends of branches of Filippov systems, by what their sliding arcs do: four cases with closed forms, and a limit cycle."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.optimize import brentq
from systems import ROLLED

import hyjax as hj


def forced(above, below, start, ends_in: str, end: float) -> hj.HybridSystem:
    """Height y over the surface y = 0 and time s, with y' = above(s, p) or below(s, p); at s = `end` again y = start(p), s =
    0."""
    side = lambda rate: lambda t, x, p: jnp.stack([rate(x[1], p) + 0 * x[0], jnp.ones_like(t)])
    slides = hj.filippov({1: side(above), -1: side(below)}, lambda t, x, p: x[0], ("y", "s"))
    # From sliding or from below, the fall begins in a mode of its own: two transitions to "+" would be ambiguous.
    begin = ends_in if start is None or ends_in == "+" else "fall"
    modes, ways = slides.modes | {"fall": slides.modes["+"]}, slides.transitions
    ways += tuple(dataclasses.replace(way, source="fall") for way in ways if way.source == "+")
    reset = lambda t, x, p: jnp.stack([0 * p if start is None else start(p), 0 * p])
    again = hj.Transition(ends_in, begin, lambda t, x, p: end - x[1], reset)
    return hj.HybridSystem(modes, (*ways, again))


FALLS, ONE = (lambda s, p: -1.0 + 0 * s), (lambda p: 1.0 + 0 * p)
# Kind, system, sequence, initial state, value and end of the parameter, and the parameter at the end of the branch.
CASES = {
    # A parabola y = p + (s - 1)^2 touches the surface, beyond which the flow would slide.
    "grazing-sliding": (
        forced(lambda s, p: 2 * (s - 1), lambda s, p: 1.0 + 0 * s, lambda p: p + 1, "+", 3.0), ("+",), [1.5, 0.0], 0.5, -0.5, 0.0,
    ),
    # Slides all the time, while |p cos(s - 1) + 0.1| < 1.
    "adding-sliding": (
        forced(
            lambda s, p: p * jnp.cos(s - 1) + 0.1 - 1, lambda s, p: p * jnp.cos(s - 1) + 0.1 + 1, None, "0", 2 * np.pi
        ),
        ("0",), [0.0, 0.0], 0.5, 1.2, 0.9,
    ),
    # From y = 1 to the surface at s = 1. There the field below leads down from s = p on: it slides before that alone.
    "crossing-sliding": (forced(FALLS, lambda s, p: p - s, ONE, "-", 3.0), ("fall", "0", "-"), [1.0, 0.0], 1.5, 0.5, 1.0),
    # The field below leads up from s = p on: it slides after that.
    "switching-sliding": (forced(FALLS, lambda s, p: s - p, ONE, "0", 3.0), ("fall", "0"), [1.0, 0.0], 0.5, 1.5, 1.0),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_ends_in_closed_form(kind):
    """The parameter to rounding: the condition is an equation of Newton's method."""
    system, sequence, x0, value, stop, exact = CASES[kind]
    step = hj.ReturnMap(system, sequence=sequence, integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array(x0), jnp.array(value))
    branch = hj.continuation(orbit, where=lambda p: p, stop=stop, throw=False)
    (point,) = branch.special_points
    assert point.kind == kind and f"{kind}: the branch ends at" in str(branch)
    assert_allclose(point.value, exact, rtol=0, atol=1e-12)
    assert branch.values[-1] != stop and abs(branch.values[-1] - exact) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, sequence, value, stop",
    [("crossing-sliding", ("fall", "-"), 0.5, 1.5), ("adding-sliding", ("0", "+", "0"), 1.0, 0.5)],
)
def test_the_end_from_the_other_side(kind, sequence, value, stop):
    """Orbits that cross the surface and do not slide, and orbits whose sliding arc is divided, end at the same values."""
    system, _, x0, *_, exact = CASES[kind]
    step = hj.ReturnMap(system, sequence=sequence, integrator=ROLLED)
    branch = hj.continuation(
        hj.periodic_orbit(step, jnp.array(x0), jnp.array(value)), where=lambda p: p, stop=stop, throw=False
    )
    (point,) = branch.special_points
    assert point.kind == kind
    assert_allclose(point.value, exact, rtol=0, atol=1e-12)


def up(t, x, p):
    """A limit cycle about (0, 1), of the radius sqrt(p)."""
    a, b = x[0], x[1] - 1
    growth = p - a * a - b * b
    return jnp.stack([-b + a * growth, a + b * growth])


def down(t, x, p):
    return jnp.stack([0.5 + 0 * x[0], x[0] + 0.4])


@pytest.mark.slow
def test_a_limit_cycle_that_slides():
    """The cycle leaves the surface where the upper field is tangent, x + x^2 = p - 1, and meets it again at x = -0.4, the border
    of sliding: by an arc of SciPy and a root. On the branch both multipliers are zero, on both sides."""
    surface = hj.filippov({1: up, -1: down}, lambda t, x, p: x[1], ("x", "y"))
    step = hj.ReturnMap(surface, sequence=("+", "0"), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([0.0477225575, 0.0]), jnp.array(1.05))
    (point,) = hj.continuation(orbit, where=lambda p: p, stop=1.6, throw=False).special_points

    def landing(p):
        leaves = [(np.sqrt(1 + 4 * (p - 1)) - 1) / 2, 0.0]
        rate = lambda t, x: np.asarray(
            [-(x[1] - 1) + x[0] * (g := p - x[0] ** 2 - (x[1] - 1) ** 2), x[0] + (x[1] - 1) * g]
        )
        falls = lambda t, x: x[1] if t > 1 else 1.0
        falls.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
        run = solve_ivp(rate, (0, 10), leaves, method="DOP853", rtol=1e-12, atol=1e-13, events=falls)
        return run.y[0, -1]

    assert point.kind == "switching-sliding"
    assert_allclose(point.value, brentq(lambda p: landing(p) + 0.4, 1.1, 1.2, xtol=1e-12), rtol=0, atol=1e-9)
    assert_allclose(point.orbit.arc_ends[0][0], [-0.4, 0.0], rtol=0, atol=1e-12)
    assert_allclose(np.abs(point.orbit.multipliers), 0, atol=1e-9)
