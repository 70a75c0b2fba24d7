"""Branches and their special points as tables."""

from collections.abc import Sequence

import numpy as np

from .._results.labels import named_params, units_of
from .._results.table import Table
from .._system.results import described_code


def branch_tables(branch, end: str | None = None) -> tuple[Table, ...]:
    """The tables that `print(branch)` shows: the branch, and its special points if they have been located. **Arguments:** `end`:
    other words for the result."""
    if branch.accept.ndim:
        return (Table(f"{branch.accept.size} Branches", []),)
    problem, params = branch.unfolding.problem, branch.unfolding.params
    values, periods, stable = branch.values, branch.periods, branch.stable
    ends = f"{values[0]:.10g} to {values[-1]:.10g}, between {values.min():.10g} and {values.max():.10g}"
    rows = [
        (branch.parameter, ends, _parameter_unit(params, branch.parameter)),
        ("period", f"{periods[0]:.10g} to {periods[-1]:.10g}", units_of(None, params, problem.system).time),
        ("stable", f"{int(stable.sum())} of {len(stable)} points", ""),
        ("result", end or described_end(branch), ""),
    ]
    # Locating special points takes computation: printing shows them only if `branch.special_points` was read before.
    special = branch.located
    if special is None:
        notes = ["special points are located by branch.special_points"]
    else:
        notes = [f"not located: a special point between {a:.10g} and {b:.10g}" for a, b in branch.unresolved]
        notes += [] if special else ["no special points"]
    title = f"Branch: {len(values)} points, {' -> '.join(problem.sequence)}, {problem.strides} stride(s)"
    whole = Table(title, rows, units=("",), notes=notes)
    return (whole, special_points_table(special, branch.parameter)) if special else (whole,)


def special_points_table(points: Sequence, parameter: str) -> Table:
    """Special points, one in each row. **Arguments:** `parameter`: its name."""
    problem, params = points[0].unfolding.problem, points[0].unfolding.params
    coordinates, units = problem.system.modes[problem.sequence[0]].coordinates, units_of(None, params, problem.system)
    rows = []
    for point in points:
        numbers = *np.asarray(point.orbit.x), float(point.orbit.period)
        cells = (f"{float(point.value):.13g}", *(f"{value:.10g}" for value in numbers))
        rows.append((point.kind, *cells, str(point.orbit.strides), f"{float(point.residual):.1e}"))
    heads = ("special point", parameter, *coordinates, "period", "strides", "residual")
    state = (units.coordinates.get(name, "") for name in coordinates)
    return Table("", rows, heads, ("", _parameter_unit(params, parameter), *state, units.time, "", ""))


def _parameter_unit(params, name: str) -> str:
    return named_params(params)[name][1].get("units", "")


def described_end(branch) -> str:
    """The result of a branch, described; where its special points have been located, an end at grazing or at a corner is
    named."""
    kind = end_name(branch)
    place = " and ".join(_ends_at(branch, kind))
    if kind == "corner":
        return f"corner: the branch ends at {place}, where an arc begins on the surface of a guard"
    if place:
        return f"grazing: the branch ends at the orbit that grazes at {place}"
    return described_code(branch.result)


def end_name(branch) -> str:
    """The name of a branch's result; `grazing` or `corner` where such an orbit has been located at its end."""
    return next((kind for kind in ("corner", "grazing") if _ends_at(branch, kind)), str(branch.result))


def is_explained(branch) -> bool:
    """Whether a grazing orbit or a corner has been located at an end of the branch."""
    return bool(_ends_at(branch, "grazing") or _ends_at(branch, "corner"))


def _ends_at(branch, kind: str) -> list[str]:
    """The values of the parameter at ends of the branch with a special point of this kind, as far as these have been located."""
    points = branch.located or ()
    return [f"{float(point.value):.10g}" for point in points if point.kind == kind]
