"""The arithmetic of enclosures against exact arithmetic of rational numbers: for random operands no member is lost.

Operands have extreme exponents, cancel, or are subnormal, and radii of zero: so a rounding that is not bounded loses a member.
"""

from fractions import Fraction

import flint
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from exact_sets import fraction, fractions, inverse, member, missed, outside, polynomial, state, UNIT_VECTORS, wide

import hyjax as hj
from hyjax._testing import (
    add,
    advance,
    BALL,
    balls,
    basis,
    bounded_product,
    constant,
    displaced,
    disturbance_displacement,
    Enclosed,
    evaluate,
    flow_of,
    frame_of,
    graph_of,
    identity_frame,
    ModeField,
    moved_error,
    multiply,
    over,
    scale,
    StateSet,
    subtract,
    TaylorModel,
    total,
)

COUNT = 150
POINTS = [(1, -1), (-1, -1), (0.375, -0.8125), (0, 0)]


def models(rng, form, shape=(COUNT,), spread=1.0):
    """Taylor models: half of them of radius zero, some with a constant alone."""
    coefficients = wide(rng, (form.size, *shape))
    coefficients[1:] *= rng.choice([0.0, 1.0, spread], shape)
    radius = np.abs(wide(rng, shape)) * rng.choice([0.0, 1.0], shape)
    return TaylorModel(jnp.asarray(coefficients), jnp.asarray(radius), form)


def nearly_opposite(rng, a):
    """A Taylor model whose sum with `a` cancels to the last digits."""
    factor = -1 + 2.0**-50 * rng.integers(-3, 4, a.coefficients.shape)
    return TaylorModel(a.coefficients * factor, a.radius, a.basis)


FORMS = {"balls": BALL, "degree 1": basis(2, 1), "degree 3": basis(2, 3)}


@pytest.mark.parametrize("name", FORMS)
def test_no_member_of_a_sum_or_product_is_lost(name):
    form, rng = FORMS[name], np.random.default_rng(len(name))
    points = [()] if form is BALL else POINTS
    a, b = models(rng, form), models(rng, form)
    b = TaylorModel(b.coefficients.at[:, ::5].set(nearly_opposite(rng, a).coefficients[:, ::5]), b.radius, form)
    factor = jnp.asarray(wide(rng, COUNT))
    results = jax.jit(lambda a, b: (add(a, b), subtract(a, b), multiply(a, b), scale(a, factor), over(a, 7.0)))(a, b)
    wholes = jax.jit(
        lambda a: total(TaylorModel(a.coefficients.reshape(form.size, -1, 5), a.radius.reshape(-1, 5), form), (1,))
    )(a)
    c = fractions(factor)
    for s in points:
        for e, f in ((1, 1), (-1, 1), (0, 0)):
            x, y = member(a, s, e), member(b, s, f)
            for result, value in zip(results, (x + y, x - y, x * y, x * c, x / 7), strict=True):
                assert not np.any(missed(result, s, value))
            assert not np.any(missed(wholes, s, x.reshape(-1, 5).sum(axis=1)))


@pytest.mark.parametrize("name", FORMS)
def test_bounds_of_a_model_hold_its_members(name):
    form, rng = FORMS[name], np.random.default_rng(len(name))
    a = models(rng, form, spread=1e-30)
    low, high, spread, largest = (fractions(each) for each in (a.low, a.high, a.spread, a.largest))
    center, sizes = fractions(a.center), np.abs(fractions(a.coefficients))
    reach = sizes[1:].sum(axis=0) + fractions(a.radius)
    assert np.all(reach <= spread) and np.all(sizes[0] + reach <= largest)
    assert np.all(low <= center - reach) and np.all(center + reach <= high)


@pytest.mark.parametrize("form", [BALL, basis(2, 1)], ids=["balls", "degree 1"])
def test_no_member_of_a_linear_combination_is_lost(form):
    """Sums of one term and of several, with factors that are short, long, or no floats at all."""

    def combinations(x, p, tiny=2.0**-200):
        a, b, c = x
        return [
            a + b, a - b, 4 * a, a * tiny, a / 3, p[0] * a, a + p[1], a / 3 + p[0] * b, a * p[0] / p[1], a + b + c,
            a - c / 7 + p[1] * b, p[0] * a + p[1] * b + (p[0] / 3) * c + p[1], a + 2 * b - c / 4 + 1,
        ]  # fmt: skip

    graph = graph_of(lambda x, p: jnp.stack(combinations(x, p)), jnp.zeros(3), jnp.zeros(2))
    # 2^-200 is less than the unit of exact numbers.
    for seed in range(25):
        rng = np.random.default_rng(seed)
        x, p = models(rng, form, (3,)), wide(rng, 2, -20, 20) + 0.1
        x = (
            x
            if seed % 3
            else TaylorModel(x.coefficients.at[:, 1].set(nearly_opposite(rng, x).coefficients[:, 0]), x.radius, form)
        )
        result = evaluate(graph, x, [p])
        for s in [()] if form is BALL else POINTS:
            for error in (np.array([1, 1, 1]), np.array([-1, 1, -1]), np.array([0, 0, 0])):
                values = combinations(member(x, s, error), fractions(p), Fraction(2) ** -200)
                assert not np.any(missed(result, s, np.array(values))), seed


def test_no_member_of_a_multiple_by_a_power_of_two_is_lost():
    """Also by one that is less than the unit of exact numbers, 2^-192, in a program of nothing else."""
    graph, x = graph_of(lambda x: jnp.stack([4 * x[0], x[0] * 2.0**-200, -x[1]]), jnp.zeros(2)), np.array([1e9, 5e-324])
    for radius in (0.0, 3.0):
        result = evaluate(graph, TaylorModel(jnp.asarray(x[None]), jnp.full(2, radius), BALL), [])
        for e in (-1, 1):
            a, b = fractions(x) + e * Fraction(radius)
            assert not np.any(missed(result, (), np.array([4 * a, a / 2**200, -b])))


def cancelling(rng, a, n):
    """Columns whose products with the rows of `a` cancel but for rounding."""
    b = rng.normal(size=(a.shape[1], n))
    b[-1] = -(a[0, :-1] @ b[:-1]) / a[0, -1]
    return b


def test_no_product_of_matrices_is_lost():
    rng = np.random.default_rng(3)
    for n in (2, 3, 6):
        for _ in range(10):
            a = wide(rng, (3, n), -60, 60)
            a[0] = rng.normal(size=n)
            b = np.concatenate([cancelling(rng, a, 2), wide(rng, (n, 2), -60, 60)], axis=1)
            exact = fractions(a) @ fractions(b)
            product, radius = bounded_product(jnp.asarray(a), jnp.asarray(b))
            assert np.all(np.abs(fractions(product) - exact) <= fractions(radius))
            # Of all matrices: the corners that lead farthest away.
            ra, rb = (np.abs(x) * rng.choice([0, 1e-9, 0.3], x.shape) for x in (a, b))
            farthest = (np.abs(fractions(a)) + fractions(ra)) @ (np.abs(fractions(b)) + fractions(rb))
            reach = farthest - np.abs(fractions(a)) @ np.abs(fractions(b))
            with flint.ctx.workprec(192):
                product = (balls(a, ra) * balls(b, rb)).entries()
            for each, middle, away in zip(product, exact.ravel(), reach.ravel(), strict=True):
                assert abs(fraction(each.mid()) - middle) + away <= fraction(each.rad())


def frames(rng, n, count):
    """Frames of random matrices, some of them nearly singular."""
    for k in range(count):
        matrix = rng.normal(size=(n, n))
        if k % 2:
            matrix[-1] = matrix[0] + 10.0 ** rng.uniform(-11, -3) * matrix[-1]
        yield frame_of(matrix)


@pytest.mark.parametrize("n", [2, 3])
def test_the_inverse_of_a_frame_is_within_its_radius(n):
    rng, worst = np.random.default_rng(n), 0.0
    for frame in frames(rng, n, 40):
        apart = np.abs(inverse(fractions(frame.matrix)) - fractions(frame.inverse))
        radius = fractions(frame.inverse_radius)
        assert np.all(apart <= radius)
        worst = max(worst, float(np.max(apart / radius)))
    assert worst > 1e-4
    with pytest.raises(ValueError, match="singular to rounding"):
        frame_of(np.ones((n, n)) + 2.0**-52 * np.eye(n))


def random_set(rng, form, frame, groups=2):
    """A set of states in the plane; parts of it are missing at random, so that each of the others matters."""
    some = lambda shape: rng.choice([0.0, 1.0]) * 10.0 ** rng.uniform(-12, 0) * rng.normal(size=shape)
    return StateSet(
        jnp.asarray(rng.normal(size=(form.size, 2)) * 0.3), jnp.asarray(some((groups, 2, 2))), jnp.abs(jnp.asarray(some(2))),
        jnp.asarray(rng.normal(size=(2, form.variables))), jnp.abs(jnp.asarray(some((2, form.variables)))), frame, form,
    )  # fmt: skip


def corners(rng):
    """Variables, unit vectors and errors of a state of a set."""
    return (
        [(1, -1), (0.25, 0.75)][rng.integers(2)],
        [UNIT_VECTORS[k] for k in rng.integers(3, size=2)],
        rng.choice([-1, 1], 2).tolist(),
    )


def test_supports_and_hulls_hold_the_states_of_a_set():
    rng, form = np.random.default_rng(5), basis(2, 2)
    run = jax.jit(lambda states, row: (states.support(row), states.offset, states.hull, states.tangents))
    for frame in frames(rng, 2, 60):
        states = random_set(rng, form, frame)
        row = TaylorModel(
            *(jnp.asarray(x * rng.choice([0.0, 1.0])) for x in (rng.normal(size=(1, 2)), np.abs(rng.normal(size=2)))),
            BALL,
        )
        if rng.random() < 0.5:
            # The row's products with a generator cancel but for rounding.
            a = rng.normal(size=(1, 2))
            column = cancelling(rng, a, 2)
            row = TaylorModel(jnp.asarray(a), jnp.zeros(2), BALL)
            states = StateSet(
                states.polynomial,
                jnp.asarray(np.stack([column, 0 * column])),
                0 * states.error,
                *[getattr(states, k) for k in ("variation", "variation_error", "frame", "basis")],
            )
        support, offset, hull, tangents = run(states, row)
        matrix, e = fractions(frame.matrix), fractions(states.error)
        for _ in range(6):
            s, pushes, error = corners(rng)
            x = state(states, s, pushes, error)
            apart = x - polynomial(np.asarray(states.polynomial), form, s)
            for lengths in (
                fractions(row.center) - fractions(row.radius),
                fractions(row.center) + fractions(row.radius),
            ):
                assert abs(lengths @ apart) <= fractions(support)
            assert np.all(np.abs(apart) <= fractions(offset))
            assert np.all(np.abs(x - fractions(hull.center)) <= fractions(hull.radius))
        # The farthest error, and the most slanted row, at once.
        for sign in (-1, 1):
            along = fractions(row.center) + sign * fractions(row.radius)
            assert np.abs(along @ matrix) @ e <= fractions(support)
        assert np.all(np.abs(matrix) @ e <= fractions(offset))
        assert np.all(np.abs(matrix) @ fractions(states.variation_error) <= fractions(tangents.radius))


def test_no_state_is_lost_by_a_linear_map():
    """$q(s) + \\Phi\\zeta + \\delta$ in the next frame, and the derivatives, for all matrices of a ball."""
    rng, form = np.random.default_rng(6), basis(2, 1)
    run = jax.jit(displaced)
    for frame, after in zip(frames(rng, 2, 40), frames(rng, 2, 40), strict=True):
        states = random_set(rng, form, frame)
        some = lambda shape: jnp.abs(
            jnp.asarray(rng.choice([0.0, 1.0]) * 10.0 ** rng.uniform(-10, 0) * rng.normal(size=shape))
        )
        matrix = TaylorModel(jnp.asarray(rng.normal(size=(1, 2, 2))), some((2, 2)), BALL)
        moved = TaylorModel(jnp.asarray(rng.normal(size=(form.size, 2))), some(2), form)
        local, varied = some(2), some((2, 2))
        result = run(states, moved, matrix, local, after, varied)
        back = inverse(fractions(after.matrix))
        for _ in range(6):
            s, pushes, error = corners(rng)
            phi = fractions(matrix.center) + rng.choice([-1, 1], (2, 2)) * fractions(matrix.radius)
            zeta = state(states, s, pushes, error) - polynomial(np.asarray(states.polynomial), form, s)
            more = rng.choice([-1, 1], 2) * (fractions(local) + fractions(moved.radius))
            assert not outside(result, member(moved, s) + phi @ zeta + more, s, pushes)
            slope = fractions(states.variation) + fractions(frame.matrix) @ (
                rng.choice([-1, 1], (2, 2)) * fractions(states.variation_error)
            )
            apart = back @ (phi @ slope + rng.choice([-1, 1], (2, 2)) * fractions(varied) - fractions(result.variation))
            assert np.all(np.abs(apart) <= fractions(result.variation_error))
        # The worst of all errors, in each coordinate.
        center, spread, ahead = fractions(matrix.center), fractions(matrix.radius), fractions(frame.matrix)
        e = fractions(states.error)
        reach = np.abs(back @ center @ ahead) @ e + np.abs(back) @ (
            spread @ (np.abs(ahead) @ e) * 0 + fractions(local) + fractions(moved.radius)
        )
        assert np.all(reach <= fractions(result.error))


def test_errors_are_moved_into_a_nearly_singular_frame():
    """The bound is reached for one of the matrices; the inverse of the frame is none of floats."""
    rng = np.random.default_rng(7)
    for frame, after in zip(frames(rng, 2, 30), frames(rng, 2, 30), strict=True):
        matrix, radius = rng.normal(size=(2, 2)), rng.choice([0.0, 1e-8]) * np.abs(rng.normal(size=(2, 2)))
        error, local = (np.abs(rng.normal(size=2)) * rng.choice([0.0, 1.0]) for _ in range(2))
        found = moved_error(*map(jnp.asarray, (matrix, radius, error)), frame, after, jnp.asarray(local))
        back, ahead = inverse(fractions(after.matrix)), fractions(frame.matrix)
        for signs in (np.array([[1, 1], [1, 1]]), np.array([[1, -1], [-1, 1]]), np.array([[-1, 1], [1, 1]])):
            phi = fractions(matrix) + signs * fractions(radius)
            reach = np.abs(back @ phi @ ahead) @ fractions(error) + np.abs(back) @ fractions(local)
            assert np.all(reach <= fractions(found))


def system_of(rate, names):
    """One mode, that a guard leaves."""
    return hj.HybridSystem(
        {"m": hj.Mode(rate, names)}, (hj.Transition("m", "m", lambda t, x, p: x[0], lambda t, x, p: x),)
    )


# x' = x^2, y' = x y: x = a / (1 - a t), y = b / (1 - a t).
RATIONAL = ModeField(system_of(lambda t, x, p: jnp.stack([x[0] ** 2, x[0] * x[1]]), ("x", "y")), "m", None, False)


@pytest.mark.parametrize("orders", [2, 5])
def test_no_state_is_lost_by_a_step(orders):
    """Of a flow of rational numbers, with so few orders that what the series leave out is most of the error."""
    rng, form = np.random.default_rng(orders), basis(2, 1)

    @jax.jit
    def step(states, h, after):
        flow = flow_of(RATIONAL, states, h.high, jnp.zeros(2), orders)
        none = jnp.zeros((0, 2, 2))
        return flow.box, flow.proved, advance(flow, states, h, after, none)

    for frame, after in zip(frames(rng, 2, 12), frames(rng, 2, 12), strict=True):
        states = random_set(rng, form, frame)
        size = 10.0 ** rng.uniform(-9, -1.3)
        states = StateSet(
            jnp.asarray(np.array([[0.5, 1.0], *(size * rng.normal(size=(2, 2)))])), size * states.generators,
            size * states.error, states.variation, size * states.variation_error, frame, form,
        )  # fmt: skip
        h = constant(jnp.asarray(0.25), form)
        h = TaylorModel(h.coefficients.at[1:].set(0.5 * size * rng.normal(size=2)), h.radius, form)
        box, proved, ended = step(states, h, after)
        assert proved
        back = inverse(fractions(after.matrix))
        for _ in range(8):
            s, pushes, error = corners(rng)
            (a, b), t = state(states, s, pushes, error), member(h, s)
            image = np.array([a / (1 - a * t), b / (1 - a * t)])
            assert not outside(ended, image, s, pushes)
            for part in (0, 0.5, 1):
                between = np.array([a, b]) / (1 - a * t * Fraction(part))
                assert np.all(np.abs(between - fractions(box.center)) <= fractions(box.radius))
            # The derivative of the state, at a fixed time.
            slope = np.array([[1 / (1 - a * t) ** 2, 0], [b * t / (1 - a * t) ** 2, 1 / (1 - a * t)]])
            before = fractions(states.variation) + fractions(frame.matrix) @ (
                rng.choice([-1, 1], (2, 2)) * fractions(states.variation_error)
            )
            apart = back @ (slope @ before - fractions(ended.variation))
            assert np.all(np.abs(apart) <= fractions(ended.variation_error))


# x'' = -4 x by its energy, and a rate that grows: the derivative of the flow changes within a step.
FORCED = system_of(lambda t, x, p: jnp.stack([x[1], p * x[0]]), ("x", "v"))


@pytest.mark.parametrize("k", [-4.0, 4.0])
def test_no_displacement_by_a_disturbance_is_lost(k):
    """Of x'' = k x + w_2, x' = v + w_1 for w that is the worst along a direction: the integral of its size, by 40 digits."""
    field = ModeField(FORCED, "m", jnp.asarray(k), False)
    wind = np.array([[[0.3, 0.0], [0.0, 0.2]]])

    @jax.jit
    def pushed(h):
        states = StateSet(
            jnp.zeros((1, 2)),
            jnp.zeros((0, 2, 2)),
            jnp.zeros(2),
            jnp.zeros((2, 0)),
            jnp.zeros((2, 0)),
            identity_frame(2),
            BALL,
        )
        flow = flow_of(field, states, h, jnp.sum(jnp.abs(jnp.asarray(wind)), axis=(0, 2)), 6)
        return flow.proved, *disturbance_displacement(flow, jnp.asarray(wind), h)

    omega = mpmath.sqrt(mpmath.mpc(k))
    flow = lambda t: mpmath.matrix([
        [mpmath.cosh(omega * t), mpmath.sinh(omega * t) / omega], [omega * mpmath.sinh(omega * t), mpmath.cosh(omega * t)]
    ]).apply(mpmath.re)  # fmt: skip
    for h in (0.02, 0.1):
        proved, generators, radius = map(np.asarray, pushed(h))
        assert proved
        for angle in (0.0, 0.7, np.pi / 2, 2.5):
            along = np.array([np.cos(angle), np.sin(angle)])
            size = lambda t, along=along: mpmath.norm(mpmath.matrix(wind[0].T) * flow(t).T * mpmath.matrix(along))
            worst = mpmath.quad(size, [0, h])
            bound = np.linalg.norm(along @ generators[0]) + np.abs(along) @ radius
            # 1e-15: rounding of the bound itself in this test.
            assert worst <= bound + 1e-15
            assert bound < worst * (1 + 5 * h * h)


def test_bounds_between_two_numbers():
    rng = np.random.default_rng(8)
    low = wide(rng, 200, -100, 100)
    high = low + np.abs(wide(rng, 200, -100, 100)) * rng.choice([0.0, 1.0], 200)
    found = Enclosed.between(low, high)
    middle, radius = fractions(found.midpoint), fractions(found.radius)
    assert np.all(middle - radius <= fractions(low)) and np.all(fractions(high) <= middle + radius)
    assert np.all(found.contains([str(each) for each in low.tolist()]))
    beyond = np.array([str(m + r + Fraction(1, 10**600)) for m, r in zip(middle, radius, strict=True)], object)
    assert not np.any(found.contains(beyond))
    assert not Enclosed(np.array(np.nan), np.array(np.nan)).contains(0.0)


def test_groups_of_disturbances():
    """Of the Euclidean norm all channels are one group, of the other each is its own; only those that are named."""
    names = ("x", "v", "y")
    both = np.asarray(hj.certify.Disturbance(0.5).of_mode(names, 4))
    assert both.shape == (1, 4, 3) and np.array_equal(both[0], 0.5 * np.eye(4)[:, :3])
    some = np.asarray(hj.certify.Disturbance(0.5, "inf", ("y", "v")).of_mode(names, 4))
    assert some.shape == (2, 4, 1) and np.array_equal(some[:, :, 0], 0.5 * np.eye(4)[1:3])
