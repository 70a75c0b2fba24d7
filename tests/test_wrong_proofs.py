"""What is false is not proved: other vector fields, tubes that are too narrow, sets that are too small for the disturbance."""

import dataclasses
import importlib

import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax.certify import step
from hyjax.certify.piece_images import PieceImages
from hyjax.certify.polygon import from_supports
from hyjax.certify.return_map import ReturnMap

attracting = importlib.import_module("hyjax.certify.attracting")


def decay(t, x, p):
    """Two coordinates that decay, and a clock."""
    return jnp.stack([x[0] * x[1] - x[0], -2 * x[1], jnp.ones_like(x[2])])


TICK = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))


def with_field(field):
    return hj.HybridSystem({"m": hj.Mode(field, ("x", "y", "clock"))}, (TICK,))


@pytest.fixture(scope="module")
def orbit():
    return hj.periodic_orbit(with_field(decay), jnp.array([0.1, 0.1, 0.0]), None, sequence=("m",))


def conditions_near(orbit, size=1e-4):
    """What is proved of a small set about the orbit, and the ratio of its image."""
    images = PieceImages(ReturnMap(orbit, steps=8, orders=8, reduced=True), 1, 8, 2)
    directions = attracting._around(8)
    polygon = from_supports(directions, np.full(8, size))
    reached = images.mapped(polygon, polygon.cover(1, 8), directions)
    return reached.conditions, reached.ratio


@pytest.mark.slow
def test_another_field_is_not_proved(orbit):
    """The orbit, taken for one of another field."""
    near = lambda field: conditions_near(dataclasses.replace(orbit, system=with_field(field)))
    conditions, _ = near(lambda t, x, p: -decay(t, x, p))
    assert not np.any(conditions["every state crosses the guard's surface"])
    # Its own orbit is farther away than the set is large.
    conditions, ratio = near(lambda t, x, p: decay(t, x, p) + jnp.array([3e-4, 0.0, 0.0]))
    assert all(np.all(each) for each in conditions.values()) and ratio > 1
    # The true one: 1 / e, and the second order.
    conditions, ratio = near(decay)
    assert all(np.all(each) for each in conditions.values()) and ratio < 0.37


@pytest.mark.slow
def test_a_tube_that_is_too_narrow_is_not_proved(orbit, monkeypatch):
    """Picard's box is taken without enlarging it; half of it holds no flow either."""
    monkeypatch.setattr(step, "ENLARGED", 0)
    conditions, _ = conditions_near(orbit)
    assert not np.any(conditions["a box holds the flow of every step"])
