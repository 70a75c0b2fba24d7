"""RABBIT's step of least effort, whose torques are free in time, against direct collocation with IPOPT."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import rabbit

BODY = rabbit.Params()


class Params(NamedTuple):
    """The robot, its torques and the length of its step, which the clearance of the swing foot depends on."""

    body: rabbit.Params
    torque: jax.Array
    reach: jax.Array


PARAMS = Params(BODY, jnp.zeros(4), jnp.array(0.4))
MECHANISM = hj.contact.Mechanism(
    lambda q, p: rabbit.stance_mass(q, p.body),
    coriolis=lambda q, v, p: rabbit.stance_bias(q, v, p.body),
    forces=lambda t, q, v, p: jnp.concatenate([jnp.zeros(1, q.dtype), p.torque]),
)
of = lambda fn: lambda t, x, p: fn(t, x, p.body)


def swing(t, x, p):
    return jnp.concatenate([x[5:], MECHANISM.acceleration(t, x[:5], x[5:], p)])


STRIKE = hj.Transition("swing", "swing", of(rabbit.foot_height), of(rabbit.strike), armed=of(rabbit.foot_ahead))
STEP = hj.ReturnMap(
    hj.HybridSystem({"swing": hj.Mode(swing, rabbit.coordinates, domain=of(rabbit.hip_height))}, (STRIKE,)),
    sequence=("swing",),
)


def travel(mode, x, p):
    return rabbit.foothold(x, p.body)


def ground(t, x, p):
    """Of the force on the stance foot what is left of friction 0.6 both ways, and of a normal force of 50 N."""
    along, up = rabbit.foot_force(x, swing(t, x, p)[5:], p.body)
    return jnp.stack([0.6 * up - along, 0.6 * up + along, up - 50])


def clearance(t, x, p):
    ahead, above = rabbit.foothold(x, p.body)
    return above - 0.04 * (1 - (ahead / p.reach) ** 2)


def impulse(orbit, p):
    up, along = rabbit.strike_impulse(orbit.arc_ends[0][0], p.body)
    return jnp.stack([0.6 * up - along, 0.6 * up + along])


def leaves(orbit, p):
    """How fast the old stance foot rises after the strike."""
    height = lambda q: rabbit.foothold(jnp.concatenate([q, q]), p.body)[1]
    return jax.jvp(height, (orbit.x[:5],), (orbit.x[5:],))[1]


EFFORT, LENGTH = hj.objectives.integral(lambda t, x, p: p.torque @ p.torque), hj.objectives.step_length(travel)
LIMITS = [
    hj.Constraint(hj.objectives.speed(travel), equals=0.75),
    hj.Constraint(lambda orbit, p: LENGTH(orbit, p) - p.reach, equals=0.0, name="reach"),
    hj.Constraint(hj.objectives.along(ground), at_least=0.0),
    hj.Constraint(hj.objectives.along(clearance, window=(0.04, 0.96)), at_least=0.0),
    hj.Constraint(hj.objectives.along(lambda t, x, p: x[jnp.array([2, 4])]), at_least=0.05, name="knees"),
    hj.Constraint(impulse, at_least=0.0),
    hj.Constraint(leaves, at_least=0.0),
]


def crude(lift: float):
    """Mirrored poses with both feet on the ground, 0.4 m apart, joined by straight lines; the swing knee bends by so much."""
    end = np.array([-0.0085, 0.25, 0.1, -0.2437, 0.25])
    part = np.linspace(0, 1, 26)[:, None]
    q = (1 - part) * end[[0, 3, 4, 1, 2]] + part * end
    q[:, 4] += lift * np.sin(np.pi * part[:, 0])
    duration = 0.4 / 0.75
    return jnp.asarray(np.concatenate([q, np.gradient(q, duration / 25, axis=0)], axis=1)), duration


def over_the_speed(gait):
    """From 0.5 to 1 m/s against J of 50 intervals of Hermite and Simpson with quadratic torques (CasADi 3.8): 25 intervals of
    linear torques cost more, most at 0.9 m/s by 0.12 %, and 50 at most 0.015 %. The friction cone becomes active, from 0.9 there
    among these speeds; the multiplier is the derivative of J by the speed, which differences of second order have to 1 %."""
    slower, faster = (hj.follow_optimum(gait, limit="speed", stop=stop, n_points=5) for stop in (0.5, 1.0))
    for branch, numbers, values in (
        (slower, (0.6, 0.5), (106.083, 50.786)), (faster, (0.9, 1.0), (491.669, 685.796)),
    ):  # fmt: skip
        found = np.interp(numbers, np.sort(branch.numbers), np.sort(branch.values))
        assert_allclose(found, values, rtol=1.5e-3)
        assert np.all(branch.plans.shortfall <= 1e-8) and np.all(branch.plans.gap < 1e-8)
        slopes = np.gradient(branch.values, branch.numbers, edge_order=2)
        assert_allclose(branch.multipliers[:, 0], slopes, rtol=0.01)
    assert (
        not slower.changes and [each.name for each in faster.changes] == ["along[0] >= 0"] and faster.changes[0].active
    )


@pytest.mark.slow
def test_least_effort_at_three_quarters_of_a_metre_a_second():
    """J = 259.604 +- 0.002 (50 and 100 intervals of Hermite and Simpson, 40 elements of Gauss and Legendre; CasADi 3.8), T =
    0.5440. With 25 intervals of linear torques J is larger by less than 0.05 %, and every limit holds between the points."""
    inputs = hj.control.HeldInputs(STEP, lambda p: p.torque, intervals=25, low=-150.0, high=150.0)
    objective = lambda orbit, p: EFFORT(orbit, p) / LENGTH(orbit, p)
    for lift in (0.9, 0.6):
        gait = hj.optimize(inputs.plan(*crude(lift), PARAMS), objective, where=lambda p: p.reach, constraints=LIMITS)
        assert_allclose(gait.value, 259.604, rtol=5e-4)
        assert gait.value > 259.604
        assert_allclose(gait.plan.duration, 0.5440, rtol=5e-4)
        assert_allclose(gait.params.reach, 0.75 * gait.plan.duration, rtol=1e-9)
        assert gait.shortfall <= 1e-8 and gait.gap < 1e-8
    over_the_speed(gait)
    # The stance knee is at its limit for a part of the step; friction and normal force are not.
    assert jnp.max(gait.arc_multipliers[:, 4]) > 1 and jnp.max(gait.arc_multipliers[:, :3]) < 1e-3
