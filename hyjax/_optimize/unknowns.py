"""The unknowns of an optimization: leaves of the parameters in one vector, scaled, with bounds."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Params
from .._system.where import leaf_names, selected_leaves, Where

# For each leaf that `where` selects, `(low, high)` or `None`; either end may be None. One pair for one leaf.
Bounds = Sequence | None


class Unknowns(eqx.Module):
    """The leaves `free` of `params` as a vector `u`: each number divided by its `scale`.

    The scale is the width of the bounds; without two bounds the number itself, and 1 for zero.
    """

    params: Params
    free: tuple[int, ...] = eqx.field(static=True)
    scale: Float[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]

    def vector(self, params: Params) -> Float[Array, " n"]:
        """The scaled vector of the parameters."""
        leaves = jax.tree.leaves(params)
        return jnp.concatenate([jnp.ravel(leaves[i]).astype(self.scale.dtype) for i in self.free]) / self.scale

    def at_bounds(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
        """Which unknowns of the parameters are at their lower and at their upper bounds, up to the rounding of the scale."""
        u, lower, upper = (np.asarray(each) for each in (self.vector(params), self.lower, self.upper))
        rounding = 4 * np.finfo(u.dtype).eps * np.maximum(1, np.abs(u))
        return u <= lower + rounding, u >= upper - rounding

    def params_at(self, u: Float[Array, " n"]) -> Params:
        """The parameters with the unknowns `u`."""
        leaves, tree = jax.tree.flatten(self.params)
        values, place = u * self.scale, 0
        for i in self.free:
            shape, size = jnp.shape(leaves[i]), jnp.size(leaves[i])
            dtype = jnp.result_type(leaves[i])
            part = values[place : place + size].reshape(shape)
            leaves[i] = part.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else part
            place += size
        return jax.tree.unflatten(tree, leaves)

    @property
    def names(self) -> list[str]:
        """The name of each unknown; numbers of an array leaf are counted from 0."""
        leaves, names = jax.tree.leaves(self.params), leaf_names(self.params)
        return [
            names[i] if np.ndim(leaves[i]) == 0 else f"{names[i]}[{', '.join(map(str, index))}]"
            for i in self.free
            for index in np.ndindex(*np.shape(leaves[i]))
        ]


def unknowns_of(where: Where, params: Params, bounds: Bounds, dtype) -> Unknowns:
    """The unknowns that `where` selects. `ValueError` for bounds of another number, or that leave no room."""
    leaves = jax.tree.leaves(params)
    # A controller may have functions among its leaves.
    free = tuple(i for i in selected_leaves(where, params) if eqx.is_array_like(leaves[i]))
    names = leaf_names(params)
    pairs = _pairs(bounds, len(free))
    lower, upper = [], []
    for i, pair in zip(free, pairs, strict=True):
        low, high = (-math.inf, math.inf) if pair is None else pair
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        try:
            low, high = (np.broadcast_to(np.asarray(each, float), np.shape(leaves[i])) for each in (low, high))
        except ValueError:
            raise ValueError(
                f"optimize: the bounds {pair} of {names[i]} must be numbers, or have its shape {np.shape(leaves[i])}."
            ) from None
        if np.any(np.isnan(low)) or np.any(np.isnan(high)) or not np.all(low < high):
            raise ValueError(f"optimize: the bounds {pair} of {names[i]} must be (low, high) with low < high.")
        lower.append(low.ravel())
        upper.append(high.ravel())
    low, high = np.concatenate(lower), np.concatenate(upper)
    values = jnp.concatenate([jnp.ravel(leaves[i]).astype(dtype) for i in free])
    width = np.where(np.isfinite(high - low), high - low, 1)
    own = jax.lax.stop_gradient(jnp.where(values == 0, 1, jnp.abs(values)))
    scale = jnp.where(np.isfinite(high - low), jnp.asarray(width, dtype), own)
    return Unknowns(params, free, scale, jnp.asarray(low, dtype) / scale, jnp.asarray(high, dtype) / scale)


def _pairs(bounds: Bounds, count: int) -> list:
    if bounds is None:
        return [None] * count
    given = list(bounds)
    pair = len(given) == 2 and all(each is None or np.ndim(each) == 0 for each in given)
    if count == 1 and pair and given != [None, None]:
        given = [tuple(given)]
    if len(given) != count or not all(each is None or len(each) == 2 for each in given):
        raise ValueError(
            f"optimize: bounds={bounds} must hold a pair (low, high), or None, for each of the {count} parameters that `where` "
            "selects, in their order."
        )
    return given
