r"""Small dense matrices in plain JAX operations: solutions, determinants, null vectors by Gaussian elimination; orthonormal rows;
linear complementarity problems by Lemke's pivoting. And polynomials by Horner's scheme.

The loop of an elimination runs over the columns, and each step subtracts whole rows. In a batch all lanes run the same steps, so
a lane's result does not depend on the other lanes, and on a GPU nothing is copied to the host. Beyond `SMALL` unknowns solutions
are LAPACK's. One factorization and eight solutions, microseconds of a lane: the loop takes 34 with 16 unknowns, 112 with 32, 424
with 64, LAPACK 14, 43, 114; in a batch of 64 lanes, whose numbers fill the registers, the loop 10, 56, 264, LAPACK 21, 28, 100.

Hazard of `jnp.linalg.solve` and `jnp.linalg.det` on a CPU: jaxlib distributes a batch of LAPACK calls over XLA's threads and
waits for them on one of these threads, so two batches that overlap can deadlock (jaxlib 0.10.2 with two cores; `ParallelBatchMap`
in https://github.com/jax-ml/jax/blob/main/jaxlib/cpu/lapack_kernels.cc; no issue known upstream,
`tests/numerics/test_upstream_faults.py` fails when the deadlock is gone). In the same kernels: batches of `eigh` corrupt the heap
on many cores (https://github.com/jax-ml/jax/issues/39292), and batches of `solve` take 2.6 times as long as in 0.9
(https://github.com/jax-ml/jax/issues/36927).

Source: Golub, Van Loan (2013), *Matrix Computations*, ch. 3.4.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Inexact, Int

from .._system.types import Flag

Matrix = Inexact[Array, "n m"]
Square = Inexact[Array, "n n"]
Right = Inexact[Array, "n *columns"]

SMALL = 24


def solve(matrix: Square, right: Right) -> Right:
    """The solution `x` of `matrix @ x = right`: `solver(matrix)(right)`."""
    return solver(matrix)(right)


def solve_positive(matrix: Square, right: Right) -> tuple[Right, Inexact[Array, ""]]:
    """The solution of `matrix @ x = right` for a symmetric, positive definite matrix, which needs no exchanges of rows: one short
    loop, a smaller program than `solve`; and the smallest pivot, positive where the matrix is positive definite, else zero,
    negative or NaN. Not differentiable in reverse mode."""
    n = len(matrix)
    row = np.arange(n, dtype=np.int32)[:, None]

    def step(k, carry):
        work, least = carry
        leading = jax.lax.dynamic_slice_in_dim(work, k, 1)
        column = jax.lax.dynamic_slice_in_dim(work, k, 1, axis=1)
        pivot = jax.lax.dynamic_slice_in_dim(leading, k, 1, axis=1)
        leading = leading / pivot
        return jnp.where(row == k, leading, work - column * leading), jnp.minimum(least, pivot[0, 0])

    start = jnp.concatenate([matrix, right.reshape(n, -1)], axis=1), jnp.full((), jnp.inf, matrix.dtype)
    work, least = jax.lax.fori_loop(np.int32(0), np.int32(n), step, start)
    return work[:, n:].reshape(right.shape), least


def smallest_pivot(matrix: Square) -> Inexact[Array, ""]:
    """Positive where a symmetric matrix is positive definite, see `solve_positive`."""
    return solve_positive(matrix, matrix[:, :0])[1]


def solver(matrix: Square, product: Callable | None = None) -> Callable[[Right], Right]:
    r"""The map from right-hand sides to solutions, $b \mapsto A^{-1} b$; the matrix is factored once, $PA = LU$, with partial
    pivoting.

    Differentiable in the matrix and the right-hand side, to any order, in forward and reverse mode, by solutions with the same
    factors. Where the matrix is exactly singular the solution is not finite.

    **Arguments:** `matrix`: shape `(n, n)`, real or complex. `product`: $x \mapsto A x$ for one `x`, which is differentiated in
    place of the `matrix`. **Returns:** a function of `right`, shape `(n,)` or `(n, k)`.
    """
    factored, substituted = (
        (_factored, _substituted) if len(matrix) <= SMALL else (_lapack_factored, _lapack_substituted)
    )
    lu, order, place = factored(jax.lax.stop_gradient(matrix))

    def forward(_, right):
        return substituted(lu, _rows(right, order), transposed=False)

    def transposed(_, right):
        return _rows(substituted(lu, right, transposed=True), place)

    def apply(right):
        dense = lambda columns: jnp.matmul(matrix, columns, precision=jax.lax.Precision.HIGHEST)
        multiplied = dense if product is None else jax.vmap(product, 1, 1)
        columns = right.reshape(len(right), -1)
        return jax.lax.custom_linear_solve(multiplied, columns, forward, transposed).reshape(right.shape)

    return apply


def det(matrix: Square) -> Inexact[Array, ""]:
    r"""The determinant: the product of the pivots, times the sign of their permutation.

    Its derivatives are those of the elimination itself. They are correct to every order where the rank is $n - 1$ or more,
    since nothing is divided by the last pivot. Where the rank is lower, the first derivative is zero, as it should be; higher
    derivatives are wrong there.
    """
    lu, order, _ = _factored(matrix)
    exchanged = jnp.sum(jnp.triu(order[:, None] > order[None, :]))
    return jnp.prod(jnp.diagonal(lu)) * jnp.where(exchanged % 2 == 1, -1, 1).astype(matrix.dtype)


def null_vectors(matrix: Matrix, rank: int) -> Inexact[Array, "dimension m"]:
    r"""Orthonormal null vectors, as rows: $A x_i = 0$ for a matrix that has the given rank up to rounding. Not differentiable.

    By Gauss-Jordan elimination with complete pivoting, ended after `rank` steps: the remaining entries are taken as zero.
    A matrix of lower rank has more null vectors than these.
    """
    n, m = matrix.shape
    row, column = np.arange(n, dtype=np.int32), np.arange(m, dtype=np.int32)

    def step(_, carry):
        work, owner, free = carry
        candidates = jnp.where((owner == m)[:, None] & free, _size(work), -1)
        place = jax.lax.argmax(candidates.reshape(-1), 0, jnp.int32)
        r, c = place // m, place % m
        leading = _rows(work, r)
        pivot = _rows(leading, c)
        leading = leading / jnp.where(pivot == 0, 1, pivot)
        cleared = work - _rows(work.T, c)[:, None] * leading
        return jnp.where((row == r)[:, None], leading, cleared), jnp.where(row == r, c, owner), free & (column != c)

    start = (jax.lax.stop_gradient(matrix), jnp.full(n, m, np.int32), jnp.ones(m, bool))
    work, owner, free = jax.lax.fori_loop(np.int32(0), np.int32(rank), step, start)
    return _orthonormal(_solutions(work, owner, free, m - rank))


def _solutions(work: Matrix, owner: Int[Array, " n"], free: Bool[Array, " m"], count: int) -> list[Array]:
    """Solutions of the reduced equations: in each, one unknown that was not eliminated is 1, and the other ones are 0."""
    own = owner[:, None] == np.arange(free.size, dtype=np.int32)
    number = jnp.cumsum(free, dtype=np.int32)
    chosen = [free & (number == i + 1) for i in range(count)]
    values = [jnp.sum(jnp.where(each, work, 0), axis=1) for each in chosen]
    return [
        each.astype(work.dtype) - jnp.sum(jnp.where(own, value[:, None], 0), axis=0)
        for each, value in zip(chosen, values, strict=True)
    ]


def _orthonormal(vectors: list[Array]) -> Array:
    """The vectors after Gram-Schmidt orthonormalization, as rows."""
    done: list[Array] = []
    for x in vectors:
        for y in done:
            x = x - jnp.sum(jnp.conj(y) * x) * y
        done.append(x / jnp.sqrt(jnp.sum(jnp.real(x) ** 2 + jnp.imag(x) ** 2)).astype(x.dtype))
    return jnp.stack(done)


def orthonormal(tangents: Float[Array, "count size"]) -> tuple[Float[Array, "count size"], Float[Array, " count"]]:
    """Orthonormal rows that span what the rows span, and the logarithms of their growth: $V = QR$ and $\\log |R_{ii}|$.

    A row that is a combination of those before it, up to rounding, becomes zero and stays so; its logarithm is `-inf`. Twice the
    modified method of Gram and Schmidt: orthogonal to rounding, in plain JAX.
    """
    rows, grown = [], []
    largest = jnp.sqrt(jnp.max(jnp.sum(tangents**2, axis=1)))
    bound = tangents.shape[1] * jnp.finfo(tangents.dtype).eps * largest
    for row in tangents:
        for _ in range(2):
            for known in rows:
                row = row - known * (known @ row)
        length = jnp.sqrt(row @ row)
        there = length > bound
        safe = jnp.where(there, length, 1)
        rows.append(jnp.where(there, row / safe, 0))
        grown.append(jnp.where(there, jnp.log(safe), -jnp.inf))
    return jnp.stack(rows), jnp.stack(grown)


def _factored(matrix: Square) -> tuple[Square, Int[Array, " n"], Int[Array, " n"]]:
    """The factors, `L` below the diagonal and `U` on and above it; the row of each pivot; and the inverse permutation."""
    n = len(matrix)
    each = np.arange(n, dtype=np.int32)

    def step(k, carry):
        # Rows are not exchanged: `place` is the number of the pivot in a row, and n for a row that has no pivot yet.
        work, place = carry
        column = jax.lax.dynamic_index_in_dim(work, k, axis=1, keepdims=False)
        p = jax.lax.argmax(jnp.where(place == n, _size(column), -1), 0, jnp.int32)
        leading = _rows(work, p)
        pivot = _rows(leading, k)
        place = jnp.where(each == p, k, place)
        ratio = jnp.where(pivot == 0, 0, column / jnp.where(pivot == 0, 1, pivot))[:, None]
        reduced = jnp.where(each > k, work - ratio * leading, jnp.where(each == k, ratio, work))
        return jnp.where((place == n)[:, None], reduced, work), place

    work, place = jax.lax.fori_loop(np.int32(0), np.int32(n), step, (matrix, jnp.full(n, n, np.int32)))
    order = jnp.sum(jnp.where(place == each[:, None], each, 0), axis=1, dtype=np.int32)
    return _rows(work, order), order, place


def _substituted(lu: Square, right: Matrix, transposed: bool) -> Matrix:
    """Forward and backward substitution in one loop: down the unknowns, then up."""
    n = len(lu)
    row = np.arange(n, dtype=np.int32)[:, None]
    triangles = lu.T if transposed else lu

    def step(i, right):
        down = i < n
        k = jnp.where(down, i, 2 * n - 1 - i)
        column = jax.lax.dynamic_slice_in_dim(triangles, k, 1, axis=1)
        pivot = jax.lax.dynamic_slice_in_dim(column, k, 1, axis=0)
        # The diagonal of L consists of ones.
        known = jax.lax.dynamic_slice_in_dim(right, k, 1, axis=0) / jnp.where(down == transposed, pivot, 1)
        further = jnp.where(down, row > k, row < k)
        return jnp.where(row == k, known, jnp.where(further, right - column * known, right))

    return jax.lax.fori_loop(np.int32(0), np.int32(2 * n), step, right)


def _lapack_factored(matrix: Square) -> tuple[Square, Int[Array, " n"], Int[Array, " n"]]:
    """`_factored` by LAPACK, on a CPU lane by lane."""

    def one(matrix):
        lu, pivots, _ = jax.lax.linalg.lu(matrix)
        return lu, _moved(pivots, reverse=True), _moved(pivots, reverse=False)

    return jax.lax.platform_dependent(matrix, cpu=jax.custom_batching.sequential_vmap(one), default=one)


def _moved(pivots: Int[Array, " n"], reverse: bool) -> Int[Array, " n"]:
    """Where each row is after LAPACK's exchanges of row `k` with row `pivots[k]`; with `reverse`, where each row was before.

    `jax.lax.linalg.lu` exchanges entries of one array, in `n` iterations of six kernels (jaxlib 0.10.2 on a CPU; no issue known
    upstream): 1.2 ms for 200 rows, beside 0.35 of the factorization. Here all rows follow the exchanges, 16 of them in a kernel.
    """
    each = np.arange(len(pivots), dtype=pivots.dtype)

    def exchange(row, pair):
        return jnp.where(row == pair[0], pair[1], jnp.where(row == pair[1], pair[0], row)), None

    return jax.lax.scan(exchange, jnp.asarray(each), (each, pivots), reverse=reverse, unroll=16)[0]


def _lapack_substituted(lu: Square, right: Matrix, transposed: bool) -> Matrix:
    """`_substituted` by LAPACK: on a CPU matrix by matrix, the right-hand sides of one matrix, as of its tangents, together."""

    def one(lu, right):
        for lower in (not transposed, transposed):
            right = jax.lax.linalg.triangular_solve(
                lu, right, left_side=True, lower=lower, transpose_a=transposed, unit_diagonal=lower
            )
        return right

    together = jax.custom_batching.custom_vmap(one)

    @together.def_vmap
    def _(size, batched, lu, right):
        if batched[0]:
            lanes = jax.custom_batching.sequential_vmap(one)
            return jax.vmap(lanes, in_axes=[0 if each else None for each in batched])(lu, right), True
        columns = right.transpose(1, 0, 2).reshape(len(lu), -1)
        return together(lu, columns).reshape(len(lu), size, -1).transpose(1, 0, 2), True

    return jax.lax.platform_dependent(lu, right, cpu=together, default=one)


def _rows(array: Array, which: Int[Array, "..."]) -> Array:
    return array.at[which].get(mode="promise_in_bounds")


def _size(x: Array) -> Array:
    return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)


def horner(coefficients: tuple[float, ...], z: Array) -> Array:
    r"""$\sum_i c_i z^i$, from the last coefficient down.

    Where the moduli of the terms fall by the factor $\theta$ or faster, the rounding is at most $2u|c_0| / (1 - \theta)^2$: the
    term $i$ passes the rounding of its coefficient, $i$ products and $i + 1$ sums, and $\sum_i (2i + 2)\theta^i$ is that.
    """
    total = jnp.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * z + coefficient
    return total


# A problem has a solution after at most about two pivots for each unknown; a cycle is ended here.
_PIVOTS = 10


@eqx.filter_jit
def lemke(
    matrix: Float[Array, "n n"], offset: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Bool[Array, " n"], Flag]:
    r"""A solution of the linear complementarity problem $0 \le z \perp Mz + q \ge 0$. Not differentiable: what solves the
    equations of its basis is.

    With an artificial unknown $z_0$, $w = Mz + q + z_0$; a pivot exchanges a basic unknown for the complement of the one that was
    exchanged last, until $z_0$ leaves the basis. For a copositive matrix that ends with a solution, unless none exists
    (Cottle, Pang, Stone, theorem 4.4.12); the problem of contacts with friction is of that kind.

    **Arguments:** `matrix`, `offset`: $M$, $q$; entries of size one. Ties are broken by a small number added to each part of
    `offset`, another for each.

    **Returns:** $z$; which of its parts are in the basis, so that those of $w$ are zero; and whether that is a solution.

    Source: Cottle, Pang, Stone (1992), *The Linear Complementarity Problem*, ch. 4.4.
    """
    n, eps = offset.size, float(jnp.finfo(offset.dtype).eps)
    apart = eps**0.75 * (1 + np.arange(1, n + 1) * 0.618034 % 1)
    right = jax.lax.stop_gradient(offset) + jnp.asarray(apart, offset.dtype)
    one = jnp.ones((n, 1), offset.dtype)
    # Columns of w, z, z0 and of the right side.
    table = jnp.concatenate([jnp.eye(n, dtype=offset.dtype), -jax.lax.stop_gradient(matrix), -one, right[:, None]], 1)
    basis = jnp.arange(n)

    def exchanged(table, basis, row, entering):
        """The table after the unknown `entering` has taken the place of the basic one of the row."""
        pivot = table[row] / table[row, entering]
        rest = table - jnp.outer(table[:, entering], pivot)
        return jnp.where((jnp.arange(n) == row)[:, None], pivot, rest), basis.at[row].set(entering)

    def step(now):
        table, basis, entering, _, count = now
        column = table[:, entering]
        ratio = jnp.where(column > eps**0.7, table[:, -1] / jnp.where(column > 0, column, 1), jnp.inf)
        row = jnp.argmin(jnp.where(basis == 2 * n, ratio * (1 - 4 * eps), ratio))
        open_ended, leaving = ~jnp.isfinite(ratio[row]), basis[row]
        after = exchanged(table, basis, row, entering)
        complement = jnp.where(leaving < n, leaving + n, leaving - n)
        done = open_ended | (leaving == 2 * n)
        kept = [jnp.where(open_ended, old, new) for old, new in zip((table, basis), after, strict=True)]
        return *kept, jnp.where(done, entering, complement), done, count + 1

    first = jnp.argmin(right)
    solved = right[first] >= 0
    begun = exchanged(table, basis, first, 2 * n)
    begun = [jnp.where(solved, old, new) for old, new in zip((table, basis), begun, strict=True)]
    start = *begun, n + first, solved, jnp.array(0)
    going = lambda now: ~now[3] & (now[4] < _PIVOTS * n)
    table, basis, *_ = jax.lax.while_loop(going, step, start)
    basic = jnp.any(basis[:, None] == n + jnp.arange(n), axis=0)
    values = jnp.zeros(2 * n + 1, offset.dtype).at[basis].set(table[:, -1])
    solution = values[n : 2 * n]
    # Where parts of M are nearly dependent, a ray may begin at a z0 that is rounding: its end is a solution up to that.
    return solution, basic, (values[2 * n] <= eps**0.5) & jnp.all(jnp.isfinite(solution))
