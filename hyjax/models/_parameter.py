"""Checks of a model's parameters, and their declaration."""

import jax.core
import numpy as np

from .._system.parameter import parameter as parameter


def known(value):
    """The value as an array of NumPy, which compares without a compiled program; a traced value as it is."""
    return value if isinstance(value, jax.core.Tracer) else np.asarray(value)


def refuse_unless(condition, message: str) -> None:
    """`ValueError` for a parameter out of range. A traced condition is unknown, and passes."""
    if not isinstance(condition, jax.core.Tracer) and not np.all(np.asarray(condition)):
        raise ValueError(f"Params: {message}")


def require_positive(params, *names: str) -> None:
    """`ValueError` unless all of these parameters are positive."""
    for name in names:
        value = known(getattr(params, name))
        refuse_unless(value > 0, f"{name}={value} must be positive.")


def require_nonnegative(params, name: str) -> None:
    """`ValueError` for a negative parameter."""
    value = known(getattr(params, name))
    refuse_unless(value >= 0, f"{name}={value} must not be negative.")


def require_unit_interval(params, name: str) -> None:
    """`ValueError` unless the parameter lies in `[0, 1]`."""
    value = known(getattr(params, name))
    refuse_unless((value >= 0) & (value <= 1), f"{name}={value} must lie in [0, 1].")


def require_slope(params) -> None:
    """`ValueError` unless the ground, whose angle is the parameter `slope`, is less steep than a wall."""
    refuse_unless(abs(known(params.slope)) < np.pi / 2, f"slope={params.slope} must lie between -pi/2 and pi/2.")
