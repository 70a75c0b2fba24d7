"""A step with inputs free in time that is optimal: the search, and its result."""

import functools as ft
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int

from .._numerics.eager import dense_run
from .._numerics.eigenvalues import eigenvalues, inside_circle
from .._numerics.elimination import solver
from .._numerics.semidefinite import check_positive, closed_loop, stabilizing_cost
from .._numerics.trees import select
from .._results.failure import raise_failure
from .._results.registry import draw
from .._results.shown import is_traced, lanes, one_of_batch, Shown
from .._results.table import Table
from .._results.working import working
from .._system.results import choose, counted_codes, described_code, nan_unless, RESULTS, SolveError
from .._system.types import Flag, Scalar
from .._system.where import Where
from ..control.held_inputs import Plan
from ..control.riccati_equation import RiccatiMap
from .constraint import all_constraints, Constraint, label_of, limits_of, Objective
from .interior_point import InteriorPoint, SearchHistory
from .interval import input_at, points_of
from .orbit_program import Bounds, unknowns_of
from .plan_program import LONGEST, MET, OUTSIDE, plan_program, PlanProgram, SHORTEST
from .stages import begin, code_of_search, search, Staged, StageSearch

# Searches with raised limits along the arc.
ROUNDS = 8
# The largest shortfall, of rows of the order of 1, and the largest gap of a successful search.
MISSED, COARSE = 1e-8, 1e-6
# By how many times what is met a raised row may keep its limit.
EXCESS = 1000


class OptimizedPlan(Shown):
    r"""An optimal step with inputs free in time.

    **Attributes:** `plan`: the `Plan`, a trajectory but for `gap`; `hj.periodic_orbit(*gait.plan.orbit_guess())` is its orbit,
    with multipliers. `value`: of the objective. `multipliers`: of the equality constraints' rows $g - b$, and
    `ending_multipliers` of the inequalities that hold at the ends, in the order of the constraints; `arc_multipliers` of those
    along the arc, the sum over the points of an interval, shape `(intervals, rows)`: the derivative of the value by the limit,
    for `at_most` minus that. `error`: the largest residual of the optimality conditions, in scaled functions. `shortfall`: the
    most by which a row along the arc falls short of its limit, relative to the row's size, by parabolas through nine points of
    each interval. `gap`: the largest distance of an interval's end, flown in eight times smaller steps, from the next state,
    relative to the state's size. `rounds`: searches, each with the limits raised where they were not met between points;
    `iterations`: evaluations in the last of them, with its `history`. `program`: the nonlinear program; `point`: its solution,
    in its units; `method`: of the search. `result`: `successful`; `infeasible`, where no step lessens the violations;
    `optimum_not_found`, also where a shortfall above 1e-8, a gap above 1e-6, or a limit that was raised by too much is left (take
    more intervals), or the duration is a fifth of that of the guess or five times as long; `grazing` where the guard does not
    fall at the end; `unexpected_transition` where it falls before, or the domain is left; `nonfinite` where the guess has no
    finite values.

    **Methods:** `return_jacobian`, whose eigenvalues are the multipliers of the gait; `feedback()`, which stabilizes it;
    `distances(n)`: from the limits along the arc; `plot()`.

    **Example:**

    >>> cart = hj.Mode(lambda t, x, p: jnp.stack([x[1], p]), ("place", "speed"))
    >>> turn = hj.Transition("cart", "cart", lambda t, x, p: 1 - x[0], lambda t, x, p: jnp.stack([0 * x[0], x[1]]))
    >>> step = hj.ReturnMap(hj.HybridSystem({"cart": cart}, (turn,)), sequence=("cart",))
    >>> inputs = hj.control.HeldInputs(step, lambda p: p, intervals=4)
    >>> guess = inputs.plan(jnp.array([[0.0, 0.5], [1.0, 0.5]]), 2.0, jnp.array(0.0))
    >>> effort = hj.objectives.integral(lambda t, x, p: p**2)
    >>> start = hj.Constraint(lambda orbit, p: orbit.x[1], equals=0.4)
    >>> time = hj.Constraint(hj.objectives.period, equals=2.0)
    >>> gait = hj.optimize(guess, effort, constraints=[start, time])
    >>> print(f"{gait.value:.6f}", gait.result)
    0.060000 successful
    """

    plan: Plan
    value: Scalar
    multipliers: Float[Array, " equalities"]
    ending_multipliers: Float[Array, " inequalities"]
    arc_multipliers: Float[Array, "intervals rows"]
    error: Scalar
    shortfall: Scalar
    gap: Scalar
    rounds: Int[Array, ""]
    iterations: Int[Array, ""]
    history: SearchHistory
    result: RESULTS
    program: PlanProgram
    point: Staged
    method: InteriorPoint

    @property
    def params(self):
        """The parameters of the model."""
        return self.plan.params

    @property
    def system(self):
        """The system of the model."""
        return self.plan.held.map.system

    @property
    def labels(self) -> list[str]:
        """The names of the constraints' rows, equalities first. `ValueError` for a batch."""
        one_of_batch("labels", self.value, "plans")
        return [label_of(row) for row in limits_of(self.program.constraints, self.program.counts)]

    @property
    def arc_labels(self) -> list[str]:
        """The labels of the rows along the arc, the columns of `arc_multipliers`."""
        rows, program = iter(self.labels[self.multipliers.shape[-1] :]), self.program
        named = [[next(rows) for _ in range(count)] for _, count in program.counts]
        return [label for labels, along in zip(named, program.along, strict=True) if along for label in labels]

    @eqx.filter_jit
    def distances(self, n: int = 9) -> Float[Array, "times rows"]:
        """How far the rows along the arc keep from their limits, in their units, at the times of `plan.sample(n)`; NaN outside
        of their windows. `ValueError` for a batch."""
        one_of_batch("distances", self.value, "plans")
        program, (_, x, inputs) = self.program, self.plan.sample(n)
        _, v, _, _ = program.sizes.parts(self.point.states[-1])
        numbers, parts = jnp.arange(len(x)) // n, jnp.tile(jnp.linspace(0, 1, n, dtype=x.dtype), len(x) // n)
        inputs = inputs.reshape(len(x), -1)
        at = lambda k, s, x, w: program.rows(k, s, x / program.scales.state, v, w / program.scales.input[: w.size])
        rows = jax.vmap(at)(numbers, parts, x, inputs)
        return jnp.where(rows == OUTSIDE, jnp.nan, rows * program.scales.rows)

    @property
    @eqx.filter_jit
    def return_jacobian(self) -> Float[Array, "n n"]:
        """The Jacobian of the step, from the state after its jump to that after the next one, with the inputs as functions of the
        time since the jump: its eigenvalues are the gait's multipliers. `ValueError` for a batch."""
        one_of_batch("return_jacobian", self.value, "plans")
        by_state, _, closing = self._linear_stages()
        flown, _ = jax.lax.scan(
            lambda total, by: (by @ total, None), jnp.eye(len(closing), dtype=closing.dtype), by_state
        )
        scale = self.program.scales.state
        return scale[:, None] * (closing @ flown) / scale

    def _linear_stages(
        self,
    ) -> tuple[Float[Array, "intervals n n"], Float[Array, "intervals n m"], Float[Array, "n n"]]:
        """The derivatives of the end of each interval by the state at its start and by what is added to its input; and those of
        the state after the jump by that at the planned time of the jump. In units of the sizes."""
        program, sizes = self.program, self.program.sizes
        scale, way, last = program.scales.state, program.held.ending, sizes.stages - 1
        x, v, _, _ = jax.vmap(sizes.parts, out_axes=(0, 0, 0, 0))(self.point.states)
        v, m = v[-1], sizes.inputs // (sizes.degree + 1)

        def end(k, x, added, u):
            u = u + jnp.tile(added, sizes.degree + 1)
            return points_of(ft.partial(program.flow, k), sizes.degree, x, v, u, 0.0, 1.0)[2][: x.size]

        of_interval = jax.vmap(jax.jacfwd(end, (1, 2)), in_axes=(0, 0, None, 0))
        by_state, by_input = of_interval(jnp.arange(sizes.stages), x[:-1], jnp.zeros(m, x.dtype), self.point.inputs)
        one, input = jnp.ones((), x.dtype), input_at(sizes.degree, self.point.inputs[-1], jnp.ones((), x.dtype))

        def at(function, s, x):
            t, _, params = program._at(last, s, v, input)
            return jnp.asarray(function(t, x * scale, params), x.dtype)

        rate = program.flow(last, one, x[-1], v, input)[: x.shape[1]]
        (fall, slope), (by_time, by_end) = (
            jax.jacfwd(ft.partial(at, each), (0, 1))(one, x[-1]) for each in (way.guard, way.reset)
        )
        # Where the state is higher over the guard's surface, the jump is later.
        later = -slope / (fall + slope @ rate)
        return by_state, by_input, (by_end + jnp.outer(by_time + by_end @ rate, later)) / scale[:, None]

    def feedback(
        self,
        *,
        state_cost: Float[Array, "n n"] | None = None,
        control_cost: Float[Array, "m m"] | None = None,
        throw: bool = True,
    ) -> "PlanFeedback":
        r"""The linear-quadratic regulator of the step, once per interval: $u = u_k(t) - K_k\,(x(t_k) - x_k)$ for that
        from $t_k$.

        The gains minimize $\sum_k \delta x_k^\top Q\,\delta x_k + \delta u_k^\top R\,\delta u_k$ over all steps to come: with the
        jump from the last interval to the first, $P_k = Q + A_k^\top P_{k+1} (I + B_k R^{-1} B_k^\top P_{k+1})^{-1} A_k$.

        **Arguments:** `state_cost`: $Q$, symmetric and positive definite, shape `(n, n)`; by default the square of the distance
        in the sizes of the state. `control_cost`: $R$, likewise, `(m, m)`; by default in sizes of the inputs that move the state
        by its own. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the code.

        **Returns:** `PlanFeedback`. `ValueError` for a batch, and for costs of another shape or that are not positive definite.

        Source: Anderson, Moore (1990), *Optimal Control: Linear Quadratic Methods*; Bittanti, Colaneri (2009), *Periodic
        Systems*, ch. 6.
        """
        one_of_batch("feedback", self.value, "plans")
        sizes, scales, costs = self.program.sizes, self.program.scales, []
        named = ("state_cost", state_cost, scales.state), ("control_cost", control_cost, scales.input)
        for (name, given, scale), size in zip(named, (sizes.state, sizes.inputs // (sizes.degree + 1)), strict=True):
            if given is None:
                costs.append(jnp.eye(size, dtype=scale.dtype))
            else:
                given = check_positive(given, size, scale.dtype, f"feedback: {name}")
                costs.append(scale[:size, None] * given * scale[:size])
        found = _feedback(self, *costs)
        return raise_failure("OptimizedPlan.feedback", found) if throw else found

    def plot(self):
        """A figure of coordinates, inputs and distances from limits over time; see `hyjax.plot.plan_figure`."""
        return draw(self)

    def __len__(self) -> int:
        """The number of plans in a batch; `TypeError` for one plan."""
        if self.value.ndim == 0:
            raise TypeError("This is one plan, not a batch of plans.")
        return len(self.value)

    def __getitem__(self, i) -> "OptimizedPlan":
        """One plan, or several, of a batch; `TypeError` for one plan, `IndexError` for one that is not there."""
        return lanes(self, self.value, i, "one plan, not a batch of plans")

    def _tables(self):
        return (_table(self) if self.value.ndim == 0 else _batch_table(self),)


class PlanFeedback(NamedTuple):
    r"""The feedback $\delta u_k = -K_k\,\delta x_k$ of a step with inputs free in time, from `OptimizedPlan.feedback`.

    **Attributes:** `gains`: $K_k$, of the input by the state, shape `(intervals, m, n)`. `multipliers`: of the closed loop once
    around the step, largest modulus first, shape `(n,)`. `result`: `successful`, `not_stabilized` where no gains put all
    multipliers inside the unit circle, or the code of the plan.

    **Example:**

    >>> cart = hj.Mode(lambda t, x, p: jnp.stack([x[1], p]), ("place", "speed"))
    >>> turn = hj.Transition("cart", "cart", lambda t, x, p: 1 - x[0], lambda t, x, p: jnp.stack([0 * x[0], x[1]]))
    >>> step = hj.ReturnMap(hj.HybridSystem({"cart": cart}, (turn,)), sequence=("cart",))
    >>> inputs = hj.control.HeldInputs(step, lambda p: p, intervals=2)
    >>> guess = inputs.plan(jnp.array([[0.0, 0.5], [1.0, 0.5]]), 2.0, jnp.array(0.0))
    >>> effort = hj.objectives.integral(lambda t, x, p: p**2)
    >>> gait = hj.optimize(guess, effort, constraints=hj.Constraint(hj.objectives.period, equals=2.0))
    >>> feedback = gait.feedback(control_cost=jnp.eye(1))
    >>> feedback.gains.shape, str(feedback.result)
    ((2, 1, 2), 'successful')
    """

    gains: Float[Array, "intervals m n"]
    multipliers: Complex[Array, " n"]
    result: RESULTS


@dense_run
def _feedback(gait: OptimizedPlan, q: Float[Array, "n n"], r: Float[Array, "m m"]) -> PlanFeedback:
    by_state, by_input, closing = gait._linear_stages()
    n, m = len(q), len(r)
    acting = jax.vmap(lambda b: b @ solver(r)(b.T))(by_input)
    stages = RiccatiMap(by_state, acting, jnp.broadcast_to(q, by_state.shape))
    zero = jnp.zeros_like(q)
    total, _ = jax.lax.scan(
        lambda total, each: (total.then(each), None), RiccatiMap(jnp.eye(n, dtype=q.dtype), zero, zero), stages
    )
    once = total.then(RiccatiMap(closing, zero, zero))
    cost = stabilizing_cost(once.a, once.g, once.h)
    multipliers = eigenvalues(closed_loop(once.a, once.g, cost))

    def gain(p, stage):
        each, b = stage
        return each.before(p), solver(r + b.T @ p @ b)(b.T @ p @ each.a)

    _, gains = jax.lax.scan(gain, closing.T @ cost @ closing, (stages, by_input), reverse=True)
    scales = gait.program.scales
    sound = jnp.all(jnp.isfinite(gains)) & inside_circle(multipliers)
    result = choose((gait.result == RESULTS.successful) & ~sound, RESULTS.not_stabilized, gait.result)
    return PlanFeedback(scales.input[:m, None] * gains / scales.state, multipliers, result)


def optimize_plan(
    plan: Plan, objective: Objective, where: Where | None, constraints: Constraint | Sequence, bounds: Bounds, method:
    InteriorPoint, throw: bool,
) -> OptimizedPlan:  # fmt: skip
    """`hyjax.optimize` of a plan."""
    constraints = all_constraints(constraints)
    if where is None and bounds is not None:
        raise ValueError(
            f"optimize: bounds={bounds} are of the parameters that where= picks; of the input, see HeldInputs."
        )
    unknowns = None if where is None else unknowns_of(where, plan.params, bounds, plan.x.dtype)
    if unknowns is not None and plan.held.leaf(plan.params) in unknowns.free:
        raise ValueError("optimize: where picks the input of the plan, which is free already.")
    with working("optimizing: compiling"):
        found = searched(*_first(plan, objective, constraints, unknowns), method, jnp.array(False))
    if throw and not is_traced(found) and found.result != RESULTS.successful:
        raise SolveError(_failure(found), found.result._value, found)
    return found


@dense_run
def _first(plan: Plan, objective, constraints, unknowns) -> tuple[PlanProgram, Staged]:
    program = plan_program(plan, objective, constraints, unknowns)
    # Of no weak type: else `searched` would be compiled again for another number.
    strong = lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf
    return jax.tree.map(strong, (program, program.point(plan)))


@dense_run
def searched(program: PlanProgram, point: Staged, method: InteriorPoint, warm: Flag) -> OptimizedPlan:
    """The optimum from a point. `warm`: whether this is one of a program near by, with slacks, multipliers and raised limits."""
    # Raised by a little more than what is missing, a row is met after a few searches, and lowered where it is raised by far too
    # much. What fits exactly is found by many, as the least value jumps between intervals.
    met, excess = _tolerances(point.states.dtype)
    with_raised = lambda raised: eqx.tree_at(lambda each: each.raised, program, raised)

    def one(carry):
        rounds, raised, last, state, checked, _ = carry
        rows, *_ = checked
        # By secants. Rows are zero before the first search.
        moved, change = raised - last[0], last[1] - rows
        slope = jnp.where(moved == 0, 1, jnp.clip(change / jnp.where(moved == 0, 1, moved), 0.2, 5))
        astray = (rows > 0) | (rows < -excess)
        higher = jnp.where(astray, jnp.maximum(raised + (rows + 30 * met) / slope, 0), raised)
        higher_program = with_raised(higher)
        later = search(
            higher_program.staged, method, begin(higher_program.staged, method, state.point, warm | (rounds > 0))
        )
        found, solved = higher_program.shortfall(later.point), later.error <= method.accept
        # A search from an optimum that finds none is the last, and the optimum before it stays.
        new, old = (higher, (raised, rows), later, found), (raised, last, state, checked)
        raised, last, state, checked = select((rounds < 1) | solved, new, old)
        more = solved & ((jnp.max(found[0], initial=0.0) > met) | _too_tight(found[0], higher))
        return rounds + 1, raised, last, state, checked, more.astype(jnp.int32)

    start = begin(program.staged, method, point, warm)
    none = jnp.zeros_like(program.raised), jnp.zeros((), point.states.dtype), jnp.array(False)
    again = lambda carry: (carry[0] < ROUNDS) & (carry[-1] > 0)
    carry = jnp.array(0), program.raised, (program.raised, none[0]), start, none, jnp.array(1, jnp.int32)
    rounds, raised, _, state, checked, _ = jax.lax.while_loop(again, one, carry)
    return _result(with_raised(raised), method, rounds, state, checked)


def _tolerances(dtype) -> tuple[float, float]:
    """The shortfall up to which a row between the points is met, and that by which a raised one is met by far too much."""
    met = max(MET, 8 * float(jnp.finfo(dtype).eps))
    return met, EXCESS * met


def _too_tight(rows: Float[Array, "intervals kinds"], raised: Float[Array, "intervals kinds"]) -> Flag:
    """Whether a row that is raised keeps its limit by far too much: the optimum of other limits."""
    _, excess = _tolerances(raised.dtype)
    return jnp.any((rows < -excess) & (raised > excess))


def _result(program: PlanProgram, method: InteriorPoint, rounds, state: StageSearch, checked: tuple) -> OptimizedPlan:
    """The plan at the end of the searches. `checked`: the results of `PlanProgram.shortfall` there."""
    (short, gap, strays), worst = checked, jnp.max(checked[0], initial=0.0)
    scales, point = program.scales, state.point
    closing = program.sizes.state + 1
    kinds = max(program.raised.shape[1], 1)
    count = point.dual.shape[1] - int(sum(program.held.limited)) * program.sizes.inputs
    rows = point.dual[:, :count].reshape(len(point.dual), -1, kinds if count else 1)
    # Written so that NaN fails.
    eps = float(jnp.finfo(point.states.dtype).eps)
    sound = (worst <= max(MISSED, 64 * eps)) & (gap <= max(COARSE, 1e4 * eps)) & ~_too_tight(short, program.raised)
    own = constraint_rows(program)
    part, falls = point.states[-1, program.sizes.state], state.sample.ending[own + 2]
    free = (part > 1.01 * SHORTEST) & (part < 0.99 * LONGEST)
    result = code_of_search(state, method)
    good = result == RESULTS.successful
    result = choose(good & ~(sound & free), RESULTS.optimum_not_found, result)
    result = choose(good & ~(falls > 1e-6), RESULTS.grazing, result)
    result = choose(good & strays, RESULTS.unexpected_transition, result)
    return OptimizedPlan(
        plan=program.plan(point),
        value=nan_unless(result != RESULTS.nonfinite, state.sample.value * scales.value),
        multipliers=-(point.multipliers * scales.value / scales.equal)[closing:],
        ending_multipliers=(point.ending_dual * scales.value / scales.ending)[:own],
        arc_multipliers=jnp.sum(rows, axis=1)[:, : program.raised.shape[1]] * scales.value / scales.rows,
        error=state.error,
        shortfall=worst,
        gap=gap,
        rounds=rounds,
        iterations=state.iterations,
        history=eqx.tree_at(lambda each: each.objective, state.history, state.history.objective * scales.value),
        result=result,
        program=program,
        point=point,
        method=method,
    )


def constraint_rows(program: PlanProgram) -> int:
    """The number of rows at the end before those of the duration, of the guard's rate and of the parameters' bounds."""
    return program.scales.ending.size - 3 - (0 if program.unknowns is None else 2 * program.unknowns.scale.size)


def _table(gait: OptimizedPlan) -> Table:
    low, high = np.min(np.asarray(gait.plan.inputs)), np.max(np.asarray(gait.plan.inputs))
    rows = [
        ["objective", f"{float(gait.value):.12g}"],
        ["duration", f"{float(gait.plan.duration):.12g}"],
        ["inputs", f"{low:.6g} to {high:.6g}"],
        ["optimality residual", f"{float(gait.error):.1e}"],
        ["shortfall between points", f"{float(gait.shortfall):.1e}"],
        ["gap", f"{float(gait.gap):.1e}"],
        ["searches, evaluations in the last", f"{int(gait.rounds)}, {int(gait.iterations)}"],
    ]
    return Table("OptimizedPlan", rows, notes=[described_code(gait.result)])


def _batch_table(gaits: OptimizedPlan) -> Table:
    columns = gaits.value, gaits.plan.duration, gaits.shortfall, gaits.gap
    rows = [
        [f"{value:.12g}", f"{duration:.12g}", f"{short:.1e}", f"{gap:.1e}"]
        for value, duration, short, gap in zip(*map(np.asarray, columns), strict=True)
    ]
    heads = ["objective", "duration", "shortfall", "gap"]
    return Table(
        f"OptimizedPlan: {len(gaits)} plans",
        rows,
        heads,
        notes=[f"{count} {name}" for name, count in counted_codes(gaits.result)],
    )


def _failure(gait: OptimizedPlan) -> str:
    violation = np.asarray(gait.history.violation)[max(int(gait.iterations) - 1, 0)]
    return (
        f"optimize: {described_code(gait.result)} The search ended at the objective {float(gait.value):.9g} with the residual "
        f"{float(gait.error):.1e} of the optimality conditions and violations up to {float(violation):.1e}, after "
        f"{int(gait.iterations)} evaluations. With throw=False the result is returned. ({gait.result})"
    )
