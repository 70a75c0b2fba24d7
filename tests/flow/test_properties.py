"""Random systems of one to four modes, all affine, so that each arc is a matrix exponential; and particles in random cells.

One family with fixed names and dimensions; what is random enters as parameters, so that one program serves all examples.
"""

import dataclasses
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, HealthCheck, settings, strategies as st
from hypothesis.extra.numpy import arrays
from jaxtyping import Array, Float
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj

RESULTS = hj.RESULTS
EPS = np.finfo(float).eps
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example, HealthCheck.data_too_large]


def examples(count: int):
    """The same examples in every run; the time of none is judged."""
    return settings(max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=QUIET)


# The family: x' = A x + b + d t until a x + c + s t falls where w x + k > 0; then x+ = M x + r + q t


class Affine(eqx.Module):
    """By mode, or by transition; of the coordinates, only as many as the mode has."""

    A: Float[Array, "4 3 3"]
    b: Float[Array, "4 3"]
    d: Float[Array, "4 3"]
    a: Float[Array, "10 3"]
    c: Float[Array, "10"]
    s: Float[Array, "10"]
    w: Float[Array, "10 3"]
    k: Float[Array, "10"]
    M: Float[Array, "10 3 3"]
    r: Float[Array, "10 3"]
    q: Float[Array, "10 3"]


NAMES, DIMENSIONS = ("volume", "plane", "line", "sheet"), (3, 2, 1, 2)
# The first one, two, three or four modes are a system of their own.
PAIRS = ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 2), (2, 3), (3, 0), (3, 3))


def mode(i):
    n = DIMENSIONS[i]
    return hj.Mode(lambda t, x, p: p.A[i, :n, :n] @ x + p.b[i, :n] + p.d[i, :n] * t, tuple("xyz"[:n]))


def transition(e):
    i, j = PAIRS[e]
    n, m = DIMENSIONS[i], DIMENSIONS[j]
    return hj.Transition(
        NAMES[i],
        NAMES[j],
        guard=lambda t, x, p: p.a[e, :n] @ x + p.c[e] + p.s[e] * t,
        reset=lambda t, x, p: p.M[e, :m, :n] @ x + p.r[e, :m] + p.q[e, :m] * t,
        armed=lambda t, x, p: p.w[e, :n] @ x + p.k[e] > 0,
    )


SYSTEM = hj.HybridSystem({NAMES[i]: mode(i) for i in range(4)}, tuple(map(transition, range(len(PAIRS)))))
T0, T1, MOST = 0.25, 2.0, 12


@eqx.filter_jit
def run(x0, p, t1):
    """`(derivative of the last state by the first, trajectory, fundamental matrix)`, padded."""

    def final(x0):
        trajectory = hj.simulate(
            SYSTEM, x0, p, mode="volume", t0=T0, t1=t1, max_jumps=MOST, integrator=ROLLED, throw=False
        )
        return trajectory.x, trajectory

    jacobian, trajectory = jax.jacfwd(final, has_aux=True)(x0)
    return jacobian, trajectory, trajectory.fundamental_matrix()


@eqx.filter_jit
def saltations(t, z, p):
    """The saltation matrices of all transitions, as if each happened at `(t, z)`."""
    state = [z[: DIMENSIONS[i]] for i, _ in PAIRS]
    return [hj.saltation_matrix(SYSTEM, e, t, x, p) for e, x in enumerate(state)]


def numbers(*shape):
    """Multiples of 1/16: exact, and often equal, so that guards fall together and starts lie on surfaces."""
    return arrays(np.int8, shape, elements=st.integers(-32, 32), fill=st.nothing()).map(lambda k: k / 16)


@st.composite
def problems(draw):
    """`(first state, parameters)`: some guards are off, some always armed, some resets land on a surface."""
    modes, used = draw(st.sampled_from((4, 3, 2, 1))), draw(st.integers(1, 3))
    shapes = {f.name: tuple(map(int, f.type.dim_str.split())) for f in dataclasses.fields(Affine)}
    p = {name: draw(numbers(*shape)) for name, shape in shapes.items()}
    x0, height = draw(numbers(3)), draw(st.sampled_from(HEIGHTS))
    off, choosy, lands = (
        draw(arrays(np.int8, len(PAIRS), elements=st.integers(0, 3), fill=st.nothing())) for _ in "123"
    )
    # The first mode has one, two or three coordinates; those that it lacks stay zero.
    spare = np.arange(3) >= used
    x0[spare] = 0
    for row in (p["A"][0], p["b"][0], p["d"][0]):
        row[spare] = 0
    for e, (i, j) in enumerate(PAIRS):
        p["a"][e, DIMENSIONS[i] if i else used :] = 0
        if j == 0:
            p["M"][e, spare], p["r"][e, spare], p["q"][e, spare] = 0, 0, 0
        if choosy[e] != 3:
            p["w"][e], p["k"][e] = 0, 1
        if off[e] >= (2 if i == j else 3) or max(i, j) >= modes:
            p["a"][e], p["c"][e], p["s"][e] = 0, 1, 0
    p["A"], p["s"] = p["A"] / 2, np.where(off == 0, p["s"] - 1, p["s"])
    # The first state, and the state after a reset whenever it is, give the guard of a way out a height that is chosen.
    for e, (_, j) in enumerate(PAIRS):
        n, out = DIMENSIONS[j], ways_out(p, j)
        if out and HEIGHTS[lands[e]] is not None:
            a, c, s = (p[name][out[-1]] for name in "acs")
            onto = a[:n] / (a @ a)
            p["M"][e, :n] -= np.outer(onto, a[:n] @ p["M"][e, :n])
            p["r"][e, :n] -= onto * (a[:n] @ p["r"][e, :n] + c - HEIGHTS[lands[e]])
            p["q"][e, :n] -= onto * (a[:n] @ p["q"][e, :n] + s)
    if ways_out(p, 0) and height is not None:
        a, c, s = (p[name][ways_out(p, 0)[-1]] for name in "acs")
        x0 -= a * (a @ x0 + c + s * T0 - height) / (a @ a)
    return x0, p


HEIGHTS = (0.5, 0.0, 0.25, None)


def ways_out(p, i):
    """The transitions that leave a mode and whose guard depends on the state."""
    return [e for e, (source, _) in enumerate(PAIRS) if source == i and np.any(p["a"][e])]


# Closed forms, in numpy


def flow(p, i, t, x, times):
    """States of mode `i` at equally spaced `times` from `t`, by the exponential of the matrix that moves `(x, 1, t)`."""
    n = DIMENSIONS[i]
    whole = np.zeros((n + 2, n + 2))
    whole[:n, :n], whole[:n, n], whole[:n, n + 1], whole[n + 1, n] = p["A"][i, :n, :n], p["b"][i, :n], p["d"][i, :n], 1
    states, step = [np.array([*x[:n], 1, t])], scipy.linalg.expm(whole * (times[1] - times[0]))
    for _ in times[1:-1]:
        states.append(step @ states[-1])
    states.append(scipy.linalg.expm(whole * (times[-1] - t)) @ states[0])
    return np.stack(states)[:, :n]


def guard(p, e, t, x):
    """Value of a guard along states of shape `(times, n)`, and the size of its terms."""
    a = p["a"][e, : x.shape[-1]]
    return x @ a + p["c"][e] + p["s"][e] * t, np.abs(x) @ np.abs(a) + abs(p["c"][e]) + np.abs(p["s"][e] * t)


def field(p, i, t, x):
    n = DIMENSIONS[i]
    return p["A"][i, :n, :n] @ x + p["b"][i, :n] + p["d"][i, :n] * t


def guard_rate(p, e, t, x):
    return p["s"][e] + p["a"][e, : x.size] @ field(p, PAIRS[e][0], t, x)


def saltation(p, e, t, x):
    """Kong et al. (2024), eq. 9."""
    (i, j), a = PAIRS[e], p["a"][e, : x.size]
    M, after = p["M"][e, : DIMENSIONS[j], : x.size], jump(p, e, t, x)
    before, slip = field(p, i, t, x), field(p, j, t, after) - p["q"][e, : DIMENSIONS[j]]
    return M + np.outer(slip - M @ before, a) / guard_rate(p, e, t, x)


def jump(p, e, t, x):
    m = DIMENSIONS[PAIRS[e][1]]
    return p["M"][e, :m, : x.size] @ x + p["r"][e, :m] + p["q"][e, :m] * t


def by_saltation(p, trajectory):
    """The fundamental matrix: exponentials and saltation matrices. And the product of its factors' norms."""
    total, size = np.eye(3), 1.0
    for k in range(int(trajectory.jumps) + 1):
        i = int(trajectory.modes[k])
        n, e = DIMENSIONS[i], int(trajectory.transitions[k])
        factor = scipy.linalg.expm(p["A"][i, :n, :n] * float(trajectory.end_times[k] - trajectory.start_times[k]))
        if k < int(trajectory.jumps):
            factor = saltation(p, e, float(trajectory.end_times[k]), np.asarray(trajectory.x_ends[k, :n])) @ factor
        total, size = factor @ total, size * max(1.0, np.linalg.norm(factor, 2))
    return total, size


# The properties


def simulated(x0, p, t1=T1):
    return jax.tree.map(np.asarray, run(jnp.asarray(x0), Affine(**jax.tree.map(jnp.asarray, p)), jnp.asarray(t1)))


def check_arc(p, trajectory, k):
    """An arc starts where the jump before it led, is the exact flow, and ends where the first armed guard falls."""
    i, e, ended = int(trajectory.modes[k]), int(trajectory.transitions[k]), bool(trajectory.transitions[k] >= 0)
    n, t, end = DIMENSIONS[i], trajectory.start_times[k], trajectory.end_times[k]
    x, x_end = trajectory.x_starts[k, :n], trajectory.x_ends[k, :n]
    if k > 0:
        into = trajectory.transitions[k - 1]
        before = trajectory.x_ends[k - 1, : DIMENSIONS[PAIRS[into][0]]]
        assert t == trajectory.end_times[k - 1] and PAIRS[into] == (trajectory.modes[k - 1], i)
        # As many roundings as there are terms, each of the size of the largest.
        terms = max(np.max(np.abs(p[name][into])) for name in "Mrq") * max(1, np.max(np.abs(before)))
        assert_allclose(x, jump(p, into, t, before), rtol=0, atol=8 * EPS * terms)
    # What starts on a surface does not fall through it at once; only the end of time leaves an arc no length.
    assert end > t or not ended
    if end == t:
        return
    times = np.linspace(t, end, 200)
    states = flow(p, i, t, x, times)
    # A step's error is 1e-14 of the state, and then grows with the flow.
    grown = np.max(np.abs(states)) * np.linalg.norm(scipy.linalg.expm(np.abs(p["A"][i, :n, :n]) * (end - t)), 2)
    assert_allclose(x_end, states[-1], rtol=0, atol=1e-13 * grown)
    for f in (f for f, (source, _) in enumerate(PAIRS) if source == i):
        along, size = guard(p, f, times, states)
        clear = 1e-12 * np.max(size)
        if f == e:
            value, size = guard(p, e, end, x_end)
            assert abs(value) <= 1e-13 * size
            rate = guard_rate(p, e, end, x_end)
            assert rate < 0 and trajectory.guard_rates[k] == pytest.approx(rate, rel=1e-12)
            # It was positive, by more than rounding, and was armed when it fell.
            assert np.max(along) > 8 * EPS * np.max(size)
            assert p["w"][e, :n] @ x_end + p["k"][e] > -clear
        # None fell between two samples before, unless it was not armed there.
        choice = states @ p["w"][f, :n] + p["k"][f]
        fell = (along[:-1] > clear) & (along[1:] < -clear)
        assert not np.any(fell & (choice[:-1] > clear) & (choice[1:] > clear))


def check_sensitivity(p, jacobian, trajectory, fundamental):
    """Autodiff, and `fundamental_matrix`, against exponentials and saltation matrices."""
    exact, size = by_saltation(p, trajectory)
    n = exact.shape[0]
    # 1e-14 for each step of some ten, magnified by what comes after it.
    assert_allclose(jacobian[:n], exact, rtol=0, atol=1e-13 * size)
    assert_allclose(fundamental[:n], exact, rtol=0, atol=1e-13 * size)
    assert not np.any(jacobian[n:]) and not np.any(fundamental[n:])


@pytest.mark.medium
def test_arcs_and_sensitivities():
    """However it goes on and ends: each arc against its exponential, each event against the guards; and the derivatives."""
    seen, jumped = Counter(), Counter()

    @examples(100)
    @given(problems())
    def check(problem):
        x0, p = problem
        jacobian, trajectory, fundamental = simulated(x0, p)
        arcs, jumps = int(np.sum(trajectory.modes >= 0)), int(trajectory.jumps)
        whole = bool(trajectory.result == RESULTS.successful)
        assert (
            arcs == jumps + 1 and trajectory.start_times[0] == T0 and np.all(np.diff(trajectory.end_times[:arcs]) > 0)
        )
        assert not whole or trajectory.t == T1
        for k in range(arcs):
            check_arc(p, trajectory, k)
            at = trajectory.start_times[k], trajectory.x_starts[k, : DIMENSIONS[int(trajectory.modes[k])]]
            touched = [abs(guard(p, e, *at)[0]) < 1e-13 for e in ways_out(p, int(trajectory.modes[k]))]
            seen["starts on a surface"] += any(touched)
        seen["events"] += jumps
        seen["ended early"] += not whole
        seen.update({PAIRS[e] for e in trajectory.transitions[:jumps]})
        if whole:
            check_sensitivity(p, jacobian, trajectory, fundamental)
            jumped[jumps] += 1

    check()
    # The examples are worth the name.
    assert seen["events"] > 50 and seen["starts on a surface"] > 5 and seen["ended early"] > 0
    assert sum(pair in seen for pair in PAIRS) >= 5
    assert sum(count for jumps, count in jumped.items() if jumps >= 2) >= 5


@pytest.mark.medium
@examples(60)
@given(problems(), numbers(3), st.integers(0, 32))
def test_saltation_matrix(problem, z, t):
    """Of every transition, between all dimensions, wherever its guard changes in time."""
    _, p = problem
    t = t / 16
    got = saltations(jnp.asarray(t), jnp.asarray(z), Affine(**jax.tree.map(jnp.asarray, p)))
    for e, (i, j) in enumerate(PAIRS):
        x = z[: DIMENSIONS[i]]
        rate, terms = guard_rate(p, e, t, x), np.abs(p["a"][e, : x.size]) @ np.abs(field(p, i, t, x)) + abs(p["s"][e])
        assert got[e].shape == (DIMENSIONS[j], DIMENSIONS[i])
        if abs(rate) > 1e-6 * terms:
            # The rate is a difference of its terms, and loses digits as they cancel.
            closed = saltation(p, e, t, x)
            loss = 32 * EPS * terms / abs(rate)
            assert_allclose(
                got[e], closed, rtol=0, atol=loss * max(1, np.max(np.abs(closed))) * (1 + np.max(np.abs(p["M"])))
            )


@pytest.mark.medium
@pytest.mark.parametrize("away", [0.0, 1e-13, 1e-6])
def test_variations_about_a_rest(away):
    """The state asks for no steps there, its variations do: they turn round, and grow, at their own pace."""
    rng, shapes = np.random.default_rng(0), {f.name: f.type.dim_str.split() for f in dataclasses.fields(Affine)}
    p = {name: np.zeros([int(n) for n in shape]) for name, shape in shapes.items()}
    p["c"] += 1
    p["A"][0] = np.array([[0, 1, 0], [-100, -1, 3], [0, 0, 1]]) + rng.normal(size=(3, 3))
    jacobian, _, fundamental = simulated(away * np.array([1.0, -2, 0.5]), p, t1=10.0)
    exact = scipy.linalg.expm(p["A"][0] * (10 - T0))
    # 1e-14 for each of some hundred steps, of the size that variations have on the way: they decay by its end.
    scale = max(np.max(np.abs(scipy.linalg.expm(p["A"][0] * t))) for t in np.linspace(0, 10 - T0, 200))
    assert_allclose(jacobian, exact, rtol=0, atol=1e-12 * scale)
    assert_allclose(fundamental, exact, rtol=0, atol=1e-12 * scale)


# Particles that bounce in random cells


class Cell(eqx.Module):
    """Gravity, the unit normals and offsets of three walls, and their restitutions."""

    gravity: Float[Array, "2"]
    normals: Float[Array, "3 2"]
    offsets: Float[Array, "3"]
    restitutions: Float[Array, "3"]


def wall(i):
    def bounce(t, x, p):
        n, v = p.normals[i], x[2:]
        return jnp.concatenate([x[:2], v - (1 + p.restitutions[i]) * (n @ v) * n])

    return hj.Transition("free", "free", lambda t, x, p: p.normals[i] @ x[:2] + p.offsets[i], bounce)


CELL = hj.HybridSystem(
    {"free": hj.Mode(lambda t, x, p: jnp.concatenate([x[2:], p.gravity]), ("x", "y", "x_rate", "y_rate"))},
    tuple(wall(i) for i in range(3)),
)


@eqx.filter_jit
def bounces(x0, p):
    return hj.simulate(CELL, x0, p, mode="free", t1=8.0, max_jumps=40, integrator=ROLLED, throw=False)


@pytest.mark.medium
def test_bouncing_never_gains_energy():
    """In a triangle, under gravity: in flight the energy stays, at a wall it falls, and nothing leaves the triangle."""
    seen = Counter()

    @examples(100)
    @given(numbers(2), numbers(2), st.integers(0, 31), numbers(3), st.lists(st.integers(0, 16), min_size=3, max_size=3))
    def check(gravity, velocity, turn, tilts, restitutions):
        angles = (turn + np.array([0, 11, 21]) + tilts) * (2 * np.pi / 32)
        normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        restitutions = np.array(restitutions) / 16
        p = Cell(*map(jnp.asarray, (gravity, normals, np.ones(3), restitutions)))
        trajectory = jax.tree.map(np.asarray, bounces(jnp.concatenate([jnp.zeros(2), jnp.asarray(velocity)]), p))
        energy = lambda x: x[..., 2] ** 2 / 2 + x[..., 3] ** 2 / 2 - x[..., :2] @ gravity
        arcs, jumps = int(np.sum(trajectory.modes >= 0)), int(trajectory.jumps)
        first, last = trajectory.x_starts[:arcs], trajectory.x_ends[:arcs]
        # Each step, and each reset, may move each term of the energy by 1e-14 of itself.
        scale = np.max(np.abs(last) ** 2) + np.max(np.abs(last[:, :2] @ gravity)) + 1
        assert_allclose(energy(last), energy(first), rtol=0, atol=1e-13 * scale)
        lost = energy(last[:jumps]) - energy(first[1:][:jumps])
        assert np.all(lost >= -1e-14 * scale)
        into = np.sum(normals[trajectory.transitions[:jumps]] * last[:jumps, 2:], axis=1)
        e = restitutions[trajectory.transitions[:jumps]]
        assert_allclose(lost, (1 - e**2) * into**2 / 2, rtol=0, atol=1e-13 * scale)
        # What has no restitution slides along its wall, and then starts its flight into another: no guard falls there.
        assert np.min(last[:, :2] @ normals.T + 1) >= -1e-13 * scale or np.min(restitutions) == 0
        seen["bounces"] += jumps

    check()
    assert seen["bounces"] > 100
