r"""Stable and unstable manifolds of a periodic orbit on its section, curves and surfaces, and where two of them meet.

Let $\mu$ be a simple real multiplier with the eigenvector $q$. The manifold is a curve $W(s) = x^* + s\,q + O(s^2)$ on which the
return map is linear in the parameter, the parametrization method's equation

$$S(W(s)) = W(\mu s).$$

Of two multipliers it is a surface, $s \in \mathbb{R}^2$, $W(s) = x^* + Q s + O(s^2)$, with an orthonormal basis $Q$ of their
invariant subspace and the matrix $\mu = Q^T\,\mathrm{D}S\,Q$, so that they may be real, equal or complex.

**Near the orbit** $W = x^* + s\,q + s^2 p(s)$ with a polynomial $p$, in Chebyshev's basis for a curve, which Newton's method fits
to the equation at about twice as many points as it has coefficients, on the largest of the intervals $|s| \le r, r/2, r/4, \dots$
on which equation and polynomial agree to rounding between those points too, or else to the integrator's tolerance. No derivative
of the map beyond the first is needed. Of a surface the intervals are disks in a norm in which $\mu$ expands or contracts.

**Farther out** an unstable manifold is $W(s) = S^k(W(s / \mu^k))$. On a stable one $W(s)$ is, step by step outwards, the solution
of $S(x) = W(\mu s)$ by Newton's method, from a guess that the points found so far give. What is solved for are states $y$ before
the jump $x = R(y)$ that closes the map, on the guard's surface, because $x$ has to lie on the image of the jump, which may be of
lower dimension: of the solutions $y$ the one nearest to the guess, and $x$ is the same for all.

Source: Cabré, Fontich, de la Llave (2005), *The parameterization method for invariant manifolds III*, J. Differential Equations
218, 444-515; Krauskopf, Osinga (1998), *Growing 1D and quasi-2D unstable manifolds of maps*, J. Comput. Phys. 146, 404-419, for
the control of distance and angle. The mesh of a surface: see `mesh.py`.
"""

import dataclasses
from typing import Any, NamedTuple, TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy.polynomial import chebyshev

from .._flow.integrator import Integrator
from .._numerics.eigenvalues import inside_circle, outside_circle
from .._results.failure import raise_failure
from .._results.registry import draw
from .._results.shown import require_known, Shown
from .._results.table import Table
from .._system.results import code_of, numbered_code, RESULTS
from .._system.where import Where
from .crossings import Crossings, crossings_of, DEGREE, Tangency, tangency_of
from .mesh import beyond, FIRST, meshed, near_points
from .problem import DIVERGED, jumps, LANES, Lap, lap_of, passages, SUCCESSFUL
from .return_map import require_map, ReturnMap

if TYPE_CHECKING:
    from .orbit import PeriodicOrbit

# A singular value below this part of the largest one is zero: of a jump to an image of lower dimension.
RANK = 1e-9
# The modulus of a multiplier below which it is none of a surface; the degree of the polynomial of one, and the number of passes
# that are enough to come from anywhere to it.
ERASED, SURFACE_DEGREE, DEEPEST = 1e-6, 10, 100_000
# The largest ratio of the moduli of both multipliers of a surface.
UNEQUAL = 1e3
# The gap between two points, in units of `spacing`, below which their directions may differ by any angle.
FOLD = 1e-2


class Manifold(Shown):
    r"""An invariant manifold of a periodic orbit on its section, curve or surface, from `orbit.manifold`: $S(W(s)) = W(\mu s)$.

    `manifold(s)` are the states $W(s)$ to the accuracy of the map, for any $s$ between the first and the last point, and of an
    unstable manifold for any $s$ at all; NaN where the map fails. $W(0) = x^*$, $W'(0) = q$.

    **Attributes:** `s`, `x`: points, of parameters in ascending order, shapes `(points,)`, `(points, n)`, the orbit among them;
    `arclength`: from the orbit to each, along the points, negative for `s < 0`. Neighbouring points are not further from each
    other than `spacing` and their directions differ by `angle` at most, so that the curve is within `spacing * angle / 4` of the
    chords; at folds that are too sharp for that, within `spacing / 100`. `multiplier`: $\mu$. `direction`: the eigenvector $q$
    of length 1, whose first component that is not small is positive. `radius`: the largest $|s|$ of the polynomial. `residual`:
    the largest component of $S(W(s)) - W(\mu s)$ there. `result`: `successful`, or why there is no polynomial: then there are no
    points. `ends`: the codes with which the halves `s < 0` and `s > 0` end: `successful` at `length`, `max_points_reached`, or
    that of the map, which fails beyond, or of Newton's method. `before`, `lap`, `coefficients`, `scale`: states before the
    closing jump, the map among these, and the polynomial in `s / scale`.

    **Of a surface** `s` has the shape `(points, 2)`, `multiplier` is a matrix, upper triangular where its eigenvalues are real,
    and `direction` an orthonormal basis, shape `(n, 2)`. `triangles`: numbers of three points each, shape `(triangles, 3)`,
    `None` for a curve. Points are neighbours where a triangle has both, and their directions are tangent planes; at sharp folds
    they are within `spacing / 10`. `arclength` is measured along edges, at most. `border`: numbers of the points at which the
    surface ends, in order around the orbit, and `ends` their codes; where the map jumps or fails between points, there is a hole.
    Of unequal multipliers $k$ passes from the polynomial to a point enlarge the error along the stronger one: relative to $|s|$
    it is `residual / radius`, or that of rounding, times the condition number of $\mu^k$. Where that is more than 1.5e-8, and
    more than 100 times as much as at the polynomial, the surface ends with `nonlinear_divergence`, and W(s) is NaN beyond.

    **Example:**

    >>> year = hj.Mode(lambda t, x, p: jnp.array([0.0, 0.0, 1.0]), coordinates=("x", "y", "clock"))
    >>> henon = lambda t, x, p: jnp.stack([1 - 1.4 * x[0] ** 2 + x[1], 0.3 * x[0], 0 * x[2]])
    >>> system = hj.HybridSystem({"year": year}, (hj.Transition("year", "year", lambda t, x, p: 1 - x[2], henon),))
    >>> saddle = hj.periodic_orbit(hj.ReturnMap(system, sequence=("year",)), jnp.array([0.6, 0.2, 0.0]), {})
    >>> unstable = saddle.manifold("unstable", length=3.0, spacing=0.2)
    >>> print(unstable(1.0)[:2].round(6), unstable.ends)
    [1.256561 0.020649] 2 successful

    Source: Cabré, Fontich, de la Llave (2005), J. Differential Equations 218, 444-515.
    """

    s: Float[np.ndarray, " points *two"]
    x: Float[np.ndarray, "points n"]
    arclength: Float[np.ndarray, " points"]
    multiplier: float | Float[np.ndarray, "2 2"]
    direction: Float[np.ndarray, " n *two"]
    radius: float
    residual: float
    result: RESULTS
    ends: RESULTS
    before: Float[np.ndarray, "points m"]
    coefficients: Float[np.ndarray, "degree m"]
    scale: float
    lap: Lap
    triangles: Int[np.ndarray, "triangles 3"] | None = None
    border: Int[np.ndarray, " border"] | None = None

    def _tables(self):
        kind = "stable" if _is_stable(self.multiplier) else "unstable"
        numbers = np.linalg.eigvals(np.atleast_2d(self.multiplier))
        rows = [("multiplier", ", ".join(f"{each:.8g}" for each in numbers))]
        rows += [(name, str(getattr(self, name))) for name in ("radius", "residual", "ends")]
        reach = f"{np.min(self.arclength):.4g} to {np.max(self.arclength):.4g}"
        triangles = [] if self.triangles is None else [("triangles", str(len(self.triangles)))]
        return (Table(f"{kind} manifold", [*rows, ("points", str(len(self.s))), *triangles, ("arclength", reach)]),)

    def __call__(self, s) -> Float[np.ndarray, "..."]:
        """The states $W(s)$, shape `(*s.shape, n)`, NaN where the map fails; `ValueError` beyond the points of a stable one.

        **Arguments:** `s`: of any shape; of a surface `(*batch, 2)`, and the states have the shape `(*batch, n)`; NaN
        where it is not finite."""
        at = np.asarray(s, self.x.dtype)
        batch = at.shape[: at.ndim - self.s.ndim + 1]
        if at.shape != (*batch, *self.s.shape[1:]):
            raise ValueError(f"manifold: s has the shape {at.shape}, which must be (..., 2) on a surface.")
        flat = at.reshape(-1, *self.s.shape[1:])
        finite = np.all(np.isfinite(flat.reshape(len(flat), self.s[:1].size)), axis=1)
        flat = np.where(finite.reshape(-1, *(1,) * (flat.ndim - 1)), flat, 0)
        if _is_stable(self.multiplier) and np.any(beyond(self, flat)):
            within = "within the border" if self.s.ndim > 1 else f"from {self.s[0]:.6g} to {self.s[-1]:.6g}"
            raise ValueError(f"manifold: s must be {within}: ask for a greater length.")
        found = self._at(flat)
        x = np.where((finite & (found.codes == SUCCESSFUL))[:, None], found.x, np.nan)
        return x.reshape(*batch, -1)

    def plot(self, ax=None, **options):
        """A picture of the curve, or of the mesh in three coordinates; see `hyjax.plot.manifold_figure`."""
        return draw(self, ax, **options)

    def crossings(self, other: "Manifold") -> "Crossings":
        """Where this manifold meets another one, of the same orbit (homoclinic points) or another (heteroclinic points).

        Crossings of the chords, in the plane of both directions, or of the chords of one with the triangles of the other in the
        space of all three, are guesses for Newton's method on $W_1(s) = W_2(t)$. In a section of more dimensions curves rarely
        meet, and what do not meet are left out.

        **Arguments:** `other`: a `Manifold`, in the same coordinates; one of both may be a surface. **Returns:**
        `Crossings(s, t, x, sine)`, by the parameter of a curve; none where they do not meet. `sine`: of the angle between both in
        that plane or space, with the sign of the determinant of the directions of this and the other; zero at a tangency.
        `ValueError` for two surfaces.
        """
        return crossings_of(self, other)

    def tangency(
        self,
        other: "Manifold",
        *,
        solve: Where,
        guess: tuple[float, float] | None = None,
        where: Where | None = None,
        values: Any = None,
        throw: bool = True,
    ) -> Tangency:
        """The value of a parameter at which two crossings of this unstable manifold with a stable one merge: a tangency.

        Newton's method on the equations of the point, of the angle and of both polynomials near the orbits, with derivatives
        by all unknowns by automatic differentiation. From each solution to the next of `values` leads the tangent.

        **Arguments:** `other`: a stable `Manifold` of the same map, of the same orbit or another. `solve`: the parameter that
        is solved for, such as `lambda p: p.slope`. `guess`: `(s, t)`, by default the middle of those two consecutive crossings
        of opposite sines that are nearest to each other. `where`, `values`: a second parameter, and the values of it, shape
        `(values,)`, at which the tangency is found. `throw`: raise a `SolveError` on failure; with `False`, `result` holds the
        codes.

        **Returns:** `Tangency(solved, s, t, x, result)`, with one entry for each of `values`, if these are given, NaN where
        there is a code: `nonlinear_divergence` where Newton's method does not converge, or has left the polynomials, or that of
        the map where it fails. `ValueError` for other manifolds than an unstable and a stable one, where there is no guess, for
        guesses and values of other shapes, and for a parameter on which the manifolds do not depend.
        """
        return tangency_of(self, other, solve, guess, where, values, throw)

    def _levels(self, s: np.ndarray) -> np.ndarray:
        """The numbers of passes between the polynomial's interval and the points at `s`."""
        return _inward(self, s)[0]

    def _at(self, s: np.ndarray) -> "ManifoldPoints":
        """The points at `s`, shape `(points,)` or `(points, 2)`, with the derivatives by `s`."""
        y, slope, x, direction, codes = _reach(self, s)
        return (
            ManifoldPoints(y, slope, x, direction, codes)
            if s.ndim > 1
            else ManifoldPoints(y, slope[..., 0], x, direction[..., 0], codes)
        )


class ManifoldPoints(NamedTuple):
    """Points of a manifold: states before and after the closing jump, the derivatives of both by `s`, and codes."""

    y: np.ndarray
    slope: np.ndarray
    x: np.ndarray
    direction: np.ndarray
    codes: np.ndarray


def manifold_of(
    orbit: "PeriodicOrbit",
    which: str | int | tuple[int, int],
    length: float,
    spacing: float | None,
    angle: float,
    max_points: int,
    step: ReturnMap | None,
    throw: bool,
) -> Manifold:
    """`PeriodicOrbit.manifold`."""
    require_known("manifold", orbit, length, spacing, remedy="Call it outside.")
    if np.ndim(orbit.period):
        raise TypeError(f"This is a batch of {len(orbit)} orbits. Choose one, such as orbits[0].")
    if orbit.x.dtype != np.float64:
        raise ValueError(
            f"manifold: the orbit's states are {orbit.x.dtype}, which must be float64. Enable jax_enable_x64."
        )
    mu, q = _invariant(np.asarray(orbit.return_jacobian), which)
    wide = length if spacing is None else spacing
    given: dict[str, Any] = {"length": length, "spacing": wide, "angle": angle, "max_points": max_points}
    for name, value in given.items():
        if value is None or isinstance(value, str) or np.ndim(value) or np.iscomplexobj(value) or not value > 0:
            raise ValueError(f"manifold: {name}={value!r} must be positive, a number.")
    apart = length / (100 if q.ndim == 1 else 15) if spacing is None else spacing
    if q.ndim > 1 and max_points <= FIRST:
        raise ValueError(
            f"manifold: max_points={max_points} must be more than {FIRST}, of the first ring of a surface."
        )
    around = orbit.step if step is None else step
    require_map(around, "manifold")
    lap = lap_of(around, orbit.params, orbit.period)
    y0 = np.asarray(orbit.x if around.sequence is None else orbit.before[0])
    passage, by, codes = passages(lap, y0[None])
    size = np.max(np.abs(y0))
    if codes[0] != SUCCESSFUL or not np.max(np.abs(passage.after[0] - orbit.x)) <= 1e-6 * size:
        raise ValueError(
            f"manifold: the orbit is no fixed point of the map: from x={np.asarray(orbit.x)} it leads to {passage.after[0]}. "
            "Give step= a map of the orbit's section."
        )
    # The fixed point of the map itself, which takes other steps than the orbit's.
    y0 = y0 - np.linalg.lstsq(by.end[0] - np.eye(len(y0)), passage.end[0] - y0, rcond=RANK)[0]
    passage, by, _ = passages(lap, y0[None])
    # From W = R(V): the derivative of the flow times q is mu V'(0).
    columns = q.reshape(len(q), -1)
    v = np.linalg.lstsq(np.vstack([by.x[0], by.guard[0][None]]), np.vstack([columns, 0 * columns[:1]]), rcond=RANK)[0]
    end = np.asarray(by.end[0])
    m, v, columns = _own_space(end, np.asarray(by.x[0]), end @ v if around.sequence is not None else columns, columns)
    mu, q = (m, columns) if q.ndim > 1 else (float(m[0, 0]), columns[:, 0])
    start = Manifold(
        0 * columns[:1].reshape(1, *q.shape[1:]), np.asarray(passage.x), np.zeros(1), mu, q, 0.0, np.inf, code_of(DIVERGED),
        code_of(DIVERGED), y0[None], np.vstack([y0, v.T]), 1.0, lap,
    )  # fmt: skip
    found = _with_polynomial(start, size)
    if found.radius:
        found = (_extended if q.ndim == 1 else meshed)(found, length, apart, angle, max_points)
    return raise_failure("manifold", found) if throw else found


def _invariant(jacobian: np.ndarray, which: str | int | tuple[int, int]) -> tuple[Any, np.ndarray]:
    """A simple real eigenvalue other than 0 and its eigenvector; of two a matrix that has them, and an orthonormal basis of their
    space."""
    values, vectors = np.linalg.eig(jacobian)
    order = np.argsort(-np.abs(values), kind="stable")
    values, vectors = values[order], vectors[:, order]
    if isinstance(which, str):
        sides = {
            "unstable": np.flatnonzero(outside_circle(values)),
            "stable": np.flatnonzero(inside_circle(values[:, None])),
        }
        if which not in sides:
            raise ValueError(f"manifold: which={which!r} must be 'stable', 'unstable' or the number of a multiplier.")
        if not sides[which].size:
            raise ValueError(f"manifold: the orbit has no {which} multiplier: {values}.")
        kept = sides[which][np.abs(values[sides[which]]) > ERASED]
        which = tuple(kept) if kept.size == 2 else int(sides[which][0])
    those = np.atleast_1d(which)
    if (
        those.dtype.kind not in "iu"
        or those.size > 2
        or len({*those}) < those.size
        or not all(0 <= k < len(values) for k in those)
    ):
        raise ValueError(
            f"manifold: which={which} must be the number of one of the {len(values)} multipliers, or of two."
        )
    mu, others = values[those], np.delete(values, those)
    if len({*(np.abs(mu) > 1)}) > 1:
        raise ValueError(f"manifold: which={which} must be two on one side of the circle, not {mu}. All are {values}.")
    if np.max(np.abs(mu)) > UNEQUAL * np.min(np.abs(mu)) > 0:
        raise ValueError(
            f"manifold: the multipliers {mu} differ by more than the factor {UNEQUAL:g}, too much for a surface. Ask for the "
            f"curve of one of them, which={those[0]}."
        )
    apart = np.min(np.abs(others[:, None] - mu), initial=np.inf, axis=0)
    off = inside_circle(mu[:, None]) | outside_circle(mu)
    good = np.all((1e-6 * np.abs(mu) < apart) & (np.abs(mu) > 1e-9) & off)
    if not good or abs(np.sum(mu).imag) > 1e-9:
        raise ValueError(
            f"manifold: the multiplier {', '.join(f'{each:.6g}' for each in mu)} must be real, simple and neither 0 nor of "
            f"modulus 1, or two, which=(0, 1), conjugate if complex, two on one side of the circle. All are {values}."
        )
    signed = lambda q: q * np.sign(q[np.flatnonzero(np.abs(q) > 1e-6)[0]])
    if those.size == 1:
        q = np.real(vectors[:, those[0]])
        return mu[0].real, signed(q / np.linalg.norm(q))
    # Their space is the null space of a polynomial of the matrix, also where two are equal. Real Schur form within.
    null = np.linalg.svd(jacobian @ jacobian - np.sum(mu).real * jacobian + np.prod(mu).real * np.eye(len(values)))[2][
        -2:
    ].T
    first = np.linalg.lstsq(null, vectors[:, those[0]], rcond=None)[0]
    # Of a complex one the real and the imaginary part, at the phase at which they are orthogonal.
    first = np.real(first * np.exp(-0.5j * np.angle(np.sum(first**2))))
    first = null @ first / np.linalg.norm(first)
    second = null @ np.linalg.svd((null.T @ first)[None])[2][1]
    q = np.column_stack([signed(first), signed(second)])
    return q.T @ jacobian @ q, q


def _own_space(
    end: np.ndarray, x: np.ndarray, v: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The multipliers, and their space before and after the jump, by the Jacobians of the map itself: the orbit's are those of
    other steps, and what they have of an unstable direction would grow on a stable manifold. Inverse iteration."""
    for _ in range(3):
        v = v @ np.linalg.inv(q.T @ x @ v)
        m = np.linalg.lstsq(v, end @ v, rcond=None)[0]
        rows = np.kron(end, np.eye(len(m))) - np.kron(np.eye(len(end)), (1 + 1e-6) * m.T)
        v = np.linalg.solve(rows, v.ravel()).reshape(v.shape)
    v = v @ np.linalg.inv(q.T @ x @ v)
    return np.linalg.lstsq(v, end @ v, rcond=None)[0], v, x @ v


def _is_stable(mu: Any) -> bool:
    return bool(abs(np.linalg.det(np.atleast_2d(mu))) < 1)


def _outward(mu: Any) -> tuple[np.ndarray, np.ndarray]:
    """The expanding matrix of the multipliers or of their inverses, and the matrix of a norm in which it expands."""
    m = np.atleast_2d(mu)
    outward = np.linalg.inv(m) if _is_stable(m) else m
    inward, one = np.linalg.inv(outward), np.eye(len(m))
    if np.linalg.norm(inward, 2) < 1:
        return outward, one
    # The sum of squares of lengths on the way inwards, which solves P = 1 + B^T P B.
    p = np.linalg.solve(np.eye(m.size) - np.kron(inward.T, inward.T), one.ravel()).reshape(m.shape)
    return outward, np.linalg.cholesky(p / np.min(np.linalg.eigvalsh(p))).T


def _inward(found: Manifold, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of passes from the region of the polynomial to the points at `s`, and where they begin, shape `(points, d)`."""
    outward, shape = _outward(found.multiplier)
    at, levels, inward = (s if s.ndim > 1 else s[:, None]).copy(), np.zeros(len(s), int), np.linalg.inv(outward)
    for _ in range(DEEPEST):
        far = np.linalg.norm(at @ shape.T, axis=1) > found.radius * (1 + 1e-9)
        if not np.any(far):
            break
        at[far] = at[far] @ inward.T
        levels += far
    return levels, at


def _deepest(found: Manifold, most: int) -> int:
    """The number of passes, up to `most`, by which an error of the polynomial stays below `sqrt(eps)` relative to the point."""
    (outward, _), power = _outward(found.multiplier), np.eye(np.atleast_2d(found.multiplier).shape[0])
    error = max(found.residual, np.finfo(found.x.dtype).eps * np.max(np.abs(found.coefficients[0]))) / (
        found.radius or 1
    )
    for k in range(most if len(power) > 1 else 0):
        power = power @ outward
        power /= np.linalg.norm(power)
        if np.linalg.cond(power) * error > max(np.finfo(found.x.dtype).eps ** 0.5, 100 * error):
            return k
    return most


def _with_polynomial(start: Manifold, size: float) -> Manifold:
    """The manifold with its polynomial near the orbit, on the largest region that is found."""
    lap, (y0, *v), m = start.lap, start.coefficients, np.atleast_2d(start.multiplier)
    outward, shape = _outward(m)
    within = np.linalg.inv(shape)
    # Points to fit, in units of the radius, and points between them, whose images are within the region too.
    inside = within if _is_stable(m) else np.linalg.inv(m) @ within
    nodes, between = (each @ inside.T for each in _regular(len(m)))
    # To rounding, or else to what the integrator promises and the map makes of it.
    rtol, atol = lap.step.integrator_or(Integrator()).tolerances(y0.dtype)
    close, growth = 256 * float(np.finfo(y0.dtype).eps) * size, np.linalg.norm(passages(lap, y0[None])[1].end[0], 2)
    coarse = max(close, float(rtol * size + atol) * max(1.0, growth))
    basis, found, least = lambda z: _terms(z @ shape.T)[0], start, start.residual
    # What a jump erases is determined on the image of the region only.
    image = 1 / np.linalg.norm(shape @ outward @ within, 2) if _is_stable(m) else 1.0
    for halvings in range(12):
        radius = size / 2**halvings
        of = lambda c, z, r=radius: y0 + r * z @ np.array(v) + basis(z) @ c
        c, last = np.zeros((basis(nodes[:1]).size, y0.size)), np.inf
        for _ in range(8):
            passage, by, codes = passages(lap, of(c, nodes))
            off = passage.end - of(c, nodes @ m.T)
            if np.any(codes != SUCCESSFUL) or not np.max(np.abs(off)) < last:
                break
            last = np.max(np.abs(off))
            rows = np.einsum("pij,pk->pikj", by.end, basis(nodes))
            rows -= np.einsum("ij,pk->pikj", np.eye(y0.size), basis(nodes @ m.T))
            c = c - np.linalg.lstsq(rows.reshape(off.size, c.size), off.ravel(), rcond=1e-13)[0].reshape(c.shape)
        passage, _, codes = passages(lap, of(c, between))
        images = of(c, between @ m.T)
        residual = float(np.max(np.abs(passage.end - images)))
        better = np.all(codes == SUCCESSFUL) and residual <= min(coarse, least / 4)
        if better:
            least, after = residual, float(np.max(np.abs(passage.after - jumps(lap, images)[0])))
            found = dataclasses.replace(
                start, radius=radius * image, residual=max(least, after), result=RESULTS.successful,
                coefficients=np.concatenate([[y0], radius * np.array(v), c]), scale=radius,
            )  # fmt: skip
        # What is off by more than the map's own rounding may be less on a smaller region, by more than in proportion to it.
        if least <= close / 32 or (found.radius and not better):
            break
    return found


def _regular(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of the interval [-1, 1] or of the unit disk, about twice as many as terms, and points between, `(points, d)`."""
    n = DEGREE if d == 1 else SURFACE_DEGREE // 2 + 1
    half = (np.arange(2 * n) + 0.5) * np.pi / (2 * n)
    nodes, between = np.cos(half)[:, None], np.cos(half[:-1] + np.diff(half) / 2)[:, None]
    if d == 1:
        return nodes, between
    turns = np.arange(2 * SURFACE_DEGREE + 2) * np.pi / (SURFACE_DEGREE + 1)
    around = lambda r, t: np.stack([r * np.cos(t), r * np.sin(t)], axis=-1).reshape(-1, 2)
    return around(nodes[:n], turns), around(between[: n - 1], turns + turns[1] / 2)


def _terms(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The terms of degree 2 and more of the polynomial, shape `(points, terms)`, and their derivatives, `(points, terms, d)`."""
    if u.shape[1] == 1:
        z, t = u, np.eye(DEGREE)
        p, dp = chebyshev.chebval(z[:, 0], t).T, chebyshev.chebval(z[:, 0], chebyshev.chebder(t)).T
        return z**2 * p, (2 * z * p + z**2 * dp)[..., None]
    a, b = np.array([(n - k, k) for n in range(2, SURFACE_DEGREE + 1) for k in range(n + 1)]).T
    (x, y), power = u.T[:, :, None], lambda x, k: x ** np.maximum(k, 0)
    return x**a * y**b, np.stack([a * power(x, a - 1) * y**b, b * x**a * power(y, b - 1)], axis=-1)


def _reach(found: Manifold, s: np.ndarray) -> ManifoldPoints:
    """Points by the polynomial, and from there by passes of the map, forwards or backwards; derivatives are `(points, m, d)`."""
    lap, (outward, _) = found.lap, _outward(found.multiplier)
    levels, at = _inward(found, s)
    y, slope = _polynomial(found, at)
    # Of a multiplier next to the circle some are too many passes away.
    far = (levels == DEEPEST) | (levels > _deepest(found, int(np.max(levels, initial=0))))
    codes, levels = np.where(far, DIVERGED, SUCCESSFUL), np.where(far, 0, levels)
    for level in range(np.max(levels, initial=0)):
        (alive,) = np.nonzero((level < levels) & (codes == SUCCESSFUL))
        if not alive.size:
            break
        at[alive] = at[alive] @ outward.T
        if not _is_stable(found.multiplier):
            passage, by, codes[alive] = passages(lap, y[alive])
            y[alive], slope[alive] = passage.end, by.end @ slope[alive] @ np.linalg.inv(outward)
        else:
            y[alive], slope[alive], codes[alive] = _back(found, y[alive], slope[alive], at[alive])
    x, by = jumps(lap, y)
    return ManifoldPoints(y, slope, x, by @ slope, codes)


def _back(found: Manifold, y: np.ndarray, slope: np.ndarray, s: np.ndarray):
    """The points at `s` whose images are those with the states `y`: `(y, slope, codes)`, by Newton's method."""
    lap = found.lap
    target, by, _ = passages(lap, y)
    goal, tangent = target.x, by.x @ slope @ np.atleast_2d(found.multiplier)
    y, size = (
        near_points(found, s) if found.s.ndim > 1 else _between(found.s, found.before, s[:, 0]),
        np.max(np.abs(found.before)),
    )
    rounding = np.finfo(y.dtype).eps
    accept = 1e3 * max(rounding, float(sum(lap.step.integrator_or(Integrator()).tolerances(y.dtype)))) * size
    best, slope, least, codes = y.copy(), slope.copy(), np.full(len(s), np.inf), np.full(len(s), DIVERGED)
    alive = np.arange(len(s))
    for _ in range(10):
        passage, by, result = passages(lap, y[alive])
        # A guard of the time alone is no equation.
        guard = np.where(np.any(by.guard != 0, axis=1), passage.guard, 0)
        off = np.column_stack([passage.after - goal[alive], guard])
        inverse = np.linalg.pinv(np.nan_to_num(np.concatenate([by.after, by.guard[:, None]], axis=1)), rcond=RANK)
        error = np.where(result == SUCCESSFUL, np.max(np.abs(off), axis=1), np.inf)
        change = np.einsum("pij,pj->pi", inverse, off)
        better = error < least[alive]
        at = alive[better]
        best[at], least[at] = y[at], error[better]
        slope[at] = inverse[better][:, :, :-1] @ tangent[at]
        codes[at] = DIVERGED
        codes[alive[result != SUCCESSFUL]] = result[result != SUCCESSFUL]
        y[alive] -= change
        alive = alive[better & (np.max(np.abs(change), axis=1) > 4 * rounding * size)]
        if not alive.size:
            break
    return best, slope, np.where(least <= accept, SUCCESSFUL, codes)


def _polynomial(found: Manifold, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states before the closing jump by the polynomial, `(points, m)`, and their derivatives by `s`, `(points, m, d)`."""
    z, (y0, *rest), (_, shape) = s / found.scale, found.coefficients, _outward(found.multiplier)
    v, c = np.array(rest[: z.shape[1]]), np.array(rest[z.shape[1] :])
    terms, by = _terms(z @ shape.T)
    return y0 + z @ v + terms @ c, (v.T + np.einsum("pkd,ki->pid", by @ shape, c)) / found.scale


def _between(s: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The cubic through the four points nearest to each `at`."""
    first = np.clip(np.searchsorted(s, at) - 2, 0, len(s) - 4)
    near = first[:, None] + np.arange(4)
    apart = s[near][:, :, None] - s[near][:, None, :] + np.eye(4)
    ratios = np.where(np.eye(4, dtype=bool), 1, (at[:, None, None] - s[near][:, None, :]) / apart)
    return np.einsum("pk,pki->pi", np.prod(ratios, axis=2), y[near])


def _extended(found: Manifold, length: float, spacing: float, angle: float, max_points: int) -> Manifold:
    """The manifold with points on both halves, out to an arclength."""
    start = found._at(np.zeros(1))
    ahead = found.radius * np.linspace(-1, 1, 9) / 64
    first = found._at(ahead)
    found = dataclasses.replace(found, s=ahead, before=first.y, x=first.x, arclength=0 * ahead)
    halves = {sign: [np.zeros(1), start.y, start.x, start.direction, np.zeros(1)] for sign in (-1, 1)}
    pace, count, ends = (dict.fromkeys(halves, value) for value in (found.radius / LANES, LANES, -1))
    while min(ends.values()) < 0:
        for sign in [sign for sign in halves if ends[sign] < 0]:
            rows = halves[sign]
            s = rows[0][-1] + sign * pace[sign] * np.arange(1, count[sign] + 1)
            reached = found._at(s)
            x, directions = np.concatenate([rows[2][-1:], reached.x]), np.concatenate([rows[3][-1:], reached.direction])
            gaps, turns = np.linalg.norm(np.diff(x, axis=0), axis=1), _turns(directions)
            good = (reached.codes == SUCCESSFUL) & (gaps <= spacing) & ((turns <= angle) | (gaps <= FOLD * spacing))
            # As far as the points are good, and not beyond the first one at the length.
            reach = abs(rows[4][-1]) + np.cumsum(gaps)
            kept = min(len(s) if good.all() else int(np.argmin(good)), 1 + int(np.searchsorted(reach, length)))
            new = [s, reached.y, reached.x, reached.direction, sign * reach]
            halves[sign] = rows = [np.concatenate([old, each[:kept]]) for old, each in zip(rows, new, strict=True)]
            if abs(rows[4][-1]) >= length:
                ends[sign] = SUCCESSFUL
            elif kept < len(s):
                small = pace[sign] * np.linalg.norm(rows[3][-1]) <= FOLD * spacing
                if small and (kept == 0 or reached.codes[kept] != SUCCESSFUL):
                    # A gap that does not shrink with the step: the map jumps.
                    code = int(reached.codes[kept])
                    ends[sign] = DIVERGED if code == SUCCESSFUL else code
                pace[sign] /= 2 if kept else 4
            elif np.all((2 * gaps <= spacing) & (2 * turns <= angle)):
                pace[sign] *= 2
            # Beyond the end of a manifold states take long to fail.
            count[sign] = min(LANES, 2 * kept + 2)
            if ends[sign] < 0 and len(rows[0]) > max_points:
                ends[sign] = int(RESULTS.max_points_reached._value)
            if len(halves[-1][0]) + len(halves[1][0]) >= 8:
                low, high = halves[-1], halves[1]
                columns = [np.concatenate([a[:0:-1], b]) for a, b in zip(low, high, strict=True)]
                found = dataclasses.replace(found, s=columns[0], before=columns[1], x=columns[2], arclength=columns[4])
    return dataclasses.replace(found, ends=numbered_code(jnp.array([ends[-1], ends[1]])))


def _turns(directions: np.ndarray) -> np.ndarray:
    """The angles between neighbouring directions."""
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    return 2 * np.arcsin(np.clip(np.linalg.norm(np.diff(unit, axis=0), axis=1) / 2, 0, 1))
