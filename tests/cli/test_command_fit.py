"""`hyjax fit` as a person uses it: gravity and restitution of a ball from a file of its times of impact."""

import json

import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose

IMPACTS = np.sqrt(2 / 9.81) * (1 + 2 * np.cumsum(np.append(0, 0.8 ** np.arange(1, 8))))
FIT = ("fit", "bouncing_ball", "times.csv", "--over", "gravity", "--over", "restitution", "--param", "gravity=9")


@pytest.mark.medium
def test_table_picture_and_file(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "times.csv").write_text("\n".join(["time (s)", *map(repr, IMPACTS.tolist())]))
    ran = command(*FIT, "--plot", "fit.png", "--out", "fit.nc")
    assert ran.returncode == 0 and ran.stderr == "hyjax: wrote fit.png\nhyjax: wrote fit.nc\n"
    assert "Bouncing ball: 8 rows of times.csv" in ran.stdout and "successful" in ran.stdout
    with xarray.open_dataset("fit.nc", engine="scipy") as stored:
        assert_allclose(stored["value"], [9.81, 0.8], rtol=1e-9)
    times, off = ran.figures["fit.png"].axes
    assert_allclose(np.asarray(times.lines[-2].get_xydata())[:, 1], IMPACTS)
    assert len(off.lines) >= 8
    record = json.loads(command(*FIT, "--noise", "time=0.002", "--json").stdout)
    assert_allclose(list(record["fitted"].values()), [9.81, 0.8], rtol=1e-9)
    bounded = ("fit", "bouncing_ball", "times.csv", "--over", "gravity=9.9:12", "--over", "restitution", "--json")
    held = json.loads(command(*bounded, "--multiple").stdout)
    assert held["fitted"]["gravity"] == 9.9 and held["result"] == "successful"
    assert record["degrees"] == 6 and record["result"] == "successful" and np.shape(record["covariance"]) == (2, 2)


def test_misuse(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "times.csv").write_text("time\n0.5\n0.4\n1.0\n")
    for arguments, message in (
        (FIT, "do not increase: 0.4 follows 0.5"),
        (("fit", "bouncing_ball", "none.csv", "--over", "gravity"), "none.csv: there is no such file"),
        ((*FIT[:3], "--over", "mass"), "--over: there is no parameter 'mass'"),
        ((*FIT, "--over", "gravity"), "names a parameter twice"),
        ((*FIT, "--over", "gravity=8:9"), "names a parameter twice"),
        ((*FIT[:3], "--over", "gravity=9:8"), "must have its low below its high"),
        ((*FIT[:3], "--over", "restitution=0.5:1.5"), "its bound 1.5 is out of range"),
        ((*FIT, "--noise", "0.1", "--noise", "time=1"), "must be one number"),
    ):
        ran = command(*arguments)
        assert ran.returncode == 2 and message in ran.stderr and ran.stderr.count("\n") == 1, ran.stderr
