"""The command `models`: list of the models, or of one model's parameters."""

import json
from types import ModuleType
from typing import Annotated

import typer

from .arguments import is_required, load, parameter_fields
from .quantities import objective_names


def models(
    name: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="list the parameters of this model, or of a file as wheel.py:system"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
):
    """List all models, or the parameters of one model."""
    from rich.console import Console
    from rich.table import Table

    from ..models import names

    if as_json:
        chosen = {each: load(each) for each in names} if name is None else {name: load(name)}
        print(json.dumps({each: _record(model) for each, model in chosen.items()}))
        return
    console = Console(width=max(Console().width, 100))
    if name is None:
        table = Table("model", "", "source", box=None, pad_edge=False)
        for each in names:
            model = load(each)
            table.add_row(each, model.title, model.source)
        console.print(table)
        return
    model = load(name)
    table = Table("parameter", "default", "unit", "meaning", box=None, pad_edge=False)
    for field in parameter_fields(model):
        about = field.metadata
        table.add_row(
            field.name,
            "" if is_required(field) else f"{field.default:.10g}",
            about.get("unit", ""),
            about.get("meaning", ""),
        )
    console.print(f"{model.title}. {model.source}", highlight=False)
    console.print(table, highlight=False)
    states = ", ".join(f"{state} ({unit})" for state, unit in zip(model.coordinates, model.units, strict=True))
    console.print(f"state: {states}; time ({model.time_unit})", highlight=False)
    if objectives := objective_names(model):
        console.print(f"objectives: {', '.join(objectives)}", highlight=False)


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
