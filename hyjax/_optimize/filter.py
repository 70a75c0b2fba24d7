r"""The filter: which steps of an interior-point method are accepted.

A step must lower either the violation $\theta = \sum |h|$ of the constraints or the barrier function $\varphi$, compared with the
present point and with all points in the filter. Near the constraints, where the direction descends, it must lower $\varphi$
enough.

Source: Wächter, Biegler (2006), Math. Program. 106, 25-57, Sec. 2.3.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._system.types import Flag

# The number of points that the filter keeps; the oldest is dropped first.
SIZE = 32


class Filter(eqx.Module):
    """Pairs of violation and barrier function that no accepted point may reach in both; infinite where there is none yet."""

    violation: Float[Array, " points"]
    barrier: Float[Array, " points"]
    count: Int[Array, ""]

    def allows(self, violation: Array, barrier: Array) -> Flag:
        """Whether no point of the filter is at least as good in both."""
        return ~jnp.any((violation >= self.violation) & (barrier >= self.barrier))

    def with_point(self, add: Flag, violation: Array, barrier: Array) -> "Filter":
        """The filter with one more point, a little better than the given one, where `add`."""
        here = (jnp.arange(SIZE, dtype=self.count.dtype) == self.count % SIZE) & add
        return Filter(
            jnp.where(here, (1 - 1e-5) * violation, self.violation),
            jnp.where(here, barrier - 1e-8 * violation, self.barrier),
            self.count + add.astype(self.count.dtype),
        )


def empty_filter(dtype) -> Filter:
    none = jnp.full(SIZE, jnp.inf, dtype)
    return Filter(none, none, jnp.zeros((), jnp.int32))


class Verdict(eqx.Module):
    """**Attributes:** `accepted`. `blocks`: whether the point that was left is to enter the filter."""

    accepted: Bool[Array, ""]
    blocks: Bool[Array, ""]


def verdict(
    points: Filter,
    most: Float[Array, ""],
    slope: Float[Array, ""],
    before: tuple[Array, Array],
    after: tuple[Array, Array],
) -> Verdict:
    """Whether a step is accepted. `most`: the largest violation allowed. `slope`: the derivative of the barrier function, times
    the fraction of the step. `before`, `after`: violation and barrier function."""
    (theta, phi), (theta1, phi1) = before, after
    rounding = 10 * jnp.finfo(phi.dtype).eps * jnp.abs(phi)
    allowed = (theta1 <= most) & points.allows(theta1, phi1 - rounding)
    descends = (
        (slope < 0) & (jnp.where(slope < 0, -slope, 0) ** 2.3 > theta**1.1) & (theta <= 1e-4 * jnp.maximum(1, most))
    )
    enough = phi1 <= phi + 1e-4 * slope + rounding
    progress = (theta1 <= (1 - 1e-5) * theta) | (phi1 <= phi - 1e-8 * theta + rounding)
    accepted = allowed & jnp.where(descends, enough, progress)
    return Verdict(accepted, accepted & ~descends)
