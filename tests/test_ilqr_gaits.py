"""Hybrid iLQR of legged systems: a runner over an obstacle, a walker from rest to its gait."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import powered_compass_gait as walker, slip

RESULTS = hj.RESULTS


# A runner on a springy leg, in units of its mass, leg and gravity. Unlike `hyjax.models.slip` it knows where it is and how fast:
# in stance the stiffness may change, and with it the energy; in flight the leg turns.
def fly(t, x, p):
    _, _, x_rate, y_rate, _ = x
    return jnp.stack([x_rate, y_rate, 0 * x_rate, -jnp.ones_like(x_rate), p["turn"] + 0 * x_rate])


def foot_height(t, x, p):
    return x[1] - jnp.sin(x[4])


def falls(t, x, p):
    return x[3] < 0


def touchdown(t, x, p):
    return x.at[4].set(x[0] + jnp.cos(x[4]))


def lean(t, x, p):
    ahead, y = x[0] - x[4], x[1]
    push = p["stiffness"] * (1 / jnp.sqrt(ahead**2 + y**2) - 1)
    return jnp.stack([x[2], x[3], push * ahead, push * y - 1, 0 * y])


def compression(t, x, p):
    return 1 - jnp.sqrt((x[0] - x[4]) ** 2 + x[1] ** 2)


def lift_off(t, x, p):
    return x.at[4].set(p["angle"])


def above_ground(t, x, p):
    return x[1]


RUNNER = hj.HybridSystem(
    {
        "flight": hj.Mode(fly, ("x", "y", "x_rate", "y_rate", "alpha"), domain=above_ground),
        "stance": hj.Mode(lean, ("x", "y", "x_rate", "y_rate", "foot"), domain=above_ground),
    },
    (
        hj.Transition("flight", "stance", foot_height, touchdown, armed=falls),
        hj.Transition("stance", "flight", compression, lift_off),
    ),
)
LEG = {"stiffness": jnp.array(30.0), "angle": jnp.array(1.2), "turn": jnp.array(0.0)}


def obstacle(x):
    """The height that the mass needs: 1.3 leg lengths above the middle of the obstacle."""
    return 1.3 * jnp.exp(-(((x - 3.0) / 0.3) ** 2))


def run_over(steps=80, duration=4.0, **options):
    """The runner from an apex of its gait, over an obstacle, to the speed and the apex height of the gait."""
    params = slip.Params()
    gait = hj.periodic_orbit(slip.system, slip.guess(params), params, sequence=slip.sequence)
    apex, speed = gait.x[0], slip.forward(gait.x, params)
    stage = lambda t, x, u, p: 1e-3 * u[0] ** 2 + 0.1 * u[1] ** 2 + 20 * jnp.maximum(obstacle(x[0]) - x[1], 0) ** 2

    def back_on_gait(t, x, p):
        return 20 * ((x[2] - speed) ** 2 + (x[1] + x[3] ** 2 / 2 - apex) ** 2)

    def energy_of_gait(t, x, p):
        spring = p["stiffness"] / 2 * compression(t, x, p) ** 2
        return 20 * ((x[2] ** 2 + x[3] ** 2) / 2 + x[1] + spring - params.energy) ** 2

    start = jnp.stack([0 * apex, apex, speed, 0 * apex, LEG["angle"]])
    return hj.ilqr(
        RUNNER, start, LEG, mode="flight", times=jnp.linspace(0, duration, steps + 1), stage_cost=stage,
        where=lambda p: (p["stiffness"], p["turn"]), terminal_cost={"flight": back_on_gait, "stance": energy_of_gait},
        **options,
    )  # fmt: skip


@pytest.mark.slow
def test_runner_over_an_obstacle():
    """The guess hits the obstacle; the optimum jumps over it with one stance less, and its landing is at a kink."""
    found = run_over()
    assert found.result == RESULTS.successful
    cost = np.asarray(found.history.cost[: int(found.iterations) + 1])
    assert np.all(np.diff(cost) < 0) and cost[0] > 20 * cost[-1]
    assert int(found.history.events[0]) == 8 and int(found.events) == 6
    x, y = np.asarray(found.x).T[:2]
    # The penalty leaves a small part of the height.
    assert np.max(obstacle(x) - y) < 0.1
    # At the end the speed of the gait.
    assert_allclose(found.x[-1, 2], 1.6, atol=0.02)


def walk_from_rest(steps=80, duration=8.0, torque=0.05, **options):
    """The walker from rest, upright with its legs together, to the middle of a stride of its gait, by the torque at the hip and
    the push-offs. The guess is a constant torque. **Returns:** the state wanted at the end, and what is found."""
    params = walker.Params()
    gait = hj.periodic_orbit(walker.system, walker.guess(params), params, sequence=walker.sequence)
    target = hj.simulate(walker.system, gait.x, params, mode="swing", t1=gait.period / 2).final
    found = hj.ilqr(
        walker.system, jnp.zeros(4), params, mode="swing", times=jnp.linspace(0, duration, steps + 1),
        where=lambda p: (p.controller.torque, p.push_off), controls=jnp.array([torque, 0.0]) * jnp.ones((steps, 2)),
        stage_cost=lambda t, x, u, p: jnp.sum(u**2), terminal_cost=lambda t, x, p: 100 * jnp.sum((x - target) ** 2),
        **options,
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
