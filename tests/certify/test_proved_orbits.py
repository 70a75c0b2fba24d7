"""Proofs of the orbits of models, against digits by other routes: exact in the parameters that are floats."""

import json
import pathlib
from fractions import Fraction

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from reference import exact

import hyjax as hj
from hyjax._testing import krawczyk
from hyjax.models import compass_gait, duffing_impact_oscillator, piecewise, simplest_walker as walker, slip

MODELS = json.loads((pathlib.Path(__file__).parents[1] / "model_reference.json").read_text())
# The roundings of a float in each entry, and no more.
LAST_DIGITS = 3e-16


def proof(model, params, guess=None):
    guess = model.guess(params) if guess is None else guess
    proved = krawczyk(hj.periodic_orbit(model.step, guess, params))
    assert proved.proved, proved.reasons
    assert proved.unique_within == 1e-8
    for each in (proved.coordinates, proved.period, *proved.starts, *proved.ends):
        assert np.all(each.radius < LAST_DIGITS)
    return proved


def holds_eigenvalues(multipliers, values, within):
    """Whether there are as many discs as values, each value in one of them, and the discs are small."""
    apart = np.abs(multipliers.centres - np.array(values)[:, None])
    return np.all(np.any(apart <= multipliers.radii + 1e-16, axis=1)) and np.all(multipliers.radii < within)


def moved(digits, slopes, change):
    """Numbers in another parameter, to first order; the second is 1e-34."""
    return [Fraction(x) + Fraction(slope) * change for x, slope in zip(digits, slopes, strict=True)]


# Derivatives by the slope of what is before the strike, and of the period: central differences of orbits, 1e-6 apart.
LONG = ("long_0.009", (-7.29782, -8.47748, -14.59564, 0.05040), 5.34679)
SHORT = ("short_0.009", (-7.00160, -8.61194, -14.00319, -10.47184), -3.77446)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, slopes, period",
    [pytest.param(*LONG, id="stable"), pytest.param(*SHORT, id="saddle")],
)
def test_the_simplest_walker(name, slopes, period):
    record, params = exact("B_simplest_walker")[name], walker.Params(slope=0.009)
    start = walker.after_strike(params, *jnp.array([float(x) for x in record["x0"][:2]]))
    proved = proof(walker, params, start)
    assert proved.names == ("theta", "theta_rate")
    # The reference is for the decimal number.
    change = Fraction(0.009) - Fraction("0.009")
    assert np.all(proved.ends[0].contains(moved(record["x_pre_impact"], slopes, change)))
    assert np.all(proved.period.contains(moved([record["T"]], [period], change)[0]))
    values = [complex(float(re), float(im)) for re, im in zip(*list(record["eigenvalues"].values())[:2], strict=True)]
    assert holds_eigenvalues(proved.multipliers, values[:2], 1e-8)


@pytest.mark.slow
def test_the_compass_gait():
    record, params = exact("C_compass_gait"), compass_gait.Params()
    proved = proof(compass_gait, params)
    # The reference is for 3 degrees, which is pi / 60.
    change = Fraction(float(params.slope)) - Fraction("0.0523598775598298873077107230546583814")
    before = moved(record["x_pre_impact"], (-2.756677, 0.756677, -3.448578, -5.458751), change)
    assert np.all(proved.ends[0].contains(before))
    assert np.all(proved.period.contains(moved([record["T"]], [2.553897], change)[0]))
    values = [complex(float(re), float(im)) for re, im in zip(*list(record["eigenvalues"].values())[:2], strict=True)]
    # The section has the four entries of the state, which are on the surface of the strike: one more is zero.
    assert holds_eigenvalues(proved.multipliers, [*values, 0], 1e-8)


@pytest.mark.slow
def test_slip():
    record = MODELS["slip"]["flat and high"]
    found = record["orbits"][1]
    guess = jnp.array([float(x) for x in found["x0"]])
    proved = proof(slip, slip.Params(**record["params"]), guess)
    assert proved.names == ("y",)
    assert np.all(proved.state.contains(found["x0"])) and proved.period.contains(found["period"])
    assert holds_eigenvalues(proved.multipliers, [float(found["multiplier"])], 1e-8)


@pytest.mark.slow
def test_the_impact_oscillator():
    record = MODELS["duffing_impact_oscillator"]["driven, moving wall"]
    found, frequency = record["orbits"][0], record["params"]["frequency"]
    proved = proof(duffing_impact_oscillator, duffing_impact_oscillator.Params(**record["params"]))
    assert proved.period.contains(found["period"]) and "period" in proved.assumptions[-1]
    # The guard that ends a period is that of the float which is nearest to 2 pi.
    ended = Fraction(2 * np.pi) / Fraction(frequency)
    early = Fraction("6.283185307179586476925286766559005768") / Fraction(frequency) - ended
    x, x_rate = (Fraction(x) for x in found["x0"])
    assert proved.coordinates[0].contains(x - early * x_rate) and not proved.coordinates[0].contains(x)
    assert proved.coordinates[2].contains(ended)
    # At the impact the time is the phase, which does not depend on where periods begin.
    assert proved.ends[0][2].contains(found["phase"])
    values = [complex(float(re), float(im)) for re, im in found["multipliers"]]
    assert holds_eigenvalues(proved.multipliers, [*values, 0], 1e-8)


@pytest.mark.slow
def test_the_piecewise_plane():
    params, (alpha, beta, gamma) = piecewise.Params(), (1, 2, mpmath.mpf("1.5"))
    with mpmath.workdps(40):
        grown = mpmath.exp(mpmath.pi)
        end = lambda r0: grown * r0 / (1 + (grown - 1) * r0)
        level = lambda r: (gamma + beta) / beta * mpmath.log(r) - gamma / beta * mpmath.log(beta - r)
        r0 = mpmath.findroot(lambda r0: level(r0) - level(end(r0)) - alpha * mpmath.pi, 1.934)
        r1 = end(r0)
        period = mpmath.pi + mpmath.log(r0 * (beta - r1) / (r1 * (beta - r0))) / (alpha * beta)
        multiplier = (1 - r1) * (beta - r0) * (gamma + beta - r1) / ((1 - r0) * (beta - r1) * (gamma + beta - r0))
        r0, r1, period = (mpmath.nstr(mpmath.re(each), 30) for each in (r0, r1, period))
    proved = proof(piecewise, params)
    assert np.all(proved.state.contains(["0", r0])) and np.all(proved.starts[1].contains(["0", f"-{r1}"]))
    assert proved.period.contains(period)
    assert holds_eigenvalues(proved.multipliers, [float(mpmath.re(multiplier)), 0], 1e-10)
