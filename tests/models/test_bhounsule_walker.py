"""Bhounsule's walker against his digits, by the method of his program, and by a finer one; its clock and its strikes."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax import models
from hyjax.models import bhounsule_walker as walker, powered_compass_gait

# Speed, the least cost with a step of half a leg's length, and the push-off and torques where they are known: as published.
FAST, SLOW = (1.0, 0.642033730), (0.8, 0.330221223)
PUBLISHED = np.array([0.31399306, 0.89908475, 1.47450424, 1.01322396, 0.56570464, 0.1355583])
# The same by the classical Runge-Kutta method with 40 steps between nodes, as in his program, and with 400.
COSTS = {FAST: (0.6420337302535, 0.6420337300848), SLOW: (0.3302212228428, 0.3302212227402)}


@ft.partial(jax.jit, static_argnames="n")
def flow(x, drive, step_time, end, n):
    """The four angles and rates at the time `end`, by the classical Runge-Kutta method with `n` steps between nodes.

    **Arguments:** `drive`: push-off and torques. `step_time`: the time of the last node. `end`: where the last quarter ends.
    """
    params = powered_compass_gait.Params(stiffness=0.0)
    nodes = jnp.linspace(0, 1, 5) * step_time
    slopes = jnp.diff(drive[1:]) / jnp.diff(nodes)
    spacings = jnp.diff(nodes.at[4].set(end)) / n

    def step(x, at):
        j, k = at
        h = spacings[j]
        field = lambda s, x: powered_compass_gait.move(x, drive[j + 1] + slopes[j] * (k + s) * h, params)
        k1 = field(0.0, x)
        k2 = field(0.5, x + h / 2 * k1)
        k3 = field(0.5, x + h / 2 * k2)
        k4 = field(1.0, x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    quarter, number = np.divmod(np.arange(4 * n), n)
    return jax.lax.scan(step, x, (jnp.asarray(quarter), jnp.asarray(number, float)))[0]


def strike(x, push_off):
    return powered_compass_gait.heel_strike(0.0, x, powered_compass_gait.Params(push_off=push_off))


def closing(unknown, n):
    """Of the angle, both rates and the duration, for the published push-off and torques."""
    x = jnp.stack([unknown[0], -unknown[0], unknown[1], unknown[2]])
    return strike(flow(x, jnp.asarray(PUBLISHED), 0.5, unknown[3], n), PUBLISHED[0]) - x


@ft.cache
def gait_of(n):
    """Angle, rates and duration of the published gait, with `n` steps between nodes."""
    fn = jax.jit(ft.partial(closing, n=n))
    jacobian = jax.jit(jax.jacfwd(fn))
    unknown = jnp.array([np.arcsin(0.25), -1.156, -1.038, 0.5])
    for _ in range(6):
        unknown -= jnp.linalg.solve(jacobian(unknown), fn(unknown))
    assert np.max(np.abs(fn(unknown))) < 1e-14
    return np.asarray(unknown)


def test_the_published_gait():
    """The default values have step length 1/2, speed 1 and the published cost."""
    angle, stance_rate, swing_rate, duration = gait_of(400)
    params = walker.Params()
    # The digits of push-off and torques end at 1e-8.
    assert_allclose([2 * np.sin(angle), duration], [0.5, 0.5], rtol=0, atol=5e-9)
    drive = np.array([params.push_off, *walker.torques(params)])
    assert_allclose(drive, PUBLISHED, rtol=0, atol=0)
    cost = drive[0] ** 2 + params.step_time / 4 * np.sum(drive[1:] ** 2)
    assert_allclose(cost, 0.6420337326, rtol=0, atol=6e-11)
    assert_allclose(cost, FAST[1], rtol=0, atol=5e-9)
    # Of the parameters alone: an orbit is not looked at.
    assert_allclose(walker.objectives["effort"](None, params), cost, rtol=1e-15)

    x = jnp.array([angle, -angle, stance_rate, swing_rate, 0.0])
    assert_allclose(walker.guess(params), x, rtol=2e-3)


def test_the_gait_of_a_program_with_40_steps():
    """Exact minus that of 40 steps between nodes: 1e-10, so all published digits are digits of the exact gait."""
    away = gait_of(400) - gait_of(40)
    assert_allclose(away, [8.6e-11, -1.55e-10, 1.49e-10, 7.4e-11], rtol=0.02)


@pytest.mark.slow
def test_the_orbit():
    """Its multipliers: those of the return map by the Runge-Kutta method, and a zero for the clock."""
    params, n = walker.Params(), 400
    integrator = hj.Integrator(unroll=False)
    gait = hj.periodic_orbit(
        hj.ReturnMap(walker.system, sequence=walker.sequence, integrator=integrator), walker.guess(params), params
    )
    assert_allclose(gait.jump_times[0, :3], [0.125, 0.25, 0.375], rtol=0, atol=1e-15)
    assert_allclose([gait.x[0], *gait.x[2:4], gait.period], gait_of(n), rtol=0, atol=5e-14)
    x, push_off = gait.x[:4], PUBLISHED[0]
    before = flow(x, jnp.asarray(PUBLISHED), 0.5, gait.period, n)
    variation, rate = jax.jacfwd(flow, argnums=(0, 3))(x, jnp.asarray(PUBLISHED), 0.5, gait.period, n)
    normal = jnp.array([1.0, 1.0, 0, 0])
    onto = jnp.eye(4) - jnp.outer(rate, normal) / (normal @ rate)
    jacobian = jax.jacfwd(strike)(before, push_off) @ onto @ variation
    expected = np.sort(np.linalg.eigvals(np.asarray(jacobian)).real)
    found = np.sort(np.asarray(gait.multipliers.real))
    assert_allclose(found, np.sort([*expected, 0.0]), rtol=0, atol=1e-11)
    assert_allclose(found[[0, 1, -1]], [-2.70917925, -0.02364684, 0.68484482], rtol=0, atol=6e-9)
    assert_allclose(gait.multipliers[3:], 0, atol=1e-13)
    assert not bool(gait.stable)


@ft.partial(jax.jit, static_argnames="n")
def residual(z, step_time, n):
    """Of the gait's equations with a step of half a leg's length, for push-off, torques and the two rates."""
    x = jnp.concatenate([jnp.array([1.0, -1.0]) * jnp.arcsin(0.25), z[6:]])
    return strike(flow(x, z[:6], step_time, step_time, n), z[0]) - x


by_unknowns = ft.partial(jax.jit, static_argnames="n")(jax.jacfwd(residual))


@pytest.mark.medium
@pytest.mark.parametrize("published", [FAST, SLOW], ids=("speed 1", "speed 0.8"))
def test_the_published_minima(published):
    """By sequential quadratic programming: over push-off, torques and the two rates, the gait's equations as constraints."""
    speed, least = published
    step_time = 0.5 / speed
    cost = lambda z: z[0] ** 2 + step_time / 4 * np.sum(z[1:6] ** 2)
    slope = lambda z: np.concatenate([[2 * z[0]], step_time / 2 * z[1:6], [0, 0]])
    z = np.array([*PUBLISHED, -1.156, -1.038]) * speed
    for n, expected in zip((40, 400), COSTS[published], strict=True):
        value, jacobian = (lambda z, fn=fn, n=n: np.asarray(fn(z, step_time, n)) for fn in (residual, by_unknowns))
        constraints = {"type": "eq", "fun": value, "jac": jacobian}
        found = scipy.optimize.minimize(
            cost, z, jac=slope, constraints=constraints, method="SLSQP", options={"ftol": 1e-15, "maxiter": 200}
        )
        assert np.max(np.abs(value(found.x))) < 1e-14
        z = found.x
        # The cost is flat at its minimum: the search ends where rounding hides its slope.
        assert_allclose(found.fun, expected, rtol=0, atol=1e-12)
        assert_allclose(found.fun, least, rtol=0, atol=5e-10)
        if published == FAST:
            assert_allclose(z[:6], PUBLISHED, rtol=0, atol=2e-7)


@jax.jit
def onto_gaits(z, across, step_time):
    """Push-off, torques and the two rates, moved along the rows of `across` until the gait closes; and the Jacobian."""
    of = (step_time, 40)
    newton = lambda _, z: z - across.T @ jnp.linalg.solve(by_unknowns(z, *of) @ across.T, residual(z, *of))
    return jax.lax.fori_loop(0, 8, newton, z), by_unknowns(z, *of)


@pytest.mark.medium
def test_the_published_minima_without_derivatives():
    """By COBYQA over the four unknowns that the gait's equations leave, from a constant torque."""
    for (speed, _), (expected, _) in COSTS.items():
        step_time = 0.5 / speed
        z = np.array([0.3, *[1.0] * 5, -1.156, -1.038]) * speed
        across = onto_gaits(z, np.eye(4, 8), step_time)[1]
        start, along = onto_gaits(z, across, step_time)[0], np.linalg.svd(across)[2][4:]

        def cost(w, start=start, along=along, across=across, step_time=step_time):
            z = np.asarray(onto_gaits(start + w @ along, across, step_time)[0])
            return z[0] ** 2 + step_time / 4 * np.sum(z[1:6] ** 2)

        options = {"initial_tr_radius": 0.1, "final_tr_radius": 1e-7}
        found = scipy.optimize.minimize(cost, np.zeros(4), method="COBYQA", options=options)
        # Where the search ends, at a distance of 1e-7, the cost is its square above the minimum.
        assert_allclose(found.fun, expected, rtol=0, atol=1e-12)


def test_the_torque_is_continuous():
    """At the nodes the modes agree, and the last line goes on; between nodes as NumPy interpolates."""
    params = walker.Params()
    state = lambda clock: jnp.array([0.1, -0.3, -1.0, 0.4, clock])
    for j, name in enumerate(walker.sequence):
        field = walker.system.modes[name].vector_field
        for part in (0.0, 0.3, 1.0):
            clock = (j + part) * 0.125
            torque = np.interp(clock, np.linspace(0, 0.5, 5), PUBLISHED[1:])
            expected = powered_compass_gait.move(state(clock)[:4], jnp.asarray(torque), params)
            assert_allclose(field(0.0, state(clock), params), [*expected, 1.0], rtol=1e-14, atol=1e-15)


@pytest.mark.medium
def test_an_early_strike_begins_the_next_step():
    """In the third quarter the foot comes to the ground; at a node, where it does not, the drawing stays where it is."""
    params = walker.Params()
    x = jnp.array([-0.25, 0.2, -1.0, 1.5, 0.26])
    impact = hj.flow_to_guard(walker.system, "third", 0.0, x, params)
    way = walker.system.transitions[int(impact.transition)]
    assert (way.source, way.target) == ("third", "first")
    before = impact.x
    assert before[4] < 0.375 and abs(before[0] + before[1]) < 1e-15
    after = way.reset(0.0, before, params)
    assert after[4] == 0
    assert_allclose(after[:4], powered_compass_gait.heel_strike(0.0, before[:4], params), rtol=0, atol=0)
    step = [2 * np.sin(before[1]), 0]
    assert_allclose(walker.travel("third", before, params), step, rtol=1e-12, atol=1e-12)
    node = before.at[0].set(-0.1).at[4].set(0.375)
    assert_allclose(walker.travel("third", node, params), 0, atol=0)
    assert_allclose(walker.travel("fourth", before, params), step, rtol=1e-12, atol=1e-12)
    # A clock past the end of its quarter is outside the domain, and so is a hip on the ground.
    domain = walker.system.modes["third"].domain
    assert domain is not None
    limits = domain(jnp.zeros(()), jnp.array([2.0, 0, 0, 0, 0.4]), params)
    assert limits.shape == (2,) and np.all(np.asarray(limits) < 0)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"step_time": 0.0}, "step_time=0.0"),
        ({"push_off": -0.1}, "push_off=-0.1"),
        ({"com": 1.2}, "com=1.2"),
        ({"leg_mass": 0.0}, "leg_mass=0.0"),
        ({"inertia": -1.0}, "inertia=-1.0"),
    ],
)
def test_parameters_out_of_range(values, message):
    with pytest.raises(ValueError, match=message):
        models.load("bhounsule_walker").Params(**values)
