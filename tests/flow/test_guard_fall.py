"""The predicted fall of a guard: the polynomial through three points, and what it foresees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import fall_ahead, GuardValues, predicted_fall, quintic, value_and_slope
from hyjax.models import bouncing_ball, simplest_walker

YES = jnp.array([True])


def evaluate_guards(guard, t):
    """A guard, given as a numpy polynomial, at the time t."""
    return GuardValues(jnp.asarray(t), jnp.array([guard(t)]), jnp.array([guard.deriv()(t)]))


@pytest.mark.parametrize("before", [-0.03, -0.7, -40.0])
def test_the_polynomial_of_degree_five_is_its_own(before):
    guard = np.polynomial.Polynomial([0.3, -0.4, 0.2, -0.5, 0.1, 0.07])
    coefficients = quintic(evaluate_guards(guard, before), evaluate_guards(guard, 0.1), evaluate_guards(guard, 0.9))
    for v in (-0.4, 0.0, 0.37, 1.0, 1.8):
        t = 0.1 + 0.8 * v
        value, slope = value_and_slope(coefficients, jnp.array([v]))
        # Rounding of the value at the point before, over the square of its distance from the others.
        assert_allclose(value, guard(t), rtol=0, atol=1e-12)
        assert_allclose(slope, 0.8 * guard.deriv()(t), rtol=0, atol=1e-11)


def test_without_a_point_apart_it_is_the_cubic():
    guard, other = np.polynomial.Polynomial([1.0, -0.4, 0.2, -0.5]), np.polynomial.Polynomial([0.0, 0, 0, 0, 3.0])
    lo, hi = evaluate_guards(guard, 0.0), evaluate_guards(guard, 0.8)
    # At the start; nearer than a hundredth of the step; and a point whose values are not finite.
    broken = GuardValues(jnp.array(-1.0), jnp.array([jnp.inf]), jnp.array([jnp.nan]))
    for before in (lo, evaluate_guards(other, -0.007), broken):
        value, slope = value_and_slope(quintic(before, lo, hi), jnp.array([0.3]))
        assert_allclose(value, guard(0.24), rtol=1e-15)
        assert_allclose(slope, 0.8 * guard.deriv()(0.24), rtol=1e-14)


def test_a_fall_in_the_step_is_predicted_to_sixth_order():
    """cos t in steps of h, which falls through 1/2 in the last: the errors of h and h/2 are as 64 to 1."""
    at = lambda t: GuardValues(jnp.asarray(t), jnp.cos(jnp.array([t])) - 0.5, -jnp.sin(jnp.array([t])))
    errors = []
    for h in (0.8, 0.4):
        start = np.pi / 3 - 0.4 * h
        before, lo, hi = (
            GuardValues(each.dt - start, each.g, each.r) for each in map(at, (start - h, start, start + h))
        )
        errors.append(abs(float(predicted_fall(YES, before, lo, hi)) - 0.4 * h))
    assert errors[0] < 1e-4
    assert 40 < errors[0] / errors[1] < 100


def test_what_is_foreseen():
    ball = np.polynomial.Polynomial([1.0, 0.0, -0.5])
    start, end = evaluate_guards(ball, 0.0), evaluate_guards(ball, 0.5)
    fall = lambda within, falling=YES, s=start, e=end: float(fall_ahead(falling, s, s, e, jnp.asarray(within)))
    # Newton's third step from the fall of a straight line, 1.75 ahead.
    assert_allclose(fall(2.0), np.sqrt(2) - 0.5, rtol=5e-5)
    assert fall(0.9) == np.inf
    assert fall(2.0, jnp.array([False])) == np.inf
    # A guard that turns just above zero, and one that turns just below, where it falls slowly.
    for least in (1e-3, -1e-3):
        turns = np.polynomial.Polynomial([1.0 + least, -2.0, 1.0])
        assert fall(2.0, s=evaluate_guards(turns, 0.0), e=evaluate_guards(turns, 0.5)) == np.inf
    rises = np.polynomial.Polynomial([1.0, 1.0])
    assert fall(2.0, falling=jnp.array([False]), s=evaluate_guards(rises, 0.0), e=evaluate_guards(rises, 0.5)) == np.inf


@pytest.mark.medium
def test_numbers_of_tries():
    """Of strides that begin within 1 % of a gait: a short first step, four of 0.73 to 0.88, one to just beyond the surface, and
    one onto it. A ball's polynomial is exact."""
    params = simplest_walker.Params(jnp.asarray(0.009))
    # The gait after a strike, to three digits, and the manifold of such states.
    theta, rate = np.array([[0.2003], [-0.1998]]) * (1 + 0.01 * np.random.default_rng(0).uniform(-1, 1, (2, 20)))
    starts = np.stack([theta, rate, 2 * theta, (1 - np.cos(2 * theta)) * rate], axis=1)
    integrator = hj.Integrator(rtol=3e-8, atol=3e-8)
    stride = lambda x: hj.ReturnMap(simplest_walker.system, sequence=simplest_walker.sequence, integrator=integrator)(
        x, params
    )
    assert_array_equal(jax.jit(jax.vmap(stride))(jnp.asarray(starts)).impacts[0].steps, 7)
    params = bouncing_ball.Params()
    ball = bouncing_ball.step(bouncing_ball.guess(params), params)
    assert ball.impacts[0].steps == 5


def above(field, offset=0.0):
    """`(x, p) -> Impact` with the surface `x[0] = offset`, of a field `(t, x, p)` of a position and its rate."""
    modes = {"fall": hj.Mode(field, ("x", "v")), "rest": hj.Mode(lambda t, x, p: 0 * x, ("x", "v"))}
    land = hj.Transition("fall", "rest", lambda t, x, p: x[0] - offset, lambda t, x, p: x)
    system = hj.HybridSystem(modes, (land,))
    return lambda x, p, **options: hj.flow_to_guard(
        system, "fall", 0.0, x, p, integrator=hj.Integrator(max_time=10.0, unroll=False, **options), throw=False
    )


@pytest.mark.medium
def test_a_lane_does_not_depend_on_its_neighbours():
    """Forced oscillators, beside others and beside copies of themselves, in one program: which surfaces are near is asked of the
    batch, which are aimed at of each lane."""
    run = above(lambda t, x, p: jnp.stack([x[1], -(p[0] ** 2) * x[0] + p[1] * jnp.cos(p[2] * t)]), -0.7)
    batch = jax.jit(jax.vmap(lambda x, p: run(x, p, rtol=1e-6, atol=1e-6)))
    random = np.random.default_rng(3)
    count = 64
    x = jnp.asarray(random.uniform([0.2, -1], [1, 1], (count, 2)))
    p = jnp.asarray(random.uniform([0.5, 0.5, 0.3], [2, 3, 2], (count, 3)))
    together = batch(x, p)
    assert len(set(np.asarray(together.steps).tolist())) > 3
    for k in range(count):
        alone = batch(jnp.broadcast_to(x[k], (count, 2)), jnp.broadcast_to(p[k], (count, 3)))
        assert_array_equal(alone.t[0], together.t[k])
        assert_array_equal(alone.steps[0], together.steps[k])


def test_the_surface_of_a_sharp_change_is_reached_in_few_tries():
    """A ball above a spring, which begins at the surface: a step that ends just beyond is rejected, one that ends just before is
    not, and from there the surface is near."""
    run = above(lambda t, x, p: jnp.stack([x[1], -p[0] + p[1] ** 2 * jnp.maximum(-x[0], 0)]))
    p = jnp.array([0.309, 94.4])
    x = jnp.array([1.965, -1.758])
    met = run(x, p, rtol=1e-10, atol=1e-10)
    fall = (x[1] + jnp.sqrt(x[1] ** 2 + 2 * p[0] * x[0])) / p[0]
    assert_allclose(met.t, fall, rtol=1e-13)
    assert met.steps <= 13
