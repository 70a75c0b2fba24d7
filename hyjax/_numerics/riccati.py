r"""The discrete algebraic Riccati equation, by doubling.

$$P = Q + A^\top P A - A^\top P B\,(R + B^\top P B)^{-1} B^\top P A$$

With $G = B R^{-1} B^\top$ one pass replaces the step of the Riccati iteration by two such steps, so that $k$ passes are $2^k$
steps:

$$A \leftarrow A W^{-1} A, \quad G \leftarrow G + A W^{-1} G A^\top, \quad H \leftarrow H + A^\top H W^{-1} A, \qquad
  W = I + G H,$$

from $H = Q$ to $H = P$. $A$ may be singular, as the Jacobian of a return map is. A step of Newton's method follows: the cost
of the gain that was found.

Source: Chu, Fan, Lin, Wang (2004), *Structure-preserving algorithms for periodic discrete-time algebraic Riccati equations*, Int.
J. Control 77, 767-788; Anderson (1978), *Second-order convergent algorithms for the steady-state Riccati equation*, ibid. 28;
Hewer (1971), *An iterative technique for the computation of the steady state gains for the discrete optimal regulator*, IEEE
Trans. Autom. Control 16, for Newton's method.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .elimination import solver

# 2^40 steps: enough for closed loops whose multipliers are 1e-11 inside the unit circle.
PASSES = 40

Matrix = Float[Array, "n n"]


@jax.custom_jvp
def discrete_riccati(
    a: Matrix, b: Float[Array, "n m"], state_cost: Matrix, control_cost: Float[Array, "m m"]
) -> tuple[Matrix, Float[Array, "m n"]]:
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
def stabilizing_cost(a: Matrix, g: Matrix, h: Matrix) -> Matrix:
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


def closed_loop(a: Matrix, g: Matrix, p: Matrix) -> Matrix:
    r"""$(I + GP)^{-1} A$: the map from a state to the next under the optimal control, where $P$ is the cost from the next."""
    return solver(jnp.eye(len(p), dtype=p.dtype) + g @ p)(a)


def lyapunov_sum(closed: Matrix, forced: Matrix, passes: int = PASSES) -> Matrix:
    r"""$\sum_j (C^\top)^j F C^j$ for a matrix $C$ with eigenvalues inside the unit circle: the solution of the discrete Lyapunov
    equation $X = F + C^\top X C$, linear in $F$. `passes`: $2^{\text{passes}}$ terms are summed."""

    def double(carry, _):
        total, power = carry
        return (total + power.T @ total @ power, power @ power), None

    return jax.lax.scan(double, (forced, closed), None, length=passes)[0][0]


def _doubled(a: Matrix, g: Matrix, h: Matrix) -> Matrix:
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
