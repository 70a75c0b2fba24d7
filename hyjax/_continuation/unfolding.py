r"""Equations of a periodic orbit with free parameters, for its branches and their special points.

For one stride, $F(y, \lambda) = \text{flow}(R(y), \lambda) - y$, where $y$ is the pre-impact state of the jump that closes the
orbit. Its Jacobian in $y$ is $D - I$; the eigenvalues of $D$ are the orbit's multipliers. For an orbit of $m$ strides,

$$F_i(y, \lambda) = \text{flow}(R(y_i), \lambda) - y_{i+1}, \qquad y_{m+1} = y_1:$$

with one unknown state for each stride, an error in one stride is not amplified by the instability of the following strides. If
$-\mu I$ replaces the last $-I$ in the Jacobian, the matrix is singular exactly where $\mu$ is a multiplier of the orbit: $D$, a
product over all strides, is not needed.

Of a `Family` of a quantity that is not known, $F$ is made regular by one term, and the family's multiplier 1 is 0 in $D$.

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, ch. 10.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from .._flow.integrator import Integrators, rolled, without_jacobian
from .._numerics.eigenvalues import eigenvalues, set_apart
from .._numerics.elimination import solve
from .._numerics.linearize import with_columns
from .._orbit.chain import Chain, follow_chain, return_matrices
from .._orbit.level import Family
from .._orbit.orbit import orbit_of, PeriodicOrbit
from .._orbit.problem import Problem
from .._orbit.stride import orders, sequence_met
from .._orbit.verdict import judged
from .._system.results import choose, code_of, RESULTS
from .._system.types import Params, Scalar
from .._system.where import with_leaves
from ..phase.equilibrium import balance, Equilibrium, equilibrium_at, flowing

# What a curve solves: an `Unfolding`, a `Balance`, or the `LocusEquation` of a locus. Its last unknown is the free parameter over
# which the curve is followed.
Equation = Any
SHIFTS = {"fold": 1.0, "period-doubling": -1.0}


def of_pair(matrix: Float[Array, "n n"]) -> Float[Array, "pairs pairs"]:
    """The second compound matrix less the identity, singular where two eigenvalues have the product 1."""
    i, j = np.triu_indices(len(matrix), 1)
    return matrix[i][:, i] * matrix[j][:, j] - matrix[i][:, j] * matrix[j][:, i] - jnp.eye(i.size, dtype=matrix.dtype)


class Unfolding(eqx.Module):
    """The equation `F = 0` of a periodic orbit with free parameters, in unknowns that are scaled to order one.

    The unknowns are $v = (y_1 / s, \\dots, y_m / s, (\\lambda - \\lambda_0) / \\sigma)$, shape `(strides * n + free,)`.
    """

    problem: Problem = eqx.field(static=True)
    params: Params
    # Indices of the leaves of `params`, not a lens: a new lambda would be compiled again.
    free: tuple[int, ...] = eqx.field(static=True)
    integrator: Integrators = eqx.field(static=True)
    state_scale: Scalar
    sizes: Float[Array, " coordinates"]  # of the coordinates after the closing jump, at the start of the curve
    origin: Float[Array, " free"]
    scale: Float[Array, " free"]
    order: int = eqx.field(static=True, default=1)  # how often F can be differentiated

    def rolled(self, order: int = 1) -> "Unfolding":
        """The same equation, quicker to compile and slower to run, differentiable `order` times."""
        integrator = rolled(without_jacobian(self.integrator))
        return dataclasses.replace(self, integrator=integrator, order=order)

    @property
    def dimension(self) -> int:
        """The dimension `n` of the pre-impact state at the end of a stride."""
        return self.problem.system.mode(self.problem.sequence[-1]).dimension

    def split(self, v: Array) -> tuple[Float[Array, "strides n"], Float[Array, " free"]]:
        """The pre-impact states of the jumps that start the strides, and the values of the free parameters, from `v`."""
        free = self.origin.size
        return v[:-free].reshape(-1, self.dimension) * self.state_scale, self.origin + v[-free:] * self.scale

    def join(self, before: Float[Array, "strides n"], values: Float[Array, " free"]) -> Array:
        """The unknowns `v` from pre-impact states and values of the free parameters; the inverse of `split`."""
        return jnp.concatenate([before.reshape(-1) / self.state_scale, (values - self.origin) / self.scale])

    def params_at(self, values: Array) -> Params:
        """The parameters, with the free ones set to `values`."""
        return with_leaves(self.params, self.free, values)

    def residual(self, v: Array) -> tuple[Array, Chain]:
        """The scaled `F`, shape `(strides * n,)`, and the chain of strides."""
        before, values = self.split(v)
        params = self.params_at(values)
        chain, ends = follow_chain(self.moved, None, params, self.integrator, before, self.order)
        if isinstance(params, Family):
            ends = ends.at[-1].add(params.forced(before[0]))
        residual = (ends - jnp.roll(before, -1, axis=0)) / self.state_scale
        assert chain.jacobians is not None
        lap, _ = return_matrices(self.problem, chain.jacobians)
        return residual.reshape(-1), dataclasses.replace(chain, jacobians=None, lap=lap)

    def evaluate(self, v: Array) -> tuple[Array, Array, Chain]:
        """`(F, dF/dv, chain)`."""
        return with_columns(self.residual, v)

    def size_at(self, v: Array) -> Scalar:
        """The size of the states to which residuals are relative."""
        return self.state_scale * jnp.maximum(1, jnp.max(jnp.abs(v)))

    def judged(self, v: Array, chain: Chain, accept: Array | float) -> Chain:
        """The chain at a root of `F`, with the verdict on its orbit. `accept`: the largest residual of the scaled `F`,
        relative to the unknowns."""
        (_, values), lap = self.split(v), chain.lap
        assert lap is not None
        result = judged(
            self.problem, chain, lap, self.params_at(values), self.integrator, chain.result, accept=accept, size=self.size_at(v)
        )  # fmt: skip
        return dataclasses.replace(chain, result=result)

    def orbit(self, v: Array, chain: Chain) -> PeriodicOrbit:
        """The orbit at a root of `F`, of its chain with a verdict; not differentiable."""
        (before, values), lap = self.split(v), chain.lap
        assert lap is not None
        gap = jnp.max(jnp.abs(chain.arc_ends[-1] - jnp.roll(before, -1, axis=0)))
        residual, none = jnp.maximum(gap, chain.residual), jnp.array(0)
        params, multipliers = self.params_at(values), eigenvalues(lap)
        return orbit_of(
            self.problem, chain, lap, params, self.integrator, multipliers, residual, none, chain.result
        )  # fmt: skip

    def orders(self) -> list["Unfolding"]:
        """The equation for each order of events that may be in step, that of its own sequence first."""
        every = orders(self.problem.system, self.problem.sequence)
        along = lambda sequence: dataclasses.replace(self.problem, sequence=sequence)
        return [dataclasses.replace(self, problem=along(each)) for each in every]

    def sequence_met(self, v: Array | np.ndarray) -> tuple[str, ...]:
        """The sequence of an orbit at `v`, in the order in which events fall there that are in step near by."""
        before, values = self.split(jnp.asarray(v))
        problem, params = self.problem, self.params_at(values)
        start = problem.closing_jump(before[0], params)
        return sequence_met(problem.system, jnp.zeros((), v.dtype), start, params, problem.sequence, self.integrator)

    @property
    def moved(self) -> Problem:
        """The problem with its free parameters marked as varied, so that the strides are differentiated by them."""
        return self.problem.with_varied(self.params, self.free)

    def around(self, jacobian: Shaped[Array, "k unknowns"]) -> Shaped[Array, "n n"]:
        """The return Jacobian `D` of the pre-impact state, once around the orbit, from dF."""
        return self._lap(self._strides(jacobian))

    def shifted(self, jacobian: Shaped[Array, "k unknowns"], shift: float | Shaped[Array, ""]) -> Shaped[Array, "k k"]:
        """A matrix that is singular exactly where `shift` is an eigenvalue of `D`; its kernel is a variation of all strides."""
        n = self.dimension
        return self._strides(jacobian).at[-n:, :n].add((1 - shift) * jnp.eye(n, dtype=jacobian.dtype))

    def critical(self, jacobian: Float[Array, "k unknowns"], kind: str) -> Float[Array, "m m"]:
        """The matrix that is singular at folds, doublings, or where two multipliers have the product 1, by the `kind`."""
        return self.shifted(jacobian, SHIFTS[kind]) if kind in SHIFTS else of_pair(self.around(jacobian))

    def _strides(self, jacobian: Shaped[Array, "k unknowns"]) -> Shaped[Array, "k k"]:
        """dF by the states; of a family without the term that makes it regular, and with the family's multiplier set apart."""
        family, n = self.params, self.dimension
        matrix, one = jacobian[:, : len(jacobian)], jnp.eye(n, dtype=jacobian.dtype)
        if not isinstance(family, Family):
            return matrix
        matrix = matrix.at[-n:, :n].add(jnp.outer(family.push, family.along).astype(one.dtype))
        last = set_apart(self._lap(matrix), matrix[-n:].at[:, :n].add(one))
        return matrix.at[-n:].set(last).at[-n:, :n].add(-one)

    def _lap(self, matrix: Shaped[Array, "k k"]) -> Shaped[Array, "n n"]:
        n, one = self.dimension, jnp.eye(self.dimension, dtype=matrix.dtype)
        by_first, by_others = matrix[:, :n], matrix[:, n:]
        if not by_others.size:
            return by_first + one
        # All rows but the last stride's give the other variations in terms of the first one; the last rows close the orbit.
        others = solve(by_others[:-n], -by_first[:-n])
        return by_first[-n:] + by_others[-n:] @ others + one


class EquilibriumResidual(eqx.Module):
    """What is known of a state near an equilibrium: its largest scaled residual, and whether it counts as one."""

    residual: Scalar
    result: RESULTS


class Balance(eqx.Module):
    r"""The equation `F = 0` of an equilibrium with a free parameter, scaled: $v = (y / s, (\lambda - \lambda_0) / \sigma)$ for
    its flowing coordinates $y$, in units of time in which the largest entry of the Jacobian is 1 at the start."""

    start: Equilibrium
    free: tuple[int, ...] = eqx.field(static=True)
    state_scale: Scalar
    sizes: Float[Array, " n"]  # of the coordinates, at the start of the curve
    time_scale: Scalar
    origin: Float[Array, " free"]
    scale: Float[Array, " free"]

    @property
    def params(self) -> Params:
        """The parameters at the start."""
        return self.start.params

    def rolled(self, order: int = 1) -> "Balance":
        """The equation itself, which has no loops."""
        return self

    def critical(self, jacobian: Float[Array, "k unknowns"], kind: str) -> Float[Array, "m m"]:
        """The matrix that is singular at folds, $A = F_y$, or at Hopf points, with the sums of two eigenvalues of $A$: the
        derivative at the identity of that of the products."""
        A = jacobian[:, : len(jacobian)]
        return A if kind == "fold" else jax.jvp(of_pair, (jnp.eye(len(A), dtype=A.dtype),), (A,))[1]

    def split(self, v: Array) -> tuple[Float[Array, " n"], Float[Array, " free"]]:
        """The state and the values of the free parameters, from `v`."""
        k = v.size - len(self.free)
        return self.start.x.at[:k].set(v[:k] * self.state_scale), self.origin + v[k:] * self.scale

    def params_at(self, values: Array) -> Params:
        """The parameters, with the free ones set to `values`."""
        return with_leaves(self.params, self.free, values)

    def join(self, x: Array, values: Array) -> Array:
        """The unknowns `v` of a state and values of the free parameters."""
        y = x[: flowing(self.start.system, self.start.mode)]
        return jnp.append(y / self.state_scale, (values - self.origin) / self.scale)

    def residual(self, v: Array) -> tuple[Array, EquilibriumResidual]:
        """The scaled `F`, shape `(k,)`."""
        x, values = self.split(v)
        rate = balance(self.start.system, self.start.mode, x, self.params_at(values)) * (
            self.time_scale / self.state_scale
        )
        return rate, EquilibriumResidual(jnp.max(jnp.abs(rate)), code_of(0))

    def evaluate(self, v: Array) -> tuple[Array, Array, EquilibriumResidual]:
        """`(F, dF/dv, reached)`."""
        return with_columns(self.residual, v)

    def judged(self, v: Array, reached: EquilibriumResidual, accept: Array | float) -> EquilibriumResidual:
        """The verdict on a root of `F`."""
        good = reached.residual <= accept * jnp.maximum(1, jnp.max(jnp.abs(v)))
        return dataclasses.replace(reached, result=choose(good, RESULTS.successful, RESULTS.no_equilibrium))

    def at(self, v: Array, scale: Array | float = 0.0) -> Equilibrium:
        """The equilibrium at a point of its branch. `scale`: the least size of the state."""
        x, values = self.split(v)
        return equilibrium_at(self.start.system, self.start.mode, x, self.params_at(values), scale)
