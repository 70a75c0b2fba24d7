"""The gallery: every model of the shelf has a picture and digits, which `test_gallery_digits` compares with references."""

import json
import re

import numpy as np
import pytest
from readme import ROOT

from hyjax import models
from hyjax.plot import GaitMap

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


@pytest.mark.parametrize("name", [path.stem.removesuffix("_gaits") for path in sorted(FOLDER.glob("*_gaits.json"))])
def test_a_gait_map(name):
    """A page of at most 250 kB that needs no other file, whose gaits have names and forces."""
    path = FOLDER / f"{name}_gaits.json"
    page = GaitMap(json.loads(path.read_text(encoding="utf-8"))).page
    assert path.stat().st_size <= 250_000 and models.load(name).title in page
    assert not any(part in page for part in ("http:", "https:", " src=", " href="))
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    for gait in json.loads(found[1])["gaits"]:
        assert re.match("walk|run|hop|skip|pronk|bound|half-bound|gallop", gait["said"][0]) and len(
            gait["forces"]
        ) == len(gait["legs"])


def test_no_card_without_a_model():
    assert set(DIGITS) == set(models.names)
