"""The command `attractor`: long-run states of a return map, or of the map of a section, over a grid of parameters."""

import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from .._system.section import Section, SectionLike, Stroboscope
from .arguments import (
    as_misuse,
    check_coordinate,
    check_count,
    check_parameter,
    in_degrees,
    load,
    Misuse,
    NotFound,
    parse_finite,
    parse_sequence,
    parse_state,
    resembling,
)
from .options import (
    axes_record,
    Coordinate,
    count_results,
    GridJson,
    Model,
    MOST_GRID_POINTS,
    MOST_JUMPS,
    MOST_POINTS,
    OtherParam,
    Overwrite,
    parse_grid,
    parse_tolerance,
    print_points,
    require_dask,
    Scheduler,
    Sequence,
    Where,
    with_units,
    workers_of,
)
from .orbits import require_orbits
from .output import check_files, nested_lists, print_record, save_figure, save_netcdf
from .process import start_jax


def attractor(
    name: Model,
    where: Where,
    out: Annotated[Path | None, typer.Option(help="write to this netCDF file, as attractor.nc")] = None,
    param: OtherParam = None,
    strides: Annotated[int, typer.Option(help="number of strides; the first half is discarded as transient")] = 1000,
    keep: Annotated[int, typer.Option(help="number of last states to keep")] = 128,
    x0: Annotated[
        str | None, typer.Option(help="initial state, as 1.0,0.5; default: the model's orbit, or its guess")
    ] = None,
    sequence: Sequence = None,
    section: Annotated[
        str | None,
        typer.Option(
            help="in place of a sequence: mode:coordinate<value, where the coordinate falls below it, mode:coordinate>value, or "
            "mode:period=value or mode:period=2pi/parameter of a forced system, through whatever modes come"
        ),
    ] = None,
    max_jumps: Annotated[int, typer.Option(help="largest number of jumps from section to section")] = 100,
    tolerance: Annotated[float | None, typer.Option(help="tolerance of the integrator; default: 1e-9")] = None,
    scheduler: Scheduler = None,
    as_json: GridJson = False,
    plot: Annotated[Path | None, typer.Option(help="draw the bifurcation diagram to this file")] = None,
    coordinate: Coordinate = None,
    overwrite: Overwrite = False,
):
    """Iterate a return map, or the map of a section, over a grid of parameters. The results are long-run states, periods and
    Lyapunov exponents."""
    check_files(plot, out=out, overwrite=overwrite)
    check_count("--strides", strides, 2, MOST_GRID_POINTS)
    check_count("--keep", keep, 1, MOST_POINTS)
    require_dask(scheduler)
    integrator = parse_tolerance(tolerance)
    cache = start_jax()
    model = load(name, sequence)
    params, values, lens, axes = parse_grid(model, where, param)
    if section is not None and sequence is not None:
        raise Misuse("--section: give either --section or --sequence, not both.")
    check_count("--max-jumps", max_jumps, 0, MOST_JUMPS)
    surface = None if section is None else parse_section(model, section)
    modes = () if surface is not None else parse_sequence(model, sequence)
    check_coordinate(model, modes[0] if surface is None else surface.mode, coordinate)  # pyright: ignore
    check_count("--keep times the points of the grid", keep * math.prod(map(len, axes)), 1, MOST_GRID_POINTS)

    import numpy as np

    from .._orbit.return_map import ReturnMap
    from .._sweep.attractor import attractor as run
    from .._system.results import code_of

    if surface is not None:
        start = state_at_section(model, params, surface, x0)
    elif x0 is not None:
        start = parse_state(x0)
    else:
        try:
            orbits, _ = require_orbits(model, params, values, modes, 1, cache)
            start = orbits[0]
        except NotFound as error:
            if modes != tuple(getattr(model, "sequence", ())) or not hasattr(model, "guess"):
                raise
            print(f"hyjax: {error} The iteration starts from the model's guess.", file=sys.stderr)
            start = model.guess(params)
    with workers_of(scheduler) as executor, as_misuse():
        found = run(
            ReturnMap(
                model.system, sequence=modes or None, section=surface, max_jumps=max_jumps, integrator=integrator
            ),
            start, params, where=lens, values=axes, n_strides=strides, keep=keep, executor=executor,
            throw=False,
        )  # fmt: skip
    periods, times = np.unique(found["period"].values[found["result"].values == 0], return_counts=True)
    counts = count_results(found)
    record = {
        "model": name,
        "points": int(found["result"].size),
        "results": counts,
        "periods": {str(period): int(count) for period, count in zip(periods, times, strict=True)},
        "chaotic": int((found["lyapunov"] > 0).sum()),
    }
    if as_json:
        record["axes"] = axes_record(found, found["result"].dims)
        record |= {"period": found["period"].values.tolist(), "lyapunov": nested_lists(found["lyapunov"].values)}
        record["exponents"] = nested_lists(found["exponents"].values)
    print_record(record, as_json)
    if not as_json:
        names = [str(code_of(int(code))) for code in found["result"].values.ravel()]
        columns = {"period": found["period"].values, "lyapunov": found["lyapunov"].values, "result": names}
        print_points(found, columns)
    save_netcdf(with_units(found, model, params), out)
    if plot is not None:
        from ..plot.sweep_figure import attractor_figure

        degrees = in_degrees([*(param or ()), *where])
        save_figure(plot, lambda: attractor_figure(found, coordinate, model, params, degrees))
    if counts.get("successful", 0) == 0:
        raise NotFound(f"{name}: at no point of the grid did all {strides} strides succeed.")


FORMS = (
    "Write MODE:COORDINATE<VALUE, MODE:COORDINATE>VALUE, MODE:period=VALUE or MODE:period=2pi/PARAMETER, perhaps with "
    ",phase=VALUE, in quotes"
)


def parse_section(model: ModuleType, text: str) -> SectionLike:
    """The section `MODE:COORDINATE<VALUE`, at which a coordinate falls below a value, `MODE:COORDINATE>VALUE`, at which it rises
    above it, `MODE:period=VALUE`, or `MODE:period=2pi/PARAMETER` for a parameter that is an angular frequency, and then perhaps
    `,phase=VALUE`, in units of time."""
    found = re.fullmatch(r"\s*(\w+)\s*:\s*(\w+)\s*([<>=])\s*([^\s,]+)\s*(?:,\s*phase\s*=\s*(\S+)\s*)?", text)
    if found is None:
        raise Misuse(f"--section: {text!r} is no section. {FORMS}.")
    mode, name, relation, value, phase = found.groups()
    with as_misuse():
        coordinates = model.system.mode(mode, "--section").coordinates
    if relation == "=":
        if name != "period":
            raise Misuse(
                f"--section: {text!r}: = is for a period. Write {mode}:{name}<{value} where {name} falls, or "
                f"{mode}:{name}>{value} where it rises."
            )
        return Stroboscope(mode, _period(model, value), 0.0 if phase is None else parse_finite(phase, "--section"))
    if phase is not None:
        raise Misuse(f"--section: {text!r}: a phase is for a period. Write {mode}:period=VALUE,phase={phase}.")
    if name not in coordinates:
        raise Misuse(
            f"--section: mode {mode!r} has no coordinate {name!r}.{resembling(name, coordinates)} Its coordinates are: "
            f"{', '.join(coordinates)}."
        )
    place, level, sign = coordinates.index(name), parse_finite(value, "--section"), 1 if relation == "<" else -1
    return Section(mode, lambda t, x, params: sign * (x[place] - level))


def _period(model: ModuleType, text: str):
    """A period in units of the model's time: a number, or a function of the parameters for `2pi/PARAMETER`."""
    if text.startswith("2pi/"):
        name = text.removeprefix("2pi/")
        check_parameter(model, name, "--section")
        return lambda params: 2 * math.pi / getattr(params, name)
    period = parse_finite(text, "--section")
    if period <= 0:
        raise Misuse(f"--section: the period {text!r} must be positive.")
    return period


def state_at_section(model: ModuleType, params, section: SectionLike, x0: str | None):
    """The initial state, as given; by default the model's, as a function of the parameters. `Misuse` if that is of another
    mode at `params`."""
    if x0 is not None:
        return parse_state(x0)
    mode = model.start(params)[0]
    if mode != section.mode:
        raise Misuse(f"--section: the model has an initial state for mode {mode!r}, not {section.mode!r}; give --x0.")
    return lambda params: model.start(params)[1]
