"""Parts for systems of one's own: bodies in fewer coordinates, the impact of listed contacts, the exchange of legs."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import uses_time
from hyjax.contact import Contact, contact_system, impact, lagrangian, Mechanism, relabelling

GRAVITY = 9.81
# Two masses of 1 and 2 kg in a plane, and the lengths of the rods by which they hang.
MASSES, RODS = np.array([1.0, 1.0, 2.0, 2.0]), np.array([0.7, 0.5])


def places(angles, lengths):
    first = lengths[0] * jnp.stack([jnp.sin(angles[0]), -jnp.cos(angles[0])])
    return jnp.concatenate([first, first + lengths[1] * jnp.stack([jnp.sin(angles[1]), -jnp.cos(angles[1])])])


def drag(t, q, v, lengths):
    return -MASSES * jnp.array([0.0, GRAVITY, 0.0, GRAVITY]) - 0.3 * v + jnp.sin(t)


@pytest.mark.medium
def test_bodies_in_fewer_coordinates_are_those_of_their_lagrangian():
    """Two masses held by rods, with a mass matrix that depends on the place, against the Lagrangian of the double pendulum."""

    def mass(q, lengths):
        return jnp.diag(MASSES * (1 + 0.1 * jnp.sum(q**2)))

    pendulum = Mechanism(mass, drag).reduced(places)

    def energy(angles, rates, lengths):
        q, v = jax.jvp(lambda angles: places(angles, lengths), (angles,), (rates,))
        return v @ mass(q, lengths) @ v / 2

    def push(t, angles, rates, lengths):
        q, v = jax.jvp(lambda angles: places(angles, lengths), (angles,), (rates,))
        return jax.vjp(lambda angles: places(angles, lengths), angles)[1](drag(t, q, v, lengths))[0]

    direct = lagrangian(energy, push)
    angles, rates = np.random.default_rng(1).normal(size=(2, 20, 2))
    both = lambda each: jax.jit(jax.vmap(lambda q, v: each.acceleration(jnp.array(0.4), q, v, jnp.asarray(RODS))))
    assert_allclose(both(pendulum)(angles, rates), both(direct)(angles, rates), rtol=1e-12, atol=1e-12)
    slope = lambda each: jax.grad(
        lambda lengths: jnp.sum(
            each.acceleration(jnp.array(0.4), jnp.asarray(angles[0]), jnp.asarray(rates[0]), lengths)
        )
    )(jnp.asarray(RODS))
    assert_allclose(slope(pendulum), slope(direct), rtol=1e-11)


def test_dependent_columns_and_a_wrong_embedding():
    line = Mechanism(lambda q, p: jnp.eye(2)).reduced(lambda theta, p: jnp.stack([theta[0] + theta[1], 0 * theta[0]]))
    assert np.all(np.isnan(line.acceleration(jnp.array(0.0), jnp.ones(2), jnp.ones(2), None)))
    with pytest.raises(ValueError, match=r"reduced: embedding must be a function of \(theta, params\), not 3"):
        Mechanism(lambda q, p: jnp.eye(2)).reduced(3)  # pyright: ignore[reportArgumentType]


def lever(side, q):
    """From the centre of a block to one of its lower corners."""
    sine, cosine = jnp.sin(q[2]), jnp.cos(q[2])
    return jnp.stack([side * 0.3 * cosine + 0.5 * sine, side * 0.3 * sine - 0.5 * cosine])


def corner(side, **laws):
    return Contact(lambda t, q, p: q[1] + lever(side, q)[1], lambda t, q, v, p: v[0] - lever(side, q)[1] * v[2], **laws)


BLOCK = Mechanism(
    lambda q, p: jnp.diag(jnp.array([2.0, 2.0, 0.4])), lambda t, q, v, p: jnp.array([0.0, -2 * GRAVITY, 0.0])
)


def rows(side, q):
    x, y = np.asarray(lever(side, q))
    return np.array([[0.0, 1.0, x], [1.0, 0.0, -y]])


def test_an_impact_without_slip_solves_the_equations_of_the_impulses():
    """M (v+ - v-) = J' Lambda, J v+ = -(e v_n, 0), in the form with all unknowns; and its derivative by the restitution."""
    q, v = jnp.array([0.1, 0.6, 0.4]), jnp.array([0.3, -1.0, 0.7])
    foot = corner(-1, static=math.inf, restitution=lambda p: p)
    after, impulse = jax.jit(lambda e: impact(BLOCK, q, v, e, foot))(jnp.array(0.4))
    mass, jacobian = np.asarray(BLOCK.mass(q, None)), rows(-1, q)
    whole = np.block([[mass, -jacobian.T], [jacobian, np.zeros((2, 2))]])
    wanted = np.array([-0.4 * (jacobian @ v)[0], 0.0])
    solved = np.linalg.solve(whole, np.concatenate([mass @ v, wanted]))
    assert (jacobian @ v)[0] < 0
    assert_allclose(np.concatenate([after, impulse]), solved, rtol=1e-13)
    slope = jax.jacfwd(lambda e: impact(BLOCK, q, v, e, foot)[0])(jnp.array(0.4))
    turned = np.linalg.solve(whole, np.concatenate([np.zeros(3), [-(jacobian @ v)[0], 0.0]]))
    assert_allclose(slope, turned[:3], rtol=1e-12)


@pytest.mark.parametrize("friction", [0.05, 2.0])
def test_an_impact_is_that_of_a_system_with_one_contact(friction):
    foot = corner(1, static=friction, kinetic=friction, restitution=0.3)
    system = contact_system(BLOCK, foot, ("x", "y", "angle"))
    q, v = jnp.array([0.1, 0.4, 0.2]), jnp.array([1.3, -1.0, 0.1])
    strike = next(each for each in system.transitions if each.source == "U")
    theirs = strike.reset(jnp.array(0.0), jnp.concatenate([q, v]), None)[3:]
    after, (normal, tangential) = impact(BLOCK, q, v, None, foot)
    assert_allclose(after, theirs, rtol=1e-14)
    slips = abs((rows(1, q) @ after)[1]) > 1e-12
    assert slips == (friction < 1) and abs(tangential) <= friction * normal * (1 + 1e-12)


@pytest.mark.medium
def test_several_contacts_at_once_and_one_that_opens():
    """A block that falls flat stops with half the impulse at each corner. One that turns about a corner at rest, and whose other
    corner strikes, leaves the first one as Housner's block does; and a contact that opens has no impulse."""
    corners = [corner(side, static=math.inf) for side in (-1, 1)]
    q = jnp.array([0.0, 0.5, 0.0])
    after, impulse = impact(BLOCK, q, jnp.array([0.0, -1.0, 0.0]), None, corners)
    assert_allclose(after, 0, atol=1e-13)
    assert_allclose(impulse, [1.0, 1.0, 0.0, 0.0], atol=1e-13)
    # Turning at the rate -1 about the left corner, which is at rest; then about the right one.
    after, impulse = impact(BLOCK, q, jnp.array([0.5, -0.3, -1.0]), None, corners)
    kept = (0.4 + 2 * (0.5**2 - 0.3**2)) / (0.4 + 2 * (0.5**2 + 0.3**2))
    assert_allclose(after, -kept * np.array([-0.5, -0.3, 1.0]), rtol=1e-12)
    assert impulse[0] == 0 and impulse[1] > 0
    for contacts in (corners[0], corners):
        rises = jnp.array([0.2, 1.0, 0.1])
        after, impulse = impact(BLOCK, q, rises, None, contacts)
        assert np.all(after == rises) and not np.any(impulse)


def test_bad_arguments_of_an_impact():
    q, foot = jnp.zeros(3), corner(1, static=math.inf)
    for contacts in ([], [foot, 3]):
        with pytest.raises(ValueError, match="impact: give one"):
            impact(BLOCK, q, q, None, contacts)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"coordinates of shape \(3,\) and \(2,\)"):
        impact(BLOCK, q, q[:2], None, foot)
    with pytest.raises(ValueError, match=r"must be a hj\.contact\.Mechanism"):
        impact(3, q, q, None, foot)  # pyright: ignore[reportArgumentType]
    falls = jnp.array([0.2, -1.0, 0.1])
    assert np.array_equal(impact(BLOCK, q, falls, None, {"foot": foot})[0], impact(BLOCK, q, falls, None, foot)[0])


def test_legs_are_exchanged():
    names = ("pitch", "hip1", "knee1", "hip2", "knee2")
    legs = relabelling(names, {"hip1": "hip2", "knee1": "knee2"})
    assert legs.tolist() == [0, 3, 4, 1, 2] and hj.contact.relabelling is relabelling
    for pairs, wrong in (({"hip1": "hip3"}, "hip3"), ({"hip1": "hip2", "knee1": "hip2"}, "hip2")):
        with pytest.raises(ValueError, match=f"relabelling: '{wrong}' must be one of the coordinates"):
            relabelling(names, pairs)


def test_a_contact_that_opens_has_no_impulse():
    """Of two points of two bodies one strikes, and the other one opens, more slowly than `settle`: nothing pulls it back."""
    apart = Mechanism(lambda q, p: jnp.eye(2))
    ends = [Contact(lambda t, q, p, k=k: q[k], settle=0.3) for k in range(2)]
    after, impulse = impact(apart, jnp.zeros(2), jnp.array([-1.0, 0.1]), None, ends)
    assert_allclose(after, [0.0, 0.1], rtol=0, atol=1e-15)
    assert_allclose(impulse, [1.0, 0.0], rtol=0, atol=1e-15)


def test_a_system_of_contacts_depends_on_time_where_a_gap_does():
    """Its functions hand the time on, and use it as the scale of rounding."""
    ball = hj.contact.lagrangian(lambda q, v, p: v @ v / 2 - 9.81 * q[1])

    def depends(moves, names):
        floor = hj.contact.Contact(
            gap=lambda t, q, p: q[1] + moves * jnp.sin(t) if moves else q[1],
            slip=lambda t, q, v, p: v[0],
            restitution=0.5,
            static=0.3,
            kinetic=0.3,
        )
        system = hj.contact.contact_system(ball, {"foot": floor} if names else floor, coordinates=("x", "y"))
        system = system.with_sizes(lambda k: 3) if names else system
        return uses_time(system, system.names, range(len(system.ways)), None, jnp.float64)

    assert [depends(*case) for case in itertools.product((0, 0.1), (False, True))] == [False, False, True, True]
