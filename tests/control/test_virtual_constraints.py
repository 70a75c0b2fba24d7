"""Virtual constraints of a cart with a pendulum, and of bodies with nonlinear outputs, against formulas written out by hand."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.contact import lagrangian, Mechanism
from hyjax.control import bezier, virtual_constraints

CURVE = (0.3, -0.9, 0.4, 0.2)


class Params(eqx.Module):
    mass: jax.Array = hj.parameter(1.3)
    length: jax.Array = hj.parameter(0.8)
    drag: jax.Array = hj.parameter(0.0)
    curve: jax.Array = hj.parameter(CURVE)
    stiffness: jax.Array = hj.parameter(30.0)


def energy(q, v, p):
    """A cart of mass 2 and a pendulum that hangs from it; the angle is from below."""
    bob = jnp.stack([q[0] + p.length * jnp.sin(q[1]), -p.length * jnp.cos(q[1])])
    rate = jnp.stack([v[0] + p.length * jnp.cos(q[1]) * v[1], p.length * jnp.sin(q[1]) * v[1]])
    return v[0] ** 2 + p.mass * rate @ rate / 2 - p.mass * 9.81 * bob[1]


CART = lagrangian(energy, lambda t, q, v, p: -p.drag * v)
PUSH = np.array([[1.0], [0.0]])


def desired(theta, p):
    return bezier(p.curve[None], (theta + 1) / 2)


def law(mechanism=CART, **changed):
    given: dict[str, Any] = {
        "inputs": PUSH, "phase": lambda q, p: q[1], "desired": desired, "stiffness": lambda p: p.stiffness, "damping": 9.0
    }  # fmt: skip
    return virtual_constraints(mechanism, **given | changed)


LAW = law()


def test_bezier_is_the_sum_of_bernstein_polynomials():
    rng = np.random.default_rng(0)
    for degree in (0, 1, 5, 9):
        alpha, s = rng.normal(size=(3, degree + 1)), rng.uniform(-0.3, 1.3, 20)
        k = np.arange(degree + 1)
        weights = np.array([math.comb(degree, i) for i in k]) * s[:, None] ** k * (1 - s[:, None]) ** (degree - k)
        # Beyond the ends terms of the size of 2^9 cancel.
        assert_allclose(jax.vmap(lambda s, a=alpha: bezier(jnp.asarray(a), s))(s), weights @ alpha.T, atol=1e-12)
    slope = jax.jacfwd(lambda s: bezier(jnp.asarray(alpha), s))
    assert_allclose(slope(0.0), 9 * (alpha[:, 1] - alpha[:, 0]), rtol=1e-13)
    assert_allclose(slope(1.0), 9 * (alpha[:, -1] - alpha[:, -2]), rtol=1e-13)


def by_hand(q, v, p):
    """The linearizing force of the cart: $u = (L_gL_fh)^{-1}(-K_p y - K_d y' - L_f^2h)$, from the inverse mass matrix."""
    m, l, s, c = float(p.mass), float(p.length), np.sin(q[1]), np.cos(q[1])
    inverse = np.linalg.inv([[2 + m, m * l * c], [m * l * c, m * l**2]])
    force = np.array([m * l * s * v[1] ** 2, -m * 9.81 * l * s]) - float(p.drag) * v
    curve = np.polynomial.Polynomial([0])
    for k, a in enumerate(CURVE):
        x = np.polynomial.Polynomial([0.5, 0.5])
        curve = curve + a * math.comb(3, k) * x**k * (1 - x) ** (3 - k)
    row = np.array([1.0, -curve.deriv()(q[1])])
    y, rate = q[0] - curve(q[1]), row @ v
    drift = row @ inverse @ force - curve.deriv(2)(q[1]) * v[1] ** 2
    return (-float(p.stiffness) * y - 9.0 * rate - drift) / (row @ inverse[:, 0]), y, rate


def test_the_force_is_that_of_the_formula():
    p, rng = Params(drag=0.4), np.random.default_rng(1)
    q, v = rng.uniform(-1, 1, (2, 30, 2))
    u = jax.jit(jax.vmap(lambda q, v: LAW.control(jnp.array(0.0), q, v, p)))(q, v)
    y, rate = jax.vmap(lambda q, v: LAW.error(q, v, p))(q, v)
    exact = np.array([by_hand(*each, p) for each in zip(q, v, strict=True)])
    # Where the decoupling is a tenth, terms of the size of 100 cancel.
    assert_allclose(np.column_stack([u, y, rate]), exact, rtol=1e-11, atol=1e-11)


def test_the_outputs_obey_the_linear_equation():
    """With nonlinear outputs and phase, two inputs of three, a matrix of inputs that depends on the place, and Coriolis terms; by
    the accelerations and by those of the driven bodies."""
    bodies = Mechanism(
        lambda q, p: jnp.diag(jnp.array([2.0, 1.0, 3.0])) + 0.3 * jnp.outer(jnp.sin(q), jnp.sin(q)),
        lambda t, q, v, p: jnp.stack([jnp.sin(t), -q[0], v[1]]),
    )
    gains = jnp.array([40.0, 10.0])
    free = virtual_constraints(
        bodies,
        inputs=lambda q, p: jnp.stack([jnp.stack([1 + 0 * q[0], q[1]]), jnp.array([0.2, 1.0]), jnp.zeros(2)]),
        phase=lambda q, p: q[2] + 0.1 * q[0] ** 2,
        outputs=lambda q, p: jnp.stack([q[0] + jnp.sin(q[2]), q[1] * q[0]]) + jnp.array([0.0, 2.0]) * q[1],
        desired=lambda theta, p: jnp.stack([jnp.sin(p * theta), theta**3]),
        stiffness=gains,
        damping=lambda p: 2 * jnp.sqrt(gains),
    )
    q, v = np.random.default_rng(2).uniform(-0.6, 0.6, (2, 10, 3))
    t, p = jnp.array(0.7), jnp.array(1.2)

    def lane(q, v):
        a = free.acceleration(t, q, v, p)
        (y, rate), (_, second) = jax.jvp(lambda q, v: free.error(q, v, p), (q, v), (v, a))
        return second + gains * y + 2 * jnp.sqrt(gains) * rate, a - free.driven.acceleration(t, q, v, p)

    for zero in jax.jit(jax.vmap(lane))(q, v):
        assert_allclose(zero, 0, atol=1e-11)


@pytest.mark.medium
def test_feedforward_and_proportional_feedback():
    """The force written out; and with the force of the surface for a feedforward the bodies stay on the surface."""
    p = Params()
    mixed = law(feedforward=lambda t, q, v, p: jnp.stack([p.length * t]))
    t, q, v = jnp.array(2.0), jnp.array([0.3, 0.2]), jnp.array([-0.1, 0.5])
    (_, y, rate), u = by_hand(q, v, p), mixed.control(t, q, v, p)
    assert_allclose(u, [0.8 * 2 - 30 * y - 9 * rate], rtol=1e-13)
    pushed = CART.acceleration(t, q, v, p) + np.linalg.solve(CART.mass(q, p), PUSH @ u)
    assert_allclose(mixed.acceleration(t, q, v, p), pushed, rtol=1e-12)
    exact = law(feedforward=lambda t, q, v, p: LAW.control(t, *LAW.on_surface(q[1], v[1], p), p))
    q, v = LAW.on_surface(jnp.array(0.4), jnp.array(-1.1), p)
    assert_allclose(exact.acceleration(t, q, v, p), LAW.acceleration(t, q, v, p), rtol=1e-12)


def test_the_phase_on_the_surface_moves_as_the_bodies_do():
    """The surface, and the acceleration of the phase, against an integration of cart and pendulum."""
    p = Params()
    q, v = LAW.on_surface(jnp.array(-0.5), jnp.array(2.5), p)
    assert_allclose(np.concatenate(LAW.error(q, v, p)), 0, atol=1e-15)
    field = jax.jit(lambda t, x: jnp.concatenate([x[2:], LAW.acceleration(t, x[:2], x[2:], p)]))
    alone = jax.jit(lambda t, x: jnp.stack([x[1], LAW.zero_dynamics(x[0], x[1], p)]))
    solved = lambda f, x: scipy.integrate.solve_ivp(f, (0.0, 0.3), x, "DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    whole, phase = solved(field, np.concatenate([q, v])), solved(alone, np.array([-0.5, 2.5]))
    assert_allclose(whole[[1, 3]], phase, rtol=0, atol=1e-10)


@pytest.mark.medium
def test_the_gait_by_quadrature_is_that_by_integration():
    """A reset that returns the pendulum to -0.6 with a part of its speed, onto the surface: the multiplier by differences of the
    map of the phase's energy, and the period."""
    p, back, kept = Params(), -0.6, 0.7

    def reset(t, x, p):
        return jnp.concatenate(LAW.on_surface(jnp.asarray(back), kept * x[3], p))

    def gait(p):
        return LAW.hybrid_zero_dynamics(reset, jnp.array(-0.1), p)

    found = jax.jit(gait)(p)
    alone = jax.jit(lambda t, x: jnp.stack([x[1], LAW.zero_dynamics(x[0], x[1], p)]))

    def ends(rate):
        meets = lambda t, x: x[0] + 0.1
        meets.terminal, meets.direction = True, 1  # pyright: ignore[reportFunctionMemberAccess]
        run = scipy.integrate.solve_ivp(alone, (0.0, 9.0), [back, rate], "DOP853", rtol=1e-12, atol=1e-12, events=meets)
        return run.t[-1], run.y[1, -1]

    time, rate = ends(found.rates[0])
    assert_allclose([time, kept * rate], [found.period, found.rates[0]], rtol=1e-9)
    assert_allclose([found.rates[-1], found.times[-1]], [rate, time], rtol=1e-9)
    energy = lambda e: ends(math.sqrt(2 * e) * kept)[1] ** 2 / 2
    e = float(found.rates[-1]) ** 2 / 2
    assert_allclose((energy(e * 1.01) - energy(e * 0.99)) / (0.02 * e), found.multiplier, rtol=1e-8)
    assert found.defect < 1e-14
    assert_allclose(found.x, jnp.concatenate(LAW.on_surface(jnp.asarray(back), found.rates[0], p)), rtol=1e-14)
    # The derivative of the period, through the quadrature, by the length.
    slope = jax.grad(lambda length: gait(Params(length=length)).period)(0.8)
    assert_allclose(slope, (gait(Params(length=0.801)).period - gait(Params(length=0.799)).period) / 0.002, rtol=1e-4)


@pytest.mark.medium
def test_no_gait_has_a_code():
    """The phase falls on its way and gains speed at the impact, or the impact turns it back; or a damper acts."""

    def gait(kept, drag, throw=False):
        reset = lambda t, x, p: jnp.concatenate(LAW.on_surface(jnp.array(-0.6), kept * x[3], p))
        return LAW.hybrid_zero_dynamics(reset, jnp.array(-0.1), Params(drag=drag), throw=throw)

    found = jax.jit(jax.vmap(gait))(jnp.array([0.7, 4.0, -0.7, 4.0]), jnp.array([0.0, 0.0, 0.0, 0.4]))
    assert str(found.result) == "1 successful, 1 nonfinite, 2 no_gait" and (found.result == "nonfinite")[3]
    assert list(np.isfinite(found.multiplier)) == [True, True, True, False] and np.all(np.isfinite(found.defect))
    for each in (found.period[:, None], found.x, found.rates):
        assert np.all(np.isfinite(each[0])) and np.all(np.isnan(each[1:]))
    with pytest.raises(hj.SolveError, match="hybrid_zero_dynamics: no_gait: The zero dynamics have no gait"):
        gait(4.0, 0.0, throw=True)


@pytest.mark.medium
def test_an_unstable_gait_is_a_gait():
    """From the lowest point to the top the phase loses energy, which the impact restores by the factor 4: a step that begins with
    the gait's speed ends with it, and the multiplier is above 1."""
    reset = lambda t, x, p: jnp.concatenate(LAW.on_surface(jnp.array(0.1), 2 * x[3], p))
    gait = LAW.hybrid_zero_dynamics(reset, jnp.array(0.6), Params())
    assert gait.multiplier > 1 and np.all(np.isfinite([gait.period, *gait.x, *gait.rates]))
    assert_allclose(gait.rates[0], 2 * gait.rates[-1], rtol=1e-14)


@pytest.mark.parametrize("dtype, mass", [("float32", 1e5), ("float64", 1e9), ("float64", 1e-9)])
def test_the_unit_of_mass_does_not_matter(dtype, mass):
    bodies = Mechanism(lambda q, p: p * jnp.eye(2, dtype=dtype))
    held = virtual_constraints(bodies, inputs=np.eye(2, 1), phase=lambda q, p: q[1], desired=lambda s, p: 0 * s[None],
                               stiffness=1.0, damping=1.0)  # fmt: skip
    state = jnp.zeros((), dtype), jnp.array([1.0, 0.0], dtype), jnp.zeros(2, dtype), jnp.array(mass, dtype)
    assert_allclose(held.control(*state), [-mass], rtol=1e-6)
    assert_allclose(held.acceleration(*state), [-1.0, 0.0], rtol=1e-6)


def test_singular_decoupling_is_nan():
    """An output on which the force on the cart does not act: the momentum's part of it vanishes where the pendulum is level; and
    outputs for which no configuration is given."""
    p, t = Params(), jnp.array(0.0)
    angle = law(outputs=lambda q, p: q[1:], desired=lambda theta, p: jnp.zeros(1))
    level = jnp.array([0.1, np.pi / 2])
    assert np.all(np.isnan(angle.control(t, level, jnp.ones(2), p)))
    assert np.all(np.isfinite(angle.control(t, jnp.array([0.1, 1.0]), jnp.ones(2), p)))
    bent = law(outputs=lambda q, p: jnp.sin(q[:1]))
    assert np.all(np.isnan(bent.on_surface(jnp.array(0.3), jnp.array(1.0), p)[0]))
    given = law(
        outputs=lambda q, p: jnp.sin(q[:1]),
        configuration=lambda theta, p: jnp.concatenate([jnp.arcsin(desired(theta, p)), theta[None]]),
    )
    assert_allclose(np.concatenate(given.error(*given.on_surface(jnp.array(0.3), jnp.array(1.0), p), p)), 0, atol=1e-15)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"phase": 3}, r"phase must be a function of .*, not 3"),
        ({"desired": None}, r"desired must be a function of .*, not None"),
        ({"feedforward": 0.0}, r"feedforward must be a function of .*, not 0\.0"),
        ({"inputs": np.ones(2)}, r"inputs of shape \(2,\) must be a matrix of shape \(m, k\)"),
        ({"inputs": np.ones((2, 3))}, r"inputs of shape \(2, 3\)"),
        ({"mechanism": 3}, r"must be a hj\.contact\.Mechanism"),
    ],
)
def test_bad_arguments(changed, message):
    with pytest.raises(ValueError, match=message):
        law(**changed)


def test_shapes_that_do_not_fit():
    state = jnp.array(0.0), jnp.zeros(2), jnp.zeros(2), Params()
    with pytest.raises(ValueError, match=r"the desired values \(1,\); they have \(2, 1\) and \(2,\)"):
        law(desired=lambda theta, p: jnp.zeros(2)).control(*state)
    with pytest.raises(ValueError, match=r"must have the shape \(2, 1\)"):
        law(inputs=np.ones((3, 1)), outputs=lambda q, p: q[:1]).control(*state)
    # Two inputs less than coordinates.
    three = Mechanism(lambda q, p: jnp.eye(3))
    with pytest.raises(ValueError, match=r"one input less than coordinates; the inputs' matrix has the shape \(3, 1\)"):
        law(three, inputs=np.eye(3, 1), outputs=lambda q, p: q[:1]).zero_dynamics(
            jnp.array(0.1), jnp.array(1.0), Params()
        )
    free = {"outputs": lambda q, p: q[:1], "configuration": lambda s, p: jnp.stack([*desired(s, p), s, 0 * s])}
    with pytest.raises(ValueError, match="one input less than coordinates"):
        law(three, inputs=np.eye(3, 1), **free).zero_dynamics(jnp.array(0.1), jnp.array(1.0), Params())
    with pytest.raises(ValueError, match=r"bezier: coefficients must have the shape"):
        bezier(jnp.zeros(3), jnp.array(0.0))


@pytest.mark.medium
def test_a_simulation_approaches_the_surface_as_the_linear_equation_says():
    """y'' + 9 y' + 14 y = 0 has the rates -2 and -7."""
    p = Params(stiffness=14.0)
    q, v = LAW.on_surface(jnp.array(-0.3), jnp.array(0.2), p)
    x0 = jnp.concatenate([q + jnp.array([0.1, 0.0]), v])
    field = lambda t, x, p: jnp.concatenate([x[2:], LAW.acceleration(t, x[:2], x[2:], p)])
    system = hj.HybridSystem(
        {"swing": hj.Mode(field, ("x", "angle", "x_rate", "angle_rate"))},
        (hj.Transition("swing", "swing", lambda t, x, p: 100 - x[0], lambda t, x, p: x),),
    )
    run = hj.simulate(system, x0, p, mode="swing", t1=0.5, max_jumps=1, integrator=hj.Integrator(unroll=False))
    y, rate = LAW.error(run.final[:2], run.final[2:], p)
    a, b = 0.7 / 5, -0.2 / 5
    assert_allclose(y, a * np.exp(-1) + b * np.exp(-3.5), rtol=1e-11)
    assert_allclose(rate, -2 * a * np.exp(-1) - 7 * b * np.exp(-3.5), rtol=1e-11)
