"""Maps of sections through whatever modes come: areas, a wheel in closed form, attractors, basins and orbits of any sequence."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import (
    _onto_surface,
    _solve,
    for_modes,
    for_terminal_modes,
    PlainForward,
    SectionMap,
    stage_limits,
    with_adjoint,
    with_section_mode,
)
from hyjax.models import rimless_wheel

# A driven oscillator before a wall, which it strikes none, one or several times in a period.
oscillator = hj.HybridSystem(
    {
        "free": hj.Mode(
            lambda t, x, p: jnp.stack([x[1], p["a"] * jnp.cos(t) - p["c"] * x[1] - p["k"] * x[0]]), ("x", "v")
        )
    },
    (hj.Transition("free", "free", lambda t, x, p: p["d"] - x[0], lambda t, x, p: jnp.stack([x[0], -p["e"] * x[1]])),),
)
STRUCK = {name: jnp.array(value) for name, value in dict(a=2.0, c=0.05, k=8.0, d=0.1, e=0.9).items()}
# A soft spring: one impact in a period, or none below a = 0.1.
SOFT = {name: jnp.array(value) for name, value in dict(a=0.12, c=0.1, k=1.0, d=1.0, e=0.8).items()}
T = 2 * np.pi
period = hj.Stroboscope("free", T)
STARTS = jnp.array([[0.0, 0.3], [-0.5, 0.1], [0.05, 1.0], [-1.5, 0.0]])
# Looser tolerances for what need not be exact, and for chaos.
quick = hj.Integrator(rtol=1e-9, atol=1e-9)


def pass_period(x):
    return hj.ReturnMap(oscillator, section=period, max_jumps=5, integrator=ROLLED)(x, STRUCK, throw=False)


STEP = 1e-6


@pytest.fixture(scope="module")
def passed():
    """The map of a period, and its Jacobian, in one batch; and the ends of starts that are displaced from the third."""
    jacobian = lambda x: hj.ReturnMap(oscillator, section=period, max_jumps=5, integrator=ROLLED).jacobian(
        x, STRUCK, throw=False
    )
    near = np.asarray(STARTS)[2] + STEP * np.concatenate([np.eye(2), -np.eye(2)])
    through = jax.vmap(pass_period)(jnp.concatenate([STARTS, near]))
    crossing = jax.tree.map(lambda leaf: leaf[: len(STARTS)], through)
    return crossing, jax.vmap(jacobian)(STARTS), np.asarray(through.x)[len(STARTS) :]


@pytest.mark.medium
def test_a_period_multiplies_areas(passed):
    """By exp(-c T), and each impact by e^2, whatever the number of impacts."""
    crossing, jacobian, _ = passed
    assert list(np.asarray(crossing.jumps)[1:]) == [4, 4, 5]
    expected = np.exp(-0.05 * T) * 0.9 ** (2 * np.asarray(crossing.jumps)[1:])
    # Rounding, amplified by the Jacobians' condition numbers, some hundreds.
    assert_allclose(np.linalg.det(jacobian[1:]), expected, rtol=1e-9)
    assert_allclose(crossing.time[1:], T, rtol=1e-15)
    assert np.all(np.sum(np.asarray(crossing.transitions) >= 0, axis=1) == crossing.jumps)


@pytest.mark.medium
def test_a_lane_with_too_many_jumps(passed):
    """Six impacts; the other lanes are sound."""
    crossing, jacobian, _ = passed
    good = np.array([False, True, True, True])
    assert np.all(np.asarray(crossing.result == hj.RESULTS.successful) == good)
    assert "max_jumps_reached" in str(crossing.result)
    assert np.all(np.isfinite(crossing.x).all(axis=1) == good) and np.all(
        np.isfinite(jacobian).all(axis=(1, 2)) == good
    )


def test_jacobian_by_differences(passed):
    _, jacobian, (*ahead, x, y) = passed
    # Second differences 1e-12 times third derivatives, which five impacts make large; rounding 1e-15 / 1e-6.
    assert_allclose((np.stack(ahead) - np.stack([x, y])).T / (2 * STEP), jacobian[2], rtol=1e-6)


@pytest.mark.medium
def test_a_wheel_from_stance_to_stance():
    """The rimless wheel at theta = 0, by its energy: w -> sqrt(mu^2 (w^2 + A) + B), with the slope mu^2 w / w'."""
    params = rimless_wheel.Params()
    alpha, half, unit, w = 0.2, np.pi / 6, 2 / 3, 1.1
    mu = 1 + unit * (np.cos(2 * half) - 1)
    down = 2 * unit * (np.cos(alpha) - np.cos(half + alpha))
    after = np.sqrt(mu**2 * (w**2 + down) + 2 * unit * (np.cos(alpha - half) - np.cos(alpha)))
    section = hj.Section("stance", lambda t, x, p: -x[0])
    upright, start = hj.ReturnMap(rimless_wheel.system, section=section, integrator=ROLLED), jnp.array([0.0, w])
    through = jax.jit(lambda x: upright(x, params, throw=False))
    crossing = through(start)
    assert_allclose(crossing.x, [0, after], rtol=1e-13, atol=1e-13)
    # The states on the section are zero to rounding, on either side, and the next crossing is that of the next stride.
    passes = [crossing]
    for _ in range(12):
        passes.append(through(passes[-1].x))
        assert passes[-1].jumps == 1 and passes[-1].time > 1
    # Starts by hand on either side, nearer than rounding.
    for aside in (1e-34, 1e-20, 0.0, -1e-34, -1e-20):
        assert_allclose(through(jnp.array([aside, w])).x[1], after, rtol=1e-13)
    assert int(crossing.jumps) == 1 and crossing.mode == 0 and crossing.transitions[0] == 0
    jacobian = upright.jacobian(start, params)
    assert_allclose(jacobian[1, 1], mu**2 * w / after, rtol=1e-12)
    # The state stays on the section.
    assert_allclose(jacobian[0], 0, atol=1e-13)
    # In reverse mode too.
    of_slope = lambda slope: upright(start, rimless_wheel.Params(slope=slope))
    rate = lambda slope: of_slope(slope).x[1]
    by_slope = mu**2 * (np.sin(half + alpha) - np.sin(alpha)) + np.sin(alpha) - np.sin(alpha - half)
    assert_allclose(jax.grad(rate)(0.2), unit * by_slope / after, rtol=1e-11)
    # It falls back.
    stays = through(jnp.array([-0.3, 0.0]))
    assert stays.result == "outside_domain" and np.all(np.isnan(stays.x))


@pytest.fixture(scope="module")
def attractors():
    # The chaotic transient at a = 3 lasts up to 140 periods, as rounding has it.
    return hj.attractor(
        hj.ReturnMap(oscillator, section=period, max_jumps=40),
        lambda p: jnp.stack([0 * p["a"], 0.3 + 0 * p["a"]]),
        STRUCK,
        where=lambda p: p["a"],
        values=np.array([0.1, 2.0, 3.0]),
        n_strides=500,
        discard=200,
        keep=64,
    )


@pytest.mark.medium
def test_all_exponents(attractors):
    """Their sum is the mean logarithm of areas: -c T and 2 ln e for each impact; so it tells the mean number of impacts."""
    assert np.all(attractors["result"] == 0)
    exponents = attractors["exponents"].values
    impacts = (np.sum(exponents, axis=1) + 0.05 * T) / (2 * np.log(0.9)) * 300
    # Rounding of the integrator's tolerance, 1e-9 a step, over 300 periods.
    assert_allclose(impacts, np.round(impacts), rtol=0, atol=1e-3)
    # Without impact, a focus: both exponents are -c T / 2; chaos; eight impacts in each period.
    assert np.round(impacts)[0] == 0 and np.round(impacts)[1] > 300 and np.round(impacts)[2] == 8 * 300
    assert_allclose(exponents[0], -0.05 * T / 2, rtol=0.02)
    assert list(attractors["period"].values) == [1, 0, 1] and attractors["lyapunov"][1] > 0.5
    assert attractors.attrs["section"] == "period, from free" and "mode" not in attractors
    assert attractors["exponents"].attrs["long_name"] == "Lyapunov exponents per return"
    # The steady state of a linear oscillator at t = 0 (mod T), to the tolerance of 1e-9.
    steady = 0.1 / (8 - 1 + 0.05j)
    assert_allclose(attractors["x"].values[0, -1], [steady.real, -steady.imag], rtol=0, atol=1e-8)


@pytest.mark.medium
def test_exponents_per_time_and_per_period(attractors):
    """The exponents of `lyapunov_spectrum`, of another segment of the chaotic attractor, within four standard errors."""
    spectrum = hj.phase.lyapunov_spectrum(
        oscillator, jnp.array([0.0, 0.3]), STRUCK, mode="free", t1=2500.0, transient=60.0, n_segments=400, max_jumps=60
    )
    # The attractor's mean has an error too, of as many periods.
    assert abs(attractors["lyapunov"].values[1] / T - spectrum.exponents[0]) < 4 * np.sqrt(2) * spectrum.errors[0]


@pytest.mark.medium
@pytest.mark.parametrize("fixed", [False, True], ids=["largest step", "fixed steps"])
def test_no_step_is_taken_beyond_the_crossing(fixed):
    """From there to the longest time of an arc the steps would be more than are allowed."""
    constant = dict(controller=dfx.ConstantStepSize(), first_step=0.01)
    integrator = hj.Integrator(max_steps=200, **(constant if fixed else dict(max_step=0.01)))
    params, upright = rimless_wheel.Params(), hj.Section("stance", lambda t, x, p: -x[0])
    x = jnp.array([-0.2, 1.0])
    step, short = (
        hj.ReturnMap(rimless_wheel.system, section=upright, integrator=each) for each in (hj.Integrator(), integrator)
    )
    crossing, known = short(x, params), step(x, params)
    # Of steps of eighth order.
    assert_allclose(crossing.time, known.time, rtol=1e-13)
    assert_allclose(crossing.x, known.x, atol=1e-13)
    assert_allclose(short.jacobian(x, params), step.jacobian(x, params), atol=1e-12)


@pytest.mark.medium
def test_orbits_of_any_sequence():
    """The soft oscillator at a = 0.12, as for the sequence of one impact: and none other."""
    found = hj.find_orbits(
        hj.ReturnMap(oscillator, section=period), SOFT, region=(jnp.array([-3.0, -3.0]), jnp.array([1.0, 3.0]))
    )
    assert found.sequences == (("free from the section", "free"),)
    orbit = found[0]
    assert_allclose(orbit.period, T, rtol=1e-14)
    # One impact: the product of the multipliers is e^2 exp(-c T). The orbit is that of the model with its phase as a state.
    assert_allclose(np.prod(orbit.multipliers), 0.8**2 * np.exp(-0.1 * T), rtol=1e-10)
    again = hj.ReturnMap(oscillator, section=period, integrator=ROLLED)(orbit.x, SOFT)
    assert_allclose(again.x, orbit.x, rtol=1e-11)
    assert int(again.jumps) == 1


@pytest.mark.slow
def test_orbits_between_two_walls():
    """Two transitions lead from a mode to itself; the sequence tells them apart. A forced mass between walls at -1 and 1:
    x'' = a cos t, one impact on each, in closed form."""
    walls = hj.HybridSystem(
        {"free": hj.Mode(lambda t, x, p: jnp.stack([x[1], p * jnp.cos(t)]), ("x", "v"))},
        tuple(
            hj.Transition(
                "free",
                "free",
                lambda t, x, p, side=side: 1 - side * x[0],
                lambda t, x, p: jnp.stack([x[0], -0.4 * x[1]]),
            )
            for side in (1, -1)
        ),
    )
    found = hj.find_orbits(
        hj.ReturnMap(walls, section=period, max_jumps=4),
        jnp.array(2.0),
        region=(jnp.array([0.1, 1.7]), jnp.array([0.15, 1.9])),
        max_starts=16,
    )
    assert ("free from the section", "free after 0", "free after 1") in found.sequences
    for sequence, orbits in zip(found.sequences, found.batches, strict=True):
        jumps = len(sequence) - 1
        # Each impact multiplies areas by e^2, the flow by 1.
        assert_allclose(np.prod(orbits.multipliers, axis=1).real, 0.16**jumps, rtol=1e-8)
        crossing = hj.ReturnMap(walls, section=period, max_jumps=4)(orbits.x[0], jnp.array(2.0))
        assert [f"free after {k}" for k in np.asarray(crossing.transitions) if k >= 0] == list(sequence[1:])
        # The residual of an orbit, of the order of the integrator's tolerance times its multipliers.
        assert_allclose(crossing.x, orbits.x[0], rtol=0, atol=1e-10)


@pytest.mark.medium
def test_a_region_on_both_sides_of_a_section():
    """r' = r (1 - r^2), round once in 2 pi: the states just before the section cross it at once, and are no orbits. The origin,
    which the curved section meets, is at rest."""
    turn = lambda x: 1 - x[0] ** 2 - x[1] ** 2
    polar = hj.HybridSystem(
        {"on": hj.Mode(lambda t, x, p: jnp.stack([x[0] * turn(x) - x[1], x[1] * turn(x) + x[0]]), ("x", "y"))}, ()
    )
    section = hj.Section("on", lambda t, x, p: x[1] - 0.3 * x[0] ** 2)
    plain = with_adjoint(hj.Integrator(rtol=1e-8, atol=1e-8, unroll=False), PlainForward())
    each = SectionMap(with_section_mode(polar, section), section, 1, 2, for_modes(polar, plain))
    extended = for_terminal_modes(for_modes(polar, plain), each.system)
    each, method = eqx.tree_at(lambda each: each.integrator, each, extended), hj.SingleShooting()
    *_, fine = stage_limits(method, extended, np.dtype(float))
    starts = jnp.stack(jnp.meshgrid(jnp.linspace(-1.5, 1.5, 8), jnp.linspace(-0.5, 0.7, 8)), axis=-1).reshape(-1, 2)
    found = _solve(each, None, 1, method, starts, fine)
    good = np.asarray(found.result._value) == 0
    x = -np.sqrt((np.sqrt(1 + 0.36) - 1) / 0.18)
    # A residual of 200 times the tolerance is accepted, of states twice as large.
    assert np.sum(good) > 20
    assert_allclose(found.nodes[good, 0], np.tile([x, 0.3 * x**2], (np.sum(good), 1)), atol=4e-6)
    assert_allclose(found.period[good], T, rtol=4e-6)


def test_a_start_moves_onto_the_section():
    """By Newton's method along the gradient; a start where the gradient is zero stays."""
    section = hj.Section("on", lambda t, x, p: x[1] - 0.3 * x[0] ** 2)
    start = jnp.array([0.5, 0.4])
    there = _onto_surface(section, start, None)
    assert_allclose(there[1], 0.3 * there[0] ** 2, rtol=1e-14)
    # No further than straight along y.
    assert np.linalg.norm(there - start) < 0.4 - 0.3 * 0.5**2
    assert np.array_equal(_onto_surface(hj.Section("on", lambda t, x, p: 1 + x[0] ** 2), 0 * start, None), [0, 0])


@pytest.mark.medium
def test_a_phase_of_the_stroboscope():
    """The steady state of x' = -x + cos 2 pi t at other times, and its multiplier."""
    filtered = hj.HybridSystem({"on": hj.Mode(lambda t, x, p: jnp.cos(2 * jnp.pi * t) - x, ("x",))}, ())
    later = hj.Stroboscope("on", 1.0, phase=lambda p: p)
    phases = np.array([0.0, 0.3, 0.7, 5.3])
    steady = np.real(np.exp(2j * np.pi * phases) / (1 + 2j * np.pi))[:, None]

    @jax.jit
    @jax.vmap
    def passed(x, phase):
        step = hj.ReturnMap(filtered, section=later, max_jumps=1, integrator=ROLLED)
        crossing = step(x, phase)
        # A start time that is given counts, whatever the phase.
        other = step(x, phase, t=phase + 0.25)
        return crossing.x, crossing.time, other.x, step.jacobian(x, phase)[0, 0]

    x, time, other, slope = passed(jnp.asarray(steady), jnp.asarray(phases))
    assert_allclose(x, steady, rtol=1e-12)
    assert_allclose(time, 1, rtol=1e-14)
    assert_allclose(slope, np.exp(-1), rtol=1e-12)
    # A quarter later the steady state is another, and the distance from it shrinks by 1/e.
    quarter = np.real(1j * np.exp(2j * np.pi * phases) / (1 + 2j * np.pi))[:, None]
    assert_allclose(other - quarter, (steady - quarter) / np.e, rtol=1e-12)
    with pytest.raises(ValueError, match="phase=nan must be a finite time"):
        hj.Stroboscope("on", 1.0, phase=float("nan"))


@pytest.mark.parametrize("number", [float, np.float64, jnp.asarray])
def test_numbers_of_a_stroboscope_are_of_any_kind(number):
    """They belong to the structure of a system: an array there would be a warning, and a system of its own in every call."""
    section = hj.Stroboscope("on", number(1.0), phase=number(0.25))
    assert section == hj.Stroboscope("on", 1.0, phase=0.25) and hash(section) == hash(
        hj.Stroboscope("on", 1.0, phase=0.25)
    )


@pytest.mark.slow
def test_orbits_at_a_phase():
    """A half-wave rectifier of p sin t begins to conduct at t = 0, when a stroboscope without phase would look. From 0 the
    current is p (sin(t - a) + sin(a) exp(-t/2)) / 1.25^(1/2), tan a = 2."""
    mode = lambda field: hj.Mode(field, ("i",))
    rectifier = hj.HybridSystem(
        {"on": mode(lambda t, x, p: p * jnp.sin(t) - x / 2), "off": mode(lambda t, x, p: 0 * x)},
        (
            hj.Transition("on", "off", lambda t, x, p: x[0], lambda t, x, p: 0 * x),
            hj.Transition("off", "on", lambda t, x, p: -jnp.sin(t), lambda t, x, p: 0 * x),
        ),
    )
    angle = np.arctan(2)
    current = lambda t: (np.sin(t - angle) + np.sin(angle) * np.exp(-t / 2)) / np.sqrt(1.25)
    later = hj.Stroboscope("on", T, phase=1.0)
    orbits = hj.find_orbits(
        hj.ReturnMap(rectifier, section=later, integrator=ROLLED),
        jnp.array(1.0),
        region=(jnp.zeros(1), 2 * jnp.ones(1)),
        max_starts=64,
    )
    assert orbits.batch.sequence == ("on from the section", "off", "on")
    (orbit,) = (orbits[k] for k in range(len(orbits)))
    assert_allclose([orbit.x[0], orbit.period], [current(1.0), T], rtol=1e-12)
    # The current is forgotten while the diode blocks.
    assert_allclose(orbit.multipliers, 0, atol=1e-12)
    # Its time counts from the phase: the diode begins to conduct at 2 pi - 1.
    assert_allclose(orbit.impact_times[1], T - 1, rtol=1e-12)
    half = orbit.sample(3)[2]
    assert_allclose(half.x[:, 0], current(np.asarray(half.t) + 1 - T), atol=1e-12)
    values = jnp.array([1.0, 1.5, 2.0])
    swept = hj.sweep(orbit, where=lambda p: p, values=values, progress=False)
    assert_allclose(swept.x[:, 0], values * current(1.0), rtol=1e-11)
    branch = hj.continuation(orbit, where=lambda p: p, stop=2.0)
    assert branch.result == hj.RESULTS.successful
    assert_allclose(branch.x[:, 0], branch.values * current(1.0), rtol=1e-11)
    states = hj.attractor(
        hj.ReturnMap(rectifier, section=later),
        jnp.array([0.3]),
        jnp.array(1.0),
        where=lambda p: p,
        values=values,
        n_strides=4,
        keep=1,
        progress=False,
    )
    # The default tolerance of an attractor, 1e-9.
    assert_allclose(states.x[:, 0, 0], values * current(1.0), rtol=1e-7)


@pytest.mark.medium
def test_basins_by_a_section():
    rest = hj.find_orbits(
        hj.ReturnMap(oscillator, section=period),
        SOFT | {"a": jnp.array(0.05)},
        region=(jnp.array([-1.0, -1.0]), jnp.array([1.0, 1.0])),
    )
    # Without impact: a resonance, x = (a / c) sin t.
    ((sequence,), (orbits,)) = rest.sequences, rest.batches
    assert sequence == ("free from the section",)
    assert_allclose(orbits.x[0], [0, 0.5], rtol=1e-11, atol=1e-12)
    axes = {"x": np.linspace(-3, 0.9, 4), "v": np.linspace(-3, 3, 4)}
    found = hj.basin(
        hj.ReturnMap(oscillator, section=period),
        SOFT | {"a": jnp.array(0.05)},
        axes=axes,
        orbits=orbits,
        outcomes={"left": lambda t, x, p: 3.5 + x[0]},
    )
    outcome = found["outcome"].values
    assert found["outcome"].attrs["flag_meanings"].split()[:2] == ["orbit_1", "left"]
    assert set(np.unique(outcome)) == {0, 1}


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "give either sequence= or section=, not neither"),
        ({"section": period, "sequence": ("free",)}, "not both"),
        ({"section": hj.Section("free", lambda t, x, p: x[1])}, "depends on time"),
        ({"section": hj.Stroboscope("flight", 1.0)}, "'flight' is not one of the modes"),
        ({"section": hj.Section("free", lambda t, x, p: x)}, "surface must return shape"),
    ],
)
def test_misuse(options, message):
    region = jnp.array([-1.0, -1.0]), jnp.array([1.0, 1.0])
    with pytest.raises(ValueError, match=message):
        hj.find_orbits(hj.ReturnMap(oscillator, **options), STRUCK, region=region)


@pytest.mark.medium
def test_functions_that_ignore_the_time_that_they_hand_on():
    """A limit cycle of two relays, x' = u - x with u = 1 or -1, which switches at 1/2 and -1/2, by compiled functions of time:
    the same as by plain ones. Half a period is log 3."""

    def relay(compiled):
        modes = {
            name: hj.Mode(compiled(lambda t, x, p, u=u: u - x), ("x",)) for name, u in (("up", 1.0), ("down", -1.0))
        }
        same = compiled(lambda t, x, p: x)
        above, below = compiled(lambda t, x, p: p - x[0]), compiled(lambda t, x, p: p + x[0])
        ways = hj.Transition("up", "down", above, same), hj.Transition("down", "up", below, same)
        return hj.HybridSystem(modes, ways)

    half = jnp.array(0.5)
    step = hj.ReturnMap(relay(jax.jit), section=hj.Section("up", lambda t, x, p: -x[0]))
    orbit = hj.periodic_orbit(step, jnp.array([0.01]), half)
    assert_allclose(orbit.period, 2 * np.log(3), rtol=1e-13)
    # Forced, the system would have no phase of its own.
    assert hj.phase.phase_response(orbit).residual < 1e-13


def thrown(reset):
    """A ball that travels, with speed u' = (u + p)/2 and rise v' = p - v/2 after a bounce, by the section of its apex."""
    air = hj.Mode(lambda t, x, p: jnp.stack([x[2], x[3], 0.0, -1.0]), ("x", "y", "u", "v"))
    bounce = hj.Transition(
        "air", "air", lambda t, x, p: x[1], lambda t, x, p: jnp.stack([x[0], x[1], (x[2] + p) / 2, p - x[3] / 2])
    )
    apex = hj.Section("air", lambda t, x, p: x[3], reset)
    return hj.ReturnMap(hj.HybridSystem({"air": air}, (bounce,)), section=apex, integrator=ROLLED)


HOME = thrown(lambda t, x, p: x.at[0].set(0.0))


@pytest.mark.medium
def test_a_body_that_travels_has_an_orbit_by_a_reset_of_the_section():
    """It rises by v = 2 p from height 2 p^2, for 4 p; u and v are halved in each bounce."""
    p = jnp.array(0.8)
    step = HOME.jacobian(jnp.array([0.3, 2.0, 1.0, 0.0]), p)
    # From the height y: v' = p + sqrt(2 y)/2, and dy'/dy = v'/(2 sqrt(2 y)), at y = 2 and p = 0.8 1.8/4.
    assert_allclose(step, np.diag([0, 1.8 / 4, 0.5, 0]), atol=1e-14)
    orbit = hj.periodic_orbit(HOME, jnp.array([0.0, 2.0, 1.2, 0.0]), p)
    assert_allclose([*orbit.x, orbit.period], [0, 2 * 0.64, 0.8, 0, 3.2], atol=1e-14)
    assert_allclose(orbit.multipliers, [0.5, 0.5, 0, 0], atol=1e-13)
    assert_allclose(jax.jacobian(lambda p: hj.periodic_orbit(orbit.step, orbit.x, p).period)(p), 4, rtol=1e-13)


@pytest.mark.medium
def test_a_symmetry_at_the_section_makes_half_an_orbit_whole():
    """Van der Pol's oscillator: with x and -x taken for one, the multiplier of half a period is the root of that of the whole."""
    flow = hj.Mode(lambda t, x, p: jnp.stack([x[1], p * (1 - x[0] ** 2) * x[1] - x[0]]), ("x", "v"))
    system, p, start = hj.HybridSystem({"flow": flow}, ()), jnp.array(0.3), jnp.array([2.0, 0.0])
    whole = hj.periodic_orbit(hj.ReturnMap(system, section=hj.Section("flow", lambda t, x, p: x[1])), start, p)
    turned = hj.Section("flow", lambda t, x, p: -x[1], reset=lambda t, x, p: -x)
    half = hj.periodic_orbit(hj.ReturnMap(system, section=turned), start, p)
    assert_allclose([2 * half.period, *half.x], [whole.period, *whole.x], rtol=1e-13, atol=1e-14)
    assert_allclose(half.multipliers**2, whole.multipliers, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype, large, rise", [(jnp.float32, 300.0, 1e-2), (jnp.float64, 1e5, 1e-6)])
def test_a_small_orbit_beside_a_large_coordinate_moves(dtype, large, rise):
    """A ball whose rise is halved and restored in each bounce, beside a held number: of period 2 v / g."""
    air = hj.Mode(lambda t, x, p: jnp.stack([x[1], -1.0]), ("y", "v"), held=("q",))
    reset = lambda t, x, p: jnp.stack([x[0], (p - x[1]) / 2, large + (x[2] - large) / 2])
    system = hj.HybridSystem({"air": air}, (hj.Transition("air", "air", lambda t, x, p: x[0], reset),))
    guess = jnp.array([0.0, 1.2 * rise, large], dtype)
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("air",)), guess, jnp.array(rise, dtype))
    assert_allclose(orbit.period, 2 * rise, rtol=1e-5)


@pytest.mark.medium
def test_an_equilibrium_on_a_section_is_no_orbit():
    """Round a focus the flow turns in a finite time, so that the focus is a fixed point of the section's map: at 0 and at 3."""
    spin = lambda t, x, p: jnp.stack([x[1], -0.2 * x[1] - (x[0] - p)])
    section = hj.Section("flow", lambda t, x, p: x[1])
    step = hj.ReturnMap(hj.HybridSystem({"flow": hj.Mode(spin, ("x", "v"))}, ()), section=section, integrator=ROLLED)
    for centre in (0.0, 3.0):
        found = hj.periodic_orbit(step, jnp.array([centre + 0.5, 0.0]), jnp.array(centre), throw=False)
        assert found.result == "orbit_not_converged"
    region = jnp.array([2.0, -1.0]), jnp.array([4.0, 1.0])
    assert not hj.find_orbits(step, jnp.array(3.0), region=region, max_starts=8, throw=False).batches


@pytest.mark.parametrize(
    "reset, message",
    [
        (lambda t, x, p: x.at[3].add(1.0), "leads off its surface, from surface = 0 to 1"),
        (lambda t, x, p: x[:2], r"reset must return shape \(4,\)"),
        (lambda x: x, r"Section: reset must be a function of \(t, x, params\)"),
    ],
)
def test_misuse_of_a_reset(reset, message):
    with pytest.raises(ValueError, match=message):
        hj.periodic_orbit(thrown(reset), jnp.array([0.0, 2.0, 1.2, 0.0]), jnp.array(1.0))


def test_misuse_of_a_section():
    with pytest.raises(ValueError, match=r"period=0.0 must be positive"):
        hj.Stroboscope("free", 0.0)


@pytest.mark.medium
def test_a_stroboscope_that_finds_another_mode():
    """Heat on and off, each for a period of the stroboscope: an orbit closes after two periods, and none after one."""
    same = lambda t, x, p: x
    modes = {"on": hj.Mode(lambda t, x, p: 1 - x, ("x",)), "off": hj.Mode(lambda t, x, p: -x, ("x",))}
    ways = [hj.every(1.0, same, phase=0.5, source=a, target=b) for a, b in (("on", "off"), ("off", "on"))]
    step = hj.ReturnMap(
        hj.HybridSystem(modes, ways), section=hj.Stroboscope("on", 1.0), strides=2, max_jumps=4, integrator=ROLLED
    )
    orbit = hj.periodic_orbit(step, jnp.array([0.4]), None)
    # Half a period on, one off, half a one on: x = 1 - q + q^3 (1 - q (1 - x)) with q = exp(-1/2).
    q = np.exp(-0.5)
    assert_allclose(orbit.x, (1 - q + q**3 * (1 - q)) / (1 - q**4), rtol=1e-14)
    assert_allclose([orbit.period, orbit.multipliers[0].real], [2, q**4], rtol=1e-14)
    assert orbit.sequence == ("on from the section", "off", "on")
    once = hj.ReturnMap(step.system, section=step.section, max_jumps=4, integrator=ROLLED)
    assert hj.periodic_orbit(once, orbit.x, None, throw=False).result == hj.RESULTS.unexpected_transition
