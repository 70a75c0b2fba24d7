"""Worked examples of continuation: closed forms, and special points to the digits of another integration.

The reference (`make_hspo_reference.py`) solves for special points by Taylor series in 40 digits. Here each model's stride, at
that parameter and state, must return to it, with the multiplier that makes the point special.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import brentq

import hyjax as hj
from hyjax._testing import PlainForward, rolled, with_adjoint
from hyjax.models import bangbang, impact_microactuator, linear_impact_oscillator, piecewise

pytestmark = pytest.mark.slow

REFERENCE = json.loads((pathlib.Path(__file__).parents[1] / "hspo_reference.json").read_text())


def numbers(model, name):
    return [float(each) for each in REFERENCE[model][name]]


# Each program runs once: what counts is the time to compile it.
ROLLED = rolled(with_adjoint(hj.Integrator(), PlainForward()))


def around(model, starts, params, sequence=None):
    """Strides from a batch of starts, at parameters of a batch, and their Jacobians."""
    sequence = model.sequence if sequence is None else sequence

    def once(x, params):
        stride = hj.ReturnMap(model.system, sequence=sequence, integrator=ROLLED)(x, params)
        return stride.x, stride

    jacobians, strides = jax.jit(jax.vmap(jax.jacfwd(once, has_aux=True)))(jnp.asarray(starts), params)
    return strides, np.asarray(jacobians)


def batch(model, **columns):
    return jax.vmap(lambda values: model.Params(**values))({name: jnp.asarray(each) for name, each in columns.items()})


# piecewise


def crossing(alpha, beta, gamma):
    """Where the orbit crosses the line, from the closed form of both halves."""
    growth = np.exp(np.pi)
    after = lambda r: growth * r / (1 + (growth - 1) * r)

    def integral(r):
        return (gamma + beta) / beta * np.log(r) - gamma / beta * np.log(abs(beta - r))

    # The orbit lies between the circles, and ends nearer to the right one than it began.
    low, high = min(1, beta), max(1, beta)
    r0 = brentq(lambda r: integral(r) - integral(after(r)) - alpha * np.pi, low + 1e-9, high - 1e-9, xtol=1e-15)
    return r0, after(r0)


def test_two_halves():
    """Closed forms of the orbit, its period and its multiplier; the last is the unit circle."""
    cases = np.array([[1, 2, 1.5], [0.4, 3, 0.7], [1.3, 0.5, 2], [2, 1, 1.5]])
    crossings = [crossing(*case) if case[1] != 1 else (1.0, 1.0) for case in cases]
    alpha, beta, gamma = cases.T
    starts = np.array([[0, r0] for r0, _ in crossings])
    strides, jacobians = around(piecewise, starts, batch(piecewise, alpha=alpha, beta=beta, gamma=gamma))
    # Near the right circle the logarithm of what is left to it loses digits of the start.
    assert_allclose(strides.x, starts, rtol=1e-11, atol=1e-12)
    for k, (r0, r1) in enumerate(crossings):
        (alpha, beta, gamma), time, slope = cases[k], np.pi + np.pi / cases[k, 2], 0
        if beta == 1:
            slope = np.exp(-np.pi - alpha * np.pi / gamma)
        else:
            time = np.pi + np.log(r0 * (beta - r1) / (r1 * (beta - r0))) / (alpha * beta)
            slope = (1 - r1) * (beta - r0) * (gamma + beta - r1) / ((1 - r0) * (beta - r1) * (gamma + beta - r0))
        assert_allclose(strides.time[k], time, rtol=1e-10)
        # Along the line; across it the return is to the line, whatever the start.
        assert_allclose(jacobians[k, 1, 1], slope, rtol=1e-9)
        assert_allclose(jacobians[k, 0], 0, atol=1e-12)


# impact


def driven(params):
    """`(R, delta, rho)` of the closed form, and the impact's phase and speed at an amplitude, by its harder impact."""
    _, c, k, w, _, e = (float(each) for each in jax.tree.leaves(params))
    h = expm(np.array([[0, 1], [-k, -c]]) * 2 * np.pi / w)
    kappa = (1 - h[0, 0]) / h[0, 1]
    kappa_ = h[1, 0] + h[1, 1] * kappa
    size, lag = 1 / np.hypot(k - w**2, c * w), np.arctan2(c * w, k - w**2)
    return size, lag, (1 + e) * w / (kappa + e * kappa_), (kappa, kappa_)


def struck_at(amplitude, driving):
    """State at the phase -pi on the orbit with the harder impact, from the values of `driven`."""
    size, lag, rho, (kappa, _) = driving
    # cos psi + rho sin psi = d/(A R): the root with the impact on the way out, sin psi < 0.
    top, turn = np.hypot(1, rho), np.arctan2(rho, 1)
    psi = turn - np.arccos(min(1, 1 / (size * amplitude * top)))
    a = 1 - amplitude * size * np.cos(psi)
    # From the impact at phase lag + psi to phase pi: the deviation from the free motion, and the free motion.
    flow = expm(np.array([[0, 1], [-1, -0.1]]) * (np.pi - lag - psi))
    free = amplitude * size * np.array([np.cos(np.pi - lag), -np.sin(np.pi - lag)])
    return np.array([*(flow @ [a, kappa * a] + free), -np.pi])


@pytest.fixture(scope="module")
def struck():
    """Orbits by their start, at amplitudes from hard impacts to the fold; the last is that of the fold."""
    size, lag, rho, kappas = driven(linear_impact_oscillator.Params())
    fold = 1 / size / np.sqrt(1 + rho**2)
    amplitudes = np.array([1.0, 0.5, 0.2, 0.11, fold])
    starts = np.array([struck_at(each, (size, lag, rho, kappas)) for each in amplitudes])
    strides, jacobians = around(linear_impact_oscillator, starts, batch(linear_impact_oscillator, amplitude=amplitudes))
    return amplitudes, starts, strides, jacobians


def test_impacts_return(struck):
    _, starts, strides, _ = struck
    # At the fold the speed of impact is 0.02: errors of 1e-14 are multiplied by its inverse.
    assert_allclose(strides.x, starts, rtol=0, atol=1e-11)
    assert_allclose(strides.time, 2 * np.pi, rtol=1e-14)


def test_product_of_multipliers_does_not_know_the_drive(struck):
    jacobians = struck[3]
    areas = [np.linalg.det(each[:2, :2]) for each in jacobians]
    assert_allclose(areas, 0.8**2 * np.exp(-0.2 * np.pi), rtol=1e-9)
    assert_allclose(jacobians[:, 2, :], 0, atol=1e-15)  # the phase is known when a period ends


def test_fold_next_to_grazing(struck):
    """A = d/(R sqrt(1 + rho^2)), just below the grazing at A = d/R = 0.1."""
    amplitudes, _, _, jacobians = struck
    assert_allclose(amplitudes[-1], 0.0999707536283, rtol=1e-12)
    # Two eigenvalues of 1e2 and 1e-3: 1 comes as the difference of numbers of a hundred.
    trace = np.trace(jacobians[-1][:2, :2])
    assert_allclose(1 - trace + np.linalg.det(jacobians[-1][:2, :2]), 0, atol=1e-8)


def test_grazing_of_the_free_motion():
    """At A = 0.1 the free motion touches the wall: just below it passes, just above it is struck."""
    amplitudes = np.array([0.0999999, 0.1000001])
    starts = np.stack([0 * amplitudes, -10 * amplitudes, 0 * amplitudes - np.pi], axis=1)

    @jax.jit
    @jax.vmap
    def run(x, params):
        return hj.ReturnMap(linear_impact_oscillator.system, sequence=("before",), integrator=ROLLED)(
            x, params, throw=False
        )

    strides = run(jnp.asarray(starts), batch(linear_impact_oscillator, amplitude=amplitudes))
    np.testing.assert_array_equal(strides.result == hj.RESULTS.successful, [True, False])
    np.testing.assert_array_equal(strides.result == hj.RESULTS.unexpected_transition, [False, True])
    assert_allclose(strides.x[0], starts[0], rtol=0, atol=1e-13)


# bangbang

SYMMETRIC = ("fold, low", "fold, high", "symmetry-breaking 1", "symmetry-breaking 2")
CRITICAL = {"fold": 1, "symmetry-breaking": 1, "period-doubling": -1, "second doubling": -1}


@pytest.fixture(scope="module")
def switched():
    """From each special point once around, and, where its orbit goes twice around, once more."""
    points = {name: numbers("bangbang", name) for name in REFERENCE["bangbang"]}
    doubled = [name for name in points if name.startswith("second")]
    rows = [(frequency, x, v) for frequency, x, v in points.values()]
    for name in doubled:
        # Half-way: by SciPy, at a tolerance of which the second half of the orbit may see ten times as much.
        frequency, x, v = points[name]
        rows.append((frequency, *halfway(frequency, x, v)))
    frequencies, xs, vs = np.array(rows).T
    starts = np.stack([xs, vs, 0 * xs], axis=1)
    strides, jacobians = around(bangbang, starts, batch(bangbang, frequency=frequencies))
    return list(points), doubled, starts, strides, jacobians


def scipy_flow(field, state, duration, params):
    """The end of a flow by SciPy, at a tolerance near rounding."""
    rate = jax.jit(field)
    run = solve_ivp(lambda t, x: np.asarray(rate(t, x, params)), (0, duration), state, "DOP853", rtol=1e-13, atol=1e-13)
    return run.y[:, -1]


def halfway(frequency, x, v):
    params, half = bangbang.Params(frequency=frequency), np.pi / frequency
    middle = scipy_flow(bangbang.pull, [x, v, 0.0], half, params)
    return scipy_flow(bangbang.push, [*middle[:2], 0.0], half, params)[:2]


def test_special_points_of_bangbang(switched):
    """The stride at the reference's frequency and state returns, with a multiplier 1 or -1."""
    names, doubled, starts, strides, jacobians = switched
    for k, name in enumerate(names):
        end, jacobian = np.asarray(strides.x[k]), jacobians[k]
        if name in doubled:
            again = len(names) + doubled.index(name)
            assert_allclose(end, starts[again], rtol=0, atol=1e-9)
            end, jacobian = np.asarray(strides.x[again]), jacobians[again] @ jacobian
        # Multipliers between 1e-2 and 1e2 amplify errors of integration of 1e-12.
        assert_allclose(end, starts[k], rtol=0, atol=1e-9, err_msg=name)
        critical = CRITICAL[name.rstrip(" 12").split(",")[0]]
        multipliers = np.linalg.eigvals(jacobian)
        # A multiplier moves by 1 to 1e3 times the frequency: so 1e-8 is 1e-10 in the frequency, or less.
        assert_allclose(multipliers[np.argmin(np.abs(multipliers - critical))], critical, atol=1e-8, err_msg=name)


def test_area_and_symmetry_of_bangbang(switched):
    names, _, starts, strides, jacobians = switched
    half = np.asarray(strides.impacts[0].x)
    for k, name in enumerate(names):
        area = np.linalg.det(jacobians[k, :2, :2])
        assert_allclose(area, np.exp(-0.4 * np.pi / numbers("bangbang", name)[0]), rtol=1e-9)
        mirrored = np.max(np.abs(half[k, :2] + starts[k, :2]))
        assert mirrored < 1e-10 if name in SYMMETRIC else mirrored > 1e-2, name


# impact_microactuator


def test_impacting_orbit_of_stickslip():
    q, q_rate, phase, sticks, slips = numbers("impact_microactuator", "impacting at 0.65")
    starts = np.array([[q, q_rate, phase]])
    strides, jacobians = around(impact_microactuator, starts, batch(impact_microactuator, voltage=[0.65]))
    assert [each.x.shape[1] for each in strides.impacts] == [3, 3, 4]
    # A multiplier of -25.
    assert_allclose(strides.x, starts, rtol=0, atol=1e-12)
    assert_allclose(strides.impacts[1].t[0], sticks, rtol=1e-12)
    # What slips away is the difference of times that are 1e2 longer.
    assert_allclose(strides.time[0] - strides.impacts[1].t[0], slips, rtol=1e-9)
    assert_allclose(strides.time, np.pi / 0.92, rtol=1e-13)
    assert np.linalg.matrix_rank(jacobians[0], tol=1e-10) == 2


def test_fold_of_stickslip_without_impact():
    voltage, q, phase = numbers("impact_microactuator", "fold")
    params, start = impact_microactuator.Params(voltage=voltage), np.array([q, 0, phase])
    stride = hj.ReturnMap(impact_microactuator.system, sequence=("stick", "advance"), integrator=ROLLED)(
        jnp.asarray(start), params
    )
    assert_allclose(stride.x, start, rtol=0, atol=1e-12)

    def variations(t, x, params):
        """The flow, and a column of its derivative for each state."""
        slope = jax.jacfwd(lambda x: impact_microactuator.stick(t, x, params))(x[:3])
        return jnp.concatenate([impact_microactuator.stick(t, x[:3], params), (slope @ x[3:].reshape(3, 3)).ravel()])

    # Over half a turn of the phase: of the fixed-time map, the multipliers are the same but for 1 along the flow.
    end = scipy_flow(variations, [*start, *np.eye(3).ravel()], np.pi / 0.92, params)
    spectrum = np.linalg.eigvals(end[3:].reshape(3, 3)[:2, :2])
    assert_allclose(np.min(np.abs(spectrum - 1)), 0, atol=1e-9)


def test_grazing_of_stickslip():
    """From the stop, at rest, back to it and at rest: the field by another integrator, which knows of no stop."""
    voltage, phase = numbers("impact_microactuator", "grazing")
    end = scipy_flow(
        impact_microactuator.stick, [0.5, 0, phase], np.pi / 0.92, impact_microactuator.Params(voltage=voltage)
    )
    assert_allclose(end, [0.5, 0, phase + np.pi], rtol=0, atol=1e-11)
