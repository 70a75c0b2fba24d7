r"""A chain of strides, from before a jump to before the next: the equation of a periodic orbit.

The state *before* a jump is the unknown, $y$, and a stride the map $y \mapsto \text{flow}(R(y))$: so every stride starts on the
image of the reset. (A state slightly off that image may meet its guard at once, or never.) An orbit of $m$ strides
solves

$$\text{flow}(R(y_i)) = y_{i+1}, \qquad y_{m+1} = y_1.$$

Everything that solves for orbits solves these equations: with one unknown for the whole orbit, with one for each stride, with
parameters free.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._flow.linearize import with_columns
from .._flow.mode_integrators import Integrators
from .._system.results import choose, RESULTS
from .._system.types import Params, Scalar, State
from .problem import Problem
from .stride import Stride, traced_stride


class Passage(eqx.Module):
    """What is known, and differentiated, of one stride. Of its Jacobian, each array has one more axis, the last, over the
    stride's start and what moves.

    **Attributes:** `end`: the state after the jump that ends the stride, with its time in front if there are several strides.
    `before`: the state before that jump. `time`: the stride's duration. `guard_rates`: shape `(arcs,)`.
    """

    end: Array
    before: Array
    time: Array
    guard_rates: Array


class Chain(eqx.Module):
    """Strides one after the other, once around the orbit.

    **Attributes:** `nodes`, `starts`: states and times just after the jumps that start the strides. `before`: the states before
    the jumps that start them. `end`: the state after the last jump, which is `nodes[0]` but for the residual. `period`: of all
    strides together. `guard_rates`: shape `(strides * arcs,)`. `jacobians`: of the strides, where they are kept. `result`: the
    first code of a stride that is not `successful`.
    """

    nodes: Float[Array, "strides n"]
    starts: Float[Array, " strides"]
    before: Float[Array, "strides m"]
    end: State
    period: Scalar
    guard_rates: Float[Array, " arcs"]
    jacobians: Passage | None
    result: RESULTS


class Start(eqx.Module):
    """Where a stride starts, and what moves: numbers that are packed into one array, over which Jacobians are taken."""

    problem: Problem
    t: Scalar
    x: State
    params: Params

    @property
    def numbers(self) -> PyTree:
        """`((t, x), moving)`; without the time if there is one stride alone."""
        moving, _ = self.problem.split(self.params)
        return ((self.t, self.x) if self.problem.timed else (self.x,)), moving

    def pack(self) -> Array:
        return ravel_pytree(self.numbers)[0]

    def flow(self, packed: Array, integrator: Integrators) -> tuple[Passage, Stride]:
        """The stride from packed numbers."""
        state, moving = ravel_pytree(self.numbers)[1](packed)
        system, params = eqx.combine(moving, self.problem.split(self.params)[1])
        t, x = (state[0], state[-1]) if self.problem.timed else (self.t, state[-1])
        stride = traced_stride(system, t, x, params, self.problem.sequence, integrator)
        end = jnp.append(t + stride.time, stride.x) if self.problem.timed else stride.x
        return Passage(end, stride.impacts[-1].x, stride.time, stride.guard_rates), stride


def stride_jacobian(
    problem: Problem, t: Scalar, x: State, params: Params, integrator: Integrators
) -> tuple[Passage, Passage, Stride]:
    """One stride from `(t, x)` with all its tangents pushed through one loop: `(passage, its Jacobian, stride)`.

    A later stride starts when the one before it ends, which matters in a system that depends on time; of an orbit of one stride
    the start's time is fixed, and its column left out.
    """
    start = Start(problem, t, x, params)
    return with_columns(lambda packed: start.flow(packed, integrator), start.pack())


def follow_chain(
    problem: Problem,
    x: State | None,
    params: Params,
    integrator: Integrators,
    before: Float[Array, "strides m"] | None = None,
    order: int = 0,
) -> tuple[Chain, Float[Array, "strides m"]]:
    """All strides of an orbit that starts at `x`, each where the last ended; or with `before` each from the image of its own.

    **Arguments:** `order`: how often the result can be differentiated, in `x` or `before` and in the parameters that the problem
    moves: the strides' derivatives are taken here once, and whoever differentiates multiplies by them. With 0, not at all.

    **Returns:** the chain, and the states before the jumps that *end* the strides.
    """

    def one(carry, y):
        t, x, result = carry
        x = x if y is None else problem.closing_jump(y, params, t)
        start = Start(problem, t, x, params)
        passage, by, stride = expanded(lambda packed: start.flow(packed, integrator), start.pack(), order)
        result = choose(result == RESULTS.successful, stride.result, result)
        return (t + passage.time, passage.end[problem.timed :], result), (t, x, passage, by)

    if x is None:
        assert before is not None
        x = problem.closing_jump(before[0], params)
    start = (jnp.zeros((), x.dtype), x, RESULTS.successful)
    if problem.timed:
        (period, end, result), (starts, nodes, passages, by) = jax.lax.scan(one, start, before, length=problem.strides)
    else:
        (period, end, result), row = one(start, None if before is None else before[0])
        starts, nodes, passages, by = jax.tree.map(lambda leaf: leaf[None], row)
    ends = passages.before
    before = jnp.roll(ends, 1, axis=0) if before is None else before
    chain = Chain(nodes, starts, before, end, period, passages.guard_rates.reshape(-1), by, result)  # pyright: ignore
    return chain, ends


def return_matrices(problem: Problem, by: Passage) -> tuple[Float[Array, "n n"], Float[Array, "m n"]]:
    """`(by_end, by_before)`: how a variation of the first start moves the state after, and before, the last jump.

    Products of the strides' Jacobians, the first of which is the return Jacobian of the orbit.
    """
    width = problem.system.mode(problem.sequence[0]).dimension + problem.timed
    each = by.end[:, :, :width]
    # The first start's time is fixed.
    total = jnp.eye(width, dtype=each.dtype)[:, problem.timed :]
    if not problem.timed:
        return each[0], by.before[0][:, :width]
    total, _ = jax.lax.scan(lambda total, one: (one @ total, None), total, each[:-1])
    return (each[-1] @ total)[problem.timed :], by.before[-1][:, :width] @ total


def expanded(fn: Callable[[Array], tuple[PyTree, PyTree]], u: Array, order: int) -> tuple[PyTree, PyTree, PyTree]:
    """`(out, d out / du, aux)` of `fn(u) -> (out, aux)`, with the derivatives of `out` up to `order` taken here, all at once, by
    its own few directions: those who differentiate by many multiply by these. The Jacobian can be differentiated once less."""
    at = jax.lax.stop_gradient(u)
    if order < 2:
        out, slope, aux = with_columns(fn, at)
        along = lambda out, slope: out + slope @ (u - at)
        return jax.tree.map(along, out, slope) if order else out, slope, aux

    def once(u):
        out, slope, aux = with_columns(fn, u)
        return (out, slope), aux

    (out, slope), (_, curvature), aux = with_columns(once, at)
    bent = lambda out, slope, curvature: out + (slope + curvature @ (u - at) / 2) @ (u - at)
    tilted = lambda slope, curvature: slope + curvature @ (u - at)
    return jax.tree.map(bent, out, slope, curvature), jax.tree.map(tilted, slope, curvature), aux
