"""Taylor models against values in 60 digits at random points: no value may leave its enclosure, and enclosures are narrow."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from hyjax._testing import (
    add,
    ball,
    basis,
    enclosure,
    flow_coefficients,
    functions,
    graph_of,
    multiply,
    scale,
    subtract,
    TaylorModel,
)

mpmath.mp.dps = 60
COUNT = 40


def random_models(seed, spread, degree=3):
    rng = np.random.default_rng(seed)
    form = basis(2, degree)
    coefficients = rng.normal(size=(form.size, COUNT)) * spread
    coefficients[0] = rng.uniform(0.6, 2.0, COUNT) * rng.choice([-1, 1], COUNT)
    radius = 10.0 ** rng.uniform(-16, -3, COUNT) * spread
    return TaylorModel(jnp.asarray(coefficients), jnp.asarray(radius), form)


def exact(model, s, error):
    """In mpmath: the polynomial at `s` plus `error` times the radius, for each entry."""
    values = []
    for k in range(COUNT):
        total = mpmath.mpf(float(model.radius[k])) * mpmath.mpf(error)
        for exponents, c in zip(model.basis.exponents, np.asarray(model.coefficients[:, k]), strict=True):
            total += (
                mpmath.mpf(float(c)) * mpmath.mpf(s[0]) ** int(exponents[0]) * mpmath.mpf(s[1]) ** int(exponents[1])
            )
        values.append(total)
    return values


def excess(result, s, values):
    """The largest |value - polynomial| / radius; must be at most 1."""
    flat = exact(TaylorModel(result.coefficients, jnp.zeros_like(result.radius), result.basis), s, 0.0)
    return max(
        float(abs(v - p) / mpmath.mpf(float(r)))
        for v, p, r in zip(values, flat, np.asarray(result.radius), strict=True)
    )


UNARY = {
    "sin": (lambda a: functions.sin_cos(a)[0], mpmath.sin),
    "cos": (lambda a: functions.sin_cos(a)[1], mpmath.cos),
    "exp": (functions.exp, mpmath.exp),
    "atan": (functions.atan, mpmath.atan),
    "reciprocal": (functions.reciprocal, lambda x: 1 / x),
    "sqrt": (lambda a: functions.sqrt(functions.absolute(a)), lambda x: mpmath.sqrt(abs(x))),
    "log": (lambda a: functions.log(functions.absolute(a)), lambda x: mpmath.log(abs(x))),
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("degree", [0, 3])
def test_functions_hold_their_values(name, degree):
    enclosed, true = UNARY[name]
    run = jax.jit(enclosed)
    for seed, spread in enumerate([0.03, 1e-3, 1e-8]):
        model = random_models(seed, spread, degree)
        result = run(model)
        rng = np.random.default_rng(100 + seed)
        for s in [(1.0, -1.0), (0.0, 0.0), tuple(rng.uniform(-1, 1, 2))]:
            for error in (-1.0, 1.0, float(rng.uniform(-1, 1))):
                assert excess(result, s, [true(v) for v in exact(model, s, error)]) <= 1
        # Narrow: what is left out is of second order in the spread of ten coefficients, as those of high degree are as large as
        # the others, or of first order for a ball; beside the radius of the argument, and rounding.
        allowed = 40 * (12 * spread) ** min(degree + 1, 2) + 12 * np.asarray(model.radius) + 1e-13
        assert np.all(np.asarray(result.radius) <= allowed)


BINARY = {"add": add, "subtract": subtract, "multiply": multiply}


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_holds_its_values(name):
    true = {"add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y}[name]
    run = jax.jit(BINARY[name])
    for seed, spread in enumerate([1.0, 1e-5]):
        a, b = random_models(seed, spread, 2), random_models(50 + seed, spread, 2)
        result = run(a, b)
        rng = np.random.default_rng(7 + seed)
        for _ in range(4):
            s, (e, f) = tuple(rng.uniform(-1, 1, 2)), rng.choice([-1.0, 1.0], 2)
            values = [true(x, y) for x, y in zip(exact(a, s, e), exact(b, s, f), strict=True)]
            assert excess(result, s, values) <= 1


def test_harness_detects_a_wrong_enclosure():
    model = random_models(3, 0.03, 2)
    result = functions.exp(model)
    wrong = TaylorModel(result.coefficients, result.radius * 1e-4, result.basis)
    assert excess(wrong, (1.0, 1.0), [mpmath.exp(v) for v in exact(model, (1.0, 1.0), 1.0)]) > 1


def test_functions_that_are_not_defined_have_an_infinite_radius():
    across = ball(jnp.array([0.0, 1e-3, -0.5]), jnp.array([0.1, 0.1, 0.1]))
    assert np.all(np.isinf(functions.reciprocal(across).radius[:2])) and np.isfinite(
        functions.reciprocal(across).radius[2]
    )
    for function in (functions.sqrt, functions.log):
        assert np.all(np.isinf(function(across).radius))


def composite(x):
    r = jnp.sqrt(x @ x)
    return jnp.stack(
        [jnp.where(r > 0.1, jnp.tanh(x[0]) * x[1] ** 3, 0.0), jnp.arctan2(x[1], r), jnp.maximum(x[0], x[1])]
    )


def test_a_function_of_jax_is_enclosed_by_its_jaxpr():
    rng = np.random.default_rng(0)
    box = ball(jnp.array([0.7, -0.4]), jnp.array([0.01, 0.02]))
    result = jax.jit(lambda box: enclosure(composite, box))(box)
    points = np.asarray(box.center) + rng.uniform(-1, 1, (2000, 2)) * np.asarray(box.radius)
    values = np.asarray(jax.vmap(composite)(jnp.asarray(points)))
    assert np.all(np.abs(values - np.asarray(result.center)) <= np.asarray(result.radius) + 1e-15)
    # Of first order in the box, and not much wider than the values are.
    assert np.all(np.asarray(result.radius) < 4 * np.ptp(values, axis=0))


@pytest.mark.parametrize(
    "function", [lambda x: jnp.linalg.solve(jnp.eye(2) + x, x), lambda x: jnp.argmax(x), jnp.cumprod]
)
def test_a_primitive_without_an_enclosure_is_named(function):
    with pytest.raises(ValueError, match=r"primitive '[a-z_]+' has no enclosure"):
        enclosure(function, ball(jnp.array([0.7, -0.4])))


def test_taylor_coefficients_are_those_of_closed_forms():
    """x' = x^2: x0 / (1 - x0 t); y' = sqrt y: (sqrt y0 + t/2)^2; z' = cos z: gd(t + c); w' = 1/w: w^2 = w0^2 + 2t."""

    def field(x):
        return jnp.stack([x[0] ** 2, jnp.sqrt(x[1]), jnp.cos(x[2]), 1 / x[3], jnp.exp(-x[4]), jnp.arctan(x[5])])

    start = [0.7, 1.3, 0.4, 0.9, 0.2, 0.5]
    graph = graph_of(field, jnp.zeros(6))
    run = jax.jit(lambda x: flow_coefficients(graph, x, [], 12))
    series = run(ball(jnp.array(start)))
    x0, y0, z0, w0, u0, v0 = (mpmath.mpf(each) for each in start)
    shift = mpmath.asinh(mpmath.tan(z0))
    forms = [
        lambda t: x0 / (1 - x0 * t),
        lambda t: (mpmath.sqrt(y0) + t / 2) ** 2,
        lambda t: mpmath.atan(mpmath.sinh(t + shift)),
        lambda t: mpmath.sqrt(w0**2 + 2 * t),
        lambda t: mpmath.log(mpmath.exp(u0) + t),
    ]
    for i, form in enumerate(forms):
        for n, true in enumerate(mpmath.taylor(form, 0, 12)):
            center, radius = float(series.coefficients[n, 0, i]), float(series.radius[n, i])
            assert abs(true - mpmath.mpf(center)) <= radius + mpmath.mpf(10) ** -40, (i, n)
            assert radius <= 1e-12 * (1 + abs(center))
    # v' = atan v: v'' = v' / (1 + v^2).
    rate = mpmath.atan(v0)
    assert abs(rate / (1 + v0**2) / 2 - mpmath.mpf(float(series.coefficients[2, 0, 5]))) <= float(series.radius[2, 5])


def test_products_with_numbers_and_shapes():
    a = random_models(1, 0.1, 2)
    assert scale(a, 2.0).coefficients.shape == a.coefficients.shape
    outer = multiply(a[:3][:, None], a[:2][None])
    assert outer.shape == (3, 2) and np.allclose(outer.coefficients[:, 1, 0], multiply(a[1], a[0]).coefficients)
