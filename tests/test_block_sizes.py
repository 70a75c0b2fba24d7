"""Batches in blocks as wide as an accelerator needs, on whatever device runs the tests: against closed forms."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sweep_case import a_and_c, orbit, Params, sequence, system

import hyjax as hj
from hyjax._sweep.batches import BatchMap

WIDTH = 1 << 15


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_strides_in_wide_blocks(dtype):
    """One block and a part of the next; the map is a quadratic polynomial, evaluated in numpy to the last digits."""
    with jax.enable_x64(dtype == "float64"):
        integrator = hj.Integrator() if dtype == "float64" else hj.Integrator(rtol=1e-5, atol=1e-5)

        def stride(params, x):
            taken = hj.stride(system, jnp.stack([x, 0 * x]), params, sequence=sequence, integrator=integrator)
            return taken.x, taken.result._value

        starts = np.linspace(0.05, 0.95, WIDTH + 1000).astype(dtype)
        after, result = BatchMap(stride, Params(3.2), WIDTH, WIDTH)(starts)
    assert after.dtype == dtype and np.all(result == int(hj.RESULTS.successful._value))
    assert_allclose(after[:, 0], 3.2 * starts * (1 - starts), rtol=8 * np.finfo(dtype).eps)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_sweep_in_wide_blocks(monkeypatch):
    monkeypatch.setattr("hyjax._sweep.sweep.BatchMap", ft.partial(BatchMap, width=WIDTH))
    grid = np.linspace(1.5, 3.7, 250), np.linspace(-0.12, 0.2, 150)
    found = hj.sweep(system, orbit(), where=a_and_c, values=grid)
    good = found["result"].values == 0
    assert good.mean() > 0.9
    a, c = found["a"].values[:, None], found["c"].values[None]
    with np.errstate(invalid="ignore"):
        x = (a - 1 + np.sqrt((a - 1) ** 2 + 4 * a * c)) / (2 * a)
    # Near a fold the orbit is as sensitive as 1 / (1 - multiplier).
    condition = 1 / np.abs(1 - found["multipliers_real"].values[..., 0])
    assert np.all((np.abs(found["x"].values[..., 0] - x) < 1e-13 * (1 + condition))[good])
