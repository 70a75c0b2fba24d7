"""Grids of parameters: all combinations of the values of several leaves, with names and units."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._results.labels import cf_attributes, meanings_of, named_params, unit_of
from .._system.types import Params
from .._system.where import free_leaves, leaf_names, Where

# A parameter with the name of a dataset's variable gets the prefix `param_`.
TAKEN = {
    "x", "period", "multipliers_real", "multipliers_imag", "residual", "iterations", "result", "stable", "coordinate",
    "multiplier", "lyapunov", "stride_time", "strides", "stride", "start", "attractor", "number", "share", "share_error",
}  # fmt: skip


class Grid(eqx.Module):
    """A grid of parameters, and of prescribed quantities of the orbits.

    **Attributes:** `free`: the indices of the leaves of `params` that vary: the first axes. The further axes are quantities.
    `names`, `units`: of the axes. `values`: those of each axis, in any order, without repetition. `solved`: names and units of
    the unknown parameters.
    """

    params: Params
    free: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)
    values: tuple[np.ndarray, ...]
    solved: Mapping[str, str] = eqx.field(static=True, default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.values)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def axes(self, box: tuple[slice, ...]) -> tuple[np.ndarray, ...]:
        """The values on the axes within a box of indices."""
        return tuple(axis[each] for axis, each in zip(self.values, box, strict=True))

    @property
    def coordinates(self) -> dict[str, tuple[tuple[str, ...], np.ndarray, dict]]:
        """The axes as coordinates of a dataset: `name -> (dimensions, values, attributes)`."""
        axes, meanings = zip(self.names, self.values, self.units, strict=True), meanings_of(self.params)
        about = lambda name, unit: cf_attributes(name, meanings) | ({"units": unit} if unit else {})
        return {name: ((name,), axis, about(name, unit)) for name, axis, unit in axes}


def share_error(share: Float[np.ndarray, "*shape"], count: int) -> Float[np.ndarray, "*shape"]:
    """Half the width of Wilson's interval, at one standard deviation, of shares of a sample."""
    return np.sqrt(share * (1 - share) / count + 1 / (4 * count**2)) / (1 + 1 / count)


def points_over(axes: tuple[np.ndarray, ...]) -> Float[np.ndarray, "points axes"]:
    """All combinations of the values on several axes; the last axis varies fastest."""
    return np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=-1)


def grid_over(params: Params, where: Where, values: Any) -> Grid:
    """The grid of the leaves picked by the lens `where`. `ValueError` for values that do not match these leaves.

    **Arguments:** `values`: an array for one leaf, a tuple of arrays for several.
    """
    free = free_leaves(where, params)
    leaves = jax.tree.leaves(params)
    axes = tuple(values) if isinstance(values, tuple | list) and len(free) == len(values) > 1 else (values,)
    if len(axes) == 1 and isinstance(values, tuple | list) and len(values) == 1 and np.ndim(values[0]) == 1:
        axes = (values[0],)
    if len(axes) != len(free):
        raise ValueError(
            f"values: where picks {len(free)} parameters; give a tuple of {len(free)} arrays, one for each parameter."
        )
    own = named_units(params, free)
    kept = (checked_axis(name, axis, _real(leaves[i])) for name, i, axis in zip(own, free, axes, strict=True))
    return Grid(params, free, tuple(own), tuple(own.values()), tuple(kept))


def _real(leaf: Any) -> np.dtype:
    """The dtype of the leaf, or that of floating-point numbers for a leaf that is a whole number."""
    own = jnp.result_type(leaf)
    return own if jnp.issubdtype(own, jnp.floating) else jnp.result_type(float)


def checked_axis(name: str, axis: Any, dtype) -> np.ndarray:
    """The values of an axis; `ValueError` unless they are finite and different."""
    try:
        axis = np.asarray(axis, dtype)
    except (TypeError, ValueError):
        axis = np.asarray(axis)
    if axis.dtype != dtype or axis.ndim != 1 or not axis.size or not np.all(np.isfinite(axis)):
        raise ValueError(f"values: the values of {name} must be finite numbers in one dimension, not {axis!r}.")
    if len(np.unique(axis)) < len(axis):
        raise ValueError(f"values: a value of {name} occurs twice. Give each once.")
    return axis


def named_units(params: Params, free: tuple[int, ...]) -> dict[str, str]:
    """The units of the leaves of indices `free`, by the names that the leaves have in a dataset."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = leaf_names(params)
    return {(f"param_{names[i]}" if names[i] in TAKEN else names[i]): unit_of(params, paths[i]) for i in free}


def named_leaves(params: Params) -> dict[str, Any]:
    """All parameters by name, as plain numbers or lists."""
    return {name: leaf.tolist() for name, (leaf, _) in named_params(params).items()}
