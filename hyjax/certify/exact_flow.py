r"""The flow from one point with some fifty digits, its crossing of a surface, and the return map: Taylor's series with Lagrange's
remainder, and Krawczyk's operator again.

As in `enclosed_step` and `taylor`, but for a point or a very small set, in balls of Arb: the states of a step are in a box
$B$ with $x + [0, h] f(B) \subset B$, and the remainder is the coefficient of the next order over the box. In the box $Y$ of a
proof the derivative of the return map is enclosed, and every orbit takes the same route. So

$$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y_k - c), \qquad c \in Y_k \subset Y$$

holds the fixed point as before, and its radius is that of $F(c)$ but for a small part of the radius of $Y_k$.
"""

from fractions import Fraction
from typing import NamedTuple

from .enclosed_map import EnclosedMap
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
