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

Source: Kuznetsov (2004), *Elements of Applied Bifurcation Theory*, ch. 9 and Sec. 10.3; Kuznetsov, Meijer (2019), *Numerical
Bifurcation Analysis of Maps*, ch. 3; Govaerts (2000), ch. 3, 4, for the bordered and the compound matrix.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from .._numerics.eager import long_run
from .._numerics.elimination import solve
from .._numerics.linearize import with_columns
from .._numerics.newton import newton, Root
from .._orbit.multipliers import eigenvalues
from .._orbit.orbit import PeriodicOrbit
from .._system.types import Scalar
from .curve import tangent_to
from .detection import changes_sign, ZERO
from .grazing import grazing_equation, Touch
from .normal_form import expansion, FORMS
from .special_points import grazing_point, locate_grazing, missing, point_at, SpecialPoint
from .unfolding import Unfolding

PAIR = "neimark-sacker"
SHIFTS = {"fold": 1.0, "period-doubling": -1.0}
# The sums of the pair of multipliers at the strong resonances.
RESONANCES = {"resonance-1:1": 2.0, "resonance-1:2": -2.0, "resonance-1:3": -1.0, "resonance-1:4": 0.0}
# Of multipliers, zero where one is 1, one is -1, or two have the product 1; multipliers that are zero change nothing.
CROSSINGS = {
    "fold": lambda values: np.prod(1 - values).real,
    "period-doubling": lambda values: np.prod(1 + values).real,
    PAIR: lambda values: np.prod([1 - a * b for a, b in itertools.combinations(values, 2)]).real,
}
# The tangent at a cusp has no component along the parameters above this.
STILL = 1e-5


def locus_equation(unfolding: Unfolding, touch: Touch | None, kind: str) -> Callable:
    """The function `v -> (H, strides)` of a locus."""

    def of_touch(v: Array):
        assert touch is not None
        residual, (strides, _) = grazing_equation(unfolding, touch, v)
        return residual, strides

    def of_multiplier(v: Array):
        residual, dF, strides = unfolding.evaluate(v)
        matrix = unfolding.shifted(dF, SHIFTS[kind]) if kind in SHIFTS else _of_pair(unfolding.around(dF))
        return jnp.append(residual, _corner(matrix)), strides

    return of_multiplier if touch is None else of_touch


def _corner(matrix: Float[Array, "n n"]) -> Scalar:
    """`g` of the matrix bordered by its singular vectors of the smallest singular value."""
    left, _, right = jnp.linalg.svd(stop_gradient(matrix))
    whole = jnp.block([[matrix, left[:, -1:]], [right[-1:], jnp.zeros((1, 1), matrix.dtype)]])
    return solve(whole, jnp.zeros(len(whole), matrix.dtype).at[-1].set(1))[-1]


def _of_pair(matrix: Float[Array, "n n"]) -> Float[Array, "pairs pairs"]:
    """The second compound matrix less the identity, singular where two eigenvalues have the product 1."""
    i, j = np.triu_indices(len(matrix), 1)
    return matrix[i][:, i] * matrix[j][:, j] - matrix[i][:, j] * matrix[j][:, i] - jnp.eye(i.size, dtype=matrix.dtype)


class Place(NamedTuple):
    """A point of a locus."""

    v: np.ndarray
    tangent: np.ndarray
    jacobian: np.ndarray  # dF
    multipliers: np.ndarray


def search(
    unfolding: Unfolding, touch: Touch | None, kind: str, points: dict[str, np.ndarray], accept: Array
) -> tuple[SpecialPoint, ...]:
    """The points of codimension two between the `points` of a locus, in their order along it."""
    columns = points["v"], points["tangent"], points["jacobian"][:, :-1], points["multipliers"]
    places = list(itertools.starmap(Place, zip(*columns, strict=True)))
    if touch is not None:
        # With the multipliers of the side that misses the guard.
        _, (_, (_, x, image, _)) = _grazing_of(unfolding, touch, jnp.asarray(places[0].v))
        touch = missing(touch, x, image)
        moved = lambda each: _corrected(unfolding, touch, kind, jnp.asarray(each.v), jnp.asarray(each.tangent), accept)
        places = [Place(*map(np.asarray, moved(each)[0])) for each in places]
    cubics: dict[bytes, float] = {}

    def cubic(place: Place) -> float:
        key = place.v.tobytes()
        if key not in cubics:
            cubics[key] = _cubic(unfolding, kind, place)
        return cubics[key]

    found = []
    for a, b in itertools.pairwise(places):
        here = {}
        for name, test in _tests(kind, a, b, cubic).items():
            if changes_sign(test(a), test(b)):
                share, point = _located(unfolding, touch, kind, name, test, a, b, accept)
                here |= {} if point is None else {share: point}
        found += [here[share] for share in sorted(here)]
    return tuple(found)


def _tests(kind: str, a: Place, b: Place, cubic: Callable[[Place], float]) -> dict[str, Callable[[Place], float]]:
    """The test functions along a locus between two of its points, by the kinds of their zeros. The coefficient `cubic` is
    infinite where another multiplier is 1, and at a resonance 1:2: a factor is zero there."""
    tests: dict[str, Callable[[Place], float]] = {
        _meeting(kind, other): lambda place, test=test: test(apart(kind, place.multipliers)[1])
        for other, test in CROSSINGS.items()
        if kind != other or kind == PAIR
    }
    if kind == PAIR:
        total = lambda place: sum(apart(kind, place.multipliers)[0]).real
        tests |= {name: lambda place, value=value: total(place) - value for name, value in RESONANCES.items()}
        if max(abs(total(a)), abs(total(b))) < 2:
            tests["chenciner"] = lambda place: cubic(place) * CROSSINGS["fold"](apart(kind, place.multipliers)[1])
    if kind in SHIFTS:
        double = lambda place: _slope(SHIFTS[kind] * place.multipliers)
        tests["resonance-1:1" if kind == "fold" else "resonance-1:2"] = double
    if kind == "period-doubling":
        tests["generalized-flip"] = lambda place: cubic(place) * double(place) * tests["fold-flip"](place)
    if kind == "fold":
        turn = b.tangent[-2:] - a.tangent[-2:]
        tests["cusp"] = lambda place: float(place.tangent[-2:] @ turn)
    return tests


def apart(kind: str, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The multipliers that are critical all along a locus, and the others."""
    k: list[int] = []
    if kind in SHIFTS:
        k = [int(np.argmin(np.abs(multipliers - SHIFTS[kind])))]
    elif kind == PAIR:
        pairs = itertools.combinations(range(len(multipliers)), 2)
        k = [*min(pairs, key=lambda pair: abs(np.prod(multipliers[[*pair]]) - 1))]
    return multipliers[k], np.delete(multipliers, k)


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


def _cubic(unfolding: Unfolding, kind: str, place: Place) -> float:
    """The coefficient of the normal form whose sign decides between super- and subcritical."""
    form = FORMS[kind]._replace(parameters=0)
    critical = apart(kind, place.multipliers)[0] if kind == PAIR else np.array([-1.0])
    critical = critical.astype(complex) / np.abs(critical)
    found = expansion(unfolding, jnp.asarray(place.v), jnp.asarray(place.jacobian), jnp.asarray(critical), form)
    k = form.monomials.index((2, 1) if kind == PAIR else (3,))
    return float((np.asarray(found.reduced)[k, 0] * np.conj(critical[0])).real)


def _located(unfolding, touch, kind: str, name: str, test, a: Place, b: Place, accept: Array):
    """The zero of a test function on the locus between two points: its share of the chord, and the point; None in place of the
    point where it is none of codimension two."""
    from scipy.interpolate import BarycentricInterpolator
    from scipy.optimize import brentq  # takes a third of a second

    way = b.v - a.v
    along = jnp.asarray(way / np.linalg.norm(way))

    def at(share: float):
        place, *others = _corrected(unfolding, touch, kind, jnp.asarray(a.v + share * way), along, accept)
        return Place(*map(np.asarray, place)), *others

    # The ends are known: where one of them is a zero, the sign of rounding may differ in another evaluation.
    value = lambda share: test({0.0: a, 1.0: b}.get(share) or at(share)[0])
    share = float(brentq(value, 0.0, 1.0, xtol=1e-15, rtol=1e-15, disp=False))  # pyright: ignore
    place, residual, converged = at(share)
    if kind == PAIR and name == _meeting(kind, kind):
        # Two curves cross there, and the corrector's matrix is singular: by interpolation of points around it.
        nodes = 0.5 + 0.5 * np.cos(np.pi * (np.arange(12) + 0.5) / 12)
        around = [at(each) for each in nodes]
        rows = [np.concatenate([each.v, each.tangent, each.jacobian.ravel(), [test(each)]]) for each, *_ in around]
        smooth = BarycentricInterpolator(nodes, np.array(rows))
        share = float(brentq(lambda share: float(smooth(share)[-1]), 0.0, 1.0, xtol=1e-15, rtol=1e-15))  # pyright: ignore
        v, tangent, dF = np.split(smooth(share)[:-1], [a.v.size, 2 * a.v.size])
        dF = dF.reshape(a.jacobian.shape)
        place = Place(v, tangent, dF, np.asarray(eigenvalues(unfolding.around(jnp.asarray(dF)))))
        converged = all(good for *_, good in around)
    critical, others = apart(kind, place.multipliers)
    pairs = [critical] if kind == PAIR and name not in ("resonance-1:1", "resonance-1:2") else []
    pairs += [apart(PAIR, others)[0]] if name == _meeting(kind, PAIR) else []
    # Where two real multipliers have the product 1, at a neutral saddle, no orbit bifurcates.
    neutral = any(abs(sum(pair)) > 2 for pair in pairs)
    if not converged or neutral or (name == "cusp" and np.linalg.norm(place.tangent[-2:]) > STILL):
        return share, None
    # That of the pair where there is one, of a pair that is 1 or -1 a real one, else that of the fold.
    cosine = np.clip(sum(pairs[0]).real / 2, -1, 1) if pairs else None
    real = -1.0 if "1:2" in name or ("flip" in name and "fold" not in name) else 1.0
    multiplier = real if cosine is None else complex(cosine, np.sqrt(1 - cosine**2))
    v, dF, multiplier, tangent = map(jnp.asarray, (place.v, place.jacobian, multiplier, place.tangent))
    return share, _point(unfolding, touch, name, v, dF, multiplier, tangent, residual, accept)


def at_end(unfolding: Unfolding, kind: str, v: Array, tangent: Array, accept: Array) -> SpecialPoint | None:
    """Where a locus of multipliers meets the end of branches, such as grazing, near its last point `v`: the zero of the test
    function along the locus of grazing; or None if there is none."""
    from scipy.optimize import root_scalar  # takes a third of a second

    y, values = unfolding.split(v)
    # At first with one parameter free.
    one = dataclasses.replace(
        unfolding,
        params=unfolding.params_at(values),
        free=unfolding.free[1:],
        origin=values[1:],
        scale=unfolding.scale[1:],
    )
    start = one.join(y, values[1:])
    end = locate_grazing(one, _orbit(one, start, accept), start, jnp.append(tangent[:-2], tangent[-1]), accept)
    if end is None or end.touch is None:
        return None
    before, second = one.split(end.v)
    origin = unfolding.join(before, jnp.append(values[0], second))
    touch = eqx.tree_at(lambda touch: touch.jump, end.touch, jnp.array(not np.isfinite(end.orbit.multipliers).all()))
    first = jnp.zeros_like(origin).at[-2].set(1)
    tangent = jnp.asarray(_corrected(unfolding, touch, end.kind, origin, first, accept)[0].tangent)
    at = lambda s: _corrected(unfolding, touch, end.kind, origin + s * tangent, tangent, accept)
    test = lambda s: CROSSINGS[kind](np.asarray(at(s)[0].multipliers))
    s = root_scalar(test, x0=0.0, x1=1e-4, method="secant", xtol=1e-15, maxiter=30).root
    place, residual, converged = at(s)
    if not converged or not abs(test(s)) < ZERO:
        return None
    multiplier = SHIFTS.get(kind, 0) or apart(kind, np.asarray(place.multipliers))[0][0]
    v, dF, multiplier, tangent = map(jnp.asarray, (place.v, place.jacobian, multiplier, place.tangent))
    return _point(unfolding, end.touch, _meeting(end.kind, kind), v, dF, multiplier, tangent, residual, accept)


@long_run
def _corrected(
    unfolding: Unfolding, touch: Touch | None, kind: str, v: Array, along: Array, accept: Array
) -> tuple[Place, Array, Array]:
    """The point of a locus on the plane through `v` at right angles to `along`, with its residual, and whether it was found."""
    unfolding = unfolding.rolled(order=2)
    equation = locus_equation(unfolding, touch, kind)

    def evaluate(u):
        residual, jacobian, _ = with_columns(equation, u)
        return jnp.append(residual, along @ (u - v)), jnp.concatenate([jacobian, along[None]]), jacobian

    root = newton(evaluate, v, max_iterations=8, accept=accept)
    dF = root.aux[:-1]
    place = Place(root.y, tangent_to(root.aux, along), dF, eigenvalues(unfolding.around(dF)))  # pyright: ignore
    return place, root.residual, root.converged


@long_run
def _grazing_of(unfolding: Unfolding, touch: Touch, v: Array):
    return grazing_equation(unfolding, touch, v)


@long_run
def _orbit(unfolding: Unfolding, v: Array, accept: Array) -> PeriodicOrbit:
    unfolding = unfolding.rolled()
    return unfolding.orbit(v, unfolding.judged(v, unfolding.residual(v)[1], accept))


@long_run
def _point(unfolding: Unfolding, touch: Touch | None, name: str, v, dF, multiplier, tangent, residual, accept):
    unfolding = unfolding.rolled()
    if touch is None:
        orbit = _orbit(unfolding, v, accept)
        return point_at(unfolding, name, v, dF, multiplier, tangent, residual, orbit)
    _, known = grazing_equation(unfolding, touch, v)
    # The Jacobian's last row, of the guard, is not read.
    columns = jnp.concatenate([dF, dF[:1]])
    root = Root(v, (columns, *known), residual, jnp.array(True), jnp.array(0), v)
    point = grazing_point(unfolding, name, touch, root, columns, tangent)
    return dataclasses.replace(point, multiplier=multiplier.astype(point.multiplier.dtype))
