"""Impacts of a leg whose foot strikes the ground, with friction, while its knee is at a stop, under JAX's transformations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj

pytest.importorskip("mujoco")
LEG = """<mujoco><compiler angle="radian"/><worldbody><geom type="plane" size="9 9 1" friction="0.6"/>
  <body><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide"/>
    <inertial pos="0 0 0" mass="3" diaginertia="0.1 0.1 0.1"/>
    <body><joint name="hip" axis="0 1 0"/><inertial pos="0 0 -0.2" mass="1" diaginertia="0.02 0.02 0.02"/>
      <body pos="0 0 -0.4"><joint name="knee" axis="0 1 0" range="0 2"/>
        <inertial pos="0 0 -0.2" mass="0.7" diaginertia="0.01 0.01 0.01"/><site name="foot" pos="0 0 -0.4"/></body>
    </body>
  </body></worldbody></mujoco>"""
LANES = 400


@pytest.fixture(scope="module")
def leg():
    robot = hj.robots.from_mujoco(LEG, contacts=["foot", "knee"])
    assert list(robot.contacts) == ["foot", "knee_lower", "knee_upper"]
    return robot, hj.contact.contact_system(robot.mechanism, robot.contacts, robot.coordinates)


@pytest.fixture(scope="module")
def strikes(leg):
    """States whose foot is on the ground or whose knee is at its stop, or both, and closing there."""
    robot, _ = leg
    rng, now = np.random.default_rng(0), jnp.zeros(())
    at_stop = rng.random(LANES) < 0.6
    on_ground = ~at_stop | (rng.random(LANES) < 0.6)
    q = np.zeros((LANES, 4))
    q[:, 2] = rng.uniform(-0.8, 0.8, LANES)
    q[:, 3] = np.where(at_stop, 0, rng.uniform(0.1, 1.5, LANES))
    foot = jax.jit(jax.vmap(lambda q: robot.contacts["foot"].gap(now, q, robot.params)))
    q[:, 1] = -np.asarray(foot(jnp.asarray(q))) + np.where(on_ground, 0, 0.1)
    v = rng.normal(size=(LANES, 4))
    gaps = lambda q: jnp.stack([contact.gap(now, q, robot.params) for contact in robot.contacts.values()])
    rates = jax.jit(jax.vmap(lambda q, v: jax.jvp(gaps, (q,), (v,))[1]))
    near = np.stack([on_ground, at_stop, np.zeros(LANES, bool)], axis=1)
    falls = near & (np.asarray(rates(jnp.asarray(q), jnp.asarray(v))) < 0)
    some = np.any(falls, axis=1)
    x = np.concatenate([q, v, np.zeros((LANES, 3))], axis=1)[some]
    # The faces of the foot's cone are no events here.
    fallen = np.pad(falls[some], ((0, 0), (0, 2)))
    return x, fallen, rates


@pytest.fixture(scope="module")
def change(leg):
    _, system = leg
    together = system.transitions[0].reset.__self__.change_together
    return jax.jit(
        jax.vmap(lambda x, fallen, params: together(jnp.zeros(()).astype(x.dtype), x, params, fallen), (0, 0, None))
    )


def test_energy_never_grows_and_nothing_goes_on_closing(leg, strikes, change):
    robot, _ = leg
    x, fallen, rates = strikes
    after = np.asarray(change(x, fallen, robot.params))
    assert np.all(np.isfinite(after)) and np.all(np.count_nonzero(fallen, axis=1).max() == 2)
    kinetic = jax.jit(jax.vmap(lambda x: x[4:8] @ robot.mass(x[:4], robot.params) @ x[4:8] / 2))
    before, left = kinetic(jnp.asarray(x)), kinetic(jnp.asarray(after))
    assert np.all(left <= before * (1 + 1e-12)) and np.mean(left < 0.999 * before) > 0.7
    assert_array_equal(after[:, :4], x[:, :4])
    gap_rates = np.asarray(rates(jnp.asarray(after[:, :4]), jnp.asarray(after[:, 4:8])))
    assert np.all(gap_rates[fallen[:, :3]] >= -1e-11)
    # Plastic impacts: a contact that has struck and holds is at rest.
    held = (after[:, 8:] > 0) & fallen[:, :3]
    assert np.sum(held) > 150
    # Rounding of the forces of several contacts: 1e-12 is seen.
    assert_allclose(gap_rates[held], 0, rtol=0, atol=1e-11)


def test_a_lane_that_is_not_finite_leaves_its_neighbours(leg, strikes, change):
    robot, _ = leg
    x, fallen, _ = strikes
    whole, poisoned = change(x, fallen, robot.params), x.copy()
    poisoned[5, 4] = np.nan
    found = np.asarray(change(poisoned, fallen, robot.params))
    assert not np.all(np.isfinite(found[5]))
    assert_array_equal(np.delete(found, 5, axis=0), np.delete(whole, 5, axis=0))


def test_single_precision(leg, strikes, change):
    """Within its resolution and the condition of the mass matrix. (A knee at its stop in free fall may hold or not: both are one
    motion; one impact in some hundreds is `nonfinite`.)"""
    robot, _ = leg
    x, fallen, _ = strikes
    short = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, robot.params)
    found = np.asarray(change(x.astype(np.float32), fallen, short))
    whole = np.asarray(change(x, fallen, robot.params))
    assert found.dtype == np.float32
    good = np.all(np.isfinite(found), axis=1)
    assert np.mean(good) > 0.99
    assert_allclose(found[good, :8], whole[good, :8], rtol=0, atol=1e-3)


@pytest.mark.medium
def test_derivatives_in_both_modes(leg, strikes):
    """By the velocities before an impact, which is piecewise linear in them, against central differences."""
    robot, system = leg
    together = system.transitions[0].reset.__self__.change_together
    x, fallen, _ = (each if callable(each) else each[:40] for each in strikes)

    def after(v, x, fallen):
        return together(jnp.zeros(()), x.at[4:8].set(v), robot.params, fallen)[4:8]

    v = x[:, 4:8]
    forward, reverse = (jax.jit(jax.vmap(mode(after)))(v, x, fallen) for mode in (jax.jacfwd, jax.jacrev))
    assert_allclose(forward, reverse, rtol=0, atol=1e-12)
    moved, size = jax.jit(jax.vmap(after)), 1e-5
    columns = [(moved(v + size * e, x, fallen) - moved(v - size * e, x, fallen)) / (2 * size) for e in np.eye(4)]
    assert_allclose(forward, np.stack(columns, axis=2), rtol=0, atol=1e-6)
