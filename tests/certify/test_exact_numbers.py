"""Numbers with some fifty digits, against exact fractions and mpmath: no member is lost; the flow of a point."""

import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import flint
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from exact_sets import fraction
from flint import arb

import hyjax as hj
from hyjax._testing import (
    ball,
    crossing,
    dot,
    evaluate,
    exact_function,
    exact_numbers,
    exactly,
    ExactStep as Step,
    graph_of,
    Kind,
    largest,
    ModeField,
    NotEnclosed,
    numbers_of,
    PRECISION,
    rounded,
    step_from,
    UNKNOWN,
    widened,
)

UNIT = Fraction(1, 1 << PRECISION)


@pytest.fixture(autouse=True)
def _precision():
    with flint.ctx.workprec(PRECISION), mpmath.workprec(4 * PRECISION):
        yield


def members(a):
    """The exact ends and the midpoint."""
    middle, radius = fraction(a.mid()), fraction(a.rad())
    return [middle - radius, middle, middle + radius]


def holds(a, value) -> bool:
    """Whether a ball holds a rational number, or one of mpmath, which is exact but for its last of four times the digits."""
    if not isinstance(value, Fraction):
        sign, digits, exponent, _ = value._mpf_
        value = (-1) ** sign * Fraction(int(digits)) * Fraction(2) ** int(exponent)
    low, _, high = members(a)
    return low <= value <= high


def of_mpmath(x):
    return mpmath.mpf(x.numerator) / x.denominator


def numbers(rng, count, positive=False):
    """Numbers of many sizes, some of radius zero, some short, of either sign; none reaches zero."""
    found = []
    for _ in range(count):
        middle = int(rng.integers(1, 1 << 60)) << int(rng.integers(0, PRECISION - 50)) | int(rng.integers(0, 1 << 30))
        radius = int(rng.choice([0, 0, 1, middle >> 90, middle >> 7, middle // 3]))
        sign = 1 if positive or rng.random() < 0.5 else -1
        found.append(arb(exactly(sign * middle * UNIT), exactly(radius * UNIT)))
    return found


def test_rational_operations_hold_their_members():
    rng = np.random.default_rng(0)
    for a, b, c in zip(*(numbers(rng, 200) for _ in range(3)), strict=True):
        for x in members(a):
            for y in members(b):
                assert holds(a + b, x + y) and holds(a - b, x - y) and holds(a * b, x * y) and holds(a / b, x / y)
                assert holds(widened(a, b), x + y) and holds(widened(a, b), x - y)
                assert holds(largest([a, b]), max(x, y))
                for z in members(c):
                    assert holds(dot((a, b, c), (b, c, a)), x * y + y * z + z * x)
            assert holds(-a, -x) and holds(a / 7, x / 7)
    for value in (0.1, 1e-40, 1e-70, -3.5e-58, 2.0**-192, 1e20, 5e-324, 1e308):
        assert fraction(exactly(value)) == Fraction(value)
    assert holds(exactly(Fraction(1, 3)), Fraction(1, 3)) and exactly(Fraction(1, 3)).rad() < 2 * float(UNIT)


def test_a_number_that_is_not_finite_is_the_largest():
    for unknown in (UNKNOWN, arb("nan")):
        assert not largest([arb(1), unknown, arb(2)]).is_finite() and not widened(arb(1), unknown).is_finite()


def test_floats_about_a_number_hold_it():
    rng = np.random.default_rng(1)
    for a in [*numbers(rng, 300), exactly(Fraction(1e-320) / 3), exactly(Fraction(3, 10**400))]:
        value, radius = rounded(a)
        assert all(abs(Fraction(value) - x) <= Fraction(radius) for x in members(a))
    for unknown in (UNKNOWN, arb("nan"), arb(2) ** 1000, arb(1, 2.0**1000), arb(2) ** 5000, -(arb(2) ** 5000)):
        assert rounded(unknown)[1] == np.inf
    assert rounded(exactly(0.75)) == (0.75, 0.0)
    with flint.ctx.workprec(20):
        assert rounded(exactly(0.1)) == (0.1, 0.0)


FUNCTIONS = {
    "sqrt": (mpmath.sqrt, True), "exp": (mpmath.exp, False), "log": (mpmath.log, True), "atan": (mpmath.atan, False),
    "sin": (mpmath.sin, False), "cos": (mpmath.cos, False), "abs": (abs, False), "floor": (mpmath.floor, False),
}  # fmt: skip


def value_of(name, a):
    """The value of an atom of a graph."""
    kind = {"sin": "sin_cos", "cos": "sin_cos"}.get(name, name)
    found = exact_numbers.values(Kind(kind, 0, 1, (), ()), [a, arb(1)])
    return found[name == "cos"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_hold_their_members(name):
    true, positive = FUNCTIONS[name]
    rng, narrow = np.random.default_rng(2), 0
    given = numbers(rng, 200, positive)
    if name == "exp":
        # Also of moderate numbers, and large ones, whose value has more than 192 bits.
        given = [exactly(rng.uniform(-60, 60)) + arb(0, a.rad()) for a in given if a.rad() < 1]
    if name in ("sin", "cos"):
        given += [exactly(rng.uniform(-1e6, 1e6)) + arb(0, a.rad()) for a in given]
    for a in given:
        value = value_of(name, a)
        for x in members(a):
            assert not value.is_finite() or holds(value, true(of_mpmath(x)))
        narrow += a.is_exact() and value.rad() <= abs(value) * 2.0 ** (3 - PRECISION)
    assert narrow > 50


def test_nothing_is_said_where_a_function_is_not_defined():
    for name in ("sqrt", "log"):
        assert not value_of(name, arb(1, 1.0001)).is_finite() and value_of(name, arb(1, 0.9999)).is_finite()
        assert not value_of(name, arb(-1)).is_finite() and rounded(value_of(name, arb(-1)))[1] == np.inf
    assert not (1 / arb(1, 1)).is_finite() and (1 / arb(1, 0.999)).is_finite()


def test_choices_of_numbers_hold_their_members():
    rng = np.random.default_rng(3)
    of_two = exact_numbers._max
    for _ in range(200):
        a, b = (
            arb(
                exactly(int(rng.integers(-3, 4)) + int(rng.integers(-2, 3)) * UNIT),
                exactly(rng.choice([0.0, 2.0**-192, 1.0])),
            )
            for _ in range(2)
        )
        for x in members(a):
            for y in members(b):
                assert holds(of_two(a, b), max(x, y))
            assert holds(value_of("abs", a), abs(x))
            assert holds(value_of("sign", a), Fraction((x > 0) - (x < 0)))


# x' = x^2, y' = x y + z, z' = 0, with the guard 2 - y - x / 8 in closed form.
RATIONAL = ModeField(
    hj.HybridSystem(
        {"m": hj.Mode(lambda t, x, p: jnp.stack([x[0] ** 2, x[0] * x[1]]), ("x", "y"))},
        (hj.Transition("m", "m", lambda t, x, p: 2 - x[1] - x[0] / 8, lambda t, x, p: x),),
    ),
    "m", None, False,
)  # fmt: skip


@pytest.mark.parametrize("radius", [0.0, 2.0**-132, 2.0**-42, 2.0**-12])
def test_the_flow_of_a_point_and_its_crossing(radius):
    """x = a / (1 - a t), y = b / (1 - a t): the guard falls to zero at a t = 1 - (b + a / 8) / 2, exactly."""
    field, columns, height = (
        exact_function(each, []) for each in (RATIONAL.field, RATIONAL.variational, RATIONAL.guards[0])
    )
    rng = np.random.default_rng(4)
    for _ in range(4):
        a, b = (arb(each, radius) for each in (rng.uniform(0.4, 0.6), rng.uniform(1.7, 1.8)))
        middle = (1 - (fraction(b.mid()) + fraction(a.mid()) / 8) / 2) / fraction(a.mid())
        longest = exactly(float(middle) * 1.3)
        step = step_from(field, columns, [a, b], longest)
        states, time = crossing(step, height, exactly(float(middle) * 0.98))
        for x in members(a):
            for y in members(b):
                for t in (fraction(longest), fraction(longest) / 3):
                    at = step.at(exactly(t))
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

    h has the slope 1 down to x = -e, then a smaller one, and none from x = -2r - 9e on, for e = 2^-18 r: h ends below -r only for
    slopes above 1/2. (A radius of Arb has 30 bits.)
    """
    radius, half, e = Fraction(1, 64), Fraction(1, 2), Fraction(1, 1 << 24)
    kink, flat = -e, -2 * radius - 9 * e

    def h(x):
        return x if x >= kink else kink + slope * (max(x, flat) - kink)

    def height(state):
        x, y = state
        low, _, high = members(x)
        least = 1 if low >= kink else slope if low >= flat else 0
        most = 1 if high >= kink else slope
        rate = exactly(Fraction(least)).union(exactly(Fraction(most)))
        # A hull of arb is wider than its ends by some 2^-30 of its radius; what is asked of `crossing` is some 2^-3.
        return [exactly(h(low)).union(exactly(h(high))) + y, -rate]

    series = [[arb(0.5), arb(-1), arb(0)], [arb(0)] * 3]
    step = Step(series, [arb(0), exactly(radius)], [arb(-1), arb(0)], arb(1))
    assert (h(flat) < -radius) == (slope > half)
    if slope > half:
        states, time = crossing(step, height, arb(0.5))
        for y in (-radius, radius):
            x = radius if y < 0 else kink + (-radius - kink) / slope
            assert h(x) + y == 0
            assert holds(time, half - x)
            assert holds(states[0], x) and holds(states[1], y)
    else:
        with pytest.raises(NotEnclosed, match="time of a crossing"):
            crossing(step, height, arb(0.5))


def test_a_step_in_which_a_state_is_infinite_is_refused():
    """x = a / (1 - a t) from a = 1 for longer than 1; and from a = 0.01, but y' = x y for long."""
    field, columns = (exact_function(each, []) for each in (RATIONAL.field, RATIONAL.variational))
    for start, longest in (((1.0, 0.0), 1.01), ((1.0, 0.0), 3.0), ((0.5, 1e-9), 2.5)):
        with pytest.raises(NotEnclosed):
            step_from(field, columns, [exactly(each) for each in start], exactly(longest))


def test_a_step_in_which_one_coordinate_rests_holds_the_other():
    """x = a / (1 - a t) beside y = 0, whose box is that of the start: the remainder is over a box that holds x as well."""
    field, columns = (exact_function(each, []) for each in (RATIONAL.field, RATIONAL.variational))
    for a, longest in ((0.5, 0.25), (-0.5, 0.5), (0.125, 1.0)):
        step = step_from(field, columns, [exactly(a), exactly(0)], exactly(longest))
        for t in (Fraction(longest), Fraction(longest) / 4):
            x, y = step.at(exactly(t))
            assert holds(x, Fraction(a) / (1 - Fraction(a) * t)) and holds(y, Fraction(0))


def entangled(x, p):
    """All kinds of atoms, constants that fold, and equal expressions."""
    r = jnp.sqrt(x @ x + 1)
    both = jnp.where(r > p, jnp.tanh(x[0]) * x[1] ** 3, jnp.abs(x[1]))
    angle = jnp.arctan2(x[1], r) + jnp.maximum(x[0], 3 * x[0] - x[1])
    return jnp.stack(
        [both / (x[0] - 7), angle * jnp.log(r) - 0 * x[0], jnp.sin(p * x[0]) * jnp.exp(-x[1]) + x[0] - x[0]]
    )


def test_four_evaluations_of_one_graph_agree():
    p, rng = 0.3, np.random.default_rng(0)
    graph = graph_of(entangled, jnp.zeros(2), jnp.zeros(()))
    numbers, fine, enclosed = (
        numbers_of(graph, [p]),
        exact_function(graph, [p]),
        jax.jit(lambda x: evaluate(graph, x, [p])),
    )
    for x in rng.uniform(0.2, 1.5, (20, 2)):
        expected = np.asarray(entangled(jnp.asarray(x), p))
        np.testing.assert_allclose(numbers(x), expected, rtol=1e-13, atol=1e-15)
        exact = fine([exactly(each) for each in x])
        np.testing.assert_allclose([rounded(each)[0] for each in exact], expected, rtol=1e-13, atol=1e-15)
        held = enclosed(ball(jnp.asarray(x), 1e-9))
        away = [abs(e - float(c)) for e, c in zip(exact, held.center, strict=True)]
        assert all(a <= float(r) for a, r in zip(away, held.radius, strict=True))
        assert np.all(np.asarray(held.radius) < 1e-7)


def test_equal_expressions_are_one_atom_and_zeros_are_none():
    def twice(x):
        return jnp.stack([jnp.sin(x[0] - x[1]) * x[1], x[1] * jnp.sin(x[0] - x[1]), 0 * x[0] + 2 * x[1] - x[1] * 2])

    levels = graph_of(twice, jnp.zeros(2)).varying
    assert [[(kind.name, kind.count) for kind in kinds] for _, kinds in levels.levels] == [
        [("sin_cos", 1)],
        [("mul", 1)],
    ]
    # The last result does not depend on the state.
    assert graph_of(lambda x: twice(x)[2:], jnp.zeros(2)).varying.read == ()
    assert graph_of(lambda x: x[1:] * x[0], jnp.zeros(3)).varying.read == (0, 1, 2)


def pendulum(columns):
    x, v = columns[:, 0], columns[:, 1:]
    slope = jnp.stack([jnp.stack([0 * x[0], 1 + 0 * x[0]]), jnp.stack([-jnp.cos(x[0]), 0 * x[0]])])
    return jnp.concatenate([jnp.stack([x[1], -jnp.sin(x[0])])[:, None], slope @ v], axis=1)


def test_a_pendulum_falls_to_its_lowest_place():
    """A quarter of the period of a pendulum from an angle of 2: the elliptic integral K(sin 1)."""
    rate = exact_function(graph_of(lambda x: pendulum(x[:, None])[:, 0], jnp.zeros(2)), [])
    columns = exact_function(graph_of(pendulum, jnp.zeros((2, 3))), [])
    height = exact_function(graph_of(lambda x: jnp.stack([x[0], x[1]]), jnp.zeros(2)), [])
    h, x = exactly(1 / 32), [exactly(2), exactly(0)]
    for _ in range(66):
        x = step_from(rate, columns, x, h).at(h)
    end, time = crossing(step_from(rate, columns, x, h), height, exactly(1 / 64))
    time = time + exactly(66 / 32)
    assert holds(time, mpmath.ellipk(mpmath.sin(1) ** 2)) and time.rad() < 1e-24
    assert holds(end[1], -2 * mpmath.sin(1)) and end[1].rad() < 1e-24


OPERATIONS = {
    "sum": lambda m, a, b: a + b, "difference": lambda m, a, b: a - b, "product": lambda m, a, b: a * b,
    "quotient": lambda m, a, b: a / (b * b + 0.25), "sine": lambda m, a, b: m.sin(a), "cosine": lambda m, a, b: m.cos(a),
    "exponential": lambda m, a, b: m.exp(m.cos(a) - b * b), "logarithm": lambda m, a, b: m.log(a * a + 1.5),
    "root": lambda m, a, b: m.sqrt(a * a + 0.125), "angle": lambda m, a, b: m.atan2(a, 1 + b * b),
    "modulus": lambda m, a, b: m.fabs(a) - b, "larger": lambda m, a, b: m.larger(a, b),
}  # fmt: skip


def random_expression(seed):
    """Twelve operations on earlier values, as a function of a module with the elementary functions and of two numbers."""
    rng = np.random.default_rng(seed)
    steps = [(OPERATIONS[name], rng.integers(0, k + 3, 2)) for k, name in enumerate(rng.permutation(list(OPERATIONS)))]

    def expression(m, x, y):
        values = [x, y, x - x + 0.7]
        for operation, (i, j) in steps:
            values.append(operation(m, values[i], values[j]))
        return values[-1] + values[-2] * values[-3]

    return expression


jnp_functions = SimpleNamespace(sin=jnp.sin, cos=jnp.cos, exp=jnp.exp, log=jnp.log, sqrt=jnp.sqrt, atan2=jnp.arctan2,
                                fabs=jnp.abs, larger=jnp.maximum)  # fmt: skip
mpmath_functions = SimpleNamespace(sin=mpmath.sin, cos=mpmath.cos, exp=mpmath.exp, log=mpmath.log, sqrt=mpmath.sqrt,
                                   atan2=mpmath.atan2, fabs=abs, larger=max)  # fmt: skip


@pytest.mark.parametrize("radius", [0.0, 1e-30, 1e-5])
def test_random_expressions_hold_their_members(radius):
    sharp = 0
    for seed in range(40):
        expression, rng = random_expression(seed), np.random.default_rng(seed)
        graph = graph_of(lambda x, f=expression: f(jnp_functions, x[0], x[1])[None], jnp.zeros(2))
        fine = exact_function(graph, [])
        for _ in range(5):
            x, y = (arb(each, radius) for each in rng.uniform(-2, 2, 2))
            (value,) = fine([x, y])
            for a in members(x):
                for b in members(y):
                    assert holds(value, expression(mpmath_functions, of_mpmath(a), of_mpmath(b)))
            sharp += value.rad() < 1e-48 + 1e6 * radius
    assert sharp > 190


def test_series_of_several_kinds_of_atoms_in_a_level():
    """x' = |x| + |y|, y' = exp z, z' = 1 from (1, -1, 1): two moduli, which have one operand each, before one other operand."""
    rate = lambda x: jnp.stack([jnp.abs(x[0]) + jnp.abs(x[1]), jnp.exp(x[2]), 1 + 0 * x[2]])
    fine = exact_function(graph_of(rate, jnp.zeros(3)), [])
    x, y, z = fine.coefficients([arb(1), arb(-1), arb(1)], 2)
    # x'' = x' - y', y'' = y'.
    expected = (1, 2, 1 - mpmath.e / 2), (-1, mpmath.e, mpmath.e / 2), (1, 1, 0)
    for found, true in zip((x, y, z), expected, strict=True):
        assert all(holds(a, mpmath.mpf(b)) and a.rad() < 1e-50 for a, b in zip(found, true, strict=True))


def test_series_of_a_function_that_may_jump_are_refused():
    """An integer part is constant between two integers, and the series of a number that may be one of them has none."""
    fine = exact_function(graph_of(lambda x: jnp.floor(x), jnp.zeros(1)), [])
    assert fine.coefficients([arb(2.5, 0.4)], 2)[0][1] == 2
    for start in (arb(2), arb(2, 0.1), arb(2, 0.4), arb(2.5, 0.5), arb(3)):
        with pytest.raises(NotEnclosed):
            fine.coefficients([start], 2)


KINKS = {
    "abs": lambda x: jnp.abs(x), "max": lambda x: jnp.maximum(x, -2 * x), "sqrt": jnp.sqrt, "sign": jnp.sign,
    "where": lambda x: jnp.where(x > 0, x, 3 * x),
}  # fmt: skip


@pytest.mark.parametrize("name", KINKS)
def test_series_at_a_kink_are_refused(name):
    """Also where the number is zero exactly: it moves from there to either side."""
    fine = exact_function(graph_of(KINKS[name], jnp.zeros(1)), [])
    assert fine.coefficients([arb(0.5, 0.25)], 2)[0][1].is_finite()
    for start in (arb(0), arb(0, 0.1), arb(0.1, 0.1)):
        with pytest.raises(NotEnclosed):
            fine.coefficients([start], 2)


def test_a_step_from_an_undefined_rate_is_refused():
    """x' = log x from about -1, and from a set that reaches zero: nothing holds a number that is not one."""
    rate = lambda x: jnp.log(x[:1])
    field = exact_function(graph_of(rate, jnp.zeros(1)), [])
    columns = exact_function(
        graph_of(lambda x: jnp.concatenate([rate(x[0]), x[0, 1:] / x[0, 0]])[None], jnp.zeros((1, 2))), []
    )
    assert step_from(field, columns, [arb(3)], arb(0.1)).at(arb(0.1))[0].is_finite()
    for start in (arb(-1), arb(0.5, 0.6), arb("nan"), UNKNOWN):
        with pytest.raises(NotEnclosed):
            step_from(field, columns, [start], arb(0.1))


def test_without_flint_the_extra_is_named():
    program = "import sys; sys.modules['flint'] = None; import hyjax.certify"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("ImportError: Certificates need flint: pip install 'hyjax-dynamics[certify]'.\n")
