"""README.md: its example runs and prints its digits, its table is tested row by row, and what it names is there."""

import os
import re
import shlex
import subprocess
import sys

import jax
import numpy as np
import pytest
import typer
from numpy.testing import assert_allclose
from readme import accuracy, blocks, ROOT, section, TEXT
from reference import case
from test_accuracy import wheel_closed_form

import hyjax as hj
from hyjax.cli.app import app


def test_every_row_of_the_table_is_a_tolerance_of_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    assert set(re.findall(r'claimed\("(.+?)"\)', tests)) == set(accuracy())
    # No row has escaped the pattern: a head, a rule, and the rows.
    assert len(re.findall(r"^\|", section("How accurate"), re.MULTILINE)) == 2 + len(accuracy())


# What it prints: an orbit's table, a derivative, an array.
EXAMPLE = re.compile(r"PeriodicOrbit\n((?:  .*\n)+)(\S+)\n\[(.*)\]\n", re.DOTALL)


def test_example():
    """As it stands, in a process of its own: what it prints are the digits of the closed form."""
    (example,) = blocks("python")
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    ran = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr
    (lines, slope, periods), record = EXAMPLE.fullmatch(ran.stdout).groups(), case("A_rimless_wheel")
    printed = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines.splitlines())
    # Fifteen digits are printed of state and period, thirteen of the multipliers.
    assert_allclose([float(printed[name]) for name in ("theta", "theta_rate")], record["x0"], rtol=1e-14)
    assert_allclose(float(printed["period"]), record["T"], rtol=1e-14)
    multipliers = [float(printed[f"multiplier {k}"]) for k in (1, 2)]
    assert_allclose(multipliers, record["eigenvalues"][::-1], rtol=1e-13, atol=1e-15)
    assert printed["stable"] == "yes" and printed["result"] == "successful"
    (digits,) = re.findall(r"jax\.grad\(period\).*# (-?[\d.]+?)\.\.\.", example)
    assert slope.startswith(digits) and len(digits) > 12
    assert_allclose(float(slope), record["dT_dalpha"], rtol=1e-13)
    exact = [wheel_closed_form(6, 2 / 3, each)[1] for each in np.linspace(0.15, 0.3, 7)]
    # Printed with eight decimals.
    assert_allclose(np.array(periods.split(), float), exact, rtol=0, atol=0.6e-8)


def test_names_of_the_library():
    named = set(re.findall(r"\bhj\.([a-z_.]*[a-z_]|[A-Z]\w*)", TEXT))
    assert len(named) > 12
    for path in named:
        found = hj
        for name in path.split("."):
            assert hasattr(found, name), path
            found = getattr(found, name)


def commands() -> list[str]:
    """Every command line of the program that is in the text: in a block of its own, or as code within a line."""
    spans = [
        re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
    ]
    lines = [part.strip() for block in blocks("sh") for line in block.splitlines() for part in line.split("&&")]
    return [each.removeprefix(".venv/bin/") for each in (*lines, *spans) if re.match(r"(\.venv/bin/)?hyjax ", each)]


@pytest.mark.parametrize("line", commands())
def test_commands_and_their_options(line):
    """Each command exists, with the options that the text gives it."""
    _, *words = shlex.split(line)
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        command = command.commands[words.pop(0)]  # pyright: ignore[reportAttributeAccessIssue]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_options_by_themselves():
    spans = set(re.findall(r"`(--[a-z-]+)`", TEXT))
    known, waiting = set(), [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        known |= {name for parameter in command.params for name in parameter.opts}
    assert {"--resume", "--json"} <= spans <= known


def test_what_a_change_must_pass_runs_the_test_command():
    (command,) = re.findall(r"&& (\S+python -m pytest.*)\n", "".join(blocks("sh")))
    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text()
