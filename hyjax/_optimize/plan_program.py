r"""The program of stages of a plan: a step with inputs free in time that closes, with objective and constraints of `hj.optimize`.

Limits along the arc hold at the points `ASKED` of each interval. Between these points a row may fall short of its limit:
`shortfall` flies the intervals in small steps and says by how much, and the limits of the interval are raised by that much for
another search.

Source: Betts (2010), *Practical Methods for Optimal Control and Estimation Using Nonlinear Programming*, ch. 4.
"""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._system.types import Flag, Params, Scalar, State
from ..control.held_inputs import HeldInputs, Plan
from .constraint import check_number, Constraint, Objective, Planned, Rate
from .interval import ASKED, input_at, points_of
from .orbit_program import Unknowns
from .stages import Sizes, Staged, StageProgram

# Steps of an interval in which rows along the arc are checked.
CHECKS = 8
# The least and the largest duration, of that of the guess.
SHORTEST, LONGEST = 0.2, 5.0
# Of a fraction of the step at the end of a window; the value of a row outside of it, which is met and which no other row has by
# chance.
ROUNDING, OUTSIDE = 1e-6, 2 + 2.0**-20
# Rows are of the order of 1; what falls short by less is met.
MET = 1e-9


class PlanScales(eqx.Module):
    """Sizes of the unknowns and of the functions, by which these are divided."""

    state: Float[Array, " n"]
    duration: Scalar
    input: Float[Array, " inputs"]
    totals: Float[Array, " totals"]
    value: Scalar
    equal: Float[Array, " equalities"]
    ending: Float[Array, " ending"]
    rows: Float[Array, " kinds"]


class PlanProgram(eqx.Module):
    """**Attributes:** `unknowns`: of parameters that vary, or `None`. `params`: of the model, without it. `scales`. `raised`:
    what the limits of rows in each interval are raised by, shape `(intervals, kinds)`. `rates`: whose integrals are asked for.
    `counts`: of each constraint the numbers of equalities and inequalities; `along`: whether it holds along the arc."""

    objective: Objective
    constraints: tuple[Constraint, ...]
    held: HeldInputs
    params: Params
    unknowns: Unknowns | None
    scales: PlanScales
    raised: Float[Array, "intervals kinds"]
    rates: tuple[Rate, ...] = eqx.field(static=True)
    counts: tuple[tuple[int, int], ...] = eqx.field(static=True)
    along: tuple[bool, ...] = eqx.field(static=True)

    @property
    def sizes(self) -> Sizes:
        free = 0 if self.unknowns is None else self.unknowns.scale.size
        held, scales = self.held, self.scales
        return Sizes(held.intervals, scales.state.size, 1 + free, len(self.rates), scales.input.size, held.degree)

    @property
    def staged(self) -> StageProgram:
        return StageProgram(self.flow, self._raised_rows, self.limits, self._ends, self.sizes)

    def params_at(self, v: Float[Array, " same"]) -> Params:
        return self.params if self.unknowns is None else self.unknowns.params_at(v[1:])

    def with_parameter(self, leaf: int, value: float) -> "PlanProgram":
        """The program with another value of a parameter that does not vary."""
        trees = lambda program: [program.params] + ([] if program.unknowns is None else [program.unknowns.params])
        place = lambda program: [jax.tree.leaves(tree)[leaf] for tree in trees(program)]
        return eqx.tree_at(place, self, [jnp.asarray(value, jnp.result_type(each)) for each in place(self)])

    def coefficients(self, u: Float[Array, " inputs"]) -> Float[Array, "coefficients *input"]:
        """The coefficients of the input of one interval, in their unit."""
        shape = jnp.shape(jax.tree.leaves(self.params)[self.held.leaf(self.params)])
        return (u * self.scales.input).reshape(self.held.degree + 1, *shape)

    def _at(self, k, s, v, w):
        """The time, the duration of an interval, and the parameters with the input."""
        step = v[0] * self.scales.duration / self.held.intervals
        own = jax.tree.leaves(self.params)[self.held.leaf(self.params)]
        value = (w * self.scales.input[: w.size]).reshape(jnp.shape(own))
        return (jnp.asarray(k, w.dtype) + s) * step, step, self.held.with_input(self.params_at(v), value)

    @eqx.filter_jit
    def flow(self, k, s, x, v, w) -> Float[Array, " both"]:
        """The rates over an interval of the state and of the integrals, in units of their sizes."""
        t, step, params = self._at(k, s, v, w)
        x, scales = x * self.scales.state, self.scales
        totals = [jnp.reshape(jnp.asarray(rate(t, x, params), x.dtype), (1,)) for rate in self.rates]
        totals = jnp.concatenate([jnp.zeros(0, x.dtype), *totals]) / scales.totals
        rate = jnp.asarray(self.held.mode.vector_field(t, x, params), x.dtype)
        return step * jnp.concatenate([rate / scales.state, totals])

    @eqx.filter_jit
    def rows(self, k, s, x, v, w) -> Float[Array, " kinds"]:
        """The rows along the arc, in units of their sizes; outside of their windows `OUTSIDE`."""
        t, _, params = self._at(k, s, v, w)
        x = x * self.scales.state
        # Of the ends nothing is known here.
        unknown = jnp.full_like(x, jnp.nan)
        planned = self._planned(unknown, unknown, v[0] * jnp.nan)
        planned.point = t, x, params
        part, rows, inside = (jnp.asarray(k, x.dtype) + s) / self.held.intervals, [], []
        for each in (each for each, along in self._pairs if along):
            rows.append(jnp.asarray(each.inequalities(planned, params), x.dtype))
            first, last = planned.window
            inside.append(jnp.full(rows[-1].shape, (part >= first - ROUNDING) & (part <= last + ROUNDING)))
        if not rows:
            return jnp.zeros(0, x.dtype)
        return jnp.where(jnp.concatenate(inside), jnp.concatenate(rows) / self.scales.rows, OUTSIDE)

    def _raised_rows(self, k, s, x, v, w) -> Float[Array, " kinds"]:
        rows = self.rows(k, s, x, v, w)
        return jnp.where(rows == OUTSIDE, OUTSIDE, rows - self.raised[k])

    def limits(self, u: Float[Array, " inputs"]) -> Float[Array, " rows"]:
        """The distances of the coefficients from the limits of the input."""
        own, scale = (each.reshape(self.held.degree + 1, -1) for each in (u, self.scales.input))
        rows = [jnp.zeros(0, u.dtype)]
        for limited, limit, sign in zip(self.held.limited, (self.held.low, self.held.high), (1, -1), strict=True):
            if limited:
                limit = jnp.broadcast_to(jnp.ravel(limit).astype(u.dtype) / scale, own.shape)
                finite = jnp.isfinite(limit)
                rows.append(jnp.where(finite, sign * (own - jnp.where(finite, limit, 0)), 1).ravel())
        return jnp.concatenate(rows)

    @property
    def _pairs(self):
        return list(zip(self.constraints, self.along, strict=True))

    def _planned(self, start: State, end: State, duration: Scalar) -> Any:
        # For objectives in the place of an orbit.
        assert self.held.map.sequence is not None
        return Planned(self.held.map.system, self.held.map.sequence, start, end, duration)

    def _ends(self, whole):
        value, equal, ending = self.unscaled_ends(whole)
        return value / self.scales.value, equal / self.scales.equal, ending / self.scales.ending

    @eqx.filter_jit
    def unscaled_ends(self, whole):
        """The objective, the equalities and the inequalities at the end, in their units."""
        scales, (x, v, c, start) = self.scales, self.sizes.parts(whole)
        x, c, start, duration = x * scales.state, c * scales.totals, start * scales.state, v[0] * scales.duration
        params, way = self.params_at(v), self.held.ending
        planned = self._planned(start, x, duration)
        planned.rates, planned.totals = list(self.rates), c
        typed = lambda value: jnp.asarray(value, x.dtype)
        value = typed(self.objective(planned, params))

        def falling(x, v):
            duration, params = v[0] * scales.duration, self.params_at(v)
            rate = typed(self.held.mode.vector_field(duration, x, params))
            height = lambda t, x: typed(way.guard(t, x, params))
            return jax.jvp(height, (duration, x), (jnp.ones_like(duration), rate))[1]

        # Without its second derivatives, half of the time to compile a robot's: no optimum is at this limit.
        at = jax.lax.stop_gradient((x, v))
        falls = sum(jax.jvp(falling, at, jax.tree.map(jnp.subtract, (x, v), at)))
        guard = typed(way.guard(duration, x, params))
        equal = [typed(way.reset(duration, x, params)) - start, jnp.reshape(guard, (1,))]
        equal += [each.equalities(planned, params) for each, along in self._pairs if not along]
        ending = [each.inequalities(planned, params) for each, along in self._pairs if not along]
        ending += [v[:1] - SHORTEST, (LONGEST - v[:1]) / LONGEST, -jnp.reshape(falls, (1,))]
        if self.unknowns is not None:
            low, high = self.unknowns.lower, self.unknowns.upper
            ending += [jnp.where(jnp.isfinite(low), v[1:] - low, 1), jnp.where(jnp.isfinite(high), high - v[1:], 1)]
        return value, *(jnp.concatenate([typed(each) for each in parts]) for parts in (equal, ending))

    def point(self, plan: Plan) -> Staged:
        """The plan in units of the sizes, with slacks and multipliers to be found."""
        sizes, scales, dtype = self.sizes, self.scales, plan.x.dtype
        x, n = plan.x / scales.state, sizes.stages
        same = jnp.ones(1, dtype)
        if self.unknowns is not None:
            same = jnp.concatenate([same, self.unknowns.vector(plan.params)])
        each = lambda value: jnp.broadcast_to(value, (n + 1, value.size))
        states = jnp.concatenate([x, each(same), jnp.zeros((n + 1, sizes.totals), dtype), each(x[0])], axis=1)
        rows = len(ASKED) * self.raised.shape[1] + self.limits(jnp.zeros(sizes.inputs, dtype)).size
        _, equal, ending = eqx.filter_eval_shape(self.unscaled_ends, states[-1])
        zeros = lambda *shape: jnp.zeros(shape, dtype)
        return Staged(
            states, plan.inputs.reshape(n, -1) / scales.input, 1 + zeros(n, rows), 1 + zeros(ending.size),
            zeros(n, sizes.whole), zeros(equal.size), zeros(n, rows), zeros(ending.size),
        )  # fmt: skip

    def plan(self, point: Staged) -> Plan:
        """The plan of a point, in its units."""
        x, v, _, _ = jax.vmap(self.sizes.parts, out_axes=(0, 0, 0, 0))(point.states)
        inputs = jax.vmap(self.coefficients)(point.inputs)
        return Plan(self.held, x * self.scales.state, inputs, v[-1, 0] * self.scales.duration, self.params_at(v[-1]))

    def shortfall(self, point: Staged) -> tuple[Float[Array, "intervals kinds"], Scalar, Flag]:
        """By how much rows fall short of their limits in each interval, in units of their sizes, negative where they keep a
        distance; the largest distance of the end of an interval flown in small steps from the next node, relative to the size of
        the state; and whether the step leaves its domain or meets its guard before its end."""

        def interval(k, whole, after, u):
            x, v, _, _ = self.sizes.parts(whole)
            flow = ft.partial(self.flow, k)

            def small(x, j):
                _, _, end = points_of(flow, self.held.degree, x, v, u, j / CHECKS, 1 / CHECKS)
                return end[: x.size], x

            end, starts = jax.lax.scan(small, x, jnp.arange(CHECKS, dtype=x.dtype))
            states, parts = jnp.concatenate([starts, end[None]]), jnp.linspace(0, 1, CHECKS + 1, dtype=x.dtype)
            inputs = jax.vmap(lambda s: input_at(self.held.degree, u, s))(parts)
            rows = jax.vmap(lambda s, x, w: self.rows(k, s, x, v, w))(parts, states, inputs)
            gap = jnp.max(jnp.abs(end - after[: x.size]))
            heights, ahead, within = jax.vmap(lambda s, x, w: self._met(k, s, x, v, w))(parts, states, inputs)
            falls = (heights[:-1] > 0) & (heights[1:] <= 0) & ahead[1:]
            # The end of the step is where its guard falls.
            falls = falls & ((k < self.sizes.stages - 1) | (np.arange(CHECKS) < CHECKS - 1))
            return -_least(rows), gap, jnp.any(falls) | jnp.any(~within)

        numbers = jnp.arange(self.sizes.stages)
        short, gaps, strays = jax.vmap(interval)(numbers, point.states[:-1], point.states[1:], point.inputs)
        return short, jnp.max(gaps), jnp.any(strays)

    def _met(self, k, s, x, v, w) -> tuple[Scalar, Flag, Flag]:
        """The guard that ends the step, whether it is armed, and whether the state is in its domain."""
        t, _, params = self._at(k, s, v, w)
        at, way, domain = (t, x * self.scales.state, params), self.held.ending, self.held.mode.domain
        armed = jnp.array(True) if way.armed is None else jnp.asarray(way.armed(*at))
        return jnp.asarray(way.guard(*at), x.dtype), armed, jnp.array(True) if domain is None else domain(*at) > 0


def _least(rows: Float[Array, "points kinds"]) -> Float[Array, " kinds"]:
    """The least value of each column, of the parabola through three points where it is between them."""
    left, middle, right = rows[:-2], rows[1:-1], rows[2:]
    bend = left - 2 * middle + right
    # Where the vertex lies between the points, also beside a node that has the least of the three; all in one window.
    inside = (bend > 0) & (jnp.abs(left - right) <= 2 * bend)
    inside = inside & (left != OUTSIDE) & (middle != OUTSIDE) & (right != OUTSIDE)
    least = middle - jnp.where(inside, left - right, 0) ** 2 / (8 * jnp.where(inside, bend, 1))
    return jnp.minimum(jnp.min(rows, axis=0), jnp.min(jnp.where(inside, least, jnp.inf), axis=0))


def plan_program(
    plan: Plan, objective: Objective, constraints: tuple[Constraint, ...], unknowns: Unknowns | None
) -> PlanProgram:
    """The program from a guess, which gives the sizes of unknowns and functions. `ValueError` for an objective or a constraint
    that a plan does not know."""
    held, params, x = plan.held, plan.params, plan.x
    rates: list[Rate] = []
    counts: list[tuple[int, int]] = []
    along: list[bool] = []

    def ask(start, end, duration, params):
        assert held.map.sequence is not None
        asked: Any = Planned(held.map.system, held.map.sequence, start, end, duration)
        asked.rates = rates
        value = objective(asked, params)
        if asked.asked:
            raise ValueError("optimize: the objective of a plan is of its ends and integrals, not of extreme values.")
        for each in constraints:
            asked.asked = asked.sense = 0
            sizes = each.equalities(asked, params).size, each.inequalities(asked, params).size
            sides = (each.at_least is not None) + (each.at_most is not None)
            if asked.asked and (each.equals is not None or asked.asked > sides):
                raise ValueError(
                    f"optimize: the constraint {each.name!r} along a plan must be one function, such as "
                    "hj.objectives.along(rate), with at_least or at_most."
                )
            if asked.sense and (each.at_least, each.at_most)[asked.sense < 0] is not None:
                raise ValueError(
                    f"optimize: the constraint {each.name!r} of a plan bounds the largest value from below, or the smallest from "
                    "above, which holds at one point alone. Optimize an orbit."
                )
            points = np.multiply(asked.window, 2 * held.intervals)
            if asked.asked and np.any(np.abs(points - np.round(points)) > ROUNDING):
                near = tuple(float(point) for point in np.round(points) / (2 * held.intervals))
                raise ValueError(
                    f"optimize: the window {asked.window} of the constraint {each.name!r} must begin and end at ends or middles "
                    f"of the {held.intervals} intervals, such as {near}."
                )
            along.append(bool(asked.asked))
            # A function along the arc has its rows at a point.
            asked.point = (duration, start, params) if along[-1] else None
            counts.append((0, each.inequalities(asked, params).size) if along[-1] else sizes)
            asked.point = None
        return value

    check_number(eqx.filter_eval_shape(ask, x[0], x[-1], plan.duration, params))
    program = PlanProgram(
        objective, constraints, held, params, unknowns, _unit_scales(plan, held, len(rates)),
        jnp.zeros((held.intervals, 0), x.dtype), tuple(rates), tuple(counts), tuple(along),
    )  # fmt: skip
    return _scaled(program, plan)


def _unit_scales(plan: Plan, held: HeldInputs, rates: int) -> PlanScales:
    """Sizes of states, at least what the flow adds in a fifth of the step, and of inputs that add as much."""
    middle, own = plan.x[held.intervals // 2], plan.inputs[0, 0]
    flow = jax.vmap(lambda x, u: held.mode.vector_field(0 * plan.duration, x, held.with_input(plan.params, u[0])))
    moves = plan.duration / 5 * jnp.max(jnp.abs(flow(plan.x[:-1], plan.inputs)), axis=0)
    size = jnp.maximum(jnp.max(jnp.abs(plan.x), axis=0), moves)
    size = jnp.where(size > 0, size, 1)
    field = lambda u: held.mode.vector_field(
        plan.duration / 2, middle, held.with_input(plan.params, u.reshape(own.shape))
    )
    slope = jnp.abs(jax.jacfwd(field)(own.ravel())) * plan.duration / 5 / size[:, None]
    largest = jnp.max(slope, axis=0)
    input = 1 / jnp.where(largest > 0, largest, 1)
    one, each = jnp.ones((), size.dtype), jnp.ones(1, size.dtype)
    return PlanScales(
        size, plan.duration, jnp.tile(input, held.degree + 1), jnp.ones(rates, size.dtype), one, each, each, each
    )


def _scaled(program: PlanProgram, plan: Plan) -> PlanProgram:
    """The program with sizes of its functions: of integrals those with all inputs of size 1, of rows along the arc the largest
    value on the guess, of other functions their gradients."""
    with_scales = lambda program, **changed: eqx.tree_at(
        lambda program: [getattr(program.scales, name) for name in changed], program, list(changed.values())
    )
    sizes, dtype = program.sizes, plan.x.dtype
    nonzero = lambda size: jnp.where((size > 0) & jnp.isfinite(size), size, 1)
    x, v = plan.x / program.scales.state, jnp.ones(1, dtype)
    if program.unknowns is not None:
        v = jnp.concatenate([v, program.unknowns.vector(plan.params)])
    w, numbers, zero = (
        jnp.ones(sizes.inputs // (sizes.degree + 1), dtype),
        jnp.arange(sizes.stages),
        jnp.zeros((), dtype),
    )
    rates = jax.vmap(lambda k, x: program.flow(k, zero, x, v, w)[sizes.state :])(numbers, x[:-1])
    program = with_scales(program, totals=nonzero(jnp.sum(jnp.abs(rates), axis=0)))
    rows = jax.vmap(lambda k, x: program.rows(k, zero, x, v, 0 * w))(numbers, x[:-1])
    last = jnp.concatenate([x[-1], v, jnp.ones(sizes.totals, dtype), x[0]])

    def ends(last):
        values = program.unscaled_ends(last)
        return values, values

    largest_row = jnp.max(jnp.where(rows == OUTSIDE, 0, jnp.abs(rows)), axis=0, initial=0)
    (gradient, equal, ending), _ = jax.jacfwd(ends, has_aux=True)(last)
    steep = lambda rows: nonzero(jnp.max(jnp.abs(rows), axis=-1, initial=0))
    sizes_of = dict(value=steep(gradient), equal=steep(equal), ending=steep(ending), rows=nonzero(largest_row))
    program = with_scales(program, **sizes_of)
    return eqx.tree_at(lambda each: each.raised, program, jnp.zeros((sizes.stages, rows.shape[1]), dtype))
