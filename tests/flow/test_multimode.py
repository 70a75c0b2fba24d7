"""Modes of different dimensions, and systems that depend on time: a thrown ball that rests, with closed forms.

`flight` has two coordinates and `rest` one: the orbit goes from 2 to 1 to 2 dimensions.
"""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj

SEQUENCE = ("flight", "rest")


def fly(t, x, p):
    return jnp.stack([x[1], -p["g"]])


def height(t, x, p):
    return x[0]


def two_modes(rest, leave_rest, land, throw):
    modes = {"flight": hj.Mode(fly, ("y", "y_rate")), "rest": hj.Mode(rest, ("charge",))}
    ways = hj.Transition("flight", "rest", height, land), hj.Transition("rest", "flight", leave_rest, throw)
    return hj.HybridSystem(modes, ways)


def landing(x, p):
    """When a ball thrown from `x` lands, and how fast."""
    y, v = x
    speed = jnp.sqrt(v**2 + 2 * p["g"] * y)
    return (v + speed) / p["g"], speed


# Autonomous: the charge of the landing leaks away, and at a level the ball is thrown again

leaky = two_modes(
    rest=lambda t, x, p: -p["k"] * x,
    leave_rest=lambda t, x, p: x[0] - p["level"],
    land=lambda t, x, p: jnp.stack([-p["m"] * x[1]]),
    throw=lambda t, x, p: jnp.stack([jnp.zeros(()), p["r"] * x[0]]),
)
LEAKY = {name: jnp.array(value) for name, value in dict(g=9.81, m=1.5, k=0.7, level=0.9, r=3.0).items()}


def leaky_stride(x, p):
    """State and duration in closed form."""
    flight, speed = landing(x, p)
    return jnp.stack([0.0 * flight, p["r"] * p["level"], flight + jnp.log(p["m"] * speed / p["level"]) / p["k"]])


STARTS = np.array([[0.0, 2.7], [0.0, 1.0], [0.4, 2.0], [1.0, -0.5]])


def test_impacts_of_both_arcs():
    through = hj.ReturnMap(leaky, sequence=SEQUENCE)(jnp.array(STARTS[0]), LEAKY)
    assert [impact.x.shape for impact in through.impacts] == [(2,), (1,)]
    assert [int(impact.transition) for impact in through.impacts] == [0, 1]
    assert_allclose(through.impacts[0].x, [0, -2.7], rtol=1e-14, atol=1e-14)
    assert_allclose(through.impacts[1].x, [0.9], rtol=1e-14)
    assert_allclose(through.guard_rates, [-2.7, -0.7 * 0.9], rtol=1e-13)


def test_saltation_matrices_have_shape_post_pre():
    narrow = hj.saltation_matrix(leaky, 0, 0.5, jnp.array([0.0, -2.7]), LEAKY)
    wide = hj.saltation_matrix(leaky, 1, 1.5, jnp.array([0.9]), LEAKY)
    # [0, -m] + (-k m v + m (-g)) [1, 0] / -v, with v = 2.7
    k, m, g, r, level = (float(LEAKY[name]) for name in ("k", "m", "g", "r", "level"))
    assert_allclose(narrow, [[(k * m * 2.7 + m * g) / 2.7, -m]], rtol=1e-14)
    # D R = [0, r]; f_J = (r level, -g): Xi = [0, r] + (f_J - D R f_I) / f_I
    assert_allclose(wide, [[r * level / (-k * level)], [r + (-g + r * k * level) / (-k * level)]], rtol=1e-14)


@pytest.mark.medium
def test_periodic_orbit_and_its_matrices():
    orbit = hj.periodic_orbit(hj.ReturnMap(leaky, sequence=SEQUENCE), jnp.array([0.0, 2.0]), LEAKY)
    start = jnp.array([0.0, 2.7])
    assert_allclose(orbit.x, start, rtol=1e-14, atol=1e-15)
    assert_allclose(orbit.period, leaky_stride(start, LEAKY)[2], rtol=1e-14)
    # One dimension at a level is a point: nothing of the start is left, and the return map is constant.
    assert_allclose(orbit.return_jacobian, np.zeros((2, 2)), atol=1e-13)
    assert_allclose(orbit.multipliers, [0, 0], atol=1e-13)
    # Around at fixed time, what is left is the flow's direction: a matrix of rank one, f times a row.
    around = np.asarray(orbit.monodromy())
    field = np.array([2.7, -9.81])
    assert_allclose(around @ field, field, rtol=1e-13)
    # A neighbour is back earlier by dT: (d x) = -f dT.
    by_start = jax.jacfwd(leaky_stride)(start, LEAKY)[2]
    assert_allclose(around, -np.outer(field, by_start), rtol=1e-12)
    assert_allclose(orbit.guard_rates, [-2.7, -0.63], rtol=1e-13)
    assert_allclose(orbit.arc_ends[0], [[0, -2.7]], rtol=1e-14, atol=1e-14)
    assert_allclose(orbit.arc_ends[1], [[0.9]], rtol=1e-14)
    assert_allclose(orbit.impact_times, [2 * 2.7 / 9.81, orbit.period], rtol=1e-14)


@pytest.mark.slow
def test_orbit_in_its_parameters():
    """In reverse mode, which goes by way of the forward one."""

    def found(p):
        orbit = hj.periodic_orbit(
            hj.ReturnMap(leaky, sequence=SEQUENCE, integrator=ROLLED), jnp.array([0.0, 2.0]), p, throw=False
        )
        ends = [each[0] for each in orbit.arc_ends]
        return jnp.concatenate([orbit.x, orbit.period[None], *ends, orbit.jump_times[0]])

    def exact(p):
        through = leaky_stride(jnp.stack([0.0 * p["r"], p["r"] * p["level"]]), p)
        speed = p["r"] * p["level"]
        more = [0.0 * speed, -speed, p["level"], 2 * speed / p["g"], through[2]]
        return jnp.concatenate([through, jnp.stack(more)])

    got, expected = jax.jit(jax.jacrev(found))(LEAKY), jax.jacfwd(exact)(LEAKY)
    jax.tree.map(ft.partial(assert_allclose, rtol=1e-12, atol=1e-13), got, expected)


# Forced: field, guard and reset depend on time, with period tau

forced = two_modes(
    rest=lambda t, x, p: -p["k"] * x + p["a"] * jnp.cos(2 * jnp.pi * t / p["tau"]),
    # Rises at tau / 2, which is no event, and falls at tau.
    leave_rest=lambda t, x, p: -jnp.sin(2 * jnp.pi * t / p["tau"]),
    land=lambda t, x, p: jnp.stack([-p["m"] * x[1] * (1 + p["b"] * jnp.sin(2 * jnp.pi * t / p["tau"]))]),
    throw=lambda t, x, p: jnp.stack([p["c"] * jnp.sin(2 * jnp.pi * t / p["tau"]), p["r"] * x[0] + p["w"]]),
)
FORCED = dict(g=9.81, m=1.5, k=0.7, a=2.0, b=0.3, c=0.2, r=0.5, w=2.0, tau=1.9)
FORCED = {name: jnp.array(value) for name, value in FORCED.items()}


def forced_stride(x, p, t=0.0):
    """State at tau and duration, from time t, in closed form."""
    omega = 2 * jnp.pi / p["tau"]
    flight, speed = landing(x, p)
    landed = t + flight
    charge = p["m"] * speed * (1 + p["b"] * jnp.sin(omega * landed))
    # u' = -k u + a cos(omega t): a particular solution, and what decays to it.
    settled = lambda t: p["a"] * (p["k"] * jnp.cos(omega * t) + omega * jnp.sin(omega * t)) / (p["k"] ** 2 + omega**2)
    left = settled(p["tau"]) + (charge - settled(landed)) * jnp.exp(-p["k"] * (p["tau"] - landed))
    return jnp.stack([0.0 * left, p["r"] * left + p["w"], p["tau"] - t])


def forced_stride_and_time(x, p, t):
    through = hj.ReturnMap(forced, sequence=SEQUENCE)(x, p, t=t)
    return jnp.append(through.x, through.time)


@pytest.fixture(scope="module")
def forced_start():
    """The fixed point of the closed form, by iteration: it contracts."""
    x = jnp.array([0.0, 2.0])
    for _ in range(200):
        x = forced_stride(x, FORCED)[:2]
    return x


@pytest.mark.medium
def test_forced_stride_and_its_derivatives():
    """In state, parameters, and the time at which it starts."""
    times = jnp.array([0.0, 0.1, -0.2])

    def derivatives(f):
        along = jax.jacrev(lambda *of: (f(*of),) * 2, argnums=(0, 1, 2), has_aux=True)
        return jax.jit(jax.vmap(along, in_axes=(0, None, 0)))(STARTS[:3], FORCED, times)

    got, expected = derivatives(forced_stride_and_time), derivatives(forced_stride)
    # Integration at 1e-14 of numbers up to 10, and derivatives which multiply them by omega = 3.
    jax.tree.map(ft.partial(assert_allclose, rtol=1e-12, atol=1e-12), got, expected)


@pytest.mark.medium
def test_forced_stride_repeats_with_the_period():
    x = jnp.array([0.0, 2.0])
    # Time is rounded at 19 instead of 2.
    now, later = (forced_stride_and_time(x, FORCED, t) for t in (0.0, 10 * FORCED["tau"]))
    assert_allclose(now, later, rtol=1e-13, atol=1e-13)


@pytest.mark.slow
def test_forced_orbit_of_two_strides(forced_start):
    """The second stride starts when the first ends; together they have the square of the Jacobian. (Its derivatives by the
    parameters: `test_reverse.py`.)"""
    orbit = hj.periodic_orbit(
        hj.ReturnMap(forced, sequence=SEQUENCE, strides=2, integrator=ROLLED), jnp.array([0.0, 2.2]), FORCED
    )
    assert_allclose(orbit.nodes, [forced_start, forced_start], rtol=1e-13, atol=1e-13)
    assert_allclose(orbit.period, 2 * FORCED["tau"], rtol=1e-14)
    landed = landing(forced_start, FORCED)[0]
    assert_allclose(orbit.impact_times, [landed, 1.9, 1.9 + landed, 3.8], rtol=1e-13)
    expected = jax.jacfwd(forced_stride)(forced_start, FORCED)[:2]
    assert_allclose(orbit.return_jacobian, expected @ expected, rtol=1e-12, atol=1e-13)
