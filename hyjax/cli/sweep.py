"""The command sweep."""

from pathlib import Path
from typing import Annotated

import typer

from .arguments import as_misuse, check_paths, load, Misuse, modes_in_turn, NotFound, start_jax
from .grid import counts_of, grid_of, integrator_of, Json, listed, Param, start_of, tell, Where
from .options import Model, Sequence, Strides


def sweep(
    name: Model,
    where: Where,
    out: Annotated[Path | None, typer.Option(help="the zarr store to write, sweep.zarr")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the store that is there")] = False,
    param: Param = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    orbit: Annotated[int, typer.Option(help="which of the orbits in the middle of the grid, as hyjax gait counts")] = 1,
    tolerance: Annotated[float | None, typer.Option(help="of the integrator, by default 1e-14")] = None,
    chunk: Annotated[int | None, typer.Option(help="at most so many points are written at once")] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw state and spectral radius to this file")] = None,
):
    """Follow an orbit of a model over a grid of parameters, and store it chunk by chunk."""
    check_paths(plot, None)
    if out is None and plot is None and not as_json:
        raise Misuse("say what to make of it: --out sweep.zarr, --plot sweep.png or --json.")
    if resume and out is None:
        raise Misuse("--resume needs the store: give --out.")
    if out is not None and not out.absolute().parent.is_dir():
        raise Misuse(f"{out}: there is no directory {out.absolute().parent}.")
    if out is not None and out.exists() and not resume:
        raise Misuse(f"{out}: there is something already. Give --resume to go on with it, or another path.")
    if strides < 1 or (chunk is not None and chunk < 1):
        raise Misuse("--strides and --chunk must be at least 1.")
    integrator = integrator_of(tolerance)
    cache = start_jax()
    model = load(name)
    params, lens, values, setting = grid_of(model, where, param)
    along = modes_in_turn(model, sequence)
    start = start_of(model, name, params, setting, along, strides, orbit, cache)

    from .._sweep.store import StoreError
    from .._sweep.sweep import sweep as run

    units = dict(zip(model.coordinates, model.units, strict=True)) | {"time": model.time_unit}
    try:
        with as_misuse():
            found = run(
                model.system, start, where=lens, values=values, out=out, resume=resume, integrator=integrator, chunk=chunk,
                units=units,
            )  # fmt: skip
    except StoreError as error:
        raise NotFound(str(error)) from None
    found = found.load()
    counts = counts_of(found)
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
        record["axes"] = {dim: found[dim].values.tolist() for dim in found["result"].dims}
        clean = lambda name: listed(found[name].values)
        record |= {each: clean(each) for each in ("x", "period", "multipliers_real", "multipliers_imag")}
    tell(record, as_json)
    if plot is not None:
        from ..plot.sweep import sweep_figure

        with as_misuse():
            sweep_figure(found).savefig(plot, dpi=150)
    if orbits == 0:
        raise NotFound(f"{name}: no point of the grid has an orbit that is reached from its middle.")
