"""Covariance through events: closed forms, products of saltation matrices, and samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case
from systems import map_of, same, still

import hyjax as hj
from hyjax.models import bouncing_ball, simplest_walker

# A ball that falls from rest, bounces once, and rises: everything is explicit.
END, GRAVITY = 0.8, 9.81


def drift(t, sigma, w):
    """A covariance after free fall for a time t: with Phi = (1 t; 0 1), and the integral of Phi(s) W Phi(s)^T over s."""
    phi = jnp.array([[1.0, 0.0], [0.0, 1.0]]) + t * jnp.array([[0.0, 1.0], [0.0, 0.0]])
    a, b, c = w[0, 0], w[0, 1], w[1, 1]
    corner = b * t + c * t**2 / 2
    driven = jnp.stack([a * t + b * t**2 + c * t**3 / 3, corner, corner, c * t]).reshape(2, 2)
    return phi @ sigma @ phi.T + driven


def ball_in_closed_form(e, sigma, w, level, reset):
    fall = jnp.sqrt(2 / GRAVITY)
    v = -GRAVITY * fall
    xi = jnp.stack([-e, 0 * e, -(1 + e) * GRAVITY / v, -e]).reshape(2, 2)
    late = -(1 + e) * jnp.stack([1.0, GRAVITY / v])
    before = drift(fall, sigma, w)
    after = xi @ before @ xi.T + level * jnp.outer(late, late) + reset
    return before, after, drift(END - fall, after, w)


def test_bouncing_ball_in_closed_form():
    """One bounce with all three kinds of noise, and the derivative by the coefficient of restitution. Four lanes: a full
    covariance, one of rank one, none, and that of the first with all noise at 1e-14 times its size."""

    def found(e, sigma, w, level, reset):
        ball = bouncing_ball.Params(restitution=e)
        noise = hj.Noise(flow=w, guard={("flight", "flight"): level}, reset={0: reset})
        start = jnp.array([1.0, 0.0])
        run = hj.covariance(bouncing_ball.system, start, sigma, ball, mode="flight", t1=END, noise=noise, max_jumps=2)
        return run.sigma, (run.sigma_ends[0], run.sigma_starts[1], run.sigma, run.result, run.trajectory.x)

    full, line = np.array([[2e-4, 3e-5], [3e-5, 1e-4]]), np.outer([1e-2, 3e-2], [1e-2, 3e-2])
    w, reset = np.array([[1e-4, -1e-5], [-1e-5, 3e-4]]), np.array([[0.0, 0.0], [0.0, 2e-5]])
    small = 1e-14
    e = jnp.array([0.8, 0.5, 0.9, 0.8])
    inputs = [[full, line, 0 * full, small * full], [w, 0 * w, w, small * w], [1e-5, 0.0, 2e-5, small * 1e-5]]
    inputs = [jnp.array(np.stack(each)) for each in (*inputs, [reset, 0 * reset, 0 * reset, small * reset])]
    slope, (before, after, end, result, x) = jax.jit(jax.vmap(jax.jacfwd(found, has_aux=True)))(e, *inputs)
    assert np.all(result == hj.RESULTS.successful)
    # A few hundred roundings: of the flow's steps, of the speed of impact, by which is divided, and of products.
    for got, expected in zip((before, after, end), jax.vmap(ball_in_closed_form)(e, *inputs), strict=True):
        scale = np.max(np.abs(expected), axis=(1, 2), keepdims=True)
        assert_allclose(got / scale, expected / scale, rtol=0, atol=3e-14)
    by_e = jax.vmap(jax.jacfwd(lambda *each: ball_in_closed_form(*each)[2]))(e, *inputs)
    scale = np.max(np.abs(by_e), axis=(1, 2), keepdims=True)
    assert_allclose(slope / scale, by_e / scale, rtol=0, atol=1e-12)
    assert_allclose(end, np.swapaxes(end, 1, 2), rtol=0, atol=0)
    # The equations are linear in all noise, and the unit is a power of two: only roundings of the noise itself differ.
    assert_allclose(end[3], small * end[0], rtol=1e-13)
    # Of rank one before the bounce and after it.
    spectrum = np.linalg.eigvalsh(end[1])
    assert abs(spectrum[0]) < 1e-14 * spectrum[1]


# A mode of two coordinates and one of three, whose flow, guard and reset depend on time.
def swing(t, x, p):
    return jnp.stack([x[1], -jnp.sin(x[0]) - 0.1 * x[1] + jnp.cos(2 * t)])


def carried(t, x, p):
    return jnp.stack([x[1] + x[2], -x[0] * x[2] + 0.3 * jnp.sin(t), -p["decay"] * x[2] + x[0]])


MIXED = hj.HybridSystem(
    {"two": hj.Mode(swing, ("a", "b")), "three": hj.Mode(carried, ("a", "b", "c"))},
    (
        hj.Transition(
            "two",
            "three",
            lambda t, x, p: 1.2 + 0.1 * jnp.sin(3 * t) - x[0],
            lambda t, x, p: jnp.stack([x[0], 0.5 * x[1] + 0.1 * t, x[0] * x[1]]),
        ),
        hj.Transition(
            "three",
            "two",
            lambda t, x, p: x[0] + 0.2 * x[2] - 0.1 * t,
            lambda t, x, p: jnp.stack([x[2] - x[0], x[1] ** 2 + x[2] * jnp.sin(t)]),
        ),
    ),
)


def test_modes_of_different_dimension_and_time():
    """Without noise the product with the fundamental matrix, which is found by other code; at each time, and samples there."""
    root = np.random.default_rng(0).normal(size=(2, 2))
    sigma0, x0, times = jnp.array(root @ root.T), jnp.array([0.2, 1.0]), jnp.array([0.4, 2.0, 3.5, 6.0])
    params = {"decay": jnp.array(0.7)}

    def at(t1, decay):
        options = {"mode": "two", "t1": t1, "max_jumps": 8, "save": times}
        run = hj.covariance(MIXED, x0, sigma0, {"decay": decay}, **options)
        return jnp.trace(run.sigma), run

    runs = jax.jit(jax.vmap(at, in_axes=(0, None)))(times, params["decay"])[1]
    matrix = jax.jit(lambda t1: hj.simulate(MIXED, x0, params, mode="two", t1=t1, max_jumps=8).fundamental_matrix())
    assert list(runs.trajectory.mode) == [0, 1, 0, 1] or len(set(np.asarray(runs.trajectory.mode))) == 2
    assert int(runs.trajectory.jumps[-1]) >= 2
    for k, time in enumerate(times):
        phi = np.asarray(matrix(time))
        expected = phi[:, :2] @ sigma0 @ phi[:, :2].T
        scale = np.max(np.abs(expected))
        assert_allclose(runs.sigma[k], expected, rtol=0, atol=1e-12 * scale)
        # Samples are steps to the time of the sample: the same numbers up to the tolerance of the steps.
        assert_allclose(runs.sigma_samples[-1, k], expected, rtol=0, atol=1e-12 * scale)
        assert np.min(np.linalg.eigvalsh(runs.sigma[k])) > -1e-13 * scale
    assert np.all(np.isnan(runs.sigma_samples[0, 1:])) and runs.trajectory.samples.mode[0, 1] == -1
