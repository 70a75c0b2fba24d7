"""The scripts of `examples/papers`: what they print of papers, beside the references."""

import os
import re
import subprocess
import sys
from fractions import Fraction

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from readme import claimed, ROOT
from reference import case, exact
from saltation_transitions import TRANSITIONS

STATE = claimed("simplest walker, both gaits at slopes 0.004 and 0.009: state")
MULTIPLIER = claimed("… multipliers")


def rows(printed: str, columns: int) -> list[list[str]]:
    """The lines of tables that have so many columns, which are two spaces or more apart."""
    cells = (re.split(r"  +", line.strip()) for line in printed.splitlines())
    return [row for row in cells if len(row) == columns and re.match(r"[+-]?\d", row[-1])]


@pytest.mark.medium
def test_bhounsule():
    """Each of ours is as near to the reference as docs/accuracy.md says, and the differences printed are those of the numbers."""
    environment = os.environ | {"HYJAX_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    path = ROOT / "examples" / "papers" / "bhounsule.py"
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr
    wheel, long, short = (
        exact("A_rimless_wheel"),
        *(exact("B_simplest_walker")[f"{gait}_0.009"] for gait in ("long", "short")),
    )
    known = [*wheel["x0"], *wheel["eigenvalues"][::-1]]
    known += [*long["x0"], *(long["eigenvalues"][part][0] for part in ("re", "im"))]
    known += [*short["x0"], *short["eigenvalues"]["re"][:2]]
    table = rows(ran.stdout, 6)
    assert len(table) == len(known) == 16
    for (name, paper, ours, reference, off, left), digits in zip(table, known, strict=True):
        assert digits.startswith(reference[:17]), name
        # The printed digits end at 1e-16; a difference is printed to two.
        exactly = float(digits)
        for value, difference in ((paper, off), (ours, left)):
            assert_allclose(float(difference), float(value) - exactly, rtol=0.06, atol=2e-16, err_msg=name)
        assert abs(float(ours) - exactly) < (MULTIPLIER if "multiplier" in name else STATE), name
        assert abs(float(paper) - exactly) < 4e-12, name
    assert "wrong order" in ran.stdout


@pytest.mark.slow
def test_saltation(script, tmp_path):
    """Every transition of the paper, and the differences printed are rounding, of forces that cancel where a contact is lost."""
    ran = script("saltation", "--plot", str(tmp_path / "drops.png"))
    assert ran.returncode == 0, ran.stderr
    table = rows(ran.stdout, 4)
    assert [row[:2] for row in table] == [[f"{each.source} -> {each.target}", each.equation] for each in TRANSITIONS]
    assert all(float(row[2]) >= 1 and float(row[3]) < 1e-11 for row in table)
    # The ball on a slope: fractions, ours, and the largest difference of a row.
    ball = rows(ran.stdout, 9)
    records = [case("E_ball_on_slope", kind)["Xi"] for kind in ("slide", "stick")]
    assert_allclose([[float(each) for each in row[4:8]] for row in ball], np.concatenate(records), rtol=0, atol=5e-5)
    assert [[float(Fraction(each)) for each in row[:4]] for row in ball] == np.concatenate(records).tolist()
    # As printed, with one digit: five roundings of an entry between 1 and 2.
    assert all(float(row[8]) <= 1e-15 for row in ball)
    assert "Eq. (83)" in ran.stdout
    # Balls dropped on the slope: what is printed lies within the scatter of 2000 balls, 2 % or so, by the saltation matrix alone.
    drops = [row for row in rows(ran.stdout, 5) if row[0].startswith("into")]
    assert [row[0] for row in drops] == ["into sliding"] * 2 + ["into sticking"] * 2
    spreads = np.array([[float(each) for each in row[2:]] for row in drops])
    assert_allclose(spreads[:, 0], spreads[:, 2], rtol=0.05, atol=1e-4)
    # From one constant flow to another the deviation is a linear function: by the saltation matrix, by the reset, and simulated.
    *deviations, first, second = [row[2:] for row in rows(ran.stdout, 5) if "deviation" in row[0]]
    assert deviations == [["0.1000", "0.1000", "0.1000"], ["-0.1000", "0.0500", "-0.1000"]]
    for row, known in ((first, 0.1), (second, np.hypot(0.15, 0.05))):
        assert_allclose([float(row[0]), float(row[2])], known, rtol=0.05)
    assert float(second[1]) == 0.05
    assert np.all(spreads[[0, 2], 1] > 0.1) and (tmp_path / "drops.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "name, options", [("saltation", ["--plot"]), ("orbitador", ["--plot"]), ("solvers", ["--plot-points"])]
)
def test_a_picture_of_an_unknown_format_is_refused_first(script, monkeypatch, name, options):
    def computed(*_):
        raise AssertionError("began to compute")

    monkeypatch.setattr(f"{name}.{name}", computed)
    for path, said in (("picture.xyz", "not a picture format"), ("nowhere/picture.png", "there is no folder")):
        ran = script(name, *options, path)
        assert ran.returncode == 2 and said in ran.stderr
