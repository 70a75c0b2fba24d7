"""Type aliases of time, state, parameters and matrices, with their shapes; and what an argument has to be."""

from typing import Any, TypeAlias

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
