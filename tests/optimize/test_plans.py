"""Inputs of a step that are free in time: closed forms, independent digits, derivatives against autodiff, steps against a dense
solution."""

from types import SimpleNamespace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import (
    ASKED,
    COEFFICIENTS,
    fly,
    next_optimum,
    NODES,
    optimized_plan,
    PlanPoint,
    residual,
    searched,
    Sizes,
    Staged,
    StageProgram,
    stages_evaluate,
    stages_newton_direction,
    stride,
    WEIGHTS,
)  # fmt: skip
from hyjax.models import powered_compass_gait as walker

CART = hj.Mode(lambda t, x, p: jnp.stack([x[1], p]), ("place", "speed"))
TURN = hj.Transition("cart", "cart", lambda t, x, p: 1 - x[0], lambda t, x, p: jnp.stack([0 * x[0], x[1]]))
STEP = hj.ReturnMap(hj.HybridSystem({"cart": CART}, (TURN,)), sequence=("cart",))
INPUTS = hj.control.HeldInputs(STEP, lambda p: p, intervals=4)
EFFORT = hj.objectives.integral(lambda t, x, p: p**2)
START = hj.Constraint(lambda orbit, p: orbit.x[1], equals=0.4, name="start")
TIME = hj.Constraint(hj.objectives.period, equals=2.0)


def crude(inputs=INPUTS, dtype=float):
    return inputs.plan(jnp.array([[0.0, 0.5], [1.0, 0.5]], dtype), jnp.array(1.8, dtype), jnp.zeros((), dtype))


@pytest.fixture(scope="module")
def cart():
    return hj.optimize(crude(), EFFORT, constraints=[START, TIME])


@pytest.mark.medium
def test_a_cart_of_closed_form(cart):
    """Least effort over the distance 1 in the time T, with the speed b at both ends: u is linear, J = 12 (1 - bT)^2 / T^3, and
    the multipliers are its derivatives by b and T. The barrier's parameter ends at 1e-11."""
    assert_allclose(cart.value, 0.06, rtol=1e-10)
    assert_allclose(cart.multipliers, [-1.2, -0.33], rtol=1e-9)
    assert_allclose(cart.plan.inputs[:, 0], [0.3, 0.15, 0, -0.15], atol=1e-9)
    assert_allclose(cart.plan.inputs[:, 1], [0.15, 0, -0.15, -0.3], atol=1e-9)
    assert cart.gap < 1e-14 and cart.shortfall == 0 and cart.result == hj.RESULTS.successful
    assert "objective" in str(cart) and "0.06" in str(cart)


@pytest.mark.medium
def test_the_plan_is_a_trajectory_of_its_map(cart):
    """The return map of the held inputs closes, in the plan's duration, and its multipliers are those of the cart: 1 for the
    speed, which nothing restores, and 0 for place, clock and interval."""
    step, x, params = cart.plan.orbit_guess()
    after = step(x, params)
    assert_allclose(after.x, x, atol=1e-9)
    assert_allclose(after.time, cart.plan.duration, rtol=1e-9)
    assert after.jumps == 4
    # A cart that starts faster by dv arrives earlier by 5 dv, and is spared so much of the last input, -0.3.
    assert_allclose(cart.return_jacobian, [[0, 0], [0.75, 2.5]], atol=1e-9)
    sizes = jnp.sort(jnp.abs(jnp.linalg.eigvals(step.jacobian(x, params))))
    assert_allclose(sizes, [0, 0, 0, 2.5], atol=1e-9)
    assert params.inputs.shape == (4, 2) and step.system.modes["cart"].coordinates == (
        "place", "speed", "clock", "interval",
    )  # fmt: skip
    force = cart.plan.held.given(lambda t, x, p: p)
    assert_allclose(force(jnp.array(0.0), x, params), 0.3 - 0.15 / 2, atol=1e-9)
    # At the end of an interval the cart has not arrived.
    way = cart.plan.held.travel(lambda mode, x, p: x[:1])
    ends = jnp.array([[1.0, 0.4, 2.0, 3.0], [0.5, 0.4, 1.0, 2.0]])
    assert_allclose(jax.vmap(lambda end: way("cart", end, params))(ends), [[1.0], [0.0]])


@pytest.mark.medium
def test_feedback_from_interval_to_interval(cart):
    """The periodic Riccati recursion in NumPy, of intervals of 1/2 and of a jump that a faster cart meets earlier."""
    a, b = np.array([[1, 0.5], [0, 1]]), np.array([[0.125], [0.5]])
    # The jump is at place 1, where the cart has the speed 0.4 and the rate -0.3.
    closing = np.array([[0, 0], [0.75, 1.0]])
    q, r = np.diag([2.0, 3.0]), np.array([[0.7]])
    p, gains = np.eye(2), np.zeros((4, 1, 2))
    for _ in range(200):
        p = closing.T @ p @ closing
        for k in reversed(range(4)):
            gains[k] = np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)
            p = q + a.T @ p @ (a - b @ gains[k])
    found = cart.feedback(state_cost=jnp.asarray(q), control_cost=jnp.asarray(r))
    assert_allclose(found.gains, gains, rtol=1e-7, atol=1e-9)
    loop = closing @ np.linalg.multi_dot([a - b @ gain for gain in gains[::-1]])
    assert_allclose(found.multipliers, sorted(np.linalg.eigvals(loop), key=abs, reverse=True), atol=1e-8)
    assert abs(found.multipliers[0]) < 1 and cart.feedback().result == hj.RESULTS.successful
    with pytest.raises(ValueError, match=r"feedback: control_cost .* positive definite"):
        cart.feedback(control_cost=jnp.zeros((1, 1)))


def test_the_way_counts_once(unchecked):
    """With one interval too, where the arc that begins the step ends at the section, in the same interval; a function of equal
    arguments is equal, and not compiled again."""
    once = hj.control.HeldInputs(STEP, lambda p: p, intervals=1)
    params = SimpleNamespace(own=jnp.array(0.0), interval=1.8)
    place = lambda mode, x, p: x[:1]
    ends = jnp.array([[1.0, 0.4, 1.8, 0.0], [0.5, 0.4, 0.9, 0.0]])
    assert_allclose(jax.vmap(lambda end: once.travel(place)("cart", end, params))(ends), [[1.0], [0.0]])
    assert once.travel(place) == once.travel(place)


@pytest.mark.medium
def test_a_limit_along_the_arc_holds_between_the_points():
    """The speed at most m: u falls linearly to 0 at t1 = 3 (mT - 1) / (2 (m - b)) = 1/2, the length of an interval, then the cart
    coasts. J = 2 a^2 t1 / 3 with a = 2 (m - b) / t1."""
    limit = hj.Constraint(hj.objectives.largest(lambda t, x, p: x[1]), at_most=0.52)
    gait = hj.optimize(crude(), EFFORT, constraints=[START, TIME, limit])
    # Rows near the plateau keep a distance from the limit, of the barrier's parameter over their multipliers.
    assert_allclose(gait.value, 0.0768, rtol=1e-7)
    assert gait.shortfall <= 1e-9
    # The derivative by the limit, which is minus the sum over the points for `at_most`: by differences of the closed form.
    times = lambda m: 3 * (2 * m - 1) / (2 * (m - 0.4))
    effort = lambda m: 2 * (2 * (m - 0.4) / times(m)) ** 2 * times(m) / 3
    slope = (effort(0.52 + 1e-5) - effort(0.52 - 1e-5)) / 2e-5
    assert_allclose(-jnp.sum(gait.arc_multipliers), slope, rtol=2e-3)


class Driven(NamedTuple):
    """A force and the mass that it moves."""

    force: jax.Array
    mass: jax.Array


@pytest.fixture(scope="module")
def limited():
    """A cart of mass 1 with the speed at most 0.52, which it has not at the speed 0.48 of both ends."""
    cart = hj.Mode(lambda t, x, p: jnp.stack([x[1], p.force / p.mass]), ("place", "speed"))
    step = hj.ReturnMap(hj.HybridSystem({"cart": cart}, (TURN,)), sequence=("cart",))
    inputs = hj.control.HeldInputs(step, lambda p: p.force, intervals=4, low=-1.0)
    guess = inputs.plan(jnp.array([[0.0, 0.5], [1.0, 0.5]]), 2.0, Driven(jnp.array(0.0), jnp.array(1.0)))
    limit = hj.Constraint(hj.objectives.largest(lambda t, x, p: x[1]), at_most=0.52, name="fastest")
    limits = [eqx.tree_at(lambda each: each.equals, START, jnp.asarray(0.48, float)), limit, TIME]
    effort = hj.objectives.integral(lambda t, x, p: p.force**2)
    return hj.optimize(guess, effort, constraints=limits)


def least_effort_of(start, fastest=0.52):
    """Of the cart over the distance 1 in the time 2, as in the tests above."""
    duration = np.minimum(3 * (2 * fastest - 1) / (2 * (fastest - start)), 1.0)
    free = 12 * (1 - 2 * start) ** 2 / 8
    return np.where(start > 0.46, free, 2 * (2 * (fastest - start) / duration) ** 2 * duration / 3)


@pytest.mark.medium
def test_a_picture_of_a_plan(limited):
    """The force of least effort is linear, 0.06 (1 - t), the speed a parabola, and at the middle 0.01 from its limit."""
    times, x, force = limited.plan.sample(5)
    assert_allclose(force, 0.06 * (1 - times), atol=1e-7)
    assert_allclose(x[:, 1], 0.48 + 0.06 * (times - times**2 / 2), atol=1e-7)
    assert_allclose(x[:, 0], 0.48 * times + 0.06 * (times**2 / 2 - times**3 / 6), atol=1e-7)
    distances = limited.distances(5)
    assert limited.arc_labels == ["fastest <= 0.52"] and distances.shape == (20, 1)
    assert_allclose(distances[:, 0], 0.52 - x[:, 1], atol=1e-12)
    figure = limited.plot()
    _, driven, last = figure.axes
    assert_allclose(driven.lines[0].get_ydata(), 0.06 * (1 - driven.lines[0].get_xdata()), atol=1e-7)
    assert driven.lines[1].get_ydata()[0] == -1 and last.get_legend().texts[0].get_text() == "fastest <= 0.52"
    assert len(limited.plan.plot().axes) == 2


def test_a_plan_over_a_limit(limited):
    """The speed of both ends from 0.48 to 0.4: the largest speed is 0.75 - b/2, at its limit 0.52 from 0.46 on. Where t1 is no
    end of an interval, linear forces cost more than the optimum: by 1.3 % at most."""
    branch = hj.follow_optimum(limited, limit="start", stop=0.4, n_points=5)
    assert_allclose(branch.numbers[[0, -1]], [0.48, 0.4], rtol=1e-15)
    free = branch.numbers > 0.46 - 1e-9
    assert_allclose(branch.values[free], least_effort_of(branch.numbers[free]), rtol=1e-7)
    assert_allclose(branch.values, least_effort_of(branch.numbers), rtol=0.014)
    assert np.all(branch.values > least_effort_of(branch.numbers) - 1e-9)
    (change,) = branch.changes
    assert change.name == "fastest <= 0.52" and change.active and 0.4 <= change.number < 0.46
    assert branch.labels == ("start = 0.48", "period = 2", "fastest <= 0.52") and branch.active.shape[1] == 1
    # The value is once differentiable by each limit, and at 0.4 that by the fastest speed is known.
    assert_allclose(branch.multipliers[free, 0], -6 * (1 - 2 * branch.numbers[free]), rtol=1e-6)
    slope = (least_effort_of(0.4, 0.52 + 1e-5) - least_effort_of(0.4, 0.52 - 1e-5)) / 2e-5
    assert_allclose(-branch.multipliers[-1, 2], slope, rtol=2e-3)
    assert "fastest <= 0.52 becomes active" in str(branch) and list(branch.to_pandas()) == [
        "start", "objective", "duration",
    ]  # fmt: skip
    # Back again, from a plan of the branch.
    assert branch.plans is not None
    again = hj.follow_optimum(branch.plans[-1], limit="start", stop=0.48, n_points=1)
    assert_allclose(again.values[-1], branch.values[0], rtol=1e-7)
    assert [(each.name, each.active) for each in again.changes][-1] == ("fastest <= 0.52", False)
    assert "4 successful" in str(branch.plans[:4])
    # A batch has an end, and is no plan.
    assert [float(each.value) for each in branch.plans] == list(branch.values)
    with pytest.raises(IndexError):
        branch.plans[len(branch)]
    for call in (
        lambda: hj.follow_optimum(branch.plans, limit="start", stop=0.48),
        lambda: branch.plans.distances(),
        lambda: branch.plans.labels,
        lambda: branch.plans.plan.sample(),
    ):
        with pytest.raises(ValueError, match=f"batch of {len(branch)}"):
            call()


def test_a_plan_over_a_parameter(limited):
    """The force is the mass times an acceleration, so the effort grows with the square of the mass."""
    branch = hj.follow_optimum(limited, where=lambda p: p.mass, stop=3.0, n_points=2)
    assert_allclose(branch.values, 12 * 0.04**2 / 8 * branch.numbers**2, rtol=1e-7)
    assert_allclose(branch.plans.params.mass, branch.numbers)
    assert branch.numbers[-1] == 3 and not branch.changes
    for arguments, match in (
        ({"where": lambda p: p.force, "stop": 1.0}, "force is itself optimized"),
        ({"limit": "speed", "stop": 1.0}, "must name one of the constraints"),
        ({"limit": "start", "stop": 0.48}, "is the value of the gait itself"),
    ):
        with pytest.raises(ValueError, match=match):
            hj.follow_optimum(limited, **arguments)


@pytest.mark.medium
def test_a_plan_that_ends(limited):
    """At the fastest speed 0.5 nothing but 0.5 throughout takes the time 2: slower than 0.5 there is no plan."""
    branch = hj.follow_optimum(limited, limit="fastest", stop=0.45, n_points=2, throw=False)
    assert branch.result != hj.RESULTS.successful and 0.5 < branch.numbers[-1] < 0.51
    with pytest.raises(hj.SolveError, match="points before"):
        hj.follow_optimum(limited, limit="fastest", stop=0.45, n_points=2)


def fold(other):
    """The curve x^2 = 1 - q, which ends at q = 1; from there a search goes to another one."""
    return lambda number, start: at_place(
        number, np.sqrt(1 - number) if number <= 1 and start.point.states[0] >= 0 else other(number)
    )


def kink(other):
    """The curve x = max(0, 20 (q - 1 / 3))."""
    return lambda number, start: at_place(number, max(0.0, 20 * (number - 1 / 3)))


def at_place(number, x):
    point = SimpleNamespace(states=np.array([x]), inputs=np.zeros(1))
    return PlanPoint(number, SimpleNamespace(point=point, result=hj.RESULTS.successful), np.zeros(0))


@pytest.mark.parametrize("jump", [0.1, 0.2, 1.0])
def test_a_curve_of_optima_ends_at_its_fold(jump):
    """And not on another curve that is no farther than a few steps, fast as it moves just before; at a kink it goes on."""
    spacing = 0.11
    for curve in (fold, kink):
        found = curve(lambda number: -jump - (number - 1))
        before, at = None, at_place(0.0, 1.0 if curve is fold else 0.0)
        for target in spacing * np.arange(1, 19):
            while at is not None and at.number != target:
                before, (at, _) = at, next_optimum(found, spacing, at, float(target))
                assert at is None or at.gait.point.states[0] >= 0
        assert (at is None) == (curve is fold)
        # The last step is less than a 64th of the spacing.
        assert at is not None or 1 - spacing / 64 < before.number <= 1


@pytest.mark.medium
def test_a_limit_that_was_raised_by_too_much_is_no_optimum(monkeypatch):
    """Limits that are raised in all intervals, and no search left to lower them; a method that is not compiled yet."""
    limit = hj.Constraint(hj.objectives.largest(lambda t, x, p: x[1]), at_most=0.52)
    gait = hj.optimize(crude(), EFFORT, constraints=[START, TIME, limit])
    program = eqx.tree_at(lambda each: each.raised, gait.program, gait.program.raised + 1e-3)
    monkeypatch.setattr(optimized_plan, "ROUNDS", 1)
    found = searched(program, gait.point, hj.objectives.InteriorPoint(accept=1.1e-7), jnp.array(True))
    assert found.value > gait.value * 1.0001 and found.error < 1e-7 and found.shortfall == 0
    assert found.result == hj.RESULTS.optimum_not_found
    monkeypatch.undo()
    found = searched(program, gait.point, gait.method, jnp.array(True))
    assert found.result == hj.RESULTS.successful and found.rounds > 1
    # A limit may stay raised by 1e-6 of its size on the guess, 0.02, and d log J / d limit = 3 / (m - b) - 2 / (2 m - 1) = -25.
    assert_allclose(found.value, gait.value, rtol=6e-7)


@pytest.mark.medium
def test_limits_of_the_input():
    """Inputs of at most 0.25 instead of 0.3: they are at their limits for a while, and cost more."""
    inputs = hj.control.HeldInputs(STEP, lambda p: p, intervals=8, low=-0.25, high=0.25)
    gait = hj.optimize(crude(inputs), EFFORT, constraints=[START, TIME])
    assert jnp.max(jnp.abs(gait.plan.inputs)) <= 0.25 + 1e-10
    # Saturated until s, then linear to the middle at T/2 = 1: the distance 1 needs 2 (a (1/2 - s^2/6) ...), solved below.
    a = 0.25
    # v(1) - b = a s + a (1 - s) / 2; the distance of the half step is b + a s (1 - s / 2) + a (1 - s)^2 / 3 = 1/2.
    s = float(np.roots([a * (1 / 3 - 1 / 2), a * (1 - 2 / 3), a / 3 - 0.1])[-1])
    assert 0 < s < 1
    assert_allclose(gait.value, 2 * a**2 * (s + (1 - s) / 3), rtol=2e-3)
    assert gait.value > 0.06


@pytest.mark.medium
def test_a_batch_and_a_gradient():
    """Under `jit` and `vmap`, with limits that are traced; of single lanes the same values."""

    @jax.jit
    @jax.vmap
    def efforts(duration):
        time = hj.Constraint(hj.objectives.period, equals=duration)
        found = hj.optimize(crude(), EFFORT, constraints=[START, time], throw=False)
        return found.value, found.result._value

    durations = jnp.array([1.5, 2.0, 2.2])
    values, codes = efforts(durations)
    assert_allclose(values, 12 * (1 - 0.4 * durations) ** 2 / durations**3, rtol=1e-9)
    assert jnp.all(codes == hj.RESULTS.successful._value)


@pytest.mark.medium
def test_single_precision():
    gait = hj.optimize(
        crude(dtype=jnp.float32),
        EFFORT,
        constraints=[START, TIME],
        method=hj.objectives.InteriorPoint(accept=1e-4),
        throw=False,
    )
    assert gait.plan.x.dtype == jnp.float32
    assert_allclose(gait.value, 0.06, rtol=1e-3)
    # By the same method, not by the default one, which asks for more than single precision has.
    assert gait.method.accept == 1e-4
    branch = hj.follow_optimum(gait, limit="start", stop=0.38, n_points=1)
    assert_allclose(branch.values[-1], 12 * (1 - 2 * 0.38) ** 2 / 8, rtol=1e-3)


@pytest.mark.medium
def test_what_cannot_be():
    """Constraints that contradict each other are `infeasible`, with the violation said; a guess without values is `nonfinite`."""
    slow = hj.Constraint(hj.objectives.along(lambda t, x, p: x[1]), at_most=0.45)
    found = hj.optimize(crude(), EFFORT, constraints=[START, TIME, slow], throw=False)
    assert found.result == hj.RESULTS.infeasible
    with pytest.raises(hj.SolveError, match="violations up to"):
        hj.optimize(crude(), EFFORT, constraints=[START, TIME, slow])
    broken = hj.objectives.integral(lambda t, x, p: jnp.log(-1 - p**2))
    assert hj.optimize(crude(), broken, constraints=[START, TIME], throw=False).result == hj.RESULTS.nonfinite


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"starts": 3}, "starts= is of the search from an orbit"),
        ({"constraints": [lambda orbit, p: 0.0]}, "is not a constraint"),
        ({"where": lambda p: p}, "the input of the plan, which is free already"),
        ({"objective": lambda orbit, p: jnp.zeros(2)}, "must return a number"),
        ({"objective": hj.objectives.largest(lambda t, x, p: x[1])}, "not of extreme values"),
        ({"objective": hj.objectives.spectral_radius}, "'spectral_radius' of a plan is not known"),
        (
            {"constraints": [hj.Constraint(hj.objectives.along(lambda t, x, p: x[1]), equals=0.5)]},
            "at_least or at_most",
        ),
    ],
)
def test_bad_arguments(changed, match, unchecked):
    objective = changed.pop("objective", EFFORT)
    with pytest.raises((ValueError, AttributeError), match=match):
        hj.optimize(crude(), objective, **{"constraints": [START], **changed})


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: hj.control.HeldInputs(STEP, lambda p: p, intervals=0), "intervals=0"),
        (lambda: hj.control.HeldInputs(STEP, lambda p: p, intervals=2, degree=-1), "degree=-1"),
        (lambda: hj.control.HeldInputs(STEP.repeated(2), lambda p: p, intervals=2), "of one stride"),
        (lambda: hj.control.HeldInputs(STEP, lambda p: p, intervals=2, low=1.0, high=0.0), "low=1.0 must be below"),
        (lambda: INPUTS.plan(jnp.zeros((2, 3)), 1.0, jnp.array(0.0)), r"\(knots, 2\)"),
        (lambda: INPUTS.plan(jnp.zeros((2, 2)), -1.0, jnp.array(0.0)), "duration=-1.0"),
        (lambda: INPUTS.plan(jnp.full((2, 2), jnp.nan), 1.0, jnp.array(0.0)), "finite"),
    ],
)
def test_bad_plans(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def pendulum(s, x, v, w):
    return v[0] * jnp.stack([x[1], -jnp.sin(x[0]) * v[1] + w[0] * jnp.cos(x[1]) + s * x[0], w[0] ** 2 + x[1] ** 2])


def height(s, x, v, w):
    return jnp.stack([x[0] * x[1] + v[1] * w[0] ** 2 + s, jnp.cos(x[0])])


@pytest.mark.medium
def test_second_derivatives_are_those_of_the_steps():
    """Of a pendulum with a curved input and rows: against `jax.hessian` of the Runge-Kutta step written out. Rounding of sums of
    some hundred terms of the order of 1."""

    def flown(y):
        x, v, u = y[:2], y[2:4], y[4:]
        known, points = [], []
        for c, row in zip(NODES, COEFFICIENTS, strict=True):
            w = (1 - c) * u[:1] + c * u[1:]
            at = x + sum((a * k[:2] for a, k in zip(row, known, strict=False)), jnp.zeros(2))
            points.append((c, at, w))
            known.append(pendulum(c, at, v, w))
        moved = sum(b * k for b, k in zip(WEIGHTS, known, strict=True))
        rows = jnp.stack([height(c, at, v, w) for c, at, w in (points[i] for i in ASKED)])
        return jnp.concatenate([x + moved[:2], moved[2:]]), rows

    y = jnp.array([0.3, -0.4, 0.7, 1.2, 0.5, -0.2])
    costate, duals = jnp.array([0.4, -1.1, 0.8]), jnp.array([[0.3, 0.2], [1.0, -0.5], [0.6, 0.1]])
    own_end, own_end_by, own_rows, own_rows_by, bend = fly(pendulum, height, 1, (y[:2], y[2:4], y[4:]), costate, duals)
    end, rows = flown(y)
    assert_allclose(own_end, end, rtol=1e-13)
    assert_allclose(own_rows, rows, rtol=1e-13)
    end_by, rows_by = jax.jacfwd(flown)(y)
    assert_allclose(own_end_by, end_by, atol=1e-13)
    assert_allclose(own_rows_by, rows_by, atol=1e-13)
    lagrangian = lambda y: costate @ flown(y)[0] - jnp.sum(duals * flown(y)[1])
    assert_allclose(bend, jax.hessian(lagrangian)(y), atol=1e-12)


@pytest.mark.medium
def test_a_newton_step_is_that_of_the_whole_system():
    """By recursion over the stages, against the solution of the linearized conditions of optimality in all variables at once: the
    residual of these is linear along the step but for terms of second order, which fall with its square."""

    def ends(whole):
        equal = jnp.stack([whole[0] - whole[5] - 0.1, whole[1] ** 2 - whole[6]])
        return whole[4] / whole[2] + 3 * whole @ whole, equal, whole[2:3]

    sizes = Sizes(stages=3, state=2, same=2, totals=1, inputs=2, degree=1)
    program = StageProgram(
        lambda k, s, x, v, w: pendulum(s, x, v, w) / 3, lambda k, s, x, v, w: height(s, x, v, w) + 2,
        lambda u: jnp.concatenate([u + 3, 3 - u]),
        ends,
        sizes,
    )  # fmt: skip
    draw = np.random.default_rng(1)
    states = jnp.asarray(draw.uniform(0.4, 0.6, (4, sizes.whole)))
    # Copies of what is the same in all stages, and of the start.
    states = states.at[:, 2:4].set(states[0, 2:4]).at[:, 5:].set(states[0, :2])
    rows = len(ASKED) * 2 + 4
    positive = lambda *shape: jnp.asarray(draw.uniform(0.5, 1.5, shape))
    point = Staged(
        states, jnp.asarray(draw.uniform(-0.5, 0.5, (3, 2))), positive(3, rows), positive(1), positive(3, sizes.whole) / 10,
        positive(2) / 10, positive(3, rows) / 10, positive(1),
    )  # fmt: skip
    mu, zero = jnp.array(0.1), jnp.array(0.0)
    sample = stages_evaluate(program, point)
    step, _, shift = stages_newton_direction(program, point, sample, mu, zero, jnp.array(False))

    def conditions(point):
        sample = stages_evaluate(program, point)
        pulled = jnp.einsum("kab,ka->kb", sample.by_state, point.costates) - jnp.einsum(
            "kra,kr->ka", sample.rows_by_state, point.dual
        )
        inputs = jnp.einsum("kab,ka->kb", sample.by_input, point.costates) - jnp.einsum(
            "kra,kr->ka", sample.rows_by_input, point.dual
        )
        last = sample.gradient + point.multipliers @ sample.equal_by_state - point.ending_dual @ sample.ending_by_state
        parts = (
            sample.gap, sample.equal, sample.rows - point.slack, sample.ending - point.ending_slack,
            pulled[1:] - point.costates[:-1], inputs, last - point.costates[-1], pulled[0] @ sizes.embedding,
            point.slack * point.dual - mu, point.ending_slack * point.ending_dual - mu,
        )  # fmt: skip
        return jnp.concatenate([part.ravel() for part in parts])

    # The shift is a multiple of the identity in all states and inputs.
    moves, none = step.states, jnp.zeros_like
    shifted = (
        none(sample.gap), none(sample.equal), none(sample.rows), none(sample.ending), moves[1:-1], step.inputs, moves[-1],
        moves[0] @ sizes.embedding, none(point.slack), none(point.ending_slack),
    )  # fmt: skip
    value, along = jax.jvp(conditions, (point,), (step,))
    along = along + shift * jnp.concatenate([part.ravel() for part in shifted])
    assert_allclose(along, -value, atol=1e-8 * float(jnp.max(jnp.abs(step.costates))))
    worst, primal = residual(program, point, sample, mu)
    assert worst >= primal > 0


@pytest.mark.slow
def test_the_compass_gait_of_least_effort():
    """Push-off and torque of the compass gait at speed 0.3, whose foot comes down at 0.001 at least: J = 0.0659804614894, P =
    0.1409356507917 by Gauss collocation of 10 and 20 elements with IPOPT (CasADi 3.8), which relaxes limits by 1e-8."""
    params = eqx.tree_at(lambda p: (p.stiffness, p.push_off), walker.Params(), (jnp.array(0.0), jnp.array(0.1)))
    effort = hj.objectives.integral(lambda t, x, p: p.controller.torque**2)
    length = hj.objectives.step_length(walker.travel)

    def falls(orbit, p):
        stance, swing, stance_rate, swing_rate = orbit.arc_ends[0][0]
        return jnp.sin(stance) * stance_rate - jnp.sin(swing) * swing_rate

    limits = (
        hj.Constraint(falls, at_least=1e-3 - 1e-8),
        hj.Constraint(hj.objectives.speed(walker.travel), equals=0.3),
    )
    inputs = hj.control.HeldInputs(
        walker.step, lambda p: p.controller.torque, intervals=20, degree=2, low=-0.2, high=0.2
    )
    guess = inputs.plan(jnp.array([[0.2, -0.2, -0.3, 0.3], [-0.2, 0.2, -0.3, 0.3]]), 1.32, params)
    gait = hj.optimize(
        guess, lambda orbit, p: (effort(orbit, p) + p.push_off**2) / length(orbit, p), where=lambda p: p.push_off,
        bounds=(0.0, 1.0), constraints=limits,
    )  # fmt: skip
    assert_allclose(gait.value, 0.0659804614894, rtol=2e-10)
    assert_allclose(gait.params.push_off, 0.1409356507917, rtol=1e-8)
    assert_allclose(gait.plan.duration, 1.33579318133, rtol=1e-8)
    # The plan is an orbit of the map with its inputs as parameters; its largest multiplier is that of a foot that nearly grazes.
    orbit = hj.periodic_orbit(*gait.plan.orbit_guess())
    assert_allclose(orbit.period, gait.plan.duration, rtol=1e-9)
    assert orbit.spectral_radius > 100
    largest = jnp.max(jnp.abs(jnp.linalg.eigvals(gait.return_jacobian)))
    # The intervals of the plan meet to 1e-8, which the flow past a foot that nearly grazes enlarges.
    assert_allclose(largest, orbit.spectral_radius, rtol=1e-5)
    # A push-off chosen once a step stabilizes it.
    feedback = hj.control.stride_feedback(orbit, where=lambda p: p.own.push_off)
    assert jnp.max(jnp.abs(feedback.multipliers)) < 0.6


@pytest.mark.medium
def test_many_equal_arcs_are_a_loop():
    """A ball that bounces six times: the stride with a loop over its arcs has the numbers of the stride written out."""
    from hyjax.models import bouncing_ball as ball

    x, params, names = jnp.array([1.0, 0.0]), ball.Params(), ("flight",) * 6
    integrator = hj.ReturnMap(ball.system, sequence=names, integrator=hj.Integrator()).integrator
    run = lambda x: stride.run_stride(ball.system, jnp.array(0.0), x, params, names, integrator)
    looped, slope = run(x), jax.jacfwd(lambda x: run(x).x)(x)
    many, stride.MANY = stride.MANY, 100
    try:
        written, written_slope = run(x), jax.jacfwd(lambda x: run(x).x)(x)
    finally:
        stride.MANY = many
    assert len(looped.impacts) == len(written.impacts) == 6
    for own, other in zip(jax.tree.leaves(looped), jax.tree.leaves(written), strict=True):
        assert_allclose(own, other, rtol=1e-13, atol=1e-13)
    assert_allclose(slope, written_slope, rtol=1e-11, atol=1e-12)
