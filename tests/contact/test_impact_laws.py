"""Impacts of several contacts: Newton's and Poisson's laws of restitution, and what they do not decide."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import code_of_state, ContactSet
from hyjax.contact import Contact, contact_system, impact, Mechanism, start


def flat(normals, tangents=None, **coefficients):
    """Contacts of a body of unit masses whose gaps are linear: the compliance is that of the rows. The rows are `params`."""
    slip = lambda i: None if tangents is None else lambda t, q, v, p: p[1][i] @ v
    return [Contact(lambda t, q, p, i=i: p[0][i] @ q, slip(i), **coefficients) for i in range(normals)]


UNIT = Mechanism(lambda q, p: jnp.eye(4))


def rod(left, right, poisson):
    """Its ends are one to either side of its middle; its inertia 1/3 gives the compliance 4, -2, -2, 4."""
    body = Mechanism(lambda q, p: jnp.diag(jnp.array([1.0, 1 / 3])))
    ends = [
        Contact(lambda t, q, p, s=s: q[0] + s * q[1], restitution=e, poisson=poisson)
        for s, e in ((-1, left), (1, right))
    ]
    after, impulse = impact(body, jnp.zeros(2), jnp.array([-1.0, -1.0]), None, ends)
    return np.array([after[0] - after[1], after[0] + after[1]]), np.asarray(impulse)


@pytest.mark.parametrize(
    "left, right, poisson, rates, impulses",
    [
        # In compression (1/3, 2/3), which stop both ends.
        (0.0, 0.0, True, [0, 0], [1 / 3, 2 / 3]),
        # Newton's law returns the rate of the end that strikes; the other stays down.
        (0.5, 0.25, False, [0, 0.5], [5 / 12, 5 / 6]),
        (0.5, 0.0, False, [0, 0], [1 / 3, 2 / 3]),
        # Poisson's the impulses: 1/6 and 1/6; or 1/6 at the left end, which would press the right one down, unless 1/12 held it.
        (0.5, 0.25, True, [1 / 3, 1 / 3], [1 / 2, 5 / 6]),
        (0.5, 0.0, True, [1 / 2, 0], [1 / 2, 3 / 4]),
        # 1/3 at the right end, and 1/6 that holds the left one.
        (0.0, 0.5, True, [0, 1], [1 / 2, 1]),
    ],
)  # fmt: skip
def test_two_ends_of_a_rod(left, right, poisson, rates, impulses):
    """The left end rests, the right one strikes with the rate -2."""
    found = rod(left, right, poisson)
    # Exact numbers, up to the rounding of two systems of two equations.
    assert_allclose(found[0], rates, rtol=1e-14, atol=1e-15)
    assert_allclose(found[1], impulses, rtol=1e-14)


@pytest.mark.parametrize("settle, rates", [(0.0, [1.5, 1]), (1.2, [1.5, 1]), (1.7, [0, 0.25])])
def test_what_settles_is_decided_after_restitution(settle, rates):
    """The inertia 3 gives the compliance 4/3, 2/3, 2/3, 4/3. In compression the right end, at the rate -2, has the impulse 3/2
    and the left end opens at the rate 1; in restitution 3/4 is added, and the rates are 3/2 and 1. A left end that is slow then
    has the impulse -9/8 to the right one's 9/4."""
    body = Mechanism(lambda q, p: jnp.diag(jnp.array([1.0, 3.0])))
    law = {"restitution": 0.5, "poisson": True, "settle": settle}
    ends = [Contact(lambda t, q, p, s=s: q[0] + s * q[1], **law) for s in (-1, 1)]
    after, impulse = impact(body, jnp.zeros(2), jnp.array([-1.0, -1.0]), None, ends)
    assert_allclose([after[0] - after[1], after[0] + after[1]], rates, rtol=1e-14, atol=1e-15)
    assert_allclose(impulse, [-9 / 8 if settle > 1.5 else 0, 9 / 4], rtol=1e-14)


def test_one_contact_without_friction_has_one_law():
    v, gap = jnp.array([0.3, -1.0]), lambda t, q, p: q[1] + 0.2 * q[0]
    body = Mechanism(lambda q, p: jnp.array([[2.0, 0.3], [0.3, 1.0]]))
    newton, poisson = (
        impact(body, jnp.zeros(2), v, None, Contact(gap, restitution=0.6, poisson=p)) for p in (False, True)
    )
    assert_allclose(poisson[0], newton[0], rtol=1e-14)
    assert_allclose(poisson[1], newton[1], rtol=1e-14)


@pytest.mark.parametrize("friction, slip, slides", [(0.2, 2.0, True), (3.0, 0.8, False)])
def test_poisson_with_friction(friction, slip, slides):
    """Coupled masses; by the two phases in NumPy. In compression the contact slides, or sticks with an impulse (p, f). Then
    e p, while sliding goes on, with friction mu e p, or while the slip stays zero."""
    e, mass, v = 0.5, np.array([[1.0, 0.4], [0.4, 1.0]]), np.array([slip, -1.0])
    foot = Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], e, friction, friction, poisson=True)
    after, impulse = impact(Mechanism(lambda q, p: jnp.asarray(mass)), jnp.zeros(2), jnp.asarray(v), None, foot)
    w = np.linalg.inv(mass)[::-1, ::-1]
    if slides:
        p = 1.0 / (w[0, 0] - friction * w[0, 1])
        total = p * (1 + e) * np.array([1, -friction])
    else:
        stops = np.linalg.solve(w, [1.0, -slip])
        total = stops + e * stops[0] * np.array([1, -w[0, 1] / w[1, 1]])
    assert_allclose(impulse, total, rtol=1e-13)
    rates = np.array([-1.0, slip]) + w @ total
    assert_allclose(after, rates[::-1], rtol=1e-13, atol=1e-15)
    assert rates[0] > 0 and (rates[1] > 0.1) == slides
    with pytest.raises(ValueError, match="Poisson's law is for contacts by name"):
        contact_system(UNIT, foot, ("x", "y"))


@pytest.fixture(scope="module")
def random_impacts():
    """10 000 impacts of three contacts whose rows are random, of a body with four coordinates: velocities before, after, rows."""
    draw = np.random.default_rng(3)
    rows, v = draw.normal(size=(2, 10_000, 3, 4)), draw.normal(size=(10_000, 4))
    rows, v = (jnp.asarray(rows[0]), jnp.asarray(rows[1])), jnp.asarray(v)

    def run(e, poisson, count=10_000, **friction):
        contacts = flat(3, True if friction else None, restitution=e, poisson=poisson, **friction)
        struck = jax.jit(jax.vmap(lambda v, rows: impact(UNIT, jnp.zeros(4), v, rows, contacts)[0]))
        return np.asarray(struck(v[:count], jax.tree.map(lambda each: each[:count], rows)))

    return run, np.asarray(v), [np.asarray(each) for each in rows]


@pytest.mark.medium
@pytest.mark.parametrize("e", [0.0, 0.7, 1.0])
def test_poisson_never_adds_energy_without_friction(e, random_impacts):
    run, v, (normals, _) = random_impacts
    after = run(e, True)
    assert np.all(np.isfinite(after))
    before, grown = np.sum(v**2, axis=1), np.sum(after**2, axis=1)
    # Rounding, of compliances with condition numbers up to 1e6.
    assert np.all(grown <= before * (1 + 1e-9))
    assert np.all(np.einsum("bij,bj->bi", normals, after) >= -1e-7)
    if e == 1:
        # Of an elastic impact of all contacts; where one opens in compression, its part is lost.
        assert np.mean(grown > before * (1 - 1e-9)) > 0.5


@pytest.mark.medium
@pytest.mark.parametrize(("poisson", "friction"), [(True, None), (False, None), (False, 0.4)])
def test_random_impacts_of_contacts_that_depend_on_each_other(poisson, friction):
    """The third of three gaps, and its slip, moves by those of the others: without friction there always is a solution, whose
    impulses push, though those of least norm would pull; only by Newton's law may energy grow."""
    draw = np.random.default_rng(31)
    rows, v, shares = draw.normal(size=(2, 2000, 3, 4)), draw.normal(size=(2000, 4)), draw.uniform(0.2, 1, (2000, 2))
    rows[:, :, 2] = np.einsum("bj,abjm->abm", shares, rows[:, :, :2])
    half = draw.normal(size=(2000, 4, 4))
    mass = half @ half.transpose(0, 2, 1) + 0.3 * np.eye(4)
    rubs = {} if friction is None else dict(static=friction, kinetic=friction)
    contacts = flat(3, True if rubs else None, restitution=0.6, poisson=poisson, **rubs)
    struck = lambda v, rows, mass: impact(Mechanism(lambda q, p: mass), jnp.zeros(4), v, rows, contacts)
    given = (jnp.asarray(rows[0]), jnp.asarray(rows[1]))
    after, impulses = map(np.asarray, jax.jit(jax.vmap(struck))(jnp.asarray(v), given, jnp.asarray(mass)))
    good, energy = np.all(np.isfinite(after), axis=1), lambda v: np.einsum("bi,bij,bj->b", v, mass, v)
    codes = {str(code_of_state(jnp.asarray(each))) for each in after[~good]}
    assert codes <= ({"gains_energy"} if not rubs else {"gains_energy", "nonfinite", "not_unique"})
    assert np.mean(good) == 1 if poisson else np.mean(good) > 0.85
    assert np.all(energy(after)[good] <= energy(v)[good] * (1 + 1e-9))
    assert np.all(np.einsum("bij,bj->bi", rows[0], after)[good] >= -1e-7)
    largest = np.max(np.abs(impulses), axis=1, keepdims=True)
    assert np.all((impulses[:, :3] >= -1e-7 * largest)[good])


@pytest.mark.medium
def test_random_impacts_with_friction(random_impacts):
    """What a law's impulses do to the energy of 1000 bodies that strike, in NumPy: it grows where the code says so, and nowhere
    else."""
    _, v, rows = random_impacts
    rows = np.concatenate(rows, axis=1)
    strikes = np.any(np.einsum("bki,bi->bk", rows[:, :3], v) < 0, axis=1).nonzero()[0][:1000]
    v, rows = v[strikes], rows[strikes]
    given = jnp.asarray(v), (jnp.asarray(rows[:, :3]), jnp.asarray(rows[:, 3:]))
    # Of Newton's law every eighth has no solution, two, or one that adds energy; the least gain is 0.2 %.
    for poisson, least, gains in ((False, 0.86, 65), (True, 0.97, 0)):
        bodies = ContactSet(UNIT, tuple(flat(3, True, restitution=0.5, static=0.4, kinetic=0.3, poisson=poisson)), None)

        def impulses(v, rows, bodies=bodies):
            before = bodies.projected(jnp.zeros(()), jnp.concatenate([0 * v, v, jnp.zeros(3)]), rows)
            impulse, *_, why = bodies.impact(before, jnp.ones(3, int), before.velocity[:3] < 0, rows)
            return impulse, why

        impulse, why = jax.jit(jax.vmap(impulses))(*given)
        after = v + np.einsum("bk,bki->bi", np.asarray(impulse), rows)
        ratio = np.sum(after**2, axis=1) / np.sum(v**2, axis=1)
        good, grows = np.asarray(why == "successful"), np.asarray(why == "gains_energy")
        assert np.mean(good) > least and np.sum(grows) == gains
        # Friction of both phases within the cone of the whole impulse.
        normal, friction = np.split(np.asarray(impulse)[good], 2, axis=1)
        assert np.all(np.abs(friction) <= 0.4 * normal + 1e-7 * np.max(normal, axis=1, keepdims=True))
        # Rounding, of compliances with condition numbers up to 1e6.
        assert np.all(ratio[good] <= 1 + 1e-9) and np.all(ratio[grows] > 1)


# Impacts that the laws do not decide


@pytest.mark.parametrize("poisson", [False, True])
def test_an_impact_without_a_solution_is_not_finite(poisson):
    """A mass matrix that is not positive definite: no impulse, which is no gain of energy."""
    body = Mechanism(lambda q, p: jnp.array([[1.0, 2.0], [2.0, 1.0]]))
    foot = Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], 0.5, 0.5, 0.5, poisson=poisson)
    after, impulse = impact(body, jnp.zeros(2), jnp.array([1.0, -1.0]), None, foot)
    assert np.all(np.isnan(after)) and np.all(np.isnan(impulse))
    assert code_of_state(impulse) == "nonfinite" and code_of_state(after) == "nonfinite"


@pytest.mark.parametrize("poisson", [False, True])
def test_friction_by_parameters_that_would_reverse_a_slip(poisson):
    """Static friction 0.3 cannot stop the slip 0.4 of a unit impulse, and kinetic friction 0.9 would stop more than that; nor is
    friction negative. The other parts of the batch are as without these: the slip is stopped, or goes on."""
    body, rubs = Mechanism(lambda q, p: jnp.eye(2)), dict(static=lambda p: p[0], kinetic=lambda p: p[1])
    foot = Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], poisson=poisson, **rubs)
    coefficients = jnp.array([[0.3, 0.9], [0.9, 0.9], [0.3, 0.1], [0.3, -0.1], [0.3, 0.1 * 3]])
    velocity = lambda p: impact(body, jnp.zeros(2), jnp.array([0.4, -1.0]), p, foot)[0]
    after = jax.vmap(velocity)(coefficients)
    assert_allclose(after[1:3], [[0, 0], [0.3, 0]], rtol=0, atol=1e-15)
    assert [code_of_state(after[k]) for k in (0, 3)] == ["nonfinite", "nonfinite"]
    # One number by two formulas, the kinetic one larger by rounding.
    assert coefficients[4, 1] > coefficients[4, 0]
    assert_allclose(after[4], [0.1, 0], rtol=0, atol=1e-15)
    slopes = jax.vmap(jax.jacrev(velocity))(coefficients)
    assert_allclose(slopes[4, 0], [0, -1], rtol=0, atol=1e-15)
    assert np.isnan(slopes[0, 0, 1])


@pytest.mark.medium
@pytest.mark.parametrize("poisson", [False, True])
def test_restitution_by_parameters_out_of_its_range(poisson):
    """Two balls strike the floor at once, each by its own coefficient, with exact velocities and derivatives."""
    ball, body = (
        lambda k: Contact(lambda t, q, p: q[k], restitution=lambda p: p[k], poisson=poisson),
        Mechanism(lambda q, p: jnp.eye(2)),
    )
    coefficients = jnp.array([[0.5, 0.25], [0.0, 0.5], [1.0, 1.0], [-0.5, 0.5], [1.5, 0.5], [0.5, -1e-9]])
    velocity = lambda p: impact(body, jnp.zeros(2), jnp.array([-1.0, -2.0]), p, (ball(0), ball(1)))[0]
    after = jax.vmap(velocity)(coefficients)
    assert_allclose(after[:3], [[0.5, 0.5], [0, 1], [1, 2]], rtol=0, atol=1e-15)
    assert [code_of_state(after[k]) for k in (3, 4, 5)] == ["nonfinite"] * 3
    slope = jax.jacfwd(velocity)(coefficients[0])
    assert_allclose(slope, [[1, 0], [0, 2]], rtol=0, atol=1e-15)
    # A formula that is zero up to rounding, as 0.3 - 0.1 - 0.2, is zero.
    assert_allclose(velocity(jnp.array([-2.8e-17, 0.5])), [0, 1], rtol=0, atol=1e-15)


def test_the_slip_reversed_by_a_parameter_out_of_its_range():
    body, grip = Mechanism(lambda q, p: jnp.eye(2)), dict(restitution=1.0, static=math.inf, tangential=lambda p: p)
    foot = Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], **grip)
    velocity = lambda p: impact(body, jnp.zeros(2), jnp.array([0.4, -1.0]), p, foot)[0]
    after = jax.vmap(velocity)(jnp.array([0.5, 1.1, -0.1]))
    assert_allclose(after[0], [-0.2, 1], rtol=0, atol=1e-15)
    assert [code_of_state(after[k]) for k in (1, 2)] == ["nonfinite", "nonfinite"]


def velocities_by_enumeration(rows, v, friction):
    """Of one impact of two contacts with friction, the velocities by all complementary bases of Stewart and Trinkle's problem."""
    (normal, slip), size = rows, 8
    jacobian = np.concatenate([normal, slip])
    to_forces = np.block([[np.eye(2), np.zeros((2, 4))], [np.zeros((2, 2)), np.eye(2), -np.eye(2)]])
    up, cone = (
        np.concatenate([np.zeros((2, 2)), np.eye(2), np.eye(2)]),
        np.block([friction * np.eye(2), -np.eye(2), -np.eye(2)]),
    )
    matrix = np.block([[to_forces.T @ jacobian @ jacobian.T @ to_forces, up], [cone, np.zeros((2, 2))]])
    offset = np.concatenate([to_forces.T @ jacobian @ v, np.zeros(2)])
    basic = np.array(list(itertools.product([False, True], repeat=size)))
    systems = np.where(basic[:, :, None] & basic[:, None], matrix, np.eye(size))
    sound = np.abs(np.linalg.det(systems)) > 1e-9
    z = np.linalg.solve(np.where(sound[:, None, None], systems, np.eye(size)), np.where(basic, -offset, 0)[..., None])[
        ..., 0
    ]
    fits = sound & np.all(z >= -1e-9, axis=1) & np.all(z @ matrix.T + offset >= -1e-9, axis=1)
    return v + z[fits, :6] @ (jacobian.T @ to_forces).T


@pytest.mark.medium
def test_impacts_with_two_solutions():
    """Against all 256 bases of 400 random impacts, of a contact that strikes while another rests: an impact with two solutions is
    `not_unique`, the others have the one, but where a push may close the gap."""
    draw, friction = np.random.default_rng(5), 2.0
    rows, v = draw.normal(size=(2, 400, 2, 4)), draw.normal(size=(400, 4))
    rest = rows[0, :, 1]
    v -= rest * (np.sum(rest * v, axis=1) / np.sum(rest**2, axis=1))[:, None]
    v *= -np.sign(np.sum(rows[0, :, 0] * v, axis=1))[:, None]
    given, contacts = (jnp.asarray(rows[0]), jnp.asarray(rows[1])), flat(2, True, static=friction, kinetic=friction)
    after = jax.jit(jax.vmap(lambda v, p: impact(UNIT, jnp.zeros(4), v, p, contacts)[0]))(jnp.asarray(v), given)
    several = np.zeros(400, bool)
    for each in range(400):
        found = velocities_by_enumeration(rows[:, each], v[each], friction)
        several[each] = np.max(np.ptp(found, axis=0)) > 1e-6
        compliance, coupled = (rows[0, each] @ other.T for other in rows[:, each])
        painleve = np.any(np.diag(compliance) < friction * np.abs(np.diag(coupled)))
        if not several[each] and not painleve:
            # Solutions of equal velocities, up to the condition of a basis.
            assert_allclose(after[each], found[0], rtol=0, atol=1e-8)
    assert np.all(np.isnan(after[several])) and 4 <= np.sum(several) <= 40
    assert {str(code_of_state(after[each])) for each in np.flatnonzero(several)} == {"not_unique"}
    # The same in a run, half a unit of time before it.
    first = np.flatnonzero(several)[0]
    system = contact_system(UNIT, dict(zip("ab", contacts, strict=True)), tuple("wxyz"))
    rows, v = jax.tree.map(lambda each: each[first], given), jnp.asarray(v[first])
    _, x = start(system, jnp.concatenate([-v / 2, v]), rows)
    end = hj.simulate(system, x, rows, mode="contacts", t1=1.0, max_jumps=3, throw=False)
    assert end.result == "not_unique" and int(end.jumps) == 0
    assert_allclose(end.t, 0.5, rtol=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize("named", [True, False])
def test_newtons_law_at_kanes_pendulum_has_a_code(named):
    """Two equal rods whose tip strikes the floor: with e = 0.5 it would stick, and energy grow by 59 %. Also along a sequence. By
    Poisson's law, in NumPy, the tip slips in compression and sticks in restitution; energy is lost."""
    q, u = np.radians([20.0, 30.0]), np.array([-0.1, -0.2])
    bodies = Mechanism(
        lambda q, p: jnp.array([[4 / 3, 0.0], [0.0, 1 / 3]]) + jnp.cos(q[0] - q[1]) / 2 * (1 - jnp.eye(2))
    )
    tip = lambda **law: Contact(
        lambda t, q, p: np.sum(np.cos(np.radians([20.0, 30.0]))) - jnp.sum(jnp.cos(q)),
        lambda t, q, v, p: jnp.cos(q) @ v, 0.5, 0.5, 0.5, **law,
    )  # fmt: skip
    system = contact_system(bodies, {"tip": tip()} if named else tip(), ("upper", "lower"))
    x = jnp.array([*(q - 1e-3 * u), *u, *([0.0] * named)])
    mode = "contacts" if named else "U"
    end = hj.simulate(system, x, None, mode=mode, t1=1.0, max_jumps=3, throw=False)
    assert end.result == "gains_energy" and int(end.jumps) == 0
    with pytest.raises(hj.SolveError, match="gains_energy: The laws of contact would add kinetic energy"):
        hj.simulate(system, x, None, mode=mode, t1=1.0, max_jumps=3)
    if named:
        step = hj.ReturnMap(system, sequence=("contacts[0]", "contacts[0]"))
        assert step(x, None, throw=False).result == "gains_energy"
        mass, rows = np.asarray(bodies.mass(jnp.asarray(q), None)), np.stack([np.sin(q), np.cos(q)])
        compliance, rates = rows @ np.linalg.solve(mass, rows.T), rows @ u
        ratio = lambda after: after @ mass @ after / (u @ mass @ u)
        kicked = lambda impulse: u + np.linalg.solve(mass, rows.T @ impulse)
        assert_allclose(ratio(kicked(np.linalg.solve(compliance, -rates * [1.5, 1.0]))), 1.59, atol=0.005)
        after, impulse = impact(bodies, jnp.asarray(q), jnp.asarray(u), None, tip(poisson=True))
        pressed = -rates[0] / (compliance[0] @ [1.0, 0.5]) * np.array([1.0, 0.5])
        slip = (rates + compliance @ pressed)[1]
        back = 0.5 * pressed[0]
        returned = np.array([back, -(slip + compliance[1, 0] * back) / compliance[1, 1]])
        assert slip < 0 and abs(returned[1]) < 0.5 * back
        assert_allclose(impulse, pressed + returned, rtol=1e-12)
        assert_allclose(after, kicked(pressed + returned), rtol=1e-12)
        assert ratio(np.asarray(after)) < 1
