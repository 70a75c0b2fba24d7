"""Certificates of systems that are driven with a period: oscillators with impacts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax.models import duffing_impact_oscillator, linear_impact_oscillator


def orbit_of(model):
    params = model.Params()
    return hj.periodic_orbit(model.step, model.guess(params), params)


@pytest.mark.slow
def test_the_linear_oscillator_with_impacts_attracts():
    """Its phase is a coordinate, in which the closing guard is affine: two coordinates of the section are left."""
    orbit = orbit_of(linear_impact_oscillator)
    proof = hj.certify.attracting(orbit, radius=1e-2, facets=16, rings=2, orders=8)
    assert proof.proved and proof.converges and proof.section.names == ("x", "x_rate")
    assert np.max(np.abs(orbit.multipliers)) < proof.ratio < 0.61
    # Strides from the corners come nearer by the ratio, in the coordinates of the certificate, up to the second order.
    starts = jax.vmap(lambda z: proof.start(orbit.params, *z))(jnp.asarray(proof.vertices))
    strides = jax.vmap(lambda x: orbit.step(x, orbit.params).impacts[-1].x[:2])(starts)
    ends = (np.asarray(strides) - proof.center) @ np.linalg.inv(proof.axes).T
    assert np.max(np.linalg.norm(ends, axis=1)) < proof.ratio * np.max(np.linalg.norm(proof.polygon, axis=1))


@pytest.mark.slow
def test_an_oscillator_with_a_moving_wall_attracts():
    """The closing guard reads the time alone: the section is at one time of the period."""
    orbit = orbit_of(duffing_impact_oscillator)
    proof = hj.certify.attracting(orbit, radius=1e-2, orders=8)
    assert proof.section.names == ("x", "x_rate") and proof.section.strobe
    assert proof.proved and proof.converges and proof.ratio < 0.65
    assert any("repeat themselves after the period" in each for each in proof.assumptions)
