"""Pictures of robots: where the lines of a silhouette are, which of them are limbs, and what is drawn of poses and motions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import pyplot

mujoco = pytest.importorskip("mujoco")
matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore:Animation was deleted")
# Two legs, one of capsules and one of inertias alone, on a trunk with a box, above a slope of 0.2.
WALKER = """<mujoco><compiler angle="radian"/><worldbody>
  <geom name="slope" type="plane" size="5 5 1" pos="0.1 0 -0.7" euler="0 0.2 0"/>
  <body name="trunk"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
    <joint name="pitch" axis="0 1 0"/><geom name="box" type="box" size="0.1 0.2 0.3" pos="0 0 0.3"/>
    <body name="thigh1"><joint name="hip1" axis="0 1 0"/><geom type="capsule" fromto="0 0 0  0 0 -0.4" size="0.02"/>
      <body name="shank1" pos="0 0 -0.4"><joint name="knee1" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 -0.3  0 0 0" size="0.02"/><site name="foot1" pos="0 0 -0.3"/></body></body>
    <body name="thigh2"><joint name="hip2" axis="0 1 0"/><inertial pos="0 0 -0.2" mass="1" diaginertia="1 1 1"/>
      <body name="shank2" pos="0 0 -0.4"><joint name="knee2" axis="0 1 0"/>
        <inertial pos="0 0 -0.1" mass="1" diaginertia="1 1 1"/><site name="foot2" pos="0 0 -0.3"/></body></body>
  </body></worldbody></mujoco>"""
ROBOT = hj.robots.from_mujoco(WALKER, contacts=["foot1", "foot2"])
Q = jnp.array([0.1, 0.2, 0.3, -0.5, 0.6, 0.4, 0.2])


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot().close("all")


@pytest.mark.medium
def test_limbs_run_from_joint_to_joint_and_to_the_feet():
    """Against MuJoCo's places in a random pose; in both legs one line, whatever the leg is made of."""
    model = mujoco.MjModel.from_xml_string(WALKER)
    data = mujoco.MjData(model)
    data.qpos = Q
    mujoco.mj_forward(model, data)
    lines = jax.jit(lambda q: ROBOT.outline(q))(Q)
    for leg in "12":
        places = [data.joint(f"{joint}{leg}").xanchor[[0, 2]] for joint in ("hip", "knee")]
        places.append(data.site(f"foot{leg}").xpos[[0, 2]])
        assert_allclose(lines[f"shank{leg}"], places, rtol=0, atol=1e-14)
    assert_allclose(lines["joint"], [data.joint("hip1").xanchor[[0, 2]]], rtol=0, atol=1e-14)
    box = data.geom("box")
    corners = [
        box.xpos + box.xmat.reshape(3, 3) @ (np.array([0.1, 0, 0.3]) * (x, 0, z)) for x in (-1, 1) for z in (-1, 1)
    ]
    distance = np.linalg.norm(lines["box"][:, None] - np.array(corners)[:, [0, 2]], axis=-1)
    assert lines["box"].shape == (5, 2) and np.all(np.min(distance, axis=0) < 1e-14)
    assert [(name, behind) for name, _, _, behind in ROBOT.lines] == [
        ("shank1", False), ("shank2", False), ("box", True), ("joint", False)
    ]  # fmt: skip
    # The length of a thigh is a leaf, which the line of joints follows.
    longer = eqx.tree_at(lambda p: p.position, ROBOT.params, ROBOT.params.position.at[6, 2].add(-0.1))
    thigh = ROBOT.outline(Q, longer)["shank2"][:2]
    assert_allclose(jnp.linalg.norm(thigh[1] - thigh[0]), 0.5, rtol=1e-14)
    assert all(line.dtype == jnp.float32 for line in ROBOT.outline(Q.astype(jnp.float32)).values())


def test_a_drawing_of_poses_stands_on_the_slope():
    """The last pose in full, and the others fainter; the ground is where the plane is, and gravity points down."""
    q = jnp.stack([Q, Q.at[0].add(0.5)])
    ax = ROBOT.plot(q)
    (ground,) = (line for line in ax.lines if line.get_gid() == "ground")
    (x, above), (right, below) = np.transpose(ground.get_data())
    assert_allclose((below - above) / (right - x), -np.tan(0.2), rtol=1e-12)
    # The drawing is turned back by the slope, so that a point of the plane and the robot are where they are in the file.
    shown = {
        line.get_gid(): line for line in ax.lines if str(line.get_gid()).startswith("leg") and len(line.get_xdata())
    }
    legs = [line for line in shown.values() if line.get_color() != "#888888"]
    lines = ROBOT.outline(q[1])
    slope, height = float(ROBOT.params.slope[0]), float(ROBOT.params.height[0])
    normal = np.array([np.sin(slope), np.cos(slope)])
    for line, name in zip(legs, ("shank1", "shank2"), strict=True):
        assert_allclose(np.transpose(line.get_data()), lines[name] - height * normal, rtol=0, atol=1e-12)
    faint = [line for line in ax.lines if line.get_alpha() is not None and len(line.get_xdata())]
    assert len(faint) == 4 and len(legs) == 2
    assert len(ROBOT.plot().lines) < len(ax.lines)
    with pytest.raises(ValueError, match=r"q of shape \(3,\) must have .* m = 7 coordinates x, z, pitch"):
        ROBOT.plot(jnp.zeros(3))


PENDULUM = """<mujoco><worldbody><body><joint name="swing" axis="0 1 0"/>
  <geom name="bob" type="sphere" pos="0 0 -1" size="0.1"/></body></worldbody></mujoco>"""


def test_a_motion_in_other_coordinates():
    """A trajectory of a system of one's own, whose states and parameters are not the robot's."""
    robot = hj.robots.from_mujoco(PENDULUM)
    modes = {"swing": hj.Mode(lambda t, x, p: jnp.stack([p]), ("angle",))}
    run = hj.simulate(hj.HybridSystem(modes, ()), jnp.array([0.0]), jnp.array(0.5), mode="swing", t1=2.0)
    animation = robot.animate(run, pose=lambda mode, x, params: 2 * x, fps=5)
    frame = animation._draw_frame  # pyright: ignore
    frame(5)
    rod = next(line for line in animation._fig.axes[0].lines if line.get_gid() == "leg 0")  # pyright: ignore
    t = 5 * 2.0 / 10
    assert_allclose(rod.get_xydata(), [[0, 0], [-np.sin(t), -np.cos(t)]], rtol=0, atol=1e-12)
    with pytest.raises(
        ValueError, match=r"states angle do not begin with .* x, z, .*gait.animate\(walker\); else give"
    ):
        ROBOT.animate(run)


SPACE = """<mujoco><worldbody><body><joint axis="1 0 0"/><joint axis="0 0 1"/><geom name="block" type="box" size="1 2 3"/>
  <geom name="ball" size="0.5" pos="1 1 0"/>
  <geom name="mast" type="cylinder" fromto="0 0 0 0 0 2" size="0.1"/></body></worldbody></mujoco>"""


def test_a_robot_in_space_is_seen_along_y():
    robot = hj.robots.from_mujoco(SPACE)
    lines = robot.outline(jnp.array([np.pi / 2, 0.0]))
    # The turn about x leads y to z, and z to -y, along which nothing is seen.
    assert_allclose(np.abs(lines["block"]), np.tile([[1.0, 2.0]], (16, 1)), rtol=0, atol=1e-14)
    assert_allclose(np.linalg.norm(lines["ball"] - np.array([1.0, 1.0]), axis=1), 0.5, rtol=1e-12)
    assert_allclose(lines["body1"], np.zeros((2, 2)), rtol=0, atol=1e-14)


def test_a_wheel_turns_with_its_spoke_and_a_table_is_seen_from_above():
    wheel = """<mujoco><worldbody><body><joint axis="0 0 1"/><geom name="disc" type="cylinder" size="0.5 0.1"/>
      </body></worldbody></mujoco>"""
    disc = hj.robots.from_mujoco(wheel).outline(jnp.array([np.pi / 2]))["disc"]
    assert_allclose(disc[:2], [[0, 0], [0, 0.5]], rtol=0, atol=1e-14)
    assert_allclose(np.linalg.norm(disc[1:], axis=1), 0.5, rtol=1e-14)
