"""Branches as xarray datasets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._results.dataset import load_xarray
from .._results.labels import named_params, units_attribute, units_of
from .._results.long_names import described, meanings_of
from .branch_report import end_name

if TYPE_CHECKING:
    import xarray


def branch_dataset(branch) -> "xarray.Dataset":
    """The dataset of `Branch.to_xarray`. `ImportError` with the remedy if xarray is missing."""
    xarray = load_xarray()
    problem = branch.unfolding.problem
    coordinates = problem.system.modes[problem.sequence[0]].coordinates
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
