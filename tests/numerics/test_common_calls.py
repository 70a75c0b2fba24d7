"""Equal operations of a function are evaluated once, and functions that differ in numbers together, without a change of values or
derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hyjax._testing import evaluate_alike, once, operations, sincos


def heights(t, x, params):
    """Two guards that share the sine of an angle and a matrix inverse; `params` holds a function."""
    (s, _), scale = sincos(x[0]), params["by"](x[1])
    mass = jnp.array([[2 + s, scale], [scale, 3.0]])
    first = jnp.linalg.solve(mass, x)[0] + t
    (s, c), mass = sincos(x[0]), jnp.array([[2 + s, scale], [scale, 3.0]])
    return jnp.stack([first, jnp.linalg.solve(mass, x)[1] * c])


INPUTS = jnp.array(0.3), jnp.array([0.4, 0.7]), {"by": lambda v: v**2}


@pytest.mark.medium
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


def test_what_has_no_use_is_not_evaluated():
    """An operation of which the results are not returned; one with an effect stays."""
    seen = []

    def fn(x):
        unused = jnp.sin(x)
        jax.debug.callback(seen.append, x)
        return jnp.cos(x), jnp.tan(unused)

    names = [str(each.primitive) for each in jax.make_jaxpr(once(lambda x: fn(x)[0]))(1.0).jaxpr.eqns]
    assert names == ["debug_callback", "cos"]
    assert float(jax.jit(once(lambda x: fn(x)[0]))(0.0)) == 1.0
    jax.effects_barrier()
    assert len(seen) == 1


def test_constants_that_are_equal_are_one():
    """Written at each use, as by NumPy; constants of another type or value stay apart, and so do the keys of random numbers."""
    unit = lambda k, dtype=float: np.eye(3)[k].astype(dtype)
    short = lambda x: jnp.sum(unit(0, np.float32) * x.astype(jnp.float32)).astype(float)
    fn = lambda x: jnp.stack([jnp.sum(unit(0) * x), jnp.sum(unit(0) * x), jnp.sum(unit(1) * x), short(x)])
    count = lambda fn: operations(jax.make_jaxpr(fn)(jnp.ones(3)).jaxpr)
    # A product and a sum.
    assert count(fn) - count(once(fn)) == 2
    assert_array_equal(once(fn)(jnp.arange(1.0, 4)), [1, 1, 2, 1])
    keys = jax.random.key(1), jax.random.key(2)
    drawn = lambda x: jnp.stack([x * jax.random.normal(key) for key in keys])
    assert_array_equal(once(drawn)(1.0), drawn(1.0))


def test_different_constants_are_not_equal():
    fn = once(lambda x: jnp.stack([x * 2.0, x * 3.0, x * np.float64(2.0), x + 2.0]))
    assert_array_equal(fn(jnp.array(1.5)), [3.0, 4.5, 3.0, 3.5])


@pytest.mark.medium
def test_functions_that_differ_in_numbers_are_one_batch():
    """Values and derivatives of functions that differ in literals and captured arrays, beside one of another form, against each
    by itself; a program as long for eight as for two."""
    point = lambda k, far: lambda x, p: jnp.sin(k * x[0]) * p["a"] + jnp.where(x[1] > k, far @ x, -k) + 2.0
    other = lambda x, p: x[0] ** 3
    functions = [point(float(k), jnp.array([k, 1.0])) for k in range(7)] + [other]
    functions = [functions[i] for i in (0, 7, 1, 2, 3, 4, 5, 6)]
    x, p = jnp.array([0.3, 2.5]), {"a": jnp.array(1.7)}
    ours = jax.jit(lambda x, p: evaluate_alike(functions, x, p))
    each = lambda x, p: jnp.stack([fn(x, p) for fn in functions])
    for of in (
        lambda f: f,
        jax.jacfwd,
        jax.jacrev,
        lambda f: jax.jacfwd(jax.jacrev(f)),
        lambda f: jax.jacrev(f, argnums=1),
    ):
        for found, expected in zip(jax.tree.leaves(of(ours)(x, p)), jax.tree.leaves(of(each)(x, p)), strict=True):
            assert_allclose(found, expected, rtol=1e-14, atol=1e-15)
    # Numbers that are traced, of which none is known to equal another.
    scaled = lambda s: evaluate_alike([point(k, s * jnp.ones(2)) for k in (s, 2 * s)], x, p)
    assert_allclose(
        jax.jit(jax.jacfwd(scaled))(0.4),
        jax.jacfwd(lambda s: jnp.stack([point(k, s * jnp.ones(2))(x, p) for k in (s, 2 * s)]))(0.4),
        rtol=1e-14,
    )
    length = lambda count: operations(
        jax.make_jaxpr(lambda x, p: evaluate_alike([point(float(k), jnp.array([k, 1.0])) for k in range(count)], x, p))(
            x, p
        ).jaxpr
    )
    assert length(8) <= length(2)


def test_functions_that_differ_in_a_jitted_part_are_not_alike():
    """The constants of a jitted function are not seen: such functions are evaluated by themselves."""
    parts = [jax.jit(lambda x, k=k: x @ jnp.array([1.0, k])) for k in (2.0, 5.0)]
    functions = [lambda x, part=part: 3 * part(x) for part in parts]
    assert_allclose(evaluate_alike(functions, jnp.array([1.0, 1.0])), [9.0, 18.0], rtol=1e-15)
