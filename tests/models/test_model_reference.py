"""The impact oscillator and SLIP to the last digits.

`model_reference.json`: Taylor series with 50 digits, by `make_model_reference.py`; 30 digits, derivatives 20.
"""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import numbers
from systems import ROLLED

import hyjax as hj
from hyjax.models import duffing_impact_oscillator, slip

pytestmark = pytest.mark.slow

REFERENCE = json.loads((pathlib.Path(__file__).parents[1] / "model_reference.json").read_text())


def found(model, params):
    # Stages of a step as a loop: compilation is what takes time here.
    region = model.region(params)
    return hj.find_orbits(hj.ReturnMap(model.system, sequence=model.sequence, integrator=ROLLED), params, region=region)


@pytest.mark.parametrize("name", REFERENCE["duffing_impact_oscillator"])
def test_impact_oscillator(name):
    """Every orbit with one impact a period, and no other: a grid over impact phase and speed has no more."""
    record = REFERENCE["duffing_impact_oscillator"][name]
    params = duffing_impact_oscillator.Params(**record["params"])
    orbits = found(duffing_impact_oscillator, params)
    assert len(orbits) == len(record["orbits"])
    for exact in map(numbers, record["orbits"]):
        orbit = orbits[int(np.argmin(np.abs(np.asarray(orbits.x) - exact["x0"]).max(axis=-1)))]
        # Three arcs at 1e-14; the weakest impact, of speed 0.2, makes 1e-14 in x a change of 1e-13 in the impact's time.
        assert_allclose(orbit.x, exact["x0"], rtol=0, atol=2e-13)
        assert_allclose(orbit.period, exact["period"], rtol=1e-15)
        multipliers = np.asarray(orbit.multipliers)
        pairs = np.stack([multipliers.real, multipliers.imag], axis=1)
        exact_pairs = sorted(exact["multipliers"].tolist(), key=lambda m: (-round(np.hypot(*m), 9), -m[1]))
        assert_allclose(pairs, exact_pairs, rtol=0, atol=2e-12)
        # Damping and impact alone fix the determinant.
        e, zeta = record["params"]["restitution"], record["params"]["damping"]
        product = np.prod(multipliers).real
        assert_allclose(product, e**2 * np.exp(-2 * zeta * exact["period"]), rtol=1e-12)
        assert_allclose(np.diag(orbit.return_jacobian), exact["diagonal"], rtol=0, atol=2e-12)


def test_saltation_matrix_of_a_moving_wall():
    """Its terms in time: D_t g = w', D_t R = (0, (1 + e) w'')."""
    p = REFERENCE["duffing_impact_oscillator"]["driven, moving wall"]["params"]
    params, t = duffing_impact_oscillator.Params(**p), jnp.array(0.37)
    omega, e = p["frequency"], p["restitution"]
    place = p["wall"] + p["wall_amplitude"] * np.sin(omega * t)
    rate = p["wall_amplitude"] * omega * np.cos(omega * t)
    curve = -p["wall_amplitude"] * omega**2 * np.sin(omega * t)
    v = 2.3
    after = -e * v + (1 + e) * rate
    accel = lambda v: -2 * p["damping"] * v - place - p["cubic"] * place**3 + p["force"] * np.cos(omega * t)
    slip_rate = np.array([after - v, accel(after) + e * accel(v) - (1 + e) * curve])
    expected = np.diag([1.0, -e]) + np.outer(slip_rate, [-1, 0]) / (rate - v)
    got = hj.saltation_matrix(duffing_impact_oscillator.system, 0, t, jnp.array([place, v]), params)
    assert_allclose(got, expected, rtol=1e-14, atol=1e-15)
    # In the wall's frame the speed is multiplied by -e, and so is the variation of the place, whatever the wall does.
    assert_allclose(np.linalg.det(got), e**2, rtol=1e-14)


@pytest.mark.parametrize("name", REFERENCE["slip"])
def test_slip(name):
    """Every fixed point of the apex map, and no other: a scan of the map changes sign nowhere else."""
    record = REFERENCE["slip"][name]
    orbits = found(slip, slip.Params(**record["params"]))
    assert len(orbits) == len(record["orbits"])
    for exact in map(numbers, record["orbits"]):
        orbit = orbits[int(np.argmin(np.abs(np.asarray(orbits.x[:, 0]) - exact["x0"][0])))]
        # An error of the apex is that of the step, 1e-14, over 1 - multiplier, which is no less than 0.3.
        assert_allclose(orbit.x, exact["x0"], rtol=0, atol=1e-13)
        assert orbit.x[1] == 0
        assert_allclose(orbit.period, exact["period"], rtol=2e-13)
        assert_allclose(orbit.multipliers[0], exact["multiplier"], rtol=2e-12)
        assert orbit.multipliers[1] == 0
