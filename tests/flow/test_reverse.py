"""Derivatives by backward passes through the steps: of strides, simulations and orbits, by few and by many parameters."""

import re

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose
from systems import SPRING, spring, spring_closed_over, spring_orbit
from test_multimode import FORCED, forced, forced_stride, SEQUENCE

import hyjax as hj
from hyjax.models import bouncing_ball, rimless_wheel, simplest_walker

ADJOINTS = dfx.ForwardMode(), dfx.RecursiveCheckpointAdjoint()
FORWARD, CHECKPOINT = (hj.Integrator(adjoint=adjoint) for adjoint in ADJOINTS)
# Programs that run once: what counts is the time to compile them.
ROLLED, ROLLED_CHECKPOINT = (hj.Integrator(unroll=False, adjoint=adjoint) for adjoint in ADJOINTS)
# Programs that are read and do not run: these are the shortest.
SHORT, SHORT_CHECKPOINT = (
    hj.Integrator(dfx.Euler(), controller=dfx.ConstantStepSize(), first_step=0.01, unroll=False, adjoint=adjoint)
    for adjoint in ADJOINTS
)


def floats(params):
    """All numbers of some parameters in one array, and back."""
    moving, still = eqx.partition(params, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(moving)
    return flat, lambda flat: eqx.combine(unravel(flat), still)


# Steps are not adapted again on the way back


@pytest.mark.slow
def test_backward_passes_take_the_steps_that_were_taken():
    """Variations of a network's flow: compiled into the backward pass, its error estimates have other roundings, and steps that
    were adapted to them once more would end elsewhere. (So the derivative was once wrong in its third digit.)"""
    n, width, rng = 4, 8, np.random.default_rng(0)
    weights = {
        "a": jnp.asarray(rng.normal(size=(width, n)) / 2),
        "b": jnp.asarray(rng.normal(size=(width, width)) / np.sqrt(width)),
        "c": jnp.asarray(rng.normal(size=(n, width)) / np.sqrt(width)),
    }
    x0 = jnp.concatenate([jnp.asarray(rng.normal(size=n)), jnp.eye(n).reshape(-1)])
    along = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), weights)

    def network(x, p):
        return p["c"] @ jnp.tanh(p["b"] @ jnp.tanh(p["a"] @ x))

    def field(t, x, p):
        x, *variations = x.reshape(n + 1, n)
        moved = [jax.jvp(lambda x: network(x, p), (x,), (v,))[1] for v in variations]
        return jnp.concatenate([network(x, p), *moved])

    names = tuple(f"x{i}" for i in range(n * (n + 1)))
    until = hj.Transition("free", "free", guard=lambda t, x, p: 4.0 - t, reset=lambda t, x, p: x)
    system = hj.HybridSystem({"free": hj.Mode(field, names)}, (until,))

    def size(p, integrator):
        return jnp.sum(hj.ReturnMap(system, sequence=("free",), integrator=integrator)(x0, p).x ** 2)

    gradient = jax.jit(jax.grad(size), static_argnums=1)(weights, CHECKPOINT)
    got = sum(jnp.sum(gradient[key] * along[key]) for key in weights)
    expected = jax.jit(lambda: jax.jvp(lambda p: size(p, FORWARD), (weights,), (along,))[1])()
    # The same steps, each with its derivative: some fifty roundings.
    assert_allclose(got, expected, rtol=1e-13)


# Reverse is forward


# Each adjoint has its own assembly of the equations. (Four parameters are compared with differences below.)
@pytest.mark.slow
def test_an_orbit_of_two_modes_and_two_strides():
    """The second stride starts later, through modes of two dimensions and of one, by multiple shooting: state and period by all
    parameters, from the closed form of one stride."""

    def found(p):
        orbit = hj.periodic_orbit(
            hj.ReturnMap(forced, sequence=SEQUENCE, strides=2, integrator=ROLLED_CHECKPOINT),
            jnp.array([0.0, 2.2]),
            p,
            method=hj.MultipleShooting(),
            throw=False,
        )
        return jnp.append(orbit.nodes[1], orbit.period)

    got, values = jax.jit(jax.jacrev(lambda p: (found(p),) * 2, has_aux=True))(FORCED)
    by_x, by_p = jax.jacfwd(lambda x, p: forced_stride(x, p)[:2], argnums=(0, 1))(values[:2], FORCED)
    for name in FORCED:
        expected = np.append(np.linalg.solve(np.eye(2) - by_x, by_p[name]), 2.0 if name == "tau" else 0.0)
        # The nodes of multiple shooting are on the orbit to its residual, and not to rounding.
        assert_allclose(got[name], expected, rtol=1e-11, atol=1e-11)


class Weighted(eqx.Module):
    """The slope, and the weights of a network that turns the hip."""

    slope: jax.Array
    hip: eqx.nn.MLP


def turn_hip(t, x, params):
    return simplest_walker.swing(t, x, params).at[3].add(0.01 * params.hip(x))


walker_with_network = hj.HybridSystem(
    {"swing": hj.Mode(turn_hip, simplest_walker.coordinates)},
    (hj.Transition("swing", "swing", simplest_walker.foot_height, simplest_walker.heel_strike),),
)


def weighted(width):
    network = eqx.nn.MLP(4, "scalar", width, 2, activation=jnp.tanh, key=jax.random.key(0))
    double = lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf
    return Weighted(jnp.asarray(0.009), jax.tree.map(double, network))


def network_gait(system, params, integrator, guess=None):
    guess = simplest_walker.guess(simplest_walker.Params()) if guess is None else guess
    return hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("swing",), integrator=integrator), guess, params, throw=False
    )


@pytest.mark.slow
def test_five_thousand_weights():
    """The gradient of the period, along random directions, as differences have it."""
    flat, params_of = floats(weighted(68))
    assert flat.size > 5000

    @jax.jit
    @jax.value_and_grad
    def loss(flat):
        return network_gait(walker_with_network, params_of(flat), ROLLED_CHECKPOINT).period

    _, gradient = loss(flat)
    for seed in range(3):
        direction = jax.random.normal(jax.random.key(seed), flat.shape)
        # A direction of five thousand numbers is seventy long.
        spacing = 1e-4
        value = {k: float(loss(flat + k * spacing * direction)[0]) for k in (-2, -1, 1, 2)}
        difference = (8 * (value[1] - value[-1]) - (value[2] - value[-2])) / (12 * spacing)
        # The orbit's rounding over the spacing, and the spacing's fourth power.
        assert_allclose(gradient @ direction, difference, rtol=1e-7)


def program(width, quantity, integrator):
    """StableHLO of a gradient by all weights."""
    flat, params_of = floats(weighted(width))
    guess = simplest_walker.guess(simplest_walker.Params())
    gradient = jax.grad(lambda flat: quantity(network_gait(walker_with_network, params_of(flat), integrator, guess)))
    return jax.jit(gradient), flat


def largest_array(text):
    shapes = re.findall(r"tensor<((?:\d+x)+)f64>", text)
    return max(np.prod([int(length) for length in shape.split("x") if length]) for shape in shapes)


@pytest.mark.medium
def test_gradient_of_a_period_holds_no_tangents():
    """No array of the program is larger than all weights together, and the program has one size for all widths: so neither its
    memory nor its work grows faster than the weights."""
    texts = {}
    for width in (20, 68):
        gradient, flat = program(width, lambda orbit: orbit.period, SHORT_CHECKPOINT)
        texts[width] = gradient.lower(flat).as_text()
        # Below some four thousand weights, the list of steps is longer.
        assert largest_array(texts[width]) <= max(flat.size, SHORT_CHECKPOINT.max_steps)
    assert texts[68].count("\n") == texts[20].count("\n")
    # It does not call back into Python; and the backward pass through the variations is not in it, but in that of a multiplier.
    assert "callback" not in texts[20]
    gradient, flat = program(20, lambda orbit: orbit.spectral_radius, SHORT_CHECKPOINT)
    loops = lambda text: text.count("stablehlo.while")
    assert loops(texts[20]) < loops(gradient.lower(flat).as_text()) / 1.5
    # What is compared: forward mode pushes one tangent for each number, through a state of four.
    gradient, flat = program(20, lambda orbit: orbit.period, SHORT)
    assert largest_array(gradient.lower(flat).as_text()) >= 4 * flat.size


# Orbits in batches, orbits that fail, other leaves


@pytest.mark.slow
def test_a_batch_with_an_orbit_that_fails():
    """Wheels, one of them uphill: the gradient of each lane is what it is alone, and the lane without an orbit adds nothing to
    what all lanes share."""
    slopes = jnp.array([0.2, -0.3, 0.25])

    def wheel(slope):
        params = rimless_wheel.Params(slope=slope)
        return hj.periodic_orbit(
            hj.ReturnMap(rimless_wheel.system, sequence=("stance",), integrator=ROLLED_CHECKPOINT),
            jnp.array([-0.5, 0.8]),
            params,
            throw=False,
        )

    def total(slopes, scale):
        orbits = jax.vmap(wheel)(scale * slopes)
        speeds = orbits.x[:, 1] + orbits.spectral_radius
        return jnp.sum(jnp.where(orbits.result == hj.RESULTS.successful, speeds, 0)), orbits.x[:, 1]

    (each, shared), speeds = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(slopes, jnp.ones(()))
    assert np.array_equal(np.isnan(speeds), [False, True, False]) and each[1] == 0
    # The square of the speed is proportional to the sine of the slope, and the multiplier does not know the slope.
    expected = speeds[::2] / np.tan(slopes[::2]) / 2
    assert_allclose(each[::2], expected, rtol=1e-12)
    assert_allclose(shared, slopes[::2] @ expected, rtol=1e-11)


def spring_numbers(p, integrator):
    orbit = hj.periodic_orbit(
        hj.ReturnMap(spring_closed_over(p), sequence=("free",), integrator=integrator),
        jnp.array([1.0, 1.2]),
        {"power": jnp.array(2), "shape": jnp.tanh},
        throw=False,
    )
    return jnp.append(orbit.x[1], orbit.period)


@pytest.mark.medium
def test_captured_arrays_beside_leaves_that_do_not_move():
    got = jax.jit(jax.jacrev(lambda p: spring_numbers(p, ROLLED_CHECKPOINT)))(SPRING)
    expected = jax.jacfwd(spring_orbit)(SPRING)
    for each in SPRING:
        assert_allclose(got[each], expected[each], rtol=1e-12)


# What each adjoint allows


def test_recursive_checkpoints_refuse_what_they_cannot_do():
    # When they are traced, before anything is compiled.
    def time(p):
        return hj.flow_to_guard(spring, "free", 0.0, jnp.array([1.0, 1.2]), p, integrator=CHECKPOINT).t

    with pytest.raises(TypeError, match="forward-mode"):
        jax.eval_shape(jax.jacfwd(time), SPRING)
    with pytest.raises((TypeError, ValueError), match=r"forward-mode|[Rr]everse-mode"):
        jax.eval_shape(jax.jacrev(jax.jacrev(time)), SPRING)


# Jacobians and simulations


def jacobian_numbers(v, params, integrator):
    x = jnp.stack([jnp.zeros(()), v])
    jacobian = hj.ReturnMap(bouncing_ball.system, sequence=("flight",), integrator=integrator).jacobian(x, params)
    return jnp.sum(jnp.sin(jacobian))


@pytest.mark.medium
def test_jacobians_by_checkpoints():
    """Values and gradients of the Jacobian of a stride."""
    value = jax.jit(jax.value_and_grad(jacobian_numbers, argnums=(0, 1)), static_argnums=2)
    at = jnp.array(1.3), bouncing_ball.Params()
    expected, got = value(*at, ROLLED), value(*at, ROLLED_CHECKPOINT)
    assert_allclose(got[0], expected[0], rtol=1e-12)
    for each, other in zip(jax.tree.leaves(got[1]), jax.tree.leaves(expected[1]), strict=True):
        assert_allclose(each, other, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
def test_simulations():
    """Through a scan of arcs: a ball that bounces three times, its events, samples and fundamental matrix."""

    def loss(x0, params, integrator):
        drop = hj.simulate(
            bouncing_ball.system, x0, params, mode="flight", t1=2.0, integrator=integrator, max_jumps=4,
            times=jnp.array([0.3, 1.7]),
        )  # fmt: skip
        events = jnp.sum(jnp.where(drop.transitions >= 0, jnp.sin(drop.end_times), 0))
        return jnp.sum(drop.x) + events + jnp.sum(drop.samples.x), (jnp.trace(drop.fundamental_matrix()), drop.jumps)

    def gradients(integrator):
        first = jax.grad(loss, argnums=(0, 1), has_aux=True)
        return jax.jit(lambda *at: first(*at, integrator))(jnp.array([1.0, 0.3]), bouncing_ball.Params())

    expected, got = gradients(ROLLED), gradients(ROLLED_CHECKPOINT)
    assert got[1][1] == 3
    for each, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_allclose(each, other, rtol=1e-11)
