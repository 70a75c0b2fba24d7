r"""Proof that a limit cycle attracts: a set on a section that the return map takes into its interior."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._orbit.orbit import PeriodicOrbit
from .assumptions import assumptions_of
from .basis import basis
from .certificate import Certificate, TubeBounds
from .disturbance import Disturbance, NONE
from .polygon import from_supports, holds, inside, Polygon, reach
from .return_map import Image, ReturnMap
from .section import SectionChart
from .taylor_model import TaylorModel

# Sets of the iteration are larger than the image of the set before by this factor, so that their limit is mapped inside.
WIDER = 1.006
# Pieces evaluated together by one thread.
BATCH = 16


class _Images:
    """The images of the pieces of polygons, by one compiled program."""

    def __init__(self, of: ReturnMap, rings: int, sectors: int, degree: int):
        self.of, self.rings, self.sectors, self.basis = of, rings, sectors, basis(2, degree)

        def one(piece, rows, spread):
            coefficients, radius, h, window = piece
            image: Image = of.image(TaylorModel(coefficients, radius, self.basis), h, window)
            directions = TaylorModel(rows[None], spread, image.jacobian.basis)
            far = reach(directions, image.model, image.generators, image.radius)
            size = image.jacobian.largest
            # The 2-norm is at most that of the midpoint, and of the radius by Frobenius.
            norm = jnp.sqrt(jnp.sum(image.jacobian.radius**2)) * (1 + 2.0**-45) + _norm(image.jacobian.center)
            bounds = [(tube.box_low, tube.box_high, tube.elapsed, tube.last) for tube in image.tubes]
            return far, image.conditions, norm + 2.0**-45 * jnp.sum(size), bounds

        self._run = jax.jit(jax.vmap(one, in_axes=(0, None, None)))

    def __call__(self, polygon: Polygon, directions, only: Int[np.ndarray, " some"] | None = None):
        """How far the image reaches along the directions, and along the polygon's edges; what is proved of each piece, the norm
        of the Jacobian, the tubes; `only`: of these pieces."""
        pieces = polygon.pieces(self.basis, self.rings, self.sectors)
        every = np.arange(len(pieces.radius)) if only is None else only
        edges = polygon.edges
        rows = jnp.concatenate([jnp.asarray(directions), edges.center])
        spread = jnp.concatenate([jnp.zeros_like(directions), edges.radius])

        def run(i):
            at = every[np.minimum(np.arange(i, i + BATCH), len(every) - 1)]
            batch = TaylorModel(pieces.coefficients[at], pieces.radius[at], pieces.basis)
            given = (batch.coefficients, batch.radius, *self.of.timing(batch))
            return jax.device_get(self._run(given, rows, spread))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            done = list(pool.map(run, range(0, len(every), BATCH)))
        return _Reached(
            *jax.tree.map(lambda *each: np.concatenate(each)[: len(every)], *done), polygon, len(directions)
        )


class _Reached(NamedTuple):
    """How far the image of each piece reaches along the directions, then along the edges of the polygon; what is proved of it."""

    far: Float[np.ndarray, "pieces rows"]
    conditions: dict[str, Bool[np.ndarray, " pieces"]]
    norms: Float[np.ndarray, " pieces"]
    bounds: list
    polygon: Polygon
    directions: int

    @property
    def supports(self) -> Float[np.ndarray, " directions"]:
        """Of the image, along the directions."""
        return np.max(self.far[:, : self.directions], axis=0)

    @property
    def norm(self) -> float:
        """A bound of the 2-norm of the Jacobian over the polygon."""
        return float(np.max(self.norms))

    @property
    def ratio(self) -> float:
        """Of the image to the polygon: below 1, the image is inside."""
        return inside(self.polygon, self.far[:, self.directions :])[1]

    @property
    def failed(self) -> tuple[str, ...]:
        """What is not proved of the pieces."""
        return tuple(
            f"not proved for {int(np.sum(~each))} of {len(each)} pieces: {name}"
            for name, each in self.conditions.items()
            if not np.all(each)
        )

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not proved that the polygon is mapped into its interior; empty: it is proved."""
        found = self.failed
        if not self.polygon.convex():
            found = (*found, "the set is not proved to be a convex polygon around the orbit")
        if not self.ratio < 1:
            found = (*found, f"the image reaches {self.ratio:.4f} of the set")
        return found


def _norm(a: Float[Array, "2 2"]) -> Float[Array, ""]:
    """The 2-norm of a matrix of two rows: its largest singular value, from the trace and determinant of its Gram matrix."""
    gram = a.T @ a
    mean, half = 0.5 * (gram[0, 0] + gram[1, 1]), 0.5 * (gram[0, 0] - gram[1, 1])
    return jnp.sqrt(mean + jnp.sqrt(half**2 + gram[0, 1] ** 2)) * (1 + 2.0**-45)


def _around(count: int) -> Float[np.ndarray, "k 2"]:
    """Directions at equal angles."""
    angles = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def attracting(
    orbit: PeriodicOrbit,
    *,
    disturbance: Disturbance = NONE,
    radius: float | None = None,
    facets: int = 32,
    rings: int = 2,
    sectors: int | None = None,
    steps: int = 64,
    orders: int = 10,
    degree: int = 2,
    iterations: int = 30,
    section: SectionChart | None = None,
) -> Certificate:
    r"""A set on a section that the return map takes into its interior, under every disturbance: a proof, or an honest failure.

    With the return map $P_w$ of disturbances $\|w(t)\| \le b$: if $P_w(B) \subset \mathrm{int}\,B$ for a compact $B$, every orbit
    that starts in $B$ returns to $B$ forever. Without a disturbance the images $P(B_i) \subset B_{i+1}$ are followed to a convex
    set on which $\|D P\|_2 < 1$ and which is mapped into itself: then $B$ holds exactly one fixed point, and every orbit from $B$
    converges to its limit cycle.

    **Arguments:** `orbit`: a stable orbit whose section has two coordinates. `disturbance`: of the rates; its norm, bound and
    channels. `radius`: the size of $B$ without a disturbance, in the coordinates of the certificate; `None`: found. With a
    disturbance $B$ is found by iteration of sets. `facets`: $B$ is a polygon of so many edges. `rings`, `sectors`: it is cut
    into so many rings of pieces, the outermost of so many, by default $6 \cdot 2^{rings}$, each further ring of half as many of
    twice the size. `steps`: of each arc. `orders`: of the Taylor series in time; `degree`: of the polynomials of the initial
    state. `iterations`: at most so many sets. `section`: other coordinates than the entries that the closing reset reads.

    **Returns:** a `Certificate`, `proved` or not. `ValueError` for an orbit that failed, a batch, and a section that has not two
    coordinates.

    Source: Wilczak, Zgliczyński (2011) for the return map; the theorem is Brouwer's and Banach's.
    """
    of = ReturnMap(orbit, disturbance, section, steps, orders)
    if len(of.z) != 2:
        raise ValueError(
            f"attracting: the section of this orbit has {len(of.z)} coordinates, {of.section.names}; sets are polygons in two. "
            "Use `krawczyk`, which proves the orbit and its multipliers in any number."
        )
    if not (facets >= 8 and rings >= 1):
        raise ValueError(f"attracting: facets={facets} must be at least 8, and rings={rings} at least 1.")
    if radius is not None and not (np.isfinite(radius) and radius > 0):
        raise ValueError(f"attracting: radius={radius} must be positive and finite; None finds one.")
    images = _Images(of, rings, sectors or max(facets, 6 * 2**rings), degree)
    begun = time.perf_counter()
    directions = _around(facets)
    small = images(from_supports(directions, np.full(facets, 1e-6)), directions, np.zeros(1, int))
    compiled = time.perf_counter() - begun
    begun = time.perf_counter()
    if disturbance.bound:
        start = np.full(facets, radius) if radius else _linear_set(of, directions, small.supports)
        reached, chain, norm = _invariant(images, directions, start, iterations)
    else:
        reached, chain, norm = _funnel(images, directions, radius, iterations)
    reasons = reached.reasons
    return Certificate(
        status="not proved" if reasons else "proved",
        ratio=reached.ratio,
        reasons=reasons,
        polygon=reached.polygon.vertices,
        coordinates=of.section.names,
        center=of.z,
        axes=np.asarray(of.axes.inverse),
        disturbance=disturbance,
        converges=not disturbance.bound and norm < 1 and not reasons,
        norm=norm,
        sets=chain,
        tubes=tuple(TubeBounds.over(each) for each in reached.bounds),
        pieces=len(reached.far),
        assumptions=assumptions_of(orbit, of.timed),
        seconds=time.perf_counter() - begun,
        compile_seconds=compiled,
        orbit=orbit,
    )


def _linear_set(of: ReturnMap, directions, gain: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Supports of the least set that the linearized return map with disturbances of supports `gain` takes into itself."""
    jacobian = np.asarray(of.axes.matrix) @ of.jacobian @ np.asarray(of.axes.inverse)
    vertices, rows, total = from_supports(directions, gain).vertices, directions, np.zeros(len(directions))
    for _ in range(200):
        total += np.max(rows @ vertices.T, axis=1)
        rows = rows @ jacobian
    return total


def _invariant(images: _Images, directions, supports: Float[np.ndarray, " k"], iterations: int):
    """A polygon that the disturbed return map takes inside: the limit of images of sets, each a little larger.

    On the way only the pieces with the vertices are mapped, whose images reach farthest under a linear map; `more` is by how much
    the others reached farther at the last test of all pieces.
    """
    more, reached, polygon = np.ones(len(directions)), None, from_supports(directions, supports)
    for count in range(1, iterations + 1):
        polygon = from_supports(directions, supports)
        part = images(polygon, directions, polygon.corner_pieces(images.rings, images.sectors))
        image = part.supports * more
        if not np.all(np.isfinite(image)):
            break
        if np.max(image / supports) < 1 and not part.failed:
            reached = images(polygon, directions)
            if not reached.reasons:
                return reached, count, reached.norm
            more = np.maximum(more, reached.supports / part.supports)
            image = part.supports * more
        supports = np.maximum(image, 1e-12) * WIDER
    reached = reached or images(polygon, directions)
    return reached, iterations, reached.norm


def _funnel(images: _Images, directions, radius: float | None, iterations: int):
    """A polygon that the return map takes inside, and sets that hold the images of one another down to one on which it
    contracts: its `norm` is below 1 if that is proved."""
    size = radius or 0.1
    reached = images(from_supports(directions, np.full(len(directions), size)), directions)
    for _ in range(0 if radius else 12):
        if not reached.reasons:
            break
        size *= 0.5
        reached = images(from_supports(directions, np.full(len(directions), size)), directions)
    current, count = reached, 1
    while not current.failed and not reached.reasons and count < iterations:
        if current.norm < 1 and not current.reasons:
            return reached, count, current.norm
        following = from_supports(directions, current.supports * (1 + 1e-9) + 1e-14)
        if not holds(following, directions, current.supports):
            break
        current, count = images(following, directions), count + 1
    # The set is mapped inside all the same, if there are no reasons; that its orbits converge is not proved.
    return reached, count, np.inf
