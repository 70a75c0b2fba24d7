"""Numbers with fifty digits, and what is evaluated with them: against mpmath, closed forms and the functions themselves."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from hyjax.certify import fixed_point_numbers as fixed_point
from hyjax.certify.center_orbit import numbers_of
from hyjax.certify.exact_flow import crossing, FineFunction, step_from
from hyjax.certify.fixed_point_numbers import exactly, NotEnclosed, Number, PRECISION, rounded
from hyjax.certify.interpret import evaluate
from hyjax.certify.symbolic import graph_of
from hyjax.certify.taylor_model import ball

FUNCTIONS = {
    "exp": (fixed_point.exp, mpmath.exp),
    "log": (fixed_point.log, mpmath.log),
    "sqrt": (fixed_point.sqrt, mpmath.sqrt),
    "atan": (fixed_point.atan, mpmath.atan),
    "sin": (lambda a: fixed_point.sin_cos(a)[0], mpmath.sin),
    "cos": (lambda a: fixed_point.sin_cos(a)[1], mpmath.cos),
}
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workprec(2 * PRECISION):
        yield


def real(units):
    return mpmath.mpf(units) / mpmath.mpf(2) ** PRECISION


def excess(number, value):
    """The distance of a value from the middle, in radii."""
    distance = abs(value - real(number.middle))
    return 0 if distance == 0 else float(distance / real(number.radius)) if number.radius else np.inf


def random_numbers(seed, low, high):
    """Numbers of all sizes with radii of all sizes, and a real number in each."""
    rng = np.random.default_rng(seed)
    for size in 10.0 ** rng.uniform(low, high, 60):
        middle = exactly(size * rng.choice([-1, 1])).middle
        radius = int(rng.choice([0, 1, 10**6])) or int(abs(middle) * 10.0 ** rng.uniform(-40, -4))
        yield Number(middle, radius), real(middle) + real(radius) * mpmath.mpf(rng.choice([-1, 1, rng.uniform(-1, 1)]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, true = FUNCTIONS[name]
    for a, x in random_numbers(1, -4, 1.8):
        if name in ("log", "sqrt"):
            a, x = Number(abs(a.middle), a.radius), abs(x)
        assert excess(function(a), true(x)) <= 1
        sharp = function(Number(a.middle))
        # Fifty digits of a number without a radius, also of a large one.
        assert sharp.radius <= 8 + (abs(sharp.middle) >> (PRECISION - 4))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    true = OPERATIONS[name]
    for (a, x), (b, y) in zip(random_numbers(2, -3, 3), random_numbers(3, -3, 3), strict=True):
        assert excess(true(a, b), true(x, y)) <= 1
        middle, radius = rounded(true(a, b))
        assert abs(true(x, y) - mpmath.mpf(middle)) <= radius


def test_what_is_not_defined():
    around = Number(0, 5)
    for function in (fixed_point.log, fixed_point.sqrt, lambda a: exactly(1) / a):
        with pytest.raises(NotEnclosed):
            function(around)
    assert rounded(fixed_point.UNKNOWN)[1] == np.inf


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
        FineFunction(graph, [p]),
        jax.jit(lambda x: evaluate(graph, x, [p])),
    )
    for x in rng.uniform(0.2, 1.5, (20, 2)):
        expected = np.asarray(entangled(jnp.asarray(x), p))
        np.testing.assert_allclose(numbers(x), expected, rtol=1e-13, atol=1e-15)
        exact = fine([exactly(each) for each in x])
        np.testing.assert_allclose([rounded(each)[0] for each in exact], expected, rtol=1e-13, atol=1e-15)
        held = enclosed(ball(jnp.asarray(x), 1e-9))
        away = [abs(real(e.middle) - float(c)) for e, c in zip(exact, held.center, strict=True)]
        assert np.all([a <= r for a, r in zip(away, np.asarray(held.radius), strict=True)])
        assert np.all(np.asarray(held.radius) < 1e-7)


def test_equal_expressions_are_one_atom_and_zeros_are_none():
    def twice(x):
        return jnp.stack([jnp.sin(x[0] - x[1]) * x[1], x[1] * jnp.sin(x[0] - x[1]), 0 * x[0] + 2 * x[1] - x[1] * 2])

    levels = graph_of(twice, jnp.zeros(2)).varying
    assert [[(kind.name, kind.count) for kind in level.kinds] for level in levels.levels] == [
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
    rate = FineFunction(graph_of(lambda x: pendulum(x[:, None])[:, 0], jnp.zeros(2)), [])
    columns = FineFunction(graph_of(pendulum, jnp.zeros((2, 3))), [])
    height = FineFunction(graph_of(lambda x: jnp.stack([x[0], x[1]]), jnp.zeros(2)), [])
    h, x = exactly(1 / 32), [exactly(2), exactly(0)]
    for _ in range(66):
        x = step_from(rate, columns, x, h).at(h)
    end, time = crossing(step_from(rate, columns, x, h), height, exactly(1 / 64))
    time = time + exactly(66 / 32)
    assert excess(time, mpmath.ellipk(mpmath.sin(1) ** 2)) <= 1 and real(time.radius) < 1e-24
    assert excess(end[1], -2 * mpmath.sin(1)) <= 1 and real(end[1].radius) < 1e-24
