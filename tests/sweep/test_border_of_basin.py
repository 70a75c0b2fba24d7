"""The border of a basin and the stable manifold of the saddle on it."""

import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax.models import simplest_walker as walker


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
