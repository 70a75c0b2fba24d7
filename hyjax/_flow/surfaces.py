"""The guards of a mode as functions of time and state: values, rates along the flow, rounding errors."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, PyTree

from .._system.types import State, Time

Guards = Float[Array, " guards"]
Mask = Bool[Array, " guards"]


class Surfaces(eqx.Module):
    """The guards of a mode, and whether they are armed: functions of `(t, x, args)` with values of shape `(guards,)`."""

    count: int = eqx.field(static=True)
    values: Callable
    armed: Callable

    def rates(self, t: Time, x: State, f: State, args: PyTree) -> tuple[Guards, Guards]:
        """Values and rates of the guards at `(t, x)`, where the vector field is `f`."""
        if not self.count:
            return jnp.zeros(0, x.dtype), jnp.zeros(0, x.dtype)
        return jax.jvp(lambda t, x: self.values(t, x, args), (t, x), (jnp.ones_like(t), f))


def no_surfaces() -> Surfaces:
    """No guards, for a flow whose guards are ignored."""
    return Surfaces(0, lambda t, x, args: jnp.zeros(0), lambda t, x, args: jnp.zeros(0, bool))


def rounding(surfaces: Surfaces, t: Time, x: State, args: PyTree) -> Guards:
    """The size of each guard's rounding error: its change when each input changes by 64 units in the last place."""
    if not surfaces.count:
        return jnp.zeros(0, x.dtype)
    t, x = stop_gradient((t, x))
    by_t, by_x = jax.jacfwd(lambda t, x: surfaces.values(t, x, args), argnums=(0, 1))(t, x)
    return 64 * float(jnp.finfo(x.dtype).eps) * (jnp.abs(by_t * t) + jnp.abs(by_x) @ jnp.abs(x))
