"""Where the next trial step of event location ends: the guards along the step's dense output.

The prediction need not be exact, because the trial is a real step of the solver. With the dense output of the method most trials
end so near the surface that no other is needed.
"""

from collections.abc import Callable

import equinox.internal as eqxi
import jax
import jax.numpy as jnp

from .._system.types import Flag, Scalar
from .guard_cubic import Look, predicted_fall
from .surfaces import Mask

# The prediction from the ends of the bracket has one or two digits; each look along the step doubles them or more.
LOOKS = 2


def foresee(look_at: Callable[[Scalar], Look], lo: Look, hi: Look, candidates: Mask, needed: Flag) -> Scalar:
    """The predicted time, between `lo` and `hi`, at which the first candidate falls to zero.

    **Arguments:** `look_at`: the guards at a time of the step. `candidates`: the guards that are positive at `lo` and not at
    `hi`. `needed`: whether the dense output reaches over the bracket; else the prediction is `predicted_fall`.
    """
    first = predicted_fall(candidates, lo, hi)

    def nearer(carry, _):
        before, dt = carry
        now = look_at(dt)
        ahead = _inverse_cubic(before, now)
        good = candidates & (ahead > lo.dt) & (ahead < hi.dt)
        better = jnp.min(jnp.where(good, ahead, jnp.inf))
        return (now, jnp.where(jnp.isfinite(better), better, dt)), None

    along = lambda: jax.lax.scan(nearer, (hi, first), length=LOOKS)[0][1]
    # Under `vmap` one flag is used for the whole batch, see `_verdict` in `loop.py`.
    found = jax.lax.cond(eqxi.unvmap_any(needed), along, lambda: first)
    return jnp.where(needed, found, first)


def _inverse_cubic(a: Look, b: Look) -> Scalar:
    """The time at which the cubic `time(guard)` through values and rates at two points is at zero; not finite where a guard is
    not monotonic."""
    rise, span = b.g - a.g, b.dt - a.dt
    w = -a.g / rise
    sa, sb = rise / a.r, rise / b.r
    return a.dt + w * (sa + w * ((3 * span - 2 * sa - sb) + w * (sa + sb - 2 * span)))
