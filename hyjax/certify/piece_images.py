r"""The images of a polygon under the return map, piece by piece: pieces that reach too far are cut into smaller ones."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._numerics.eager import long_run
from .enclosed_map import EnclosedMap, Image
from .flow_pipe import Tube, UNDECIDED
from .polygon import inside, pieces, Polygon, quartered, reach
from .taylor_model import basis, TaylorModel

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
