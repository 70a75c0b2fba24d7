"""The command line: one Typer application, whose commands are the files `NAME_command.py` of all folders of hyjax.

A command is imported when it is used: those of rooms that it does not need take a second. `NAME` is its function, with an
underscore behind it if Python reserves the word.
"""

import functools as ft
import importlib
import importlib.util
import keyword
import os
import pathlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

if importlib.util.find_spec("typer") is None:
    sys.exit("The command line needs typer: pip install 'hyjax-dynamics[cli]'.")

import typer

from .._results.registry import version as installed_version
from .arguments import Misuse, NotFound
from .own_module import OwnModel

app = typer.Typer(
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Simulation and stability analysis of hybrid dynamical systems: periodic orbits, multipliers, branches, sweeps, "
    "optimal gaits, certificates. Every command that takes a MODEL takes a system of your own too, as path/to/wheel.py:system.",
)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: Annotated[bool, typer.Option("--version", help="print the version")] = False):
    if version:
        print(f"hyjax {installed_version()}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


class Commands(Mapping[str, Any]):
    """The commands by name, in the order of the names."""

    def __init__(self):
        found = pathlib.Path(__file__).parents[1].glob("*/*_command.py")
        self.folders = {path.stem.removesuffix("_command"): path.parent.name for path in found}

    def __getitem__(self, name: str) -> Any:
        module = importlib.import_module(f"...{self.folders[name]}.{name}_command", __name__)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(getattr(module, f"{name}_" if keyword.iskeyword(name) else name))
        command: Any = typer.main.get_command(alone)
        command.make_parser = ft.partial(_each_once, command.make_parser)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.folders))

    def __len__(self) -> int:
        return len(self.folders)


def _each_once(make_parser: Callable[[Any], Any], context: Any) -> Any:
    """The parser of a command. An option of one value that is given twice is misuse, where click takes the last."""
    parser = make_parser(context)
    parse = parser.parse_args

    def parse_args(args: list[str]) -> tuple:
        found = *_, order = parse(args)
        for option, times in Counter(order).items():
            if times > 1 and option.nargs == 1 and not option.multiple and not option.is_flag:
                raise Misuse(
                    f"{max(option.opts, key=len)} is given {times} times, but takes one value. What is a list is written with "
                    f"commas. See {context.command_path} --help."
                )
        return found

    parser.parse_args = parse_args
    return parser


def application() -> Any:
    """The command line as a click group."""
    group: Any = typer.main.get_command(app)
    group.commands = Commands()
    return group


def run() -> None:
    """Run the command line. Errors are one or two lines on stderr; exit status 2 for misuse, 1 for no result."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"hyjax: {message}", file=sys.stderr)
            application()(prog_name="hyjax", standalone_mode=False)
            sys.stdout.flush()  # here, where a reader that has gone is no error
    except Misuse as error:
        _stop(str(error), 2)
    except NotFound as error:
        _stop(str(error), 1)
    except BrokenPipeError:
        # The reader has gone, to whom Python would write once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if isinstance(getattr(error, "obj", None), OwnModel):
            _stop(str(error), 2)
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
