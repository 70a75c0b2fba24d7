"""The compass walker written as MJCF: its equations, its gait and the derivatives of this against those of `hj.models`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import compass_gait

pytest.importorskip("mujoco")
SLOPE = np.deg2rad(3)
# From (stance, swing relative to stance) to the absolute angles of the model, and the legs' exchange: the swing leg stands.
ABSOLUTE, EXCHANGE = jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([[1.0, 1.0], [0.0, -1.0]])


def walker(params=None, base=""):
    """Legs of mass 1 with the model's ratios; `base`: joints before that of the stance foot. A hinge about -y turns
    backward, as the model's angles do."""
    p = compass_gait.Params() if params is None else params
    a, b = (float(each * p.leg_length / (1 + p.beta)) for each in (1.0, p.beta))
    point = 'diaginertia="1e-9 1e-9 1e-9"'
    robot = hj.robots.from_mujoco(f"""
        <mujoco><compiler angle="radian"/><option gravity="0 0 {-float(p.gravity)}"/><worldbody>
          <body name="stance leg">{base}<joint name="stance" axis="0 -1 0"/>
            <inertial pos="0 0 {a}" mass="1" {point}/>
            <body name="hip" pos="0 0 {a + b}"><inertial pos="0 0 0" mass="{float(p.mu)}" {point}/></body>
            <body name="swing leg" pos="0 0 {a + b}"><joint name="hip" axis="0 -1 0"/>
              <inertial pos="0 0 {-b}" mass="1" {point}/><site name="foot" pos="0 0 {-a - b}"/>
            </body>
          </body>
        </worldbody></mujoco>""")
    # The masses are points, which a file cannot have.
    return eqx.tree_at(lambda robot: robot.params.inertia, robot, jnp.zeros((3, 3)))


def test_equations_are_those_of_the_model():
    """Mass matrix, bias and acceleration at random states and ratios of masses and lengths."""
    rng = np.random.default_rng(1)
    params = [
        compass_gait.Params(mu=mu, beta=beta, gravity=gravity, leg_length=length)
        for mu, beta, gravity, length in rng.uniform(0.3, 3, (6, 4))
    ]
    robots = [walker(each) for each in params]
    robot = robots[0]
    stack = lambda each: jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    q, v = jnp.asarray(rng.normal(size=(2, 6, 20, 2)))

    def both(own, model, q, v):
        stance, swing = angles = ABSOLUTE @ q
        rates = ABSOLUTE @ v
        a, b, length = 1 / (1 + model.beta), model.beta / (1 + model.beta), model.leg_length
        c, s, heavy = jnp.cos(stance - swing), jnp.sin(stance - swing), model.mu + 1
        # Of the model's equations in units of mass 1, the second first: it is that of the stance leg.
        mass = length**2 * jnp.array([[a**2 + heavy, -b * c], [-b * c, b**2]])
        on_stance = -b * s * rates[1] ** 2 - model.gravity / length * (a + heavy) * jnp.sin(stance)
        on_swing = b * s * rates[0] ** 2 + model.gravity / length * b * jnp.sin(swing)
        bias = length**2 * jnp.stack([on_stance, on_swing])
        rate = compass_gait.swing(0.0, jnp.concatenate([angles, rates]), model)
        theirs = ABSOLUTE.T @ mass @ ABSOLUTE, ABSOLUTE.T @ bias, jnp.linalg.solve(ABSOLUTE, rate[2:])
        mechanism = robot.mechanism
        acceleration = mechanism.acceleration(jnp.array(0.0), q, v, own)
        return (mechanism.mass(q, own), mechanism.coriolis(q, v, own), acceleration), theirs

    lanes = jax.jit(jax.vmap(jax.vmap(both, (None, None, 0, 0))))
    ours, theirs = lanes(stack([each.params for each in robots]), stack(params), q, v)
    for one, other in zip(ours, theirs, strict=True):
        # Rounding: terms that are added are up to ten times their sum.
        assert np.max(np.abs(one - other)) <= 1e-13 * np.max(np.abs(other))


ROBOT = walker()
FREE = walker(base='<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>')


def height(t, x, params):
    """Of the swing foot, above the slope through the stance foot."""
    along, _, up = ROBOT.position(x[:2], "foot", params)
    return up * jnp.cos(SLOPE) + along * jnp.sin(SLOPE)


def swing(t, x, params):
    return jnp.concatenate([x[2:], ROBOT.mechanism.acceleration(t, x[:2], x[2:], params)])


def strike(t, x, params):
    r"""The swing foot sticks and the stance foot leaves: $M (v^+ - v^-) = J^\top\Lambda$, $J v^+ = 0$. The legs are exchanged."""
    free = eqx.tree_at(lambda p: (p.mass, p.gravity), FREE.params, (params.mass, params.gravity))
    q, v = jnp.concatenate([jnp.zeros(2), x[:2]]), jnp.concatenate([jnp.zeros(2), x[2:]])
    mass, rows = FREE.mechanism.mass(q, free), FREE.jacobian(q, "foot", free)[::2]
    equations = jnp.block([[mass, -rows.T], [rows, jnp.zeros((2, 2))]])
    after = jnp.linalg.solve(equations, jnp.concatenate([mass @ v, jnp.zeros(2)]))[2:4]
    return jnp.concatenate([EXCHANGE @ x[:2], EXCHANGE @ after])


SYSTEM = hj.HybridSystem(
    {"swing": hj.Mode(swing, ("stance", "hip", "stance_rate", "hip_rate"))},
    (hj.Transition("swing", "swing", guard=height, reset=strike, armed=lambda t, x, params: x[1] > 0),),
)
STEP = hj.ReturnMap(SYSTEM, sequence=("swing",))


def in_robot(x):
    return jnp.concatenate([jnp.linalg.solve(ABSOLUTE, x[:2]), jnp.linalg.solve(ABSOLUTE, x[2:])])


def test_the_impact_is_that_of_the_model():
    """The model conserves two angular momenta; here impulses act on the foot. In random states, on the surface or not."""
    x = jnp.asarray(np.random.default_rng(2).normal(size=(20, 4)))
    ours = jax.jit(jax.vmap(lambda x: strike(0.0, in_robot(x), ROBOT.params)))(x)
    theirs = jax.vmap(lambda x: in_robot(compass_gait.heel_strike(0.0, x, compass_gait.Params())))(x)
    # The matrix of impulses has a condition of about a hundred.
    assert_allclose(ours, theirs, rtol=0, atol=1e-13 * 100)


@pytest.mark.medium
def test_gait_and_multipliers_are_those_of_the_model(compass):
    params = ROBOT.params
    orbit = hj.periodic_orbit(STEP, in_robot(compass_gait.guess(compass.params)), params)
    # Both orbits are closed to rounding, some 1e-15, which the least stable multiplier, 0.6, enlarges by 1 / (1 - 0.6).
    assert_allclose(orbit.period, compass.period, rtol=0, atol=1e-13)
    assert_allclose(orbit.x, in_robot(compass.x), rtol=0, atol=1e-13)
    # Derivatives of the flow have ten times the error of the flow.
    assert_allclose(np.abs(orbit.multipliers), np.abs(compass.multipliers), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_derivative_of_a_multiplier_by_a_mass_is_that_of_the_model(compass):
    """By the mass of the hip, which for legs of mass 1 is the model's `mu`."""

    def largest(step, guess, params, where, value):
        varied = eqx.tree_at(where, params, value)
        return jnp.max(jnp.abs(hj.periodic_orbit(step, guess, varied, throw=False).multipliers))

    x, one = compass.x, jnp.array(1.0)
    along = lambda *given: jax.jvp(lambda value: largest(*given, value), (jnp.array(2.0),), (one,))
    theirs = along(compass_gait.step, x, compass.params, lambda p: p.mu)
    ours = along(STEP, in_robot(x), ROBOT.params, lambda p: p.mass[1])
    assert_allclose(ours[0], theirs[0], rtol=0, atol=1e-12)
    # Second derivatives of the flow again have ten times the error.
    assert_allclose(ours[1], theirs[1], rtol=0, atol=1e-11)
