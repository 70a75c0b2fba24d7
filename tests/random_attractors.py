r"""Proofs of attraction for random systems by one compiled program, and what is true of their sets in exact arithmetic.

The return map is $(x, y) \mapsto (f(x), y/2 + X(x)/4)$ with $f$ and $X$ piecewise polynomial, seen in sheared coordinates of a
drawn unit. A convex polygon is mapped into its interior where $\nu\cdot P(x, y)$ is less than on the edge, for the normal $\nu$
of each edge: with $y$ at the upper or lower boundary, a polynomial of $x$, piece by piece. Where it is, $f$ maps an interval
into itself, and if $f$ is continuous every orbit converges if and only if there is one fixed point and no point of the period
two (Coppel, 1955).
"""

import importlib
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_maps import distinct_roots, Family, fixed_points, Polynomial, Prover, slope, value

from hyjax._testing import Disturbance, identity_frame, NONE, polygon

attracting = importlib.import_module("hyjax.certify.attracting")
proved_basin = importlib.import_module("hyjax.certify.proved_basin")
Point = tuple[Fraction, Fraction]
# One step to the event and its time: rates are constant. A piece that is not mapped inside is cut once.
STEPS, DEGREE, FACETS, CUTS = 1, 2, 8, 1


class Place:
    """The coordinates of a section: $x = m_x + u(z_0 + hz_1)$, $y = m_y + 2uz_1$."""

    def __init__(self, centre: tuple[float, float], unit: float, shear: float):
        self.numbers = (*centre, unit - 1, shear)
        self.x, self.y, more, self.shear = map(Fraction, self.numbers)
        self.unit = 1 + more

    def of_floats(self, z0, z1):
        """x of coordinates, in floats."""
        return float(self.x) + float(self.unit) * (z0 + float(self.shear) * z1)

    def __call__(self, z) -> Point:
        """x and y, exactly."""
        z0, z1 = map(Fraction, z)
        return self.x + self.unit * (z0 + self.shear * z1), self.y + 2 * self.unit * z1


class Known:
    """The return map of a system in closed form.

    **Attributes:** `breaks`, `polynomials`: of x after the jump. `before_breaks`, `lines`: of x before it.
    """

    def __init__(self, family: Family, system: dict[str, float]):
        p = {name: Fraction(each) for name, each in system.items()}
        self.breaks, self.polynomials = family.pieces(p)
        same = p | dict.fromkeys(("c0", "c2", "c3", "e", "j"), Fraction(0)) | {"c1": Fraction(1)}
        self.before_breaks, lines = family.pieces({name: same[name] for name in p})
        self.lines = [line[:2] for line in lines]

    def piece(self, x: Fraction) -> int:
        return sum(x > each for each in self.breaks)

    def __call__(self, x: Fraction, y: Fraction) -> Point:
        return value(self.polynomials[self.piece(x)], x), y / 2 + self.before(x) / 4

    def before(self, x: Fraction) -> Fraction:
        """x before the jump."""
        return value(self.lines[sum(x > each for each in self.before_breaks)], x)

    def of_floats(self, x):
        """x after the jump and before it, in floats, of an array."""
        found = []
        for breaks, parts in ((self.breaks, self.polynomials), (self.before_breaks, self.lines)):
            which = sum(((x > float(each)).astype(int) for each in breaks), np.zeros(x.shape, int))
            found.append(np.choose(which, [np.polynomial.Polynomial([float(c) for c in each])(x) for each in parts]))
        return found

    def jumps_within(self, low: Fraction, high: Fraction) -> bool:
        """Whether the map is not continuous somewhere between two points."""
        sides = zip(self.breaks, itertools.pairwise(self.polynomials), strict=True)
        return any(low < at < high and value(a, at) != value(b, at) for at, (a, b) in sides)

    def parts(self, low: Fraction, high: Fraction) -> list[tuple[Fraction, Fraction]]:
        """The intervals between two points on which the map is polynomial."""
        ends = {low, high} | {each for each in {*self.breaks, *self.before_breaks} if low < each < high}
        return list(itertools.pairwise(sorted(ends)))


def _boundary(vertices: list[Point], upper: bool) -> list[tuple[Point, Point]]:
    """The edges of a convex polygon, counterclockwise, that are above or below it, from left to right."""
    edges = zip(vertices, [*vertices[1:], vertices[0]], strict=True)
    found = [(b, a) if upper else (a, b) for a, b in edges if (b[0] < a[0] if upper else b[0] > a[0])]
    return sorted(found)


def mapped_inside(known: Known, vertices: list[Point]) -> bool:
    """Whether a convex polygon, counterclockwise, is mapped into its interior."""
    low, high = min(x for x, _ in vertices), max(x for x, _ in vertices)
    if known.jumps_within(low, high):
        # As the closure of the image need not be inside.
        return False
    for (ax, ay), (bx, by) in zip(vertices, [*vertices[1:], vertices[0]], strict=True):
        normal = (by - ay, ax - bx)
        limit = normal[0] * ax + normal[1] * ay
        for (cx, cy), (dx, dy) in _boundary(vertices, normal[1] > 0):
            tilt = (dy - cy) / (dx - cx)
            for left, right in known.parts(cx, dx):
                middle = (left + right) / 2
                image = [normal[0] * each for each in known.polynomials[known.piece(middle)]]
                line = known.lines[sum(middle > each for each in known.before_breaks)]
                for i, each in enumerate(((cy - tilt * cx) / 2 + line[0] / 4, tilt / 2 + line[1] / 4)):
                    image[i] += normal[1] * each
                image[0] -= limit
                if not _negative(image, left, right):
                    return False
    return True


def _negative(polynomial: Polynomial, low: Fraction, high: Fraction) -> bool:
    """Whether a polynomial is below zero on [low, high]: in floats, where they leave a margin; else exactly."""
    # About the middle, in units of the half width.
    middle, half = (low + high) / 2, (high - low) / 2
    size, around = Fraction(1), []
    derivative, factor = polynomial, 1
    for k in range(len(polynomial)):
        around.append(float(value(derivative, middle) * size / factor))
        derivative, size, factor = slope(derivative), size * half, factor * (k + 1)
    s = np.linspace(-1, 1, 9)
    largest = np.max(np.polyval(around[::-1], s))
    total = np.sum(np.abs(around))
    # Between the points the second derivative bounds how much larger it is.
    curved = sum(k * (k - 1) * abs(each) for k, each in enumerate(around)) / 8 / 16
    if largest > 1e-9 * total:
        return False
    if largest + curved < -1e-9 * total:
        return True
    return value(polynomial, low) < 0 and value(polynomial, high) < 0 and not distinct_roots(polynomial, low, high)


def converges(known: Known, low: Fraction, high: Fraction) -> bool:
    """Whether there is one fixed point in [low, high], which is mapped into itself, and no point of the period two, as far as is
    seen: what is found is there."""
    if known.jumps_within(low, high):
        return False
    found = fixed_points((known.breaks, known.polynomials), low - (high - low) / 10**20, high, (high - low) / 10**15)
    if len(found) != 1:
        return False
    # A point of the period two, if there is one, is between points from which two steps lead away from the fixed point.
    rest, size = (found[0][0] + found[0][1]) / 2, high - low
    far = np.concatenate([2.0 ** -np.arange(1, 24, 0.25), np.linspace(0, 1, 120)[1:]])
    for sign in (1, -1):
        for each in far:
            x = rest + sign * size * Fraction(each)
            if low <= x <= high:
                once = value(known.polynomials[known.piece(x)], x)
                twice = value(known.polynomials[known.piece(once)], once)
                if sign * (twice - x) >= 0:
                    return False
    return True


class Attraction:
    """`attracting` and `proved_basin` for systems of a family: the functions themselves, whose return map is compiled once."""

    def __init__(self, family: Family, disturbance: Disturbance | None = None):
        disturbance = disturbance or NONE
        self.prover, self.family, self.disturbance = Prover(family, 1, STEPS, DEGREE, disturbance), family, disturbance
        self.system, self.place, self.known = {}, Place((0.0, 0.0), 1.0, 0.0), None
        self.z, self.axes, self.section, self.repeats = np.zeros(2), identity_frame(2), self.prover.map.section, ""
        self.images = polygon.PieceImages(self, 1, FACETS, DEGREE)
        # What the compiler takes longer to optimize is little of what the optimized program saves.
        self.images._run = jax.jit(self.images._run, compiler_options={"xla_backend_optimization_level": 1})

    def installed(self, patch: pytest.MonkeyPatch):
        """In place of what the functions compile for each orbit."""
        patch.setattr(polygon, "CUTS", CUTS)
        for module in (attracting, proved_basin):
            patch.setattr(module, "EnclosedMap", lambda *_, **__: self)
            patch.setattr(module, "PieceImages", lambda *_: self.images)

    def meant(self, system: dict[str, float], place: Place) -> Known:
        """The proofs that follow are of this system; what is known of it."""
        self.system, self.place, self.known = system, place, Known(self.family, system)
        self.point = np.array([*(system[name] for name in self.family.names), *place.numbers])
        # As `attracting` uses it, for a first set.
        self.jacobian = np.diag([self.known_slope(), 0.5])
        return self.known

    def known_slope(self) -> float:
        return float(value(slope(self.known.polynomials[self.known.piece(self.place.x)]), self.place.x))

    def image(self, piece, given, window, strength):
        h, point = given
        return self.prover.image(piece, point, h, window, strength)

    def timing(self, pieces, strength: float = 1.0):
        """As `EnclosedMap.timing`, by the times in closed form."""
        corners = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), *itertools.product((1.0, -1.0), repeat=2)])
        monomials = np.prod(corners[:, None, :] ** pieces.basis.exponents, axis=2)
        points = np.einsum("pn,bni->pbi", monomials, np.asarray(pieces.coefficients))
        _, before = self.known.of_floats(self.place.of_floats(points[..., 0], points[..., 1]))
        times = np.asarray(self.family.height(before, self.system))
        slopes, middle = 0.5 * (times[1:3] - times[3:5]), times[0]
        apart = np.max(np.abs(times - middle - np.einsum("pj,jb->pb", corners, slopes)), axis=0)
        # Wider than for a smooth guard: where it has a kink, its enclosure over a piece is that of both sides.
        half = 4 * apart + 1e-7 + 4 * strength * self.disturbance.bound
        h = np.zeros((len(middle), 1, pieces.basis.size))
        h[:, 0, 0] = (middle - half) / STEPS
        for j in range(2):
            h[:, 0, pieces.basis.linear(j)] = slopes[j] / STEPS
        points = np.repeat(self.point[None], len(middle), axis=0)
        return (jnp.asarray(h), jnp.asarray(points)), jnp.asarray(2 * half[:, None])

    def __call__(self, radius: float | None, iterations: int = 12):
        orbit = self.prover.orbit
        return attracting.attracting(
            orbit,
            disturbance=self.disturbance,
            radius=radius,
            facets=FACETS,
            rings=1,
            sectors=FACETS,
            max_iterations=iterations,
        )
