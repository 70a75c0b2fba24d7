"""The border of a basin: the stable manifold of the saddle on it, and its dimension."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import CLOCK, ROLLED
from test_continuation import mapping

import hyjax as hj
from hyjax._testing import _exponent
from hyjax.models import simplest_walker as walker


@pytest.mark.medium
def test_shares_and_dimension_of_a_disc():
    """z -> 2 + (z - 2)^2: the basin of 2 is a disc with the radius 1."""
    disc = mapping(lambda x, p: jnp.stack([2 + (x[0] - 2) ** 2 - x[1] ** 2, 2 * (x[0] - 2) * x[1]]), 2)
    step = hj.ReturnMap(disc, sequence=("run",), integrator=ROLLED)
    rest = hj.periodic_orbit(step, jnp.array([2.01, 0.01, 0.0]), {})
    axis = np.linspace(-1.5, 1.5, 64)
    found = hj.basin(
        step, {}, orbits=rest, axes={"x": 2 + axis, "y": axis}, max_strides=30, progress=False,
        initial=lambda p, x, y: jnp.stack([x, y, 0 * x]), closeness=1e-2,
    )  # fmt: skip
    shares = dict(zip(found.fate.values, found.share.values, strict=True))
    # A grid errs less than a random sample.
    assert_allclose(shares["orbit 1"], np.pi / 9, atol=2 * float(found.share_error[0]))
    assert_allclose(sum(shares.values()), 1)
    # A smooth border, on a grid of 64 steps: to a tenth.
    assert_allclose(found.uncertainty_exponent, 1, atol=0.1)
    assert_allclose(found.border_dimension, 2 - float(found.uncertainty_exponent))


def test_the_basin_of_the_origin():
    """x -> (x + x^3) / 2: what is near to an orbit that has no size is measured by the initial states."""
    step = hj.ReturnMap(mapping(lambda x, p: (x + x**3) / 2, 1), sequence=("run",), integrator=ROLLED)
    rest = hj.periodic_orbit(step, jnp.zeros(2), {})
    found = hj.basin(
        step, {}, orbits=rest, axes={"x": np.array([-1.1, -0.9, 0.1, 0.99, 1.01])}, max_strides=40, progress=False,
        initial=lambda p, x: jnp.stack([x, 0 * x]),
    )  # fmt: skip
    shares = dict(zip(found.fate.values, found.share.values, strict=True))
    assert_allclose(shares["orbit 1"], 3 / 5)


def test_the_exponent_of_cantors_set():
    """Outcomes that change at the ends of the gaps of Cantor's set have the exponent 1 - log 2 / log 3."""
    digits, x, outcome, open_ = (
        12,
        np.linspace(0, 1, 2**15, endpoint=False) + 1e-6,
        np.zeros(2**15, int),
        np.ones(2**15, bool),
    )
    for level in range(digits):
        x = 3 * x
        gap = open_ & (np.floor(x) == 1)
        outcome[gap] = 1 + level
        open_, x = open_ & ~gap, x - np.floor(x)
    # Distances are powers of 2 and gaps powers of 3: the share is periodic in the logarithm, within a few percent.
    assert_allclose(_exponent(outcome), 1 - np.log(2) / np.log(3), atol=0.03)
    assert np.isnan(_exponent(np.zeros((8, 8))))


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:The reset of transition")
def test_a_basin_between_the_gaps_of_cantors_set():
    """A tent of slope 3, which a state leaves at the first number over 1 and stays where it is; its sign turns until then: two
    basins, of the gaps of even and odd levels, which meet in Cantor's set."""

    def tent(x, p):
        y, out = jnp.where(x[0] < 0.5, 3 * x[0], 3 * (1 - x[0])), x[0] > 1
        return jnp.stack([jnp.where(out | (y > 1), 2.0, y), jnp.where(out, x[1], -x[1])])

    step = hj.ReturnMap(mapping(tent, 2), sequence=("run",), integrator=CLOCK)
    found = hj.basin(
        step, {}, axes={"x": (np.arange(2**13) + 0.377) / 2**13}, initial=lambda p, x: jnp.stack([x, 1 + 0 * x, 0 * x]),
        progress=False,
    )  # fmt: skip
    # Gaps of the levels 1, 3, 5, ... are 1/3 (1 + 4/9 + ...) of all.
    assert_allclose(np.sort(found.share)[-2:], [0.4, 0.6], atol=2e-3)
    # As of the function above.
    assert_allclose(found.uncertainty_exponent, 1 - np.log(2) / np.log(3), atol=0.03)


@pytest.mark.slow
def test_the_walkers_basin_ends_at_the_manifold_of_its_short_gait():
    """On one side all fall, up to the manifold; beyond, walks begin within 3e-6 and alternate with falls. The same fates were
    found by an integration in quadruple precision."""
    params = walker.Params()
    long, short = (
        hj.periodic_orbit(walker.step, walker.after_strike(params, *map(jnp.array, start)), params)
        for start in ((0.2003, -0.1998), (0.1939, -0.2039))
    )
    manifold = short.manifold("stable", length=0.04, spacing=2e-3)
    offsets = np.array([-1e-3, -1e-4, -1e-5, -1e-6, 1e-6, 3e-6])
    for theta, fates in ((0.20393736981018180, [0, 0, 0, 0, 1, 0]), (0.18393736981018180, [0, 0, 0, 0, 0, 1])):
        s = np.interp(theta, manifold.x[:, 0], manifold.s)
        for _ in range(4):
            s = s - (manifold(s)[0] - theta) / ((manifold(s + 1e-5) - manifold(s - 1e-5))[0] / 2e-5)
        rate = manifold(s)[1]
        found = hj.basin(
            walker.step, params, orbits=long, max_strides=40, progress=False, axes={"offset": offsets},
            initial=lambda p, offset, theta=theta, rate=rate: walker.after_strike(p, jnp.asarray(theta), rate + offset),
        )  # fmt: skip
        names = np.array(found.outcome.flag_meanings.split())
        assert (names[found.outcome.values] == "orbit_1").astype(int).tolist() == fates
