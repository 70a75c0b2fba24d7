"""The command line as a person uses it: a process, its output, its exit status."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case

CACHE = pathlib.Path(__file__).parent.parent / ".cache" / "cli"


def hyjax(*arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"HYJAX_CACHE_DIR": str(CACHE), "COLUMNS": "120", "MPLBACKEND": "agg"}
    return subprocess.run([sys.executable, "-m", "hyjax", *arguments], capture_output=True, text=True, env=environment)


def test_json():
    ran = hyjax("gait", "simplest_walker", "--json", "--param", "slope=0.004")
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["model"] == "simplest_walker" and printed["params"] == {"slope": 0.004}
    assert printed["state_names"] == ["theta", "theta_rate", "phi", "phi_rate"]
    for orbit, name in zip(printed["orbits"], ("long_0.004", "short_0.004"), strict=True):
        record = case("B_simplest_walker", name)
        # Tolerances as for the library: 1e-14, 5e-14, 3e-13 relative.
        assert_allclose(orbit["x0"], record["x0"], rtol=0, atol=1e-14)
        assert_allclose(orbit["period"], record["T"], rtol=0, atol=5e-14)
        exact = np.stack([record["eigenvalues"]["re"], record["eigenvalues"]["im"]], axis=1)
        assert_allclose(orbit["multipliers"], exact, rtol=3e-13, atol=3e-13)
        assert_allclose(orbit["spectral_radius"], record["eigenvalues"]["spectral_radius"], rtol=3e-13)
        assert orbit["stable"] is (name == "long_0.004")
        assert orbit["residual"] < 1e-14 and orbit["result"] == "successful"


@pytest.mark.slow
def test_table_picture_animation(tmp_path):
    picture, animation = tmp_path / "gait.png", tmp_path / "gait.gif"
    ran = hyjax(
        "gait", "rimless_wheel", "--param", "inertia_ratio=2/3", "--plot", str(picture), "--animate", str(animation)
    )
    assert ran.returncode == 0, ran.stderr
    for part in ("Rimless wheel", "theta_rate", "+0.460341126609458", "2.31001486504", "stable", "yes"):
        assert part in ran.stdout
    assert picture.read_bytes().startswith(b"\x89PNG") and animation.read_bytes().startswith(b"GIF")


@pytest.mark.slow
def test_degrees():
    ran = hyjax("gait", "compass_gait", "--json", "--param", "slope=3deg")
    assert ran.returncode == 0, ran.stderr
    record = case("C_compass_gait")
    orbit = json.loads(ran.stdout)["orbits"][0]
    # 1e-12 is demanded of the compass gait.
    assert_allclose(orbit["x0"], record["x0"], rtol=0, atol=1e-12)
    assert_allclose(orbit["period"], record["T"], rtol=0, atol=1e-12)


def test_models():
    ran = hyjax("models")
    assert ran.returncode == 0
    for name in ("bouncing_ball", "rimless_wheel", "simplest_walker", "compass_gait"):
        assert name in ran.stdout
    ran = hyjax("models", "compass_gait")
    for part in ("slope", "rad", "mu", "hip mass over leg mass", "beta", "0.05235987756", "theta_ns_rate"):
        assert part in ran.stdout


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
        (["gait", "simplest_walker", "--strides", "0"], "--strides: 0"),
        (["gait", "simplest_walker", "--wat"], "--wat"),
        (["gait", "simplest_walker", "--plot", "/nowhere/gait.png"], "there is no directory /nowhere"),
        (["gait", "simplest_walker", "--animate", "gait.avi"], ".gif"),
        (["gait", "simplest_walker", "--plot", "gait.xyz"], ".xyz"),
        (["dance"], "dance"),
    ],
)
def test_misuse(arguments, message):
    ran = hyjax(*arguments)
    assert ran.returncode == 2
    assert message in ran.stderr and len(ran.stderr.splitlines()) <= 2
    assert "Traceback" not in ran.stderr and ran.stdout == ""


def test_nothing_to_find():
    ran = hyjax("gait", "bouncing_ball")
    assert ran.returncode == 1
    assert "no isolated periodic orbit" in ran.stderr and len(ran.stderr.splitlines()) <= 2 and ran.stdout == ""


def test_reproduce():
    ran = hyjax("reproduce", "bhounsule")
    assert ran.returncode == 0, ran.stderr
    for part in ("-0.190099841069399", "-3.5e-12", "4.0038643589297", "wrong order"):
        assert part in ran.stdout
