r"""The search for the special points of a branch of periodic orbits; see `location.py`.

The number of multipliers outside the unit circle changes by 1 at a fold, a period doubling or a branch point and by 2 at a
Neimark-Sacker point. (At a neutral saddle, two real multipliers with the product 1, the Neimark-Sacker test function changes sign
and the number does not change.)
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._numerics.eager import long_run
from .._numerics.eigenvalues import eigenvalues
from .._system.results import RESULTS
from .location import crossing_between, Followed, Located, may_turn, nothing, Place, SHORTEST, ZERO, zero_between
from .special_points import KINDS, point_on, SpecialPoint, test_functions
from .unfolding import Unfolding

FOLD, FLIP, PAIR, CROSSING = KINDS
# A multiplier this near to the unit circle may be on either side of it: rounding in a product of many strides.
ON_CIRCLE = 1e-7


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


def _rank(a: Place, b: Place, at: float = 1.0) -> int:
    """How many real multipliers pass 1, or -1, between two points, the same way: by symmetry they may at one point."""
    real = [at * np.real(each.values)[np.abs(np.imag(each.values)) < ON_CIRCLE] - 1 for each in (a, b)]
    above = [int(np.sum(each > 0)) for each in real]
    # Where two of them merge into a pair, none need pass 1.
    known = len(real[0]) == len(real[1]) and np.min(np.abs(np.concatenate(real)), initial=1) > ON_CIRCLE
    return abs(above[1] - above[0]) if known else 0


def explains(points: list[SpecialPoint], a: Place, b: Place) -> bool | None:
    """Whether special points, in any directions, may change the number of multipliers outside the unit circle as it changes from
    `a` to `b`; `None` where a multiplier at `b` may be on either side of it."""
    a_known, b_known = (bool(np.all(np.abs(np.abs(place.values) - 1) > ON_CIRCLE)) for place in (a, b))
    return (not a_known or _add_up(points, _change(a, b))) if b_known else None


def _add_up(points: list[SpecialPoint], change: set[int]) -> bool:
    """Whether special points, in any directions, add up to a possible change."""
    # At a branch point that is an extremum of the parameter the multiplier 1 turns back.
    crosses = lambda point: range(1 - len(point.kernel), len(point.kernel))
    passes = lambda point: range(-len(point.kernel), len(point.kernel) + 1, 2)
    pairs = lambda point: range(-2 * _pairs_at(point), 2 * _pairs_at(point) + 1, 4)
    steps = [
        crosses(point) if point.kind == CROSSING else pairs(point) if point.kind == PAIR else passes(point)
        for point in points
    ]
    return bool(change & {sum(each) for each in itertools.product(*steps)})


def _pairs_at(point: SpecialPoint) -> int:
    """The number of pairs of multipliers that cross the unit circle at a point, several by symmetry."""
    values = np.asarray(point.orbit.multipliers)
    return max(1, int(np.sum((np.imag(values) > 0) & (np.abs(np.abs(values) - 1) < ON_CIRCLE))))


def expected(curve: Followed, places: list[Place], k: int) -> tuple[tuple[list[str], int], bool]:
    """The kinds of special points that the witnesses show in the interval after the point `k`, and the number of multipliers that
    pass 1; and whether it is simple."""
    a, b = places[k], places[k + 1]
    kinds, simple, rank = *_kinds_within(places, k), _rank(a, b)
    if rank > 1:
        # A doubling within the interval is another point; a pair may cross the circle at the same one.
        alone = FLIP not in kinds and not _turns(places, k, FLIP)
        return ([CROSSING] if alone else [*{*kinds, CROSSING}], rank), alone
    if not {*kinds} - {PAIR} and 0 in _change(a, b) and _turns(places, k, CROSSING, 1e-3):
        # Two multipliers may pass 1 at one point in opposite directions.
        within = [] if _turns(places, k, FLIP) else located(curve, a, b, ([CROSSING], 2)).points
        # Without its double zero there, the test function has none, unless others do so in the interval too.
        rest = lambda place: float(place.tests[CROSSING]) / (place.s - within[0][0]) ** 2
        short = b.s - a.s <= SHORTEST
        both = bool(within) and (short or not may_turn(places, k, rest, 1e-3))
        return (([CROSSING], 2), True) if both else ((kinds, rank), False)
    if kinds == [PAIR] and not simple and min(map(abs, _change(a, b)), default=0) > 2:
        # Two pairs may cross the circle at one point.
        within = [point for _, point in located(curve, a, b, ([PAIR], rank)).points]
        return (kinds, rank), bool(within) and _add_up(within, _change(a, b))
    if (flips := _rank(a, b, -1.0)) > 1 and kinds in ([], [PAIR]) and located(curve, a, b, ([FLIP], flips)).points:
        return ([FLIP], flips), True
    # So may two pass -1.
    value = lambda place: float(place.tests[FLIP])
    somewhere = max(abs(value(places[i])) for i in (0, len(places) // 2, -1)) > ZERO
    touches = somewhere and 0 in _change(a, b) and may_turn(places, k, value, 1e-3, zero=1e-3 * ZERO)
    if touches and not kinds and b.s - a.s <= SHORTEST:
        # There is no sign change by which to locate them.
        return ([FLIP], 2), False
    return (kinds, rank), simple and not touches


def _kinds_within(places: list[Place], k: int) -> tuple[list[str], bool]:
    """The kinds of special points in the interval after the point `k`, if no two multipliers pass 1 together; and whether it is
    simple."""
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
    # A pair that crosses the circle is two multipliers: otherwise its test function is zero at a neutral saddle.
    saddle = lambda: _most_that_cross(a, b) <= bool(signs) and not may_turn(places, k, _beyond_circle)
    if signs:
        understood = (signs == {FOLD, CROSSING} and 0 in change) or (len(signs) == 1 and bool(change & {-1, 1}))
        return [kind for kind in KINDS if kind in signs], understood and (PAIR not in flips or saddle())
    if 0 not in change:
        return [PAIR], bool(change & {-2, 2})
    if change != {0} and PAIR in flips:
        return [PAIR], True
    return [], PAIR not in flips or saddle()


def changes_sign(a: float | np.ndarray, b: float | np.ndarray) -> bool:
    """Whether a test function changes its sign between two points."""
    return bool((a >= 0) != (b >= 0) and max(abs(a), abs(b)) > ZERO)


def _turns(places: list[Place], k: int, kind: str, least: float = 0.0) -> bool:
    return may_turn(places, k, lambda place: float(place.tests[kind]), least)


def _beyond_circle(place: Place) -> float:
    """How far the complex multiplier next to the unit circle lies outside; infinite where there is none."""
    return float(min(_distances(place), key=abs))


def _beyond_minus_one(place: Place, rank: int) -> float:
    """The sum of the distances of the multipliers next to -1, so many, to it: positive within the circle."""
    apart = place.values + 1
    return float(np.sum(apart[np.argsort(np.abs(apart))[:rank]]).real)


def _distances(place: Place) -> np.ndarray:
    return np.where(np.imag(place.values) > 0, np.abs(place.values) - 1, np.inf)


def _most_that_cross(a: Place, b: Place) -> int:
    """How many multipliers may cross the unit circle between two points: those that move by more than half their distance from
    it."""
    from scipy.optimize import linear_sum_assignment  # takes a third of a second

    apart = np.abs(a.values[:, None] - b.values[None, :])
    one, other = linear_sum_assignment(apart)
    distance = lambda place, which: np.abs(np.abs(place.values[which]) - 1)
    return int(np.sum(2 * apart[one, other] >= np.minimum(distance(a, one), distance(b, other))))


def located(curve: Followed, a: Place, b: Place, wanted: tuple[list[str], int]) -> Located:
    """The special points between `a` and `b`. `wanted`: their kinds, and the number of multipliers that pass 1."""
    kinds, rank = wanted
    found: dict[str, tuple[float, SpecialPoint] | None] = {}
    if CROSSING in kinds and (place := crossing_between(curve, a, b, max(rank, 1))):
        found[CROSSING] = crossing = _point(curve, CROSSING, place, rank)
        if crossing and abs(crossing[1].tangent[-1]) < nothing(place):
            # Where two branches cross, the parameter of one of them may have an extremum: no fold.
            kinds = [kind for kind in kinds if kind != FOLD]
        if crossing and PAIR not in kinds and not _add_up([crossing[1]], _change(a, b)):
            # A pair may meet the circle at the same point.
            found[PAIR] = _point(curve, PAIR, place, rank)
    for kind in (kind for kind in kinds if kind not in found):
        value = _beyond_circle if kind == PAIR else lambda place, kind=kind: float(place.tests[kind])
        if kinds == [FLIP] and rank > 1:
            value = lambda place: _beyond_minus_one(place, rank)
        place = None if kind == CROSSING else zero_between(curve, a, b, value)
        found[kind] = place and _point(curve, kind, place, rank)
        if kind in (FOLD, FLIP) and PAIR not in (*kinds, *found):
            # So it may at a fold or a doubling.
            ends = sorted(map(_beyond_circle, (a, b)))
            crosses = ends[0] < 0 < ends[1] < np.inf and ends[1] - ends[0] > ON_CIRCLE
            pair = zero_between(curve, a, b, _beyond_circle) if crosses else None
            found |= {PAIR: point} if pair and (point := _point(curve, PAIR, pair, rank)) else {}
    missed = [kind for kind, each in found.items() if each is None]
    halved = bool(missed) or {FOLD, CROSSING} <= found.keys()
    return Located([each for each in found.values() if each], halved, missed not in ([], [PAIR]))


def _point(curve: Followed, kind: str, place: Place, rank: int) -> tuple[float, SpecialPoint] | None:
    """The special point at a place; None where its orbit or multiplier is none, or dF has not lost the `rank`."""
    if kind == PAIR and not np.isfinite(_beyond_circle(place)):
        return None
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
    elif kind == FLIP and rank > 1:
        _, sizes, rows = np.linalg.svd(np.asarray(curve.equation.shifted(near.jacobian, -1.0)))
        if np.sum(sizes < nothing(place)) < rank:
            return None
        point = dataclasses.replace(point, kernel=jnp.asarray(np.pad(rows[-rank:], [(0, 0), (0, 1)])))
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
