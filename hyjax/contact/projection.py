r"""The dynamics of the bodies projected to the contact points: eq. 61 of Kong et al. by block elimination.

$$\begin{bmatrix} M & -J^\top \\ J & 0 \end{bmatrix}
  \begin{bmatrix} \dot v \\ f \end{bmatrix} =
  \begin{bmatrix} Q - c \\ -\dot J v \end{bmatrix}
  \quad\Leftrightarrow\quad
  W f = -(J M^{-1}(Q - c) + \dot J v), \qquad \dot v = M^{-1}(Q - c) + M^{-1}J^\top f$$

with the compliance $W = J M^{-1} J^\top$. One factorization of $M$ serves flight, sticking, sliding and impacts, and the laws of
contact depend on the bodies through $W$ alone. A force is positive where it pushes the bodies apart. (The paper's $f$ has the
opposite sign: its block $J^\top$ is not negated.)
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Bool, Float

from .._numerics.elimination import smallest_pivot, solve
from .._numerics.programs import depends_on, once
from .._system.results import nan_unless
from .._system.system import Domain
from .._system.types import Params, Scalar, State, Time
from .contact import Contact, gap_rates, gaps, velocity_rows
from .mechanism import diagonal, inertia, load, Mechanism, Motion, Positions, Velocities

Rows = Float[Array, " rows"]
Mask = Bool[Array, " rows"]


class Projection(eqx.Module):
    r"""The dynamics of the bodies, projected to the contact points.

    **Attributes:** `free`: $M^{-1}(Q - c)$, shape `(m,)`. `response`: $M^{-1}J^\top$, shape `(m, rows)`. `compliance`: $W$, shape
    `(rows, rows)`. `gaps`: shape `(contacts,)`. `velocity`: of the contact points, shape `(rows,)`. `drift`: their acceleration
    in free motion, $J M^{-1}(Q - c) + \dot Jv + D_t(\cdot)$. `jacobian`: $J$, shape `(rows, m)`. `load`: $Q - c$.
    """

    free: Velocities
    response: Float[Array, "m rows"]
    compliance: Float[Array, "rows rows"]
    gaps: Float[Array, " contacts"]
    velocity: Rows
    drift: Rows
    jacobian: Float[Array, "rows m"]
    load: Float[Array, " m"]
    t: Time
    q: Positions
    v: Velocities

    def flow(self, force: Rows) -> State:
        """The rate of the state under a force at the contacts."""
        return jnp.concatenate([self.v, self.free + self.response @ force])

    def kick(self, impulse: Rows) -> State:
        """The state after an impulse at the contacts: positions stay, velocities jump."""
        return jnp.concatenate([self.q, self.v + self.response @ impulse])


def halves(x: State) -> tuple[Positions, Velocities]:
    """The positions and the velocities in a state."""
    return x[: x.size // 2], x[x.size // 2 :]


# Guards, resets and vector fields all call it; under jit it is traced once for each set of contacts.
@eqx.filter_jit
def project(mechanism: Mechanism, contacts: tuple[Contact, ...], t: Time, x: State, params: Params) -> Projection:
    """The projection at `(t, x)` to the rows of `velocity_rows`."""
    return once(_project)((mechanism, contacts), t, x, params)


def _project(bodies: tuple[Mechanism, tuple[Contact, ...]], t: Time, x: State, params: Params) -> Projection:
    (mechanism, contacts), (q, v) = bodies, halves(x)
    distances, velocity, bias, jacobian = _motion(mechanism, contacts, t, q, v, params)
    force = load(mechanism, t, q, v, params)
    solved = solve_symmetric(inertia(mechanism, q, params), jnp.column_stack([force, jacobian.T]))
    free, response = solved[:, 0], solved[:, 1:]
    drift = jacobian @ free + bias
    return Projection(free, response, jacobian @ response, distances, velocity, drift, jacobian, force, t, q, v)


@eqx.filter_jit
def gaps_and_rates(
    mechanism: Mechanism, contacts: tuple[Contact, ...], t: Time, q: Positions, v: Velocities, params: Params
) -> tuple[Float[Array, " contacts"], Float[Array, " contacts"]]:
    """The gaps of contacts and their rates. Bodies that know their contacts place all of them at once: gaps of a file's robot one
    by one are most of the program of its domain."""
    return once(_gaps_and_rates)((mechanism, contacts), t, q, v, params)


def _gaps_and_rates(
    bodies: tuple[Mechanism, tuple[Contact, ...]], t: Time, q: Positions, v: Velocities, params: Params
):
    mechanism, contacts = bodies
    if (known := _known(mechanism, contacts, t, q, v, params)) is not None:
        return known[0], known[1][: len(contacts)]
    return gaps(contacts, t, q, params), gap_rates(contacts, t, q, v, params)


class Apart(eqx.Module):
    """The domain in which no gap of the contacts is negative, unless it opens: a contact that opens may have drifted below zero.

    A limit has a kink where the gap equals its rate, for which a solver step need not be shortened: wherever it could be left,
    a guard of the mode falls first, that of the gap or (in `V`) that of the gap's rate. `further`: other limits.
    """

    mechanism: Mechanism
    contacts: tuple[Contact, ...]
    further: Domain | None
    # Which contacts hold: their gaps, kept closed by a force, are no limits.
    held: Bool[Array, " contacts"] | None = None

    @property
    def guarded(self) -> int:
        """How many of the limits, the first, are left only after a guard has fallen."""
        return len(self.contacts)

    def __call__(self, t: Time, x: State, params: Params) -> Float[Array, " limits"]:
        limits = jnp.maximum(*gaps_and_rates(self.mechanism, self.contacts, t, *halves(x), params))
        if self.held is not None:
            limits = jnp.where(self.held, 1, limits)
        further = () if self.further is None else (jnp.ravel(self.further(t, x, params)),)
        return jnp.concatenate([limits, *further])


def _known(mechanism: Mechanism, contacts: tuple[Contact, ...], t, q, v, params) -> Motion | None:
    return None if mechanism._rows is None else mechanism._rows(contacts, t, q, v, params)


def _motion(mechanism: Mechanism, contacts: tuple[Contact, ...], t, q, v, params) -> Motion:
    if (known := _known(mechanism, contacts, t, q, v, params)) is not None:
        return known
    rows = lambda t, q, v: velocity_rows(contacts, t, q, v, params)
    # The rows are affine in v, so the acceleration of a contact point is J v' + (D_t + v D_q) applied to its velocity.
    velocity, bias = jax.jvp(lambda t, q: rows(t, q, v), (t, q), (jnp.ones_like(t), v))
    derivative = jax.make_jaxpr(jax.jacfwd(lambda v: rows(t, q, v)))(v)
    jacobian = jaxpr_as_fun(derivative)(v)[0]
    # That a velocity is affine shows in its derivative; where it does not, for instance after a choice of v, it is computed.
    if depends_on(derivative, 1):
        good = jnp.all(is_affine(lambda v: rows(t, q, v), jacobian, v))
        velocity, bias = nan_unless(good, jnp.stack([velocity, bias]))
    return gaps(contacts, t, q, params), velocity, bias, jacobian


def is_affine(velocity: Callable[[Velocities], Rows], jacobian: Float[Array, "rows m"], v: Velocities) -> Mask:
    """Whether the velocities of contact points, functions of `v`, are those at rest and their Jacobian times `v`, up to the root
    of rounding: at `v`, where the Jacobian was taken, and at another velocity, since what is homogeneous, as a norm, is so at
    `v`, and what is not affine may vanish at rest."""
    at_rest, good = velocity(0 * v), jnp.array(True)
    generic = jnp.asarray(1 + 0.3 * np.cos(1.0 + np.arange(v.size)), v.dtype)
    for each in (v, -v - (1 + jnp.max(jnp.abs(v))) * generic):
        found = velocity(each)
        size = jnp.abs(found) + jnp.abs(at_rest) + jnp.abs(jacobian) @ jnp.abs(each)
        good &= jnp.abs(found - at_rest - jacobian @ each) <= float(jnp.finfo(v.dtype).eps) ** 0.5 * size
    return good


def holding(compliance: Float[Array, "rows rows"], change: Rows) -> Rows:
    r"""The forces (or impulses) for a given change of the contact points' accelerations (or velocities). $W f = \Delta$."""
    return solve_symmetric(compliance, change[:, None])[:, 0]


def sliding(compliance: Float[Array, "2 2"], change: Scalar, friction: Scalar, side: Scalar) -> Rows:
    r"""Normal force $f_n$ and friction $-\mu f_n$ times `side`, for a given change of the gap's acceleration.

    NaN where a push would close the gap (Painlevé's paradox): there this law of friction has no solution.
    """
    direction = jnp.stack([jnp.ones_like(friction), -side * friction])
    stiff = compliance[0] @ direction
    normal = change / jnp.where(stiff > 0, stiff, 1)
    return nan_unless(stiff > 0, normal) * direction


# Small linear systems with symmetric positive definite matrices: mass matrices and compliances.
Square = Float[Array, "m m"]
Columns = Float[Array, "m k"]

# Up to this size elimination of a mass matrix is unrolled: XLA fuses the arithmetic and vectorizes it over a batch. Beyond this
# size it would be slow to compile. The forces of several contacts are solved for at dozens of places in a program, in loops.
_UNROLLED = 6


def solve_symmetric(matrix: Square, columns: Columns) -> Columns:
    """The solution for each column; NaN where the matrix is not positive definite.

    Derivatives of every order are solutions with the same matrix. (lineax's own derivative rule calls back into Python to check
    for failure, from within the loop of an integration.)
    """

    def solution(_, right):
        if len(matrix) > _UNROLLED:
            return nan_unless(smallest_pivot(matrix) > 0, solve(matrix, right))
        found, pivots = _exchange(matrix, right, unroll=True)
        return nan_unless(jnp.all(pivots > 0), found)

    return jax.lax.custom_linear_solve(lambda x: matrix @ x, columns, solution, symmetric=True)


def least_norm(compliance: Square, matrix: Square, change: Rows, may_depend: bool) -> Rows:
    r"""The forces $y$ with $A y = \Delta$, of least norm where rows depend on each other: $A$ is the compliance, with the
    columns of contacts that slide changed by friction. Rows and columns that take no part are zero."""
    if not may_depend:
        return _exchange(matrix + _ones(diagonal(compliance) <= 0, matrix), change[:, None])[0][:, 0]
    lower, taken = _independent(compliance)
    idle = _ones(~taken, matrix)
    reduced, _ = _exchange(lower.T @ lower + idle, lower.T @ jnp.column_stack([matrix, change]))
    rows = reduced[:, :-1]
    return rows.T @ _exchange(rows @ rows.T + idle, reduced[:, -1:])[0][:, 0]


def tied(compliance: Square, held: Mask) -> Bool[Array, "rows rows"]:
    """Whether a row, the second, moves only with another, the first, where those of `held` do not move; a row that cannot move
    then does so with every other."""
    lower, taken = _independent(jnp.where(held[:, None] & held, compliance, 0))
    part = lower.T @ jnp.where(held[:, None], compliance, 0)
    # W - W_h W_hh^+ W_h, with W_hh^+ = L (L^T L)^-2 L^T.
    solved, _ = _exchange(lower.T @ lower + _ones(~taken, compliance), part)
    rest = compliance - solved.T @ solved
    own, least = diagonal(rest), redundant(compliance) * diagonal(compliance)
    left = own - rest**2 / jnp.where(own > least, own, 1)[:, None]
    return ((own > least)[:, None] & (left <= least)) | (own <= least)


def redundant(matrix: Square) -> float:
    """A row of a compliance of which no more than this fraction is left, beside the others, depends on them."""
    return max(1e-10, 64 * len(matrix) * float(jnp.finfo(matrix.dtype).eps))


def _ones(where: Mask, like: Square) -> Square:
    return jnp.where(np.eye(len(like), dtype=bool) & where, jnp.ones((), like.dtype), 0)


def _exchange(matrix: Square, columns: Columns, unroll: bool = False) -> tuple[Columns, Rows]:
    """The solution for each column by exchange of whole rows (Gauss-Jordan) without pivoting, which a positive definite matrix
    does not need: few operations to compile. And the pivots, positive where the matrix is positive definite."""
    n = len(matrix)

    def step(work, k):
        row = work[k]
        pivot = row[k]
        scaled = row / pivot
        return jnp.where((np.arange(n) == k)[:, None], scaled, work - work[:, k, None] * scaled), pivot

    work = jnp.concatenate([matrix, columns], axis=1)
    if unroll:
        found = []
        for k in range(n):
            work, pivot = step(work, k)
            found.append(pivot)
        return work[:, n:], jnp.stack(found)
    work, pivots = jax.lax.scan(step, work, np.arange(n))
    return work[:, n:], pivots


def _independent(matrix: Square) -> tuple[Square, Mask]:
    """By Cholesky's method with pivoting $W = LL^\top$: one column of $L$ for each independent row of $W$, zero for the others;
    and which columns are not zero."""
    whole = diagonal(matrix)
    whole = jnp.where(whole > 0, whole, 1)

    def column(rest, _):
        # Of each row the part that is left, whatever its unit.
        sizes = diagonal(rest)
        part = sizes / whole
        number = jnp.argmax(part)
        independent, size = part[number] > redundant(matrix), sizes[number]
        row = (jnp.arange(sizes.size) == number).astype(rest.dtype) @ rest
        factor = jnp.where(independent, row / jnp.sqrt(jnp.where(independent, size, 1)), 0)
        return rest - jnp.outer(factor, factor), (factor, independent)

    _, (factors, taken) = jax.lax.scan(column, matrix, length=matrix.shape[0])
    return factors.T, taken
