"""Elementary functions with rigorous radii, against Arb's intervals of 51 digits.

Exact values are independent; a test that no enclosure misses them is one that finds misses when radii are divided by 64.
"""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elementary_cases import apart, everywhere, FUNCTIONS, HALF_PI, INF, missed, NAN, ordinary, SUBNORMAL
from enclosures import misses
from flint import arb, ctx

from hyjax._testing import elementary, OLDER_EMITTERS, outward_rounding as rounding

COUNT = 20_000


@ft.cache
def compiled(name):
    return jax.jit(FUNCTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_enclosure_misses(name):
    a = everywhere(name, COUNT, np.random.default_rng(1))
    assert not missed(name, a, apart(compiled(name), jnp.asarray(a)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_divided_radii_are_found_to_miss(name):
    """The largest errors are between a thirtieth and a quarter of the radii: at a sixty-fourth many enclosures miss."""
    a = ordinary(name, COUNT, np.random.default_rng(3))[-2000:]
    padded = jnp.asarray(np.resize(a, COUNT))
    pairs = [(value[:2000], radius[:2000]) for value, radius in apart(compiled(name), padded)]
    assert len(missed(name, a, pairs, divisor=64.0)) > 200


# log2 of radius / |value|: the largest and the median over the ordinary arguments, as the functions' documentation states.
TIGHT = {
    "sin cos": (-49.4, -49.4), "exp": (-49.9, -49.9), "log": (-48.8, -50.9), "sqrt": (-49.4, -49.4),
    "reciprocal": (-50.9, -50.9), "atan": (-48.4, -50.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_radii_are_tight(name):
    a = ordinary(name, COUNT, np.random.default_rng(4))
    for value, radius in apart(compiled(name), jnp.asarray(a)):
        value, radius = np.abs(value), np.asarray(radius)
        # TINY is no more than a thousandth of the radius from here on.
        some = value > 1e-271
        bits = np.log2(radius[some] / value[some])
        largest, median = TIGHT[name]
        # One in 10^9 of the arguments lies at a threshold: none of these.
        assert np.max(bits) < largest and np.median(bits) < median
        assert np.all(radius[~some] < 1e-284)


def test_undefined_and_infinite_arguments():
    """Infinite radii, never NaN; the limits at infinity where there are any."""
    undefined = {
        "sin cos": [INF, -INF, NAN], "exp": [INF, NAN, 709.9, 1e300], "log": [0.0, -0.0, -1.0, *SUBNORMAL, INF, -INF, NAN],
        "sqrt": [-1.0, -1e-300, INF, -INF, NAN], "reciprocal": [0.0, -0.0, *SUBNORMAL, NAN], "atan": [NAN],
    }  # fmt: skip
    assert undefined.keys() == FUNCTIONS.keys()
    for name, arguments in undefined.items():
        for value, radius in apart(compiled(name), jnp.asarray(np.resize(arguments, COUNT))):
            assert np.all(radius == INF) and np.all(np.isfinite(value)), name
    limits = {
        "exp": [(-INF, 0)], "atan": [(INF, HALF_PI), (-INF, -HALF_PI)], "reciprocal": [(INF, 0), (-INF, 0)],
        "sqrt": [(0.0, 0), (-0.0, 0)],
    }  # fmt: skip
    for name, known in limits.items():
        for argument, limit in known:
            ((value, radius),) = apart(compiled(name), jnp.full(COUNT, argument))
            # The float nearest to pi differs from it by 1.3e-16.
            assert abs(value[0] - limit) <= radius[0] + 2e-16 * abs(limit) and radius[0] < 2e-14, (name, argument)
    far = jnp.full(COUNT, 6381956970095103 * 2.0**797)
    assert [float(each[0]) for each in compiled("sin cos")(far)] == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="float64, not float32"):
        elementary.exp(jnp.ones(3, jnp.float32))


@pytest.mark.parametrize("fused", [False, True])
def test_within_a_larger_program(fused):
    """The argument is computed in the same program and used further, in kernels of either generation of XLA's emitters.

    The program's argument is not one number there, so the exact one is that of exact arithmetic, and the radius is wider by the
    rounding of a b + c, times 32 as `rounding` states. Also under `vmap`, and of several axes.
    """

    @ft.partial(jax.jit, compiler_options=dict.fromkeys(OLDER_EMITTERS, fused))
    @ft.partial(jax.vmap, in_axes=(0, 0, None))
    def program(a, b, c):
        m, product = a * b + c, a * 3.7
        sine, sine_radius, cosine, cosine_radius = elementary.sin_cos(m)
        exp, exp_radius = elementary.exp(product)
        log, log_radius = elementary.log(m * m + 0.1 * product)
        used = m * m + sine * cosine + product - exp + 3 * log
        return (sine, sine_radius), (cosine, cosine_radius), (exp, exp_radius), (log, log_radius), used

    rng = np.random.default_rng(5)
    a, b, c = rng.uniform(1, 9, (50, 40)), rng.uniform(-5, 5, (50, 40)), rng.uniform(-2, 2, 40)
    *pairs, used = program(*map(jnp.asarray, (a, b, c)))
    assert np.all(np.isfinite(used))
    c = np.broadcast_to(c, a.shape)
    m, u = a * b + c, 2.0**-53
    of_log = m * m + 0.37 * a
    deviations = 32 * u * np.array(
        [(np.abs(a * b) + np.abs(m)), np.abs(a * b) + np.abs(m), 3.7 * a * np.exp(3.7 * a),
         (2 * np.abs(m) * (np.abs(a * b) + np.abs(m)) + 2 * m * m + a) / of_log]
    )  # fmt: skip
    wanted = [
        lambda a, b, c: (a * b + c).sin(),
        lambda a, b, c: (a * b + c).cos(),
        lambda a, b, c: (a * arb(3.7)).exp(),
        lambda a, b, c: ((a * b + c) ** 2 + arb(0.1) * arb(3.7) * a).log(),
    ]
    for exact, (value, radius), deviation in zip(wanted, pairs, deviations, strict=True):
        assert value.shape == a.shape
        assert not misses(exact, (a, b, c), value, np.asarray(radius) + deviation).size


@pytest.mark.medium
def test_of_any_shape_and_of_constants():
    """Also of constants, which the compiler evaluates itself."""
    a = np.linspace(0.1, 0.9, 6)
    for name, function in FUNCTIONS.items():
        for shape in ((), (2, 3), (0,)):
            some = np.resize(a, shape)
            folded = jax.jit(lambda some=some, function=function: function(jnp.asarray(some)))
            assert not missed(name, some.ravel(), [(np.ravel(v), np.ravel(r)) for v, r in apart(folded)])
            assert all(each.shape == shape for each in function(jnp.asarray(some)))


def test_a_wrong_reduction_or_polynomial_is_found(monkeypatch):
    """The second part of pi/2 without its last bit, at the zeros; a coefficient that is off by 1e-4."""
    a = np.arange(1, 2000) * HALF_PI + np.linspace(0, 0.8, 1999) * (np.arange(1999) % 2)
    run = lambda: apart(jax.jit(lambda a: elementary.sin_cos.__wrapped__(a)), jnp.asarray(a))
    assert not missed("sin cos", a, run())
    first, second, third = elementary._HALF_PI
    monkeypatch.setattr(elementary, "_HALF_PI", (first, second - 2.0**-66, third))
    assert missed("sin cos", a, run())
    monkeypatch.undo()
    wrong = list(elementary._SIN)
    wrong[5] *= 1 + 1e-4
    monkeypatch.setattr(elementary, "_SIN", tuple(wrong))
    assert missed("sin cos", a, run())


def test_constants_of_the_reductions():
    """Short enough for exact products, and of the accuracy that the bounds assume."""
    before, ctx.prec = ctx.prec, 300
    try:
        for parts, whole, bits, rest in (
            (elementary._HALF_PI, arb.pi() / 2, 33, 1.1e-37),
            (elementary._LN2, arb(2).log(), 42, 2e-31),
        ):
            assert abs(sum(map(arb, parts), arb(0)) - whole) < rest
            for part in parts[:-1]:
                fraction, _ = np.frexp(part)
                assert fraction * 2.0**bits == np.round(fraction * 2.0**bits)
        tangents = [*map(arb, elementary._TANGENTS)]
        for tangent, (high, low) in zip(tangents, elementary._ANGLES, strict=False):
            assert abs(tangent.atan() - arb(high) - arb(low)) < 2e-33
        assert abs(sum(map(arb, elementary._ANGLES[4]), arb(0)) - arb.pi() / 2) < 2e-33
        for j, threshold in enumerate(elementary._THRESHOLDS):
            # At a threshold both neighbours have |t| = tan(pi/16), to the rounding of the constants.
            tan = (arb.pi() / 16).tan()
            assert abs((arb(threshold) - tangents[j]) / (1 + arb(threshold) * tangents[j]) - tan) < 1e-15
            assert abs(tan - arb(elementary._THRESHOLDS[0])) < 1e-15
    finally:
        ctx.prec = before


def test_start_of_the_square_root():
    """|1 - a y^2| over a period of the start's error, which is two octaves; and at the ends of the range."""
    a, bound = np.concatenate([np.linspace(1, 4, 100_000), [1e-305, 5e-306, rounding.LARGEST]]), 0.094
    y = (elementary._START_BITS - (a.view(np.int64) >> 1)).view(np.float64)
    h = 1 - (a * y) * y
    assert np.max(np.abs(h)) < bound
    series = lambda h: 1 + h * sum(c * h**i for i, c in enumerate(elementary._BINOMIAL))
    for h in (-bound, bound):
        before, ctx.prec = ctx.prec, 200
        exact = (arb(1) - arb(h)).log() * (arb(1) / 2 - 1)
        assert abs(exact.exp() - arb(series(h))) < 1e-15
        ctx.prec = before


def test_bounds_of_sums():
    """`up` covers the sum of 1000 terms in the least favourable order."""
    terms = np.full(1000, 1 / 3)
    total = np.float64(0)
    for each in terms:
        total = np.nextafter(total + each, 0)
    assert float(rounding.up(jnp.asarray(total), 1000 // 8)) >= 1000 * (1 / 3)
    assert rounding.up(jnp.asarray(INF)) == INF and rounding.up(jnp.asarray(0.0)) > 0
