"""A number in which functions of several modes or transitions differ, and in nothing else."""

import functools as ft
from collections.abc import Hashable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


class PerMode(eqx.Module):
    """A number of one mode or transition, or a tuple of them, such as which contacts are closed.

    Functions made as `ft.partial(flow, PerMode(1))` and `ft.partial(flow, PerMode(-1))` differ in these numbers only. Where the
    mode is known only at run time, they are compiled as one function, of which the numbers are an argument.
    """

    value: Any = eqx.field(static=True)


def number(each: PerMode | Array, dtype: Any = None) -> Array:
    """The number as an array: that of one mode, or what was selected at run time."""
    return jnp.asarray(each.value if isinstance(each, PerMode) else each, dtype)


def kind_of(functions: PyTree) -> Hashable:
    """The structure of functions, apart from their numbers: equal for those that differ in these only."""
    leaves, structure = _flat(functions)
    return structure, tuple(tuple(map(_kind, each)) if isinstance(each, list) else _kind(each) for each in leaves)


def numbers_of(functions: PyTree) -> tuple[Any, ...]:
    """The numbers in functions, in order."""
    parts = [part for each in _flat(functions)[0] for part in (each if isinstance(each, list) else [each])]
    return tuple(part.value for part in parts if isinstance(part, PerMode))


def with_numbers(functions: PyTree, numbers: tuple[PerMode | Array, ...]) -> PyTree:
    """The same functions with other numbers."""
    given: Iterator[Any] = iter(numbers)
    other = lambda part: next(given) if isinstance(part, PerMode) else part
    leaves, structure = _flat(functions)
    parts = [list(map(other, each)) if isinstance(each, list) else other(each) for each in leaves]
    return jax.tree.unflatten(structure, [ft.partial(*each) if isinstance(each, list) else each for each in parts])


def _flat(functions: PyTree) -> tuple[list, Any]:
    """The leaves of functions and their structure. A partial function of numbers, which JAX takes for a leaf, is the list of its
    function and arguments."""
    leaves, structure = jax.tree.flatten(functions, is_leaf=lambda leaf: isinstance(leaf, PerMode))
    return [_parts(leaf) or leaf for leaf in leaves], structure


def _parts(leaf: Any) -> list | None:
    if isinstance(leaf, ft.partial) and any(isinstance(each, PerMode) for each in leaf.args) and not leaf.keywords:
        return [leaf.func, *leaf.args]
    return None


def _kind(part: Any) -> Hashable:
    # Large integers of equal value are several objects.
    own = part if isinstance(part, int) else id(part)
    return np.shape(part.value) if isinstance(part, PerMode) else (type(part).__name__, own)
