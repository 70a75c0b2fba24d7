r"""Events in step: guards of a mode that are met at the same time.

Neighbouring orbits take such events in different orders. Where every order leads to the same mode and the same state, with the
same first derivative, the order does not matter: the flow through all of them is differentiable, and any order may be followed.
Otherwise the flow has a derivative for each order (see `bouligand_derivative`), or is discontinuous.

All orders are followed at the point where the events meet, so that their states agree up to rounding if they agree at all. After
each event the guards that remain must be zero and fall in the mode that results, and none after the last. The derivative of an
order is the product of its saltation matrices, applied to the coordinates of the state and to one general variation of the
parameters. A transition is taken once: a guard that has fired and is still zero, such as one of the time alone, is not due again;
nor is the same clock in another mode, or the same guard, if its jump leaves it at zero. After a jump that exchanges two bodies,
the other body may be at the same guard.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, PyTree

from .._numerics.eager import untransformed
from .._numerics.trees import content_of, select, without_tangents
from .._system.every import Clock
from .._system.results import choose, RESULTS
from .._system.system import as_given, HybridSystem, of_member, Transition
from .._system.types import Flag, Params, Scalar, State, Time
from .automaton import Automaton, Index, joins, Padded, switched
from .flow import Impact, known_where
from .integrate import Arrival
from .surfaces import Guards, Mask

_Found = TypeVar("_Found")

# The largest number of events at once of which all orders are followed; more are never in step.
MOST = 4
# Rounding errors of a derivative, in units in the last place of the terms of which it is the sum.
ROUNDINGS = 2.0**10


def examined_if_needed(run: Callable[[bool], tuple[_Found, RESULTS]], system: HybridSystem) -> tuple[_Found, RESULTS]:
    """`run(judges)`, a result and its code. To examine the order of events that fall together (`judges`) is a fifth of the
    program of a system of contacts, a quarter of that of its orbit, and rarely needed: where numbers are known, a first run does
    not."""
    known, together = untransformed(), RESULTS.simultaneous_guards._value
    found, code = run(not known)
    if known and np.any(np.asarray(code._value) == together) and may_be_in_step(system):
        return run(True)
    return found, code


def unordered(system: HybridSystem) -> HybridSystem:
    """The same system, whose events that fall together are not examined for their order: they are `simultaneous_guards`."""
    return HybridSystem(system.modes, system.transitions, system.time_unit, _ordered=False)


def any_in_step(system: HybridSystem, mode: str, end: list[str] | None = None) -> bool:
    """Whether the transitions allow events in step in a mode: two or more of them, which lead to one mode whichever is the first;
    and the system is not `unordered`.

    **Arguments:** `end`: for one event, two and so on, the mode that they lead to; by default, any mode.
    """
    ways = [(system.transitions[i].target, system.sizes[i]) for i in system.leaving(mode) if system._ordered]
    targets = [target for target, members in ways for _ in range(min(members, MOST))]

    def ends(mode: str, events: int) -> set[str]:
        """The modes that so many events lead to."""
        modes = {mode}
        for _ in range(events):
            modes = {way.target for way in system.transitions if way.source in modes}
        return modes

    for events in range(2, min(MOST, len(targets)) + 1):
        led = [ends(target, events - 1) for target in targets]
        wanted = system.names if end is None else end[events - 1 : events]
        if any(sum(name in each for each in led) >= events for name in wanted):
            return True
    return False


def may_be_in_step(system: HybridSystem) -> bool:
    """Whether the transitions allow events in step in a mode of the system."""
    return any(any_in_step(system, name) for name in system.names)


def each_in_step(system: HybridSystem, sequence: tuple[str, ...]) -> tuple[bool, ...]:
    """For each arc of a stride whether its end may be events in step, all of which the sequence then names."""

    # Without the numbers of guards in families.
    modes = [system.names[system.number(name)] for name in sequence]

    def onwards(j: int) -> list[str]:
        return [modes[(j + events) % len(modes)] for events in range(1, MOST + 1)]

    return tuple(any_in_step(system, mode, onwards(j)) for j, mode in enumerate(sequence))


def in_step(automaton: Automaton, t: Time, z: Padded, mode: Index, met: Mask, close: Scalar, params: Params) -> Flag:
    """Whether the events of the guards `met`, two or more, lead to one state with one derivative in every order.

    **Arguments:** `t`, `z`, `mode`: before the events. `close`: the time within which the guards fall.
    """
    several = jnp.sum(met) > 1
    judged = lambda: several & _commute(automaton, t, z, mode, met, close, params)
    # Rare: one flag for the whole batch.
    return jax.lax.cond(eqxi.unvmap_any(several), judged, lambda: jnp.array(False))


def with_joined(
    automaton: Automaton, end: Arrival, mode: Index, taken: Index, params: Params
) -> tuple[Arrival, Padded]:
    """An arrival and the state after the jump of the way `taken`, where events of one transition that `joins` them, met together
    and not in step, are one jump."""
    system, way = automaton.system, jnp.maximum(taken, 0)
    known = np.array([joins(each) for each in system.transitions], bool)
    if not (automaton.judges and may_be_in_step(system) and known.any()):
        return end, automaton.jump(end.t, end.x, way, params)
    leaving, own = automaton.leaving(mode), jnp.arange(len(system.ways)) == taken
    met = own.at[leaving].max(end.together & (leaving >= 0))
    transition = system.place(taken)[0]
    one = (end.result == RESULTS.simultaneous_guards) & jnp.asarray(known)[transition]
    one = one & jnp.all(~met | (system.ways[:, 0] == transition))
    result = choose(one, RESULTS.successful, end.result)
    end = dataclasses.replace(end, result=result, together=end.together & ~one)
    z_after = automaton.jump(end.t, end.x, way, params, jnp.where(one, met, own))
    return end, torn(z_after, one)


def torn(z: Padded, where: Flag) -> Padded:
    """A state, whose derivatives are NaN `where` neighbouring orbits do not lead near to it."""
    moved = jnp.where(where, z - stop_gradient(z), 1)
    # The slope of |y| as the root of its square, at zero.
    return jnp.where(where & jnp.all(jnp.isfinite(z)), z + jnp.sqrt(moved**2), z)


def impacts_in_step(
    system: HybridSystem, names: Sequence[str], may: Sequence[bool], impacts: Sequence[Impact], params: Params
) -> list[Flag]:
    """`in_step` for the events at the ends of arcs of the modes `names`, one after another: compiled once. **Arguments:** `may`:
    see `each_in_step`."""
    automaton = Automaton(system)
    several = [k for k, may_be in enumerate(may) if may_be]
    flags = [jnp.array(False)] * len(names)
    if not several:
        return flags
    count = automaton.surfaces.count
    numbers = jnp.array([system.number(names[k]) for k in several])
    met, points = [], []
    for k in several:
        impact, leaving = impacts[k], system.ways_out(names[k])
        own = jnp.any(impact._together) & (jnp.array(leaving) == impact._way)
        met.append(jnp.pad(impact._together | own, (0, count - len(leaving))))
        points.append((impact.t, automaton.pad(impact.x), impact._close))
    met, (t, z, close) = jnp.stack(met), jax.tree.map(lambda *each: jnp.stack(each), *points)

    def one(arc):
        t, z, mode, met, close = arc
        judged = lambda: _commute(automaton, t, z, mode, met, close, params)
        return jax.lax.cond(eqxi.unvmap_any(jnp.sum(met) > 1), judged, lambda: jnp.array(False))

    none = jnp.zeros(len(several), bool)
    judged = lambda: jax.lax.map(one, (t, z, numbers, met, close))
    found = jax.lax.cond(eqxi.unvmap_any(jnp.any(met)), judged, lambda: none) & (jnp.sum(met, axis=1) > 1)
    for k, flag in zip(several, found, strict=True):
        flags[k] = flag
    return flags


def without_order(
    system: HybridSystem, names: Sequence[str], may: Sequence[bool], impacts: Sequence[Impact], params: Params
) -> list[Impact]:
    """The impacts at the ends of arcs of the modes `names`: `successful` where events that were met together are in step, without
    numbers where they are not. **Arguments:** `may`: see `each_in_step`."""
    passed = impacts_in_step(system, names, may, impacts, params)
    found = []
    for name, impact, same in zip(names, impacts, passed, strict=True):
        if len(system.ways_out(name)) > 1:
            together = impact.result == RESULTS.simultaneous_guards
            result = choose(together & same, RESULTS.successful, impact.result)
            impact = known_where(~together | same, dataclasses.replace(impact, result=result))
        found.append(impact)
    return found


class OwedEvents(eqx.Module):
    """Events that were met together with one that has been taken. `left`: how many are still to be taken. `close`: the time
    within which they fell. `spent`: the ways taken since, whose guards may still be zero."""

    left: Index
    close: Time
    spent: Bool[Array, " ways"]

    def within(self, leaving: Array) -> Guards:
        """`owed` of `integrate` for a mode that the ways `leaving` leave, -1 in unused places."""
        there = (self.left > 0) & (leaving >= 0) & ~self.spent[leaving]
        return jnp.where(there, self.close, -1)

    def after(self, taken: Bool[Array, " ways"], together: Mask, close: Time, brief: Flag) -> "OwedEvents":
        """The events that are owed after a way whose guard was met `together` with others within the time `close`.
        **Arguments:** `taken`: the ways of `taken_at`. `brief`: whether the arc took no longer than events that are still to be
        taken."""
        fresh = jnp.any(together)
        left = jnp.where(fresh, jnp.sum(together), jnp.where(brief, jnp.maximum(self.left - 1, 0), 0))
        spent = (self.spent & ~fresh) | (taken & (left > 0))
        return OwedEvents(left, jnp.where(fresh, close, self.close), spent)


def nothing_owed(system: HybridSystem, dtype) -> OwedEvents:
    """The `OwedEvents` without events that are still to be taken."""
    return OwedEvents(jnp.array(0), jnp.zeros((), dtype), jnp.zeros(sum(system.sizes), bool))


def taken_with(system: HybridSystem, taken: Index, params: Params, dtype) -> Bool[Array, " ways"]:
    """The ways that a jump by the way `taken` takes: itself, and of a clock the ways that are the same clock in other modes.

    These are the copies of a clock of all modes; and clocks of one mode with equal period and phase. Where two modes have
    equally many that are the same, these are paired: the first of one mode and the first of the other, and so on.
    """
    first, count = np.cumsum([0, *system.sizes]), sum(system.sizes)
    own = jnp.arange(count) == taken
    ways = [(k, each.source, each.guard) for k, each in enumerate(system.transitions) if isinstance(each.guard, Clock)]
    if len({source for _, source, _ in ways}) < 2:
        return own
    places, sources = first[[k for k, *_ in ways]], np.array([source for _, source, _ in ways])
    numbers = np.array([clock.number or 0 for *_, clock in ways])
    times = jnp.stack([jnp.stack(clock.times(params, dtype)) for *_, clock in ways])
    beside = sources[:, None] == sources
    alike = jnp.all(times[:, None] == times, axis=-1) & (numbers[:, None] == numbers)
    rank, many = (jnp.sum(alike & each, axis=1) for each in (np.tril(beside, -1), beside))
    paired = (rank[:, None] == rank) & (many[:, None] == many)
    return own.at[places].set(jnp.any(alike & ((numbers > 0) | paired) & own[places], axis=1))


def taken_at(
    automaton: Automaton, t: Time, z: Padded, z_after: Padded, taken: Index, params: Params
) -> Bool[Array, " ways"]:
    """The ways that the jump from `(t, z)` to `z_after` by the way `taken` takes: those of `taken_with`, and those with the same
    guard in the mode entered. Where the jump does not leave that guard at zero, another body is there, and neither is taken."""
    own, shared = taken_with(automaton.system, taken, params, t.dtype), _shared_guards(automaton.system)
    if not (automaton.judges and np.any(shared) and may_be_in_step(automaton.system)):
        return own
    transition, member = automaton.system.numbers(jnp.maximum(taken, 0))
    transitions, members = automaton.system.ways.T
    same = jnp.asarray(shared)[transition][transitions] & (members == member)
    t, z, z_after, params = without_tangents((t, z, z_after, params))
    stays = _left_at_zero(automaton, shared, t, z, z_after, transition, member, params)
    return (own & ~same) | (same & (taken >= 0) & stays)


def _left_at_zero(
    automaton: Automaton,
    shared: np.ndarray,
    t: Time,
    z: Padded,
    z_after: Padded,
    transition: Index,
    member: Index,
    params: Params,
) -> Flag:
    r"""Whether the jump of a member of a transition leaves its guard at zero, from each point of the guard's surface: by the
    method `keeps_zeros` of the object whose methods guard and reset are, if it has one; else whether $D(g \circ R)$ is a multiple
    of $Dg$. True where the mode entered has another guard. **Arguments:** `shared`: see `_shared_guards`."""
    sources, targets = (
        jnp.array([automaton.names.index(name) for name in names])[transition]
        for names in zip(*((way.source, way.target) for way in automaton.system.transitions), strict=True)
    )
    whole, (automaton, z, own_params) = automaton, automaton.of_state(z, sources, params)
    _, z_after, _ = whole.of_state(z_after, targets, params)
    transitions, modes = automaton.system.transitions, automaton.system.modes
    again = [any(shared[i, j] for j in automaton.system.leaving(way.target)) for i, way in enumerate(transitions)]
    knows = [_keeping(way) if known else None for way, known in zip(transitions, again, strict=True)]
    dimensions = [(modes[way.source].dimension, modes[way.target].dimension) for way in transitions]

    def told(way, member):
        (before, after), keeps = way if way is not None else ((0, 0), None)
        return jnp.array(True) if keeps is None else keeps(z[:before], z_after[:after], member)

    of_methods = [None if keeps is None else (sizes, keeps) for sizes, keeps in zip(dimensions, knows, strict=True)]
    found = switched(transition, of_methods, told, member)
    ways = [
        (n, way.guard, way.reset, way._members) if known and keeps is None else None
        for (n, _), way, known, keeps in zip(dimensions, transitions, again, knows, strict=True)
    ]
    if not any(ways):
        return found
    return found & _multiple_at(ways, t, z, transition, member, own_params)


def _keeping(way: Transition) -> Callable[[State, State, Index], Flag] | None:
    """Whether the jump of a member, from one state to another, leaves its guard at zero, by the object whose methods guard and
    reset of the transition are; `None` where these are others."""
    way = as_given(way)
    asked = getattr(getattr(way.reset, "__self__", None), "keeps_zeros", None)
    return None if asked is None else asked(way.guard)


def _multiple_at(ways: Sequence[PyTree], t: Time, z: Padded, transition: Index, member: Index, params: Params) -> Flag:
    r"""Whether $D(g \circ R)$ is a multiple of $Dg$ for a member of a transition. **Arguments:** `ways`: of each transition the
    dimension of its source, guard, reset and number of members; `None` for one of which the answer is true."""

    def around(way, t, z, params, member):
        """The guard before the jump and after it."""
        if way is None:
            return jnp.zeros(2, z.dtype)
        n, guard, leap, members = way
        guard, leap = of_member(guard, leap, *([] if members is None else [member]))
        values = guard(t, z[:n], params), guard(t, leap(t, z[:n], params), params)
        return jnp.stack([jnp.asarray(value, z.dtype) for value in values])

    both = lambda point: switched(transition, ways, around, point[-1], point[:-1], params, member)
    point = jnp.append(z, t)
    eps = float(jnp.finfo(z.dtype).eps)
    # A coordinate that is zero but for rounding, as that of a body which lands, varies as one that is zero.
    general = _general(jnp.where(jnp.abs(point) > eps**0.5 * jnp.max(jnp.abs(point)), point, 0))
    other = general * jnp.cos(2.0 + 3 * jnp.arange(point.size, dtype=point.dtype))
    before, after = jax.vmap(lambda along: jax.jvp(both, (point,), (along,))[1])(jnp.stack([general, other])).T
    area = jnp.abs(before[0] * after[1] - before[1] * after[0])
    before, after = jnp.max(jnp.abs(before)), jnp.max(jnp.abs(after))
    return area <= before * (eps**0.5 * after + ROUNDINGS * eps * before)


def _shared_guards(system: HybridSystem) -> Bool[np.ndarray, "transitions transitions"]:
    """For each two transitions whether their guards are one function, in two modes; and for one with itself, if it leads back to
    its mode. Not clocks, see `taken_with`."""
    known = [content_of(as_given(way.guard)) for way in system.transitions]
    sources = np.array([way.source for way in system.transitions])
    clocks = np.array([isinstance(way.guard, Clock) for way in system.transitions], bool)
    alike = np.array([[one == other for other in known] for one in known], bool).reshape(2 * [len(known)])
    beside = alike & (sources[:, None] == sources)
    rank, many = np.sum(np.tril(beside, -1), axis=1), np.sum(beside, axis=1)
    paired = (rank[:, None] == rank) & (many[:, None] == many)
    again = np.diag(np.array([way.source == way.target for way in system.transitions], bool))
    return ((alike & ~beside & paired) | again) & ~clocks


def owed_after(
    system: HybridSystem, impact: Impact, after: State, t: Time, owed: OwedEvents, params: Params
) -> OwedEvents:
    """The events that are owed after an impact, with the state `after` it, at the end of an arc from the time `t`."""
    brief = stop_gradient(impact.t - t) <= 2 * owed.close
    automaton = Automaton(system)
    taken = taken_at(automaton, impact.t, automaton.pad(impact.x), automaton.pad(after), impact._way, params)
    return owed.after(taken, impact._together, impact._close, brief)


def _commute(automaton: Automaton, t, z, mode, met, close, params) -> Flag:
    automaton, t, z, mode, met, close, params = without_tangents((automaton, t, z, mode, met, close, params))
    automaton, z, params = automaton.of_state(z, mode, params)
    arrays, rest = eqx.partition((automaton, params), eqx.is_inexact_array)
    along_params = jax.tree.map(_general, arrays)
    eps, dtype = float(jnp.finfo(z.dtype).eps), z.dtype
    size, most = z.size, min(MOST, met.size)
    unit = jnp.append(jnp.zeros(size + 1, dtype), jnp.ones(1, dtype))
    clock = jnp.append(jnp.ones(1, dtype), jnp.zeros(size + 1, dtype))

    def moved(fn, t, z, flow, columns):
        """`fn(t, z)`, its rate along the flow, and its change with each column; the last one belongs to the parameters."""

        def push(dt, dz, dp):
            scaled = jax.tree.map(lambda d: dp.astype(d.dtype) * d, along_params)
            return jax.jvp(fn, (t, z, arrays), (dt, dz, scaled))

        value, change = jax.vmap(push, out_axes=(None, 0))(clock, jnp.concatenate([flow[None], columns]), unit)
        return value, change[0], change[1:]

    def guards_of(mode):
        def guards(t, z, arrays):
            automaton, params = eqx.combine(arrays, rest)
            return automaton.surfaces.values(t, z, (mode, params))

        return guards

    def reset_of(way):
        def after(t, z, arrays):
            automaton, params = eqx.combine(arrays, rest)
            return automaton.jump(t, z, way, params)

        return after

    def follow(choices, nudge):
        """The end of the order that takes the guards by their places `choices` among those that are left; and their number."""

        def one(carry, place):
            choice, begins = place
            mode, z, columns, left, sound, spent, sizes = carry
            flow = automaton.field(t, z, (mode, params))
            g, rates, by = moved(guards_of(mode), t, z, flow, columns)
            armed = automaton.surfaces.armed(t, z, (mode, params))
            leaving = automaton.leaving(mode)
            due = armed & (rates < 0) & (jnp.abs(g) <= -2 * close * rates) & ~spent[leaving]
            there = jnp.sum(due)
            # A guard that falls within twice the time belongs to them, though it was not met with the first.
            left = jnp.where(begins, jnp.maximum(left, there), left)
            sound = sound & (there == left) & (left <= most)
            if automaton.surfaces.at_once is not None:
                # A guard that acts at once between two of the events: the state after its jump is not examined.
                sudden = automaton.surfaces.at_once((mode, params)) & armed & ~(g > 0) & ~due
                sound = sound & ~((left > 0) & jnp.any(sudden))
            k = jnp.argmax((jnp.cumsum(due) == choice % jnp.maximum(there, 1) + 1) & due)
            taken = jnp.maximum(leaving[k], 0)
            z_after, drift, by_columns = moved(reset_of(taken), t, z, flow, columns)
            entered = automaton.target(taken)
            flow_after = automaton.field(t, z_after, (entered, params))
            delay = -by[:, k] / jnp.where(there > 0, rates[k], 1)
            columns_after = by_columns - delay[:, None] * (flow_after - drift)
            terms = jnp.abs(by_columns) + jnp.abs(delay)[:, None] * (jnp.abs(flow_after) + jnp.abs(drift))
            sizes_after = jnp.maximum(sizes[0], jnp.abs(z_after)), jnp.maximum(sizes[1], terms)
            spent_after = spent | taken_at(automaton, t, z, z_after, taken, params)
            after = entered, z_after, columns_after, left - 1, sound, spent_after, sizes_after
            return select(left > 0, after, (mode, z, columns, left, sound, spent, sizes)), left

        start = z * (1 + nudge * 64 * eps * jnp.cos(1.0 + jnp.arange(size, dtype=dtype)))
        columns = jnp.eye(size + 1, size, dtype=dtype)
        sizes = jnp.abs(start), jnp.abs(columns)
        spent = jnp.zeros(sum(automaton.system.sizes), bool)
        carry = mode, start, columns, jnp.sum(met), jnp.sum(met) <= most, spent, sizes
        (mode_end, z_end, columns_end, left, sound, _, sizes), each_left = jax.lax.scan(
            one, carry, (choices, jnp.arange(choices.size) == 0)
        )
        return (mode_end, z_end, columns_end, sound & (left == 0), sizes), each_left[0]

    # Those of so many events are the first ones. At the last place no event is left.
    places = lambda events: itertools.product(*(range(max(events - i, 1)) for i in range(most)), (0,))
    orders = jnp.array(list(dict.fromkeys(itertools.chain.from_iterable(map(places, range(1, most + 1))))))
    # Each from the state and from one a rounding beside it.
    numbers = 2 * jnp.array([math.factorial(events) for events in range(most + 1)])

    def one_order(carry):
        k, count, found = carry
        end, events = follow(orders[k // 2], (k % 2).astype(dtype))
        found = jax.tree.map(lambda rows, row: rows.at[k].set(row), found, end)
        return k + 1, jnp.maximum(count, numbers[jnp.minimum(events, most)]), found

    shapes, _ = jax.eval_shape(follow, orders[0], jnp.zeros((), dtype))
    blank = jax.tree.map(lambda leaf: jnp.zeros((2 * len(orders), *leaf.shape), leaf.dtype), shapes)
    start = jnp.array(0), jnp.array(2), blank
    _, count, found = jax.lax.while_loop(lambda carry: carry[0] < carry[1], one_order, start)
    rows = jnp.arange(2 * len(orders))
    followed = jnp.where(rows < count, rows, rows % 2).reshape(-1, 2)
    return _alike(automaton, mode, jax.tree.map(lambda leaf: leaf[followed], found))


def _alike(automaton: Automaton, mode: Index, ends: PyTree) -> Flag:
    """Whether all orders of some events end in one mode, one state and one derivative, but for rounding.

    **Arguments:** `ends`: of each order, from the state and from one a rounding beside it, shape `(orders, 2, ...)`: mode, state,
    derivatives by state and parameters, whether they are sound, and the sizes of state and derivatives on the way.
    """
    modes, states, columns, sound, (z_sizes, terms) = ends
    eps = float(jnp.finfo(states.dtype).eps)
    # The effect of the state's rounding error on each order bounds its effect on the differences between the orders.
    blurred = lambda ends: jnp.max(jnp.abs(ends[:, 1] - ends[:, 0]), axis=0)
    differ = lambda ends: jnp.max(jnp.abs(ends[:, 0] - ends[0, 0]), axis=0)
    largest = lambda sizes: jnp.max(sizes, axis=(0, 1))
    same_state = differ(states) <= 8 * blurred(states) + 64 * eps * largest(z_sizes)
    # What follows the state, such as tangents, has derivatives of its own, which are second derivatives of the state.
    own = jnp.outer(jnp.append(automaton.is_state(mode), True), automaton.is_state(modes[0, 0]))
    same_derivative = ~own | (differ(columns) <= 8 * blurred(columns) + ROUNDINGS * eps * largest(terms))
    return jnp.all(sound) & jnp.all(modes == modes[0, 0]) & jnp.all(same_state) & jnp.all(same_derivative)


def _general(leaf: jax.Array) -> jax.Array:
    """A generic variation of an array: all entries vary, and no two alike."""
    size = jnp.where(leaf == 0, 1, jnp.abs(leaf))
    return size * (1 + 0.3 * jnp.cos(1.0 + jnp.arange(leaf.size, dtype=leaf.dtype))).reshape(leaf.shape)
