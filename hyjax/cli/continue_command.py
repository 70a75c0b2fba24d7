"""The command `continue`: branches of periodic orbits over a parameter, with their special points."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from .._results.labels import units_of
from .arguments import (
    as_misuse,
    check_coordinate,
    check_count,
    check_ends,
    in_degrees,
    LEVEL,
    load,
    Misuse,
    NotFound,
    parse_finite,
    parse_parameters,
    parse_sequence,
    unit_of_parameter,
)
from .options import Coordinate, Json, Model, MOST_POINTS, MOST_STRIDES, OtherParam, Overwrite, Sequence, Strides
from .orbits import require_orbits
from .output import branches_record, check_files, save_figure, save_netcdf
from .process import start_jax


def continue_(
    name: Model,
    where: Annotated[str | None, typer.Option(help="parameter to vary")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="its first value, where periodic orbits are searched")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="its last value")] = None,
    param: OtherParam = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    doublings: Annotated[int, typer.Option(help="number of successive period doublings to follow")] = 0,
    crossings: Annotated[bool, typer.Option(help="also follow the other branches through branch points")] = True,
    step: Annotated[float, typer.Option(help="largest step, as a fraction of the parameter's interval")] = 0.05,
    max_points: Annotated[int, typer.Option(help="largest number of points on a branch")] = 400,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw the bifurcation diagram to this file")] = None,
    coordinate: Coordinate = None,
    out: Annotated[Path | None, typer.Option(help="write the branches to this netCDF file, as branch.nc")] = None,
    overwrite: Overwrite = False,
):
    """Follow the periodic orbits of a model over a parameter, through folds. Bifurcations, grazing and corners are
    located.

    Of a model whose orbits are a family, such as biped_slip, --where conserved follows the family by its energy, and another
    parameter is varied at the energy of the model's guess, or that of --param conserved=VALUE."""
    check_files(plot, out=out, overwrite=overwrite)
    check_count("--strides", strides, 1, MOST_STRIDES)
    check_count("--doublings", doublings, 0, 16)
    check_count("--max-points", max_points, 2, MOST_POINTS)
    if not 1e-9 <= step <= 1:
        raise Misuse(f"--step: {step:g} must lie between 1e-9 and 1, a fraction of the interval.")
    cache = start_jax()
    model = load(name, sequence)
    if where is None or start is None or end is None:
        _, values = parse_parameters(model, param, levels=True)
        known = where if where in values else LEVEL if LEVEL in values else next(iter(values))
        raise Misuse(
            f"{name}: give --where, --from and --to, the parameter to vary, its first and its last value, as --where {known} "
            f"--from {start or format(values[known], '.6g')} --to {end or 'VALUE'}."
        )
    params, values = parse_parameters(
        model, param, {where: parse_finite(start, "--from", unit_of_parameter(model, where))}, levels=True
    )
    stop = parse_finite(end, "--to", unit_of_parameter(model, where))
    if stop == values[where]:
        raise Misuse(f"--to: {end!r} is the value of --from. Give two different values.")
    check_ends(model, values, where, (stop,), "--to:")
    modes = parse_sequence(model, sequence, levels=True)
    check_coordinate(model, modes[0], coordinate, "period")

    from .._continuation.continuation import continuation
    from .._continuation.curve import PseudoArclength
    from .._continuation.switching import crossing_branches
    from .._results.working import working

    orbits, _ = require_orbits(model, params, values, modes, strides, cache)
    method = PseudoArclength(step=min(0.01, step), max_step=step, max_points=max_points)
    lens = lambda params: getattr(params, where)
    with as_misuse(), working("following branches") as say:
        bounds = min(stop, values[where]), max(stop, values[where])
        branches = []
        for i in range(len(orbits)):
            # A branch that turns at a fold and returns ends at another of the orbits.
            if any(_passes(branch, orbits[i]) for branch in branches):
                continue
            say(f"branch {i + 1} of {len(orbits)}, from {where} = {values[where]:.6g} to {stop:.6g}")
            branches.append(continuation(orbits[i], where=lens, stop=bounds, method=method, throw=False))
        if crossings:
            say("other branches through branch points")
            branches += crossing_branches(branches, stop=bounds, method=method)
        say("locating special points")
        points = [point for branch in branches for point in branch.special_points if point.kind == "period-doubling"]
        if doublings and points:
            say(f"period doublings from {where} = {float(points[0].value):.6g}")
            branches += points[0].cascade(doublings=doublings, stop=stop, method=method)
    ends = [_end(branch) for branch in branches]
    if as_json:
        print(json.dumps(branches_record(name, where, values, branches)))
    else:
        from .._continuation.branch_report import branch_tables

        for branch, end in zip(branches, ends, strict=True):
            print(*(table.text(units=True) for table in branch_tables(branch, end)), sep="\n")
    if plot is not None:
        from ..plot.branch_figure import branch_diagram

        degrees = in_degrees([*(param or ()), f"{where}={start}", f"{where}={end}"])
        save_figure(
            plot,
            lambda: branch_diagram(branches, coordinate, parameter=where, model=model, degrees=degrees).figure,  # pyright: ignore
        )
    if out is not None:
        from .._continuation.branch_report import branches_dataset

        found = branches_dataset(branches).assign_attrs(model=name)
        units = units_of(model).coordinates
        found["coordinate_units"] = "coordinate", [units.get(str(each), "") for each in found["coordinate"].values]
        found["period"].attrs["units"] = found["special_period"].attrs["units"] = model.time_unit
        save_netcdf(found, out)
    from .._continuation.branch_report import is_explained

    for number, (branch, end) in enumerate(zip(branches, ends, strict=True), start=1):
        if int(branch.result._value) != 0 and not is_explained(branch):
            early = f"{name}: branch {number} ends early. {end}"
            if number == 1 and len(branch) < 2:
                raise NotFound(early)
            print(f"hyjax: {early}", file=sys.stderr)


def _passes(branch, orbit) -> bool:
    """Whether an orbit at the start of the interval is a point of a branch, perhaps with another stride as the first."""
    import numpy as np

    unfolding = branch.unfolding
    near = np.abs(branch.values - float(unfolding.origin[0])) < 1e-9 * float(unfolding.scale[0])
    apart = np.asarray(orbit.nodes)[:, None] - branch.x[near][None]
    return bool(np.any(np.max(np.abs(apart), axis=-1, initial=0) < 1e-6 * float(unfolding.state_scale)))


def _end(branch) -> str:
    """How a branch ends, in the words of the command line."""
    from .._continuation.branch_report import described_end, is_explained

    code = str(branch.result)
    if code == "successful" or is_explained(branch):
        return described_end(branch)
    value = f"{branch.parameter} = {branch.values[-1]:.10g}"
    if code == "max_points_reached":
        return f"{code}: the branch has {len(branch)} points and comes to {value}. Raise --max-points or --step."
    if code == "stop_not_reached":
        return f"{code}: the branch leads to the other side of its start, and ends at {value}."
    other = "a smaller --step" if branch.parameter == LEVEL else "a smaller --step, or another --sequence"
    return f"{code}: no orbit of this sequence of modes was found beyond {value}. Try {other}."
