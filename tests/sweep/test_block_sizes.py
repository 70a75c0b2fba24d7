"""Batches in blocks as wide as an accelerator needs, on whatever device runs the tests: against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sweep_case import Params, sequence, system

import hyjax as hj
from hyjax._testing import BatchMap

WIDTH = 1 << 15


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_strides_in_wide_blocks(dtype):
    """One block and a part of the next; the map is a quadratic polynomial, evaluated in numpy to the last digits."""
    with jax.enable_x64(dtype == "float64"):
        integrator = hj.Integrator() if dtype == "float64" else hj.Integrator(rtol=1e-5, atol=1e-5)

        def stride(params, x):
            taken = hj.ReturnMap(system, sequence=sequence, integrator=integrator)(jnp.stack([x, 0 * x]), params)
            return taken.x, taken.result._value

        starts = np.linspace(0.05, 0.95, WIDTH + 1000).astype(dtype)
        after, result = BatchMap(stride, Params(3.2), WIDTH, WIDTH)(starts)
    assert after.dtype == dtype and np.all(result == int(hj.RESULTS.successful._value))
    assert_allclose(after[:, 0], 3.2 * starts * (1 - starts), rtol=8 * np.finfo(dtype).eps)
