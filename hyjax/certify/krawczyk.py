r"""Existence and uniqueness of a periodic orbit near a numerical one, by Krawczyk's operator for the return map.

For $F(y) = P(y) - y$ on a box $Y = c \pm r$, and any matrix $C$, near $(DP(c) - I)^{-1}$,

$$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y - c) .$$

Every fixed point of $P$ in $Y$ is in $K$; and if $K$ is in the interior of $Y$, there is one, and only one. Stability does not
matter. Once it is proved, the operator is applied again with $F(c)$ in balls of fifty digits, where its error is some
$10^{-25}$: the remaining width of the bounds is the rounding to floats. The flow from a point or a very small set is then
enclosed as in `enclosed_step` and `taylor`, in balls of Arb: the states of a step are in a box $B$ with
$x + [0, h] f(B) \subset B$, and the remainder of Taylor's series is the coefficient of the next order over the box (Lagrange).
In the box $Y$ of a proof the derivative of the return map is enclosed, and every orbit takes the same route, so for
$c \in Y_k \subset Y$

$$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y_k - c)$$

holds the fixed point as before, and its radius is that of $F(c)$ but for a small part of the radius of $Y_k$.

Source: Krawczyk (1969), *Newton-Algorithmen zur Bestimmung von Nullstellen mit Fehlerschranken*, Computing 4; Rump (2010),
*Verification methods*, Acta Numerica 19, Sec. 13; Wilczak, Zgliczyński (2011), for the return map.
"""

import time
from fractions import Fraction
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._numerics.eager import short_run
from .._orbit.orbit import PeriodicOrbit
from .._system.types import require_counts
from .enclosed_map import EnclosedMap, Image
from .exact_numbers import (
    arb,
    arb_mat,
    balls,
    dot,
    exact_function,
    ExactFunction,
    exactly,
    krawczyk_operator,
    largest,
    NotEnclosed,
    Point,
    UNIT,
    widened,
    with_fifty_digits,
)
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
    orbit: PeriodicOrbit, *, radius: float | Literal["auto"] = 1e-8, steps: int = 64, orders: int = 14, degree: int = 1
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


# The orders of the series; how often a box is enlarged before it is given up; terms of the growth of a distance.
ORDERS, ENLARGED, GROWTH = 22, 12, 8
# Largest truncation error of a step, and the largest number of substeps.
LARGEST_ERROR, SUBSTEPS = arb(2) ** -100, 16
# Iterations of the operator at most; they end where the radii are far below those of floats, or have become no smaller.
ITERATIONS, SMALL_RADIUS = 6, arb(2) ** -72


class ExactStep(NamedTuple):
    """The flow from a set for any time up to some longest one.

    **Attributes:** `series`: the coefficients in time from the middle of the set; the last one is over the box of all states.
    `grown`: how far the other states are from there. `rate`: the vector field over the box. `longest`: the time.
    """

    series: list[Point]
    grown: Point
    rate: Point
    longest: arb

    @property
    @with_fifty_digits
    def left_out(self) -> arb:
        """A bound of what the series leave out."""
        return largest([each[-1].abs_upper() for each in self.series]) * self.longest ** (ORDERS + 1)

    @with_fifty_digits
    def at(self, t: arb) -> Point:
        """The states at a time from zero to the longest one."""
        states = []
        for coefficients, distance in zip(self.series, self.grown, strict=True):
            total = coefficients[-1]
            for each in coefficients[-2::-1]:
                total = total * t + each
            states.append(widened(total, distance))
        return states

    def around(self, states: Point, time: arb) -> Point:
        """The states at all times within a bound of those of some states of the step."""
        return [widened(each, time * speed) for each, speed in zip(states, self.rate, strict=True)]


@with_fifty_digits
def step_from(field: ExactFunction, columns: ExactFunction, x: Point, longest: arb) -> ExactStep:
    """The flow from `x` for a time up to `longest`. `NotEnclosed` where no box holds it.

    **Arguments:** `field`, `columns`: the vector field and the variational field.
    """
    box, times = x, arb(0).union(longest)
    for _ in range(ENLARGED):
        rate = field(box)
        image = [a + times * b for a, b in zip(x, rate, strict=True)]
        # A ball that is not finite holds another one.
        if all(old.is_finite() and old.contains(new) for new, old in zip(image, box, strict=True)):
            break
        box = [widened(each, each.rad() / 8 + UNIT) for each in image]
    else:
        raise NotEnclosed("no box holds the flow of a step")
    series = field.coefficients([each.mid() for each in x], ORDERS)
    last = field.coefficients(box, ORDERS + 1)
    series = [[*each, over[-1]] for each, over in zip(series, last, strict=True)]
    if not all(each.is_finite() for row in series for each in row):
        raise NotEnclosed("a derivative of the flow of a step is not bounded")
    return ExactStep(series, _grown(columns, box, x, longest), rate, longest)


def _grown(columns: ExactFunction, box: Point, x: Point, longest: arb) -> Point:
    r"""Bounds of the distance of all states from that of the middle: $e^{h|A|} r$ by entries, $|A|$ over the box."""
    n = len(x)
    start = [box[i] if j == 0 else arb(i == j - 1) for i in range(n) for j in range(n + 1)]
    rates = columns(start)
    slope = [[longest * rates[i * (n + 1) + 1 + j].abs_upper() for j in range(n)] for i in range(n)]
    if not all(dot(row, [arb(1)] * n) <= 1 for row in slope):
        raise NotEnclosed("a step is too long")
    power = total = [each.rad() for each in x]
    for k in range(1, GROWTH):
        power = [dot(row, power) / k for row in slope]
        total = [a + b for a, b in zip(total, power, strict=True)]
    # The norm of h |A| is at most one: the further terms are less than twice the last in all, each by the largest of its entries.
    rest = 2 * largest([each.upper() for each in power])
    return [(each + rest).upper() for each in total]


@with_fifty_digits
def crossing(step: ExactStep, height: ExactFunction, guess: arb) -> tuple[Point, arb]:
    r"""The states on the surface $g = 0$, and the time from the start of the step, near `guess`.

    By Newton's method to a time $t$, and its interval form: $t - g(x(t)) / \dot g(X)$ lies within $\delta$ of $t$, with $X$ all
    states within that time of $x(t)$. **Arguments:** `height`: $(g, \dot g)$ of a state. `NotEnclosed` where this fails.
    """
    t = guess.mid()
    for _ in range(8):
        value, rate = height([each.mid() for each in step.at(t)])
        t = (t - value / rate).mid()
    at = step.at(t)
    value, rate = height(at)
    allowed = 2 * (value / rate).abs_upper() + 2 * UNIT
    move = (value / height(step.around(at, allowed))[1]).abs_upper()
    if not move <= allowed:
        raise NotEnclosed("the time of a crossing is not enclosed")
    time = widened(t, move)
    if not (time - allowed >= 0 and time + allowed <= step.longest):
        raise NotEnclosed("a crossing is not within its step")
    return step.around(at, move), time


@with_fifty_digits
def exact_orbit(
    map: EnclosedMap, windows: list[tuple[arb, arb]], z: Point
) -> tuple[list[Point], list[Point], arb, Point]:
    """The orbit once around from a point of the section, by the reference's route. `NotEnclosed` where it is not followed.

    **Arguments:** `windows`: for each arc two times, between which the guard at its end is proved to fall through zero once, and
    not before, for all points of a set that holds `z`. **Returns:** the states just after and just before the jumps, the time
    once around, and the coordinates of the section at the end.
    """
    leaves, starts, ends, total = map.fields[0].leaves, [], [], arb(0)
    x = exact_function(map.lift, leaves)(z)
    for field, ending, (jump, _), duration, window in zip(
        map.fields, map.endings, map.jumps, map.durations, windows, strict=True
    ):
        rate, columns = exact_function(field.field, leaves), exact_function(field.variational, leaves)
        starts.append(x)
        h, parts, done = arb(float(duration) / map.steps), 1, Fraction(0)
        # Each step in as many substeps as make the truncation error of the series small; the last substep leads to the event.
        while done < map.steps - Fraction(1, parts):
            part = h / parts
            step = step_from(rate, columns, x, part)
            if not step.left_out <= LARGEST_ERROR and parts < SUBSTEPS:
                parts *= 2
                continue
            x, done = step.at(part), done + Fraction(1, parts)
        part = h / parts
        height = exact_function(field.guards[ending], leaves)
        x, last = crossing(step_from(rate, columns, x, part + part / 4), height, part)
        time = last + h * exactly(done)
        if not window[0] < time < window[1]:
            raise NotEnclosed(f"an event at {time} is not within its window {window}")
        ends.append(x)
        total += time
        x = exact_function(jump, leaves)(x)
    return starts, ends, total, exact_function(map.chart[0], leaves)(ends[-1])


@with_fifty_digits
def refined(
    map: EnclosedMap, windows: list[tuple[arb, arb]], inverse: arb_mat, slope: arb_mat, box: arb_mat
) -> arb_mat:
    """The fixed point in the coordinates `map.axes`. `NotEnclosed` where an orbit is not followed.

    **Arguments:** `windows`: as for `exact_orbit`. `inverse`: $C$. `slope`: $DP(Y)$. `box`: a part of $Y$ that holds the fixed
    point.
    """
    y = box
    for _ in range(ITERATIONS):
        center = y.mid()
        z = section_point(map, center)
        change = [after - before for after, before in zip(exact_orbit(map, windows, z)[-1], z, strict=True)]
        residual = balls(map.axes.matrix) * arb_mat(len(change), 1, change)
        step, spread = krawczyk_operator(inverse, slope, residual, y - center)
        # Entry by entry the smaller one: the fixed point is in both.
        both = list(zip((center + step + spread).entries(), y.entries(), strict=True))
        new = [a if a.rad() < b.rad() else b for a, b in both]
        if not all(b.contains(a) for a, b in zip(new, box.entries(), strict=True)):
            break
        y = arb_mat(len(new), 1, new)
        if all(each.rad() < SMALL_RADIUS for each in new) or not any(2 * a.rad() < b.rad() for a, b in both):
            break
    return y


@with_fifty_digits
def section_point(map: EnclosedMap, y: arb_mat) -> Point:
    """The coordinates of the section from those of `map.axes`."""
    return (balls(map.z) + balls(map.axes.inverse, map.axes.inverse_radius) * y).entries()
