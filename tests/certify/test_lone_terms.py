"""Each term of a bound by itself, against exact arithmetic: where all others vanish, none makes up for one that is forgotten."""

import itertools
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from exact_sets import fractions, inverse, member, missed, outside, state

import hyjax as hj
from hyjax._testing import (
    BALL,
    ball,
    basis,
    crossed,
    disturbance_displacement,
    enclosed_step_widened as widened,
    evaluate,
    flow_of,
    frame_of,
    gathered,
    graph_of,
    identity_frame,
    ModeField,
    multiply,
    nested,
    StateSet,
    TaylorModel,
)


@pytest.mark.parametrize("form", [BALL, basis(1, 1)], ids=["balls", "degree 1"])
def test_a_subnormal_factor_times_a_huge_one_is_not_zero(form):
    """XLA may flush an operand of 1e-309 to zero; its product with 1e300 is 1e-9. In each coefficient, and in the radius."""
    multiplied = jax.jit(multiply)
    for place in range(form.size + 1):
        tiny, huge = np.zeros((2, form.size + 1))
        tiny[place], huge[0] = 1e-309, 1e300
        a, b = (TaylorModel(jnp.asarray(each[:-1]), jnp.asarray(each[-1]), form) for each in (tiny, huge))
        for result in (multiplied(a, b), multiplied(b, a)):
            for s in [()] if form is BALL else [(1,), (-1,)]:
                for e in (1, -1):
                    assert not missed(result, s, member(a, s, e) * member(b, s, e))


@pytest.mark.medium
def test_each_term_of_displacements_is_put_back_by_itself():
    """A polynomial of one term in s and v, v = 3/4 u + 1/4 e for unit vectors u and any |e| <= 1."""
    form, larger = basis(2, 1), basis(5, 2)
    hidden = jnp.asarray(0.75 * np.eye(3)[None]), jnp.full(3, 0.25)
    none = jnp.zeros((3, 2))
    back = jax.jit(lambda states: gathered(states, hidden, form))
    units = [sign * row for row in fractions(np.eye(3)) for sign in (-1, 1)] + [
        np.array([2, -1, 2], object) / Fraction(3)
    ]
    for k in range(larger.size):
        polynomial = jnp.zeros((larger.size, 3)).at[k].set(jnp.array([1.0, -2.0, 3.0]))
        states = StateSet(polynomial, jnp.zeros((0, 3, 3)), jnp.zeros(3), none, none, identity_frame(3), larger)
        whole = back(states)
        for s in ((1, -1), (-1, -1), (Fraction(1, 4), 0)):
            for u in units:
                for e in ((1, 1, 1), (-1, -1, -1), (1, -1, 1), (0, 0, 0)):
                    v = Fraction(3, 4) * u + np.array(e, object) / Fraction(4)
                    image = state(states, [*s, *v])
                    assert not outside(whole, image, s, [u, s[0] * u, s[1] * u]), larger.exponents[k]


def system_of(rate, names):
    """One mode, that a guard leaves."""
    return hj.HybridSystem(
        {"m": hj.Mode(rate, names)}, (hj.Transition("m", "m", lambda t, x, p: x[0], lambda t, x, p: x),)
    )


GROWING = ModeField(system_of(lambda t, x, p: jnp.stack([x[0], -2 * x[1]]), ("x", "y")), "m", None, False)


@pytest.mark.medium
@pytest.mark.parametrize("orders", [1, 2, 4])
def test_the_remainder_of_a_derivative_grows_in_a_step(orders):
    """x' = x and y' = -2 y: the remainder of exp(h) is more than its first term, and that does not depend on the states."""
    h, none = jnp.asarray(0.125), jnp.zeros((2, 0))
    states = StateSet(jnp.ones((1, 2)), jnp.zeros((0, 2, 2)), jnp.zeros(2), none, none, identity_frame(2), BALL)
    flow = flow_of(GROWING, states, h, jnp.zeros(2), orders)
    assert flow.proved
    matrix = widened(nested(flow.derivative, ball(h))[:, 1:], flow.left_out[:, 1:])
    for i, rate in enumerate((1, -2)):
        exact = mpmath.exp(mpmath.mpf(rate) / 8)
        assert abs(exact - float(matrix.center[i, i])) <= float(matrix.radius[i, i])


@pytest.mark.medium
@pytest.mark.parametrize("h", [0.01, 0.1])
def test_a_gust_that_changes_its_sign_in_a_step_displaces(h):
    """x'' = w, |w| <= 1: along (1, -h / 2) the gust that turns at the middle of the step displaces by h^2 / 4."""
    field = ModeField(system_of(lambda t, x, p: jnp.stack([x[1], 0 * x[0]]), ("x", "v")), "m", None, False)
    wind, none = jnp.array([[[0.0], [1.0]]]), jnp.zeros((2, 0))
    states = StateSet(jnp.ones((1, 2)), jnp.zeros((0, 2, 1)), jnp.zeros(2), none, none, identity_frame(2), BALL)
    flow = flow_of(field, states, jnp.asarray(h), jnp.array([0.0, 1.0]), 3)
    generators, radius = map(
        np.asarray,
        disturbance_displacement(flow, wind, jnp.asarray(h)),
    )
    along = np.array([1.0, -h / 2])
    bound = np.linalg.norm(along @ generators[0]) + np.abs(along) @ radius
    assert flow.proved and h * h / 4 <= bound < h * h / 3.3


def test_an_inverse_whose_product_rounds_to_the_identity_has_a_radius():
    """fl(1/3) 3 = 1 and fl(1/7) 7 = 1 in floating point: the defect is seen only in what its rounding may hide."""
    frame = frame_of(np.diag([3.0, 7.0, 1.0]))
    assert np.array_equal(frame.inverse @ frame.matrix, np.eye(3))
    apart = np.abs(inverse(fractions(frame.matrix)) - fractions(frame.inverse))
    assert np.any(apart > 0) and np.all(apart <= fractions(frame.inverse_radius))


def falling(guard, error):
    """The field x' = -1, y' = 0 with a guard; and its flow from (0.3, 0) with errors, for half a unit of time."""
    system = hj.HybridSystem(
        {"m": hj.Mode(lambda t, x, p: jnp.stack([-1 + 0 * x[0], 0 * x[1]]), ("x", "y"))},
        (hj.Transition("m", "m", guard, lambda t, x, p: x),),
    )
    field, none = ModeField(system, "m", None, False), jnp.zeros((2, 1))
    states = StateSet(
        jnp.array([[0.3, 0.0], [0.0, 0.0]]),
        jnp.zeros((0, 2, 1)),
        jnp.asarray(error),
        none,
        none,
        identity_frame(2),
        basis(1, 1),
    )
    return field, states, flow_of(field, states, jnp.asarray(0.5), jnp.zeros(2), 3)


def arrived(field, states, flow):
    """The states on the guard's surface, and what is proved of them."""
    ended, _, _, conditions = crossed(field, 0, flow, states, jnp.asarray(0.5), jnp.zeros((0, 2, 1)))
    return ended, conditions


@pytest.mark.medium
def test_an_event_without_a_box_is_not_proved():
    """The same set and window: as it is; without the condition of Picard's theorem; with a rate for which the ball about the
    event has no room for states that are late by 1/10."""
    field, states, flow = falling(lambda t, x, p: x[0], [0.1, 0.0])
    unproved = eqx.tree_at(lambda each: each.proved, flow, jnp.asarray(False))
    slow = eqx.tree_at(lambda each: each.rate.coefficients, flow, 0.1 * flow.rate.coefficients)
    for of, proved in ((flow, True), (unproved, False), (slow, False)):
        _, conditions = arrived(field, states, of)
        found = {name: bool(each) for name, each in conditions.items()}
        assert found == {"box": proved, "falls": True, "crosses": True}


@pytest.mark.medium
@pytest.mark.parametrize("error", [1e-6, 1e-2, 0.1])
def test_displacements_to_where_a_normal_turns_are_projected(error):
    """x falls with the rate 1 to the surface x = y^2: from y = +-e, displaced from the polynomial, which reaches it at y = 0."""
    field, states, flow = falling(lambda t, x, p: x[0] - x[1] ** 2, [0.0, error])
    ended, conditions = arrived(field, states, flow)
    assert all(conditions.values())
    for y in (Fraction(error), -Fraction(error)):
        assert not outside(ended, np.array([y * y, y]), (0,))


def test_a_sum_of_three_that_cancels_has_the_rounding_of_its_parts():
    """1 + 2^-60 - 1 in any order: where the small term is lost in the first sum, the result is zero."""
    graph = graph_of(lambda x: jnp.stack([x[0] + x[1] + x[2], 3 * x[0] + x[1] - x[2]]), jnp.zeros(3))
    lost = 0
    for x in itertools.permutations((1.0, 2.0**-60, -1.0)):
        result = evaluate(graph, TaylorModel(jnp.array([x]), jnp.zeros(3), BALL), [])
        a, b, c = fractions(x)
        assert not np.any(missed(result, (), np.array([a + b + c, 3 * a + b - c])))
        lost += float(result.center[0]) == 0
    assert lost
