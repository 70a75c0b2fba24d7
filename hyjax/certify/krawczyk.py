r"""Existence and uniqueness of a periodic orbit near a numerical one, by Krawczyk's operator for the return map.

For $F(y) = P(y) - y$ on a box $Y = c \pm r$, and any matrix $C$, near $(DP(c) - I)^{-1}$,

$$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y - c) .$$

Every fixed point of $P$ in $Y$ is in $K$; and if $K$ is in the interior of $Y$, there is one, and only one. Stability does not
matter. Where the box is replaced by $K \cap Y$ the enclosure shrinks, until the rounding of $F(c)$ is all that is left.

Source: Krawczyk (1969), *Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken*, Computing 4; Rump (2010),
*Verification methods*, Acta Numerica 19, Sec. 13; Wilczak, Zgliczyński (2011), for the return map.
"""

import time
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._orbit.orbit import PeriodicOrbit
from .assumptions import assumptions_of
from .basis import basis
from .eigenvalues import enclose_eigenvalues
from .matrix_balls import approximate_inverse, BallMatrix, difference, exactly, product
from .proved_orbit import Enclosed, ProvedOrbit
from .return_map import Image, ReturnMap
from .rounding import EPS, TINY, up
from .taylor_model import TaylorModel

Vector = Float[np.ndarray, " m"]

# The boxes that "auto" tries, the largest first, in the coordinates' units.
RADII = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
# The program runs some dozen times, so it is compiled with little optimization: three times faster. Roundings are as before.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
# Lengths of time in which the events of the last, tiny box are sought, the shortest first.
WINDOWS = (1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)
# Boxes after the first; the iteration ends where none of the radii has become 10 % smaller.
ITERATIONS, SMALLER = 8, 0.9


def krawczyk(
    orbit: PeriodicOrbit,
    *,
    radius: float | Literal["auto"] = 1e-8,
    steps: int = 64,
    orders: int = 14,
    degree: int = 1,
) -> ProvedOrbit:
    r"""A proof that exactly one periodic orbit is near a numerical one, stable or not, with bounds of its numbers.

    $$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y - c) \subset \operatorname{int} Y$$

    for $F(y) = P(y) - y$, with $P$ the return map in the coordinates that the closing reset reads, before this reset. The flow is
    enclosed by Taylor series with remainders, rounding included. The route is proved too: each guard fires at the end of its arc
    and no other before it.

    **Arguments:** `orbit`: one `PeriodicOrbit`, in float64. `radius`: half the width of the box about the orbit, for each
    coordinate in its unit; `"auto"`: the largest of $10^{-4}, \ldots, 10^{-10}$ for which the proof succeeds. `steps`: of each
    arc. `orders`: of the series in time. `degree`: of the polynomials in the coordinates.

    **Returns:** `ProvedOrbit`. It is `"not proved"`, with `reasons`, where an enclosure is too wide or a guard's condition fails,
    also for orbits with a multiplier 1, which are not isolated. `ValueError` for a batch, an orbit that failed, float32, and
    arguments that are not positive.

    Source: Krawczyk (1969), Computing 4; Rump (2010), Acta Numerica 19, Sec. 13.
    """
    if radius != "auto" and not (isinstance(radius, int | float) and 0 < radius < np.inf):
        raise ValueError(f"krawczyk: radius={radius!r} must be a positive number or 'auto'.")
    for name, number in {"steps": steps, "orders": orders, "degree": degree}.items():
        if number < 1:
            raise ValueError(f"krawczyk: {name}={number} must be at least 1.")
    begun = time.perf_counter()
    boxes = _Boxes(ReturnMap(orbit, steps=steps, orders=orders), degree)
    reasons: tuple[str, ...] = ()
    for size in RADII if radius == "auto" else (float(radius),):
        box, reasons = boxes.proved(size)
        if not reasons:
            numbers = boxes.numbers(boxes.sharpened(box))
            break
    else:
        numbers = _no_numbers(boxes.map)
    return ProvedOrbit(
        reasons=reasons, names=boxes.map.section.names, near=boxes.map.z, unique_within=np.nan if reasons else size,
        seconds=time.perf_counter() - begun, assumptions=assumptions_of(orbit, boxes.map.timed), **numbers,
    )  # fmt: skip


class _Boxes:
    """Boxes in the normalised coordinates of a return map, and their images by one compiled program."""

    def __init__(self, map: ReturnMap, degree: int):
        self.map, self.basis = map, basis(len(map.z), degree)
        self.image = jax.jit(map.image, compiler_options=QUICK if jax.default_backend() == "cpu" else None)
        middle = self.of_box(np.zeros(len(map.z)), np.zeros(len(map.z)))
        self.first = middle
        self.inverse = approximate_inverse(np.asarray(middle.jacobian.center) - np.eye(len(map.z)))

    def of_box(self, center: Vector, radius: Vector, window: float | None = None) -> Image:
        """The image of a box, with steps as `timing` proposes, or, near the orbit, so that each arc ends in a window of time."""
        coefficients = np.zeros((self.basis.size, len(center)))
        coefficients[0] = center
        for j, half in enumerate(radius):
            coefficients[self.basis.linear(j), j] = half
        piece = TaylorModel(jnp.asarray(coefficients), jnp.zeros(len(center)), self.basis)
        h, windows = self.map.timing_near(piece, window)
        return self.image(piece, h, windows)

    def moved(self, center: Vector, radius: Vector, at_center: Image, over: Image) -> tuple[BallMatrix, Vector]:
        r"""$K - c$, of shape `(m, 1)`; and by how much $|I - C(DP(Y) - I)|\,r$ is smaller than $r$, a ratio for each entry."""
        identity = exactly(np.eye(len(center)))
        distance = difference(_value(at_center), exactly(center[:, None]))
        slope = difference(_ball(over.jacobian), identity)
        inverse = exactly(self.inverse)
        shear = difference(identity, product(inverse, slope)).largest
        spread = up(shear @ radius[:, None], len(center))
        step = product(inverse, distance)
        return BallMatrix(-step.mid, up(step.rad + spread)), spread[:, 0] / radius

    def proved(self, size: float) -> tuple[tuple[Vector, Vector], tuple[str, ...]]:
        """The box that holds exactly one fixed point, as center and radius; or why it is not proved that there is one.

        The first box holds all states within `size` of the orbit's, for each coordinate of the section.
        """
        frame = np.abs(np.asarray(self.map.axes.matrix))
        center, radius = np.zeros(len(frame)), up(np.sum(frame, axis=1) * size, len(frame))
        over = self.of_box(center, radius)
        failed = _failed(self.first) + tuple(name for name in _failed(over) if name not in _failed(self.first))
        if failed:
            return (center, radius), tuple(
                f"Over the box of radius {size:g} it is not proved that {name}." for name in failed
            )
        moved, ratio = self.moved(center, radius, self.first, over)
        if np.all(moved.largest[:, 0] < radius):
            return _intersection(center, radius, moved), ()
        if np.any(np.abs(moved.mid[:, 0]) * (1 - 2 * EPS) > up(moved.rad[:, 0] + radius)):
            return (center, radius), (
                f"It is proved that no periodic orbit of this route is in the box of radius {size:g}.",
            )
        if not np.all(ratio < 1):
            reason = (
                f"The Jacobian of the return map over the box of radius {size:g} is not separated from a multiplier 1 "
                f"(ratio {np.max(ratio):.3g}, must be below 1): the orbit is not isolated, or the box is too large."
            )
            return (center, radius), (reason,)
        reason = (
            f"Krawczyk's operator does not map the box of radius {size:g} into its interior (ratio "
            f"{np.max(moved.largest[:, 0] / radius):.3g}): the orbit is not accurate to the radius, or the box is too small."
        )
        return (center, radius), (reason,)

    def sharpened(self, box: tuple[Vector, Vector]) -> tuple[tuple[Vector, Vector], Image]:
        """The box made smaller, and its image by the shortest window of time that holds the events."""
        window, over = self.shortest(*box)
        for _ in range(ITERATIONS):
            center, radius = box
            at_center = self.of_box(center, np.zeros(len(center)), window)
            if _failed(at_center):
                break
            box = _intersection(center, radius, self.moved(center, radius, at_center, over)[0])
            window, over = self.shortest(*box)
            if not np.any(box[1] < SMALLER * radius):
                break
        return box, over

    def shortest(self, center: Vector, radius: Vector) -> tuple[float | None, Image]:
        """The shortest window in which the events of a box are proved, and the image of the box."""
        for window in WINDOWS:
            over = self.of_box(center, radius, window)
            if not _failed(over):
                return window, over
        return None, self.of_box(center, radius)

    def numbers(self, found: tuple[tuple[Vector, Vector], Image]) -> dict:
        """The bounds of the orbit's numbers, from its box and the box's image."""
        (center, radius), image = found
        axes, map = self.map.axes, self.map
        back = BallMatrix(np.asarray(axes.inverse), np.asarray(axes.inverse_radius))
        offset = product(back, BallMatrix(center[:, None], radius[:, None]))
        z = map.z + offset.mid[:, 0]
        tubes = [jax.tree.map(np.asarray, tube) for tube in image.tubes]
        if map.timed:
            period = Enclosed(np.asarray(map.orbit.period), np.zeros(()))
        else:
            low, high = sum(tube.elapsed[-1] for tube in tubes), sum(tube.last for tube in tubes)
            # The sums are of some arcs, and the products with the number of steps are rounded.
            period = Enclosed.between(low, high, (len(tubes) + 2) * EPS * high)
        return {
            "coordinates": Enclosed(z, up(offset.rad[:, 0] + EPS * np.abs(z))),
            "starts": tuple(Enclosed.between(tube.low[0], tube.high[0]) for tube in tubes),
            "ends": tuple(Enclosed.between(tube.box_low[-1], tube.box_high[-1]) for tube in tubes),
            "period": period,
            "multipliers": enclose_eigenvalues(*_ball(image.jacobian)),
        }


def _intersection(center: Vector, radius: Vector, moved: BallMatrix) -> tuple[Vector, Vector]:
    """A box that holds what is in both, the box and the box moved; each entry is that of the smaller one."""
    other = center + moved.mid[:, 0]
    half = up(moved.rad[:, 0] + EPS * (np.abs(center) + np.abs(moved.mid[:, 0]))) + TINY
    smaller = half < radius
    return np.where(smaller, other, center), np.where(smaller, half, radius)


def _value(image: Image) -> BallMatrix:
    """The ball that holds the image of a set, shape `(m, 1)`."""
    model = image.model
    spread = np.sum(np.abs(np.asarray(model.coefficients[1:])), axis=0) + np.asarray(model.radius)
    radius = up(spread + np.asarray(image.radius), model.basis.size)
    return BallMatrix(np.asarray(model.center)[:, None], radius[:, None])


def _ball(a: TaylorModel) -> BallMatrix:
    return BallMatrix(np.asarray(a.center), np.asarray(a.spread))


def _failed(image: Image) -> tuple[str, ...]:
    """The conditions that are not proved, and whether the numbers are finite."""
    failed = [name for name, holds in image.conditions.items() if not bool(np.all(np.asarray(holds)))]
    finite = [np.all(np.isfinite(each)) for each in (*_value(image), *_ball(image.jacobian))]
    return tuple(failed) if failed or all(finite) else ("the enclosure is finite",)


def _no_numbers(map: ReturnMap) -> dict:
    """NaN for what is not proved."""
    nothing = Enclosed(np.full(len(map.z), np.nan), np.full(len(map.z), np.nan))
    return {"coordinates": nothing, "starts": (), "ends": (), "period": Enclosed(np.array(np.nan), np.array(np.nan)),
            "multipliers": None}  # fmt: skip
