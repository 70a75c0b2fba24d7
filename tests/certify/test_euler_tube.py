"""Tubes of Euler's method: exact solutions of linear systems in them, the walker of the ORBITADOR page, and what is no proof."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from orbitador_page import PARAMS, printed_walker, RADIUS, START, STEPS, TAU, W, walker
from scipy.linalg import expm
from systems import same

import hyjax as hj
from hyjax._testing import euler_tube
from hyjax.certify import (
    logarithmic_norm,
    OneSidedLipschitz,
    published_radius,
    radial_quotient,
    sharp_radius,
)

LINEAR = hj.HybridSystem({"flow": hj.Mode(lambda t, x, p: p @ x, ("x", "y", "z"))}, ())


def walk(steps, osl=radial_quotient(), formula=published_radius, system=walker, every=None):
    """The tube of the page's walker."""
    return euler_tube(
        system, jnp.asarray(START), PARAMS, tau=TAU, steps=steps, radius=RADIUS, disturbance=W, osl=osl, formula=formula,
        every=every, max_jumps=10,
    )  # fmt: skip


# Exact solutions of linear systems


def solutions(matrix, starts, disturbances, tau):
    """Exact solutions of x' = A x + w with a w that is constant in each step: shape `(steps + 1, solutions, n)`."""
    n = len(matrix)
    whole = expm(np.block([[matrix, np.eye(n)], [np.zeros((n, 2 * n))]]) * tau)
    flow, response = whole[:n, :n], whole[:n, n:]
    rows = [starts]
    for w in disturbances:
        rows.append(rows[-1] @ flow.T + w @ response.T)
    return np.stack(rows)


def on_sphere(rng, *shape):
    ways = rng.normal(size=shape)
    return ways / np.linalg.norm(ways, axis=-1, keepdims=True)


@pytest.mark.parametrize("seed", range(4))
def test_a_linear_tube_holds_the_disturbed_solutions(seed):
    """The logarithmic norm of a linear system is its one-sided Lipschitz constant everywhere: no disturbed solution leaves, and
    one that is pushed outwards comes near to the border. With the radial quotient solutions leave."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(3, 3)) - 0.5 * seed * np.eye(3)
    x0, tau, steps, radius, b = rng.normal(size=3), 0.01, 300, 0.05, 0.02
    tube = lambda osl, formula: euler_tube(
        LINEAR, jnp.asarray(x0), jnp.asarray(matrix), tau=tau, steps=steps, radius=radius, disturbance=b, osl=osl, formula=formula
    )  # fmt: skip
    true = tube(logarithmic_norm(), sharp_radius)
    euler = np.asarray(true.states)
    assert len(euler) == steps + 1 and true.autonomous and not true.guarded and bool(true.enclosed)
    # Held disturbances, random, and of the greatest size in the direction of the fastest growth.
    fastest = np.linalg.eigh((matrix + matrix.T) / 2)[1][:, -1]
    ways = np.concatenate([on_sphere(rng, 200, 3), [fastest, -fastest]])
    held = on_sphere(rng, steps, 202, 3)
    held[:, 200:] = [fastest, -fastest]
    away = np.linalg.norm(solutions(matrix, x0 + radius * ways, b * held, tau) - euler[:, None], axis=2)
    largest = np.max(away, axis=1)
    # Rounding of the matrix exponential.
    assert np.all(largest <= np.asarray(true.radii) * (1 + 1e-12))
    assert np.all(largest <= np.asarray(tube(logarithmic_norm(), published_radius).radii) * (1 + 1e-12))
    # Only the first steps grow in the direction of the fastest growth; the slope |A| |f| is more than |A f|.
    assert largest[2] > 0.95 * float(true.radii[2])
    assert np.any(largest > tube(radial_quotient(), sharp_radius).radii)
    assert_allclose(true.osl_sums[-1], steps * np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1], rtol=1e-12)


def test_a_radius_that_grows_by_less_than_its_rounding_in_a_step_grows():
    """x' = w, |w| <= 2^-50, in steps of 2^-10: after n of them a solution is 1 + 2^-60 n away, which no float next to 1 is."""
    still = hj.HybridSystem({"flow": hj.Mode(lambda t, x, p: 0 * x, ("x",))}, ())
    tube = euler_tube(
        still,
        jnp.zeros(1),
        None,
        tau=2.0**-10,
        steps=50,
        radius=1.0,
        disturbance=2.0**-50,
        osl=logarithmic_norm(),
        every=1,
    )
    for n, radius in enumerate(tube.radii.tolist()):
        assert 1 + Fraction(n, 2**60) <= Fraction(radius) < 1 + 1e-10


def test_the_steps_are_those_of_the_formulas():
    """State, radius and sums against a loop in Python, for a vector field that depends on time."""
    field = lambda t, x, p: jnp.stack([x[1], -p * jnp.sin(x[0]) + jnp.cos(3 * t)])
    system = hj.HybridSystem({"swing": hj.Mode(field, ("angle", "rate"))}, ())
    tau, steps, t0 = 0.01, 100, 0.4
    tube = lambda osl, formula: euler_tube(
        system, jnp.array([0.3, -0.2]), 2.0, tau=tau, steps=steps, radius=0.01, disturbance=1e-3, osl=osl, formula=formula, t0=t0,
        every=30,
    )  # fmt: skip
    for formula in (sharp_radius, published_radius):
        radial, true = tube(radial_quotient(), formula), tube(logarithmic_norm(), formula)
        assert not radial.autonomous
        assert_allclose(radial.times, t0 + tau * np.array([0, 30, 60, 90, 100]), rtol=1e-15)
        for found, index in ((radial, 0), (true, 1)):
            x, r, total, positive = np.array([0.3, -0.2]), 0.01, 0.0, 0.0
            for i in range(steps):
                t = t0 + i * tau
                rate = np.array([x[1], -2 * math.sin(x[0]) + math.cos(3 * t)])
                jacobian = np.array([[0, 1], [-2 * math.cos(x[0]), 0]])
                osl = (x @ jacobian @ x / (x @ x), np.linalg.eigvalsh((jacobian + jacobian.T) / 2)[-1])[index]
                slope = np.linalg.norm(jacobian, 2) * np.linalg.norm(rate) + 3 * abs(math.sin(3 * t))
                r, total, positive = float(formula(r, tau, osl, slope, 1e-3)), total + osl, positive + max(osl, 0)
                x = x + tau * rate
            # Rounding of 100 steps, and what the tube adds to cover it: 64 units in the last place in each step.
            assert_allclose(found.states[-1], x, rtol=1e-12)
            assert_allclose(found.radii[-1], r, rtol=1e-11)
            assert_allclose([found.osl_sums[-1], found.osl_positive[-1]], [total, positive], rtol=1e-12)


def test_jumps_between_modes():
    """A point that runs between two walls through two modes, with a transition that is not armed: against a loop in Python."""
    runs = {
        name: hj.Mode(lambda t, x, p, v=v: jnp.stack([v * p, x[0]]), ("x", "y"))
        for name, v in (("up", 1.0), ("down", -1.0))
    }
    ways = (
        hj.Transition("up", "up", lambda t, x, p: 0.5 - x[0], lambda t, x, p: 0 * x, lambda t, x, p: x[1] > 100),
        hj.Transition("up", "down", lambda t, x, p: 1 - x[0], lambda t, x, p: jnp.stack([x[0], 2 * x[1]])),
        hj.Transition("down", "up", lambda t, x, p: x[0], same),
    )
    system = hj.HybridSystem(runs, ways)
    run = lambda **more: euler_tube(
        system, jnp.array([0.0, 1.0]), jnp.array(1.0), tau=0.07, steps=70, radius=0.1, mode="up", every=1, **more
    )  # fmt: skip
    found = run()
    x, y, mode, hits = 0.0, 1.0, 0, []
    for i in range(70):
        before = x
        x, y = x + 0.07 * (1 - 2 * mode), y + 0.07 * x
        if (mode == 0 and before < 1 <= x) or (mode == 1 and before > 0 >= x):
            y, mode = y * (2 - mode), 1 - mode
            hits.append(i + 1)
        assert_allclose(found.states[i + 1], [x, y], atol=1e-12)
        assert int(found.modes[i + 1]) == mode
    assert len(hits) >= 4 and found.jump_steps[: len(hits)].tolist() == hits and int(found.jumps) == len(hits)
    assert np.all(np.asarray(found.jump_steps)[len(hits) :] == -1)
    assert_allclose(found.jump_states[: len(hits)], np.asarray(found.states)[hits], rtol=0)
    assert str(found.result) == "successful" and "D3" in " ".join(found.reasons) and not found.sound

    few = run(max_jumps=2)
    assert few.result == "max_jumps_reached" and int(few.jumps) == 2 and "max_jumps_reached" in str(few)
    late = np.arange(71) >= hits[2]
    assert np.all(np.isnan(np.asarray(few.radii)) == late) and np.all((np.asarray(few.modes) == -1) == late)
    with pytest.raises(ValueError, match="give the first mode"):
        euler_tube(system, jnp.zeros(2), jnp.array(1.0), tau=0.1, steps=3, radius=0.1)


# The walker


@pytest.mark.medium
def test_the_first_impact_of_the_walker():
    """Step 99223 (independent reference), the misprinted reset, and radius and sum of lambda by a loop in Python."""
    steps = 99_400
    tube = walk(steps, every=1)
    assert tube.jump_steps[:2].tolist() == [99_223, -1]
    before, after = np.asarray(tube.states[99_222]), np.asarray(tube.states[99_223])
    assert 2 * before[0] - before[2] > 0 and after[2] == -2 * before[0] - 2 * TAU * before[1]
    # Unchanged by the reset: a step of it is below 1e-6 of the radius.
    assert_allclose(tube.radii[99_223], tube.radii[99_222], rtol=1e-4)

    x, r, total = START.tolist(), RADIUS, 0.0
    for _ in range(200):
        p1, v1, p2, v2 = x
        sine, cosine = math.sin(p1 - 0.009), math.cos(p1 - 0.009)
        f = np.array([v1, sine, v2, sine + (v1**2 - cosine) * math.sin(p2)])
        J = np.zeros((4, 4))
        J[0, 1] = J[2, 3] = 1
        J[1, 0] = cosine
        J[3, :3] = cosine + sine * math.sin(p2), 2 * v1 * math.sin(p2), (v1**2 - cosine) * math.cos(p2)
        osl = x @ J @ x / np.dot(x, x)
        r = float(published_radius(r, TAU, osl, np.linalg.norm(J, 2) * np.linalg.norm(f), W))
        total, x = total + osl, np.array(x) + TAU * f
    assert_allclose(tube.states[200], x, rtol=1e-13)
    # The tube adds the rounding of the state, 8e-17 in each of 200 steps, to a radius of 1e-3.
    assert_allclose([tube.radii[200], tube.osl_sums[200]], [r, total], rtol=3e-11)
    fallen = walk(250_000, system=printed_walker)
    assert int(fallen.jumps) == 1 and int(fallen.jump_steps[0]) == 99_223
    # The hip is below the ground.
    assert float(jnp.max(fallen.states[:, 0])) > math.pi / 2


@pytest.mark.slow
def test_five_periods_of_the_walker():
    """Impacts, sums of lambda and radii of five periods (independent reference: another program, in NumPy)."""
    strobes = lambda osl, formula: walk(5 * STEPS, osl, formula, every=STEPS)
    page, sharp, true = (
        strobes(osl, formula)
        for osl, formula in (
            (radial_quotient(), published_radius),
            (radial_quotient(), sharp_radius),
            (logarithmic_norm(), sharp_radius),
        )
    )
    for tube in (page, sharp, true):
        assert tube.jump_steps[:6].tolist() == [99_223, 293_347, 487_484, 681_613, 875_742, -1]
    assert np.diff(page.jump_steps[2:5]).tolist() == [STEPS] * 2
    assert_allclose(np.nanmax(page.jump_states[:, 0]), 0.20032, atol=5e-6)
    # Each to its last printed digit.
    assert_allclose(np.diff(page.osl_sums), [-3008.4, -3009.0, -3012.8, -3010.1, -3010.2], atol=0.05)
    assert_allclose(np.diff(page.osl_sums)[-1], -3010.24, atol=0.005)
    assert_allclose(np.diff(true.osl_sums)[-1], 217_821, atol=0.5)
    assert_allclose(np.diff(page.osl_positive)[-1], 17_301, atol=0.5)
    assert_allclose(page.radii, [0.001, 0.0020, 0.0032, 0.0046, 0.0065, 0.0090], atol=5e-5)
    assert_allclose(sharp.radii, [0.001, 0.0013, 0.0016, 0.0018, 0.0021, 0.0023], atol=5e-5)
    assert_allclose(true.radii, [1e-3, 0.085, 6.7, 519, 4e4, 3e6], rtol=0.06)
    # Why they are no proof.
    assert [reason[:2] for reason in page.reasons] == ["D1", "D3"] and [r[:2] for r in page.cycle_reasons] == [
        "D2",
        "D5",
    ]
    assert [reason[:2] for reason in true.reasons] == ["Th", "D3"] and [r[:2] for r in sharp.cycle_reasons] == ["D5"]
    assert not (page.sound or sharp.sound or true.sound)
    assert "jumps at steps 99223, 293347, 487484, 681613, 875742" in " ".join(repr(page).split())


# Constants that are proved


def proved_constants(field, t, x, tau, reach):
    """Of x' = -p x + (cos t, sin t, 0): known in closed form, with a generous bound of the rounding."""
    rate = field(t, x)
    return (-jnp.ones_like(t), jnp.linalg.norm(rate) * (1 + 1e-9) + 1 + 1e-9, 1e-14 + 0 * t)


def test_only_proved_constants_in_a_mode_without_guards_are_sound():
    field = lambda t, x, p: jnp.stack([jnp.cos(t), jnp.sin(t), 0 * t]) - x
    names = ("x", "y", "z")
    free = hj.HybridSystem({"flow": hj.Mode(field, names)}, ())
    guarded = hj.HybridSystem(
        {"flow": hj.Mode(field, names)}, (hj.Transition("flow", "flow", lambda t, x, p: 100 - x[0], same),)
    )
    run = lambda system, osl: euler_tube(
        system, jnp.array([0.5, -0.5, 0.1]), None, tau=0.01, steps=200, radius=0.2, osl=osl
    )
    proved = OneSidedLipschitz(proved_constants)
    tube = run(free, proved)
    assert tube.sound and not tube.reasons and not tube.cycle_reasons and "the radii are proved" in repr(tube)
    # The solution: (cos t + sin t, sin t - cos t, 0)/2 and what decays.
    exact = lambda t: np.stack([np.cos(t) + np.sin(t), np.sin(t) - np.cos(t), 0 * t], axis=1) / 2
    way = np.array([0.12, -0.16, 0.0])
    from_ball = exact(np.asarray(tube.times)) + np.exp(-np.asarray(tube.times))[:, None] * (np.array([0, 0, 0.1]) + way)
    away = np.linalg.norm(from_ball - tube.states, axis=1)
    assert np.all(away <= np.asarray(tube.radii) * (1 + 1e-15)) and away[-1] > 0.5 * float(tube.radii[-1])
    assert "another solution in the ball may have jumped" in run(guarded, proved).reasons[0]
    assert not run(free, logarithmic_norm()).sound
    other = euler_tube(
        free,
        jnp.zeros(3),
        None,
        tau=0.01,
        steps=5,
        radius=0.1,
        osl=proved,
        formula=lambda *given: given[0],
    )
    assert "neither sharp_radius nor published_radius" in other.reasons[0]
    # With one long step the ball leaves that for which the constants are asked.
    long = euler_tube(free, jnp.zeros(3), None, tau=5.0, steps=1, radius=0.01, osl=proved)
    assert not bool(long.enclosed) and "take a smaller tau" in long.reasons[0]


# Arguments


def test_batches_and_failures():
    matrix = jnp.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
    run = lambda b: euler_tube(LINEAR, jnp.ones(3), matrix, tau=0.1, steps=20, radius=0.1, disturbance=b)
    batch = jax.jit(jax.vmap(run))(jnp.array([0.0, 0.1]))
    assert batch.radii.shape == (2, 21) and "2 Euler tubes" in repr(batch) and len(batch.reasons) == 1
    assert_allclose(batch.radii[1], run(0.1).radii, rtol=1e-14)
    assert "EulerTube" in jax.eval_shape(run, 0.1).__repr__()
    # At the origin the radial quotient is 0.
    rest = euler_tube(LINEAR, jnp.zeros(3), matrix, tau=0.1, steps=5, radius=0.1, osl=radial_quotient())
    assert_allclose(rest.radii, 0.1, rtol=1e-13)
    escape = hj.HybridSystem({"flow": hj.Mode(lambda t, x, p: x**3, ("x",))}, ())
    gone = euler_tube(escape, jnp.array([10.0]), None, tau=1.0, steps=20, radius=0.1)
    assert gone.result == "nonfinite" and bool(jnp.isnan(gone.radii[-1])) and int(gone.modes[-1]) == -1
    assert "nonfinite" in gone.reasons[-1]


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"tau": 0.0}, "tau=0.0 must be finite and positive"),
        ({"tau": -1.0}, "tau=-1.0 must be"),
        ({"radius": float("nan")}, "radius=nan must be"),
        ({"disturbance": -0.1}, "disturbance=-0.1 must be finite and not negative"),
        ({"steps": 0}, "steps=0 must be an integer"),
        ({"every": 0}, "every=0 must be an integer"),
        ({"max_jumps": 0}, "max_jumps=0 must be an integer"),
        ({"x0": jnp.ones(2)}, "does not fit mode 'flow'"),
        ({"mode": "swing"}, "'swing' is not one of the modes"),
    ],
)
def test_misuse(changed, message):
    given = dict(x0=jnp.ones(3), params=jnp.eye(3), tau=0.1, steps=3, radius=0.1) | changed
    with pytest.raises(ValueError, match=message):
        euler_tube(LINEAR, given.pop("x0"), given.pop("params"), **given)


def test_modes_of_different_dimensions_are_refused():
    modes = {"a": hj.Mode(lambda t, x, p: x, ("x",)), "b": hj.Mode(lambda t, x, p: x, ("x", "y"))}
    with pytest.raises(ValueError, match=r"dimensions \{'a': 1, 'b': 2\}"):
        euler_tube(hj.HybridSystem(modes, ()), jnp.ones(1), None, tau=0.1, steps=3, radius=0.1, mode="a")
