"""Checks of a model's parameters, their declaration, and checks of the orbits that its objectives measure."""

import jax.core
import numpy as np

from .._system.where import parameter as parameter


def known(value):
    """The value as an array of NumPy, which compares without a compiled program; a traced value as it is."""
    return value if isinstance(value, jax.core.Tracer) else np.asarray(value)


def refuse_unless(condition, message: str) -> None:
    """`ValueError` for a parameter out of range. A traced condition is unknown, and passes."""
    if not isinstance(condition, jax.core.Tracer) and not np.all(np.asarray(condition)):
        raise ValueError(f"Params: {message}")


def require(params, *, positive: str = "", nonnegative: str = "", at_most_one: str = "") -> None:
    """`ValueError` for a parameter out of range. **Arguments:** names of parameters, with spaces between them; those of
    `at_most_one` lie in `[0, 1]`."""
    for name in positive.split():
        value = known(getattr(params, name))
        refuse_unless(value > 0, f"{name}={value} must be positive.")
    for name in nonnegative.split():
        value = known(getattr(params, name))
        refuse_unless(value >= 0, f"{name}={value} must not be negative.")
    for name in at_most_one.split():
        value = known(getattr(params, name))
        refuse_unless((value >= 0) & (value <= 1), f"{name}={value} must lie in [0, 1].")


def require_slope(params) -> None:
    """`ValueError` unless the ground, whose angle is the parameter `slope`, is less steep than a wall."""
    refuse_unless(abs(known(params.slope)) < np.pi / 2, f"slope={params.slope} must lie between -pi/2 and pi/2.")


def require_sequence(orbit, sequence: tuple[str, ...], name: str) -> None:
    """`ValueError` for an orbit of another sequence, whose nodes are not the states just after each heel strike."""
    if orbit.sequence != sequence:
        raise ValueError(
            f"{name}: the orbit has the sequence {', '.join(orbit.sequence)}; this objective is defined for strides of the "
            f"sequence {', '.join(sequence)}."
        )
