r"""The search for the special points of a branch, from the points of the branch.

Two witnesses: the test functions, which change sign, and the number of multipliers outside the unit circle, which changes by 1 at
a fold, a period doubling or a branch point and by 2 at a Neimark-Sacker point. (At a neutral saddle, two real multipliers with
the product 1, the Neimark-Sacker test function changes sign and the number does not change.) An interval between two points is
simple if at most one special point explains both witnesses, and no test function may turn to zero and back within the interval.
Any other interval is halved by a new point of the curve, again and again; the new points are not added to the branch. An interval
that remains unexplained is reported, see `Branch.unresolved`.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics.eager import long_run
from .._numerics.newton import newton
from .._orbit.multipliers import eigenvalues
from .curve import tangent_to
from .special_points import branch_point, KINDS, locate, SpecialPoint, test_functions
from .unfolding import Unfolding

FOLD, FLIP, PAIR, CROSSING = KINDS
# A multiplier this near to the unit circle may be on either side of it: rounding in a product of many strides.
ON_CIRCLE = 1e-7
# A test function below this is zero along the branch, as for a flow that preserves volume.
ZERO = 1e-11
# An interval shorter than this, in scaled units, is not halved; nor is any after so many new points.
SHORTEST, MOST_NEW = 1e-6, 500
# Chebyshev's points, in units of the interval: a branch point amid them is not near one of them.
NODES = np.cos(np.pi * (np.arange(12) + 0.5) / 12) / 2


class Place(NamedTuple):
    """A point of the curve, at the distance `s` from its start, along chords."""

    s: float
    v: np.ndarray
    tangent: np.ndarray
    jacobian: np.ndarray
    tests: dict[str, float]
    multipliers: np.ndarray


def search(
    unfolding: Unfolding, points: dict[str, np.ndarray], accept: Array
) -> tuple[list[SpecialPoint], list[tuple[float, float]]]:
    """The special points between the `points` of a branch, whose residuals are at most `accept`, in their order along the curve;
    and the ends, in scaled units of the parameter, of the unexplained intervals."""
    places = _places(unfolding, points)
    most = len(places) + MOST_NEW
    found, unresolved, k = [], [], 0
    counted, since = places[0], []  # the last point at which the multipliers can be counted, and what lies after it

    def halfway(a: Place, b: Place) -> Place | None:
        return _between(unfolding, a, b, 0.5, accept) if b.s - a.s > SHORTEST and len(places) < most else None

    while k < len(places) - 1:
        a, b = places[k], places[k + 1]
        kinds, simple, rank = *_expected(places, k), _rank(a, b)
        if rank > 1:
            # A doubling, or a pair that crosses the circle, within the interval is another point.
            alone = FLIP not in kinds and bool(_change(a, b) & {-rank, rank}) and not _turns(places, k, FLIP)
            kinds, simple = ([CROSSING], True) if alone else ([*{*kinds, CROSSING}], False)
        elif not {*kinds} - {PAIR} and 0 in _change(a, b) and _turns(places, k, CROSSING, 1e-3):
            # Two multipliers may pass 1 at one point in opposite directions.
            both = not _turns(places, k, FLIP) and _located(unfolding, CROSSING, a, b, 1e3 * accept, 2) is not None
            kinds, simple, rank = ([CROSSING], True, 2) if both else (kinds, False, rank)
        middle = None if simple else halfway(a, b)
        if middle is None:
            located = {kind: _located(unfolding, kind, a, b, 1e3 * accept, rank) for kind in kinds}
            if FOLD in located and CROSSING in located and _turns_at(places, k, located[CROSSING]):
                # Where two branches cross, the parameter of one of them may have an extremum: no fold.
                kinds, located = [CROSSING], {CROSSING: located[CROSSING]}
            if simple and (None in located.values() or {FOLD, CROSSING} <= located.keys()):
                middle = halfway(a, b)
        if middle is not None:
            places.insert(k + 1, middle)
            continue
        here = {kind: point for kind, point in located.items() if point is not None}
        found += sorted(here.values(), key=lambda point: _along(point, a, b))
        since += here.values()
        if not {*kinds} - {PAIR} <= here.keys():
            unresolved.append((float(a.v[-1]), float(b.v[-1])))
        if _can_count(b):
            if _can_count(counted) and not _explains(since, _change(counted, b)):
                unresolved.append((float(counted.v[-1]), float(b.v[-1])))
            counted, since = b, []
        k += 1
    return each_once(found), unresolved


# Witnesses


def _places(unfolding: Unfolding, points: dict[str, np.ndarray]) -> list[Place]:
    v = points["v"]
    s = np.append(0, np.cumsum(np.linalg.norm(np.diff(v, axis=0), axis=1)))
    columns = [jnp.asarray(points[name]) for name in ("jacobian", "tangent")]
    tests, multipliers = jax.tree.map(np.asarray, _witnesses(unfolding, *columns))
    rows = zip(s, v, points["tangent"], points["jacobian"], *(tests[kind] for kind in KINDS), multipliers, strict=True)
    return [
        Place(
            float(s), v, tangent, jacobian, {kind: float(f) for kind, f in zip(KINDS, tests, strict=True)}, multipliers
        )
        for s, v, tangent, jacobian, *tests, multipliers in rows
    ]


@long_run
def _witnesses(unfolding: Unfolding, jacobian: Array, tangent: Array) -> tuple[dict[str, Array], Array]:
    return jax.vmap(lambda jacobian, tangent: _witness(unfolding, jacobian, tangent))(jacobian, tangent)


def _witness(unfolding: Unfolding, jacobian: Array, tangent: Array) -> tuple[dict[str, Array], Array]:
    multipliers = eigenvalues(unfolding.around(jacobian))
    return test_functions(unfolding, jacobian, tangent, multipliers), multipliers


def _change(a: Place, b: Place) -> set[int]:
    """By how much the number of multipliers outside the unit circle may change from `a` to `b`."""
    outside = lambda place, margin: int(np.sum(np.abs(place.multipliers) > 1 + margin))
    low = outside(b, ON_CIRCLE) - outside(a, -ON_CIRCLE)
    high = outside(b, -ON_CIRCLE) - outside(a, ON_CIRCLE)
    return set(range(low, high + 1))


def _rank(a: Place, b: Place) -> int:
    """How many real multipliers pass 1 between two points, the same way: by symmetry they may at one point."""
    real = [np.real(each.multipliers)[np.abs(np.imag(each.multipliers)) < ON_CIRCLE] - 1 for each in (a, b)]
    above = [int(np.sum(each > 0)) for each in real]
    # Where two of them merge into a pair, none need pass 1.
    known = len(real[0]) == len(real[1]) and np.min(np.abs(np.concatenate(real)), initial=1) > ON_CIRCLE
    return abs(above[1] - above[0]) if known else 0


def _can_count(place: Place) -> bool:
    """Whether every multiplier is known to be inside or outside the unit circle."""
    return bool(np.all(np.abs(np.abs(place.multipliers) - 1) > ON_CIRCLE))


def _explains(points: list[SpecialPoint], change: set[int]) -> bool:
    """Whether special points, in any directions, add up to a possible change."""
    # At a branch point that is an extremum of the parameter the multiplier 1 turns back.
    crosses = lambda point: range(1 - len(point.kernel), len(point.kernel))
    steps = [
        crosses(point) if point.kind == CROSSING else (-2, 2) if point.kind == PAIR else (-1, 1) for point in points
    ]
    return bool(change & {sum(each) for each in itertools.product(*steps)})


def _expected(places: list[Place], k: int) -> tuple[list[str], bool]:
    """The kinds of special points that the witnesses show in the interval after the point `k`, and whether it is simple."""
    a, b = places[k], places[k + 1]
    flips = {kind for kind in KINDS if changes_sign(a.tests[kind], b.tests[kind])}
    for end, other in ((a, b),) * (k == 0) + ((b, a),) * (k == len(places) - 2):
        # A point at an end of the branch, where the sign is that of rounding.
        small = lambda kind, end=end, other=other: abs(end.tests[kind]) < ZERO * abs(other.tests[kind])
        flips |= {kind for kind in (FLIP, CROSSING) if small(kind) and abs(other.tests[kind]) > ZERO}
    signs, change = flips - {PAIR}, _change(a, b)
    # Where a pair of multipliers must cross the circle, a neutral saddle may have turned its test function back.
    steady = [kind for kind in KINDS if kind not in flips and (kind != PAIR or 0 in change)]
    if any(_turns(places, k, kind) for kind in steady):
        return list(signs), False
    if signs:
        understood = (signs == {FOLD, CROSSING} and 0 in change) or (len(signs) == 1 and bool(change & {-1, 1}))
        return [kind for kind in KINDS if kind in signs], understood and PAIR not in flips
    if 0 not in change:
        return [PAIR], bool(change & {-2, 2})
    if change != {0} and PAIR in flips:
        return [PAIR], True
    return [], PAIR not in flips or (_none_crosses(a, b) and not _may_turn(places, k, _beyond_circle))


def changes_sign(a: float, b: float) -> bool:
    """Whether a test function changes its sign between two points."""
    return bool((a >= 0) != (b >= 0) and max(abs(a), abs(b)) > ZERO)


def _turns(places: list[Place], k: int, kind: str, least: float = 0.0) -> bool:
    return _may_turn(places, k, lambda place: place.tests[kind], least)


def _beyond_circle(place: Place) -> float:
    """How far the complex multiplier next to the unit circle lies outside; infinite where there is none."""
    distances = np.abs(place.multipliers[np.imag(place.multipliers) > 0]) - 1
    return float(min(distances, key=abs, default=np.inf))


def _may_turn(places: list[Place], k: int, value: Callable[[Place], float], least: float = 0.0) -> bool:
    """Whether a value, such as a test function, of one sign at both ends of an interval may be zero in between, or below the
    share `least` of its larger end: by the parabolas through both ends and a third point, whose difference estimates the error
    of each."""
    a, b = places[k], places[k + 1]
    others = [places[i] for i in (k - 1, k + 2, k - 2, k + 3) if 0 <= i < len(places)][:2]
    fa, fb, *rest = map(value, (a, b, *others))
    if len(rest) < 2 or max(abs(fa), abs(fb)) <= ZERO or not np.all(np.isfinite([fa, fb, *rest])):
        return False
    s = np.linspace(a.s, b.s, 33)
    chord = fa + (fb - fa) * (s - a.s) / (b.s - a.s)

    def parabola(c: Place, fc: float) -> np.ndarray:
        at = fa + (fb - fa) * (c.s - a.s) / (b.s - a.s)
        return chord + (fc - at) * (s - a.s) * (s - b.s) / ((c.s - a.s) * (c.s - b.s))

    one, other = (np.sign(fa + fb) * parabola(c, fc) for c, fc in zip(others, rest, strict=True))
    lowest = np.min((np.minimum(one, other) - np.abs(one - other))[1:-1])
    return bool(lowest < least * max(abs(fa), abs(fb)))


def _none_crosses(a: Place, b: Place) -> bool:
    """Whether every multiplier moves by less than half its distance from the unit circle."""
    from scipy.optimize import linear_sum_assignment  # takes a third of a second

    apart = np.abs(a.multipliers[:, None] - b.multipliers[None, :])
    one, other = linear_sum_assignment(apart)
    distance = lambda place, which: np.abs(np.abs(place.multipliers[which]) - 1)
    return bool(np.all(2 * apart[one, other] < np.minimum(distance(a, one), distance(b, other))))


# New points and special points in an interval


def _between(unfolding: Unfolding, a: Place, b: Place, share: float, accept: Array) -> Place | None:
    """The point of the curve near a `share` of the chord between two points; None where Newton's method does not find it."""
    length, rest = b.s - a.s, 1 - share
    # The cubic through both points with their tangents.
    v = rest**2 * (1 + 2 * share) * a.v + share**2 * (1 + 2 * rest) * b.v
    v += length * share * rest * (rest * a.tangent - share * b.tangent)
    found = _corrected(unfolding, jnp.asarray(v), jnp.asarray(_direction(a, b)), accept)
    middle, tangent, jacobian, tests, multipliers, converged = jax.tree.map(np.asarray, found)
    if not converged or np.linalg.norm(middle - v) > length / 2:
        return None
    tests = {kind: float(tests[kind]) for kind in KINDS}
    return Place(a.s + share * length, middle, tangent, jacobian, tests, multipliers)


def _direction(a: Place, b: Place) -> np.ndarray:
    return (a.tangent + b.tangent) / np.linalg.norm(a.tangent + b.tangent)


@long_run
def _corrected(unfolding: Unfolding, v: Array, along: Array, accept: Array):
    unfolding = unfolding.rolled()

    def bordered(u):
        residual, jacobian, _ = unfolding.evaluate(u)
        return jnp.append(residual, along @ (u - v)), jnp.concatenate([jacobian, along[None]]), jacobian

    root = newton(bordered, v, max_iterations=8, accept=accept)
    tangent = tangent_to(root.aux, along)
    return root.y, tangent, root.aux, *_witness(unfolding, root.aux, tangent), root.converged


def _located(unfolding: Unfolding, kind: str, a: Place, b: Place, accept: Array, rank: int) -> SpecialPoint | None:
    """The special point between `a` and `b`; None where it is not found, or not between them. `rank`: the number of multipliers
    that pass 1."""
    if kind == CROSSING:
        point = _crossing(unfolding, a, b, accept, max(rank, 1))
        converged = point is not None
    else:
        one, other = a.tests[kind], b.tests[kind]
        share = one / (one - other) if changes_sign(one, other) else 0.5
        mix = lambda one, other: jnp.asarray((1 - share) * one + share * other)
        start = mix(a.v, b.v), mix(a.jacobian, b.jacobian), mix(a.tangent, b.tangent)
        if kind == PAIR and not np.any(eigenvalues(unfolding.around(start[1])).imag > 0):
            return None
        point, converged = locate(unfolding, kind, *start, accept)
    if point is None or not converged:
        return None
    step = b.v - a.v
    along = _along(point, a, b)
    apart = np.asarray(point.v) - a.v - along * step
    # Rounding error, which is a larger fraction of a short interval.
    slack = 1e-6 + 1e-9 / np.linalg.norm(step)
    near = -slack <= along <= 1 + slack and np.linalg.norm(apart) < np.linalg.norm(step)
    return point if near else None


def _crossing(unfolding: Unfolding, a: Place, b: Place, accept: Array, rank: int) -> SpecialPoint | None:
    """The branch point between `a` and `b` at which dF loses `rank`; None where there is none.

    The corrector's matrix is singular there, with the corner `g = 0` of shape `(rank, rank)`: the point is interpolated from
    points around it, as a polynomial of the mean of `g` in units of its change from `a` to `b`. First derivatives are enough.
    Without its two outer points the polynomial must give the same, else the points are taken from a narrower range."""
    matrix = lambda place: np.concatenate([place.jacobian, _direction(a, b)[None]])
    left, _, right = np.linalg.svd(matrix(a) + matrix(b))
    columns, rows, ones = left[:, -rank:], right[-rank:], np.eye(len(left) + rank)[:, -rank:]
    bordered = lambda place: np.block([[matrix(place), columns], [rows, np.zeros((rank, rank))]])
    g = lambda place: np.linalg.lstsq(bordered(place), ones, rcond=None)[0][-rank:]
    unit = np.linalg.pinv(g(b) - g(a))
    value = lambda place: np.trace(unit @ g(place)) / rank
    v, share = a.v, -value(a)

    def at_zero(found: list[Place]) -> np.ndarray:
        tests = np.array([value(each) for each in found])
        factors = tests / (tests - tests[:, None] + np.eye(len(tests)))
        np.fill_diagonal(factors, 1)
        curve = np.array([[each.s, *each.v, *each.tangent] for each in found])
        return np.prod(factors, axis=1) @ curve

    best, v, tangent = np.inf, a.v, a.tangent
    for turn, width in enumerate((1, 1, 0.1, 0.01, 0.001)):
        around = [_between(unfolding, a, b, share + width * each, accept) for each in NODES]
        found = [each for each in around if each is not None]
        if len(found) < len(around):
            return None
        curve = at_zero(found)
        before, share = share, (curve[0] - a.s) / (b.s - a.s)
        apart = np.max(np.abs(curve - at_zero(found[1:-1]))[: 1 + a.v.size]) / (b.s - a.s)
        # The point lies in the middle of the range.
        if turn and apart < best and abs(share - before) < width / 4:
            best, v, tangent = apart, *np.split(curve[1:], [a.v.size])
        elif width < 1:
            break
        if best < 1e-10:
            break
    # Errors of `g`, of a tenth of the branch's tolerance for residuals, over its change.
    near = 1e-10 + 1e-4 * float(accept) * np.linalg.norm(unit)
    if best > near:
        return None
    point = branch_point(unfolding, jnp.asarray(v), jnp.asarray(tangent / np.linalg.norm(tangent)), accept, rank)
    left = a._replace(jacobian=np.asarray(point.jacobian)) if point is not None else a
    return point if abs(value(left)) < 10 * near else None


def _along(point: SpecialPoint, a: Place, b: Place) -> float:
    """Position of a point along the chord from `a`, at 0, to `b`, at 1."""
    step = b.v - a.v
    return float((np.asarray(point.v) - a.v) @ step / (step @ step))


def _turns_at(places: list[Place], k: int, crossing: SpecialPoint | None) -> bool:
    """Whether the parameter has its extremum, in the interval after the point `k`, at the branch point."""
    if crossing is None:
        return False
    a, b = places[k], places[k + 1]
    one, other = a.tests[FOLD], b.tests[FOLD]
    return bool(abs(one / (one - other) - _along(crossing, a, b)) * (b.s - a.s) < 1e-3)


def each_once(points: list[SpecialPoint]) -> list[SpecialPoint]:
    """The points without repeated orbits: the curve may run through its points a second time, perhaps with another stride as the
    first."""

    def same(a: SpecialPoint, b: SpecialPoint) -> bool:
        apart = np.max(np.abs(a.values - b.values) / np.asarray(a.unfolding.scale))
        if a.kind != b.kind or apart > 1e-7 or abs(complex(a.multiplier - b.multiplier)) > 1e-6:
            return False
        one, other = np.asarray(a.orbit.before), np.asarray(b.orbit.before)
        if one.shape != other.shape:
            return False
        size = 1e-6 * float(a.unfolding.state_scale)
        return any(np.max(np.abs(one - np.roll(other, i, axis=0))) < size for i in range(len(one)))

    kept: list[SpecialPoint] = []
    for point in points:
        if not any(same(point, each) for each in kept):
            kept.append(point)
    return kept
