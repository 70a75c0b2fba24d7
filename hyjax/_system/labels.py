"""Names and units of parameters and coordinates, for datasets and tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .types import Params


def metadata_of(params: Params, path: Sequence[Any]) -> Mapping[str, Any]:
    """What the dataclass field of a leaf says about it, such as `unit`, `meaning` and `range`; empty where there is no field."""
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


def coordinate_units(model) -> dict[str, str]:
    """The units of a model's coordinates by name; empty without a model."""
    return dict(zip(getattr(model, "coordinates", ()), getattr(model, "units", ()), strict=False))


def units_attribute(names: Sequence[str], units: dict[str, str]) -> dict[str, str]:
    """The attribute `units` of a variable over coordinates of these names; none where no unit is known."""
    known = [units.get(name, "") for name in names]
    return {"units": ", ".join(known)} if any(known) else {}
