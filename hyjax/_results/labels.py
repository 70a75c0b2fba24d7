"""Names and units of parameters and coordinates, for datasets and tables."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .._system.types import Params


def metadata_of(params: Params, path: Sequence[Any]) -> Mapping[str, Any]:
    """The metadata of the dataclass field of a leaf, such as `unit`, `meaning` and `range`; empty where there is no field."""
    metadata: Mapping[str, Any] = {}
    for key in path:
        name = getattr(key, "name", None)
        field = getattr(type(params), "__dataclass_fields__", {}).get(name)
        if field is None:
            return metadata
        metadata = field.metadata
        params = getattr(params, str(name))
    return metadata


def unit_of(params: Params, path: Sequence[Any]) -> str:
    """The unit of a leaf, from the metadata of its dataclass field; empty where there is none."""
    return metadata_of(params, path).get("unit", "")


def named_params(params: Params) -> dict[str, tuple[np.ndarray, dict[str, str]]]:
    """The numbers among the parameters, by name, with an attribute `units` where the unit is known."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if eqx.is_array_like(leaf):
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "params"
            unit = unit_of(params, path)
            found[name] = np.asarray(leaf), {"units": unit} if unit else {}
    return found


def units_attribute(names: Sequence[str], units: dict[str, str]) -> dict[str, str]:
    """The attribute `units` of a variable over coordinates of these names; none where no unit is known."""
    known = [units.get(name, "") for name in names]
    return {"units": ", ".join(known)} if any(known) else {}


class Units(NamedTuple):
    """Units of a system's coordinates by name, and of time; empty where unknown."""

    coordinates: dict[str, str]
    time: str


def units_of(model: Any = None, params: Params = None, system: Any = None) -> Units:
    """The units of coordinates and time: those that the system's modes name, and for the others those of the model.

    **Arguments:** `system`: by default the model's. `params`: by which a model whose time may have a unit or none is told apart,
    see `chosen_unit`.
    """
    system = getattr(model, "system", None) if system is None else system
    known = dict(zip(getattr(model, "coordinates", ()), getattr(model, "units", ()), strict=False))
    named = {
        name: unit
        for mode in getattr(system, "modes", {}).values()
        for name, unit in zip(mode.coordinates, getattr(mode, "units", None) or (), strict=False)
    }
    found = {name: chosen_unit(unit, params) for name, unit in (known | named).items()}
    time = getattr(system, "time_unit", "") or getattr(model, "time_unit", "")
    return Units(found, chosen_unit(time, params))


def chosen_unit(unit: str, params: Params) -> str:
    """One of two units that a model gives as `sqrt(l/g) or s`: that without dimension where the parameters `gravity` and, if it
    is a parameter, `leg_length` are 1, and else that of the SI."""
    one, _, other = unit.partition(" or ")
    if not other:
        return unit
    scaled = all(np.all(np.asarray(getattr(params, name, 1.0)) == 1) for name in ("gravity", "leg_length"))
    dimensionless, dimensional = (one, other) if one == "1" or "sqrt" in one else (other, one)
    return dimensionless if scaled else dimensional
