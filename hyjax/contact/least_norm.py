"""Small linear systems with symmetric positive definite matrices: mass matrices and compliances."""

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

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
    definite = _eliminate if matrix.shape[0] <= _UNROLLED else _cholesky
    solve = _least_norm if redundant else definite
    return jax.lax.custom_linear_solve(
        lambda x: matrix @ x, columns, lambda _, right: solve(matrix, right), symmetric=True
    )


def _eliminate(matrix: Square, columns: Columns, times: int = 1) -> Columns:
    """The solution of `matrix @ x = columns`, or with `times=2` of `matrix @ matrix @ x = columns`, by one Gaussian elimination.
    A positive definite matrix needs no pivoting."""
    m = matrix.shape[0]
    rows, factors = list(jnp.concatenate([matrix, columns], axis=1)), {}
    for k in range(m):
        for i in range(k + 1, m):
            factors[i, k] = rows[i][k] / rows[k][k]
            rows[i] = rows[i] - factors[i, k] * rows[k]
    definite = jnp.all(jnp.stack([rows[k][k] for k in range(m)]) > 0)
    right = [row[m:] for row in rows]
    for left in reversed(range(times)):
        solution = {}
        for i in reversed(range(m)):
            known = sum((rows[i][j] * solution[j] for j in solution), jnp.zeros_like(right[i]))
            solution[i] = (right[i] - known) / rows[i][i]
        right = [solution[i] for i in range(m)]
        for i, k in factors if left else ():
            right[i] = right[i] - factors[i, k] * right[k]
    return nan_unless(definite, jnp.stack(right))


def _cholesky(matrix: Square, columns: Columns) -> Columns:
    operator = lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag)
    solve = lambda column: lx.linear_solve(operator, column, lx.Cholesky(), throw=False).value
    return jax.vmap(solve, in_axes=1, out_axes=1)(columns)


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
    solution = lower @ _eliminate(gram, lower.T @ columns, times=2)
    return nan_unless(jnp.all(jnp.isfinite(matrix)), solution)
