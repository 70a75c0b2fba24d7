"""The short step from the end of the last solver step onto a surface: closed forms, the order of near events, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import reach_surface


def swing(t, x, p):
    """An oscillator of angular frequency p[0]."""
    return jnp.stack([x[1], -(p[0] ** 2) * x[0]])


def met(guards, integrator):
    """`(x, p) -> Trajectory` to the first of several guards, each of which leads to rest."""
    rest = hj.Mode(lambda t, x, p: 0 * x, ("x", "v"))
    ways = tuple(hj.Transition("swing", f"rest {k}", g, lambda t, x, p: x) for k, g in enumerate(guards))
    modes = {"swing": hj.Mode(swing, ("x", "v"))} | {f"rest {k}": rest for k in range(len(guards))}
    system = hj.HybridSystem(modes, ways)
    return lambda x, p: hj.simulate(system, x, p, mode="swing", t1=20.0, max_jumps=1, integrator=integrator, times=None)


def test_the_short_step_is_exact_to_rounding():
    """From 1e-5 before or after the surface, at which events of long steps end; the error of Heun's method is s^4 / 24."""
    field = lambda t, x: swing(t, x, (1.3,))
    phase = jnp.linspace(0.2, 1.4, 13)
    exact = jnp.stack([jnp.cos(1.3 * phase), -1.3 * jnp.sin(1.3 * phase)], axis=1)

    def one(t, s, level):
        x = jnp.stack([jnp.cos(1.3 * (t - s)), -1.3 * jnp.sin(1.3 * (t - s))])
        height = lambda t, x, f: (x[0] - level, f[0])
        ahead = -(x[0] - level) / x[1]
        return reach_surface(field, height, t - s, x, field(t - s, x), ahead)

    for s in (1e-5, -1e-5, 1e-9):
        t, x, f = jax.vmap(lambda t, level, s=s: one(t, s, level))(phase, exact[:, 0])
        assert_allclose(t, phase, rtol=0, atol=4e-16)
        # Three roundings of numbers between 1 and 2.
        assert_allclose(x, exact, rtol=0, atol=7e-16)
        # The vector field there is needed to first order only.
        assert_allclose(f, jax.vmap(lambda x: field(0.0, x))(exact), rtol=0, atol=1e-9)


@pytest.mark.medium
def test_the_first_of_two_near_events():
    """Two guards fall within a fraction of a step, one of state and one of time: the earlier one fires, at its own time."""
    at, integrator = np.arccos(0.3), hj.Integrator(rtol=1e-12, atol=1e-12)
    run = met((lambda t, x, p: x[0] - 0.3, lambda t, x, p: at + p[1] - t), integrator)
    gaps = jnp.array([1e-4, 1e-6, 1e-8, 1e-10])
    one = lambda gap: run(jnp.array([1.0, 0.0]), jnp.stack([jnp.ones_like(gap), gap]))
    after, before = (jax.jit(jax.vmap(one))(sign * gaps) for sign in (1, -1))
    assert_array_equal(after.transitions[:, 0], 0)
    assert_array_equal(before.transitions[:, 0], 1)
    # The solver's error of the state, over the rate 0.95 of the guard.
    assert_allclose(after.end_times[:, 0], at, rtol=0, atol=1e-11)
    assert_allclose(before.end_times[:, 0], at - gaps, rtol=1e-15)


@pytest.mark.medium
def test_a_surface_ahead_is_aimed_at():
    """cos t in steps of 0.5 and 0.62. The numbers of tries are those of the steps, and one to three to the surface."""

    def tries(step, *guards, armed=None):
        modes = {"swing": hj.Mode(swing, ("x", "v")), "rest": hj.Mode(lambda t, x, p: 0 * x, ("x", "v"))}
        ways = [
            hj.Transition("swing", "rest", g, lambda t, x, p: x, armed if k else None) for k, g in enumerate(guards)
        ]
        integrator = hj.Integrator(rtol=1e-7, atol=1e-7, first_step=step, max_step=step, unroll=False)
        met = hj.flow_to_guard(
            hj.HybridSystem(modes, tuple(ways)), "swing", 0.0, jnp.array([1.0, 0.0]), jnp.ones(1), integrator=integrator
        )
        return int(met.steps), str(met.result)

    falls = lambda t, x, p: x[0] - np.cos(2.0001)
    # Steps to 0.5, 1, 1.5, 2; and 0.0001 on.
    assert tries(0.5, falls) == (5, "successful")
    # Steps to 0.5, 1, 1.5; to just beyond the predicted surface, 0.3 ahead; and to the surface.
    assert tries(0.5, lambda t, x, p: x[0] - np.cos(1.8)) == (5, "successful")
    # The first guard, disarmed; 12 steps from 2.0001 to 8.0001, and one to 8.2, which is predicted exactly.
    later = lambda t, x, p: 8.2 - t
    assert tries(0.5, later, falls, armed=lambda t, x, p: jnp.array(False)) == (18, "successful")
    # Five steps to 3.1, where the surface, which x + 1 touches at pi but for the solver's error, seems to be 0.02 ahead: Newton's
    # steps, each half of the one before, would be 12 more down to that error, and then those to the surface.
    assert tries(0.62, lambda t, x, p: x[0] + 1)[0] < 15


@pytest.mark.slow
def test_derivatives_pass_through_the_short_step():
    """The time of the fall of cos(p t) to 0.3 is arccos(0.3) / p: two derivatives in either mode."""
    start = jnp.array([1.0, 0.0])
    time = lambda p: met((lambda t, x, p: x[0] - 0.3,), hj.Integrator(unroll=False))(start, p[None]).end_times[0]
    p, exact = jnp.array(1.7), np.arccos(0.3)
    # The first derivative by the program of the second.
    forward, reverse = (
        jax.jit(by(lambda p, by=by: (by(time)(p),) * 2, has_aux=True))(p)[::-1] for by in (jax.jacfwd, jax.grad)
    )
    # The tolerance 1e-14 is relative to the states; each derivative multiplies it by some time over p.
    assert_allclose(forward, [-exact / p**2, 2 * exact / p**3], rtol=1e-12)
    assert_allclose(reverse, [-exact / p**2, 2 * exact / p**3], rtol=1e-12)
