"""The powered walker against digits from other code, energy balances in closed form, and the simplest walker; its two springs."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose
from reference import case

import hyjax as hj
from hyjax import models
from hyjax.models import powered_walker, two_spring_walker

# Just after the strike: theta, theta_rate, period, first multiplier, on level ground, by `make_powered_walker_reference.py`.
# Kuo's own program `walksw2` (github.com/kuo-lab/simplelocomotionmodel) has the same states and periods to ten digits.
KUO = {
    (0.1873798580048398, 2.512477760885756): (
        0.35517636298862488, -0.50519535210806927, 1.7403942316848122, 0.84667327040400805 + 0.11163419123997362j,
    ),
    (0.04, 0.0): (
        0.19458884451057278, -0.20296053867345148, 3.8278129092127636, 0.28018722729993691 + 0.62330695193559422j,
    ),
}  # fmt: skip
# Speed, and cost of transport P^2 / (2 s) with the step's length s.
ENERGETICS = {
    (0.1873798580048398, 2.512477760885756): (0.399628681, 0.025241289),
    (0.04, 0.0): (0.1010306198, 0.0020686464),
}


def gait(push_off, stiffness, slope=0.0, guess=None):
    params = powered_walker.Params(slope, stiffness, push_off)
    guess = powered_walker.guess(params) if guess is None else guess
    return hj.periodic_orbit(powered_walker.step, guess, params)


def step_length(orbit):
    return 2 * np.sin(orbit.x[0])


def condition(matrix, eigenvalue):
    r"""Of one eigenvalue with the vectors $l$ and $r$: $\|M\| |l| |r| / |l^H r|$."""
    values, left, right = scipy.linalg.eig(matrix, left=True, right=True)  # pyright: ignore
    i = np.argmin(np.abs(values - eigenvalue))
    return np.linalg.norm(matrix, 2) / abs(left[:, i].conj() @ right[:, i])


@pytest.mark.medium
@pytest.mark.parametrize("push_off, stiffness", KUO)
def test_gaits_of_kuo(push_off, stiffness):
    orbit = gait(push_off, stiffness)
    theta, theta_rate, period, multiplier = KUO[push_off, stiffness]
    # A residual of some 1e-16, over the distance 0.19 of the nearest multiplier from 1; the period is a sum of more solver steps,
    # each at 1e-14.
    assert_allclose(orbit.x[:2], [theta, theta_rate], rtol=0, atol=1e-14)
    assert_allclose(orbit.period, period, rtol=0, atol=1e-13)
    # A rounding of the monodromy matrix, times the condition of the eigenvalue: 4e-13 and 2e-13.
    error = np.finfo(float).eps * condition(np.asarray(orbit.monodromy()), multiplier)
    assert error < 4e-13
    assert_allclose(orbit.multipliers[:2], [multiplier, multiplier.conjugate()], rtol=0, atol=error)
    # The reset forgets two of the coordinates.
    assert_allclose(orbit.multipliers[2:], 0, atol=1e-13)
    speed, cost = ENERGETICS[push_off, stiffness]
    # Half a unit of the last decimal.
    assert_allclose(step_length(orbit) / orbit.period, speed, rtol=0, atol=6e-10)
    assert_allclose(push_off**2 / (2 * step_length(orbit)), cost, rtol=0, atol=6e-10)
    assert_allclose(powered_walker.objectives["cost_of_transport"](orbit, orbit.params), cost, rtol=0, atol=6e-10)


@pytest.mark.medium
def test_gait_of_given_step_length_and_frequency():
    """Mehdizadeh, Donelan, PLOS ONE 20 (12), e0338501: half a leg's length, period 2."""
    orbit = gait(0.08554806, 1.80309008)
    # Their digits and those of the parameters are good to 1e-7.
    close = dict(rtol=0, atol=1e-7)
    assert_allclose(orbit.x[:2], [0.25268026, -0.33132622], **close)
    assert_allclose([step_length(orbit), orbit.period], [0.5, 2], **close)
    assert_allclose(orbit.multipliers[0], 0.79482002 + 0.27063177j, **close)


@pytest.mark.parametrize("push_off, stiffness", [*KUO, (0.1, 1.0), (0.3, 8.0), (0.01, 4.0)])
def test_a_push_off_restores_what_the_strike_loses(push_off, stiffness):
    orbit = gait(push_off, stiffness)
    theta, theta_rate = orbit.x[:2]
    # On level ground: some roundings of numbers below 1 for a gait solved to 1e-15, twenty times that for the slowest multiplier.
    close = dict(rtol=2e-14, atol=2e-14)
    assert_allclose(orbit.before[0, :2], [-theta, theta_rate], **close)
    assert_allclose(push_off, -theta_rate * np.tan(theta), **close)

    # The push-off's impulse leaves the energy at P^2/2 more, and the strike stops the velocity along the new leg.
    before, params = orbit.before[0], orbit.params
    kinetic = lambda x: x[1] ** 2 / 2
    unpowered = powered_walker.Params(0.0, stiffness, 0.0)
    lost = kinetic(before) - kinetic(powered_walker.heel_strike(0.0, before, unpowered))
    assert_allclose(lost, theta_rate**2 * np.sin(2 * theta) ** 2 / 2, **close)
    velocity = -before[1] * np.array([np.cos(before[0]), np.sin(before[0])])
    pushed = velocity + push_off * np.array([-np.sin(before[0]), np.cos(before[0])])
    assert_allclose(pushed @ pushed / 2 - kinetic(before), push_off**2 / 2, **close)
    after = powered_walker.heel_strike(0.0, before, params)
    across = np.array([np.cos(theta), np.sin(theta)])
    assert_allclose(after[1], -pushed @ across, **close)
    assert_allclose(pushed @ pushed / 2 - kinetic(after), push_off**2 / 2, **close)
    # Work by the hip after the strike, at the same speed: four times as much for small steps, less for long ones.
    assert_allclose(push_off**2 / 2 / lost, 1 / (4 * np.cos(theta) ** 4), rtol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["long_0.009", "short_0.009"])
def test_without_power_it_is_the_simplest_walker(name):
    record = case("B_simplest_walker", name)
    orbit = gait(0.0, 0.0, slope=0.009, guess=jnp.asarray(np.round(record["x0"], 3)))
    # As for the simplest walker: docs/accuracy.md.
    assert_allclose(orbit.x, record["x0"], rtol=0, atol=3e-15)
    assert_allclose(orbit.period, record["T"], rtol=0, atol=5e-14)
    guess = powered_walker.guess(orbit.params)
    if name == "long_0.009":  # a hundredth of the state, which is nearer than the short gait
        assert_allclose(guess[:2], record["x0"][:2], rtol=0.01)


def test_guess_is_near_the_gait():
    """On level ground, over a range of push-offs and stiffnesses."""
    for push_off in (0.02, 0.1, 0.3):
        for stiffness in (0.0, 1.0, 4.0, 16.0):
            orbit = gait(push_off, stiffness)
            assert_allclose(powered_walker.guess(orbit.params)[:2], orbit.x[:2], rtol=0.01)


@pytest.mark.parametrize("model", [powered_walker, two_spring_walker], ids=lambda model: model.title)
@pytest.mark.slow
def test_search_finds_the_gait_of_kuo(model):
    """And the shorter gait, which is unstable."""
    params = model.Params()
    found = hj.find_orbits(model.step, params, region=model.region(params))
    assert len(found) == 2
    longer = int(np.argmax(np.asarray(found.period)))
    assert_allclose(found.x[longer, :2], [0.355176363, -0.505195352], rtol=0, atol=6e-10)
    assert list(np.asarray(found.stable)) == [k == longer for k in range(2)]


def two_spring_gait(*values):
    params = two_spring_walker.Params(*values)
    guess = two_spring_walker.guess(params)
    return hj.periodic_orbit(two_spring_walker.step, guess, params)


@pytest.mark.slow
def test_equal_springs_are_one_spring():
    """And unequal ones leave the speed on level ground, which the push-off fixes."""
    one, two = gait(0.04, 0.7), two_spring_gait(0.0, 0.7, 0.7, 0.04)
    params = two.params
    # Other solver steps, each at 1e-14; the period and the multipliers some ten times that.
    assert_allclose(two.x, one.x, rtol=0, atol=1e-14)
    assert_allclose(two.period, one.period, rtol=0, atol=1e-13)
    assert_allclose(two.multipliers, one.multipliers, rtol=0, atol=1e-12)
    cost = two_spring_walker.objectives["cost_of_transport"]
    assert_allclose(cost(two, params), 0.04**2 / (2 * step_length(one)), rtol=1e-13)
    # Two strides: twice the work over twice the distance.
    double = SimpleNamespace(nodes=jnp.concatenate([two.nodes] * 2), strides=2, sequence=two.sequence)
    assert_allclose(cost(double, params), cost(two, params), rtol=1e-15)
    with pytest.raises(ValueError, match=r"sequence ahead, behind; .* sequence behind, ahead"):
        cost(SimpleNamespace(nodes=two.nodes, strides=1, sequence=("ahead", "behind")), params)
    # Where the legs pass, the vector field is continuous: no saltation.
    passing = jnp.array([0.05, -0.3, 0.0, -0.5])
    jump = hj.saltation_matrix(two_spring_walker.system, 0, jnp.zeros(()), passing, params)
    assert_allclose(jump, np.eye(4), rtol=0, atol=1e-15)
    unequal = two_spring_gait(0.0, 2.0, 1.0, 0.1)
    assert_allclose(0.1, -unequal.x[1] * np.tan(unequal.x[0]), rtol=1e-13)


@pytest.mark.medium
def test_a_leg_that_swings_back_has_the_spring_of_its_side():
    """`back` is `behind` under another name; a step is drawn from the strike alone."""
    params = two_spring_walker.Params(stiffness_behind=1.0, stiffness_ahead=3.0)
    x = jnp.array([0.1, -0.3, 0.2, 0.1])
    modes = two_spring_walker.system.modes
    behind, ahead, back = (modes[name].vector_field(0.0, x, params) for name in ("behind", "ahead", "back"))
    assert_allclose(back, behind, rtol=0, atol=0)
    assert_allclose(behind - ahead, [0, 0, 0, 2.0 * 0.2], rtol=1e-14, atol=1e-16)
    strike = jnp.array([-0.2, -0.3, -0.4, 0.0])
    assert_allclose(two_spring_walker.travel("ahead", strike, params), [2 * np.sin(0.2), 0], atol=1e-15)
    assert_allclose(two_spring_walker.travel("behind", strike, params), 0, atol=0)


@pytest.mark.parametrize(
    "name, values",
    [
        ("powered_walker", {"slope": 1.6}),
        ("powered_walker", {"stiffness": -0.1}),
        ("powered_walker", {"push_off": -0.1}),
        ("two_spring_walker", {"slope": -1.6}),
        ("two_spring_walker", {"stiffness_behind": -1.0}),
        ("two_spring_walker", {"stiffness_ahead": -1.0}),
        ("two_spring_walker", {"push_off": -0.1}),
    ],
)
def test_parameters_out_of_range(name, values):
    ((key, value),) = values.items()
    with pytest.raises(ValueError, match=f"{key}={value}"):
        models.load(name).Params(**values)
