"""Names and units of parameters and coordinates, for datasets and tables; and what the variables of datasets are: their
attributes `long_name` and `units` by the conventions CF."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TYPE_CHECKING

import equinox as eqx
import jax
import numpy as np

from .._system.types import Params

if TYPE_CHECKING:
    import xarray


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


def units_of_params(params: Params) -> dict[str, str]:
    """The units of the numbers among the parameters, by name; empty where unknown."""
    return {name: about.get("units", "") for name, (_, about) in named_params(params).items()}


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


# From the name of a variable to its meaning and, where that is always the same, its unit.
KNOWN: dict[str, tuple[str, str]] = {
    "x": ("state just after the last jump", ""),
    "coordinate": ("coordinate of the state", ""),
    "by_coordinate": ("coordinate by which is differentiated", ""),
    "before_coordinate": ("coordinate of the state before the jump", ""),
    "period": ("period of the orbit", ""),
    "multipliers_real": ("Floquet multipliers, real part", "1"),
    "multipliers_imag": ("Floquet multipliers, imaginary part", "1"),
    "stable": ("whether all multipliers are inside the unit circle", ""),
    "residual": ("largest component of S(x) - x", ""),
    "return_jacobian": ("Jacobian of the return map", ""),
    "guard_rates": ("rate of the guard at the end of each arc", ""),
    "guard_rate": ("rate of the guard before the jump", ""),
    "nodes": ("states at the starts of the strides", ""),
    "starts": ("times at the starts of the strides", ""),
    "before": ("states before the jumps that start strides", ""),
    "iterations": ("strides computed by Newton's method", "1"),
    "result": ("result code", ""),
    "orbit": ("number of the orbit", "1"),
    "time": ("time", ""),
    "event_time": ("time of the event", ""),
    "mode": ("mode", ""),
    "source": ("mode before the jump", ""),
    "target": ("mode after the jump", ""),
    "transition": ("number of the transition, from 0", "1"),
    "special_kind": ("kind of the special point", ""),
    "special_x": ("state of the special point just after the last jump", ""),
    "special_period": ("period of the special point's orbit", ""),
    "branch": ("number of the branch", "1"),
    "special_branch": ("number of the special point's branch", "1"),
    "strides": ("number of strides", "1"),
    "stride_time": ("duration of each stride", ""),
    "lyapunov": ("largest Lyapunov exponent per stride", "1"),
    "exponents": ("Lyapunov exponents per stride", "1"),
    "outcome": ("outcome of the initial state", ""),
    "change": ("whether an outcome occurs first or no more, over the parameter", ""),
    "last": ("last state on the section", ""),
    "rtol": ("relative tolerance", "1"),
    "atol": ("absolute tolerance", ""),
    "error": ("error", ""),
    "reference_error": ("largest disagreement of the references", ""),
    "reference_result": ("result code of the references", ""),
}


def meanings_of(params: Params) -> dict[str, str]:
    """The meanings of the parameters by name, from the metadata of their fields; those without are left out."""
    found = {}
    for path, _ in jax.tree_util.tree_leaves_with_path(params):
        if meaning := metadata_of(params, path).get("meaning"):
            found[jax.tree_util.keystr(path, simple=True, separator=".")] = meaning
    return found


def in_words(name: str) -> str:
    """The name of a coordinate, parameter or quantity in words: `theta_rate` is the rate of theta."""
    words = name.removesuffix("_rate").replace("_", " ")
    return f"rate of {words}" if name.endswith("_rate") else words


def long_name(name: str, meanings: Mapping[str, str]) -> str:
    """The long name of a variable or coordinate. **Arguments:** `meanings`: of parameters and others by name."""
    base = name.removeprefix("param_").removeprefix("parameter_")
    if base in meanings:
        return meanings[base]
    if name in KNOWN:
        return KNOWN[name][0]
    for end, words in (("_before", " before the jump"), ("_after", " after the jump")):
        if name.endswith(end):
            return long_name(name.removesuffix(end), meanings) + words
    if name.startswith("special_"):
        return f"{long_name(name.removeprefix('special_'), meanings)} at the special point"
    return in_words(base)


def cf_attributes(name: str, meanings: Mapping[str, str]) -> dict[str, str]:
    """The attribute `long_name` of a variable, and `units` where they are those of every variable of that name."""
    unit = "" if name in meanings or name not in KNOWN else KNOWN[name][1]
    return {"long_name": long_name(name, meanings)} | ({"units": unit} if unit else {})


def described(found: "xarray.Dataset", meanings: Mapping[str, str] = {}) -> "xarray.Dataset":
    """The dataset, each of whose variables and coordinates has a `long_name`, and `units` where they are known; attributes
    that a variable has already stay. **Arguments:** `meanings`: of parameters by name."""
    for name, variable in found.variables.items():
        variable.attrs = cf_attributes(str(name), meanings) | dict(variable.attrs)
    return found
