"""Newton's cradle: the chain of exact rationals, and the swing of equal elastic balls."""

import jax.numpy as jnp
import numpy as np
import pytest
from families import EXACT
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import newtons_cradle as cradle


def ran(x0, params, t1, max_jumps=16, **options):
    return hj.simulate(
        cradle.cradle(x0.size // 2), x0, params, mode="swing", t1=t1, max_jumps=max_jumps, integrator=ROLLED, **options
    )


@pytest.mark.parametrize("name, restitution", [("cradle_elastic_5", 1.0), ("chain_e1/2_5", 0.5)])
def test_chain_without_gravity(name, restitution):
    """Reference: exact rationals, of points with gaps of about 1/10. Between collisions the flow is a straight line."""
    case, params = EXACT[name], cradle.Params(gravity=0.0, gap=0.1, restitution=restitution)
    place = jnp.array([eval(each) for each in case["x0"]], float) - 0.1 * jnp.arange(5.0)
    run = ran(jnp.concatenate([place, jnp.array([float(each) for each in case["v0"]])]), params, 20.0)
    assert run.result == hj.RESULTS.successful and int(run.jumps) == case["n_collisions"]
    times, balls = zip(*((float(t), k) for t, k, _ in case["collisions"]), strict=True)
    assert run.indices[: len(balls)].tolist() == list(balls)
    assert_allclose(run.end_times[: len(times)], times, rtol=1e-12, atol=0)
    assert_allclose(run.final[5:], np.array(case["final_v"], float), rtol=0, atol=1e-13)


def test_a_lighter_neighbour():
    """Two balls without gravity, e = 0.9, the second half as heavy: v (1 - e mu)/(1 + mu) and v (1 + e)/(1 + mu)."""
    params = cradle.Params(gravity=0.0, restitution=0.9, mass_ratio=0.5)
    run = ran(jnp.array([-0.1, 0.0, 2.0, 0.0]), params, 0.1, 2)
    assert_allclose(run.final[2:], [2 * (1 - 0.45) / 1.5, 2 * 1.9 / 1.5], rtol=1e-13)


def test_impacts_are_internal():
    """Elastic balls that swing keep their energy, and the mean of their displacements is that of one free pendulum."""
    params = cradle.Params(restitution=1.0, gap=0.005)
    x0 = jnp.array([-0.05, 0.0, 0.001, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    omega, t = np.sqrt(9.81 / 0.15), 0.37
    run = ran(x0, params, t)
    assert run.result == hj.RESULTS.successful and int(run.jumps) >= 4
    energy = lambda x: float(jnp.sum(x[5:] ** 2 + omega**2 * x[:5] ** 2))
    assert_allclose(energy(run.final), energy(x0), rtol=1e-11)
    total = float(jnp.sum(x0[:5]))
    assert_allclose(jnp.sum(run.final[:5]), total * np.cos(omega * t), rtol=0, atol=1e-12)
    assert_allclose(jnp.sum(run.final[5:]), -total * omega * np.sin(omega * t), rtol=0, atol=1e-11)


@pytest.mark.medium
def test_balls_that_touch_are_no_order_of_impacts():
    """Struck from both sides at one time: the state after depends on the order, so the run says so."""
    params = cradle.Params(gravity=0.0, gap=0.1, restitution=0.5)
    met = ran(jnp.array([-0.1, 0.0, 0.1, 1.0, 0.0, -1.0]), params, 0.5, 4, throw=False)
    assert met.result == hj.RESULTS.simultaneous_guards
