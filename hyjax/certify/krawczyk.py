r"""Existence and uniqueness of a periodic orbit near a numerical one, by Krawczyk's operator for the return map.

For $F(y) = P(y) - y$ on a box $Y = c \pm r$, and any matrix $C$, near $(DP(c) - I)^{-1}$,

$$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y - c) .$$

Every fixed point of $P$ in $Y$ is in $K$; and if $K$ is in the interior of $Y$, there is one, and only one. Stability does not
matter. Once it is proved, the operator is applied again with $F(c)$ in balls of fifty digits, where its error is some
$10^{-25}$: the remaining width of the bounds is the rounding to floats.

Source: Krawczyk (1969), *Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken*, Computing 4; Rump (2010),
*Verification methods*, Acta Numerica 19, Sec. 13; Wilczak, Zgliczyński (2011), for the return map.
"""

import time
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._orbit.orbit import PeriodicOrbit
from .enclosed_map import Image, ReturnMap
from .exact_numbers import arb, NotEnclosed, with_fifty_digits
from .exact_orbit import FineMap, refined
from .flow_pipe import UNDECIDED
from .matrix_balls import (
    approximate_inverse,
    BallMatrix,
    difference,
    enclose_eigenvalues,
    exactly as exact_matrix,
    product,
)
from .proved_orbit import Enclosed, ProvedOrbit
from .rounding import EPS, TINY, up
from .section_plane import assumptions_of
from .taylor_model import basis, TaylorModel

# Boxes of a section and their images: what Krawczyk's operator says of them, and the bounds of the orbit that is in one.

Vector = Float[np.ndarray, " m"]

# The program runs some dozen times, so it is compiled with little optimization: three times faster. Roundings are as before.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
# Lengths of time in which the events of the last, tiny box are sought, the shortest first.
WINDOWS = (1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)


class Over(NamedTuple):
    """A box with its image, and the lengths of the steps and the windows of time by which it was enclosed."""

    center: Vector
    radius: Vector
    image: Image
    h: Float[np.ndarray, "arcs N"]
    windows: Float[np.ndarray, " arcs"]

    @with_fifty_digits
    def crossings(self, steps: int, part: tuple[Vector, Vector]) -> list[tuple[arb, arb]]:
        """For each arc the times between which the guard at its end falls through zero once, for every state of a part of the
        box, given as center and radius."""
        center, radius = part
        far = np.minimum(up(np.abs(center - self.center) + radius, 2) / np.maximum(self.radius, TINY) * (1 + EPS), 1.0)
        # The largest moduli of the monomials that the lengths of the steps are made of.
        far = np.prod(far ** self.image.model.basis.exponents[1:], axis=1) * (1 + 8 * EPS)
        found = []
        for h, window in zip(self.h, self.windows, strict=True):
            middle, spread = arb(float(h[0])), arb(float(up(np.abs(h[1:]) @ far, len(h))))
            found.append((steps * (middle + spread), steps * (middle - spread) + arb(float(window))))
        return found


class Boxes:
    """Boxes in the normalised coordinates of a return map, and their images by one compiled program."""

    def __init__(self, map: ReturnMap, degree: int):
        self.map, self.basis = map, basis(len(map.z), degree)
        self.image = jax.jit(map.image, compiler_options=QUICK if jax.default_backend() == "cpu" else None)
        self.first = self.of_box(np.zeros(len(map.z)), np.zeros(len(map.z)))
        self.inverse = approximate_inverse(np.asarray(self.first.image.jacobian.center) - np.eye(len(map.z)))

    def of_box(self, center: Vector, radius: Vector, window: float | None = None) -> Over:
        """The image of a box, with windows as `timing_near` proposes, or all of one length."""
        coefficients = np.zeros((self.basis.size, len(center)))
        coefficients[0] = center
        for j, half in enumerate(radius):
            coefficients[self.basis.linear(j), j] = half
        piece = TaylorModel(jnp.asarray(coefficients), jnp.zeros(len(center)), self.basis)
        h, windows = self.map.timing_near(piece, window)
        return Over(center, radius, self.image(piece, h, windows), np.asarray(h), np.asarray(windows))

    def moved(self, at_center: Image, over: Over) -> tuple[BallMatrix, Vector]:
        r"""$K - c$, of shape `(m, 1)`; and by how much $|I - C(DP(Y) - I)|\,r$ is smaller than $r$, a ratio for each entry."""
        center, radius = over.center, over.radius
        identity = exact_matrix(np.eye(len(center)))
        distance = difference(_value(at_center), exact_matrix(center[:, None]))
        slope = difference(_ball(over.image.jacobian), identity)
        inverse = exact_matrix(self.inverse)
        shear = difference(identity, product(inverse, slope)).largest
        spread = up(shear @ radius[:, None], len(center))
        step = product(inverse, distance)
        return BallMatrix(-step.mid, up(step.rad + spread)), spread[:, 0] / radius

    def proved(self, size: float) -> tuple[tuple[Over, tuple[Vector, Vector]], tuple[str, ...]]:
        """The box that is proved to hold exactly one fixed point, and the part of it that holds it, as center and radius; or why
        it is not proved that there is one.

        The first box holds all states within `size` of the orbit's, for each coordinate of the section.
        """
        frame = np.abs(np.asarray(self.map.axes.matrix))
        center, radius = np.zeros(len(frame)), up(np.sum(frame, axis=1) * size, len(frame))
        over, at_center = self.of_box(center, radius), self.first.image
        whole = (over, (center, radius))
        failed = _failed(at_center) + tuple(name for name in _failed(over.image) if name not in _failed(at_center))
        if failed:
            return whole, tuple(f"Over the box of radius {size:g} {_said(name)}." for name in failed)
        moved, ratio = self.moved(at_center, over)
        if np.all(moved.largest[:, 0] < radius):
            return (over, _intersection(center, radius, moved)), ()
        if np.any(np.abs(moved.mid[:, 0]) * (1 - 2 * EPS) > up(moved.rad[:, 0] + radius)):
            return whole, (f"It is proved that no periodic orbit of this route is in the box of radius {size:g}.",)
        if not np.all(ratio < 1):
            reason = (
                f"The Jacobian of the return map over the box of radius {size:g} is not separated from a multiplier 1 "
                f"(ratio {np.max(ratio):.3g}, must be below 1): the orbit is not isolated, or the box is too large."
            )
            return whole, (reason,)
        reason = (
            f"Krawczyk's operator does not map the box of radius {size:g} into its interior (ratio "
            f"{np.max(moved.largest[:, 0] / radius):.3g}): the orbit is not accurate to the radius, or the box is too small."
        )
        return whole, (reason,)

    def shortest(self, center: Vector, radius: Vector) -> Over:
        """The image of a box by the shortest windows in which its events are proved."""
        for window in WINDOWS:
            over = self.of_box(center, radius, window)
            if not _failed(over.image):
                return over
        return self.of_box(center, radius)

    def numbers(self, found: tuple[Over, tuple[Vector, Vector]]) -> dict:
        """The bounds of the orbit's numbers, from the box of the proof and the part of it that holds the fixed point."""
        over, box = found
        map = self.map
        try:
            fine = FineMap(map, over.crossings(map.steps, box))
            y, lap = refined(fine, self.inverse, _ball(over.image.jacobian), box)
        except NotEnclosed:
            return self._coarse_numbers(self.shortest(*box))
        near = Enclosed.of(y)
        image = self.shortest(near.midpoint, near.radius).image
        return {
            "coordinates": Enclosed.of(lap.z),
            "starts": tuple(Enclosed.of(each) for each in lap.starts),
            "ends": tuple(Enclosed.of(each) for each in lap.ends),
            "period": Enclosed.of([map.forcing.period if map.timed else lap.duration])[0],
            "multipliers": enclose_eigenvalues(*_ball(image.jacobian)) if image.smooth else None,
        }

    def _coarse_numbers(self, over: Over) -> dict:
        """The bounds by the compiled program alone."""
        axes, map = self.map.axes, self.map
        back = BallMatrix(np.asarray(axes.inverse), np.asarray(axes.inverse_radius))
        offset = product(back, BallMatrix(over.center[:, None], over.radius[:, None]))
        z = map.z + offset.mid[:, 0]
        tubes = [jax.tree.map(np.asarray, tube) for tube in over.image.tubes]
        low, high = sum(tube.elapsed[-1] for tube in tubes), sum(tube.last for tube in tubes)
        # The sums are of some arcs, and the products with the number of steps are rounded.
        period = Enclosed.between(low, high, (len(tubes) + 2) * EPS * high)
        return {
            "coordinates": Enclosed(z, up(offset.rad[:, 0] + EPS * np.abs(z))),
            "starts": tuple(Enclosed.between(tube.low[0], tube.high[0]) for tube in tubes),
            "ends": tuple(Enclosed.between(tube.box_low[-1], tube.box_high[-1]) for tube in tubes),
            "period": Enclosed.of([map.forcing.period])[0] if map.timed else period,
            "multipliers": enclose_eigenvalues(*_ball(over.image.jacobian)) if over.image.smooth else None,
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
    """The conditions that are not proved, and whether the numbers are finite; where choices are undecided, these alone."""
    failed = [name for name, holds in image.conditions.items() if not bool(np.all(np.asarray(holds)))]
    failed = [name for name in failed if name.startswith(UNDECIDED)] or failed
    finite = [np.all(np.isfinite(each)) for each in (*_value(image), *_ball(image.jacobian))]
    return tuple(failed) if failed or all(finite) else ("the enclosure is finite",)


def _said(name: str) -> str:
    """A condition that is not proved, in a sentence."""
    return f"there is an {name}" if name.startswith(UNDECIDED) else f"it is not proved that {name}"


# The boxes that "auto" tries, the largest first, in the coordinates' units.
RADII = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)


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
    and no other before it, in the system whose guards fire when they fall from strictly positive to zero or below. Derivatives
    are those of the functions' values, whatever rule a `custom_jvp` has for them. Where a `where`, `sign` or other choice is
    undecided in the box, the proof fails, with the line; a kink of a reset or guard (`abs`, `maximum`) may be in the box, but
    then the multipliers are proved only if the orbit itself is not at it.

    **Arguments:** `orbit`: one `PeriodicOrbit`, in float64. `radius`: half the width of the box about the orbit, for each
    coordinate in its unit; `"auto"`: the largest of $10^{-4}, \ldots, 10^{-10}$ for which the proof succeeds. `steps`: of each
    arc. `orders`: of the series in time. `degree`: of the polynomials in the coordinates.

    **Returns:** `ProvedOrbit`, with bounds to the last digit of a float but for the multipliers, whose bounds are those of the
    return map's derivative in floats. It is `"not proved"`, with `reasons`, where an enclosure is too wide or a guard's condition
    fails, also for orbits with a multiplier 1, which are not isolated. `ValueError` for a batch, an orbit that failed, float32,
    and arguments that are not positive.

    **Example:**

    >>> spiral = lambda t, x, p: 0.1 * (1 - x @ x) * x + jnp.stack([-x[1], x[0]])
    >>> line = hj.Transition("plane", "plane", lambda t, x, p: x[1], lambda t, x, p: jnp.stack([x[0], 0 * x[1]]))
    >>> circle = hj.HybridSystem({"plane": hj.Mode(spiral, ("x", "y"))}, (line,))
    >>> orbit = hj.periodic_orbit(hj.ReturnMap(circle, sequence=("plane",)), jnp.array([-1.1, 0.0]), None)
    >>> proved = hj.certify.krawczyk(orbit, steps=48)
    >>> print(proved.status, proved.period.contains("6.283185307179586476925286766559"))
    proved True

    Source: Krawczyk (1969), Computing 4; Rump (2010), Acta Numerica 19, Sec. 13.
    """
    if radius != "auto" and not (isinstance(radius, int | float) and 0 < radius < np.inf):
        raise ValueError(f"krawczyk: radius={radius!r} must be a positive number or 'auto'.")
    for name, number in {"steps": steps, "orders": orders, "degree": degree}.items():
        if number < 1:
            raise ValueError(f"krawczyk: {name}={number} must be at least 1.")
    begun = time.perf_counter()
    boxes = Boxes(ReturnMap(orbit, steps=steps, orders=orders), degree)
    reasons: tuple[str, ...] = ()
    for size in RADII if radius == "auto" else (float(radius),):
        found, reasons = boxes.proved(size)
        if not reasons:
            numbers = boxes.numbers(found)
            break
    else:
        numbers = _no_numbers(boxes.map)
    return ProvedOrbit(
        reasons=reasons, names=boxes.map.section.names, near=boxes.map.z, unique_within=np.nan if reasons else size,
        seconds=time.perf_counter() - begun, assumptions=assumptions_of(boxes.map.forcing, boxes.map.section), orbit=orbit,
        **numbers,
    )  # fmt: skip


def _no_numbers(map: ReturnMap) -> dict:
    """NaN for what is not proved."""
    nothing = Enclosed(np.full(len(map.z), np.nan), np.full(len(map.z), np.nan))
    return {"coordinates": nothing, "starts": (), "ends": (), "period": Enclosed(np.array(np.nan), np.array(np.nan)),
            "multipliers": None}  # fmt: skip
