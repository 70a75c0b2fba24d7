"""The shelf of models: what each states about itself fits together, and what it refuses."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from hyjax import models


@pytest.mark.parametrize("name", models.names)
def test_what_a_model_states_about_itself(name):
    model = models.load(name)
    params = model.Params()
    mode, x = model.start(params)
    first = model.system.modes[model.sequence[0] if model.sequence else mode]
    assert model.coordinates == first.coordinates and len(model.units) == first.dimension
    assert x.shape == (model.system.modes[mode].dimension,) and np.all(np.isfinite(x))
    # A way out of the mode lies ahead: a guard that was below zero would never fall. After a jump it is zero.
    ahead = [model.system.transitions[i].guard(jnp.zeros(()), x, params) for i in model.system.leaving(mode)]
    assert max(map(jnp.max, ahead)) > -1e-15
    if model.sequence:
        low, high = model.region(params)
        guess = model.guess(params)
        assert low.shape == high.shape == guess.shape == (first.dimension,)
        assert np.all(np.asarray(low) <= guess) and np.all(guess <= np.asarray(high))
    # A year at least.
    assert model.title[0].isupper() and re.search(r"\((19|20)\d\d\)", model.source)


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("slip", {"energy": 0.9}, "energy=0.9"),
        ("slip", {"attack_angle": 1.6}, "attack_angle=1.6"),
        ("slip", {"stiffness": 0.0}, "stiffness=0.0"),
        ("vibrating_table", {"restitution": 1.2}, "restitution=1.2"),
        ("vibrating_table", {"amplitude": -0.1}, "amplitude=-0.1"),
        ("duffing_impact_oscillator", {"frequency": 0.0}, "frequency=0.0"),
        ("duffing_impact_oscillator", {"damping": -0.1}, "damping=-0.1"),
        ("friction_oscillator", {"static_friction": 0.2}, "static_friction=0.2"),
        ("friction_oscillator", {"belt_speed": 0.0}, "belt_speed=0.0"),
        ("paddle_juggler", {"apex": -1.0}, "apex=-1.0"),
        ("buck_converter", {"inductance": 0.0}, "inductance=0.0"),
        ("buck_converter", {"ramp_high": 3.0}, "ramp_high=3.0"),
        ("integrate_and_fire", {"drive": 0.5}, "drive=0.5"),
        ("integrate_and_fire", {"coupling": 1.5}, "coupling=1.5"),
    ],
)
def test_parameters_out_of_range(name, values, message):
    with pytest.raises(ValueError, match=message):
        models.load(name).Params(**values)
