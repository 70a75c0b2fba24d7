"""Phase and isostable response: closed forms of integrate-and-fire neurons; bad input and failure."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import chebyshev, code_names
from hyjax.models import integrate_and_fire as pair

SAMPLES = 21

# One neuron: v' = I - v, v = 1: v+ = 0.
NEURON = hj.HybridSystem(
    {"charge": hj.Mode(lambda t, x, drive: drive - x, ("v",))},
    (hj.Transition("charge", "charge", lambda t, x, drive: 1 - x[0], lambda t, x, drive: jnp.zeros_like(x)),),
)


def neuron(drive, strides=1):
    step = hj.ReturnMap(NEURON, sequence=("charge",), strides=strides, integrator=ROLLED)
    return hj.periodic_orbit(step, jnp.zeros(1), drive, throw=False)


@pytest.mark.medium
def test_a_cycle_through_the_guards_of_a_family():
    """A relaxation oscillator, x' = a u - x, whose held u changes its sign at x = 1/2 and -1/2: Z = 1 / f of x, and half a period
    is log((a + 1/2) / (a - 1/2))."""
    charge = hj.Mode(lambda t, x, a: a * x[1:] - x[:1], ("x",), held=("u",))
    flip = hj.Transition(
        "charge",
        "charge",
        lambda t, x, a: jnp.stack([0.5 - x[0], x[0] + 0.5]),
        lambda t, x, a, i: jnp.stack([x[0], jnp.where(i == 0, -1.0, 1.0)]),
        armed=lambda t, x, a: jnp.stack([x[1] > 0, x[1] < 0]),
    )
    step = hj.ReturnMap(
        hj.HybridSystem({"charge": charge}, (flip,)), sequence=("charge[0]", "charge[1]"), integrator=ROLLED
    )
    a = jnp.array(2.0)
    response = hj.phase.phase_response(hj.periodic_orbit(step, jnp.array([-0.5, 1.0]), a), n_samples=SAMPLES)
    assert_allclose(response.period, 2 * np.log(2.5 / 1.5), rtol=1e-13)
    for arc in response.arcs:
        assert_allclose(arc.z[:, 0], 1 / (2 * arc.x[:, 1] - arc.x[:, 0]), rtol=1e-12)


def wave(cycle, x, params):
    return jnp.cos(2 * jnp.pi * cycle) * jnp.ones_like(x)


def neuron_in_closed_form(drive):
    """Z at half the period, and the largest interaction with the push of `test_one_neuron_in_closed_form`."""
    period = jnp.log(drive / (drive - 1))
    mean = (jnp.exp(period) - 1) / (period * drive)
    return jnp.exp(period / 2) / drive, mean / jnp.hypot(1, 2 * jnp.pi / period)


@pytest.mark.medium
def test_one_neuron_in_closed_form():
    """Z = 1 / f = exp(t) / I, T = ln(I / (I - 1)). A push cos(2 pi t / P) gives Gamma = Re(c exp(-2 pi i psi)) with
    c = (exp(T) - 1) / (T I (1 + 2 pi i / T)), and so the tongue."""

    def found(drive):
        response = hj.phase.phase_response(neuron(drive), n_samples=SAMPLES)
        return response, hj.phase.entrainment(response, wave, lags=10)

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


@pytest.mark.slow
def test_gradients_in_reverse_mode():
    def found(drive):
        response = hj.phase.phase_response(neuron(drive), n_samples=SAMPLES)
        return response.arcs[0].z[SAMPLES // 2, 0], hj.phase.entrainment(response, wave, lags=10).highest

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


@pytest.mark.slow
def test_pair_with_gradients():
    """Half a rhythm of the pair has the multiplier h'(u), which is negative: kappa = (ln(-h') + pi i) / T. With the derivatives
    by all parameters in the direction (1, 1, 1)."""

    def found(params):
        orbit = hj.periodic_orbit(
            hj.ReturnMap(RENAMED, sequence=("apart",), integrator=ROLLED), pair.guess(params), params, throw=False
        )
        (phase,), isostable = (
            hj.phase.phase_response(orbit, n_samples=9).arcs,
            hj.phase.isostable_response(orbit, n_samples=9),
        )
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


# Two coordinates that relax, the second into the first, and are reset by the clock: x' = -k (x - 1) + c y, y' = -m y.
RELAXING = hj.HybridSystem(
    {
        "m": hj.Mode(
            lambda t, x, p: jnp.stack([p[1] * x[1] - p[0] * (x[0] - 1), -p[2] * x[1], jnp.ones(())]), ("x", "y", "s")
        )
    },
    (
        hj.Transition(
            "m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: jnp.stack([p[3] * x[0], p[3] * x[1], 0 * x[2]])
        ),
    ),
)


@pytest.mark.medium
def test_isostables_in_closed_form():
    """With the factor F of the reset, the multipliers F exp(-k) and F exp(-m), and the time as the third coordinate, the response
    to the slower of them is F^t (1, c / (m - k), -x'), or F^t |v| (0, 1, 0) with v = (c / (k - m), 1, 0). A multiplier that is
    double, without a second eigenvector, or all but so, or zero up to rounding has none."""
    k, c, m, factor = np.array(
        [
            [0.5, 0.7, 1.1, 0.6],
            [1.1, 0.7, 0.5, 0.6],
            [0.5, 0.7, 1.1, -0.6],
            [0.8, 0.7, 0.8, 0.6],
            [0.8, 0.7, 0.8 + 1e-10, 0.6],
            [0.5, 0.7, 1.1, 3e-14],
        ]
    ).T
    begins = factor * (1 - np.exp(-k)) / (1 - factor * np.exp(-k))

    def found(p, x):
        orbit = hj.periodic_orbit(
            hj.ReturnMap(RELAXING, sequence=("m",), integrator=ROLLED), jnp.stack([x, 0 * x, 0 * x]), p, throw=False
        )
        return hj.phase.isostable_response(orbit, n_samples=5, throw=False)

    response = jax.jit(jax.vmap(found))(jnp.stack([*map(jnp.asarray, (k, c, m, factor))], axis=1), jnp.asarray(begins))
    assert code_names(response.result) == ["successful"] * 3 + ["no_simple_multiplier"] * 3
    for lane in range(3):
        t, z = np.asarray(response.arcs[0].t[lane]), np.asarray(response.arcs[0].z[lane])
        slow, ratio = min(k[lane], m[lane]), c[lane] / (m[lane] - k[lane])
        kappa = np.log(complex(factor[lane])) - slow
        rate = k[lane] * (1 - begins[lane]) * np.exp(-k[lane] * t)
        one = np.ones_like(t)
        here = [one, ratio * one, -rate] if m[lane] > k[lane] else [0 * t, np.hypot(ratio, 1) * one, 0 * t]
        direction = [1, 0, 0] if m[lane] > k[lane] else np.array([-ratio, 1, 0]) / np.hypot(ratio, 1)
        # A few hundred roundings.
        assert_allclose(response.multiplier[lane], factor[lane] * np.exp(-slow), rtol=1e-12)
        assert_allclose(response.exponent[lane], kappa, rtol=1e-12)
        assert_allclose(response.direction[lane], direction, rtol=0, atol=1e-12)
        assert_allclose(z, np.exp((kappa + slow) * t)[:, None] * np.stack(here, axis=1), rtol=0, atol=1e-11)
        assert response.residual[lane] < 1e-11
    assert np.all(np.isnan(response.arcs[0].z[3:]))


@pytest.mark.parametrize("n", range(2, 9))
def test_quadrature(n):
    """Polynomials up to the degree n - 1 are integrated exactly."""
    points, weights = chebyshev(n)
    assert points[0] == 0 and points[-1] == 1
    for degree in range(n):
        assert_allclose(weights @ points**degree, 1 / (degree + 1), rtol=1e-13)


@pytest.mark.medium
def test_misuse_and_failure():
    orbit = neuron(jnp.array(1.5))
    lost = eqx.tree_at(lambda orbit: orbit.result, orbit, hj.RESULTS.orbit_not_converged)
    both = jax.tree.map(lambda *each: jnp.stack([jnp.asarray(leaf) for leaf in each]), orbit, lost)
    for respond in (hj.phase.phase_response, hj.phase.isostable_response):
        with pytest.raises(hj.SolveError, match="response: orbit_not_converged"):
            respond(lost, n_samples=9)
        with pytest.raises(ValueError, match="this is a batch of 2 orbits"):
            respond(both)
        with pytest.raises(ValueError, match="n_samples=1 must be an integer of at least 2"):
            respond(orbit, n_samples=1)
    # In a batch the lane that failed has the code, and the other one its response.
    found = jax.vmap(lambda orbit: hj.phase.phase_response(orbit, n_samples=9, throw=False))(both)
    response = hj.phase.phase_response(orbit, n_samples=9, throw=False)
    assert np.all(np.asarray(found.result == hj.RESULTS.successful) == [True, False])
    assert_allclose(found.arcs[0].z[0], response.arcs[0].z, rtol=1e-14)
    assert np.all(np.isnan(found.arcs[0].z[1])) and np.isnan(found.residual[1])

    # What is not an orbit has no multiplier 1.
    other = eqx.tree_at(lambda orbit: orbit.nodes, orbit, orbit.nodes + 0.2)
    with pytest.raises(hj.SolveError, match="no_simple_multiplier"):
        hj.phase.phase_response(other, n_samples=9)
    # In one coordinate no deviation outlives the jump.
    with pytest.raises(hj.SolveError, match="no_simple_multiplier"):
        hj.phase.isostable_response(orbit, n_samples=9)
    with pytest.raises(ValueError, match="which=1 must be the index of a multiplier of the orbit, from 0 to 0"):
        hj.phase.isostable_response(orbit, which=1, throw=False)
    charge = hj.Mode(lambda t, x, drive: drive - x + 0.0 * jnp.cos(t), ("v",))
    forced = dataclasses.replace(orbit, system=hj.HybridSystem({"charge": charge}, NEURON.transitions))
    with pytest.raises(ValueError, match=r"the system depends on time\. A forced orbit has no free phase"):
        hj.phase.phase_response(forced, throw=False)

    with pytest.raises(ValueError, match="push is given for 'hot', but the modes of the orbit are"):
        hj.phase.entrainment(response, {"hot": wave})
    with pytest.raises(
        ValueError, match=r"mode 'charge'\. It must return what is added to the rates of .* shape \(1,\)"
    ):
        hj.phase.entrainment(response, lambda cycle, x, p: cycle)
    with pytest.raises(ValueError, match="lags=2 must be an integer of at least 3"):
        hj.phase.entrainment(response, wave, lags=2)
    with pytest.raises(ValueError, match="this is a batch of responses"):
        hj.phase.entrainment(found, wave)


@pytest.mark.medium
def test_pushes_off_a_surface_along_which_the_flow_slides():
    """A block that sticks to a belt: a push of its speed is lost to the second order, and one of its place is a time."""
    friction = lambda side: lambda t, x, p: jnp.stack([x[1], -x[0] - side + 0.1 * (x[1] - p)])
    block = hj.filippov({1: friction(1), -1: friction(-1)}, lambda t, x, p: x[1] - p, ("x", "v"))
    step = hj.ReturnMap(block, sequence=("-", "0"), integrator=ROLLED)
    # It slips where its spring pulls as much as the friction at rest.
    cycle = hj.periodic_orbit(step, jnp.array([1.0, 0.2]), jnp.array(0.2))
    slips, sticks = hj.phase.phase_response(cycle, n_samples=SAMPLES).arcs
    # The accuracy of the transport in a lap.
    assert_allclose(sticks.z, np.tile([5.0, 0.0], (SAMPLES, 1)), rtol=0, atol=1e-9)
    # A slip that is pushed sticks later or earlier: the first order of the time to the next slip, by differences.
    x, z = slips.x[SAMPLES // 2], slips.z[SAMPLES // 2]
    until = jax.jit(
        lambda x: hj.simulate(block, x, cycle.params, mode="-", t1=9.0, max_jumps=2, integrator=ROLLED).end_times[1]
    )
    push = 1e-5 * jnp.array([0.3, 1.0])
    assert_allclose((until(x - push) - until(x + push)) / 2, z @ push, rtol=1e-6)
