"""Each term of a bound by itself, against exact arithmetic: where all others vanish, none makes up for one that is forgotten."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_sets import fractions, member, missed, outside, state

from hyjax.certify.basis import BALL, basis
from hyjax.certify.event import gathered, Hidden
from hyjax.certify.state_set import identity_frame, StateSet
from hyjax.certify.taylor_model import multiply, TaylorModel


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


def test_each_term_of_displacements_is_put_back_by_itself():
    """A polynomial of one term in s and v, v = 3/4 u + 1/4 e for unit vectors u and any |e| <= 1."""
    form, larger = basis(2, 1), basis(5, 2)
    hidden = Hidden(jnp.asarray(0.75 * np.eye(3)[None]), jnp.full(3, 0.25))
    none = jnp.zeros((3, 2))
    back, frame = jax.jit(lambda states: gathered(states, hidden, form)), identity_frame(3)
    units = [sign * row for row in fractions(np.eye(3)) for sign in (-1, 1)] + [
        np.array([2, -1, 2], object) / Fraction(3)
    ]
    for k in range(larger.size):
        polynomial = jnp.zeros((larger.size, 3)).at[k].set(jnp.array([1.0, -2.0, 3.0]))
        states = StateSet(polynomial, jnp.zeros((0, 3, 3)), jnp.zeros(3), none, none, larger)
        whole = back(states)
        for s in ((1, -1), (-1, -1), (Fraction(1, 4), 0)):
            for u in units:
                for e in ((1, 1, 1), (-1, -1, -1), (1, -1, 1), (0, 0, 0)):
                    v = Fraction(3, 4) * u + np.array(e, object) / Fraction(4)
                    image = state(states, frame, [*s, *v])
                    assert not outside(whole, frame, image, s, [u, s[0] * u, s[1] * u]), larger.exponents[k]
