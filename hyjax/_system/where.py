"""The lens `where`, a function that selects the leaves of the parameters that vary; and the declaration of a parameter with its
unit and meaning."""

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .types import Params, require_function

# `lambda params: params.slope`, or a function that returns a tuple of leaves.
Where = Callable[[Params], PyTree]


def with_leaves(params: Params, free: tuple[int, ...], values: Array | Sequence[Array]) -> Params:
    """The parameters with the leaves of indices `free` set to `values`, one for each, in the dtype of the leaf, or of the value
    for a leaf that is a whole number."""
    leaves, tree = jax.tree.flatten(params)
    for i, value in zip(free, values, strict=True):
        dtype = jnp.result_type(leaves[i])
        leaves[i] = value.astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else value
    return jax.tree.unflatten(tree, leaves)


def free_leaves(where: Where, params: Params) -> tuple[int, ...]:
    """Indices of the leaves that the lens selects. `ValueError` unless these are scalars, each selected once."""
    return selected_leaves(where, params, scalars=True)


def selected_leaves(where: Where, params: Params, scalars: bool = False) -> tuple[int, ...]:
    """Indices of the leaves that the lens selects. `ValueError` unless these are leaves, each selected once, and with `scalars`
    each a number."""
    if not callable(where):
        raise ValueError(f"where={where!r} must be a function of the parameters, such as lambda params: params.slope.")
    require_function(where, "params", "where")
    leaves, tree = jax.tree.flatten(params)
    # Objects without arithmetic and elements, in the place of the leaves.
    placeholders = [SimpleNamespace(index=i, name=name) for i, name in enumerate(leaf_names(params))]
    wanted = f"where must pick {'scalar ' * scalars}leaves of the parameters, such as lambda params: params.slope, and nothing"
    try:
        selected = jax.tree.leaves(where(jax.tree.unflatten(tree, placeholders)))
    except TypeError:
        raise ValueError(f"{wanted} computed from them, nor an element of one.") from None
    if (
        not selected
        or not all(isinstance(each, SimpleNamespace) for each in selected)
        or (scalars and any(jnp.ndim(leaves[each.index]) for each in selected))
    ):
        raise ValueError(
            f"{wanted} computed from them; it picked "
            f"{', '.join(str(getattr(each, 'name', each)) for each in selected) or 'nothing'}."
        )
    repeated = sorted({each.name for each in selected if selected.count(each) > 1})
    if repeated:
        raise ValueError(f"where picks {', '.join(repeated)} more than once. Pick each leaf of the parameters once.")
    return tuple(each.index for each in selected)


def one_leaf(where: Where, params: Params, caller: str) -> int:
    """Index of the one leaf that the lens selects. `ValueError` for several; its message begins with `caller`."""
    free = free_leaves(where, params)
    if len(free) != 1:
        names = leaf_names(params)
        raise ValueError(
            f"{caller}: where must pick one parameter, such as lambda params: params.slope; it picked {len(free)}: "
            f"{', '.join(names[i] for i in free)}."
        )
    return free[0]


def leaf_names(params: Params) -> list[str]:
    """The names of the leaves, such as `slope`, in their order."""
    paths = (path for path, _ in jax.tree_util.tree_leaves_with_path(params))
    return [jax.tree_util.keystr(path, simple=True, separator=".") or "params" for path in paths]


def parameter(
    default: Any = dataclasses.MISSING, unit: str = "", meaning: str = "", range: tuple[float | int, ...] = ()
) -> Any:
    r"""A field of a class of parameters, an `equinox.Module`: an array leaf with its default, unit and meaning.

    The unit appears in tables, pictures and datasets, and the meaning in `hyjax models` on the command line. What is given for
    the field is converted to an array of floating-point numbers, so that every parameter can be swept and differentiated.

    **Arguments:** `default`: a number or an array; without it a value must be given. `unit`: such as `"rad"` or `"m/s^2"`, and
    `"1"` for a number without dimension. `meaning`: in words. `range`: `(low, high)`, or `(low, high, step)`, of the slider of
    `hyjax.plot.explore`; by default from half to twice the value.

    **Returns:** the field, for the body of the class. A value that is no number is a `TypeError` or `ValueError` of JAX when the
    parameters are made.

    **Example:**

    >>> import equinox as eqx
    >>> class Params(eqx.Module):
    ...     slope: jax.Array = hj.parameter(0.2, "rad", "slope of the ground, downhill positive")
    >>> Params(slope=0.1).slope
    Array(0.1, dtype=float64)
    """
    slider = {"range": range} if range else {}
    given = {} if default is dataclasses.MISSING else {"default": default}
    return eqx.field(converter=_floating, metadata={"unit": unit, "meaning": meaning} | given | slider, **given)


def _floating(value) -> Any:
    dtype = jnp.result_type(float)
    # A number is converted by NumPy, which needs no compiled program.
    return jnp.asarray(np.asarray(value, dtype) if isinstance(value, int | float) else value, dtype)
