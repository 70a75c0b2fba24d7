"""Certificates of attraction: the simplest walker under disturbances, against disturbed trajectories and against wrong sets."""

import importlib
import re

import disturbed_walker as walker_flight
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from readme import ROOT

import hyjax as hj
from hyjax._testing import (
    basis,
    EnclosedMap,
    from_supports,
    holds,
    inside,
    PieceImages,
    pieces,
    Polygon,
    quartered,
    tight,
)
from hyjax.models import simplest_walker as walker

attracting = importlib.import_module("hyjax.certify.attracting")
BOUND, FACETS = 1e-4, 32


@pytest.fixture(scope="module")
def gait():
    params = walker.Params()
    return hj.periodic_orbit(walker.step, walker.guess(params), params)


@pytest.fixture(scope="module")
def disturbed(gait):
    """The certificate that docs/certificates.md prints; its compiled program for all sets of so many pieces, and what is known of
    the images of the pieces of its set."""
    seen = {}

    class Kept(PieceImages):
        def __init__(self, *given):
            super().__init__(*given)
            # Run for seconds: what the compiler takes longer to optimize is a seventh of what the optimized program saves.
            self._run = jax.jit(self._run, compiler_options={"xla_backend_optimization_level": 1})
            seen["images"] = self

    def invariant(*given):
        seen["found"], *others = found_by(*given)
        return seen["found"], *others

    found_by = attracting._invariant
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attracting, "PieceImages", Kept)
        patch.setattr(attracting, "_invariant", invariant)
        proof = hj.certify.attracting(gait, disturbance=hj.certify.Disturbance(BOUND))
    return proof, seen["images"], seen["found"]


@pytest.fixture(scope="module")
def images(disturbed):
    return disturbed[1]


@pytest.fixture(scope="module")
def found(disturbed):
    return disturbed[2]


def fly(images, reached, count, seed):
    """A function of the bound: strides from random points of every piece under disturbances on the bound, `count` of each of the
    kinds: how far each goes along the edges, relative to the set; by how much that exceeds the bound of its piece; by how much
    states leave its tube."""
    of, quads = images.of, reached.quads
    steps, edges = of.steps, np.asarray(reached.polygon.edges.center)
    back, forth = np.asarray(of.axes.inverse), np.asarray(of.axes.matrix)
    h, _ = of.timing(pieces(quads, images.basis))
    worst = np.einsum("ij,jkl->ikl", forth, walker_flight.sensitivity(of.z, of.durations[0] / steps, steps))
    tube, exponents = reached.tubes[0], jnp.asarray(images.basis.exponents, float)
    away = np.sum(edges * reached.polygon.vertices, axis=1)

    def one(bound, key, piece, kind):
        keys = jax.random.split(key)
        # Half of the points on the edge of the piece that is farthest out.
        u, v = jax.random.uniform(keys[0], (2,))
        s = jnp.stack([jnp.where(v < 0.5, 1.0, 2 * u - 1), 4 * jnp.where(v < 0.5, v, v - 0.5) - 1])
        a, b, c, d = quads[piece]
        p, q = (1 + s) / 2
        y = (1 - p) * ((1 - q) * a + q * d) + p * ((1 - q) * b + q * c)
        length = jnp.prod(s[None] ** exponents, axis=1) @ h[piece, 0]
        winds = walker_flight.winds_of(keys[1], kind, worst, bound, steps)
        nodes, boxes = (tube.start_low[piece], tube.start_high[piece]), (tube.low[piece], tube.high[piece])
        z, outside = walker_flight.stride(of.z + back @ y, length, winds, nodes, boxes)
        along = edges @ (forth @ (z - of.z)) / away
        return jnp.max(along), jnp.max(along - far[piece]), outside

    quads, far = jnp.asarray(quads), jnp.asarray(reached.far[:, reached.directions :] / away)
    tube, h = jax.tree.map(jnp.asarray, (tube, h))
    keys, at = jax.random.split(jax.random.key(seed), 5 * count), jnp.arange(5 * count)
    given = keys, at % len(quads), at // count
    return jax.jit(lambda bound: jax.lax.map(lambda each: one(bound, *each), given, batch_size=4000))


@pytest.mark.slow
def test_no_disturbed_trajectory_leaves_its_enclosure(images, found):
    assert found.reasons == () and found.ratio < 1 and found.polygon.convex()
    flights = fly(images, found, 1500, 0)
    far, beyond, outside = map(np.asarray, flights(BOUND))
    # The bounds hold for all, and are not far from what disturbances reach; 1e-11: errors of the trajectories.
    assert np.max(beyond) < 0 and np.max(outside) < 1e-11
    assert np.max(far) > 0.95 * found.ratio
    # With disturbances larger by a third some leave: this check can fail.
    far, beyond, outside = map(np.asarray, flights(1.33 * BOUND))
    assert np.max(beyond) > 0 and np.max(outside) > 1e-9


@pytest.mark.slow
def test_a_set_too_small_for_the_disturbance_is_not_proved(images, found):
    small = Polygon(0.5 * found.polygon.vertices)
    reached = images.mapped(small, small.cover(images.rings, images.sectors), attracting._around(FACETS))
    assert reached.ratio > 1 and reached.failed == ()
    assert any("the image reaches" in each for each in reached.reasons)


@pytest.mark.slow
def test_a_tube_that_is_too_narrow_would_be_noticed(found):
    """The images of trajectories leave the polygon scaled by 0.6 of the ratio: the check above can fail."""
    small = Polygon(0.6 * found.ratio * found.polygon.vertices)
    assert inside(small, found.far[:, FACETS:] * 0.6 * found.ratio)[1] > 1


@pytest.fixture(scope="module")
def certificate(gait):
    return hj.certify.attracting(gait, radius=8e-3, orders=6)


@pytest.mark.slow
def test_without_disturbance_every_orbit_converges(certificate):
    assert certificate.proved and certificate.converges and certificate.norm < 1
    # A prototype with 352 pieces and first order in the state reached 0.846.
    assert certificate.ratio < 0.78 and certificate.pieces < 100
    assert "every orbit from the set converges" in str(certificate)
    rng = np.random.default_rng(0)
    starts = certificate.center + rng.uniform(0, 1, (200, 1)) * (
        certificate.vertices[rng.integers(0, 32, 200)] - certificate.center
    )
    still, wide = jnp.zeros((33, 4)), (jnp.full((33, 4), -jnp.inf), jnp.full((33, 4), jnp.inf))
    onward = jax.jit(jax.vmap(lambda z: walker_flight.stride(z, certificate.orbit.period / 32, still, wide, wide)[0]))
    for _ in range(12):
        starts = np.asarray(onward(starts))
    assert np.max(np.abs(starts - certificate.center)) < 1e-4
    # Along the directions of the facets the image reaches as far as the ends of strides, and not much farther.
    directions = attracting._around(32)
    _, ends = certificate.sample(1000)
    reached = (ends - certificate.center) @ np.linalg.inv(certificate.axes).T @ directions.T
    ratio = np.max(np.max(reached, axis=0) / np.max(certificate.image @ directions.T, axis=0))
    assert 0.9 < ratio < 1 and np.max(np.abs(certificate.image)) < 0.8 * np.max(np.abs(certificate.polygon))
    for tube in certificate.tubes:
        assert np.all(tube.low <= tube.start_low) and np.all(tube.start_high <= tube.high)


@pytest.mark.slow
def test_the_certificate_printed_in_readme(disturbed):
    """But for the seconds; the lines are those of the command."""
    proof, *_ = disturbed
    assert proof.proved and not proof.converges
    page = (ROOT / "docs" / "certificates.md").read_text()
    (printed,) = re.findall(r"```text\n(Certificate:.*?)```", page, re.DOTALL)
    lines = lambda text: [line.rstrip() for line in text.splitlines() if not line.startswith("  seconds")]
    assert lines(str(proof)) == lines(printed)


@pytest.mark.medium
def test_bad_input_is_refused(gait):
    with pytest.raises(ValueError, match="bound=-1"):
        hj.certify.Disturbance(-1.0)
    with pytest.raises(ValueError, match="norm='1'"):
        hj.certify.Disturbance(1e-4, norm="1")
    with pytest.raises(ValueError, match="radius=-1"):
        hj.certify.attracting(gait, radius=-1.0)
    with pytest.raises(ValueError, match="rings=0"):
        hj.certify.attracting(gait, rings=0)
    with pytest.raises(ValueError, match="batch"):
        hj.certify.attracting(jax.tree.map(lambda a: a[None], gait))


def test_bounds_that_are_not_tight_make_a_polygon_too():
    """A square whose corners lines at 45 degrees miss: without their supports, neighbouring edges would cross."""
    angles = np.pi / 4 * np.arange(8)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    bounds = np.where(np.arange(8) % 2, 2.0, 1.0)
    assert_allclose(tight(directions, bounds), np.where(np.arange(8) % 2, np.sqrt(2), 1), rtol=1e-15)
    vertices = from_supports(directions, tight(directions, bounds)).vertices
    assert_allclose(np.abs(vertices), 1, rtol=1e-12)
    assert np.max(np.abs(from_supports(directions, bounds).vertices)) > 1.4
    assert_allclose(tight(directions, np.ones(8)), 1, rtol=1e-15)
    assert np.all(np.isnan(tight(directions, np.full(8, np.nan))))


def test_polygons_are_covered_and_turn_once():
    angles = 2 * np.pi * np.arange(12) / 12
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    polygon = from_supports(directions, 1 + 0.1 * np.cos(2 * angles))
    assert polygon.convex() and not Polygon(polygon.vertices[::-1]).convex()
    assert not Polygon(polygon.vertices * np.array([1.0, -1.0])).convex()
    star = polygon.vertices * np.where(np.arange(12) % 2, 1.0, 0.4)[:, None]
    assert not Polygon(star).convex() and not Polygon(polygon.vertices + 5.0).convex()
    supports = 1 + 0.1 * np.cos(2 * angles)
    assert holds(polygon, directions, supports * (1 - 1e-9)) and not holds(polygon, directions, supports * (1 + 1e-9))
    # Of 20 sectors at least, in three rings: 20 + 10 + 5.
    quads = polygon.cover(3, 20)
    v = polygon.vertices
    whole = 0.5 * np.sum(v[:, 0] * np.roll(v[:, 1], -1) - np.roll(v[:, 0], -1) * v[:, 1])
    for cut in (quads, np.concatenate([quads[5:], quartered(quads[:5])])):
        models = pieces(cut, basis(2, 2))
        area = 0.0
        for coefficients in np.asarray(models.coefficients):
            corners = [coefficients[0] + a * coefficients[1] + b * coefficients[2] + a * b * coefficients[4]
                       for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]  # fmt: skip
            area += 0.5 * sum(
                p[0] * q[1] - p[1] * q[0] for p, q in zip(corners, corners[1:] + corners[:1], strict=True)
            )
        assert abs(area - whole) < 1e-12
    assert len(quads) == 35
    # The outermost quadrilaterals have the boundary's points as corners.
    assert np.array_equal(quads[:20, 1], polygon.divided(20)) and all(
        any(np.array_equal(x, q) for q in quads[:20, 1]) for x in v
    )
    assert bool(np.all(inside(polygon, np.full((4, 12), 5e-3))[0]))
    assert not bool(np.any(inside(polygon, np.full((4, 12), np.nan))[0]))


# x' = x^3 - x, of which the orbits from |x| < 1 converge to zero; y decays.
WELL = hj.HybridSystem(
    {"m": hj.Mode(lambda t, x, p: jnp.stack([x[0] ** 3 - x[0], -2 * x[1], jnp.ones_like(x[2])]), ("x", "y", "clock"))},
    (hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0])),),
)


@pytest.mark.slow
def test_cells_of_the_basin_are_proved_and_converge():
    orbit = hj.periodic_orbit(hj.ReturnMap(WELL, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    certificate = hj.certify.attracting(orbit, radius=0.1, facets=8, rings=1, steps=8, orders=5)
    assert certificate.proved and certificate.converges
    basin = hj.certify.proved_basin(certificate, extent=1.2, cells=24, levels=1, steps=8, orders=5)
    assert np.max(basin.strides) > 3
    corners = np.abs(basin.cells[..., 0])
    # None reaches beyond the basin, and most of it is proved.
    assert np.max(corners) < 1 and np.max(corners) > 0.8
    z = np.random.default_rng(2).uniform(-0.7, 0.7, (1000, 2))
    assert np.all(basin.holds(z)) and not np.any(basin.holds(z + 2.0))
    # In closed form: x^2 / (1 - x^2) shrinks by e^2 in each stride, and the cells' orbits come into the set.
    x, y = np.moveaxis(basin.cells, -1, 0)
    shrunk = x**2 / (1 - x**2) * np.exp(-2.0 * basin.strides)[:, None]
    ends = np.stack([np.sign(x) * np.sqrt(shrunk / (1 + shrunk)), y * np.exp(-2.0 * basin.strides)[:, None]], -1)
    # The vertices go around counterclockwise.
    edges = np.roll(certificate.vertices, -1, axis=0) - certificate.vertices
    apart = ends[:, :, None] - certificate.vertices
    assert np.all(edges[:, 0] * apart[..., 1] - edges[:, 1] * apart[..., 0] >= 0)


@pytest.mark.slow
def test_a_basin_is_that_of_the_set_of_the_certificate():
    """Multipliers nearer than the error of a few steps: eigenvectors by more steps are others by far. The map is linear."""
    rate = lambda t, x, p: jnp.stack([-x[0], 0 * x[1], jnp.ones_like(x[2])])
    reset = lambda t, x, p: jnp.stack([x[0], float(np.exp(-1.0)) * x[1] + 1e-7 * x[0], 0 * x[2]])
    tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], reset)
    system = hj.HybridSystem({"m": hj.Mode(rate, ("x", "y", "clock"))}, (tick,))
    orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    certificate = hj.certify.attracting(orbit, radius=0.1, facets=8, rings=1, steps=4, orders=5)
    other = EnclosedMap(orbit, steps=16, orders=5, reduced=True)
    assert np.max(np.abs(np.asarray(other.axes.inverse) - certificate.axes)) > 0.1
    basin = hj.certify.proved_basin(certificate, cells=8, levels=0, steps=16, orders=5)
    assert np.max(basin.strides) > 1
    # The corners after so many strides lie in the set, whose vertices go around clockwise or not as the coordinates do.
    shrunk = basin.cells * np.exp(-1.0 * basin.strides)[:, None, None]
    edges = np.roll(certificate.vertices, -1, axis=0) - certificate.vertices
    apart = shrunk[:, :, None] - certificate.vertices
    turn = (edges[:, 0] * apart[..., 1] - edges[:, 1] * apart[..., 0]) * np.sign(np.linalg.det(certificate.axes))
    assert np.all(turn > -1e-8)
