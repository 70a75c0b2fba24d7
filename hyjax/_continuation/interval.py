"""The interval of a parameter over which a curve is followed, from the argument `stop`."""

from typing import NamedTuple

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system.types import Flag, Scalar
from .curve import Bounds

# Value at which a curve ends, or bounds within which it is followed in both directions.
Stop = float | tuple[float, float]


class Interval(NamedTuple):
    """Bounds `low`, `high` of a parameter, at which a curve is to end if `at_low`, `at_high`; `span`, the unit of its scaled
    value; `ways`, the signs of its first steps."""

    low: Scalar
    high: Scalar
    at_low: Flag
    at_high: Flag
    span: Scalar
    ways: Array

    def scaled(self, origin: Scalar, scale: Scalar) -> Bounds:
        """The bounds of the scaled parameter, `(value - origin) / scale`."""
        return Bounds((self.low - origin) / scale, (self.high - origin) / scale, self.at_low, self.at_high)


def interval_to(stop: Stop, value: Scalar, caller: str, behind: float) -> Interval:
    """The interval from the parameter's `value` to `stop`, or between the bounds of a pair `stop = (low, high)`: both ways, or
    inwards from a bound.

    **Arguments:** `caller`: the function that error messages name. `behind`: how far the curve may return past its start, in
    units of the distance to `stop`; unused for a pair.

    `ValueError` unless `stop` is a number other than `value`, or a pair around it. Traced values are not checked.
    """
    bounds = tuple(stop) if isinstance(stop, tuple | list) else (stop,)
    if len(bounds) not in (1, 2) or any(np.ndim(each) for each in bounds):
        raise ValueError(f"{caller}: stop={stop!r} must be a number or a pair (low, high).")
    known = not any(isinstance(each, jax.core.Tracer) for each in (value, *bounds))
    if known and not all(np.isfinite(each) for each in bounds):
        raise ValueError(f"{caller}: stop={stop!r} must be finite.")
    if len(bounds) == 2:
        low, high = (jnp.asarray(each, value.dtype) for each in bounds)
        if known and not low < high:
            raise ValueError(f"{caller}: stop={stop!r} must be a pair (low, high) with low < high.")
        # A special point at a bound is located only up to rounding.
        slack = 1e-6 * (high - low)
        if known and not low - slack <= value <= high + slack:
            raise ValueError(f"{caller}: the parameter's value {value} does not lie within stop={stop!r}.")
        ways = [1.0, -1.0]
        if known and min(high - value, value - low) <= slack:
            ways = [1.0 if value - low <= slack else -1.0]
        both = jnp.array(True)
        return Interval(low, high, both, both, high - low, jnp.array(ways, value.dtype))
    end = jnp.asarray(bounds[0], value.dtype)
    if known and end == value:
        raise ValueError(f"{caller}: stop={stop!r} is the parameter's value at the start already. Give another value.")
    span, way = jnp.abs(end - value), jnp.where(end > value, 1, -1).astype(value.dtype)
    back = value - behind * way * span
    return Interval(jnp.minimum(back, end), jnp.maximum(back, end), way < 0, way > 0, span, way[None])
