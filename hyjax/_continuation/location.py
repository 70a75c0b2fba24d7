r"""Zeros of functions along a curve, where special points lie. First derivatives of the equation are enough.

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


def between(curve: Followed, a: Place, b: Place, share: float) -> Place | None:
    """The point of the curve near a `share` of the chord between two points; None where Newton's method does not find it."""
    length, rest, one, other = b.s - a.s, 1 - share, a.near, b.near
    # The cubic through both points with their tangents.
    v = rest**2 * (1 + 2 * share) * one.v + share**2 * (1 + 2 * rest) * other.v
    v += length * share * rest * (rest * one.tangent - share * other.tangent)
    v, along = (jnp.asarray(each, one.v.dtype) for each in (v, _direction(a, b)))
    near = point_near(curve.equation, v, along, along, curve.ways, curve.method, curve.accept)
    apart = np.linalg.norm(np.asarray(near.v) - v)
    return _place(curve, a.s + share * length, near) if near.found and apart <= length / 2 else None


def _direction(a: Place, b: Place) -> np.ndarray:
    along = np.asarray(a.near.tangent) + b.near.tangent
    return along / np.linalg.norm(along)


def zero_between(curve: Followed, a: Place, b: Place, value: Callable[[Place], float]) -> Place | None:
    """The point of the curve at which a function of opposite signs at `a` and `b` is zero, by secants in an interval that holds
    it: where an end stays, its value counts half (the Illinois method). Without opposite signs, an end where it is zero."""
    fa, fb, stayed = value(a), value(b), ""
    largest, best = max(abs(fa), abs(fb)), min((a, b), key=lambda place: abs(value(place)))
    close = 4 * float(np.finfo(a.near.v.dtype).eps)
    for _ in range(MOST_SECANTS):
        share = fa / (fa - fb) if (fa >= 0) != (fb >= 0) else 0.0
        if not close < share * (b.s - a.s) < b.s - a.s - close:
            break
        if (middle := between(curve, a, b, share)) is None:
            return None
        f = value(middle)
        best = min(best, middle, key=lambda place: abs(value(place)))
        if (f >= 0) == (fa >= 0):
            a, fa, fb, stayed = middle, f, fb / 2 if stayed == "b" else fb, "b"
        else:
            b, fb, fa, stayed = middle, f, fa / 2 if stayed == "a" else fa, "a"
    return best if abs(value(best)) < nothing(best) * largest else None


def crossing_between(curve: Followed, a: Place, b: Place, rank: int) -> Place | None:
    """The point between `a` and `b` at which the Jacobian loses `rank`; None where there is none.

    The corrector's matrix is singular there, with the corner `g = 0` of shape `(rank, rank)`: the point is interpolated from
    points around it, as a polynomial of the mean of `g` in units of its change from `a` to `b`. Without its two outer points the
    polynomial must give the same, else the points are taken from a narrower range."""
    matrix = lambda near: np.concatenate([near.jacobian, _direction(a, b)[None]])
    left, _, right = np.linalg.svd(matrix(a.near) + matrix(b.near))
    columns, rows, ones = left[:, -rank:], right[-rank:], np.eye(len(left) + rank)[:, -rank:]
    bordered = lambda near: np.block([[matrix(near), columns], [rows, np.zeros((rank, rank))]])
    g = lambda near: np.linalg.lstsq(bordered(near), ones, rcond=None)[0][-rank:]
    unit = np.linalg.pinv(g(b.near) - g(a.near))
    value = lambda near: np.trace(unit @ g(near)) / rank
    distinct = lambda values: np.all(np.isfinite(values)) and len({*values}) == len(values)
    length, share, best, at = b.s - a.s, -value(a.near), np.inf, a

    def at_zero(found: list[Place]) -> Place:
        tests = np.array([value(each.near) for each in found])
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
        # Where two crossings are near each other, `g` is the same at several points.
        if len(found) < len(around) or not distinct([value(each.near) for each in found]):
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
    # Errors of `g` over its change, of the branch's tolerance for residuals; and rounding, which is a larger fraction of a short
    # interval.
    sure, slack = 1e-10 + 1e-4 * float(curve.accept) * np.linalg.norm(unit), 1e-6 + 1e-9 / length
    if not (best <= sure and -slack <= share <= 1 + slack):
        return None
    # Interpolated residuals cancel: the equation itself is evaluated. Newton's step would be one of a singular matrix.
    v, along = (
        jnp.asarray(each, a.near.v.dtype) for each in (at.near.v, at.near.tangent / np.linalg.norm(at.near.tangent))
    )
    accept = jnp.minimum(MOST_RESIDUAL * curve.accept, nothing(at)).astype(v.dtype)
    near = point_near(curve.equation, v, along, along, curve.ways, curve.method, accept, corrected=False)
    near = near._replace(tangent=np.asarray(along))
    return _place(curve, float(at.s), near) if near.found and abs(value(near)) < 1e3 * sure else None
