r"""From the end of the last step to the surface that the flow meets.

Event location ends within a short time of the surface, so short that a step of the classical Runge-Kutta method of fourth order
over the time is exact up to rounding. Its length is found by Newton's method: $s \leftarrow -g / \dot g$, at most twice.

Source: Hairer, Norsett, Wanner (1993), *Solving Ordinary Differential Equations I*, Sec. II.1, for the method.
"""

from collections.abc import Callable

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient

from .._system.types import Scalar, State, Time

# The fractions of the step at which the stages after the first are evaluated, and the weights of the four stages.
_AT, _WEIGHTS = np.array([0.5, 0.5, 1.0]), np.array([1, 2, 2, 1]) / 6


def stretches(stiff: bool, fixed: bool, dtype) -> tuple[float, float]:
    """The fractions of a step over which the flow is a straight line, and over which `reach_surface` is exact, up to rounding."""
    eps = float(jnp.finfo(dtype).eps)
    # The error of a fixed step may be far larger than the tolerance, so the time to the surface must itself be rounding; and an
    # explicit method is of no use in a stiff flow.
    straight = 64 * eps if fixed else 0.25 * eps**0.5
    return straight, straight if fixed or stiff else 0.1 * eps**0.2


def straight_line(t: Time, x: State, f: State, s: Scalar) -> tuple[Time, State]:
    """The point a time `s` after `(t, x)`, where the vector field is `f`, up to `s**2`."""
    return t + s, x + s * f


def reach_surface(
    field: Callable[[Time, State], State],
    height: Callable[[Time, State, State], tuple[Scalar, Scalar]],
    t: Time,
    x: State,
    f: State,
    s: Scalar,
    straight: Scalar,
) -> tuple[Time, State, State]:
    """`(t, x, vector field)` on a surface that the flow meets about a time `s` after `(t, x)`.

    **Arguments:** `height`: value and rate of the guard at `(t, x)`, where the vector field is `f`. `s`: to first order; zero
    where there is no surface. `straight`: the time over which a straight line is exact up to rounding. Derivatives are those of
    the flow over a fixed time.
    """

    def closer(carry, _):
        t, x, f, s = carry

        def short_step():
            def stage(carry, each):
                k, total = carry
                at, weight = each
                k = field(t + at * s, x + at * s * k)
                return (k, total + weight * k), None

            rows = _AT.astype(x.dtype), _WEIGHTS[1:].astype(x.dtype)
            (last, total), _ = jax.lax.scan(stage, (f, _WEIGHTS[0].astype(x.dtype) * f), rows)
            # The last stage is the vector field at the end, up to a multiple of s**3.
            return t + s, x + s * total, last

        t, x, f = jax.lax.cond(
            eqxi.unvmap_any(jnp.abs(s) > straight), short_step, lambda: (*straight_line(t, x, f, s), f)
        )
        g, rate = height(t, x, f)
        left = stop_gradient(-g / rate)
        return (t, x, f, jnp.where((s != 0) & (jnp.abs(left) < jnp.abs(s)), left, 0)), None

    s = stop_gradient(s)
    (t, x, f, s), _ = jax.lax.scan(closer, (t, x, f, s), length=2)
    return *straight_line(t, x, f, s), f
