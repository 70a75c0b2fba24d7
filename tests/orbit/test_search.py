"""Orbits without a guess: each of them once, the same for the same key; and the rule that ends a search."""

import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import case
from systems import logistic, map_of, ROLLED

import hyjax as hj
from hyjax._testing import Census, find_orbits, quasi_random_states
from hyjax.models import bouncing_ball, linear_impact_oscillator, simplest_walker


def gaits(model, params, integrator=None, **options):
    step = hj.ReturnMap(model.system, sequence=model.sequence, integrator=integrator)
    return hj.find_orbits(step, params, region=model.region(params), throw=False, **options)


@pytest.mark.medium
@pytest.mark.parametrize("slope", [0.001, 0.015])
def test_both_gaits_of_the_simplest_walker(slope):
    found = gaits(simplest_walker, simplest_walker.Params(slope))
    # Garcia et al. (1998): two gaits, of periods near 3.8 and 3.1, at every slope; both fixed points of the stride.
    assert len(found) == 2
    assert_allclose(found.period, [3.87, 3.10], atol=0.06)
    for i in range(2):
        again = simplest_walker.step(found[i].x, found[i].params)
        # The search and the stride add up a step's stages in different order: some units in the last place.
        assert_allclose(again.x, found[i].x, rtol=0, atol=2e-14)


@pytest.mark.medium
def test_digits_of_the_search():
    found = gaits(simplest_walker, simplest_walker.Params(0.009))
    for orbit, name in zip((found[0], found[1]), ("long_0.009", "short_0.009"), strict=True):
        record = case("B_simplest_walker", name)
        # As demanded of the command line: 1e-14, 5e-14, 3e-13 relative.
        assert_allclose(orbit.x, record["x0"], rtol=0, atol=1e-14)
        assert_allclose(orbit.period, record["T"], rtol=0, atol=5e-14)
        exact = record["eigenvalues"]["re"] + 1j * record["eigenvalues"]["im"]
        assert_allclose(orbit.multipliers[:2], exact[:2], rtol=3e-13, atol=3e-13)


@pytest.mark.medium
def test_no_isolated_orbit():
    for restitution in (0.8, 1.0):
        params = bouncing_ball.Params(restitution=restitution)
        assert len(gaits(bouncing_ball, params, integrator=ROLLED)) == 0


def test_bad_region():
    params = simplest_walker.Params(0.009)
    low, high = simplest_walker.region(params)
    with pytest.raises(ValueError, match=r"region: low .* must not exceed high"):
        hj.find_orbits(simplest_walker.step, params, region=(high, low))
    with pytest.raises(ValueError, match="max_starts=0"):
        hj.find_orbits(simplest_walker.step, params, region=(low, high), max_starts=0)


@pytest.mark.medium
def test_region_without_width():
    """A coordinate that is zero but for rounding, in a region where it is zero; and an orbit in the region, on its edge, and so
    near that a search with coarse tolerances takes it for one inside."""

    def jump(t, x, params):
        return jnp.stack([0.5 * x[0] + params, 1e-20 * x[0], 0 * x[2]])

    names = ("x", "rest", "clock")
    field = lambda t, x, params: jnp.zeros(3, x.dtype).at[2].set(1)
    way = hj.Transition("run", "run", lambda t, x, params: 1 - x[2], jump)
    system = hj.HybridSystem({"run": hj.Mode(field, names)}, (way,))
    for high, count in ((3.0, 1), (1.5, 1), (1.499, 0)):
        region = jnp.array([0.1, 0.0, 0.0]), jnp.array([high, 0.0, 0.0])
        found = hj.find_orbits(
            hj.ReturnMap(system, sequence=("run",), integrator=ROLLED),
            jnp.array(0.75),
            region=region,
            max_starts=8,
            throw=False,
        )
        assert len(found) == count
        if count:
            assert_allclose(found.x[0], [1.5, 1.5e-20, 0], rtol=1e-14)


# The rule that ends a search


def test_the_share_of_orbits_not_yet_found():
    """Against the definition: shares of the orbits uniform on the simplex, and the number of orbits uniform up to a large one.

    The posterior's mean of what is unseen, w(w + 1)/n(n - 1), is that of Boender and Rinnooy Kan (1987), eq. 8; here as the sum
    over the number of orbits W, whose likelihood is C(W, w)/C(n + W - 1, n), with the unseen share (W - w)/(n + W).
    """
    from math import comb

    hits, most = (5, 4, 3), 4000
    n, w = sum(hits), len(hits)
    weights = [comb(each, w) / comb(n + each - 1, n) for each in range(w, most)]
    mean = sum(weight * (each - w) / (n + each) for weight, each in zip(weights, range(w, most), strict=True))
    # The sum is cut off at 4000 orbits, beyond which its terms fall as the ninth power.
    assert_allclose(Census(12, hits).unseen, mean / sum(weights), rtol=1e-9)


def test_when_a_search_is_complete():
    assert not Census(511).complete and Census(512).complete
    assert not Census(200, (89,)).complete and Census(200, (90,)).complete
    # An orbit to which one start led makes others likely.
    assert not Census(4000, (1000, 1)).complete and Census(4000, (1000, 2)).complete
    assert "5 of 2048 starts led to 1 orbit;" in str(Census(2048, (5,)))


def test_starts_fill_the_region_evenly():
    low, high = np.array([0.0, 3.0, -1.0]), np.array([1.0, 3.0, 1.0])
    states = quasi_random_states(low, high, 1024, jax.random.key(0))
    assert np.all(states[:, 1] == 3) and np.all((states >= low) & (states <= high))
    # In 16 x 16 cells, 4 each; of independent states, five cells would be empty.
    counts = np.histogram2d(states[:, 0], states[:, 2], bins=16)[0]
    assert counts.min() >= 2 and counts.max() <= 7


# Maps in closed form


def cycles(r: float, strides: int) -> list[np.ndarray]:
    """The orbits of the logistic map of that least period, from sign changes of its iterate on a fine grid."""
    step = lambda x: r * x * (1 - x)

    def off(x, m):
        y = x
        for _ in range(m):
            y = step(y)
        return y - x

    def bisected(m):
        # Nodes at sines: dense at both ends, where the iterate is steep; zero itself is a fixed point.
        x = np.sin(np.linspace(0, np.pi / 2, 200_001)[1:]) ** 2
        low, high = x[:-1], x[1:]
        turns = np.sign(off(low, m)) != np.sign(off(high, m))
        low, high = low[turns], high[turns]
        for _ in range(60):
            middle = (low + high) / 2
            left = np.sign(off(middle, m)) == np.sign(off(low, m))
            low, high = np.where(left, middle, low), np.where(left, high, middle)
        return np.append(0.0, low)

    points = bisected(strides)
    shorter = np.concatenate([bisected(m) for m in range(1, strides) if strides % m == 0] or [[]])
    points = [x for x in points if shorter.size == 0 or np.abs(shorter - x).min() > 1e-9]
    found = {}
    for x in points:
        nodes = [x]
        for _ in range(strides - 1):
            nodes.append(step(nodes[-1]))
        found[round(min(nodes), 9)] = np.array(nodes)
    return list(found.values())


LOGISTIC, UNIT = map_of(logistic), (jnp.zeros(2), jnp.array([1.0, 0.0]))


def logistic_orbits(r: float, strides: int = 1, **options):
    step = hj.ReturnMap(LOGISTIC, sequence=("m",), strides=strides, integrator=ROLLED)
    return hj.find_orbits(step, {"r": jnp.array(r)}, region=UNIT, throw=False, **options)


@pytest.mark.medium
def test_same_key_same_orbits():
    one, two, other = (logistic_orbits(3.6, key=jax.random.key(k)) for k in (3, 3, 4))
    assert_array_equal(one.x, two.x)
    # Another key starts elsewhere and ends at the same orbits, up to rounding.
    assert_allclose(np.sort(one.x[:, 0]), np.sort(other.x[:, 0]), rtol=0, atol=2e-14)


@pytest.mark.medium
@pytest.mark.parametrize("strides", [1, 2, 5])
def test_orbits_of_a_map_that_folds(strides):
    """The logistic map, whose steps have two preimages: every orbit, also zero, where the whole state is zero."""
    for r in (3.9, 4.0):
        found = logistic_orbits(r, strides=strides)
        exact = cycles(r, strides)
        assert len(found) == len(exact)
        if r == 4:
            assert len(exact) == [2, 1, 2, 3, 6][strides - 1]
        nodes = np.asarray(found.nodes[:, :, 0])
        for cycle in exact:
            # A step's rounding, over the orbit's distance from a bifurcation: none is nearer than 0.01.
            assert np.abs(nodes[:, :1] - cycle).min(axis=-1).min() < 1e-12


@pytest.mark.medium
@pytest.mark.parametrize("beyond", [-1e-8, 1e-8])
def test_orbits_next_to_a_doubling(beyond):
    """At r = 3 the fixed point doubles its period: the orbit of two strides is nearly singular, and is one."""
    r = 3 + beyond
    one, two = (logistic_orbits(r, strides=m) for m in (1, 2))
    assert_allclose(np.sort(one.x[:, 0]), [0, 1 - 1 / r], atol=1e-14)
    assert len(two) == (beyond > 0)
    if beyond > 0:
        nodes = (r + 1 + np.sqrt((r - 3) * (r + 1)) * np.array([-1, 1])) / (2 * r)
        # Rounding over 1 - multiplier = 4e-8.
        assert_allclose(np.sort(two.nodes[0, :, 0]), nodes, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_both_orbits_between_fold_and_grazing(monkeypatch):
    """Between the fold at 0.0999707536 and grazing at 0.1 the linear impact oscillator has two orbits of one impact. To the one
    near grazing, Newton's method converges from a strip along the edge of the states that reach the wall; at 0.099971 the two
    are 0.005 apart."""
    p = linear_impact_oscillator.Params(amplitude=0.099971)
    # The same program, optimized: it runs for half a minute otherwise.
    solve = eqx.filter_jit(find_orbits.solve_batch, compiler_options={"xla_backend_optimization_level": 1})
    monkeypatch.setattr(find_orbits, "solve_batch", solve)
    with pytest.warns(UserWarning, match="led to 2 orbits"):
        found = gaits(linear_impact_oscillator, p, max_starts=768)
    assert len(found) == 2 and np.sum(found.stable) == 1
    # In closed form for every amplitude: the impact multiplies areas by e^2, the flow by exp(-2 pi c).
    product = np.prod(np.asarray(found.multipliers)[:, :2], axis=1)
    assert_allclose(product, 0.8**2 * np.exp(-2 * np.pi * 0.1), rtol=1e-9)


@pytest.mark.medium
def test_too_few_starts_are_said():
    with pytest.warns(UserWarning, match="starts led to 2 orbits; the expected share"):
        logistic_orbits(3.6, max_starts=128)
    # Starts that lead to the orbits of an earlier round count as well.
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert len(logistic_orbits(3.6, max_starts=512)) == 2


@pytest.mark.medium
@pytest.mark.parametrize("period, found", [(1.0, 1), (0.7, 0)])
def test_a_search_of_a_forced_system_tells_of_the_phase(period, found):
    """A filter of cos 2 pi t that a clock closes: in step with the forcing there is the orbit, out of step none, and a warning
    names the reason and the remedy."""
    flow = lambda t, x, p: jnp.stack([jnp.cos(2 * jnp.pi * t) - x[0], 1.0 + 0 * x[1]])
    tick = hj.Transition("on", "on", lambda t, x, p: p - x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    system = hj.HybridSystem({"on": hj.Mode(flow, ("x", "clock"))}, (tick,))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        region = (jnp.array([-1.0, 0.0]), jnp.array([1.0, 0.0]))
        orbits = hj.find_orbits(hj.ReturnMap(system, sequence=("on",)), jnp.array(period), region=region, throw=False)
    assert len(orbits) == found
    text = " ".join(str(each.message) for each in told)
    assert bool(re.search(r"no orbit was found. \d+ starts led to a state that returns at another", text)) == (
        not found
    )
    assert ("section=hj.Stroboscope(mode, period)" in text) == (not found)
    if found:
        # The solution (cos 2 pi t + 2 pi sin 2 pi t) / (1 + 4 pi^2) at 0.
        assert_allclose(orbits.x[0], [1 / (1 + 4 * np.pi**2), 0], atol=1e-10)


@pytest.mark.medium
def test_a_search_that_finds_nothing_is_an_error():
    system = hj.HybridSystem(
        {"m": hj.Mode(lambda t, x, p: jnp.ones_like(x), ("y",))},
        (hj.Transition("m", "m", guard=lambda t, x, p: p - x[0], reset=lambda t, x, p: x - 0.5 * p),),
    )
    step, region = hj.ReturnMap(system, sequence=("m",), integrator=ROLLED), (jnp.array([10.0]), jnp.array([11.0]))
    with pytest.raises(hj.SolveError, match=r"none of 8 starts in the region \[10\.\] to \[11\.\] led to") as raised:
        hj.find_orbits(step, jnp.array(1.0), region=region, max_starts=8)
    assert isinstance(raised.value, hj.SolveError) and len(raised.value.result) == 0
    assert len(hj.find_orbits(step, jnp.array(1.0), region=region, max_starts=8, throw=False)) == 0
