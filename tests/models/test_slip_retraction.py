"""Running with swing-leg retraction against a return map by SciPy, and the figures of Seyfarth, Geyer, Herr (2003)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import slip_retraction

# `ROLLED` is for single orbits: the tables have 10 000 lanes, in which running takes longer than compilation.

# A runner of 80 kg, 1 m and 20 kN/m.
STIFFNESS = 20000 / (80 * 9.81)
# Retraction angles, in degrees and radians; all tables have one shape, and one program.
DEGREES = np.arange(50, 75, 0.25)
ANGLES = np.deg2rad(DEGREES)
# 5 m/s and 3 m/s at the height of the relaxed leg.
FAST, SLOW = (1 + speed**2 / (2 * 9.81) for speed in (5, 3))


def rate(degrees_per_second):
    return np.deg2rad(degrees_per_second) / np.sqrt(9.81)


def runner(degrees, degrees_per_second, energy=FAST):
    return slip_retraction.Params(STIFFNESS, np.deg2rad(degrees), rate(degrees_per_second), energy)


def orbit(y, params):
    guess = jnp.array([y, 0.0])
    return hj.periodic_orbit(
        hj.ReturnMap(slip_retraction.system, sequence=slip_retraction.sequence, integrator=ROLLED), guess, params
    )


def apex_map(y, params):
    """The next apex: the flight in closed form, the stance in polar coordinates about the foot by SciPy."""
    k, start, omega, energy = (
        float(getattr(params, name)) for name in ("stiffness", "retraction_angle", "retraction_rate", "energy")
    )
    gap = lambda t: y - t**2 / 2 - np.sin(start + omega * t)
    t = scipy.optimize.brentq(gap, 0, np.sqrt(2 * y), xtol=1e-15)
    angle = np.pi - (start + omega * t)
    x_rate, y_rate = np.sqrt(2 * (energy - y)), -t
    sine, cosine = np.sin(angle), np.cos(angle)

    def stance(t, x):
        r, angle, r_rate, turn = x
        accel = k * (1 - r) - np.sin(angle) + r * turn**2
        return [r_rate, turn, accel, -(np.cos(angle) + 2 * r_rate * turn) / r]

    lift_off = lambda t, x: 1 - x[0] if t > 1e-6 else 1.0
    lift_off.terminal, lift_off.direction = True, -1  # pyright: ignore
    x = [1.0, angle, x_rate * cosine + y_rate * sine, -x_rate * sine + y_rate * cosine]
    solution = scipy.integrate.solve_ivp(stance, (0, 5), x, "DOP853", events=lift_off, rtol=1e-13, atol=1e-13)
    _, angle, r_rate, turn = solution.y[:, -1]
    return np.sin(angle) + (r_rate * np.sin(angle) + turn * np.cos(angle)) ** 2 / 2


@pytest.fixture(scope="module")
def apexes():
    """The return map at an energy: apexes and those that follow, NaN after a fall, by retraction angle and height."""
    step = lambda y, params: slip_retraction.step(jnp.stack([y, 0 * y]), params, throw=False).x[0]
    step = jax.jit(jax.vmap(step))

    def table(degrees_per_second, energy):
        y = np.linspace(np.sin(ANGLES) + 1e-4, energy - 1e-3, 100)
        angles = ANGLES + 0 * y
        full = lambda value: jnp.full(y.size, value)
        params = slip_retraction.Params(
            full(STIFFNESS), jnp.array(angles.ravel()), full(rate(degrees_per_second)), full(energy)
        )
        return y.T, np.asarray(step(jnp.array(y.ravel()), params)).reshape(y.shape).T

    return table


def stable(y, after):
    """Whether a map in a table has a fixed point with a slope between -1 and 1."""
    with np.errstate(invalid="ignore"):
        crosses = (after[:, :-1] > y[:, :-1]) & (after[:, 1:] <= y[:, 1:])
        slope = np.diff(after, axis=1) / np.diff(y, axis=1)
        return np.any(crosses & (np.abs(slope) < 1), axis=1)


@pytest.mark.medium
@pytest.mark.parametrize("degrees, degrees_per_second, y", [(60, 50, 1.0), (60, 50, 2.23), (64, 25, 0.98)])
def test_gait_is_that_of_scipy(degrees, degrees_per_second, y):
    params = runner(degrees, degrees_per_second)
    gait = orbit(y, params)
    height = float(gait.x[0])
    # SciPy at 1e-13, and its interpolant at lift-off.
    assert_allclose(apex_map(height, params), height, rtol=0, atol=1e-11)
    slope = (apex_map(height + 1e-4, params) - apex_map(height - 1e-4, params)) / 2e-4
    # A third derivative of up to some hundreds, times 1e-8 / 6.
    assert_allclose(gait.multipliers[0], slope, rtol=0, atol=1e-5)
    assert gait.multipliers[1] == 0


@pytest.mark.medium
def test_retraction_makes_a_gait_of_slip_stable():
    """The same motion, whatever turned the leg to its landing angle: y = t^2/2 + sin(alpha), so the landing angle changes by
    d(alpha) = omega dy / (t + omega cos(alpha)), and the multiplier in proportion."""
    angle = np.deg2rad(67)
    plain = orbit(1.2144, runner(67, 0))
    y = float(plain.x[0])
    t = np.sqrt(2 * (y - np.sin(angle)))
    assert_allclose(plain.multipliers[0], 1.4372, atol=5e-5)
    by_angle = []
    for degrees_per_second, multiplier in ((25, 0.8206), (50, 0.2806)):
        omega = rate(degrees_per_second)
        gait = orbit(1.2144, runner(np.rad2deg(angle - omega * t), degrees_per_second))
        # The solver's steps differ: 1e-14 over 1 - multiplier.
        assert_allclose(gait.x, plain.x, rtol=0, atol=2e-13)
        assert_allclose(gait.period, plain.period, rtol=1e-12)
        assert_allclose(gait.multipliers[0], multiplier, atol=5e-5)
        assert bool(gait.stable)
        by_angle.append(float((gait.multipliers[0] - plain.multipliers[0]).real) * (t / omega + np.cos(angle)))
    assert_allclose(*by_angle, rtol=1e-10)


@pytest.mark.medium
def test_two_steps_to_the_gait():
    """Fig. 2: from an apex of 1.25 with 50 degrees/s from 60 degrees, the runner is in the gait after two steps, to the eye."""
    params = slip_retraction.Params()
    y, apexes = 1.25, []
    for _ in range(3):
        y = apex_map(y, params)
        apexes.append(y)
    gait = orbit(1.0, params)
    assert_allclose(apexes[1], gait.x[0], rtol=0, atol=0.006)
    assert_allclose(apexes[2], gait.x[0], rtol=0, atol=0.0012)
    assert_allclose(gait.multipliers[0], -0.2214, atol=5e-5)


@pytest.mark.slow
def test_apexes_that_are_attracted(apexes):
    """Fig. 3, at 5 m/s: for the mean of the angles that have a stable gait, it attracts apexes up to 1.3, 1.9 and 2.2, where the
    unstable gait is. Fig. 4, at 3 m/s: slow running is stable only with retraction. One test, for the program of the tables."""
    # The range of angles grows; a scan by SciPy in steps of half a degree has these ends.
    for degrees_per_second, highest, low, high in ((0, 1.3, 66.5, 68.5), (25, 1.9, 61, 68), (50, 2.2, 53, 67)):
        angles = DEGREES[stable(*apexes(degrees_per_second, FAST))]
        assert_allclose([angles.min(), angles.max()], [low, high], rtol=0, atol=0.5)
        assert_allclose(np.diff(angles), 0.25)
        unstable = orbit(highest, runner((angles.min() + angles.max()) / 2, degrees_per_second))
        assert unstable.multipliers[0].real > 1
        # One decimal in the paper.
        assert_allclose(unstable.x[0], highest, rtol=0, atol=0.05)
    found = {each: np.sum(stable(*apexes(each, SLOW))) for each in (0, 25, 50)}
    assert found[0] == 0 and found[50] > found[25] > 4


@pytest.mark.medium
def test_a_leg_waits_for_the_apex():
    """While the mass rises, the leg does not land, though one that turned already would."""
    params = slip_retraction.Params()
    x = jnp.array([0.861, 0.05])
    transition = slip_retraction.system.transitions[slip_retraction.system.between("ascent", "stance")]
    armed = transition.armed
    assert armed is not None and not armed(0.0, x, params) and armed(0.0, x.at[1].set(-0.05), params)
    apex = jnp.array([0.861 + 0.05**2 / 2, 0.0])
    assert transition.guard(0.0, x, params) > 0 > transition.guard(0.0, apex, params)
    run = hj.simulate(slip_retraction.system, x, params, mode="ascent", t1=10.0, max_jumps=10)
    names = [slip_retraction.system.names[int(mode)] for mode in run.modes[: int(run.jumps)]]
    # Too low for the leg: no landing.
    assert names[:2] == ["ascent", "descent"] and run.jumps == 2


@pytest.mark.medium
def test_discovers_the_gait():
    params = slip_retraction.Params()
    mode, x = slip_retraction.start(params)
    # Ten jumps, before the end of the time.
    run = hj.simulate(slip_retraction.system, x, params, mode=mode, t1=10.0, max_jumps=10, throw=False)
    names = [slip_retraction.system.names[int(mode)] for mode in run.modes[:9]]
    assert names == ["descent", "stance", "ascent"] * 3


@pytest.mark.parametrize(
    "name, value", [("stiffness", 0.0), ("retraction_angle", 1.6), ("retraction_angle", 0.0), ("energy", 0.8)]
)
def test_parameters_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"{name}={value}"):
        slip_retraction.Params(**{name: value})
