r"""A chain of strides between pre-impact states: the equation of a periodic orbit.

The unknown is a pre-impact state $y$, the state *before* a jump, and a stride is the map $y \mapsto \text{flow}(R(y))$, which
starts on the image of the reset. (A state slightly off the image may meet its guard at once, or never.) An orbit of $m$ strides
solves

$$\text{flow}(R(y_i)) = y_{i+1}, \qquad y_{m+1} = y_1.$$

Single shooting has one unknown for the whole orbit, a branch one for each stride and free parameters.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._flow.integrator import Integrators
from .._numerics.linearize import with_columns, with_columns_by_lanes
from .._system.results import choose, RESULTS
from .._system.types import Params, Scalar, State
from .problem import Problem
from .stride import Stride, traced_stride


class StrideOutput(eqx.Module):
    """The quantities of one stride that are differentiated; or their Jacobians, whose arrays have one more axis, the last, over
    the stride's start and the moving leaves.

    **Attributes:** `end`: the state after the jump that ends the stride, preceded by its time if there are several strides.
    `arc_ends`: for each arc, the state before its jump. `elapsed`: the times of these jumps since the stride's start, shape
    `(arcs,)`. `guard_rates`: shape `(arcs,)`.
    """

    end: Array
    arc_ends: tuple[Array, ...]
    elapsed: Array
    guard_rates: Array


class Chain(eqx.Module):
    """Consecutive strides, once around the orbit.

    **Attributes:** `nodes`, `starts`: states and times just after the jumps that start the strides. `before`: the pre-impact
    states of those jumps. `arc_ends`: for each arc of the sequence, the pre-impact states of the jumps that end it. `elapsed`:
    the times of all jumps since the starts of their strides. `end`: the state after the last jump, equal to `nodes[0]` up to the
    residual. `period`: the duration of all strides. `guard_rates`: shape `(strides * arcs,)`. `jacobians`: those of the strides,
    or `None`. `result`: the first code of a stride that is not `successful`. `lap`: the return Jacobian, where it is kept
    without `jacobians`.
    """

    nodes: Float[Array, "strides n"]
    starts: Float[Array, " strides"]
    before: Float[Array, "strides m"]
    arc_ends: tuple[Float[Array, "strides _"], ...]
    elapsed: Float[Array, "strides arcs_of_stride"]
    end: State
    period: Scalar
    guard_rates: Float[Array, " arcs"]
    jacobians: StrideOutput | None
    result: RESULTS
    lap: Float[Array, "n n"] | None = None

    @property
    def residual(self) -> Scalar:
        """The largest component of $S^m(x) - x$, of the state after the jump that closes the chain."""
        return jnp.max(jnp.abs(self.end - self.nodes[0]))


def packed_stride(
    problem: Problem, t: Scalar, x: State, params: Params, integrator: Integrators
) -> tuple[Callable[[Array], tuple[StrideOutput, Stride]], Array]:
    """The stride from `(t, x)` as a function of the numbers with respect to which its Jacobian is taken, and these numbers, in
    one array: `(t, x)` and the moving leaves; without the time for an orbit of one stride."""
    moving, still = problem.split(params)
    packed, unpacked = ravel_pytree((((t, x) if problem.timed else (x,)), moving))

    def flow(packed: Array) -> tuple[StrideOutput, Stride]:
        state, moving = unpacked(packed)
        system, params = eqx.combine(moving, still)
        at, x = (state[0], state[-1]) if problem.timed else (t, state[-1])
        stride = traced_stride(system, at, x, params, problem.sequence, integrator)
        end = jnp.append(at + stride.time, stride.x) if problem.timed else stride.x
        arc_ends = tuple(impact.x for impact in stride.impacts)
        elapsed = jnp.stack([*(impact.t - at for impact in stride.impacts[:-1]), stride.time])
        return StrideOutput(end, arc_ends, elapsed, stride.guard_rates), stride

    return flow, packed


def stride_jacobian(
    problem: Problem, t: Scalar, x: State, params: Params, integrator: Integrators
) -> tuple[StrideOutput, StrideOutput, Stride]:
    """One stride from `(t, x)` with all tangents pushed through one loop: `(passage, its Jacobian, stride)`.

    In an orbit of several strides, the Jacobian has a column for the start's time, which is the end of the previous stride and
    matters in a non-autonomous system. For a single stride the time is fixed.
    """
    return with_columns(*packed_stride(problem, t, x, params, integrator))


def follow_chain(
    problem: Problem,
    x: State | None,
    params: Params,
    integrator: Integrators,
    before: Float[Array, "strides m"] | None = None,
    order: int | None = 0,
) -> tuple[Chain, Float[Array, "strides m"]]:
    """All strides of an orbit: from `x`, each from the end of the previous one; or with `before`, each from `R(before[i])`.

    **Arguments:** `order`: how often the result can be differentiated with respect to `x` or `before` and the leaves `varied` of
    the problem. The strides' derivatives are computed here once, and differentiation multiplies by them. With `None` none is
    computed, and differentiation goes through the strides.

    **Returns:** the chain, and the states before the jumps that *end* the strides.
    """

    def one(carry, y):
        t, x, result = carry
        x = x if y is None else problem.closing_jump(y, params, t)
        flow, packed = packed_stride(problem, t, x, params, integrator)
        if order is None:
            (passage, stride), by = flow(packed), None
        else:
            passage, by, stride = expanded(flow, packed, order)
        result = choose(result == RESULTS.successful, stride.result, result)
        return (t + passage.elapsed[-1], passage.end[problem.timed :], result), (t, x, passage, by)

    if x is None:
        assert before is not None
        x = problem.closing_jump(before[0], params)
    start = (jnp.zeros((), x.dtype), x, RESULTS.successful)
    if problem.timed:
        (period, end, result), (starts, nodes, passages, by) = jax.lax.scan(one, start, before, length=problem.strides)
    else:
        (period, end, result), row = one(start, None if before is None else before[0])
        starts, nodes, passages, by = jax.tree.map(lambda leaf: leaf[None], row)
    ends = passages.arc_ends[-1]
    before = jnp.roll(ends, 1, axis=0) if before is None else before
    chain = Chain(
        nodes, starts, before, passages.arc_ends, passages.elapsed, end, period, passages.guard_rates.reshape(-1), by,
        result,  # pyright: ignore
    )  # fmt: skip
    return chain, ends


def return_matrices(problem: Problem, by: StrideOutput) -> tuple[Float[Array, "n n"], Float[Array, "m n"]]:
    """Jacobians of the state after the last jump (the orbit's return Jacobian) and of the state before it, with respect to the
    orbit's start: products of the strides' Jacobians `by`.
    """
    width = problem.system.mode(problem.sequence[0]).dimension + problem.timed
    each = by.end[:, :, :width]
    # The time of the orbit's start is fixed.
    total = jnp.eye(width, dtype=each.dtype)[:, problem.timed :]
    if not problem.timed:
        return each[0], by.arc_ends[-1][0, :, :width]
    total, _ = jax.lax.scan(lambda total, one: (one @ total, None), total, each[:-1])
    return (each[-1] @ total)[problem.timed :], by.arc_ends[-1][-1, :, :width] @ total


def expanded(fn: Callable[[Array], tuple[PyTree, PyTree]], u: Array, order: int) -> tuple[PyTree, PyTree, PyTree]:
    """`(out, d out / du, aux)` of `fn(u) -> (out, aux)`, with `out` replaced by its Taylor polynomial at `u` of degree `order`.

    So the derivatives of `fn` are computed here once, in the few directions of `u`; differentiation of `out`, up to `order`
    times, multiplies by them. The Jacobian can be differentiated once less.
    """
    at = jax.lax.stop_gradient(u)
    if order < 2:
        out, slope, aux = with_columns_by_lanes(fn, at)
        along = lambda out, slope: out + slope @ (u - at)
        return jax.tree.map(along, out, slope) if order else out, slope, aux

    def once(u):
        out, slope, aux = with_columns(fn, u)
        return (out, slope), aux

    (out, slope), (_, curvature), aux = with_columns(once, at)
    bent = lambda out, slope, curvature: out + (slope + curvature @ (u - at) / 2) @ (u - at)
    tilted = lambda slope, curvature: slope + curvature @ (u - at)
    return jax.tree.map(bent, out, slope, curvature), jax.tree.map(tilted, slope, curvature), aux
