"""The command line: one Typer application, a file for each command."""

import importlib.util
import os
import sys
import warnings
from typing import Annotated

_MISSING = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
if _MISSING:
    sys.exit(f"The command line needs {', '.join(_MISSING)}: pip install 'hyjax-dynamics[cli]'.")

import typer  # noqa: E402

from .._results import version as installed  # noqa: E402
from .arguments import Misuse, NotFound  # noqa: E402
from .attractor_command import attractor  # noqa: E402
from .basin_command import basin  # noqa: E402
from .certify import certify  # noqa: E402
from .continue_command import follow_branches  # noqa: E402
from .gait_command import gait  # noqa: E402
from .models_command import models  # noqa: E402
from .optimize_command import optimize  # noqa: E402
from .simulate_command import simulate  # noqa: E402
from .sweep_command import sweep  # noqa: E402

app = typer.Typer(
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Simulation and stability analysis of hybrid dynamical systems: periodic orbits, multipliers, branches, sweeps, "
    "optimal gaits, certificates. Every command that takes a MODEL takes a system of your own too, as path/to/wheel.py:system.",
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
):
    if version:
        print(f"hyjax {installed.version()}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


app.command()(models)
app.command()(gait)
app.command()(simulate)
app.command("continue")(follow_branches)
app.command()(optimize)
app.command()(sweep)
app.command()(attractor)
app.command()(basin)
app.command()(certify)


def run() -> None:
    """Run the command line. Errors are one or two lines on stderr; exit status 2 for misuse, 1 for no result."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"hyjax: {message}", file=sys.stderr)
            app(prog_name="hyjax", standalone_mode=False)
            sys.stdout.flush()  # here, where a reader that has gone is no error
    except Misuse as error:
        _stop(str(error), 2)
    except NotFound as error:
        _stop(str(error), 1)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        # click's usage errors can format themselves; any other exception is a defect, and keeps its traceback.
        if not hasattr(error, "format_message"):
            raise
        _stop(_usage_message(error), 2)


def _usage_message(error) -> str:
    """The message of click's usage error, with the value that typer's check of types refuses, and where the help is."""
    said = error.format_message()
    if "\n" in said:  # a group of commands without a command: its help
        return said
    # Typer 0.29 checks types by pydantic, whose message lacks the value; that of click has it.
    found = getattr(error.__cause__, "errors", list)()
    said += f": {found[0]['input']!r}" if found else ""
    place = f" See {error.ctx.command_path} --help." if getattr(error, "ctx", None) else ""
    return f"{said}{'' if said.endswith(('.', '?')) else '.'}{place}"


def _stop(message: str, status: int) -> None:
    print(f"hyjax: {message}", file=sys.stderr)
    sys.exit(status)
