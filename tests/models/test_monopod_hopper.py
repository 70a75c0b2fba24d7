"""The monopod hopper against digits of another code, its energy, ground that cannot pull, and the gaits of the thrusting hopper.

`hopper_reference.json`: Taylor series by $\\sqrt{-y_1}$ next to touch-down and lift-off, where the force is no power series in
time; two precisions agree to 2e-31.
"""

import dataclasses
import itertools
import json
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from numpy.testing import assert_allclose
from reference import numbers

import hyjax as hj
from hyjax.models import monopod_hopper as hopper, thrusting_hopper

REFERENCE = json.loads((pathlib.Path(__file__).parents[1] / "hopper_reference.json").read_text())
CASES = [numbers(each) for each in REFERENCE["trajectories"]]
TIMES = 2.5 * np.arange(1, 21)
LONG = hj.Integrator(unroll=False, max_steps=20_000)


def with_work():
    """The hopper with one state more: the work of the ground's force."""

    def working(flow, pushes):
        def rate(t, x, params):
            power = params.toe_mass * hopper.ground_force(x[:4], params) * x[1] if pushes else jnp.zeros_like(x[0])
            return jnp.append(flow(t, x[:4], params), power)

        return rate

    modes = {
        name: hj.Mode(working(mode.vector_field, name == "stance"), (*mode.coordinates, "work"), mode.domain)
        for name, mode in hopper.system.modes.items()
    }
    return hj.HybridSystem(modes, hopper.system.transitions)


@pytest.fixture(scope="module")
def drops():
    """The three sets of the reference, and set 9 on ground that adheres and on ground that does not, as one batch."""
    system = with_work()
    sets = [hopper.table_2(int(case["set"])) for case in CASES] + [hopper.table_2(9, adhesion=a) for a in (1.0, 0.0)]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sets)

    def drop(params):
        x = jnp.append(hopper.start(params)[1], 0.0)
        options = {"t1": 50.0, "max_jumps": 170, "times": jnp.asarray(TIMES), "integrator": LONG}
        return hj.simulate(system, x, params, mode="flight", **options)

    return params, eqx.filter_jit(eqx.filter_vmap(drop))(params)


def test_stiffness_ratios():
    """At rest, and at the source's eq. 29; eigenvalues of matrices of norm 1e3, the least of 1e-3."""
    for name, printed in (("equilibrium", False), ("printed", True)):
        found = [hopper.stiffness_ratio(hopper.table_2(k), printed) for k in range(1, 14)]
        assert_allclose(found, numbers(REFERENCE["stiffness_ratios"][name]), rtol=1e-10)
    for k in range(1, 14):
        params = hopper.table_2(k)
        rest = hopper.equilibrium(params)
        assert np.abs(hopper.stand(0.0, rest, params)).max() < 1e-13
    # Eq. 29 is not rest: what is left of eq. 18, for the nominal set.
    assert hopper.stand(0.0, hopper.equilibrium(hopper.table_2(5), printed=True), hopper.table_2(5))[1] > 1


@pytest.mark.medium
def test_trajectories(drops):
    """Five impacts and fifty: local errors of 1e-14, which each impact on ground 480 times as stiff as the leg makes larger."""
    _, tracked = drops
    assert np.all(tracked.result == hj.RESULTS.successful)
    for lane, case in enumerate(CASES):
        error = 1e-10 if case["set"] == 12 else 1e-12
        samples = tracked.samples.x[lane]
        assert_allclose(samples[:, 0], case["toe"], rtol=0, atol=error)
        assert_allclose(samples[:, 2], case["body"], rtol=0, atol=error)
        assert_allclose(tracked.x[lane, :4], case["end"], rtol=0, atol=error)
        assert tracked.jumps[lane] == case["impacts"] + case["lift_offs"]
        assert_allclose(tracked.end_times[lane, tracked.jumps[lane] - 1], case["last_event"], rtol=0, atol=error)


@pytest.mark.medium
def test_the_ground_takes_the_energy(drops):
    """The work of its force is the change of energy, on both kinds of ground."""
    params, tracked = drops
    for lane in range(len(tracked.t)):
        each = jax.tree.map(lambda leaf: leaf[lane], params)  # noqa: B023
        lost = hopper.energy(tracked.x[lane, :4], each) - hopper.energy(hopper.start(each)[1], each)
        assert lost < 0
        assert_allclose(tracked.x[lane, 4], lost, rtol=0, atol=1e-10 * abs(float(lost)))


@pytest.mark.medium
def test_ground_that_cannot_pull(drops):
    """A toe is released where the force vanishes: states at the ends of stance, and the fall of set 9 by SciPy's DOP853."""
    params, tracked = drops
    each = jax.tree.map(lambda leaf: leaf[4], params)
    modes, count = np.asarray(tracked.modes[4]), int(tracked.jumps[4])
    ends = np.asarray(tracked.x_ends[4])[:count]
    names = hopper.system.names
    sequence = [names[k] for k in modes[: count + 1]]
    assert "released" in sequence and sequence.count("released") < sequence.count("stance")
    for number, (mode, after) in enumerate(itertools.pairwise(sequence)):
        if (mode, after) == ("stance", "released"):
            # The force is zero, by the speed, under the height zero.
            assert ends[number, 0] < -1e-4 and abs(hopper.push(0.0, ends[number], each)) < 1e-10
    # With ground that adheres the first release is a pull.
    adhering = np.asarray(tracked.x_ends[3])[1]
    assert hopper.push(0.0, adhering, each) < 0

    # One field across touch-down and release, whose kinks the steps of 1e-2 at most resolve to some 1e-10.
    end = 10.0
    assert any(
        mode == "released" and end > start
        for mode, start in zip(sequence, np.asarray(tracked.start_times[4]), strict=False)
    )
    b, m, k, f = hopper.TABLE_2[8]
    leg = hopper.FULL - m

    def plain(t, x):
        depth = max(-x[0], 0.0)
        force = depth**1.5 * max(leg * k - b * x[1], 0.0)
        c = 1 + x[0] - x[2]
        return [x[1], -leg * c - f + force, x[3], m * c - f]

    other = scipy.integrate.solve_ivp(
        plain,
        (0, end),
        [0.5, 0, 1.5, 0],
        method="DOP853",
        rtol=1e-12,
        atol=1e-13,
        max_step=1e-2,
        t_eval=TIMES[:4],
    )
    assert_allclose(tracked.samples.x[4, : len(other.t), :4], other.y.T, rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def hop():
    """With the damping of set 9, at which ground that adheres would pull at every lift-off."""
    params, sequence = thrusting_hopper.Params(damping=19275.0, adhesion=0.0), (*thrusting_hopper.sequence, "released")
    guess, rolled = jnp.array([0.0, 0.1110, 1.0187, 0.1079]), hj.Integrator(unroll=False)
    return hj.periodic_orbit(hj.ReturnMap(thrusting_hopper.system, sequence=sequence, integrator=rolled), guess, params)


@pytest.mark.slow
def test_the_thrust_gives_what_the_ground_takes(hop):
    """Energy around the gait: each switch of the leg's length changes it, and the ground's work, an integral along the orbit."""
    params = hop.params
    _, switch, lift_off = (ends[0] for ends in hop.arc_ends[:3])
    stretch = lambda x: hopper.energy(x, params, params.thrust) - hopper.energy(x, params)
    given = stretch(switch) - stretch(lift_off)
    power = lambda t, x, p: p.toe_mass * hopper.ground_force(x, p) * x[1]
    taken = hj.objectives.integral({"stance": power, "thrust": power})(hop, params)
    assert taken < 0 < given
    # Energies of size 1, whose differences are some hundredths.
    assert_allclose(given + taken, 0, atol=1e-12)
    # The flight is undamped, its multipliers come from stance: the ground takes all but one direction.
    assert abs(hop.multipliers[0]) < 1 and np.all(np.abs(hop.multipliers[1:]) < 1e-3)


def followed(gait, name, end):
    """The gait at another value of a parameter, from gait to gait."""
    for value in np.linspace(getattr(gait.params, name), end, 9)[1:]:
        params = dataclasses.replace(gait.params, **{name: value})
        gait = hj.periodic_orbit(
            hj.ReturnMap(gait.system, sequence=gait.sequence, integrator=gait.integrator), gait.x, params
        )
    return gait


@pytest.mark.slow
def test_corner_of_the_hop(hop):
    """Where the leg begins stance with the rate of its greatest compression: the damping is that of the model's docstring."""
    start, corner = float(hop.params.damping), 21907.942762
    rate_at = lambda gait: thrusting_hopper.closing_rate(0.0, gait.arc_ends[0][0], gait.params)
    # Just before the corner, by more than its digits: the rate, of size 0.1, falls to zero with the distance.
    near = followed(hop, "damping", corner + 1e-6 * (start - corner))
    assert abs(rate_at(hop)) > 1e-2
    assert_allclose(rate_at(near), 0, atol=1e-6)


# Start just after touch-down, period, and the damping at which the hop doubles its period.
STABLE_HOPS = [
    ((0.0, 0.038606, 1.014473, 0.093234), 6.936491759, 3144.415188),
    ((0.0, 0.046872, 1.015449, 0.118708), 7.749694089, 2241.075425),
    ((0.0, 0.093806, 1.021689, 0.277717), 13.430878896, 3759.481952),
]


@pytest.mark.slow
def test_stable_hops_side_by_side_and_the_doubling_of_one():
    rolled, params = hj.Integrator(unroll=False), thrusting_hopper.Params()
    for x, period, _ in STABLE_HOPS:
        gait = hj.periodic_orbit(
            hj.ReturnMap(thrusting_hopper.system, sequence=thrusting_hopper.sequence, integrator=rolled),
            jnp.asarray(x),
            params,
        )
        assert gait.spectral_radius < 1
        assert_allclose(gait.period, period, rtol=1e-9)
    # The damping is known to 5e-7, of which the multiplier moves by less than a hundredth.
    assert_allclose(followed(gait, "damping", STABLE_HOPS[-1][-1]).multipliers[0], -1, atol=5e-9)
