"""README.md: its example and its commands run and print its digits, and its names, links and size are as they should be."""

import json
import os
import re
import subprocess
import sys

import jax
import pytest
from numpy.testing import assert_allclose
from readme import accuracy, blocks, claims, ROOT, TEXT
from reference import case

import hyjax as hj


def test_every_row_of_the_table_is_a_tolerance_of_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert set(re.findall(r'claimed\("(.+?)"\)', tests)) == set(accuracy())
    # No row has escaped the pattern: a head, a rule, and the rows.
    assert len(re.findall(r"^\|", claims(), re.MULTILINE)) == 2 + len(accuracy())


def test_it_is_read_in_a_minute():
    assert len(TEXT.split()) <= 700 and len(TEXT.splitlines()) <= 90
    lead = "A walker's foot strikes the ground, a ball bounces, a neuron fires, a valve closes:"
    assert TEXT.startswith(f"# hyjax\n\n{lead}") and lead in (ROOT / "docs" / "index.md").read_text()
    (example,) = blocks("python")
    assert len([line for line in example.splitlines() if line.strip()]) == 15


# What the example prints: an orbit's table and a derivative.
PRINTED = re.compile(r"PeriodicOrbit\n((?:  .*\n)+)(\S+)\n", re.DOTALL)


def test_example():
    """As it stands, in a process of its own: what it prints are the digits of the closed form."""
    (example,) = blocks("python")
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    ran = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr
    (lines, slope), record = PRINTED.fullmatch(ran.stdout).groups(), case("A_rimless_wheel")
    printed = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in lines.splitlines())
    # Fifteen digits are printed of state and period, thirteen of the multipliers.
    assert_allclose([float(printed[name]) for name in ("theta", "theta_rate")], record["x0"], rtol=1e-14)
    assert_allclose(float(printed["period"]), record["T"], rtol=1e-14)
    multipliers = [float(printed[f"multiplier {k}"]) for k in (1, 2)]
    assert_allclose(multipliers, record["eigenvalues"][::-1], rtol=1e-13, atol=1e-15)
    assert printed["stable"] == "yes" and printed["result"] == "successful"
    (digits,) = re.findall(r"jax\.grad\(.*# (-?[\d.]+?)\.\.\.", example)
    assert slope.startswith(digits) and len(digits) > 12
    assert_allclose(float(slope), record["dT_dalpha"], rtol=1e-13)


# The command lines of hyjax, each without the folder of the environment.
COMMANDS = [
    part.strip().removeprefix(".venv/bin/").split()[1:]
    for block in blocks("sh")
    for part in block.replace("\n", " && ").split("&&")
    if part.strip().startswith(".venv/bin/hyjax ")
]
# Of each the state of the reference and its name there; of the walker the stable gait comes first.
GAITS = {"simplest_walker": ("B_simplest_walker", "long_0.009"), "wheel.py": ("A_rimless_wheel",)}


@pytest.mark.medium
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands(command, tmp_path, words):
    """As they stand, with the example copied to the file that the text names; the digits are those of the reference."""
    assert "`wheel.py`" in TEXT
    (tmp_path / "wheel.py").write_text(blocks("python")[0])
    ran = command(*words)
    assert ran.returncode == 0, ran.stderr
    record = case(*GAITS[words[1]])
    (period,) = re.findall(r"^ *period\b\D*([\d.]+)", ran.stdout, re.MULTILINE)
    assert_allclose(float(period), record["T"], rtol=0, atol=1e-12)
    orbits = json.loads(command(*words, "--json").stdout)["orbits"]
    assert_allclose(orbits[0]["x0"], record["x0"], rtol=0, atol=2e-14)


def test_that_the_commands_are_found():
    assert COMMANDS == [["gait", "simplest_walker"], ["gait", "wheel.py"]]


def test_names_of_the_library():
    named = set(re.findall(r"\bhj\.([a-z_.]*[a-z_]|[A-Z]\w*)", TEXT))
    assert len(named) > 4
    for path in named:
        found = hj
        for name in path.split("."):
            assert hasattr(found, name), path
            found = getattr(found, name)


def test_links_lead_to_files():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in link]
    assert len(links) > 10 and not [link for link in links if not (ROOT / link).exists()]


def test_what_a_change_must_pass_runs_the_test_command():
    (test,) = re.findall(r"&& (\S+python -m pytest.*)\n", "".join(blocks("sh")))
    assert f"\n{test}\n" in (ROOT / ".ci" / "run").read_text()
