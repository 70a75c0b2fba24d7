"""A linear-quadratic regulator at a sampled rate on a walker whose passive gait is unstable: two samples in a stride, held
between."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import simplest_walker as walker

# Beyond the period doubling of the passive gait, at 0.0151.
SLOPE, LATE = 0.017, 1.9
WALKER = walker.Params(slope=SLOPE)


def swing(t, x, p):
    """A torque at the hip turns the swing leg."""
    *_, u = x
    return jnp.append(walker.swing(t, x[:4], WALKER) + u * jnp.array([0.0, 0.0, 0.0, 1.0]), 1.0)


def sampled(k: int, x, p):
    return -p["gains"][k] @ (x - p["means"][k])


def half_way(t, x, p):
    return jnp.concatenate([x[:5], sampled(1, x[:4], p)[None]])


def strike(t, x, p):
    after = walker.heel_strike(t, x[:4], WALKER)
    return jnp.concatenate([after, jnp.stack([0 * t, sampled(0, after, p)])])


NAMES = {"coordinates": (*walker.coordinates, "since"), "held": ("torque",)}
SYSTEM = hj.HybridSystem(
    {"early": hj.Mode(swing, **NAMES), "late": hj.Mode(swing, **NAMES)},
    (
        hj.Transition("early", "late", lambda t, x, p: LATE - x[4], half_way),
        hj.Transition("late", "early", lambda t, x, p: walker.foot_height(t, x[:4], WALKER), strike),
    ),
)
STEP = hj.ReturnMap(SYSTEM, sequence=("early", "late"), integrator=ROLLED)
PASSIVE = {"gains": jnp.zeros((2, 4)), "means": jnp.zeros((2, 4))}


@pytest.fixture(scope="module")
def gait():
    """The passive gait."""
    guess = jnp.concatenate([walker.guess(WALKER), jnp.zeros(2)])
    return hj.periodic_orbit(STEP, guess, PASSIVE)


@pytest.fixture(scope="module")
def loop(gait):
    """The parameters of the regulator; and the matrices of the states at the samples, closed by it. For the cost of squares of
    state and torque, by the discrete-time Riccati equation of period two."""

    def to_late(x, u):
        z = jnp.concatenate([x, jnp.stack([0.0, u])])
        return hj.flow_to_guard(SYSTEM, "early", 0.0, z, PASSIVE, integrator=ROLLED).x[:4]

    def to_early(x, u):
        z = jnp.concatenate([x, jnp.stack([LATE, u])])
        before = hj.flow_to_guard(SYSTEM, "late", 0.0, z, PASSIVE, integrator=ROLLED).x
        return walker.heel_strike(0.0, before[:4], WALKER)

    means = jnp.stack([gait.x[:4], gait.arc_ends[0][0, :4]])
    steps = [jax.jacfwd(to, (0, 1))(x, jnp.array(0.0)) for to, x in zip((to_late, to_early), means, strict=True)]
    value, gains = np.eye(4), [np.zeros(4), np.zeros(4)]
    for _ in range(200):
        for k in (1, 0):
            a, b = np.asarray(steps[k][0]), np.asarray(steps[k][1])
            gains[k] = (b @ value @ a) / (1 + b @ value @ b)
            value = np.eye(4) + a.T @ value @ (a - np.outer(b, gains[k]))
    closed = [np.asarray(a) - np.outer(b, gain) for (a, b), gain in zip(steps, gains, strict=True)]
    return {"gains": jnp.array(np.stack(gains)), "means": means}, closed[1] @ closed[0]


@pytest.mark.medium
def test_multipliers_of_the_sampled_loop(gait, loop):
    """The passive gait's largest multiplier lies beyond -1. Closed, the gait is the same, and its multipliers are those of the
    matrices at the samples, and zeros: what is held, and the time since the strike, are set anew."""
    assert gait.multipliers[0].real < -1.1
    params, closed = loop
    orbit = hj.periodic_orbit(STEP, gait.x, params)
    assert_allclose(orbit.x, gait.x, rtol=0, atol=1e-11)
    assert bool(orbit.stable)
    exact = np.sort(np.abs(np.linalg.eigvals(closed)))[::-1]
    assert_allclose(np.abs(orbit.multipliers[:2]), exact[:2], rtol=0, atol=1e-9)
    assert_allclose(np.abs(orbit.multipliers[2:]), 0, atol=1e-6)


@pytest.mark.medium
def test_it_walks_on(gait, loop):
    """Thirty strides from a state that is off by a thousandth of a radian: passive, the walker limps, and regulated it is on its
    gait."""
    params, _ = loop
    off = gait.x.at[jnp.array([0, 2])].add(jnp.array([0.0005, 0.001]))
    run = lambda params: hj.simulate(SYSTEM, off, params, mode="early", t1=115.0, max_jumps=70, integrator=ROLLED)
    regulated, passive = run(params), run(PASSIVE)
    last = lambda run: run.x_starts[int(run.jumps) - int(run.jumps) % 2, 0]
    assert abs(last(regulated) - gait.x[0]) < 1e-6 < 1e-3 < abs(last(passive) - gait.x[0])


@pytest.mark.medium
def test_a_kalman_filter_beside_the_regulator(gait, loop):
    """Both angles are measured eight times in two strides, with a deviation of 1e-3, and the walker is regulated on. Where every
    measurement is as expected, the filter's mean is the run, and its covariance that of the least squares of all measurements:
    M L (1 + L' (sum of H' H / v) L)^-1 L' M', with H and M the derivatives of the run by its start, by autodiff."""
    params, _ = loop
    times, variance = 0.9 * jnp.arange(1.0, 9.0), 1e-6
    along = dict(mode="early", max_jumps=6, integrator=ROLLED)
    states = jax.jit(lambda x: hj.simulate(SYSTEM, x, params, t1=7.3, times=times, **along).samples.x)
    # What is held and the time since the strike are known.
    root = jnp.eye(6)[:, :4] * jnp.array([0.02, 0.02, 0.05, 0.05])
    moves = np.asarray(jax.jacfwd(lambda s: states(gait.x + root @ s))(jnp.zeros(4)))
    information = np.eye(4) + sum(h.T @ h for h in moves[:, [0, 2]]) / variance
    expected = moves[-1] @ np.linalg.solve(information, moves[-1].T)
    run = states(gait.x)
    found = hj.noise.kalman_filter(
        SYSTEM, gait.x, root @ root.T, params, times=times, measurements=run[:, jnp.array([0, 2])],
        observe=lambda t, x, p: x[jnp.array([0, 2])], measurement_noise=variance * jnp.eye(2), **along,
    )  # fmt: skip
    assert_allclose(found.means, run, rtol=0, atol=1e-9)
    assert_allclose(found.covariances[-1], expected, rtol=0, atol=1e-6 * np.max(expected))
    # The filter knows the velocities from the angles, and has what the gait forgets.
    assert np.sqrt(expected[3, 3]) < 0.05 / 4
