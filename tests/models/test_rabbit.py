"""RABBIT against numbers made without hyjax, in `rabbit_reference.json`: mass matrix and forces by three other programs; the gait
by quadrature in 40 digits and by an integration with the variational equations. And two routes to its multiplier."""

import dataclasses
import json
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import rabbit

REFERENCE = json.loads((pathlib.Path(__file__).parents[1] / "rabbit_reference.json").read_text())
# In 22 digits, of which these are the first.
MULTIPLIER, PERIOD, LENGTH = 0.6173914423177391066, 0.510539053865709382, 0.38290293049413586
RATES = 1.186006264388544943, 1.584650216758705599
BEFORE = [0.1753403972791646, 0.049928, 0.101114, -0.572142, 0.369998, -0.8150340908715596, 1.195910003154633,
          2.407548608951264, 5.097025920837761, -13.08993456612535]  # fmt: skip
AFTER = [0.1753403972791646, -0.572142, 0.369998, 0.049928, 0.101114, -0.2383782418093331, 1.666692944508746,
         -0.4846168766217351, -0.08770298274222341, 2.708644550716617]  # fmt: skip
IMPULSE = -8.443667071473533, 21.24777439545395
PARAMS = rabbit.Params()


@pytest.mark.parametrize("state", REFERENCE["states"])
def test_the_free_robot_is_that_of_other_programs(state):
    q, v = jnp.array(state["q"]), jnp.array(state["v"])
    assert_allclose(rabbit.free.mass(q, PARAMS), state["M"], rtol=0, atol=1e-14)
    # Of forces of 300 N the programs differ by 6e-14.
    assert rabbit.free.coriolis is not None
    assert_allclose(rabbit.free.coriolis(q, v, PARAMS), state["bias"], rtol=0, atol=2e-13)


def test_the_pinned_robot_is_the_free_one_with_its_foot_held():
    """The equations written out, and those reduced by the embedding; the momenta that the strike conserves, and the impulse that
    stops the foot: in random states."""
    q, v = np.random.default_rng(0).normal(size=(2, 20, 5))
    reduced = rabbit.free.reduced(rabbit.pinned)

    def lane(q, v):
        t, x = jnp.array(0.0), jnp.concatenate([q, v])
        both = [each.acceleration(t, q, v, PARAMS) for each in (reduced, rabbit.constraints.mechanism)]
        whole, rates = jax.jvp(lambda q: rabbit.pinned(q, PARAMS), (q,), (v,))
        # A foot that rises is not struck; the momenta do not know.
        rising = rates - jnp.zeros_like(rates).at[1].set(9.0)
        struck, _ = hj.contact.impact(rabbit.free, whole, rates, PARAMS, rabbit.lands)
        pushed, _ = hj.contact.impact(rabbit.free, whole, rising, PARAMS, rabbit.lands)
        foot = jax.jvp(lambda q: rabbit.swing_foot(q, PARAMS), (whole,), (pushed,))[1]
        falls = jax.jvp(lambda q: rabbit.swing_foot(q, PARAMS), (whole,), (rates,))[1][1] < 0
        return both, struck[2:][rabbit.LEGS] - rabbit.strike(t, x, PARAMS)[5:], foot, falls

    (one, other), difference, foot, falls = jax.jit(jax.vmap(lane))(q, v)
    # The mass matrices have conditions of some hundred.
    assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    assert 5 <= np.sum(falls) <= 15
    assert_allclose(difference[falls], 0, atol=1e-12)
    assert_allclose(foot, 0, atol=1e-12)


def test_the_strike_and_its_impulse():
    assert_allclose(rabbit.strike(0.0, jnp.array(BEFORE), PARAMS), AFTER, rtol=0, atol=5e-14)
    tangential, normal = IMPULSE
    assert_allclose(rabbit.strike_impulse(jnp.array(BEFORE), PARAMS), [normal, tangential], rtol=1e-13)
    assert_allclose(rabbit.foothold(jnp.array(BEFORE), PARAMS), [LENGTH, 0], rtol=0, atol=1e-15)


@pytest.mark.medium
def test_default_curves_are_invariant():
    derived = jax.jit(rabbit.invariant)(PARAMS)
    # Rates of 13 rad/s have a rounding of 2e-15, of which the coefficients have a tenth.
    assert_allclose(jax.tree.leaves(derived), jax.tree.leaves(PARAMS), rtol=0, atol=1e-13)
    other = rabbit.invariant(dataclasses.replace(PARAMS, shank_length=jnp.array(0.42), hip2_4=jnp.array(-0.8)))
    walks = rabbit.constraints.hybrid_zero_dynamics(rabbit.strike, other.phase_stop, other)
    assert walks.defect < 1e-12 and 0.4 < walks.multiplier < 0.8
    assert abs(other.knee2_1 - PARAMS.knee2_1) > 1e-2 and abs(other.phase_stop - PARAMS.phase_stop) > 1e-3


@pytest.fixture(scope="module")
def walk():
    return jax.jit(lambda p: rabbit.constraints.hybrid_zero_dynamics(rabbit.strike, p.phase_stop, p))(PARAMS)


def test_the_gait_on_the_surface(walk):
    assert_allclose(walk.multiplier, MULTIPLIER, rtol=1e-14 * 5)
    assert_allclose([walk.period, walk.rates[0], walk.rates[-1]], [PERIOD, *RATES], rtol=2e-14)
    assert_allclose(walk.x, AFTER, rtol=0, atol=5e-14)
    assert walk.defect < 1e-12


def test_single_precision():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), PARAMS)
    found = jax.jit(lambda p: rabbit.constraints.hybrid_zero_dynamics(rabbit.strike, p.phase_stop, p))(params)
    kinds = {leaf.dtype for leaf in jax.tree.leaves((found, rabbit.invariant(params)))}
    assert kinds == {np.dtype(np.float32), found.result._value.dtype}
    # A sum of 48 terms.
    assert_allclose([found.multiplier, found.period], [MULTIPLIER, PERIOD], rtol=48 * 6e-8)


@pytest.fixture(scope="module")
def along(walk):
    """State, torques and ground force by the phase of the gait."""
    rate = scipy.interpolate.BarycentricInterpolator(np.asarray(walk.phases), np.asarray(walk.rates))

    @jax.jit
    def known(theta, rate):
        x = jnp.concatenate(rabbit.constraints.on_surface(theta, rate, PARAMS))
        return x, rabbit.torques(0.0, x, PARAMS), rabbit.ground_force(0.0, x, PARAMS)

    return lambda theta: jax.tree.map(np.asarray, known(jnp.asarray(theta), jnp.asarray(float(rate(theta)))))


def test_torques_and_ground_forces(along):
    """The reference's states are integrated in time, and differ from the surface by its errors of 3e-13, times the gains."""
    for sample in REFERENCE["samples"]:
        x, u, force = along(sample["theta"])
        assert_allclose(x, sample["y"] + sample["ydot"], rtol=0, atol=2e-12)
        assert_allclose(u, sample["u"], rtol=0, atol=1e-10)
        assert_allclose(force, sample["F"], rtol=0, atol=1e-10)


def test_extremes_and_cost(along, walk):
    thetas = np.asarray(walk.phases)
    known = [along(theta) for theta in thetas]
    u, force = (np.array([each[k] for each in known]) for k in (1, 2))
    for i, most in enumerate((20.672697130, 20.019832579, 15.641875325, 11.036838312)):
        near = np.abs(u[:, i]).argmax()
        around = thetas[max(near - 1, 0)], thetas[min(near + 1, len(thetas) - 1)]
        best = scipy.optimize.minimize_scalar(
            lambda theta, i=i: -abs(along(theta)[1][i]), bounds=around, method="bounded", options={"xatol": 1e-9}
        )
        assert_allclose(max(-best.fun, abs(u[near, i])), most, rtol=0, atol=1e-9)
    ratio = np.abs(force[:, 0]) / force[:, 1]
    assert_allclose([force[-1, 1], force[0, 1]], [175.559209843, 323.471929053], rtol=0, atol=1e-9)
    assert force[:, 1].argmin() == len(thetas) - 1 == ratio.argmax() and force[:, 1].argmax() == 0
    assert_allclose(ratio[-1], 0.500010191, rtol=0, atol=1e-9)
    # By time, over the points of the quadrature: their times are smooth in the phase.
    squares = scipy.interpolate.BarycentricInterpolator(thetas, np.sum(u**2, axis=1) / np.asarray(walk.rates))
    nodes, weights = np.polynomial.legendre.leggauss(30)
    half = (thetas[-1] - thetas[0]) / 2
    cost = half * weights @ squares(thetas[0] + half * (1 + nodes)) / LENGTH
    assert_allclose(cost, 309.818976459, rtol=0, atol=1e-8)


def by_modulus(values):
    return sorted(values, key=lambda value: (-abs(value), value.imag))


@pytest.mark.medium
def test_the_multipliers_of_the_full_map():
    """Of ten, one is that of the closed form."""
    orbit = hj.periodic_orbit(rabbit.step, rabbit.guess(PARAMS), PARAMS)
    assert_allclose(orbit.x, AFTER, rtol=0, atol=2e-13)
    assert_allclose(orbit.period, PERIOD, rtol=1e-13)
    assert_allclose(orbit.multipliers[0], MULTIPLIER, rtol=0, atol=1e-12)
    known = [complex(*each) for each in REFERENCE["multipliers"]]
    # The reference's variational equations have errors of 1e-12, which a matrix with entries of some hundred enlarges.
    assert_allclose(by_modulus(np.asarray(orbit.multipliers)), by_modulus(known), rtol=0, atol=1e-9)
    assert_allclose(hj.objectives.speed(rabbit.travel)(orbit, PARAMS), 0.7499973363347311, rtol=1e-12)


def closed_form(mass):
    params = rabbit.invariant(dataclasses.replace(PARAMS, torso_mass=mass))
    return rabbit.constraints.hybrid_zero_dynamics(rabbit.strike, params.phase_stop, params).multiplier


@pytest.mark.medium
def test_the_derivative_of_the_closed_form():
    values = jax.jit(jax.vmap(closed_form))(12 + jnp.array([-2.0, -1.0, 1.0, 2.0]) * 1e-2)
    slope = jax.jit(jax.grad(closed_form))(jnp.array(12.0))
    # Differences of the fourth order; rounding of 1e-14 over the step.
    assert_allclose(slope, np.array([1, -8, 8, -1]) @ np.asarray(values) / 0.12, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_the_derivative_of_a_multiplier_is_that_of_the_closed_form():
    """By the mass of the torso, with the curves that are then invariant: by the full return map, and on the surface."""

    def full(mass):
        params = rabbit.invariant(dataclasses.replace(PARAMS, torso_mass=mass))
        orbit = hj.periodic_orbit(rabbit.step, rabbit.guess(PARAMS), params, throw=False)
        return jnp.real(orbit.multipliers[0])

    value, slope = jax.jvp(full, (jnp.array(12.0),), (jnp.array(1.0),))
    assert_allclose(value, MULTIPLIER, rtol=0, atol=1e-12)
    assert_allclose(slope, jax.jit(jax.grad(closed_form))(jnp.array(12.0)), rtol=0, atol=1e-10)


@pytest.mark.slow
def test_coefficients_that_change_from_step_to_step():
    """Event-based updates: the middle of two curves, which leaves the invariance as it is, makes the gait more stable."""
    orbit = hj.periodic_orbit(rabbit.step, rabbit.guess(PARAMS), PARAMS)
    feedback = hj.control.stride_feedback(orbit, where=lambda p: (p.hip1_3, p.knee2_3), control_cost=0.01 * jnp.eye(2))
    assert np.abs(feedback.multipliers[0]) < 0.5 < abs(orbit.multipliers[0])
    faster = jnp.concatenate(rabbit.constraints.on_surface(PARAMS.phase_start, 1.02 * jnp.array(RATES[0]), PARAMS))
    off = lambda closed: np.abs(feedback.simulate(faster, 4, closed=closed).x[-1] - orbit.x).max()
    assert off(True) < 0.5 * off(False)


def test_parameters_out_of_range():
    with pytest.raises(ValueError, match=r"phase_start=0\.5 must be less than phase_stop="):
        rabbit.Params(phase_start=0.5)
    with pytest.raises(ValueError, match=r"shank_mass=0\.0 must be positive"):
        rabbit.Params(shank_mass=0.0)


def test_a_robot_that_lies_is_outside_the_domain():
    x = rabbit.guess(PARAMS).at[0].add(jnp.pi)
    assert rabbit.hip_height(0.0, x, PARAMS) < 0 < rabbit.hip_height(0.0, rabbit.guess(PARAMS), PARAMS)
    assert eqx.tree_equal(rabbit.outline("swing", x, PARAMS)["hip"][0], rabbit.to_hip(x[:5], PARAMS))
