"""Branches and their special points as tables, in plain text and for HTML."""

from collections.abc import Sequence

import numpy as np

from .._results.labels import named_params, units_of
from .._results.shown import is_traced
from .._results.table import Table
from .._system.results import described_code


def describe_branch(branch, end: str | None = None) -> str:
    """The text of `print(branch)`: ends, stability, result, and the special points if they have been located. **Arguments:**
    `end`: other words for the result."""
    if is_traced(branch):
        return "Branch(traced)"
    if branch.accept.ndim:
        return f"{branch.accept.size} Branches"
    lines = [_title(branch), *(f"  {name:<9}  {value}" for name, value, _ in _rows(branch))]
    # Locating special points takes computation: printing shows them only if `branch.special_points` was read before.
    special = branch.located
    if special is None:
        lines.append(f"  {NOT_LOCATED}")
    else:
        lines += ["  special points", *(f"    {point}" for point in special)] if special else ["  no special points"]
        lines += [f"  {gap}" for gap in _gaps(branch)]
    return "\n".join([*lines, f"  result     {end or described_end(branch)}"])


def branch_tables(branch) -> tuple[Table, ...]:
    """The same rows for HTML, with units: the branch, and its special points if they have been located."""
    if branch.accept.ndim:
        return (Table(describe_branch(branch), []),)
    special = branch.located
    notes = [NOT_LOCATED] if special is None else [*_gaps(branch), *([] if special else ["no special points"])]
    rows = [*_rows(branch), ("result", described_end(branch), "")]
    whole = Table(_title(branch), rows, units=("",), notes=notes)
    return (whole, special_points_table(special, branch.parameter)) if special else (whole,)


def special_points_table(points: Sequence, parameter: str) -> Table:
    """Special points, one in each row. **Arguments:** `parameter`: its name."""
    problem, params = points[0].unfolding.problem, points[0].unfolding.params
    coordinates, units = problem.system.modes[problem.sequence[0]].coordinates, units_of(None, params, problem.system)
    rows = [
        [point.kind, *(f"{value:.10g}" for value in (float(point.value), *np.asarray(point.orbit.x), float(point.orbit.period))),
         str(point.orbit.strides), f"{float(point.residual):.1e}"]
        for point in points
    ]  # fmt: skip
    heads = ("special point", parameter, *coordinates, "period", "strides", "residual")
    state = (units.coordinates.get(name, "") for name in coordinates)
    return Table("", rows, heads, ("", _parameter_unit(params, parameter), *state, units.time, "", ""))


NOT_LOCATED = "special points are located by branch.special_points"


def _title(branch) -> str:
    problem = branch.unfolding.problem
    return f"Branch: {len(branch.values)} points, {' -> '.join(problem.sequence)}, {problem.strides} stride(s)"


def _rows(branch) -> list[tuple[str, str, str]]:
    """Name, value and unit of each row."""
    values, periods, stable, params = branch.values, branch.periods, branch.stable, branch.unfolding.params
    ends = f"{values[0]:.10g} to {values[-1]:.10g}, between {values.min():.10g} and {values.max():.10g}"
    time = units_of(None, params, branch.unfolding.problem.system).time
    return [
        (branch.parameter, ends, _parameter_unit(params, branch.parameter)),
        ("period", f"{periods[0]:.10g} to {periods[-1]:.10g}", time),
        ("stable", f"{int(stable.sum())} of {len(stable)} points", ""),
    ]


def _gaps(branch) -> list[str]:
    return [f"not located: a special point between {a:.10g} and {b:.10g}" for a, b in branch.unresolved]


def _parameter_unit(params, name: str) -> str:
    return named_params(params)[name][1].get("units", "")


def described_end(branch) -> str:
    """The result of a branch, described; where its special points have been located, an end at grazing or at a corner is
    named."""
    values = {kind: _ends_at(branch, kind) for kind in ("grazing", "corner")}
    if values["corner"]:
        place = " and ".join(values["corner"])
        return f"corner: the branch ends at {place}, where an arc begins on the surface of a guard"
    if values["grazing"]:
        return f"grazing: the branch ends at the orbit that grazes at {' and '.join(values['grazing'])}"
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
