"""The command `models`: list of the models, of one model's parameters, or of what a file of a robot has."""

import json
from types import ModuleType
from typing import Annotated

import typer

from .._results.table import Table
from .arguments import as_misuse, is_required, load, parameter_fields
from .process import start_jax
from .quantities import objective_names
from .robot_file import robot_and_contacts


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="list the parameters of this model, or of a file as wheel.py:system; what a robot's file has, as robot.xml",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
):
    """List all models, the parameters of one model, or the joints, bodies, sites and actuators of a robot's MJCF or URDF file."""
    from ..models import names

    start_jax()
    if name is not None and (robot := robot_and_contacts(name)) and not robot[1]:
        _robot(name, as_json)
        return
    if as_json:
        chosen = {each: load(each) for each in names} if name is None else {name: load(name)}
        print(json.dumps({each: _record(model) for each, model in chosen.items()}))
        return
    if name is None:
        rows = [(each, model.title, model.source) for each, model in ((each, load(each)) for each in names)]
        print(Table("", rows, ("model", "", "source")).text())
        return
    model = load(name)
    rows = []
    for field in parameter_fields(model):
        value, about = "" if is_required(field) else f"{field.default:.10g}", field.metadata
        rows.append((field.name, value, about.get("unit", ""), about.get("meaning", "")))
    states = ", ".join(f"{state} ({unit})" for state, unit in zip(model.coordinates, model.units, strict=True))
    notes = [f"state: {states}; time ({model.time_unit})"]
    if objectives := objective_names(model):
        notes.append(f"objectives: {', '.join(objectives)}")
    print(f"{model.title}. {model.source}")
    print(Table("", rows, ("parameter", "default", "unit", "meaning"), notes=notes).text())


def _robot(path: str, as_json: bool) -> None:
    """What hyjax reads from a robot's file, link by link."""
    from ..robots import from_mujoco

    with as_misuse():
        robot = from_mujoco(path)
    if as_json:
        planes = [plane for plane, on in robot.geoms if on < 0]
        gravity = [float(each) for each in robot.params.gravity]
        print(json.dumps({"links": robot.links, "planes": planes, "gravity": gravity}))
        return
    print(robot)


def _record(model: ModuleType) -> dict:
    """The JSON record of a model."""
    return {
        "title": model.title,
        "source": model.source,
        "parameters": [
            {"name": field.name, "default": None if is_required(field) else field.default}
            | {key: field.metadata.get(key, "") for key in ("unit", "meaning")}
            for field in parameter_fields(model)
        ],
        "coordinates": [
            {"name": each, "unit": unit} for each, unit in zip(model.coordinates, model.units, strict=True)
        ],
        "time_unit": model.time_unit,
        "modes": list(model.system.modes),
        "sequence": list(getattr(model, "sequence", ())),
        "objectives": objective_names(model),
    }
