"""Mechanical work of walkers: the balance of energy, SciPy's integrator, and an optimum at a limit along the whole arc."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import bhounsule_walker, powered_compass_gait as compass

DRIVEN = compass.Params(controller=compass.ConstantTorque(0.02), damping=0.03)


def hip_power(t, x, p):
    """Of motor, spring and damper."""
    return compass.hip_torque(t, x, p) * (x[3] - x[2])


def energy(x, p):
    """Kinetic and potential energy of the legs and the hip, without the spring, from the positions of their masses."""

    def masses(q):
        up = lambda angle: jnp.stack([-jnp.sin(angle), jnp.cos(angle)])
        hip = p.leg_length * up(q[0])
        return hip - p.com * up(q[0]), hip, hip - p.com * up(q[1])

    weights = p.leg_mass, p.hip_mass, p.leg_mass
    places, rates = jax.jvp(masses, (x[:2],), (x[2:],))
    kinetic = sum(m / 2 * rate @ rate for m, rate in zip(weights, rates, strict=True)) + p.inertia / 2 * x[2:] @ x[2:]
    return kinetic + sum(m * p.gravity * place[1] for m, place in zip(weights, places, strict=True))


def dense(field, x, period, quantities, n=20001):
    """The values of quantities along a flow, `(times, values)`, by SciPy's integrator of order 8."""
    flow = scipy.integrate.solve_ivp(field, (0, period), x, "DOP853", rtol=1e-13, atol=1e-14, dense_output=True)
    times = np.linspace(0, period, n)
    return times, np.asarray(jax.vmap(quantities)(jnp.asarray(flow.sol(times).T)))


@pytest.mark.exhaustive
def test_balance_of_energy():
    """Of the powered compass gait with motor, damper and spring: positive less negative work is the integral of the power, and
    the energy gained in the swing."""
    gait = hj.periodic_orbit(compass.system, compass.guess(DRIVEN), DRIVEN, sequence=compass.sequence)
    names = hj.objectives.positive_work, hj.objectives.negative_work, hj.objectives.integral
    positive, negative, whole = eqx.filter_jit(lambda gait: [name(hip_power)(gait, gait.params) for name in names])(
        gait
    )
    assert positive > 1e-3 and negative > 1e-3
    # Differences of energies of order 1.
    assert_allclose(positive - negative, whole, rtol=0, atol=1e-14)
    assert_allclose(positive - negative, energy(gait.before[0], DRIVEN) - energy(gait.x, DRIVEN), rtol=0, atol=1e-14)
    # SciPy's interpolant is of order 7, and Simpson's rule over kinks of second order.
    field = jax.jit(lambda t, x: compass.swing(t, x, DRIVEN))
    times, powers = dense(field, gait.x, gait.period, lambda x: hip_power(0.0, x, DRIVEN))
    assert_allclose(positive, scipy.integrate.simpson(np.maximum(powers, 0), x=times), rtol=0, atol=1e-9)


@pytest.mark.exhaustive
def test_cost_of_transport():
    """Of Bhounsule's walker, in four modes, by SciPy: work of the torque and of the push-off over weight and distance."""
    params = bhounsule_walker.Params()
    gait = hj.periodic_orbit(
        bhounsule_walker.system, bhounsule_walker.guess(params), params, sequence=bhounsule_walker.sequence
    )
    cost = hj.objectives.cost_of_transport(
        bhounsule_walker.power, bhounsule_walker.travel, bhounsule_walker.weight, negative=0.5,
        impulsive=bhounsule_walker.impulsive_work,
    )  # fmt: skip
    found = eqx.filter_jit(lambda gait: cost(gait, gait.params))(gait)
    nodes = np.asarray(bhounsule_walker.torques(params))
    torque = lambda t: jnp.interp(t, jnp.linspace(0, params.step_time, 5), jnp.asarray(nodes))

    def power_at(x):
        return torque(x[4]) * (x[3] - x[2])

    @jax.jit
    def field(t, x):
        return jnp.append(compass.move(x[:4], torque(x[4]), params), 1.0)

    times, powers = dense(field, gait.x, gait.period, power_at)
    simpson = lambda values: scipy.integrate.simpson(values, x=times)
    pushed = compass.push_off_work(gait.x[0] - gait.x[1], params)
    work = simpson(np.maximum(powers, 0)) + 0.5 * simpson(np.maximum(-powers, 0)) + pushed
    assert simpson(np.maximum(powers, 0)) > 0
    # The weight is 2 and the step 1/2. SciPy steps over the torque's kinks with an error below its tolerance of 1e-10.
    assert_allclose(found, work / (2 * 2 * np.sin((gait.x[0] - gait.x[1]) / 2)), rtol=0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_an_optimum_at_a_power_limit():
    """The push-off, spring and centre of mass of the cheapest compass gait at a speed, and the same where the power of the spring
    may not exceed a limit anywhere in the swing."""
    params = compass.Params()
    gait = hj.periodic_orbit(compass.system, compass.guess(params), params, sequence=compass.sequence)
    speed = hj.Constraint(hj.objectives.speed(compass.travel), equals=0.21)
    limited = lambda limit: hj.optimize(
        compass.cost_of_transport, compass.system, gait, where=lambda p: (p.push_off, p.stiffness, p.com),
        constraints=(speed, hj.Constraint(hj.objectives.largest(hip_power), at_most=limit)),
        bounds=[(0.05, 0.3), (0.0, 0.5), (0.4, 0.6)],
    )  # fmt: skip
    free, found = limited(1.0), limited(0.003)
    assert found.result == free.result == hj.RESULTS.successful
    assert not bool(free.active[-1]) and bool(found.active[-1]) and float(jnp.abs(found.multipliers[-1])) > 0.1
    # The optimum without the limit takes thirteen times the power, and a third of the work.
    assert hj.objectives.largest(hip_power)(free.orbit, free.params) > 0.03 and found.value > 2 * free.value
    field = jax.jit(lambda t, x: compass.swing(t, x, found.params))
    _, powers = dense(field, found.orbit.x, found.orbit.period, lambda x: hip_power(0.0, x, found.params))
    # Between samples 1e-4 apart the power exceeds the largest of them by less than 1e-10.
    assert_allclose(np.max(powers), 0.003, rtol=0, atol=1e-10)
    assert powers[0] < 0.0025 and powers[-1] < 0.0025
