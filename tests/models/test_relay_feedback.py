"""Relay feedback: a cycle with sliding segments, in closed form."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import relay_feedback as relay

STEP = hj.ReturnMap(relay.system, sequence=relay.sequence, integrator=ROLLED)


@pytest.mark.medium
@pytest.mark.parametrize(
    "values, leaves, enters, period, multiplier",
    [
        ({}, [0, 1, 2.205914359267390214239325], [0, 0.5459788896213552538772594, -2.300005217564606679148329],
         7.858952070395521074188957, 0.0046616636223868800134),
        ({"frequency": 2.0, "zero_frequency": 0.7, "pole": 0.5}, [0, 1, 1.260335653525638911513462],
         [0, 0.8878892470774548770376678, -1.166108172902068192022633], 9.603820269669709715962337,
         0.00011306104014318360762),
    ],
)  # fmt: skip
def test_a_cycle_with_sliding_segments(values, leaves, enters, period, multiplier):
    """References `relay3_...`: matrix exponentials and one root, in 24 digits; the two other multipliers are 0."""
    orbit = hj.periodic_orbit(
        STEP,
        jnp.array(leaves) + jnp.array([0.0, 0.0, 0.02]),
        relay.Params(**{k: jnp.array(v) for k, v in values.items()}),
    )
    assert_allclose(orbit.x, leaves, rtol=0, atol=1e-11)
    # Of the sliding segment on this side; that of the reference is on the other, of the opposite sign.
    assert_allclose(np.abs(orbit.arc_ends[0][0]), np.abs(enters), rtol=0, atol=1e-11)
    assert_allclose(orbit.period, period, rtol=0, atol=1e-11)
    assert_allclose(np.sort(np.abs(orbit.multipliers)), [0, 0, multiplier], rtol=0, atol=1e-11)


@pytest.mark.medium
def test_a_run_settles_on_the_cycle():
    params = relay.Params()
    mode, x0 = relay.start(params)
    run = hj.simulate(relay.system, x0, params, mode=mode, t1=60.0, max_jumps=60, integrator=ROLLED)
    assert run.mode_names[-5:-1] in [tuple(np.roll(relay.sequence, k)) for k in range(4)]
    leaving = np.abs(run.x_ends[: int(run.jumps)])[np.array(run.mode_names[:-1]) == "0"]
    assert_allclose(leaving[-1], [0, 1, 2.205914359267390214239325], rtol=0, atol=1e-9)
