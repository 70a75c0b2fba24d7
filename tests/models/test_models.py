"""Models with closed forms: every orbit in the region is found, none besides, and its numbers are the formulas' numbers."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import (
    buck_converter,
    friction_oscillator,
    integrate_and_fire,
    paddle_juggler,
    slip,
    vibrating_table,
)

pytestmark = pytest.mark.slow


def orbits(model, strides=1, **values):
    params = model.Params(**values)
    step = hj.ReturnMap(model.system, sequence=model.sequence, strides=strides, integrator=ROLLED)
    return hj.find_orbits(step, params, region=model.region(params), throw=False)


def by_modulus(values):
    """As `multipliers` are sorted: the largest first, of a pair the one above the real axis."""
    return np.array(sorted(np.asarray(values, complex), key=lambda m: (-round(abs(m), 9), -m.imag)))


# Vibrating table


def one_bounce(g, e, omega, amplitude):
    """Phase, start at t = 0 in the table's frame, and Jacobian of the stroboscopic map, of each one-bounce orbit."""
    period = 2 * np.pi / omega
    away = np.arccos((1 - e) * g * period / (2 * (1 + e) * amplitude * omega))
    found = []
    for phase in (away, -away):
        since = np.linspace(0, period, 20001)[1:-1]
        rise = amplitude * (np.sin(phase) - np.sin(phase + omega * since)) + g * since * (period - since) / 2
        if not rise.min() > 0:  # the ball would pass through the table; NaN where there is no such phase
            continue
        impact = (phase % (2 * np.pi)) / omega
        since = period - impact
        start = [
            amplitude * np.sin(phase) + g * since * impact / 2,
            g * (period / 2 - since) - amplitude * omega,
        ]
        curve = -amplitude * omega**2 * np.sin(phase)
        closing = -g * period / 2 - amplitude * omega * np.cos(phase)
        saltation = np.array([[-e, 0], [-(1 + e) * (g + curve) / closing, -e]])
        flow = lambda t: np.array([[1, t], [0, 1]])
        found.append((phase, impact, start, closing, saltation, flow(since) @ saltation @ flow(impact)))
    return found


TABLES = [
    (9.81, 0.8, 10.0, 0.05),
    (1.0, 0.8, 2 * np.pi, 0.02),
    (1.0, 0.93, 4.0, 0.008),
    (9.81, 0.5, 40.0, 0.0066),
    (9.81, 0.6, 5.0, 1.5),  # the unstable one would pass through the table
    (2.0, 0.3, 3.0, 0.2),  # the table is too slow
]


@pytest.mark.parametrize("g, e, omega, amplitude", TABLES)
def test_vibrating_table(g, e, omega, amplitude):
    found = orbits(vibrating_table, gravity=g, restitution=e, frequency=omega, amplitude=amplitude)
    with np.errstate(invalid="ignore"):
        expected = one_bounce(g, e, omega, amplitude)
    assert len(found) == len(expected)
    # Lengths and speeds up to 3: some units in the last place; next to the fold, the phase is worse by arccos'.
    close = dict(rtol=1e-12, atol=1e-13)
    for phase, impact, start, closing, saltation, jacobian in expected:
        orbit = found[int(np.argmin(np.abs(np.asarray(found.x[:, 1]) - start[1])))]
        assert_allclose(orbit.period, 2 * np.pi / omega, rtol=1e-15)
        assert_allclose(orbit.x, start, **close)
        assert_allclose(orbit.return_jacobian, jacobian, rtol=1e-11, atol=1e-11)
        trace = -2 * e + (1 + e) ** 2 * (g - amplitude * omega**2 * np.sin(phase)) / g
        assert_allclose(jnp.prod(orbit.multipliers).real, e**2, rtol=1e-12)
        assert_allclose(jnp.sum(orbit.multipliers).real, trace, rtol=1e-12, atol=1e-12)
        before = jnp.array([0.0, closing])
        got = hj.saltation_matrix(vibrating_table.system, 0, impact, before, orbit.params)
        assert_allclose(got, saltation, **close)


def test_table_on_the_ground():
    """The reset in the table's frame is that on the ground: y'+ = -e y'- + (1 + e) s'."""
    params = vibrating_table.Params()
    t, a, omega, e = jnp.array(0.37), 0.05, 10.0, 0.8
    table_rate = a * omega * np.cos(omega * t)
    _, after = vibrating_table.bounce(t, jnp.array([0.0, -1.3]), params)
    assert_allclose(after + table_rate, -e * (-1.3 + table_rate) + (1 + e) * table_rate, rtol=1e-15)


# Stick-slip


@pytest.mark.parametrize("seed", range(4))
def test_stick_slip(seed):
    mass, stiffness, load, speed = 10 ** np.random.default_rng(seed).uniform(-1, 1, 4)
    static, kinetic = 0.6, [0.5, 0.1, 0.58, 0.01][seed]
    found = orbits(
        friction_oscillator, mass=mass, stiffness=stiffness, load=load, static_friction=static, kinetic_friction=kinetic,
        belt_speed=speed,
    )  # fmt: skip
    assert len(found) == 1
    omega, reach = np.sqrt(stiffness / mass), static * load / stiffness
    gap = (static - kinetic) * load / stiffness
    period = 2 * gap / speed + (np.pi + 2 * np.arctan(speed / (omega * gap))) / omega
    # Rounding of an arc with the amplitude v / omega; it ends where x' meets v, with the acceleration omega^2 gap only.
    steep = 1 + speed / (omega * gap)
    assert_allclose(found.x[0], [reach - 2 * gap], rtol=0, atol=1e-14 * (reach + speed / omega) * steep)
    assert_allclose(found.period, [period], rtol=1e-14)
    # Whatever came before, the block lets go at the same place.
    assert_allclose(found.multipliers[0], [0], atol=1e-14)


def test_block_overtakes_its_belt_where_friction_cannot_hold_it():
    """The transition from slip to stick is armed where static friction holds."""
    params = friction_oscillator.Params()
    (index,) = friction_oscillator.system.leaving("slip")
    holds = friction_oscillator.system.transitions[index].armed
    assert bool(holds(jnp.zeros(()), jnp.array([0.098, 0.1]), params))  # pyright: ignore[reportOptionalCall]
    assert not bool(holds(jnp.zeros(()), jnp.array([-0.0982, 0.1]), params))  # pyright: ignore[reportOptionalCall]


# Paddle juggler


@pytest.mark.parametrize(
    "e, h, gain, g", [(0.7, 0.5, 0.04, 9.81), (0.9, 1.2, 0.03, 9.81), (0.4, 0.3, 0.5, 1.0), (0.0, 1.0, 0.01, 1.0)]
)
def test_paddle_juggler(e, h, gain, g):
    found = orbits(paddle_juggler, restitution=e, apex=h, gain=gain, gravity=g)
    assert len(found) == 1
    multiplier = 1 - 2 * (1 + e) * gain * g * h
    # Of a stride's rounding, a few units in the last place, the orbit has 1 / (1 - multiplier) times as much.
    rounding = max(1e-14, 8e-16 / (1 - multiplier))
    assert_allclose(found.x[0], [h, 0], rtol=rounding, atol=0)
    assert_allclose(found.period, [2 * np.sqrt(2 * h / g)], rtol=rounding)
    assert_allclose(found.multipliers[0], by_modulus([multiplier, 0]), rtol=1e-13, atol=1e-14)


# Buck converter


def converter(values):
    """Starts and multipliers of the orbits that are off, then on, once a period: by matrix exponentials."""
    p = buck_converter.Params(**values)
    e, r, l, c = (float(v) for v in (p.input_voltage, p.resistance, p.inductance, p.capacitance))
    low, high, period = (float(v) for v in (p.ramp_low, p.ramp_high, p.ramp_period))
    gain, reference = float(p.gain), float(p.reference)
    matrix, drive = np.array([[-1 / (r * c), 1 / c], [-1 / l, 0]]), np.array([0, e / l])
    settled = -np.linalg.solve(matrix, drive)
    flow = lambda parts: scipy.linalg.expm(matrix * period * np.asarray(parts)[..., None, None])
    # Comparator's input: control voltage less ramp.
    excess = lambda x, parts: gain * (x[..., 0] - reference) - (low + (high - low) * parts)

    def passage(part):
        """Off for a part of the period, then on: where it starts and switches."""
        off, on = flow(part), flow(1 - part)
        start = np.linalg.solve(np.eye(2) - on @ off, (settled - on @ settled)[..., None])
        return start[..., 0], (off @ start)[..., 0]

    switches = lambda part: float(excess(passage(np.array(part))[1], part))
    parts = np.linspace(1e-3, 1 - 1e-3, 400)
    signs = np.sign(excess(passage(parts)[1], parts))
    found = []
    for k in np.flatnonzero(signs[1:] != signs[:-1]):
        part = scipy.optimize.brentq(switches, parts[k], parts[k + 1], xtol=1e-16, rtol=1e-15)
        start, at = passage(part)
        early, late = np.linspace(0, part, 200)[:-1], np.linspace(part, 1, 200)[1:]
        while_off = excess(flow(early) @ start, early)
        while_on = excess(settled + flow(late - part) @ (at - settled), late)
        if while_off.min() > 0 and while_on.max() < 0:
            gradient = np.array([gain, 0])
            rate = gradient @ (matrix @ at) - (high - low) / period
            jacobian = flow(1 - part) @ (np.eye(2) + np.outer(drive, gradient) / rate) @ flow(part)
            found.append((start, np.linalg.eigvals(jacobian)))
    return found, np.exp(-period / (r * c))


CONVERTERS = [
    {},
    {"input_voltage": 26.0},  # unstable, beyond 24.5 V
    {"input_voltage": 32.5, "inductance": 14.0, "capacitance": 0.075, "ramp_period": 0.3},
    {"input_voltage": 18.0, "resistance": 26.7, "inductance": 33.6, "capacitance": 0.032, "gain": 11.0},
]


@pytest.mark.parametrize("values", CONVERTERS)
def test_buck_converter(values):
    found = orbits(buck_converter, **values)
    expected, contraction = converter(values)
    assert len(found) == len(expected) == 1
    for start, multipliers in expected:
        # Voltages near 12, and a duty that brentq knows to 1e-15: its error enters through the gain.
        assert_allclose(found.x[0, :2], start, rtol=0, atol=1e-12)
        assert_allclose(found.period, [float(found.params.ramp_period[0])], rtol=1e-14)
        assert_allclose(found.multipliers[0], by_modulus([*multipliers, 0]), rtol=0, atol=1e-12)
        assert_allclose(jnp.prod(found.multipliers[0, :2]).real, contraction, rtol=1e-12)


def test_the_ramp_is_forgotten_by_the_map_and_not_by_the_monodromy_matrix():
    """The last reset does not look at the ramp: an exact row of zeros. At fixed time its shift is one along the orbit: 1."""
    params = buck_converter.Params()
    orbit = hj.periodic_orbit(
        hj.ReturnMap(buck_converter.system, sequence=buck_converter.sequence, integrator=ROLLED),
        buck_converter.guess(params),
        params,
    )
    # The model's guess leads to the orbit of the search.
    assert_allclose(orbit.x[:2], converter({})[0][0][0], rtol=0, atol=1e-12)
    assert np.all(orbit.return_jacobian[2] == 0) and orbit.multipliers[2] == 0
    around = orbit.monodromy()
    assert_allclose(by_modulus(np.linalg.eigvals(around)), by_modulus([*orbit.multipliers[:2], 1]), rtol=0, atol=1e-12)


def test_period_doubles_near_24_5_volts():
    """Fossas and Olivar (1996): the orbit of one period loses its stability near 24.5 V, through -1."""
    largest = lambda volts: orbits(buck_converter, input_voltage=volts).multipliers[0, 0]
    assert abs(largest(24.4)) < 1 < abs(largest(24.6)) and largest(24.6).real < -1


# Integrate and fire


@pytest.mark.parametrize(
    "ratio, leak, coupling", [(1.2, 1.0, -0.1), (1.2, 2.0, 0.1), (3.0, 0.4, 0.2), (1.05, 7.0, -0.5), (11.0, 1.0, 0.01)]
)
def test_integrate_and_fire(ratio, leak, coupling):
    found = orbits(integrate_and_fire, drive=ratio * leak, leak=leak, coupling=coupling)
    assert len(found) == 1
    j, kick = ratio, coupling
    u = j + kick / 2 - np.sqrt((2 * j + kick) ** 2 - 4 * j * (1 + kick)) / 2
    slope = -j * (j - 1) / (j - u) ** 2
    # The closed form subtracts numbers of size j, and Newton's equation has the condition 1 / (1 - slope^2).
    assert_allclose(found.x[0], [0, u], rtol=0, atol=1e-15 * (1 + j) / abs(1 - slope**2))
    assert_allclose(found.period, [2 / leak * np.log((j - u) / (j - 1))], rtol=1e-13)
    assert_allclose(found.multipliers[0], [slope**2, 0], rtol=1e-12, atol=1e-14)
    assert bool(found.stable[0]) == (coupling < 0)


def test_a_kick_over_the_threshold_makes_both_fire():
    params = integrate_and_fire.Params(coupling=0.1)
    system = integrate_and_fire.system
    step = lambda mode, x: hj.flow_to_guard(system, mode, 0.0, jnp.array(x), params, integrator=ROLLED)
    target = lambda impact: integrate_and_fire.system.transitions[int(impact.transition)].target
    assert target(step("first", [0.0, 0.5])) == "second"
    assert target(step("first", [0.9, 0.95])) == "together"
    assert target(step("first", [0.95, 0.9])) == "together"
    # Once together, they fire every ln(J / (J - 1)) / gamma, J = 1.2.
    alone = step("together", [0.0])
    assert target(alone) == "together"
    assert_allclose(alone.t, np.log(6.0), rtol=1e-14)


# SLIP: its gaits are in test_model_reference.py


def test_who_turns_back_has_fallen():
    """A leg too flat throws the runner back; one too steep lets go of a mass that falls, and lands again."""
    params = slip.Params()
    stance = lambda x: hj.flow_to_guard(slip.system, "stance", 0.0, jnp.array(x), params, integrator=ROLLED)
    target = lambda impact: slip.system.transitions[int(impact.transition)].target
    sine, cosine = np.sin(1.2), np.cos(1.2)
    assert target(stance([-cosine, sine, 1.5, -0.5])) == "ascent"
    back = stance([-cosine, sine, 0.1, -0.5])
    assert target(back) == "fallen" and back.x[0] < 0
    assert_allclose(back.x[2], 0, atol=1e-14)


def test_energy_of_a_step():
    """In flight the horizontal speed is what the energy leaves: touchdown and lift-off keep it."""
    params = slip.Params()
    x = jnp.array([0.94, -0.4])
    _, y, x_rate, y_rate = slip.touchdown(jnp.zeros(()), x, params)
    assert_allclose(y + (x_rate**2 + y_rate**2) / 2, params.energy, rtol=1e-15)


@pytest.mark.medium
def test_friction_at_rest_and_in_motion():
    """Reference `belt_static_kinetic_1.0_0.75`, closed form: durations of slip and stick, and where the block sticks."""
    params = friction_oscillator.Params(
        mass=1.0, stiffness=1.0, load=1.0, static_friction=1.0, kinetic_friction=0.75, belt_speed=0.2
    )
    step = hj.ReturnMap(friction_oscillator.system, sequence=("slip", "stick"), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([1.0, 0.2]), params)
    assert_allclose(np.diff(orbit.jump_times[0], prepend=0), [4.491074538036898564575685, 2.5], rtol=0, atol=1e-12)
    assert_allclose(orbit.arc_ends[0][0, 0], 0.5, rtol=0, atol=1e-12)
    assert_allclose(orbit.period, 6.991074538036898564575685, rtol=0, atol=1e-12)
