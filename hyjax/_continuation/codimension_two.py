r"""Points of codimension two on loci: the equation of a locus, and the search along it.

The condition of a locus is one number besides $F = 0$: $g$ in

$$\begin{pmatrix} A & b \\ c^T & 0 \end{pmatrix} \begin{pmatrix} v \\ g \end{pmatrix} = \begin{pmatrix} 0 \\ 1 \end{pmatrix},$$

which is zero exactly where $A$ is singular, and regular for suitable $b$, $c$. Its derivatives are second derivatives of the
flow, and exact, so that Newton's method is quadratic; $b$ and $c$, computed anew at every evaluation, count as constant, because
the zeros of $g$ do not depend on them. For the multipliers 1 and -1, $A$ is a matrix of `unfolding.py`; for a pair with $\mu_1
\mu_2 = 1$ it is $D^{(2)} - I$, with the second compound matrix $D^{(2)}$, whose entries are the minors $D_{ik} D_{jl} - D_{il}
D_{jk}$ and whose eigenvalues are $\mu_i \mu_j$. So a curve of Neimark-Sacker points passes smoothly through the resonances 1:1
and 1:2, where the pair becomes real.

A point of codimension two is a zero of a test function along the locus. The multipliers that are critical all along are set
apart; the others give the test functions:

| kind | on the locus of | test function |
|---|---|---|
| cusp | folds | the tangent's components along the parameters, which turn around |
| resonance-1:1; resonance-1:2 | folds; doublings | the derivative of $\det(1 - z D)$ at $z = 1$; at -1 |
| resonance-1:1, 1:2, 1:3, 1:4 | Neimark-Sacker points | $\mu_1 + \mu_2$ less 2, -2, -1, 0 |
| generalized-flip; chenciner | doublings; Neimark-Sacker points | the cubic coefficient of the normal form, its real part |
| where it meets folds; doublings; pairs | any | $\prod (1 - \mu)$; $\prod (1 + \mu)$; $\prod (1 - \mu_i \mu_j)$ of the others |

A step of the locus in which a test function may be zero twice is halved, see `location.py`.

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, ch. 9 and Sec. 10.3; Kuznetsov, Meijer (2019), *Numerical
Bifurcation Analysis of Maps*, ch. 3; Govaerts (2000), ch. 3, 4, for the bordered and the compound matrix.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues
from .._numerics.elimination import solve
from .._numerics.linearize import with_columns
from .._orbit.chain import Chain
from .._orbit.orbit import PeriodicOrbit
from .._system.types import Scalar
from .curve import PseudoArclength
from .grazing import grazing_equation, Touch
from .location import (
    Followed,
    interpolated_zero,
    Located,
    may_turn,
    Place,
    place_near,
    places_of,
    search,
    ZERO,
    zero_between,
)
from .normal_form import expansion, FORMS
from .special_points import grazing_point, locate_grazing, missing, point_on, SpecialPoint
from .unfolding import Equation, SHIFTS, Unfolding

PAIR = "neimark-sacker"
# The sums of the pair of multipliers at the strong resonances.
RESONANCES = {"resonance-1:1": 2.0, "resonance-1:2": -2.0, "resonance-1:3": -1.0, "resonance-1:4": 0.0}
# Of multipliers, zero where one is 1, one is -1, or two have the product 1; multipliers that are zero change nothing.
CROSSINGS = {
    "fold": lambda values: np.prod(1 - values).real,
    "period-doubling": lambda values: np.prod(1 + values).real,
    PAIR: lambda values: np.prod([1 - a * b for a, b in itertools.combinations(values, 2)]).real,
}
# The tangent at a cusp has no component along the parameters above `STILL`. A locus that ends nearer than `END` to a point, in
# scaled units, has it; to a cusp, where a parameter has an extremum along the curve, nearer than a larger distance.
STILL, END = 1e-5, 1e-10
AT_END = collections.defaultdict(lambda: END, cusp=0.1 * STILL)
# Points at which a coefficient of the normal form is zero, and at which two curves of one kind cross.
DEGENERATE, CROSSED = ("generalized-flip", "chenciner", "generalized-hopf"), ("double-neimark-sacker", "double-hopf")
# The coefficient is zero below this share of those at the ends of the interval; a test function may touch zero below this one.
SMALL, TOUCHES = 1e-3, 1e-3
Test = Callable[[Place], float]


class LocusEquation(eqx.Module):
    """The equation `H = 0` of a locus: the periodic orbits or equilibria of an `unfolding` with two free parameters that meet the
    condition of the special points of a kind, at the ends of branches of a `touch`."""

    unfolding: Equation
    touch: Touch | None
    kind: str = eqx.field(static=True)

    params = property(lambda self: self.unfolding.params)
    free = property(lambda self: self.unfolding.free)
    origin = property(lambda self: self.unfolding.origin)
    scale = property(lambda self: self.unfolding.scale)

    def evaluate(self, v: Array) -> tuple[Array, Array, Any]:
        """`(H, dH/dv, aux)`."""
        # The Jacobian of H has second derivatives of the flow: compile time dominates, so the loops are rolled.
        unfolding, kind, touch = self.unfolding.rolled(order=2), self.kind, self.touch

        def conditioned(v: Array):
            if touch is not None:
                residual, (chain, _) = grazing_equation(unfolding, touch, v)
                return residual, chain
            residual, dF, aux = unfolding.evaluate(v)
            return jnp.append(residual, corner(unfolding.critical(dF, kind))), aux

        return with_columns(conditioned, v)

    def judged(self, v: Array, aux: Any, accept: Array) -> Any:
        """The verdict on a root; a grazing orbit touches a guard that may fire in the next lap."""
        return self.unfolding.rolled(order=2).judged(v, aux, accept) if self.touch is None else aux


def corner(matrix: Float[Array, "n n"]) -> Scalar:
    """`g` of the matrix bordered by its singular vectors of the smallest singular value."""
    left, _, right = jnp.linalg.svd(stop_gradient(matrix))
    whole = jnp.block([[matrix, left[:, -1:]], [right[-1:], jnp.zeros((1, 1), matrix.dtype)]])
    return solve(whole, jnp.zeros(len(whole), matrix.dtype).at[-1].set(1))[-1]


def search_locus(
    curve: Followed,
    places: list[Place],
    tests_between: Callable[[Place, Place, Test], dict[str, Test]],
    coefficient: Test,
    point: Callable[[str, Place], Any],
    error: float,
) -> tuple[list[Any], tuple[tuple[float, float], ...]]:
    """The points of codimension two between the `places` of a locus, in their order along it, and its unresolved intervals, as
    `search`.

    **Arguments:** `tests_between`: the test functions between two places, by the kinds of their zeros, of the `coefficient` of
    the normal form. `point`: the point of a kind at a zero, if it is one. `error`: of a test function.
    """
    known: dict[float, float] = {}

    def once(place: Place) -> float:
        if place.s not in known:
            known[place.s] = coefficient(place)
        return known[place.s]

    def expected(curve: Followed, places: list[Place], k: int) -> tuple[tuple[dict[str, Test], bool], bool]:
        a, b = places[k], places[k + 1]
        zero = lambda test: all(abs(test(end)) <= ZERO for end in (places[0], places[len(places) // 2], places[-1]))
        tests = {name: test for name, test in tests_between(a, b, once).items() if not zero(test)}
        flips = {name: test for name, test in tests.items() if (test(a) >= 0) != (test(b) >= 0)}
        for end, other in ((a, b),) * (k == 0) + ((b, a),) * (k == len(places) - 2):
            # A point at an end of the curve, where the sign is that of rounding.
            share = lambda name: min(SMALL, AT_END[name] / (b.s - a.s))
            flips |= {name: test for name, test in tests.items() if abs(test(end)) < share(name) * abs(test(other))}
        steady = [test for name, test in tests.items() if name not in flips]
        simple = not any(may_turn(places, k, test, TOUCHES, zero=0.0) for test in steady)
        return (flips, simple), simple

    def located(curve: Followed, a: Place, b: Place, wanted: tuple[dict[str, Test], bool]) -> Located:
        points, missed = [], not wanted[1]
        for name, test in wanted[0].items():
            # Where two curves cross, the corrector's matrix is singular.
            change = test(b) - test(a)
            smooth, sure = lambda place, test=test, change=change: test(place) / change, 1e-10 + error / abs(change)
            place = interpolated_zero(curve, a, b, smooth, sure) if name in CROSSED else zero_between(curve, a, b, test)
            missed |= place is None
            # A factor of the test function alone may change its sign, where branches cross.
            flat = lambda place: abs(once(place)) < SMALL * max(abs(once(a)), abs(once(b)))
            if place and (name not in DEGENERATE or flat(place)) and (found := point(name, place)):
                points.append((place.s, found))
        return Located(points, False, missed)

    return search(curve, places, expected, located, lambda *_: None)


def special_points_along(curve: Followed, points: dict[str, Any]) -> tuple[list[SpecialPoint], tuple]:
    """The points of codimension two between the `points` of a locus of orbits, and its unresolved intervals."""
    places, touch, kind = places_of(curve, points), curve.equation.touch, curve.equation.kind
    if touch is not None:
        # With the multipliers of the side that misses the guard.
        _, (_, (_, x, image, _)) = _grazing_of(curve.equation.unfolding, touch, jnp.asarray(places[0].near.v))
        curve = curve._replace(equation=dataclasses.replace(curve.equation, touch=missing(touch, x, image)))
        found = [place_near(curve, each.s, each.near.v, each.near.tangent) for each in places]
        places = [each for each in found if each is not None]
    tests = lambda a, b, cubic: _tests(kind, a, b, cubic)
    point = lambda name, place: _located(curve, name, place)
    return search_locus(
        curve, places, tests, lambda place: _cubic(curve.equation, place), point, 1e-4 * float(curve.accept)
    )


@long_run
def witness(equation: LocusEquation, v: Array, jacobian: Array, tangent: Array) -> tuple[dict[str, Array], Array]:
    """No test functions, and the multipliers at a point of a locus."""
    return {}, eigenvalues(equation.unfolding.around(jacobian[:-1]))


def _tests(kind: str, a: Place, b: Place, cubic: Test) -> dict[str, Test]:
    """The test functions along a locus between two of its points, by the kinds of their zeros. The coefficient `cubic` is
    infinite where another multiplier is 1, and at a resonance 1:2: a factor is zero there."""
    tests: dict[str, Test] = {
        _meeting(kind, other): lambda place, test=test: test(apart(kind, place.values)[1])
        for other, test in CROSSINGS.items()
        if kind != other or kind == PAIR
    }
    if kind == PAIR:
        total = lambda place: sum(apart(kind, place.values)[0]).real
        tests |= {name: lambda place, value=value: total(place) - value for name, value in RESONANCES.items()}
        if max(abs(total(a)), abs(total(b))) < 2 * (1 - END):
            # The coefficient is infinite at a resonance 1:1 too.
            others = lambda place: CROSSINGS["fold"](apart(kind, place.values)[1])
            tests["chenciner"] = lambda place: cubic(place) * others(place) * (2 - total(place))
    if kind in SHIFTS:
        double = lambda place: _slope(SHIFTS[kind] * place.values)
        tests["resonance-1:1" if kind == "fold" else "resonance-1:2"] = double
    if kind == "period-doubling":
        tests["generalized-flip"] = lambda place: cubic(place) * double(place) * tests["fold-flip"](place)
    if kind == "fold":
        tests["cusp"] = turning_between(a, b)
    return tests


def turning_between(a: Place, b: Place) -> Test:
    """The tangent's component along the parameters in the direction of that at `a`, or at `b` if it is larger there: it changes
    its sign at a cusp."""
    way = max((place.near.tangent[-2:] for place in (a, b)), key=np.linalg.norm)
    return lambda place: float(place.near.tangent[-2:] @ way)


def apart(kind: str, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The multipliers that are critical all along a locus, and the others."""
    return least_of(
        multipliers, 1 if kind in SHIFTS else 2 * (kind == PAIR), lambda mu: np.prod(mu) - SHIFTS.get(kind, 1)
    )


def least_of(values: np.ndarray, count: int, function: Callable) -> tuple[np.ndarray, np.ndarray]:
    """So many of the values, those of which a function is least in modulus, and the others."""
    k = [*min(itertools.combinations(range(len(values)), count), key=lambda k: abs(function(values[[*k]])))]
    return values[k], np.delete(values, k)


def _meeting(kind: str, other: str) -> str:
    """The name of the points at which a locus meets another one."""
    if kind == other:
        return f"double-{kind}"
    first, last = sorted((kind, other), key=[*CROSSINGS, kind].index)
    return f"{first}-{last}".replace("period-doubling", "flip")


def _slope(values: np.ndarray) -> float:
    """The derivative of the product of `1 - z * values` at z = 1, up to its sign, where it is zero: smooth, unlike the values
    near a double one."""
    return float(np.sum([np.prod(1 - np.delete(values, k)) for k in range(len(values))]).real)


def _cubic(equation: LocusEquation, place: Place) -> float:
    """The coefficient of the normal form whose sign decides between super- and subcritical, in units of the size of states."""
    kind, v, dF = equation.kind, *map(jnp.asarray, (place.near.v, place.near.jacobian[:-1]))
    form = FORMS[kind]._replace(parameters=0)
    critical = apart(kind, place.values)[0] if kind == PAIR else np.array([-1.0])
    critical = critical.astype(complex) / np.abs(critical)
    found = expansion(equation.unfolding, v, dF, jnp.asarray(critical), form)
    k = form.monomials.index((2, 1) if kind == PAIR else (3,))
    coefficient = np.asarray(found.reduced)[k, 0] * np.conj(critical[0])
    return float(coefficient.real) * float(equation.unfolding.state_scale) ** 2


def _located(curve: Followed, name: str, place: Place) -> SpecialPoint | None:
    """The point of codimension two at a zero of a test function; `None` where it is none."""
    kind = curve.equation.kind
    if name in CROSSED:
        residual, chain = _chain(curve.equation.unfolding, jnp.asarray(place.near.v), curve.accept)
        place = place._replace(near=place.near._replace(residual=residual, aux=chain))
    critical, others = apart(kind, place.values)
    pairs = [critical] if kind == PAIR and name not in ("resonance-1:1", "resonance-1:2") else []
    pairs += [apart(PAIR, others)[0]] if name == _meeting(kind, PAIR) else []
    # Where two real multipliers have the product 1, at a neutral saddle, no orbit bifurcates.
    neutral = any(abs(sum(pair)) > 2 for pair in pairs)
    if neutral or (name == "cusp" and np.linalg.norm(place.near.tangent[-2:]) > STILL):
        return None
    # That of the pair where there is one, of a pair that is 1 or -1 a real one, else that of the fold.
    cosine = np.clip(sum(pairs[0]).real / 2, -1, 1) if pairs else None
    real = -1.0 if "1:2" in name or ("flip" in name and "fold" not in name) else 1.0
    multiplier = real if cosine is None else complex(cosine, np.sqrt(1 - cosine**2))
    return _point(curve.equation, name, place, multiplier)


def at_end(
    unfolding: Unfolding,
    kind: str,
    orbit: PeriodicOrbit,
    v: Array,
    tangent: Array,
    method: PseudoArclength,
    accept: Array,
) -> SpecialPoint | None:
    """Where a locus of multipliers meets the end of branches, such as grazing, near its last point `v` and `orbit`: the zero of
    the test function along the locus of grazing; or None if there is none."""
    from scipy.optimize import root_scalar  # takes a third of a second

    y, values = unfolding.split(v)
    # At first with one parameter free.
    one = dataclasses.replace(
        unfolding, params=unfolding.params_at(values), free=unfolding.free[1:], origin=values[1:], scale=unfolding.scale[1:]
    )  # fmt: skip
    end = locate_grazing(one, orbit, one.join(y, values[1:]), jnp.append(tangent[:-2], tangent[-1]), accept)
    if end is None or end.touch is None or end.touch.of_rate:
        return None
    before, second = one.split(end.v)
    origin = unfolding.join(before, jnp.append(values[0], second))
    touch = eqx.tree_at(lambda touch: touch.jump, end.touch, jnp.array(not np.isfinite(end.orbit.multipliers).all()))
    curve = Followed(LocusEquation(unfolding, touch, end.kind), 1, method, accept, witness)
    first = place_near(curve, 0.0, origin, jnp.zeros_like(origin).at[-2].set(1))
    if first is None:
        return None
    at = lambda s: place_near(curve, s, origin + s * first.near.tangent, first.near.tangent) or first
    test = lambda s: CROSSINGS[kind](at(s).values)
    s = root_scalar(test, x0=0.0, x1=1e-4, method="secant", xtol=1e-15, maxiter=30).root
    if not abs(test(s)) < ZERO:
        return None
    place = at(s)
    multiplier = SHIFTS.get(kind, 0) or apart(kind, place.values)[0][0]
    return _point(LocusEquation(unfolding, end.touch, end.kind), _meeting(end.kind, kind), place, multiplier)


@long_run
def _grazing_of(unfolding: Unfolding, touch: Touch, v: Array):
    return grazing_equation(unfolding, touch, v)


@long_run
def _chain(unfolding: Unfolding, v: Array, accept: Array) -> tuple[Scalar, Chain]:
    """The largest residual of an orbit, and its strides with a verdict."""
    residual, chain = unfolding.rolled().residual(v)
    return jnp.max(jnp.abs(residual)), unfolding.rolled().judged(v, chain, accept)


def _point(equation: LocusEquation, name: str, place: Place, multiplier: complex | float) -> SpecialPoint:
    unfolding = equation.unfolding
    near = jax.tree.map(jnp.asarray, place.near._replace(jacobian=place.near.jacobian[:-1]))
    dtype = near.v.dtype
    critical = jnp.asarray(multiplier, np.result_type(dtype, np.complex64) if np.iscomplexobj(multiplier) else dtype)
    if equation.touch is None:
        return dataclasses.replace(point_on(unfolding, near, critical), kind=name)
    point = grazing_point(unfolding, name, equation.touch, near, jnp.array(0))
    return dataclasses.replace(point, multiplier=critical.astype(point.multiplier.dtype))
