r"""A second proof of periodic orbits, by Arb's balls of some hundred digits and Taylor's series, that shares nothing with hyjax.

A system is written again here: its vector field with the derivative of it, for numbers and power series alike; guard, reset and
the coordinates of the section with theirs. The flow of a box is enclosed step by step: a box that holds all states of a step by
Picard's theorem, and Taylor's polynomial with the coefficient of the next order over that box as remainder. The event is
enclosed by Newton's interval operator, and the orbit by Krawczyk's.
"""

from collections.abc import Callable
from typing import NamedTuple

import flint
from flint import arb, arb_mat, arb_series

ORDER = 24
Vector = list


class Written(NamedTuple):
    """A system with one mode and one guard, and its return map in section coordinates `z`.

    **Attributes:** `field`: of a state. `slope`: rows of its Jacobian. `guard`, `gradient`: of a state. `lift`, `lift_slope`: the
    state after the jump, and its Jacobian by `z`. `chart`: which entries of the state before the jump are `z`.
    """

    field: Callable
    slope: Callable
    guard: Callable
    gradient: Callable
    lift: Callable
    lift_slope: Callable
    chart: tuple[int, ...]


class Arc(NamedTuple):
    """The state at the event and its time, and the derivative of both the flow to there and the projection, shape `(n, n)`."""

    end: Vector
    time: arb
    slope: arb_mat


def columns(system: Written, n: int) -> Callable:
    """The field of the state with the columns of the derivative of its flow, as one vector of n + n n entries."""

    def field(y):
        x, v = y[:n], y[n:]
        slope = system.slope(x)
        moved = [sum((slope[i][k] * v[k * n + j] for k in range(n)), 0 * v[0]) for i in range(n) for j in range(n)]
        return [*system.field(x), *moved]

    return field


def coefficients(field: Callable, y: Vector, order: int) -> list[Vector]:
    """Taylor's coefficients of the flow from a box, of each entry."""
    series = [[each] for each in y]
    for k in range(order):
        flint.ctx.cap = k + 1
        rates = field([arb_series(each, prec=k + 1) for each in series])
        for each, rate in zip(series, rates, strict=True):
            each.append(arb_series(rate, prec=k + 1)[k] / (k + 1))
    return series


def held(field: Callable, y: Vector, h: arb) -> Vector:
    """A box that holds the flow from a box for all times up to `h`."""
    during = arb(0).union(h)
    box = [a + during * rate for a, rate in zip(y, field(y), strict=True)]
    for _ in range(40):
        box = [a + (a - arb(a.mid())) * arb("0.2") + arb(0, arb(2) ** -300) for a in box]
        image = [a + during * rate for a, rate in zip(y, field(box), strict=True)]
        if all(outer.contains_interior(inner) for outer, inner in zip(box, image, strict=True)):
            return box
        box = image
    raise ArithmeticError("no box holds the flow of a step")


class Step(NamedTuple):
    """The flow from a box for times up to `h`."""

    series: list[Vector]
    rest: Vector
    box: Vector
    h: arb

    def at(self, t: arb) -> Vector:
        """The states at a time."""
        found = []
        for series, rest in zip(self.series, self.rest, strict=True):
            total = arb(0)
            for each in reversed(series):
                total = total * t + each
            found.append(total + rest * t ** (ORDER + 1))
        return found


def step_from(field: Callable, y: Vector, h: arb) -> Step:
    box = held(field, y, h)
    rest = [each[-1] for each in coefficients(field, box, ORDER + 1)]
    return Step(coefficients(field, y, ORDER), rest, box, h)


def arc(system: Written, x: Vector, h: arb, leaving: int) -> Arc:
    """From a box of states after a jump to the guard, by steps of a length.

    For the first `leaving` steps the guard may fall from zero, which is no event. In each further one it is not zero, or rises,
    or falls once: that is the event. `ArithmeticError` where this is not proved.
    """
    n = len(x)
    field = columns(system, n)
    y = [*x, *(arb(int(i == j)) for i in range(n) for j in range(n))]
    time = arb(0)
    rate = lambda at: sum((a * b for a, b in zip(system.gradient(at), system.field(at), strict=True)), arb(0))
    for count in range(10_000):
        step = step_from(field, y, h)
        height, speed = system.guard(step.box[:n]), rate(step.box[:n])
        ended = step.at(h)
        falls = speed < 0
        if height > 0 or height < 0 or speed > 0 or (falls and (count < leaving or system.guard(ended[:n]) > 0)):
            y, time = ended, time + h
        elif falls and system.guard(y[:n]) > 0 and system.guard(ended[:n]) < 0:
            break
        else:
            raise ArithmeticError(
                f"step {count}: the guard {height} is neither quiet nor does it fire, at a rate of {speed}"
            )
    else:
        raise ArithmeticError("no event")
    t = h / 2
    for _ in range(60):
        at = step.at(arb(t.mid()))[:n]
        t = arb((t - system.guard(at) / rate(at)).mid())
    # Newton's operator over all times of the step holds the one zero; then over that.
    inside = arb(0).union(h)
    for _ in range(4):
        inside = (t - system.guard(step.at(t)[:n]) / rate(step.at(inside)[:n])).intersection(inside)
    end = step.at(inside)
    x, flow = end[:n], arb_mat(n, n, end[n:])
    speeds, gradient = system.field(x), system.gradient(x)
    along = arb_mat(1, n, gradient) * flow
    fall = rate(x)
    slope = arb_mat([[flow[i, j] - speeds[i] * along[0, j] / fall for j in range(n)] for i in range(n)])
    return Arc(x, time + inside, slope)


def return_map(system: Written, z: Vector, h: arb, leaving: int):
    """The image of a box of the section, the derivative of the map over it, and the arc."""
    n = len(system.lift(z))
    found = arc(system, system.lift(z), h, leaving)
    slope = found.slope * arb_mat(system.lift_slope(z))
    image = [found.end[i] for i in system.chart]
    m = len(z)
    assert slope.nrows() == n
    return image, arb_mat([[slope[i, j] for j in range(m)] for i in system.chart]), found


def orbit_in(system: Written, z: Vector, radius: arb, h: arb, leaving: int = 4, rounds: int = 4, newton_steps: int = 2):
    """The one fixed point in the box about `z`, by Krawczyk's operator: the smallest box of it, and what `return_map` says there.

    `ArithmeticError` where the operator does not map the box into its interior.
    """
    m = len(z)
    identity = arb_mat(m, m, [int(i == j) for i in range(m) for j in range(m)])
    image, slope, _ = return_map(system, z, h, leaving)
    for _ in range(newton_steps):
        # Newton's method for the middle.
        newton = (slope - identity).inv()
        z = [arb((z[i] - sum((newton[i, j] * (image[j] - z[j]) for j in range(m)), arb(0))).mid()) for i in range(m)]
        image, slope, _ = return_map(system, z, h, leaving)
    newton = (slope - identity).inv()
    newton = arb_mat(m, m, [arb(newton[i, j].mid()) for i in range(m) for j in range(m)])
    step = newton * arb_mat(m, 1, [image[j] - z[j] for j in range(m)])
    box = [each + arb(0, radius) for each in z]
    for count in range(rounds):
        _, slope, _ = return_map(system, box, h, leaving)
        shear = identity - newton * (slope - identity)
        moved = shear * arb_mat(m, 1, [box[j] - z[j] for j in range(m)])
        new = [z[i] - step[i, 0] + moved[i, 0] for i in range(m)]
        if count == 0 and not all(a.contains_interior(b) for a, b in zip(box, new, strict=True)):
            raise ArithmeticError("the box is not mapped into its interior")
        box = [a.intersection(b) for a, b in zip(box, new, strict=True)]
    return box, return_map(system, box, h, leaving)
