"""Walking on springy legs: the gait at 820 J against SciPy's integration of the same equations in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy_arcs import arc, multipliers_of

import hyjax as hj
from hyjax.models import geyer_walker as walker

pytestmark = pytest.mark.medium
PARAMS = walker.Params()
# 820 J over m g l.
ENERGY = 820 / (80 * 9.81)


def pushed(feet):
    """The mass on springs from feet on the ground."""
    k = float(PARAMS.stiffness)

    def rate(t, x):
        legs = [(x[0] - foot, x[1]) for foot in feet]
        forces = sum(k * (1 / np.hypot(*leg) - 1) * np.array(leg) for leg in legs)
        return np.concatenate([x[2:], forces - [0, 1]])

    return rate


def step(x):
    """`(time, state)` from the vertical leg to the next."""
    angle = float(PARAMS.attack_angle)
    t, x = arc(pushed([0.0]), 0.0, x, lambda t, x: x[1] - np.sin(angle))
    reach = x[0] + np.cos(angle)
    t, x = arc(pushed([0.0, reach]), t, x, lambda t, x: 1 - np.hypot(x[0], x[1]))
    return arc(pushed([0.0]), t, x - [reach, 0, 0, 0], lambda t, x: -x[0])


@pytest.fixture(scope="module")
def walk():
    return hj.periodic_orbit(walker.step, walker.guess(PARAMS), PARAMS, conserved=(walker.energy, ENERGY))


def test_the_walk_at_820_joule(walk):
    t, x = step(np.asarray(walk.x[:4]))
    # Two integrations at 1e-13, of a step that contracts.
    assert_allclose(x, walk.x[:4], atol=2e-12)
    assert_allclose(2 * t, walk.period, rtol=1e-12)
    assert_allclose(walk.x[3], 0, atol=1e-12)  # symmetric
    ends = [np.asarray(each)[0] for each in walk.arc_ends]
    assert_allclose([walker.energy(0.0, each, PARAMS) for each in ends], ENERGY, rtol=1e-13)
    # Central differences of one step, over height and both rates: the family's 1, and half of what a stride multiplies.
    values = multipliers_of(lambda u: step(np.append(0.0, u))[1][1:], np.asarray(walk.x[1:4]), 1e-5)
    assert_allclose(values[0], 1, atol=1e-7)
    assert_allclose(np.sort_complex(values[1:] ** 2), np.sort_complex(np.asarray(walk.multipliers[:2])), atol=1e-7)
    assert walk.stable


def test_its_legs_walk(walk):
    feet = walk.footfalls()
    assert feet.legs == ("left", "right") and feet.name == "walk"
    assert_allclose(feet.phases, [0, 0.5], atol=1e-12)
    # A leg stands during its step and both double supports.
    swing = walk.period / 2 - walk.jump_times[0, 1] + walk.jump_times[0, 0]
    assert_allclose(feet.duty_factors, 1 - swing / walk.period, rtol=1e-12)
    # The middle of double support, by symmetry: both legs push alike, and against the fall.
    reach = walk.arc_ends[1][0, 4]
    middle = jnp.array([reach / 2, 0.93, 0.4, 0.0, reach, 1.0, 2.0])
    left, right = walker.forces("double", middle, PARAMS)
    assert_allclose(left, right, rtol=1e-14)
    assert walker.forces("fall", walk.x, PARAMS)[1] == 0


def test_its_family(walk):
    """Walks of more energy take less time, and these are stable."""
    family = hj.continuation(walk, stop=1.06, method=hj.PseudoArclength(step=0.05, max_step=0.5))
    assert family.result == hj.RESULTS.successful and np.all(np.diff(family.periods) < 0) and np.all(family.stable)
    _, x = step(family.x[-1, :4])
    assert_allclose(x, family.x[-1, :4], atol=2e-12)


def test_parameters_out_of_range():
    with pytest.raises(ValueError, match=r"attack_angle=2\.0 must lie between 0 and pi/2"):
        walker.Params(attack_angle=2.0)
