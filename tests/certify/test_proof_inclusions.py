"""Inclusions on which proofs rest, at their edge: images in polygons and boxes, windows of time, against rational numbers."""

import importlib
import itertools
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_sets import fractions, inverse
from flint import arb, ctx

import hyjax as hj
from hyjax._testing import (
    _CellGrid,
    _norm,
    _settled,
    _within,
    at_the_time,
    ball,
    basis,
    Boxes,
    BoxImage,
    from_supports,
    holds,
    identity_frame,
    Image,
    inside,
    ModeField,
    MOMENT,
    NEAR,
    pieces,
    Polygon,
    PolygonImage,
    PRECISION,
    reach,
    TaylorModel,
)

attracting = importlib.import_module("hyjax.certify.attracting")
# Relative distances from the edge, of which the least are a few roundings.
EDGE = [sign * size for size in (1e-16, 3e-16, 1e-15, 1e-14, 1e-12, 1e-6, 1e-3, 5e-3, 0.05) for sign in (-1, 1)]


def image_of(value, radius, jacobian, spread, more=0.0, conditions=None):
    """An image of a set: a constant, its radii, and the derivative of the return map."""
    conditions = {"a box holds the flow of every step": jnp.asarray(True)} if conditions is None else conditions
    model = TaylorModel(
        jnp.zeros((len(value) + 1, len(value))).at[0].set(value), jnp.asarray(radius), basis(len(value), 1)
    )
    return Image(
        model,
        jnp.zeros((0, len(value), 1)),
        jnp.full(len(value), more),
        ball(jnp.asarray(jacobian), jnp.asarray(spread)),
        (),
        conditions,
        jnp.asarray(True),
    )


def boxes_of(at_center, over, inverse_matrix):
    """`Boxes` with images that are given."""
    n = len(inverse_matrix)
    boxes = object.__new__(Boxes)
    boxes.map = SimpleNamespace(axes=SimpleNamespace(matrix=np.eye(n)))
    boxes.first, boxes.inverse = SimpleNamespace(image=at_center), inverse_matrix
    boxes.of_box = lambda center, radius: BoxImage(center, radius, over, np.zeros((1, n + 1)), np.zeros(1))
    return boxes


def krawczyk_image(at_center, over, c, radius):
    """The exact midpoint and radius of Krawczyk's image of the box about zero, over all return maps of the enclosures."""
    n = len(c)
    value, jacobian = fractions(at_center.model.center), fractions(over.jacobian.center)
    around = fractions(at_center.model.radius) + fractions(at_center.radius)
    shear = fractions(np.eye(n)) - c @ (jacobian - fractions(np.eye(n)))
    spread = np.abs(c) @ fractions(over.jacobian.radius)
    return -(c @ value), np.abs(c) @ around + (np.abs(shear) + spread) @ radius


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("part", ["middle", "radius", "more", "shear", "spread"])
def test_krawczyk_proves_only_what_is_mapped_into_the_interior(n, part):
    """One part of the image is made so large that the image reaches the box, and a little farther or less."""
    rng, outcomes = np.random.default_rng(n), []
    for size in (1e-8, 0.3):
        for _ in range(3):
            jacobian = 0.4 * rng.normal(size=(n, n))
            c = np.linalg.inv(jacobian - np.eye(n))
            exact = fractions(c)
            for edge in EDGE:
                small = {"middle": 0.0, "radius": 0.0, "more": 0.0, "shear": 0.0, "spread": 0.0}
                small[part] = 1 + edge
                # In the first coordinate each part fills the box by itself; the others do for a hundredth of it.
                row = np.abs(c[0])
                value = np.linalg.solve(c, size * small["middle"] * np.eye(n)[0])
                radius = np.full(n, size * small["radius"] / row.sum())
                more = size * small["more"] / row.sum()
                moved = jacobian - np.linalg.solve(c, np.eye(n)) * small["shear"]
                spread = np.full((n, n), small["spread"] / (n * row.sum()))
                at_center, over = (
                    image_of(value, radius, jacobian, 0 * spread, more),
                    image_of(value, radius, moved, spread),
                )
                (tried, box), reasons = boxes_of(at_center, over, c).proved(size)
                # The box is larger than it should be by some roundings.
                whole = fractions(tried.radius)
                assert np.all(whole >= Fraction(size)) and np.all(whole <= Fraction(size * (1 + 1e-13)))
                middle, reached = krawczyk_image(at_center, over, exact, whole)
                included = bool(np.all(np.abs(middle) + reached < whole))
                assert included or reasons, (size, edge)
                outcomes.append((included, not reasons, edge))
                if not reasons:
                    center, half = fractions(box[0]), fractions(box[1])
                    low, high = np.maximum(middle - reached, -whole), np.minimum(middle + reached, whole)
                    assert np.all(center - half <= low) and np.all(high <= center + half)
                    assert np.all(half <= whole)
                elif "no periodic orbit" in reasons[0]:
                    assert np.any(np.abs(middle) - reached > whole)
    # What is well inside is proved.
    assert all(proved for included, proved, edge in outcomes if edge <= -1e-6 and included)
    assert any(proved for _, proved, _ in outcomes) and not all(proved for _, proved, _ in outcomes)


def test_krawczyk_proves_nothing_where_a_condition_fails_or_numbers_are_infinite():
    c = np.array([[-1.25]])
    good = image_of(np.zeros(1), np.zeros(1), [[0.2]], [[0.0]])
    assert boxes_of(good, good, c).proved(1e-3)[1] == ()
    failed = image_of(
        np.zeros(1),
        np.zeros(1),
        [[0.2]],
        [[0.0]],
        conditions={"it holds": jnp.asarray(True), "it fails": jnp.asarray(False)},
    )
    endless = image_of(np.zeros(1), np.zeros(1), [[0.2]], [[np.inf]])
    for at_center, over, reason in (
        (failed, good, "it fails"),
        (good, failed, "it fails"),
        (good, endless, "finite"),
        (endless, good, "finite"),
    ):
        (found,) = boxes_of(at_center, over, c).proved(1e-3)[1]
        assert reason in found
    # A return map of another orbit: its fixed point is 5 radii away.
    away = image_of(np.array([4e-3]), np.zeros(1), [[0.2]], [[0.01]])
    assert "no periodic orbit" in boxes_of(away, good, c).proved(1e-3)[1][0]
    # The multiplier 1 is among those of the box.
    wide = image_of(np.zeros(1), np.zeros(1), [[0.2]], [[0.8]])
    assert "multiplier 1" in boxes_of(good, wide, c).proved(1e-3)[1][0]


def test_krawczyk_excludes_an_orbit_only_where_no_map_of_the_set_has_one():
    """P(x) = x / 4 + v with v in 2e-3 +- r has the fixed points 4/3 v; the nearest of them is moved over the edge of the box."""
    c, box, excluded = np.array([[1 / (0.25 - 1)]]), 1e-3, []
    for edge in EDGE:
        nearest = box * (1 + edge)
        radius = np.array([2e-3 - 0.75 * nearest])
        reason = boxes_of(
            image_of(np.array([2e-3]), radius, [[0.25]], [[0.0]]),
            image_of(np.zeros(1), np.zeros(1), [[0.25]], [[0.0]]),
            c,
        ).proved(box)[1][0]
        excluded.append("no periodic orbit" in reason)
        outside_of_it = Fraction(4, 3) * (Fraction(2e-3) - Fraction(radius[0])) > Fraction(box)
        assert outside_of_it or not excluded[-1], edge
        assert excluded[-1] or edge < 1e-6
    assert any(excluded) and not all(excluded)


def rational(a: arb) -> Fraction:
    """A ball of radius zero."""
    digits, exponent = (int(each) for each in a.man_exp())
    return digits * Fraction(2) ** exponent


@pytest.mark.parametrize("degree", [1, 2])
def test_windows_are_those_of_every_state_of_a_part_of_a_box(degree):
    rng, form, steps = np.random.default_rng(degree), basis(2, degree), 7
    for _ in range(20):
        h = np.concatenate([[[0.3]], 1e-2 * rng.normal(size=(1, form.size - 1))], axis=1)
        center, radius, part = rng.normal(size=2), 10.0 ** rng.uniform(-3, 0, 2), rng.uniform(0, 0.5, 2)
        image = SimpleNamespace(model=SimpleNamespace(basis=form))
        over = BoxImage(center, radius, image, h, np.array([0.5]))
        shift = rng.uniform(-0.4, 0.4, 2)
        ((late, early),) = over.crossings(steps, (center + shift * radius, part * radius))
        for sign in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            s = (
                fractions(center + shift * radius) + np.array(sign) * fractions(part * radius) - fractions(center)
            ) / fractions(radius)
            monomials = [s[0] ** i * s[1] ** j for i, j in form.exponents.tolist()]
            begun = steps * (fractions(h[0]) @ np.array(monomials, object))
            with ctx.workprec(PRECISION):
                latest, earliest = rational(late.upper()), rational(early.lower())
            assert begun <= latest and earliest <= begun + Fraction(1, 2)


def long_polygons(rng, count):
    """Convex polygons about the origin, some of them a million times as long as wide, in any direction."""
    for _ in range(count):
        k = 9
        angles = 2 * np.pi * (np.arange(k) + rng.uniform(0, 0.5, k)) / k
        turn, stretch = rng.uniform(0, np.pi), 10.0 ** rng.uniform(0, 6)
        matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) * [stretch, 1.0]
        yield Polygon(np.stack([np.cos(angles), np.sin(angles)], axis=1) @ matrix.T)


def exact_edges(polygon):
    """The outward normals of the edges, and how far the edges are along them, exactly."""
    v = fractions(polygon.vertices)
    steps = np.roll(v, -1, axis=0) - v
    normals = np.stack([steps[:, 1], -steps[:, 0]], axis=1)
    return normals, (normals * v).sum(axis=1)


def strictly_inside(polygon, y):
    normals, away = exact_edges(polygon)
    return bool(np.all(normals @ y < away))


def test_images_are_inside_a_polygon_only_if_every_point_is():
    """Points on an edge, moved by a few roundings or more; with a polynomial, generators and radii that reach the edge."""
    rng, found, reach_of = np.random.default_rng(15), [], jax.jit(reach)
    for polygon in long_polygons(rng, 30):
        assert polygon.convex()
        edges = polygon.edges
        normals, away = exact_edges(polygon)
        for edge in EDGE:
            k, part = int(rng.integers(len(normals))), rng.uniform(0.2, 0.8)
            y = (polygon.vertices[k] + part * (np.roll(polygon.vertices, -1, axis=0)[k] - polygon.vertices[k])) * (
                1 + edge
            )
            kind = rng.integers(4)
            parts = np.zeros((6, 2))
            parts[0] = y if kind == 0 else 0.5 * y
            generators, radius, more = np.zeros((1, 2, 2)), np.zeros(2), np.zeros(2)
            if kind == 1:
                parts[1] = 0.5 * y
            elif kind == 2:
                generators[0, :, 0] = 0.5 * y
            elif kind == 3:
                # Along the normal as far as y, and nowhere else.
                n = np.asarray(edges.center)[k]
                radius = 0.25 * np.abs(n @ y) / np.abs(n).sum() * np.ones(2)
                more = radius
            far = reach_of(
                edges,
                TaylorModel(jnp.asarray(parts), jnp.asarray(radius), basis(2, 2)),
                jnp.asarray(generators),
                jnp.asarray(more),
            )
            proved, ratio = inside(polygon, np.asarray(far)[None])
            farthest = (
                normals @ fractions(parts[0]) + np.abs(normals @ fractions(parts[1:]).T).sum(axis=1)
                + np.abs(normals @ fractions(generators[0, :, 0])) + np.abs(normals) @ (fractions(radius) + fractions(more))
            )  # fmt: skip
            true = bool(np.all(farthest < away))
            assert true or not proved[0], edge
            assert bool(proved[0]) == (ratio < 1)
            found.append((edge, true, bool(proved[0])))
            quad = np.stack([y, 0 * y, 0.1 * y, 0.2 * y])
            assert strictly_inside(polygon, fractions(y)) or not _within(polygon, quad[None])[0]
    assert all(proved for edge, true, proved in found if true and edge < -1e-6)


@pytest.mark.medium
def test_a_polygon_holds_another_only_if_it_does():
    rng, found = np.random.default_rng(16), []
    for _ in range(40):
        k = 12
        directions = attracting._around(k)
        polygon = from_supports(directions, 1 + 0.02 * rng.uniform(0, 1, k))
        supports = np.max(directions @ polygon.vertices.T, axis=1)
        for edge in EDGE:
            i = int(rng.integers(k))
            inner = supports * (1 - 1e-3)
            inner[i] = supports[i] * (1 + edge)
            claimed = holds(polygon, directions, inner)
            # The corner of the two lines next to each other, which may lie beyond others but on no polygon's inside then.
            l, b = fractions(directions[[i, (i + 1) % k]]), fractions(inner[[i, (i + 1) % k]])
            corner = inverse(l) @ b
            if claimed and np.all(fractions(directions) @ corner <= fractions(inner)):
                assert strictly_inside(polygon, corner), edge
            found.append((edge, claimed))
    assert all(claimed for edge, claimed in found if edge < -1e-9) and not any(
        claimed for edge, claimed in found if edge > 0
    )


def test_a_polygon_of_other_directions_holds_a_set_only_if_it_holds_its_corners():
    """A regular polygon turned by a small angle against the directions of the set: no edge is normal to one of these."""
    k, found = 12, []
    directions = attracting._around(k)
    for angle in (1e-3, -1e-2):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        polygon = Polygon(from_supports(directions, np.ones(k)).vertices @ turn.T)
        for part in np.linspace(-8, 2, 41):
            supports = np.full(k, 1 + part * abs(angle))
            claimed = holds(polygon, directions, supports)
            l, b = fractions(directions), fractions(supports)
            corners = [inverse(l[[i, (i + 1) % k]]) @ b[[i, (i + 1) % k]] for i in range(k)]
            true = all(strictly_inside(polygon, corner) for corner in corners)
            assert true or not claimed, (angle, part)
            found.append((claimed, true))
    assert any(claimed for claimed, _ in found) and not all(true for _, true in found)


def test_polygons_that_are_not_convex_are_refused():
    """A vertex is moved inward to the line through its neighbours, and a little to either side; and the origin to an edge."""
    rng, found = np.random.default_rng(17), []
    for polygon in long_polygons(rng, 20):
        for edge in EDGE:
            v = polygon.vertices.copy()
            k = int(rng.integers(len(v)))
            middle = 0.5 * (v[k - 1] + np.roll(v, -1, axis=0)[k])
            v[k] = middle * (1 + edge)
            w = fractions(v)
            steps = np.roll(w, -1, axis=0) - w
            following = np.roll(steps, -1, axis=0)
            turns = steps[:, 0] * following[:, 1] - steps[:, 1] * following[:, 0]
            origin = np.all((np.stack([steps[:, 1], -steps[:, 0]], axis=1) * w).sum(axis=1) > 0)
            true = bool(np.all(turns > 0) and origin)
            assert true or not Polygon(v).convex(), edge
            found.append((edge, true, Polygon(v).convex()))
            shifted = polygon.vertices - (
                polygon.vertices[k - 1] + 0.3 * (polygon.vertices[k] - polygon.vertices[k - 1])
            ) * (1 + edge)
            _, away = exact_edges(Polygon(shifted))
            assert np.all(away > 0) or not Polygon(shifted).convex()
    assert all(claimed for edge, true, claimed in found if true and edge > 1e-4)
    around = np.concatenate([attracting._around(9)] * 2)
    twice = around * np.linspace(1, 1.001, 18)[:, None]
    assert not Polygon(twice).convex()


def test_pieces_hold_their_corners():
    """The corners of quadrilaterals of any size and place, at the corners of the square, within the radius."""
    rng, form = np.random.default_rng(18), basis(2, 2)
    quads = rng.normal(size=(50, 4, 2)) * 10.0 ** rng.uniform(-9, 3, (50, 4, 2)) + 1e6 * rng.normal(size=(50, 1, 2))
    models = pieces(quads, form)
    for i in range(len(quads)):
        c, r = fractions(models.coefficients[i]), fractions(models.radius[i])
        for corner, (s, t) in zip(fractions(quads[i]), ((-1, -1), (1, -1), (1, 1), (-1, 1)), strict=True):
            value = c[0] + s * c[form.linear(0)] + t * c[form.linear(1)] + s * t * c[form.index((1, 1))]
            assert np.all(np.abs(value - corner) <= r)


def test_norms_and_reasons():
    rng = np.random.default_rng(19)
    for _ in range(200):
        a = rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(-3, 3, (2, 2))
        # |a u| for exact unit vectors, and the norm by LAPACK, to its rounding.
        norm = Fraction(float(_norm(jnp.asarray(a))))
        for u in (
            (Fraction(3, 5), Fraction(4, 5)),
            (Fraction(-4, 5), Fraction(3, 5)),
            (Fraction(1), Fraction(0)),
            (Fraction(0), Fraction(1)),
        ):
            image = fractions(a) @ np.array(u, object)
            assert image @ image <= norm**2
        assert np.linalg.norm(a, 2) <= float(norm) * (1 + 1e-15) and float(norm) < np.linalg.norm(a, 2) * (1 + 1e-12)
    square = from_supports(attracting._around(8), np.ones(8))
    far = np.concatenate(
        [
            np.full((3, 8), 0.5),
            0.5 * np.sum(np.asarray(square.edges.center) * square.vertices, axis=1) * np.ones((3, 1)),
        ],
        axis=1,
    )
    held = {"one": np.array([True, True, True]), "two": np.array([True, False, True])}
    given = dict(norms=np.array([0.1, 0.9, 0.3]), tubes=(), quads=np.zeros((3, 4, 2)), polygon=square, directions=8)
    reached = PolygonImage(far=far, conditions=held, **given)
    assert reached.proved.tolist() == [True, False, True] and reached.norm == 0.9
    assert len(reached.reasons) == 1 and "1 of 3 pieces: two" in reached.reasons[0]
    wide = far.copy()
    wide[2, 11] *= 2.0001
    assert "the image reaches 1.0001" in PolygonImage(far=wide, conditions={"one": held["one"]}, **given).reasons[0]
    star = Polygon(square.vertices * np.where(np.arange(8) % 2, 1, 0.3)[:, None])
    assert "convex" in PolygonImage(far=far, conditions={"one": held["one"]}, **(given | {"polygon": star})).reasons[0]


class Images:
    """Images of polygons under a linear map, with a derivative whose norm is told by the size of the set."""

    def __init__(self, directions, factor, norm, failed=()):
        self.directions, self.factor, self.norm_of, self.failed = directions, factor, norm, failed
        self.sets = []

    def all(self, polygon, directions):
        size = float(np.max(directions @ polygon.vertices.T))
        self.sets.append(size)
        supports = self.factor(size) * np.ones(len(directions))
        ratio = self.factor(size) / size
        reasons = (*self.failed, *(("far",) if not ratio < 1 else ()))
        return SimpleNamespace(
            reasons=reasons,
            failed=self.failed,
            norm=self.norm_of(size),
            supports=supports,
            ratio=ratio,
            polygon=polygon,
        )

    def boundary(self, polygon, directions, strength=1.0):
        found = self.all(polygon, directions)
        found.proved = np.full(3, not found.reasons)
        return found


def test_orbits_converge_only_from_a_chain_of_sets_that_ends_in_a_contraction():
    directions = attracting._around(16)
    # Halved in each stride; the derivative contracts below 0.02.
    images = Images(directions, lambda size: 0.5 * size, lambda size: 0.9 if size < 0.02 else 1.1)
    reached, count, norm = attracting._funnel(images, directions, None, 60)
    assert norm == 0.9 and count > 2 and not reached.reasons and images.sets[-1] < 0.02
    # Each set of the chain holds the image of the one before.
    chain = images.sets[-count:]
    assert all(after > 0.5 * before for before, after in itertools.pairwise(chain))
    # No contraction anywhere, or too few sets, or a set that is not mapped inside: no convergence.
    for factor, norm_of, most in (
        (lambda size: 0.5 * size, lambda size: 1.0, 60),
        (lambda size: 0.5 * size, lambda size: 0.9 if size < 0.02 else 1.1, 2),
        (lambda size: 1.01 * size, lambda size: 0.9, 60),
        (lambda size: max(0.5 * size, 0.03), lambda size: 0.9 if size < 0.02 else 1.1, 60),
        # The second set contracts, and reaches beyond itself.
        (lambda size: 0.5 * size if size > 0.06 else 1.01 * size, lambda size: 0.9 if size < 0.06 else 1.1, 60),
    ):
        *_, norm = attracting._funnel(Images(directions, factor, norm_of), directions, None, most)
        assert not norm < 1
    # A stage whose images are not proved.
    reached, _, norm = attracting._funnel(
        Images(directions, lambda size: 0.5 * size, lambda size: 0.5, ("it fails",)), directions, 0.1, 60
    )
    assert reached.reasons and not norm < 1


def test_sets_of_a_chain_that_do_not_hold_the_images_before_them_prove_nothing(monkeypatch):
    """Sets made smaller instead of larger than the images: orbits may leave the chain."""
    directions = attracting._around(16)
    images = lambda: Images(directions, lambda size: 0.5 * size, lambda size: 0.9 if size < 0.02 else 1.1)
    for factor in (0.9, 1 - 1e-9, 1 + 1e-4):
        monkeypatch.setattr(attracting, "_rounded", lambda supports, factor=factor: factor * supports)
        reached, _, norm = attracting._funnel(images(), directions, None, 60)
        assert not reached.reasons and (norm < 1) == (factor > 1)


def test_a_disturbed_set_is_one_whose_pieces_are_all_mapped_inside():
    directions = attracting._around(16)
    images = Images(directions, lambda size: 0.5 * size + 0.1, lambda size: 0.5)
    reached, _, _ = attracting._invariant(images, directions, np.full(16, 0.05), 60)
    assert not reached.reasons and 0.2 < images.sets[-1] < 0.22
    growing = Images(directions, lambda size: 1.1 * size + 0.1, lambda size: 0.5)
    assert attracting._invariant(growing, directions, np.full(16, 0.05), 10)[0].reasons


class Bulging(Images):
    """Images of which the pieces reach farther than points at the boundary, by 3/10."""

    def all(self, polygon, directions):
        pieces = Images(self.directions, lambda size: 1.3 * self.factor(size), self.norm_of).all(polygon, directions)
        pieces.of_pieces = True
        return pieces

    def boundary(self, polygon, directions, strength=1.0):
        found = Images.all(self, polygon, directions)
        found.of_pieces = False
        return found


def test_a_disturbed_set_is_not_proved_by_its_boundary():
    """Points are mapped inside from sizes of 1/5 on, pieces from 0.13 / (1 - 0.65) = 13/35."""
    directions = attracting._around(16)
    images = Bulging(directions, lambda size: 0.5 * size + 0.1, lambda size: 0.5)
    reached, _, _ = attracting._invariant(images, directions, np.full(16, 0.05), 60)
    assert reached.of_pieces and not reached.reasons and 13 / 35 < images.sets[-1] < 0.4


class Disturbed:
    """Images of points under a linear map and a disturbance, that are known while this is small enough."""

    def __init__(self, largest):
        self.largest, self.points, self.tried = largest, 0, []
        self.of = SimpleNamespace(axes=identity_frame(2), jacobian=0.5 * np.eye(2))

    def boundary(self, polygon, directions, strength=1.0):
        self.points += 2 * len(directions)
        self.tried.append(strength)
        supports = 0.5 * np.max(directions @ polygon.vertices.T, axis=1) + strength
        failed = ("not proved for all",) if strength > self.largest else ()
        return SimpleNamespace(supports=supports, failed=failed)


@pytest.mark.parametrize("largest", [0.5, 0.03, 2e-8])
def test_the_largest_disturbance_that_seems_provable_is_found_by_few_points(largest):
    directions = attracting._around(16)
    images = Disturbed(largest)
    found = attracting._seems_provable(images, directions)
    assert 0.86 * largest < found <= largest
    # 8 powers of ten and 4 halvings, of two polygons each.
    assert images.points <= 24 * 32 and max(images.tried) < 1
    assert attracting._seems_provable(Disturbed(1e-12), directions) is None
    reason = attracting._too_large("it fails", 10.0, found)
    assert (
        "it fails" in reason
        and f"{found * 10:.2g}" in reason
        and "none was found" in attracting._too_large("", 1, None)
    )


def test_a_disturbed_set_that_fails_is_refused_by_few_points():
    """Points at the boundary fail: no pieces are mapped. An image that grows without end has many sets, but no pieces either."""
    directions = attracting._around(16)
    failing = Images(directions, lambda size: 0.5 * size + 0.1, lambda size: 0.5, ("it fails",))
    reached, count, _ = attracting._invariant(failing, directions, np.full(16, 0.05), 60)
    assert reached.reasons and count == len(failing.sets) == attracting.GIVEN_UP


def test_cells_are_proved_by_cells_that_hold_their_images():
    """`latest` of random boxes against all finest cells, each a closed square."""
    rng = np.random.default_rng(20)
    grid = _CellGrid(1.0, 8, 1, from_supports(attracting._around(8), np.full(8, 0.2)))
    grid.strides = np.where(rng.random((16, 16)) < 0.9, rng.integers(0, 4, (16, 16)), -1)
    for _ in range(300):
        low = rng.choice(grid.lines, 2) + rng.choice([0.0, 1e-9, -1e-9, 0.02], 2)
        high = low + rng.choice([0.0, 1e-9, 0.125, 0.3], 2)
        found = grid.latest(low, high)
        beyond = np.any(low < -1) or np.any(high > 1)
        met = [
            grid.strides[i, j]
            for i in range(16)
            for j in range(16)
            # The interior of the cell meets the box; a box on a line is in either of its cells.
            if all(
                grid.lines[k] < h and low_ < grid.lines[k + 1]
                for k, low_, h in ((i, low[0], high[0]), (j, low[1], high[1]))
            )
        ]
        if found >= 0:
            assert not beyond and all(0 <= each <= found for each in met)
    assert grid.latest(np.array([-1.1, 0.0]), np.array([0.0, 0.1])) == -1
    grid.strides[:] = -1
    grid.strides[4, 4] = 0
    cell, other = np.array([1, 5, 4]), np.array([1, 9, 9])
    at = lambda i, j: (
        np.array([grid.lines[i] + 0.01, grid.lines[j] + 0.01]),
        np.array([grid.lines[i] + 0.02, grid.lines[j] + 0.02]),
    )
    waiting, proved = _settled(
        grid, [(other, False, *at(5, 4)), (cell, False, *at(4, 4)), (np.array([1, 0, 0]), False, *at(12, 12))]
    )
    assert [(tuple(c), n) for c, n in proved] == [((1, 5, 4), 1), ((1, 9, 9), 2)] and len(waiting) == 1


def test_a_section_at_one_time_is_proved_only_for_guards_of_that_time():
    """cos t falls through zero at pi / 2; the orbit's time is off by less than half of `MOMENT`, or not, or states are far."""
    clock = hj.HybridSystem(
        {"m": hj.Mode(lambda t, x, p: -x, ("x",))},
        (hj.Transition("m", "m", lambda t, x, p: jnp.cos(t), lambda t, x, p: x),),
    )
    run = lambda system: jax.jit(lambda around, y: at_the_time(ModeField(system, "m", None, True), 0, around, y))
    of_cosine = run(clock)
    at = lambda late, around, reach: bool(
        of_cosine(
            ball(jnp.array([0.0, np.pi / 2 + around]), jnp.array([0.1, reach])), jnp.array([0.0, np.pi / 2 + late])
        )
    )
    assert at(0.0, 0.0, 1e-5) and at(0.3 * MOMENT, 0.0, 1e-5) and at(-0.3 * MOMENT, 0.0, 1e-5)
    assert not at(0.45 * MOMENT, 0.0, 1e-5) and not at(-0.45 * MOMENT, 0.0, 1e-5)
    assert at(0.0, 0.0, 0.4 * NEAR) and not at(0.0, 0.0, 0.6 * NEAR) and not at(0.0, 0.6 * NEAR, 0.0)
    # Zero for all times, and rising.
    for guard in (
        lambda t, x, p: 0 * t,
        lambda t, x, p: t - np.pi / 2,
        lambda t, x, p: jnp.sin(3000 * (np.pi / 2 - t)),
    ):
        other = hj.HybridSystem({"m": clock.mode("m")}, (hj.Transition("m", "m", guard, lambda t, x, p: x),))
        y = jnp.array([0.0, np.pi / 2])
        assert not run(other)(ball(y, jnp.array([0.1, 1e-6])), y)


def test_one_condition_does_not_prove_an_image():
    given = np.zeros(1), np.zeros(1), [[0.2]], [[0.0]]
    conditions = lambda *held: {str(i): jnp.asarray(each) for i, each in enumerate(held)}
    assert image_of(*given, conditions=conditions(True, True)).proved
    assert not image_of(*given, conditions=conditions(True, False)).proved
