"""Return maps along sequences of sets of contacts, by their names, against sections and a closed form."""

import functools as ft
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq

import hyjax as hj
from hyjax._testing import code_of_state
from hyjax.contact import Contact, contact_system, Mechanism, set_name, start

LEFT, RIGHT = "left:closed+right:open", "left:open+right:closed"
GAIN = 0.5


def rod():
    """A rod that rocks on its ends, one to either side of its middle, of mass 1 and weight 1; a torque drives its rotation on, by
    a multiple of its rate. Parameters: its inertia and that multiple."""
    mass = lambda q, p: jnp.diag(jnp.stack([jnp.ones(()), p[0]]))
    body = Mechanism(mass, lambda t, q, v, p: jnp.stack([-jnp.ones(()), p[1] * v[1]]))
    end_of = lambda side, t, q, p: q[0] + side * q[1]
    ends = {name: Contact(ft.partial(end_of, side)) for name, side in (("left", -1), ("right", 1))}
    return contact_system(body, ends, ("y", "angle"))


SYSTEM, PARAMS = rod(), jnp.array([3.0, GAIN])
TIGHT = hj.Integrator(rtol=1e-12, atol=1e-12, unroll=False)
STEP = hj.ReturnMap(SYSTEM, sequence=(LEFT, RIGHT), integrator=TIGHT)


def half(s):
    """The rate after half a cycle that begins with the rate `s`, its derivative, and the duration. On one end (1 + J) angle'' =
    -1 + p angle', until the other end strikes; of the rate the part (J - 1)/(J + 1) = 1/2 is left."""
    b, level = GAIN / 4, 1 / GAIN
    angle = lambda t: (s - level) * math.expm1(b * t) / b + level * t
    t = brentq(angle, 1e-3, 1e2, xtol=1e-15, rtol=1e-15)
    rate, acceleration = (s - level) * math.exp(b * t) + level, b * (s - level) * math.exp(b * t)
    later = -math.expm1(b * t) / b / rate
    return -rate / 2, -(math.exp(b * t) + acceleration * later) / 2, t


@pytest.mark.slow
def test_an_orbit_by_names_and_by_a_section():
    """The names give the guards; multipliers, period and their derivative are those of the section and of the closed form."""
    s = brentq(lambda s: half(s)[0] - s, 0.9, 1.8, xtol=1e-15)
    assert STEP.sequence == (f"{LEFT}[1]", f"{RIGHT}[0]") and STEP.system.names == (LEFT, RIGHT)
    orbit = hj.periodic_orbit(STEP, jnp.array([0.0, 0.0, 1.3, 1.3, 1.0, 0.0]), PARAMS)
    assert orbit.mode_names == (LEFT, RIGHT)
    _, slope, time = half(s)
    # The ends are held by their acceleration, and drift by the integrator's error.
    assert_allclose(orbit.x, [0, 0, s, s, 1, 0], rtol=1e-10, atol=1e-10)
    assert_allclose(orbit.period, 2 * time, rtol=1e-10)
    largest = lambda orbit: np.sort(np.abs(orbit.multipliers))[::-1]
    assert_allclose(largest(orbit)[0], slope**2, rtol=1e-9)
    assert slope > 1
    top = hj.ReturnMap(SYSTEM, section=hj.Section("contacts", lambda t, x, p: x[3]), integrator=TIGHT)
    high = orbit.x.at[2:4].set(0.0)
    rise = math.log(1 / (1 - s * GAIN)) / (GAIN / 4)
    height = (s - 1 / GAIN) * math.expm1(GAIN / 4 * rise) / (GAIN / 4) + rise / GAIN
    crossing = top(high.at[:2].set(height), PARAMS)
    assert_allclose(crossing.x, high.at[:2].set(height), rtol=1e-9, atol=1e-9)
    around = np.linalg.eigvals(np.asarray(top.jacobian(crossing.x, PARAMS)))
    assert_allclose(np.max(np.abs(around)), largest(orbit)[0], rtol=1e-8)
    # The orbit knows its map, of the system of the two sets.
    again = hj.ReturnMap(orbit.system, sequence=orbit.sequence, integrator=TIGHT)(orbit.x, PARAMS)
    assert_allclose(again.x, orbit.x, rtol=1e-10, atol=1e-10)


@pytest.mark.medium
def test_a_run_that_leaves_the_sets():
    """With its mass near its middle, J < 1, the rod stays on its first end when the second one strikes."""
    x = jnp.array([0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    assert STEP(x, PARAMS, throw=False).result == "successful"
    assert STEP(x, PARAMS.at[0].set(0.5), throw=False).result == "unexpected_transition"
    # The strike itself says so, before any arc of another set.
    strike, x = STEP.system.transitions[0], jnp.array([0.0, 0.0, -1.0, -1.0, 1.0, 0.0])
    codes = [code_of_state(strike.reset(jnp.zeros(()), x, PARAMS.at[0].set(J), jnp.array(1))) for J in (3.0, 0.5)]
    assert list(map(str, codes)) == ["successful", "unexpected_transition"]


def test_starts_in_modes_that_are_sets():
    """The mode of a start is that of its codes, and no other; a set without a mode, and a traced state, are refused."""
    flat = hj.ReturnMap(SYSTEM, sequence=("left:open+right:open[0]", LEFT, "left:closed+right:closed[1]")).system
    for system, rates, name in ((STEP.system, (1.0, 1.0), LEFT), (STEP.system, (1.0, -1.0), RIGHT)):
        mode, x = start(system, jnp.array([0.0, 0.0, *rates]), PARAMS)
        assert mode == name == set_name(system, x)
        code = [
            system.mode(each).domain.refusal(jnp.zeros(()), x, PARAMS, (1e-9, 1e-9))
            for each in (mode, *{LEFT, RIGHT} - {mode})
        ]
        assert list(map(str, code)) == ["successful", "outside_domain"]
    assert start(flat, jnp.array([1.0, 0.0, 0.0, 0.0]), PARAMS)[0] == "left:open+right:open"
    with pytest.raises(
        ValueError, match=r"the contacts are left:open\+right:closed, and the modes are left:open\+right:open, "
    ):
        start(flat, jnp.array([0.0, 0.0, 1.0, -1.0]), PARAMS)
    with pytest.raises(ValueError, match="the name of a mode is a static value"):
        jax.jit(lambda x: start(STEP.system, x, PARAMS)[1])(jnp.array([0.0, 0.0, 1.0, 1.0]))


def test_a_domain_that_cannot_read_a_sequence():
    class Half(eqx.Module):
        read_sequence: str = "up"

        def __call__(self, t, x, params):
            return x

    system = hj.HybridSystem({"up": hj.Mode(lambda t, x, p: -x, ("x",), Half())}, ())
    with pytest.raises(ValueError, match=r"read_sequence of a domain must be a method \(system, sequence\), not 'up'"):
        hj.ReturnMap(system, sequence=("up",))


def test_names_of_sequences():
    """Each change of a set has its guard: gaps and forces 0 and 1, slips forward 2, and 3 backward."""
    floor = Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], static=0.3, kinetic=0.2, restitution=0.5)
    wall = Contact(lambda t, q, p: 1 - q[0], restitution=0.5)
    heavy = Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.array([0.0, -1.0]))
    system = contact_system(heavy, {"floor": floor, "wall": wall}, ("x", "y"))
    of = lambda *names: hj.ReturnMap(system, sequence=names).sequence or ()
    stick, ahead, back = (f"floor:{word}+wall:open" for word in ("stick", "slip+", "slip-"))
    assert of(stick, ahead) == (f"{stick}[2]", f"{ahead}[2]")
    assert of(stick, back) == (f"{stick}[3]", f"{back}[2]")
    assert of(ahead, back)[0] == f"{ahead}[2]"
    assert of("floor:open+wall:open", ahead) == ("floor:open+wall:open[0]", f"{ahead}[0]")
    assert of("floor:open+wall:closed", stick) == ("floor:open+wall:closed[0]", f"{stick}[1]")
    # A bounce of a wall while the floor holds; of two open contacts the name says which one.
    assert of(ahead) == (f"{ahead}[1]",)
    both = "floor:open+wall:open"
    assert of(f"{both}[1]", f"{both}[1]") == (f"{both}[1]",) * 2
    # Two ways on from one set are two transitions, of which one has the guards that no arc names.
    ways = hj.ReturnMap(system, sequence=(stick, ahead, stick, back)).system.transitions
    assert [(each.source, each.target) for each in ways] == [
        (stick, ahead),
        (stick, back),
        (ahead, stick),
        (back, stick),
    ]
    x = jnp.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    first, second = (np.asarray(each.armed(jnp.zeros(()), x, None)) for each in ways[:2])  # pyright: ignore[reportOptionalCall]
    assert list(first.nonzero()[0]) == [0, 1, 2] and list(second.nonzero()[0]) == [3]
    for names, match in (
        ((both,), r"the event that leads from 'floor:open\+wall:open' to .* is not determined. Name its guard"),
        ((f"{both}[4]",), "one of 4: of each contact its gap"),
        ((f"{stick}[2]", ahead, f"{stick}[2]", back), "is not determined"),
        (("floor:closed+wall:open", ahead), r"'floor:closed\+wall:open' names no set .* as in 'floor:open\+wall:open'"),
        (("wall:open+floor:open",), "names no set"),
        (("network",), "names no set .*: open, or closed .stick"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            of(*names)


@pytest.mark.slow
def test_orbits_of_a_forced_mass_beside_a_wall():
    """q'' = q - 1 + p cos t, from the phase pi. A mass that rests at the wall leaves it where cos t = 1 / p. Another orbit,
    1 - (p / 2) cos t, does not touch it: no contact changes, which makes no family."""
    body = Mechanism(lambda q, p: jnp.eye(1), lambda t, q, v, p: q - 1 + p * jnp.cos(t))
    system = contact_system(body, {"wall": Contact(lambda t, q, p: q[0])}, ("q",))
    step = hj.ReturnMap(system, section=hj.Stroboscope("contacts", 2 * np.pi, phase=np.pi), integrator=TIGHT)
    rests, away = (hj.periodic_orbit(step, jnp.array(x), jnp.array(1.2)) for x in ([0.0, 0.0, 1.0], [1.6, 0.0, 0.0]))
    assert_allclose(rests.jump_times[0, 0], np.pi - np.arccos(1 / 1.2), rtol=1e-11)
    assert_allclose(rests.multipliers, 0, atol=1e-12)
    assert set_name(rests.system, rests.x) == "wall:closed"
    # Of the integrator's error, which grows 535 times.
    assert_allclose(away.x, [1.6, 0, 0], atol=1e-10)
    assert_allclose(away.multipliers, [np.exp(2 * np.pi), np.exp(-2 * np.pi), 0], rtol=1e-8)
    # A mass off the wall at which it is said to rest is outside of the domain, also at a phase.
    off = jnp.array([0.1, 0.0, 1.0])
    run = hj.simulate(rests.system, off, jnp.array(1.2), mode="contacts", t1=0.1, throw=False)
    assert run.result == hj.RESULTS.outside_domain
