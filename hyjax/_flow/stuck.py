"""States from which a simulation cannot go on: events that accumulate, and flows that lead back to a surface.

A guard that starts on its surface goes where its first derivative that is not zero leads, of whatever order. Where a force
vanishes and lets go, the derivatives of low order are rounding, of either sign. So the flow is followed, and the guard's first
excursion beyond rounding decides (`_sinking` in `loop.py`): upwards, the flow goes on; downwards at the rate with which it
started, the flow goes on below the surface, as that of a foot that scuffs; downwards from rest, or after a hop that no step
resolves, events accumulate.

Before the first step it is decided here whether events between several surfaces accumulate, and whether two flows meet.
"""

import dataclasses

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._numerics.trees import whole, without_tangents
from .._system.types import Flag, Params, Scalar, Time
from .automaton import Automaton, Index, Padded
from .loop import Entry
from .loop_state import Course, Progress
from .surfaces import guarded_limits, Guards, Mask

# The longest cycle of arcs whose durations are compared, and the number of durations for three such cycles.
CYCLE = 4
MEMORY = 3 * CYCLE
# An arc between events in step, or nearly, takes less than this share of its cycle.
STEP = 1e-8
Durations = Float[Array, " arcs"]


def may_go_on(automaton: Automaton, z: Padded, mode: Index, durations: Durations, since: Time, params: Params) -> Entry:
    """The quantities that decide at the start of an arc whether the flow can go on.

    **Arguments:** `z`: the state there. `durations`: of the `MEMORY` arcs before, the last one first. `since`: the start of the
    simulation.
    """
    z, params, durations, since = without_tangents((z, params, durations, since))

    def entry(course: Course, start: Progress) -> Progress:
        surfaces, t, (g, r) = course.surfaces, course.t0, (course.start.g, course.start.r)
        # The rounding of the time of the last event.
        time_rounding = 64 * float(jnp.finfo(z.dtype).eps) * jnp.maximum(jnp.abs(t), t - since)
        armed = surfaces.armed(t, whole(stop_gradient(start.last.x)), course.args) & ~surfaces.is_limit
        near = jnp.maximum(course.noise, time_rounding * jnp.abs(r))
        falls = armed & (r < 0) & jnp.isfinite(r) & (jnp.abs(g) <= near) & (~start.end.done | start.end.at_once)
        # A guard that falls at the start of an arc is rare: one flag for the whole batch.
        corner, slides = jax.lax.cond(
            eqxi.unvmap_any(jnp.any(falls)),
            lambda: _surrounded(automaton, t, z, mode, params, time_rounding, falls[: automaton.surfaces.count]),
            lambda: (jnp.array(False), jnp.array(False)),
        )
        # A rate that would need longer than the first step is rounding, and says nothing of the time.
        unseen = jnp.where(falls & ~start.up, -near / r, 0)
        zeno = corner | _accumulate(durations, time_rounding, jnp.where(unseen <= course.first, unseen, 0))
        zeno = zeno & ~start.end.done & ~slides
        # Sliding takes precedence over a guard that would fire at once.
        event = jnp.where(slides, -1, start.end.event)
        end = dataclasses.replace(
            start.end,
            done=start.end.done | zeno | slides,
            event=event,
            accumulates=zeno,
            slides=slides,
            back=zeno | slides,
            at_once=start.end.at_once & ~slides,
            beyond=start.end.beyond & ~slides,
        )
        # A guard at rest has no rate that carries it to its surface: a smaller value already counts as positive.
        up = start.up | ((g > course.noise / 4) & (jnp.abs(r) * course.first <= course.noise))
        resting = armed & ~up & (g >= -jnp.maximum(near, course.error))
        return dataclasses.replace(start, end=end, up=stop_gradient(up), resting=stop_gradient(resting))

    return entry


def _accumulate(durations: Durations, time_rounding: Scalar, unseen: Guards) -> Flag:
    r"""Whether events accumulate (Zeno): the durations of the arcs shrink, and the time that remains is too short to be resolved.

    Three successive cycles, of one to `CYCLE` arcs, are each shorter than the one before, by the ratio $\rho$ at most. All arcs
    to come then take $\rho/(1 - \rho)$ times as long as the last cycle. Either that is within the rounding of time. Or a guard
    falls, within rounding of its surface, so that it would pass below it unseen, and the arc is expected to be that short; not
    one between events in step.

    **Arguments:** `time_rounding`: the rounding error of the time. `unseen`: the time that each guard which falls at the start
    of the arc needs for its rounding error; 0 for the others.
    """
    zeno = jnp.array(False)
    for length in range(1, CYCLE + 1):
        last, before, first = (jnp.sum(durations[k * length : (k + 1) * length]) for k in range(3))
        ratio = jnp.maximum(last / jnp.where(before > 0, before, 1), before / jnp.where(first > 0, first, 1))
        shrinks = (last < before) & (before < first)
        short = last * ratio <= time_rounding * (1 - ratio)
        lasts = durations[length - 1] > STEP * last
        soon = lasts & jnp.any(durations[length - 1] * ratio < 4 * unseen)
        zeno = zeno | (shrinks & (short | soon))
    return zeno


def _surrounded(
    automaton: Automaton, t: Time, z: Padded, mode: Index, params: Params, time_rounding: Time, falls: Mask
) -> tuple[Flag, Flag]:
    """Whether another mode's flow leads back: into the corner of two surfaces, or to the one surface of both modes (Filippov's
    sliding, as of a relay).

    A guard is zero and falls, and in the mode to which its transition leads, with the state unchanged, a guard is zero and falls
    whose transition leads back; each mode's flow raises the other mode's guard. (After an impact the state is another, and a
    guard may well fall below zero at the start of an arc, as that of a scuffing foot.) That must hold also where the inputs are
    another rounding apart: a rate that is zero has no sign.

    The rates of both guards along both flows are a matrix. On one surface it is singular. In a corner each pass is shorter than
    the one before if the product of the rates with which the guards fall is larger than that of those with which they rise.
    """
    no = jnp.array(False)
    pairs = {(way.source, way.target) for way in automaton.system.transitions}
    # A way back into the same mode has one flow, which cannot both raise and lower a guard; and a Filippov system slides in modes
    # of its own.
    opposite = any(source != target and (target, source) in pairs for source, target in pairs)
    if not opposite or all(map(guarded_limits, automaton.modes)):
        return no, no
    follows = ~automaton.is_state(mode)
    automaton, z, params = automaton.of_state(z, mode, params)
    surfaces, eps = automaton.surfaces, float(jnp.finfo(z.dtype).eps)
    leaves = jnp.argmax(falls)
    there = jnp.maximum(automaton.way(mode, leaves), 0)
    behind = automaton.target(there)

    def looked_at(inputs: Float[Array, " inputs"]) -> tuple[Array, Array, Guards]:
        """Both flows, the rates of the guards of both modes along each, and the values of those behind."""
        t, z = inputs[0], inputs[1:]
        flows = jnp.stack([automaton.field(t, z, (each, params)) for each in (mode, behind)])
        rates = lambda each: jax.vmap(lambda f: surfaces.rates(t, z, f, (each, params)), out_axes=(None, 0))(flows)
        (_, here), (values, back) = rates(mode), rates(behind)
        return flows, jnp.stack([here, back]), values

    flows, rates, values = jax.vmap(looked_at)(_moved(jnp.append(t, z)))
    noise = jnp.sum(jnp.abs(values[1:] - values[0]), axis=0)
    own = rates[0, 1, 1]
    falls_back = (own < 0) & jnp.isfinite(own) & (jnp.abs(values[0]) <= jnp.maximum(noise, time_rounding * -own))
    falls_back = falls_back & surfaces.armed(t, z, (behind, params))
    returns = jnp.argmax(falls_back)
    back = jnp.maximum(automaton.way(behind, returns), 0)
    after = jax.vmap(lambda way: automaton.jump(t, z, way, params))(jnp.stack([there, back]))
    near = 64 * eps * jnp.abs(z) + time_rounding * jnp.max(jnp.abs(flows[0]), axis=0)
    stays = jnp.all((jnp.abs(after - z) <= near) | follows[: z.size])
    (fall, rise), (rise_behind, fall_behind) = rates[:, 0, :, leaves].T, rates[:, 1, :, returns].T
    opposed = jnp.all((fall < 0) & (rise > 0) & (fall_behind < 0) & (rise_behind > 0))
    led_back = jnp.any(falls) & jnp.any(falls_back) & (automaton.target(back) == mode) & stays & opposed
    inwards, outwards = fall[0] * fall_behind[0], rise[0] * rise_behind[0]
    one_surface = jnp.abs(inwards - outwards) <= 16 * eps**0.5 * inwards
    return led_back & ~one_surface & (outwards < inwards), led_back & one_surface


def _moved(inputs: Float[Array, " inputs"]) -> Float[Array, "moves inputs"]:
    """The inputs, and each of them changed by its rounding error."""
    moves = 64 * float(jnp.finfo(inputs.dtype).eps) * jnp.abs(inputs)
    return inputs + jnp.diag(jnp.append(0, moves))[:, 1:]
