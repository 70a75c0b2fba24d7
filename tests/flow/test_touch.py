"""Flows that touch a guard's surface, a rounding above or below it: grazing on both sides, up to a few roundings.

The surface lies above the top of the flow by a number of roundings of the guard's values.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import leave, line, oscillate

import hyjax as hj

RESULTS = hj.RESULTS
EPS = float(np.finfo(float).eps)
# A linear guard, after some ten steps with errors of a rounding or two: these touch, and those outside of 8 +- 8 do not.
TOUCH = np.array([-4, -2, -1, 0, 1, 2, 4])
AWAY = np.array([16, 50, 1e3, 1e6, 1e12])
ROUNDINGS = np.concatenate([-AWAY[::-1], TOUCH, AWAY])


def fall(t, x, p):
    return jnp.stack([x[1], -jnp.ones_like(t)])


def thrown(top):
    """From `top` at the speed 1: half a unit high."""
    return jnp.array([top, 1.0])


# Field, guard, start, time of the top, numbers whose difference is the guard, how fast the guard turns.
FLOWS = {
    "ball": (fall, lambda t, x, p: 0.5 + p - x[0], thrown(0.0), 1.0, 0.5, 1.0),
    "far from zero": (fall, lambda t, x, p: 1000.5 + p - x[0], thrown(1000.0), 1.0, 1000.0, 1.0),
    "oscillator": (oscillate, lambda t, x, p: 1 + p - x[0], jnp.array([0.0, 1.0]), np.pi / 2, 1.0, 1.0),
}


def flow(system, x, p, max_time, **options):
    integrator = hj.Integrator(max_time=max_time, **options)
    run = lambda p: hj.flow_to_guard(system, "free", 0.0, x, p, integrator=integrator, throw=False)
    return jax.jit(jax.vmap(run))(jnp.asarray(p))


@pytest.mark.parametrize("name", FLOWS)
def test_a_touch_is_grazing_above_and_below(name):
    field, guard, x, at, size, turn = FLOWS[name]
    system = leave(field, 2, guard)
    met = flow(system, x, ROUNDINGS * EPS * size, 1.5 * at)
    touch, above, below = (np.isin(ROUNDINGS, which) for which in (TOUCH, -AWAY, AWAY))
    codes = [(touch, RESULTS.grazing), (above, RESULTS.successful), (below, RESULTS.no_crossing)]
    for which, code in codes:
        assert np.all(np.asarray(met.result == code)[which])
    # The guard would fall to -depth = -rate^2 / 2 turn; a few roundings of error in sixteen of depth.
    depth = -ROUNDINGS[above] * EPS * size
    rate = -np.sqrt(2 * turn * depth)
    assert_allclose(met.guard_rate[above][:-1], rate[:-1], rtol=0.1)
    assert_allclose(met.guard_rate[above][0], rate[0], rtol=1e-3)


@pytest.mark.medium
def test_a_guard_that_is_not_linear():
    """(y - 3)^2 + d with y = t, whose largest value is 9, is known to far less than a rounding of 9 where it turns."""
    square = leave(line, 1, lambda t, x, p: (x[0] - 3) ** 2 + p)
    met = flow(square, jnp.zeros(1), np.array([-0.5, 0.0, 0.5, 2, 100]) * 9 * EPS, 5.0)
    assert np.array_equal(np.asarray(met.result == RESULTS.grazing), [True, True, True, False, False])
    assert np.all(np.asarray(met.result == RESULTS.no_crossing)[3:])


@pytest.mark.medium
def test_where_a_simulation_touches():
    """At the top, before any jump; and a touch while the guard is not armed is none."""
    field, guard, x, at, *_ = FLOWS["ball"]
    bounce = lambda t, x, p: x * jnp.array([1.0, -1.0])
    way = lambda armed: hj.Transition("free", "free", guard, bounce, armed=armed)
    system = lambda armed: hj.HybridSystem({"free": hj.Mode(field, ("y", "v"))}, (way(armed),))
    run = lambda armed: hj.simulate(system(armed), x, 4 * EPS, mode="free", t1=1.5, max_jumps=3, throw=False)
    touched, passed = run(None), run(lambda t, x, p: t > 2)
    assert touched.result == "grazing" and int(touched.jumps) == 0
    assert_allclose(touched.t, at, rtol=0, atol=1e-7)
    assert_allclose(touched.final, [0.5, 0], rtol=0, atol=1e-7)
    assert passed.result == "successful" and int(passed.jumps) == 0
    assert_allclose(passed.final, [1.5 - 1.125, -0.5], rtol=1e-14)


@pytest.mark.medium
def test_a_touch_comes_before_another_guard():
    """Ceiling and floor may be met within one step of a falling ball: only where the ceiling is missed is the floor met."""
    ceiling = FLOWS["ball"][1]
    room = leave(fall, 2, ceiling, lambda t, x, p: x[0] + 0.1)
    met = flow(room, thrown(0.0), np.array([0, 2, 4, 50, 1e6]) * EPS * 0.5, 10.0)
    assert np.array_equal(np.asarray(met.result == RESULTS.grazing), [True, True, True, False, False])
    assert np.array_equal(met.transition[3:], [1, 1])
    assert_allclose(met.t[3:], 1 + np.sqrt(1.2), rtol=1e-14)


def test_what_comes_near_without_turning_does_not_touch():
    """exp(-t) falls below any rounding of its start, and never to zero."""
    decay = leave(lambda t, x, p: -p * x, 1, lambda t, x, p: x[0])
    met = flow(decay, jnp.ones(1), [0.3, 0.6, 0.8, 1.0], 60.0, atol=1e-60)
    assert np.all(np.asarray(met.result == RESULTS.no_crossing))


@pytest.mark.medium
def test_a_limit_of_the_domain_may_be_touched():
    """A ball in a domain that reaches to its top, which no transition leaves."""
    field, guard, x, *_ = FLOWS["ball"]
    mode = hj.Mode(field, ("y", "v"), domain=guard)
    system = hj.HybridSystem(
        {"free": mode, "end": mode}, (hj.Transition("free", "end", lambda t, x, p: x[0] + 1, lambda t, x, p: x),)
    )
    met = flow(system, x, np.array([0, 4, 1e6]) * EPS, 10.0)
    assert np.all(np.asarray(met.result == RESULTS.successful))
