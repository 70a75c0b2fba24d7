"""The pair of sine and cosine, against 40 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

from hyjax._system.trig import sincos


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


@pytest.mark.parametrize("where", ANGLES)
def test_to_the_last_bits(where):
    """Relative to each value, however small: two units of its last place, of which half is the rounding of the result."""
    x = ANGLES[where]
    with mpmath.workdps(60):
        for got, exact in zip(sincos(jnp.asarray(x)), (mpmath.sin, mpmath.cos), strict=True):
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


def test_derivatives_of_every_order():
    x = jnp.linspace(-7, 7, 31)
    sine = lambda x: sincos(x)[0]
    for order, exact in enumerate((jnp.sin, jnp.cos, lambda x: -jnp.sin(x), lambda x: -jnp.cos(x))):
        derivative = sine
        for _ in range(order):
            derivative = jax.grad(derivative)
        assert_allclose(jax.vmap(derivative)(x), exact(x), rtol=0, atol=5e-16)


def test_single_precision_is_that_of_jax():
    x = jnp.linspace(-100, 100, 101, dtype=jnp.float32)
    s, c = sincos(x)
    assert s.dtype == c.dtype == jnp.float32
    assert_allclose(s, jnp.sin(x), rtol=0, atol=0)
    assert_allclose(c, jnp.cos(x), rtol=0, atol=0)
