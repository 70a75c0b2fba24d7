"""Hybrid iLQR of a legged system: a walker from rest to its gait."""

import jax.numpy as jnp
import numpy as np
import pytest
from systems import ROLLED

import hyjax as hj
from hyjax.models import powered_compass_gait as walker

RESULTS = hj.RESULTS


def walk_from_rest(steps=80, duration=8.0, torque=0.05, **options):
    """The walker from rest, upright with its legs together, to the middle of a stride of its gait, by the torque at the hip and
    the push-offs. The guess is a constant torque. **Returns:** the state wanted at the end, and what is found."""
    params = walker.Params()
    how = {"integrator": ROLLED}
    gait = hj.periodic_orbit(hj.ReturnMap(walker.system, sequence=walker.sequence, **how), walker.guess(params), params)
    target = hj.simulate(
        walker.system, gait.x, params, mode="swing", t1=gait.period / 2, max_jumps=1, **how, throw=False
    ).final
    found = hj.control.ilqr(
        walker.system, jnp.zeros(4), params, mode="swing", times=jnp.linspace(0, duration, steps + 1),
        where=lambda p: (p.controller.torque, p.push_off), controls=jnp.array([torque, 0.0]) * jnp.ones((steps, 2)),
        stage_cost=lambda t, x, u, p: jnp.sum(u**2), terminal_cost=lambda t, x, p: 100 * jnp.sum((x - target) ** 2),
        **options, throw=False
    )  # fmt: skip
    return target, found


@pytest.mark.slow
def test_walker_from_rest_to_its_gait():
    target, found = walk_from_rest(tolerance=1e-6)
    cost = np.asarray(found.history.cost[: int(found.iterations) + 1])
    assert np.all(np.diff(cost) < 0) and cost[0] > 100 * cost[-1] and int(found.events) == 3
    # The weight of 100 against controls of a cost of 0.1: a deviation of a few hundredths at most.
    assert np.max(np.abs(found.x[-1] - target)) < 0.02
    # Three strikes are on kinks at grid times, where the search ends; that this is an optimum it need not see.
    assert found.result == RESULTS.successful or found.result == RESULTS.stalled
