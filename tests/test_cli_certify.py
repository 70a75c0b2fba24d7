"""The command `certify`: what it prints and refuses."""

import json
import re

import numpy as np
import pytest
from readme import TEXT


def test_bad_input_is_refused(command):
    for arguments, message in {
        ("--disturbance", "-1"): "bound=-1",
        ("--disturbance", "1e-5", "--norm", "1"): "norm='1'",
        ("--channel", "speed"): "--channel speed",
        ("--facets", "3"): "--facets",
        ("--basin", "3"): "--basin",
        ("--plot", "proof.xyz"): ".xyz",
    }.items():
        result = command("certify", "simplest_walker", *arguments)
        assert result.returncode == 2 and message in result.stderr, arguments


@pytest.mark.slow
def test_the_walker_is_certified(command, tmp_path):
    picture = tmp_path / "proof.png"
    result = command("certify", "simplest_walker", "--disturbance", "1e-4", "--json", "--plot", str(picture))
    proof = json.loads(result.stdout)
    assert result.returncode == 0 and proof["status"] == "proved" and not proof["converges"]
    assert picture.stat().st_size > 30_000
    # As printed in README.md, but for the seconds.
    (printed,) = re.findall(r"```\n(Certificate:.*?)```", TEXT, re.DOTALL)
    lines = dict(re.findall(r"^  (\w[\w-]*) +(.*(?:\n   .*)*)", printed, re.MULTILINE))
    assert lines["ratio"].startswith(f"{proof['ratio']:.4f}")
    wind = proof["disturbance"]
    assert wind["channels"] is None
    assert lines["disturbance"] == f"|w| <= {wind['bound']:g} in all rates, {wind['norm']}-norm"
    assert lines["pieces"] == f"{proof['pieces']}, sets {proof['sets']}"
    widths = zip(proof["coordinates"], proof["half_widths"], strict=True)
    assert lines["half-widths"] == ", ".join(f"{name} {half:.3g}" for name, half in widths)
    assert re.split(r"\n +", lines["assumptions"]) == proof["assumptions"]
    # The image is in the set, and the tube about the orbit's states: seen from the center along any direction.
    center, corners, image = (np.array(proof[name]) for name in ("center", "vertices", "image"))
    directions = np.array(proof["axes"]).T
    assert np.all(np.max((image - center) @ directions, axis=0) < np.max((corners - center) @ directions, axis=0))
    (tube,) = proof["tubes"]
    assert tube["coordinates"] == ["theta", "theta_rate", "phi", "phi_rate"]
    assert np.all(np.array(tube["low"]) < np.array(tube["high"])) and len(tube["start_low"]) == 33
