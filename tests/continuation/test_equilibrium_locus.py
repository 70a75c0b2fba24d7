"""Curves of folds and Hopf points of equilibria over two parameters, and their points of codimension two: normal forms."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

import hyjax as hj


def special(field, names, guess, params, stop):
    """The special points of the branch over the first parameter, by kind."""
    system = hj.HybridSystem({"flow": hj.Mode(field, names)}, ())
    params = {name: jnp.array(value) for name, value in params.items()}
    rest = hj.phase.equilibrium(system, "flow", jnp.array(guess), params)
    first = next(iter(params))
    return {point.kind: point for point in hj.continuation(rest, where=lambda p: p[first], stop=stop).special_points}


@pytest.mark.medium
def test_folds_end_in_a_cusp():
    """x' = a + b x - x^3: 27 a^2 = 4 b^3, one curve that turns at the cusp, where b has its least value."""
    point = special(lambda t, x, p: p["a"] + p["b"] * x - x**3, ["x"], [1.0], {"a": 0.3, "b": 0.7}, (-1.0, 1.0))["fold"]
    found = hj.locus(point, where=lambda p: p["b"], stop=(-1.0, 1.0))
    a, b = found.values.T
    # Roundings of parameters of the size of the way, 2, and of their products.
    assert_allclose(27 * a**2, 4 * b**3, atol=1e-13)
    assert_allclose(3 * found.x[:, 0] ** 2, b, atol=1e-14)
    (cusp,) = found.special_points
    # From the sign of a tangent that is proportional to the distance: to rounding of the unknowns.
    assert cusp.kind == "cusp" and np.max(np.abs(cusp.values)) < 1e-12 and abs(cusp.equilibrium.x[0]) < 1e-12
    assert (
        found.parameters == ["a", "b"]
        and found.result == "successful"
        and "cusp" in str(found)
        and "cusp at" in str(cusp)
    )
    assert not found.neutral.any() and np.isnan(found.frequencies).all()
    axes = found.plot()
    assert axes.get_xlabel() == "$a$" and [each.get_gid() for each in axes.lines][-1] == "cusp"
    plt.close("all")
    with pytest.raises(ValueError, match="at a cusp point of equilibria no curve"):
        hj.locus(cusp, where=lambda p: p["b"], stop=0.5)
    with pytest.raises(ValueError, match="kind=hopf must be one of fold"):
        hj.locus(point, where=lambda p: p["b"], stop=0.5, kind="hopf")
    with pytest.raises(ValueError, match="pick a second one"):
        hj.locus(point, where=lambda p: p["a"], stop=0.5)


@pytest.fixture(scope="module")
def takens():
    """x' = y, y' = a + b y + x^2 + x y: folds at a = 0, Hopf points at a = -b^2, b > 0, where omega^2 = 2 b."""
    field = lambda t, x, p: jnp.stack([x[1], p["a"] + p["b"] * x[1] + x[0] ** 2 + x[0] * x[1]])
    return special(field, ("x", "y"), [-0.5, 0.0], {"a": -0.3, "b": 0.2}, (-0.5, 0.1))


@pytest.mark.medium
def test_hopf_points_begin_at_a_bogdanov_takens_point(takens, tmp_path):
    second = lambda p: p["b"]
    folds = hj.locus(takens["fold"], where=second, stop=-0.2)
    (point,) = folds.special_points
    # Of eigenvalues that are the roots of a number the product is as exact as the number.
    assert point.kind == "bogdanov-takens" and np.max(np.abs(point.values)) < 1e-12
    hopfs = hj.locus(point, where=second, stop=(-0.15, 0.15), kind="hopf")
    for found in (hopfs, hj.locus(takens["hopf"], where=second, stop=-0.2)):
        a, b = found.values.T
        assert_allclose(a, -(b**2), atol=1e-13)
        assert_allclose(found.x[:, 0], -b, atol=1e-13)
        assert_allclose(found.frequencies[b > 1e-6] ** 2, 2 * b[b > 1e-6], atol=1e-12)
        assert np.all(found.neutral[b < -1e-6]) and not np.any(found.neutral[b > 1e-6])
        (again,) = found.special_points
        assert again.kind == "bogdanov-takens" and np.max(np.abs(again.values)) < 1e-12
    # A curve that ends at the point, up to rounding of either sign, has it; before it none is unresolved.
    for kind, stop in (("fold", 0.0), ("fold", 1e-12), ("hopf", 0.0), ("hopf", 1e-12), ("hopf", 1e-6)):
        ends = hj.locus(takens[kind], where=second, stop=stop)
        assert [each.kind for each in ends.special_points] == ["bogdanov-takens"] * (stop < 1e-6)
        assert all(np.max(np.abs(each.values)) < 1e-14 for each in ends.special_points) and ends.unresolved == ()
    hj.save(tmp_path / "hopfs.npz", hopfs)
    stored = hj.load(tmp_path / "hopfs.npz", system=hopfs.unfolding.start.system)
    assert_allclose(stored.values, hopfs.values, rtol=0)
    axes = hj.plot.locus_diagram([folds, hopfs])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fold", "Hopf", "neutral saddle"]
    plt.close("all")


@pytest.mark.medium
def test_where_the_first_lyapunov_coefficient_is_zero():
    """z' = (m + 1.3 i) z + (b + 0.4 i) z |z|^2 - z |z|^4, about a place that moves with m: zero at b = 0."""

    def field(t, x, p):
        u = x - jnp.stack([p["m"], 0.5 * p["b"]])
        grow, turn = p["m"] + p["b"] * (u @ u) - (u @ u) ** 2, 1.3 + 0.4 * (u @ u)
        return jnp.stack([grow * u[0] - turn * u[1], turn * u[0] + grow * u[1]])

    point = special(field, ("x", "y"), [-0.3, 0.2], {"m": -0.3, "b": 0.37}, 0.5)["hopf"]
    found = hj.locus(point, where=lambda p: p["b"], stop=(-1.0, 1.0))
    assert_allclose(found.values[:, 0], 0, atol=1e-13)
    assert_allclose(found.frequencies, 1.3, rtol=1e-13)
    (degenerate,) = found.special_points
    assert degenerate.kind == "generalized-hopf" and np.max(np.abs(degenerate.values)) < 1e-12
    assert_allclose(degenerate.frequency, 1.3, rtol=1e-13)
    assert abs(degenerate.form.c.real) < 1e-12


@pytest.mark.medium
@pytest.mark.parametrize("gap", [1e-3, 0.0])
@pytest.mark.parametrize("kind", ["generalized-hopf", "bogdanov-takens"])
def test_two_points_within_a_step(kind, gap):
    """z' = (m + 1.3 i) z + f z |z|^2 - z |z|^4, and x' = y, y' = a + f y + x^2 + x y at a = 0, of f = (b - 0.047)^2 - gap.
    Without a gap f touches zero, where rounding does not tell two points from none."""

    def field(t, x, p):
        first, f = p["first"], (p["b"] - 0.047) ** 2 - gap
        if kind == "bogdanov-takens":
            return jnp.stack([x[1], first + f * x[1] + x[0] ** 2 + x[0] * x[1]])
        grow = first + f * (x @ x) - (x @ x) ** 2
        return jnp.stack([grow * x[0] - 1.3 * x[1], 1.3 * x[0] + grow * x[1]])

    guess, on = ([-0.5, 0.0], "fold") if kind == "bogdanov-takens" else ([0.0, 0.0], "hopf")
    point = special(field, ("x", "y"), guess, {"first": -0.3, "b": -0.9}, (-0.5, 0.1))[on]
    found = hj.locus(point, where=lambda p: p["b"], stop=1.0)
    # The test function has one sign at all points of the curve.
    f = (found.values[:, 1] - 0.047) ** 2 - gap
    assert np.all(f > 0)
    if gap:
        assert [each.kind for each in found.special_points] == [kind, kind] and found.unresolved == ()
        # From rounding of f, whose slope is 0.06.
        expected = 0.047 + np.sqrt([gap]) * [-1, 1]
        assert_allclose([each.values[1] for each in found.special_points], expected, atol=1e-12)
    else:
        assert found.special_points == () and len(found.unresolved) > 0
        assert_allclose(found.unresolved, 0.047, atol=1e-5)
        assert "not located: " in str(found)


@pytest.mark.medium
def test_branches_cross_on_a_curve_of_hopf_points():
    """x' = n x - x^3, z' = (m + i) z - z |z|^2: at m = n = 0 neither is there a fold, nor is Re c = -1 zero."""

    def field(t, x, p):
        grow = p["m"] - x[1] ** 2 - x[2] ** 2
        return jnp.stack([p["n"] * x[0] - x[0] ** 3, grow * x[1] - x[2], grow * x[2] + x[1]])

    point = special(field, ("x", "y", "z"), [0.0, 0.0, 0.0], {"m": -0.3, "n": -0.57}, 0.5)["hopf"]
    (both,) = hj.locus(point, where=lambda p: p["n"], stop=0.6).special_points
    # The eigenvalue n is a test function itself.
    assert both.kind == "fold-hopf" and np.max(np.abs(both.values)) < 1e-12
    assert "branches of equilibria cross" in both.meaning
    with pytest.raises(ValueError, match="branches cross along another curve, and there is no fold"):
        hj.locus(both, where=lambda p: p["n"], stop=0.6, kind="fold")


@pytest.mark.medium
def test_folds_and_hopf_points_touch():
    """x' = m - x^2 - |z|^2, z' = (n + x + 1.5 i) z: folds at m = 0, Hopf points at m = n^2."""
    field = lambda t, x, p: jnp.stack([
        p["m"] - x @ x, (p["n"] + x[0]) * x[1] - 1.5 * x[2], (p["n"] + x[0]) * x[2] + 1.5 * x[1]
    ])  # fmt: skip
    points = special(field, ("x", "y", "z"), [0.6, 0.0, 0.0], {"m": 0.36, "n": -0.37}, (-0.2, 0.8))
    for kind, curve in (("fold", lambda n: 0 * n), ("hopf", lambda n: n**2)):
        found = hj.locus(points[kind], where=lambda p: p["n"], stop=(-0.6, 0.6))
        assert_allclose(found.values[:, 0], curve(found.values[:, 1]), atol=1e-13)
        (both,) = found.special_points
        assert both.kind == "fold-hopf" and np.max(np.abs(both.values)) < 1e-12 and "curves of folds" in both.meaning
        assert_allclose(both.frequency, 1.5, rtol=1e-12)


@pytest.mark.medium
def test_two_curves_of_hopf_points_cross():
    """Two pairs a + i and b + 0.3 a + 1.7 i, coupled: Hopf points at a = 0, and there the other pair's at b = 0."""

    def field(t, x, p):
        u, v = x[:2], x[2:]
        turned = lambda z: jnp.stack([-z[1], z[0]])
        one = p["a"] * u + turned(u) - u * (x @ x) + 0.2 * v
        return jnp.concatenate([one, (p["b"] + 0.3 * p["a"]) * v + 1.7 * turned(v) - v * (x @ x)])

    point = special(field, tuple("uvwz"), [0.0, 0.0, 0.0, 0.0], {"a": -0.4, "b": -0.5}, 0.4)["hopf"]
    found = hj.locus(point, where=lambda p: p["b"], stop=0.7)
    assert_allclose(found.values[:, 0], 0, atol=1e-13)
    (both,) = found.special_points
    # It is interpolated: errors of the neighbours over their change.
    assert both.kind == "double-hopf" and np.max(np.abs(both.values)) < 1e-10
    assert_allclose(np.sort(np.abs(both.equilibrium.eigenvalues.imag)), [1, 1, 1.7, 1.7], rtol=1e-10)


@pytest.mark.slow
def test_points_at_both_ends_hide_none_between():
    """Folds at x = 0 of x' = y, y' = a + b (b - 1/2) (b - 1) y + x^2 + x y, from b = 0 to 1: eigenvalues are 0, 0 at both ends
    and at 1/2."""
    change = lambda b: b * (b - 0.5) * (b - 1)
    field = lambda t, x, p: jnp.stack([x[1], p["a"] + change(p["b"]) * x[1] + x[0] ** 2 + x[0] * x[1]])
    system = hj.HybridSystem({"flow": hj.Mode(field, ("x", "y"))}, ())
    params = {"a": jnp.array(-0.3), "b": jnp.array(-0.3)}
    rest = hj.phase.equilibrium(system, "flow", jnp.array([-0.55, 0.0]), params)
    branch = hj.continuation(rest, where=lambda p: p["a"], stop=(-0.5, 0.1))
    (fold,) = [each for each in branch.special_points if each.kind == "fold"]
    (first,) = hj.locus(fold, where=lambda p: p["b"], stop=0.2).special_points
    found = hj.locus(first, where=lambda p: p["b"], stop=1.0, kind="fold")
    inner = [each.value[1] for each in found.special_points if 1e-6 < each.value[1] < 1 - 1e-6]
    assert_allclose(inner, [0.5], rtol=0, atol=1e-12)
