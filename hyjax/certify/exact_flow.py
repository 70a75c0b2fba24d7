r"""The flow from one point with some fifty digits, and its crossing of a surface: Taylor's series with Lagrange's remainder.

As in `enclosed_step` and `taylor`, but for a point or a very small set, in balls of Arb: the states of a step are in a box
$B$ with $x + [0, h] f(B) \subset B$, and the remainder is the coefficient of the next order over the box.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .exact_graph import combine, constants_of, FineLevels, truth_of, values
from .exact_numbers import arb, dot, largest, NotEnclosed, UNIT, widened, with_fifty_digits
from .schedule import Kind
from .symbolic import Graph

# The orders of the series; how often a box is enlarged before it is given up; terms of the growth of a distance.
ORDERS, ENLARGED, GROWTH = 22, 12, 8

Point = list[arb]


class FineFunction:
    """A graph with its fixed combinations for some parameters, as a function of a point or box."""

    def __init__(self, graph: Graph, leaves: Sequence[Any]):
        self.value = FineLevels(graph.varying, constants_of(graph, leaves))

    def __call__(self, x: Point) -> Point:
        return self.value(x)

    @with_fifty_digits
    def coefficients(self, x: Point, orders: int) -> list[Point]:
        r"""The Taylor coefficients of the flow of $\dot x = f(x)$, of orders up to `orders`, for each entry of the state."""
        levels, series = self.value.levels, [[each] for each in x]
        operands = [[[] for _ in lines] for lines, _ in levels]
        found = [[[[] for _ in range(_outputs(kind))] for kind in kinds] for _, kinds in levels]
        for n in range(orders):
            memory = [arb(0 if n else 1), *(each[n] for each in series)]
            for (lines, kinds), rows, outputs in zip(levels, operands, found, strict=True):
                for row, term in zip(rows, combine(lines, memory), strict=True):
                    row.append(term)
                for kind, known in zip(kinds, outputs, strict=True):
                    terms = _terms(kind, rows, known, n) if n else values(kind, [row[0] for row in rows])
                    for value, term in zip(known, terms, strict=True):
                        value.append(term)
                    memory += terms
            for each, rate in zip(series, combine(self.value.results, memory), strict=True):
                each.append(rate / (n + 1))
        return series


def _outputs(kind: Kind) -> int:
    return kind.count * (2 if kind.name == "sin_cos" else 1)


def _sum(left: Point, right: Point, n: int, weighted: bool = False) -> arb:
    r"""$\sum_j l_j r_{n-j}$, or $\sum_j j\,l_j r_{n-j}$, over the terms that both series have by now."""
    low, high = max(0, n - len(right) + 1), min(n, len(left) - 1)
    some = left[low : high + 1]
    if weighted:
        some = [j * a for j, a in enumerate(some, low)]
    return dot(some, [right[n - j] for j in range(low, high + 1)])


def _terms(kind: Kind, rows: list[Point], known: list[Point], n: int) -> Point:
    """The coefficients of order `n >= 1` of the atoms of one kind: the recurrences of `taylor`."""
    a, name, terms = rows[kind.first : kind.first + kind.count], kind.name, []
    b = rows[kind.first + kind.count : kind.first + 2 * kind.count]
    if name == "sin_cos":
        pairs = list(zip(a, known[: kind.count], known[kind.count :], strict=True))
        sines = [_sum(u, cosine, n, True) / n for u, _, cosine in pairs]
        return sines + [-_sum(u, sine, n, True) / n for u, sine, _ in pairs]
    for i, (u, y) in enumerate(zip(a, known, strict=True)):
        if name == "mul":
            terms.append(_sum(u, b[i], n))
        elif name == "div":
            terms.append((u[n] - _sum(y, b[i], n)) / b[i][0])
        elif name == "exp":
            terms.append(_sum(u, y, n, True) / n)
        elif name == "sqrt":
            terms.append((u[n] - _sum(y, y, n)) / (y[0] + y[0]))
        elif name in ("log", "atan"):
            divisor = u if name == "log" else b[i]
            terms.append((u[n] - _sum(y, divisor, n, True) / n) / divisor[0])
        else:
            terms.append(_chosen(kind, i, rows, u, u if name in ("abs", "sign", "floor") else b[i], n))
    return terms


def _chosen(kind: Kind, i: int, rows: list[Point], u: Point, v: Point, n: int) -> arb:
    """The coefficient of a function that is one of its operands, or its negative, or constant. `NotEnclosed` where it is not
    certain which."""
    if kind.name in ("select", "chosen"):
        held = truth_of(kind.conditions[i], [row[0] for row in rows])
        if held is None:
            raise NotEnclosed("a condition is undecided")
        return v[n] if held else u[n]
    if kind.name == "floor":
        below = u[0].floor().mid()
        if not below < u[0] < below + 1:
            raise NotEnclosed("a number is not between two integers")
        return arb(0)
    rises = u[0] - v[0] if kind.name == "max" else u[0]
    if not (rises > 0 or rises < 0):
        raise NotEnclosed("a maximum, modulus or sign is not smooth there")
    if kind.name == "sign":
        return arb(0)
    other = v[n] if kind.name == "max" else -u[n]
    return u[n] if rises > 0 else other


class Step(NamedTuple):
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
def step_from(field: FineFunction, columns: FineFunction, x: Point, longest: arb) -> Step:
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
    return Step(series, _grown(columns, box, x, longest), rate, longest)


def _grown(columns: FineFunction, box: Point, x: Point, longest: arb) -> Point:
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
def crossing(step: Step, height: FineFunction, guess: arb) -> tuple[Point, arb]:
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
