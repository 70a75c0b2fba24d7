"""Hybrid iLQR: least squares, a bounce in closed form, gradients by differences, the published bouncing ball and its kink."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_riccati import PUSHED, QUIET

import hyjax as hj
from hyjax._testing import _convex, control_gradient, direction, QuadraticModel, released
from hyjax.models import bouncing_ball

matplotlib.use("Agg")
RESULTS = hj.RESULTS

# The bouncing ball of Kong, Council, Johnson: 251 controls of 0.004 s each, so the end is at 1.004 s.
STEPS, DT, GRAVITY, E, R = 251, 0.004, 9.8, 0.7, 1.25e-4
TIMES, START, TARGET = DT * np.arange(STEPS + 1), np.array([4.0, 0.0]), np.array([1.0, 0.0])

# Defined once: a function that is new is compiled anew.
BALL = {
    "mode": "flight", "times": jnp.array(TIMES), "where": lambda p: p.gravity, "max_jumps": 6, "max_iterations": 80,
    "stage_cost": lambda t, x, u, p: R * jnp.sum(u**2), "terminal_cost": lambda t, x, p: 100 * jnp.sum((x - TARGET) ** 2),
    # A flow of second degree in time, which this method solves exactly: a step for each control.
    "integrator": hj.Integrator(dfx.Heun(), controller=dfx.ConstantStepSize(), first_step=DT, unroll=False),
}  # fmt: skip


def solve_ball(guess, tolerance=1e-10, **options):
    """Gravity acts: its deviation is the force downward, on a ball of mass 1."""
    controls = guess * jnp.ones((STEPS, 1))
    params = bouncing_ball.Params(E, GRAVITY)
    return hj.control.ilqr(
        bouncing_ball.system,
        jnp.array(START),
        params,
        controls=controls,
        tolerance=tolerance,
        **BALL,
        **options,
        throw=False,
    )


def effect(start, end):
    """Height and speed at `end` by an upward force of 1 during each step, from `start` on."""
    a, b = np.clip(TIMES[:-1], start, end), np.clip(TIMES[1:], start, end)
    return np.stack([(b - a) * (end - (a + b) / 2), b - a])


def least_cost(rows, right, equal=None):
    """The least R |u|^2 + 100 |rows u - right|^2 and its u; with `equal` = (row, value), under row u = value."""
    h, f = R * np.eye(STEPS) + 100 * rows.T @ rows, 100 * rows.T @ right
    if equal is not None:
        row, value = equal
        h = np.block([[h, row[:, None]], [row[None], np.zeros((1, 1))]])
        f = np.append(f, value)
    u = np.linalg.solve(h, f)[:STEPS]
    return R * u @ u + 100 * np.sum((rows @ u - right) ** 2), u


def no_bounce():
    """The least cost without the floor, a linear problem."""
    end = TIMES[-1]
    fallen = START + np.array([-GRAVITY * end**2 / 2, -GRAVITY * end])
    return least_cost(effect(0, end), TARGET - fallen)


def one_bounce(tau):
    """The least cost with the one bounce at the time `tau`, its controls, and the speed of impact: for a given time the problem
    is linear, and the height there is one constraint."""
    end, left = TIMES[-1], TIMES[-1] - tau
    height, speed = effect(0, tau)
    later = np.array([left, 1.0])
    rows = effect(tau, end) - E * later[:, None] * speed
    free = later * E * GRAVITY * tau + np.array([-GRAVITY * left**2 / 2, -GRAVITY * left])
    cost, u = least_cost(rows, TARGET - free, (height, GRAVITY * tau**2 / 2 - START[0]))
    return cost, u, speed @ u - GRAVITY * tau


@pytest.mark.medium
def test_closed_forms_have_the_published_costs():
    """With all 251 controls acting; the bounce is best at a grid time, 175 steps of 0.004 s, where the cost has a kink."""
    assert_allclose(no_bounce()[0], 6.328393, atol=5e-7)
    cost, _, v = one_bounce(0.7)
    # The published digits.
    assert_allclose(cost, 2.142216895, atol=5e-10)
    assert_allclose(v, -9.1198855, atol=5e-8)
    # One-sided derivatives by the bounce's time, with the error of one-sided differences, 1e-7 of them.
    h = 1e-7
    before, after = (one_bounce(0.7)[0] - one_bounce(0.7 - h)[0]) / h, (one_bounce(0.7 + h)[0] - one_bounce(0.7)[0]) / h
    assert before < 0 < after
    assert np.argmin([one_bounce(tau)[0] for tau in TIMES[100:240:5]]) == 15


@pytest.fixture(scope="module")
def hovering():
    return solve_ball(-GRAVITY)


@pytest.fixture(scope="module")
def stalled():
    """From the authors' guess, a force of 100 N downward."""
    return solve_ball(100.0, hold=False)


@pytest.fixture(scope="module")
def held():
    """From free fall."""
    return solve_ball(0.0)


@pytest.mark.medium
def test_without_events_one_iteration_is_least_squares(hovering):
    cost, u = no_bounce()
    assert hovering.result == RESULTS.successful and int(hovering.events) == 0
    # Linear dynamics and quadratic costs: exact but for rounding.
    assert_allclose(hovering.history.cost[1], cost, rtol=1e-10)
    assert_allclose(hovering.controls[:, 0], -u, rtol=0, atol=1e-8)
    assert_allclose(hovering.gradient, 0, atol=1e-9)


@pytest.mark.medium
def test_the_optimum_at_the_kink(held):
    best, u, v = one_bounce(0.7)
    assert held.result == RESULTS.successful and int(held.events) == 1
    # The weight that holds the event leaves it off by 1e-11 s, where the cost's slope is 10 per second.
    assert_allclose(held.cost, best, rtol=1e-9)
    assert_allclose(held.event_times, 0.7, atol=1e-9)
    assert_allclose(held.arcs.x_ends[0, 1], v, rtol=1e-4)
    # The cost is quadratic along the kink: by its tolerance of 1e-10, with second derivatives of 2 R and more.
    assert_allclose(held.controls[:, 0], -u, atol=0.05)
    assert held.gradient.shape == (STEPS, 1) and "events at 0.7" in str(held)


@pytest.mark.medium
def test_from_the_authors_guess(stalled):
    """A force of 100 N downward; their saved answer costs 2.212670. The sequence changes from three bounces to one, and the cost
    falls. Without held directions the search stalls near the kink at 0.7; with them it ends at the least cost of the kink at
    0.704, one of those at each grid time."""
    ended = solve_ball(100.0)
    for found in (stalled, ended):
        assert int(found.history.events[0]) == 3 and int(found.events) == 1
        cost = np.asarray(found.history.cost[: int(found.iterations) + 1])
        assert np.all(np.diff(cost) < 0) and np.all(np.isfinite(cost))
        assert np.all(np.isnan(found.history.cost[len(cost) :]))
    # The model promises a decrease that no step has.
    assert stalled.result == RESULTS.stalled and one_bounce(0.7)[0] + 1e-5 < stalled.cost < 2.212670
    assert_allclose(stalled.event_times, 0.7, atol=1e-4)
    assert ended.result == RESULTS.successful
    assert_allclose(ended.cost, one_bounce(0.704)[0], rtol=1e-8)
    assert "from iteration   0: cost 342.8300871, flight x 4" in str(ended)


@pytest.mark.medium
def test_the_cost_falls_toward_the_kink_from_both_sides(stalled):
    """Where the search stalls, the bounce is 5e-7 s from the grid time. A force that is 1e-5 N smaller all the time delays it by
    3e-7 s. The slope before the grid time is that of the gradient, the slope after it has the other sign."""
    cost = lambda change: solve_ball(stalled.controls + change, tolerance=0.99).history.cost[0]
    slope = lambda change: (cost(change + 1e-6) - cost(change - 1e-6)) / 2e-6
    assert -1e-6 < stalled.event_times[0] - 0.7 < -3e-7
    # Roundings of 1e-15 over the step.
    assert_allclose(slope(0.0), jnp.sum(stalled.gradient), rtol=1e-6, atol=1e-8)
    assert slope(0.0) * slope(-4e-5) < 0


def test_gradient_of_a_linear_model():
    """The adjoint equation, with costs of the states of all steps, against the derivative of their sum along the motion."""
    random = np.random.default_rng(0)
    move, slope, end_slope = (jnp.asarray(random.normal(size=shape)) for shape in ((5, 3, 5), (5, 5), (3,)))
    none, square = jnp.zeros(5), jnp.zeros((5, 5, 5))
    model = QuadraticModel(move, slope, square, end_slope, jnp.zeros((3, 3)), jnp.zeros((5, 5)), none, none, none)

    def cost(controls):
        x, total = jnp.zeros(3), jnp.zeros(())
        for k, u in enumerate(controls):
            v = jnp.concatenate([x, u])
            x, total = move[k] @ v, total + slope[k] @ v
        return total + end_slope @ x

    assert_allclose(control_gradient(model), jax.grad(cost)(jnp.zeros((5, 2))), rtol=1e-12, atol=1e-12)


@pytest.mark.medium
def test_directions_of_a_quadratic_model():
    """Five steps of three coordinates and two controls: the least of the model over all ten numbers at once, where events are
    held too; the feedback, from another first state; and damped steps."""
    random = np.random.default_rng(1)
    draw = lambda *shape: jnp.asarray(random.normal(size=shape))
    root, end_root = draw(5, 5, 5), draw(3, 3)
    move, slope, end_slope, event_slope, off = draw(5, 3, 5), draw(5, 5), draw(3), draw(5, 5), draw(5)
    bend, end_bend, hold = root @ jnp.swapaxes(root, 1, 2), end_root @ end_root.T, jnp.full(5, 3.0)
    model = QuadraticModel(move, slope, bend, end_slope, end_bend, event_slope, off, jnp.zeros(5), hold)

    def run(controls, x, held, shift):
        total = weighted = jnp.zeros(())
        events = []
        for k, u in enumerate(controls.reshape(5, 2)):
            v = jnp.concatenate([x, u])
            events.append(off[k] + event_slope[k] @ v)
            total = total + slope[k] @ v + v @ bend[k] @ v / 2
            weighted = weighted + jnp.where(held[k], hold[k], 0) * (events[k] - shift[k]) ** 2
            x = move[k] @ v
        return total + weighted + end_slope @ x + x @ end_bend @ x / 2, (
            total + end_slope @ x + x @ end_bend @ x / 2,
            jnp.stack(events),
        )

    none, zero = jnp.zeros(5, bool), jnp.zeros(())
    start, at = jnp.zeros(3), jnp.zeros(10)
    for held, shift in ((none, jnp.zeros(5)), (jnp.array([False, True, False, True, False]), draw(5))):
        cost, parts = (lambda u, x, i=i, held=held, shift=shift: run(u, x, held, shift)[i] for i in (0, 1))
        policy, falls, event_off = direction(model, zero, held, jnp.array(True), shift)
        hessian, gradient = jax.hessian(cost)(at, start), jax.grad(cost)(at, start)
        best = np.linalg.solve(hessian, -gradient)
        assert_allclose(policy.predicted.ravel(), best, rtol=1e-9, atol=1e-10)
        own, _ = jax.grad(parts, has_aux=True)(at, start)
        assert_allclose(falls, own @ best, rtol=1e-9)
        assert_allclose(event_off, parts(jnp.asarray(best), start)[1], rtol=1e-8, atol=1e-9)
        # From another state the least is that of the policy: by the first control.
        other = draw(3)
        moved = np.linalg.solve(hessian, -jax.grad(cost)(at, other))
        assert_allclose(policy.feedforward[0] + policy.gain[0] @ other, moved[:2], rtol=1e-8, atol=1e-9)
    # Damped: each step is that of its own model, of which the later steps are those of the policy.
    damping = 2.0
    policy, *_ = direction(model, jnp.array(damping), none, jnp.array(True), jnp.zeros(5))

    def from_step(k, x, u):
        v = jnp.concatenate([x, u])
        after = move[k] @ v
        last = end_slope @ after + after @ end_bend @ after / 2
        left = last if k == 4 else from_step(k + 1, after, policy.feedforward[k + 1] + policy.gain[k + 1] @ after)
        return slope[k] @ v + v @ bend[k] @ v / 2 + left

    for k in range(5):
        by_u = jax.grad(from_step, argnums=2)
        at_k = k, start, jnp.zeros(2)
        curvature = np.asarray(jax.jacfwd(by_u, argnums=2)(*at_k))
        damped = curvature + damping * np.diag(np.diag(curvature))
        assert_allclose(policy.feedforward[k], -np.linalg.solve(damped, by_u(*at_k)), rtol=1e-9)
        assert_allclose(
            policy.gain[k], -np.linalg.solve(damped, jax.jacfwd(by_u, argnums=1)(*at_k)), rtol=1e-9, atol=1e-12
        )


def test_models_are_convex():
    """Where second derivatives are not semidefinite, rows are raised until the diagonal dominates."""
    assert_allclose(_convex(jnp.array([[0.0, 1.0], [1.0, 0.0]])), [[1, 1], [1, 1]])
    assert_allclose(_convex(jnp.array([[2.0, 1.0], [1.0, -3.0]])), [[2, 1], [1, 1]])
    for sound in ([[1.0, 2.0], [2.0, 4.0]], [[2.0, -1.0], [-1.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]]):
        assert_allclose(_convex(jnp.array(sound)), sound, rtol=0)


def test_which_event_is_released():
    """Of the events that the cost pulls to the side on which they are, that with the largest multiplier."""
    none = jnp.zeros(4)
    square = jnp.zeros((4, 2, 2))
    model = QuadraticModel(
        square[:, :1], jnp.zeros((4, 2)), square, jnp.zeros(1), jnp.zeros((1, 1)), jnp.zeros((4, 2)),
        jnp.array([1e-3, -1e-3, 1e-3, -1e-3]), none, jnp.array([1.0, 1.0, 5.0, 1.0]),
    )  # fmt: skip
    of = lambda held, off: released(model, jnp.array(held), jnp.array(off)).tolist()
    assert of([True] * 4, [2.0, -3.0, 1.0, 9.0]) == [True, True, False, True]
    assert of([True, True, False, True], [2.0, -3.0, 1.0, 9.0]) == [True, False, False, True]
    assert of([True] * 4, [-2.0, 3.0, -1.0, 9.0]) == [True] * 4


# Two modes of different dimension, whose flow, guards and resets depend on time, with two controls.
GRID = jnp.linspace(0.0, 4.0, 17)
EXACT = hj.Integrator(rtol=1e-13, atol=1e-13, unroll=False)
WEIGHTS = {"two": np.array([1.0, 0.5]), "three": np.array([1.0, 0.2, 0.3])}


COSTS = {
    "stage_cost": {
        name: lambda t, x, u, p, w=w: 0.1 * jnp.sum(w * x**2) + 2000 * jnp.sum(u**2) + 1000 * u[0] * u[1]
        for name, w in WEIGHTS.items()
    },
    "terminal_cost": {name: lambda t, x, p, w=w: 2 * jnp.sum(w * (x - 0.5) ** 2) for name, w in WEIGHTS.items()},
    "where": lambda p: (p["push"], p["pull"]),
}


def solve_pushed(decay=0.7, **options):
    params = QUIET | {"decay": jnp.asarray(decay)}
    return hj.control.ilqr(
        PUSHED,
        jnp.array([0.2, 1.0]),
        params,
        mode="two",
        times=GRID,
        max_jumps=6,
        integrator=EXACT,
        **COSTS,
        **options,
    )


@pytest.mark.slow
def test_gradient_through_events():
    """Of a search that ends early, in some random directions, against central differences of the costs of guesses; and of the
    optimum by a parameter, against the difference of optima: the envelope theorem. Modes of different dimension, whose flow,
    guards and resets depend on time."""
    begun, optimal = solve_pushed(tolerance=0.3), solve_pushed()
    assert int(begun.events) >= 2 and int(begun.iterations) < int(optimal.iterations)
    h = 1e-5
    for move in jax.random.normal(jax.random.key(0), (4, *begun.controls.shape)):
        ends = [solve_pushed(controls=begun.controls + s * move, tolerance=0.99).history.cost[0] for s in (h, -h)]
        # Differences have an error of h^2 of third derivatives, and roundings of 1e-13 over h.
        assert_allclose(jnp.sum(begun.gradient * move), (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-7)
    assert optimal.result == RESULTS.successful and optimal.cost < begun.cost
    assert len(set(np.asarray(optimal.modes).tolist())) == 2
    # A decrement of 1e-9 of a cost of 800, with second derivatives of 4000: its root is 0.06. At first the gradient is above 100.
    assert np.max(np.abs(optimal.gradient)) < 0.06
    slope = jax.jit(jax.grad(lambda decay: solve_pushed(decay).cost))(jnp.array(0.7))
    beside = [solve_pushed(decay).cost for decay in (0.7 + 1e-3, 0.7 - 1e-3)]
    # The difference has an error of the step's square.
    assert_allclose(slope, (beside[0] - beside[1]) / 2e-3, rtol=1e-4)


@pytest.mark.medium
def test_feedback_about_the_optimum(held):
    """Dropped from 2 cm higher or lower the ball bounces late or early; the closed loop costs less than the open loop."""
    starts = jnp.array([[4.02, 0.0], [3.98, 0.0]])
    closed = jax.vmap(held.track)(starts)
    blind = jax.vmap(eqx.tree_at(lambda s: s.gains, held, 0 * held.gains).track)(starts)
    assert np.all(closed.events == 1) and np.all(closed.cost < blind.cost)
    assert blind.arcs.end_times[1, 0] < 0.7 < blind.arcs.end_times[0, 0]


def test_picture(held):
    figure = held.plot()
    height, _, control, history = figure.axes
    assert len([line for line in height.lines if line.get_gid() == "jump"]) == 1
    assert_allclose(control.patches[0].get_data().values, held.controls[:, 0])
    assert history.get_xlabel() == "iteration"
    with pytest.raises(ValueError, match="batch"):
        jax.tree.map(lambda leaf: leaf[None], held).plot()


# x' = u in four steps of 1/4: two wells of the final cost, or one whose least cost is zero.
PUSH = hj.HybridSystem({"moves": hj.Mode(lambda t, x, p: x * 0 + p["u"], ("x",))}, ())


def final_cost(t, x, p):
    return p["wells"] * (x[0] ** 2 - 1) ** 2 + p["one"] * (x[0] - 1) ** 2 + p["flat"] * (x[0] - 1) ** 4


@pytest.mark.medium
def test_wells_and_a_least_cost_of_zero():
    """With u equal in all steps, x(1) = u: the cost is r u^2 + (u^2 - 1)^2, least at u^2 = 1 - r / 2; or (u - 1)^2; or
    (u - 1)^4, which a step makes (2/3)^4 of what it was, and of which 2/3 is expected of the next."""
    r = 0.1

    @jax.jit
    @jax.vmap
    def solved(params, guess):
        return hj.control.ilqr(
            PUSH, jnp.zeros(1), params, mode="moves", times=jnp.linspace(0.0, 1.0, 5), where=lambda p: p["u"],
            stage_cost=lambda t, x, u, p: p["r"] * jnp.sum(u**2) / 4, terminal_cost=final_cost,
            controls=guess * jnp.ones((4, 1)), integrator=hj.Integrator(dfx.Bosh3(), rtol=1e-9, atol=1e-9, unroll=False),
            throw=False,
        )  # fmt: skip

    # Of a cost of zero nothing but rounding may be left.
    zeros, tiny, more = np.zeros(9), 1e-12, [0.0] * 6
    params = {
        "u": zeros, "wells": [1.0, 1.0, 1.0, *more], "one": [0.0, 0.0, 0.0, 1.0, tiny, 1.0, 1.0, 1.0, 0.0],
        "flat": [*[0.0] * 8, 1.0], "r": [r, r, r, *more],
    }  # fmt: skip
    found = solved(
        jax.tree.map(jnp.asarray, params, is_leaf=lambda leaf: isinstance(leaf, list)),
        jnp.array([0.0, 0.3, -0.3, 0.0, 0.0, 0.1, -0.37, 5.3, 0.0]),
    )
    # At the top the gradient is zero, and the cost falls to both sides.
    assert np.asarray(found.result == RESULTS.optimum_not_found)[0] and float(found.cost[0]) == 1
    assert np.all(np.asarray(found.result == RESULTS.successful)[1:])
    least = np.sqrt(1 - r / 2)
    assert_allclose(found.controls[1:3, :, 0], np.outer([least, -least], np.ones(4)), rtol=1e-4)
    # The decrease that is left is 1e-9 of what the cost has fallen by.
    assert_allclose(found.cost[1:3], r * least**2 + (least**2 - 1) ** 2, rtol=1e-8)
    assert_allclose(np.mean(found.controls[3:8, :, 0], axis=1), 1, rtol=1e-4)
    assert np.all(np.asarray(found.cost[3:8]) <= 1e-8 * np.array([1, tiny, 1, 1, 1]))
    # The first cost of which 2/3 is less than 1e-9.
    assert_allclose(found.cost[8], (2 / 3) ** (4 * 13), rtol=1e-6)


@pytest.mark.medium
def test_failure_and_misuse():
    def ask(message, **changes):
        options = {
            "mode": "flight", "times": jnp.linspace(0, 1, 5), "where": lambda p: p.gravity,
            "stage_cost": lambda t, x, u, p: u @ u, "terminal_cost": lambda t, x, p: x @ x,
        }  # fmt: skip
        with pytest.raises(ValueError, match=message):
            hj.control.ilqr(bouncing_ball.system, jnp.array([1.0, 0.0]), bouncing_ball.Params(), **options | changes)

    ask(r"times\[2\] is 0.1", times=jnp.array([0.0, 0.2, 0.1]))
    ask(r"times of shape \(1,\) must have shape \(steps \+ 1,\)", times=jnp.zeros(1))
    ask(r"controls of shape \(5, 1\) must have shape \(4, 1\)", controls=jnp.zeros((5, 1)))
    ask(r"controls\[1\] = \[nan\] is not finite", controls=jnp.zeros((4, 1)).at[1].set(jnp.nan))
    ask("stage_cost returns shape \\(2,\\) in mode 'flight'", stage_cost=lambda t, x, u, p: x)
    ask("terminal_cost has no function for the modes \\['flight'\\]", terminal_cost={})
    ask("'rest' is not one of the modes", terminal_cost={"rest": lambda t, x, p: x @ x})
    ask("where must pick scalar leaves", where=lambda p: None)
    ask("max_iterations=0 must be an integer of at least 1", max_iterations=0)
    ask("max_jumps=-1 must be an integer of at least 0", max_jumps=-1)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        ask("terminal_cost of mode 'flight' must be a function, not 3", terminal_cost=3)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    ask("tolerance=2.0 must lie between 0 and 1", tolerance=2.0)
