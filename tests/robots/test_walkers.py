"""Walkers from files: on a foot as `Mechanism.reduced` and `impact` have it, the compass gait, legs that change places."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import alike
from hyjax.models import compass_gait

pytest.importorskip("mujoco")
SLOPE = float(np.deg2rad(3))
NOW = jnp.array(0.3)


def leg(side, across=0.0):
    """Thigh and shank, with a round foot."""
    return f"""<body pos="0 {across} 0"><joint name="hip_{side}" axis="0 -1 0" damping="0.2" ref="0.1"/>
      <geom type="capsule" fromto="0 0 0  0 0 -0.4" size="0.03" mass="2"/>
      <body pos="0 0 -0.4"><joint name="knee_{side}" axis="0 1 0" stiffness="3" springref="0.1" armature="0.01"/>
        <geom type="capsule" fromto="0 0 0  0 0 -0.35" size="0.02" mass="1"/>
        <geom name="foot_{side}" pos="0.02 0 -0.36" size="0.04" mass="0.3"/></body></body>"""


def file(legs, slides='<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0.6 0 0.8"/>'):
    return f"""<mujoco><compiler angle="radian"/><worldbody>
      <geom name="slope" type="plane" size="9 9 1" pos="0 0 -0.1" euler="0 {SLOPE} 0"/>
      <body>{slides}<joint name="pitch" axis="0 1 0"/><geom type="box" size="0.1 0.1 0.2" pos="0.01 0 0.3" mass="5"/>
        {legs}</body></worldbody>
      <actuator><motor joint="hip_l" gear="2"/></actuator></mujoco>"""


FEET = ["foot_l", "foot_r"]
CONTROL = lambda t, q, v, params: jnp.stack([t + q[0] * q[1] - v[0] + q[5]])
ROUND = hj.robots.from_mujoco(file(leg("l", 0.1) + leg("r", -0.1)), contacts=FEET, control=CONTROL)
WALKER = hj.robots.walker(ROUND, FEET)
STATES = jnp.asarray(np.random.default_rng(0).uniform(-0.6, 0.6, (10, 10)))


@jax.jit
@jax.vmap
def on_the_left_foot(x):
    """What a walker computes without the slides, and the same of the free robot, whose slides are those of `pinned`."""
    robot, params = ROUND, ROUND.params
    place = lambda theta, params=params: WALKER.pinned("swing", theta, params)
    moving = lambda theta, rate: jax.jvp(place, (theta,), (rate,))
    (theta, rate), (q, v) = jnp.split(x, 2), moving(*jnp.split(x, 2))
    gap = [robot.contacts[foot].gap(NOW, q, params) for foot in FEET]
    slip = robot.contacts["foot_l"].slip
    assert slip is not None
    field = WALKER.system.modes["swing"].vector_field(NOW, x, params)
    acceleration = robot.mechanism.reduced(place).acceleration(NOW, theta, rate, params)
    (strike,) = WALKER.system.transitions
    lands = dataclasses.replace(robot.contacts["foot_r"], static=math.inf)
    # Of a foot that strikes, whatever the random velocity is.
    down = jnp.where(jax.jvp(lambda q: lands.gap(NOW, q, params), (q,), (v,))[1] < 0, 1.0, -1.0)
    after, _ = hj.contact.impact(robot.mechanism, q, down * v, params, lands)
    struck = strike.reset(NOW, x, params)

    def momentum(theta, rate):
        q, v = moving(theta, rate)
        centers = lambda q: robot._moved(q, params)[2]
        return jnp.stack(params.mass) @ jax.jvp(centers, (q,), (v,))[1]

    _, force = jax.jvp(momentum, (theta, rate), (rate, acceleration))
    force = force - jnp.sum(jnp.stack(params.mass)) * jnp.stack(params.gravity)
    ground = jnp.stack([jnp.array([np.cos(SLOPE), 0, -np.sin(SLOPE)]), jnp.array([np.sin(SLOPE), 0, np.cos(SLOPE)])])
    return {
        "stands": (jnp.stack([gap[0], slip(NOW, q, v, params)]), jnp.zeros(2)),
        "guard": (strike.guard(NOW, x, params), gap[1]),
        "acceleration": (field[5:], acceleration),
        "strike": (struck, jnp.concatenate([theta[SWAP], down * after[2:][SWAP]])),
        "force": (WALKER.ground_force("swing", x, t=NOW), ground @ force),
    }


SWAP = hj.contact.relabelling(ROUND.coordinates[2:], {"hip_l": "hip_r", "knee_l": "knee_r"})


@pytest.mark.medium
def test_on_a_foot_the_robot_is_that_of_the_reduced_mechanism():
    """Round feet roll; strikes are rough impacts; the ground's force moves the centre of mass. The control knows the slides."""
    for name, (ours, theirs) in on_the_left_foot(STATES).items():
        # Rounding; the mass matrices have a condition of some hundred.
        assert_allclose(ours, theirs, rtol=0, atol=1e-12 * max(1, float(jnp.max(jnp.abs(theirs)))), err_msg=name)


def compass(mirror=None, masses=(1, 1)):
    """The compass walker of the models, whose angles count backward."""

    def half(side, mass):
        return f"""<body><joint name="hip_{side}" axis="0 -1 0"/><site name="foot_{side}" pos="0 0 -1"/>
          <inertial pos="0 0 -0.5" mass="{mass}" diaginertia="1e-9 1e-9 1e-9"/></body>"""

    robot = hj.robots.from_mujoco(
        f"""<mujoco><compiler angle="radian"/><option gravity="0 0 -1"/><worldbody>
      <geom type="plane" size="9 9 1" euler="0 {SLOPE!r} 0"/>
      <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide"/>
        <inertial pos="0 0 0" mass="2" diaginertia="1e-9 1e-9 1e-9"/>{half("l", masses[0])}{half("r", masses[1])}
      </body></worldbody></mujoco>""",
        contacts=FEET,
    )
    # The masses are points, which a file cannot have.
    robot = eqx.tree_at(lambda robot: robot.params.inertia, robot, jnp.zeros((3, 3)))
    return hj.robots.walker(robot, FEET, mirror=mirror)


@pytest.mark.medium
def test_the_compass_gait_from_a_file_is_that_of_the_models():
    walker = compass()
    step = hj.ReturnMap(walker.system, sequence=walker.sequence)
    params = compass_gait.Params()
    ours = hj.periodic_orbit(step, compass_gait.guess(params), walker.robot.params)
    theirs = hj.periodic_orbit(compass_gait.step, compass_gait.guess(params), params)
    # Both orbits are closed to rounding, some 1e-15, which the least stable multiplier, 0.6, enlarges by 1 / (1 - 0.6).
    assert_allclose(ours.x, theirs.x, rtol=0, atol=1e-13)
    assert_allclose(ours.period, theirs.period, rtol=0, atol=1e-13)
    # Derivatives of the flow have ten times the error of the flow.
    assert_allclose(np.sort(np.abs(ours.multipliers)), np.sort(np.abs(theirs.multipliers)), rtol=0, atol=1e-12)


@pytest.mark.medium
def test_two_steps_without_exchange_are_two_with_it():
    one, two = compass(), compass({})
    assert two.sequence == ("foot_l", "foot_r") and two.feet == ((0, 1), (1, 0))
    x, params = compass_gait.guess(compass_gait.Params()), one.robot.params
    once = hj.ReturnMap(one.system, sequence=one.sequence).repeated(2)(x, params)
    twice = hj.ReturnMap(two.system, sequence=two.sequence)(x, params)
    assert twice.result == "successful"
    # Two integrations with the same steps.
    assert_allclose(twice.x, once.x, rtol=0, atol=1e-12)


@pytest.mark.medium
def test_the_legs_change_places():
    """A permutation where both hang on the trunk; where one leg is the base, the angles in the plane change places."""
    exchange = WALKER.system.transitions[0].reset
    x = jnp.concatenate([jnp.stack(ROUND.params.reference[2:]), jnp.zeros(5)]) + jnp.arange(10.0)
    assert_allclose(exchange(NOW, x, ROUND.params)[:5] - x[:5], jnp.array([0.0, 2, 2, -2, -2]), rtol=0, atol=1e-15)
    limb = '<geom type="capsule" fromto="0 0 0 0 0 -1" size="0.1"/><site name="foot_'
    based = hj.robots.from_mujoco(
        f"""<mujoco><compiler angle="radian"/><worldbody><geom type="plane" size="9 9 1"/>
      <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide"/>
        <joint name="left" axis="0 1 0"/>{limb}l" pos="0 0 -1"/>
        <body><joint name="hip" axis="0 -1 0"/>{limb}r" pos="0 0 -1"/></body></body></worldbody></mujoco>""",
        contacts=FEET,
    )
    walker = hj.robots.walker(based, FEET, mirror={"left": "hip"})
    # Absolute angles left and left - hip: those exchanged are left - hip and left.
    after = walker.system.transitions[0].reset(NOW, jnp.array([0.3, 0.5, 0.0, 0.0]), based.params)
    assert_allclose(after[:2], [-0.2, -0.5], rtol=0, atol=1e-15)


def test_pairs_of_names():
    names = (
        "Pitch",
        "hip_left",
        "LeftKnee",
        "hip_right",
        "RightKnee",
        "ankle_L",
        "ankle_R",
        "toe1",
        "toe2",
        "lift",
        "r",
    )
    pairs = {"hip_left": "hip_right", "LeftKnee": "RightKnee", "ankle_L": "ankle_R", "toe1": "toe2"}
    assert alike(names) == pairs
    # No name is in two pairs: the numbers count joints, not legs.
    names = ("left_joint1", "left_joint2", "right_joint1", "right_joint2")
    assert alike(names) == {"left_joint1": "right_joint1", "left_joint2": "right_joint2"}


HEAVY = leg("l") + leg("r").replace('mass="2"', 'mass="2.1"')
STOPPED = hj.robots.from_mujoco(
    file(leg("l").replace('name="hip_l"', 'name="hip_l" range="-1 1"') + leg("r")), contacts=[*FEET, "hip_l"]
)
REFUSED = {
    "there is no contact 'foot'; there is foot_r, foot_l": (ROUND, {"feet": ["foot", "foot_r"]}),
    r"feet: give two of the robot's contacts foot_l, foot_r, not \['foot_l'\]": (ROUND, {"feet": ["foot_l"]}),
    "the first two coordinates must be slides that move all bodies, such as x and z, not pitch, hip_l": (
        file(leg("l") + leg("r"), ""), {}
    ),
    "the legs are not alike: their masses differ. Pair": (file(HEAVY), {}),
    "the slides x, z have damping, which would hold": (
        file(leg("l") + leg("r"), '<joint name="x" type="slide" axis="1 0 0" damping="1"/><joint name="z" type="slide"/>'), {}
    ),
    "the legs are not alike: their forces differ": (file(leg("l") + leg("r").replace('"0.2"', '"0.3"')), {}),
    "'hip' must be one of the coordinates": (ROUND, {"mirror": {"hip": "hip_r"}}),
    r"mirror must be pairs of coordinates, as .*, not list": (ROUND, {"mirror": [("hip_l", "hip_r")]}),
    "feet: give two of the robot's contacts foot_l, foot_r, not None": (ROUND, {"feet": None}),
    "shortest=-1 must be a finite length, in m, of at least 0": (ROUND, {"shortest": -1}),
    "shortest=nan must be a finite length": (ROUND, {"shortest": np.nan}),
    "the robot's contacts have the stops hip_l_lower, hip_l_upper, which do not hold in a walker": (STOPPED, {}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_misuse(message, unchecked):
    robot, given = REFUSED[message]
    robot = hj.robots.from_mujoco(robot, contacts=FEET) if isinstance(robot, str) else robot
    with pytest.raises(ValueError, match=message):
        hj.robots.walker(robot, given.pop("feet", FEET), **given)
    with pytest.raises(
        ValueError, match=r"first argument must be a robot, as hj\.robots\.from_mujoco returns it, not str"
    ):
        hj.robots.walker("robot.xml", FEET)  # pyright: ignore[reportArgumentType]


@pytest.mark.medium
def test_single_precision_stays():
    """Of states in float32, at the accuracy of float32, though the numbers of the file are in float64."""
    mode, (strike,) = WALKER.system.modes["swing"], WALKER.system.transitions
    params = ROUND.params

    @jax.jit
    def found(x):
        t = NOW.astype(x.dtype)
        arc = mode.vector_field(t, x, params), strike.guard(t, x, params), strike.reset(t, x, params)
        assert mode.domain is not None
        places = WALKER.pinned("swing", x[:5], params), WALKER.travel("swing", x, params)
        return *arc, mode.domain(t, x, params), *places, WALKER.ground_force("swing", x, params, t)

    for single, double in zip(found(STATES[0].astype(jnp.float32)), found(STATES[0]), strict=True):
        assert single.dtype == jnp.float32 and double.dtype == jnp.float64
        # A condition of the mass matrix of some hundred.
        assert_allclose(single, double, rtol=0, atol=1e-4 * max(1, float(jnp.max(jnp.abs(double)))))
