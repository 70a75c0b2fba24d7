"""Symmetric matrices given by a user, checked; packed as the numbers of their lower triangle; and covariances inverted."""

from collections.abc import Callable, Sequence

import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._system.types import Matrix, Scalar


def check_covariance(matrix, size: int, dtype, name: str) -> Matrix:
    """A covariance as an array of that dtype, exactly symmetric.

    `ValueError` for another shape than `(size, size)`, and for a matrix that is not finite, symmetric and positive semidefinite
    (where it is not traced); its message begins with `name`.
    """
    # An eigenvalue that is zero is found up to rounding of the largest.
    semidefinite = lambda values: bool(np.min(np.linalg.eigvalsh(values)) >= -1e-6 * np.max(np.abs(values)))
    matrix = _checked(matrix, size, dtype, name, "semidefinite", semidefinite)
    return (matrix + matrix.T) / 2


def check_positive(matrix, size: int, dtype, name: str) -> Matrix:
    """A matrix as an array of that dtype. `ValueError` for another shape than `(size, size)`, and for a matrix that is not
    finite, symmetric and positive definite (where it is not traced); its message begins with `name`."""
    return _checked(matrix, size, dtype, name, "definite", lambda values: bool(np.min(np.linalg.eigvalsh(values)) > 0))


def _checked(matrix, size: int, dtype, name: str, kind: str, is_kind: Callable[[np.ndarray], bool]) -> Matrix:
    matrix = jnp.asarray(matrix, dtype)
    if matrix.shape != (size, size):
        raise ValueError(f"{name} of shape {matrix.shape} must have the shape {(size, size)}.")
    if not isinstance(matrix, jax.core.Tracer):
        values = np.asarray(matrix)
        symmetric = np.all(np.isfinite(values)) and np.allclose(values, values.T, rtol=1e-6, atol=0)
        if not (symmetric and is_kind(values)):
            raise ValueError(f"{name} must be symmetric and positive {kind}, not {values.tolist()}.")
    return matrix


def packed_size(n: int) -> int:
    """How many numbers the lower triangle of an `n` by `n` matrix has."""
    return n * (n + 1) // 2


def packed_places(n: int) -> np.ndarray:
    """Where in the packed triangle each entry of the symmetric matrix is, shape `(n, n)`."""
    rows, columns = np.tril_indices(n)
    places = np.zeros((n, n), int)
    places[rows, columns] = places[columns, rows] = np.arange(rows.size)
    return places


def pack(matrix: Float[Array, "n n"]) -> Float[Array, " packed"]:
    """The lower triangle, row by row."""
    return matrix[np.tril_indices(len(matrix))]


def unpack(packed: Float[Array, " packed"], n: int) -> Float[Array, "n n"]:
    """The symmetric matrix of a packed triangle."""
    return packed[packed_places(n)]


def unit_of(arrays: Sequence[Array]) -> Scalar:
    """The power of two next to the largest modulus of all entries, without derivatives; 1 where all are zero, or one is not
    finite."""
    largest = stop_gradient(jnp.max(jnp.stack([jnp.max(jnp.abs(each)) for each in arrays])))
    usable = (largest > 0) & jnp.isfinite(largest)
    return jnp.where(usable, jnp.exp2(jnp.round(jnp.log2(jnp.where(usable, largest, 1)))), 1)


def solve_semidefinite(sigma: Float[Array, "*rows n n"], right: Float[Array, "*rows n k"]) -> Float[Array, "*rows n k"]:
    r"""$D^{-1} (D^{-1}\Sigma D^{-1})^+ D^{-1} B$ with the deviations $D$: a generalized inverse of a covariance.

    With the pseudo-inverse of the correlations, rounding errors do not depend on the coordinates' units.
    """
    deviations = jnp.sqrt(jnp.diagonal(sigma, axis1=-2, axis2=-1))
    scale = jnp.where(deviations > 0, 1 / jnp.where(deviations > 0, deviations, 1), 0)
    inverse = jnp.linalg.pinv(sigma * scale[..., :, None] * scale[..., None, :], hermitian=True)
    return scale[..., :, None] * (inverse @ (scale[..., :, None] * right))
