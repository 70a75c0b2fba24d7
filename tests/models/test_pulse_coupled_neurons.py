"""Pulse-coupled neurons: avalanches, synchrony, and the splay states of five and fifty."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import complex_of, EXACT, splay
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import pulse_coupled_neurons as neurons

# No function of the model is warned of as one that jumps.
pytestmark = pytest.mark.filterwarnings("error::UserWarning")
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


@pytest.mark.medium
def test_a_pair_with_refractory_times():
    """Reference `refractory_pair`: two neurons in antiphase, closed form. The pulse of one is 0.1, half of the coupling 0.2; the
    multiplier of a period is the square of that from a firing to the next."""
    case, params = EXACT["refractory_pair_I1.2_eps0.1_tr0.25"], neurons.Params(coupling=0.2)
    half, other = float(case["half_period"]), float(case["other_state_before_pulse"])
    # Just after the first has fired.
    x0 = jnp.array([-0.25, other + 0.1, 1.0, 0.0])
    run = hj.simulate(
        neurons.network(2, refractory=True), x0, params, mode="network", t1=2 * half, max_jumps=8, integrator=ROLLED
    )
    assert run.result == hj.RESULTS.successful
    times, who = neurons.spikes(run)
    assert who.tolist()[:1] == [1] and int(run.jumps) in (3, 4)
    assert_allclose(times[0], half, rtol=0, atol=1e-12)
    assert_allclose(run.end_times[0], 0.25, rtol=1e-13)
    multipliers = np.linalg.eigvals(
        hj.simulate(
            neurons.network(2, refractory=True), x0, params, mode="network", t1=2 * half + 1e-9, max_jumps=8,
            integrator=ROLLED,
        ).fundamental_matrix()
    )  # fmt: skip
    found = np.sort(np.abs(multipliers))
    # One along the flow; those of the flags are zero. Over 1e-9 of time the voltages change by as much.
    assert_allclose(found[2:], [1, float(case["period_multiplier"])], rtol=0, atol=1e-8)
    assert_allclose(found[:2], 0, rtol=0, atol=1e-12)


@pytest.mark.medium
def test_neurons_that_rest_ignore_pulses():
    """Three neurons, the second rests for another 0.1: the pulse of the first does not touch it, and lifts the third. Two whose
    rest ends at one time end it together."""
    params = neurons.Params(coupling=0.3)
    after = neurons.fire_or_end(0.0, jnp.array([1.0, -0.1, 0.5, 0.0, 1.0, 0.0]), params, 0)
    assert_allclose(after, [-0.25, -0.1, 0.6, 1, 1, 0], rtol=0, atol=1e-15)
    together = neurons.fire_or_end(0.0, jnp.array([0.0, 0.0, 0.5, 1.0, 1.0, 0.0]), params, 0)
    assert_allclose(together, [0, 0, 0.5, 0, 0, 0], rtol=0, atol=0)
    mode, x0 = "network", jnp.concatenate([neurons.start(params)[1], jnp.zeros(10)])
    run = hj.simulate(
        neurons.network(10, refractory=True), x0, params, mode=mode, t1=20.0, max_jumps=200, integrator=ROLLED
    )
    assert run.result == hj.RESULTS.successful
    times, who = neurons.spikes(run)
    # In the end all fire at one time, each once.
    assert np.array_equal(np.sort(who[-10:]), np.arange(10)) and len(set(times[-10:])) == 1
