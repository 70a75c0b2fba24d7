"""Output of the commands: files, checked before the computation and written after it; records, printed as JSON or as a table."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TYPE_CHECKING

import numpy as np

from .._continuation.branch_report import end_name
from .._flow.trajectory_report import arc_labels
from .._results.table import Table
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
            from .._results.registry import load_xarray

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


def print_record(record: dict[str, Any], as_json: bool) -> None:
    """Print a record of names and values, as a table or as JSON."""
    if as_json:
        print(json.dumps(record))
        return
    text = lambda value: (
        ", ".join(f"{each} {n}" for each, n in value.items()) if isinstance(value, dict) else str(value)
    )
    print(Table("", [(key.replace("_", " "), text(value)) for key, value in record.items()]).text())


def nested_lists(values) -> list:
    """An array as nested lists, for JSON; a number that is not finite becomes null."""
    return np.asarray(np.where(np.isfinite(values), values, None)).tolist()


def orbits_record(name: str, model, values: dict[str, float], orbits) -> dict:
    """The JSON record of a batch of orbits."""
    return {
        "model": name,
        "params": values,
        "state_names": list(model.coordinates),
        "orbits": [orbit_record(orbits[i]) for i in range(len(orbits))],
    }


def orbit_record(orbit) -> dict:
    """The JSON record of one orbit that was found."""
    return {
        "x0": [float(value) for value in orbit.x],
        "period": float(orbit.period),
        "multipliers": [[float(value.real), float(value.imag)] for value in orbit.multipliers],
        "spectral_radius": float(abs(orbit.multipliers).max()),
        "stable": bool(orbit.stable),
        "residual": float(orbit.residual),
        "impact_times": [float(each) for each in orbit.impact_times],
        "guard_rates": [float(each) for each in orbit.guard_rates],
        "nodes": nested_lists(orbit.nodes),
        "return_jacobian": nested_lists(orbit.return_jacobian),
        "result": "successful",
    }


def trajectory_record(name: str, values: dict[str, float], trajectory) -> dict:
    """The JSON record of a trajectory; a number that is not finite becomes null."""
    labels = arc_labels(trajectory)
    return {
        "model": name,
        "params": values,
        "modes": labels,
        "t": float(trajectory.t),
        "x": nested_lists(trajectory.final),
        "jumps": int(trajectory.jumps),
        "events": [
            {
                "t": event.t,
                "source": labels[k],
                "target": labels[k + 1],
                "before": nested_lists(event.before),
                "after": nested_lists(event.after),
                "guard_rate": event.guard_rate,
            }
            for k, event in enumerate(trajectory.events)
        ],
        "result": str(trajectory.result),
    }


def branches_record(name: str, where: str, values: dict[str, float], branches) -> dict:
    """The JSON record of branches with their special points."""
    points, special = [], []
    for number, branch in enumerate(branches, start=1):
        about = {"branch": number, "strides": branch.unfolding.problem.strides}
        columns = branch.values, branch.x, branch.periods, branch.multipliers, branch.residuals, branch.stable
        for *row, stable in zip(*columns, strict=True):
            points.append(about | _branch_point(*row) | {"stable": bool(stable)})
        for point in branch.special_points:
            orbit = point.orbit
            row = _branch_point(point.value, orbit.x, orbit.period, orbit.multipliers, point.residual)
            special.append(about | {"kind": point.kind} | row)
    return {
        "model": name,
        "where": where,
        "params": values,
        "points": points,
        "special_points": special,
        "results": [end_name(branch) for branch in branches],
        "unresolved": [
            [number, *ends] for number, branch in enumerate(branches, start=1) for ends in branch.unresolved
        ],
    }


def _branch_point(value, x, period, multipliers, residual) -> dict:
    return {
        "value": float(value),
        "x0": [float(each) for each in x],
        "period": float(period),
        "multipliers": [[float(each.real), float(each.imag)] for each in np.asarray(multipliers)],
        "residual": float(residual),
    }
