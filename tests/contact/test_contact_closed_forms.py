"""Saltation matrices of contact, in closed form: Kong, Payne, Zhu, Johnson (2024), eqs. 51-58 and 70-94, and Table II.

The closed forms are in `examples/papers`: a cart with a double pendulum whose tip meets an inclined floor, with every
derivative by hand, in NumPy. The generic matrices come from the mass matrix, the gap and the slip alone.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference import case
from saltation_cart import gap, mass, mechanism, slip, Terms
from saltation_closed_forms import BOTH, Dagger, NORMAL
from saltation_transitions import TRANSITIONS

import hyjax as hj
from hyjax.models import ball_on_slope

DRAWS = 12


def stacked(draws):
    """Parameters, times and states of a batch."""
    params, times, states = zip(*draws, strict=True)
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    return jnp.asarray(times), jnp.asarray(np.stack(states)), params


@pytest.fixture(scope="module")
def generic():
    """Saltation matrices, Jacobians of the reset and fields on both sides, by one program for each transition."""
    programs = {}

    def matrices(event, draws):
        number = event.system.between(event.source, event.target)
        key = id(event.system), number
        if key not in programs:
            system, transition = event.system, event.system.transitions[number]

            def at(t, x, params):
                after = transition.reset(t, x, params)
                fields = [
                    system.modes[mode].vector_field(t, z, params)
                    for mode, z in ((transition.source, x), (transition.target, after))
                ]
                jacobian = jax.jacfwd(transition.reset, argnums=1)(t, x, params)
                return hj.saltation_matrix(system, number, t, x, params), jacobian, *fields

            programs[key] = jax.jit(jax.vmap(at))
        return programs[key](*stacked(draws))

    return matrices


@pytest.fixture(scope="module")
def draws():
    return {id(event): [event.draw(rng) for _ in range(DRAWS)] for event, rng in zip(TRANSITIONS, seeds(), strict=True)}


def seeds():
    return [np.random.default_rng(seed) for seed in range(len(TRANSITIONS))]


def label(event):
    return f"{event.equation} {event.source} to {event.target}"


events = pytest.mark.parametrize("event", TRANSITIONS, ids=label)


@events
def test_closed_form(event, draws, generic):
    """Two factorizations of matrices whose condition is some hundred, in another order: 1e-13; forces that cancel where
    a contact is lost leave 1e-12."""
    got = generic(event, draws[id(event)])[0]
    for (params, t, x), matrix in zip(draws[id(event)], got, strict=True):
        expected = event.closed(t, x, params)
        assert_allclose(matrix, expected, rtol=0, atol=1e-11 * np.max(np.abs(expected)))


TABLE_II = {  # identity reset, equal dynamics, equal diagonal blocks
    "70": (True, True, True), "72": (True, True, True), "73": (True, True, True), "80-81": (False, False, True),
    "82-83": (False, False, False), "87-88": (False, False, True), "90": (True, True, True), "91": (True, False, False),
    "94": (True, False, False),
}  # fmt: skip


@events
def test_table_ii(event, draws, generic):
    """The table's ticks hold, and what it does not tick fails for most states by far."""
    matrices, resets, before, after = generic(event, draws[id(event)])
    blocks = matrices[:, :3, :3] - matrices[:, 3:, 3:]
    size = np.max(np.abs(matrices), axis=(1, 2))
    off = (
        np.max(np.abs(resets - jnp.eye(6)), axis=(1, 2)),
        np.max(np.abs(after - before), axis=1) / np.max(np.abs(before), axis=1),
        np.max(np.abs(blocks), axis=(1, 2)) / size,
    )
    for ticked, difference in zip(TABLE_II[event.equation], off, strict=True):
        # Rounding, where forces cancel; an entry of some hundredths otherwise.
        assert np.max(difference) < 1e-11 if ticked else np.median(difference) > 1e-2
    # A velocity before an event does not move positions after it.
    assert_allclose(matrices[:, :3, 3:], 0, atol=1e-11)


@events
def test_rank_one(event, draws, generic):
    """The matrix differs from the reset's Jacobian by a(gradient of the guard), of rank at most one."""
    matrices, resets, _, _ = generic(event, draws[id(event)])
    values = np.linalg.svd(matrices - resets, compute_uv=False)
    assert np.max(values[:, 1:]) <= 1e-12 * max(1, np.max(values[:, 0]))


@pytest.mark.parametrize("event", [event for event in TRANSITIONS if event.equation in ("91", "94")], ids=label)
def test_eigenvalues_where_the_reset_is_the_identity(event, draws, generic):
    """Eq. 95: all are 1 but one, that of the jump of the field. It is 0 where slip ends: it is the slip that is forgotten."""
    matrices, _, before, after = generic(event, draws[id(event)])
    for matrix, slip_rate in zip(np.asarray(matrices), np.asarray(after - before), strict=True):
        odd = np.linalg.det(matrix)
        # Entries of up to some hundred, in sums of six.
        close = 1e-13 * np.max(np.abs(matrix)) * np.max(np.abs(slip_rate))
        assert_allclose(matrix @ slip_rate, odd * slip_rate, rtol=0, atol=close)
        assert_allclose(np.trace(matrix), 5 + odd, rtol=0, atol=1e-13 * np.max(np.abs(matrix)))
        if event.equation == "94":
            assert_allclose(odd, 0, atol=1e-13 * np.max(np.abs(matrix)))


KEPT = [("80-81", (0,), NORMAL), ("82-83", (0, 1), BOTH), ("94", (1,), None)]


@pytest.mark.parametrize("equation, rows, held", KEPT, ids=[each[0] for each in KEPT])
def test_variations_after_an_event_satisfy_the_constraints_it_adds(equation, rows, held, draws, generic):
    """The constraint J v is zero after it on every neighbouring orbit, so [D_q(J v), J] times the matrix is zero; and on
    the floor the gap is, too."""
    event = next(each for each in TRANSITIONS if each.equation == equation)
    matrices = generic(event, draws[id(event)])[0]
    for (params, t, x), matrix in zip(draws[id(event)], np.asarray(matrices), strict=True):
        at = Terms(t, x[:3], x[3:], params)
        after = at if held is None else Terms(t, x[:3], Dagger(at, held).M @ at.M @ at.v, params)
        for row in rows:
            gradient = np.concatenate([after.J_rate[row], at.J[row]])
            assert_allclose(gradient @ matrix, 0, atol=1e-11 * np.max(np.abs(matrix)))
        if held is not None:
            assert_allclose(at.J[0] @ matrix[:3], 0, atol=1e-11 * np.max(np.abs(matrix)))


def test_closed_forms_have_coriolis_terms(draws):
    """What eqs. 81, 83 and 88 are about does not vanish here: terms of the mass matrix's and of the constraint's rates."""
    for event in TRANSITIONS:
        if event.source == "U":
            for params, t, x in draws[id(event)]:
                at = Terms(t, x[:3], x[3:], params)
                assert np.linalg.norm(at.C @ at.v) > 1e-2
                assert np.linalg.norm(at.J_rate @ at.v) > 1e-2
                assert np.max(np.abs(event.closed(t, x, params)[3:, :3])) > 0.1


@pytest.mark.medium
def test_derivatives_by_hand(draws):
    """Those of the closed forms against automatic differentiation of what a user states: rounding of some dozen terms."""
    params, t, x = draws[id(TRANSITIONS[0])][0]
    q, v = jnp.asarray(x[:3]), jnp.asarray(x[3:])
    at = Terms(t, x[:3], x[3:], params)
    close = lambda got, expected: assert_allclose(got, expected, rtol=1e-13, atol=1e-13)

    close(at.M, mass(q, params))
    close(at.dM, jnp.moveaxis(jax.jacfwd(mass)(q, params), -1, 0))
    close(at.ddM, jnp.moveaxis(jax.jacfwd(jax.jacfwd(mass))(q, params), (-2, -1), (0, 1)))
    rows = lambda q: jnp.stack([jax.grad(gap, argnums=1)(t, q, params), jax.grad(slip, argnums=2)(t, q, v, params)])
    close(at.J, rows(q))
    close(at.dJ, jnp.moveaxis(jax.jacfwd(rows)(q), -1, 0))
    close(at.ddJ, jnp.moveaxis(jax.jacfwd(jax.jacfwd(rows))(q), (-2, -1), (0, 1)))
    force = lambda t, q: mechanism.forces(t, q, v, params)
    close(at.load, force(t, q))
    close(at.d_load, jax.jacfwd(force, argnums=1)(t, q))
    close(at.load_rate, jax.jacfwd(force)(jnp.asarray(t), q))
    # Christoffel's matrix makes M' - 2 C skew, and C v is linear in the rate of M.
    rate = np.einsum("kij,k->ij", at.dM, at.v)
    close(rate - 2 * at.C, -(rate - 2 * at.C).T)
    close(at.dC, jnp.moveaxis(jax.jacfwd(lambda q: christoffel(q, v, params))(q), -1, 0))
    close(at.C, christoffel(q, v, params))


def christoffel(q, v, params):
    slope = jax.jacfwd(mass)(q, params)
    return (slope @ v + jnp.einsum("ikj,k->ij", slope, v) - jnp.einsum("jki,k->ij", slope, v)) / 2


# A ball on a slope, Sec. IV

HIT = case("E_ball_on_slope")
STATE = jnp.concatenate([jnp.asarray(HIT["q"]), jnp.asarray(HIT["qdot_minus"])])


def ball(**changes):
    slope = np.arctan2(HIT["sin_theta"], HIT["cos_theta"])
    return ball_on_slope.Params(slope=slope, mass=HIT["mass"], gravity=HIT["a_g"], settle=0.0, **changes)


@pytest.fixture(scope="module")
def ball_matrices():
    system = ball_on_slope.system

    def matrices(params):
        return {
            target: (hj.saltation_matrix(system, system.between("U", target), 0.0, STATE, params), reset(params))
            for target in ("S+", "S-", "C", "V")
        }

    def reset(params):
        return system.transitions[system.between("U", "V")].reset(jnp.zeros(()), STATE, params)

    return jax.jit(matrices)


SLIPPERY, ROUGH = {"static_friction": 0.0, "kinetic_friction": 0.0}, {"static_friction": 9.0, "kinetic_friction": 9.0}
KINDS = [
    ("slide", "S+", SLIPPERY),
    ("stick", "C", ROUGH),
    ("elastic_e=1", "V", SLIPPERY | {"restitution": 1.0}),
    ("elastic_e=7/10", "V", SLIPPERY | {"restitution": 0.7}),
]


@pytest.mark.parametrize("kind, target, changes", KINDS, ids=[each[0] for each in KINDS])
def test_ball_on_a_slope(kind, target, changes, ball_matrices):
    """Eqs. 44, 48, 51-56 in exact rationals, and restitution besides: a few roundings of numbers of order ten."""
    matrix, after = ball_matrices(ball(**changes))[target]
    assert_allclose(matrix, HIT[kind]["Xi"], rtol=1e-14, atol=1e-14)
    assert_allclose(after[2:], HIT[kind]["qdot_plus"], rtol=1e-14, atol=1e-14)
    assert_allclose(after[:2], HIT["q"], rtol=0, atol=0)


def test_ball_on_a_slope_has_the_printed_eigenvectors(ball_matrices):
    """Eqs. 57 and 58; an input that does not change at the impact leaves the matrix as it is."""
    s, c = HIT["sin_theta"], HIT["cos_theta"]
    sliding = ball_matrices(ball(**SLIPPERY))["S+"][0]
    sticking = ball_matrices(ball(**ROUGH))["C"][0]
    for block in (sliding[:2, :2], sliding[2:, 2:]):
        assert_allclose(block @ np.array([s, c]), 0, atol=1e-15)
        assert_allclose(block @ np.array([-c, s]), [-c, s], rtol=1e-15)
    v1, v2 = HIT["qdot_minus"]
    assert_allclose(sticking[:2, :2] @ np.array([v1, v2]), 0, atol=1e-14)
    assert_allclose(sticking[:2, :2] @ np.array([-c, s]), [-c, s], rtol=1e-14)
    assert_allclose(sticking[2:], 0, atol=1e-14)
    pushed = dataclasses.replace(ball(**SLIPPERY), push_1=3.0, push_2=-2.0)
    assert_allclose(ball_matrices(pushed)["S+"][0], sliding, rtol=0, atol=1e-14)


# Where the slip is the rate of no position, the gradient in eq. 93 is not the rate of J_t

STEEP, BELT = 0.8, 0.7


def valley(t, q, p):
    return q[1] - STEEP * q[0] ** 2 / 2


def slip_on_belt(t, q, v, p):
    slope = STEEP * q[0]
    return (v[0] + slope * v[1]) / jnp.sqrt(1 + slope**2) - BELT


@pytest.mark.medium
def test_slip_stick_on_a_belt_through_a_valley():
    """By hand: the slip's gradient in position is v . dt/dx, which vanishes where v is tangent; the rate of J_t does not,
    and with it, as printed, the matrix would be another."""
    friction, gravity = 0.4, np.array([-0.6, -9.8])
    system = hj.contact.contact_system(
        hj.contact.Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: p),
        hj.contact.Contact(valley, slip_on_belt, static=friction, kinetic=friction),
        coordinates=("x", "y"),
    )
    q = np.array([0.5, STEEP * 0.125])
    slope = STEEP * q[0]
    size = np.hypot(1, slope)
    tangent, normal, curvature = np.array([1, slope]) / size, np.array([-slope, 1]) / size, STEEP / size**3
    v = BELT * tangent
    # Towards the centre as the curve demands; along it as friction allows, or not at all on the belt.
    sticking = BELT**2 * curvature * normal
    push = BELT**2 * curvature - gravity @ normal
    sliding = sticking + (gravity @ tangent - friction * push) * tangent

    def matrix(by_position):
        gradient = np.concatenate([by_position, tangent])
        lower = np.outer(sticking - sliding, gradient) / (by_position @ v + tangent @ sliding)
        return np.eye(4) + np.concatenate([np.zeros((2, 4)), lower])

    x = jnp.asarray(np.concatenate([q, v]))
    got = hj.saltation_matrix(system, system.between("S+", "C"), 0.0, x, jnp.asarray(gravity))
    # A dozen roundings of numbers of order one.
    assert_allclose(got, matrix(np.zeros(2)), rtol=0, atol=1e-13)
    printed = matrix(v[0] * curvature * size * normal)
    assert np.max(np.abs(printed - got)) > 0.1


@pytest.mark.slow
def test_a_ball_that_a_table_throws():
    """On a table that moves as 1.5 sin t, with g = 1: it chatters, rides with the table and is thrown where the table falls as
    fast as the ball would, sin t = 1/1.5; the first impact after the throw is where 1.5 cos t0 s - s^2/2 = 1.5 (sin(t0 + s) - sin
    t0). Each period alike."""
    mass = hj.contact.Mechanism(mass=lambda q, p: jnp.eye(1), forces=lambda t, q, v, p: jnp.array([-1.0]))
    table = hj.contact.Contact(gap=lambda t, q, p: q[0] - 1.5 * jnp.sin(t), restitution=0.2, settle=1e-3)
    system = hj.contact.contact_system(mass, table, coordinates=("y",))
    run = hj.simulate(
        system, jnp.array([2.0, 0.0]), None, mode="U", t1=40.0, max_jumps=100, integrator=hj.Integrator(unroll=False)
    )
    assert run.result == "successful"
    throw, flight = np.arcsin(1 / 1.5), 4.2959443931549840172 - 0.72972765622696636345
    thrown = [event.t for event in run.events if event.source == "S"]
    assert_allclose(thrown, throw + 2 * np.pi * np.arange(1, 1 + len(thrown)), rtol=1e-13)
    assert len(thrown) == 6
    # An impact leaves U; V is left at the apex.
    struck = [event.t for event in run.events if event.source == "U"]
    for t in thrown[:-1]:
        assert_allclose(min(s for s in struck if s > t) - t, flight, rtol=1e-11)


@pytest.mark.slow
def test_blocks_that_begin_to_slip_on_a_belt():
    """Of one coefficient of friction, 1, under A sin t: the slip begins where that is 1, with slip and acceleration zero. 32
    amplitudes on a belt at rest and on one of speed 0.7, and the speed at 2 in closed form."""
    push = lambda t, q, v, p: jnp.stack([p["A"] * jnp.sin(t), -1.0 + 0 * t])
    mass = hj.contact.Mechanism(mass=lambda q, p: jnp.eye(2), forces=push)
    slip = lambda t, q, v, p: v[0] - p["belt"]
    floor = hj.contact.Contact(gap=lambda t, q, p: q[1], slip=slip, static=1.0, kinetic=1.0)
    system = hj.contact.contact_system(mass, floor, coordinates=("x", "y"))
    A, belt = np.tile(np.linspace(1.3, 4.0, 32), 2), np.repeat([0.0, 0.7], 32)
    rolled = hj.Integrator(unroll=False)

    @jax.jit
    @jax.vmap
    def run(A, belt):
        start = jnp.stack([0 * A, 0 * A, belt, 0 * A])
        return hj.simulate(system, start, {"A": A, "belt": belt}, mode="C", t1=2.0, max_jumps=6, integrator=rolled)

    runs = run(jnp.asarray(A), jnp.asarray(belt))
    assert bool(jnp.all(runs.result == hj.RESULTS.successful))
    begin = np.arcsin(1 / A)
    assert_allclose(runs.x[:, 2], belt + A * (np.cos(begin) - np.cos(2)) - (2 - begin), rtol=1e-13)
