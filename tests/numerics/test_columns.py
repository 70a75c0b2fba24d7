"""All tangents of all lanes pushed together: the same Jacobian as lane by lane, in a batch and alone, and its derivatives."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hyjax as hj
from hyjax._testing import PlainForward, with_columns, with_columns_by_lanes
from hyjax.models import simplest_walker as walker

FACTORS, POINTS = jnp.linspace(1, 2, 20), jnp.linspace(-1, 1, 60).reshape(20, 3)


def evaluated(push, factor, v):
    """Outputs of several shapes, and auxiliary ones that are not differentiated, of a function that captures `factor` and an
    integer."""
    first = jnp.asarray(factor > 0, int) - 1

    def fn(v):
        return (jnp.stack([factor * v[first] ** 2 * v[1], v[2]]), factor * v[2] ** 3), (factor > 1.5, v[0] + 1)

    return push(fn, v)


@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)], ids=["both", "points", "captured"])
def test_a_batch_has_the_same_columns(axes):
    inputs = [all_ if axis == 0 else all_[3] for all_, axis in zip((FACTORS, POINTS), axes, strict=True)]
    columns_of = lambda push: jax.vmap(lambda *each: evaluated(push, *each), in_axes=axes)(*inputs)
    of_batch, one_by_one = columns_of(with_columns_by_lanes), columns_of(with_columns)
    # Lanes are one program, and columns of a lane another: XLA rounds a product and a sum of them together or apart.
    jax.tree.map(lambda *each: assert_allclose(*each, rtol=1e-15, atol=1e-16), of_batch, one_by_one)
    (_, cube), (_, columns), (large, after) = of_batch
    lane = 7
    factor, point = (each if axis is None else each[lane] for each, axis in zip(inputs, axes, strict=True))
    assert_allclose(cube[lane], factor * point[2] ** 3, rtol=1e-15)
    assert_allclose(columns[lane], [0, 0, 3 * factor * point[2] ** 2], rtol=1e-15)
    assert large[lane] == (factor > 1.5) and after[lane] == point[0] + 1


@pytest.mark.medium
@pytest.mark.parametrize("once", [jax.jacfwd, jax.jacrev], ids=["forward", "reverse"])
def test_columns_are_differentiable(once):
    """By the point and by a captured number: the second derivatives of a x^2 y, and their derivatives."""
    entry = lambda factor, v: evaluated(with_columns_by_lanes, factor, v)[1][0][0, 0]  # 2 a x y
    by_factor, by_point = jax.vmap(once(entry, argnums=(0, 1)))(FACTORS, POINTS)
    x, y, _ = POINTS.T
    assert_allclose(by_factor, 2 * x * y, rtol=1e-15)
    assert_allclose(by_point, np.stack([2 * FACTORS * y, 2 * FACTORS * x, 0 * x], axis=1), rtol=1e-15)
    mixed = jax.vmap(once(lambda a, v: once(entry, argnums=1)(a, v)[0]))(FACTORS, POINTS)
    assert_allclose(mixed, 2 * y, rtol=1e-15)


def test_staged_columns_of_a_batch_are_differentiable():
    """The Jacobian of a v by v is a times the unit matrix, which no lane changes, and `aux` depends on nothing."""
    fn = lambda v: with_columns_by_lanes(lambda v: (2.0 * v, jnp.array(7)), v)
    (value, columns, seven), (dvalue, dcolumns, _) = jax.jvp(jax.vmap(jax.jit(fn)), (POINTS,), (jnp.ones_like(POINTS),))
    assert_array_equal(value, 2 * POINTS)
    assert_array_equal(columns, np.tile(2 * np.eye(3), (20, 1, 1)))
    assert_array_equal(seven, np.full(20, 7))
    assert_array_equal(dvalue, np.full((20, 3), 2.0))
    assert_array_equal(dcolumns, np.zeros((20, 3, 3)))


def test_neighbours_are_lanes():
    """The products of tangents have the lanes as their last axis, the tangents as their first; lane by lane it is the reverse."""

    def shapes(push):
        fn = lambda v: push(lambda v: (v[0] * v[1], None), v)[1]
        program = jax.make_jaxpr(jax.vmap(fn))(POINTS)
        return set(re.findall(r"f64\[([0-9,]+)\] = mul", str(program)))

    assert shapes(with_columns_by_lanes) == {"20", "3,20"}
    assert shapes(with_columns) == {"20", "20,3"}


@pytest.mark.medium
def test_strides_of_a_batch():
    starts = jnp.array([0.2, -0.2, 0.4, -0.016]) + 1e-3 * jnp.linspace(0, 1, 96)[:, None]
    params = walker.Params()
    integrator = hj.Integrator(rtol=1e-10, atol=1e-10, adjoint=PlainForward())

    def end(x):
        through = hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator)(x, params)
        return through.x, through.result

    strides = lambda push: jax.jit(jax.vmap(lambda x: push(end, x)[:2]))(starts)
    # To rounding: the same operations, which XLA fuses differently.
    for one, other in zip(strides(with_columns_by_lanes), strides(with_columns), strict=True):
        assert_allclose(one, other, rtol=1e-12, atol=1e-13)
