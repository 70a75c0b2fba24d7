"""Periodic orbits as an `xarray.Dataset`, and as a table."""

import math
from typing import Any, TYPE_CHECKING

import jax
import numpy as np

from .._results.dataset import load_xarray
from .._results.extras import needed
from .._results.labels import named_params, units_attribute, units_of
from .._results.long_names import described, meanings_of
from .._system.results import code_flags, code_names

if TYPE_CHECKING:
    import pandas
    import xarray


def orbit_dataset(orbit, model=None) -> "xarray.Dataset":
    """The dataset of `PeriodicOrbit.to_xarray`."""
    xarray = load_xarray()
    orbit = jax.tree.map(np.asarray, orbit)
    shape = orbit.period.shape
    batch = ("orbit",) if len(shape) == 1 else tuple(f"orbit_{k}" for k in range(len(shape)))
    names = orbit.system.mode(orbit.sequence[0]).coordinates
    last = orbit.system.mode(orbit.sequence[-1]).coordinates
    units = units_of(model, orbit.params, orbit.system)
    time, state = units_attribute(("time",), {"time": units.time}), units_attribute(names, units.coordinates)
    column = lambda values, *own, **about: ((*batch, *own), np.asarray(values), about)
    data = {
        "x": column(orbit.x, "coordinate", **state),
        "period": column(orbit.period, **time),
        # netCDF has no complex numbers.
        "multipliers_real": column(orbit.multipliers.real, "multiplier"),
        "multipliers_imag": column(orbit.multipliers.imag, "multiplier"),
        "stable": column(orbit.stable),
        "residual": column(orbit.residual),
        "return_jacobian": column(orbit.return_jacobian, "coordinate", "by_coordinate"),
        "guard_rates": column(orbit.guard_rates, "arc"),
        "nodes": column(orbit.nodes, "stride", "coordinate", **state),
        "starts": column(orbit.start_times, "stride", **time),
        "before": column(orbit.before, "stride", "before_coordinate"),
        "iterations": column(orbit.iterations),
        "result": column(orbit.result._value.astype(np.int8), **code_flags()),
    }
    coordinates: dict[str, Any] = {
        "coordinate": list(names),
        "by_coordinate": list(names),
        "before_coordinate": list(last),
    }
    # Orbits are numbered from 1, as by the command line.
    coordinates |= {dim: np.arange(1, size + 1) for dim, size in zip(batch, shape, strict=True)}
    for name, (leaf, about) in named_params(orbit.params).items():
        name = f"param_{name}" if name in {*data, *coordinates} else name
        own = tuple(f"{name}_{k}" for k in range(leaf.ndim - len(shape)))
        coordinates[name] = ((*batch, *own), leaf, about)
    about = {"sequence": " -> ".join(orbit.sequence), "strides": orbit.strides}
    return described(xarray.Dataset(data, coordinates, about), meanings_of(orbit.params))


def orbit_table(orbit) -> "pandas.DataFrame":
    """The table of `PeriodicOrbit.to_pandas`."""
    pandas = needed("pandas", "data", "Tables")
    orbit = jax.tree.map(np.asarray, orbit)
    batch, count = orbit.period.ndim, orbit.period.size
    columns = lambda leaf: leaf.reshape(count, math.prod(leaf.shape[batch:])).T
    table = {}
    for name, (leaf, _) in named_params(orbit.params).items():
        # Of a parameter that is an array, each element.
        for k, values in enumerate(columns(leaf)):
            table[name if leaf.ndim == batch else f"{name}_{k}"] = values
    names = orbit.system.mode(orbit.sequence[0]).coordinates
    table |= dict(zip(names, columns(orbit.x), strict=True))
    table["period"] = orbit.period.ravel()
    table["spectral_radius"] = np.max(np.abs(orbit.multipliers), axis=-1, initial=0).ravel()
    table["stable"] = np.asarray(orbit.stable).ravel()
    table["residual"] = orbit.residual.ravel()
    table["result"] = code_names(orbit.result)
    return pandas.DataFrame(table, index=pandas.RangeIndex(1, orbit.period.size + 1, name="orbit"))
