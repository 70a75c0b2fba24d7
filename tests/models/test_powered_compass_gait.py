"""The powered compass gait against the mass matrix of two free legs, SciPy and the compass gait; a network at its hip."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from jax.flatten_util import ravel_pytree
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax import models
from hyjax._testing import orbit_figure, parse_parameters
from hyjax.models import compass_gait, powered_compass_gait as walker

TORQUE = 0.13
CASES = (
    {},
    {"hip_mass": 10.0, "leg_mass": 5.0, "inertia": 0.3, "com": 0.35, "leg_length": 0.9, "gravity": 9.81, "stiffness": 2.0,
     "damping": 0.4, "push_off": 3.0, "slope": 0.06, "controller": walker.ConstantTorque(TORQUE)},
    {"hip_mass": 0.0, "leg_mass": 2.0, "inertia": 0.0, "com": 0.7, "push_off": 0.4, "damping": 0.1, "stiffness": 0.0},
)  # fmt: skip
STATES = np.random.default_rng(3).uniform(-0.7, 0.7, (4, 4)) + np.array([0.0, 0.0, -0.8, 0.9])


# Two legs that are free of the ground: positions alone, from which derivatives make everything else. `q` is the hip's place and
# the angles of both legs.


def down(angle):
    return jnp.stack([jnp.sin(angle), -jnp.cos(angle)])


def foot(leg, q, params):
    return q[:2] + params.leg_length * down(q[2 + leg])


def bodies(q, params):
    """Place of the hip and the legs' centres of mass, with the masses."""
    places = jnp.stack([q[:2], *(q[:2] + params.com * down(angle) for angle in q[2:])])
    return places, jnp.stack([params.hip_mass, params.leg_mass, params.leg_mass])


def kinetic(q, v, params):
    _, masses = bodies(q, params)
    _, velocities = jax.jvp(lambda q: bodies(q, params)[0], (q,), (v,))
    return jnp.sum(masses * jnp.sum(velocities**2, axis=1)) / 2 + params.inertia * jnp.sum(v[2:] ** 2) / 2


def potential(q, params):
    places, masses = bodies(q, params)
    spring = params.stiffness * (q[2] - q[3]) ** 2 / 2
    return params.gravity * jnp.sum(masses * places[:, 1]) + spring


def mass_matrix(q, params):
    return jax.hessian(lambda v: kinetic(q, v, params))(jnp.zeros(4))


def constrained(q, params, held, right, below):
    """Solve for accelerations, or velocities, and the force, or the impulse, at the foot that is held."""
    G = jax.jacfwd(lambda q: foot(held, q, params))(q)
    matrix = jnp.block([[mass_matrix(q, params), -G.T], [G, jnp.zeros((2, 2))]])
    solution = jnp.linalg.solve(matrix, jnp.concatenate([right, below]))
    return solution[:4], solution[4:]


def free(x, params, held=0):
    """`(q, v)` of the free legs with one foot at rest at the origin, from the state of the walker."""
    zero = jnp.zeros(2)
    q = jnp.concatenate([-foot(held, jnp.concatenate([zero, x[:2]]), params), x[:2]])
    turn = lambda q: foot(held, q, params)
    _, slip = jax.jvp(turn, (q,), (jnp.concatenate([zero, x[2:]]),))
    return q, jnp.concatenate([-slip, x[2:]])


@jax.jit
def lagrange(x, params):
    """The vector field from Lagrange's equations with the stance foot held by a force."""
    q, v = free(x, params)
    difference = lambda q, v: kinetic(q, v, params) - potential(q, params)
    momentum = jax.grad(difference, argnums=1)
    _, moved = jax.jvp(lambda q: momentum(q, v), (q,), (v,))
    torque = params.controller(0.0, x) - params.damping * (v[3] - v[2])
    force = jax.grad(difference)(q, v) - moved + torque * jnp.array([0, 0, -1.0, 1.0])
    rate = lambda q: jax.jvp(lambda q: foot(0, q, params), (q,), (v,))[1]
    _, curve = jax.jvp(rate, (q,), (v,))
    return jnp.concatenate([x[2:], constrained(q, params, 0, force, -curve)[0][2:]])


@jax.jit
def impact(x, params):
    """Velocities before and after push-off and strike, and the impulses at the old and the new foot."""
    q, v = free(x, params)
    push = -params.push_off * down(q[2])
    G = jax.jacfwd(lambda q: foot(0, q, params))(q)
    after, new = constrained(q, params, 1, mass_matrix(q, params) @ v + G.T @ push, jnp.zeros(2))
    return q, v, after, push, new


def pushed(x, params):
    """The kinetic energy that the push-off alone adds."""
    q, v = free(x, params)
    G = jax.jacfwd(lambda q: foot(0, q, params))(q)
    after = v + jnp.linalg.solve(mass_matrix(q, params), G.T @ (-params.push_off * down(q[2])))
    return kinetic(q, after, params) - kinetic(q, v, params)


def velocity(point, q, v):
    return jax.jvp(point, (q,), (v,))[1]


def of(values):
    return walker.Params(**values)


@pytest.mark.medium
@pytest.mark.parametrize("values", CASES, ids=("default", "all", "no hip"))
def test_equations_of_motion_and_impact(values):
    params = of(values)
    for x in jnp.asarray(STATES):
        # Rates up to some 50, from a mass matrix of condition 100.
        assert_allclose(walker.swing(0.0, x, params), lagrange(x, params), rtol=1e-12, atol=1e-12)
        _, _, after, _, _ = impact(x, params)
        struck = walker.heel_strike(0.0, x, params)
        assert_allclose(struck, [x[1], x[0], after[3], after[2]], rtol=1e-12, atol=1e-12)
        assert_allclose(walker.push_off_work(x[0] - x[1], params), pushed(x, params), rtol=1e-11, atol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("values", CASES, ids=("default", "all", "no hip"))
def test_balances(values):
    """Energy by the work of the impulses, at the mean of both velocities; angular momenta; the power of the hip."""
    params = of(values)
    for x in jnp.asarray(STATES):
        q, v, after, push, new = impact(x, params)
        struck = walker.heel_strike(0.0, x, params)
        mean = (v + after) / 2
        old_foot, new_foot = (velocity(lambda q, leg=leg: foot(leg, q, params), q, mean) for leg in (0, 1))
        # The walker's own state after the strike, its new foot at rest.
        gained = kinetic(*free(struck, params), params) - kinetic(q, v, params)
        close = dict(rtol=1e-12, atol=1e-12)
        assert_allclose(gained, push @ old_foot + new @ new_foot, **close)

        def spin(v, about, count, q=q):
            """Angular momentum of the first `count` of leg, leg, hip about a point."""
            places, masses = bodies(q, params)
            arms, rates = places[jnp.array([1, 2, 0])] - about, velocity(lambda q: bodies(q, params)[0], q, v)
            rates = rates[jnp.array([1, 2, 0])]
            orbital = masses[jnp.array([1, 2, 0])] * (arms[:, 0] * rates[:, 1] - arms[:, 1] * rates[:, 0])
            return jnp.sum(orbital[:count]) + params.inertia * jnp.sum(v[2 : 2 + min(count, 2)])

        now = jnp.concatenate([after[:2], struck[jnp.array([3, 2])]])
        assert_allclose(spin(now, q[:2], 1), spin(v, q[:2], 1), **close)
        about = foot(1, q, params)
        jumps = params.leg_length * params.push_off * jnp.sin(x[0] - x[1])
        assert_allclose(spin(now, about, 3) - spin(v, about, 3), jumps, **close)

        energy = lambda x: kinetic(*free(x, params), params) + potential(free(x, params)[0], params)
        _, power = jax.jvp(energy, (x,), (walker.swing(0.0, x, params),))
        drive = params.controller(0.0, x) - params.damping * (x[3] - x[2])
        # Differences of terms of size m g l times a rate: 100 at most.
        assert_allclose(power, drive * (x[3] - x[2]), rtol=1e-11, atol=1e-12)


@pytest.mark.medium
def test_without_power_it_is_the_compass_gait():
    for mu, beta in ((2.0, 1.0), (0.5, 0.4)):
        passive = compass_gait.Params(slope=0.05, mu=mu, beta=beta, gravity=9.81, leg_length=0.8)
        params = of(dict(slope=0.05, hip_mass=mu * 3.0, leg_mass=3.0, inertia=0.0, com=0.8 * beta / (1 + beta), gravity=9.81,
                         leg_length=0.8, stiffness=0.0, push_off=0.0))  # fmt: skip
        for x in jnp.asarray(STATES):
            assert_allclose(walker.swing(0.0, x, params), compass_gait.swing(0.0, x, passive), rtol=1e-12, atol=1e-12)
            same = compass_gait.heel_strike(0.0, x, passive)
            assert_allclose(walker.heel_strike(0.0, x, params), same, rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def gait():
    params = walker.Params()
    return hj.periodic_orbit(walker.step, walker.guess(params), params)


@pytest.mark.medium
def test_a_stride_by_other_code(gait):
    """Lagrange's equations of the free legs, SciPy's integrator of order 8, and the impact by the mass matrix."""
    params = gait.params
    strikes = lambda t, x: x[0] + x[1] if x[0] < x[1] - 0.1 else 1.0
    strikes.terminal, strikes.direction = True, -1
    flight = scipy.integrate.solve_ivp(
        lambda t, x: np.asarray(lagrange(x, params)), (0, 5), gait.x, "DOP853", rtol=1e-12, atol=1e-13, events=strikes
    )
    before = flight.y[:, -1]
    after = impact(jnp.asarray(before), params)[2]
    # SciPy finds the event on its interpolant, of order 7.
    assert_allclose(flight.t[-1], gait.period, rtol=0, atol=1e-8)
    assert_allclose([before[1], before[0], after[3], after[2]], gait.x, rtol=0, atol=1e-8)


@pytest.mark.medium
def test_the_default_gait(gait):
    """Stable, on level ground, as found with SciPy alone; the push-off restores what the strike loses.

    The gait is its own mirror image in time, so that even the rates are after the jump what they were before."""
    assert bool(gait.stable)
    # By finite differences of strides in SciPy: four digits of the multipliers.
    assert_allclose(gait.x, [0.21866229, -0.21866229, -0.34449797, -0.28859901], rtol=0, atol=6e-9)
    assert_allclose(gait.period, 2.04163122, rtol=0, atol=6e-9)
    assert_allclose(gait.multipliers[0], 0.74532 + 0.30443j, rtol=0, atol=1e-4)
    assert_allclose(walker.guess(gait.params), gait.x, rtol=0.02)
    assert walker.on_section(gait.params, *gait.x[jnp.array([0, 2])]).shape == (4,)
    energy = lambda x: kinetic(*free(x, gait.params), gait.params)
    assert_allclose(energy(gait.before[0]), energy(gait.x), rtol=1e-13)
    assert_allclose(gait.before[0], gait.x * jnp.array([-1.0, -1, 1, 1]), rtol=0, atol=1e-13)
    # The work over the weight 2 and the distance between the feet.
    distance = 2 * np.sin((gait.x[0] - gait.x[1]) / 2)
    cost = walker.objectives["cost_of_transport"](gait, gait.params)
    assert_allclose(cost, pushed(gait.before[0], gait.params) / (2 * distance), rtol=1e-12)
    assert "push\u00a0off\u00a0=\u00a00.15" in orbit_figure(gait, walker).get_suptitle()


class Network(eqx.Module):
    """A small torque by a network that sees the state."""

    mlp: eqx.nn.MLP

    def __call__(self, t, x):
        return 0.05 * self.mlp(x)[0]


NETWORK = Network(eqx.nn.MLP(4, 1, 64, 2, activation=jnp.tanh, key=jax.random.key(0)))
MOVING, STILL = eqx.partition(NETWORK, eqx.is_inexact_array)
WEIGHTS, UNRAVEL = ravel_pytree(MOVING)
REVERSE = hj.Integrator(adjoint=dfx.RecursiveCheckpointAdjoint())


def driven_by(weights):
    return walker.Params(controller=eqx.combine(UNRAVEL(weights), STILL))


def end_of_stride(weights, x):
    through = hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=REVERSE)(x, driven_by(weights))
    return jnp.sum(through.x * jnp.array([1.0, 0.0, 0.3, -0.7])) + through.time


@pytest.mark.slow
def test_gradient_by_the_weights_of_a_network(gait):
    """4545 weights: the gradient, and the difference quotient along one direction."""
    assert WEIGHTS.size == 4545
    gradient = jax.jit(jax.grad(end_of_stride))(WEIGHTS, gait.x)
    along = jnp.asarray(np.random.default_rng(0).normal(size=WEIGHTS.size))
    value, step = jax.jit(end_of_stride), 1e-4
    at = lambda k: value(WEIGHTS + k * step * along, gait.x)
    quotient = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
    # A stride is good to 1e-14, its quotient to 1e-10; the fourth power of the step leaves less.
    assert_allclose(gradient @ along, quotient, rtol=1e-8)
    assert np.count_nonzero(gradient) == WEIGHTS.size


@pytest.mark.medium
def test_a_constant_torque_moves_the_gait(gait):
    """There is a gait with damping where a motor restores what it takes, and none where there is no motor."""
    params = of(dict(damping=0.03, controller=walker.ConstantTorque(0.02)))
    driven = hj.periodic_orbit(
        hj.ReturnMap(walker.system, sequence=("swing",)), jnp.array([0.229, -0.229, -0.346, -0.273]), params
    )
    assert bool(driven.stable) and driven.spectral_radius < 0.5
    none = hj.periodic_orbit(
        hj.ReturnMap(walker.system, sequence=("swing",)), gait.x, of(dict(damping=0.03)), throw=False
    )
    assert not np.isfinite(none.period)


def test_the_command_line_lists_numbers_alone(command):
    ran = command("models", "powered_compass_gait")
    assert ran.returncode == 0 and "push_off" in ran.stdout and "controller" not in ran.stdout
    ran = command("gait", "powered_compass_gait", "--param", "controller=1")
    assert ran.returncode == 2 and "there is no parameter 'controller'" in ran.stderr
    params, values = parse_parameters(walker, ["push_off=0.2"])
    assert params.push_off == values["push_off"] == 0.2 and "controller" not in values


@pytest.mark.parametrize(
    "values, message",
    [
        ({"slope": 1.6}, "slope=1.6"),
        ({"hip_mass": -1.0}, "hip_mass=-1.0"),
        ({"leg_mass": 0.0}, "leg_mass=0.0"),
        ({"inertia": -0.1}, "inertia=-0.1"),
        ({"com": 1.1}, "com=1.1"),
        ({"com": 0.0}, "com=0.0"),
        ({"stiffness": -1.0}, "stiffness=-1.0"),
        ({"damping": -1.0}, "damping=-1.0"),
        ({"push_off": -0.1}, "push_off=-0.1"),
    ],
)
def test_parameters_out_of_range(values, message):
    with pytest.raises(ValueError, match=message):
        models.load("powered_compass_gait").Params(**values)


def test_a_controller_is_a_function():
    # The annotation is checked in tests, before the class's own check.
    with pytest.raises(Exception, match="controller"):
        walker.Params(controller=1.0)  # pyright: ignore
