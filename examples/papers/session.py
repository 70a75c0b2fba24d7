"""Setting and options of the scripts: float64, compiled programs kept on disk, pictures whose format is checked first."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jax

import hyjax as hj
from hyjax.plot.figure import pyplot

if TYPE_CHECKING:
    import matplotlib.figure

# Before a module of this folder makes an array.
jax.config.update("jax_enable_x64", True)


def options(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options of a script, by default those of its command line. Compiled programs are kept on disk for the next run."""
    given = parser.parse_args(arguments)
    hj.enable_cache()
    return given


def picture(text: str) -> Path:
    """The path of a picture in a format that matplotlib writes, in a folder that exists."""
    path = Path(text)
    kinds = pyplot().figure().canvas.get_supported_filetypes()
    pyplot().close()
    if path.suffix.lower().removeprefix(".") not in kinds:
        raise argparse.ArgumentTypeError(
            f"{path}: {path.suffix!r} is not a picture format; use one of {', '.join(kinds)}."
        )
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: there is no folder {path.absolute().parent}.")
    return path


def save_figure(path: Path | None, draw: Callable[[], "matplotlib.figure.Figure"]) -> None:
    """Draw a picture and write it, if `path` is given. Its name goes to stderr, because stdout may be JSON."""
    if path is not None:
        draw().savefig(path, dpi=150)
        print(f"wrote {path}", file=sys.stderr)
