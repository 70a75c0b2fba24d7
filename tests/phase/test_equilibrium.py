"""Equilibria of modes against closed forms, and the orbits about a centre against elliptic integrals and quadratures."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ellipk

import hyjax as hj

# A mass that two fields push onto the line x + v = 0.
RELAY = hj.filippov(
    {1: lambda t, x, p: jnp.stack([x[1], p - 1]), -1: lambda t, x, p: jnp.stack([x[1], p + 1])},
    lambda t, x, p: x[0] + x[1],
    ("x", "v"),
)


def alone(field, *names, **options):
    return hj.HybridSystem({"flow": hj.Mode(field, names, **options)}, ())


def test_a_pseudo_equilibrium_its_border_and_beyond():
    """The sliding coefficient is (1 + p) / 2; along the line x + v = 0 the flow is x' = -x."""
    loads = jnp.array([0.5, 1.0, 1.5])
    rests = jax.vmap(lambda p: hj.phase.equilibrium(RELAY, "0", jnp.array([0.2, 0.1]), p))(loads)
    assert rests.kind.tolist() == ["pseudo", "boundary", "virtual"] and rests[0].kind == "pseudo"
    assert_allclose(rests.eigenvalues, -np.ones((3, 1)), atol=1e-14)
    assert_allclose(rests.x, np.zeros((3, 2)), atol=1e-14)
    assert rests.stable.all() and rests[1].stable


def test_two_surfaces():
    """Sliding along both leaves no eigenvalue; along one, those within it, whatever the shape of the surface."""
    curved = lambda t, x, p: x[2] - x[0] ** 2 - 0.5 * x[1]
    inner = lambda x: jnp.stack([-(x[0] - 0.3) - 2 * x[1], 2 * (x[0] - 0.3) - x[1]])

    def side(sense):
        def field(t, x, p):
            planar = inner(x)
            return jnp.append(planar, 2 * x[0] * planar[0] + 0.5 * planar[1] - sense)

        return field

    system = hj.filippov({1: side(1.0), -1: side(-1.0)}, curved, ("x", "y", "z"))
    rest = hj.phase.equilibrium(system, "0", jnp.zeros(3), None)
    assert_allclose(rest.x, [0.3, 0, 0.09], atol=1e-14)
    assert_allclose(rest.eigenvalues, [-1 + 2j, -1 - 2j], atol=1e-13)


@pytest.mark.medium
def test_derivatives_are_those_of_the_implicit_function():
    root = lambda p: hj.phase.equilibrium(alone(lambda t, x, p: p - x**2, "x"), "flow", jnp.array([2.0]), p)
    p = jnp.array(2.0)
    assert_allclose(jax.grad(lambda p: root(p).x[0])(p), 0.5 * 2**-0.5, rtol=1e-14)
    assert_allclose(jax.hessian(lambda p: root(p).x[0])(p), -0.25 * 2**-1.5, rtol=1e-14)
    assert_allclose(jax.grad(lambda p: root(p).eigenvalues[0].real)(p), -(2**-0.5), rtol=1e-14)


def test_held_coordinates_stay():
    driven = alone(lambda t, x, p: jnp.stack([x[1], x[2] - p * x[0] - x[1]]), "x", "v", held=("u",))
    rest = hj.phase.equilibrium(driven, "flow", jnp.array([0.0, 0.1, 3.0]), jnp.array(2.0))
    assert_allclose(rest.x, [1.5, 0, 3], atol=1e-15)
    assert rest.eigenvalues.shape == (2,) and rest.kind == "regular"


def test_virtual_beyond_a_guard_and_boundary_on_it():
    """The same spring under a floor: `armed` decides whether the guard counts."""

    def floor(armed):
        spring = hj.Mode(lambda t, x, p: jnp.stack([x[1], p - x[0] - x[1]]), ("y", "v"))
        hit = hj.Transition("flow", "flow", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -x[1]]), armed)
        return hj.HybridSystem({"flow": spring}, (hit,))

    kind = lambda armed, p: hj.phase.equilibrium(floor(armed), "flow", jnp.ones(2), jnp.array(p)).kind
    assert [kind(None, p) for p in (1.0, 0.0, -1.0)] == ["regular", "boundary", "virtual"]
    assert kind(lambda t, x, p: x[1] < -1e-3, -1.0) == "regular"


def test_failures():
    none = alone(lambda t, x, p: p + x**2, "x")
    found = jax.vmap(lambda p: hj.phase.equilibrium(none, "flow", jnp.array([2.0]), p, throw=False))(
        jnp.array([1.0, -4.0])
    )
    assert (found.result == "no_equilibrium").tolist() == [True, False]
    assert np.isnan(found.x[0]) and abs(abs(found.x[1, 0]) - 2) < 1e-15
    with pytest.raises(hj.SolveError, match="equilibrium: no_equilibrium"):
        hj.phase.equilibrium(none, "flow", jnp.array([2.0]), jnp.array(1.0))
    with pytest.raises(hj.SolveError, match="no_equilibrium"):
        hj.phase.equilibrium(alone(lambda t, x, p: jnp.sin(t) - x, "x"), "flow", jnp.array([2.0]), None)
    with pytest.raises(ValueError, match="imaginary pair"):
        hj.phase.equilibrium(none, "flow", jnp.array([2.0]), jnp.array(-4.0)).orbit(conserved=lambda t, x, p: x[0])


@pytest.mark.medium
def test_the_family_about_a_centre_of_a_pendulum():
    """Lyapunov's centre theorem: the period tends to that of the linear flow; at any energy it is 4 K(sin(angle / 2)) / omega."""
    pendulum = alone(lambda t, x, p: jnp.stack([x[1], -p * jnp.sin(x[0])]), "angle", "rate")
    energy = lambda t, x, p: x[1] ** 2 / 2 + p * (1 - jnp.cos(x[0]))
    rest = hj.phase.equilibrium(pendulum, "flow", jnp.array([0.1, 0.05]), jnp.array(2.0))
    # A centre is not stable, whatever rounding leaves of the real parts; a focus is, however slow.
    for real, stable in ((-1e-16, False), (1e-16, False), (-1e-12, True)):
        moved = dataclasses.replace(rest, eigenvalues=jax.lax.complex(real + 0 * rest.x, rest.eigenvalues.imag))
        assert bool(moved.stable) == stable
    orbit = rest.orbit(1e-3, conserved=energy)
    family = hj.continuation(orbit, stop=3.0)
    exact = lambda energy: 4 * ellipk(energy / 4) / np.sqrt(2)
    # The tolerance of the integrator, 1e-14 per step, over some 20 steps.
    assert_allclose(family.periods, exact(family.values), rtol=2e-13)
    assert abs(orbit.period - 2 * np.pi / np.sqrt(2)) < 1e-6


@pytest.mark.medium
def test_a_pair_whose_frequency_is_a_multiple_of_another():
    """Two masses on springs of their own: each has its family. Where one is three times as fast, all orbits have one period."""
    masses = alone(lambda t, x, p: jnp.stack([x[2], x[3], -x[0], -p * x[1]]), "a", "b", "va", "vb")
    energy = lambda t, x, p: (x[2] ** 2 + x[3] ** 2 + x[0] ** 2 + p * x[1] ** 2) / 2
    rest = lambda p: hj.phase.equilibrium(masses, "flow", jnp.zeros(4), jnp.array(p))
    said = "the frequency 3 of another pair is 3 times 1, so Lyapunov's theorem does not hold"
    with pytest.warns(UserWarning, match=said), pytest.raises(hj.SolveError, match="not_isolated"):
        rest(9.0).orbit(0.1, conserved=energy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slow, fast = rest(9.5).orbit(0.1, conserved=energy), rest(9.0).orbit(0.1, conserved=energy, frequency=3.0)
    assert_allclose([slow.period, fast.period], [2 * np.pi, 2 * np.pi / 3], rtol=1e-12)


@pytest.mark.medium
def test_the_families_of_a_body_that_stands_on_two_springy_legs():
    """A mass on two massless springs with fixed feet at +-d: it sways and it hops with both feet on the ground. The period of the
    hop is a quadrature. The guard is the force of a leg, which lifts off where it vanishes."""
    d, k = 0.5, 20.0
    length = lambda x, side: jnp.sqrt((x[0] - side * d) ** 2 + x[1] ** 2)

    def field(t, x, p):
        force = lambda side: k * (1 / length(x, side) - 1) * jnp.stack([x[0] - side * d, x[1]])
        return jnp.concatenate([x[2:], force(1) + force(-1) - jnp.array([0.0, 1.0])])

    energy = lambda t, x, p: (x[2] ** 2 + x[3] ** 2) / 2 + x[1] + sum(k / 2 * (length(x, s) - 1) ** 2 for s in (1, -1))
    body = hj.HybridSystem(
        {"stand": hj.Mode(field, ("x", "y", "vx", "vy"))},
        (
            hj.Transition(
                "stand", "stand", lambda t, x, p: jnp.minimum(1 - length(x, 1), 1 - length(x, -1)), lambda t, x, p: x
            ),
        ),
    )
    rest = hj.phase.equilibrium(body, "stand", jnp.array([0.01, 0.84, 0, 0]), None)
    assert rest.kind == "regular"
    hop = float(np.max(rest.eigenvalues.imag))
    orbit = rest.orbit(5e-3, conserved=energy, frequency=hop)
    assert abs(orbit.period * hop / (2 * np.pi) - 1) < 1e-3

    potential = lambda y: y + k * (np.sqrt(d**2 + y**2) - 1) ** 2
    level = float(orbit.params.conserved)
    y0 = float(rest.x[1])
    low, high = (brentq(lambda y: potential(y) - level, y0, y0 + s * 0.02, xtol=1e-15) for s in (-1, 1))
    middle, half = (low + high) / 2, (high - low) / 2
    # With y = middle + half sin(u) the integrand is smooth.
    speed = lambda u: np.sqrt(2 * (level - potential(middle + half * np.sin(u))))
    period = 2 * quad(lambda u: half * np.cos(u) / speed(u), -np.pi / 2, np.pi / 2, epsabs=1e-13)[0]
    # Of an energy of 1e-3 above the bottom of the potential the quadrature knows ten digits.
    assert_allclose(orbit.period, period, rtol=1e-9)


def test_small_units_are_no_excuse():
    """A field of 1e-11 that has no zero, and one of the same size that has."""
    mode = lambda field: hj.HybridSystem({"flow": hj.Mode(field, ("x",))}, ())
    none = hj.phase.equilibrium(mode(lambda t, x, p: 1e-11 * (1 + x**2)), "flow", jnp.array([0.3]), 0.0, throw=False)
    assert none.result == hj.RESULTS.no_equilibrium
    one = hj.phase.equilibrium(mode(lambda t, x, p: 1e-11 * (x**2 - 1)), "flow", jnp.array([1.2]), 0.0)
    assert_allclose(one.x, 1, rtol=1e-12)
