r"""One step of a diagonally implicit Runge-Kutta method, with one nonlinear equation for each stage.

$$z_i = x + h \sum_{j<i} a_{ij} f(t_j, z_j) + h\,a_{ii} f(t_i, z_i)$$

Newton's method solves the equation to rounding. The derivatives, to every order, are those of the implicit function theorem.

Hazards of diffrax's own implicit stages: their derivatives come from lineax, which calls back into Python and raises for a whole
batch where one lane fails (https://github.com/patrick-kidger/lineax/issues/117); and a stage counts as failed where Newton's
correction is rounding, yet above the tolerance (https://github.com/patrick-kidger/diffrax/issues/428).

Source: Hairer, Wanner (1996), *Solving Ordinary Differential Equations II*, sec. IV.6.
"""

from collections.abc import Callable

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

from .._system.types import Count, Flag, Scalar, State, Time
from ..solvers.one_array import newton, Work

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
