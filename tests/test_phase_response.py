"""Phase and isostable response: closed forms of integrate-and-fire neurons, the derivative of the period, and simulation."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.models import integrate_and_fire as pair
from hyjax.plot.figure import pyplot

ROLLED = hj.Integrator(unroll=False)
SAMPLES = 21

# One neuron: v' = I - v, v = 1: v+ = 0.
NEURON = hj.HybridSystem(
    {"charge": hj.Mode(lambda t, x, drive: drive - x, ("v",))},
    (hj.Transition("charge", "charge", lambda t, x, drive: 1 - x[0], lambda t, x, drive: jnp.zeros_like(x)),),
)


def neuron(drive, **options):
    return hj.periodic_orbit(
        NEURON, jnp.zeros(1), drive, sequence=("charge",), integrator=ROLLED, throw=False, **options
    )


def wave(cycle, x, params):
    return jnp.cos(2 * jnp.pi * cycle) * jnp.ones_like(x)


def neuron_in_closed_form(drive):
    """Z at half the period, and the largest interaction with the push of `test_one_neuron_in_closed_form`."""
    period = jnp.log(drive / (drive - 1))
    mean = (jnp.exp(period) - 1) / (period * drive)
    return jnp.exp(period / 2) / drive, mean / jnp.hypot(1, 2 * jnp.pi / period)


def test_one_neuron_in_closed_form():
    """Z = 1 / f = exp(t) / I, T = ln(I / (I - 1)). A push cos(2 pi t / P) gives Gamma = Re(c exp(-2 pi i psi)) with
    c = (exp(T) - 1) / (T I (1 + 2 pi i / T)), and so the tongue."""

    def found(drive):
        response = hj.phase_response(neuron(drive), samples=SAMPLES)
        return response, hj.entrainment(response, wave, lags=10)

    drive = jnp.array([1.02, 1.2, 2.0, 5.0])
    response, locking = jax.jit(jax.vmap(found))(drive)
    (arc,), (middle, highest) = response.arcs, jax.vmap(neuron_in_closed_form)(drive)
    # Twenty steps from sample to sample, each to a few roundings, and the time of the firing, where f = I - 1 is least.
    assert_allclose(arc.z[..., 0], np.exp(arc.t) / drive[:, None], rtol=1e-13)
    assert_allclose(arc.z[:, SAMPLES // 2, 0], middle, rtol=1e-13)
    assert_allclose(arc.z * (drive[:, None, None] - arc.x), 1, rtol=0, atol=1e-13)
    assert np.all(response.residual < 1e-13)
    assert_allclose(jnp.sum(arc.weights, axis=1), response.period, rtol=1e-13)
    # The quadrature of exp(t) cos(2 pi t / T) with 21 points leaves out less than 1e-12.
    assert_allclose(locking.highest, highest, rtol=1e-12)
    assert_allclose(locking.lowest, -locking.highest, rtol=1e-12)
    period, lags = np.asarray(response.period)[:, None], np.asarray(locking.lags)
    turned = np.exp(-2j * np.pi * lags) / (1 + 2j * np.pi / period)
    size = np.asarray(highest)[:, None] * np.hypot(1, 2 * np.pi / period)
    assert_allclose(locking.interaction, size * np.real(turned), rtol=0, atol=1e-12)
    low, high = jax.tree.map(lambda leaf: leaf[1], locking).tongue(jnp.array([0.1, -0.2]))
    assert_allclose(low, 1 - np.array([0.1, 0.2]) * locking.highest[1], rtol=1e-14)
    assert_allclose(high, 1 + np.array([0.1, 0.2]) * locking.highest[1], rtol=1e-14)


@pytest.mark.exhaustive
def test_two_firings_are_two_strides():
    """The same neuron, twice around: the response of the second stride is that of the first. And gradients in reverse mode."""
    once, twice = (hj.phase_response(neuron(jnp.array(1.5), strides=n), samples=9) for n in (1, 2))
    (arc,), (first, second) = once.arcs, twice.arcs
    for again, start in ((first, 0), (second, once.period)):
        assert_allclose(again.z, arc.z, rtol=1e-13)
        assert_allclose(again.t, arc.t + start, rtol=0, atol=1e-14)

    def found(drive):
        response = hj.phase_response(neuron(drive), samples=SAMPLES)
        return response.arcs[0].z[SAMPLES // 2, 0], hj.entrainment(response, wave, lags=10).highest

    slopes = jax.jit(jax.jacrev(found))(jnp.array(1.5))
    assert_allclose(slopes, jax.jacfwd(neuron_in_closed_form)(1.5), rtol=1e-10)


def pair_in_closed_form(params):
    r"""The pair of `hj.models.integrate_and_fire` just after the first fired: the responses Z = (1, E) / (gamma J + E a), with
    a = gamma (J - u) and E = (J - u) / (J - 1), and I = (1, -gamma J / a) up to a factor, orthogonal to the vector field; the
    direction v with I v = 1; the multiplier h'(u) of half a period, and half the period.

    Along the arc Z grows as exp(gamma t), and I as exp((gamma + kappa) t)."""
    j, coupling = params.drive / params.leak, params.coupling
    u = (2 * j + coupling - jnp.sqrt((2 * j + coupling) ** 2 - 4 * j * (1 + coupling))) / 2
    e, a, one = (j - u) / (j - 1), params.leak * (j - u), jnp.ones(())
    v, i = jnp.stack([e, -one]) / jnp.hypot(e, one), jnp.stack([one, -params.leak * j / a])
    z = jnp.stack([one, e]) / (params.drive + e * a)
    return z, i / (i @ v), v, -j * (j - 1) / (j - u) ** 2, jnp.log(e) / params.leak


# Kicks upwards make the rhythm unstable; the response is there all the same.
PAIRS = pair.Params(jnp.array([1.2, 1.6, 1.3]), jnp.array([1.0, 1.3, 0.9]), jnp.array([-0.1, -0.3, 0.05]))

# The neurons change their names when one fires, so that the rhythm repeats after half its period.
RENAMED = hj.HybridSystem(
    {"apart": hj.Mode(pair.integrate, ("last", "next"))},
    (
        hj.Transition(
            "apart", "apart", pair.second_below, lambda t, x, p: jnp.stack([jnp.zeros_like(x[0]), x[0] + p.coupling])
        ),
    ),
)


@pytest.mark.exhaustive
def test_pair_with_gradients():
    """Half a rhythm of the pair has the multiplier h'(u), which is negative: kappa = (ln(-h') + pi i) / T. With the derivatives
    by all parameters in the direction (1, 1, 1)."""

    def found(params):
        orbit = hj.periodic_orbit(
            RENAMED, pair.guess(params), params, sequence=("apart",), integrator=ROLLED, throw=False
        )
        (phase,), isostable = hj.phase_response(orbit, samples=9).arcs, hj.isostable_response(orbit, samples=9)
        i = isostable.arcs[0].z
        return phase.z, jnp.real(i), jnp.imag(i), jnp.real(isostable.direction), jnp.real(isostable.multiplier), phase.t

    def exact(params, places):
        z, i, v, multiplier, period = pair_in_closed_form(params)
        t = places * period
        decay = jnp.exp(params.leak * t + places * jnp.log(-multiplier))[:, None] * i
        turned = [turn(jnp.pi * places)[:, None] * decay for turn in (jnp.cos, jnp.sin)]
        return jnp.exp(params.leak * t)[:, None] * z, *turned, v, multiplier, t

    moved = jax.tree.map(jnp.ones_like, PAIRS)
    results = jax.jit(jax.vmap(lambda params, by: jax.jvp(found, (params,), (by,))))(PAIRS, moved)
    places = results[0][-1] / results[0][-1][:, -1:]
    closed = jax.vmap(lambda params, by, places: jax.jvp(lambda params: exact(params, places), (params,), (by,)))
    for values, expected, digits in zip(results, closed(PAIRS, moved, places), (1e-11, 1e-10), strict=True):
        # A few hundred roundings: of flow, firing, and eigenvectors; more in the derivatives.
        for each, other in zip(values, expected, strict=True):
            assert_allclose(each, other, rtol=0, atol=digits * np.max(np.abs(other)))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_pair_of_two_modes():
    """In the mode "second" the neurons have exchanged their parts, and the deviation its sign."""

    def found(params):
        orbit = hj.periodic_orbit(pair.system, pair.guess(params), params, sequence=pair.sequence, integrator=ROLLED)
        return hj.phase_response(orbit, samples=SAMPLES), hj.isostable_response(orbit, samples=SAMPLES)

    phase, isostable = jax.vmap(found)(PAIRS)
    assert np.all(phase.result == hj.RESULTS.successful) and np.all(isostable.result == hj.RESULTS.successful)
    z, i, v, half, time = jax.vmap(pair_in_closed_form)(PAIRS)
    exponent = jnp.log(-half) / time
    assert_allclose(isostable.multiplier, half**2, rtol=1e-12)
    assert_allclose(isostable.exponent, exponent, rtol=1e-12)
    assert_allclose(isostable.direction, v, rtol=1e-11)
    # A few hundred roundings: of two flows, two firings, and the linear system of the multiplier 1.
    first, second = phase.arcs
    growth = jnp.exp(PAIRS.leak[:, None] * first.t)[:, :, None]
    assert_allclose(first.z, growth * z[:, None], rtol=1e-12)
    assert_allclose(second.z, growth * z[:, None, ::-1], rtol=1e-12)
    first, second = isostable.arcs
    growth = jnp.exp((PAIRS.leak + exponent)[:, None] * first.t)[:, :, None]
    assert_allclose(first.z, growth * i[:, None], rtol=1e-11)
    assert_allclose(second.z, -growth * i[:, None, ::-1], rtol=1e-11)


# A mode of two coordinates and one of three, with a parameter in the flow, one in a guard and one in a reset.
def heat(t, x, p):
    a, b = x
    return jnp.stack([b, p["drive"] - a - 0.5 * b + 0.1 * a * b])


def cool(t, x, p):
    a, b, c = x
    return jnp.stack([b, -1 - a - 0.3 * b + 0.5 * c + 0.1 * p["drive"] * a**2, 0.2 * a * b - c])


THERMOSTAT = hj.HybridSystem(
    {"heat": hj.Mode(heat, ("a", "b")), "cool": hj.Mode(cool, ("a", "b", "c"))},
    (
        hj.Transition(
            "heat",
            "cool",
            lambda t, x, p: p["level"] - x[0] - 0.05 * x[1] ** 2,
            lambda t, x, p: jnp.stack([x[0], p["loss"] * x[1], x[0] * x[1]]),
        ),
        hj.Transition(
            "cool",
            "heat",
            lambda t, x, p: x[0] + 0.1 * x[2] - 0.2 * p["level"],
            lambda t, x, p: jnp.stack([x[0] + 0.1 * x[2], p["loss"] * x[1] + 0.3 * x[2]]),
        ),
    ),
)
START = {"drive": jnp.array(2.0), "level": jnp.array(1.2), "loss": jnp.array(0.5)}


def thermostat(params):
    return hj.periodic_orbit(THERMOSTAT, jnp.array([0.2, -0.3]), params, sequence=("heat", "cool"), integrator=ROLLED)


@pytest.fixture(scope="module")
def swinging():
    """The thermostat's orbit, the derivative of its period, and its phase response."""

    def period(params):
        orbit = thermostat(params)
        return orbit.period, orbit

    slope, orbit = jax.jit(jax.grad(period, has_aux=True))(START)
    return slope, hj.phase_response(orbit, samples=41)


def test_modes_of_different_dimension(swinging):
    """The derivative of the period is minus the advance of the phase: along the arcs by D_p f, and at the events by
    D_p R + (f+ - D_x R f-) D_p g / (D_x g f-), after the jump. Both sides of each event are samples: there Z f = 1 too."""
    slope, response = swinging
    orbit, params, arcs = response.orbit, response.orbit.params, response.arcs
    assert response.residual < 1e-13 and orbit.stable
    advance = jax.tree.map(jnp.zeros_like, params)
    for k, arc in enumerate(arcs):
        field = THERMOSTAT.modes[arc.mode].vector_field
        by = jax.vmap(lambda x, field=field: jax.jacfwd(field, argnums=2)(0.0, x, params))(arc.x)
        along = jax.tree.map(lambda by, arc=arc: jnp.sum(arc.weights * jnp.sum(arc.z * by, axis=1)), by)
        way, after, x = THERMOSTAT.transitions[k], arcs[1 - k], arc.x[-1]
        reset_x, reset_p = jax.jacfwd(way.reset, argnums=(1, 2))(0.0, x, params)
        guard_x, guard_p = jax.grad(way.guard, argnums=(1, 2))(0.0, x, params)
        f, f_after = field(0.0, x, params), THERMOSTAT.modes[after.mode].vector_field(0.0, after.x[0], params)
        late = (f_after - reset_x @ f) / (guard_x @ f)
        at_event = jax.tree.map(lambda r, g: after.z[0] @ (r + late * g), reset_p, guard_p)  # noqa: B023
        advance = jax.tree.map(lambda *each: sum(each), advance, along, at_event)
        # Across the event, by the saltation matrix, up to the state's rounding.
        xi = hj.saltation_matrix(THERMOSTAT, k, 0.0, x, params)
        assert_allclose(arc.z[-1], xi.T @ after.z[0], rtol=1e-12)
    for name, value in slope.items():
        # 41 points integrate to rounding; the slopes are of order 1.
        assert_allclose(-advance[name], value, rtol=0, atol=1e-11, err_msg=name)


@pytest.mark.slow
def test_phase_shift_by_simulation(swinging):
    """A push at a sample of each mode, simulated until it has decayed: later events are earlier by Z dx."""
    _, response = swinging
    orbit = response.orbit
    laps, h = 16, 1e-4
    assert orbit.spectral_radius**laps < 1e-9
    t1 = (laps + 0.5) * orbit.period

    for arc in response.arcs:
        t, x, z = arc.t[15], arc.x[15], arc.z[15]

        def last(dx, t=t, x=x, mode=arc.mode):
            run = hj.simulate(
                THERMOSTAT, x + dx, orbit.params, mode=mode, t0=t, t1=t1, max_jumps=2 * laps + 1, integrator=ROLLED
            )
            return run.ends[2 * laps - 2], run.result

        pushes = h * np.concatenate([np.eye(x.size), -np.eye(x.size)])
        times, result = jax.vmap(last)(jnp.asarray(pushes))
        assert np.all(result == hj.RESULTS.successful)
        earlier = -(times[: x.size] - times[x.size :]) / (2 * h)
        # Central differences leave out h^2 = 1e-8 times third derivatives of order 1 to 10.
        assert_allclose(earlier, z, rtol=0, atol=1e-6)


@pytest.mark.exhaustive
def test_walker(walker):
    """The long gait at slope 0.009: a complex pair of multipliers, whose response is a left eigenvector of the monodromy
    matrix."""
    orbit = walker["long_0.009"]
    phase, isostable = hj.phase_response(orbit, samples=31), hj.isostable_response(orbit, samples=31)
    (arc,), (slow,) = phase.arcs, isostable.arcs
    matrix, value, direction = (
        np.asarray(orbit.monodromy()),
        complex(isostable.multiplier),
        np.asarray(isostable.direction),
    )
    assert abs(value.imag) > 0.1
    # The gait's multipliers are accurate to 2e-13, and the responses are of order 10.
    assert phase.residual < 1e-12 and isostable.residual < 1e-11
    z, i = np.asarray(arc.z[0]), np.asarray(slow.z[0])
    assert_allclose(z @ matrix, z, rtol=0, atol=1e-11)
    assert_allclose(i @ matrix, value * i, rtol=0, atol=1e-10)
    assert_allclose(matrix @ direction, value * direction, rtol=0, atol=1e-12)
    assert_allclose(i @ direction, 1, rtol=1e-12)
    # Along the arc: the adjoint equations, with the derivative of the polynomial through the Chebyshev points.
    start, end = arc.t[0], arc.t[-1]
    to_rates = np.polynomial.chebyshev.chebder
    for each, kappa in ((arc, 0), (slow, complex(isostable.exponent))):
        places = np.asarray(2 * (each.t - start) / (end - start) - 1)
        for part in (np.real, np.imag):
            z = np.asarray(each.z)
            series = np.polynomial.chebyshev.chebfit(places, part(z), 30)
            rate = np.polynomial.chebyshev.chebval(places, to_rates(series)).T * 2 / (end - start)
            a = jax.vmap(
                lambda x: jax.jacfwd(orbit.system.modes["swing"].vector_field, argnums=1)(0.0, x, orbit.params)
            )(each.x)
            expected = part(kappa * z - np.einsum("nij,ni->nj", a, z))
            assert_allclose(rate, expected, rtol=0, atol=1e-8)


def test_misuse_and_failure():
    orbit = neuron(jnp.array(1.5))
    lost = eqx.tree_at(lambda orbit: orbit.result, orbit, hj.RESULTS.orbit_not_converged)
    both = jax.tree.map(lambda *each: jnp.stack([jnp.asarray(leaf) for leaf in each]), orbit, lost)
    for respond in (hj.phase_response, hj.isostable_response):
        with pytest.raises(ValueError, match=r"there is no response: .*orbit_not_converged"):
            respond(lost, samples=9)
        with pytest.raises(ValueError, match="this is a batch of 2 orbits"):
            respond(both)
        with pytest.raises(ValueError, match="samples=1 must be an integer of at least 2"):
            respond(orbit, samples=1)
    # In a batch the lane that failed has the code, and the other one its response.
    found = jax.vmap(lambda orbit: hj.phase_response(orbit, samples=9))(both)
    response = hj.phase_response(orbit, samples=9)
    assert np.all(np.asarray(found.result == hj.RESULTS.successful) == [True, False])
    assert_allclose(found.arcs[0].z[0], response.arcs[0].z, rtol=1e-14)
    assert np.all(np.isnan(found.arcs[0].z[1])) and np.isnan(found.residual[1])

    # What is not an orbit has no multiplier 1.
    other = eqx.tree_at(lambda orbit: orbit.nodes, orbit, orbit.nodes + 0.2)
    with pytest.raises(ValueError, match="no_simple_multiplier"):
        hj.phase_response(other, samples=9)
    # In one coordinate no deviation outlives the jump.
    with pytest.raises(ValueError, match="no_simple_multiplier"):
        hj.isostable_response(orbit, samples=9)
    with pytest.raises(ValueError, match="which=1 must be the index of a multiplier of the orbit, from 0 to 0"):
        hj.isostable_response(orbit, which=1)
    charge = hj.Mode(lambda t, x, drive: drive - x + 0.0 * jnp.cos(t), ("v",))
    forced = dataclasses.replace(orbit, system=hj.HybridSystem({"charge": charge}, NEURON.transitions))
    with pytest.raises(ValueError, match=r"the system depends on time\. A forced orbit has no free phase"):
        hj.phase_response(forced)

    with pytest.raises(ValueError, match="push is given for 'hot', but the modes of the orbit are"):
        hj.entrainment(response, {"hot": wave})
    with pytest.raises(
        ValueError, match=r"mode 'charge'\. It must return what is added to the rates of .* shape \(1,\)"
    ):
        hj.entrainment(response, lambda cycle, x, p: cycle)
    with pytest.raises(ValueError, match="lags=2 must be an integer of at least 3"):
        hj.entrainment(response, wave, lags=2)
    with pytest.raises(ValueError, match="this is a batch of responses"):
        hj.entrainment(found, wave)


def test_figures(swinging):
    """The curves are the samples, and a mode that is not named is not pushed."""
    _, response = swinging
    fig = response.plot()
    lines = [[line for line in ax.lines if line.get_gid() != "jump"] for ax in fig.axes]
    assert [len(each) for each in lines] == [2, 2, 1]
    assert_allclose(lines[2][0].get_ydata(), response.arcs[1].z[:, 2])
    assert_allclose(
        [line.get_xdata()[0] for line in fig.axes[0].lines if line.get_gid() == "jump"], response.arcs[1].t[0]
    )
    pushed, (arc, _) = hj.entrainment(response, {"heat": wave}), response.arcs
    cosine = np.cos(2 * np.pi * arc.t / response.period)
    assert_allclose(pushed.interaction[0], arc.weights * cosine @ np.sum(arc.z, axis=1) / response.period, rtol=1e-13)
    left, right = pushed.plot(0.2).axes
    assert_allclose(left.lines[0].get_ydata()[:-1], pushed.interaction)
    assert_allclose([line.get_xdata()[-1] for line in right.lines], pushed.tongue(0.2))
    lost = eqx.tree_at(lambda r: r.result, response, hj.RESULTS.orbit_not_converged)
    with pytest.raises(ValueError, match="there is no response to draw"):
        lost.plot()
    pyplot().close("all")
