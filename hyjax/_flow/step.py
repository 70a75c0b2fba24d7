"""One step of the solver, from a state at which the vector field is known; and the steps of a flow repeated with given lengths,
for derivatives through the steps.

Reverse mode through many steps keeps few states and recomputes the others. Hazard: the recomputation must not adapt the step
sizes again. Near the resolution of the dtype the error estimate is rounding, so another compiled program adapts other lengths and
ends at another point, and a gradient that combines the two is wrong in its third digit. Therefore the lengths are found once,
without derivatives, and the differentiated steps take them as given.
"""

import functools as ft
import operator
from collections.abc import Callable
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int, PyTree

from .._numerics.programs import depends_on, operations
from .._numerics.trees import MOST_PARTS, stored_for_tangents, stored_with_tangents
from .._system.types import Count, Flag, Scalar, State, Time
from ..solvers.one_array import AbstractOneArraySolver, implicit_step, implicit_tableau, implicit_work, Work
from .instant import abreast
from .integrator import Integrator

# Above this number of operations, a loop over the stages compiles faster and runs as fast; an operation in a loop of the field,
# into which nothing is fused, counts fourfold. Without the second number eight rough feet take 1.6 times as long to compile.
MOST_UNROLLED, OF_A_LOOP = 500, 4

Field = Callable[[Time, State], State]
# The end of a step from its time and state and a vector field near by; where the last argument is false, another stage.
End = Callable[..., tuple[Time, State]]
Loop = Literal["lax", "bounded", "checkpointed"]


# The end of a step: time, state and vector field; the error estimate, infinite where the implicit equations of the step were not
# solved, and zero for a solver without one; the solver's memory; the iterations of Newton's method, in all stages.
Stepped = tuple[Time, State, State, State, Any, Count]


class Step:
    """One step of any diffrax solver along `field(t, x, args)`.

    The stages of an explicit Runge-Kutta method are written out, without a loop or buffers; the vector field at the end of the
    step is evaluated anyway, and is the first stage of the next step. `unroll=False` makes a loop of the stages; by default a
    vector field of more than `MOST_UNROLLED` operations is evaluated in a loop, which compiles it once. Diagonally implicit
    methods use `implicit_step`. The solvers of `hyjax.solvers` take the vector field at the start and return the one at the end.
    Any other solver is called through diffrax's stepping interface.

    **Arguments:** `loop`: the kind of equinox loop that takes the steps. `unit`: the scale of a coordinate that is zero, for the
    relative corrections of an implicit method.
    """

    def __init__(
        self,
        solver: dfx.AbstractSolver,
        field: Callable,
        args: PyTree,
        unroll: bool | None,
        loop: Loop,
        unit: float | Scalar,
    ):
        # Under `jit` the vector field is traced once, for all stages.
        dynamic, static = eqx.partition((field, args), eqx.is_array)

        def apply(dynamic, t, x):
            field, args = eqx.combine(dynamic, static)
            return field(t, x, args)

        once = jax.jit(apply)

        def rate(point, dynamic):
            t, x = point
            return jnp.ones_like(t), once(dynamic, t, x)

        self._rate, self._inputs = rate, dynamic
        self.field: Field = lambda t, x: once(dynamic, t, x)
        self.terms = dfx.ODETerm(lambda t, x, args: self.field(jnp.asarray(t), x))
        self.solver = _with_loop(solver, loop)
        self.explicit, self.implicit = _explicit_tableau(solver), implicit_tableau(solver)
        self.own = solver if isinstance(solver, AbstractOneArraySolver) else None
        self.stiff = takes_stiff(solver)
        self.unroll = unroll
        self.unit = unit

    def init(self, t: Time, x: State, f: State, h: Time) -> Any:
        """The solver's memory before its first step, `h`, from `(t, x)`, where the vector field is `f`."""
        if self.own is not None:
            return self.own.start(self.field, t, x, f)
        known = self.explicit or self.implicit
        return None if known else self.solver.init(self.terms, t, t + h, x, None)

    @property
    def work(self) -> Work | None:
        """The evaluations of a step; `None` for a solver that is called through diffrax, whose evaluations are not known."""
        if self.explicit is not None:
            return Work(len(self.explicit.a_lower) + (not self.explicit.fsal))
        if self.implicit is not None:
            return implicit_work(self.implicit)
        return None if self.own is None else self.own.work

    def __call__(
        self, t: Time, x: State, f: State, h: Time, memory: Any, t1: Time | None = None, steep: Flag | None = None
    ) -> Stepped:
        """A step `h` from `(t, x)`, where the vector field is `f`.

        **Arguments:** `t1`: its end, the sum of `t` and `h` if not given. `steep`: whether the derivatives of its end are those
        of `abreast`, in forward mode; a method with a memory ignores it.
        """
        t1, none = t + h if t1 is None else t1, jnp.array(0)

        def end(t: Time, x: State, f: State, last: bool | Flag = True) -> tuple[Time, State]:
            return (t, x) if steep is None else abreast(self._rate, t, x, f, self.unit, self._inputs, steep & last)

        def ended(x: State, f: State) -> tuple[Time, State, State]:
            """The end of a step at which the vector field `f` is known."""
            if steep is None:
                return t1, x, f

            def moved():
                there = end(t1, x, f)
                return *there, self.field(*there)

            return jax.lax.cond(eqxi.unvmap_any(steep), moved, lambda: (t1, x, f))

        if self.explicit is not None:
            unroll = self._is_small(t, x) if self.unroll is None else self.unroll
            advance = _unrolled if unroll else _rolled
            return *advance(self.explicit, self.field, end, t, t1, x, f, h), memory, none
        if self.implicit is not None:
            most = self.solver.root_find_max_steps  # pyright: ignore[reportAttributeAccessIssue]
            after, f_after, error, solved, count = implicit_step(self.implicit, self.field, t, x, f, h, self.unit, most)
            return *ended(after, f_after), jnp.where(solved, error, jnp.inf), memory, count
        if self.own is not None:
            after, f_after, error, remembered, solved, count = self.own.take(self.field, t, x, f, h, memory)
            there = (t1, after, f_after) if jax.tree.leaves(memory) else ended(after, f_after)
            return *there, jnp.where(solved, error, jnp.inf), remembered, count
        after, error, _, memory, result = self.solver.step(self.terms, t, t + h, x, None, memory, False)
        error = jnp.zeros_like(x) if error is None else jnp.asarray(error)
        error = jnp.where(result == dfx.RESULTS.successful, error, jnp.inf)
        return t1, after, self.field(t1, after), error, memory, none

    def timed(self, t: Time, x: State) -> bool:
        """Whether the vector field depends on the time."""
        point = [jax.ShapeDtypeStruct(jnp.shape(each), jnp.result_type(each)) for each in (t, x)]
        return depends_on(jax.make_jaxpr(self.field)(*point), 1)

    def _is_small(self, t: Time, x: State) -> bool:
        """Whether the vector field has few enough operations to be written out at each stage."""
        point = [jax.ShapeDtypeStruct(jnp.shape(each), jnp.result_type(each)) for each in (t, x)]
        return operations(jax.make_jaxpr(self.field)(*point).jaxpr, OF_A_LOOP) <= MOST_UNROLLED


def takes_stiff(solver: dfx.AbstractSolver) -> bool:
    """Whether the solver's steps may be long against the fastest time constant."""
    return solver.implicit if isinstance(solver, AbstractOneArraySolver) else implicit_tableau(solver) is not None


def _explicit_tableau(solver: dfx.AbstractSolver) -> dfx.ButcherTableau | None:
    tableau = getattr(solver, "tableau", None)
    return tableau if isinstance(solver, dfx.AbstractERK) and isinstance(tableau, dfx.ButcherTableau) else None


def _with_loop(solver: dfx.AbstractSolver, loop: Loop) -> dfx.AbstractSolver:
    """The solver, with the loop over stages of every Runge-Kutta method in it differentiable in the same modes as the steps.

    diffrax's adjoints set `scan_kind` in the same way; its default `None` is a loop that allows reverse mode only.
    """
    loops = lambda part: isinstance(part, dfx.AbstractRungeKutta)
    set_loop = lambda part: eqx.tree_at(lambda s: s.scan_kind, part, loop, is_leaf=lambda leaf: leaf is None)
    return jax.tree.map(lambda part: set_loop(part) if loops(part) else part, solver, is_leaf=loops)


def _unrolled(tableau: dfx.ButcherTableau, field: Field, end: End, t, t1, x, f, h) -> tuple[Time, State, State, State]:
    """`(t, x, vector field there, error estimate)` after a step, with its stages written out."""
    # The loop carries the coordinates of a lane next to each other; the stages are sums over lanes.
    x, f = stored_with_tangents(x, f)
    stages, at = [f], x
    for c, row in zip(tableau.c, tableau.a_lower, strict=True):
        at = stored_for_tangents(x + h * _combine(row, stages))
        # Where the last stage is the vector field at the end of the step (first same as last), no other is needed there.
        if tableau.fsal and len(stages) == len(tableau.c):
            break
        stages.append(field(t + float(c) * h, at))
    t1, after = end(t1, at if tableau.ssal else x + h * _combine(tableau.b_sol, stages), f)
    f_after = field(t1, after)
    stages = [*stages, f_after][: tableau.num_stages]
    # Measured, not understood: the barrier saves 5 % of a stride's time in a batch of 1 000, although XLA removes it before it
    # fuses operations.
    return t1, *jax.lax.optimization_barrier((after, f_after, h * _combine(tableau.b_error, stages)))


def _combine(weights, stages: list[Array]) -> Array:
    terms = [float(weight) * stage for weight, stage in zip(weights, stages, strict=True) if weight != 0]
    return ft.reduce(operator.add, terms) if terms else jnp.zeros_like(stages[0])


def _rolled(tableau: dfx.ButcherTableau, field: Field, end: End, t, t1, x, f, h) -> tuple[Time, State, State, State]:
    """`_unrolled` with a loop over the stages."""
    count = tableau.num_stages
    lower = np.zeros((count - 1, count))
    for i, row in enumerate(tableau.a_lower):
        lower[i, : i + 1] = row

    def stage(stages, each):
        i, c, row = each
        there = t + c * h, x + h * _weighted(row, stages)
        if tableau.fsal:
            last = i == count - 2
            there = end(jnp.where(last, t1, there[0]), there[1], f, last)
        return jax.lax.dynamic_update_index_in_dim(stages, field(*there), i + 1, 0), there

    first = jnp.concatenate((f[None], jnp.zeros((count - 1, x.size), x.dtype)))
    each = (np.arange(count - 1), tableau.c.astype(x.dtype), lower.astype(x.dtype))
    stages, (times, at) = jax.lax.scan(stage, first, each)
    if tableau.fsal:
        t1, after, f_after = times[-1], at[-1], stages[-1]
    else:
        t1, after = end(t1, at[-1] if tableau.ssal else x + h * _weighted(tableau.b_sol.astype(x.dtype), stages), f)
        f_after = field(t1, after)
    return t1, after, f_after, h * _weighted(tableau.b_error.astype(x.dtype), stages)


def _weighted(weights: Array | np.ndarray, stages: Array) -> Array:
    """The sum of the stages, one a row, with weights. As a sum, XLA fuses it over the lanes of a batch; `weights @ stages` is a
    call of Eigen for each lane. Of a long state the sum would be a call of YNNPACK: it is written out."""
    if stages.shape[-1] <= MOST_PARTS:
        return jnp.sum(weights[:, None] * stages, axis=0)
    return ft.reduce(operator.add, (weights[i] * stages[i] for i in range(len(stages))))


def later(t: Time, late: Scalar, dt: Scalar) -> tuple[Time, Scalar]:
    """The time `t + late + dt`, and the part of the sum that it loses by rounding: a sum in twice the digits of the dtype.

    Near a surface that a steep flow meets, many steps together may be shorter than the resolution of the time.
    Source: Moller (1965), *Quasi double-precision in floating point addition*; Knuth, *The Art of Computer Programming*, 4.2.2.
    """
    dt = dt + late
    end = t + dt
    before, step = stop_gradient(t), stop_gradient(end) - stop_gradient(t)
    return end, stop_gradient((before - (end - step)) + (dt - step))


class StepLengths(eqx.Module):
    """The lengths of the steps taken so far: the first `count` of `lengths`."""

    lengths: eqxi.MaybeBuffer[Float[Array, " max_steps"]]
    count: Int[Array, ""]

    def tried(self, length: Scalar, take: Flag) -> "StepLengths":
        """The lengths with one more trial step, which the next overwrites unless the step is taken (`take`)."""
        return StepLengths(self.lengths.at[self.count].set(length), jnp.where(take, self.count + 1, self.count))


def retrace(
    field: Callable, t0: Time, x0: State, args: PyTree, taken: StepLengths, integrator: Integrator
) -> tuple[Time, State, State]:
    """`(t, x, f)` after the given steps along `field(t, x, args)`, differentiable as the integrator's `adjoint` allows.

    The solver's stages are a loop regardless of `integrator.unroll`: a backward pass spends most of its time elsewhere, and
    compiles in half the time.
    """
    rtol, atol = integrator.tolerances(x0.dtype)
    step = Step(integrator.solver, field, args, False, integrator.loop, atol / rtol)

    def body(carry):
        k, t, late, x, f, memory = carry
        length = taken.lengths[k]
        _, x, f, _, memory, _ = step(t, x, f, length, memory)
        return k + 1, *later(t, late, length), x, f, memory

    f0 = step.field(t0, x0)
    start = (jnp.array(0), t0, jnp.zeros_like(t0), x0, f0, step.init(t0, x0, f0, taken.lengths[0]))
    _, t, _, x, f, _ = eqxi.while_loop(
        lambda carry: carry[0] < taken.count, body, start, max_steps=integrator.max_steps, kind=integrator.loop,
        checkpoints=getattr(integrator.adjoint, "checkpoints", None),
    )  # fmt: skip
    return t, x, f
