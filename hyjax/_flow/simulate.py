r"""Simulation: follow a hybrid system through whatever modes come.

A scan over arcs. Each arc is one call of the loop that integrates and locates, of a field whose mode is a number; then the
transition that fired is taken, and its number is what the next arc starts with. So there is one program for all sequences,
and derivatives of any order, forward and reverse, come from those of an arc.
"""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._system.results import choose, nan_unless, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Params, Scalar, State, Time
from .automaton import Automaton, Index, Padded
from .automaton_flow import follow_automaton
from .check import as_arrays, check_mode, check_params, check_state
from .integrator import Integrator, PlainForward
from .linearize import linearizable
from .loop import without_tangents
from .mode_integrators import for_modes, IntegratorLike, Integrators, with_adjoint
from .surfaces import rounding
from .trajectory import samples_at, Trajectory


def simulate(
    system: HybridSystem,
    x0: State,
    params: Params,
    *,
    mode: str,
    t1: float | Time,
    t0: float | Time = 0.0,
    max_jumps: int = 100,
    integrator: IntegratorLike = Integrator(),
    save: Float[Array, " times"] | None = None,
) -> Trajectory:
    r"""Follow a hybrid system from `t0` to `t1`, whatever its sequence of modes. $\dot x = f_m(t, x, p)$ until a guard of
    mode $m$ falls through zero; then $x^+ = R(t, x^-, p)$ in the transition's target.

    **Arguments:** `x0`: shape `(n,)`, of the mode. `mode`: name of the first mode. `t1`: end time; a guard that falls
    within rounding of it counts as met, and its jump is taken. `max_jumps`: the most jumps, static. `integrator`: its
    `max_time` plays no part. `save`: times at which to keep states, in any order, static in number; more can be had
    afterwards by `Trajectory.sample`.

    **Returns:** `Trajectory`. It may stand under `jit` and `vmap`; its numbers are differentiable in `x0`, `params`, `t0`
    and `t1`, to any order, forward and reverse. What happened until a failure is kept, and `result` says why it ended:
    `max_jumps_reached`; `zeno`, where events accumulate; `sliding`, where two flows meet on a surface; `grazing`;
    `simultaneous_guards`, where two guards fall within the
    tolerance of each other (see `bouligand_derivative`); `max_steps_reached`, `dt_min_reached` or `nonfinite`, as where
    the flow blows up; or `time_reversed`, where `t1` is traced and lies before `t0`.

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1 and Fig. 3.
    """
    check_params(params)
    params = as_arrays(params)
    x0 = check_state(x0, system.mode(mode).dimension, mode)
    integrator = for_modes(system, integrator)
    integrator.tolerances(x0.dtype)
    if not isinstance(max_jumps, int) or max_jumps < 0:
        raise ValueError(f"simulate: max_jumps={max_jumps!r} must be an integer, 0 or more.")
    t0, t1 = jnp.asarray(t0, x0.dtype), jnp.asarray(t1, x0.dtype)
    for name, each in system.modes.items():
        check_mode(system, name, t0, jax.ShapeDtypeStruct((each.dimension,), x0.dtype), params)
    if not isinstance(t1, jax.core.Tracer) and not isinstance(t0, jax.core.Tracer) and t1 < t0:
        raise ValueError(f"simulate: t1={t1} lies before t0={t0}. Time runs forward.")
    automaton = Automaton(system)
    index = jnp.array(automaton.names.index(mode))
    save = None if save is None else jnp.asarray(save, x0.dtype)
    return _simulate(automaton, automaton.pad(x0), index, t0, t1, params, max_jumps, integrator, save)


@eqx.filter_jit
def _simulate(automaton, z0, mode0, t0, t1, params, max_jumps, integrator, save) -> Trajectory:
    keeps_jacobian = integrator.loop == "lax"
    plain = with_adjoint(integrator, PlainForward()) if keeps_jacobian else integrator

    def run(inputs):
        automaton, z0, t0, t1, params = inputs
        final, rows = _scan(automaton, z0, mode0, t0, t1, params, max_jumps, plain)
        varying = final.t, final.z, rows.start, rows.end, rows.x_start, rows.x_end, rows.guard_rate
        return varying, (final.mode, final.result, rows.there, rows.jumped, rows.mode, rows.transition)

    # All arcs together carry their Jacobian for reverse mode. (Reverse mode through a scan of arcs, differentiated once
    # more, would lose their own rules: JAX inlines custom derivatives when it hoists what does not change out of a scan.)
    inputs = (automaton, z0, t0, t1, params)
    varying, (mode, result, there, jumped, *integers) = linearizable(run, inputs) if keeps_jacobian else run(inputs)
    t, z, *reals = varying
    starts, ends, x_starts, x_ends, rates = (nan_unless(_rows(there, column), column) for column in reals)
    modes, transitions = (jnp.where(there, column, -1) for column in integers)
    samples = None
    if save is not None:
        samples = samples_at(automaton, (starts, ends, x_starts, modes), save, params, integrator)
    return Trajectory(
        t=t, x=z, mode=mode, starts=starts, ends=ends, x_starts=x_starts, x_ends=x_ends, modes=modes,
        transitions=transitions, guard_rates=rates, jumps=jnp.sum(jumped), result=result, samples=samples,
        params=params, system=automaton.system, integrator=integrator,
    )  # fmt: skip


def _rows(there: Array, column: Array) -> Array:
    """A mark for each row, with the axes of the column."""
    return there.reshape(there.shape + (1,) * (column.ndim - 1))


class _Start(eqx.Module):
    """Where the next arc starts. `came_by`: the transition before it, or -1. `duration`: of the arc before. `result`: of what
    came before. `done`: there is no next arc."""

    t: Time
    z: Padded
    mode: Index
    came_by: Index
    duration: Time
    result: RESULTS
    done: Flag


class _Row(eqx.Module):
    """One arc of the record. `there`: it is one. `jumped`: a jump was taken at its end."""

    there: Flag
    jumped: Flag
    start: Time
    end: Time
    x_start: Padded
    x_end: Padded
    guard_rate: Scalar
    mode: Index
    transition: Index


def _scan(
    automaton: Automaton, z0, mode0, t0, t1, params, max_jumps: int, integrator: Integrators
) -> tuple[_Start, _Row]:
    """The end, and a row for each arc that there could be."""

    _, atol = integrator.tolerances(z0.dtype)

    def arc(now: _Start, k):
        # What comes after the end starts where all began, and has no length; nor has what cannot leave its surface.
        t, z, mode = (jnp.where(now.done, a, b) for a, b in ((t0, now.t), (z0, now.z), (mode0, now.mode)))
        zeno = _accumulates(automaton, t, z, mode, now.came_by, now.duration, params, atol)
        slides = ~zeno & _slides(automaton, t, z, mode, params, atol)
        stuck = zeno | slides
        until = jnp.where(now.done, t0 - 1, jnp.where(stuck, t, t1))
        end = follow_automaton(automaton, t, z, mode, until, params, integrator)
        met = end.event >= 0
        taken = automaton.transition(mode, end.event)
        z_after = automaton.jump(end.t, end.x, jnp.maximum(taken, 0), params)
        result = end.result
        why = ((k == max_jumps, RESULTS.max_jumps_reached), (~jnp.all(jnp.isfinite(z_after)), RESULTS.nonfinite))
        for failed, failure in why:
            result = choose((result == RESULTS.successful) & met & failed, failure, result)
        result = choose(zeno, RESULTS.zeno, choose(slides, RESULTS.sliding, result))
        jumps = met & (result == RESULTS.successful)
        after = _Start(
            t=end.t,
            z=jnp.where(jumps, z_after, end.x),
            mode=jnp.where(jumps, automaton.target(jnp.maximum(taken, 0)), mode),
            came_by=taken,
            duration=stop_gradient(end.t - t),
            result=result,
            done=now.done | ~jumps,
        )
        row = _Row(~now.done, jumps & ~now.done, t, end.t, z, end.x, end.guard_rate, mode, taken)
        return jax.tree.map(lambda new, old: jnp.where(now.done, old, new), after, now), row

    never = jnp.full_like(t0, jnp.inf)
    result = choose(t1 < t0, RESULTS.time_reversed, RESULTS.successful)
    start = _Start(t0, z0, mode0, jnp.array(-1), never, result, t1 < t0)
    return jax.lax.scan(arc, start, jnp.arange(max_jumps + 1))


def _accumulates(
    automaton: Automaton,
    t: Time,
    z: Padded,
    mode: Index,
    last: Index,
    duration: Time,
    params: Params,
    atol: float | Scalar,
) -> Flag:
    r"""Whether a guard leaves its surface but will be back before it, or the time, has risen by more than rounding.

    Such a hop cannot be seen, and the flow would go on below the surface. Its height is that of a parabola,
    $\dot g^2 / 2|\ddot g|$, its duration $2\dot g/|\ddot g|$. After an impact that takes all of the speed, or from rest on the
    surface, there is not even a hop: so a guard at rest on its surface is seen too, and the guard of transition `last`, which
    has just fired, also where its rate is rounding of either sign.

    Between two surfaces, as in a corner, what accumulates are the passes from one to the other: the last, of the given
    `duration`, was so short that the next surface falls by no more than some roundings in such a time, and is within one.
    """
    surfaces = automaton.surfaces
    if not surfaces.count:
        return jnp.array(False)
    t, z, args = without_tangents((t, z, (mode, params)))

    def along(fn):
        return lambda t, z: jax.jvp(fn, (t, z), (jnp.ones_like(t), automaton.field(t, z, args)))

    # Value and rate, and their rates, by one evaluation: a system of contacts has long guards.
    (g, rate), (_, turn) = along(along(lambda t, z: surfaces.values(t, z, args)))(t, z)
    noise = rounding(surfaces, t, z, args, atol)
    instant = 4 * float(jnp.finfo(z.dtype).eps) * jnp.abs(t)
    number = jax.vmap(lambda k: automaton.transition(mode, k))(jnp.arange(surfaces.count))
    again = (number == last) & (last >= 0)
    # Where a guard's surface has no direction, as that of a norm at zero, its rates say nothing.
    at_rest = (rate == 0) & surfaces.armed(t, z, args)
    low = (jnp.abs(g) <= noise) & (rate**2 <= 8 * noise * -turn) & ((rate > 0) | again | at_rest) & (turn < 0)
    brief = (rate > 0) & (jnp.abs(g) <= rate * instant) & (rate <= instant * -turn)
    between = (
        surfaces.armed(t, z, args) & ~again & (jnp.abs(g) <= noise) & (rate < 0) & (-rate * duration <= 64 * noise)
    )
    return jnp.any(low | brief | between)


def _slides(automaton: Automaton, t: Time, z: Padded, mode: Index, params: Params, atol: float | Scalar) -> Flag:
    """Whether the flow leaves a surface backwards, and so does that of the mode behind it.

    A guard is zero and falls at once, and in the mode to which its transition leads a guard is zero and falls at once whose
    transition leads back, to the same state: so neither flow can leave the surface. (After an impact the way back leads
    elsewhere, and a guard may well fall below zero at the start of an arc, as that of a scuffing foot.)
    """
    surfaces = automaton.surfaces
    pairs = {(way.source, way.target) for way in automaton.system.transitions}
    if not any((target, source) in pairs for source, target in pairs):
        return jnp.array(False)
    t, z, params = without_tangents((t, z, params))

    def backwards(z, mode):
        """The first guard that is zero and falls."""
        args = (mode, params)
        g, rate = surfaces.rates(t, z, automaton.field(t, z, args), args)
        noise = rounding(surfaces, t, z, args, atol)
        falls = (jnp.abs(g) <= noise) & (rate < 0) & surfaces.armed(t, z, args)
        first = jnp.argmax(falls)
        return jnp.any(falls), jnp.maximum(automaton.transition(mode, first), 0)

    falls, there = backwards(z, mode)
    behind = automaton.jump(t, z, there, params)
    back, again = backwards(behind, automaton.target(there))
    round_trip = automaton.jump(t, behind, again, params)
    unit = 64 * float(jnp.finfo(z.dtype).eps)
    same = jnp.all(jnp.abs(round_trip - z) <= unit * jnp.abs(z) + jnp.minimum(atol, unit))
    return falls & back & (automaton.target(again) == mode) & same
