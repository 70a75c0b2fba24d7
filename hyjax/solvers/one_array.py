r"""The base of the solvers of this folder: one step of $\dot x = f(t, x)$ for a state in one array, as a diffrax solver; and
Newton's method for the equations of an implicit step, solved to rounding, with the derivatives of the solution to every order.

A step of a diagonally implicit Runge-Kutta method of diffrax has one such equation for each stage.

$$z_i = x + h \sum_{j<i} a_{ij} f(t_j, z_j) + h\,a_{ii} f(t_i, z_i)$$

Hazards of diffrax's own implicit stages: their derivatives come from lineax, which calls back into Python and raises for a whole
batch where one lane fails (https://github.com/patrick-kidger/lineax/issues/117); and a stage counts as failed where Newton's
correction is rounding, yet above the tolerance (https://github.com/patrick-kidger/diffrax/issues/428).

Source of both: Hairer, Wanner (1996), *Solving Ordinary Differential Equations II*, sec. IV.6, IV.8.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TYPE_CHECKING

import diffrax as dfx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from .._numerics.elimination import SMALL, solve, solver
from .._numerics.trees import select
from .._system.types import Count, Flag, Scalar, State, Time

if TYPE_CHECKING:
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar
import numpy as np

Field = Callable[[Time, State], State]


class Work(NamedTuple):
    """The work of a step of $\\dot x = f(t, x)$, from a state at which $f$ is known to the next.

    An **evaluation** is one value of $f$; a **Jacobian** is one linearization of $f$ at one point, all columns together, with the
    value that comes with it. One elimination of an $n \\times n$ matrix follows each Jacobian, except in `Radau5`, where one of
    $3n$ unknowns follows three.

    **Attributes:** `evaluations`, `jacobians`: in every step. `each_evaluations`, `each_jacobians`: in every iteration of
    Newton's method, besides.
    """

    evaluations: int
    jacobians: int = 0
    each_evaluations: int = 0
    each_jacobians: int = 0


# A step: the state after it, the vector field there, the error estimate, the method's memory for the next step, whether the
# equations of the step were solved, and in how many iterations of Newton's method.
Taken = tuple[State, State, State, Any, Flag, Count]


class AbstractOneArraySolver(dfx.AbstractAdaptiveSolver):
    """A diffrax solver whose method is written for a state in one real array: `start` and `take`.

    In `diffrax.diffeqsolve` the state may be any PyTree of real arrays, and between steps the solution is the cubic Hermite
    interpolant, whose error is of fourth order in the step. A step whose equations are not solved has an infinite error estimate,
    so a step size controller rejects it; with steps of fixed length the result is `nonlinear_max_steps_reached`.
    After a jump (`made_jump`) the memory is that of a first step.

    `implicit`: whether the method is for stiff flows, with steps that may be long against the fastest time constant. `work`: the
    evaluations of a step.
    """

    term_structure: ClassVar = dfx.AbstractTerm
    interpolation_cls: ClassVar = dfx.ThirdOrderHermitePolynomialInterpolation
    implicit: AbstractClassVar[bool]
    work: AbstractClassVar[Work]

    @abc.abstractmethod
    def start(self, field: Field, t: Time, x: State, f: State) -> Any:
        """The method's memory before a first step from `(t, x)`, where the vector field is `f`."""

    @abc.abstractmethod
    def take(self, field: Field, t: Time, x: State, f: State, h: Time, memory: Any) -> Taken:
        """A step of any length `h` from `(t, x)`, where the vector field is `f`."""

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)

    def init(self, terms, t0, t1, y0, args):
        field, t, x, _ = _as_one_array(terms, t0, y0, args)
        f = field(t, x)
        return f, self.start(field, t, x, f)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        field, t, x, split = _as_one_array(terms, t0, y0, args)
        f, memory = solver_state
        if made_jump is not False:
            again = field(t, x)
            first = again, self.start(field, t, x, again)
            f, memory = select(jnp.asarray(made_jump), first, solver_state)
        h = jnp.asarray(t1 - t0, x.dtype)
        after, f_after, error, memory, solved, _ = self.take(field, t, x, f, h, memory)
        dense = {"y0": y0, "y1": split(after), "k0": split(h * f), "k1": split(h * f_after)}
        error = split(jnp.where(solved, error, jnp.inf))
        result = dfx.RESULTS.where(solved, dfx.RESULTS.successful, dfx.RESULTS.nonlinear_max_steps_reached)  # pyright: ignore
        return dense["y1"], error, dense, (f_after, memory), result


def divided_by(field: Field, t: Time, x: State, scale: Scalar) -> tuple[Callable[[State], State], State]:
    r"""The map $b \mapsto (I - s\,D_xf)^{-1}\,b$ with one factorization, and the derivative of the field by the time.

    Its derivatives contain those of the matrix times a solution. For a long state this product is a derivative of the field
    along the solution, and not a product with the matrix, whose derivatives would be those of all its columns.
    """
    there, basis = (t, x), jnp.eye(x.size + 1, dtype=x.dtype)
    if x.size > SMALL:
        there = jax.lax.stop_gradient(there)
    push = lambda dt, dx: jax.jvp(field, there, (dt.astype(t.dtype), dx))[1]
    columns = jax.vmap(push, out_axes=1)(basis[:, 0], basis[:, 1:])
    matrix, drift = jnp.eye(x.size, dtype=x.dtype) - scale * columns[:, 1:], columns[:, 0]
    if x.size <= SMALL:
        return solver(matrix), drift
    product = lambda u: u - scale * jax.jvp(lambda x: field(t, x), (x,), (u,))[1]
    return solver(matrix, product), jax.jvp(lambda t: field(t, x), (t,), (jnp.ones_like(t),))[1]


def _as_one_array(terms, t0, y0, args) -> tuple[Field, Time, State, Callable]:
    """The vector field of a diffrax term, the time and the state as arrays, and the map from arrays back to states."""
    x, split = ravel_pytree(y0)
    t = jnp.asarray(t0)
    # The control over a unit of time: 1, or -1 where diffrax integrates backwards.
    unit = terms.contr(jnp.zeros_like(t), jnp.ones_like(t))

    def field(t, x):
        return ravel_pytree(terms.vf_prod(t, split(x), args, unit))[0]

    return field, t, x, split


def newton(
    residual: Callable[[State], State], guess: State, unit: float | Scalar | State, most: int
) -> tuple[State, Flag, Count]:
    """The root of `residual`, whether it was found, and the number of iterations.

    An iteration evaluates the residual once and its Jacobian once.

    The last correction is below the square root of rounding, relative to the root or to `unit`, and the error that remains is of
    the order of its square. The derivatives, to every order, are those of the implicit function theorem.

    **Arguments:** `unit`: the scale of a coordinate that is zero. `most`: the largest number of iterations.
    """

    def iterate(residual, z):
        def unsettled(carry):
            _, size, count = carry
            return (size > _half(z.dtype)) & (count < most)

        def improve(carry):
            z, _, count = carry
            correction = solve(jax.jacfwd(residual)(z), residual(z))
            size = jnp.max(jnp.abs(correction) / (unit + jnp.abs(z)))
            return z - correction, size, count + 1

        start = (z, jnp.full((), jnp.inf, z.dtype), jnp.array(0))
        z, size, count = jax.lax.while_loop(unsettled, improve, start)
        # Hazard: `custom_root` gives an integer beside the root an integer tangent (seen in jax 0.10.2).
        return z, (size, count.astype(size.dtype))

    def tangent(linear, right):
        return solve(jax.jacfwd(linear)(right), right)

    z, (size, count) = jax.lax.custom_root(residual, guess, iterate, tangent, has_aux=True)
    return z, size <= _half(guess.dtype), jax.lax.stop_gradient(count).astype(int)


def zero_scale(x: State) -> Scalar:
    """The `unit` of a state whose tolerances are not known: a thousandth of its largest coordinate."""
    return 1e-3 * jnp.max(jnp.abs(jax.lax.stop_gradient(x))) + float(jnp.finfo(x.dtype).tiny)


def _half(dtype) -> float:
    """The relative size below which a Newton correction is the last: the remaining error is of the order of its square."""
    return float(jnp.finfo(dtype).eps) ** 0.5 / 16


# The error estimate is the difference from the trapezoidal rule, as in diffrax.
BACKWARD_EULER = dfx.ButcherTableau(
    c=np.array([1.0]),
    b_sol=np.array([0.0, 1.0]),
    b_error=np.array([-0.5, 0.5]),
    a_lower=(np.array([0.0]),),
    a_diagonal=np.array([0.0, 1.0]),
    a_predictor=(np.array([1.0]),),
)


def implicit_tableau(solver: dfx.AbstractSolver) -> dfx.ButcherTableau | None:
    """The tableau of a diagonally implicit method; `None` for any other."""
    if isinstance(solver, dfx.ImplicitEuler):
        return BACKWARD_EULER
    tableau = getattr(solver, "tableau", None)
    diagonal = isinstance(solver, dfx.AbstractDIRK) and isinstance(tableau, dfx.ButcherTableau)
    return tableau if diagonal else None


def implicit_step(
    tableau: dfx.ButcherTableau, field: Callable, t: Time, x: State, f: State, h: Time, unit: float | Scalar, most: int
) -> tuple[State, State, State, Flag, Count]:
    """`(x, vector field at x, error estimate, whether all stages were solved, iterations)` after a step `h` from `(t, x)`.

    **Arguments:** `f`: the vector field at `(t, x)`. `unit`: the scale of a coordinate that is zero, for relative corrections.
    `most`: the largest number of Newton iterations for a stage.
    """
    count, dtype = tableau.num_stages, x.dtype
    assert tableau.a_diagonal is not None and tableau.a_predictor is not None
    lower, predictor = np.zeros((count, count)), np.zeros((count, count))
    predictor[0, 0] = 1
    for i, (row, guess) in enumerate(zip(tableau.a_lower, tableau.a_predictor, strict=True), start=1):
        lower[i, :i], predictor[i, :i] = row, guess
    c = np.append(tableau.c1, tableau.c)
    first = _first_implicit(tableau)

    def stage(carry, each):
        fields, solved, iterations = carry
        i, c, lower, diagonal, predictor = each
        known, guess = x + h * (lower @ fields), h * diagonal * (predictor @ fields)
        at, scale = t + c * h, h * diagonal
        z, found, count = newton(lambda z: z - known - scale * field(at, z), known + guess, unit, most)
        return (fields.at[i].set(field(at, z)), solved & found, iterations + count), z

    start = jnp.zeros((count, x.size), dtype).at[0].set(f), jnp.array(True), jnp.array(0)
    rows = (c, lower, tableau.a_diagonal, predictor)
    each = (np.arange(count)[first:], *(row.astype(dtype)[first:] for row in rows))
    (fields, solved, iterations), stages = jax.lax.scan(stage, start, each)

    # The sum over the stages would amplify stiff components.
    accurate = _stiffly_accurate(tableau)
    after = stages[-1] if accurate else x + h * (tableau.b_sol.astype(dtype) @ fields)
    f_after = fields[-1] if accurate and c[-1] == 1 else field(t + h, after)
    error = h * (tableau.b_error.astype(dtype) @ fields)
    return after, f_after, error, solved, iterations


def implicit_work(tableau: dfx.ButcherTableau) -> Work:
    """The work of a step: an evaluation after each implicit stage, and one at the end where no stage is there."""
    stages = tableau.num_stages - _first_implicit(tableau)
    at_end = _stiffly_accurate(tableau) and tableau.c[-1] == 1
    return Work(stages + (not at_end), 0, 1, 1)


def _first_implicit(tableau: dfx.ButcherTableau) -> int:
    """The first stage with an equation: that of most methods is explicit, the vector field at the start of the step."""
    assert tableau.a_diagonal is not None
    return int(tableau.a_diagonal[0] == 0)


def _stiffly_accurate(tableau: dfx.ButcherTableau) -> bool:
    """Whether the last stage is the state at the end of the step."""
    assert tableau.a_diagonal is not None
    rows = np.array_equal(tableau.a_lower[-1], tableau.b_sol[:-1])
    return bool(rows and tableau.a_diagonal[-1] == tableau.b_sol[-1])
