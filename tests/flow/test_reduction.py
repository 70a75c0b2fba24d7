"""`simulate(record=(start, add))`: a value to which each jump adds, in place of the arcs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import network
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import bouncing_ball as ball

NEURONS, DRIVE = network(4), jnp.array(1.2)
V0 = jnp.array([0.0, 0.3, 0.5, 0.8])
START = {"spikes": jnp.zeros(4, int), "last": jnp.zeros(()), "area": jnp.zeros(())}


def count(value, event):
    """Spikes of each neuron; the time of the last one; and the sum of the others' voltages just before each."""
    return {
        "spikes": value["spikes"].at[event.index].add(1),
        "last": event.t,
        "area": value["area"] + jnp.sum(event.before) - event.before[event.index],
    }


def ran(v0=V0, drive=DRIVE, record=True, t1=9.0, max_jumps=24, **options):
    return hj.simulate(
        NEURONS, v0, drive, mode="network", t1=t1, max_jumps=max_jumps, integrator=ROLLED, record=record, **options
    )


@pytest.fixture(scope="module")
def whole():
    return ran()


@pytest.mark.medium
def test_the_value_is_that_of_the_events(whole):
    found = ran(record=(START, count))
    events = whole.events
    assert len(events) > 12 and int(found.jumps) == len(events) and found.start_times.size == 0
    assert found.recorded["spikes"].tolist() == np.bincount([event.index for event in events], minlength=4).tolist()
    assert found.recorded["last"] == whole.end_times[len(events) - 1]
    area = sum(float(jnp.sum(event.before) - event.before[event.index]) for event in events)
    assert_allclose(found.recorded["area"], area, rtol=1e-13)
    assert np.array_equal(found.x, whole.x) and whole.recorded is None


@pytest.mark.medium
def test_derivatives_of_the_value(whole):
    """Of the sum, by the drive: in both modes, against that of the recorded states."""

    def of_value(drive):
        return ran(drive=drive, record=(START, count)).recorded["area"]

    def of_arcs(drive):
        run = ran(drive=drive)
        there = run.indices >= 0
        own = jnp.take_along_axis(run.x_ends, jnp.maximum(run.indices, 0)[:, None], axis=1)[:, 0]
        return jnp.sum(jnp.where(there, jnp.sum(run.x_ends, axis=1) - own, 0))

    exact = jax.grad(of_arcs)(DRIVE)
    assert_allclose(jax.grad(of_value)(DRIVE), exact, rtol=1e-10)
    assert_allclose(jax.jacfwd(of_value)(DRIVE), exact, rtol=1e-10)


@pytest.mark.medium
def test_lanes_and_failures():
    """Each lane has its value; a lane that fails keeps the value up to there."""
    both = jax.vmap(lambda v0: ran(v0, record=(START, count), max_jumps=5, throw=False))(
        jnp.stack([V0, jnp.full(4, jnp.nan)])
    )
    assert both.recorded["spikes"].sum(axis=1).tolist() == [5, 0]
    assert (both.result == hj.RESULTS.max_jumps_reached).tolist() == [True, False]
    assert (both.result == hj.RESULTS.nonfinite).tolist() == [False, True]


def test_transitions_are_numbers():
    """The largest speed of a ball after a bounce, and the transition of the last bounce: an index into `system.transitions`."""
    params, x0 = ball.Params(), jnp.array([1.0, 0.0])
    run = hj.simulate(
        ball.system, x0, params, mode="flight", t1=1.0, integrator=ROLLED,
        record=((jnp.zeros(()), jnp.array(-1)), lambda value, event: (jnp.maximum(value[0], event.after[1]), event.transition)),
    )  # fmt: skip
    speed, transition = run.recorded
    assert_allclose(speed, 0.8 * np.sqrt(2 * 9.81), rtol=1e-12)
    assert transition == 0


@pytest.mark.parametrize(
    "record, message",
    [
        ((jnp.zeros(()),), r"a pair \(start, add\)"),
        ("all", r"a pair \(start, add\)"),
        ((jnp.zeros(()), lambda value, event: event.before), "must return what it is given"),
        ((jnp.zeros(2), lambda value, event: value.astype(int)), "must return what it is given"),
    ],
)
def test_what_is_refused(record, message):
    with pytest.raises(ValueError, match=message):
        ran(record=record)


def test_times_need_the_arcs():
    with pytest.raises(ValueError, match="times= needs the arcs"):
        ran(record=(START, count), times=jnp.array([1.0]))
