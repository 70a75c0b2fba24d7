"""Output files of a command: checked before the computation, written after it."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
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
            _check_writable(path)
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
            from .._results.installed import load_xarray

            load_xarray()
        if animate is not None:
            from ..plot.animation import animation_suffix

            animation_suffix(animate)


def check_directory(path: Path) -> None:
    """Check that a file or directory can be made at a path. `Misuse` if not."""
    parent = path.absolute().parent
    if not parent.is_dir():
        raise Misuse(f"{path}: there is no directory {parent}.")
    try:
        # By trial: the permissions do not say whether a file system is read-only.
        tempfile.TemporaryDirectory(dir=parent).cleanup()
    except OSError as error:
        raise Misuse(f"{path}: the directory {parent} cannot be written ({error.strerror}).") from None


def check_outline(model: ModuleType, animate: Path | None) -> None:
    """`Misuse` for an animation of a model without an outline."""
    if animate is not None:
        from ..plot.animation import check_outline as check

        with as_misuse():
            check(model, "--animate")


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise Misuse(f"{path}: this is a directory. Give the path of a file.")
    if not path.exists():
        check_directory(path)
        return
    try:
        path.open("ab").close()
    except OSError as error:
        raise Misuse(f"{path}: the file cannot be written ({error.strerror}).") from None


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
