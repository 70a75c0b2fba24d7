"""Held coordinates: constant in a mode, changed by resets, part of the state of maps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import expm
from systems import ROLLED

import hyjax as hj

# x'' = u, u = -K (x, x') held for 0.4; `capabilities` of a double integrator, closed form.
K, PERIOD = np.array([1.0, 1.5]), 0.4


def sampled(delayed: bool = False) -> hj.HybridSystem:
    """A double integrator with a clock `s`, and a state feedback sampled where the clock ends; `delayed` by one sample."""
    held = ("u", "next") if delayed else ("u",)
    plant = hj.Mode(lambda t, x, p: jnp.stack([x[1], x[3], jnp.ones_like(x[0])]), ("y", "v", "s"), held=held)

    def sample(t, x, p):
        command = -(p @ x[:2])[None]
        return jnp.concatenate([x[:2], 0 * x[:1], jnp.concatenate([x[4:], command]) if delayed else command])

    tick = hj.Transition("plant", "plant", lambda t, x, p: PERIOD - x[2], sample)
    return hj.HybridSystem({"plant": plant}, (tick,))


def test_coordinates_and_state():
    (mode,) = sampled(True).modes.values()
    assert mode.coordinates == ("y", "v", "s", "u", "next") and mode.held == ("u", "next") and mode.dimension == 5
    run = hj.simulate(
        sampled(), jnp.array([1.0, 0.0, 0.0, 0.5]), jnp.array(K), mode="plant", t1=1.0, max_jumps=3, integrator=ROLLED
    )
    held = run.x_starts[:3, 3]
    assert np.array_equal(held, run.x_ends[:3, 3]) and held[0] == 0.5
    assert_allclose(held[1:], [-(K @ x[:2]) for x in run.x_ends[:2]], rtol=0, atol=1e-14)


@pytest.mark.parametrize("delayed", [False, True])
def test_multipliers_are_those_of_the_exact_discretization(delayed):
    """The map from sample to sample is linear, and its matrix a matrix exponential; the clock's multiplier is 0."""
    hold = expm(np.array([[0.0, 1, 0], [0, 0, 1], [0, 0, 0]]) * PERIOD)[:2]
    exact = hold[:, :2] - np.outer(hold[:, 2], K)
    if delayed:
        exact = np.block([[hold], [-K, 0.0]])
    step = hj.ReturnMap(sampled(delayed), sequence=("plant",), integrator=ROLLED)
    x = jnp.array([0.3, -0.2, 0.0, 0.1, 0.4][: 4 + delayed])
    found = np.sort_complex(np.linalg.eigvals(step.jacobian(x, jnp.array(K))))
    exact = np.sort_complex(np.append(np.linalg.eigvals(exact), np.zeros(len(found) - len(exact))))
    assert_allclose(found, exact, rtol=0, atol=1e-13)


@pytest.mark.medium
def test_error_control_leaves_held_coordinates_out():
    """The steps to a guard are those of the same flow with the held numbers as parameters."""
    rates = lambda x, u: jnp.stack([x[1], -u[0] * jnp.sin(x[0]) - u[1]])
    fall = lambda t, x, p: x[0]
    same = lambda t, x, p: x
    names = ("angle", "rate")
    with_held = hj.Mode(lambda t, x, p: rates(x, x[2:]), names, held=("a", "b", "c", "d"))
    alone = hj.Mode(lambda t, x, p: rates(x, p), names)
    u, x0 = jnp.array([3.0, 0.1, 7.0, -2.0]), jnp.array([1.5, 0.0])
    found = []
    for mode, x, p in ((with_held, jnp.concatenate([x0, u]), None), (alone, x0, u)):
        system = hj.HybridSystem({"swing": mode}, (hj.Transition("swing", "swing", fall, same),))
        found.append(hj.flow_to_guard(system, "swing", 0.0, x, p, integrator=ROLLED))
    assert found[0].steps == found[1].steps
    assert_allclose(found[0].x[:2], found[1].x, rtol=0, atol=1e-14)
    by_held = jax.jacfwd(lambda x: hj.flow_to_guard(system_of(with_held), "swing", 0.0, x, None, integrator=ROLLED).t)
    by_parameter = jax.jacfwd(lambda u: hj.flow_to_guard(system_of(alone), "swing", 0.0, x0, u, integrator=ROLLED).t)
    assert_allclose(by_held(jnp.concatenate([x0, u]))[2:], by_parameter(u), rtol=1e-10, atol=1e-12)


def system_of(mode: hj.Mode) -> hj.HybridSystem:
    fall = hj.Transition("swing", "swing", lambda t, x, p: x[0], lambda t, x, p: x)
    return hj.HybridSystem({"swing": mode}, (fall,))


def test_what_is_refused():
    with pytest.raises(ValueError, match="must differ from each other"):
        hj.Mode(lambda t, x, p: x[:1], ("x", "u"), held=("u",))
    with pytest.raises(ValueError, match="followed by the rates of the 1 coordinates that are held"):
        wrong = hj.Mode(lambda t, x, p: x, ("x", "v"), held=("u",))
        hj.simulate(hj.HybridSystem({"m": wrong}, ()), jnp.zeros(3), None, mode="m", t1=1.0, integrator=ROLLED)
    with pytest.raises(ValueError, match="units must be a text for each"):
        hj.Mode(lambda t, x, p: x[:1], ("x",), held=("u",), units=("m",))
