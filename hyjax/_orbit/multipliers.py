"""Eigenvalues of a real matrix, sorted, with derivatives of every order where they are simple."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float


@jax.custom_jvp
def _eigenpairs(matrix: Float[Array, "n n"]) -> tuple[Complex[Array, " n"], Complex[Array, "n n"]]:
    """Eigenvalues, largest modulus first, and their right eigenvectors as rows, of length 1."""
    # A matrix with NaN would make LAPACK fail for the whole batch.
    finite = jnp.all(jnp.isfinite(matrix))
    values, vectors = jnp.linalg.eig(jnp.where(finite, matrix, jnp.eye(matrix.shape[0], dtype=matrix.dtype)))
    # The two of a complex pair have one modulus, up to rounding: the one above the real axis comes first.
    modulus = jnp.abs(values)
    digits = jnp.sqrt(jnp.finfo(matrix.dtype).eps) * jnp.max(modulus)
    order = jnp.lexsort((-values.imag, -jnp.round(modulus / jnp.where(digits > 0, digits, 1))))
    values, vectors = values[order], vectors[:, order].T
    return jnp.where(finite, values, jnp.nan), jnp.where(finite, vectors, jnp.nan)


@_eigenpairs.defjvp
def _eigenpairs_jvp(primals, tangents):
    (matrix,), (dmatrix,) = primals, tangents
    values, vectors = _eigenpairs(matrix)
    n = matrix.shape[0]
    whole, dwhole = matrix.astype(values.dtype), dmatrix.astype(values.dtype)
    eye = jnp.eye(n + 1, dtype=values.dtype)

    def one(value, vector):
        # A v = s v and c.v = 1, with c = conj(v) held fixed: one linear system for ds and dv.
        fixed = jax.lax.stop_gradient(jnp.conj(vector))
        top = jnp.concatenate([whole - value * eye[:n, :n], -vector[:, None]], axis=1)
        bordered = jnp.concatenate([top, jnp.append(fixed, jnp.zeros_like(value))[None, :]], axis=0)
        right = jnp.append(-(dwhole @ vector), jnp.zeros_like(value))
        return bordered, right

    bordered, right = jax.vmap(one)(values, vectors)
    # Zeros of a matrix of low rank repeat, and stay zero when the rank does: they do not move.
    scale = jnp.max(jnp.abs(values))
    frozen = jnp.abs(values) < 1e3 * jnp.finfo(matrix.dtype).eps * scale
    bordered = jnp.where(frozen[:, None, None], eye, bordered)
    right = jnp.where(frozen[:, None], 0, right)
    moved = jnp.linalg.solve(bordered, right[..., None])[..., 0]
    return (values, vectors), (moved[:, n], moved[:, :n])


def eigenvalues(matrix: Float[Array, "n n"]) -> Complex[Array, " n"]:
    """Largest modulus first; of a complex pair the one with positive imaginary part first.

    Differentiable to any order where they are simple; an eigenvalue that is zero to rounding has derivative zero. A
    matrix that is not finite has eigenvalues NaN.
    """
    return _eigenpairs(matrix)[0]
