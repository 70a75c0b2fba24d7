"""The dataset of a solver study."""

from typing import Any, TYPE_CHECKING

import jax
import numpy as np

from .._results.dataset import load_xarray
from .._results.long_names import described
from .._results.version import version
from .._system.results import code_flags
from .study_reference import Reference

if TYPE_CHECKING:
    import xarray

DIMS = ("strategy", "rtol", "solver", "set")
LONG_NAMES = {
    "divergence_time": "first time of a relative error above the threshold",
    "integral_of_error": "integral of the absolute error over the time",
    "steps_tried": "steps tried, with those that locate events",
    "steps_taken": "steps taken",
    "jumps": "jumps",
    "evaluations": "evaluations of the vector field",
    "jacobians": "linearizations of the vector field",
    "seconds": "median duration of a run",
}


def study_dataset(
    columns: dict[str, np.ndarray], known: Reference, coordinates: dict[str, Any], about: dict[str, Any]
) -> "xarray.Dataset":
    """The measures over `strategy`, `rtol`, `solver` and `set`, with the reference.

    **Arguments:** `columns`: the measures by name. `coordinates`: of every dimension. `about`: attributes, values of netCDF.
    """
    data: dict[str, Any] = {
        name: (DIMS, column, {"long_name": LONG_NAMES[name]} | ({"units": "s"} if name == "seconds" else {}))
        for name, column in columns.items()
        if name != "result"
    }
    data["result"] = DIMS, columns["result"].astype(np.int32), code_flags()
    inner = len(coordinates["coordinate"])
    data["reference"] = ("set", "time", "coordinate"), known.x[:, :, :inner], {"long_name": "reference"}
    data["reference_error"] = "set", known.error, {"long_name": "largest disagreement of the references"}
    data["reference_result"] = ("set", "method"), known.result, code_flags()
    device = jax.local_devices()[0]
    attributes = about | {"hyjax_version": version(), "device": f"{device.platform} {device.device_kind}"}
    return described(load_xarray().Dataset(data, coordinates, attributes))
