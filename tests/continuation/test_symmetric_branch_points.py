"""Branch points at which several multipliers are 1 at once, in closed form: equal maps beside each other, once a year."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj


def equal_maps(count: int, each) -> hj.PeriodicOrbit:
    """The orbit at zero of `count` maps x -> each(x, r), at r = 0.8."""
    names = tuple(f"x{k}" for k in range(count))
    year = hj.Mode(lambda t, x, r: jnp.append(0 * x[:-1], jnp.ones_like(x[0])), (*names, "clock"))
    ends = hj.Transition(
        "year", "year", lambda t, x, r: 1 - x[-1], lambda t, x, r: jnp.append(each(x[:-1], r), 0 * x[0])
    )
    step = hj.ReturnMap(hj.HybridSystem({"year": year}, (ends,)), sequence=("year",))
    return hj.periodic_orbit(step, jnp.zeros(count + 1), jnp.array(0.8))


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.medium), pytest.param(3, marks=pytest.mark.slow)])
def test_pitchforks_of_equal_maps(count):
    """x -> r x - x^3: at r = 1 every combination of 0 and +-sqrt(r - 1) leaves, (3^n - 1) / 2 branches. Of these the ones without
    a zero are stable, as 2 (1 - r) + 1 < 1 where a coordinate has moved, and r > 1 where not."""
    branch = hj.continuation(equal_maps(count, lambda x, r: r * x - x**3), where=lambda r: r, stop=1.2)
    (point,) = branch.special_points
    # All as one map to a few roundings.
    assert point.kind == "branch-point" and abs(point.value - 1) < 1e-12 and len(point.kernel) == count + 1
    assert branch.unresolved == ()
    found = set()
    for k in range(len(point.daughters)):
        daughter = hj.switch_branch(point, stop=1.1, daughter=k)
        x = np.asarray(daughter.x[-1][:-1])
        signs = np.rint(x / np.sqrt(0.1)).astype(int)
        assert_allclose(x, signs * np.sqrt(0.1), atol=1e-12)
        assert bool(daughter.stable[-1]) == bool(np.all(signs != 0))
        found.add(tuple((signs * signs[np.flatnonzero(signs)[0]]).tolist()))
    assert len(found) == len(point.daughters) == (3**count - 1) // 2


@pytest.mark.medium
def test_crossings_of_equal_maps():
    """x -> r x - x^2: x = r - 1 in one coordinate or in both, three branches; on either side of the point."""
    branch = hj.continuation(equal_maps(2, lambda x, r: r * x - x**2), where=lambda r: r, stop=1.2)
    (point,) = branch.special_points
    assert len(point.daughters) == 3
    found = set()
    for k in range(3):
        daughter = hj.switch_branch(point, stop=(0.9, 1.1), daughter=k)
        assert_allclose([min(daughter.values), max(daughter.values)], [0.9, 1.1], rtol=1e-12)
        moved = np.rint(daughter.x[np.argmax(daughter.values)][:-1] / 0.1).astype(int)
        assert_allclose(daughter.x[:, :-1], moved * (daughter.values[:, None] - 1), atol=1e-12)
        found.add(tuple(moved.tolist()))
    assert found == {(0, 1), (1, 0), (1, 1)}
    with pytest.raises(ValueError, match="daughter=3 is not one of the 3"):
        hj.switch_branch(point, stop=1.1, daughter=3)
