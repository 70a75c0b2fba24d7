"""Models from the literature: each file holds equations, `Params`, `system`, its return map `step`, `guess`, `region` and
`outline`.

Some have `objectives`, a dictionary of functions `(orbit, params) -> number`, for `hyjax.optimize`. Some have, for
`hyjax.objectives.cost_of_transport`: `power`, that of the motors, `(t, x, params) -> number` or a mapping from modes;
`weight(params)`; and `impulsive_work(orbit, params)`, of the push-offs.

`names` lists the models; `load(name)` imports one, and so does the attribute `hyjax.models.NAME`.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._system.system import HybridSystem

names = (
    "bouncing_ball", "rimless_wheel", "simplest_walker", "powered_walker", "two_spring_walker", "compass_gait",
    "powered_compass_gait", "bhounsule_walker", "kneed_walker", "rabbit", "slip", "slip_retraction",
    "monopod_hopper", "thrusting_hopper", "vibrating_table", "duffing_impact_oscillator", "friction_oscillator", "paddle_juggler",
    "buck_converter", "integrate_and_fire", "ball_on_slope", "rocking_block", "piecewise", "linear_impact_oscillator",
    "bangbang", "impact_microactuator", "relief_valve", "pulse_coupled_neurons", "hard_disks", "newtons_cradle",
    "boost_converter", "relay_feedback", "biped_slip", "quadruped_slip", "geyer_walker", "jerboa",
)  # fmt: skip


def load(name: str) -> ModuleType:
    """The module of a model, by its name.

    **Arguments:** `name`: one of `hyjax.models.names`. **Returns:** the module, with `system`, `Params`, `guess`, ...
    `ValueError` that lists the names for any other.

    **Example:**

    >>> walker = hj.models.load("simplest_walker")
    >>> walker.title, walker.step.sequence
    ('Simplest walker', ('swing',))
    """
    if name not in names:
        raise ValueError(f"There is no model {name!r}. The models are: {', '.join(names)}.")
    return importlib.import_module(f"{__name__}.{name}")


def orbit_systems(name: str) -> dict[str, "HybridSystem"]:
    """The systems that results of a model may have, by their kind: its own, `""`; and those that are made for orbits of its map
    `step`: of its section, `"orbits"`; of a family, whose quantity is not known; and on a `"level"` of what is `conserved`."""
    from .._orbit.level import of_own_params, on_level
    from .._orbit.section_search import on_section

    model = load(name)
    systems, step = {"": model.system}, getattr(model, "step", None)
    if step is None:
        return systems
    on = lambda system, section: system if section is None else on_section(system, section)[0]
    systems["orbits"] = on(step.system, step.section)
    systems["family"] = of_own_params(systems["orbits"])
    if hasattr(model, "conserved"):
        systems["level"] = on(*on_level(step.system, step.sequence, step.section, model.conserved))
    return systems


def __getattr__(name: str) -> ModuleType:
    if name not in names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
