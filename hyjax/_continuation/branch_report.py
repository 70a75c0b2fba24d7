"""Branches and their special points as tables and as xarray datasets."""

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

from .._orbit.level import of_others
from .._results.labels import described, meanings_of, named_params, units_attribute, units_of, units_of_params
from .._results.registry import load_xarray
from .._results.table import Table, without_rounding
from .._system.results import described_code
from .._system.where import leaf_names
from .grazing import ENDS, TOGETHER, two_fall

if TYPE_CHECKING:
    import xarray


def branch_tables(branch, end: str | None = None) -> tuple[Table, ...]:
    """The tables that `print(branch)` shows: the branch, and its special points if they have been located. **Arguments:** `end`:
    other words for the result."""
    if branch.accept.ndim:
        return (Table(f"{branch.accept.size} Branches", []),)
    problem, params = branch.unfolding.problem, branch.unfolding.params
    values, periods, stable = without_rounding(branch.values, branch.unfolding.scale), branch.periods, branch.stable
    ends = f"{values[0]:.10g} to {values[-1]:.10g}, between {values.min():.10g} and {values.max():.10g}"
    rows = [
        (branch.parameter, ends, units_of_params(params)[branch.parameter]),
        ("period", f"{periods[0]:.10g} to {periods[-1]:.10g}", units_of(None, params, problem.system).time),
        ("stable", f"{int(stable.sum())} of {len(stable)} points{of_others(params)}", ""),
        ("result", end or described_end(branch), ""),
    ]
    # Locating special points takes computation: printing shows them only if `branch.special_points` was read before.
    special = branch.located
    if special is None:
        notes = ["special points are located by branch.special_points"]
    else:
        notes = branch._notes() + ([] if special else ["no special points"])
    title = f"Branch: {len(values)} points, {' -> '.join(problem.sequence)}, {problem.strides} stride(s)"
    whole = Table(title, rows, units=("",), notes=notes)
    return (whole, special_points_table(special)) if special else (whole,)


def special_points_table(points: Sequence) -> Table:
    """Special points, one in each row."""
    problem, params = points[0].unfolding.problem, points[0].unfolding.params
    parameters = [leaf_names(params)[i] for i in points[0].unfolding.free]
    coordinates, units = problem.system.mode(problem.sequence[0]).coordinates, units_of(None, params, problem.system)
    rows = []
    for point in points:
        values, x = point._shown()
        cells = (
            *(f"{value:.13g}" for value in values),
            *(f"{value:.10g}" for value in (*x, float(point.orbit.period))),
        )
        rows.append((point.kind, *cells, str(point.orbit.strides), f"{float(point.residual):.1e}"))
    heads = ("special point", *parameters, *coordinates, "period", "strides", "residual")
    state = (units.coordinates.get(name, "") for name in coordinates)
    return Table(
        "", rows, heads, ("", *map(units_of_params(params).__getitem__, parameters), *state, units.time, "", "")
    )


def described_end(branch) -> str:
    """The result of a branch, described; where its special points have been located, an end at grazing or at a corner is
    named."""
    kind = end_name(branch)
    place = " and ".join(_ends_at(branch, kind))
    if kind == "corner":
        return f"corner: the branch ends at {place}, where an arc begins on the surface of a guard"
    if kind == "grazing" and place:
        return f"grazing: the branch ends at the orbit that grazes at {place}"
    if kind == "swap":
        arcs = "; ".join(arcs_together(point) for point in branch.located if point.kind == kind)
        return f"swap: the branch ends at {place}, where {arcs}: switch_branch goes on beyond"
    if place:
        return f"{kind}: the branch ends at {place}, where its sliding arcs change"
    return described_code(branch.result)


def end_name(branch) -> str:
    """The name of a branch's result, or the kind of the special point that has been located at its end."""
    return next((kind for kind in ENDS if _ends_at(branch, kind)), str(branch.result))


def is_explained(branch) -> bool:
    """Whether the special point at which the branch ends, such as a grazing orbit, has been located."""
    return any(_ends_at(branch, kind) for kind in ENDS)


def arcs_together(point) -> str:
    """Which arcs end together at a swap of events, or in which one a second guard falls at its end."""
    orbit, names = point.orbit, point.orbit.sequence
    durations: Any = np.diff(np.asarray(orbit.jump_times), axis=-1, prepend=0)
    k = int(np.argmin(durations))
    if np.min(durations) < TOGETHER * float(orbit.period):
        return f"the arcs in {names[(k - 1) % len(names)]} and {names[k % len(names)]} end together"
    ends = {names[k % len(names)] for k in range(durations.size) if two_fall(orbit, k)}
    return f"a second guard falls at the end of the arc in {' and '.join(ends)}"


def _ends_at(branch, kind: str) -> list[str]:
    """The values of the parameter at ends of the branch with a special point of this kind, as far as these have been located."""
    points = branch.located or ()
    return [f"{point._shown()[0][0]:.10g}" for point in points if point.kind == kind]


def branch_dataset(branch) -> "xarray.Dataset":
    """The dataset of `Branch.to_xarray`. `ImportError` with the remedy if xarray is missing."""
    xarray = load_xarray()
    problem = branch.unfolding.problem
    coordinates = problem.system.mode(problem.sequence[0]).coordinates
    special = branch.special_points
    units = units_of(None, branch.unfolding.params, problem.system)
    time, state = units_attribute(("time",), {"time": units.time}), units_attribute(coordinates, units.coordinates)
    variables = {
        "x": (("point", "coordinate"), branch.x, state),
        "period": ("point", branch.periods, time),
        # netCDF has no complex numbers.
        "multipliers_real": (("point", "multiplier"), branch.multipliers.real),
        "multipliers_imag": (("point", "multiplier"), branch.multipliers.imag),
        "stable": ("point", branch.stable),
        "residual": ("point", branch.residuals),
        "special_kind": ("special", np.array([point.kind for point in special], dtype=str)),
        "special_x": (
            ("special", "coordinate"),
            np.array([point.orbit.x for point in special]).reshape(-1, len(coordinates)),
            state,
        ),
        "special_period": ("special", np.array([float(point.orbit.period) for point in special]), time),
    }
    taken = {*variables, "coordinate", "point", "special", "multiplier", "branch", "strides", "result"}
    name = f"parameter_{branch.parameter}" if branch.parameter in taken else branch.parameter
    _, units = named_params(branch.unfolding.params)[branch.parameter]
    axes = {
        name: ("point", branch.values, units),
        f"special_{name}": ("special", np.array([float(point.value) for point in special]), units),
        "coordinate": list(coordinates),
    }
    attributes = {"strides": problem.strides, "sequence": " -> ".join(problem.sequence), "result": end_name(branch)}
    found = xarray.Dataset(variables, axes, attributes | {"parameter": name})
    return described(found, meanings_of(branch.unfolding.params))


def branches_dataset(branches: Sequence) -> "xarray.Dataset":
    """Branches over one parameter in one dataset: all points over `point`, all special points over `special`; `branch` and
    `special_branch` are the numbers of their branches, from 1, and `strides` and `result` those of each branch."""
    xarray = load_xarray()
    parts = [branch_dataset(branch) for branch in branches]
    counted = lambda dim: np.concatenate([np.full(part.sizes[dim], k) for k, part in enumerate(parts, start=1)])
    only = lambda dim, other: xarray.concat(
        [part.drop_dims(other) for part in parts], dim, data_vars="minimal", coords="minimal", compat="override",
        join="outer", combine_attrs="drop_conflicts",
    )  # fmt: skip
    whole = only("point", "special").merge(only("special", "point"), join="outer", compat="override")
    whole.attrs = {key: parts[0].attrs[key] for key in ("sequence", "parameter")}
    numbered = whole.assign(
        branch=("point", counted("point")),
        special_branch=("special", counted("special")),
        strides=("number", np.array([part.attrs["strides"] for part in parts])),
        result=("number", np.array([part.attrs["result"] for part in parts])),
    )
    return described(numbered)
