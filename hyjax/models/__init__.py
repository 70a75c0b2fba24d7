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
    "duffing_impact_oscillator",
    "friction_oscillator",
    "paddle_juggler",
    "buck_converter",
    "integrate_and_fire",
    "ball_on_slope",
    "rocking_block",
    "piecewise",
    "linear_impact_oscillator",
    "bangbang",
    "impact_microactuator",
)

# Former names, which go on working: each is a module of one line.
FORMER = {
    "stick_slip": "friction_oscillator",
    "stickslip": "impact_microactuator",
    "impact": "linear_impact_oscillator",
    "impact_oscillator": "duffing_impact_oscillator",
}


def load(name: str) -> ModuleType:
    """The module of a model, also by a former name; `ValueError` with the names there are."""
    name = FORMER.get(name, name)
    if name not in names:
        raise ValueError(f"There is no model {name!r}. The models are: {', '.join(names)}.")
    return importlib.import_module(f"{__name__}.{name}")
