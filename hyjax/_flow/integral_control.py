r"""Integral control of the step size, the default.

With the error estimate $e$ of a step from $x$ to $x_1$, and the absolute and relative tolerances $a$ and $r$, its size is
$s = \lVert e / (a + r \max(|x|, |x_1|)) \rVert$, in the root mean square over the coordinates. A step is accepted where $s < 1$;
the next one is longer by the factor $0.9\, s^{-1/k}$, at least 0.2 and at most 10, with the order $k$ of the error.

These are the steps of `diffrax.PIDController`, with its default coefficients, up to rounding. On a CPU, XLA evaluates a float64
power one element at a time: in a batch, that and a second search for NaN are a sixth of a stride's time. A logarithm and an
exponential take half as long.

Source: Hairer, Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, Sec. II.4.
"""

import jax.numpy as jnp

from .._system.types import Flag, Scalar, State, Time

SAFETY, LEAST, MOST = 0.9, 0.2, 10.0


def integral_control(
    dt: Time, x: State, x1: State, error: State, tolerances: tuple[Scalar | float, Scalar | float], order: float
) -> tuple[Flag, Scalar]:
    """Whether a step `dt` from `x` to `x1` is accepted, and the next step. Where the error is NaN or infinite it is not."""
    rtol, atol = tolerances
    square = jnp.mean((error / (atol + rtol * jnp.maximum(jnp.abs(x), jnp.abs(x1)))) ** 2)
    keep = square < 1
    # Beyond these bounds of the squared error the factor takes its smallest or its largest value.
    within = jnp.clip(jnp.where(jnp.isnan(square), jnp.inf, square), 1e-37, 1e37)
    factor = SAFETY * jnp.exp(jnp.log(within) / (-2 * order))
    return keep, dt * jnp.clip(factor, jnp.where(keep, 1, LEAST), jnp.where(keep, MOST, SAFETY))
