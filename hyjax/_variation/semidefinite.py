"""Symmetric matrices given by a user, checked; and packed as the numbers of their lower triangle."""

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Matrix


def check_covariance(matrix, size: int, dtype, name: str) -> Matrix:
    """A covariance as an array of that dtype, exactly symmetric.

    `ValueError` for another shape than `(size, size)`, and for a matrix that is not finite, symmetric and positive semidefinite
    (where it is not traced); its message begins with `name`.
    """
    matrix = jnp.asarray(matrix, dtype)
    if matrix.shape != (size, size):
        raise ValueError(f"{name} of shape {matrix.shape} must have the shape {(size, size)}.")
    if not isinstance(matrix, jax.core.Tracer):
        values = np.asarray(matrix)
        sound = np.all(np.isfinite(values)) and np.allclose(values, values.T, rtol=1e-6, atol=0)
        # An eigenvalue that is zero is found up to rounding of the largest.
        if not sound or np.min(np.linalg.eigvalsh(values)) < -1e-6 * np.max(np.abs(values)):
            raise ValueError(f"{name} must be symmetric and positive semidefinite, not {values.tolist()}.")
    return (matrix + matrix.T) / 2


def check_positive(matrix, size: int, dtype, name: str) -> Matrix:
    """A matrix as an array of that dtype. `ValueError` for another shape than `(size, size)`, and for a matrix that is not
    finite, symmetric and positive definite (where it is not traced); its message begins with `name`."""
    matrix = jnp.asarray(matrix, dtype)
    if matrix.shape != (size, size):
        raise ValueError(f"{name} of shape {matrix.shape} must have the shape {(size, size)}.")
    if not isinstance(matrix, jax.core.Tracer):
        values = np.asarray(matrix)
        symmetric = np.allclose(values, values.T, rtol=1e-6, atol=0)
        if not (np.all(np.isfinite(values)) and symmetric and np.min(np.linalg.eigvalsh(values)) > 0):
            raise ValueError(f"{name} must be symmetric and positive definite, not {values.tolist()}.")
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
