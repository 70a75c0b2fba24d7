"""The impact oscillator and SLIP to the last digits, and what orbits do when parameters move.

`model_reference.json`: Taylor series with 50 digits, by `make_model_reference.py`; 30 digits, derivatives 20.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import numbers

import hyjax as hj
from hyjax.models import buck_converter, duffing_impact_oscillator, slip

pytestmark = pytest.mark.slow

REFERENCE = json.loads((pathlib.Path(__file__).parent / "model_reference.json").read_text())


def found(model, params):
    return hj.find_orbits(model.system, params, sequence=model.sequence, region=model.region(params))


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


def test_slip_by_another_route():
    """Parameters drawn at random; digits of `mpmath.odefun` at 32 digits, with the stance in polar coordinates about the
    foot, Newton's method on the apex map and its slope by central differences of 1e-10 (error 1e-20)."""
    params = slip.Params(stiffness=42.58, attack_angle=1.226, energy=2.669)
    orbit = hj.periodic_orbit(slip.system, jnp.array([1.34, 0.0]), params, sequence=slip.sequence)
    # As in `test_slip`: 1e-14 over 1 - multiplier, which is 1/3.
    assert_allclose(orbit.x, [1.343580192359923750368, 0], rtol=0, atol=1e-13)
    assert_allclose(orbit.period, 2.230735399850261232254, rtol=2e-13)
    assert_allclose(orbit.multipliers, [1.3358842654552934022, 0], rtol=1e-12)


def test_impact_oscillator_by_another_route():
    """Parameters drawn at random; digits of `mpmath.odefun` at 32 digits, Newton's method on the stroboscopic map and its
    Jacobian by central differences of 1e-10, without variations or saltation matrix: its determinant is
    e^2 exp(-2 zeta T) to 6e-23."""
    params = duffing_impact_oscillator.Params(
        damping=0.157, cubic=0.263, force=1.196, frequency=1.643, wall=0.482, wall_amplitude=0.044, restitution=0.847
    )
    guess = jnp.array([-0.15, 1.85])
    orbit = hj.periodic_orbit(
        duffing_impact_oscillator.system, guess, params, sequence=duffing_impact_oscillator.sequence
    )
    # As in `test_impact_oscillator`.
    assert_allclose(orbit.x, [-0.1520825840064322229963, 1.846218717477869904067], rtol=0, atol=2e-13)
    assert_allclose(orbit.period, 2 * np.pi / 1.643, rtol=1e-15)
    multiplier = -0.16150445567414757405 + 0.43568588954741576527j
    assert_allclose(orbit.multipliers, [multiplier, multiplier.conjugate()], rtol=0, atol=1e-12)


def in_parameters(model, params):
    """Numbers of the orbit from the model's guess, and their derivatives in every parameter: one program."""
    guess = model.guess(params)

    def values(params):
        orbit = hj.periodic_orbit(model.system, guess, params, sequence=model.sequence, throw=False)
        out = {"x0": orbit.x, "period": orbit.period, "trace": jnp.sum(orbit.multipliers).real}
        return out | {"determinant": jnp.prod(orbit.multipliers).real, "largest": orbit.multipliers[0].real}, out

    slopes, out = jax.jit(jax.jacfwd(values, has_aux=True))(params)
    return out, slopes


def test_runner_in_its_parameters():
    record = REFERENCE["slip"]["flat and high"]
    exact = numbers(record["orbits"][1])
    out, slopes = in_parameters(slip, slip.Params(**record["params"]))
    assert_allclose(out["x0"], exact["x0"], rtol=0, atol=1e-13)
    for name, by in exact["slopes"].items():
        # Derivatives up to some hundreds; the multiplier's is a second derivative over 1 - multiplier.
        for key, expected in (("x0", by["x0"]), ("period", by["period"]), ("largest", by["multiplier"])):
            assert_allclose(getattr(slopes[key], name), expected, rtol=1e-10, atol=1e-10, err_msg=f"{key} by {name}")


def test_guess_leads_to_an_orbit_of_the_search():
    params = buck_converter.Params()
    orbit = hj.periodic_orbit(
        buck_converter.system, buck_converter.guess(params), params, sequence=buck_converter.sequence
    )
    distance = jnp.abs(found(buck_converter, params).x - orbit.x).max(axis=-1)
    # Two summations of the solver's stages: some units in the last place of numbers up to 12.
    assert distance.min() < 1e-13
