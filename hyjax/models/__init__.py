"""A shelf of models: each file a chapter with equations, `Params`, `system`, `sequence`, `guess`, `region`, `outline`.

`names` lists them; `load(name)` imports one, or says which there are.
"""

import importlib
from types import ModuleType

names = (
    "bouncing_ball",
    "rimless_wheel",
    "simplest_walker",
    "compass_gait",
    "slip",
    "vibrating_table",
    "impact_oscillator",
    "stick_slip",
    "paddle_juggler",
    "buck_converter",
    "integrate_and_fire",
    "ball_on_slope",
    "rocking_block",
    "piecewise",
    "impact",
    "bangbang",
    "stickslip",
)


def load(name: str) -> ModuleType:
    """The module of a model; `ValueError` with the names there are."""
    if name not in names:
        raise ValueError(f"There is no model {name!r}. The models are: {', '.join(names)}.")
    return importlib.import_module(f"{__name__}.{name}")
