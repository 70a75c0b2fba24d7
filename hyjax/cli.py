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

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Gaits of hybrid systems: periodic orbits, their multipliers, pictures.",
)
reproduce = typer.Typer(no_args_is_help=True, help="Print a paper's numbers beside ours and an independent reference.")
app.add_typer(reproduce, name="reproduce")


class Misuse(Exception):
    """A request that cannot be understood: exit status 2."""


class NotFound(Exception):
    """A request that was understood, and has no answer: exit status 1."""


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


def _start_jax() -> None:
    """Float64, and compiled programs kept in the user's cache directory."""
    import jax
    import platformdirs

    cache = os.environ.get("HYJAX_CACHE_DIR") or platformdirs.user_cache_dir("hyjax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _load(name: str):
    from . import models

    try:
        return models.load(name)
    except ValueError as error:
        raise Misuse(str(error)) from None


def _number(text: str) -> float:
    """`0.1`, `2/3`, `3deg`, `0.05rad`."""
    import math

    value, scale = text.strip(), 1.0
    for suffix, factor in (("deg", math.pi / 180), ("rad", 1.0)):
        if value.endswith(suffix):
            value, scale = value.removesuffix(suffix), factor
    try:
        above, _, below = value.partition("/")
        return float(above) / (float(below) if below else 1.0) * scale
    except (ValueError, ZeroDivisionError):
        raise Misuse(f"--param: {text!r} is not a number. Write for example 0.009, 2/3 or 3deg.") from None


def _params(model, settings: list[str]):
    import dataclasses

    known = [field.name for field in dataclasses.fields(model.Params)]
    values = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise Misuse(f"--param: {setting!r} is not name=value, such as {known[0]}=0.1.")
        if name not in known:
            raise Misuse(f"--param: there is no parameter {name!r}. The parameters are: {', '.join(known)}.")
        values[name] = _number(text)
    try:
        params = model.Params(**values)
    except ValueError as error:
        raise Misuse(str(error)) from None
    return params, {name: float(getattr(params, name)) for name in known}


@app.command("models")
def show_models(name: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="one model's parameters")] = None):
    """List the models, or the parameters of one with units, defaults and meaning."""
    import dataclasses

    from rich.console import Console
    from rich.table import Table

    from . import models

    console = Console(width=max(Console().width, 100))
    if name is None:
        table = Table("model", "", "source", box=None, pad_edge=False)
        for each in models.names:
            model = models.load(each)
            table.add_row(each, model.title, model.source)
        console.print(table)
        return
    model = _load(name)
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
    name: Annotated[str, typer.Argument(metavar="MODEL")],
    param: Annotated[list[str] | None, typer.Option(help="name=value; angles in rad, or as 3deg")] = None,
    strides: Annotated[int, typer.Option(help="orbits that close after so many strides")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object, at full precision")] = False,
    plot: Annotated[Path | None, typer.Option(help="draw phase portrait, angles and multipliers to this file")] = None,
    animate: Annotated[Path | None, typer.Option(help="write an animation: .gif, .mp4 or .html")] = None,
):
    """Find all gaits of a model, without a guess, and print them."""
    if strides < 1:
        raise Misuse(f"--strides: {strides} must be at least 1.")
    _check_paths(plot, animate)
    _start_jax()
    model = _load(name)
    params, values = _params(model, param or [])

    import jax

    from ._search import find_orbits

    orbits = find_orbits(model.system, params, sequence=model.sequence, region=model.region(params), strides=strides)
    shown = jax.device_get(orbits)
    if len(orbits) == 0:
        setting = ", ".join(f"{key}={value:.6g}" for key, value in values.items())
        raise NotFound(
            f"{name}: no isolated periodic orbit of {strides} stride{'s' * (strides > 1)} at {setting}. "
            "Try other parameters (hyjax models MODEL lists them)."
        )
    if as_json:
        print(json.dumps(_as_json(name, model, values, shown)))
    else:
        from rich.console import Console

        Console(width=max(Console().width, 50 + 40 * len(orbits))).print(_table(model, values, shown))
    if plot is not None or animate is not None:
        _draw(model, orbits, plot, animate)


def _check_paths(plot: Path | None, animate: Path | None) -> None:
    """Whether the pictures asked for can be written, before anything is computed for them."""
    for path in (plot, animate):
        if path is not None and not path.absolute().parent.is_dir():
            raise Misuse(f"{path}: there is no directory {path.absolute().parent}.")
    try:
        if plot is not None:
            from .plot import pyplot

            kinds = pyplot().figure().canvas.get_supported_filetypes()
            if plot.suffix.lower().removeprefix(".") not in kinds:
                raise Misuse(
                    f"{plot}: the suffix {plot.suffix!r} names no kind of picture; use one of {', '.join(kinds)}."
                )
        if animate is not None:
            from .animate import animation_suffix

            animation_suffix(animate)
    except (ValueError, ImportError) as error:
        raise Misuse(str(error)) from None


def _draw(model, orbits, plot: Path | None, animate: Path | None) -> None:
    try:
        if plot is not None:
            from .plot import gait_figure

            gait_figure(orbits, model).savefig(plot, dpi=150)
        if animate is not None:
            from .animate import animate_orbit, save_animation

            save_animation(animate_orbit(orbits[0], model), animate)
    except (ValueError, ImportError, OSError) as error:
        raise Misuse(str(error)) from None


def _as_json(name: str, model, values: dict[str, float], orbits) -> dict:
    return {
        "model": name,
        "params": values,
        "state_names": list(model.coordinates),
        "orbits": [
            {
                "x0": [float(value) for value in orbit.x],
                "period": float(orbit.period),
                "multipliers": [[float(value.real), float(value.imag)] for value in orbit.multipliers],
                "spectral_radius": float(abs(orbit.multipliers).max()),
                "stable": bool(abs(orbit.multipliers).max() < 1),
                "residual": float(orbit.residual),
                "result": "successful",
            }
            for orbit in (orbits[i] for i in range(len(orbits)))
        ],
    }


def _table(model, values: dict[str, float], orbits):
    from rich.table import Table

    setting = ", ".join(f"{key} = {value:.10g}" for key, value in values.items())
    table = Table(title=f"{model.title}: {setting}", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("unit")
    for i in range(len(orbits)):
        table.add_column(f"gait {i + 1}", justify="right")
    rows = [orbits[i] for i in range(len(orbits))]
    for k, (state, unit) in enumerate(zip(model.coordinates, model.units, strict=True)):
        table.add_row(state, unit, *(f"{float(orbit.x[k]):+.15f}" for orbit in rows))
    table.add_row("period", model.time_unit, *(f"{float(orbit.period):.14f}" for orbit in rows))
    for k in range(len(model.coordinates)):
        table.add_row(f"multiplier {k + 1}", "1", *(_complex(complex(orbit.multipliers[k])) for orbit in rows))
    table.add_row("spectral radius", "1", *(f"{abs(orbit.multipliers).max():.13f}" for orbit in rows))
    table.add_row("stable", "", *("yes" if abs(orbit.multipliers).max() < 1 else "no" for orbit in rows))
    table.add_row("residual", "", *(f"{float(orbit.residual):.1e}" for orbit in rows))
    return table


def _complex(value: complex) -> str:
    # Adding zero turns -0.0, and what rounds to it, into 0.0.
    real, imag = (round(part, 13) + 0.0 for part in (value.real, value.imag))
    return f"{real:+.13f}" if imag == 0 else f"{real:+.13f} {imag:+.13f}i"


@reproduce.command("bhounsule")
def reproduce_bhounsule():
    """Bhounsule (2014): the rimless wheel and the simplest walker, to the last digit."""
    _start_jax()
    from ._reproduce import bhounsule

    bhounsule()
