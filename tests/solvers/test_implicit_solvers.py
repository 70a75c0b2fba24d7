"""Stiff flows by implicit solvers: closed forms of a hopper's stance and of a nonlinear equation, derivatives, failing lanes."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import stiff_hopper as hopper
from numpy.testing import assert_allclose
from systems import leave

import hyjax as hj

RESULTS = hj.RESULTS
KVAERNO5 = hj.Integrator(dfx.Kvaerno5(), rtol=1e-12, atol=1e-12)
# By what a local error grows to an event's is some ten to a hundred: of the force, the end of the stance takes the rate.
ERROR = 1e-10


def hop(z):
    """`(y, v, duration)` after a stride, of the start's `(y, v)`, the stiffness and the part of the speed that is kept."""
    p = hopper.params() | {"k": z[2], "e": z[3]}
    through = hj.ReturnMap(hopper.system, sequence=hopper.sequence, integrator=KVAERNO5)(z[:2], p)
    return jnp.append(through.x, through.time), through


Z = np.array([*hopper.START, hopper.VALUES["k"], hopper.VALUES["e"]])


def exact_hop(*z):
    y, v, k, e = z
    return mp.matrix(hopper.exact_stride(y, v, hopper.VALUES | {"k": k, "e": e}))


def derivative(order):
    """The closed form's derivatives of that order, by differences in 60 digits."""
    with mp.workdps(60):
        if order == 0:
            return np.array([float(each) for each in exact_hop(*Z)])
        found = np.zeros((3,) + (4,) * order)
        for index in np.ndindex(*(4,) * order):
            counts = tuple(index.count(i) for i in range(4))
            for i in range(3):
                found[(i, *index)] = mp.diff(lambda *z: exact_hop(*z)[i], tuple(Z), counts)  # noqa: B023
        return found


def to_second_order(fn):
    """Of a `fn` that returns `(value, more)`: Jacobian in reverse mode, Hessian, and `more`, by one program."""

    def jacobian(z, *values):
        reverse, more = jax.jacrev(fn, has_aux=True)(z, *values)
        return reverse, (reverse, more)

    def whole(z, *values):
        hessian, (reverse, more) = jax.jacfwd(jacobian, has_aux=True)(z, *values)
        return reverse, hessian, more

    return jax.jit(whole)


@pytest.mark.medium
def test_stride_of_a_stiff_hopper():
    """Value, the Jacobian forward and reverse, and the Hessian, through touch-down, a stiff stance and lift-off."""

    def numbers(z):
        value, through = hop(z)
        return value, (value, through)

    reverse, hessian, (value, through) = to_second_order(numbers)(jnp.asarray(Z))
    forward = jax.jit(jax.jacfwd(lambda z: hop(z)[0]))(jnp.asarray(Z))
    assert_allclose(value, derivative(0), rtol=0, atol=ERROR)
    jacobian = derivative(1)
    assert_allclose(forward, jacobian, rtol=0, atol=ERROR * np.max(np.abs(jacobian)))
    assert_allclose(reverse, forward, rtol=0, atol=1e-12)
    exact = derivative(2)
    assert_allclose(hessian, exact, rtol=0, atol=1e-9 * np.max(np.abs(exact)))
    # The force, of a size of 20, is zero to rounding where the foot leaves the ground.
    assert np.abs(through.impacts[1].x[2]) <= 20e-14


# z' = -r (z^3 - (a cos t)^3) - a sin t from z = a: z = a cos t, however stiff (Prothero, Robinson, 1974); z = q at arccos(q / a).


def follow(t, x, p):
    return -p["r"] * (x**3 - (p["a"] * jnp.cos(t)) ** 3) - p["a"] * jnp.sin(t)


following = leave(follow, 1, lambda t, x, p: x[0] - p["q"])


def test_a_stiff_component_is_not_amplified():
    """x' = r (cos t - x) with r = 1e10 follows cos t + sin t / r to rounding; a sum over the stages has their rounding times h r,
    2e-11."""
    system = hj.HybridSystem({"m": hj.Mode(lambda t, x, p: p * (jnp.cos(t) - x), ("x",))}, ())
    # The error of steps that are as long as the tolerance allows is above the rounding, 2e-14.
    integrator = hj.Integrator(dfx.Kvaerno5(), rtol=1e-8, atol=1e-8, max_step=1e-3)
    ended = hj.simulate(system, jnp.ones(1), jnp.array(1e10), mode="m", t1=1.0, integrator=integrator)
    assert ended.result == RESULTS.successful
    assert_allclose(ended.final, np.cos(1) + np.sin(1) / 1e10, rtol=0, atol=1e-15)


@pytest.mark.medium
def test_nonlinear_stages():
    """Newton's method on equations that are not linear, and derivatives of their solutions, to second order."""

    def time(u, stiffness):
        p = {"a": u[0], "q": u[1], "r": stiffness}
        met = hj.flow_to_guard(following, "free", 0.0, u[:1], p, integrator=KVAERNO5).t
        return met, met

    u, compiled = jnp.array([1.2, 0.4]), to_second_order(time)
    exact = lambda u: (jnp.arccos(u[1] / u[0]),) * 2
    exact_slope, exact_curvature, exact_value = to_second_order(exact)(u)
    for stiffness in (1.0, 1e2, 1e4):
        slope, curvature, value = compiled(u, jnp.array(stiffness))
        assert_allclose(value, exact_value, rtol=0, atol=1e-11)
        # An event's derivatives divide by the field at the event, in which the state's error counts as often as it is stiff.
        assert_allclose(slope, exact_slope, rtol=0, atol=1e-12 * max(stiffness, 10))
        assert_allclose(curvature, exact_curvature, rtol=0, atol=1e-11 * max(stiffness, 10) ** 2)


@pytest.mark.slow
def test_gradients_through_implicit_steps():
    """Reverse mode through the steps themselves, and forward mode over it: the same steps, the same derivatives."""

    def derivatives(adjoint):
        integrator = hj.Integrator(dfx.Kvaerno5(), rtol=1e-6, atol=1e-6, max_steps=256, **adjoint)

        def time(u):
            p = {"a": u[0], "q": u[1], "r": jnp.array(1e2)}
            return hj.flow_to_guard(following, "free", 0.0, u[:1], p, integrator=integrator).t

        def gradient(u):
            slope = jax.grad(time)(u)
            return slope, slope

        return jax.jit(jax.jacfwd(gradient, has_aux=True))(jnp.array([1.2, 0.4]))

    for got, expected in zip(derivatives({"adjoint": dfx.DirectAdjoint()}), derivatives({}), strict=True):
        assert_allclose(got, expected, rtol=0, atol=1e-11 * np.max(np.abs(expected)))


# Failures


@eqx.filter_jit
def lanes(k, r):
    """Strides and their Jacobians, of a batch of springs and lags."""

    def one(k, r):
        p = hopper.params() | {"k": k, "r": r}
        integrator = hj.Integrator(dfx.Kvaerno5(), rtol=1e-8, atol=1e-8, max_time=5.0)

        def through(x):
            stride = hj.ReturnMap(hopper.system, sequence=hopper.sequence, integrator=integrator)(x, p, throw=False)
            return stride.x, stride

        jacobian, stride = jax.jacfwd(through, has_aux=True)(jnp.array(hopper.START))
        return stride, jacobian

    return jax.vmap(one)(k, r)


@pytest.mark.medium
def test_failing_lanes_do_not_touch_their_neighbours():
    """A leg that pulls, and one whose numbers overflow: each ends with its code, and the hoppers beside it as without it."""
    k, r = np.array([200.0, -5.0, 200.0, 300.0]), np.array([1e4, 1e4, np.inf, 1e3])
    through, jacobian = lanes(jnp.asarray(k), jnp.asarray(r))
    codes = (RESULTS.successful, RESULTS.no_crossing, RESULTS.nonfinite, RESULTS.successful)
    for i, code in enumerate(codes):
        assert (through.result == code)[i]
        assert np.all(np.isfinite(jacobian[i]) if code == RESULTS.successful else np.isnan(through.x[i]))
    healed, sound = lanes(jnp.asarray(np.where(k < 0, 200.0, k)), jnp.asarray(np.where(np.isinf(r), 1e4, r)))
    for i in (0, 3):
        assert np.array_equal(through.x[i], healed.x[i]) and np.array_equal(jacobian[i], sound[i])
