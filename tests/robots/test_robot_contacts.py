"""Contacts of geoms with planes: gaps against MuJoCo's distances, slips against its Jacobians, a box against one by hand."""

import dataclasses
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import operations, project

mujoco = pytest.importorskip("mujoco")
NOW = jnp.array(0.0)
OPTION = '<compiler angle="radian"/><default><geom margin="9"/></default>'
# A trunk of slides and a hinge with a box, a leg with a capsule and a foot, all turned and off their joints, above a slope.
PLANAR = f"""<mujoco>{OPTION}<worldbody>
  <geom name="slope" type="plane" size="5 5 1" pos="0.1 0 -2.5" euler="0 0.2 0" friction="0.4"/>
  <body name="trunk" pos="0.1 0 1"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
    <joint name="pitch" axis="0 1 0"/><geom name="box" type="box" size="0.2 0.3 0.1" pos="0 0.1 0.05" euler="0 0.4 0"/>
    <body name="leg" pos="0.05 0 -0.1" euler="0 0.3 0"><joint name="hip" axis="0 -1 0" pos="0 0 0.02"/>
      <geom name="shin" type="capsule" fromto="0 0 0  0.1 0 -0.5" size="0.03" friction="0.9"/>
      <body pos="0.1 0 -0.5"><geom name="foot" type="sphere" size="0.07" pos="0 0 -0.01"/></body>
    </body>
  </body>
</worldbody></mujoco>"""
# A tumbling box: three hinges in space, without friction.
SPATIAL = f"""<mujoco>{OPTION}<worldbody><geom name="wall" type="plane" size="5 5 1" pos="-1 0 0" euler="0.3 1.2 0.1" condim="1"/>
  <body pos="1 0.2 1"><joint name="a" axis="1 0 0"/><joint name="b" axis="0 1 0"/><joint name="c" axis="0 0 1"/>
    <geom name="box" type="box" size="0.2 0.3 0.1" pos="0.1 0.2 0.3" condim="1"/>
    <geom name="ball" type="sphere" size="0.1" pos="0.1 -0.2 0.3" condim="1"/>
  </body></worldbody></mujoco>"""


@pytest.mark.parametrize(("source", "geoms"), [(PLANAR, ("box", "shin", "foot")), (SPATIAL, ("box", "ball"))])
def test_gaps_are_mujocos_distances(source, geoms):
    robot, model = hj.robots.from_mujoco(source, contacts=geoms), mujoco.MjModel.from_xml_string(source)
    data, rng = mujoco.MjData(model), np.random.default_rng(3)
    gaps = jax.jit(lambda q: {name: each.gap(NOW, q, robot.params) for name, each in robot.contacts.items()})
    number = lambda name: mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, name)
    for _ in range(20):
        data.qpos = rng.uniform(-1, 1, model.nq)
        mujoco.mj_forward(model, data)
        found = gaps(jnp.asarray(data.qpos))
        for geom in geoms:
            own = np.sort([value for name, value in found.items() if name.rpartition("_")[0] == geom or name == geom])
            contacts = [each.dist for each in data.contact if number(geom) in (each.geom1, each.geom2)]
            if geom == "shin":
                assert_allclose(own, np.sort(contacts), rtol=0, atol=1e-14)
            # Of a box MuJoCo leaves out corners that are farther than its centre.
            assert_allclose(own[0], np.min(contacts), rtol=0, atol=1e-14)
            assert len(own) == {"foot": 1, "ball": 1, "shin": 2, "box": 4 if source is PLANAR else 8}[geom]


def test_slips_and_friction_are_those_of_the_point_that_touches():
    """The velocity of the point of the link by MuJoCo's Jacobian, along the slope; MuJoCo takes the larger friction."""
    robot, model = hj.robots.from_mujoco(PLANAR, contacts=["foot", "shin"]), mujoco.MjModel.from_xml_string(PLANAR)
    assert_allclose(robot.params.slope, [0.2], rtol=0, atol=1e-15)
    normal, tangent = np.array([np.sin(0.2), 0, np.cos(0.2)]), np.array([np.cos(0.2), 0, -np.sin(0.2)])
    foot = robot.contacts["foot"]
    shin = robot.contacts["shin_0"]
    assert callable(foot.static) and callable(shin.kinetic)
    assert float(foot.static(robot.params)) == 1.0 and float(shin.kinetic(robot.params)) == 0.9
    data, rng, jacobian = mujoco.MjData(model), np.random.default_rng(4), np.zeros((3, model.nv))
    touching = [robot.contacts[name].slip for name in ("foot", "shin_0", "shin_1")]
    slips = jax.jit(lambda q, v, p: [slip(NOW, q, v, p) for slip in touching if slip is not None])
    foot, shin = (mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, name) for name in ("foot", "shin"))
    for _ in range(5):
        data.qpos, v = rng.uniform(-1, 1, (2, model.nq))
        mujoco.mj_forward(model, data)
        to_end = data.geom_xmat[shin].reshape(3, 3)[:, 2] * model.geom_size[shin, 1]
        centers = data.geom_xpos[foot], data.geom_xpos[shin] - to_end, data.geom_xpos[shin] + to_end
        ours = slips(jnp.asarray(data.qpos), jnp.asarray(v), robot.params)
        for slip, center, radius, geom in zip(ours, centers, (0.07, 0.03, 0.03), (foot, shin, shin), strict=True):
            mujoco.mj_jac(model, data, jacobian, None, center - radius * normal, model.geom_bodyid[geom])
            assert_allclose(slip, tangent @ jacobian @ v, rtol=0, atol=1e-14)


def test_a_site_is_a_point():
    """Above the plane by MuJoCo's place, with the friction of the plane."""
    source = PLANAR.replace('<geom name="foot"', '<site name="toe" pos="0.02 0 -0.1"/><geom name="foot"')
    robot, model = hj.robots.from_mujoco(source, contacts=["toe", "foot"]), mujoco.MjModel.from_xml_string(source)
    data, toe = mujoco.MjData(model), robot.contacts["toe"]
    data.qpos = [0.1, 0.2, 0.3, 0.4]
    mujoco.mj_forward(model, data)
    normal = np.array([np.sin(0.2), 0, np.cos(0.2)])
    height = normal @ (data.site("toe").xpos - data.geom("slope").xpos)
    assert_allclose(toe.gap(NOW, jnp.asarray(data.qpos), robot.params), height, rtol=0, atol=1e-14)
    jacobian, v = np.zeros((3, model.nv)), np.array([1.0, 2.0, 3.0, 4.0])
    mujoco.mj_jacSite(model, data, jacobian, None, model.site("toe").id)
    tangent = np.array([np.cos(0.2), 0, -np.sin(0.2)])
    assert toe.slip is not None and callable(toe.static)
    slip = toe.slip(NOW, jnp.asarray(data.qpos), jnp.asarray(v), robot.params)
    assert_allclose(slip, tangent @ jacobian @ v, rtol=0, atol=1e-14)
    assert float(toe.static(robot.params)) == 0.4


STOPS = PLANAR.replace('pos="0 0 0.02"/>', 'pos="0 0 0.02" range="-0.3 0.7"/>')
TOE = PLANAR.replace('<geom name="foot"', '<site name="toe" pos="0.02 0 -0.1"/><geom name="foot"')


@pytest.mark.medium
@pytest.mark.parametrize(
    ("source", "geoms"),
    [(TOE, ("foot", "shin", "toe", "box")), (SPATIAL, ("box", "ball")), (STOPS, ("hip", "foot")), (STOPS, ("hip",))],
)
def test_motion_of_contacts_is_that_by_differentiation(source, geoms):
    """Gaps, velocities, Jacobians and accelerations from the poses, as from the gaps and slips by automatic differentiation."""
    robot = hj.robots.from_mujoco(source, contacts=geoms)
    alone = hj.contact.Mechanism(robot.mechanism.mass, robot.mechanism.forces, robot.mechanism.coriolis)
    named, rows = list(robot.contacts.values())[::-1], robot.mechanism._rows
    assert rows is not None
    other = hj.contact.Contact(lambda t, q, p: q[0] * q[1] - t)
    states = jnp.asarray(np.random.default_rng(5).uniform(-2, 2, (6, 2 * len(robot.coordinates))))
    for contacts in (named, [*named, other]):
        contacts = tuple(dataclasses.replace(each, restitution=0.5) for each in contacts)
        both = lambda x, contacts=contacts: [
            project(m, contacts, NOW, x, robot.params) for m in (robot.mechanism, alone)
        ]
        known = rows(contacts, NOW, states[0][::2], states[0][1::2], robot.params)
        assert (known is None) == (len(contacts) > len(named))
        for ours, theirs in zip(*map(jax.tree.leaves, jax.jit(jax.vmap(both))(states)), strict=True):
            # Rounding, of accelerations of some hundreds.
            assert_allclose(ours, theirs, rtol=0, atol=1e-11)


def test_contacts_in_any_order():
    """Of stops between geoms the rows are those of each alone."""
    robot, q, v = hj.robots.from_mujoco(STOPS, contacts=["hip", "foot"]), jnp.arange(4.0), jnp.arange(1.0, 5.0)
    assert list(robot.contacts) == ["foot", "hip_lower", "hip_upper"]
    rows_of: Any = robot.mechanism._rows
    rows = lambda *names: rows_of(tuple(robot.contacts[k] for k in names), NOW, q, v, robot.params)
    order = ("hip_upper", "foot", "hip_lower")
    for whole, *each in zip(rows(*order), *map(rows, order), strict=True):
        parts = [part[:1] for part in each] + [part[1:] for part in each]
        assert_allclose(whole, np.concatenate(parts), rtol=0, atol=1e-14)
    assert_allclose(rows(*order)[0][::2], [0.7 - 3, 3 + 0.3], rtol=1e-14)


def test_a_range_without_effect():
    with pytest.warns(UserWarning, match="from_mujoco: the range of hip has no effect: the joint moves on beyond it"):
        assert not hj.robots.from_mujoco(STOPS).stops
    limited = STOPS.replace("</mujoco>", '<actuator><motor joint="hip" forcerange="-1 1"/></actuator></mujoco>')
    with pytest.warns(UserWarning, match="from_mujoco: limits of the forces of actuators have no effect"):
        hj.robots.from_mujoco(limited, contacts=["hip"])
    held = limited.replace("forcerange", "ctrlrange")
    with pytest.warns(UserWarning, match="from_mujoco: ranges of the inputs of actuators have no effect. Write limits"):
        hj.robots.from_mujoco(held, contacts=["hip"])
    with warnings.catch_warnings(action="error"):
        free = '<option><flag clampctrl="disable"/></option></mujoco>'
        hj.robots.from_mujoco(held.replace("</mujoco>", free), contacts=["hip"])
        # Of no actuators nothing is lost.
        hj.robots.from_mujoco(STOPS.replace('range="', 'actuatorfrcrange="-1 1" range="'), contacts=["hip"])
        # Nor of limits that a flag of the file disables.
        flags = '<option><flag limit="disable" actuation="disable"/></option>'
        assert not hj.robots.from_mujoco(limited.replace("</mujoco>", f"{flags}</mujoco>")).stops
    with pytest.raises(ValueError, match="contacts: the joint 'pitch' has no range"):
        hj.robots.from_mujoco(STOPS, contacts=["hip", "pitch"])
    with pytest.raises(ValueError, match="contacts: hip_lower name two contacts"):
        hj.robots.from_mujoco(STOPS.replace('name="foot"', 'name="hip_lower"'), contacts=["hip_lower", "hip"])
    # An iterator is read once.
    assert len(hj.robots.from_mujoco(STOPS, contacts=iter(["hip", "foot"])).contacts) == 3
    assert hj.robots.from_mujoco(STOPS, contacts={"foot": "slope", "hip": ()}).stops == (
        ("hip_lower", 3, 1),
        ("hip_upper", 3, -1),
    )


KNEE = """<mujoco><compiler angle="radian"/><worldbody><body><joint name="hip" axis="0 1 0"/>
  <inertial pos="0 0 -0.25" mass="2" diaginertia="0.02 0.02 0.02"/>
  <body pos="0 0 -0.5"><joint name="knee" axis="0 1 0" range="0 2"/>
    <inertial pos="0 0 -0.25" mass="1" diaginertia="0.01 0.01 0.01"/></body></body></worldbody></mujoco>"""


@pytest.mark.medium
def test_a_knee_at_its_stop():
    """A double pendulum swings, its knee strikes its lower stop twice, and is held: each strike stops the knee and keeps the
    angular momentum about the hip, each swing the energy; then it is one rigid pendulum."""
    robot = hj.robots.from_mujoco(KNEE, contacts=["knee"])
    system = hj.contact.contact_system(robot.mechanism, robot.contacts, robot.coordinates)
    x = jnp.array([0.3, 0.5, 0, 0, 0, 0])
    tight = hj.Integrator(rtol=1e-11, atol=1e-11)
    run = hj.simulate(system, x, robot.params, mode="contacts", t1=1.0, max_jumps=3, integrator=tight)
    assert int(run.jumps) == 2
    starts, ends = run.x_starts[:3], run.x_ends[:3]
    assert starts[:, 4:].tolist() == [[0, 0], [0, 0], [1, 0]]
    energy = jax.vmap(lambda x: robot.energy(x[:2], x[2:4]))
    assert_allclose(energy(ends), energy(starts), rtol=0, atol=1e-10)
    for before, after in zip(ends, starts[1:], strict=False):
        momentum = robot.mechanism.mass(before[:2], robot.params)[0]
        assert_allclose(before[1], 0, atol=1e-13)
        assert float(before[3]) < -1 and abs(float(after[3])) < 1e-13
        assert_allclose(momentum @ after[2:4], momentum @ before[2:4], rtol=1e-12)
    # Of one rigid body.
    inertia, moment = 0.02 + 2 * 0.25**2 + 0.01 + 0.75**2, 2 * 0.25 + 0.75
    of_rigid = lambda x: inertia * x[2] ** 2 / 2 - 9.81 * moment * jnp.cos(x[0])
    assert_allclose(of_rigid(ends[2]), of_rigid(starts[2]), rtol=0, atol=1e-10)
    assert_allclose(ends[2, jnp.array([1, 3])], 0, atol=1e-10)


@pytest.mark.medium
def test_numbers_of_contacts_are_leaves():
    robot = hj.robots.from_mujoco(PLANAR, contacts={"foot": "slope", "box": "slope"})
    q = jnp.array([0.1, 0.2, 0.3, 0.4])
    gap = lambda p: robot.contacts["foot"].gap(NOW, q, p)
    slope = jax.grad(gap)(robot.params)
    assert (float(slope.size[0][0]), float(slope.height[0])) == (-1.0, -1.0)
    # A turn of the plane by a small angle, in differences.
    turned = lambda by: float(gap(eqx.tree_at(lambda p: p.slope[0], robot.params, robot.params.slope[0] + by)))
    assert_allclose(slope.slope[0], (turned(1e-5) - turned(-1e-5)) / 2e-5, rtol=1e-9)
    # The corners of a larger box are farther from its middle.
    corner = lambda p: robot.contacts["box_0"].gap(NOW, q, p)
    assert abs(float(jax.grad(corner)(robot.params).size[1][0])) > 0.1
    assert float(jax.grad(corner)(robot.params).size[1][1]) == 0


ROLLING = """<mujoco><compiler angle="radian"/><worldbody>
  <geom name="slope" type="plane" size="5 5 1" euler="0 0.2 0" friction="0.3"/>
  <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/><joint name="turn" axis="0 1 0"/>
    <geom name="ball" type="sphere" size="0.1" mass="1" friction="0.3"/></body>
  </worldbody></mujoco>"""


def test_a_ball_rolls_down_a_slope():
    r"""$a = \frac57 g\sin\gamma$, without slip."""
    robot = hj.robots.from_mujoco(ROLLING, contacts="ball")
    system = hj.contact.contact_system(robot.mechanism, robot.contacts["ball"], robot.coordinates)
    x = jnp.array([0.0, 0.1 / np.cos(0.2), 0, 0, 0, 0])
    mode, _ = hj.contact.start(system, x, robot.params)
    assert mode == "C"
    acceleration = system.modes[mode].vector_field(NOW, x, robot.params)[3:]
    along = 5 / 7 * 9.81 * np.sin(0.2)
    assert_allclose(acceleration, along * np.array([np.cos(0.2), -np.sin(0.2), 10]), rtol=1e-13)
    flight = system.modes["U"].vector_field(NOW, x, robot.params)[3:]
    assert_allclose(flight, [0, -9.81, 0], rtol=0, atol=1e-13)
    # On ice the ball slides as a point does.
    ice = eqx.tree_at(lambda p: p.friction[0], robot.params, jnp.array(0.0))
    sliding = system.modes["S+"].vector_field(NOW, x, ice)[3:]
    assert_allclose(sliding, 9.81 * np.sin(0.2) * np.array([np.cos(0.2), -np.sin(0.2), 0]), rtol=0, atol=1e-13)


BOX = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" friction="0.3"/>
  <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/><joint name="angle" axis="0 -1 0"/>
    <geom name="box" type="box" size="0.3 0.2 0.5" mass="1" friction="0.3"/></body>
  </worldbody></mujoco>"""


@pytest.mark.medium
def test_a_box_moves_as_one_by_hand():
    """Field, guards, and the jumps onto a corner, which slides, and onto two: those of the mechanism and the corners that are
    written by hand, and so are all motions."""
    robot = hj.robots.from_mujoco(BOX, contacts=["box"])
    ours = hj.contact.contact_system(robot.mechanism, robot.contacts, robot.coordinates)

    def lever(side, top, angle):
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        return jnp.stack([side * 0.3 * cosine - top * 0.5 * sine, side * 0.3 * sine + top * 0.5 * cosine])

    def corner(side, top):
        gap = lambda t, q, p: q[1] + lever(side, top, q[2])[1]
        return hj.contact.Contact(
            gap, lambda t, q, v, p: v[0] - lever(side, top, q[2])[1] * v[2], static=0.3, kinetic=0.3
        )

    mass = jnp.diag(jnp.array([1.0, 1.0, (0.3**2 + 0.5**2) / 3]))
    hand = hj.contact.Mechanism(lambda q, p: mass, lambda t, q, v, p: jnp.array([0.0, -9.81, 0.0]))
    corners = {f"box_{i}": corner(*place) for i, place in enumerate([(-1, -1), (-1, 1), (1, -1), (1, 1)])}
    theirs = hj.contact.contact_system(hand, corners, ("x", "z", "angle"))
    # In flight; on a corner, which slides either way or sticks; on two, which strike and then lie flat.
    lie, tilt = 0.5, 0.5 * np.cos(0.3) + 0.3 * np.sin(0.3)
    states = [
        [0.1, 0.9, 0.3, 1, -0.5, 0.2, 0, 0, 0, 0], [0, tilt, 0.3, 1, 0, 0, 2, 0, 0, 0], [0, tilt, 0.3, -1, 0, 0, 3, 0, 0, 0],
        [0, tilt, 0.3, 0.1, -2, 0.5, 0, 0, 0, 0], [0, lie, 0, 0.5, -1, 0, 0, 0, 0, 0], [0, lie, 0, 0.5, 0, 0, 2, 0, 2, 0],
    ]  # fmt: skip

    def parts(system, params):
        mode, change = system.modes["contacts"], system.transitions[0]

        @jax.jit
        def at(x):
            guards = change.guard(NOW, x, params)
            jumps = [change.reset(NOW, x, params, jnp.array(i)) for i in (0, 2)]
            return mode.vector_field(NOW, x, params), guards, *jumps

        return [at(jnp.asarray(x, float)) for x in states]

    for found, expected in zip(parts(ours, robot.params), parts(theirs, None), strict=True):
        for own, other in zip(found, expected, strict=True):
            # Rounding, of forces of some ten times the weight.
            assert_allclose(own, other, rtol=0, atol=1e-12)
    jumps = np.array([each[2][6:] for each in parts(theirs, None)])
    assert len(np.unique(jumps, axis=0)) >= 2


def test_a_contact_made_elastic_and_a_single_contact():
    robot = hj.robots.from_mujoco(
        BOX.replace('type="box"', 'type="sphere"').replace("0.3 0.2 0.5", "0.3"), contacts="box"
    )
    ball = dataclasses.replace(robot.contacts["box"], restitution=0.5)
    assert ball == dataclasses.replace(robot.contacts["box"], restitution=0.5)
    after, _ = hj.contact.impact(
        robot.mechanism, jnp.array([0.0, 0.3, 0.0]), jnp.array([0.0, -1.0, 0.0]), robot.params, ball
    )
    assert_allclose(after, [0, 0.5, 0], rtol=0, atol=1e-14)
    skids = dataclasses.replace(ball, slip=lambda t, q, v, p: v[0] * jnp.abs(v[0]), static=0.3, kinetic=0.3)
    for contacts in ({"box": skids}, skids):
        system = hj.contact.contact_system(robot.mechanism, contacts, robot.coordinates)
        with pytest.raises(ValueError, match="slip must be affine in v"):
            hj.contact.start(system, jnp.array([0.0, 0.3, 0.0, 1.0, 0.0, 0.0]), robot.params)


def test_a_box_at_a_wall_and_a_floor():
    """Of a geom that touches two planes each corner is a contact with each: at 30 degrees, by the rotation of its corners."""
    robot = hj.robots.from_mujoco(
        """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" pos="0 0 -1" friction="0.3"/>
        <geom name="wall" type="plane" size="5 5 1" pos="-1 0 0" euler="0 90 0" friction="0.8"/>
        <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/><joint name="a" axis="0 1 0"/>
        <geom name="box" type="box" size="0.1 0.1 0.3" friction="0.5"/><site name="top" pos="0 0 0.3"/></body>
        </worldbody></mujoco>""", contacts={"box": ("floor", "wall"), "top": "wall"}
    )  # fmt: skip
    q, now = jnp.array([0.4, 0.2, jnp.pi / 6]), jnp.array(0.0)
    gaps = {name: float(each.gap(now, q, robot.params)) for name, each in robot.contacts.items()}
    cosine, sine = np.sqrt(0.75), 0.5
    corners = [(x, z) for x in (-0.1, 0.1) for z in (-0.3, 0.3)]
    expected = {f"box_{i}_floor": 1.2 - sine * x + cosine * z for i, (x, z) in enumerate(corners)}
    expected |= {f"box_{i}_wall": 1.4 + cosine * x + sine * z for i, (x, z) in enumerate(corners)}
    expected["top"] = 1.4 + 0.3 * sine
    assert list(gaps) == list(expected)
    assert_allclose(list(gaps.values()), list(expected.values()), rtol=1e-14)
    frictions = [each.static and each.static(robot.params) for each in robot.contacts.values()]
    assert_allclose(frictions, 4 * [0.5] + 5 * [0.8], rtol=1e-15)


def test_friction_of_a_pair_and_of_an_override_is_mujocos():
    """Of a rod across the plane of motion both ends are one contact."""
    text = """<mujoco>OPTION<worldbody><geom name="floor" type="plane" size="1 1 1"/>
      <body pos="0 0 0.04"><joint type="slide" axis="1 0 0"/><joint type="slide"/><joint axis="0 1 0"/>
        <geom name="rod" type="capsule" size="0.05 0.2" euler="90 0 0"/><geom name="ball" size="0.05" pos="0.3 0 0"/>
      </body></worldbody><contact><pair geom1="floor" geom2="ball" friction="0.3 0.3 0 0 0"/></contact></mujoco>"""
    flag = '<option o_friction="0.2 0.2 0 0 0"><flag override="enable"/></option>'
    for option in ("", flag):
        model = mujoco.MjModel.from_xml_string(text.replace("OPTION", option))
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        theirs = {model.geom(max(each.geom)).name: each.friction[0] for each in data.contact}
        contacts = hj.robots.from_mujoco(model, contacts=["rod", "ball"])
        ours = {name: float(each.static(contacts.params)) for name, each in contacts.contacts.items() if each.static}
        assert ours == theirs and len(ours) == 2


URDF = """<?xml version="1.0"?>
<!-- A rod with a ball at its end; the planar base is free of the ground. -->
<robot name="rod"><link name="world"/>
  <link name="rod"><inertial><mass value="2"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision name="end"><origin xyz="0 0 -0.4"/><geometry><sphere radius="0.05"/></geometry></collision></link>
  <joint name="base" type="planar"><parent link="world"/><child link="rod"/><origin xyz="0 0 1"/><axis xyz="0 1 0"/></joint>
</robot>"""


def test_urdf_has_a_ground(tmp_path):
    """URDF has no planes: gap and slip in closed form, from a text and from a file."""
    (tmp_path / "rod.urdf").write_text(URDF)
    _, down, turn = q = jnp.array([0.3, 0.2, 0.5])
    v = jnp.array([1.0, 0.0, 2.0])
    for source, ground in ((URDF, None), (tmp_path / "rod.urdf", "ground")):
        robot = hj.robots.from_mujoco(source, contacts={"end": ground} if ground else ["end"])
        assert robot.coordinates == ("base_TX", "base_TY", "base_RZ") and robot.geoms == (("ground", -1), ("end", 2))
        end, params = robot.contacts["end"], robot.params
        assert end.slip is not None
        assert_allclose(end.gap(NOW, q, params), 1 - down - 0.4 * jnp.cos(turn) - 0.05, rtol=1e-14)
        assert_allclose(end.slip(NOW, q, v, params), 1 - 2 * (0.4 * jnp.cos(turn) + 0.05), rtol=1e-14)
        assert params.slope == params.height == (0,)
    assert "may touch ground: give" in str(hj.robots.from_mujoco(URDF))


ARM = """<mujoco><worldbody>GROUND<body><joint axis="0 1 0"/><geom name="tip" size="0.1" pos="0 0 -1"/>
  <geom name="disk" type="cylinder" size="0.1 0.1" pos="0 0 -1"/><body pos="0 0 -1">SECOND<geom size="0.1"/></body></body>
  </worldbody></mujoco>"""
FLOOR = '<geom name="floor" type="plane" size="1 1 1"/>'
ROD = """<geom name="rod" type="capsule" size="0.1" fromto="0 0 0 0 0 1"/><geom name="rod_0" size="0.1"/>
  <geom name="rod_1" size="0.1"/>"""
RANGED = '<joint name="knee" axis="0 1 0" range="-1 0" limited="true"/>'
REFUSED = {
    "there is no geom, site or joint with a range 'tpi'; there is tip": (FLOOR, "", ["tpi"]),
    "there is no geom, site or joint with a range 'kneee'; there is knee": ("", RANGED, ["kneee"]),
    "'tip' is a geom and a joint. Give one of them another name": (FLOOR, RANGED.replace("knee", "tip"), ["tip"]),
    "'disk' is no plane, and contacts of a file are with planes. Write that of 'tip' and 'disk'": (
        FLOOR, "", {"tip": "disk"},
    ),
    "there is no plane 'flor'; there is floor": (FLOOR, "", {"tip": "flor"}),
    "there is no plane 3; there is floor": (FLOOR, "", {"tip": 3}),
    "contacts need a plane": ("", "", ["tip"]),
    "there are the planes floor, wall: give one to each geom": (FLOOR + FLOOR.replace("floor", "wall"), "", ["tip"]),
    "'disk' is of the kind cylinder; contacts are of moving spheres": (FLOOR, "", ["disk"]),
    "friction=-2 of 'tip' must not be negative": (
        FLOOR.replace("/>", ' friction="-2" priority="1"/>'), "", {"tip": "floor"},
    ),
    "rod_0, rod_1 name two contacts": (FLOOR, ROD, ["rod", "rod_0", "rod_1"]),
    "'floor' does not move": (FLOOR, "", ["floor"]),
    "friction of 'tip' needs a motion in one plane, but its hinges are not parallel": (
        FLOOR, '<joint axis="1 0 0"/>', ["tip"],
    ),
    "but a slide or a plane's normal leaves the plane": (FLOOR.replace("/>", ' euler="30 0 0"/>'), "", ["tip"]),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_contacts_that_are_not_supported(message):
    ground, second, contacts = REFUSED[message]
    with pytest.raises(ValueError, match=f"^from_mujoco: .*{message}"):
        hj.robots.from_mujoco(ARM.replace("GROUND", ground).replace("SECOND", second), contacts=contacts)


def test_a_joint_without_a_range_may_share_the_name_of_a_geom():
    joint = RANGED.replace("knee", "tip").replace('range="-1 0" limited="true"', "")
    robot = hj.robots.from_mujoco(ARM.replace("GROUND", FLOOR).replace("SECOND", joint), contacts="tip")
    assert list(robot.contacts) == ["tip"] and not robot.stops


def test_what_cannot_slip_has_no_friction():
    """A ball that only rises and falls, with the friction that MuJoCo gives by default, comes to rest."""
    robot = hj.robots.from_mujoco(
        """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.1"><joint name="z" type="slide" axis="0 0 1"/>
        <geom name="ball" type="sphere" size="0.1" mass="1"/></body></worldbody></mujoco>""", contacts=["ball"]
    )  # fmt: skip
    assert robot.contacts["ball"].slip is None
    system = hj.contact.contact_system(robot.mechanism, robot.contacts["ball"], robot.coordinates)
    mode, x = hj.contact.start(system, jnp.zeros(2), robot.params)
    assert mode == "S"
    assert_allclose(system.modes[mode].vector_field(jnp.array(0.0), x, robot.params), 0, atol=1e-14)


# A rimless wheel, whose six points have friction.


def rimless_wheel(spokes=6):
    """The wheel on a slope that is a parameter, and its system; of radius and mass 1, and of the inertia 0.3."""
    angles = 2 * np.pi / spokes * np.arange(spokes)
    points = "".join(f'<site name="{k}" pos="{np.sin(a)} 0 {-np.cos(a)}"/>' for k, a in enumerate(angles))
    robot = hj.robots.from_mujoco(
        f"""<mujoco>{OPTION}<option gravity="0 0 -1"/><worldbody><geom type="plane" size="9 9 1" friction="2"/>
      <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <joint name="turn" axis="0 1 0"/><inertial pos="0 0 0" mass="1" diaginertia="0.3 0.3 0.3"/>{points}
      </body></worldbody></mujoco>""",
        contacts=[str(k) for k in range(spokes)],
    )
    return robot, hj.contact.contact_system(robot.mechanism, robot.contacts, robot.coordinates)


@pytest.mark.medium
def test_programs_do_not_grow_with_the_number_of_contacts():
    """The flow, the guards, whether they are armed, and the domain of three points and of six are as many operations, up to a few
    for the lists of names."""

    def sizes(spokes):
        robot, system = rimless_wheel(spokes)
        (mode,), (way,) = system.modes.values(), system.transitions
        point = NOW, jnp.zeros(6 + spokes), robot.params
        return [
            operations(jax.make_jaxpr(fn)(*point).jaxpr)
            for fn in (mode.vector_field, mode.domain, way.guard, way.armed)
        ]

    assert_allclose(sizes(6), sizes(3), rtol=0.02)
    # The domain places the contacts, and neither forces nor accelerations.
    _, domain, guards, _ = sizes(3)
    assert domain < guards / 3


@pytest.mark.slow
def test_a_rimless_wheel_rolls_from_point_to_point():
    """The rate after each strike is (I + cos 2a) / (I + 1) of that before it, with 2a between spokes, by the angular momentum
    about the new point; and between strikes it grows by the loss of height."""
    robot, system = rimless_wheel()
    half, inertia, slope = np.pi / 6, 0.3, jnp.array(0.2)
    params = eqx.tree_at(lambda p: p.slope, robot.params, (slope,))

    turn, rate = slope - half + 1e-3, 0.5
    sine, cosine = jnp.sin(turn), jnp.cos(turn)
    standing = jnp.stack([sine, cosine, turn, rate * cosine, -rate * sine, rate * jnp.ones(())])
    _, x = hj.contact.start(system, standing, params)
    run = hj.simulate(system, x, params, mode="contacts", t1=4.6, max_jumps=3)
    names = [hj.contact.set_name(system, each) for each in run.x_starts[:3]]
    assert [name.split("+")[k] for k, name in enumerate(names)] == ["0:stick", "1:stick", "2:stick"]
    assert all(name.count("open") == 5 for name in names)

    # From the height of the centre above the point on which the wheel stands.
    drop = lambda begin: 2 / (inertia + 1) * (np.cos(half - begin - slope) - np.cos(half + slope))
    first = np.sqrt(rate**2 + drop(1e-3))
    after = (inertia + np.cos(2 * half)) / (inertia + 1) * first
    assert_allclose(run.x_ends[:2, 5], [first, np.sqrt(after**2 + drop(0.0))], rtol=1e-11)
