"""Lyapunov exponents through events: volumes, orbits with known multipliers, a billiard."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import orthonormal
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
STRUCK = {name: jnp.array(value) for name, value in dict(a=2.0, c=0.05, k=8.0, d=0.1, e=0.9).items()}


@pytest.fixture(scope="module")
def struck():
    """A batch: two chaotic trajectories, and one whose spring presses the mass against the wall, where impacts accumulate."""
    starts = jnp.array([[0.0, 0.3], [-0.5, 0.1], [0.05, 1.0]])
    run = lambda x, k: hj.phase.lyapunov_spectrum(
        oscillator,
        x,
        STRUCK | {"k": k},
        mode="free",
        t1=600.0,
        transient=60.0,
        n_segments=400,
        max_jumps=40,
        throw=False,
    )
    return jax.jit(jax.vmap(run))(starts, jnp.array([8.0, 8.0, -8.0]))


@pytest.mark.medium
def test_the_sum_is_the_rate_of_volumes(struck):
    """Damping shrinks areas by exp(-c t), each impact by e^2, whatever the trajectory."""
    good = np.array([True, True, False])
    assert np.all(np.asarray(struck.result == hj.RESULTS.successful) == good) and np.all(struck.jumps[:2] > 300)
    expected = -0.05 + 2 * np.log(0.9) * np.asarray(struck.jumps) / np.asarray(struck.duration)
    # The integrator's tolerance 1e-9 a step, some ten steps per unit of time.
    assert_allclose(jnp.sum(struck.exponents, axis=1)[good], expected[good], rtol=0, atol=1e-8)
    assert_allclose(struck.duration[good], 540, rtol=1e-12)
    assert np.all(struck.exponents[good, 0] > 0.1)
    assert np.all(np.isnan(struck.exponents[2]))
    assert np.all(np.isnan(struck.errors[2])) and 0 < float(struck.t[2]) < 600


def test_errors_are_those_of_the_mean(struck):
    """Two trajectories of one attractor agree within four standard errors."""
    one, other = np.asarray(struck.exponents[:2, 0])
    error = np.hypot(*np.asarray(struck.errors[:2, 0]))
    assert 0 < error < 0.1 and abs(one - other) < 4 * error


@pytest.mark.medium
def test_an_orbit_has_the_logarithms_of_its_multipliers():
    orbit = hj.periodic_orbit(rimless_wheel.step, rimless_wheel.guess(rimless_wheel.Params()), rimless_wheel.Params())
    period, mode = float(orbit.period), rimless_wheel.sequence[0]
    # Half periods from an impact: every second segment ends at an impact, before or after it as the processor rounds.
    begins = 0.4 * period + np.arange(-4, 5) * np.spacing(40 * period)
    run = lambda t0: hj.phase.lyapunov_spectrum(
        rimless_wheel.system, orbit.x, orbit.params, mode=mode, t1=t0 + 100 * period, t0=t0,
        transient=80 * period, n_segments=200, integrator=hj.Integrator(),
    )  # fmt: skip
    spectra = jax.jit(jax.vmap(run))(jnp.asarray(begins))
    expected = [0, np.log(float(orbit.spectral_radius)) / period]
    # Whole periods; after eighty of them the tangent vectors have their directions to rounding.
    assert_allclose(spectra.exponents, np.broadcast_to(expected, (9, 2)), rtol=0, atol=1e-10)
    assert np.all(np.asarray(spectra.result == hj.RESULTS.successful)) and np.all(np.asarray(spectra.jumps) == 20)
    spectrum = jax.tree.map(lambda leaf: leaf[0], spectra)
    head, _, second = str(spectrum).split("\n")
    assert head.endswith("with 20 jumps: successful") and second.startswith(f"  {expected[1]:+.6g} +- ")
    # Printed so that it can be read where a reset lets nothing through.
    lost = eqx.tree_at(lambda s: s.exponents, spectrum, jnp.array([-np.inf, -np.inf]))
    assert str(lost).split("\n")[1].startswith("  -inf  (the jumps let nothing through")


# Growth at the rate 0.2 + cos(t), halved at each whole time.
BREATHING = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: (0.2 + jnp.cos(t)) * x, ("x",))},
    (hj.Transition("m", "m", lambda t, x, p: -jnp.sin(2 * jnp.pi * t) / (2 * jnp.pi), lambda t, x, p: x / 2),),
)


@pytest.mark.medium
def test_exponent_and_error_of_a_known_growth():
    """Over 48 of 60 segments of half a unit; the error is that of the mean of 20 consecutive parts, of two or three segments."""
    begin, step = 0.1, 0.5
    found = hj.phase.lyapunov_spectrum(
        BREATHING, jnp.ones(1), None, mode="m", t0=begin, t1=begin + 30, transient=6.0, n_segments=60,
        integrator=hj.Integrator(rtol=1e-10, atol=1e-10, unroll=False),
    )  # fmt: skip
    times = begin + 6 + step * np.arange(49)
    grown = 0.2 * step + np.diff(np.sin(times)) + np.log(0.5) * np.diff(np.floor(times))
    parts = np.array(
        [rows.mean() / step for rows in np.split(grown, np.flatnonzero(np.diff(np.arange(48) * 20 // 48)) + 1)]
    )
    assert found.result == hj.RESULTS.successful and parts.size == 20
    assert_allclose(found.duration, 24, rtol=1e-12)
    assert int(found.jumps) == 24
    assert_allclose(found.exponents, [grown.sum() / 24], rtol=0, atol=1e-8)
    assert_allclose(found.errors, [np.std(parts, ddof=1) / np.sqrt(20)], rtol=0, atol=1e-8)


def test_orthonormal_rows():
    rows = jax.random.normal(jax.random.key(0), (3, 5))
    found, grown = orthonormal(rows)
    assert_allclose(found @ found.T, np.eye(3), rtol=0, atol=1e-15)
    assert_allclose(grown, np.log(np.abs(np.diag(np.linalg.qr(rows.T)[1]))), rtol=1e-13, atol=1e-14)
    # Rows that nearly agree are orthogonal to rounding all the same.
    near = rows.at[1].set(rows[0] + 1e-9 * rows[1]).at[2].set(rows[0] + 1e-9 * rows[2])
    found, _ = orthonormal(near)
    assert_allclose(found @ found.T, np.eye(3), rtol=0, atol=1e-14)
    dependent = rows.at[2].set(rows[0] - 2 * rows[1])
    found, grown = orthonormal(dependent)
    assert np.all(np.asarray(found[2]) == 0) and float(grown[2]) == -np.inf


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_exponents": 3}, "n_exponents=3 must be an integer from 1 to 2"),
        ({"n_segments": 5}, "n_segments=5 must be an integer of at least 20"),
        ({"transient": 99.0}, "transient=99.0 must not be negative, and leave at least 20"),
    ],
)
def test_misuse(options, message):
    with pytest.raises(ValueError, match=message):
        hj.phase.lyapunov_spectrum(oscillator, jnp.array([0.0, 0.3]), STRUCK, mode="free", t1=100.0, **options)


def lorentz_gas():
    """A point of speed 1 among disks of radius 1 on a hexagonal lattice: a rectangle with five disks, repeated. The spacing of
    the disks is the parameter; the last coordinate counts the hits."""
    side = lambda axis, p: p * np.sqrt(3) if axis else p

    def hit(i, j):
        away = lambda x, p: jnp.stack([x[0] - i * p, x[1] - j * side(1, p)])

        def reflect(t, x, p):
            normal, v = away(x, p), x[2:4]
            return jnp.concatenate([x[:2], v - 2 * (v @ normal) / (normal @ normal) * normal, x[4:] + 1])

        return hj.Transition("free", "free", lambda t, x, p: jnp.sum(away(x, p) ** 2) - 1, reflect)

    def cross(axis, sign):
        guard = (lambda t, x, p: side(axis, p) - x[axis]) if sign > 0 else (lambda t, x, p: x[axis])
        return hj.Transition("free", "free", guard, lambda t, x, p: x.at[axis].add(-sign * side(axis, p)))

    ways = [hit(*disk) for disk in ((0, 0), (1, 0), (0, 1), (1, 1), (0.5, 0.5))]
    ways += [cross(0, 1), cross(0, -1), cross(1, 1), cross(1, -1)]
    fly = lambda t, x, p: jnp.concatenate([x[2:4], jnp.zeros(3)])
    return hj.HybridSystem({"free": hj.Mode(fly, ("x", "y", "vx", "vy", "hits"))}, tuple(ways))


@pytest.mark.slow
def test_a_billiard():
    """The hexagonal Lorentz gas: exponents in pairs of opposite sign, and the mean free path of an ergodic billiard, the free
    area pi / 2 over half the circumference of a disk."""
    gas, spacing = lorentz_gas(), jnp.array(2.5)

    def run(angle):
        # From the middle of the gap above a disk.
        height = (spacing * np.sqrt(3) / 2 - 1) / 2
        x = jnp.stack([spacing / 2, height, jnp.cos(angle), jnp.sin(angle), jnp.zeros(())])
        precise = hj.Integrator(rtol=1e-9, atol=1e-9)
        return hj.phase.lyapunov_spectrum(
            gas, x, spacing, mode="free", t1=300.0, n_segments=300, max_jumps=400, integrator=precise
        )

    found = jax.jit(jax.vmap(run))(jnp.linspace(0.1, 6.0, 8))
    assert np.all(np.asarray(found.result == hj.RESULTS.successful))
    assert_allclose(np.sum(found.exponents, axis=1), 0, atol=1e-8)
    mean = np.mean(found.exponents, axis=0)
    # Published, to one digit.
    assert_allclose(mean[0], 1.4, rtol=0, atol=0.2)
    assert_allclose(mean[0], -mean[4], rtol=0, atol=0.01)
    # Zeros: displacement along the flow and speed grow linearly with time, the exponent log(t) / t.
    assert_allclose(mean[1:4], 0, atol=0.05)
    # In 2000 runs of another program, in NumPy, from random starts, the number of hits has the mean 264.2 and the deviation 14.0,
    # with a tail of runs along a corridor without disks. Drawn from them, the mean path of 8 runs is off by more than 15 % with a
    # probability below 1e-5.
    assert_allclose(300 / np.mean(found.x[:, 4]), 1.1355330600, rtol=0.15)
