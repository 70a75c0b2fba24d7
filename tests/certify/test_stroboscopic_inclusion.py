"""Stroboscopic inclusion: proved for a driven linear system, refused for an autonomous one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import same

import hyjax as hj
from hyjax.certify import OneSidedLipschitz, stroboscopic_inclusion
from hyjax.models import simplest_walker

PERIOD = 2 * np.pi


def driven(t, x, p):
    return p * x + jnp.stack([jnp.cos(t), jnp.sin(t)])


DRIVEN = hj.HybridSystem({"flow": hj.Mode(driven, ("x", "y"))}, ())
SECTION = hj.Stroboscope("flow", PERIOD)
# On the periodic solution of p = -1: (cos t + sin t, sin t - cos t)/2.
START = jnp.array([0.5, -0.5])


def proved_constants(field, t, x, tau, reach):
    """Of `driven` with p = -1."""
    return (-jnp.ones_like(t), (jnp.linalg.norm(field(t, x)) + 1) * (1 + 1e-9), 1e-14 + 0 * t)


def included(system=DRIVEN, start=START, params=-1.0, section=SECTION, steps=2000, radius=0.1, **more):
    return stroboscopic_inclusion(
        system, start, jnp.asarray(params), section=section, steps=steps, radius=radius, **more
    )


def test_a_driven_system_is_proved_by_proved_constants_alone():
    found = included(osl=OneSidedLipschitz(proved_constants), disturbance=0.02)
    assert found.proved and found.sound and not found.reasons and "proved: one attracting" in repr(found)
    assert_allclose(found.contraction, np.exp(-PERIOD), rtol=1e-9)
    # The least radius that returns into itself: with disturbance b it tends to b, beside Euler's error of 2 pi/2000.
    assert not included(osl=OneSidedLipschitz(proved_constants), disturbance=0.02, radius=0.02).proved
    assert included(osl=OneSidedLipschitz(proved_constants), disturbance=0.02, radius=0.03).proved
    floating = included(disturbance=0.02)
    assert bool(floating.included) and not floating.sound and not floating.proved
    assert len(floating.reasons) == 1 and "at the Euler point" in floating.reasons[0] and "not proved" in repr(floating)


@pytest.mark.medium
def test_the_proved_ball_attracts():
    """From its border, under a disturbance of the period and the allowed size: back in the ball after each period, and closer."""
    b, radius = 0.02, 0.03
    assert included(osl=OneSidedLipschitz(proved_constants), disturbance=b, radius=radius).proved
    pushed = lambda t, x, p: driven(t, x, -1.0) + b * jnp.stack([jnp.cos(3 * t + p), jnp.sin(3 * t + p)])
    system = hj.HybridSystem({"flow": hj.Mode(pushed, ("x", "y"))}, ())
    ways = jnp.stack([jnp.array([np.cos(a), np.sin(a)]) for a in np.linspace(0, 2 * np.pi, 8, endpoint=False)])
    times = jnp.asarray(PERIOD * np.arange(1, 4))
    run = lambda way, phase: hj.simulate(
        system, START + radius * way, phase, mode="flow", t1=3 * PERIOD, max_jumps=0, times=times
    ).samples.x  # fmt: skip
    for phase in (0.0, 2.0):
        states = np.asarray(jax.jit(jax.vmap(lambda way: run(way, jnp.asarray(phase))))(ways))  # noqa: B023
        assert np.all(np.linalg.norm(states - START, axis=2) < radius)
        spread = np.max(np.ptp(states, axis=0), axis=1)
        assert np.all(spread[1:] < 1.01 * np.exp(-PERIOD) * spread[:-1] + 1e-12)


def test_what_is_no_proof():
    growing = included(params=0.1)
    assert not growing.proved and float(growing.contraction) > 1
    assert any("do not approach each other" in reason for reason in growing.reasons)
    assert any("not in the ball before" in reason for reason in growing.reasons)
    far = included(start=START + 1.0, radius=0.1, osl=OneSidedLipschitz(proved_constants))
    assert not bool(far.included) and far.sound
    wall = (hj.Transition("flow", "flow", lambda t, x, p: 9 - x[0], same),)
    guarded = included(
        hj.HybridSystem({"flow": hj.Mode(driven, ("x", "y"))}, wall), osl=OneSidedLipschitz(proved_constants)
    )
    assert bool(guarded.included) and not guarded.proved and "may have jumped" in guarded.reasons[0]
    batch = jax.vmap(lambda radius: included(radius=radius))(jnp.array([1e-4, 0.1]))
    assert np.asarray(batch.included).tolist() == [False, True] and "2 stroboscopic inclusions, 1 included" in repr(
        batch
    )


def test_refused():
    """An autonomous system, for the reason of its phase; a period that is not the forcing's."""
    with pytest.raises(ValueError, match=r"does not depend on time.*shifts the phase.*section"):
        stroboscopic_inclusion(
            simplest_walker.system, jnp.ones(4), simplest_walker.Params(), section=hj.Stroboscope("swing", 3.88), steps=10,
            radius=0.1,
        )  # fmt: skip
    with pytest.raises(ValueError, match="differs by"):
        included(section=hj.Stroboscope("flow", 3.0))
    # The period may be a function of the parameters.
    period = hj.Stroboscope("flow", lambda p: -PERIOD * p)
    assert_allclose(included(section=period).distance, included().distance, rtol=1e-9)
