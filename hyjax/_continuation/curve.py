r"""Predictor-corrector continuation of a curve: the zeros of $H: \mathbb R^{k+1} \to \mathbb R^k$.

The predictor is the tangent; the corrector is Newton's method on $H$ and one more equation, which fixes the length of the step.
The step grows where Newton's method converges quickly, and shrinks where it fails or the curve bends. All points, with the
start, come from one loop around one Newton loop: it is compiled once, and a batch of curves may be followed together. The
argument `stop` gives the interval of the parameter over which the curve is followed.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._numerics.eager import long_run
from .._numerics.newton import newton
from .._results.failure import raise_failure
from .._results.shown import is_traced, Shown
from .._results.working import working
from .._system.results import choose, code_of, RESULTS
from .._system.types import Flag, require_counts, require_kind, Scalar
from .._system.where import leaf_names
from .unfolding import Equation

# A guard that falls slower at the end of a curve than this fraction of its fastest rate along the curve is tangent beyond.
SLOW = 1e-2
# The number of attempted steps between two messages of progress.
SLICE = 10

# `v -> (H, dH/dv, aux)`, where `aux.result` is the code of the strides.
Evaluate = Callable[[Array], tuple[Array, Array, PyTree]]
# `(v, aux) -> aux` of a root, where `aux.result` is the verdict on its orbit.
Judge = Callable[[Array, PyTree], PyTree]


class PseudoArclength(eqx.Module):
    r"""Pseudo-arclength continuation: steps along the tangent $t$, through folds. The corrector solves $t \cdot (v - v_0) = h$.

    Lengths have no unit: the parameter is measured in units of the distance to `stop`, the state in units of its size at the
    start. For `max_step`, a state that has grown is measured in units of its present size.

    **Arguments:** `step`: length of the first step. `min_step`: a shorter step ends the branch. `max_step`: largest distance
    between points. `max_points`: largest number of points, static. `max_iterations`: of the corrector. `natural`: steps in the
    parameter instead, $\lambda = \lambda_0 + h$ (natural-parameter continuation), static: a fold ends the branch. `ValueError`
    unless `0 < min_step <= step <= max_step` and the numbers are positive.

    **Example:**

    >>> from hyjax.models import rimless_wheel as wheel
    >>> params = wheel.Params()
    >>> orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    >>> method = hj.PseudoArclength(step=0.05, max_step=0.5, max_points=20)
    >>> branch = hj.continuation(orbit, where=lambda p: p.slope, stop=0.25, method=method)
    >>> print(branch.result)
    successful

    Source: Keller (1977), *Numerical solution of bifurcation and nonlinear eigenvalue problems*.
    """

    step: float = 0.01
    min_step: float = 1e-7
    max_step: float = 0.05
    max_points: int = 200
    max_iterations: int = 8
    natural: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        _check(self)

    def border(self, tangent: Array) -> Array:
        """The row that is added to the Jacobian `dH`, which makes the matrix regular also at a fold; if the steps are `natural`,
        that of the parameter."""
        return jnp.zeros_like(tangent).at[-1].set(jnp.sign(tangent[-1])) if self.natural else tangent

    def with_arrays(self, dtype: Any) -> "PseudoArclength":
        """With lengths of steps that are arrays, which are no part of a program: for other lengths it is not compiled anew."""
        lengths = lambda method: (method.step, method.min_step, method.max_step)
        return eqx.tree_at(lengths, self, replace_fn=lambda length: jnp.asarray(length, dtype))


def _check(method: Any) -> None:
    name = type(method).__name__
    if not 0 < method.min_step <= method.step <= method.max_step:
        raise ValueError(
            f"{name}: min_step={method.min_step!r}, step={method.step!r} and max_step={method.max_step!r} must be positive "
            "and in that order."
        )
    require_counts(name, 1, max_points=method.max_points, max_iterations=method.max_iterations)


# Value at which a curve ends, or bounds within which it is followed in both directions.
Stop = float | tuple[float, float]
_NUMBERS = int | float | np.number | np.ndarray | jax.Array


class Interval(NamedTuple):
    """Bounds `low`, `high` of a parameter, at which a curve is to end if `at_low`, `at_high`; `span`, the unit of its scaled
    value; `ways`, the signs of its first steps."""

    low: Scalar
    high: Scalar
    at_low: Flag
    at_high: Flag
    span: Scalar
    ways: Array

    def scaled(self, origin: Scalar, scale: Scalar) -> "Interval":
        """The interval of the scaled parameter, `(value - origin) / scale`."""
        return self._replace(low=(self.low - origin) / scale, high=(self.high - origin) / scale, span=self.span / scale)


class Curve(eqx.Module):
    """The points of a curve in their order, the start first.

    **Attributes:** `v`, `tangent`: shape `(points, k + 1)`. `jacobian`: shape `(points, k, k + 1)`. `aux`: `aux` of the
    evaluation at each point. `count`: number of points found; the rows after these are zero. `attempts`: number of steps tried.
    `started`: whether the start was found. `arrived`: whether the curve ended at a bound of the interval at which it was to
    end, or closed where both are. `astray`: whether it ended at the other bound, or closed where one end was asked for.
    `closed`: whether it returned to its start, which is then the last point too. `stuck`: whether the start was not found, or the
    step became shorter than `min_step`. `last`: `aux` of the last attempt. Before the first point is found, the first rows of `v`
    and `tangent` are the guess and the direction.
    """

    v: Float[Array, "points unknowns"]
    tangent: Float[Array, "points unknowns"]
    jacobian: Float[Array, "points k unknowns"]
    residual: Float[Array, " points"]
    aux: PyTree
    count: Int[Array, ""]
    attempts: Int[Array, ""]
    started: Flag
    arrived: Flag
    astray: Flag
    closed: Flag
    stuck: Flag
    last: PyTree

    @property
    def ended(self) -> Bool[Array, "*curves"]:
        """Whether no further step is taken."""
        return self.arrived | self.astray | self.stuck | (self.count >= self.residual.shape[-1])

    @property
    def end(self) -> tuple[Array, Array]:
        """The last point and its tangent."""
        k = jnp.maximum(self.count - 1, 0)
        return self.v[k], self.tangent[k]


# A curve so far; the length of the next step; whether this step ends on a bound that the last one passed; and this bound. And of
# several curves, along a leading axis.
CurveState = tuple[Curve, Scalar, Flag, Scalar]
CurveStates = tuple[Curve, Array, Array, Array]


def tangent_to(jacobian: Float[Array, "k unknowns"], along: Float[Array, " unknowns"]) -> Float[Array, " unknowns"]:
    """The unit vector in the null space of the Jacobian whose product with `along` is positive."""
    # By singular values, which are regular for every `along`, and also where the Jacobian loses rank, as at a branch point.
    tangent = jnp.linalg.svd(jacobian)[2][-1]
    # Hazard: an unknown that one equation fixes, such as a flag that is held, would be moved by rounding, and a flag is compared.
    present = jacobian != 0
    fixed = jnp.any(present & (jnp.sum(present, axis=1, keepdims=True) == 1), axis=0)
    tangent = jnp.where(fixed, 0, tangent)
    return jnp.where(tangent @ along < 0, -tangent, tangent)


def joined(v0: Array, tangent0: Array, v1: Array, tangent1: Array) -> Flag:
    """Whether two points may lie on one smooth curve with these unit tangents: their chord has the direction between the
    tangents.

    On a circle it has exactly. Hazard: Newton's method may end on another curve close by, whose tangent is almost the same.
    """
    chord, middle = v1 - v0, tangent0 + tangent1
    length, bend = jnp.sqrt(jnp.sum(chord**2)), jnp.sqrt(jnp.sum((tangent1 - tangent0) ** 2))
    aside = chord - length * middle / jnp.sqrt(jnp.sum(middle**2))
    # The deviation is of second order in the step, the bend of first. Points nearer than 1e-9 are one point, but for rounding.
    return jnp.sqrt(jnp.sum(aside**2)) <= (0.03 + bend / 4) * length + 1e-10


def follow_curve(
    evaluate: Evaluate,
    v0: Array,
    border: Array,
    along: Array,
    bounds: Interval,
    method: PseudoArclength,
    accept: Array | float,
    judge: Judge,
    state: CurveState | None = None,
    attempts: Array | float = jnp.inf,
) -> CurveState:
    """The curve from the point near `v0` at which `border @ (v - v0)` is zero, while the last unknown stays within `bounds`. A
    curve whose first point lies outside is not started.

    **Arguments:** `v0`, `border`, `along`: shape `(k + 1,)`; the first tangent has a positive product with `along`. `accept`:
    largest residual of a point. `judge`: the verdict on a point. `state`: where the curve goes
    on, by default `start_of_curve`. `attempts`: after so many steps tried it is interrupted.
    """
    low, high = bounds.low, bounds.high
    natural = jnp.zeros_like(v0).at[-1].set(1)
    once = jax.jit(lambda v: evaluate(v))  # traced once, for the shapes of its results and for the loop

    def attempt(state: CurveState) -> CurveState:
        curve, h, landing, bound = state
        v, t = curve.end
        first = curve.count == 0
        row = jnp.where(first, border, jnp.where(landing, natural, method.border(t)))
        rate = row @ t
        far = jnp.where(landing, bound - v[-1], h) / jnp.where(rate == 0, 1, rate)
        # In a batch a curve that has ended is evaluated at its last point while others go on: it does not search in vain.
        predicted = jnp.where(first, v0, jnp.where(curve.ended, v, v + far * t))

        def bordered(v):
            residual, jacobian, aux = once(v)
            return jnp.append(residual, row @ (v - predicted)), jnp.concatenate([jacobian, row[None]]), (jacobian, aux)

        # A first step of length zero evaluates the equation, and takes no step.
        most = jnp.where(first, jnp.where(h > 0, 20, 1), method.max_iterations)
        most = jnp.where(curve.ended, 1, most)
        root = newton(bordered, predicted, max_iterations=most, accept=accept)
        jacobian, aux = root.aux
        aux = judge(root.y, aux)
        # A state that does not return says nothing of the phase of a forcing.
        astray = ~root.converged & (aux.result == RESULTS.out_of_phase)
        aux = dataclasses.replace(aux, result=choose(astray, RESULTS.orbit_not_converged, aux.result))
        tangent = tangent_to(jacobian, jnp.where(first, along, t))
        straight = first | (tangent @ t > 0.9)
        near = first | landing | (jnp.sqrt(jnp.sum((root.y - v) ** 2)) < 3 * jnp.abs(far))
        smooth = first | joined(v, t, root.y, tangent)
        # Up to the rounding of a start on a bound.
        within = ~first | ((root.y[-1] < high + 1e-5) & (root.y[-1] > low - 1e-5))
        # Hazard: where two guards fire at once, the equation may hold for strides that take another transition.
        sound = (aux.result == RESULTS.successful) & jnp.all(jnp.isfinite(tangent))
        good = root.converged & within & straight & near & smooth & sound

        # A point beyond a bound is dropped; the next step ends on the bound.
        beyond = good & ~landing & ~first & ((root.y[-1] > high) | (root.y[-1] < low))
        kept = good & ~beyond
        factor = jnp.clip(2.0 ** ((5.0 - root.iterations) / 3), 0.5, 2.0)
        # The unit tangent, with the state in units of its present size, if that has grown.
        growth = jnp.maximum(jnp.max(jnp.abs(root.y[:-1])) / size, 1)
        longest = method.max_step / jnp.sqrt(jnp.sum((tangent[:-1] / growth) ** 2) + tangent[-1] ** 2)
        longer = jnp.where(first, h, jnp.minimum(h * factor, longest))
        h = jnp.where(kept, longer, jnp.where(beyond, h, h / 2))
        # A step onto the bound that fails is tried again from a point nearer to the bound.
        h = jnp.where(landing & ~good, jnp.minimum(h, jnp.abs(bound - v[-1]) / 2), h)
        stuck = (first & ~kept) | (h < method.min_step)
        # A closed curve: the step passes the start, in the same direction, and ends there.
        ahead = (curve.v[0] - v) @ t
        home = jnp.sqrt(jnp.sum((curve.v[0] - v) ** 2)) < 1.1 * jnp.abs(far)
        closed = kept & (curve.count > 3) & home & (ahead > -1e-6 * jnp.abs(far)) & (curve.tangent[0] @ tangent > 0.9)
        # A start on a bound, from which the curve leads outwards, is the end as well.
        edge = jnp.where(root.y[-1] > high, high, low)
        outwards = beyond & (jnp.abs(edge - v[-1]) < 1e-9)
        ended = (kept & landing) | closed | outwards
        at_high = jnp.where(outwards, edge, bound) == high
        wanted = jnp.where(closed, bounds.at_low & bounds.at_high, jnp.where(at_high, bounds.at_high, bounds.at_low))

        at = jnp.where(kept, curve.count, curve.residual.size)  # out of bounds: nothing is written
        write = lambda column, value: column.at[at].set(jnp.where(closed, column[0], value), mode="drop")
        after = Curve(
            v=write(curve.v, root.y),
            tangent=write(curve.tangent, tangent),
            jacobian=write(curve.jacobian, jacobian),
            residual=write(curve.residual, root.residual),
            aux=jax.tree.map(write, curve.aux, aux),
            count=curve.count + jnp.where(kept, 1, 0),
            attempts=curve.attempts + 1,
            started=curve.started | kept,
            arrived=ended & wanted,
            astray=ended & ~wanted,
            closed=closed,
            stuck=stuck,
            last=aux,
        )
        return after, h, beyond, jnp.where(beyond, edge, bound)

    size = jnp.max(jnp.abs(v0[:-1]))
    size = jnp.where(size > 0, size, 1)
    state = start_of_curve(once, v0, along, bounds, method) if state is None else state
    return jax.lax.while_loop(lambda state: ~state[0].ended & (state[0].attempts < attempts), attempt, state)


def start_of_curve(
    evaluate: Evaluate, v0: Array, along: Array, bounds: Interval, method: PseudoArclength
) -> CurveState:
    """The arguments of `follow_curve` as a curve without points."""
    h, jacobian, aux = jax.eval_shape(evaluate, v0)
    room = lambda leaf: jnp.zeros((method.max_points, *leaf.shape), leaf.dtype)
    no, zero = jnp.array(False), jnp.array(0)
    empty = Curve(
        v=room(v0).at[0].set(v0), tangent=room(v0).at[0].set(along), jacobian=room(jacobian),
        residual=jnp.zeros(method.max_points, h.dtype), aux=jax.tree.map(room, aux), count=zero, attempts=zero, started=no,
        arrived=no, astray=no, closed=no, stuck=no, last=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), aux),
    )  # fmt: skip
    return empty, jnp.asarray(method.step, v0.dtype), no, jnp.asarray(bounds.high, v0.dtype)


# Programs of the curves of an equation


class Near(NamedTuple):
    """A point of a curve, `aux` of its evaluation, and whether it was found; else `aux` is that of the last attempt."""

    v: Array
    tangent: Array
    jacobian: Array
    residual: Array
    aux: PyTree
    found: Flag


def curves_from(equation: Equation, v0, border, ways, interval: Interval, method: PseudoArclength, accept) -> Curve:
    """The curves in the directions `ways`, each from the point near its `v0` at which `border @ (v - v0)` is zero; with points
    whose residuals are at most `accept`. `v0`, `border`, `ways`: shape `(directions, unknowns)`."""
    require_kind(method, PseudoArclength, "continuation", "method", "a hj.PseudoArclength")
    bounds = interval.scaled(equation.origin[-1], equation.scale[-1])
    equation, v0, border, ways, bounds = _strong((equation, v0, border, ways, bounds))
    method = method.with_arrays(v0.dtype)
    follow = lambda state, attempts: _follow(equation, v0, border, ways, bounds, method, accept, state, attempts)
    if is_traced((equation, v0, bounds)):
        return follow(None, jnp.inf)[0]
    name = leaf_names(equation.params)[equation.free[-1]]
    with working(f"following a branch over {name}") as say:
        state, attempts = _start(equation, v0, ways, bounds, method), 0
        while not np.all(state[0].ended):
            attempts += SLICE
            state = follow(state, jnp.array(attempts))
            points, way = np.asarray(state[0].count), np.argmin(state[0].ended)
            value = equation.origin[-1] + equation.scale[-1] * state[0].v[way, points[way] - 1, -1]
            say(f"point {np.sum(points) - len(points) + 1}, {name} = {float(value):.6g}")
    return state[0]


def point_near(
    equation: Equation,
    v: Array,
    border: Array,
    along: Array,
    ways: int,
    method: PseudoArclength,
    accept: Array,
    corrected: bool = True,
) -> Near:
    """The point of a curve near `v` at which `border @ (u - v)` is zero, and its tangent in the direction `along`; by the program
    that followed the curve in so many `ways`, as its first attempt at the first point. Unless `corrected`, it is `v` itself."""
    infinite, no = jnp.full((), jnp.inf, v.dtype), jnp.array(False)
    bounds = Interval(-infinite, infinite, no, no, jnp.ones_like(infinite), jnp.ones(ways, v.dtype))
    v, border, along = (jnp.broadcast_to(each, (ways, v.size)) for each in (v, border, along))
    equation, v, border, along, bounds = _strong((equation, v, border, along, bounds))
    method = method.with_arrays(v.dtype)
    state = _start(equation, v, along, bounds, method)
    start, step, *rest = state
    state = start, step if corrected else 0 * step, *rest
    curve, *_ = _follow(equation, v, border, along, bounds, method, accept, state, jnp.array(1))
    point = (
        *(np.asarray(each)[:, 0] for each in (curve.v, curve.tangent, curve.jacobian, curve.residual)),
        curve.last,
        curve.started,
    )
    return Near(*jax.tree.map(lambda leaf: np.asarray(leaf)[0], point))


def _strong(tree: PyTree) -> PyTree:
    """The arrays without weak types, of which JAX compiles other programs."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype) if isinstance(leaf, jax.Array) else leaf, tree)


@long_run
def _follow(equation: Equation, v0, border, ways, bounds, method, accept, state, attempts) -> CurveStates:
    """The curves in all directions from their `state`, interrupted after so many attempts at a step."""
    evaluate = lambda v: _evaluate(equation, v)
    judge = lambda v, aux: equation.judged(v, aux, accept)

    def follow(v0, border, way, state):
        return follow_curve(evaluate, v0, border, way, bounds, method, accept, judge, state, attempts)

    return jax.vmap(follow)(v0, border, ways, state)


@long_run
def _start(equation: Equation, v0, ways, bounds, method) -> CurveStates:
    """The curves in all directions before their first point."""
    evaluate = lambda v: _evaluate(equation, v)
    return jax.vmap(lambda v0, way: start_of_curve(evaluate, v0, way, bounds, method))(v0, ways)


@long_run
def _evaluate(equation: Equation, v: Array):
    """The evaluation at `v`; under `jit`, so that `_start` and `_follow` trace it once."""
    return equation.evaluate(v)


# Intervals and results


def interval_to(stop: Stop, value: Scalar, caller: str, behind: float) -> Interval:
    """The interval from the parameter's `value` to `stop`, or between the bounds of a pair `stop = (low, high)`: both ways, or
    inwards from a bound.

    **Arguments:** `caller`: the function that error messages name. `behind`: how far the curve may return past its start, in
    units of the distance to `stop`; unused for a pair.

    `ValueError` unless `stop` is a number other than `value`, or a pair around it. Traced values are not checked.
    """
    bounds = tuple(stop) if isinstance(stop, tuple | list) else (stop,)
    if len(bounds) not in (1, 2) or any(np.ndim(each) or not isinstance(each, _NUMBERS) for each in bounds):
        raise ValueError(f"{caller}: stop={stop!r} must be a number or a pair (low, high).")
    known = not any(isinstance(each, jax.core.Tracer) for each in (value, *bounds))
    if known and not all(np.isfinite(each) for each in bounds):
        raise ValueError(f"{caller}: stop={stop!r} must be finite.")
    if len(bounds) == 2:
        low, high = (jnp.asarray(each, value.dtype) for each in bounds)
        if known and not low < high:
            raise ValueError(f"{caller}: stop={stop!r} must be a pair (low, high) with low < high.")
        # A special point at a bound is located only up to rounding.
        slack = 1e-6 * (high - low)
        if known and not low - slack <= value <= high + slack:
            raise ValueError(f"{caller}: the parameter's value {value} does not lie within stop={stop!r}.")
        ways = [1.0, -1.0]
        if known and min(high - value, value - low) <= slack:
            ways = [1.0 if value - low <= slack else -1.0]
        both = jnp.array(True)
        return Interval(low, high, both, both, high - low, jnp.array(ways, value.dtype))
    end = jnp.asarray(bounds[0], value.dtype)
    if known and end == value:
        raise ValueError(f"{caller}: stop={stop!r} is the parameter's value at the start already. Give another value.")
    span, way = jnp.abs(end - value), jnp.where(end > value, 1, -1).astype(value.dtype)
    back = value - behind * way * span
    return Interval(jnp.minimum(back, end), jnp.maximum(back, end), way < 0, way > 0, span, way[None])


AnyCurve = TypeVar("AnyCurve", bound=Shown)


def raise_branch(name: str, found: AnyCurve) -> AnyCurve:
    """The branch or locus itself; `SolveError` where it ends before its `stop`. Under `jit` and `vmap` its codes are not
    known."""
    if is_traced(found):
        return found
    count = int(np.sum(found.curves.count))  # pyright: ignore[reportAttributeAccessIssue]
    remedy = f"The attribute `result` of this error has the {count} points before, as has the call with throw=False."
    return raise_failure(name, found, remedy=remedy)


def _turns_tangent(curves: Curve, k: int) -> bool:
    """Whether a guard of orbits along a curve falls ever slower towards its end, in units of the duration of its arc, and not
    because the orbits shrink. Beyond the guard is not met, or, as by symmetry, three times: then the corrector finds the state at
    another crossing."""
    if not hasattr(curves.aux, "guard_rates") or not curves.started[k]:
        return False
    points = slice(int(curves.count[k]))
    rates, elapsed = (np.asarray(each)[k, points] for each in (curves.aux.guard_rates, curves.aux.elapsed))
    falls = np.abs(rates) * np.diff(elapsed, axis=-1, prepend=0).reshape(rates.shape)
    size = np.max(np.abs(curves.v[k, points, :-1]), axis=1)
    slow = falls[-1] * np.max(size) < SLOW * size[-1] * np.max(falls, axis=0)
    # Near-tangent crossings may be lost a little before the rate is zero, where the steps are already short.
    return bool(np.any(slow & (falls[-1] < falls[-2:][0])))


def result_of(curves: Curve) -> RESULTS:
    """`successful` if every end of the interval was reached, otherwise the reason."""
    stuck, arrived, astray, closed = (
        np.asarray(each) for each in (curves.stuck, curves.arrived, curves.astray, curves.closed)
    )
    # A closed curve is the same in both directions.
    for k in np.flatnonzero(stuck & ~np.any(closed)):
        # The code of the last attempt's strides; where these were successful, Newton's method did not converge.
        code = code_of(int(np.asarray(curves.last.result._value)[k]))
        if code != RESULTS.successful and code != RESULTS.orbit_not_converged:
            return code
        return code_of(int((RESULTS.grazing if _turns_tangent(curves, int(k)) else RESULTS.orbit_not_converged)._value))
    if np.any(astray):
        return code_of(int(RESULTS.stop_not_reached._value))
    whole = np.all(arrived) or np.any(closed)
    return code_of(int((RESULTS.successful if whole else RESULTS.max_points_reached)._value))
