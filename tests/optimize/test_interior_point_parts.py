"""The parts of the interior-point method in closed form: bounds, direction, filter, secants, scales, active set, result."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import (
    _distinct,
    active_set,
    active_set_step,
    ActiveSet,
    after_descent,
    after_finish,
    allows,
    BARRIER,
    barrier_error,
    barrier_function,
    beside,
    empty_filter,
    InteriorPoint,
    judged_step,
    minimize,
    minimum,
    near_central,
    newton_direction,
    NonlinearProgram,
    optimality_error,
    PrimalDual,
    run_search,
    Sample,
    sampled,
    scale_of,
    start_search,
    starting_point,
    starting_points,
    unknowns_of,
    updated_secant,
    with_least_multipliers,
    with_point,
)

RESULTS = hj.RESULTS
INF = math.inf


def program_of(functions, equalities=0, lower=None, upper=None, n=2, second_order=True):
    """A program of `functions(u)`: the objective, the equalities, the inequalities."""
    found = lambda u: (functions(u), (None, RESULTS.successful))
    rows = jax.eval_shape(functions, jnp.zeros(n)).size - 1
    bound = lambda given, none: jnp.full(n, none) if given is None else jnp.asarray(given, float)
    return NonlinearProgram(
        lambda u, _: sampled(found, u, second_order), bound(lower, -INF), bound(upper, INF), equalities, rows - equalities
    )  # fmt: skip


def test_points_inside_the_bounds():
    """A hundredth of 1, of the bound, or of the interval away from the bounds."""
    program = program_of(lambda u: u[:1], lower=[0, 200, -INF, 1000], upper=[1, INF, 3, 1000.5], n=4)
    assert_allclose(program.inside(jnp.array([-1.0, 0.0, 9.0, 0.0])), [0.01, 202, 2.97, 1000.005], rtol=1e-15)
    assert_allclose(program.inside(jnp.array([2.0, 300.0, -9.0, 2000.0])), [0.99, 300, -9, 1000.495], rtol=1e-15)


# A convex quadratic objective of three unknowns, of which the first has a lower bound and the second an upper one; a linear
# equality and a linear inequality.
WEIGHT = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.2], [0.5, -0.2, 2.0]])
PULL = np.array([1.0, -2.0, 0.5])
ROWS, OFF = np.array([[1.0, 0.5, -1.0], [0.3, -1.0, 0.2]]), np.array([-0.2, 1.5])


def quadratic(u):
    return jnp.concatenate([(u @ WEIGHT @ u / 2 + PULL @ u)[None], ROWS @ u + OFF])


QUADRATIC = program_of(quadratic, 1, [-1.0, -INF, -INF], [INF, 2.0, INF], 3)
SOMEWHERE = PrimalDual(
    u=jnp.array([-0.9, 1.8, -0.3]), slack=jnp.array([0.6]), multipliers=jnp.array([0.2, 0.9]), slack_dual=jnp.array([0.8]),
    low=jnp.array([0.5, 0.0, 0.0]), high=jnp.array([0.0, 0.3, 0.0]),
)  # fmt: skip


@pytest.mark.parametrize("mu", [0.1, 1e-4])
def test_newton_direction(mu):
    """The step solves the linearized conditions of the barrier problem, and the slope is the derivative of its objective."""
    at, sample, mu = SOMEWHERE, QUADRATIC.evaluate(SOMEWHERE.u, None), jnp.asarray(mu)
    zero = jnp.zeros(())
    gap = sample.values[1:] - jnp.array([0.0, 0.6])
    hessian = jnp.asarray(WEIGHT)
    d, fractions, slope, shift = newton_direction(QUADRATIC, at, sample.jacobian, hessian, mu, zero, zero, gap)
    assert shift == 0
    # The equality keeps 1e-8 of the violations as its own weight.
    assert_allclose(sample.values[1] + ROWS[0] @ d.u, 0, atol=1e-7)
    assert_allclose(sample.values[2] + ROWS[1] @ d.u, at.slack + d.slack, rtol=1e-12)
    multipliers, low, high = at.multipliers + d.multipliers, at.low + d.low, at.high + d.high
    residual = sample.jacobian[0] + WEIGHT @ d.u - multipliers @ ROWS - low + high
    assert_allclose(residual, 0, atol=1e-13)
    assert_allclose(multipliers[1], at.slack_dual[0] + d.slack_dual[0], rtol=1e-12)
    distance, rest = at.u[0] + 1, 2 - at.u[1]
    assert_allclose(at.low[0] * d.u[0] + distance * low[0], mu, rtol=1e-12)
    assert_allclose(-at.high[1] * d.u[1] + rest * high[1], mu, rtol=1e-12)
    assert_allclose(at.slack_dual * d.slack + at.slack * (at.slack_dual + d.slack_dual), mu, rtol=1e-12)

    def barrier(u, slack):
        return barrier_function(QUADRATIC, u, slack, QUADRATIC.evaluate(u, None), mu)

    here = at.u, at.slack
    expected = sample.values[0] - mu * (jnp.log(distance) + jnp.log(rest) + jnp.log(at.slack[0]))
    assert_allclose(barrier(*here), expected, rtol=1e-14)
    assert_allclose(slope, jax.jvp(barrier, here, (d.u, d.slack))[1], rtol=1e-12)
    # The largest fractions that keep a part of each positive number: a hundredth, or mu.
    part = max(0.99, 1 - float(mu))
    most = lambda pairs: min(1.0, *(-part * value / step for value, step in pairs if step < 0), 1.0)
    primal = [(distance, d.u[0]), (rest, -d.u[1]), (at.slack[0], d.slack[0])]
    dual = [(at.low[0], d.low[0]), (at.high[1], d.high[1]), (at.slack_dual[0], d.slack_dual[0])]
    assert_allclose(fractions, [most(primal), most(dual)], rtol=1e-14)
    assert min(fractions) < 1


def shift_of(equalities, row, stiffness=1.0, last=0.0, floor=0.0, bend=-1.0):
    """The shift of the Hessian diag(1, `bend`) under one constraint with the gradient `row`."""
    program = program_of(lambda u: jnp.stack([u @ u, u[0]]), equalities)
    of_slack = jnp.ones(1 - equalities)
    none = jnp.zeros(2)
    at = PrimalDual(none, of_slack, jnp.zeros(1), stiffness * of_slack, none, none)
    jacobian, numbers = jnp.array([[0.1, 0.2], row]), map(jnp.asarray, (0.1, last, floor))
    *_, shift = newton_direction(program, at, jacobian, jnp.diag(jnp.array([1.0, bend])), *numbers, jnp.zeros(1))
    return float(shift)


def test_inertia_correction():
    """No shift where the Hessian is definite on the null space of the equality, or with a stiff inequality; else the first of a
    sequence of shifts above 1."""
    assert shift_of(1, [0.0, 1.0]) == 0 and shift_of(0, [0.0, 1.0], stiffness=4.0) == 0
    assert shift_of(0, [1.0, 0.0], bend=1.0) == 0
    # From 1e-4 on by factors of 100; from a third of the last one by factors of 8; not below the least one.
    assert_allclose(shift_of(1, [1.0, 0.0]), 100, rtol=1e-14)
    assert_allclose(shift_of(0, [0.0, 1.0], stiffness=0.25), 1, rtol=1e-14)
    assert_allclose(shift_of(1, [1.0, 0.0], last=1.5), 4, rtol=1e-14)
    assert shift_of(1, [1.0, 0.0], floor=5.0) == 5 and shift_of(1, [0.0, 1.0], floor=0.01) == 0.01


def test_filter():
    """What is better in violation or in objective passes; by more than a hundred thousandth, or 1e-8 of the violation."""
    number = lambda *values: [jnp.asarray(value, float) for value in values]
    points = with_point(empty_filter(float), jnp.array(True), *number(1.0, 5.0))
    count = lambda points: np.sum(np.isfinite(points[:, 0]))
    for violation, barrier, passes in (
        (0.5, 6.0, True), (2.0, 4.0, True), (1.0, 5.0, False), (2.0, 6.0, False), (1 - 5e-6, 6.0, False),
        (1 - 2e-5, 6.0, True), (2.0, 5 - 5e-9, False), (2.0, 5 - 2e-8, True),
    ):  # fmt: skip
        assert bool(allows(points, *number(violation, barrier))) == passes, (violation, barrier)
    same = with_point(points, jnp.array(False), *number(0.1, 0.1))
    assert count(same) == 1 and bool(allows(same, *number(0.5, 6.0)))
    second = with_point(points, jnp.array(True), *number(3.0, 1.0))
    assert count(second) == 2 and not any(bool(allows(second, *number(*each))) for each in ((1.0, 5.0), (3.0, 1.0)))

    def judged(before, after, slope, most=1.0, points=None):
        points, numbers = empty_filter(float) if points is None else points, number(most, slope)
        accepted, blocks = judged_step(points, *numbers, tuple(number(*before)), tuple(number(*after)))
        return bool(accepted), bool(blocks)

    # Near the constraints the objective must fall by 1e-4 of what its slope promises.
    assert judged((0, 1), (0, 1 - 2e-4), -1.0) == (True, False)
    assert judged((0, 1), (0, 1 - 5e-5), -1.0) == (False, False)
    # But for rounding.
    assert judged((0, 1), (0, 1 + 1e-15), -1e-14) == (True, False)
    # Elsewhere either number must fall a little.
    assert judged((1, 1), (0.9, 7), 1.0) == (True, True)
    assert judged((1, 1), (1 - 5e-6, 7), 1.0) == (False, False)
    assert judged((1, 1), (1, 1 - 2e-8), 1.0) == (True, True)
    assert judged((1, 1), (1, 1 - 5e-9), 1.0) == (False, False)
    assert judged((1e-3, 1), (1e-3, 1 - 1e-6), -1.0) == (True, True)
    assert judged((1e-5, 1), (5e-6, 7), -1e-6) == (True, True)
    # Never above the largest violation, nor what the filter forbids.
    assert judged((5, 1), (3, 0), 1.0, most=2.0) == (False, False)
    assert judged((3, 9), (2, 6), 1.0, most=9.0, points=points) == (False, False)


def known_at(program, u, second_order=True, **fields):
    """A search that has accepted `u`."""
    u = jnp.asarray(u, float)
    state = start_search(program, InteriorPoint(second_order=second_order), u, None)
    return changed(state, sample=program.evaluate(u, None), phase=BARRIER, most=1e4, **fields)


def changed(state, **fields):
    """The state of a search with other fields."""
    like = lambda old, new: new if isinstance(old, eqx.Module) else jnp.asarray(new, old.dtype)
    return dataclasses.replace(state, **{name: like(getattr(state, name), new) for name, new in fields.items()})


@pytest.mark.parametrize("multiplier", [0.0, 0.4, 3.0])
def test_secants(multiplier):
    """The update of BFGS gives the curvature of the Lagrangian along the step; at least a fifth of what was known of it."""
    program = program_of(lambda u: jnp.stack([u[0] ** 2 + u[0] * u[1] + u[1] ** 2, u @ u - 1]), 1)
    before = jnp.array([[3.0, 0.5], [0.5, 2.0]])
    state = known_at(program, [0.3, 0.4])
    trial = eqx.tree_at(
        lambda point: (point.u, point.multipliers), state.point, (jnp.array([0.8, -0.1]), jnp.array([multiplier]))
    )
    after = updated_secant(before, state.point, state.sample, trial, program.evaluate(trial.u, None))
    s = np.array([0.5, -0.5])
    y = np.array([[2.0, 1.0], [1.0, 2.0]]) @ s - 2 * multiplier * s
    own, known = s @ y, s @ before @ s
    weight = 1 if own >= 0.2 * known else 0.8 * known / (known - own)
    assert (weight == 1) == (multiplier == 0)
    assert_allclose(after, after.T, rtol=1e-14)
    assert_allclose(after @ s, weight * y + (1 - weight) * before @ s, rtol=0, atol=1e-14)
    assert_allclose(s @ after @ s, max(own, 0.2 * known), rtol=1e-12)
    # Across the step, in the metric of what was known, nothing changes but by the update's own direction.
    aside = np.linalg.solve(before, np.array([s[1], -s[0]]))
    new = weight * y + (1 - weight) * before @ s
    assert_allclose(aside @ after @ aside, aside @ before @ aside + (new @ aside) ** 2 / (new @ s), rtol=1e-12)


def test_second_order_correction():
    """The example of Maratos: on the circle a full step along the tangent raises the objective and the violation. The next trial
    corrects the violation: it is as long, and is accepted."""
    program = program_of(lambda u: jnp.stack([2 * (u @ u - 1) - u[0], u @ u - 1]), 1)
    start = jnp.array([math.cos(0.3), math.sin(0.3)])
    found = jax.jit(lambda u: minimize(program, InteriorPoint(second_order=True), u, u, None))(start)
    history = jax.tree.map(lambda leaf: np.asarray(leaf)[: int(found.iterations)], found.history)
    (rejected,) = np.flatnonzero(~history.accepted)[:1]
    assert history.violation[rejected] > history.violation[rejected - 1]
    assert history.accepted[rejected + 1] and history.step[rejected + 1] > 0.8 * history.step[rejected]
    assert history.violation[rejected + 1] < 0.2 * history.violation[rejected]
    assert found.result == RESULTS.successful
    assert_allclose(found.point.u, [1, 0], atol=1e-12)
    assert_allclose(found.point.multipliers, [1.5], rtol=1e-12)


def test_after_a_trial():
    """A rejected trial adds its violation to what is left of the last one; a lost one halves the longest step."""
    program = program_of(lambda u: jnp.stack([u[1], u[0]]), 1)
    state = known_at(program, [0.2, 0.0], fraction=0.5, step=[0.8, 0.0], slope=-1.0)

    def after(u, state, sound=True):
        state = eqx.tree_at(lambda state: state.trial.u, state, jnp.asarray(u))
        return after_descent(program, state, program.evaluate(state.trial.u, None), jnp.array(sound))

    worse = after([0.3, 5.0], state)
    assert worse.corrected and worse.rejected == 1 and worse.point.u[0] == 0.2
    assert_allclose(worse.gap, [0.5 * 0.2 + 0.3], rtol=1e-15)
    # No correction where the violation has fallen, after the first trial, or in a restoration.
    blocking = with_point(state.filter, jnp.array(True), jnp.array(0.0), jnp.array(-1e9))
    assert not after([0.1, 1e9], changed(state, filter=blocking)).corrected
    assert not after([0.3, 5.0], changed(state, rejected=1)).corrected
    assert not after([0.3, 5.0], changed(state, restoring=True)).corrected
    assert_allclose(after([0.3, 5.0], state, sound=False).reach, 0.8 * 0.5 / 2, rtol=1e-15)
    for before, expected in ((0, 2.0), (1, 1.0)):
        better = after([0.1, -1.0], changed(state, reach=1.0, rejected=before))
        assert better.rejected == 0 and better.point.u[0] == 0.1
        assert_allclose(better.reach, expected, rtol=1e-15)
    # A restoration takes what lowers the violation by 1e-4 of its part, whatever the objective.
    assert after([0.1, 5.0], changed(state, restoring=True)).point.u[0] == 0.1
    assert after([0.2 * (1 - 4e-5), 5.0], changed(state, restoring=True)).rejected == 1


def test_scales_of_functions():
    """The power of two that brings the gradient, a hundredth of the curvature, or a constant's value to 32 to 64."""
    slopes = np.array([5.0, 1.0, 0.0, 0.0, 1e-12, 47.9])
    bends, values = np.array([1.0, 1e4, 0.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 3e7, 0.0, 1.0, 1.0])
    sample = Sample(
        jnp.asarray(values), jnp.asarray(slopes)[:, None] * jnp.array([0.5, -1.0]), None, None, RESULTS.successful
    )
    scale = np.asarray(scale_of(sample, jnp.asarray(bends)))
    assert np.all(np.frexp(scale)[0] == 0.5)
    sizes = np.array([5.0, 100.0, 3e7, 1e-12, 47.9])
    known = np.array([0, 1, 2, 4, 5])
    assert np.all(scale[known] * sizes >= 32) and np.all(scale[known] * sizes < 64) and scale[3] == 1


FREE = program_of(lambda u: jnp.sum(u)[None], n=3)


def test_a_point_beside_the_start():
    """Downhill, by unlike lengths of about 1e-3, and half of the way to a bound that is nearer."""
    program = program_of(
        lambda u: jnp.array([[1.0, -2.0, 3.0]]) @ u, lower=[-INF, -INF, 0.0], upper=[INF, 1e-4, INF], n=3
    )
    at = eqx.tree_at(lambda point: point.u, SOMEWHERE, jnp.array([0.5, 0.0, 2e-4]))
    moved = np.asarray(beside(program, at, program.evaluate(at.u, None)).u - at.u)
    assert -1.001e-3 < moved[0] < -0.69e-3
    assert_allclose(moved[1:], [5e-5, -1e-4], rtol=1e-12)
    u = jnp.zeros(3)
    lengths = np.asarray(beside(FREE, eqx.tree_at(lambda point: point.u, SOMEWHERE, u), FREE.evaluate(u, None)).u)
    assert len(set(lengths)) == 3 and np.all(lengths < 0)


@pytest.mark.parametrize("second_order", [True, False])
def test_the_approach_to_a_start(second_order):
    """From 0.2 towards 1 where nothing beyond 0.6 can be evaluated: a quarter of the way after a loss, the whole way after a
    success; the search begins where a step of 4^-6 of the way is too long. Before that it has no optimum."""
    fn = lambda u: (jnp.where(u < 0.6, u**2, jnp.nan), (None, RESULTS.successful))
    program = NonlinearProgram(lambda u, _: sampled(fn, u, second_order), jnp.full(1, -INF), jnp.full(1, INF), 0, 0)
    method, origin, start = InteriorPoint(second_order=second_order), jnp.full(1, 0.2), jnp.ones(1)
    run = jax.jit(lambda until: run_search(program, method, start, start_search(program, method, origin, None), until))
    found = minimum(program, method, run(200))
    steps, accepted, phases = (
        np.asarray(each) for each in (found.history.step, found.history.accepted, found.history.phase)
    )
    assert_allclose(steps[:6], [0, 0.8, 0.2, 0.6, 0.15, 0.45], rtol=1e-14)
    assert accepted[:6].tolist() == [True, False, True, False, True, False]
    way = (phases == 0) & (np.arange(200) < int(found.iterations))
    assert 10 < way.sum() < 60 and 0.25 / 4096 < steps[way][-1 if second_order else -2] < 0.45 / 4096
    assert found.result == RESULTS.successful
    assert_allclose(found.point.u, 0, atol=1e-7)
    for until, code in ((1, "optimum_not_found"), (2, "nonfinite"), (3, "optimum_not_found")):
        ended = minimum(program, method, run(until))
        assert str(ended.result) == code and float(ended.error) > 0.1


@pytest.mark.medium
def test_unknowns_at_their_bounds():
    """Onto an active bound exactly, from where `u + (bound - u)` misses it; and of parameters at a bound, or beside it by
    rounding, all are known to be there."""
    no, yes = jnp.zeros(3, bool), jnp.array([False, True, False])
    program = program_of(quadratic, 1, [-1.0, -INF, -INF], [INF, 1.9, INF], 3)
    generator = np.random.default_rng(3)
    missed = 0
    for u in generator.uniform(-7, 1.9, 100):
        at = eqx.tree_at(lambda point: point.u, SOMEWHERE, jnp.array([-0.9, u, -0.3]))
        missed += u + (1.9 - u) != 1.9
        step = active_set_step(
            program, at, program.evaluate(at.u, None), jnp.asarray(WEIGHT), ActiveSet(no[:1], no, yes)
        )
        assert step.u[1] == 1.9
    assert missed > 10
    low, high = np.sort(generator.uniform(-3, 3, (2, 400)), axis=0)
    unknowns = unknowns_of(lambda p: p["k"], {"k": low}, [(low, high)], jnp.float64)
    for side, bound in ((0, low), (1, high)):
        for near in (bound, np.nextafter(bound, low), np.nextafter(bound, high)):
            found = unknowns.at_bounds({"k": near})
            assert np.all(found[side]) and not np.any(found[1 - side])
    inside = unknowns.at_bounds({"k": high - 1e-10 * (high - low)})
    assert not np.any(inside[0] | inside[1])


def test_steps_of_the_active_set():
    """One step solves a quadratic program with given active constraints; by NumPy without the fixed unknowns."""
    sample = QUADRATIC.evaluate(SOMEWHERE.u, None)
    flags = lambda rows, low, high: ActiveSet(*(jnp.array(each) for each in (rows, low, high)))
    no = [False] * 3
    for active in (
        flags([True], no, no), flags([False], no, no), flags([False], [True, False, False], no),
        flags([True], no, [False, True, False]), flags([False], [True, False, False], [False, True, False]),
    ):  # fmt: skip
        found = active_set_step(QUADRATIC, SOMEWHERE, sample, jnp.asarray(WEIGHT), active)
        held = np.array([True, bool(active.inequalities[0])])
        fixed = {i: value for i, value in ((0, -1.0), (1, 2.0)) if bool(active.low[i] | active.high[i])}
        rows = np.concatenate([ROWS[held], *(np.eye(3)[i : i + 1] for i in fixed)])
        matrix = np.block([[WEIGHT, -rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        solution = np.linalg.solve(matrix, np.concatenate([-PULL, -OFF[held], list(fixed.values())]))
        inside = np.clip(solution[:3], [-1, -INF, -INF], [INF, 2, INF])
        assert_allclose(found.u, inside, atol=1e-10)
        multipliers, duals = np.zeros(2), np.zeros(3)
        multipliers[held] = solution[3 : 3 + held.sum()]
        duals[list(fixed)] = solution[3 + held.sum() :]
        assert_allclose(found.multipliers, multipliers, atol=1e-10)
        assert_allclose(found.low - found.high, duals, atol=1e-10)
        assert np.all(np.asarray(found.low)[1:] == 0) and found.high[0] == 0
        # Of the same active set, the multipliers that fit best to the gradient in the free unknowns.
        best = with_least_multipliers(QUADRATIC, SOMEWHERE, sample, active)
        free = [i for i in range(3) if i not in fixed]
        expected = np.zeros(2)
        expected[held] = np.linalg.lstsq(ROWS[held][:, free].T, np.asarray(sample.jacobian)[0, free], rcond=None)[0]
        assert_allclose(best.multipliers, expected, atol=1e-10)
        assert_allclose(best.slack_dual, expected[1:], atol=1e-10)


def test_redundant_constraints_keep_their_multipliers():
    """Of a constraint and its double only one combination is known; the other stays what it was."""
    program = program_of(lambda u: jnp.stack([u @ u / 2, u[0] + u[1], 2 * (u[0] + u[1])]), 2)
    none = jnp.zeros(2)
    at = PrimalDual(jnp.array([1.0, 3.0]), none[:0], jnp.array([0.3, 0.1]), none[:0], none, none)
    active = ActiveSet(jnp.zeros(0, bool), jnp.zeros(2, bool), jnp.zeros(2, bool))
    found = with_least_multipliers(program, at, program.evaluate(at.u, None), active).multipliers
    # The weight of the change, 2e-12, is known to four digits.
    assert_allclose(found, np.array([0.3, 0.1]) + np.array([1, 2]) * (2 - 0.5) / 5, rtol=1e-3)


def test_which_constraints_are_active():
    """Those whose dual variable exceeds the distance."""
    at = eqx.tree_at(
        lambda point: (point.u, point.low), SOMEWHERE, (jnp.array([-0.8, 1.9, 0.0]), jnp.array([0.3, 0.0, 0.0]))
    )
    active = active_set(QUADRATIC, at)
    assert active.inequalities.tolist() == [True]
    assert active.low.tolist() == [True, False, False] and active.high.tolist() == [False, True, False]
    active = active_set(QUADRATIC, eqx.tree_at(lambda point: point.u, SOMEWHERE, jnp.array([0.4, 0.7, 0.0])))
    assert active.low.tolist() == [False] * 3 and active.high.tolist() == [False] * 3


def test_residuals():
    """Of a linear objective above 0 with one inequality, by hand; and of large multipliers a hundredth of their mean counts."""
    program = program_of(lambda u: jnp.stack([u[0], u[0] - 0.5]), lower=[0.0], n=1)

    def at(u, multiplier, low, slack=0.5, slack_dual=0.7, mu=0.0):
        array = lambda value: jnp.array([value], float)
        point = PrimalDual(*(array(each) for each in (u, slack, multiplier, slack_dual, low, 0.0)))
        sample = program.evaluate(point.u, None)
        return float(optimality_error(program, point, sample)), float(barrier_error(program, point, sample, mu))

    # The gradient 1 less both multipliers; the product of distance and multiplier, or the smaller of both.
    assert_allclose(at(2.0, 0.2, 0.5)[0], 0.5, rtol=1e-14)
    assert_allclose(at(1.0, 0.6, 0.4)[0], 0.4, rtol=1e-14)
    assert_allclose(at(1e-3 + 0.5, 0.99, 0.01)[0], 0.01 * 0.501, rtol=1e-10)
    assert_allclose(at(0.3, 1.0, 0.0)[0], 0.2, rtol=1e-14)
    assert_allclose(at(0.5, 1.3, -0.3)[0], 0.3, rtol=1e-14)
    # Violation of c - s = 0, products less mu, and the difference of the multipliers of c and s.
    assert_allclose(at(1.5, 0.7, 0.3)[1], 0.5, rtol=1e-14)
    assert_allclose(at(1.0, 0.7, 0.3, mu=0.35)[1], 0.05, rtol=1e-12)
    assert_allclose(at(1.0, 0.7, 0.3, mu=0.3)[1], 0.05, rtol=1e-12)
    assert_allclose(at(1.0, 0.7, 0.3, slack_dual=0.5, mu=0.275)[1], 0.2, rtol=1e-12)
    # Multipliers of 3e4 and 3e4 and 0: their mean is 2e4.
    assert_allclose(at(1.0, 3e4 + 0.6, -3e4)[0], 3e4 / 200, rtol=1e-3)


def test_first_duals_and_the_central_path():
    program = program_of(lambda u: jnp.stack([u[0], u[0] - 0.5, -3e3 + 0 * u[1]]), lower=[0.0, -INF], upper=[INF, 4.0])
    u = jnp.array([0.502, 2.0])
    begun = starting_point(program, u, program.evaluate(u, None), jnp.asarray(0.1))
    # A slack is at least a hundredth of 1, or of the value; a dual variable mu by the distance, at most 1000.
    assert_allclose(begun.slack, [0.01, 30], rtol=1e-12)
    assert_allclose(begun.slack_dual, [10, 0.1 / 30], rtol=1e-12)
    assert_allclose(begun.multipliers, begun.slack_dual, rtol=0)
    assert_allclose(begun.low, [0.1 / 0.502, 0], rtol=1e-12)
    assert_allclose(begun.high, [0, 0.05], rtol=1e-12)
    near = jnp.array([1e-5, 2.0])
    assert starting_point(program, near, program.evaluate(near, None), jnp.asarray(0.1)).low[0] == 1e3
    far = eqx.tree_at(
        lambda point: (point.low, point.slack_dual), begun, (jnp.array([1e30, 0.0]), jnp.array([0.0, 5.0]))
    )
    kept = near_central(program, far, jnp.asarray(0.1))
    assert_allclose(kept.low, [1e10 * 0.1 / 0.502, 0], rtol=1e-12)
    assert_allclose(kept.slack_dual, [0.1 / (1e10 * 0.01), 5], rtol=1e-12)


def test_the_finish_goes_on_while_the_residual_falls():
    program = program_of(lambda u: jnp.stack([u @ u / 2]))
    state = known_at(program, [0.1, 0.0], error=0.1)
    trial = lambda u: eqx.tree_at(lambda state: state.trial.u, state, jnp.array(u))
    after = lambda u, sound=True: after_finish(
        program, trial(u), program.evaluate(jnp.array(u), None), jnp.array(sound)
    )
    better, worse, lost = after([0.01, 0.0]), after([0.2, 0.0]), after([0.01, 0.0], False)
    assert better.phase == 2 and better.point.u[0] == 0.01 and float(better.error) == 0.01
    for each in (worse, lost):
        assert each.phase == 3 and each.point.u[0] == 0.1 and float(each.error) == 0.1
    assert after([0.0, 0.0]).phase == 3


@pytest.fixture(scope="module")
def solved():
    """The end of the search for the least u0^2 + 3 (u1 - 1)^2 with u1 <= 1/4 and u0 + u1 >= 1, with other units of all."""
    functions = lambda u: jnp.stack([1e-3 * (u[0] ** 2 + 3 * (u[1] - 1) ** 2), 1e4 * (u[0] + u[1] - 1)])
    program = program_of(functions, upper=[INF, 0.25])
    method, start = InteriorPoint(second_order=True), jnp.array([3.0, 0.0])
    run = jax.jit(lambda u: run_search(program, method, u, start_search(program, method, u, None), 200))
    return program, method, run(start)


def test_the_end_of_a_search(solved):
    """Multipliers in the functions' units; and no optimum above the start."""
    program, method, state = solved
    found = minimum(program, method, state)
    assert found.result == RESULTS.successful
    assert_allclose(found.point.u, [0.75, 0.25], rtol=1e-12)
    assert_allclose(found.point.multipliers, [1e-3 * 1.5 / 1e4], rtol=1e-10)
    assert_allclose(found.point.high, [0, 1e-3 * 1.5 + 1e-3 * 4.5], rtol=1e-10)
    assert_allclose(found.point.slack_dual, found.point.multipliers, rtol=0)
    assert_allclose(found.sample.values, [1e-3 * 2.25, 0], atol=1e-11)
    value = float(state.sample.values[0])
    below = lambda by: minimum(program, method, changed(state, first=value - by * max(1.0, abs(value)))).result
    assert below(1e-8) == RESULTS.successful and below(1e-6) == RESULTS.optimum_not_found
    assert minimum(program, method, changed(state, error=1e-6)).result == RESULTS.optimum_not_found


def test_distinct_optima(solved):
    """Numbered by their values; a start without an optimum has -1."""
    one = minimum(*solved)
    u = jnp.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1e-6], [0.0, 1e-6], [2.0, 0.0], [0.0, 0.0]])
    values = jnp.array([3.0, 1.0, 3.0 + 1e-12, 1.0, 2.0, 0.0])
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (6, *leaf.shape)), one)
    many = eqx.tree_at(lambda m: (m.point.u, m.sample.values), many, (u, many.sample.values.at[:, 0].set(values)))
    good = jnp.array([True, True, True, True, True, False])
    assert _distinct(many, good).tolist() == [2, 0, 2, 0, 1, -1]


def test_unknowns_and_starts():
    """The scale is the width of the bounds, or the number itself, or 1; starts are spread over the box as Sobol's points are."""
    params = {"a": jnp.array(3.0), "b": jnp.array([0.0, -5.0]), "c": jnp.array(7.0)}
    unknowns = unknowns_of(lambda p: (p["a"], p["b"]), params, [(2.0, 6.0), (None, 10.0)], jnp.float64)
    assert_allclose(unknowns.scale, [4, 1, 5])
    assert_allclose(unknowns.lower, [0.5, -INF, -INF])
    assert_allclose(unknowns.upper, [1.5, 10, 2])
    assert_allclose(unknowns.vector(params), [0.75, 0, -1])
    again = unknowns.params_at(jnp.array([0.5, 3.0, 2.0]))
    assert again["a"] == 2 and again["c"] == 7
    assert_allclose(again["b"], [3, 10])
    both = unknowns_of(lambda p: (p["b"], p["c"]), params, None, jnp.float64)
    again = both.params_at(2 * both.vector(params))
    assert again["b"].tolist() == [0, -10] and again["c"] == 14 and again["a"] == 3

    unknowns = unknowns_of(lambda p: (p["a"], p["b"]), params, [(2.0, 6.0), (-8.0, 2.0)], jnp.float64)
    program = program_of(lambda u: u[:1], lower=unknowns.lower, upper=unknowns.upper, n=3)
    given = starting_points(program, unknowns, unknowns.vector(params), jnp.array([[3.0, 1.0, -1.0], [2.0, 2.0, 2.0]]))
    assert_allclose(given, [[0.75, 0.1, -0.1], [0.51, 0.19, 0.19]], rtol=1e-14)
    spread = starting_points(program, unknowns, unknowns.vector(params), 9)
    assert_allclose(spread[0], [0.75, 0, -0.5], atol=1e-15)
    # In each half of each side there are as many of the eight points.
    assert spread.shape == (9, 3)
    assert np.all(
        np.sum(np.asarray(spread[1:]) > (np.asarray(program.lower) + np.asarray(program.upper)) / 2, axis=0) == 4
    )


WELL = lambda u: -(u[0] ** 2) / 2 + u[0] ** 4 / 4 + u[1] ** 2 / 4


@pytest.mark.medium
@pytest.mark.parametrize("second_order", [True, False])
@pytest.mark.parametrize(
    ("objective", "limit", "end", "optimum"),
    [
        (WELL, 1e3, INF, -1 / 4),
        (lambda u: 1e-12 * WELL(u), 1e3, INF, -1e-12 / 4),
        (WELL, 0.5, INF, -7 / 64),
        (lambda u: -u @ u, 1e3, 1.0, -2.0),
        (lambda u: u @ u, 1e3, INF, 0.0),
        (lambda u: 0 * u[0] + 3, 1e3, INF, 3.0),
    ],
    ids=["top of wells", "small numbers", "wells and a limit", "top in a box", "bottom", "constant"],
)
def test_a_start_where_the_objective_is_flat(objective, limit, end, optimum, second_order):
    """At the top of a hill, as by symmetry, there is no optimum; the search leaves it. The wells are at 1 and -1; under the limit
    of one half for the first unknown, the objective there is -1/8 + 1/64."""
    fn = lambda u: (jnp.stack([objective(u), limit - u[0]]), (None, RESULTS.successful))
    box = jnp.full(2, end)
    program = NonlinearProgram(lambda u, _: sampled(fn, u, second_order), -box, box, 0, 1)
    found = jax.jit(lambda u: minimize(program, InteriorPoint(second_order=second_order), u, u, None))(jnp.zeros(2))
    assert found.result == RESULTS.successful
    assert_allclose(found.sample.values[0], optimum, rtol=1e-7, atol=1e-30)


@pytest.mark.medium
def test_a_saddle_is_left_along_the_least_curvature():
    """Where second derivatives are known: of $u v$ and of a valley that is narrow across."""
    for objective, optimum in (
        (lambda u: u[0] * u[1] + jnp.sum(u**4) / 4, -1 / 2),
        (lambda u: WELL(u) + 40 * u[1] ** 2, -1 / 4),
    ):
        fn = lambda u, objective=objective: (objective(u)[None], (None, RESULTS.successful))
        program = NonlinearProgram(lambda u, _, fn=fn: sampled(fn, u, True), jnp.full(2, -INF), jnp.full(2, INF), 0, 0)
        found = jax.jit(lambda u, program=program: minimize(program, InteriorPoint(second_order=True), u, u, None))
        assert_allclose(found(jnp.zeros(2)).sample.values[0], optimum, rtol=1e-9)


def test_functions_that_were_never_known_have_no_values():
    fn = lambda u: (jnp.log(u[:1] - 1), (None, RESULTS.successful))
    program = NonlinearProgram(lambda u, _: sampled(fn, u, False), jnp.full(2, -INF), jnp.full(2, INF), 0, 0)
    found = minimize(program, InteriorPoint(second_order=False), jnp.zeros(2), jnp.zeros(2), None)
    assert found.result == RESULTS.nonfinite and np.all(np.isnan(found.sample.values))
