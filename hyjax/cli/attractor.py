"""The command attractor."""

from pathlib import Path
from typing import Annotated

import typer

from .arguments import as_misuse, check_paths, load, Misuse, modes_in_turn, NotFound, number, start_jax
from .grid import counts_of, grid_of, integrator_of, Json, listed, Param, start_of, tell, Where, write
from .options import Model, Sequence


def attractor(
    name: Model,
    where: Where,
    out: Annotated[Path | None, typer.Option(help="write to this file, attractor.nc")] = None,
    param: Param = None,
    strides: Annotated[int, typer.Option(help="how many in all; the first half is not measured")] = 1000,
    keep: Annotated[int, typer.Option(help="how many of the last states are kept")] = 128,
    x0: Annotated[str | None, typer.Option(help="first state, as 1.0,0.5; by default near the model's orbit")] = None,
    sequence: Sequence = None,
    tolerance: Annotated[float | None, typer.Option(help="of the integrator, by default 1e-9")] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw the bifurcation diagram to this file")] = None,
):
    """Iterate the strides of a model over a grid of parameters: long-run states, periods, Lyapunov exponents."""
    check_paths(plot, None, out)
    if out is None and plot is None and not as_json:
        raise Misuse("say what to make of it: --out attractor.nc, --plot attractor.png or --json.")
    integrator = integrator_of(tolerance)
    cache = start_jax()
    model = load(name)
    params, lens, values, setting = grid_of(model, where, param)
    along = modes_in_turn(model, sequence)

    import jax.numpy as jnp

    from .._sweep.attractor import attractor as run

    if x0 is None:
        start = start_of(model, name, params, setting, along, 1, 1, cache)
    else:
        start = jnp.array([number(each, "--x0") for each in x0.split(",")])
    with as_misuse():
        found = run(
            model.system, start, params, where=lens, values=values, sequence=along, strides=strides, keep=keep,
            integrator=integrator,
        )  # fmt: skip
    import numpy as np

    periods, times = np.unique(found["period"].values[found["result"].values == 0], return_counts=True)
    counts = counts_of(found)
    record = {
        "model": name,
        "points": int(found["result"].size),
        "results": counts,
        "periods": {str(period): int(count) for period, count in zip(periods, times, strict=True)},
        "chaotic": int((found["lyapunov"] > 0).sum()),
    }
    if as_json:
        record["axes"] = {dim: found[dim].values.tolist() for dim in found["result"].dims if dim in found.coords}
        record |= {"period": found["period"].values.tolist(), "lyapunov": listed(found["lyapunov"].values)}
    tell(record, as_json)
    write(found, out)
    if plot is not None:
        from ..plot.sweep import attractor_figure

        with as_misuse():
            attractor_figure(found).savefig(plot, dpi=150)
    if counts.get("successful", 0) == 0:
        raise NotFound(f"{name}: no start lasts {strides} strides anywhere on the grid.")
