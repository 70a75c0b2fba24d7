"""A link of a record as the model predicts it: the flow from a state to the next event of a kind, and what is measured on the
way."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._flow.automaton import Automaton, ByMode, functions_by_mode, Index, Padded
from .._flow.in_step import OwedEvents
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

# More events than any link has.
NEVER = 2**30

Quantities = Float[Array, " quantities"]


class Node(eqx.Module):
    """The node at which a link begins: time, state (padded with zeros to the largest dimension of a mode) and mode, just
    before the jump by the `way`; -1 for none. (Hazard: free states just after a jump would lie beside the guard's surface, and
    fire at once; after events in any order, of which the last is not known, they are there all the same.) `owed`: the events that
    were met with that of the jump, and are still to be taken after it."""

    t: Float[Array, "*links"]
    z: Float[Array, "*links size"]
    mode: Int[Array, "*links"]
    way: Int[Array, "*links"]
    owed: OwedEvents


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


def by_record(fn: Callable) -> Callable:
    """`jax.vmap(fn)`. One record alone is no batch, which takes longer to compile."""

    def every(*args):
        if len(jax.tree.leaves(args)[0]) > 1:
            return jax.vmap(fn)(*args)
        return jax.tree.map(lambda leaf: leaf[None], fn(*jax.tree.map(lambda leaf: leaf[0], args)))

    return every


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

    def __call__(self, node: Node, link: Links, params: Params, due: Int[Array, " kinds"] | None = None) -> LinkEnd:
        """The link from a node. `no_crossing`: no event of its kind within the integrator's `max_time`. **Arguments:** `due`: how
        many events of each kind come from the node to that of the end, which is then behind the jumps of all; 0 for the node
        before the jump of the link's own event."""
        event, count = link.kind >= 0, link.times.shape[-1]
        own = jnp.where(jnp.arange(len(self.kinds)) == link.kind, 1 + link.skip, jnp.where(event, 0, NEVER))
        longest, real = jnp.where(event, self.longest, 0), jnp.append(jnp.array(True), link.sample_rows >= 0)
        # Between two events a sample is at the same part of the interval: the recorded one and that of the model.
        parts = jnp.append(jnp.zeros((), link.times.dtype), link.times - link.start)
        parts = parts / jnp.where(event & (link.end > link.start), link.end - link.start, 1)
        begin = select(link.kind == NONE, node, self.landed(node, params))
        all_due = jnp.zeros_like(own) if due is None else due
        grouped = jnp.any(all_due > 0)
        if due is not None:
            real, parts = jnp.append(real, grouped), jnp.append(parts, 0)

        def one(carry, each):
            now, met, code = carry
            k, part, there = each
            first, group = k == 0, k > count
            time = node.t + part * jnp.where(event, met - node.t, 1)
            until = jnp.where(first | group, node.t + longest, jnp.maximum(time, now.t))
            wanted = jnp.where(first, own, jnp.where(group, all_due, NEVER))
            last, hits, before = self._advance(select(group, begin, now), until, wanted, link.kind, params)
            code = choose((code == RESULTS.successful) & there, last.result, code)
            here = Node(last.t, last.z, last.mode, jnp.full_like(node.way, -1), last.instant.owed)
            after = select(first, begin, here), jnp.where(first, last.t, met), code
            return after, (here, hits, before, self.measured(here.mode, here.t, here.z, params))

        # First to the event, then through the samples, and to the last of those that are due: one loop, so that the flow is
        # compiled once.
        (_, _, code), rows = jax.lax.scan(
            one, (begin, node.t, RESULTS.successful), (jnp.arange(len(parts)), parts, real)
        )
        (end, hits, before, ending), sampled, (passed, taken, *_) = (
            jax.tree.map(lambda leaf, k=k: leaf[k], rows) for k in (0, count, -1)
        )
        ending = jnp.where(self.measured.before, self.measured(before.mode, end.t, before.z, params), ending)
        short = (event & jnp.any(hits < own)) | (grouped & jnp.any(taken < all_due))
        result = choose(short & (code == RESULTS.successful), RESULTS.no_crossing, code)
        absent = jnp.any((link.weights > 0) & ~self.measured.known[end.mode])
        absent = absent | jnp.any((link.sample_weights > 0) & ~self.measured.known[rows[0].mode[1 : 1 + count]])
        result = choose(absent & (result == RESULTS.successful), RESULTS.unexpected_transition, result)
        result = choose(link.kind == NONE, RESULTS.successful, result)
        after = select(link.kind == NONE, node, select(event, before, sampled[0]))
        return LinkEnd(select(grouped, passed, after), ending, rows[3][1 : 1 + count], result)

    def landed(self, node: Node, params: Params) -> Node:
        """The node after its jump, if there is one."""
        if not self.system.transitions:
            return node
        way = jnp.maximum(node.way, 0)
        z, mode = self.automaton.jump(node.t, node.z, way, params), self.automaton.target(way)
        return select(node.way >= 0, Node(node.t, z, mode, jnp.full_like(way, -1), node.owed), node)

    def _advance(
        self, begin: Node, until: Time, wanted: Int[Array, " kinds"], kind: Int[Array, ""], params: Params
    ) -> tuple[ArcStart, Int[Array, " kinds"], Node]:
        """Arcs from a node that has landed until a time, or until as many events of each kind as are `wanted` were met, with the
        jump of the last. **Returns:** the next arc's start, the number of events met, and the node before the last of
        `kind`."""
        automaton = self.automaton
        start = first_arc(automaton, begin.z, begin.mode, begin.t, until)
        start = eqx.tree_at(lambda each: each.instant.owed, start, begin.owed)

        def one(carry, k):
            now, hits, before = carry
            after, row = follow_arc(automaton, now, k == self.max_jumps, start, until, params, self.integrator)
            met = row.jumped & (row.way >= 0) & self.kinds[:, jnp.maximum(row.way, 0)]
            at_hit = Node(row.end, row.x_end, row.mode, row.way, after.instant.owed)
            hit = met[jnp.maximum(kind, 0)] & (kind >= 0)
            return after, hits + met.astype(hits.dtype), select(hit, at_hit, before)

        going = lambda carry: ~carry[0].done & jnp.any(carry[1] < wanted)
        carry = start, jnp.zeros_like(wanted), begin
        step = lambda carry: (one(carry[0], carry[1]), carry[1] + 1)
        return eqxi.while_loop(
            lambda carry: going(carry[0]), step, (carry, jnp.array(0)), max_steps=self.max_jumps + 1,
            kind=self.integrator.loop,
        )[0]  # fmt: skip


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

    @property
    def automaton(self) -> Automaton:
        """All modes of the system."""
        return Automaton(self.system)

    def landed(self, node: Node, params: Params) -> Node:
        """The node after the jump that closed the pass before."""
        closed = self.closing_way
        x = reset(closed, node.t, node.z[: self.system.mode(closed.source).dimension], params)
        mode = jnp.full_like(node.mode, self.system.number(closed.target))
        after = Node(node.t, self.automaton.pad(x), mode, jnp.full_like(node.way, -1), node.owed)
        return select(node.way >= 0, after, node)

    def __call__(self, node: Node, link: Links, params: Params, due: Array | None = None) -> LinkEnd:
        """A pass from a node. **Arguments:** `due`: not used, there is one event in a pass."""
        step, n = self.step, self.step.system.mode(self.step.mode).dimension
        mode = jnp.full_like(node.mode, step.system.number(step.mode))
        if step.sequence is None:
            through = step(node.z[:n], params, node.t, throw=False)
            before, after, way = through.x, through.x, jnp.full_like(mode, -1)
        else:
            closing = step.system.route(step.sequence)[-1]
            through = step(self.landed(node, params).z[:n], params, node.t, throw=False)
            assert isinstance(through, Stride)
            before, after, way = through.impacts[-1].x, through.x, jnp.full_like(mode, closing)
        t, pad = node.t + through.time, lambda x: jnp.pad(x, (0, node.z.size - x.size))
        ending = self.measured(mode, t, pad(after), params)
        if step.sequence is not None and any(self.measured.early):
            ending = jnp.where(self.measured.before, self.measured(mode, t, pad(before), params), ending)
        none = link.kind == NONE
        reached = select(none, node, Node(t, pad(before), mode, way, node.owed))
        samples = jnp.zeros((link.times.shape[-1], ending.size), ending.dtype)
        return LinkEnd(reached, ending, samples, choose(none, RESULTS.successful, through.result))


def as_measured(
    links: FlowLinks | MapLinks, node: Node, values: Quantities, weights: Quantities, params: Params
) -> Node:
    """The node after its jump, with the coordinates in place that were measured there: a first guess. Each is, one after the
    other, unless a guard would change by more than half: beside its surface it would fire at once, or be passed."""
    landed = links.landed(node, params)
    if not links.system.transitions:
        return landed
    guards = lambda z: links.automaton.surfaces.values(landed.t, z, (landed.mode, params))
    z, known = landed.z, guards(landed.z)
    for k, early in enumerate(links.measured.early):
        place = links.measured.places[landed.mode, k]
        moved = z.at[place].set(values[k])
        same = jnp.all(jnp.abs(guards(moved) - known) <= jnp.abs(known) / 2)
        z = jnp.where(same & (place >= 0) & (weights[k] > 0) & (not early), moved, z)
    return eqx.tree_at(lambda each: each.z, landed, z)
