"""Linear equations of mass matrices and compliances: small, symmetric, positive definite; solved, never inverted."""

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from .._system.results import nan_unless

Square = Float[Array, "m m"]
Columns = Float[Array, "m k"]

# Up to this size elimination is written out: arithmetic that XLA fuses with its neighbours and vectorizes over a batch.
# Beyond, it would be slow to compile.
_WRITTEN_OUT = 6
# Compliances of which one is smaller than another by this factor belong to rows that say the same.
_REDUNDANT = 1e-10


def solve_symmetric(matrix: Square, columns: Columns, redundant: bool = False) -> Columns:
    """The solution for each column, with a symmetric positive definite matrix; NaN where it is not that.

    If `redundant` the matrix may have rows that depend on others: then the solution of least norm.

    Its derivatives are solutions with the same matrix, to every order. (Those of lineax's own rule call back into Python
    to check for failure, from within the loop of an integration.)
    """
    definite = _eliminate if matrix.shape[0] <= _WRITTEN_OUT else _cholesky
    solve = _least_norm if redundant else definite
    return jax.lax.custom_linear_solve(
        lambda x: matrix @ x, columns, lambda _, right: solve(matrix, right), symmetric=True
    )


def _eliminate(matrix: Square, columns: Columns) -> Columns:
    """Gauss's elimination, which needs no pivoting where the matrix is positive definite."""
    m = matrix.shape[0]
    rows = list(jnp.concatenate([matrix, columns], axis=1))
    for k in range(m):
        for i in range(k + 1, m):
            rows[i] = rows[i] - rows[i][k] / rows[k][k] * rows[k]
    definite = jnp.all(jnp.stack([rows[k][k] for k in range(m)]) > 0)
    solution = {}
    for i in reversed(range(m)):
        known = sum((rows[i][j] * solution[j] for j in solution), jnp.zeros_like(columns[i]))
        solution[i] = (rows[i][m:] - known) / rows[i][i]
    return nan_unless(definite, jnp.stack([solution[i] for i in range(m)]))


def _cholesky(matrix: Square, columns: Columns) -> Columns:
    return _each(lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag), columns, lx.Cholesky())


def _least_norm(matrix: Square, columns: Columns) -> Columns:
    return _each(lx.MatrixLinearOperator(matrix), columns, lx.SVD(rcond=_REDUNDANT))


def _each(operator: lx.AbstractLinearOperator, columns: Columns, solver: lx.AbstractLinearSolver) -> Columns:
    solve = lambda column: lx.linear_solve(operator, column, solver, throw=False).value
    return jax.vmap(solve, in_axes=1, out_axes=1)(columns)
