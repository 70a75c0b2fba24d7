"""`hyjax continue` as a person uses it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax.models import simplest_walker

# Roots of det(D + I) with heyoka's variational equations; see `test_continuation`.
DOUBLINGS = [0.01508843794111946, 0.0176693748624628]


@pytest.mark.exhaustive
def test_branches_printed_stored_and_drawn(command):
    """Both gaits, and the one of two strides from the doubling of the first to its own."""
    ran = command(
        "continue", "simplest_walker", "--where", "slope", "--from", "0.0145", "--to", "0.0178", "--doublings", "1", "--json",
        "--out", "branch.nc", "--plot", "branch.png",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "wrote branch.nc" in ran.stderr and "wrote branch.png" in ran.stderr
    printed = json.loads(ran.stdout)
    assert printed["model"] == "simplest_walker" and printed["where"] == "slope"
    assert printed["results"] == ["successful"] * 3
    kinds = [(each["branch"], each["kind"], each["strides"]) for each in printed["special_points"]]
    assert kinds == [(1, "period-doubling", 1), (3, "period-doubling", 2)]
    for point, expected in zip(printed["special_points"], DOUBLINGS, strict=True):
        # As `test_cascade_of_the_walker`.
        assert_allclose(point["value"], expected, rtol=0, atol=1e-14)
        assert point["residual"] < 1e-12 and len(point["x0"]) == 4
        multipliers = np.array(point["multipliers"])
        assert_allclose(multipliers[np.argmin(np.abs(multipliers[:, 0] + 1))], [-1, 0], rtol=0, atol=1e-10)

    (ax,) = ran.figures["branch.png"].axes
    assert ax.get_xlabel() == "slope (rad)" and ax.get_ylabel() == r"$\theta$ (rad)"
    assert [line.get_gid() for line in ax.lines].count("period-doubling") == 2
    colours = list(dict.fromkeys(line.get_color() for line in ax.lines if len(line.get_xdata()) > 1))
    for number, ends in enumerate([(0.0145, 0.0178), (0.0145, 0.0178), (DOUBLINGS[0], 0.0178)], start=1):
        points = [point for point in printed["points"] if point["branch"] == number]
        column = lambda name, points=points: np.array([point[name] for point in points])
        # The branch of two strides starts within a twentieth of the way to its end.
        assert_allclose([column("value")[0], column("value")[-1]], ends, rtol=0, atol=2e-4 if number == 3 else 1e-14)
        # The file holds what is printed, and its points are orbits.
        with xarray.open_dataset("branch.nc", engine="scipy") as whole:
            stored = whole.isel(point=whole["branch"] == number, special=whole["special_branch"] == number)
            for name, key in (("slope", "value"), ("x", "x0"), ("period", "period"), ("stable", "stable")):
                assert_array_equal(stored[name], column(key))
            assert_array_equal(
                np.stack([stored["multipliers_real"], stored["multipliers_imag"]], -1), column("multipliers")
            )
            assert list(stored["coordinate"].values) == list(simplest_walker.coordinates)
            assert (
                stored["strides"][number - 1] == (2 if number == 3 else 1)
                and stored["result"][number - 1] == "successful"
            )
            assert stored.attrs["model"] == "simplest_walker" and stored["slope"].attrs["units"] == "rad"
            special = [each["value"] for each in printed["special_points"] if each["branch"] == number]
            assert_array_equal(stored["special_slope"], special)
        returns(column("value"), column("x0"), column("period"), column("multipliers"), 2 if number == 3 else 1)
        # What is drawn, in a colour for each number of strides: stable points solid, others dashed, and each point once.
        drawn = {style: drawn_with(ax, colours[number == 3], style) for style in ("-", "--")}
        assert drawn["-"] | drawn["--"] >= set(zip(column("value"), column("x0")[:, 0], strict=True))
        for value, theta, stable in zip(column("value"), column("x0")[:, 0], column("stable"), strict=True):
            assert (value, theta) in drawn["-" if stable else "--"]


def drawn_with(ax, colour: str, style: str) -> set[tuple[float, float]]:
    """The points of the curves of a colour and a style."""
    lines = [line for line in ax.lines if line.get_color() == colour and line.get_linestyle() == style]
    return {(float(x), float(y)) for line in lines for x, y in line.get_xydata()}


@jax.jit
@jax.vmap
def around(slope, x):
    """A stride and its Jacobian."""

    def once(x):
        stride = hj.stride(simplest_walker.system, x, simplest_walker.Params(slope), sequence=("swing",))
        return stride.x, stride

    jacobian, stride = jax.jacfwd(once, has_aux=True)(x)
    return stride.x, stride.time, jacobian


def returns(slopes, x, periods, multipliers, strides):
    """From each state the stride leads back to it, in that time; its Jacobian has these eigenvalues. In batches of one size."""
    x, count = jnp.asarray(x), len(slopes)
    pad = lambda column: jnp.concatenate([column, jnp.tile(column[:1], (128 - count, *[1] * (column.ndim - 1)))])
    slopes, end, time, product = pad(jnp.asarray(slopes)), pad(x), 0, np.eye(4)
    for _ in range(strides):
        end, duration, jacobian = around(slopes, end)
        time, product = time + duration, np.asarray(jacobian) @ product
    # Newton's method stops where it is to rounding; a multiplier of up to 10 stretches that.
    assert_allclose(end[:count], x, rtol=0, atol=1e-13)
    assert_allclose(time[:count], periods, rtol=0, atol=1e-12)
    found = np.linalg.eigvals(product[:count])
    # By their symmetric functions, which have no order: coefficients of the characteristic polynomial.
    given = np.asarray(multipliers) @ [1, 1j]
    for ours, theirs in zip(found, given, strict=True):
        assert_allclose(
            np.poly(theirs).real, np.poly(ours).real, rtol=0, atol=1e-10 * max(1, np.max(np.abs(np.poly(ours))))
        )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--where", "tilt", "--from", "0.01", "--to", "0.02"], "The parameters are: slope"),
        (["--where", "slope", "--from", "0.01"], "--to"),
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


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_curve_through_two_of_the_orbits_is_followed_once(command):
    """The hoppers at a stiffness of 30 are on one curve, whose fold lies at a stiffness of 31.5, before the end of the range."""
    ran = command("continue", "slip", "--where", "stiffness", "--from", "30", "--to", "40", "--json")
    printed = json.loads(ran.stdout)
    assert ran.returncode == 0, ran.stderr
    assert {point["branch"] for point in printed["points"]} == {1}
    values = [point["value"] for point in printed["points"]]
    assert_allclose([values[0], values[-1]], 30, rtol=1e-14)
    assert min(values) >= 30 - 1e-12 and max(values) < 31.5
    assert [point["kind"] for point in printed["special_points"]] == ["fold"]
