"""Mechanical work, and numbers along the arcs, in closed form."""

import itertools

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from numpy.testing import assert_allclose
from systems import ROLLED

import hyjax as hj
from hyjax._testing import _value, measured

# y' = -k y, and a kick of 1 at the end of each period T: with the time s since the kick, y = y0 exp(-k s),
# y0 = 1 / (1 - exp(-k T)). In one mode; and in two, of which the first ends at T/3.


class Decay(eqx.Module):
    k: Float[Array, ""]
    T: Float[Array, ""]
    c: Float[Array, ""]
    w: Float[Array, ""]


def decay(t, x, p):
    return jnp.stack([-p.k * x[0], jnp.ones_like(t)])


def kick(t, x, p):
    return jnp.stack([x[0] + 1, 0 * t])


def left(t, x, p):
    return p.T - x[1]


mode = hj.Mode(decay, ("y", "clock"))
one = hj.HybridSystem({"a": mode}, (hj.Transition("a", "a", guard=left, reset=kick),))
two = hj.HybridSystem(
    {"a": mode, "b": mode},
    (
        hj.Transition("a", "b", guard=lambda t, x, p: p.T / 3 - x[1], reset=lambda t, x, p: x),
        hj.Transition("b", "a", guard=left, reset=kick),
    ),
)
POINT = jnp.array([0.7, 1.9, 0.8, 5.1])


def power(t, x, p):
    return x[0] - p.c


def wave(t, x, p):
    return x[0] * jnp.sin(p.w * x[1])


POSITIVE, NEGATIVE, LARGEST = (
    hj.objectives.positive_work(power), hj.objectives.negative_work(power), hj.objectives.largest(wave)
)  # fmt: skip


def orbit_at(v, system=one, strides=1, integrator=hj.Integrator()):
    return hj.periodic_orbit(
        hj.ReturnMap(system, sequence=system.names, strides=strides, integrator=integrator),
        jnp.array([1.4, 0.0]),
        Decay(*v),
    )


def closed_forms(v):
    """The positive and the negative work of a period, and the largest value of y sin(w s).

    The power is positive until y = c; y sin(w s) is largest where first tan(w s) = w / k."""
    k, T, c, w = v
    y0 = 1 / (1 - jnp.exp(-k * T))
    s, top = jnp.log(y0 / c) / k, jnp.arctan2(w, k) / w
    positive = y0 * (1 - jnp.exp(-k * s)) / k - c * s
    negative = c * (T - s) - y0 * (jnp.exp(-k * s) - jnp.exp(-k * T)) / k
    return jnp.stack([positive, negative, y0 * jnp.exp(-k * top) * jnp.sin(w * top)])


def all_orders(function):
    """Value, gradient or Jacobian, and Hessian, by one program in forward mode."""

    def slope(v):
        value, push = jax.linearize(function, v)
        jacobian = jax.vmap(push, out_axes=-1)(jnp.eye(v.size))
        return jacobian, (value, jacobian)

    def every(v):
        hessian, (value, jacobian) = jax.jacfwd(slope, has_aux=True)(v)
        return value, jacobian, hessian

    return every


# The numbers are of order 1 and the integrator's tolerance is 1e-14; each derivative by w multiplies rounding by some w T = 10.
TOLERANCES = 1e-13, 1e-12, 5e-11


CHECKPOINT = hj.Integrator(unroll=False, adjoint=dfx.RecursiveCheckpointAdjoint())


@pytest.mark.slow
def test_positive_work_to_second_order():
    def work(v):
        orbit = orbit_at(v, integrator=ROLLED)
        return POSITIVE(orbit, orbit.params)

    found = jax.jit(all_orders(work))(POINT)
    for here, there, atol in zip(found, all_orders(lambda v: closed_forms(v)[0])(POINT), TOLERANCES, strict=True):
        assert_allclose(here, there, rtol=0, atol=atol)


@pytest.mark.slow
def test_reverse_mode():
    def numbers(v):
        orbit = orbit_at(v, integrator=CHECKPOINT)
        return jnp.stack([each(orbit, orbit.params) for each in (POSITIVE, LARGEST)])

    expected = lambda v: closed_forms(v)[::2]
    slopes, values = jax.jit(jax.jacrev(lambda v: (numbers(v),) * 2, has_aux=True))(POINT)
    assert_allclose(values, expected(POINT), rtol=0, atol=1e-13)
    assert_allclose(slopes, jax.jacfwd(expected)(POINT), rtol=0, atol=1e-12)


@pytest.mark.slow
def test_cost_of_transport():
    """Half of the braking counts, and a push-off; the way has two parts of each stride."""
    travel = lambda mode, x, p: jnp.stack([p.w / (3 if mode == "a" else 2), 0 * p.w])
    pushes = lambda orbit, params: params.k * orbit.period
    cost = hj.objectives.cost_of_transport(power, travel, lambda p: 2 * p.T, negative=0.5, impulsive=pushes)
    orbit = orbit_at(POINT, two, 2, ROLLED)
    k, T, _, w = POINT
    positive, negative, _ = closed_forms(POINT)
    work = 2 * (positive + 0.5 * negative) + k * 2 * T
    assert_allclose(eqx.filter_jit(cost)(orbit, orbit.params), work / (2 * T * 2 * w * (1 / 3 + 1 / 2)), rtol=1e-13)


# A clock, and functions of time: coefficients of 1, s, s^2, s^3 and sin(70 s), for s from 0 to 1.
clock = hj.HybridSystem(
    {"run": hj.Mode(lambda t, x, p: jnp.ones_like(x), ("clock",))},
    (hj.Transition("run", "run", guard=lambda t, x, p: 1 - x[0], reset=lambda t, x, p: jnp.zeros_like(x)),),
)


def polynomial(t, x, p):
    return p @ jnp.stack([jnp.ones_like(t), t, t**2, t**3, jnp.sin(70 * t)])


@pytest.fixture(scope="module")
def day():
    return hj.periodic_orbit(hj.ReturnMap(clock, sequence=("run",)), jnp.zeros(1), jnp.zeros(5))


def smooth(*coefficients):
    return np.append(np.polynomial.Polynomial(coefficients).coef, np.zeros(5 - len(coefficients)))


DEVIATION = 1e-7
POWERS = {
    "no sign change": smooth(0.3, 1.0),
    "starts at zero": smooth(0.0, 1.0),
    "starts at zero and falls": smooth(0.0, -1.0, 0.2),
    "sign change at the very end": smooth(1.0, -1.0),
    "zero at both ends": smooth(0.0, 1.0, -1.0),
    "zero all along": smooth(0.0),
    "touches zero from above": smooth(0.25, -1.0, 1.0),
    "touches zero from below": smooth(-0.25, 1.0, -1.0),
    "all but touches zero": smooth(0.25 - DEVIATION, -1.0, 1.0),
    "crosses at a triple root": smooth(-0.125, 0.75, -1.5, 1.0),
    "three sign changes": smooth(-0.1, 0.96, -2.2, 1.4),
    "sign change just before the end": smooth(1.0 - 1e-13, -1.0),
    "turns early": smooth(0.0, 0.1, -1.0),
}


def exact_work(coefficients):
    """Positive and negative work, and the derivative of the positive work, from the roots of the polynomial."""
    p = np.polynomial.Polynomial(coefficients[:4])
    roots = p.trim().roots() if np.any(coefficients[1:]) else np.zeros(0)
    real = np.sort(roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > 0) & (roots.real < 1)])
    ends = np.concatenate([[0.0], real, [1.0]])
    positive, negative, slope = 0.0, 0.0, np.zeros(4)
    for a, b in itertools.pairwise(ends):
        whole = p.integ()(b) - p.integ()(a)
        positive, negative = positive + max(whole, 0), negative + max(-whole, 0)
        if whole > 0:
            slope += (b ** np.arange(1, 5) - a ** np.arange(1, 5)) / np.arange(1, 5)
    return positive, negative, slope


@pytest.mark.medium
def test_sign_changes_of_all_kinds(day):
    """One batch. An undefined number of sign changes, at the ends too; zero all along; touching; and too many, which is NaN."""
    work = hj.objectives.positive_work(polynomial)
    lanes = jnp.asarray(np.stack([*POWERS.values(), np.array([0.0, 0, 0, 0, 1])]))
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(lambda p: work(day, p))))(lanes)
    for name, value, slope, coefficients in zip(POWERS, values, slopes, POWERS.values(), strict=False):
        positive, _, expected = exact_work(coefficients)
        # Double and triple roots are determined to the square and the cube root of rounding, and the slope with them.
        loose = {"crosses at a triple root": 1e-4, "touches zero from below": 1e-7, "all but touches zero": 1e-7}
        assert_allclose(value, positive, rtol=0, atol=1e-14, err_msg=name)
        assert_allclose(slope[:4], expected, rtol=0, atol=loose.get(name, 1e-12), err_msg=name)
    assert np.isnan(values[-1]) and np.all(slopes[-1] == 0)


@pytest.mark.medium
def test_extrema_and_samples(day):
    """Of a cubic: at an end, inside, outside the window; and equidistant values."""
    window = (0.1, 0.9)
    objectives = (
        hj.objectives.largest(polynomial, window=window),
        hj.objectives.along(polynomial, n_samples=5, window=window),
    )
    lanes = jnp.asarray(np.stack(list(POWERS.values())))
    found, slopes = jax.jit(jax.vmap(lambda p: (tuple(each(day, p) for each in objectives), jax.grad(
        lambda p: objectives[0](day, p))(p))))(lanes)  # fmt: skip
    for k, (name, coefficients) in enumerate(POWERS.items()):
        p = np.polynomial.Polynomial(coefficients[:4])
        inside = [s.real for s in p.deriv().roots() if abs(s.imag) < 1e-9 and 0.1 < s.real < 0.9]
        candidates = np.array([0.1, 0.9, *inside])
        best = candidates[np.argmax(p(candidates))]
        assert_allclose(found[0][k], p(best), rtol=0, atol=1e-14, err_msg=name)
        assert_allclose(found[1][k], p(np.linspace(0.1, 0.9, 5)), rtol=0, atol=1e-14, err_msg=name)
        if np.sum(p(candidates) > p(best) - 1e-12) == 1:
            assert_allclose(slopes[k][:4], best ** np.arange(4), rtol=0, atol=1e-7, err_msg=name)


@pytest.mark.medium
def test_second_derivatives_at_a_turning_point():
    """Of a s - b s^2, whose largest value is a^2 / 4 b, at the time s = a / 2 b that is held."""
    at = jnp.array([1.2, 0.9])
    what = measured(clock, {"run": lambda t, x, p: p[0] * x[0] - p[1] * x[0] ** 2})
    zero, s = jnp.zeros(()), (at[0] / (2 * at[1]))[None]
    for turns, exact in ((True, lambda p: p[0] ** 2 / (4 * p[1])), (False, lambda p: p[0] * s[0] - p[1] * s[0] ** 2)):
        found = lambda p, turns=turns: _value(what, "run", p, zero, s, jnp.array(turns))
        for order in (lambda fn: fn, jax.grad, jax.hessian):
            assert_allclose(order(found)(at), order(exact)(at), rtol=1e-13, atol=1e-15)


@pytest.mark.medium
def test_costs_and_ways_in_closed_form(day):
    """A day of length 1: the way (3, 4) s at its end, the energy s^2 that the restart loses, and a power with both signs."""
    travel = lambda mode, x, p: jnp.stack([3 * x[0], 4 * x[0]])
    coefficients = POWERS["three sign changes"]
    params = jnp.asarray(coefficients)
    assert_allclose(hj.objectives.step_length(travel)(day, params), 5, rtol=1e-13)
    assert_allclose(hj.objectives.speed(lambda *at: 2 * travel(*at))(day, params), 10, rtol=1e-13)
    assert_allclose(hj.objectives.impact_loss(lambda mode, x, p: 7 * x[0] ** 2)(day, params), 7, rtol=1e-13)
    cost = hj.objectives.cost_of_transport(
        polynomial, travel, lambda p: 1 + p[1], negative=0.5, impulsive=lambda orbit, params: 3 * orbit.period
    )
    positive, negative, _ = exact_work(coefficients)
    assert_allclose(cost(day, params), (positive + 0.5 * negative + 3) / ((1 + coefficients[1]) * 5), rtol=1e-13)


def test_rows_of_constraints(day):
    """g - b; g - a, then b - g; and their names."""
    numbers = lambda orbit, params: jnp.array([2.0, 5.0])
    between = hj.Constraint(numbers, at_least=1.0, at_most=jnp.array([6.0, 7.0]), name="g")
    assert between.equalities(day, None).size == 0
    assert_allclose(between.inequalities(day, None), [1, 4, 4, 2])
    assert between.limits((0, 4)) == ([], [("g[0]", ">=", 1), ("g[1]", ">=", 1), ("g[0]", "<=", 6), ("g[1]", "<=", 7)])
    equal = hj.Constraint(numbers, equals=3.0, name="g")
    assert_allclose(equal.equalities(day, None), [-1, 2])
    assert equal.inequalities(day, None).size == 0 and equal.limits((2, 0)) == (
        [("g[0]", "=", 3), ("g[1]", "=", 3)],
        [],
    )


def test_misuse(day):
    for window in ((0.5, 0.5), (-0.1, 1.0), (0.2, 1.1)):
        for make in (hj.objectives.largest, hj.objectives.smallest, hj.objectives.along):
            with pytest.raises(ValueError, match="two fractions of an arc"):
                make(polynomial, window=window)
    with pytest.raises(ValueError, match="integer of at least 2"):
        hj.objectives.along(polynomial, n_samples=1)
    for make in (hj.objectives.positive_work, hj.objectives.negative_work, hj.objectives.largest, hj.objectives.along):
        with pytest.raises(ValueError, match="are not modes"):
            make({"walk": polynomial})(day, day.params)
    with pytest.raises(ValueError, match="none of the orbit's modes"):
        hj.objectives.largest({})(day, day.params)
    assert hj.objectives.positive_work({})(day, day.params) == 0
