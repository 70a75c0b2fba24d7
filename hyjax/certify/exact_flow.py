r"""The flow from one point with some fifty digits, and its crossing of a surface: Taylor's series with Lagrange's remainder.

As in `step` and `taylor`, but for a point or a very small set, in exact arithmetic of Python: the states of a step are in a box
$B$ with $x + [0, h] f(B) \subset B$, and the remainder is the coefficient of the next order over the box.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .exact_graph import combine, constants_of, FineLevels, truth_of, values
from .fixed_point_numbers import divided, dot, NotEnclosed, Number, UNIT, ZERO
from .schedule import Kind
from .symbolic import Graph

# The orders of the series; how often a box is enlarged before it is given up; terms of the growth of a distance.
ORDERS, ENLARGED, GROWTH = 22, 12, 8

Point = list[Number]


class FineFunction:
    """A graph with its fixed combinations for some parameters, as a function of a point or box."""

    def __init__(self, graph: Graph, leaves: Sequence[Any]):
        self.value = FineLevels(graph.varying, constants_of(graph, leaves))

    def __call__(self, x: Point) -> Point:
        return self.value(x)

    def coefficients(self, x: Point, orders: int) -> list[Point]:
        r"""The Taylor coefficients of the flow of $\dot x = f(x)$, of orders up to `orders`, for each entry of the state."""
        levels, series = self.value.levels, [[each] for each in x]
        operands = [[[] for _ in lines] for lines, _ in levels]
        found = [[[[] for _ in range(_outputs(kind))] for kind in kinds] for _, kinds in levels]
        for n in range(orders):
            memory = [ZERO if n else UNIT, *(each[n] for each in series)]
            for (lines, kinds), rows, outputs in zip(levels, operands, found, strict=True):
                for row, term in zip(rows, combine(lines, memory), strict=True):
                    row.append(term)
                for kind, known in zip(kinds, outputs, strict=True):
                    terms = _terms(kind, rows, known, n) if n else values(kind, [row[0] for row in rows])
                    for value, term in zip(known, terms, strict=True):
                        value.append(term)
                    memory += terms
            for each, rate in zip(series, combine(self.value.results, memory), strict=True):
                each.append(divided(rate, n + 1))
        return series


def _outputs(kind: Kind) -> int:
    return kind.count * (2 if kind.name == "sin_cos" else 1)


def _sum(left: Point, right: Point, n: int, weighted: bool = False) -> Number:
    r"""$\sum_j l_j r_{n-j}$, or $\sum_j j\,l_j r_{n-j}$, over the terms that both series have by now."""
    low, high = max(0, n - len(right) + 1), min(n, len(left) - 1)
    some = left[low : high + 1]
    if weighted:
        some = [Number(j * a.middle, j * a.radius) for j, a in enumerate(some, low)]
    return dot(some, [right[n - j] for j in range(low, high + 1)])


def _terms(kind: Kind, rows: list[Point], known: list[Point], n: int) -> Point:
    """The coefficients of order `n >= 1` of the atoms of one kind: the recurrences of `taylor`."""
    a, name, terms = rows[kind.first : kind.first + kind.count], kind.name, []
    b = rows[kind.first + kind.count : kind.first + 2 * kind.count]
    if name == "sin_cos":
        pairs = list(zip(a, known[: kind.count], known[kind.count :], strict=True))
        sines = [divided(_sum(u, cosine, n, True), n) for u, _, cosine in pairs]
        return sines + [-divided(_sum(u, sine, n, True), n) for u, sine, _ in pairs]
    for i, (u, y) in enumerate(zip(a, known, strict=True)):
        if name == "mul":
            terms.append(_sum(u, b[i], n))
        elif name == "div":
            terms.append((u[n] - _sum(y, b[i], n)) / b[i][0])
        elif name == "exp":
            terms.append(divided(_sum(u, y, n, True), n))
        elif name == "sqrt":
            terms.append((u[n] - _sum(y, y, n)) / (y[0] + y[0]))
        elif name in ("log", "atan"):
            divisor = u if name == "log" else b[i]
            terms.append((u[n] - divided(_sum(y, divisor, n, True), n)) / divisor[0])
        else:
            terms.append(_chosen(kind, i, rows, u, b[i] if b else u, n))
    return terms


def _chosen(kind: Kind, i: int, rows: list[Point], u: Point, v: Point, n: int) -> Number:
    """The coefficient of a function that is one of its operands, or its negative, or constant. `NotEnclosed` where it is not
    certain which."""
    if kind.name in ("select", "chosen"):
        held = truth_of(kind.conditions[i], [row[0] for row in rows])
        if held is None:
            raise NotEnclosed("a condition is undecided")
        return v[n] if held else u[n]
    if kind.name == "floor":
        low, high = u[0].low // UNIT.middle, u[0].high // UNIT.middle
        if low != high or low * UNIT.middle == u[0].low:
            raise NotEnclosed("a number is not between two integers")
        return ZERO
    rises = u[0] - (v[0] if kind.name == "max" else ZERO)
    if rises.low <= 0 <= rises.high:
        raise NotEnclosed("a maximum, modulus or sign is not smooth there")
    if kind.name == "sign":
        return ZERO
    other = v[n] if kind.name == "max" else -u[n]
    return u[n] if rises.middle > 0 else other


class Step(NamedTuple):
    """The flow from a set for any time up to some longest one.

    **Attributes:** `series`: the coefficients in time from the middle of the set; the last one is over the box of all states.
    `grown`: how far the other states are from there, in units. `rate`: the vector field over the box. `longest`: the time.
    """

    series: list[Point]
    grown: list[int]
    rate: Point
    longest: Number

    @property
    def left_out(self) -> int:
        """A bound of what the series leave out, in units."""
        power = UNIT
        for _ in range(ORDERS + 1):
            power = power * self.longest
        return max((power * each[-1]).largest for each in self.series)

    def at(self, t: Number) -> Point:
        """The states at a time from zero to the longest one."""
        states = []
        for coefficients, units in zip(self.series, self.grown, strict=True):
            total = coefficients[-1]
            for each in coefficients[-2::-1]:
                total = total * t + each
            states.append(total.widened(units))
        return states


def step_from(field: FineFunction, columns: FineFunction, x: Point, longest: Number) -> Step:
    """The flow from `x` for a time up to `longest`. `NotEnclosed` where no box holds it.

    **Arguments:** `field`, `columns`: the vector field and the variational field.
    """
    box, half = x, Number(longest.middle // 2 + 1, longest.radius)
    for _ in range(ENLARGED):
        rate = field(box)
        # [0, h] f is h f / 2 +- h |f| / 2 for the middle of f, and h times its radius.
        moves = [half * Number(each.middle) for each in rate]
        reach = [a.largest + a.radius + (longest * Number(b.radius)).high for a, b in zip(moves, rate, strict=True)]
        image = [Number(a.middle + move.middle, a.radius + far) for a, move, far in zip(x, moves, reach, strict=True)]
        if all(abs(new.middle - old.middle) + new.radius <= old.radius for new, old in zip(image, box, strict=True)):
            break
        box = [each.widened(each.radius // 8 + 1) for each in image]
    else:
        raise NotEnclosed("no box holds the flow of a step")
    series = field.coefficients([Number(each.middle) for each in x], ORDERS)
    last = field.coefficients(box, ORDERS + 1)
    series = [[*each, over[-1]] for each, over in zip(series, last, strict=True)]
    return Step(series, _grown(columns, box, x, longest), rate, longest)


def _grown(columns: FineFunction, box: Point, x: Point, longest: Number) -> list[int]:
    r"""Bounds of the distance of all states from that of the middle, in units: $e^{h|A|} r$ by entries, $|A|$ over the box."""
    n = len(x)
    start = [box[i] if j == 0 else UNIT if i == j - 1 else ZERO for i in range(n) for j in range(n + 1)]
    rates = columns(start)
    slope = [[longest * Number(rates[i * (n + 1) + 1 + j].largest) for j in range(n)] for i in range(n)]
    if max(sum(each.high for each in row) for row in slope) > UNIT.middle:
        raise NotEnclosed("a step is too long")
    power = total = [Number(each.radius) for each in x]
    for k in range(1, GROWTH):
        power = [divided(Number(dot(row, power).high), k) for row in slope]
        total = [a + b for a, b in zip(total, power, strict=True)]
    # The norm of h |A| is at most one: the further terms are less than twice the last in all, each by the largest of its entries.
    rest = 2 * max(each.high for each in power)
    return [each.high + rest for each in total]


def crossing(step: Step, height: FineFunction, guess: Number) -> tuple[Point, Number]:
    r"""The states on the surface $g = 0$, and the time from the start of the step, near `guess`.

    By Newton's method to a time $t$, and its interval form: $t - g(x(t)) / \dot g(X)$ lies within $\delta$ of $t$, with $X$ all
    states within that time of $x(t)$. **Arguments:** `height`: $(g, \dot g)$ of a state. `NotEnclosed` where this fails.
    """
    t = Number(guess.middle)
    for _ in range(8):
        value, rate = height([Number(each.middle) for each in step.at(t)])
        t = Number((t - value / rate).middle)
    at = step.at(t)
    value, rate = height(at)
    allowed = 2 * (value / rate).largest + 2
    near = [
        each.widened((Number(allowed) * Number(speed.largest)).high) for each, speed in zip(at, step.rate, strict=True)
    ]
    move = (value / height(near)[1]).largest
    if move > allowed:
        raise NotEnclosed("the time of a crossing is not enclosed")
    time = t.widened(move)
    if time.low - allowed < 0 or time.high + allowed > step.longest.low:
        raise NotEnclosed("a crossing is not within its step")
    states = [
        each.widened((Number(move) * Number(speed.largest)).high) for each, speed in zip(at, step.rate, strict=True)
    ]
    return states, time
