r"""The search for the special points of a branch, from the points of the branch.

Two witnesses: the test functions, which change sign, and the number of multipliers outside the unit circle, which changes by 1 at
a fold, a period doubling or a branch point and by 2 at a Neimark-Sacker point. (At a neutral saddle, two real multipliers with
the product 1, the Neimark-Sacker test function changes sign and the number does not change.) An interval between two points is
simple if at most one special point explains both witnesses, and no test function may turn to zero and back within the interval.
Any other interval is halved by a new point of the curve, again and again; the new points are not added to the branch. An interval
that remains unexplained is reported, see `Branch.unresolved`.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics.eager import long_run
from .._orbit.multipliers import eigenvalues
from .._system.results import RESULTS
from .location import between, crossing_between, Followed, nothing, Place, places_of, zero_between
from .special_points import KINDS, point_on, SpecialPoint, test_functions
from .unfolding import Unfolding

FOLD, FLIP, PAIR, CROSSING = KINDS
# A multiplier this near to the unit circle may be on either side of it: rounding in a product of many strides.
ON_CIRCLE = 1e-7
# A test function below this is zero along the branch, as for a flow that preserves volume.
ZERO = 1e-11
# An interval shorter than this, in scaled units, is not halved; nor is any after so many new points.
SHORTEST, MOST_NEW = 1e-6, 500


def search(curve: Followed, points: dict[str, Any]) -> tuple[list[SpecialPoint], list[tuple[float, float]]]:
    """The special points between the `points` of a branch, in their order along the curve; and the ends, in scaled units of the
    parameter, of the unexplained intervals."""
    places = places_of(curve, points)
    most = len(places) + MOST_NEW
    found, unresolved, k = [], [], 0
    counted, since = places[0], []  # the last point at which the multipliers can be counted, and what lies after it

    def halfway(a: Place, b: Place) -> Place | None:
        return between(curve, a, b, 0.5) if b.s - a.s > SHORTEST and len(places) < most else None

    while k < len(places) - 1:
        a, b = places[k], places[k + 1]
        kinds, simple, rank = *_expected(places, k), _rank(a, b)
        if rank > 1:
            # A doubling within the interval is another point; a pair may cross the circle at the same one.
            alone = FLIP not in kinds and not _turns(places, k, FLIP)
            kinds, simple = ([CROSSING], True) if alone else ([*{*kinds, CROSSING}], False)
        elif not {*kinds} - {PAIR} and 0 in _change(a, b) and _turns(places, k, CROSSING, 1e-3):
            # Two multipliers may pass 1 at one point in opposite directions.
            both = not _turns(places, k, FLIP) and _located(curve, a, b, [CROSSING], 2)[CROSSING] is not None
            kinds, simple, rank = ([CROSSING], True, 2) if both else (kinds, False, rank)
        elif 0 in _change(a, b) and _turns(places, k, FLIP, 1e-3):
            simple = False  # as may two pass -1
        middle = None if simple else halfway(a, b)
        if middle is None:
            located = _located(curve, a, b, kinds, rank)
            if simple and (None in located.values() or {FOLD, CROSSING} <= located.keys()):
                middle = halfway(a, b)
        if middle is not None:
            places.insert(k + 1, middle)
            continue
        here = [point for _, point in sorted((each for each in located.values() if each), key=lambda each: each[0])]
        found += here
        since += here
        if any(each is None for kind, each in located.items() if kind != PAIR):
            unresolved.append((float(a.near.v[-1]), float(b.near.v[-1])))
        if _can_count(b):
            if _can_count(counted) and not _explains(since, _change(counted, b)):
                unresolved.append((float(counted.near.v[-1]), float(b.near.v[-1])))
            counted, since = b, []
        k += 1
    return each_once(found), unresolved


# Witnesses


@long_run
def witness(unfolding: Unfolding, v: Array, jacobian: Array, tangent: Array) -> tuple[dict[str, Array], Array]:
    """The test functions and the multipliers at a point of a branch."""
    multipliers = eigenvalues(unfolding.around(jacobian))
    return test_functions(unfolding, jacobian, tangent, multipliers), multipliers


def _change(a: Place, b: Place) -> set[int]:
    """By how much the number of multipliers outside the unit circle may change from `a` to `b`."""
    outside = lambda place, margin: int(np.sum(np.abs(place.values) > 1 + margin))
    low = outside(b, ON_CIRCLE) - outside(a, -ON_CIRCLE)
    high = outside(b, -ON_CIRCLE) - outside(a, ON_CIRCLE)
    return set(range(low, high + 1))


def _rank(a: Place, b: Place) -> int:
    """How many real multipliers pass 1 between two points, the same way: by symmetry they may at one point."""
    real = [np.real(each.values)[np.abs(np.imag(each.values)) < ON_CIRCLE] - 1 for each in (a, b)]
    above = [int(np.sum(each > 0)) for each in real]
    # Where two of them merge into a pair, none need pass 1.
    known = len(real[0]) == len(real[1]) and np.min(np.abs(np.concatenate(real)), initial=1) > ON_CIRCLE
    return abs(above[1] - above[0]) if known else 0


def _can_count(place: Place) -> bool:
    """Whether every multiplier is known to be inside or outside the unit circle."""
    return bool(np.all(np.abs(np.abs(place.values) - 1) > ON_CIRCLE))


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
        if abs(_beyond_circle(end)) < ZERO and ON_CIRCLE < abs(_beyond_circle(other)) < np.inf and not flips:
            return [PAIR], True
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
    return [], PAIR not in flips or (_none_crosses(a, b) and not may_turn(places, k, _beyond_circle))


def changes_sign(a: float | np.ndarray, b: float | np.ndarray) -> bool:
    """Whether a test function changes its sign between two points."""
    return bool((a >= 0) != (b >= 0) and max(abs(a), abs(b)) > ZERO)


def _turns(places: list[Place], k: int, kind: str, least: float = 0.0) -> bool:
    return may_turn(places, k, lambda place: float(place.tests[kind]), least)


def _beyond_circle(place: Place) -> float:
    """How far the complex multiplier next to the unit circle lies outside; infinite where there is none."""
    return float(min(_distances(place), key=abs))


def _distances(place: Place) -> np.ndarray:
    return np.where(np.imag(place.values) > 0, np.abs(place.values) - 1, np.inf)


def may_turn(places: list[Place], k: int, value: Callable[[Place], float], least: float = 0.0) -> bool:
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

    apart = np.abs(a.values[:, None] - b.values[None, :])
    one, other = linear_sum_assignment(apart)
    distance = lambda place, which: np.abs(np.abs(place.values[which]) - 1)
    return bool(np.all(2 * apart[one, other] < np.minimum(distance(a, one), distance(b, other))))


# New points and special points in an interval


# A special point and its distance along the curve; None in place of one that is not found.
Located = tuple[float, SpecialPoint] | None


def _located(curve: Followed, a: Place, b: Place, kinds: list[str], rank: int) -> dict[str, Located]:
    """The special points between `a` and `b`, by their kinds. `rank`: the number of multipliers that pass 1."""
    found: dict[str, Located] = {}
    if CROSSING in kinds and (place := crossing_between(curve, a, b, max(rank, 1))):
        found[CROSSING] = crossing = _point(curve, CROSSING, place, rank)
        if crossing and abs(crossing[1].tangent[-1]) < nothing(place):
            # Where two branches cross, the parameter of one of them may have an extremum: no fold.
            kinds = [kind for kind in kinds if kind != FOLD]
        if crossing and PAIR not in kinds and not _explains([crossing[1]], _change(a, b)):
            # A pair may meet the circle at the same point.
            found[PAIR] = _point(curve, PAIR, place, rank)
    for kind in (kind for kind in kinds if kind not in found):
        value = _beyond_circle if kind == PAIR else lambda place, kind=kind: float(place.tests[kind])
        place = None if kind == CROSSING else zero_between(curve, a, b, value)
        found[kind] = place and _point(curve, kind, place, rank)
    return found


def _point(curve: Followed, kind: str, place: Place, rank: int) -> Located:
    """The special point at a place; None where its orbit or multiplier is none, or dF has not lost the `rank`."""
    critical = {PAIR: place.values[np.argmin(np.abs(_distances(place)))], FLIP: -1.0}.get(kind, 1.0)
    dtype = np.result_type(place.near.v, np.complex64) if kind == PAIR else place.near.v.dtype
    near, multiplier = jax.tree.map(jnp.asarray, place.near), jnp.asarray(critical / np.abs(critical), dtype)
    point = dataclasses.replace(point_on(curve.equation, near, multiplier), kind=kind)  # pyright: ignore
    # The equation's residual is within the tolerance of its place; the rest is a singular value. Of a family, dF may lose rank
    # where no multiplier passes 1.
    if point.orbit.result != RESULTS.successful or not point.residual < nothing(place):
        return None
    if kind == CROSSING:
        _, sizes, rows = np.linalg.svd(place.near.jacobian)
        lost = int(np.sum(sizes < nothing(place)))
        if lost < rank:
            return None
        point = dataclasses.replace(point, kernel=jnp.asarray(rows[-1 - lost :]))
    return place.s, point


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
