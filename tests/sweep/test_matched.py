"""Attractors over a parameter, with the numbers that they keep, and the shares of initial states."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from systems import CLOCK
from test_continuation import mapping

import hyjax as hj

# Attractors 1 and -1 and the border e between them.
TILTED = mapping(lambda x, p: x + (x - p["e"]) * (1 - x**2) / 2, 1)
# An odd map, whose two chaotic attractors are the mirror images of each other until they merge at r = 3 sqrt(3) / 2.
ODD = mapping(lambda x, p: p["r"] * x - x**3, 1)


def starts(n, low, high):
    x = low + (np.arange(n) + 0.5) * (high - low) / n
    return jnp.stack([x, np.zeros(n)], axis=1)


def over(system, name, values, x0, **given):
    params = {name: jnp.array(1.0)}
    step = hj.ReturnMap(system, sequence=("run",), integrator=CLOCK)
    return hj.attractor(step, x0, params, where=lambda p: p[name], values=values, progress=False, **given)


def test_shares_of_two_attractors():
    # Not in their order: numbers go from neighbour to neighbour.
    values = np.array([0.6, -0.8, -0.2, 0.2, -0.4])
    found = over(TILTED, "e", values, starts(100, -1, 1), n_strides=300, keep=8)
    assert found["attractor"].dims == ("e", "start")
    # The starts below e, of 100 that are equally far apart, none at e itself.
    assert_allclose(found["share"].sel(number=1), (1 + values) / 2)
    assert_allclose(found["share"].sum("number"), 1)
    assert_allclose(found["share_error"], np.sqrt(found["share"] * (1 - found["share"]) / 100))
    assert_allclose(found["x"].where(found["attractor"] == 2).mean(("start", "stride"))[:, 0], 1, atol=1e-9)
    axes = hj.plot.basin_figure(found)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["attractor 1", "attractor 2"]
    plt.close("all")


@pytest.mark.medium
def test_attractors_that_double_and_merge():
    """Fixed points, cycles and chaos keep their numbers, until both are one."""
    values = np.array([1.6, 2.05, 2.2, 2.32, 2.45, 2.55, 2.65, 2.75])
    found = over(ODD, "r", values, starts(40, -0.9, 0.9), n_strides=600, keep=128)
    numbers, chaotic = found["attractor"].values, found["lyapunov"].values > 0.02
    # Starts of both signs: where the maps of both halves differ, so do the numbers.
    assert np.all((numbers[:6] == numbers[:6, :1]) | (numbers[:6] == 3 - numbers[:6, :1]))
    assert_allclose(found["share"].sel(number=[1, 2])[:6], 0.5)
    assert_array_equal(chaotic.all(axis=1)[[0, 1, 5, 6]], [False, False, True, True])
    assert found["share"].sizes["number"] == 3
    assert np.all(np.sort(found["share"].sel(number=[1, 2])[6:], axis=1) == [0, 1])
    # The attractor on the side of positive x keeps its number.
    x = found["x"].values[..., 0]
    assert len({int(n) for n in numbers[:6][x[:6, :, 0] > 0]}) == 1


def test_starts_without_an_attractor():
    found = over(
        mapping(lambda x, p: p["r"] * x**2, 1), "r", np.array([0.5, 1.0]), starts(10, 0, 2), n_strides=60, keep=4
    )
    assert_array_equal(found["attractor"] == 0, found["result"] != 0)
    assert_allclose(found["share"], [[0, 1], [0.5, 0.5]])
