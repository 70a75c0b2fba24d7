"""Newton's method for the equations of an implicit step, solved to rounding, with the derivatives of the solution.

Source: Hairer, Wanner (1996), *Solving Ordinary Differential Equations II*, sec. IV.8.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .._numerics.elimination import solve
from .._system.types import Count, Flag, Scalar, State


def newton(
    residual: Callable[[State], State], guess: State, unit: float | Scalar | State, most: int
) -> tuple[State, Flag, Count]:
    """The root of `residual`, whether it was found, and the number of iterations.

    An iteration evaluates the residual once and its Jacobian once.

    The last correction is below the square root of rounding, relative to the root or to `unit`, and the error that remains is of
    the order of its square. The derivatives, to every order, are those of the implicit function theorem.

    **Arguments:** `unit`: the scale of a coordinate that is zero. `most`: the largest number of iterations.
    """

    def iterate(residual, z):
        def unsettled(carry):
            _, size, count = carry
            return (size > _half(z.dtype)) & (count < most)

        def improve(carry):
            z, _, count = carry
            correction = solve(jax.jacfwd(residual)(z), residual(z))
            size = jnp.max(jnp.abs(correction) / (unit + jnp.abs(z)))
            return z - correction, size, count + 1

        start = (z, jnp.full((), jnp.inf, z.dtype), jnp.array(0))
        z, size, count = jax.lax.while_loop(unsettled, improve, start)
        # Hazard: `custom_root` gives an integer beside the root an integer tangent (seen in jax 0.10.2).
        return z, (size, count.astype(size.dtype))

    def tangent(linear, right):
        return solve(jax.jacfwd(linear)(right), right)

    z, (size, count) = jax.lax.custom_root(residual, guess, iterate, tangent, has_aux=True)
    return z, size <= _half(guess.dtype), jax.lax.stop_gradient(count).astype(int)


def zero_scale(x: State) -> Scalar:
    """The `unit` of a state whose tolerances are not known: a thousandth of its largest coordinate."""
    return 1e-3 * jnp.max(jnp.abs(jax.lax.stop_gradient(x))) + float(jnp.finfo(x.dtype).tiny)


def _half(dtype) -> float:
    """The relative size below which a Newton correction is the last: the remaining error is of the order of its square."""
    return float(jnp.finfo(dtype).eps) ** 0.5 / 16
