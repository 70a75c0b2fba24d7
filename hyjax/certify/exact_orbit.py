r"""The bounds of a proved orbit with some twenty digits: Krawczyk's operator again, with the return map of a point in balls of
fifty digits.

In the box $Y$ of a proof the derivative of the return map is enclosed, and every orbit takes the same route. So

$$K = c - C\,F(c) + \big(I - C\,(DP(Y) - I)\big)(Y_k - c), \qquad c \in Y_k \subset Y$$

holds the fixed point as before, and its radius is that of $F(c)$ but for a small part of the radius of $Y_k$.
"""

import functools
import operator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from .enclosed_map import ReturnMap
from .exact_flow import crossing, FineFunction, Point, step_from
from .exact_numbers import arb, dot, exactly, NotEnclosed, with_fifty_digits

# Iterations at most; they end where the radii are far below those of floats, or have become no smaller.
ITERATIONS, ENOUGH = 6, arb(2) ** -72
# Largest truncation error of a step, and the largest number of substeps.
SMALL, PARTS = arb(2) ** -100, 16


class Lap(NamedTuple):
    """The arcs of an orbit once around: states just after and just before the jumps, the durations of the arcs, and the
    coordinates of the section at the end."""

    starts: list[Point]
    ends: list[Point]
    durations: Point
    z: Point

    @property
    @with_fifty_digits
    def duration(self) -> arb:
        """The time once around."""
        return functools.reduce(operator.add, self.durations)


class FineMap:
    r"""The return map of a point, by the reference's route.

    **Arguments:** `windows`: for each arc two times, between which the guard at its end is proved to fall through zero once, and
    not before, for all points of a set.
    """

    def __init__(self, map: ReturnMap, windows: list[tuple[arb, arb]]):
        self.map, self.windows = map, windows
        leaves = map.fields[0].leaves
        self.lift = FineFunction(map.lift, leaves)
        self.chart = FineFunction(map.chart[0], leaves)
        self.arcs = [
            [
                FineFunction(each, leaves)
                for each in (field.field, field.variational, field.guards[program.ending], jump)
            ]
            for field, program, (jump, _) in zip(map.fields, map.programs, map.jumps, strict=True)
        ]

    @with_fifty_digits
    def __call__(self, z: Point) -> Lap:
        """The lap from a point of that set. `NotEnclosed` where it is not followed."""
        starts, ends, durations, x = [], [], [], self.lift(z)
        for (field, columns, height, jump), duration, window in zip(
            self.arcs, self.map.durations, self.windows, strict=True
        ):
            starts.append(x)
            h, parts, done = arb(float(duration) / self.map.steps), 1, Fraction(0)
            # Each step in as many substeps as make the truncation error of the series small; the last substep leads to the event.
            while done < self.map.steps - Fraction(1, parts):
                part = h / parts
                step = step_from(field, columns, x, part)
                if not step.left_out <= SMALL and parts < PARTS:
                    parts *= 2
                    continue
                x, done = step.at(part), done + Fraction(1, parts)
            part = h / parts
            x, last = crossing(step_from(field, columns, x, part + part / 4), height, part)
            time = last + h * exactly(done)
            if not window[0] < time < window[1]:
                raise NotEnclosed(f"an event at {time} is not within its window {window}")
            ends.append(x)
            durations.append(time)
            x = jump(x)
        return Lap(starts, ends, durations, self.chart(ends[-1]))


@with_fifty_digits
def refined(
    fine: FineMap, inverse: np.ndarray, slope: tuple[np.ndarray, np.ndarray], box: tuple[np.ndarray, np.ndarray]
) -> tuple[Point, Lap]:
    """The fixed point in the coordinates `map.axes`, and the orbit through it. `NotEnclosed` where a lap is not followed.

    **Arguments:** `inverse`: $C$. `slope`: midpoint and radius of $DP(Y)$. `box`: center and radius of a part of $Y$ that holds
    the fixed point.
    """
    axes, n = fine.map.axes, len(inverse)
    forth, c = _matrix(axes.matrix), _matrix(inverse)
    back = _matrix(axes.inverse, axes.inverse_radius)
    shear = _matrix(np.asarray(slope[0]), np.asarray(slope[1]))
    shear = [[shear[i][j] - (i == j) for j in range(n)] for i in range(n)]
    columns = list(zip(*shear, strict=True))
    shear = [[(i == j) - dot(c[i], columns[j]) for j in range(n)] for i in range(n)]
    outer = [arb(float(m), float(r)) for m, r in zip(*box, strict=True)]

    def section_point(y: Point) -> Point:
        return [arb(float(z)) + dot(row, y) for z, row in zip(fine.map.z, back, strict=True)]

    def improved(y: Point) -> Point:
        center = [each.mid() for each in y]
        z = section_point(center)
        change = [after - before for after, before in zip(fine(z).z, z, strict=True)]
        change = [dot(row, change) for row in forth]
        reach = [arb(0, each.rad()) for each in y]
        return [middle - dot(c[i], change) + dot(shear[i], reach) for i, middle in enumerate(center)]

    y = outer
    for _ in range(ITERATIONS):
        # Entry by entry the smaller one: the fixed point is in both.
        both = list(zip(improved(y), y, strict=True))
        new = [a if a.rad() < b.rad() else b for a, b in both]
        if not all(b.contains(a) for a, b in zip(new, outer, strict=True)):
            break
        y = new
        if all(each.rad() < ENOUGH for each in y) or not any(2 * a.rad() < b.rad() for a, b in both):
            break
    z = section_point(y)
    return y, fine(z)._replace(z=z)


def _matrix(middle, radius=None) -> list[Point]:
    middle = np.asarray(middle)
    radius = np.zeros(middle.shape) if radius is None else np.asarray(radius)
    return [[arb(float(m), float(r)) for m, r in zip(*rows, strict=True)] for rows in zip(middle, radius, strict=True)]
