r"""From the end of the last step to the surface that the flow meets.

Event location ends within a short time of the surface, so short that one step of Heun's third-order method over this time is
exact up to rounding. A straight line leads from its end to the surface, over the time left because the guard's rate changes.

Source: Hairer, Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, Sec. II.1, for the method.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax.lax import stop_gradient

from .._system.types import Scalar, State, Time


def stretches(stiff: bool, fixed: bool, linear: bool, dtype) -> tuple[float, float]:
    """The fractions of a step over which the flow is a straight line, and over which `reach_surface` is exact, up to rounding."""
    eps = float(jnp.finfo(dtype).eps)
    # The error of a fixed step may be far larger than the tolerance, so the time to the surface must itself be rounding. An
    # explicit method is of no use in a stiff flow. A guard that is not linear may bend faster than the flow.
    straight = 64 * eps if fixed else 0.25 * eps**0.5
    return straight, straight if fixed or stiff or not linear else 0.1 * eps**0.25


def straight_line(t: Time, x: State, f: State, s: Scalar) -> tuple[Time, State]:
    """The point a time `s` after `(t, x)`, where the vector field is `f`, up to `s**2`."""
    return t + s, x + s * f


def onto_surface(t: Time, x: State, f: State, s: Scalar) -> tuple[Time, State, State]:
    """`(t, x, f)` on a surface, or below it by less than rounding, a short time `s` after `(t, x)` along a straight line.

    Hazard: a ball that lands above the floor by less than rounding, and rests, falls again.
    """
    s = s + 4 * float(jnp.finfo(x.dtype).eps) * jnp.abs(s)
    return *straight_line(t, x, f, s), f


def reach_surface(
    field: Callable[[Time, State], State],
    height: Callable[[Time, State, State], tuple[Scalar, Scalar]],
    t: Time,
    x: State,
    f: State,
    s: Scalar,
) -> tuple[Time, State, State]:
    """`(t, x, vector field)` on a surface that the flow meets about a time `s` after `(t, x)`.

    **Arguments:** `height`: value and rate of the guard at `(t, x)`, where the vector field is `f`. `s`: to first order; zero
    where there is no surface. Derivatives are those of the flow over a fixed time.
    """
    s = stop_gradient(s)
    second = field(t + s / 3, x + s / 3 * f)
    third = field(t + 2 / 3 * s, x + 2 / 3 * s * second)
    t, x, f = t + s, x + s / 4 * (f + 3 * third), f + 1.5 * (third - f)
    g, rate = height(t, x, f)
    left = stop_gradient(-g / rate)
    left = jnp.where((s != 0) & (jnp.abs(left) < jnp.abs(s)), left, 0)
    return onto_surface(t, x, f, left)
