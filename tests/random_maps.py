r"""Random hybrid systems whose return map is known in exact arithmetic, and provers that are compiled once for all of them.

The state is $(x, y, \tau, p)$ with $\dot y = 0$, a clock $\dot\tau = 1$, and the parameters $p$ as coordinates that rest. So one
compiled enclosure of the return map is that of every system: parameters are a point of its set of states. Of the section, the
first two coordinates are those $z$ with $x = m_x + u(z_0 + hz_1)$ and $y = m_y + 2uz_1$, where the centre $m$, the unit $u$ and
the shear $h$ are parameters, too.

- *Resets*: $\dot x = a$ until $\tau = 1 + kx$, then $x^+ = c_0 + c_1x + c_2x^2 + c_3x^3 + e|x - q| + j\,[x > v]$.
- *Guards*: the same, until $\tau = 1 + kx + l\max(x, r)$.
- *Fields*: $\dot x = a + b\,\mathrm{sign}(\tau - s - mx)$ until $\tau = 1 + kx$, then $x^+ = c_0 + c_1x + c_2x^2 + e\max(x, q)$.

$y^+ = y/2 + x/4$ in both. Before the reset $x$ is piecewise affine in its value after the last one, so the return map consists of
polynomials with rational coefficients, whose roots are counted by Sturm's theorem.
"""

import dataclasses
import itertools
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

import hyjax as hj
from hyjax._testing import (
    approximate_inverse,
    basis,
    Boxes,
    BoxImage,
    Disturbance,
    EnclosedMap,
    identity_frame,
    Image,
    NONE,
    SectionChart,
    TaylorModel,
    up,
)

STEPS, ORDERS = 6, 4
Polynomial = list[Fraction]


def resets_rate(tau, x, p):
    return p["a"]


def resets_jump(x, p):
    smooth = p["c0"] + p["c1"] * x + p["c2"] * x**2 + p["c3"] * x**3
    return smooth + p["e"] * jnp.abs(x - p["q"]) + jnp.where(x > p["v"], p["j"], 0.0)


def line(x, p):
    return 1 + p["k"] * x


def bent(x, p):
    return 1 + p["k"] * x + p["l"] * jnp.maximum(x, p["r"])


def fields_rate(tau, x, p):
    return p["a"] + p["b"] * jnp.sign(tau - p["s"] - p["m"] * x)


def fields_jump(x, p):
    return p["c0"] + p["c1"] * x + p["c2"] * x**2 + p["e"] * jnp.maximum(x, p["q"])


@dataclasses.dataclass(frozen=True)
class Family:
    """Systems of one compiled program: the names of their parameters, the rate of x, its time at the guard, and its reset."""

    names: tuple[str, ...]
    rate: object
    height: object
    jump: object

    def system(self, kept: float) -> hj.HybridSystem:
        """With parameters of which a jump keeps a part; all of them in a system that is meant."""
        count = len(self.names)
        read = lambda x: dict(zip(self.names, (x[3 + i] for i in range(count)), strict=True))

        def field(t, x, _):
            rest = jnp.zeros(4 + count)
            return jnp.concatenate([jnp.stack([self.rate(x[2], x[0], read(x)), 0 * x[1], jnp.ones_like(x[2])]), rest])

        def reset(t, x, _):
            after = jnp.stack([self.jump(x[0], read(x)), x[1] / 2 + x[0] / 4, 0 * x[2]])
            return jnp.concatenate([after, kept * x[3:]])

        guard = lambda t, x, _: self.height(x[0], read(x)) - x[2]
        names = ("x", "y", "clock", *self.names, *PLACE)
        return hj.HybridSystem({"m": hj.Mode(field, names)}, (hj.Transition("m", "m", guard, reset),))

    def pieces(self, p: dict[str, Fraction]) -> tuple[list[Fraction], list[Polynomial]]:
        """Where the return map of x changes, in order, and its polynomial below, between and above."""
        one = Fraction(1)
        if self is RESETS:
            before = ([], [_until_the_guard((Fraction(0), one), Fraction(0), p["a"], p["k"])])
        else:
            before = _through_the_field(p) if self is FIELDS else _until_the_bent_guard(p)
        breaks, found, lines = [], [], before[1]
        for i, line in enumerate(lines):
            low, high = ([None, *before[0]])[i], ([*before[0], None])[i]
            inner = sorted((at - line[0]) / line[1] for name, at in p.items() if name in "qv" and line[1])
            inner = [at for at in inner if (low is None or at > low) and (high is None or at < high)]
            ends = [low, *inner, high]
            breaks += [each for each in ends[1:-1]] + ([high] if high is not None else [])
            for a, b in itertools.pairwise(ends):
                middle = (
                    (a + b) / 2 if None not in (a, b) else (a + 1 if a is not None else b - 1 if b is not None else one)
                )
                found.append(_composed(self._jump_near(line[0] + line[1] * middle, p), line))
        return breaks, found

    def _jump_near(self, x: Fraction, p: dict[str, Fraction]) -> Polynomial:
        """The polynomial of the reset near a state."""
        c = [p["c0"], p["c1"], p["c2"], p.get("c3", Fraction(0))]
        if "v" in p:
            sign = 1 if x > p["q"] else -1
            c[0] += p["j"] * (x > p["v"]) - sign * p["e"] * p["q"]
            c[1] += sign * p["e"]
        elif x > p["q"]:
            c[1] += p["e"]
        else:
            c[0] += p["e"] * p["q"]
        return c


# Where the coordinates of the section are: the centre, how much larger than one the unit is, and the shear.
PLACE = ("centre of x", "centre of y", "unit less one", "shear")
_NAMES = ("a", "k", "c0", "c1", "c2", "c3", "e", "q", "j", "v")
RESETS = Family(_NAMES, resets_rate, line, resets_jump)
GUARDS = Family((*_NAMES, "l", "r"), resets_rate, bent, resets_jump)
FIELDS = Family(("a", "b", "s", "m", "k", "c0", "c1", "c2", "e", "q"), fields_rate, line, fields_jump)


def _until_the_guard(x, time, rate, k):
    """The state at the guard $1 + kx = \\tau$ from `x`, affine in the first state, at a time that is affine in it, by a rate."""
    zero = Fraction(0)
    time = time if isinstance(time, tuple) else (time, zero)
    # x + rate (T - time), T = (1 + k (x - rate time)) / (1 - k rate)
    at_zero = [a - rate * t for a, t in zip(x, time, strict=True)]
    ends = [(Fraction(i == 0) + k * a) / (1 - k * rate) for i, a in enumerate(at_zero)]
    return tuple(a + rate * t for a, t in zip(at_zero, ends, strict=True))


def _until_the_bent_guard(p):
    """The state at the guard of *guards*: below r and above."""
    below, above = 1 - p["k"] * p["a"], 1 - (p["k"] + p["l"]) * p["a"]
    lines = [(p["a"] * (1 + p["l"] * p["r"]) / below, 1 / below), (p["a"] / above, 1 / above)]
    return [(p["r"] - lines[1][0]) / lines[1][1]], lines


def _through_the_field(p):
    """The state at the guard of *fields*: the surface $\\tau = s + mx$ is crossed before the guard, or not."""
    one, zero = Fraction(1), Fraction(0)
    slow, fast = p["a"] - p["b"], p["a"] + p["b"]
    # The surface is met at (s + m x) / (1 - m slow), from below; before time zero for x beyond the first break.
    meets = (p["s"] / (1 - p["m"] * slow), p["m"] / (1 - p["m"] * slow))
    at = tuple(Fraction(i == 1) + slow * t for i, t in enumerate(meets))
    below = _until_the_guard((zero, one), zero, slow, p["k"])
    through = _until_the_guard(at, meets, fast, p["k"])
    above = _until_the_guard((zero, one), zero, fast, p["k"])
    # Not before the guard's time, of the slow rate.
    late = tuple((Fraction(i == 0) + p["k"] * Fraction(i == 1)) / (1 - p["k"] * slow) - t for i, t in enumerate(meets))
    first, last = -meets[0] / meets[1], -late[0] / late[1] if late[1] else None
    marks = [(first, "meets")] + ([(last, "late")] if last is not None else [])
    marks.sort()
    lines = []
    edges = [each for each, _ in marks]
    for a, b in zip([None, *edges], [*edges, None], strict=True):
        x = (a + b) / 2 if None not in (a, b) else (a + 1 if a is not None else b - 1)
        if meets[0] + meets[1] * x <= 0:
            lines.append(above)
        elif late[0] + late[1] * x <= 0:
            lines.append(below)
        else:
            lines.append(through)
    return edges, lines


def _composed(polynomial: Polynomial, line) -> Polynomial:
    """A polynomial of an affine function."""
    total, power = [Fraction(0)] * len(polynomial), [Fraction(1)]
    for each in polynomial:
        for i, c in enumerate(power):
            total[i] += each * c
        power = [line[0] * a + line[1] * b for a, b in zip([*power, Fraction(0)], [Fraction(0), *power], strict=True)]
    return total


def value(polynomial: Polynomial, x: Fraction) -> Fraction:
    """By Horner's rule."""
    total = Fraction(0)
    for each in reversed(polynomial):
        total = total * x + each
    return total


def slope(polynomial: Polynomial) -> Polynomial:
    """The derivative."""
    return [i * each for i, each in enumerate(polynomial)][1:] or [Fraction(0)]


def distinct_roots(polynomial: Polynomial, low: Fraction, high: Fraction) -> int:
    """The number of distinct roots in (low, high], by Sturm's theorem; none of a constant."""
    chain = [_trimmed(polynomial), _trimmed(slope(polynomial))]
    while len(chain[-1]) > 1 or chain[-1][0]:
        rest = list(chain[-2])
        while len(rest) >= len(chain[-1]):
            factor = rest[-1] / chain[-1][-1]
            shift = len(rest) - len(chain[-1])
            rest = [each - (factor * chain[-1][i - shift] if i >= shift else 0) for i, each in enumerate(rest)][:-1]
        if not any(rest):
            break
        chain.append([-each for each in _trimmed(rest)])

    def changes(x):
        signs = [each > 0 for each in (value(part, x) for part in chain) if each != 0]
        return sum(a != b for a, b in itertools.pairwise(signs))

    return changes(low) - changes(high)


def _trimmed(polynomial: Polynomial) -> Polynomial:
    last = max((i for i, each in enumerate(polynomial) if each), default=0)
    return list(polynomial[: last + 1])


def roots(polynomial: Polynomial, low: Fraction, high: Fraction, width: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Intervals (a, b] narrower than `width`, each with one of the distinct roots in (low, high]."""
    pending, found = [(low, high)], []
    while pending:
        a, b = pending.pop()
        count = distinct_roots(polynomial, a, b)
        if count == 1 and b - a <= width:
            found.append((a, b))
        elif count:
            middle = (a + b) / 2
            pending += [(a, middle), (middle, b)]
    return found


def fixed_points(
    pieces, low: Fraction, high: Fraction, width=Fraction(1, 10**40)
) -> list[tuple[Fraction, Fraction, Polynomial]]:
    """Intervals that hold each fixed point of a return map of x in (low, high], with the polynomial there."""
    breaks, polynomials = pieces
    found = []
    for a, b, each in zip([low, *breaks], [*breaks, high], polynomials, strict=True):
        a, b = max(a, low), min(b, high)
        if a < b:
            less = [c - (i == 1) for i, c in enumerate(each)]
            found += [(*interval, each) for interval in roots(less, a, b, width)]
    return found


def widened_by_rounding(reach: np.ndarray) -> np.ndarray:
    """The box that `Boxes` makes of half widths."""
    return up(reach, len(reach))


class Prover:
    """The return maps of all systems of a family, by one compiled program.

    A system is given by its parameters and the `PLACE` of the coordinates of the section.

    **Arguments:** `size`: of a batch. `degree`: of the polynomials. `disturbance`: of the rates.
    """

    def __init__(self, family: Family, size: int, steps: int = STEPS, degree: int = 1, disturbance: Disturbance = NONE):
        count = len(family.names)
        resting = hj.periodic_orbit(hj.ReturnMap(family.system(0.5), sequence=("m",)), jnp.zeros(7 + count), None)
        self.family, self.size = family, size
        system = family.system(1.0)
        reset = system.transitions[0].reset

        def lift(z, _):
            *_, x, y, more, shear = z
            unit = 1 + more
            return jnp.concatenate([jnp.stack([x + unit * (z[0] + shear * z[1]), y + 2 * unit * z[1], 0 * x]), z[2:]])

        def chart(y, _):
            after = reset(jnp.zeros(()), y, None)
            *_, x, y, more, shear = after
            aside = (after[1] - y) / (2 * (1 + more))
            return jnp.concatenate([jnp.stack([(after[0] - x) / (1 + more) - shear * aside, aside]), after[3:]])

        section = SectionChart(lift, chart, ("x", "y", *family.names, *PLACE))
        self.orbit = dataclasses.replace(resting, system=system)
        self.map = EnclosedMap(self.orbit, disturbance, section=section, steps=steps, orders=ORDERS)
        n = 7 + count
        # In the coordinates as they are, of which some may be a million times as large as others.
        still = [identity_frame(n)] * (steps + 1)
        self.map.frames = (jax.tree.map(lambda *each: jnp.stack(each), *still),)
        self.map.axes, self.map.z = identity_frame(n - 1), np.zeros(n - 1)
        self.map._ending = self.map.fields[-1].map(lambda y, p, _: chart(y, p))
        self.basis = basis(2, degree)
        self.images = jax.jit(jax.vmap(self.image))

    def image(self, piece: TaylorModel, point, h, window, strength=1.0) -> Image:
        """The image of a set of the first two coordinates; `point`: the parameters and the place."""
        still = jnp.zeros((piece.basis.size, len(point))).at[0].set(point)
        whole = TaylorModel(
            jnp.concatenate([piece.coefficients, still], axis=1),
            jnp.concatenate([piece.radius, 0 * point]),
            piece.basis,
        )
        found = self.map.image(whole, h, window, strength)
        jacobian = TaylorModel(
            found.jacobian.coefficients[:, :2, :2], found.jacobian.radius[:2, :2], found.jacobian.basis
        )
        return Image(
            found.model[:2], found.generators[:, :2], found.radius[:2], jacobian, (), found.conditions, found.smooth
        )

    def timing(self, system: dict[str, float], centre, reach: float) -> tuple[np.ndarray, np.ndarray]:
        """Lengths of steps and a window of time, for a box of x."""
        p = {name: Fraction(each) for name, each in system.items()}
        at = lambda x: float(self.family.height(float(self.before(p, Fraction(x))), system))
        low, middle, high = at(centre[0] - reach), at(centre[0]), at(centre[0] + reach)
        apart = 2 * max(abs(low + high - 2 * middle), 0.1 * abs(high - low)) + 2e-7
        h = np.array([[middle - 0.5 * apart, 0.5 * (high - low), 0.0]]) / self.map.steps
        return h, np.array([apart])

    def before(self, p, x: Fraction) -> Fraction:
        """x at the event, by the return map of a system that resets nothing."""
        same = p | dict.fromkeys(("c0", "c2", "c3", "e", "j"), Fraction(0)) | {"c1": Fraction(1)}
        breaks, polynomials = self.family.pieces({name: same[name] for name in p})
        return value(polynomials[sum(x > each for each in breaks)], x)

    def over(self, systems: list[dict[str, float]], centres: np.ndarray, boxes: list) -> list[Image]:
        """The images of boxes about the centres of systems, each given by its middle and half widths."""
        pieces, points, hs, windows = [], [], [], []
        for system, centre, (middle, half) in zip(systems, centres, boxes, strict=True):
            coefficients = np.zeros((3, 2))
            coefficients[0] = middle
            coefficients[[1, 2], [0, 1]] = half
            h, window = self.timing(system, (centre[0] + middle[0], centre[1]), half[0])
            pieces.append(coefficients)
            points.append([*(system[name] for name in self.family.names), *centre, 0.0, 0.0])
            hs.append(h)
            windows.append(window)
        found = []
        for i in range(0, len(pieces), self.size):
            at = np.minimum(np.arange(i, i + self.size), len(pieces) - 1)
            take = lambda each, at=at: jnp.asarray(np.array(each)[at])
            batch = TaylorModel(take(pieces), jnp.zeros((len(at), 2)), self.basis)
            images = jax.device_get(self.images(batch, take(points), take(hs), take(windows)))
            found += [jax.tree.map(lambda a, k=k: a[k], images) for k in range(min(self.size, len(pieces) - i))]
        return found

    def __call__(self, systems: list[dict[str, float]], centres: np.ndarray, reaches: np.ndarray) -> list:
        """For each system what `krawczyk` says of the box about its centre: the image of the box, the part that holds the fixed
        point, and the reasons why it is not proved."""
        at_centres = self.over(systems, centres, [(np.zeros(2), np.zeros(2)) for _ in systems])
        boxes = self.over(systems, centres, [(np.zeros(2), widened_by_rounding(reach)) for reach in reaches])
        return [self.decided(*each) for each in zip(at_centres, boxes, reaches, strict=True)]

    def decided(self, at_center: Image, over: Image, reach: np.ndarray):
        """What `Boxes` says."""
        boxes = object.__new__(Boxes)
        boxes.map = SimpleNamespace(axes=SimpleNamespace(matrix=np.diag(reach)))
        boxes.first = SimpleNamespace(image=at_center)
        boxes.inverse = approximate_inverse(np.asarray(at_center.jacobian.center) - np.eye(2))
        boxes.of_box = lambda center, radius: BoxImage(center, radius, over, np.zeros((1, 3)), np.zeros(1))
        (_, part), reasons = boxes.proved(1.0)
        return over, part, reasons
