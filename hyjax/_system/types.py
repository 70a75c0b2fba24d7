"""Type aliases of time, state, parameters and matrices, with their shapes."""

from typing import TypeAlias

from jaxtyping import Array, Bool, Float, Int, PyTree

Time: TypeAlias = Float[Array, ""]
Scalar: TypeAlias = Float[Array, ""]
State: TypeAlias = Float[Array, " n"]
Matrix: TypeAlias = Float[Array, "rows columns"]
Flag: TypeAlias = Bool[Array, ""]
Count: TypeAlias = Int[Array, ""]
# Any PyTree: every number that one could sweep or differentiate is an array leaf of it.
Params: TypeAlias = PyTree
