"""Robots from files: mass matrix, forces of inertia, places and energy against digits of 40-digit arithmetic and MuJoCo."""

import json
import re
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj

mujoco = pytest.importorskip("mujoco")
# Case `A`: own sums over Jacobians in mpmath, and MuJoCo, Pinocchio and CasADi, which agree to 1e-13.
REFERENCE = json.loads((Path(__file__).parent / "robots_reference.json").read_text())


@pytest.mark.parametrize("name", REFERENCE)
def test_dynamics_against_40_digits(name):
    robot = hj.robots.from_mujoco(REFERENCE[name]["xml"])
    states = REFERENCE[name]["states"]
    # Planar robots have the feet's x and z alone.
    sites = {
        site: (
            np.array([state["sites"][site]["pos"] for state in states]),
            [state["sites"][site]["J"] for state in states],
        )
        for site in states[0].get("sites", ())
    } or {
        foot: ([state[foot] for state in states], [state[f"J{foot[-1]}"] for state in states])
        for foot in ("foot1", "foot2")
    }

    @jax.jit
    @jax.vmap
    def found(q, v):
        places = {site: (robot.position(q, site), robot.jacobian(q, site)) for site in sites}
        return robot.mass(q, robot.params), robot.inertial(q, v, robot.params), places

    q, v, mass, bias = (np.array([state[key] for state in states]) for key in ("q", "v", "M", "bias"))
    ours = found(jnp.asarray(q), jnp.asarray(v))
    # Rounding of sums over up to 13 bodies. MuJoCo 3.2.0 finds the axes of a `fullinertia` to 1e-10 only, 4.0.0 to rounding.
    older = mujoco.__version__ < "4" and "fullinertia" in REFERENCE[name]["xml"]
    size = 1e-10 if older else 1e-13
    assert_allclose(ours[0], mass, rtol=0, atol=size * np.max(np.abs(mass)))
    assert_allclose(ours[1], bias, rtol=0, atol=size * np.max(np.abs(bias)))
    for site, (place, slope) in sites.items():
        axes = slice(None) if len(place[0]) == 3 else slice(None, None, 2)
        assert_allclose(ours[2][site][0][:, axes], place, rtol=0, atol=1e-14)
        assert_allclose(ours[2][site][1][:, axes], slope, rtol=0, atol=1e-14)


def tree(rng, parents, joints, kinds):
    """A random tree as MJCF: bodies turned and off the joints, several joints in a body, springs, dampers and armature."""
    normal = lambda *shape: rng.normal(size=shape)
    text = lambda values: " ".join(repr(float(each)) for each in values)

    def joint(i, k):
        return (
            f'<joint name="j{i}{k}" type="{kinds[i][k]}" axis="{text(normal(3))}" pos="{text(0.2 * normal(3))}" '
            f'ref="{0.3 * normal()}" armature="{0.1 * abs(normal())}" damping="{abs(normal())}" stiffness="{abs(normal())}" '
            f'springref="{normal()}"/>'
        )

    def body(i):
        a, b, c = rng.uniform(0.1, 1, 3)
        inside = "".join(joint(i, k) for k in range(joints[i]))
        inertia = f'quat="{text(normal(4))}" diaginertia="{b + c} {a + c} {a + b}"'
        inside += f'<inertial pos="{text(normal(3))}" mass="{rng.uniform(0.1, 3)}" {inertia}/>'
        inside += f'<site name="s{i}" pos="{text(normal(3))}"/>'
        inside += "".join(body(j) for j, parent in enumerate(parents) if parent == i)
        return f'<body pos="{text(normal(3))}" quat="{text(normal(4))}">{inside}</body>'

    bodies = "".join(body(j) for j, parent in enumerate(parents) if parent < 0)
    compiler = '<compiler angle="radian" balanceinertia="false"/>'
    return f'<mujoco>{compiler}<option gravity="{text(5 * normal(3))}"/><worldbody>{bodies}</worldbody></mujoco>'


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(each, marks=pytest.mark.medium) for each in range(2, 8))])
def test_random_trees_against_mujoco(seed):
    """25 trees of each shape, as a batch: all numbers of a robot are leaves of its parameters. MuJoCo's energy has the
    constant of the bodies that no joint moves too."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 8))
    parents = [-1, *(int(rng.integers(-1, i)) for i in range(1, count))]
    joints = [int(rng.integers(0, 4)) for _ in parents]
    joints[-1] += not any(joints)
    kinds = [[str(rng.choice(["hinge", "slide"])) for _ in range(many)] for many in joints]
    robots, states, expected = [], [], []
    for _ in range(25):
        model = mujoco.MjModel.from_xml_string(tree(rng, parents, joints, kinds))
        model.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
        data, size = mujoco.MjData(model), model.nv
        data.qpos[:], data.qvel[:] = rng.normal(size=size), rng.normal(size=size)
        mujoco.mj_forward(model, data)
        mass, slope = np.zeros((size, size)), np.zeros((3, size))
        for row, unit in zip(mass, np.eye(size), strict=True):
            mujoco.mj_mulM(model, data, row, unit)
        robots.append(hj.robots.from_mujoco(model))
        states.append((data.qpos.copy(), data.qvel.copy()))
        last = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, f"s{count - 1}")
        mujoco.mj_jacSite(model, data, slope, None, last)
        place = data.site_xpos[last].copy()
        fixed = model.body_weldid == 0
        energy = np.sum(data.energy) + model.body_mass[fixed] @ data.xipos[fixed] @ model.opt.gravity
        expected.append((mass, data.qfrc_bias.copy(), data.qfrc_passive.copy(), place, slope, energy))
    robot, site = robots[0], f"s{count - 1}"

    @jax.jit
    @jax.vmap
    def found(params, q, v):
        forces = robot.forces(jnp.array(0.0), q, v, params)
        places = robot.position(q, site, params), robot.jacobian(q, site, params)
        return robot.mass(q, params), robot.inertial(q, v, params), forces, *places, robot.energy(q, v, params)

    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(each.params for each in robots))
    q, v = (jnp.asarray(np.stack(each)) for each in zip(*states, strict=True))
    for ours, theirs in zip(found(params, q, v), zip(*expected, strict=True), strict=True):
        theirs = np.stack(theirs)
        axes = tuple(range(1, theirs.ndim))
        # Rounding, of sums over chains of up to 21 joints.
        assert np.all(np.abs(ours - theirs) <= 1e-12 * (1 + np.max(np.abs(theirs), axis=axes, keepdims=True)))


ARM = """
<mujoco><compiler angle="radian" balanceinertia="false"/><worldbody>
  <body name="upper"><joint name="shoulder" axis="0 1 0" damping="0.1"/>
    <inertial pos="0 0 -0.3" mass="2" diaginertia="0.03 0.02 0.01"/>
    <body name="lower" pos="0 0 -0.6"><joint name="elbow" axis="0 1 0"/>
      <inertial pos="0 0 -0.2" mass="1" diaginertia="0.01 0.02 0.01"/><site name="hand" pos="0 0 -0.4"/>
      <site name="palm" pos="0 0 -0.35"/>
    </body>
  </body>
</worldbody>ACTUATORS</mujoco>"""
ACTUATORS = (
    """<actuator><motor name="strong" joint="elbow" gear="20"/><motor name="weak" joint="shoulder"/></actuator>"""
)
DISABLED = ("GRAVITY", "PASSIVE", "SPRING", "DAMPER", "ACTUATION")
POINT = '<inertial pos="0 0 -1" mass="1" diaginertia="1 1 1"/>'
arm = lambda **given: hj.robots.from_mujoco(ARM.replace("ACTUATORS", ACTUATORS), **given)
Q, V, NOW = jnp.array([0.3, -0.8]), jnp.array([1.0, 2.0]), jnp.array(0.0)


def with_parts(joint='<joint name="j"/>', body=POINT, rest="", option=""):
    return f"<mujoco>{option}<worldbody><body name='b'>{joint}{body}</body></worldbody>{rest}</mujoco>"


REFUSED = {
    "free joint 'loose'": with_parts('<freejoint name="loose"/>'),
    "ball joint 'hip'": with_parts('<joint name="hip" type="ball"/>'),
    "equality constraint 'held'": with_parts(rest='<equality><joint name="held" joint1="j"/></equality>'),
    "tendon 'tendon0'": with_parts(rest='<tendon><fixed><joint joint="j" coef="1"/></fixed></tendon>'),
    "frictionloss of joint 'j'": with_parts('<joint name="j" frictionloss="0.1"/>'),
    "actuator 'servo', no motor or servo on a joint": with_parts(
        rest='<actuator><position name="servo" joint="j" timeconst="1"/></actuator>'
    ),
    "a constant force of an actuator on joint 'j'": with_parts(
        rest='<actuator><general joint="j" biastype="affine" biasprm="1"/></actuator>'
    ),
    "gravity compensation": with_parts().replace("name='b'", "name='b' gravcomp='1'"),
    "a medium with density or viscosity": with_parts(option='<option density="1.2"/>'),
    "a file without a joint": with_parts(""),
    "MuJoCo refuses the file: .*axis": with_parts('<joint axis="0 0 0"/>'),
    "MuJoCo refuses the file: .*[Ll]ine": "<mujoco><worldbody><body></worldbody></mujoco>",
    r"there is no file 'walker\.xml'": "walker.xml",
    # MuJoCo allows it where a body below has a mass; about its own axis that body has none.
    "the mass matrix is not positive definite: what the joint 'j' moves has neither mass nor armature": with_parts(
        '<joint name="j" type="slide"/><joint name="k" type="slide"/>'
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_supported(message, tmp_path, monkeypatch):
    # MuJoCo writes a file of its warnings.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"^from_mujoco: .*{message}"):
        hj.robots.from_mujoco(REFUSED[message])


def test_all_that_is_not_supported_is_named_at_once():
    text = with_parts(
        '<joint name="hip" type="ball"/>', rest='<tendon><spatial><site site="s"/><site site="r"/></spatial></tendon>'
    )
    text = text.replace("</body>", '<site name="s"/><site name="r" pos="1 0 0"/></body>')
    with pytest.raises(
        ValueError, match=r"ball joint 'hip' \(give slides and hinges in its place\); tendon 'tendon0' \("
    ):
        hj.robots.from_mujoco(text)


WRONG = {
    "contacts must be names, such as .*, not None": {"contacts": None},
    "contacts must be names, such as .*, not 3": {"contacts": 3},
    "the first argument must be a path, the text of a file or a mujoco.MjModel, not bytes": {"source": b"<mujoco/>"},
    "numbers of the file are not finite: stiffness, rest. Give": {
        "source": with_parts('<joint name="j" stiffness="nan"/>')
    },
}


@pytest.mark.parametrize("message", WRONG)
def test_arguments_that_are_none(message, tmp_path, monkeypatch, unchecked):
    # MuJoCo writes a file of its warnings.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"^from_mujoco: {message}"):
        hj.robots.from_mujoco(**{"source": with_parts()} | WRONG[message])


def test_parameters_and_coordinates_of_another_robot(unchecked):
    """Said at once, whichever function is the first to use them."""
    robot, other = arm(), hj.robots.from_mujoco(with_parts())
    own = robot.mechanism
    use = own.mass, lambda q, p: own.forces(NOW, q, V, p), lambda q, p: own.acceleration(NOW, q, V, p)
    for params, said in (
        (None, r"robot\.params, or these with other numbers, not NoneType"),
        (other.params, "of 1 joints, 1 bodies and 0 actuators, and it has 2 joints, 2 bodies and 2 actuators"),
    ):
        for function in use:
            with pytest.raises(ValueError, match=f"^Robot: params must be the robot's own.*{said}"):
                function(Q, params)
    floor = hj.contact.Contact(lambda t, q, p: q[0])
    with pytest.raises(ValueError, match=r"the bodies have 2, shoulder, elbow, not 1\..* give robot\.coordinates"):
        hj.contact.contact_system(robot.mechanism, {"floor": floor}, ("shoulder",))


def test_a_site_that_does_not_exist():
    with pytest.raises(ValueError, match=r"there is no site 'hnad'; there is hand\."):
        arm().position(Q, "hnad")


def test_without_mujoco(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match=r"Robots need mujoco: pip install 'hyjax-dynamics\[robots\]'\."):
        arm()


def test_names_paths_and_models(tmp_path):
    """A text, a path and a compiled model are the same robot; what has no name is numbered."""
    text = ARM.replace("ACTUATORS", ACTUATORS)
    (tmp_path / "arm.xml").write_text(text)
    robots = [arm(), *map(hj.robots.from_mujoco, (tmp_path / "arm.xml", str(tmp_path / "arm.xml")))]
    robots.append(hj.robots.from_mujoco(mujoco.MjModel.from_xml_string(text)))
    for robot in robots:
        assert eqx.tree_equal(robot, robots[0]) and robot.mechanism == robots[0].mechanism
    assert robots[0].coordinates == ("shoulder", "elbow") and robots[0].actuators == ("strong", "weak")
    assert robots[0].bodies == (("upper", 0), ("lower", 1)) and robots[0].sites == (("hand", 1), ("palm", 1))
    # What was read, link by link, also in a notebook; of a batch, as of masses, the fields.
    assert [link["on"] for link in robots[0].links] == ["world", "shoulder"]
    assert re.search(r"elbow +hinge \(rad\) +shoulder +lower 1 .* hand, palm", str(robots[0]))
    assert "<td" in robots[0]._repr_html_() and re.search(r"mass +\(2\., 1\.\)", str(robots[0].params))
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), robots[0])
    assert re.search(r"sites +\(\(hand, 1\), \(palm, 1\)\)", str(many))
    unnamed = hj.robots.from_mujoco(f"<mujoco><worldbody><body><joint/>{POINT}<site/></body></worldbody></mujoco>")
    assert unnamed.coordinates == ("joint0",) and unnamed.bodies == (("body1", 0),) and unnamed.sites == (("site0", 0),)


def test_urdf():
    """The same arm as URDF, whose joints have their frames where MJCF has the bodies."""
    link = lambda name, z, mass, inertia: (
        f'<link name="{name}"><inertial><origin xyz="0 0 {z}"/><mass value="{mass}"/>'
        f'<inertia ixx="{inertia[0]}" iyy="{inertia[1]}" izz="{inertia[2]}" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    )
    joint = lambda name, parent, child, z: (
        f'<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/><origin xyz="0 0 {z}"/>'
        f'<axis xyz="0 1 0"/></joint>'
    )
    links = link("upper", -0.3, 2, (0.03, 0.02, 0.01)) + link("lower", -0.2, 1, (0.01, 0.02, 0.01))
    joints = joint("shoulder", "base", "upper", 0) + joint("elbow", "upper", "lower", -0.6)
    robot = hj.robots.from_mujoco(f'<robot name="arm"><link name="base"/>{links}{joints}</robot>')
    assert robot.coordinates == ("shoulder", "elbow")
    same = arm()
    assert_allclose(robot.mass(Q, robot.params), same.mass(Q, same.params), rtol=1e-15)
    assert_allclose(robot.inertial(Q, V, robot.params), same.inertial(Q, V, same.params), rtol=1e-14)


def test_actuators():
    """The forces of the inputs, by gear, beside that of the damper."""
    robot = arm(control=lambda t, q, v, params: jnp.stack([q[1] * t, params.mass[0]]))
    force = robot.forces(jnp.array(3.0), Q, V, robot.params)
    assert_allclose(force, [-0.1 * 1 + 2, 20 * 3 * -0.8], rtol=1e-15)
    with pytest.raises(ValueError, match=r"control must return shape \(2,\), one input for each actuator, not \(1,\)"):
        arm(control=lambda t, q, v, params: q[:1]).forces(NOW, Q, V, robot.params)
    for control in (3.0, lambda q: q):
        with pytest.raises(ValueError, match=r"^from_mujoco: control must be a function of \(t, q, v, params\)"):
            arm(control=control)


SERVOS = {
    "targets": '<position joint="elbow" kp="7" kv="0.3" gear="2"/><velocity joint="shoulder" kv="2" gear="3"/>',
    "critical": '<position joint="shoulder" kp="7" dampratio="1"/><motor jointinparent="elbow" gear="3"/>',
    "affine": """<general joint="shoulder" gainprm="7" biastype="affine" biasprm="1 2 -3" gear="2"/>
      <general joint="elbow" biastype="affine" biasprm="1 -2 0.4"/>""",
}


@pytest.mark.parametrize("name", SERVOS)
def test_servos(name):
    """Accelerations are MuJoCo's, with the spring of the joint beside those of its servos; flags leave what they leave there."""
    text = ARM.replace("ACTUATORS", f"<actuator>{SERVOS[name]}</actuator>")
    text = text.replace('damping="0.1"', 'damping="0.1" stiffness="3" springref="0.2"')
    for flag in ("GRAVITY", "SPRING", "ACTUATION"):
        model = mujoco.MjModel.from_xml_string(text)
        model.opt.disableflags = int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}", 0))
        robot, data = hj.robots.from_mujoco(model), mujoco.MjData(model)
        data.qpos, data.qvel, data.ctrl = Q, V, [0.7, -0.4]
        mujoco.mj_forward(model, data)
        params = eqx.tree_at(lambda p: p.input, robot.params, jnp.asarray(data.ctrl))
        assert_allclose(robot.mechanism.acceleration(NOW, Q, V, params), data.qacc, rtol=1e-12)


def test_forces_that_a_flag_disables_are_zero():
    """Accelerations are MuJoCo's. Older versions of MuJoCo have one flag, passive, for springs and dampers."""
    text = ARM.replace("ACTUATORS", ACTUATORS).replace('damping="0.1"', 'damping="0.1" stiffness="3" springref="0.2"')
    flags = [getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0) for name in DISABLED]
    for flag, group in [*((each, 0) for each in flags if each), (0, 1)]:
        model = mujoco.MjModel.from_xml_string(text.replace('name="weak"', 'name="weak" group="1"'))
        model.opt.disableflags, model.opt.disableactuator = int(flag), group << 1
        robot, data = hj.robots.from_mujoco(model), mujoco.MjData(model)
        data.qpos, data.qvel, data.ctrl = Q, V, [0.7, -0.4]
        mujoco.mj_forward(model, data)
        params = eqx.tree_at(lambda p: p.input, robot.params, jnp.asarray(data.ctrl))
        assert_allclose(robot.mechanism.acceleration(NOW, Q, V, params), data.qacc, rtol=0, atol=1e-11)


def test_integers_are_real_numbers_and_other_shapes_are_refused(unchecked):
    """A pose is often written in whole numbers, beside which those of the bodies must not be cut."""
    robot = hj.robots.from_mujoco(
        """<mujoco><worldbody><geom type="plane" size="1 1 1" euler="0 5 0"/>
          <body><joint name="x" type="slide" axis="1 0 0"/><joint axis="0 1 0" range="-90 25" limited="true" name="turn"/>
            <geom name="tip" size="0.15" pos="0 0 -0.7" mass="0.8"/><site name="end" pos="0 0 -0.7"/></body>
        </worldbody></mujoco>""",
        contacts=["tip", "turn"],
    )
    mechanism, params, tip = robot.mechanism, robot.params, robot.contacts["tip"]
    slip = tip.slip
    assert slip is not None
    functions = {
        "position": lambda q, v: robot.position(q, "end"),
        "jacobian": lambda q, v: robot.jacobian(q, "end"),
        "energy": robot.energy,
        "outline": lambda q, v: robot.outline(q)["tip"],
        "mass": lambda q, v: mechanism.mass(q, params),
        "coriolis": lambda q, v: robot.inertial(q, v, params),
        "forces": lambda q, v: mechanism.forces(NOW, q, v, params),
        "acceleration": lambda q, v: mechanism.acceleration(NOW, q, v, params),
        "gap": lambda q, v: tip.gap(NOW, q, params),
        "slip": lambda q, v: slip(NOW, q, v, params),
        "stop": lambda q, v: robot.contacts["turn_upper"].gap(NOW, q, params),
        "impact": lambda q, v: hj.contact.impact(mechanism, q, v, params, tip)[0],
    }
    whole, real = jnp.array([2, 1]), jnp.array([2.0, 1.0])
    for name, function in functions.items():
        known = function(real, -real)
        assert_allclose(function(whole, -whole), known, rtol=1e-15, err_msg=name)
        assert_allclose(function(whole, -real), known, rtol=1e-15, err_msg=name)
        assert_allclose(function([2, 1], [-2.0, -1]), known, rtol=1e-15, err_msg=name)
        with pytest.raises(ValueError, match=r"coordinates of shape \(3,\).* must be real, of shape \([23],\)"):
            function(jnp.zeros(3), jnp.zeros(2))


@pytest.mark.medium
def test_transformations():
    """Accelerations in a batch over a mass, by forward and reverse derivatives against a central difference; float32 stays."""
    robot = arm()

    def acceleration(mass, q, v):
        params = eqx.tree_at(lambda p: p.mass[1], robot.params, mass)
        return robot.mechanism.acceleration(NOW.astype(q.dtype), q, v, params)

    masses, step = jnp.array([0.5, 1.0, 2.0]), 1e-5
    program = jax.jit(jax.vmap(lambda mass: jax.jvp(lambda each: acceleration(each, Q, V), (mass,), (jnp.ones(()),))))
    values, slopes = program(masses)
    differences = (program(masses + step)[0] - program(masses - step)[0]) / (2 * step)
    # The third derivative times step^2 / 6, and rounding over the step: both 1e-10 of the values, some 100.
    assert_allclose(slopes, differences, rtol=0, atol=1e-8)
    whole = jax.jit(jax.grad(lambda params: robot.mechanism.acceleration(NOW, Q, V, params) @ jnp.ones(2)))(
        robot.params
    )
    assert_allclose(whole.mass[1], jnp.sum(slopes[1]), rtol=1e-12)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(whole))

    @jax.jit
    def single(q, v):
        return acceleration(masses[0], q, v), robot.position(q, "hand"), robot.jacobian(q, "hand"), robot.energy(q, v)

    found = single(Q.astype(jnp.float32), V.astype(jnp.float32))
    assert all(each.dtype == jnp.float32 for each in found)
    # A condition of the mass matrix of some ten.
    assert_allclose(found[0], values[0], rtol=1e-5)


@pytest.mark.medium
def test_an_arm_strikes_a_wall():
    """In a system of contact; a mass is a leaf that a lens selects, and the mechanism has no numbers of its own."""
    robot = arm()
    wall = hj.contact.Contact(gap=lambda t, q, p: 0.5 - robot.position(q, "hand", p)[0], restitution=0.5)
    system = hj.contact.contact_system(robot.mechanism, wall, robot.coordinates)
    x = jnp.array([0.2, -0.1, -2.0, -1.0])

    def energies(mass):
        params = eqx.tree_at(lambda p: (p.mass[1], p.damping[0]), robot.params, (mass, jnp.array(0.0)))
        event = hj.flow_to_guard(system, "U", 0.0, x, params)
        return robot.energy(x[:2], x[2:], params), robot.energy(event.x[:2], event.x[2:], params), event

    before, after, event = jax.jit(energies)(jnp.array(1.0))
    assert event.result == "successful"
    # Flight keeps the energy to the integrator's tolerance times its number of steps.
    assert_allclose(after, before, rtol=1e-11)
    assert_allclose(robot.position(event.x[:2], "hand")[0], 0.5, rtol=1e-13)


KICKED = """<mujoco><compiler angle="radian"/><worldbody><body pos="0 0 1">
  <joint name="hip" axis="0 1 0" damping="0.3"/><geom type="capsule" fromto="0 0 0  0 0 -0.4" size="0.03" mass="2"/>
  <body pos="0 0 -0.4"><joint name="knee" axis="0 1 0" damping="0.05"/>
    <geom type="capsule" fromto="0 0 0  0 0 -0.4" size="0.02" mass="1"/>
  </body></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_a_sweep_over_a_mass_has_the_orbits_of_small_steps():
    """A leg kicked at the hip, where the rates turn back along the line of masses: over few, distant masses every orbit is found,
    and is that which `periodic_orbit` finds from the orbit before."""
    robot = hj.robots.from_mujoco(KICKED)
    mechanism, kick = robot.mechanism, jnp.array([-0.3, 0.0])

    def swing(t, x, p):
        return jnp.concatenate([x[2:], mechanism.acceleration(t, x[:2], x[2:], p)])

    def kicked(t, x, p):
        return jnp.concatenate([x[:2], x[2:] + jnp.linalg.solve(mechanism.mass(x[:2], p), kick)])

    modes = {"swing": hj.Mode(swing, ("hip", "knee", "hip_rate", "knee_rate"))}
    system = hj.HybridSystem(modes, (hj.Transition("swing", "swing", lambda t, x, p: x[0], kicked),))
    step, of_shank = hj.ReturnMap(system, sequence=("swing",)), lambda p: p.mass[1]
    fall = hj.flow_to_guard(system, "swing", 0.0, jnp.array([0.5, 0.2, 0.0, 0.0]), robot.params)
    start = hj.periodic_orbit(step, kicked(fall.t, fall.x, robot.params), robot.params)
    masses = np.linspace(0.5, 2, 7)
    swept = hj.sweep(start, where=of_shank, values=jnp.asarray(masses), progress=False)
    assert np.all(swept.result.values == 0)
    periods = {}
    for line in (masses[2::-1], masses[3:]):
        orbit = start
        for mass in line:
            orbit = hj.periodic_orbit(step, orbit.x, eqx.tree_at(of_shank, robot.params, jnp.array(mass)))
            periods[mass] = float(orbit.period)
    # Two integrations to the last tolerance.
    assert_allclose(swept.period.values, [periods[mass] for mass in masses], rtol=1e-12)
