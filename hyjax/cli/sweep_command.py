"""The command `sweep`: a periodic orbit at every point of a grid of parameters."""

from pathlib import Path
from typing import Annotated

import typer

from .._results.labels import units_of
from .._results.table import without_rounding
from .arguments import as_misuse, check_count, in_degrees, load, Misuse, NotFound, parse_sequence
from .options import (
    axes_record,
    count_results,
    GridJson,
    Model,
    MOST_GRID_POINTS,
    MOST_POINTS,
    MOST_STRIDES,
    OtherParam,
    Overwrite,
    parse_grid,
    parse_tolerance,
    print_points,
    require_dask,
    Scheduler,
    Sequence,
    Strides,
    workers_of,
)
from .orbits import choose_orbit, require_orbits
from .output import check_directory, check_files, nested_lists, print_record, save_figure, tell_written
from .process import keep_in_mind, start_jax
from .quantities import parse_prescribed


def sweep(
    name: Model,
    where: Annotated[
        list[str] | None, typer.Option(help="parameter to vary, as name=low:high:count; repeat for a grid")
    ] = None,
    prescribe: Annotated[
        list[str] | None,
        typer.Option(
            help="quantity of the orbit to vary, as step_length=0.3:0.6:20, by the names of hyjax optimize --objective; repeat "
            "for a grid; needs --solve"
        ),
    ] = None,
    solve: Annotated[
        str | None, typer.Option(help="parameters to solve for, one for each --prescribe, as push_off,stiffness")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write to this zarr store, as sweep.zarr")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="complete the existing store")] = False,
    param: OtherParam = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    orbit: Annotated[
        int, typer.Option(help="number of the starting orbit at the middle of the grid, in the order of hyjax gait")
    ] = 1,
    tolerance: Annotated[float | None, typer.Option(help="tolerance of the integrator; default: 1e-14")] = None,
    chunk: Annotated[int | None, typer.Option(help="largest number of points in a chunk of the store")] = None,
    scheduler: Scheduler = None,
    as_json: GridJson = False,
    plot: Annotated[Path | None, typer.Option(help="draw state and spectral radius to this file")] = None,
    overwrite: Overwrite = False,
):
    """Solve for a periodic orbit at every point of a grid of parameters, or of quantities of the orbit such as its step length.

    The orbits are stored chunk by chunk. Of a model whose orbits are a family, such as biped_slip, --where conserved=1.1:1.3:20
    is a sweep over its energy.
    """
    check_files(plot, overwrite=overwrite)
    if resume and out is None:
        raise Misuse("--resume needs the store: give --out.")
    if out is not None:
        check_directory(out)
        if out.exists() and not resume:
            raise Misuse(f"{out}: the path exists already. Give --resume to complete the store, or another path.")
        if not out.exists() and out.suffix not in ("", ".zarr"):
            raise Misuse(f"{out}: the store is a zarr directory; name it with the suffix .zarr, as {out.stem}.zarr.")
    check_count("--strides", strides, 1, MOST_STRIDES)
    check_count("--orbit", orbit, 1, MOST_POINTS)
    if chunk is not None:
        check_count("--chunk", chunk, 1, MOST_GRID_POINTS)
    require_dask(scheduler)
    integrator = parse_tolerance(tolerance)
    cache = start_jax()
    model = load(name, sequence)
    if not where and not prescribe:
        raise Misuse("give --where, the parameters to vary, as slope=0.001:0.015:1000, or --prescribe with --solve.")
    params, values, lens, axes = parse_grid(model, where or [], param, levels=True)
    prescribed, solved = parse_prescribed(model, prescribe, solve, where or [])
    modes = parse_sequence(model, sequence, levels=True)
    orbits, _ = require_orbits(model, params, values, modes, strides, cache)
    start = choose_orbit(orbits, orbit, values)

    import numpy as np

    from .._sweep.sweep import sweep as run
    from .._system.results import code_of, SolveError

    if out is not None:
        keep_in_mind(f"The chunks that were finished are in {out}: the same command with --resume goes on.")
    known = units_of(model, params)
    units = known.coordinates | {"time": known.time}
    try:
        with workers_of(scheduler) as executor, as_misuse():
            found = run(
                start, where=lens if where else None, values=axes if where else None, prescribed=prescribed,
                solve=solved, out=out, resume=resume, integrator=integrator, chunk=chunk, executor=executor,
                units=units, throw=False,
            )  # fmt: skip
    except SolveError as error:
        raise NotFound(str(error)) from None
    found = found.load()
    counts = count_results(found)
    orbits = counts.get("successful", 0)
    record = {
        "model": name,
        "points": int(found["result"].size),
        "orbits": orbits,
        "stable": int(found["stable"].sum()),
        "results": counts,
        "strides_per_orbit": round(float(found["iterations"].mean()), 3),
        "store": None if out is None else str(out),
    }
    if as_json:
        record["axes"] = axes_record(found, found["result"].dims)
        columns = ("x", "period", "multipliers_real", "multipliers_imag", *(found.attrs.get("solved") or ()))
        record |= {each: nested_lists(found[each].values) for each in columns}
    print_record(record, as_json)
    if not as_json:
        names = [str(code_of(int(code))) for code in found["result"].values.ravel()]
        states = {each: found[each].values for each in (found.attrs.get("solved") or ())}
        states |= {name: found["x"].values[..., k] for k, name in enumerate(model.coordinates)}
        radius = without_rounding(
            np.hypot(found["multipliers_real"].values, found["multipliers_imag"].values).max(axis=-1)
        )
        print_points(found, states | {"period": found["period"].values, "spectral radius": radius, "result": names})
    if out is not None:
        tell_written(out)
    if plot is not None:
        from ..plot.sweep_figure import sweep_figure

        save_figure(
            plot, lambda: sweep_figure(found, None, model, params, in_degrees([*(param or ()), *(where or ())]))
        )
    if orbits == 0:
        if prescribed is None:
            raise NotFound(
                f"{name}: no orbit of the grid was reached from the orbit at its middle. Try a finer or a smaller grid."
            )
        has = ", ".join(f"{each} = {float(of(start, start.params)):.6g}" for each, (of, _) in prescribed.items())
        raise NotFound(
            f"{name}: no orbit of the grid was reached from the starting orbit, which has {has}. Try values nearer to these, "
            "other parameters to --solve for, or another --orbit."
        )
