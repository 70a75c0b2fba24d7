r"""One stride, the flows and jumps along a given sequence of modes; its Jacobian; the monodromy matrix."""

import dataclasses
import functools as ft
import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._flow.flow import flow_for, Impact, run_to_guard
from .._flow.in_step import each_in_step, nothing_owed, owed_after, without_order
from .._flow.integrator import Integrators, pushable, same_integrator
from .._flow.jump import reset, variation_of_jump
from .._numerics.eager import short_run
from .._numerics.trees import content_of
from .._results.shown import Shown
from .._system.results import choose, code_of_state, nan_unless, RESULTS
from .._system.system import as_given, HybridSystem, of_arc, Transition
from .._system.types import Params, Scalar, State, Time

# From so many equal arcs, one after another, a loop compiles them once; and of events in step so many orders are tried.
MANY, MOST_ORDERS = 4, 24


class Stride(Shown):
    """One stride $S(x)$: a pass through a sequence of modes, from just after a jump to just after the last jump.

    **Attributes:** `x`: state after the last jump, shape `(n,)`. `time`: the stride's duration, in units of time. `impacts`: for
    each arc the `Impact` before its jump. `guard_rates`: in the guards' units per time, shape `(arcs,)`, negative where the flow
    crosses the guard's surface. `result`: `successful`, or the first other code of an arc; then the numbers are NaN.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> after = wheel.step(wheel.guess(params), params)
    >>> print(after.impacts[0].x.round(6), after.guard_rates.round(6))
    [0.523599 0.965173] [-0.965173]

    Source: Bhounsule (2014), eqs. 1-5.
    """

    x: State
    time: Scalar
    impacts: tuple[Impact, ...]
    guard_rates: Float[Array, " arcs"]
    result: RESULTS


def run_stride(
    system: HybridSystem,
    t: Time,
    x: State,
    params: Params,
    sequence: tuple[str, ...],
    integrator: Integrators,
    arcs: Sequence[Callable[..., Impact]] | None = None,
) -> Stride:
    """The stride from the time `t`. `arcs`: for each arc, a function to use in place of `run_to_guard`."""
    start, impacts, route, may = t, [], system.route(sequence), each_in_step(system, sequence)
    owed = nothing_owed(system, x.dtype) if any(may) else None

    def arrive(
        now: tuple, mode: str, expected, out: Array, jump: Callable, to_guard=run_to_guard
    ) -> tuple[tuple, Impact]:
        t, x, owed = now
        within = None if owed is None else owed.within(out)
        impact = to_guard(system, mode, t, x, params, integrator, expected, within)
        transition, member = system.numbers(jnp.asarray(expected))
        # Of a family whichever guard has fallen: see `_in_order_of`.
        same = impact.transition == transition
        after = jump(impact.t, impact.x, jnp.where(same, impact.index, member))
        owed = None if owed is None else owed_after(system, impact, after, t, owed, params)
        fits = (impact.result == RESULTS.successful) & same
        code = choose(fits, code_of_state(after), impact.result)
        return (impact.t, after, owed), dataclasses.replace(impact, result=code)

    now, alike = (t, x, owed), arcs_alike(system, sequence, route, integrator)
    for _, group in itertools.groupby(range(len(route)), alike.__getitem__):
        numbers = list(group)
        if arcs is None and len(numbers) >= MANY:
            now, stacked = _in_loop(arrive, system, [(sequence[k], route[k]) for k in numbers], params, now)
            impacts += [jax.tree.map(lambda leaf, k=k: leaf[k], stacked) for k in range(len(numbers))]
            continue
        for k in numbers:
            way, out = system.transitions[system.ways[route[k], 0]], jnp.array(system.ways_out(sequence[k]))
            jump = lambda t, x, member, way=way: reset(way.member(member), t, x, params)
            now, impact = arrive(now, sequence[k], route[k], out, jump, run_to_guard if arcs is None else arcs[k])
            impacts.append(impact)
    t, x, _ = now
    impacts, result = without_order(system, sequence, may, impacts, params), RESULTS.successful
    impacts = _in_order_of(system, sequence, route, impacts, t - start, params)
    for impact, expected in zip(impacts, route, strict=True):
        wrong = (impact.result == RESULTS.successful) & (impact._way != expected)
        code = choose(wrong, RESULTS.unexpected_transition, impact.result)
        result = choose(result == RESULTS.successful, code, result)
    result = choose(result == RESULTS.successful, code_of_state(x), result)
    good = result == RESULTS.successful
    return Stride(
        x=nan_unless(good, x),
        time=nan_unless(good, t - start),
        impacts=tuple(impacts),
        guard_rates=jnp.stack([impact.guard_rate for impact in impacts]),
        result=result,
    )


def _in_order_of(
    system: HybridSystem,
    sequence: tuple[str, ...],
    route: tuple[int, ...],
    impacts: list[Impact],
    time: Scalar,
    params: Params,
) -> list[Impact]:
    """The impacts, of which those by guards of one family that fall within a short time, as of legs that land together, are in
    the order of the route: each with the state before its jump, after those of the route before it, and with the derivatives of
    its own time. What is not by the route stays."""
    wanted, impacts = system.ways[list(route)], list(impacts)
    close = float(jnp.finfo(time.dtype).eps) ** 0.5 * jnp.abs(time)
    for _, group in itertools.groupby(range(len(route)), _ends(system, route).__getitem__):
        block = list(group)
        way = system.transitions[wanted[block[0], 0]]
        if len(block) == 1 or not way.is_family:
            continue
        members, numbers = wanted[block, 1], np.arange(len(block))
        times = jnp.stack([impacts[k].t for k in block])
        met = jnp.stack([jnp.where(impacts[k].transition == wanted[k, 0], impacts[k].index, -1) for k in block])
        near = (jnp.abs(times[:, None] - times) <= close) & (met[None, :] == members[:, None])
        # The guard that is wanted here falls soon, and that which falls here is wanted soon.
        fits = jnp.any(near, axis=1) & jnp.any(near, axis=0)
        place = jnp.where(met == members, numbers, jnp.where(fits, jnp.argmax(near, axis=1), numbers))
        moved = jnp.any(place != numbers)
        own = times[place]
        ends = own + jax.lax.stop_gradient(times - own)
        begins = np.append(True, np.zeros(len(block) - 1, bool)) | (jnp.diff(times, prepend=times[:1]) > close)
        fields = [system.mode(sequence[k]).vector_field for k in block]
        contents = [content_of(as_given(field)) for field in fields]
        distinct = list(dict.fromkeys(contents))
        # A partial function has no hash, which a switch asks for.
        kinds = [lambda *point, field=fields[contents.index(each)]: field(*point) for each in distinct]
        branches = [distinct.index(each) for each in contents]

        def one(now: tuple, row: tuple, way=way, kinds=kinds) -> tuple[tuple, Array]:
            begins, t, x, end, member, branch = row
            t, x = (jnp.where(begins, first, after) for first, after in zip((t, x), now, strict=True))
            x = x + (end - t) * jax.lax.switch(branch, kinds, t, x, params)
            return (end, reset(way.member(member), end, x, params)), x

        x = jnp.stack([impacts[k].x for k in block])
        rows = begins, times, x, ends, jnp.asarray(members), jnp.array(branches)
        _, ordered = jax.lax.scan(one, (times[0], x[0]), rows)
        rates = jnp.stack([impacts[k].guard_rate for k in block])[place]
        for i, k in enumerate(block):
            impacts[k] = dataclasses.replace(
                impacts[k], t=ends[i], x=jnp.where(moved, ordered[i], x[i]), guard_rate=rates[i],
                index=jnp.where(fits[i], members[i], impacts[k].index), _way=jnp.where(fits[i], route[k], impacts[k]._way),
            )  # fmt: skip
    return impacts


def arcs_alike(
    system: HybridSystem, sequence: Sequence[str], route: Sequence[int], integrator: Integrators
) -> list[int]:
    """For each arc the first one with the same integrator and functions: the flow, guards and resets of its mode, which may be a
    copy of another; and whose jump leads to a state of the same dimension, as of that arc itself. Each other arc for itself."""
    found: list[int] = []
    contents, own = [_content(system, mode) for mode in sequence], [integrator.of(mode) for mode in sequence]
    for k, way in enumerate(route):
        stays = system.mode(system.way(way).target).dimension == system.mode(sequence[k]).dimension
        earlier = [j for j in dict.fromkeys(found) if stays and contents[j] == contents[k]]
        found.append(next((j for j in earlier if same_integrator(own[j], own[k])), k))
    return found


def _content(system: HybridSystem, mode: str) -> tuple:
    """The functions of a mode, and of the transitions that leave it, in their order; as what they are compared by."""
    return content_of(as_given(system.mode(mode))), *map(_functions, system.transitions_out(mode))


def _ends(system: HybridSystem, route: tuple[int, ...]) -> list[tuple]:
    """For each arc the dimension of its mode and the functions of the transition at its end; as what they are compared by."""
    ends = [system.transitions[k] for k in system.ways[list(route), 0]]
    return [(system.mode(way.source).dimension, _functions(way)) for way in ends]


def _functions(way: Transition) -> tuple:
    """The functions of a transition, wherever it leads from and to; as what they are compared by."""
    return content_of(as_given(dataclasses.replace(way, source="", target="")))


def _in_loop(arrive: Callable, system: HybridSystem, arcs: list[tuple[str, int]], params: Params, now: tuple):
    """Arcs of one kind in a loop, compiled once: what is now after them, and their impacts along a leading axis."""
    mode = arcs[0][0]
    places = [system.leaving(name).index(system.ways[way, 0]) for name, way in arcs]
    taken = sorted(set(places))

    ways = [system.transitions_out(mode)[place] for place in taken]
    jumps = [lambda t, x, member, way=way: reset(way.member(member), t, x, params) for way in ways]

    def one(now: tuple, row: tuple) -> tuple[tuple, Impact]:
        expected, out, branch = row
        jump = lambda t, x, member: jax.lax.switch(branch, jumps, t, x, member)
        later, impact = arrive(now, mode, expected, out, jump, ft.partial(run_to_guard, out=out))
        # A carry keeps its dtypes.
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), later, now), impact

    rows = [(way, system.ways_out(name), taken.index(place)) for (name, way), place in zip(arcs, places, strict=True)]
    return jax.lax.scan(one, now, tuple(map(jnp.array, zip(*rows, strict=True))))


# Under `jit` the stride is traced once, for the values and the derivatives of every order.
traced_stride = short_run(run_stride)


def orders(system: HybridSystem, sequence: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The sequence, and those in which two events that may be in step, one after another, change places, again and again: between
    them is another mode."""
    found = [sequence]
    for each in found[:MOST_ORDERS]:
        for k, may in enumerate(each_in_step(system, each)[: len(each) - 1]):
            here, after = each[k], each[(k + 2) % len(each)]
            between = {way.target for way in system.transitions if may and way.source == here and not way.is_family}
            for mode in between - {each[k + 1]}:
                other = (*each[: k + 1], mode, *each[k + 2 :])
                if other not in found and any(way.target == after for way in system.transitions_out(mode)):
                    found.append(other)
    return found


def sequence_met(
    system: HybridSystem, t: Time, x: State, params: Params, sequence: tuple[str, ...], integrator: Integrators
) -> tuple[str, ...]:
    """The sequence of the stride from `(t, x)`: that of `orders` which is met, with the guards of each family in the order in
    which they fall, such as those of legs that land together near by; at one time in the order of their numbers."""
    every = orders(system, sequence)
    if len(every) == 1 and all(of_arc(name, system.names)[1] is None for name in sequence):
        return sequence
    found = (_met(system, t, x, params, each, integrator) for each in every)
    return next((each for each in found if each is not None), sequence)


def _met(
    system: HybridSystem, t: Time, x: State, params: Params, sequence: tuple[str, ...], integrator: Integrators
) -> tuple[str, ...] | None:
    """The sequence in the order of the members of families that is met; `None` where other transitions are."""
    arcs, route = [of_arc(name, system.names) for name in sequence], system.route(sequence)
    wanted = system.ways[list(route), 0]
    through = traced_stride(system, t, x, params, sequence, integrator)
    rows = [(impact.t, impact.transition, impact.index) for impact in through.impacts]
    times, taken, members = (np.array(column) for column in zip(*rows, strict=True))
    if np.any(taken != wanted):
        return None
    of, close = _ends(system, route), np.finfo(times.dtype).eps ** 0.5 * times[-1]
    apart = [False, *(of[k] != of[k - 1] or times[k] - times[k - 1] > close for k in range(1, len(of)))]
    order = np.lexsort((members, np.cumsum(apart)))
    return tuple(f"{mode}[{k}]" if k >= 0 else mode for (mode, _), k in zip(arcs, members[order], strict=True))


@short_run
def jacobian_of_stride(system, t, x, params, sequence, integrator):
    """The Jacobian of the state after a stride, shape `(n, n)`, NaN where the stride fails; and the code."""

    def end(x):
        through = run_stride(system, t, x, params, sequence, pushable(integrator))
        return through.x, through.result

    jacobian, result = jax.jacfwd(end, has_aux=True)(x)
    return nan_unless(result == RESULTS.successful, jacobian), result


@short_run
def timed_jacobian(system, t, x, params, sequence, integrator):
    """The Jacobian of time and state after a stride by those at its start, shape `(1 + n, 1 + n)`; NaN where the stride fails."""

    def end(start):
        through = run_stride(system, start[0], start[1:], params, sequence, pushable(integrator))
        return jnp.append(start[0] + through.time, through.x), through.result

    jacobian, result = jax.jacfwd(end, has_aux=True)(jnp.append(t, x))
    return nan_unless(result == RESULTS.successful, jacobian)


@short_run
def monodromy_of_stride(system, t, x, params, sequence, integrator):
    """The monodromy matrix of a stride, NaN where the stride fails; and the code."""
    total, delay = jnp.eye(x.shape[0], dtype=x.dtype), jnp.zeros_like(x)
    through = run_stride(system, t, x, params, sequence, integrator)
    pushed = pushable(integrator)
    for mode, taken, impact in zip(sequence, system.route(sequence), through.impacts, strict=True):
        flow = jax.jacfwd(lambda x: flow_for(system, mode, t, x, impact.t, params, pushed))(x)  # noqa: B023
        way, total = system.way(taken), flow @ total
        fields = system.mode(way.source).vector_field, system.mode(way.target).vector_field
        jacobian, slip, late, _ = variation_of_jump(*fields, way.guard, way.reset, impact.t, impact.x, params)
        # A jump that is taken at once is as late as the one before it, and at the start is not late.
        delay = jnp.where(impact.at_once, delay, late @ total) if way.at_once else late @ total
        total = jacobian @ total - jnp.outer(slip, delay)
        t, x = impact.t, reset(way, impact.t, impact.x, params)
    return nan_unless(through.result == RESULTS.successful, total), through.result
