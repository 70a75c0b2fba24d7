r"""A program of stages, $X_{k+1} = F_k(X_k, u_k)$, by the interior-point method: many unknowns, cheap functions, one start; the
Newton step of the barrier problem is a Riccati recursion.

Minimize $\Phi(X_N)$ over the states $X_k$, the inputs $u_k$ and the free part $w$ of the start $X_0 = S w$, subject to

$$X_{k+1} = F_k(X_k, u_k), \qquad r_k(X_k, u_k) \ge 0, \qquad E(X_N) = 0, \quad I(X_N) \ge 0.$$

All states are unknowns (direct multiple shooting): an iterate need not be a trajectory, the gaps $F_k(X_k, u_k) - X_{k+1}$ close
together with the other constraints. $X = (x, v, c, \xi)$: the state; what is the same in all stages, duration and parameters;
integrals since the start; and the start. So the conditions of a periodic orbit, an integral and a speed are functions of $X_N$.

With the costates $\lambda_k$, the multipliers $\nu$ of $E$ and the duals $z$ of the inequalities, whose slacks are $s$, the
second derivatives of the Lagrangian are sums over stages,

$$\nabla^2\bigl(\lambda_{k+1}^\top F_k - z_k^\top r_k\bigr), \qquad \nabla^2\bigl(\Phi + \nu^\top E - z_I^\top I\bigr)$$

and a Newton step is a linear-quadratic problem. Its cost to go is $\tfrac12 dX^\top P_k\,dX + (p_k + \Pi_k\nu)^\top dX +
\tfrac12\nu^\top S_k\nu + \sigma_k^\top\nu$, from the last stage to the first by one elimination of $u_k$ each, so the work grows
with the number of stages and not with its cube. The multipliers $\nu$ are left to the end; a weight $\rho$ on $E^\top E$, which
does not move the solution, makes the cost convex across $E = 0$. Where an elimination meets a pivot that is not positive, the
step need not descend, and a larger multiple of the identity is added.

As in `interior_point`, an iteration is one evaluation of all functions with their derivatives at a trial point, which is accepted
by the same filter, or whose step is halved; lanes of a batch run the same steps. Where no length of a step is accepted, steps
that lower the violations alone follow, and the next Newton step is taken where the filter allows.

Source: Bock, Plitt (1984), *A multiple shooting algorithm for direct solution of optimal control problems*, IFAC World Congress;
Rao, Wright, Rawlings (1998), *Application of interior-point methods to model predictive control*, J. Optim. Theory Appl. 99,
723-757; Wächter, Biegler (2006), Math. Program. 106, 25-57, sec. 2 and 3.3, for the barrier problem and the search.
"""

import functools as ft
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._numerics.elimination import solve_positive, solver
from .._numerics.trees import select
from .._system.results import choose, RESULTS
from .._system.types import Flag, Scalar
from .interior_point import (
    allows,
    DONE,
    empty_filter,
    Filter,
    InteriorPoint,
    judged_step,
    next_barrier,
    no_history,
    SearchHistory,
    with_point,
)
from .interval import ASKED, fly
from .nonlinear_program import keep_positive, largest

# The weight of the conditions at the end, in scaled functions, in double precision. Of 1e3 the steps to the gait of a robot of
# ten states lack descent.
WEIGHT = 1e5


class Sizes(NamedTuple):
    """Numbers: of `stages`; of components of `state`, `same`, `totals` and of the `inputs` of a stage; their `degree`."""

    stages: int
    state: int
    same: int
    totals: int
    inputs: int
    degree: int

    @property
    def whole(self) -> int:
        """The number of components of $X$."""
        return 2 * self.state + self.same + self.totals

    def parts(self, whole: Array) -> tuple[Array, Array, Array, Array]:
        """`(x, v, c, start)` of $X$."""
        ends = np.cumsum([self.state, self.same, self.totals])
        x, v, c, start = jnp.split(whole, ends)
        return x, v, c, start

    @property
    def embedding(self) -> np.ndarray:
        """$S$, from $w = (x, v)$ at the start."""
        x, v = self.state, self.same
        embedding = np.zeros((self.whole, x + v))
        embedding[: x + v] = np.eye(x + v)
        embedding[x + v + self.totals :, :x] = np.eye(x)
        return embedding


class Staged(NamedTuple):
    """States $X_k$ and inputs, slacks, costates of $X_1$ to $X_N$, multipliers and duals. `ending`: of the inequalities at the
    end."""

    states: Float[Array, "nodes whole"]
    inputs: Float[Array, "stages inputs"]
    slack: Float[Array, "stages rows"]
    ending_slack: Float[Array, " ending"]
    costates: Float[Array, "stages whole"]
    multipliers: Float[Array, " equalities"]
    dual: Float[Array, "stages rows"]
    ending_dual: Float[Array, " ending"]


class StageSample(NamedTuple):
    """The functions at a point, with derivatives; `bend`, `ending_bend`: second ones of the Lagrangian."""

    gap: Float[Array, "stages whole"]
    by_state: Float[Array, "stages whole whole"]
    by_input: Float[Array, "stages whole inputs"]
    rows: Float[Array, "stages rows"]
    rows_by_state: Float[Array, "stages rows whole"]
    rows_by_input: Float[Array, "stages rows inputs"]
    bend: Float[Array, "stages both both"]
    value: Float[Array, ""]
    gradient: Float[Array, " whole"]
    equal: Float[Array, " equalities"]
    equal_by_state: Float[Array, "equalities whole"]
    ending: Float[Array, " ending"]
    ending_by_state: Float[Array, "ending whole"]
    ending_bend: Float[Array, "whole whole"]


class StageProgram(eqx.Module):
    """**Attributes:** of stage `k`, `flow`: `(k, s, x, v, w) -> (n + integrals,)` and `rows`: `(k, s, x, v, w) -> (kinds,)`, as
    in `interval`; `limits`: `u -> rows`, affine. `ends`: of $X_N$, `(value, equal, ending)`. Unknowns and functions are of the
    order of 1."""

    flow: Callable
    rows: Callable
    limits: Callable
    ends: Callable
    sizes: Sizes = eqx.field(static=True)


def evaluate(program: StageProgram, point: Staged) -> StageSample:
    """All functions and their derivatives."""
    sizes = program.sizes
    n, m = sizes.state, sizes.state + sizes.same
    total = m + sizes.totals

    def one(k, whole, u, costate, dual):
        flow, rows = ft.partial(program.flow, k), ft.partial(program.rows, k)
        x, v, c, start = sizes.parts(whole)
        limits, by_limits = program.limits(u), jax.jacfwd(program.limits)(u)
        duals = dual[: dual.size - limits.size].reshape(len(ASKED), -1)
        end, end_by, along, along_by, bend = fly(
            flow, rows, sizes.degree, (x, v, u), jnp.concatenate([costate[:n], costate[m:total]]), duals
        )
        after = jnp.concatenate([end[:n], v, c + end[n:], start])
        dx, dc = end_by[:n], end_by[n:]
        by_state = jnp.eye(sizes.whole, dtype=u.dtype).at[:n, :m].set(dx[:, :m]).at[m:total, :m].set(dc[:, :m])
        by_input = jnp.zeros((sizes.whole, sizes.inputs), u.dtype).at[:n].set(dx[:, m:]).at[m:total].set(dc[:, m:])
        rows_by = along_by.reshape(-1, m + sizes.inputs)
        rows_by_state = jnp.pad(rows_by[:, :m], ((0, limits.size), (0, sizes.whole - m)))
        rows_by_input = jnp.concatenate([rows_by[:, m:], by_limits])
        values = jnp.concatenate([along.ravel(), limits])
        return after, by_state, by_input, values, rows_by_state, rows_by_input, bend

    numbers = jnp.arange(sizes.stages)
    after, a, b, rows, rows_a, rows_b, bends = jax.vmap(one)(
        numbers, point.states[:-1], point.inputs, point.costates, point.dual
    )

    def ends(whole):
        values, back = jax.vjp(program.ends, whole)
        pulled = back((jnp.ones_like(values[0]), point.multipliers, -point.ending_dual))[0]
        return (values, pulled), values

    derivatives, (value, equal, ending) = jax.jacfwd(ends, has_aux=True)(point.states[-1])
    (gradient, equal_by, ending_by), bend = derivatives
    gap = after - point.states[1:]
    at_end = value, gradient, equal, equal_by, ending, ending_by, bend
    return StageSample(gap, a, b, rows, rows_a, rows_b, bends, *at_end)


def no_sample(sizes: Sizes, point: Staged) -> StageSample:
    """A sample of zeros: its shapes without a trace of the functions."""
    rows, equalities, ending = *point.dual.shape[1:], point.multipliers.size, point.ending_dual.size
    both = sizes.state + sizes.same + sizes.inputs
    known = sizes._asdict() | {
        "whole": sizes.whole,
        "rows": rows,
        "equalities": equalities,
        "ending": ending,
        "both": both,
    }
    shapes = [[known[axis] for axis in each.dim_str.split()] for each in StageSample.__annotations__.values()]
    return StageSample(*(jnp.zeros(shape, point.states.dtype) for shape in shapes))


def first_costates(sample: StageSample) -> Float[Array, "stages whole"]:
    """The costates of the objective alone, backward along the stages."""

    def back(costate, by_state):
        return costate @ by_state, costate

    return jax.lax.scan(back, sample.gradient, sample.by_state, reverse=True)[1]


def slack_gaps(point: Staged, sample: StageSample) -> tuple[Array, Array]:
    """The inequalities less their slacks."""
    return sample.rows - point.slack, sample.ending - point.ending_slack


def gap_size(point: Staged, sample: StageSample) -> Scalar:
    """The sum of the violations of all constraints."""
    gaps = sample.gap, sample.equal, *slack_gaps(point, sample)
    return sum((jnp.sum(jnp.abs(each)) for each in gaps), jnp.zeros_like(sample.value))


def barrier_value(point: Staged, sample: StageSample, mu: Scalar) -> Scalar:
    """The objective of the barrier problem."""
    return sample.value - mu * (jnp.sum(jnp.log(point.slack)) + jnp.sum(jnp.log(point.ending_slack)))


def residual(program: StageProgram, point: Staged, sample: StageSample, mu: Scalar | float) -> tuple[Scalar, Scalar]:
    """The largest residual of the conditions of optimality of the barrier problem, the dual ones relative to large multipliers;
    and that of the constraints alone."""
    pulled = lambda by, rows_by: (
        jnp.einsum("kab,ka->kb", by, point.costates) - jnp.einsum("kra,kr->ka", rows_by, point.dual)
    )
    states = pulled(sample.by_state, sample.rows_by_state)
    inputs = pulled(sample.by_input, sample.rows_by_input)
    embedding = jnp.asarray(program.sizes.embedding, states.dtype)
    last = sample.gradient + point.multipliers @ sample.equal_by_state - point.ending_dual @ sample.ending_by_state
    stationary = (states[1:] - point.costates[:-1], inputs, last - point.costates[-1], states[0] @ embedding)
    products = point.slack * point.dual - mu, point.ending_slack * point.ending_dual - mu
    duals = (point.costates, point.multipliers, point.dual, point.ending_dual)
    scale = jnp.maximum(1, jnp.mean(jnp.abs(jnp.concatenate([each.ravel() for each in duals]))) / 100)
    worst = lambda parts: jnp.max(jnp.stack([largest(each) for each in parts]))
    primal = worst((sample.gap, sample.equal, *slack_gaps(point, sample)))
    return jnp.maximum(primal, worst((*stationary, *products)) / scale), primal


def newton_direction(
    program: StageProgram, point: Staged, sample: StageSample, mu: Scalar, last: Scalar, restoring: Flag
) -> tuple[Staged, Scalar, Scalar]:
    """The direction towards the solution of the barrier problem for `mu`.

    **Arguments:** `last`: the last shift that was needed, zero before the first. `restoring`: whether the
    step only closes the violations, by the shortest way.
    """

    def trial(carry):
        shift, count, *_ = carry
        first = jnp.where(last > 0, jnp.maximum(last / 3, 1e-12), 1e-4)
        raised = jnp.where(shift > 0, jnp.where(last > 0, 8, 100) * shift, first)
        shift = jnp.where(count > 0, raised, 0)
        step, sound = _step(program, point, sample, mu, shift, restoring)
        return shift, count + 1, sound.astype(jnp.int32), step

    again = lambda carry: (carry[2] < 1) & (carry[1] < 30)
    zero = jnp.zeros((), jnp.int32)
    start = jnp.zeros_like(last), zero, zero, jax.tree.map(jnp.zeros_like, point)
    shift, _, _, step = jax.lax.while_loop(again, trial, start)
    # Of a slack that grows from almost nothing the logarithm: the derivative promises what no step can hold.
    gain = lambda step, slack: jnp.sum(jnp.where(step > 0, jnp.log1p(jnp.maximum(step, 0) / slack), step / slack))
    barrier = mu * (gain(step.slack, point.slack) + gain(step.ending_slack, point.ending_slack))
    return step, sample.gradient @ step.states[-1] - barrier, shift


def _step(program: StageProgram, point: Staged, sample: StageSample, mu, shift, restoring) -> tuple[Staged, Flag]:
    """The step with a shift, and whether all pivots are positive."""
    sizes, dtype = program.sizes, point.states.dtype
    m, whole, count = sizes.state + sizes.same, sizes.whole, sample.equal.size
    curved = jnp.where(restoring, 0, 1).astype(dtype)
    weight = min(WEIGHT, 0.1 / float(jnp.finfo(dtype).eps) ** 0.5)
    shift = shift + jnp.where(restoring, jnp.sqrt(mu), 0)
    stiffness, ending_stiffness = point.dual / point.slack, point.ending_dual / point.ending_slack
    gap, ending_gap = slack_gaps(point, sample)
    by_state, by_input, embedding = sample.rows_by_state, sample.rows_by_input, jnp.asarray(sizes.embedding, dtype)
    weighted = lambda left, right: jnp.einsum("kra,kr,krb->kab", left, stiffness, right)
    pad = sizes.whole - m
    bend = curved * sample.bend
    cost = jnp.pad(bend[:, :m, :m], ((0, 0), (0, pad), (0, pad))) + weighted(by_state, by_state)
    cost = cost + shift * jnp.eye(whole, dtype=dtype)
    cross = jnp.pad(bend[:, :m, m:], ((0, 0), (0, pad), (0, 0))) + weighted(by_state, by_input)
    input_cost = bend[:, m:, m:] + weighted(by_input, by_input) + shift * jnp.eye(sizes.inputs, dtype=dtype)
    pull = mu / point.slack - stiffness * gap
    linear = -jnp.einsum("kra,kr->ka", by_state, pull), -jnp.einsum("kra,kr->ka", by_input, pull)
    equal_by, ending_by = sample.equal_by_state, sample.ending_by_state
    last_cost = curved * sample.ending_bend + ending_by.T @ (ending_stiffness[:, None] * ending_by)
    last_cost = last_cost + shift * jnp.eye(whole, dtype=dtype) + weight * equal_by.T @ equal_by
    ending_pull = mu / point.ending_slack - ending_stiffness * ending_gap
    last_linear = curved * sample.gradient - ending_pull @ ending_by + weight * sample.equal @ equal_by

    def back(carry, stage):
        cost, linear, held, square, free = carry
        a, b, gap, q, cross, r, q_linear, r_linear = stage
        cost_b, pushed = cost @ b, cost @ gap + linear
        right = jnp.concatenate([cross.T + cost_b.T @ a, (r_linear + b.T @ pushed)[:, None], b.T @ held], axis=1)
        solved, pivot = solve_positive(r + b.T @ cost_b, right)
        gain, own, by_held = -solved[:, :whole], -solved[:, whole], -solved[:, whole + 1 :]
        before = q + a.T @ cost @ a + right[:, :whole].T @ gain
        after = (
            (before + before.T) / 2, q_linear + a.T @ pushed + right[:, :whole].T @ own,
            a.T @ held + right[:, :whole].T @ by_held, square + right[:, whole + 1 :].T @ by_held,
            free + held.T @ gap + right[:, whole + 1 :].T @ own,
        )  # fmt: skip
        return after, (gain, own, by_held, cost, linear, held, pivot)

    end = last_cost, last_linear, equal_by.T, jnp.zeros((count, count), dtype), sample.equal
    stages = (sample.by_state, sample.by_input, sample.gap, cost, cross, input_cost, *linear)
    (cost, own, held, square, free), (*laws, pivots) = jax.lax.scan(back, end, stages, reverse=True)
    # The free part of the start, and the multipliers.
    right = jnp.concatenate([(embedding.T @ own)[:, None], embedding.T @ held], axis=1)
    solved, pivot = solve_positive(embedding.T @ cost @ embedding, right)
    schur = square - right[:, 1:].T @ solved[:, 1:]
    multipliers = solver(schur)(right[:, 1:].T @ solved[:, 0] - free)
    first = -embedding @ (solved[:, 0] + solved[:, 1:] @ multipliers)

    def forth(dx, stage):
        (gain, own, by_held, cost, linear, held), a, b, gap = stage
        du = gain @ dx + own + by_held @ multipliers
        dx = a @ dx + b @ du + gap
        return dx, (dx, du, cost @ dx + linear + held @ multipliers)

    moves = (tuple(laws), sample.by_state, sample.by_input, sample.gap)
    _, (later, du, costates) = jax.lax.scan(forth, first, moves)
    dx = jnp.concatenate([first[None], later])
    slack = gap + jnp.einsum("kra,ka->kr", by_state, dx[:-1]) + jnp.einsum("kra,ka->kr", by_input, du)
    ending = ending_gap + ending_by @ dx[-1]
    step = Staged(
        dx, du, slack, ending, costates - point.costates, multipliers - point.multipliers,
        mu / point.slack - point.dual - stiffness * slack,
        mu / point.ending_slack - point.ending_dual - ending_stiffness * ending,
    )  # fmt: skip
    finite = jnp.all(jnp.isfinite(multipliers)) & jnp.all(jnp.isfinite(dx))
    return step, (jnp.minimum(jnp.min(pivots), pivot) > 0) & finite


def longest(point: Staged, step: Staged, mu: Scalar) -> tuple[Scalar, Scalar]:
    """The largest fractions of a step that keep slacks and duals positive."""
    keep = jnp.clip(1 - mu, 0.99, 1 - 4 * jnp.finfo(mu.dtype).eps)
    of = lambda values, steps: keep_positive(keep, values.ravel(), steps.ravel())
    primal = jnp.minimum(of(point.slack, step.slack), of(point.ending_slack, step.ending_slack))
    dual = jnp.minimum(of(point.dual, step.dual), of(point.ending_dual, step.ending_dual))
    return primal, dual


def moved(point: Staged, step: Staged, primal: Scalar, dual: Scalar, mu: Scalar) -> Staged:
    """The point after fractions of the step, with duals within a factor of 1e10 of those of the central path."""
    along = {name: getattr(point, name) + primal * getattr(step, name) for name in Staged._fields[:6]}
    near = lambda value, slack: jnp.clip(value, mu / (1e10 * slack), 1e10 * mu / slack)
    return Staged(
        **along,
        dual=near(point.dual + dual * step.dual, along["slack"]),
        ending_dual=near(point.ending_dual + dual * step.ending_dual, along["ending_slack"]),
    )


# The phases: the first evaluation, which gives slacks and costates; the barrier problems.
BEGIN, BARRIER = 0, 1
# A step is halved so often; steps that only close violations follow, at most so many in all.
HALVINGS, RESTORATIONS = 10, 40
# The first barrier parameter, of that of the method: functions are of the order of 1 and not of 32.
PART = 0.1
# The barrier parameter from which a search goes on that is near its end.
WARM = 1e-6


class StageSearch(eqx.Module):
    """The state of a search between two evaluations.

    **Attributes:** `phase`, `trial`, `point` and `sample` there, `mu`, `filter`, `most`, `slope`, `fraction`, `restoring`,
    `rejected`, `error`, `iterations` and `history`: as in `ProgramSearch`. `step`: of all variables; `dual`: its fraction for
    the duals; `shift`: the last one that was needed. `restorations`: steps that only closed violations. `violation`: the largest.
    """

    phase: Int[Array, ""]
    trial: Staged
    point: Staged
    sample: StageSample
    mu: Float[Array, ""]
    filter: Filter
    most: Float[Array, ""]
    step: Staged
    slope: Float[Array, ""]
    fraction: Float[Array, ""]
    dual: Float[Array, ""]
    shift: Float[Array, ""]
    restoring: Bool[Array, ""]
    restorations: Int[Array, ""]
    rejected: Int[Array, ""]
    error: Float[Array, ""]
    violation: Float[Array, ""]
    iterations: Int[Array, ""]
    history: SearchHistory


def begin(program: StageProgram, method: InteriorPoint, point: Staged, warm: Flag) -> StageSearch:
    """The state before the first evaluation, of `point`; `warm`: whether its slacks and multipliers are those of an optimum."""
    dtype = point.states.dtype
    zero, none, no = jnp.zeros((), dtype), jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    sample = no_sample(program.sizes, point)
    return StageSearch(
        phase=jnp.where(warm, BARRIER, BEGIN).astype(jnp.int32), trial=point, point=point, sample=sample,
        mu=jnp.where(warm, WARM, PART * method.barrier).astype(dtype), filter=empty_filter(dtype), most=zero + jnp.inf,
        step=jax.tree.map(jnp.zeros_like, point), slope=zero, fraction=zero, dual=zero, shift=zero, restoring=no,
        restorations=none, rejected=none, error=zero + jnp.inf, violation=zero + jnp.inf, iterations=none,
        history=no_history(method.max_iterations, dtype),
    )  # fmt: skip


def search(program: StageProgram, method: InteriorPoint, state: StageSearch) -> StageSearch:
    """The state of the search at its end."""
    going = lambda state: (state.phase < DONE) & (state.iterations < method.max_iterations)
    return jax.lax.while_loop(going, lambda state: _iterate(program, method, state), state)


def _iterate(program: StageProgram, method: InteriorPoint, state: StageSearch) -> StageSearch:
    sample = evaluate(program, state.trial)
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(sample)]))
    sample = select(sound, sample, state.sample)
    first = state.iterations == 0
    after = select(
        first, _after_first(program, state, sample, sound), _after_trial(program, state, sample, sound, method)
    )
    i, nan = state.iterations, jnp.where(sound, 0, jnp.nan)
    code = choose(sound, RESULTS.successful, RESULTS.nonfinite)
    length = jnp.max(jnp.abs(state.trial.states - state.point.states))
    # Before the first evaluation slacks are not known.
    violation = jnp.where(state.phase == BEGIN, after.violation, residual(program, state.trial, sample, 0.0)[1])
    row = sample.value + nan, violation + nan, length, (after.rejected == 0) & sound, state.phase, code._value
    after = replace(after, iterations=i + 1, history=state.history.with_row(i, *row))
    after = _with_next_trial(program, method, after)
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state)


def _after_first(program: StageProgram, state: StageSearch, sample: StageSample, sound: Flag) -> StageSearch:
    """The first point has slacks, duals and costates; those of an optimum near by are kept."""
    warm = state.phase == BARRIER
    least = jnp.where(warm, WARM, 1e-2)
    slack, ending = jnp.maximum(sample.rows, least), jnp.maximum(sample.ending, least)
    own = state.point._replace(
        slack=slack, ending_slack=ending, costates=first_costates(sample), dual=state.mu / slack,
        ending_dual=state.mu / ending,
    )  # fmt: skip
    kept = state.point._replace(slack=slack, ending_slack=ending)
    point = select(warm, kept, own)
    error, violation = residual(program, point, sample, 0.0)
    # Second derivatives are those of the multipliers before: the point is evaluated once more.
    return replace(
        state, phase=jnp.where(sound, jnp.where(warm, BARRIER, BEGIN), DONE), point=point, sample=sample,
        most=1e4 * jnp.maximum(1, gap_size(point, sample)), error=error, violation=violation,
    )  # fmt: skip


def _after_trial(
    program: StageProgram, state: StageSearch, sample: StageSample, sound: Flag, method: InteriorPoint
) -> StageSearch:
    of = lambda point, sample: (gap_size(point, sample), barrier_value(point, sample, state.mu))
    before, after = of(state.point, state.sample), of(state.trial, sample)
    accepted, blocks = judged_step(state.filter, state.most, state.fraction * state.slope, before, after)
    lower = after[0] <= (1 - 1e-4 * state.fraction) * before[0]
    accepted = sound & (jnp.where(state.restoring, lower, accepted) | (state.phase == BEGIN))
    blocks = blocks & sound & ~state.restoring & (state.phase != BEGIN)
    point = select(accepted, state.trial, state.point)
    sample = select(accepted, sample, state.sample)
    error, violation = residual(program, point, sample, 0.0)
    restored = state.restoring & accepted & allows(state.filter, *after)
    return replace(
        state, phase=jnp.full_like(state.phase, BARRIER), point=point, sample=sample, error=error, violation=violation,
        filter=with_point(state.filter, blocks, *before), restoring=state.restoring & ~restored,
        rejected=jnp.where(accepted, 0, state.rejected + 1),
    )  # fmt: skip


def _with_next_trial(program: StageProgram, method: InteriorPoint, state: StageSearch) -> StageSearch:
    point, sample = state.point, state.sample
    least = 1e-4 * method.accept

    def lowered(_, mu):
        solved = residual(program, point, sample, mu)[0] <= 10 * mu
        return next_barrier(mu, solved, least)

    begun = state.phase == BARRIER
    mu = jnp.where(begun, jax.lax.fori_loop(0, 8, lowered, state.mu), state.mu)
    filter = select(mu < state.mu, empty_filter(mu.dtype), state.filter)
    # No length of the step is accepted.
    stuck = state.rejected > HALVINGS
    restores = stuck & ~state.restoring
    filter = with_point(filter, restores, gap_size(point, sample), barrier_value(point, sample, mu))
    restoring = state.restoring | restores
    hopeless = (stuck & state.restoring) | (state.restorations > RESTORATIONS)
    # At rounding no step is accepted.
    near = (state.error <= method.accept) & (state.rejected > 2)
    ended = begun & ((state.error <= 1e-3 * method.accept) | near | hopeless)
    # The same step, shorter, while it is rejected.
    again = (state.rejected > 0) & ~stuck

    def new():
        step, slope, shift = newton_direction(program, point, sample, mu, state.shift, restoring)
        return step, slope, *longest(point, step, mu), shift

    def old():
        return state.step, state.slope, state.fraction / 2, state.dual, jnp.zeros_like(state.shift)

    step, slope, fraction, dual, shift = jax.lax.cond(again | ~begun | ended, old, new)
    trial = moved(point, step, fraction, dual, mu)
    # A restoration has no multipliers of its own.
    kept = trial._replace(costates=point.costates, multipliers=point.multipliers)
    trial = select(restoring, kept, trial)
    return replace(
        state, phase=jnp.where(ended, DONE, state.phase), trial=select(begun, trial, point), mu=mu, filter=filter, step=step,
        slope=slope, fraction=fraction, dual=dual, shift=jnp.where(shift > 0, shift, state.shift), restoring=restoring,
        restorations=state.restorations + restoring.astype(jnp.int32), rejected=jnp.where(stuck, 0, state.rejected),
    )  # fmt: skip


def code_of_search(state: StageSearch, method: InteriorPoint) -> RESULTS:
    """`successful`, `infeasible` where no step lessens the violations, `optimum_not_found`; or `nonfinite` at the start."""
    result = choose(state.restoring & (state.violation > 1e-4), RESULTS.infeasible, RESULTS.optimum_not_found)
    result = choose(state.error <= method.accept, RESULTS.successful, result)
    known = jnp.any(state.history.accepted)
    return choose(known, result, RESULTS.nonfinite)
