"""Surfaces of saddles: in closed form, by series in many digits, through an impact by bisection, and where the map jumps."""

import functools as ft

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from systems import ROLLED
from test_continuation import mapping

import hyjax as hj


def bent(u, p):
    """Polynomials with polynomial inverses, one coordinate after the other."""
    x, y, z = u
    y = y + 0.2 * x**2 + 0.1 * x**3
    z = z + 0.3 * x * y - 0.2 * y**2
    return jnp.stack([x + 0.3 * z * y + 0.1 * z**2, y, z])


def straight(u, p):
    x, y, z = u
    x = x - 0.3 * z * y - 0.1 * z**2
    z = z - 0.3 * x * y + 0.2 * y**2
    return jnp.stack([x, y - 0.2 * x**2 - 0.1 * x**3, z])


BENT = mapping(lambda x, p: bent(p["by"] @ straight(x, p), p), 3)
# Two real multipliers, of both signs, and two complex ones; the third multiplier is that of z.
SADDLES = {
    "node": ([[1.7, 0.0], [0.0, -1.4]], 0.6, "unstable"),
    "focus": ([[0.8, -1.0], [1.0, 0.8]], 0.5, "unstable"),
    "shear": ([[1.5, 1.0], [0.0, 1.5]], 0.5, "unstable"),
    "stable node": ([[0.6, 0.0], [0.0, -0.7]], 1.5, "stable"),
    "stable focus": ([[0.6, 0.4], [-0.4, 0.6]], -1.5, "stable"),
}  # fmt: skip


@ft.cache
def surface(name, length=1.2):
    plane, third, which = SADDLES[name]
    by = np.zeros((3, 3))
    by[:2, :2], by[2, 2] = plane, third
    step = hj.ReturnMap(BENT, sequence=("run",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.zeros(4), {"by": jnp.asarray(by)})
    return orbit, orbit.manifold(which, length=length, spacing=0.2, angle=0.25)


def edges_of(found):
    return np.unique(np.sort(found.triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1), axis=0).T


@pytest.mark.medium
@pytest.mark.parametrize(
    "name",
    [each if each in ("node", "stable focus") else pytest.param(each, marks=pytest.mark.medium) for each in SADDLES],
)
def test_surfaces_in_closed_form(name):
    """In straight coordinates the surface is a plane, and W(s) = Q s. The error is that of 1e3 roundings of polynomials' fits."""
    found = surface(name)[1]
    flat = np.asarray(jax.vmap(lambda x: straight(x, None))(found.x[:, :3]))
    assert_allclose(flat[:, 2], 0, atol=2e-13)
    assert_allclose(flat, found.s @ found.direction[:3].T, atol=1e-12)
    assert_allclose(found.direction.T @ found.direction, np.eye(2), atol=1e-15)
    # By the coefficients of their polynomial: two that are equal have the square root of its error.
    assert_allclose(np.poly(found.multiplier), np.poly(SADDLES[name][0]), rtol=1e-13)
    assert_allclose(found(found.s[::50]), found.x[::50], atol=1e-12)
    assert found(found.s[:6].reshape(2, 3, 2)).shape == (2, 3, 4) and found.residual < 1e-13
    # Points, edges, angles between normals, by the formula of the surface; distances and codes.
    i, j = edges_of(found)
    planes = jax.vmap(jax.jacfwd(lambda u: bent(u, None)))(flat)[:, :, :2]
    normals = np.cross(planes[:, :, 0], planes[:, :, 1])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    assert np.all(np.linalg.norm(found.x[i] - found.x[j], axis=1) <= 0.2)
    assert np.all(np.arccos(np.clip(np.sum(normals[i] * normals[j], axis=1), -1, 1)) <= 0.25 + 1e-6)
    assert np.all(found.arclength >= np.linalg.norm(found.x - found.x[0], axis=1) - 1e-12)
    # A ray ends within a tenth of the spacing; the way along edges is longer where points were inserted.
    assert np.all(found.arclength[found.border] >= 1.18) and np.max(found.arclength) <= 1.25
    assert str(found.ends) == f"{len(found.border)} successful"
    # A disk: points - edges + triangles = 1; as many edges of one triangle as there are points on the border; no two overlap.
    assert len(found.s) - len(i) + len(found.triangles) == 1
    assert 2 * len(i) - 3 * len(found.triangles) == len(found.border)
    a, b, c = np.moveaxis(found.s[found.triangles], 1, 0)
    area = ((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    assert np.all(area > 0)


@pytest.mark.medium
def test_the_first_axis_is_the_curve_of_the_first_multiplier():
    orbit, found = surface("node")
    curve = orbit.manifold(0, length=0.5)
    assert_allclose(found(np.column_stack([curve.s, 0 * curve.s])), curve.x, atol=1e-12)
    assert_allclose(found.multiplier, [[1.7, 0], [0, -1.4]], atol=1e-14)


@pytest.mark.medium
@pytest.mark.parametrize(("by", "which"), [((1.05, 20, 0.5), "unstable"), ((2, 0.9, 0.02), "stable")])
def test_a_surface_of_unequal_multipliers_ends_where_it_would_be_wrong(by, which):
    """W(s) in closed form; of the bound 1.5e-8 a part of ten is left to the curvature of the map."""
    orbit = hj.periodic_orbit(surface("node")[0].step, jnp.zeros(4), {"by": jnp.diag(jnp.array(by))})
    found = orbit.manifold(which, length=1.2, spacing=0.3, angle=0.5)
    flat = np.asarray(jax.vmap(lambda x: straight(x, None))(found.x[:, :3]))
    assert_allclose(flat, found.s @ found.direction[:3].T, atol=1.5e-7)
    assert "nonlinear_divergence" in str(found.ends)
    i, _ = edges_of(found)
    assert len(found.s) - len(i) + len(found.triangles) == 1 and found.border is not None
    assert 2 * len(i) - 3 * len(found.triangles) == len(found.border)


def test_a_surface_is_saved_and_shown(tmp_path):
    _, found = surface("node")
    hj.save(tmp_path / "surface.npz", found)
    again = hj.load(tmp_path / "surface.npz", system=BENT)
    assert_array_equal(again.triangles, found.triangles)
    assert_array_equal(again(found.s[3]), found(found.s[3]))
    assert str(again) == str(found) and ["triangles", str(len(found.triangles))] in [
        each.split() for each in str(found).splitlines()
    ]


def test_a_picture_of_a_surface_and_a_curve():
    matplotlib.use("Agg")
    orbit, found = surface("node")
    axes = found.plot()
    orbit.manifold(0, length=0.5).plot(axes, coordinates=("x0", "x1", "x2"))
    (mesh,) = axes.collections
    assert len(mesh.get_facecolor()) in (1, len(found.triangles)) and axes.get_zlabel() == "$x_{2}$"
    line, *_ = orbit.manifold(0, length=0.5).plot().lines
    assert len(line.get_xdata()) == len(orbit.manifold(0, length=0.5).s)
    with pytest.raises(ValueError, match="must be two of"):
        found.plot(coordinates=("x0", "x1"))


@pytest.mark.medium
def test_what_a_surface_cannot_do():
    orbit, found = surface("stable focus")
    border = found.border
    assert border is not None and np.all(np.isfinite(found(0.999 * found.s[border])))
    for call, text in (
        (lambda: found(1.05 * found.s[border[:1]]), "must be within the border"),
        (lambda: found(0.3), "must be .*, 2"),
        (lambda: orbit.manifold(1, length=1.0), "two on one side of the circle"),
        (lambda: orbit.manifold((0, 1), length=1.0), "two on one side of the circle"),
        (lambda: orbit.manifold((1, 1), length=1.0), "or of two"),
        (lambda: orbit.manifold(0.5, length=1.0), "which=0.5 must be the number"),
        (lambda: orbit.manifold(None, length=1.0), "which=None must be the number"),
        (lambda: orbit.manifold("stable", length="1"), "length='1' must be positive, a number"),
        (lambda: orbit.manifold("stable", length=1.0, max_points=5), "more than 12"),
        (lambda: found.crossings(found), "two surfaces meet in curves"),
        (lambda: found.tangency(found, solve=lambda p: p["by"]), "curves"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    small = orbit.manifold("stable", length=1.2, spacing=0.2, max_points=150)
    assert "max_points_reached" in str(small.ends) and 90 < len(small.s) <= 150
    tiny = orbit.manifold("stable", length=1.2, spacing=0.2, max_points=20)
    assert str(tiny.ends) == "12 max_points_reached" and len(tiny.s) == 13
    assert_allclose(tiny(tiny.s), tiny.x, atol=1e-12)
    assert np.all(np.isnan(found([[np.nan, 0.0], [0.0, np.inf]])))
    short = orbit.manifold("stable", length=0.1, spacing=3.0)
    assert np.max(short.arclength) < 0.11
    i, j = edges_of(small)
    assert np.all(np.linalg.norm(small.x[i] - small.x[j], axis=1) <= 0.2)


# (x, y, z) -> (y, z, m + b x + k y - z^2), Henon's map in three dimensions.
CUBE = mapping(lambda x, p: jnp.stack([x[1], x[2], p["m"] + p["b"] * x[0] + p["k"] * x[1] - x[2] ** 2]), 3)
# By 400 passes from the tangent plane, with 80 digits in mpmath; m = 1, b = 0.5, k = -1.5.
DIGITS = {
    (0.3, 0.2): (0.6212415363817879641, 0.30110501287436893276, 0.13993101419326097737),
    (-0.5, 0.1): (0.27959763664891595562, 0.17148699915112113126, 0.85845480423720347989),
    (0.1, -0.6): (0.11272601134024394454, 0.94408584344261420148, 0.06367262349267239869),
    (-0.7, -0.4): (-0.01648773931581289102, 0.29627294787113684250, 1.25318894613868279693),
}  # fmt: skip


@pytest.mark.medium
def test_a_surface_to_many_digits():
    """Henon's map in three dimensions, of an orbit with two complex multipliers. The error is that of 50 roundings."""
    step = hj.ReturnMap(CUBE, sequence=("run",), integrator=ROLLED)
    params = {"m": jnp.array(1.0), "b": jnp.array(0.5), "k": jnp.array(-1.5)}
    found = hj.periodic_orbit(step, jnp.array([0.4, 0.4, 0.4, 0.0]), params).manifold(
        "unstable", length=0.9, spacing=0.15
    )
    assert_allclose(found(np.array([*DIGITS]))[:, :3], [*DIGITS.values()], atol=1e-13)


# A homoclinic point at m = 1.4, b = 0.1, k = 0.3, with s of the unstable curve: the crossing of 150 passes from the line and 150
# passes backwards from the tangent plane, with 300 digits in mpmath. The other one is its image.
HOMOCLINIC = 4.227839161365502577, (1.661825954254739935, -1.124871147388910460, 0.673677018289420928)
BACK = mapping(lambda x, p: jnp.stack([(x[2] - p["m"] - p["k"] * x[0] + x[1] ** 2) / p["b"], x[0], x[1]]), 3)


@pytest.mark.medium
@pytest.mark.parametrize(("system", "kinds"), [(CUBE, ("stable", "unstable")), (BACK, ("unstable", "stable"))])
def test_homoclinic_points_of_a_surface_and_a_curve(system, kinds):
    """Of Henon's map in three dimensions, and of its inverse, of which the same surface and curve are the other way round."""
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED)
    params = {"m": jnp.array(1.4), "b": jnp.array(0.1), "k": jnp.array(0.3)}
    saddle = hj.periodic_orbit(step, jnp.array([0.92, 0.92, 0.92, 0.0]), params)
    surface, curve = (
        saddle.manifold(kinds[0], length=3.0, spacing=0.4),
        saddle.manifold(kinds[1], length=8.0, spacing=0.2),
    )
    found, other = surface.crossings(curve), curve.crossings(surface)
    assert found.s.shape == (2, 2) and found.t.shape == found.sine.shape == (2,)
    # The errors are those of about 50 roundings of the polynomials' fits.
    assert_allclose(found.t[1], HOMOCLINIC[0], rtol=1e-12)
    assert_allclose(found.x[1, :3], HOMOCLINIC[1], atol=1e-12)
    first, then = (1, 0) if system is CUBE else (0, 1)
    assert_allclose(found.t[then], found.t[first] * curve.multiplier, rtol=1e-12)
    assert_allclose(step(found.x[first], params).x, found.x[then], atol=1e-12)
    for one, two in zip(found, (other.t, other.s, other.x, other.sine), strict=True):
        assert_allclose(one, two, atol=1e-12)
    assert_allclose(surface(found.s), found.x, atol=1e-12)
    # The sine of the angle between the curve and the plane, by differences of points.
    h = 1e-5
    ways = [(surface(found.s[0] + h * e) - surface(found.s[0] - h * e))[:3] for e in np.eye(2)]
    way = (curve(found.t[0] + h) - curve(found.t[0] - h))[:3]
    normal = np.cross(*ways)
    assert_allclose(abs(found.sine[0]), abs(normal @ way) / np.linalg.norm(normal) / np.linalg.norm(way), atol=1e-8)
    with pytest.raises(ValueError, match="tangencies are those of curves"):
        surface.tangency(curve, solve=lambda p: p["m"])


def floor(x, p):
    return x[1] + p["a"] * x[0] ** 2


def bounce(t, x, p):
    """A part e of the normal velocity comes back, with 1 more, and a part k of the tangential one."""
    slope = 2 * p["a"] * x[0]
    length = jnp.sqrt(1 + slope**2)
    along, up = (x[2] - slope * x[3]) / length, (slope * x[2] + x[3]) / length
    along, up = p["k"] * along, 1 - p["e"] * up
    return jnp.stack([x[0], -p["a"] * x[0] ** 2, (along + slope * up) / length, (up - slope * along) / length])


# A ball is kicked by the crest on which it bounces.
BALL = hj.HybridSystem(
    {
        "flight": hj.Mode(
            lambda t, x, p: jnp.stack([x[2], x[3], 0 * x[0], 0 * x[0] - 1]), ("x", "y", "x_rate", "y_rate")
        )
    },
    (hj.Transition("flight", "flight", lambda t, x, p: floor(x, p), bounce),),
)
CREST = {"a": jnp.array(0.1), "e": jnp.array(0.5), "k": jnp.array(0.8)}


def bounced(x):
    """The map in closed form: of the time of flight the equation is quadratic, and one root is 0."""
    after = (x[3] + 2 * 0.1 * x[0] * x[2]) / (0.5 - 0.1 * x[2] ** 2)
    place, up_rate = x[0] + x[2] * after, x[3] - after
    # The unit vector along the floor as a complex number.
    along = np.exp(-1j * np.arctan(2 * 0.1 * place))
    rate = (x[2] + 1j * up_rate) * np.conj(along)
    rate = (0.8 * rate.real + 1j * (1 - 0.5 * rate.imag)) * along
    return np.array([place, -0.1 * place**2, rate.real, rate.imag])


@pytest.mark.medium
def test_a_surface_through_impacts():
    """The stable manifold of the vertical bounce, in a section of three dimensions, divides falls to the left from those to the
    right. Bisection with the map in closed form finds the same velocities, to the error that 8 bounces leave of 1e-15."""
    step = hj.ReturnMap(BALL, sequence=("flight",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([0.0, 0.0, 0.0, 2.0]), CREST)
    found = orbit.manifold("stable", length=0.6, spacing=0.1)
    assert str(found.ends) == f"{len(found.ends._value)} successful"
    assert_allclose(floor(found.x.T, CREST), 0, atol=1e-14)
    ahead = np.array([bounced(x) for x in found.x])
    # Six passes back from the polynomial, a rounding of 4e-16 along the faster axis is 0.178**-6 = 3e4 times as long. It moves
    # the point along the surface.
    assert_allclose(ahead, found(found.s @ found.multiplier.T), atol=1.2e-11)

    def side(x):
        for _ in range(60):
            x = bounced(x)
            if abs(x[0]) > 0.5:
                break
        return np.sign(x[0])

    assert found.border is not None
    for k in found.border[::6]:
        x, low, high = found.x[k], found.x[k, 2] - 0.1, found.x[k, 2] + 0.1
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if side(np.array([x[0], x[1], middle, x[3]])) < 0 else (low, middle)
        assert_allclose(x[2], low, atol=1e-12)


@pytest.mark.medium
def test_where_the_map_jumps_the_surface_is_torn():
    """(x, y, z) -> (1 - 1.5 x + y, 0.4 x + 1.6 z, 1.2 y - 0.2 x), and 0.3 more where x < 0."""
    by = jnp.array([[-1.5, 1.0, 0.0], [0.4, 0.0, 1.6], [-0.2, 1.2, 0.0]])
    jump = lambda more: lambda t, x, p: jnp.append(by @ x[:3] + jnp.array([1.0 + more, more, more]), 0.0)
    ways = [
        hj.Transition("run", "run", lambda t, x, p: 1 - x[3], jump(more), armed=lambda t, x, p, sign=sign: sign * x[0] > 0)
        for sign, more in ((1, 0.0), (-1, 0.3))
    ]  # fmt: skip
    system = hj.HybridSystem(
        {"run": hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 0.0, 1.0]), ("x", "y", "z", "clock"))}, ways
    )
    step = hj.ReturnMap(system, section=hj.Section("run", lambda t, x, p: 0.5 - x[3]), integrator=ROLLED, max_jumps=2)
    fixed = np.linalg.solve(np.eye(3) - by, [1.0, 0, 0])
    orbit = hj.periodic_orbit(step, jnp.array([*fixed, 0.5]), {})
    found = orbit.manifold("unstable", length=1.0, spacing=0.15, step=step)
    x = fixed + found.s @ np.linalg.matrix_power(np.linalg.inv(found.multiplier), 30).T @ found.direction[:3].T
    nearest = np.full(len(x), np.inf)
    for _ in range(30):
        nearest = np.minimum(nearest, np.abs(x[:, 0]))
        x = x @ np.asarray(by).T + np.array([1.0, 0, 0]) + 0.3 * (x[:, :1] < 0)
    # The first of 30 roundings grew by 2^30 relative to the last; at x = 0 either side is right.
    sure = nearest > 1e-6
    assert np.sum(~sure) < 10 and np.any(nearest < 1e-2)
    assert_allclose(found.x[sure, :3], x[sure], atol=1e-6)
    # No triangle crosses the jump, at which rays end.
    i, j = edges_of(found)
    assert np.all(np.linalg.norm(found.x[i] - found.x[j], axis=1) <= 0.15)
    assert found.border is not None
    torn = np.asarray(found.ends._value) == int(hj.RESULTS.nonlinear_divergence._value)
    assert 2 < np.sum(torn) < len(torn) and np.all(nearest[found.border[torn]] < 0.01)
