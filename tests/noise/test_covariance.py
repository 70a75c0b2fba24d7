"""Covariance through events: closed forms, products of saltation matrices, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED, same

import hyjax as hj
from hyjax.models import bouncing_ball, simplest_walker

# A ball that falls from rest, bounces once, and rises: everything is explicit.
END, GRAVITY = 0.8, 9.81


def drift(t, sigma, w):
    """A covariance after free fall for a time t: with Phi = (1 t; 0 1), and the integral of Phi(s) W Phi(s)^T over s."""
    phi = jnp.array([[1.0, 0.0], [0.0, 1.0]]) + t * jnp.array([[0.0, 1.0], [0.0, 0.0]])
    a, b, c = w[0, 0], w[0, 1], w[1, 1]
    corner = b * t + c * t**2 / 2
    driven = jnp.stack([a * t + b * t**2 + c * t**3 / 3, corner, corner, c * t]).reshape(2, 2)
    return phi @ sigma @ phi.T + driven


def ball_in_closed_form(e, sigma, w, level, reset):
    fall = jnp.sqrt(2 / GRAVITY)
    v = -GRAVITY * fall
    xi = jnp.stack([-e, 0 * e, -(1 + e) * GRAVITY / v, -e]).reshape(2, 2)
    late = -(1 + e) * jnp.stack([1.0, GRAVITY / v])
    before = drift(fall, sigma, w)
    after = xi @ before @ xi.T + level * jnp.outer(late, late) + reset
    return before, after, drift(END - fall, after, w)


@pytest.mark.medium
def test_bouncing_ball_in_closed_form():
    """One bounce with all three kinds of noise, and the derivative by the coefficient of restitution. Five lanes: a full
    covariance, one of rank one, none, that of the first with all noise at 1e-14 times its size, and no covariance with such
    noise."""

    def found(e, sigma, w, level, reset):
        ball = bouncing_ball.Params(restitution=e)
        noise = hj.noise.Noise(flow=w, guard={("flight", "flight"): level}, reset={0: reset})
        start = jnp.array([1.0, 0.0])
        run = hj.noise.covariance(
            bouncing_ball.system, start, sigma, ball, mode="flight", t1=END, noise=noise, max_jumps=2, integrator=ROLLED
        )
        return run.sigma, (run.sigma_ends[0], run.sigma_starts[1], run.sigma, run.result)

    full, line = np.array([[2e-4, 3e-5], [3e-5, 1e-4]]), np.outer([1e-2, 3e-2], [1e-2, 3e-2])
    w, reset = np.array([[1e-4, -1e-5], [-1e-5, 3e-4]]), np.array([[0.0, 0.0], [0.0, 2e-5]])
    small = 1e-14
    e = jnp.array([0.8, 0.5, 0.9, 0.8, 0.8])
    inputs = [
        [full, line, 0 * full, small * full, 0 * full], [w, 0 * w, w, small * w, small * w],
        [1e-5, 0.0, 2e-5, small * 1e-5, small * 1e-5], [reset, 0 * reset, 0 * reset, small * reset, small * reset],
    ]  # fmt: skip
    inputs = [jnp.array(np.stack(each)) for each in inputs]
    slope, (before, after, end, result) = jax.jit(jax.vmap(jax.jacfwd(found, has_aux=True)))(e, *inputs)
    assert np.all(result == hj.RESULTS.successful)
    # A few hundred roundings: of the flow's steps, of the speed of impact, by which is divided, and of products.
    for got, expected in zip((before, after, end), jax.vmap(ball_in_closed_form)(e, *inputs), strict=True):
        scale = np.max(np.abs(expected), axis=(1, 2), keepdims=True)
        assert_allclose(got / scale, expected / scale, rtol=0, atol=3e-14)
    by_e = jax.vmap(jax.jacfwd(lambda *each: ball_in_closed_form(*each)[2]))(e, *inputs)
    scale = np.max(np.abs(by_e), axis=(1, 2), keepdims=True)
    assert_allclose(slope / scale, by_e / scale, rtol=0, atol=1e-12)
    assert_allclose(end, np.swapaxes(end, 1, 2), rtol=0, atol=0)
    # The equations are linear in all noise, and the unit is a power of two: only roundings of the noise itself differ.
    assert_allclose(end[3], small * end[0], rtol=1e-13)
    # Of rank one before the bounce and after it.
    spectrum = np.linalg.eigvalsh(end[1])
    assert abs(spectrum[0]) < 1e-14 * spectrum[1]


# A mode of two coordinates and one of three, whose flow, guard and reset depend on time.
def swing(t, x, p):
    return jnp.stack([x[1], -jnp.sin(x[0]) - 0.1 * x[1] + jnp.cos(2 * t)])


def carried(t, x, p):
    return jnp.stack([x[1] + x[2], -x[0] * x[2] + 0.3 * jnp.sin(t), -p["decay"] * x[2] + x[0]])


MIXED = hj.HybridSystem(
    {"two": hj.Mode(swing, ("a", "b")), "three": hj.Mode(carried, ("a", "b", "c"))},
    (
        hj.Transition(
            "two",
            "three",
            lambda t, x, p: 1.2 + 0.1 * jnp.sin(3 * t) - x[0],
            lambda t, x, p: jnp.stack([x[0], 0.5 * x[1] + 0.1 * t, x[0] * x[1]]),
        ),
        hj.Transition(
            "three",
            "two",
            lambda t, x, p: x[0] + 0.2 * x[2] - 0.1 * t,
            lambda t, x, p: jnp.stack([x[2] - x[0], x[1] ** 2 + x[2] * jnp.sin(t)]),
        ),
    ),
)


@pytest.mark.medium
def test_small_covariances_about_a_state_that_sets_no_steps():
    r"""x' = a x at 0 beside a clock: the variance $e^{2 a t} \sigma + W (e^{2 a t} - 1) / 2 a$ has its relative tolerance also
    where it is far smaller than the absolute tolerance. The steps follow the variance alone."""
    field = lambda t, x, p: jnp.stack([p * x[0], 1 + 0 * x[1]])
    system = hj.HybridSystem(
        {"m": hj.Mode(field, ("x", "clock"))}, (hj.Transition("m", "m", lambda t, x, p: 2 - x[1], same),)
    )

    def found(sigma, w):
        alone = jnp.array([[1.0, 0.0], [0.0, 0.0]])
        run = hj.noise.covariance(
            system, jnp.zeros(2), sigma * alone, jnp.array(2.0), mode="m", t1=1.5, noise=hj.noise.Noise(flow=w * alone),
            integrator=ROLLED,
        )  # fmt: skip
        return run.sigma[0, 0]

    sigma, w = np.array([1e-24, 0.0, 1e-24, 0.3]), np.array([0.0, 1e-22, 1e-26, 2.0])
    grown = np.exp(6.0)
    expected = grown * sigma + w * (grown - 1) / 4
    assert_allclose(jax.jit(jax.vmap(found))(jnp.asarray(sigma), jnp.asarray(w)), expected, rtol=1e-12)


@pytest.mark.medium
def test_modes_of_different_dimension_and_time():
    """Without noise the product with the fundamental matrix, which is found by other code, at each time."""
    root = np.random.default_rng(0).normal(size=(2, 2))
    sigma0, x0, times = jnp.array(root @ root.T), jnp.array([0.2, 1.0]), jnp.array([0.4, 2.0, 3.5, 6.0, 7.0])
    params, options = {"decay": jnp.array(0.7)}, {"mode": "two", "max_jumps": 8, "integrator": ROLLED}
    run = hj.noise.covariance(MIXED, x0, sigma0, params, t1=6.0, times=times, **options)
    phi_at = jax.jit(lambda t1: hj.simulate(MIXED, x0, params, t1=t1, **options).fundamental_matrix())
    assert run.sigma_samples is not None and run.trajectory.samples is not None
    assert int(run.trajectory.jumps) >= 2 and set(np.asarray(run.trajectory.samples.mode)) == {0, 1, -1}
    # Samples are steps to the time of the sample: the same numbers up to the tolerance of the steps.
    for time, found in [(6.0, run.sigma), *zip(times[:4], run.sigma_samples, strict=False)]:
        phi = np.asarray(phi_at(time))[:, :2]
        expected = phi @ sigma0 @ phi.T
        scale = np.max(np.abs(expected))
        assert_allclose(found, expected, rtol=0, atol=1e-12 * scale)
        assert np.min(np.linalg.eigvalsh(found)) > -1e-13 * scale
    assert np.all(np.isnan(run.sigma_samples[4]))
    # The end is in the mode of two coordinates or of three, and padded in the one.
    n = run.trajectory.final.size
    assert run.final.shape == (n, n) and np.all(run.sigma[n:] == 0)


# A coordinate that relaxes, and is reset at the end of each unit of time; by a clock of its own in the second system.
RATE, FACTOR, TARGET = 0.9, 0.6, 1.5


def relax(t, x, p):
    return jnp.stack([-p["rate"] * (x[0] - TARGET), jnp.ones(())])


def relaxing(guard):
    leap = lambda t, x, p: jnp.stack([FACTOR * x[0], 0 * x[1]])
    return hj.HybridSystem({"m": hj.Mode(relax, ("x", "clock"))}, (hj.Transition("m", "m", guard, leap),))


BY_TIME = relaxing(lambda t, x, p: -jnp.sin(2 * jnp.pi * t) / (2 * jnp.pi))
BY_CLOCK = relaxing(lambda t, x, p: 1 - x[1])
UNCERTAIN = hj.noise.Noise(flow=np.diag([0.04, 0.0]), guard=0.01, reset=np.diag([0.03, 0.0]))


def relaxing_orbit(system, rate):
    return hj.periodic_orbit(
        hj.ReturnMap(system, sequence=("m",), integrator=ROLLED), jnp.array([0.5, 0.0]), {"rate": rate}
    )


def relaxed(rate, fixed_time):
    """The variance of x in closed form, an Ornstein-Uhlenbeck process between resets. A late event lengthens the flow before it,
    and at fixed time it shortens the flow after it."""
    kept = jnp.exp(-rate)
    end = TARGET * (1 - kept) / (1 - kept * FACTOR)
    late = -rate * FACTOR * (end - TARGET) + (rate * (FACTOR * end - TARGET) if fixed_time else 0)
    driven = FACTOR**2 * 0.04 * (1 - kept**2) / (2 * rate) + 0.03 + 0.01 * late**2
    return driven / (1 - (FACTOR * kept) ** 2)


@pytest.mark.slow
def test_stationary_covariance_in_closed_form():
    """On the section and at fixed time; with the derivative by a parameter, through the orbit."""

    def found(rate):
        orbit = relaxing_orbit(BY_TIME, rate)
        sigma = [hj.noise.stationary_covariance(orbit, noise=UNCERTAIN, fixed_time=fixed) for fixed in (False, True)]
        return (jnp.stack([each[0, 0] for each in sigma]),) * 2

    slope, sigma = jax.jit(jax.jacfwd(found, has_aux=True))(jnp.array(RATE))
    # A few tens of roundings, of the flow and of the sum over the strides.
    assert_allclose(sigma, [relaxed(RATE, fixed) for fixed in (False, True)], rtol=1e-13)
    assert_allclose(slope, [jax.grad(relaxed)(RATE, fixed) for fixed in (False, True)], rtol=1e-12)


@pytest.mark.slow
def test_stationary_covariance_of_an_autonomous_system():
    orbit = relaxing_orbit(BY_CLOCK, jnp.array(RATE))
    sigma = hj.noise.stationary_covariance(orbit, noise=UNCERTAIN)
    # The clock is known at the section. At fixed time nothing restores it.
    assert_allclose(sigma, [[relaxed(RATE, False), 0], [0, 0]], rtol=1e-13, atol=1e-15)
    assert np.all(np.isinf(hj.noise.stationary_covariance(orbit, noise=UNCERTAIN, fixed_time=True)))


@pytest.mark.medium
def test_sliding_is_found_as_in_a_simulation():
    """Across a relay's surface the state is unchanged and the covariance is not."""
    away = lambda speed: hj.Mode(lambda t, x, p: speed + 0 * x, ("x",))
    relay = hj.HybridSystem(
        {"above": away(-1.0), "below": away(2.0)},
        (
            hj.Transition("above", "below", lambda t, x, p: x[0], same),
            hj.Transition("below", "above", lambda t, x, p: -x[0], same),
        ),
    )
    start, options = jnp.array([0.5]), {"mode": "above", "t1": 2.0, "max_jumps": 3, "integrator": ROLLED}
    run = hj.noise.covariance(relay, start, jnp.eye(1), None, **options, throw=False)
    assert run.result == hj.RESULTS.sliding
    assert_allclose(run.trajectory.t, 0.5, rtol=1e-15)
    assert_allclose(run.final, [[4.0]], rtol=1e-15)


def test_misuse():
    start, ball, two = jnp.array([1.0, 0.0]), bouncing_ball.Params(), np.eye(2)

    def refused(message, sigma=two, system=bouncing_ball.system, x0=start, params=ball, mode="flight", t1=1.0, **noise):
        with pytest.raises(ValueError, match=message):
            hj.noise.covariance(system, x0, jnp.asarray(sigma), params, mode=mode, t1=t1, noise=hj.noise.Noise(**noise))

    refused(r"sigma0 of shape \(3, 3\) must have the shape \(2, 2\)", np.eye(3))
    for wrong in ([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]], -two):
        refused("sigma0 must be symmetric and positive semidefinite, not", wrong)
        refused("flow of mode 'flight' must be symmetric and positive semidefinite", flow=np.array(wrong))
        refused("reset of transition 'flight' -> 'flight' must be symmetric", reset=np.array(wrong))
    refused(r"flow of mode 'flight' of shape \(3, 3\) must have the shape \(2, 2\)", flow=np.eye(3))
    refused(r"flow of mode 'flight' must return shape \(2, 2\), not \(2,\)", flow=lambda t, x, p: x)
    refused("mode of Noise\\(flow=...\\) 'rest' is not one of the modes", flow={"rest": two})
    refused(
        "guard is given for .*floor.*, which is no transition. Give the index or the modes",
        guard={("flight", "floor"): 1.0},
    )
    refused("reset is given for 1, which is no transition", reset={1: two})
    refused("finite and at least 0, not -1.0", guard=-1.0)
    refused(r"a variance, of shape \(\), not \(2,\)", guard=np.ones(2))
    refused("t1=-1.0 lies before the start time", t1=-1.0)
    refused("shape \\(1,\\) does not fit mode 'flight'", x0=jnp.ones(1))
    mixed = {"system": MIXED, "params": {"decay": jnp.array(0.7)}, "mode": "two"}
    refused("flow is one matrix, but the modes have the dimensions {'two': 2, 'three': 3}. Give one", flow=two, **mixed)
    refused("reset of transition 'three' -> 'two' of shape \\(3, 3\\)", reset={("three", "two"): np.eye(3)}, **mixed)


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["flow", "guard", "reset"])
def test_a_function_that_gives_no_covariance_is_nonfinite(kind):
    """Of a negative variance, and of a covariance beyond what its variances allow; a matrix of rank one is a covariance."""
    matrices = [
        [[1.0, 0.0], [0.0, -1e-3]],
        [[1.0, 1.1], [1.1, 1.0]],
        [[1e-6, 1e-3], [1e-3, 1.0]],
        [[0.0, 0.0], [0.0, 1.0]],
    ]
    values = jnp.array([-1e-3, jnp.nan, 1.0, 0.0]) if kind == "guard" else jnp.array(matrices)

    def end(value):
        noise = hj.noise.Noise(**{kind: lambda t, x, p: value + 0 * x[0]})
        run = hj.noise.covariance(
            bouncing_ball.system, jnp.array([1.0, 0.0]), jnp.zeros((2, 2)), bouncing_ball.Params(), mode="flight", t1=END,
            noise=noise, max_jumps=2, integrator=ROLLED, throw=False,
        )  # fmt: skip
        return run.result == hj.RESULTS.nonfinite, run.result == hj.RESULTS.successful, run.sigma

    failed, found, sigma = jax.jit(jax.vmap(end))(values)
    assert failed.tolist() == [True, True, False, False] and found.tolist() == [False, False, True, True]
    assert np.all(np.linalg.eigvalsh(sigma[2:]) > -1e-12)


@pytest.mark.medium
def test_gradient_of_the_covariance_in_reverse_mode():
    """By the coefficient of restitution and by all noise, against the derivative of the closed form."""
    mix = jnp.array([[0.3, -1.0], [0.4, 0.8]])
    x0, w = jnp.array([1.0, 0.0]), jnp.array([[1e-2, -1e-3], [-1e-3, 3e-2]])

    def mixed(values):
        e, size, intensity, level, reset = values
        noise = hj.noise.Noise(flow=intensity * w, guard=level, reset=reset * jnp.eye(2))
        run = hj.noise.covariance(
            bouncing_ball.system, x0, size * jnp.eye(2), bouncing_ball.Params(restitution=e), mode="flight", t1=END,
            noise=noise, max_jumps=2, integrator=ROLLED,
        )  # fmt: skip
        return jnp.sum(mix * run.sigma)

    def exact(values):
        e, size, intensity, level, reset = values
        return jnp.sum(mix * ball_in_closed_form(e, size * jnp.eye(2), intensity * w, level, reset * jnp.eye(2))[2])

    values = jnp.array([0.8, 2e-2, 1.0, 1e-3, 5e-3])
    assert_allclose(jax.jit(jax.grad(mixed))(values), jax.jit(jax.jacfwd(exact))(values), rtol=1e-12)


@pytest.mark.slow
def test_stationary_covariance_of_the_walker(walker):
    """One stride from the stationary covariance leads back to it, with the section's derivative from those of reset and guard."""
    orbit = walker["long_0.009"]
    noise = hj.noise.Noise(flow=np.diag([0.0, 1e-4, 0.0, 3e-4]), guard=1e-6)
    sigma = hj.noise.stationary_covariance(orbit, noise=noise)
    system, options = simplest_walker.system, {"mode": "swing", "t1": float(orbit.period) * 1.01, "max_jumps": 1}
    run = hj.noise.covariance(system, orbit.x, sigma, orbit.params, noise=noise, integrator=ROLLED, **options)
    way, t, x = system.transitions[0], run.trajectory.end_times[0], run.trajectory.x_ends[0]
    f = system.mode("swing").vector_field(t, x, orbit.params)
    gradient = jax.grad(lambda x: way.guard(t, x, orbit.params))(x)
    reset = jax.jacfwd(lambda x: way.reset(t, x, orbit.params))(x)
    rate = gradient @ f
    onto = reset @ (jnp.eye(4) - jnp.outer(f, gradient) / rate)
    late = reset @ f / rate
    again = onto @ run.sigma_ends[0] @ onto.T + 1e-6 * jnp.outer(late, late)
    scale = np.max(np.abs(sigma))
    # Rounding and the tolerance of the steps, times the sum over strides: the spectral radius is 0.59.
    assert_allclose(again, sigma, rtol=0, atol=1e-11 * scale)
    # As `stride_covariance`, of rank two: the starts are on phi = 2 theta.
    assert_allclose(sigma[0] * 2, sigma[2], rtol=1e-9, atol=1e-13 * scale)


# A coordinate that relaxes, and is reset where it meets a threshold that moves in time: the events of neighbours are at other
# times, and other phases.
LEVEL, SPEED, DRIVE = 0.6, -0.7, 1.2


def met(rate):
    """The state before the jump at t = 1, of an orbit of period 1."""
    kept = jnp.exp(-rate)
    return DRIVE / rate * (1 - kept) / (1 - kept * LEVEL)


def threshold(t, x, p):
    return met(p) + SPEED * jnp.sin(2 * jnp.pi * t) / (2 * jnp.pi) - x[0]


THRESHOLD = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: DRIVE - p * x, ("x",))},
    (hj.Transition("m", "m", threshold, lambda t, x, p: LEVEL * x),),
)


def at_own_threshold(rate, fixed_time):
    """In closed form: an Ornstein-Uhlenbeck process, and scalars for the saltation matrix and the response to guard noise."""
    kept, before = jnp.exp(-rate), met(rate)
    fall = DRIVE - rate * before
    guard_rate = SPEED - fall
    late = (DRIVE - rate * LEVEL * before - LEVEL * fall) / guard_rate
    driven = 0.04 * (1 - kept**2) / (2 * rate)
    jump = LEVEL - late
    after = (jump**2 * driven + late**2 * 0.01 + 0.03) / (1 - (jump * kept) ** 2)
    late_own = -LEVEL * fall / guard_rate
    own = (LEVEL - late_own) ** 2 * (kept**2 * after + driven) + late_own**2 * 0.01 + 0.03
    return after if fixed_time else own


@pytest.mark.medium
@pytest.mark.parametrize("fixed_time", [True, False])
def test_stationary_covariance_with_a_guard_of_time_and_state(fixed_time):
    rate = jnp.array(0.9)
    noise = hj.noise.Noise(flow=np.array([[0.04]]), guard=0.01, reset=np.array([[0.03]]))
    orbit = hj.periodic_orbit(
        hj.ReturnMap(THRESHOLD, sequence=("m",), integrator=ROLLED), LEVEL * met(rate)[None], rate
    )
    assert_allclose(orbit.period, 1, rtol=1e-12)
    sigma = hj.noise.stationary_covariance(orbit, noise=noise, fixed_time=fixed_time)
    # A few tens of roundings, of the flow and of the sum over the strides.
    assert_allclose(sigma, [[at_own_threshold(rate, fixed_time)]], rtol=1e-12)


@pytest.mark.medium
def test_noise_across_a_surface_along_which_the_flow_slides():
    """The flow leads back at once what noise takes off the surface y = x / 2, along the jump (0, 2) of the field."""
    side = lambda sign: lambda t, x, p: jnp.stack([-x[0], -x[0] / 2 - sign])
    relay = hj.filippov({1: side(1), -1: side(-1)}, lambda t, x, p: x[1] - x[0] / 2, ("x", "y"))
    noise = hj.noise.Noise(flow=np.array([[0.1, 0.2], [0.2, 0.5]]))
    sigma0, start = jnp.diag(jnp.array([0.2, 0.3])), jnp.array([1.0, 1.0])
    found = hj.noise.covariance(
        relay, start, sigma0, None, mode="+", t1=2.0, noise=noise, max_jumps=2, integrator=ROLLED
    )
    assert found.trajectory.mode_names == ("+", "0")
    # Of x alone, whose equation knows nothing of the surface: and y is x / 2.
    variance = 0.2 * np.exp(-4) + 0.1 * (1 - np.exp(-4)) / 2
    # The integrator's tolerance, of a few tens of steps.
    assert_allclose(found.sigma, variance * np.outer([1, 0.5], [1, 0.5]), rtol=0, atol=1e-12)


@pytest.mark.medium
def test_noise_across_two_surfaces_along_which_the_flow_slides():
    """The flow leads back to the z axis along the jumps, (-2, 0, c) and (0, -2, 0), of the field across both: the equation of z +
    c x / 2 knows nothing of the surfaces."""
    sides = {
        (a, b): lambda t, x, p, a=a, b=b: jnp.stack([-a + 0 * x[0], -b + 0 * x[1], p * a / 2 - x[2]])
        for a in (1, -1) for b in (1, -1)
    }  # fmt: skip
    corner = hj.filippov(sides, (lambda t, x, p: x[0], lambda t, x, p: x[1]), ("x", "y", "z"))
    noise, start = hj.noise.Noise(flow=np.diag([0.1, 0.2, 0.3])), jnp.array([0.0, 0.0, 1.0])
    at = jax.jit(
        lambda c: (
            hj.noise.covariance(
                corner,
                start,
                jnp.diag(jnp.array([0.0, 0.0, 0.2])),
                c,
                mode="00",
                t1=2.0,
                noise=noise,
                max_jumps=2,
                integrator=ROLLED,
            ).sigma
        )
    )
    for c in (0.0, 1.0):
        level = 0.3 + 0.1 * c**2 / 4
        variance = 0.2 * np.exp(-4) + level * (1 - np.exp(-4)) / 2
        # The integrator's tolerance, of a few tens of steps.
        assert_allclose(at(jnp.array(c)), np.diag([0, 0, variance]), rtol=0, atol=1e-12)
