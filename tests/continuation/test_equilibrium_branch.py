"""Branches of equilibria: folds, Hopf points and the orbits born there, boundary equilibria; against closed forms."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from counting import compiled
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.linalg import expm
from scipy.optimize import brentq
from systems import same, skewed, straight

import hyjax as hj


def alone(field, *names):
    return hj.HybridSystem({"flow": hj.Mode(field, names)}, ())


def branch_of(system, mode, guess, params, **options):
    rest = hj.phase.equilibrium(system, mode, jnp.asarray(guess), params)
    return hj.continuation(rest, where=lambda p: p, **options)


@pytest.mark.medium
def test_a_fold_with_its_coefficient_and_a_branch_point():
    fold = branch_of(alone(lambda t, x, p: jnp.stack([p - 3 * x[0] ** 2, x[0] - 2 * x[1]]), "x", "y"), "flow", [1.2, 0.5],
                     jnp.array(1.0), stop=(-1.0, 2.0))  # fmt: skip
    (point,) = fold.special_points
    assert point.kind == "fold" and abs(point.value) < 1e-13 and fold.unresolved == ()
    # The eigenvector of 0 is (2, 1) / sqrt(5), its coordinate sqrt(5) / 2 x.
    assert_allclose(abs(point.coefficient), 3 * 2 / np.sqrt(5), rtol=1e-7)
    assert point.meaning == "two equilibria for larger values, none for smaller ones"
    assert ((fold.x[:, 0] > 0) == fold.stable).all()
    cross = branch_of(alone(lambda t, x, p: p * x - x**3 + 0.3 * x**2, "x"), "flow", [0.0], jnp.array(-1.0), stop=2.0)
    (point,) = cross.special_points
    assert point.kind == "branch-point" and abs(point.value) < 1e-13
    with pytest.raises(ValueError, match="no other branch of periodic orbits starts at a branch-point point"):
        hj.switch_branch(point, stop=1.0)


@pytest.mark.medium
def test_a_point_at_the_end(caplog):
    """What is zero at `stop` itself, where the sign is that of rounding; a second branch compiles nothing."""
    spiral = alone(lambda t, x, p: radial(x, p), "x", "y")
    fork = alone(lambda t, x, p: p * x - x**3, "x")
    for system, guess, kind in ((spiral, [0.0, 0.0], "hopf"), (fork, [0.0], "branch-point")):
        branch, again = (branch_of(system, "flow", guess, jnp.array(begun), stop=0.0) for begun in (-0.33, -0.3))
        (point,) = branch.special_points
        assert point.kind == kind and abs(point.value) < 1e-13 and branch.unresolved == ()
        assert compiled(caplog, lambda again=again: again.special_points) == []


@pytest.mark.medium
def test_hopf_points_within_one_step():
    """Two pairs p +- 1.3 i and 2 (1e-3 - p +- 1.3 i): after both, as many eigenvalues as before grow."""

    def field(t, x, p):
        return jnp.concatenate([radial(x[:2], p), 2 * radial(x[2:], 1e-3 - p)])

    branch = branch_of(alone(field, *"abcd"), "flow", [0.0] * 4, jnp.array(-0.33), stop=0.4)
    assert [point.kind for point in branch.special_points] == ["hopf", "hopf"] and branch.unresolved == ()
    # Secants to rounding.
    assert_allclose([point.value for point in branch.special_points], [0, 1e-3], atol=1e-12)


@pytest.mark.medium
def test_a_fold_too_near_to_a_branch_point_is_said():
    """The branch x^2 = p, and x = e, which crosses it at p = e^2: for e = 1e-6 no point is taken at the fold."""
    system = alone(lambda t, x, p: (x - 1e-6) * (p - x**2), "x")
    branch = branch_of(system, "flow", [0.5], jnp.array(0.25), stop=(-0.1, 0.3))
    (point,) = branch.special_points
    assert point.kind == "branch-point" and abs(point.value) < 1e-11 and np.all(np.isfinite(point.equilibrium.x))
    ((low, high),) = branch.unresolved
    # The interval that is named is a step of the branch.
    assert 0 < low < high < 1e-3


def radial(x, p):
    """r' = p r - r^3, angle' = 1.3 + 0.4 r^2."""
    square = x[0] ** 2 + x[1] ** 2
    return jnp.stack(
        [(p - square) * x[0] - (1.3 + 0.4 * square) * x[1], (1.3 + 0.4 * square) * x[0] + (p - square) * x[1]]
    )


@pytest.mark.medium
def test_the_orbits_from_a_hopf_point_of_a_sliding_flow():
    """On a curved surface the sliding flow is the normal form in two coordinates: r^2 = p, period 2 pi / (1.3 + 0.4 p),
    multiplier exp(-2 p T), and another 0 along each of the flow and the surface."""

    def side(sense):
        def field(t, x, p):
            planar = radial(x, p)
            return jnp.append(planar, 2 * x[0] * planar[0] - sense)

        return field

    system = hj.filippov({1: side(1.0), -1: side(-1.0)}, lambda t, x, p: x[2] - x[0] ** 2, ("x", "y", "z"))
    branch = branch_of(system, "0", [0.0, 0.0, 0.0], jnp.array(-0.5), stop=0.5)
    (point,) = branch.special_points
    assert point.kind == "hopf" and set(branch.kinds) == {"pseudo"} and abs(point.value) < 1e-13
    assert_allclose(point.frequency, 1.3, rtol=1e-13)
    # With |q| = 1 the radius is sqrt(2) |z|: c = 2 (-1 + 0.4 i).
    assert_allclose(point.form.c, -2 + 0.8j, rtol=1e-12)
    assert_allclose(point.coefficient, -2 / 1.3, rtol=1e-12)
    assert point.meaning == "supercritical: a stable periodic orbit for larger values"
    born = hj.switch_branch(point, stop=0.3, method=hj.PseudoArclength(step=0.02, max_step=0.2))
    assert_allclose(np.linalg.norm(born.x[0, :2]), 1e-2, rtol=1e-12)
    assert_allclose(np.sum(born.x[:, :2] ** 2, axis=1), born.values, rtol=0, atol=1e-12)
    assert_allclose(born.periods, 2 * np.pi / (1.3 + 0.4 * born.values), rtol=1e-12)
    assert_allclose(born.multipliers[:, 0].real, np.exp(-2 * born.values * born.periods), atol=1e-10)
    assert_allclose(born.x[:, 2], born.x[:, 0] ** 2, atol=1e-14)


@pytest.mark.medium
def test_van_der_pol_and_a_subcritical_relative():
    """x'' - (p - s x^2) x' + x = 0 in the coordinates (x, x'): averaged, the amplitude is A' = p A / 2 - s A^3 / 8."""
    field = lambda t, x, p: jnp.stack([x[1], (p[0] - p[1] * x[0] ** 2) * x[1] - x[0]])
    for s, words in (
        (1.0, "supercritical: a stable periodic orbit for larger"),
        (-1.0, "subcritical: an unstable periodic orbit"),
    ):
        rest = hj.phase.equilibrium(alone(field, "x", "v"), "flow", jnp.zeros(2), (jnp.array(-0.3), jnp.array(s)))
        branch = hj.continuation(rest, where=lambda p: p[0], stop=0.3)
        (point,) = branch.special_points
        # A = sqrt(2) |z|.
        assert_allclose(point.form.c.real, -s / 4, rtol=1e-12)
        assert_allclose(point.form.growth.real, 0.5, rtol=1e-12)
        assert point.meaning.startswith(words)
    assert point.meaning.endswith("for smaller values")
    born = hj.switch_branch(point, stop=-0.05, method=hj.PseudoArclength(max_step=0.3))
    size = np.sqrt(np.sum(born.x**2, axis=1))
    assert_allclose(size[0] ** 2 / -born.values[0], 4, rtol=1e-3)
    assert not born.stable.any() and abs(born.periods[0] - 2 * np.pi) < 1e-6


def piecewise(N, M, C, E, sliding):
    """x' = N x + M p where C x > 0; on the other side E C x more, or, of a Filippov system, E."""
    rest = lambda x, p: N @ x + M * p
    names = tuple(f"x{k}" for k in range(len(C)))
    if sliding:
        return hj.filippov(
            {1: lambda t, x, p: rest(x, p), -1: lambda t, x, p: rest(x, p) + E}, lambda t, x, p: C @ x, names
        )
    modes = {
        "+": hj.Mode(lambda t, x, p: rest(x, p), names),
        "-": hj.Mode(lambda t, x, p: rest(x, p) + E * (C @ x), names),
    }
    ways = (hj.Transition("+", "-", lambda t, x, p: C @ x, same), hj.Transition("-", "+", lambda t, x, p: -C @ x, same))
    return hj.HybridSystem(modes, ways)


@pytest.mark.medium
@pytest.mark.parametrize("sliding", [False, True])
def test_boundary_equilibria_persist_or_fold(sliding):
    """di Bernardo et al. (2008), Theorems 5.1 and 5.2: nonsmooth fold where 1 + C N^-1 E < 0 in a continuous system, where
    C N^-1 E > 0 with sliding, and persistence otherwise."""
    rng, seen = np.random.default_rng(3), set()
    for _ in range(4):
        N, M, E = rng.standard_normal((3, 3)), rng.standard_normal(3), 2 * rng.standard_normal(3)
        C = np.array([1.0, 0.0, 0.0])
        E[0] = abs(E[0])  # the other field leads to the surface
        number = C @ np.linalg.solve(N, E) if sliding else -1 - C @ np.linalg.solve(N, E)
        out = -(C @ np.linalg.solve(N, M))
        system = piecewise(*map(jnp.asarray, (N, M, C, E)), sliding)
        branch = branch_of(system, "+", np.zeros(3), jnp.array(np.sign(out)), stop=-np.sign(out))
        (point,) = branch.special_points
        assert point.kind == "boundary" and abs(point.value) < 1e-13
        word = "nonsmooth fold" if number > 0 else "persistence"
        assert point.meaning.startswith(word), (number, point.meaning)
        assert branch.kinds[0] == "regular" and branch.kinds[-1] == "virtual"
        # The equilibrium of the other mode, at its own side of the point, by a linear equation.
        valid = np.sign(out) * (1 if number > 0 else -1)
        there = hj.phase.equilibrium(system, "0" if sliding else "-", jnp.zeros(3), jnp.array(valid))
        assert there.kind == ("pseudo" if sliding else "regular")
        seen.add(word)
    assert len(seen) == 2


@pytest.mark.medium
def test_a_small_coordinate_of_a_special_point_is_shown():
    """x' = p - x^2 has a fold at zero, where the charge is 1e-15 C."""
    field = lambda t, x, p: jnp.stack([p - x[0] ** 2, 1e-15 * (1 + p) - x[1]])
    system = hj.HybridSystem({"flow": hj.Mode(field, ("x", "q"), units=("m", "C"))}, ())
    (fold,) = branch_of(system, "flow", [1.0, 2e-15], jnp.array(1.0), stop=(-1.0, 2.0)).special_points
    assert str(fold).startswith("fold at 0: x = (+0, +1e-15); two")


@pytest.mark.medium
def test_predators_that_are_hunted_above_a_threshold():
    """Prey 1/4 where they are not, 0.45 where they are, and 1 - p while their number stays at the threshold p: by 1 - prey the
    two boundaries. Along the threshold the rate has the derivative -(1 - p)."""
    side = lambda hunted: lambda t, x, p: jnp.stack([x[0] * (1 - x[0] - x[1]), x[1] * (2 * x[0] - 0.5 - hunted)])
    system = hj.filippov({1: side(0.4), -1: side(0.0)}, lambda t, x, p: x[1] - p, ("prey", "predators"))
    branch = branch_of(system, "0", [0.3, 0.7], jnp.array(0.7), stop=(0.3, 0.9))
    assert_allclose([each.value for each in branch.special_points], [0.55, 0.75], atol=1e-13)
    assert_allclose(branch.x, np.column_stack([1 - branch.values, branch.values]), atol=1e-14)
    low, high = (each.meaning for each in branch.special_points)
    assert low == "persistence: an equilibrium of mode '+' for smaller values, of '0' for larger ones"
    assert high == "persistence: an equilibrium of mode '0' for smaller values, of '-' for larger ones"
    rest = hj.phase.equilibrium(system, "0", jnp.array([0.3, 0.7]), jnp.array(0.7))
    assert rest.kind == "pseudo" and rest.stable
    assert_allclose(rest.eigenvalues, [-0.3], rtol=1e-13)


@pytest.mark.medium
def test_no_equilibrium_beyond_a_wall():
    floor = hj.Mode(lambda t, x, p: jnp.stack([x[1], p - x[0] - x[1]]), ("y", "v"))
    hit = hj.Transition("flow", "flow", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([x[0], -x[1]]))
    branch = branch_of(hj.HybridSystem({"flow": floor}, (hit,)), "flow", [1.0, 0.0], jnp.array(1.0), stop=-1.0)
    (point,) = branch.special_points
    assert point.meaning == "no equilibrium of another mode for smaller values" and point.beyond is None
    assert "boundary" in str(branch) and "24 virtual" in str(branch)
    axes = branch.plot("y")
    assert axes.get_legend_handles_labels()[1] == ["stable equilibrium", "virtual equilibrium", "boundary equilibrium"]
    plt.close(axes.figure)
    with pytest.raises(ValueError, match="there is no coordinate 'z'"):
        branch.plot("z")


@pytest.mark.medium
def test_the_limit_cycle_born_at_a_boundary_focus():
    """An unstable focus leaves the surface x = 0: where it was virtual, the flow slid to a pseudo-equilibrium. Now it slides
    to the fold at 0, where it leaves, turns around the focus and returns, by a half-map of the linear flow; the cycle is
    proportional to the parameter."""
    sigma, push = 0.2, 1.5
    above = lambda t, x, p: jnp.stack([x[1], p - x[0] + 2 * sigma * x[1]])
    system = hj.filippov(
        {1: above, -1: lambda t, x, p: jnp.stack([1 + 0 * p, push + 0 * p])}, lambda t, x, p: x[0], ("x", "y")
    )
    (point,) = branch_of(system, "+", [1.0, 0.0], jnp.array(1.0), stop=-1.0).special_points
    assert point.meaning == "persistence: an equilibrium of mode '0' for smaller values, of '+' for larger ones"
    assert not point.equilibrium.stable and point.beyond.stable

    matrix = np.array([[0, 1], [-1, 2 * sigma]])
    at = lambda time: np.array([1, 0]) + expm(matrix * time) @ np.array([-1.0, 0])
    flight = brentq(lambda time: at(time)[0], 3, 6, xtol=1e-15)
    depth = -at(flight)[1]

    p = 0.5
    step = hj.ReturnMap(system, sequence=("0", "+"))
    orbit = hj.periodic_orbit(step, jnp.array([0.0, -depth * p]), jnp.array(p))
    branch = hj.continuation(orbit, where=lambda p: p, stop=0.01)
    slide = lambda p: quad(lambda y: (1 - y) / (p - (push - 2 * sigma) * y), -depth * p, 0, epsabs=1e-14, epsrel=1e-13)[
        0
    ]
    assert_allclose(branch.periods, [flight + slide(p) for p in branch.values], rtol=1e-12)
    assert_allclose(branch.x[:, 1] / branch.values, np.full(len(branch), -depth), rtol=1e-12)
    assert np.max(np.abs(branch.multipliers)) < 1e-10


@pytest.mark.medium
def test_a_batch_of_branches():
    """Under vmap over another parameter: the fold of p = a x^2 is at 0 for every a."""
    system = alone(lambda t, x, p: p[0] - p[1] * x**2, "x")

    def follow(a):
        rest = hj.phase.equilibrium(system, "flow", jnp.array([1.2]), (jnp.array(1.0), a))
        return hj.continuation(rest, where=lambda p: p[0], stop=(-1.0, 2.0))

    branches = jax.vmap(follow)(jnp.array([1.0, 2.0]))
    for k, a in enumerate((1.0, 2.0)):
        assert_allclose(branches[k].values, a * branches[k].x[:, 0] ** 2, atol=1e-9)
        assert abs(branches[k].special_points[0].value) < 1e-13
    assert str(branches) == "2 branches of equilibria"


@pytest.mark.medium
def test_hopf_points_in_bent_coordinates_under_vmap():
    """z' = (p + 1.3 i) z + (a + 0.4 i) z |z|^2: the first Lyapunov coefficient is 2 a / 1.3 before the bend, and over the square
    of the length of the bent eigenvector after it; the orbit r^2 = -p / a has the period 2 pi / (1.3 + 0.4 r^2)."""

    def field(t, u, p):
        x, (growth, a) = straight(u), p
        square = x @ x
        own, turn = growth + a * square, 1.3 + 0.4 * square
        return jax.jvp(skewed, (x,), (jnp.stack([own * x[0] - turn * x[1], turn * x[0] + own * x[1]]),))[1]

    def follow(a):
        rest = hj.phase.equilibrium(alone(field, "u", "v"), "flow", skewed(jnp.zeros(2)), (jnp.array(-0.33), a))
        return hj.continuation(rest, where=lambda p: p[0], stop=0.4)

    branches = jax.vmap(follow)(jnp.array([-1.0, 0.5]))
    length = np.linalg.norm(np.asarray(jax.jacfwd(skewed)(jnp.zeros(2))) @ [1, -1j]) / np.sqrt(2)
    for branch, a, words in zip(
        branches, (-1.0, 0.5), ("supercritical: a stable", "subcritical: an unstable"), strict=True
    ):
        (point,) = branch.special_points
        assert point.kind == "hopf" and abs(point.value) < 1e-13 and point.meaning.startswith(words)
        assert_allclose([point.frequency, point.coefficient], [1.3, 2 * a / 1.3 / length**2], rtol=1e-12)
    born = hj.switch_branch(branches[0].special_points[0], stop=0.3)
    assert_allclose(born.periods, 2 * np.pi / (1.3 + 0.4 * born.values), rtol=1e-9)


@pytest.mark.medium
def test_what_is_not_located_is_said():
    """Two pairs become unstable at values that no halved step tells apart: the product of all sums keeps its sign."""

    def field(t, x, p):
        turn = lambda a, b, growth: [growth * a - b - a**3, a + growth * b]
        return jnp.stack([*turn(x[0], x[1], p), *turn(x[2], 2 * x[3], 1.001 * p - 1e-8)])

    branch = branch_of(alone(field, "a", "b", "c", "d"), "flow", np.zeros(4), jnp.array(-0.47), stop=0.5)
    assert branch.special_points == () and len(branch.unresolved) == 1
    low, high = branch.unresolved[0]
    assert low < 0 < high


@pytest.mark.medium
def test_hopf_points_without_a_cubic_term_and_pairs_that_stay_on_the_axis():
    """x'' = p x' - x has a centre at p = 0 and nothing that leaves; undamped Duffing oscillators keep pairs on the axis."""
    linear = hj.HybridSystem({"flow": hj.Mode(lambda t, x, p: jnp.stack([x[1], p * x[1] - x[0]]), ("x", "v"))}, ())
    rest = hj.phase.equilibrium(linear, "flow", jnp.zeros(2), jnp.array(-0.5))
    (point,) = hj.continuation(rest, where=lambda p: p, stop=0.5).special_points
    assert point.kind == "hopf" and point.meaning.startswith("degenerate") and point.coefficient == 0

    def duffing(t, x, p):
        a, b, va, vb = x
        return jnp.stack([va, vb, -a - 0.3 * (a - b) - a**3 + p, -1.7 * b - 0.3 * (b - a) - b**3])

    system = hj.HybridSystem({"flow": hj.Mode(duffing, ("a", "b", "va", "vb"))}, ())
    rest = hj.phase.equilibrium(system, "flow", jnp.array([0.1, 0.0, 0.0, 0.0]), jnp.array(0.1))
    assert hj.continuation(rest, where=lambda p: p, stop=2.0).special_points == ()
