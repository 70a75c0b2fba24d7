"""Small linear systems with symmetric positive definite matrices: mass matrices and compliances."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._numerics.elimination import smallest_pivot, solve
from .._system.results import nan_unless

Square = Float[Array, "m m"]
Columns = Float[Array, "m k"]

# Up to this size elimination is unrolled: XLA fuses the arithmetic and vectorizes it over a batch. Beyond this size it would be
# slow to compile.
_UNROLLED = 6
# Pivots of a compliance below this fraction of the largest belong to redundant rows.
_REDUNDANT = 1e-10


def solve_symmetric(matrix: Square, columns: Columns, redundant: bool = False) -> Columns:
    """The solution for each column; NaN where the matrix is not positive definite.

    With `redundant` the matrix may be singular, and the solution is that of least norm.

    Derivatives of every order are solutions with the same matrix. (lineax's own derivative rule calls back into Python to check
    for failure, from within the loop of an integration.)
    """
    definite = lambda matrix, right: nan_unless(smallest_pivot(matrix) > 0, solve(matrix, right))
    solution = _least_norm if redundant else _eliminate if matrix.shape[0] <= _UNROLLED else definite
    return jax.lax.custom_linear_solve(
        lambda x: matrix @ x, columns, lambda _, right: solution(matrix, right), symmetric=True
    )


def _eliminate(matrix: Square, columns: Columns) -> Columns:
    """Gaussian elimination without pivoting, which a positive definite matrix does not need, and unrolled."""
    rows, right, m = list(matrix), list(columns), matrix.shape[0]
    for k in range(m):
        for i in range(k + 1, m):
            factor = rows[i][k] / rows[k][k]
            rows[i], right[i] = rows[i] - factor * rows[k], right[i] - factor * right[k]
    solution = dict[int, Array]()
    for i in reversed(range(m)):
        known = sum((rows[i][j] * solution[j] for j in solution), jnp.zeros_like(right[i]))
        solution[i] = (right[i] - known) / rows[i][i]
    definite = jnp.all(jnp.stack([rows[k][k] for k in range(m)]) > 0)
    return nan_unless(definite, jnp.stack([solution[i] for i in range(m)]))


def _least_norm(matrix: Square, columns: Columns) -> Columns:
    r"""The solution of least norm, $L\,(L^\top L)^{-2}L^\top b$, by Cholesky's method with pivoting: $W = LL^\top$ with one
    column of $L$ for each independent row of $W$. Plain arithmetic, unlike a singular value decomposition."""
    rest, factors, taken = matrix, [], []
    largest = jnp.max(jnp.diagonal(matrix))
    for _ in range(matrix.shape[0]):
        sizes = jnp.diagonal(rest)
        size = jnp.max(sizes)
        independent = size > _REDUNDANT * largest
        row = (jnp.arange(sizes.size) == jnp.argmax(sizes)).astype(rest.dtype) @ rest
        factor = jnp.where(independent, row / jnp.sqrt(jnp.where(independent, size, 1)), 0)
        rest = rest - jnp.outer(factor, factor)
        factors.append(factor)
        taken.append(independent)
    lower = jnp.stack(factors, axis=1)
    gram = lower.T @ lower + jnp.diag(jnp.where(jnp.stack(taken), 0, 1).astype(matrix.dtype))
    # XLA eliminates the equal matrices once.
    solution = lower @ _eliminate(gram, _eliminate(gram, lower.T @ columns))
    return nan_unless(jnp.all(jnp.isfinite(matrix)), solution)
