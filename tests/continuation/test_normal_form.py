"""Normal forms against closed forms and 25-digit values of an independent computation: the maps, each as a clock with a reset."""

import dataclasses
import itertools
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from systems import CLOCK

import hyjax as hj
from hyjax._testing import normal_form, Problem, unfolding_of

REFERENCE = json.loads((pathlib.Path(__file__).parent.parent / "normal_forms_reference.json").read_text())


def map_system(fn, n):
    """The map `x -> fn(x, params)` as a system: a clock, and a reset."""
    year = hj.Mode(lambda t, x, p: jnp.zeros_like(x).at[-1].set(1), coordinates=(*(f"x{i}" for i in range(n)), "clock"))
    reset = lambda t, x, p: jnp.append(fn(x[:-1], p), 0 * x[-1])
    return hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[-1], reset),))


def form_at(fn, x, params, kind, strides=1, rank=1):
    """The normal form of a map at a fixed point, or of its iterate at the points `x` of a cycle, shape `(strides, n)`."""
    x = jnp.atleast_2d(jnp.asarray(x, float))
    system = map_system(fn, x.shape[1])
    params = {"free": jnp.array(0.0), **{name: jnp.asarray(value, float) for name, value in params.items()}}
    problem = Problem(system, ("year",), strides)
    unfolding = unfolding_of(
        problem,
        params,
        (sorted(params).index("free"),),
        CLOCK,
        jnp.array(1.0),
        jnp.ones(system.mode("year").dimension),
        jnp.zeros(1),
        jnp.ones(1),
    )
    # The unknowns are the states before the jumps, whose images are the points.
    v = unfolding.join(jnp.column_stack([jnp.roll(x, 1, axis=0), jnp.ones(len(x))]), jnp.zeros(1))
    residual, jacobian, _ = unfolding.rolled().evaluate(v)
    assert_allclose(residual, 0, atol=1e-14)
    multipliers = jnp.linalg.eigvals(unfolding.around(jacobian))
    return normal_form(kind, unfolding, v, jacobian, multipliers, jnp.zeros_like(v).at[-1].set(1), rank)


MAPS = {
    "logistic": lambda x, p: p["r"] * x * (1 - x),
    "ricker": lambda x, p: x * jnp.exp(2 * (1 - x)),
    "henon": lambda x, p: jnp.stack([1 - p["a"] * x[0] ** 2 + x[1], p["b"] * x[0]]),
    "delayed": lambda x, p: jnp.stack([2 * x[0] * (1 - x[1]), x[0]]),
    "ghm": lambda x, p: jnp.stack(
        [x[1], p["alpha"] - p["beta"] * x[0] - x[1] ** 2 + p["R"] * x[0] * x[1] + p["S"] * x[1] ** 3]
    ),
    "cubic2d": lambda x, p: jnp.stack([-x[0] - 2 * x[0] ** 3 + x[0] * x[1], x[1] / 2 + x[0] ** 2 + x[0] ** 4]),
    "map3d": lambda x, p: jnp.stack(
        [x[1], x[2], p["M1"] + p["B"] * x[0] + p["M2"] * x[1] - x[2] ** 2 + p["k"] * x[0] * x[2]]
    ),
}
SLOWER = ("chenciner", "generalised")


def number(value):
    return complex(*value) if isinstance(value, list) else value


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=pytest.mark.slow if name.split("_")[1] in SLOWER else pytest.mark.medium)
        for name in REFERENCE
    ],
)
def test_coefficients(case):
    """Every kind, against the 25 digits of `1_normal_forms`. The tolerance is rounding: the nested derivatives are exact, and the
    largest condition number of the linear systems is some ten."""
    record = REFERENCE[case]
    fn, points = MAPS[case.split("_")[0]], [np.array(record["x"])]
    if "period3" in case:
        points += [points[0] * record["params"]["r"] * (1 - points[0])]
        points += [points[1] * record["params"]["r"] * (1 - points[1])]
    found = form_at(fn, np.array(points), record["params"], record["kind"], strides=len(points))
    for name, expected in record["coefficients"].items():
        assert_allclose(found.coefficients[name], number(expected), rtol=1e-12, atol=1e-14, err_msg=name)


@pytest.mark.medium
def test_of_a_cycle_equals_that_of_the_iterated_map():
    """The doubling of the 2-cycle of the logistic map at 1 + sqrt 6: two strides against one of F(F(x))."""
    r = 1 + np.sqrt(6)
    first = (r + 1 + np.sqrt((r - 3) * (r + 1))) / (2 * r)
    fn = lambda x, p: r * x * (1 - x)
    cycle = form_at(fn, [[first], [fn(first, None)]], {}, "period-doubling", strides=2)
    twice = form_at(lambda x, p: fn(fn(x, p), p), [first], {}, "period-doubling")
    # c = F'''/6 + F''^2/4 of the iterate, in closed form.
    slope, curvature = lambda x: r * (1 - 2 * x), -2 * r
    second = curvature * slope(first) ** 2 + slope(fn(first, None)) * curvature
    third = 3 * curvature * curvature * slope(first)
    for found in (cycle, twice):
        assert_allclose(found.coefficients["c"], third / 6 + second**2 / 4, rtol=1e-12)


@pytest.mark.medium
def test_criticality_and_predictor():
    """The logistic map's doubled orbit, and the cubic map x + s x + b x^2 + c x^3, whose branches are known."""
    params = {"free": jnp.array(2.9)}
    orbit = hj.periodic_orbit(
        hj.ReturnMap(map_system(lambda x, p: p["free"] * x * (1 - x), 1), sequence=("year",)),
        jnp.array([0.65, 0.0]),
        params,
    )
    (point,) = hj.continuation(orbit, where=lambda p: p["free"], stop=3.2).special_points
    form = point.normal_form
    assert "supercritical: a stable orbit of twice the period for free > 3" in str(form)
    assert_allclose(form.rate, -1, rtol=1e-12)
    # What is rounding of another coefficient is shown as zero.
    beside = dataclasses.replace(form, coefficients={"one": 0.5, "other": -3e-33, "pair": 0.2 + 1e-20j, "small": 2e-14})
    shown = dict(re.findall(r"(one|other|pair|small) +(\S+)", str(beside)))
    assert shown == {"one": "0.5", "other": "0", "pair": "0.2", "small": "2e-14"}
    for amplitude in (1e-2, 2e-2):
        r, (one, other) = form.predictor(amplitude)
        exact = (r + 1 + np.array([1, -1]) * np.sqrt((r - 3) * (r + 1))) / (2 * r)
        # To second order: what is left is of third, with a coefficient of a few.
        assert_allclose([one[0], other[0]], exact, atol=10 * amplitude**3)


def growing(x, p):
    """A pair of multipliers $(1 + s) e^{\\pm i}$, with the cubic term -z |z|^2."""
    a, b, cubic = np.cos(1.0), np.sin(1.0), x @ x * x
    return (1 + p["free"]) * jnp.stack([a * x[0] - b * x[1], b * x[0] + a * x[1]]) - cubic


FURTHER = {
    # The coefficients of the map itself, whose linear part is diagonal or one block.
    "fold-flip": (
        lambda x, p: jnp.stack([x[0] + p["free"] - x[0] ** 2 + 0.3 * x[1] ** 2, -(1 + x[0]) * x[1] + x[1] ** 3]),
        {"fold (2, 0)": -1, "fold (0, 2)": 0.3, "flip (1, 1)": -1, "flip (0, 3)": 1},
    ),
    "resonance-1:1": (
        lambda x, p: jnp.stack([x[0] + x[1], x[1] + p["free"] + 0.7 * x[0] ** 2 - 0.4 * x[0] * x[1]]),
        {"a": 0.7, "b": -0.4},
    ),
    "resonance-1:2": (
        lambda x, p: jnp.stack([x[1] - x[0], p["free"] * x[0] - x[1] + 0.7 * x[0] ** 3 - 0.4 * x[0] ** 2 * x[1]]),
        {"C": 0.7, "D": -0.4},
    ),
    # Of length 1 in the plane |x|^2 = 2 |z|^2.
    "flip-neimark-sacker": (
        lambda x, p: jnp.append(growing(x[:2], p), -(1 + p["free"]) * x[2] + x[2] ** 3),
        {"NS (2, 1, 0)": -2 * np.exp(-1j), "flip (0, 0, 3)": 1},
    ),
    "fold-neimark-sacker": (
        lambda x, p: jnp.append(growing(x[:2], {"free": x[2]}), x[2] + p["free"] - x[2] ** 2),
        {"NS (2, 1, 0)": -2 * np.exp(-1j), "NS (1, 0, 1)": 1, "fold (0, 0, 2)": -1},
    ),
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("kind", FURTHER)
def test_further_multipliers_that_are_critical(kind):
    """At a point of a branch the form is that of all critical multipliers: the monomials of one alone would be infinite."""
    fn, expected = FURTHER[kind]
    own = ["neimark-sacker"] * (kind[-6:] == "sacker") + ["period-doubling"] * (kind[:3] == "res" or "flip" in kind)
    own = ["fold"] if kind == "resonance-1:1" else own + ["fold"] * (kind[:4] == "fold")
    for each in own:
        found = form_at(fn, np.zeros(2 + (kind[-6:] == "sacker")), {}, each)
        assert found.kind == kind and f"no {each} alone: the multipliers of a {kind} point" in str(found)
        for name, value in found.coefficients.items():
            assert_allclose(value, expected.get(name, 0), atol=1e-13, err_msg=name)


def entangled(mu, n, order, seed):
    """A polynomial normal form of the multipliers `mu`, those of a pair next to each other, with random coefficients, in
    coordinates bent by a random polynomial: the map and its numbers, and the coefficients by row and exponents."""
    rng, m = np.random.default_rng(seed), len(mu)
    conjugate = [int(np.argmin(np.abs(np.conj(mu[k]) - mu))) for k in range(m)] + [*range(m, n)]
    factors = [each for d in range(2, order + 1) for each in itertools.combinations_with_replacement(range(n), d)]
    powers = [tuple(each.count(i) for i in range(n)) for each in factors]
    swapped = [powers.index(tuple(a[i] for i in conjugate)) for a in powers]
    normal, bend = np.zeros((2, n, len(powers)), complex)
    for k, (j, a) in itertools.product(range(n), enumerate(powers)):
        c = (rng.standard_normal() + 1j * rng.standard_normal()) * 0.3 ** (sum(a) - 1)
        resonant = k < m and not any(a[m:]) and abs(np.prod(mu ** np.array(a[:m])) - mu[k]) < 1e-9
        (normal if resonant else bend)[k, j] = c
    normal, bend = ((each + np.conj(each[conjugate][:, swapped])) / 2 for each in (normal, bend))
    q = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n)) * (np.array(conjugate) != np.arange(n))
    q = np.stack([q[:, k] if conjugate[k] >= k else np.conj(q[:, conjugate[k]]) for k in range(n)], axis=1)
    largest = q[np.argmax(np.abs(q), axis=0), np.arange(n)]
    q = q * np.conj(largest / np.abs(largest)) / np.linalg.norm(q, axis=0)
    numbers = {"normal": normal, "bend": bend, "q": q, "inverse": np.linalg.inv(q)}
    numbers["mu"] = np.append(mu, rng.uniform(-0.7, 0.7, n - m))
    of = {(k, a[:m]): normal[k, j] for k in range(m) for j, a in enumerate(powers) if normal[k, j]}
    # Each monomial is one of a degree less times a coordinate.
    levels = [[each for each in factors if len(each) == d] for d in range(1, order + 1)]
    levels[0] = [(i,) for i in range(n)]
    steps = [
        [np.array(each).T for each in zip(*[(low.index(f[:-1]), f[-1]) for f in high], strict=True)]
        for low, high in itertools.pairwise(levels)
    ]

    def monomials(u):
        found = [u]
        for lower, last in steps:
            found.append(found[-1][lower] * u[last])
        return jnp.concatenate(found[1:])

    def fn(x, p):
        normal, bend, q, inverse, mu = (jax.lax.complex(*p[name]) for name in ("normal", "bend", "q", "inverse", "mu"))
        y = inverse @ jax.lax.complex(x, 0 * x)
        # Degree by degree, as of an inverse of a power series.
        u = jax.lax.fori_loop(0, order, lambda _, u: y - bend @ monomials(u), y)
        u = mu * u + normal @ monomials(u)
        return (q @ (u + bend @ monomials(u))).real

    return fn, {name: np.stack([value.real, value.imag]) for name, value in numbers.items()}, of


TURNS = np.exp(1j * np.array([0.9, -0.9, 2.1, -2.1]))
# Multipliers, the number of coordinates, the degree, and rows whose resonant monomials are all of interest, or names.
ENTANGLED = {
    "generalized-flip": ([-1], 1, 5, {"e": (0, (5,))}),
    "chenciner": (TURNS[:2], 2, 5, {"d1": (0, (2, 1)), "d2": (0, (3, 2))}),
    "resonance-1:3": (np.exp([2j * np.pi / 3, -2j * np.pi / 3]), 3, 3, {"b": (0, (0, 2)), "c": (0, (2, 1))}),
    "resonance-1:4": ([1j, -1j], 2, 3, {"c": (0, (2, 1)), "d": (0, (0, 3))}),
    "fold-flip": ([1, -1], 3, 3, ("fold", "flip")),
    "fold-neimark-sacker": ([*TURNS[:2], 1], 3, 3, ("NS", "", "fold")),
    "flip-neimark-sacker": ([*TURNS[:2], -1], 3, 3, ("NS", "", "flip")),
    "double-neimark-sacker": (TURNS, 4, 3, ("first", "", "second", "")),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if case[2] == 5 else pytest.mark.medium)
        for kind, case in ENTANGLED.items()
    ],
)
def test_points_of_codimension_two_in_bent_coordinates(kind):
    """By construction, in coordinates in which the center manifold bends and every monomial of the map is there."""
    mu, n, order, names = ENTANGLED[kind]
    mu = np.array(mu, complex)
    fn, numbers, of = entangled(mu, n, order, 0)
    found = form_at(fn, np.zeros(n), numbers, kind)
    if isinstance(names, tuple):
        names = {f"{names[k]} {alpha}": (k, alpha) for k, alpha in of if names[k]}
        assert names.keys() == found.coefficients.keys()
    for name, (k, alpha) in names.items():
        factor = np.conj(mu[k]) if mu[k].imag and kind not in ("resonance-1:3", "resonance-1:4") else 1
        # Rounding, of a condition number of some ten.
        assert_allclose(found.coefficients[name], factor * of[k, alpha], rtol=0, atol=1e-13, err_msg=name)


@pytest.mark.medium
@pytest.mark.parametrize("own", ["branch-point", "neimark-sacker"])
@pytest.mark.parametrize("b", [0.0, 0.4])
def test_a_pair_crosses_at_a_branch_point(own, b):
    """A pitchfork, or two branches that cross, and a pair of multipliers at one value."""

    def fn(x, p):
        z, w = x[:2], x[2]
        return jnp.append(growing(z, p) - 0.2 * w**2 * z, w + p["free"] * w + b * w**2 - w**3 + 0.7 * w * (z @ z))

    found = form_at(fn, np.zeros(3), {}, own)
    assert found.kind == "fold-neimark-sacker" and f"no {own} alone" in found.criticality
    # Of length 1 in the plane |x|^2 = 2 |z|^2; the rows of the pair are divided by its multiplier.
    expected = {"NS (2, 1, 0)": -2 * np.exp(-1j), "NS (1, 0, 2)": -0.2 * np.exp(-1j), "fold (0, 0, 2)": b}
    expected |= {"fold (0, 0, 3)": -1, "fold (1, 1, 1)": 1.4}
    for name, value in found.coefficients.items():
        assert_allclose(value, expected.get(name, 0), atol=1e-13, err_msg=name)


@pytest.mark.medium
def test_several_multipliers_of_one_kind():
    """Two that are -1, each with its own eigenvector: all cubic terms are resonant. Three are too many for a fold."""
    fn = lambda x, p: -(1 + p["free"]) * x + jnp.stack([x[0] ** 3 + 2 * x[0] * x[1] ** 2, x[1] ** 3])
    found = form_at(fn, [0.0, 0.0], {}, "period-doubling")
    q = found.eigenvectors.real
    # The same cubic map in the coordinates along both eigenvectors, any two that are orthogonal.
    assert_allclose(q @ q.T, np.eye(2), atol=1e-12)
    w = np.array([0.3, -0.2])
    cubic = [sum(found.coefficients.get(f"w{k + 1} {alpha}", 0) * w[0] ** alpha[0] * w[1] ** alpha[1] for alpha in
             ((3, 0), (2, 1), (1, 2), (0, 3))) for k in range(2)]  # fmt: skip
    x = w @ q[:, :2]
    assert_allclose(np.array(cubic) @ q[:, :2], [x[0] ** 3 + 2 * x[0] * x[1] ** 2, x[1] ** 3], atol=1e-13)
    assert "several multipliers are -1 at once" in str(found)
    with pytest.raises(ValueError, match="the multipliers 1, 1, -1 are on the unit circle"):
        form_at(lambda x, p: x * jnp.array([1.0, 1.0, -1.0]) + p["free"] - x**2, [0.0] * 3, {}, "fold")


@pytest.mark.medium
@pytest.mark.parametrize(("b", "c", "words"), [(1, 0, "transcritical"), (0, -1, "pitchfork"), (0, 2, "pitchfork")])
def test_branch_points(b, c, words):
    fn = lambda x, p: (1 + p["free"]) * x + b * x**2 + c * x**3 + 0 * p["alpha"]
    found = form_at(fn, [0.0], {"alpha": 0.0}, "branch-point")
    assert_allclose([found.coefficients["b"], found.coefficients["c"], found.rate], [b, c, 1], atol=1e-14)
    assert words in found.criticality
    free, ((x, _),) = found.predictor(1e-2)
    # x = -free / b, or free = -c x^2: both exact.
    assert_allclose(free + b * x + c * x**2, 0, atol=1e-15)


def bent(y):
    """A nonlinear change of coordinates, and the state to which it leads."""
    return jnp.stack([y[0] + 0.4 * y[1] ** 2, y[1]])


def straight(x):
    return jnp.stack([x[0] - 0.4 * x[1] ** 2, x[1]])


def curved(y):
    return y + 0.3 * y**2


def by(turn, x):
    return jnp.stack([jnp.cos(turn) * x[0] - jnp.sin(turn) * x[1], jnp.sin(turn) * x[0] + jnp.cos(turn) * x[1]])


SAFE = "supercritical: a stable "


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "fn", "words"),
    [
        ("period-doubling", lambda x, p: -(1 + p["free"]) * x + x**5, "degenerate: c is zero"),
        # A linear map in the coordinate x + 0.3 x^2, and in two.
        ("period-doubling", lambda x, p: curved((1 + p["free"]) * (1 - jnp.sqrt(1 + 1.2 * x)) / 0.6), "degenerate: c"),
        ("period-doubling", lambda x, p: bent(straight(x) * jnp.append(0.5, -1 - p["free"])), "degenerate: c is"),
        # Area is preserved at zero: the circles are all there at once.
        (
            "neimark-sacker", lambda x, p: (1 + p["free"]) * by(0.9, jnp.stack([x[0], x[1] + x[0] ** 2])),
            "degenerate: Re d is zero up to rounding, and terms of higher degree decide",
        ),
        ("branch-point", lambda x, p: (1 + p["free"]) * x - x**5, "degenerate: c is zero"),
        # Small, and far above rounding.
        ("period-doubling", lambda x, p: -(1 + p["free"]) * x + 1e-7 * x**3, SAFE + "orbit of twice the period for free > 0,"),
        # In units of the second coordinate that make it large.
        (
            "period-doubling", lambda x, p: jnp.stack([-(1 + p["free"]) * x[0] + x[0] ** 3, x[1] / 2 + 1e6 * x[0] ** 2]),
            SAFE + "orbit of twice the period for free > 0, where",
        ),
        (
            "branch-point", lambda x, p: jnp.stack(
                [(1 + p["free"] - 1e-6 * x[1]) * x[0], x[1] / 2 + 1e6 * x[0] ** 2]
            ), SAFE + "pair of orbits (pitchfork) for free > 0, where",
        ),
        # The multiplier touches the circle.
        ("period-doubling", lambda x, p: -(1 - p["free"] ** 2) * x + x**3, SAFE + "orbit of twice the period where"),
        ("neimark-sacker", lambda x, p: (1 - x @ x) * by(0.9, by(p["free"], x)), SAFE + "invariant circle where"),
    ],
)  # fmt: skip
def test_a_coefficient_that_is_zero_decides_nothing(kind, fn, words):
    """Of rounding c has either sign; and a multiplier that does not leave the circle at first order has no side."""
    # These maps are of two coordinates.
    dimension = 1 + (kind == "neimark-sacker" or words.endswith((": c is", "> 0, where")))
    assert form_at(fn, np.zeros(dimension), {}, kind).criticality.startswith(words)


@pytest.mark.slow
@pytest.mark.parametrize(("guess", "rate", "across"), [(1.0, -3, -1), (-0.5, 3, 2)])
def test_rate_on_the_branch_itself(guess, rate, across):
    """x - (x - 2 p)(x + p) has the multipliers 1 - 3 p on x = 2 p and 1 + 3 p on x = -p."""
    system = map_system(lambda x, p: x - (x - 2 * p["p"]) * (x + p["p"]), 1)
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.array([guess, 0.0]), {"p": jnp.array(0.5)})
    (point,) = hj.continuation(orbit, where=lambda p: p["p"], stop=-0.4).special_points
    form = point.normal_form
    # The point is interpolated, to ten digits.
    assert_allclose([form.rate, form.coefficients["b"]], [rate, -1], rtol=1e-8)
    value, ((x, _),) = form.predictor(1e-2)
    assert_allclose(x, across * value, atol=1e-9)


@pytest.mark.medium
def test_another_multiplier_is_nearly_critical():
    """The orbit moves by 1000 times the parameter, and bends by 1e9 times its square: y = -x^2/e on the center manifold, and
    y = -free/e on the branch, for the other multiplier 1 + e."""
    fn = lambda x, p: jnp.stack(
        [-x[0] + x[0] * x[1] + 2 * x[0] ** 3, (1 + p["e"]) * x[1] + x[0] ** 2 + x[1] ** 2 + p["free"]]
    )
    form = form_at(fn, [0.0, 0.0], {"e": 1e-3}, "period-doubling")
    assert_allclose([form.coefficients["c"], form.rate], [2 - 1e3, -1e3], rtol=1e-11)
    assert form.criticality.startswith("subcritical: an unstable orbit of twice the period for free < 0")


@pytest.mark.medium
def test_strong_resonances_are_named_once():
    """A pair at nearly half a turn is near 1:2 alone, not also near 1:4; a growing direction makes no stability of branches."""
    turn = 2 * np.pi * 0.4996
    a, b = np.cos(turn), np.sin(turn)
    fn = lambda x, p: (1 + p["free"] - x @ x) * jnp.stack([a * x[0] - b * x[1], b * x[0] + a * x[1]])
    words = form_at(fn, [0.0, 0.0], {}, "neimark-sacker").criticality
    assert words.endswith("near the strong resonance 1:2") and words.count("resonance") == 1
    saddle = lambda x, p: jnp.stack([(1 + p["free"]) * x[0] - x[0] ** 2, 2 * x[1]])
    assert form_at(saddle, [0.0, 0.0], {}, "branch-point").criticality.endswith("in the critical direction")


@pytest.mark.medium
def test_a_kink_in_the_flow_is_a_warning():
    """Of an oscillator with a soft stop, which doubles, c was 2.66 for 0.727. Here the flow has no effect at the clock's end."""
    field = lambda t, x, p: jnp.stack([jnp.maximum(x[1] - 0.5, 0) - 0.125, 1 + 0 * x[1]])
    year = hj.Mode(field, ("x", "clock"))
    reset = lambda t, x, p: jnp.stack([p * x[0] * (1 - x[0]), 0 * x[1]])
    system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[1], reset),))
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.array([0.65, 0.0]), jnp.array(2.9))
    (point,) = hj.continuation(orbit, where=lambda p: p, stop=3.2).special_points
    # Its multiplier has six digits.
    assert_allclose(point.value, 3, rtol=1e-6)
    with pytest.warns(
        UserWarning, match="first derivative of the vector_field of mode 'year' jumps at test_normal_form.py:"
    ):
        assert point.normal_form.kind == point.kind


@pytest.mark.slow
def test_walker():
    """The doubling of the simplest walker, c in four coordinates; the reference has 21 digits, the location of the point 13."""
    from hyjax.models import simplest_walker as walker

    params = walker.Params()
    orbit = hj.periodic_orbit(walker.step, walker.guess(params), params)
    (point,) = hj.continuation(orbit, where=lambda p: p.slope, stop=0.016).special_points
    assert_allclose(point.value, 0.0150884379411194635622, rtol=1e-12)
    form = point.normal_form
    assert_allclose(form.coefficients["c"], 1053.00950162969697631372, rtol=1e-9)
    assert_allclose(form.eigenvectors[0, 0].real, 0.4200246362621171256178, rtol=1e-12)
    assert "supercritical: a stable orbit of twice the period for slope > 0.0150884" in form.criticality


@pytest.mark.slow
def test_vibrating_table():
    """A ball on a table that vibrates, seen once a period: the doubling and c in closed form to 25 digits."""
    e, rate, gravity = 0.8, 10.0, 9.81
    fall = lambda t, x, p: jnp.stack([x[1], -gravity + p["amplitude"] * rate**2 * jnp.sin(rate * x[2]), 1 + 0 * x[2]])
    modes = {name: hj.Mode(fall, coordinates=("height", "height_rate", "phase")) for name in ("down", "up")}
    strike = hj.Transition("down", "up", lambda t, x, p: x[0], lambda t, x, p: jnp.stack([0 * x[0], -e * x[1], x[2]]))
    again = lambda t, x, p: jnp.stack([x[0], x[1], 0 * x[2]])
    period = hj.Transition("up", "down", lambda t, x, p: 2 * np.pi / rate - x[2], again)
    step = hj.ReturnMap(hj.HybridSystem(modes, (strike, period)), sequence=("down", "up"))
    flip = 0.105049057535119673664819844707
    guess = jnp.array([0.4058151246171629, -2.917175770334012, 0.0])
    orbit = hj.periodic_orbit(step, guess, {"amplitude": jnp.array(0.1045)})
    (point,) = hj.continuation(orbit, where=lambda p: p["amplitude"], stop=0.1055).special_points
    assert_allclose(point.value, flip, rtol=1e-12)
    found = point.normal_form
    # The nested derivatives of a flow that is integrated to 1e-12.
    assert_allclose(found.coefficients["c"], 16.5512849266934023308, rtol=1e-12)
    assert_allclose(found.eigenvectors[0].real, [0.949239132006192448, 0.314555353265733418, 0], atol=1e-12)
    assert "supercritical" in found.criticality


@pytest.mark.medium
@pytest.mark.parametrize("turn", [2 * np.pi / 3, np.pi / 2, 1.0])
def test_a_pair_at_a_strong_resonance(turn):
    """z -> e^i turn (z - z |z|^2) + zb^2 / 5 + zb^3 / 3, of length 1 in the plane: d = -2 where the quadratic term is removed or
    stays as it is. At 1:3 and 1:4 a term in zb cannot be removed, and is no part of d."""

    def turned(x, p):
        z = (1 + p["free"] - x @ x) * x
        bar2, bar3 = (
            [x[0] ** 2 - x[1] ** 2, -2 * x[0] * x[1]],
            [x[0] ** 3 - 3 * x[0] * x[1] ** 2, x[1] ** 3 - 3 * x[0] ** 2 * x[1]],
        )
        spun = jnp.stack([np.cos(turn) * z[0] - np.sin(turn) * z[1], np.sin(turn) * z[0] + np.cos(turn) * z[1]])
        return spun + jnp.stack(bar2) * p["square"] + jnp.stack(bar3) / 3

    square = 0.2 if turn == 2 * np.pi / 3 else 0.0
    form = form_at(turned, [0.0, 0.0], {"square": square}, "neimark-sacker")
    # Rounding, and at 1:3 that of the multiplier, which decides what is removed.
    assert_allclose(form.coefficients["d"], -2, rtol=0, atol=1e-12)
