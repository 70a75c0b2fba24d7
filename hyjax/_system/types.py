"""Type aliases of time, state, parameters and matrices, with their shapes; and what an argument has to be."""

import inspect
from typing import Any, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

Time: TypeAlias = Float[Array, ""]
Scalar: TypeAlias = Float[Array, ""]
State: TypeAlias = Float[Array, " n"]
Matrix: TypeAlias = Float[Array, "rows columns"]
Flag: TypeAlias = Bool[Array, ""]
Count: TypeAlias = Int[Array, ""]
# Any PyTree: every number that one could sweep or differentiate is an array leaf of it.
Params: TypeAlias = PyTree


def require_kind(given: Any, kind: Any, caller: str, argument: str, wanted: str) -> None:
    """`ValueError` for an argument that is no instance of the class `kind`, or union of classes; its message says what is
    `wanted`."""
    if not isinstance(given, kind):
        raise ValueError(f"{caller}: {argument} must be {wanted}, not {type(given).__name__}.")


def require_counts(caller: str, least: int, **counts: Any) -> None:
    """`ValueError` for a count, by its name, that is no integer of at least `least`."""
    for name, count in counts.items():
        if not isinstance(count, int) or count < least:
            raise ValueError(f"{caller}: {name}={count!r} must be an integer of at least {least}.")


def require_function(given: Any, arguments: str, what: str) -> None:
    """`ValueError` for what is no function of these `arguments`, such as `"t, x, params"`; its message says `what` is given."""
    if not callable(given):
        raise ValueError(f"{what} must be a function of ({arguments}), not {given!r}.")
    if (own := signature_of(given)) is None:
        return
    try:
        own.bind(*arguments.split(","))
    except TypeError:
        name = getattr(given, "__name__", type(given).__name__)
        raise ValueError(f"{what} must be a function of ({arguments}); {name}{own} takes other arguments.") from None


def signature_of(function: Any, passes_on: bool = False) -> inspect.Signature | None:
    """The arguments that a function takes itself, not those of what it wraps; `None` where they are not known. With `passes_on`
    those of the wrapped one, where the function takes any, as the method of an `eqx.Module` does."""
    for follows in (False, True):
        try:
            found = inspect.signature(function, follow_wrapped=follows)
        except (TypeError, ValueError):  # of a function written in C, and at first of one that JAX compiles
            continue
        if follows or not passes_on or all(each.kind != each.VAR_POSITIONAL for each in found.parameters.values()):
            return found
    return None


def as_array(value: Any, shape: tuple[int, ...], dtype, what: str, remedy: str = "") -> Array:
    """What a function returned, as an array; `ValueError` unless it has this shape, and is real, no truth value. The message says
    `what` returned it, and a remedy."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must return an array of shape {shape}, not {value!r}.{remedy}") from None
    unreal = jnp.iscomplexobj(array) or array.dtype == bool
    if array.shape != shape or unreal:
        kind = f"{array.dtype.name} of " * unreal
        raise ValueError(f"{what} must return an array of shape {shape}, not {kind}{array.shape}.{remedy}")
    return array.astype(dtype)
