"""The guards of a mode as functions of time and state: their values, their rates along the flow, and their rounding."""

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
    """The guards of a mode, as functions of `(t, x, args)` with values of shape `(guards,)`."""

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
    """For a flow whose guards are not looked at."""
    return Surfaces(0, lambda t, x, args: jnp.zeros(0), lambda t, x, args: jnp.zeros(0, bool))


def rounding(surfaces: Surfaces, t: Time, x: State, args: PyTree, atol: float | Scalar) -> Guards:
    """The size of each guard's rounding error: how far it moves when each input moves by some units in the last place.

    A coordinate near zero is mostly a difference of larger numbers: it moves by as many units of `atol`, or of 1 if that is
    less. By differences: the gradient of a guard such as a norm may be infinite, or not exist.
    """
    if not surfaces.count:
        return jnp.zeros(0, x.dtype)
    t, x = stop_gradient((t, x))
    unit = 64 * float(jnp.finfo(x.dtype).eps)
    inputs = jnp.append(t, x)
    moves = jnp.diag(unit * jnp.abs(inputs) + jnp.append(0, jnp.full(x.shape, jnp.minimum(atol, unit), x.dtype)))
    at = lambda inputs: surfaces.values(inputs[0], inputs[1:], args)
    change = jnp.abs(jax.vmap(at)(inputs + moves) - at(inputs))
    return jnp.sum(jnp.where(jnp.isfinite(change), change, 0), axis=0)
