"""Numbers with some fifty digits and their radii, against Arb: no member is lost by an operation, and the flow of a point."""

from fractions import Fraction

import flint
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb

import hyjax as hj
from hyjax.certify import exact_graph as fine, fixed_point_numbers as fixed_point
from hyjax.certify.exact_flow import crossing, FineFunction, Step, step_from
from hyjax.certify.fixed_point_numbers import between, divided, dot, exactly, NotEnclosed, Number, PRECISION, rounded
from hyjax.certify.mode_field import ModeField

ONE = 1 << PRECISION
DIGITS = 4 * PRECISION


@pytest.fixture(autouse=True)
def _precision():
    before, flint.ctx.prec = flint.ctx.prec, DIGITS
    yield
    flint.ctx.prec = before


def numbers(rng, count, positive=False):
    """Numbers of many sizes, some of radius zero, some short, of either sign; none reaches zero."""
    found = []
    for _ in range(count):
        middle = int(rng.integers(1, 1 << 60)) << int(rng.integers(0, PRECISION - 50)) | int(rng.integers(0, 1 << 30))
        radius = int(rng.choice([0, 0, 1, middle >> 90, middle >> 7, middle // 3]))
        found.append(Number(middle if positive or rng.random() < 0.5 else -middle, radius))
    return found


def members(a):
    """The exact ends and the middle, as rational numbers."""
    return [Fraction(a.low, ONE), Fraction(a.middle, ONE), Fraction(a.high, ONE)]


def holds(a, value) -> bool:
    """Whether a number holds a value, rational or of Arb."""
    if isinstance(value, Fraction):
        return Fraction(a.low, ONE) <= value <= Fraction(a.high, ONE)
    return bool(value >= arb(a.low) / ONE and value <= arb(a.high) / ONE)


def of_arb(x):
    return arb(x.numerator) / x.denominator


def test_rational_operations_hold_their_members():
    rng = np.random.default_rng(0)
    for a, b, c in zip(*(numbers(rng, 300) for _ in range(3)), strict=True):
        for x in members(a):
            for y in members(b):
                assert holds(a + b, x + y) and holds(a - b, x - y) and holds(a * b, x * y) and holds(a / b, x / y)
                for z in members(c):
                    assert holds(dot((a, b, c), (b, c, a)), x * y + y * z + z * x)
            assert holds(-a, -x) and holds(divided(a, 7), x / 7) and holds(divided(a, 1), x)
        low, high = sorted((a.middle, b.middle))
        assert between(low, high).low <= low and high <= between(low, high).high
        assert a.largest >= max(abs(a.low), abs(a.high))
    for value in (0.1, 1e-40, 1e-70, -3.5e-58, 2.0**-192, 1e20):
        assert holds(exactly(value), Fraction(value)) and holds(exactly(Fraction(1, 3)), Fraction(1, 3))


def test_floats_about_a_number_hold_it():
    rng = np.random.default_rng(1)
    for a in numbers(rng, 300):
        value, radius = rounded(a)
        assert all(abs(Fraction(value) - x) <= Fraction(radius) for x in members(a))
    assert rounded(fixed_point.UNKNOWN)[1] == np.inf and rounded(exactly(0.75)) == (0.75, 0.0)


FUNCTIONS = {
    "sqrt": (fixed_point.sqrt, arb.sqrt, True), "exp": (fixed_point.exp, arb.exp, False), "log": (fixed_point.log, arb.log, True),
    "atan": (fixed_point.atan, arb.atan, False), "sin": (lambda a: fixed_point.sin_cos(a)[0], arb.sin, False),
    "cos": (lambda a: fixed_point.sin_cos(a)[1], arb.cos, False),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_hold_their_members(name):
    function, exact, positive = FUNCTIONS[name]
    rng, narrow = np.random.default_rng(2), 0
    given = numbers(rng, 250, positive)
    if name == "exp":
        # Also of moderate numbers, and large ones, whose value has more than 192 bits.
        given = [Number(int(rng.uniform(-60, 60) * 2.0**60) << (PRECISION - 60), a.radius % ONE) for a in given]
    if name in ("sin", "cos"):
        given += [Number(int(rng.uniform(-1e6, 1e6) * 2.0**60) << (PRECISION - 60), a.radius % ONE) for a in given]
    for a in given:
        try:
            value = function(a)
        except NotEnclosed:
            continue
        for x in members(a):
            assert holds(value, exact(of_arb(x)))
        narrow += a.radius == 0 and value.radius < (1 << 120)
    assert narrow > 50


def test_nothing_is_said_where_a_function_is_not_defined():
    near = Number(ONE, ONE)
    for function in (fixed_point.sqrt, fixed_point.log, lambda a: exactly(1) / a):
        with pytest.raises(NotEnclosed):
            function(near)
        function(Number(ONE, ONE - 1))
    with pytest.raises(NotEnclosed):
        fixed_point.exp(Number(0, 2 * ONE))
    assert abs(fixed_point.sin_cos(Number(0, 9 * ONE))[1].largest) >= ONE
    assert holds(fixed_point.pi(), arb.pi())


def test_choices_of_numbers_hold_their_members():
    rng = np.random.default_rng(3)
    for _ in range(200):
        a, b = (
            Number(int(rng.integers(-3, 4)) * ONE + int(rng.integers(-2, 3)), int(rng.choice([0, 1, 2, ONE])))
            for _ in range(2)
        )
        for x in members(a):
            for y in members(b):
                assert holds(fine._max(a, b), max(x, y))
            assert holds(fine._OF_ONE["abs"](a), abs(x))
            assert holds(fine._sign(a), Fraction((x > 0) - (x < 0)))


# x' = x^2, y' = x y + z, z' = 0, with the guard 2 - y - x / 8 in closed form.
RATIONAL = ModeField(
    hj.HybridSystem(
        {"m": hj.Mode(lambda t, x, p: jnp.stack([x[0] ** 2, x[0] * x[1]]), ("x", "y"))},
        (hj.Transition("m", "m", lambda t, x, p: 2 - x[1] - x[0] / 8, lambda t, x, p: x),),
    ),
    "m", None, False,
)  # fmt: skip


@pytest.mark.parametrize("radius", [0, 1 << 60, 1 << 150, 1 << 180])
def test_the_flow_of_a_point_and_its_crossing(radius):
    """x = a / (1 - a t), y = b / (1 - a t): the guard falls to zero at a t = 1 - (b + a / 8) / 2, exactly."""
    field, columns, height = (
        FineFunction(each, []) for each in (RATIONAL.field, RATIONAL.variational, RATIONAL.guards[0])
    )
    rng = np.random.default_rng(4)
    for _ in range(4):
        a, b = (exactly(each).widened(radius) for each in (rng.uniform(0.4, 0.6), rng.uniform(1.7, 1.8)))
        middle = (1 - (Fraction(b.middle, ONE) + Fraction(a.middle, ONE) / 8) / 2) / Fraction(a.middle, ONE)
        longest = exactly(float(middle) * 1.3)
        step = step_from(field, columns, [a, b], longest)
        states, time = crossing(step, height, exactly(float(middle) * 0.98))
        for x in members(a):
            for y in members(b):
                for t in (Fraction(longest.middle, ONE), Fraction(longest.middle, 3 * ONE)):
                    at = step.at(Number(int(t * ONE), 1))
                    assert holds(at[0], x / (1 - x * t)) and holds(at[1], y / (1 - x * t))
                t = (1 - (y + x / 8) / 2) / x
                assert holds(time, t)
                assert holds(states[0], x / (1 - x * t)) and holds(states[1], y / (1 - x * t))
        # A step that is too short, or a crossing before it, is no crossing.
        for other, guess in ((exactly(float(middle) * 0.9), 0.9), (longest, -0.2)):
            with pytest.raises(NotEnclosed):
                start = [a, b] if guess > 0 else [exactly(0.5), exactly(2.5)]
                crossing(step_from(field, columns, start, other), height, exactly(guess * float(middle)))


@pytest.mark.parametrize("slope", [Fraction(1, 3), Fraction(49, 100), Fraction(51, 100), Fraction(3, 5), Fraction(1)])
def test_a_crossing_is_enclosed_only_if_every_state_crosses(slope):
    """x' = -1 from 1/2, y' = 0 from 0 +- r, and the guard h(x) + y: for y = r it never reaches zero where h > -r.

    h has the slope 1 down to x = -e, then a smaller one, and none from x = -2r - 9e on, for e of 64 units: h ends below -r only
    for slopes above 1/2.
    """
    radius, half, e = ONE >> 6, ONE >> 1, 64
    kink, flat = -e, -2 * radius - 9 * e

    def h(x):
        return x if x >= kink else kink + slope * (max(x, flat) - kink)

    def height(state):
        x, y = state
        least = 1 if x.low >= kink else slope if x.low >= flat else 0
        most = 1 if x.high >= kink else slope
        rate = between(int(least * ONE), int(most * ONE) + 1)
        return [between(int(h(x.low)) - 1, int(h(x.high)) + 1) + y, -rate]

    series = [[Number(half), Number(-ONE), Number(0)], [Number(0)] * 3]
    step = Step(series, [0, radius], [Number(-ONE), Number(0)], Number(ONE))
    assert (h(flat) < -radius) == (slope > Fraction(1, 2))
    if slope > Fraction(1, 2):
        states, time = crossing(step, height, Number(half))
        for y in (-radius, radius):
            x = radius if y < 0 else kink + (-radius - kink) / slope
            assert h(x) + y == 0
            assert holds(time, Fraction(1, 2) - Fraction(x) / ONE)
            assert holds(states[0], Fraction(x) / ONE) and holds(states[1], Fraction(y, ONE))
    else:
        with pytest.raises(NotEnclosed, match="time of a crossing"):
            crossing(step, height, Number(half))


def test_a_step_in_which_a_state_is_infinite_is_refused():
    """x = a / (1 - a t) from a = 1 for longer than 1; and from a = 0.01, but y' = x y for long."""
    field, columns = (FineFunction(each, []) for each in (RATIONAL.field, RATIONAL.variational))
    for start, longest in (((1.0, 0.0), 1.01), ((1.0, 0.0), 3.0), ((0.5, 1e-9), 2.5)):
        with pytest.raises(NotEnclosed):
            step_from(field, columns, [exactly(each) for each in start], exactly(longest))


def test_a_step_in_which_one_coordinate_rests_holds_the_other():
    """x = a / (1 - a t) beside y = 0, whose box is that of the start: the remainder is over a box that holds x as well."""
    field, columns = (FineFunction(each, []) for each in (RATIONAL.field, RATIONAL.variational))
    for a, longest in ((0.5, 0.25), (-0.5, 0.5), (0.125, 1.0)):
        step = step_from(field, columns, [exactly(a), exactly(0)], exactly(longest))
        for t in (Fraction(longest), Fraction(longest) / 4):
            x, y = step.at(exactly(t))
            assert holds(x, Fraction(a) / (1 - Fraction(a) * t)) and holds(y, Fraction(0))
