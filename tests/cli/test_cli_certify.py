"""The command `certify`: what it prints and refuses."""

import json

import numpy as np
import pytest


def test_bad_input_is_refused(command):
    for arguments, message in {
        ("--disturbance", "-1"): "bound=-1",
        ("--disturbance", "1e-5", "--norm", "1"): "norm='1'",
        ("--channel", "speed"): "--channel speed",
        ("--facets", "3"): "--facets",
        ("--rings", "40"): "--rings",
        ("--sectors", "0"): "--sectors",
        ("--radius", "-1"): "--radius",
        ("--radius", "nan"): "--radius",
        ("--basin", "3"): "--basin",
        ("--plot", "proof.xyz"): ".xyz",
    }.items():
        result = command("certify", "simplest_walker", *arguments)
        assert result.returncode == 2 and message in result.stderr, arguments


SINK = '''"""Two rates of decay, and a clock that ticks once in each second."""

import equinox as eqx
import jax
import jax.numpy as jnp

import hyjax as hj


class Params(eqx.Module):
    rate: jax.Array = hj.parameter(1.0, "1/s", "rate of decay")


def decay(t, x, p):
    return jnp.stack([-p.rate * x[0], -2 * x[1], jnp.ones_like(x[2])])


sink = hj.HybridSystem(
    {"m": hj.Mode(decay, ("x", "y", "clock"))},
    (hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0])),),
)
sequence = ("m",)


def region(params):
    return jnp.array([-1.0, -1.0, 0.0]), jnp.array([1.0, 1.0, 0.0])
'''


@pytest.mark.slow
def test_an_orbit_is_certified(command, tmp_path):
    """What is printed in words for the walker is held to docs/certificates.md in `test_attracting`."""
    (tmp_path / "sink.py").write_text(SINK)
    quick = "--facets", "8", "--rings", "1", "--steps", "8", "--orders", "8"
    result = command("certify", "sink.py:sink", "--disturbance", "1e-3", *quick, "--json", "--plot", "proof.png")
    assert result.returncode == 0, result.stderr
    proof = json.loads(result.stdout)
    assert proof["status"] == "proved" and not proof["converges"]
    assert (tmp_path / "proof.png").stat().st_size > 30_000
    wind = proof["disturbance"]
    assert wind["channels"] is None and wind["bound"] == 1e-3 and wind["norm"] == "2"
    # The image is in the set, and the tube about the orbit's states: seen from the center along any direction.
    center, corners, image = (np.array(proof[name]) for name in ("center", "vertices", "image"))
    directions = np.array(proof["axes"]).T
    assert np.all(np.max((image - center) @ directions, axis=0) < np.max((corners - center) @ directions, axis=0))
    (tube,) = proof["tubes"]
    assert tube["coordinates"] == ["x", "y", "clock"]
    assert np.all(np.array(tube["low"]) < np.array(tube["high"])) and len(tube["start_low"]) == 9
