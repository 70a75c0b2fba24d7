"""Invariant circles of maps whose circles are known, and of one whose iterates lie on them."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED
from test_normal_form import map_system

import hyjax as hj

THETA, BEND = 1.0, 0.3


def bent(x, p):
    """z -> exp(i theta) z (1 + s - |z|^2) in the coordinates (x + 0.3 y^2, y): the circle |z|^2 = s, which turns by theta."""
    x, y = x[0] - BEND * x[1] ** 2, x[1]
    c, s, grown = np.cos(THETA), np.sin(THETA), 1 + p["s"] - x**2 - y**2
    x, y = grown * (c * x - s * y), grown * (s * x + c * y)
    return jnp.stack([x + BEND * y**2, y])


@pytest.fixture(scope="module")
def born():
    orbit = hj.periodic_orbit(
        hj.ReturnMap(map_system(bent, 2), sequence=("year",)), jnp.zeros(3), {"s": jnp.array(-0.01)}
    )
    (point,) = hj.continuation(orbit, where=lambda p: p["s"], stop=0.02).special_points
    return point


@pytest.mark.medium
def test_circle_in_closed_form(born):
    # The state is 2 Re(z q) with |q| = 1, so that the circle has the radius sqrt 2 |z|.
    assert_allclose(born.normal_form.coefficients["d"].real, -2, rtol=1e-12)
    circles = born.invariant_circles(stop=0.09, n_angles=33)
    assert circles.result == hj.RESULTS.successful
    x, y = circles.x[..., 0] - BEND * circles.x[..., 1] ** 2, circles.x[..., 1]
    # Newton's method on a map in closed form, whose Fourier coefficients end at the second.
    assert_allclose(x**2 + y**2, np.broadcast_to(circles.values[:, None], x.shape), atol=1e-12)
    assert_allclose(circles.rotation, THETA / (2 * np.pi), rtol=1e-12)
    # Along the circle 1; across it 1 - 2 s.
    assert_allclose(circles.multipliers[:, :2], np.stack([np.ones(len(x)), 1 - 2 * circles.values], axis=1), atol=1e-6)
    assert circles.stable.all() and "Invariant circles" in str(circles)


@pytest.mark.medium
def test_the_other_side_and_misuse(born):
    assert born.invariant_circles(stop=-0.02, n_angles=33, throw=False).result == hj.RESULTS.stop_not_reached
    with pytest.raises(ValueError, match="n_angles=10 must be an odd number"):
        born.invariant_circles(stop=0.09, n_angles=10)


@pytest.mark.medium
def test_a_circle_that_comes_to_a_hill_ends():
    """As above, with a hill x > h in the middle of the year, which the circle meets at s = h^2."""

    def jump(t, x, p):
        c, s, grown = np.cos(THETA), np.sin(THETA), 1 + p["s"] - x[0] ** 2 - x[1] ** 2
        return jnp.stack([grown * (c * x[0] - s * x[1]), grown * (s * x[0] + c * x[1]), 0 * x[2]])

    year = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 1.0]), ("x", "y", "clock"))
    ways = [hj.Transition(name, "low", lambda t, x, p: 1 - x[2], jump) for name in ("low", "high")]
    hill = lambda t, x, p: p["h"] - x[0] + (x[2] - 0.5) ** 2
    climb = hj.Transition("low", "high", hill, lambda t, x, p: x * jnp.array([0.5, 0.5, 1.0]))
    step = hj.ReturnMap(
        hj.HybridSystem({"low": year, "high": year}, (*ways, climb)), sequence=("low",), integrator=ROLLED
    )
    params = {"s": jnp.array(-0.01), "h": jnp.array(0.3)}
    (point,) = hj.continuation(
        hj.periodic_orbit(step, jnp.zeros(3), params), where=lambda p: p["s"], stop=0.02
    ).special_points
    circles = point.invariant_circles(stop=0.3, n_angles=33, throw=False)
    assert circles.result == hj.RESULTS.unexpected_transition
    # It is seen when one of the angles is there; the last steps are short.
    assert 0.0899 < circles.values[-1] < 0.09 / np.cos(np.pi / 33) ** 2
    assert_allclose(np.sum(circles.x[:, :, :2] ** 2, axis=2), circles.values[:, None] + np.zeros(33), atol=1e-12)


@pytest.mark.slow
def test_iterates_lie_on_the_circle_until_it_is_no_longer_smooth():
    """The delayed logistic map: after 1000 iterates the state is K(phi + 1000 rho), and at 2.12 an orbit of period 7 is near."""
    step = hj.ReturnMap(map_system(lambda x, p: jnp.stack([p["r"] * x[0] * (1 - x[1]), x[0]]), 2), sequence=("year",))
    orbit = hj.periodic_orbit(step, jnp.array([0.47, 0.47, 0.0]), {"r": jnp.array(1.9)})
    (point,) = hj.continuation(orbit, where=lambda p: p["r"], stop=2.1).special_points
    circles = point.invariant_circles(stop=2.15, throw=False)
    assert circles.result == hj.RESULTS.orbit_not_converged and 2.05 < circles.values[-1] < 2.12
    k = int(np.argmin(np.abs(circles.values - 2.03)))
    x, r = circles.x[k], circles.values[k]
    coefficients, order = np.fft.fft(x[:, 0] + 1j * x[:, 1]) / len(x), np.fft.fftfreq(len(x), 1 / len(x))
    a, b = x[0, :2]
    for _ in range(1000):
        a, b = r * a * (1 - b), a
    there = np.sum(coefficients * np.exp(1j * order * 2 * np.pi * 1000 * circles.rotation[k]))
    # The rotation number is known to the 1e-12 of the residual, times 1000 passes; the coefficients end at 1e-8.
    assert_allclose([a, b], [there.real, there.imag], atol=1e-7)
