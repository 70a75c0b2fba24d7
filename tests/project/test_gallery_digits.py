"""The digits of the gallery, as stored, against those of the references, as stored, and closed forms: no gait is computed.

Rounding has another size where a card's digits were computed with other instructions of the processor, so the tolerances are some
times those of the tests of the models, which state their reasons.
"""

import json
import pathlib

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.optimize
from numpy.testing import assert_allclose
from readme import ROOT
from reference import case, numbers
from scipy_arcs import arc, multipliers_of
from test_geyer_walker import step as walking_step
from test_hspo import crossing, driven, struck_at
from test_kneed_walker import stride as kneed_stride
from test_models import by_modulus, converter, one_bounce
from test_monopod_hopper import STABLE_HOPS
from test_powered_walker import KUO
from test_slip_retraction import apex_map

from hyjax import models

DIGITS = json.loads((ROOT / "docs" / "gallery" / "digits.json").read_text())


def stored(name: str) -> dict:
    return json.loads((ROOT / "tests" / f"{name}_reference.json").read_text())


def close(name: str, which: int, *, x0=None, period=None, multipliers=None, error: float = 1e-12):
    """A gait of a card: what the reference has of it, each within `error`, relative to the largest of its numbers above 1."""
    gait = DIGITS[name]["gaits"][which]
    if x0 is not None:
        assert_allclose(gait["x0"][: len(x0)], x0, rtol=0, atol=error * max(1, np.abs(x0).max()))
    if period is not None:
        assert_allclose(gait["period"], period, rtol=error)
    if multipliers is not None:
        exact = by_modulus(multipliers)
        found = [complex(*each) for each in gait["multipliers"]]
        assert_allclose(found[: len(exact)], exact, rtol=0, atol=error * max(1, np.abs(exact).max()))
        # Others are those of coordinates that the reset forgets.
        assert_allclose(found[len(exact) :], 0, atol=error)


def pairs(values) -> np.ndarray:
    return np.array([complex(*each) for each in values])


@pytest.mark.medium
@pytest.mark.parametrize("which, name", [(0, "long_0.009"), (1, "short_0.009")])
def test_simplest_walker(which, name):
    record = case("B_simplest_walker", name)
    multipliers = np.array(record["eigenvalues"]["re"]) + 1j * np.array(record["eigenvalues"]["im"])
    close("simplest_walker", which, x0=record["x0"], period=record["T"], multipliers=multipliers)


@pytest.mark.medium
def test_rimless_wheel():
    record = case("A_rimless_wheel")
    close("rimless_wheel", 0, x0=record["x0"], period=record["T"], multipliers=record["eigenvalues"], error=1e-13)


@pytest.mark.medium
def test_compass_gait():
    record = case("C_compass_gait")
    multipliers = np.array(record["eigenvalues"]["re"]) + 1j * np.array(record["eigenvalues"]["im"])
    close("compass_gait", 0, x0=record["x0"], period=record["T"], multipliers=multipliers)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["powered_walker", "two_spring_walker"])
def test_powered_walkers(name):
    """The second has two springs, which are equal by default. The first multiplier has a condition of a thousand."""
    params = models.powered_walker.Params()
    theta, theta_rate, period, multiplier = KUO[float(params.push_off), float(params.stiffness)]
    close(name, 0, x0=[theta, theta_rate], period=period, multipliers=[multiplier, np.conj(multiplier)])


@pytest.mark.medium
def test_bhounsule_walker():
    """The published gait has a step of half a leg's length and the period 1/2; digits of its push-off and torques end at 1e-8."""
    (gait,) = DIGITS["bhounsule_walker"]["gaits"]
    assert_allclose([2 * np.sin(gait["x0"][0]), gait["period"]], [0.5, 0.5], rtol=0, atol=5e-9)


@pytest.mark.medium
def test_kneed_walker():
    """A stride of the point masses, by SciPy at 1e-13 with events on its interpolant, leads from the stored state back to it."""
    (gait,) = DIGITS["kneed_walker"]["gaits"]
    assert_allclose(kneed_stride(np.array(gait["x0"])), gait["x0"], rtol=0, atol=1e-11)


@pytest.mark.medium
@pytest.mark.parametrize("which", range(2))
def test_slip(which):
    record = stored("model")["slip"]["flat and high"]
    params = models.slip.Params()
    assert {name: float(getattr(params, name)) for name in record["params"]} == record["params"]
    (exact,) = (each for each in map(numbers, record["orbits"]) if (each["x0"][0] > 1) == (which == 0))
    close("slip", which, x0=exact["x0"], period=exact["period"], multipliers=[exact["multiplier"]])


@pytest.mark.medium
@pytest.mark.parametrize("which", range(2))
def test_slip_with_retraction(which):
    """SciPy's map, as in the tests of the model, has the stored apex as a fixed point, to the error of its events."""
    gait, params = DIGITS["slip_retraction"]["gaits"][which], models.slip_retraction.Params()
    assert_allclose(apex_map(gait["x0"][0], params), gait["x0"][0], rtol=0, atol=1e-10)


@pytest.mark.medium
def test_thrusting_hopper():
    """Three of the five hops are known to ten digits of the period; the third of these was found by another search."""
    for (x, period, _), which in zip(STABLE_HOPS[:2], (4, 2), strict=True):
        gait = DIGITS["thrusting_hopper"]["gaits"][which]
        # Half a unit of the last decimal.
        assert_allclose(gait["x0"], x, rtol=0, atol=6e-7)
        assert_allclose(gait["period"], period, rtol=0, atol=6e-10)


@pytest.mark.medium
@pytest.mark.parametrize("which", range(2))
def test_duffing_impact_oscillator(which):
    record = stored("model")["duffing_impact_oscillator"]["driven, moving wall"]
    params = models.duffing_impact_oscillator.Params()
    assert {name: float(getattr(params, name)) for name in record["params"]} == record["params"]
    x0 = DIGITS["duffing_impact_oscillator"]["gaits"][which]["x0"]
    exact = min(map(numbers, record["orbits"]), key=lambda each: np.abs(each["x0"] - x0).max())
    multipliers = pairs(exact["multipliers"])
    close(
        "duffing_impact_oscillator", which, x0=exact["x0"], period=exact["period"], multipliers=multipliers, error=2e-12
    )


@pytest.mark.medium
def test_relief_valve():
    exact = numbers(stored("valve")["impacts"]["3"])
    assert models.relief_valve.Params().flow == 3
    multipliers = pairs(exact["multipliers"])
    close("relief_valve", 0, x0=[0, *exact["x"]], period=exact["period"], multipliers=multipliers)


@pytest.mark.medium
def test_piecewise():
    p = models.piecewise.Params()
    alpha, beta, gamma = (float(each) for each in (p.alpha, p.beta, p.gamma))
    r0, r1 = crossing(alpha, beta, gamma)
    period = np.pi + np.log(r0 * (beta - r1) / (r1 * (beta - r0))) / (alpha * beta)
    slope = (1 - r1) * (beta - r0) * (gamma + beta - r1) / ((1 - r0) * (beta - r1) * (gamma + beta - r0))
    # As there: near the right circle the logarithm loses digits.
    close("piecewise", 0, x0=[0, r0], period=period, multipliers=[slope], error=1e-11)


@pytest.mark.medium
def test_linear_impact_oscillator():
    params = models.linear_impact_oscillator.Params()
    (gait,) = DIGITS["linear_impact_oscillator"]["gaits"]
    close("linear_impact_oscillator", 0, x0=struck_at(float(params.amplitude), driven(params)), period=2 * np.pi)
    assert_allclose(np.prod(pairs(gait["multipliers"][:2])), 0.8**2 * np.exp(-0.2 * np.pi), rtol=1e-11)


@pytest.mark.medium
@pytest.mark.parametrize("which", range(3))
def test_bangbang(which):
    """Damping alone fixes the product of the multipliers."""
    params, gait = models.bangbang.Params(), DIGITS["bangbang"]["gaits"][which]
    assert_allclose(gait["period"], 2 * np.pi / params.frequency, rtol=1e-13)
    area = np.exp(-params.damping * 2 * np.pi / params.frequency)
    assert_allclose(np.prod(pairs(gait["multipliers"][:2])), area, rtol=1e-10)


@pytest.mark.medium
def test_vibrating_table():
    p = models.vibrating_table.Params()
    g, e, omega, amplitude = (float(each) for each in (p.gravity, p.restitution, p.frequency, p.amplitude))
    for which, (_, _, start, _, _, jacobian) in enumerate(one_bounce(g, e, omega, amplitude)):
        # The stable one is the first.
        close("vibrating_table", which, x0=start, period=2 * np.pi / omega, multipliers=np.linalg.eigvals(jacobian))


@pytest.mark.medium
def test_friction_oscillator():
    p = models.friction_oscillator.Params()
    mass, stiffness, load, static, kinetic, speed = (float(each) for each in vars(p).values())
    omega, gap = np.sqrt(stiffness / mass), (static - kinetic) * load / stiffness
    period = 2 * gap / speed + (np.pi + 2 * np.arctan(speed / (omega * gap))) / omega
    close(
        "friction_oscillator", 0, x0=[static * load / stiffness - 2 * gap], period=period, multipliers=[0], error=1e-13
    )


@pytest.mark.medium
def test_paddle_juggler():
    p = models.paddle_juggler.Params()
    multiplier = 1 - 2 * (1 + p.restitution) * p.gain * p.gravity * p.apex
    period = 2 * np.sqrt(2 * p.apex / p.gravity)
    close("paddle_juggler", 0, x0=[float(p.apex), 0], period=period, multipliers=[float(multiplier)], error=1e-13)


@pytest.mark.medium
def test_buck_converter():
    ((start, multipliers),), _ = converter({})
    close("buck_converter", 0, x0=start, period=0.4, multipliers=multipliers)


@pytest.mark.medium
def test_integrate_and_fire():
    p = models.integrate_and_fire.Params()
    j, kick = float(p.drive / p.leak), float(p.coupling)
    u = j + kick / 2 - np.sqrt((2 * j + kick) ** 2 - 4 * j * (1 + kick)) / 2
    slope = -j * (j - 1) / (j - u) ** 2
    period = 2 / float(p.leak) * np.log((j - u) / (j - 1))
    close("integrate_and_fire", 0, x0=[0, u], period=period, multipliers=[slope**2])


@pytest.mark.medium
def test_bouncing_ball():
    """Dropped from 1 m: impacts at sqrt(2/g) (1 + 2 (e + e^2 + ...)), after the k-th the speed e^k sqrt(2 g)."""
    p, about = models.bouncing_ball.Params(), DIGITS["bouncing_ball"]
    g, e, k, end = float(p.gravity), float(p.restitution), about["jumps"], about["end"]
    since = end["t"] - np.sqrt(2 / g) * (1 + 2 * np.sum(e ** np.arange(1, k)))
    speed = e**k * np.sqrt(2 * g)
    assert_allclose(end["x"], [speed * since - g * since**2 / 2, speed - g * since], rtol=0, atol=1e-13)


@pytest.mark.medium
def test_ball_on_slope():
    """Thrown uphill at 2 m/s, 1 m above the plane, it is stopped by its impact, whose friction is strong enough, and slides down,
    since the slope is steeper than static friction holds."""
    p, about = models.ball_on_slope.Params(), DIGITS["ball_on_slope"]
    sine, cosine, g = np.sin(float(p.slope)), np.cos(float(p.slope)), float(p.gravity)
    falls = np.sqrt(2 / (g * cosine))
    before = -2 + g * sine * falls
    assert 0 < -before < p.kinetic_friction * g * cosine * falls and sine / cosine > p.static_friction
    slides, accel = about["end"]["t"] - falls, g * (sine - float(p.kinetic_friction) * cosine)
    place, speed = -2 * falls + g * sine * falls**2 / 2 + accel * slides**2 / 2, accel * slides
    exact = np.outer([place, speed], [cosine, -sine]).ravel()
    assert_allclose(about["end"]["x"], exact, rtol=0, atol=1e-13)
    assert about["jumps"] == 1 and about["end"]["mode"] == "S+"


@pytest.mark.medium
@pytest.mark.parametrize("which", range(2))
def test_powered_compass_gait(which):
    """Two legs free of the ground, held at the stance foot by a force; impulses at both feet. The errors of SciPy's
    stride are 1e-12; differences of 1e-5 give the multipliers to 1e-8."""
    p, gait = models.powered_compass_gait.Params(), DIGITS["powered_compass_gait"]["gaits"][which]
    M, m, inertia, c, l, g = (
        float(getattr(p, k)) for k in ("hip_mass", "leg_mass", "inertia", "com", "leg_length", "gravity")
    )
    k, damper, push, slope = (float(getattr(p, k)) for k in ("stiffness", "damping", "push_off", "slope"))

    def below_hip(r, angle):
        """The Jacobian of a point of a leg, `r` below the hip, by that leg's angle, and its change with that angle."""
        return r * np.array([np.cos(angle), np.sin(angle)]), r * np.array([-np.sin(angle), np.cos(angle)])

    def point(leg, r, q):
        """The Jacobian of such a point by `(hip, stance, swing)`, and what the rates alone add to its acceleration."""
        jacobian, (slant, bend) = np.zeros((2, 4)), below_hip(r, q[leg])
        jacobian[:, :2], jacobian[:, 2 + leg] = np.eye(2), slant
        return jacobian, lambda rates: bend * rates[leg] ** 2

    def masses(q):
        jacobians = [point(leg, c, q)[0] for leg in (0, 1)]
        return np.diag([M, M, inertia, inertia]) + m * sum(each.T @ each for each in jacobians)

    def rate(t, x):
        q, v = x[:2], x[2:]
        torque = k * (q[0] - q[1]) + damper * (v[0] - v[1])
        weight = np.array([0, -M * g, -torque, torque])
        for leg in (0, 1):
            jacobian, bend = point(leg, c, q)
            weight = weight + jacobian.T @ (np.array([0, -m * g]) - m * bend(v))
        foot, bend = point(0, l, q)
        held = np.block([[masses(q), -foot.T], [foot, np.zeros((2, 2))]])
        return np.concatenate([v, np.linalg.solve(held, np.concatenate([weight, -bend(v)]))[2:4]])

    def strike(x):
        q, v = x[:2], x[2:]
        old, new = (point(leg, l, q)[0] for leg in (0, 1))
        # The hip moves as the old stance foot, at rest, has it.
        before = np.concatenate([-old[:, 2:] @ v, v])
        along = push * np.array([-np.sin(q[0]), np.cos(q[0])])
        stops = np.block([[masses(q), -new.T], [new, np.zeros((2, 2))]])
        after = np.linalg.solve(stops, np.concatenate([masses(q) @ before + old.T @ along, np.zeros(2)]))[2:4]
        return np.concatenate([q[::-1], after[::-1]])

    def stride(x):
        foot = lambda t, x: x[0] + x[1] + 2 * slope
        t, x = arc(rate, 0.0, x, foot, lambda t, x: x[0] < x[1], 2.5)
        periods.append(t)
        return strike(x)

    periods: list[float] = []
    x0 = np.array(gait["x0"])
    assert_allclose(stride(x0), x0, rtol=0, atol=1e-11)
    assert_allclose(periods[0], gait["period"], rtol=1e-11)
    assert_allclose(multipliers_of(stride, x0, 1e-5)[:3], pairs(gait["multipliers"])[:3], rtol=0, atol=1e-7)


@pytest.mark.medium
def test_impact_microactuator():
    """Next to grazing the return map is a square root: it multiplies SciPy's error by 800, and differences are short."""
    p, (gait,) = models.impact_microactuator.Params(), DIGITS["impact_microactuator"]["gaits"]
    volts, c, n, omega, e, stop, m = (float(each) for each in vars(p).values())
    force = lambda q, rate, phase: (volts * np.sin(phase) / (1 - q)) ** 2 - c * rate - q
    stick = lambda t, x: np.array([x[1], force(*x), omega])

    def slip(t, x):
        inner = force(*x[1:])
        slows = -n - inner / m
        return np.array([slows, x[2], inner - slows, omega])

    def stride(x):
        t, x = arc(stick, 0.0, x, lambda t, x: np.pi / 2 - x[2])
        t, x = arc(stick, t, [x[0], x[1], -np.pi / 2], lambda t, x: stop - x[0], until=4.0, most=1e-2)
        t, x = arc(slip, t, [(1 + e) / (1 + m) * x[1], x[0], -e * x[1], x[2]], lambda t, x: x[0])
        return x[1:]

    x0 = np.array(gait["x0"])
    assert_allclose(stride(x0), x0, rtol=0, atol=1e-9)
    assert_allclose(gait["period"], np.pi / omega, rtol=1e-13)
    assert_allclose(multipliers_of(stride, x0, 1e-9)[0], gait["multipliers"][0][0], rtol=1e-4)


@pytest.mark.medium
def test_monopod_hopper():
    """Touch-down and lift-off, where the ground's force has no second derivative, cost SciPy some digits."""
    p, about = models.monopod_hopper.Params(), DIGITS["monopod_hopper"]
    damping, m, k, f = (float(getattr(p, each)) for each in ("damping", "toe_mass", "stiffness", "weight"))
    leg = 4 * np.pi**2 - m

    def rate(t, x):
        pushes = max(-x[0], 0.0) ** 1.5 * (leg * k - damping * x[1])
        squeeze = 1 + x[0] - x[2]
        return np.array([x[1], -leg * squeeze - f + pushes, x[3], m * squeeze - f])

    t, x, end = 0.0, [0.5, 0.0, 1.5, 0.0], about["end"]
    for guard in (lambda t, x: x[0], lambda t, x: -x[0], lambda t, x: x[0]):
        t, x = arc(rate, t, x, guard, until=end["t"])
    assert t == end["t"] and about["jumps"] == 2 and end["mode"] == "flight"
    assert_allclose(x, end["x"], rtol=0, atol=1e-10)


@pytest.mark.medium
def test_rocking_block():
    """Housner's equations of each corner, in place of contacts."""
    p, about = models.rocking_block.Params(), DIGITS["rocking_block"]
    b, h, g = float(p.half_width), float(p.half_height), float(p.gravity)
    alpha, square = np.arctan2(b, h), 0.75 * g / np.hypot(b, h)
    t, x, side, strikes, end = 0.0, [alpha / 2, 0.0], 1, 0, about["end"]
    while t < end["t"]:
        rate = lambda t, x, side=side: np.array([x[1], -side * square * np.sin(alpha - side * x[0])])
        t, x = arc(rate, t, x, lambda t, x, side=side: side * x[0], until=end["t"])
        if t < end["t"]:
            x, side, strikes = [0.0, (1 - 1.5 * np.sin(alpha) ** 2) * x[1]], -side, strikes + 1
    theta, theta_rate = x
    # From the corner on which it stands, at -b or b, to the centre.
    up = np.array([side * b * np.cos(theta) - h * np.sin(theta), side * b * np.sin(theta) + h * np.cos(theta)])
    centre = up - [side * b, 0]
    velocity = theta_rate * np.array([-up[1], up[0]])
    assert strikes == about["jumps"] and end["x"][6:] == ([1, 0] if side == 1 else [0, 1])
    assert_allclose(end["x"][:6], [*centre, theta, *velocity, theta_rate], rtol=0, atol=1e-11)


def test_pulse_coupled_neurons():
    """Closed form between firings, v = I - (I - v) exp(-t), in an event loop of NumPy."""
    p, about = models.pulse_coupled_neurons.Params(), DIGITS["pulse_coupled_neurons"]
    drive, pulse, t, events = float(p.drive), float(p.coupling) / 10, 0.0, 0
    v = np.array(models.pulse_coupled_neurons.start(p)[1])
    while True:
        wait = np.log((drive - v.max()) / (drive - 1))
        step = min(wait, about["end"]["t"] - t)
        t, v = t + step, drive - (drive - v) * np.exp(-step)
        if step < wait:
            break
        fires = v == v.max()
        while np.any((v + pulse * fires.sum() >= 1 - 1e-14) & ~fires):
            fires |= v + pulse * fires.sum() >= 1 - 1e-14
        v, events = np.where(fires, 0, v + pulse * fires.sum()), events + 1
    assert events == about["jumps"]
    assert_allclose(v, about["end"]["x"], rtol=0, atol=1e-11)


def test_hard_disks():
    """Event-driven dynamics: the time of each collision in closed form. Chaos enlarges rounding by e^9 or so in this time."""
    p, about = models.hard_disks.Params(), DIGITS["hard_disks"]
    r, t, events = float(p.radius), 0.0, 0
    q, v = np.array(models.hard_disks.start(p)[1]).reshape(2, 8, 2)
    first, second = np.triu_indices(8, 1)
    while True:
        apart, closing = q[second] - q[first], v[second] - v[first]
        b, c = np.sum(apart * closing, 1), np.sum(apart**2, 1) - 4 * r**2
        root = b**2 - np.sum(closing**2, 1) * c
        with np.errstate(invalid="ignore", divide="ignore"):
            meet = np.where((b < 0) & (root > 0), c / (-b + np.sqrt(np.maximum(root, 0))), np.inf)
            wall = np.where(v > 0, (1 - r - q) / v, np.where(v < 0, (r - q) / v, np.inf))
        step = min(meet.min(), wall.min(), about["end"]["t"] - t)
        t, q = t + step, q + v * step
        if step == meet.min():
            i, j = first[meet.argmin()], second[meet.argmin()]
            n = (q[j] - q[i]) / np.linalg.norm(q[j] - q[i])
            push = n * (n @ (v[j] - v[i]))
            v[i], v[j] = v[i] + push, v[j] - push
        elif step == wall.min():
            v[np.unravel_index(wall.argmin(), v.shape)] *= -1
        else:
            break
        events += 1
    assert events == about["jumps"]
    assert_allclose([*q.ravel(), *v.ravel()], about["end"]["x"], rtol=0, atol=1e-9)


def test_newtons_cradle():
    """The distance of two neighbours is a cosine: the next impact in closed form."""
    p, about = models.newtons_cradle.Params(), DIGITS["newtons_cradle"]
    omega, gap, e = np.sqrt(float(p.gravity) / float(p.length)), float(p.gap), float(p.restitution)
    x, v = np.array(models.newtons_cradle.start(p)[1]).reshape(2, 5)
    t, events = 0.0, 0
    while True:
        most, phase = np.hypot(np.diff(x), np.diff(v) / omega), np.arctan2(np.diff(v) / omega, np.diff(x))
        with np.errstate(invalid="ignore", divide="ignore"):
            wait = (phase + np.arccos(-gap / most)) % (2 * np.pi) / omega
        wait = np.where((most > gap) & (wait > 1e-12), wait, np.inf)
        step = min(wait.min(), about["end"]["t"] - t)
        c, s = np.cos(omega * step), np.sin(omega * step)
        t, x, v = t + step, x * c + v / omega * s, v * c - omega * x * s
        if step < wait.min():
            break
        k = wait.argmin()
        push = (1 + e) / 2 * (v[k] - v[k + 1])
        v[k], v[k + 1], events = v[k] - push, v[k + 1] + push, events + 1
    assert events == about["jumps"]
    assert_allclose([*x, *v], about["end"]["x"], rtol=0, atol=1e-10)


def test_boost_converter():
    """Matrix exponentials and a root for the diode's time; the multiplier by differences, whose error is of the size 1e-9."""
    p = models.boost_converter.Params()
    e, l, c, r = (float(v) for v in (p.input_voltage, p.inductance, p.capacitance, p.resistance))
    period, matrix = float(p.period), np.array([[-1 / (r * c), 1 / c], [-1 / l, 0]])
    settled = -np.linalg.solve(matrix, [0, e / l])

    def after(v):
        duty = float(p.duty) - float(p.gain) * (v - float(p.reference))
        begin = np.array([v * np.exp(-duty * period / (r * c)), e * duty * period / l]) - settled
        at = lambda t: settled + scipy.linalg.expm(matrix * t) @ begin
        emptied = scipy.optimize.brentq(lambda t: at(t)[1], 1e-6, (1 - duty) * period, xtol=1e-15)
        return at(emptied)[0] * np.exp(-((1 - duty) * period - emptied) / (r * c))

    v = scipy.optimize.brentq(lambda v: after(v) - v, 24, 25, xtol=1e-13)
    slope = (after(v + 1e-4) - after(v - 1e-4)) / 2e-4
    duty = float(p.duty) - float(p.gain) * (v - float(p.reference))
    close("boost_converter", 0, x0=[v, 0, 0, duty], period=period, error=1e-11)
    close("boost_converter", 0, multipliers=[slope], error=1e-8)


def test_relay_feedback():
    """Matrix exponentials and one root, in 24 digits; two multipliers are zero."""
    exact = [0, 1, 2.205914359267390214239325]
    close(
        "relay_feedback",
        0,
        x0=exact,
        period=7.858952070395521074188957,
        multipliers=[0.0046616636223868800134],
        error=1e-11,
    )


@pytest.mark.medium
def test_rabbit():
    """Quadrature in 40 digits. The variational equations of the reference have errors of 1e-12, times entries of some hundred."""
    after = [0.1753403972791646, -0.572142, 0.369998, 0.049928, 0.101114, -0.2383782418093331, 1.666692944508746,
             -0.4846168766217351, -0.08770298274222341, 2.708644550716617]  # fmt: skip
    close("rabbit", 0, x0=after, period=0.510539053865709382)
    close(
        "rabbit", 0, multipliers=[0.6173914423177391066] + list(pairs(stored("rabbit")["multipliers"])[1:]), error=1e-9
    )
    assert_allclose(DIGITS["rabbit"]["gaits"][0]["multipliers"][0], [0.6173914423177391066, 0], rtol=0, atol=1e-12)


def test_every_model_is_compared():
    text = pathlib.Path(__file__).read_text()
    assert {name for name in models.names if f'"{name}"' in text} == set(models.names)


def test_geyer_walker():
    """A step of SciPy's arcs leads from the stored state to itself on the other leg, twice in the stored period."""
    (gait,) = DIGITS["geyer_walker"]["gaits"]
    t, x = walking_step(np.array(gait["x0"][:4]))
    assert_allclose(x, gait["x0"][:4], rtol=0, atol=1e-11)
    assert_allclose(2 * t, gait["period"], rtol=1e-11)


def test_biped_slip():
    """The walk is its own image in a mirror of time: 2 T - t after the start as t before it, on both feet, which are fixed."""
    p, about = models.biped_slip.Params(), DIGITS["biped_slip"]
    variables = {name: float(value) for name, value in stored("gaits")["W1 #107"]["variables"].items()}
    feet = variables["y"] * np.tan([variables["alphaL"], variables["alphaR"]])

    def stand(t, u):
        x, y, *rates = u
        length = np.hypot(feet - x, y)
        push = float(p.stiffness) * (1 / length - 1)
        return [*rates, -np.sum(push * (feet - x)), np.sum(push) * y - 1]

    early = 2 * variables["T"] - about["end"]["t"]
    u = scipy.integrate.solve_ivp(
        stand, (0, early), [0, variables["y"], variables["dx"], 0], method="DOP853", rtol=1e-13, atol=1e-15
    ).y[:, -1]
    angles = np.arctan((feet - u[0]) / u[1])
    # Rounding of the start, times the square of the largest multiplier 2.05, and of a state of half a stride later.
    end = dict(zip(about["end"]["coordinates"], about["end"]["x"], strict=True))
    assert_allclose([end["x_rate"], end["y"], end["y_rate"]], [u[2], u[1], -u[3]], atol=1e-12)
    assert_allclose([end["left"], end["right"]], -angles[::-1], atol=1e-12)
    assert end["left_stands"] == end["right_stands"] == 1 and about["jumps"] == 8


def test_quadruped_slip():
    """The pronk is its own image in a mirror of time: in flight, as before its highest point."""
    p, about = models.quadruped_slip.Params(), DIGITS["quadruped_slip"]
    variables = {name: float(value) for name, value in stored("gaits")["PK_20_2 #267"]["variables"].items()}
    t = about["end"]["t"] - 2 * variables["T"]
    frequency = np.sqrt(float(p.swing_stiffness))
    end = np.array(about["end"]["x"])
    # Rounding of the start, times the square of the largest multiplier 4.9, of an angle that is not kept by symmetry.
    assert_allclose(end[:5], [variables["dx"], variables["y"] - t**2 / 2, -t, 0, 0], atol=1e-11)
    assert_allclose(end[5:9], variables["daBL"] / frequency * np.sin(frequency * t), atol=1e-11)
    assert_allclose(end[9:13], variables["daBL"] * np.cos(frequency * t), atol=1e-11)
    assert np.all(end[13:] == 0) and about["jumps"] == 16


@pytest.mark.medium
def test_jerboa():
    """Mass and feet in the plane, in place of angles of legs that stand. The family's own multiplier, 1, is zero on the card."""
    p, (gait,) = models.jerboa.Params(), DIGITS["jerboa"]["gaits"]
    k, w, *neutral = (float(each) for each in vars(p).values())

    def rate(feet):
        def of(t, u):
            (x, y, x_rate, y_rate), angles, rates = u[:4], u[4:6], u[6:]
            push = np.zeros(2)
            for foot in feet:
                if foot is not None:
                    leg = np.array([x - foot, y])
                    push += k * (1 / np.hypot(*leg) - 1) * leg
            swing = -push[0] * np.cos(angles) - push[1] * np.sin(angles) - w**2 * (angles - neutral)
            return np.array([x_rate, y_rate, push[0], push[1] - 1, *rates, *swing])

        return of

    def stride(z):
        feet, t, u = [None, None], 0.0, np.array([0, z[1], z[0], 0, *z[2:]])
        for leg in (0, 1):
            foot = lambda t, u, leg=leg: u[1] - np.cos(u[4 + leg])
            t, u = arc(rate(feet), t, u, foot, lambda t, u, leg=leg: u[4 + leg] > 0)
            feet[leg] = u[0] + u[1] * np.tan(u[4 + leg])
        for leg in (0, 1):
            t, u = arc(rate(feet), t, u, lambda t, u, leg=leg: 1 - np.hypot(u[0] - feet[leg], u[1]))
            ahead = feet[leg] - u[0]
            u[4 + leg], u[6 + leg] = np.arctan2(ahead, u[1]), -u[2] * u[1] - ahead * u[3]
            feet[leg] = None
        t, u = arc(rate(feet), t, u, lambda t, u: u[3])
        periods.append(t)
        return np.array([u[2], u[1], *u[4:]])

    periods: list[float] = []
    x0 = np.array(gait["x0"])
    z = x0[[0, 1, 3, 4, 5, 6]]
    assert_allclose(stride(z), z, rtol=0, atol=1e-11)
    assert_allclose(periods[0], gait["period"], rtol=1e-12)
    found = multipliers_of(stride, z, 1e-5)
    assert_allclose(found[1], 1, atol=1e-7)
    assert_allclose(found[[0, 2, 3]], pairs(gait["multipliers"])[:3], rtol=0, atol=1e-7)
    assert_allclose(models.jerboa.energy(0.0, x0, p), 4.977, rtol=1e-14)
