"""The orbit of one evaluation belongs to the gait of the last, however near another gait is."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._optimize.gait_program import GaitProgram, joined, LEAST
from hyjax._optimize.unknowns import unknowns_of
from hyjax._orbit.shooting import SingleShooting
from hyjax.models import thrusting_hopper

# Two of the stable hops of a hopper whose ground swings many times during a flight: lift-off.
HOPS = jnp.array([[0.0, 0.071243, 1.018221, 0.192800], [0.0, 0.076503, 1.018930, 0.209637]])


@pytest.mark.exhaustive
def test_a_stable_hop_is_not_taken_for_its_neighbour():
    rolled, params = hj.Integrator(unroll=False), thrusting_hopper.Params(weight=0.035, damping=2800.0)
    sequence, system = thrusting_hopper.sequence, thrusting_hopper.system
    unknowns = unknowns_of(lambda p: p.thrust, params, None, jnp.float64)
    gait = GaitProgram(
        lambda orbit, params: orbit.period,
        (),
        unknowns,
        SingleShooting(),
        rolled,
        system,
        sequence,
        1,
        second_order=False,
        rows=(),
    )
    evaluate = eqx.filter_jit(gait.__call__)
    orbit = hj.periodic_orbit(system, HOPS[0], params, sequence=sequence, integrator=rolled)
    known = gait.known(orbit)
    u = known.u
    first, second = (
        evaluate(u, dataclasses.replace(known, start=x, orbit=dataclasses.replace(orbit, x=x))) for x in HOPS
    )
    assert first.sound and second.sound
    one, other = first.carry, second.carry
    # Both are stable, so the sign of det(I - A) is the same, and they are nearer than the least distance that is always allowed.
    assert one.side == other.side == 1 and np.max(np.abs(one.start - other.start)) < LEAST
    # A guess of the other hop, as if the slope led there, finds the other hop: its step is not taken.
    for step in (1e-5, 1e-4, 1e-3):
        moved = u + step
        away = evaluate(moved, dataclasses.replace(one, slope=((other.guess(moved) - one.start) / step)[:, None]))
        assert not away.sound and away.result == hj.RESULTS.far_from_guess
        along = evaluate(moved, one)
        assert along.sound and joined(one, along.carry) and not joined(other, along.carry)
