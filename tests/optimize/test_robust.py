"""Robust gaits: the least expected cost on rough ground, by the covariance of strides, with a limit of the spectral radius."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import powered_walker as walker

# The variance of the slope of the ground, independent from step to step.
GROUND = jnp.array([[0.02**2]])
SPEED = hj.Constraint(hj.objectives.speed(walker.travel), equals=0.4)
CALM = hj.Constraint(hj.objectives.contraction(), at_most=0.8)


def spread(orbit, params):
    return hj.noise.stride_covariance(orbit, noise=lambda p: p.slope, covariance=GROUND)


def cost_of_angle(params):
    """The push-off's work over weight and length of a step, by the angle of the legs at its start."""
    return lambda angle: params.push_off**2 / 2 / (2 * jnp.sin(jnp.abs(angle)))


def expected_cost(orbit, params):
    """To second order in the deviation of the angle."""
    cost, angle = cost_of_angle(params), orbit.x[0]
    return cost(angle) + jax.grad(jax.grad(cost))(angle) * spread(orbit, params)[0, 0] / 2


@pytest.mark.slow
def test_expected_cost_under_a_limit_of_the_spectral_radius():
    params = walker.Params()
    start = hj.periodic_orbit(walker.step, walker.guess(params), params)
    optimum = lambda *limits: hj.optimize(
        start, expected_cost, where=lambda p: (p.push_off, p.stiffness), bounds=[(0.05, 0.4), (0.0, 4.0)],
        constraints=(SPEED, *limits), method=hj.objectives.InteriorPoint(second_order=False),
    )  # fmt: skip
    cheap, calm = optimum(), optimum(CALM)
    for gait in (cheap, calm):
        assert gait.result == hj.RESULTS.successful
        assert_allclose(SPEED.function(gait.orbit, gait.params), 0.4, rtol=1e-8)
        # The gradient goes through second derivatives of the stride; differences of it are good to 1e-9 here.
        assert gait.gradient_error < 1e-7
        assert gait.value > walker.cost_of_transport(gait.orbit, gait.params)
    # `contraction` bounds the spectral radius from above. What recovers faster costs twice as much here.
    assert cheap.orbit.spectral_radius > 0.85 and calm.orbit.spectral_radius < 0.8
    assert calm.value > 2 * cheap.value

    # Walks over ground a hundredth as rough, where the linear theory holds: the variance of the angle, and the mean of the cost.
    slopes = jnp.asarray(2e-4 * np.random.default_rng(0).standard_normal((64, 300)))

    @jax.jit
    @jax.vmap
    def walk(slopes):
        def one(x, slope):
            x = walker.step(x, dataclasses.replace(calm.params, slope=slope), throw=False).x
            return x, x[0]

        return jax.lax.scan(one, calm.orbit.x, slopes)[1]

    angles = np.asarray(walk(slopes))[:, 50:]
    # 16 000 angles that forget each other in five steps: their variance is known to 2 percent, one deviation.
    assert_allclose(np.var(angles), spread(calm.orbit, calm.params)[0, 0] / 100**2, rtol=0.06)
