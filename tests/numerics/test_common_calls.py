"""`once`: equal operations of a function are evaluated once, without a change of values or derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from hyjax._testing import once, sincos


def heights(t, x, params):
    """Two guards that share the sine of an angle and a matrix inverse; `params` holds a function."""
    (s, _), scale = sincos(x[0]), params["by"](x[1])
    mass = jnp.array([[2 + s, scale], [scale, 3.0]])
    first = jnp.linalg.solve(mass, x)[0] + t
    (s, c), mass = sincos(x[0]), jnp.array([[2 + s, scale], [scale, 3.0]])
    return jnp.stack([first, jnp.linalg.solve(mass, x)[1] * c])


INPUTS = jnp.array(0.3), jnp.array([0.4, 0.7]), {"by": lambda v: v**2}


def test_values_and_derivatives_are_those_of_the_function():
    t, x, params = INPUTS
    assert_array_equal(once(heights)(t, x, params), heights(t, x, params))
    for derivative in (jax.jacfwd, jax.jacrev, jax.hessian):
        found = derivative(lambda x: once(heights)(t, x, params))(x)
        # The operations are the same; their order in a transposed sum is not.
        assert_allclose(found, derivative(lambda x: heights(t, x, params))(x), rtol=1e-13)
    batch = jnp.stack([x, 2 * x])
    both = jax.vmap(lambda x: once(heights)(t, x, params))(batch)
    assert_allclose(both, jnp.stack([heights(t, each, params) for each in batch]), rtol=1e-15)


def test_equal_operations_are_evaluated_once():
    t, x, params = INPUTS
    equations = lambda fn: jax.make_jaxpr(lambda x: fn(t, x, params))(x).jaxpr.eqns
    pairs = lambda fn: sum("_pair" in str(equation) for equation in equations(fn))
    assert (pairs(heights), pairs(once(heights))) == (2, 1)


def test_different_constants_are_not_equal():
    fn = once(lambda x: jnp.stack([x * 2.0, x * 3.0, x * np.float64(2.0), x + 2.0]))
    assert_array_equal(fn(jnp.array(1.5)), [3.0, 4.5, 3.0, 3.5])
