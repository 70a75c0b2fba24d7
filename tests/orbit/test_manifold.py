"""Manifolds of saddles: Hénon's map by power series in many digits, a map with a closed form, the walker by bisection."""

import dataclasses
import functools as ft

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from systems import ROLLED, skewed, straight
from test_continuation import mapping

import hyjax as hj
from hyjax.models import simplest_walker as walker


def with_shift(x, p):
    """Hénon's map, whose a is greater by (d - 0.2) / 100 where there is a parameter d."""
    a = p["a"] + 0.01 * (p["d"] - 0.2) if "d" in p else p["a"]
    return jnp.stack([1 - a * x[0] ** 2 + x[1], p["b"] * x[0]])


HENON = mapping(with_shift, 2)
SHIFTED_BY = {"d": jnp.array(0.2), "idle": jnp.array(0.0)}
# Digits of a calculation in mpmath with 160 terms of the series; a = 1.4, b = 0.3.
UNSTABLE = {
    0.1: (0.72749299214909585, 0.17379790187767494), -1: (-0.46658452476494581, 0.31780851517131213),
    2: (0.95998591524636134, -0.15247768158804575), 5: (-0.84441036570778859, -0.37794866160364237),
}  # fmt: skip
STABLE = {
    0.1: (0.67776018903350104, 0.28165644892890854), -0.5: (0.40774342680894959, -0.17168081789570502),
    1: (1.12130371580395601, 1.46422080396597641), -1: (0.19790473565958555, -0.38505435563877877),
}  # fmt: skip
# s, t, x, y, sine of the angle.
HOMOCLINIC = (
    (-1.39832434174119729, -4.23616379735602763, -0.85037543261007145, 0.35124627633104938, -0.865974361399),
    (2.69001087250932551, -0.66061416486991051, 0.33885254938957673, -0.25511262978302143, -0.652183987759),
    (3.43466424258667853, -2.62349910914288454, -0.39262122514091811, -0.33683759601580844, 0.73328965169),
    (-5.17487844430134029, -0.10302034947259411, 0.58413789989803680, 0.10165576481687302, -0.987651915552),
)  # fmt: skip


SHIFTED = mapping(lambda x, p: x + p["a"], 2)


def fixed_point(system, guess, params):
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED)
    return hj.periodic_orbit(step, jnp.array([*guess, 0.0]), params)


@ft.cache
def henon():
    return fixed_point(HENON, (0.63, 0.19), {"a": jnp.array(1.4), "b": jnp.array(0.3)})


@ft.cache
def henon_manifolds():
    return henon().manifold("unstable", length=5.0, spacing=0.3), henon().manifold("stable", length=6.0, spacing=0.5)


@pytest.mark.medium
def test_manifolds_of_henons_map():
    """To the digits asked for of any such map; the error is that of 50 roundings."""
    for manifold, points in zip(henon_manifolds(), (UNSTABLE, STABLE), strict=True):
        assert_allclose(manifold(np.array([*points]))[:, :2], [*points.values()], atol=1e-12)
        assert_allclose(manifold(0.0), henon().x, atol=1e-15)
        # Points, arclengths and codes: as asked for.
        gaps = np.linalg.norm(np.diff(manifold.x, axis=0), axis=1)
        assert np.all(gaps <= (0.3 if abs(manifold.multiplier) > 1 else 0.5)) and np.all(np.diff(manifold.s) > 0)
        assert_allclose(np.diff(manifold.arclength), gaps, rtol=1e-9)
        assert str(manifold.ends) == "2 successful" and manifold.residual < 1e-13
        assert_allclose(manifold(manifold.s[::40]), manifold.x[::40], atol=1e-11)


@pytest.mark.medium
def test_manifolds_are_saved(tmp_path):
    manifold = henon_manifolds()[0]
    hj.save(tmp_path / "manifold.npz", manifold)
    again = hj.load(tmp_path / "manifold.npz", system=HENON)
    assert_array_equal(again(2.0), manifold(2.0))
    assert_array_equal(again.arclength, manifold.arclength)


def test_homoclinic_points_of_henons_map():
    unstable, stable = henon_manifolds()
    found = unstable.crossings(stable)
    assert len(found.s) > 4
    for s, t, x, y, sine in HOMOCLINIC:
        k = np.argmin(np.abs(found.s - s) + np.abs(found.t - t))
        assert_allclose([found.s[k], found.t[k], *found.x[k, :2]], [s, t, x, y], atol=1e-12)
        # 12 digits are given.
        assert_allclose(found.sine[k], sine, atol=3e-12)
    # The saddle itself is none.
    assert np.all(np.linalg.norm(found.x - np.asarray(henon().x), axis=1) > 1e-6)


# (x, y) -> ((x - f(y))^2 + f(y / 2), y / 2) with f = -a y^2 + c y^3: the stable manifold of (1, 0) is x = 1 + f(y).
bend = lambda y, p: -p["a"] * y**2 + p["c"] * y**3
BENT = mapping(lambda x, p: jnp.stack([(x[0] - bend(x[1], p)) ** 2 + bend(x[1] / 2, p), x[1] / 2]), 2)


@pytest.mark.medium
def test_homoclinic_points_of_a_piecewise_linear_map():
    """Lozi's map 1 - a |x| + y, b x, whose manifolds are broken lines: the unstable one breaks at Z on y = 0 and at the images of
    Z, and the first homoclinic point lies where the line from Z to its second image meets the stable one. As for all crossings,
    forward iterates come to the saddle."""
    a, b = 1.7, 0.5
    lozi = lambda x: np.array([1 - a * abs(x[0]) + x[1], b * x[0]])
    system = mapping(lambda x, p: jnp.stack([1 - a * jnp.abs(x[0]) + x[1], b * x[0]]), 2)
    saddle = fixed_point(system, (0.4, 0.2), {})
    x = np.asarray(saddle.x)[0]
    out, into = (-a + sign * np.sqrt(a**2 + 4 * b) for sign in (-1, 1))
    corner = np.array([x * (1 - out / 2), 0])
    along = lozi(lozi(corner)) - corner
    part = np.linalg.solve(np.stack([along, [-into / 2, -b]], axis=1), [x - corner[0], b * x])[0]
    unstable, stable = (saddle.manifold(which, length=6.0, spacing=0.05) for which in ("unstable", "stable"))
    met = unstable.crossings(stable).x[:, :2]
    assert len(met) > 10 and np.min(np.max(np.abs(met - (corner + part * along)), axis=1)) < 1e-14
    for point in met:
        near = []
        for _ in range(18):
            point = lozi(point)
            near.append(np.max(np.abs(point - [x, b * x])))
        # Before what is left of rounding grows along the unstable direction.
        assert min(near) < 1e-8


@pytest.mark.medium
def test_a_manifold_in_closed_form():
    params = {"a": jnp.array(1.0), "c": jnp.array(0.2)}
    saddle = fixed_point(BENT, (1.01, 0.01), params)
    stable = saddle.manifold("stable", length=5.0, spacing=0.3)
    x, y, _ = stable.x.T
    # Parabolas are polynomials: 100 roundings of numbers up to 3.
    assert_allclose(x, 1 + bend(y, params), atol=1e-13)
    assert_allclose(stable(np.array([-0.7, 1.3]))[:, 1], [-0.7, 1.3], atol=1e-14)
    strong = saddle.manifold(0, length=0.5)
    assert_allclose(strong.x[:, 1:], 0, atol=1e-15)
    assert_allclose([strong.multiplier, stable.multiplier], [2, 0.5], rtol=1e-14)
    # Towards (0, 0) the unstable manifold ends: its last point has half the way left at most in each pass.
    assert str(strong.ends) == "2 successful"


SKEWED = mapping(lambda x, p: skewed(jnp.stack([p["mu"], p["nu"]]) * straight(x)), 2)


@pytest.mark.medium
def test_manifolds_beside_strong_and_weak_multipliers():
    """Of a linear map in other coordinates. The residual is that after the jump, which expands by 1000 too; and where 1e5 passes
    do not lead to the polynomial there is no point."""
    saddle = fixed_point(SKEWED, (0.3, 0.3), {"mu": jnp.array(1e3), "nu": jnp.array(0.5)})
    unstable = saddle.manifold("unstable", length=0.5, spacing=0.1)
    s = unstable.radius * np.linspace(-1, 1, 41)
    images = jax.vmap(lambda x: skewed(jnp.array([1e3, 0.5]) * straight(x)))(unstable(s / unstable.multiplier)[:, :2])
    assert np.max(np.abs(images - unstable(s)[:, :2])) < 2 * unstable.residual < 1e-9
    weak = fixed_point(SKEWED, (0.3, 0.3), {"mu": jnp.array(1 + 1e-6), "nu": jnp.array(0.5)})
    assert np.all(np.isnan(weak.manifold("unstable", length=1e-3)(9.0)))


@pytest.mark.medium
def test_a_multiplier_on_the_circle_has_no_manifold():
    """A pair whose modulus rounds to less than 1 is not stable, and to more not unstable."""
    fn = lambda x, p: jnp.stack(
        [jnp.cos(p) * x[0] - jnp.sin(p) * x[1], jnp.sin(p) * x[0] + jnp.cos(p) * x[1], x[2] / 2]
    )
    system, inside = mapping(fn, 3), []
    for angle in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1):
        orbit = fixed_point(system, (0.0, 0.0, 0.0), jnp.array(angle))
        values = np.linalg.eigvals(np.asarray(orbit.return_jacobian))
        inside += [orbit] * bool(np.any((np.abs(values) > 0.9) & (np.abs(values) < 1)))
    found = inside[0].manifold("stable", length=1.0, spacing=0.5)
    assert_allclose(found.multiplier, 0.5, rtol=1e-14)


@pytest.mark.medium
def test_a_stable_multiplier_next_to_the_circle_has_a_manifold():
    """Off the circle is what makes an orbit stable: by 1e-9 it is, by less than 4e-10 not."""
    system = mapping(lambda x, p: jnp.stack([p * x[0], x[1] / 2 + 0.1 * x[0] ** 2, 0 * x[2]]), 3)
    for off, dimensions in ((1e-9, 2), (3e-10, 1), (-1e-9, 1)):
        orbit = fixed_point(system, (0.0, 0.0, 0.0), jnp.array(-1 + off))
        stable = orbit.manifold("stable", length=0.5, spacing=0.1)
        assert bool(orbit.stable) == (dimensions == 2) and np.ndim(stable.multiplier) == 2 * (dimensions == 2)


def test_bad_input():
    orbit = henon()
    for given, text in (
        (("sideways",), "which='sideways' must be"), ((7,), "which=7 must be the number"), ((2,), "must be real, simple"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            orbit.manifold(*given, length=1.0)
    with pytest.raises(ValueError, match=r"length=.* must be positive"):
        orbit.manifold("stable", length=-1.0)
    with pytest.raises(ValueError, match="float32, which must be float64"):
        dataclasses.replace(orbit, x=orbit.x.astype(jnp.float32)).manifold("stable", length=1.0)
    with pytest.raises(ValueError, match="no fixed point of the map"):
        orbit.manifold("stable", length=1.0, step=hj.ReturnMap(SHIFTED, sequence=("run",), integrator=ROLLED))
    with pytest.raises(ValueError, match="s must be from"):
        henon_manifolds()[1](1e3)


@pytest.mark.medium
def test_the_stable_manifold_of_the_walkers_short_gait():
    """The reset's image has two of four dimensions. Points by a condition on the 14th stride in quadruple precision; another
    route, bisection, agrees to 1e-19. The integrator's tolerance is 1e-10, and its error below that."""
    params = walker.Params()
    guess = walker.after_strike(params, jnp.array(0.1939), jnp.array(-0.2039))
    orbit = hj.periodic_orbit(walker.step, guess, params)
    stable = orbit.manifold("stable", length=0.05, spacing=2e-3)
    for point in (0.20393736981018180, -0.21538243401270795), (0.18393736981018180, -0.19220183910084656):
        s = np.interp(point[0], stable.x[:, 0], stable.s)
        for _ in range(6):
            slope = (stable(s + 1e-5) - stable(s - 1e-5))[0] / 2e-5
            s = s - (stable(s)[0] - point[0]) / slope
        assert_allclose(stable(s)[:2], point, atol=1e-10)
        assert_allclose(stable(s), walker.after_strike(params, *stable(s)[:2]), atol=1e-12)


@pytest.mark.medium
def test_a_manifold_through_changes_of_sequence():
    """Lozi's map, (x, y) -> (1 - a |x| + y, b x), by a transition for each sign of x: a broken line."""
    a, b = 1.7, 0.5
    jump = lambda sign: lambda t, x, p: jnp.stack([1 - sign * a * x[0] + x[1], b * x[0], 0 * x[2]])
    ways = [
        hj.Transition("run", "run", lambda t, x, p: 1 - x[2], jump(sign), armed=lambda t, x, p, sign=sign: sign * x[0] > 0)
        for sign in (1, -1)
    ]  # fmt: skip
    field = lambda t, x, p: jnp.array([0.0, 0.0, 1.0])
    system = hj.HybridSystem({"run": hj.Mode(field, ("x", "y", "clock"))}, tuple(ways))
    step = hj.ReturnMap(system, section=hj.Section("run", lambda t, x, p: 0.5 - x[2]), integrator=ROLLED, max_jumps=2)
    orbit = hj.periodic_orbit(step, jnp.array([0.45, 0.22, 0.5]), {})
    wide = orbit.manifold("unstable", length=6.0, spacing=0.1, step=step)
    assert str(wide.ends) == "2 successful"

    def lozi(x, y):
        return 1 - a * np.abs(x) + y, b * x

    s, mu = np.linspace(wide.s[0], wide.s[-1], 50), wide.multiplier
    x, y = (np.asarray(orbit.x)[k] + s / mu**20 * wide.direction[k] for k in (0, 1))
    for _ in range(20):
        x, y = lozi(x, y)
    # Each coordinate is the sum of 20 roundings, of which the first grew by 2^20 relative to s / mu^20.
    assert_allclose(wide(s)[:, :2], np.column_stack([x, y]), atol=1e-9)
    # The orbit's own map has one sequence, and ends where x changes its sign.
    short = orbit.manifold("unstable", length=6.0, spacing=0.1)
    assert "unexpected_transition" in str(short.ends)
    assert short.arclength[-1] < 6 or short.arclength[0] > -6


@ft.cache
def curly():
    """Hénon's map at a = 1.2, where a fold of the unstable manifold has crossed the stable one."""
    orbit = fixed_point(HENON, (0.63, 0.19), SHIFTED_BY | {"a": jnp.array(1.2), "b": jnp.array(0.3)})
    return orbit.manifold("unstable", length=5.0, spacing=0.3), orbit.manifold("stable", length=6.0, spacing=0.5)


@pytest.mark.medium
def test_homoclinic_tangencies_of_henons_map():
    """Two crossings merge: by power series of 60 terms and the inverse map in mpmath, with 40 digits. The error is that of 30
    roundings of a, and of 1e2 times as many of points that lie on folds."""
    unstable, stable = curly()
    first = unstable.tangency(stable, solve=lambda p: p["a"])
    assert_allclose(first.solved, 1.153569811177149643324, atol=1e-14)
    assert_allclose([first.s, first.t], [-2.149423878781792838705, -4.641169959764668074657], rtol=1e-12)
    assert_allclose(first.x[:2], [-0.97372173709138406, 0.38956680020206246], atol=1e-12)
    # The manifold at that parameter, of another program, from the new orbit's own polynomial.
    params = SHIFTED_BY | {"a": jnp.asarray(first.solved), "b": jnp.array(0.3)}
    there = fixed_point(HENON, (0.63, 0.19), params).manifold("unstable", length=5.0, spacing=0.3)
    assert_allclose(there(first.s), first.x, atol=1e-12)


def fold_over(x, p):
    """x -> r x (1 - x), y -> e y + x, bent: the line x = 0 is the stable manifold of the origin."""
    x, y = straight(x)
    return skewed(jnp.stack([p["r"] * x * (1 - x), p["e"] * y + x]))


@pytest.mark.medium
def test_homoclinic_tangencies_in_closed_form():
    """At r = 4 the unstable manifold is x = sin^2(sqrt t), y = sum of e^k sin^2(sqrt t / 2^(k + 1)), with the multiplier 4: it
    touches x = 0 where t = pi^2, the second image of the maximum of 4 x (1 - x), and only there as r passes 4; for every e."""
    saddle = fixed_point(mapping(fold_over, 2), skewed(jnp.zeros(2)), {"r": jnp.array(4.1), "e": jnp.array(0.4)})
    unstable, stable = (
        saddle.manifold(which, length=each, spacing=0.1) for which, each in (("unstable", 4), ("stable", 3))
    )
    assert len(unstable.crossings(stable).s) == 2
    values = np.array([0.4, 0.25, 0.8])
    found = unstable.tangency(stable, solve=lambda p: p["r"], where=lambda p: p["e"], values=values)
    assert_allclose(found.solved, 4, rtol=1e-14)
    k, bent = np.arange(150), np.asarray(jax.jacfwd(skewed)(jnp.zeros(2)))
    y = np.sum(values[:, None] ** k * np.sin(np.pi / 2.0 ** (k + 1)) ** 2, axis=1)
    assert_allclose(found.x, [[*skewed(jnp.array([0.0, each])), 0] for each in y], atol=1e-12)
    # Both manifolds by lengths along their tangents at the origin, (1, 1 / (4 - e)) and (0, 1) before the bend.
    along = np.stack([np.ones(3), 1 / (4 - values)])
    lengths = np.pi**2 * np.linalg.norm(bent @ along, axis=0), y * np.linalg.norm(bent[:, 1])
    assert_allclose(np.abs([found.s, found.t]), lengths, rtol=1e-11)


def kicked(x, k, sin):
    """The standard map."""
    rate = x[1] + k * sin(x[0])
    return [x[0] + rate, rate]


@pytest.mark.medium
def test_the_manifolds_of_the_standard_map_beside_a_saddle_that_turns_round():
    """At k = 5 both multipliers at (pi, 0) are negative, mu^2 + 3 mu + 1 = 0. In 120 digits W(s) is the image of s / mu^n on the
    tangent, by the map or its inverse. A polynomial that is good to 256 roundings only would leave 1e-11."""
    saddle = fixed_point(mapping(lambda x, k: jnp.stack(kicked(x, k, jnp.sin)), 2), (3.1, 0.0), jnp.array(5.0))
    back = lambda x: [x[0] - x[1], x[1] - 5 * mp.sin(x[0] - x[1])]
    with mp.workdps(120):
        for which, step, sign in (("unstable", lambda x: kicked(x, 5, mp.sin), -1), ("stable", back, 1)):
            found, mu, reference = saddle.manifold(which, length=8.0, spacing=0.2), (sign * mp.sqrt(5) - 3) / 2, []
            s = np.linspace(found.s[0], found.s[-1], 9)
            for each in s:
                far = mp.mpf(each) * mp.mpf(mu) ** (100 * sign) / mp.hypot(1, mu + 4)
                x = [mp.pi + far, (mu + 4) * far]
                for _ in range(100):
                    x = step(x)
                reference.append([float(a) for a in x])
            assert_allclose(found(s)[:, :2], reference, atol=1e-12)


def holmes(x, p):
    return jnp.stack([x[1], -0.2 * x[0] + p["d"] * x[1] - x[1] ** 3])


def ikeda(x, p):
    turn = 0.4 - 6 / (1 + x[0] ** 2 + x[1] ** 2)
    cos, sin = jnp.cos(turn), jnp.sin(turn)
    return jnp.stack([1 + p["u"] * (x[0] * cos - x[1] * sin), p["u"] * (x[0] * sin + x[1] * cos)])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("system", "strides", "guess", "params", "lengths", "expected"),
    [
        # The end of Henon's attractor, of the saddle beyond it, and a tangency of its orbit of two strides, both of which turn.
        (HENON, 1, (-1.13, -0.34), {"a": 1.45, "b": 0.3}, (12, 12), (1.428878517304250045, 351.542900854551, 7.58027158299217)),
        (HENON, 2, (0.97, -0.14), {"a": 1.4, "b": 0.3}, (5, 5), (1.407163044753862018, 4.44435826424236, -8.16493522487174)),
        (mapping(holmes, 2), 1, (0.01, 0.0), {"d": 2.75}, (8, 5), (2.622555136963109692, 6.91488510260934, 1.57134511872129)),
        (mapping(ikeda, 2), 1, (0.53, 0.25), {"u": 0.9}, (5, 5), (0.8994196869095079974, -4.34059681888548, -5.86557896356951)),
    ],
    ids=["henon_outer", "henon_of_two", "holmes", "ikeda"],
)  # fmt: skip
def test_tangencies_of_further_maps(system, strides, guess, params, lengths, expected):
    """In mpmath with 130 digits, by Newton's method on points that begin at 1e-45 of the distance. The parameter, which is the
    first, to roundings, s and t to those of fits."""
    step = hj.ReturnMap(system, sequence=("run",), integrator=ROLLED).repeated(strides)
    saddle = hj.periodic_orbit(step, jnp.array([*guess, 0.0]), {name: jnp.array(each) for name, each in params.items()})
    unstable, stable = (
        saddle.manifold(which, length=length, spacing=0.2 if length > 5 else 0.1)
        for which, length in zip(("unstable", "stable"), lengths, strict=True)
    )
    found = unstable.tangency(stable, solve=lambda p: p[next(iter(params))])
    assert_allclose(found.solved, expected[0], atol=2e-15)
    # Holmes' map is odd: the point on either side.
    assert_allclose(np.abs([found.s, found.t]), np.abs(expected[1:]), rtol=5e-13)
    assert found.s * found.t * expected[1] * expected[2] > 0


@pytest.mark.slow
def test_tangencies_over_a_second_parameter():
    """As above. Between b = 0.38 and 0.4 the point moves far along the manifold."""
    unstable, stable = curly()
    found = unstable.tangency(stable, solve=lambda p: p["a"], where=lambda p: p["b"], values=[0.4, 0.2])
    assert_allclose(found.solved, [1.133892401966680476061, 1.270613115516015309389], atol=1e-14)
    assert_allclose(found.s, [-3.163545916388662168244, -1.851429642876582486283], rtol=1e-12)
    assert found.x.shape == (2, 3) and str(found.result) == "2 successful"


@pytest.mark.medium
def test_a_second_parameter_ends_at_the_values_themselves():
    """In closed form: that of a moves as d does. 0.2 + (0.9 - 0.2) is not 0.9 in floating point."""
    assert 0.2 + (0.9 - 0.2) != 0.9
    unstable, stable = curly()
    found = unstable.tangency(stable, solve=lambda p: p["a"], where=lambda p: p["d"], values=[-0.1, 0.9, 0.25])
    assert str(found.result) == "3 successful"
    assert_allclose(found.solved, 1.153569811177149643324 - 0.01 * (np.array([-0.1, 0.9, 0.25]) - 0.2), atol=1e-14)


@pytest.mark.medium
def test_tangencies_that_are_not_found_say_why():
    unstable, stable = curly()
    with pytest.raises(ValueError, match="do not depend on idle"):
        unstable.tangency(stable, solve=lambda p: p["idle"])
    # On the unstable manifold of (1, 0) x = exp(s), which is beyond all numbers.
    saddle = fixed_point(BENT, (1.01, 0.01), {"a": jnp.array(1.0), "c": jnp.array(0.2)})
    one, other = (saddle.manifold(which, length=0.1) for which in ("unstable", "stable"))
    found = one.tangency(other, solve=lambda p: p["a"], guess=(1e4, 0.1), throw=False)
    assert str(found.result) == "nonfinite" and np.isnan(found.solved)


def oscillation(t, x, p):
    """x'' = k (x - x^3) - drag x' + force cos 2t: saddles at 0, or at -1 and 1."""
    return jnp.stack([x[1], p["k"] * (x[0] - x[0] ** 3) - p["drag"] * x[1] + p["force"] * jnp.cos(2 * t)])


DUFFING = hj.HybridSystem(
    {"run": hj.Mode(oscillation, ("x", "x_rate"))},
    (hj.Transition("run", "run", lambda t, x, p: 4 - x[0], lambda t, x, p: x),),
)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("k", "force", "drag", "guesses", "length", "solved"),
    [
        (1.0, 0.2, 0.1, [[-0.04, 0.0032]], 4.2, 0.174216257908880),
        (-1.0, 0.26, 0.05, [[-1.0433, 0.0014], [0.9567, 0.0014]], 3.5, 0.226243445484772),
    ],
    ids=["homoclinic", "heteroclinic"],
)
def test_tangencies_of_a_flow(k, force, drag, guesses, length, solved):
    """Of the stroboscope of Duffing's equation, whose multipliers are 20 and 78: the forces at which a loop, or a connection of
    two saddles, begins. By SciPy's DOP853 at 1e-13, forwards and backwards from the eigenvectors. The integrator's tolerance is
    1e-12; Melnikov's method gives 0.1739 and 0.2258."""
    tight = hj.Integrator(rtol=1e-12, atol=1e-12, unroll=False)
    step = hj.ReturnMap(DUFFING, section=hj.Stroboscope("run", np.pi), integrator=tight)
    params = {"k": jnp.array(k), "force": jnp.array(force), "drag": jnp.array(drag)}
    saddles = [hj.periodic_orbit(step, jnp.array(guess), params) for guess in guesses]
    unstable = saddles[0].manifold("unstable", length=length, spacing=0.1)
    stable = saddles[-1].manifold("stable", length=length, spacing=0.1)
    found = unstable.tangency(stable, solve=lambda p: p["force"])
    assert_allclose(found.solved, solved, atol=1e-11)


@pytest.mark.medium
def test_a_stable_manifold_beside_a_large_multiplier():
    """What the orbit's eigenvector has of the unstable direction, 2e-11, grows 240 times in a pass. Here the saddle is that of
    x'' = x - x^3 - 0.25 x' + 0.21 cos t. The tolerance is that of the integrator."""
    slow = lambda t, x, p: oscillation(t / 2, x, p)
    system = hj.HybridSystem({"run": hj.Mode(slow, ("x", "x_rate"))}, DUFFING.transitions)
    tight = hj.Integrator(rtol=1e-12, atol=1e-12, unroll=False)
    step = hj.ReturnMap(system, section=hj.Stroboscope("run", 2 * np.pi), integrator=tight)
    params = {"k": jnp.array(1.0), "force": jnp.array(0.21), "drag": jnp.array(0.25)}
    orbit = hj.periodic_orbit(step, jnp.array([-0.1034, 0.0129]), params)
    stable = orbit.manifold("stable", length=0.3, spacing=0.03)
    assert stable.residual < 1e-12 and stable.scale > 0.05 and str(stable.ends) == "2 successful"


@pytest.mark.medium
def test_tangencies_that_cannot_be_sought():
    unstable, stable = henon_manifolds()
    a = lambda p: p["a"]
    for (one, other), given, text in (
        ((stable, unstable), {}, "give the stable manifold to the unstable one"),
        ((unstable, curly()[1]), {}, "not of the same map at the same parameters"),
        ((unstable, stable), {"values": [0.3]}, "come together"),
        *(
            ((unstable, stable), {"where": lambda p: p["b"], "values": v}, "of the shape")
            for v in (0.1, [], [[0.1]], [np.nan])
        ),
        *(
            ((unstable, stable), {"guess": v}, "two finite numbers other than 0")
            for v in (0.3, (0.0, 0.1), (1.0, 2.0, 3.0))
        ),
        ((unstable, stable), {"where": a, "values": [0.3]}, "more than once"),
    ):
        with pytest.raises(ValueError, match=text):
            one.tangency(other, solve=a, **given)
