"""The command `basin`: basins of attraction in a plane of initial states."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .._results.labels import units_of
from .arguments import as_misuse, check_count, in_degrees, load, Misuse, parse_parameters, parse_sequence, short_name
from .options import (
    axes_record,
    GridJson,
    Model,
    MOST_JUMPS,
    OtherParam,
    Overwrite,
    parse_axes,
    parse_grid,
    parse_tolerance,
    print_points,
    require_dask,
    Scheduler,
    Sequence,
    with_units,
    workers_of,
)
from .orbits import search_orbits
from .output import check_files, print_record, save_figure, save_netcdf
from .process import start_jax


def basin(
    name: Model,
    where: Annotated[
        list[str] | None,
        typer.Option(help="parameter and its values, as name=low:high:count: the basins of the attractors at each"),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(help="coordinate and its values, as name=low:high:count; default: the model's plane"),
    ] = None,
    points: Annotated[int, typer.Option(help="number of points along each axis of the model's plane")] = 300,
    out: Annotated[Path | None, typer.Option(help="write to this netCDF file, as basin.nc")] = None,
    param: OtherParam = None,
    strides: Annotated[int, typer.Option(help="largest number of strides")] = 100,
    sequence: Sequence = None,
    tolerance: Annotated[float | None, typer.Option(help="tolerance of the integrator; default: 1e-8")] = None,
    scheduler: Scheduler = None,
    as_json: GridJson = False,
    plot: Annotated[Path | None, typer.Option(help="draw the basins of attraction to this file")] = None,
    overwrite: Overwrite = False,
):
    """Compute basins of attraction in a plane of states. The outcome of a state is a stable orbit, or an event such as a fall.
    Along a parameter it is an attractor, or an event, and the share of each is printed."""
    check_files(plot, out=out, overwrite=overwrite)
    check_count("--points", points, 2, 10_000)
    check_count("--strides", strides, 1, MOST_JUMPS)
    require_dask(scheduler)
    integrator = parse_tolerance(tolerance)
    cache = start_jax()
    model = load(name, sequence)
    if where:
        params, values, lens, varied = parse_grid(model, where, param)
    else:
        (params, values), lens, varied = parse_parameters(model, param), None, None
    modes = parse_sequence(model, sequence)

    import numpy as np

    axes = _axes(model, over, points)

    from .._orbit.return_map import ReturnMap
    from .._sweep.basin import basin as run

    orbits: Any = () if where else search_orbits(model, params, modes, 1, cache)[0]
    stable = np.flatnonzero(np.asarray(orbits.stable)) if len(orbits) else []
    with workers_of(scheduler) as executor, as_misuse():
        found = run(
            ReturnMap(model.system, sequence=modes, integrator=integrator), params, axes=axes,
            initial=getattr(model, "on_section", None), orbits=orbits[stable] if len(stable) else None,
            outcomes=getattr(model, "outcomes", None), where=lens, values=varied, max_strides=strides, executor=executor,
            throw=False,
        )  # fmt: skip
    meanings = found["outcome"].attrs["flag_meanings"].split()
    counts = np.bincount(found["outcome"].values.ravel(), minlength=len(meanings))
    record: dict[str, Any] = {"model": name, "params": values, "points": int(found["outcome"].size)}
    record["outcomes"] = {each.replace("_", " "): int(count) for each, count in zip(meanings, counts, strict=True)}
    shares = {str(fate): found["share"].sel(fate=fate).values for fate in found["fate"].values}
    if as_json:
        record |= {"axes": axes_record(found, found["outcome"].dims), "outcome": found["outcome"].values.tolist()}
        record["share"] = {fate: share.tolist() for fate, share in shares.items()}
    print_record(record, as_json)
    if where and not as_json:
        print_points(found["share"].isel(fate=0).to_dataset(name="result"), shares)
    save_netcdf(with_units(found, model, params), out)
    if plot is not None:
        from ..plot.sweep_figure import basin_figure

        degrees = in_degrees([*(param or ()), *(where or ())])
        draw = lambda: basin_figure(found, None, orbits if len(orbits) else None, model, params, degrees)
        save_figure(plot, lambda: draw().figure)  # pyright: ignore


def _axes(model, over: list[str] | None, points: int) -> dict[str, Any]:
    """The axes of the plane of initial states, from `--over` or the model. `Misuse` where the model's section has other axes."""
    import numpy as np

    plane = getattr(model, "plane", None)
    if over:
        units = units_of(model).coordinates
        axes = parse_axes(over, "--over", lambda name: units.get(name, ""))
        if not hasattr(model, "on_section") and set(axes) != set(model.coordinates):
            raise Misuse(
                f"--over: {', '.join(axes)} are not the coordinates of {short_name(model)}: give each of "
                f"{', '.join(model.coordinates)}, one value for those that do not vary."
            )
        if hasattr(model, "on_section") and plane is not None and tuple(axes) != tuple(plane):
            raise Misuse(
                f"--over: the initial states of {short_name(model)} lie on the plane of {' and '.join(plane)}, in this order."
            )
        return axes
    if plane is None:
        raise Misuse(
            f"{short_name(model)}: this model defines no plane of initial states; give --over for each of "
            f"{', '.join(model.coordinates)}."
        )
    return {each: np.linspace(low, high, points) for each, (low, high) in plane.items()}
