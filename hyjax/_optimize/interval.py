r"""One interval of a plan by an explicit Runge-Kutta method, with second derivatives stage by stage.

With the rates $\varphi(s, x, v, w)$ over the interval, $0 \le s \le 1$, of the state and of integrals, and the input $w =
B(s)\,u$, the points of an interval are

$$Y_i = x + \sum_{j<i} a_{ij} K_j, \qquad K_i = \varphi(s_i, Y_i, v, B(s_i)\,u)$$

Two rows are added to the method's: the end of the interval, and the state at $s = \tfrac12$ of the cubic through both ends and
their rates; limits along the arc are asked for at both and at the start. The sensitivities $S_i$ of $Y_i$ to $y = (x, v, u)$
and the adjoints $\mu_i$ of $K_i$ are sums over the points with the Jacobians of $\varphi$ there, and the second derivatives of a
function $L$ of the end and of the rows $r$ at the points, with weights $z$, are

$$\nabla^2 L = \sum_i \begin{pmatrix} S_i \\ I \end{pmatrix}^\top \nabla^2\bigl(\mu_i^\top\varphi + z_i^\top r\bigr)(Y_i, v, u)
  \begin{pmatrix} S_i \\ I \end{pmatrix}$$

so $\varphi$ is differentiated twice at single points, all of them in one batch, and never through the steps.

Source: Dormand, Prince (1980), J. Comput. Appl. Math. 6, 19-26, and their method of order 8 as diffrax has it; Walther (2007),
*Automatic differentiation of explicit Runge-Kutta methods for optimal control*, Comput. Optim. Appl. 36, 83-108, for the
adjoints.
"""

from collections.abc import Callable

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Scalar, State
from ..control.virtual_constraints import bezier


def _extended_tableau() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, coefficients and weights with the rows of the end and of the middle, without stages of the error estimate alone."""
    given = dfx.Dopri8.tableau
    weights = np.asarray(given.b_sol)
    count = int(np.max(np.nonzero(weights))) + 1
    a, b = np.zeros((count + 2, count + 2)), np.append(weights[:count], [0, 0])
    for i, row in enumerate(given.a_lower[: count - 1]):
        a[i + 1, : i + 1] = row
    a[count], a[count + 1] = b, b / 2
    a[count + 1, 0] += 1 / 8
    a[count + 1, count] -= 1 / 8
    return np.concatenate([[0], given.c[: count - 1], [1, 0.5]]), a, b


NODES, COEFFICIENTS, WEIGHTS = _extended_tableau()
# The points at which rows along the arc stand: the start, the middle and the end, whose input is not that of the next start.
ASKED = np.array([0, len(NODES) - 1, len(NODES) - 2])

# `(s, x, v, w) -> (n + integrals,)`, the rates over the interval.
Flow = Callable[[Scalar, State, Array, Array], Array]
# `(s, x, v, w) -> (kinds,)`.
Rows = Callable[[Scalar, State, Array, Array], Array]


# The end of an interval and the rows along it, each before its derivatives by $y = (x, v, u)$: shapes `(both,)`, `(both, y)`,
# `(points, kinds)` and `(points, kinds, y)`; and the second ones of $\lambda^\top(x, c) - z^\top r$, shape `(y, y)`.
Flown = tuple[Array, Array, Array, Array, Array]


def points_of(flow: Flow, degree: int, x: State, v: Array, u: Array, begin: Scalar | float, part: float):
    """$Y_i$ and $K_i$ without those of the end and the middle, and the end with the integrals, of `part` of an interval from the
    fraction `begin` of it."""
    count, n = len(WEIGHTS) - 2, x.size
    nodes, table = (jnp.asarray(each[:count], x.dtype) for each in (NODES, COEFFICIENTS[:, :count]))
    size = jax.eval_shape(lambda: flow(nodes[0], x, v, input_at(degree, u, nodes[0]))).size

    def stage(known, i):
        s, at = begin + part * nodes[i], x + part * (table[i] @ known)[:n]
        return known.at[i].set(flow(s, at, v, input_at(degree, u, s))), at

    known, points = jax.lax.scan(stage, jnp.zeros((count, size), x.dtype), jnp.arange(count))
    moved = part * (jnp.asarray(WEIGHTS[:count], x.dtype) @ known)
    return points, known, jnp.concatenate([x + moved[:n], moved[n:]])


def input_at(degree: int, u: Array, s: Scalar) -> Array:
    """The input at a fraction of the interval, as a vector."""
    return bezier(u.reshape(degree + 1, -1).T, s)


def fly(
    flow: Flow,
    rows: Rows,
    degree: int,
    y: tuple[State, Array, Array],
    costate: Array,
    duals: Float[Array, "points kinds"],
) -> Flown:
    """The interval from `y`, with derivatives. `costate`: $\\lambda$ of the end and the integrals; `duals`: $z$."""
    x, v, u = y
    n, dtype, count = x.size, x.dtype, len(WEIGHTS) - 2
    starts, rates, end = points_of(flow, degree, x, v, u, 0.0, 1.0)
    s = jnp.asarray(NODES, dtype)
    basis = jax.vmap(lambda s: bezier(jnp.eye(degree + 1, dtype=dtype), s))(s)
    inputs = basis @ u.reshape(degree + 1, -1)
    last = flow(s[count], end[:n], v, inputs[count])
    half = x + (jnp.asarray(COEFFICIENTS[-1, : count + 1], dtype) @ jnp.concatenate([rates, last[None]]))[:n]
    points = jnp.concatenate([starts, end[None, :n], half[None]])
    place = jnp.concatenate([points, jnp.broadcast_to(v, (len(s), v.size)), inputs], axis=1)
    split = lambda at: (at[:n], at[n : n + v.size], at[n + v.size :])
    # The Jacobians of the rates, then sensitivities forward and adjoints backward.
    slopes = jax.vmap(jax.jacfwd(lambda at, s: flow(s, *split(at))))(place[:-1], s[:-1])
    direct = _by_y(n, v.size, inputs.shape[1], basis)
    table, weights = jnp.asarray(COEFFICIENTS, dtype), jnp.asarray(WEIGHTS, dtype)

    def forward(known, i):
        sensitivity = direct[i].at[:n].add(jnp.tensordot(table[i, :-1], known, 1)[:n])
        slope = slopes.at[i].get(mode="fill", fill_value=0)
        return known.at[i].set(slope @ sensitivity, mode="drop"), sensitivity

    size = rates.shape[1]
    start = jnp.zeros((len(s) - 1, size, direct.shape[2]), dtype)
    moved, sensitivities = jax.lax.scan(forward, start, jnp.arange(len(s)))
    end_by = jnp.tensordot(weights[:-1], moved, 1).at[:n].add(direct[0, :n])

    at_rows, asked = place[ASKED], s[ASKED]

    def rows_there(at, s, dual):
        values, back = jax.vjp(lambda at: rows(s, *split(at)), at)
        return (values, back(dual)[0]), values

    rows_of = jax.vmap(jax.jacfwd(rows_there, has_aux=True))
    (rows_by, rows_bend), values = rows_of(at_rows, asked, -duals)
    pulls = jnp.zeros((len(s), n), dtype).at[ASKED].set(-jnp.einsum("pk,pka->pa", duals, rows_by[:, :, :n]))

    def backward(known, i):
        adjoint = weights[i] * costate + jnp.pad(table[:, i] @ known, (0, size - n))
        slope = slopes.at[i].get(mode="fill", fill_value=0)
        adjoint = jnp.where(i < len(s) - 1, adjoint, 0)
        return known.at[i].set(pulls[i] + (adjoint @ slope)[:n]), adjoint

    _, adjoints = jax.lax.scan(backward, jnp.zeros((len(s), n), dtype), jnp.arange(len(s)), reverse=True)
    curve = lambda at, s, adjoint: jax.grad(lambda at: adjoint @ flow(s, *split(at)))(at)
    bends = jax.vmap(jax.jacfwd(curve))(place[:-1], s[:-1], adjoints[:-1])
    bend = jnp.einsum("iab,iac,icd->bd", sensitivities[:-1], bends, sensitivities[:-1])
    at_asked = sensitivities[ASKED]
    bend = bend + jnp.einsum("iab,iac,icd->bd", at_asked, rows_bend, at_asked)
    return end, end_by, values, jnp.einsum("pka,pab->pkb", rows_by, at_asked), bend


def _by_y(n: int, same: int, components: int, basis: Array) -> Float[Array, "points at y"]:
    """The derivative of $(x, v, w)$ at each point by $y$, without what the rates add to the state."""
    own, one = jnp.eye(n + same, dtype=basis.dtype), jnp.eye(components, dtype=basis.dtype)
    return jnp.stack([jax.scipy.linalg.block_diag(own, jnp.kron(row[None], one)) for row in basis])
