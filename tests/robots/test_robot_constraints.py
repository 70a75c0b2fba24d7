"""RABBIT from its file: foot pinned, virtual constraints on its motors, impact and exchange of legs by the public parts; against
the model, whose equations are written out."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import rabbit

pytest.importorskip("mujoco")
XML = json.loads((Path(__file__).parent / "robots_reference.json").read_text())["rabbit"]["xml"]
ROBOT, CURVES = hj.robots.from_mujoco(XML), rabbit.Params()
LEGS = hj.contact.relabelling(ROBOT.coordinates, {"hip1": "hip2", "knee1": "knee2"})


def pinned(joints, params):
    """The robot's coordinates with its first foot at the origin."""
    at_hip = jnp.concatenate([jnp.zeros(2), joints])
    return at_hip.at[:2].set(-ROBOT.position(at_hip, "foot1", params)[::2])


def slip(t, q, v, params):
    return ROBOT.jacobian(q, "foot2", params)[0] @ v


FOOT = hj.contact.Contact(lambda t, q, params: ROBOT.position(q, "foot2", params)[2], slip, static=math.inf)
LAW = hj.control.virtual_constraints(
    ROBOT.mechanism.reduced(pinned),
    inputs=lambda q, params: params.gear.T[2:],
    phase=rabbit.phase,
    desired=lambda theta, params: rabbit.desired(theta, CURVES),
    stiffness=float(CURVES.stiffness),
    damping=float(CURVES.damping),
)


def strike(t, x, params):
    q, v = jax.jvp(lambda joints: pinned(joints, params), (x[:5],), (x[5:],))
    after, _ = hj.contact.impact(ROBOT.mechanism, q, v, params, FOOT)
    return jnp.concatenate([q[LEGS][2:], after[LEGS][2:]])


@pytest.mark.medium
def test_the_law_is_that_of_the_model():
    """Torques and accelerations in random states; and as the control of the robot's motors, whose forces are then the same."""
    q, v = np.random.default_rng(0).uniform(-0.7, 0.7, (2, 10, 5))
    t = jnp.array(0.0)

    def lane(q, v):
        own = LAW.control(t, q, v, ROBOT.params), LAW.acceleration(t, q, v, ROBOT.params)
        model = rabbit.constraints.control(t, q, v, CURVES), rabbit.constraints.acceleration(t, q, v, CURVES)
        return own, model

    own, model = jax.jit(jax.vmap(lane))(q, v)
    for one, other in zip(own, model, strict=True):
        # The decoupling matrix has a condition of some thousand.
        assert_allclose(one, other, rtol=0, atol=1e-11 * np.abs(other).max())
    control = lambda t, q, v, params: LAW.control(t, q[2:], v[2:], params)
    driven = dataclasses.replace(ROBOT, control=control).mechanism
    whole = jnp.concatenate([jnp.zeros(2), q[0]]), jnp.concatenate([jnp.zeros(2), v[0]])
    assert_allclose(driven.forces(t, *whole, ROBOT.params)[3:], own[0][0], rtol=1e-12)


@pytest.mark.medium
def test_the_multiplier_from_the_file_is_that_of_the_closed_form():
    gait = jax.jit(lambda p: LAW.hybrid_zero_dynamics(strike, CURVES.phase_stop, p, nodes=32))(ROBOT.params)
    assert_allclose([gait.multiplier, gait.period], [0.6173914423177391, 0.510539053865709], rtol=1e-12)
    assert gait.defect < 1e-11


@pytest.mark.medium
def test_inputs_are_leaves_of_the_parameters():
    """Motors are driven by the parameters as by a control, and by the sum of both."""
    u, other = jnp.array([3.0, -1.0, 2.0, 0.5]), jnp.array([1.0, 1.0, -4.0, 0.0])
    q, v = np.random.default_rng(3).uniform(-0.5, 0.5, (2, 7))
    driven = dataclasses.replace(ROBOT, control=lambda t, q, v, params: u)
    at = jnp.array(0.0), jnp.asarray(q), jnp.asarray(v)
    held = lambda u: dataclasses.replace(ROBOT.params, input=u)
    expected = driven.mechanism.acceleration(*at, ROBOT.params)
    assert_allclose(ROBOT.mechanism.acceleration(*at, held(u)), expected, rtol=1e-13)
    both = driven.mechanism.acceleration(*at, held(other))
    assert_allclose(both, ROBOT.mechanism.acceleration(*at, held(u + other)), rtol=1e-12)
    assert_allclose(ROBOT.params.input, 0)
