"""Sine and cosine, together and alone, against 40 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import sincos


def near_zeros():
    """The floats nearest to multiples of pi/2, where the reduction cancels all but the last digits."""
    k = np.unique(np.random.default_rng(1).integers(-600_000, 600_000, 500))
    with mpmath.workdps(40):
        return np.array([float(int(each) * mpmath.pi / 2) for each in k])


ANGLES = {
    "reduced": np.random.default_rng(0).uniform(-0.8, 0.8, 1000),
    "a few turns": np.random.default_rng(0).uniform(-10, 10, 1000),
    "up to 1e6": np.random.default_rng(0).uniform(-1e6, 1e6, 1000),
    "tiny": 10 ** np.random.default_rng(0).uniform(-300, 0, 200),
    "near the zeros": near_zeros(),
}


@pytest.mark.parametrize("functions", [sincos, lambda x: (hj.fast.sin(x), hj.fast.cos(x))], ids=["together", "alone"])
@pytest.mark.parametrize("where", ANGLES)
def test_to_the_last_bits(where, functions):
    """Relative to each value, however small: two units of its last place, of which half is the rounding of the result."""
    x = ANGLES[where]
    with mpmath.workdps(60):
        for got, exact in zip(functions(jnp.asarray(x)), (mpmath.sin, mpmath.cos), strict=True):
            values = [exact(mpmath.mpf(float(each))) for each in x]
            units = [
                float(abs(float(g) - v) / float(np.spacing(abs(float(v))))) for g, v in zip(got, values, strict=True)
            ]
            assert max(units) <= 2


def test_signs_and_special_angles():
    s, c = sincos(jnp.array([0.0, -0.0, jnp.nan, jnp.inf]))
    assert np.array_equal(s[:2], [0.0, 0.0])
    assert np.array_equal(c[:2], [1.0, 1.0])
    assert np.all(np.isnan(np.stack([s[2:], c[2:]])))
    assert np.array_equal(hj.fast.sin(jnp.array([0.0, -0.0])), [0.0, 0.0]) and hj.fast.cos(jnp.array(-0.0)) == 1
    assert np.all(np.isnan(np.stack([f(jnp.array([jnp.nan, jnp.inf])) for f in (hj.fast.sin, hj.fast.cos)])))


def test_derivatives_of_every_order():
    x = jnp.linspace(-7, 7, 31)
    in_turn = (jnp.sin, jnp.cos, lambda x: -jnp.sin(x), lambda x: -jnp.cos(x), jnp.sin)
    for start, function in ((0, lambda x: sincos(x)[0]), (0, hj.fast.sin), (1, hj.fast.cos)):
        for order, exact in enumerate(in_turn[start:][:4]):
            derivative = function
            for _ in range(order):
                derivative = jax.grad(derivative)
            assert_allclose(jax.vmap(derivative)(x), exact(x), rtol=0, atol=5e-16)


def test_numbers_and_lists_of_numbers(unchecked):
    assert float(hj.fast.sin(0.5)) == float(hj.fast.sin(jnp.array(0.5)))
    assert_allclose(hj.fast.cos([0.0, 1.0]), np.cos([0.0, 1.0]), rtol=3e-16)
    assert_allclose(hj.fast.sin(2), np.sin(2), rtol=1e-7)


def test_single_precision_is_that_of_jax():
    x = jnp.linspace(-100, 100, 101, dtype=jnp.float32)
    s, c = sincos(x)
    assert s.dtype == c.dtype == jnp.float32
    for found, function in ((s, jnp.sin), (hj.fast.sin(x), jnp.sin), (c, jnp.cos), (hj.fast.cos(x), jnp.cos)):
        assert_allclose(found, function(x), rtol=0, atol=0)
