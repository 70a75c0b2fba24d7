"""Newton's method by stages of tolerance: the orbits of searches with the full tolerance throughout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import COARSE, DampedNewton, Evaluation, find_root_by_stages
from hyjax.models import simplest_walker as walker

SLOPES = jnp.array([0.004, 0.009, 0.014])


@pytest.fixture(scope="module")
def gaits():
    """`(coarse, slopes) -> orbits`, jitted for each `coarse`."""

    def one(slope, coarse):
        params = walker.Params(slope)
        method = hj.SingleShooting(coarse=coarse)
        return hj.periodic_orbit(walker.step, walker.guess(params), params, method=method, throw=False)

    return {
        coarse: jax.jit(jax.vmap(lambda slope, coarse=coarse: one(slope, coarse))) for coarse in ((), COARSE, (1e-1,))
    }


@pytest.mark.medium
def test_stages_find_the_orbits_of_full_tolerance(gaits):
    exact, staged = gaits[()](SLOPES), gaits[COARSE](SLOPES)
    assert np.all(np.asarray(staged.result == hj.RESULTS.successful))
    # Both end at a residual of some roundings; the larger multiplier's sensitivity to the state is some hundreds.
    assert_allclose(staged.x, exact.x, rtol=0, atol=1e-14)
    assert_allclose(staged.multipliers, exact.multipliers, rtol=0, atol=1e-12)
    assert np.all(staged.residual <= 1e-14)
    # Most iterations are coarse; an iteration of the coarse stages does not count less.
    assert np.all(staged.iterations >= exact.iterations - 1) and np.all(staged.iterations <= exact.iterations + 4)


@pytest.mark.medium
def test_lanes_do_not_depend_on_their_neighbours(gaits):
    """A slope without a gait, at which every stage fails, changes no bit of the lanes beside it."""
    alone = gaits[COARSE](SLOPES)
    beside = gaits[COARSE](jnp.array([0.004, -0.3, 0.014]))
    assert_array_equal(np.asarray(beside.result == hj.RESULTS.successful), [True, False, True])
    for field in ("x", "period", "multipliers", "iterations"):
        assert_array_equal(np.asarray(getattr(beside, field))[[0, 2]], np.asarray(getattr(alone, field))[[0, 2]])


@pytest.mark.medium
def test_a_stage_that_misleads_is_repeated_with_full_tolerance(gaits):
    """With a tolerance of a tenth of the state the strides are wrong, and lead nowhere or to a distant start."""
    exact, misled = gaits[()](SLOPES), gaits[(1e-1,)](SLOPES)
    assert np.all(np.asarray(misled.result == hj.RESULTS.successful))
    assert_allclose(misled.x, exact.x, rtol=0, atol=1e-14)


@pytest.mark.medium
def test_a_search_is_repeated_from_its_start():
    """The coarse equation leads to 1000, where strides of full tolerance fail; those lead from the start to 1.5."""

    def equation(integrator):
        coarse = integrator.tolerances(jnp.float64)[0] > 1e-12

        def evaluate(y, first):
            r = jnp.where(coarse, y - 1000, jnp.where(y < 100, y - 1.5, jnp.nan))
            return Evaluation(r, jnp.eye(1), y, coarse)

        return evaluate

    root = find_root_by_stages(
        equation, jnp.ones(1), hj.Integrator(), COARSE,
        max_iterations=30, accept=1e-10, root_finder=DampedNewton(), size=jnp.array(1.0), settle=True,
    )  # fmt: skip
    assert root.converged and not root.aux
    assert_allclose(root.y, 1.5, rtol=1e-15)


@pytest.mark.parametrize("coarse", [(1e-6, 2.0), (0.0,), (-1e-6,)])
def test_tolerances_that_cannot_be_used(coarse):
    for method in (hj.SingleShooting, hj.MultipleShooting):
        with pytest.raises(ValueError, match="must be a tuple of relative tolerances between 0 and 1"):
            method(coarse=coarse)
