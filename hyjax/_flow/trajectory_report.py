"""Trajectories as tables, in plain text and for HTML."""

from typing import NamedTuple

import numpy as np

from .._results.labels import units_of
from .._results.shown import is_traced
from .._results.table import shown_indices, Table
from .._system.results import counted_codes, described_code


class ArcRow(NamedTuple):
    """An arc of a trajectory: its times, its mode and the next, empty for none, and the state before the jump by coordinate."""

    start: str
    end: str
    mode: str
    following: str
    state: dict[str, str]


def describe_trajectory(trajectory) -> str:
    """The table that `print(trajectory)` shows: one line for each arc; for a batch, one line for each result code."""
    if is_traced(trajectory):
        return f"Trajectory(modes={tuple(trajectory.system.modes)}, traced)"
    title = _title(trajectory)
    if trajectory.t.ndim > 0:
        return "\n".join([title, *(f"  {n:>8}  {code}" for code, n in counted_codes(trajectory.result))])
    end = f"  result  {described_code(trajectory.result)}"
    if not trajectory.start_times.size:
        row = _final(trajectory)
        return f"{title}\n  {row.end}  {row.mode}: {_joined(row.state)}\n{end}"
    lines = [title, f"  {'from':>18} {'to':>18}  mode -> next: state before the jump"]
    for row in _arcs(trajectory):
        if row is None:
            lines.append("  ...")
            continue
        after = f" -> {row.following}" if row.following else ""
        lines.append(f"  {row.start:>18} {row.end:>18}  {row.mode}{after}: {_joined(row.state)}")
    return "\n".join([*lines, end])


def trajectory_table(trajectory) -> Table:
    """The same rows for HTML, with a column for each coordinate and its unit."""
    if trajectory.t.ndim > 0:
        return Table(_title(trajectory), [(str(n), code) for code, n in counted_codes(trajectory.result)])
    units = units_of(None, trajectory.params, trajectory.system)
    names = tuple(dict.fromkeys(name for mode in trajectory.system.modes.values() for name in mode.coordinates))
    arcs = _arcs(trajectory) if trajectory.start_times.size else [_final(trajectory)]
    rows = [
        ["…"] if row is None else [*row[:4], *(row.state.get(name, "") for name in names)]
        for row in arcs
    ]  # fmt: skip
    heads = ("from", "to", "mode", "next", *names)
    of_columns = (units.time, units.time, "", "", *(units.coordinates.get(name, "") for name in names))
    return Table(
        _title(trajectory),
        rows,
        heads,
        of_columns,
        ["States before the jumps.", f"Result: {described_code(trajectory.result)}"],
    )


def _title(trajectory) -> str:
    if trajectory.t.ndim > 0:
        jumps = np.asarray(trajectory.jumps)
        return f"{trajectory.t.size} Trajectories, {jumps.min()} to {jumps.max()} jumps each"
    unrecorded = "" if trajectory.start_times.size else ", without a record of its arcs"
    return f"Trajectory: {int(trajectory.jumps)} jumps{unrecorded}"


def _final(trajectory) -> ArcRow:
    """The final state of a trajectory without a record of its arcs."""
    name = trajectory.system.names[int(trajectory.mode)]
    return ArcRow("", f"{float(trajectory.t):.12g}", name, "", _state(trajectory, name, trajectory.final))


def _arcs(trajectory) -> list[ArcRow | None]:
    names, events, rows = trajectory.mode_names, trajectory.events, []
    for k in shown_indices(len(names), 14):
        if k is None:
            rows.append(None)
            continue
        start, end = (f"{float(each[k]):.12g}" for each in (trajectory.start_times, trajectory.end_times))
        after = events[k].target if k < len(events) else ""
        rows.append(ArcRow(start, end, names[k], after, _state(trajectory, names[k], trajectory.x_ends[k])))
    return rows


def _state(trajectory, mode: str, x) -> dict[str, str]:
    # A row of the record is padded to the largest dimension.
    names = trajectory.system.modes[mode].coordinates
    return {name: f"{value:.10g}" for name, value in zip(names, np.asarray(x), strict=False)}


def _joined(state: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in state.items())
