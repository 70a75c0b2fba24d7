"""Lyapunov exponents through events: volumes, orbits with known multipliers, a billiard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._variation.lyapunov_spectrum import orthonormal
from hyjax.models import rimless_wheel

# A driven oscillator before a wall, which it strikes none, one or several times in a period.
oscillator = hj.HybridSystem(
    {
        "free": hj.Mode(
            lambda t, x, p: jnp.stack([x[1], p["a"] * jnp.cos(t) - p["c"] * x[1] - p["k"] * x[0]]), ("x", "v")
        )
    },
    (hj.Transition("free", "free", lambda t, x, p: p["d"] - x[0], lambda t, x, p: jnp.stack([x[0], -p["e"] * x[1]])),),
)
STRUCK = {name: jnp.array(value) for name, value in dict(a=2.0, c=0.05, k=0.09, d=0.1, e=0.9).items()}


@pytest.fixture(scope="module")
def struck():
    """A batch: two chaotic trajectories, a start beyond the wall, and one without drive, whose bounces never accumulate."""
    starts = jnp.array([[0.0, 0.3], [-0.5, 0.1], [0.2, 1.0]])
    run = lambda x: hj.lyapunov_spectrum(
        oscillator, x, STRUCK, mode="free", t1=600.0, transient=60.0, segments=400, max_jumps=40
    )
    return jax.jit(jax.vmap(run))(starts)


def test_the_sum_is_the_rate_of_volumes(struck):
    """Damping shrinks areas by exp(-c t), each impact by e^2, whatever the trajectory."""
    good = np.asarray(struck.result == hj.RESULTS.successful)
    assert good[:2].all() and np.all(struck.jumps[:2] > 50)
    expected = -STRUCK["c"] + 2 * np.log(STRUCK["e"]) * struck.jumps / struck.duration
    # The integrator's tolerance 1e-9 a step, some ten steps per unit of time.
    assert_allclose(jnp.sum(struck.exponents, axis=1)[good], expected[good], rtol=0, atol=1e-8)
    assert_allclose(struck.duration[good], 540, rtol=1e-12)
    assert np.all(struck.exponents[good, 0] > struck.exponents[good, 1])


def test_errors_are_those_of_the_mean(struck):
    """Two trajectories of one attractor agree within four standard errors."""
    one, other = np.asarray(struck.exponents[:2, 0])
    error = np.hypot(*np.asarray(struck.errors[:2, 0]))
    assert 0 < error < 0.1 and abs(one - other) < 4 * error


def test_an_orbit_has_the_logarithms_of_its_multipliers():
    orbit = hj.periodic_orbit(
        rimless_wheel.system, rimless_wheel.guess(rimless_wheel.Params()), rimless_wheel.Params(),
        sequence=rimless_wheel.sequence,
    )  # fmt: skip
    period = float(orbit.period)
    spectrum = hj.lyapunov_spectrum(
        rimless_wheel.system, orbit.x, orbit.params, mode=rimless_wheel.sequence[0], t1=40.4 * period, t0=0.4 * period,
        transient=20 * period, segments=80, integrator=hj.Integrator(),
    )  # fmt: skip
    expected = [0, np.log(float(orbit.spectral_radius)) / period]
    # Whole periods; after twenty of them the tangent vectors have their directions to rounding.
    assert_allclose(spectrum.exponents, expected, rtol=0, atol=1e-10)
    assert spectrum.result == "successful" and int(spectrum.jumps) == 20


def test_orthonormal_rows():
    rows = jax.random.normal(jax.random.key(0), (3, 5))
    found, grown = orthonormal(rows)
    assert_allclose(found @ found.T, np.eye(3), rtol=0, atol=1e-15)
    assert_allclose(grown, np.log(np.abs(np.diag(np.linalg.qr(rows.T)[1]))), rtol=1e-13, atol=1e-14)
    dependent = rows.at[2].set(rows[0] - 2 * rows[1])
    found, grown = orthonormal(dependent)
    assert np.all(np.asarray(found[2]) == 0) and float(grown[2]) == -np.inf


@pytest.mark.parametrize(
    "options, message",
    [
        ({"count": 3}, "count=3 must be an integer from 1 to 2"),
        ({"segments": 5}, "segments=5 must be an integer of at least 20"),
        ({"transient": 99.0}, "transient=99.0 must not be negative, and leave at least 20"),
    ],
)
def test_misuse(options, message):
    with pytest.raises(ValueError, match=message):
        hj.lyapunov_spectrum(oscillator, jnp.array([0.0, 0.3]), STRUCK, mode="free", t1=100.0, **options)


def lorentz_gas(spacing):
    """A point of speed 1 among disks of radius 1 at the points of a hexagonal lattice: a rectangle of two disks, repeated."""
    width, height = spacing, np.sqrt(3) * spacing
    centres = [(0.0, 0.0), (width, 0.0), (0.0, height), (width, height), (width / 2, height / 2)]

    def hit(x0, y0):
        guard = lambda t, x, p: (x[0] - x0) ** 2 + (x[1] - y0) ** 2 - 1

        def reflect(t, x, p):
            normal, v = jnp.stack([x[0] - x0, x[1] - y0]), x[2:]
            return jnp.concatenate([x[:2], v - 2 * (v @ normal) / (normal @ normal) * normal])

        return hj.Transition("free", "free", guard, reflect)

    def cross(axis, sign, length):
        guard = (lambda t, x, p: length - x[axis]) if sign > 0 else (lambda t, x, p: x[axis])
        return hj.Transition("free", "free", guard, lambda t, x, p: x.at[axis].add(-sign * length))

    ways = [hit(*centre) for centre in centres]
    ways += [cross(0, 1, width), cross(0, -1, width), cross(1, 1, height), cross(1, -1, height)]
    fly = lambda t, x, p: jnp.concatenate([x[2:], jnp.zeros(2)])
    return hj.HybridSystem({"free": hj.Mode(fly, ("x", "y", "vx", "vy"))}, tuple(ways))


@pytest.mark.slow
def test_a_billiard():
    """The hexagonal Lorentz gas at a spacing of 2.5: exponents in pairs of opposite sign, two of them zero."""
    angles = jnp.linspace(0.1, 6.0, 8)
    starts = jnp.stack([0 * angles + 1.25, 0 * angles + 1.0, jnp.cos(angles), jnp.sin(angles)], axis=1)
    run = lambda x: hj.lyapunov_spectrum(
        lorentz_gas(2.5),
        x,
        {},
        mode="free",
        t1=200.0,
        segments=200,
        max_jumps=60,
        integrator=hj.Integrator(rtol=1e-9, atol=1e-9),
    )
    found = jax.jit(jax.vmap(run))(starts)
    assert np.all(np.asarray(found.result == hj.RESULTS.successful))
    mean = np.mean(found.exponents, axis=0)
    assert_allclose(np.sum(found.exponents, axis=1), 0, atol=1e-6)
    # A published exponent has one digit: 1.4.
    assert abs(mean[0] - 1.4) < 0.2
    assert_allclose(mean[1:3], 0, atol=0.05)
