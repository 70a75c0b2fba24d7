"""The Riccati equation and the regulator around periodic orbits: SciPy, a closed form with gradients, a closed loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from systems import ROLLED

import hyjax as hj
from hyjax.models import simplest_walker, vibrating_table

RESULTS = hj.RESULTS

PARAMS = vibrating_table.Params()
PERIOD = 2 * np.pi / 10.0


@pytest.fixture(scope="module")
def table():
    """The unstable orbit of the ball on the vibrating table, with negative phase of the impact."""
    a, g, half = 0.05, 9.81, PERIOD / 2
    ago = np.arccos((1 - 0.8) / (1 + 0.8) * g * half / (a * 10)) / 10
    y = -a * np.sin(10 * ago) + g * half * ago - g * ago**2 / 2
    guess = jnp.array([y, g * half - g * ago - a * 10])
    return hj.periodic_orbit(
        hj.ReturnMap(vibrating_table.system, sequence=vibrating_table.sequence, integrator=ROLLED), guess, PARAMS
    )


FORCE = {
    "where": lambda p: p.gravity,
    "state_cost": np.array([[1.0, 0.2], [0.2, 0.5]]),
    "control_cost": 0.1 * jnp.eye(1),
}


@pytest.mark.medium
def test_periodic_solution_against_scipy(table):
    """The unstable orbit under a vertical force: 20 periods backward from zero with SciPy."""
    assert float(table.spectral_radius) > 2
    s = hj.control.riccati(table, **FORCE)
    assert s.result == RESULTS.successful and s.multipliers is not None
    end, v = float(table.jump_times[0, 0]), float(table.arc_ends[0][0, 1])
    accel = 0.05 * 100 * np.sin(10 * end) - 9.81
    xi = np.array([[-0.8, 0.0], [1.8 * accel / v, -0.8]])
    a, b, q = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0], [-1.0]]), FORCE["state_cost"]

    def rate(_, z):
        p = z.reshape(2, 2)
        return (a.T @ p + p @ a - p @ b @ b.T @ p / 0.1 + q).ravel()

    back = lambda p, duration: solve_ivp(rate, (0, duration), p.ravel(), rtol=1e-12, atol=1e-13, method="DOP853")
    p = np.zeros((2, 2))
    for _ in range(20):
        p = xi.T @ back(p, PERIOD - end).y[:, -1].reshape(2, 2) @ xi
        p = back(p, end).y[:, -1].reshape(2, 2)
    assert_allclose(s.cost, p, rtol=1e-10)
    assert_allclose(s.cost_starts[0], p, rtol=1e-10)
    assert np.max(np.abs(s.multipliers)) < 0.5


@pytest.mark.slow
def test_the_short_gait_walks_under_torque(walker):
    """The unstable gait of the walker, by the slope at all times, with a free phase: it converges with its largest multiplier."""
    orbit = walker["short_0.009"]
    regulator = hj.control.regulator(orbit, where=lambda p: p.slope, transverse=True)
    assert orbit.spectral_radius > 3 and regulator.result == RESULTS.successful and regulator.multipliers is not None
    flow = simplest_walker.system.mode("swing").vector_field(jnp.zeros(()), orbit.x, orbit.params)
    assert np.max(np.abs(regulator.cost @ flow)) < 1e-12
    start = simplest_walker.after_strike(orbit.params, orbit.x[0] + 1e-3, orbit.x[1])
    loop = regulator.simulate(start, t1=10.5 * orbit.period, max_jumps=12, integrator=ROLLED)
    assert loop.result == RESULTS.successful and int(loop.trajectory.jumps) == 10
    away = np.max(np.abs(np.asarray(loop.trajectory.x_starts[:11, :4] - orbit.x)), axis=1)
    # The other multipliers are at most 0.6 times the largest, and 0.6^8 = 0.02; the deviation is 3e-9 at least, far above the
    # error of the reference.
    assert_allclose(away[8] / away[7], np.max(np.abs(regulator.multipliers)), rtol=0.02)
    predicted = (start - orbit.x) @ regulator.cost @ (start - orbit.x)
    assert_allclose(loop.cost, predicted, rtol=1e-3)
    late = np.abs(np.asarray(loop.trajectory.end_times[9]) - 10 * np.asarray(orbit.period))
    assert late > 1e-5


@pytest.mark.medium
def test_an_orbit_that_no_control_stabilizes(table):
    """The coefficient of restitution does not act on the flow."""
    s = hj.control.riccati(table, where=lambda p: p.restitution, throw=False)
    assert s.result == RESULTS.not_stabilized and np.all(np.isnan(s.cost))


# A neuron that charges and fires: the scalar Riccati equation, in closed form.
FIRING = hj.HybridSystem(
    {"charge": hj.Mode(lambda t, x, p: p["drive"] - p["leak"] * x + p["current"], ("v",))},
    (hj.Transition("charge", "charge", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x),),
)
DRIVE, Q, R, TIMES = 2.0, 2.0, 0.5, (0.3, 0.5)


def neuron_regulator(leak):
    """P just after a firing, and the gain at two times after it."""
    params = {"drive": jnp.array(DRIVE), "leak": leak, "current": 0 * leak}
    orbit = hj.periodic_orbit(hj.ReturnMap(FIRING, sequence=("charge",), integrator=ROLLED), jnp.zeros(1), params)
    costs = {"where": lambda p: p["current"], "state_cost": Q * jnp.eye(1), "control_cost": R * jnp.eye(1)}
    regulator = hj.control.regulator(orbit, **costs)
    return jnp.stack([regulator.cost[0, 0], *(regulator.gain(t, mode="charge")[0, 0] for t in TIMES)])


def neuron_in_closed_form(leak):
    """Backward in time, (P - p+) / (P - p-) decays at the rate 2 w, and at the firing P is multiplied by the saltation matrix's
    square: P is the positive root of a quadratic equation."""
    w, firing = jnp.sqrt(leak**2 + Q / R), DRIVE / (DRIVE - leak)
    period = jnp.log(firing) / leak
    above, below, xi, fall = R * (w - leak), -R * (w + leak), firing**2, jnp.exp(-2 * w * period)
    a, c = xi * (1 - fall), (1 - fall) * above * below
    b = fall * (above + xi * below) - below - xi * above
    p = (-b + jnp.sqrt(b**2 - 4 * a * c)) / (2 * a)
    parts = [(xi * p - above) / (xi * p - below) * jnp.exp(-2 * w * (period - t)) for t in TIMES]
    return jnp.stack([p, *((above - part * below) / (1 - part) / R for part in parts)])


@pytest.mark.slow
def test_gradients_of_the_periodic_solution():
    """Through the orbit, its period, the periodic solution and the gains at times, by the leak: forward mode, reverse mode,
    central differences, and the derivative of the closed form."""
    mix = jnp.array([1.0, -2.0, 0.5])
    mixed = lambda leak: mix @ neuron_regulator(leak)

    @jax.jit
    @jax.vmap
    def found(leak):
        values, by_leak = jax.jvp(neuron_regulator, (leak,), (jnp.ones_like(leak),))
        return values, by_leak, jax.grad(mixed)(leak)

    h = 1e-5
    leaks = jnp.array([0.8 - h, 0.8, 0.8 + h])
    values, forward, backward = (np.asarray(each) for each in found(leaks))
    known, slope = jax.vmap(neuron_in_closed_form)(leaks), jax.jacfwd(neuron_in_closed_form)(leaks[1])
    # Tolerances of the steps are 1e-14, and 32 polynomials of degree 5 on the arc leave 1e-11 of the gain.
    assert_allclose(values, known, rtol=1e-10)
    assert_allclose(forward[1], slope, rtol=1e-9)
    assert_allclose(backward, forward @ mix, rtol=1e-12)
    # The step's square of third derivatives, and rounding over the step.
    assert_allclose((values[2] - values[0]) / (2 * h), forward[1], rtol=1e-8)
