"""The boost converter: its orbit in discontinuous conduction, the flip by the gain, and the borders of the duty."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax.models import boost_converter as boost

# Reference `boost_dcm_tse`: a root for the diode's time in 24 digits, the multiplier by the chain rule.
VOLTAGE, PEAK, DIODE, IDLE = (
    24.47563220449661207853996,
    7.369230769230769,
    0.1734163736059458835,
    0.06411695972738744979,
)
MULTIPLIER, FLIP = 0.6076491059746472522454615, 0.08865706457756464745757324
BORDERS = [
    (0.1286158058865369097679164, 18.12701465534346243257532),
    (0.5977210677641424577321883, 40.38446067276073250207819),
]

STEP = hj.ReturnMap(boost.system, sequence=boost.sequence, integrator=ROLLED)


def params(**values):
    return boost.Params(**{"gain": 0.0, "reference": VOLTAGE, **values})


@pytest.fixture(scope="module")
def orbit():
    return hj.periodic_orbit(STEP, boost.guess(params()), params())


@pytest.mark.medium
def test_the_orbit(orbit):
    """Three multipliers are zero: current, elapsed time and duty are set at the tick."""
    assert_allclose(orbit.x, [VOLTAGE, 0.0, 0.0, 0.2874], rtol=0, atol=1e-11)
    assert_allclose(orbit.period, 1 / 3, rtol=1e-14)
    assert_allclose(orbit.arc_ends[0][0, 1], PEAK, rtol=1e-13)
    assert_allclose(np.diff(orbit.jump_times[0]), [DIODE, IDLE], rtol=0, atol=1e-12)
    found = np.sort(np.abs(orbit.multipliers))
    assert_allclose(found, [0, 0, 0, MULTIPLIER], rtol=0, atol=1e-12)


@pytest.mark.medium
def test_the_flip_by_the_gain():
    """The multiplier is that of the open loop less the gain times the voltage's change by the duty: -1 at the reference's
    gain."""
    at = params(gain=FLIP)
    jacobian = STEP.jacobian(boost.guess(at).at[0].set(VOLTAGE).at[3].set(0.2874), at)
    values = np.linalg.eigvals(jacobian)
    assert_allclose(np.sort(values.real), [-1, 0, 0, 0], rtol=0, atol=1e-11)
    # It is linear in the gain.
    half = STEP.jacobian(boost.guess(at).at[0].set(VOLTAGE).at[3].set(0.2874), params(gain=FLIP / 2))
    assert_allclose(np.min(np.linalg.eigvals(half).real), (MULTIPLIER - 1) / 2, rtol=0, atol=1e-11)


@pytest.mark.medium
@pytest.mark.parametrize("border", BORDERS)
def test_borders_of_discontinuous_conduction(border):
    """At either duty the coil does not idle: just inside it does, for a time that goes to zero, and just outside a run settles in
    continuous conduction, without the idle mode."""
    duty, voltage = border
    inside = 1e-3 if duty < 0.3 else -1e-3
    near = params(duty=duty + inside)
    orbit = hj.periodic_orbit(STEP, boost.guess(near).at[0].set(voltage + 70 * inside), near)
    idle = float(np.diff(orbit.jump_times[0])[1])
    assert 0 < idle < 2e-3 and abs(orbit.x[0] - voltage) < 0.1
    beyond = params(duty=duty - 5 * inside)
    run = hj.simulate(
        boost.system, boost.closed(jnp.array(voltage), jnp.array(0.0), beyond), beyond, mode="on", t1=20.0, max_jumps=400,
        integrator=ROLLED,
    )  # fmt: skip
    assert run.mode_names[-7:].count("idle") == 0
