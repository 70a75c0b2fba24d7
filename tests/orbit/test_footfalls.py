"""Footfalls and names of gaits, from the touchdowns and lift-offs of published gaits and from made-up ones."""

import json
import pathlib
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import Footfalls, footfalls_of

GAITS = json.loads((pathlib.Path(__file__).parents[1] / "gaits_reference.json").read_text())
LEGS = {"L": "left", "R": "right"}
PAWS = {"BL": "back_left", "FL": "front_left", "BR": "back_right", "FR": "front_right"}


def orbit_with(stances, period=2.5, strides=1):
    """What footfalls need of an orbit with the stances of legs, `{leg: (touchdown, lift-off)}` in fractions of the period."""
    cuts = sorted({0.0, 1.0} | {each % 1 for stance in stances.values() for each in np.ravel(stance)})
    middles = (np.array(cuts[1:]) + cuts[:-1]) / 2
    inside = lambda t, a, b: (t - a) % 1 < (b - a) % 1
    flags = [
        [float(any(inside(t, *each) for each in np.reshape(s, (-1, 2)))) for s in stances.values()] for t in middles
    ]
    held = tuple(f"{leg}_stands" for leg in stances)
    mode = SimpleNamespace(coordinates=("y", *held), held=held)
    arcs = len(middles) // strides
    states = np.concatenate([np.zeros((len(middles), 1)), flags], axis=1).reshape(strides, arcs, -1)
    return SimpleNamespace(
        impact_times=jnp.asarray(cuts[1:]) * period, period=jnp.asarray(period), strides=strides,
        mode_names=("gait",) * arcs, system=SimpleNamespace(mode=lambda name: mode),
        arc_ends=tuple(states[:, k] for k in range(arcs)),
    )  # fmt: skip


PUBLISHED = {"W1 #107": "walk", "R1 #50": "run", "PK_20_2 #267": "pronk", "BD1_20_2_BE #50": "bound"}


@pytest.mark.parametrize("name, gait", PUBLISHED.items())
def test_footfalls_of_published_gaits(name, gait):
    times = {key: float(value) for key, value in GAITS[name]["variables"].items()}
    legs = LEGS if "tL_TD" in times else PAWS
    ends = {leg: np.array([times[f"t{leg}_TD"], times[f"t{leg}_LO"]]) / times["T"] for leg in legs}
    found = footfalls_of(orbit_with({legs[leg]: stance for leg, stance in ends.items()}), None)
    assert found.name == gait and found.legs == tuple(legs.values())
    duties = [(lift - land) % 1 for land, lift in ends.values()]
    # Sums of a few fractions of the period.
    assert_allclose(found.duty_factors, duties, rtol=1e-13)
    assert_allclose([each[0, 0] for each in found.stances], [land for land, _ in ends.values()], rtol=1e-13)
    assert gait in str(found)


def paws(bl, fl, br, fr, duty):
    return {name: (t, t + duty) for name, t in zip(PAWS.values(), (bl, fl, br, fr), strict=True)}


MADE_UP = [
    ({"left": (0.1, 0.3), "right": (0.12, 0.3)}, "hop"),
    ({"left": (0.1, 0.3), "right": (0.35, 0.6)}, "skip"),
    ({"left": (0.1, 0.6), "right": (0.6, 1.1)}, "walk"),
    ({"left": (0.1, 0.59), "right": (0.6, 1.09)}, "run"),
    ({"left": (0.1, 0.7)}, "hop"),
    ({"left": (0.1, 0.7), "right": (0.0, 1.0 - 1e-12)}, "skip"),
    (paws(0.9, 0.9, 0.4, 0.4, 0.4), "pace"),
    (paws(0.9, 0.4, 0.4, 0.9, 0.4), "trot"),
    (paws(0.0, 0.25, 0.5, 0.75, 0.6), "walk"),
    (paws(0.0, 0.25, 0.5, 0.75, 0.3), "run"),
    (paws(0.0, 0.5, 0.1, 0.6, 0.2), "gallop"),
    (paws(0.0, 0.1, 0.4, 0.6, 0.2), "gallop"),
    (paws(0.0, 0.4, 0.0, 0.55, 0.2), "half-bound"),
    (paws(0.0, 0.3, 0.5, 0.3, 0.2), "half-bound"),
    # Neighbours are within a sixteenth, and front legs of the two pairs are not.
    (paws(0.0, 0.06, 0.06, 0.11, 0.2), "bound"),
    # The diagonal of one side is not within a sixteenth.
    (paws(0.0, 0.55, 0.45, 0.02, 0.3), "run"),
    (paws(0.0, 0.05, 0.03, 0.01, 0.2), "pronk"),
    (paws(0.0, 0.5, 0.03, 0.5, 0.2), "bound"),
    ({"a": (0.0, 0.5), "b": (0.5, 0.9), "c": (0.0, 0.5), "d": (0.5, 0.9)}, ""),
    # Two passes through a run are a run; a run and a hop are no gait with a name.
    ({"left": [(0.0, 0.1), (0.5, 0.6)], "right": [(0.25, 0.35), (0.75, 0.85)]}, "run"),
    ({"left": [(0.0, 0.1), (0.5, 0.6)], "right": (0.25, 0.35)}, ""),
    # Unequal strides: both of a run, from whichever leg; a run and then a skip; two landings in one stride, none in the other.
    ({"left": [(0.05, 0.1), (0.61, 0.7)], "right": [(0.33, 0.4), (0.83, 0.9)]}, "run"),
    ({"left": [(0.33, 0.4), (0.83, 0.9)], "right": [(0.05, 0.1), (0.61, 0.7)]}, "run"),
    ({"left": [(0.05, 0.1), (0.55, 0.6)], "right": [(0.3, 0.4), (0.65, 0.75)]}, ""),
    ({"left": [(0.05, 0.1), (0.55, 0.6)], "right": [(0.06, 0.07), (0.08, 0.09)]}, ""),
    # Pairs of a quadruped, seen from the side.
    ({"back": (0.0, 0.3), "front": (0.5, 0.8)}, "bound"),
    ({"front": (0.0, 0.3), "hind": (0.02, 0.3)}, "pronk"),
]


@pytest.mark.parametrize("stances, gait", MADE_UP)
def test_names_of_gaits(stances, gait):
    assert footfalls_of(orbit_with(stances), None).name == gait


def test_stances_across_the_start_and_over_strides():
    for strides in (1, 3):
        found = footfalls_of(orbit_with({"left": (0.75, 1.25), "right": (0.25, 0.75)}, strides=strides), None)
        assert_allclose(found.stances[0], [(0.75, 0.5)])
        assert_allclose(found.stances[1], [(0.25, 0.5)])


def test_legs_that_never_lift_or_land():
    found = footfalls_of(orbit_with({"left": (0.0, 0.0), "right": (0.2, 0.4)}), None)
    assert found.stances[0].shape == (0, 2) and found.duty_factors[0] == 0 and np.isnan(found.phases).all()
    held = orbit_with({"left": (0.2, 0.4)})
    held.arc_ends = tuple(map(np.ones_like, held.arc_ends))
    found = footfalls_of(held, None)
    assert_allclose(found.stances[0], [(0.0, 1.0)])
    assert found.name == "" and np.isnan(found.phases[0])
    assert Footfalls((), ()).name == ""


def test_legs_by_modes_and_misuse():
    from hyjax.models import rimless_wheel as wheel

    params = wheel.Params()
    orbit = hj.periodic_orbit(wheel.step, wheel.guess(params), params)
    for legs in ({"spoke": ("stance",)}, {"spoke": "stance"}):
        assert_allclose(orbit.footfalls(legs).stances[0], [(0.0, 1.0)])
    with pytest.raises(ValueError, match="which legs stand is not held"):
        orbit.footfalls()
    with pytest.raises(ValueError, match="there is no 'spoke'"):
        orbit.footfalls(("spoke",))
    with pytest.raises(ValueError, match="there is no 'flight'"):
        orbit.footfalls({"spoke": ("flight",)})
