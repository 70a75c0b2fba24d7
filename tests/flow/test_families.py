"""Families of transitions: a guard of shape (k,), and a reset that takes the number of the guard that fell."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import balls, complex_of, EXACT, network, single, splay
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import operations

DRIVE = jnp.array(1.2)


def ran(system, x0, t1, params=DRIVE, max_jumps=12, **options):
    (mode,) = system.names
    return hj.simulate(system, x0, params, mode=mode, t1=t1, max_jumps=max_jumps, integrator=ROLLED, **options)


@pytest.fixture(scope="module")
def five():
    system, (x0, case) = network(5), splay(5)
    return system, x0, case, ran(system, x0, 3.0)


def test_splay_state_fires_in_turn_at_exact_times(five):
    """Reference: `splay_N5`. At the default tolerance, 1e-12, over nine events."""
    *_, case, run = five
    interval = float(case["interspike_interval_network"])
    assert run.result == hj.RESULTS.successful and int(run.jumps) == 9
    assert run.indices[:9].tolist() == [4, 3, 2, 1, 0, 4, 3, 2, 1] and set(run.transitions[:9].tolist()) == {0}
    assert set(run.indices[9:].tolist()) == {-1} and [event.index for event in run.events] == run.indices[:9].tolist()
    assert_allclose(run.end_times[:9], interval * np.arange(1, 10), rtol=0, atol=2e-12)
    # A guard at its event is zero to rounding, that of the guard that fell.
    fired = run.x_ends[jnp.arange(9), run.indices[:9]]
    assert np.max(np.abs(1 - fired)) <= 1e-14
    assert "network [4]" in str(run)


@pytest.mark.medium
def test_multipliers_of_an_orbit_whose_sequence_names_guards(five, tmp_path):
    """Reference: the period map's multipliers in 50 digits. (By saltation matrices: `test_pulse_coupled_neurons.py`.)"""
    system, x0, case, _ = five
    exact = np.sort(np.abs(complex_of(case["period_map_multipliers"])))
    names = tuple(f"network[{k}]" for k in (4, 3, 2, 1, 0))
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=names, integrator=ROLLED), x0 + 0.003, DRIVE)
    assert orbit.sequence == names and orbit.mode_names == ("network",) * 5
    assert_allclose(np.sort(np.abs(orbit.multipliers))[1:], exact, rtol=0, atol=1e-12)
    assert_allclose(orbit.period, float(case["period_T"]), rtol=0, atol=1e-12)
    assert np.min(np.abs(orbit.multipliers)) < 1e-13
    # A file holds the size of the family.
    hj.save(tmp_path / "splay.npz", orbit)
    again = hj.load(tmp_path / "splay.npz", system=five[0], params=DRIVE)
    assert again.system == orbit.system and np.array_equal(again.sample(3)[4].x, orbit.sample(3)[4].x)


@pytest.mark.medium
def test_the_map_of_a_section_goes_through_whatever_guards_fall(five):
    """Reference as above. From the section the first neuron crosses on its way up, four others fire before it does."""
    system, x0, case, _ = five
    half_way = hj.Section("network", lambda t, x, p: 0.5 - x[0])
    step = hj.ReturnMap(system, section=half_way, max_jumps=8, integrator=ROLLED)
    on_section = step(x0, DRIVE).x
    crossing = step(on_section, DRIVE)
    assert crossing.indices[:5].tolist() == [3, 2, 1, 0, 4] and int(crossing.jumps) == 5
    assert_allclose(crossing.time, float(case["period_T"]), rtol=0, atol=1e-11)
    found = np.sort(np.abs(np.linalg.eigvals(step.jacobian(on_section, DRIVE))))
    exact = np.sort(np.abs(complex_of(case["period_map_multipliers"])))
    assert_allclose(found[1:], exact, rtol=0, atol=1e-11)
    assert found[0] < 1e-13


@pytest.fixture(scope="module")
def one_by_one(five):
    system, x0, _, _ = five
    alone = single(system, DRIVE, x0)
    return alone, ran(alone, x0, 1.0)


@pytest.mark.medium
def test_a_family_is_the_same_as_its_single_transitions(five, one_by_one):
    system, x0, _, _ = five
    alone, apart = one_by_one
    whole = ran(system, x0, 1.0)
    assert len(alone.transitions) == 5 and apart.transitions[:3].tolist() == whole.indices[:3].tolist() == [4, 3, 2]
    assert_allclose(whole.x, apart.x, rtol=0, atol=1e-13)
    assert_allclose(whole.end_times[:3], apart.end_times[:3], rtol=0, atol=1e-13)
    assert_allclose(whole.fundamental_matrix(), apart.fundamental_matrix(), rtol=0, atol=1e-12)


@pytest.mark.medium
def test_derivatives_in_both_modes_and_of_second_order(five):
    """The product of flow Jacobians and saltation matrices against forward and reverse mode; the second derivative of a firing
    time against its closed form, T = ln((I - x) / (I - 1))."""
    system, x0, _, _ = five
    end = lambda x: ran(system, x, 1.0, max_jumps=3).x
    matrix = ran(system, x0, 1.0, max_jumps=3).fundamental_matrix()
    assert_allclose(jax.jacfwd(end)(x0), matrix, rtol=0, atol=1e-12)
    assert_allclose(jax.jacrev(end)(x0), matrix, rtol=0, atol=1e-12)
    first = lambda x: hj.flow_to_guard(system, "network", 0.0, x, DRIVE, integrator=ROLLED).t
    impact = hj.flow_to_guard(system, "network", 0.0, x0, DRIVE, integrator=ROLLED)
    assert (int(impact.transition), int(impact.index)) == (0, 4)
    assert_allclose(jax.grad(first)(x0), [0, 0, 0, 0, -1 / (1.2 - x0[4])], rtol=1e-11, atol=1e-13)
    hessian = np.zeros((5, 5))
    hessian[4, 4] = -1 / (1.2 - x0[4]) ** 2
    assert_allclose(jax.hessian(first)(x0), hessian, rtol=1e-10, atol=1e-11)


def test_saltation_matrix_of_a_member(five, one_by_one):
    """Neuron 4 fires at the rate 0.2, and later where it is lower; its rate jumps to 1.2, those of the others by -0.02."""
    system, _, _, run = five
    alone, _ = one_by_one
    t, x = run.end_times[0], run.x_ends[0]
    found = hj.saltation_matrix(system, 0, t, x, DRIVE, index=4)
    exact = np.diag([1.0, 1, 1, 1, 0])
    exact[:, 4] = np.array([-0.02, -0.02, -0.02, -0.02, 1.2]) / 0.2
    assert_allclose(found, exact, rtol=0, atol=1e-13)
    assert_allclose(found, hj.saltation_matrix(alone, 4, t, x, DRIVE), rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="index="):
        hj.saltation_matrix(system, 0, t, x, DRIVE)


@pytest.mark.parametrize(
    "name, restitution", [("cradle_elastic_5", 1.0), ("chain_e1/2_5", 0.5), ("tapered_chain_5", 0.9)]
)
def test_chain_of_balls(name, restitution):
    """Reference: exact rationals. Between collisions the flow is a straight line, exact but for rounding."""
    case = EXACT[name]
    x0 = jnp.array([eval(each) for each in (*case["x0"], *case["v0"])], float)
    masses = [float(eval(each)) for each in case["m"]]
    run = ran(balls(masses, restitution), x0, 20.0, None)
    assert run.result == hj.RESULTS.successful and int(run.jumps) == case["n_collisions"]
    times, pairs = zip(*((float(t), k) for t, k, _ in case["collisions"]), strict=True)
    assert run.indices[: len(pairs)].tolist() == list(pairs)
    assert_allclose(run.end_times[: len(times)], times, rtol=1e-12, atol=0)
    assert_allclose(run.final[5:], np.array(case["final_v"], float), rtol=0, atol=1e-13)


@pytest.mark.medium
def test_collisions_at_one_time_pass_where_they_commute():
    """Two pairs of balls that meet at the same time do not touch each other: in either order the state after both is the same.
    Three balls that meet in one point do not commute."""
    apart = jnp.array([0.0, 0.2, 1.0, 1.2, 1.0, 0.0, 1.0, 0.0])
    run = ran(balls([1.0] * 4, 1.0), apart, 0.5, None, 4)
    assert run.result == hj.RESULTS.successful and sorted(run.indices[:2].tolist()) == [0, 2]
    assert_allclose(run.final[4:], [0.0, 1.0, 0.0, 1.0], rtol=0, atol=1e-14)
    met = ran(balls([1.0, 2.0, 3.0], 0.5), jnp.array([0.0, 0.2, 0.4, 1.0, 0.0, -1.0]), 0.5, None, 4, throw=False)
    assert met.result == hj.RESULTS.simultaneous_guards


MANY = 20


def gap(t, x, params):
    return 1 - x


@pytest.fixture(scope="module")
def towers():
    """Coordinates that rise at their own rates to 1, and fall by 1 there, but for the one that `params` names; their domain is
    the guard, and the same by another name."""
    rise = lambda t, x, params: params[0] * jnp.linspace(1, 1.95, MANY)
    armed = lambda t, x, params: jnp.arange(float(MANY)) != params[1]
    fall = hj.Transition("m", "m", guard=gap, reset=lambda t, x, params, i: x.at[i].add(-1), armed=armed)
    names = tuple(f"x{k}" for k in range(MANY))
    systems = [
        hj.HybridSystem({"m": hj.Mode(rise, names, domain=each)}, (fall,)) for each in (gap, lambda *at: gap(*at))
    ]
    solved = lambda system, x0, params: ran(system, x0, 0.7, params, 40, throw=False)
    along = lambda system, x0, params: jax.jvp(lambda p: solved(system, x0, p).x, (params,), (jnp.array([1.0, 0.0]),))[
        1
    ]
    return [jax.jit(lambda x0, params, s=s: (solved(s, x0, params), along(s, x0, params))) for s in systems]


@pytest.mark.medium
@pytest.mark.parametrize("start", [None, 1.2, 1.0, 1 - 1e-15])
@pytest.mark.parametrize(("speed", "dead"), [(1.0, -1), (1.0, 3), (-1.0, 3)])
def test_a_domain_that_is_its_guards_is_left_where_another_is(towers, start, speed, dead):
    """Also where a guard that is not armed has fallen, and where a flow begins on or beyond a surface."""
    x0 = jnp.asarray(np.random.default_rng(0).uniform(0, 0.9, MANY)).at[3].set(0.5 if start is None else start)
    (one, slope), (other, other_slope) = (run(x0, jnp.array([speed, dead])) for run in towers)
    assert one.result == other.result and one.jumps == other.jumps
    left = start == 1.2 or (speed > 0 and (start is not None or dead == 3))
    assert (one.result == hj.RESULTS.outside_domain) == left
    if start is None and left:
        assert_allclose(one.t, 0.5 / 1.15, rtol=1e-14)
    assert_allclose(one.t, other.t, rtol=1e-14, atol=1e-15)
    assert_allclose(one.x, other.x, atol=1e-14)
    assert_allclose(slope, other_slope, atol=1e-14)


@pytest.mark.medium
def test_armed_of_a_family():
    """Of neurons of one state the first fires: `armed` of shape (k,) chooses; of shape () it is for all."""
    system = network(3, 0.0)
    (spike,) = system.transitions
    first = lambda t, x, p: jnp.arange(3) == jnp.argmax(x)
    chosen = hj.HybridSystem(system.modes, (dataclasses.replace(spike, armed=first),))
    run = ran(chosen, jnp.array([0.1, 0.5, 0.5]), 1.3, max_jumps=3, throw=False)
    assert run.indices[0] == 1
    never = hj.HybridSystem(system.modes, (dataclasses.replace(spike, armed=lambda t, x, p: jnp.array(False)),))
    assert int(ran(never, jnp.array([0.1, 0.5, 0.5]), 1.3, max_jumps=3).jumps) == 0


@pytest.mark.medium
def test_a_failed_lane_leaves_its_neighbours_as_they_are(five):
    system, x0, _, _ = five
    run = jax.vmap(lambda x: ran(system, x, 1.0, max_jumps=3, throw=False))
    alone, beside = run(jnp.stack([x0, x0])), run(jnp.stack([x0, jnp.full(5, jnp.nan)]))
    assert (beside.result == hj.RESULTS.successful).tolist() == [True, False]
    assert (beside.result == hj.RESULTS.nonfinite).tolist() == [False, True]
    assert np.array_equal(alone.x[0], beside.x[0]) and np.array_equal(alone.indices[0], beside.indices[0])


def test_float32():
    system, (x0, case) = network(5), splay(5)
    run = ran(system, x0.astype(jnp.float32), jnp.float32(3.0), DRIVE.astype(jnp.float32))
    assert run.x.dtype == jnp.float32 and run.indices[:9].tolist() == [4, 3, 2, 1, 0, 4, 3, 2, 1]
    assert_allclose(run.end_times[8], 9 * float(case["interspike_interval_network"]), rtol=1e-5)


def test_the_program_does_not_grow_with_the_family():
    """Equations of the program of `simulate`, for 20 and 40 neurons: none more."""

    def count(n):
        run = lambda x: hj.simulate(network(n), x, DRIVE, mode="network", t1=1.0, max_jumps=3, integrator=ROLLED).x
        return operations(jax.make_jaxpr(run)(jnp.linspace(0.0, 0.9, n)).jaxpr)

    assert count(20) == count(40)


@pytest.mark.medium
def test_covariance_and_exponents_see_the_member(five, one_by_one):
    system, x0, _, _ = five
    alone, _ = one_by_one
    sigma, noise = 1e-4 * jnp.eye(5), hj.noise.Noise(guard=1e-6)
    spread = lambda s: (
        hj.noise.covariance(
            s, x0, sigma, DRIVE, mode="network", t1=0.7, noise=noise, max_jumps=2, integrator=ROLLED
        ).sigma
    )
    assert_allclose(spread(system), spread(alone), rtol=1e-9, atol=1e-18)


@pytest.mark.parametrize(
    "guard, reset, message",
    [
        (lambda t, x, p: 1 - x, lambda t, x, p: x, r"\(k,\) is that of a family, with reset\(t, x, params, i\)"),
        (lambda t, x, p: 1 - x[0], lambda t, x, p, i: x, r"must return shape \(k,\) with k > 0, not \(\)"),
        (lambda t, x, p: x[:0], lambda t, x, p, i: x, r"must return shape \(k,\) with k > 0, not \(0,\)"),
        (lambda t, x, p: 1 - x, lambda t, x, p, i: x[:2], r"The reset of transition .* must return shape \(3,\)"),
    ],
)
def test_what_is_no_family_is_refused(guard, reset, message):
    mode = hj.Mode(lambda t, x, p: p - x, ("a", "b", "c"))
    system = hj.HybridSystem({"network": mode}, (hj.Transition("network", "network", guard, reset),))
    with pytest.raises(ValueError, match=message):
        ran(system, jnp.zeros(3), 1.0)


@pytest.mark.parametrize(
    "sequence, message",
    [(("network",), r"Name the guard that ends the arc, as in 'network\[0\]'"), (("network[9]",), "names guard 9")],
)
def test_a_sequence_names_guards(five, sequence, message):
    system, x0, _, _ = five
    with pytest.raises(ValueError, match=message):
        hj.ReturnMap(system, sequence=sequence)(x0, DRIVE)


@pytest.mark.slow
def test_events_in_step_are_in_the_order_of_the_sequence():
    """A mass falls onto two springs, whose heights are equal, and then differ by so little that both events count as one, in
    either order. From rest at 3/2 each lands at `sqrt(3 - 2 h)`."""

    def move(t, x, heights):
        return jnp.stack([x[1], jnp.sum(jnp.where(x[2:] > 0.5, 10 * (heights - x[0]), 0)) - 1])

    def energy(t, x, heights):
        return x[1] ** 2 / 2 + x[0] + jnp.sum(jnp.where(x[2:] > 0.5, 5 * (heights - x[0]) ** 2, 0))

    def change(to):
        return {"reset": lambda t, x, h, i: x.at[2 + i].set(to), "armed": lambda t, x, h: x[2:] != to}

    system = hj.HybridSystem(
        {"fall": hj.Mode(move, ("y", "rate"), held=("left", "right"))},
        (
            hj.Transition("fall", "fall", guard=lambda t, x, h: x[0] - h, **change(1.0)),
            hj.Transition("fall", "fall", guard=lambda t, x, h: h - x[0], **change(0.0)),
        ),
    )
    step = hj.ReturnMap(system, section=hj.Section("fall", lambda t, x, h: x[1]))
    orbit = hj.periodic_orbit(step, jnp.array([1.5, 0.0, 0.0, 0.0]), jnp.zeros(2), conserved=(energy, 1.5))
    along, level, around = hj.ReturnMap(orbit.system, sequence=orbit.sequence), orbit.params, []
    for heights in ([0.0, 0.0], [1e-12, 0.0], [0.0, 1e-12]):
        params = dataclasses.replace(level, params=jnp.array(heights))
        other = dataclasses.replace(orbit, params=params)
        arcs = other.sample(5)
        assert [arc.x[0, 2:].tolist() for arc in arcs] == [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]
        energies = [jax.vmap(lambda x, h=params.params: energy(0.0, x, h))(arc.x) for arc in arcs]
        assert_allclose(jnp.concatenate(energies), 1.5, atol=1e-11)
        times = jax.jacfwd(
            lambda h: jnp.stack([each.t for each in along(orbit.x, dataclasses.replace(level, params=h)).impacts])
        )
        assert_allclose(times(params.params)[:2], -np.eye(2) / np.sqrt(3), atol=1e-11)
        around.append(along.monodromy(orbit.x, params))
        assert_allclose(around[-1], around[0], atol=1e-10)


@pytest.mark.medium
def test_a_family_ends_arcs_of_modes_of_different_dimension():
    """Two coordinates fall at rate 1; each is put to 2 at zero. The time of each event is one more coordinate of the state."""
    falls = lambda n: hj.Mode(lambda t, x, p: jnp.where(jnp.arange(n) < 2, -1.0, 0.0), tuple("abcd"[:n]))
    guard, put = lambda t, x, p: x[:2], lambda t, x, p, i: jnp.append(x.at[i].set(2.0), t)
    ways = [hj.Transition(*names, guard, put) for names in (("two", "three"), ("three", "four"))]
    back = hj.Transition("four", "two", lambda t, x, p: x[0] - 1.0, lambda t, x, p: x[:2])
    system = hj.HybridSystem({"two": falls(2), "three": falls(3), "four": falls(4)}, (*ways, back))
    step = hj.ReturnMap(system, sequence=("two[0]", "three[1]", "four"))
    stride = step(jnp.array([0.5, 0.9]), None)
    assert_allclose(stride.x, [1, 1.4], atol=1e-14)
    assert_allclose(stride.time, 1.5, atol=1e-14)
    assert_allclose(stride.impacts[-1].x, [1, 1.4, 0.5, 0.9], atol=1e-14)
    # The state returns to the surface of the last guard, whose time is 1 after the first event.
    assert_allclose(step.jacobian(jnp.array([0.5, 0.9]), None), [[0, 0], [-1, 1]], atol=1e-14)
