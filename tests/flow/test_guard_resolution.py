"""Steps short enough for their guards: the cheap condition, and limits of a domain that a guard covers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import coarseness, GuardValues, hidden_turn, may_be_coarse
from hyjax.contact import Contact, contact_system, lagrangian


def test_a_cheap_condition_of_coarse_steps():
    """On 20 000 random cubics, half of them with an end on the surface: no coarse step is overlooked, and of those that are not
    coarse two thirds are told apart."""
    random = np.random.default_rng(0)
    g, r = random.normal(size=(2, 20_000, 1)) + 1.5, random.normal(size=(2, 20_000, 1))
    g[1, :5000], g[0, 5000:10_000] = 1e-9 * random.normal(size=(2, 5000, 1))
    looks = [
        GuardValues(jnp.full(20_000, dt), *map(jnp.asarray, each)) for dt, *each in zip((0.0, 0.5), g, r, strict=True)
    ]
    error = jnp.asarray(10.0 ** random.uniform(-4, 1, size=(20_000, 1)))
    coarse = np.asarray(jax.vmap(coarseness)(*looks, error)) > 1
    suspected = np.asarray(jax.vmap(may_be_coarse)(*looks, error))
    assert coarse.sum() > 1000 and (~coarse).sum() > 1000
    assert np.all(suspected[coarse]) and np.mean(suspected[~coarse]) < 1 / 3
    assert not np.any(jax.vmap(may_be_coarse)(*looks, 0 * error))


def test_turns_of_a_covered_limit_are_not_looked_for():
    """A guard that dips below zero, and one that touches it, within a step."""
    no_noise, up = jnp.zeros(2), jnp.array([True, True])
    start = GuardValues(jnp.array(0.0), jnp.array([0.2, 0.25]), jnp.array([-1.0, -1.0]))
    end = GuardValues(jnp.array(1.0), jnp.array([0.2, 0.25]), jnp.array([1.0, 1.0]))
    for seen in ([True, True], [True, False], [False, True], [False, False]):
        turns, _, when, there = hidden_turn(start, up, end, jnp.array(seen), no_noise, jnp.full(2, 1e-15))
        assert bool(turns) == any(seen) and not there.any()
        assert when == (0.5 if any(seen) else 1)


@pytest.mark.medium
def test_the_kink_of_a_covered_limit_costs_no_steps():
    """A ball leaves the floor: its gap and the rate of its gap, of which the domain takes the larger, become equal on the way."""
    floor = Contact(lambda t, q, p: q[0], restitution=0.5)
    system = contact_system(lagrangian(lambda q, v, p: v @ v / 2 - q[0]), floor, coordinates=("q",))
    rise = eqx.filter_jit(lambda system, v: hj.flow_to_guard(system, "V", 0.0, jnp.array([0.0, v]), None))
    plain = hj.HybridSystem(
        {
            "V": hj.Mode(lambda t, x, p: jnp.array([x[1], -1.0]), ("q", "v")),
            "U": hj.Mode(lambda t, x, p: x, ("q", "v")),
        },
        (hj.Transition("V", "U", lambda t, x, p: x[1], lambda t, x, p: x),),
    )
    for v in (0.05, 1.0):
        apex, alone = rise(system, v), rise(plain, v)
        np.testing.assert_allclose(apex.x, [v**2 / 2, 0], rtol=1e-14, atol=1e-15)
        assert apex.steps == alone.steps
