"""Output files of a command: checked before the computation, written after it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import as_misuse, Misuse, NotFound

if TYPE_CHECKING:
    import matplotlib.figure


def check_files(
    plot: Path | None, animate: Path | None = None, out: Path | None = None, *, overwrite: bool = False
) -> None:
    """Check that files can be written. `Misuse` for an unknown format, a missing directory, a missing package, or a file that
    exists and is not to be overwritten."""
    if out is not None and out.suffix != ".nc":
        raise Misuse(
            f"{out}: the format is netCDF; name the file with the suffix .nc, as in {out.stem or 'result'}.nc."
        )
    for path in (plot, animate, out):
        if path is not None:
            check_directory(path)
            if path.exists() and not overwrite:
                raise Misuse(f"{path}: the file exists already. Give --overwrite to replace it, or another path.")
    with as_misuse():
        if plot is not None:
            from ..plot.figure import pyplot

            kinds = pyplot().figure().canvas.get_supported_filetypes()
            pyplot().close()
            if plot.suffix.lower().removeprefix(".") not in kinds:
                raise Misuse(f"{plot}: {plot.suffix!r} is not a picture format; use one of {', '.join(kinds)}.")
        if out is not None:
            import xarray  # noqa: F401
        if animate is not None:
            from ..plot.animate import animation_suffix

            animation_suffix(animate)


def check_directory(path: Path) -> None:
    """Check that the directory of a file exists. `Misuse` if not."""
    if not path.absolute().parent.is_dir():
        raise Misuse(f"{path}: there is no directory {path.absolute().parent}.")


def require_output(as_json: bool, out: Path | None, plot: Path | None, example: str) -> None:
    """Check that an output is requested. `Misuse` if not. **Arguments:** `example`: a file name for `--out` in the message."""
    if out is None and plot is None and not as_json:
        stem = example.partition(".")[0]
        raise Misuse(f"no output requested: give --out {example}, --plot {stem}.png or --json.")


def save_figure(path: Path | None, draw: Callable[[], "matplotlib.figure.Figure"]) -> None:
    """Draw a picture and write it, if `path` is given."""
    if path is not None:
        with as_misuse():
            draw().savefig(path, dpi=150)
        tell_written(path)


def save_netcdf(found, path: Path | None) -> None:
    """Write a dataset as netCDF, if `path` is given. `NotFound` where writing fails."""
    if path is not None:
        try:
            found.to_netcdf(path, engine="scipy")
        except (OSError, ValueError, TypeError) as error:
            raise NotFound(f"{path}: could not be written ({error}).") from None
        tell_written(path)


def tell_written(path: Path) -> None:
    """Print the name of a file that was written; on stderr, because stdout may be JSON."""
    print(f"hyjax: wrote {path}", file=sys.stderr)
