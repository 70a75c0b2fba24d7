r"""The least squares of a fit, and what they say about its accuracy.

$$\min_u\ \tfrac12 |r(u)|^2 \quad \text{subject to} \quad c(u) = 0$$

with residuals $r$ in units of their standard deviations. The unknowns $u$ are parameters, numbers of the start, and for multiple
shooting a free time and state at the start of every link but the first; $c$ are the gaps between the links, and of a periodic
orbit that between its end and its start. The method of multipliers solves a sequence of problems without constraints,

$$\min_u\ \tfrac12 |r|^2 + \tfrac12 |w c + y / w|^2, \qquad y \leftarrow y + w^2 c,$$

each by Levenberg and Marquardt's method. The first weights $w$ are small: there the links obey the data, and only later each
other, so that a record is fitted from a distant guess. With bounds an interior-point method takes their place.

Let $J$ and $C$ be the Jacobians of $r$ and $c$ at the end, $Z$ an orthonormal basis of the null space of $C$, and $JZ = U S
V^\top$. The covariance of $u$ is that of Gauss and Newton's linearization, $Z V S^{-2} V^\top Z^\top$; a singular value of zero
is a combination of the unknowns that the data do not determine.

Source: Bock (1987), *Randwertproblemmethoden zur Parameteridentifizierung*, ch. 3 (multiple shooting); Nocedal, Wright (2006),
*Numerical Optimization*, ch. 10, 17.3; Seber, Wild (1989), *Nonlinear Regression*, ch. 2, 5.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._flow.jump import reset
from .._optimize.interior_point import InteriorPoint, minimize
from .._optimize.nonlinear_program import NonlinearProgram, Sample
from .._optimize.orbit_program import Unknowns
from .._system.results import choose, RESULTS
from .._system.system import HybridSystem
from .._system.types import Params, Scalar, Time
from .links import FlowLinks, MapLinks, Node, Reached
from .recording import Links, NONE

# Weights of the gaps, in units of the largest ratio of a measurement to its deviation.
WEIGHTS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e3)
# The relative change of unknowns and residuals that ends a search; of those before the last two.
EXACT, ROUGH = 1e-11, 1e-5
# The largest part of the residuals, in units of their size, that another step would remove; and of an exact fit, of the data's.
SETTLED, TINY = 1e-5, 1e-9
# The largest gap, relative to the state.
CLOSED = 1e-8


class Free(NamedTuple):
    """The unknowns, each of the order of 1: `theta` of the parameters; `start`, shape `(records, numbers)`; `nodes`: time and
    state where links begin, shape `(records, links - 1, 1 + size)`, or no links."""

    theta: Float[Array, " n"]
    start: Float[Array, "records numbers"]
    nodes: Float[Array, "records nodes coordinates"]


class Start(eqx.Module):
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


class Chain(eqx.Module):
    """The links of all records as the model predicts them. **Attributes:** `reached`: of each link. `gaps`: shape `(rows,)`,
    relative to the state. `result`: the first code of a link."""

    reached: Reached
    gaps: Float[Array, " rows"]
    result: RESULTS


class FitProblem(eqx.Module):
    """Residuals and constraints of a fit. **Attributes:** `params`: of each record, array leaves with an axis for records.
    `prior`: mean and one over the deviation of `theta`. `closing`: the lap of which the start is to be the end. `modes`:
    where the links begin, and the ways of their jumps, after the first, shape `(records, links - 1)`; `None` where the links
    follow from the start. `scales`: of time and state."""

    link: FlowLinks | MapLinks
    links: Links
    params: Params
    unknowns: Unknowns
    start: Start
    prior: tuple[Float[Array, " n"], Float[Array, " n"]] | None
    closing: MapLinks | None
    modes: tuple[Int[Array, "records nodes"], Int[Array, "records nodes"]] | None
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
        return Node(time, z, self.start.mode, self.start.way)

    def start_state(self, numbers: Float[Array, " numbers"], time: Time, params: Params) -> Array:
        """The state at the start of a record; of a closed orbit that after its jump."""
        x = self.start.function(numbers, params)
        return x if self.closing is None else reset(self.closing.closing_way, time, x, params)

    def chain(self, free: Free) -> Chain:
        """All links."""
        start, own = self.start, self.start.at(free.start)
        arrays, rest = eqx.partition(self.params, eqx.is_array)

        def one(arrays, links, numbers, time, nodes, modes):
            params = self.params_of(free.theta, eqx.combine(arrays, rest))
            first = self.first_node(numbers, time, params)
            if self.modes is None:
                follow = lambda node, link: ((found := self.link(node, link, params)).node, found)
                _, reached = jax.lax.scan(follow, first, links)
                gaps, fits = jnp.zeros(0, time.dtype), jnp.array(True)
            else:
                given = nodes * self.scales
                begin = Node(given[:, 0], given[:, 1:], *modes)
                every = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, begin)
                reached = jax.vmap(lambda node, link: self.link(node, link, params))(every, links)
                ends = jnp.column_stack([reached.node.t, reached.node.z])[:-1]
                same = (reached.node.mode[:-1] == modes[0]) & (reached.node.way[:-1] == modes[1])
                gaps, fits = jnp.ravel(ends / self.scales - nodes), jnp.all(same)
            if self.closing is not None:
                lap = self.closing(first, jax.tree.map(lambda leaf: leaf[0], links), params)
                gaps = jnp.append(gaps, (lap.node.z - first.z) / self.scales[1:])
            return reached, gaps, fits

        reached, gaps, fits = jax.vmap(one)(arrays, self.links, own, start.times, free.nodes, self._modes())
        codes = jnp.ravel(reached.result._value)
        bad = codes != RESULTS.successful._value
        first_code = eqx.tree_at(lambda r: r._value, RESULTS.successful, codes[jnp.argmax(bad)])
        result = choose(jnp.all(fits) | jnp.any(bad), first_code, RESULTS.unexpected_transition)
        return Chain(reached, jnp.ravel(gaps), result)

    def _modes(self):
        none = jnp.zeros((len(self.start.times), 0), int)
        return (none, none) if self.modes is None else self.modes

    def residuals(self, free: Free, chain: Chain) -> Float[Array, " rows"]:
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
        links = self.links
        ratios = jnp.abs(links.weights * links.values), jnp.abs(links.sample_weights * links.sample_values)
        largest = jnp.maximum(*(jnp.max(jnp.where(jnp.isfinite(each), each, 0), initial=0) for each in ratios))
        return jnp.where(largest > 0, largest, 1)


def roll_out(problem: FitProblem, free: Free) -> tuple[Float[Array, "records nodes coordinates"], tuple]:
    """First guesses of the nodes between links, and their modes and ways: each link is followed from where the data say that the
    link before ended, with the coordinates that were measured there."""
    seen, (arrays, rest) = problem.link.measured, eqx.partition(problem.params, eqx.is_array)
    own = problem.start.at(free.start)

    def measured(z, mode, values, weights):
        for k in range(seen.places.shape[1]):
            place = seen.places[mode, k]
            z = jnp.where((place >= 0) & (weights[k] > 0), z.at[place].set(values[k]), z)
        return z

    def last(link):
        k = jnp.maximum(jnp.sum(link.sample_rows >= 0) - 1, 0)
        return link.sample_values[k], link.sample_weights[k]

    def one(arrays, links, numbers, time):
        params = problem.params_of(free.theta, eqx.combine(arrays, rest))

        def follow(node, link):
            found = problem.link(node, link, params).node
            z = measured(found.z, found.mode, link.values, jnp.where(seen.before, link.weights, 0))
            if link.times.shape[-1]:
                z = jnp.where(link.row < 0, measured(z, found.mode, *last(link)), z)
            z = jnp.where(jnp.isfinite(z), z, node.z)
            mode, way = found.mode, found.way
            if isinstance(problem.link, FlowLinks) and problem.system.transitions:
                # Where no event was found, the first way that its label allows.
                likely = jnp.argmax(problem.link.kinds[jnp.maximum(link.kind, 0)])
                names, ways = problem.system.names, problem.system.ways[:, 0]
                sources = jnp.array([names.index(problem.system.transitions[k].source) for k in ways])
                lost = (way < 0) & (link.kind >= 0)
                mode, way = jnp.where(lost, sources[likely], mode), jnp.where(lost, likely, way)
            after = Node(jnp.where(link.kind == NONE, node.t, link.end), z, mode, way)
            return after, after

        _, nodes = jax.lax.scan(follow, problem.first_node(numbers, time, params), links)
        table = jnp.column_stack([nodes.t, nodes.z]) / problem.scales
        return table[:-1], (nodes.mode[:-1], nodes.way[:-1])

    return jax.vmap(one)(arrays, problem.links, own, problem.start.times)


class Solved(eqx.Module):
    """The end of a fit. **Attributes:** `free`, `chain`, `residuals`: there. `covariance`: of `theta`, in its units of 1.
    `rank`: the number of combinations of unknowns that are determined. `projector`: onto the combinations of `theta` that are
    not determined. `cost`: $|r|^2$. `start_covariance`: of the numbers of the start. `iterations`: evaluations. `at_bound`:
    which of `theta` are at a bound."""

    free: Free
    chain: Chain
    residuals: Float[Array, " rows"]
    covariance: Float[Array, "n n"]
    projector: Float[Array, "unknowns unknowns"]
    start_covariance: Float[Array, "m m"]
    cost: Scalar
    rank: Int[Array, ""]
    iterations: Int[Array, ""]
    at_bound: Bool[Array, " n"]
    result: RESULTS


def solve(problem: FitProblem, free: Free, max_steps: int, reverse: bool) -> Solved:
    """The least squares nearest to `free`, by Levenberg and Marquardt's method."""
    signal = jax.lax.stop_gradient(problem.signal())
    constrained = problem.modes is not None or problem.closing is not None
    options = {"jac": "bwd" if reverse else "fwd"}
    dtype, wide = free.theta.dtype, jnp.result_type(float)

    def function(free, args):
        weight, dual = args
        free = narrow(free)
        chain = problem.chain(free)
        r = problem.residuals(free, chain)
        rows = jnp.concatenate([r, weight * chain.gaps + dual / weight]) if constrained else r
        return rows.astype(wide), (chain, r)

    # optimistix 0.1 mixes its own float64 with unknowns in float32, where JAX has both.
    narrow = lambda free: jax.tree.map(lambda leaf: leaf.astype(dtype), free)

    def stage(carry, each):
        free, dual, steps = carry
        weight, tolerance = each
        method = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)
        found = optx.least_squares(
            function, method, free, (weight, dual), has_aux=True, max_steps=max_steps, throw=False, options=options
        )
        chain, r = found.aux
        flat, unravel = ravel_pytree(found.value)
        push = lambda direction: found.state.f_info.jac.mv(unravel(direction))
        rows = jax.vmap(push, out_axes=-1)(jnp.eye(flat.size, dtype=flat.dtype))
        carry = found.value, dual + weight**2 * chain.gaps, steps + found.stats["num_steps"]
        rows = rows.astype(dtype)
        return carry, (chain, r, rows[: r.size], rows[r.size :] / weight)

    exact = max(EXACT, 50 * float(jnp.finfo(dtype).eps))
    weights = WEIGHTS if constrained else (1.0,)
    tolerances = jnp.array([max(ROUGH, exact)] * (len(weights) - 2) + [exact] * min(len(weights), 2), wide)
    gaps = eqx.filter_eval_shape(problem.chain, free).gaps
    begin = jax.tree.map(lambda leaf: leaf.astype(wide), free), jnp.zeros(gaps.shape, dtype), jnp.array(0)
    (free, _, steps), last = jax.lax.scan(stage, begin, (signal * jnp.array(weights, dtype), tolerances))
    chain, r, jacobian, constraints = jax.tree.map(lambda leaf: leaf[-1], last)
    return _judged(problem, narrow(free), chain, r, jacobian, constraints, steps, jnp.zeros(free.theta.size, bool))


def solve_bounded(problem: FitProblem, free: Free, max_steps: int) -> Solved:
    """The least squares within the bounds of the parameters, by an interior-point method with Gauss and Newton's Hessian."""
    flat, unravel = ravel_pytree(free)
    unbounded = jnp.full(flat.size - free.theta.size, jnp.inf, flat.dtype)
    lower, upper = (
        jnp.append(a, b * unbounded) for a, b in ((problem.unknowns.lower, -1), (problem.unknowns.upper, 1))
    )

    def evaluate(u, carry):
        def function(u):
            chain = problem.chain(unravel(u))
            r = problem.residuals(unravel(u), chain)
            return r, (r, chain)

        jacobian, (r, chain) = jax.jacfwd(function, has_aux=True)(u)
        hessian = jacobian.T @ jacobian
        return Sample((r @ r)[None] / 2, (r @ jacobian)[None], hessian[None], (r, jacobian, chain), chain.result)

    program = NonlinearProgram(evaluate, lower, upper, 0, 0)
    blank = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), eqx.filter_eval_shape(evaluate, flat, None).carry
    )
    start = program.inside(flat)
    method = InteriorPoint(second_order=True, max_iterations=max_steps)
    found = minimize(program, method, start, start, blank)
    r, jacobian, chain = found.sample.carry
    free, active = unravel(found.point.u), found.active
    at_bound = (active.low | active.high)[: free.theta.size]
    kept = jnp.where(jnp.append(at_bound, jnp.zeros(flat.size - at_bound.size, bool)), 0, jacobian)
    empty = jnp.zeros((0, flat.size), flat.dtype)
    solved = _judged(problem, free, chain, r, kept, empty, found.iterations, at_bound)
    good = solved.result == RESULTS.successful
    return dataclasses.replace(solved, result=choose(good, found.result, solved.result))


def _judged(problem, free: Free, chain: Chain, r, jacobian, constraints, steps, at_bound) -> Solved:
    n, s, eps = free.theta.size, free.start.size, float(jnp.finfo(r.dtype).eps)
    rows = constraints.shape[0]
    basis = jnp.eye(jacobian.shape[1], dtype=r.dtype)
    if rows:
        # Of an orbit that is one of a family the constraints are not independent: those that hold by the others are left out.
        _, sizes, right = jnp.linalg.svd(constraints, full_matrices=True)
        kept = jnp.append(sizes > max(1e-9, 100 * eps) * sizes[0], jnp.zeros(basis.shape[0] - sizes.size, bool))
        basis = jnp.where(kept[:, None], 0, right).T
    u, sizes, right = jnp.linalg.svd(jacobian @ basis, full_matrices=False)
    # Rows of `right` that the basis does not have are of zero size, and no direction of the unknowns.
    directions = basis @ right.T
    real = jnp.sum(directions**2, axis=0) > 0.5
    least = float(np.sqrt(np.finfo(r.dtype).eps)) * sizes[0]
    determined = sizes > least
    inverse = jnp.where(determined, 1 / jnp.where(determined, sizes, 1), 0)
    root = directions * inverse
    # Also directions beyond the number of residuals.
    missing = basis - jnp.where(determined, directions, 0) @ (directions.T @ basis)
    loose = missing @ missing.T
    loose = jnp.where(jnp.abs(loose) > 1e-6, loose, 0)
    fixed = jnp.append(at_bound, jnp.zeros(jacobian.shape[1] - n, bool))
    loose = jnp.where(fixed[:, None] | fixed[None], 0, loose)
    # The last step, of which the residuals are known to first order: where the search ends, its trust region is as small as the
    # rounding of the sum of squares, and not the error of the unknowns.
    flat, unravel = ravel_pytree(free)
    last = -root @ jnp.where(real, u.T @ r, 0)
    size = jnp.sqrt(jnp.mean(r**2))
    removed = jnp.where(determined & real, u.T @ r, 0)
    settled = jnp.max(jnp.abs(removed), initial=0) <= SETTLED * size + max(TINY, 50 * eps) * problem.signal()
    closed = jnp.max(jnp.abs(chain.gaps), initial=0) <= max(CLOSED, 1e3 * eps)
    good = chain.result == RESULTS.successful
    result = choose(good & ~(settled & closed), RESULTS.optimum_not_found, chain.result)
    result = choose(good & ~jnp.all(jnp.isfinite(r)), RESULTS.nonfinite, result)
    unknown = jnp.any(jnp.abs(loose[: n + s, : n + s]) > 0)
    small = settled & closed & good
    free, r = unravel(flat + jnp.where(small, last, 0)), r + jnp.where(small, jacobian @ last, 0)
    result = choose((result == RESULTS.successful) & unknown, RESULTS.undetermined, result)
    covariance = root @ root.T
    return Solved(
        free,
        chain,
        r,
        covariance[:n, :n],
        loose[: n + s, : n + s],
        covariance[n : n + s, n : n + s],
        r @ r,
        jnp.sum(determined & real),
        steps,
        at_bound,
        result,
    )
