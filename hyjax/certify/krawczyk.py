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

from .._numerics.eager import short_run
from .._orbit.orbit import PeriodicOrbit
from .._system.types import require_counts
from .enclosed_map import EnclosedMap, Image
from .exact_flow import exact_orbit, refined, section_point
from .exact_numbers import arb, balls, krawczyk_operator, NotEnclosed, with_fifty_digits
from .flow_pipe import UNDECIDED
from .proved_orbit import enclose_eigenvalues, Enclosed, ProvedOrbit
from .rounding import EPS, TINY, up
from .section_plane import assumptions_of
from .taylor_model import basis, TaylorModel

# Boxes of a section and their images: what Krawczyk's operator says of them, and the bounds of the orbit that is in one.

Vector = Float[np.ndarray, " m"]

# Lengths of time in which the events of the last, tiny box are sought, the shortest first.
WINDOWS = (1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)


class BoxImage(NamedTuple):
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

    def __init__(self, map: EnclosedMap, degree: int):
        self.map, self.basis = map, basis(len(map.z), degree)
        # The program runs some dozen times, so it is compiled with little optimization: three times faster. Roundings are as
        # before.
        self.image = short_run(map.image)
        self.first = self.of_box(np.zeros(len(map.z)), np.zeros(len(map.z)))
        self.inverse = approximate_inverse(np.asarray(self.first.image.jacobian.center) - np.eye(len(map.z)))

    def of_box(self, center: Vector, radius: Vector, window: float | None = None) -> BoxImage:
        """The image of a box, with windows as `timing_near` proposes, or all of one length."""
        coefficients = np.zeros((self.basis.size, len(center)))
        coefficients[0] = center
        for j, half in enumerate(radius):
            coefficients[self.basis.linear(j), j] = half
        piece = TaylorModel(jnp.asarray(coefficients), jnp.zeros(len(center)), self.basis)
        h, windows = self.map.timing_near(piece, window)
        return BoxImage(center, radius, self.image(piece, h, windows), np.asarray(h), np.asarray(windows))

    @with_fifty_digits
    def proved(self, size: float) -> tuple[tuple[BoxImage, tuple[Vector, Vector]], tuple[str, ...]]:
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
        slope = balls(over.image.jacobian.center, over.image.jacobian.spread)
        step, spread = krawczyk_operator(balls(self.inverse), slope, balls(*_value(at_center)), balls(center, radius))
        # Of a ball the radius may be rounded up; the image is that of the box of these floats.
        moved, limits = (step + spread).entries(), [arb(float(each)) for each in radius]
        ratio = lambda entries: max(float(abs(each).upper() / r) for each, r in zip(entries, limits, strict=True))
        if all(abs(each) < r for each, r in zip(moved, limits, strict=True)):
            part = Enclosed.of(moved)
            return (over, (part.midpoint, part.radius)), ()
        if any(abs(each) > r for each, r in zip(moved, limits, strict=True)):
            return whole, (f"It is proved that no periodic orbit of this route is in the box of radius {size:g}.",)
        if not ratio(spread.entries()) < 1:
            reason = (
                f"The Jacobian of the return map over the box of radius {size:g} is not separated from a multiplier 1 "
                f"(ratio {ratio(spread.entries()):.3g}, must be below 1): the orbit is not isolated, or the box is too large."
            )
            return whole, (reason,)
        reason = (
            f"Krawczyk's operator does not map the box of radius {size:g} into its interior (ratio {ratio(moved):.3g}): the "
            "orbit is not accurate to the radius, or the box is too small."
        )
        return whole, (reason,)

    def shortest(self, center: Vector, radius: Vector) -> BoxImage:
        """The image of a box by the shortest windows in which its events are proved."""
        for window in WINDOWS:
            over = self.of_box(center, radius, window)
            if not _failed(over.image):
                return over
        return self.of_box(center, radius)

    @with_fifty_digits
    def numbers(self, found: tuple[BoxImage, tuple[Vector, Vector]]) -> dict:
        """The bounds of the orbit's numbers, from the box of the proof and the part of it that holds the fixed point."""
        (over, part), map = found, self.map
        windows = over.crossings(map.steps, part)
        slope = balls(over.image.jacobian.center, over.image.jacobian.spread)
        try:
            y = refined(map, windows, balls(self.inverse), slope, balls(*part))
            z = section_point(map, y)
            starts, ends, period, _ = exact_orbit(map, windows, z)
            near = Enclosed.of(y.entries())
            image = self.shortest(near.midpoint, near.radius).image
            bounds = {
                "coordinates": Enclosed.of(z),
                "starts": tuple(Enclosed.of(each) for each in starts),
                "ends": tuple(Enclosed.of(each) for each in ends),
                "period": Enclosed.of([map.period if map.timed else period])[0],
            }
        except NotEnclosed:
            over = self.shortest(*part)
            image, bounds = over.image, self._bounds_of_floats(over)
        jacobian = image.jacobian
        return bounds | {"multipliers": enclose_eigenvalues(jacobian.center, jacobian.spread) if image.smooth else None}

    def _bounds_of_floats(self, over: BoxImage) -> dict:
        """The bounds by the compiled program alone."""
        map = self.map
        tubes = [jax.tree.map(np.asarray, tube) for tube in over.image.tubes]
        low, high = sum(tube.elapsed[-1] for tube in tubes), sum(tube.last for tube in tubes)
        # The sums are of some arcs, and the products with the number of steps are rounded.
        period = Enclosed.between(low, high, (len(tubes) + 2) * EPS * high)
        return {
            "coordinates": Enclosed.of(section_point(map, balls(over.center, over.radius))),
            "starts": tuple(Enclosed.between(tube.start_low[0], tube.start_high[0]) for tube in tubes),
            "ends": tuple(Enclosed.between(tube.low[-1], tube.high[-1]) for tube in tubes),
            "period": Enclosed.of([map.period])[0] if map.timed else period,
        }


def approximate_inverse(matrix: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """The inverse to rounding, finite; zero for a singular matrix."""
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return np.zeros_like(matrix)
    return inverse if np.all(np.isfinite(inverse)) else np.zeros_like(matrix)


def _value(image: Image) -> tuple[Vector, Vector]:
    """The center and radius of a box that holds the image of a set."""
    model = image.model
    spread = np.sum(np.abs(np.asarray(model.coefficients[1:])), axis=0) + np.asarray(model.radius)
    return np.asarray(model.center), up(spread + np.asarray(image.radius), model.basis.size)


def _failed(image: Image) -> tuple[str, ...]:
    """The conditions that are not proved, and whether the numbers are finite; where choices are undecided, these alone."""
    failed = [name for name, holds in image.conditions.items() if not bool(np.all(np.asarray(holds)))]
    failed = [name for name in failed if name.startswith(UNDECIDED)] or failed
    finite = [np.all(np.isfinite(each)) for each in (*_value(image), image.jacobian.center, image.jacobian.spread)]
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
    require_counts("krawczyk", 1, steps=steps, orders=orders, degree=degree)
    begun = time.perf_counter()
    boxes = Boxes(EnclosedMap(orbit, steps=steps, orders=orders), degree)
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
        seconds=time.perf_counter() - begun, assumptions=assumptions_of(boxes.map.section, boxes.map.repeats), orbit=orbit,
        **numbers,
    )  # fmt: skip


def _no_numbers(map: EnclosedMap) -> dict:
    """NaN for what is not proved."""
    nothing = Enclosed(np.full(len(map.z), np.nan), np.full(len(map.z), np.nan))
    return {"coordinates": nothing, "starts": (), "ends": (), "period": Enclosed(np.array(np.nan), np.array(np.nan)),
            "multipliers": None}  # fmt: skip
