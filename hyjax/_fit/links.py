"""A link of a record as the model predicts it: the flow from a state to the next event of a kind, and what is measured on the
way."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton, ByMode, functions_by_mode, Index, Padded
from .._flow.integrator import Integrators
from .._flow.jump import reset
from .._flow.simulate import ArcStart, first_arc, follow_arc
from .._numerics.trees import select
from .._orbit.return_map import ReturnMap
from .._orbit.stride import Stride
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem, Transition
from .._system.types import Params, State, Time
from .recording import BEFORE, known_names, Links, NONE

Quantities = Float[Array, " quantities"]


class Node(eqx.Module):
    """The node at which a link begins: time, state (padded with zeros to the largest dimension of a mode) and mode, just
    before the jump by the `way`; -1 for none. (Hazard: free states just after a jump would lie beside the guard's surface, and
    fire at once.) `owed`: whether another event was met with that of the jump, and is still to be taken."""

    t: Float[Array, "*links"]
    z: Float[Array, "*links size"]
    mode: Int[Array, "*links"]
    way: Int[Array, "*links"]
    owed: Bool[Array, "*links"]


class LinkEnd(eqx.Module):
    """A link's end: the node there; the quantities at its end and at its samples; a code."""

    node: Node
    ending: Float[Array, "*links quantities"]
    samples: Float[Array, "*links samples quantities"]
    result: RESULTS


class Measured(eqx.Module):
    """The measured quantities: $(t, h_1, h_2, \\ldots)$. **Attributes:** `of_mode`: of all but the time. `early`: which are of
    the state before a jump. `places`: of those that are coordinates, the place in the state of each mode, else -1.
    `known`: whether a mode has the quantity."""

    of_mode: ByMode
    early: tuple[bool, ...] = eqx.field(static=True)
    places: Int[Array, "modes quantities"]
    known: Bool[Array, "modes quantities"]

    @property
    def before(self) -> Bool[Array, " quantities"]:
        return jnp.array(self.early)

    def __call__(self, mode: Index, t: Time, z: Padded, params: Params) -> Quantities:
        return jnp.append(jnp.reshape(t, 1), self.of_mode(mode, t, z, params))


def _observed(functions: tuple[Callable | int | None, ...], t: Time, x: State, params: Params) -> Quantities:
    """What is measured in a mode. **Arguments:** `functions`: one for each quantity, or the place of a coordinate, or `None` of
    a quantity that the mode does not have."""

    def one(each):
        if each is None:
            return jnp.zeros_like(t)
        return x[each] if isinstance(each, int) else each(t, x, params)

    return jnp.stack([jnp.asarray(one(each), x.dtype) for each in functions] or [t])[: len(functions)]


def measured_of(
    system: HybridSystem, names: tuple[str, ...], observed: Mapping[str, Any], t, dtype, params
) -> Measured:
    """The quantities of these names: functions `(t, x, params) -> number`, or coordinates of each mode."""
    known = known_names(system, observed)
    before = [name.endswith(BEFORE) and name not in known for name in names]
    own = [name.removesuffix(BEFORE) if early else name for name, early in zip(names, before, strict=True)]

    of_modes = [mode.coordinates for mode in system.modes.values()]
    places = [[each.index(name) if name in each else None for name in own] for each in of_modes]
    named = [tuple(observed.get(*pair) for pair in zip(own[1:], row[1:], strict=True)) for row in places]
    seen = [eqx.Partial(_observed, functions) for functions in named]
    given = dict(zip(system.names, seen, strict=True))
    of_mode = functions_by_mode(
        system, given, (params,), (len(names) - 1,), t, dtype, "fit: observe", "and each must return a number"
    )
    pairs = [list(zip(row, own, strict=True)) for row in places]
    free = [[-1 if k is None or name in observed else k for k, name in row] for row in pairs]
    has = [[name in observed or name == "time" or k is not None for k, name in row] for row in pairs]
    return Measured(of_mode, tuple(before), jnp.array(free), jnp.array(has))


class FlowLinks(eqx.Module):
    """Links of a simulation. **Attributes:** `kinds`: for each kind of event the ways that it takes. `max_jumps`: in a link,
    static. `longest`: the time within which an event must come."""

    automaton: Automaton
    measured: Measured
    kinds: Bool[Array, "kinds ways"]
    integrator: Integrators
    max_jumps: int = eqx.field(static=True)
    longest: Float[Array, ""]

    @property
    def system(self) -> HybridSystem:
        return self.automaton.system

    def __call__(self, node: Node, link: Links, params: Params) -> LinkEnd:
        """The link from a node. `no_crossing`: no event of its kind within the integrator's `max_time`. `simultaneous_guards`:
        from a node at which another event is owed, which the link would not take."""
        event, count = link.kind >= 0, link.times.shape[-1]
        wanted = self.kinds[jnp.maximum(link.kind, 0)] & event
        longest, real = jnp.where(event, self.longest, 0), jnp.append(jnp.array(True), link.sample_rows >= 0)
        # Between two events a sample is at the same part of the interval: the recorded one and that of the model.
        parts = jnp.append(jnp.zeros((), link.times.dtype), link.times - link.start)
        parts = parts / jnp.where(event & (link.end > link.start), link.end - link.start, 1)
        jumps = (node.way >= 0) & (link.kind != NONE)
        way = jnp.maximum(node.way, 0)
        z = (
            jnp.where(jumps, self.automaton.jump(node.t, node.z, way, params), node.z)
            if self.automaton.system.transitions
            else node.z
        )
        begin = node.t, z, jnp.where(jumps, self.automaton.target(way), node.mode)

        def one(carry, each):
            now, met, code = carry
            k, part, there = each
            first = k == 0
            time = node.t + part * jnp.where(event, met - node.t, 1)
            until = jnp.where(first, node.t + longest, jnp.maximum(time, now[0]))
            last, hits, before = self._advance(now, until, wanted & first, jnp.where(first, 1 + link.skip, 1), params)
            code = choose((code == RESULTS.successful) & there, last.result, code)
            here = last.t, last.z, last.mode
            after = select(first, begin, here), jnp.where(first, last.t, met), code
            return after, (here, hits, before, self.measured(here[2], here[0], here[1], params))

        code = choose(node.owed & (link.kind != NONE), RESULTS.simultaneous_guards, RESULTS.successful)
        # First to the event, then through the samples: one loop, so that the flow is compiled once.
        (_, _, code), rows = jax.lax.scan(one, (begin, node.t, code), (jnp.arange(1 + count), parts, real))
        (end, hits, before, ending), sampled = (jax.tree.map(lambda leaf, k=k: leaf[k], rows) for k in (0, -1))
        ending = jnp.where(self.measured.before, self.measured(before.mode, end[0], before.z, params), ending)
        result = choose(event & (hits <= link.skip) & (code == RESULTS.successful), RESULTS.no_crossing, code)
        absent = jnp.any((link.weights > 0) & ~self.measured.known[end[2]])
        absent = absent | jnp.any((link.sample_weights > 0) & ~self.measured.known[rows[0][2][1:]])
        result = choose(absent & (result == RESULTS.successful), RESULTS.unexpected_transition, result)
        result = choose(link.kind == NONE, RESULTS.successful, result)
        t, z, mode = sampled[0]
        after = select(event, before, Node(t, z, mode, jnp.full_like(node.way, -1), jnp.array(False)))
        return LinkEnd(select(link.kind == NONE, node, after), ending, rows[3][1:], result)

    def _advance(
        self, begin: tuple, until: Time, wanted: Bool[Array, " ways"], count: Int[Array, ""] | int, params: Params
    ) -> tuple[ArcStart, Int[Array, ""], Node]:
        """Arcs from time, state and mode until a time, or until the event of the number `count` among those that are `wanted`,
        with the jump there. **Returns:** the next arc's start, the number of events met, and the node before the last of
        them."""
        automaton, (t, z, mode) = self.automaton, begin
        start = first_arc(automaton, z, mode, t, until)

        def one(carry, k):
            now, hits, before = carry
            after, row = follow_arc(automaton, now, k == self.max_jumps, start, until, params, self.integrator)
            hit = row.jumped & (row.way >= 0) & wanted[jnp.maximum(row.way, 0)]
            at_hit = Node(row.end, row.x_end, row.mode, row.way, after.instant.owed.left > 0)
            return after, hits + hit.astype(hits.dtype), select(hit, at_hit, before)

        going = lambda carry: ~carry[0].done & (carry[1] < count)
        carry = start, jnp.array(0), Node(t, z, mode, jnp.full_like(mode, -1), jnp.array(False))
        if self.integrator.loop == "lax":
            step = lambda carry: (one(carry[0], carry[1]), carry[1] + 1)
            return jax.lax.while_loop(lambda carry: going(carry[0]), step, (carry, jnp.array(0)))[0]
        scanned = lambda carry, k: (select(going(carry), one(carry, k), carry), None)
        return jax.lax.scan(scanned, carry, jnp.arange(self.max_jumps + 1))[0]


class MapLinks(eqx.Module):
    """Links of a return map: each is one pass, from the state before the jump that closed the pass before."""

    step: ReturnMap
    measured: Measured

    @property
    def system(self) -> HybridSystem:
        return self.step.system

    @property
    def integrator(self) -> Integrators:
        assert self.step.integrator is not None
        return self.step.integrator

    @property
    def closing_way(self) -> Transition:
        """The transition that closes a pass along a sequence."""
        assert self.step.sequence is not None
        return self.step.system.way(self.step.system.route(self.step.sequence)[-1])

    def __call__(self, node: Node, link: Links, params: Params) -> LinkEnd:
        step, n = self.step, self.step.system.mode(self.step.mode).dimension
        first, mode = node.z[:n], jnp.full_like(node.mode, step.system.number(step.mode))
        if step.sequence is None:
            through = step(first, params, node.t, throw=False)
            before, after, way = through.x, through.x, jnp.full_like(mode, -1)
        else:
            closing, closed = step.system.route(step.sequence)[-1], self.closing_way
            size = step.system.mode(closed.source).dimension
            x = jnp.where(node.way >= 0, reset(closed, node.t, node.z[:size], params), first)
            through = step(x, params, node.t, throw=False)
            assert isinstance(through, Stride)
            before, after, way = through.impacts[-1].x, through.x, jnp.full_like(mode, closing)
        t, pad = node.t + through.time, lambda x: jnp.pad(x, (0, node.z.size - x.size))
        ending = self.measured(mode, t, pad(after), params)
        if step.sequence is not None and any(self.measured.early):
            ending = jnp.where(self.measured.before, self.measured(mode, t, pad(before), params), ending)
        none = link.kind == NONE
        reached = select(none, node, Node(t, pad(before), mode, way, jnp.array(False)))
        samples = jnp.zeros((link.times.shape[-1], ending.size), ending.dtype)
        return LinkEnd(reached, ending, samples, choose(none, RESULTS.successful, through.result))
