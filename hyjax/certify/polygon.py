"""Convex polygons in the plane of a section: a cover by pieces, and whether an image lies inside; and the images of a polygon
under the return map, piece by piece: pieces that reach too far are cut into smaller ones."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._numerics.eager import long_run
from .enclosed_map import EnclosedMap, Image
from .flow_pipe import Tube, UNDECIDED
from .rounding import EPS, up
from .taylor_model import ball, Basis, basis, TaylorModel

_ROUNDED = 2.0**-49


class Polygon(eqx.Module):
    r"""A convex polygon with the origin inside, the hull of its vertices.

    **Attributes:** `vertices`: exact floats, counterclockwise, shape `(k, 2)`.
    """

    vertices: Float[np.ndarray, "k 2"]

    @property
    def edges(self) -> TaylorModel:
        """Outward normals $(\\Delta_y, -\\Delta_x)$ of the edges, as balls, shape `(k, 2)`."""
        steps = np.roll(self.vertices, -1, axis=0) - self.vertices
        normals = np.stack([steps[:, 1], -steps[:, 0]], axis=1)
        return ball(jnp.asarray(normals), jnp.asarray(EPS * np.abs(normals) + 1e-300))

    @property
    def supports(self) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        r"""The products $\nu_i \cdot v_i$ of the edges' normals with a vertex of the edge, and bounds of their errors."""
        normals, radius = np.asarray(self.edges.center), np.asarray(self.edges.radius)
        error = np.sum((np.abs(normals) * 2.0**-45 + radius) * np.abs(self.vertices), axis=1)
        return np.sum(normals * self.vertices, axis=1), error

    def convex(self) -> bool:
        """Whether it is proved that the vertices turn counterclockwise and the origin is inside every edge."""
        (away, error), normals, radius = self.supports, np.asarray(self.edges.center), np.asarray(self.edges.radius)
        steps = np.roll(self.vertices, -1, axis=0) - self.vertices
        following = np.roll(steps, -1, axis=0)
        # Turning: the next step points inward, against the normal.
        turn = -np.sum(normals * following, axis=1)
        slack = np.sum(np.abs(normals) * np.abs(following), axis=1) * 2.0**-45 + np.sum(
            radius * np.abs(following), axis=1
        )
        angles = np.unwrap(np.arctan2(self.vertices[:, 1], self.vertices[:, 0]))
        once = abs(angles[-1] - angles[0]) < 2 * np.pi
        return bool(np.all(turn > slack) and np.all(away > error) and once)

    def divided(self, sectors: int) -> Float[np.ndarray, "sectors 2"]:
        """Points around the boundary, the vertices among them, at least as many as vertices: the longest segments are cut."""
        ends, points = np.roll(self.vertices, -1, axis=0), []
        lengths, parts = np.linalg.norm(ends - self.vertices, axis=1), np.ones(len(self.vertices), int)
        for _ in range(sectors - len(parts)):
            parts[np.argmax(lengths / parts)] += 1
        for start, end, count in zip(self.vertices, ends, parts, strict=True):
            points += [start + j / count * (end - start) for j in range(count)]
        return np.array(points)

    def rounded(self, rings: int, sectors: int) -> int:
        """The least multiple of $2^{rings - 1}$ that is neither below `sectors` nor the number of vertices."""
        multiple = 2 ** (rings - 1)
        return -(-max(sectors, len(self.vertices)) // multiple) * multiple

    def cover(self, rings: int, sectors: int) -> Float[np.ndarray, "quads 4 2"]:
        r"""Quadrilaterals in rings, of which each has half as many as the next one outside, of twice the size; triangles around
        the origin. `sectors`: of the outermost ring, to be `rounded`.

        Neighbours share their edges, and the outermost edges lie on the boundary: the quadrilaterals together are the image of a
        disk that takes its boundary once around that of the polygon, so they cover the polygon, but for rounding.
        """
        outer, quads = self.divided(self.rounded(rings, sectors)), []
        depth = (2.0 ** np.arange(rings + 1) - 1) / (2.0**rings - 1)
        for shallow, deep in itertools.pairwise(depth):
            coarse = (1 - deep) / (1 - shallow) * outer[:: 2 if deep < 1 else 1]
            middle = 0.5 * (coarse + np.roll(coarse, -1, axis=0))
            inner = np.stack([coarse, middle], axis=1).reshape(-1, 2) if deep < 1 else coarse
            quads.append(np.stack([inner, outer, np.roll(outer, -1, axis=0), np.roll(inner, -1, axis=0)], axis=1))
            outer = coarse
        return np.concatenate(quads)


def quartered(quads: Float[np.ndarray, "quads 4 2"]) -> Float[np.ndarray, "more 4 2"]:
    """Each quadrilateral, $(1 - u)(1 - v)a + u(1 - v)b + uvc + (1 - u)vd$, cut at $u = 1/2$ and $v = 1/2$."""
    a, b, c, d = np.moveaxis(quads, 1, 0)
    ab, bc, cd, da, middle = (a + b) / 2, (b + c) / 2, (c + d) / 2, (d + a) / 2, (a + b + c + d) / 4
    four = [(a, ab, middle, da), (ab, b, bc, middle), (middle, bc, c, cd), (da, middle, cd, d)]
    return np.concatenate([np.stack(corners, axis=1) for corners in four])


def pieces(quads: Float[np.ndarray, "quads 4 2"], basis: Basis) -> TaylorModel:
    """Quadrilaterals as bilinear polynomials of two variables, shape `(quads, N, 2)` of the coefficients; the radius holds what
    the corners of a cover were rounded by."""
    coefficients = np.zeros((len(quads), basis.size, 2))
    a, b, c, d = np.moveaxis(quads, 1, 0)
    coefficients[:, 0] = 0.25 * (a + b + c + d)
    coefficients[:, basis.linear(0)] = 0.25 * (b + c - a - d)
    coefficients[:, basis.linear(1)] = 0.25 * (c + d - a - b)
    coefficients[:, basis.index((1, 1))] = 0.25 * (a + c - b - d)
    radius = EPS * 32 * np.abs(quads).sum(axis=1)
    return TaylorModel(jnp.asarray(coefficients), jnp.asarray(radius), basis)


def from_supports(directions: Float[np.ndarray, "k 2"], supports: Float[np.ndarray, " k"]) -> Polygon:
    """The polygon of points $y$ with $l_i \\cdot y \\le b_i$, for directions in order and the supports of one convex set."""
    following, values = np.roll(directions, -1, axis=0), np.roll(supports, -1)
    determinant = directions[:, 0] * following[:, 1] - directions[:, 1] * following[:, 0]
    x = (supports * following[:, 1] - values * directions[:, 1]) / determinant
    y = (directions[:, 0] * values - following[:, 0] * supports) / determinant
    return Polygon(np.stack([x, y], axis=1))


def tight(directions: Float[np.ndarray, "k 2"], bounds: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    r"""The supports of the set of points $y$ with $l_i \cdot y \le b_i$, to rounding: less than $b_i$ where the line of $l_i$
    misses the set. NaN where a bound is NaN."""
    i, j = np.triu_indices(len(directions), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = directions[i, 0] * directions[j, 1] - directions[i, 1] * directions[j, 0]
        x = (bounds[i] * directions[j, 1] - bounds[j] * directions[i, 1]) / determinant
        y = (directions[i, 0] * bounds[j] - directions[j, 0] * bounds[i]) / determinant
    # The vertices are those points where two lines meet that no other line cuts off.
    reach = np.stack([x, y], axis=1) @ directions.T
    vertices = reach[np.all(reach <= bounds + 1e-12 * np.max(np.abs(bounds)), axis=1)]
    return np.max(vertices, axis=0) if len(vertices) else np.full(len(bounds), np.nan)


def holds(polygon: Polygon, directions: Float[np.ndarray, "k 2"], supports: Float[np.ndarray, " k"]) -> bool:
    r"""Whether it is proved that the polygon holds all $y$ with $l_i \cdot y \le b_i$: edge by edge, its normal is
    $\nu_i = c_i l_i + \delta_i$ with $c_i > 0$, and $c_i b_i + |\delta_i||y| < \nu_i \cdot v_i$. The edges are in the order of
    the directions."""
    normals, radius = (
        np.roll(np.asarray(polygon.edges.center), 1, axis=0),
        np.roll(np.asarray(polygon.edges.radius), 1, axis=0),
    )
    factor = np.sum(normals * directions, axis=1) / np.sum(directions**2, axis=1)
    apart = np.abs(normals - factor[:, None] * directions) + radius + 2.0**-48 * np.abs(normals)
    away = np.sum(normals * polygon.vertices, axis=1)
    error = np.sum((np.abs(normals) * 2.0**-46 + radius) * np.abs(polygon.vertices), axis=1)
    far = 4 * np.abs(polygon.vertices).max()
    bound = factor * supports + np.sum(apart, axis=1) * far + 2.0**-46 * np.abs(factor * supports)
    return polygon.convex() and bool(np.all(factor > 0) and np.all(bound < away - error))


def reach(
    rows: TaylorModel, model: TaylorModel, generators: Float[Array, "groups 2 columns"], radius: Float[Array, " 2"]
) -> Float[Array, " k"]:
    r"""Upper bounds of $\nu_i \cdot y$ over the points $q(s) + \sum_g G_g u_g \pm r$, for rows $\nu_i$, a ball of shape `(k,
    2)`."""
    center, spread = rows.center, rows.radius
    along = jnp.einsum("ki,ni->kn", center, model.coefficients)
    parts = along[:, 0] + jnp.sum(jnp.abs(along[:, 1:]), axis=1)
    blown = jnp.einsum("ki,gij->kgj", center, generators)
    norms = jnp.sum(jnp.sqrt(jnp.sum(blown**2, axis=2)), axis=1)
    size = jnp.abs(center) + spread
    moduli = jnp.sum(jnp.abs(model.coefficients), axis=0) + jnp.sum(jnp.abs(generators), axis=(0, 2))
    rounding = 2.0**-46 * (size @ moduli) + spread @ moduli
    return parts + norms * (1 + 2.0**-46) + up(size @ (radius + model.radius) + rounding, 8)


def inside(polygon: Polygon, reached: Float[np.ndarray, "pieces k"]) -> tuple[Bool[Array, " pieces"], float]:
    """Which pieces' images are proved to lie in the interior, and the largest ratio of an image to the polygon, as seen from the
    origin: below 1 means inside."""
    away, error = polygon.supports
    ratio = np.asarray(reached) / (away - error)
    ratio = np.where(np.isfinite(ratio), ratio, np.inf) * (1 + _ROUNDED)
    return jnp.asarray(np.all(ratio < 1, axis=1)), float(ratio.max())


# Pieces evaluated together by one thread.
BATCH = 16
# How often a piece may be cut into four, and how many pieces may be cut at once; pieces that reach farther than `AIM` are cut.
CUTS, MOST, AIM = 4, 1024, 0.9995


class PolygonImage(NamedTuple):
    """What is known of the images of the pieces of a polygon.

    **Attributes:** `far`: how far each reaches along the directions, then along the edges of the polygon. `conditions`: what must
    be true of each piece, and whether it is proved. `norms`: of the Jacobians. `tubes`: arc by arc. `quads`: the pieces.
    `polygon`; `directions`: their number.
    """

    far: Float[np.ndarray, "pieces rows"]
    conditions: dict[str, Bool[np.ndarray, " pieces"]]
    norms: Float[np.ndarray, " pieces"]
    tubes: tuple[Tube, ...]
    quads: Float[np.ndarray, "pieces 4 2"]
    polygon: Polygon
    directions: int

    @property
    def supports(self) -> Float[np.ndarray, " directions"]:
        """The support numbers of the image along the directions."""
        return np.max(self.far[:, : self.directions], axis=0)

    @property
    def norm(self) -> float:
        """A bound of the 2-norm of the Jacobian over the polygon."""
        return float(np.max(self.norms))

    @property
    def ratio(self) -> float:
        """The ratio of the image to the polygon: below 1, the image is inside."""
        return inside(self.polygon, self.far[:, self.directions :])[1]

    @property
    def proved(self) -> Bool[np.ndarray, " pieces"]:
        """Whether each piece is proved to be mapped inside."""
        return np.asarray(inside(self.polygon, self.far[:, self.directions :])[0]) & self.held

    @property
    def held(self) -> Bool[np.ndarray, " pieces"]:
        """Whether all conditions are proved of each piece."""
        return np.all(list(self.conditions.values()), axis=0)

    @property
    def failed(self) -> tuple[str, ...]:
        """The conditions that are not proved of some pieces; where choices are undecided, these alone."""
        names = [name for name, each in self.conditions.items() if not np.all(each)]
        names = [name for name in names if name.startswith(UNDECIDED)] or names
        counts = [(int(np.sum(~self.conditions[name])), len(self.far), name) for name in names]
        return tuple(f"not proved for {few} of {all} pieces: {name}" for few, all, name in counts)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not proved that the polygon is mapped into its interior; empty: it is proved."""
        found = self.failed
        if not self.polygon.convex():
            found = (*found, "the set is not proved to be a convex polygon around the orbit")
        if not self.ratio < 1:
            found = (*found, f"the image reaches {self.ratio:.4f} of the set")
        return found


class PieceImages:
    """The images of the pieces of polygons, by one compiled program, in as many threads as the machine has cores.

    **Arguments:** `rings`, `sectors`: of the cover of a polygon. `degree`: of the polynomials of the initial state.
    """

    def __init__(self, of: EnclosedMap, rings: int, sectors: int, degree: int):
        self.of, self.rings, self.sectors, self.basis = of, rings, sectors, basis(2, degree)

        def one(piece, rows, spread, strength):
            coefficients, radius, h, window = piece
            image: Image = of.image(TaylorModel(coefficients, radius, self.basis), h, window, strength)
            directions = TaylorModel(rows[None], spread, image.jacobian.basis)
            far = reach(directions, image.model, image.generators, image.radius)
            size = image.jacobian.largest
            # The 2-norm is at most that of the midpoint, and of the radius by Frobenius.
            norm = jnp.sqrt(jnp.sum(image.jacobian.radius**2)) * (1 + 2.0**-45) + _norm(image.jacobian.center)
            return far, image.conditions, norm + 2.0**-45 * jnp.sum(size), image.tubes

        self._run = long_run(jax.vmap(one, in_axes=(0, None, None, None)))

    def boundary(self, polygon: Polygon, directions: Float[np.ndarray, "k 2"], strength: float = 1.0) -> PolygonImage:
        """The images of points at the boundary, which reach farthest; no proof for the polygon."""
        points = polygon.divided(2 * len(polygon.vertices))
        return self.mapped(polygon, np.repeat(points[:, None], 4, axis=1), directions, strength)

    def all(self, polygon: Polygon, directions: Float[np.ndarray, "k 2"]) -> PolygonImage:
        """The images of pieces that cover the polygon; those that are not proved, or reach far, are cut into four."""
        quads, parts = polygon.cover(self.rings, self.sectors), []
        for _ in range(CUTS):
            reached = self.mapped(polygon, quads, directions)
            good = reached.held & np.asarray(inside(polygon, reached.far[:, len(directions) :] / AIM)[0])
            if np.all(good) or np.sum(~good) > MOST:
                break
            parts.append(jax.tree.map(lambda a, good=good: a[good], reached[:5]))
            quads = quartered(quads[~good])
        else:
            reached = self.mapped(polygon, quads, directions)
        return _joined([*parts, reached[:5]], polygon, len(directions))

    def mapped(
        self, polygon: Polygon, quads: Float[np.ndarray, "quads 4 2"], directions, strength: float = 1.0
    ) -> PolygonImage:
        """The images of quadrilaterals, each proved or not; they need not cover the polygon, nor lie in it. With another
        `strength` than 1, a part of the disturbance, they prove nothing."""
        covered, edges, count = pieces(quads, self.basis), polygon.edges, len(quads)
        rows = jnp.concatenate([jnp.asarray(directions), edges.center])
        spread = jnp.concatenate([jnp.zeros_like(directions), edges.radius])

        def run(i: int):
            at = np.minimum(np.arange(i, i + BATCH), count - 1)
            batch = TaylorModel(covered.coefficients[at], covered.radius[at], covered.basis)
            given = (batch.coefficients, batch.radius, *self.of.timing(batch, strength))
            return *jax.device_get(self._run(given, rows, spread, strength)), quads[at]

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = list(pool.map(run, range(0, count, BATCH)))
        joined = _joined(done, polygon, len(directions))
        return joined._replace(**dict(zip(joined._fields, jax.tree.map(lambda a: a[:count], joined[:5]), strict=False)))


def _joined(parts: list, polygon: Polygon, directions: int) -> PolygonImage:
    far, conditions, norms, tubes, quads = jax.tree.map(lambda *each: np.concatenate(each), *parts)
    return PolygonImage(far, conditions, norms, tubes, quads, polygon, directions)


def _norm(a: Float[Array, "2 2"]) -> Float[Array, ""]:
    """The 2-norm of a matrix of two rows: its largest singular value, from the trace and determinant of its Gram matrix."""
    gram = a.T @ a
    mean, half = 0.5 * (gram[0, 0] + gram[1, 1]), 0.5 * (gram[0, 0] - gram[1, 1])
    return jnp.sqrt(mean + jnp.sqrt(half**2 + gram[0, 1] ** 2)) * (1 + 2.0**-45)
