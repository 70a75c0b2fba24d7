"""A branch as an xarray dataset."""

from typing import TYPE_CHECKING

import numpy as np

from .._flow.dataset import load_xarray
from .._system.results import code_name

if TYPE_CHECKING:
    import xarray


def branch_dataset(branch) -> "xarray.Dataset":
    """The dataset of `Branch.to_xarray`. `ImportError` with the remedy if xarray is missing."""
    xarray = load_xarray()
    problem = branch.unfolding.problem
    coordinates = problem.system.modes[problem.sequence[0]].coordinates
    special = branch.special_points
    return xarray.Dataset(
        {
            "x": (("point", "coordinate"), branch.x),
            "period": ("point", branch.periods),
            # netCDF has no complex numbers.
            "multipliers_real": (("point", "multiplier"), branch.multipliers.real),
            "multipliers_imag": (("point", "multiplier"), branch.multipliers.imag),
            "stable": ("point", branch.stable),
            "residual": ("point", branch.residuals),
            "special_kind": ("special", np.array([point.kind for point in special], dtype=str)),
            "special_x": (
                ("special", "coordinate"),
                np.array([point.orbit.x for point in special]).reshape(-1, len(coordinates)),
            ),
            "special_period": ("special", np.array([float(point.orbit.period) for point in special])),
        },
        {
            "parameter": ("point", branch.values),
            "special_parameter": ("special", np.array([float(point.value) for point in special])),
            "coordinate": list(coordinates),
        },
        {"strides": problem.strides, "sequence": " -> ".join(problem.sequence), "result": code_name(branch.result)},
    )
