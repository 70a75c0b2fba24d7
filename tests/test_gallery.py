"""The gallery: every model of the shelf has a picture and digits, and the digits are those of the references."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from readme import ROOT
from reference import case

from hyjax import models

FOLDER = ROOT / "docs" / "gallery"
DIGITS = json.loads((FOLDER / "digits.json").read_text())


@pytest.mark.parametrize("name", models.names)
def test_a_card(name):
    """One picture, of at most 150 kB; digits of every coordinate; a command that names the model and the picture."""
    model, about = models.load(name), DIGITS[name]
    (picture,) = (path for path in FOLDER.glob(f"{name}.*") if path.suffix in (".gif", ".png"))
    assert 5_000 < picture.stat().st_size <= 150_000
    assert about["command"].split()[2] == name and about["command"].endswith(picture.name)
    if "gaits" in about:
        for gait in about["gaits"]:
            assert len(gait["x0"]) == len(model.coordinates) and gait["period"] > 0
            radius = max(abs(complex(*each)) for each in gait["multipliers"])
            assert gait["stable"] == (radius < 1)
    else:
        assert len(about["end"]["x"]) == len(about["end"]["coordinates"]) and np.all(np.isfinite(about["end"]["x"]))


def test_no_card_without_a_model():
    assert set(DIGITS) == set(models.names)


def test_digits_of_the_simplest_walker():
    """Both gaits against 50-digit references: 1e-12 is rounding times the sensitivity of the orbit."""
    for gait, name in zip(DIGITS["simplest_walker"]["gaits"], ("long_0.009", "short_0.009"), strict=True):
        record = case("B_simplest_walker", name)
        assert_allclose(gait["x0"], np.array(record["x0"], float), rtol=0, atol=1e-12)


def test_digits_of_the_rimless_wheel():
    """Multiplier cos^2(2 pi / n) as a collision leaves of the speed's square, with inertia: mu^2."""
    params = models.rimless_wheel.Params()
    mu = 1 + params.inertia_ratio * (jnp.cos(2 * jnp.pi / params.spokes) - 1)
    (gait,) = DIGITS["rimless_wheel"]["gaits"]
    assert_allclose(gait["multipliers"][0], [float(mu**2), 0], rtol=0, atol=1e-13)


def test_digits_of_the_paddle_juggler():
    """Period 2 sqrt(2 h / g) and multiplier 1 - 2 (1 + e) K g h, closed forms of the model's page."""
    p = models.paddle_juggler.Params()
    (gait,) = DIGITS["paddle_juggler"]["gaits"]
    assert_allclose(gait["period"], 2 * np.sqrt(2 * p.apex / p.gravity), rtol=1e-13)
    multiplier = 1 - 2 * (1 + p.restitution) * p.gain * p.gravity * p.apex
    assert_allclose(max(gait["multipliers"], key=lambda each: abs(complex(*each)))[0], multiplier, rtol=1e-11)
