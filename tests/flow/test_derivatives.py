"""Derivatives of events, strides and orbits, of first and higher order, in every mode, against other routes to them."""

import functools as ft

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from readme import factor_of_a_loose_event
from reference import case
from systems import leave, line, oscillate, ROLLED, SPRING, spring, spring_closed_over, spring_orbit, with_tolerance

import hyjax as hj
from hyjax.models import bouncing_ball, simplest_walker

WALKER = simplest_walker.system


def walker_stride(x, slope, integrator=ROLLED):
    """The state after a stride, and its time: five numbers of five numbers."""
    params = simplest_walker.Params(slope)
    through = hj.ReturnMap(WALKER, sequence=("swing",), integrator=integrator)(x, params)
    return jnp.append(through.x, through.time)


@jax.jit
@jax.vmap
def stride_of(z):
    return walker_stride(z[:4], z[4])


@jax.jit
@jax.vmap
def forward_jacobian(z):
    return jax.jacfwd(lambda z: walker_stride(z[:4], z[4]))(z)


@jax.jit
def forward_over_reverse(z):
    """The Hessian, and the Jacobian that it is the derivative of."""

    def reverse(z):
        jacobian = jax.jacrev(lambda z: walker_stride(z[:4], z[4]))(z)
        return jacobian, jacobian

    return jax.jacfwd(reverse, has_aux=True)(z)


# Directions in which a start stays on the section phi = 2 theta: above it, the guard would fall at once.
ALONG = np.array([[1, 0, 2, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 1.0]])


# Derivatives of the stride grow by about 1e3 from order to order, more in the short gait, which nearly grazes. So
# differences of eighth order: at this spacing their truncation, h^8 / 630 times the ninth derivative, is 1e-12 of the first.
SPACING = 3e-5
STENCIL = {1: 4 / 5, 2: -1 / 5, 3: 4 / 105, 4: -1 / 280}


def central_difference(f, z):
    """df along each of those directions, by central differences in one batch. `f` maps `(batch, n)`."""
    stencil = STENCIL | {-k: -weight for k, weight in STENCIL.items()}
    values = np.asarray(f(jnp.asarray(np.concatenate([z + k * SPACING * ALONG for k in stencil]))))
    values = values.reshape(len(stencil), len(ALONG), *values.shape[1:])
    return np.moveaxis(np.tensordot(np.array(list(stencil.values())), values, 1) / SPACING, 0, -1)


def start_near(gait):
    """A start near a gait, a little off it, and the slope."""
    return np.append(case("B_simplest_walker", gait)["x0"] * np.array([1, 1.01, 1, 0.97]), 0.0091)


@pytest.fixture(scope="module", params=["long_0.009", "short_0.009"])
def start(request):
    return start_near(request.param)


# The stride of the simplest walker


def test_jacobian_against_differences(start):
    jacobian = np.asarray(forward_jacobian(jnp.asarray(start[None]))[0])
    # The values' rounding, up to 1e-13 where the guard is met slowly, over the spacing: 3e-9, of entries near 1e2.
    differences = central_difference(stride_of, start)
    assert_allclose(jacobian @ ALONG.T, differences, rtol=0, atol=1e-10 * np.max(np.abs(jacobian)))


@pytest.mark.medium
def test_reverse_is_forward():
    z = jnp.asarray(start_near("long_0.009"))
    # The same Jacobian, transposed: other roundings of entries near 10.
    assert_allclose(forward_over_reverse(z)[1], forward_jacobian(z[None])[0], rtol=0, atol=1e-12)


@pytest.mark.medium
def test_hessian(start):
    """Symmetric, and the derivative of the Jacobian: one Newton step after a stopped gradient would give neither."""
    hessian = np.asarray(forward_over_reverse(jnp.asarray(start))[0])
    size = np.max(np.abs(hessian))
    assert size > 1e2
    assert_allclose(hessian, np.swapaxes(hessian, 1, 2), rtol=0, atol=1e-12 * size)
    # As above: the Jacobian's rounding, 1e-12, over the spacing is 3e-8, of entries near 3e3 and more.
    differences = central_difference(forward_jacobian, start)
    assert_allclose(hessian @ ALONG.T, differences, rtol=0, atol=1e-10 * size)


TOLERANCES = np.array([1e-6, 1e-8, 1e-10, 1e-12])


@jax.jit
@ft.partial(jax.vmap, in_axes=(None, None, 0))
def loose_stride(x, slope, tolerance):
    """The time of a stride, and the Jacobian of its state."""
    integrator = with_tolerance(hj.Integrator(solver=dfx.Tsit5(), unroll=False), tolerance)

    def through(x):
        end = walker_stride(x, slope, integrator)
        return end[:4], end[4]

    jacobian, time = jax.jacfwd(through, has_aux=True)(x)
    return time, jacobian


@pytest.mark.medium
@pytest.mark.parametrize("gait", ["long_0.009", "short_0.009"])
def test_multipliers_are_as_good_as_the_event(gait):
    """At any tolerance. (Through an interpolant they would be worse than the event by a factor 500 to 4000.)"""
    record = case("B_simplest_walker", gait)
    values = record["eigenvalues"]["re"] + 1j * record["eigenvalues"]["im"]
    time, jacobian = loose_stride(jnp.asarray(record["x0"]), jnp.asarray(record["gamma"]), jnp.asarray(TOLERANCES))
    time_error = np.abs(time - record["T"])
    multipliers = np.linalg.eigvals(jacobian)
    multipliers = np.take_along_axis(multipliers, np.argsort(-np.abs(multipliers.round(6)), axis=1, kind="stable"), 1)
    got, expected = np.sort_complex(multipliers[:, :2]), np.sort_complex(values[:2])
    error = np.max(np.abs(got - expected), axis=1)
    assert np.all(time_error < 1e3 * TOLERANCES)
    assert np.all(error < factor_of_a_loose_event() * time_error), error / time_error


# The spring from (1, 0) to y = q, then back to y = 1 with r times the speed.


def spring_stride(params, system=spring, integrator=ROLLED):
    through = hj.ReturnMap(system, sequence=("free",), integrator=integrator)(jnp.array([1.0, 0.0]), params)
    return jnp.append(through.x, through.time)


def spring_exact(p):
    """(1, -r sqrt(k (1 - q^2)), arccos(q) / sqrt(k))."""
    return jnp.stack(
        [jnp.ones(()), -p["r"] * jnp.sqrt(p["k"] * (1 - p["q"] ** 2)), jnp.arccos(p["q"]) / jnp.sqrt(p["k"])]
    )


@pytest.mark.medium
@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_parameters_of_field_guard_and_reset(jacobian):
    got, expected = jax.jit(jacobian(spring_stride))(SPRING), jax.jacfwd(spring_exact)(SPRING)
    for name in SPRING:
        assert_allclose(got[name], expected[name], rtol=1e-13, atol=1e-14)


@pytest.mark.medium
def test_second_derivatives_in_parameters():
    got, expected = jax.jit(jax.hessian(spring_stride))(SPRING), jax.hessian(spring_exact)(SPRING)
    for a in SPRING:
        for b in SPRING:
            assert_allclose(got[a][b], expected[a][b], rtol=1e-12, atol=1e-13)


@pytest.mark.medium
def test_gradient_of_a_batch():
    """The gradient of a sum over `vmap`."""
    k = jnp.linspace(0.5, 3, 7)
    loss = lambda k: spring_stride(SPRING | {"k": k}) @ jnp.array([1.0, 2.0, 3.0])
    exact = lambda k: spring_exact(SPRING | {"k": k}) @ jnp.array([1.0, 2.0, 3.0])
    expected = jax.vmap(jax.grad(exact))(k)
    # Near k = 2 the three terms of the sum, of size 4, cancel to 0.02: rounding is that of the terms.
    assert_allclose(jax.jit(jax.grad(lambda k: jnp.sum(jax.vmap(loss)(k))))(k), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.medium
def test_any_leaves_among_the_parameters():
    """A whole number or a function has no derivative, and does not prevent those of the others."""
    system = leave(oscillate, 2, lambda t, x, p: x[0] - p["shape"](p["q"] ** p["power"]))
    params = {"power": jnp.array(2), "shape": jnp.negative}

    def time(q):
        return hj.flow_to_guard(system, "free", 0.0, jnp.array([1.0, 0.0]), params | {"q": q}, integrator=ROLLED).t

    # T = arccos(-q^2)
    both = jax.jit(lambda q: jnp.stack([jax.jacfwd(time)(q), jax.grad(time)(q)]))
    assert_allclose(both(0.6), 1.2 * (1 - 0.6**4) ** -0.5, rtol=1e-13)


# The other ways to differentiate a flow

ADJOINTS = {"direct": dfx.DirectAdjoint(), "checkpoint": dfx.RecursiveCheckpointAdjoint()}


@pytest.mark.medium
@pytest.mark.parametrize("name", ADJOINTS)
def test_gradients_through_the_steps_in_parameters(name):
    integrator = hj.Integrator(max_steps=128, adjoint=ADJOINTS[name])
    got = jax.jit(jax.jacrev(ft.partial(spring_stride, integrator=integrator)))(SPRING)
    expected = jax.jacfwd(spring_exact)(SPRING)
    for each in SPRING:
        assert_allclose(got[each], expected[each], rtol=1e-13, atol=1e-14)


@pytest.mark.medium
def test_forward_and_second_derivatives_through_the_steps():
    """DirectAdjoint serves both modes, nested."""
    integrator = hj.Integrator(max_steps=128, adjoint=dfx.DirectAdjoint())
    time = lambda q: spring_stride(SPRING | {"q": q}, integrator=integrator)[2]
    exact = lambda q: spring_exact(SPRING | {"q": q})[2]
    q = SPRING["q"]
    first, second = jax.jit(lambda q: (jax.jacfwd(time)(q), jax.hessian(time)(q)))(q)
    assert_allclose(first, jax.grad(exact)(q), rtol=1e-13)
    assert_allclose(second, jax.hessian(exact)(q), rtol=1e-12)


# Functions that close over what is differentiated


@pytest.mark.medium
def test_closed_over_parameters_in_a_batch():
    k = jnp.linspace(0.5, 3, 5)
    got = jax.jit(jax.vmap(jax.grad(lambda k: spring_stride(None, spring_closed_over(SPRING | {"k": k}))[2])))(k)
    expected = jax.vmap(jax.grad(lambda k: spring_exact(SPRING | {"k": k})[2]))(k)
    assert_allclose(got, expected, rtol=1e-13)


@pytest.mark.medium
def test_closed_over_parameters_of_an_orbit():
    """In reverse mode, which goes by way of the forward one. (By a backward pass through the steps: `test_reverse.py`.)"""

    def start(p):
        orbit = hj.periodic_orbit(
            hj.ReturnMap(spring_closed_over(p), sequence=("free",), integrator=ROLLED),
            jnp.array([1.0, 1.2]),
            None,
            throw=False,
        )
        found = jnp.append(orbit.x[1], orbit.period)
        return found, found

    got, found = jax.jit(jax.jacrev(start, has_aux=True))(SPRING)
    assert_allclose(found, spring_orbit(SPRING), rtol=1e-13)
    expected = jax.jacfwd(spring_orbit)(SPRING)
    for name in SPRING:
        assert_allclose(got[name], expected[name], rtol=1e-12)


@pytest.mark.medium
def test_second_derivatives_through_a_scan_of_arcs():
    """Forward over reverse, where JAX loses the rules of custom derivatives within a scan; u' = 1, reset to 0 at u = p.

    After three resets u(t) = t - 3p; with the reset u -> u^2 p at p, u(t) = t - p + c(c(c)), a polynomial in p.
    """
    system = leave(line, 1, lambda t, x, p: p - x[0])

    def end(p):
        def one(carry, _):
            t, x = carry
            impact = hj.flow_to_guard(system, "free", t, x, p, integrator=ROLLED)
            return (impact.t, p * impact.x**2), None

        (t, x), _ = jax.lax.scan(one, (jnp.zeros(()), jnp.zeros(1)), length=3)
        return t + x[0]

    # Arcs of p, p - p^3 and p - p^3; the last reset gives p^3.
    exact = lambda p: 3 * p - p**3
    p = jnp.array(0.6)
    for inner in (jax.jacfwd, jax.jacrev):
        assert_allclose(jax.jit(jax.jacfwd(inner(end)))(p), jax.hessian(exact)(p), rtol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("staged", [False, True], ids=["plain", "jit"])
def test_a_batch_that_does_not_reach_the_flow(staged):
    """Restitution acts after the fall from height 1: the speed after the impact is e sqrt(2 g), in every lane."""

    def speed(e):
        params = bouncing_ball.Params(restitution=e)
        return hj.ReturnMap(bouncing_ball.system, sequence=("flight",), integrator=ROLLED)(
            jnp.array([1.0, 0.0]), params
        ).x[1]

    def total(lanes):
        return jnp.sum(jax.vmap(speed)(lanes))

    lanes = jnp.array([0.7, 0.8, 0.9])
    falls = jnp.sqrt(2 * bouncing_ball.Params().gravity)
    for derivative in (jax.grad(total), jax.jacfwd(total)):
        assert_allclose((jax.jit(derivative) if staged else derivative)(lanes), jnp.full(3, falls), rtol=1e-13)
    # The flow to the guard alone: its time does not depend on the lane.
    fall = lambda e: (
        hj.flow_to_guard(
            bouncing_ball.system,
            "flight",
            0.0,
            jnp.array([1.0, 0.0]),
            bouncing_ball.Params(restitution=e),
            integrator=ROLLED,
        ).t
    )
    assert_allclose(jax.grad(lambda lanes: jnp.sum(jax.vmap(fall)(lanes)))(lanes), 0, atol=1e-15)
