r"""A periodic orbit with its parameter free: the equations of branches and of what happens on them.

Of a stride, $F(y, \lambda) = \text{flow}(R(y), \lambda) - y$, where $y$ is the state before the jump that closes the orbit. Its
Jacobian by $y$ is $D - I$, and $D$ has the orbit's multipliers. Of an orbit of $m$ strides,

$$F_i(y, \lambda) = \text{flow}(R(y_i), \lambda) - y_{i+1}, \qquad y_{m+1} = y_1:$$

with one unknown state for each stride, an error at one is not multiplied by the instability of all that follow. Where the last
$-I$ of the Jacobian is replaced by $-\mu I$, it is singular just where $\mu$ is a multiplier of the orbit: $D$ itself, a product
of strides, is not needed. At a special point such a matrix $A$ is singular; the equation that says so is the scalar $g$ of

$$\begin{pmatrix} A & b \\ c^T & 0 \end{pmatrix} \begin{pmatrix} v \\ g \end{pmatrix} = \begin{pmatrix} 0 \\ 1 \end{pmatrix},$$

which is regular for suitable $b$, $c$, and where $g = 0$ just if $A$ is singular. With its exact derivatives, which are second
derivatives of the flow, Newton's method converges quadratically.

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, ch. 10; Govaerts (2000), *Numerical Methods for
Bifurcations of Dynamical Equilibria*, ch. 3.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from .._flow.elimination import solve
from .._flow.integrator import PlainForward
from .._flow.linearize import with_columns
from .._flow.mode_integrators import Integrators, rolled, with_adjoint
from .._orbit.chain import Chain, follow_chain
from .._orbit.problem import Problem
from .._system.types import Params, Scalar
from .._system.where import with_leaves


class Unfolding(eqx.Module):
    """An orbit's equation, with parameters free and everything scaled to order one.

    The unknowns are $v = (y_1 / s, \\dots, y_m / s, (\\lambda - \\lambda_0) / \\sigma)$, shape `(strides * n + free,)`.
    """

    problem: Problem = eqx.field(static=True)
    params: Params
    free: tuple[int, ...] = eqx.field(
        static=True
    )  # which leaves: a lens would be a recompilation each time it is written
    integrator: Integrators = eqx.field(static=True)
    state_scale: Scalar
    origin: Float[Array, " free"]
    scale: Float[Array, " free"]
    order: int = eqx.field(static=True, default=1)  # how often it can be differentiated

    def rolled(self, order: int = 1) -> "Unfolding":
        """The same, quicker to compile and slower to run; differentiable so often."""
        integrator = rolled(with_adjoint(self.integrator, PlainForward()))
        return dataclasses.replace(self, integrator=integrator, order=order)

    @property
    def dimension(self) -> int:
        """Of the state before the jump that ends a stride."""
        return self.problem.system.mode(self.problem.sequence[-1]).dimension

    def split(self, v: Array) -> tuple[Float[Array, "strides n"], Float[Array, " free"]]:
        """States before the jumps that start the strides, and parameters."""
        free = self.origin.size
        return v[:-free].reshape(-1, self.dimension) * self.state_scale, self.origin + v[-free:] * self.scale

    def join(self, before: Float[Array, "strides n"], values: Float[Array, " free"]) -> Array:
        """`v` of states before the jumps, and parameters."""
        return jnp.concatenate([before.reshape(-1) / self.state_scale, (values - self.origin) / self.scale])

    def params_at(self, values: Array) -> Params:
        """The parameters, with the free ones set."""
        return with_leaves(self.params, self.free, values)

    def residual(self, v: Array) -> tuple[Array, Chain]:
        """`F`, scaled, and the chain of strides."""
        before, values = self.split(v)
        chain, ends = follow_chain(self.moved, None, self.params_at(values), self.integrator, before, self.order)
        residual = (ends - jnp.roll(before, -1, axis=0)) / self.state_scale
        return residual.reshape(-1), dataclasses.replace(chain, jacobians=None)

    def evaluate(self, v: Array) -> tuple[Array, Array, Chain]:
        """`(F, dF/dv, chain)`."""
        return with_columns(self.residual, v)

    @property
    def moved(self) -> Problem:
        """The problem with its free parameters marked as those that move."""
        leaves = len(jax.tree.leaves((self.problem.system, self.params)))
        first = leaves - len(jax.tree.leaves(self.params))
        return dataclasses.replace(self.problem, varied=tuple(i - first in self.free for i in range(leaves)))

    def around(self, jacobian: Float[Array, "k unknowns"]) -> Float[Array, "n n"]:
        """`D`: how a variation before the first jump moves the state before it one orbit later."""
        n, k = self.dimension, jacobian.shape[0]
        if k == n:
            return jacobian[:, :n] + jnp.eye(n, dtype=jacobian.dtype)
        by_first, by_others = jacobian[:, :n], jacobian[:, n:k]
        # The first strides' rows give the others' variations, the last one's where they lead.
        others = solve(by_others[:-n], -by_first[:-n])
        return by_first[-n:] + by_others[-n:] @ others + jnp.eye(n, dtype=jacobian.dtype)

    def shifted(self, jacobian: Shaped[Array, "k unknowns"], shift: float | Shaped[Array, ""]) -> Shaped[Array, "k k"]:
        """A matrix that is singular just where `D` has the eigenvalue `shift`; its kernel is a variation of all strides."""
        n, k = self.dimension, jacobian.shape[0]
        closing = jnp.zeros((k, k), jacobian.dtype).at[-n:, :n].set(jnp.eye(n, dtype=jacobian.dtype))
        return jacobian[:, :k] + (1 - shift) * closing


def bordered(
    matrix: Shaped[Array, "n m"], b: Shaped[Array, "n columns"], c: Shaped[Array, "rows m"]
) -> Shaped[Array, "columns rows"]:
    """The corner `g` of the solution of the bordered system; zero just where the matrix loses rank."""
    corner = jnp.zeros((c.shape[0], b.shape[1]), matrix.dtype)
    whole = jnp.block([[matrix, b], [c, corner]])
    right = jnp.concatenate(
        [jnp.zeros((matrix.shape[0], c.shape[0]), matrix.dtype), jnp.eye(c.shape[0], dtype=matrix.dtype)]
    )
    return solve(whole, right)[matrix.shape[1] :]


def borders(matrix: Shaped[Array, "n m"], rank_lost: int) -> tuple[Array, Array]:
    """`(b, c)` for `bordered`: the singular vectors of what is, or nearly is, the kernel on either side."""
    u, _, vh = jnp.linalg.svd(matrix)
    n = matrix.shape[0]
    return u[:, n - rank_lost :], vh[n - rank_lost :]
