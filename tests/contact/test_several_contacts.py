"""Several contacts at once: which of them hold after an impact, against impulses worked out by hand."""

import functools as ft
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj
from hyjax._testing import holding, solve_symmetric
from hyjax.contact import Contact, contacts_system, Mechanism

FALL = Mechanism(lambda q, p: jnp.eye(2), lambda t, q, v, p: jnp.stack([0 * p["g"], -p["g"]]))
ROD = Mechanism(lambda q, p: jnp.diag(jnp.stack([1.0, p["inertia"]])), lambda t, q, v, p: jnp.array([-1.0, 0.0]))


def corner(angle, restitution):
    """A floor, and a wall whose face looks back at `angle` from the vertical: leaning away, or hanging over."""
    normal = jnp.array([-jnp.cos(angle), jnp.sin(angle)])
    return contacts_system(
        FALL,
        {
            "floor": Contact(lambda t, q, p: q[1], restitution=restitution),
            "wall": Contact(lambda t, q, p: normal @ q + 1.0, restitution=restitution),
        },
        ("x", "y"),
    )


def rod(restitution, settle=0.0):
    """It falls and turns by little; its ends are one to either side of its middle, their gaps y - phi and y + phi."""
    end = lambda side, t, q, p: q[0] + side * q[1]
    return contacts_system(
        ROD,
        {
            name: Contact(ft.partial(end, side), restitution=restitution, settle=settle)
            for name, side in (("left", -1), ("right", 1))
        },
        ("y", "phi"),
    )


def strike(system, mode, x, contact, params):
    """Where the impact of a contact leads to from a mode, and the state after it."""
    x, t = jnp.asarray(x), jnp.zeros(())

    def takes(way):
        """The gap of this contact, not another gap, nor a force."""
        held, meant = way.guard.args
        return meant.value == contact and not held.value[contact]

    ways = [way for way in system.transitions if way.source == mode and takes(way)]
    (taken,) = [way for way in ways if way.armed(t, x, params)]
    assert abs(float(taken.guard(t, x, params))) < 1e-15
    return taken.target, np.asarray(taken.reset(t, x, params))


WEIGHT = {"g": jnp.array(1.0)}


@pytest.mark.parametrize(
    "angle, target, after",
    [
        # On the floor against a slope: what is left along it lifts the bead off the floor.
        (np.pi / 4, "wall", [0.5, 0.5]),
        # Under an overhang: along it the bead would go into the floor, so both stop it.
        (-np.pi / 4, "floor+wall", [0.0, 0.0]),
    ],
)
def test_plastic_impact_in_a_corner(angle, target, after):
    x = [1 / np.cos(angle), 0.0, 1.0, 0.0]
    found, end = strike(corner(angle, 0.0), "floor", x, 1, WEIGHT)
    assert found == target
    assert_allclose(end[2:], after, rtol=0, atol=1e-15)


def test_elastic_impact_in_a_corner():
    """Under the overhang: normal rate reversed, the floor pushes back. From the impulses p, r >= 0 along both normals, with
    s = sin 45: v' = 1 - s p, 0 = r - s p, and the rate s (1 + e) of the wall's gap gained, p - s r = s (1 + e)."""
    e = 0.6
    found, end = strike(corner(-np.pi / 4, e), "floor", [2**0.5, 0.0, 1.0, 0.0], 1, WEIGHT)
    s = 0.5**0.5
    p = s * (1 + e) / (1 - s**2)
    assert found == "floor/wall"
    assert_allclose(end[2:], [1 - s * p, 0], rtol=0, atol=1e-15)
    assert_allclose(-s * end[2], e * s, rtol=1e-14)


@pytest.mark.parametrize("e", [0.0, 0.5])
@pytest.mark.parametrize("inertia", [1 / 3, 3.0])
def test_other_end_of_a_rod(e, inertia):
    """The left end rests, the right end strikes at rate -2. Its impulse p gives the left end the rate (1 - 1/J) p: a rod whose
    mass is near its middle, J < 1, presses it down, and it stays; one with its mass outside lifts it off."""
    params = {"inertia": jnp.array(inertia)}
    found, end = strike(rod(e), "left", [0.5, -0.5, -1.0, -1.0], 1, params)
    rates = np.array([end[2] - end[3], end[2] + end[3]])
    assert_allclose(rates[1], 2 * e, rtol=1e-14, atol=1e-15)
    stays = inertia < 1
    assert (
        found
        == {
            (True, 0.0): "left+right",
            (True, 0.5): "left/right",
            (False, 0.0): "right",
            (False, 0.5): "free/right",
        }[stays, e]
    )
    p = 2 * (1 + e) / (1 + 1 / inertia)
    assert_allclose(rates[0], 0 if stays else (1 - 1 / inertia) * p, rtol=1e-14, atol=1e-15)
    # Energy is not gained, and conserved only where e = 1.
    energy = lambda v: v[0] ** 2 + inertia * v[1] ** 2
    assert energy(end[2:]) < energy([-1.0, -1.0])


@pytest.mark.parametrize("settle, target, rate", [(0.9, "right", 1.0), (1.1, "left+right", 0.0)])
def test_an_end_that_opens_slowly_stays(settle, target, rate):
    """For J = 3 the impact of the right end at rate -2 lifts the left end at rate 1: unless that is slow, when both ends stop."""
    found, end = strike(rod(0.0, settle), "left", [0.5, -0.5, -1.0, -1.0], 1, {"inertia": jnp.array(3.0)})
    assert found == target
    assert_allclose([end[2] - end[3], end[2] + end[3]], [rate, 0], rtol=0, atol=1e-15)


def rough_floor(mass, restitution):
    """A bead whose masses in both directions may be coupled, a floor on which it never slips, and a wall far away."""
    floor = Contact(lambda t, q, p: q[1], lambda t, q, v, p: v[0], restitution=restitution, static=math.inf)
    wall = Contact(lambda t, q, p: q[0] + 1.0)
    bead = Mechanism(lambda q, p: jnp.array(mass), FALL.forces)
    return contacts_system(bead, {"floor": floor, "wall": wall}, ("x", "y"))


def test_an_elastic_impact_on_a_rough_floor():
    """The gap opens again, and the slip ends: it is not reversed."""
    found, end = strike(rough_floor([[1.0, 0.0], [0.0, 1.0]], 0.5), "free", [0.0, 0.0, 3.0, -1.0], 0, WEIGHT)
    assert found == "free/floor"
    assert_allclose(end[2:], [0, 0.5], rtol=0, atol=1e-15)


@pytest.mark.parametrize("rate, after", [(0.6, 0.0), (0.1, np.nan), (1e-10, np.nan)])
def test_an_impact_without_a_solution(rate, after):
    """With the mass matrix [[2, 1], [1, 2]] the impulse that stops the velocities (1, -rate) is 2 rate - 1 at the gap: below a
    half it would pull, and no impulse satisfies the conditions, however slowly the gap closes."""
    _, end = strike(rough_floor([[2.0, 1.0], [1.0, 2.0]], 0.0), "free", [0.0, 0.0, 1.0, -rate], 0, WEIGHT)
    assert_allclose(end[2:], [after, after], rtol=0, atol=1e-15)


@pytest.mark.medium
def test_both_ends_of_a_rod_at_once():
    """A rod that falls flat: two guards together, which is reported; tilted by 1e-3, the order is known."""
    system, params = rod(0.0), {"inertia": jnp.array(1 / 3)}
    fall = eqx.filter_jit(lambda x: hj.flow_to_guard(system, "free", 0.0, x, params, throw=False))
    assert fall(jnp.array([0.5, 0.0, 0.0, 0.0])).result == hj.RESULTS.simultaneous_guards
    tilted = fall(jnp.array([0.5, 1e-3, 0.0, 0.0]))
    assert tilted.result == hj.RESULTS.successful
    assert system.transitions[int(tilted.transition)].target == "left"
    assert_allclose(tilted.t, np.sqrt(2 * 0.499), rtol=1e-14)


def test_redundant_rows_share_their_force_by_least_norm():
    """Compliances of every rank, scaled from 1e-3 to 1e3, against numpy's pseudoinverse (a singular value decomposition); rows
    that take no part are zero. Both solutions have errors of rounding times the condition, below 1e4 here."""
    rng = np.random.default_rng(1)
    solve = jax.jit(lambda matrix, right: solve_symmetric(matrix, right, redundant=True))
    for rank in range(5):
        for _ in range(8):
            rows = rng.normal(size=(4, rank)) * 10 ** rng.uniform(-3, 3)
            matrix = rows @ rows.T
            right = matrix @ rng.normal(size=(4, 1))
            expected = np.linalg.pinv(matrix, rcond=1e-10, hermitian=True) @ right
            assert_allclose(solve(matrix, right), expected, rtol=0, atol=1e-9 * max(1, np.abs(expected).max()))
    held = jnp.array([True, False, True, False])
    force = holding(matrix, jnp.ones(4), held, redundant=True)
    assert list(force == 0) == [False, True, False, True]
    # Not defined, not zero: the mass matrix was not positive definite.
    assert np.all(np.isnan(solve(jnp.full((4, 4), jnp.nan), jnp.ones((4, 1)))))
