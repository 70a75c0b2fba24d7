"""A periodic orbit as a table of plain text."""

import jax
import jax.core
import numpy as np


def describe(orbit) -> str:
    """The table that `print(orbit)` shows; a line per orbit for a batch, the bare structure for what is traced."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(orbit)):
        return f"PeriodicOrbit(sequence={orbit.sequence}, strides={orbit.strides}, traced)"
    orbit = jax.tree.map(np.asarray, orbit)
    if orbit.period.ndim > 0:
        return _batch(orbit)
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    code = orbit.result._enumeration[orbit.result] or "successful"
    rows = [("sequence", " -> ".join(orbit.sequence) + f", {orbit.strides} stride{'s' * (orbit.strides > 1)}")]
    rows += [(name, f"{value:+.15g}") for name, value in zip(names, orbit.x, strict=True)]
    rows += [("period", f"{orbit.period:.15g}")]
    rows += [(f"multiplier {k + 1}", _complex(value)) for k, value in enumerate(orbit.multipliers)]
    rows += [
        ("spectral radius", f"{np.max(np.abs(orbit.multipliers)):.13g}"),
        ("stable", "yes" if np.max(np.abs(orbit.multipliers)) < 1 else "no"),
        ("residual", f"{orbit.residual:.1e}"),
        ("guard rates", ", ".join(f"{rate:.6g}" for rate in orbit.guard_rates)),
        ("result", code),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(["PeriodicOrbit", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def _complex(value: complex) -> str:
    real = f"{value.real:+.13g}"
    return real if value.imag == 0 else f"{real} {value.imag:+.13g}i"


def _batch(orbit) -> str:
    names = orbit.system.modes[orbit.sequence[0]].coordinates
    count = orbit.period.size
    head = f"{count} PeriodicOrbit{'s' * (count != 1)}, {' -> '.join(orbit.sequence)}, {orbit.strides} stride(s) each"
    columns = [*names, "period", "spectral radius", "residual"]
    lines = [head, "  " + " ".join(f"{name:>18}" for name in columns)]
    x = orbit.x.reshape(count, -1)
    period, residual = orbit.period.ravel(), orbit.residual.ravel()
    radius = np.max(np.abs(orbit.multipliers), axis=-1).ravel()
    shown = range(count) if count <= 12 else [*range(6), *range(count - 6, count)]
    for i in shown:
        if count > 12 and i == count - 6:
            lines.append("  ...")
        lines.append("  " + " ".join(f"{value:>18.12g}" for value in (*x[i], period[i], radius[i], residual[i])))
    return "\n".join(lines)


def describe_trajectory(trajectory) -> str:
    """The table that `print(trajectory)` shows: an arc a line; a trajectory a line for a batch."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trajectory)):
        return f"Trajectory(modes={tuple(trajectory.system.modes)}, traced)"
    if trajectory.t.ndim > 0:
        count = trajectory.t.size
        messages = trajectory.result._enumeration._index_to_message
        codes, times = np.unique(np.asarray(trajectory.result._value), return_counts=True)
        jumps = np.asarray(trajectory.jumps)
        lines = [f"{count} Trajectories, {jumps.min()} to {jumps.max()} jumps each"]
        lines += [f"  {n:>8}  {messages[code] or 'successful'}" for code, n in zip(codes, times, strict=True)]
        return "\n".join(lines)
    modes = trajectory.system.modes
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
    result = trajectory.result
    return "\n".join([*lines, f"  result  {result._enumeration[result] or 'successful'}"])


def describe_branch(branch) -> str:
    """The table that `print(branch)` shows: its ends, and its special points."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(branch)):
        return "Branch(traced)"
    if branch.accept.ndim:
        return f"{branch.accept.size} Branches"
    problem = branch.unfolding.problem
    values, periods, stable = branch.values, branch.periods, branch.stable
    lines = [
        f"Branch: {len(values)} points, {' -> '.join(problem.sequence)}, {problem.strides} stride(s)",
        f"  parameter  {values[0]:.10g} to {values[-1]:.10g}, between {values.min():.10g} and {values.max():.10g}",
        f"  period     {periods[0]:.10g} to {periods[-1]:.10g}",
        f"  stable     {int(stable.sum())} of {len(stable)} points",
    ]
    special = branch.special_points
    lines += ["  special points", *(f"    {point}" for point in special)] if special else ["  no special points"]
    result = branch.result
    return "\n".join([*lines, f"  result     {result._enumeration[result] or 'successful'}"])
