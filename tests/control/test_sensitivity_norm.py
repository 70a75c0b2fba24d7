"""The gait sensitivity norm against closed forms and against the strides of a disturbed gait."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import CLOCK, logistic, map_of

import hyjax as hj
from hyjax.models import simplest_walker

MAP = map_of(logistic)


def norm_of_map(r, indicator):
    orbit = hj.periodic_orbit(
        hj.ReturnMap(MAP, sequence=("m",), integrator=CLOCK), jnp.stack([1 - 1 / r, 0 * r]), {"r": r}, throw=False
    )
    return hj.control.sensitivity_norm(orbit, noise=lambda p: p["r"], indicator=indicator)


@pytest.mark.medium
def test_norm_of_a_map_in_closed_form():
    """Of x -> r x (1 - x) with noise in r: A = 2 - r, B = (1 - 1/r)/r, and the indicator is the next x: C = A, D = B."""

    def exact(r):
        return (1 - 1 / r) / r / jnp.sqrt(1 - (2 - r) ** 2)

    r = jnp.array([1.5, 2.0, 2.8, 3.2, 3 - 1e-12])
    both = lambda r: (norm_of_map(r, lambda stride: stride.x[0]),) * 2
    slope, found = jax.jit(jax.vmap(jax.jacfwd(both, has_aux=True)))(r)
    assert_allclose(found[:3], exact(r[:3]), rtol=1e-12)
    assert_allclose(slope[:3], jax.vmap(jax.grad(exact))(r[:3]), rtol=1e-10, atol=1e-14)
    # One fixed point is unstable, and the multiplier of the last is on the unit circle up to rounding.
    assert np.all(np.isinf(found[3:]))


@pytest.mark.medium
def test_orbits_without_a_norm():
    orbit = hj.periodic_orbit(
        hj.ReturnMap(MAP, sequence=("m",), integrator=CLOCK), jnp.array([0.6, 0.0]), {"r": jnp.array(2.5)}
    )
    lost = eqx.tree_at(lambda orbit: orbit.result, orbit, hj.RESULTS.orbit_not_converged)
    assert np.isnan(hj.control.sensitivity_norm(lost, noise=lambda p: p["r"]))
    with pytest.raises(ValueError, match="this is a batch of 1 orbits"):
        hj.control.sensitivity_norm(jax.tree.map(lambda leaf: leaf[None], orbit), noise=lambda p: p["r"])


@pytest.mark.medium
def test_norm_of_the_walker_against_its_strides(walker):
    """One stride on another slope, then forty on the first: the root of the sum of squares of the strides' deviations."""
    orbit = walker["long_0.009"]
    indicator = lambda stride: jnp.stack(
        [stride.time, stride.x[2]]
    )  # duration, and step length but for rounding of the sine

    @jax.jit
    def strides(e):
        def once(x, k):
            params = simplest_walker.Params(orbit.params.slope + jnp.where(k == 0, e, 0))
            through = simplest_walker.step(x, params)
            return through.x, indicator(through)

        return jax.lax.scan(once, orbit.x, jnp.arange(41))[1]

    def central(h):
        return np.asarray(strides(h) - strides(-h)) / (2 * h)

    response = (4 * central(1e-5) - central(2e-5)) / 3
    found = hj.control.sensitivity_norm(orbit, noise=lambda p: p.slope, indicator=indicator)
    # Central differences err by 3e-6; extrapolated, by the square of this times a factor, and by rounding over h, 1e-8.
    assert_allclose(found, np.sqrt(np.sum(response**2)), rtol=1e-7)
