r"""The linear complementarity problem, by Lemke's pivoting: a vector $z \ge 0$ with $w = Mz + q \ge 0$ and $w^\top z = 0$."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._system.types import Flag

LemkeMatrix = Float[Array, "n n"]
Vector = Float[Array, " n"]
# A problem has a solution after at most about two pivots for each unknown; a cycle is ended here.
_PIVOTS = 10


@eqx.filter_jit
def lemke(matrix: LemkeMatrix, offset: Vector) -> tuple[Vector, Bool[Array, " n"], Flag]:
    r"""A solution of $0 \le z \perp Mz + q \ge 0$. Not differentiable: what solves the equations of its basis is.

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
