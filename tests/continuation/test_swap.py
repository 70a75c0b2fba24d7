"""Branches on which two events change their order: closed forms, in which the map is continuous there, or is not."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import crossing_branches


def two_events(lost, early=0.5, apart=False):
    """In a lap of duration 1 are the events `left` at `early` and `right` at p, after which x grows at the rate 1; if `left`
    comes second it takes away the share `lost` of x. At the end x is halved. `apart`: where `left` comes second the modes are
    others, and there is one more event at 3/4."""
    flow = lambda rate: lambda t, x, p: jnp.stack([rate + 0 * x[0], 1 + 0 * x[1]])
    names = ("none", "left", "right", "both", "late", "later")[: 6 if apart else 4]
    modes = {name: hj.Mode(flow(1.0 * (name in ("both", "late", "later"))), ("x", "s")) for name in names}
    left, right, same = lambda t, x, p: early - x[1], lambda t, x, p: p - x[1], lambda t, x, p: x
    end, halved = lambda t, x, p: 1 - x[1], lambda t, x, p: jnp.stack([x[0] / 2, 0 * x[1]])
    ways = [
        hj.Transition("none", "left", left, same),
        hj.Transition("none", "right", right, same),
        hj.Transition("left", "both", right, same),
        hj.Transition(
            "right", names[-2] if apart else "both", left, lambda t, x, p: jnp.stack([(1 - lost) * x[0], x[1]])
        ),
        hj.Transition("both", "none", end, halved),
    ]
    if apart:
        ways += [
            hj.Transition("late", "later", lambda t, x, p: 0.75 - x[1], same),
            hj.Transition("later", "none", end, halved),
        ]
    return hj.ReturnMap(hj.HybridSystem(modes, ways), sequence=("none", "left", "both"))


def branch_to_the_swap(lost, **steps):
    orbit = hj.periodic_orbit(two_events(lost), jnp.array([0.3, 0.0]), jnp.array(0.7))
    return hj.continuation(orbit, where=lambda p: p, stop=0.3, throw=False, method=hj.PseudoArclength(**steps))


@pytest.mark.slow
def test_a_branch_goes_on_with_the_other_order():
    """The events commute, and the fixed point 1 - max(1/2, p) has a corner where they fall together."""
    branch = branch_to_the_swap(0.0)
    assert branch.result == hj.RESULTS.unexpected_transition
    (point,) = branch.special_points
    # Extrapolated from points nearer than 1e-5, on a branch that is straight.
    assert point.kind == "swap" and abs(float(point.value) - 0.5) < 1e-13
    assert_allclose(point.orbit.x, [0.5, 0.0], rtol=0, atol=1e-13)
    assert "the arcs in none and left end together" in str(branch) and "0.5" in str(branch)
    other = hj.switch_branch(point, stop=0.3)
    assert other.orbits.sequence == ("none", "right", "both") and other.values[0] < 0.5
    assert_allclose(other.values[-1], 0.3, rtol=1e-14)
    assert_allclose(other.x[:, 0], 0.5, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="daughter=1 and amplitude=None do not apply at a swap"):
        hj.switch_branch(point, stop=0.3, daughter=1)
    with pytest.raises(ValueError, match="in step part here, or are swapped"):
        _ = point.normal_form


@pytest.mark.slow
def test_a_swap_in_single_precision():
    orbit = hj.periodic_orbit(two_events(0.0), jnp.array([0.3, 0.0], jnp.float32), jnp.array(0.7, jnp.float32))
    (point,) = hj.continuation(orbit, where=lambda p: p, stop=0.3, throw=False).special_points
    # Extrapolated from points nearer than 1e-4, each known to some 1e-7.
    assert point.kind == "swap" and abs(float(point.value) - 0.5) < 1e-5


@pytest.mark.medium
def test_events_in_step_are_no_swap():
    """Two guards fall within 1e-13 of each other, all along a branch that ends where y touches 1 + (tau - 3/4)^2."""
    same = lambda t, x, p: x
    mode = hj.Mode(lambda t, x, p: jnp.stack([p["y"] - x[0], jnp.ones_like(x[1])]), ("y", "tau"))
    one = lambda t, x, p: 0.5 - x[1]
    other = lambda t, x, p: 0.5 + 1e-13 * (1 + 0.9 * jnp.sin(1e8 * p["y"] + p["phase"])) - x[1]
    ways = ("none", "one", one), ("none", "other", other), ("one", "both", other), ("other", "both", one)
    touched = hj.Transition("both", "both", lambda t, x, p: 1 - x[0] + (x[1] - 0.75) ** 2, same)
    lap = hj.Transition("both", "none", lambda t, x, p: 1 - x[1], lambda t, x, p: x.at[1].set(0))
    transitions = (*(hj.Transition(*way, same) for way in ways), touched, lap)
    system = hj.HybridSystem(dict.fromkeys(("none", "one", "other", "both"), mode), transitions)
    for phase in np.arange(8) * np.pi / 4:
        params = {"y": jnp.array(0.9), "phase": jnp.asarray(phase)}
        orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("none", "one", "both")), jnp.array([0.9, 0.0]), params)
        (end,) = hj.continuation(orbit, where=lambda p: p["y"], stop=1.2, throw=False).special_points
        assert end.kind == "grazing"
        assert_allclose(end.value, 1, rtol=1e-12)


@pytest.mark.slow
def test_a_map_that_jumps_where_events_change_their_order():
    """Where the events do not commute, the orbit beyond is another one, x = ((1 - lost) x + 1/2)/2, found from that. A branch of
    which the shortest steps are long ends far from the point, and is followed to it."""
    (point,) = branch_to_the_swap(0.1, step=0.03, min_step=1e-3).special_points
    assert point.kind == "swap" and abs(float(point.value) - 0.5) < 1e-13
    other = hj.switch_branch(point, stop=0.3)
    assert_allclose(other.x[:, 0], 0.5 / 1.1, rtol=0, atol=1e-14)
    assert np.all(other.values < 0.5)


@pytest.mark.slow
def test_a_swap_after_which_the_modes_are_others():
    """The longest arc begins at the swap, in a mode that is not that of the orbits beyond, which have one more event. The branch
    beyond is found, once, and not where it has been followed already to the swap."""
    orbit = hj.periodic_orbit(two_events(0.0, 0.4, apart=True), jnp.array([0.3, 0.0]), jnp.array(0.7))
    branch = hj.continuation(orbit, where=lambda p: p, stop=0.2, throw=False)
    (point,) = branch.special_points
    assert point.kind == "swap" and abs(float(point.value) - 0.4) < 1e-13
    (other,) = branch.connected(stop=(0.2, 0.7))
    assert other.orbits.sequence == ("none", "right", "late", "later")
    assert_allclose(other.values[-1], 0.2, rtol=1e-14)
    assert_allclose(other.x[:, 0], 0.6, rtol=0, atol=1e-14)
    back = hj.continuation(other.orbits[-1], where=lambda p: p, stop=0.7, throw=False)
    assert not crossing_branches([branch, branch, back], stop=(0.2, 0.7), method=hj.PseudoArclength())


@pytest.mark.slow
def test_an_event_that_meets_the_tick_of_a_clock():
    """A coil is charged until 0.4, and discharged at the rate p until it is empty, or until the tick: discontinuous conduction
    ends where it is empty at the tick. The closed forms are of di/dt = 1 - i, and of di/dt = -p - i; the loss is 1/e a lap."""
    rates, names = {"on": 1.0, "off": -1.0, "idle": 0.0}, ("i", "s")
    field = lambda rate: (
        lambda t, x, p: jnp.stack([(1.0 if rate > 0 else -p) - x[0] if rate else 0 * x[0], 1 + 0 * x[1]])
    )
    same, tick = lambda t, x, p: x, lambda t, x, p: x.at[1].set(0)
    ways = (
        hj.Transition("on", "off", lambda t, x, p: 0.4 - x[1], same),
        hj.Transition("off", "idle", lambda t, x, p: x[0], same),
        *(hj.every(1.0, tick, source=name, target="on") for name in rates),
    )
    converter = hj.HybridSystem({name: hj.Mode(field(rate), names) for name, rate in rates.items()}, ways)
    step = hj.ReturnMap(converter, sequence=("on", "off", "idle"), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.zeros(2), jnp.array(0.6))
    (point,) = hj.continuation(orbit, where=lambda p: p, stop=0.2, throw=False).special_points
    peak = 1 - np.exp(-0.4)
    assert point.kind == "swap" and abs(float(point.value) - peak / np.expm1(0.6)) < 1e-12
    beyond = hj.switch_branch(point, stop=0.2)
    assert beyond.orbits.sequence == ("on", "off")
    least = (peak * np.exp(-0.6) + np.asarray(beyond.values) * np.expm1(-0.6)) / -np.expm1(-1)
    assert_allclose(beyond.x[:, 0], least, rtol=0, atol=1e-13)
    assert_allclose(beyond.orbits.multipliers[:, 0], np.exp(-1), rtol=0, atol=1e-12)
    # From the other side no arc vanishes: the coil would be empty after the tick.
    back = hj.continuation(beyond.orbit(-1), where=lambda p: p, stop=0.6, throw=False)
    (other,) = back.special_points
    assert other.kind == "swap" and abs(float(other.value) - float(point.value)) < 1e-12
    assert "a second guard falls at the end of the arc in off" in str(back)
    assert hj.switch_branch(other, stop=0.6).orbits.sequence == ("on", "off", "idle")


@pytest.mark.medium
def test_swaps_at_both_ends_of_long_arcs():
    """Legs land at the times p and 1 + p of a circle of period 2, and lift off at 1 - p and 2 - p; the section is at 0. For p < 0
    both stand there, which no orbit of p > 0 tells, and where none does motion ends. In closed form x' + x = left + right."""

    def field(t, x, p):
        level, cosine, sine, left, right = x
        grows = 1 - cosine**2 - sine**2
        turned = jnp.stack([grows * cosine - jnp.pi * sine, grows * sine + jnp.pi * cosine])
        return jnp.append(left + right - level, turned)

    at = lambda time, x: jnp.sin(jnp.pi * time) * x[1] - jnp.cos(jnp.pi * time) * x[2]
    ways = (
        hj.Transition(
            "on", "on", lambda t, x, p: jnp.stack([at(p, x), at(1 + p, x)]), lambda t, x, p, i: x.at[3 + i].set(1)
        ),
        hj.Transition(
            "on", "on", lambda t, x, p: jnp.stack([at(1 - p, x), at(-p, x)]), lambda t, x, p, i: x.at[3 + i].set(0)
        ),
    )
    stance = hj.Mode(field, ("x", "cosine", "sine"), held=("left", "right"))
    fall = hj.Transition(
        "on", "fallen", lambda t, x, p: at(0.3, x), lambda t, x, p: x, armed=lambda t, x, p: x[3] + x[4] < 0.5
    )
    system = hj.HybridSystem({"on": stance, "fallen": stance}, (*ways, fall))
    step = hj.ReturnMap(system, section=hj.Section("on", lambda t, x, p: -x[2]))
    orbit = hj.periodic_orbit(step, jnp.array([0.7, 1.0, 0.0, 0.0, 0.0]), jnp.array(0.1))
    branch = hj.continuation(orbit, where=lambda p: p, stop=-0.1, throw=False)
    (swap,) = branch.special_points
    assert swap.kind == "swap" and abs(float(swap.value)) < 1e-12
    beyond = hj.switch_branch(swap, stop=-0.1)
    exact = lambda p: (np.exp(-p) - np.exp(p - 1)) / (1 - np.exp(-1))
    for part, stand in ((branch, 0), (beyond, 1)):
        assert_allclose(part.x[:, 0], exact(part.values) if stand == 0 else 2 - exact(-part.values), rtol=0, atol=1e-12)
        assert_allclose(part.x[:, 3:], stand, rtol=0, atol=1e-14)
