"""How far an orbit is from its guess, and the error of a search that failed: on a spring that bounces, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from systems import SPRING, spring, spring_orbit

import hyjax as hj

RESULTS = hj.RESULTS
V = float(spring_orbit(SPRING)[0])


def orbit(v, p=SPRING, **options) -> hj.PeriodicOrbit:
    return hj.periodic_orbit(hj.ReturnMap(spring, sequence=("free",)), jnp.stack([jnp.ones(()), v]), p, **options)


STARTS = V * jnp.array([0.5, 1.001, 1.0, 2.0])


def batch(near=jnp.inf, v=STARTS, r=-0.8, throw=False) -> hj.PeriodicOrbit:
    """Four lanes: one compiled program."""
    run = lambda v, r: orbit(v, SPRING | {"r": r}, near=near, throw=throw)
    return jax.vmap(run)(v, jnp.broadcast_to(r, v.shape))


@pytest.mark.medium
def test_distance_from_the_guess():
    """Relative to the largest component of either, one number for each lane."""
    ratios = np.asarray(STARTS) / V
    exact = np.abs(ratios - 1) * V / np.maximum(np.maximum(ratios, 1) * V, 1)
    assert_allclose(batch().distance, exact, rtol=1e-12, atol=1e-14)


@pytest.mark.medium
def test_an_orbit_far_from_its_guess():
    far, good = RESULTS.far_from_guess._value, RESULTS.successful._value
    found, free = batch(near=0.01), batch()
    assert_array_equal(found.result._value, [far, good, good, far])
    assert_array_equal(np.isnan(found.x[:, 1]), [True, False, False, True])
    # The code says that there is an orbit, and `distance` how far away it is.
    assert_array_equal(found.distance, free.distance)
    # The other lanes are those of an unlimited search.
    assert_array_equal(found[1:3].multipliers, free[1:3].multipliers)
    with pytest.raises(hj.SolveError, match="far_from_guess"):
        orbit(STARTS[0], near=0.01)
    with pytest.raises(ValueError, match=r"near=-1\.0 must not be negative"):
        orbit(STARTS[0], near=-1.0)


# A bounce that gains energy: there is no orbit.
NO_ORBIT = SPRING | {"r": jnp.array(-1.5)}


def test_one_message_for_a_search_that_failed():
    with pytest.raises(hj.SolveError) as raised:
        orbit(V, NO_ORBIT)
    text = str(raised.value)
    for part in ("periodic_orbit: ", "residual", "iteration", "x = [", "throw=False", "find_orbits", "nearer"):
        assert part in text
    assert RESULTS[orbit(V, NO_ORBIT, throw=False).result] in text
    # One error, of this call: nothing is chained to it.
    assert raised.value.__cause__ is None and raised.value.__context__ is None
    assert raised.traceback[-1].path.name == "failure.py" and len(text.splitlines()) <= 5


@pytest.mark.medium
def test_the_message_of_a_batch_names_its_lanes():
    r = jnp.array([-0.8, -1.5, -0.7, -1.6])
    with pytest.raises(hj.SolveError, match="2 of 4 lanes") as raised:
        batch(r=r, throw=True)
    text = str(raised.value)
    assert "lane 1:" in text and "lane 3:" in text and "lane 0:" not in text


@pytest.mark.medium
def test_derivatives_and_failures():
    """`distance` has none, and changes none; a failure under `grad` has the same message."""

    def period(r):
        found = orbit(V, SPRING | {"r": r})
        return found.period + 1e3 * found.distance

    slopes = jax.vmap(jax.grad(period))
    r = jnp.array([-0.8, -0.7, -0.6, -0.5])
    assert_allclose(slopes(r), jax.vmap(jax.grad(lambda r: spring_orbit(SPRING | {"r": r})[1]))(r), rtol=1e-12)
    with pytest.raises(hj.SolveError, match="lane 1:"):
        slopes(jnp.array([-0.8, -1.5, -0.7, -0.6]))


@pytest.mark.slow
def test_failures_under_jit():
    """The numbers are not known in advance: equinox's error, with the message of the code."""
    with pytest.raises(Exception, match=r"guard|Newton") as raised:
        jax.jit(lambda r: orbit(V, SPRING | {"r": r}).period)(-1.5).block_until_ready()
    assert not isinstance(raised.value, hj.SolveError)


@pytest.mark.medium
def test_strides_that_shrink_to_no_duration():
    """A ball that loses energy has no periodic orbit but rest, which lasts no time; a state at rest that lasts is an orbit."""
    fall = lambda t, x, p: jnp.stack([x[1], -jnp.ones_like(x[0]), 1 + 0 * x[0]])
    ball = hj.HybridSystem(
        {"flight": hj.Mode(fall, ("y", "y_rate", "age"))},
        (
            hj.Transition(
                "flight", "flight", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([0 * x[0], -p * x[1], 0 * x[2]])
            ),
        ),
    )
    decay = lambda t, x, p: jnp.stack([-x[0], jnp.ones_like(x[0])])
    clock = hj.HybridSystem(
        {"on": hj.Mode(decay, ("x", "tau"))},
        (hj.Transition("on", "on", lambda t, x, p: 1 - x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]])),),
    )
    bounce = lambda e: hj.periodic_orbit(
        hj.ReturnMap(ball, sequence=("flight",)), jnp.array([0.0, 5.0, 0.0]), e, throw=False
    )
    found = jax.vmap(bounce)(jnp.array([0.5, 0.999]))
    assert_array_equal(found.result._value, RESULTS.zeno._value)
    assert np.all(np.isnan(found.period))
    rest = hj.periodic_orbit(hj.ReturnMap(clock, sequence=("on",)), jnp.array([0.1, 0.0]), None)
    assert_allclose([*rest.x, rest.period], [0, 0, 1], rtol=1e-13, atol=1e-15)
