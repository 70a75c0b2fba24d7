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
from hyjax.models import simplest_walker as walker

attracting = importlib.import_module("hyjax.certify.attracting")


@pytest.fixture(scope="module")
def gait():
    params = walker.Params()
    return hj.periodic_orbit(walker.system, walker.guess(params), params, sequence=walker.sequence)


def conditions_near(orbit, size=1e-4):
    """What is proved of a small set about the orbit, and the ratio of its image."""
    images = PieceImages(ReturnMap(orbit, steps=32, orders=12), 1, 8, 2)
    directions = attracting._around(8)
    polygon = from_supports(directions, np.full(8, size))
    reached = images.mapped(polygon, polygon.cover(1, 8), directions)
    return reached.conditions, reached.ratio


def with_field(orbit, field):
    """The orbit of the walker, taken for one of another vector field."""
    mode = dataclasses.replace(orbit.system.modes["swing"], vector_field=field)
    system = hj.HybridSystem({"swing": mode}, orbit.system.transitions)
    return dataclasses.replace(orbit, system=system)


@pytest.mark.exhaustive
def test_another_field_is_not_proved(gait):
    def reversed_field(t, x, p):
        return -walker.swing(t, x, p)

    conditions, _ = conditions_near(with_field(gait, reversed_field))
    assert not np.any(conditions["every state crosses the guard's surface"])

    def tilted(t, x, p):
        """Another orbit, farther away than the set is large."""
        return walker.swing(t, x, p) + jnp.array([0.0, 1e-4, 0.0, 0.0])

    conditions, ratio = conditions_near(with_field(gait, tilted))
    assert all(np.all(each) for each in conditions.values()) and ratio > 1
    # The true one, by the same program.
    _, ratio = conditions_near(with_field(gait, walker.swing))
    assert ratio < 0.7


@pytest.mark.exhaustive
def test_a_tube_that_is_too_narrow_is_not_proved(gait, monkeypatch):
    """Picard's box is taken without enlarging it; half of it holds no flow either."""
    monkeypatch.setattr(step, "ENLARGED", 0)
    conditions, _ = conditions_near(gait)
    assert not np.any(conditions["a box holds the flow of every step"])
