"""The kneed walker written as MJCF, its knee locked by `Mechanism.reduced`, its heel struck by `hj.contact.impact`: equations,
impacts, gait and the derivative of a multiplier by a mass against those of `hj.models`."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import kneed_walker as model

pytest.importorskip("mujoco")
PARAMS = model.Params()
# From the angles of the joints to the absolute angles of the model.
ABSOLUTE = jnp.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
LOCKED = ABSOLUTE[:2, :2]


def walker(base=""):
    """`base`: joints before that of the stance foot. A hinge about -y turns backward, as the model's angles do."""
    a1, b1, a2, b2 = (float(each) for each in (PARAMS.a1, PARAMS.b1, PARAMS.a2, PARAMS.b2))
    point = lambda z, mass: f'<inertial pos="0 0 {z}" mass="{float(mass)}" diaginertia="1e-9 1e-9 1e-9"/>'
    shank, thigh, leg = a1 + b1, a2 + b2, a1 + b1 + a2 + b2
    robot = hj.robots.from_mujoco(f"""
        <mujoco><compiler angle="radian"/><option gravity="0 0 {-float(PARAMS.gravity)}"/><worldbody>
          <body name="stance leg">{base}<joint name="stance" axis="0 -1 0"/>{point(a1, PARAMS.shank_mass)}
            <body name="stance thigh">{point(shank + a2, PARAMS.thigh_mass)}</body>
            <body name="hips">{point(leg, PARAMS.hip_mass)}</body>
            <body name="thigh" pos="0 0 {leg}"><joint name="hip" axis="0 -1 0"/>{point(-b2, PARAMS.thigh_mass)}
              <body name="shank" pos="0 0 {-thigh}"><joint name="knee" axis="0 -1 0"/>{point(-b1, PARAMS.shank_mass)}
                <site name="foot" pos="0 0 {-shank}"/>
              </body>
            </body>
          </body>
        </worldbody></mujoco>""")
    # The masses are points, which a file cannot have.
    return eqx.tree_at(lambda robot: robot.params.inertia, robot, jnp.zeros((5, 3)))


ROBOT, FREE = walker(), walker('<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>')
# With the knee straight.
BENT = ROBOT.mechanism
STRAIGHT, FREE_STRAIGHT = (
    each.mechanism.reduced(lambda theta, params: jnp.append(theta, 0.0)) for each in (ROBOT, FREE)
)


def foot(q, params):
    """The place of the swing foot in the frame of the slope: along it, and above it."""
    x, _, z = FREE.position(jnp.append(q, 0.0), "foot", params)
    c, s = jnp.cos(PARAMS.slope), jnp.sin(PARAMS.slope)
    return jnp.stack([c * x - s * z, c * z + s * x])


HEEL = hj.contact.Contact(
    lambda t, q, p: foot(q, p)[1],
    lambda t, q, v, p: jax.jvp(lambda q: foot(q, p)[0], (q,), (v,))[1],
    static=math.inf,
)


def bent(t, x, params):
    return jnp.concatenate([x[3:], BENT.acceleration(t, x[:3], x[3:], params)])


def straight(t, x, params):
    return jnp.concatenate([x[2:], STRAIGHT.acceleration(t, x[:2], x[2:], params)])


def knee_strike(t, x, params):
    """A torque in the knee does no work where it is straight: the momenta of the other joints stay."""
    momenta = BENT.mass(x[:3], params) @ x[3:]
    return jnp.concatenate([x[:2], jnp.linalg.solve(STRAIGHT.mass(x[:2], params), momenta[:2])])


def heel_strike(t, x, params):
    """The swing foot sticks and the stance foot leaves; both legs are straight, and change their roles. The law is linear, and
    taken for a foot that opens too: the search for an orbit meets such states, and needs a smooth reset."""
    free = eqx.tree_at(lambda p: (p.mass, p.gravity), FREE.params, (params.mass, params.gravity))
    q, v = jnp.concatenate([jnp.zeros(2), x[:2]]), jnp.concatenate([jnp.zeros(2), x[2:]])
    down = jnp.where(jax.jvp(lambda q: foot(q, free)[1], (q,), (v,))[1] < 0, 1.0, -1.0)
    after = down * hj.contact.impact(FREE_STRAIGHT, q, down * v, free, HEEL)[0]
    exchanged = lambda angles: jnp.stack([angles[0] + angles[1], -angles[1], 0 * angles[0]])
    return jnp.concatenate([exchanged(x[:2]), exchanged(after[2:])])


def height(t, x, params):
    along, _, up = ROBOT.position(jnp.append(x[:2], 0.0), "foot", params)
    return up * jnp.cos(PARAMS.slope) + along * jnp.sin(PARAMS.slope)


NAMES = ("stance", "hip", "knee")
SYSTEM = hj.HybridSystem(
    {
        "unlocked": hj.Mode(bent, (*NAMES, *(f"{name}_rate" for name in NAMES))),
        "locked": hj.Mode(straight, (*NAMES[:2], *(f"{name}_rate" for name in NAMES[:2]))),
    },
    (
        hj.Transition("unlocked", "locked", guard=lambda t, x, params: -x[2], reset=knee_strike),
        hj.Transition("locked", "unlocked", guard=height, reset=heel_strike, armed=lambda t, x, params: x[1] > 0),
    ),
)
STEP = hj.ReturnMap(SYSTEM, sequence=model.sequence)


def joints(x):
    """The model's state in the angles of the joints."""
    change = jnp.linalg.inv(ABSOLUTE if x.size == 6 else LOCKED)
    return (change @ x.reshape(2, -1).T).T.ravel()


@pytest.mark.medium
def test_equations_and_impacts_are_those_of_the_model():
    """At random states, of a straight leg where the knee strikes. The model conserves angular momenta; here the impulse acts at
    the foot."""
    t, draw = jnp.zeros(()), np.random.default_rng(0)
    six, four = jnp.asarray(draw.normal(size=(30, 6))), jnp.asarray(draw.normal(size=(30, 4)))

    def both(six, four):
        for own, their, x in (
            (bent, model.swing_bent, six), (knee_strike, model.knee_strike, six.at[2].set(six[1])),
            (straight, model.swing_straight, four), (heel_strike, model.heel_strike, four),
        ):  # fmt: skip
            yield own(t, joints(x), ROBOT.params), joints(their(t, x, PARAMS))
        yield -joints(six)[2], model.knee_bend(t, six, PARAMS)

    for ours, theirs in jax.jit(jax.vmap(lambda *x: list(both(*x))))(six, four):
        # Rounding, of mass matrices and of matrices of impulses with conditions up to some hundred.
        assert np.max(np.abs(ours - theirs)) <= 1e-12 * np.max(np.abs(theirs))
        assert np.median(np.abs(ours - theirs)) <= 1e-13 * np.max(np.abs(theirs))


@pytest.fixture(scope="module")
def kneed():
    return hj.periodic_orbit(model.step, model.guess(PARAMS), PARAMS)


@pytest.mark.slow
def test_gait_and_multipliers_are_those_of_the_model(kneed):
    orbit = hj.periodic_orbit(STEP, joints(model.guess(PARAMS)), ROBOT.params)
    assert_allclose(orbit.period, kneed.period, rtol=0, atol=1e-13)
    assert_allclose(orbit.x, joints(kneed.x), rtol=0, atol=1e-13)
    # Derivatives of the flow have ten times the error of the flow.
    assert_allclose(np.sort(np.abs(orbit.multipliers)), np.sort(np.abs(kneed.multipliers)), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_derivative_of_a_multiplier_by_a_mass_is_that_of_the_model(kneed):
    """By the mass of the hip."""

    def largest(step, guess, params, where, value):
        varied = eqx.tree_at(where, params, value)
        return jnp.max(jnp.abs(hj.periodic_orbit(step, guess, varied, throw=False).multipliers))

    x, one = kneed.x, jnp.array(1.0)
    along = lambda *given: jax.jvp(lambda value: largest(*given, value), (PARAMS.hip_mass,), (one,))
    theirs = along(model.step, x, PARAMS, lambda p: p.hip_mass)
    ours = along(STEP, joints(x), ROBOT.params, lambda p: p.mass[2])
    assert_allclose(ours[0], theirs[0], rtol=0, atol=1e-12)
    # Second derivatives of the flow again have ten times the error.
    assert_allclose(ours[1], theirs[1], rtol=0, atol=1e-11)
