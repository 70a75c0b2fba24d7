"""Contacts of one body whose events fall together and whose order matters: one jump, by the laws of all contacts at once."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import code_of_state, torn
from hyjax.contact import Contact, contact_system, Mechanism

INERTIA, LIFTS, REBOUNDS = range(3)


def rod():
    """A rod of mass 1 under the weight 1 and a force that grows with time, its ends above a floor."""
    end = lambda side: Contact(lambda t, q, p: q[0] + side * q[1], restitution=lambda p: p[REBOUNDS])
    forces = lambda t, q, v, p: jnp.stack([p[LIFTS] * t - 1.0, 0 * t])
    bodies = Mechanism(lambda q, p: jnp.diag(jnp.stack([jnp.ones(()), p[INERTIA]])), forces)
    return contact_system(bodies, {"left": end(-1), "right": end(1)}, ("y", "angle"))


@pytest.fixture(scope="module")
def runs():
    """Runs of a batch: numbers, and their derivatives by the first height."""
    system, integrator = rod(), hj.Integrator(rtol=1e-12, atol=1e-12, unroll=False)

    def run(x, params, t1):
        def ends(y):
            found = hj.simulate(
                system, x.at[0].set(y), params, mode="contacts", t1=t1, max_jumps=9, integrator=integrator, throw=False
            )
            return found.x, (found.t, found.jumps, found.result._value)

        x, slope, (t, jumps, code) = jax.jvp(ends, (x[0],), (jnp.ones(()),), has_aux=True)
        return t, x, slope, jumps, code

    # Falls flat and bounces; rests, and is lifted at both ends; falls flat and rests, twice; NaN; has not fallen yet.
    falls, rests = [0.5, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]
    x0 = np.array([falls, rests, falls, falls, 6 * [np.nan], falls])
    params = np.array([[3.0, 0, 0.5], [3.0, 1, 0], [3.0, 0, 0], [0.5, 0, 0], [3.0, 0, 0.5], [3.0, 0, 0.5]])
    t1 = np.array([1.5, 1.5, 3.0, 3.0, 1.5, 0.5])
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(*map(jnp.asarray, (x0, params, t1))))


GOOD = [0, 1, 2, 3, 5]


@pytest.mark.slow
def test_both_ends_at_once(runs):
    """In closed form. One after the other the first end of a rod with the inertia 3 would bounce by 0.25 alone, and turn it; with
    the inertia 0.5 both orders of plastic impacts end at rest."""
    t, x, _, jumps, code = runs
    assert list(code[GOOD]) == 5 * [hj.RESULTS.successful._value] and code[4] != code[0]
    assert list(jumps[GOOD]) == [1, 1, 1, 2, 0]
    # The apex of a bounce at half the speed 1; a force that is (t - 1) after the lift; rest; free fall.
    rest, fall = [0, 0, 0, 0, 1, 1], [3 / 8, 0, -1 / 2, 0, 0, 0]
    expected = [[1 / 8, 0, 0, 0, 0, 0], [1 / 48, 0, 1 / 8, 0, 0, 0], rest, rest, fall]
    assert_allclose(x[GOOD], expected, rtol=0, atol=1e-11)
    assert_allclose(t[GOOD], [1.5, 1.5, 3.0, 3.0, 0.5], rtol=1e-15)


@pytest.mark.slow
def test_derivatives_past_events_whose_order_matters_do_not_exist(runs):
    """Rods that are tilted either way take the events one after another, and end elsewhere."""
    slope = runs[2]
    assert np.all(np.isnan(slope[:3, :4]))
    assert_allclose(slope[[3, 5], :4], [4 * [0], [1, 0, 0, 0]], rtol=0, atol=1e-14)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_state_that_is_torn(mode):
    z = jnp.array([1.0, -2.0, 0.0])
    assert torn(z, jnp.array(True)).tolist() == z.tolist()
    slopes = jax.vmap(lambda where: mode(lambda z: torn(z, where))(z))(jnp.array([True, False]))
    assert np.all(np.isnan(np.diag(slopes[0])))
    assert_allclose(slopes[1], np.eye(3), rtol=0, atol=0)


def balls(order):
    """Three equal balls in a row, of unit diameter, with the contacts in an order."""
    gaps = {"ab": (0, 1), "bc": (1, 2)}
    contact = lambda one, other: Contact(lambda t, q, p: q[other] - q[one] - 1.0, restitution=lambda p: p)
    contacts = {name: contact(*gaps[name]) for name in order}
    return contact_system(Mechanism(lambda q, p: jnp.eye(3)), contacts, ("a", "b", "c"))


@pytest.mark.parametrize("restitution", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("speeds", [(1.0, 0.0, -1.0), (2.0, 0.0, -1.0)])
def test_a_ball_struck_from_both_sides(restitution, speeds):
    """Newton's law at both gaps with the momentum, whatever contact is named first, and up to rounding of the gaps."""
    found, v = [], np.array(speeds)
    for order, off in itertools.product((("ab", "bc"), ("bc", "ab")), (0.0, 1e-16, -2e-16)):
        change = balls(order).transitions[0].reset.__self__.change_together
        x = jnp.array([0.0, 1.0 + off, 2.0, *speeds, 0.0, 0.0])
        after = jax.jit(change)(jnp.zeros(()), x, jnp.array(restitution), jnp.array([True, True]))
        found.append(np.asarray(after[3:6]))
    rates = np.array([[-1, 1, 0], [0, -1, 1], [1, 1, 1]])
    expected = np.linalg.solve(rates, rates @ v * [-restitution, -restitution, 1])
    assert_allclose(found, np.tile(expected, (6, 1)), rtol=0, atol=1e-14)


def test_what_strikes_at_once_leads_to_the_set_that_a_sequence_names():
    """A rod that falls flat and bounces does not reach the set in which both ends rest."""
    names = ("left:open+right:open[0]", "left:closed+right:closed[0]")
    reset = hj.ReturnMap(rod(), sequence=names).system.transitions[0].reset
    x, both = jnp.array([0.0, 0, -1, 0, 0, 0]), jnp.array([True, True])
    change = jax.jit(reset.__self__.change_together)
    after = [change(jnp.zeros(()), x, jnp.array([3.0, 0, e]), both) for e in (0.0, 0.5)]
    assert_allclose(after[0], [0, 0, 0, 0, 1, 1], rtol=0, atol=1e-14)
    assert code_of_state(after[1]) == hj.RESULTS.unexpected_transition


def test_a_state_in_which_both_ends_strike_is_placed_after_one_impact():
    """One end alone would turn the rod, the other way with the contacts in the other order."""
    placed = jax.jit(rod().modes["contacts"].domain.placed)
    after = placed(jnp.zeros(()), jnp.array([0.0, 0, -1, 0, 0, 0]), jnp.array([3.0, 0, 0.5]))
    assert_allclose(after, [0, 0, 0.5, 0, 0, 0], rtol=0, atol=1e-14)
