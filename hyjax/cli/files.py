"""The files that a command writes: checked before the computation, written after it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import as_misuse, Misuse, NotFound

if TYPE_CHECKING:
    import matplotlib.figure


def check_files(plot: Path | None, animate: Path | None = None, out: Path | None = None) -> None:
    """`Misuse` for a file that cannot be written: an unknown format, a missing directory, a missing package."""
    if out is not None and out.suffix != ".nc":
        raise Misuse(
            f"{out}: the format is netCDF; name the file with the suffix .nc, as in {out.stem or 'result'}.nc."
        )
    for path in (plot, animate, out):
        if path is not None:
            check_directory(path)
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
    """`Misuse` for a file in a directory that does not exist."""
    if not path.absolute().parent.is_dir():
        raise Misuse(f"{path}: there is no directory {path.absolute().parent}.")


def require_output(as_json: bool, out: Path | None, plot: Path | None, example: str) -> None:
    """`Misuse` for a command whose result would be discarded. **Arguments:** `example`: a name for the file of `--out`."""
    if out is None and plot is None and not as_json:
        stem = example.partition(".")[0]
        raise Misuse(f"no output requested: give --out {example}, --plot {stem}.png or --json.")


def save_figure(path: Path | None, draw: Callable[[], "matplotlib.figure.Figure"]) -> None:
    """Draw a picture and write it, if a file is requested."""
    if path is not None:
        with as_misuse():
            draw().savefig(path, dpi=150)


def save_netcdf(found, path: Path | None) -> None:
    """Write a dataset as netCDF, if a file is requested; `NotFound` where it cannot be written."""
    if path is not None:
        try:
            found.to_netcdf(path, engine="scipy")
        except (OSError, ValueError, TypeError) as error:
            raise NotFound(f"{path}: could not be written ({error}).") from None
