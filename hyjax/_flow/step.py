"""One step of the solver, from a state whose vector field is known."""

import functools as ft
import operator
from collections.abc import Callable
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._system.types import Scalar, State, Time
from .implicit_step import implicit_step, implicit_tableau

Field = Callable[[Time, State], State]
Loop = Literal["lax", "bounded", "checkpointed"]


class Step:
    """One step of any diffrax solver along `field(t, x, args)`.

    An explicit Runge-Kutta method is written out stage by stage: no loop, no buffers, and the vector field at the end
    of the step, which is needed there anyway, is its first stage in the next. `unroll=False` makes a loop of the stages:
    half as long to compile, and three times slower. A diagonally implicit one is solved by `implicit_step`. Any other solver
    is called through diffrax's stepping interface. `loop`: the loop of equinox in which the steps are taken. `unit`: what
    counts as large in a coordinate that is zero.
    """

    def __init__(
        self, solver: dfx.AbstractSolver, field: Callable, args: PyTree, unroll: bool, loop: Loop, unit: float | Scalar
    ):
        # Traced once, however many stages call it.
        dynamic, static = eqx.partition((field, args), eqx.is_array)

        def apply(dynamic, t, x):
            field, args = eqx.combine(dynamic, static)
            return field(t, x, args)

        once = jax.jit(apply)
        self.field: Field = lambda t, x: once(dynamic, t, x)
        self.terms = dfx.ODETerm(lambda t, x, args: self.field(jnp.asarray(t), x))
        self.solver = _with_loop(solver, loop)
        self.explicit, self.implicit = _explicit_tableau(solver), implicit_tableau(solver)
        self.advance = _unrolled if unroll else _rolled
        self.unit = unit

    def init(self, t: Time, x: State, h: Time) -> Any:
        """The solver's memory before its first step."""
        known = self.explicit or self.implicit
        return None if known else self.solver.init(self.terms, t, t + h, x, None)

    def __call__(self, t: Time, x: State, f: State, h: Time, memory: Any) -> tuple[State, State, State, Any]:
        """`(x, field there, error estimate, memory)` after a step `h` from `(t, x)`, where the field is `f`.

        The estimate is infinite where the step's implicit equations were not solved, and zero of a solver that has none.
        """
        if self.explicit is not None:
            return *self.advance(self.explicit, self.field, t, x, f, h), memory
        if self.implicit is not None:
            most = self.solver.root_find_max_steps  # pyright: ignore[reportAttributeAccessIssue]
            after, f_after, error, solved = implicit_step(self.implicit, self.field, t, x, f, h, self.unit, most)
            return after, f_after, jnp.where(solved, error, jnp.inf), memory
        after, error, _, memory, result = self.solver.step(self.terms, t, t + h, x, None, memory, False)
        error = jnp.zeros_like(x) if error is None else jnp.asarray(error)
        return after, self.field(t + h, after), jnp.where(result == dfx.RESULTS.successful, error, jnp.inf), memory


def _explicit_tableau(solver: dfx.AbstractSolver) -> dfx.ButcherTableau | None:
    tableau = getattr(solver, "tableau", None)
    return tableau if isinstance(solver, dfx.AbstractERK) and isinstance(tableau, dfx.ButcherTableau) else None


def _with_loop(solver: dfx.AbstractSolver, loop: Loop) -> dfx.AbstractSolver:
    """Runge-Kutta methods, also those inside another solver, with stages in a loop that can be differentiated like the steps.

    As diffrax's adjoints do: `None` stands for a loop that allows reverse mode only.
    """
    loops = lambda part: isinstance(part, dfx.AbstractRungeKutta)
    set_loop = lambda part: eqx.tree_at(lambda s: s.scan_kind, part, loop, is_leaf=lambda leaf: leaf is None)
    return jax.tree.map(lambda part: set_loop(part) if loops(part) else part, solver, is_leaf=loops)


def _unrolled(tableau: dfx.ButcherTableau, field: Field, t, x, f, h):
    stages, at = [f], x
    for c, row in zip(tableau.c, tableau.a_lower, strict=True):
        at = x + h * _combine(row, stages)
        stages.append(field(t + float(c) * h, at))
    # Where the last stage is taken at the end of the step (first same as last), both come for free.
    after = at if tableau.ssal else x + h * _combine(tableau.b_sol, stages)
    f_after = stages[-1] if tableau.fsal else field(t + h, after)
    return after, f_after, h * _combine(tableau.b_error, stages)


def _combine(weights, stages: list[Array]) -> Array:
    terms = [float(weight) * stage for weight, stage in zip(weights, stages, strict=True) if weight != 0]
    return ft.reduce(operator.add, terms) if terms else jnp.zeros_like(stages[0])


def _rolled(tableau: dfx.ButcherTableau, field: Field, t, x, f, h):
    count = tableau.num_stages
    lower = np.zeros((count - 1, count))
    for i, row in enumerate(tableau.a_lower):
        lower[i, : i + 1] = row

    def stage(stages, each):
        i, c, row = each
        at = x + h * (row @ stages)
        return stages.at[i + 1].set(field(t + c * h, at)), at

    first = jnp.zeros((count, x.size), x.dtype).at[0].set(f)
    each = (np.arange(count - 1), tableau.c.astype(x.dtype), lower.astype(x.dtype))
    stages, at = jax.lax.scan(stage, first, each)
    after = at[-1] if tableau.ssal else x + h * (tableau.b_sol.astype(x.dtype) @ stages)
    f_after = stages[-1] if tableau.fsal else field(t + h, after)
    return after, f_after, h * (tableau.b_error.astype(x.dtype) @ stages)
