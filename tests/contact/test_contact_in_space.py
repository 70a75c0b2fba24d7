"""Rough contacts in space, with two tangents, against pinned bodies and equations in NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax.contact import Contact, contact_system, impact, lagrangian, set_name, start

GRAVITY = 9.81


def turned(angles, r):
    """A point of a body that is rolled, then pitched, then yawed."""
    (ca, cb, cc), (sa, sb, sc) = jnp.cos(angles), jnp.sin(angles)
    x, y, z = r
    y, z = ca * y - sa * z, sa * y + ca * z
    x, z = cb * x + sb * z, cb * z - sb * x
    return jnp.stack([cc * x - sc * y, sc * x + cc * y, z])


def rough(point, **coefficients):
    """A contact of a point of a body, a function of its positions, with the plane z = 0."""
    along = lambda k: lambda t, q, v, p: jax.jvp(lambda q: point(q)[k], (q,), (v,))[1]
    return Contact(lambda t, q, p: point(q)[2], (along(0), along(1)), static=math.inf, **coefficients)


# Four equal masses at the corners of a tetrahedron that is stretched, on three or four feet below them.
MASSES = np.array([[0.5, 0.1, 0.3], [-0.4, 0.4, 0.2], [-0.3, -0.5, 0.1], [0.2, 0.0, -0.6]])
MASSES = MASSES - MASSES.mean(axis=0)
FEET = np.array([[0.4, 0.3, -0.8], [-0.4, 0.3, -0.8], [-0.4, -0.3, -0.8], [0.4, -0.3, -0.8]])
place = lambda r: lambda q: q[:3] + turned(q[3:], r)


def kinetic(q, v):
    rates = [jax.jvp(place(r), (q,), (v,))[1] for r in MASSES]
    return sum(rate @ rate for rate in rates) / 8


BODY = lagrangian(
    lambda q, v, p: kinetic(q, v) - GRAVITY * q[2], lambda t, q, v, p: jnp.concatenate([p, jnp.zeros(4, q.dtype)])
)
NAMES = ("x", "y", "z", "roll", "pitch", "yaw")
STILL = jnp.zeros(2)


@pytest.mark.medium
def test_a_body_that_turns_about_a_rough_foot():
    """Its acceleration is that of the body pinned there, with one contact and with contacts by name."""
    foot = rough(place(FEET[0]))
    pinned = BODY.reduced(lambda angles, p: jnp.concatenate([-turned(angles, FEET[0]), angles]))
    angles, rates = jnp.array([0.3, -0.2, 0.5]), jnp.array([0.4, 0.7, -0.3])
    embed = lambda angles: jnp.concatenate([-turned(angles, FEET[0]), angles])
    q, v = jax.jvp(embed, (angles,), (rates,))
    alone, named = (contact_system(BODY, each, NAMES) for each in (foot, {"foot": foot}))
    x, t = jnp.concatenate([q, v]), jnp.zeros(())
    expected = pinned.acceleration(t, angles, rates, STILL)
    for system, mode, begun in ((alone, "C", x), (named, "contacts", jnp.append(x, 1.0))):
        found = system.modes[mode].vector_field(t, begun, STILL)
        # Two routes through systems of six equations.
        assert_allclose(found[9:12], expected, rtol=1e-12)
        assert_allclose(found[6:12], jax.jvp(lambda a: jax.jvp(embed, (a,), (rates,))[1], (angles,), (rates,))[1]
                        + jax.jacfwd(embed)(angles) @ expected, rtol=1e-11, atol=1e-11)  # fmt: skip
    assert start(alone, jnp.concatenate([q, v]), STILL)[0] == "C"
    assert set_name(named, start(named, jnp.concatenate([q, v]), STILL)[1]) == "foot:stick"


def rows(foot, q):
    return np.asarray(jax.jacfwd(place(foot))(q))[[2, 0, 1]]


@pytest.mark.medium
def test_impacts_in_space():
    """One foot: M v' - J^T p = M v with J v' = -e J v in the row of the gap and 0 in those of the slips, half of which return by
    the tangential restitution. Four feet of a body that falls flat: it stops."""
    q, v = jnp.array([0.1, 0.2, 1.0, 0.2, -0.4, 0.3]), jnp.array([0.4, -0.3, -1.0, 0.5, 0.2, -0.6])
    after, impulse = impact(BODY, q, v, STILL, rough(place(FEET[0]), restitution=0.4, tangential=0.5))
    mass, jacobian = np.asarray(BODY.mass(q, STILL)), rows(FEET[0], q)
    whole = np.block([[mass, -jacobian.T], [jacobian, np.zeros((3, 3))]])
    solved = np.linalg.solve(whole, np.concatenate([mass @ v, -np.array([0.4, 0.5, 0.5]) * (jacobian @ v)]))
    assert (jacobian @ v)[0] < 0
    assert_allclose(np.concatenate([after, impulse]), solved, rtol=1e-11)
    feet = [rough(place(foot)) for foot in FEET]
    flat = jnp.zeros(6).at[2].set(0.8)
    after, impulse = impact(BODY, flat, jnp.array([0.3, -0.2, -1.0, 0.1, 0.2, 0.4]), STILL, feet)
    assert_allclose(after, 0, atol=1e-12)
    assert_allclose([np.sum(impulse[:4]), np.sum(impulse[4::2]), np.sum(impulse[5::2])], [1.0, -0.3, 0.2], rtol=1e-10)


@pytest.mark.medium
def test_a_body_on_four_feet():
    """Twelve rows of six coordinates. It stands under a push along x below the limit at which it tips, g 0.4 / 0.8, beyond which
    the two feet behind leave the ground."""
    system = contact_system(BODY, {f"foot{i}": rough(place(foot)) for i, foot in enumerate(FEET)}, NAMES)
    rest = jnp.zeros(12).at[2].set(0.8)
    begin = jax.jit(lambda push: start(system, rest, push)[1])
    for factor, feet in ((0.98, [1, 1, 1, 1]), (1.02, [1, 0, 0, 1])):
        push = jnp.array([factor * GRAVITY / 2, 0.0])
        x = begin(push)
        assert list(x[12:]) == feet
        rate = system.modes["contacts"].vector_field(jnp.zeros(()), x, push)
        if all(feet):
            # Forces of least norm, of rows that depend on each other.
            assert_allclose(rate, 0, atol=1e-9)
        else:
            assert rate[10] > 0.01
    with pytest.raises(
        ValueError, match=r"foot0, foot1, foot2, foot3: the laws of contact have no solution: a contact that"
    ):
        start(system, rest.at[7].set(0.1), STILL)


def test_two_tangents_are_for_rough_contacts(unchecked):
    gap, slip = lambda t, q, p: q[2], lambda t, q, v, p: v[0]
    for slips, friction in (((slip, slip), 0.5), ((slip,), math.inf), ((slip, 3), math.inf)):
        with pytest.raises(ValueError, match=r"slip must be a function .* Two are for a contact that never slips"):
            Contact(gap, slips, static=friction, kinetic=friction)  # pyright: ignore[reportArgumentType]


def test_two_tangents_are_two_functions():
    both = Contact(lambda t, q, p: q[2], lambda t, q, v, p: v[:2], static=math.inf)
    with pytest.raises(
        ValueError,
        match=r"slip must return an array of shape \(\), not \(2,\)\. For two .* slip=\(forward, sideways\)",
    ):
        impact(hj.contact.Mechanism(lambda q, p: jnp.eye(3)), jnp.zeros(3), jnp.ones(3), None, both)
