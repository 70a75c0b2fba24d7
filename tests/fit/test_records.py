"""Records of `examples/data`, which hyjax made with noise: their parameters are found again within the errors predicted."""

import dataclasses

import jax.numpy as jnp
import jerboa
import numpy as np
import pytest
import records

import hyjax as hj
from hyjax.models import biped_slip as biped, buck_converter as buck


def found_again(fit, names, truth):
    """The fit is right within the errors that it states, and so is the size of the residuals."""
    assert fit.result == "successful" and fit.names == names and fit.matching == (((), ()),)
    known = np.array([float(getattr(truth, name)) for name in names])
    # Three numbers of a normal distribution: beyond 3.5 deviations one time in 700; chi-square likewise.
    assert np.all(np.abs(np.asarray(fit.values) - known) < 3.5 * fit.standard_errors)
    assert abs(float(fit.chi_square) - int(fit.degrees)) < 3.5 * np.sqrt(2 * int(fit.degrees))
    # And the errors are no larger than what three parameters of such a record should have.
    assert np.all(fit.standard_errors < 0.015 * known)


@pytest.mark.medium
def test_compass_gait_from_markers():
    """Slope, mass ratio and leg length from markers on hip and feet; where the walker was at the start is not known either."""
    truth, names = records.walking, ("slope", "mu", "leg_length")
    guess = dataclasses.replace(truth, slope=jnp.array(0.045), mu=jnp.array(1.2), leg_length=jnp.array(0.92))
    fit = hj.fit(
        records.walker, records.HERE / "compass_markers.csv", guess, over=lambda p: (p.slope, p.mu, p.leg_length),
        x0=(records.after_strike, jnp.array([0.22, -1.1, -0.25])), mode="swing", observe=records.markers,
        noise=records.marker_noise,
    )  # fmt: skip
    found_again(fit, names, truth)


@pytest.mark.medium
def test_buck_converter_from_its_waveform(tmp_path):
    truth, names = records.circuit, ("resistance", "inductance", "capacitance")
    guess = dataclasses.replace(
        truth, resistance=jnp.array(22.0), inductance=jnp.array(20.0), capacitance=jnp.array(0.047)
    )

    def fit(path):
        return hj.fit(
            buck.system, path, guess, over=lambda p: (p.resistance, p.inductance, p.capacitance), mode="off",
            x0=(records.at_the_foot, jnp.array([12.0, 0.65])), noise=records.waveform_noise, max_jumps=8,
        )  # fmt: skip

    path = records.HERE / "buck_waveform.csv"
    found_again(fit(path), names, truth)
    # The units in the headings are those of the model.
    (tmp_path / "wrong.csv").write_text(path.read_text().replace("(V)", "(mV)"))
    with pytest.raises(ValueError, match="'voltage' is in mV, the system's in V"):
        fit(tmp_path / "wrong.csv")


@pytest.mark.medium
def test_buck_converter_as_it_starts(tmp_path):
    """From 9 V on, far from its orbit: a first guess that is off by 3 or 10 % switches in another order, and no row is blamed."""
    truth, names, path = records.circuit, ("resistance", "inductance", "capacitance"), tmp_path / "start.csv"
    x0, units = jnp.array([9.0, 0.3, 3.8]), ("ms", "V", "A")
    record = (records.waveform, records.waveform_noise, units, 3, records.switchings)
    records.record(path, buck.system, x0, truth, "on", 4.0, 0.05, *record)
    for off in (1.03, 1.1):
        changed = {"resistance": off, "inductance": off, "capacitance": 1 / off}
        guess = dataclasses.replace(truth, **{name: getattr(truth, name) * by for name, by in changed.items()})
        fit = hj.fit(
            buck.system, path, guess, over=lambda p: (p.resistance, p.inductance, p.capacitance), mode="on", x0=x0,
            noise=records.waveform_noise, max_jumps=8,
        )  # fmt: skip
        found_again(fit, names, truth)


@pytest.mark.slow
def test_a_periodic_hop_of_a_jerboa():
    """The gait that fits best is periodic, also in the model of the shelf, whose state has the speed in place of the energy."""
    fit = jerboa.fit_hop()
    assert fit.result == "successful" and np.nanmax(np.abs(fit.residuals[0])) < 1
    # Three times by a least squares of SciPy, of the unknown state with heavy weights on its return, on the record with one more
    # digit and the apex by its time: nearer to each other than a tenth of the errors.
    assert np.all(np.abs(fit.values - np.array([45.004, 6.49, -0.0739, 0.0028, 4.977])) < 0.1 * fit.standard_errors)
    p, (y, y_rate, left, left_rate, right, right_rate) = fit.params, fit.x0[0]
    x_rate = jerboa.speed(jerboa.FEET["flight"], fit.x0[0], p)
    x0 = jnp.stack([x_rate, y, y_rate, left, right, left_rate, right_rate, 1 + 0 * y, 0 * y])
    params = biped.Params(p.stiffness, p.swing_frequency, p.left_offset, p.right_offset)
    run = hj.simulate(
        biped.system, x0, params, mode="gait", t1=float(fit.predicted[0][-1, 0]) + 1e-9, max_jumps=8,
        integrator=jerboa.integrator,
    )  # fmt: skip
    # Landing, lift-off, lift-off, landing; flow to 1e-12, and multipliers below ten.
    np.testing.assert_allclose([e.t for e in run.events], fit.predicted[0][[0, 1, 2, 4], 0], atol=1e-9)
    np.testing.assert_allclose(run.events[-1].after, x0, atol=1e-8)
