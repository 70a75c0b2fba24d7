"""A part of a vector field that is a neural network, learned through impacts by derivatives in reverse mode."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jax.flatten_util import ravel_pytree

import hyjax as hj

NETWORK = eqx.nn.MLP("scalar", "scalar", width_size=4, depth=1, activation=jnp.tanh, key=jax.random.key(0))
ARRAYS, REST = eqx.partition(NETWORK, eqx.is_inexact_array)
WEIGHTS, UNRAVEL = ravel_pytree(ARRAYS)


def ball(drag):
    """A ball under a drag that is a function of its speed."""
    return hj.HybridSystem(
        {"flight": hj.Mode(lambda t, x, p: jnp.stack([x[1], -9.81 - drag(x[1], p)]), ("y", "y_rate"))},
        (
            hj.Transition(
                "flight", "flight", guard=lambda t, x, p: x[0], reset=lambda t, x, p: jnp.stack([x[0], -0.85 * x[1]])
            ),
        ),
    )


def learned_drag(v, weights):
    return 10 * eqx.combine(UNRAVEL(weights), REST)(v / 5)


def true_drag(v, _=None):
    return 0.15 * v * jnp.abs(v)


@pytest.mark.medium
def test_air_drag_of_a_ball_by_a_network():
    """Height and speed of one ball, dropped from 1.5 m, which bounces twice."""
    draw, x0, samples = np.random.default_rng(0), jnp.array([1.5, 0.0]), np.arange(0.1, 1.9, 0.15)
    run = hj.simulate(ball(true_drag), x0, None, mode="flight", t1=1.9, times=jnp.asarray(samples))
    assert run.samples is not None
    impacts = [float(event.t) for event in run.events]
    order, none = np.argsort(np.append(samples, impacts)), [np.nan] * len(impacts)
    noise = {"time": 1e-3, "y": 1e-2, "y_rate": 5e-2}
    rows = np.asarray(run.samples.x) + draw.standard_normal((len(samples), 2)) * [1e-2, 5e-2]
    data = {"time": np.append(samples, impacts)[order], "event": [("" if k < len(samples) else "*") for k in order]}
    data |= {name: np.append(rows[:, k], none)[order] for k, name in enumerate(("y", "y_rate"))}
    backwards = dfx.RecursiveCheckpointAdjoint()
    reverse = hj.Integrator(dfx.Tsit5(), rtol=1e-7, atol=1e-7, adjoint=backwards, max_steps=32)
    fit = hj.fit(
        ball(learned_drag), data, WEIGHTS, over=lambda p: p, x0=x0, mode="flight", noise=noise, prior=[(0.0, 1.0)],
        integrator=reverse, max_jumps=2, max_iterations=40, throw=False,
    )  # fmt: skip
    # The search is stopped: directions of the weights that the data hardly determine converge slowly, and change nothing below.
    assert fit.result in ("successful", "optimum_not_found")
    assert abs(float(fit.chi_square) - int(fit.degrees)) < 3.5 * np.sqrt(2 * int(fit.degrees))
    # Two speeds tell the mean force between them to 0.05 sqrt(2) / 0.15 = 0.47; heights, and thirteen samples for a curve of some
    # three numbers, make that less than half. The drag is up to 3.
    speeds = jnp.linspace(-4.5, 3.8, 50)
    off = jax.vmap(lambda v: learned_drag(v, fit.params) - true_drag(v))(speeds)
    assert np.sqrt(np.mean(off**2)) < 0.2
    # And the derivative in reverse mode is that by differences, with steps of 1e-5 and errors of the flow of 1e-8.
    density = jax.jit(jax.value_and_grad(lambda weights: fit.log_density(weights)))
    step = 1e-5 * jnp.sin(jnp.arange(1.0, 14.0))
    change = density(fit.values + step)[0] - density(fit.values - step)[0]
    np.testing.assert_allclose(2 * density(fit.values)[1] @ step, change, rtol=1e-3, atol=1e-6)


@jax.custom_vjp
def rate_of(weights):
    """Their sum, with a derivative in reverse mode alone."""
    return jnp.sum(weights)


rate_of.defvjp(lambda weights: (jnp.sum(weights), weights), lambda weights, by: (by * jnp.ones_like(weights),))
CLOCK = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: rate_of(p) + 0 * x, ("x",))},
    (hj.Transition("m", "m", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x),),
)


@pytest.mark.medium
def test_the_mode_of_the_derivatives_is_that_of_fewer_passes():
    """More than four weights for each row have derivatives in reverse mode, by default; fewer in forward mode. By symmetry all
    weights are 1/n and a part of what the times, k over their sum, are off."""
    times, width = jnp.array([1.01, 1.98]), 0.1

    def fit(n):
        weights = jnp.full(n, 1 / n)
        return hj.fit(
            CLOCK, times, weights, over=lambda p: p, x0=jnp.zeros(1), mode="m", noise=0.01, prior=[(1 / n, width)]
        )  # fmt: skip

    found = fit(9)
    off = lambda part: np.append(
        (np.asarray(times) - [1 / (1 + 9 * part), 2 / (1 + 9 * part)]) / 0.01, 3 * part / width
    )
    part = scipy.optimize.least_squares(lambda part: off(part[0]), [0.0], xtol=1e-15, ftol=1e-15, gtol=1e-15).x[0]
    np.testing.assert_allclose(found.values, 1 / 9 + part, rtol=1e-8)
    with pytest.raises(TypeError, match="forward-mode"):
        fit(8)
