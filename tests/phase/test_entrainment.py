"""Entrainment: the Arnold tongue of the phase equation, and that of the simulation of a pushed walker and of a kicked neuron."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_phase_response import neuron

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
    response = hj.phase.phase_response(wheel, n_samples=31)
    locking = hj.phase.entrainment(
        response, lambda cycle, x, p: jnp.stack([jnp.zeros(()), jnp.cos(2 * jnp.pi * cycle)])
    )
    coarse = hj.Integrator(rtol=1e-9, atol=1e-9)

    @jax.jit
    @jax.vmap
    def locked(strength, ratio):
        params = Pushed(wheel.params, strength, wheel.period / ratio)

        def lap(carry, _):
            t, x = carry
            through = hj.ReturnMap(PUSHED, sequence=("stance",), integrator=coarse)(x, params, t=t)
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


# The neuron v' = I - v, v = 1: v+ = 0, which a clock kicks.
KICKED = hj.HybridSystem(
    {"charge": hj.Mode(lambda t, x, p: jnp.stack([p["drive"] - x[0], jnp.ones(())]), ("v", "clock"))},
    (
        hj.Transition("charge", "charge", lambda t, x, p: 1 - x[0], lambda t, x, p: x.at[0].set(0.0)),
        hj.Transition(
            "charge", "charge", lambda t, x, p: p["period"] - x[1], lambda t, x, p: jnp.stack([x[0] + p["kick"], 0 * x[1]])
        ),
    ),
)  # fmt: skip


@pytest.mark.medium
def test_a_kicked_neuron():
    """A kick e at the phase theta shifts it by -ln(1 - e exp(theta) / I), exactly: the edges of locking for e < 0, where it is
    stable, are those of a kick just after a firing and just before it."""
    drive = 1.5
    response = hj.phase.phase_response(neuron(jnp.array(drive)), n_samples=9)
    period = float(response.period)
    gamma = np.concatenate([arc.z[:, 0] for arc in response.arcs]) / period
    shift = lambda kick, phase: -np.log(1 - kick * np.exp(phase) / drive)
    edges = lambda kick: period / (period - shift(kick, np.array([period, 0.0])))
    ends, small = np.array([np.max(gamma), np.min(gamma)]), -1e-3
    # What is left is of second order, by the expansion of the exact edges, and about 4 times its cube.
    assert_allclose(1 + small * ends - edges(small), -(small**2) * ends**2 * (1 + period / 2), rtol=5e-3)

    # Simulated with a large kick, by a tenth of the tongue's width inside of both edges and outside.
    kick = -0.3
    low, high = edges(kick)
    ratios = low + np.array([0.1, 0.9, -0.1, 1.1]) * (high - low)

    @jax.jit
    @jax.vmap
    def before_kicks(ratio):
        params = {"drive": jnp.array(drive), "kick": jnp.array(kick), "period": period / ratio}
        run = hj.simulate(
            KICKED, jnp.array([0.3, 0.0]), params, mode="charge", t1=80.5 * params["period"], max_jumps=220,
            integrator=hj.Integrator(rtol=1e-10, atol=1e-10, unroll=False),
        )  # fmt: skip
        return run.x_ends[:, 0], run.transitions == 1, run.result

    v, kicked, result = before_kicks(jnp.asarray(ratios))
    assert np.all(result == hj.RESULTS.successful) and np.all(np.sum(kicked, axis=1) == 80)
    last = np.stack([row[at][-20:] for row, at in zip(np.asarray(v), np.asarray(kicked), strict=True)])
    # In step the voltage before each kick is that of the phase at which the kick makes up for the difference of the periods; the
    # distance from it shrinks by a factor of 0.64 to 0.82 with each kick.
    phase = np.log((1 - np.exp(period / ratios[:2] - period)) * drive / kick)
    assert_allclose(last[:2], np.broadcast_to((drive * (1 - np.exp(-phase)))[:, None], (2, 20)), rtol=1e-4)
    assert np.all(np.ptp(last[2:], axis=1) > 0.3)


@pytest.mark.medium
@pytest.mark.parametrize("growth", [-0.05, 0.05])
def test_the_orbit_of_an_oscillator_that_is_stable_or_not(growth):
    """r' = growth r (r^2 - 1), and a phase of rate 1 whatever r is: Z = (-sin, cos), so Gamma is within [-1/2, 1/2]."""

    def turn(t, x, p):
        swell = p * (x @ x - 1)
        return jnp.stack([swell * x[0] - x[1], swell * x[1] + x[0]])

    system = hj.HybridSystem(
        {"turn": hj.Mode(turn, ("x", "y"))},
        (hj.Transition("turn", "turn", guard=lambda t, x, p: x[1], reset=lambda t, x, p: x),),
    )
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("turn",)), jnp.array([-1.0, 0.0]), jnp.array(growth))
    response = hj.phase.phase_response(orbit, n_samples=40)
    push = lambda cycle, x, p: jnp.stack([jnp.cos(2 * jnp.pi * cycle), 0.0 * cycle])
    if growth > 0:
        with pytest.warns(UserWarning, match="the orbit is unstable, with a spectral radius of 1.87"):
            found = hj.phase.entrainment(response, push)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = hj.phase.entrainment(response, push)
    # The rule of integration is exact for these; the orbit is known to 1e-12.
    assert_allclose([found.lowest, found.highest], [-0.5, 0.5], atol=1e-11)
