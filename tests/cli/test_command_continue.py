"""`hyjax continue` as a person uses it."""

import json

import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose, assert_array_equal

ARCH = '''"""A parabola, x -> a - x^2 once in each second."""

import equinox as eqx
import jax
import jax.numpy as jnp

import hyjax as hj


class Params(eqx.Module):
    a: jax.Array = hj.parameter(0.5, "m", "height")


arch = hj.HybridSystem(
    {"run": hj.Mode(lambda t, x, p: jnp.stack([0 * t, 1 + 0 * t]), ("x", "clock"), units=("m", "s"))},
    (hj.Transition("run", "run", lambda t, x, p: 1 - x[1], lambda t, x, p: jnp.stack([p.a - x[0] ** 2, 0 * t])),),
)
sequence = ("run",)


def region(params):
    return jnp.array([-2.0, 0.0]), jnp.array([2.0, 0.0])
'''


@pytest.fixture
def arch(tmp_path):
    (tmp_path / "arch.py").write_text(ARCH)
    return f"{tmp_path / 'arch.py'}:arch"


@pytest.mark.slow
def test_branches_printed_stored_and_drawn(command, arch):
    """Both fixed points of x -> a - x^2, and the orbit of two strides from the doubling of one, at 3/4."""
    ran = command(
        "continue", arch, "--where", "a", "--from", "0.5", "--to", "1.2", "--doublings", "1", "--json", "--out", "branch.nc",
        "--plot", "branch.png",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "wrote branch.nc" in ran.stderr and "wrote branch.png" in ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["model"] == arch and printed["where"] == "a" and printed["results"] == ["successful"] * 3
    special = printed["special_points"]
    (doubling,) = special
    assert (doubling["kind"], doubling["strides"]) == ("period-doubling", 1)
    assert_allclose(doubling["value"], 3 / 4, rtol=1e-13)
    doubled = doubling["branch"]
    assert doubled in (1, 2)
    multipliers = np.array(doubling["multipliers"])
    assert_allclose(multipliers[np.argmin(np.abs(multipliers[:, 0] + 1))], [-1, 0], rtol=0, atol=1e-10)
    assert doubling["residual"] < 1e-12 and len(doubling["x0"]) == 2

    (ax,) = ran.figures["branch.png"].axes
    assert ax.get_xlabel() == "$a$ (m)" and ax.get_ylabel() == "$x$ (m)"
    assert [line.get_gid() for line in ax.lines].count("period-doubling") == 1
    colours = list(dict.fromkeys(line.get_color() for line in ax.lines if len(line.get_xdata()) > 1))
    for number in (1, 2, 3):
        points = [point for point in printed["points"] if point["branch"] == number]
        column = lambda name, points=points: np.array([point[name] for point in points])
        a, x, largest = column("value"), column("x0")[:, 0], column("multipliers")[:, 0, 0]
        # The closed forms: of x^2 + x = a, with the multiplier -2x, and of x^2 - x + 1 = a, with 4 (1 - a).
        if number == 3:
            # Next to the doubling the points differ by the root of what is lost.
            assert_allclose((2 * x - 1) ** 2, 4 * a - 3, rtol=1e-9)
            assert_allclose(largest, 4 * (1 - a), rtol=0, atol=1e-10)
        else:
            root = np.sqrt(1 + 4 * a) if number == doubled else -np.sqrt(1 + 4 * a)
            assert_allclose(x, (root - 1) / 2, rtol=1e-13)
            assert_allclose(largest, 1 - root, rtol=1e-12)
        assert_allclose(column("period"), 2 if number == 3 else 1, rtol=1e-14)
        # The branch of two strides starts within a twentieth of the way to its end.
        start, within = (3 / 4, 0.03) if number == 3 else (1 / 2, 1e-14)
        assert_allclose([a[0], a[-1]], [start, 1.2], rtol=0, atol=within)
        # The file holds what is printed.
        with xarray.open_dataset("branch.nc", engine="scipy") as whole:
            stored = whole.isel(point=whole["branch"] == number, special=whole["special_branch"] == number)
            for name, key in (("a", "value"), ("x", "x0"), ("period", "period"), ("stable", "stable")):
                assert_array_equal(stored[name], column(key))
            assert_array_equal(
                np.stack([stored["multipliers_real"], stored["multipliers_imag"]], -1), column("multipliers")
            )
            assert list(stored["coordinate"].values) == ["x", "clock"]
            assert stored["strides"][number - 1] == (2 if number == 3 else 1)
            assert stored["result"][number - 1] == "successful"
            assert stored.attrs["model"] == arch and stored["a"].attrs["units"] == "m"
            assert_array_equal(stored["special_a"], [each["value"] for each in special if each["branch"] == number])
        # What is drawn, in a colour for each number of strides: stable points solid, others dashed, and each point once.
        drawn = {style: drawn_with(ax, colours[number == 3], style) for style in ("-", "--")}
        assert drawn["-"] | drawn["--"] >= set(zip(a, x, strict=True))
        for value, height, stable in zip(a, x, column("stable"), strict=True):
            assert (value, height) in drawn["-" if stable else "--"]


def drawn_with(ax, colour: str, style: str) -> set[tuple[float, float]]:
    """The points of the curves of a colour and a style."""
    lines = [line for line in ax.lines if line.get_color() == colour and line.get_linestyle() == style]
    return {(float(x), float(y)) for line in lines for x, y in line.get_xydata()}


@pytest.mark.slow
def test_a_curve_through_two_of_the_orbits_is_followed_once(command, arch):
    """The fixed points at 1/2 are on one curve, whose fold lies at -1/4, before the end of the range."""
    ran = command("continue", arch, "--where", "a", "--from", "0.5", "--to", "-0.5", "--json")
    printed = json.loads(ran.stdout)
    assert ran.returncode == 0, ran.stderr
    assert {point["branch"] for point in printed["points"]} == {1}
    values = [point["value"] for point in printed["points"]]
    assert_allclose([values[0], values[-1]], 1 / 2, rtol=1e-14)
    (fold,) = printed["special_points"]
    assert fold["kind"] == "fold" and min(values) >= -1 / 4 - 1e-12
    assert_allclose(fold["value"], -1 / 4, rtol=1e-13)
    # A branch that ends early is printed too, and its end said.
    ran = command("continue", arch, "--where", "a", "--from", "0.5", "--to", "-0.5", "--max-points", "3")
    assert ran.returncode == 0 and "max_points_reached" in ran.stdout and "branch 1 ends early" in ran.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--where", "tilt", "--from", "0.01", "--to", "0.02"], "The parameters are: slope"),
        (
            ["--where", "slope", "--from", "0.01"],
            "give --where, --from and --to, the parameter to vary, its first and its last",
        ),
        (["--from", "0.02"], "as --where slope --from 0.02 --to VALUE"),
        (["--where", "slope", "--from", "0.01", "--to", "up"], "--to: 'up' is not a number"),
        (["--where", "slope", "--from", "0.01", "--to", "0.02", "--step", "0"], "--step"),
        (["--where", "slope", "--from", "0.01", "--to", "0.02", "--doublings", "-1"], "--doublings"),
        (["--where", "slope", "--from", "0.01", "--to", "0.02", "--out", "branch.csv"], "netCDF"),
        (["--where", "slope", "--from", "0.01", "--to", "0.02", "--out", "old.nc"], "Give --overwrite"),
        (["--where", "slope", "--from", "0.01", "--to", "0.02", "--plot", "old.png"], "Give --overwrite"),
    ],
)
def test_misuse(command, arguments, message, tmp_path):
    for name in ("old.nc", "old.png"):
        (tmp_path / name).write_bytes(b"")
    ran = command("continue", "simplest_walker", *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr and "Traceback" not in ran.stderr and ran.stdout == ""


def test_what_to_vary_of_a_family_is_said(command):
    """Its energy, from that of the guess: 820 J of 80 kg, by Geyer, Seyfarth and Blickhan."""
    ran = command("continue", "geyer_walker")
    assert ran.returncode == 2 and ran.stdout == "" and ran.stderr.count("\n") == 1
    assert f"as --where conserved --from {820 / (80 * 9.81):.6g} --to VALUE" in ran.stderr
