"""Derivatives by backward passes through the steps: of strides, simulations and orbits, by few and by many parameters."""

import functools as ft
import re

import diffrax as dfx
import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose
from systems import SPRING, spring_closed_over, spring_orbit

import hyjax as hj
from hyjax.models import compass_gait, duffing_impact_oscillator, simplest_walker, slip

ADJOINTS = {"direct": dfx.DirectAdjoint(), "checkpoint": dfx.RecursiveCheckpointAdjoint()}
FORWARD, DIRECT, CHECKPOINT = (hj.Integrator(adjoint=a) for a in (dfx.ForwardMode(), *ADJOINTS.values()))


def floats(params):
    """All numbers of some parameters in one array, and back."""
    moving, still = eqx.partition(params, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(moving)
    return flat, lambda flat: eqx.combine(unravel(flat), still)


# Steps are not adapted again on the way back


@pytest.mark.exhaustive
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
        return jnp.sum(hj.stride(system, x0, p, sequence=("free",), integrator=integrator).x ** 2)

    gradient = jax.jit(jax.grad(size), static_argnums=1)(weights, CHECKPOINT)
    got = sum(jnp.sum(gradient[key] * along[key]) for key in weights)
    expected = jax.jit(lambda: jax.jvp(lambda p: size(p, FORWARD), (weights,), (along,))[1])()
    # The same steps, each with its derivative: some fifty roundings.
    assert_allclose(got, expected, rtol=1e-13)


# Reverse is forward

CASES = {
    "one stride": (simplest_walker, simplest_walker.Params(), 1, hj.SingleShooting()),
    "four parameters": (compass_gait, compass_gait.Params(), 1, hj.SingleShooting()),
    "modes of two and of four dimensions": (slip, slip.Params(), 1, hj.SingleShooting()),
    "later strides start later": (
        duffing_impact_oscillator,
        duffing_impact_oscillator.Params(),
        2,
        hj.SingleShooting(),
    ),
    "multiple shooting": (simplest_walker, simplest_walker.Params(), 2, hj.MultipleShooting()),
}


def numbers(orbit):
    """What an orbit knows, but for multipliers that are zero and do not move."""
    arcs = (orbit.before, *orbit.arc_ends, orbit.elapsed)
    parts = (orbit.nodes, *arcs, orbit.starts, orbit.period, orbit.guard_rates, orbit.spectral_radius)
    return jnp.concatenate([part.reshape(-1) for part in parts])


def orbit_of(case, params, integrator):
    model, _, strides, method = CASES[case]
    return hj.periodic_orbit(
        model.system, model.guess(params), params, sequence=model.sequence, strides=strides, method=method,
        integrator=integrator, throw=False,
    )  # fmt: skip


@ft.cache
def forward_jacobian(case):
    flat, params_of = floats(CASES[case][1])
    return np.asarray(jax.jit(jax.jacfwd(lambda flat: numbers(orbit_of(case, params_of(flat), FORWARD))))(flat))


# Each adjoint has its own assembly of the equations. (Four parameters are compared with differences below.)
DIRECTLY, IN_REVERSE = (
    ("one stride",),
    ("modes of two and of four dimensions", "later strides start later", "multiple shooting"),
)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "name"), [(case, "direct") for case in DIRECTLY] + [(case, "checkpoint") for case in IN_REVERSE]
)
def test_orbits_in_reverse_are_orbits_forward(case, name):
    """State, period, guards' rates and the largest multiplier, by all parameters."""
    flat, params_of = floats(CASES[case][1])
    integrator = hj.Integrator(adjoint=ADJOINTS[name])
    reverse = jax.jit(jax.jacrev(lambda flat: numbers(orbit_of(case, params_of(flat), integrator))))(flat)
    forward = forward_jacobian(case)
    size = np.max(np.abs(forward), axis=1, keepdims=True)
    # What does not move, such as a clock before its reset, is rounding.
    size = np.where(size > 1e-12 * np.max(size), size, np.max(size))
    # Both solve with the same Jacobians. Components that reset or symmetry leave almost still are a difference of terms a hundred
    # times as large, and the multiplier's derivative has the condition of its eigenvalue. The nodes of multiple shooting are on
    # the orbit to its residual, and not to rounding.
    tolerance = 1e-10 if case == "multiple shooting" else 1e-11
    assert_allclose(reverse / size, forward / size, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_gradients_are_central_differences():
    """Without any derivative of a flow: differences of fourth order over orbits found anew."""
    flat, params_of = floats(compass_gait.Params())

    def loss(flat, integrator):
        orbit = orbit_of("four parameters", params_of(flat), integrator)
        return jnp.stack([orbit.period, orbit.x[1], orbit.guard_rates[0], orbit.spectral_radius])

    reverse = jax.jit(jax.jacrev(loss), static_argnums=1)(flat, CHECKPOINT)
    spacing = 1e-3 * np.abs(flat)
    values = jax.jit(jax.vmap(lambda flat: loss(flat, FORWARD)))
    at = lambda k: np.asarray(values(flat + k * np.diag(spacing)))
    differences = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * spacing[:, None])
    # Truncation, (1e-3)^4 of the fifth derivative, and the orbit's rounding, 1e-13, over a thousandth of the parameter.
    size = np.max(np.abs(reverse), axis=1, keepdims=True)
    assert_allclose(reverse / size, differences.T / size, rtol=0, atol=1e-8)


# Many parameters


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
    return hj.periodic_orbit(system, guess, params, sequence=("swing",), integrator=integrator, throw=False)


@pytest.mark.exhaustive
def test_five_thousand_weights():
    """The gradient of period and largest multiplier, along random directions: as forward mode and as differences have it."""
    params = weighted(68)
    flat, params_of = floats(params)
    assert flat.size > 5000
    guess = network_gait(walker_with_network, params, FORWARD).x

    def loss(orbit):
        return orbit.period + 3 * orbit.spectral_radius

    gradient = jax.jit(
        jax.grad(lambda flat: loss(network_gait(walker_with_network, params_of(flat), CHECKPOINT, guess)))
    )(flat)

    # Forward mode by one number: how far to go along a direction, of which the system's functions make the weights.
    def along(fn):
        return lambda t, x, p: fn(t, x, params_of(flat + p[0] * p[1]))

    swing, strike = walker_with_network.modes["swing"], walker_with_network.transitions[0]
    line = hj.HybridSystem(
        {"swing": hj.Mode(along(swing.vector_field), swing.coordinates)},
        (hj.Transition("swing", "swing", along(strike.guard), along(strike.reset)),),
    )
    on_line = lambda step, direction: loss(network_gait(line, (step, direction), FORWARD, guess))
    slope = jax.jit(jax.value_and_grad(on_line))
    for seed in range(3):
        direction = jax.random.normal(jax.random.key(seed), flat.shape)
        _, forward = slope(jnp.zeros(()), direction)
        # A sum of five thousand terms, of which each has the digits of an orbit's derivative.
        assert_allclose(gradient @ direction, forward, rtol=1e-10)
        # A direction of five thousand numbers is seventy long.
        spacing = 1e-4
        value = {k: float(slope(jnp.array(k * spacing), direction)[0]) for k in (-2, -1, 1, 2)}
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


def test_gradient_of_a_period_holds_no_tangents():
    """No array of the program is larger than all weights together, and the program has one size for all widths: so neither its
    memory nor its work grows faster than the weights."""
    texts = {}
    for width in (20, 68, 90):
        gradient, flat = program(width, lambda orbit: orbit.period, CHECKPOINT)
        texts[width] = gradient.lower(flat).as_text()
        # Below some four thousand weights, the list of steps is longer.
        assert largest_array(texts[width]) <= max(flat.size, CHECKPOINT.max_steps)
    assert texts[68].count("\n") == texts[20].count("\n")
    # What is compared: forward mode pushes one tangent for each number, through a state of four.
    gradient, flat = program(20, lambda orbit: orbit.period, FORWARD)
    assert largest_array(gradient.lower(flat).as_text()) >= 4 * flat.size


def test_the_return_jacobian_costs_only_those_who_ask():
    """The backward pass through the variations is not in the gradient of a period."""
    loops = {}
    for name, quantity in {"period": lambda o: o.period, "multiplier": lambda o: o.spectral_radius}.items():
        gradient, flat = program(8, quantity, CHECKPOINT)
        loops[name] = gradient.lower(flat).as_text().count("stablehlo.while")
    assert loops["period"] < loops["multiplier"] / 1.5


def test_no_program_calls_back_into_python():
    gradient, flat = program(8, lambda orbit: orbit.period, CHECKPOINT)
    exported = jax.export.export(gradient, platforms=["cuda"])(flat)
    assert "callback" not in exported.mlir_module()


# Orbits in batches, orbits that fail, other leaves


def speed(orbit):
    return orbit.x[1] + orbit.period


def walker_orbit(slope, integrator=CHECKPOINT):
    return orbit_of("one stride", simplest_walker.Params(slope), integrator)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_batch_with_an_orbit_that_fails():
    """The gradient of each lane is what it is alone; one without an orbit adds nothing to what all lanes share."""
    slopes = jnp.array([0.007, 0.4, 0.009])
    one = lambda slope: speed(walker_orbit(slope))
    each = jax.jit(jax.vmap(jax.value_and_grad(one)))
    values, gradients = each(slopes)
    assert np.isnan(values[1]) and gradients[1] == 0
    forward = jax.jit(jax.vmap(jax.grad(lambda slope: speed(walker_orbit(slope, FORWARD)))))(slopes)
    assert_allclose(gradients[::2], forward[::2], rtol=1e-12)

    def total(scale):
        orbits = jax.vmap(walker_orbit)(scale * slopes)
        each = jax.vmap(speed)(orbits) + orbits.spectral_radius
        return jnp.sum(jnp.where(orbits.result == hj.RESULTS.successful, each, 0))

    def sound(scale):
        orbits = jax.vmap(ft.partial(walker_orbit, integrator=FORWARD))(scale * slopes[::2])
        return jnp.sum(jax.vmap(speed)(orbits) + orbits.spectral_radius)

    got, expected = (jax.jit(jax.grad(fn))(jnp.ones(())) for fn in (total, sound))
    assert_allclose(got, expected, rtol=1e-11)


def spring_numbers(p, integrator):
    orbit = hj.periodic_orbit(
        spring_closed_over(p), jnp.array([1.0, 1.2]), {"power": jnp.array(2), "shape": jnp.tanh}, sequence=("free",),
        integrator=integrator, throw=False,
    )  # fmt: skip
    return jnp.append(orbit.x[1], orbit.period)


@pytest.mark.parametrize("name", ["checkpoint", pytest.param("direct", marks=pytest.mark.exhaustive)])
def test_captured_arrays_beside_leaves_that_do_not_move(name):
    got = jax.jit(jax.jacrev(lambda p: spring_numbers(p, hj.Integrator(adjoint=ADJOINTS[name]))))(SPRING)
    expected = jax.jacfwd(spring_orbit)(SPRING)
    for each in SPRING:
        assert_allclose(got[each], expected[each], rtol=1e-12)


# What each adjoint allows


@pytest.mark.slow
@pytest.mark.exhaustive
def test_direct_adjoint_serves_both_modes_nested():
    orbit = lambda p: spring_numbers(p, DIRECT)
    first, expected = jax.jit(jax.jacfwd(orbit))(SPRING), jax.jacfwd(spring_orbit)(SPRING)
    second, expected_second = jax.jit(jax.hessian(orbit))(SPRING), jax.hessian(spring_orbit)(SPRING)
    for a in SPRING:
        assert_allclose(first[a], expected[a], rtol=1e-12)
        for b in SPRING:
            # Second derivatives of strides, through a solve with a condition number of ten.
            assert_allclose(second[a][b], expected_second[a][b], rtol=1e-11, atol=1e-12)


def test_recursive_checkpoints_refuse_what_they_cannot_do():
    # When they are traced, before anything is compiled.
    with pytest.raises(TypeError, match="forward-mode"):
        jax.eval_shape(jax.jacfwd(lambda p: spring_numbers(p, CHECKPOINT)), SPRING)
    with pytest.raises((TypeError, ValueError), match=r"forward-mode|[Rr]everse-mode"):
        jax.eval_shape(jax.jacrev(jax.jacrev(lambda p: spring_numbers(p, CHECKPOINT))), SPRING)


# Jacobians and simulations


def walker_numbers(x, slope, quantity, integrator):
    params = simplest_walker.Params(slope)
    return jnp.sum(jnp.sin(quantity(simplest_walker.system, x, params, sequence=("swing",), integrator=integrator)))


@pytest.mark.slow
@pytest.mark.parametrize("quantity", [hj.return_jacobian, pytest.param(hj.monodromy, marks=pytest.mark.exhaustive)])
def test_jacobians_by_checkpoints(walker, quantity):
    """Values and gradients of the Jacobians of a stride."""
    x = walker["long_0.009"].x
    value = jax.jit(jax.value_and_grad(walker_numbers, argnums=(0, 1)), static_argnums=(2, 3))
    expected, got = value(x, jnp.array(0.009), quantity, FORWARD), value(x, jnp.array(0.009), quantity, CHECKPOINT)
    assert_allclose(got[0], expected[0], rtol=1e-12)
    for each, other in zip(got[1], expected[1], strict=True):
        assert_allclose(each, other, rtol=1e-11)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["direct", "checkpoint"])
def test_simulations(name):
    """Through a scan of arcs: a walk of four steps, its events and its fundamental matrix."""
    x0 = simplest_walker.guess(simplest_walker.Params())

    def loss(x0, slope, integrator):
        walk = hj.simulate(
            simplest_walker.system, x0, simplest_walker.Params(slope), mode="swing", t1=15.0, integrator=integrator,
            max_jumps=5, save=jnp.array([3.0, 9.0]),
        )  # fmt: skip
        events = jnp.sum(jnp.where(walk.transitions >= 0, jnp.sin(walk.ends), 0))
        return jnp.sum(walk.x) + events + jnp.sum(walk.samples.x), jnp.trace(walk.fundamental_matrix())

    def gradients(integrator):
        first = jax.grad(lambda *z: loss(*z, integrator)[0], argnums=(0, 1))
        return jax.jit(first)(x0, jnp.array(0.009)), jax.jit(lambda: loss(x0, jnp.array(0.009), integrator)[1])()

    expected, got = gradients(FORWARD), gradients(hj.Integrator(adjoint=ADJOINTS[name]))
    for each, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert_allclose(each, other, rtol=1e-11)
