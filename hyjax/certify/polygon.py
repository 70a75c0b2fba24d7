r"""Convex polygons in the plane of a section: a cover by pieces, and whether an image lies inside."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .rounding import EPS, up
from .taylor_model import ball, Basis, TaylorModel

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
    rows: TaylorModel,
    model: TaylorModel,
    generators: Float[Array, "groups 2 columns"],
    radius: Float[Array, " 2"],
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
