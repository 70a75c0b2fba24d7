"""`hyjax simulate` as a person uses it, and the picture of a trajectory: a ball bounces, and comes to rest.

In one process: that it does the same in a process of its own is for `test_command_line` to say.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose
from PIL import Image

import hyjax as hj
from hyjax._testing import trajectory_figure
from hyjax.models import bouncing_ball

# Dropped from 1 m with restitution 0.5: the second impact is at twice the time of the first, the third after 1 s.
DROPPED = ("simulate", "bouncing_ball", "--param", "restitution=1/2", "--t1", "1")
FIRST = np.sqrt(2 / 9.81)
SPEED = np.sqrt(2 * 9.81)


def heights(t):
    """Of the ball, in the first second."""
    later = t - FIRST
    bounced = SPEED / 2 * later - 9.81 / 2 * later**2
    again = SPEED / 4 * (later - FIRST) - 9.81 / 2 * (later - FIRST) ** 2
    return np.where(t <= FIRST, 1 - 9.81 / 2 * t**2, np.where(t <= 2 * FIRST, bounced, again))


@pytest.mark.medium
def test_table_picture_animation_and_file(command):
    """What is printed, drawn and stored is the ball's closed form."""
    ran = command(*DROPPED, "--plot", "ball.png", "--animate", "ball.gif", "--out", "ball.nc")
    assert ran.returncode == 0 and ran.stderr == "".join(f"hyjax: wrote ball.{kind}\n" for kind in ("png", "gif", "nc"))
    assert "2 jumps" in ran.stdout and "flight  flight" in ran.stdout and "successful" in ran.stdout
    assert f"{FIRST:.12g}" in ran.stdout and f"{2 * FIRST:.12g}" in ran.stdout
    # 1e-13: integration at 1e-14, over values of order one.
    close = dict(rtol=0, atol=1e-13)
    with xarray.open_dataset("ball.nc", engine="scipy") as stored:
        assert_allclose(stored["event_time"], [FIRST, 2 * FIRST], **close)
        t = stored["time"].values
        assert_allclose(t[[0, -1]], [0, 1], **close)
        assert_allclose(stored["y"], heights(t), **close)
    height, speed = ran.figures["ball.png"].axes
    arcs = [np.asarray(line.get_xydata()) for line in height.lines if len(line.get_xydata()) > 2]
    assert len(arcs) == 3 and len(speed.lines) == 3 + 2
    assert_allclose(np.concatenate(arcs)[:, 1], heights(np.concatenate(arcs)[:, 0]), **close)
    with Image.open("ball.gif") as film:
        # A second in slow motion, two seconds long, at 25 frames a second; and the ball moves.
        assert getattr(film, "n_frames", 1) == 50
        first = np.asarray(film.convert("RGB"))
        film.seek(20)
        assert np.any(np.asarray(film.convert("RGB")) != first)


@pytest.mark.medium
def test_files_are_kept_unless_overwritten(command):
    dropped = (*DROPPED, "--out", "kept.nc")
    Path("kept.nc").write_bytes(b"mine")
    refused = command(*dropped)
    assert refused.returncode == 2 and "kept.nc: the file exists already. Give --overwrite" in refused.stderr
    assert Path("kept.nc").read_bytes() == b"mine"
    ran = command(*dropped, "--overwrite")
    assert ran.returncode == 0 and ran.stderr == "hyjax: wrote kept.nc\n"
    with xarray.open_dataset("kept.nc", engine="scipy") as stored:
        assert_allclose(stored["event_time"], [FIRST, 2 * FIRST], rtol=0, atol=1e-13)


def test_json(command):
    ran = command(*DROPPED, "--json")
    printed = json.loads(ran.stdout)
    assert ran.returncode == 0 and printed["result"] == "successful" and printed["modes"] == ["flight"] * 3
    assert printed["model"] == "bouncing_ball" and printed["params"] == {"restitution": 0.5, "gravity": 9.81}
    # 1e-13: integration at 1e-14, over values of order one.
    assert_allclose([event["t"] for event in printed["events"]], [FIRST, 2 * FIRST], rtol=0, atol=1e-13)
    assert_allclose([event["after"][1] for event in printed["events"]], [SPEED / 2, SPEED / 4], rtol=1e-13)
    left = 1 - 2 * FIRST
    last = [SPEED / 4 * left - 9.81 / 2 * left**2, SPEED / 4 - 9.81 * left]
    assert_allclose(printed["x"], last, rtol=0, atol=1e-13)


@pytest.mark.medium
def test_ended_early(command):
    """All is printed up to the end, and one line says why it came."""
    ran = command(*DROPPED, "--max-jumps", "1", "--json")
    printed = json.loads(ran.stdout)
    assert ran.returncode == 1 and printed["result"] == "max_jumps_reached" and printed["jumps"] == 1
    # It ends where the jump would be that is one too many.
    assert_allclose(printed["t"], 2 * FIRST, rtol=0, atol=1e-13)
    assert "max_jumps_reached" in ran.stderr and f"{2 * FIRST:.6g}" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nobody", "--t1", "1"], "The models are: bouncing_ball"),
        (["bouncing_ball"], "--t1"),
        (["bouncing_ball", "--t1", "soon"], "--t1: 'soon' is not a number"),
        (["bouncing_ball", "--t1", "-1"], "Give t1 >= t0"),
        (["bouncing_ball", "--t1", "inf"], "--t1: 'inf' must be finite"),
        (["bouncing_ball", "--t1", "1", "--x0", "1,fast"], "--x0: 'fast' is not a number"),
        (["bouncing_ball", "--t1", "1", "--x0", "1"], "(1,)"),
        (["bouncing_ball", "--t1", "1", "--mode", "rest"], "'rest'"),
        (["bouncing_ball", "--t1", "1", "--mode", "rest", "--x0", "1,0"], "'rest'"),
        (["bouncing_ball", "--t1", "1", "--max-jumps", "-1"], "--max-jumps: -1"),
        (["bouncing_ball", "--t1", "1", "--param", "restitution=2"], "restitution=2.0 must lie in [0, 1]"),
        (["bouncing_ball", "--t1", "1", "--out", "ball.csv"], "netCDF"),
        (["bouncing_ball", "--t1", "1", "--plot", "ball.xyz"], ".xyz"),
        (["bouncing_ball", "--t1", "1", "--out", "/nowhere/ball.nc"], "there is no directory /nowhere"),
    ],
)
def test_misuse(command, arguments, message):
    ran = command("simulate", *arguments)
    assert ran.returncode == 2 and message in ran.stderr and len(ran.stderr.splitlines()) == 1 and ran.stdout == ""


@pytest.mark.medium
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
