"""The command line: parse, call one public function, print."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Annotated

_MISSING = [name for name in ("typer", "rich", "platformdirs") if importlib.util.find_spec(name) is None]
if _MISSING:
    sys.exit(f"The command line needs {', '.join(_MISSING)}: pip install 'hyjax-dynamics[cli]'.")

import typer  # noqa: E402

from .arguments import (  # noqa: E402
    as_misuse,
    check_paths,
    finite,
    first_state,
    found_orbits,
    load,
    Misuse,
    modes_in_turn,
    NotFound,
    parameters,
    start_jax,
)
from .attractor import attractor  # noqa: E402
from .basin import basin  # noqa: E402
from .continuation import follow  # noqa: E402
from .options import Animate, FullJson, Model, Sequence, Strides  # noqa: E402
from .output import orbits_record, orbits_table, trajectory_record  # noqa: E402
from .sweep import sweep  # noqa: E402

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Gaits of hybrid systems: periodic orbits, their multipliers, pictures.",
)
reproduce = typer.Typer(no_args_is_help=True, help="Print a paper's numbers beside ours and an independent reference.")
app.add_typer(reproduce, name="reproduce")


def main() -> None:
    """Run the command line. Errors go to stderr in a line or two; exit status 2 for misuse, 1 for failure to find."""
    try:
        app(standalone_mode=False)
    except Misuse as error:
        _stop(str(error), 2)
    except NotFound as error:
        _stop(str(error), 1)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        # click's usage errors know how to say what was wrong; anything else is a bug, and shows its traceback.
        if not hasattr(error, "format_message"):
            raise
        _stop(error.format_message(), 2)  # pyright: ignore


def _stop(message: str, status: int) -> None:
    print(f"hyjax: {message}", file=sys.stderr)
    sys.exit(status)


@app.command("models")
def show_models(name: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="one model's parameters")] = None):
    """List the models, or the parameters of one with units, defaults and meaning."""
    import dataclasses

    from rich.console import Console
    from rich.table import Table

    from .. import models

    console = Console(width=max(Console().width, 100))
    if name is None:
        table = Table("model", "", "source", box=None, pad_edge=False)
        for each in models.names:
            model = models.load(each)
            table.add_row(each, model.title, model.source)
        console.print(table)
        return
    model = load(name)
    table = Table("parameter", "default", "unit", "meaning", box=None, pad_edge=False)
    for field in dataclasses.fields(model.Params):
        about = field.metadata
        table.add_row(field.name, f"{about['default']:.10g}", about["unit"], about["meaning"])
    console.print(f"{model.title}. {model.source}", highlight=False)
    console.print(table, highlight=False)
    states = ", ".join(f"{state} ({unit})" for state, unit in zip(model.coordinates, model.units, strict=True))
    console.print(f"state: {states}; time ({model.time_unit})", highlight=False)


@app.command()
def gait(
    name: Model,
    param: Annotated[list[str] | None, typer.Option(help="name=value; angles in rad, or as 3deg")] = None,
    strides: Strides = 1,
    sequence: Sequence = None,
    as_json: FullJson = False,
    plot: Annotated[Path | None, typer.Option(help="draw phase portrait, angles and multipliers to this file")] = None,
    animate: Animate = None,
):
    """Find all gaits of a model, without a guess, and print them."""
    if strides < 1:
        raise Misuse(f"--strides: {strides} must be at least 1.")
    check_paths(plot, animate)
    cache = start_jax()
    model = load(name)
    params, values = parameters(model, param or [])
    along = modes_in_turn(model, sequence)

    import jax

    orbits = found_orbits(model, name, params, along, strides, cache)
    shown = jax.device_get(orbits)
    if len(orbits) == 0:
        setting = ", ".join(f"{key}={value:.6g}" for key, value in values.items())
        raise NotFound(
            f"{name}: no isolated periodic orbit of {strides} stride{'s' * (strides > 1)} at {setting}. "
            "Try other parameters (hyjax models MODEL lists them)."
        )
    if as_json:
        print(json.dumps(orbits_record(name, model, values, shown)))
    else:
        from rich.console import Console

        Console(width=max(Console().width, 50 + 40 * len(orbits))).print(orbits_table(model, values, shown))
    if plot is not None or animate is not None:
        _draw(model, orbits, plot, animate)


def _draw(model, orbits, plot: Path | None, animate: Path | None) -> None:
    with as_misuse():
        if plot is not None:
            from ..plot.gait import gait_figure

            gait_figure(orbits, model).savefig(plot, dpi=150)
        if animate is not None:
            from ..plot.animate import animate_orbit, save_animation

            save_animation(animate_orbit(orbits[0], model), animate)


@app.command()
def simulate(
    name: Model,
    t1: Annotated[str, typer.Option(help="end time, in the model's unit")],
    param: Annotated[list[str] | None, typer.Option(help="name=value; angles in rad, or as 3deg")] = None,
    x0: Annotated[str | None, typer.Option(help="first state, as 1.0,0.5; by default the model's")] = None,
    mode: Annotated[str | None, typer.Option(help="first mode; by default the model's")] = None,
    max_jumps: Annotated[int, typer.Option(help="the most jumps")] = 100,
    as_json: FullJson = False,
    plot: Annotated[Path | None, typer.Option(help="draw the coordinates over time to this file")] = None,
    animate: Animate = None,
    out: Annotated[Path | None, typer.Option(help="write samples and events to this file, trajectory.nc")] = None,
):
    """Simulate a model through whatever modes come, and print its arcs."""
    check_paths(plot, animate, out)
    start_jax()
    model = load(name)
    params, values = parameters(model, param or [])
    first, state = first_state(model, params, mode, x0)

    from .._flow.simulate import simulate as run
    from .._system.results import code_name

    with as_misuse():
        trajectory = run(model.system, state, params, mode=first, t1=finite(t1, "--t1"), max_jumps=max_jumps)
    if as_json:
        print(json.dumps(trajectory_record(name, values, trajectory)))
    else:
        print(trajectory)
    with as_misuse():
        if plot is not None:
            from ..plot.trajectory import trajectory_figure

            trajectory_figure(trajectory, model).savefig(plot, dpi=150)
        if animate is not None:
            from ..plot.animate import animate_trajectory, save_animation

            save_animation(animate_trajectory(trajectory, model), animate)
        if out is not None:
            trajectory.to_xarray().to_netcdf(out, engine="scipy")
    if (code := code_name(trajectory.result)) != "successful":
        raise NotFound(
            f"{name}: ended at t = {float(trajectory.t):.6g} with {code}: {trajectory.result._enumeration[trajectory.result]}"
        )


app.command("continue")(follow)
app.command()(sweep)
app.command()(attractor)
app.command()(basin)


@reproduce.command("bhounsule")
def reproduce_bhounsule():
    """Bhounsule (2014): the rimless wheel and the simplest walker, to the last digit."""
    start_jax()
    from .reproduce.bhounsule import bhounsule

    bhounsule()


@reproduce.command("saltation")
def reproduce_saltation():
    """Kong, Payne, Zhu, Johnson (2024): saltation matrices of contact, eqs. 51-58 and 70-94."""
    start_jax()
    from .reproduce.saltation import saltation

    saltation()
