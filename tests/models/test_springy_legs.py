"""Biped and quadruped on springy legs, and the families of their gaits, against `gaits_reference.json`: gaits of Legged_Model_Zoo
and SLIP_Model_Zoo, solved again in quadruple precision (case 3_conservative_gaits)."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.optimize import root

import hyjax as hj
from hyjax._testing import Level
from hyjax.models import biped_slip as biped, quadruped_slip as quadruped

GAITS = json.loads((pathlib.Path(__file__).parents[1] / "gaits_reference.json").read_text())
LEGS = {biped: ("L", "R"), quadruped: ("BL", "FL", "BR", "FR")}


def state(model, row, stands):
    """A state at the section from the variables of a record; those that only a quadruped has are its pitch and its rate."""
    value = lambda name: float(row[name])
    pitch = [value("phi"), value("dphi")] if model is quadruped else []
    a, da = ("alpha", "dalpha") if model is biped else ("a", "da")
    angles = [value(name + leg) for name in (a, da) for leg in LEGS[model]]
    return jnp.array([value("dx"), value("y"), value("dy"), *pitch, *angles, *stands])


def start(model, name):
    return state(model, GAITS[name]["variables"], map(float, GAITS[name]["stands"]))


def spectrum(name):
    """The multipliers of the reference, without the family's own 1 and the zeros of the landings."""
    read = lambda each: (
        complex(float(each["re"]), float(each["im"])) if isinstance(each, dict) else complex(float(each))
    )
    values = [read(each) for each in GAITS[name]["multipliers"]]
    own = min(values, key=lambda each: abs(each - 1))
    return np.array([each for each in values if each is not own and abs(each) > 1e-12])


def by_place(values):
    return np.array(sorted(values, key=lambda each: (round(each.real, 6), each.imag)))


WALKS = [(biped, "W1 #107", 2), (biped, "R1 #50", 2), (quadruped, "PK_20_2 #267", 1), (quadruped, "BD1_20_2_BE #50", 2)]

GAIT_NAMES = {"W1 #107": "walk", "R1 #50": "run", "PK_20_2 #267": "pronk", "BD1_20_2_BE #50": "bound"}


@pytest.mark.medium
@pytest.mark.parametrize("model, name, passes", WALKS)
def test_a_stride_of_each_gait(model, name, passes):
    """State, time and events after a stride; legs that land together are events in step."""
    record, x, params = GAITS[name], start(model, name), model.Params()
    variables = record["variables"]
    # A few roundings of a sum of ten numbers of the size of the energy.
    assert_allclose(model.energy(0.0, x, params), float(record["energy"]), rtol=1e-14)
    run = hj.simulate(model.system, x, params, mode="gait", t1=float(variables["T"]) - 1e-9)
    times = {f"t{leg}_{what}" for leg in LEGS[model] for what in ("TD", "LO")}
    assert run.jumps == len(times)
    for event in run.events:
        leg, what = LEGS[model][event.index], ("TD", "LO")[event.transition]
        # The digits of the published gaits, solved again: 1e-13 after a stride that multiplies errors by less than ten.
        assert_allclose(event.t, float(variables[f"t{leg}_{what}"]), atol=2e-13)
        assert_allclose(model.energy(0.0, event.before, params), float(record["energy"]), rtol=1e-13)
    crossing = dataclasses.replace(model.step, strides=passes)(x, params)
    assert_allclose(crossing.time, float(variables["T"]), rtol=1e-12)
    assert_allclose(crossing.x, x, atol=2e-13)


@pytest.mark.slow
@pytest.mark.parametrize("model, name, passes", WALKS)
def test_orbit_spectrum_and_derivative_by_energy(model, name, passes):
    """The gait from a guess that is 1e-4 off, at its energy; the family's own multiplier 1 is 0."""
    record, x, params = GAITS[name], start(model, name), model.Params()
    step, energy = dataclasses.replace(model.step, strides=passes), float(record["energy"])
    off = jnp.where(jnp.arange(x.size) < x.size - len(LEGS[model]), 1e-4 * jnp.cos(jnp.arange(x.size)), 0)
    # The symmetry by which legs land together is kept.
    off = off.at[2].set(0) if model is biped else off.at[2:].set(0)
    orbit = hj.periodic_orbit(step, x + off, params, conserved=(model.energy, energy))
    assert_allclose(orbit.x, x, atol=1e-12)
    assert_allclose(orbit.period, float(record["variables"]["T"]), rtol=1e-12)
    if model is biped:
        # The integral of the speed, to the tolerance of the integrator.
        length = float(record["stride_length"])
        assert_allclose(hj.objectives.speed()(orbit, orbit.params) * orbit.period, length, rtol=1e-12)
    feet = orbit.footfalls()
    assert feet.name == GAIT_NAMES[name]
    touchdowns = [float(record["variables"][f"t{leg}_TD"]) / float(orbit.period) for leg in LEGS[model]]
    assert_allclose([each[0, 0] for each in feet.stances], touchdowns, atol=1e-12)
    exact = spectrum(name)
    found = np.asarray(orbit.multipliers)
    # Simple multipliers to rounding times their condition, the walk's to 1.2e-13, the others' to 5e-14; the zeros come in blocks
    # of Jordan, whose eigenvalues are known to the root of rounding.
    assert_allclose(by_place(found[: exact.size]), by_place(exact), atol=1e-12)
    assert_allclose(found[exact.size :], 0, atol=1e-7)

    def at(value):
        again = hj.periodic_orbit(orbit.step, orbit.x, Level(params, value))
        return again.x, again.period

    by_x, by_period = jax.jacfwd(at)(orbit.params.conserved)
    wanted = state(model, record["by_energy"], [0.0] * len(LEGS[model]))
    assert_allclose(by_x, wanted, atol=1e-12)
    assert_allclose(by_period, float(record["by_energy"]["T"]), rtol=1e-12)


@pytest.fixture(scope="module")
def pronks():
    """The family of #267, beyond the gait at which the legs leave step."""
    orbit = hj.periodic_orbit(
        quadruped.step, start(quadruped, "PK_20_2 #267"), quadruped.Params(), conserved=quadruped.energy
    )
    return hj.continuation(orbit, stop=10.0, method=hj.PseudoArclength(step=0.1, max_step=0.6))


@pytest.mark.slow
def test_the_family_of_the_pronk_in_one_run(pronks):
    """Four legs that land together within rounding, in whatever order."""
    assert pronks.result == hj.RESULTS.successful
    # All legs as one, along the family: angles to rounding over the distance of three multipliers from 1, which is 4e-12, and
    # 1.1e-11 beside the gait at which the legs leave step; rates to 1e-15.
    assert_allclose(pronks.x[:, 5:9], 0, atol=4e-11)
    assert_allclose(pronks.x[:, 9:13], pronks.x[:, 9:10].repeat(4, axis=1), rtol=1e-12)
    energies = [quadruped.energy(0.0, jnp.asarray(each), quadruped.Params()) for each in pronks.x]
    assert_allclose(energies, pronks.values, rtol=1e-13)


@pytest.mark.slow
def test_the_gait_at_which_the_legs_leave_step(pronks):
    """Three multipliers are 1 besides the family's own. By the exchange of the back legs and of the front legs, seven branches
    leave: the bounds, in which the front legs land first or the back legs; those in which only the back legs land together, or
    only the front legs, on either side; and those of which no legs land together."""
    point, pair = pronks.special_points
    exact, orbit = GAITS["pronk_multigait_point"], point.orbit
    assert point.kind == "branch-point" and len(point.kernel) == 4
    found = {"dx": orbit.x[0], "y": orbit.x[1], "dalpha": orbit.x[9], "T": orbit.period}
    for name, value in found.items():
        # Rounding of dF, 1e-13, over the change of the three multipliers between two points of the family, a tenth.
        assert_allclose(value, float(exact[name]), rtol=1e-12, err_msg=name)
    assert np.sum(np.abs(orbit.multipliers - 1) < 1e-9) == 3
    # A pair crosses the unit circle at the same gait.
    assert pair.kind == "neimark-sacker" and pair.value == point.value and pronks.unresolved == ()
    places = lambda i, j: [
        *range(5),
        *(5 + 4 * row + {i: j, j: i}.get(leg, leg) for row in range(3) for leg in range(4)),
    ]
    exchange = lambda i, j: np.eye(17)[places(i, j)]
    kept = point.isotropies({"back": exchange(0, 2), "front": exchange(1, 3)})
    found = point.isotropies()
    words = {"back": "back_left <> back_right", "front": "front_left <> front_right"}
    words |= {"front * back": f"{words['front']} * {words['back']}"}
    assert {k: tuple(words[each] for each in every) for k, every in kept.items()} == found
    assert len(point.daughters) == 14
    assert sorted(map(len, kept.values())) == [0, 1, 1, 1, 1, 3, 3]
    # One that keeps none of the exchanges, one that keeps one and a bound; until the legs of the bound are told apart.
    for words, k in {len(words): k for k, words in kept.items() if point.daughters[k, -1] < 0}.items():
        method = hj.PseudoArclength(step=0.05, max_step=0.5, max_points=25 if words == 3 else 6)
        branch = hj.switch_branch(point, stop=point.value - 3, daughter=k, method=method, throw=False)
        assert branch.result == hj.RESULTS.max_points_reached
        together = {
            name for name, leg in (("back", 5), ("front", 6)) if np.allclose(*branch.x[:, [leg, leg + 2]].T, atol=1e-9)
        }
        assert together == {*kept[k]} - {"front * back"}
        back, front = branch.x[-1, 5:7]
        assert abs(back - front) > 1e-2 or not words
        if words == 3:
            assert branch.orbit(len(branch) - 1).footfalls().name == "bound"


@pytest.mark.slow
def test_the_family_of_the_bound_in_one_run():
    """By its highest points in flight, from the pronk at which the legs leave step to the end of double support, where back legs
    land as front legs lift off. Those in double support come and go on the way."""
    in_flight = hj.Section("gait", lambda t, x, p: jnp.where(jnp.any(x[-4:] > 0.5), 1.0, x[2]))
    step, params = hj.ReturnMap(quadruped.system, section=in_flight), quadruped.Params()
    orbit = hj.periodic_orbit(step, start(quadruped, "BD1_20_2_BE #50"), params, conserved=quadruped.energy)
    bounds = hj.continuation(orbit, stop=(10.0, 25.0), throw=False)
    energies = [quadruped.energy(0.0, jnp.asarray(each), params) for each in bounds.x]
    assert_allclose(energies, bounds.values, rtol=1e-13)
    first, *_, last = bounds.special_points
    exact = GAITS["pronk_multigait_point"]
    # At right angles to the pronks, whose coordinates change by the square of those which part, 1e-4 in the last step.
    for k, name in enumerate(("dx", "y")):
        assert_allclose(first.orbit.x[k], float(exact[name]), rtol=1e-7)
    assert_allclose(first.orbit.x[2:9], 0, atol=1e-5)
    assert (first.kind, last.kind) == ("swap", "swap") and 17.58 < last.value < 17.59
    assert [each.footfalls().name for each in (bounds.orbit(len(bounds) // 2), bounds.orbit(-1))] == ["bound", "bound"]


@pytest.mark.slow
def test_the_family_of_the_run_in_one_run():
    """Legs mirror each other at the highest point. Slow runs end where no flight is left between two stances: the swap of landing
    and lift-off at the highest point, on legs of their own length. Walks go on beyond, as far as that of the reference."""
    params = biped.Params()
    orbit = hj.periodic_orbit(biped.step, start(biped, "R1 #50"), params, conserved=biped.energy)
    runs = hj.continuation(orbit, stop=(1.0, 30.0), throw=False)
    energies = [biped.energy(0.0, jnp.asarray(each), params) for each in runs.x]
    assert_allclose(energies, runs.values, rtol=1e-13)
    # To rounding over the distance of multipliers from 1, which is more than a thousandth.
    assert_allclose(runs.x[:, 3:7:2], -runs.x[:, 4:7:2] * [1, -1], atol=1e-10)
    assert {runs.orbit(k).footfalls().name for k in range(0, len(runs), 20)} == {"run"}
    swap, pair = runs.special_points
    assert swap.kind == "swap" and runs.values[0] == runs.values.min() and runs.values[-1] == 30.0
    assert_allclose(swap.orbit.x[1], np.cos(swap.orbit.x[3]), atol=1e-13)
    # The multipliers of fast runs, one by one from orbits of their own, are on the other side of the circle.
    assert pair.kind == "neimark-sacker" and runs.unresolved == ()
    for k in (np.argmin(abs(runs.values - 10.0)), -1):
        alone = hj.periodic_orbit(biped.step, runs.x[k], params, conserved=(biped.energy, runs.values[k]))
        assert_allclose(runs.multipliers[k, :3], alone.multipliers[:3], atol=1e-10)
        assert (np.sum(np.abs(alone.multipliers) > 1) == 1) == (runs.values[k] < pair.value)
    walks = hj.switch_branch(swap, stop=float(GAITS["W1 #107"]["energy"]))
    assert {walks.orbit(k).footfalls().name for k in range(0, len(walks), 20)} == {"walk"}
    assert_allclose(walks.x[-1], start(biped, "W1 #107"), atol=1e-12)
    assert_allclose(walks.period[-1], float(GAITS["W1 #107"]["variables"]["T"]), rtol=1e-12)


def half_step(speed, y, angle):
    """By SciPy, from the middle of double support, with the legs of the default biped at this angle ahead and behind, to
    midstance: the time, speed, height and its rate, and the angle of the leg in the air."""

    def rates(t, z):
        """Of speed, height, its rate, and the angles of the leg ahead, that behind and the latter's rate if it is in the air."""
        _, y, climb, *angles = z
        stand = np.array(angles[: 1 if len(z) == 6 else 2])
        force = 20 * (1 - y / np.cos(stand))
        push, lift = -np.sum(force * np.sin(stand)), np.sum(force * np.cos(stand))
        swing = lambda a, rate: [rate, -push * np.cos(a) - lift * np.sin(a) - 6.5**2 * a]
        return [push, climb, lift - 1, *turn(z, stand), *(swing(*angles[1:]) if len(z) == 6 else [])]

    turn = lambda z, a: -(z[0] * np.cos(a) + z[2] * np.sin(a)) * np.cos(a) / z[1]
    z, begin = np.array([speed, y, 0, angle, -angle]), 0.0
    lifts, passes = lambda t, z: z[1] - np.cos(z[4]), lambda t, z: z[3]
    lifts.terminal = passes.terminal = True
    for event in (lifts, passes):
        if event is passes or event(0, z) < -1e-15:
            way = solve_ivp(rates, (begin, 5), z, "DOP853", events=event, rtol=1e-13, atol=1e-14)
            z, begin = way.y[:, -1], way.t[-1]
        z = np.append(z, turn(z, z[4])) if event is lifts else z
    return begin, *z[:3], z[4]


@pytest.mark.slow
def test_the_family_of_the_walk_in_one_run():
    """By its midstances, between its two ends. At one of them no double support is left: the swap of landing and lift-off, beyond
    which runs go on. At the other one, beyond a fold of the energy, the leg that stands has its own length at midstance, where
    its lift-off grazes. Each by the symmetry of the step in time, with half a step of SciPy."""
    params, x = biped.Params(), start(biped, "W1 #107")
    midstance = hj.Section("gait", lambda t, x, p: jnp.where(x[7] > 0.5, x[3], 1.0))
    step = hj.ReturnMap(biped.system, section=midstance)
    orbit = hj.periodic_orbit(step, step(x, params).x, params, conserved=biped.energy)
    assert_allclose(orbit.period, float(GAITS["W1 #107"]["variables"]["T"]), rtol=1e-12)
    method = hj.PseudoArclength(step=0.1, max_step=0.3)
    walks = hj.continuation(orbit, stop=(0.9, 2.0), method=method, throw=False)
    first, fold, *_, last = walks.special_points
    assert [point.kind for point in (first, fold, last)] == ["grazing", "fold", "swap"] and walks.unresolved == ()
    returns = lambda *at: [half_step(*at)[3], half_step(*at)[4]]
    slow = root(lambda u: [*returns(*u), half_step(*u)[2] - 1], [0.29, 0.924, 0.173], tol=1e-13).x
    fast = root(lambda u: returns(u[0], np.cos(u[1]), u[1]), [1.197, 0.366], tol=1e-13).x
    for point, at in ((first, slow), (last, (fast[0], np.cos(fast[1]), fast[1]))):
        time, speed, y, *_ = half_step(*at)
        # The tolerance of the integrators, 1e-13, over a step that multiplies errors by less than ten.
        assert_allclose(point.orbit.x[:2], [speed, y], rtol=1e-12)
        assert_allclose(point.orbit.period, 4 * time, rtol=1e-12)
        assert_allclose(point.value, at[0] ** 2 / 2 + at[1] + 20 * (1 - at[1] / np.cos(at[2])) ** 2, rtol=1e-12)
    assert abs(first.orbit.x[1] - 1) < 1e-13 and fold.value < first.value
    assert {walks.orbit(k).footfalls().name for k in range(0, len(walks), 10)} == {"walk"}


@pytest.mark.slow
def test_slow_walks_end_where_the_section_is_touched():
    """The mass is no longer highest amid double support, where both legs bear its weight together, 2 k (cos a - y) = 1: by
    symmetry three crossings of the section are one. Against half a step of SciPy."""
    params = biped.Params()
    orbit = hj.periodic_orbit(biped.step, biped.guess(params), params, conserved=biped.energy)
    walks = hj.continuation(orbit, stop=0.6, throw=False)
    assert walks.result == hj.RESULTS.grazing and walks.unresolved == ()
    (point,) = (each for each in walks.special_points if each.kind == "grazing")
    weighs = lambda y, angle: 40 * (np.cos(angle) - y) - 1
    at = root(lambda u: [*half_step(*u)[3:], weighs(*u[1:])], [0.52, 0.947, 0.237], tol=1e-13).x
    # The tolerance of the integrators, 1e-13, over a step that multiplies errors by less than ten.
    assert_allclose(point.orbit.x[:5], [*at[:2], 0, -at[2], at[2]], rtol=1e-12, atol=1e-12)
    assert_allclose(point.orbit.period, 4 * half_step(*at)[0], rtol=1e-12)
    assert_allclose(point.value, at[0] ** 2 / 2 + at[1] + 20 * (1 - at[1] / np.cos(at[2])) ** 2, rtol=1e-12)
    assert np.all(np.isfinite(point.orbit.multipliers)) and point.orbit.footfalls().name == "walk"
    with pytest.raises(ValueError, match="three crossings of the section are one"):
        _ = point.normal_form


@pytest.mark.slow
def test_walks_whose_energy_is_not_known():
    """The family from the multiplier 1 of one walk: its last has the spectrum of the walk at its energy."""
    params = biped.Params()
    orbit = hj.periodic_orbit(biped.step, biped.guess(params), params, throw=False)
    assert orbit.result == hj.RESULTS.not_isolated
    family = hj.continuation(orbit, stop=0.02, method=hj.PseudoArclength(step=0.1, max_step=0.5))
    last = family.orbit(-1)
    same = hj.periodic_orbit(biped.step, last.x, params, conserved=biped.energy)
    assert_allclose(last.x, same.x, atol=1e-13)
    # Simple multipliers, to rounding times their condition.
    assert_allclose(last.multipliers[:3], same.multipliers[:3], atol=1e-11)
    assert_allclose(family.multipliers[-1, :3], same.multipliers[:3], atol=1e-11)


@pytest.mark.slow
def test_the_pronk_is_a_hop():
    """Legs that land together are one leg, so that the quadruped's pronk is the hop of a biped of half its legs, twice as stiff,
    with the frequency of its swing springs. The pair of multipliers whose product is 1 at the gait at which legs leave step, by
    the symmetry of time, is real and crosses no circle. At seven times the energy of that gait steps become unequal: in the hop
    of two strides that leaves there, towards less energy, the legs land in step in either stride."""
    pronk = {name: float(GAITS["PK_20_2 #267"]["variables"][name]) for name in ("dx", "y", "daBL", "T")}
    params = biped.Params(stiffness=20.0, frequency=jnp.sqrt(20.0))
    guess = jnp.array([pronk["dx"], pronk["y"], 0.0, 0.0, 0.0, pronk["daBL"], pronk["daBL"], 0.0, 0.0])
    step = dataclasses.replace(biped.step, strides=1)
    hop = hj.periodic_orbit(step, guess, params, conserved=biped.energy)
    # The digits of the quadruped's gait, as in the test of its orbit.
    assert_allclose(hop.x, guess, atol=1e-12)
    assert_allclose(hop.period, pronk["T"], rtol=1e-12)
    exact = spectrum("PK_20_2 #267")
    assert_allclose(hop.multipliers[:3], exact[[0, 1, 6]], atol=1e-12)
    assert hop.footfalls().name == "hop"
    # The other multiplier of the real pair passes -1 on the way to join it.
    family = hj.continuation(hop, stop=(10.0, 150.0), method=hj.PseudoArclength(step=0.05, max_step=0.1))
    apart, doubling = family.special_points
    assert (apart.kind, doubling.kind) == ("branch-point", "period-doubling") and family.unresolved == ()
    assert_allclose(apart.orbit.x[0], float(GAITS["pronk_multigait_point"]["dx"]), rtol=1e-12)
    assert 76 < doubling.value < 76.2 and np.min(abs(np.asarray(doubling.orbit.multipliers) + 1)) < 1e-9
    method = hj.PseudoArclength(step=0.01, max_step=0.05, max_points=8)
    unequal = hj.switch_branch(doubling, stop=(70.0, 80.0), method=method, throw=False)
    assert unequal.result == hj.RESULTS.max_points_reached and np.all(np.diff(unequal.values) < 0)
    last, ends = unequal.orbit(7), np.asarray(unequal.orbit(7).jump_times)
    assert 75 < last.params.conserved < doubling.value
    # Within the residual of a point, some 1e-12, over two strides.
    assert_allclose(ends[:, ::2][:, :2], ends[:, 1::2][:, :2], atol=1e-11)
    assert abs(np.diff(np.diff(ends[:, -1], prepend=0))[0]) > 0.1
    # A simulation, of whatever events come: the same state after both strides, and not after one.
    end = hj.simulate(biped.system, last.x, params, mode="gait", t1=last.period).x
    assert_allclose(end, last.x, atol=1e-7)


@pytest.mark.slow
def test_walks_with_unequal_steps():
    """A step and the exchange of the legs, half of the stride, have a doubling: the multiplier -1 of another map than that of the
    stride, for which it is a branch point. On the branch that leaves, one leg stands for longer than the other."""
    params, angle, rate = biped.Params(), 0.293425591, -0.805855762
    guess = jnp.array([0.828392679, 0.941971104, 0.0, -angle, angle, rate, rate, 1.0, 1.0])
    orbit = hj.periodic_orbit(biped.step, guess, params, conserved=biped.energy)
    walks = hj.continuation(orbit, stop=1.305, method=hj.PseudoArclength(step=0.2, max_step=0.3))
    (point,) = walks.special_points
    assert point.kind == "branch-point" and len(point.kernel) == 2 and 1.2979 < point.value < 1.298
    step, exchange = dataclasses.replace(biped.step, strides=1), np.eye(9)[[0, 1, 2, 4, 3, 6, 5, 8, 7]]
    # Interpolated to 1e-12, of a step that multiplies errors by less than ten.
    assert_allclose(exchange @ step(point.orbit.x, params).x, point.orbit.x, atol=1e-11)
    values = np.linalg.eigvals(exchange @ np.asarray(step.jacobian(point.orbit.x, params)))
    assert np.min(abs(values + 1)) < 1e-9 and np.min(abs(values - 1)) < 1e-9
    method = hj.PseudoArclength(step=0.02, max_step=0.05, max_points=6)
    unequal = hj.switch_branch(point, stop=(1.29, 1.3), method=method, throw=False)
    one, other = unequal.orbit(len(unequal) - 1).footfalls().duty_factors
    assert abs(one - other) > 1e-3
