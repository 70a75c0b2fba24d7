"""Values that the tangents of a batch share: the same numbers and derivatives, evaluated once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax._testing import core_jaxpr, fusion_FEW as FEW, stored, stored_for_tangents, stored_with_tangents

POINTS = jnp.linspace(-2, 2, FEW + 3)


def cubed(x):
    return stored_for_tangents(x) ** 3


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("order", range(4))
def test_derivatives_are_those_of_the_value(order, batched):
    """Derivatives of x^3, by forward and by reverse mode; exact but for the rounding of a product."""
    expected = [POINTS**3, 3 * POINTS**2, 6 * POINTS, jnp.full_like(POINTS, 6)][order]
    for once in (jax.jacfwd, jax.grad):
        derivative = cubed
        for _ in range(order):
            derivative = once(derivative)
        each = jax.vmap(derivative)(POINTS) if batched else jnp.stack([derivative(x) for x in POINTS])
        np.testing.assert_allclose(each, expected, rtol=1e-15, atol=1e-15)


def test_values_stay_bit_for_bit():
    values = jnp.resize(jnp.array([1e-300, -1.5, -0.0, jnp.inf, -jnp.inf, jnp.nan]), FEW)
    kept, double = jax.jit(jax.vmap(lambda x: stored(x, 2 * x)))(values)
    np.testing.assert_array_equal(kept, values)
    np.testing.assert_array_equal(np.signbit(kept), np.signbit(values))
    np.testing.assert_array_equal(double, 2 * values)
    # One of two values has no batch.
    kept, one = jax.jit(jax.vmap(lambda x: stored(x, jnp.array(3.0))))(values)
    np.testing.assert_array_equal(kept, values)
    np.testing.assert_array_equal(one, np.full(FEW, 3.0))
    # Batches of batches of vectors.
    grid = jnp.arange(8.0 * FEW).reshape(2, FEW, 4)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(lambda x: stored(x)[0]))(grid), grid)


@pytest.mark.parametrize("keep", [stored, lambda x: (stored_for_tangents(x),), stored_with_tangents])
@pytest.mark.parametrize("axis", [0, 1])
def test_tangents_of_a_batch_along_any_axis(keep, axis):
    """A staged function of a batch along its second axis, differentiated from outside; exact but for rounding."""
    grid = jnp.arange(2.0 * FEW).reshape((FEW, 2) if axis == 0 else (2, FEW))

    def cubes(grid):
        return jax.vmap(jax.jit(lambda x: keep(x)[0] ** 3), in_axes=axis)(grid)

    value, tangent = jax.jvp(cubes, (grid,), (jnp.ones_like(grid),))
    expected = grid if axis == 0 else grid.T
    np.testing.assert_array_equal(value, expected**3)
    np.testing.assert_allclose(tangent, 3 * expected**2, rtol=1e-15)
    once = lambda grid: jax.jvp(cubes, (grid,), (jnp.ones_like(grid),))[1]
    _, second = jax.jvp(once, (grid,), (jnp.ones_like(grid),))
    np.testing.assert_allclose(second, 6 * expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("axis", [0, 1])
def test_sine_and_cosine_along_any_axis(dtype, axis):
    grid = jnp.arange(9 * FEW, dtype=dtype).reshape((FEW, 9) if axis == 0 else (9, FEW)) / 7
    expected = np.asarray(grid if axis == 0 else grid.T, np.float64)
    close = dict(rtol=0, atol=4 * float(jnp.finfo(dtype).eps))
    for both in (hj.fast.sincos, lambda x: (hj.fast.sin(x), hj.fast.cos(x))):
        pairs = lambda grid, both=both: jax.vmap(jax.jit(both), in_axes=axis)(grid)
        (s, c), (ds, dc) = jax.jvp(pairs, (grid,), (jnp.ones_like(grid),))
        for found, exact in ((s, np.sin), (c, np.cos), (ds, np.cos), (-dc, np.sin)):
            np.testing.assert_allclose(found, exact(expected), **close)


@pytest.mark.medium
@pytest.mark.parametrize("inner", [jax.jacfwd, jax.jacrev], ids=["forward", "reverse"])
@pytest.mark.parametrize(
    ("keep", "same"),
    [
        (lambda x: stored(x)[0], lambda x: x),
        (stored_for_tangents, lambda x: x),
        (hj.fast.sin, jnp.sin),
        (hj.fast.cos, jnp.cos),
    ],
    ids=["stored", "for tangents", "sine", "cosine"],
)
def test_within_a_scan(keep, same, inner):
    """There JAX loses the rules of custom derivatives of the second order, and differentiates the rule of batches itself."""

    def twice(x):
        return jax.lax.scan(lambda x, _: (keep(x) ** 3, None), x, length=2)[0]

    def plain(x):
        for _ in range(2):
            x = same(x) ** 3
        return x

    second = jax.jit(jax.vmap(jax.jacfwd(inner(twice))))(POINTS)
    # Some roundings of a polynomial in sine and cosine, whose terms cancel.
    np.testing.assert_allclose(second, jax.vmap(jax.jacfwd(jax.jacfwd(plain)))(POINTS), rtol=1e-13, atol=1e-14)


def pushed(x):
    """Three uses of sine and cosine, with two tangents."""

    def uses(x):
        s, c = hj.fast.sincos(x)
        return jnp.stack([s * c, s + x, c * c])

    return jax.vmap(lambda d: jax.jvp(uses, (x,), (d,)), out_axes=(None, -1))(jnp.array([1.0, 2.0]))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only on a CPU are the values stored")
def test_a_batch_reduces_the_angle_once_and_a_single_lane_stores_nothing():
    """The reduction of the angle by multiples of pi/2 rounds once an evaluation: the value has one, and all tangents one."""
    program = jax.jit(jax.vmap(pushed)).lower(POINTS).compile().as_text()
    assert program.count("round-nearest-even(") == 1
    assert "reduce" not in str(jax.make_jaxpr(pushed)(POINTS[0]))


def test_certificates_read_through_stored_values():
    """The derivative of x sin x, as of a vector field that contains a derivative, in the operations that certificates know."""
    slope = jax.jacfwd(lambda x: x * hj.fast.sin(x))
    assert "custom_vmap_call" in str(jax.make_jaxpr(slope)(POINTS[0]))
    program = core_jaxpr(slope, POINTS[0])
    assert {"sin", "cos"} < {equation.primitive.name for equation in program.eqns}
    assert "custom" not in str(program)
    (value,) = jax.core.eval_jaxpr(program.jaxpr, program.consts, POINTS[0])
    np.testing.assert_allclose(value, np.sin(POINTS[0]) + POINTS[0] * np.cos(POINTS[0]), rtol=1e-15)
