"""The script `orbitador.py`: its numbers beside an independent reference, and its sentences for numbers made up here."""

import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import orbitador as reproduce
import pytest
from numpy.testing import assert_allclose
from orbitador_defects import Defects, defects, Drift, Impact, Violation
from orbitador_page import PARAMS, PERIODS, RADIUS, START, STEPS, TAU, walker
from orbitador_tables import defect_sentences
from orbitador_tube import (
    ABSCISSA,
    Borders,
    DEFINITIONS,
    EVERY,
    field,
    lambda_sums,
    LOGARITHMIC,
    RADIAL,
    READINGS,
    Tubes,
    with_borders,
)

import hyjax as hj
from hyjax.certify import published_radius, radial_quotient

# The sum over the period i0 = 4 (independent reference: another program, in NumPy), to the digits known.
SUMS = {
    RADIAL: (-3010.24, 0.01),
    "pair (x, 0.99 x)": (-3010.0, 0.1),
    "pair (x, 1.01 x)": (-3010.5, 0.1),
    "pair (x, 0)": (-3002.3, 0.1),
    "pair (x, -x)": (-3022.4, 0.1),
    "pair (x, 2 x)": (-3042.6, 0.1),
    "pair of consecutive states": (1500.9, 0.1),
    LOGARITHMIC: (217_821, 1),
    "logarithmic norm, 1-norm": (391_493, 1),
    "logarithmic norm, maximum norm": (393_243, 1),
    ABSCISSA: (193_688, 1),
    "trace of J": (0, 1e-9),
    "least eigenvalue of (J + J')/2": (-217_524, 1),
}
# Of the published formula, by reading of w: the radii at 0, T ... 5T, and -m+ and M-.
BORDERS = {
    "w/2": ([0.0010, 0.0016, 0.0023, 0.0033, 0.0046, 0.0063], 0.1926),
    "w": ([0.0010, 0.0020, 0.0032, 0.0046, 0.0065, 0.0090], 0.1892),
    "sqrt(2) w": ([0.0010, 0.0025, 0.0040, 0.0059, 0.0084, 0.0117], 0.1860),
    "2 w": ([0.0010, 0.0032, 0.0053, 0.0079, 0.0112, 0.0156], 0.1812),
}


# The numbers


@pytest.fixture(scope="module")
def found():
    """By the published formula; in place of the other tubes there is that of the page."""
    tube, borders, last = with_borders(published_radius)
    page = jax.tree.map(lambda leaf: leaf[list(READINGS).index("w")], tube)
    return Tubes(page, {"published": borders}, page, last, page)


@pytest.mark.slow
def test_borders_by_the_readings_of_w(found):
    assert found.impacts.tolist() == [99_223, 293_347, 487_484, 681_613, 875_742]
    borders = found.borders["published"]
    assert list(borders) == list(READINGS)
    for name, (radii, edge) in BORDERS.items():
        assert_allclose(borders[name].radii, radii, atol=6e-5)
        assert_allclose([-borders[name].lowest_upper, borders[name].highest_lower], edge, atol=6e-5)
    assert not any(each.inside for each in borders.values())


@pytest.mark.slow
def test_sums_of_lambda(found):
    sums = lambda_sums(found.last)
    assert list(sums) == list(DEFINITIONS) == list(SUMS)
    for name, (value, digit) in SUMS.items():
        assert abs(sums[name] - value) <= 0.6 * digit, name
    # The largest real part of an eigenvalue, in closed form, is that of the Jacobian.
    jacobians = jax.vmap(jax.jacfwd(field))(jnp.asarray(found.last[::10_000]))
    numbers = np.max(np.linalg.eigvals(np.asarray(jacobians)).real, axis=1)
    assert_allclose(numbers, np.sqrt(np.cos(found.last[::10_000, 0] - 0.009)), rtol=1e-12)
    positive, negative = found.positive_and_negative
    assert_allclose([positive, negative, 3 * positive + negative], [17_301, -20_311, 31_592], atol=0.6)


@pytest.mark.slow
def test_impact_violation_and_drift(found):
    """D3, D4 and D5; each to the digits of the reference."""
    rest = defects(found)
    assert_allclose(float(rest.orbit.period), 3.88246375285, atol=6e-12)
    assert_allclose(rest.impact, [2.609, 2.248, 0.0355, 0.896], atol=5.1e-4)
    assert_allclose(rest.violation.reached, [0.00604, 0.0091], rtol=0.01)
    assert max(rest.violation.doubled) < rest.violation.reached[0]
    assert_allclose([rest.speed, rest.shift], [0.348, 36.03], rtol=1e-3)
    assert [each[1:3] for each in rest.drifts] == [(16, 19), (20, 25), (35, 43)]
    assert [each.undisturbed for each in rest.drifts] == [161, 207, 364]


# What is said of them


@pytest.fixture
def made_up():
    """Tubes of 685 steps, a row each, and numbers of our own."""
    short = hj.certify.euler_tube(
        walker, jnp.asarray(START), PARAMS, tau=TAU, steps=PERIODS * STEPS // EVERY, radius=RADIUS, osl=radial_quotient(),
        formula=published_radius, every=1, max_jumps=10,
    )  # fmt: skip
    steps = jnp.full(10, -1).at[:3].set(jnp.array([5, 5 + STEPS, 5 + 2 * STEPS]))
    short = dataclasses.replace(short, jump_steps=steps, jumps=jnp.array(3), jump_states=jnp.full((10, 4), 0.25))
    borders = {
        name: Borders(np.full(PERIODS + 1, 1e-3), -edge, edge, name == "0")
        for name, edge in zip(READINGS, range(1, 6), strict=True)
    }
    found = Tubes(short, {"published": borders, "sharp": borders}, short, np.zeros((3, 4)), short)
    sums = dict(zip(DEFINITIONS, np.arange(1.0, 14.0), strict=True)) | {RADIAL: -3010.3}
    rest = Defects(
        SimpleNamespace(period=3.5), Impact(2.5, 2.25, 0.125, 0.75), Violation((0.5, 0.25), (0.0625, 0.03125), (0.1, 0.2)),
        0.5, (Drift(0.0125, 10, 20, 30),), 12.5,
    )  # fmt: skip
    return found, sums, rest


@pytest.fixture
def without_runs(monkeypatch, made_up):
    found, sums, rest = made_up
    monkeypatch.setattr(reproduce, "tubes", lambda: found)
    monkeypatch.setattr(reproduce, "lambda_sums", lambda states: sums)
    monkeypatch.setattr(reproduce, "defects", lambda found: rest)
    return sums


@pytest.mark.medium
def test_tables_and_picture(script, without_runs):
    ran = script("orbitador", "--plot", "tube.png")
    assert ran.returncode == 0, ran.stderr
    text = " ".join(ran.stdout.split())
    assert "194129 194129, 194129 Reproduced, with cos(2 phi1)" in text and "at the steps 5, 194134, 388263" in text
    assert "-3010 -3010.30 Reproduced by the radial quotient" in text
    assert "-0.1856 -2.0000 Approximately only: -2.0000 for b = w/2" in text
    assert "Not reproduced. It holds by the published formula for b = 0" in text
    for words in (
        "at least 11 a period",
        "norm 2.500 (the",
        "up to 0.50000 from",
        "0.0125: 10, 20, 30",
        "12.50 w = 1.25e-03",
    ):
        assert words in text
    (figure,) = ran.figures.values()
    assert [ax.get_ylabel() for ax in figure.axes] == [r"$\phi_1$ (rad)", "radius of the tube"]
    assert len(figure.axes[1].lines) == 2

    without_runs[RADIAL] = -2900.0
    assert "Not reproduced by the radial quotient" in " ".join(script("orbitador").stdout.split())


@pytest.mark.medium
def test_json(script, without_runs):
    ran = script("orbitador", "--json")
    record = json.loads(ran.stdout)
    assert record["D3"] == {"saltation": 2.5, "reset": 2.25, "spread": 0.125, "jump": 0.75}
    assert record["D5"] == [{"radius": 0.0125, "faster": 10, "slower": 20, "undisturbed": 30}]
    assert record["sum_of_lambda"][RADIAL] == -3010.3 and record["D1_least_sum_in_any_norm"] == 11
    assert len(record["sum_of_lambda_by_period"]) == PERIODS and record["largest_phi_1"] == 0.25


def test_sentence_of_contraction(made_up):
    """Three times the positive sum and the negative: a growth of the radius by the root of its exponential."""
    found, sums, rest = made_up
    positive, negative = found.positive_and_negative
    growth = np.exp(TAU * (3 * positive + negative) / 2)
    assert f"a growth by {growth:.3f} a period" in defect_sentences(found, sums, rest)["D2"]
