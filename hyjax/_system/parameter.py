"""Declaration of a parameter with its unit and meaning."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np


def parameter(
    default: Any = dataclasses.MISSING, unit: str = "", meaning: str = "", range: tuple[float | int, ...] = ()
) -> Any:
    r"""A field of a class of parameters, an `equinox.Module`: an array leaf with its default, unit and meaning.

    The unit appears in tables, pictures and datasets, and the meaning in `hyjax models` on the command line. What is given for
    the field is converted to an array of floating-point numbers, so that every parameter can be swept and differentiated.

    **Arguments:** `default`: a number or an array; without it a value must be given. `unit`: such as `"rad"` or `"m/s^2"`, and
    `"1"` for a number without dimension. `meaning`: in words. `range`: `(low, high)`, or `(low, high, step)`, of the slider of
    `hyjax.plot.explore`; by default from half to twice the value.

    **Returns:** the field, for the body of the class. A value that is no number is a `TypeError` or `ValueError` of JAX when the
    parameters are made.

    **Example:**

    >>> import equinox as eqx
    >>> class Params(eqx.Module):
    ...     slope: jax.Array = hj.parameter(0.2, "rad", "slope of the ground, downhill positive")
    >>> Params(slope=0.1).slope
    Array(0.1, dtype=float64)
    """
    slider = {"range": range} if range else {}
    given = {} if default is dataclasses.MISSING else {"default": default}
    return eqx.field(converter=_floating, metadata={"unit": unit, "meaning": meaning} | given | slider, **given)


def _floating(value) -> Any:
    dtype = jnp.result_type(float)
    # A number is converted by NumPy, which needs no compiled program.
    return jnp.asarray(np.asarray(value, dtype) if isinstance(value, int | float) else value, dtype)
