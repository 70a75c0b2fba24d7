"""Shared parts of `sweep`, `attractor` and `basin`: axes of a grid, integrator, summary of the result codes."""

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .._results.labels import units_attribute, units_of
from .._results.table import shown_indices, Table
from .arguments import check_ends, Misuse, parse_finite, parse_parameters, unit_of_parameter
from .options import MOST_GRID_POINTS


def parse_axes(texts: list[str], option: str, unit: Callable[[str], str]):
    """The values of each axis by name, each given once. **Arguments:** `unit`: from a name to its unit."""
    axes = dict(_parse_axis(each, option, unit) for each in texts)
    if len(axes) < len(texts):
        raise Misuse(f"{option}: a name is given twice. Give each once.")
    if math.prod(len(values) for values in axes.values()) > MOST_GRID_POINTS:
        raise Misuse(f"{option}: the grid has more than {MOST_GRID_POINTS} points. Divide it into several.")
    return axes


def _parse_axis(text: str, option: str, unit: Callable[[str], str]):
    """Name and values of an axis, given as `name=low:high:count` or `name=value`."""
    import numpy as np

    name, equals, span = text.partition("=")
    parts = span.split(":")
    if not equals or len(parts) not in (1, 3):
        raise Misuse(f"{option}: {text!r} is not name=low:high:count, such as slope=0.001:0.015:1000.")
    if len(parts) == 1:
        return name, np.array([parse_finite(span, option, unit(name))])
    low, high = (parse_finite(part, option, unit(name)) for part in parts[:2])
    if not (
        parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 20 and 1 <= int(parts[2]) <= MOST_GRID_POINTS
    ):
        raise Misuse(f"{option}: {parts[2]!r} is not a count of points, from 1 to {MOST_GRID_POINTS}, such as 1000.")
    if low == high and int(parts[2]) > 1:
        raise Misuse(f"{option}: {text!r} has low equal to high; for one value write {name}={parts[0]}.")
    return name, np.linspace(low, high, int(parts[2]))


def parse_grid(model: ModuleType, where: list[str], param: list[str] | None, levels: bool = False):
    """The grid of `--where`: parameters at its middle, the same by name, the lens, and the values of each axis. `levels`: see
    `parse_parameters`."""
    axes = parse_axes(where, "--where", lambda name: unit_of_parameter(model, name))
    middle = {name: float(values[len(values) // 2]) for name, values in axes.items()}
    params, values = parse_parameters(model, param, middle, levels)
    for name, each in axes.items():
        check_ends(model, values, name, (each[0], each[-1]), f"--where {name}: its end")
    names = tuple(axes)
    lens = lambda params: tuple(getattr(params, name) for name in names)
    return params, values, lens, tuple(axes.values())


def parse_tolerance(tolerance: float | None):
    """The integrator with this tolerance, or `None` for the default of the command."""
    from .._flow.integrator import Integrator

    try:
        return None if tolerance is None else Integrator(rtol=tolerance, atol=tolerance)
    except ValueError as error:
        raise Misuse(f"--tolerance: {error}") from None


def count_results(found) -> dict[str, int]:
    """Number of grid points with each result code."""
    import numpy as np

    names = found["result"].attrs["flag_meanings"].split()
    flags = list(found["result"].attrs["flag_values"])
    codes, counts = np.unique(found["result"].values, return_counts=True)
    return {names[flags.index(int(code))]: int(count) for code, count in zip(codes, counts, strict=True)}


def with_units(found, model: ModuleType, params):
    """The dataset, with the units of the model's coordinates."""
    units = units_of(model, params).coordinates
    for name in found.variables:
        if name in units:
            found[name].attrs["units"] = units[name]
        elif "coordinate" in found[name].dims[1:]:
            found[name].attrs |= units_attribute(model.coordinates, units)
    return found


def print_points(found, columns: dict[str, Any]) -> None:
    """Print a line for each point of the grid, at most 12 lines. **Arguments:** `columns`: values by name, over the grid."""
    import numpy as np

    dims = found["result"].dims
    axes = np.meshgrid(*(found[dim].values for dim in dims), indexing="ij")
    columns = dict(zip(dims, axes, strict=True)) | columns
    flat = [np.asarray(values).reshape(-1) for values in columns.values()]
    cell = lambda value: str(value) if isinstance(value, str) else f"{value:.12g}"
    chosen = shown_indices(len(flat[0]))
    rows = [["..."] if i is None else [cell(values[i]) for values in flat] for i in chosen]
    print(Table("", rows, [str(name) for name in columns]).text())


def axes_record(found, dims) -> dict[str, list]:
    """Values along each dimension that has coordinates, for JSON."""
    return {str(dim): found[dim].values.tolist() for dim in dims if dim in found.coords}
