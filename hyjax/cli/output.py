"""Output of the commands: records, printed as JSON or as a table."""

import json
from typing import Any

import numpy as np

from .._continuation.branch_report import end_name
from .._flow.trajectory_report import arc_labels
from .._results.table import Table


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
