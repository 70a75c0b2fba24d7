"""Branches that end where an arc begins on the surface of a guard: the return map is discontinuous there."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj

# A clock x runs from the parameter `start` to 2, and y decays meanwhile; the jump adds 1 to y. So T = 2 - start, and before the
# jump y = e^-T / (1 - e^-T).
CORNER = 0.4
flow = lambda t, x, p: jnp.stack([jnp.ones(()), -x[1]])
jump = lambda t, x, p: jnp.stack([p["start"] + 0.0 * x[0], x[1] + 1])
# It falls through zero where the clock is at the corner, rises at 1 and falls at 2.
cubic = lambda t, x, p: -(x[0] - CORNER) * (x[0] - 1) * (x[0] - 2)
SYSTEMS = {
    # The guard that ends the arc fires at once if the arc begins below the corner.
    "taken": (hj.Transition("run", "run", guard=cubic, reset=jump),),
    # So does the guard of another transition.
    "passed": (
        hj.Transition("run", "run", guard=lambda t, x, p: 2 - x[0], reset=jump),
        hj.Transition("run", "rest", guard=lambda t, x, p: x[1] * (CORNER - x[0]), reset=jump),
    ),
}


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["taken", pytest.param("passed", marks=pytest.mark.slow)])
def test_a_branch_ends_at_a_corner(kind):
    system = hj.HybridSystem(
        {"run": hj.Mode(flow, ("clock", "y")), "rest": hj.Mode(flow, ("clock", "y"))}, SYSTEMS[kind]
    )
    start = 0.7
    decay = np.exp(-(2 - start))
    orbit = hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("run",)), jnp.array([start, 1 / (1 - decay)]), {"start": jnp.asarray(start)}
    )
    branch = hj.continuation(orbit, where=lambda p: p["start"], stop=0.1, throw=False)
    (corner,) = branch.special_points
    assert corner.kind == "corner" and corner.touch.at_start and corner.touch.taken == (kind == "taken")
    # Root of two equations of size 1, solved until rounding.
    assert_allclose(corner.value, CORNER, rtol=0, atol=1e-13)
    assert_allclose(corner.orbit.period, 2 - CORNER, rtol=1e-13)
    assert_allclose(corner.orbit.multipliers[0].real, np.exp(CORNER - 2), rtol=1e-12)
    assert "corner: the branch ends at 0.4, where an arc begins" in str(branch)
    if kind == "taken":
        # Fired at once, y is what it was, and 1 more: in place of the decay before that.
        form = corner.normal_form
        assert form.exponent == 0 and not form.persists and form.criticality.startswith("the return map jumps")
        y = float(corner.orbit.x[1])
        assert_allclose(form.beta[1], y - y * np.exp(CORNER - 2), rtol=1e-11)
    else:
        with pytest.raises(ValueError, match="the mode 'rest' after the corner does not lead back"):
            _ = corner.normal_form
    # The branch comes as near as its shortest step.
    assert 0 < branch.values.min() - CORNER < 1e-4
