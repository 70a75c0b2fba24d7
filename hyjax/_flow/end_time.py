"""The event of a guard whose surface lies a rounding error beyond the end of a flow.

A flow that starts within rounding of a guard's surface takes the guard for zero, so that this guard does not fall. Where a flow
ends that close before a surface, the next flow, which starts at this end, would therefore miss the transition: the event is
assigned to the end of the first flow.
"""

import dataclasses

import equinox.internal as eqxi
import jax
import jax.numpy as jnp

from .._numerics.trees import select
from .._system.types import Scalar
from .loop_state import Course, Ending, Point
from .surfaces import Mask, rounding, standing


def met_at_end(course: Course, last: Point, up: Mask, h: Scalar, reach: float, end: Ending) -> Ending:
    """The ending of a flow; if it ends at the end time a rounding before the surface of a guard, that guard is its event.

    **Arguments:** `last`, `up`: see `Progress`. `h`: the time over which the flow changes. `reach`: the fraction of `h` over
    which a short step is exact up to rounding.
    """
    arrived = end.done & (end.event < 0) & ~(end.stalled | end.broken | end.lost)
    return jax.lax.cond(
        eqxi.unvmap_any(arrived), lambda: select(arrived, _met(course, last, up, h, reach, end), end), lambda: end
    )


def _met(course: Course, last: Point, up: Mask, h: Scalar, reach: float, end: Ending) -> Ending:
    """`met_at_end` for a flow that ends at the end time."""
    surfaces, t, x = course.surfaces, last.t, jnp.stack(last.x)
    g, falling = last.g, jnp.maximum(-last.r, 0)
    ahead = g / jnp.where(falling > 0, falling, 1)
    # The next flow computes rounding error and first step anew, and may find other numbers of the same size: hence the factor 2.
    near = g <= 2 * standing(rounding(surfaces, t, x, course.args)[0], h, last.r)
    met = up & (g > 0) & near & (falling > 0) & (ahead <= reach * h) & ~surfaces.is_limit
    met = met & surfaces.armed(t, x, course.args)
    event = jnp.argmin(jnp.where(met, ahead, jnp.inf))
    others = met & (jnp.arange(met.size) != event)
    here = dataclasses.replace(end, event=event, shift=ahead[event], together=others)
    return select(jnp.any(met), here, end)
