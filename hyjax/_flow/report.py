"""Trajectories as plain text tables."""

import numpy as np

from .._system.results import counted_codes, described_code
from .._system.shown import is_traced


def describe_trajectory(trajectory) -> str:
    """The table that `print(trajectory)` shows: one line for each arc; for a batch, one line for each result code."""
    if is_traced(trajectory):
        return f"Trajectory(modes={tuple(trajectory.system.modes)}, traced)"
    if trajectory.t.ndim > 0:
        count = trajectory.t.size
        jumps = np.asarray(trajectory.jumps)
        lines = [f"{count} Trajectories, {jumps.min()} to {jumps.max()} jumps each"]
        lines += [f"  {n:>8}  {code}" for code, n in counted_codes(trajectory.result)]
        return "\n".join(lines)
    modes = trajectory.system.modes
    if not trajectory.starts.size:
        name = tuple(modes)[int(trajectory.mode)]
        state = ", ".join(
            f"{each} = {value:.10g}"
            for each, value in zip(modes[name].coordinates, np.asarray(trajectory.final), strict=True)
        )
        return (
            f"Trajectory: {int(trajectory.jumps)} jumps, without a record of its arcs\n"
            f"  {float(trajectory.t):.12g}  {name}: {state}\n  result  {described_code(trajectory.result)}"
        )
    lines = [
        f"Trajectory: {int(trajectory.jumps)} jumps",
        f"  {'from':>18} {'to':>18}  mode -> next: state before the jump",
    ]
    names, events = trajectory.mode_names, trajectory.events
    count = len(names)
    for k in range(count):
        if count > 14 and 7 <= k < count - 7:
            if k == 7:
                lines.append("  ...")
            continue
        after = f" -> {events[k].target}" if k < len(events) else ""
        state = trajectory.x_ends[k, : modes[names[k]].dimension]
        there = ", ".join(
            f"{name} = {value:.10g}" for name, value in zip(modes[names[k]].coordinates, np.asarray(state), strict=True)
        )
        lines.append(
            f"  {float(trajectory.starts[k]):>18.12g} {float(trajectory.ends[k]):>18.12g}  {names[k]}{after}: {there}"
        )
    return "\n".join([*lines, f"  result  {described_code(trajectory.result)}"])
