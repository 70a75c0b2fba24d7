"""An integrator for each mode: the stiff hopper's stance by an implicit solver, its flight by an explicit one."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
import stiff_hopper as hopper
from numpy.testing import assert_allclose
from systems import logistic, map_of

import hyjax as hj

# Stages of a step as a loop: compilation is what takes time here.
EXPLICIT = hj.Integrator(rtol=1e-12, atol=1e-12, unroll=False)
IMPLICIT = hj.Integrator(dfx.Kvaerno5(), rtol=1e-12, atol=1e-12)
BY_MODE = {"flight": EXPLICIT, "stance": IMPLICIT}
X, P = jnp.array(hopper.START), hopper.params()
# A local error of 1e-12 grows to an event's by ten to a hundred.
ERROR = 1e-10


def hop(x, k, integrator):
    p = hopper.params() | {"k": k}
    return hj.ReturnMap(hopper.system, sequence=hopper.sequence, integrator=integrator)(x, p)


def exact(y, v, k):
    return mp.matrix(hopper.exact_stride(y, v, hopper.VALUES | {"k": k}))


def exact_orbit(k=200.0):
    """`(y, v, period)` of the hopper's orbit, as many digits as a float has."""
    with mp.workdps(40):
        gap = lambda y, v: [a - b for a, b in zip(exact(y, v, k)[:2], (y, v), strict=True)]
        y, v = mp.findroot(gap, (mp.mpf("1.05"), mp.mpf("0.65")))
        return [float(each) for each in (y, v, exact(y, v, k)[2])]


@pytest.mark.medium
def test_each_arc_takes_the_steps_of_its_own_integrator():
    """Value and Jacobian against the closed form; steps as each integrator alone takes them."""
    z = np.array([*hopper.START, hopper.VALUES["k"]])

    def numbers(z):
        through = hop(z[:2], z[2], BY_MODE)
        value = jnp.append(through.x, through.time)
        return value, (value, through)

    forward, (value, mixed) = jax.jit(jax.jacfwd(numbers, has_aux=True))(jnp.asarray(z))
    with mp.workdps(40):
        assert_allclose(value, [float(each) for each in exact(*z)], rtol=0, atol=ERROR)
        by = lambda i, j: mp.diff(lambda *z: exact(*z)[i], tuple(z), tuple(np.eye(3, dtype=int)[j].tolist()))
        slope = np.array([[float(by(i, j)) for j in range(3)] for i in range(3)])
    assert_allclose(forward, slope, rtol=0, atol=ERROR * np.max(np.abs(slope)))

    explicit, implicit = (hop(X, P["k"], each) for each in (EXPLICIT, IMPLICIT))
    steps = lambda through: [int(impact.steps) for impact in through.impacts]
    assert steps(mixed)[0] == steps(explicit)[0] != steps(implicit)[0]
    # From the same touch-down, to rounding.
    assert abs(steps(mixed)[1] - steps(implicit)[1]) <= 2 and steps(mixed)[1] < steps(explicit)[1]


@pytest.mark.medium
def test_a_single_flow_uses_the_integrator_of_its_mode():
    down = hj.flow_to_guard(hopper.system, "flight", 0.0, X, P, integrator=BY_MODE)
    alone = hj.flow_to_guard(hopper.system, "flight", 0.0, X, P, integrator=EXPLICIT)
    assert down.t == alone.t and down.steps == alone.steps


@pytest.mark.medium
def test_copies_of_a_mode_have_integrators_of_their_own():
    """Four arcs of a stride, in turn in one of two copies of a mode: each takes the steps, and makes the error, of its own
    integrator, as in a simulation. Over an arc x grows by sin(5)/5."""
    run = hj.Mode(lambda t, x, p: jnp.stack([jnp.cos(5 * x[1]), 1 + 0 * x[1]]), ("x", "clock"))
    tick, reset = (lambda t, x, p: 1 - x[1]), (lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    ways = hj.Transition("fine", "coarse", tick, reset), hj.Transition("coarse", "fine", tick, reset)
    system, x = hj.HybridSystem({"fine": run, "coarse": run}, ways), jnp.zeros(2)
    by_mode = {"fine": EXPLICIT, "coarse": hj.Integrator(rtol=1e-3, atol=1e-3, unroll=False)}
    after = hj.ReturnMap(system, sequence=("fine", "coarse") * 2, integrator=by_mode)(x, None)
    errors = np.abs(np.diff([0, *(float(impact.x[0]) for impact in after.impacts)]) - np.sin(5) / 5)
    assert np.all(errors[::2] < 1e-12) and np.all(errors[1::2] > 1e-7)
    flown = hj.simulate(system, x, None, mode="fine", t1=4.5, max_jumps=5, integrator=by_mode)
    assert_allclose(after.x, flown.x_starts[4], rtol=0, atol=1e-15)


@pytest.mark.medium
def test_orbit_multipliers_and_gradient():
    def period(k):
        orbit = hj.periodic_orbit(
            hj.ReturnMap(hopper.system, sequence=hopper.sequence, integrator=BY_MODE), X, P | {"k": k}, throw=False
        )
        return orbit.period, orbit

    got, orbit = jax.jit(jax.grad(period, has_aux=True))(P["k"])
    assert orbit.result == hj.RESULTS.successful
    assert_allclose(np.append(orbit.x, orbit.period), exact_orbit(), rtol=0, atol=10 * ERROR)
    # The saltation matrices, by another route; along the flow its multiplier is 1.
    other = np.linalg.eigvals(orbit.monodromy())
    assert_allclose(np.sort(np.abs(other)), np.sort([1, np.abs(orbit.multipliers[0])]), rtol=0, atol=1e-9)
    # Central differences of the closed form: the spacing's square times the third derivative.
    expected = (exact_orbit(200.01)[2] - exact_orbit(199.99)[2]) / 0.02
    assert_allclose(got, expected, rtol=1e-7)


@pytest.mark.slow
def test_simulation_takes_each_mode_by_its_own():
    """A batch whose lanes stand in different modes: the end of a stride and its derivatives, against the closed form."""
    starts = jnp.stack([X, X + jnp.array([0.1, 0.0]), jnp.array([1.02, 1.0])])

    def ends(x):
        walk = hj.simulate(hopper.system, x, P, mode="flight", t1=1.5, max_jumps=10, integrator=BY_MODE)
        return jnp.where(walk.transitions >= 0, walk.end_times, 0), walk

    slopes, walk = jax.jit(jax.vmap(jax.jacfwd(ends, has_aux=True)))(starts)
    assert np.all(walk.result._value == hj.RESULTS.successful._value)
    with mp.workdps(40):
        duration = lambda y, v: exact(y, v, hopper.VALUES["k"])[2]
        for i, x in enumerate(np.asarray(starts).tolist()):
            assert_allclose(walk.end_times[i, 1], float(duration(*x)), rtol=0, atol=ERROR)
            slope = np.array([float(mp.diff(duration, tuple(x), by)) for by in ((1, 0), (0, 1))])
            assert_allclose(slopes[i, 1], slope, rtol=0, atol=ERROR * max(1, np.max(np.abs(slope))))
    sampled = walk[0].sample(3)[1]
    assert sampled.mode == "stance"
    assert_allclose(sampled.x[-1], walk.x_ends[0, 1], rtol=0, atol=100 * ERROR)


@pytest.mark.medium
def test_searches_and_sweeps():
    """They accept an integrator for each mode too: the fixed point 1 - 1/r of the logistic map, to the tolerance."""
    system, params, sequence = map_of(logistic), {"r": jnp.array(2.5)}, ("m",)
    by_mode = {"m": hj.Integrator(dfx.Tsit5(), rtol=1e-10, atol=1e-10)}
    region = (jnp.array([0.3, 0.0]), jnp.array([0.9, 0.0]))
    found = hj.find_orbits(
        hj.ReturnMap(system, sequence=sequence, integrator=by_mode), params, region=region, max_starts=8
    )
    assert_allclose(found.x[:, 0], [0.6], rtol=1e-10)
    table = hj.sweep(found[0], where=lambda p: p["r"], values=[2.4, 2.6], integrator=by_mode)
    assert_allclose(table["x"].values[:, 0], [1 - 1 / 2.4, 1 - 1 / 2.6], rtol=1e-10)
    assert "Tsit5" in str(table.attrs)


def test_what_a_mapping_must_be():
    def call(integrator):
        return hj.ReturnMap(hopper.system, sequence=hopper.sequence, integrator=integrator)(X, P)

    with pytest.raises(ValueError, match=r"integrator: the modes \['stance'\] have none"):
        call({"flight": EXPLICIT})
    with pytest.raises(ValueError, match=r"\['swing'\] are not modes"):
        call(BY_MODE | {"swing": EXPLICIT})
    with pytest.raises(TypeError, match="'stance' is not an Integrator"):
        call(BY_MODE | {"stance": dfx.Kvaerno5()})
    with pytest.raises(TypeError, match="integrator"):
        call(dfx.Kvaerno5())
    with pytest.raises(ValueError, match="the same adjoint"):
        call(BY_MODE | {"stance": hj.Integrator(dfx.Kvaerno5(), adjoint=dfx.DirectAdjoint())})


def test_one_for_all_is_one_in_every_mode():
    one, each = hop(X, P["k"], EXPLICIT), hop(X, P["k"], dict.fromkeys(hopper.system.modes, EXPLICIT))
    assert np.array_equal(one.x, each.x) and one.time == each.time
