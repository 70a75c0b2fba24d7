"""The return map as a value: iterated, of a sequence and of a section, and the orbits of either."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import bouncing_ball as ball, rimless_wheel as wheel

PARAMS = wheel.Params()
STEP = hj.ReturnMap(wheel.system, sequence=("stance",), integrator=ROLLED)
UPRIGHT = hj.ReturnMap(
    wheel.system, section=hj.Section("stance", lambda t, x, p: -x[0]), max_jumps=3, integrator=ROLLED
)
GUESS = wheel.guess(PARAMS)


@pytest.fixture(scope="module")
def orbit():
    return hj.periodic_orbit(STEP, GUESS, PARAMS)


@pytest.mark.medium
@pytest.mark.parametrize("step", [STEP, UPRIGHT])
def test_a_map_iterated(step):
    """Two passes at once are two passes: state, time and Jacobian; the jumps of a section in their order."""
    x, jacobian, time, taken = GUESS, np.eye(2), 0.0, []
    for _ in range(2):
        jacobian = np.asarray(step.jacobian(x, PARAMS)) @ jacobian
        once = step(x, PARAMS)
        x, time = once.x, time + once.time
        taken += [k for k in getattr(once, "transitions", ()) if k >= 0]
    twice = step.repeated(2)
    assert twice.strides == 2 and twice.repeated(3).strides == 6
    after = twice(GUESS, PARAMS)
    assert after.result == "successful"
    assert_allclose(after.x, x, rtol=1e-13, atol=1e-15)
    assert_allclose(after.time, time, rtol=1e-14)
    # The tangents of one program and of two: rounding, times the growth of the map.
    assert_allclose(twice.jacobian(GUESS, PARAMS), jacobian, rtol=1e-11, atol=1e-13)
    if step.sequence is None:
        assert int(after.jumps) == len(taken) == 1
        assert [int(k) for k in after.transitions[:1]] == taken and np.all(np.asarray(after.transitions[1:]) == -1)


@pytest.mark.medium
def test_a_stroboscope_iterated():
    """A ball that bounces: two seconds are a second twice."""
    step = hj.ReturnMap(ball.system, section=hj.Stroboscope("flight", 1.0), max_jumps=4, integrator=ROLLED)
    params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    once = step(x0, params)
    again, twice = step(once.x, params, once.time), step.repeated(2)(x0, params)
    assert_allclose(twice.x, again.x, rtol=1e-12)
    assert float(twice.time) == 2.0 and int(twice.jumps) == int(once.jumps) + int(again.jumps)
    # Of a flow at fixed times the Jacobian is the monodromy matrix.
    assert np.array_equal(step.monodromy(x0, params), step.jacobian(x0, params))


@pytest.mark.medium
def test_the_orbit_of_a_section_is_that_of_the_sequence(orbit):
    """The wheel upright: the period and the multiplier of the orbit from strike to strike; by Newton's method on the section."""
    at = UPRIGHT(orbit.x, PARAMS).x
    found = hj.periodic_orbit(UPRIGHT, at + jnp.array([0.0, 0.03]), PARAMS)
    assert found.sequence == ("stance from the section", "stance")
    assert_allclose(found.period, orbit.period, rtol=1e-11)
    assert_allclose(found.multipliers[0], orbit.multipliers[0], rtol=1e-9)
    assert_allclose(found.x, at, rtol=0, atol=1e-10)
    assert 0.001 < found.distance < 0.1
    # Its map begins and ends on the section.
    assert_allclose(found.step(found.x, PARAMS, throw=False).x, found.x, rtol=0, atol=1e-10)
    far = hj.periodic_orbit(UPRIGHT, at + jnp.array([0.0, 0.03]), PARAMS, near=1e-6, throw=False)
    assert far.result == "far_from_guess" and np.all(np.isnan(far.x)) and far.distance == found.distance
    with pytest.raises(hj.SolveError) as raised:
        hj.periodic_orbit(UPRIGHT, jnp.array([0.1, -2.0]), PARAMS)
    assert raised.value.codes and str(raised.value).startswith("periodic_orbit: ")


@pytest.mark.medium
def test_an_orbit_knows_its_map(orbit):
    assert orbit.step.sequence == ("stance",) and orbit.step.strides == 1
    assert_allclose(orbit.step(orbit.x, PARAMS).x, orbit.x, rtol=0, atol=1e-14)
    assert np.array_equal(orbit.monodromy(), STEP.monodromy(orbit.x, PARAMS))
    orbits = hj.find_orbits(STEP, PARAMS, region=wheel.region(PARAMS))
    assert len(orbits) == 1 and orbits.sequences == (("stance",),) and len(list(orbits)) == 1
    assert_allclose(orbits[0].x, orbit.x, rtol=0, atol=1e-13)
    assert np.array_equal(orbits.of(("stance",)).x, orbits.x) and len(orbits[orbits.stable]) == 1
    assert len(orbits[~orbits.stable]) == 0 and orbits.period.shape == (1,)
    with pytest.raises(KeyError):
        orbits.of(("swing",))
    none = dataclasses.replace(orbits, batches=())
    assert len(none) == 0
    with pytest.raises(AttributeError, match="0 sequences"):
        none.period  # noqa: B018


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: hj.ReturnMap(wheel, sequence=("stance",)), "must be a hj.HybridSystem"),
        (lambda: hj.ReturnMap(wheel.system), "not neither"),
        (lambda: hj.ReturnMap(wheel.system, sequence=("stance",), section=UPRIGHT.section), "not both"),
        (lambda: hj.ReturnMap(wheel.system, sequence=("swing",)), "'swing' is not one of the modes"),
        (
            lambda: hj.ReturnMap(wheel.system, section=hj.Section("swing", lambda t, x, p: x[0])),
            "section's mode 'swing'",
        ),
        (lambda: hj.ReturnMap(wheel.system, section="stance"), "must be a hj.Section"),
        (lambda: hj.ReturnMap(wheel.system, sequence=("stance",), strides=0), "strides=0 must be an integer"),
        (lambda: hj.ReturnMap(wheel.system, sequence=("stance",), max_jumps=-1), "max_jumps=-1 must be an integer"),
        (lambda: STEP.repeated(0), "times=0 must be an integer of at least 1"),
        (lambda: UPRIGHT.monodromy(GUESS, PARAMS), "give the sequence of modes"),
        (lambda: hj.periodic_orbit(wheel.system, GUESS, PARAMS), "must be a hj.ReturnMap"),
        (lambda: hj.find_orbits(STEP, PARAMS, region=wheel.region(PARAMS), max_starts=0), "max_starts=0"),
        (lambda: jax.jit(lambda x: hj.periodic_orbit(UPRIGHT, x, PARAMS).x)(GUESS), "cannot be under jit"),
        (
            lambda: hj.basin(UPRIGHT.repeated(2), PARAMS, axes={"theta": [0.1], "theta_rate": [0.8]}),
            "iterated pass by pass",
        ),
    ],
)
def test_misuse(build, message):
    with pytest.raises(ValueError, match=message):
        build()
