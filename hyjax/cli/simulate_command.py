"""The command `simulate`: a trajectory through the modes that the guards select."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .arguments import (
    as_misuse,
    check_count,
    in_degrees,
    initial_condition,
    load,
    NotFound,
    parse_finite,
    parse_parameters,
)
from .options import Animate, Json, Model, MOST_JUMPS, Overwrite, Param
from .output import check_files, check_outline, save_figure, save_netcdf, tell_written, trajectory_record
from .process import start_jax


def simulate(
    name: Model,
    t1: Annotated[str, typer.Option(help="end time, in the model's unit of time")],
    param: Param = None,
    x0: Annotated[str | None, typer.Option(help="initial state, as 1.0,0.5; default: the model's")] = None,
    mode: Annotated[str | None, typer.Option(help="initial mode; default: the model's")] = None,
    max_jumps: Annotated[int, typer.Option(help="largest number of jumps")] = 100,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw the coordinates over time to this file")] = None,
    animate: Animate = None,
    out: Annotated[
        Path | None, typer.Option(help="write samples and events to this netCDF file, as trajectory.nc")
    ] = None,
    overwrite: Overwrite = False,
):
    """Simulate a model through the modes that its guards select. Print the arcs of the trajectory."""
    check_files(plot, animate, out, overwrite=overwrite)
    check_count("--max-jumps", max_jumps, 0, MOST_JUMPS)
    start_jax()
    model = load(name, free=True)
    check_outline(model, animate)
    end = parse_finite(t1, "--t1", model.time_unit)
    params, values = parse_parameters(model, param)
    first, state = initial_condition(model, params, mode, x0)

    from .._flow.simulate import simulate as run
    from .._flow.trajectory_report import trajectory_table
    from .._system.results import described_code

    with as_misuse():
        trajectory = run(model.system, state, params, mode=first, t1=end, max_jumps=max_jumps, throw=False)
    print(
        json.dumps(trajectory_record(name, values, trajectory))
        if as_json
        else trajectory_table(trajectory).text(units=True)
    )
    if plot is not None:
        from ..plot.orbit_figure import trajectory_figure

        save_figure(plot, lambda: trajectory_figure(trajectory, model, degrees=in_degrees(param)))
    if animate is not None:
        from ..plot.animation import animate_trajectory, save_animation

        with as_misuse():
            save_animation(animate_trajectory(trajectory, model), animate)
        tell_written(animate)
    if out is not None:
        save_netcdf(trajectory.to_xarray(model=model), out)
    if trajectory.result != "successful":
        raise NotFound(f"{name}: ended at t = {float(trajectory.t):.6g} with {described_code(trajectory.result)}")
