"""Flows so steep at a guard that their steps are below the resolution of the time: times, states, derivatives and codes."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax import RESULTS
from hyjax._testing import abreast, later

# The neuron of Brette and Gerstner (2005), in pF, nS, mV, pA and ms, with a current of 800 pA that may oscillate.
C, gL, EL, VT, DT, tau, a, b = 281.0, 30.0, -70.6, -50.4, 2.0, 144.0, 4.0, 80.5


class Cut(eqx.Module):
    peak: jax.Array
    wave: jax.Array | float = 0.0


def membrane(t, x, p):
    V, w = x
    current = 800 + p.wave * jnp.sin(t)
    return jnp.stack([(gL * (EL - V) + gL * DT * jnp.exp((V - VT) / DT) - w + current) / C, (a * (V - EL) - w) / tau])


neuron = hj.HybridSystem(
    {"on": hj.Mode(membrane, ("V", "w"))},
    (
        hj.Transition(
            "on",
            "on",
            lambda t, x, p: p.peak - x[0],
            lambda t, x, p: jnp.stack([jnp.full_like(x[0], EL), x[1] + b]),
        ),
    ),
)
# SciPy, with the voltage as the independent variable in the upstroke, at 1e-13.
SPIKES = {
    0.0: [17.719521927401246, 40.485172689122436, 71.26696391326067],
    20.0: [17.719521927507746, 40.48517268935126, 71.26696391364342],
}


@eqx.filter_jit
def fired(start, peak, t0, wave):
    run = lambda peak, t0, wave: hj.simulate(
        neuron, start, Cut(peak, wave), mode="on", t0=t0, t1=t0 + 75, max_jumps=3, integrator=ROLLED
    )
    return jax.vmap(run)(peak, t0, wave)


@pytest.mark.medium
def test_upstroke_of_a_spike():
    """The voltage runs up exponentially, 4e14 mV/ms at 20 mV and 6e16 at 30; a late start moves the spikes by as much."""
    peaks = np.array([-30.0, 0.0, 20.0, 30.0, 0.0, 20.0, 20.0])
    starts = np.array([0.0, 0.0, 0.0, 0.0, 1e6, 1e6, 0.0])
    waves = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e-9])
    run = fired(jnp.array([EL, 0.0]), *map(jnp.asarray, (peaks, starts, waves)))
    assert bool(jnp.all(run.result == RESULTS.successful))
    assert_allclose(run.jumps, 3)
    for k in range(1, len(peaks)):
        expected = starts[k] + np.array(SPIKES[min(peaks[k], 20.0)])
        # The error of the reference; that of 30 mV from 20 is below, that of the current 1e-12 of it; rounding of a late time.
        assert_allclose(run.end_times[k, :3], expected, rtol=1e-15, atol=1e-11 if starts[k] == 0 else 1e-9)
        # A rounding of the difference from the peak, of numbers up to 70.
        assert_allclose(run.x_ends[k, :3, 0], peaks[k], rtol=0, atol=2e-14)


@pytest.mark.medium
def test_upstroke_in_single_precision():
    one = lambda values: jnp.asarray(values, jnp.float32)
    run = fired(one([EL, 0.0]), one([0.0, 20.0]), one([0.0, 0.0]), one([0.0, 0.0]))
    assert bool(jnp.all(run.result == RESULTS.successful))
    # The tolerance of 1e-6, where the upstroke begins slowly.
    assert_allclose(run.end_times[:, :3], [SPIKES[0.0], SPIKES[20.0]], rtol=1e-4)


class Steep(eqx.Module):
    start: jax.Array
    until: jax.Array
    wave: jax.Array | float = 0.0


# x' = (1 + wave cos t) x^2 and y' = (1 + wave cos t) x: at x = M, t + wave sin t = 1/x0 - 1/M and y = log(M / x0).
square = hj.HybridSystem(
    {"on": hj.Mode(lambda t, x, p: (1 + p.wave * jnp.cos(t)) * jnp.stack([x[0] ** 2, x[0]]), ("x", "y"))},
    (hj.Transition("on", "on", lambda t, x, p: p.until - x[0], lambda t, x, p: x),),
)
UNTIL = jnp.array([1e2, 1e5, 1e10, 1e15, 1e20])


def met(p, integrator=ROLLED):
    end = hj.flow_to_guard(square, "on", 0.0, jnp.stack([p.start, jnp.zeros_like(p.start)]), p, integrator=integrator)
    return jnp.stack([end.t, end.x[1]])


@pytest.mark.medium
def test_a_flow_towards_infinity():
    waves = jnp.array([0.0, 0.3])[:, None]
    over = lambda f: jax.jit(jax.vmap(jax.vmap(f, (0, None)), (None, 0)))
    t, y = jnp.moveaxis(over(lambda M, wave: met(Steep(jnp.array(1.0), M, wave)))(UNTIL, waves[:, 0]), -1, 0)
    assert_allclose(t + waves * np.sin(t), jnp.tile(1 - 1 / UNTIL, (2, 1)), rtol=1e-14)
    assert_allclose(y, jnp.tile(jnp.log(UNTIL), (2, 1)), rtol=1e-14)


@pytest.mark.medium
def test_derivatives_do_not_lose_digits_where_the_flow_is_steep():
    """At equal times, neighbouring orbits are up to 1e40 times as far apart as at the start; at the guard they are not.

    t = 1/x0 - 1/M and y = log(M / x0), so the first derivatives by x0 = 1 are -1 and -1, the second 2 and 1.
    """

    def all_of(M):
        f = lambda x0: met(Steep(x0, M))
        one = jnp.array(1.0)
        second, first = jax.jacfwd(lambda x0: (jax.jacfwd(f)(x0),) * 2, has_aux=True)(one)
        return first, jax.jacrev(f)(one), second

    first, back, second = jax.jit(jax.vmap(all_of))(UNTIL)
    # A first derivative through 200 steps with errors of 1e-14, each times the growth of up to 1e4 before a flow counts as steep.
    assert_allclose(first, np.tile([-1.0, -1.0], (5, 1)), rtol=1e-11)
    assert_allclose(back, first, rtol=1e-11)
    assert_allclose(second, np.tile([2.0, 1.0], (5, 1)), rtol=2e-9)


@pytest.mark.medium
def test_a_point_abreast_lies_in_the_plane_across_the_flow():
    """Of a uniform flow (3, 4), at (2, 8) in units of 1 + |x|: perturbations lose their part along the flow, once, and the time
    moves by as much."""
    flow, x, scale = jnp.array([3.0, 4.0]), jnp.array([2.0, 8.0]), np.array([3.0, 9.0])
    field = lambda point, args: (jnp.ones_like(point[0]), flow + 0 * point[1])
    moved = lambda x: abreast(field, jnp.array(0.5), x, flow, 1.0, None, jnp.array(True))
    by_time, by_state = jax.jit(jax.jacfwd(moved))(x)
    a = np.array([3.0, 4.0]) / scale
    tau = -a / scale / (a @ a)
    assert_allclose(by_time, tau, rtol=1e-14)
    assert_allclose(by_state, np.eye(2) + np.outer([3.0, 4.0], tau), rtol=1e-14)


@pytest.mark.medium
def test_a_flow_that_nearly_rests_is_not_steep():
    """x' = -x + exp(10 (t - 40)) has a minimum at 36, of 1e-16; x(40) has the derivative exp(-40) by x(0), and 1 by the time."""
    system = hj.HybridSystem({"on": hj.Mode(lambda t, x, p: jnp.exp(10 * (t - 40)) - x, ("x",))}, ())
    fine = hj.Integrator(atol=1e-30, unroll=False)
    end = lambda x0: hj.simulate(system, x0[None], None, mode="on", t1=40.0, integrator=fine).x[0]
    x, by_start = jax.jit(lambda x0: jax.jvp(end, (x0,), (jnp.ones(()),)))(jnp.array(1.0))
    assert_allclose(x, 1 / 11, rtol=1e-12)
    # The flow is linear: its derivative has the errors of the steps alone. Points abreast would be 1 later before the minimum.
    assert_allclose(by_start, np.exp(-40), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [hj.solvers.Rodas5P(), None])
def test_derivatives_with_other_methods(solver):
    """As above, at the method's tolerance; a written-out step, and a method that is not explicit."""
    integrator = hj.Integrator() if solver is None else hj.Integrator(solver, rtol=1e-10, atol=1e-10)
    f = lambda x0, M: met(Steep(x0, M), integrator)
    second = jax.jit(jax.vmap(jax.jacfwd(jax.jacfwd(f)), (None, 0)))(jnp.array(1.0), UNTIL)
    assert_allclose(second, np.tile([2.0, 1.0], (5, 1)), rtol=1e-4 if solver else 2e-9)


@pytest.mark.medium
def test_orbit_of_a_quadratic_neuron():
    """v' = v^2 + 1 from -1 until M takes T = atan M + pi/4; meanwhile w' = -w, and w grows by 1 at each spike.

    So w = 1 / (1 - e^-T) after a spike, with the multiplier e^-T.
    """
    system = hj.HybridSystem(
        {"on": hj.Mode(lambda t, x, M: jnp.stack([x[0] ** 2 + 1, -x[1]]), ("v", "w"))},
        (
            hj.Transition(
                "on", "on", lambda t, x, M: M - x[0], lambda t, x, M: jnp.stack([-jnp.ones_like(M), x[1] + 1])
            ),
        ),
    )
    orbit = hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("on",), integrator=ROLLED), jnp.array([-1.0, 1.0]), jnp.array(1e14)
    )
    T = np.arctan(1e14) + np.pi / 4
    assert_allclose(orbit.period, T, rtol=1e-13)
    # Newton's steps end at 1e-10.
    assert_allclose(orbit.x, [-1.0, 1 / (1 - np.exp(-T))], rtol=1e-10)
    assert_allclose(np.sort(np.abs(orbit.multipliers)), [0, np.exp(-T)], rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_orbit_of_the_exponential_neuron():
    """The reference as for `SPIKES`; the multiplier by differences there."""
    guess = jnp.array([EL, 280.0])
    orbit = hj.periodic_orbit(hj.ReturnMap(neuron, sequence=("on",), integrator=ROLLED), guess, Cut(jnp.array(20.0)))
    assert_allclose(orbit.x[1], 286.441518992238, rtol=1e-12)
    assert_allclose(orbit.period, 66.93966399493618, rtol=1e-12)
    assert_allclose(np.max(np.abs(orbit.multipliers)), 0.1670057603035957, rtol=1e-8)


@pytest.mark.medium
@pytest.mark.parametrize("tolerance", [1e-6, 1e-8])
def test_a_pole_in_time_is_not_passed(tolerance):
    """x' = 1/cos(t): the field varies by its own size over the resolution of the time near pi/2, which is no number."""
    system = hj.HybridSystem({"on": hj.Mode(lambda t, x, p: jnp.ones(1) / jnp.cos(t), ("x",))}, ())
    coarse = hj.Integrator(rtol=tolerance, atol=tolerance, unroll=False)
    run = lambda start: hj.simulate(system, start[None], None, mode="on", t1=2.0, integrator=coarse, throw=False)
    ran = jax.jit(jax.vmap(run))(jnp.linspace(0, 1, 8))
    assert np.all(ran.result == RESULTS.dt_min_reached)
    # 600 steps, each shorter than the distance from the pole by 5 %.
    assert_allclose(ran.t, np.pi / 2, rtol=1e-12)
    assert np.all(ran.t < np.pi / 2)


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:The vector_field of mode")
def test_a_jump_of_the_field_is_not_passed_by_ever_shorter_steps():
    """The state does not move in a step that is rejected there: 1e-16 of its size."""
    field = lambda t, x, p: jnp.where(x < 1, 1.0, 1e20)
    system = hj.HybridSystem({"on": hj.Mode(field, ("x",))}, ())
    run = hj.simulate(system, jnp.zeros(1), None, mode="on", t1=2.0, integrator=ROLLED, throw=False)
    assert run.result == RESULTS.dt_min_reached
    assert_allclose(run.t, 1, rtol=1e-14)


@pytest.mark.medium
def test_a_flow_that_diverges():
    """Without a guard, x' = x^2 ends where a step is 1e-30 of the time: about 1/x, or a tenth of it."""
    system = hj.HybridSystem({"on": hj.Mode(lambda t, x, p: x**2, ("x",))}, ())
    run = hj.simulate(system, jnp.ones(1), None, mode="on", t1=2.0, integrator=ROLLED, throw=False)
    assert run.result == RESULTS.dt_min_reached
    assert 1e27 < run.final[0] < 1e31


def test_a_sum_of_times_below_their_resolution():
    add = lambda k, carry: later(*carry, jnp.array(1e-20))
    t, late = jax.jit(lambda: jax.lax.fori_loop(0, 10**6, add, (jnp.array(1.0), jnp.array(0.0))))()
    assert t == 1 + 1e-14
    # What is left of 1e-14 beyond the nearest number; its own sum has the digits of the dtype.
    assert_allclose((float(t) - 1) + float(late), 1e-14, rtol=1e-12)
    # Also where the step is the larger one.
    t, late = later(jnp.array(1e-20), jnp.array(0.0), jnp.array(1.0))
    assert t == 1 and late == 1e-20


@pytest.mark.medium
def test_steep_linear_growth():
    """x' = k x from 1/1000 to 1, again and again: every ln(1000) / k. Late times have a rounding of their own."""
    grow = hj.HybridSystem(
        {"on": hj.Mode(lambda t, x, p: p * x, ("x",))},
        (hj.Transition("on", "on", lambda t, x, p: 1 - x[0], lambda t, x, p: 0 * x + 1e-3),),
    )
    k, t0 = np.array([1.0, 1e3, 1e6, 1e9, 1e6, 1e6]), np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1e3])
    run = lambda k, t0: hj.simulate(
        grow, jnp.array([1e-3]), k, mode="on", t0=t0, t1=t0 + 21 / k, max_jumps=5, integrator=ROLLED
    )
    runs = jax.jit(jax.vmap(run))(jnp.asarray(k), jnp.asarray(t0))
    assert bool(jnp.all(runs.result == RESULTS.successful)) and np.all(runs.jumps == 3)
    events = t0[:, None] + np.log(1e3) / k[:, None] * np.arange(1, 4)
    for lane in range(k.size):
        assert_allclose(runs.end_times[lane, :3], events[lane], rtol=1e-12 if t0[lane] == 0 else 1e-15)
    assert_allclose(runs.x[:4, 0], 1e-3 * np.exp(21 - 3 * np.log(1e3)), rtol=1e-11)


@pytest.mark.slow
def test_guards_in_the_jump_of_a_relaxation_oscillator():
    """Van der Pol's equation with mu = 1000: in its fast jump x falls within 1/80 of time through 0.9, 0 and -1.9, after a creep
    of 807. SciPy's Radau at 1e-12, with which LSODA at 1e-13 agrees to 3e-8. A method for smooth flows says that it is stiff."""
    field = lambda t, x, p: jnp.stack([x[1], p * (1 - x[0] ** 2) * x[1] - x[0]])
    falls = [hj.Transition("on", "on", lambda t, x, p, at=at: x[0] - at, lambda t, x, p: x) for at in (0.9, 0.0, -1.9)]
    system = hj.HybridSystem({"on": hj.Mode(field, ("x", "v"))}, falls)
    run = lambda integrator, t1: hj.simulate(
        system, jnp.array([2.0, 0.0]), jnp.array(1e3), mode="on", t1=t1, max_jumps=5, integrator=integrator, throw=False
    )
    stiff = run(hj.Integrator(hj.solvers.Radau5(), rtol=1e-9, atol=1e-11, max_steps=20000, unroll=False), 1000.0)
    assert stiff.result == "successful" and [event.transition for event in stiff.events] == [0, 1, 2]
    times = [event.t for event in stiff.events]
    assert_allclose(times, [807.0749313554772, 807.0847408158836, 807.0867489001635], rtol=1e-10)
    # Within the jump both know the times to 1e-11.
    assert_allclose(np.diff(times), [0.0098094604064, 0.0020080842799], rtol=0, atol=1e-10)
    assert run(ROLLED, 1000.0).result == "max_steps_reached"


@pytest.mark.medium
def test_short_steps_at_kinks_in_time_are_not_steep():
    """A record between whose samples the field interpolates: at each of them steps are short, and the state hardly changes. The
    derivative by a sample is the area under its hat, up to the end time, which is a sample."""
    record, grid = jnp.array([0.3, -0.7, 1.1, 0.2, -0.9]), jnp.linspace(0.0, 2.0, 5)
    shake = hj.Mode(lambda t, x, p: jnp.interp(t, grid, p)[None], ("v",))
    end = lambda p: hj.simulate(hj.HybridSystem({"shake": shake}, ()), jnp.zeros(1), p, mode="shake", t1=2.0).x[0]
    assert_allclose(jax.jacfwd(end)(record), [0.25, 0.5, 0.5, 0.5, 0.25], atol=1e-11)


@pytest.mark.medium
def test_derivatives_by_the_time_at_which_a_record_begins_to_act():
    r"""An event at $0.7 - y_0$ starts the motion by a record; an end time at a sample. With velocity $v = \int a\,dt$ since then,
    $dv/dy_0 = a(0.7 - y_0)$ and $d^2v/dy_0^2 = -\dot a$."""
    record, grid = jnp.array([0.3, -0.7, 1.1, 0.2, -0.9]), jnp.linspace(0.0, 2.0, 5)
    wait = hj.Mode(lambda t, x, p: jnp.stack([jnp.ones_like(t), 0 * t]), ("y", "v"))
    go = hj.Mode(lambda t, x, p: jnp.stack([0 * t, jnp.interp(t, grid, p)]), ("y", "v"))
    lands = hj.Transition("wait", "go", lambda t, x, p: 0.7 - x[0], lambda t, x, p: x)
    system = hj.HybridSystem({"wait": wait, "go": go}, (lands,))

    def speed(y, integrator=hj.Integrator()):
        x0 = jnp.stack([y, 0 * y])
        return hj.simulate(system, x0, record, mode="wait", t1=2.0, max_jumps=2, integrator=integrator).x[1]

    y = jnp.array(0.1)
    backwards = hj.Integrator(adjoint=dfx.RecursiveCheckpointAdjoint())
    assert_allclose(jax.jacfwd(speed)(y), -0.34, atol=1e-12)
    assert_allclose(jax.grad(lambda y: speed(y, backwards))(y), -0.34, atol=1e-12)
    assert_allclose(jax.hessian(speed)(y), -3.6, atol=1e-11)


@pytest.mark.medium
def test_a_ball_that_bounces_on_a_shaken_floor():
    """Derivatives by an interpolated record are those by a clock that holds the number of the sample, in arcs without a kink."""
    record, grid = jnp.array([3.0, -2.0, 2.0, 4.0, -1.0, 2.0]), jnp.linspace(0.0, 2.0, 6)
    fall = lambda signal: lambda t, x, p: jnp.stack([x[1], -9.81 - 0.3 * x[1] + signal(t, x, p) * jnp.cos(x[0])])

    def between(t, x, p):
        k = x[2].astype(int)
        return p[k] + (p[k + 1] - p[k]) * (t / 0.4 - x[2])

    lands = hj.Transition("fly", "fly", lambda t, x, p: x[0], lambda t, x, p: x.at[1].multiply(-0.8))
    fly = hj.Mode(fall(lambda t, x, p: jnp.interp(t, grid, p)), ("y", "v"))
    counted = hj.Mode(fall(between), ("y", "v"), held=("k",))
    ways = (hj.every(0.4, lambda t, x, p: x.at[2].add(1.0)), lands)

    def end(system, *held):
        x0 = lambda y: jnp.stack([y, 0 * y, *held])
        return lambda y, p: hj.simulate(system, x0(y), p, mode="fly", t1=1.6, max_jumps=8).x[:2]

    found = end(hj.HybridSystem({"fly": fly}, (lands,)))
    right = end(hj.HybridSystem({"fly": counted}, ways), jnp.array(0.0))
    y = jnp.array(1.0)
    for derivative, tolerance in (
        (jax.jacfwd, 1e-10),
        (lambda f: jax.jacfwd(f, argnums=1), 1e-10),
        (lambda f: jax.jacfwd(jax.jacfwd(f)), 1e-7),
    ):
        # Second derivatives through three impacts are of the size of 100.
        assert_allclose(derivative(found)(y, record), derivative(right)(y, record), atol=tolerance)
