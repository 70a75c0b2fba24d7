"""States from which a simulation cannot go on: events that accumulate, and flows that lead back to a surface."""

from typing import NamedTuple

import equinox.internal as eqxi
import jax
import jax.numpy as jnp

from .._system.types import Flag, Params, Scalar, Time
from .automaton import Automaton, Index, Padded
from .surfaces import Guards, Mask, rounding
from .trees import without_tangents


def stuck(
    automaton: Automaton,
    t: Time,
    z: Padded,
    mode: Index,
    last: Index,
    duration: Time,
    params: Params,
    atol: float | Scalar,
) -> tuple[Flag, Flag]:
    """Whether events accumulate at the start of an arc (`zeno`), or else the flow slides (`sliding`).

    **Arguments:** `last`: the transition that led there, or -1. `duration`: of the arc before. `atol`: the size below which a
    coordinate is near zero, at most 64 units in the last place of 1.
    """
    if not automaton.surfaces.count:
        return jnp.array(False), jnp.array(False)
    t, z, params = without_tangents((t, z, params))
    automaton, z, params = automaton.of_state(z, mode, params)
    near_zero = jnp.minimum(atol, 64 * float(jnp.finfo(z.dtype).eps))
    here = _guards_at_start(automaton, t, z, mode, params, near_zero)
    zeno = _accumulates(automaton, t, z, mode, last, duration, here)
    return zeno, ~zeno & _slides(automaton, t, z, mode, params, near_zero, here)


class _Start(NamedTuple):
    """The guards of a mode at the start of an arc. A system of contacts has expensive guards: each is evaluated once.

    **Attributes:** `flow`: the mode's vector field. `g`, `rate`, `turn`: values, rates and second derivatives along it. `noise`,
    `unit`: the rounding errors, see `rounding`.
    """

    flow: Padded
    g: Guards
    rate: Guards
    turn: Guards
    armed: Mask
    noise: Guards
    unit: Guards


def _guards_at_start(
    automaton: Automaton, t: Time, z: Padded, mode: Index, params: Params, near_zero: Scalar
) -> _Start:
    surfaces, args = automaton.surfaces, (mode, params)
    field = lambda t, z: automaton.field(t, z, args)

    def along(t, z):
        return jax.jvp(lambda t, z: surfaces.values(t, z, args), (t, z), (jnp.ones_like(t), field(t, z)))

    flow = field(t, z)
    (g, rate), (_, turn) = jax.jvp(along, (t, z), (jnp.ones_like(t), flow))
    return _Start(flow, g, rate, turn, surfaces.armed(t, z, args), *rounding(surfaces, t, z, args, near_zero))


def _accumulates(
    automaton: Automaton, t: Time, z: Padded, mode: Index, last: Index, duration: Time, here: _Start
) -> Flag:
    r"""Whether events accumulate (Zeno): a guard rises from its surface and falls again within rounding of its value or the
    time.

    Such a hop cannot be resolved, and the flow would continue below the surface. The hop is a parabola of height $\dot g^2 /
    2|\ddot g|$ and duration $2\dot g/|\ddot g|$. After a perfectly plastic impact, or from rest on the surface, there is no
    hop: so an armed guard at rest on its surface counts too, and the guard of transition `last`, which has just fired, also
    where its rate is zero up to rounding.

    Between two surfaces, as in a corner, the passes from one surface to the other accumulate. They have done so where the next
    guard is within rounding of zero and falls by at most a few roundings in the time of the last pass, `duration`.
    """
    g, rate, turn, noise, unit = here.g, here.rate, here.turn, here.noise, here.unit
    instant = 4 * float(jnp.finfo(z.dtype).eps) * jnp.abs(t)
    number = jax.vmap(lambda k: automaton.transition(mode, k))(jnp.arange(automaton.surfaces.count))
    again = (number == last) & (last >= 0)
    at_rest = (rate == 0) & here.armed
    # The top of the hop; downwards there is none.
    top = g + jnp.maximum(rate, 0) ** 2 / (2 * jnp.where(turn < 0, -turn, 1))
    low = (jnp.abs(g) <= unit) & (rate**2 <= 8 * unit * -turn) & (top <= 4 * noise)
    low = low & ((rate > 0) | again | at_rest) & (turn < 0)
    brief = (rate > 0) & (jnp.abs(g) <= rate * instant) & (rate <= instant * -turn)
    between = here.armed & ~again & (jnp.abs(g) <= noise) & (rate < 0) & (-rate * duration <= 64 * noise)
    return jnp.any(low | brief | between)


def _slides(
    automaton: Automaton, t: Time, z: Padded, mode: Index, params: Params, near_zero: Scalar, here: _Start
) -> Flag:
    """Whether the flows on both sides of a surface lead back to it, as a relay's do (Filippov's sliding).

    A guard is zero and falls, and in the mode to which its transition leads, with the state unchanged, a guard is zero and falls
    whose transition leads back; each mode's flow raises the other mode's guard. (After an impact the state is another, and a
    guard may well fall below zero at the start of an arc, as that of a scuffing foot.)
    """
    surfaces = automaton.surfaces
    pairs = {(way.source, way.target) for way in automaton.system.transitions}
    if not any((target, source) in pairs for source, target in pairs):
        return jnp.array(False)
    ulps = 64 * float(jnp.finfo(z.dtype).eps)
    follows = ~automaton.is_state(mode)

    def falling(mode, g, rate, armed, unit):
        """The first guard of a mode that is zero and falls, whether there is one, and its transition."""
        falls = (jnp.abs(g) <= unit) & (rate < 0) & jnp.isfinite(rate) & armed
        first = jnp.argmax(falls)
        return first, jnp.any(falls), jnp.maximum(automaton.transition(mode, first), 0)

    leaves, falls, there = falling(mode, here.g, here.rate, here.armed, here.unit)

    def returned():
        behind = automaton.target(there)
        args = (behind, params)
        flow = automaton.field(t, z, args)
        # Guards of the mode behind along both flows, and of this mode along the flow behind.
        along = jax.vmap(lambda f: surfaces.rates(t, z, f, args), out_axes=(None, 0))
        g, (own, across) = along(jnp.stack([flow, here.flow]))
        _, unit = rounding(surfaces, t, z, args, near_zero)
        returns, falls_back, back = falling(behind, g, own, surfaces.armed(t, z, args), unit)
        leads_back = falls & falls_back & (automaton.target(back) == mode)
        after = jax.vmap(lambda transition: automaton.jump(t, z, transition, params))(jnp.stack([there, back]))
        stays = jnp.all(follows | (jnp.abs(after - z) <= ulps * jnp.abs(z) + near_zero))
        _, opposing = surfaces.rates(t, z, flow, (mode, params))
        return leads_back & stays & (opposing[leaves] > 0) & (across[returns] > 0)

    # A guard that falls at the start of an arc is rare: one flag for the whole batch.
    return jax.lax.cond(eqxi.unvmap_any(falls), returned, lambda: jnp.array(False))
