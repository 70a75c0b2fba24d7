"""A simulation that ends within rounding of an event, and goes on from its end as if it had not been interrupted.

The event is met by the first part or by the second, once: neither lost between them, nor met twice.
"""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_multimode import LEAKY, leaky

import hyjax as hj
from hyjax._testing import Automaton, first_arc, follow_arc
from hyjax.models import bouncing_ball

EPS = float(np.finfo(float).eps)
# In units in the last place of the event's time.
ULPS = np.concatenate(
    [np.arange(-2, 3), *(sign * np.array([8, 60, 64, 70, 128, 300, 1e3, 1e4, 1e5]) for sign in (-1, 1))]
)


def between_walls():
    """A ball between walls at 999 and 1000: its place is known to 1e-13, its time to 1e-17."""
    turn = lambda t, x, p: x * jnp.array([1.0, -1.0])
    guards = (lambda t, x, p: 1000 - x[0], lambda t, x, p: x[0] - 999)
    free = hj.Mode(
        lambda t, x, p: jnp.stack([x[1], jnp.zeros_like(t)]), ("x", "v"),
        domain=lambda t, x, p: jnp.stack([1000 - x[0], x[0] - 999]),
    )  # fmt: skip
    return hj.HybridSystem({"free": free}, tuple(hj.Transition("free", "free", guard, turn) for guard in guards))


WALLS, BALL = between_walls(), bouncing_ball.Params()
# System, parameters, mode and state at the start, number of the event, start and end time.
CASES = {
    "ball": (bouncing_ball.system, BALL, "flight", [1.0, 0.0], 2, 0.0, 2.0),
    "soon": (bouncing_ball.system, BALL, "flight", [1e-3, -1.0], 0, 0.0, 0.5),
    "walls": (WALLS, None, "free", [999.9, 1.0], 0, 0.0, 2.0),
    "landing": (leaky, LEAKY, "flight", [0.3, 0.0], 2, 0.0, 3.0),
}
IMPLICIT = hj.Integrator(dfx.Kvaerno5(), rtol=1e-9, atol=1e-9)
# Stages of a step as a loop: compilation is what takes time here.
EXPLICIT = hj.Integrator(unroll=False)
RUNS = [(name, IMPLICIT if name == "walls" else EXPLICIT) for name in CASES]


@eqx.filter_jit
def interrupted(system, params, integrator, begin, until, most):
    """To each time, with at most so many jumps, and on to the end time: each part begins with what the last one reports."""
    automaton, (x, mode, t0, t1) = Automaton(system), begin

    def run(until, most):
        def part(now, until):
            start = first_arc(automaton, now.z, now.mode, now.t, until)

            def arc(carry):
                now, jumps = carry
                now, row = follow_arc(automaton, now, jumps == most, start, until, params, integrator)
                return now, jumps + row.jumped.astype(jumps.dtype)

            end, jumps = jax.lax.while_loop(lambda carry: ~carry[0].done, arc, (start, jnp.array(0)))
            return end, (end.t, end.z, end.mode, end.result, jumps)

        return jax.lax.scan(part, first_arc(automaton, automaton.pad(x), mode, t0, until), jnp.stack([until, t1]))[1]

    return jax.vmap(run)(until, most)


@pytest.mark.medium
@pytest.mark.parametrize("name, integrator", RUNS, ids=[f"{name}-{type(way.solver).__name__}" for name, way in RUNS])
def test_an_interruption_at_an_event_changes_nothing(name, integrator):
    system, params, mode, x, number, t0, t1 = CASES[name]
    begin = jnp.asarray(x), jnp.array(system.names.index(mode)), jnp.asarray(t0), jnp.asarray(t1)
    run = lambda until, most: interrupted(system, params, integrator, begin, until, most)
    every = jnp.full(ULPS.size, 30)
    t_event = float(run(jnp.full(ULPS.size, t1), jnp.full(ULPS.size, number))[0][0, 0])
    _, z, modes, result, jumps = run(jnp.full(ULPS.size, t1), every)
    assert t0 < t_event < t1 and np.all(np.asarray(result == hj.RESULTS.successful))
    until = t_event + ULPS * np.spacing(t_event)
    t, z_parts, modes_parts, result, jumps_parts = run(jnp.asarray(until), every)
    assert np.all(np.asarray(result == hj.RESULTS.successful))
    # Taken by the first part or by the second; from the event's time on, by the first.
    assert np.all(jnp.sum(jumps_parts, axis=1) == jumps[0, 0]) and np.all(modes_parts[:, 1] == modes[0, 0])
    assert np.all((jumps_parts[:, 0] == number) | (jumps_parts[:, 0] == number + 1))
    assert np.all(jumps_parts[np.abs(ULPS) <= 2, 0] == number + 1)
    # A part ends at its end time, or at an event within rounding of it: of the time, or of places near 1000 at the speed 1.
    assert np.all((until <= t[:, 0]) & (t[:, 0] <= until + 64 * EPS * t_event + (256 * EPS * 1000)))
    # The solver's error, for each of a few arcs, and rounding of the time at speeds of a few units.
    assert_allclose(
        z_parts[:, 1],
        np.broadcast_to(z[0, 0], z_parts[:, 1].shape),
        rtol=0,
        atol=100 * tolerance(integrator) + 64 * EPS * t1,
    )


def tolerance(integrator):
    return float(integrator.tolerances(jnp.zeros(1).dtype)[0])
