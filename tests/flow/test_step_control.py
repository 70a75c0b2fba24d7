"""Steps of a fixed length, and controllers of another making: orders of convergence, discretised closed forms, failures."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case
from systems import leave, oscillate

import hyjax as hj
from hyjax._testing import integral_control
from hyjax.models import bouncing_ball, rimless_wheel

RESULTS = hj.RESULTS
FIXED = dfx.ConstantStepSize()


class Kutta(dfx.AbstractERK):
    """The classical method of fourth order, which has no error estimate: a solver of the user's own."""

    tableau = dfx.ButcherTableau(
        a_lower=(np.array([1 / 2]), np.array([0, 1 / 2]), np.array([0, 0, 1.0])),
        b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        b_error=np.zeros(4),
        c=np.array([1 / 2, 1 / 2, 1]),
    )
    term_structure = dfx.AbstractTerm
    interpolation_cls = dfx.LocalLinearInterpolation

    def order(self, terms):
        return 4


# Stages of a step are a loop in all of these: compilation is what takes time here.


def fixed(solver, step=0.1, **limits) -> hj.Integrator:
    return hj.Integrator(solver, controller=FIXED, first_step=step, unroll=False, **limits)


def with_step(integrator: hj.Integrator, step) -> hj.Integrator:
    """The integrator with another, traced, step: one program for all."""
    return eqx.tree_at(lambda i: i.first_step, integrator, step)


# x'' = -x from (1, 0) to x = q: T = arccos q.
cosine = leave(oscillate, 2, lambda t, x, q: x[0] - q)

ORDERS = {
    "Euler": (dfx.Euler(), 1),
    "Bosh3": (dfx.Bosh3(), 3),
    "Kutta": (Kutta(), 4),
    "half steps of Euler": (dfx.HalfSolver(dfx.Euler()), 1),
    "ImplicitEuler": (dfx.ImplicitEuler(), 1),
    "Kvaerno4": (dfx.Kvaerno4(), 4),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", ORDERS)
def test_order_of_the_event_and_of_its_derivatives(name):
    """Halve the step: the error of the time of an event inside a step falls by 2 to the solver's order, as do derivatives."""
    solver, order = ORDERS[name]
    integrator, q = fixed(solver), 0.31

    @jax.jit
    @jax.vmap
    def at(step):
        def time(q):
            start = jnp.array([1.0, 0.0])
            met = hj.flow_to_guard(cosine, "free", 0.0, start, q, integrator=with_step(integrator, step))
            return met.t, met.x[0] - q

        value = jax.value_and_grad(time, has_aux=True)
        ((t, guard), slope), (_, second) = jax.jvp(value, (jnp.asarray(q),), (jnp.ones(()),))
        return t, slope, second, guard

    steps = 0.1 / 2.0 ** np.arange(3)
    t, slope, second, guard = at(jnp.asarray(steps))
    assert np.max(np.abs(guard)) <= 1e-14
    exact = np.arccos(q), -((1 - q**2) ** -0.5), -q * (1 - q**2) ** -1.5
    for got, expected in zip((t, slope, second), exact, strict=True):
        error = np.abs(got - expected)
        # What remains of the next order at this step; some converge faster than they must.
        assert np.all(np.log2(error[:-1] / error[1:]) > order - 0.2), error
    # The discretised flow is another one: no method of so low an order could be that close.
    assert np.abs(t - exact[0])[0] > 1e-3**order


def fall(t, x, gravity):
    return jnp.stack([x[1], -gravity])


ball = leave(fall, 2, lambda t, x, gravity: x[0])


def euler_falls(y, gravity, h):
    """When Euler's method, in steps h from rest at height y, passes zero; and in how many steps: by its own recursion."""
    t, v, n = 0.0, 0.0, 1
    while y + h * v > 0:
        y, v, t, n = y + h * v, v - h * gravity, t + h, n + 1
    return t - y / v, n


@pytest.mark.medium
def test_event_inside_a_step_is_that_of_the_discretised_flow():
    """Not on the tangent of the exact flow, from which an Euler step is far."""
    heights, h = np.linspace(0.5, 3, 100), 0.1
    start = lambda y: jnp.stack([y, jnp.zeros(())])
    land = lambda y: hj.flow_to_guard(ball, "free", 0.0, start(y), jnp.array(1.0), integrator=fixed(dfx.Euler(), h))
    met = jax.jit(jax.vmap(land))(jnp.asarray(heights))
    times, steps = np.array([euler_falls(y, 1.0, h) for y in heights]).T
    # Some twenty steps, each rounded once or twice.
    assert_allclose(met.t, times, rtol=2e-15)
    assert np.max(np.abs(met.x[:, 0])) <= 1e-14
    # To the event in steps of h, and then some tries to its end.
    assert np.all((met.steps >= steps) & (met.steps < steps + 20))


@pytest.mark.medium
def test_a_turn_odd_about_the_middle_of_a_step_is_noticed():
    """sin(2 pi t)^3 is zero with rate zero at both ends of a step from 0 to 1, and zero in the middle."""
    odd = leave(lambda t, x, p: jnp.ones(1), 1, lambda t, x, p: 0.5 + jnp.sin(2 * jnp.pi * t) ** 3)
    met = hj.flow_to_guard(odd, "free", 0.0, jnp.zeros(1), None, integrator=fixed(dfx.Heun(), 1.0))
    assert_allclose(met.t, 0.5 + np.arcsin(0.5 ** (1 / 3)) / (2 * np.pi), rtol=1e-14)


@pytest.mark.parametrize("roots", [(0.3, 0.5, 1.1), (0.6, 0.7, 0.95)], ids=["a dip", "two falls"])
def test_a_fall_and_rise_within_a_step_is_noticed(roots):
    """A cubic that falls, rises and falls at its roots, in one step from 0 to 1: it is positive at both ends, or Newton's method
    would lead to the second fall."""
    a, b, c = roots
    winding = leave(lambda t, x, p: jnp.ones(1), 1, lambda t, x, p: -(t - a) * (t - b) * (t - c))
    met = hj.flow_to_guard(winding, "free", 0.0, jnp.zeros(1), None, integrator=fixed(dfx.Heun(), 1.0))
    assert_allclose(met.t, a, rtol=1e-14)


@pytest.mark.medium
def test_all_steps_are_equal_but_the_last():
    """Ten full steps and a third of one: the flow of a linear field is a power of the method's polynomial."""
    field = lambda t, x, p: -x
    system = leave(field, 1, lambda t, x, p: jnp.ones(()))
    h, end = 0.3, 10 * 0.3 + 0.1
    run = lambda: hj.simulate(system, jnp.ones(1), None, mode="free", t1=end, integrator=fixed(Kutta(), h))
    polynomial = lambda h: 1 - h + h**2 / 2 - h**3 / 6 + h**4 / 24
    assert_allclose(run().x[0], polynomial(h) ** 10 * polynomial(0.1), rtol=1e-14)
    assert run().t == end


@pytest.mark.medium
def test_simulation_in_fixed_steps():
    """Heun's method follows a parabola exactly: impacts at the ball's own times, in whatever step they fall."""
    params = bouncing_ball.Params(restitution=0.8, gravity=9.81)
    run = lambda h0: hj.simulate(
        bouncing_ball.system,
        jnp.stack([h0, jnp.zeros(())]),
        params,
        mode="flight",
        t1=2.0,
        integrator=fixed(dfx.Heun(), 0.07),
    )
    trajectory = jax.jit(jax.vmap(run))(jnp.array([0.5, 1.0, 2.0]))
    for k, height in enumerate((0.5, 1.0, 2.0)):
        first = np.sqrt(2 * height / 9.81)
        hops = first * np.cumsum([1, *(2 * 0.8 ** np.arange(1, 9))])
        hops = hops[hops < 2]
        assert_allclose(trajectory.end_times[k, : len(hops)], hops, rtol=1e-14)
        assert trajectory.jumps[k] == len(hops)


@pytest.mark.medium
def test_orbit_in_fixed_steps():
    """An orbit of the discretised flow: it closes to rounding, and lies off the true one by the method's error."""
    params, exact = rimless_wheel.Params(), case("A_rimless_wheel")
    coarse = hj.periodic_orbit(
        hj.ReturnMap(rimless_wheel.system, sequence=rimless_wheel.sequence, integrator=fixed(Kutta(), 0.05)),
        rimless_wheel.guess(params),
        params,
    )
    assert coarse.residual < 1e-12
    # A local error of h^5 / 120, over twenty steps.
    assert 1e-11 < np.max(np.abs(coarse.x - exact["x0"])) < 1e-6
    assert_allclose(coarse.multipliers, exact["eigenvalues"][::-1], rtol=0, atol=1e-5)


# Failures


def test_a_fixed_step_that_fails_ends_its_lane():
    """x' = x^2 reaches infinity: Euler's numbers overflow. The lane beside it is what it is alone."""
    blow = leave(lambda t, x, p: x**2, 1, lambda t, x, p: 10 - t)
    run = jax.jit(
        jax.vmap(
            lambda x: hj.flow_to_guard(blow, "free", 0.0, x, None, integrator=fixed(dfx.Euler(), 0.1), throw=False)
        )
    )
    met = run(jnp.array([[-1.0], [1e3]]))
    assert (met.result == RESULTS.successful)[0] and (met.result == RESULTS.nonfinite)[1]
    assert met.steps[1] < 20
    assert np.array_equal(met.x[0], run(jnp.array([[-1.0], [-1.0]])).x[0])


@pytest.mark.medium
def test_implicit_equations_without_a_solution():
    """z = x + h z^2 has no real root where 4 h x > 1."""
    blow = leave(lambda t, x, p: x**2, 1, lambda t, x, p: 10 - t)
    run = jax.jit(
        jax.vmap(
            lambda x: hj.flow_to_guard(
                blow, "free", 0.0, x, None, integrator=fixed(dfx.ImplicitEuler(), 0.1), throw=False
            )
        )
    )
    met = run(jnp.array([[-1.0], [3.0]]))
    assert (met.result == RESULTS.successful)[0] and (met.result == RESULTS.nonlinear_divergence)[1]


# Controllers with tolerances


def turn(**making):
    """x'' = -x from (1, 0) to x = 0.31, after the first try of a step that the arc's first one is."""
    return hj.flow_to_guard(
        cosine,
        "free",
        0.0,
        jnp.array([1.0, 0.0]),
        jnp.array(0.31),
        integrator=hj.Integrator(**making, unroll=False),
        throw=False,
    )


def test_the_default_controller_given_by_hand():
    """The same steps up to the rounding of their lengths."""
    mine, given = turn(rtol=1e-9, atol=1e-10), turn(controller=dfx.PIDController(rtol=1e-9, atol=1e-10))
    assert mine.steps == given.steps
    assert_allclose(mine.x, given.x, rtol=0, atol=2e-15)
    assert_allclose(mine.t, given.t, rtol=2e-15)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("order", [2, 5, 8])
def test_steps_of_any_error_are_those_of_diffrax(order, dtype):
    """Errors from far below the tolerance to far above, at the bounds of the factor, and none. In float32 the square of the
    largest error overflows to infinity, which is beyond the bound too."""
    errors = np.concatenate([[0.0, np.nan, np.inf], 10.0 ** np.arange(-30, 31), 1e-6 * np.linspace(0.99, 1.01, 8)])
    x, x1, dt = jnp.array([0.7, -0.2, 0.0], dtype), jnp.array([0.1, -0.3, 0.0], dtype), jnp.asarray(0.37, dtype)
    theirs = dfx.PIDController(rtol=1e-6, atol=1e-6)
    for each in errors:
        error = jnp.array([each, -0.3 * each, 0.1 * each], dtype)
        keep, h = integral_control(dt, x, x1, error, (1e-6, 1e-6), order)
        state = jnp.asarray(1.0, dtype), jnp.asarray(1.0, dtype), False
        accepted, start, end, *_ = theirs.adapt_step_size(0 * dt, dt, x, x1, None, error, order, state)
        assert keep == accepted and h.dtype == dtype
        if not np.isnan(each):
            assert_allclose(h, end - start, rtol=1e-14 if dtype == jnp.float64 else 1e-6)
        else:
            assert_allclose(h, 0.2 * dt, rtol=1e-15 if dtype == jnp.float64 else 1e-7)


@pytest.mark.medium
def test_what_a_controller_brings():
    plain = turn(rtol=1e-12, atol=1e-12)
    bring = lambda **options: turn(controller=dfx.PIDController(rtol=1e-12, atol=1e-12, **options))
    # The other gains choose other steps, to the same tolerance.
    gentle = bring(pcoeff=0.3, icoeff=0.3)
    assert gentle.t != plain.t
    assert_allclose(gentle.t, np.arccos(0.31), rtol=1e-11)
    # A largest step of its own, or of the integrator's: the smaller holds.
    assert bring(dtmax=0.05).steps >= np.arccos(0.31) / 0.05
    assert turn(controller=dfx.PIDController(rtol=1e-12, atol=1e-12, dtmax=0.5), max_step=0.05).steps >= 25
    # A least step, which is kept whatever its error; or at which the arc ends.
    assert bring(dtmin=0.3, force_dtmin=True).steps < plain.steps
    assert bring(dtmin=0.3, force_dtmin=False).result == RESULTS.dt_min_reached


def test_first_step():
    """A first step that the tolerance allows is taken as it is: the event lies in it."""
    assert turn(first_step=1.5, rtol=1e-3, atol=1e-3).steps < turn(first_step=1e-3, rtol=1e-3, atol=1e-3).steps
    assert_allclose(turn(first_step=1e-3).t, np.arccos(0.31), rtol=1e-14)


class Untold(dfx.AbstractStepSizeController):
    """A controller that neither has tolerances nor keeps the step."""

    def wrap(self, direction):
        return self

    def init(self, *state):
        raise AssertionError

    def adapt_step_size(self, *state):
        raise AssertionError


@pytest.mark.parametrize(
    "making, message",
    [
        (dict(solver=dfx.Euler()), "no error estimate"),
        (dict(solver=dfx.Euler(), controller=FIXED), "needs the length of its steps"),
        (dict(controller=FIXED, first_step=-0.1), "first_step=-0.1 must be positive"),
        (dict(controller=FIXED, first_step=0.1, max_step=0.05), "longer than max_step=0.05"),
        (dict(controller=dfx.PIDController(rtol=1e-6, atol=1e-6), rtol=1e-6), "Omit rtol and atol"),
        (dict(controller=dfx.StepTo(jnp.array([0.0, 1.0]))), "StepTo fixes times"),
        (dict(controller=dfx.PIDController(rtol=1e-6, atol=1e-6, jump_ts=jnp.ones(1))), "transition with the guard"),
        (dict(controller=Untold()), "another controller with tolerances"),
        (dict(solver=dfx.KenCarp4()), "several terms"),
        (dict(solver=dfx.SemiImplicitEuler(), controller=FIXED, first_step=0.1), "several terms"),
        (dict(solver=dfx.LeapfrogMidpoint(), controller=FIXED, first_step=0.1), "one-step method"),
        (dict(solver=dfx.Kvaerno5(root_finder=dfx.VeryChord(rtol=1e-8, atol=1e-8))), "given a root finder"),
        (dict(solver=dfx.HalfSolver(dfx.Kvaerno3())), "not wrapped in another solver"),
    ],
)
def test_what_cannot_be_integrated(making, message):
    with pytest.raises(ValueError, match=message):
        hj.Integrator(**making)
