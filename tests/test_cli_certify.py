"""The command `certify`: what it prints and refuses."""

import json
import os
import subprocess
import sys

import jax
import pytest


def run_command(*arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"HYJAX_CACHE_DIR": str(jax.config.jax_compilation_cache_dir), "COLUMNS": "120"}
    return subprocess.run([sys.executable, "-m", "hyjax", *arguments], capture_output=True, text=True, env=environment)


def test_bad_input_is_refused():
    for arguments, message in {
        ("--disturbance", "-1"): "bound=-1",
        ("--disturbance", "1e-5", "--norm", "1"): "norm='1'",
        ("--channel", "speed"): "--channel speed",
        ("--facets", "3"): "--facets",
    }.items():
        result = run_command("certify", "simplest_walker", *arguments)
        assert result.returncode == 2 and message in result.stderr, arguments


@pytest.mark.exhaustive
def test_the_walker_is_certified():
    result = run_command("certify", "simplest_walker", "--radius", "0.004", "--json")
    proof = json.loads(result.stdout)
    assert result.returncode == 0 and proof["status"] == "proved" and proof["converges"]
    # As printed in README.md.
    assert round(proof["ratio"], 3) == 0.695 and proof["pieces"] == 32
