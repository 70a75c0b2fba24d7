r"""A nonlinear program: minimize $f(u)$ subject to $c_E(u) = 0$, $c_I(u) \ge 0$ and $l \le u \le h$.

The functions are expensive, and one evaluation gives all of them with their derivatives: a `Sample`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._numerics.linearize import with_columns
from .._system.results import choose, RESULTS
from .._system.types import Flag


class Sample(eqx.Module):
    """The functions of a program at a point: the objective, then the equalities, then the inequalities.

    **Attributes:** `values`: shape `(1 + m,)`. `jacobian`: `(1 + m, n)`. `hessians`: `(1 + m, n, n)`, or `None` where second
    derivatives are not asked for. `carry`: what the next evaluation starts from, such as the orbit. `result`: its code.
    """

    values: Float[Array, " functions"]
    jacobian: Float[Array, "functions n"]
    hessians: Float[Array, "functions n n"] | None
    carry: PyTree
    result: RESULTS

    @property
    def sound(self) -> Flag:
        """Whether the evaluation succeeded and all numbers are finite."""
        finite = [
            jnp.all(jnp.isfinite(leaf)) for leaf in (self.values, self.jacobian, self.hessians) if leaf is not None
        ]
        return jnp.all(jnp.stack(finite)) & (self.result == RESULTS.successful)

    @property
    def code(self) -> RESULTS:
        """The result, and `nonfinite` for a number that is not finite."""
        return choose((self.result == RESULTS.successful) & ~self.sound, RESULTS.nonfinite, self.result)

    def scaled(self, by: Float[Array, " functions"]) -> "Sample":
        """The sample of the functions multiplied by `by`."""
        hessians = None if self.hessians is None else by[:, None, None] * self.hessians
        return Sample(by * self.values, by[:, None] * self.jacobian, hessians, self.carry, self.result)


class Program(eqx.Module):
    """**Attributes:** `evaluate`: `(u, carry) -> Sample`, a PyTree. `lower`, `upper`: bounds, shape `(n,)`, infinite where there
    is none; every point that is evaluated obeys them. `equalities`, `inequalities`: the numbers of both."""

    evaluate: Callable[[Array, PyTree], Sample]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    equalities: int = eqx.field(static=True)
    inequalities: int = eqx.field(static=True)

    def inside(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """The point nearest to `u` that keeps a distance from the bounds: a hundredth of 1, of the bound, or of the interval."""
        width = self.upper - self.lower
        least = lambda bound: jnp.minimum(0.01 * jnp.maximum(1, jnp.abs(bound)), 0.01 * width)
        low = self.lower + jnp.where(jnp.isfinite(self.lower), least(self.lower), 0)
        high = self.upper - jnp.where(jnp.isfinite(self.upper), least(self.upper), 0)
        return jnp.clip(u, low, high)


def sampled(
    fn: Callable[[Array], tuple[Array, tuple[PyTree, RESULTS]]],
    u: Float[Array, " n"],
    second_order: bool,
    reverse: bool = False,
) -> Sample:
    """The sample at `u` of a function `u -> (values, (carry, result))`, by forward mode, or the first derivatives by reverse."""
    if reverse:
        values, back, (carry, result) = jax.vjp(fn, u, has_aux=True)
        # One row after the other: a backward pass needs the memory of one.
        jacobian = jax.lax.map(lambda row: back(row)[0], jnp.eye(values.size, dtype=values.dtype))
        return Sample(values, jacobian, None, carry, result)
    if not second_order:
        values, jacobian, (carry, result) = with_columns(fn, u)
        return Sample(values, jacobian, None, carry, result)

    def slope(u):
        values, jacobian, aux = with_columns(fn, u)
        return jacobian, (values, aux)

    jacobian, hessians, (values, (carry, result)) = with_columns(slope, u)
    return Sample(values, jacobian, hessians, carry, result)


def gradient_of_lagrangian(sample: Sample, multipliers: Float[Array, " m"]) -> Float[Array, " n"]:
    r"""$\nabla f - \sum_i \lambda_i \nabla c_i$."""
    return sample.jacobian[0] - multipliers @ sample.jacobian[1:]


def hessian_of_lagrangian(sample: Sample, multipliers: Float[Array, " m"]) -> Float[Array, "n n"]:
    r"""$\nabla^2 f - \sum_i \lambda_i \nabla^2 c_i$."""
    assert sample.hessians is not None
    whole = sample.hessians[0] - jnp.tensordot(multipliers, sample.hessians[1:], 1)
    return (whole + whole.T) / 2


def pick(flag: Flag, new: PyTree, old: PyTree) -> PyTree:
    """`new` where `flag`, else `old`, leaf by leaf; of PyTrees of one structure."""
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)
