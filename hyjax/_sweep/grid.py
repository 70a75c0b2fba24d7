"""Grids of parameters: all combinations of the values of several leaves, with names and units."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._system.labels import named_params, unit_of
from .._system.types import Params
from .._system.where import free_leaves, Where

# A parameter with the name of a dataset's variable gets the prefix `param_`.
TAKEN = {
    "x", "period", "multipliers_real", "multipliers_imag", "residual", "iterations", "result", "stable", "coordinate",
    "multiplier", "lyapunov", "stride_time", "strides", "stride", "start",
}  # fmt: skip


class Grid(eqx.Module):
    """A grid of parameters.

    **Attributes:** `free`: the indices of the leaves of `params` that vary. `names`, `units`: of these leaves. `values`: for each
    of these leaves the values of its axis, in any order, without repetition.
    """

    params: Params
    free: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)
    values: tuple[np.ndarray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.values)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def points(self, box: tuple[slice, ...] | None = None) -> Float[np.ndarray, "points free"]:
        """The varied parameters at all points of a box of indices, by default of the grid; the last axis varies fastest."""
        box = tuple(slice(0, n) for n in self.shape) if box is None else box
        index = np.meshgrid(*(np.arange(each.start, each.stop) for each in box), indexing="ij")
        return np.stack([axis[i.ravel()] for axis, i in zip(self.values, index, strict=True)], axis=-1)

    @property
    def coordinates(self) -> dict[str, tuple[tuple[str, ...], np.ndarray, dict]]:
        """The axes as coordinates of a dataset: `name -> (dimensions, values, attributes)`."""
        axes = zip(self.names, self.values, self.units, strict=True)
        return {name: ((name,), axis, {"units": unit} if unit else {}) for name, axis, unit in axes}


def grid_over(params: Params, where: Where, values: Any) -> Grid:
    """The grid of the leaves picked by the lens `where`. `ValueError` for values that do not match these leaves.

    **Arguments:** `values`: an array for one leaf, a tuple of arrays for several.
    """
    free = free_leaves(where, params)
    paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(params), strict=True)
    axes = tuple(values) if isinstance(values, tuple | list) and len(free) == len(values) > 1 else (values,)
    if len(axes) == 1 and isinstance(values, tuple | list) and len(values) == 1 and np.ndim(values[0]) == 1:
        axes = (values[0],)
    if len(axes) != len(free):
        raise ValueError(
            f"values: where picks {len(free)} parameters; give a tuple of {len(free)} arrays, one for each parameter."
        )
    own = (jax.tree_util.keystr(paths[i], simple=True, separator=".") or "params" for i in free)
    names = tuple(f"param_{name}" if name in TAKEN else name for name in own)
    kept = []
    for name, i, axis in zip(names, free, axes, strict=True):
        axis = np.asarray(axis, jnp.result_type(leaves[i]))
        if axis.ndim != 1 or not axis.size or not np.all(np.isfinite(axis)):
            raise ValueError(f"values: the values of {name} must be finite numbers in one dimension, not {axis!r}.")
        if len(np.unique(axis)) < len(axis):
            raise ValueError(f"values: a value of {name} occurs twice. Give each once.")
        kept.append(axis)
    return Grid(params, free, names, tuple(unit_of(params, paths[i]) for i in free), tuple(kept))


def named_leaves(params: Params) -> dict[str, Any]:
    """All parameters by name, as plain numbers or lists."""
    return {name: leaf.tolist() for name, (leaf, _) in named_params(params).items()}
