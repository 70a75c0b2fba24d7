"""`hyjax simulate` as a person uses it, and the picture of a trajectory: a ball bounces, and comes to rest.

In one process: what starts it, and its exit status, are those of `test_command_line`.
"""

import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax import cli, models
from hyjax.models import bouncing_ball
from hyjax.plot.trajectory import trajectory_figure

# Dropped from 1 m with restitution 0.5: the second impact is at twice the time of the first, the third after 1 s.
DROPPED = ("bouncing_ball", "--param", "restitution=1/2", "--t1", "1")
FIRST = np.sqrt(2 / 9.81)
SPEED = np.sqrt(2 * 9.81)


@pytest.fixture
def hyjax(monkeypatch, capsys, tmp_path):
    """Run `hyjax simulate` in this process, in an empty directory: `(exit status, stdout, stderr)`."""
    monkeypatch.setattr("hyjax.cli.simulate.start_jax", lambda: "")  # the tests have started it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hyjax", "simulate", *arguments])
        status = 0
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        return status, *capsys.readouterr()

    return run


def test_table_picture_and_file(hyjax):
    """What is printed, drawn and stored is the ball's closed form."""
    status, out, err = hyjax(*DROPPED, "--plot", "ball.png", "--out", "ball.nc")
    assert status == 0 and err == ""
    assert "2 jumps" in out and "flight -> flight" in out and "successful" in out
    assert f"{FIRST:.12g}" in out and f"{2 * FIRST:.12g}" in out
    with open("ball.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"
    with xarray.open_dataset("ball.nc", engine="scipy") as stored:
        # 1e-13: integration at 1e-14, over values of order one.
        assert_allclose(stored["event_time"], [FIRST, 2 * FIRST], rtol=0, atol=1e-13)


def test_json(hyjax):
    status, out, _ = hyjax(*DROPPED, "--json")
    printed = json.loads(out)
    assert status == 0 and printed["result"] == "successful" and printed["modes"] == ["flight"] * 3
    assert printed["model"] == "bouncing_ball" and printed["params"] == {"restitution": 0.5, "gravity": 9.81}
    # 1e-13: integration at 1e-14, over values of order one.
    assert_allclose([event["t"] for event in printed["events"]], [FIRST, 2 * FIRST], rtol=0, atol=1e-13)
    assert_allclose([event["after"][1] for event in printed["events"]], [SPEED / 2, SPEED / 4], rtol=1e-13)
    left = 1 - 2 * FIRST
    last = [SPEED / 4 * left - 9.81 / 2 * left**2, SPEED / 4 - 9.81 * left]
    assert_allclose(printed["x"], last, rtol=0, atol=1e-13)


def test_ended_early(hyjax):
    """All is printed up to the end, and one line says why it came."""
    status, out, err = hyjax(*DROPPED, "--max-jumps", "1", "--json")
    printed = json.loads(out)
    assert status == 1 and printed["result"] == "max_jumps_reached" and printed["jumps"] == 1
    # It ends where the jump would be that is one too many.
    assert_allclose(printed["t"], 2 * FIRST, rtol=0, atol=1e-13)
    assert "max_jumps_reached" in err and f"{2 * FIRST:.6g}" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nobody", "--t1", "1"], "The models are: bouncing_ball"),
        (["bouncing_ball"], "--t1"),
        (["bouncing_ball", "--t1", "soon"], "--t1: 'soon' is not a number"),
        (["bouncing_ball", "--t1", "-1"], "Time runs forward"),
        (["bouncing_ball", "--t1", "inf"], "--t1: 'inf' must be finite"),
        (["bouncing_ball", "--t1", "1", "--x0", "1,fast"], "--x0: 'fast' is not a number"),
        (["bouncing_ball", "--t1", "1", "--x0", "1"], "(1,)"),
        (["bouncing_ball", "--t1", "1", "--mode", "rest"], "'rest'"),
        (["bouncing_ball", "--t1", "1", "--mode", "rest", "--x0", "1,0"], "'rest'"),
        (["bouncing_ball", "--t1", "1", "--max-jumps", "-1"], "max_jumps=-1"),
        (["bouncing_ball", "--t1", "1", "--param", "restitution=2"], "restitution=2.0 must lie in [0, 1]"),
        (["bouncing_ball", "--t1", "1", "--out", "ball.csv"], "netCDF"),
        (["bouncing_ball", "--t1", "1", "--plot", "ball.xyz"], ".xyz"),
        (["bouncing_ball", "--t1", "1", "--out", "/nowhere/ball.nc"], "there is no directory /nowhere"),
    ],
)
def test_misuse(hyjax, arguments, message):
    status, out, err = hyjax(*arguments)
    assert status == 2 and message in err and len(err.splitlines()) == 1 and out == ""


def test_picture_of_a_trajectory():
    """A row for each coordinate, in its units; a line for each arc, and a thin one where the coordinate jumps."""
    trajectory = hj.simulate(
        bouncing_ball.system, jnp.array([1.0, 0.0]), bouncing_ball.Params(restitution=0.5), mode="flight", t1=1.1
    )
    fig = trajectory_figure(trajectory, bouncing_ball)
    height, speed = fig.axes
    assert "(m)" in height.get_ylabel() and "(m/s)" in speed.get_ylabel() and "(s)" in speed.get_xlabel()
    drawn = [np.asarray(line.get_xydata()) for line in height.get_lines()]
    # Heights of the three arcs: those of the tops of parabolas, which the points on them miss by at most a hundredth of
    # a flight: g/2 (0.45 s/99)^2 = 1e-4.
    assert_allclose([line[:, 1].max() for line in drawn if len(line) > 2], [1, 1 / 4, 1 / 16], rtol=0, atol=1e-4)
    jumps = [np.asarray(line.get_xydata()) for line in speed.get_lines() if len(line.get_xydata()) == 2]
    assert_allclose(jumps, [[[FIRST, -SPEED], [FIRST, SPEED / 2]], [[2 * FIRST, -SPEED / 2], [2 * FIRST, SPEED / 4]]])


@pytest.mark.parametrize("name", models.names)
def test_start(name):
    """Every model says where a simulation of it may start: a mode of its own, and a state of it."""
    model = models.load(name)
    mode, x = model.start(model.Params())
    assert x.shape == (model.system.mode(mode).dimension,) and np.all(np.isfinite(x))
