"""What the variables of datasets are: the attributes `long_name` and `units` of the conventions CF, in one place."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax

from .._system.types import Params
from .labels import metadata_of

if TYPE_CHECKING:
    import xarray

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
