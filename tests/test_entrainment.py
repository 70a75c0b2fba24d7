"""Entrainment of a walker by a weak periodic push: the Arnold tongue of the phase equation, and that of the simulation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import rimless_wheel


class Pushed(eqx.Module):
    wheel: rimless_wheel.Params
    strength: jax.Array
    period: jax.Array


def roll(t, x, p):
    torque = p.strength * jnp.cos(2 * jnp.pi * t / p.period)
    return rimless_wheel.roll(t, x, p.wheel) + jnp.stack([jnp.zeros_like(torque), torque])


PUSHED = hj.HybridSystem(
    {"stance": hj.Mode(roll, rimless_wheel.coordinates)},
    (
        hj.Transition(
            "stance",
            "stance",
            lambda t, x, p: rimless_wheel.spoke_height(t, x, p.wheel),
            lambda t, x, p: rimless_wheel.collision(t, x, p.wheel),
        ),
    ),
)
LAPS, KEPT = 3000, 2500


@pytest.mark.slow
def test_tongue_of_a_pushed_wheel(wheel):
    """The rimless wheel under a small torque cos(2 pi t / P), simulated for 3000 steps: the edges of locking, by bisection.

    Beside the tongue the phase slips through a cycle in 1 / (strength * Gamma * sqrt(2 d)) steps at a relative distance d from
    the edge: 2500 steps tell d = 0.002 from locking at the least strength.
    """
    response = hj.phase_response(wheel, samples=31)
    locking = hj.entrainment(response, lambda cycle, x, p: jnp.stack([jnp.zeros(()), jnp.cos(2 * jnp.pi * cycle)]))
    coarse = hj.Integrator(rtol=1e-9, atol=1e-9)

    @jax.jit
    @jax.vmap
    def locked(strength, ratio):
        params = Pushed(wheel.params, strength, wheel.period / ratio)

        def lap(carry, _):
            t, x = carry
            through = hj.stride(PUSHED, x, params, sequence=("stance",), t=t, integrator=coarse)
            return (jnp.mod(t + through.time, params.period), through.x), through.time

        _, times = jax.lax.scan(lap, (jnp.zeros(()), wheel.x), None, length=LAPS)
        return jnp.abs(jnp.sum(times[-KEPT:]) / params.period - KEPT) < 0.5

    strengths = np.repeat([0.01, 0.02, 0.04], 2)
    predicted = np.array([locking.tongue(strengths[k])[k % 2] for k in range(6)]) - 1
    inside, outside = 0.8 * np.ones(6), 1.2 * np.ones(6)
    for edges, expected in ((inside, True), (outside, False)):
        assert np.all(np.asarray(locked(strengths, 1 + edges * predicted)) == expected)
    for _ in range(8):
        middle = (inside + outside) / 2
        yes = np.asarray(locked(strengths, 1 + middle * predicted))
        inside, outside = np.where(yes, middle, inside), np.where(yes, outside, middle)
    found = ((inside + outside) / 2).reshape(3, 2)
    # The prediction leaves out a relative error in proportion to the strength: 1.4 times it, below and above.
    assert np.all(np.abs(found - 1) < 1.6 * strengths.reshape(3, 2))
    # Extrapolated to zero strength the edges agree to what the bisection and the steps resolve.
    assert_allclose(2 * found[0] - found[1], 1, rtol=0, atol=5e-3)
    assert_allclose(2 * found[1] - found[2], 1, rtol=0, atol=5e-3)
