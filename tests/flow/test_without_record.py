"""Simulation without a record of its arcs: the numbers of the recorded one, and as many jumps as one likes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pages import cells
from systems import ROLLED

import hyjax as hj
from hyjax.models import bouncing_ball

RESULTS = hj.RESULTS


def drop(q, record, end=2.0, most=40, integrator=ROLLED):
    """A ball dropped from the height q[2], with the restitution q[0] and gravity q[1]."""
    params = bouncing_ball.Params(restitution=q[0], gravity=q[1])
    x0 = jnp.stack([q[2], jnp.zeros(())])
    return hj.simulate(
        bouncing_ball.system,
        x0,
        params,
        mode="flight",
        t1=end,
        max_jumps=most,
        record=record,
        integrator=integrator,
        throw=False,
    )


@pytest.fixture(scope="module")
def both():
    """Balls that bounce often, seldom, and without end, with and without a record, and with their derivatives."""
    q = jnp.array([[0.8, 9.81, 1.0], [0.9, 1.0, 1.0], [0.3, 9.81, 1.0], [0.7, 9.81, 0.2]])
    last = lambda record: lambda q: (lambda run: (run.x, run))(drop(q, record))
    recorded = jax.jit(jax.vmap(jax.jacfwd(last(True), has_aux=True)))(q)
    return recorded, jax.jit(jax.vmap(jax.jacrev(last(False), has_aux=True)))(q)


@pytest.mark.medium
def test_the_end_is_that_of_the_recorded_simulation(both):
    (_, recorded), (_, alone) = both
    assert_array_equal(alone.result._value, recorded.result._value)
    assert len(set(np.asarray(alone.result._value).tolist())) > 1
    for name in ("jumps", "mode"):
        assert_array_equal(getattr(alone, name), getattr(recorded, name))
    # Both take the same steps; compiled in other programs, their operations are rounded differently.
    assert_allclose(alone.t, recorded.t, rtol=1e-13)
    assert_allclose(alone.x, recorded.x, rtol=0, atol=1e-13)
    assert alone.start_times.shape == (4, 0) and alone.x_ends.shape == (4, 0, 2)


@pytest.mark.medium
def test_derivatives_in_reverse_mode(both):
    (recorded, run), (reverse, _) = both
    good = np.asarray(run.result == RESULTS.successful)
    assert good.sum() >= 2
    # The derivative by the restitution grows with each bounce.
    scale = np.abs(recorded).max(axis=(1, 2), keepdims=True)
    assert np.all((np.abs(reverse - recorded) <= 1e-12 * scale)[good])


@pytest.mark.medium
def test_a_hundred_thousand_jumps():
    """An elastic ball; its phase loses a rounding of the time, 2e5, in each jump, and those of the speed add up."""
    jumps, g, h = 100_000, 2.0, 1.0
    fall = np.sqrt(2 * h / g)
    run = drop(jnp.array([1.0, g, h]), False, end=(2 * jumps - 0.5) * fall, most=2 * jumps, integrator=hj.Integrator())
    assert run.result == RESULTS.successful and run.jumps == jumps
    # Half the way up after the last impact, half the time of a fall.
    exact = [h - g / 2 * (0.5 * fall) ** 2, g * 0.5 * fall]
    # Each of the five steps of a flight rounds the speed, 2, by up to 2.2e-16. All flights are alike, and round alike; the phase
    # shifts by jumps^2 of these roundings.
    assert_allclose(run.final, exact, rtol=0, atol=5 * jumps**2 * 2.2e-16)
    assert "100000 jumps, without a record of its arcs" in str(run)
    assert cells(run._repr_html_())[1][1:4] == [f"{float(run.t):.12g}", "flight", ""]


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: run.events,
        lambda run: run.mode_names,
        lambda run: run.sequence,
        lambda run: run.sample(3),
        lambda run: run.fundamental_matrix(),
        lambda run: run.to_xarray(),
    ],
)
def test_what_needs_the_arcs_says_so(ask):
    run = drop(jnp.array([0.8, 9.81, 1.0]), False)
    with pytest.raises(ValueError, match="without a record of its arcs"):
        ask(run)


def test_states_at_given_times_need_the_arcs():
    with pytest.raises(ValueError, match="times= needs the arcs"):
        hj.simulate(
            bouncing_ball.system, jnp.array([1.0, 0.0]), bouncing_ball.Params(), mode="flight", t1=1.0,
            times=jnp.zeros(1), record=False,
        )  # fmt: skip
