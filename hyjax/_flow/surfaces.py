"""The guards of a mode as functions of time and state: values, rates along the flow, rounding errors."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, PyTree

from .._system.types import Scalar, State, Time

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
        values, rates = jax.jvp(lambda t, x: self.values(t, x, args), (t, x), (jnp.ones_like(t), f))
        # The gradient of a norm at zero does not exist. Rates only guide the search, which does without this one.
        return values, jnp.where(jnp.isfinite(rates), rates, 0)


def no_surfaces() -> Surfaces:
    """No guards, for a flow whose guards are ignored."""
    return Surfaces(0, lambda t, x, args: jnp.zeros(0), lambda t, x, args: jnp.zeros(0, bool))


def rounding(surfaces: Surfaces, t: Time, x: State, args: PyTree, atol: float | Scalar = 0.0) -> tuple[Guards, Guards]:
    """The size of each guard's rounding error: its change when each input changes by 64 units in the last place.

    **Returns:** that; and where each coordinate of the state changes by at least 64 units in the last place of 1, or by `atol` if
    that is less: for a coordinate near zero may be the difference of larger numbers. By differences, because the gradient of a
    guard such as a norm may be infinite or not exist.
    """
    if not surfaces.count:
        return jnp.zeros(0, x.dtype), jnp.zeros(0, x.dtype)
    t, x = stop_gradient((t, x))
    unit = 64 * float(jnp.finfo(x.dtype).eps)
    inputs = jnp.append(t, x)
    relative = unit * jnp.abs(inputs)
    moves = relative + jnp.append(0, jnp.full(x.shape, jnp.minimum(atol, unit), x.dtype))
    at = lambda inputs: surfaces.values(inputs[0], inputs[1:], args)
    change = jnp.abs(jax.vmap(at)(inputs + jnp.diag(moves)) - at(inputs))
    change = jnp.where(jnp.isfinite(change), change, 0)
    part = relative / jnp.where(moves > 0, moves, 1)
    return part @ change, jnp.sum(change, axis=0)
