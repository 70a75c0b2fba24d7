"""Arguments and options shared by several commands: the workers of `--scheduler`; axes of a grid, and the summary of its result
codes, of `sweep`, `attractor` and `basin`."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from .._results.labels import units_attribute, units_of
from .._results.table import shown_indices, Table
from .arguments import check_ends, Misuse, NotFound, parse_finite, parse_parameters, unit_of_parameter

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="name of a model, as hyjax models lists them; a Python file and its system, as wheel.py:system; or a robot's file "
        "and its feet, as robot.xml:left,right",
    ),
]
Param = Annotated[list[str] | None, typer.Option(help="name=value; angles in rad, or as 3deg")]
OtherParam = Annotated[
    list[str] | None, typer.Option(help="name=value of another parameter; angles in rad, or as 3deg")
]
Sequence = Annotated[
    str | None,
    typer.Option(
        help="sequence of modes, as first,second, or of sets of contacts, as heel:stick+toe:open,...; default: the model's"
    ),
]
Coordinate = Annotated[
    str | None,
    typer.Option(
        help="coordinate of --plot; default: the first that is not constant, nor on a line with the parameter"
    ),
]
# Bounds on what is counted: what a computer's memory holds.
MOST_STRIDES, MOST_POINTS, MOST_JUMPS, MOST_GRID_POINTS = 1000, 100_000, 1_000_000, 100_000_000
Strides = Annotated[int, typer.Option(help="number of strides in one period")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object, at full precision")]
GridJson = Annotated[bool, typer.Option("--json", help="print one JSON object: summary, axes and results")]
Where = Annotated[list[str], typer.Option(help="parameter to vary, as name=low:high:count; repeat for a grid")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace output files that exist")]
Animate = Annotated[Path | None, typer.Option(help="write an animation to this file: .gif, .mp4 or .html")]
Scheduler = Annotated[
    str | None, typer.Option(help="address of a Dask scheduler, as tcp://host:8786, whose workers compute the chunks")
]
# Seconds to wait for the scheduler's answer.
TIMEOUT = 20


def require_dask(scheduler: str | None) -> None:
    """`Misuse` where a scheduler is given and Dask is not installed."""
    if scheduler is None:
        return
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise Misuse("--scheduler needs Dask: pip install 'hyjax-dynamics[cluster]'.") from None


@contextmanager
def workers_of(scheduler: str | None) -> Iterator[Executor | None]:
    """The executor of the cluster at this address; `None` for this process. `NotFound` where no scheduler answers, or the workers
    fail."""
    if scheduler is None:
        yield None
        return
    from distributed import Client

    from .._system.results import SolveError

    try:
        client = Client(scheduler, timeout=TIMEOUT)
    except (OSError, ValueError) as error:
        raise NotFound(
            f"--scheduler {scheduler}: no Dask scheduler answers ({error}). Start one with `dask scheduler`, and workers with "
            "`dask worker`; they print the address."
        ) from None
    with client:
        try:
            yield client.get_executor()
        except SolveError as error:
            raise NotFound(str(error)) from None


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
