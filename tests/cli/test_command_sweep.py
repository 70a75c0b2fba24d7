"""`hyjax sweep`, `attractor` and `basin` as a person uses them."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
import zarr
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import Misuse, parse_section, state_at_section
from hyjax.models import linear_impact_oscillator


def closed_form(slope, spoke=np.pi / 6, ratio=2 / 3):
    """The rimless wheel after a collision: its speed, from the energy won over a step, and how the speed's error shrinks."""
    mu = 1 + ratio * (np.cos(2 * spoke) - 1)
    won = 4 * ratio * np.sin(spoke) * np.sin(slope)
    return mu * np.sqrt(won / (1 - mu**2)), mu**2


def points(line):
    return np.asarray(line.get_xydata(), float)


@pytest.mark.slow
def test_sweep_and_resume(command):
    arguments = ("sweep", "rimless_wheel", "--where", "slope=0.2:0.3:40", "--out", "sweep.zarr", "--json")
    ran = command(*arguments, "--chunk", "16", "--plot", "sweep.png")
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["points"] == 40 and printed["results"] == {"successful": 40}
    slope, x = np.linspace(0.2, 0.3, 40), np.array(printed["x"])
    assert_array_equal(printed["axes"]["slope"], slope)
    speed, multiplier = closed_form(slope)
    # 1e-13 relative: 20 times what one wheel is right to.
    assert_allclose(x[:, 1], speed, rtol=1e-13)
    assert_allclose(np.array(printed["multipliers_real"])[:, 0], multiplier, rtol=1e-12)
    stored = xarray.open_zarr("sweep.zarr", consolidated=False, chunks=None).load()
    assert stored["slope"].attrs["units"] == "rad" and stored["x"].attrs["units"].startswith("rad, ")
    assert_array_equal(stored["x"], x)

    # The picture: the speed, which tells the gaits apart, over the slope, and the largest multiplier, all stable.
    left, right = ran.figures["sweep.png"].axes
    assert_array_equal(points(left.lines[0]), np.stack([slope, x[:, 1]], axis=1))
    assert_allclose(points(right.lines[0]), np.stack([slope, np.full(40, multiplier)], axis=1), rtol=1e-12)
    assert [line.get_label() for line in left.lines] == ["stable"]
    assert (left.get_xlabel(), left.get_ylabel()) == ("slope (rad)", r"$\dot{\theta}$ (rad $\sqrt{g/l}$)")

    assert "--resume" in (again := command(*arguments)).stderr and again.returncode == 2
    # What a dead process has not written is written again, to the same bits.
    store = zarr.open_group("sweep.zarr", mode="r+")
    for name, nothing in (("result", -1), ("x", np.nan), ("period", 0.0)):
        store[name][16:32] = nothing  # pyright: ignore
    resumed = command(*arguments, "--resume")
    assert resumed.returncode == 0 and json.loads(resumed.stdout) == printed
    xarray.testing.assert_identical(xarray.open_zarr("sweep.zarr", consolidated=False, chunks=None).load(), stored)
    # A damaged chunk is computed again, with a line that says so; other damage is refused.
    part = Path("sweep.zarr/x/c/1/0")
    part.write_bytes(part.read_bytes()[:-1])
    resumed = command(*arguments, "--resume")
    assert resumed.returncode == 0 and json.loads(resumed.stdout) == printed
    assert resumed.stderr.startswith("hyjax: sweep.zarr: the chunk slope ") and "computed again" in resumed.stderr
    assert len(resumed.stderr.splitlines()) == 2 and "wrote sweep.zarr" in resumed.stderr
    metadata = Path("sweep.zarr/x/zarr.json")
    kept = metadata.read_text()
    metadata.write_text(kept.replace("zstd", "zstq"))
    refused = command(*arguments, "--resume")
    assert refused.returncode == 1 and "the file x/zarr.json is damaged" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    metadata.write_text(kept)
    # Other values are another sweep.
    other = command("sweep", "rimless_wheel", "--where", "slope=0.2:0.31:40", "--out", "sweep.zarr", "--resume")
    assert other.returncode == 1 and "cannot be resumed: its grid is" in other.stderr
    assert "Traceback" not in other.stderr and len(other.stderr.splitlines()) <= 2


@pytest.mark.slow
def test_basin(command):
    ran = command(
        "basin", "simplest_walker", "--param", "slope=0.004", "--points", "24", "--json", "--plot", "basin.png",
        "--out", "basin.nc",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    outcomes = printed["outcomes"]
    assert sum(outcomes.values()) == 24**2 and outcomes["undecided"] == outcomes["no step"] == 0
    # A thin strip walks on; slower it falls backward, faster forward (Schwab and Wisse, 2001, fig. 4).
    outcome, speed = np.array(printed["outcome"]), np.array(printed["axes"]["theta_rate"])
    row = outcome[len(outcome) // 2]
    assert row[speed == -0.45] == 1 and row[speed == 0] == 2 and np.all(np.diff(row[row > 0]) >= 0)
    assert 1 <= outcomes["orbit 1"] < 30
    # What walks on is near the gait's own start, where theta is 0.96 times the cube root of the slope.
    theta = np.array(printed["axes"]["theta"])[np.any(outcome == 0, axis=1)] / np.cbrt(0.004)
    assert np.all((theta > 0.5) & (theta < 1.5))
    with xarray.open_dataset("basin.nc") as stored:
        assert_array_equal(stored["outcome"], outcome)
        assert_array_equal(stored["theta_rate"], speed)
    (ax,) = ran.figures["basin.png"].axes
    (mesh,) = ax.collections
    assert_array_equal(np.asarray(mesh.get_array()).reshape(24, 24), outcome.T)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["orbit 1", "fell forward", "fell backward", "stable gait", "unstable gait"]


@pytest.mark.medium
def test_basins_along_a_parameter(command):
    """The gait at one slope falls at the other: the gait there is the nearest attractor, and keeps the number."""
    where = ("--where", "slope=0.004:0.008:2", "--points", "12", "--strides", "60")
    ran = command("basin", "simplest_walker", *where, "--json", "--plot", "shares.png")
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert [*printed["share"]] == ["attractor 1", "fell forward", "fell backward", "no step", "undecided"]
    assert np.all(np.array(printed["share"]["attractor 1"]) > 0) and printed["axes"]["slope"] == [0.004, 0.008]
    assert np.shape(printed["outcome"]) == (2, 12, 12)
    (ax,) = ran.figures["shares.png"].axes
    assert ax.get_legend().get_texts()[0].get_text() == "attractor 1"


SECTION = ("attractor", "rimless_wheel", "--where", "slope=0.2:0.3:3", "--section")
FROM_THE_ORBIT = pytest.param((), id="from the orbit", marks=pytest.mark.slow)


@pytest.mark.medium
@pytest.mark.parametrize("start", [pytest.param(("--x0=-0.5235987755982988,0.6",), id="from a state"), FROM_THE_ORBIT])
def test_attractor(command, start):
    ran = command(
        "attractor", "rimless_wheel", "--where", "slope=0.2:0.3:3", "--strides", "120", *start, "--json", "--plot",
        "attractor.png", "--out", "attractor.nc",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["period"] == [1, 1, 1] and printed["chaotic"] == 0 and printed["results"] == {"successful": 3}
    # Each collision shrinks the error of the speed's square by mu^2, and of the speed by as much.
    slope = np.array(printed["axes"]["slope"])
    speed, multiplier = closed_form(slope)
    # The attractor's integrator has a tolerance of 1e-9.
    assert_allclose(printed["lyapunov"], np.log(multiplier), rtol=1e-8)
    above, below = ran.figures["attractor.png"].axes
    with xarray.open_dataset("attractor.nc") as stored:
        assert stored["x"].attrs["units"] == "rad, rad sqrt(g/l)" and stored["slope"].attrs["units"] == "rad"
        assert_allclose(stored["x"][..., 1], np.tile(speed[:, None], 60), rtol=1e-8)
        drawn = points(above.lines[0]).reshape(3, 60, 2)
        assert_array_equal(drawn[..., 0], np.tile(slope[:, None], 60))
        # The angle is that at which the spoke strikes: the rate is drawn.
        assert_array_equal(drawn[..., 1], stored["x"][..., 1])
    assert_array_equal(points(below.lines[0]), np.stack([slope, printed["lyapunov"]], axis=1))

    # Without an output a table is printed: a line for each point, after the summary.
    ran = command("attractor", "rimless_wheel", "--where", "slope=0.2:0.3:3", "--strides", "120", *start)
    rows = [line.split() for line in ran.stdout.splitlines()[-4:]]
    assert ran.returncode == 0 and rows[0] == ["slope", "period", "lyapunov", "result"]
    assert [row[3] for row in rows[1:]] == ["successful"] * 3 and [row[1] for row in rows[1:]] == ["1"] * 3
    assert_allclose([float(row[2]) for row in rows[1:]], printed["lyapunov"], rtol=1e-11)


@pytest.mark.medium
def test_attractor_of_a_section(command):
    """The wheel as it passes 0.1 rad: faster than after the collision by the energy won since, and the same exponent."""
    place = 0.1
    ran = command(
        "attractor", "rimless_wheel", "--section", f"stance:theta>{place}", "--x0=-0.5,0.6", "--where", "slope=0.2:0.3:2",
        "--strides", "100", "--keep", "1", "--json", "--out", "attractor.nc",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["period"] == [0, 0] and printed["results"] == {"successful": 2}
    slope = np.array(printed["axes"]["slope"])
    speed, multiplier = closed_form(slope)
    won = 4 / 3 * (np.cos(slope - np.pi / 6) - np.cos(slope + place))
    # The attractor's integrator has a tolerance of 1e-9; what is off the section is lost in each pass.
    assert_allclose(printed["lyapunov"], np.log(multiplier), rtol=1e-8)
    assert [row[1] for row in printed["exponents"]] == [None, None]
    with xarray.open_dataset("attractor.nc") as stored:
        assert_allclose(stored["x"][:, 0, 0], place, rtol=1e-8)
        assert_allclose(stored["x"][:, 0, 1], np.sqrt(speed**2 + won), rtol=1e-8)
        assert np.all(stored["exponents"][:, 1] == -np.inf)
        assert stored.attrs["section"] == "surface in stance"


def test_sections_by_their_texts():
    """Both directions, and a period as a number and by a parameter."""
    params = linear_impact_oscillator.Params(frequency=3.0)
    x = np.array([0.2, 1.5, 0.0])
    for text, sign in (("after:x_rate<0.5", 1), (" after : x_rate > 0.5 ", -1)):
        section = parse_section(linear_impact_oscillator, text)
        assert isinstance(section, hj.Section) and section.mode == "after"
        assert section.surface(0.0, x, params) == sign * 1.0
    for text, period in (("before:period=2pi/frequency", 2 * np.pi / 3), ("before:period=1/4", 0.25)):
        section = parse_section(linear_impact_oscillator, text)
        assert isinstance(section, hj.Stroboscope) and section.mode == "before"
        assert_allclose(section.duration(params, float), period, rtol=1e-15)
        assert section.start(params, float) == 0
    assert parse_section(linear_impact_oscillator, "before:period=2,phase=0.5").start(params, float) == 0.5
    assert parse_section(linear_impact_oscillator, " before : period = 2 , phase = 0.5 ").start(params, float) == 0.5
    with pytest.raises(Misuse, match="a phase is for a period"):
        parse_section(linear_impact_oscillator, "before:x<2,phase=0.5")
    start = state_at_section(linear_impact_oscillator, params, section, None)
    assert_allclose(start(params), linear_impact_oscillator.start(params)[1])
    # The parameters of a file may have no defaults: its start is asked for with those of the grid.
    own = SimpleNamespace(
        start=lambda params: ("before", params.shift), Params=dataclasses.make_dataclass("Params", ["shift"])
    )
    start = state_at_section(own, own.Params(0.5), section, None)  # pyright: ignore[reportArgumentType]
    assert start(own.Params(0.25)) == 0.25


@pytest.mark.slow
def test_a_period_is_prescribed_and_the_slope_solved_for(command):
    asked = ("--prescribe", "period=1.2:1.6:3", "--solve", "slope", "--json")
    ran = command("sweep", "rimless_wheel", *asked)
    assert ran.returncode == 0, ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["axes"] == {"prescribed_period": [1.2, 1.4, 1.6]}
    # Newton's method ends at a residual of 5e-14, a quarter of the tolerances.
    assert_allclose(printed["period"], printed["axes"]["prescribed_period"], rtol=1e-13)
    # The slopes differ, and each has the wheel of the closed form.
    assert printed["slope"][0] > printed["slope"][1] > printed["slope"][2]
    speed, multiplier = closed_form(np.array(printed["slope"]))
    assert_allclose(np.array(printed["x"])[:, 1], speed, rtol=1e-13)
    assert_allclose(np.array(printed["multipliers_real"])[:, 0], multiplier, rtol=1e-12)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["sweep", "simplest_walker", "--where", "slope=0.01:0.02", "--json"], "name=low:high:count"),
        (["sweep", "simplest_walker", "--where", "tilt=0.01:0.02:5", "--json"], "The parameters are: slope"),
        (
            ["sweep", "simplest_walker", "--where", "slope=0.01:0.02:5", "--out", "no/such/a.zarr"],
            "there is no directory",
        ),
        (["sweep", "powered_walker"], "give --where"),
        (["sweep", "powered_walker", "--prescribe", "speed=0.4"], "give also --solve"),
        (["sweep", "powered_walker", "--where", "slope=0", "--solve", "stiffness"], "give also --prescribe"),
        (["sweep", "powered_walker", "--prescribe", "sped=0.4", "--solve", "stiffness"], "Did you mean 'speed'?"),
        (["sweep", "powered_walker", "--prescribe", "speed=0.4", "--solve", "stifness"], "Did you mean 'stiffness'?"),
        (
            ["sweep", "powered_walker", "--prescribe", "speed=0.4", "--solve", "push_off,stiffness"],
            "2 parameters (push_off, stiffness) for 1 prescribed quantity (speed)",
        ),
        (
            ["sweep", "powered_walker", "--prescribe", "speed=1", "--prescribe", "period=1", "--solve", "slope,slope"],
            "names a parameter twice",
        ),
        (
            ["sweep", "powered_walker", "--where", "slope=0", "--prescribe", "speed=0.4", "--solve", "slope"],
            "slope is varied by --where",
        ),
        (["attractor", "simplest_walker", "--where", "slope=0.01:0.02:many", "--json"], "not a count"),
        ([*SECTION, "stance"], "'stance' is no section. Write MODE:COORDINATE<VALUE"),
        ([*SECTION, "flight:theta<0"], "'flight' is not one of the modes ('stance',)"),
        (
            [*SECTION, "stance:speed<0"],
            "mode 'stance' has no coordinate 'speed'. Its coordinates are: theta, theta_rate",
        ),
        ([*SECTION, "stance:theta=0"], "Write stance:theta<0 where theta falls, or stance:theta>0 where it rises"),
        ([*SECTION, "stance:period=2pi/omega"], "there is no parameter 'omega'"),
        ([*SECTION, "stance:period=-1"], "the period '-1' must be positive"),
        ([*SECTION, "stance:theta<0", "--sequence", "stance"], "give either --section or --sequence"),
        (["attractor", "slip", "--where", "energy=1:2:3", "--section", "stance:y<1"], "give --x0"),
        (["basin", "rimless_wheel", "--json"], "give --over"),
        (["basin", "simplest_walker", "--over", "phi=0:1:3", "--json"], "the plane of theta and theta_rate"),
    ],
)
def test_misuse(command, arguments, message):
    ran = command(*arguments)
    assert ran.returncode == 2
    assert message in ran.stderr and "Traceback" not in ran.stderr and ran.stdout == ""
