"""How a flow is integrated: the fields of `Integrator`, each against a closed form or another route to the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from systems import leave, oscillate

import hyjax as hj
from hyjax._testing import operations

# x'' = -x until the time is q.
until = leave(oscillate, 2, lambda t, x, q: q - t)


def rotation(angle):
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


# How a step is compiled


@pytest.mark.medium
def test_stages_in_a_loop_are_the_same_stages():
    """A program of another shape: the same sums in another order."""
    end = lambda unroll: hj.flow_to_guard(
        until, "free", 0.0, jnp.array([1.0, 0.5]), jnp.array(7.3), integrator=hj.Integrator(unroll=unroll)
    )
    written, looped = end(True), end(False)
    assert written.steps == looped.steps
    # Some 40 steps, each rounded once or twice.
    assert_allclose(looped.x, written.x, rtol=0, atol=1e-14)


def test_a_field_with_long_loops_is_compiled_once():
    """Operations in a loop count fourfold: a field of 150 is written out, unless they are in a loop."""

    def many(k, pull):
        for _ in range(150):
            pull = pull - 0.1
        return pull

    looped = lambda t, x, p: jnp.stack([x[1], jax.lax.fori_loop(0, 3, many, x[0])])
    plain = lambda t, x, p: jnp.stack([x[1], many(0, x[0])])

    def size(field, unroll):
        system, integrator = leave(field, 2, lambda t, x, p: x[0]), hj.Integrator(unroll=unroll)
        end = lambda x: hj.flow_to_guard(system, "free", 0.0, x, jnp.array(1.0), integrator=integrator).x
        return operations(jax.make_jaxpr(end)(jnp.ones(2)).jaxpr)

    assert size(looped, None) == size(looped, False) < size(looped, True)
    assert size(plain, False) < size(plain, None) == size(plain, True)


# Variations about a rest


@pytest.mark.medium
@pytest.mark.parametrize("away", [0.0, 1e-13, 1e-7])
def test_variations_about_a_rest_do_not_depend_on_who_asks(away):
    """The steps, and so the values, are those of a call that is not differentiated; and the derivative is the rotation."""
    x, q = away * jnp.array([1.0, -2.0]), jnp.array(9.0)

    @jax.jit
    def end(x):
        met = hj.flow_to_guard(until, "free", 0.0, x, q)
        return met.x, (met.x, met.steps)

    jacobian, (x1, steps) = jax.jit(jax.jacfwd(end, has_aux=True))(x)
    alone, (_, steps_alone) = end(x)
    assert steps == steps_alone
    # 1e-14 for each of some fifty steps.
    assert_allclose(jacobian, rotation(9.0), rtol=0, atol=1e-12)
    assert_allclose(x1, alone, rtol=0, atol=1e-15 * away)


def test_a_rest_of_values_alone_takes_few_steps():
    steps = lambda variations: (
        hj.flow_to_guard(
            until, "free", 0.0, jnp.zeros(2), jnp.array(90.0), integrator=hj.Integrator(variations=variations)
        ).steps
    )
    assert steps(False) < 30 < 300 < steps(True)


@pytest.mark.medium
@pytest.mark.parametrize("rate", [1.0, 20.0])
def test_variations_of_coordinates_that_rest_beside_others(rate):
    """Mathieu's equation for a spring at rest where it is carried along uniformly, which every step follows exactly; and decay,
    beside an oscillation that turns at its start."""

    def beside(t, x, p):
        q, w, decays, turns, speed, phase = x
        spring = -(p**2) * (1 + 0.5 * jnp.cos(phase)) * (q - 0.3 * phase)
        return jnp.stack([w, spring, -p * decays, speed, 1 - turns, 1 + 0 * phase])

    system, integrator = leave(beside, 6, lambda t, x, p: 3 - t), hj.Integrator(unroll=False)
    # The spring is carried along uniformly.
    start = jnp.array([0.0, 0.3, 0, 2, 0, 0])
    end = lambda x: hj.flow_to_guard(system, "free", 0.0, x, jnp.array(rate), integrator=integrator).x
    slope = jax.jacfwd(end)(start)
    mathieu = lambda t, x: [x[1], -(rate**2) * (1 + 0.5 * np.cos(t)) * x[0]]
    exact = [solve_ivp(mathieu, (0, 3), e, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1] for e in np.eye(2)]
    # SciPy's tolerance, of some hundred steps.
    assert_allclose(slope[:2, :2], np.transpose(exact), rtol=0, atol=1e-10 * rate)
    # 1e-14 for each of some hundred steps.
    assert_allclose(slope[2, 2], np.exp(-3 * rate), rtol=0, atol=1e-12)


def test_what_turns_does_not_rest():
    """A body that is let go, beside one that is at rest and has no rate of its own, takes the steps of the flow alone."""
    fall = lambda t, x, p: jnp.stack([x[1], -x[0] + 0 * x[1], 0 * x[2]])
    system, start = leave(fall, 3, lambda t, x, p: 20 - t), jnp.array([1.0, 0.0, 0.5])
    steps = lambda variations: (
        hj.flow_to_guard(
            system, "free", 0.0, start, None, integrator=hj.Integrator(unroll=False, variations=variations)
        ).steps
    )
    assert steps(True) == steps(False)


@pytest.mark.medium
def test_a_rest_beside_others_costs_no_values():
    """A settled first-order lag behind a turning point leaves its rest at once; a stiff decay at rest beside an oscillation is
    passed with half of the steps."""

    def steps(decay, lag):
        field = lambda t, x, p: jnp.stack([x[1], -x[0], decay * (lag * x[0] - x[2])])
        system, start = leave(field, 3, lambda t, x, p: 3 - t), jnp.array([1.0, 0.0, lag])
        run = lambda variations: hj.flow_to_guard(
            system, "free", 0.0, start, None, integrator=hj.Integrator(unroll=False, variations=variations)
        )
        bounded, free = run(True), run(False)
        assert_allclose(bounded.x, free.x, rtol=0, atol=1e-9)
        return int(bounded.steps), int(free.steps)

    bounded, free = steps(30.0, 1.0)
    assert bounded < 1.5 * free
    bounded, free = steps(1e3, 0.0)
    assert bounded < 2048 + 2 * free
