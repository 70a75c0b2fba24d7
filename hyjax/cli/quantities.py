"""Numbers of a gait by name: objectives and constraints of `optimize`, prescribed quantities of `sweep`; and the bounds."""

import re
from dataclasses import fields
from types import ModuleType
from typing import TYPE_CHECKING

from .arguments import (
    as_misuse,
    check_ends,
    check_parameter,
    Misuse,
    parse_finite,
    resembling,
    short_name,
    unit_of_parameter,
)

if TYPE_CHECKING:
    from .._optimize.constraint import Constraint, Objective

# The relation of a constraint, and its argument of `Constraint`.
RELATIONS = {"=": "equals", ">=": "at_least", "<=": "at_most"}

# The numbers of a gait of a model that has a `power`, beside the model's own objectives.
DRIVEN = ("positive_work", "negative_work", "mechanical_cost_of_transport")


# A number of a gait, and its unit; the unit is empty where the model does not state it.
Quantity = tuple["Objective", str]


def quantities(model: ModuleType) -> dict[str, Quantity]:
    """The numbers of a gait of a model, by name: those of every gait, those of a gait that moves, that of a gait on a slope,
    those of a gait that is driven, and the model's objectives."""
    from .._optimize import objectives

    found = {
        "period": (objectives.period, model.time_unit),
        "spectral_radius": (objectives.spectral_radius, "1"),
        "contraction": (objectives.contraction(), "1"),
    }
    if hasattr(model, "travel"):
        found["speed"] = objectives.speed(model.travel), ""
        found["step_length"] = objectives.step_length(model.travel), ""
    elif any("x_rate" in mode.coordinates for mode in model.system.modes.values()):
        found["speed"] = objectives.speed(), ""
    if any(field.name == "slope" for field in fields(model.Params)):
        found["slope_sensitivity"] = objectives.sensitivity(lambda p: p.slope), f"{model.time_unit}/rad"
    if hasattr(model, "power"):
        cost = objectives.cost_of_transport(model.power, model.travel, model.weight, impulsive=model.impulsive_work)
        works = objectives.positive_work(model.power), objectives.negative_work(model.power)
        found |= zip(DRIVEN, zip((*works, cost), ("", "", "1"), strict=True), strict=True)
    return found | {name: (function, "") for name, function in getattr(model, "objectives", {}).items()}


def objective_names(model: ModuleType) -> list[str]:
    """The names of the numbers that not every gait has."""
    return [*getattr(model, "objectives", {}), *(DRIVEN if hasattr(model, "power") else ())]


def quantity(model: ModuleType, name: str, option: str) -> Quantity:
    """The number of that name; `Misuse` that lists the names otherwise."""
    known = quantities(model)
    if name not in known:
        raise Misuse(
            f"{option}: {short_name(model)} has no quantity {name!r}.{resembling(name, tuple(known))} The quantities are: "
            f"{', '.join(known)}."
        )
    return known[name]


def parse_constraints(model: ModuleType, texts: list[str] | None) -> "list[Constraint]":
    """The constraints given as `name=value`, `name>=value` or `name<=value`; two limits of a name are one constraint."""
    from .._optimize.constraint import Constraint

    limits: dict[str, dict[str, float]] = {}
    for text in texts or []:
        found = re.fullmatch(r"\s*([^<>=]*?)\s*(<=|>=|=)([^<>=]*)", text)
        if found is None:
            raise Misuse(f"--subject-to: {text!r} is not name=value, name>=value or name<=value, such as period>=2.")
        name, relation, value = found.groups()
        _, unit = quantity(model, name, "--subject-to")
        mine = limits.setdefault(name, {})
        if RELATIONS[relation] in mine:
            raise Misuse(f"--subject-to: {name}{relation} is given twice. Give it once.")
        mine[RELATIONS[relation]] = parse_finite(value, f"--subject-to {name}", unit)
    with as_misuse():
        return [
            Constraint(quantity(model, name, "--subject-to")[0], name=name, **mine) for name, mine in limits.items()
        ]


def parse_prescribed(model: ModuleType, texts: list[str] | None, solve: str | None, where: list[str]):
    """The arguments `prescribed` and `solve` of a sweep: `{name: (function, values)}`, and the lens of the parameters.

    **Arguments:** `texts`: each `name=low:high:count` or `name=value`. `solve`: names of parameters, as `push_off,stiffness`.
    `where`: the texts of `--where`, whose parameters cannot be solved for. Two times `None` without `texts`.
    """
    from .._sweep.grid import TAKEN
    from .options import parse_axes

    if not texts:
        if solve is not None:
            raise Misuse("--solve: give also --prescribe, the quantities to solve for, such as period=2.")
        return None, None
    if solve is None:
        raise Misuse("--prescribe: give also --solve, as many parameters as quantities, as push_off,stiffness.")
    axes = parse_axes(texts, "--prescribe", lambda name: quantity(model, name, "--prescribe")[1])
    names = tuple(each.strip() for each in solve.split(","))
    for each in names:
        check_parameter(model, each, "--solve", levels=True)
    if len({*names}) < len(names):
        raise Misuse(f"--solve: {solve!r} names a parameter twice. Name each once.")
    if len(names) != len(axes):
        raise Misuse(
            f"--solve: {len(names)} parameter{'s' * (len(names) > 1)} ({', '.join(names)}) for {len(axes)} prescribed "
            f"quantit{'ies' if len(axes) > 1 else 'y'} ({', '.join(axes)}). Give as many parameters as quantities."
        )
    if both := {text.partition("=")[0] for text in where} & {*names}:
        raise Misuse(f"--solve: {', '.join(sorted(both))} is varied by --where. Vary a parameter, or solve for it.")
    label = lambda name: f"prescribed_{name}" if name in TAKEN else name
    prescribed = {label(name): (quantity(model, name, "--prescribe")[0], values) for name, values in axes.items()}
    return prescribed, lambda params: tuple(getattr(params, name) for name in names)


def parse_bounds(model: ModuleType, texts: list[str], values: dict[str, float]) -> dict[str, tuple[float, float]]:
    """The bounds of the parameters that vary, each given as `name=low:high`.

    **Arguments:** `values`: of all parameters by name. `Misuse` for bounds that the model's `Params` refuses with the others.
    """
    bounds: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, equals, span = text.partition("=")
        ends = span.split(":")
        if not equals or len(ends) != 2:
            raise Misuse(f"--over: {text!r} is not name=low:high, such as {next(iter(values))}=0.1:0.2.")
        check_parameter(model, name, "--over", levels=True)
        if name in bounds:
            raise Misuse(f"--over: {name} is given twice. Give each parameter once.")
        low, high = (parse_finite(end, f"--over {name}", unit_of_parameter(model, name)) for end in ends)
        if not low < high:
            raise Misuse(f"--over: {text!r} must have its low below its high.")
        bounds[name] = low, high
    for name, ends in bounds.items():
        check_ends(model, values, name, ends, f"--over {name}: its bound")
    return bounds
