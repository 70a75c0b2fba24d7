"""Solvers that diffrax does not have: order, error estimate, restart, derivatives, events, and published stiff problems."""

import itertools

import diffrax as dfx
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import optimistix as optx
import pytest
from numpy.testing import assert_allclose
from systems import leave

import hyjax as hj
from hyjax._testing import AdamsPECE, DividedDifferences, KAPPA, NDF

S = hj.solvers
# diffrax solves the stages of TR-BDF2 itself, and with steps of fixed length asks for tolerances.
SETTLED = S.TRBDF2(root_finder=optx.Newton(rtol=1e-12, atol=1e-12))
# Solver, order, order of the error estimate, and the number of steps in a unit of time from which the orders are measured: at 64
# the error of a single step of Radau5 would be rounding.
ONE_STEP = {
    "Rosenbrock23": (S.Rosenbrock23(), 2, 3, 32),
    "TRBDF2": (SETTLED, 2, 3, 32),
    "Trapezoidal": (S.Trapezoidal(), 2, 3, 32),
    "Rodas5P": (S.Rodas5P(), 5, 5, 32),
    "Radau5": (S.Radau5(), 5, 4, 16),
}
ALL = {name: solver for name, (solver, *_) in ONE_STEP.items()} | {
    "TRBDF2": S.TRBDF2(), "NDF": S.NDF(), "AdamsPECE": S.AdamsPECE()
}  # fmt: skip


# One of each kind: implicit and explicit multistep formulas, a Rosenbrock and an implicit Runge-Kutta method.
KINDS = ("NDF", "AdamsPECE", "Rodas5P", "Radau5")


# (cos t, sin t, 1 / (1 + t^2)): nonlinear, coupled and with the time in it.


def turning(t, x, args):
    u, v, w = x
    off = t * (1 - u**2 - v**2)
    return jnp.stack([-v + off * u, u + off * w, -2 * t * w**2 + u**2 + v**2 - 1])


def turned(t):
    return jnp.stack([jnp.cos(t), jnp.sin(t), 1 / (1 + t**2)])


TURNING = dfx.ODETerm(turning)
size = lambda x: jnp.max(jnp.abs(x))


@pytest.mark.medium
@pytest.mark.parametrize("name", ONE_STEP)
def test_order_of_a_one_step_method(name):
    """The error at the end of a unit of time falls with the order; the error of one step, and its estimate, with one more."""
    solver, order, estimate, count = ONE_STEP[name]

    def errors(h):
        t = jnp.array(0.3)
        memory = solver.init(TURNING, t, t + h, turned(t), None)
        x, error, *_ = solver.step(TURNING, t, t + h, turned(t), None, memory, False)
        fixed = dict(stepsize_controller=dfx.ConstantStepSize(), max_steps=128)
        ys = dfx.diffeqsolve(TURNING, solver, jnp.array(0.0), jnp.array(1.0), h, turned(0.0), **fixed).ys
        assert ys is not None
        return jnp.stack([size(x - turned(t + h)), size(error), size(ys[-1] - turned(1.0))])

    coarse, fine = jax.jit(jax.vmap(errors))(1 / jnp.array([1.0 * count, 2.0 * count]))
    # The next term of the expansions in h changes the exponents by some tenths.
    assert_allclose(np.log2(coarse / fine), [order + 1, estimate, order], atol=0.35)
    assert solver.order(TURNING) == order and solver.error_order(TURNING) == estimate


# Multistep formulas: exact for polynomials up to their order, through points at any distances. Of ((s + 11) / 12.3)^d all
# differences at these points are positive, so none is lost by cancellation.

POINTS = [0.0, 0.7, 1.9, 2.6, 3.2, 4.5, 5.1, 6.0, 7.3, 7.9, 8.8, 9.6, 10.9]
H, LENGTH = 1.3, 12.3


def behind(rows, degree, rate):
    """The divided differences of the polynomial, or of its derivative for `rate`, at the times -POINTS, by 30 digits."""
    with mp.workdps(30):
        base = lambda p: (11 - mp.mpf(p)) / mp.mpf(LENGTH)
        value = lambda p: degree * base(p) ** (degree - 1) / mp.mpf(LENGTH) if rate else base(p) ** degree
        column, found = [value(p) for p in POINTS[:rows]], []
        for m in range(rows):
            found.append(float(column[0]))
            gap = lambda i: mp.mpf(POINTS[i + m + 1]) - mp.mpf(POINTS[i])  # noqa: B023
            column = [(a - b) / gap(i) for i, (a, b) in enumerate(itertools.pairwise(column))]
        return np.array(found)


@pytest.mark.parametrize("solver", [NDF(), NDF(kappa=False), AdamsPECE()])
def test_multistep_formulas_are_exact_for_polynomials(solver):
    """One step from given points: exact up to the order; one degree above, the error and the estimate of that formula."""
    rate = isinstance(solver, AdamsPECE)
    rows = solver.highest + (1 if rate else 2)

    @jax.jit
    @jax.vmap
    @jax.vmap
    def step(order, degree, differences):
        lags = jnp.asarray(POINTS[: rows - 1])
        history = DividedDifferences(differences[:, None], lags, jnp.ones(()), jnp.array(rows - 1), order)
        polynomial = lambda s: ((s + 11) / LENGTH) ** degree
        field = lambda s, x: jax.jvp(polynomial, (s,), (jnp.ones_like(s),))[1][None]
        now = jnp.zeros(())
        x, _, error, _, solved, _ = solver.take(
            field, now, polynomial(now)[None], field(now, None), jnp.array(H), history
        )
        return x[0], error[0], solved

    orders, degrees = np.arange(1, solver.highest + 1), np.arange(1, solver.highest + 3)
    grid = np.meshgrid(orders, degrees, indexing="ij")
    known = np.broadcast_to(np.stack([behind(rows, int(d), rate) for d in degrees]), (*grid[0].shape, rows))
    x, error, solved = step(jnp.asarray(grid[0]), jnp.asarray(grid[1], float), jnp.asarray(known))
    # The polynomial is 1 at the end of the step.
    off, reached = np.asarray(x) - 1, grid[1] <= grid[0] + rate
    assert np.all(solved)
    assert_allclose(off[reached], 0, atol=1e-13)
    for i, k in enumerate(orders):
        if rate:
            # The estimate is the difference from the formula with one point less, of order k.
            assert_allclose(error[i, :k], 0, atol=1e-13)
            left = np.polynomial.polynomial.polyfromroots([H, *(-p for p in POINTS[: k - 1])])
            expected = (
                (k + 1)
                / LENGTH ** (k + 1)
                * np.polynomial.polynomial.polyval(H, np.polynomial.polynomial.polyint(left))
            )
            assert_allclose(error[i, k], expected, rtol=1e-9)
        else:
            # The predictor is off by the product of the distances; the solution by the defect, over the leading coefficient.
            lags = H + np.asarray(POINTS[: k + 1])
            alpha, kappa = np.sum(H / lags[:k]), KAPPA[k] * solver.kappa
            defect = (H / lags[-1] + kappa * alpha) * np.prod(lags) / LENGTH ** (k + 1)
            lead = (1 - kappa) * alpha
            assert_allclose(off[i, k], defect / lead, rtol=1e-9)
            assert_allclose(error[i, k], defect * (1 + (H / lags[-1] + kappa * alpha) / lead), rtol=1e-9)


@pytest.mark.parametrize("solver", [S.NDF(), S.AdamsPECE()])
def test_a_jump_restarts_a_multistep_method(solver):
    """After a jump the step is the first step of a start, of order 1, whatever came before."""
    t, h = jnp.array(0.0), jnp.array(0.1)
    step = jax.jit(lambda t, x, memory, jumped: solver.step(TURNING, t, t + h, x, None, memory, jumped)[::3])
    init = jax.jit(lambda t, x: solver.init(TURNING, t, t + h, x, None))
    x, memory = turned(t), init(t, turned(t))
    no, yes = jnp.array(False), jnp.array(True)
    for _ in range(4):
        x, memory = step(t, x, memory, no)
        t = t + h
    fresh = init(t, x)
    again, anew, on = (step(t, x, *each)[0] for each in ((memory, yes), (fresh, no), (memory, no)))
    assert_allclose(again, anew, rtol=0, atol=1e-15)
    assert memory[1].order > 1 and fresh[1].order == 1 and size(on - anew) > 1e-5


@pytest.mark.parametrize("solver", [S.Radau5(root_find_max_steps=1), S.NDF(root_find_max_steps=1)])
def test_a_step_that_is_not_solved_is_not_taken(solver):
    """One Newton iteration does not solve a nonlinear equation: the error estimate is infinite, and the result is its code."""
    t, h = jnp.array(0.0), jnp.array(0.5)
    memory = solver.init(TURNING, t, t + h, turned(t), None)
    _, error, *_, result = jax.jit(lambda x: solver.step(TURNING, t, t + h, x, None, memory, False))(turned(t))
    assert np.all(np.isinf(error)) and result == dfx.RESULTS.nonlinear_max_steps_reached


def test_an_order_that_does_not_exist_is_refused():
    for solver in (S.NDF, S.AdamsPECE):
        for highest in (0, 13):
            with pytest.raises(ValueError, match=f"highest={highest} must be an order from 1"):
                solver(highest=highest)


# At 1e-4 and at 1e-8 (1e-6 for order 2), about a third more than were taken when this was written.
STEPS = {
    "Rosenbrock23": [180, 830], "TRBDF2": [370, 400], "Trapezoidal": [120, 500], "Rodas5P": [80, 390], "Radau5": [40, 300],
    "NDF": [75, 270], "AdamsPECE": [120, 190],
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("name", ALL)
def test_error_follows_the_tolerance(name):
    """Ten units of time: the error stays near the tolerance, at a number of steps that only a right order and memory allow."""
    solver = ALL[name]
    high = name not in ("Rosenbrock23", "TRBDF2", "Trapezoidal")
    tolerances = np.array([1e-4, 1e-8 if high else 1e-6])

    @jax.jit
    @jax.vmap
    def run(tolerance):
        control = dfx.PIDController(rtol=tolerance, atol=tolerance)
        sol = dfx.diffeqsolve(
            TURNING, solver, 0.0, 10.0, None, turned(0.0), stepsize_controller=control, max_steps=4096
        )
        assert sol.ys is not None
        return size(sol.ys[-1] - turned(10.0)), sol.stats["num_accepted_steps"], sol.stats["num_rejected_steps"]

    error, taken, rejected = run(tolerances)
    # The errors of the steps add up: each is the tolerance, as a mean over three coordinates, and the flow lets it grow little.
    assert np.all(np.asarray(error) <= 3 * np.asarray(taken) * tolerances)
    assert np.all(np.asarray(taken + rejected) <= STEPS[name])


@pytest.mark.parametrize("solver", [S.Rodas5P(), S.AdamsPECE()])
def test_states_are_trees_and_time_may_run_backwards(solver):
    """a' = -a cos t from t = 2 back to 0, with b' = (a, 2 a) beside it, at five times between which steps are interpolated."""
    field = lambda t, y, args: {"a": -y["a"] * jnp.cos(t), "b": y["a"] * jnp.array([1.0, 2.0])}
    start, times = {"a": jnp.ones(()), "b": jnp.zeros(2)}, jnp.linspace(2.0, 0.0, 5)
    sol = dfx.diffeqsolve(
        dfx.ODETerm(field), solver, 2.0, 0.0, None, start, saveat=dfx.SaveAt(ts=times),
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8),
    )  # fmt: skip
    assert sol.ys is not None
    # The interpolant between some thirty steps has an error of fourth order.
    assert_allclose(sol.ys["a"], np.exp(np.sin(2.0) - np.sin(times)), rtol=0, atol=1e-5)
    assert_allclose(sol.ys["b"][:, 1], 2 * sol.ys["b"][:, 0], rtol=1e-14)


# Derivatives and batches: x = cos t + (x0 - 1) exp(-p t).


def approach(t, x, p):
    return -p * (x - jnp.cos(t)) - jnp.sin(t)


@pytest.mark.medium
@pytest.mark.parametrize("name", KINDS)
def test_derivatives_in_a_batch(name):
    """Reverse and forward mode through diffeqsolve, in two lanes of different stiffness, against the closed form."""

    def end(z, adjoint):
        control = dfx.PIDController(rtol=1e-6, atol=1e-8)
        sol = dfx.diffeqsolve(
            dfx.ODETerm(approach), ALL[name], 0.0, 1.0, None, z[:1], z[1], stepsize_controller=control, adjoint=adjoint,
            max_steps=1024,
        )  # fmt: skip
        assert sol.ys is not None
        return sol.ys[-1, 0]

    both = lambda z: (jax.grad(end)(z, dfx.RecursiveCheckpointAdjoint()), jax.jacfwd(end)(z, dfx.ForwardMode()))
    # At the limit of its stability an explicit method magnifies roundings: its steps would be others in the two modes.
    z = jnp.array([[1.5, 2.0], [0.7, 5.0 if name == "AdamsPECE" else 30.0]])
    reverse, forward = jax.jit(jax.vmap(both))(z)
    decay = np.exp(-z[:, 1])
    exact = np.stack([decay, -(z[:, 0] - 1) * decay], axis=1)
    assert_allclose(reverse, forward, rtol=0, atol=1e-12)
    # The tangents are those of steps at 1e-6, whose error is not controlled itself.
    assert_allclose(forward, exact, rtol=0, atol=1e-4)


# Events in hyjax


def following(t, x, p):
    return -p["r"] * (x**3 - (p["a"] * jnp.cos(t)) ** 3) - p["a"] * jnp.sin(t)


falling = leave(following, 1, lambda t, x, p: x[0] - p["q"])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.medium] * (name != "Rodas5P")) for name in KINDS]
)
def test_an_event_is_on_its_surface(name):
    """x = a cos t falls to q at arccos(q / a), however stiff: the surface's residual, the time and its derivatives."""
    integrator = hj.Integrator(ALL[name], rtol=1e-6, atol=1e-6)

    @jax.jit
    @jax.vmap
    def met(u):
        def time(u):
            p = {"a": u[0], "q": u[1], "r": u[2]}
            impact = hj.flow_to_guard(falling, "free", 0.0, u[:1], p, integrator=integrator)
            return impact.t, impact

        slope, impact = jax.jacfwd(time, has_aux=True)(u)
        return slope, impact

    u = jnp.array([[1.2, 0.4, 1.0], [1.3, 0.5, 100.0]])
    slope, impact = met(u)
    assert np.all(impact.result == hj.RESULTS.successful)
    assert np.max(np.abs(impact.x[:, 0] - u[:, 1])) <= 1e-14
    exact = lambda u: jnp.arccos(u[1] / u[0])
    assert_allclose(impact.t, jax.vmap(exact)(u), rtol=0, atol=1e-4)
    # The event's derivative divides by the field, in which the state's error counts as often as it is stiff.
    assert_allclose(slope, jax.vmap(jax.jacfwd(exact))(u), rtol=0, atol=1e-2)


@pytest.mark.medium
@pytest.mark.parametrize("solver", [S.Rodas5P(), S.Rosenbrock23()])
def test_derivatives_of_a_long_state(solver):
    """Of 30 coupled coordinates, whose equations LAPACK solves, the matrix of a step is differentiated along the solutions alone:
    forward and reverse mode, by state, parameter and time, against differences, with an error of 1e-10 for steps of 1e-5."""
    n = 30

    def ring(t, x, rate):
        return rate * (jnp.roll(x, 1) - 2 * x + jnp.roll(x, -1)) - x**3 + jnp.cos(t + x[0])

    steps = dfx.ODETerm(ring), solver

    def end(v):
        x, rate, t0 = v[:n], v[n], v[n + 1]
        found = dfx.diffeqsolve(*steps, t0, t0 + 0.3, 0.1, x, rate, max_steps=4, adjoint=dfx.DirectAdjoint())
        assert found.ys is not None
        return jnp.sum(jnp.sin(jnp.arange(1.0 * n) + found.ys[-1]))

    v = jnp.append(jnp.cos(jnp.arange(1.0 * n)), jnp.array([3.0, 0.2]))
    along = jnp.sin(1 + 2 * jnp.arange(n + 2.0))
    slope = jax.jit(lambda v: jax.jvp(end, (v,), (along,))[1])
    gradient = jax.jit(jax.grad(end))
    assert_allclose(slope(v), (end(v + 1e-5 * along) - end(v - 1e-5 * along)) / 2e-5, rtol=1e-8)
    assert_allclose(gradient(v) @ along, slope(v), rtol=1e-12)
    twice = jax.jvp(slope, (v,), (along,))[1]
    assert_allclose(twice, (slope(v + 1e-5 * along) - slope(v - 1e-5 * along)) / 2e-5, rtol=1e-7)
    assert_allclose(jax.jvp(gradient, (v,), (along,))[1] @ along, twice, rtol=1e-11)
