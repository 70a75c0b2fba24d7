r"""Proof that a limit cycle attracts: a set on a section that the return map takes into its interior; and the
result, what is proved, of which set, under which assumptions."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._orbit.orbit import PeriodicOrbit
from .._results.registry import draw
from .._results.shown import Shown
from .._results.table import Table
from .._system.types import Params, Scalar, State
from .disturbance import Disturbance, disturbed_ends, NONE
from .enclosed_map import EnclosedMap
from .flow_pipe import Tube
from .polygon import from_supports, holds, PieceImages, tight
from .section_plane import assumptions_of, SectionChart


class Certificate(Shown):
    r"""A set on a section, and whether it is proved that the return map takes it into its interior.

    **Attributes:** `status`: `"proved"` or `"not proved"`, which does not mean disproved. `ratio`: how far the image reaches,
    relative to the set, as seen from the orbit; below 1 it is inside. `reasons`: why it is not proved. `polygon`: vertices of the
    set, counterclockwise, shape `(k, 2)`, in coordinates $y = $ `rows` $(z - $ `center` $)$, exactly, where $z$ are the entries
    `coordinates` of the pre-impact state. `image`: likewise, of a polygon that holds the image of the set; NaN where there is no
    bound. `section`: how states follow from $z$. `converges`: whether every orbit from the set is proved to converge to the
    cycle; never with a disturbance. `norm`: of the return map's derivative on the last of the `sets` of the proof. `tubes`:
    bounds of the states, arc by arc. `disturbance`, `orbit`: as given. `pieces`: of the set. `seconds`: of the proof;
    `compile_seconds`: before it. `assumptions`: of the proof.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> certificate.coordinates, certificate.vertices.shape
    (('x', 'y'), (8, 2))
    """

    status: str = eqx.field(static=True)
    ratio: float
    reasons: tuple[str, ...] = eqx.field(static=True)
    polygon: Float[np.ndarray, "k 2"]
    image: Float[np.ndarray, "k 2"]
    section: SectionChart = eqx.field(static=True)
    center: Float[np.ndarray, " 2"]
    rows: Float[np.ndarray, "2 2"]
    disturbance: Disturbance = eqx.field(static=True)
    converges: bool
    norm: float
    sets: int
    tubes: tuple[Tube, ...]
    pieces: int
    assumptions: tuple[str, ...] = eqx.field(static=True)
    seconds: float
    compile_seconds: float
    orbit: PeriodicOrbit

    @property
    def proved(self) -> bool:
        """Whether `status` is `"proved"`."""
        return self.status == "proved"

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the section's coordinates."""
        return self.section.names

    @property
    def axes(self) -> Float[np.ndarray, "2 2"]:
        """The inverse of `rows`, to rounding: $z = $ `center` $ + $ `axes` $ y$."""
        return np.linalg.inv(self.rows)

    @property
    def vertices(self) -> Float[np.ndarray, "k 2"]:
        """The vertices in the coordinates of the section, to rounding."""
        return self.center + self.polygon @ self.axes.T

    @property
    def image_vertices(self) -> Float[np.ndarray, "k 2"]:
        """The vertices of the polygon that holds the image, in the coordinates of the section, to rounding."""
        return self.center + self.image @ self.axes.T

    @property
    def half_widths(self) -> Float[np.ndarray, " 2"]:
        """Half of the set's extent in each coordinate of the section, in its unit."""
        return 0.5 * (self.vertices.max(axis=0) - self.vertices.min(axis=0))

    def start(self, params: Params, *z: Scalar) -> State:
        """The state just after the jump that closes the orbit, from coordinates of the section: `start` of `hyjax.basin`. With
        the time as last entry if the system depends on it."""
        return self.section.lift(jnp.stack(z), params)

    def sample(
        self, n_samples: int, seed: int = 0
    ) -> tuple[Float[np.ndarray, "count 2"], Float[np.ndarray, "count 2"]]:
        """Where strides under random disturbances start, half of them on the set's boundary and half inside, and where they end,
        in the coordinates of the section; see `disturbed_ends`. They prove nothing, but could refute a bound that is wrong."""
        rng = np.random.default_rng(seed)
        edge, part = rng.integers(0, len(self.polygon), n_samples), rng.uniform(0, 1, (n_samples, 1))
        depth = np.where(np.arange(n_samples)[:, None] % 2, np.sqrt(rng.uniform(0, 1, (n_samples, 1))), 1.0)
        y = depth * (self.polygon[edge] + part * (np.roll(self.polygon, -1, axis=0)[edge] - self.polygon[edge]))
        starts = self.center + y @ self.axes.T
        return starts, disturbed_ends(self.orbit, self.section, self.disturbance, starts, rng)

    def plot(self, model=None, n_samples: int = 0):
        """A figure of the set with the bound of its image, and of the tube; see `hyjax.certify.certificate_figure`."""
        return draw(self, model, n_samples)

    def _tables(self):
        d = self.disturbance
        channels = "all rates" if d.channels is None else "the rates of " + ", ".join(d.channels)
        disturbance = f"|w| <= {d.bound:g} in {channels}, {d.norm}-norm" if d.bound else "none"
        if not self.proved:
            claim = "; ".join(self.reasons)
        elif self.converges:
            claim = "the set holds exactly one fixed point, and every orbit from the set converges to its limit cycle"
        else:
            claim = "every orbit that starts in the set returns to its interior, forever"
        widths = ", ".join(f"{name} {half:.3g}" for name, half in zip(self.coordinates, self.half_widths, strict=True))
        rows = [
            ("claim", claim),
            ("disturbance", disturbance),
            ("ratio", f"{self.ratio:.4f}: the image reaches so far, of the set"),
            ("half-widths", widths),
            ("pieces", f"{self.pieces}, sets {self.sets}"),
            ("seconds", f"{self.seconds:.1f}, and {self.compile_seconds:.1f} to compile"),
            *(("" if k else "assumptions", sentence) for k, sentence in enumerate(self.assumptions)),
        ]
        return (Table(f"Certificate: {self.status}", rows),)


# Sets of the iteration are larger than the image of the set before by this factor, so that their limit is mapped inside; all
# pieces are tested when the images of points are below this.
WIDER, SETTLED = 1.008, 0.995
# Sets in turn of which a boundary point is not proved, after which no other is tried. The parts of a disturbance that are tried
# where the whole is not proved: powers of ten down to the last, then this many between two of them.
GIVEN_UP, SMALLEST, HALVINGS = 3, -8, 4
# By this factor an image must come nearer to its set for another to be tried.
NEARER = 0.7


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
    rings: int = 3,
    sectors: int | None = None,
    steps: int = 32,
    orders: int = 12,
    degree: int = 2,
    max_iterations: int = 60,
    section: SectionChart | None = None,
) -> Certificate:
    r"""A set on a section that the return map takes into its interior, under every disturbance: a proof, or an honest failure.

    With the return map $P_w$ of disturbances $\|w(t)\| \le b$: if $P_w(B) \subset \mathrm{int}\,B$ for a compact $B$, every orbit
    that starts in $B$ returns to $B$ forever. Without a disturbance the images $P(B_i) \subset B_{i+1}$ are followed to a convex
    set on which $\|D P\|_2 < 1$ and which is mapped into itself: then $B$ holds exactly one fixed point, and every orbit from $B$
    converges to its limit cycle. Where a `where`, `sign` or other choice in a function is undecided in the set, the proof fails,
    with the line.

    **Arguments:** `orbit`: a stable orbit whose section has two coordinates. `disturbance`: of the rates; its norm, bound and
    channels. `radius`: the size of $B$ without a disturbance, in the coordinates of the certificate; `None`: found. With a
    disturbance $B$ is found by iteration of sets. `facets`: $B$ is a polygon of so many edges. `rings`, `sectors`: it is cut
    into so many rings of pieces, the outermost of so many, by default $6 \cdot 2^{rings}$, each further ring of half as many of
    twice the size. `steps`: of each arc. `orders`: of the Taylor series in time; `degree`: of the polynomials of the initial
    state. `max_iterations`: at most so many sets. `section`: other coordinates than the entries that the closing reset reads.

    **Returns:** a `Certificate`, `proved` or not. Where a disturbance is too large, points alone are mapped, and the reason says
    what is not proved and which disturbance seems provable: the largest under which the boundary of a set is mapped inside.
    `ValueError` for an orbit that failed, a batch, and a section that has not two
    coordinates.

    **Example:**

    >>> decay = lambda t, x, p: jnp.stack([-x[0], -2 * x[1], jnp.ones_like(x[2])])
    >>> tick = hj.Transition("m", "m", lambda t, x, p: 1 - x[2], lambda t, x, p: x * jnp.array([1.0, 1.0, 0.0]))
    >>> system = hj.HybridSystem({"m": hj.Mode(decay, ("x", "y", "clock"))}, (tick,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(system, sequence=("m",)), jnp.array([0.1, 0.1, 0.0]), None)
    >>> certificate = hj.certify.attracting(orbit, disturbance=hj.certify.Disturbance(1e-3), facets=8, rings=1, steps=8, orders=8)
    >>> certificate.status, certificate.ratio < 1
    ('proved', True)

    Source: Wilczak, Zgliczyński (2011) for the return map; the theorem is Brouwer's and Banach's.
    """
    of = EnclosedMap(orbit, disturbance, section, steps, orders, reduced=True)
    if len(of.z) != 2:
        raise ValueError(
            f"attracting: the section of this orbit has {len(of.z)} coordinates, {of.section.names}; sets are polygons in two. "
            "Use `krawczyk`, which proves the orbit and its multipliers in any number."
        )
    if not (facets >= 8 and rings >= 1):
        raise ValueError(f"attracting: facets={facets} must be at least 8, and rings={rings} at least 1.")
    if radius is not None and not (np.isfinite(radius) and radius > 0):
        raise ValueError(f"attracting: radius={radius} must be positive and finite; None finds one.")
    images = PieceImages(of, rings, sectors or max(facets, 6 * 2**rings), degree)
    begun = time.perf_counter()
    directions = _around(facets)
    small = images.boundary(from_supports(directions, np.full(facets, 1e-6)), directions)
    compiled = time.perf_counter() - begun
    begun = time.perf_counter()
    if disturbance.bound and small.failed:
        # Not even the orbit's own stride is followed under it.
        reached, chain, norm = small, 1, np.inf
    elif disturbance.bound:
        start = np.full(facets, radius) if radius else _linear_set(of, directions, small.supports)
        reached, chain, norm = _invariant(images, directions, start, max_iterations)
    else:
        reached, chain, norm = _funnel(images, directions, radius, max_iterations)
    reasons = reached.reasons
    if reasons and disturbance.bound:
        reasons = (_too_large(reasons[0], disturbance.bound, _seems_provable(images, directions)),)
    # Each bound is that of the farthest piece along its direction, by an enclosure of its own: some may not be tight.
    bounds = np.full(facets, np.nan) if reached.failed else tight(directions, reached.supports)
    return Certificate(
        status="not proved" if reasons else "proved",
        ratio=reached.ratio,
        reasons=reasons,
        polygon=reached.polygon.vertices,
        image=from_supports(directions, bounds).vertices,
        section=of.section,
        center=of.z,
        rows=np.asarray(of.axes.matrix),
        disturbance=disturbance,
        converges=not disturbance.bound and norm < 1 and not reasons,
        norm=norm,
        sets=chain,
        tubes=tuple(_over_pieces(each) for each in reached.tubes),
        pieces=len(reached.far),
        assumptions=assumptions_of(of.section, of.repeats),
        seconds=time.perf_counter() - begun,
        compile_seconds=compiled,
        orbit=orbit,
    )


def _over_pieces(tubes: Tube) -> Tube:
    """The bounds over the tubes of all pieces, which are stacked."""
    bounds = jax.tree.map(lambda each: np.min(each, axis=0), tubes)
    high, start_high = np.max(tubes.high, axis=0), np.max(tubes.start_high, axis=0)
    return Tube(bounds.low, high, bounds.elapsed, np.max(tubes.last), bounds.start_low, start_high)


def _rounded(supports: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Supports of a slightly larger set without corners, so that no edge of the polygon has length zero."""
    return supports + 1e-4 * np.max(supports) + 1e-14


def _linear_set(of: EnclosedMap, directions, gain: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Supports of the least set that the linearized return map with disturbances of supports `gain` takes into itself."""
    jacobian = np.asarray(of.axes.matrix) @ of.jacobian @ np.asarray(of.axes.inverse)
    vertices, rows, total = from_supports(directions, gain).vertices, directions, np.zeros(len(directions))
    for _ in range(200):
        total += np.max(rows @ vertices.T, axis=1)
        rows = rows @ jacobian
    return total


def _invariant(images: PieceImages, directions, supports: Float[np.ndarray, " k"], max_iterations: int):
    """A polygon that the disturbed return map takes inside: the limit of images of sets, each a little larger.

    On the way only points at the boundary are mapped, whose images reach farthest; `more` is by how much the pieces reached
    farther at the last test of all. Where the points are not mapped inside, the pieces that hold them are not either.
    """
    more, failures = np.ones(len(directions)), 0
    for count in range(1, max_iterations + 1):
        polygon = from_supports(directions, supports)
        reached = images.boundary(polygon, directions)
        image = reached.supports * more
        failures = failures + 1 if reached.failed else 0
        if not np.all(np.isfinite(image)) or failures == GIVEN_UP:
            break
        if np.max(image / supports) < SETTLED and not reached.failed:
            part, reached = reached, images.all(polygon, directions)
            if not reached.reasons:
                return reached, count, reached.norm
            more = np.maximum(more, reached.supports / part.supports)
            image = part.supports * more
        supports = _rounded(WIDER * image)
    if not reached.reasons:
        reached = images.all(polygon, directions)
    return reached, count, reached.norm


def _seems_provable(images: PieceImages, directions) -> float | None:
    """The largest part of the disturbance under which points at the boundary of a set are mapped inside, to a sixth; `None`
    without one."""
    found = next((k for k in range(-1, SMALLEST - 1, -1) if _endured(images, directions, 10.0**k)), None)
    if found is None:
        return None
    low, high = float(found), float(found + 1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _endured(images, directions, 10.0**middle) else (low, middle)
    return 10.0**low


def _endured(images: PieceImages, directions, strength: float) -> bool:
    """Whether points at the boundary of a set are mapped inside under a part of the disturbance: of the linear map's set, or of
    one of those that follow, each by as much larger as the image was."""
    gain = images.boundary(from_supports(directions, np.full(len(directions), 1e-6 * strength)), directions, strength)
    if gain.failed:
        return False
    supports, last = _rounded(WIDER * _linear_set(images.of, directions, gain.supports)), np.inf
    while np.all(np.isfinite(supports)):
        part = images.boundary(from_supports(directions, supports), directions, strength)
        ratio = np.max(part.supports / supports)
        if part.failed or ratio < 1:
            return not part.failed
        if not ratio - 1 < NEARER * last:
            break
        supports, last = _rounded(WIDER * ratio * part.supports), ratio - 1
    return False


def _too_large(nearest: str, bound: float, part: float | None) -> str:
    """Why a disturbance is not proved to be endured, in one line."""
    smaller = (
        "none was found that is" if part is None else f"the largest that seems provable is about {part * bound:.2g}"
    )
    return f"a disturbance of {bound:g} is not endured, as far as is proved ({nearest}); {smaller}"


def _funnel(images: PieceImages, directions, radius: float | None, max_iterations: int):
    """A polygon that the return map takes inside, and sets that hold the images of one another down to one on which it
    contracts: its `norm` is below 1 if that is proved."""
    size = radius or 0.1

    def polygon():
        return from_supports(directions, np.full(len(directions), size))

    reached = None
    for _ in range(1 if radius else 12):
        if radius or np.all(images.boundary(polygon(), directions).proved):
            reached = images.all(polygon(), directions)
            if not reached.reasons:
                break
        size *= 0.5
    reached = reached or images.all(polygon(), directions)
    current, count = reached, 1
    while not current.failed and not reached.reasons and count < max_iterations:
        if current.norm < 1 and not current.reasons:
            return reached, count, current.norm
        following = from_supports(directions, _rounded(current.supports))
        if not holds(following, directions, current.supports):
            break
        current, count = images.all(following, directions), count + 1
    # The set is mapped inside all the same, if there are no reasons; that its orbits converge is not proved.
    return reached, count, np.inf
