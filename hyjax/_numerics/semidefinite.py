r"""Symmetric matrices given by a user, checked; packed as the numbers of their lower triangle; covariances inverted; and the
semidefinite solutions of the discrete Lyapunov equation and of the discrete algebraic Riccati equation, the latter by doubling.

$$P = Q + A^\top P A - A^\top P B\,(R + B^\top P B)^{-1} B^\top P A$$

With $G = B R^{-1} B^\top$ one pass replaces the step of the Riccati iteration by two such steps, so that $k$ passes are $2^k$
steps:

$$A \leftarrow A W^{-1} A, \quad G \leftarrow G + A W^{-1} G A^\top, \quad H \leftarrow H + A^\top H W^{-1} A, \qquad
  W = I + G H,$$

from $H = Q$ to $H = P$. $A$ may be singular, as the Jacobian of a return map is. A step of Newton's method follows: the cost of
the gain that was found.

Source: Chu, Fan, Lin, Wang (2004), *Structure-preserving algorithms for periodic discrete-time algebraic Riccati equations*, Int.
J. Control 77, 767-788; Anderson (1978), *Second-order convergent algorithms for the steady-state Riccati equation*, ibid. 28;
Hewer (1971), *An iterative technique for the computation of the steady state gains for the discrete optimal regulator*, IEEE
Trans. Autom. Control 16, for Newton's method.
"""

from collections.abc import Callable, Sequence

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._system.types import Matrix, Scalar
from .elimination import solver


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


# 2^40 steps: enough for closed loops whose multipliers are 1e-11 inside the unit circle.
PASSES = 40

Square = Float[Array, "n n"]


@jax.custom_jvp
def discrete_riccati(
    a: Square, b: Float[Array, "n m"], state_cost: Square, control_cost: Float[Array, "m m"]
) -> tuple[Square, Float[Array, "m n"]]:
    r"""The stabilizing solution $P$ of the Riccati equation, and the gain $K = (R + B^\top P B)^{-1} B^\top P A$.

    The feedback $u = -Kx$ minimizes $\sum_k x_k^\top Q x_k + u_k^\top R u_k$ for $x_{k+1} = A x_k + B u_k$; $P$ is the least cost
    from a state.

    **Arguments:** `a`: shape `(n, n)`. `b`: `(n, m)`. `state_cost`: $Q$, symmetric and positive definite, `(n, n)`.
    `control_cost`: $R$, symmetric and positive definite, `(m, m)`. **Returns:** `(P, K)`, differentiable to any order;
    not finite, or with a closed loop $A - BK$ that is not stable, where no feedback stabilizes the system.
    """
    p = _doubled(a, b @ solver(control_cost)(b.T), state_cost)
    k = _gain(a, b, control_cost, p)
    # A step of Newton's method returns the digits that the doubling loses where little control acts.
    p = lyapunov_sum(a - b @ k, state_cost + k.T @ control_cost @ k)
    return p, _gain(a, b, control_cost, p)


@discrete_riccati.defjvp
def _discrete_riccati_jvp(primals, tangents):
    r"""Along the equation: $\dot P = \sum_j (A_c^\top)^j\,\dot S\,A_c^j$ with the closed loop $A_c = A - BK$. The gain is
    optimal, so its own change does not enter $\dot S$."""
    (a, b, _, r), (da, db, dq, dr) = primals, tangents
    p, k = discrete_riccati(*primals)
    closed = a - b @ k
    turned = (da - db @ k).T @ p @ closed
    forced = dq + k.T @ dr @ k + turned + turned.T
    dp = lyapunov_sum(closed, forced)
    # K from its own equation (R + B'PB) K = B'PA.
    right = db.T @ p @ closed + b.T @ dp @ closed + b.T @ p @ (da - db @ k) - dr @ k
    return (p, k), (dp, solver(r + b.T @ p @ b)(right))


@jax.custom_jvp
def stabilizing_cost(a: Square, g: Square, h: Square) -> Square:
    r"""The stabilizing solution of $P = H + A^\top P\,(I + GP)^{-1} A$: the same equation, given $G = B R^{-1} B^\top$ and
    $H = Q$.

    The closed loop is $C = (I + GP)^{-1} A$. **Arguments:** shape `(n, n)` each; `g`, `h` symmetric and positive semidefinite.
    Differentiable to any order; not finite, or with a $C$ that is not stable, where there is no such solution.
    """
    p = _doubled(a, g, h)
    closed = closed_loop(a, g, p)
    return lyapunov_sum(closed, h + closed.T @ p @ g @ p @ closed)


@stabilizing_cost.defjvp
def _stabilizing_cost_jvp(primals, tangents):
    r"""Along the equation: $\dot P = \sum_j (C^\top)^j\,\dot S\,C^j$ with $\dot S = \dot H + \dot A^\top PC + C^\top P\dot A -
    C^\top P\dot GPC$."""
    (a, g, _), (da, dg, dh) = primals, tangents
    p = stabilizing_cost(*primals)
    closed = closed_loop(a, g, p)
    ahead = p @ closed
    turned = da.T @ ahead
    return p, lyapunov_sum(closed, dh + turned + turned.T - ahead.T @ dg @ ahead)


def closed_loop(a: Square, g: Square, p: Square) -> Square:
    r"""$(I + GP)^{-1} A$: the map from a state to the next under the optimal control, where $P$ is the cost from the next."""
    return solver(jnp.eye(len(p), dtype=p.dtype) + g @ p)(a)


def lyapunov_sum(closed: Square, forced: Square, passes: int = PASSES) -> Square:
    r"""$\sum_j (C^\top)^j F C^j$ for a matrix $C$ with eigenvalues inside the unit circle: the solution of the discrete Lyapunov
    equation $X = F + C^\top X C$, linear in $F$. `passes`: $2^{\text{passes}}$ terms are summed."""

    def double(carry, _):
        total, power = carry
        return (total + power.T @ total @ power, power @ power), None

    return jax.lax.scan(double, (forced, closed), None, length=passes)[0][0]


def _doubled(a: Square, g: Square, h: Square) -> Square:
    """The limit of the doubling, which is reached when the power of the closed loop is rounding. Not differentiable."""
    eye = jnp.eye(len(a), dtype=a.dtype)

    def double(carry):
        k, a, g, h = carry
        by_w = solver(eye + g @ h)
        wa, wg = by_w(a), by_w(g)
        return k + 1, a @ wa, _symmetric(g + a @ wg @ a.T), _symmetric(h + a.T @ h @ wa)

    going = lambda carry: (carry[0] < PASSES) & ~(jnp.max(jnp.abs(carry[1])) <= jnp.finfo(a.dtype).eps)
    return jax.lax.while_loop(going, double, (jnp.zeros((), jnp.int32), a, g, h))[3]


def _gain(a, b, control_cost, p):
    return solver(control_cost + b.T @ p @ b)(b.T @ p @ a)


def _symmetric(matrix):
    return (matrix + matrix.T) / 2
