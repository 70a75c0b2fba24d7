"""Half orbits of reversible systems: from a symmetric state, x = R x, to the next symmetric one, as a fixed point whose unknown
is held. The recipe of the how-to on families."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj

NAMES = ("q1", "q2", "p1", "p2")


def swing(t, x, amplitude):
    """H = (p1^2 + p2^2) / 2 + q1^2 / 2 + q2^2 + q1^2 q2 / 3, which is even in (p1, p2)."""
    q1, q2, p1, p2 = x[:4]
    return jnp.stack([p1, p2, -q1 - 2 * q1 * q2 / 3, -2 * q2 - q1**2 / 3])


def correct(t, x, amplitude):
    """To a state at rest; q2 there is the unknown, and p2 at the other end is zero."""
    start = x[4] + x[3]
    return jnp.stack([amplitude, start, 0 * start, 0 * start, start])


half = hj.HybridSystem(
    {"swing": hj.Mode(swing, NAMES, held=("start",))},
    (hj.Transition("swing", "swing", lambda t, x, amplitude: -x[2], correct),),
)
free = hj.HybridSystem({"swing": hj.Mode(swing, NAMES)}, ())


@pytest.mark.medium
def test_the_whole_orbit_and_its_multipliers_from_the_half():
    """D = R A^-1 R A, with the Jacobian A of the half between the sections p1 = 0."""
    amplitude = jnp.array(0.5)
    guess = jnp.array([0.5, 0.0, 0.0, 0.0, 0.0])
    orbit = hj.periodic_orbit(hj.ReturnMap(half, sequence=("swing",)), guess, amplitude)
    whole = hj.ReturnMap(free, section=hj.Section("swing", lambda t, x, amplitude: x[2]))
    stride = whole(orbit.x[:4], amplitude)
    assert_allclose(stride.x, orbit.x[:4], atol=1e-12)
    assert_allclose(stride.time, 2 * orbit.period, rtol=1e-12)
    on = np.ix_([0, 1, 3], [0, 1, 3])
    across = jax.jacfwd(lambda x: hj.flow_to_guard(half, "swing", 0.0, x, amplitude).x)(orbit.x)[on]
    reverse = np.diag([1.0, 1.0, -1.0])
    around = reverse @ np.linalg.solve(across, reverse @ across)
    # Entries of order one, two integrations at 1e-12 or so.
    assert_allclose(whole.jacobian(orbit.x[:4], amplitude)[on], around, atol=1e-10)
    values = np.linalg.eigvals(around)
    assert_allclose(np.min(np.abs(values - 1)), 0, atol=1e-10)
    assert_allclose(np.abs(values), 1, atol=1e-10)
