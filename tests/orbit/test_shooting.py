"""Single and multiple shooting, over several strides; the orbit's print and its samples."""

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from numpy.testing import assert_allclose
from reference import case
from systems import logistic, map_of, ROLLED, SPRING, spring, spring_orbit

import hyjax as hj
from hyjax._testing import DampedNewton, moved_nodes, newton, pulled_back
from hyjax.models import simplest_walker

FINDERS = {
    "Newton": optx.Newton(rtol=1e-14, atol=1e-14),
    "Dogleg": optx.Dogleg(rtol=1e-14, atol=1e-14),
    "LevenbergMarquardt": optx.LevenbergMarquardt(rtol=1e-14, atol=1e-14),
}


def orbit(guess, slope, strides, method):
    params = simplest_walker.Params(slope)
    return hj.periodic_orbit(
        hj.ReturnMap(simplest_walker.system, sequence=("swing",), strides=strides, integrator=ROLLED),
        guess,
        params,
        method=method,
        throw=False,
    )


LOGISTIC = map_of(logistic)


def fixed_point(guess, r, strides=1, **options):
    """Of the logistic map."""
    step = hj.ReturnMap(LOGISTIC, sequence=("m",), strides=strides, integrator=ROLLED)
    return hj.periodic_orbit(step, guess, {"r": jnp.array(r)}, throw=False, **options)


@pytest.mark.medium
def test_three_strides_are_one_stride_thrice():
    record = case("B_simplest_walker", "long_0.009")
    three = orbit(jnp.asarray(np.round(record["x0"], 3)), 0.009, 3, hj.MultipleShooting())
    assert three.nodes.shape == (3, 4) and three.guard_rates.shape == (3,)
    # Three times the tolerance of one stride.
    assert_allclose(three.nodes, np.tile(record["x0"], (3, 1)), rtol=0, atol=3e-14)
    assert_allclose(three.period, 3 * record["T"], rtol=0, atol=15e-14)
    exact = (record["eigenvalues"]["re"] + 1j * record["eigenvalues"]["im"]) ** 3
    # Cubing puts the pair's conjugates in the other order.
    assert_allclose(sorted(np.asarray(three.multipliers[:2]).imag), sorted(exact[:2].imag), rtol=0, atol=9e-13)
    assert_allclose(np.asarray(three.multipliers[:2]).real, exact[:2].real, rtol=0, atol=9e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    "finder, shooting",
    [("LevenbergMarquardt", hj.SingleShooting), ("Dogleg", hj.MultipleShooting)],
)
def test_root_finders_on_the_simplest_walker(finder, shooting):
    """Each finds both gaits, to the digits that the default finds."""
    method = shooting(root_finder=FINDERS[finder], max_iterations=60)
    for name in ("long_0.009", "short_0.009"):
        record = case("B_simplest_walker", name)
        found = orbit(jnp.asarray(np.round(record["x0"], 3)), 0.009, 1, method)
        assert found.result == hj.RESULTS.successful and 1 < found.iterations < 60
        assert_allclose(found.x, record["x0"], rtol=0, atol=2e-15)
        assert_allclose(found.period, record["T"], rtol=0, atol=3e-14)
        assert_allclose(found.multipliers.real, record["eigenvalues"]["re"], rtol=0, atol=3e-13)


@pytest.mark.medium
@pytest.mark.parametrize(
    "finder, tolerance, limit", [("Newton", 1e-14, 1), ("Dogleg", 1e-2, 60), ("LevenbergMarquardt", 1e-2, 60)]
)
def test_the_residual_decides_whether_it_is_an_orbit(finder, tolerance, limit):
    """A root finder that gives up early, or is content with little, has not found an orbit."""
    content = type(FINDERS[finder])(rtol=tolerance, atol=tolerance)
    method = hj.SingleShooting(root_finder=content, max_iterations=limit)
    found = fixed_point(jnp.array([0.65, 0.0]), 2.5, method=method)
    assert found.result == hj.RESULTS.orbit_not_converged and np.all(np.isnan(found.x))


SLOW_LOGISTIC = hj.HybridSystem(
    {"wait": hj.Mode(lambda t, x, p: jnp.stack([0 * x[0], 1e-6 + 0 * x[1]]), ("x", "clock"))},
    (
        hj.Transition(
            "wait", "wait", lambda t, x, p: 1 - x[1], lambda t, x, p: jnp.stack([logistic(x[0], {"r": p}), 0 * x[1]])
        ),
    ),
)


@pytest.mark.medium
@pytest.mark.parametrize(
    "shooting, tolerance, code",
    [
        (hj.SingleShooting, 1e-3, hj.RESULTS.orbit_not_converged),
        (hj.SingleShooting, 1e-12, hj.RESULTS.successful),
        (hj.MultipleShooting, 1e-3, hj.RESULTS.orbit_not_converged),
    ],
)
def test_states_are_accepted_by_their_own_size(shooting, tolerance, code):
    """A map of numbers below 1 in each million units of time: a residual of 1e-9, which a root finder is content with, is none of
    rounding, however small it is beside the time."""
    found = hj.periodic_orbit(
        hj.ReturnMap(SLOW_LOGISTIC, sequence=("wait",), integrator=hj.Integrator(max_time=1e7, unroll=False)),
        jnp.array([0.65, 0.0]),
        jnp.array(2.5),
        throw=False,
        method=shooting(root_finder=optx.Newton(rtol=tolerance, atol=tolerance)),
    )
    assert found.result == code
    if code == hj.RESULTS.successful:
        assert_allclose(found.x, [0.6, 0], rtol=1e-14)
        assert found.residual <= 2e-12


@pytest.mark.medium
def test_damped_newton_is_a_root_finder_of_optimistix():
    """Without hyjax: the root of a system in closed form, where full steps of Newton's method run away (arctangent)."""

    def equation(y, scale):
        return jnp.stack([jnp.arctan(y[0] - scale), y[1] - y[0] ** 2]), y

    y0 = jnp.array([5.0, 0.0])
    found = optx.root_find(equation, DampedNewton(), y0, jnp.array(2.0), has_aux=True)
    assert_allclose(found.value, [2.0, 4.0], rtol=1e-15)
    # What is returned beside the root was known at the root itself.
    assert_allclose(found.aux, found.value, rtol=0, atol=0)
    full = optx.root_find(equation, optx.Newton(1e-12, 1e-12), y0, jnp.array(2.0), has_aux=True, throw=False)
    assert full.result != optx.RESULTS.successful
    gradient = jax.grad(lambda s: optx.root_find(equation, DampedNewton(), y0, s, has_aux=True).value[1])(2.0)
    assert_allclose(gradient, 4.0, rtol=1e-14)
    nowhere = lambda y, _: jnp.exp(y) + 1
    # Above zero everywhere, the second by ten times the largest residual of a root.
    for each in (nowhere, lambda y, _: y**2 + 1e-9):
        stuck = optx.root_find(each, DampedNewton(), jnp.ones(1), throw=False)
        assert stuck.result == optx.RESULTS.nonlinear_divergence


@pytest.mark.medium
def test_guess_whose_jump_has_two_preimages():
    """The logistic map's orbit of two strides: the first evaluation flows from the guess, and so knows which preimage it was."""
    r = 3.6
    nodes = (r + 1 + np.sqrt((r - 3) * (r + 1)) * np.array([-1, 1])) / (2 * r)
    for k, off in ((0, 0.0), (1, 0.0), (0, 1e-9), (1, 1e-3)):
        found = fixed_point(jnp.array([nodes[k] + off, 0.0]), r, strides=2)
        assert found.result == hj.RESULTS.successful
        assert_allclose(found.nodes[:, 0], nodes[[k, 1 - k]], rtol=1e-14)
        # The state before a jump: the other node, whatever other preimage there is.
        assert_allclose(found.before, np.stack([nodes[[1 - k, k]], np.ones(2)], axis=1), rtol=1e-14)
        assert_allclose(found.start_times, [0, 1], atol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize(
    "jump, guesses",
    [
        # Its maximum 5 is at the orbit.
        (lambda x: 5 - 4 * jnp.sin(jnp.pi / 4 * (x - 1)) ** 2, (1.0, 1 + 1e-6, 0.99)),
        # Its least value near the orbit is 2. The second guess is no orbit, nor the image of a state about it.
        (lambda x: 2 + (x - 1) ** 2 - 0.625 * (x - 1) ** 3, (1.0, 1.5)),
    ],
)
def test_a_guess_far_from_the_jumps_of_states_about_it(jump, guesses):
    """A stride leads from x to the jump of x + 2. The orbit at x = 1, whose jump comes from far away, is found from about it."""
    run = hj.Mode(lambda t, x, p: jnp.stack([2 + 0 * x[0], 1 + 0 * x[1]]), ("x", "clock"))
    reset = lambda t, x, p: jnp.stack([jump(x[0]), 0 * x[1]])
    system = hj.HybridSystem({"run": run}, (hj.Transition("run", "run", lambda t, x, p: 1 - x[1], reset),))
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED)
    find = jax.jit(lambda guess: hj.periodic_orbit(step, guess, None, throw=False))
    for guess in guesses:
        found = find(jnp.array([guess, 0.0]))
        assert found.result == hj.RESULTS.successful
        assert_allclose(found.x, [1, 0], rtol=1e-13, atol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize("far", [0.0, 2.0, -1.0])
def test_the_orbit_next_to_the_guess(far):
    """A stride leads from x to the jump of x + `far`, with orbits at 1, 2 and 3; the jump folds next to 1 and 3 for k = 1/2.
    Wherever the stride leads, the preimage of the guess is the one next to its own stride's end."""
    run = hj.Mode(lambda t, x, p: jnp.stack([far + 0 * x[0], 1 + 0 * x[1]]), ("x", "clock"))
    jump = lambda x, k: x - k * (x - 1) * (x - 2) * (x - 3)
    reset = lambda t, x, k: jnp.stack([jump(x[0] - far, k), 0 * x[1]])
    system = hj.HybridSystem({"run": run}, (hj.Transition("run", "run", lambda t, x, p: 1 - x[1], reset),))
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED)
    for k in (0.1, 0.5, 0.8, 1.0):
        for orbit in (1.0, 2.0, 3.0):
            for off in (-0.05, 0.05):
                found = hj.periodic_orbit(step, jnp.array([orbit + off, 0.0]), jnp.array(k), throw=False)
                assert_allclose(found.x, [orbit, 0], atol=1e-12)


@pytest.mark.medium
def test_a_guess_where_the_jump_is_not_finite():
    """The jump divides by a clock that is zero in the guess, so a search for the state before the jump cannot start there: the
    first evaluation flows from the guess itself."""
    jump = lambda t, x, p: jnp.stack([(0.5 * x[0] + p) / x[1], 0 * x[1]])
    run = hj.Mode(lambda t, x, p: jnp.stack([0 * x[0], 1 + 0 * x[1]]), ("x", "clock"))
    system = hj.HybridSystem({"run": run}, (hj.Transition("run", "run", lambda t, x, p: 1 - x[1], jump),))
    found = hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("run",), integrator=ROLLED),
        jnp.array([1.501, 0.0]),
        jnp.array(0.75),
        throw=False,
    )
    assert found.result == hj.RESULTS.successful
    assert_allclose(found.x, [1.5, 0], rtol=1e-14)


@pytest.mark.medium
def test_multiple_shooting_reaches_what_single_shooting_cannot():
    """Eight strides of a logistic map that leads to infinity: an error of the start grows by 3^8 = 6561, and single shooting ends
    at another orbit."""
    guess = jnp.array([0.81, 0.0])
    alone = fixed_point(guess, 5.0, strides=8)
    assert np.max(np.abs(alone.nodes[:, 0] - 0.8)) > 1e-3
    eight = fixed_point(jnp.tile(guess, (8, 1)), 5.0, strides=8, method=hj.MultipleShooting())
    assert eight.result == hj.RESULTS.successful
    assert_allclose(eight.nodes, np.tile([0.8, 0.0], (8, 1)), rtol=0, atol=2e-14)
    assert_allclose(eight.multipliers[0], 3**8, rtol=8 * 3e-13)


@pytest.mark.medium
def test_derivatives_from_node_to_node():
    """Over three strides of a spring that bounces: the closed forms of the state's derivatives and the period's."""

    def numbers(p):
        found = hj.periodic_orbit(
            hj.ReturnMap(spring, sequence=("free",), strides=3, integrator=ROLLED), jnp.array([1.0, 1.6]), p
        )
        return jnp.stack([found.x[1], found.period / 3])

    # Linear systems with condition numbers of some tens.
    found, exact = jax.jit(jax.jacrev(numbers))(SPRING), jax.jacrev(spring_orbit)(SPRING)
    for name in SPRING:
        assert_allclose(found[name], exact[name], rtol=1e-12)


@pytest.mark.medium
def test_derivatives_of_nodes_that_differ():
    """The logistic map's orbit of two strides: the state before a jump to one node is the other node, and moves with it."""

    def nodes(r):
        return (r + 1 + jnp.sqrt((r - 3) * (r + 1)) * jnp.array([-1.0, 1.0])) / (2 * r)

    def found(r):
        orbit = fixed_point(jnp.append(jax.lax.stop_gradient(nodes(r))[0], 0.0), r, strides=2)
        return orbit.nodes[:, 0], orbit.before[:, 0]

    (at, before), slope = jax.jacfwd(found)(jnp.array(3.6)), jax.jacfwd(nodes)(jnp.array(3.6))
    # Linear systems with a condition number near 1.
    assert_allclose(at, slope, rtol=1e-13)
    assert_allclose(before, slope[::-1], rtol=1e-13)


@pytest.mark.medium
def test_samples_lie_on_the_orbit(walker):
    gait = walker["long_0.009"]
    (arc,) = gait.sample(33)
    assert arc.mode == "swing" and arc.x.shape == (33, 4)
    assert_allclose(arc.x[0], gait.x, rtol=0, atol=0)
    assert_allclose(arc.t[-1], gait.period, rtol=1e-15)
    # The energy of the stance leg, a pendulum upside down, is conserved: theta'^2 / 2 + cos(theta - slope).
    energy = arc.x[:, 1] ** 2 / 2 + jnp.cos(arc.x[:, 0] - 0.009)
    assert_allclose(energy, energy[0], rtol=0, atol=1e-14)
    assert_allclose(simplest_walker.heel_strike(arc.t[-1], arc.x[-1], gait.params), gait.x, rtol=0, atol=1e-14)


def test_print(walker):
    gait = walker["long_0.009"]
    text = str(gait)
    for part in ("theta_rate", "+0.2003109005442", "3.8824637528513", "multiplier 4", "stable", "successful"):
        assert part in text
    batch = jax.tree.map(lambda a, b: jnp.stack([a, b]), walker["long_0.009"], walker["short_0.009"])
    assert "2 PeriodicOrbits" in str(batch) and str(batch).endswith("\n  2 successful")
    seen = []
    jax.eval_shape(lambda orbit: seen.append(str(orbit)), gait)
    assert "period=f64[]" in seen[0]


def test_guess_for_each_stride_needs_multiple_shooting():
    guesses = jnp.tile(jnp.array([0.2, -0.2, 0.4, -0.016]), (2, 1))
    with pytest.raises(ValueError, match="MultipleShooting"):
        orbit(guesses, 0.009, 2, hj.SingleShooting())
    with pytest.raises(ValueError, match="strides=2"):
        orbit(guesses, 0.009, 3, hj.MultipleShooting())


def test_newton_starts_at_zero_and_ends_there():
    """Neither has a size of its own. The equation's rounding, 1e-17, is far above that of its root."""

    def solve(y0, root):
        def evaluate(y):
            r = jnp.stack([(y[0] - root) * (2 + y[1]), y[1] + y[0] ** 2 - root**2]) + 1e-17 * jnp.sin(1e20 * y)
            slope = jnp.array([[2 + y[1], y[0] - root], [2 * y[0], 1.0]])
            return r, slope, None

        return newton(evaluate, y0, max_iterations=30, accept=1e-13)

    found = solve(jnp.zeros(2), 0.5)
    assert found.converged
    assert_allclose(found.y, [0.5, 0], rtol=0, atol=1e-16)
    found = solve(jnp.array([0.1, 0.2]), 0.0)
    assert found.converged
    assert_allclose(found.y, [0, 0], rtol=0, atol=1e-16)


def test_where_newton_ends():
    """Of equations in closed form: at the nearest root to rounding, whatever the units; or nowhere, which is said."""

    def solve(equation, y0, accept=1e-13):
        evaluate = lambda y: (equation(y), jax.jacfwd(equation)(y), None)
        return jax.jit(lambda y0: newton(evaluate, y0, max_iterations=40, accept=accept))(jnp.asarray(y0))

    assert not solve(lambda y: y**2 + 1e-9, [1.0]).converged
    # Full steps run away; one that is longer than the state leads to another root.
    assert_allclose(solve(jnp.arctan, [5.0]).y, [0], atol=1e-13)
    assert_allclose(solve(jnp.sin, [np.pi / 2 + 0.01]).y, [np.pi], rtol=1e-15)
    # The search goes on to rounding, far below what is accepted.
    assert_allclose(solve(lambda y: y**2 - 2, [1.5], accept=1e-2).y, [np.sqrt(2)], rtol=4e-16)
    # A line of roots, where every Jacobian is singular; and unknowns whose units differ by 1e20.
    line = solve(lambda y: jnp.stack([y[0] + y[1] - 1, 2 * (y[0] + y[1] - 1)]), [0.0, 0.0])
    assert line.converged
    assert_allclose(line.y.sum(), 1, rtol=1e-14)
    units = solve(lambda y: jnp.stack([y[0] - 1, 1e-20 * y[1] - 0.5]), [0.0, 0.0])
    assert_allclose(units.y, [1, 5e19], rtol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize("timed", [0, 1])
def test_perturbed_nodes_follow_the_strides(timed):
    """Each node is the end of the stride before, but the first node's time is fixed; and reverse mode is the transpose."""
    rng = np.random.default_rng(3)
    by_start, forced, pull = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 4, 4), (3, 4), (3, 4)))
    nodes = moved_nodes(by_start, forced, timed)
    ends = jnp.einsum("sij,sj->si", by_start, nodes) + forced
    # Some ten roundings of numbers of order 1, by the condition of twelve equations.
    assert_allclose(nodes, jnp.roll(ends, 1, axis=0).at[0, :timed].set(0), rtol=0, atol=1e-12)
    assert_allclose(jnp.sum(pulled_back(by_start, pull, timed) * forced), jnp.sum(pull * nodes), rtol=1e-11)
