r"""Periodic orbits with prescribed quantities: the equation of an orbit, extended by conditions and as many unknown parameters.

$$\text{flow}^m(R(y), p) = y, \qquad c(\text{orbit}, p) = b,$$

solved for the pre-impact state $y$ and some of the parameters $p$ together. The strides' Jacobian has a column for each unknown
parameter, so an iteration of Newton's method costs one pass through the strides, as for the orbit alone; and at a fold of the
orbit over $p$ the extended equation is in general regular.

Source: Keller (1977), *Numerical solution of bifurcation and nonlinear eigenvalue problems*, for the extended equation.
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._flow.integrator import Integrators
from .._numerics.eager import short_run
from .._numerics.eigenvalues import eigenvalues
from .._numerics.elimination import solver
from .._numerics.linearize import with_columns
from .._numerics.newton import Evaluation
from .._results.failure import codes_only
from .._system.types import Matrix, Params, Scalar
from .._system.where import with_leaves
from .chain import Chain, follow_chain, return_matrices
from .orbit import orbit_of, PeriodicOrbit
from .problem import computes_with_first, Problem

# A quantity of an orbit: `(orbit, params) -> number`.
Quantity = Callable[[PeriodicOrbit, Params], Scalar]


class Solution(eqx.Module):
    """An evaluation of the extended equation: the parameters, the strides, the return Jacobian; the residual, and its Jacobians
    by the unknowns and by the numbers that are given, which are parameters and targets."""

    params: Params
    chain: Chain
    jacobian: Matrix
    residual: Float[Array, " unknowns"]
    extended: Float[Array, "unknowns unknowns"]
    by_given: Float[Array, "unknowns given"]

    @property
    def slope(self) -> Float[Array, "unknowns given"]:
        """The derivative of the unknowns by the given numbers, by the implicit function theorem."""
        return solver(self.extended)(-self.by_given)

    @property
    def error(self) -> Scalar:
        """The largest change of an unknown in one further step of Newton's method: small also where the strides amplify their
        rounding errors, and with these the residual."""
        return jnp.max(jnp.abs(solver(self.extended)(self.residual)))


class Prescribed(eqx.Module):
    r"""The conditions, and the parameters that are solved for.

    The unknowns are $v = (y, p_1 / \sigma_1, \dots)$, and the rows $(\text{flow}^m(R(y)) - y, (c_1 - b_1) / \tau_1, \dots)$.

    **Attributes:** `quantities`: $c$. `free`: indices of the unknown leaves of the parameters. `scale`: $\sigma$. `tolerance`:
    $\tau$. With these numbers unknowns and rows are of the size of the states. `by_jacobian`: whether a quantity is computed from
    the return Jacobian or the multipliers, whose derivatives are second derivatives of the flow.
    """

    quantities: tuple[Quantity, ...]
    free: tuple[int, ...] = eqx.field(static=True)
    scale: Float[Array, " free"]
    tolerance: Float[Array, " free"]
    by_jacobian: bool = eqx.field(static=True)

    def of(self, orbit: PeriodicOrbit, params: Params) -> Float[Array, " free"]:
        """The quantities of an orbit."""
        with codes_only():
            return jnp.stack([jnp.asarray(each(orbit, params), orbit.x.dtype) for each in self.quantities])

    def split(self, v: Array) -> tuple[Array, Float[Array, " free"]]:
        """The pre-impact state and the unknown parameters."""
        count = len(self.free)
        return v[:-count], v[-count:] * self.scale

    def equation(
        self,
        problem: Problem,
        params: Params,
        given: tuple[int, ...],
        values: Float[Array, " given"],
        integrator: Integrators,
    ):
        """The extended equation for `find_root`; `aux` is a `Solution`. **Arguments:** `values`: those of the leaves `given` of
        the parameters, and the targets."""
        order, leaves = 2 if self.by_jacobian else 1, (*given, *self.free)
        moved = problem.with_varied(params, leaves)
        held, targets = values[: len(given)], values[len(given) :]

        def residual(w):
            held, v = w[: len(given)], w[len(given) :]
            y, unknown = self.split(v)
            at = with_leaves(params, leaves, jnp.concatenate([held, unknown]))
            chain, ends = follow_chain(moved, problem.closing_jump(y, at), at, integrator, order=order)
            assert chain.jacobians is not None
            jacobian, _ = return_matrices(moved, chain.jacobians)
            chain = dataclasses.replace(chain, jacobians=None)
            multipliers = eigenvalues(jacobian) if self.by_jacobian else jnp.zeros(len(jacobian), jnp.complex128)
            orbit = orbit_of(
                problem, chain, jacobian, at, integrator, multipliers, chain.residual, jnp.array(0), chain.result
            )
            rows = (self.of(orbit, at) - targets) / self.tolerance
            return jnp.concatenate([ends[-1] - y, rows]), (at, chain, jacobian)

        def evaluate(v: Array, first) -> Evaluation:
            r, by, (at, chain, jacobian) = with_columns(residual, jnp.concatenate([held, v]))
            by_held, extended = by[:, : len(given)], by[:, len(given) :]
            by_targets = jnp.concatenate(
                [jnp.zeros((v.size - targets.size, targets.size), v.dtype), -jnp.diag(1 / self.tolerance)]
            )
            return Evaluation(
                r,
                extended,
                v,
                Solution(at, chain, jacobian, r, extended, jnp.concatenate([by_held, by_targets], axis=1)),
            )

        return evaluate


def prescribed_at(
    orbit: PeriodicOrbit, quantities: tuple[Quantity, ...], free: tuple[int, ...], largest: Float[Array, " free"]
) -> tuple[Prescribed, Float[Array, " free"], Float[Array, " unknowns"]]:
    """The conditions with the scales of an orbit; the quantities of this orbit; its unknowns `v`.

    **Arguments:** `largest`: the size of each quantity; where it is zero, 1 is taken.
    """
    dtype, before = orbit.x.dtype, orbit.before[0]
    leaves = jax.tree.leaves(orbit.params)
    values = jnp.stack([jnp.asarray(leaves[i], dtype) for i in free])
    size = jnp.max(jnp.abs(before))
    positive = lambda array: jnp.where(array == 0, 1, jnp.abs(array)).astype(dtype)
    scale = positive(values) / positive(size)
    tolerance = positive(jnp.asarray(largest, dtype)) / positive(size)
    prescribed = Prescribed(quantities, free, scale, tolerance, by_jacobian=False)
    parts = lambda orbit: (orbit.return_jacobian, orbit.multipliers)
    by_jacobian = computes_with_first(
        lambda given: prescribed.of(eqx.tree_at(parts, orbit, given), orbit.params), parts(orbit)
    )
    prescribed = dataclasses.replace(prescribed, by_jacobian=by_jacobian)
    return prescribed, _of(prescribed, orbit), jnp.concatenate([before, values / scale])


@short_run
def _of(prescribed: Prescribed, orbit: PeriodicOrbit) -> Float[Array, " free"]:
    return prescribed.of(orbit, orbit.params)
