"""`hyjax sweep`, `attractor` and `basin` as a person uses them."""

import json
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose
from test_command_line import CACHE

from hyjax import cli


@pytest.fixture
def here(monkeypatch, capsys):
    """The command line in this process, which has been started already."""
    monkeypatch.setenv("HYJAX_CACHE_DIR", str(CACHE))
    cache = jax.config.jax_compilation_cache_dir

    def run(*arguments: str) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["hyjax", *arguments])
        status = 0
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=status, stdout=printed.out, stderr=printed.err)

    yield run
    jax.config.update("jax_compilation_cache_dir", cache)


def closed_form(slope, spoke=np.pi / 6, ratio=2 / 3):
    """The rimless wheel after a collision: its speed, from the energy won over a step, and how the speed's error shrinks."""
    mu = 1 + ratio * (np.cos(2 * spoke) - 1)
    won = 4 * ratio * np.sin(spoke) * np.sin(slope)
    return mu * np.sqrt(won / (1 - mu**2)), mu**2


@pytest.mark.slow
def test_sweep_and_resume(here, tmp_path):
    out, picture = tmp_path / "sweep.zarr", tmp_path / "sweep.png"
    arguments = ("sweep", "rimless_wheel", "--where", "slope=0.2:0.3:40", "--out", str(out), "--json")
    ran = here(*arguments, "--chunk", "16", "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["points"] == 40 and printed["results"] == {"successful": 40}
    speed, multiplier = closed_form(np.array(printed["axes"]["slope"]))
    # 1e-13 relative: 20 times what one wheel is right to.
    assert_allclose(np.abs(np.array(printed["x"])[:, 1]), speed, rtol=1e-13)
    assert_allclose(np.array(printed["multipliers_real"])[:, 0], multiplier, rtol=1e-12)
    assert picture.read_bytes().startswith(b"\x89PNG")
    stored = xarray.open_zarr(out, consolidated=False, chunks=None)
    assert stored["slope"].attrs["units"] == "rad" and stored["x"].attrs["units"].startswith("rad, ")

    assert "--resume" in (again := here(*arguments)).stderr and again.returncode == 2
    # Other values are another sweep.
    other = here("sweep", "rimless_wheel", "--where", "slope=0.2:0.31:40", "--out", str(out), "--resume")
    assert other.returncode == 1 and "cannot be resumed: its grid is" in other.stderr
    assert "Traceback" not in other.stderr and len(other.stderr.splitlines()) <= 2


@pytest.mark.slow
def test_basin(here, tmp_path):
    picture, out = tmp_path / "basin.png", tmp_path / "basin.nc"
    ran = here(
        "basin", "simplest_walker", "--param", "slope=0.004", "--points", "24", "--json", "--plot", str(picture),
        "--out", str(out),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    fates = printed["fates"]
    assert sum(fates.values()) == 24**2 and fates["undecided"] == fates["no step"] == 0
    # A thin strip walks on; slower it falls backward, faster forward (Schwab and Wisse, 2001, fig. 4).
    fate, speed = np.array(printed["fate"]), np.array(printed["axes"]["theta_rate"])
    row = fate[len(fate) // 2]
    assert row[speed == -0.45] == 1 and row[speed == 0] == 2 and np.all(np.diff(row[row > 0]) >= 0)
    assert 1 <= fates["orbit 0"] < 30
    assert picture.read_bytes().startswith(b"\x89PNG") and xarray.open_dataset(out)["fate"].shape == (24, 24)


def test_attractor(here, tmp_path):
    picture = tmp_path / "attractor.png"
    ran = here(
        "attractor", "rimless_wheel", "--where", "slope=0.2:0.3:3", "--strides", "120", "--x0=-0.5235987755982988,0.6",
        "--json", "--plot", str(picture),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["period"] == [1, 1, 1] and printed["chaotic"] == 0
    # Each collision shrinks the error of the speed's square by mu^2, and of the speed by as much.
    _, multiplier = closed_form(np.array(printed["axes"]["slope"]))
    assert_allclose(printed["lyapunov"], np.log(multiplier), rtol=1e-6)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["sweep", "simplest_walker", "--where", "slope=0.01:0.02", "--json"], "name=low:high:count"),
        (["sweep", "simplest_walker", "--where", "tilt=0.01:0.02:5", "--json"], "The parameters are: slope"),
        (["sweep", "simplest_walker", "--where", "slope=0.01:0.02:5"], "--out sweep.zarr, --plot sweep.png or --json"),
        (
            ["sweep", "simplest_walker", "--where", "slope=0.01:0.02:5", "--out", "no/such/a.zarr"],
            "there is no directory",
        ),
        (["attractor", "simplest_walker", "--where", "slope=0.01:0.02:many", "--json"], "not a count"),
        (["basin", "rimless_wheel", "--json"], "give --over"),
        (["basin", "simplest_walker", "--over", "phi=0:1:3", "--json"], "the plane of theta and theta_rate"),
    ],
)
def test_misuse(here, arguments, message):
    ran = here(*arguments)
    assert ran.returncode == 2
    assert message in ran.stderr and "Traceback" not in ran.stderr and ran.stdout == ""
