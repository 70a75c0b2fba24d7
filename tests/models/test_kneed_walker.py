"""The kneed walker against point masses and constraint impulses in NumPy, SciPy's flow, the compass gait, and a printed gait."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import compass_gait, kneed_walker

PARAMS = kneed_walker.Params()
GRAVITY, SLOPE = 9.81, 0.0504
# Just after the heel strike, in programs that follow Hsu Chen (2007).
PRINTED = [0.1877, -0.2884, -0.2884, -1.1014, -0.0399, -0.0399]
STRAIGHT = np.array([[1, 0], [0, 1], [0, 1]])

# Mass, and its place: the sum of these lengths along the three links, upward from the foot and then downward from the hip.
MASSES = [
    (0.05, [0.375, 0, 0]),
    (0.5, [0.675, 0, 0]),
    (0.5, [1, 0, 0]),
    (0.5, [1, -0.325, 0]),
    (0.05, [1, -0.5, -0.125]),
]


def along(q):
    """The directions of the links, shape (2, links), and their derivatives in the angles."""
    return np.array([-np.sin(q), np.cos(q)]), np.array([-np.cos(q), -np.sin(q)])


def forces_and_inertia(q, v):
    """Generalized forces less those of acceleration, and the mass matrix, as sums over point masses."""
    up, across = along(q)
    force, inertia = np.zeros(len(q)), np.zeros((len(q), len(q)))
    for mass, place in MASSES:
        jacobian = np.array(place) * across
        drift = -(np.array(place) * up) @ v**2
        force += jacobian.T @ (mass * np.array([0, -GRAVITY]) - mass * drift)
        inertia += mass * jacobian.T @ jacobian
    return force, inertia


def bent(t, x):
    force, inertia = forces_and_inertia(x[:3], x[3:])
    return np.concatenate([x[3:], np.linalg.solve(inertia, force)])


def straight(t, x):
    force, inertia = forces_and_inertia(STRAIGHT @ x[:2], STRAIGHT @ x[2:])
    accel = np.linalg.solve(STRAIGHT.T @ inertia @ STRAIGHT, STRAIGHT.T @ force)
    return np.concatenate([x[2:], accel])


def constrained(inertia, momentum, rows):
    """Velocities after an impulse that makes these rows of velocities vanish: inertia v - rows' p = momentum, rows v = 0."""
    n = len(inertia)
    matrix = np.block([[inertia, -rows.T], [rows, np.zeros((len(rows),) * 2)]])
    return np.linalg.solve(matrix, np.concatenate([momentum, np.zeros(len(rows))]))[:n]


def knee_strike(x):
    _, inertia = forces_and_inertia(x[:3], x[3:])
    v = constrained(inertia, inertia @ x[3:], np.array([[0, 1.0, -1.0]]))
    return np.concatenate([x[:2], v[:2]])


def heel_strike(x):
    """Four coordinates: the old stance foot is free to move, and the impulse stops the new one."""
    _, across = along(x[:2])
    inertia = np.zeros((4, 4))
    for mass, place in MASSES:
        jacobian = np.hstack([np.eye(2), (np.array(place) @ STRAIGHT) * across])
        inertia += mass * jacobian.T @ jacobian
    new_foot = np.hstack([np.eye(2), np.array([1, -1]) * across])
    *_, w2, w1 = constrained(inertia, inertia @ np.concatenate([[0, 0], x[2:]]), new_foot)
    return np.array([x[1], x[0], x[0], w1, w2, w2])


def until(field, x, guard, clear=0.0):
    """SciPy's flow until `guard` falls through zero, not before the time `clear`."""
    event = lambda t, x: guard(x) if t > clear else 1.0
    event.terminal, event.direction = True, -1  # pyright: ignore
    return scipy.integrate.solve_ivp(field, (0, 3), x, "DOP853", events=event, rtol=1e-13, atol=1e-13)


def stride(x):
    locks = until(bent, x, lambda x: x[1] - x[2], clear=0.02).y[:, -1]
    lands = until(straight, knee_strike(locks), lambda x: x[0] + x[1] + 2 * SLOPE if x[1] > x[0] else 1.0).y[:, -1]
    return heel_strike(lands)


def energy(x):
    """Of a state of either mode."""
    q, v = (x[:3], x[3:]) if len(x) == 6 else (STRAIGHT @ x[:2], STRAIGHT @ x[2:])
    _, inertia = forces_and_inertia(q, v)
    up, _ = along(q)
    return v @ inertia @ v / 2 + GRAVITY * sum(mass * (up[1] @ place) for mass, place in MASSES)


@pytest.fixture(scope="module")
def gait():
    return hj.periodic_orbit(
        hj.ReturnMap(kneed_walker.system, sequence=kneed_walker.sequence, integrator=ROLLED),
        kneed_walker.guess(PARAMS),
        PARAMS,
    )


def simulate(x, t1=4.0):
    return hj.simulate(
        kneed_walker.system, jnp.asarray(x), PARAMS, mode="unlocked", t1=t1, max_jumps=20, integrator=ROLLED
    )


@pytest.mark.parametrize("seed", range(5))
def test_equations_are_those_of_point_masses(seed):
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, 6) * [1, 1, 1, 3, 3, 3]
    # Accelerations up to 1e3, with a condition of the mass matrix of 1e4.
    assert_allclose(kneed_walker.swing_bent(0.0, jnp.array(x), PARAMS), bent(0, x), rtol=1e-11, atol=1e-11)
    x = x[[0, 1, 3, 4]]
    assert_allclose(kneed_walker.swing_straight(0.0, jnp.array(x), PARAMS), straight(0, x), rtol=1e-12, atol=1e-12)
    struck = kneed_walker.heel_strike(0.0, jnp.array(x), PARAMS)
    assert_allclose(struck, heel_strike(x), rtol=1e-12, atol=1e-12)
    x = np.array([x[0], x[1], x[1], *random.uniform(-3, 3, 3)])
    locked = kneed_walker.knee_strike(0.0, jnp.array(x), PARAMS)
    assert_allclose(locked, knee_strike(x), rtol=1e-12, atol=1e-12)
    assert energy(np.asarray(locked)) < energy(x)


def test_heel_strike_conserves_angular_momentum():
    """Of all masses about the new foot, and of the old stance leg about the hip."""
    before = np.array([-0.29, 0.19, -1.5, -2.0])
    after = np.asarray(kneed_walker.heel_strike(0.0, jnp.array(before), PARAMS))
    moment = lambda arm, momentum: arm[0] * momentum[1] - arm[1] * momentum[0]

    def about(pivot, q, v, masses):
        """The pivot, given along the links, is a point at rest."""
        up, across = along(q)
        places = [(mass, np.array(place) @ STRAIGHT) for mass, place in masses]
        return sum(mass * moment(up @ (place - pivot), (across * v) @ place) for mass, place in places)

    stance_foot, swing_foot, hip = np.array([[0, 0], [1, -1], [1, 0]])
    whole = about(swing_foot, before[:2], before[2:], MASSES)
    assert_allclose(about(stance_foot, after[:2], after[3:5], MASSES), whole, rtol=1e-13)
    leg = about(hip, before[:2], before[2:], MASSES[:2])
    assert_allclose(about(hip, after[:2], after[3:5], MASSES[3:]), leg, rtol=1e-13)


def test_one_mass_a_leg_is_the_compass_gait():
    """Shanks of vanishing mass, and straight legs: `a` and `b` are those of the thigh's mass."""
    params = kneed_walker.Params(hip_mass=1.2, thigh_mass=0.5, shank_mass=1e-30)
    compass = compass_gait.Params(slope=SLOPE, mu=2.4, beta=0.325 / 0.675, gravity=9.81)
    x = jnp.array([0.2, -0.3, -1.0, 0.4])
    flow = kneed_walker.swing_straight(0.0, x, params)
    assert_allclose(flow, compass_gait.swing(0.0, x, compass), rtol=1e-13)
    x = jnp.array([-0.3, 0.2, -1.0, 0.4])
    struck = compass_gait.heel_strike(0.0, x, compass)
    assert_allclose(kneed_walker.heel_strike(0.0, x, params), struck[jnp.array([0, 1, 1, 2, 3, 3])], rtol=1e-13)


@pytest.mark.medium
def test_gait_is_that_of_scipy(gait):
    """The same state after a stride, and multipliers by central differences."""
    x = np.asarray(gait.x)
    # Two arcs at 1e-13 of SciPy, located on its interpolant.
    assert_allclose(stride(x), x, rtol=0, atol=1e-11)
    on_section = lambda w: np.array([w[0], -2 * SLOPE - w[0], -2 * SLOPE - w[0], w[1], w[2], w[2]])
    free, step = x[[0, 3, 4]], 1e-4
    jacobian = np.empty((3, 3))
    for k in range(3):
        ahead, behind = (stride(on_section(free + sign * step * np.eye(3)[k]))[[0, 3, 4]] for sign in (1, -1))
        jacobian[:, k] = (ahead - behind) / (2 * step)
    multipliers = sorted(np.linalg.eigvals(jacobian), key=lambda m: (-round(abs(m), 6), -m.imag))
    # Differences: a third derivative times 1e-8, of a map with second derivatives of some ten.
    assert_allclose(gait.multipliers[:3], multipliers, rtol=0, atol=1e-5)
    # Section and straight leg: three coordinates are forgotten.
    assert_allclose(gait.multipliers[3:], 0, atol=1e-13)
    assert bool(gait.stable) and abs(gait.multipliers[0]) < 0.66


@pytest.mark.medium
def test_printed_gait(gait):
    """Angles to 7e-4 and rates to 0.02, not to the printed digits: the printed state is near the gait, and not on it. After a
    stride of the point masses above it is off by 0.017."""
    difference = np.abs(np.asarray(gait.x) - PRINTED)
    assert np.all(difference[:3] < 7e-4) and np.all(difference[3:] < 0.02)
    # Within rounding, the printed state stands on the slope with both feet.
    assert abs(PRINTED[0] + PRINTED[1] + 2 * SLOPE) < 2e-4
    assert_allclose(gait.period, 0.5643, atol=5e-5)


@pytest.mark.medium
def test_walks_from_the_printed_state(gait):
    """The modes follow each other, flows conserve energy and strikes lose it; the swing foot clears the ground all the way."""
    printed = np.array(PRINTED)
    printed[1] = printed[2] = -2 * SLOPE - printed[0]
    walk = simulate(printed, t1=4.0)
    jumps = int(walk.jumps)
    modes = [kneed_walker.system.names[int(mode)] for mode in walk.modes[:jumps]]
    assert bool(walk.result == hj.RESULTS.successful) and jumps == 14
    assert modes == ["unlocked", "locked"] * 7

    x = printed
    for k in range(jumps):
        end = np.asarray(walk.x_ends[k])[: len(x)]
        # Rounding of some tens of steps.
        assert_allclose(energy(end), energy(x), rtol=1e-12)
        x = knee_strike(end) if k % 2 == 0 else heel_strike(end)
        lost = energy(end) - energy(x)
        if k % 2 == 1:
            # The slope falls by a step's length times its sine: at the new foot the energy is counted anew.
            lost += GRAVITY * 1.6 * 2 * np.sin((end[1] - end[0]) / 2) * np.sin(SLOPE)
        assert lost > 0
        if k % 2 == 1:
            closer = np.abs(x - gait.x).max()
    # Seven strides of 0.66, from 0.02.
    assert closer < 0.005


@pytest.mark.medium
def test_a_straight_leg_that_swings_back_stumbles():
    """From a state whose equations return to it after the leg has swung through the ground and back: not a gait."""
    stance, stance_rate, swing_rate = 0.233010114191858, -0.902511487702421, 0.388774006100448
    swing = -stance - 2 * SLOPE
    walk = simulate([stance, swing, swing, stance_rate, swing_rate, swing_rate])
    assert walk.jumps == 2 and kneed_walker.system.names[int(walk.mode)] == "fallen"
    q1, q2 = np.asarray(walk.final)[:2]
    # Found on a guard.
    assert_allclose(q1, q2, rtol=0, atol=1e-13)


@pytest.mark.medium
def test_outline_at_the_strikes():
    """Nothing moves when the knee locks; at the heel strike the legs change roles."""
    x = jnp.array([-0.05, 0.26, 0.26, -0.7, 0.7, 8.4])
    bent, straight = (
        kneed_walker.outline("unlocked", x, PARAMS),
        kneed_walker.outline("locked", kneed_walker.knee_strike(0.0, x, PARAMS), PARAMS),
    )
    for line, points in bent.items():
        assert_allclose(straight[line], points, rtol=0, atol=1e-15)
    assert_allclose(kneed_walker.travel("unlocked", x, PARAMS), 0, atol=0)
    x = jnp.array([-0.28, 0.28 - 2 * SLOPE, -1.5, -2.0])
    before = kneed_walker.outline("locked", x, PARAMS)
    after = kneed_walker.outline("unlocked", kneed_walker.heel_strike(0.0, x, PARAMS), PARAMS)
    step = np.asarray(kneed_walker.travel("locked", x, PARAMS))
    assert_allclose(np.arctan2(-step[1], step[0]), SLOPE, rtol=1e-14)
    assert_allclose(after["hip"] + step, before["hip"], rtol=0, atol=1e-15)
    assert_allclose(after["swing leg"][-1] + step, before["stance leg"][0], rtol=0, atol=1e-15)
    assert_allclose(after["stance leg"][0] + step, before["swing leg"][-1], rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    "name, value",
    [("slope", 1.6), ("shank_mass", 0.0), ("hip_mass", -0.1), ("a1", -0.1), ("b1", 0.0), ("gravity", 0.0)],
)
def test_parameters_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"{name}={value}"):
        kneed_walker.Params(**{name: value})
