r"""The search for the special points of a curve: zeros of functions along it. First derivatives of the equation are enough.

Two witnesses: test functions, which change sign, and the eigenvalues, of which so many cross a border. An interval between two
points of the curve is simple if at most one special point explains both witnesses, and no test function may turn to zero and
back within the interval. Any other interval is halved by a new point of the curve, again and again; the new points are not added
to the branch. An interval that remains unexplained is reported, see `Branch.unresolved`.

A function is zero where its sign changes between two points: the secant method takes points of the curve, which the corrector
finds, and ends at rounding. Where two curves cross, the corrector's matrix is singular, so that no point is taken there: the
zero is interpolated from points around it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .curve import Near, point_near, PseudoArclength
from .unfolding import Equation

# The most secants to a zero. And the power of the dtype's resolution that is nothing: of a function, beside its values at the
# ends of the interval; of a singular value of a scaled matrix; of a component of a unit tangent.
MOST_SECANTS, NOTHING = 60, 0.4
# The largest residual at a branch point, which is interpolated, in units of that of the other points.
MOST_RESIDUAL = 1e3
# A test function below this is zero along the branch, as for a flow that preserves volume; and at an end of the branch one below
# so much of its value at the next point.
ZERO = 1e-11
# An interval shorter than this, in scaled units, is not halved; nor is any after so many new points.
SHORTEST, MOST_NEW = 1e-6, 500
# Chebyshev's points, in units of the interval: a branch point amid them is not near one of them.
NODES = np.cos(np.pi * (np.arange(12) + 0.5) / 12) / 2


class Followed(NamedTuple):
    """A curve that was followed in so many `ways`. `witness`: test functions, by kind, and the eigenvalues that cross a border at
    special points, of the equation at `v, jacobian, tangent`."""

    equation: Equation
    ways: int
    method: PseudoArclength
    accept: Array
    witness: Callable[[Any, Array, Array, Array], tuple[dict[str, Array], Array]]


class Place(NamedTuple):
    """A point of the curve, at the distance `s` from its start, along chords."""

    s: float
    near: Near
    tests: dict[str, np.ndarray]
    values: np.ndarray


class Located(NamedTuple):
    """Special points in an interval, with their distances along the curve; whether its halves may have others; and whether some
    were not found."""

    points: list[tuple[float, Any]]
    halved: bool
    missed: bool


def search(
    curve: Followed,
    places: list[Place],
    expected: Callable[[Followed, list[Place], int], tuple[Any, bool]],
    located: Callable[[Followed, Place, Place, Any], Located],
    explains: Callable[[list[Any], Place, Place], bool | None],
) -> tuple[list[Any], tuple[tuple[float, float], ...]]:
    """The special points between the `places` of a curve, in their order along it, and the ends, as values of the last parameter,
    of the unexplained intervals. New places are added.

    **Arguments:** `expected`: of the interval after a place, what the witnesses show there, and whether it is simple. `located`:
    the special points in an interval, of what is expected. `explains`: whether special points explain how the eigenvalues change
    between two places; `None` where these cannot be counted at the second.
    """
    most = len(places) + MOST_NEW
    found, unresolved, k = [], [], 0
    counted, since = places[0], []  # the last place at which the eigenvalues can be counted, and what lies after it
    unit = lambda place: float(curve.equation.origin[-1] + curve.equation.scale[-1] * place.near.v[-1])
    while k < len(places) - 1:
        a, b = places[k], places[k + 1]
        wanted, simple = expected(curve, places, k)
        may_halve = b.s - a.s > SHORTEST and len(places) < most
        middle = None if simple or not may_halve else between(curve, a, b, 0.5)
        here = located(curve, a, b, wanted) if middle is None else None
        if simple and may_halve and here and here.halved:
            middle = between(curve, a, b, 0.5)
        if middle is not None:
            places.insert(k + 1, middle)
            continue
        assert here is not None
        own = [point for _, point in sorted(here.points, key=lambda each: each[0])]
        found, since = found + own, since + own
        if here.missed:
            unresolved.append((unit(a), unit(b)))
        if (explained := explains(since, counted, b)) is not None:
            if not explained:
                unresolved.append((unit(counted), unit(b)))
            counted, since = b, []
        k += 1
    return found, tuple(dict.fromkeys(unresolved))


def may_turn(
    places: list[Place], k: int, value: Callable[[Place], float], least: float = 0.0, zero: float = ZERO
) -> bool:
    """Whether a value, such as a test function, of one sign at both ends of an interval may be zero in between, or below the
    share `least` of its larger end: by the parabolas through both ends and a third point, whose difference estimates the error
    of each. Below `zero` at both ends it is zero all along."""
    a, b = places[k], places[k + 1]
    others = [places[i] for i in (k - 1, k + 2, k - 2, k + 3) if 0 <= i < len(places)][:2]
    fa, fb, *rest = map(value, (a, b, *others))
    if len(rest) < 2 or max(abs(fa), abs(fb)) <= zero or not np.all(np.isfinite([fa, fb, *rest])):
        return False
    s = np.linspace(a.s, b.s, 33)
    chord = fa + (fb - fa) * (s - a.s) / (b.s - a.s)

    def parabola(c: Place, fc: float) -> np.ndarray:
        at = fa + (fb - fa) * (c.s - a.s) / (b.s - a.s)
        return chord + (fc - at) * (s - a.s) * (s - b.s) / ((c.s - a.s) * (c.s - b.s))

    one, other = (np.sign(fa + fb) * parabola(c, fc) for c, fc in zip(others, rest, strict=True))
    lowest = np.min((np.minimum(one, other) - np.abs(one - other))[1:-1])
    return bool(lowest < least * max(abs(fa), abs(fb)))


def nothing(place: Place) -> float:
    """What is zero up to errors of a place."""
    return float(np.finfo(place.near.v.dtype).eps) ** NOTHING


def places_of(curve: Followed, points: dict[str, Any]) -> list[Place]:
    """The `points` of a branch as places."""
    v = points["v"]
    s = np.append(0, np.cumsum(np.linalg.norm(np.diff(v, axis=0), axis=1)))
    columns = *(points[name] for name in ("v", "tangent", "jacobian", "residuals", "aux")), np.ones(len(v), bool)
    row = lambda k: Near(*jax.tree.map(lambda column: column[k], columns))
    return [_place(curve, float(s[k]), row(k)) for k in range(len(v))]


def _place(curve: Followed, s: float, near: Near) -> Place:
    found = curve.witness(curve.equation, *map(jnp.asarray, (near.v, near.jacobian, near.tangent)))
    return Place(s, near, *jax.tree.map(np.asarray, found))


def place_near(curve: Followed, s: float, v: Array | np.ndarray, along: Array | np.ndarray) -> Place | None:
    """The point of the curve on the plane through `v` at right angles to `along`; None where Newton's method does not find it."""
    v, along = jnp.asarray(v), jnp.asarray(along)
    near = point_near(curve.equation, v, along, along, curve.ways, curve.method, curve.accept)
    return _place(curve, s, near) if near.found else None


def between(curve: Followed, a: Place, b: Place, share: float) -> Place | None:
    """The point of the curve near a `share` of the chord between two points; None where there is none so near."""
    length, rest, one, other = b.s - a.s, 1 - share, a.near, b.near
    # The cubic through both points with their tangents.
    v = rest**2 * (1 + 2 * share) * one.v + share**2 * (1 + 2 * rest) * other.v
    v += length * share * rest * (rest * one.tangent - share * other.tangent)
    v, along = (np.asarray(each, one.v.dtype) for each in (v, _direction(a, b)))
    place = place_near(curve, a.s + share * length, v, along)
    return place if place and np.linalg.norm(place.near.v - v) <= length / 2 else None


def _direction(a: Place, b: Place) -> np.ndarray:
    along = np.asarray(a.near.tangent) + b.near.tangent
    return along / np.linalg.norm(along)


def zero_between(curve: Followed, a: Place, b: Place, value: Callable[[Place], float]) -> Place | None:
    """The point of the curve at which a function of opposite signs at `a` and `b` is zero, by secants in an interval that holds
    it: where an end stays, its value counts half (the Illinois method). Without opposite signs, the point next to an end where it
    is zero up to rounding."""
    fa, fb, stayed = value(a), value(b), ""
    largest, best = max(abs(fa), abs(fb)), min((a, b), key=lambda place: abs(value(place)))
    close = 4 * float(np.finfo(a.near.v.dtype).eps)
    if (fa >= 0) == (fb >= 0) and fa != fb:
        found = between(curve, a, b, fa / (fa - fb))
        best = found if found and abs(value(found)) < abs(value(best)) else best
    for _ in range(MOST_SECANTS):
        share = fa / (fa - fb) if (fa >= 0) != (fb >= 0) else 0.0
        if not close < share * (b.s - a.s) < b.s - a.s - close:
            break
        if (middle := between(curve, a, b, share)) is None:
            # No point is found in an interval of the length of rounding, whose better end is the zero.
            if b.s - a.s > 256 * close:
                return None
            break
        f = value(middle)
        best = min(best, middle, key=lambda place: abs(value(place)))
        if (f >= 0) == (fa >= 0):
            a, fa, fb, stayed = middle, f, fb / 2 if stayed == "b" else fb, "b"
        else:
            b, fb, fa, stayed = middle, f, fa / 2 if stayed == "a" else fa, "a"
    return best if abs(value(best)) < nothing(best) * largest else None


def interpolated_zero(
    curve: Followed, a: Place, b: Place, value: Callable[[Place], float], sure: float
) -> Place | None:
    """The point between `a` and `b` at which a function that changes by 1 between them is zero, interpolated from points around
    it, as a polynomial of the function; None where there is none.

    Without its two outer points the polynomial must give the same, else the points are taken from a narrower range. `sure`: the
    largest difference."""
    distinct = lambda values: np.all(np.isfinite(values)) and len({*values}) == len(values)
    length, share, best, at = b.s - a.s, -value(a), np.inf, a

    def at_zero(found: list[Place]) -> Place:
        tests = np.array([value(each) for each in found])
        factors = tests / (tests - tests[:, None] + np.eye(len(tests)))
        np.fill_diagonal(factors, 1)
        weights = np.prod(factors, axis=1)
        smooth = lambda first: np.issubdtype(np.asarray(first).dtype, np.inexact)
        mean = lambda *each: (
            np.tensordot(weights, each, 1).astype(np.result_type(each[0])) if smooth(each[0]) else each[0]
        )
        return jax.tree.map(mean, *found)

    for turn, width in enumerate((1, 1, 0.1, 0.01, 0.001)):
        around = [between(curve, a, b, share + width * each) for each in NODES]
        found = [each for each in around if each is not None]
        # Where two zeros are near each other, the function is the same at several points.
        if len(found) < len(around) or not distinct([value(each) for each in found]):
            return None
        place, other = at_zero(found), at_zero(found[1:-1])
        before, share = share, (place.s - a.s) / length
        apart = max(abs(place.s - other.s), np.max(np.abs(place.near.v - other.near.v))) / length
        # The point lies in the middle of the range.
        if turn and apart < best and abs(share - before) < width / 4:
            best, at = apart, place
        elif width < 1:
            break
        if best < 1e-10:
            break
    # Rounding is a larger fraction of a short interval.
    slack = 1e-6 + 1e-9 / length
    if not (best <= sure and -slack <= share <= 1 + slack):
        return None
    tangent = at.near.tangent / np.linalg.norm(at.near.tangent)
    return _place(curve, float(at.s), at.near._replace(tangent=tangent))


def crossing_between(curve: Followed, a: Place, b: Place, rank: int) -> Place | None:
    """The point between `a` and `b` at which the Jacobian loses `rank`; None where there is none.

    The corrector's matrix is singular there, with the corner `g = 0` of shape `(rank, rank)`: the point is interpolated by the
    mean of `g` in units of its change from `a` to `b`."""
    matrix = lambda near: np.concatenate([near.jacobian, _direction(a, b)[None]])
    left, _, right = np.linalg.svd(matrix(a.near) + matrix(b.near))
    columns, rows, ones = left[:, -rank:], right[-rank:], np.eye(len(left) + rank)[:, -rank:]
    bordered = lambda near: np.block([[matrix(near), columns], [rows, np.zeros((rank, rank))]])
    g = lambda near: np.linalg.lstsq(bordered(near), ones, rcond=None)[0][-rank:]
    unit = np.linalg.pinv(g(b.near) - g(a.near))
    value = lambda place: np.trace(unit @ g(place.near)) / rank
    # Errors of `g` over its change, of the branch's tolerance for residuals.
    sure = 1e-10 + 1e-4 * float(curve.accept) * float(np.linalg.norm(unit))
    if (at := interpolated_zero(curve, a, b, value, sure)) is None:
        return None
    # Interpolated residuals cancel: the equation itself is evaluated. Newton's step would be one of a singular matrix.
    v, along = jnp.asarray(at.near.v, a.near.v.dtype), jnp.asarray(at.near.tangent, a.near.v.dtype)
    accept = jnp.minimum(MOST_RESIDUAL * curve.accept, nothing(at)).astype(v.dtype)
    near = point_near(curve.equation, v, along, along, curve.ways, curve.method, accept, corrected=False)
    place = _place(curve, at.s, near._replace(tangent=np.asarray(along)))
    return place if near.found and abs(value(place)) < 1e3 * sure else None
