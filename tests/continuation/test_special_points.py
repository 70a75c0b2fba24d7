"""Special points of maps whose multipliers are known: none missed, none twice, however near they are to each other."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED
from test_continuation import mapping, start

import hyjax as hj
from hyjax._testing import each_once, expanded

# x -> (M0 + s M1 + s^2 M2) x, whose multipliers at the fixed point x = 0 are the eigenvalues.
linear = mapping(lambda x, p: (p["m"][0] + p["s"] * p["m"][1] + p["s"] ** 2 * p["m"][2]) @ x, 4)
# The middle 0 is no point of a branch from -0.53 to 0.6, whose steps are 0.05 of its length.
FROM, TO = -0.53, 0.6


def branch_of(*coefficients):
    zero = np.zeros((4, 4))
    matrices = np.stack([*coefficients, *[zero] * (3 - len(coefficients))])
    params = {"m": jnp.asarray(matrices), "s": jnp.array(FROM)}
    orbit = hj.periodic_orbit(hj.ReturnMap(linear, sequence=("run",), integrator=ROLLED), jnp.zeros(5), params)
    return hj.continuation(orbit, where=lambda p: p["s"], stop=TO)


def turned(radius, angle):
    return radius * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def blocks(a, b):
    zero = np.zeros((2, 2))
    return np.block([[a, zero], [zero, b]])


def check(branch, *expected):
    assert branch.unresolved == ()
    assert [point.kind for point in branch.special_points] == [kind for kind, _ in expected]
    # Secants, and at branch points interpolation, end at rounding; two multipliers near each other lose some digits.
    assert_allclose([float(point.value) for point in branch.special_points], [s for _, s in expected], atol=1e-10)


@pytest.mark.slow
def test_doublings_within_one_step():
    """The multiplier -1 - e + (s - c)^2 is outside the circle within sqrt(e) of c, the middle of a step; two multipliers that
    follow each other."""
    e, c, quadratic = 1e-4, 0.03, blocks(np.diag([1.0, 0]), np.zeros((2, 2)))
    away = blocks(np.diag([-1 - e + c**2, 0.3]), np.diag([0.2, 0.1]))
    there_and_back = branch_of(away, -2 * c * quadratic, quadratic)
    # No point of the branch shows that the multiplier was outside.
    assert np.all(np.abs(there_and_back.values - c) > 2e-2)
    check(there_and_back, ("period-doubling", c - 1e-2), ("period-doubling", c + 1e-2))
    both = branch_of(blocks(turned(0.5, 1.0), np.diag([-1, -1.005])), blocks(np.zeros((2, 2)), -np.eye(2)))
    check(both, ("period-doubling", -0.005), ("period-doubling", 0))


@pytest.mark.medium
def test_doublings_in_opposite_directions():
    """The multipliers -1 - s and -1 + s - 1e-4: after both, as many as before are outside."""
    steady = blocks(turned(0.5, 1.0), np.diag([-1, -1 - 1e-4]))
    branch = branch_of(steady, blocks(np.zeros((2, 2)), np.diag([-1, 1])))
    check(branch, ("period-doubling", 0), ("period-doubling", 1e-4))


@pytest.mark.medium
def test_a_pair_crosses_at_the_end():
    """The multipliers (1 + s - TO) exp(+-i), on the circle at the last point."""
    growing = blocks(turned(1.0, 1.0), np.zeros((2, 2)))
    check(
        branch_of((1 - TO) * growing + blocks(np.zeros((2, 2)), np.diag([0.3, 0.1])), growing), ("neimark-sacker", TO)
    )


@pytest.mark.medium
def test_an_imperfect_pitchfork_is_no_branch_point():
    """x -> x + 0.3 (s x - x^3 + e): without e two branches cross at zero. With it they pass at a distance of e^(1/3); a point
    amid them has a residual of 0.3 e, which is not hidden by interpolation."""
    system = mapping(lambda x, p: x + 0.3 * (p["s"] * x - x**3 + p["e"]), 1)

    def branch(e):
        params = {"s": jnp.array(-0.5), "e": jnp.array(e)}
        orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("run",), integrator=ROLLED), jnp.zeros(2), params)
        return hj.continuation(orbit, where=lambda p: p["s"], stop=TO)

    check(branch(0.0), ("branch-point", 0))
    assert branch(1e-8).special_points == ()
    # Below 1e3 times the tolerance of points, both are one; the residual says so, up to that tolerance.
    near = branch(1e-10)
    for point in near.special_points:
        assert abs(point.residual - 0.3e-10) < near.accept


@pytest.mark.medium
def test_multipliers_that_are_critical_at_one_point():
    """Two multipliers -1 - s at once, whose test function has no sign change; and one of them with the pair (1 + s) exp(+-i)."""
    both = branch_of(blocks(turned(0.5, 1.0), -np.eye(2)), blocks(np.zeros((2, 2)), -np.eye(2)))
    check(both, ("period-doubling", 0))
    assert_allclose(np.abs(both.special_points[0].kernel) @ np.ones(6), [1, 1], atol=1e-14)
    pair = branch_of(blocks(turned(1.0, 1.0), np.diag([-1, 0.5])), blocks(turned(1.0, 1.0), np.diag([-1, 0])))
    check(pair, ("neimark-sacker", 0), ("period-doubling", 0))


@pytest.mark.medium
def test_a_doubling_at_a_fold():
    """$(x + s - x^2 + 0.3 y^2, -(1 + x) y + y^3)$: at s = 0 the cubic coefficient of the doubling alone is infinite, and the
    doubled orbits $y^2 = x$, $s = x^2 - 0.3 x$ begin in first order of s."""
    fn = lambda u, p: jnp.stack([u[0] + p["s"] - u[0] ** 2 + 0.3 * u[1] ** 2, -(1 + u[0]) * u[1] + u[1] ** 3])
    step = hj.ReturnMap(mapping(fn, 2), sequence=("run",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([0.5, 0.0, 0.0]), {"s": jnp.array(0.25)})
    branch = hj.continuation(orbit, where=lambda p: p["s"], stop=(-0.1, 0.3), throw=False)
    assert sorted(point.kind for point in branch.special_points) == ["fold", "period-doubling"]
    (point,) = (each for each in branch.special_points if each.kind == "period-doubling")
    assert point.normal_form.kind == "fold-flip"
    doubled = hj.switch_branch(point, stop=(-0.1, 0.1))
    x, y = doubled.heights("x0")[:, 0], doubled.heights("x1")[:, 0]
    assert np.all(y > 0) and doubled.values.min() < -0.02
    assert_allclose([y**2, doubled.values], [x, x**2 - 0.3 * x], atol=1e-13)


@pytest.mark.medium
def test_what_is_not_located_is_said():
    """The multipliers -1 - s and -1 + s: there is no sign change, and as many are outside before and after."""
    branch = branch_of(blocks(turned(0.5, 1.0), -np.eye(2)), blocks(np.zeros((2, 2)), np.diag([-1, 1])))
    assert branch.special_points == ()
    ((low, high),) = branch.unresolved
    # Intervals are halved down to 1e-6.
    assert -1e-5 < low <= 0 <= high < 1e-5
    assert "not located: a special point between" in str(branch)


@pytest.mark.slow
def test_neimark_sacker_near_a_neutral_saddle():
    """A pair on the circle at s = 0, and the product of 2 and (1 + s - apart) / 2 is 1 at s = apart."""
    pair = turned(1, 1.0)
    for apart in (0.06, 0.03, 0.01, 0.001, -0.001, -0.01, -0.03, -0.06):
        saddle = np.diag([2, (1 - apart) / 2])
        check(branch_of(blocks(pair, saddle), blocks(pair, np.diag([0, 0.5]))), ("neimark-sacker", 0))
    # The modulus 1 - e + (s - c)^2 is 1 on both sides of the saddle at s = c: three sign changes within a step, and no multiplier
    # more outside the circle after it. At c = 0.03 the step is symmetric, so the moduli at its ends are the same.
    e, none = 1e-4, np.zeros((2, 2))
    for c in (0.045, 0.03):
        around = branch_of(
            blocks((1 - e + c**2) * pair, np.diag([2, (1 - c) / 2])),
            blocks(-2 * c * pair, np.diag([0, 0.5])),
            blocks(pair, none),
        )
        assert not np.any((around.values > c - 1e-2) & (around.values < c + 1e-2))
        check(around, ("neimark-sacker", c - 1e-2), ("neimark-sacker", c + 1e-2))


# Both z -> e^(i angle) z (1 + s - |z|^2 - 0.3 |w|^2), and so for the other; |z|^2 is twice that of an eigenvector of length 1.
def of_two_pairs(x, p):
    square = jnp.sum(x.reshape(2, 2) ** 2, axis=1)
    grown = (1 + p["s"] - square - 0.3 * square[::-1])[:, None] * x.reshape(2, 2)
    cos, sin = jnp.cos(p["angles"]), jnp.sin(p["angles"])
    turned = jnp.stack([cos * grown[:, 0] - sin * grown[:, 1], sin * grown[:, 0] + cos * grown[:, 1]], axis=1)
    return turned.ravel()


TWO_PAIRS = mapping(of_two_pairs, 4)


@pytest.mark.medium
@pytest.mark.parametrize("other", [1.0, 2.0])
def test_two_pairs_cross_the_circle_at_one_point(other):
    """The test function, a product over pairs of multipliers, keeps its sign."""
    params = {"angles": jnp.array([1.0, other]), "s": jnp.array(-0.2)}
    orbit = hj.periodic_orbit(hj.ReturnMap(TWO_PAIRS, sequence=("run",), integrator=ROLLED), jnp.zeros(5), params)
    branch = hj.continuation(orbit, where=lambda p: p["s"], stop=0.33)
    check(branch, ("neimark-sacker", 0))
    (point,) = branch.special_points
    if other == 1:
        with pytest.raises(ValueError, match="are on the unit circle: there is no form of so many"):
            _ = point.normal_form
        return
    form = point.normal_form
    assert form.kind == "double-neimark-sacker"
    found = sorted(np.real(list(form.coefficients.values())))
    assert_allclose(found, [-2, -2, -0.6, -0.6], rtol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["branch-point", "period-doubling", "fold"])
def test_points_at_a_neutral_saddle(kind):
    """The product of 2 and (1 + s) / 2 is 1 where a multiplier is 1 or -1, at s = 0, along the branches x = s and s = x^2."""
    laws = {
        "branch-point": lambda x, s: (s + (1 + s) * (x - s) - (x - s) ** 3, s),
        "period-doubling": lambda x, s: (s - (1 + s) * (x - s) + (x - s) ** 3, s),
        "fold": lambda x, s: (x + s - x**2, x),
    }

    def law(x, p):
        first, second = laws[kind](x[0], p["s"])
        return jnp.stack([first, 2 * x[1], (1 + second) / 2 * x[2]])

    step = hj.ReturnMap(mapping(law, 3), sequence=("run",), integrator=ROLLED)
    x, at, stop = (0.5, 0.25, -0.1) if kind == "fold" else (-0.31, -0.31, 0.4)
    orbit = hj.periodic_orbit(step, jnp.array([x, 0.0, 0.0, 0.0]), {"s": jnp.array(at)})
    branch = hj.continuation(orbit, where=lambda p: p["s"], stop=stop, throw=False)
    (point,) = branch.special_points
    assert point.kind == kind and branch.unresolved == ()
    assert_allclose(point.value, 0, atol=1e-13)


@pytest.mark.slow
def test_two_neimark_sacker_points():
    """A pair with the modulus 1 + s, and one with the modulus 1 + way (s - apart)."""
    one, other = turned(1, 1.0), turned(1, 2.0)
    for apart, way in itertools.product((0.05, 0.02, 0.002), (1, -1)):
        branch = branch_of(blocks(one, (1 - way * apart) * other), blocks(one, way * other))
        check(branch, ("neimark-sacker", 0), ("neimark-sacker", apart))
        first = branch.special_points[0]
        assert_allclose(first.multiplier, np.exp(1j), rtol=1e-12)
    with pytest.raises(ValueError, match="no other branch"):
        hj.switch_branch(first, stop=0.3)


@pytest.mark.slow
def test_special_points_of_random_maps():
    """Against the spectra at 20 001 values of the parameter."""
    random = np.random.default_rng(0)
    values = np.linspace(FROM, TO, 20_001)
    kinds = set()
    for _ in range(12):
        m = random.normal(size=(3, 4, 4)) * np.array([0.55, 0.7, 1.0])[:, None, None]
        matrices = np.einsum("kl,kij->lij", values ** np.arange(3)[:, None], m)
        sign_changes = lambda f: values[np.flatnonzero(np.diff(f > 0))]
        multipliers = np.linalg.eigvals(matrices)
        outside = np.sum(np.abs(multipliers) > 1, axis=1)
        expected = [("period-doubling", s) for s in sign_changes(np.prod(multipliers + 1, axis=1).real)]
        expected += [("branch-point", s) for s in sign_changes(np.prod(multipliers - 1, axis=1).real)]
        expected += [("neimark-sacker", s) for s in values[np.flatnonzero(np.abs(np.diff(outside)) == 2)]]
        branch = branch_of(*m)
        found = sorted((point.kind, float(point.value)) for point in branch.special_points)
        assert [kind for kind, _ in found] == [kind for kind, _ in sorted(expected)]
        # The spacing of the values.
        assert_allclose([s for _, s in found], [s for _, s in sorted(expected)], atol=6e-5)
        assert branch.unresolved == ()
        kinds |= {kind for kind, _ in found}
    assert kinds == {"period-doubling", "branch-point", "neimark-sacker"}


@pytest.fixture(scope="module")
def isola():
    """The fixed points of x + 0.3 (x^2 + mu^2 - 1) lie on a circle: an orbit and the branch around it."""
    orbit = start(lambda x, p: x + 0.3 * (x**2 + p["mu"] ** 2 - 1), [-1.0], {"mu": jnp.array(0.0)})
    return orbit, hj.continuation(orbit, where=lambda p: p["mu"], stop=(-2.0, 2.0), throw=False)


@pytest.mark.medium
def test_closed_branch(isola):
    """Once around the circle the branch leads back to the start."""
    orbit, branch = isola
    assert branch.result == hj.RESULTS.successful
    angles = np.unwrap(np.arctan2(branch.x[:, 0], branch.values))
    assert np.all(np.diff(angles) > 0)
    assert_allclose(angles[-1] - angles[0], 2 * np.pi, rtol=1e-12)
    assert [point.kind for point in branch.special_points] == ["fold", "fold"]
    assert_allclose([float(point.value) for point in branch.special_points], [1, -1], rtol=1e-12)
    # It leads to no other value.
    around = hj.continuation(orbit, where=lambda p: p["mu"], stop=2.0, throw=False)
    assert around.result == hj.RESULTS.stop_not_reached and np.all(around.curves.closed)
    # A start on a bound is followed inwards, and no point comes twice.
    half = hj.continuation(orbit, where=lambda p: p["mu"], stop=(0.0, 2.0), throw=False)
    assert_allclose(half.values[[0, -1]], 0, atol=1e-14)
    assert np.all(np.diff(np.unwrap(np.arctan2(half.x[:, 0], half.values))) > 1e-6)


@pytest.mark.medium
def test_an_orbit_whose_strides_come_in_another_order_is_no_other_point(isola):
    """Points of the circle, as if of orbits of two and of three strides."""
    *_, branch = isola
    with_nodes = lambda point, *nodes: eqx.tree_at(lambda point: point.orbit.before, point, jnp.array(nodes))
    first, second = branch.special_points
    a, b, c = jnp.eye(3)[:, :2] + 0.5
    several = [
        with_nodes(first, a, b, c), with_nodes(second, a, b, c), with_nodes(first, c, a, b),
        with_nodes(first, b, a, c), with_nodes(first, b, c, a),
    ]  # fmt: skip
    kept = each_once(several)
    assert [any(point is each for each in kept) for point in several] == [True, True, False, True, False]
    assert len(each_once([first, second, second, first])) == 2


@pytest.mark.medium
def test_a_fold_next_to_a_branch_point():
    """The parabola mu = x^2, whose fold is at x = 0, and the line x = c, which crosses it at mu = c^2."""
    product = lambda x, p: x + 0.3 * (x - p["c"]) * (p["mu"] - x**2)
    for c in (1e-2, 5e-4, 1e-5):
        orbit = start(product, [0.5], {"mu": jnp.array(0.25), "c": jnp.array(c)})
        branch = hj.continuation(orbit, where=lambda p: p["mu"], stop=(-0.1, 0.3), throw=False)
        fold, crossing = sorted(branch.special_points, key=lambda point: point.kind == "branch-point")
        assert (fold.kind, crossing.kind) == ("fold", "branch-point") and branch.unresolved == ()
        # Rounding over the distance, to which the corrector's matrix is near singular; of the parameter its square.
        assert abs(fold.orbit.x[0]) < 1e-15 / c and abs(crossing.orbit.x[0] - c) < 1e-13
        assert_allclose([float(fold.value), float(crossing.value)], [0, c**2], atol=1e-14)


def test_taylor_polynomial_in_place_of_a_function():
    """Value, first and second derivative of the function and its Jacobian, without evaluating it again."""
    fn = lambda u: jnp.sin(u[0]) * u[1] ** 3
    taken = lambda u: expanded(lambda u: (fn(u), None), u, order=2)[0]
    u = jnp.array([0.7, 1.3])
    for derivative in (lambda f: f, jax.grad, jax.hessian):
        assert_allclose(derivative(taken)(u), derivative(fn)(u), rtol=1e-14)
    slope = lambda u: expanded(lambda u: (fn(u), None), u, order=2)[1]
    assert_allclose(jax.jacfwd(slope)(u), jax.hessian(fn)(u), rtol=1e-14)
