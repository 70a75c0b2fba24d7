"""Certificates of attraction: the simplest walker under disturbances, against disturbed trajectories and against wrong sets."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hyjax as hj
from hyjax.certify.polygon import from_supports, holds, inside, Polygon
from hyjax.certify.return_map import ReturnMap
from hyjax.models import simplest_walker as walker

attracting = importlib.import_module("hyjax.certify.attracting")
BOUND, FACETS, RINGS = 1e-5, 16, 2


@pytest.fixture(scope="module")
def gait():
    params = walker.Params()
    return hj.periodic_orbit(walker.system, walker.guess(params), params, sequence=walker.sequence)


@pytest.fixture(scope="module")
def images(gait):
    """One compiled program for all sets of so many pieces."""
    of = ReturnMap(gait, hj.certify.Disturbance(BOUND), steps=32, orders=12)
    return attracting._Images(of, RINGS, FACETS, 2)


@pytest.fixture(scope="module")
def found(images):
    directions, _ = attracting._regular(FACETS, 1.0)
    return attracting._invariant(images, directions, 1e-3, 30)


def rate(x, w, slope):
    theta, theta_rate, phi, phi_rate = x
    sine, cosine = np.sin(theta - slope), np.cos(theta - slope)
    return np.stack([theta_rate, sine, phi_rate, sine + (theta_rate**2 - cosine) * np.sin(phi)]) + w


def disturbed_return(z, wind, slope=0.009, h=0.005):
    """Pre-impact (theta, theta') of the next strike, by Runge and Kutta of order 4 with steps of 0.005 (error 1e-11) and Newton's
    method for the last one; `wind(k)`: the disturbance of step k, shape (4, count)."""
    theta, theta_rate = z
    cosine = np.cos(2 * theta)
    x = np.stack([-theta, cosine * theta_rate, -2 * theta, (1 - cosine) * cosine * theta_rate])
    done, end = np.zeros(x.shape[1], bool), np.full_like(x, np.nan)

    def step(x, w, h):
        a = rate(x, w, slope)
        b = rate(x + 0.5 * h * a, w, slope)
        c = rate(x + 0.5 * h * b, w, slope)
        d = rate(x + h * c, w, slope)
        return x + h / 6 * (a + 2 * b + 2 * c + d)

    for k in range(1200):
        w = wind(k)
        after = step(x, w, h)
        fell = ~done & (2 * x[0] - x[2] > 0) & (2 * after[0] - after[2] <= 0)
        if fell.any():
            part = np.full(x.shape[1], 0.5 * h)
            for _ in range(6):
                y = step(x, w, part)
                v = rate(y, w, slope)
                part = part - (2 * y[0] - y[2]) / (2 * v[0] - v[2])
            end = np.where(fell, step(x, w, part), end)
            done |= fell
        x = after
        if done.all():
            break
    assert done.all()
    return end[:2]


def winds(kind, count, bound, rng):
    """Disturbances on the bound: constant, random at every step, switching, in one direction of the unstable plane."""
    direction = rng.normal(size=(4, count))
    direction *= bound / np.linalg.norm(direction, axis=0)
    if kind == "constant":
        return lambda k: direction
    if kind == "switching":
        times = rng.uniform(100, 700, count)
        return lambda k: np.where(k < times, direction, -direction)
    if kind == "unstable":
        sign = rng.choice([-1.0, 1.0], count)
        return lambda k: bound * sign * np.array([[0.7], [0.7], [0.1], [0.1]])

    def random(k):
        w = rng.normal(size=(4, count))
        return bound * w / np.linalg.norm(w, axis=0)

    return random


@pytest.mark.slow
def test_a_set_is_found_and_no_disturbed_trajectory_leaves_it(images, found):
    polygon, ratio, reasons, _, _, _, _ = found
    assert reasons == () and ratio < 1 and polygon.convex()
    of, rng, count = images.of, np.random.default_rng(0), 2000
    back, forth = np.asarray(of.axes.inverse), np.asarray(of.axes.matrix)
    edges = np.asarray(polygon.edges.center)
    away = np.sum(edges * polygon.vertices, axis=1)
    reached = []
    for kind in ("constant", "switching", "unstable", "random"):
        # Starts on the boundary, where the image is widest.
        at, part = rng.integers(0, FACETS, count), rng.uniform(0, 1, count)
        y = polygon.vertices[at] + part[:, None] * (np.roll(polygon.vertices, -1, axis=0)[at] - polygon.vertices[at])
        end = disturbed_return((of.z + y @ back.T).T, winds(kind, count, BOUND, rng))
        image = (end.T - of.z) @ forth.T
        reached.append(np.max(image @ edges.T / away))
    # The bound of the certificate holds for all, and is not far from what disturbances reach.
    assert max(reached) < ratio
    assert max(reached) > 0.75 * ratio


@pytest.mark.slow
def test_pieces_hold_their_disturbed_images(images, found):
    """Piece by piece: the supports of the enclosure of a piece's image, and the images of its points."""
    polygon, of, rng = found[0], images.of, np.random.default_rng(1)
    edges = polygon.edges
    far, conditions, _, _ = images(polygon, edges)
    assert all(np.all(np.asarray(each)) for each in conditions.values())
    pieces = polygon.pieces(images.basis, RINGS, FACETS)
    back, forth = np.asarray(of.axes.inverse), np.asarray(of.axes.matrix)
    count = 200
    for piece in (3, 20, 31):
        s = rng.uniform(-1, 1, (count, 2))
        monomials = np.prod(s[:, None, :] ** images.basis.exponents, axis=2)
        y = monomials @ np.asarray(pieces.coefficients[piece])
        end = disturbed_return((of.z + y @ back.T).T, winds("constant", count, BOUND, rng))
        along = ((end.T - of.z) @ forth.T) @ np.asarray(edges.center).T
        assert np.all(along <= far[piece])


@pytest.mark.slow
def test_a_set_too_small_for_the_disturbance_is_not_proved(images, found):
    small = Polygon(0.5 * found[0].vertices)
    ratio, reasons, _, _ = attracting._tested(images, small)
    assert ratio > 1 and reasons == ()


@pytest.mark.slow
def test_a_tube_that_is_too_narrow_would_be_noticed(images, found):
    """The images of trajectories leave the polygon scaled by 0.6 of the ratio: the check above can fail."""
    polygon, ratio = found[0], found[1]
    far, _, _, _ = images(polygon, polygon.edges)
    _, measured = inside(Polygon(0.6 * ratio * polygon.vertices), np.asarray(far))
    assert measured > 1


@pytest.mark.exhaustive
def test_without_disturbance_every_orbit_converges(gait):
    certificate = hj.certify.attracting(gait, radius=4e-3, facets=16, rings=2, steps=32, orders=12, degree=3)
    assert certificate.proved and certificate.converges and certificate.norm < 1
    # A prototype with 96 pieces and first order in the state reached 0.838.
    assert certificate.ratio < 0.7
    assert "every orbit from the set converges" in str(certificate)
    rng = np.random.default_rng(0)
    starts = certificate.center + rng.uniform(0, 1, (500, 1)) * (
        certificate.vertices[rng.integers(0, 16, 500)] - certificate.center
    )
    for _ in range(12):
        starts = disturbed_return(starts.T, lambda k: 0.0).T
    assert np.max(np.abs(starts - certificate.center)) < 1e-4
    # The polygon about the image holds the ends of strides, and is not far from them.
    image = Polygon(certificate.image)
    normals = np.asarray(image.edges.center)
    _, ends = certificate.sample(1000)
    reached = (ends - certificate.center) @ np.linalg.inv(certificate.axes).T @ normals.T
    ratio = np.max(reached / np.sum(normals * image.vertices, axis=1))
    assert 0.9 < ratio < 1 and np.max(np.abs(certificate.image)) < 0.7 * np.max(np.abs(certificate.polygon))
    for tube in certificate.tubes:
        assert np.all(tube.low <= tube.start_low) and np.all(tube.start_high <= tube.high)


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


def test_polygons_are_covered_and_turn_once():
    angles = 2 * np.pi * np.arange(12) / 12
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    polygon = from_supports(directions, 1 + 0.1 * np.cos(2 * angles))
    assert polygon.convex() and not Polygon(polygon.vertices[::-1]).convex()
    assert not Polygon(polygon.vertices * np.array([1.0, -1.0])).convex()
    star = polygon.vertices * np.where(np.arange(12) % 2, 1.0, 0.4)[:, None]
    assert not Polygon(star).convex() and not Polygon(polygon.vertices + 5.0).convex()
    from hyjax.certify.basis import basis

    supports = 1 + 0.1 * np.cos(2 * angles)
    assert holds(polygon, directions, supports * (1 - 1e-9)) and not holds(polygon, directions, supports * (1 + 1e-9))
    pieces = polygon.pieces(basis(2, 2), 3, 20)
    area = 0.0
    for coefficients in np.asarray(pieces.coefficients):
        corners = [coefficients[0] + a * coefficients[1] + b * coefficients[2] + a * b * coefficients[4]
                   for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]  # fmt: skip
        area += 0.5 * sum(p[0] * q[1] - p[1] * q[0] for p, q in zip(corners, corners[1:] + corners[:1], strict=True))
    v = polygon.vertices
    whole = 0.5 * np.sum(v[:, 0] * np.roll(v[:, 1], -1) - np.roll(v[:, 0], -1) * v[:, 1])
    assert len(pieces.coefficients) == 60 and abs(area - whole) < 1e-12
    supports = jnp.asarray(np.full((4, 12), 0.5))
    assert bool(np.all(inside(polygon, np.asarray(supports) * 0.01)[0]))
    assert not bool(np.any(inside(polygon, np.full((4, 12), np.nan))[0]))
