"""Orbits without a guess: all of them, once each, the same for the same key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import case

import hyjax as hj
from hyjax.models import bouncing_ball, compass_gait, simplest_walker


def gaits(model, params, **options) -> hj.PeriodicOrbit:
    return hj.find_orbits(model.system, params, sequence=model.sequence, region=model.region(params), **options)


@pytest.mark.parametrize("slope", [0.001, 0.004, 0.009, 0.012, 0.015])
def test_both_gaits_of_the_simplest_walker(slope):
    found = gaits(simplest_walker, simplest_walker.Params(slope))
    # Garcia et al. (1998): two gaits, of periods near 3.8 and 3.1, at every slope; both fixed points of the stride.
    assert len(found) == 2
    assert_allclose(found.period, [3.87, 3.10], atol=0.06)
    for i in range(2):
        again = hj.stride(simplest_walker.system, found[i].x, found[i].params, sequence=("swing",))
        # The search and the stride add up a step's stages in different order: some units in the last place.
        assert_allclose(again.x, found[i].x, rtol=0, atol=2e-14)


def test_digits_of_the_search():
    found = gaits(simplest_walker, simplest_walker.Params(0.009))
    for orbit, name in zip((found[0], found[1]), ("long_0.009", "short_0.009"), strict=True):
        record = case("B_simplest_walker", name)
        # As demanded of the command line: 1e-14, 5e-14, 3e-13 relative.
        assert_allclose(orbit.x, record["x0"], rtol=0, atol=1e-14)
        assert_allclose(orbit.period, record["T"], rtol=0, atol=5e-14)
        exact = record["eigenvalues"]["re"] + 1j * record["eigenvalues"]["im"]
        assert_allclose(orbit.multipliers[:2], exact[:2], rtol=3e-13, atol=3e-13)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4])
def test_compass_gait(degrees):
    found = gaits(compass_gait, compass_gait.Params(slope=np.deg2rad(degrees)))
    # A stable gait at each of these slopes (Goswami et al. 1998), with an unstable companion of shorter period.
    assert_array_equal(found.stable, [True, False])


def test_same_key_same_orbits():
    params = simplest_walker.Params(0.009)
    one, two, other = (gaits(simplest_walker, params, key=jax.random.key(k)) for k in (3, 3, 4))
    assert_array_equal(one.x, two.x)
    # Another key starts elsewhere and ends at the same orbits, up to rounding.
    assert_allclose(one.x, other.x, rtol=0, atol=2e-14)


def test_no_isolated_orbit():
    for restitution in (0.8, 1.0):
        params = bouncing_ball.Params(restitution=restitution)
        assert len(gaits(bouncing_ball, params)) == 0


@pytest.mark.slow
def test_orbits_of_two_strides_are_not_those_of_one():
    assert len(gaits(simplest_walker, simplest_walker.Params(0.009), strides=2)) == 0
    # Just beyond the period doubling at 0.01506 the walker limps, in a stable way.
    limping = gaits(simplest_walker, simplest_walker.Params(0.0155), strides=2)
    assert len(limping) == 1 and limping[0].stable
    first, second = np.asarray(limping[0].nodes)
    assert np.abs(first - second).max() > 1e-3
    back = hj.stride(simplest_walker.system, jnp.asarray(second), limping[0].params, sequence=("swing",))
    assert_allclose(back.x, first, rtol=0, atol=2e-14)


def test_bad_region():
    params = simplest_walker.Params(0.009)
    low, high = simplest_walker.region(params)
    with pytest.raises(ValueError, match=r"region: low .* must not exceed high"):
        hj.find_orbits(simplest_walker.system, params, sequence=("swing",), region=(high, low))
    with pytest.raises(ValueError, match="starts=0"):
        hj.find_orbits(simplest_walker.system, params, sequence=("swing",), region=(low, high), starts=0)


def test_region_without_width():
    """A coordinate that is zero but for rounding, in a region where it is zero."""

    def jump(t, x, params):
        return jnp.stack([0.5 * x[0] + params, 1e-20 * x[0], 0 * x[2]])

    names = ("x", "rest", "clock")
    field = lambda t, x, params: jnp.zeros(3, x.dtype).at[2].set(1)
    way = hj.Transition("run", "run", lambda t, x, params: 1 - x[2], jump)
    system = hj.HybridSystem({"run": hj.Mode(field, names)}, (way,))
    region = jnp.array([0.1, 0.0, 0.0]), jnp.array([3.0, 0.0, 0.0])
    found = hj.find_orbits(system, jnp.array(0.75), sequence=("run",), region=region, starts=8)
    assert len(found) == 1
    assert_allclose(found.x[0], [1.5, 1.5e-20, 0], rtol=1e-14)
