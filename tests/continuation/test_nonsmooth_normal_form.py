"""Normal forms at grazing and grazing-sliding against closed forms: the linear impact oscillator, a piecewise linear map."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import expm
from systems import ROLLED

import hyjax as hj
from hyjax.models import linear_impact_oscillator as oscillator


def free_point(params):
    """Where the free oscillation reaches the wall: at the amplitude |k - w^2 + i c w| for a wall at 1."""
    exact = np.hypot(params.stiffness - params.frequency**2, params.damping * params.frequency)
    params = oscillator.Params(0.9 * exact, params.damping, params.stiffness, params.frequency)
    step = hj.ReturnMap(oscillator.system, sequence=("before",), integrator=ROLLED)
    lag = np.arctan2(params.damping * params.frequency, params.stiffness - params.frequency**2)
    start = jnp.array([0.9 * np.cos(np.pi + lag), 0.9 * params.frequency * np.sin(np.pi + lag), -np.pi])
    orbit = hj.periodic_orbit(step, start, params)
    branch = hj.continuation(orbit, where=lambda p: p.amplitude, stop=1.2 * exact, throw=False)
    (point,) = branch.special_points
    assert_allclose(point.value, exact, rtol=1e-12)
    return point


@pytest.mark.slow
def test_the_square_root_of_the_linear_impact_oscillator():
    """The closed form of the model's docstring, to first order in the phase of the impact: A = d (1 - rho psi) / R, and the speed
    before the impact is v psi; so the least gap of the free flow is -v^2 psi^2 / (2 w^2)."""
    c, k, w, e = 0.1, 1.0, 1.0, 0.8
    form = free_point(oscillator.Params()).normal_form
    matrix = np.array([[0, 1], [-k, -c]])
    undriven, size = expm(matrix * 2 * np.pi / w), 1 / np.hypot(k - w**2, c * w)
    one = (1 - undriven[0, 0]) / undriven[0, 1]
    other = undriven[1, 0] + undriven[1, 1] * one
    rho = (1 + e) * w / (one + e * other)
    speed = w * (-1 + other * (1 + e) / (one + e * other))
    assert form.kind == "grazing" and form.exponent == 0.5
    assert_allclose(form.gain, -rho * np.sqrt(2 * w**2) / speed, rtol=1e-11)
    assert_allclose(form.rate, -size, rtol=1e-11)
    assert_allclose(form.jacobian[:2, :2], undriven, atol=1e-12)
    # The impact turns the rate at the wall, where the acceleration is -w^2, a quarter of a period before the phase pi.
    kicked = expm(matrix * np.pi / 2) @ [0, -(1 + e) * w**2] * np.sqrt(2 / w**2)
    assert_allclose(form.beta, [*kicked, 0], atol=1e-11)
    assert not form.persists and form.criticality == (
        "nonsmooth fold: the orbit and an unstable one with impacts for amplitude < 0.1, neither beyond; "
        "beyond, no attractor near the orbit"
    )
    assert "gain" in str(form) and form.jacobians[0].shape == (3, 3)


@pytest.mark.slow
def test_the_same_from_the_side_that_hits_the_wall():
    """There the state of the map is that at the wall; what does not depend on coordinates is the same."""
    params = oscillator.Params(amplitude=0.09999206)
    guess = jnp.array([-0.00372, -0.999808, -np.pi])
    orbit = hj.periodic_orbit(oscillator.step, guess, params)
    (point,) = hj.continuation(orbit, where=lambda p: p.amplitude, stop=0.2, throw=False).special_points
    one, other = point.normal_form, free_point(oscillator.Params()).normal_form
    assert_allclose([one.rate, one.gain], [other.rate, other.gain], rtol=1e-9)
    assert one.criticality == other.criticality
    returns = lambda form: [form.slope @ np.linalg.matrix_power(form.jacobian, n) @ form.beta for n in range(4)]
    assert_allclose(returns(one), returns(other), rtol=1e-8)


@pytest.mark.slow
def test_what_attracts_beyond_by_the_leading_multiplier():
    """An overdamped mass returns from the wall on one side: the exponents are -0.5 and -2, and the multiplier exp(-pi / w)."""
    for w, words in ((1.0, "cascade"), (3.0, "cascade with bands of chaos between"), (10.0, "chaos")):
        form = free_point(oscillator.Params(1.0, 2.5, 1.0, w)).normal_form
        assert_allclose(form.multiplier, np.exp(-np.pi / w), rtol=1e-9)
        assert form.persists and form.gain > 0
        assert form.criticality.startswith("persistence: an unstable orbit with impacts for amplitude >")
        assert form.criticality.endswith(f"beyond, {words}" if w == 10 else f"beyond, a period-adding {words}")


@pytest.mark.medium
@pytest.mark.parametrize(
    "factor, words",
    [
        (-0.5, "persistence: a stable orbit that slides for height < 0"),
        (2.0, "nonsmooth fold: the orbit and one that slides for height > 0, neither beyond"),
        (
            -1.5,
            "persistence: a stable orbit that slides for height < 0; also orbits of twice the period for height > 0, stable",
        ),
    ],
)
def test_grazing_sliding_of_a_piecewise_linear_map(factor, words):
    """The height h + (s - 1)^2 over a surface that leads up from below; at s = 3 a factor multiplies its distance from the
    orbit. A flow that slides leaves at s = 1 and forgets its height: the multipliers are the factor and 0."""
    side = lambda rate: lambda t, x, p: jnp.stack([rate(x[1]) + 0 * x[0], jnp.ones_like(t)])
    slides = hj.filippov(
        {1: side(lambda s: 2 * (s - 1)), -1: side(lambda s: 1.0 + 0 * s)}, lambda t, x, p: x[0], ("y", "s")
    )
    again = lambda t, x, p: jnp.stack([p["height"] + 1 + p["factor"] * (x[0] - p["height"] - 4), 0 * x[1]])
    system = hj.HybridSystem(
        slides.modes, (*slides.transitions, hj.Transition("+", "+", lambda t, x, p: 3 - x[1], again))
    )
    step = hj.ReturnMap(system, sequence=("+",), integrator=ROLLED)
    params = {"factor": jnp.array(factor), "height": jnp.array(0.5)}
    orbit = hj.periodic_orbit(step, jnp.array([1.5, 0.0]), params)
    (point,) = hj.continuation(orbit, where=lambda p: p["height"], stop=-0.5, throw=False).special_points
    form = point.normal_form
    assert form.kind == "grazing-sliding" and form.exponent == 1
    assert_allclose([form.rate, form.gain], [1, factor / (1 - factor)], rtol=1e-11)
    assert_allclose(form.beta @ form.slope, factor, rtol=1e-11)
    miss, hit = form.jacobians
    assert_allclose(np.sort(np.linalg.eigvals(miss)), np.sort([0, factor]), atol=1e-11)
    assert_allclose(np.linalg.eigvals(hit), [0, 0], atol=1e-11)
    # The height of the point is zero up to rounding, and shown as zero.
    assert form.criticality == words


@pytest.mark.slow
def test_grazing_sliding_of_a_forced_flow_at_a_phase():
    """The height p + cos(t - pi / 4) / sqrt 2 of y' = p - y + cos t over a surface that leads up from below, by its state at the
    time 1: it touches the surface at p = 1 / sqrt 2, and by the multiplier m = exp(-2 pi) the gain is m / (1 - m)."""
    fields = {1: lambda t, x, p: p - x + jnp.cos(t), -1: lambda t, x, p: jnp.ones_like(x)}
    relay = hj.filippov(fields, lambda t, x, p: x[0], ("y",))
    step = hj.ReturnMap(relay, section=hj.Stroboscope("+", 2 * np.pi, phase=1.0), integrator=ROLLED)
    branch = hj.continuation(
        hj.periodic_orbit(step, jnp.array([1.7]), jnp.array(1.0)), where=lambda p: p, stop=0.5, throw=False
    )
    (point,) = branch.special_points
    assert point.kind == "grazing-sliding" and "grazing-sliding: the branch ends at" in str(branch)
    assert_allclose(point.value, np.sqrt(0.5), rtol=0, atol=1e-12)
    assert_allclose(point.orbit.x, [np.sqrt(0.5) * (1 + np.cos(1 - np.pi / 4))], rtol=1e-11)
    form, m = point.normal_form, np.exp(-2 * np.pi)
    assert form.kind == "grazing-sliding" and form.exponent == 1
    assert_allclose([form.rate, form.gain], [1, m / (1 - m)], rtol=1e-11)
    assert form.criticality == "persistence: a stable orbit that slides for params < 0.707107"


def clocked(t, x, p):
    return 0 * x + jnp.array([0.0, 0.0, 1.0])


def image(side):
    return lambda t, x, p: jnp.append(p[side] @ x[:2] + p["push"] * jnp.array([1.0, 0.3]), 0.0)


BORDER = hj.ReturnMap(
    hj.HybridSystem(
        {name: hj.Mode(clocked, ("x", "y", "clock")) for name in ("right", "left")},
        (
            hj.Transition("right", "right", lambda t, x, p: 1 - x[2], image("right")),
            hj.Transition("right", "left", lambda t, x, p: x[0], lambda t, x, p: x, at_once=True),
            hj.Transition("left", "right", lambda t, x, p: 1 - x[2], image("left")),
        ),
    ),
    sequence=("right",),
    integrator=ROLLED,
)


def at_border(right, left):
    """The point at which the fixed point of the map of two sides meets the border, from the side `right`, and where its state is
    for push = 1. The map is two modes with a clock: on the left of the border the second begins at once."""
    at = np.linalg.solve(np.eye(2) - right, [1, 0.3])
    params = {"push": jnp.array(np.sign(at[0])), "right": jnp.array(right), "left": jnp.array(left)}
    orbit = hj.periodic_orbit(BORDER, jnp.array([*np.sign(at[0]) * at, 0.0]), params)
    branch = hj.continuation(orbit, where=lambda p: p["push"], stop=-float(params["push"]), throw=False)
    (point,) = branch.special_points
    assert point.kind == "corner" and point.normal_form.exponent == 1 and abs(point.value) < 1e-12
    return point.normal_form, at


@pytest.mark.medium
def test_border_collisions_of_a_piecewise_linear_map_in_the_plane():
    """Feigin's rules against the fixed points of both sides and the cycle of period two, each by a linear equation."""
    rng, seen = np.random.default_rng(5), set()
    for _ in range(5):
        right = rng.uniform(-1.6, 1.6, (2, 2))
        left = np.column_stack([rng.uniform(-1.6, 1.6, 2), right[:, 1]])
        form, fixed = at_border(right, left)
        assert_allclose(form.rate, fixed[0], rtol=1e-9)
        miss, hit = (each[:2, :2] for each in form.jacobians)
        assert_allclose(miss, right, atol=1e-11)
        assert_allclose(hit, left, atol=1e-11)
        # The fixed point of the left side exists where its x is negative.
        assert form.persists == (np.linalg.solve(np.eye(2) - left, [1, 0.3])[0] * fixed[0] > 0)
        # One point of a cycle of period two on either side of the border: x = right (left x + b) + b.
        cycle = np.linalg.solve(np.eye(2) - right @ left, right @ [1, 0.3] + [1, 0.3])
        other = left @ cycle + [1, 0.3]
        doubled = "; also orbits of twice the period" in form.criticality
        below = sum(np.sum(np.linalg.eigvals(each).real < -1) for each in (right, left))
        assert doubled == bool(below % 2) and (doubled or form.persists or cycle[0] * other[0] > 0)
        if doubled:
            # Both are for push = 1: on the left of the border is that which `left` maps.
            assert cycle[0] * other[0] < 0
            stable = np.max(np.abs(np.linalg.eigvals(right @ left))) < 1
            side = f"push {'>' if cycle[0] < 0 else '<'} 0, {'stable' if stable else 'unstable'}"
            assert form.criticality.endswith(f"orbits of twice the period for {side}")
        seen.add((form.persists, doubled))
    assert len(seen) >= 3
    # I - left is singular: on that side there is no fixed point but at the border, where there is a line of them.
    form, _ = at_border(np.array([[0.5, 0.2], [0.3, 0.4]]), np.array([[0.9, 0.2], [0.3, 0.4]]))
    assert form.criticality.startswith("degenerate") and not form.persists


@pytest.mark.medium
def test_a_centre_beyond_a_border_is_not_stable():
    """Of determinant 1 on the left, with multipliers on the unit circle up to rounding of either sign."""
    for trace in (-0.5, 0.1, 0.5, 0.7, 1.7):
        form, _ = at_border(np.array([[0.5, 1.0], [-0.2, 0.0]]), np.array([[trace, 1.0], [-1.0, 0.0]]))
        assert "an unstable orbit" in form.criticality and "a stable" not in form.criticality


@pytest.mark.medium
@pytest.mark.parametrize("a", [-1.7, -0.6, 0.5, 1.6])
def test_the_skew_tent_map_in_all_cases(a):
    """push + a x for x > 0 and push + b x for x < 0: fixed points 1 / (1 - a) and 1 / (1 - b), and a cycle (b + 1, a + 1) /
    (1 - a b) times push, each where its signs are right."""
    for b in (-1.7, -0.4, 0.7, 1.8):
        form, _ = at_border(np.diag([a, 0]), np.diag([b, 0]))
        own, other = (">" if a < 1 else "<"), (">" if b > 1 else "<")
        expected = f"persistence: {'a stable' if abs(b) < 1 else 'an unstable'} orbit where the guard has fired at once"
        if own == other:
            expected = "nonsmooth fold: the orbit and one where the guard has fired at once"
        expected += f" for push {other} 0" + ", neither beyond" * (own == other)
        if (a < -1) != (b < -1):
            cycle = ">" if (b + 1) / (1 - a * b) > 0 else "<"
            how = "stable" if abs(a * b) < 1 else "unstable"
            expected += f"; also orbits of twice the period for push {cycle} 0, {how}"
        assert form.criticality == expected
