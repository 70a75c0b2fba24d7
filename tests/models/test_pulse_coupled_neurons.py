"""Pulse-coupled neurons: avalanches, synchrony, and the splay states of five and fifty."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import complex_of, splay
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import pulse_coupled_neurons as neurons

PARAMS = neurons.Params()


def test_who_fires_in_an_avalanche():
    """Five neurons, pulses of 0.02: the first lifts the second to 1, both lift the third, and the three do not lift the fourth.
    Those that fire are at 0, whatever pulses they receive."""
    x = jnp.array([0.97, 1.0, 0.985, 0.93, 0.2])
    after = neurons.fire(0.0, x, PARAMS, 1)
    assert_allclose(after, [0.0, 0.0, 0.0, 0.99, 0.26], rtol=0, atol=1e-15)
    alone = neurons.fire(0.0, x.at[2].set(0.979), PARAMS, 1)
    assert_allclose(alone, [0.99, 0.0, 0.999, 0.95, 0.22], rtol=0, atol=1e-15)
    jacobian = jax.jacrev(lambda x: neurons.fire(0.0, x, PARAMS, 1))(x)
    assert_allclose(jacobian, np.diag([0.0, 0, 0, 1, 1]), rtol=0, atol=0)


def test_inhibition_makes_no_avalanche():
    after = neurons.fire(0.0, jnp.array([0.999, 1.0, 0.5]), neurons.Params(coupling=-0.3), 1)
    assert_allclose(after, [0.899, 0.0, 0.4], rtol=0, atol=1e-15)


@pytest.fixture(scope="module")
def run():
    mode, x0 = neurons.start(PARAMS)
    return hj.simulate(neurons.system, x0, PARAMS, mode=mode, t1=60.0, max_jumps=130, integrator=ROLLED)


def test_all_end_in_synchrony(run):
    """Mirollo and Strogatz: neurons that have fired together stay together, their number never falls, and in the end there is one
    group, which fires with the period ln(I / (I - 1))."""
    assert run.result == hj.RESULTS.successful
    jumps = int(run.jumps)
    groups = [len(np.unique(np.asarray(x))) for x in run.x_starts[1 : jumps + 1]]
    assert groups[0] >= 9 and groups[-1] == 1 and all(after <= before for before, after in itertools.pairwise(groups))
    periods = np.diff(run.end_times[jumps - 5 : jumps])
    assert_allclose(periods, np.log(1.2 / 0.2), rtol=1e-11)
    times, who = neurons.spikes(run)
    assert len(times) > jumps and np.array_equal(np.sort(who[-10:]), np.arange(10)) and len(set(times[-10:])) == 1


@pytest.mark.medium
@pytest.mark.parametrize("count", [5, 50])
def test_multipliers_of_a_splay_state(count):
    """Reference: the exact characteristic polynomial. The monodromy matrix has one more multiplier, 1, along the flow. Fifty
    saltation matrices and flow Jacobians at a tolerance of 1e-12."""
    x0, case = splay(count)
    period = float(case["period_T"])
    run = hj.simulate(
        neurons.network(count), x0, PARAMS, mode="network", t1=period + 1e-9, max_jumps=count, integrator=ROLLED
    )
    assert run.indices[:count].tolist() == list(range(count))[::-1]
    assert_allclose(run.end_times[count - 1], period, rtol=0, atol=1e-11)
    # At the time of the last event, just after it.
    whole = hj.simulate(
        neurons.network(count), x0, PARAMS, mode="network", t1=period, max_jumps=count, integrator=ROLLED
    )
    found = np.linalg.eigvals(whole.fundamental_matrix())
    exact = np.append(complex_of(case["period_map_multipliers"]), 1.0)
    apart = np.abs(found[:, None] - exact)
    assert np.max(np.min(apart, axis=0)) < 2e-11 and np.max(np.min(apart, axis=1)) < 2e-11
