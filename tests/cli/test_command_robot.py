"""The command line with a robot's file: the compass gait from MJCF, a body in contact, and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ellipk

pytest.importorskip("mujoco")
from hyjax._testing import initial_condition, load_robot, Misuse, tell_search

LEG = '<inertial pos="0 0 -0.5" mass="1" diaginertia="1e-14 1e-14 1e-14"/><site name="foot_'
COMPASS = f"""<mujoco><compiler angle="radian"/><option gravity="0 0 -1"/><worldbody>
  <geom name="slope" type="plane" size="9 9 1" euler="0 0.05 0"/>
  <body name="hip"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide"/>
    <inertial pos="0 0 0" mass="2" diaginertia="1e-14 1e-14 1e-14"/>
    <body name="left leg"><joint name="hip_l" axis="0 -1 0"/>{LEG}l" pos="0 0 -1"/></body>
    <body name="right leg"><joint name="hip_r" axis="0 -1 0"/>{LEG}r" pos="0 0 -1"/></body>
  </body></worldbody></mujoco>"""
FEET = ("--contact", "foot_l", "--contact", "foot_r")


@pytest.fixture
def robot(tmp_path):
    (tmp_path / "compass.xml").write_text(COMPASS)
    return str(tmp_path / "compass.xml")


@pytest.mark.slow
def test_the_compass_gait_of_a_file_is_that_of_the_models(command, robot, compass, tmp_path):
    """From a state near it, at the slope of the models, with its picture and animation."""
    start = [
        f"{name}={value}" for name, value in zip(("hip_l", "hip_r", "hip_l_rate", "hip_r_rate"), compass.x, strict=True)
    ]
    near = [option for each in start for option in ("--start", each[: each.index(".") + 3])]
    files = "--plot", str(tmp_path / "gait.png"), "--animate", str(tmp_path / "gait.gif")
    ran = command("gait", robot, *FEET, *near, "--param", "slope=3deg", "--starts", "2", "--json", *files)
    assert ran.returncode == 0, ran.stderr
    orbit = json.loads(ran.stdout)["orbits"][0]
    # The inertias of 1e-14, which MuJoCo wants, change the gait by as much.
    assert_allclose(orbit["period"], float(compass.period), rtol=0, atol=1e-12)
    found = np.sort([np.hypot(*each) if isinstance(each, list) else abs(each) for each in orbit["multipliers"]])
    assert_allclose(found, np.sort(np.abs(compass.multipliers)), rtol=0, atol=1e-11)
    assert (tmp_path / "gait.png").stat().st_size > 10_000 and (tmp_path / "gait.gif").stat().st_size > 10_000


def test_the_parameters_of_a_walker(command, robot, request):
    """To all digits, wherever 32 bits are the default of JAX."""
    request.addfinalizer(lambda: jax.config.update("jax_enable_x64", True))
    jax.config.update("jax_enable_x64", False)
    ran = command("models", f"{robot}:foot_l,foot_r", "--json")
    (record,) = json.loads(ran.stdout).values()
    parameters = {each["name"]: each["default"] for each in record["parameters"]}
    masses = {"mass_hip": 2, "mass_left_leg": 1, "mass_right_leg": 1}
    # The angle of the plane is that of MuJoCo's quaternion.
    assert_allclose(parameters.pop("slope"), 0.05, rtol=1e-14)
    assert parameters == {"gravity": 1, **masses} and record["sequence"] == ["swing"]
    assert [each["name"] for each in record["coordinates"]] == ["hip_l", "hip_r", "hip_l_rate", "hip_r_rate"]


@pytest.mark.medium
def test_a_body_in_contact_is_simulated(command, tmp_path):
    """A ball falls by one metre and rests."""
    (tmp_path / "ball.xml").write_text("""<mujoco><worldbody><geom type="plane" size="9 9 1"/><body>
      <joint name="z" type="slide"/><geom name="ball" size="0.1"/></body></worldbody></mujoco>""")
    run = "--t1", "1", "--mode", "U", "--x0", "1.1,0", "--param", "gravity=2", "--json"
    ran = command("simulate", f"{tmp_path / 'ball.xml'}:ball", *run)
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    # By the integrator's tolerance.
    assert_allclose(record["events"][0]["t"], 1.0, rtol=1e-10)
    assert record["events"][0]["target"] == "S" and record["result"] == "successful"


@pytest.mark.medium
def test_a_sled_on_two_runners_stops(command, tmp_path):
    """Two contacts of one link are no feet of a walker. It begins with those that hold at its state, and slides 1 / (2 mu g)."""
    (
        tmp_path / "sled.xml"
    ).write_text("""<mujoco><worldbody><geom type="plane" size="9 9 1" friction="0.2"/><body name="sled">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide"/><joint name="pitch" axis="0 -1 0"/>
      <inertial pos="0 0 0" mass="10" diaginertia="1 1 1"/>
      <site name="front" pos="0.5 0 -0.2"/><site name="back" pos="-0.5 0 -0.2"/></body></worldbody></mujoco>""")
    ran = command("simulate", f"{tmp_path / 'sled.xml'}:front,back", "--t1", "1", "--x0", "0,0.2,0,1,0,0", "--json")
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    (stops,) = record["events"]
    assert_allclose(stops["t"], 1 / (0.2 * 9.81), rtol=1e-8)
    assert_allclose(record["x"][:3], [1 / (2 * 0.2 * 9.81), 0.2, 0], rtol=0, atol=1e-8)


def test_a_robot_without_contacts_flows(command, tmp_path):
    """A pendulum of length 1 from the angle 0.1, with gravity 4: half a period by the complete elliptic integral."""
    path = tmp_path / "pendulum.xml"
    path.write_text("""<mujoco><worldbody><body><joint name="swing" axis="0 1 0"/>
      <inertial pos="0 0 -1" mass="2" diaginertia="1e-14 1e-14 1e-14"/></body></worldbody></mujoco>""")
    ran = command(
        "simulate", str(path), "--t1", str(ellipk(np.sin(0.05) ** 2)), "--x0", "0.1,0", "--param", "gravity=4", "--json"
    )
    assert ran.returncode == 0, ran.stderr
    record = json.loads(ran.stdout)
    assert record["events"] == [] and record["result"] == "successful"
    assert_allclose(record["x"], [-0.1, 0], rtol=0, atol=1e-9)
    ran = command("gait", str(path))
    assert ran.returncode == 2 and "no contact is named" in ran.stderr


def test_two_contacts_of_what_is_no_walker(command, tmp_path):
    """Two arms on one wall, above a floor: bodies in contact; a command that needs steps says why there are none."""
    arm = '<body><joint name="{0}" axis="0 1 0"/><geom name="tip_{0}" size="0.1" pos="0 0 -1"/></body>'
    path = tmp_path / "arms.xml"
    path.write_text(f"""<mujoco><worldbody><geom type="plane" size="9 9 1" pos="0 0 -1.05"/>
      {arm.format("one")}{arm.format("two")}</worldbody></mujoco>""")
    model = load_robot(f"{path}:tip_one,tip_two")
    assert model.system.names == ("contacts",) and model.coordinates[-2:] == ("tip_one", "tip_two")
    ran = command("gait", f"{path}:tip_one,tip_two")
    assert ran.returncode == 2
    assert "Use hyjax simulate. It is no walker: the first two coordinates must be slides" in ran.stderr
    path.write_text(
        path.read_text().replace('size="0.1" pos="0 0 -1"', 'type="capsule" size="0.1" fromto="0 0 0 0 0 -1"', 1)
    )
    ran = command("gait", f"{path}:tip_one")
    assert (
        ran.returncode == 2 and "Give sets of contacts, as --sequence tip_one_0:open+tip_one_1:open,..." in ran.stderr
    )


def test_the_stops_of_a_joint(tmp_path):
    """Of a joint with a range, where there is no plane; a state begins with the contacts that hold there."""
    (
        tmp_path / "cart.xml"
    ).write_text("""<mujoco><worldbody><body name="cart"><joint name="rail" type="slide" axis="0 0 1"
      range="-0.3 0.4"/><inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/></body></worldbody></mujoco>""")
    model = load_robot(f"{tmp_path / 'cart.xml'}:rail")
    params = model.Params()
    assert (float(params.gravity), float(params.mass_cart)) == (9.81, 2) and model.system.names == ("contacts",)
    mode, x = initial_condition(model, params, None, "-0.3,0")
    assert (mode, x.tolist()) == ("contacts", [-0.3, 0, 1, 0])
    assert initial_condition(model, params, None, "-0.3,0,1,0")[1].tolist() == x.tolist()
    with pytest.raises(Misuse, match="rail_lower: the gap is negative, and does not open"):
        initial_condition(model, params, None, "-0.4,0")
    way = model.system.transitions[0]
    # The lower stop bears the weight; the upper one is as far as the range.
    assert_allclose(way.guard(jnp.array(0.0), x, params), [2 * 9.81, 0.7], rtol=1e-14)
    assert_allclose(model.system.modes[mode].vector_field(jnp.array(0.0), x, params), 0, atol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize(
    "rates, says", [((-1.1, -0.4), "returns;"), ((3.0, 3.0), "does not return (max_steps_reached: ")]
)
def test_what_a_search_around_a_state_does(robot, capsys, rates, says):
    """It compiles for a minute, so that it is said before. Legs that turn forward together do not strike."""
    model = load_robot(robot, ["foot_l", "foot_r"])
    tell_search(model, model.Params(), model.sequence, jnp.array([0.2, -0.3, *rates]), 16)
    said = capsys.readouterr().err
    assert f"the motion from --start {says}" in said and "periodic orbits from 16 states around it" in said


def test_a_search_around_a_robot_that_has_fallen(robot):
    """Under the ground motions return too, as maps do not look at domains: it is said at once, and nothing is compiled."""
    model = load_robot(robot, ["foot_l", "foot_r"])
    with pytest.raises(
        Misuse, match=r"--start: the robot has fallen there: its centre of mass is 0.\d+ below the ground"
    ):
        tell_search(model, model.Params(), model.sequence, jnp.array([2.5, 2.4, 0.0, 0.0]), 16)


def test_what_a_search_does_and_a_walker_on_level_ground(command, robot, capsys):
    """Of a search over a region it is said that it compiles; without a descent nothing returns the energy of the strikes."""
    model = load_robot(robot, ["foot_l", "foot_r"])
    tell_search(model, model.Params(), model.sequence, None, 2048)
    assert "searching for periodic orbits from up to 2048 states" in capsys.readouterr().err
    ran = command("gait", robot, *FEET, "--param", "slope=0")
    assert ran.returncode == 1 and ran.stderr.startswith(
        "hyjax: compass: on ground that does not descend, slope=0, a walker without a drive has no gait: each strike loses"
    )


def test_sets_of_contacts_are_modes(robot):
    """With names of sets the feet are contacts of a body, and the held numbers of the first set follow its state."""
    model = load_robot(robot, ["foot_l", "foot_r"], sequence="foot_l:stick+foot_r:open,foot_l:open+foot_r:stick")
    assert model.sequence == ("foot_l:stick+foot_r:open[1]", "foot_l:open+foot_r:stick[0]")
    mode, x = model.start(None)
    assert mode == "foot_l:stick+foot_r:open" and x.shape == (10,) and x[8:].tolist() == [1, 0]
    assert model.coordinates[8:] == ("foot_l", "foot_r")


REFUSED = [
    ([], "no contact is named. Give the feet as --contact LEFT --contact RIGHT, or {path}:LEFT,RIGHT; there are foot_l, foot_r."),
    (["--contact", "foot_l", "--contact", "fot_r"], "no geom, site or joint with a range 'fot_r'; there is foot_r, foot_l."),
    (["--contact", "foot_l", "--contact", "foot_l"], "--contact: foot_l, foot_l: one name is given twice."),
    (["--contact", "slope"], "'slope' does not move"),
    ([*FEET, "--start", "hip=1"], "--start: 'hip=1' is not name=value of a coordinate. Did you mean 'hip_r'?"),
    ([*FEET, "--start", "hip_l=steep"], "--start hip_l: 'steep' is not a number"),
    ([*FEET, "--mirror", "hip_l"], "--mirror: 'hip_l' is not left=right"),
    ([*FEET, "--mirror", "hip=hip_r"], "relabelling: 'hip' must be one of the coordinates hip_l, hip_r"),
    ([*FEET, "--param", "mass_left_leg=0"], "mass_left_leg=0.0 must be positive."),
    (["--contact", "foot_l"], "a body with one contact makes no steps, which this command needs. Give two feet"),
    ([*FEET, "--sequence", "foot_l:stuck"], "'foot_l:stuck' names no set of the contacts. Name each of them, in their order"),
    ([*FEET, "--mirror", "none", "--sequence", "foot_l:open"], "--sequence names sets of contacts. Give one of them."),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_misuse(command, robot, arguments, message):
    ran = command("gait", robot, *arguments)
    assert ran.returncode == 2 and message.format(path=robot) in ran.stderr, ran.stderr
    assert len(ran.stderr.splitlines()) == 1 and ran.stdout == ""


def test_robots_are_not_proved_nor_tilted(command, robot, tmp_path):
    ran = command("certify", f"{robot}:foot_l,foot_r")
    assert ran.returncode == 2 and "is a robot's file, of which no proof is made: give a model" in " ".join(
        ran.stderr.split()
    )
    (tmp_path / "tilted.xml").write_text(COMPASS.replace('gravity="0 0 -1"', 'gravity="0.1 0 -1"'))
    ran = command("gait", str(tmp_path / "tilted.xml"), *FEET)
    assert ran.returncode == 2 and "gravity has the parts 0.1, 0 along x and y" in " ".join(ran.stderr.split())


def test_files_that_are_refused(command, robot, tmp_path):
    """MuJoCo's own message and line; a mass of zero; options of a robot for a model."""
    path = tmp_path / "broken.xml"
    for text, message in (
        (
            COMPASS.replace('name="hip_l"', 'nam="hip_l"'),
            "MuJoCo refuses the file: XML Error: Schema violation: unrecognized",
        ),
        (
            COMPASS.replace('mass="1"', 'mass="0"'),
            "MuJoCo refuses the file: Error: mass and inertia of moving bodies must be",
        ),
        (COMPASS.replace("<geom", "<site").replace('type="plane" size="9 9 1"', ""), "contacts need a plane"),
    ):
        path.write_text(text)
        ran = command("gait", str(path), *FEET)
        assert ran.returncode == 2 and message in ran.stderr and len(ran.stderr.splitlines()) == 1, ran.stderr
    ran = command("gait", "rimless_wheel", *FEET)
    assert ran.returncode == 2 and "--contact, --mirror and --start are for a robot's file" in ran.stderr
