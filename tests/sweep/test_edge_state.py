"""Edge states: of maps in closed form, and the walker's short gait."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting import compiled
from numpy.testing import assert_allclose
from systems import ROLLED
from test_continuation import mapping

import hyjax as hj
from hyjax.models import simplest_walker as walker

# x -> x + x (1 - x^2) / 2 has the attractors 1 and -1 and the edge 0; y follows x.
TWO_WELLS = mapping(lambda x, p: jnp.stack([x[0] + x[0] * (1 - x[0] ** 2) / 2, x[1] / 2 + p["tilt"] * x[0] ** 2]), 2)
# The border of the basin of 0 is an orbit of two strides, from -1 / sqrt(gain) to 1 / sqrt(gain) and back.
CUBED = mapping(lambda x, p: -x * p["gain"] * x**2, 1)


@pytest.mark.medium
def test_between_two_wells(caplog):
    params, step = {"tilt": jnp.array(0.3)}, hj.ReturnMap(TWO_WELLS, sequence=("run",), integrator=ROLLED)
    right, left = (hj.periodic_orbit(step, jnp.array([sign, 0.6, 0.0]), params) for sign in (1.0, -1.0))
    edge = hj.edge_state(step, params, between=(right, left))
    assert_allclose(edge.x, 0, atol=1e-12)
    assert_allclose(edge.multipliers[0], 1.5, rtol=1e-12)
    again = lambda: hj.edge_state(step, params, between=(left, right), closeness=0.02, max_strides=80)
    assert compiled(caplog, again) == []
    # From a state, whatever it leads to.
    other = hj.edge_state(step, params, between=(right, jnp.array([-0.2, 5.0, 0.0])))
    assert_allclose(other.x, edge.x, atol=1e-12)
    with pytest.raises(ValueError, match="both of between lead to the first orbit"):
        hj.edge_state(step, params, between=(right, jnp.array([0.2, 0.0, 0.0])))
    with pytest.raises(ValueError, match=r"must be a stable hj\.PeriodicOrbit"):
        hj.edge_state(step, params, between=(jnp.zeros(3), left))
    saddle = hj.periodic_orbit(step, jnp.array([0.01, 0.0, 0.0]), params)
    with pytest.raises(ValueError, match=r"must be stable; its spectral radius is 1\.5\."):
        hj.edge_state(step, params, between=(saddle, left))
    with pytest.raises(ValueError, match="between must be finite"):
        hj.edge_state(step, params, between=(right, jnp.array([jnp.nan, 0.0, 0.0])))


@pytest.mark.medium
def test_an_edge_of_two_strides():
    params, step = {"gain": jnp.array(4.0)}, hj.ReturnMap(CUBED, sequence=("run",), integrator=ROLLED)
    rest = hj.periodic_orbit(step, jnp.array([0.01, 0.0]), params)
    edge = hj.edge_state(step, params, between=(rest, jnp.array([0.9, 0.0])))
    assert edge.strides == 2
    assert_allclose(np.sort(edge.nodes[:, 0]), [-0.5, 0.5], atol=1e-12)
    lost = hj.edge_state(step, params, between=(rest, jnp.array([0.9, 0.0])), rounds=0, throw=False)
    assert str(lost.result) == "orbit_not_converged" and np.all(np.isnan(lost.x))


# At the edge x = 0 of two wells y follows the logistic map of the rate p; at the wells it goes to 1 / 2.
LOGISTIC_EDGE = mapping(
    lambda x, p: jnp.stack([x[0] + x[0] * (1 - x[0] ** 2) / 2, (2 + (p - 2) * (1 - x[0] ** 2)) * x[1] * (1 - x[1])]), 2
)


@pytest.mark.medium
def test_an_edge_that_is_a_cycle_or_chaotic():
    step = hj.ReturnMap(LOGISTIC_EDGE, sequence=("run",), integrator=ROLLED)

    def edge(rate):
        right = hj.periodic_orbit(step, jnp.array([1.0, 0.5, 0.0]), jnp.array(rate))
        left = jnp.array([-0.9, 0.45, 0.0])
        return hj.edge_state(step, jnp.array(rate), between=(right, left), throw=False)

    cycle = edge(3.4)
    assert_allclose(np.sort(cycle.nodes[:, 1]), (4.4 + np.array([-1, 1]) * np.sqrt(0.4 * 4.4)) / 6.8, rtol=1e-12)
    assert_allclose(cycle.multipliers.real, [2.25, 4 + 2 * 3.4 - 3.4**2, 0], atol=1e-12)
    # Of eight strides, and chaotic.
    assert [str(edge(rate).result) for rate in (3.55, 3.9)] == ["orbit_not_converged"] * 2


@pytest.mark.slow
def test_the_walkers_short_gait_is_between_its_long_gait_and_a_fall():
    """In quadruple precision, by a solver of its own."""
    params = walker.Params()
    long = hj.periodic_orbit(walker.step, walker.guess(params), params)
    fallen = walker.after_strike(params, jnp.array(0.19), jnp.array(-0.30))
    edge = hj.edge_state(walker.step, params, between=(long, fallen), max_strides=60)
    # The integrator's tolerance is 1e-10.
    assert_allclose(edge.x[:2], [0.1939373698101818085, -0.2038669274420069268], atol=1e-10)
    assert_allclose(edge.multipliers[:2].real, [4.0038643589297075, 0.45958958979767164], atol=1e-9)


# Wells at -1e-4 and 1e-4, beside a coordinate that goes to 1.
NEAR_WELLS = mapping(lambda x, p: jnp.stack([x[0] + x[0] * (1 - (1e4 * x[0]) ** 2) / 2, x[1] / 2 + 0.5]), 2)


@pytest.mark.medium
def test_wells_nearer_to_each_other_than_closeness():
    step = hj.ReturnMap(NEAR_WELLS, sequence=("run",), integrator=ROLLED)
    both = [hj.periodic_orbit(step, jnp.array([place, 1.0, 0.0]), {}) for place in (1e-4, -1e-4)]
    edge = hj.edge_state(step, {}, between=tuple(both))
    assert_allclose(edge.x, [0, 1, 0], atol=1e-12)
    orbits = jax.tree.map(lambda *each: jnp.stack(each), *both)
    starts = 1e-4 * np.array([-1.7, -0.3, -0.02, 0.02, 0.3, 1.7])
    found = hj.basin(step, {}, axes={"x": starts, "y": np.ones(1)}, initial=_beside, orbits=orbits, progress=False)
    assert found.outcome.values.ravel().tolist() == [1, 1, 1, 0, 0, 0]


def _beside(params, x, y):
    return jnp.stack([x, y, 0 * x])
