"""Output of the commands: JSON records and tables."""

import json
from typing import Any

import numpy as np

from .._continuation.branch_report import end_name
from .._results.labels import units_of


def print_record(record: dict[str, Any], as_json: bool) -> None:
    """Print a record of names and values, as a table or as JSON."""
    if as_json:
        print(json.dumps(record))
        return
    width = max(len(key) for key in record)
    for key, value in record.items():
        shown = ", ".join(f"{each} {number}" for each, number in value.items()) if isinstance(value, dict) else value
        print(f"{key.replace('_', ' '):<{width}}  {shown}")


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
        "stable": bool(abs(orbit.multipliers).max() < 1),
        "residual": float(orbit.residual),
        "impact_times": [float(each) for each in orbit.impact_times],
        "guard_rates": [float(each) for each in orbit.guard_rates],
        "nodes": nested_lists(orbit.nodes),
        "return_jacobian": nested_lists(orbit.return_jacobian),
        "result": "successful",
    }


def orbits_table(model, values: dict[str, float], orbits):
    """The table of a batch of orbits, one column for each orbit."""
    from rich.table import Table

    setting = ", ".join(f"{key} = {value:.10g}" for key, value in values.items())
    table = Table(title=f"{model.title}: {setting}", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("unit")
    for i in range(len(orbits)):
        table.add_column(f"gait {i + 1}", justify="right")
    rows = [orbits[i] for i in range(len(orbits))]
    units = units_of(model, orbits.params, orbits.system)
    for k, state in enumerate(model.coordinates):
        unit = units.coordinates.get(state, "")
        table.add_row(state, unit, *(f"{float(orbit.x[k]):+.15f}" for orbit in rows))
    table.add_row("period", units.time, *(f"{float(orbit.period):.14f}" for orbit in rows))
    for k in range(len(model.coordinates)):
        table.add_row(f"multiplier {k + 1}", "1", *(shown_complex(complex(orbit.multipliers[k])) for orbit in rows))
    table.add_row("spectral radius", "1", *(f"{abs(orbit.multipliers).max():.13f}" for orbit in rows))
    table.add_row("stable", "", *("yes" if abs(orbit.multipliers).max() < 1 else "no" for orbit in rows))
    table.add_row("residual", "", *(f"{float(orbit.residual):.1e}" for orbit in rows))
    return table


def shown_complex(value: complex) -> str:
    """A complex number to 13 decimals."""
    # Adding zero turns -0.0 into 0.0.
    real, imag = (round(part, 13) + 0.0 for part in (value.real, value.imag))
    return f"{real:+.13f}" if imag == 0 else f"{real:+.13f} {imag:+.13f}i"


def trajectory_record(name: str, values: dict[str, float], trajectory) -> dict:
    """The JSON record of a trajectory; a number that is not finite becomes null."""
    return {
        "model": name,
        "params": values,
        "modes": list(trajectory.mode_names),
        "t": float(trajectory.t),
        "x": nested_lists(trajectory.final),
        "jumps": int(trajectory.jumps),
        "events": [
            {
                "t": event.t,
                "source": event.source,
                "target": event.target,
                "before": nested_lists(event.before),
                "after": nested_lists(event.after),
                "guard_rate": event.guard_rate,
            }
            for event in trajectory.events
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
