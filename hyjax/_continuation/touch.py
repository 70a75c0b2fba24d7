"""The guards that a periodic orbit nearly touches: at an extremum along an arc, or where an arc begins."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._orbit.orbit import PeriodicOrbit
from .._system.types import Flag, Scalar

# An extremum of a guard counts as near zero if it is below this fraction of the guard's largest value along the arc.
NEAR = 0.02
# Below this fraction an extremum is tried before a corner.
TOUCHING = 1e-3
# A guard counts as near zero at the start of its arc between these fractions of its largest value along the arc. After a reset
# that leads onto the surface its guard is always zero there, up to rounding.
CORNER = (1e-12, 1e-4)
# If the arc after the touch is shorter than this fraction of the orbit's period, it is assumed to vanish at grazing.
BRIEF = 1e-3
# If the rate of a guard at an end of an arc is below this fraction of its largest rate along the arc, its extremum lies there.
TANGENT = 1e-8


class Touch(eqx.Module):
    """The guard that a grazing orbit touches, and the arc in which it does.

    **Attributes:** `arc`: index of the arc, counted over all strides. `transition`: index of the guard's transition. `taken`:
    whether this guard ends the arc; otherwise the arc passes by it. `lowest`: whether the extremum of the guard is a minimum.
    `t`, `window`: the extremum lies nearer than `window` to the time `t`. `size`: largest modulus of the guard along the arc.
    `jump`: whether the reset of a taken guard is applied; without it, the orbit is on the side that misses the guard. `brief`:
    whether the next arc vanishes at grazing, as the contact with an elastic wall; `next_size`: the largest modulus of the guard
    that ends it, 1 unless `brief`. `at_end`: whether the guard that ends the arc is zero where the touched guard has its
    extremum, as at a section where a velocity vanishes; the arc is then not divided. `at_start`: a corner: the guard is zero at
    the first state of the arc, and `t` is the time of the arc's end.
    """

    t: Scalar
    window: Scalar
    size: Scalar
    next_size: Scalar
    jump: Flag
    arc: int = eqx.field(static=True)
    transition: int = eqx.field(static=True)
    taken: bool = eqx.field(static=True)
    lowest: bool = eqx.field(static=True)
    brief: bool = eqx.field(static=True)
    at_end: bool = eqx.field(static=True)
    at_start: bool = eqx.field(static=True)

    @property
    def divides(self) -> bool:
        """Whether the arc is flown in two parts, to the extremum and from there to the arc's own guard."""
        return not (self.taken or self.at_end or self.at_start)


def possible_touches(orbit: PeriodicOrbit) -> list[Touch]:
    """The guards whose extrema along the orbit are near zero, and corners: candidates for the end of a branch."""
    found: list[tuple[float, Touch]] = []
    route = orbit.system.route(orbit.sequence) * orbit.strides
    arcs = orbit.sample(400)
    for k, arc in enumerate(arcs):
        # The orbit's first arc does not vanish: its start is the unknown of the orbit's equation.
        brief = k + 1 < len(arcs) and bool(arcs[k + 1].t[-1] - arcs[k + 1].t[0] < BRIEF * orbit.period)
        next_size = _largest(orbit, arcs, k + 1, route[k + 1]) if brief else 1.0
        for e in orbit.system.leaving(arc.mode):
            found += _touches_of(orbit, arc, k, e, e == route[k], brief, next_size)
    # At an impact without impulse the next arc may begin on a guard as well: where a guard is tangent, this comes first.
    order = lambda each: (not each[1].at_start and each[0] > TOUCHING, each[1].at_start, each[0])
    return [touch for closeness, touch in sorted(found, key=order) if closeness < NEAR]


def _largest(orbit: PeriodicOrbit, arcs, k: int, e: int) -> float:
    """The largest modulus of the guard of transition `e`, which ends the arc `k`, along the arcs of its mode; and along the arc
    before, if its states have as many coordinates, since the arc `k` itself may be too short to tell."""
    own = [arc for arc in arcs if arc.mode == arcs[k].mode]
    before = [dataclasses.replace(arcs[k - 1], mode=arcs[k].mode)] if arcs[k - 1].x.shape == arcs[k].x.shape else []
    heights = jnp.concatenate([jnp.abs(_along(orbit, arc, e)[0]) for arc in own + before])
    return float(jnp.max(jnp.where(jnp.isfinite(heights), heights, 0)))


def _touches_of(
    orbit: PeriodicOrbit, arc, k: int, e: int, taken: bool, brief: bool, next_size: float
) -> list[tuple[float, Touch]]:
    t = np.asarray(arc.t)
    height, rate = map(np.asarray, _along(orbit, arc, e))
    size, fastest = np.max(np.abs(height)), np.max(np.abs(rate))
    if not size > 0 or not fastest > 0:
        return []
    number = lambda value: jnp.asarray(value, arc.x.dtype)

    def touch(time, window, own, lowest, at_end=False, at_start=False):
        brief_next = own and brief and not at_start
        return Touch(
            number(time), number(window), number(size), number(next_size), jnp.array(True), k, e, own, lowest, brief_next,
            at_end, at_start,
        )  # fmt: skip

    found = []
    if CORNER[0] < abs(height[0]) / size < CORNER[1]:
        found.append((abs(height[0]) / size, touch(t[-1], (t[-1] - t[0]) / 2, taken, False, at_start=True)))
    at_end = not taken and abs(rate[-1]) < TANGENT * fastest
    if at_end:
        found.append((abs(height[-1]) / size, touch(t[-1], t[-1] - t[0], False, bool(rate[-2] < 0), at_end=True)))
        t, height, rate = t[:-1], height[:-1], rate[:-1]
    if abs(rate[0]) < TANGENT * fastest:
        # The same extremum, as the start of the next arc.
        t, height, rate = t[1:], height[1:], rate[1:]
    ends = {True: (rate[:-1] < 0) & (rate[1:] >= 0), False: (rate[:-1] > 0) & (rate[1:] <= 0)}
    for lowest, turns in ends.items():
        places = np.flatnonzero(turns)
        # The guard between two samples as a parabola.
        share = rate[places] / (rate[places] - rate[places + 1])
        times = t[places] + share * (t[places + 1] - t[places])
        heights = height[places] + share * (t[places + 1] - t[places]) * rate[places] / 2
        for n, time in enumerate(times):
            apart = np.abs(np.delete(times, n) - time)
            own = taken and not lowest and n == len(times) - 1
            found.append((abs(heights[n]) / size, touch(time, np.min(apart, initial=t[-1] - t[0]) / 2, own, lowest)))
        if taken and lowest:
            # The guard falls slowly at the end of the arc: its minimum lies shortly after it.
            window = np.min(t[-1] - times, initial=t[-1] - t[0]) / 2
            found.append(((rate[-1] / fastest) ** 2, touch(t[-1], window, True, True)))
    return found


@eqx.filter_jit
def _along(orbit: PeriodicOrbit, arc, e: int) -> tuple[Array, Array]:
    """Values and rates of the guard of transition `e` along an arc."""
    guard, field = orbit.system.transitions[e].guard, orbit.system.mode(arc.mode).vector_field

    def at(t, x):
        flow = (jnp.ones_like(t), field(t, x, orbit.params))
        return jax.jvp(lambda t, x: guard(t, x, orbit.params), (t, x), flow)

    return jax.vmap(at)(arc.t, arc.x)
