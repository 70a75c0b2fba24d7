"""Orbits on a level of a conserved quantity, in closed form: a ball without loss, and its family over the energy."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ellipe, ellipk

import hyjax as hj
from hyjax._testing import Level
from hyjax.models import bouncing_ball as ball

PARAMS = ball.Params(restitution=1.0)


def energy(t, x, params):
    return params.gravity * x[0] + x[1] ** 2 / 2


@pytest.fixture(scope="module")
def bounce():
    return hj.periodic_orbit(ball.step, jnp.array([0.0, 2.0]), PARAMS, conserved=energy)


@pytest.mark.medium
def test_a_bounce_at_the_energy_of_its_guess(bounce):
    """T = 2 v / g, v = sqrt(2 E); the multipliers of (height, speed) just after the impact are 1, the family's, and 0."""
    assert bounce.params.conserved == 2.0 and bounce.params.gravity == PARAMS.gravity
    # Two roundings of numbers of order one.
    assert_allclose(bounce.period, 4 / PARAMS.gravity, rtol=1e-14)
    assert_allclose(bounce.multipliers, 0, atol=1e-14)
    assert bounce.stable


@pytest.mark.medium
@pytest.mark.parametrize("inside, stable", [(-1e-12, False), (0.0, False), (1e-12, False), (1e-8, True)])
def test_multipliers_on_the_circle_up_to_rounding_are_not_inside(bounce, inside, stable):
    """As those of a conservative system beside the family's own."""
    pair = (1 - inside) * np.exp(np.array([1j, -1j]))
    assert bool(dataclasses.replace(bounce, multipliers=jnp.asarray(pair)).stable) == stable


@pytest.mark.medium
def test_its_energy_is_a_parameter(bounce):
    at = lambda value: hj.periodic_orbit(bounce.step, bounce.x, Level(PARAMS, value)).period
    energies = jnp.array([0.5, 2.0, 8.0])
    assert_allclose(jax.vmap(at)(energies), 2 * jnp.sqrt(2 * energies) / PARAMS.gravity, rtol=1e-13)
    # dT/dE = T / 2E, and so on.
    period = float(bounce.period)
    assert_allclose(jax.grad(at)(jnp.array(2.0)), period / 4, rtol=1e-12)
    assert_allclose(jax.grad(jax.grad(at))(jnp.array(2.0)), -period / 16, rtol=1e-11)


@pytest.mark.medium
def test_the_family_is_a_branch_over_the_energy(bounce):
    family = hj.continuation(bounce, stop=(0.5, 8.0))
    assert family.result == hj.RESULTS.successful and family.parameter == "conserved"
    assert_allclose(family.values[[0, -1]], [0.5, 8.0], rtol=1e-12)
    assert_allclose(family.periods, 2 * np.sqrt(2 * family.values) / PARAMS.gravity, rtol=1e-12)
    assert family.special_points == () and not family.unresolved
    # Over another parameter, at one energy.
    heavier = hj.continuation(bounce, where=lambda p: p.gravity, stop=20.0)
    assert_allclose(heavier.periods, 4 / heavier.values, rtol=1e-12)


@pytest.mark.medium
def test_a_pendulum_against_elliptic_integrals():
    """T = 4 K(m), m = E / 2 from the lowest point, and dT/dE = (E(m) / (1 - m) - K(m)) / m; small swings have the period 2 pi."""
    swing = hj.Mode(lambda t, x, p: jnp.stack([x[1], -p * jnp.sin(x[0])]), ("angle", "rate"))
    lap = hj.Transition("swing", "swing", lambda t, x, p: x[0], lambda t, x, p: x)
    step = hj.ReturnMap(hj.HybridSystem({"swing": swing}, (lap,)), sequence=("swing",))
    height = lambda t, x, p: x[1] ** 2 / 2 + p * (1 - jnp.cos(x[0]))
    orbit = hj.periodic_orbit(step, jnp.array([0.0, -0.3]), jnp.array(1.0), conserved=height)
    family = hj.continuation(orbit, stop=(1e-3, 1.9))
    assert_allclose(family.values[[0, -1]], [1e-3, 1.9], rtol=1e-12)
    # The tolerance of the integrator, over a rate of the angle that is as small as 0.04.
    assert_allclose(family.periods, 4 * ellipk(family.values / 2), rtol=1e-12)
    assert family.special_points == () and family.unresolved == ()

    def at(value):
        again = hj.periodic_orbit(
            orbit.step, jnp.stack([0 * value, -jnp.sqrt(2 * value)]), Level(orbit.params.params, value)
        )
        return again.period

    energies = jnp.array([0.1, 1.0, 1.8])
    m = np.asarray(energies) / 2
    assert_allclose(jax.vmap(jax.grad(at))(energies), (ellipe(m) / (1 - m) - ellipk(m)) / m, rtol=1e-12)


@pytest.mark.medium
def test_the_family_of_an_oscillator_with_a_wall():
    """A mass on a spring, which bounces without loss from a wall beyond its rest, at the distance 1: T = 2 arccos(-1 / A) with
    A^2 = 2 E. The family ends where the wall is only touched, at E = 1/2, and is there not smooth."""
    free = hj.Mode(lambda t, x, p: jnp.stack([x[1], -x[0]]), ("x", "x_rate"))
    wall = hj.Transition("free", "free", lambda t, x, p: x[0] + p, lambda t, x, p: jnp.stack([x[0], -x[1]]))
    step = hj.ReturnMap(hj.HybridSystem({"free": free}, (wall,)), sequence=("free",))
    sum_of_squares = lambda t, x, p: (x[0] ** 2 + x[1] ** 2) / 2
    orbit = hj.periodic_orbit(step, jnp.array([-1.0, 1.0]), jnp.array(1.0), conserved=sum_of_squares)
    family = hj.continuation(orbit, stop=(0.2, 8.0), throw=False)
    (end,) = family.special_points
    assert family.result == hj.RESULTS.grazing and end.kind == "grazing" and family.values[-1] == 8.0
    assert_allclose(end.value, 0.5, rtol=1e-12)
    assert_allclose(end.orbit.period, 2 * np.pi, rtol=1e-12)
    # Roundings over the speed at the wall, which is small towards the end.
    speeds = np.sqrt(2 * family.values - 1)
    error = np.abs(family.periods - 2 * np.arccos(-1 / np.sqrt(2 * family.values)))
    assert np.all(error < 1e-12 / speeds) and speeds.min() < 0.1

    def at(value):
        again = hj.periodic_orbit(
            orbit.step, jnp.stack([-1 + 0 * value, jnp.sqrt(2 * value - 1)]), Level(orbit.params.params, value)
        )
        return again.period

    energies = np.array([0.6, 1.0, 4.0])
    by_energy = jax.vmap(jax.grad(at))(jnp.asarray(energies))
    assert_allclose(by_energy, -1 / (energies * np.sqrt(2 * energies - 1)), rtol=1e-11)


@pytest.mark.medium
def test_by_a_section_and_at_a_given_energy():
    """The highest point of a ball that flies up at the energy E: at the height E / g, after 2 v / g."""
    apex = hj.ReturnMap(ball.system, section=hj.Section("flight", lambda t, x, p: x[1]))
    top = hj.periodic_orbit(apex, jnp.array([0.3, 0.0]), PARAMS, conserved=(energy, 3.0))
    assert_allclose(top.x, [3 / PARAMS.gravity, 0], atol=1e-14)
    assert_allclose(top.period, 2 * np.sqrt(6) / PARAMS.gravity, rtol=1e-13)
    assert_allclose(top.multipliers, 0, atol=1e-14)


@pytest.mark.medium
def test_what_is_not_conserved_is_no_orbit():
    """With a loss the energy is none: the step back to the level would hide that the ball is not periodic."""
    lossy = ball.Params(restitution=0.9)
    lost = hj.periodic_orbit(ball.step, jnp.array([0.0, 2.0]), lossy, conserved=energy, throw=False)
    assert lost.result == hj.RESULTS.orbit_not_converged and np.isnan(lost.period)
    for wrong in (lambda t, x, p: x[1] ** 3 + x[0], (energy, -1.0)):
        with pytest.raises(
            hj.SolveError, match="must not change along flow and jumps, nor beside the orbit, and an orbit near"
        ):
            hj.periodic_orbit(ball.step, jnp.array([0.0, 2.0]), PARAMS, conserved=wrong)
    half = lambda t, x, p: x[1]
    no = hj.periodic_orbit(ball.step, jnp.array([0.0, 2.0]), PARAMS, conserved=(half, 1.0), throw=False)
    # The speed after an impact is conserved by the map, though not along the flow.
    assert no.result == hj.RESULTS.successful and no.x[1] == 1


@pytest.mark.medium
def test_what_returns_on_the_orbit_alone_is_not_conserved():
    """The coordinates of a limit cycle's section return on the cycle, where each is on its level; beside it they do not, and the
    multiplier that would be set apart is no 1."""
    decay = hj.Mode(lambda t, x, p: jnp.stack([0 * x[0] + 1, p * (x[1] - 2)]), ("clock", "size"))
    lap = hj.Transition("decay", "decay", lambda t, x, p: 1 - x[0], lambda t, x, p: jnp.stack([0 * x[0], x[1]]))
    step = hj.ReturnMap(hj.HybridSystem({"decay": decay}, (lap,)), sequence=("decay",))
    of_size = (lambda t, x, p: x[1], 2.0)
    start, rate = jnp.array([0.0, 2.0]), jnp.array(-0.5)
    wrong = hj.periodic_orbit(step, start, rate, conserved=of_size, throw=False)
    assert wrong.result == hj.RESULTS.orbit_not_converged and np.all(np.isnan(wrong.multipliers))
    # Without decay the size is conserved.
    right = hj.periodic_orbit(step, start, 0 * rate, conserved=of_size)
    assert_allclose(right.multipliers, 0, atol=1e-12)


def test_bad_quantities(unchecked):
    guess = jnp.array([0.0, 2.0])
    with pytest.raises(ValueError, match=r"conserved=2\.0 must be a function"):
        hj.periodic_orbit(ball.step, guess, PARAMS, conserved=2.0)
    with pytest.raises(ValueError, match="a pair of it and its value"):
        hj.periodic_orbit(ball.step, guess, PARAMS, conserved=(energy, "1.3"))
    with pytest.raises(ValueError, match="a pair of it and its value"):
        hj.periodic_orbit(ball.step, guess, PARAMS, conserved=(energy, None))
    with pytest.raises(ValueError, match="of several quantities one"):
        hj.periodic_orbit(ball.step, guess, PARAMS, conserved=(energy, energy))
    with pytest.raises(ValueError, match=r"must return an array of shape \(\), not \(2,\)"):
        hj.periodic_orbit(ball.step, guess, PARAMS, conserved=lambda t, x, p: x)
    with pytest.raises(ValueError, match="forced system conserves nothing"):
        forced = hj.ReturnMap(ball.system, section=hj.Stroboscope("flight", 1.0))
        hj.periodic_orbit(forced, guess, PARAMS, conserved=energy)


@pytest.mark.medium
@pytest.mark.parametrize("laps", [1, 2])
def test_a_family_whose_quantity_is_not_known(laps):
    """Of bounces of any speed: the distance is that of the speed just after the impact, T = 2 v / g for each bounce."""
    orbit = hj.periodic_orbit(ball.step.repeated(laps), jnp.array([0.0, 2.0]), PARAMS, throw=False)
    assert orbit.result == hj.RESULTS.not_isolated and not orbit.stable
    assert_allclose(orbit.multipliers, [1, 0], atol=1e-12)
    family = hj.continuation(orbit, stop=(-1.0, 2.0))
    assert family.result == hj.RESULTS.successful and family.parameter == "distance"
    speeds = orbit.x[1] + family.values
    assert_allclose(family.x[:, 1], speeds, rtol=1e-12)
    assert_allclose(family.periods, laps * 2 * speeds / PARAMS.gravity, rtol=1e-12)
    # A double zero is known to the root of rounding.
    assert_allclose(family.multipliers, 0, atol=1e-7)
    assert family.special_points == () and not family.unresolved
    last = family.orbit(-1)
    assert last.result == hj.RESULTS.successful and last.stable
    # On from there; and over a parameter, at one distance.
    more = hj.continuation(last, stop=1.0)
    assert_allclose(more.x[-1, 1], last.x[1] + 1, rtol=1e-12)
    heavier = hj.continuation(last, where=lambda p: p.gravity, stop=20.0)
    assert_allclose(heavier.periods, laps * 2 * last.x[1] / heavier.values, rtol=1e-12)


# (a, b) -> (b a (1 - a), b), at the end of a unit of time: a family over b of fixed points a = 1 - 1/b with the multiplier 2 - b.
logistic = hj.HybridSystem(
    {"wait": hj.Mode(lambda t, x, p: jnp.stack([jnp.ones(()), jnp.zeros(()), jnp.zeros(())]), ("clock", "a", "b"))},
    (
        hj.Transition(
            "wait",
            "wait",
            lambda t, x, p: 1 - x[0],
            lambda t, x, p: jnp.stack([jnp.zeros(()), p * x[1] + x[2] * x[1] * (1 - x[1]), x[2]]),
        ),
    ),
)


@pytest.mark.medium
def test_special_points_of_a_family_whose_quantity_is_not_known():
    """Period doubling at b = 3, a = 2/3; the cycle of two beyond has the multiplier 4 + 2 b - b^2."""
    step = hj.ReturnMap(logistic, sequence=("wait",))
    orbit = hj.periodic_orbit(step, jnp.array([0.0, 0.6, 2.5]), jnp.array(0.0), throw=False)
    family = hj.continuation(orbit, stop=(-0.5, 0.9))
    b = family.x[:, 2]
    assert_allclose(family.x[:, 1], 1 - 1 / b, rtol=1e-12)
    assert_allclose(family.multipliers[:, 0], 2 - b, atol=1e-11)
    # The unit tangent at the start.
    da, db = np.array([1 / 2.5**2, 1]) / np.hypot(1 / 2.5**2, 1)
    # Of the jump at the start, linear in the states before it: da' = (b (1 - 2 a) da + a (1 - a) db), db' = db.
    along = np.array([-0.5 * da, 0.24 * da + db])
    assert_allclose(family.values, (family.x[:, 1:] - orbit.x[1:]) @ along, atol=1e-12)
    (doubling,) = family.special_points
    assert doubling.kind == "period-doubling" and not family.unresolved
    assert_allclose(doubling.orbit.x, [0, 2 / 3, 3], atol=1e-11)
    twice = hj.switch_branch(doubling, stop=0.7)
    b = twice.x[:, 2]
    assert b[-1] > 3.1
    assert_allclose(twice.multipliers[:, 0], 4 + 2 * b - b**2, atol=1e-9)


@pytest.mark.medium
def test_no_special_points_where_only_the_distance_is_singular():
    """Fixed points (x, 0) with the multipliers 1 and 0.5. The left vector of the 1 turns along them, and at x = 1 is at right
    angles to that of the start, so that the equation is singular there; the orbits are regular."""
    mode = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 1.0]), ("x", "y", "tau"))
    step = lambda t, x, p: jnp.stack([x[0] + (0.5 - x[0]) * x[1], 0.5 * x[1], 0 * x[2]])
    system = hj.HybridSystem({"map": mode}, (hj.Transition("map", "map", lambda t, x, p: 1 - x[2], step),))
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("map",)), jnp.zeros(3), PARAMS, throw=False)
    family = hj.continuation(orbit, stop=2.0)
    assert family.result == hj.RESULTS.successful and family.special_points == () and not family.unresolved
    assert_allclose(np.sort(np.abs(family.multipliers), axis=1), np.tile([0, 0, 0.5], (len(family), 1)), atol=1e-9)


@pytest.mark.medium
def test_where_there_is_no_family():
    step = hj.ReturnMap(logistic, sequence=("wait",))
    # (a, b) -> (a, 0): of two quantities at once; and an orbit of a family is followed over no parameter.
    two = hj.periodic_orbit(step, jnp.array([0.0, 0.3, 0.0]), jnp.array(1.0), throw=False)
    with pytest.raises(ValueError, match=r"here 2 are known\. Of several give a quantity"):
        hj.continuation(two, stop=1.0)
    with pytest.raises(ValueError, match="is one of a family: follow it first"):
        hj.continuation(two, where=lambda p: p, stop=1.0)
    # Of two quantities, of which one is given.
    both = hj.periodic_orbit(
        step, jnp.array([0.0, 0.3, 0.0]), jnp.array(1.0), conserved=lambda t, x, p: x[2], throw=False
    )
    assert both.result == hj.RESULTS.not_isolated
    with pytest.raises(ValueError, match="another quantity is conserved too"):
        hj.continuation(both, stop=1.0)
    with pytest.raises(ValueError, match="here 0 are known"):
        hj.continuation(dataclasses.replace(two, return_jacobian=0 * two.return_jacobian), stop=1.0)
    for traced in (
        jax.jit(lambda orbit: hj.continuation(orbit, stop=1.0).x),
        lambda orbit: hj.continuation(orbit, stop=1.0),
    ):
        with pytest.raises(ValueError, match="this orbit is traced or a batch"):
            traced(jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, two))


@pytest.mark.medium
def test_over_a_parameter_of_a_dictionary_at_one_distance():
    """(a, b) -> (a, b / 2 + c a) has b = 2 c a; `sweep`, whose starts do not stay at a distance, refuses."""
    params = {"c": jnp.array(0.3)}
    maps = lambda t, x, p: jnp.stack([jnp.zeros(()), x[1], 0.5 * x[2] + p["c"] * x[1]])
    system = hj.HybridSystem(
        logistic.modes, (hj.Transition("wait", "wait", lambda t, x, p: 1 - x[0], maps),), logistic.time_unit
    )
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("wait",)), jnp.array([0.0, 0.2, 0.1]), params, throw=False)
    member = hj.continuation(orbit, stop=0.5).orbit(-1)
    more = hj.continuation(member, where=lambda p: p["c"], stop=0.5)
    assert_allclose(more.x[:, 2], 2 * more.values * more.x[:, 1], rtol=1e-12)
    with pytest.raises(ValueError, match="Follow it over the parameter: continuation"):
        hj.sweep(member, where=lambda p: p["c"], values=jnp.array([0.3, 0.4]))


@pytest.mark.medium
@pytest.mark.parametrize("excess", [lambda a: a**2, lambda a: -(a**3)], ids=["fold", "branch point"])
def test_the_multiplier_of_a_fold_or_branch_point_is_not_that_of_a_family(excess):
    """a -> a + a^2, a - a^3: only a = 0 returns, and its multiplier is 1."""
    maps = lambda t, x, p: jnp.stack([jnp.zeros(()), x[1] + p * excess(x[1]), 0.5 * x[2]])
    system = hj.HybridSystem(
        logistic.modes, (hj.Transition("wait", "wait", lambda t, x, p: 1 - x[0], maps),), logistic.time_unit
    )
    alone = hj.periodic_orbit(hj.ReturnMap(system, sequence=("wait",)), jnp.zeros(3), jnp.array(1.0), throw=False)
    for stop in (0.1, (-0.1, 0.1)):
        with pytest.raises(ValueError, match="is that of a fold or branch point, not of a family"):
            hj.continuation(alone, stop=stop)
