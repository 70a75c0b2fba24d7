"""The gallery: every model of the shelf has a picture and digits, which `test_gallery_digits` compares with references."""

import json

import numpy as np
import pytest
from readme import ROOT

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
