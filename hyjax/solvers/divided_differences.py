r"""Divided differences of the points behind a multistep method: polynomials through them for steps of any lengths.

$$P_k(t) = \sum_{m \le k} y[t_0, \dots, t_{-m}] \prod_{j<m} (t - t_{-j})$$

Differences are multiplied with powers of the last step, so that they have the unit of $y$.

Source: Hairer, Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, sec. III.5.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, Int

from .._system.types import Scalar, State, Time


class DividedDifferences(eqx.Module):
    """The points behind a step. `differences`: row `m` is that of order `m`, multiplied with the power `m` of `unit`, the length
    of the last step. `lags`: the times from each point to the newest. `known`: the highest difference that is known. `order`:
    that of the next step, the same for every length of it, so that its end is a continuous function of its length."""

    differences: Float[Array, "rows n"]
    lags: Float[Array, " points"]
    unit: Scalar
    known: Int[Array, ""]
    order: Int[Array, ""]

    def length(self, h: Time) -> Scalar:
        """The length of a step; for zero, a part of the last step. In a batch, a lane that has ended takes steps of length zero
        until all have ended. They are discarded, but a division by zero would make its gradient NaN."""
        return jnp.where(h == 0, 1e-3 * self.unit, h)

    def reach(self, h: Time) -> Float[Array, " points"]:
        """The times from each point to the end of a step, in units of the last step."""
        return (h + self.lags) / self.unit

    def terms(self, h: Time) -> Float[Array, "rows n"]:
        """The terms of the polynomial through the points, in Newton's form, at the end of a step."""
        return products(self.reach(h))[:, None] * self.differences


def products(factors: Float[Array, " *batch points"]) -> Float[Array, " *batch rows"]:
    """The products of none, one, two ... of the factors."""
    return jnp.cumprod(jnp.concatenate([jnp.ones_like(factors[..., :1]), factors], axis=-1), axis=-1)


def sums(values: Float[Array, "points *n"]) -> Float[Array, "rows *n"]:
    """The sums of none, one, two ... of the values."""
    return jnp.cumsum(jnp.concatenate([jnp.zeros_like(values[:1]), values]), axis=0)


def first(rows: int, *values: State) -> DividedDifferences:
    """The history of a start: one value, or a value and its derivative, by a difference of coinciding points."""
    differences = jnp.zeros((rows, values[0].size), values[0].dtype).at[: len(values)].set(jnp.stack(values))
    dtype = values[0].dtype
    known = jnp.array(len(values) - 1)
    return DividedDifferences(differences, jnp.zeros(rows - 1, dtype), jnp.ones((), dtype), known, jnp.ones_like(known))


def remainders(terms: Float[Array, "rows n"], y: State) -> Float[Array, "rows n"]:
    """`y` minus the values of the polynomials of none, one, two ... points: each is a new difference times its product."""
    return y - sums(terms[:-1])


def moved(
    history: DividedDifferences, h: Time, remainders: Float[Array, "rows n"], order: Int[Array, ""]
) -> DividedDifferences:
    """The history after a step."""
    differences = remainders / products((h + history.lags) / h)[:, None]
    lags = jnp.concatenate([jnp.zeros_like(history.lags[:1]), (h + history.lags)[:-1]])
    known = jnp.minimum(history.known + 1, len(differences) - 1)
    return DividedDifferences(differences, lags, jnp.asarray(h, history.unit.dtype), known, order)


def next_order(errors: Float[Array, "most n"], x: State, unit: Scalar, order, known, most: int) -> Int[Array, ""]:
    """The order of the next step: the one with the smallest error in this step, at most one above the last.

    Needs no tolerance: where the error of the step is about the tolerance, the smallest error is also the longest step. During
    the start, where the highest order whose error is known is the best, the order rises further, by one in each step.

    **Arguments:** `errors`: row `j - 1` is the error of order `j` in this step. `known`: the highest order whose error is known.
    """
    errors, x, unit = stop_gradient((errors, x, unit))
    each = np.arange(1, len(errors) + 1)
    size = jnp.max(jnp.abs(errors) / (unit + jnp.abs(x)), axis=1)
    allowed = (each <= jnp.minimum(known, order + 1)) & jnp.isfinite(size)
    best = jnp.argmin(jnp.where(allowed, size, jnp.inf)).astype(order.dtype) + 1
    return jnp.minimum(jnp.where(best == known, best + 1, best), most)
