"""How a model states its parameters."""

import equinox as eqx
import jax.core
import jax.numpy as jnp
import numpy as np


def parameter(default: float, unit: str, meaning: str):
    """A field of `Params`: an array leaf, with its default, unit and meaning."""
    return eqx.field(
        default=default,
        converter=lambda value: jnp.asarray(value, jnp.result_type(float)),
        metadata={"unit": unit, "meaning": meaning, "default": default},
    )


def refuse_unless(condition, message: str) -> None:
    """`ValueError` for a parameter out of range. What is traced cannot be seen, and passes."""
    if not isinstance(condition, jax.core.Tracer) and not np.all(np.asarray(condition)):
        raise ValueError(f"Params: {message}")
