"""The orbit of one evaluation belongs to the gait of the last, however near another gait is."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_continuation import mapping

import hyjax as hj
from hyjax._testing import joined, LEAST, OrbitProgram, SingleShooting, unknowns_of

# Half the distance of two stable fixed points, of size 1, on either side of an unstable one.
HALF = 0.004


def three_points(x, p):
    """z -> z - k z (z^2 - h^2) with x = 1 + p + z and k h^2 = 1/4: fixed points at z = -h, 0, h with the slopes 1/2, 5/4, 1/2."""
    z = x - 1 - p["shift"]
    return x - z * (z**2 - HALF**2) / (4 * HALF**2)


@pytest.mark.slow
def test_a_stable_gait_is_not_taken_for_its_neighbour():
    rolled, params, system = hj.Integrator(unroll=False), {"shift": jnp.array(0.0)}, mapping(three_points)
    unknowns = unknowns_of(lambda p: p["shift"], params, None, jnp.float64)
    gait = OrbitProgram(
        lambda orbit, params: orbit.period,
        (),
        unknowns,
        SingleShooting(),
        rolled,
        system,
        ("run",),
        1,
        second_order=False,
        rows=(),
    )
    evaluate = eqx.filter_jit(gait.__call__)
    starts = jnp.array([[1 - HALF, 0.0], [1 + HALF, 0.0]])
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("run",), integrator=rolled), starts[0], params)
    known = gait.expanded(orbit)
    u = known.u
    first, second = (
        evaluate(u, dataclasses.replace(known, start=x, orbit=dataclasses.replace(known.orbit, x=x))) for x in starts
    )
    assert first.sound and second.sound
    one, other = first.carry, second.carry
    # Both are stable, so the sign of det(I - A) is the same, and they are nearer than the least distance that is always allowed.
    assert one.side == other.side == 1 and np.max(np.abs(one.start - other.start)) < LEAST
    # A guess of the other gait, as if the slope led there, finds the other gait: its step is not taken.
    for step in (1e-5, 1e-4, 1e-3):
        moved = u + step
        away = evaluate(moved, dataclasses.replace(one, slope=((other.guess(moved) - one.start) / step)[:, None]))
        assert not away.sound and away.result == hj.RESULTS.far_from_guess
        along = evaluate(moved, one)
        assert along.sound and joined(one, along.carry) and not joined(other, along.carry)


def test_the_ends_of_a_pair_of_bounds():
    """A number and an array; bounds that are traced are refused."""
    params = {"a": jnp.zeros(()), "b": jnp.ones(2)}
    of = lambda name, pair: unknowns_of(lambda p: p[name], params, [pair], jnp.zeros(()).dtype)
    found = of("b", (0.0, np.array([2.0, 4.0])))
    assert np.all(found.lower * found.scale == 0) and np.all(found.upper * found.scale == np.array([2.0, 4.0]))
    assert np.all(of("b", (None, np.array([2.0, 4.0]))).lower == -np.inf)
    with pytest.raises(ValueError, match="the bounds of a are traced"):
        jax.jit(lambda low: of("a", (low, 1.0)).lower)(0.0)
    with pytest.raises(ValueError, match="must hold a pair"):
        of("a", (0.0, 1.0, 2.0))
