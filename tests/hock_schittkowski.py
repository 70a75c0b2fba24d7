"""Problems of W. Hock and K. Schittkowski, *Test Examples for Nonlinear Programming Codes*, Lecture Notes in Economics and
Mathematical Systems 187, Springer 1981: test data for constrained optimization.

Minimize `objective(x)` subject to `equalities(x) == 0`, `inequalities(x) >= 0` and `lower <= x <= upper`. The functions are
the published formulas, in JAX, of an array x; `start` is the published start, which need not be feasible, nor within the
bounds. `optimum` is a closed form where one is known; else it was found by Newton's method on the equations of Karush, Kuhn
and Tucker of the active constraints, in double precision. It agrees with the published value to a unit or two of its last digit,
which `note` gives where there is no closed form, unless `note` says otherwise.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import erf
from jaxtyping import Array, Float

Scalar = Float[Array, ""]
Point = Float[Array, " n"]
Function = Callable[[Point], Scalar]
Constraints = Callable[[Point], Float[Array, " m"]]

INF = math.inf
SQRT2, SQRT3 = math.sqrt(2.0), math.sqrt(3.0)


class Problem(NamedTuple):
    """Minimize the objective where equalities are zero, inequalities are not negative, and the bounds hold."""

    name: str
    objective: Function
    equalities: Constraints | None
    inequalities: Constraints | None
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    start: tuple[float, ...]
    optimum: float
    solution: tuple[float, ...] | None  # one of them, where there are several
    note: str
    local_optima: tuple[float, ...] = ()  # at further local minima, or other points where methods stop
    regular: bool = True  # the gradients of the active constraints are linearly independent at the solution


def _problem(
    name: str,
    objective: Callable[..., Scalar],
    *,
    start: tuple[float, ...],
    optimum: float,
    solution: tuple[float, ...] | None,
    equalities: Callable[..., tuple[Scalar, ...]] | None = None,
    inequalities: Callable[..., tuple[Scalar, ...]] | None = None,
    lower: tuple[float, ...] | None = None,
    upper: tuple[float, ...] | None = None,
    note: str = "",
    local_optima: tuple[float, ...] = (),
    regular: bool = True,
) -> Problem:
    """A problem by functions of the components x1, x2, ... as the book writes them."""

    def stacked(constraints: Callable[..., tuple[Scalar, ...]] | None) -> Constraints | None:
        return None if constraints is None else lambda x: jnp.stack(constraints(*x))

    return Problem(
        name=name,
        objective=lambda x: objective(*x),
        equalities=stacked(equalities),
        inequalities=stacked(inequalities),
        lower=lower or (-INF,) * len(start),
        upper=upper or (INF,) * len(start),
        start=start,
        optimum=optimum,
        solution=solution,
        note=note,
        local_optima=local_optima,
        regular=regular,
    )


# fmt: off
_HS57_WEEK = (
    8, 8, 10, 10, 10, 10, 12, 12, 12, 12, 14, 14, 14, 16, 16, 16, 18, 18, 20, 20, 20, 22,
    22, 22, 24, 24, 24, 26, 26, 26, 28, 28, 30, 30, 30, 32, 32, 34, 36, 36, 38, 38, 40, 42,
)
_HS57_FRACTION = (
    49, 49, 48, 47, 48, 47, 46, 46, 45, 43, 45, 43, 43, 44, 43, 43, 46, 45, 42, 42, 43, 41,
    41, 40, 42, 40, 40, 41, 40, 41, 41, 40, 40, 40, 38, 41, 40, 40, 41, 38, 40, 40, 39, 39,
)
# fmt: on

_HS70_TIME = (0.1, *map(float, range(1, 19)))
# fmt: off
_HS70_FLOW = (
    0.00189, 0.1038, 0.268, 0.506, 0.577, 0.604, 0.725, 0.898, 0.947, 0.845, 0.702, 0.528, 0.385, 0.257, 0.159,
    0.0869, 0.0453, 0.01509, 0.00189,
)
# fmt: on
_HS86_ROWS = (
    (-16.0, 2.0, 0.0, 1.0, 0.0),
    (0.0, -2.0, 0.0, 4.0, 2.0),
    (-3.5, 0.0, 2.0, 0.0, 0.0),
    (0.0, -2.0, 0.0, -4.0, -1.0),
    (0.0, -9.0, -2.0, 1.0, -2.8),
    (2.0, 0.0, -4.0, 0.0, 0.0),
    (-1.0, -1.0, -1.0, -1.0, -1.0),
    (-1.0, -2.0, -3.0, -2.0, -1.0),
    (1.0, 2.0, 3.0, 4.0, 5.0),
    (1.0, 1.0, 1.0, 1.0, 1.0),
)
_HS86_LIMITS = (-40.0, -2.0, -0.25, -4.0, -4.0, -1.0, -40.0, -60.0, 5.0, 1.0)
_HS86_SQUARES = (
    (30.0, -20.0, -10.0, 32.0, -10.0),
    (-20.0, 39.0, -6.0, -31.0, 32.0),
    (-10.0, -6.0, 10.0, -6.0, -10.0),
    (32.0, -31.0, -6.0, 39.0, -20.0),
    (-10.0, 32.0, -10.0, -20.0, 30.0),
)
_HS99_ACCELERATION = (50.0, 50.0, 75.0, 75.0, 75.0, 100.0, 100.0)
_HS99_INTERVAL = (25.0, 25.0, 50.0, 50.0, 50.0, 90.0, 90.0)
# Coefficients and exponents of the monomials of four constraints and of the objective, whose first row ends in a parameter.
_HS101_CONSTRAINTS = (
    (
        (0.5, (0.5, 0.0, -1.0, 0.0, 0.0, -2.0, 1.0)),
        (0.7, (3.0, 1.0, -2.0, 0.0, 0.0, 1.0, 0.5)),
        (0.2, (0.0, -1.0, 1.0, -0.5, 0.0, 2.0 / 3.0, 0.25)),
    ),
    (
        (1.3, (-0.5, 1.0, -1.0, 0.0, -1.0, 1.0, 0.0)),
        (0.8, (0.0, 0.0, 1.0, -1.0, -1.0, 2.0, 0.0)),
        (3.1, (-1.0, 0.5, 0.0, -2.0, -1.0, 1.0 / 3.0, 0.0)),
    ),
    (
        (2.0, (1.0, 0.0, -1.5, 0.0, 1.0, -1.0, 1.0 / 3.0)),
        (0.1, (0.0, 1.0, -0.5, 0.0, 1.0, -1.0, -0.5)),
        (1.0, (-1.0, 1.0, 0.5, 0.0, 1.0, 0.0, 0.0)),
        (0.65, (0.0, -2.0, 1.0, 0.0, 1.0, -1.0, 1.0)),
    ),
    (
        (0.2, (-2.0, 1.0, 0.0, -1.0, 0.5, 0.0, 1.0 / 3.0)),
        (0.3, (0.5, 2.0, 1.0, 1.0 / 3.0, -2.0 / 3.0, 0.0, 0.25)),
        (0.4, (-3.0, -2.0, 1.0, 0.0, 1.0, 0.0, 0.75)),
        (0.5, (0.0, 0.0, -2.0, 1.0, 0.0, 0.0, 0.5)),
    ),
)
# fmt: off
_HS111_ENERGY = (-6.089, -17.164, -34.054, -5.914, -24.721, -14.986, -24.1, -10.708, -26.662, -22.179)
# fmt: on


def _rosenbrock(x1: Scalar, x2: Scalar) -> Scalar:
    return 100.0 * (x2 - x1**2) ** 2 + (1.0 - x1) ** 2


def _product(*x: Scalar) -> Scalar:
    return math.prod(x[1:], start=x[0])


# HS2: the stationary points of 100 (1.5 - x1^2)^2 + (1 - x1)^2, by the cosine of a third of an angle.
_HS2_RADIUS = math.sqrt(598.0 / 1200.0)
_HS2_SOLUTION = 2.0 * _HS2_RADIUS * math.cos(math.acos(0.0025 / _HS2_RADIUS**3) / 3.0)
_HS2_LOCAL = 2.0 * _HS2_RADIUS * math.cos((math.acos(0.0025 / _HS2_RADIUS**3) + 2.0 * math.pi) / 3.0)


def _hs2_value(x1: float) -> float:
    return 100.0 * (1.5 - x1**2) ** 2 + (1.0 - x1) ** 2


# HS11: the real root of 2 x^3 + x = 5.
_HS11_ROOT = (math.sqrt(337.5 + 1.0) + 7.5 * math.sqrt(6.0)) ** (1.0 / 3.0)
_HS11_SOLUTION = (_HS11_ROOT - 1.0 / _HS11_ROOT) / math.sqrt(6.0)


def _hs25(x1: Scalar, x2: Scalar, x3: Scalar) -> Scalar:
    level = jnp.arange(1, 100).astype(x1.dtype) * 0.01
    u = 25.0 + (-50.0 * jnp.log(level)) ** (2.0 / 3.0)
    return jnp.sum((jnp.exp(-((u - x2) ** x3) / x1) - level) ** 2)


def _hs57(x1: Scalar, x2: Scalar) -> Scalar:
    fraction = jnp.asarray(_HS57_FRACTION, dtype=x1.dtype) / 100.0
    week = jnp.asarray(_HS57_WEEK, dtype=x1.dtype)
    return jnp.sum((fraction - x1 - (0.49 - x1) * jnp.exp(-x2 * (week - 8.0))) ** 2)


def _normal(t: Scalar) -> Scalar:
    return 0.5 * (1.0 + erf(t / SQRT2))


def _hs68(a: float, b: float, d: float, n: float) -> tuple[Callable[..., Scalar], Callable[..., tuple[Scalar, ...]]]:
    """The cost of a process and its relations, of problems 68 and 69."""

    def objective(x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar) -> Scalar:
        growth = jnp.exp(x1) - 1.0
        return (a * n - (b * growth - x3) * x4 / (growth + x4)) / x1

    def equalities(x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar) -> tuple[Scalar, ...]:
        shift = d * math.sqrt(n)
        return x3 - 2.0 * _normal(-x2), x4 - _normal(-x2 + shift) - _normal(-x2 - shift)

    return objective, equalities


def _hs70(x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar) -> Scalar:
    time = jnp.asarray(_HS70_TIME, dtype=x1.dtype) / 7.658
    flow = jnp.asarray(_HS70_FLOW, dtype=x1.dtype)
    b = x3 + (1.0 - x3) * x4

    def term(shape: Scalar, rate: Scalar) -> Float[Array, " t"]:
        """A gamma density, by Stirling's series: sqrt(shape / 6.2832) and 1 + 1 / (12 shape)."""
        return (
            1.0
            / (1.0 + 1.0 / (12.0 * shape))
            * rate**shape
            * jnp.sqrt(shape / 6.2832)
            * time ** (shape - 1.0)
            * jnp.exp(shape - rate * time * shape)
        )

    return jnp.sum((x3 * term(x2, b) + (1.0 - x3) * term(x1, b / x4) - flow) ** 2)


def _hs74(name: str, limit: float, *, optimum: float, solution: tuple[float, ...], note: str) -> Problem:
    """Problems 74 and 75: flows between three nodes of a network."""
    return _problem(
        name,
        lambda x1, x2, x3, x4: 3.0 * x1 + 1e-6 * x1**3 + 2.0 * x2 + 2e-6 / 3.0 * x2**3,
        equalities=lambda x1, x2, x3, x4: (
            1000.0 * jnp.sin(-x3 - 0.25) + 1000.0 * jnp.sin(-x4 - 0.25) + 894.8 - x1,
            1000.0 * jnp.sin(x3 - 0.25) + 1000.0 * jnp.sin(x3 - x4 - 0.25) + 894.8 - x2,
            1000.0 * jnp.sin(x4 - 0.25) + 1000.0 * jnp.sin(x4 - x3 - 0.25) + 1294.8,
        ),
        inequalities=lambda x1, x2, x3, x4: (x4 - x3 + limit, x3 - x4 + limit),
        lower=(0.0, 0.0, -limit, -limit),
        upper=(1200.0, 1200.0, limit, limit),
        start=(0.0, 0.0, 0.0, 0.0),
        optimum=optimum,
        solution=solution,
        note=note,
    )


def _hs78_equalities(x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar, x5: Scalar) -> tuple[Scalar, ...]:
    return x1**2 + x2**2 + x3**2 + x4**2 + x5**2 - 10.0, x2 * x3 - 5.0 * x4 * x5, x1**3 + x2**3 + 1.0


def _hs84_group(x: tuple[Scalar, ...], a: tuple[float, ...]) -> Scalar:
    """a1 x1 + a2 x1 x2 + ... + a5 x1 x5."""
    return x[0] * (a[0] + sum(c * y for c, y in zip(a[1:], x[1:], strict=True)))


def _hs84_inequalities(*x: Scalar) -> tuple[Scalar, ...]:
    groups = (
        (294000.0, (-145421.402, 2931.1506, -40.427932, 5106.192, 15711.36)),
        (294000.0, (-155011.1084, 4360.53352, 12.9492344, 10236.884, 13176.786)),
        (277200.0, (-326669.5104, 7390.68412, -27.8986976, 16643.076, 30988.146)),
    )
    values = [(limit, _hs84_group(x, a)) for limit, a in groups]
    return (*(v for _, v in values), *(limit - v for limit, v in values))


def _hs86(*components: Scalar) -> Scalar:
    x = jnp.stack(components)
    linear = jnp.asarray((-15.0, -27.0, -36.0, -18.0, -12.0), dtype=x.dtype)
    cubes = jnp.asarray((4.0, 8.0, 10.0, 6.0, 2.0), dtype=x.dtype)
    return linear @ x + x @ jnp.asarray(_HS86_SQUARES, dtype=x.dtype) @ x + cubes @ x**3


def _hs86_inequalities(*x: Scalar) -> tuple[Scalar, ...]:
    rows = jnp.asarray(_HS86_ROWS, dtype=x[0].dtype)
    return tuple(rows @ jnp.stack(x) - jnp.asarray(_HS86_LIMITS, dtype=x[0].dtype))


def _hs95(
    name: str,
    limits: tuple[float, ...],
    *,
    optimum: float,
    solution: tuple[float, ...],
    note: str,
    local_optima: tuple[float, ...] = (),
) -> Problem:
    """Problems 95 to 98, which differ in the constants of the inequalities."""

    def inequalities(x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar, x5: Scalar, x6: Scalar) -> tuple[Scalar, ...]:
        return (
            17.1 * x1 + 38.2 * x2 + 204.2 * x3 + 212.3 * x4 + 623.4 * x5 + 1495.5 * x6
            - 169.0 * x1 * x3 - 3580.0 * x3 * x5 - 3810.0 * x4 * x5 - 18500.0 * x4 * x6 - 24300.0 * x5 * x6 - limits[0],
            17.9 * x1 + 36.8 * x2 + 113.9 * x3 + 169.7 * x4 + 337.8 * x5 + 1385.2 * x6
            - 139.0 * x1 * x3 - 2450.0 * x4 * x5 - 16600.0 * x4 * x6 - 17200.0 * x5 * x6 - limits[1],
            -273.0 * x2 - 70.0 * x4 - 819.0 * x5 + 26000.0 * x4 * x5 - limits[2],
            159.9 * x1 - 311.0 * x2 + 587.0 * x4 + 391.0 * x5 + 2198.0 * x6 - 14000.0 * x1 * x6 - limits[3],
        )  # fmt: skip

    return _problem(
        name,
        lambda x1, x2, x3, x4, x5, x6: 4.3 * x1 + 31.8 * x2 + 63.3 * x3 + 15.8 * x4 + 68.5 * x5 + 4.7 * x6,
        inequalities=inequalities,
        lower=(0.0,) * 6,
        upper=(0.31, 0.046, 0.068, 0.042, 0.028, 0.0134),
        start=(0.0,) * 6,
        optimum=optimum,
        solution=solution,
        note=note,
        local_optima=local_optima,
    )


def _hs99_sums(x: tuple[Scalar, ...]) -> tuple[Scalar, Scalar, Scalar]:
    """The range, the speed and the height of a rocket that thrusts at the angle x[i] in the interval i."""
    distance = speed = height = jnp.zeros_like(x[0])
    for angle, a, t in zip(x, _HS99_ACCELERATION, _HS99_INTERVAL, strict=True):
        rise = a * jnp.sin(angle) - 32.0
        height = height + t * (speed + 0.5 * t * rise)
        speed = speed + t * rise
        distance = distance + a * t * jnp.cos(angle)
    return distance, speed, height


def _posynomial(x: tuple[Scalar, ...], terms: tuple[tuple[float, tuple[float, ...]], ...]) -> Scalar:
    monomials = [c * _product(*(y**e for y, e in zip(x, exponents, strict=True))) for c, exponents in terms]
    return sum(monomials[1:], start=monomials[0])


def _hs101(name: str, exponent: float, *, optimum: float, solution: tuple[float, ...], note: str) -> Problem:
    """Problems 101 to 103, which differ in one exponent of the objective."""
    terms = (
        (10.0, (1.0, -1.0, 0.0, 2.0, 0.0, -3.0, exponent)),
        (15.0, (-1.0, -2.0, 1.0, 1.0, -1.0, 0.0, -0.5)),
        (20.0, (-2.0, 1.0, 0.0, -1.0, -2.0, 1.0, 0.0)),
        (25.0, (2.0, 2.0, -1.0, 0.0, 0.5, -2.0, 1.0)),
    )

    def inequalities(*x: Scalar) -> tuple[Scalar, ...]:
        cost = _posynomial(x, terms)
        return (*(1.0 - _posynomial(x, c) for c in _HS101_CONSTRAINTS), cost - 100.0, 3000.0 - cost)

    return _problem(
        name,
        lambda *x: _posynomial(x, terms),
        inequalities=inequalities,
        lower=(0.1,) * 6 + (0.01,),
        upper=(10.0,) * 7,
        start=(6.0,) * 7,
        optimum=optimum,
        solution=solution,
        note=note,
    )


def _hs104(x1: Scalar, x2: Scalar, x7: Scalar, x8: Scalar) -> Scalar:
    return 0.4 * x1**0.67 * x7**-0.67 + 0.4 * x2**0.67 * x8**-0.67 + 10.0 - x1 - x2


def _hs107_equalities(
    x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar, x5: Scalar, x6: Scalar, x7: Scalar, x8: Scalar, x9: Scalar
) -> tuple[Scalar, ...]:
    c, d = 48.4 / 50.176 * math.sin(0.25), 48.4 / 50.176 * math.cos(0.25)
    y1, y2, y3, y4, y5, y6 = jnp.sin(x8), jnp.cos(x8), jnp.sin(x9), jnp.cos(x9), jnp.sin(x8 - x9), jnp.cos(x8 - x9)
    return (
        0.4 - x1 + 2.0 * c * x5**2 - x5 * x6 * (d * y1 + c * y2) - x5 * x7 * (d * y3 + c * y4),
        0.4 - x2 + 2.0 * c * x6**2 + x5 * x6 * (d * y1 - c * y2) + x6 * x7 * (d * y5 - c * y6),
        0.8 + 2.0 * c * x7**2 + x5 * x7 * (d * y3 - c * y4) - x6 * x7 * (d * y5 + c * y6),
        0.2 - x3 + 2.0 * d * x5**2 + x5 * x6 * (c * y1 - d * y2) + x5 * x7 * (c * y3 - d * y4),
        0.2 - x4 + 2.0 * d * x6**2 - x5 * x6 * (c * y1 + d * y2) - x6 * x7 * (c * y5 + d * y6),
        -0.337 + 2.0 * d * x7**2 - x5 * x7 * (c * y3 + d * y4) + x6 * x7 * (c * y5 - d * y6),
    )


def _hs108_inequalities(
    x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar, x5: Scalar, x6: Scalar, x7: Scalar, x8: Scalar, x9: Scalar
) -> tuple[Scalar, ...]:
    return (
        1.0 - x3**2 - x4**2,
        1.0 - x9**2,
        1.0 - x5**2 - x6**2,
        1.0 - x1**2 - (x2 - x9) ** 2,
        1.0 - (x1 - x5) ** 2 - (x2 - x6) ** 2,
        1.0 - (x1 - x7) ** 2 - (x2 - x8) ** 2,
        1.0 - (x3 - x5) ** 2 - (x4 - x6) ** 2,
        1.0 - (x3 - x7) ** 2 - (x4 - x8) ** 2,
        1.0 - x7**2 - (x8 - x9) ** 2,
        x1 * x4 - x2 * x3,
        x3 * x9,
        -x5 * x9,
        x5 * x8 - x6 * x7,
    )


def _hs109_equalities(
    x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar, x5: Scalar, x6: Scalar, x7: Scalar, x8: Scalar, x9: Scalar
) -> tuple[Scalar, ...]:
    a, b, c, shunt = 50.176, math.sin(0.25), math.cos(0.25), 0.7533e-3 * 50.176
    sin, cos = jnp.sin, jnp.cos
    return (
        x5 * x6 * sin(-x3 - 0.25) + x5 * x7 * sin(-x4 - 0.25) + 2.0 * b * x5**2 - a * x1 + 400.0 * a,
        x5 * x6 * sin(x3 - 0.25) + x6 * x7 * sin(x3 - x4 - 0.25) + 2.0 * b * x6**2 - a * x2 + 400.0 * a,
        x5 * x7 * sin(x4 - 0.25) + x6 * x7 * sin(x4 - x3 - 0.25) + 2.0 * b * x7**2 + 881.779 * a,
        a * x8 + x5 * x6 * cos(-x3 - 0.25) + x5 * x7 * cos(-x4 - 0.25) - 200.0 * a - 2.0 * c * x5**2 + shunt * x5**2,
        a * x9 + x5 * x6 * cos(x3 - 0.25) + x6 * x7 * cos(x3 - x4 - 0.25) - 200.0 * a - 2.0 * c * x6**2 + shunt * x6**2,
        x5 * x7 * cos(x4 - 0.25) + x6 * x7 * cos(x4 - x3 - 0.25) - 22.938 * a - 2.0 * c * x7**2 + shunt * x7**2,
    )


def _hs112(*x: Scalar) -> Scalar:
    """The free energy of a mixture of ten compounds."""
    total = sum(x[1:], start=x[0])
    terms = [y * (c + jnp.log(y / total)) for y, c in zip(x, _HS111_ENERGY, strict=True)]
    return sum(terms[1:], start=terms[0])


def _hs112_equalities(*x: Scalar) -> tuple[Scalar, ...]:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    return (
        x1 + 2.0 * x2 + 2.0 * x3 + x6 + x10 - 2.0,
        x4 + 2.0 * x5 + x6 + x7 - 1.0,
        x3 + x7 + x8 + 2.0 * x9 + x10 - 1.0,
    )


def _hs113_inequalities(*x: Scalar) -> tuple[Scalar, ...]:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    return (
        105.0 - 4.0 * x1 - 5.0 * x2 + 3.0 * x7 - 9.0 * x8,
        -10.0 * x1 + 8.0 * x2 + 17.0 * x7 - 2.0 * x8,
        8.0 * x1 - 2.0 * x2 - 5.0 * x9 + 2.0 * x10 + 12.0,
        -3.0 * (x1 - 2.0) ** 2 - 4.0 * (x2 - 3.0) ** 2 - 2.0 * x3**2 + 7.0 * x4 + 120.0,
        -5.0 * x1**2 - 8.0 * x2 - (x3 - 6.0) ** 2 + 2.0 * x4 + 40.0,
        -0.5 * (x1 - 8.0) ** 2 - 2.0 * (x2 - 4.0) ** 2 - 3.0 * x5**2 + x6 + 30.0,
        -(x1**2) - 2.0 * (x2 - 2.0) ** 2 + 2.0 * x1 * x2 - 14.0 * x5 + 6.0 * x6,
        3.0 * x1 - 6.0 * x2 - 12.0 * (x9 - 8.0) ** 2 + 7.0 * x10,
    )


def _hs113(*x: Scalar) -> Scalar:
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10 = x
    return (
        x1**2 + x2**2 + x1 * x2 - 14.0 * x1 - 16.0 * x2 + (x3 - 10.0) ** 2 + 4.0 * (x4 - 5.0) ** 2 + (x5 - 3.0) ** 2
        + 2.0 * (x6 - 1.0) ** 2 + 5.0 * x7**2 + 7.0 * (x8 - 11.0) ** 2 + 2.0 * (x9 - 10.0) ** 2 + (x10 - 7.0) ** 2 + 45.0
    )  # fmt: skip


def _hs114_inequalities(*x: Scalar) -> tuple[Scalar, ...]:
    x1, _, _, x4, _, x6, x7, x8, x9, x10 = x
    a, b = 0.99, 0.9
    g1 = 35.82 - 0.222 * x10 - b * x9
    g2 = -133.0 + 3.0 * x7 - a * x10
    g5 = 1.12 * x1 + 0.13167 * x1 * x8 - 0.00667 * x1 * x8**2 - a * x4
    g6 = 57.425 + 1.098 * x8 - 0.038 * x8**2 + 0.325 * x6 - a * x7
    slack = 1.0 / a - a
    return g1, g2, x9 * (1.0 / b - b) - g1, x10 * slack - g2, g5, g6, x4 * slack - g5, x7 * slack - g6


def _hs114_equalities(*x: Scalar) -> tuple[Scalar, ...]:
    x1, x2, x3, x4, x5, x6, _, x8, x9, _ = x
    return (
        1.22 * x4 - x1 - x5,
        98000.0 * x3 / (x4 * x9 + 1000.0 * x3) - x6,
        (x2 + x5) / x1 - x8,
    )


_HS68_OBJECTIVE, _HS68_EQUALITIES = _hs68(1e-4, 1.0, 1.0, 24.0)
_HS69_OBJECTIVE, _HS69_EQUALITIES = _hs68(0.1, 1000.0, 1.0, 4.0)


def _hs83_inequalities(x1: Scalar, x2: Scalar, x3: Scalar, x4: Scalar, x5: Scalar) -> tuple[Scalar, ...]:
    v1 = 85.334407 + 0.0056858 * x2 * x5 + 0.0006262 * x1 * x4 - 0.0022053 * x3 * x5
    v2 = 80.51249 + 0.0071317 * x2 * x5 + 0.0029955 * x1 * x2 + 0.0021813 * x3**2 - 90.0
    v3 = 9.300961 + 0.0047026 * x3 * x5 + 0.0012547 * x1 * x3 + 0.0019085 * x3 * x4 - 20.0
    return v1, v2, v3, 92.0 - v1, 20.0 - v2, 5.0 - v3


def _hs110(*components: Scalar) -> Scalar:
    x = jnp.stack(components)
    return jnp.sum(jnp.log(x - 2.0) ** 2 + jnp.log(10.0 - x) ** 2) - jnp.prod(x) ** 0.2


PROBLEMS: tuple[Problem, ...] = (
    _problem(
        "HS1",
        _rosenbrock,
        lower=(-INF, -1.5),
        start=(-2.0, 1.0),
        optimum=0.0,
        solution=(1.0, 1.0),
        note="Rosenbrock's valley with a bound that is inactive at the solution.",
    ),
    _problem(
        "HS2",
        _rosenbrock,
        lower=(-INF, 1.5),
        start=(-2.0, 1.0),
        optimum=_hs2_value(_HS2_SOLUTION),
        solution=(_HS2_SOLUTION, 1.5),
        note="Published: 0.0504261879. The start is outside the bounds.",
        local_optima=(_hs2_value(_HS2_LOCAL),),
    ),
    _problem(
        "HS3",
        lambda x1, x2: x2 + 1e-5 * (x2 - x1) ** 2,
        lower=(-INF, 0.0),
        start=(10.0, 1.0),
        optimum=0.0,
        solution=(0.0, 0.0),
        note="Badly scaled: the curvature along the bound is 2e-5.",
    ),
    _problem(
        "HS4",
        lambda x1, x2: (x1 + 1.0) ** 3 / 3.0 + x2,
        lower=(1.0, 0.0),
        start=(1.125, 0.125),
        optimum=8.0 / 3.0,
        solution=(1.0, 0.0),
        note="The solution is a vertex of the bounds.",
    ),
    _problem(
        "HS5",
        lambda x1, x2: jnp.sin(x1 + x2) + (x1 - x2) ** 2 - 1.5 * x1 + 2.5 * x2 + 1.0,
        lower=(-1.5, -3.0),
        upper=(4.0, 3.0),
        start=(0.0, 0.0),
        optimum=-SQRT3 / 2.0 - math.pi / 3.0,
        solution=(0.5 - math.pi / 3.0, -0.5 - math.pi / 3.0),
        note="Of indefinite Hessian in places; no bound is active at the solution.",
        local_optima=(math.pi * 2.0 / 3.0 - SQRT3 / 2.0,),
    ),
    _problem(
        "HS6",
        lambda x1, x2: (1.0 - x1) ** 2,
        equalities=lambda x1, x2: (10.0 * (x2 - x1**2),),
        start=(-1.2, 1.0),
        optimum=0.0,
        solution=(1.0, 1.0),
    ),
    _problem(
        "HS7",
        lambda x1, x2: jnp.log(1.0 + x1**2) - x2,
        equalities=lambda x1, x2: ((1.0 + x1**2) ** 2 + x2**2 - 4.0,),
        start=(2.0, 2.0),
        optimum=-SQRT3,
        solution=(0.0, SQRT3),
        note="The Hessian of the Lagrangian is indefinite.",
        local_optima=(SQRT3,),
    ),
    _problem(
        "HS8",
        lambda x1, x2: jnp.full_like(x1, -1.0),
        equalities=lambda x1, x2: (x1**2 + x2**2 - 25.0, x1 * x2 - 9.0),
        start=(2.0, 1.0),
        optimum=-1.0,
        solution=(math.sqrt(12.5 + math.sqrt(301.0) / 2.0), 9.0 / math.sqrt(12.5 + math.sqrt(301.0) / 2.0)),
        note="A constant objective: any of the four points where the equalities hold.",
    ),
    _problem(
        "HS9",
        lambda x1, x2: jnp.sin(math.pi * x1 / 12.0) * jnp.cos(math.pi * x2 / 16.0),
        equalities=lambda x1, x2: (4.0 * x1 - 3.0 * x2,),
        start=(0.0, 0.0),
        optimum=-0.5,
        solution=(-3.0, -4.0),
        note="Periodic along the equality: solutions at (12 k - 3, 16 k - 4).",
    ),
    _problem(
        "HS10",
        lambda x1, x2: x1 - x2,
        inequalities=lambda x1, x2: (-3.0 * x1**2 + 2.0 * x1 * x2 - x2**2 + 1.0,),
        start=(-10.0, 10.0),
        optimum=-1.0,
        solution=(0.0, 1.0),
        note="The start is far from feasible.",
    ),
    _problem(
        "HS11",
        lambda x1, x2: (x1 - 5.0) ** 2 + x2**2 - 25.0,
        inequalities=lambda x1, x2: (x2 - x1**2,),
        start=(4.9, 0.1),
        optimum=(_HS11_SOLUTION - 5.0) ** 2 + _HS11_SOLUTION**4 - 25.0,
        solution=(_HS11_SOLUTION, _HS11_SOLUTION**2),
        note="Published: -8.498464223.",
    ),
    _problem(
        "HS12",
        lambda x1, x2: 0.5 * x1**2 + x2**2 - x1 * x2 - 7.0 * x1 - 7.0 * x2,
        inequalities=lambda x1, x2: (25.0 - 4.0 * x1**2 - x2**2,),
        start=(0.0, 0.0),
        optimum=-30.0,
        solution=(2.0, 3.0),
    ),
    _problem(
        "HS13",
        lambda x1, x2: (x1 - 2.0) ** 2 + x2**2,
        inequalities=lambda x1, x2: ((1.0 - x1) ** 3 - x2,),
        lower=(0.0, 0.0),
        start=(-2.0, -2.0),
        optimum=1.0,
        solution=(1.0, 0.0),
        note="No constraint qualification holds at the solution, a cusp where no multipliers exist.",
        regular=False,
    ),
    _problem(
        "HS14",
        lambda x1, x2: (x1 - 2.0) ** 2 + (x2 - 1.0) ** 2,
        equalities=lambda x1, x2: (x1 - 2.0 * x2 + 1.0,),
        inequalities=lambda x1, x2: (-0.25 * x1**2 - x2**2 + 1.0,),
        start=(2.0, 2.0),
        optimum=9.0 - 2.875 * math.sqrt(7.0),
        solution=(0.5 * (math.sqrt(7.0) - 1.0), 0.25 * (math.sqrt(7.0) + 1.0)),
        note="The start is infeasible.",
    ),
    _problem(
        "HS15",
        _rosenbrock,
        inequalities=lambda x1, x2: (x1 * x2 - 1.0, x1 + x2**2),
        upper=(0.5, INF),
        start=(-2.0, 1.0),
        optimum=306.5,
        solution=(0.5, 2.0),
        note="Two separate feasible regions, the start in neither; a large multiplier (1751) of the bound.",
        local_optima=(360.37976717428353,),
    ),
    _problem(
        "HS16",
        _rosenbrock,
        inequalities=lambda x1, x2: (x1 + x2**2, x1**2 + x2),
        lower=(-0.5, -INF),
        upper=(0.5, 1.0),
        start=(-2.0, 1.0),
        optimum=0.25,
        solution=(0.5, 0.25),
        note="The start is outside the bounds.",
        local_optima=(23.144660940672626,),
    ),
    _problem(
        "HS17",
        _rosenbrock,
        inequalities=lambda x1, x2: (x2**2 - x1, x1**2 - x2),
        lower=(-0.5, -INF),
        upper=(0.5, 1.0),
        start=(-2.0, 1.0),
        optimum=1.0,
        solution=(0.0, 0.0),
        note="Both inequalities are active at the solution, one with a multiplier of zero; the start is infeasible.",
    ),
    _problem(
        "HS18",
        lambda x1, x2: 0.01 * x1**2 + x2**2,
        inequalities=lambda x1, x2: (x1 * x2 - 25.0, x1**2 + x2**2 - 25.0),
        lower=(2.0, 0.0),
        upper=(50.0, 50.0),
        start=(2.0, 2.0),
        optimum=5.0,
        solution=(5.0 * math.sqrt(10.0), math.sqrt(10.0) / 2.0),
        note="The start is infeasible.",
    ),
    _problem(
        "HS19",
        lambda x1, x2: (x1 - 10.0) ** 3 + (x2 - 20.0) ** 3,
        inequalities=lambda x1, x2: (
            (x1 - 5.0) ** 2 + (x2 - 5.0) ** 2 - 100.0,
            82.81 - (x1 - 6.0) ** 2 - (x2 - 5.0) ** 2,
        ),
        lower=(13.0, 0.0),
        upper=(100.0, 100.0),
        start=(20.1, 5.84),
        optimum=4.095**3 - (15.0 + math.sqrt(17.280975)) ** 3,
        solution=(14.095, 5.0 - math.sqrt(17.280975)),
        note="Published: -6961.81381, in error in the last digit. A thin feasible crescent, and multipliers above 1000.",
    ),
    _problem(
        "HS20",
        _rosenbrock,
        inequalities=lambda x1, x2: (x1 + x2**2, x1**2 + x2, x1**2 + x2**2 - 1.0),
        lower=(-0.5, -INF),
        upper=(0.5, INF),
        start=(-2.0, 1.0),
        optimum=81.5 - 25.0 * SQRT3,
        solution=(0.5, SQRT3 / 2.0),
        note="The start is outside the bounds.",
        local_optima=(83.5 - 25.0 * SQRT3,),
    ),
    _problem(
        "HS21",
        lambda x1, x2: 0.01 * x1**2 + x2**2 - 100.0,
        inequalities=lambda x1, x2: (10.0 * x1 - x2 - 10.0,),
        lower=(2.0, -50.0),
        upper=(50.0, 50.0),
        start=(-1.0, -1.0),
        optimum=-99.96,
        solution=(2.0, 0.0),
        note="The start is outside the bounds.",
    ),
    _problem(
        "HS22",
        lambda x1, x2: (x1 - 2.0) ** 2 + (x2 - 1.0) ** 2,
        inequalities=lambda x1, x2: (2.0 - x1 - x2, x2 - x1**2),
        start=(2.0, 2.0),
        optimum=1.0,
        solution=(1.0, 1.0),
        note="The start is infeasible.",
    ),
    _problem(
        "HS23",
        lambda x1, x2: x1**2 + x2**2,
        inequalities=lambda x1, x2: (
            x1 + x2 - 1.0,
            x1**2 + x2**2 - 1.0,
            9.0 * x1**2 + x2**2 - 9.0,
            x1**2 - x2,
            x2**2 - x1,
        ),
        lower=(-50.0, -50.0),
        upper=(50.0, 50.0),
        start=(3.0, 1.0),
        optimum=2.0,
        solution=(1.0, 1.0),
        note="More inequalities than variables; the start is infeasible.",
        local_optima=(5.0 + 2.0 * math.sqrt(5.0),),
    ),
    _problem(
        "HS24",
        lambda x1, x2: ((x1 - 3.0) ** 2 - 9.0) * x2**3 / (27.0 * SQRT3),
        inequalities=lambda x1, x2: (x1 / SQRT3 - x2, x1 + SQRT3 * x2, 6.0 - x1 - SQRT3 * x2),
        lower=(0.0, 0.0),
        start=(1.0, 0.5),
        optimum=-1.0,
        solution=(3.0, SQRT3),
        note="The solution is a vertex of linear inequalities. The objective is stationary, of value 0, along x2 = 0.",
        local_optima=(0.0,),
    ),
    _problem(
        "HS25",
        _hs25,
        lower=(0.1, 0.0, 0.0),
        upper=(100.0, 25.6, 5.0),
        start=(100.0, 12.5, 3.0),
        optimum=0.0,
        solution=(50.0, 25.0, 1.5),
        note="A fit of 99 residuals, flat at the start: there the gradient is of 2e-8, and many methods stop at 32.835.",
        local_optima=(32.835,),
    ),
    _problem(
        "HS26",
        lambda x1, x2, x3: (x1 - x2) ** 2 + (x2 - x3) ** 4,
        equalities=lambda x1, x2, x3: (x1 * (1.0 + x2**2) + x3**4 - 3.0,),
        start=(-2.6, 2.0, 2.0),
        optimum=0.0,
        solution=(1.0, 1.0, 1.0),
        note="A singular Hessian in the tangent space, of fourth order: convergence is slow.",
    ),
    _problem(
        "HS27",
        lambda x1, x2, x3: 0.01 * (x1 - 1.0) ** 2 + (x2 - x1**2) ** 2,
        equalities=lambda x1, x2, x3: (x1 + x3**2 + 1.0,),
        start=(2.0, 2.0, 2.0),
        optimum=0.04,
        solution=(-1.0, 1.0, 0.0),
        note="A curved valley.",
    ),
    _problem(
        "HS28",
        lambda x1, x2, x3: (x1 + x2) ** 2 + (x2 + x3) ** 2,
        equalities=lambda x1, x2, x3: (x1 + 2.0 * x2 + 3.0 * x3 - 1.0,),
        start=(-4.0, 1.0, 1.0),
        optimum=0.0,
        solution=(0.5, -0.5, 0.5),
        note="A convex quadratic program.",
    ),
    _problem(
        "HS29",
        lambda x1, x2, x3: -x1 * x2 * x3,
        inequalities=lambda x1, x2, x3: (48.0 - x1**2 - 2.0 * x2**2 - 4.0 * x3**2,),
        start=(1.0, 1.0, 1.0),
        optimum=-16.0 * SQRT2,
        solution=(4.0, 2.0 * SQRT2, 2.0),
        note="An indefinite objective; four solutions, by two changes of sign.",
    ),
    _problem(
        "HS30",
        lambda x1, x2, x3: x1**2 + x2**2 + x3**2,
        inequalities=lambda x1, x2, x3: (x1**2 + x2**2 - 1.0,),
        lower=(1.0, -10.0, -10.0),
        upper=(10.0, 10.0, 10.0),
        start=(1.0, 1.0, 1.0),
        optimum=1.0,
        solution=(1.0, 0.0, 0.0),
        note="At the solution the gradients of the inequality and of the bound are parallel.",
        regular=False,
    ),
    _problem(
        "HS31",
        lambda x1, x2, x3: 9.0 * x1**2 + x2**2 + 9.0 * x3**2,
        inequalities=lambda x1, x2, x3: (x1 * x2 - 1.0,),
        lower=(-10.0, 1.0, -10.0),
        upper=(10.0, 10.0, 1.0),
        start=(1.0, 1.0, 1.0),
        optimum=6.0,
        solution=(1.0 / SQRT3, SQRT3, 0.0),
    ),
    _problem(
        "HS32",
        lambda x1, x2, x3: (x1 + 3.0 * x2 + x3) ** 2 + 4.0 * (x1 - x2) ** 2,
        equalities=lambda x1, x2, x3: (1.0 - x1 - x2 - x3,),
        inequalities=lambda x1, x2, x3: (6.0 * x2 + 4.0 * x3 - x1**3 - 3.0,),
        lower=(0.0, 0.0, 0.0),
        start=(0.1, 0.7, 0.2),
        optimum=1.0,
        solution=(0.0, 0.0, 1.0),
        note="One of the two active bounds has a multiplier of zero.",
    ),
    _problem(
        "HS33",
        lambda x1, x2, x3: (x1 - 1.0) * (x1 - 2.0) * (x1 - 3.0) + x3,
        inequalities=lambda x1, x2, x3: (x3**2 - x2**2 - x1**2, x1**2 + x2**2 + x3**2 - 4.0),
        lower=(0.0, 0.0, 0.0),
        upper=(INF, INF, 5.0),
        start=(0.0, 0.0, 3.0),
        optimum=SQRT2 - 6.0,
        solution=(0.0, SQRT2, SQRT2),
        note="From the start many methods reach the point (0, 0, 2), where first-order conditions hold: of value -4.",
        local_optima=(-4.0, 2.0),
    ),
    _problem(
        "HS34",
        lambda x1, x2, x3: -x1,
        inequalities=lambda x1, x2, x3: (x2 - jnp.exp(x1), x3 - jnp.exp(x2)),
        lower=(0.0, 0.0, 0.0),
        upper=(100.0, 100.0, 10.0),
        start=(0.0, 1.05, 2.9),
        optimum=-math.log(math.log(10.0)),
        solution=(math.log(math.log(10.0)), math.log(10.0), 10.0),
        note="A linear objective; the solution is a vertex of nonlinear constraints.",
    ),
    _problem(
        "HS35",
        lambda x1, x2, x3: (
            9.0 - 8.0 * x1 - 6.0 * x2 - 4.0 * x3 + 2.0 * x1**2 + 2.0 * x2**2 + x3**2 + 2.0 * x1 * x2 + 2.0 * x1 * x3
        ),
        inequalities=lambda x1, x2, x3: (3.0 - x1 - x2 - 2.0 * x3,),
        lower=(0.0, 0.0, 0.0),
        start=(0.5, 0.5, 0.5),
        optimum=1.0 / 9.0,
        solution=(4.0 / 3.0, 7.0 / 9.0, 4.0 / 9.0),
        note="A convex quadratic program.",
    ),
    _problem(
        "HS36",
        lambda x1, x2, x3: -x1 * x2 * x3,
        inequalities=lambda x1, x2, x3: (72.0 - x1 - 2.0 * x2 - 2.0 * x3,),
        lower=(0.0, 0.0, 0.0),
        upper=(20.0, 11.0, 42.0),
        start=(10.0, 10.0, 10.0),
        optimum=-3300.0,
        solution=(20.0, 11.0, 15.0),
        note="The solution is a vertex; the objective is indefinite, and zero on the lower bounds.",
    ),
    _problem(
        "HS37",
        lambda x1, x2, x3: -x1 * x2 * x3,
        inequalities=lambda x1, x2, x3: (72.0 - x1 - 2.0 * x2 - 2.0 * x3, x1 + 2.0 * x2 + 2.0 * x3),
        lower=(0.0, 0.0, 0.0),
        upper=(42.0, 42.0, 42.0),
        start=(10.0, 10.0, 10.0),
        optimum=-3456.0,
        solution=(24.0, 12.0, 12.0),
        note="An indefinite objective.",
    ),
    _problem(
        "HS38",
        lambda x1, x2, x3, x4: (
            100.0 * (x2 - x1**2) ** 2
            + (1.0 - x1) ** 2
            + 90.0 * (x4 - x3**2) ** 2
            + (1.0 - x3) ** 2
            + 10.1 * ((x2 - 1.0) ** 2 + (x4 - 1.0) ** 2)
            + 19.8 * (x2 - 1.0) * (x4 - 1.0)
        ),
        lower=(-10.0,) * 4,
        upper=(10.0,) * 4,
        start=(-3.0, -1.0, -3.0, -1.0),
        optimum=0.0,
        solution=(1.0, 1.0, 1.0, 1.0),
        note="Colville's fourth function (Wood's), with inactive bounds.",
    ),
    _problem(
        "HS39",
        lambda x1, x2, x3, x4: -x1,
        equalities=lambda x1, x2, x3, x4: (x2 - x1**3 - x3**2, x1**2 - x2 - x4**2),
        start=(2.0, 2.0, 2.0, 2.0),
        optimum=-1.0,
        solution=(1.0, 1.0, 0.0, 0.0),
        note="A linear objective.",
    ),
    _problem(
        "HS40",
        lambda x1, x2, x3, x4: -x1 * x2 * x3 * x4,
        equalities=lambda x1, x2, x3, x4: (x1**3 + x2**2 - 1.0, x1**2 * x4 - x3, x4**2 - x2),
        start=(0.8, 0.8, 0.8, 0.8),
        optimum=-0.25,
        solution=(2.0 ** (-1.0 / 3.0), 2.0 ** (-1.0 / 2.0), 2.0 ** (-11.0 / 12.0), 2.0 ** (-1.0 / 4.0)),
        note="Two solutions, by the signs of x3 and x4.",
    ),
    _problem(
        "HS41",
        lambda x1, x2, x3, x4: 2.0 - x1 * x2 * x3,
        equalities=lambda x1, x2, x3, x4: (x1 + 2.0 * x2 + 2.0 * x3 - x4,),
        lower=(0.0,) * 4,
        upper=(1.0, 1.0, 1.0, 2.0),
        start=(2.0, 2.0, 2.0, 2.0),
        optimum=52.0 / 27.0,
        solution=(2.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 2.0),
        note="The start is outside the bounds. The objective is stationary, of value 2, where two of x1, x2, x3 vanish.",
        local_optima=(2.0,),
    ),
    _problem(
        "HS42",
        lambda x1, x2, x3, x4: (x1 - 1.0) ** 2 + (x2 - 2.0) ** 2 + (x3 - 3.0) ** 2 + (x4 - 4.0) ** 2,
        equalities=lambda x1, x2, x3, x4: (x1 - 2.0, x3**2 + x4**2 - 2.0),
        start=(1.0, 1.0, 1.0, 1.0),
        optimum=28.0 - 10.0 * SQRT2,
        solution=(2.0, 2.0, 0.6 * SQRT2, 0.8 * SQRT2),
    ),
    _problem(
        "HS43",
        lambda x1, x2, x3, x4: x1**2 + x2**2 + 2.0 * x3**2 + x4**2 - 5.0 * x1 - 5.0 * x2 - 21.0 * x3 + 7.0 * x4,
        inequalities=lambda x1, x2, x3, x4: (
            8.0 - x1**2 - x2**2 - x3**2 - x4**2 - x1 + x2 - x3 + x4,
            10.0 - x1**2 - 2.0 * x2**2 - x3**2 - 2.0 * x4**2 + x1 + x4,
            5.0 - 2.0 * x1**2 - x2**2 - x3**2 - 2.0 * x1 + x2 + x4,
        ),
        start=(0.0, 0.0, 0.0, 0.0),
        optimum=-44.0,
        solution=(0.0, 1.0, 2.0, -1.0),
        note="The problem of Rosen and Suzuki.",
    ),
    _problem(
        "HS44",
        lambda x1, x2, x3, x4: x1 - x2 - x3 - x1 * x3 + x1 * x4 + x2 * x3 - x2 * x4,
        inequalities=lambda x1, x2, x3, x4: (
            8.0 - x1 - 2.0 * x2,
            12.0 - 4.0 * x1 - x2,
            12.0 - 3.0 * x1 - 4.0 * x2,
            8.0 - 2.0 * x3 - x4,
            8.0 - x3 - 2.0 * x4,
            5.0 - x3 - x4,
        ),
        lower=(0.0,) * 4,
        start=(0.0, 0.0, 0.0, 0.0),
        optimum=-15.0,
        solution=(0.0, 3.0, 0.0, 4.0),
        note="An indefinite quadratic program: its minima are vertices.",
        local_optima=(-13.0,),
    ),
    _problem(
        "HS45",
        lambda *x: 2.0 - _product(*x) / 120.0,
        lower=(0.0,) * 5,
        upper=(1.0, 2.0, 3.0, 4.0, 5.0),
        start=(2.0,) * 5,
        optimum=1.0,
        solution=(1.0, 2.0, 3.0, 4.0, 5.0),
        note="Five active bounds. The objective is stationary, of value 2, where two variables vanish.",
        local_optima=(2.0,),
    ),
    _problem(
        "HS46",
        lambda x1, x2, x3, x4, x5: (x1 - x2) ** 2 + (x3 - 1.0) ** 2 + (x4 - 1.0) ** 4 + (x5 - 1.0) ** 6,
        equalities=lambda x1, x2, x3, x4, x5: (
            x1**2 * x4 + jnp.sin(x4 - x5) - 1.0,
            x2 + x3**4 * x4**2 - 2.0,
        ),
        start=(SQRT2 / 2.0, 1.75, 0.5, 2.0, 2.0),
        optimum=0.0,
        solution=(1.0,) * 5,
        note="A singular Hessian, of fourth and sixth order: convergence is slow.",
        local_optima=(0.021088928627471228,),
    ),
    _problem(
        "HS47",
        lambda x1, x2, x3, x4, x5: (x1 - x2) ** 2 + (x2 - x3) ** 3 + (x3 - x4) ** 4 + (x4 - x5) ** 4,
        equalities=lambda x1, x2, x3, x4, x5: (
            x1 + x2**2 + x3**3 - 3.0,
            x2 - x3**2 + x4 - 1.0,
            x1 * x5 - 1.0,
        ),
        start=(2.0, SQRT2, -1.0, 2.0 - SQRT2, 0.5),
        optimum=-0.02671418269394102,
        solution=(0.6770043948666403, 0.726089472652032, 1.2154912142370975, 1.7513294192355413, 1.4770952856177322),
        note="Published: 0, at (1, 1, 1, 1, 1): there the Hessian is singular, and along a cubic curve values are lower.",
        local_optima=(0.0, 10.069910284134778),
    ),
    _problem(
        "HS48",
        lambda x1, x2, x3, x4, x5: (x1 - 1.0) ** 2 + (x2 - x3) ** 2 + (x4 - x5) ** 2,
        equalities=lambda x1, x2, x3, x4, x5: (x1 + x2 + x3 + x4 + x5 - 5.0, x3 - 2.0 * (x4 + x5) + 3.0),
        start=(3.0, 5.0, -3.0, 2.0, -2.0),
        optimum=0.0,
        solution=(1.0,) * 5,
        note="A convex quadratic program.",
    ),
    _problem(
        "HS49",
        lambda x1, x2, x3, x4, x5: (x1 - x2) ** 2 + (x3 - 1.0) ** 2 + (x4 - 1.0) ** 4 + (x5 - 1.0) ** 6,
        equalities=lambda x1, x2, x3, x4, x5: (x1 + x2 + x3 + 4.0 * x4 - 7.0, x3 + 5.0 * x5 - 6.0),
        start=(10.0, 7.0, 2.0, -3.0, 0.8),
        optimum=0.0,
        solution=(1.0,) * 5,
        note="A singular Hessian under linear equalities: convergence is slow.",
    ),
    _problem(
        "HS50",
        lambda x1, x2, x3, x4, x5: (x1 - x2) ** 2 + (x2 - x3) ** 2 + (x3 - x4) ** 4 + (x4 - x5) ** 2,
        equalities=lambda x1, x2, x3, x4, x5: (
            x1 + 2.0 * x2 + 3.0 * x3 - 6.0,
            x2 + 2.0 * x3 + 3.0 * x4 - 6.0,
            x3 + 2.0 * x4 + 3.0 * x5 - 6.0,
        ),
        start=(35.0, -31.0, 11.0, 5.0, -5.0),
        optimum=0.0,
        solution=(1.0,) * 5,
        note="The start is far away, and feasible.",
    ),
    _problem(
        "HS51",
        lambda x1, x2, x3, x4, x5: (x1 - x2) ** 2 + (x2 + x3 - 2.0) ** 2 + (x4 - 1.0) ** 2 + (x5 - 1.0) ** 2,
        equalities=lambda x1, x2, x3, x4, x5: (x1 + 3.0 * x2 - 4.0, x3 + x4 - 2.0 * x5, x2 - x5),
        start=(2.5, 0.5, 2.0, -1.0, 0.5),
        optimum=0.0,
        solution=(1.0,) * 5,
        note="A convex quadratic program.",
    ),
    _problem(
        "HS52",
        lambda x1, x2, x3, x4, x5: (4.0 * x1 - x2) ** 2 + (x2 + x3 - 2.0) ** 2 + (x4 - 1.0) ** 2 + (x5 - 1.0) ** 2,
        equalities=lambda x1, x2, x3, x4, x5: (x1 + 3.0 * x2, x3 + x4 - 2.0 * x5, x2 - x5),
        start=(2.0,) * 5,
        optimum=1859.0 / 349.0,
        solution=(-33.0 / 349.0, 11.0 / 349.0, 180.0 / 349.0, -158.0 / 349.0, 11.0 / 349.0),
        note="A convex quadratic program; the start is infeasible.",
    ),
    _problem(
        "HS53",
        lambda x1, x2, x3, x4, x5: (x1 - x2) ** 2 + (x2 + x3 - 2.0) ** 2 + (x4 - 1.0) ** 2 + (x5 - 1.0) ** 2,
        equalities=lambda x1, x2, x3, x4, x5: (x1 + 3.0 * x2, x3 + x4 - 2.0 * x5, x2 - x5),
        lower=(-10.0,) * 5,
        upper=(10.0,) * 5,
        start=(2.0,) * 5,
        optimum=176.0 / 43.0,
        solution=(-33.0 / 43.0, 11.0 / 43.0, 27.0 / 43.0, -5.0 / 43.0, 11.0 / 43.0),
        note="A convex quadratic program with inactive bounds; the start is infeasible.",
    ),
    _problem(
        "HS54",
        lambda x1, x2, x3, x4, x5, x6: (
            -jnp.exp(
                -0.5
                * (
                    ((x1 - 1e4) ** 2 / 6.4e7 + (x1 - 1e4) * (x2 - 1.0) / 2e4 + (x2 - 1.0) ** 2) / 0.96
                    + (x3 - 2e6) ** 2 / 4.9e13
                    + (x4 - 10.0) ** 2 / 2.5e3
                    + (x5 - 1e-3) ** 2 / 2.5e-3
                    + (x6 - 1e8) ** 2 / 2.5e17
                )
            )
        ),
        equalities=lambda x1, x2, x3, x4, x5, x6: (x1 + 4e3 * x2 - 1.76e4,),
        lower=(0.0, -10.0, 0.0, 0.0, -1.0, 0.0),
        upper=(2e4, 10.0, 1e7, 20.0, 1.0, 2e8),
        start=(6e3, 1.5, 4e6, 2.0, 3e-3, 5e7),
        optimum=-math.exp(-27.0 / 280.0),
        solution=(91600.0 / 7.0, 79.0 / 70.0, 2e6, 10.0, 1e-3, 1e8),
        note="Variables between 1e-3 and 1e8: unscaled, a gradient of 1e-10 is no sign of a solution.",
    ),
    _problem(
        "HS55",
        lambda x1, x2, x3, x4, x5, x6: x1 + 2.0 * x2 + 4.0 * x5 + jnp.exp(x1 * x4),
        equalities=lambda x1, x2, x3, x4, x5, x6: (
            x1 + 2.0 * x2 + 5.0 * x5 - 6.0,
            x1 + x2 + x3 - 3.0,
            x4 + x5 + x6 - 2.0,
            x1 + x4 - 1.0,
            x2 + x5 - 2.0,
            x3 + x6 - 2.0,
        ),
        lower=(0.0,) * 6,
        upper=(1.0, INF, INF, 1.0, INF, INF),
        start=(1.0, 2.0, 0.0, 0.0, 0.0, 2.0),
        optimum=19.0 / 3.0,
        solution=(0.0, 4.0 / 3.0, 5.0 / 3.0, 1.0, 2.0 / 3.0, 1.0 / 3.0),
        note="Six linear equalities of rank five: the feasible set is a segment, with a minimum at either end.",
        local_optima=(20.0 / 3.0,),
        regular=False,
    ),
    _problem(
        "HS56",
        lambda x1, x2, x3, x4, x5, x6, x7: -x1 * x2 * x3,
        equalities=lambda x1, x2, x3, x4, x5, x6, x7: (
            x1 - 4.2 * jnp.sin(x4) ** 2,
            x2 - 4.2 * jnp.sin(x5) ** 2,
            x3 - 4.2 * jnp.sin(x6) ** 2,
            x1 + 2.0 * x2 + 2.0 * x3 - 7.2 * jnp.sin(x7) ** 2,
        ),
        start=(1.0, 1.0, 1.0) + (math.asin(math.sqrt(1.0 / 4.2)),) * 3 + (math.asin(math.sqrt(5.0 / 7.2)),),
        optimum=-3.456,
        solution=(2.4, 1.2, 1.2)
        + (math.asin(math.sqrt(4.0 / 7.0)),)
        + (math.asin(math.sqrt(2.0 / 7.0)),) * 2
        + (math.pi / 2.0,),
        note="Bounds written as squares of sines: many solutions, and stationary points where a cosine vanishes.",
    ),
    _problem(
        "HS57",
        _hs57,
        inequalities=lambda x1, x2: (0.49 * x2 - x1 * x2 - 0.09,),
        lower=(0.4, -4.0),
        start=(0.42, 5.0),
        optimum=0.028459669722986705,
        solution=(0.41995265075780125, 1.2848451936248453),
        note="Published: 0.02845966972. A fit of 44 residuals, flat for large x2, of infimum 1609/52500 there.",
        local_optima=(1609.0 / 52500.0,),
    ),
    _problem(
        "HS59",
        lambda x1, x2: (
            -75.196
            + 3.8112 * x1
            - 0.12694 * x1**2
            + 2.0567e-3 * x1**3
            - 1.0345e-5 * x1**4
            + 6.8306 * x2
            - 0.030234 * x1 * x2
            + 1.28134e-3 * x1**2 * x2
            - 3.5256e-5 * x1**3 * x2
            + 2.266e-7 * x1**4 * x2
            - 0.25645 * x2**2
            + 3.4604e-3 * x2**3
            - 1.3514e-5 * x2**4
            + 28.106 / (x2 + 1.0)
            + 5.2375e-6 * x1**2 * x2**2
            + 6.3e-8 * x1**3 * x2**2
            - 7e-10 * x1**3 * x2**3
            - 3.4054e-4 * x1 * x2**2
            + 1.6638e-6 * x1 * x2**3
            + 2.8673 * jnp.exp(5e-4 * x1 * x2)
        ),
        inequalities=lambda x1, x2: (
            x1 * x2 - 700.0,
            x2 - x1**2 / 125.0,
            (x2 - 50.0) ** 2 - 5.0 * (x1 - 55.0),
        ),
        lower=(0.0, 0.0),
        upper=(75.0, 65.0),
        start=(90.0, 10.0),
        optimum=-7.804235953664736,
        solution=(13.55008884043414, 51.66017789574671),
        note="Published: -7.804226324, where x1 x2 = 700.0008. The start is outside the bounds.",
        local_optima=(-6.754566019134734,),
    ),
    _problem(
        "HS60",
        lambda x1, x2, x3: (x1 - 1.0) ** 2 + (x1 - x2) ** 2 + (x2 - x3) ** 4,
        equalities=lambda x1, x2, x3: (x1 * (1.0 + x2**2) + x3**4 - 4.0 - 3.0 * SQRT2,),
        lower=(-10.0,) * 3,
        upper=(10.0,) * 3,
        start=(2.0, 2.0, 2.0),
        optimum=0.03256820025506984,
        solution=(1.1048590197333166, 1.1966741822882572, 1.535262260325326),
        note="Published: 0.03256820025.",
    ),
    _problem(
        "HS61",
        lambda x1, x2, x3: 4.0 * x1**2 + 2.0 * x2**2 + 2.0 * x3**2 - 33.0 * x1 + 16.0 * x2 - 24.0 * x3,
        equalities=lambda x1, x2, x3: (3.0 * x1 - 2.0 * x2**2 - 7.0, 4.0 * x1 - x3**2 - 11.0),
        start=(0.0, 0.0, 0.0),
        optimum=-143.64614219778025,
        solution=(5.326770135563928, -2.118998632218976, 3.2104642253505506),
        note="Published: -143.6461422. At the start the Jacobian of the equalities has rank one.",
    ),
    _problem(
        "HS62",
        lambda x1, x2, x3: (
            -32.174
            * (
                255.0 * jnp.log((x1 + x2 + x3 + 0.03) / (0.09 * x1 + x2 + x3 + 0.03))
                + 280.0 * jnp.log((x2 + x3 + 0.03) / (0.07 * x2 + x3 + 0.03))
                + 290.0 * jnp.log((x3 + 0.03) / (0.13 * x3 + 0.03))
            )
        ),
        equalities=lambda x1, x2, x3: (x1 + x2 + x3 - 1.0,),
        lower=(0.0,) * 3,
        upper=(1.0,) * 3,
        start=(0.7, 0.2, 0.1),
        optimum=-26272.514487318254,
        solution=(0.6178126908126926, 0.3282022231196688, 0.05398508606763841),
        note="Published: -26272.51448. Badly scaled.",
    ),
    _problem(
        "HS63",
        lambda x1, x2, x3: 1000.0 - x1**2 - 2.0 * x2**2 - x3**2 - x1 * x2 - x1 * x3,
        equalities=lambda x1, x2, x3: (8.0 * x1 + 14.0 * x2 + 7.0 * x3 - 56.0, x1**2 + x2**2 + x3**2 - 25.0),
        lower=(0.0,) * 3,
        start=(2.0, 2.0, 2.0),
        optimum=961.7151721300521,
        solution=(3.51212134187472, 0.21698794151522316, 3.5521711548270165),
        note="Published: 961.7151721. A concave objective on a circle.",
    ),
    _problem(
        "HS64",
        lambda x1, x2, x3: 5.0 * x1 + 5e4 / x1 + 20.0 * x2 + 7.2e4 / x2 + 10.0 * x3 + 1.44e5 / x3,
        inequalities=lambda x1, x2, x3: (1.0 - 4.0 / x1 - 32.0 / x2 - 120.0 / x3,),
        lower=(1e-5,) * 3,
        start=(1.0, 1.0, 1.0),
        optimum=6299.8424279215205,
        solution=(108.73470491089891, 85.12621279089379, 204.32459661260552),
        note="Published: 6299.842428. Badly scaled, with a pole at the bounds.",
    ),
    _problem(
        "HS65",
        lambda x1, x2, x3: (x1 - x2) ** 2 + (x1 + x2 - 10.0) ** 2 / 9.0 + (x3 - 5.0) ** 2,
        inequalities=lambda x1, x2, x3: (48.0 - x1**2 - x2**2 - x3**2,),
        lower=(-4.5, -4.5, -5.0),
        upper=(4.5, 4.5, 5.0),
        start=(-5.0, 5.0, 0.0),
        optimum=0.953528856804783,
        solution=(3.6504617252130362, 3.6504617252130362, 4.620417555320008),
        note="Published: 0.9535288567. The start is outside the bounds.",
    ),
    _problem(
        "HS66",
        lambda x1, x2, x3: 0.2 * x3 - 0.8 * x1,
        inequalities=lambda x1, x2, x3: (x2 - jnp.exp(x1), x3 - jnp.exp(x2)),
        lower=(0.0,) * 3,
        upper=(100.0, 100.0, 10.0),
        start=(0.0, 1.05, 2.9),
        optimum=0.5181632741815411,
        solution=(0.18412648792284766, 1.2021678731970429, 3.3273223225990955),
        note="Published: 0.5181632741.",
    ),
    _problem(
        "HS68",
        _HS68_OBJECTIVE,
        equalities=_HS68_EQUALITIES,
        lower=(1e-4, 0.0, 0.0, 0.0),
        upper=(100.0, 100.0, 2.0, 2.0),
        start=(1.0, 1.0, 1.0, 1.0),
        optimum=-0.9204250036397499,
        solution=(0.06785857708551149, 3.646210855688185, 0.00026613562521538286, 0.8948550393735515),
        note="Published: -0.920425026, in error in the eighth digit. By the error function.",
    ),
    _problem(
        "HS69",
        _HS69_OBJECTIVE,
        equalities=_HS69_EQUALITIES,
        lower=(1e-4, 0.0, 0.0, 0.0),
        upper=(100.0, 100.0, 2.0, 2.0),
        start=(1.0, 1.0, 1.0, 1.0),
        optimum=-956.7128866500246,
        solution=(0.02937141742170882, 1.1902534504068287, 0.23394679066745125, 0.7916678112438277),
        note="Published: -956.71288. By the error function.",
    ),
    _problem(
        "HS70",
        _hs70,
        inequalities=lambda x1, x2, x3, x4: (x3 + (1.0 - x3) * x4,),
        lower=(1e-5,) * 4,
        upper=(100.0, 100.0, 1.0, 100.0),
        start=(2.0, 4.0, 0.04, 2.0),
        optimum=0.007498463574427675,
        solution=(12.276979127629115, 4.631748162854857, 0.31286463022569183, 2.029282825341488),
        note="Published: 0.007498464, a fit of 19 residuals, by the reciprocal of Stirling's correction.",
        local_optima=(0.2690861876367528,),
    ),
    _problem(
        "HS71",
        lambda x1, x2, x3, x4: x1 * x4 * (x1 + x2 + x3) + x3,
        equalities=lambda x1, x2, x3, x4: (x1**2 + x2**2 + x3**2 + x4**2 - 40.0,),
        inequalities=lambda x1, x2, x3, x4: (x1 * x2 * x3 * x4 - 25.0,),
        lower=(1.0,) * 4,
        upper=(5.0,) * 4,
        start=(1.0, 5.0, 5.0, 1.0),
        optimum=17.014017289156303,
        solution=(1.0, 4.742999637264417, 3.821149984184874, 1.3794082931726723),
        note="Published: 17.0140173. An equality, an inequality and a bound are active.",
    ),
    _problem(
        "HS72",
        lambda x1, x2, x3, x4: 1.0 + x1 + x2 + x3 + x4,
        inequalities=lambda x1, x2, x3, x4: (
            0.0401 - 4.0 / x1 - 2.25 / x2 - 1.0 / x3 - 0.25 / x4,
            0.010085 - 0.16 / x1 - 0.36 / x2 - 0.64 / x3 - 0.64 / x4,
        ),
        lower=(0.001,) * 4,
        upper=(4e5, 3e5, 2e5, 1e5),
        start=(1.0,) * 4,
        optimum=727.6793577896129,
        solution=(193.40742727194635, 179.54707603227456, 185.01806335815152, 168.70679112724056),
        note="Published: 727.67937, in error in the eighth digit. Badly scaled: multipliers above 1e4.",
    ),
    _problem(
        "HS73",
        lambda x1, x2, x3, x4: 24.55 * x1 + 26.75 * x2 + 39.0 * x3 + 40.5 * x4,
        equalities=lambda x1, x2, x3, x4: (x1 + x2 + x3 + x4 - 1.0,),
        inequalities=lambda x1, x2, x3, x4: (
            2.3 * x1 + 5.6 * x2 + 11.1 * x3 + 1.3 * x4 - 5.0,
            12.0 * x1
            + 11.9 * x2
            + 41.8 * x3
            + 52.1 * x4
            - 21.0
            - 1.645 * jnp.sqrt(0.28 * x1**2 + 0.19 * x2**2 + 20.5 * x3**2 + 0.62 * x4**2),
        ),
        lower=(0.0,) * 4,
        start=(1.0,) * 4,
        optimum=29.894378159143358,
        solution=(0.6355215686350697, 0.0, 0.3127018807515236, 0.05177655061340675),
        note="Published: 29.894378. The mixing of cattle feed, with a second-order cone.",
    ),
    _hs74(
        "HS74",
        0.55,
        optimum=5126.498109595273,
        solution=(679.9453198512117, 1026.0671326104648, 0.11887636449310195, -0.39623355320321035),
        note="Published: 5126.4981. Badly scaled; the start is infeasible.",
    ),
    _hs74(
        "HS75",
        0.48,
        optimum=5174.41269537774,
        solution=(776.1590265860594, 925.1951384690918, 0.0511089285383513, -0.4288910714616487),
        note="Published: 5174.4129, in error in the eighth digit. Badly scaled; the start is infeasible.",
    ),
    _problem(
        "HS76",
        lambda x1, x2, x3, x4: x1**2 + 0.5 * x2**2 + x3**2 + 0.5 * x4**2 - x1 * x3 + x3 * x4 - x1 - 3.0 * x2 + x3 - x4,
        inequalities=lambda x1, x2, x3, x4: (
            5.0 - x1 - 2.0 * x2 - x3 - x4,
            4.0 - 3.0 * x1 - x2 - 2.0 * x3 + x4,
            x2 + 4.0 * x3 - 1.5,
        ),
        lower=(0.0,) * 4,
        start=(0.5,) * 4,
        optimum=-103.0 / 22.0,
        solution=(3.0 / 11.0, 23.0 / 11.0, 0.0, 6.0 / 11.0),
        note="A convex quadratic program.",
    ),
    _problem(
        "HS77",
        lambda x1, x2, x3, x4, x5: (
            (x1 - 1.0) ** 2 + (x1 - x2) ** 2 + (x3 - 1.0) ** 2 + (x4 - 1.0) ** 4 + (x5 - 1.0) ** 6
        ),
        equalities=lambda x1, x2, x3, x4, x5: (
            x1**2 * x4 + jnp.sin(x4 - x5) - 2.0 * SQRT2,
            x2 + x3**4 * x4**2 - 8.0 - SQRT2,
        ),
        start=(2.0,) * 5,
        optimum=0.24150512879017869,
        solution=(1.1661721897092985, 1.1821113888027044, 1.3802570431454597, 1.5060362736230457, 0.6109201960430908),
        note="Published: 0.24150513.",
        local_optima=(4.602561512118195, 5.533357278640703, 9.908760196699808),
    ),
    _problem(
        "HS78",
        _product,
        equalities=_hs78_equalities,
        start=(-2.0, 1.5, 2.0, -1.0, -1.0),
        optimum=-2.919700408963679,
        solution=(-1.717143570394382, 1.5957096901835544, 1.8272457529271946, -0.7636430781841304, -0.7636430781841304),
        note="Published: -2.91970041. An indefinite objective.",
        local_optima=(-0.8235948300850225,),
    ),
    _problem(
        "HS79",
        lambda x1, x2, x3, x4, x5: (x1 - 1.0) ** 2 + (x1 - x2) ** 2 + (x2 - x3) ** 2 + (x3 - x4) ** 4 + (x4 - x5) ** 4,
        equalities=lambda x1, x2, x3, x4, x5: (
            x1 + x2**2 + x3**3 - 2.0 - 3.0 * SQRT2,
            x2 - x3**2 + x4 + 2.0 - 2.0 * SQRT2,
            x1 * x5 - 2.0,
        ),
        start=(2.0,) * 5,
        optimum=0.07877682087105692,
        solution=(1.1911274563110514, 1.3626031649617423, 1.4728179315120877, 1.6350166191679931, 1.6790814361664075),
        note="Published: 0.0787768209.",
        local_optima=(13.966824900390183, 27.452004094708315),
    ),
    _problem(
        "HS80",
        lambda *x: jnp.exp(_product(*x)),
        equalities=_hs78_equalities,
        lower=(-2.3, -2.3, -3.2, -3.2, -3.2),
        upper=(2.3, 2.3, 3.2, 3.2, 3.2),
        start=(-2.0, 2.0, 2.0, -1.0, -1.0),
        optimum=0.0539498477702721,
        solution=(-1.717143570394382, 1.5957096901835544, 1.8272457529271944, -0.7636430781841304, -0.7636430781841302),
        note="Published: 0.0539498478.",
        local_optima=(0.43885121994281245, 1.0),
    ),
    _problem(
        "HS81",
        lambda *x: jnp.exp(_product(*x)) - 0.5 * (x[0] ** 3 + x[1] ** 3 + 1.0) ** 2,
        equalities=_hs78_equalities,
        lower=(-2.3, -2.3, -3.2, -3.2, -3.2),
        upper=(2.3, 2.3, 3.2, 3.2, 3.2),
        start=(-2.0, 2.0, 2.0, -1.0, -1.0),
        optimum=0.05394984777027203,
        solution=(
            -1.7171435703943823,
            1.5957096901835544,
            1.8272457529271946,
            -0.7636430781841304,
            -0.7636430781841304,
        ),
        note="Published: 0.0539498478. The objective of HS80 less a square that an equality makes zero: unbounded off it.",
        local_optima=(0.4388512199428126, 1.0),
    ),
    _problem(
        "HS83",
        lambda x1, x2, x3, x4, x5: 5.3578547 * x3**2 + 0.8356891 * x1 * x5 + 37.293239 * x1 - 40792.141,
        inequalities=_hs83_inequalities,
        lower=(78.0, 33.0, 27.0, 27.0, 27.0),
        upper=(102.0, 45.0, 45.0, 45.0, 45.0),
        start=(78.0, 33.0, 27.0, 27.0, 27.0),
        optimum=-30665.538671783317,
        solution=(78.0, 33.0, 29.995256025681616, 45.0, 36.77581290578815),
        note="Published: -30665.53867. Colville's third problem.",
    ),
    _problem(
        "HS84",
        lambda *x: 24345.0 - _hs84_group(x, (-8720288.849, 150512.5253, -156.6950325, 476470.3222, 729482.8271)),
        inequalities=_hs84_inequalities,
        lower=(0.0, 1.2, 20.0, 9.0, 6.5),
        upper=(1000.0, 2.4, 60.0, 9.3, 7.0),
        start=(2.52, 2.0, 37.5, 9.25, 6.8),
        optimum=-5280335.133214752,
        solution=(4.537430974655399, 2.4, 60.0, 9.3, 7.0),
        note="Published: -5280335.133. Badly scaled: gradients of 1e6.",
    ),
    _problem(
        "HS86",
        _hs86,
        inequalities=_hs86_inequalities,
        lower=(0.0,) * 5,
        start=(0.0, 0.0, 0.0, 0.0, 1.0),
        optimum=-32.34867896572271,
        solution=(0.3, 0.3334676065346071, 0.4, 0.4283101047816988, 0.2239648735607981),
        note="Published: -32.34867897. Colville's first problem.",
    ),
    _problem(
        "HS93",
        lambda x1, x2, x3, x4, x5, x6: (
            0.0204 * x1 * x4 * (x1 + x2 + x3)
            + 0.0187 * x2 * x3 * (x1 + 1.57 * x2 + x4)
            + 0.0607 * x1 * x4 * x5**2 * (x1 + x2 + x3)
            + 0.0437 * x2 * x3 * x6**2 * (x1 + 1.57 * x2 + x4)
        ),
        inequalities=lambda x1, x2, x3, x4, x5, x6: (
            0.001 * x1 * x2 * x3 * x4 * x5 * x6 - 2.07,
            1.0 - 0.00062 * x1 * x4 * x5**2 * (x1 + x2 + x3) - 0.00058 * x2 * x3 * x6**2 * (x1 + 1.57 * x2 + x4),
        ),
        lower=(0.0,) * 6,
        start=(5.54, 4.4, 12.02, 11.82, 0.702, 0.852),
        optimum=135.07596282915176,
        solution=(
            5.332666335528806,
            4.656744059172018,
            10.432991940468273,
            12.082306340063704,
            0.7526074362238325,
            0.8786508746591397,
        ),
        note="Published: 135.075961, in error in the last digit. The design of a transformer.",
    ),
    _hs95(
        "HS95",
        (4.97, -1.88, -29.08, -78.02),
        optimum=0.015619525242393848,
        solution=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0033233032430625207),
        note="Published: 0.015619514, in error in the last digits. The solution is a vertex; the start is infeasible.",
    ),
    _hs95(
        "HS96",
        (4.97, -1.88, -69.08, -118.02),
        optimum=0.015619525242393848,
        solution=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0033233032430625207),
        note="Published: 0.015619514, in error in the last digits. The solution is a vertex; the start is infeasible.",
    ),
    _hs95(
        "HS97",
        (32.97, 25.12, -29.08, -78.02),
        optimum=3.135809122807016,
        solution=(0.26856491228070145, 0.0, 0.0, 0.0, 0.028, 0.0134),
        note="Published: 3.1358091. The start is infeasible.",
        local_optima=(4.071246356513221,),
    ),
    _hs95(
        "HS98",
        (32.97, 25.12, -124.08, -173.02),
        optimum=3.135809122807017,
        solution=(0.2685649122807016, 0.0, 0.0, 0.0, 0.028, 0.0134),
        note="Published: 3.1358091. The start is infeasible.",
        local_optima=(4.071246356513221,),
    ),
    _problem(
        "HS99",
        lambda *x: -(_hs99_sums(x)[0] ** 2),
        equalities=lambda *x: (_hs99_sums(x)[1] - 1000.0, _hs99_sums(x)[2] - 1e5),
        lower=(0.0,) * 7,
        upper=(1.58,) * 7,
        start=(0.5,) * 7,
        optimum=-831079891.5101076,
        solution=(
            0.542467816212317,
            0.5290214242019767,
            0.5084491553164001,
            0.4802688509618158,
            0.45123634979664673,
            0.4091830824209854,
            0.3527878917811228,
        ),
        note="Published: -0.831079892e9. Badly scaled.",
    ),
    _problem(
        "HS100",
        lambda x1, x2, x3, x4, x5, x6, x7: (
            (x1 - 10.0) ** 2
            + 5.0 * (x2 - 12.0) ** 2
            + x3**4
            + 3.0 * (x4 - 11.0) ** 2
            + 10.0 * x5**6
            + 7.0 * x6**2
            + x7**4
            - 4.0 * x6 * x7
            - 10.0 * x6
            - 8.0 * x7
        ),
        inequalities=lambda x1, x2, x3, x4, x5, x6, x7: (
            127.0 - 2.0 * x1**2 - 3.0 * x2**4 - x3 - 4.0 * x4**2 - 5.0 * x5,
            282.0 - 7.0 * x1 - 3.0 * x2 - 10.0 * x3**2 - x4 + x5,
            196.0 - 23.0 * x1 - x2**2 - 6.0 * x6**2 + 8.0 * x7,
            -4.0 * x1**2 - x2**2 + 3.0 * x1 * x2 - 2.0 * x3**2 - 5.0 * x6 + 11.0 * x7,
        ),
        start=(1.0, 2.0, 0.0, 4.0, 0.0, 1.0, 1.0),
        optimum=680.630057374402,
        solution=(
            2.33049937287957,
            1.951372372896889,
            -0.4775413923888716,
            4.36572623365581,
            -0.6244869705268175,
            1.0381310186079584,
            1.5942267116118685,
        ),
        note="Published: 680.6300573.",
    ),
    _hs101(
        "HS101",
        -0.25,
        optimum=1809.7647655714138,
        solution=(
            2.856158555755146,
            0.6108230308034508,
            2.1508125621644743,
            4.712873709241228,
            0.9994875408574634,
            1.3475075048283296,
            0.03165276650277433,
        ),
        note="Published: 1809.76476. A geometric program; the start is infeasible.",
    ),
    _hs101(
        "HS102",
        0.125,
        optimum=911.8805714301081,
        solution=(
            3.8962531910702807,
            0.8093587601054146,
            2.6643859937754897,
            4.30091287479402,
            0.8535549352485837,
            1.095287444576103,
            0.027310459657719263,
        ),
        note="Published: 911.880571. A geometric program; the start is infeasible.",
    ),
    _hs101(
        "HS103",
        0.5,
        optimum=543.6679584662809,
        solution=(
            4.394104510526405,
            0.8544687387974248,
            2.8432303139508948,
            3.3999786676865598,
            0.7229261330073025,
            0.8704063818044574,
            0.02463882632722851,
        ),
        note="Published: 543.667958. A geometric program; the start is infeasible.",
    ),
    _problem(
        "HS104",
        lambda x1, x2, x3, x4, x5, x6, x7, x8: _hs104(x1, x2, x7, x8),
        inequalities=lambda x1, x2, x3, x4, x5, x6, x7, x8: (
            1.0 - 0.0588 * x5 * x7 - 0.1 * x1,
            1.0 - 0.0588 * x6 * x8 - 0.1 * x1 - 0.1 * x2,
            1.0 - 4.0 * x3 / x5 - 2.0 * x3**-0.71 / x5 - 0.0588 * x3**-1.3 * x7,
            1.0 - 4.0 * x4 / x6 - 2.0 * x4**-0.71 / x6 - 0.0588 * x4**-1.3 * x8,
            _hs104(x1, x2, x7, x8) - 1.0,
            4.2 - _hs104(x1, x2, x7, x8),
        ),
        lower=(0.1,) * 8,
        upper=(10.0,) * 8,
        start=(6.0, 3.0, 0.4, 0.2, 6.0, 6.0, 1.0, 0.5),
        optimum=3.9511634401033575,
        solution=(
            6.4651140283691,
            2.232708647985228,
            0.6673974912866293,
            0.595756422900371,
            5.932675677909848,
            5.527234564976939,
            1.0133220089025614,
            0.40066822912570305,
        ),
        note="Published: 3.9511634396, in error in the tenth digit. The design of a reactor.",
    ),
    _problem(
        "HS106",
        lambda x1, x2, x3, x4, x5, x6, x7, x8: x1 + x2 + x3,
        inequalities=lambda x1, x2, x3, x4, x5, x6, x7, x8: (
            1.0 - 0.0025 * (x4 + x6),
            1.0 - 0.0025 * (x5 + x7 - x4),
            1.0 - 0.01 * (x8 - x5),
            x1 * x6 - 833.33252 * x4 - 100.0 * x1 + 83333.333,
            x2 * x7 - 1250.0 * x5 - x2 * x4 + 1250.0 * x4,
            x3 * x8 - 1250000.0 - x3 * x5 + 2500.0 * x5,
        ),
        lower=(100.0, 1000.0, 1000.0) + (10.0,) * 5,
        upper=(10000.0,) * 3 + (1000.0,) * 5,
        start=(5000.0, 5000.0, 5000.0, 200.0, 350.0, 150.0, 225.0, 425.0),
        optimum=7049.248020528665,
        solution=(
            579.306684425355,
            1359.9706680516551,
            5109.970668051655,
            182.0176995811199,
            295.6011732779338,
            217.98230041888007,
            286.4165263031861,
            395.6011732779338,
        ),
        note="Published: 7049.330923, in error from the fifth digit. A heat exchanger, badly scaled.",
    ),
    _problem(
        "HS107",
        lambda *x: 3000.0 * x[0] + 1000.0 * x[0] ** 3 + 2000.0 * x[1] + 666.667 * x[1] ** 3,
        equalities=_hs107_equalities,
        lower=(0.0, 0.0, -INF, -INF, 0.90909, 0.90909, 0.90909, -INF, -INF),
        upper=(INF, INF, INF, INF, 1.0909, 1.0909, 1.0909, INF, INF),
        start=(0.8, 0.8, 0.2, 0.2, 1.0454, 1.0454, 1.0454, 0.0, 0.0),
        optimum=5055.011803543817,
        solution=(
            0.667012762315328,
            1.0223847170508324,
            0.22828714466752004,
            0.18482175612975044,
            1.0909,
            1.0909,
            1.069036003142822,
            0.10661062240656402,
            -0.33878761906990673,
        ),
        note="Published: 5055.011803. The flow of power in a network of three nodes.",
    ),
    _problem(
        "HS108",
        lambda x1, x2, x3, x4, x5, x6, x7, x8, x9: -0.5 * (x1 * x4 - x2 * x3 + x3 * x9 - x5 * x9 + x5 * x8 - x6 * x7),
        inequalities=_hs108_inequalities,
        lower=(-INF,) * 8 + (0.0,),
        start=(1.0,) * 9,
        optimum=-0.8660254037844387,
        solution=(
            0.8333363197456103,
            -0.5527662961802592,
            0.8953778147207427,
            0.4453072747058006,
            0.8333363197456103,
            -0.5527662961802592,
            0.8953778147207427,
            0.4453072747058006,
            0.0,
        ),
        note="Published: -0.8660254038. A hexagon of unit diameter; more active constraints than independent gradients.",
        local_optima=(-0.6749814429301048,),
        regular=False,
    ),
    _problem(
        "HS109",
        lambda *x: 3.0 * x[0] + 1e-6 * x[0] ** 3 + 2.0 * x[1] + 0.522074e-6 * x[1] ** 3,
        equalities=_hs109_equalities,
        inequalities=lambda *x: (
            x[3] - x[2] + 0.55,
            x[2] - x[3] + 0.55,
            2250000.0 - x[0] ** 2 - x[7] ** 2,
            2250000.0 - x[1] ** 2 - x[8] ** 2,
        ),
        lower=(0.0, 0.0, -0.55, -0.55, 196.0, 196.0, 196.0, -400.0, -400.0),
        upper=(INF, INF, 0.55, 0.55, 252.0, 252.0, 252.0, 800.0, 800.0),
        start=(0.0,) * 9,
        optimum=5362.069181109597,
        solution=(
            675.025339259742,
            1134.0210897148409,
            0.1334850509182755,
            -0.37119026264778004,
            252.0,
            252.0,
            201.46585773381287,
            426.61900566211773,
            368.4881990875217,
        ),
        note="Published: 5362.06928, where the equalities miss by 0.5. Badly scaled; the start is outside the bounds.",
    ),
    _problem(
        "HS110",
        _hs110,
        lower=(2.001,) * 10,
        upper=(9.999,) * 10,
        start=(9.0,) * 10,
        optimum=-45.77846970744629,
        solution=(
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
            9.350265833069384,
        ),
        note="Published: -45.77846971. Steep logarithms next to the bounds.",
    ),
    _problem(
        "HS111",
        lambda *x: _hs112(*map(jnp.exp, x)),
        equalities=lambda *x: _hs112_equalities(*map(jnp.exp, x)),
        lower=(-100.0,) * 10,
        upper=(100.0,) * 10,
        start=(-2.3,) * 10,
        optimum=-47.761090859365865,
        solution=(
            -3.202311588551217,
            -1.912366597080984,
            -0.24442674775038292,
            -6.5611772716583765,
            -0.723097963295305,
            -7.274232280188139,
            -3.5972374223277743,
            -4.020316730690851,
            -3.288376881360256,
            -2.3343717392206247,
        ),
        note="Published: -47.76109026, in error in the ninth digit. HS112 by logarithms of its variables.",
    ),
    _problem(
        "HS112",
        _hs112,
        equalities=_hs112_equalities,
        lower=(1e-6,) * 10,
        start=(0.1,) * 10,
        optimum=-47.76109085936588,
        solution=(
            0.04066808735569018,
            0.1477303543408222,
            0.7831533540092339,
            0.0014142198090301215,
            0.4852466486992728,
            0.0006931720784210651,
            0.02739931071400337,
            0.01794727958492543,
            0.037314365913030396,
            0.09687132386577664,
        ),
        note="Published: -47.707579, in error from the fourth digit. A chemical equilibrium.",
    ),
    _problem(
        "HS113",
        _hs113,
        inequalities=_hs113_inequalities,
        start=(2.0, 3.0, 5.0, 5.0, 1.0, 2.0, 7.0, 3.0, 6.0, 10.0),
        optimum=24.306209068179804,
        solution=(
            2.1719963712554553,
            2.36368297369728,
            8.77392573847685,
            5.095984487948453,
            0.9906547649638592,
            1.4305739789363159,
            1.3216442081617032,
            9.828725807886322,
            8.280091670098345,
            8.375926663921323,
        ),
        note="Published: 24.3062091. Wong's second problem: convex, with six active inequalities.",
    ),
    _problem(
        "HS114",
        lambda *x: 5.04 * x[0] + 0.035 * x[1] + 10.0 * x[2] + 3.36 * x[4] - 0.063 * x[3] * x[6],
        equalities=_hs114_equalities,
        inequalities=_hs114_inequalities,
        lower=(1e-5,) * 5 + (85.0, 90.0, 3.0, 1.2, 145.0),
        upper=(2000.0, 16000.0, 120.0, 5000.0, 2000.0, 93.0, 95.0, 12.0, 4.0, 162.0),
        start=(1745.0, 12000.0, 110.0, 3048.0, 1974.0, 89.2, 92.8, 8.0, 3.6, 145.0),
        optimum=-1768.8069637162441,
        solution=(
            1698.0947651889674,
            15818.614924182953,
            54.10268233324733,
            3031.2252173680063,
            2000.0,
            90.11542219898668,
            95.0,
            10.493298306705553,
            1.561636363636363,
            153.53535353535355,
        ),
        note="Published: -1768.80696. An alkylation process, badly scaled.",
    ),
)
