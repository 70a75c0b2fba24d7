r"""A periodic orbit with its parameter free: the equations of branches and of what happens on them.

$F(y, \lambda) = \text{flow}(R(y), \lambda) - y$, where $y$ is the state before the jump that closes the orbit. Its Jacobian by
$y$ is $D - I$, and $D$ has the orbit's multipliers. At a special point a matrix made of it is singular; the equation that says
so is the scalar $g$ of

$$\begin{pmatrix} A & b \\ c^T & 0 \end{pmatrix} \begin{pmatrix} v \\ g \end{pmatrix} = \begin{pmatrix} 0 \\ 1 \end{pmatrix},$$

which is regular for suitable $b$, $c$, and where $g = 0$ just if $A$ is singular. With its exact derivatives, which are second
derivatives of the flow, Newton's method converges quadratically.

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, ch. 10; Govaerts (2000), *Numerical Methods for
Bifurcations of Dynamical Equilibria*, ch. 3.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._integrator import Integrator, PlainForward
from ._result import choose, code_of, RESULTS
from ._shooting import Problem
from ._stride import run_stride
from ._types import Params, Scalar, State

# Which leaves of the parameters are free: `lambda params: params.slope`, or a tuple of leaves.
Where = Callable[[Params], PyTree]


def with_leaves(params: Params, free: tuple[int, ...], values: Array) -> Params:
    """The parameters, with the free leaves set."""
    leaves, tree = jax.tree.flatten(params)
    for i, value in zip(free, values, strict=True):
        leaves[i] = value.astype(jnp.result_type(leaves[i]))
    return jax.tree.unflatten(tree, leaves)


def free_leaves(where: Where, params: Params) -> tuple[int, ...]:
    """The numbers of the leaves that a lens picks; `ValueError` where it does not pick scalars."""
    leaves, tree = jax.tree.flatten(params)
    numbered = jax.tree.unflatten(tree, [_Number(i) for i in range(len(leaves))])
    picked = jax.tree.leaves(where(numbered), is_leaf=lambda leaf: isinstance(leaf, _Number))
    if (
        not picked
        or not all(isinstance(each, _Number) for each in picked)
        or any(jnp.ndim(leaves[each.i]) for each in picked)
    ):
        raise ValueError(
            "where must pick scalar leaves of the parameters, such as lambda params: params.slope, and nothing computed from "
            f"them; it picked {picked}."
        )
    return tuple(each.i for each in picked)


class _Number:
    """Stands for a leaf of the parameters."""

    def __init__(self, i: int):
        self.i = i


class Pass(eqx.Module):
    """Once around: `nodes[i]` is the state at the start of stride `i`, `end` that after the last; codes as elsewhere."""

    nodes: Float[Array, "strides n"]
    end: State
    period: Scalar
    guard_rates: Float[Array, "strides arcs"]
    result: RESULTS


class Unfolding(eqx.Module):
    """An orbit's equation, with parameters free and everything scaled to order one.

    The unknowns are $v = (y / s, (\\lambda - \\lambda_0) / \\sigma)$, shape `(n + free,)`.
    """

    problem: Problem = eqx.field(static=True)
    params: Params
    free: tuple[int, ...] = eqx.field(
        static=True
    )  # which leaves: a lens would be a recompilation each time it is written
    integrator: Integrator = eqx.field(static=True)
    state_scale: Scalar
    origin: Float[Array, " free"]
    scale: Float[Array, " free"]

    def rolled(self) -> "Unfolding":
        """The same, quicker to compile and slower to run."""
        integrator = eqx.tree_at(lambda i: i.adjoint, self.integrator, PlainForward(rolled=True))
        return dataclasses.replace(self, integrator=integrator)

    def split(self, v: Array) -> tuple[Array, Array]:
        """`(y, parameters)`."""
        free = self.origin.size
        return v[:-free] * self.state_scale, self.origin + v[-free:] * self.scale

    def join(self, y: Array, values: Array) -> Array:
        """`v` of a state before the closing jump and parameters."""
        return jnp.concatenate([y / self.state_scale, (values - self.origin) / self.scale])

    def params_at(self, values: Array) -> Params:
        """The parameters, with the free ones set."""
        return with_leaves(self.params, self.free, values)

    def residual(self, v: Array) -> tuple[Array, Pass]:
        """`F`, scaled, and what the pass around knows."""
        y, values = self.split(v)
        params = self.params_at(values)
        problem = self.problem

        def one(carry, _):
            t, x, result = carry
            stride = run_stride(problem.system, t, x, params, problem.sequence, self.integrator)
            result = choose(result == RESULTS.successful, stride.result, result)
            return (t + stride.time, stride.x, result), (x, stride.impacts[-1].x, stride.guard_rates)

        start = (jnp.zeros((), v.dtype), problem.last_reset(y, params), code_of(0))
        (period, end, result), (nodes, before, rates) = jax.lax.scan(one, start, length=problem.strides)
        return (before[-1] - y) / self.state_scale, Pass(nodes, end, period, rates, result)

    def evaluate(self, v: Array) -> tuple[Array, Array, Pass]:
        """`(F, dF/dv, pass)`; one loop carries the state and all tangents."""
        return with_columns(self.residual, v)

    def around(self, jacobian: Float[Array, "n unknowns"]) -> Float[Array, "n n"]:
        """`D`: how a variation before the jump moves the state before the jump one orbit later."""
        n = jacobian.shape[0]
        return jacobian[:, :n] + jnp.eye(n, dtype=jacobian.dtype)


def with_columns(fn: Callable, v: Array) -> tuple[Array, Array, PyTree]:
    """`(out, d out / dv, aux)` of `fn(v) -> (out, aux)`, all tangents pushed at once."""

    def push(direction):
        out, tangent, aux = jax.jvp(fn, (v,), (direction,), has_aux=True)
        return tangent, (out, aux)

    jacobian, (out, aux) = jax.vmap(push, out_axes=(-1, None))(jnp.eye(v.size, dtype=v.dtype))
    return out, jacobian, aux


def bordered(
    matrix: Float[Array, "n m"], b: Float[Array, "n columns"], c: Float[Array, "rows m"]
) -> Float[Array, "columns rows"]:
    """The corner `g` of the solution of the bordered system; zero just where the matrix loses rank."""
    corner = jnp.zeros((c.shape[0], b.shape[1]), matrix.dtype)
    whole = jnp.block([[matrix, b], [c, corner]])
    right = jnp.concatenate(
        [jnp.zeros((matrix.shape[0], c.shape[0]), matrix.dtype), jnp.eye(c.shape[0], dtype=matrix.dtype)]
    )
    return jnp.linalg.solve(whole, right)[matrix.shape[1] :]


def borders(matrix: Float[Array, "n m"], rank_lost: int) -> tuple[Array, Array]:
    """`(b, c)` for `bordered`: the singular vectors of what is, or nearly is, the kernel on either side."""
    u, _, vh = jnp.linalg.svd(matrix)
    n = matrix.shape[0]
    return u[:, n - rank_lost :], vh[n - rank_lost :]
