"""The interval of a parameter over which a curve is followed: what `stop` says."""

from typing import NamedTuple

import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system.types import Scalar

# The end of a curve, or the bounds within which it is followed both ways.
Stop = float | tuple[float, float]


class Interval(NamedTuple):
    """Bounds of a parameter, the unit to measure it in, and the directions in which a curve sets out, as signs."""

    low: Scalar
    high: Scalar
    span: Scalar
    ways: Array


def interval_to(stop: Stop, value: Scalar, caller: str, behind: float) -> Interval:
    """The interval from the parameter's `value` to `stop`; or, where `stop` is a pair `(low, high)`, between these.

    **Arguments:** `caller`: the function that error messages name. `behind`: how far the curve may come back past its start, in
    units of the distance to `stop`; for a pair it has no meaning.

    `ValueError` unless `stop` is a number other than `value`, or a pair around it. What is traced cannot be seen, and passes.
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
        # A special point at a bound is located up to rounding.
        slack = 1e-6 * (high - low)
        if known and not low - slack <= value <= high + slack:
            raise ValueError(f"{caller}: the parameter's value {value} does not lie within stop={stop!r}.")
        return Interval(low, high, high - low, jnp.array([1.0, -1.0], value.dtype))
    end = jnp.asarray(bounds[0], value.dtype)
    if known and end == value:
        raise ValueError(f"{caller}: stop={stop!r} is the parameter's value at the start already.")
    span, way = jnp.abs(end - value), jnp.where(end > value, 1, -1).astype(value.dtype)
    back = value - behind * way * span
    return Interval(jnp.minimum(back, end), jnp.maximum(back, end), span, way[None])
