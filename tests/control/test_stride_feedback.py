"""Feedback once per stride: the Riccati equation against SciPy and closed forms, and an unstable gait that walks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_discrete_are, solve_discrete_lyapunov
from systems import CLOCK, logistic, map_of

import hyjax as hj
from hyjax._testing import discrete_riccati, lyapunov_sum
from hyjax.models import simplest_walker

RESULTS = hj.RESULTS
MAP = map_of(logistic)
riccati = jax.jit(discrete_riccati)


def problem(seed, n, m):
    """Random matrices; the last columns of `A` depend on each other, as for a return map from a reset of low rank."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n)) * rng.choice([0.3, 1.0])
    a[:, -1] = a[:, 0]
    half = rng.normal(size=(n, n)), rng.normal(size=(m, m))
    q, r = (each @ each.T + 0.1 * np.eye(len(each)) for each in half)
    return a, rng.normal(size=(n, m)), q, r


@pytest.mark.parametrize("n, m", [(4, 2), (6, 3)])
def test_riccati_against_scipy(n, m):
    for seed in range(25):
        a, b, q, r = problem(seed, n, m)
        p, k = riccati(a, b, q, r)
        known = solve_discrete_are(a, b, q, r)
        # Against 50 digits SciPy's error is up to 2e-12 of the largest entry here, that of the doubling alone up to 3e-10, and
        # with the step of Newton's method that follows up to 2e-12, by rounding where little control acts.
        assert_allclose(p, known, rtol=0, atol=1e-11 * np.max(np.abs(known)))
        assert_allclose(k, np.linalg.solve(r + b.T @ known @ b, b.T @ known @ a), rtol=0, atol=1e-9)
        assert np.max(np.abs(np.linalg.eigvals(a - b @ k))) < 1


@pytest.mark.parametrize("a, b, q, r", [(3.0, 0.5, 1.0, 2.0), (-1.0, 1.0, 1e-6, 1.0), (0.0, 1.0, 1.0, 1.0)])
def test_riccati_in_one_dimension(a, b, q, r):
    """b^2 p^2 + (r - a^2 r - q b^2) p - q r = 0. With a = -1 and a small cost the closed loop is at -0.999."""
    p, _ = riccati(*(np.array([[each]]) for each in (a, b, q, r)))
    middle = q * b**2 - (1 - a**2) * r
    assert_allclose(p, (middle + np.sqrt(middle**2 + 4 * b**2 * q * r)) / (2 * b**2), rtol=1e-12)


def test_lyapunov_sum_against_scipy():
    a, b, q, r = problem(1, 4, 2)
    closed = a - b @ np.asarray(riccati(a, b, q, r)[1])
    assert_allclose(lyapunov_sum(jnp.asarray(closed), jnp.asarray(q)), solve_discrete_lyapunov(closed.T, q), rtol=1e-11)


@pytest.mark.medium
def test_derivatives_of_the_riccati_solution():
    matrices, direction = problem(7, 3, 2), problem(8, 3, 2)

    def along(s):
        p, k = discrete_riccati(*(each + s * d for each, d in zip(matrices, direction, strict=True)))
        return jnp.concatenate([p.ravel(), k.ravel()])

    slope = jax.jacfwd(along)
    compiled = jax.jit(lambda s: (along(s), slope(s), jax.jacrev(along)(s), jax.jacfwd(slope)(s)))
    h, at = 1e-4, lambda s: [np.asarray(each) for each in compiled(np.array(s))]
    _, forward, reverse, second = at(0.0)
    size = np.max(np.abs(forward))
    assert_allclose(forward, reverse, rtol=1e-11, atol=1e-11 * size)
    # Richardson's extrapolation of central differences: an error of order h^4, and rounding over h.
    ahead, behind, near, before = (at(step) for step in (h, -h, h / 2, -h / 2))
    for k, exactly, bound in ((0, forward, 1e-9), (1, second, 1e-8)):
        wide, narrow = (ahead[k] - behind[k]) / (2 * h), (near[k] - before[k]) / h
        assert_allclose(exactly, (4 * narrow - wide) / 3, rtol=0, atol=bound * np.max(np.abs(exactly)))


@pytest.fixture(scope="module")
def unstable():
    """The fixed point 1 - 1/r of the logistic map, with the multiplier 2 - r = -1.9."""
    return hj.periodic_orbit(
        hj.ReturnMap(MAP, sequence=("m",), integrator=CLOCK), jnp.array([0.74, 0.0]), {"r": jnp.array(3.9)}
    )


@pytest.mark.medium
def test_feedback_of_a_map_in_closed_form(unstable):
    feedback = hj.control.stride_feedback(unstable, where=lambda p: p["r"])
    a, b = -1.9, (1 - 1 / 3.9) / 3.9
    middle = b**2 - (1 - a**2)
    p = (middle + np.sqrt(middle**2 + 4 * b**2)) / (2 * b**2)
    gain = a * b * p / (1 + b**2 * p)
    assert feedback.result == RESULTS.successful
    assert_allclose(feedback.gain[0, 0], gain, rtol=1e-11)
    assert_allclose(feedback.multipliers[0], a - b * gain, rtol=1e-11)
    assert_allclose(feedback.cost[0, 0], p, rtol=1e-11)
    assert "dr = " in str(feedback) and "without feedback 1.9" in str(feedback)


@pytest.mark.medium
def test_the_nonlinear_map_is_stabilized(unstable):
    feedback = hj.control.stride_feedback(unstable, where=lambda p: p["r"], control_cost=0.1 * jnp.eye(1))
    x = jnp.array([0.75, 0.0])
    loop = feedback.simulate(x, 60)
    r = 3.9 - float(feedback.gain[0, 0]) * (0.75 - float(unstable.x[0]))
    assert_allclose(loop.x[1, 0], r * 0.75 * 0.25, rtol=1e-13)
    assert_allclose(loop.x[-1], unstable.x, rtol=0, atol=1e-14)
    rates = np.abs(np.diff(np.asarray(loop.x)[:12, 0]))
    # Near the fixed point each stride shrinks the deviation by the multiplier.
    assert_allclose(rates[9] / rates[8], abs(feedback.multipliers[0]), rtol=1e-2)
    alone = feedback.simulate(x, 60, closed=False, throw=False)
    assert np.all(np.asarray(alone.controls) == 0) and abs(float(alone.x[-1, 0] - unstable.x[0])) > 1e-3


@pytest.mark.medium
def test_feedback_under_vmap_and_grad():
    def radius(r):
        guess = jnp.stack([1 - 1 / r, 0 * r])
        orbit = hj.periodic_orbit(hj.ReturnMap(MAP, sequence=("m",), integrator=CLOCK), guess, {"r": r}, throw=False)
        return jnp.max(jnp.abs(hj.control.stride_feedback(orbit, where=lambda p: p["r"]).multipliers))

    r = jnp.array([3.2, 3.6, 3.9])
    found, slope = jax.jit(jax.vmap(jax.value_and_grad(radius)))(r)

    # The closed form again, differentiated by JAX.
    @jax.jit
    @jax.vmap
    @jax.value_and_grad
    def closed(r):
        a, b = 2 - r, (1 - 1 / r) / r
        middle = b**2 - (1 - a**2)
        p = (middle + jnp.sqrt(middle**2 + 4 * b**2)) / (2 * b**2)
        return jnp.abs(a - b * a * b * p / (1 + b**2 * p))

    expected, expected_slope = closed(r)
    assert_allclose(found, expected, rtol=1e-11)
    assert_allclose(slope, expected_slope, rtol=1e-9)


@pytest.mark.medium
def test_parameters_that_do_not_act():
    """A parameter that multiplies zero: no feedback, and a code; a stable orbit needs none."""
    idle = map_of(lambda x, p: logistic(x, p) + 0 * p["idle"])
    for r, code in ((3.9, RESULTS.not_stabilized), (2.5, RESULTS.successful)):
        params = {"r": jnp.array(r), "idle": jnp.array(1.0)}
        orbit = hj.periodic_orbit(
            hj.ReturnMap(idle, sequence=("m",), integrator=CLOCK), jnp.array([1 - 1 / r, 0.0]), params
        )
        assert hj.control.stride_feedback(orbit, where=lambda p: p["idle"], throw=False).result == code


@pytest.mark.medium
@pytest.mark.parametrize("angle", [1.0, 2.0, 3.0])
def test_a_centre_that_is_not_controlled(angle):
    """A turn, which nothing makes decay: its multipliers have the modulus 1 up to rounding of either sign."""
    cos, sin = np.cos(angle), np.sin(angle)
    turn = lambda x: jnp.stack([cos * x[0] - sin * x[1], sin * x[0] + cos * x[1]])
    year = hj.Mode(lambda t, x, p: jnp.append(0 * x[:2], jnp.ones_like(x[2])), ("x", "y", "clock"))
    reset = lambda t, x, p: jnp.append(turn(x) + 0 * p, 0 * x[2])
    system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[2], reset),))
    step = hj.ReturnMap(system, sequence=("year",), integrator=CLOCK)
    orbit = hj.periodic_orbit(step, jnp.zeros(3), jnp.array(1.0))
    found = hj.control.stride_feedback(orbit, where=lambda p: p, throw=False)
    assert found.result == RESULTS.not_stabilized


@pytest.mark.medium
def test_the_short_gait_walks(walker):
    """By the slope of the ground, chosen once per step, the unstable short gait is stable; without feedback it is left."""
    orbit = walker["short_0.009"]
    feedback = hj.control.stride_feedback(orbit, where=lambda p: p.slope, control_cost=jnp.eye(1))
    assert feedback.result == RESULTS.successful
    assert orbit.spectral_radius > 3 and np.max(np.abs(feedback.multipliers)) < 0.5
    assert_allclose(feedback.by_state, orbit.return_jacobian, rtol=1e-9, atol=1e-9)
    # The orbit's own derivative by the slope, by differences of order 4 between orbits: (I - A) dx = B. Relative to the slope a
    # spacing of 1/300, whose fourth power is 1e-10; the orbits' rounding of 1e-14 divided by 3e-5.
    h, slope = 3e-5, float(orbit.params.slope)
    at = lambda slope: np.asarray(hj.periodic_orbit(simplest_walker.step, orbit.x, simplest_walker.Params(slope)).x)
    moved = (8 * (at(slope + h) - at(slope - h)) - (at(slope + 2 * h) - at(slope - 2 * h))) / (12 * h)
    assert_allclose((np.eye(4) - orbit.return_jacobian) @ moved, feedback.by_control[:, 0], rtol=1e-8, atol=1e-9)
    x = simplest_walker.after_strike(orbit.params, orbit.x[0] + 1e-3, orbit.x[1])
    loop, alone = feedback.simulate(x, 30), feedback.simulate(x, 30, closed=False, throw=False)
    assert np.all(np.asarray(loop.result._value) == 0)
    assert_allclose(loop.x[-1], orbit.x, rtol=0, atol=1e-11)
    gone = np.max(np.abs(np.asarray(alone.x) - np.asarray(orbit.x)), axis=1)
    assert not np.all(gone < 0.02)


def test_misuse(unstable):
    with pytest.raises(ValueError, match=r"state_cost of shape \(1, 1\) must have the shape \(2, 2\)"):
        hj.control.stride_feedback(unstable, where=lambda p: p["r"], state_cost=jnp.eye(1))
    with pytest.raises(ValueError, match="control_cost must be symmetric and positive definite"):
        hj.control.stride_feedback(unstable, where=lambda p: p["r"], control_cost=-jnp.eye(1))
    feedback = hj.control.stride_feedback(unstable, where=lambda p: p["r"])
    with pytest.raises(ValueError, match="strides=0 must be an integer of at least 1"):
        feedback.simulate(unstable.x, 0)
    with pytest.raises(ValueError, match=r"x0 of shape \(3,\)"):
        feedback.simulate(jnp.zeros(3), 4)
    batch = jax.tree.map(lambda leaf: leaf[None], unstable)
    with pytest.raises(ValueError, match="this is a batch of 1 orbits"):
        hj.control.stride_feedback(batch, where=lambda p: p["r"])
    failed = feedback.simulate(jnp.array([0.5, np.nan]), 3, throw=False)
    assert_array_equal(np.asarray(failed.result._value) != 0, True)
