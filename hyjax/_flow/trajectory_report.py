"""Trajectories as tables: a row for each arc; of a batch, a row for each result code."""

import numpy as np

from .._results.labels import units_of
from .._results.table import shown_indices, Table
from .._system.results import counted_codes, described_code


def trajectory_table(trajectory) -> Table:
    """The table that `print(trajectory)` shows, with a column for each coordinate."""
    if trajectory.t.ndim > 0:
        jumps = np.asarray(trajectory.jumps)
        title = f"{trajectory.t.size} Trajectories, {jumps.min()} to {jumps.max()} jumps each"
        return Table(title, [(str(n), code) for code, n in counted_codes(trajectory.result)])
    units = units_of(None, trajectory.params, trajectory.system)
    names = tuple(dict.fromkeys(name for mode in trajectory.system.modes.values() for name in mode.coordinates))
    recorded = bool(trajectory.start_times.size)
    heads = ("from", "to", "mode", "next", *names)
    of_columns = (units.time, units.time, "", "", *(units.coordinates.get(name, "") for name in names))
    title = f"Trajectory: {int(trajectory.jumps)} jumps{'' if recorded else ', without a record of its arcs'}"
    notes = [
        "States before the jumps." if recorded else "The final state.",
        f"Result: {described_code(trajectory.result)}",
    ]
    return Table(title, _arcs(trajectory, names) if recorded else [_final(trajectory, names)], heads, of_columns, notes)


def _final(trajectory, names: tuple[str, ...]) -> list[str]:
    """The final state of a trajectory without a record of its arcs."""
    mode = trajectory.system.names[int(trajectory.mode)]
    return ["", f"{float(trajectory.t):.12g}", mode, "", *_state(trajectory, mode, trajectory.final, names)]


def _arcs(trajectory, names: tuple[str, ...]) -> list[list[str]]:
    modes, events, rows = trajectory.mode_names, trajectory.events, []
    for k in shown_indices(len(modes), 14):
        if k is None:
            rows.append(["..."])
            continue
        times = (f"{float(each[k]):.12g}" for each in (trajectory.start_times, trajectory.end_times))
        following = events[k].target if k < len(events) else ""
        rows.append([*times, modes[k], following, *_state(trajectory, modes[k], trajectory.x_ends[k], names)])
    return rows


def _state(trajectory, mode: str, x, names: tuple[str, ...]) -> list[str]:
    """The cells of a state; empty for coordinates that the mode does not have."""
    # A row of the record is padded to the largest dimension.
    state = dict(zip(trajectory.system.modes[mode].coordinates, np.asarray(x), strict=False))
    return [f"{state[name]:.10g}" if name in state else "" for name in names]
