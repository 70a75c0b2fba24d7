"""Small cases that other tools get wrong, each with its exact answer.

Value, first and second derivative, forward and reverse, under `jit` and `vmap`, in a solver of high and one of low
order, at tolerances from loose to tight. In most of them the flow is a polynomial, which every solver follows exactly: then
the event is exact to rounding at every tolerance.
"""

import dataclasses
import functools as ft
from collections.abc import Callable

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import leave, line, oscillate, same, still, with_time, with_tolerance

import hyjax as hj

SOLVERS = {"Dopri8": dfx.Dopri8(), "Tsit5": dfx.Tsit5()}
TOLERANCES = np.array([1e-3, 1e-6, 1e-10, 1e-14])


def projectile(t, x, params):
    _, _, x_rate, y_rate = x
    return jnp.stack([x_rate, y_rate, 0.0 * x_rate, -9.81 + 0.0 * y_rate])


def first_time(system, x, q, integrator):
    return hj.flow_to_guard(system, "free", 0.0, jnp.asarray(x), q, integrator=integrator).t


# Two guards in one step, the later one listed first; q is the earlier.
two_guards = leave(line, 1, lambda t, x, q: 1.0 - x[0], lambda t, x, q: q - x[0])
# Falls through zero at q and rises at 2.6, within one step.
dip = leave(line, 1, lambda t, x, q: (x[0] - q) * (x[0] - 2.6))
level = leave(line, 1, lambda t, x, q: q - x[0])
cosine = leave(oscillate, 2, lambda t, x, q: x[0] - q)
# The parameter stands in the guard alone, not linearly.
inside = leave(oscillate, 2, lambda t, x, q: x[0] - q**2)
# Almost flat past its zero: Newton's method from behind it goes astray.
flat = leave(line, 1, lambda t, x, q: jnp.maximum(1 - q * x[0], -1e-9))
floor = leave(projectile, 4, lambda t, x, q: x[1] + q * x[0])
# The clock stops at `end`, whatever the rest does.
clock = lambda end: lambda t, x, q: end - t
reset_once = hj.HybridSystem(
    {"u": hj.Mode(line, ("u",)), "again": hj.Mode(line, ("u",)), "end": hj.Mode(still, ("u",))},
    (
        hj.Transition("u", "again", lambda t, x, q: q - x[0], lambda t, x, q: jnp.zeros_like(x)),
        hj.Transition("again", "end", clock(1.0), same),
    ),
)
switched = hj.HybridSystem(
    {"on": hj.Mode(line, ("y",)), "off": hj.Mode(still, ("y",)), "end": hj.Mode(still, ("y",))},
    (hj.Transition("on", "off", lambda t, x, q: q - t, same), hj.Transition("off", "end", clock(2.0), same)),
)


def through(system, first, second, q, integrator):
    """The state at the end of the second arc."""
    met = hj.flow_to_guard(system, first, 0.0, jnp.zeros(1), q, integrator=integrator)
    after = system.transitions[0].reset(met.t, met.x, q)
    return hj.flow_to_guard(system, second, met.t, after, q, integrator=integrator).x[0]


@dataclasses.dataclass
class Case:
    """`value(q, integrator)`; the exact `(value, derivative, second derivative)` at `q`; whether the flow is exact."""

    value: Callable
    q: float
    exact: tuple[float, float, float]
    polynomial: bool = True


_r = 0.001427344607477125
_h, _v, _s, _g = 1.0, 1.5, 0.1, 9.81
# 0 = h - g t^2/2 + s v t, so t = (s v + w)/g with w = sqrt(s^2 v^2 + 2 g h).
_w = np.sqrt((_s * _v) ** 2 + 2 * _g * _h)

CASES = {
    "the earlier of two guards": Case(lambda q, i: first_time(two_guards, [0.0], q, i), 0.5, (0.5, 1, 0)),
    "fall and rise in one step": Case(lambda q, i: first_time(dip, [0.0], q, i), 2.5, (2.5, 1, 0)),
    "a level": Case(lambda q, i: first_time(level, [0.0], q, i), 0.7, (0.7, 1, 0)),
    "reset to zero": Case(lambda q, i: through(reset_once, "u", "again", q, i), 0.6, (0.4, -1, 0)),
    "rate switched off": Case(lambda q, i: through(switched, "on", "off", q, i), 0.98, (0.98, 1, 0)),
    "harmonic": Case(
        lambda q, i: first_time(cosine, [1.0, 0.0], q, i),
        0.31,
        (np.arccos(0.31), -1.0518160820563627, -0.3607290468386685),
        polynomial=False,
    ),
    "harmonic, past the half turn": Case(
        lambda q, i: first_time(cosine, [1.0, 0.0], q, i),
        -0.77,
        (np.arccos(-0.77), -((1 - 0.77**2) ** -0.5), 0.77 * (1 - 0.77**2) ** -1.5),
        polynomial=False,
    ),
    "parameter in the guard alone": Case(
        # T = arccos q^2: T' = -2q (1 - q^4)^-1/2, T'' = -2 (1 + q^4) (1 - q^4)^-3/2.
        lambda q, i: first_time(inside, [1.0, 0.0], q, i),
        0.6,
        (np.arccos(0.36), -1.2 * (1 - 0.6**4) ** -0.5, -2 * (1 + 0.6**4) * (1 - 0.6**4) ** -1.5),
        polynomial=False,
    ),
    "flat past its zero": Case(
        lambda q, i: first_time(flat, [0.0], q, with_time(i, 1000.0)),
        _r,
        (700.6016590257979, -1 / _r**2, 2 / _r**3),
    ),
    "tilted floor": Case(
        lambda q, i: first_time(floor, [0.0, _h, _v, 0.0], q, i),
        _s,
        (0.467072987849974, 0.158080255683657589, 2 * _h * _v**2 / _w**3),
    ),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", CASES)
def test_value_and_derivatives(name, solver):
    case = CASES[name]
    integrator = hj.Integrator(solver=SOLVERS[solver])

    @jax.jit
    @ft.partial(jax.vmap, in_axes=(None, 0))
    def all_of_them(q, tolerance):
        # Forward over reverse, as in `jax.hessian`: one loop gives both first derivatives and the second.
        value = jax.value_and_grad(lambda q: case.value(q, with_tolerance(integrator, tolerance)))
        return jax.jvp(value, (q,), (jnp.ones_like(q),))

    (value, reverse), (forward, second) = all_of_them(jnp.asarray(case.q), jnp.asarray(TOLERANCES))
    # Rounding: a few units of the last place; in a derivative, of each of its factors.
    rounding = 2e-14
    exact, first, curvature = case.exact
    # A flow that is not a polynomial has the tolerance's error: some ten steps, each with one tolerance relative and one
    # absolute. Derivatives, which divide by powers of the guard's rate, have that error relative to their size.
    slack = np.zeros(4) if case.polynomial else 20 * TOLERANCES
    for got, expected in ((value, exact), (forward, first), (reverse, first), (second, curvature)):
        error = np.abs(np.asarray(got) - expected)
        assert np.all(error <= (rounding + slack) * max(abs(expected), 1)), (expected, error)


def test_earlier_guard_is_named():
    met = hj.flow_to_guard(two_guards, "free", 0.0, jnp.zeros(1), jnp.array(0.5))
    assert int(met.transition) == 1
    met = hj.flow_to_guard(two_guards, "free", 0.0, jnp.zeros(1), jnp.array(1.5))
    assert int(met.transition) == 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_reset_anywhere_in_the_range(solver):
    """u(1) = 1 - p for every p in (0.5, 1), with derivative -1."""
    integrator = hj.Integrator(solver=SOLVERS[solver])
    value = lambda q: through(reset_once, "u", "again", q, integrator)
    q = jnp.linspace(0.501, 0.999, 25)
    u, du = jax.jit(jax.vmap(jax.value_and_grad(value)))(q)
    assert_allclose(u, 1 - q, rtol=0, atol=1e-15)
    assert_allclose(du, -1, rtol=0, atol=1e-15)


def fall(t, x, params):
    return jnp.stack([x[1], -params])


ball = leave(fall, 2, lambda t, x, q: x[0])


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("start", [0.0, 1e-17, -1e-17, 2e-16, -2e-16])
def test_thrown_ball_lands_later(solver, start):
    """It starts on the floor, to rounding of either sign, and moves up: the event is its landing at T = 2."""
    met = hj.flow_to_guard(
        ball, "free", 0.0, jnp.array([start, 1.0]), jnp.array(1.0), integrator=hj.Integrator(solver=SOLVERS[solver])
    )
    # Some ten steps, each rounded once or twice.
    assert_allclose(met.t, 2, rtol=5e-15)
    assert_allclose(met.x, [0, -1], rtol=5e-15, atol=1e-14)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_impact_at_the_end_time_counts(solver):
    """From 45 at g = 10, elastic: impacts at 3, 9 and 15, which is the end time; documented to be met."""
    gravity = jnp.array(10.0)

    def until(t, x, end):
        integrator = with_time(hj.Integrator(solver=SOLVERS[solver]), end - t)
        return hj.flow_to_guard(ball, "free", t, x, gravity, integrator=integrator)

    t, x = jnp.zeros(()), jnp.array([45.0, 0.0])
    for expected in (3.0, 9.0, 15.0):
        met = until(t, x, 15.0)
        assert met.result == hj.RESULTS.successful
        assert_allclose(met.t, expected, rtol=1e-15)
        assert_allclose(met.x, [0, -30], rtol=1e-15, atol=1e-13)
        last, (t, x) = (t, x), (met.t, met.x * jnp.array([1.0, -1.0]))
    # The same from an end time that rounds the other way; and an end time which is clearly earlier is not the impact.
    for end in (np.nextafter(15.0, 0), np.nextafter(15.0, 16)):
        assert until(*last, end).result == hj.RESULTS.successful
    assert until(*last, 15 - 1e-9).result == hj.RESULTS.no_crossing
