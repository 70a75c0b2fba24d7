"""The command basin."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .arguments import as_misuse, check_paths, found_orbits, load, Misuse, modes_in_turn, parameters, start_jax
from .grid import axis, integrator_of, Json, Param, tell, write
from .options import Model, Sequence


def basin(
    name: Model,
    over: Annotated[
        list[str] | None, typer.Option(help="name=low:high:count, two coordinates; by default the model's")
    ] = None,
    points: Annotated[int, typer.Option(help="how many along each axis, where --over does not say")] = 300,
    out: Annotated[Path | None, typer.Option(help="write to this file, basin.nc")] = None,
    param: Param = None,
    strides: Annotated[int, typer.Option(help="the most")] = 100,
    sequence: Sequence = None,
    tolerance: Annotated[float | None, typer.Option(help="of the integrator, by default 1e-8")] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw the fates to this file")] = None,
):
    """Classify a plane of starts by what becomes of them: which stable orbit, or which fall."""
    check_paths(plot, None, out)
    if out is None and plot is None and not as_json:
        raise Misuse("say what to make of it: --out basin.nc, --plot basin.png or --json.")
    if points < 2 or strides < 1:
        raise Misuse("--points must be at least 2 and --strides at least 1.")
    integrator = integrator_of(tolerance)
    cache = start_jax()
    model = load(name)
    params, setting = parameters(model, param or [])
    along = modes_in_turn(model, sequence)

    import numpy as np

    from .._sweep.basin import basin as run

    plane = getattr(model, "plane", None)
    section = getattr(model, "on_section", None)
    if over:
        axes = dict(axis(each, "--over") for each in over)
    elif plane is None:
        raise Misuse(
            f"{name}: this model names no plane of starts: give --over for each of {', '.join(model.coordinates)}."
        )
    else:
        axes = {each: np.linspace(low, high, points) for each, (low, high) in plane.items()}
    if section is not None and plane is not None and tuple(axes) != tuple(plane):
        raise Misuse(f"--over: the starts of {name} lie on the plane of {' and '.join(plane)}, in this order.")
    orbits = found_orbits(model, name, params, along, 1, cache)
    stable = np.flatnonzero(np.asarray(orbits.stable)) if len(orbits) else []
    with as_misuse():
        found = run(
            model.system, params, sequence=along, axes=axes, start=section, orbits=orbits[stable] if len(stable) else None,
            fates=getattr(model, "fates", None), strides=strides, integrator=integrator,
        )  # fmt: skip
    meanings = found["fate"].attrs["flag_meanings"].split()
    counts = np.bincount(found["fate"].values.ravel(), minlength=len(meanings))
    record: dict[str, Any] = {"model": name, "params": setting, "points": int(found["fate"].size)}
    record["fates"] = {each.replace("_", " "): int(count) for each, count in zip(meanings, counts, strict=True)}
    if as_json:
        record["axes"] = {dim: found[dim].values.tolist() for dim in found["fate"].dims}
        record["fate"] = found["fate"].values.tolist()
    tell(record, as_json)
    write(found, out)
    if plot is not None:
        from ..plot.sweep import basin_figure

        with as_misuse():
            basin_figure(found).figure.savefig(plot, dpi=150)  # pyright: ignore
