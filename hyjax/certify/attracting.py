r"""Proof that a limit cycle attracts: a set on a section that the return map takes into its interior."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

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
# Pieces evaluated together.
BATCH = 64


class _Images:
    """The images of the pieces of polygons, by one compiled program."""

    def __init__(self, of: ReturnMap, rings: int, sectors: int, degree: int):
        self.of, self.rings, self.sectors, self.basis = of, rings, sectors, basis(2, degree)

        def one(piece):
            coefficients, radius, h, window, rows, spread = piece
            image: Image = of.image(TaylorModel(coefficients, radius, self.basis), h, window)
            directions = TaylorModel(rows[None], spread, image.jacobian.basis)
            far = reach(directions, image.model, image.generators, image.radius)
            size = image.jacobian.largest
            # The 2-norm is at most that of the midpoint, and of the radius by Frobenius.
            norm = jnp.sqrt(jnp.sum(image.jacobian.radius**2)) * (1 + 2.0**-45) + _norm(image.jacobian.center)
            bounds = [
                (tube.box_low, tube.box_high, tube.elapsed, tube.last, tube.low, tube.high) for tube in image.tubes
            ]
            return far, image.conditions, norm + 2.0**-45 * jnp.sum(size), bounds

        @jax.jit
        def run(pieces, rows, spread):
            count = pieces[0].shape[0]
            return jax.lax.map(lambda piece: one((*piece, rows, spread)), pieces, batch_size=min(BATCH, count))

        self._run = run

    def __call__(self, polygon: Polygon, rows: TaylorModel):
        """How far the image reaches along the rows, what is proved of each piece, the norm of the Jacobian, the tubes."""
        pieces = polygon.pieces(self.basis, self.rings, self.sectors)
        h, window = self.of.timing(pieces)
        far, conditions, norm, bounds = jax.block_until_ready(
            self._run((pieces.coefficients, pieces.radius, h, window), rows.center, rows.radius)
        )
        return np.asarray(far), conditions, np.asarray(norm), bounds


def _norm(a: Float[Array, "2 2"]) -> Float[Array, ""]:
    """The 2-norm of a matrix of two rows: its largest singular value, from the trace and determinant of its Gram matrix."""
    gram = a.T @ a
    mean, half = 0.5 * (gram[0, 0] + gram[1, 1]), 0.5 * (gram[0, 0] - gram[1, 1])
    return jnp.sqrt(mean + jnp.sqrt(half**2 + gram[0, 1] ** 2)) * (1 + 2.0**-45)


def _failed(conditions: dict[str, Bool[Array, " pieces"]]) -> tuple[str, ...]:
    return tuple(
        f"not proved for {int(np.sum(~np.asarray(each)))} of {len(each)} pieces: {name}"
        for name, each in conditions.items()
        if not bool(np.all(np.asarray(each)))
    )


def _regular(count: int, radius: float) -> tuple[Float[np.ndarray, "k 2"], Float[np.ndarray, " k"]]:
    angles = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1), np.full(count, radius)


def attracting(
    orbit: PeriodicOrbit,
    *,
    disturbance: Disturbance = NONE,
    radius: float | None = None,
    facets: int = 32,
    rings: int = 4,
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
    disturbance $B$ is found by iteration of sets. `facets`: $B$ is a polygon of so many edges. `rings`, `sectors`: it is cut into
    `rings * sectors` pieces, with as many sectors as edges by default. `steps`: of each arc. `orders`: of the Taylor series in
    time; `degree`: of the polynomials of the initial state. `iterations`: at most so many sets. `section`: other coordinates than
    the entries that the closing reset reads.

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
    images = _Images(of, rings, sectors or facets, degree)
    begun = time.perf_counter()
    directions, _ = _regular(facets, 1.0)
    small = from_supports(directions, np.full(facets, 1e-6))
    images(small, small.edges)
    compiled = time.perf_counter() - begun
    begun = time.perf_counter()
    if disturbance.bound:
        found = _invariant(images, directions, radius, iterations)
    else:
        found = _funnel(images, directions, radius, iterations)
    polygon, ratio, reasons, contracts, chain, bounds, norm = found
    supports, failed, _, _ = _supports(images, polygon, directions)
    return Certificate(
        status="proved" if not reasons else "not proved",
        ratio=ratio,
        reasons=reasons,
        polygon=polygon.vertices,
        image=from_supports(directions, np.full_like(supports, np.nan) if failed else supports).vertices,
        section=of.section,
        center=of.z,
        axes=np.asarray(of.axes.inverse),
        disturbance=disturbance,
        converges=contracts and not reasons,
        norm=norm,
        sets=chain,
        tubes=tuple(TubeBounds.over(each) for each in bounds),
        pieces=(sectors or facets) * rings,
        assumptions=assumptions_of(orbit, of.timed),
        seconds=time.perf_counter() - begun,
        compile_seconds=compiled,
        orbit=orbit,
    )


def _tested(images: _Images, polygon: Polygon):
    """The images of a polygon's pieces: how far they reach along its edges, as a ratio, and why it is not proved."""
    edges = polygon.edges
    far, conditions, norm, bounds = images(polygon, edges)
    _, ratio = inside(polygon, far)
    reasons = _failed(conditions)
    if not polygon.convex():
        reasons = (*reasons, "the set is not proved to be a convex polygon around the orbit")
    return ratio, reasons, float(np.max(norm)), bounds


def _supports(images: _Images, polygon: Polygon, directions):
    """Supports of the image along the directions."""
    zero = np.zeros_like(directions)
    rows = TaylorModel(jnp.asarray(directions)[None], jnp.asarray(zero), polygon.edges.basis)
    far, conditions, norm, bounds = images(polygon, rows)
    return np.max(far, axis=0), _failed(conditions), float(np.max(norm)), bounds


def _invariant(images: _Images, directions, radius: float | None, iterations: int):
    """A polygon that the disturbed return map takes inside: the limit of images of sets, each a little larger."""
    supports = np.full(len(directions), radius or 1e-6)
    ratio, reasons, bounds, norm, polygon = (
        np.inf,
        ("no set was found",),
        [],
        np.inf,
        from_supports(directions, supports),
    )
    for count in range(1, iterations + 1):
        polygon = from_supports(directions, supports)
        image, failed, norm, bounds = _supports(images, polygon, directions)
        if not np.all(np.isfinite(image)):
            return (
                polygon,
                np.inf,
                (f"the sets of the iteration grow without bound, at set {count}", *failed),
                False,
                count,
                bounds,
                norm,
            )
        guess = float(np.max(image / supports))
        if guess < 1 and not failed:
            ratio, reasons, norm, bounds = _tested(images, polygon)
            if ratio < 1 and not reasons:
                return polygon, ratio, (), False, count, bounds, norm
        ratio, reasons = guess, (f"the image reaches {guess:.4f} of the set, after {count} sets", *failed)
        supports = np.maximum(image, 1e-12) * WIDER
    return polygon, ratio, reasons, False, iterations, bounds, norm


def _funnel(images: _Images, directions, radius: float | None, iterations: int):
    """A polygon that the return map takes inside, and sets that hold the images of one another down to one on which it
    contracts."""
    size = radius or 0.1
    for _ in range(1 if radius else 12):
        polygon = from_supports(directions, np.full(len(directions), size))
        ratio, reasons, norm, bounds = _tested(images, polygon)
        if ratio < 1 and not reasons:
            break
        size *= 0.5
    if not (ratio < 1 and not reasons):
        reasons = (*reasons, *((f"the image reaches {ratio:.4f} of the set",) if not ratio < 1 else ()))
        return polygon, ratio, reasons, False, 1, bounds, norm
    current, count, inner, why = polygon, 1, ratio, reasons
    while count < iterations:
        if inner < 1 and not why and norm < 1:
            return polygon, ratio, (), True, count, bounds, norm
        image, failed, _, _ = _supports(images, current, directions)
        following = from_supports(directions, image * (1 + 1e-9) + 1e-14)
        if failed or not holds(following, directions, image):
            break
        current, count = following, count + 1
        inner, why, norm, _ = _tested(images, current)
    # The set is mapped inside all the same; that its orbits converge is not proved.
    return polygon, ratio, (), False, count, bounds, norm
