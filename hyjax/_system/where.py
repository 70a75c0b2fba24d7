"""The lens `where`: which leaves of the parameters vary."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .types import Params

# Which leaves of the parameters are free: `lambda params: params.slope`, or a tuple of leaves.
Where = Callable[[Params], PyTree]


def with_leaves(params: Params, free: tuple[int, ...], values: Array) -> Params:
    """The parameters, with the free leaves set."""
    leaves, tree = jax.tree.flatten(params)
    for i, value in zip(free, values, strict=True):
        leaves[i] = value.astype(jnp.result_type(leaves[i]))
    return jax.tree.unflatten(tree, leaves)


def free_leaves(where: Where, params: Params) -> tuple[int, ...]:
    """The numbers of the leaves that a lens picks; `ValueError` where it does not pick scalars."""
    leaves, tree = jax.tree.flatten(params)
    numbered = jax.tree.unflatten(tree, [_Number(i) for i in range(len(leaves))])
    picked = jax.tree.leaves(where(numbered), is_leaf=lambda leaf: isinstance(leaf, _Number))
    if (
        not picked
        or not all(isinstance(each, _Number) for each in picked)
        or any(jnp.ndim(leaves[each.i]) for each in picked)
    ):
        raise ValueError(
            "where must pick scalar leaves of the parameters, such as lambda params: params.slope, and nothing computed from "
            f"them; it picked {picked}."
        )
    return tuple(each.i for each in picked)


def one_leaf(where: Where, params: Params, caller: str) -> int:
    """The number of the one leaf that a lens picks; `ValueError`, which names the caller, where it picks several."""
    free = free_leaves(where, params)
    if len(free) != 1:
        names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in jax.tree_util.tree_leaves_with_path(params)]
        raise ValueError(
            f"{caller}: where must pick one parameter, such as lambda params: params.slope; it picked {len(free)}: "
            f"{', '.join(names[i] for i in free)}."
        )
    return free[0]


class _Number:
    """Stands for a leaf of the parameters."""

    def __init__(self, i: int):
        self.i = i
