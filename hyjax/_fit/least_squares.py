r"""The least squares of a fit, and what they say about its accuracy.

$$\min_u\ \tfrac12 |r(u)|^2 \quad \text{subject to} \quad c(u) = 0$$

with residuals $r$ in units of their standard deviations. The unknowns $u$ are parameters, numbers of the start, and for multiple
shooting a free time and state at the start of every link but the first; $c$ are the gaps between the links, and of a periodic
orbit that between its end and its start. The method of multipliers solves a sequence of problems without constraints,

$$\min_u\ \tfrac12 |r|^2 + \tfrac12 |w c + y / w|^2, \qquad y \leftarrow y + w^2 c,$$

each by Levenberg and Marquardt's method. The first weights $w$ are small: there the links obey the data, and only later each
other, so that a record is fitted from a distant guess. A step ends at the bounds of the parameters.

Let $J$ and $C$ be the Jacobians of $r$ and of the gap of a closed orbit at the end, by parameters and starts, where the free
states follow from these; $Z$ an orthonormal basis of the null space of $C$, and $JZ = U S V^\top$. The covariance is that of
Gauss and Newton's linearization, $Z V S^{-2} V^\top Z^\top$; a singular value of zero is a combination of the unknowns that the
data do not determine.

Source: Bock (1987), *Randwertproblemmethoden zur Parameteridentifizierung*, ch. 3 (multiple shooting); Nocedal, Wright (2006),
*Numerical Optimization*, ch. 10, 17.3; Seber, Wild (1989), *Nonlinear Regression*, ch. 2, 5.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._flow.in_step import nothing_owed
from .._flow.integrator import Integrators, pushable, with_adjoint
from .._flow.jump import reset
from .._numerics.linearize import with_columns
from .._numerics.one_kernel import in_one_kernel
from .._numerics.trees import select, without_tangents
from .._optimize.orbit_program import Unknowns
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem
from .._system.types import Flag, Params, Scalar, Time
from .gauss_newton import bent_change, Free, loose_rows, pull_of, ResidualRows, with_free_states, without_free_states
from .links import as_measured, by_record, FlowLinks, LinkEnd, MapLinks, Node
from .recording import Links, NONE

# Weights of the gaps, in units of the ratio of a measurement to its deviation.
WEIGHTS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e3, *([1e4] * 3), *([1e5] * 3))
# A step that is to lower the residuals by this part, or in an exact fit by this part of the data's size, is the last one; of the
# stages of small weights; and where the step after it, without damping, would lower them by this part.
EXACT, FINEST, ROUGH, NEAR = 1e-6, 1e-11, 1e-2, 1e-8
# The first and least damping, relative to the squares of the columns of the Jacobian; and the largest of a last step.
DAMPING, LEAST, SMALL = 1e-3, 1e-16, 1e-14
# The largest part of the residuals, in units of their size, that another step would remove; and of an exact fit, of the data's.
SETTLED, TINY = 1e-5, 1e-9
# The part of the way to a bound that a step goes where the model has no derivatives at the bound.
SHORT = 0.9
# The largest gap, relative to the state, and the one at which the search ends.
CLOSED, SHUT = 1e-8, 1e-11


class RecordStart(eqx.Module):
    """States at the start of each record. **Attributes:** `function`: `(s, params) -> x0`. `numbers`: those that are known or
    guessed, shape `(records, numbers)`; `scale`: of each. `times`: shape `(records,)`. `mode`: its number. `way`: of
    a jump there, for states before it, else -1. `free`: whether the numbers are unknown, static."""

    function: Callable[..., Any]
    numbers: Float[Array, "records numbers"]
    scale: Float[Array, " numbers"]
    times: Float[Array, " records"]
    mode: Int[Array, ""]
    way: Int[Array, ""]
    free: bool = eqx.field(static=True)

    def at(self, unknown: Float[Array, "records unknown"]) -> Float[Array, "records numbers"]:
        """The numbers of the start with the unknowns `Free.start`."""
        return unknown * self.scale if self.free else self.numbers


class LinkChain(eqx.Module):
    """The links of all records as the model predicts them. **Attributes:** `reached`: of each link. `gaps`: shape `(rows,)`,
    relative to the state. `result`: the first code of a link. `likely`: where the links after the first begin by the data."""

    reached: LinkEnd
    likely: Node
    gaps: Float[Array, " rows"]
    result: RESULTS


class Division(eqx.Module):
    """The starts of the links that begin at free states, all but the first of a record. **Attributes:** `mode`, `way`: there,
    shape `(records, links - 1)`. `rolled`: whether a link begins instead where the link before and the data say."""

    mode: Int[Array, "records nodes"]
    way: Int[Array, "records nodes"]
    rolled: Bool[Array, ""]


class FitProblem(eqx.Module):
    """Residuals and constraints of a fit. **Attributes:** `params`: of each record, array leaves with an axis for records.
    `prior`: mean and one over the deviation of `theta`. `closing`: the lap of which the start is to be the end. `division`:
    `None` where the links follow from the start. `scales`: of time and state."""

    link: FlowLinks | MapLinks
    links: Links
    params: Params
    unknowns: Unknowns
    start: RecordStart
    prior: tuple[Float[Array, " n"], Float[Array, " n"]] | None
    closing: MapLinks | None
    division: Division | None
    scales: Float[Array, " coordinates"]

    @property
    def system(self) -> HybridSystem:
        """The system of the links."""
        return self.link.system

    def params_of(self, theta: Float[Array, " n"], params: Params) -> Params:
        """The parameters of a record with the unknowns."""
        return dataclasses.replace(self.unknowns, params=params).params_at(theta)

    def params_of_record(self, theta: Float[Array, " n"], k: int) -> Params:
        """The parameters of record `k` with the unknowns."""
        return self.params_of(theta, jax.tree.map(lambda leaf: leaf[k] if eqx.is_array(leaf) else leaf, self.params))

    def first_node(self, numbers: Float[Array, " numbers"], time: Time, params: Params) -> Node:
        """The start of a record."""
        x = self.start.function(numbers, params)
        z = jnp.pad(x, (0, self.scales.size - 1 - x.size))
        return Node(time, z, self.start.mode, self.start.way, nothing_owed(self.system, z.dtype))

    def start_state(self, numbers: Float[Array, " numbers"], time: Time, params: Params) -> Array:
        """The state at the start of a record; of a closed orbit that after its jump."""
        x = self.start.function(numbers, params)
        return x if self.closing is None else reset(self.closing.closing_way, time, x, params)

    def chain(self, free: Free) -> LinkChain:
        """The links of all records, as the model predicts them."""
        start, own = self.start, self.start.at(free.start)
        arrays, rest = eqx.partition(self.params, eqx.is_array)

        def one(arrays, links, numbers, time, nodes, division):
            params = self.params_of(free.theta, eqx.combine(arrays, rest))
            first = self.first_node(numbers, time, params)
            # The start has a tangent, perhaps of zero, so that JAX derives the loops of a link once, and not for each start anew.
            nothing = 0 * jnp.sum(free.theta)
            first = eqx.tree_at(lambda node: (node.t, node.z), first, (first.t + nothing, first.z + nothing))
            owed = jax.tree.map(lambda leaf: jnp.zeros((len(nodes), *leaf.shape), leaf.dtype), first.owed)
            given = nodes * self.scales[: nodes.shape[1]]
            begin = division and Node(given[:, 0], given[:, 1:], division.mode, division.way, owed)

            def follow(carry, each):
                (before, likely, due), (link, own, goes_on, ahead, row) = carry, each
                node = select(division.rolled, select(link.joined, before, likely), own)
                # Events in any order share the node before them; the node after them is behind all their jumps.
                due = jnp.where(link.joined, due, 0).at[link.kind].max(jnp.where(link.kind >= 0, 1 + link.skip, 0))
                last, begin, alone = link.joined & ~goes_on, node, ~link.joined & ~goes_on & (node.way >= 0)
                if len(self.link.measured.early) > 1:
                    seen = without_tangents(as_measured(self.link, node, row[0], row[1], params))
                    begin = select(division.rolled & alone, seen, node)
                found = self.link(begin, link, params, jnp.where(last, due, 0))
                likely = self.likely(node, found, link, last)
                end, likely = select(goes_on, (node, without_tangents(node)), (found.node, likely))
                # A free state where another event is owed would lose it.
                lost = ahead & (end.owed.left > 0) & (found.result == RESULTS.successful)
                code = choose(lost, RESULTS.simultaneous_guards, found.result)
                found = dataclasses.replace(found, node=end, result=code)
                return (without_tangents(node), likely, due), (found, likely)

            def follow_on(carry, link):
                last, before = carry
                node = select(link.joined, before, last)
                found = self.link(node, link, params)
                # Of events in any order, and of those at one time, the last that the model takes.
                more = (found.node.t == last.t) & (found.node.owed.left > last.owed.left)
                after = select(link.joined & ((found.node.t < last.t) | more), last, found.node)
                return (after, node), (found, after)

            if begin is None:
                _, (reached, likely) = jax.lax.scan(follow_on, (first, first), links)
                gaps, fits = jnp.zeros(0, time.dtype), jnp.array(True)
            else:
                every = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, begin)
                start, goes_on = without_tangents(first), jnp.append(links.joined[1:], False)
                ahead = jnp.append(links.kind[1:], NONE) != NONE
                kinds = len(self.link.kinds) if isinstance(self.link, FlowLinks) else 1
                carry = start, start, jnp.zeros(kinds, links.skip.dtype)
                row = [jnp.pad(each[:-1], ((1, 0), (0, 0))) for each in (links.values, links.weights)]
                _, (reached, likely) = jax.lax.scan(follow, carry, (links, every, goes_on, ahead, row))
                ends = jnp.column_stack([reached.node.t, reached.node.z])[:-1]
                same = (reached.node.mode[:-1] == begin.mode) & (reached.node.way[:-1] == begin.way)
                gaps, fits = jnp.ravel(ends / self.scales - nodes), jnp.all(same)
            if self.closing is not None:
                lap = self.closing(first, jax.tree.map(lambda leaf: leaf[0], links), params)
                gaps = jnp.append(gaps, (lap.node.z - first.z) / self.scales[1:])
            return reached, likely, gaps, fits

        division = self.division
        if division is not None:
            rolled = jnp.broadcast_to(division.rolled, len(start.times))
            division = eqx.tree_at(lambda each: each.rolled, division, rolled)
        reached, likely, gaps, fits = by_record(one)(arrays, self.links, own, start.times, free.nodes, division)
        codes = jnp.ravel(reached.result._value)
        bad = codes != RESULTS.successful._value
        first_code = eqx.tree_at(lambda r: r._value, RESULTS.successful, codes[jnp.argmax(bad)])
        result = choose(jnp.all(fits) | jnp.any(bad), first_code, RESULTS.unexpected_transition)
        return LinkChain(reached, likely, jnp.ravel(gaps), result)

    def likely(self, before: Node, reached: LinkEnd, link: Links, landed: Flag) -> Node:
        """A first guess of the node at the end of a link, from the one `before`: what the link `reached`, and in its place the
        coordinates that were measured. **Arguments:** `landed`: whether the node is behind its jump."""
        seen, before, found = self.link.measured, *without_tangents((before, reached.node))

        def measured(z, values, weights):
            for k in range(seen.places.shape[1]):
                place = seen.places[found.mode, k]
                z = jnp.where((place >= 0) & (weights[k] > 0), z.at[place].set(values[k]), z)
            return z

        z = measured(found.z, link.values, jnp.where(seen.before & ~landed, link.weights, 0))
        if link.times.shape[-1]:
            k = jnp.maximum(jnp.sum(link.sample_rows >= 0) - 1, 0)
            z = jnp.where(link.row < 0, measured(z, link.sample_values[k], link.sample_weights[k]), z)
        z, mode, way = jnp.where(jnp.isfinite(z), z, before.z), found.mode, found.way
        if isinstance(self.link, FlowLinks) and self.system.transitions:
            # Where no event was found, the first way that its label allows.
            likely = jnp.argmax(self.link.kinds[jnp.maximum(link.kind, 0)])
            names, ways = self.system.names, self.system.ways[:, 0]
            sources = jnp.array([names.index(self.system.transitions[k].source) for k in ways])
            lost = (way < 0) & (link.kind >= 0) & ~(landed & (reached.result == RESULTS.successful))
            mode = jnp.where(lost, jnp.where(landed, self.link.automaton.target(likely), sources[likely]), mode)
            way = jnp.where(lost & ~landed, likely, way)
        return Node(jnp.where(link.kind == NONE, before.t, link.end), z, mode, way, found.owed)

    def residuals(self, free: Free, chain: LinkChain) -> Float[Array, " rows"]:
        """$r$: at the ends of links, at samples, and of the prior."""
        links, reached = self.links, chain.reached
        off = lambda weights, values, found: jnp.ravel(jnp.where(weights > 0, weights * (values - found), 0))
        parts = [
            off(links.weights, links.values, reached.ending),
            off(links.sample_weights, links.sample_values, reached.samples),
        ]
        if self.prior is not None:
            mean, weight = self.prior
            parts.append(weight * (mean - free.theta))
        return jnp.concatenate(parts)

    def signal(self) -> Scalar:
        """The largest ratio of a measurement to its deviation."""
        return self._signals(self.links.values, self.links.sample_values).max()

    def change(self) -> Scalar:
        """The largest ratio of a measurement to its deviation, of links whose times begin at their start, for the measured
        quantity for which it is least."""
        links = self.links
        since = lambda values, start: values.at[..., 0].add(-start)
        ratios = self._signals(since(links.values, links.start), since(links.sample_values, links.start[..., None]))
        return jnp.min(jnp.where(ratios > 0, ratios, jnp.inf))

    def _signals(self, values, sample_values) -> Float[Array, " quantities"]:
        links = self.links
        ratios = jnp.abs(links.weights * values), jnp.abs(links.sample_weights * sample_values)
        most = lambda each: jnp.max(jnp.where(jnp.isfinite(each), each, 0), axis=tuple(range(each.ndim - 1)), initial=0)
        largest = jnp.maximum(*map(most, ratios))
        return jnp.where(jnp.max(largest) > 0, largest, 1)


class FitSolution(eqx.Module):
    """The end of a fit. **Attributes:** `free`, `chain`: there. `covariance`: of `theta`, in its units of 1.
    `rank`: the number of combinations of unknowns that are determined. `projector`: onto the combinations of `theta` that are
    not determined. `cost`: $|r|^2$. `start_covariance`: of the numbers of the start. `iterations`: evaluations. `at_bound`:
    which of `theta` are at a bound."""

    free: Free
    chain: LinkChain
    covariance: Float[Array, "n n"]
    projector: Float[Array, "unknowns unknowns"]
    start_covariance: Float[Array, "m m"]
    cost: Scalar
    rank: Int[Array, ""]
    iterations: Int[Array, ""]
    at_bound: Bool[Array, " n"]
    result: RESULTS


class Evaluated(eqx.Module):
    """The residuals `r` at a point of all unknowns; `rows`: these and the gaps, with their derivatives."""

    r: Float[Array, " rows"]
    rows: ResidualRows
    chain: LinkChain


def evaluated(problem: FitProblem, free: Free, reverse: bool) -> Evaluated:
    """Residuals, gaps and derivatives, by one pass through all links, which the prior needs not; in `reverse` mode, static."""
    n, (records, s), (nodes, size) = free.theta.size, free.start.shape, free.nodes.shape[1:]
    of_data, (mean, w) = dataclasses.replace(problem, prior=None), problem.prior or 2 * (free.theta[:0],)

    def shifted(v):
        # No link depends on the start of another record, or on another node: one shift serves a number of all starts, or nodes.
        start, node, theta = jnp.split(v, [s, s + size])
        moved = Free(free.theta + theta, free.start + start, free.nodes + node)
        chain = of_data.chain(moved)
        rows = of_data.residuals(moved, chain), chain.gaps
        return rows, (rows[0], chain)

    none = jnp.zeros(s + size + n, free.theta.dtype)
    if reverse:
        of_data = with_flows(of_data, lambda each: with_adjoint(each, dfx.RecursiveCheckpointAdjoint()))
        (by, by_gaps), (r, chain) = jax.jacrev(shifted, has_aux=True)(none)
    else:
        _, (by, by_gaps), (r, chain) = with_columns(shifted, none)
    (_, many, _), quantities = problem.links.times.shape, problem.links.values.shape[-1]
    of_links = lambda rows: jnp.reshape(rows, (records, many, -1, rows.shape[-1]))
    ends, between = jnp.split(jnp.column_stack([by, r]), [records * many * quantities])
    others = jnp.column_stack([-w[:, None] * jnp.eye(w.size, n, dtype=r.dtype), w * (mean - free.theta[: w.size])])
    gaps = jnp.reshape(jnp.column_stack([by_gaps, chain.gaps]), (records, -1, none.size + 1))
    gaps, closing = jnp.split(gaps, [nodes * size], axis=1)
    gaps = jnp.reshape(gaps, (records, nodes, size, none.size + 1))
    # Without the derivative by the next node.
    gaps = gaps.at[..., s : s + size].add(jnp.eye(size, dtype=gaps.dtype))
    links = jnp.concatenate([of_links(ends), of_links(between)], axis=2)
    return Evaluated(jnp.append(r, others[:, -1]), ResidualRows(links, gaps, closing, others), chain)


def with_flows(problem: FitProblem, change: Callable[[Integrators], Integrators]) -> FitProblem:
    """The problem with other integrators."""
    found = lambda each: isinstance(each, Integrators)
    return jax.tree.map(lambda each: change(each) if found(each) else each, problem, is_leaf=found)


class _FitSearch(NamedTuple):
    """Of Levenberg and Marquardt's method the point `trial` that is evaluated next; the best one, `u`, with its rows `at`; the
    `expected` fall of the cost at the trial; the `divided` states' modes and scales; `steps` in all, `tried` in the stage; what
    the data leave free, `held`: rows of `loose_rows`, and where these are zero; `reach`: the part of the way to a bound that a
    step may go, 1 unless the model has no derivatives at one; `secant`: the way between the last two points, and the change of
    the rows along it, zero where there is none."""

    trial: Array
    u: Array
    at: Evaluated
    divided: tuple[Division | None, Array]
    dual: Array
    damping: Scalar
    growth: Scalar
    expected: Scalar
    stage: Int[Array, ""]
    steps: Int[Array, ""]
    tried: Int[Array, ""]
    held: tuple[Float[Array, "held numbers"], Array]
    reach: Scalar
    secant: tuple[Array, ResidualRows]


def rolled_out(problem: FitProblem, likely: Node) -> tuple[Array, tuple[Division, Array]]:
    """The nodes between links at a first guess, scaled, with their modes and scales."""
    nodes = jnp.concatenate([likely.t[..., None], likely.z], axis=-1)[:, :-1] / problem.scales
    # A coordinate that is near zero in the first guess has the size of the data, if they contain it.
    links, places = problem.links, problem.link.measured.places
    data = [(links.weights, links.values), (links.sample_weights, links.sample_values)]
    data = [jnp.reshape(jnp.where(w > 0, jnp.abs(y), 0), (-1, places.shape[1])) for w, y in data]
    known = jnp.zeros(likely.z.shape[-1] + 1, nodes.dtype)
    known = known.at[places].max(jnp.max(jnp.concatenate(data), axis=0))[:-1] / problem.scales[1:]
    size = jnp.max(jnp.abs(nodes), axis=(0, 1))[1:]
    size = jnp.where(size > 1e-3 * known, size, known)
    # On the surface of a guard a coordinate may be zero at every node.
    size = jnp.maximum(size, 1e-3 * jnp.max(size))
    size = jnp.append(jnp.ones(1, size.dtype), jnp.where(size > 0, size, 1))
    return nodes / size, (Division(likely.mode[:, :-1], likely.way[:, :-1], jnp.array(False)), problem.scales * size)


def _no(each) -> bool:
    return each is None


def _next_damping(search: _FitSearch, part: Scalar, cost: Scalar, better: Flag) -> tuple[Scalar, Scalar]:
    """The damping and its growth after a trial, by which part of the fall that the linearization foretold there was; damping goes
    fast only where little is left to fall, after a bend."""
    straight = (jnp.abs(part - 1) < 0.1) & (search.expected < 1e-3 * cost)
    factor = jnp.where(straight, 1e-4, jnp.where(part > 0.75, 0.1, jnp.where(part > 0.25, 1, 4)))
    larger = jnp.maximum(search.damping, 1e-6) * search.growth
    damping = jnp.where(better, jnp.maximum(search.damping * factor, LEAST), larger)
    return damping, jnp.where(better, 4, 2 * search.growth)


def solve(problem: FitProblem, free: Free, max_steps: int, reverse: bool, bounded: bool) -> FitSolution:
    """The least squares nearest to `free`, by Levenberg and Marquardt's method; differentiable in forward mode. **Arguments:**
    `bounded`: whether a parameter has a bound."""
    whole, (problem, free) = problem, without_tangents((problem, free))
    flat, unravel = ravel_pytree(free)
    # Traced once, for the shapes and the loop.
    divided = lambda problem: (problem.division, problem.scales)
    where = lambda u, division: evaluated(eqx.tree_at(divided, problem, division, is_leaf=_no), unravel(u), reverse)
    evaluate = eqx.filter_closure_convert(where, flat, divided(problem))
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), evaluate.out_struct)
    signal, eps = problem.signal(), float(jnp.finfo(flat.dtype).eps)
    finest = max(FINEST, 50 * eps) * signal
    stages, rolls = len(WEIGHTS) if blank.chain.gaps.size else 1, int(problem.division is not None)
    weights = problem.change() * jnp.array(WEIGHTS if stages > 1 else (1.0,), flat.dtype)
    last = lambda search: (stages == 1) | (search.stage >= WEIGHTS.index(1e3))

    def cost_of(at: Evaluated, u, search: _FitSearch):
        weight = weights[jnp.minimum(search.stage, stages - 1)]
        gaps = weight * at.chain.gaps + search.dual / weight
        return jnp.sum(at.r**2) + jnp.sum(gaps**2) + jnp.sum(off(*search.held, u) ** 2)

    count, unbounded = free.first.size, jnp.full(free.start.size, jnp.inf, flat.dtype)
    lower, higher = jnp.append(problem.unknowns.lower, -unbounded), jnp.append(problem.unknowns.upper, unbounded)
    off = lambda rows, zero, u: rows @ (u - zero)[:count]

    def held_anew(held, first, rows: ResidualRows, u):
        # What is still loose, once half a direction is not. Gaps seem to determine as much as they are themselves.
        loose = loose_rows(rows, signal, jnp.where(first, 0, jnp.max(jnp.abs(rows.gaps[..., -1]), initial=0)))
        still = held[0] @ loose.T @ loose / signal**2
        lost = jnp.sum(held[0] ** 2) - jnp.sum(still**2) > signal**2 / 2
        return select(first | lost, (jnp.where(first, loose, still), u), held)

    def step(search: _FitSearch) -> _FitSearch:
        new = in_one_kernel(evaluate)(search.trial, search.divided)
        cost, other = (cost_of(at, u, search) for at, u in ((search.at, search.u), (new, search.trial)))
        fall, first = cost - other, search.steps == rolls
        # Below the errors of the flow nothing tells.
        rounding = 2 * jnp.sqrt(cost) * finest
        finite = jnp.isfinite(other) & jnp.all(jnp.stack([jnp.all(jnp.isfinite(each)) for each in new.rows]))
        good = RESULTS.successful
        worse = (search.at.chain.result == good) & (new.chain.result != good)
        better = first | (finite & ~worse & (fall > -rounding))
        way = finite & ~worse & ~first
        secant = search.trial - search.u, jax.tree.map(jnp.subtract, new.rows, search.at.rows)
        secant = jax.tree.map(lambda each: jnp.where(way, each, 0), secant)
        u, at = select(better, (search.trial, new), (search.u, search.at))
        some = eqxi.unvmap_any(better & (first | jnp.any(search.held[0] != 0)))
        held = jax.lax.cond(some, lambda: held_anew(search.held, first, at.rows, u), lambda: search.held)
        # How well the linearization foretold the fall.
        part = jnp.where(search.expected > rounding, fall / jnp.maximum(search.expected, rounding), 1)
        damping, growth = _next_damping(search, jnp.where(first, 0.5, part), cost, better)

        part, limit = jnp.where(last(search), EXACT, ROUGH), jnp.where(last(search), SMALL, 1e-2)
        least = part**2 * cost + finest**2
        lost = (search.tried + 1 >= max_steps) | (damping > 1 / LEAST) | ~jnp.isfinite(jnp.sum(at.r))
        ends = lost | (better & ~first & (search.expected <= least) & (search.damping <= limit))
        weight = weights[jnp.minimum(search.stage, stages - 1)]
        dual = jnp.where(ends, search.dual + weight**2 * at.chain.gaps, search.dual)
        shut = last(search) & (jnp.max(jnp.abs(at.chain.gaps), initial=0) <= max(SHUT, 50 * eps))
        stage = jnp.where(ends, jnp.where(shut | (lost & last(search)), stages, search.stage + 1), search.stage)

        weight = weights[jnp.minimum(stage, stages - 1)]
        loose, reach, within = (held[0], off(held[0], held[1], u)), search.reach, None
        if bounded:
            on_bound = jnp.any((search.trial[:count] == lower) | (search.trial[:count] == higher))
            reach = jnp.where(finite | ~on_bound, reach, SHORT)
            within = reach * (lower - u[:count]), reach * (higher - u[:count])
        along = unravel(secant[0]), secant[1]
        change, expected, whole_fall = bent_change(at.rows, weight, dual, damping, loose, within, along)
        if stages == 1:
            near = better & (whole_fall <= NEAR**2 * other + finest**2)
            stage = jnp.where(near if within is None else near & ~jnp.any((u == lower) | (u == higher)), 1, stage)
        trial = u + ravel_pytree(change)[0]
        if within is not None:
            (low, high), inside = within, jnp.clip(trial[:count], lower, higher)
            met = jnp.where(change.first == low, lower, jnp.where(change.first == high, higher, inside))
            trial = trial.at[:count].set(jnp.where(reach == 1, met, inside))
        steps, tried = search.steps + 1, jnp.where(ends, 0, search.tried + 1)
        after = _FitSearch(
            trial, u, at, search.divided, dual, damping, growth, expected, stage, steps, tried, held, reach, secant
        )
        if not rolls:
            return after
        nodes, rolled = rolled_out(problem, new.chain.likely)
        trial, _ = ravel_pytree(unravel(flat)._replace(nodes=nodes))
        return select(steps == rolls, search._replace(trial=trial, divided=rolled, steps=steps), after)

    number, one = jnp.array(0), jnp.ones((), flat.dtype)
    begin = _FitSearch(
        flat, flat, blank, divided(problem), 0 * blank.chain.gaps, DAMPING * one, 4 * one, one, number, number, number,
        (jnp.zeros((count, count), flat.dtype), flat), one, (0 * flat, blank.rows),
    )  # fmt: skip
    found = jax.lax.while_loop(lambda search: search.stage < stages, step, begin)
    whole, problem = (eqx.tree_at(divided, each, found.divided, is_leaf=_no) for each in (whole, problem))
    at, free = found.at, unravel(found.u)
    most = jnp.where(found.reach == 1, 0, CLOSED * jnp.maximum(1, jnp.abs(free.theta)))
    near = lambda bound: jnp.abs(free.theta - bound) <= most
    sides = (near(problem.unknowns.lower), near(problem.unknowns.upper)) if bounded else None
    solved = _judged(problem, free, at, found.steps, sides)
    return dataclasses.replace(solved, free=_at_optimum(whole, solved.free, found.dual, solved.at_bound))


@eqx.filter_custom_jvp
def _at_optimum(problem: FitProblem, free: Free, dual: Float[Array, " gaps"], at_bound: Bool[Array, " n"]) -> Free:
    """The optimum `free`, with its derivatives by the numbers of the problem, at which the conditions of optimality hold."""
    return free


@_at_optimum.def_jvp
def _at_optimum_jvp(primals, tangents):
    (problem, free, dual, at_bound), (by, *_) = primals, tangents
    flat, unravel = ravel_pytree(free)
    problem, by = (with_flows(each, pushable) for each in (problem, by))

    def conditions(problem, v):
        u, dual = jnp.split(v, [flat.size])

        def rows(u):
            chain = problem.chain(unravel(u))
            return (problem.residuals(unravel(u), chain), chain.gaps), None

        (r, gaps), (jacobian, constraints), _ = with_columns(rows, u)
        n, gradient = at_bound.size, r @ jacobian + dual @ constraints
        low, high = problem.unknowns.lower, problem.unknowns.upper
        held = u[:n] - jnp.where(free.theta <= low, low, high)
        return jnp.concatenate([jnp.where(at_bound, held, gradient[:n]), gradient[n:], gaps])

    at = jnp.append(flat, dual)
    _, change = eqx.filter_jvp(lambda problem: conditions(problem, at), (problem,), (by,))
    _, matrix, _ = with_columns(lambda v: (conditions(problem, v), None), at)
    moved = -jnp.linalg.lstsq(matrix, change)[0][: flat.size]
    return free, unravel(moved.at[: at_bound.size].set(jnp.where(at_bound, 0, moved[: at_bound.size])))


def _judged(problem, free: Free, at: Evaluated, steps, sides) -> FitSolution:
    n, s, eps, chain, r = free.theta.size, free.start.size, float(jnp.finfo(at.r.dtype).eps), at.chain, at.r
    signal = problem.signal()
    # With so large a weight the gaps between links do not change; what is left of them is rounding, which chaos would enlarge.
    weight = signal / eps**0.375
    weighted = at.rows.weighted(weight, -(weight**2) * chain.gaps)
    left = without_free_states(weighted, weight, 0 * free.nodes)
    size = jnp.sqrt(jnp.mean(r**2))
    most = SETTLED * size + max(TINY, 50 * eps) * signal
    at_bound = jnp.zeros(n, bool)
    if sides is not None:
        pull = pull_of(left, jnp.append(sides[0] | sides[1], jnp.zeros(s, bool)))[:n]
        at_bound = (sides[0] & (pull >= -most)) | (sides[1] & (pull <= most))
    fixed = jnp.append(at_bound, jnp.zeros(s, bool))
    jacobian, constraints = (jnp.where(fixed, 0, each) for each in (left.matrix, left.closing / weight))
    basis, closing = jnp.eye(n + s, dtype=r.dtype), jnp.zeros(n + s, r.dtype)
    if len(constraints):
        # Of an orbit that is one of a family the constraints are not independent: those that hold by the others are left out.
        u, sizes, right = jnp.linalg.svd(constraints, full_matrices=True)
        kept = sizes > max(1e-9, 100 * eps) * sizes[0]
        steps_back = jnp.where(
            kept, (u.T @ at.rows.closing[..., -1].ravel())[: sizes.size] / jnp.where(kept, sizes, 1), 0
        )
        closing = -right[: sizes.size].T @ steps_back
        kept = jnp.append(kept, jnp.zeros(basis.shape[0] - sizes.size, bool))
        basis = jnp.where(kept[:, None], 0, right).T
    u, sizes, right = jnp.linalg.svd(jacobian @ basis, full_matrices=False)
    # Rows of `right` that the basis does not have are of zero size, and no direction of the unknowns.
    directions = basis @ right.T
    real = jnp.sum(directions**2, axis=0) > 0.5
    # In a chaotic record the largest is larger than the data by as much as it has grown.
    least = eps**0.5 * jnp.minimum(sizes[0], len(r) ** 0.5 * signal)
    determined = sizes > least
    inverse = jnp.where(determined, 1 / jnp.where(determined, sizes, 1), 0)
    root = directions * inverse
    # Also directions beyond the number of residuals.
    missing = basis - jnp.where(determined, directions, 0) @ (directions.T @ basis)
    loose = missing @ missing.T
    loose = jnp.where(jnp.abs(loose) > 1e-6, loose, 0)
    loose = jnp.where(fixed[:, None] | fixed[None], 0, loose)
    # The last step, of which residuals and gaps are known to first order: where the search ends, its trust region is as small as
    # the rounding of the sum of squares, and not the error of the unknowns.
    removed = jnp.where(determined & real, u.T @ left.values, 0)
    settled = jnp.max(jnp.abs(removed), initial=0) <= most
    # Relative to the states of the end: where the data leave the scale free, all of these may shrink, and the gaps with them.
    own = jnp.max(jnp.abs(free.nodes), axis=(0, 1), initial=0)
    own = jnp.minimum(jnp.maximum(own, 1e-3 * jnp.max(own[1:], initial=0)), 1)
    between = jnp.abs(at.rows.gaps[..., -1]) / jnp.where(own > 0, own, 1)
    largest = jnp.maximum(jnp.max(between, initial=0), jnp.max(jnp.abs(at.rows.closing[..., -1]), initial=0))
    closed = largest <= max(CLOSED, 1e3 * eps)
    last = closing - root @ jnp.where(real, u.T @ (left.values + jacobian @ closing), 0)
    good = chain.result == RESULTS.successful
    result = choose(good & ~(settled & closed), RESULTS.optimum_not_found, chain.result)
    result = choose(good & ~jnp.all(jnp.isfinite(r)), RESULTS.nonfinite, result)
    small = settled & closed & good
    change = with_free_states(weighted, left, last)
    cost = jnp.where(small, jnp.sum((left.values + jacobian @ last) ** 2), r @ r)
    free = Free(*(a + jnp.where(small, b, 0) for a, b in zip(free, change, strict=True)))
    free = free._replace(theta=jnp.clip(free.theta, problem.unknowns.lower, problem.unknowns.upper))
    result = choose((result == RESULTS.successful) & jnp.any(jnp.abs(loose) > 0), RESULTS.undetermined, result)
    covariance = root @ root.T
    return FitSolution(
        free, chain, covariance[:n, :n], loose, covariance[n:, n:], cost, jnp.sum(determined & real), steps,
        at_bound, result,
    )  # fmt: skip
