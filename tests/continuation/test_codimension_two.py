r"""Points of codimension two of maps in closed form: where loci meet, and the curves that leave there.

The generalized Hénon map $(x, y) \mapsto (y, \alpha - \beta x - y^2 + Rxy + Sy^3)$, Kuznetsov and Meijer (2019), has on
$x = y$ the trace $-2x + Rx + 3Sx^2$ and the determinant $\beta - Rx$; the map $(x, y, z) \mapsto (y, z, M_1 + Bx + M_2y - z^2 +
kxz)$, on $x = y = z$, the characteristic polynomial $\lambda^3 - (k - 2)x\lambda^2 - M_2\lambda - (B + kx)$.
"""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import ROLLED, skewed, straight
from test_continuation import mapping

import hyjax as hj
from hyjax._testing import location, Near

REFERENCE = json.loads((pathlib.Path(__file__).parent.parent / "normal_forms_reference.json").read_text())


def generalized_henon(u, p):
    return jnp.stack([u[1], p["alpha"] - p["beta"] * u[0] - u[1] ** 2 + p["R"] * u[0] * u[1] + p["S"] * u[1] ** 3])


HENON = mapping(generalized_henon, 2)
CUBE = mapping(
    lambda u, p: jnp.stack([u[1], u[2], p["M1"] + p["B"] * u[0] + p["M2"] * u[1] - u[2] ** 2 + p["k"] * u[0] * u[2]]),
    3,
)


CUBIC = mapping(
    lambda u, p: jnp.stack(
        [-(1 + p["alpha"]) * u[0] + p["b"] * u[0] ** 3 + u[0] * u[1], u[1] / 2 + u[0] ** 2 + u[0] ** 4]
    ),
    2,
)


def henon(x, beta, R=-0.1, S=0.0):
    """The fixed point x = y, and its parameters."""
    alpha = x + beta * x + x**2 - R * x**2 - S * x**3
    return HENON, [x, x], {"alpha": alpha, "beta": beta, "R": R, "S": S}


def cube(x, B, M2, k=0.5):
    return CUBE, [x, x, x], {"M1": x - B * x - M2 * x + x**2 - k * x**2, "B": B, "M2": M2, "k": k}


def locus_from(system, x, params, kind, first, second, reach, stop):
    """The locus of the first point of the kind within `reach` of the fixed point over the parameter `first`."""
    params = {name: jnp.array(value) for name, value in params.items()}
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([*x, 0.0]), params)
    bounds = float(params[first]) - reach, float(params[first]) + reach
    branch = hj.continuation(orbit, where=lambda p: p[first], stop=bounds, throw=False)
    point = next(each for each in branch.special_points if each.kind == kind)
    return hj.locus(point, where=lambda p: p[second], stop=stop)


def check(locus, *expected):
    """Kinds and values of the points, in any order: the conditions are solved to rounding."""
    assert sorted(each.kind for each in locus.special_points) == sorted(kind for kind, *_ in expected)
    for kind, *values in expected:
        near = [np.max(np.abs(each.values - values)) for each in locus.special_points if each.kind == kind]
        assert min(near) < 1e-13


def check_form(point, name):
    """The normal form at a point that was located, against 25 digits of an independent computation, to rounding."""
    coefficients = point.normal_form.coefficients
    for key, expected in REFERENCE[name]["coefficients"].items():
        expected = complex(*expected) if isinstance(expected, list) else expected
        assert_allclose(coefficients[key], expected, rtol=1e-12, atol=1e-13)


R1, R2, R3, R4 = (f"resonance-1:{n}" for n in (1, 2, 3, 4))


def at_resonance(total, R=-0.1):
    """Parameters at which the multipliers have the sum `total` and the product 1."""
    x = total / (R - 2)
    return 1 + R * x, x + (1 + R * x) * x + x**2 - R * x**2


@pytest.fixture(scope="module")
def turning():
    return locus_from(*henon(-0.55, 0.9), "neimark-sacker", "beta", "alpha", 0.3, (-1.5, 3.5))


@pytest.mark.slow
def test_strong_resonances(turning):
    """Along the curve the product of the multipliers is 1, as a pair and beyond 1:1 and 1:2 as real numbers."""
    check(turning, *((kind, *at_resonance(total)) for kind, total in ((R1, 2), (R2, -2), (R3, -1), (R4, 0))))
    assert_allclose(turning.multipliers[:, 0] * turning.multipliers[:, 1], 1, rtol=1e-12)  # rounding, of a few digits
    kinds = {each.kind: each for each in turning.special_points}
    assert_allclose(kinds[R3].multiplier, np.exp(2j * np.pi / 3), rtol=1e-14)
    for n in (1, 2, 3, 4):
        check_form(kinds[f"resonance-1:{n}"], f"ghm_R{n}_R-0.1_S0.0")
    assert "resonance-1:1" in str(turning) and str(kinds[R4]).startswith("resonance-1:4 at 1, ")


HUNTED = mapping(lambda u, p: jnp.stack([p["a"] * u[0] * (1 - u[0]) - 2 * u[0] * u[1], p["d"] * u[0] * u[1]]), 2)
AGED = mapping(lambda u, p: jnp.stack([p["r"] * u[0] * (1 - p["k"] * u[0] - (1 - p["k"]) * u[1]), u[0]]), 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "names", "stop", "at", "forms"),
    [
        # Prey 1/d, predators (a - a/d - 1)/2: the trace is 2 - a/d, the product of the multipliers a - 2 a/d.
        (
            (HUNTED, [1 / 2.8, 0.625], {"a": 3.4, "d": 2.8}), ("a", "d"), (2.2, 3.4),
            ((R2, 9, 9 / 4), (R3, 7, 7 / 3), (R4, 5, 5 / 2)),
            ((-(125 + 250j) / 33, (25 + 200j) / 33), (-3.748633879781420765 - 6.492824338755463516j, 2.7381139055128516)),
        ),
        # Of a weight k for this generation, and 1 - k for the last one: the trace 1 - k (r - 1), the product (1 - k) (r - 1).
        (
            (AGED, [0.61, 0.61], {"r": 2.57, "k": 0.4}), ("r", "k"), (0.1, 0.85),
            ((R2, 5, 3 / 4), (R3, 4, 2 / 3), (R4, 3, 1 / 2)),
            ((9 / 8 - 9j / 16, -9j / 16), (16 / 9 + 1.539600717839002039j, np.sqrt(8) / 3)),
        ),
    ],
    ids=["hunted", "aged"],
)  # fmt: skip
def test_resonances_of_populations(case, names, stop, at, forms):
    """In closed form; coefficients by the homological equation in 30 digits."""
    found = locus_from(*case, "neimark-sacker", *names, 0.3, stop)
    check(found, *at)
    kinds = {each.kind: each.normal_form.coefficients for each in found.special_points}
    (c, d), (turned, size) = forms
    assert_allclose([kinds[R4]["c"], kinds[R4]["d"]], [c, d], rtol=1e-12, atol=1e-13)
    assert_allclose([kinds[R3]["c"], abs(kinds[R3]["b"])], [turned, size], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("before", [0.0, 1e-12])
def test_a_locus_that_ends_at_a_point_has_it(before):
    """At a resonance, whose test function has a sign of rounding at the last point of the curve."""
    for kind, total in ((R1, 2), (R4, 0)):
        beta, alpha = at_resonance(total)
        locus = locus_from(
            *henon(-0.55, 0.9), "neimark-sacker", "beta", "alpha", 0.3, alpha + (before if total else -before)
        )
        check(locus, (kind, beta, alpha))
        assert locus.unresolved == ()


@pytest.mark.slow
def test_curves_that_meet(turning):
    """At 1:1 the curve of folds, which meets that of doublings; at 1:2 the doublings, and the Neimark-Sacker points of the
    doubled orbits, whose multipliers have the product 1 as well."""
    kinds = {each.kind: each for each in turning.special_points}
    alpha, beta = (lambda p: p["alpha"]), (lambda p: p["beta"])
    folds = hj.locus(kinds[R1], kind="fold", where=alpha, stop=(-1.5, 0.2))
    check(folds, (R1, *at_resonance(2)), ("fold-flip", -1, 0))
    meeting = next(each for each in folds.special_points if each.kind == "fold-flip")
    check_form(meeting, "ghm_foldflip_R-0.1_S0.0")
    # Now beta is the second parameter, and the values are those of alpha and beta.
    flips = hj.locus(meeting, kind="period-doubling", where=beta, stop=(-1.1, 1.0))
    check(flips, (R2, *at_resonance(-2)[::-1]), ("fold-flip", 0, -1))
    doubled = hj.locus(kinds[R2], kind="doubled-neimark-sacker", where=beta, stop=0.91)
    assert doubled.unfolding.problem.strides == 2 and len(doubled) > 3
    # To rounding.
    assert_allclose(doubled.multipliers[:, 0] * doubled.multipliers[:, 1], 1, rtol=1e-11)
    assert np.all(np.abs(doubled.multipliers[1:5, 0].imag) > 1e-3)
    with pytest.raises(ValueError, match=r"kind=None must be one of fold, period-doubling, doubled-neimark-sacker\."):
        hj.locus(meeting, where=beta, stop=1.0)
    with pytest.raises(ValueError, match=r"at a cusp point no curve is followed from there\."):
        hj.locus(dataclasses.replace(meeting, kind="cusp"), where=beta, stop=1.0)


def quarter_turn(u, p):
    """$z \\mapsto (i + \\beta) z + c z |z|^2 + d \\bar z^3$."""
    z = jax.lax.complex(*u)
    c, d, unfolded = (
        jax.lax.complex(p[f"{name}1"], p[f"{name}2"] + turn) for name, turn in (("c", 0), ("d", 0), ("b", 1))
    )
    w = unfolded * z + (c * z**2 + d * z.conj() ** 2) * z.conj()
    return jnp.stack([w.real, w.imag])


QUARTER = mapping(quarter_turn, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("c", "d", "pairs"),
    [(1.5 - 0.3j, 0.4 + 0.9j, True), (0.4 - 1.6j, -0.6 + 0.5j, False), (1.7 + 0.1j, 0.7 - 0.4j, True), (0.2 - 0.3j, 0.5, False)],
)  # fmt: skip
def test_curves_of_four_cycles(c, d, pairs):
    r"""$-i$ times the map, which commutes with it, has a singular derivative less the identity on $z e^{i\psi / 4}$ exactly where
    $\beta = -i |d| r^2 (A_0 + e^{i\psi})$ with $\mathrm{Re}(\bar A_0 e^{i\psi}) = -1$: on two rays if $|A_0| > 1$, else on none.
    Where the multipliers are a pair, by the derivatives of the map at the four states."""
    parts = {"c1": c.real, "c2": c.imag, "d1": complex(d).real, "d2": complex(d).imag}
    turning = locus_from(
        QUARTER, [0.0, 0.0], {**parts, "b1": -0.1, "b2": -0.05}, "neimark-sacker", "b2", "b1", 0.2, (-0.15, 0.15)
    )
    point = next(each for each in turning.special_points if each.kind == R4)
    assert_allclose(point.values, 0, atol=1e-13)
    ratio, second = -1j * c / abs(d), lambda p: p["b2"]
    words = "two curves of folds of orbits of four" if abs(ratio) > 1 else "a saddle orbit of four"
    assert point.normal_form.criticality.startswith(f"{words} times the period")
    kinds = ["neimark-sacker"] + ["quadrupled-fold", "second-quadrupled-fold"] * (abs(ratio) > 1)
    kinds += ["quadrupled-neimark-sacker"] * pairs
    with pytest.raises(ValueError, match=f"kind=fold must be one of {', '.join(kinds)}\\."):
        hj.locus(point, where=second, stop=0.2, kind="fold")
    rays = []
    for kind in kinds[1:]:
        curve = hj.locus(point, where=second, stop=(-0.05, 0.05), kind=kind)
        beta = curve.values @ [1, 1j]
        assert len(curve) > 5 and curve.unfolding.problem.strides == 4 and abs(beta[0]) < 1e-3
        if kind == kinds[-1] and pairs:
            for (b1, b2), x in zip(curve.values, curve.x, strict=True):
                p, product, z = {**parts, "b1": b1, "b2": b2}, 1.0, x[0] + 1j * x[1]
                for _ in range(4):
                    by_z, by_conjugate = 1j + b1 + 1j * b2 + 2 * c * abs(z) ** 2, c * z**2 + 3 * d * np.conj(z) ** 2
                    product *= abs(by_z) ** 2 - abs(by_conjugate) ** 2
                    z = complex(*quarter_turn(jnp.array([z.real, z.imag]), {key: jnp.array(p[key]) for key in p}))
                assert_allclose([product, z], [1, x[0] + 1j * x[1]], rtol=1e-12, atol=1e-13)
            continue
        rays.append(beta[-1] / abs(beta[-1]))
        assert_allclose(beta / np.abs(beta), rays[-1], atol=1e-9)
    half = np.arccos(-1 / max(1, abs(ratio)))
    expected = [-1j * (ratio + np.exp(1j * (np.angle(ratio) + way * half))) for way in (1, -1)][: len(rays)]
    assert_allclose(rays, [each / abs(each) for each in expected], atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("g", [0.5, -0.5])
def test_doubled_orbits_at_a_fold_flip(g):
    """$(x, y) \\mapsto (x + m - x^2 + g y^2, -(1 + n + x) y)$: in the coordinates (x, |y|) the doubled orbit is a fixed point
    with the determinant 1 where $n = g y^2$, $m = n^2 - n$, and the trace 2 + 2 n: a pair for n < 0."""
    fn = lambda u, p: jnp.stack([u[0] + p["m"] - u[0] ** 2 + p["g"] * u[1] ** 2, -(1 + p["n"] + u[0]) * u[1]])
    locus = locus_from(mapping(fn, 2), [0.3, 0.0], {"m": 0.09, "n": -0.2, "g": g}, "fold", "m", "n", 0.3, (-0.4, 0.3))
    check(locus, ("fold-flip", 0, 0))
    end = 0.4 * g
    doubled = hj.locus(locus.special_points[0], kind="doubled-neimark-sacker", where=lambda p: p["n"], stop=end)
    m, n = doubled.values.T
    assert_allclose(m, n**2 - n, atol=1e-13)
    assert doubled.unfolding.problem.strides == 2 and np.all(n * g > 0) and np.all(doubled.neutral == (g > 0))
    # Of the map twice.
    assert_allclose(np.sum(doubled.multipliers[-1, :2]), (2 + 2 * end) ** 2 - 2, rtol=1e-12)


@pytest.mark.slow
def test_cusp():
    """With a cubic term the curve of folds turns, where $\alpha$ has a double extremum over x."""
    locus = locus_from(*henon(0.55, -1.9, S=0.4), "fold", "alpha", "beta", 0.2, (-2.5, -1.0))
    x = 2.2 / 2.4
    beta = -1 - 2.2 * x + 1.2 * x**2
    cusp = "cusp", (1 + beta) * x + 1.1 * x**2 - 0.4 * x**3, beta
    # The trace 0 and the determinant -1.
    meetings = [(s, -1 - 0.1 * s) for s in (0, 2.1 / 1.2)]
    flips = [("fold-flip", (1 + b) * s + 1.1 * s**2 - 0.4 * s**3, b) for s, b in meetings]
    check(locus, cusp, *flips)
    check_form(next(each for each in locus.special_points if each.kind == "cusp"), "ghm_cusp_S0.4")


@pytest.mark.slow
def test_generalized_flip():
    r"""The orbits (x, y), (-x, y) with $y / 2 = x^2 + x^4$ and $\alpha = bx^2 + y$ turn at $\alpha = -(b + 2)^2 / 8$."""
    locus = locus_from(
        CUBIC, [0.0, 0.0], {"alpha": -0.1, "b": -1.5}, "period-doubling", "alpha", "b", 0.3, (-3.0, -1.0)
    )
    check(locus, ("generalized-flip", 0, -2))
    (point,) = locus.special_points
    check_form(point, "cubic2d_generalised_flip_l0.5")
    folds = hj.locus(point, kind="doubled-fold", where=lambda p: p["b"], stop=(-3.0, -1.0))
    alpha, b = folds.values.T
    assert np.all(b[1:] < -2) and b[-1] == -3
    assert_allclose(alpha, -((b + 2) ** 2) / 8, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_chenciner(unit):
    """The parameters at which the real part of the cubic coefficient is zero, of an independent computation; in whatever unit the
    state is measured, by whose square the coefficient changes."""
    record = REFERENCE["ghm_chenciner_S0.4_theta1.8_0"]
    alpha, beta, R, S = (record["params"][name] for name in ("alpha", "beta", "R", "S"))
    system, x, params = henon(record["x"][0], beta - 0.01, R, S)
    if unit != 1:
        system, x = mapping(lambda u, p: generalized_henon(u * unit, p) / unit, 2), [each / unit for each in x]
    locus = locus_from(system, x, params, "neimark-sacker", "beta", "alpha", 0.2, (0.5, 1.6))
    check(locus, ("chenciner", beta, alpha))
    if unit == 1:
        check_form(locus.special_points[0], "ghm_chenciner_S0.4_theta1.8_0")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fold", "neimark-sacker"])
def test_fold_with_a_pair(kind):
    """The multipliers 1 and $e^{\\pm i}$."""
    x = (2 * np.cos(1.0) + 1) / -1.5
    B, M2 = 1 - 0.5 * x, -2 * np.cos(1.0) - 1
    _, _, params = cube(x, B, M2)
    locus = locus_from(*cube(x - 0.05, B + 0.04, M2), kind, "M1", "B", 0.3, (B - 0.2, B + 0.2))
    check(locus, ("fold-neimark-sacker", params["M1"], B))
    check_form(locus.special_points[0], "map3d_foldNS_k0.5")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["period-doubling", "neimark-sacker"])
def test_flip_with_a_pair(kind):
    """The multipliers -1 and $e^{\\pm i}$."""
    x = (2 * np.cos(1.0) - 1) / -1.5
    B, M2 = -1 - 0.5 * x, 2 * np.cos(1.0) - 1
    _, _, params = cube(x, B, M2)
    locus = locus_from(*cube(x, B + 0.02, M2), kind, "M1", "B", 0.4, (B - 0.3, B + 0.06))
    check(locus, ("flip-neimark-sacker", params["M1"], B))
    check_form(locus.special_points[0], "map3d_flipNS_k0.5")


@pytest.mark.slow
def test_pairs_of_doubled_orbits_at_a_flip_with_a_pair():
    """$z \\mapsto e^{0.9 i} z\\,(1 + m + a w^2 - |z|^2)$, $w \\mapsto -(1 + n) w + w^3 + 0.4 w |z|^2$: the doubled orbit has
    $w^2 = n$, $z = 0$, and its pair the modulus $(1 + m + a n)^2$."""

    def spun(u, p):
        c, s, grown = np.cos(0.9), np.sin(0.9), 1 + p["m"] + p["a"] * u[2] ** 2 - u[0] ** 2 - u[1] ** 2
        w = -(1 + p["n"]) * u[2] + u[2] ** 3 + 0.4 * u[2] * (u[0] ** 2 + u[1] ** 2)
        return jnp.stack([grown * (c * u[0] - s * u[1]), grown * (s * u[0] + c * u[1]), w])

    system = mapping(spun, 3)
    for a in (0.7, -0.7):
        start = {"m": -0.1, "n": -0.2, "a": a}
        locus = locus_from(system, [0.0, 0.0, 0.0], start, "neimark-sacker", "m", "n", 0.3, (-0.4, 0.4))
        check(locus, ("flip-neimark-sacker", 0, 0))
        doubled = hj.locus(locus.special_points[0], kind="doubled-neimark-sacker", where=lambda p: p["n"], stop=0.3)
        m, n = doubled.values.T
        assert doubled.unfolding.problem.strides == 2 and np.all(n > 0) and not doubled.neutral.any()
        assert_allclose(m, -a * n, atol=1e-14)
        assert_allclose(np.sort_complex(doubled.multipliers[-1])[0], np.exp(-1.8j), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cusp", "generalized-flip"])
def test_two_points_within_a_step(kind):
    r"""Folds of $x + a + bx + g$, at $b = -g'(x)$, have cusps at $g''(x) = 0$; doublings of $-(1 + a)x + f(b)x^3 + x^5$ are
    generalized at $f(b) = 0$. Both functions are $f(x) = (x - 0.047)^2 - 2 \cdot 10^{-5}$."""
    f = lambda x: (x - 0.047) ** 2 - 2e-5
    if kind == "cusp":
        g, slope = lambda x: (x - 0.047) ** 4 / 12 - 2e-5 * x**2 / 2, lambda x: (x - 0.047) ** 3 / 3 - 2e-5 * x
        step = mapping(lambda u, p: u * (1 + p["b"]) + p["a"] + g(u), 1)
        params = {"a": -0.8 * slope(-0.9) - g(-0.8), "b": -slope(-0.9)}
        locus = locus_from(step, [-0.8], params, "fold", "a", "b", 0.3, (-1.0, params["b"] + 0.1))
        at = locus.x[:, 0]
    else:
        step = mapping(lambda u, p: -(1 + p["a"]) * u + f(p["b"]) * u**3 + u**5, 1)
        locus = locus_from(step, [0.0], {"a": -0.1, "b": -0.9}, "period-doubling", "a", "b", 0.3, 1.0)
        at = locus.values[:, 1]
    # No point of the curve lies between the zeros.
    assert np.all(f(at) > 0)
    zeros = 0.047 + np.sqrt(2e-5) * np.array([-1, 1])
    points = {each.kind for each in locus.special_points}, len(locus.special_points), locus.unresolved
    assert points == ({kind}, 2, ())
    found = [each.orbit.x[0] if kind == "cusp" else each.values[1] for each in locus.special_points]
    # From rounding of a function whose slope is 0.009.
    assert_allclose(np.sort(found), zeros, atol=1e-12)


@pytest.mark.slow
def test_branches_cross_on_a_curve_of_doublings():
    """(1 + n) x - x^3 and -(1 + m) y + y^3: at m = n = 0 there is no fold, and the coefficient 1 of doublings is not zero."""
    step = mapping(lambda u, p: u * jnp.stack([1 + p["n"] - u[0] ** 2, -1 - p["m"] + u[1] ** 2]), 2)
    locus = locus_from(step, [0.0, 0.0], {"m": -0.1, "n": -0.37}, "period-doubling", "m", "n", 0.3, 0.4)
    check(locus, ("fold-flip", 0, 0))
    with pytest.raises(ValueError, match="branches cross along another curve, and there is no fold"):
        hj.locus(locus.special_points[0], where=lambda p: p["n"], stop=0.6, kind="fold")
    # The whole diagram goes on without that curve.
    orbit = hj.periodic_orbit(
        locus.special_points[0].orbit.step, jnp.zeros(3), {"m": jnp.array(-0.1), "n": jnp.array(-0.37)}
    )
    branch = hj.continuation(orbit, where=lambda p: p["m"], stop=0.3)
    found = branch.diagram(where=lambda p: p["n"], stop=(-0.5, 0.4), grid=None)
    assert {each.kind for each in found.loci} >= {"period-doubling"} and "fold" not in {
        each.kind for each in found.loci
    }


@pytest.mark.slow
def test_a_test_function_that_is_zero_all_along():
    """With $M_2 = 1$ every fold is a doubling: no point of codimension two stands out."""
    locus = locus_from(*cube(-0.25, -0.15, 1.0), "fold", "M1", "B", 0.3, (-0.4, 0.1))
    check(locus)


@pytest.mark.slow
def test_diagram():
    """All curves and points that those of one fold and one doubling of the Hénon map lead to; where the fixed point is stable the
    attractor has the period 1."""
    _, x, params = henon(0.17, 0.6)
    params = {name: jnp.array(value) for name, value in params.items()}
    step = hj.ReturnMap(HENON, sequence=("run",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([*x, 0.0]), params)
    branch = hj.continuation(orbit, where=lambda p: p["alpha"], stop=(-0.7, 2.5), throw=False)
    found = branch.diagram(where=lambda p: p["beta"], stop=(0.2, 1.2), grid=(17, 5))
    own = [(each.kind, each.unfolding.problem.strides) for each in found.loci]
    assert own[:2] == [("fold", 1), ("period-doubling", 1)] and ("neimark-sacker", 2) in own
    # Of folds of orbits of four strides two curves leave the resonance 1:4.
    assert own.count(("fold", 4)) == 2 and len(set(own)) == len(own) - 1
    single = {each.kind: each.values for each in found.special_points if each.orbit.strides == 1}
    expected = {kind: at_resonance(total)[::-1] for kind, total in ((R1, 2), (R2, -2), (R3, -1), (R4, 0))}
    assert single.keys() == expected.keys()
    assert_allclose([single[kind] for kind in expected], list(expected.values()), atol=1e-13)  # rounding
    # A multiplier is -1 where 2 x = 1 + beta, and 1 where 2.2 x = -1 - beta.
    beta = float(found.attractors.beta[2])
    doubling, fold = ((1 + beta) * s + 1.1 * s**2 for s in ((1 + beta) / 2, -(1 + beta) / 2.2))
    inside = (found.attractors.alpha > fold + 0.05) & (found.attractors.alpha < doubling - 0.05)
    assert np.all(found.attractors.period[inside.values, 2] == 1) and inside.sum() > 5
    with pytest.raises(ValueError, match=r"Branch\.diagram: stop=1\.0 must be the bounds"):
        branch.diagram(where=lambda p: p["beta"], stop=1.0)


def guarded():
    """The map r x (1 - x) - c, whose state rests above a hill of the height h for half of the time: it grazes at x = h."""
    jump = lambda t, x, p: jnp.stack([p["r"] * x[0] * (1 - x[0]) - p["c"], 0 * x[1]])
    year = hj.Mode(lambda t, x, p: jnp.array([0.0, 1.0]), ("x", "clock"))
    hill = lambda t, x, p: x[0] - p["h"] + (x[1] - 0.5) ** 2
    ends = (hj.Transition(name, "low", lambda t, x, p: 1 - x[1], jump) for name in ("low", "high"))
    return hj.HybridSystem(
        {"low": year, "high": year}, (*ends, hj.Transition("low", "high", hill, lambda t, x, p: x + 0.1))
    )


GUARDED = guarded()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("period-doubling", "flip-grazing"), ("fold", "fold-grazing")])
def test_a_locus_meets_grazing(kind, name):
    """The doubling of x = 1 - 1/r is at r = 3, for c = 0; the fold at x = (r - 1) / (2 r). Seen from its end at the hill, and
    along the curve of grazing."""
    params = {"r": jnp.array(2.9), "c": jnp.array(0.0), "h": jnp.array(0.3 if kind == "period-doubling" else 0.05)}
    step = hj.ReturnMap(GUARDED, sequence=("low",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.array([0.65, 0.0]), params)
    first, expected = ("r", (3, 2 / 3)) if kind == "period-doubling" else ("c", (1.9**2 / 11.6, 1.9 / 5.8))
    branch = hj.continuation(
        orbit, where=lambda p: p[first], stop=(2.5, 3.2) if first == "r" else (-0.1, 0.5), throw=False
    )
    point = next(each for each in branch.special_points if each.kind == kind)
    locus = hj.locus(point, where=lambda p: p["h"], stop=1.0, throw=False)
    check(locus, (name, *expected))
    (meeting,) = locus.special_points
    assert meeting.touch is not None and abs(meeting.multiplier - (1 if kind == "fold" else -1)) < 1e-14
    along = hj.locus(meeting, where=lambda p: p["h"], stop=(expected[1] - 0.01, expected[1] + 0.01))
    assert along.kind == "grazing"
    if kind == "period-doubling":  # at the fold the curve of grazing turns in c
        check(along, (name, *expected))


@pytest.mark.parametrize(("error", "found"), [(1e-15, True), (5e-14, True), (1e-4, False)])
def test_a_zero_between_points_with_errors(monkeypatch, error, found):
    """In an interval of the length of errors there is no further point: a short one's better end is the zero, and in a longer
    one there is none."""
    near = lambda s: Near(np.array([s]), np.ones(1), np.zeros((0, 1)), np.zeros(()), None, np.array(True))
    place = lambda s: location.Place(s, near(s), {}, np.zeros(0))
    value = lambda place: (place.s - 0.3) * (1 + 50 * (place.s - 0.3) ** 2)
    middle = lambda _, a, b, share: place(a.s + share * (b.s - a.s)) if b.s - a.s > 2 * error else None
    monkeypatch.setattr(location, "between", middle)
    zero = location.zero_between(None, place(0.0), place(1.0), value)
    assert (zero is not None) == found and (zero is None or abs(zero.s - 0.3) <= error)


def turned():
    """The delayed logistic map of the rate a - h/2 in bent coordinates, above a hill as of `guarded`."""
    rate = lambda p: p["a"] - p["h"] / 2

    def jump(t, x, p):
        u, v = straight(x[:2])
        return jnp.append(skewed(jnp.stack([rate(p) * u * (1 - v), u])), 0 * x[2])

    year = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 1.0]), ("x", "y", "clock"))
    hill = lambda t, x, p: straight(x[:2])[0] - p["h"] + (x[2] - 0.5) ** 2
    ends = (hj.Transition(name, "low", lambda t, x, p: 1 - x[2], jump) for name in ("low", "high"))
    return hj.HybridSystem(
        {"low": year, "high": year}, (*ends, hj.Transition("low", "high", hill, lambda t, x, p: x + 0.1))
    )


@pytest.mark.slow
def test_a_locus_of_pairs_meets_grazing():
    """The pair of x = y = 1 - 1/rate is exp(+-i pi/3) at the rate 2, for every h, and the state grazes at x = h: both where h is
    1/2 and a is 9/4; grazing is the curve a = h/2 + 1/(1 - h)."""
    params = {"a": jnp.array(2.05), "h": jnp.array(0.3)}
    step = hj.ReturnMap(turned(), sequence=("low",), integrator=ROLLED)
    orbit = hj.periodic_orbit(step, jnp.append(skewed(jnp.full(2, 0.9 / 1.9)), 0), params)
    branch = hj.continuation(orbit, where=lambda p: p["a"], stop=(2.0, 2.3), throw=False)
    (point,) = (each for each in branch.special_points if each.kind == "neimark-sacker")
    locus = hj.locus(point, where=lambda p: p["h"], stop=1.0, throw=False)
    check(locus, ("neimark-sacker-grazing", 2.25, 0.5))
    (meeting,) = locus.special_points
    assert meeting.touch is not None and abs(meeting.multiplier - np.exp(1j * np.pi / 3)) < 1e-14
    along = hj.locus(meeting, where=lambda p: p["h"], stop=(0.48, 0.52))
    check(along, ("neimark-sacker-grazing", 2.25, 0.5))
    a, h = along.values.T
    assert along.kind == "grazing" and along.unresolved == () and np.max(np.abs(a - h / 2 - 1 / (1 - h))) < 1e-14


PAIRS = mapping(
    lambda u, p: jnp.stack(
        [
            u[1], 0.3 - p["b"] * u[0] - u[1] ** 2 + 0.1 * u[2] * u[0],
            u[3], 0.2 - p["c"] * u[2] - 0.5 * u[3] ** 2 + 0.2 * u[1] * u[3],
        ]
    ),
    4,
)  # fmt: skip


@pytest.mark.slow
def test_two_pairs():
    """Both pairs lie on the unit circle, to rounding, though the condition of the locus is singular there."""
    params = {"b": 0.8, "c": 0.8}
    locus = locus_from(PAIRS, [0.15, 0.15, 0.11, 0.11], params, "neimark-sacker", "b", "c", 0.4, (0.7, 1.3))
    point = next(each for each in locus.special_points if each.kind == "double-neimark-sacker")
    assert_allclose(np.abs(point.orbit.multipliers[:4]), 1, rtol=1e-13)
    first, second = point.normal_form.multipliers[[0, 2]]
    assert first.imag > 0 and second.imag > 0 and abs(first - second) > 1e-2
