r"""Simulation of a hybrid system through any sequence of modes.

A scan over arcs. Each arc is one call of the loop that integrates and locates events, for a vector field selected by the mode's
index; then the transition that fired is taken, which gives the mode of the next arc. So one program serves all sequences, and
derivatives of any order, in forward and reverse mode, come from those of an arc.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, PyTree

from .._numerics.eager import long_run, short_run, untransformed
from .._numerics.linearize import linearizable
from .._numerics.one_kernel import in_one_kernel
from .._numerics.trees import select, without_tangents
from .._results.failure import raise_failure
from .._results.working import warn
from .._system.every import Clock
from .._system.per_mode import kind_of, numbers_of
from .._system.results import choose, code_of, code_of_state, nan_unless, RESULTS
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Flag, Params, require_counts, require_kind, Scalar, State, Time
from .automaton import Automaton, follow_automaton, Index, Padded
from .check import check_params, check_state, check_system, check_times
from .in_step import examined_if_needed, in_step, may_be_in_step, nothing_owed, OwedEvents, taken_at, with_joined
from .integrate import Arrival
from .integrator import for_modes, Integrator, IntegratorLike, Integrators, without_jacobian
from .loop_state import Watch
from .stuck import may_go_on, MEMORY
from .trajectory import Event, samples_at, Trajectory

Found = TypeVar("Found")
# The rows of arcs that a loop writes: in a batch each of its arcs copies them.
BLOCK = 8
# What `simulate` keeps of its arcs: all, nothing, or `(start, add)`, a value to which each jump adds.
Record = bool | tuple[PyTree, Callable[[PyTree, Event], PyTree]]


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
    times: Float[Array, " times"] | None = None,
    record: Record = True,
    throw: bool = True,
) -> Trajectory:
    r"""Simulate a hybrid system from `t0` to `t1` through any sequence of modes.

    $\dot x = f_m(t, x, p)$ until a guard of mode $m$ falls through zero; then $x^+ = R(t, x^-, p)$ in the transition's target.

    **Arguments:** `system`: a `HybridSystem`. `x0`: initial state, shape `(n,)`. `mode`: name of the first mode. `t0`, `t1`:
    start and end time; a guard that falls within rounding of `t1` counts as met: its jump is taken, and the end is the event's
    time. Times and states are in the units of the vector fields. `max_jumps`: the largest number of jumps, static. `integrator`:
    an `Integrator`, or one for each mode, `{"stance": ..., "flight": ...}`; `max_time` is not used. `times`: at which to keep
    states, shape `(times,)`, in any order; `Trajectory.sample` gives further states. `record`: whether to keep the arcs; `False`
    keeps the final state and the number of jumps, in constant memory, and takes as many arcs as there are. A pair `(start, add)`
    also keeps a value, any PyTree of arrays, in `recorded`: `start`, and after each jump `add(value, event)`, with an `Event`
    whose states are padded and whose modes have no names. Define `add` once: each new function is compiled again. `throw`: raise
    a `SolveError` on failure; with `False`, `result` holds the code.

    **Returns:** `Trajectory`, also under `jit` and `vmap`. Its numbers are differentiable in `x0`, `params`, `t0` and `t1`, to
    any order in forward and reverse mode (with the integrator's default `adjoint`). After a failure the trajectory up to the
    failure is kept, and `result` is the reason: `max_jumps_reached`; `zeno`, where events accumulate; `sliding`, where two
    flows meet on a surface; `grazing`; `simultaneous_guards`, where two guards fall within the tolerance of each other (see
    `bouligand_derivative`; of contacts by name they are one jump, past which derivatives are NaN); `max_steps_reached`,
    `dt_min_reached`, or `nonfinite`, such as for a flow that diverges; `outside_domain`, where the state is outside the domain of
    its mode; `time_reversed`, where a traced `t1` lies before `t0`.
    `ValueError` for arguments of a wrong shape or dtype, or that are not finite.

    **Example:**

    >>> from hyjax.models import bouncing_ball as ball
    >>> params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    >>> run = hj.simulate(ball.system, x0, params, mode="flight", t1=1.0)
    >>> print(f"{run.jumps} {run.final[0]:.6f} {run.final[1]:.6f}")
    1 0.468004 -1.836996

    Source: Kong, Payne, Zhu, Johnson (2024), Definition 1 and Fig. 3.
    """
    system, t0, x0, t1, params, integrator = check_simulation(system, x0, params, mode, t0, t1, max_jumps, integrator)
    if times is not None and record is not True:
        raise ValueError("simulate: times= needs the arcs: simulate with record=True.")
    if not isinstance(record, bool):
        record = _as_arrays(record)
    times = None if times is None else check_times(times, x0.dtype, "simulate", "times", 1)

    def run(judges: bool) -> tuple[Trajectory, RESULTS]:
        automaton = Automaton(system, judges=judges)
        found = run_simulation(automaton, x0, mode, t0, t1, params, max_jumps, integrator, times, record)
        return found, found.result

    found, _ = examined_if_needed(run, system)
    if untransformed() and not found.jumps and found.t > t0:
        _tell_of_idle_guards(system, mode, ((t0, x0), (found.t, found.x[: x0.size])), params)
    return raise_stop("simulate", found, found) if throw else found


def _tell_of_idle_guards(system: HybridSystem, mode: str, ends: tuple[tuple[Time, State], ...], params: Params) -> None:
    """A warning for each transition that is not taken in a run without a jump, though armed at its start, because its guard was
    negative there. It is so at the end, too: had the guard risen in between, its fall would have ended the run."""
    # The guard of a clock is that of its first tick: it is negative where a later one is still to come.
    ways = [way for way in system.transitions_out(mode) if not way.at_once and not isinstance(way.guard, Clock)]
    for way, values in zip(ways, _at_ends(ways, ends, params), strict=True):
        armed, first, last = (np.ravel(each) for each in values)
        # A guard that is zero but for rounding, as just after an impact, is not beyond its surface.
        slack = 1e-6 * np.where(np.isnan(last), 0, np.abs(last))
        idle = armed & ~(first >= -slack) & ~(last > 0)
        if np.any(idle):
            member, which = np.argmax(idle), f"transition {way.source!r} -> {way.target!r}"
            warn(
                f"simulate: {which}{f', number {member},' * way.is_family} was not taken, because its guard did not fall: it is "
                f"{first[member]:.6g} at the start, t = {float(ends[0][0]):.6g}. A guard fires where it falls from a positive "
                "value; at_once=True lets it fire where its mode begins, too."
            )


@short_run
def _at_ends(ways: list[Transition], ends: tuple[tuple[Time, State], ...], params: Params) -> list[tuple[Array, ...]]:
    """Whether each transition is armed at the start, and its guards at both ends."""
    armed = lambda way: jnp.array(True) if way.armed is None else jnp.asarray(way.armed(*ends[0], params))
    return [(armed(way), *(jnp.asarray(way.guard(*point, params)) for point in ends)) for way in ways]


def _as_arrays(record: Record) -> Record:
    """The pair `(start, add)`, `start` as arrays. `ValueError` for anything else."""
    if not isinstance(record, tuple) or len(record) != 2 or not callable(record[1]):
        raise ValueError(
            f"simulate: record={record!r} must be True, False, or a pair (start, add) with a function add(value, event)."
        )
    start, add = record
    return jax.tree.map(jnp.asarray, start), add


def _require_same_kind(start: PyTree, add: Callable[[PyTree, Event], PyTree], z: Padded) -> None:
    """`ValueError` unless `add` returns what it is given. Looked at once for each program."""
    zero, whole = jnp.zeros((), z.dtype), jnp.array(0)
    after = jax.eval_shape(lambda value: add(value, Event(zero, z, z, "", "", whole, zero, whole)), start)
    kinds = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype.name), tree)
    if kinds(after) != kinds(start):
        raise ValueError(
            f"simulate: record=(start, add): add(value, event) must return what it is given, {kinds(start)}; it returns "
            f"{kinds(after)}."
        )


def raise_stop(name: str, found: Found, run: Trajectory) -> Found:
    """What was found with the trajectory `run`; `SolveError` with time, mode and state at its end where `run` failed."""

    def end(about):
        t, x, mode, jumps = about
        there = run.system.names[int(mode)]
        x = np.array2string(x[: run.system.mode(there).dimension], precision=6, separator=", ")
        return f"at t = {float(t):.6g} in mode {there!r} after {int(jumps)} jump{'s' * (int(jumps) != 1)}, x = {x}"

    remedy = "With throw=False the run up to there is returned, with the code in `result`."
    return raise_failure(name, found, run.result, (run.t, run.x, run.mode, run.jumps), end, remedy)


def check_simulation(
    system: HybridSystem,
    x0: State,
    params: Params,
    mode: str,
    t0: float | Time,
    t1: float | Time,
    max_jumps: int,
    integrator: IntegratorLike,
) -> tuple[HybridSystem, Time, State, Time, Params, Integrators]:
    """Check the arguments of `simulate`. **Returns:** `(system, t0, x0, t1, params, integrator)`, the numbers as arrays; the
    system knows the sizes of its families."""
    require_kind(
        system, HybridSystem, "simulate", "the first argument", "a hj.HybridSystem, as the system of a map or a model"
    )
    params = check_params(params)
    x0 = check_state(x0, system.mode(mode).dimension, mode)
    integrator = for_modes(system, integrator)
    integrator.tolerances(x0.dtype)
    require_counts("simulate", 0, max_jumps=max_jumps)
    t0, t1 = (check_times(t, x0.dtype, "simulate", name, 0) for t, name in ((t0, "t0"), (t1, "t1")))
    system = check_system(system, t0, x0, params)
    known = not isinstance(t1, jax.core.Tracer) and not isinstance(t0, jax.core.Tracer)
    # Under `jit` a comparison of JAX arrays is traced even where both are known.
    if known and float(t1) < float(t0):
        raise ValueError(f"simulate: the end time t1={t1} lies before the start time t0={t0}. Give t1 >= t0.")
    return system, t0, x0, t1, params, integrator


def run_simulation(
    automaton: Automaton,
    x0: State,
    mode: str,
    t0: Time,
    t1: Time,
    params: Params,
    max_jumps: int,
    integrator: Integrators,
    times: Float[Array, " times"] | None,
    record: Record = True,
) -> Trajectory:
    """`simulate` without the checks of its arguments, for the automaton of a system."""
    index = jnp.array(automaton.system.number(mode))
    if record is not True:
        value, add = record or (None, None)
        return _simulate_end(automaton, automaton.pad(x0), index, t0, t1, params, max_jumps, integrator, value, add)
    return _simulate(automaton, automaton.pad(x0), index, t0, t1, params, max_jumps, integrator, times)


@long_run
def _simulate_end(automaton, z0, mode0, t0, t1, params, max_jumps, integrator, value, add) -> Trajectory:
    """The trajectory without its arcs, and the value to which each jump adds."""
    plain = without_jacobian(integrator)
    if add is not None:
        _require_same_kind(value, add, z0)

    def run(inputs):
        automaton, z0, t0, t1, params, value = inputs
        start = _admitted(automaton, first_arc(automaton, z0, mode0, t0, t1), params, plain)
        final, jumps, value = end_of_simulation(automaton, start, t1, params, max_jumps, plain, value, add)
        real, whole = eqx.partition(value, eqx.is_inexact_array)
        return (final.t, final.z, real), (final.mode, final.result, jumps, whole)

    (t, z, real), (mode, result, jumps, whole) = linearizable(run, (automaton, z0, t0, t1, params, value))
    times, states, integers = jnp.zeros(0, z.dtype), jnp.zeros((0, z.size), z.dtype), jnp.zeros(0, mode.dtype)
    return Trajectory(
        t=t, x=z, mode=mode, start_times=times, end_times=times, x_starts=states, x_ends=states, modes=integers,
        transitions=integers, indices=integers, guard_rates=times, at_once=jnp.zeros(0, bool), jumps=jumps, result=result,
        samples=None, params=params, system=automaton.system, integrator=integrator, recorded=eqx.combine(real, whole),
    )  # fmt: skip


@short_run
def _simulate(automaton, z0, mode0, t0, t1, params, max_jumps, integrator, times) -> Trajectory:
    keeps_jacobian = integrator.loop == "lax"
    plain = without_jacobian(integrator) if keeps_jacobian else integrator

    def run(inputs):
        automaton, z0, t0, t1, params = inputs
        start = _admitted(automaton, first_arc(automaton, z0, mode0, t0, t1), params, plain)
        final, rows = (_in_blocks if keeps_jacobian else _scan)(automaton, start, t1, params, max_jumps, plain)
        varying = final.t, final.z, rows.start, rows.end, rows.x_start, rows.x_end, rows.guard_rate
        return varying, (final.mode, final.result, rows.there, rows.jumped, rows.at_once, rows.mode, rows.way)

    # One Jacobian of all arcs together serves reverse mode. (Hazard: reverse mode through a scan of arcs, differentiated once
    # more, drops the arcs' custom rules, because JAX inlines them when it hoists loop-invariant operations out of the scan.)
    inputs = (automaton, z0, t0, t1, params)
    varying, (mode, result, there, jumped, beyond, *integers) = (
        linearizable(run, inputs) if keeps_jacobian else run(inputs)
    )
    t, z, *reals = varying
    starts, ends, x_starts, x_ends, rates = (nan_unless(rows_of(there, column), column) for column in reals)
    modes, ways = (jnp.where(there, column, -1) for column in integers)
    transitions, indices = automaton.system.numbers(ways)
    samples = None
    if times is not None:
        samples = samples_at(automaton, (starts, ends, x_starts, modes), times, params, integrator)
    return Trajectory(
        t=t, x=z, mode=mode, start_times=starts, end_times=ends, x_starts=x_starts, x_ends=x_ends, modes=modes,
        transitions=transitions, indices=indices, guard_rates=rates, at_once=jumped & beyond, jumps=jnp.sum(jumped),
        result=result, samples=samples, params=params, system=automaton.system, integrator=integrator,
    )  # fmt: skip


def rows_of(there: Array, column: Array) -> Array:
    """The mask of the rows, with as many axes as the column."""
    return there.reshape(there.shape + (1,) * (column.ndim - 1))


class Instant(eqx.Module):
    """The jumps at one time. `owed`: the events that were met together and are still to be taken. `count`: the number of
    jumps taken at once since then; `mode`, `z`: mode and state after the last of these jumps whose number is a power of two."""

    owed: OwedEvents
    count: Index
    mode: Index
    z: Padded

    def after(
        self, t: Time, end: Arrival, taken: Bool[Array, " ways"], mode: Index, z: Padded
    ) -> tuple["Instant", Flag]:
        """The instant after the jump of an arc from the time `t`, by the ways `taken` (`taken_at`), and whether the jumps
        go on without end: mode and state repeat earlier ones (Brent's method to find a cycle). Owed jumps are finitely many, and
        may leave mode and state unchanged."""
        brief = stop_gradient(end.t - t) <= 2 * self.owed.close
        goes_on = end.at_once & (self.owed.left == 0)
        owed = self.owed.after(taken, end.together, end.close, brief)
        count = jnp.where(goes_on, self.count + 1, 0)
        z = stop_gradient(z)
        endless = goes_on & (mode == self.mode) & jnp.all(z == self.z)
        keep = (count & (count - 1)) != 0
        mode, z = select(keep, (self.mode, self.z), (mode, z))
        return Instant(owed, count, mode, z), endless


class ArcStart(eqx.Module):
    """The start of the next arc. `durations`: those of the previous arcs, the last one first. `result`: the code of the arcs so
    far. `done`: whether there is no next arc. `instant`: the jumps at the time of the start."""

    t: Time
    z: Padded
    mode: Index
    durations: Float[Array, " arcs"]
    result: RESULTS
    done: Flag
    instant: Instant


class ArcRow(eqx.Module):
    """One arc of the trajectory. `there`: whether the row holds an arc. `jumped`: whether a jump was taken at its end. `at_once`:
    whether that jump was taken at once, with its guard beyond the surface."""

    there: Flag
    jumped: Flag
    start: Time
    end: Time
    x_start: Padded
    x_end: Padded
    guard_rate: Scalar
    mode: Index
    way: Index
    at_once: Flag


def first_arc(automaton: Automaton, z0: Padded, mode0: Index, t0: Time, t1: Time) -> ArcStart:
    """The start of a simulation from `t0` to `t1`."""
    result = choose(t1 < t0, RESULTS.time_reversed, RESULTS.successful)
    instant = Instant(nothing_owed(automaton.system, t0.dtype), jnp.array(0), mode0, stop_gradient(z0))
    return ArcStart(t0, z0, mode0, jnp.zeros(MEMORY, t0.dtype), result, t1 < t0, instant)


def _admitted(automaton: Automaton, start: ArcStart, params: Params, integrator: Integrators) -> ArcStart:
    """The start of a simulation, which ends with the code of its mode's domain where that refuses the state, and as `nonfinite`
    where a clock has no period."""
    automaton, t, z, params = without_tangents((automaton, start.t, start.z, params))
    code = automaton.refusal(t, z, start.mode, params, integrator.tolerances(z.dtype))
    for way in automaton.system.transitions:
        if isinstance(way.guard, Clock):
            period, phase = way.guard.times(params, z.dtype)
            ticks = (period > 0) & jnp.isfinite(period) & jnp.isfinite(phase)
            code = choose(ticks, code, RESULTS.nonfinite)
    refused = (code != RESULTS.successful) & ~start.done & jnp.all(jnp.isfinite(z))
    return dataclasses.replace(start, result=choose(refused, code, start.result), done=start.done | refused)


def flow_arc(
    automaton: Automaton,
    now: ArcStart,
    start: ArcStart,
    t1: Time,
    params,
    integrator: Integrators,
    watch: Watch | None = None,
) -> tuple[Arrival, Index]:
    """The end of an arc without the jump there, and the way whose guard was met, or -1. **Arguments:** `start`: of the
    simulation. `watch`: what to record of every step."""
    # An arc after the end begins where the simulation begins and takes no step.
    t, z, mode = (jnp.where(now.done, a, b) for a, b in ((start.t, now.t), (start.z, now.z), (start.mode, now.mode)))
    # An event within rounding of t1 may lie beyond it: back to t1 the flow would leave the surface on the wrong side.
    until = t1 + stop_gradient(jnp.maximum(t - t1, 0))
    until = jnp.where(now.done, start.t - 1, until)
    if automaton.only is not None:
        # Where nothing flows the arc is over: to the end it would take as many steps as the largest one demands.
        until = jnp.where(automaton.includes(mode), until, t)
    several = automaton.judges and may_be_in_step(automaton.system)
    several = several or automaton.surfaces.clocks is not None
    owed = jnp.where(now.done, -1, now.instant.owed.within(automaton.leaving(mode))) if several else None
    entry = may_go_on(automaton, z, mode, now.durations, start.t, params)
    end = follow_automaton(automaton, t, z, mode, until, params, integrator, watch=watch, owed=owed, entry=entry)
    if several:
        met = end.together | (jnp.any(end.together) & (jnp.arange(automaton.surfaces.count) == end.event))
        same = in_step(automaton, end.t, end.x, mode, met, end.close, params)
        passed = same & (end.result == RESULTS.simultaneous_guards)
        end = dataclasses.replace(end, result=choose(passed, RESULTS.successful, end.result))
    return end, automaton.way(mode, end.event)


def leave_arc(
    automaton: Automaton, now: ArcStart, last: Flag, end: Arrival, taken: Index, z_after: Padded, params: Params
) -> tuple[ArcStart, ArcRow]:
    """The start of the next arc. **Arguments:** `now`: the start of the arc. `last`: no jump may follow. `z_after`: the state
    after the way `taken`."""
    result, met = end.result, taken >= 0
    reset = code_of_state(z_after)
    why = ((last, RESULTS.max_jumps_reached), (reset != RESULTS.successful, reset))
    for failed, failure in why:
        result = choose((result == RESULTS.successful) & met & failed, failure, result)
    target = automaton.target(jnp.maximum(taken, 0))
    ways = taken_at(automaton, end.t, end.x, z_after, taken, params)
    instant, endless = now.instant.after(now.t, end, ways, target, z_after)
    result = choose(endless & (result == RESULTS.successful), RESULTS.zeno, result)
    jumps = met & (result == RESULTS.successful)
    after = ArcStart(
        t=end.t,
        z=jnp.where(jumps, z_after, end.x),
        mode=jnp.where(jumps, target, now.mode),
        # An arc of zero length, which a jump ends at its start, contains no information on the pace of events.
        durations=jnp.where(end.at_once, now.durations, jnp.append(stop_gradient(end.t - now.t), now.durations[:-1])),
        result=result,
        done=now.done | ~jumps,
        instant=instant,
    )
    row = ArcRow(~now.done, jumps & ~now.done, now.t, end.t, now.z, end.x, end.guard_rate, now.mode, taken, end.beyond)
    return select(now.done, now, after), row


def follow_arc(
    automaton: Automaton,
    now: ArcStart,
    last: Flag,
    start: ArcStart,
    t1: Time,
    params,
    integrator: Integrators,
    joined: bool = False,
) -> tuple[ArcStart, ArcRow]:
    """One arc, and the jump at its end. **Arguments:** `last`: no jump may follow. `start`: of the simulation. `joined`: whether
    events at one time are one jump where a transition `joins` them; then it has no derivative."""
    end, taken = flow_arc(automaton, now, start, t1, params, integrator)
    if joined:
        end, z_after = with_joined(automaton, end, now.mode, taken, params)
    else:
        z_after = automaton.jump(end.t, end.x, jnp.maximum(taken, 0), params)
    modes = automaton.system.modes
    foreign = [not way._lands and hasattr(modes[way.target].domain, "refusal") for way in automaton.system.transitions]
    if any(foreign):
        # A jump that is not the library's own may lead off the surface along which a mode slides, or off a contact.
        way = jnp.maximum(taken, 0)
        asked = (taken >= 0) & jnp.array(foreign)[automaton.system.numbers(way)[0]] & jnp.all(jnp.isfinite(z_after))
        inputs = without_tangents((automaton, end.t, z_after, automaton.target(way), params))
        code = inputs[0].refusal(*inputs[1:], integrator.tolerances(z_after.dtype))
        sound = ~asked | (end.result != RESULTS.successful) | (code == RESULTS.successful)
        end = dataclasses.replace(end, result=choose(sound, end.result, code))
    return leave_arc(automaton, now, last, end, taken, z_after, params)


def _scan(
    automaton: Automaton, start: ArcStart, t1: Time, params, max_jumps: int, integrator: Integrators
) -> tuple[ArcStart, ArcRow]:
    """The end of the simulation, and `max_jumps + 1` rows, one for each arc."""
    arc = lambda now, k: follow_arc(automaton, now, k == max_jumps, start, t1, params, integrator, True)
    return in_one_kernel(lambda start: jax.lax.scan(arc, start, jnp.arange(max_jumps + 1)))(start)


def _in_blocks(
    automaton: Automaton, start: ArcStart, t1: Time, params, max_jumps: int, integrator: Integrators
) -> tuple[ArcStart, ArcRow]:
    """`_scan` that ends with the last arc, for which it has no reverse mode. A batch goes on until its last lane has ended; the
    rows of a lane that has ended are copied in every arc of the others, so they are written in short blocks."""
    no, t, z, number = jnp.array(False), start.t, start.z, jnp.zeros_like(start.mode)
    row = ArcRow(no, no, t, t, z, z, jnp.zeros_like(t), number, number, no)
    blank = jax.tree.map(lambda leaf: jnp.zeros((BLOCK, *leaf.shape), leaf.dtype), row)

    def one(carry):
        now, k, rows = carry
        now, row = follow_arc(automaton, now, k == max_jumps, start, t1, params, integrator, True)
        return now, k + 1, jax.tree.map(lambda rows, row: rows.at[k % BLOCK].set(row), rows, row)

    def block(now, first):
        going = lambda carry: ~carry[0].done & (carry[1] < jnp.minimum(first + BLOCK, max_jumps + 1))
        now, _, rows = jax.lax.while_loop(going, one, (now, first, blank))
        return now, rows

    blocks = jnp.arange(0, max_jumps + 1, BLOCK)
    final, rows = in_one_kernel(lambda start: jax.lax.scan(block, start, blocks))(start)
    return final, jax.tree.map(lambda rows: rows.reshape(-1, *rows.shape[2:])[: max_jumps + 1], rows)


def end_of_simulation(
    automaton: Automaton,
    start: ArcStart,
    t1: Time,
    params,
    max_jumps: int,
    integrator: Integrators,
    value: PyTree = None,
    add: Callable[[PyTree, Event], PyTree] | None = None,
) -> tuple[ArcStart, Index, PyTree]:
    """The end of the simulation from `start` until `t1`, its number of jumps, and the `value` to which each jump has added. Not
    differentiable in reverse mode; a batch takes as many arcs as its lane with the most."""

    def one(carry):
        now, k, value = carry
        after, row = follow_arc(automaton, now, k == max_jumps, start, t1, params, integrator, True)
        if add is not None:
            transition, index = automaton.system.numbers(row.way)
            event = Event(row.end, row.x_end, after.z, "", "", transition, row.guard_rate, index)
            value = select(row.jumped, add(value, event), value)
        return after, k + row.jumped.astype(k.dtype), value

    arcs = lambda *start: jax.lax.while_loop(lambda carry: ~carry[0].done, one, start)
    return in_one_kernel(arcs)(start, jnp.array(0), value)


def mode_of_state(
    system: HybridSystem, name: str, t: Time, x: State, params: Params, tolerances: tuple
) -> tuple[Index, State, RESULTS]:
    """The mode in which a state is: that of the name if it has no domain, or this holds the state, else the only other one of
    the same coordinates whose domain does; `outside_domain` where there is none, or several. On a limit of a domain, within the
    solver's tolerance, the state is held where the mode's flow does not leave there. And the state, of which a domain may
    change what is held in it to what holds at its place, as the set of contacts."""
    if system.mode(name).domain is None:
        return jnp.array(system.number(name)), x, code_of(0)
    t, at, params = without_tangents((t, x, params))
    (rtol, atol), coordinates, named = tolerances, system.mode(name).coordinates, {}
    for each in (name, *system.names):
        mode = system.mode(each)
        if mode.domain is not None and mode.coordinates == coordinates:
            # Modes of the same functions, as a flight up and a flight down, are one.
            named.setdefault((kind_of(mode), numbers_of(mode)), each)

    def holds(mode: Mode, x: State) -> Flag:
        limits = lambda t, x: jnp.ravel(jnp.asarray(mode.domain(t, x, params), x.dtype))  # pyright: ignore
        rates = jax.jvp(limits, (t, x), (jnp.ones_like(t), mode.vector_field(t, x, params)))[1]
        values, error = limits(t, x), 8 * jnp.abs(jax.jacfwd(limits, 1)(t, x)) @ (atol + rtol * jnp.abs(x))
        inside = jnp.all(jnp.where(jnp.abs(values) <= error, rates >= 0, values > 0))
        refusal = getattr(mode.domain, "refusal", None)
        return inside if refusal is None else inside & (refusal(t, x, params, tolerances) == RESULTS.successful)

    held_by = lambda x: jnp.stack([holds(system.mode(each), x) for each in named.values()])
    held, placed = held_by(at), getattr(system.mode(name).domain, "placed", None)
    if placed is not None:
        there, known = placed(t, x, params), jnp.any(held)
        held = jnp.where(known, held, held_by(without_tangents(there)))
        x = jnp.where(known | ~jnp.any(held), x, there)
    code = choose(held[0] | (jnp.sum(held) == 1), RESULTS.successful, RESULTS.outside_domain)
    return jnp.array([system.number(each) for each in named.values()])[jnp.argmax(held)], x, code


def run_to_way(
    automaton: Automaton, t: Time, x: State, mode: Index, params: Params, integrator: Integrators, way: int, times: int,
    most: Array,
) -> tuple[Padded, RESULTS]:  # fmt: skip
    """The state just after a way has been taken so many `times`, within `most` jumps through any modes; `no_crossing` where an
    arc lasts longer than the integrators' `max_time`. Not differentiable in reverse mode."""
    start = first_arc(automaton, automaton.pad(x), mode, t, jnp.full_like(t, jnp.inf))
    longest = max(part.max_time for part in integrator.parts)

    def one(carry):
        now, k, left = carry
        now, row = follow_arc(automaton, now, k == most, start, now.t + longest, params, integrator)
        return now, k + 1, jnp.where(row.jumped & (row.way == way), left - 1, left)

    going = lambda carry: ~carry[0].done & (carry[2] > 0)
    arcs = lambda *start: jax.lax.while_loop(going, one, start)
    now, _, left = in_one_kernel(arcs)(start, jnp.array(0), jnp.array(times))
    return now.z, choose((now.result == RESULTS.successful) & (left > 0), RESULTS.no_crossing, now.result)
