"""Single and multiple shooting, over several strides; the orbit's print and its samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case

import hyjax as hj
from hyjax._orbit.newton import newton
from hyjax.models import simplest_walker

METHODS = {"single": hj.SingleShooting(), "multiple": hj.MultipleShooting()}


def orbit(guess, slope, strides, method):
    params = simplest_walker.Params(slope)
    return hj.periodic_orbit(
        simplest_walker.system, guess, params, sequence=("swing",), strides=strides, method=method, throw=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_three_strides_are_one_stride_thrice(method):
    record = case("B_simplest_walker", "long_0.009")
    three = orbit(jnp.asarray(np.round(record["x0"], 3)), 0.009, 3, METHODS[method])
    assert three.nodes.shape == (3, 4) and three.guard_rates.shape == (3,)
    # Three times the tolerance of one stride.
    assert_allclose(three.nodes, np.tile(record["x0"], (3, 1)), rtol=0, atol=3e-14)
    assert_allclose(three.period, 3 * record["T"], rtol=0, atol=15e-14)
    exact = (record["eigenvalues"]["re"] + 1j * record["eigenvalues"]["im"]) ** 3
    # Cubing puts the pair's conjugates in the other order.
    assert_allclose(sorted(np.asarray(three.multipliers[:2]).imag), sorted(exact[:2].imag), rtol=0, atol=9e-13)
    assert_allclose(np.asarray(three.multipliers[:2]).real, exact[:2].real, rtol=0, atol=9e-13)


@pytest.mark.slow
def test_multiple_shooting_reaches_what_single_shooting_cannot():
    """Eight strides of the unstable gait: an error of the start grows by 4^8 = 66 000."""
    record = case("B_simplest_walker", "short_0.009")
    guess = jnp.asarray(np.round(record["x0"], 4))
    alone = orbit(guess, 0.009, 8, hj.SingleShooting())
    assert alone.result != hj.RESULTS.successful and np.all(np.isnan(alone.x))
    eight = orbit(jnp.tile(guess, (8, 1)), 0.009, 8, hj.MultipleShooting())
    assert eight.result == hj.RESULTS.successful
    assert_allclose(eight.nodes, np.tile(record["x0"], (8, 1)), rtol=0, atol=2e-14)
    assert_allclose(eight.multipliers[0], record["eigenvalues"]["re"][0] ** 8, rtol=8 * 3e-13)


@pytest.mark.slow
def test_derivatives_from_node_to_node():
    """Over three strides the period's derivative is three times that over one; the state's is the same."""

    def numbers(slope, strides):
        guess = jnp.array([0.2, -0.2, 0.4, -0.016])
        found = orbit(guess, slope, strides, hj.SingleShooting())
        return jnp.append(found.x, found.period / strides)

    one, three = (jax.jit(jax.jacrev(lambda slope, m=m: numbers(slope, m)))(0.009) for m in (1, 3))
    # Linear systems with condition numbers of some hundreds.
    assert_allclose(one, three, rtol=1e-12)


def test_samples_lie_on_the_orbit(walker):
    gait = walker["long_0.009"]
    (arc,) = gait.sample(33)
    assert arc.mode == "swing" and arc.x.shape == (33, 4)
    assert_allclose(arc.x[0], gait.x, rtol=0, atol=0)
    assert_allclose(arc.t[-1], gait.period, rtol=1e-15)
    # The energy of the stance leg, a pendulum upside down, is conserved: theta'^2 / 2 + cos(theta - slope).
    energy = arc.x[:, 1] ** 2 / 2 + jnp.cos(arc.x[:, 0] - 0.009)
    assert_allclose(energy, energy[0], rtol=0, atol=1e-14)
    assert_allclose(simplest_walker.heel_strike(arc.t[-1], arc.x[-1], gait.params), gait.x, rtol=0, atol=1e-14)


def test_print(walker):
    gait = walker["long_0.009"]
    text = str(gait)
    for part in ("theta_rate", "+0.2003109005442", "3.8824637528513", "multiplier 4", "stable", "successful"):
        assert part in text
    batch = jax.tree.map(lambda a, b: jnp.stack([a, b]), walker["long_0.009"], walker["short_0.009"])
    assert "2 PeriodicOrbits" in str(batch) and len(str(batch).splitlines()) == 4
    seen = []
    jax.eval_shape(lambda orbit: seen.append(str(orbit)), gait)
    assert "traced" in seen[0]


def test_guess_for_each_stride_needs_multiple_shooting():
    guesses = jnp.tile(jnp.array([0.2, -0.2, 0.4, -0.016]), (2, 1))
    with pytest.raises(ValueError, match="MultipleShooting"):
        orbit(guesses, 0.009, 2, hj.SingleShooting())
    with pytest.raises(ValueError, match="strides=2"):
        orbit(guesses, 0.009, 3, hj.MultipleShooting())


def test_newton_starts_at_zero_and_ends_there():
    """Neither has a size of its own. The equation's rounding, 1e-17, is far above that of its root."""

    def solve(y0, root):
        def evaluate(y):
            r = jnp.stack([(y[0] - root) * (2 + y[1]), y[1] + y[0] ** 2 - root**2]) + 1e-17 * jnp.sin(1e20 * y)
            slope = jnp.array([[2 + y[1], y[0] - root], [2 * y[0], 1.0]])
            return r, slope, None

        return newton(evaluate, y0, max_iterations=30, accept=1e-13)

    found = solve(jnp.zeros(2), 0.5)
    assert found.converged
    assert_allclose(found.y, [0.5, 0], rtol=0, atol=1e-16)
    found = solve(jnp.array([0.1, 0.2]), 0.0)
    assert found.converged
    assert_allclose(found.y, [0, 0], rtol=0, atol=1e-16)
