"""The pair of sine and cosine, against 40 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

from hyjax._trig import sincos


@pytest.mark.parametrize("reach", [0.8, 10.0, 1e3, 1e6])
def test_to_the_last_bits(reach):
    x = np.random.default_rng(0).uniform(-reach, reach, 2000)
    s, c = sincos(jnp.asarray(x))
    with mpmath.workdps(40):
        exact = np.array([(float(mpmath.sin(value)), float(mpmath.cos(value))) for value in x])
    # 2 units in the last place of 1, near a zero of the one as elsewhere.
    assert_allclose(s, exact[:, 0], rtol=0, atol=4.5e-16)
    assert_allclose(c, exact[:, 1], rtol=0, atol=4.5e-16)


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
