"""What the commands over a grid of parameters have in common: its axes, where they start, what they tell."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .arguments import found_orbits, Misuse, NotFound, number, parameters

Param = Annotated[list[str] | None, typer.Option(help="name=value of the others; angles in rad, or as 3deg")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object: a summary, and the coordinates of failures")]
Where = Annotated[list[str], typer.Option(help="name=low:high:count, a parameter to vary; may be repeated")]


def axis(text: str, option: str):
    """`name=low:high:count`, or `name=value`: the name and the values."""
    import numpy as np

    name, equals, span = text.partition("=")
    parts = span.split(":")
    if not equals or len(parts) not in (1, 3):
        raise Misuse(f"{option}: {text!r} is not name=low:high:count, such as slope=0.001:0.015:1000.")
    if len(parts) == 1:
        return name, np.array([number(span, option)])
    low, high = (number(part, option) for part in parts[:2])
    if not parts[2].isdigit() or int(parts[2]) < 1:
        raise Misuse(f"{option}: {parts[2]!r} is not a count of points.")
    if low == high and int(parts[2]) > 1:
        raise Misuse(f"{option}: {text!r} has one value only; write {name}={parts[0]}.")
    return name, np.linspace(low, high, int(parts[2]))


def grid_of(model, where: list[str], param: list[str] | None, option: str = "--where"):
    """Parameters where orbits are searched: in the middle of the grid; the lens; the values; everything by name."""
    axes = dict(axis(each, option) for each in where)
    if len(axes) < len(where):
        raise Misuse(f"{option}: a parameter is given twice.")
    middle = [f"{name}={float(values[len(values) // 2])!r}" for name, values in axes.items()]
    params, values = parameters(model, [*(param or []), *middle])
    names = tuple(axes)
    lens = lambda params: tuple(getattr(params, name) for name in names)
    return params, lens, tuple(axes.values()), values


def start_of(model, name: str, params, values, sequence, strides: int, orbit: int, cache: str):
    """The orbit to start from: by its number, in the middle of the grid."""
    orbits = found_orbits(model, name, params, sequence, strides, cache)
    setting = ", ".join(f"{key}={value:.6g}" for key, value in values.items())
    if len(orbits) == 0:
        raise NotFound(f"{name}: no isolated periodic orbit of {strides} stride(s) at {setting}, to start from.")
    if not 1 <= orbit <= len(orbits):
        raise Misuse(f"--orbit: {orbit}, but there are {len(orbits)} orbits at {setting} (in the order of hyjax gait).")
    return orbits[orbit - 1]


def integrator_of(tolerance: float | None):
    """One of that tolerance, or the command's own."""
    from .._flow.integrator import Integrator

    try:
        return None if tolerance is None else Integrator(rtol=tolerance, atol=tolerance)
    except ValueError as error:
        raise Misuse(f"--tolerance: {error}") from None


def counts_of(found) -> dict[str, int]:
    """How many points ended with each code."""
    import numpy as np

    names = found["result"].attrs["flag_meanings"].split()
    flags = list(found["result"].attrs["flag_values"])
    codes, counts = np.unique(found["result"].values, return_counts=True)
    return {names[flags.index(int(code))]: int(count) for code, count in zip(codes, counts, strict=True)}


def tell(record: dict[str, Any], as_json: bool) -> None:
    """Print the summary, as a table or as JSON."""
    if as_json:
        print(json.dumps(record))
        return
    width = max(len(key) for key in record)
    for key, value in record.items():
        shown = ", ".join(f"{each} {number}" for each, number in value.items()) if isinstance(value, dict) else value
        print(f"{key.replace('_', ' '):<{width}}  {shown}")


def listed(values):
    """Nested lists, with null for what is not a number."""
    import numpy as np

    return np.asarray(np.where(np.isfinite(values), values, None)).tolist()


def write(found, out: Path | None) -> None:
    """The dataset as netCDF, where a file is asked for."""
    if out is not None:
        try:
            found.to_netcdf(out, engine="scipy")
        except (OSError, ValueError, TypeError) as error:
            raise NotFound(f"{out}: could not be written ({error}).") from None
