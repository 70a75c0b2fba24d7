"""Events in step: they pass as one where every order leads to one state with one derivative, and are a code elsewhere."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import line, ROLLED, same, still
from test_bouligand import CASES

import hyjax as hj
from hyjax._testing import each_in_step, order_of_events, section_search
from hyjax.models import pulse_coupled_neurons, slip

RESULTS = hj.RESULTS

# Three clocks, each of which marks its own coordinate once, at its own time.
CLOCKS = hj.HybridSystem(
    {"run": hj.Mode(line, ("x", "y", "z"))},
    tuple(
        hj.Transition(
            "run", "run", lambda t, x, p, k=k: p[k] - t, lambda t, x, p, k=k: x.at[k].multiply(2.0 + k).at[k].add(1.0)
        )
        for k in range(3)
    ),
)


def run_clocks(p):
    return hj.simulate(CLOCKS, jnp.zeros(3), p, mode="run", t1=3.0, max_jumps=4, integrator=ROLLED)


clocks = eqx.filter_jit(jax.vmap(run_clocks))
clocks_by_times = eqx.filter_jit(jax.vmap(jax.jacfwd(lambda p: run_clocks(p).x)))
clocks_pulled = eqx.filter_jit(jax.vmap(jax.jacrev(lambda p: run_clocks(p).x)))
TIMES = np.array([[1, 1, 1], [1, 1, 2], [1, 2, 1], [2, 1, 1], [1, 1.5, 2], [1, 1 + 1e-15, 1 - 1e-15], [3, 3, 1.0]])


@pytest.mark.medium
def test_independent_clocks_of_which_some_are_in_step():
    """x_k = (2 + k) T_k + 1 + 3 - T_k, whatever the others do. Lanes with two, three and no clocks in step, in one batch."""
    ran = clocks(jnp.asarray(TIMES))
    assert np.all(ran.result == RESULTS.successful) and np.all(ran.jumps == 3)
    factor = np.array([2.0, 3.0, 4.0])
    # Sums of a few numbers below 13.
    assert_allclose(ran.x, (factor - 1) * TIMES + 4, rtol=1e-13)
    assert_allclose(np.sort(ran.end_times[:, :3]), np.sort(TIMES), rtol=1e-14)
    # Each fires exactly once; those in step are two events at one time.
    assert np.array_equal(np.sort(ran.transitions[:, :3]), np.tile([0, 1, 2], (len(TIMES), 1)))
    assert np.all(ran.x_starts[:, 0] == 0) and ran[0].events[1].t == ran[0].events[0].t == 1
    right = np.broadcast_to(np.diag(factor - 1), (len(TIMES), 3, 3))
    assert_allclose(clocks_by_times(jnp.asarray(TIMES)), right, atol=1e-13)


TWINS = hj.HybridSystem(
    {"swing": hj.Mode(lambda t, x, p: jnp.concatenate([x[2:], -jnp.sin(x[:2])]), ("a", "b", "a_rate", "b_rate"))},
    (
        hj.Transition(
            "swing",
            "swing",
            lambda t, x, p: jnp.cos(x[:2]) - x[:2] / 2 - 0.2,
            lambda t, x, p, i: x.at[2 + i].multiply(-1),
        ),
    ),
)


@pytest.mark.medium
def test_twins_whose_guards_bend():
    """Two equal pendulums before two equal curved walls strike at one time, wherever the last step before ends: none is lost. (A
    guard counted as met with another where it fell soon after the end of the last step, instead of the event: in a third of these
    runs one strike was lost.)"""

    @jax.vmap
    def run(v):
        return hj.simulate(TWINS, jnp.stack([0 * v, 0 * v, v, v]), None, mode="swing", t1=6.0, max_jumps=8, throw=False)

    ran = run(jnp.linspace(1.2, 1.9, 200))
    assert np.all(ran.result == RESULTS.successful) and np.all(ran.jumps % 2 == 0) and set(ran.jumps.tolist()) == {2, 4}
    # The same operations on both.
    assert np.array_equal(ran.x[:, 0], ran.x[:, 1]) and np.array_equal(ran.x[:, 2], ran.x[:, 3])


@pytest.mark.slow
def test_clocks_in_step_in_reverse_mode():
    right = np.broadcast_to(np.diag([1.0, 2.0, 3.0]), (len(TIMES), 3, 3))
    assert_allclose(clocks_pulled(jnp.asarray(TIMES)), right, atol=1e-13)


def rates(both):
    """y' is 0, 1 after the first event, 2 after the second, `both` after both, at the times p."""
    modes = {name: hj.Mode(lambda t, x, p, r=r: r * jnp.ones_like(x), ("y",)) for name, r in
             {"none": 0.0, "one": 1.0, "two": 2.0, "both": both}.items()}  # fmt: skip
    at = lambda k: lambda t, x, p: p[k] - t
    ways = (("none", "one", 0), ("none", "two", 1), ("one", "both", 1), ("two", "both", 0))
    return hj.HybridSystem(modes, tuple(hj.Transition(a, b, at(k), lambda t, x, p: x) for a, b, k in ways))


@pytest.mark.medium
def test_rates_that_add_up_are_in_step_and_others_are_not():
    """y(3) = (3 - p0) + 2 (3 - p1) if the rates add up. If not, -p0 - (both - 1) p1 or -(both - 2) p0 - 2 p1 by order: the
    derivatives by the state agree, those by the parameters do not."""

    def end(both, p):
        ran = hj.simulate(
            rates(both), jnp.zeros(1), p, mode="none", t1=3.0, max_jumps=3, integrator=ROLLED, throw=False
        )
        return ran.x[0], (ran.result, ran.mode)

    # Apart by more than rounding of the time there is an order.
    times = jnp.array([[1.0, 1.0], [1.0, 1.0 + 1e-12], [1.0 + 1e-12, 1.0]])
    run = jax.vmap(jax.value_and_grad(end, argnums=1, has_aux=True), in_axes=(None, 0))
    (y, (result, mode)), slope = eqx.filter_jit(run)(jnp.array(3.0), times)
    assert np.all(result == RESULTS.successful) and np.all(mode == 3)
    assert_allclose(y, 6, rtol=1e-11)
    assert_allclose(slope, np.tile([-1, -2], (3, 1)), rtol=1e-13)
    (_, (result, mode)), slope = eqx.filter_jit(run)(jnp.array(4.0), times)
    assert np.array_equal(result == RESULTS.successful, [False, True, True]) and np.array_equal(mode, [0, 3, 3])
    assert np.array_equal(result == RESULTS.simultaneous_guards, [True, False, False])
    assert_allclose(slope[1:], [[-1, -3], [-2, -2]], rtol=1e-13)
    # Derivatives that differ by a millionth are not rounding.
    (_, (result, _)), _ = eqx.filter_jit(run)(jnp.array(3.000001), times)
    assert np.array_equal(result == RESULTS.simultaneous_guards, [True, False, False])


@pytest.mark.medium
def test_rates_that_fit_are_in_step():
    """a and b rise at the rate 1 to the surfaces a = 1 and b = 1. From the first of a, b rises by 2; from that of b, a by 3/2;
    what the others are then makes x(2) = (4, 3) + (2 1; 1 1) d from the start d, in every order."""
    speeds = {"none": (1.0, 1.0), "one": (1.0, 2.0), "two": (1.5, 0.5), "both": (3.0, 2.0)}
    modes = {
        name: hj.Mode(lambda t, x, p, v=v: jnp.array(v) + 0 * x, ("a", "b")) for name, v in speeds.items()
    }  # fmt: skip
    ways = (("none", "one", 0), ("none", "two", 1), ("one", "both", 1), ("two", "both", 0))
    system = hj.HybridSystem(
        modes, tuple(hj.Transition(a, b, lambda t, x, p, k=k: 1 - x[k], same) for a, b, k in ways)
    )  # fmt: skip

    def end(d):
        ran = hj.simulate(system, d, None, mode="none", t1=2.0, max_jumps=3, integrator=ROLLED)
        return ran.x, (ran.x, ran.result)

    d = np.array([[0.0, 0.0], [0.1, 0.1], [0.1, 0.0], [0.0, 0.1]])
    by_start, (x, result) = eqx.filter_jit(jax.vmap(jax.jacfwd(end, has_aux=True)))(jnp.asarray(d))
    assert np.all(result == RESULTS.successful)
    matrix = np.array([[2.0, 1.0], [1.0, 1.0]])
    assert_allclose(x, [4, 3] + d @ matrix, rtol=1e-13)
    assert_allclose(by_start, np.tile(matrix, (4, 1, 1)), rtol=1e-12)


@pytest.mark.medium
def test_sums_and_products_in_another_order_are_in_step():
    """(0.1 + 0.2) + 0.3 is not (0.3 + 0.2) + 0.1, but for rounding; nor are the products, derivatives by the state, the same."""
    ways = [
        hj.Transition("run", "run", lambda t, x, p: 1 - t, lambda t, x, p, c=c: jnp.stack([x[0] + c, c * x[1]]))
        for c in (0.1, 0.2, 0.3)
    ]
    system = hj.HybridSystem({"run": hj.Mode(still, ("sum", "product"))}, ways)

    def end(x):
        ran = hj.simulate(system, x, None, mode="run", t1=2.0, max_jumps=4, integrator=ROLLED)
        return ran.x, (ran.x, ran.result, ran.jumps)

    by_start, (x, result, jumps) = eqx.filter_jit(jax.jacfwd(end, has_aux=True))(jnp.array([0.0, 1.0]))
    assert result == "successful" and int(jumps) == 3
    assert_allclose(x, [0.6, 0.006], rtol=1e-14)
    assert_allclose(by_start, np.diag([1, 0.006]), rtol=1e-14)


@pytest.mark.medium
def test_events_that_lead_to_different_modes_are_not_in_step():
    """One order ends in "a", the other in "b"; all else is the same. A later event could lead from both to "a"."""
    at = lambda k: lambda t, x, p: p[k] - t
    ways = (
        ("none", "one", 0),
        ("none", "two", 1),
        ("one", "a", 1),
        ("two", "b", 0),
        ("two", "a", 2),
    )
    system = hj.HybridSystem(
        {name: hj.Mode(still, ("x",)) for name in ("none", "one", "two", "a", "b")},
        tuple(hj.Transition(a, b, at(k), same) for a, b, k in ways),
    )
    run = lambda p: hj.simulate(
        system, jnp.ones(1), p, mode="none", t1=3.0, max_jumps=3, integrator=ROLLED, throw=False
    )
    ran = eqx.filter_jit(jax.vmap(run))(jnp.array([[1, 1, 5], [1, 2, 5], [2, 1, 5.0]]))
    assert np.array_equal(ran.result == RESULTS.simultaneous_guards, [True, False, False])
    assert [system.names[k] for k in ran.mode] == ["none", "a", "b"]


@pytest.mark.medium
def test_strides_through_events_that_are_not_in_step_have_no_numbers():
    """The rates as above, and y starts again at t = 2."""
    ways = (*rates(3.0).transitions, hj.Transition("both", "none", lambda t, x, p: 2 - t, lambda t, x, p: 0.5 * x))
    run = eqx.filter_jit(
        lambda both, p: hj.ReturnMap(
            hj.HybridSystem(rates(both).modes, ways), sequence=("none", "one", "both"), integrator=ROLLED
        )(jnp.zeros(1), p, throw=False)
    )
    ran = run(jnp.array(3.0), jnp.ones(2))
    assert ran.result == "successful"
    assert_allclose([ran.x[0], ran.time], [1.5, 2], rtol=1e-13)
    ran = run(jnp.array(4.0), jnp.ones(2))
    assert ran.result == "simultaneous_guards"
    assert np.all(np.isnan([ran.x[0], ran.time, ran.impacts[0].t, ran.impacts[0].x[0]]))


@pytest.mark.medium
@pytest.mark.parametrize("step", [1.0, 1e-9])
def test_states_that_depend_on_the_order_keep_the_code(step):
    """Add a step, and double."""
    ways = (
        hj.Transition("run", "run", lambda t, x, p: 1 - t, lambda t, x, p: x + step),
        hj.Transition("run", "run", lambda t, x, p: 1 - t, lambda t, x, p: 2 * x),
    )
    system = hj.HybridSystem({"run": hj.Mode(still, ("x",))}, ways)
    ran = hj.simulate(system, jnp.ones(1), None, mode="run", t1=2.0, max_jumps=3, integrator=ROLLED, throw=False)
    assert ran.result == "simultaneous_guards" and int(ran.jumps) == 0
    assert float(ran.t) == 1.0


@pytest.mark.medium
def test_what_lies_between_two_events():
    """Of two events at one time, one leads to a mode that is left at once, or in which the other is not armed; or both lead to a
    mode in which a third falls at that time. None of these is in step, and each has an order where the times differ."""
    at = lambda k: lambda t, x, p: p[k] - t
    sudden = lambda t, x, p: -jnp.ones(())
    ways = (
        hj.Transition("none", "one", at(0), same),
        hj.Transition("none", "two", at(1), same),
        hj.Transition("one", "both", at(1), same, armed=lambda t, x, p: p[4] < 1),
        hj.Transition("two", "both", at(0), same),
        hj.Transition("one", "gone", sudden, same, armed=lambda t, x, p: p[2] > 0, at_once=True),
        hj.Transition("both", "third", at(3), same),
    )
    system = hj.HybridSystem(
        {name: hj.Mode(still, ("x",)) for name in ("none", "one", "two", "both", "gone", "third")}, ways
    )
    run = lambda p: hj.simulate(
        system, jnp.ones(1), p, mode="none", t1=3.0, max_jumps=4, integrator=ROLLED, throw=False
    )
    cases = {
        (1, 1, 0, 5, 0): "both",
        (1, 1, 1, 5, 0): None,
        (1, 1, 0, 5, 1): None,
        (1, 1, 0, 1, 0): None,
        (1, 1, 0, 2, 0): "third",
        (1, 2, 1, 5, 0): "gone",
        (2, 1, 1, 5, 0): "both",
        (1, 2, 0, 5, 1): "one",
        (1, 2, 0, 1, 0): "both",
    }
    ran = eqx.filter_jit(jax.vmap(run))(jnp.array(list(cases), float))
    together = ran.result == RESULTS.simultaneous_guards
    assert np.all(together | (ran.result == RESULTS.successful))
    ends = [None if code else system.names[k] for code, k in zip(together, ran.mode, strict=True)]
    assert ends == list(cases.values())


@pytest.mark.medium
def test_more_events_than_are_followed_keep_the_code():
    """Five clocks, of which the last doubles what the first increases."""
    resets = [lambda t, x, p, k=k: x.at[k].add(1.0) for k in range(4)] + [lambda t, x, p: x.at[0].multiply(2.0)]
    ways = [hj.Transition("run", "run", lambda t, x, p, k=k: p[k] - t, reset) for k, reset in enumerate(resets)]
    system = hj.HybridSystem({"run": hj.Mode(still, ("a", "b", "c", "d"))}, ways)
    run = lambda p: hj.simulate(
        system, jnp.zeros(4), p, mode="run", t1=3.0, max_jumps=6, integrator=ROLLED, throw=False
    )
    times = jnp.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 2], [2, 1, 1, 1, 1], [1, 2, 2, 2, 1.0]])
    ran = eqx.filter_jit(jax.vmap(run))(times)
    assert np.array_equal(ran.result == RESULTS.simultaneous_guards, [True, False, False, True])
    assert np.array_equal(ran.x[1:3], [[2, 1, 1, 1], [1, 1, 1, 1]])


@pytest.mark.medium
def test_events_in_step_that_leave_the_state_as_it_is():
    """Three at one time, of which two change nothing, are no chain without end."""
    resets = (same, same, lambda t, x, p: x + 1)
    ways = [hj.Transition("run", "run", lambda t, x, p, k=k: p[k] - t, reset) for k, reset in enumerate(resets)]
    system = hj.HybridSystem({"run": hj.Mode(still, ("x",))}, ways)
    run = lambda p: hj.simulate(system, jnp.zeros(1), p, mode="run", t1=3.0, max_jumps=4, integrator=ROLLED)
    ran = eqx.filter_jit(jax.vmap(run))(jnp.array([[1, 1, 1], [1, 1, 2], [2, 1, 2], [1, 2, 1.0]]))
    assert np.all(ran.result == RESULTS.successful) and np.all(ran.jumps == 3)
    assert np.all(ran.x == 1)


@pytest.mark.medium
@pytest.mark.parametrize("first", [0, 1, 2])
def test_an_event_that_was_taken_in_step_is_due_again(first):
    """A clock that ticks at 1 and 2, one at 1 and one at 2: each pair is in step, whatever comes first in the list."""
    ways = [
        hj.Transition("run", "run", lambda t, x, p: 1 + x[0] - t, lambda t, x, p: x.at[0].add(1.0)),
        hj.Transition("run", "run", lambda t, x, p: 1 - t, lambda t, x, p: x.at[1].add(1.0)),
        hj.Transition("run", "run", lambda t, x, p: 2 - t, lambda t, x, p: x.at[2].add(1.0)),
    ]
    system = hj.HybridSystem({"run": hj.Mode(still, ("ticks", "a", "b"))}, ways[first:] + ways[:first])
    ran = hj.simulate(system, jnp.zeros(3), None, mode="run", t1=2.5, max_jumps=5, integrator=ROLLED)
    assert ran.result == "successful" and int(ran.jumps) == 4
    assert np.array_equal(ran.x, [2, 1, 1])


@pytest.mark.medium
@pytest.mark.parametrize("clocks", ["one", "each its own"])
def test_a_clock_that_has_ticked_is_not_due_in_another_mode(clocks):
    """A guard leads to another mode at the time of a tick: one tick is counted, whichever comes first."""
    count = lambda t, x, p: jnp.stack([x[0], x[1] + 1])
    mode = hj.Mode(lambda t, x, p: jnp.ones(1), ("x",), held=("ticks",))
    own = [hj.every(lambda p: p, count, source="a"), hj.every(lambda p: 1.0 * p, count, source="b")]
    ways = [hj.Transition("a", "b", lambda t, x, p: 1 - x[0], same)]
    system = hj.HybridSystem({"a": mode, "b": mode}, ways + ([hj.every(1.0, count)] if clocks == "one" else own))
    ran = hj.simulate(system, jnp.zeros(2), jnp.array(1.0), mode="a", t1=2.5, max_jumps=5, integrator=ROLLED)
    assert ran.result == "successful" and ran.mode_names[-1] == "b" and int(ran.jumps) == 3
    assert_allclose(ran.x, [2.5, 2.0], atol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize("order", [1, -1])
def test_two_clocks_at_one_time_both_tick(order):
    """One changes the mode, in which only the other, that of all modes, ticks."""
    count = lambda k: lambda t, x, p: x.at[k].add(1.0)
    mode = hj.Mode(lambda t, x, p: jnp.ones(1), ("x",), held=("starts", "samples"))
    clocks = (hj.every(1.0, count(1), source="idle", target="busy"), hj.every(1.0, count(2)))
    system = hj.HybridSystem({"idle": mode, "busy": mode}, clocks[::order])
    ran = hj.simulate(system, jnp.zeros(3), None, mode="idle", t1=2.5, max_jumps=5, integrator=ROLLED)
    assert ran.result == "successful"
    assert_allclose(ran.x, [2.5, 1, 2], atol=1e-14)
    step = hj.ReturnMap(system, section=hj.Stroboscope("busy", 1.0, phase=0.5), integrator=ROLLED)
    assert_allclose(step(jnp.zeros(3), None).x, [1, 0, 1], atol=1e-14)


@pytest.mark.medium
def test_a_guard_that_stays_zero_is_not_due_in_another_mode(monkeypatch):
    """Two neurons whose spikes reach each other after a delay, in step: an arrival leaves its countdown at zero, whose guard is
    the same function in the mode entered. The period and the multiplier of their difference in closed form; by a section too,
    whose map has a copy of the mode for each transition, and whose search is one program, because the guess is in step."""
    searches, solve = [], section_search._solve
    searched = lambda section_map, *args: searches.append(section_map.judges) or solve(section_map, *args)
    monkeypatch.setattr(section_search, "_solve", searched)
    drive, delay, pulse = 1.3, 0.3, jnp.array(-0.1)
    field = lambda t, x, p: jnp.concatenate([drive - x[:2], -jnp.ones(2)])
    threshold, countdown = (lambda t, x, p: 1 - x[:2]), (lambda t, x, p: x[2:])
    spike = lambda t, x, p, i: x.at[i].set(0.0).at[2 + i].set(delay)
    arrive = lambda t, x, p, i: x.at[1 - i].add(p)

    def system(*names):
        modes = {name: hj.Mode(field, ("a", "b", "of_a", "of_b")) for name in names}
        ways = [(name, names[0], threshold, spike) for name in names]
        ways += [(name, names[-1], countdown, arrive) for name in names]
        return hj.HybridSystem(modes, tuple(hj.Transition(*way) for way in ways))

    reached = drive * (1 - np.exp(-delay)) + float(pulse)
    period = delay + np.log((drive - reached) / (drive - 1))
    # The one that spikes first, by d, has its pulse later after its spike by d, the other one earlier by d.
    multiplier = -1 + 2 * drive * np.exp(-delay) / (drive - reached)
    by_modes = hj.ReturnMap(system("spiked", "hit"), sequence=("hit[0]", "spiked[1]", "spiked[0]", "hit[1]"))
    by_section = hj.ReturnMap(
        system("run"), section=hj.Section("run", lambda t, x, p: 0.6 - (x[0] + x[1]) / 2), max_jumps=4
    )
    for step, guess in ((by_modes, [reached, reached, 0, 0.0]), (by_section, [0.6, 0.6, -0.4, -0.4])):
        orbit = hj.periodic_orbit(step, jnp.array(guess), pulse)
        assert_allclose(orbit.period, period, atol=1e-13)
        assert_allclose(np.sort(np.abs(orbit.multipliers)), [0, 0, 0, multiplier], atol=1e-12)
    assert searches == [True]


@pytest.mark.medium
def test_as_many_orders_are_followed_as_the_events_have():
    """Two of four bodies land together, and three, in one run each. All 24 orders of four events, from two states a rounding
    apart, would be 192 jumps; those of two and of three events are 2 and 6 orders."""
    landings = []

    def land(t, x, p, i):
        jax.debug.callback(lambda: landings.append(0))
        return x.at[i].set(5.0)

    system = hj.HybridSystem(
        {"fall": hj.Mode(lambda t, x, p: -jnp.ones(4), tuple("abcd"))},
        (hj.Transition("fall", "fall", guard=lambda t, x, p: x, reset=land),),
    )
    counts = []
    for start in ([1.0, 1.0, 2.5, 3.0], [1.0, 1.0, 1.0, 3.0]):
        landings.clear()
        ran = hj.simulate(system, jnp.array(start), None, mode="fall", t1=1.5, max_jumps=8)
        assert ran.result == RESULTS.successful and ran.jumps == start.count(1.0)
        jax.effects_barrier()
        counts.append(len(landings))
    assert 2 * counts[0] < counts[1] < 192


@pytest.mark.medium
def test_the_order_of_events_is_in_no_program_of_an_orbit_that_meets_none_together(monkeypatch):
    """x' = -x, to x + 1 at a third and to x + 2 at two thirds of a lap, by a section at its end: the state there is that of the
    jumps, and the multiplier exp(-1)."""

    def examined(*_):
        raise AssertionError("the order of events is examined")

    monkeypatch.setattr(order_of_events, "_commute", examined)
    at = lambda place, by: (lambda t, x, p: place - x[1], lambda t, x, p: x.at[0].add(by).at[1].add(1.0))
    ways = tuple(hj.Transition("run", "run", *at(place, by)) for place, by in ((1 / 3, 1.0), (5 / 3, 2.0)))
    system = hj.HybridSystem({"run": hj.Mode(lambda t, x, p: jnp.stack([-x[0], jnp.ones(())]), ("x", "lap"))}, ways)
    turned = lambda t, x, p: -jnp.sin(2 * jnp.pi / 3 * x[1])
    section = hj.Section("run", turned, lambda t, x, p: x.at[1].add(-3.0))
    step = hj.ReturnMap(system, section=section, max_jumps=4)
    orbit = hj.periodic_orbit(step, jnp.array([1.0, 0.0]), None)
    assert_allclose(orbit.x, [(np.exp(-2 / 3) + 2 * np.exp(-1 / 3)) / (1 - np.exp(-1)), 0], atol=1e-13)
    assert_allclose(np.sort(np.abs(orbit.multipliers)), [0, np.exp(-1)], atol=1e-13)
    assert any(each_in_step(orbit.system, orbit.sequence))


@pytest.mark.medium
@pytest.mark.parametrize("names", [("odd", "even"), ("only", "only")])
def test_after_an_exchange_the_other_body_is_at_the_same_guard(names):
    """Two balls that land together: each bounce exchanges them, as relabelled legs, and leads to the other mode, whose guards are
    the same functions, or back to the only one. Each bounces at v = sqrt(2 h), and is at 2 v t - 3 v^2 / 2 - t^2 / 2 with the
    velocity 2 v - t. From 0.37 the heights at the bounce are rounding errors, from 0.5 zero."""
    field = lambda t, x, p: jnp.stack([x[1], -jnp.ones_like(t), x[3], -jnp.ones_like(t)])
    height = lambda i: lambda t, x, p: x[2 * i]
    bounce = lambda t, x, p, i: x.at[2 * i + 1].multiply(-1.0)[jnp.array([2, 3, 0, 1])]
    singles = [(height(i), lambda t, x, p, i=i: bounce(t, x, p, i)) for i in (0, 1)]
    family = [(lambda t, x, p: x[::2], bounce)]

    def system(bounces):
        modes = {name: hj.Mode(field, ("h", "v", "h'", "v'")) for name in names}
        ways = [(*way, *each) for way in dict.fromkeys((names, names[::-1])) for each in bounces]
        return hj.HybridSystem(modes, tuple(hj.Transition(*way) for way in ways))

    for bounces in (singles, family):
        run = lambda x, of=system(bounces): hj.simulate(of, x, None, mode=names[0], t1=1.25, throw=False)
        derivative = jax.jit(jax.jacfwd(lambda x, run=run: (run(x).x, run(x)), has_aux=True))
        for h in (0.5, 0.37):
            jacobian, found = derivative(jnp.array([h, 0, h, 0]))
            assert found.result == hj.RESULTS.successful and int(found.jumps) == 2
            v = np.sqrt(2 * h)
            assert_allclose(found.x, 2 * [2 * v * 1.25 - 1.5 * v**2 - 0.78125, 2 * v - 1.25], atol=1e-14)
            by_h = np.array([2 * 1.25 / v - 3, 2 / v])
            assert_allclose(jacobian[:, ::2], np.kron(np.eye(2), by_h[:, None]), atol=1e-13)
    stride = hj.ReturnMap(system(family), sequence=tuple(f"{name}[0]" for name in names))(
        jnp.array([0.0, 1, 0, 1]), None
    )
    assert_allclose(stride.x, [0, 1, 0, 1], atol=1e-14)
    assert_allclose(stride.time, 2, atol=1e-14)


@pytest.mark.parametrize("leap, multiple", [(jnp.array([2, 3, 0, 1]), False), (jnp.arange(4), True)])
def test_heights_that_are_rounding_errors_vary_as_those_that_are_zero(leap, multiple):
    """Two balls at the floor: the height of a bounce is that of the other ball if it exchanges them, and else its own."""
    ways = [(4, lambda t, x, p: x[0], lambda t, x, p: (x * jnp.array([1.0, -1, 1, 1]))[leap], None)]
    asked = lambda a, b: order_of_events._multiple_at(
        ways, jnp.array(1.0), jnp.array([a, -1, b, -1]), jnp.array(0), jnp.array(0), None
    )
    for heights in ((0.0, 0.0), (1e-17, 0.0), (0.0, -1e-17), (1e-17, 3e-17)):
        assert asked(*heights) == multiple


def phase_locked_loop():
    """A loop of which the edges of a clock and of an oscillator switch the current of a pump, with a resistor p[1]."""
    field = lambda pump: lambda t, x, p: jnp.stack([x[1] + pump * p[1], pump * p[0]])
    modes = {name: hj.Mode(field(pump), ("phase", "voltage")) for name, pump in (("down", -1), ("idle", 0), ("up", 1))}
    ticks = [hj.every(1.0, same, source=a, target=b) for a, b in (("down", "idle"), ("idle", "up"), ("up", "up"))]
    edge, wrap = lambda t, x, p: 1 - x[0], lambda t, x, p: jnp.stack([x[0] - 1, x[1]])
    edges = [hj.Transition(a, b, edge, wrap) for a, b in (("down", "down"), ("idle", "down"), ("up", "idle"))]
    return hj.HybridSystem(modes, (*ticks, *edges))


@pytest.mark.medium
def test_a_locked_loop():
    """In lock both edges fall together. Without the resistor their order is without effect: a phase that is late by d lasts a
    current for the time d, in either order."""
    loop, locked = phase_locked_loop(), jnp.array([0.5, 1.0])
    step = hj.ReturnMap(loop, section=hj.Stroboscope("idle", 1.0, phase=0.5), integrator=ROLLED)
    half = np.array([[1, 0.5], [0, 1.0]])
    free, damped = jnp.array([0.3, 0.0]), jnp.array([0.3, 0.4])
    assert_allclose(step.jacobian(locked, free), half @ np.array([[1, 0], [-0.3, 1]]) @ half, atol=1e-13)
    # With the resistor the phase runs at 1.4 or 0.6 while the current flows.
    assert step(locked, damped, throw=False).result == "simultaneous_guards"
    there = hj.phase.bouligand_derivative(loop, "idle", 1.0, jnp.ones(2), damped)
    late, early = (there(jnp.array([d, 0.0])) for d in (-1.0, 1.0))
    assert_allclose(late, [-1 / 1.4, 0.3 / 1.4], atol=1e-14)
    assert_allclose(early, [0.6, -0.3], atol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize("name", CASES)
def test_in_step_as_the_bouligand_derivative_says(name):
    """Where its matrices agree the run goes on, with that matrix; where they do not, the code stays."""
    system, mode, x, params = CASES[name]()
    derivative = hj.phase.bouligand_derivative(system, mode, 0.0, x, params)
    agree = np.allclose(derivative.matrices, derivative.matrices[0], rtol=1e-12, atol=1e-14)
    field = system.modes[mode].vector_field
    reverse = hj.HybridSystem({"back": hj.Mode(lambda t, x, p: -field(-t, x, p), system.modes[mode].coordinates)}, ())
    start = hj.simulate(reverse, x, params, mode="back", t1=0.1, max_jumps=0, throw=False).x
    ran = hj.simulate(system, start, params, mode=mode, t0=-0.1, t1=1e-3, max_jumps=4, integrator=ROLLED, throw=False)
    assert ran.result == ("successful" if agree else "simultaneous_guards")
    assert int(ran.jumps) == (2 if agree else 0)


# Two balls on two floors.
BALLS = hj.HybridSystem(
    {"fly": hj.Mode(lambda t, x, p: jnp.stack([x[1], -p["g"], x[3], -p["g"]]), ("y", "y_rate", "z", "z_rate"))},
    tuple(
        hj.Transition("fly", "fly", lambda t, x, p, k=k: x[k], lambda t, x, p, k=k: x.at[k + 1].multiply(-p["e"]))
        for k in (0, 2)
    ),
)
BALL_PARAMS = {"g": jnp.array(9.81), "e": jnp.array(0.8)}


def after_two_bounces(h, g, e, t):
    """Height and speed of a ball dropped from `h`, after its second bounce: elementary."""
    fall = np.sqrt(2 * h / g)
    second, speed = fall * (1 + 2 * e), e**2 * np.sqrt(2 * g * h)
    return speed * (t - second) - g * (t - second) ** 2 / 2, speed - g * (t - second)


@pytest.mark.medium
def test_balls_of_equal_height():
    """The bounces of two balls from one height, in step each time, and the derivatives by both heights and the restitution."""

    @eqx.filter_jit
    def fly(h, e):
        def end(h, e):
            x0 = jnp.array([h[0], 0.0, h[1], 0.0])
            ran = hj.simulate(BALLS, x0, BALL_PARAMS | {"e": e}, mode="fly", t1=1.4, max_jumps=6, integrator=ROLLED)
            return ran.x, (ran.result, ran.jumps, ran.end_times)

        return jax.jacfwd(end, argnums=(0, 1), has_aux=True)(h, e), end(h, e)[0]

    (by, (result, jumps, ends)), x = fly(jnp.array([1.0, 1.0]), jnp.array(0.8))
    assert result == "successful" and int(jumps) == 4
    assert float(ends[0]) == float(ends[1]) and float(ends[2]) == float(ends[3])
    # Two flights of about one second at 1e-10; derivatives by central differences of the closed form, good to 1e-9.
    assert_allclose(x, np.tile(after_two_bounces(1.0, 9.81, 0.8, 1.4), 2), rtol=0, atol=1e-13)
    d = 1e-5
    by_h = (np.array(after_two_bounces(1 + d, 9.81, 0.8, 1.4)) - after_two_bounces(1 - d, 9.81, 0.8, 1.4)) / (2 * d)
    by_e = (np.array(after_two_bounces(1, 9.81, 0.8 + d, 1.4)) - after_two_bounces(1, 9.81, 0.8 - d, 1.4)) / (2 * d)
    assert_allclose(by[0], np.stack([[*by_h, 0, 0], [0, 0, *by_h]], axis=1), rtol=0, atol=1e-8)
    assert_allclose(by[1], np.tile(by_e, 2), rtol=0, atol=1e-8)


# Two neurons, each of which excites the other through a synapse with two states.
G, DRIVE = 0.4, jnp.array(1.3)
NAMES = ("u", "v", "e", "f", "k", "l")


def neurons(t, x, drive):
    return jnp.stack([drive - x[0] + x[2], drive - x[1] + x[4], x[3] - x[2], -x[3], x[5] - x[4], -x[5]])


FIRE = {
    "u": (lambda t, x, p: 1 - x[0], lambda t, x, p: x.at[0].set(0.0).at[5].add(G)),
    "v": (lambda t, x, p: 1 - x[1], lambda t, x, p: x.at[1].set(0.0).at[3].add(G)),
}
PAIR = hj.HybridSystem(
    {name: hj.Mode(neurons, NAMES) for name in ("run", "u fired", "v fired")},
    (
        hj.Transition("run", "u fired", *FIRE["u"]),
        hj.Transition("run", "v fired", *FIRE["v"]),
        hj.Transition("u fired", "run", *FIRE["v"]),
        hj.Transition("v fired", "run", *FIRE["u"]),
    ),
)
# The period solves u(T) = 1 with E and F as geometric sums over all spikes (Brent's method on the quadrature, 1e-14).
PERIOD = 0.8201960685332154
Q = np.exp(-PERIOD)
F0 = G / (1 - Q)
SYNCHRONOUS = jnp.array([0, 0, F0 * Q * PERIOD / (1 - Q), F0, F0 * Q * PERIOD / (1 - Q), F0])


@pytest.fixture(scope="module")
def strides():
    def both(x):
        ways = [("run", "u fired"), ("run", "v fired")]
        ran = [hj.ReturnMap(PAIR, sequence=names, integrator=ROLLED)(x, DRIVE) for names in ways]
        return jnp.stack([one.x for one in ran]), ran

    @eqx.filter_jit
    def run(x):
        jacobian, ran = jax.jacfwd(both, has_aux=True)(x)
        return jacobian, ran

    return run(SYNCHRONOUS)


@pytest.mark.medium
def test_the_sequence_names_the_order(strides):
    jacobian, ran = strides
    for one, (first, second) in zip(ran, ((0, 2), (1, 3)), strict=True):
        assert one.result == "successful"
        assert [int(each.transition) for each in one.impacts] == [first, second]
        assert float(one.impacts[0].t) == float(one.impacts[1].t)
        assert_allclose(one.time, PERIOD, rtol=1e-10)  # the solver's tolerance
        assert_allclose(one.x, SYNCHRONOUS, atol=1e-9)
    # The neurons are equal: the map to the spike of v is that to the spike of u with the neurons exchanged.
    exchanged = np.array([1, 0, 4, 5, 2, 3])
    assert_allclose(jacobian[0], jacobian[1][exchanged][:, exchanged], rtol=0, atol=1e-12)


@pytest.mark.medium
def test_the_derivative_in_step_is_that_of_both_orders(strides):
    """The map from one state with both neurons at zero to the next, by hand: to first order, u and v fire `delay` late."""
    jacobian = np.asarray(strides[0][0])
    matrix = np.zeros((6, 6))
    matrix[0, [0, 2]] = matrix[1, [1, 4]] = [-1, 1]
    matrix[2, [2, 3]] = matrix[4, [4, 5]] = [-1, 1]
    matrix[3, 3] = matrix[5, 5] = -1
    # exp(T A) with A^k in closed form: A + 1 is nilpotent.
    nilpotent = matrix + np.eye(6)
    flow = Q * (np.eye(6) + PERIOD * nilpotent + PERIOD**2 / 2 * nilpotent @ nilpotent)
    x = flow @ np.asarray(SYNCHRONOUS) + np.array([1, 1, 0, 0, 0, 0]) * 1.3 * (1 - Q)
    rate = matrix @ x + np.array([1.3, 1.3, 0, 0, 0, 0])
    late = -np.eye(6)[:2] / rate[:2, None]  # of u and v, for a variation before the events
    after = np.eye(6)
    after[0, 0] = after[1, 1] = 0
    # At the time of u's spike, u is 0 and rises from then on; its pulse begins to decay then. Both are compared when the second
    # neuron fires: up to first order the other coordinates do not notice the order.
    ends = np.asarray(SYNCHRONOUS)
    rate_after = matrix @ ends + np.array([1.3, 1.3, 0, 0, 0, 0])
    fixed_time = after.copy()
    jump_u, jump_v = np.zeros(6), np.zeros(6)
    jump_u[[0, 5]], jump_v[[1, 3]] = [-1, G], [-1, G]
    slip_u = matrix @ jump_u
    slip_v = matrix @ jump_v
    slip_u[0], slip_v[1] = rate_after[0], rate_after[1]
    fixed_time -= np.outer(slip_u, late[0]) + np.outer(slip_v, late[1])
    # The stride ends at the second spike, v.
    own_event = fixed_time + np.outer(rate_after, late[1])
    assert_allclose(jacobian, own_event @ flow, rtol=0, atol=1e-8)
    # In step they are unstable: a difference grows. One transition for both, at the larger of the two guards, has 0.747.
    assert_allclose(np.max(np.abs(np.linalg.eigvals(jacobian))), 1.027259721433394, rtol=1e-8)


@pytest.mark.slow
def test_orbit_of_neurons_in_step(strides):
    """Newton's method keeps them in step, from a start in which they are; both methods, and the monodromy matrix."""
    jacobian = np.asarray(strides[0][0])
    want = np.sort(np.abs(np.linalg.eigvals(jacobian)))
    guess = SYNCHRONOUS + 0.01 * jnp.array([0, 0, 1.0, 1, 1, 1])
    step = hj.ReturnMap(PAIR, sequence=("run", "u fired"), integrator=ROLLED)
    for method in (hj.SingleShooting(), hj.MultipleShooting()):
        orbit = hj.periodic_orbit(step, guess, DRIVE, method=method)
        assert_allclose(orbit.period, PERIOD, rtol=1e-9)
        assert_allclose(np.sort(np.abs(orbit.multipliers)), want, atol=1e-7)
    total = step.monodromy(SYNCHRONOUS, DRIVE)
    # Along the flow the return map has the eigenvalue 0, the monodromy matrix 1.
    around = np.linalg.eigvals(total)
    others = np.delete(around, np.argmin(np.abs(around - 1)))
    assert_allclose(np.min(np.abs(around - 1)), 0, atol=1e-8)
    assert_allclose(np.sort(np.abs(others)), want[1:], atol=1e-8)


@pytest.mark.medium
def test_covariance_through_events_in_step():
    """Without noise it is J sigma J' with the fundamental matrix."""
    mode = hj.Mode(lambda t, x, p: jnp.stack([x[1], -1 + 0 * x[0], x[3], -1 + 0 * x[0]]), ("y", "v", "z", "w"))
    floor = lambda k: lambda t, x, p: x[k]
    ways = tuple(hj.Transition("fly", "fly", floor(k), lambda t, x, p, k=k: x.at[k + 1].multiply(-0.5)) for k in (0, 2))
    system, sigma = hj.HybridSystem({"fly": mode}, ways), jnp.diag(jnp.array([1.0, 2.0, 3.0, 4.0])) + 0.5
    x0 = jnp.array([1.0, 0.0, 1.0, 0.0])
    found = hj.noise.covariance(system, x0, sigma, None, mode="fly", t1=2.0, max_jumps=3, integrator=ROLLED)
    matrix = found.trajectory.fundamental_matrix()
    assert found.result == "successful" and int(found.trajectory.jumps) == 2
    # Both to the solver's tolerance.
    assert_allclose(found.final, matrix @ sigma @ matrix.T, rtol=1e-8, atol=1e-14)


@pytest.mark.medium
def test_tangents_do_not_decide_what_is_in_step():
    """z' = y - 1 from the event of x to that of y: where x is first by d, z falls by d^2 / 2. That has no first derivative, but
    the tangents of a Lyapunov spectrum have one, of the second order in the state."""
    move = lambda rise: lambda t, x, p: jnp.stack([jnp.ones(()), jnp.ones(()), rise * (x[1] - 1)])
    modes = {name: hj.Mode(move(rise), ("x", "y", "z")) for name, rise in
             {"none": 0.0, "one": 1.0, "two": 0.0, "both": 0.0}.items()}  # fmt: skip
    at = lambda k: lambda t, x, p: 1 - x[k]
    ways = (("none", "one", 0), ("none", "two", 1), ("one", "both", 1), ("two", "both", 0))
    system = hj.HybridSystem(modes, tuple(hj.Transition(a, b, at(k), same) for a, b, k in ways))
    found = hj.phase.lyapunov_spectrum(
        system, jnp.zeros(3), None, mode="none", t1=1.9, n_segments=20, max_jumps=3, integrator=ROLLED
    )
    assert found.result == "successful" and int(found.jumps) == 2
    assert_allclose(found.exponents, 0, atol=1e-12)


def test_flow_to_guard_keeps_the_code():
    met = hj.flow_to_guard(CLOCKS, "run", 0.0, jnp.zeros(3), jnp.array([1.0, 1.0, 2.0]), integrator=ROLLED, throw=False)
    assert met.result == "simultaneous_guards" and np.isnan(met.t)


# x' = x^2 meets its thresholds M and 1.5 M with the rates M^2.
STEEP = hj.HybridSystem(
    {"on": hj.Mode(lambda t, x, p: x**2, ("x",)), "low": hj.Mode(still, ("x",)), "high": hj.Mode(still, ("x",))},
    (
        hj.Transition("on", "low", lambda t, x, p: p[0] - x[0], lambda t, x, p: x),
        hj.Transition("on", "high", lambda t, x, p: p[1] - x[0], lambda t, x, p: x),
    ),
)


@pytest.mark.medium
def test_thresholds_of_a_steep_flow_have_an_order():
    """However little time passes from one to the other, values that differ by half are not met together."""
    run = eqx.filter_jit(
        jax.vmap(
            lambda p: hj.simulate(STEEP, jnp.ones(1), p, mode="on", t1=2.0, max_jumps=1, integrator=ROLLED, throw=False)
        )
    )
    low = 10.0 ** np.arange(1, 16)
    ran = run(jnp.asarray(np.stack([low, 1.5 * low], axis=1)))
    assert np.all(ran.result == RESULTS.successful) and np.all(ran.transitions[:, 0] == 0)
    # Met together within rounding of the thresholds, where they end in two modes.
    ran = run(jnp.asarray(np.stack([low, low * (1 + 1e-15)], axis=1)))
    assert np.all(ran.result == RESULTS.simultaneous_guards)


def test_which_events_may_be_in_step():
    # A runner at the apex cannot land first and then be at the apex; two neurons may fire in either order.
    assert not any(each_in_step(slip.system, slip.sequence))
    both = hj.HybridSystem(
        modes={"run": hj.Mode(lambda t, x, p: p - x, ("a", "b"))},
        transitions=tuple(
            hj.Transition("run", "run", guard=lambda t, x, p, k=k: 1 - x[k], reset=lambda t, x, p, k=k: x.at[k].set(0))
            for k in range(2)
        ),
    )
    assert each_in_step(both, ("run",)) == (True,)
    # Named by their numbers in a family.
    (network,) = pulse_coupled_neurons.system.modes.values()
    family = hj.Transition("run", "run", lambda t, x, p: 1 - x, lambda t, x, p, i: x.at[i].set(0))
    named = hj.HybridSystem({"run": network}, (dataclasses.replace(family, _members=10),))
    assert each_in_step(named, ("run[3]", "run[1]")) == (True, True)
