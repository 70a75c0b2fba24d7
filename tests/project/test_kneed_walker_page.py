"""The page that defines the kneed walker anew: short, and not by means of the library's model."""

import re

from readme import ROOT


def test_definition_is_short():
    page = (ROOT / "docs" / "theory" / "kneed_walker.md").read_text()
    definition, gait, *_ = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", page, re.DOTALL)
    lines = [line for line in (definition + gait).splitlines() if line.strip()]
    assert "HybridSystem(" in definition and "periodic_orbit(" in gait
    assert len(lines) < 60 and "models" not in definition + gait
