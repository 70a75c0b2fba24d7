"""Small cases that other tools get wrong, each with its exact answer.

Value, first and second derivative, forward and reverse, under `jit` and `vmap`, at tolerances from loose to tight; in a solver of
high order, and some in one of low order. In most of them the flow is a polynomial, which every solver follows exactly: then the
event is exact to rounding at every tolerance.
"""

from collections.abc import Callable
from typing import NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import leave, line, oscillate, same, still, with_time, with_tolerance

import hyjax as hj

# Compiled in half the time.
SOLVERS = {
    name: hj.Integrator(solver, unroll=False) for name, solver in (("Dopri8", dfx.Dopri8()), ("Tsit5", dfx.Tsit5()))
}
TOLERANCES = np.array([1e-3, 1e-6, 1e-10, 1e-14])


def projectile(t, x, params):
    _, _, x_rate, y_rate = x
    return jnp.stack([x_rate, y_rate, 0.0 * x_rate, -9.81 + 0.0 * y_rate])


def of_kind(q, *values):
    """Among the values that with the number `q["kind"]`: several cases in one program."""
    return jnp.select([q["kind"] == k for k in range(len(values))], values)


# Straight: two guards in one step, the later one listed first; a guard that falls through zero at q and rises at 2.6, within one
# step; a level; a guard that is almost flat past its zero, where Newton's method from behind it goes astray.
straight = leave(
    line,
    1,
    lambda t, x, q: of_kind(
        q, 1.0 - x[0], (x[0] - q["q"]) * (x[0] - 2.6), q["q"] - x[0], jnp.maximum(1 - q["q"] * x[0], -1e-9)
    ),
    lambda t, x, q: of_kind(q, q["q"] - x[0], *[jnp.ones_like(t)] * 3),
)
# The parameter stands in the guard alone, linearly or not.
cosine = leave(oscillate, 2, lambda t, x, q: x[0] - of_kind(q, q["q"], q["q"] ** 2))
floor = leave(projectile, 4, lambda t, x, q: x[1] + q["q"] * x[0])
# A coordinate that is reset to zero, and a rate that is switched off; the clock stops at 1 or 2, whatever the rest does.
twice = hj.HybridSystem(
    {
        "first": hj.Mode(line, ("u",)),
        "second": hj.Mode(lambda t, x, q: of_kind(q, jnp.ones_like(x), 0 * x), ("u",)),
        "end": hj.Mode(still, ("u",)),
    },
    (
        hj.Transition(
            "first", "second", lambda t, x, q: q["q"] - of_kind(q, x[0], t), lambda t, x, q: of_kind(q, 0 * x, x)
        ),
        hj.Transition("second", "end", lambda t, x, q: of_kind(q, 1.0, 2.0) - t, same),
    ),
)


def time_of(system, *start):
    return lambda q, i: hj.flow_to_guard(system, "free", 0.0, jnp.array(start), q, integrator=i).t


def end_of_second(q, integrator):
    """The state at the end of the second arc."""
    met = hj.flow_to_guard(twice, "first", 0.0, jnp.zeros(1), q, integrator=integrator)
    after = twice.transitions[0].reset(met.t, met.x, q)
    return hj.flow_to_guard(twice, "second", met.t, after, q, integrator=integrator).x[0]


class Case(NamedTuple):
    """The parameter, and the exact `(value, derivative, second derivative)` there; whether the flow is exact."""

    q: float
    exact: tuple[float, float, float]
    polynomial: bool = True


_r = 0.001427344607477125
_h, _v, _s, _g = 1.0, 1.5, 0.1, 9.81
# 0 = h - g t^2/2 + s v t, so t = (s v + w)/g with w = sqrt(s^2 v^2 + 2 g h).
_w = np.sqrt((_s * _v) ** 2 + 2 * _g * _h)

# By program: what is differentiated, and by kind the cases.
PROGRAMS: dict[str, tuple[Callable, list[tuple[int, Case]]]] = {
    "straight": (
        time_of(straight, 0.0),
        [
            (0, Case(0.5, (0.5, 1, 0))),
            (1, Case(2.5, (2.5, 1, 0))),
            (2, Case(0.7, (0.7, 1, 0))),
            (3, Case(_r, (700.6016590257979, -1 / _r**2, 2 / _r**3))),
        ],
    ),
    "harmonic": (
        time_of(cosine, 1.0, 0.0),
        [
            (0, Case(0.31, (np.arccos(0.31), -1.0518160820563627, -0.3607290468386685), polynomial=False)),
            # Past the half turn.
            (0, Case(-0.77, (np.arccos(-0.77), -((1 - 0.77**2) ** -0.5), 0.77 * (1 - 0.77**2) ** -1.5), False)),
            # T = arccos q^2: T' = -2q (1 - q^4)^-1/2, T'' = -2 (1 + q^4) (1 - q^4)^-3/2.
            (1, Case(0.6, (np.arccos(0.36), -1.2 * (1 - 0.6**4) ** -0.5, -2 * (1 + 0.6**4) * (1 - 0.6**4) ** -1.5), False)),
        ],
    ),
    "tilted floor": (
        time_of(floor, 0.0, _h, _v, 0.0),
        [(0, Case(_s, (0.467072987849974, 0.158080255683657589, 2 * _h * _v**2 / _w**3)))],
    ),
    "reset to zero, or rate switched off": (
        end_of_second,
        [(0, Case(0.6, (0.4, -1, 0))), (1, Case(0.98, (0.98, 1, 0)))],
    ),
}  # fmt: skip


@eqx.filter_jit
def derivatives(value, integrator, kind, q, tolerance):
    """Forward over reverse, as in `jax.hessian`: one loop gives both first derivatives and the second."""

    def at(kind, q, tolerance):
        each = with_time(with_tolerance(integrator, tolerance), 1000.0)
        slope = jax.value_and_grad(lambda q: value({"kind": kind, "q": q}, each))
        return jax.jvp(slope, (q,), (jnp.ones_like(q),))

    return jax.vmap(at)(kind, q, tolerance)


# The solver matters where the flow is not exact, and where its steps are long.
@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "solver"), [*((name, "Dopri8") for name in PROGRAMS), ("straight", "Tsit5"), ("harmonic", "Tsit5")]
)
def test_value_and_derivatives(name, solver):
    value, cases = PROGRAMS[name]
    # The first kind of the last program also anywhere in the range, at the tightest tolerance: u(1) = 1 - q.
    more = np.linspace(0.501, 0.999, 25) if value is end_of_second else np.zeros(0)
    kinds = np.append(np.repeat([kind for kind, _ in cases], 4), 0 * more)
    q = np.append(np.repeat([case.q for _, case in cases], 4), more)
    tolerances = np.append(np.tile(TOLERANCES, len(cases)), np.full(more.size, TOLERANCES[-1]))
    lanes = derivatives(value, SOLVERS[solver], kinds, q, tolerances)
    (values, reverse), (forward, second) = jax.tree.map(np.asarray, lanes)
    # Rounding: a few units of the last place; in a derivative, of each of its factors.
    rounding = 2e-14
    for i, (_, case) in enumerate(cases):
        lane = slice(4 * i, 4 * i + 4)
        exact, first, curvature = case.exact
        # A flow that is not a polynomial has the tolerance's error: some ten steps, each with one tolerance relative and one
        # absolute. Derivatives, which divide by powers of the guard's rate, have that error relative to their size.
        slack = np.zeros(4) if case.polynomial else 20 * TOLERANCES
        for got, expected in ((values, exact), (forward, first), (reverse, first), (second, curvature)):
            error = np.abs(got[lane] - expected)
            assert np.all(error <= (rounding + slack) * max(abs(expected), 1)), (case, expected, error)
    if more.size:
        anywhere = slice(4 * len(cases), None)
        assert_allclose(values[anywhere], 1 - more, rtol=0, atol=1e-15)
        assert_allclose(reverse[anywhere], -1, rtol=0, atol=1e-15)


def test_earlier_guard_is_named():
    for q, earlier in ((0.5, 1), (1.5, 0)):
        params = {"kind": jnp.zeros(()), "q": jnp.array(q)}
        met = hj.flow_to_guard(straight, "free", 0.0, jnp.zeros(1), params, integrator=SOLVERS["Dopri8"])
        assert int(met.transition) == earlier


def fall(t, x, params):
    return jnp.stack([x[1], -params])


ball = leave(fall, 2, lambda t, x, q: x[0])


def landing(solver, t, x, gravity, end):
    """From `(t, x)` until the time `end`: one program for all."""
    integrator = with_time(SOLVERS[solver], jnp.asarray(end - t))
    return hj.flow_to_guard(ball, "free", t, x, jnp.asarray(gravity), integrator=integrator, throw=False)


@pytest.mark.medium
@pytest.mark.parametrize("solver", SOLVERS)
def test_thrown_ball_lands_later(solver):
    """It starts on the floor, to rounding of either sign, and moves up: the event is its landing at T = 2."""
    for start in (0.0, 1e-17, -1e-17, 2e-16, -2e-16):
        met = landing(solver, jnp.zeros(()), jnp.array([start, 1.0]), 1.0, 100.0)
        # Some ten steps, each rounded once or twice.
        assert_allclose(met.t, 2, rtol=5e-15)
        assert_allclose(met.x, [0, -1], rtol=5e-15, atol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_impact_at_the_end_time_counts(solver):
    """From 45 at g = 10, elastic: impacts at 3, 9 and 15, which is the end time; documented to be met."""
    until = lambda t, x, end: landing(solver, t, x, 10.0, end)
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
