"""The command `continue`: branches of periodic orbits over a parameter, with their special points."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .arguments import as_misuse, check_count, load, Misuse, NotFound, parse_finite, parse_parameters, parse_sequence
from .files import check_files, save_figure, save_netcdf
from .options import Json, Model, MOST_POINTS, MOST_STRIDES, OtherParam, Sequence, Strides
from .orbits import require_orbits
from .output import branches_record
from .session import start_jax


def follow_branches(
    name: Model,
    where: Annotated[str, typer.Option(help="parameter to vary")],
    start: Annotated[str, typer.Option("--from", help="its first value, where periodic orbits are searched")],
    end: Annotated[str, typer.Option("--to", help="its last value")],
    param: OtherParam = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    doublings: Annotated[int, typer.Option(help="number of successive period doublings to follow")] = 0,
    crossings: Annotated[bool, typer.Option(help="also follow the other branches through branch points")] = True,
    step: Annotated[float, typer.Option(help="largest step, as a fraction of the parameter's interval")] = 0.05,
    max_points: Annotated[int, typer.Option(help="largest number of points on a branch")] = 400,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw the bifurcation diagram to this file")] = None,
    out: Annotated[Path | None, typer.Option(help="write the branches to this netCDF file, as branch.nc")] = None,
):
    """Follow the periodic orbits of a model over a parameter, through folds. Bifurcations and grazing are located."""
    check_files(plot, out=out)
    check_count("--strides", strides, 1, MOST_STRIDES)
    check_count("--doublings", doublings, 0, 16)
    check_count("--max-points", max_points, 2, MOST_POINTS)
    if not 1e-9 <= step <= 1:
        raise Misuse(f"--step: {step:g} must lie between 1e-9 and 1, a fraction of the interval.")
    cache = start_jax()
    model = load(name)
    params, values = parse_parameters(model, param, {where: parse_finite(start, "--from")})
    stop = parse_finite(end, "--to")
    modes = parse_sequence(model, sequence)

    from .._continuation.continuation import continuation
    from .._continuation.curve import PseudoArclength
    from .._continuation.switching import cascade, crossing_branches

    orbits = require_orbits(model, params, values, modes, strides, cache)
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
        print(*branches, sep="\n")
    if plot is not None:
        from ..plot.branch import branch_diagram

        save_figure(plot, lambda: branch_diagram(branches, parameter=where).figure)  # pyright: ignore
    if out is not None:
        for k, branch in enumerate(branches):
            save_netcdf(branch.to_xarray(), out if len(branches) == 1 else out.with_stem(f"{out.stem}_{k}"))
    _require_ends(name, branches)


def _require_ends(name: str, branches: list) -> None:
    """`NotFound` for branches that end where no orbit was found, but for grazing, which explains it."""
    from .._system.results import described_code

    for number, branch in enumerate(branches, start=1):
        grazes = any(point.kind == "grazing" for point in branch.special_points)
        if not grazes and int(branch.result._value) != 0:
            raise NotFound(f"{name}: branch {number} ends early, {described_code(branch.result)}")
