"""The commands sweep, attractor and basin."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ._request import check_paths, found_orbits, load, Misuse, modes_in_turn, NotFound, number, parameters, start_jax

Model = Annotated[str, typer.Argument(metavar="MODEL")]
Param = Annotated[list[str] | None, typer.Option(help="name=value of the others; angles in rad, or as 3deg")]
Sequence = Annotated[str | None, typer.Option(help="modes in turn, as first,second; by default the model's")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object: a summary, and the coordinates of failures")]


def add_to(app: typer.Typer) -> None:
    """Give the commands to the command line."""
    app.command("sweep")(sweep)
    app.command("attractor")(attractor)
    app.command("basin")(basin)


def axis(text: str, option: str):
    """`name=low:high:count`, or `name=value`: the name and the values."""
    import numpy as np

    name, equals, span = text.partition("=")
    parts = span.split(":")
    if not equals or len(parts) not in (1, 3):
        raise Misuse(f"{option}: {text!r} is not name=low:high:count, such as slope=0.001:0.015:1000.")
    if len(parts) == 1:
        return name, np.array([number(span, option)])
    low, high = (number(part, option) for part in parts[:2])
    if not parts[2].isdigit() or int(parts[2]) < 1:
        raise Misuse(f"{option}: {parts[2]!r} is not a count of points.")
    if low == high and int(parts[2]) > 1:
        raise Misuse(f"{option}: {text!r} has one value only; write {name}={parts[0]}.")
    return name, np.linspace(low, high, int(parts[2]))


def _grid(model, where: list[str], param: list[str] | None, option: str = "--where"):
    """Parameters where orbits are searched: in the middle of the grid; the lens; the values; everything by name."""
    axes = dict(axis(each, option) for each in where)
    if len(axes) < len(where):
        raise Misuse(f"{option}: a parameter is given twice.")
    middle = [f"{name}={float(values[len(values) // 2])!r}" for name, values in axes.items()]
    params, values = parameters(model, [*(param or []), *middle])
    names = tuple(axes)
    lens = lambda params: tuple(getattr(params, name) for name in names)
    return params, lens, tuple(axes.values()), values


def _start(model, name: str, params, values, sequence, strides: int, orbit: int, cache: str):
    orbits = found_orbits(model, name, params, sequence, strides, cache)
    setting = ", ".join(f"{key}={value:.6g}" for key, value in values.items())
    if len(orbits) == 0:
        raise NotFound(f"{name}: no isolated periodic orbit of {strides} stride(s) at {setting}, to start from.")
    if not 1 <= orbit <= len(orbits):
        raise Misuse(f"--orbit: {orbit}, but there are {len(orbits)} orbits at {setting} (in the order of hyjax gait).")
    return orbits[orbit - 1]


def _units(model) -> dict[str, str]:
    return dict(zip(model.coordinates, model.units, strict=True)) | {"time": model.time_unit}


def _integrator(tolerance: float | None):
    from ._integrator import Integrator

    try:
        return None if tolerance is None else Integrator(rtol=tolerance, atol=tolerance)
    except ValueError as error:
        raise Misuse(f"--tolerance: {error}") from None


def _counts(found) -> dict[str, int]:
    """How many points ended with each code."""
    import numpy as np

    names = found["result"].attrs["flag_meanings"].split()
    flags = list(found["result"].attrs["flag_values"])
    codes, counts = np.unique(found["result"].values, return_counts=True)
    return {names[flags.index(int(code))]: int(count) for code, count in zip(codes, counts, strict=True)}


def _told(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(record))
        return
    width = max(len(key) for key in record)
    for key, value in record.items():
        shown = ", ".join(f"{each} {number}" for each, number in value.items()) if isinstance(value, dict) else value
        print(f"{key.replace('_', ' '):<{width}}  {shown}")


def sweep(
    name: Model,
    where: Annotated[list[str], typer.Option(help="name=low:high:count, a parameter to vary; may be repeated")],
    out: Annotated[Path | None, typer.Option(help="the zarr store to write, sweep.zarr")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the store that is there")] = False,
    param: Param = None,
    strides: Annotated[int, typer.Option(help="orbits that close after so many strides")] = 1,
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
    integrator = _integrator(tolerance)
    cache = start_jax()
    model = load(name)
    params, lens, values, setting = _grid(model, where, param)
    along = modes_in_turn(model, sequence)
    start = _start(model, name, params, setting, along, strides, orbit, cache)

    from ._store import StoreError
    from ._sweep import sweep as run

    try:
        found = run(
            model.system, start, where=lens, values=values, out=out, resume=resume, integrator=integrator, chunk=chunk,
            units=_units(model),
        )  # fmt: skip
    except StoreError as error:
        raise NotFound(str(error)) from None
    except (ValueError, ImportError) as error:
        raise Misuse(str(error)) from None
    found = found.load()
    counts = _counts(found)
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
        clean = lambda name: _listed(found[name].values)
        record |= {each: clean(each) for each in ("x", "period", "multipliers_real", "multipliers_imag")}
    _told(record, as_json)
    if plot is not None:
        from .plot_sweep import sweep_figure

        _save(lambda: sweep_figure(found), plot)
    if orbits == 0:
        raise NotFound(f"{name}: no point of the grid has an orbit that is reached from its middle.")


def attractor(
    name: Model,
    where: Annotated[list[str], typer.Option(help="name=low:high:count, a parameter to vary; may be repeated")],
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
    integrator = _integrator(tolerance)
    cache = start_jax()
    model = load(name)
    params, lens, values, setting = _grid(model, where, param)
    along = modes_in_turn(model, sequence)

    import jax.numpy as jnp

    from ._attractor import attractor as run

    if x0 is None:
        start = _start(model, name, params, setting, along, 1, 1, cache)
    else:
        start = jnp.array([number(each, "--x0") for each in x0.split(",")])
    try:
        found = run(
            model.system, start, params, where=lens, values=values, sequence=along, strides=strides, keep=keep,
            integrator=integrator,
        )  # fmt: skip
    except (ValueError, ImportError) as error:
        raise Misuse(str(error)) from None
    import numpy as np

    periods, times = np.unique(found["period"].values[found["result"].values == 0], return_counts=True)
    counts = _counts(found)
    record = {
        "model": name,
        "points": int(found["result"].size),
        "results": counts,
        "periods": {str(period): int(count) for period, count in zip(periods, times, strict=True)},
        "chaotic": int((found["lyapunov"] > 0).sum()),
    }
    if as_json:
        record["axes"] = {dim: found[dim].values.tolist() for dim in found["result"].dims if dim in found.coords}
        record |= {"period": found["period"].values.tolist(), "lyapunov": _listed(found["lyapunov"].values)}
    _told(record, as_json)
    _written(found, out)
    if plot is not None:
        from .plot_sweep import attractor_figure

        _save(lambda: attractor_figure(found), plot)
    if counts.get("successful", 0) == 0:
        raise NotFound(f"{name}: no start lasts {strides} strides anywhere on the grid.")


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
    integrator = _integrator(tolerance)
    cache = start_jax()
    model = load(name)
    params, setting = parameters(model, param or [])
    along = modes_in_turn(model, sequence)

    import numpy as np

    from ._basin import basin as run

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
    try:
        found = run(
            model.system, params, sequence=along, axes=axes, start=section, orbits=orbits[stable] if len(stable) else None,
            fates=getattr(model, "fates", None), strides=strides, integrator=integrator,
        )  # fmt: skip
    except (ValueError, ImportError) as error:
        raise Misuse(str(error)) from None
    meanings = found["fate"].attrs["flag_meanings"].split()
    counts = np.bincount(found["fate"].values.ravel(), minlength=len(meanings))
    record: dict[str, Any] = {"model": name, "params": setting, "points": int(found["fate"].size)}
    record["fates"] = {each.replace("_", " "): int(count) for each, count in zip(meanings, counts, strict=True)}
    if as_json:
        record["axes"] = {dim: found[dim].values.tolist() for dim in found["fate"].dims}
        record["fate"] = found["fate"].values.tolist()
    _told(record, as_json)
    _written(found, out)
    if plot is not None:
        from .plot_sweep import basin_figure

        _save(lambda: basin_figure(found).figure, plot)


def _listed(values):
    """Nested lists, with null for what is not a number."""
    import numpy as np

    return np.asarray(np.where(np.isfinite(values), values, None)).tolist()


def _written(found, out: Path | None) -> None:
    if out is not None:
        try:
            found.to_netcdf(out, engine="scipy")
        except (OSError, ValueError, TypeError) as error:
            raise NotFound(f"{out}: could not be written ({error}).") from None


def _save(draw, path: Path) -> None:
    try:
        draw().savefig(path, dpi=150)
    except (ValueError, ImportError, OSError) as error:
        raise Misuse(str(error)) from None
