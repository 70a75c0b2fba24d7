r"""Inputs of a step that are free in time: polynomials over intervals of equal length, held by a clock.

$$u(t) = \sum_{i=0}^d \binom{d}{i} s^i (1-s)^{d-i}\,\beta_{k,i}, \qquad s = \frac{t - k\Delta}{\Delta}, \quad k\Delta \le t <
  (k+1)\Delta$$

with the coefficients $\beta_{k,i}$ of Bernstein's polynomials: an input stays between the least and the largest of them. The
number $k$ of the interval is a held coordinate, which a clock raises; the jump that ends the step sets it and the clock to zero.
So a step with such inputs is a hybrid system like any other, with return map, orbit and multipliers, those of the clock and of
$k$ being zero. Where a step is longer than planned the last polynomial goes on.

Source: Betts (2010), *Practical Methods for Optimal Control and Estimation Using Nonlinear Programming*, ch. 4.
"""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._orbit.return_map import ReturnMap
from .._results.registry import draw
from .._results.shown import one_of_batch, Shown
from .._system.section import Section
from .._system.system import HybridSystem, Mode, Transition
from .._system.types import Params, require_counts, Scalar, State, Time
from .._system.where import leaf_names, selected_leaves, Where
from .virtual_constraints import bezier

# Of `(t, x, params)`, with the input among the parameters.
Function = Callable[[Time, State, Params], Array]


class HeldParams(eqx.Module):
    """Parameters of a step with inputs that are held, from `Plan.orbit_guess`.

    **Attributes:** `own`: the parameters of the model. `inputs`: coefficients, shape `(intervals, degree + 1, *input)`.
    `interval`: the duration of an interval.
    """

    own: Params
    inputs: Float[Array, "intervals coefficients *input"]
    interval: Scalar


class HeldInputs(eqx.Module):
    r"""Inputs of a step, free in time: for `hyjax.optimize` unknowns, for the step's return map parameters.

    **Arguments:** `step`: a `ReturnMap` along a sequence of one mode, of one stride. `where`: selects the one leaf of the
    parameters that is the input, a number or an array, as `lambda p: p.torque`. `intervals`: $n$, of equal length, static.
    `degree`: $d$ of the polynomials, which may jump from one interval to the next: 0 for inputs that are held, static. `low`,
    `high`: limits of the input, numbers or arrays of its shape, infinite by default; exact for degrees 0 and 1, for higher ones
    those of the coefficients. `ValueError` for another map, and for numbers out of range.

    **Attributes:** those of the arguments, with the model's map as `map`, the limits as arrays, and `limited`, whether there are
    lower and upper ones.

    **Methods:** `step` is the return map with the inputs as parameters, its state that of the mode with `clock` and `interval`,
    its section the middle of the first interval. `plan(x, duration, params)` is a guess, for `hyjax.optimize`.
    `given(function)`: of a function of the model's `(t, x, params)`, such as a force, that of the states and parameters of
    `step`; `travel(function)`: of the model's `travel(mode, x, params)` that of `step`, zero but at the end of the step.

    **Example:**

    >>> from hyjax.models import powered_compass_gait as walker
    >>> inputs = hj.control.HeldInputs(walker.step, lambda p: p.controller.torque, intervals=3, low=-0.2, high=0.2)
    >>> inputs.step.system.mode("swing").coordinates[-2:]
    ('clock', 'interval')
    """

    map: ReturnMap
    where: Where = eqx.field(static=True)
    intervals: int = eqx.field(static=True)
    degree: int = eqx.field(static=True)
    low: Float[Array, "*input"]
    high: Float[Array, "*input"]
    limited: tuple[bool, bool] = eqx.field(static=True)

    def __init__(self, step: ReturnMap, where: Where, *, intervals: int, degree: int = 1, low=-np.inf, high=np.inf):
        require_counts("HeldInputs", 1, intervals=intervals)
        require_counts("HeldInputs", 0, degree=degree)
        if not isinstance(step, ReturnMap) or step.sequence is None or len(step.sequence) != 1 or step.strides != 1:
            raise ValueError(
                "HeldInputs: the step must be a hj.ReturnMap along a sequence of one mode, of one stride, not "
                f"{getattr(step, 'sequence', step)!r}."
            )
        traced = [isinstance(each, jax.core.Tracer) for each in (low, high)]
        if not any(traced) and not np.all(np.asarray(low) < np.asarray(high)):
            raise ValueError(f"HeldInputs: low={low} must be below high={high}.")
        low_known, high_known = (
            known or bool(np.any(np.isfinite(each))) for known, each in zip(traced, (low, high), strict=True)
        )
        self.limited = low_known, high_known
        ways = step.system.transitions_out(step.sequence[0])
        if len(ways) != 1 or ways[0].is_family or ways[0].at_once:
            raise ValueError(
                f"HeldInputs: {len(ways)} transitions leave the mode {step.sequence[0]!r}. Give a system in which it has "
                "one, which ends the step, no family and not taken at once."
            )
        self.map, self.where, self.intervals, self.degree = step, where, intervals, degree
        self.low, self.high = jnp.asarray(low, float), jnp.asarray(high, float)

    @property
    def mode(self) -> Mode:
        """The mode of the model."""
        assert self.map.sequence is not None
        return self.map.system.mode(self.map.sequence[0])

    @property
    def ending(self) -> Transition:
        """The transition that ends the step."""
        assert self.map.sequence is not None
        return self.map.system.way(self.map.system.route(self.map.sequence)[0])

    def leaf(self, params: Params) -> int:
        """The index of the input among the leaves. `ValueError` unless `where` selects one."""
        chosen = selected_leaves(self.where, params)
        if len(chosen) != 1:
            names = [leaf_names(params)[i] for i in chosen]
            raise ValueError(f"HeldInputs: where must pick one leaf, the input; it picked {', '.join(names)}.")
        return chosen[0]

    def with_input(self, params: Params, value: Float[Array, "*input"]) -> Params:
        """The parameters with this input."""
        leaves, tree = jax.tree.flatten(params)
        leaves[self.leaf(params)] = value
        return jax.tree.unflatten(tree, leaves)

    def at(self, coefficients: Float[Array, " coefficients *input"], s: Scalar) -> Float[Array, "*input"]:
        """The input at a fraction of its interval."""
        columns = coefficients.reshape(self.degree + 1, -1).T
        return bezier(columns, s).reshape(coefficients.shape[1:])

    def given(self, function: Function) -> Function:
        """`function(t, x, params)` of states with `clock` and `interval` and of `HeldParams`."""
        return eqx.Partial(_given, self._bare, function)

    def travel(self, function: Callable[[str, State, Params], Array]) -> Callable[[str, State, HeldParams], Array]:
        """Of the model's way to the next foothold that at the end of an arc of `step`, for `hyjax.objectives.speed`."""
        return eqx.Partial(_travel, self._bare, function)

    @property
    def _bare(self) -> "HeldInputs":
        # Without numbers: functions of equal inputs are equal.
        return eqx.tree_at(lambda each: (each.low, each.high), self, (None, None), is_leaf=lambda leaf: leaf is None)

    @property
    def step(self) -> ReturnMap:
        """The return map of the step with its inputs as parameters, from the middle of the first interval to the next step's."""
        return _held_step(self._bare)

    def plan(self, x: Float[Array, "knots n"], duration: float | Scalar, params: Params, inputs=None) -> "Plan":
        """A guess: states at `knots` equidistant times from the start to just before the jump, at least two, joined by straight
        lines; the duration of the step; and the coefficients of the inputs, by default those of the parameters throughout.
        `ValueError` for shapes that do not fit, and for numbers that are not finite."""
        x, n = jnp.asarray(x), self.mode.dimension
        x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
        if x.ndim != 2 or len(x) < 2 or x.shape[1] != n:
            raise ValueError(f"plan: x must have the shape (knots, {n}) with at least two knots, not {x.shape}.")
        traced = isinstance(duration, jax.core.Tracer)
        if not traced and not (np.isfinite(duration) and duration > 0):
            raise ValueError(f"plan: duration={duration} must be positive.")
        if not isinstance(x, jax.core.Tracer) and not np.all(np.isfinite(np.asarray(x))):
            raise ValueError("plan: x must be finite.")
        own = jnp.asarray(jax.tree.leaves(params)[self.leaf(params)], x.dtype)
        limits = (self.low, self.high, 0.0 if inputs is None else inputs)
        for name, given in zip(("low", "high", "inputs"), limits, strict=True):
            shape = own.shape if name != "inputs" else (self.intervals, self.degree + 1, *own.shape)
            try:
                fits = np.broadcast_shapes(jnp.shape(given), shape) == shape
            except ValueError:
                fits = False
            if not fits:
                raise ValueError(f"plan: {name} of shape {jnp.shape(given)} must have that of the input, {shape}.")
        shape = (self.intervals, self.degree + 1, *own.shape)
        times = np.linspace(0, len(x) - 1, self.intervals + 1)
        left = np.minimum(times.astype(int), len(x) - 2)
        part = jnp.asarray(times - left, x.dtype)[:, None]
        nodes = (1 - part) * x[left] + part * x[left + 1]
        given = jnp.broadcast_to(own if inputs is None else jnp.asarray(inputs, x.dtype), shape)
        return Plan(self, nodes, given, jnp.asarray(duration, x.dtype), params)


class Plan(Shown):
    """A step with inputs free in time, not necessarily a trajectory: a guess for `hyjax.optimize`, or its optimum.

    **Attributes:** `held`: the `HeldInputs`. `x`: states at the ends of the intervals, shape `(intervals + 1, n)`, the last just
    before the jump. `inputs`: coefficients, shape `(intervals, degree + 1, *input)`. `duration`: of the step. `params`: of the
    model.

    **Methods:** `orbit_guess()`: `(step, x, params)`, for `hyjax.periodic_orbit`; `sample(n_samples)`: times, states and inputs;
    `plot()`.

    **Example:**

    >>> from hyjax.models import powered_compass_gait as walker
    >>> inputs = hj.control.HeldInputs(walker.step, lambda p: p.controller.torque, intervals=4)
    >>> start, end = jnp.array([0.2, -0.2, -0.4, -0.3]), jnp.array([-0.2, 0.2, -0.4, -0.3])
    >>> plan = inputs.plan(jnp.stack([start, end]), 1.3, walker.Params())
    >>> plan.x.shape, plan.inputs.shape
    ((5, 4), (4, 2))
    """

    held: HeldInputs
    x: Float[Array, "nodes n"]
    inputs: Float[Array, "intervals coefficients *input"]
    duration: Scalar
    params: Params

    def orbit_guess(self) -> tuple[ReturnMap, State, HeldParams]:
        """The return map, the state in the middle of the first interval, and the parameters:
        `hj.periodic_orbit(*plan.orbit_guess())`."""
        start = jnp.concatenate([self.x[0], jnp.zeros(2, self.x.dtype)])
        held = HeldParams(self.params, self.inputs, self.duration / self.held.intervals)
        return self.held.step, self.held.step(start, held).x, held

    @eqx.filter_jit
    def sample(
        self, n_samples: int = 9
    ) -> tuple[Float[Array, " times"], Float[Array, "times n"], Float[Array, " times *input"]]:
        """Times, states and inputs at `n_samples` points of each interval, from its start to its end, static. States by the cubic
        through both ends and their rates. `ValueError` for a batch."""
        one_of_batch("sample", self.duration, "plans")
        held, step = self.held, self.duration / self.held.intervals
        parts = jnp.linspace(0, 1, n_samples, dtype=self.x.dtype)

        def interval(k, first, last, own):
            inputs = jax.vmap(lambda s: held.at(own, s))(parts)
            rate = lambda t, x, u: step * held.mode.vector_field(t, x, held.with_input(self.params, u))
            begin, end = rate(k * step, first, inputs[0]), rate((k + 1) * step, last, inputs[-1])
            ends = jnp.stack([first, first + begin / 3, last - end / 3, last], axis=1)
            return (k + parts) * step, jax.vmap(lambda s: bezier(ends, s))(parts), inputs

        numbers = jnp.arange(held.intervals, dtype=self.x.dtype)
        found = jax.vmap(interval)(numbers, self.x[:-1], self.x[1:], self.inputs)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)

    def plot(self):
        """A figure of coordinates and inputs over time; see `hyjax.plot.plan_figure`."""
        return draw(self)


def _interval(inputs: HeldInputs, x: State, params: HeldParams) -> tuple[Array, Scalar]:
    """The coefficients of the interval of a state, and the fraction of it that has passed."""
    number = jnp.clip(jnp.round(jax.lax.stop_gradient(x[-1])), 0, inputs.intervals - 1)
    one = number.astype(jnp.int32)
    return params.inputs[one], x[-2] / params.interval - number


def _given(inputs: HeldInputs, function: Function, t: Time, x: State, params: HeldParams) -> Array:
    value = inputs.at(*_interval(inputs, x, params))
    # The time since the start of the step.
    return function(jnp.asarray(x[-2], t.dtype), x[:-2], inputs.with_input(params.own, value))


def _travel(inputs: HeldInputs, function: Callable, mode: str, x: State, params: HeldParams) -> Array:
    # The arc of the last interval ends with the step, others at the clock, or at the section in the middle of the first one.
    ends = (x[-1] > inputs.intervals - 1.5) & (x[-2] > 0.51 * params.interval)
    return jnp.where(ends, function(mode, x[:-2], params.own), 0)


def _flow(inputs: HeldInputs, t: Time, x: State, params: HeldParams) -> Array:
    return jnp.append(_given(inputs, inputs.mode.vector_field, t, x, params), 1)


def _next_interval(inputs: HeldInputs, t: Time, x: State, params: HeldParams) -> Scalar:
    return (x[-1] + 1) * params.interval - x[-2]


def _another(inputs: HeldInputs, t: Time, x: State, params: HeldParams) -> Array:
    return x[-1] < inputs.intervals - 1.5


def _middle(t: Time, x: State, params: HeldParams) -> Scalar:
    return params.interval / 2 - x[-2]


def _raised(t: Time, x: State, params: HeldParams) -> State:
    return x.at[-1].add(1)


def _ended(inputs: HeldInputs, t: Time, x: State, params: HeldParams) -> State:
    after = _given(inputs, inputs.ending.reset, t, x, params)
    return jnp.concatenate([after, jnp.zeros(2, after.dtype)])


@ft.cache
def _held_step(inputs: HeldInputs) -> ReturnMap:
    """The return map from the middle of the first interval to that of the next step's, made once: each new
    system would be compiled again."""
    ending, mode = inputs.ending, inputs.mode
    units = (*mode.units, inputs.map.system.time_unit or "1", "1") if mode.units else ()
    domain, armed = (None if each is None else inputs.given(each) for each in (mode.domain, ending.armed))
    held = Mode(eqx.Partial(_flow, inputs), (*mode.coordinates, "clock"), domain, units, held=("interval",))
    guard = inputs.given(ending.guard)
    clock = Transition(
        ending.source, ending.source, eqx.Partial(_next_interval, inputs), _raised, eqx.Partial(_another, inputs)
    )
    ends = Transition(ending.source, ending.source, guard, eqx.Partial(_ended, inputs), armed)
    system = HybridSystem({ending.source: held}, (ends, clock), inputs.map.system.time_unit)
    return ReturnMap(
        system,
        section=Section(ending.source, _middle),
        max_jumps=inputs.intervals + 1,
        integrator=inputs.map.integrator,
    )
