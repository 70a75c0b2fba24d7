"""`hyjax continue` as a person uses it."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_command_line import hyjax


@pytest.mark.slow
def test_json_and_picture(tmp_path):
    picture = tmp_path / "branch.png"
    ran = hyjax(
        "continue", "simplest_walker", "--where", "slope", "--from", "0.0145", "--to", "0.0155", "--json", "--plot", str(picture)
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["model"] == "simplest_walker" and printed["where"] == "slope"
    assert printed["results"] == ["successful", "successful"]
    # Both gaits, each from end to end.
    for branch in (0, 1):
        values = [point["value"] for point in printed["points"] if point["branch"] == branch]
        assert_allclose([values[0], values[-1]], [0.0145, 0.0155], rtol=1e-13)
    (point,) = printed["special_points"]
    assert point["kind"] == "period-doubling" and point["strides"] == 1 and point["residual"] < 1e-12
    multipliers = np.array(point["multipliers"])
    assert_allclose(multipliers[np.argmin(np.abs(multipliers[:, 0] + 1))], [-1, 0], rtol=0, atol=1e-10)
    assert 0.01508 < point["value"] < 0.01509 and len(point["x0"]) == 4
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--where", "tilt", "--from", "0.01", "--to", "0.02"], "The parameters are: slope"),
        (["--where", "slope", "--from", "0.01"], "--to"),
        (["--where", "slope", "--from", "0.01", "--to", "up"], "--to: 'up' is not a number"),
        (["--where", "slope", "--from", "0.01", "--to", "0.02", "--step", "0"], "--step"),
        (["--where", "slope", "--from", "0.01", "--to", "0.02", "--out", "branch.csv"], "netCDF"),
    ],
)
def test_misuse(arguments, message):
    ran = hyjax("continue", "simplest_walker", *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr and "Traceback" not in ran.stderr and ran.stdout == ""
