"""The command `fit`: parameters of a model from recorded data."""

import json
from pathlib import Path
from typing import Annotated

import typer

from .arguments import (
    as_misuse,
    check_parameter,
    initial_condition,
    load,
    Misuse,
    NotFound,
    parse_finite,
    parse_parameters,
)
from .options import Json, Model, Overwrite, Param
from .output import check_files, nested_lists, save_figure, save_netcdf
from .process import start_jax
from .quantities import parse_bounds


def fit(
    name: Model,
    data: Annotated[
        Path,
        typer.Argument(
            help="CSV file with the column time, columns of coordinates, and event: * for an event, empty for a sample; of the "
            "column time alone every row is an event"
        ),
    ],
    over: Annotated[
        list[str], typer.Option(help="parameter to fit, as name, or within bounds as name=low:high; repeat for several")
    ],
    noise: Annotated[
        list[str] | None,
        typer.Option(help="standard deviation, as 0.01, or of a column, as time=0.002; repeat for several"),
    ] = None,
    param: Param = None,
    x0: Annotated[str | None, typer.Option(help="state at the start, as 1.0,0.5; default: the model's")] = None,
    mode: Annotated[str | None, typer.Option(help="mode at the start; default: the model's")] = None,
    strides: Annotated[bool, typer.Option("--strides", help="every row is the state after one stride")] = False,
    multiple: Annotated[
        bool, typer.Option("--multiple", help="a free state at every event: for long and chaotic records")
    ] = False,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="draw data, model and residuals to this file")] = None,
    out: Annotated[
        Path | None, typer.Option(help="write values, errors and residuals to this netCDF file, as fit.nc")
    ] = None,
    overwrite: Overwrite = False,
):
    """Fit parameters of a model to recorded data. Print them with their standard errors and intervals of 95 %."""
    check_files(plot, None, out, overwrite=overwrite)
    start_jax()
    model = load(name)
    params, values = parse_parameters(model, param)
    names = [each.partition("=")[0] for each in over]
    for each in names:
        check_parameter(model, each, "--over")
    if len({*names}) < len(names):
        raise Misuse(f"--over: {', '.join(names)} names a parameter twice. Name each once.")
    bounds = parse_bounds(model, [each for each in over if "=" in each], values)
    if not data.exists():
        raise Misuse(f"{data}: there is no such file.")
    first, state = initial_condition(model, params, mode, x0)

    from .._fit.fit import fit as run
    from .._fit.fitted import fit_table
    from .._orbit.shooting import MultipleShooting, SingleShooting
    from .._system.results import described_code

    shooting = MultipleShooting() if multiple else SingleShooting()
    lens = lambda params: tuple(getattr(params, each) for each in names)
    with as_misuse():
        found = run(
            model.step if strides else model.system, data, params, over=lens, x0=state, mode=None if strides else first,
            noise=parse_noise(noise), bounds=[bounds.get(each) for each in names], shooting=shooting, throw=False,
        )  # fmt: skip
    if as_json:
        print(json.dumps(fit_record(name, values, found)))
    else:
        print(
            fit_table(found)
            ._replace(caption=f"{model.title}: {found.records[0].values.shape[0]} rows of {data}")
            .text()
        )
    if plot is not None:
        from ..plot.estimates_figure import fit_figure

        save_figure(plot, lambda: fit_figure(found))
    if out is not None:
        save_netcdf(found.to_xarray(), out)
    if found.result != "successful":
        raise NotFound(f"{name}: {described_code(found.result)}")


def parse_noise(texts: list[str] | None) -> float | dict[str, float] | None:
    """The standard deviations given as `value` or `column=value`."""
    if not texts:
        return None
    pairs = [text.rpartition("=") for text in texts]
    if [name for name, *_ in pairs] == [""]:
        return parse_finite(texts[0], "--noise")
    if any(not name for name, *_ in pairs):
        raise Misuse(f"--noise: {', '.join(texts)} must be one number, or column=value for each column.")
    return {name: parse_finite(value, f"--noise {name}") for name, _, value in pairs}


def fit_record(name: str, values: dict[str, float], found) -> dict:
    """The JSON record of a fit; a number that is not finite becomes null."""
    return {
        "model": name,
        "params": values,
        "fitted": dict(zip(found.names, nested_lists(found.values), strict=True)),
        "standard_errors": dict(zip(found.names, nested_lists(found.standard_errors), strict=True)),
        "covariance": nested_lists(found.covariance),
        "chi_square": float(found.chi_square),
        "degrees": int(found.degrees),
        "deviation": float(found.deviation),
        "undetermined": found.undetermined,
        "residuals": {"quantities": list(found.quantities), "rows": nested_lists(found.residuals[0])},
        "result": str(found.result),
    }
