"""The command line as a person uses it: a process, its output, its exit status."""

import json
import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image
from readme import claimed
from reference import case

from hyjax import models

STATE, PERIOD = claimed("simplest walker, both gaits at slopes 0.004 and 0.009: state"), claimed("… period")
MULTIPLIER = claimed("… multipliers")


def hyjax(*arguments: str) -> subprocess.CompletedProcess:
    """In a process of its own."""
    cache = str(jax.config.jax_compilation_cache_dir)
    environment = os.environ | {"HYJAX_CACHE_DIR": cache, "COLUMNS": "120", "MPLBACKEND": "agg"}
    return subprocess.run([sys.executable, "-m", "hyjax", *arguments], capture_output=True, text=True, env=environment)


def test_json():
    ran = hyjax("gait", "simplest_walker", "--json", "--param", "slope=0.004")
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["model"] == "simplest_walker" and printed["params"] == {"slope": 0.004}
    assert printed["state_names"] == ["theta", "theta_rate", "phi", "phi_rate"]
    for orbit, name in zip(printed["orbits"], ("long_0.004", "short_0.004"), strict=True):
        record = case("B_simplest_walker", name)
        assert_allclose(orbit["x0"], record["x0"], rtol=0, atol=STATE)
        assert_allclose(orbit["period"], record["T"], rtol=0, atol=PERIOD)
        multipliers = np.stack([record["eigenvalues"]["re"], record["eigenvalues"]["im"]], axis=1)
        assert_allclose(orbit["multipliers"], multipliers, rtol=0, atol=MULTIPLIER)
        assert_allclose(orbit["spectral_radius"], record["eigenvalues"]["spectral_radius"], rtol=0, atol=MULTIPLIER)
        assert orbit["stable"] is (name == "long_0.004")
        assert orbit["residual"] < 1e-14 and orbit["result"] == "successful"
        assert orbit["impact_times"] == [orbit["period"]] and orbit["nodes"] == [orbit["x0"]]
        # The guard 2 theta - phi falls, and the multipliers are the eigenvalues of the matrix.
        assert len(orbit["guard_rates"]) == 1 and orbit["guard_rates"][0] < 0
        sizes = np.sort(np.abs(np.linalg.eigvals(orbit["return_jacobian"])))
        assert_allclose(sizes[2:], np.sort(np.hypot(*multipliers.T))[2:], rtol=1e-10)


@pytest.mark.medium
def test_table_picture_animation(command):
    ran = command(
        "gait", "rimless_wheel", "--param", "inertia_ratio=2/3", "--plot", "gait.png", "--animate", "gait.gif"
    )
    assert ran.returncode == 0, ran.stderr
    for part in ("Rimless wheel", "theta_rate", "+0.460341126609458", "2.31001486504", "stable", "yes"):
        assert part in ran.stdout
    record = case("A_rimless_wheel")
    portrait, series, plane = (each for part in ran.figures["gait.png"].subfigs for each in part.axes)
    # The spoke that strikes moves at the angle pi/6, and 1/mu as fast as the next.
    (jump,) = (line for line in portrait.lines if line.get_gid() == "jump")
    strikes = np.array([np.pi / 6, record["x0"][1] / record["mu"]])
    assert_allclose(jump.get_xydata(), [strikes, record["x0"]], rtol=1e-13)
    (angle,) = (line for line in series.lines if line.get_gid() is None)
    assert_allclose(angle.get_xydata()[[0, -1]], [[0, -np.pi / 6], [record["T"], np.pi / 6]], rtol=1e-13, atol=1e-13)
    drawn = np.concatenate([line.get_xydata() for line in plane.lines if line.get_linestyle() == "None"])
    assert_allclose(drawn, [[4 / 9, 0], [0, 0]], rtol=1e-13, atol=1e-13)
    with Image.open("gait.gif") as film:
        # Four steps, as of a wheel with spokes of 1 m on the earth, at 25 frames a second.
        assert getattr(film, "n_frames", 1) == round(4 * record["T"] / 9.81**0.5 * 25)
        first = np.asarray(film.convert("RGB"))
        film.seek(10)
        assert np.any(np.asarray(film.convert("RGB")) != first)


@pytest.mark.medium
def test_degrees_and_a_region(command):
    ran = command("gait", "rimless_wheel", "--json", "--param", "slope=12deg")
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert_allclose(printed["params"]["slope"], np.pi / 15, rtol=1e-15)
    (orbit,) = printed["orbits"]
    # The energy that a step wins; mu is what the collision leaves of the speed.
    mu, won = 2 / 3, 4 * 2 / 3 * np.sin(np.pi / 6) * np.sin(np.pi / 15)
    assert_allclose(orbit["x0"], [-np.pi / 6, mu * np.sqrt(won / (1 - mu**2))], rtol=0, atol=STATE)
    # The wheel's orbit is outside.
    ran = command("gait", "rimless_wheel", "--param", "slope=12deg", "--region", "-30deg:-30deg,0.1:0.2")
    assert ran.returncode == 1 and "no isolated periodic orbit" in ran.stderr


def test_models(command):
    ran = command("models")
    assert ran.returncode == 0
    for name in models.names:
        assert re.search(rf"^ *{name} ", ran.stdout, re.MULTILINE), name
    ran = command("models", "compass_gait")
    assert ran.returncode == 0
    for part in ("slope", "rad", "mu", "hip mass over leg mass", "beta", "0.05235987756", "theta_ns_rate"):
        assert part in ran.stdout


def test_models_as_json(command):
    printed = json.loads(command("models", "--json").stdout)
    assert list(printed) == list(models.names)
    ran = command("models", "compass_gait", "--json")
    (model,) = json.loads(ran.stdout).values()
    slope = model["parameters"][0]
    assert slope["name"] == "slope" and slope["unit"] == "rad" and slope["meaning"]
    # To rounding of pi / 60.
    assert_allclose(slope["default"], np.deg2rad(3), rtol=1e-15)
    assert {"name": "theta_ns_rate", "unit": model["coordinates"][2]["unit"]} in model["coordinates"]
    assert printed["compass_gait"] == model and model["sequence"] and model["modes"] and model["time_unit"]


ARM = """
<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
  <body name="upper"><joint name="shoulder" axis="0 1 0"/><geom type="ellipsoid" size="0.1 0.1 0.1" mass="2.1"/>
    <body name="lower" pos="0 0 -1"><joint name="reach" type="slide"/><geom name="tip" size="0.1" mass="1"/>
      <site name="hand"/></body>
  </body>
</worldbody><actuator><motor name="push" joint="reach"/></actuator></mujoco>"""


def test_models_of_a_robot(command, tmp_path):
    """What is read from a file, link by link; the message of a file that is refused."""
    pytest.importorskip("mujoco")
    (tmp_path / "arm.xml").write_text(ARM)
    ran = command("models", str(tmp_path / "arm.xml"))
    assert ran.returncode == 0
    caption, head, *rows, total, touching = (re.split(r"  +", line.strip()) for line in ran.stdout.splitlines())
    assert caption == ["Robot"] and head == [
        "coordinate",
        "joint",
        "on",
        "bodies, with masses",
        "geoms",
        "sites",
        "actuators",
    ]
    assert rows == [
        ["shoulder", "hinge (rad)", "world", "upper 2.1"],
        ["reach", "slide (m)", "shoulder", "lower 1", "tip", "hand", "push"],
    ]
    assert total == ["mass that moves: 3.1"]
    assert touching == ["geoms and sites may touch floor: give them as contacts"]
    record = json.loads(command("models", str(tmp_path / "arm.xml"), "--json").stdout)
    assert record["links"][0]["bodies"] == {"upper": 2.1} and record["links"][1]["actuators"] == ["push"]
    assert (
        record["gravity"] == [0, 0, -9.81] and record["planes"] == ["floor"] and record["links"][1]["geoms"] == ["tip"]
    )
    (tmp_path / "arm.xml").write_text(ARM.replace('type="slide"', 'type="ball"'))
    for file, message in (
        ("arm.xml", "from_mujoco: not supported: ball joint 'reach'"),
        ("leg.xml", "there is no file"),
    ):
        ran = command("models", str(tmp_path / file))
        assert ran.returncode == 2 and message in ran.stderr and len(ran.stderr.splitlines()) == 1


def test_shell_completion(command):
    ran = command("-h")
    assert "--install-completion" in ran.stdout and "--show-completion" in ran.stdout


CONTINUE = ("continue", "simplest_walker", "--where", "slope", "--from", "0.01", "--to")
ATTRACTOR = ("attractor", "rimless_wheel", "--json", "--where", "slope=0.2:0.3:2")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["gait", "nobody"], "The models are: bouncing_ball"),
        (["gait"], "MODEL"),
        (["gait", "simplest_walker", "--param", "slop=1"], "The parameters are: slope"),
        (["gait", "simplest_walker", "--param", "slope"], "is not name=value"),
        (["gait", "simplest_walker", "--param", "slope=steep"], "is not a number"),
        (["gait", "simplest_walker", "--param", "slope=nan"], "slope"),
        (["gait", "rimless_wheel", "--param", "spokes=2"], "spokes=2.0 must be more than 2"),
        (["gait", "simplest_waker"], "Did you mean 'simplest_walker'?"),
        (["gait", "simplest_walker", "--param", "slop=1"], "Did you mean 'slope'?"),
        (["gait", "simplest_walker", "--strides", "0"], "--strides: 0"),
        (["gait", "simplest_walker", "--strides", "9" * 23], "--strides: 9"),
        (["gait", "simplest_walker", "--region", "0:1"], "--region: '0:1' has 1 parts. Give bounds"),
        (["gait", "simplest_walker", "--region", "1:0,0,0,0"], "lower bound above the upper one"),
        (["gait", "simplest_walker", "--region", "0:x,0,0,0"], "--region: 'x' is not a number"),
        (["gait", "simplest_walker", "--starts", "0"], "--starts: 0 must lie between 1 and"),
        (["simulate", "bouncing_ball", "--t1", "1", "--max-jumps", "1000000000"], "--max-jumps: 1000000000"),
        (["simulate", "bouncing_ball", "--t1", "1e308"], "--t1: '1e308' must be finite"),
        ([*CONTINUE, "0.02", "--max-points", "1000000000"], "--max-points: 1000000000"),
        ([*CONTINUE, "0.02", "--step", "1e-300"], "--step: 1e-300"),
        ([*CONTINUE, "0.02", "--strides", "100000"], "--strides: 100000"),
        ([*CONTINUE, "1e308"], "--to: '1e308' must be finite"),
        (["sweep", "rimless_wheel", "--json", "--where", "slope=0:1:²"], "'²' is not a count"),
        (["sweep", "rimless_wheel", "--json", "--where", "slope=0:1:99999999999"], "'99999999999' is not a count"),
        (["sweep", "rimless_wheel", "--json", "--where", "slope=0:inf:5"], "'inf' must be finite"),
        ([*ATTRACTOR, "--strides", "9" * 23], "--strides: 9"),
        ([*ATTRACTOR, "--keep", "0"], "--keep: 0"),
        (["gait", "simplest_walker", "--wat"], "--wat"),
        (["gait", "simplest_walker", "--plot", "/nowhere/gait.png"], "there is no directory /nowhere"),
        (["gait", "simplest_walker", "--animate", "gait.avi"], ".gif"),
        (["gait", "simplest_walker", "--plot", "gait.xyz"], ".xyz"),
        (["dance"], "dance"),
    ],
)
def test_misuse(command, arguments, message):
    ran = command(*arguments)
    assert ran.returncode == 2
    assert message in ran.stderr and len(ran.stderr.splitlines()) <= 2
    assert "Traceback" not in ran.stderr and ran.stdout == ""


def test_help_and_version(command):
    for arguments in ((), ("-h",), ("--help",)):
        ran = command(*arguments)
        assert ran.returncode == 0 and "continue" in ran.stdout and ran.stderr == ""
    assert re.fullmatch(r"hyjax \d+\.\d+.*\n", command("--version").stdout)
    assert "--starts" in command("gait", "-h").stdout


@pytest.mark.medium
def test_exit_status_of_a_process():
    """Of misuse and of failure, with one line on stderr; what misuse is told is tested in this process, above."""
    for arguments, status, message in (
        (["dance"], 2, "dance"),
        (["gait", "bouncing_ball"], 1, "no isolated periodic orbit"),
    ):
        ran = hyjax(*arguments)
        assert ran.returncode == status and message in ran.stderr and len(ran.stderr.splitlines()) <= 2
        assert "Traceback" not in ran.stderr and ran.stdout == ""
