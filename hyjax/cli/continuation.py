"""The command continue."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .arguments import (
    as_misuse,
    check_paths,
    finite,
    found_orbits,
    load,
    Misuse,
    modes_in_turn,
    NotFound,
    parameters,
    start_jax,
)
from .options import FullJson, Model, Sequence, Strides
from .output import branches_record


def follow(
    name: Model,
    where: Annotated[str, typer.Option(help="the parameter to vary")],
    start: Annotated[str, typer.Option("--from", help="its value where orbits are searched")],
    end: Annotated[str, typer.Option("--to", help="its value at the end")],
    param: Annotated[list[str] | None, typer.Option(help="name=value of the others")] = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    doublings: Annotated[int, typer.Option(help="how many period doublings to follow, one after the other")] = 0,
    crossings: Annotated[bool, typer.Option(help="follow the branches that cross at branch points, too")] = True,
    step: Annotated[float, typer.Option(help="largest step, in units of the distance to be covered")] = 0.05,
    max_points: Annotated[int, typer.Option(help="the most points of a branch")] = 400,
    as_json: FullJson = False,
    plot: Annotated[Path | None, typer.Option(help="draw the branches to this file")] = None,
    out: Annotated[Path | None, typer.Option(help="write the branches to this file, branch.nc")] = None,
):
    """Follow all orbits of a model over a parameter, through folds, and locate what happens on the way."""
    check_paths(plot, None, out)
    if strides < 1 or doublings < 0 or max_points < 2 or not 0 < step <= 1:
        raise Misuse("--strides, --doublings, --max-points and --step must be positive, and --step at most 1.")
    cache = start_jax()
    model = load(name)
    params, values = parameters(model, [*(param or []), f"{where}={start}"])
    stop = finite(end, "--to")
    along = modes_in_turn(model, sequence)

    from .._continuation.continuation import continuation
    from .._continuation.curve import PseudoArclength
    from .._continuation.switching import cascade, crossing_branches

    orbits = found_orbits(model, name, params, along, strides, cache)
    if len(orbits) == 0:
        raise NotFound(f"{name}: no isolated periodic orbit of {strides} stride(s) at {where}={start}, to start from.")
    method = PseudoArclength(step=min(0.01, step), max_step=step, max_points=max_points)
    lens = lambda params: getattr(params, where)
    with as_misuse():
        branches = [
            continuation(model.system, orbits[i], where=lens, stop=stop, method=method) for i in range(len(orbits))
        ]
    bounds = float(min(stop, values[where])), float(max(stop, values[where]))
    if crossings:
        branches += crossing_branches(branches, stop=bounds, method=method)
    points = [point for branch in branches for point in branch.special_points if point.kind == "period-doubling"]
    if doublings and points:
        with as_misuse():
            branches += cascade(points[0], doublings=doublings, stop=stop, method=method)
    if as_json:
        print(json.dumps(branches_record(name, where, values, branches)))
    else:
        for branch in branches:
            print(branch)
    with as_misuse():
        if plot is not None:
            from ..plot.branch import branch_diagram
            from ..plot.figure import pyplot

            fig, ax = pyplot().subplots(figsize=(6.4, 4.2), layout="constrained")
            branch_diagram(branches, ax=ax, parameter=where)
            fig.savefig(plot, dpi=150)
        if out is not None:
            for number_, branch in enumerate(branches):
                path = out if len(branches) == 1 else out.with_stem(f"{out.stem}_{number_}")
                branch.to_xarray().to_netcdf(path, engine="scipy")
